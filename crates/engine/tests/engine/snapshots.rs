//! A snapshot that is held while millions of updates pass: what it sees stays, what it does not need goes.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{Error, Isolation, Stop};
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

fn entries(session: &Session) -> u64 {
    table(session).indexes.iter().map(|index| index.entries()).sum()
}

fn set_note(session: &mut Session, id: RowId, note: &str) {
    set_column(session, id, 2, &Value::Bytes(note.as_bytes())).expect("nobody else writes");
}

fn set_id(session: &mut Session, row: RowId, id: i64) {
    set_column(session, row, 0, &Value::Int(id)).expect("nobody else writes");
}

fn held(world: &World) -> Session {
    let mut session = world.session();
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    session
}

/// One column or the other, an index key among them; a transaction may write a row twice, another is undone.
fn update(session: &mut Session, id: RowId, i: i64) {
    begin(session, Isolation::ReadCommitted);
    match i % 4 {
        0 => set_note(session, id, &format!("n{i}")),
        1 => _ = set_n(session, id, i).expect("updates"),
        2 => {
            set_n(session, id, i).expect("updates");
            set_note(session, id, &format!("m{i}"));
        }
        _ => {
            set_n(session, id, -i).expect("updates");
            return session.rollback();
        }
    }
    session.commit().expect("commits");
}

#[test]
fn a_hot_row_keeps_what_the_snapshots_need_and_no_more() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let id = commit_insert(&mut session, 1, 5, "first");
    let cold = commit_insert(&mut session, 2, 6, "cold");
    let mut snapshots = Vec::new();
    for i in 0..12_000 {
        if i % 3_000 == 0 {
            let mut snapshot = held(&world);
            let seen = get(&mut snapshot, 1);
            snapshots.push((snapshot, seen));
        }
        update(&mut session, id, i);
    }
    begin(&mut session, Isolation::ReadCommitted);
    set_note(&mut session, cold, "changed");
    session.commit().expect("commits");
    while world.engine.step() {}
    let bytes = world.engine.stats().version_bytes;
    assert!(bytes <= 4 * (64 << 10), "{bytes} bytes of versions for a few versions of a row");
    assert!(entries(&session) < 40, "{} entries of two rows", entries(&session));
    assert!(snapshots.windows(2).all(|pair| pair[0].1 != pair[1].1), "they see different versions");
    // In no order of age, each the last that needs its version.
    for at in [2, 0, 2, 0] {
        let at = at.min(snapshots.len() - 1);
        let (mut snapshot, seen) = snapshots.remove(at);
        assert_eq!(get(&mut snapshot, 1), seen);
        assert_eq!(get(&mut snapshot, 2), Some((6, "cold".into())));
        let Some((n, _)) = seen else { panic!("the row is there") };
        assert_eq!(ids_by_n(&mut snapshot, "t_n", n), [1], "its key is still in the index");
        snapshot.commit().expect("a read commits");
        update(&mut session, id, 13_000 + at as i64);
        while world.engine.step() {}
        for (other, seen) in &mut snapshots {
            assert_eq!(get(other, 1), *seen);
        }
    }
    commit_insert(&mut session, 3, 7, "last");
    while world.engine.step() {}
    assert_eq!(world.engine.stats().version_bytes, 0);
    assert_eq!(entries(&session), 3 * 2);
}

#[test]
fn large_transactions_leave_one_version_for_a_snapshot() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::BTree);
    begin(&mut session, Isolation::ReadCommitted);
    let rows: Vec<RowId> = (0..400).map(|id| insert(&mut session, id, id, "row").expect("inserts")).collect();
    session.commit().expect("commits");
    let mut snapshot = held(&world);
    let mut most = 0;
    for round in 1..30 {
        begin(&mut session, Isolation::ReadCommitted);
        rows.iter().for_each(|&row| set_note(&mut session, row, &format!("{round}")));
        session.commit().expect("commits");
        while world.engine.step() {}
        most = most.max(world.engine.stats().version_bytes);
    }
    assert!(most < 400 * 64 * 6, "{most} bytes for 400 versions that are needed");
    assert_eq!(get(&mut snapshot, 17), Some((17, "row".into())));
    snapshot.commit().expect("a read commits");
    commit_insert(&mut session, 1000, 7, "last");
    while world.engine.step() {}
    assert_eq!(world.engine.stats().version_bytes, 0);
}

fn block<T>(mut run: impl FnMut() -> Result<T, Stop>) -> T {
    loop {
        match run() {
            Ok(done) => return done,
            Err(Stop::Wait(mut token)) => _ = token.block(None),
            Err(Stop::Error(error)) => panic!("{error:?}"),
        }
    }
}

/// Adds one to the row's number, and mirrors it in its note.
fn bump(session: &mut freshet_engine::txn::Session, id: RowId) {
    session.begin(Isolation::ReadCommitted, false);
    let table = session.schema().table("t").expect("created").clone();
    block(|| {
        session.begin_statement();
        let mut old = Row::default();
        let done = session.lock(&table, id, &mut old).and_then(|_| {
            let mut new = old.clone();
            let Value::Int(n) = old.get(&table.layout, 1) else { panic!("a number") };
            new.set(&table.layout, 1, &Value::Int(n + 1));
            if n % 3 == 0 {
                new.set(&table.layout, 2, &Value::Bytes(format!("at {n}").as_bytes()));
            }
            session.update(&table, id, &old, &mut new)
        });
        done.inspect_err(|_| session.rollback_statement())
    });
    block(|| session.commit());
}

fn numbers(session: &mut freshet_engine::txn::Session, rows: &[RowId]) -> Vec<(Value<'static>, Vec<u8>)> {
    let table = session.schema().table("t").expect("created").clone();
    let mut row = Row::default();
    let read = rows.iter().map(|&id| {
        assert!(session.read(&table, id, &mut row));
        let (Value::Int(n), Value::Bytes(note)) = (row.get(&table.layout, 1), row.get(&table.layout, 2)) else {
            panic!("columns are set")
        };
        (Value::Int(n), note.to_vec())
    });
    read.collect()
}

/// Threads: two writers on a hot row and on a thousand others, a snapshot held from the start, and readers whose snapshots come and go and must
/// not change under them.
#[test]
fn memory_stays_flat_beside_a_held_snapshot_and_readers_see_one_moment() {
    const UPDATES: usize = 150_000;
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_limit_bytes: 512 << 20,
        segment_bytes: 16 << 20,
        log_size_bytes: 256 << 20,
        ..Options::small(dir.path())
    };
    let engine = Engine::open(options).expect("opens");
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::ReadCommitted, false);
    let columns = vec![
        column("id", freshet_engine::schema::Type::Int8),
        column("n", freshet_engine::schema::Type::Int8),
        column("note", freshet_engine::schema::Type::Text),
    ];
    let def = freshet_engine::catalog::TableDef { name: "t".into(), columns, ..Default::default() };
    block(|| {
        session.begin_statement();
        let made = session.create_table(def.clone(), vec![index("t_pkey", 0, IndexKind::Hash, true)]);
        made.inspect_err(|_| session.rollback_statement())
    });
    block(|| session.commit());
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let table = session.schema().table("t").expect("created").clone();
    let rows: Vec<RowId> =
        (0..1001).map(|id| block(|| session.insert(&table, &mut row(&table, id, 0, "never")))).collect();
    block(|| session.commit());
    let mut oldest = engine.connect().expect("a place");
    oldest.begin(Isolation::RepeatableRead, true);
    oldest.begin_statement();
    let seen = numbers(&mut oldest, &rows);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (engine, rows) = (&engine, &rows);
                scope.spawn(move || {
                    let mut session = engine.connect().expect("a place");
                    for i in 0..UPDATES {
                        // Every second one on the hot row.
                        let at = if i % 2 == 0 { 0 } else { 1 + (i * 7 + writer * 500) % 1000 };
                        bump(&mut session, rows[at]);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let (engine, rows, done) = (&engine, &rows, &done);
            scope.spawn(move || {
                let mut session = engine.connect().expect("a place");
                while !done.load(Ordering::Relaxed) {
                    session.begin(Isolation::RepeatableRead, true);
                    session.begin_statement();
                    let first = numbers(&mut session, rows);
                    for _ in 0..5 {
                        assert_eq!(numbers(&mut session, rows), first);
                    }
                    block(|| session.commit());
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().expect("a writer does not panic"));
        done.store(true, Ordering::Relaxed);
    });
    let bytes = engine.stats().version_bytes;
    // A version costs 80 bytes or so: 300,000 of them would take 24 MB.
    assert!(bytes < 6 * MIB, "{bytes} bytes of versions after {} updates", 2 * UPDATES);
    assert_eq!(numbers(&mut oldest, &rows), seen);
    block(|| oldest.commit());
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let total: i64 = numbers(&mut session, &rows)
        .into_iter()
        .map(|(n, _)| match n {
            Value::Int(n) => n,
            other => panic!("a number, not {other:?}"),
        })
        .sum();
    assert_eq!(total, 2 * UPDATES as i64);
    block(|| session.commit());
}

/// It is registered all the while: others' versions stay until it is over.
#[test]
fn a_snapshot_that_rests_before_its_first_statement_stays() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut b, IndexKind::Hash);
    let id = commit_insert(&mut b, 1, 5, "first");
    a.begin(Isolation::RepeatableRead, true);
    a.rest();
    for n in 0..3_000 {
        begin(&mut b, Isolation::ReadCommitted);
        set_n(&mut b, id, 10 + n).expect("nobody else writes");
        b.commit().expect("commits");
        while b.engine.step() {}
    }
    a.begin_statement();
    assert_eq!(get(&mut a, 1), Some((5, "first".to_owned())));
}

/// Another's row of the key is gone for all but the snapshot: a second row of that key would be seen beside it, and a search by key ends at the first.
#[test]
fn a_key_has_one_row_in_a_snapshot_too() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        for moves in [false, true] {
            let world = World::new();
            let (mut a, mut b) = (world.session(), world.session());
            create(&mut a, kind);
            let gone = commit_insert(&mut a, 1, 5, "gone");
            let own = commit_insert(&mut a, 2, 6, "own");
            begin(&mut a, Isolation::RepeatableRead);
            assert_eq!(get(&mut a, 1).expect("there").0, 5);
            begin(&mut b, Isolation::ReadCommitted);
            if moves {
                set_id(&mut b, gone, 3);
            } else {
                delete(&mut b, gone).expect("nobody else writes");
            }
            b.commit().expect("commits");
            a.begin_statement();
            let entered = insert(&mut a, 1, 7, "new");
            assert!(matches!(entered, Err(Stop::Error(Error::Serialization))), "{kind:?} {moves}: {entered:?}");
            a.rollback_statement();
            assert_eq!(get(&mut a, 1).expect("as it was").0, 5);
            // What it deleted itself is gone for it.
            a.begin_statement();
            delete(&mut a, own).expect("nobody else writes");
            a.begin_statement();
            insert(&mut a, 2, 8, "again").expect("its own");
            assert_eq!(get(&mut a, 2).expect("there").0, 8);
            a.commit().expect("commits");
            begin(&mut a, Isolation::RepeatableRead);
            insert(&mut a, 1, 7, "new").expect("a new snapshot sees no other");
            a.commit().expect("commits");
        }
    }
}
