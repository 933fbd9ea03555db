//! `redb`: an embedded key-value store (a copy-on-write B-tree), without SQL and without rows: the key, and all cells as bytes.
//!
//! A table has one index here, its key. One transaction writes at a time, and a durable one syncs by itself.

use super::{Adapter, Answer, Completion, Content, Driver, Facts, Fetch, Kind, Loading, Op, Setup, Submitted};
use crate::error::BenchError;
use crate::shape::TableShape;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
use std::sync::atomic::Ordering;

pub const KIND: Kind = Kind {
    name: "redb",
    about: "redb embedded, a key-value store, durability Immediate",
    is_available: || Ok(()),
    start: |setup| Ok(Box::new(Store::open(setup)?)),
    is_in_one_place: true,
    has_one_index: true,
};

/// Rows of one loading transaction.
const LOAD_BATCH: u64 = 50_000;

type Definition = TableDefinition<'static, i64, &'static [u8]>;

fn refuse(error: impl std::fmt::Display) -> BenchError {
    BenchError::Engine(format!("redb: {error}"))
}

pub struct Store {
    db: Database,
    tables: Vec<TableShape>,
    cache_bytes: usize,
}

impl Store {
    fn open(setup: &Setup) -> Result<Store, BenchError> {
        let cache_bytes = setup.memory_bytes as usize;
        let mut builder = redb::Builder::new();
        builder.set_cache_size(cache_bytes);
        let db = builder.create(setup.one_place()?.join("bench.redb")).map_err(refuse)?;
        Ok(Store { db, tables: Vec::new(), cache_bytes })
    }

    fn definition(&self, table: usize) -> Definition {
        TableDefinition::new(self.tables[table].name)
    }

    fn begin(&self, durable: bool) -> Result<WriteTransaction, BenchError> {
        let mut transaction = self.db.begin_write().map_err(refuse)?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(refuse)?;
        Ok(transaction)
    }
}

fn encode(cells: &[i64], bytes: &mut Vec<u8>) {
    bytes.clear();
    cells.iter().for_each(|cell| bytes.extend_from_slice(&cell.to_le_bytes()));
}

fn cell(bytes: &[u8], column: usize) -> i64 {
    let eight = bytes.get(column * 8..column * 8 + 8).and_then(|b| b.try_into().ok());
    eight.map_or(0, i64::from_le_bytes)
}

impl Adapter for Store {
    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        if let Some(table) = tables.iter().find(|table| table.indexes.len() != 1) {
            let (name, indexes) = (table.name, table.indexes.len());
            return Err(BenchError::Usage(format!(
                "redb has one index a table, and {name} needs {indexes}: leave this adapter out"
            )));
        }
        self.tables = tables.to_vec();
        let transaction = self.begin(true)?;
        for table in 0..tables.len() {
            transaction.open_table(self.definition(table)).map_err(refuse)?;
        }
        transaction.commit().map_err(refuse)
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let shape = &self.tables[loading.table];
        let (mut cells, mut bytes) = (Vec::new(), Vec::new());
        let mut next = loading.rows.start;
        while next < loading.rows.end {
            let end = loading.rows.end.min(next + LOAD_BATCH);
            // The last one syncs them all.
            let transaction = self.begin(end == loading.rows.end)?;
            {
                let mut table = transaction.open_table(self.definition(loading.table)).map_err(refuse)?;
                for id in next..end {
                    cells.clear();
                    (shape.row)(id, &mut cells);
                    encode(&cells, &mut bytes);
                    table.insert(cells[0], bytes.as_slice()).map_err(refuse)?;
                }
            }
            transaction.commit().map_err(refuse)?;
            loading.done.fetch_add(end - next, Ordering::Relaxed);
            next = end;
        }
        Ok(())
    }

    fn driver<'a>(&'a self, _sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        Ok(Box::new(StoreDriver { store: self, durable, bytes: Vec::new(), cells: Vec::new() }))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let transaction = self.db.begin_read().map_err(refuse)?;
        let rows = transaction.open_table(self.definition(table)).map_err(refuse)?;
        let answer = sum(&rows, self.tables[table].counter)?;
        Ok(Content { rows: answer.rows, sum: answer.sum })
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn note(&self) -> String {
        format!(
            "redb, durability Immediate (deferred: None), cache of {} MiB, all of it where its log is",
            self.cache_bytes >> 20
        )
    }
}

fn sum(table: &impl ReadableTable<i64, &'static [u8]>, counter: usize) -> Result<Answer, BenchError> {
    let mut answer = Answer::default();
    for row in table.iter().map_err(refuse)? {
        let (_, bytes) = row.map_err(refuse)?;
        answer.add(Answer { rows: 1, sum: cell(bytes.value(), counter) });
    }
    Ok(answer)
}

fn traverse(
    table: &impl ReadableTable<i64, &'static [u8]>,
    key: i64,
    rows: usize,
    counter: usize,
) -> Result<Answer, BenchError> {
    let mut answer = Answer::default();
    for row in table.range(key..).map_err(refuse)?.take(rows) {
        let (_, bytes) = row.map_err(refuse)?;
        answer.add(Answer { rows: 1, sum: cell(bytes.value(), counter) });
    }
    Ok(answer)
}

struct StoreDriver<'a> {
    store: &'a Store,
    durable: bool,
    bytes: Vec<u8>,
    cells: Vec<i64>,
}

impl StoreDriver<'_> {
    fn read(&self, op: &Op<'_>) -> Result<Answer, BenchError> {
        let transaction = self.store.db.begin_read().map_err(refuse)?;
        let mut answer = Answer::default();
        match *op {
            Op::Search { table, key, fetch, .. } => {
                let rows = transaction.open_table(self.store.definition(table)).map_err(refuse)?;
                answer.add(search(&rows, key, &self.store.tables[table], fetch)?);
            }
            Op::SearchMany { table, keys, .. } => {
                let rows = transaction.open_table(self.store.definition(table)).map_err(refuse)?;
                for &key in keys {
                    answer.add(search(&rows, key, &self.store.tables[table], Fetch::Counter)?);
                }
            }
            Op::Traverse { table, key, rows: count, .. } => {
                let rows = transaction.open_table(self.store.definition(table)).map_err(refuse)?;
                answer = traverse(&rows, key, count, self.store.tables[table].counter)?;
            }
            Op::Sum { table } => {
                let rows = transaction.open_table(self.store.definition(table)).map_err(refuse)?;
                answer = sum(&rows, self.store.tables[table].counter)?;
            }
            _ => unreachable!("only reads come here"),
        }
        Ok(answer)
    }

    fn write(&mut self, ops: &[Op<'_>]) -> Result<Answer, BenchError> {
        let transaction = self.store.begin(self.durable)?;
        let mut answer = Answer::default();
        for op in ops {
            let number = match *op {
                Op::Search { table, .. } | Op::SearchMany { table, .. } | Op::Traverse { table, .. } => table,
                Op::Update { table, .. } | Op::Delete { table, .. } | Op::Sum { table } => table,
                Op::Insert { table, .. } | Op::InsertRow { table, .. } => table,
                Op::Transaction(_) => return Err(BenchError::Usage("a transaction inside a transaction".into())),
            };
            let mut table = transaction.open_table(self.store.definition(number)).map_err(refuse)?;
            answer.add(self.statement(&mut table, op, &self.store.tables[number])?);
        }
        transaction.commit().map_err(refuse)?;
        Ok(answer)
    }

    /// Whether the key was not there.
    fn insert(&mut self, table: &mut Table<'_, i64, &'static [u8]>, cells: &[i64]) -> Result<bool, BenchError> {
        encode(cells, &mut self.bytes);
        Ok(table.insert(cells[0], self.bytes.as_slice()).map_err(refuse)?.is_none())
    }

    fn statement(
        &mut self,
        table: &mut Table<'_, i64, &'static [u8]>,
        op: &Op<'_>,
        shape: &TableShape,
    ) -> Result<Answer, BenchError> {
        let one = |is_there: bool| Answer { rows: u64::from(is_there), sum: 0 };
        match *op {
            Op::Update { key, column, add, .. } => {
                let is_there = match table.get(key).map_err(refuse)? {
                    None => false,
                    Some(old) => {
                        self.bytes.clear();
                        self.bytes.extend_from_slice(old.value());
                        let new = cell(&self.bytes, column).wrapping_add(add);
                        self.bytes[column * 8..column * 8 + 8].copy_from_slice(&new.to_le_bytes());
                        true
                    }
                };
                if is_there {
                    table.insert(key, self.bytes.as_slice()).map_err(refuse)?;
                }
                Ok(one(is_there))
            }
            Op::Insert { cells, .. } => self.insert(table, cells).map(one),
            Op::InsertRow { id, .. } => {
                let mut cells = std::mem::take(&mut self.cells);
                cells.clear();
                (shape.row)(id, &mut cells);
                let inserted = self.insert(table, &cells);
                self.cells = cells;
                inserted.map(one)
            }
            Op::Traverse { key, rows, .. } => traverse(table, key, rows, shape.counter),
            Op::Delete { key, .. } => Ok(one(table.remove(key).map_err(refuse)?.is_some())),
            Op::Search { key, fetch, .. } => search(table, key, shape, fetch),
            Op::SearchMany { keys, .. } => {
                let mut answer = Answer::default();
                for &key in keys {
                    answer.add(search(table, key, shape, Fetch::Counter)?);
                }
                Ok(answer)
            }
            Op::Sum { .. } => sum(table, shape.counter),
            Op::Transaction(_) => Err(BenchError::Usage("a transaction inside a transaction".into())),
        }
    }
}

fn search(
    table: &impl ReadableTable<i64, &'static [u8]>,
    key: i64,
    shape: &TableShape,
    fetch: Fetch,
) -> Result<Answer, BenchError> {
    let Some(found) = table.get(key).map_err(refuse)? else {
        return Ok(Answer::default());
    };
    let bytes = found.value();
    if fetch == Fetch::Row {
        (0..shape.columns.len()).for_each(|column| _ = std::hint::black_box(cell(bytes, column)));
    }
    Ok(Answer { rows: 1, sum: cell(bytes, shape.counter) })
}

impl Driver for StoreDriver<'_> {
    fn submit(&mut self, _session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let answer = match op {
            Op::Search { .. } | Op::SearchMany { .. } | Op::Traverse { .. } | Op::Sum { .. } => self.read(op)?,
            Op::Transaction(ops) => self.write(ops)?,
            one => self.write(std::slice::from_ref(one))?,
        };
        Ok(Submitted::Done(answer))
    }

    fn completions(&mut self, _wait: bool, _done: &mut Vec<Completion>) -> Result<(), BenchError> {
        Ok(())
    }
}
