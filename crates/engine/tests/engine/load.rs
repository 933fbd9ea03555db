//! Bulk loads: all or nothing, to every snapshot, through checkpoints and power cuts.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::Engine;
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{Appender, Error, Isolation, Load, Lookup, Stop};

const ROWS: i64 = 3000;

fn until<T>(engine: &Engine, mut run: impl FnMut() -> Result<T, Stop>) -> Result<T, Error> {
    loop {
        match run() {
            Ok(done) => return Ok(done),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Wait(_)) => _ = engine.step(),
        }
    }
}

fn note(id: i64) -> String {
    match id % 100 {
        0 => "x".repeat(40_000),
        1..=10 => format!("{LONG} {id}"),
        _ => format!("n{id}"),
    }
}

fn begin_load(session: &mut Session) -> Load {
    begin(session, Isolation::ReadCommitted);
    let load = session.begin_load("t").expect("an empty table");
    session.rest();
    load
}

fn append(engine: &Engine, appender: &mut Appender, load: &Load, id: i64, n: i64) {
    let mut row = row(load.table(), id, n, &note(id));
    until(engine, || appender.append(&mut row)).expect("appended");
}

/// Rows `0..ROWS` by two appenders, the first of which is finished early.
fn append_all(engine: &Engine, load: &Load) {
    let mut appenders = [load.appender().expect("room"), load.appender().expect("room")];
    for id in 0..ROWS {
        append(engine, &mut appenders[id as usize % 2], load, id, id % 7);
    }
    appenders.iter_mut().for_each(|a| until(engine, || a.finish()).expect("finished"));
}

fn finish(session: &mut Session, mut load: Load) -> Result<u64, Error> {
    let engine = session.engine.clone();
    session.begin_statement();
    until(&engine, || session.finish_load(&mut load))
}

fn load_all(session: &mut Session) {
    let load = begin_load(session);
    append_all(&session.engine.clone(), &load);
    assert_eq!(finish(session, load), Ok(ROWS as u64));
    session.commit().expect("commits");
}

fn check_all(session: &mut Session) {
    assert_eq!(rows(session), ROWS as usize);
    for id in (0..ROWS).step_by(50).chain(1..12) {
        assert_eq!(read(session, id), Some((id % 7, note(id))));
    }
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    assert_eq!(ids_by_n(session, "t_n", 3).len(), (0..ROWS).filter(|id| id % 7 == 3).count());
    session.commit().expect("a read commits");
}

fn world(kind: IndexKind) -> (World, Session) {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, kind);
    (world, session)
}

#[test]
fn a_load_is_there_at_its_commit_and_after_a_restart() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let (mut world, mut session) = world(kind);
        load_all(&mut session);
        check_all(&mut session);
        // Rows that were loaded are rows like others.
        begin(&mut session, Isolation::ReadCommitted);
        let moved = insert(&mut session, ROWS, 3, "new").expect("inserts");
        set_n(&mut session, moved, 5).expect("updates");
        assert!(matches!(insert(&mut session, 17, 1, "again"), Err(Stop::Error(Error::UniqueViolation { .. }))));
        session.rollback();
        world.engine.checkpoint().expect("written");
        drop(session);
        world.reopen();
        let mut session = world.session();
        check_all(&mut session);
        commit_insert(&mut session, ROWS, 3, "new");
        assert_eq!(rows(&mut session), ROWS as usize + 1);
    }
}

#[test]
fn a_snapshot_from_before_the_commit_never_sees_a_part() {
    let (world, mut session) = world(IndexKind::Hash);
    let load = begin_load(&mut session);
    append_all(&world.engine, &load);
    while world.engine.step() {}
    // Above the commits that logged the rows, below the load's own.
    let mut early = world.session();
    early.begin(Isolation::RepeatableRead, false);
    early.begin_statement();
    finish(&mut session, load).expect("fills the indexes");
    assert_eq!(rows(&mut world.session()), 0);
    session.commit().expect("commits");
    early.begin_statement();
    assert_eq!(get(&mut early, 17), None);
    let loaded = table(&early);
    let lookup = Lookup::new(&loaded, &loaded.indexes[0], [1]);
    assert_eq!(early.look_up(&lookup, |_| Value::Int(17), &mut Row::default()), None);
    let id = insert(&mut early, ROWS, 1, "its own").expect("inserts");
    early.begin_statement();
    assert_eq!(get(&mut early, ROWS), Some((1, "its own".into())));
    set_n(&mut early, id, 2).expect("updates");
    early.rollback();
    check_all(&mut session);
}

#[test]
fn an_older_snapshot_sees_what_was_loaded_before_it_and_changed_after() {
    let (world, mut session) = world(IndexKind::Hash);
    load_all(&mut session);
    let mut early = world.session();
    early.begin(Isolation::RepeatableRead, true);
    early.begin_statement();
    begin(&mut session, Isolation::ReadCommitted);
    let table = table(&session);
    let (mut row, mut cursor) = (Row::default(), Default::default());
    let at = session.scan_next(&table, &mut cursor, &mut row).expect("a row");
    set_n(&mut session, at, 77).expect("updates");
    session.commit().expect("commits");
    while world.engine.step() {}
    let before = row.clone();
    assert!(early.read(&table, at, &mut row));
    assert_eq!(row.get(&table.layout, 1), before.get(&table.layout, 1));
    early.commit().expect("a read commits");
}

#[test]
fn what_is_rolled_back_or_cut_off_leaves_nothing() {
    let (mut world, mut session) = world(IndexKind::BTree);
    while world.engine.step() {}
    let before = world.engine.stats();
    let load = begin_load(&mut session);
    append_all(&world.engine, &load);
    let mut late = load.appender().expect("room");
    assert!(world.engine.stats().page_bytes > before.page_bytes);
    session.rollback();
    let mut spent = row(load.table(), 1, 1, "late");
    let refused = (0..100_000).map(|_| late.append(&mut spent)).find_map(Result::err);
    assert!(matches!(refused, Some(Stop::Error(Error::LoadEnded))), "{refused:?}");
    drop((late, load));
    while world.engine.step() {}
    assert_eq!(world.engine.stats().page_bytes, before.page_bytes);
    assert_eq!(rows(&mut session), 0);
    // The same by a power cut, with the rows in images.
    let load = begin_load(&mut session);
    append_all(&world.engine, &load);
    world.engine.checkpoint().expect("written");
    drop((load, session));
    world.reopen();
    while world.engine.step() {}
    let mut session = world.session();
    assert_eq!(rows(&mut session), 0);
    assert_eq!(world.engine.stats().page_bytes, before.page_bytes);
    load_all(&mut session);
    check_all(&mut session);
}

#[test]
fn keys_that_are_there_twice_are_found_whoever_appended_them() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let (world, mut session) = world(kind);
        let load = begin_load(&mut session);
        append_all(&world.engine, &load);
        let mut third = load.appender().expect("room");
        append(&world.engine, &mut third, &load, 1234, 1);
        until(&world.engine, || third.finish()).expect("finished");
        assert_eq!(finish(&mut session, load), Err(Error::UniqueViolation { index: "t_pkey".into() }));
        session.rollback();
        assert_eq!(rows(&mut session), 0);
    }
}

#[test]
fn a_load_wants_an_empty_table_finished_appenders_and_its_own_transaction() {
    let (world, mut session) = world(IndexKind::Hash);
    let load = begin_load(&mut session);
    let mut appender = load.appender().expect("room");
    append(&world.engine, &mut appender, &load, 1, 1);
    drop(appender);
    assert_eq!(finish(&mut session, load), Err(Error::LoadEnded));
    session.rollback();
    let load = begin_load(&mut session);
    session.rollback();
    begin(&mut session, Isolation::ReadCommitted);
    assert_eq!(finish(&mut session, load), Err(Error::LoadEnded));
    session.rollback();
    commit_insert(&mut session, 1, 1, "a row");
    begin(&mut session, Isolation::ReadCommitted);
    assert!(matches!(session.begin_load("t"), Err(Stop::Error(Error::NotEmpty(name))) if name == "t"));
    session.rollback();
}

#[test]
fn images_of_pages_that_are_being_loaded_hold_what_is_durable() {
    let (mut world, mut session) = world(IndexKind::Hash);
    let load = begin_load(&mut session);
    let mut appender = load.appender().expect("room");
    for id in 0..ROWS {
        append(&world.engine, &mut appender, &load, id, id % 7);
        if id % 500 == 250 {
            world.engine.checkpoint().expect("written");
        }
    }
    until(&world.engine, || appender.finish()).expect("finished");
    finish(&mut session, load).expect("fills the indexes");
    session.commit().expect("commits");
    drop(session);
    world.reopen();
    check_all(&mut world.session());
}

#[test]
fn an_index_can_be_ended_while_it_is_built() {
    let (_world, mut session) = world(IndexKind::Hash);
    load_all(&mut session);
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    session.cancel_with(flag.clone());
    begin(&mut session, Isolation::ReadCommitted);
    let ended = session.create_index("t", index("t_late", 1, IndexKind::Hash, false));
    assert!(matches!(ended, Err(Stop::Error(Error::Cancelled))));
    session.rollback();
    session.end_by(Some(std::time::Instant::now()));
    begin(&mut session, Isolation::ReadCommitted);
    let ended = session.create_index("t", index("t_late", 1, IndexKind::BTree, false));
    assert!(
        matches!(ended, Err(Stop::Error(Error::TimedOut))),
        "the flag was cleared, and the time is over: {ended:?}"
    );
    session.rollback();
    session.end_by(None);
    begin(&mut session, Isolation::ReadCommitted);
    session.create_index("t", index("t_late", 1, IndexKind::Hash, false)).expect("built");
    session.commit().expect("commits");
    begin(&mut session, Isolation::ReadCommitted);
    assert_eq!(ids_by_n(&mut session, "t_late", 3).len(), ids_by_n(&mut session, "t_n", 3).len());
    session.rollback();
}
