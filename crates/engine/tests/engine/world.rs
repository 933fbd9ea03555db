//! One table, a few sessions, and a world of files that can lose its power.

use freshet_engine::catalog::{ColumnDef, Index, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{KeyBuf, KeyColumn, KeyPart, Row, Type, Value};
use freshet_engine::txn::{Committed, Direction, Isolation, Locked, Stop, TableCursor};
use std::sync::Arc;

/// A session that lets the background work happen before each of its own steps, as it would beside it.
pub struct Session {
    pub engine: Engine,
    session: freshet_engine::txn::Session,
}

impl Session {
    pub fn new(engine: &Engine) -> Session {
        Session::of(engine, engine.connect().expect("a place"))
    }

    pub fn of(engine: &Engine, session: freshet_engine::txn::Session) -> Session {
        Session { engine: engine.clone(), session }
    }

    pub fn begin(&mut self, isolation: Isolation, read_only: bool) {
        while self.engine.step() {}
        self.session.begin(isolation, read_only);
    }

    pub fn commit(&mut self) -> Result<Committed, Stop> {
        loop {
            while self.engine.step() {}
            match self.session.commit() {
                Err(Stop::Wait(_)) => {}
                done => return done,
            }
        }
    }
}

impl std::ops::Deref for Session {
    type Target = freshet_engine::txn::Session;
    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.session
    }
}

pub struct World {
    pub io: MemIo,
    pub engine: Engine,
}

pub fn open(io: &MemIo) -> Engine {
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), Options::small("/db")).expect("opens")
}

impl World {
    pub fn new() -> World {
        let io = MemIo::new();
        let engine = open(&io);
        World { io, engine }
    }

    pub fn session(&self) -> Session {
        Session::new(&self.engine)
    }

    /// Flushes everything, then closes and opens again without what was not flushed.
    pub fn reopen(&mut self) {
        while self.engine.step() {}
        self.io = self.io.crash(7);
        self.engine = open(&self.io);
    }
}

pub fn column(name: &str, ty: Type) -> ColumnDef {
    ColumnDef { name: name.into(), ty, not_null: name == "id", ..ColumnDef::default() }
}

pub fn index(name: &str, column: u16, kind: IndexKind, unique: bool) -> IndexDef {
    let columns = vec![KeyColumn { column, descending: false }];
    IndexDef { name: name.into(), kind, unique, primary: column == 0, columns, ..IndexDef::default() }
}

pub fn create_named(session: &mut Session, name: &str, kind: IndexKind) -> Result<(), Stop> {
    let columns = vec![column("id", Type::Int8), column("n", Type::Int4), column("note", Type::Text)];
    let def = TableDef { name: name.into(), columns, ..Default::default() };
    let (by_id, by_n) = (format!("{name}_pkey"), format!("{name}_n"));
    session.create_table(def, vec![index(&by_id, 0, kind, true), index(&by_n, 1, IndexKind::BTree, false)])
}

pub fn create_table(session: &mut Session, kind: IndexKind) -> Result<(), Stop> {
    create_named(session, "t", kind)
}

pub fn create(session: &mut Session, kind: IndexKind) {
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    create_table(session, kind).expect("creates");
    session.commit().expect("commits");
}

pub fn table(session: &Session) -> Arc<Table> {
    session.schema().table("t").expect("created").clone()
}

pub fn row(table: &Table, id: i64, n: i64, note: &str) -> Row {
    let mut row = Row::new(&table.layout);
    row.set(&table.layout, 0, &Value::Int(id));
    row.set(&table.layout, 1, &Value::Int(n));
    row.set(&table.layout, 2, &Value::Bytes(note.as_bytes()));
    row
}

pub fn begin(session: &mut Session, isolation: Isolation) {
    session.begin(isolation, false);
    session.begin_statement();
}

pub fn insert(session: &mut Session, id: i64, n: i64, note: &str) -> Result<RowId, Stop> {
    while session.engine.step() {}
    let table = table(session);
    session.insert(&table, &mut row(&table, id, n, note))
}

pub fn set_n(session: &mut Session, id: RowId, n: i64) -> Result<Locked, Stop> {
    set_column(session, id, 1, &Value::Int(n))
}

pub fn set_column(session: &mut Session, id: RowId, column: usize, value: &Value<'_>) -> Result<Locked, Stop> {
    let table = table(session);
    let mut old = Row::default();
    let locked = session.lock(&table, id, &mut old)?;
    let mut new = old.clone();
    new.set(&table.layout, column, value);
    session.update(&table, id, &old, &mut new)?;
    Ok(locked)
}

pub fn delete(session: &mut Session, id: RowId) -> Result<(), Stop> {
    let table = table(session);
    let mut old = Row::default();
    session.lock(&table, id, &mut old)?;
    session.delete(&table, id, &old)
}

pub fn get(session: &mut Session, id: i64) -> Option<(i64, String)> {
    let table = table(session);
    let mut row = Row::default();
    session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut row)?;
    session.fetch_long(&table, &mut row, 2);
    let (Value::Int(n), Value::Bytes(note)) = (row.get(&table.layout, 1), row.get(&table.layout, 2)) else {
        panic!("columns are set")
    };
    Some((n, String::from_utf8_lossy(note).into_owned()))
}

/// Ids of the visible rows that an index on `n` leads to.
pub fn ids_by_n(session: &mut Session, index: &str, n: i64) -> Vec<i64> {
    let table = table(session);
    let index = table.indexes.iter().find(|i| i.def.name == index).expect("created");
    let (mut candidates, mut row) = (Vec::new(), Row::default());
    session.lookup(&table, index, |_| Value::Int(n), &mut candidates);
    let visible = candidates.into_iter().filter_map(|id| {
        let hit = session.read(&table, id, &mut row) && row.get(&table.layout, 1) == Value::Int(n);
        let Value::Int(id) = row.get(&table.layout, 0) else { panic!("an id is set") };
        hit.then_some(id)
    });
    visible.collect()
}

/// Every visible row in the order of an index.
pub fn ordered(
    session: &mut freshet_engine::txn::Session,
    table: &Table,
    index: &Index,
    direction: Direction,
) -> Vec<Row> {
    let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
    index.spec.encode(&mut lower, |_| KeyPart::Lowest);
    index.spec.encode(&mut upper, |_| KeyPart::Highest);
    let mut cursor = session.range(index, &lower, &upper, direction);
    let (mut rows, mut row) = (Vec::new(), Row::default());
    while session.range_next(table, index, &mut cursor, &mut row).is_some() {
        session.fetch_key_columns(table, index, &mut row);
        rows.push(row.clone());
    }
    rows
}

pub fn read(session: &mut Session, id: i64) -> Option<(i64, String)> {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let found = get(session, id);
    session.commit().expect("a read commits");
    found
}

pub fn rows(session: &mut Session) -> usize {
    rows_of(session, "t")
}

pub fn rows_of(session: &mut Session, name: &str) -> usize {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = session.schema().table(name).expect("created").clone();
    let (mut cursor, mut row, mut count) = (TableCursor::default(), Row::default(), 0);
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        count += 1;
    }
    session.commit().expect("a read commits");
    count
}

pub fn commit_insert(session: &mut Session, id: i64, n: i64, note: &str) -> RowId {
    begin(session, Isolation::ReadCommitted);
    let at = insert(session, id, n, note).expect("inserts");
    session.commit().expect("commits");
    at
}

pub const LONG: &str = "a note that is longer than twelve bytes and lies in a container of its own";

/// Inserts a row of numbers, and a note behind them.
pub fn insert_into(
    session: &mut freshet_engine::txn::Session,
    name: &str,
    numbers: &[i64],
    note: Option<&str>,
) -> Result<RowId, Stop> {
    let table = session.schema().table(name).expect("created").clone();
    let mut row = Row::new(&table.layout);
    for (column, number) in numbers.iter().enumerate() {
        row.set(&table.layout, column, &Value::Int(*number));
    }
    if let Some(note) = note {
        row.set(&table.layout, numbers.len(), &Value::Bytes(note.as_bytes()));
    }
    session.insert(&table, &mut row)
}

/// The first two columns, which are numbers.
pub fn row_of_ids(table: &Table, row: &Row) -> [i64; 2] {
    [0, 1].map(|column| match row.get(&table.layout, column) {
        Value::Int(number) => number,
        other => panic!("a number, not {other:?}"),
    })
}

/// The world after the unkindest power cut: nothing unflushed is kept.
pub fn lose_unflushed(io: &MemIo) -> MemIo {
    let after = MemIo::new();
    for path in io.durable_names() {
        after.create_dir_all(path.parent().expect("files lie in directories")).expect("a directory");
        after.replace(&path, &io.durable(&path).expect("a file"));
    }
    after
}
