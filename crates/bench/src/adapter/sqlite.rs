//! `sqlite`: SQLite in this process, as a good program would use it: WAL, synchronous = FULL, one connection a thread, prepared statements.
//!
//! Its calls block, so the sessions of a thread share a connection: more would only cost memory. One connection writes at a time; they take
//! turns at a mutex here, because SQLite's own way is to sleep a millisecond and try again.

use super::sql::{Dialect, Say, definition, index_definition};
use super::{Adapter, Answer, Completion, Content, Driver, Facts, Fetch, Kind, Loading, Op, Setup, Submitted};
use crate::error::BenchError;
use crate::shape::{IndexShape, TableShape, Ty, text_of};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Statement};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const KIND: Kind = Kind {
    name: "sqlite",
    about: "SQLite embedded, WAL, synchronous = FULL, prepared statements",
    is_available: || Ok(()),
    start: |setup| Ok(Box::new(Sqlite::open(setup)?)),
    is_in_one_place: true,
    has_one_index: false,
};

/// Rows of one loading transaction.
const LOAD_BATCH: u64 = 10_000;
/// SQLite maps at most so much.
const MAP_BYTES_MAX: u64 = 0x7fff_0000;
/// Of each connection: what lies in the log is not read through the map.
const CACHE_BYTES: u64 = 256 << 20;
const STATEMENTS_KEPT: usize = 64;

impl From<rusqlite::Error> for BenchError {
    fn from(error: rusqlite::Error) -> BenchError {
        BenchError::Engine(format!("SQLite: {error}"))
    }
}

pub struct Sqlite {
    path: PathBuf,
    map_bytes: u64,
    tables: Vec<TableShape>,
    writer: Mutex<()>,
}

impl Sqlite {
    fn open(setup: &Setup) -> Result<Sqlite, BenchError> {
        let path = setup.one_place()?.join("bench.sqlite");
        let map_bytes = setup.memory_bytes.min(MAP_BYTES_MAX);
        let sqlite = Sqlite { path, map_bytes, tables: Vec::new(), writer: Mutex::new(()) };
        sqlite.connect(true)?;
        Ok(sqlite)
    }

    /// A connection whose settings are what was asked for.
    fn connect(&self, durable: bool) -> Result<Connection, BenchError> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        let level = if durable { 2 } else { 1 };
        connection.pragma_update(None, "synchronous", level)?;
        connection.pragma_update(None, "cache_size", -((CACHE_BYTES >> 10) as i64))?;
        connection.query_row(&format!("PRAGMA mmap_size = {}", self.map_bytes), [], |_| Ok(()))?;
        let found: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        if mode != "wal" || found != level {
            return Err(BenchError::Engine(format!("SQLite took journal mode {mode} and synchronous {found}")));
        }
        Ok(connection)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Adapter for Sqlite {
    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        let connection = self.connect(true)?;
        for statement in tables.iter().flat_map(|table| definition(table, Dialect::Sqlite)) {
            connection.execute_batch(&statement)?;
        }
        self.tables = tables.to_vec();
        Ok(())
    }

    /// By one thread, unsynced, and a checkpoint at the end that makes all of it durable.
    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let shape = &self.tables[loading.table];
        let connection = self.connect(false)?;
        let _turn = self.turn();
        let mut insert = connection.prepare(&text(Say::Insert { table: loading.table }, &self.tables))?;
        let (mut cells, mut buffer) = (Vec::new(), String::new());
        let mut next = loading.rows.start;
        while next < loading.rows.end {
            let end = loading.rows.end.min(next + LOAD_BATCH);
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for id in next..end {
                cells.clear();
                (shape.row)(id, &mut cells);
                bind_cells(&mut insert, shape, &cells, &mut buffer)?;
                insert.raw_execute()?;
            }
            connection.execute_batch("COMMIT")?;
            loading.done.fetch_add(end - next, Ordering::Relaxed);
            next = end;
        }
        connection.pragma_update(None, "synchronous", 2)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn driver<'a>(&'a self, _sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        Ok(Box::new(SqliteDriver {
            sqlite: self,
            connection: self.connect(durable)?,
            texts: HashMap::new(),
            buffer: String::new(),
            cells: Vec::new(),
        }))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let connection = self.connect(true)?;
        let sum = text(Say::Sum { table }, &self.tables);
        let answer = connection.query_row(&sum, [], totals)?;
        Ok(Content { rows: answer.rows, sum: answer.sum })
    }

    fn build_index(&mut self, table: usize, index: &IndexShape) -> Result<bool, BenchError> {
        let connection = self.connect(true)?;
        let shape = &mut self.tables[table];
        connection.execute_batch(&index_definition(shape, index, Dialect::Sqlite))?;
        shape.indexes.push(index.clone());
        Ok(true)
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn note(&self) -> String {
        format!(
            "SQLite {}, WAL, synchronous FULL (deferred: NORMAL), {} MiB mapped, all of it where its log is",
            rusqlite::version(),
            self.map_bytes >> 20
        )
    }
}

/// SQLite numbers `?1`; `$1` would be a name.
fn text(say: Say, tables: &[TableShape]) -> String {
    match say {
        Say::Begin => "BEGIN IMMEDIATE".into(),
        other => other.text(tables).replace('$', "?"),
    }
}

fn totals(row: &Row<'_>) -> rusqlite::Result<Answer> {
    let sum: Option<i64> = row.get(1)?;
    Ok(Answer { rows: row.get::<_, i64>(0)? as u64, sum: sum.unwrap_or(0) })
}

fn bind_cells(
    statement: &mut Statement<'_>,
    shape: &TableShape,
    cells: &[i64],
    buffer: &mut String,
) -> rusqlite::Result<()> {
    for (i, (&cell, column)) in cells.iter().zip(&shape.columns).enumerate() {
        match column.ty {
            Ty::Char(_) => {
                text_of(cell, buffer);
                statement.raw_bind_parameter(i + 1, buffer.as_str())?;
            }
            _ => statement.raw_bind_parameter(i + 1, cell)?,
        }
    }
    Ok(())
}

struct SqliteDriver<'a> {
    sqlite: &'a Sqlite,
    connection: Connection,
    texts: HashMap<Say, String>,
    buffer: String,
    cells: Vec<i64>,
}

impl SqliteDriver<'_> {
    fn run(&mut self, op: &Op<'_>, say: Say) -> Result<Answer, BenchError> {
        let tables = &self.sqlite.tables;
        let text = self.texts.entry(say).or_insert_with(|| text(say, tables));
        let mut statement = self.connection.prepare_cached(text)?;
        match *op {
            Op::Search { key, .. } | Op::Delete { key, .. } | Op::Traverse { key, .. } => {
                statement.raw_bind_parameter(1, key)?;
            }
            Op::SearchMany { keys, .. } => {
                keys.iter().enumerate().try_for_each(|(i, &key)| statement.raw_bind_parameter(i + 1, key))?;
            }
            Op::Update { key, add, .. } => {
                statement.raw_bind_parameter(1, key)?;
                statement.raw_bind_parameter(2, add)?;
            }
            Op::Insert { table, cells } => bind_cells(&mut statement, &tables[table], cells, &mut self.buffer)?,
            Op::InsertRow { table, id } => {
                self.cells.clear();
                (tables[table].row)(id, &mut self.cells);
                bind_cells(&mut statement, &tables[table], &self.cells, &mut self.buffer)?;
            }
            Op::Sum { .. } | Op::Transaction(_) => {}
        }
        match *op {
            Op::Search { table, fetch, .. } => answer(&mut statement, &tables[table], fetch),
            Op::SearchMany { table, .. } | Op::Traverse { table, .. } => {
                answer(&mut statement, &tables[table], Fetch::Counter)
            }
            Op::Sum { .. } => {
                let mut rows = statement.raw_query();
                let row = rows.next()?.ok_or_else(|| BenchError::WrongData("a sum without a row".into()))?;
                Ok(totals(row)?)
            }
            _ => Ok(Answer { rows: statement.raw_execute()? as u64, sum: 0 }),
        }
    }

    fn run_all(&mut self, ops: &[Op<'_>]) -> Result<Answer, BenchError> {
        let sqlite = self.sqlite;
        let _turn = sqlite.turn();
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut all = Answer::default();
        for op in ops {
            let say = Say::of(op).ok_or_else(|| BenchError::Usage("a transaction inside a transaction".into()))?;
            all.add(self.run(op, say)?);
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(all)
    }
}

fn answer(statement: &mut Statement<'_>, shape: &TableShape, fetch: Fetch) -> Result<Answer, BenchError> {
    let (columns, counter) = match fetch {
        Fetch::Counter => (1, 0),
        Fetch::Row => (shape.columns.len(), shape.counter),
    };
    let mut answer = Answer::default();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            let value = std::hint::black_box(row.get_ref(column)?);
            if let (true, ValueRef::Integer(n)) = (column == counter, value) {
                answer.sum = answer.sum.wrapping_add(n);
            }
        }
        answer.rows += 1;
    }
    Ok(answer)
}

impl Driver for SqliteDriver<'_> {
    fn submit(&mut self, _session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let answer = match (op, Say::of(op)) {
            (Op::Transaction(ops), _) => self.run_all(ops)?,
            (Op::Update { .. } | Op::Insert { .. } | Op::InsertRow { .. } | Op::Delete { .. }, Some(say)) => {
                let sqlite = self.sqlite;
                let _turn = sqlite.turn();
                self.run(op, say)?
            }
            (op, Some(say)) => self.run(op, say)?,
            (_, None) => unreachable!("only a transaction is not one statement"),
        };
        Ok(Submitted::Done(answer))
    }

    fn completions(&mut self, _wait: bool, _done: &mut Vec<Completion>) -> Result<(), BenchError> {
        Ok(())
    }
}
