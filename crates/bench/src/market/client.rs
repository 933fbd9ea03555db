//! Who asks, and who tells? Customers with their forms and appliers with the feed, each over a connection of its own: tokio-postgres, prepared
//! statements, the same for every server.
//!
//! | who | sends |
//! |---|---|
//! | a customer | the two queries of a form, one after the other, or both in one message (`pipelined`) |
//! | an applier, of a status or quote | the whole transaction |
//! | an applier, of a trade | BEGIN and the two reads; then the changes with what was read, and COMMIT |
//!
//! A code belongs to one applier, so appliers never wait for each other, and a code's messages are applied in the feed's order. What is due by the time
//! that an applier sends, it sends together, up to a trade's reads, whose answers it has to have before it goes on: a feed that waited for each
//! commit before it sends the next message could never catch up.

use super::window::{Due, Window};
use crate::adapter::wire::{Address, connect, in_order};
use crate::error::BenchError;
use bytes::{BufMut, BytesMut};
use freshet_market::apply::latency_histogram;
use freshet_market::generate::Random;
use freshet_market::message::{Body, Trade};
use freshet_market::schema::{apply, forms};
use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use hdrhistogram::Histogram;
use postgres_types::{FromSql, IsNull, ToSql, Type};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Row, Statement};

type Failed = tokio_postgres::Error;
type Boxed = Box<dyn Error + Sync + Send>;

/// A parameter, in whatever type its place has.
#[derive(Clone, Debug)]
pub enum Cell {
    Text(String),
    /// An integer, or the number's ten-thousandths where the type is numeric.
    Number(i64),
    /// Microseconds since 2000.
    Time(i64),
    /// What the server said, given back.
    Raw(Option<Vec<u8>>),
}

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match self {
            Cell::Text(text) => out.put_slice(text.as_bytes()),
            Cell::Time(us) => out.put_i64(*us),
            Cell::Raw(None) => return Ok(IsNull::Yes),
            Cell::Raw(Some(bytes)) => out.put_slice(bytes),
            Cell::Number(number) => match *ty {
                Type::INT4 => out.put_i32(i32::try_from(*number)?),
                Type::INT8 => out.put_i64(*number),
                Type::NUMERIC => put_numeric(*number, out),
                _ => return Err(format!("a number where {ty} is due").into()),
            },
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    postgres_types::to_sql_checked!();
}

/// A value as it came.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Boxed> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Ten-thousandths in the binary form of numeric: digits of base 10,000, the last of them the fraction.
fn put_numeric(number: i64, out: &mut BytesMut) {
    let magnitude = number.unsigned_abs();
    let mut whole = magnitude / 10_000;
    let mut digits = vec![(magnitude % 10_000) as u16];
    while whole > 0 {
        digits.push((whole % 10_000) as u16);
        whole /= 10_000;
    }
    out.put_u16(digits.len() as u16);
    out.put_i16(digits.len() as i16 - 2);
    out.put_u16(if number < 0 { 0x4000 } else { 0 });
    out.put_u16(4);
    digits.iter().rev().for_each(|digit| out.put_u16(*digit));
}

/// The ten-thousandths of a numeric with at most four digits behind the point.
fn numeric(raw: &[u8]) -> Option<i64> {
    let word = |at: usize| Some(i16::from_be_bytes([*raw.get(2 * at)?, *raw.get(2 * at + 1)?]));
    let (count, weight, sign) = (word(0)?, word(1)?, word(2)?);
    let mut number = 0i64;
    for place in 0..count {
        // The digit of weight -1 counts ten-thousandths.
        let power = u32::try_from(weight - place + 1).ok()?;
        number += i64::from(word(4 + place as usize)?) * 10_000i64.checked_pow(power)?;
    }
    Some(if sign == 0 { number } else { -number })
}

/// When a measurement warms up, counts, and ends.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub begin: Instant,
    pub end: Instant,
}

impl Clock {
    fn counts(&self, asked: Instant, answered: Instant) -> bool {
        asked >= self.begin && answered <= self.end
    }
}

// ---- customers

/// What customers saw.
pub struct Shown {
    pub forms: u64,
    pub latency_us: Histogram<u64>,
}

impl Default for Shown {
    fn default() -> Shown {
        Shown { forms: 0, latency_us: latency_histogram() }
    }
}

impl Shown {
    pub fn add(&mut self, other: &Shown) {
        self.forms += other.forms;
        self.latency_us.add(&other.latency_us).expect("all histograms have the same bounds");
    }
}

/// How customers ask.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Forms 2 in a hundred.
    pub form_2_percent: u64,
    pub pipelined: bool,
}

pub struct Customer {
    client: Client,
    /// Of Form 1, then of Form 2, with the rows that each may give.
    queries: [(Statement, std::ops::RangeInclusive<u64>); 4],
}

impl Customer {
    pub async fn connect(address: Address) -> Result<Customer, BenchError> {
        let client = connect(address).await?;
        let queries = [
            (client.prepare(forms::QF1).await?, 1..=1),
            (client.prepare(forms::QF2).await?, 1..=60),
            (client.prepare(&forms::qf3()).await?, 1..=1),
            (client.prepare(forms::QF4).await?, 0..=20),
        ];
        Ok(Customer { client, queries })
    }

    /// Shows forms of random codes until the clock's end.
    pub async fn ask(&self, window: &Window, asking: Asking, seed: u64, clock: Clock) -> Result<Shown, BenchError> {
        let mut random = Random::new(seed);
        let mut shown = Shown::default();
        loop {
            let asked = Instant::now();
            if asked >= clock.end {
                return Ok(shown);
            }
            let code = &window.codes[random.below(window.codes.len() as u64) as usize].code;
            let form = if random.chance(asking.form_2_percent) { &self.queries[2..] } else { &self.queries[..2] };
            if asking.pipelined {
                let both: Vec<LocalBoxFuture<'_, Result<(), BenchError>>> =
                    form.iter().map(|query| self.rows(query, code).boxed_local()).collect();
                futures::future::try_join_all(both).await?;
            } else {
                for query in form {
                    self.rows(query, code).await?;
                }
            }
            let answered = Instant::now();
            if clock.counts(asked, answered) {
                shown.forms += 1;
                shown.latency_us.saturating_record(((answered - asked).as_micros() as u64).max(1));
            }
        }
    }

    async fn rows(
        &self,
        (statement, due): &(Statement, std::ops::RangeInclusive<u64>),
        code: &str,
    ) -> Result<(), BenchError> {
        let rows = self.client.query_raw(statement, [code]).await?;
        futures::pin_mut!(rows);
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row?;
            count += 1;
        }
        match due.contains(&count) {
            true => Ok(()),
            false => Err(BenchError::WrongData(format!("a form's query gave {count} rows for {code}"))),
        }
    }
}

// ---- the feed

/// What appliers did.
pub struct Applied {
    /// In the window that counts.
    pub messages: u64,
    /// In all, for the oracle.
    pub trades: u64,
    pub quotes: u64,
    /// From when a message was due until its commit was answered.
    pub lag_us: Histogram<u64>,
}

impl Default for Applied {
    fn default() -> Applied {
        Applied { messages: 0, trades: 0, quotes: 0, lag_us: latency_histogram() }
    }
}

impl Applied {
    fn note(&mut self, next: &Next<'_>, answered: Instant, clock: Clock) {
        self.trades += u64::from(matches!(next.message.body, Body::Trade(_)));
        self.quotes += u64::from(matches!(next.message.body, Body::Quote(_)));
        if answered >= clock.begin {
            self.messages += u64::from(answered <= clock.end);
            self.lag_us.saturating_record(((answered - next.due).as_micros() as u64).max(1));
        }
    }

    pub fn add(&mut self, other: &Applied) {
        self.messages += other.messages;
        self.trades += other.trades;
        self.quotes += other.quotes;
        self.lag_us.add(&other.lag_us).expect("all histograms have the same bounds");
    }
}

/// How fast the feed runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    Times(f64),
    Max,
}

impl Speed {
    /// How many times as fast as the day; infinitely if as fast as it goes.
    pub fn times(self) -> f64 {
        match self {
            Speed::Times(times) => times,
            Speed::Max => f64::INFINITY,
        }
    }
}

struct Statements {
    begin: Statement,
    commit: Statement,
    status: Statement,
    quote: Statement,
    closest: Statement,
    check_status: Statement,
    best: Statement,
    settle: Statement,
    record: Statement,
    position: Statement,
}

pub struct Applier {
    client: Client,
    statements: Statements,
    number: usize,
    of: usize,
    position: std::cell::Cell<i64>,
}

/// Messages that an applier sends at a time.
const TOGETHER: usize = 32;

impl Applier {
    /// The `number`th of so many.
    pub async fn connect(address: Address, number: usize, of: usize) -> Result<Applier, BenchError> {
        let client = connect(address).await?;
        let statements = Statements {
            begin: client.prepare("BEGIN").await?,
            commit: client.prepare("COMMIT").await?,
            status: client.prepare(apply::STATUS).await?,
            quote: client.prepare(&apply::quote()).await?,
            closest: client.prepare(apply::CLOSEST).await?,
            check_status: client.prepare(apply::CHECK_STATUS).await?,
            best: client.prepare(apply::BEST).await?,
            settle: client.prepare(apply::SETTLE).await?,
            record: client.prepare(apply::RECORD).await?,
            position: client.prepare(apply::POSITION).await?,
        };
        Ok(Applier { client, statements, number, of, position: Default::default() })
    }

    /// Applies its messages of the window, again and again, until the clock's end. `round` numbers the first repetition: each has times of its own, so that no two have the
    /// same history keys.
    pub async fn apply(
        &self,
        window: &Window,
        speed: Speed,
        started: Instant,
        clock: Clock,
        round: &std::cell::Cell<i64>,
        stop: &AtomicBool,
    ) -> Result<Applied, BenchError> {
        let own = window.messages.iter().filter(|message| message.code % self.of == self.number).collect();
        let mut feed = Feed { own, window, speed, started, first_round: round.get(), round, taken: 0 };
        let mut applied = Applied::default();
        let mut opened = None;
        let mut is_over = false;
        loop {
            let mut steps: Vec<_> = opened.take().into_iter().map(|trade| self.settle(trade).boxed_local()).collect();
            while steps.len() < TOGETHER && !is_over {
                let Some(next) = feed.peek().filter(|next| next.due <= clock.end) else {
                    is_over = true;
                    break;
                };
                // Who has something to send sends it; who has nothing waits.
                if next.due > Instant::now() && !steps.is_empty() {
                    break;
                }
                tokio::time::sleep_until(next.due.into()).await;
                let now = Instant::now();
                if next.due >= clock.end || now >= clock.end || stop.load(Ordering::Relaxed) {
                    if next.due < now {
                        // It never came to this one: a feed that is left behind has a lag all the same.
                        applied.lag_us.saturating_record(((now - next.due).as_micros() as u64).max(1));
                    }
                    is_over = true;
                    break;
                }
                feed.taken += 1;
                steps.push(self.first_step(next));
                if matches!(next.message.body, Body::Trade(_)) {
                    break;
                }
            }
            if steps.is_empty() {
                return Ok(applied);
            }
            for step in in_order(steps).await? {
                match step {
                    Step::Opened(trade) => opened = Some(trade),
                    Step::Committed(next, answered) => applied.note(&next, answered, clock),
                    Step::Passed => {}
                }
            }
        }
    }

    /// What a message sends first: all that it has to send, but for a trade.
    fn first_step<'a>(&'a self, next: Next<'a>) -> LocalBoxFuture<'a, Result<Step<'a>, BenchError>> {
        let (code, time) = (next.code_cell(), next.time_cell());
        let statements = &self.statements;
        match &next.message.body {
            Body::Status { status, previous_close } => {
                let status = Cell::Text(String::from_utf8_lossy(status.as_bytes()).into_owned());
                let change = vec![code, status, Cell::Number((*previous_close).into()), time];
                self.whole(next, vec![(&statements.status, change)]).boxed_local()
            }
            Body::Quote(book) => {
                let mut change = vec![code.clone(), time.clone()];
                for levels in [book.bid_price, book.bid_quantity, book.ask_price, book.ask_quantity] {
                    change.extend(levels.map(|level| Cell::Number(level.into())));
                }
                change.extend([book.bid_total(), book.ask_total()].map(Cell::Number));
                let best = [book.bid_price[0], book.ask_price[0]].map(|price| Cell::Number(price.into()));
                let closest = [code, time].into_iter().chain(best).collect();
                self.whole(next, vec![(&statements.quote, change), (&statements.closest, closest)]).boxed_local()
            }
            Body::Trade(trade) => self.open(next, trade).boxed_local(),
        }
    }

    fn next_position(&self) -> Vec<Cell> {
        self.position.set(self.position.get() + 1);
        vec![Cell::Number(self.number as i64), Cell::Number(self.position.get())]
    }

    async fn execute(&self, statement: &Statement, cells: Vec<Cell>) -> Result<u64, Failed> {
        self.client.execute_raw(statement, cells).await
    }

    /// A transaction of changes that each find their row.
    async fn whole<'a>(
        &'a self,
        next: Next<'a>,
        changes: Vec<(&Statement, Vec<Cell>)>,
    ) -> Result<Step<'a>, BenchError> {
        let begin = self.execute(&self.statements.begin, Vec::new()).boxed_local();
        let changes = changes.into_iter().map(|(statement, cells)| self.execute(statement, cells).boxed_local());
        self.committed(next, [begin].into_iter().chain(changes).collect(), 1).await
    }

    /// Sends the changes, the position and COMMIT. Behind the first `skipped`, each changes one row.
    async fn committed<'a>(
        &self,
        next: Next<'a>,
        mut all: Vec<LocalBoxFuture<'_, Result<u64, Failed>>>,
        skipped: usize,
    ) -> Result<Step<'a>, BenchError> {
        all.push(self.execute(&self.statements.position, self.next_position()).boxed_local());
        all.push(self.execute(&self.statements.commit, Vec::new()).boxed_local());
        let rows = in_order(all).await?;
        found(&rows[skipped..rows.len() - 1])?;
        Ok(Step::Committed(next, Instant::now()))
    }

    async fn first_row(&self, statement: &Statement, code: Cell) -> Result<Option<Row>, Failed> {
        let rows = self.client.query_raw(statement, [code]).await?;
        futures::pin_mut!(rows);
        let mut first = None;
        while let Some(row) = rows.next().await {
            first = Some(row?);
        }
        Ok(first)
    }

    async fn open<'a>(&self, next: Next<'a>, trade: &'a Trade) -> Result<Step<'a>, BenchError> {
        let statements = &self.statements;
        let begin = self.execute(&statements.begin, Vec::new());
        let status = self.first_row(&statements.check_status, next.code_cell());
        let best = self.first_row(&statements.best, next.code_cell());
        match futures::try_join!(begin, status, best)? {
            (_, Some(status), Some(best)) => Ok(Step::Opened(Opened { next, trade, status, best })),
            _ => Err(BenchError::WrongData(format!("{} is not among the stocks", next.code))),
        }
    }

    /// The rest of a trade, by what was read.
    async fn settle<'a>(&self, opened: Opened<'a>) -> Result<Step<'a>, BenchError> {
        let Opened { next, trade, status, best } = opened;
        let statements = &self.statements;
        if status.try_get::<_, Option<Raw>>(0)?.is_none_or(|raw| raw.0 != b"TRADE") {
            self.execute(&statements.commit, Vec::new()).await?;
            return Ok(Step::Passed);
        }
        let previous = status.try_get::<_, Option<Raw>>(1)?.and_then(|raw| numeric(&raw.0)).unwrap_or(0);
        let mut levels = Vec::with_capacity(4);
        for column in 0..4 {
            levels.push(Cell::Raw(best.try_get::<_, Option<Raw>>(column)?.map(|raw| raw.0)));
        }
        let (code, time, price) = (next.code_cell(), next.time_cell(), i64::from(trade.price));
        let settled = [price, price - previous, i64::from(trade.quantity), trade.amount].map(Cell::Number);
        let settle: Vec<Cell> = [code.clone(), time.clone()]
            .into_iter()
            .chain(settled.clone())
            .chain(levels.clone())
            .chain([Cell::Number(previous)])
            .collect();
        let record: Vec<Cell> =
            [code, time, Cell::Number(trade.seq.into())].into_iter().chain(settled).chain(levels).collect();
        let changes = vec![
            self.execute(&statements.settle, settle).boxed_local(),
            self.execute(&statements.record, record).boxed_local(),
        ];
        self.committed(next, changes, 0).await
    }
}

/// An applier's part of the window, over and over.
struct Feed<'a> {
    own: Vec<&'a Due>,
    window: &'a Window,
    speed: Speed,
    started: Instant,
    first_round: i64,
    /// One more than the last repetition that anybody began.
    round: &'a std::cell::Cell<i64>,
    taken: usize,
}

/// A message, and when it is due.
#[derive(Clone, Copy)]
struct Next<'a> {
    due: Instant,
    message: &'a Due,
    code: &'a str,
    time_us: i64,
}

impl<'a> Feed<'a> {
    /// The message that comes next, if the applier has any.
    fn peek(&self) -> Option<Next<'a>> {
        let repetition = self.taken.checked_div(self.own.len())? as i64;
        let message = self.own[self.taken % self.own.len()];
        let round = self.first_round + repetition;
        self.round.set(self.round.get().max(round + 1));
        let due = match self.speed {
            Speed::Max => Instant::now(),
            Speed::Times(times) => {
                let at_us = (repetition * self.window.span_us + message.at_us) as f64 / times;
                self.started + Duration::from_micros(at_us as u64)
            }
        };
        let time_us = message.ts.0 + round * self.window.span_us;
        Some(Next { due, message, code: &self.window.codes[message.code].code, time_us })
    }
}

impl Next<'_> {
    fn code_cell(&self) -> Cell {
        Cell::Text(self.code.to_owned())
    }

    fn time_cell(&self) -> Cell {
        Cell::Time(self.time_us)
    }
}

/// A trade whose transaction is open, with what was read.
struct Opened<'a> {
    next: Next<'a>,
    trade: &'a Trade,
    status: Row,
    best: Row,
}

/// Where a message is after a turn.
enum Step<'a> {
    Opened(Opened<'a>),
    Committed(Next<'a>, Instant),
    /// The stock does not trade.
    Passed,
}

/// Each change changed one row.
fn found(rows: &[u64]) -> Result<(), BenchError> {
    match rows.iter().all(|rows| *rows == 1) {
        true => Ok(()),
        false => Err(BenchError::WrongData(format!("changes of one row each changed {rows:?} rows"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_read_as_they_were_written() {
        for number in [0, 1, -1, 9_999, 10_000, -123_456_789, 99_999_999_999, 1_000_000_000_000_000] {
            let mut bytes = BytesMut::new();
            put_numeric(number, &mut bytes);
            assert_eq!(numeric(&bytes), Some(number));
        }
        // PostgreSQL leaves out zeros at the end: 20000 has one digit of weight 1.
        assert_eq!(numeric(&[0, 1, 0, 1, 0, 0, 0, 4, 0, 2]), Some(200_000_000));
        assert_eq!(numeric(&[0, 9]), None);
    }
}
