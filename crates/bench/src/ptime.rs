//! The workload `ptime`: P*TIME's single-operation transactions (REFERENCE.md A1, F1-F6) on 8 M x 168 B.
//!
//! Every operation is a transaction of its own, by a random key; an update adds one to a counter. The sessions are driven by as many threads as
//! cores. Inserts and deletes take turns, a quarter of the table each, so that memory stays flat however long they are measured.

use crate::adapter::{Content, Fetch, Kind};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::log_plan::LogPlan;
use crate::run::{Measured, Plan};
use crate::shape::{Order, TableShape, record168};
use crate::source::{Draw, Rows, content_after};
use crate::suite::{Running, Suite, SuiteArgs, Workload};
use clap::Args;
use std::cell::Cell;
use std::time::Duration;

/// Keys of a batched search.
const KEYS: usize = 64;
/// Sessions of a thread of which an event loop finds some readable at a time.
const READABLE: usize = 64;
/// Of the table, inserted and deleted in one turn at most; the first turn is small, so that a slow system is done with it soon.
const TURN: u64 = 4;
const TURN_ROWS_FIRST: u64 = 10_000;
const TURN_TIME_MAX: Duration = Duration::from_secs(3600);
/// Of what is compared, one after the other.
const TURNS: u32 = 6;
/// And the most that are taken for something that answers less often than a turn is long.
const TURNS_MOST: u32 = 20 * TURNS;
const CONNECTIONS: [usize; 6] = [1, 10, 100, 1000, 2400, 4800];
const STREAMS: [usize; 3] = [1, 2, 4];
/// Ends the names of cases by B+-tree key.
const BTREE: &str = "-btree";

const WORKLOAD: Workload = Workload {
    name: "ptime",
    cases: &[
        ("load", "bulk load through the API, durable at the end"),
        ("search", "by hash key, one thread and all"),
        ("search-row", "the same, all columns"),
        ("search-batched", "64 keys in one statement"),
        ("update", "one field, durable, one thread and all"),
        ("update-deferred", "answered at commit"),
        ("update-lone", "one session, against the device's flush"),
        ("insert", "durable"),
        ("delete", "durable"),
        ("mix-90-10", "searches and durable updates"),
        ("mix-80-20", "searches and durable updates"),
        ("mix-50-50", "searches and durable updates"),
        ("search-btree", "by B+-tree key, against the hash rate"),
        ("update-btree", "the same"),
        ("insert-btree", "the same"),
        ("delete-btree", "the same"),
        ("mix-90-10-btree", "the same"),
        ("connections", "search and update by 1 to 4,800 sessions"),
        ("streams", "update on 1, 2 and 4 log streams"),
    ],
    adapters: &["freshet", "freshet-native", "sqlite", "redb", "postgres"],
    rows: 8_000_000,
    judged_rows: 1_000_000,
    indexes: 1,
    has_own_devices: false,
};

/// Single-row transactions on 8 M x 168 B: P*TIME's figures, against the bare loop and peers
#[derive(Args, Clone, Debug)]
pub struct PtimeArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

pub fn run(args: &PtimeArgs) -> Result<(), BenchError> {
    measure_all(Suite::new(&args.suite, WORKLOAD, record168(Order::Hash).raw_bytes())?)
}

fn measure_all(mut suite: Suite) -> Result<(), BenchError> {
    let measured = suite.each(Ptime::measure);
    beside_sqlite(&mut suite);
    suite.finish(measured)
}

/// One adapter's part of a run.
struct Ptime<'a> {
    suite: &'a mut Suite,
    running: Running,
    /// What the tables hold.
    contents: Vec<Cell<Content>>,
}

impl<'a> Ptime<'a> {
    fn measure(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
        let wanted = WORKLOAD.cases.iter().map(|(name, _)| *name).filter(|case| suite.has(case));
        let (by_btree, others): (Vec<&str>, Vec<&str>) = wanted.partition(|case| case.ends_with(BTREE));
        if others.iter().any(|case| *case != "streams") {
            let log = suite.log.clone();
            Ptime::start(suite, kind, vec![record168(Order::Hash)], &log)?.all()?;
        }
        let is_ours = kind.is_ours();
        if !by_btree.is_empty() && is_ours {
            let log = suite.log.clone();
            // Beside the same table by hash key, if the two are compared.
            let by_hash = TableShape { name: "record_by_hash", ..record168(Order::Hash) };
            let by_hash = Some(by_hash).filter(|_| suite.has("search-btree"));
            let tables = std::iter::once(record168(Order::Btree)).chain(by_hash).collect();
            Ptime::start(suite, kind, tables, &log)?.all_by_btree()?;
        }
        if suite.has("streams") && is_ours {
            for streams in STREAMS {
                let log = LogPlan::Streams(streams);
                let mut ptime = Ptime::start(suite, kind, vec![record168(Order::Hash)], &log)?;
                ptime.fill("streams-load")?;
                ptime.streams(streams)?;
            }
        }
        Ok(())
    }

    fn start(
        suite: &'a mut Suite,
        kind: Kind,
        tables: Vec<TableShape>,
        log: &LogPlan,
    ) -> Result<Ptime<'a>, BenchError> {
        // Beside what is there, a turn of inserts.
        let rows = vec![suite.rows + suite.rows / TURN; tables.len()];
        let running = suite.start(kind, &tables, &rows, log)?;
        Ok(Ptime { suite, running, contents: tables.iter().map(|_| Cell::default()).collect() })
    }

    fn all(mut self) -> Result<(), BenchError> {
        self.fill("load")?;
        for (case, draw, published, source) in [
            ("search", Draw::Search(Fetch::Counter), Some(1.4e6), "F5"),
            ("search-row", Draw::Search(Fetch::Row), None, ""),
            ("search-batched", Draw::Many(KEYS), None, ""),
            ("update", Draw::Update, Some(140e3), "F1"),
        ] {
            if self.suite.has(case) {
                self.sustained(case, &draw, published, source)?;
            }
        }
        for (case, updates, published) in [("mix-90-10", 10, 430e3), ("mix-80-20", 20, 350e3), ("mix-50-50", 50, 200e3)]
        {
            if self.suite.has(case) {
                self.mixed(case, updates, published)?;
            }
        }
        if self.suite.has("update-deferred") {
            self.deferred()?;
        }
        if self.suite.has("update-lone") {
            self.lone()?;
        }
        if self.suite.has("insert") || self.suite.has("delete") {
            self.turns("")?;
        }
        if self.suite.has("connections") {
            self.connections()?;
        }
        Ok(())
    }

    fn all_by_btree(mut self) -> Result<(), BenchError> {
        self.fill("load-btree")?;
        let (threads, sessions) = (self.suite.threads(), self.suite.session_counts());
        // Searches where an event loop knows some ahead, and where it does not.
        let searching =
            if self.suite.args.sessions.is_empty() { vec![READABLE * threads, threads] } else { sessions.clone() };
        for (case, draw, sessions) in [
            ("search", Draw::Search(Fetch::Counter), searching),
            ("update", Draw::Update, sessions.clone()),
            ("mix-90-10", Draw::Mix { updates: 10 }, sessions),
        ] {
            let by_btree = format!("{case}{BTREE}");
            let sessions = if self.suite.has(&by_btree) { sessions } else { Vec::new() };
            for sessions in sessions {
                let plan = self.suite.plan(threads, sessions);
                if case == "search" {
                    self.search_beside_hash(&by_btree, &plan, &draw)?;
                    continue;
                }
                let measured = self.drive(&by_btree, &plan, &draw)?;
                let figure = self.figure(&by_btree, &plan, &measured, &draw);
                self.tell_beside_hash(figure, case);
            }
        }
        if self.suite.has("insert-btree") || self.suite.has("delete-btree") {
            self.turns(BTREE)?;
        }
        Ok(())
    }

    /// By the one key and by the other, in turn.
    fn search_beside_hash(&mut self, case: &str, plan: &Plan, draw: &Draw) -> Result<(), BenchError> {
        let [by_btree, by_hash] = self.in_turn(case, [(0, plan, draw), (1, plan, draw)])?;
        let figure = self.figure(case, plan, &by_btree, draw);
        self.suite.tell(figure.clone(), None);
        let note = format!("{:.2} M/s in turn with it", by_hash.rate() / 1e6);
        let figure = figure.derived("of the hash rate").limit(by_hash.rate()).note(note);
        self.suite.tell(figure, Some(Due::RatioAtLeast(0.5)));
        Ok(())
    }

    /// And its ratio to what as many sessions reach by hash key, if that was measured.
    fn tell_beside_hash(&mut self, figure: Figure, hash_case: &str) {
        self.suite.tell(figure.clone(), None);
        let hash = self.suite.told(hash_case, self.running.kind.name);
        let hash = hash.filter(|f| (f.threads, f.sessions) == (figure.threads, figure.sessions));
        let hash = hash.filter(|f| f.figure == "operations").map(|f| f.rate_per_s).last();
        if let Some(hash) = hash {
            self.suite.tell(figure.derived("of the hash rate").limit(hash), None);
        }
    }

    /// Loads; the figure counts for the case `load`, memory included.
    fn fill(&mut self, case: &str) -> Result<(), BenchError> {
        let rows = self.suite.rows;
        let loaded = self.suite.load(&self.running, 0, rows)?;
        for table in 1..self.contents.len() {
            self.suite.load(&self.running, table, rows)?;
        }
        for (table, content) in self.contents.iter().enumerate() {
            content.set(Content { rows, sum: 0 });
            self.check(table)?;
        }
        if case != "load" || !self.suite.has("load") {
            return Ok(());
        }
        let due = self.is_ours().then_some(Due::RateAtLeast(3e6));
        let bare = self.suite.rates(loaded.threads).insert;
        self.suite.tell(loaded.limit(bare), due);
        let facts = self.running.adapter.facts();
        if let (Some(table), Some(index)) = (facts.table_bytes, facts.index_bytes) {
            let raw = (rows * self.running.tables[0].raw_bytes()) as f64;
            let figure = self.suite.figure(&self.running, "load", "memory", 0.0, 0.0);
            let note = format!("{} B a row in tables, {} in indexes", table / rows, index / rows);
            let figure = figure.ratio((table + index) as f64 / raw).note(note);
            self.suite.tell(figure, Some(Due::RatioAtMost(1.30)));
        }
        Ok(())
    }

    fn is_ours(&self) -> bool {
        self.running.kind.is_ours()
    }

    fn is_sql(&self) -> bool {
        self.running.kind.name == "freshet"
    }

    fn check(&self, table: usize) -> Result<(), BenchError> {
        self.suite.check(&self.running, table, self.contents[table].get())
    }

    fn drive(&self, case: &str, plan: &Plan, draw: &Draw) -> Result<Measured<Rows>, BenchError> {
        self.drive_on(0, case, plan, draw)
    }

    /// So many measurements, each of a table, in turns: from one minute to the next a machine's rates move by more than what is compared may lose.
    /// There are more turns than planned while one of the measurements has no answer yet: a rate of nothing is nothing to compare with.
    fn in_turn<const N: usize>(
        &self,
        case: &str,
        of: [(usize, &Plan, &Draw); N],
    ) -> Result<[Measured<Rows>; N], BenchError> {
        let mut sums = [const { None }; N];
        for turn in 0..TURNS_MOST {
            let is_answered = |sum: &Option<Measured<Rows>>| sum.as_ref().is_some_and(|sum| sum.operations > 0);
            if turn >= TURNS && sums.iter().all(is_answered) {
                break;
            }
            for ((table, plan, draw), sum) in of.iter().zip(&mut sums) {
                let turn = Plan { time: plan.time / TURNS, warm_up: plan.warm_up / TURNS, ..(*plan).clone() };
                Measured::add_turn(sum, self.drive_on(*table, case, &turn, draw)?, false);
            }
        }
        Ok(sums.map(|sum| sum.expect("invariant: there are turns")))
    }

    /// Measures, and checks what the table holds afterwards.
    fn drive_on(&self, table: usize, case: &str, plan: &Plan, draw: &Draw) -> Result<Measured<Rows>, BenchError> {
        let (suite, shape) = (&*self.suite, &self.running.tables[table]);
        let threads = plan.threads as u64;
        let measured = suite.measure(&self.running, case, plan, |thread, sessions| {
            let n = thread as u64;
            let own = |keys: &std::ops::Range<u64>| {
                let at = |n: u64| keys.start + (keys.end - keys.start) * n / threads;
                at(n)..at(n + 1)
            };
            let draw = match draw {
                Draw::Insert(keys) => Draw::Insert(own(keys)),
                Draw::Delete(keys) => Draw::Delete(own(keys)),
                other => other.clone(),
            };
            Rows::new(draw, table, shape, suite.rows, sessions, n)
        })?;
        let content = &self.contents[table];
        content.set(content_after(content.get(), &measured.sources));
        self.check(table)?;
        Ok(measured)
    }

    /// The numbers of sessions that so many threads are measured with, and which of them is the headline. Searches wait for nobody: their headline is
    /// an event loop that finds some of its sessions readable at a time; one session a thread is told beside it, and thousands only have more state
    /// to find in the cache.
    fn sessions_of(&self, draw: &Draw, threads: usize) -> (Vec<usize>, usize) {
        let searches = matches!(draw, Draw::Search(_) | Draw::Many(_));
        let mut sessions = self.suite.session_counts();
        if searches && self.suite.args.sessions.is_empty() {
            sessions.insert(0, threads);
            if self.is_ours() && matches!(draw, Draw::Search(_)) {
                sessions.insert(0, READABLE * threads);
            }
        }
        // Those of the connections stand for themselves.
        let headline = if searches { sessions.first() } else { sessions.last() };
        let headline = *headline.expect("invariant: there is a number of sessions");
        (sessions, headline)
    }

    /// By every number of threads where scaling is due, and every number of sessions that was asked for.
    fn sustained(
        &mut self,
        case: &str,
        draw: &Draw,
        published: Option<f64>,
        source: &'static str,
    ) -> Result<(), BenchError> {
        let all = self.suite.threads();
        let counts = self.suite.thread_counts();
        let scales = matches!(draw, Draw::Search(Fetch::Counter) | Draw::Update);
        for threads in counts.into_iter().filter(|&threads| scales || threads == all) {
            let (sessions, headline) = self.sessions_of(draw, threads);
            for sessions in sessions {
                let plan = self.suite.plan(threads, sessions);
                let measured = self.drive(case, &plan, draw)?;
                let mut figure = self.figure(case, &plan, &measured, draw);
                (figure.published_per_s, figure.source) = (published, source);
                self.judge(figure, draw, threads == all && sessions == headline)?;
            }
        }
        if scales && self.is_ours() {
            self.two_threads_to_one(case, draw)?;
        }
        Ok(())
    }

    /// In turn, where two threads are all there are, of as many sessions as the headline has.
    fn two_threads_to_one(&mut self, case: &str, draw: &Draw) -> Result<(), BenchError> {
        if self.suite.thread_counts() != [1, 2] {
            return Ok(());
        }
        let due = if *draw == Draw::Update { 1.7 } else { 1.9 };
        let [one, two] = [1, 2].map(|threads| self.suite.plan(threads, self.sessions_of(draw, threads).1));
        let [alone, both] = self.in_turn(case, [(0, &one, draw), (0, &two, draw)])?;
        let note = format!("{:.2} and {:.2} M/s in turn", alone.rate() / 1e6, both.rate() / 1e6);
        let figure = self.figure(case, &two, &both, draw);
        let figure = figure.derived_ratio("two threads to one", both.rate() / alone.rate()).note(note);
        self.suite.tell(figure, Some(Due::RatioAtLeast(due)));
        Ok(())
    }

    /// With the limit of the same access.
    fn figure(&self, case: &str, plan: &Plan, measured: &Measured<Rows>, draw: &Draw) -> Figure {
        let unit = if matches!(draw, Draw::Many(_)) { "keys" } else { "operations" };
        let mut figure = self.suite.figure_of(&self.running, case, unit, plan, measured);
        if let Draw::Many(keys) = draw {
            figure.amount *= *keys as f64;
            figure.rate_per_s *= *keys as f64;
        }
        let bare = self.suite.rates(plan.threads);
        let log_bytes = figure.log_bytes_per_op;
        let changes = |rate, commits| self.suite.limit_of_changes(&self.running, plan, rate, commits, log_bytes);
        figure.limit(match draw {
            Draw::Search(Fetch::Counter) => bare.search,
            Draw::Search(Fetch::Row) => bare.search_row,
            Draw::Many(_) => bare.batched,
            Draw::Update => changes(bare.update, 1.0),
            Draw::Mix { updates } => {
                let updates = *updates as f64 / 100.0;
                changes(bare.mix(updates), updates)
            }
            Draw::Insert(_) => changes(bare.insert, 1.0),
            Draw::Delete(_) => changes(bare.delete, 1.0),
        })
    }

    fn judge(&mut self, figure: Figure, draw: &Draw, is_headline: bool) -> Result<(), BenchError> {
        let share = match draw {
            Draw::Search(Fetch::Counter) if self.is_sql() => Some(0.25),
            Draw::Search(Fetch::Counter) => Some(0.5),
            Draw::Many(_) => Some(0.4),
            Draw::Update => Some(0.4),
            _ => None,
        };
        let share = share.filter(|_| is_headline && self.is_ours());
        let parts = (is_headline && self.is_ours() && *draw == Draw::Update).then(|| figure.clone());
        self.suite.tell(figure, share.map(Due::RatioAtLeast));
        if let Some(update) = parts {
            let part = |name: &str| Figure {
                rate_per_s: 0.0,
                limit_per_s: None,
                ratio_to_limit: None,
                ..update.clone().derived(name)
            };
            let flush_p99_us = self.suite.rates(update.threads).flush_p99_us;
            let device = format!("the bare loop's flush {:.1} ms", flush_p99_us as f64 / 1e3);
            self.suite.tell(part("p99").note(device), Some(Due::P99AtMostUs(5e3)));
            let overhead = update.log_overhead_bytes_per_op.unwrap_or(0.0);
            let note = format!("and {overhead:.0} B of padding and group headers");
            self.suite.tell(part("log bytes").note(note), Some(Due::LogBytesAtMost(64.0)));
        }
        Ok(())
    }

    /// By every number of sessions, against what the pure rates of this system promise, in turn with it.
    fn mixed(&mut self, case: &str, updates: u64, published: f64) -> Result<(), BenchError> {
        let threads = self.suite.threads();
        for sessions in self.suite.session_counts() {
            let plan = self.suite.plan(threads, sessions);
            let draws = [Draw::Search(Fetch::Counter), Draw::Update, Draw::Mix { updates }];
            let [search, update, mix] = self.in_turn(case, draws.each_ref().map(|draw| (0, &plan, draw)))?;
            let mut figure = self.figure(case, &plan, &mix, &draws[2]);
            (figure.published_per_s, figure.source) = (Some(published), "F6");
            self.suite.tell(figure.clone(), None);
            let share = updates as f64 / 100.0;
            let (searches, changes) = (search.rate(), update.rate());
            let note = format!("{:.2} and {:.2} M/s in turn with it", searches / 1e6, changes / 1e6);
            let pure = figure
                .derived("of its pure rates")
                .limit(1.0 / ((1.0 - share) / searches + share / changes))
                .note(note);
            self.suite.tell(pure, self.is_ours().then_some(Due::RatioAtLeast(0.9)));
        }
        Ok(())
    }

    fn deferred(&mut self) -> Result<(), BenchError> {
        let (threads, sessions) = (self.suite.threads(), self.suite.sessions());
        let durable = self.suite.plan(threads, sessions);
        let deferred = Plan { durable: false, ..durable.clone() };
        let (case, draw) = ("update-deferred", Draw::Update);
        let [waited, measured] = self.in_turn(case, [(0, &durable, &draw), (0, &deferred, &draw)])?;
        let figure = self.figure(case, &deferred, &measured, &draw);
        self.suite.tell(figure.clone(), None);
        let note = format!("{:.2} M/s durable in turn with it", waited.rate() / 1e6);
        let figure = figure.derived_ratio("durable to deferred", waited.rate() / measured.rate()).note(note);
        self.suite.tell(figure, self.is_ours().then_some(Due::RatioWithin(0.15)));
        Ok(())
    }

    fn lone(&mut self) -> Result<(), BenchError> {
        let plan = self.suite.plan(1, 1);
        let measured = self.drive("update-lone", &plan, &Draw::Update)?;
        let mut figure = self.figure("update-lone", &plan, &measured, &Draw::Update);
        (figure.published_per_s, figure.source) = (Some(1320.0), "F8");
        self.suite.tell(figure.clone(), None);
        if let Some(flush_us) = self.suite.flush_us.filter(|_| !self.suite.log.is_modelled()) {
            let took_us = measured.latency_ns.value_at_quantile(0.5) as f64 / 1e3;
            let figure = figure.derived_ratio("median in flushes", took_us / flush_us);
            let due = self.is_ours().then_some(Due::RatioAtMost(1.3));
            self.suite.tell(figure.note(format!("of 4 KiB ({flush_us:.0} us)")), due);
        }
        Ok(())
    }

    /// Inserts and deletes by turns until each was measured for long enough. The cases' names end in `suffix`.
    fn turns(&mut self, suffix: &str) -> Result<(), BenchError> {
        let (threads, sessions) = (self.suite.threads(), self.suite.sessions());
        let (rows, seconds) = (self.suite.rows, self.suite.args.seconds);
        let most = (rows / TURN).max(1);
        let (mut turn, mut largest) = (TURN_ROWS_FIRST.min(most), 0);
        // A turn ends when all its keys are done.
        let plan = Plan { warm_up: Duration::ZERO, time: TURN_TIME_MAX, ..self.suite.plan(threads, sessions) };
        let mut both: [Option<Measured<Rows>>; 2] = [None, None];
        while !both.iter().all(|m| m.as_ref().is_some_and(|m| m.seconds >= seconds)) {
            let keys = rows..rows + turn;
            let draws = [("insert", Draw::Insert(keys.clone())), ("delete", Draw::Delete(keys))];
            let mut longest = 0f64;
            for ((case, draw), sum) in draws.into_iter().zip(&mut both) {
                let one = self.drive(&format!("{case}{suffix}"), &plan, &draw)?;
                longest = longest.max(one.seconds);
                Measured::add_turn(sum, one, turn > largest);
            }
            largest = largest.max(turn);
            if longest < seconds / 8.0 {
                turn = (turn * 4).min(most);
            }
        }
        let cases = [("insert", Draw::Insert(0..0), 80e3, 1.5e6), ("delete", Draw::Delete(0..0), 100e3, 2e6)];
        for ((case, draw, published, due), measured) in cases.into_iter().zip(both) {
            let name = format!("{case}{suffix}");
            let Some(measured) = measured.filter(|_| self.suite.has(&name)) else { continue };
            let mut figure = self.figure(&name, &plan, &measured, &draw);
            if suffix.is_empty() {
                (figure.published_per_s, figure.source) = (Some(published), "F1");
                self.suite.tell(figure, self.is_ours().then_some(Due::RateAtLeast(due)));
            } else {
                self.tell_beside_hash(figure, case);
            }
        }
        Ok(())
    }

    fn connections(&mut self) -> Result<(), BenchError> {
        let threads = self.suite.threads();
        for (figure_name, draw) in [("search", Draw::Search(Fetch::Counter)), ("update", Draw::Update)] {
            for sessions in CONNECTIONS {
                let plan = self.suite.plan(threads.min(sessions), sessions);
                let measured = self.drive("connections", &plan, &draw)?;
                let mut figure = self.figure("connections", &plan, &measured, &draw);
                (figure.figure, figure.at) = (figure_name.into(), Some(sessions as f64));
                self.suite.tell(figure, None);
            }
        }
        Ok(())
    }

    fn streams(&mut self, streams: usize) -> Result<(), BenchError> {
        let plan = self.suite.plan(self.suite.threads(), self.suite.sessions());
        let measured = self.drive("streams", &plan, &Draw::Update)?;
        let mut figure = self.figure("streams", &plan, &measured, &Draw::Update);
        figure.at = Some(streams as f64);
        self.suite.tell(figure.note(format!("{streams} log streams on one disk")), None);
        Ok(())
    }
}

/// One thread against SQLite.
fn beside_sqlite(suite: &mut Suite) {
    let alone = |suite: &Suite, adapter: &str| {
        let mut told = suite.told("search", adapter).filter(|f| f.figure == "operations");
        told.find(|f| f.threads == 1 && f.sessions == 1).cloned()
    };
    if let (Some(lone), Some(sqlite)) = (alone(suite, "freshet"), alone(suite, "sqlite")) {
        let ratio = lone.rate_per_s / sqlite.rate_per_s;
        suite.tell(lone.derived_ratio("one thread to SQLite's", ratio), Some(Due::RatioAtLeast(6.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{Adapter, Answer, Completion, Driver, Facts, Loading, Op, Setup, Submitted, native};
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        suite: SuiteArgs,
    }

    fn suite(dir: &Path, words: &str, kind: Kind) -> Suite {
        let data = dir.display().to_string();
        let all =
            ["bench", "--rows", "500", "--seconds", "0.05", "--warm-up", "0.01", "--sessions", "8", "--data", &data];
        let args = Words::try_parse_from(all.into_iter().chain(words.split(' '))).expect("words");
        let mut suite = Suite::new(&args.suite, WORKLOAD, 168).expect("measures");
        suite.kinds = vec![kind];
        suite
    }

    /// Answers the first change and every other one without making it.
    struct Liar(Box<dyn Adapter>);

    struct LyingDriver<'a> {
        inner: Box<dyn Driver + 'a>,
        changes: u64,
    }

    const LIAR: Kind = Kind {
        name: "liar",
        about: "the row API, which forgets",
        is_available: || Ok(()),
        start: |setup: &Setup| Ok(Box::new(Liar((native::KIND.start)(setup)?))),
        is_in_one_place: false,
        has_one_index: false,
    };

    impl Adapter for Liar {
        fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
            self.0.create(tables)
        }

        fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
            self.0.load(loading)
        }

        fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
            Ok(Box::new(LyingDriver { inner: self.0.driver(sessions, durable)?, changes: 0 }))
        }

        fn content(&self, table: usize) -> Result<Content, BenchError> {
            self.0.content(table)
        }

        fn facts(&self) -> Facts {
            self.0.facts()
        }
    }

    impl Driver for LyingDriver<'_> {
        fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
            if matches!(op, Op::Update { .. } | Op::Insert { .. } | Op::Delete { .. }) {
                self.changes += 1;
                if !self.changes.is_multiple_of(2) {
                    return Ok(Submitted::Done(Answer { rows: 1, sum: 0 }));
                }
            }
            self.inner.submit(session, op)
        }

        fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
            self.inner.completions(wait, done)
        }
    }

    #[test]
    fn a_system_that_forgets_what_it_acknowledged_fails_the_run() {
        let dir = tempfile::tempdir().expect("a directory");
        for case in ["update", "mix-50-50", "insert"] {
            let told = measure_all(suite(dir.path(), &format!("--case {case}"), LIAR));
            assert!(matches!(told, Err(BenchError::WrongData(_))), "{case}: {told:?}");
        }
        assert!(measure_all(suite(dir.path(), "--case search", LIAR)).is_ok(), "it reads well");
    }

    #[test]
    fn an_open_loop_keeps_to_its_rate() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut suite = suite(dir.path(), "--case update --rate 2000 --threads 1", native::KIND);
        suite.args.seconds = 0.5;
        Ptime::measure(&mut suite, native::KIND).expect("measures");
        let figure = suite.told("update", "freshet-native").next().expect("a figure").clone();
        assert!(figure.rate_per_s <= 2_100.0, "{figure:?}");
        assert!(figure.p50_us.is_some_and(|us| us > 0.0));
    }
}
