//! Do the tables hold what the feed says? Every row and every column that the feed defines, read back by SQL and compared
//! with the model.
//!
//! | table | compared |
//! |---|---|
//! | STOCK_MASTER | name, status, previous close, time, the day's totals |
//! | BIDNASK | time, all levels and their changes, totals, the number of quotes |
//! | TRADE | every column |
//! | TRADE_HISTORY | every trade in order, with the best bid and ask it met |
//! | TRADE_DAILY_AGGREGATE | the bars from before, then the day's row; also of symbols that are not in the feed |
//! | MARKET_POSITION | every applier at the last of its messages |
//!
//! The number of rows of each table is compared too, so that no row is there that should not be.

use crate::bind::{date, decimal, int, or_null, text, timestamp};
use crate::error::{Doing, MarketError, Result};
use crate::feed::Feed;
use crate::listing::{Bar, Stock, clone_code};
use crate::load::bar_rows;
use crate::message::{LEVELS, StockId};
use crate::model::{Best, Model, StockState};
use crate::replay::{Assignment, shifted};
use crate::schema::{FROM_TRADES, tables};
use crate::source::{Day, Messages};
use freshet_db::{Database, Datum, Session, Statement};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Differences that are told, of all that are counted.
const TOLD_MAX: usize = 10;

#[derive(Default, Debug)]
pub struct Outcome {
    pub rows: u64,
    pub differences: u64,
    /// The first few, one line each.
    pub told: Vec<String>,
}

impl Outcome {
    pub fn is_ok(&self) -> bool {
        self.differences == 0
    }

    fn differ(&mut self, line: impl FnOnce() -> String) {
        self.differences += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(line());
        }
    }

    fn add(&mut self, other: Outcome) {
        self.rows += other.rows;
        self.differences += other.differences;
        let room = TOLD_MAX - self.told.len();
        self.told.extend(other.told.into_iter().take(room));
    }
}

/// One code and what must be stored for it.
struct Expected<'a> {
    stock: &'a Stock,
    clone: u32,
    state: &'a StockState,
    bars: &'a [Bar],
}

/// Folds the feed anew; one that came by itself, as it was received.
pub fn fold(day: &Day, received: Option<Feed>) -> Result<Model> {
    let mut model = Model::new(day.listing.in_feed().len());
    let mut messages = match received {
        Some(feed) => Messages::File(Box::new(feed)),
        None => day.messages()?,
    };
    while let Some(message) = messages.next_message()? {
        model.apply(&message);
    }
    Ok(model)
}

/// Compares everything. `checked` counts the codes that are done.
pub fn check(
    db: &Database,
    day: &Day,
    model: &Model,
    clones: u32,
    appliers: u32,
    checked: &AtomicU64,
) -> Result<Outcome> {
    let stocks = day.listing.in_feed();
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut outcome = std::thread::scope(|scope| {
        let chunk = stocks.len().div_ceil(workers).max(1);
        let threads: Vec<_> = (0..stocks.len())
            .step_by(chunk)
            .map(|from| {
                let range = from..(from + chunk).min(stocks.len());
                scope.spawn(move || check_stocks(db, day, model, clones, range, checked))
            })
            .collect();
        let mut outcome = Outcome::default();
        for thread in threads {
            outcome.add(thread.join().expect("checkers do not panic")?);
        }
        Ok::<_, MarketError>(outcome)
    })?;
    let mut checker = Checker::new(db, day)?;
    checker.listed_only()?;
    checker.other_bars()?;
    checker.counts(model, clones)?;
    checker.positions(model, clones, appliers)?;
    outcome.add(checker.outcome);
    Ok(outcome)
}

fn check_stocks(
    db: &Database,
    day: &Day,
    model: &Model,
    clones: u32,
    range: std::ops::Range<usize>,
    checked: &AtomicU64,
) -> Result<Outcome> {
    let mut checker = Checker::new(db, day)?;
    for index in range {
        let stock = &day.listing.in_feed()[index];
        let bars = day.bars_before(stock);
        for clone in 0..clones {
            checker.stock(&Expected { stock, clone, state: model.stock(StockId(index as u32)), bars: &bars })?;
            checked.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(checker.outcome)
}

/// Rows of one table read back by code.
struct Reader {
    table: &'static str,
    columns: Vec<String>,
    statement: Statement,
}

impl Reader {
    fn new(session: &mut Session, table: &'static str, columns: Vec<String>, order: &str) -> Result<Reader> {
        let sql = format!("SELECT {} FROM {table} WHERE stock_code = $1{order}", columns.join(", "));
        Ok(Reader { table, columns, statement: session.prepare(&sql).doing("preparing the check")? })
    }
}

struct Checker<'a> {
    day: &'a Day,
    session: Session,
    stock_master: Reader,
    bidnask: Reader,
    trade: Reader,
    trade_history: Reader,
    trade_daily_aggregate: Reader,
    outcome: Outcome,
}

fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

impl<'a> Checker<'a> {
    fn new(db: &Database, day: &'a Day) -> Result<Checker<'a>> {
        let mut session = db.session().doing("connecting")?;
        let mut reader = |table, columns, order| Reader::new(&mut session, table, columns, order);
        let mut quote_columns = names("bidnask_time bid_total_vol ask_total_vol quote_count");
        for prefix in ["bid", "bid_vol", "ask", "ask_vol", "bid_chg", "ask_chg"] {
            quote_columns.extend((1..=LEVELS).map(|i| format!("{prefix}{i}")));
        }
        Ok(Checker {
            day,
            stock_master: reader(
                "stock_master",
                names("stock_name total_volume total_price trade_status previous_close status_time"),
                "",
            )?,
            bidnask: reader("bidnask", quote_columns, "")?,
            trade: reader(
                "trade",
                names(
                    "trade_time settled_price price_change settled_volume settled_amount closest_bid closest_ask \
                     best_bid best_bid_vol best_ask best_ask_vol total_volume total_amount open_price high_price \
                     low_price previous_close trade_count quote_time",
                ),
                "",
            )?,
            trade_history: reader(
                "trade_history",
                names(
                    "trade_time seq settled_price price_change settled_volume settled_amount best_bid best_bid_vol \
                     best_ask best_ask_vol",
                ),
                " ORDER BY trade_time, seq",
            )?,
            trade_daily_aggregate: reader(
                "trade_daily_aggregate",
                names(
                    "stock_code aggregate_date start_price highest_price lowest_price finish_price total_volume \
                     price_change day_of_week source total_amount trade_count",
                ),
                " ORDER BY aggregate_date",
            )?,
            session,
            outcome: Outcome::default(),
        })
    }

    fn stock(&mut self, expected: &Expected<'_>) -> Result<()> {
        let code = clone_code(&expected.stock.code, expected.clone);
        self.compare(&code, |c| &c.stock_master, &[master_row(expected)])?;
        self.compare(&code, |c| &c.bidnask, &[bidnask_row(expected)])?;
        self.compare(&code, |c| &c.trade, &[trade_row(expected)])?;
        self.compare(&code, |c| &c.trade_history, &history_rows(expected))?;
        let daily = daily_rows(expected, &code, self.day);
        self.compare(&code, |c| &c.trade_daily_aggregate, &daily)
    }

    /// Stocks that no message touches are as they were set up.
    fn listed_only(&mut self) -> Result<()> {
        let untouched = StockState::default();
        for stock in self.day.listing.listed_only() {
            let expected = Expected { stock, clone: 0, state: &untouched, bars: &[] };
            self.compare(&stock.code, |c| &c.stock_master, &[master_row(&expected)])?;
            self.compare(&stock.code, |c| &c.bidnask, &[bidnask_row(&expected)])?;
            self.compare(&stock.code, |c| &c.trade, &[trade_row(&expected)])?;
        }
        Ok(())
    }

    /// Bars of symbols that the feed does not have.
    fn other_bars(&mut self) -> Result<()> {
        for (symbol, bars) in self.foreign_bars() {
            let rows = with_null_totals(bar_rows(bars, text(symbol)));
            self.compare(symbol, |c| &c.trade_daily_aggregate, &rows)?;
        }
        Ok(())
    }

    fn foreign_bars(&self) -> Vec<(&'a str, &'a [Bar])> {
        let in_feed: HashSet<&str> = self.day.listing.in_feed().iter().map(|s| &*s.code).collect();
        let by_symbol = self.day.bars.by_symbol.iter();
        by_symbol
            .filter(|(symbol, _)| !in_feed.contains(&***symbol))
            .map(|(symbol, bars)| (&**symbol, &bars[..]))
            .collect()
    }

    fn compare(&mut self, code: &str, reader: impl Fn(&Self) -> &Reader, expected: &[Vec<Datum>]) -> Result<()> {
        let reader = reader(self);
        let table = reader.table;
        let (statement, columns) = (reader.statement.clone(), reader.columns.clone());
        let rows = self.session.query(&statement, &[text(code)]).doing("reading back")?;
        let outcome = &mut self.outcome;
        outcome.rows += rows.len() as u64;
        if rows.len() != expected.len() {
            let (found, wanted) = (rows.len(), expected.len());
            outcome.differ(|| format!("{table} {code}: {found} rows, expected {wanted}"));
        }
        for (row, expected) in expected.iter().enumerate().take(rows.len()) {
            for (column, wanted) in expected.iter().enumerate() {
                let found = rows.get(row, column);
                if found != wanted.as_value() {
                    outcome.differ(|| {
                        let name = &columns[column];
                        format!("{table} {code} row {row}: {name} is {found:?}, expected {wanted:?}")
                    });
                }
            }
        }
        Ok(())
    }

    fn counts(&mut self, model: &Model, clones: u32) -> Result<()> {
        let listing = &self.day.listing;
        let clones = clones as usize;
        let codes = listing.in_feed().len() * clones + listing.listed_only().len();
        let (mut trades, mut days) = (0, 0);
        for (index, stock) in listing.in_feed().iter().enumerate() {
            let state = model.stock(StockId(index as u32));
            let today = usize::from(!state.trades.is_empty());
            trades += state.trades.len() * clones;
            days += (self.day.bars_before(stock).len() + today) * clones;
        }
        days += self.foreign_bars().iter().map(|(_, bars)| bars.len()).sum::<usize>();
        let expected = [codes, codes, codes, trades, days];
        for (table, expected) in tables().iter().zip(expected) {
            let sql = format!("SELECT count(*) FROM {}", table.name);
            let statement = self.session.prepare(&sql).doing("counting rows")?;
            let rows = self.session.query(&statement, &[]).doing("counting rows")?;
            let (found, wanted) = (rows.get(0, 0), int(expected as i64));
            if found != wanted.as_value() {
                let name = table.name;
                self.outcome.differ(|| format!("{name}: {found:?} rows, expected {expected}"));
            }
        }
        Ok(())
    }

    fn positions(&mut self, model: &Model, clones: u32, appliers: u32) -> Result<()> {
        let listing = &self.day.listing;
        let assignment = Assignment::new(listing, clones, appliers);
        let mut expected = vec![0u64; appliers as usize];
        for index in 0..listing.in_feed().len() {
            let id = StockId(index as u32);
            for clone in 0..clones {
                expected[assignment.applier(id, clone) as usize] += model.stock(id).messages;
            }
        }
        let sql = "SELECT message FROM market_position WHERE applier = $1";
        let statement = self.session.prepare(sql).doing("reading positions")?;
        for (applier, messages) in expected.into_iter().enumerate() {
            let key = [int(applier as i64)];
            let rows = self.session.query(&statement, &key).doing("reading positions")?;
            let wanted = int(messages as i64);
            if rows.len() != 1 || rows.get(0, 0) != wanted.as_value() {
                self.outcome.differ(|| format!("market_position: applier {applier} is not at its message {messages}"));
            }
        }
        Ok(())
    }
}

fn master_row(expected: &Expected<'_>) -> Vec<Datum> {
    let (state, day) = (expected.state, expected.state.aggregate());
    let status = state.status;
    vec![
        text(&expected.stock.name),
        or_null(day.map(|d| int(d.volume))),
        or_null(day.map(|d| decimal(d.amount))),
        or_null(status.map(|(_, status, _)| Datum::Bytes(status.as_bytes().into()))),
        or_null(status.map(|(_, _, close)| decimal(close))),
        or_null(status.map(|(ts, _, _)| timestamp(shifted(ts, expected.clone)))),
    ]
}

fn bidnask_row(expected: &Expected<'_>) -> Vec<Datum> {
    let state = expected.state;
    let Some((ts, book)) = &state.quote else {
        let mut row = vec![Datum::Null; 4 + 6 * LEVELS];
        row[3] = int(0);
        return row;
    };
    let mut row = vec![
        timestamp(shifted(*ts, expected.clone)),
        int(book.bid_total()),
        int(book.ask_total()),
        int(state.quote_count),
    ];
    row.extend(book.bid_price.map(decimal));
    row.extend(book.bid_quantity.map(int));
    row.extend(book.ask_price.map(decimal));
    row.extend(book.ask_quantity.map(int));
    for change in [state.bid_change, state.ask_change] {
        match change {
            Some(change) => row.extend(change.map(int)),
            None => row.extend([(); LEVELS].map(|()| Datum::Null)),
        }
    }
    row
}

fn trade_row(expected: &Expected<'_>) -> Vec<Datum> {
    let state = expected.state;
    let (last, day) = (state.trades.last(), state.aggregate());
    let of_last = |value: &dyn Fn(&crate::model::SettledTrade) -> Datum| or_null(last.map(value));
    let book = state.quote.map(|(_, book)| book);
    let [best_bid, best_bid_vol] = best(last.and_then(|t| t.best_bid));
    let [best_ask, best_ask_vol] = best(last.and_then(|t| t.best_ask));
    vec![
        of_last(&|t| timestamp(shifted(t.ts, expected.clone))),
        of_last(&|t| decimal(t.trade.price)),
        of_last(&|t| decimal(t.change)),
        of_last(&|t| int(t.trade.quantity)),
        of_last(&|t| decimal(t.trade.amount)),
        or_null(book.map(|b| decimal(b.bid_price[0]))),
        or_null(book.map(|b| decimal(b.ask_price[0]))),
        best_bid,
        best_bid_vol,
        best_ask,
        best_ask_vol,
        int(day.map_or(0, |d| d.volume)),
        decimal(day.map_or(0, |d| d.amount)),
        or_null(day.map(|d| decimal(d.first))),
        or_null(day.map(|d| decimal(d.high))),
        or_null(day.map(|d| decimal(d.low))),
        of_last(&|t| decimal(t.previous_close)),
        int(day.map_or(0, |d| d.count)),
        or_null(state.quote.map(|(ts, _)| timestamp(shifted(ts, expected.clone)))),
    ]
}

fn history_rows(expected: &Expected<'_>) -> Vec<Vec<Datum>> {
    let trades = expected.state.trades.iter();
    trades
        .map(|settled| {
            let mut row = vec![
                timestamp(shifted(settled.ts, expected.clone)),
                int(settled.trade.seq),
                decimal(settled.trade.price),
                decimal(settled.change),
                int(settled.trade.quantity),
                decimal(settled.trade.amount),
            ];
            row.extend(best(settled.best_bid));
            row.extend(best(settled.best_ask));
            row
        })
        .collect()
}

fn daily_rows(expected: &Expected<'_>, code: &str, day: &Day) -> Vec<Vec<Datum>> {
    let mut rows = with_null_totals(bar_rows(expected.bars, text(code)));
    if let Some(today) = expected.state.aggregate() {
        rows.push(vec![
            text(code),
            date(day.date()),
            decimal(today.first),
            decimal(today.high),
            decimal(today.low),
            decimal(today.last),
            int(today.volume),
            decimal(today.change),
            int(day.date().weekday()),
            int(FROM_TRADES),
            decimal(today.amount),
            int(today.count),
        ]);
    }
    rows
}

/// Bars tell neither amounts nor numbers of trades.
fn with_null_totals(mut rows: Vec<Vec<Datum>>) -> Vec<Vec<Datum>> {
    for row in &mut rows {
        row.extend([Datum::Null, Datum::Null]);
    }
    rows
}

fn best(level: Best) -> [Datum; 2] {
    match level {
        Some((price, quantity)) => [decimal(price), int(quantity)],
        None => [Datum::Null, Datum::Null],
    }
}
