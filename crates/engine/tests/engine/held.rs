//! A snapshot that is held while rows come and go: their slots, long values, versions and index entries are kept as far as it needs them, and no
//! further. `scripts/verify` lets ten million changes pass.

use crate::world::*;
use freshet_engine::catalog::{IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Committed, Isolation, Session as Plain, Stop, TableCursor};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

fn hold(world: &World) -> Session {
    let mut session = world.session();
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    session
}

fn note(text: &str, n: i64) -> String {
    format!("{LONG}, {text} {n}")
}

fn rewrite(session: &mut Session, id: RowId, n: i64) {
    let table = table(session);
    let mut old = Row::default();
    session.lock(&table, id, &mut old).expect("nobody else writes");
    let mut new = old.clone();
    new.set(&table.layout, 1, &Value::Int(n));
    new.set(&table.layout, 2, &Value::Bytes(note("rewritten", n).as_bytes()));
    session.update(&table, id, &old, &mut new).expect("updates");
}

fn all(session: &mut Session) -> Vec<(i64, i64, String)> {
    let table = table(session);
    let (mut cursor, mut row, mut rows) = (TableCursor::default(), Row::default(), Vec::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        session.fetch_long(&table, &mut row, 2);
        let (Value::Int(id), Value::Int(n)) = (row.get(&table.layout, 0), row.get(&table.layout, 1)) else {
            panic!("numbers are set")
        };
        let Value::Bytes(note) = row.get(&table.layout, 2) else { panic!("a note is set") };
        rows.push((id, n, String::from_utf8_lossy(note).into_owned()));
    }
    rows.sort();
    rows
}

fn entries(session: &Session) -> u64 {
    table(session).indexes.iter().map(|index| index.entries()).sum()
}

/// Ten rows that come and are gone with the next ones, in one transaction each; some are written in between.
fn churn(session: &mut Session, round: i64) {
    begin(session, Isolation::ReadCommitted);
    let insert_one = |session: &mut Session, i| insert(session, 1000 + round * 10 + i, i, &note("passing", i));
    let rows: Vec<RowId> = (0..10).map(|i| insert_one(session, i).expect("inserts")).collect();
    session.commit().expect("commits");
    begin(session, Isolation::ReadCommitted);
    rows.iter().step_by(3).for_each(|&row| rewrite(session, row, round));
    session.commit().expect("commits");
    begin(session, Isolation::ReadCommitted);
    rows.iter().for_each(|&row| delete(session, row).expect("deletes"));
    session.commit().expect("commits");
}

#[test]
fn slots_and_values_that_no_snapshot_sees_are_given_out_again() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let world = World::new();
        let mut session = world.session();
        create(&mut session, kind);
        let insert_one = |session: &mut Session, id| commit_insert(session, id, id, &note("first", id));
        let rows: Vec<RowId> = (0..20).map(|id| insert_one(&mut session, id)).collect();
        let mut oldest = hold(&world);
        let seen = all(&mut oldest);
        let mut younger = None;
        let mut most = 0;
        for round in 0..150 {
            churn(&mut session, round);
            begin(&mut session, Isolation::ReadCommitted);
            rewrite(&mut session, rows[round as usize % 10], round);
            if round == 5 {
                rows[10..].iter().for_each(|&row| delete(&mut session, row).expect("deletes"));
            }
            session.commit().expect("commits");
            if round == 50 {
                // Of rows that come and go it needs these.
                commit_insert(&mut session, 100, 100, &note("second", 100));
                let mut snapshot = hold(&world);
                younger = Some((all(&mut snapshot), snapshot));
                begin(&mut session, Isolation::ReadCommitted);
                let at = session_row(&mut session, 100);
                delete(&mut session, at).expect("deletes");
                session.commit().expect("commits");
            }
            while world.engine.step() {}
            match round {
                75 => most = world.engine.stats().page_bytes,
                76.. => assert_eq!(world.engine.stats().page_bytes, most, "round {round}"),
                _ => {}
            }
            let slots = table(&session).slots();
            assert!(slots < 120, "{slots} slots for 20 rows and ten that pass");
            assert!(entries(&session) < 2 * 150, "{} entries", entries(&session));
            let bytes = world.engine.stats().version_bytes;
            assert!(bytes <= 16 * (64 << 10), "{bytes} bytes of versions in round {round}");
        }
        assert_eq!(all(&mut oldest), seen);
        assert_eq!(get(&mut oldest, 15), Some((15, note("first", 15))), "by its key too");
        assert_eq!(ids_by_n(&mut oldest, "t_n", 15), [15]);
        let (saw, mut younger) = younger.expect("held since round 50");
        assert_eq!(all(&mut younger), saw);
        assert_eq!(get(&mut younger, 100), Some((100, note("second", 100))));
        oldest.commit().expect("a read commits");
        churn(&mut session, 150);
        while world.engine.step() {}
        assert_eq!(all(&mut younger), saw);
        younger.commit().expect("a read commits");
        commit_insert(&mut session, 101, 7, "last");
        while world.engine.step() {}
        assert_eq!(world.engine.stats().version_bytes, 0);
        assert_eq!(entries(&session), 11 * 2);
    }
}

fn session_row(session: &mut Session, id: i64) -> RowId {
    let table = table(session);
    session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut Row::default()).expect("the row is there")
}

/// The values of a row that is deleted stay as long as its entries, whose keys are read from them.
#[test]
fn a_deleted_rows_long_key_is_taken_out_of_the_index() {
    let world = World::new();
    let mut session = world.session();
    begin(&mut session, Isolation::ReadCommitted);
    let def = TableDef { name: "t".into(), columns: columns(), ..TableDef::default() };
    let by_note = |kind| index(if kind == IndexKind::Hash { "t_hash" } else { "t_tree" }, 2, kind, false);
    let indexes = vec![index("t_pkey", 0, IndexKind::Hash, true), by_note(IndexKind::Hash), by_note(IndexKind::BTree)];
    session.create_table(def, indexes).expect("creates");
    session.commit().expect("commits");
    let kept = commit_insert(&mut session, 1, 1, &note("kept", 1));
    let mut oldest = hold(&world);
    for round in 0..60 {
        churn(&mut session, round);
        begin(&mut session, Isolation::ReadCommitted);
        // To and fro: an older version's key is the newest's again.
        rewrite(&mut session, kept, round % 2);
        session.commit().expect("commits");
        while world.engine.step() {}
        assert!(entries(&session) < 3 * 120, "{} entries in round {round}", entries(&session));
    }
    assert_eq!(get(&mut oldest, 1), Some((1, note("kept", 1))));
    oldest.commit().expect("a read commits");
    commit_insert(&mut session, 2, 2, "last");
    while world.engine.step() {}
    assert_eq!(entries(&session), 2 * 3);
}

fn columns() -> Vec<freshet_engine::catalog::ColumnDef> {
    vec![column("id", Type::Int8), column("n", Type::Int8), column("note", Type::Text)]
}

// ---- threads

fn block<T>(mut run: impl FnMut() -> Result<T, Stop>) -> T {
    loop {
        match run() {
            Ok(done) => return done,
            Err(Stop::Wait(mut token)) => _ = token.block(None),
            Err(Stop::Error(error)) => panic!("{error:?}"),
        }
    }
}

/// A transaction of one statement, which is run again after each wait.
fn transact<T>(session: &mut Plain, statement: impl FnMut(&mut Plain) -> Result<T, Stop>) -> T {
    commit_of(session, statement).0
}

fn commit_of<T>(session: &mut Plain, mut statement: impl FnMut(&mut Plain) -> Result<T, Stop>) -> (T, Committed) {
    session.begin(Isolation::ReadCommitted, false);
    let done = block(|| {
        session.begin_statement();
        statement(session).inspect_err(|_| session.rollback_statement())
    });
    (done, block(|| session.commit()))
}

/// The row's number, which its note has too.
fn number(table: &Table, session: &mut Plain, row: &mut Row) -> i64 {
    session.fetch_long(table, row, 2);
    let (Value::Int(n), Value::Bytes(text)) = (row.get(&table.layout, 1), row.get(&table.layout, 2)) else {
        panic!("columns are set")
    };
    assert_eq!(String::from_utf8_lossy(text), note("at", n), "a number and its note are of one moment");
    n
}

fn bump(session: &mut Plain, table: &Arc<Table>, id: RowId) -> Committed {
    let changed = commit_of(session, |session| {
        let mut old = Row::default();
        session.lock(table, id, &mut old)?;
        let mut new = old.clone();
        let Value::Int(n) = old.get(&table.layout, 1) else { panic!("a number") };
        new.set(&table.layout, 1, &Value::Int(n + 1));
        new.set(&table.layout, 2, &Value::Bytes(note("at", n + 1).as_bytes()));
        session.update(table, id, &old, &mut new)
    });
    changed.1
}

fn numbers(session: &mut Plain, table: &Table, rows: &[RowId]) -> Vec<i64> {
    let mut row = Row::default();
    let read = rows.iter().map(|&id| {
        assert!(session.read(table, id, &mut row));
        number(table, session, &mut row)
    });
    read.collect()
}

/// What the scan sees beside `rows` long-lived rows, each of one moment.
fn passing(session: &mut Plain, table: &Table, rows: usize) -> usize {
    let (mut cursor, mut row, mut count) = (TableCursor::default(), Row::default(), 0);
    while session.scan_next(table, &mut cursor, &mut row).is_some() {
        number(table, session, &mut row);
        count += 1;
    }
    count - rows
}

fn memory(engine: &Engine) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for used in engine.memory().into_iter().filter(|used| used.object == "t" || used.object == "database") {
        *kinds.entry(used.kind).or_default() += used.bytes;
    }
    kinds
}

const ROWS: usize = 1001;

fn opened(dir: &std::path::Path) -> (Engine, Plain, Arc<Table>, Vec<RowId>) {
    let options = Options {
        memory_limit_bytes: 512 << 20,
        segment_bytes: 16 << 20,
        log_size_bytes: 256 << 20,
        ..Options::small(dir)
    };
    let engine = Engine::open(options).expect("opens");
    let mut session = engine.connect().expect("a place");
    let def = TableDef { name: "t".into(), columns: columns(), ..TableDef::default() };
    let indexes = vec![index("t_pkey", 0, IndexKind::Hash, true), index("t_note", 2, IndexKind::BTree, false)];
    transact(&mut session, |session| session.create_table(def.clone(), indexes.clone()));
    let table = session.schema().table("t").expect("created").clone();
    let of = table.clone();
    let rows = transact(&mut session, |session| {
        let insert = |id| session.insert(&of, &mut row(&of, id, 0, &note("at", 0)));
        (0..ROWS as i64).map(insert).collect::<Result<Vec<RowId>, Stop>>()
    });
    (engine, session, table, rows)
}

/// Two writers change a hot row and a thousand others, and let rows come and go; readers look at moments in between.
fn changes_pass(engine: &Engine, table: &Arc<Table>, rows: &[RowId], first: usize, changes_each: usize) {
    let done = AtomicBool::new(false);
    let write = |writer: usize| {
        let mut session = engine.connect().expect("a place");
        let mut fleeting = VecDeque::new();
        for i in first..first + changes_each {
            match i % 4 {
                0 => {
                    let committed = bump(&mut session, table, rows[0]);
                    if i % 256 == 0 {
                        // Garbage is what is durable: not to measure how far the log is behind.
                        engine.wait_durable(committed.cts).wait().expect("the log goes on");
                    }
                }
                1 => _ = bump(&mut session, table, rows[1 + (i * 7 + writer * 500) % (ROWS - 1)]),
                2 => {
                    let id = (ROWS + i * 2 + writer) as i64;
                    let insert = |session: &mut Plain| session.insert(table, &mut row(table, id, id, &note("at", id)));
                    fleeting.push_back(transact(&mut session, insert));
                }
                _ if fleeting.len() > 50 => {
                    let id = fleeting.pop_front().expect("just seen");
                    transact(&mut session, |session| {
                        let mut old = Row::default();
                        session.lock(table, id, &mut old)?;
                        session.delete(table, id, &old)
                    });
                }
                _ => {}
            }
        }
    };
    let look = || {
        let mut session = engine.connect().expect("a place");
        while !done.load(Ordering::Relaxed) {
            session.begin(Isolation::RepeatableRead, true);
            session.begin_statement();
            let first = (numbers(&mut session, table, rows), passing(&mut session, table, ROWS));
            for _ in 0..3 {
                assert_eq!((numbers(&mut session, table, rows), passing(&mut session, table, ROWS)), first);
            }
            block(|| session.commit());
        }
    };
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        scope.spawn(look);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer does not panic"));
        done.store(true, Ordering::Relaxed);
    });
}

/// As many changes as `scripts/test` has time for, or `FRESHET_TEST_SCALE` times as many.
#[test]
fn memory_stays_bounded_by_what_a_held_snapshot_needs() {
    let changes = 100_000 * crate::model::seeds(1).count();
    let dir = tempfile::tempdir().expect("a directory");
    let (engine, mut session, table, rows) = opened(dir.path());
    let mut oldest = engine.connect().expect("a place");
    oldest.begin(Isolation::RepeatableRead, true);
    oldest.begin_statement();
    // As large as it gets with a version of each row and what is collected in one go.
    changes_pass(&engine, &table, &rows, 0, 10_000);
    let before = memory(&engine);
    changes_pass(&engine, &table, &rows, 10_000, changes / 2);
    let after = memory(&engine);
    println!("{changes} changes: {before:?} then {after:?}");
    for (kind, bytes) in &after {
        let more = bytes.saturating_sub(before.get(kind).copied().unwrap_or(0));
        // What a queue has not looked at yet, of two: of a change three nodes and as many items, 400 bytes together.
        let most = if kind == "versions" { 12 * MIB } else { 3 * MIB };
        assert!(more <= most, "{more} bytes more of {kind} after {changes} changes: {before:?} then {after:?}");
    }
    assert_eq!(numbers(&mut oldest, &table, &rows), vec![0; ROWS], "what it saw when it began");
    assert_eq!(passing(&mut oldest, &table, ROWS), 0);
    let mut row = Row::default();
    let found = oldest.get(&table, &table.indexes[0], |_| Value::Int(17), &mut row);
    assert_eq!(found, Some(rows[17]), "by its key too");
    block(|| oldest.commit());
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let total: i64 = numbers(&mut session, &table, &rows).into_iter().sum();
    assert_eq!(total as usize, 2 * (5_000 + changes / 4), "no change is lost");
    block(|| session.commit());
}
