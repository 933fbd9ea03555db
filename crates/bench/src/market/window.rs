//! Which part of the day is replayed, and what stands in the tables when it begins? The densest seconds of the day, and the state that all messages
//! before them leave: each stock's last book, its last trades, its chart.

use crate::error::BenchError;
use freshet_market::calendar::{Date, MICROS_PER_SECOND, Timestamp};
use freshet_market::listing::{Bar, clone_code};
use freshet_market::message::{Body, Book, Message, Trade};
use freshet_market::source::Day;
use std::collections::VecDeque;
use std::fmt::Write;

/// Of a stock's history, before the window: what Form 2 shows, twice.
const TRADES_BEFORE: usize = 40;
/// How late a clone runs behind the clone before it, as in `freshet market`.
const CLONE_SHIFT_US: i64 = 1_000;

/// A code with what is stored of it.
pub struct Code {
    pub code: String,
    name: Box<str>,
    previous_close: i32,
    book: Book,
    quotes: u64,
    trades: VecDeque<(Timestamp, Trade)>,
    trade_count: u64,
    chart: Vec<Bar>,
}

/// A message of the window.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Since the window's beginning, at the feed's own speed.
    pub at_us: i64,
    pub ts: Timestamp,
    /// The code's place in [`Window::codes`].
    pub code: usize,
    pub body: Body,
}

pub struct Window {
    pub codes: Vec<Code>,
    /// In the order of time.
    pub messages: Vec<Due>,
    pub span_us: i64,
}

impl Window {
    /// The densest `seconds` of the day, each stock `clones` times.
    pub fn of(day: &Day, seconds: u64, clones: u32) -> Result<Window, BenchError> {
        day.listing.check_clones(clones).map_err(BenchError::Usage)?;
        let span_us = seconds as i64 * MICROS_PER_SECOND;
        let begin = densest(day, span_us)?;
        let mut stocks: Vec<Code> = day.listing.in_feed().iter().map(|stock| Code::new(day, stock)).collect();
        let mut inside: Vec<Message> = Vec::new();
        each_message(day, |message| {
            if message.ts < begin {
                stocks[message.stock.index()].note(message);
            } else if message.ts.0 < begin.0 + span_us {
                inside.push(*message);
            }
        })?;
        if inside.is_empty() {
            return Err(BenchError::Usage(format!("{} has no messages", day.summary.name)));
        }
        let mut messages: Vec<Due> = Vec::with_capacity(inside.len() * clones as usize);
        for clone in 0..clones {
            let shift = i64::from(clone) * CLONE_SHIFT_US;
            messages.extend(inside.iter().map(|message| Due {
                at_us: message.ts.0 - begin.0 + shift,
                ts: Timestamp(message.ts.0 + shift),
                code: message.stock.index() * clones as usize + clone as usize,
                body: message.body,
            }));
        }
        messages.sort_by_key(|message| message.at_us);
        let codes: Vec<Code> = stocks.iter().flat_map(|stock| (0..clones).map(|clone| stock.cloned(clone))).collect();
        Ok(Window { codes, messages, span_us })
    }

    /// Messages in a second of the feed's own time.
    pub fn per_second(&self) -> f64 {
        self.messages.len() as f64 * 1e6 / self.span_us as f64
    }

    /// Rows of a table and its columns, as COPY's text; the tables of `freshet_market::schema`.
    pub fn rows(&self) -> [(&'static str, String); 5] {
        let mut all = [
            ("stock_master (stock_code, stock_name, trade_status, previous_close)", String::new()),
            (BIDNASK, String::new()),
            (TRADE, String::new()),
            (HISTORY, String::new()),
            (DAILY, String::new()),
        ];
        for code in &self.codes {
            let [master, bidnask, trade, history, daily] = &mut all;
            code.rows(&mut master.1, &mut bidnask.1, &mut trade.1, &mut history.1, &mut daily.1)
                .expect("a string grows");
        }
        all
    }

    /// Trades counted, history rows and quotes before the window.
    pub fn stored(&self) -> Stored {
        let sum = |of: fn(&Code) -> u64| self.codes.iter().map(of).sum::<u64>();
        Stored { trades: sum(|c| c.trade_count), history: sum(|c| c.trades.len() as u64), quotes: sum(|c| c.quotes) }
    }
}

/// What the oracle counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    pub trades: u64,
    pub history: u64,
    pub quotes: u64,
}

const BIDNASK: &str = "bidnask (stock_code, quote_count, bid_total_vol, ask_total_vol, \
    bid1, bid2, bid3, bid4, bid5, bid6, bid7, bid8, bid9, bid10, \
    bid_vol1, bid_vol2, bid_vol3, bid_vol4, bid_vol5, bid_vol6, bid_vol7, bid_vol8, bid_vol9, bid_vol10, \
    ask1, ask2, ask3, ask4, ask5, ask6, ask7, ask8, ask9, ask10, \
    ask_vol1, ask_vol2, ask_vol3, ask_vol4, ask_vol5, ask_vol6, ask_vol7, ask_vol8, ask_vol9, ask_vol10)";
const TRADE: &str = "trade (stock_code, settled_price, price_change, settled_volume, settled_amount, closest_bid, closest_ask, \
    total_volume, total_amount, trade_count)";
const HISTORY: &str =
    "trade_history (stock_code, trade_time, seq, settled_price, price_change, settled_volume, settled_amount)";
const DAILY: &str = "trade_daily_aggregate (stock_code, aggregate_date, start_price, highest_price, lowest_price, finish_price, total_volume)";

fn each_message(day: &Day, mut with: impl FnMut(&Message)) -> Result<(), BenchError> {
    let failed = |error: freshet_market::lines::FeedError| BenchError::Usage(error.to_string());
    let mut messages = day.messages().map_err(failed)?;
    while let Some(message) = messages.next_message().map_err(failed)? {
        with(&message);
    }
    Ok(())
}

/// When the densest stretch begins; it ends with a message.
fn densest(day: &Day, span_us: i64) -> Result<Timestamp, BenchError> {
    let (mut recent, mut most, mut begin) = (VecDeque::new(), 0, None);
    each_message(day, |message| {
        recent.push_back(message.ts);
        while recent.front().is_some_and(|first: &Timestamp| first.0 <= message.ts.0 - span_us) {
            recent.pop_front();
        }
        if recent.len() > most {
            most = recent.len();
            begin = recent.front().copied();
        }
    })?;
    begin.ok_or_else(|| BenchError::Usage(format!("{} has no messages", day.summary.name)))
}

impl Code {
    fn new(day: &Day, stock: &freshet_market::listing::Stock) -> Code {
        Code {
            code: stock.code.to_string(),
            name: stock.name.clone(),
            previous_close: stock.previous_close,
            book: Book::default(),
            quotes: 0,
            trades: VecDeque::new(),
            trade_count: 0,
            chart: day.bars_before(stock),
        }
    }

    fn cloned(&self, clone: u32) -> Code {
        Code {
            code: clone_code(&self.code, clone),
            name: self.name.clone(),
            trades: self.trades.clone(),
            chart: self.chart.clone(),
            ..*self
        }
    }

    fn note(&mut self, message: &Message) {
        match message.body {
            Body::Status { previous_close, .. } => self.previous_close = previous_close,
            Body::Quote(book) => {
                self.book = book;
                self.quotes += 1;
            }
            Body::Trade(trade) => {
                self.trade_count += 1;
                self.trades.push_back((message.ts, trade));
                if self.trades.len() > TRADES_BEFORE {
                    self.trades.pop_front();
                }
            }
        }
    }

    /// Every code trades, so that each trade of the window is settled.
    fn rows(
        &self,
        master: &mut String,
        bidnask: &mut String,
        trade: &mut String,
        history: &mut String,
        daily: &mut String,
    ) -> std::fmt::Result {
        let code = &self.code;
        writeln!(master, "{code}\t{}\tTRADE\t{}", self.name.replace('\\', "\\\\"), Price(self.previous_close.into()))?;
        let book = &self.book;
        write!(bidnask, "{code}\t{}\t{}\t{}", self.quotes, book.bid_total(), book.ask_total())?;
        for (prices, quantities) in [(book.bid_price, book.bid_quantity), (book.ask_price, book.ask_quantity)] {
            prices.iter().try_for_each(|price| write!(bidnask, "\t{}", Price((*price).into())))?;
            quantities.iter().try_for_each(|quantity| write!(bidnask, "\t{quantity}"))?;
        }
        bidnask.push('\n');
        write!(trade, "{code}\t")?;
        match self.trades.back() {
            Some((_, last)) => {
                let (price, change) = (Price(last.price.into()), Price((last.price - self.previous_close).into()));
                write!(trade, "{price}\t{change}\t{}\t{}", last.quantity, Price(last.amount))?;
            }
            None => trade.push_str("\\N\t\\N\t\\N\t\\N"),
        }
        let (bid, ask) = (Price(book.bid_price[0].into()), Price(book.ask_price[0].into()));
        writeln!(trade, "\t{bid}\t{ask}\t0\t0\t{}", self.trade_count)?;
        for (ts, trade) in &self.trades {
            let (price, change) = (Price(trade.price.into()), Price((trade.price - self.previous_close).into()));
            let (seq, quantity, amount) = (trade.seq, trade.quantity, Price(trade.amount));
            writeln!(history, "{code}\t{}\t{seq}\t{price}\t{change}\t{quantity}\t{amount}", Time(*ts))?;
        }
        for bar in &self.chart {
            let [open, high, low, close] = [bar.open, bar.high, bar.low, bar.close].map(Price);
            writeln!(daily, "{code}\t{}\t{open}\t{high}\t{low}\t{close}\t{}", Day8601(bar.date), bar.volume)?;
        }
        Ok(())
    }
}

/// 1/10000, as a decimal.
struct Price(i64);

impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:04}", self.0.unsigned_abs() / 10_000, self.0.unsigned_abs() % 10_000)
    }
}

struct Day8601(Date);

impl std::fmt::Display for Day8601 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = self.0.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

struct Time(Timestamp);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = self.0.micros_of_day();
        let (seconds, fraction) = (us / MICROS_PER_SECOND, us % MICROS_PER_SECOND);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{} {hours:02}:{minutes:02}:{seconds:02}.{fraction:06}", Day8601(self.0.date()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_market::generate::DayPlan;
    use freshet_market::source::Source;

    #[test]
    fn the_window_is_the_days_densest_and_the_rows_are_copyable() {
        let plan = DayPlan { seed: 1, stocks: 5, messages: 5_000 };
        let day = Day::open(Source::Generated(plan)).expect("a generated day opens");
        let window = Window::of(&day, 60, 3).expect("it has messages");
        assert_eq!(window.codes.len(), 15);
        assert!(window.messages.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let mean = 3.0 * 5_000.0 / (4.0 * 3600.0);
        assert!(window.per_second() > mean, "{} a second, {mean} on average", window.per_second());
        for (columns, text) in window.rows() {
            let fields = columns.split(',').count();
            assert!(text.lines().all(|line| line.split('\t').count() == fields), "{columns}");
        }
        let stored = window.stored();
        assert!(stored.quotes > 0 && stored.history <= stored.trades, "{stored:?}");
    }
}
