//! Which stocks are there, what are they called, and what were their last days?
//!
//! - **Feed codes** are those that a status line introduces anywhere in the feed, or that `--symbols` names and the
//!   feed uses. Only they are cloned.
//! - **Listed codes** come from `--symbols` alone: they get one row in STOCK_MASTER, BIDNASK and TRADE, no clones.
//! - **Daily bars** from `--daily` are stored under their own symbols. A feed code that the file does not know gets the
//!   last 60 bars of one symbol of the file that has 60 or more, chosen by the code's hash and re-dated to the 60
//!   weekdays before the feed's day, so that Form 1 has its chart whatever exchange the bars came from. Without
//!   `--daily`, bars are generated, ending at the code's previous close.
//!
//! | file | line |
//! |---|---|
//! | symbols | `code TAB name` |
//! | daily | `symbol,date,open,high,low,close,volume[,...]`, a header line first; a symbol's dates ascend |
//!
//! Daily prices are rounded half up to four places.

use crate::calendar::Date;
use crate::lines::{FeedError, OnError, Reason, TextFile, check_code, parse_rounded};
use crate::message::{CODE_BYTES_MAX, StockId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// What Form 1 shows.
pub const CHART_DAYS: usize = 60;

/// `numeric(12,4)` of the daily tables.
const DAILY_PRICE_MAX: i64 = 999_999_999_999;

pub struct Stock {
    pub code: Box<str>,
    pub name: Box<str>,
    /// The first previous close the feed tells, 0 if none.
    pub previous_close: i32,
}

/// The stocks of a run: those of the feed first, then those only listed.
pub struct Listing {
    stocks: Vec<Stock>,
    by_code: HashMap<Box<str>, StockId>,
    feed_codes: usize,
}

/// One day of one stock; prices in 1/10000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    pub date: Date,
    pub open: i64,
    pub high: i64,
    pub low: i64,
    pub close: i64,
    pub volume: i64,
}

/// Bars by symbol, in the order of their bytes.
#[derive(Default)]
pub struct DailyBars {
    pub by_symbol: BTreeMap<Box<str>, Vec<Bar>>,
    pub skipped: u64,
    pub fingerprint: u64,
}

#[derive(Default)]
pub struct Symbols {
    pub names: Vec<(Box<str>, Box<str>)>,
    pub skipped: u64,
    pub fingerprint: u64,
}

/// Clone 0 is the code itself; clone `k` is `code.k`.
pub fn clone_code(code: &str, clone: u32) -> String {
    match clone {
        0 => code.to_owned(),
        k => format!("{code}.{k}"),
    }
}

/// FNV-1a: stable across versions and machines, because the assignment of codes to appliers is part of a run's stored
/// state.
pub fn code_hash(code: &str) -> u64 {
    code.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Listing {
    /// `feed` names the codes the feed introduces; `used` those it uses without introducing them.
    pub fn new(feed: Vec<(Box<str>, i32)>, used: &HashSet<Box<str>>, symbols: Symbols) -> Listing {
        let names: HashMap<Box<str>, Box<str>> = symbols.names.iter().cloned().collect();
        let mut listing = Listing { stocks: Vec::new(), by_code: HashMap::new(), feed_codes: 0 };
        for (code, previous_close) in feed {
            let name = names.get(&code).unwrap_or(&code).clone();
            listing.add(code, name, previous_close);
        }
        let (in_feed, listed): (Vec<_>, Vec<_>) = symbols.names.into_iter().partition(|(code, _)| used.contains(code));
        for (code, name) in in_feed {
            listing.add(code, name, 0);
        }
        listing.feed_codes = listing.stocks.len();
        for (code, name) in listed {
            listing.add(code, name, 0);
        }
        listing
    }

    fn add(&mut self, code: Box<str>, name: Box<str>, previous_close: i32) {
        if self.by_code.contains_key(&code) {
            return;
        }
        let id = StockId(self.stocks.len() as u32);
        self.by_code.insert(code.clone(), id);
        self.stocks.push(Stock { code, name, previous_close });
    }

    pub fn find(&self, code: &str) -> Option<StockId> {
        self.by_code.get(code).copied()
    }

    pub fn stock(&self, id: StockId) -> &Stock {
        &self.stocks[id.index()]
    }

    /// Stocks that the feed moves; they come first.
    pub fn in_feed(&self) -> &[Stock] {
        &self.stocks[..self.feed_codes]
    }

    /// Stocks known from `--symbols` only.
    pub fn listed_only(&self) -> &[Stock] {
        &self.stocks[self.feed_codes..]
    }

    /// Why these clones cannot be, if they cannot: a code too long, or two of one name.
    pub fn check_clones(&self, clones: u32) -> Result<(), String> {
        let mut seen: HashSet<String> = HashSet::new();
        for stock in self.in_feed() {
            for clone in 0..clones {
                let code = clone_code(&stock.code, clone);
                if code.len() > CODE_BYTES_MAX {
                    return Err(format!(
                        "--clones {clones}: the code {code} would be longer than {CODE_BYTES_MAX} bytes"
                    ));
                }
                if (clone > 0 && self.by_code.contains_key(code.as_str())) || !seen.insert(code) {
                    return Err(format!(
                        "--clones {clones}: clone {clone} of {} has the name of another code",
                        stock.code
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Symbols {
    pub fn read(path: &Path, on_error: OnError) -> Result<Symbols, FeedError> {
        let mut file = TextFile::open(path)?;
        let mut symbols = Symbols::default();
        while let Some(line) = file.next_line()? {
            match parse_symbol(line) {
                Ok((code, name)) => symbols.names.push((code.into(), name.into())),
                Err(reason) => file.refuse(reason, on_error, &mut symbols.skipped)?,
            }
        }
        symbols.fingerprint = file.fingerprint();
        Ok(symbols)
    }
}

fn parse_symbol(line: &[u8]) -> Result<(&str, &str), Reason> {
    let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
    let (code, name) = text.split_once('\t').ok_or(Reason::Fields { expected: 2, found: 1 })?;
    check_code(code.as_bytes())?;
    if name.is_empty() || name.chars().count() > 64 {
        return Err(Reason::Name);
    }
    Ok((code, name))
}

impl DailyBars {
    pub fn read(path: &Path, on_error: OnError) -> Result<DailyBars, FeedError> {
        let mut file = TextFile::open(path)?;
        let mut bars = DailyBars::default();
        let mut header = true;
        while let Some(line) = file.next_line()? {
            if std::mem::take(&mut header) && line.starts_with(b"symbol,") {
                continue;
            }
            if let Err(reason) = parse_bar(line).and_then(|(symbol, bar)| bars.push(symbol, bar)) {
                file.refuse(reason, on_error, &mut bars.skipped)?;
            }
        }
        bars.fingerprint = file.fingerprint();
        Ok(bars)
    }

    fn push(&mut self, symbol: &str, bar: Bar) -> Result<(), Reason> {
        if let Some(bars) = self.by_symbol.get_mut(symbol) {
            let last = bars.last().expect("a symbol is entered with its first bar");
            if bar.date <= last.date {
                return Err(Reason::DateNotAfterLast);
            }
            bars.push(bar);
        } else {
            self.by_symbol.insert(symbol.into(), vec![bar]);
        }
        Ok(())
    }

    /// The chart of a feed code that has no bars of its own, see the module head. `None` if no symbol has enough.
    pub fn assigned(&self, code: &str, day: Date) -> Option<Vec<Bar>> {
        let donors: Vec<&Vec<Bar>> = self.by_symbol.values().filter(|bars| bars.len() >= CHART_DAYS).collect();
        let choice = code_hash(code).checked_rem(donors.len() as u64)?;
        let donor = donors[choice as usize];
        let days = day.weekdays_before(CHART_DAYS);
        let newest = &donor[donor.len() - CHART_DAYS..];
        Some(newest.iter().zip(days).map(|(&bar, date)| Bar { date, ..bar }).collect())
    }
}

fn parse_bar(line: &[u8]) -> Result<(&str, Bar), Reason> {
    let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
    let fields: Vec<&str> = text.split(',').collect();
    if fields.len() < 7 {
        return Err(Reason::Fields { expected: 7, found: fields.len() });
    }
    check_code(fields[0].as_bytes())?;
    let price = |i: usize| parse_rounded(fields[i].as_bytes(), DAILY_PRICE_MAX);
    let bar = Bar {
        date: Date::parse(fields[1].as_bytes()).ok_or(Reason::Date)?,
        open: price(2)?,
        high: price(3)?,
        low: price(4)?,
        close: price(5)?,
        volume: fields[6].parse().map_err(|_| Reason::Quantity)?,
    };
    if bar.volume < 0 {
        return Err(Reason::Quantity);
    }
    Ok((fields[0], bar))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(text.as_bytes()).expect("write");
        file
    }

    #[test]
    fn bars_are_rounded_to_four_places() {
        let file = file(
            "symbol,date,open,high,low,close,volume,adj_close\nA,2016-09-20,45.330002,45.95005,45.15,228000.00,2333000,45.7\n",
        );
        let bars = DailyBars::read(file.path(), OnError::Stop).expect("valid");
        let bar = bars.by_symbol["A"][0];
        assert_eq!(
            (bar.open, bar.high, bar.low, bar.close, bar.volume),
            (453_300, 459_501, 451_500, 2_280_000_000, 2_333_000)
        );
    }

    #[test]
    fn a_bad_bar_names_its_line_or_is_counted() {
        let file = file("symbol,date,open,high,low,close,volume\nA,2016-09-20,1,1,1,1,1\nA,2016-09-20,1,1,1,1,1\n");
        let error = DailyBars::read(file.path(), OnError::Stop).err().expect("refused");
        assert_eq!(error.line, 3);
        assert_eq!(error.reason, Reason::DateNotAfterLast);
        let bars = DailyBars::read(file.path(), OnError::Skip).expect("skipped");
        assert_eq!(bars.skipped, 1);
    }

    #[test]
    fn a_foreign_code_gets_sixty_redated_bars_always_the_same() {
        let mut bars = DailyBars::default();
        for (symbol, days) in [("SHORT", 59), ("LONG", 70), ("LONGER", 80)] {
            for day in 0..days {
                let bar = Bar { date: Date(day), open: 1, high: 1, low: 1, close: i64::from(day), volume: 1 };
                bars.push(symbol, bar).expect("ascending");
            }
        }
        let today = Date(8005);
        let chart = bars.assigned("600332", today).expect("a donor exists");
        assert_eq!(chart.len(), CHART_DAYS);
        assert!(chart.iter().all(|bar| bar.date < today && bar.date.is_weekday()));
        assert!(chart.windows(2).all(|w| w[0].date < w[1].date));
        assert!(chart[59].close == 69 || chart[59].close == 79);
        assert_eq!(Some(chart), bars.assigned("600332", today));
        assert_eq!(DailyBars::default().assigned("600332", today), None);
    }

    #[test]
    fn symbols_name_stocks_and_only_used_ones_join_the_feed() {
        let file = file("A\tAgilent\nB\tBoth\nC\tCarried\n");
        let symbols = Symbols::read(file.path(), OnError::Stop).expect("valid");
        let used = HashSet::from([Box::from("C")]);
        let listing = Listing::new(vec![("B".into(), 10), ("X".into(), 20)], &used, symbols);
        let codes =
            |stocks: &[Stock]| -> Vec<String> { stocks.iter().map(|s| format!("{} {}", s.code, s.name)).collect() };
        assert_eq!(codes(listing.in_feed()), ["B Both", "X X", "C Carried"]);
        assert_eq!(codes(listing.listed_only()), ["A Agilent"]);
        assert_eq!(listing.find("X"), Some(StockId(1)));
    }

    #[test]
    fn clones_that_do_not_fit_or_collide_are_refused() {
        let listing = |codes: &[&str]| {
            let feed = codes.iter().map(|&c| (Box::from(c), 0)).collect();
            Listing::new(feed, &HashSet::new(), Symbols::default())
        };
        assert!(listing(&["600332"]).check_clones(57).is_ok());
        assert!(listing(&["ABCDEFGHIJ"]).check_clones(10).is_ok());
        assert!(listing(&["ABCDEFGHIJ"]).check_clones(11).is_err());
        assert!(listing(&["A", "A.1"]).check_clones(2).is_err());
    }
}
