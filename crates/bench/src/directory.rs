//! The workload `directory`: P*TIME's telephone directory (REFERENCE.md A2), 12 M subscribers found in three ways.
//!
//! | query | by | rows |
//! |---|---|---|
//! | Q1 | service number, unique | 1 |
//! | Q2 | registration number, shared by four subscribers | 4 |
//! | Q3 | service management number, the primary key | 1 |
//! | Q4 | the same; adds one to the counter, durable | 1 |
//!
//! A message carries as many queries as sessions share a connection: each is a transaction of its own, and what is asked together goes out in one
//! message and is answered in one, which is what the source's batches do.

use crate::adapter::{Answer, Content, Fetch, Kind, Op};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::progress::{during, say};
use crate::random::Random;
use crate::run::{Plan, Source};
use crate::shape::{ColumnShape, IndexShape, Order, TableShape, Ty};
use crate::suite::{Running, Suite, SuiteArgs, Workload};
use clap::Args;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Subscribers that share a registration number.
const SHARING: u64 = 4;
/// Of 1,000 queries of the mix, so many are Q4.
const UPDATES_PER_MILLE: u64 = 4;
const MESSAGES: [usize; 3] = [1, 10, 50];
/// Connections of all threads that send messages.
const CONNECTIONS: usize = 16;
/// What each index of a build holds is looked up so often.
const PROBES: u64 = 1000;

const WORKLOAD: Workload = Workload {
    name: "directory",
    cases: &[
        ("load", "bulk load into three hash indexes"),
        ("q1", "by service number"),
        ("q2", "by registration number, four rows"),
        ("q3", "by primary key"),
        ("q4", "update by primary key, durable"),
        ("mix", "99.6 % Q1 to Q3, 0.4 % Q4"),
        ("messages", "the mix over the wire, 1, 10 and 50 queries a message"),
        ("index-build", "three hash indexes over a loaded table"),
    ],
    adapters: &["freshet", "freshet-native", "freshet-wire", "postgres", "sqlite"],
    rows: 12_000_000,
    judged_rows: 1_000_000,
    indexes: 3,
    has_own_devices: false,
};

/// A directory of 12 M subscribers with three hash indexes: P*TIME's Q1 to Q4
#[derive(Args, Clone, Debug)]
pub struct DirectoryArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

/// The primary key is the service management number; the other numbers are indexed as asked.
pub fn customer(others: &[(usize, bool)]) -> TableShape {
    let column = |(name, ty): (&str, Ty)| ColumnShape { name: name.to_owned(), ty };
    let index = |(column, unique): (usize, bool)| IndexShape { column, unique, order: Order::Hash };
    TableShape {
        name: "customer",
        columns: [
            ("service_mgmt_num", Ty::Int8),
            ("service_num", Ty::Int4),
            ("registration_num", Ty::Int8),
            ("service_code", Ty::Int2),
            ("service_type", Ty::Int2),
            ("is_ttl_subscriber", Ty::Bool),
            ("subscriber_name", Ty::Char(40)),
            ("counter", Ty::Int8),
        ]
        .map(column)
        .into(),
        indexes: std::iter::once((0, true)).chain(others.iter().copied()).map(index).collect(),
        counter: 7,
        row: |id, cells| {
            let numbers = [id, id, id / SHARING, id % 97, id % 7, id % 2, id * 31, 0];
            cells.extend(numbers.map(|number| number as i64));
        },
    }
}

const SERVICE: (usize, bool) = (1, true);
const REGISTRATION: (usize, bool) = (2, false);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Query {
    Q1,
    Q2,
    Q3,
    Q4,
    /// Three kinds of search in turn, and now and then Q4.
    Mix,
}

/// What the sessions of a thread ask for.
struct Asking {
    query: Query,
    rows: u64,
    counter: usize,
    random: Random,
    turn: u64,
    /// By session: rows that its answer must have, and whether they are updates.
    due: Vec<(u64, bool)>,
    updated: u64,
}

impl Asking {
    fn new(query: Query, shape: &TableShape, rows: u64, sessions: usize, seed: usize) -> Asking {
        let random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Asking { query, rows, counter: shape.counter, random, turn: 0, due: vec![(0, false); sessions], updated: 0 }
    }

    fn draw(&mut self) -> Query {
        match self.query {
            Query::Mix if self.random.below(1000) < UPDATES_PER_MILLE => Query::Q4,
            Query::Mix => {
                self.turn += 1;
                [Query::Q1, Query::Q2, Query::Q3][(self.turn % 3) as usize]
            }
            query => query,
        }
    }
}

impl Source for Asking {
    fn next(&mut self, session: usize) -> Option<Op<'_>> {
        let query = self.draw();
        let key = self.random.below(self.rows);
        let search = |index, key: u64| Op::Search { table: 0, index, key: key as i64, fetch: Fetch::Row };
        let sharing = |registration: u64| SHARING.min(self.rows - registration * SHARING);
        self.due[session] = (if query == Query::Q2 { sharing(key / SHARING) } else { 1 }, query == Query::Q4);
        Some(match query {
            Query::Q1 => search(1, key),
            Query::Q2 => search(2, key / SHARING),
            Query::Q3 | Query::Mix => search(0, key),
            Query::Q4 => Op::Update { table: 0, index: 0, key: key as i64, column: self.counter, add: 1 },
        })
    }

    fn answered(&mut self, session: usize, answer: Answer) -> Result<(), BenchError> {
        let (rows, is_update) = self.due[session];
        if answer.rows != rows {
            let got = answer.rows;
            return Err(BenchError::WrongData(format!(
                "{:?}: {rows} rows were there, {got} were answered",
                self.query
            )));
        }
        self.updated += u64::from(is_update);
        Ok(())
    }
}

pub fn run(args: &DirectoryArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, customer(&[]).raw_bytes())?;
    let measured = suite.each(|suite, kind| {
        Directory::measure(suite, kind)?;
        if suite.has("index-build") { index_build(suite, kind) } else { Ok(()) }
    });
    suite.finish(measured)
}

/// One adapter's part of a run.
struct Directory<'a> {
    suite: &'a mut Suite,
    running: Running,
    content: Content,
}

impl<'a> Directory<'a> {
    fn measure(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
        let is_wire = ["freshet-wire", "postgres"].contains(&kind.name);
        let embedded = ["q1", "q2", "q3", "q4", "mix"];
        let wants_embedded = !is_wire && embedded.iter().any(|case| suite.has(case));
        let wants_messages = is_wire && suite.has("messages");
        if !(wants_embedded || wants_messages || suite.has("load")) {
            return Ok(());
        }
        let (log, rows) = (suite.log.clone(), suite.rows);
        suite.connections = CONNECTIONS.div_ceil(suite.threads());
        let running = suite.start(kind, &[customer(&[SERVICE, REGISTRATION])], &[rows], &log)?;
        let mut directory = Directory { suite, running, content: Content::default() };
        directory.load()?;
        if wants_embedded {
            directory.queries()?;
        }
        if wants_messages {
            directory.messages()?;
        }
        Ok(())
    }

    fn load(&mut self) -> Result<(), BenchError> {
        let rows = self.suite.rows;
        let mut loaded = self.suite.load(&self.running, 0, rows)?;
        self.content = Content { rows, sum: 0 };
        self.suite.check(&self.running, 0, self.content)?;
        if self.suite.has("load") {
            (loaded.published_per_s, loaded.source) = (Some(47_221.0), "A2");
            let bare = self.suite.rates(loaded.threads);
            // The row with its first entry, and two entries more.
            let loaded = loaded.limit(1.0 / (1.0 / bare.insert + 2.0 / bare.entries));
            let due = self.running.kind.is_ours().then_some(Due::RateAtLeast(3e6));
            self.suite.tell(loaded, due);
        }
        Ok(())
    }

    fn queries(&mut self) -> Result<(), BenchError> {
        for (case, query, published) in [
            ("q1", Query::Q1, Some(710e3)),
            ("q2", Query::Q2, Some(620e3)),
            ("q3", Query::Q3, Some(710e3)),
            ("q4", Query::Q4, Some(113e3)),
            ("mix", Query::Mix, None),
        ] {
            if self.suite.has(case) {
                let sessions = self.suite.sessions();
                let mut figure = self.ask(case, query, sessions)?;
                (figure.published_per_s, figure.source) = (published, "A2");
                self.suite.tell(figure, None);
            }
        }
        Ok(())
    }

    fn messages(&mut self) -> Result<(), BenchError> {
        for (queries, published) in MESSAGES.into_iter().zip([7_000.0, 36_000.0, 100_500.0]) {
            let threads = self.suite.threads();
            let connections = self.suite.connections * threads;
            let mut figure = self.ask("messages", Query::Mix, connections * queries)?;
            figure.figure = format!("{queries} a message");
            figure.at = Some(queries as f64);
            // A connection's next message goes out when its last one was answered.
            let trips = connections as f64 * 1e6 / self.suite.machine.loopback_us;
            let limit = figure.limit_per_s.map_or(0.0, |bare| bare.min(trips * queries as f64));
            let mut figure = figure.limit(limit);
            (figure.published_per_s, figure.source) = (Some(published), "A2");
            self.suite.tell(figure.note(format!("{connections} connections")), None);
        }
        Ok(())
    }

    fn ask(&mut self, case: &str, query: Query, sessions: usize) -> Result<Figure, BenchError> {
        let plan = self.suite.plan(self.suite.threads().min(sessions), sessions);
        let (shape, rows) = (&self.running.tables[0], self.suite.rows);
        let source = |thread, sessions| Asking::new(query, shape, rows, sessions, thread);
        let measured = self.suite.measure(&self.running, case, &plan, source)?;
        self.content.sum += measured.sources.iter().map(|source| source.updated as i64).sum::<i64>();
        self.suite.check(&self.running, 0, self.content)?;
        let figure = self.suite.figure_of(&self.running, case, "operations", &plan, &measured);
        let limit = self.limit(query, &plan, figure.log_bytes_per_op);
        Ok(figure.limit(limit))
    }

    /// A row is found by its bucket, whichever index it is; the other three of Q2 cost their bytes at least.
    fn limit(&self, query: Query, plan: &Plan, log_bytes: Option<f64>) -> f64 {
        let bare = self.suite.rates(plan.threads);
        let row_s = self.running.tables[0].raw_bytes() as f64 / self.suite.bandwidth(plan.threads);
        let four = 1.0 / (1.0 / bare.search_row + (SHARING - 1) as f64 * row_s);
        let updates = UPDATES_PER_MILLE as f64 / 1e3;
        let changes =
            |bare_per_s, commits| self.suite.limit_of_changes(&self.running, plan, bare_per_s, commits, log_bytes);
        match query {
            Query::Q1 | Query::Q3 => bare.search_row,
            Query::Q2 => four,
            Query::Q4 => changes(bare.update, 1.0),
            Query::Mix => {
                let search_s = (2.0 / bare.search_row + 1.0 / four) / 3.0;
                changes(1.0 / ((1.0 - updates) * search_s + updates / bare.update), updates)
            }
        }
    }
}

/// Three hash indexes over a table that has only its primary key yet.
fn index_build(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    let (log, rows) = (suite.log.clone(), suite.rows);
    // As much memory as with them.
    let mut running = suite.start(kind, &[customer(&[])], &[rows * 2], &log)?;
    suite.load(&running, 0, rows)?;
    let built =
        [(0, true), SERVICE, REGISTRATION].map(|(column, unique)| IndexShape { column, unique, order: Order::Hash });
    let start = Instant::now();
    let what = format!("{}: three indexes", kind.name);
    let adapter = &mut running.adapter;
    let made = during(&what, built.len() as u64, |done: &AtomicU64| -> Result<bool, BenchError> {
        for index in &built {
            if !adapter.build_index(0, index)? {
                return Ok(false);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    })?;
    if !made {
        say(&format!("{}: left out: it builds no index over loaded rows", kind.name));
        return Ok(());
    }
    let seconds = start.elapsed().as_secs_f64();
    probe(suite, &running)?;
    suite.check(&running, 0, Content { rows, sum: 0 })?;
    let mut figure = suite.figure(&running, "index-build", "entries", 3.0 * rows as f64, seconds);
    figure = figure.limit(suite.rates(suite.threads()).entries);
    (figure.published_per_s, figure.source) = (Some(503_920.0), "A2");
    let is_ours = kind.name.starts_with("freshet");
    suite.tell(figure, is_ours.then_some(Due::RateAtLeast(8e6)));
    Ok(())
}

/// Every index that was built finds what it should.
fn probe(suite: &Suite, running: &Running) -> Result<(), BenchError> {
    let with = customer(&[(0, true), SERVICE, REGISTRATION]);
    let mut random = Random(7);
    let mut driver = running.adapter.driver(1, true)?;
    let mut done = Vec::new();
    for n in 0..PROBES {
        let index = 1 + (n % 3) as usize;
        let id = random.below(suite.rows);
        let is_shared = with.indexes[index].column == REGISTRATION.0;
        let key = if is_shared { id / SHARING } else { id };
        let due = if is_shared { SHARING.min(suite.rows - key * SHARING) } else { 1 };
        let op = Op::Search { table: 0, index, key: key as i64, fetch: Fetch::Counter };
        let answer = match driver.submit(0, &op)? {
            crate::adapter::Submitted::Done(answer) => answer,
            crate::adapter::Submitted::InFlight => {
                driver.completions(true, &mut done)?;
                done.pop().map(|completion| completion.answer).unwrap_or_default()
            }
        };
        if answer.rows != due {
            let got = answer.rows;
            return Err(BenchError::WrongData(format!("index {index} finds {got} rows of key {key}, {due} are there")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_asks_every_query_and_counts_what_was_updated() {
        let mut asking = Asking::new(Query::Mix, &customer(&[SERVICE, REGISTRATION]), 1002, 1, 3);
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            let (slot, rows) = match asking.next(0) {
                Some(Op::Search { index: 2, key, .. }) => (2, if key == 250 { 2 } else { 4 }),
                Some(Op::Search { index, .. }) => (index, 1),
                Some(Op::Update { .. }) => (3, 1),
                _ => panic!("searches and updates"),
            };
            counts[slot] += 1;
            asking.answered(0, Answer { rows, sum: 0 }).expect("all rows");
        }
        assert!(counts[..3].iter().all(|&count| (3000..3600).contains(&count)), "{counts:?}");
        assert!((10..100).contains(&counts[3]) && asking.updated == counts[3], "{counts:?}");
        assert!(asking.next(0).is_some());
        assert!(matches!(asking.answered(0, Answer::default()), Err(BenchError::WrongData(_))));
    }
}
