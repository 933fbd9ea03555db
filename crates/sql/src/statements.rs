//! Which statements take the time? What `pg_stat_statements` shows: counts and times by a statement's text without its constants.
//!
//! 1. An entry is found once for each plan and role and kept with the plan ([`Tracked`]), so that counting a run is one lock that nobody else
//!    wants: an entry's counts are in [`SHARDS`] parts, by thread.
//! 2. There are at most [`ENTRIES_MAX`] entries: beyond that the twentieth part with the fewest calls goes. An entry that went is gone for the
//!    plans that keep it too.
//! 3. Where nothing tracks (`pg_stat_statements.track`), nothing here is touched.

use crate::latency::shard_of_thread;
use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// PostgreSQL's pg_stat_statements.max.
pub const ENTRIES_MAX: usize = 5000;
/// Of the entries, the share that makes room.
const EVICTED_SHARE: usize = 20;
const SHARDS: usize = 8;
/// As much of a text as is kept.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// The runs of a statement.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Runs {
    pub calls: u64,
    pub rows: u64,
    pub total_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
    /// The sum of the squares of the differences from the mean (Welford).
    squares: f64,
}

impl Runs {
    fn add(&mut self, ms: f64, rows: u64) {
        let before = self.mean_ms();
        self.calls += 1;
        self.rows += rows;
        self.total_ms += ms;
        self.min_ms = if self.calls == 1 { ms } else { self.min_ms.min(ms) };
        self.max_ms = self.max_ms.max(ms);
        self.squares += (ms - before) * (ms - self.mean_ms());
    }

    /// Both together (Chan's formula).
    fn join(&mut self, other: &Runs) {
        if other.calls == 0 {
            return;
        }
        if self.calls == 0 {
            *self = *other;
            return;
        }
        let (own, others) = (self.calls as f64, other.calls as f64);
        let apart = other.mean_ms() - self.mean_ms();
        self.squares += other.squares + apart * apart * own * others / (own + others);
        self.calls += other.calls;
        self.rows += other.rows;
        self.total_ms += other.total_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    pub fn mean_ms(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total_ms / self.calls as f64 }
    }

    /// Of all runs, as PostgreSQL's is, not of a sample.
    pub fn deviation_ms(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { (self.squares / self.calls as f64).max(0.0).sqrt() }
    }
}

/// A cache line for each, so that threads do not disturb one another.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Shard(Mutex<Runs>);

/// A statement of one role.
#[derive(Debug)]
pub struct Entry {
    pub user: Box<str>,
    pub query_id: i64,
    pub text: Box<str>,
    shards: [Shard; SHARDS],
    is_gone: AtomicBool,
}

impl Entry {
    pub fn runs(&self) -> Runs {
        let mut runs = Runs::default();
        self.shards.iter().for_each(|shard| runs.join(&shard.0.lock()));
        runs
    }

    fn count(&self, took: Duration, rows: u64) {
        self.shards[shard_of_thread(SHARDS)].0.lock().add(took.as_secs_f64() * 1e3, rows);
    }
}

/// Where a plan keeps its entry.
#[derive(Default, Debug)]
pub struct Tracked(ArcSwapOption<Entry>);

type Key = (Box<str>, i64);

/// All statements of a database.
#[derive(Default, Debug)]
pub struct Statements {
    entries: RwLock<HashMap<Key, Arc<Entry>>>,
    /// How often entries made room for others.
    evictions: AtomicU64,
    /// When they were forgotten last, as the clock's microseconds; 0: never.
    reset_at: AtomicU64,
}

impl Statements {
    /// Counts a run of the statement that came as `sql`.
    pub(crate) fn count(&self, tracked: &Tracked, user: &str, sql: &str, took: Duration, rows: u64) {
        if let Some(entry) = &*tracked.0.load()
            && !entry.is_gone.load(Ordering::Relaxed)
            && *entry.user == *user
        {
            return entry.count(took, rows);
        }
        let entry = self.find(user, sql);
        entry.count(took, rows);
        tracked.0.store(Some(entry));
    }

    fn find(&self, user: &str, sql: &str) -> Arc<Entry> {
        let text = normal_text(sql);
        let query_id = query_id(&text);
        let key = (Box::from(user), query_id);
        if let Some(entry) = self.entries.read().get(&key) {
            return entry.clone();
        }
        let mut entries = self.entries.write();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&key) {
            self.evict(&mut entries);
        }
        let text = text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
        let new = || Entry { user: user.into(), query_id, text, shards: Default::default(), is_gone: false.into() };
        entries.entry(key).or_insert_with(|| Arc::new(new())).clone()
    }

    fn evict(&self, entries: &mut HashMap<Key, Arc<Entry>>) {
        let mut by_calls: Vec<(u64, Key)> = entries.iter().map(|(key, of)| (of.runs().calls, key.clone())).collect();
        by_calls.sort_unstable();
        for (_, key) in by_calls.into_iter().take(ENTRIES_MAX / EVICTED_SHARE) {
            if let Some(entry) = entries.remove(&key) {
                entry.is_gone.store(true, Ordering::Relaxed);
            }
        }
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets what fits: of all users and statements where none is named.
    pub fn reset(&self, user: Option<&str>, query_id: Option<i64>, now: i64) {
        let fits = |entry: &Entry| {
            user.is_none_or(|user| *entry.user == *user) && query_id.is_none_or(|id| entry.query_id == id)
        };
        self.entries.write().retain(|_, entry| {
            let goes = fits(entry);
            entry.is_gone.fetch_or(goes, Ordering::Relaxed);
            !goes
        });
        if user.is_none() && query_id.is_none() {
            self.evictions.store(0, Ordering::Relaxed);
            self.reset_at.store(now as u64, Ordering::Relaxed);
        }
    }

    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Microseconds, as the clock's; `None`: never.
    pub fn reset_at(&self) -> Option<i64> {
        Some(self.reset_at.load(Ordering::Relaxed) as i64).filter(|&at| at != 0)
    }
}

fn query_id(text: &str) -> i64 {
    // The same in every run of the program: its keys are fixed.
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() as i64
}

/// The text with `$n` where a constant was and single blanks between words; constants that say which column (`ORDER BY 1`) stay. The numbers go
/// on where the text's own parameters end.
fn normal_text(sql: &str) -> String {
    if !begins_with_rows(sql) {
        return sql.trim().to_owned();
    }
    let mut scan =
        Normal { sql, at: 0, out: String::with_capacity(sql.len()), last: highest_parameter(sql), is_by: false };
    while scan.at < sql.len() {
        scan.token();
    }
    let ends_with = |c: char| c == ';' || c.is_whitespace();
    scan.out.trim_matches(ends_with).to_owned()
}

/// Only statements on rows have constants that make no difference: what is left of a SET without its value says nothing.
fn begins_with_rows(sql: &str) -> bool {
    let word: String = sql.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let known = ["select", "insert", "update", "delete", "merge", "with", "values", "table"];
    known.iter().any(|known| word.eq_ignore_ascii_case(known)) || sql.trim_start().starts_with('(')
}

fn highest_parameter(sql: &str) -> u32 {
    let number = |part: &str| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    sql.split('$').skip(1).filter_map(number).filter(|&n: &u32| n <= 65_535).max().unwrap_or(0)
}

struct Normal<'s> {
    sql: &'s str,
    at: usize,
    out: String,
    /// The number of the last parameter.
    last: u32,
    /// Within ORDER BY or GROUP BY.
    is_by: bool,
}

impl Normal<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.sql.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn run(&self, from: usize, is_in: impl Fn(u8) -> bool) -> usize {
        let rest = &self.sql.as_bytes()[from..];
        from + rest.iter().position(|&b| !is_in(b)).unwrap_or(rest.len())
    }

    fn keep(&mut self, end: usize) {
        self.out.push_str(&self.sql[self.at..end]);
        self.at = end;
    }

    fn constant(&mut self, end: usize) {
        self.last += 1;
        self.out.push('$');
        self.out.push_str(&self.last.to_string());
        self.at = end;
    }

    fn token(&mut self) {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80;
        match self.byte(self.at) {
            b if b.is_ascii_whitespace() => self.blank(self.run(self.at, |b| b.is_ascii_whitespace())),
            b'-' if self.byte(self.at + 1) == b'-' => self.blank(self.run(self.at, |b| b != b'\n')),
            b'/' if self.byte(self.at + 1) == b'*' => self.blank(self.comment()),
            b'\'' => self.constant(self.quoted(self.at, b'\'', false)),
            b'"' => self.keep(self.quoted(self.at, b'"', false)),
            b'$' if self.byte(self.at + 1).is_ascii_digit() => self.keep(self.run(self.at + 1, |b| b.is_ascii_digit())),
            b'$' => match self.dollar_quoted() {
                Some(end) => self.constant(end),
                None => self.keep(self.at + 1),
            },
            b if b.is_ascii_digit() || (b == b'.' && self.byte(self.at + 1).is_ascii_digit()) => self.number(),
            b if is_word(b) => {
                let end = self.run(self.at, is_word);
                self.word(end);
            }
            _ => self.keep(self.at + 1),
        }
    }

    fn blank(&mut self, end: usize) {
        if !self.out.is_empty() && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
        self.at = end;
    }

    fn comment(&self) -> usize {
        let mut depth = 0;
        let mut at = self.at;
        while at < self.sql.len() {
            match (self.byte(at), self.byte(at + 1)) {
                (b'/', b'*') => (depth, at) = (depth + 1, at + 2),
                (b'*', b'/') => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                return at;
            }
        }
        self.sql.len()
    }

    /// The end of what is quoted from `start` on; two quotes are one within.
    fn quoted(&self, start: usize, quote: u8, escapes: bool) -> usize {
        let mut at = start + 1;
        while at < self.sql.len() {
            match self.byte(at) {
                b'\\' if escapes => at += 2,
                b if b == quote && self.byte(at + 1) == quote => at += 2,
                b if b == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.sql.len()
    }

    fn dollar_quoted(&self) -> Option<usize> {
        let tag_end = self.run(self.at + 1, |b| b.is_ascii_alphanumeric() || b == b'_');
        if self.byte(tag_end) != b'$' {
            return None;
        }
        let tag = &self.sql[self.at..=tag_end];
        let body = &self.sql[tag_end + 1..];
        Some(body.find(tag).map_or(self.sql.len(), |end| tag_end + 1 + end + tag.len()))
    }

    fn number(&mut self) {
        let digits = |from| self.run(from, |b| b.is_ascii_digit() || b == b'.' || b == b'_');
        let mut end = digits(self.at);
        if matches!(self.byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            if self.byte(end + 1 + sign).is_ascii_digit() {
                end = digits(end + 1 + sign);
            }
        }
        let follows_by = self.out.trim_end().ends_with(',') || self.ends_with_word("by");
        if self.is_by && follows_by { self.keep(end) } else { self.constant(end) }
    }

    fn ends_with_word(&self, word: &str) -> bool {
        let out = self.out.trim_end();
        out.len() >= word.len()
            && out.is_char_boundary(out.len() - word.len())
            && out[out.len() - word.len()..].eq_ignore_ascii_case(word)
    }

    fn word(&mut self, end: usize) {
        let word = &self.sql[self.at..end];
        let is_prefix = word.len() == 1 && self.byte(end) == b'\'';
        if is_prefix && matches!(word.as_bytes()[0], b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N') {
            let escapes = matches!(word.as_bytes()[0], b'e' | b'E');
            return self.constant(self.quoted(end, b'\'', escapes));
        }
        if word.eq_ignore_ascii_case("by") {
            self.is_by = true;
        } else if ["limit", "offset", "having", "fetch", "for", "union", "from", "where", "rows", "range", "groups"]
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
        {
            self.is_by = false;
        }
        self.keep(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_taken_out() {
        for (sql, normal) in [
            ("SELECT * FROM t  WHERE id = 12;", "SELECT * FROM t WHERE id = $1"),
            ("select 'a''b', 1.5e-3, .5 from t1 -- why\n limit 10", "select $1, $2, $3 from t1 limit $4"),
            ("update t set n = n + $1 where id = 3 and x = $2", "update t set n = n + $1 where id = $3 and x = $2"),
            ("select a, b from t order by 2, 1 limit 3", "select a, b from t order by 2, 1 limit $1"),
            ("select e'it\\'s', $q$ 1 $q$, \"c 1\" /* 1 /* 2 */ */ from t", "select $1, $2, \"c 1\" from t"),
            ("insert into t values (1,'x'), (-2, null)", "insert into t values ($1,$2), (-$3, null)"),
            ("SET lock_timeout = 5", "SET lock_timeout = 5"),
            (
                "select c1 from t2 where n in (1, 2) group by 1 having count(*) > 3",
                "select c1 from t2 where n in ($1, $2) group by 1 having count(*) > $3",
            ),
            ("select 'never ends", "select $1"),
            ("select $$ never ends", "select $1"),
            ("select /* never ends", "select"),
            ("select 'ä', ö from ü where ß = 'ß'", "select $1, ö from ü where ß = $2"),
        ] {
            assert_eq!(normal_text(sql), normal, "{sql}");
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let times = [0.5, 2.0, 0.25, 8.0, 1.0, 1.0, 3.5];
        let mut whole = Runs::default();
        let mut parts = [Runs::default(); 3];
        for (at, &ms) in times.iter().enumerate() {
            whole.add(ms, 2);
            parts[at % 2].add(ms, 2);
        }
        let mut joined = Runs::default();
        parts.iter().for_each(|part| joined.join(part));
        assert_eq!((joined.calls, joined.rows, joined.min_ms, joined.max_ms), (7, 14, 0.25, 8.0));
        let mean = times.iter().sum::<f64>() / 7.0;
        let deviation = (times.iter().map(|ms| (ms - mean) * (ms - mean)).sum::<f64>() / 7.0).sqrt();
        for runs in [whole, joined] {
            assert!((runs.mean_ms() - mean).abs() < 1e-9 && (runs.deviation_ms() - deviation).abs() < 1e-9, "{runs:?}");
        }
    }

    #[test]
    fn entries_are_bounded_and_the_least_used_go() {
        let statements = Statements::default();
        let often = Tracked::default();
        let count = |tracked: &Tracked, sql: &str| statements.count(tracked, "u", sql, Duration::from_millis(1), 1);
        count(&often, "select 1 from often");
        count(&often, "select 1 from often");
        let mut first = None;
        for number in 0..ENTRIES_MAX {
            let tracked = Tracked::default();
            count(&tracked, &format!("select 1 from t{number}"));
            first.get_or_insert(tracked);
        }
        assert_eq!(
            (statements.evictions(), statements.entries().len()),
            (1, ENTRIES_MAX - ENTRIES_MAX / EVICTED_SHARE + 1)
        );
        assert!(statements.entries().iter().any(|entry| entry.text.contains("often")));
        count(&often, "select 1 from often");
        // What keeps an entry that went finds another one.
        statements.reset(None, None, 7);
        assert_eq!((statements.entries().len(), statements.reset_at()), (0, Some(7)));
        count(&often, "select 1 from often");
        statements.count(&often, "other", "select 2 from often", Duration::ZERO, 0);
        let runs: Vec<u64> = statements.entries().iter().map(|entry| entry.runs().calls).collect();
        assert_eq!(runs, [1, 1], "each user's are counted apart");
        statements.reset(Some("other"), None, 8);
        assert_eq!((statements.entries().len(), statements.reset_at()), (1, Some(7)));
    }
}
