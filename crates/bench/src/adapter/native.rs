//! `freshet-native`: the engine's row API, without SQL. What SQL costs is the difference to `freshet`.

mod driver;
mod rows;

use super::{Adapter, Content, Driver, Facts, Kind, Loading, Setup, on_threads};
use crate::error::BenchError;
use crate::shape::{IndexShape, Order, TableShape, Ty};
use driver::NativeDriver;
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{KeyColumn, Row, Type};
use freshet_engine::txn::{Isolation, Session, Stop, TableCursor};
use rows::{Tables, fill, int};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub const KIND: Kind = Kind {
    name: "freshet-native",
    about: "Freshet's row API, without SQL",
    is_available: || Ok(()),
    start: |setup| Ok(Box::new(Native::open(setup)?)),
    is_in_one_place: false,
    has_one_index: false,
};

/// Rows of one loading transaction.
pub(super) const LOAD_BATCH: u64 = 500;
/// Sessions beside those of the drivers: loading, checking.
const OWN_SESSIONS: usize = 64;

/// Segment and what may be staged, on modelled devices: a database that has served for a day recycles its log's files, and zeros for new ones would
/// take a disk of 40 MB/s longer than a measurement. With short segments a load leaves several, which a checkpoint then frees.
const MODELLED_LOG: (u64, u64) = (8 << 20, 4 << 20);

/// The options that both of our embedded adapters open with.
pub(super) fn options(setup: &Setup) -> Options {
    let usual = Options::new(setup.dir.join("data"));
    let (segment_bytes, stage_limit_bytes) = match setup.log.is_modelled() {
        true => MODELLED_LOG,
        false => (usual.segment_bytes, usual.stage_limit_bytes),
    };
    Options {
        segment_bytes,
        stage_limit_bytes,
        log_dirs: setup.log.directories(&setup.dir),
        memory_limit_bytes: setup.memory_bytes,
        sessions_max: (setup.sessions_max + OWN_SESSIONS) as u32,
        ..usual
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
}

impl Native {
    fn open(setup: &Setup) -> Result<Native, BenchError> {
        let engine = match &setup.log_files {
            Some(files) => Engine::open_on(files.io(), options(setup))?,
            None => Engine::open(options(setup))?,
        };
        Ok(Native { engine, shapes: Vec::new() })
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
    let columns =
        columns.map(|c| ColumnDef { name: c.name.clone(), ty: ty(c.ty), not_null: true, ..ColumnDef::default() });
    let def = TableDef { name: shape.name.into(), columns: columns.collect(), ..Default::default() };
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
        ..IndexDef::default()
    }
}

/// Runs `work` as one transaction, waiting on this thread where it must.
fn transact<T>(
    session: &mut Session,
    work: impl FnMut(&mut Session) -> Result<T, Stop>,
) -> Result<(T, Cts), BenchError> {
    session.begin(Isolation::ReadCommitted, false);
    let value = statement(session, work)?;
    Ok((value, commit(session)?))
}

/// One statement of a transaction; after an error the transaction is over.
fn statement<T>(session: &mut Session, work: impl FnMut(&mut Session) -> Result<T, Stop>) -> Result<T, BenchError> {
    run(session, Session::begin_statement, work)
}

fn run<T>(
    session: &mut Session,
    begin: fn(&mut Session),
    mut work: impl FnMut(&mut Session) -> Result<T, Stop>,
) -> Result<T, BenchError> {
    loop {
        begin(session);
        match work(session) {
            Ok(value) => return Ok(value),
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
}

fn commit(session: &mut Session) -> Result<Cts, BenchError> {
    loop {
        match session.commit() {
            Ok(committed) => return Ok(committed.cts),
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(Stop::Error(error)) => return Err(error.into()),
        }
    }
}

/// The next rows of a load that several threads share.
pub(super) fn next_batch(next: &AtomicU64, loading: &Loading<'_>, rows: u64) -> Option<Range<u64>> {
    let first = next.fetch_add(rows, Ordering::Relaxed);
    (first < loading.rows.end).then(|| first..loading.rows.end.min(first + rows))
}

/// Makes rows from their numbers.
#[derive(Default)]
struct Filler {
    row: Row,
    cells: Vec<i64>,
    text: String,
}

impl Filler {
    fn row(&mut self, table: &Table, shape: &TableShape, id: u64) -> &mut Row {
        self.cells.clear();
        (shape.row)(id, &mut self.cells);
        fill(table, shape, &mut self.row, &self.cells, &mut self.text);
        &mut self.row
    }
}

impl Native {
    fn tables(&self) -> Result<Tables, BenchError> {
        Tables::of(&self.engine.schema(), &self.shapes)
    }

    /// Into an empty table.
    fn load_in_bulk(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let shape = &self.shapes[loading.table];
        let mut session = self.engine.connect()?;
        session.begin(Isolation::ReadCommitted, false);
        let mut load = statement(&mut session, |s| s.begin_load(shape.name))?;
        session.rest();
        let next = AtomicU64::new(loading.rows.start);
        let append = |_: usize| -> Result<(), BenchError> {
            let mut appender = load.appender()?;
            let mut filler = Filler::default();
            while let Some(ids) = next_batch(&next, loading, LOAD_BATCH) {
                for id in ids.clone() {
                    let row = filler.row(load.table(), shape, id);
                    until_done(|| appender.append(row))?;
                }
                loading.done.fetch_add(ids.end - ids.start, Ordering::Relaxed);
            }
            until_done(|| appender.finish())
        };
        on_threads(loading.threads, append)?;
        statement(&mut session, |s| s.finish_load(&mut load))?;
        let cts = commit(&mut session)?;
        Ok(self.engine.wait_durable(cts).wait()?)
    }
}

/// A step of an appender, again after every wait.
fn until_done(mut step: impl FnMut() -> Result<(), Stop>) -> Result<(), BenchError> {
    loop {
        match step() {
            Ok(()) => return Ok(()),
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(Stop::Error(error)) => return Err(error.into()),
        }
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
        Ok(())
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        if loading.rows.start == 0 {
            return self.load_in_bulk(loading);
        }
        let (tables, shape) = (self.tables()?, &self.shapes[loading.table]);
        let table = &tables.tables[loading.table];
        let next = AtomicU64::new(loading.rows.start);
        let work = |_: usize| -> Result<Cts, BenchError> {
            let mut session = self.engine.connect()?;
            let mut filler = Filler::default();
            let mut last = Cts::ZERO;
            while let Some(ids) = next_batch(&next, loading, LOAD_BATCH) {
                (_, last) = transact(&mut session, |s| {
                    ids.clone().try_for_each(|id| s.insert(table, filler.row(table, shape, id)).map(drop))
                })?;
                loading.done.fetch_add(ids.end - ids.start, Ordering::Relaxed);
            }
            Ok(last)
        };
        let last = on_threads(loading.threads, work)?.into_iter().max().unwrap_or(Cts::ZERO);
        Ok(self.engine.wait_durable(last).wait()?)
    }

    fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        let all: Result<Vec<Session>, _> = (0..sessions).map(|_| self.engine.connect()).collect();
        Ok(Box::new(NativeDriver::new(&self.engine, self.tables()?, all?, durable)))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let (tables, shape) = (self.tables()?, &self.shapes[table]);
        let table = &tables.tables[table];
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

    fn checkpoint(&self) -> Result<(), BenchError> {
        Ok(self.engine.checkpoint()?)
    }

    fn build_index(&mut self, table: usize, index: &IndexShape) -> Result<bool, BenchError> {
        let shape = &mut self.shapes[table];
        let mut def = index_definition(shape, index);
        def.name.push_str("_built");
        let mut session = self.engine.connect()?;
        let (_, cts) = transact(&mut session, |s| s.create_index(shape.name, def.clone()))?;
        self.engine.wait_durable(cts).wait()?;
        shape.indexes.push(index.clone());
        Ok(true)
    }

    fn facts(&self) -> Facts {
        facts(&self.engine)
    }

    fn note(&self) -> String {
        self.engine.runs_without().join("; ")
    }
}
