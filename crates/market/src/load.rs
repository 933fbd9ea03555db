//! What stands in the tables before the first message, and whose run is it?
//!
//! Setting up is not atomic, its last commit is: the row of MARKET_RUN, which tells what the run was started with. A
//! directory without that row is set up again from the beginning; one with it is resumed, if the options are the same.

use crate::bind::{date, decimal, int, or_null, text};
use crate::error::{Doing, MarketError, Result};
use crate::listing::{Bar, clone_code};
use crate::message::PRICE_MAX;
use crate::schema::{self, FROM_BARS};
use crate::source::Day;
use freshet_db::{Database, Datum, Session, Statement, Ticket, Value};
use std::collections::VecDeque;

/// Raised when stored runs of before can no longer be resumed.
const RUN_FORMAT: i64 = 1;

/// Rows of one transaction while loading.
const ROWS_PER_COMMIT: usize = 500;

/// Commits on their way while loading.
const COMMITS_IN_FLIGHT: usize = 8;

/// What a run was started with; a resumed one must be given the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub feed: String,
    pub fingerprint: u64,
    pub messages: u64,
    pub clones: u32,
    pub appliers: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunState {
    /// Nothing was set up, or not to the end.
    Fresh,
    /// Set up, and perhaps applied in part.
    Started(Identity),
    /// Applied and closed.
    Done(Identity),
}

impl Identity {
    /// The option that differs from the stored run's, if any.
    pub fn check_same(&self, stored: &Identity) -> Result<()> {
        let difference = if stored.fingerprint != self.fingerprint || stored.messages != self.messages {
            format!("{} and this is {}", stored.feed, self.feed)
        } else if stored.clones != self.clones {
            format!("--clones {} and this is {}", stored.clones, self.clones)
        } else if stored.appliers != self.appliers {
            format!("--appliers {} and this is {}", stored.appliers, self.appliers)
        } else {
            return Ok(());
        };
        Err(MarketError::Usage(format!(
            "the data directory holds a run of {difference}: give the same options, another --data, or --fresh to start over"
        )))
    }
}

/// Reads whose run the database holds.
pub fn run_state(session: &mut Session) -> Result<RunState> {
    let sql = "SELECT format, feed, fingerprint, messages, clones, appliers, state FROM market_run WHERE id = 1";
    let statement = match session.prepare(sql) {
        Ok(statement) => statement,
        Err(error) if error.sqlstate == "42P01" => return Ok(RunState::Fresh),
        Err(error) => return Err(error).doing("reading the run's state"),
    };
    let rows = session.query(&statement, &[]).doing("reading the run's state")?;
    if rows.is_empty() {
        return Ok(RunState::Fresh);
    }
    let number = |column: usize| match rows.get(0, column) {
        Value::Int(value) => Ok(value),
        other => Err(MarketError::State(format!("MARKET_RUN holds {other:?} where a number belongs"))),
    };
    let string = |column: usize| match rows.get(0, column) {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    if number(0)? != RUN_FORMAT {
        return Err(MarketError::State(format!(
            "the data directory holds a run of format {}, this program resumes format {RUN_FORMAT}: --fresh starts over",
            number(0)?
        )));
    }
    let identity = Identity {
        feed: string(1),
        fingerprint: number(2)? as u64,
        messages: number(3)? as u64,
        clones: number(4)? as u32,
        appliers: number(5)? as u32,
    };
    Ok(match string(6).as_str() {
        "done" => RunState::Done(identity),
        _ => RunState::Started(identity),
    })
}

/// Creates the tables and fills them with everything that stands before the first message. `loaded` is told rows.
pub fn set_up(db: &Database, day: &Day, identity: &Identity, loaded: &mut dyn FnMut(u64)) -> Result<()> {
    let mut session = db.session().doing("setting up")?;
    for table in schema::all_tables() {
        let drop = format!("DROP TABLE IF EXISTS {}", table.name);
        session.run(&drop).doing("setting up")?;
        session.run(&table.create()).doing(&format!("creating {}", table.name))?;
    }
    let mut loader = Loader { db, session, tickets: VecDeque::new(), rows: 0, loaded };
    load_stocks(&mut loader, day, identity.clones)?;
    load_bars(&mut loader, day, identity.clones)?;
    let positions = (0..identity.appliers).map(|applier| vec![int(applier), int(0)]);
    loader.insert("market_position (applier, message)", positions)?;
    let run = vec![
        int(1),
        int(RUN_FORMAT),
        text(&identity.feed),
        int(identity.fingerprint as i64),
        int(identity.messages as i64),
        int(identity.clones),
        int(identity.appliers),
        text("started"),
    ];
    loader.settle(0)?;
    loader.insert(
        "market_run (id, format, feed, fingerprint, messages, clones, appliers, state)",
        std::iter::once(run),
    )?;
    loader.settle(0)
}

fn load_stocks(loader: &mut Loader<'_>, day: &Day, clones: u32) -> Result<()> {
    let listing = &day.listing;
    let cloned = listing
        .in_feed()
        .iter()
        .flat_map(|stock| (0..clones).map(move |clone| (clone_code(&stock.code, clone), &stock.name)));
    let listed = listing.listed_only().iter();
    let all: Vec<(String, &Box<str>)> =
        cloned.chain(listed.map(|stock| (stock.code.to_string(), &stock.name))).collect();
    let names = all.iter().map(|(code, name)| vec![text(code), text(name)]);
    loader.insert("stock_master (stock_code, stock_name)", names)?;
    let counts = all.iter().map(|(code, _)| vec![text(code), int(0)]);
    loader.insert("bidnask (stock_code, quote_count)", counts)?;
    let totals = all.iter().map(|(code, _)| vec![text(code), int(0), decimal(0), int(0)]);
    loader.insert("trade (stock_code, total_volume, total_amount, trade_count)", totals)
}

fn load_bars(loader: &mut Loader<'_>, day: &Day, clones: u32) -> Result<()> {
    let columns = "trade_daily_aggregate (stock_code, aggregate_date, start_price, highest_price, lowest_price, \
                   finish_price, total_volume, price_change, day_of_week, source)";
    let feed_rows = day.listing.in_feed().iter().flat_map(|stock| {
        let bars = day.bars_before(stock);
        (0..clones).flat_map(move |clone| {
            let code = text(&clone_code(&stock.code, clone));
            bar_rows(&bars, code)
        })
    });
    loader.insert(columns, feed_rows)?;
    let feed_codes = &day.listing.in_feed();
    let own: std::collections::HashSet<&str> = feed_codes.iter().map(|s| &*s.code).collect();
    let others = day.bars.by_symbol.iter().filter(|(symbol, _)| !own.contains(&***symbol));
    let rows = others.flat_map(|(symbol, bars)| bar_rows(bars, text(symbol)));
    loader.insert(columns, rows)
}

/// The rows of TRADE_DAILY_AGGREGATE that these bars become, in the order of [`load_bars`]'s columns.
pub fn bar_rows(bars: &[Bar], code: Datum) -> Vec<Vec<Datum>> {
    let mut previous = None;
    bars.iter()
        .map(|bar| {
            let change = previous.replace(bar.close).map(|close: i64| bar.close - close);
            // The change of a stock that costs more than a price column holds may itself not fit: then it is unknown.
            let change = change.filter(|c| c.abs() <= i64::from(PRICE_MAX));
            vec![
                code.clone(),
                date(bar.date),
                decimal(bar.open),
                decimal(bar.high),
                decimal(bar.low),
                decimal(bar.close),
                int(bar.volume),
                or_null(change.map(decimal)),
                int(bar.date.weekday()),
                int(FROM_BARS),
            ]
        })
        .collect()
}

/// Inserts rows in transactions of [`ROWS_PER_COMMIT`], a few of them on their way to the devices at a time.
struct Loader<'a> {
    db: &'a Database,
    session: Session,
    tickets: VecDeque<Ticket>,
    rows: u64,
    loaded: &'a mut dyn FnMut(u64),
}

impl Loader<'_> {
    /// `into` is a table with its column list.
    fn insert(&mut self, into: &str, rows: impl Iterator<Item = Vec<Datum>>) -> Result<()> {
        let doing = format!("loading {}", into.split(' ').next().unwrap_or(into));
        let parameters: Vec<String> = (1..=into.split(',').count()).map(|i| format!("${i}")).collect();
        let sql = format!("INSERT INTO {into} VALUES ({})", parameters.join(", "));
        let statement = self.session.prepare(&sql).doing(&doing)?;
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let ticket = self.commit_some(&statement, &mut rows).doing(&doing)?;
            self.tickets.push_back(ticket);
            self.settle(COMMITS_IN_FLIGHT)?;
            (self.loaded)(self.rows);
        }
        Ok(())
    }

    fn commit_some(
        &mut self,
        statement: &Statement,
        rows: &mut dyn Iterator<Item = Vec<Datum>>,
    ) -> std::result::Result<Ticket, freshet_db::SqlError> {
        let mut transaction = self.session.begin()?;
        for row in rows.take(ROWS_PER_COMMIT) {
            transaction.execute(statement, &row)?;
            self.rows += 1;
        }
        transaction.commit_ticket()
    }

    /// Waits until at most `left` commits are not durable.
    fn settle(&mut self, left: usize) -> Result<()> {
        while self.tickets.len() > left {
            let ticket = self.tickets.pop_front().expect("there are more than `left`");
            self.db.wait(ticket).doing("loading")?;
        }
        Ok(())
    }
}
