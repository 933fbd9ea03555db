//! Where does the day come from, and what is known about it before the first message is applied?
//!
//! A file is read once in full first: that finds the codes, counts the messages, refuses malformed lines before
//! anything is applied, and fingerprints the feed, so that a resumed run is known to go on with the same one.

use crate::calendar::{Date, Timestamp};
use crate::feed::{Feed, Line, LineReader};
use crate::generate::{DayPlan, Generator, daily_bars};
use crate::lines::{FeedError, OnError, Reason, TextFile};
use crate::listing::{Bar, DailyBars, Listing, Stock, Symbols};
use crate::message::{Body, Kind, Message};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// What the user named.
pub enum Source {
    Generated(DayPlan),
    File { feed: PathBuf, daily: Option<PathBuf>, symbols: Option<PathBuf>, on_error: OnError },
}

/// A day that can be read any number of times.
pub struct Day {
    source: Source,
    pub listing: Arc<Listing>,
    pub bars: DailyBars,
    pub summary: Summary,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    pub name: String,
    pub messages: u64,
    pub by_kind: [u64; Kind::COUNT],
    pub first: Timestamp,
    pub last: Timestamp,
    /// Refused lines of all files.
    pub skipped: u64,
    pub fingerprint: u64,
}

pub enum Messages {
    Generated(Box<Generator>),
    File(Box<Feed>),
}

impl Messages {
    pub fn next_message(&mut self) -> Result<Option<Message>, FeedError> {
        match self {
            Messages::Generated(generator) => Ok(generator.next_message()),
            Messages::File(feed) => feed.next_message(),
        }
    }
}

impl Day {
    pub fn open(source: Source) -> Result<Day, FeedError> {
        match source {
            Source::Generated(plan) => Ok(Day::generated(plan)),
            Source::File { ref feed, ref daily, ref symbols, on_error } => {
                let bars = match daily {
                    Some(path) => DailyBars::read(path, on_error)?,
                    None => DailyBars::default(),
                };
                let symbols = match symbols {
                    Some(path) => Symbols::read(path, on_error)?,
                    None => Symbols::default(),
                };
                let (listing, mut summary) = Scan::run(TextFile::open(feed)?, on_error, symbols)?;
                summary.name = feed.display().to_string();
                summary.skipped += bars.skipped;
                summary.fingerprint ^= bars.fingerprint.rotate_left(21);
                Ok(Day { source, listing: Arc::new(listing), bars, summary })
            }
        }
    }

    fn generated(plan: DayPlan) -> Day {
        let (first, last) = (plan.day().at(0), plan.day().at(0));
        let summary = Summary {
            name: format!("generated day, seed {}, {} stocks, {} messages", plan.seed, plan.stocks, plan.messages),
            messages: plan.messages,
            by_kind: [0; Kind::COUNT],
            first,
            last,
            skipped: 0,
            fingerprint: plan.fingerprint(),
        };
        Day { listing: Arc::new(plan.listing()), bars: DailyBars::default(), summary, source: Source::Generated(plan) }
    }

    /// The day's date: that of its first message.
    pub fn date(&self) -> Date {
        self.summary.first.date()
    }

    /// The messages from the first on.
    pub fn messages(&self) -> Result<Messages, FeedError> {
        Ok(match &self.source {
            Source::Generated(plan) => Messages::Generated(Box::new(plan.start())),
            Source::File { feed, on_error, .. } => {
                let file = TextFile::open(feed)?;
                Messages::File(Box::new(Feed::new(file, self.listing.clone(), *on_error)))
            }
        })
    }

    /// The daily bars a feed code starts with, all before the day.
    pub fn bars_before(&self, stock: &Stock) -> Vec<Bar> {
        let day = self.date();
        if let Some(own) = self.bars.by_symbol.get(&stock.code) {
            return own.iter().copied().filter(|bar| bar.date < day).collect();
        }
        self.bars.assigned(&stock.code, day).unwrap_or_else(|| {
            let seed = match &self.source {
                Source::Generated(plan) => plan.seed,
                Source::File { .. } => 0,
            };
            daily_bars(seed, &stock.code, stock.previous_close, day)
        })
    }
}

/// The first reading of a feed file.
#[derive(Default)]
struct Scan {
    /// In order of appearance.
    codes: Vec<Box<str>>,
    seen: HashMap<Box<str>, CodeSeen>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    skipped: u64,
}

struct CodeSeen {
    /// From the first status line.
    previous_close: Option<i32>,
    first_line: u64,
    by_kind: [u64; Kind::COUNT],
}

impl Scan {
    fn run(file: TextFile, on_error: OnError, symbols: Symbols) -> Result<(Listing, Summary), FeedError> {
        let mut lines = LineReader::new(file);
        let mut scan = Scan::default();
        loop {
            let number = lines.file.line_number() + 1;
            match lines.next_line()? {
                None => break,
                Some(Ok(line)) => scan.note(number, &line),
                Some(Err(reason)) => lines.file.refuse(reason, on_error, &mut scan.skipped)?,
            }
        }
        scan.finish(&lines.file, on_error, symbols)
    }

    fn note(&mut self, number: u64, line: &Line<'_>) {
        self.first.get_or_insert(line.ts);
        self.last = Some(line.ts);
        if !self.seen.contains_key(line.code) {
            let seen = CodeSeen { previous_close: None, first_line: number, by_kind: [0; Kind::COUNT] };
            self.seen.insert(line.code.into(), seen);
            self.codes.push(line.code.into());
        }
        let seen = self.seen.get_mut(line.code).expect("entered above");
        seen.by_kind[line.body.kind().index()] += 1;
        if let Body::Status { previous_close, .. } = line.body {
            seen.previous_close.get_or_insert(previous_close);
        }
    }

    fn finish(mut self, file: &TextFile, on_error: OnError, symbols: Symbols) -> Result<(Listing, Summary), FeedError> {
        let named: HashSet<&str> = symbols.names.iter().map(|(code, _)| &**code).collect();
        let (mut introduced, mut used) = (Vec::new(), HashSet::new());
        let mut by_kind = [0; Kind::COUNT];
        for code in &self.codes {
            let seen = &self.seen[code];
            match seen.previous_close {
                Some(close) => introduced.push((code.clone(), close)),
                None if named.contains(&**code) => drop(used.insert(code.clone())),
                None if on_error == OnError::Stop => {
                    return Err(FeedError {
                        line: seen.first_line,
                        ..file.error(Reason::UnknownCode(code.to_string()))
                    });
                }
                None => {
                    self.skipped += seen.by_kind.iter().sum::<u64>();
                    continue;
                }
            }
            (0..Kind::COUNT).for_each(|kind| by_kind[kind] += seen.by_kind[kind]);
        }
        let empty = Date(0).at(0);
        let summary = Summary {
            name: String::new(),
            messages: by_kind.iter().sum(),
            by_kind,
            first: self.first.unwrap_or(empty),
            last: self.last.unwrap_or(empty),
            skipped: self.skipped + symbols.skipped,
            fingerprint: file.fingerprint() ^ symbols.fingerprint.rotate_left(42),
        };
        Ok((Listing::new(introduced, &used, symbols), summary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const DAY: &str = "\
2021-12-01 09:15:01.000,S,A,OCALL,10
2021-12-01 09:15:02.000,T,B,1,1,1
2021-12-01 09:15:03.000,S,A,TRADE,10
2021-12-01 09:15:03.000,T,A,10.5,100,1050
2021-12-01 09:15:04.000,T,B,1,1,1
";

    fn source(directory: &Path, text: &str, symbols: Option<&str>, on_error: OnError) -> Source {
        let feed = directory.join("feed.csv");
        std::fs::write(&feed, text).expect("write");
        let symbols = symbols.map(|text| {
            let path = directory.join("symbols.tsv");
            std::fs::write(&path, text).expect("write");
            path
        });
        Source::File { feed, daily: None, symbols, on_error }
    }

    fn read(day: &Day) -> Vec<Message> {
        let mut messages = day.messages().expect("opens");
        std::iter::from_fn(|| messages.next_message().expect("valid")).collect()
    }

    #[test]
    fn an_unknown_code_is_refused_with_its_first_line() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let error = Day::open(source(directory.path(), DAY, None, OnError::Stop)).err().expect("B is unknown");
        assert_eq!(error.line, 2);
        assert_eq!(error.reason, Reason::UnknownCode("B".into()));
    }

    #[test]
    fn skipping_leaves_what_the_scan_counted() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let text = format!("{DAY}rubbish\n");
        let day = Day::open(source(directory.path(), &text, None, OnError::Skip)).expect("skips");
        assert_eq!(day.summary.skipped, 3);
        assert_eq!(day.summary.messages, 3);
        assert_eq!(day.summary.by_kind, [2, 0, 1]);
        assert_eq!(read(&day).len(), 3);
        assert_eq!(day.date(), Date::parse(b"2021-12-01").expect("valid"));
    }

    #[test]
    fn symbols_make_codes_known() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let symbols = Some("B\tBeta\nC\tGamma\n");
        let day = Day::open(source(directory.path(), DAY, symbols, OnError::Stop)).expect("B is named");
        assert_eq!(day.summary.messages, 5);
        assert_eq!(day.listing.in_feed().len(), 2);
        assert_eq!(day.listing.listed_only().len(), 1);
        assert_eq!(read(&day).len(), 5);
    }

    #[test]
    fn a_code_without_bars_gets_a_chart_ending_at_its_previous_close() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let day = Day::open(source(directory.path(), DAY, Some("B\tBeta\n"), OnError::Stop)).expect("valid");
        let bars = day.bars_before(&day.listing.in_feed()[0]);
        assert_eq!(bars.len(), 60);
        assert_eq!(bars[59].close, 100_000);
    }

    #[test]
    fn an_empty_feed_is_a_day_without_messages() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let day = Day::open(source(directory.path(), "", None, OnError::Stop)).expect("empty");
        assert_eq!(day.summary.messages, 0);
        assert!(read(&day).is_empty());
    }
}
