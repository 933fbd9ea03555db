//! How does a message become one durable transaction, a thousand of them at a time?
//!
//! An applier is a thread with one session. Per message it runs prepared statements in one transaction, its own position
//! among them, commits without waiting, and goes on; up to [`IN_FLIGHT_MAX`] commits are on their way to the devices. A
//! message's latency runs from its arrival (when it was due at the given speed, or when the applier took it) until its
//! commit is known durable.
//!
//! | message | statements |
//! |---|---|
//! | status | update STOCK_MASTER, position |
//! | quote | update BIDNASK, update TRADE, position |
//! | trade | select the status, select the best bid and ask, update TRADE, insert TRADE_HISTORY, position |
//! | trade of a stock that does not trade | select the status, position |
//!
//! Invariants:
//! 1. The position is n exactly if the applier's first n messages are applied: both are one transaction.
//! 2. A code belongs to one applier, so appliers never wait for each other.

use crate::bind::{decimal, int, owned, timestamp};
use crate::error::{Doing, MarketError, Result};
use crate::lines::OnError;
use crate::listing::clone_code;
use crate::live::Live;
use crate::message::{Body, Book, Kind, Message, Status, Trade};
use crate::replay::{Arrival, Assignment, Batches, Delivery, Pace, Replay, Speed};
use crate::schema::apply as sql;
use crate::source::Day;
use freshet_db::{Database, Datum, Session, SqlError, Statement, Ticket, Transaction, Value};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Commits of one applier that are not yet known durable.
const IN_FLIGHT_MAX: usize = 1_000;

/// Batches that the reader may be ahead of the slowest applier.
const BATCHES_AHEAD: usize = 16;

/// Another client may hold a row; these many times a message is tried again after a deadlock or conflict.
const TRIES_MAX: u32 = 100;

/// The longest an applier sleeps before it looks whether it should stop.
const NAP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions {
    pub clones: u32,
    pub appliers: u32,
    pub speed: Speed,
    pub deferred: bool,
    /// Of lines of a feed that comes by itself.
    pub on_error: OnError,
    /// Every applier goes away after so many messages, leaving commits on their way, as if killed. For tests of resuming.
    pub abandon_after: Option<u64>,
}

/// What an applier shows while it runs. One writer; on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct Gauge {
    /// Messages passed, those of an earlier run included.
    pub position: AtomicU64,
    pub applied: AtomicU64,
    pub statements: AtomicU64,
}

/// What an applier did in this run.
#[derive(Clone)]
pub struct Tally {
    pub by_kind: [u64; Kind::COUNT],
    pub refused_trades: u64,
    pub statements: u64,
    pub record_bytes: [u64; Kind::COUNT],
    pub latency_us: Histogram<u64>,
}

/// Three digits of precision, up to an hour.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            by_kind: [0; Kind::COUNT],
            refused_trades: 0,
            statements: 0,
            record_bytes: [0; Kind::COUNT],
            latency_us: latency_histogram(),
        }
    }

    pub fn messages(&self) -> u64 {
        self.by_kind.iter().sum()
    }

    pub fn add(&mut self, other: &Tally) {
        for kind in 0..Kind::COUNT {
            self.by_kind[kind] += other.by_kind[kind];
            self.record_bytes[kind] += other.record_bytes[kind];
        }
        self.refused_trades += other.refused_trades;
        self.statements += other.statements;
        self.latency_us.add(&other.latency_us).expect("all histograms have the same bounds");
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new()
    }
}

/// Applies the day from the stored positions on. Returns when every commit is durable, or when `stop` was raised, or with
/// the first error, having raised `stop`. With `live` the messages come from there.
pub fn apply_day(
    db: &Database,
    day: &Day,
    live: Option<&Live>,
    options: ApplyOptions,
    gauges: &[Gauge],
    stop: &AtomicBool,
) -> Result<Tally> {
    let assignment = Arc::new(Assignment::new(&day.listing, options.clones, options.appliers));
    let origin = OnceLock::new();
    let run = Run { db, day, is_live: live.is_some(), options, stop, origin: &origin };
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut appliers = Vec::new();
        for (applier, gauge) in (0..options.appliers).zip(gauges) {
            let (sender, receiver) = sync_channel(BATCHES_AHEAD);
            senders.push(sender);
            let (run, assignment) = (&run, assignment.clone());
            appliers.push(scope.spawn(move || raising(run.stop, || run.applier(applier, receiver, assignment, gauge))));
        }
        let batches = Batches::new(senders);
        let reader = scope.spawn(|| {
            raising(stop, || match live {
                Some(live) => live.read(&day.listing, options.on_error, batches, stop),
                None => read_ahead(day, batches, stop),
            })
        });
        let mut total = Tally::new();
        let mut first_error = reader.join().expect("the reader does not panic").err();
        for applier in appliers {
            match applier.join().expect("appliers do not panic") {
                Ok(tally) => total.add(&tally),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        first_error.map_or(Ok(total), Err)
    })
}

/// Tells the other threads to stop if this one fails.
fn raising<T>(stop: &AtomicBool, work: impl FnOnce() -> Result<T>) -> Result<T> {
    work().inspect_err(|_| stop.store(true, Ordering::Relaxed))
}

/// Reads the feed once and hands every batch to every applier.
fn read_ahead(day: &Day, mut batches: Batches, stop: &AtomicBool) -> Result<()> {
    let mut messages = day.messages()?;
    while let Some(message) = messages.next_message()? {
        batches.push(message);
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
    batches.end();
    Ok(())
}

struct Run<'a> {
    db: &'a Database,
    day: &'a Day,
    is_live: bool,
    options: ApplyOptions,
    stop: &'a AtomicBool,
    /// When feed time began to pass: set by the first applier that has something to apply.
    origin: &'a OnceLock<(crate::calendar::Timestamp, Instant)>,
}

impl Run<'_> {
    fn applier(
        &self,
        number: u32,
        deliveries: Receiver<Delivery>,
        assignment: Arc<Assignment>,
        gauge: &Gauge,
    ) -> Result<Tally> {
        let mut writer = Writer::new(self, number, &assignment)?;
        let stored = writer.stored_position()?;
        let mut flight = Flight::new(self.db, self.options.deferred);
        let Ok(mut replay) = Replay::new(deliveries, assignment, number) else {
            return Ok(flight.tally);
        };
        let mut position = 0;
        // `ReaderGone` ends the loop as `stop` does: the reader tells why.
        loop {
            if self.is_live && replay.would_wait() {
                // Nothing may come for long: what is under way is known durable now, not then.
                flight.land(0)?;
            }
            let Ok(Some(arrival)) = replay.next_arrival() else { break };
            position += 1;
            if position <= stored {
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let arrived = self.await_due(&arrival, &mut flight)?;
            let applied = writer.apply(&arrival, position)?;
            flight.depart(arrived, applied)?;
            gauge.show(position, &flight.tally);
            if self.options.abandon_after == Some(position - stored) {
                return Ok(flight.tally);
            }
        }
        flight.land(0)?;
        Ok(flight.tally)
    }

    /// Waits until the message is due, and meanwhile for commits. The moment it arrived.
    fn await_due(&self, arrival: &Arrival, flight: &mut Flight<'_>) -> Result<Instant> {
        let origin = self.origin.get_or_init(|| (arrival.message.ts, Instant::now()));
        let pace = Pace::new(self.options.speed, *origin);
        let Some(due) = pace.due(arrival.message.ts) else {
            return Ok(Instant::now());
        };
        loop {
            let now = Instant::now();
            if now >= due || self.stop.load(Ordering::Relaxed) {
                return Ok(due);
            }
            if flight.is_empty() {
                std::thread::sleep((due - now).min(NAP));
            } else {
                flight.await_first()?;
            }
        }
    }
}

impl Gauge {
    fn show(&self, position: u64, tally: &Tally) {
        self.position.store(position, Ordering::Relaxed);
        self.applied.store(tally.messages(), Ordering::Relaxed);
        self.statements.store(tally.statements, Ordering::Relaxed);
    }
}

/// A committed message.
struct Applied {
    kind: Kind,
    refused: bool,
    statements: u64,
    ticket: Ticket,
    record_bytes: u64,
}

/// Commits on their way to the devices, oldest first.
struct Flight<'a> {
    db: &'a Database,
    deferred: bool,
    commits: VecDeque<(Ticket, Instant)>,
    tally: Tally,
}

impl<'a> Flight<'a> {
    fn new(db: &'a Database, deferred: bool) -> Flight<'a> {
        Flight { db, deferred, commits: VecDeque::with_capacity(IN_FLIGHT_MAX), tally: Tally::new() }
    }

    fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    fn depart(&mut self, arrived: Instant, applied: Applied) -> Result<()> {
        let tally = &mut self.tally;
        tally.by_kind[applied.kind.index()] += 1;
        tally.record_bytes[applied.kind.index()] += applied.record_bytes;
        tally.refused_trades += u64::from(applied.refused);
        tally.statements += applied.statements;
        if self.deferred {
            // Acknowledged at pre-commit; the ticket is kept so that the run ends with everything on the devices.
            record(&mut tally.latency_us, arrived.elapsed());
        }
        self.commits.push_back((applied.ticket, arrived));
        self.collect();
        self.land(IN_FLIGHT_MAX - 1)
    }

    /// Takes the latency of every commit that is durable by now.
    fn collect(&mut self) {
        let mut now = None;
        while let Some(&(ticket, arrived)) = self.commits.front() {
            if !self.db.is_durable(ticket) {
                return;
            }
            self.commits.pop_front();
            if !self.deferred {
                let now = *now.get_or_insert_with(Instant::now);
                record(&mut self.tally.latency_us, now.duration_since(arrived));
            }
        }
    }

    fn await_first(&mut self) -> Result<()> {
        if let Some(&(ticket, _)) = self.commits.front() {
            self.db.wait(ticket).doing("waiting for the log")?;
        }
        self.collect();
        Ok(())
    }

    /// Waits until at most `left` commits are on their way.
    fn land(&mut self, left: usize) -> Result<()> {
        while self.commits.len() > left {
            self.await_first()?;
        }
        Ok(())
    }
}

fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record((latency.as_micros() as u64).max(1));
}

/// The statements of every kind of message, prepared once.
struct Statements {
    status: Statement,
    quote: Statement,
    closest: Statement,
    check_status: Statement,
    best: Statement,
    settle: Statement,
    record: Statement,
    position: Statement,
}

impl Statements {
    fn prepare(session: &mut Session) -> std::result::Result<Statements, SqlError> {
        Ok(Statements {
            status: session.prepare(sql::STATUS)?,
            quote: session.prepare(&sql::quote())?,
            closest: session.prepare(sql::CLOSEST)?,
            check_status: session.prepare(sql::CHECK_STATUS)?,
            best: session.prepare(sql::BEST)?,
            settle: session.prepare(sql::SETTLE)?,
            record: session.prepare(sql::RECORD)?,
            position: session.prepare(sql::POSITION)?,
        })
    }
}

/// Turns messages into transactions.
struct Writer {
    session: Session,
    statements: Statements,
    assignment: Arc<Assignment>,
    /// The codes of this applier as parameters, by their place; others are null.
    codes: Vec<Datum>,
    /// The code, then what the statement at hand takes.
    parameters: Vec<Datum>,
    /// Of the statement that stores the position.
    position: [Datum; 2],
}

impl Writer {
    fn new(run: &Run<'_>, number: u32, assignment: &Arc<Assignment>) -> Result<Writer> {
        let mut session = run.db.session().doing("connecting")?;
        if run.options.deferred {
            session.run("SET synchronous_commit = off").doing("choosing deferred commits")?;
        }
        let statements = Statements::prepare(&mut session).doing("preparing the statements")?;
        let mut codes = Vec::new();
        for (index, stock) in run.day.listing.in_feed().iter().enumerate() {
            for clone in 0..run.options.clones {
                let id = crate::message::StockId(index as u32);
                codes.push(match assignment.applier(id, clone) == number {
                    true => crate::bind::text(&clone_code(&stock.code, clone)),
                    false => Datum::Null,
                });
            }
        }
        Ok(Writer {
            session,
            statements,
            assignment: assignment.clone(),
            codes,
            parameters: Vec::with_capacity(44),
            position: [int(number), int(0)],
        })
    }

    fn stored_position(&mut self) -> Result<u64> {
        let sql = "SELECT message FROM market_position WHERE applier = $1";
        let statement = self.session.prepare(sql).doing("reading the position")?;
        let rows = self.session.query(&statement, &self.position[..1]).doing("reading the position")?;
        match (rows.len(), (!rows.is_empty()).then(|| rows.get(0, 0))) {
            (1, Some(Value::Int(message))) => Ok(message as u64),
            _ => Err(missing("market_position", &self.position[0])),
        }
    }

    fn apply(&mut self, arrival: &Arrival, position: u64) -> Result<Applied> {
        let place = self.assignment.place(arrival.message.stock, arrival.clone);
        self.parameters.clear();
        self.parameters.push(std::mem::replace(&mut self.codes[place], Datum::Null));
        self.position[1] = Datum::Int(position as i64);
        let mut tries = 0;
        let applied = loop {
            tries += 1;
            match self.transaction(&arrival.message) {
                Err(MarketError::Sql { error, .. })
                    if matches!(error.sqlstate, "40001" | "40P01") && tries < TRIES_MAX => {}
                outcome => break outcome,
            }
        };
        self.codes[place] = std::mem::replace(&mut self.parameters[0], Datum::Null);
        applied
    }

    fn transaction(&mut self, message: &Message) -> Result<Applied> {
        let mut work = Work {
            transaction: self.session.begin().doing("beginning a transaction")?,
            statements: &self.statements,
            parameters: &mut self.parameters,
            executed: 0,
        };
        let mut refused = false;
        match &message.body {
            Body::Status { status, previous_close } => work.status(message, status, *previous_close)?,
            Body::Quote(book) => work.quote(message, book)?,
            Body::Trade(trade) => refused = !work.trade(message, trade)?,
        }
        let (statements, ticket) = work.commit(&self.position)?;
        Ok(Applied {
            kind: message.body.kind(),
            refused,
            statements,
            ticket,
            record_bytes: self.session.last_commit_record_bytes(),
        })
    }
}

/// One message's transaction in progress. Dropped, it is rolled back.
struct Work<'a> {
    transaction: Transaction<'a>,
    statements: &'a Statements,
    /// The first is the code.
    parameters: &'a mut Vec<Datum>,
    executed: u64,
}

impl Work<'_> {
    fn status(&mut self, message: &Message, status: &Status, previous_close: i32) -> Result<()> {
        self.parameters.truncate(1);
        self.parameters.extend([
            Datum::Bytes(status.as_bytes().into()),
            decimal(previous_close),
            timestamp(message.ts),
        ]);
        let statement = &self.statements.status;
        self.change(statement, "stock_master")
    }

    fn quote(&mut self, message: &Message, book: &Book) -> Result<()> {
        let statements = self.statements;
        self.parameters.truncate(1);
        self.parameters.push(timestamp(message.ts));
        self.parameters.extend(book.bid_price.map(decimal));
        self.parameters.extend(book.bid_quantity.map(int));
        self.parameters.extend(book.ask_price.map(decimal));
        self.parameters.extend(book.ask_quantity.map(int));
        self.parameters.extend([int(book.bid_total()), int(book.ask_total())]);
        self.change(&statements.quote, "bidnask")?;
        self.parameters.truncate(2);
        self.parameters.extend([decimal(book.bid_price[0]), decimal(book.ask_price[0])]);
        self.change(&statements.closest, "trade")
    }

    /// False if the stock does not trade.
    fn trade(&mut self, message: &Message, trade: &Trade) -> Result<bool> {
        let statements = self.statements;
        self.parameters.truncate(1);
        let Some(previous_close) = self.previous_close_if_trading()? else {
            return Ok(false);
        };
        let best = self.best()?;
        let change = trade.price - previous_close;
        self.parameters.push(timestamp(message.ts));
        self.parameters.extend(settled(trade, change));
        self.parameters.extend(best.iter().cloned());
        self.parameters.push(decimal(previous_close));
        self.change(&statements.settle, "trade")?;
        self.parameters.truncate(2);
        self.parameters.push(int(trade.seq));
        self.parameters.extend(settled(trade, change));
        self.parameters.extend(best);
        self.executed += 1;
        self.transaction.execute(&statements.record, self.parameters).doing("inserting into trade_history")?;
        Ok(true)
    }

    fn previous_close_if_trading(&mut self) -> Result<Option<i32>> {
        self.executed += 1;
        let rows = self
            .transaction
            .query(&self.statements.check_status, self.parameters)
            .doing("checking the trade status")?;
        if rows.is_empty() {
            return Err(missing("stock_master", &self.parameters[0]));
        }
        match (rows.get(0, 0), rows.get(0, 1)) {
            (Value::Bytes(status), Value::Decimal(close)) if status == Status::TRADE.as_bytes() => {
                Ok(Some(close as i32))
            }
            _ => Ok(None),
        }
    }

    fn best(&mut self) -> Result<[Datum; 4]> {
        self.executed += 1;
        let rows =
            self.transaction.query(&self.statements.best, self.parameters).doing("reading the best bid and ask")?;
        if rows.is_empty() {
            return Err(missing("bidnask", &self.parameters[0]));
        }
        Ok(std::array::from_fn(|column| owned(rows.get(0, column))))
    }

    /// Runs an update that must find its row.
    fn change(&mut self, statement: &Statement, table: &str) -> Result<()> {
        self.executed += 1;
        let rows = self
            .transaction
            .execute(statement, self.parameters)
            .map_err(|error| MarketError::Sql { doing: format!("updating {table}"), error: Box::new(error) })?;
        match rows {
            1 => Ok(()),
            _ => Err(missing(table, &self.parameters[0])),
        }
    }

    fn commit(mut self, position: &[Datum; 2]) -> Result<(u64, Ticket)> {
        let rows = self.transaction.execute(&self.statements.position, position).doing("storing the position")?;
        if rows != 1 {
            return Err(missing("market_position", &position[0]));
        }
        let ticket = self.transaction.commit_ticket().doing("committing")?;
        Ok((self.executed + 1, ticket))
    }
}

fn settled(trade: &Trade, change: i32) -> [Datum; 4] {
    [decimal(trade.price), decimal(change), int(trade.quantity), decimal(trade.amount)]
}

fn missing(table: &str, key: &Datum) -> MarketError {
    let key = match key {
        Datum::Bytes(code) => String::from_utf8_lossy(code).into_owned(),
        Datum::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    MarketError::State(format!("{table} has no row for {key}"))
}
