//! How many rows are looked at where keys begin alike? Counted, not timed.
//!
//! A primary key of URLs was once told apart by 32 bytes; what tied was told apart by looking at the rows: all of them, for a lookup, and for each insert.

use super::rows::LOOKS_AT_ROWS;
use super::{Direction, Error, Isolation, Lookup, Session, Stop};
use crate::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use crate::engine::{Engine, Options};
use crate::io::mem::{MemClock, MemIo};
use crate::schema::{KeyBuf, KeyColumn, KeyPart, Row, Type, Value};
use std::sync::Arc;

const KEYS: usize = 20_000;
/// Sixty bytes.
const PREFIX: &str = "https://www.example.com/articles/of-the-year-2026/by-number/";

fn url(i: usize) -> String {
    format!("{PREFIX}{i:06}")
}

fn open(io: &MemIo) -> Engine {
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), Options::small("/db")).expect("opens")
}

fn begin(engine: &Engine, session: &mut Session, isolation: Isolation) {
    while engine.step() {}
    session.begin(isolation, false);
    session.begin_statement();
}

fn commit(engine: &Engine, session: &mut Session) {
    loop {
        while engine.step() {}
        match session.commit() {
            Err(Stop::Wait(_)) => {}
            done => {
                done.expect("commits");
                return;
            }
        }
    }
}

/// What `act` gives, and how many rows it looked at.
fn looks<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = LOOKS_AT_ROWS.get();
    let done = act();
    (done, LOOKS_AT_ROWS.get() - before)
}

fn row_of(table: &Table, url: &str, n: usize) -> Row {
    let mut row = Row::new(&table.layout);
    row.set(&table.layout, 0, &Value::Bytes(url.as_bytes()));
    row.set(&table.layout, 1, &Value::Int(n as i64));
    row
}

fn url_of(session: &mut Session, table: &Table, row: &mut Row) -> String {
    session.fetch_long(table, row, 0);
    match row.get(&table.layout, 0) {
        Value::Bytes(url) => String::from_utf8_lossy(url).into_owned(),
        other => panic!("a URL, not {other:?}"),
    }
}

/// Up to `limit` URLs from one on, in the direction.
fn some_from(session: &mut Session, table: &Table, from: &str, direction: Direction, limit: usize) -> Vec<String> {
    let index = &table.indexes[0];
    let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
    let from = KeyPart::Value(Value::Bytes(from.as_bytes()));
    let (low, high) = match direction {
        Direction::Forward => (from, KeyPart::Highest),
        Direction::Backward => (KeyPart::Lowest, from),
    };
    index.spec.encode(&mut lower, |_| low);
    index.spec.encode(&mut upper, |_| high);
    index.spec.pad_high(&mut upper);
    let mut cursor = session.range(index, &lower, &upper, direction);
    let (mut row, mut urls) = (Row::default(), Vec::new());
    while urls.len() < limit && session.range_next(table, index, &mut cursor, &mut row).is_some() {
        urls.push(url_of(session, table, &mut row));
    }
    urls
}

fn table_of(session: &Session) -> Arc<Table> {
    session.schema().table("t").expect("created").clone()
}

/// Table t of URLs, which are its key, and numbers.
fn create_table(engine: &Engine, session: &mut Session) {
    begin(engine, session, Isolation::ReadCommitted);
    let url_column = ColumnDef { name: "url".into(), ty: Type::Text, not_null: true, ..ColumnDef::default() };
    let n_column = ColumnDef { name: "n".into(), ty: Type::Int8, ..ColumnDef::default() };
    let columns = vec![KeyColumn { column: 0, descending: false }];
    let key = IndexDef {
        name: "t_pkey".into(),
        kind: IndexKind::BTree,
        unique: true,
        primary: true,
        columns,
        ..IndexDef::default()
    };
    let def = TableDef { name: "t".into(), columns: vec![url_column, n_column], ..TableDef::default() };
    session.create_table(def, vec![key]).expect("creates");
    commit(engine, session);
}

#[test]
fn keys_that_begin_alike_meet_only_their_own_rows() {
    let io = MemIo::new();
    let mut engine = open(&io);
    let mut session = engine.connect().expect("a place");
    create_table(&engine, &mut session);
    let table = table_of(&session);

    // In no order, at the isolation that looks for the key once more.
    let mut ids = vec![None; KEYS];
    let ((), loading) = looks(|| {
        for part in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
            begin(&engine, &mut session, Isolation::RepeatableRead);
            for i in part.iter().map(|i| i * 7_919 % KEYS) {
                ids[i] = Some(session.insert(&table, &mut row_of(&table, &url(i), i)).expect("a new key"));
            }
            commit(&engine, &mut session);
        }
    });
    assert!(loading <= 2 * KEYS, "{loading} rows were looked at to load {KEYS}");

    // Before a restart and after it, with the index built in one go.
    for _ in 0..2 {
        let table = table_of(&session);
        let index = &table.indexes[0];
        begin(&engine, &mut session, Isolation::ReadCommitted);
        let mut row = Row::default();
        for i in (0..KEYS).step_by(997) {
            let wanted = url(i);
            let value = |_| Value::Bytes(wanted.as_bytes());
            let (found, met) = looks(|| session.get(&table, index, value, &mut row));
            assert_eq!((found, met), (ids[i], 1), "a point query");
            let (found, met) = looks(|| session.lock_key(&table, index, value, &mut row).expect("nobody has it"));
            assert_eq!((found, met <= 3), (ids[i], true), "a foreign key's parent: {met}");
            let (twice, met) = looks(|| session.insert(&table, &mut row_of(&table, &wanted, i)));
            assert!(matches!(twice, Err(Stop::Error(Error::UniqueViolation { .. }))), "{twice:?}");
            assert_eq!(met, 1, "a violation");
            session.rollback_statement();
            session.begin_statement();
            let (none, met) = looks(|| session.get(&table, index, |_| Value::Bytes(PREFIX.as_bytes()), &mut row));
            assert_eq!((none, met), (None, 0), "a key that all others begin with");
            for direction in [Direction::Forward, Direction::Backward] {
                let (urls, met) = looks(|| some_from(&mut session, &table, &wanted, direction, 5));
                let expected: Vec<String> = match direction {
                    Direction::Forward => (i..KEYS).take(5).map(url).collect(),
                    Direction::Backward => (0..=i).rev().take(5).map(url).collect(),
                };
                assert_eq!(urls, expected);
                assert!(met <= 5, "{met} rows for a range of five");
            }
        }
        let lookup = Lookup::new(&table, index, [0, 1]);
        let wanted: Vec<String> = (0..100).map(|i| url(i * 197)).collect();
        let mut found = Vec::new();
        let ((), met) = looks(|| {
            let value = |i: usize, _| Value::Bytes(wanted[i].as_bytes());
            session.look_up_many(&lookup, wanted.len(), value, &mut row, |_, id, _| found.push(Some(id)));
        });
        assert_eq!(found, (0..100).map(|i| ids[i * 197]).collect::<Vec<_>>());
        assert_eq!(met, 100, "many points");
        commit(&engine, &mut session);
        drop(session);
        drop(table);
        while engine.step() {}
        drop(engine);
        engine = open(&io);
        session = engine.connect().expect("a place");
    }

    let table = table_of(&session);
    begin(&engine, &mut session, Isolation::ReadCommitted);
    let ((), deleting) = looks(|| {
        let mut row = Row::default();
        for i in (0..KEYS).filter(|i| i % 4 != 0) {
            let wanted = url(i);
            let value = |_| Value::Bytes(wanted.as_bytes());
            let id = session.get(&table, &table.indexes[0], value, &mut row).expect("it is there");
            session.lock(&table, id, &mut row).expect("nobody has it");
            session.delete(&table, id, &row).expect("deletes");
        }
    });
    assert!(deleting <= KEYS, "{deleting} rows were looked at to delete {}", KEYS / 4 * 3);
    commit(&engine, &mut session);
    let (_, collecting) = looks(|| while engine.step() {});
    assert!(collecting <= 2 * KEYS, "{collecting} rows were looked at to collect {}", KEYS / 4 * 3);
    assert_eq!(table.indexes[0].entries() as usize, KEYS / 4);
    begin(&engine, &mut session, Isolation::ReadCommitted);
    let (urls, met) = looks(|| some_from(&mut session, &table, &url(9), Direction::Forward, 3));
    assert_eq!((urls, met), (vec![url(12), url(16), url(20)], 3));
    commit(&engine, &mut session);
}

/// As long as no row has moved, an index knows so, whatever else happens; from then on a row comes up under the key that a snapshot sees, and no other.
#[test]
fn a_row_comes_up_under_its_own_key() {
    let io = MemIo::new();
    let engine = open(&io);
    let (mut session, mut older) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
    create_table(&engine, &mut session);
    let table = table_of(&session);
    begin(&engine, &mut session, Isolation::ReadCommitted);
    for i in 0..20 {
        session.insert(&table, &mut row_of(&table, &url(i), i)).expect("a new key");
    }
    commit(&engine, &mut session);
    let change = |session: &mut Session, from: usize, to: Option<&str>, n: i64| {
        let (mut old, wanted) = (Row::default(), url(from));
        let value = |_| Value::Bytes(wanted.as_bytes());
        let id = session.get(&table, &table.indexes[0], value, &mut old).expect("it is there");
        session.lock(&table, id, &mut old).expect("nobody has it");
        let mut new = old.clone();
        new.set(&table.layout, 1, &Value::Int(n));
        if let Some(to) = to {
            new.set(&table.layout, 0, &Value::Bytes(to.as_bytes()));
        }
        session.update(&table, id, &old, &mut new).expect("nobody else has the key");
        id
    };
    let all = |session: &mut Session| some_from(session, &table, "", Direction::Forward, 100);
    let expected = |kept: &[usize], other: &[&str]| {
        let mut urls: Vec<String> =
            kept.iter().map(|&i| url(i)).chain(other.iter().map(|&text| text.to_owned())).collect();
        urls.sort();
        urls
    };
    let every: Vec<usize> = (0..20).collect();

    begin(&engine, &mut session, Isolation::ReadCommitted);
    change(&mut session, 3, None, 1_000);
    let deleted = change(&mut session, 4, None, 1_001);
    let mut row = Row::default();
    assert!(session.read(&table, deleted, &mut row));
    session.delete(&table, deleted, &row).expect("deletes");
    commit(&engine, &mut session);
    begin(&engine, &mut session, Isolation::ReadCommitted);
    session.insert(&table, &mut row_of(&table, "aborted", 0)).expect("a new key");
    session.rollback();
    while engine.step() {}
    assert!(!table.indexes[0].has_moved(), "inserts, deletes and changes of what is no key leave rows where they are");
    let kept: Vec<usize> = every.iter().copied().filter(|&i| i != 4).collect();

    begin(&engine, &mut older, Isolation::RepeatableRead);
    assert_eq!(all(&mut older), expected(&kept, &[]));
    begin(&engine, &mut session, Isolation::ReadCommitted);
    change(&mut session, 5, Some("moved"), 2_000);
    assert!(table.indexes[0].has_moved());
    let left: Vec<usize> = kept.iter().copied().filter(|&i| i != 5).collect();
    assert_eq!(all(&mut session), expected(&left, &["moved"]), "its own change");
    assert_eq!(all(&mut older), expected(&kept, &[]), "not committed yet");
    commit(&engine, &mut session);
    assert_eq!(all(&mut older), expected(&kept, &[]), "its snapshot is older");
    begin(&engine, &mut session, Isolation::ReadCommitted);
    assert_eq!(all(&mut session), expected(&left, &["moved"]));
    commit(&engine, &mut session);
    commit(&engine, &mut older);
    while engine.step() {}
    begin(&engine, &mut older, Isolation::ReadCommitted);
    assert_eq!(all(&mut older), expected(&left, &["moved"]));
    commit(&engine, &mut older);
}
