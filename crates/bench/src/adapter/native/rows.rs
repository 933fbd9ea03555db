//! How is an operation done on the engine's rows?

use crate::adapter::{Answer, Fetch, Op};
use crate::error::BenchError;
use crate::shape::{TableShape, Ty, text_of};
use freshet_db::Ahead;
use freshet_engine::catalog::{Schema, Table};
use freshet_engine::ids::Cts;
use freshet_engine::ids::RowId;
use freshet_engine::schema::{KeyBuf, KeyPart, Row, Value};
use freshet_engine::txn::{
    Change, Direction, Insertion, IntegerLookup, Locked, Lookup, Session, Stop, Strength, TableCursor,
};
use std::sync::Arc;

/// The tables as one schema has them, and what their searches need.
pub struct Tables {
    pub shapes: Vec<TableShape>,
    pub tables: Vec<Arc<Table>>,
    /// By table and index; none where an index is not unique.
    lookups: Vec<Vec<Option<Lookups>>>,
    insertions: Vec<Insertion>,
}

/// What of a row is looked at.
struct Lookups {
    /// Nothing but the key: who changes a row reads it again under its lock.
    key: Lookup,
    counter: Lookup,
    row: Lookup,
    /// The counter by itself, where key and counter are whole words.
    integer: Option<IntegerLookup>,
    /// Of the counter, if no index has it.
    change: Option<Change>,
    deletion: Option<Change>,
}

impl Tables {
    pub fn of(schema: &Schema, shapes: &[TableShape]) -> Result<Tables, BenchError> {
        let find = |shape: &TableShape| {
            let table = schema.table(shape.name).cloned();
            table.ok_or_else(|| BenchError::WrongData(format!("{} is not there", shape.name)))
        };
        let tables = shapes.iter().map(find).collect::<Result<Vec<Arc<Table>>, BenchError>>()?;
        let of_table = |(table, shape): (&Arc<Table>, &TableShape)| {
            let of_index = |index: &Arc<freshet_engine::catalog::Index>| {
                index.def.unique.then(|| Lookups {
                    key: Lookup::new(table, index, []),
                    counter: Lookup::new(table, index, [shape.counter as u16]),
                    row: Lookup::new(table, index, 0..shape.columns.len() as u16),
                    integer: IntegerLookup::new(table, index, shape.counter as u16),
                    change: Change::new(table, index, &[], &[shape.counter as u16]),
                    deletion: Change::deletion(table, index),
                })
            };
            table.indexes.iter().map(of_index).collect()
        };
        let lookups = tables.iter().zip(shapes).map(of_table).collect();
        let insertions = tables.iter().map(Insertion::new).collect();
        Ok(Tables { shapes: shapes.to_vec(), tables, lookups, insertions })
    }

    /// Whether the operation needs no snapshot: it inserts, or a unique key names the row that it changes.
    pub fn is_at_newest(&self, op: &Op<'_>) -> bool {
        match *op {
            Op::Insert { .. } | Op::InsertRow { .. } => true,
            Op::Update { table, index, .. } | Op::Delete { table, index, .. } => {
                let table = &self.tables[table];
                let index = &table.indexes[index];
                index.def.unique && index.has_fixed_key(table)
            }
            _ => false,
        }
    }

    /// How a row's counter is read by a key of this index, if that is all that is asked of it.
    #[inline]
    pub fn counter_by(&self, table: usize, index: usize) -> Option<&IntegerLookup> {
        self.lookups[table][index].as_ref()?.integer.as_ref()
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub struct Scratch {
    row: Row,
    new: Row,
    text: String,
    cells: Vec<i64>,
    lower: KeyBuf,
    upper: KeyBuf,
    candidates: Vec<RowId>,
}

pub fn fill(table: &Table, shape: &TableShape, row: &mut Row, cells: &[i64], text: &mut String) {
    row.reset(&table.layout);
    fill_nulls(table, shape, row, cells, text);
}

/// The same of a row that is all null.
fn fill_nulls(table: &Table, shape: &TableShape, row: &mut Row, cells: &[i64], text: &mut String) {
    for (i, (&cell, column)) in cells.iter().zip(&shape.columns).enumerate() {
        if let Some(at) = table.layout.integer_word(i as u16) {
            row.set_integer(at, cell);
            continue;
        }
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

pub fn int(value: Value<'_>) -> i64 {
    match value {
        Value::Int(n) => n,
        Value::Bool(b) => i64::from(b),
        _ => 0,
    }
}

impl Tables {
    /// Starts loading what a statement of one row will want; an insert's cells are given by themselves.
    pub fn load_ahead(&self, session: &Session, op: &Op<'_>, cells: &[i64], what: Ahead) {
        let (table, index, key) = match *op {
            Op::Search { table, index, key, .. }
            | Op::Update { table, index, key, .. }
            | Op::Delete { table, index, key } => (table, index, key),
            // A new row's slot is at hand.
            Op::Insert { table, .. } if what == Ahead::Entry => (table, 0, cells[self.shapes[table].indexes[0].column]),
            _ => return,
        };
        match (op, what) {
            (_, Ahead::Entry) => session.load_ahead(),
            (Op::Search { .. }, Ahead::Row) => session.load_place_ahead(),
            _ => {}
        }
        let Some(lookups) = &self.lookups[table][index] else { return };
        match (op, what) {
            (Op::Insert { .. }, Ahead::Entry) => lookups.key.prefetch_integer_to_insert(key),
            (_, Ahead::Entry) => lookups.key.prefetch_integer(key),
            (Op::Search { fetch: Fetch::Row, .. }, Ahead::Row) => lookups.row.prefetch_row_of_integer(key),
            (Op::Search { .. }, Ahead::Row) => lookups.counter.prefetch_row_of_integer(key),
            (Op::Update { .. }, Ahead::Row) => lookups.change.iter().for_each(|c| session.load_row_ahead(c, key)),
            (_, Ahead::Row) => lookups.deletion.iter().for_each(|d| session.load_row_ahead(d, key)),
        }
    }

    /// A statement that is a transaction of its own, in one go where that is possible.
    pub fn once(&self, session: &mut Session, op: &Op<'_>, scratch: &mut Scratch) -> Option<(Answer, Cts)> {
        let done = match *op {
            Op::Update { table, index, key, column, add } => {
                let change = self.lookups[table][index].as_ref()?.change.as_ref()?;
                if column != self.shapes[table].counter {
                    return None;
                }
                let layout = &self.tables[table].layout;
                session.change_once(change, key, |old, new| {
                    let sum = int(old.get(layout, column)).wrapping_add(add);
                    new.set(layout, column, &Value::Int(sum));
                    true
                })
            }
            Op::Delete { table, index, key } => {
                session.delete_once(self.lookups[table][index].as_ref()?.deletion.as_ref()?, key)
            }
            Op::Insert { table, cells } => {
                let (shape, text) = (&self.shapes[table], &mut scratch.text);
                let done = session.insert_once(&self.insertions[table], |row| {
                    fill_nulls(&self.tables[table], shape, row, cells, text);
                    true
                });
                done.map(|(_, committed)| committed)
            }
            _ => None,
        };
        done.map(|committed| (Answer { rows: 1, sum: 0 }, committed.cts))
    }

    /// One statement of a transaction.
    pub fn statement(&self, session: &mut Session, op: &Op<'_>, scratch: &mut Scratch) -> Result<Answer, Stop> {
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
        work: impl FnOnce(&mut Session, &Arc<Table>, RowId, &mut Scratch) -> Result<(), Stop>,
    ) -> Result<Answer, Stop> {
        let (lookups, table) = (&self.lookups[table][index], &self.tables[table]);
        if session.is_at_newest() {
            let found = session.lock_by_key(
                table,
                &table.indexes[index],
                |_| Value::Int(key),
                Strength::Update,
                &mut scratch.row,
            )?;
            let Some(id) = found else {
                return Ok(Answer::default());
            };
            work(session, table, id, scratch)?;
            return Ok(Answer { rows: 1, sum: 0 });
        }
        let found = match lookups {
            Some(lookups) => session.look_up(&lookups.key, |_| Value::Int(key), &mut scratch.row),
            None => session.get(table, &table.indexes[index], |_| Value::Int(key), &mut scratch.row),
        };
        let Some(id) = found else {
            return Ok(Answer::default());
        };
        if session.lock(table, id, &mut scratch.row)? == Locked::Gone {
            return Ok(Answer::default());
        }
        work(session, table, id, scratch)?;
        Ok(Answer { rows: 1, sum: 0 })
    }

    pub fn read(&self, session: &mut Session, op: &Op<'_>, scratch: &mut Scratch) -> Answer {
        let mut answer = Answer::default();
        match *op {
            Op::Search { table, index, key, fetch } => {
                self.search(session, (table, index), key, fetch, scratch, &mut answer)
            }
            Op::SearchMany { table, index, keys } => {
                self.search_many(session, (table, index), keys, scratch, &mut answer)
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
        let lookups = &self.lookups[table][index];
        let (table, shape) = (&self.tables[table], &self.shapes[table]);
        let index = &table.indexes[index];
        let mut take = |row: &Row| {
            if fetch == Fetch::Row {
                (0..shape.columns.len()).for_each(|column| _ = std::hint::black_box(row.get(&table.layout, column)));
            }
            answer.add(Answer { rows: 1, sum: int(row.get(&table.layout, shape.counter)) });
        };
        if let Some(lookups) = lookups {
            let lookup = if fetch == Fetch::Row { &lookups.row } else { &lookups.counter };
            if session.look_up(lookup, |_| Value::Int(key), &mut scratch.row).is_some() {
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

    fn search_many(
        &self,
        session: &mut Session,
        (table, index): (usize, usize),
        keys: &[i64],
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) {
        match &self.lookups[table][index] {
            None => {
                keys.iter().for_each(|&key| self.search(session, (table, index), key, Fetch::Counter, scratch, answer))
            }
            Some(lookups) => {
                let (layout, counter) = (&self.tables[table].layout, self.shapes[table].counter);
                let key = |i: usize, _: usize| Value::Int(keys[i]);
                session.look_up_many(&lookups.counter, keys.len(), key, &mut scratch.row, |_, _, row| {
                    answer.add(Answer { rows: 1, sum: int(row.get(layout, counter)) });
                });
            }
        }
    }
}
