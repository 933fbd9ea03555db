//! Does the database say what it should? A session's rows against a view's, by scan, by key and in order.

use crate::model::{ADDED_MAX, Def, Extra, FIRST_COLUMNS, KEYS, Note, Rec, Rows, TABLES};
use freshet_engine::catalog::{Index, Table};
use freshet_engine::ids::{Cts, RowId};
use freshet_engine::schema::{KeyBuf, KeyPart, Row, Type, Value};
use freshet_engine::txn::{Direction, Session, TableCursor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Something that may not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(pub String);

pub type Verdict<T = ()> = Result<T, Wrong>;

/// Returns `Wrong` unless the condition holds.
macro_rules! demand {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::look::Wrong(format!($($message)+)));
        }
    };
}
pub(crate) use demand;

/// A row as the engine gives it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub cts: Cts,
    pub id: i64,
    pub n: i64,
    pub note: Option<Vec<u8>>,
    /// Numbers, or the lengths of texts.
    pub others: Vec<Option<i64>>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let note =
            self.note.as_ref().map(|n| format!("{}.. of {}", String::from_utf8_lossy(&n[..n.len().min(6)]), n.len()));
        let (note, others) = (note.as_deref().unwrap_or("null"), &self.others);
        write!(f, "({:?}: {}, {}, {note}, {others:?})", self.cts, self.id, self.n)
    }
}

impl Seen {
    /// Whether the columns are the same.
    pub fn is(&self, rec: &Rec) -> bool {
        let others: Vec<Option<i64>> = rec.others.iter().flatten().copied().collect();
        (self.id, self.n) == (rec.id, rec.n)
            && self.note.as_deref() == rec.note.as_ref().map(Note::bytes)
            && self.others == others
    }
}

/// A table's rows by their place, its third index, and whether `n` is NOT NULL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenTable {
    pub rows: BTreeMap<RowId, Seen>,
    pub extra: Option<Extra>,
    pub n_not_null: bool,
    pub added: usize,
}

impl SeenTable {
    pub fn is(&self, def: &Def) -> bool {
        (self.extra, self.n_not_null, self.added) == (def.extra, def.n_not_null, def.added_count())
    }
}

pub type SeenTables = [Option<SeenTable>; TABLES.len()];

pub fn table_of(session: &Session, at: usize) -> Option<Arc<Table>> {
    session.schema().table(TABLES[at]).cloned()
}

pub fn note_value(note: &Option<Note>) -> Value<'_> {
    note.as_ref().map_or(Value::Null, |n| Value::Bytes(n.bytes()))
}

pub fn row_of(table: &Table, rec: &Rec) -> Row {
    let mut row = Row::new(&table.layout);
    row.set(&table.layout, 0, &Value::Int(rec.id));
    row.set(&table.layout, 1, &Value::Int(rec.n));
    row.set(&table.layout, 2, &note_value(&rec.note));
    for at in FIRST_COLUMNS..table.def.columns.len() {
        set_other(table, &mut row, at - FIRST_COLUMNS, rec.others[at - FIRST_COLUMNS].flatten());
    }
    row
}

/// Sets an added column.
pub fn set_other(table: &Table, row: &mut Row, at: usize, value: Option<i64>) {
    let column = FIRST_COLUMNS + at;
    let is_text = table.layout.column_type(column) == Type::Text;
    with_other(is_text, value, |value| row.set(&table.layout, column, &value));
}

/// Shows the value of an added column.
pub fn with_other<T>(is_text: bool, value: Option<i64>, show: impl FnOnce(Value<'_>) -> T) -> T {
    match value {
        None => show(Value::Null),
        Some(value) if is_text => show(Value::Bytes("x".repeat(value as usize).as_bytes())),
        Some(value) => show(Value::Int(value)),
    }
}

fn other_of(session: &mut Session, table: &Table, row: &mut Row, column: usize) -> Verdict<Option<i64>> {
    session.fetch_long(table, row, column);
    match row.get(&table.layout, column) {
        Value::Null => Ok(None),
        Value::Int(value) => Ok(Some(value)),
        Value::Bytes(bytes) if bytes.iter().all(|b| *b == b'x') => Ok(Some(bytes.len() as i64)),
        other => Err(Wrong(format!("column {column} has {other:?}"))),
    }
}

pub fn seen_of(session: &mut Session, table: &Table, row: &mut Row) -> Verdict<Seen> {
    session.fetch_long(table, row, 2);
    let (Value::Int(id), Value::Int(n)) = (row.get(&table.layout, 0), row.get(&table.layout, 1)) else {
        return Err(Wrong("a row without its numbers".into()));
    };
    let note = match row.get(&table.layout, 2) {
        Value::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    };
    let others = (FIRST_COLUMNS..table.def.columns.len()).map(|at| other_of(session, table, row, at));
    let others = others.collect::<Verdict<Vec<_>>>()?;
    Ok(Seen { cts: row.cts(), id, n, note, others })
}

/// A full scan.
pub fn scan(session: &mut Session, table: &Table) -> Verdict<BTreeMap<RowId, Seen>> {
    let (mut cursor, mut row, mut seen) = (TableCursor::default(), Row::default(), BTreeMap::new());
    while let Some(id) = session.scan_next(table, &mut cursor, &mut row) {
        let is_new = seen.insert(id, seen_of(session, table, &mut row)?).is_none();
        demand!(is_new, "a scan shows {id:?} twice");
    }
    Ok(seen)
}

/// Everything there is.
pub fn scan_all(session: &mut Session) -> Verdict<SeenTables> {
    let mut all = SeenTables::default();
    for (at, seen) in all.iter_mut().enumerate() {
        if let Some(table) = table_of(session, at) {
            *seen = Some(SeenTable {
                rows: scan(session, &table)?,
                extra: extra_of(&table),
                n_not_null: table.def.columns[1].not_null,
                added: table.def.columns.len() - FIRST_COLUMNS,
            });
        }
    }
    Ok(all)
}

pub fn extra_of(table: &Table) -> Option<Extra> {
    let extra = |i: &Index| Extra { kind: i.def.kind, column: i.def.columns[0].column, unique: i.def.unique };
    table.indexes.get(2).map(|i| extra(i))
}

pub fn is_rows(seen: &BTreeMap<RowId, Seen>, rows: &Rows) -> bool {
    seen.len() == rows.len() && rows.values().all(|rec| seen.get(&rec.at).is_some_and(|s| s.is(rec)))
}

/// Whether these are the rows, each as its commit left it.
pub fn is_committed(seen: &BTreeMap<RowId, Seen>, rows: &Rows) -> bool {
    is_rows(seen, rows) && rows.values().all(|rec| seen.get(&rec.at).is_some_and(|s| s.cts == rec.cts))
}

/// The statement sees exactly these rows: by scan, by every key of every index, and in the order of every ordered one.
pub fn check_rows(session: &mut Session, at: usize, rows: &Rows) -> Verdict {
    let name = TABLES[at];
    let Some(table) = table_of(session, at) else { return Err(Wrong(format!("there is no table {name}"))) };
    let seen = scan(session, &table)?;
    demand!(is_rows(&seen, rows), "a scan of {name} gives {seen:?} where {:?} are due", rows.values());
    let mut row = Row::default();
    let beyond = rows.values().map(|r| r.id).filter(|id| *id >= KEYS);
    for id in (0..KEYS).chain(beyond) {
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut row);
        // An old snapshot may show two: a row deleted since, and the transaction's own with the freed key.
        let places: Vec<RowId> = rows.values().filter(|r| r.id == id).map(|r| r.at).collect();
        let is_right = found.map_or(places.is_empty(), |id| places.contains(&id));
        demand!(is_right, "{name} by id {id} is {found:?} where {places:?} are due");
    }
    for index in &table.indexes {
        check_index(session, &table, index, rows)?;
    }
    Ok(())
}

fn check_index(session: &mut Session, table: &Table, index: &Index, rows: &Rows) -> Verdict {
    let column = usize::from(index.def.columns[0].column);
    let mut candidates = Vec::new();
    for rec in rows.values() {
        candidates.clear();
        match column {
            0 => session.lookup(table, index, |_| Value::Int(rec.id), &mut candidates),
            1 => session.lookup(table, index, |_| Value::Int(rec.n), &mut candidates),
            2 => session.lookup(table, index, |_| note_value(&rec.note), &mut candidates),
            _ => {
                let is_text = table.layout.column_type(column) == Type::Text;
                let value = rec.others[(column - FIRST_COLUMNS).min(ADDED_MAX - 1)].flatten();
                with_other(is_text, value, |value| session.lookup(table, index, |_| value, &mut candidates));
            }
        }
        demand!(candidates.contains(&rec.at), "{} does not lead to {rec:?}", index.def.name);
    }
    if index.is_ordered() { check_order(session, table, index, rows) } else { Ok(()) }
}

fn check_order(session: &mut Session, table: &Table, index: &Index, rows: &Rows) -> Verdict {
    let name = &index.def.name;
    let places: BTreeSet<RowId> = rows.values().map(|r| r.at).collect();
    let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
    index.spec.encode(&mut lower, |_| KeyPart::Lowest);
    index.spec.encode(&mut upper, |_| KeyPart::Highest);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = session.range(index, &lower, &upper, direction);
        let (mut row, mut last, mut seen) = (Row::default(), None::<Row>, BTreeSet::new());
        while let Some(id) = session.range_next(table, index, &mut cursor, &mut row) {
            demand!(places.contains(&id), "{name} shows {id:?}");
            demand!(seen.insert(id), "{name} shows {id:?} twice");
            session.fetch_key_columns(table, index, &mut row);
            if let Some(last) = &last {
                let order = index.spec.compare_rows(&table.layout, last, &row);
                let wrong = if direction == Direction::Forward { order.is_gt() } else { order.is_lt() };
                demand!(!wrong, "{name} is out of order at {id:?}");
            }
            last = Some(row.clone());
        }
        demand!(seen.len() == places.len(), "{name} shows {} rows of {}", seen.len(), places.len());
    }
    Ok(())
}
