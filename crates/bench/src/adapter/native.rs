//! `freshet-native`: the engine's row API, without SQL. What SQL costs is the difference to `freshet`.

use super::{
    Adapter, Answer, Completion, Content, Driver, Facts, Fetch, Kind, Loading, Op, Setup, Submitted, on_threads,
};
use crate::error::BenchError;
use crate::shape::{IndexShape, Order, TableShape, Ty, text_of};
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{KeyBuf, KeyColumn, KeyPart, Row, Type, Value};
use freshet_engine::txn::{Direction, Isolation, Locked, Session, Stop, TableCursor};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const KIND: Kind = Kind {
    name: "freshet-native",
    about: "Freshet's row API, without SQL",
    is_available: || Ok(()),
    start: |setup| Ok(Box::new(Native::open(setup)?)),
};

/// Rows of one loading transaction.
pub(super) const LOAD_BATCH: u64 = 500;
/// Sessions beside those of the drivers: loading, checking.
const OWN_SESSIONS: usize = 64;

/// The options that both of our embedded adapters open with.
pub(super) fn options(setup: &Setup) -> Options {
    Options {
        log_dirs: setup.log.directories(&setup.dir),
        memory_limit_bytes: setup.memory_bytes,
        sessions_max: (setup.sessions_max + OWN_SESSIONS) as u32,
        ..Options::new(setup.dir.join("data"))
    }
}

pub(super) fn facts(engine: &Engine) -> Facts {
    let stats = engine.stats();
    Facts {
        log_bytes: Some(stats.commit_record_bytes),
        log_overhead_bytes: Some(stats.group_overhead_bytes),
        flushes: Some(stats.flushes),
        checkpoints: Some(stats.checkpoints),
        table_bytes: Some(stats.page_bytes),
        version_bytes: Some(stats.version_bytes),
        index_bytes: Some(stats.index_bytes),
    }
}

pub struct Native {
    engine: Engine,
    shapes: Vec<TableShape>,
    tables: Vec<Arc<Table>>,
}

impl Native {
    fn open(setup: &Setup) -> Result<Native, BenchError> {
        let engine = match &setup.modelled_io {
            Some(io) => Engine::open_on(io.clone(), options(setup))?,
            None => Engine::open(options(setup))?,
        };
        Ok(Native { engine, shapes: Vec::new(), tables: Vec::new() })
    }
}

fn definition(shape: &TableShape) -> (TableDef, Vec<IndexDef>) {
    let ty = |ty: Ty| match ty {
        Ty::Int8 => Type::Int8,
        Ty::Int4 => Type::Int4,
        Ty::Int2 => Type::Int2,
        Ty::Bool => Type::Bool,
        Ty::Char(bytes) => Type::Char(bytes.into()),
    };
    let columns = shape.columns.iter();
    let columns = columns.map(|c| ColumnDef { name: c.name.clone(), ty: ty(c.ty), not_null: true, default: None });
    let def = TableDef { name: shape.name.into(), columns: columns.collect() };
    let indexes = shape.indexes.iter().enumerate();
    (def, indexes.map(|(i, index)| IndexDef { primary: i == 0, ..index_definition(shape, index) }).collect())
}

fn index_definition(shape: &TableShape, index: &IndexShape) -> IndexDef {
    IndexDef {
        name: format!("{}_{}", shape.name, shape.columns[index.column].name),
        kind: if index.order == Order::Hash { IndexKind::Hash } else { IndexKind::BTree },
        unique: index.unique,
        primary: false,
        columns: vec![KeyColumn { column: index.column as u16, descending: false }],
    }
}

/// Runs `work` as one transaction, waiting on this thread where it must.
fn transact<T>(
    session: &mut Session,
    mut work: impl FnMut(&mut Session) -> Result<T, Stop>,
) -> Result<(T, Cts), BenchError> {
    session.begin(Isolation::ReadCommitted, false);
    let value = loop {
        session.begin_statement();
        match work(session) {
            Ok(value) => break value,
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                token.block(None);
            }
            Err(Stop::Error(error)) => {
                session.rollback();
                return Err(error.into());
            }
        }
    };
    loop {
        match session.commit() {
            Ok(committed) => return Ok((value, committed.cts)),
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(Stop::Error(error)) => return Err(error.into()),
        }
    }
}

fn fill(table: &Table, shape: &TableShape, row: &mut Row, cells: &[i64], text: &mut String) {
    row.reset(&table.layout);
    for (i, (&cell, column)) in cells.iter().zip(&shape.columns).enumerate() {
        match column.ty {
            Ty::Bool => row.set(&table.layout, i, &Value::Bool(cell != 0)),
            Ty::Char(_) => {
                text_of(cell, text);
                row.set(&table.layout, i, &Value::Bytes(text.as_bytes()));
            }
            _ => row.set(&table.layout, i, &Value::Int(cell)),
        }
    }
}

fn int(value: Value<'_>) -> i64 {
    match value {
        Value::Int(n) => n,
        Value::Bool(b) => i64::from(b),
        _ => 0,
    }
}

impl Adapter for Native {
    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        let mut session = self.engine.connect()?;
        for shape in tables {
            let (def, indexes) = definition(shape);
            let (_, cts) = transact(&mut session, |s| s.create_table(def.clone(), indexes.clone()))?;
            self.engine.wait_durable(cts).wait()?;
        }
        self.shapes = tables.to_vec();
        session.begin_read();
        session.begin_statement();
        for shape in tables {
            let table = session.schema().table(shape.name).cloned();
            self.tables.push(table.ok_or_else(|| BenchError::WrongData(format!("{} is not there", shape.name)))?);
        }
        session.rollback();
        Ok(())
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let (table, shape) = (&self.tables[loading.table], &self.shapes[loading.table]);
        let next = AtomicU64::new(loading.rows.start);
        let work = |_: usize| -> Result<Cts, BenchError> {
            let mut session = self.engine.connect()?;
            let (mut row, mut cells, mut text) = (Row::default(), Vec::new(), String::new());
            let mut last = Cts::ZERO;
            loop {
                let first = next.fetch_add(LOAD_BATCH, Ordering::Relaxed);
                if first >= loading.rows.end {
                    return Ok(last);
                }
                let end = loading.rows.end.min(first + LOAD_BATCH);
                (_, last) = transact(&mut session, |s| {
                    (first..end).try_for_each(|id| {
                        cells.clear();
                        (shape.row)(id, &mut cells);
                        fill(table, shape, &mut row, &cells, &mut text);
                        s.insert(table, &mut row).map(drop)
                    })
                })?;
                loading.done.fetch_add(end - first, Ordering::Relaxed);
            }
        };
        let last = on_threads(loading.threads, work)?.into_iter().max().unwrap_or(Cts::ZERO);
        Ok(self.engine.wait_durable(last).wait()?)
    }

    fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        let all: Result<Vec<Session>, _> = (0..sessions).map(|_| self.engine.connect()).collect();
        Ok(Box::new(NativeDriver {
            native: self,
            sessions: all?,
            durable,
            flying: VecDeque::new(),
            scratch: Scratch::default(),
        }))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let (table, shape) = (&self.tables[table], &self.shapes[table]);
        let mut session = self.engine.connect()?;
        session.begin_read();
        session.begin_statement();
        let (mut cursor, mut row) = (TableCursor::default(), Row::default());
        let mut content = Content::default();
        while session.scan_next(table, &mut cursor, &mut row).is_some() {
            content.rows += 1;
            content.sum = content.sum.wrapping_add(int(row.get(&table.layout, shape.counter)));
        }
        session.rollback();
        for index in &table.indexes {
            if index.entries() < content.rows {
                let (name, entries, rows) = (&index.def.name, index.entries(), content.rows);
                return Err(BenchError::WrongData(format!("index {name} has {entries} entries for {rows} rows")));
            }
        }
        Ok(content)
    }

    fn build_index(&mut self, table: usize, index: &IndexShape) -> Result<bool, BenchError> {
        let shape = &mut self.shapes[table];
        let mut def = index_definition(shape, index);
        def.name.push_str("_built");
        let mut session = self.engine.connect()?;
        let (_, cts) = transact(&mut session, |s| s.create_index(shape.name, def.clone()))?;
        self.engine.wait_durable(cts).wait()?;
        shape.indexes.push(index.clone());
        let found = self.engine.schema().table(shape.name).cloned();
        self.tables[table] = found.ok_or_else(|| BenchError::WrongData(format!("{} is not there", shape.name)))?;
        Ok(true)
    }

    fn facts(&self) -> Facts {
        facts(&self.engine)
    }

    fn note(&self) -> String {
        self.engine.runs_without().join("; ")
    }
}

/// A commit on its way to the devices.
struct Flying {
    cts: Cts,
    session: usize,
    answer: Answer,
}

#[derive(Default)]
struct Scratch {
    row: Row,
    new: Row,
    text: String,
    cells: Vec<i64>,
    lower: KeyBuf,
    upper: KeyBuf,
    candidates: Vec<freshet_engine::ids::RowId>,
}

struct NativeDriver<'a> {
    native: &'a Native,
    sessions: Vec<Session>,
    durable: bool,
    /// In order of commit: oldest first.
    flying: VecDeque<Flying>,
    scratch: Scratch,
}

impl NativeDriver<'_> {
    fn take_durable(&mut self, done: &mut Vec<Completion>) {
        while let Some(oldest) = self.flying.front()
            && self.native.engine.is_durable(oldest.cts)
        {
            done.push(Completion { session: oldest.session, answer: oldest.answer });
            self.flying.pop_front();
        }
    }
}

impl Driver for NativeDriver<'_> {
    fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let (native, scratch) = (self.native, &mut self.scratch);
        let engine_session = &mut self.sessions[session];
        let (answer, cts) = match op {
            Op::Search { .. } | Op::SearchMany { .. } | Op::Traverse { .. } | Op::Sum { .. } => {
                engine_session.begin_read();
                engine_session.begin_statement();
                let answer = native.read(engine_session, op, scratch);
                let cts = engine_session.dependency();
                engine_session.rollback();
                (answer, cts)
            }
            Op::Transaction(ops) => transact(engine_session, |s| {
                let mut answer = Answer::default();
                for op in *ops {
                    answer.add(native.statement(s, op, scratch)?);
                }
                Ok(answer)
            })?,
            op => transact(engine_session, |s| native.statement(s, op, scratch))?,
        };
        if !self.durable {
            engine_session.acknowledged_deferred(cts);
            return Ok(Submitted::Done(answer));
        }
        if cts == Cts::ZERO || native.engine.is_durable(cts) {
            return Ok(Submitted::Done(answer));
        }
        self.flying.push_back(Flying { cts, session, answer });
        Ok(Submitted::InFlight)
    }

    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
        let before = done.len();
        self.take_durable(done);
        if let (true, true, Some(oldest)) = (wait, done.len() == before, self.flying.front()) {
            self.native.engine.wait_durable(oldest.cts).wait()?;
            self.take_durable(done);
        }
        Ok(())
    }
}

impl Native {
    /// One statement of a transaction.
    fn statement(&self, session: &mut Session, op: &Op<'_>, scratch: &mut Scratch) -> Result<Answer, Stop> {
        match *op {
            Op::Update { table, index, key, column, add } => {
                self.change(session, table, index, key, scratch, |s, table, id, scratch| {
                    scratch.new.copy_from(&scratch.row);
                    let sum = int(scratch.row.get(&table.layout, column)).wrapping_add(add);
                    scratch.new.set(&table.layout, column, &Value::Int(sum));
                    s.update(table, id, &scratch.row, &mut scratch.new)
                })
            }
            Op::Delete { table, index, key } => {
                self.change(session, table, index, key, scratch, |s, table, id, scratch| {
                    s.delete(table, id, &scratch.row)
                })
            }
            Op::InsertRow { table, id } => {
                scratch.cells.clear();
                (self.shapes[table].row)(id, &mut scratch.cells);
                let (new, text) = (&mut scratch.new, &mut scratch.text);
                fill(&self.tables[table], &self.shapes[table], new, &scratch.cells, text);
                session.insert(&self.tables[table], &mut scratch.new)?;
                Ok(Answer { rows: 1, sum: 0 })
            }
            Op::Insert { table, cells } => {
                fill(&self.tables[table], &self.shapes[table], &mut scratch.new, cells, &mut scratch.text);
                session.insert(&self.tables[table], &mut scratch.new)?;
                Ok(Answer { rows: 1, sum: 0 })
            }
            Op::Search { .. } | Op::SearchMany { .. } | Op::Traverse { .. } | Op::Sum { .. } | Op::Transaction(_) => {
                Ok(self.read(session, op, scratch))
            }
        }
    }

    /// Finds the row, locks it, and runs `work` on it. `scratch.row` is its newest version.
    fn change(
        &self,
        session: &mut Session,
        table: usize,
        index: usize,
        key: i64,
        scratch: &mut Scratch,
        work: impl FnOnce(&mut Session, &Arc<Table>, freshet_engine::ids::RowId, &mut Scratch) -> Result<(), Stop>,
    ) -> Result<Answer, Stop> {
        let table = &self.tables[table];
        let Some(id) = session.get(table, &table.indexes[index], |_| Value::Int(key), &mut scratch.row) else {
            return Ok(Answer::default());
        };
        if session.lock(table, id, &mut scratch.row)? == Locked::Gone {
            return Ok(Answer::default());
        }
        work(session, table, id, scratch)?;
        Ok(Answer { rows: 1, sum: 0 })
    }

    fn read(&self, session: &mut Session, op: &Op<'_>, scratch: &mut Scratch) -> Answer {
        let mut answer = Answer::default();
        match *op {
            Op::Search { table, index, key, fetch } => {
                self.search(session, (table, index), key, fetch, scratch, &mut answer)
            }
            Op::SearchMany { table, index, keys } => {
                keys.iter()
                    .for_each(|&key| self.search(session, (table, index), key, Fetch::Counter, scratch, &mut answer));
            }
            Op::Traverse { table, index, key, rows } => {
                let (table, counter) = (&self.tables[table], self.shapes[table].counter);
                let index = &table.indexes[index];
                index.spec.encode(&mut scratch.lower, |_| KeyPart::Value(Value::Int(key)));
                index.spec.encode(&mut scratch.upper, |_| KeyPart::Highest);
                index.spec.pad_high(&mut scratch.upper);
                let mut cursor = session.range(index, &scratch.lower, &scratch.upper, Direction::Forward);
                for _ in 0..rows {
                    if session.range_next(table, index, &mut cursor, &mut scratch.row).is_none() {
                        break;
                    }
                    answer.add(Answer { rows: 1, sum: int(scratch.row.get(&table.layout, counter)) });
                }
            }
            Op::Sum { table } => {
                let (table, counter) = (&self.tables[table], self.shapes[table].counter);
                let mut cursor = TableCursor::default();
                while session.scan_next(table, &mut cursor, &mut scratch.row).is_some() {
                    answer.add(Answer { rows: 1, sum: int(scratch.row.get(&table.layout, counter)) });
                }
            }
            _ => unreachable!("only reads come here"),
        }
        answer
    }

    fn search(
        &self,
        session: &mut Session,
        (table, index): (usize, usize),
        key: i64,
        fetch: Fetch,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) {
        let (table, shape) = (&self.tables[table], &self.shapes[table]);
        let index = &table.indexes[index];
        let mut take = |row: &Row| {
            if fetch == Fetch::Row {
                (0..shape.columns.len()).for_each(|column| _ = std::hint::black_box(row.get(&table.layout, column)));
            }
            answer.add(Answer { rows: 1, sum: int(row.get(&table.layout, shape.counter)) });
        };
        if index.def.unique {
            if session.get(table, index, |_| Value::Int(key), &mut scratch.row).is_some() {
                take(&scratch.row);
            }
            return;
        }
        let column = usize::from(index.def.columns[0].column);
        scratch.candidates.clear();
        session.lookup(table, index, |_| Value::Int(key), &mut scratch.candidates);
        for &id in &scratch.candidates {
            if session.read(table, id, &mut scratch.row) && int(scratch.row.get(&table.layout, column)) == key {
                take(&scratch.row);
            }
        }
    }
}
