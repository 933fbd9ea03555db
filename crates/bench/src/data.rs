//! Which tables, loaded and updated how, and is the data right? Through the row API on several sessions, with deferred commit.
//!
//! | shape | record | indexes |
//! |---|---|---|
//! | [`Shape::Record168`] | 21 bigints, 168 bytes (REFERENCE.md A1) | hash on the first |
//! | [`Shape::Ordered168`] | the same | B+-tree on the first |
//! | [`Shape::Directory`] | a subscriber (A2) | hash on the service management, service and registration numbers |
//!
//! Every update adds one to a row's counter, so that the sum of all counters is the number of updates: the oracle.

use crate::error::BenchError;
use crate::random::Random;
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::Engine;
use freshet_engine::ids::Cts;
use freshet_engine::schema::{KeyColumn, Row, Type, Value};
use freshet_engine::txn::{Isolation, Locked, Session, Stop, TableCursor};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Rows of one loading transaction.
const BATCH: u64 = 500;
/// Registration numbers that several subscribers share, as the source's Q2 has it.
const SUBSCRIBERS_PER_REGISTRATION: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Shape {
    Record168,
    Ordered168,
    Directory,
}

/// A table of a shape.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub shape: Shape,
    pub rows: u64,
}

impl Shape {
    pub fn table_name(self) -> &'static str {
        match self {
            Shape::Record168 => "record168",
            Shape::Ordered168 => "ordered168",
            Shape::Directory => "customer",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Shape::Record168 => "168-byte records, hash index",
            Shape::Ordered168 => "168-byte records, B+-tree",
            Shape::Directory => "subscriber directory, three hash indexes",
        }
    }

    pub fn indexes(self) -> u64 {
        match self {
            Shape::Directory => 3,
            _ => 1,
        }
    }

    /// Memory of a row with its index entries, generously: what a run needs is said before it starts.
    pub fn memory_bytes_per_row(self) -> u64 {
        match self {
            Shape::Record168 => 200 + 24,
            Shape::Ordered168 => 200 + 48,
            Shape::Directory => 176 + 3 * 24,
        }
    }

    fn columns(self) -> Vec<(String, Type)> {
        let named = |name: &str, ty| (name.to_owned(), ty);
        match self {
            Shape::Record168 | Shape::Ordered168 => (0..21).map(|i| (format!("c{i}"), Type::Int8)).collect(),
            Shape::Directory => vec![
                named("service_mgmt_num", Type::Int8),
                named("service_num", Type::Int4),
                named("registration_num", Type::Int8),
                named("service_code", Type::Int2),
                named("service_type", Type::Int2),
                named("is_ttl_subscriber", Type::Bool),
                named("subscriber_name", Type::Char(40)),
                named("counter", Type::Int8),
            ],
        }
    }

    fn counter(self) -> usize {
        match self {
            Shape::Record168 | Shape::Ordered168 => 5,
            Shape::Directory => 7,
        }
    }

    fn definition(self) -> (TableDef, Vec<IndexDef>) {
        let column = |(name, ty)| ColumnDef { name, ty, not_null: true, ..ColumnDef::default() };
        let def = TableDef {
            name: self.table_name().into(),
            columns: self.columns().into_iter().map(column).collect(),
            ..Default::default()
        };
        let kind = if self == Shape::Ordered168 { IndexKind::BTree } else { IndexKind::Hash };
        let index = |column: u16, unique: bool| IndexDef {
            name: format!("{}_{column}", self.table_name()),
            kind,
            unique,
            primary: column == 0,
            columns: vec![KeyColumn { column, descending: false }],
            ..IndexDef::default()
        };
        let indexes = match self {
            Shape::Directory => vec![index(0, true), index(1, true), index(2, false)],
            _ => vec![index(0, true)],
        };
        (def, indexes)
    }

    fn fill(self, table: &Table, row: &mut Row, id: u64) {
        row.reset(&table.layout);
        let mut set = |column: usize, value: Value<'_>| row.set(&table.layout, column, &value);
        let id_value = Value::Int(id as i64);
        set(0, id_value);
        if self == Shape::Directory {
            set(1, id_value);
            set(2, Value::Int((id / SUBSCRIBERS_PER_REGISTRATION) as i64));
            set(3, Value::Int((id % 97) as i64));
            set(4, Value::Int((id % 7) as i64));
            set(5, Value::Bool(id.is_multiple_of(3)));
            // Short enough to lie in the record, as a fixed field would.
            set(6, Value::Bytes(&b"subscriber"[..]));
            set(7, Value::Int(0));
            return;
        }
        for column in 1..21 {
            let value = if column == self.counter() { 0 } else { id.wrapping_mul(31).wrapping_add(column as u64) };
            set(column, Value::Int(value as i64));
        }
    }
}

/// Runs `work` as one transaction, waiting on this thread where it must; gives its commit timestamp, not yet durable.
pub fn transact(
    session: &mut Session,
    mut work: impl FnMut(&mut Session) -> Result<(), Stop>,
) -> Result<Cts, BenchError> {
    session.begin(Isolation::ReadCommitted, false);
    loop {
        session.begin_statement();
        match work(session) {
            Ok(()) => break,
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                token.block(None);
            }
            Err(Stop::Error(error)) => {
                session.rollback();
                return Err(error.into());
            }
        }
    }
    loop {
        match session.commit() {
            Ok(committed) => return Ok(committed.cts),
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(Stop::Error(error)) => return Err(error.into()),
        }
    }
}

impl Spec {
    pub fn memory_bytes(&self) -> u64 {
        self.rows * self.shape.memory_bytes_per_row()
    }

    fn table(&self, session: &Session) -> Result<Arc<Table>, BenchError> {
        let name = self.shape.table_name();
        let table = session.schema().table(name).cloned();
        table.ok_or_else(|| BenchError::WrongData(format!("table {name} is not there")))
    }

    pub fn create(&self, engine: &Engine) -> Result<(), BenchError> {
        let mut session = engine.connect()?;
        let (def, indexes) = self.shape.definition();
        let cts = transact(&mut session, |s| s.create_table(def.clone(), indexes.clone()))?;
        Ok(engine.wait_durable(cts).wait()?)
    }

    /// Inserts rows `from..self.rows`, durable when it returns.
    pub fn load(&self, engine: &Engine, from: u64, threads: usize, done: &AtomicU64) -> Result<(), BenchError> {
        let next = AtomicU64::new(from);
        let work = |_: usize| -> Result<Cts, BenchError> {
            let mut session = engine.connect()?;
            let mut row = Row::default();
            let mut last = Cts::ZERO;
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                if first >= self.rows {
                    return Ok(last);
                }
                let end = self.rows.min(first + BATCH);
                last = transact(&mut session, |s| {
                    let table = s.schema().table(self.shape.table_name()).cloned().expect("created before");
                    (first..end).try_for_each(|id| {
                        self.shape.fill(&table, &mut row, id);
                        s.insert(&table, &mut row).map(drop)
                    })
                })?;
                done.fetch_add(end - first, Ordering::Relaxed);
            }
        };
        let last = on_threads(threads, work)?.into_iter().max().unwrap_or(Cts::ZERO);
        Ok(engine.wait_durable(last).wait()?)
    }

    /// Adds one to the counters of `count` random rows, a transaction each, durable when it returns.
    pub fn update(
        &self,
        engine: &Engine,
        count: u64,
        threads: usize,
        seed: u64,
        done: &AtomicU64,
    ) -> Result<(), BenchError> {
        let work = |thread: usize| -> Result<Cts, BenchError> {
            let mut session = engine.connect()?;
            let mut adder = Adder::new(self, &mut session)?;
            let mut random = Random(seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let own = count / threads as u64 + u64::from((thread as u64) < count % threads as u64);
            let mut last = Cts::ZERO;
            for n in 0..own {
                last = adder.add_one(&mut session, random.below(self.rows))?;
                if n % 4096 == 0 {
                    done.fetch_add(own.min(n + 4096) - n, Ordering::Relaxed);
                }
            }
            Ok(last)
        };
        let last = on_threads(threads, work)?.into_iter().max().unwrap_or(Cts::ZERO);
        Ok(engine.wait_durable(last).wait()?)
    }

    /// Updates for a time with up to `in_flight` commits of each thread not yet durable; latency is from begin to durable. Counts the
    /// milliseconds that have passed.
    pub fn update_for(
        &self,
        engine: &Engine,
        time: Duration,
        threads: usize,
        in_flight: usize,
        passed_ms: &AtomicU64,
    ) -> Result<Sustained, BenchError> {
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let before = engine.stats();
        let work = |thread: usize| {
            let mut session = engine.connect()?;
            let mut adder = Adder::new(self, &mut session)?;
            let mut random = Random(start.elapsed().subsec_nanos() as u64 ^ (thread as u64 + 77) << 32);
            let mut flying = Flying::new(engine, in_flight);
            while !stop.load(Ordering::Relaxed) && start.elapsed() < time {
                let begun = Instant::now();
                passed_ms.store((begun - start).as_millis() as u64, Ordering::Relaxed);
                let cts = match adder.add_one(&mut session, random.below(self.rows)) {
                    Ok(cts) => cts,
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                };
                flying.add(cts, begun)?;
            }
            flying.land()
        };
        let all = on_threads(threads, work)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut latency_us = Histogram::new(3).expect("three digits are valid");
        all.iter().for_each(|one| latency_us.add(one).expect("both grow as needed"));
        let after = engine.stats();
        let log_bytes = after.commit_record_bytes - before.commit_record_bytes;
        let operations = latency_us.len();
        Ok(Sustained { operations, seconds, latency_us, log_bytes_per_op: log_bytes as f64 / operations.max(1) as f64 })
    }

    /// Rows and the sum of their counters, by a full scan; and some keys through each index.
    pub fn check(&self, engine: &Engine) -> Result<Content, BenchError> {
        let mut session = engine.connect()?;
        session.begin_read();
        session.begin_statement();
        let table = self.table(&session)?;
        let (mut cursor, mut row) = (TableCursor::default(), Row::default());
        let mut content = Content { rows: 0, sum: 0 };
        while session.scan_next(&table, &mut cursor, &mut row).is_some() {
            content.rows += 1;
            match row.get(&table.layout, self.shape.counter()) {
                Value::Int(n) => content.sum += n,
                other => return Err(BenchError::WrongData(format!("a counter reads {other:?}"))),
            }
        }
        let mut random = Random(7);
        for id in (0..1000.min(self.rows)).map(|_| random.below(self.rows)) {
            self.check_key(&mut session, &table, id, &mut row)?;
        }
        for index in &table.indexes {
            if index.entries() != content.rows {
                let (name, entries, rows) = (&index.def.name, index.entries(), content.rows);
                return Err(BenchError::WrongData(format!("index {name} has {entries} entries for {rows} rows")));
            }
        }
        session.rollback();
        Ok(content)
    }

    fn check_key(&self, session: &mut Session, table: &Table, id: u64, row: &mut Row) -> Result<(), BenchError> {
        for index in table.indexes.iter().filter(|i| i.def.unique) {
            let found = session.get(table, index, |_| Value::Int(id as i64), row);
            if found.is_none() || row.get(&table.layout, 0) != Value::Int(id as i64) {
                return Err(BenchError::WrongData(format!("index {} does not find key {id}", index.def.name)));
            }
        }
        Ok(())
    }
}

/// What a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub rows: u64,
    pub sum: i64,
}

/// What updating for a time gave.
pub struct Sustained {
    pub operations: u64,
    pub seconds: f64,
    pub latency_us: Histogram<u64>,
    pub log_bytes_per_op: f64,
}

impl Sustained {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    pub fn p99_us(&self) -> u64 {
        self.latency_us.value_at_quantile(0.99)
    }
}

/// Runs `work` on so many threads; the first error wins.
fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads.max(1)).map(|n| scope.spawn(move || work(n))).collect();
        running.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Adds one to a row's counter, found by the first index.
struct Adder {
    table: Arc<Table>,
    counter: usize,
    row: Row,
    new: Row,
}

impl Adder {
    fn new(spec: &Spec, session: &mut Session) -> Result<Adder, BenchError> {
        session.begin_read();
        session.begin_statement();
        let table = spec.table(session)?;
        session.rollback();
        Ok(Adder { table, counter: spec.shape.counter(), row: Row::default(), new: Row::default() })
    }

    fn add_one(&mut self, session: &mut Session, key: u64) -> Result<Cts, BenchError> {
        let Adder { table, counter, row, new } = self;
        let mut lost = false;
        let cts = transact(session, |s| {
            let found = s.get(table, &table.indexes[0], |_| Value::Int(key as i64), row);
            lost = match found {
                None => true,
                Some(id) => {
                    s.lock(table, id, row)? == Locked::Gone || {
                        new.copy_from(row);
                        let Value::Int(n) = row.get(&table.layout, *counter) else { return Ok(()) };
                        new.set(&table.layout, *counter, &Value::Int(n + 1));
                        s.update(table, id, row, new)?;
                        false
                    }
                }
            };
            Ok(())
        })?;
        if lost { Err(BenchError::WrongData(format!("row {key} is not there"))) } else { Ok(cts) }
    }
}

/// Commits of one thread on their way to the disk, oldest first.
struct Flying<'a> {
    engine: &'a Engine,
    queue: VecDeque<(Cts, Instant)>,
    most: usize,
    latency_us: Histogram<u64>,
}

impl<'a> Flying<'a> {
    fn new(engine: &'a Engine, most: usize) -> Flying<'a> {
        Flying { engine, queue: VecDeque::new(), most, latency_us: Histogram::new(3).expect("three digits are valid") }
    }

    fn add(&mut self, cts: Cts, begun: Instant) -> Result<(), BenchError> {
        self.queue.push_back((cts, begun));
        self.take_durable();
        if self.queue.len() >= self.most {
            let (oldest, _) = self.queue[0];
            self.engine.wait_durable(oldest).wait()?;
            self.take_durable();
        }
        Ok(())
    }

    fn take_durable(&mut self) {
        while let Some(&(cts, begun)) = self.queue.front()
            && self.engine.is_durable(cts)
        {
            self.queue.pop_front();
            let us = begun.elapsed().as_micros() as u64;
            self.latency_us.record(us.max(1)).expect("the histogram grows as needed");
        }
    }

    fn land(mut self) -> Result<Histogram<u64>, BenchError> {
        if let Some(&(last, _)) = self.queue.back() {
            self.engine.wait_durable(last).wait()?;
        }
        self.take_durable();
        Ok(self.latency_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::engine::Options;

    #[test]
    fn what_is_loaded_and_updated_is_counted_in_every_shape() {
        for shape in [Shape::Record168, Shape::Ordered168, Shape::Directory] {
            let dir = tempfile::tempdir().expect("a directory");
            let engine = Engine::open(Options::small(dir.path())).expect("opens");
            let spec = Spec { shape, rows: 1203 };
            spec.create(&engine).expect("creates");
            let done = AtomicU64::new(0);
            spec.load(&engine, 0, 2, &done).expect("loads");
            assert_eq!(done.load(Ordering::Relaxed), 1203);
            spec.update(&engine, 5001, 2, 1, &done).expect("updates");
            assert_eq!(spec.check(&engine).expect("right"), Content { rows: 1203, sum: 5001 });
            let more = spec.update_for(&engine, Duration::from_millis(20), 2, 50, &done).expect("updates");
            let sum = 5001 + more.operations as i64;
            assert_eq!(spec.check(&engine).expect("right"), Content { rows: 1203, sum });
        }
    }

    #[test]
    fn a_missing_table_is_wrong_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(Options::small(dir.path())).expect("opens");
        let spec = Spec { shape: Shape::Record168, rows: 1 };
        assert!(matches!(spec.check(&engine), Err(BenchError::WrongData(_))));
    }
}
