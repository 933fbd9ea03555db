//! The engine's promises to one and two sessions, on the in-memory twin, stepped by hand.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{Error, Isolation, Locked, Stop};

#[test]
fn a_row_is_there_after_commit_and_after_a_crash() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let mut world = World::new();
        let mut session = world.session();
        create(&mut session, kind);
        commit_insert(&mut session, 1, 10, "short");
        commit_insert(&mut session, 2, 20, LONG);
        assert_eq!(read(&mut session, 2), Some((20, LONG.into())));
        drop(session);
        world.reopen();
        let mut session = world.session();
        assert_eq!(read(&mut session, 1), Some((10, "short".into())));
        assert_eq!(read(&mut session, 2), Some((20, LONG.into())));
        assert_eq!(read(&mut session, 3), None);
        assert_eq!(rows(&mut session), 2);
    }
}

#[test]
fn rollback_leaves_no_trace_in_rows_and_indexes() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let at = commit_insert(&mut session, 1, 10, LONG);
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 2, 20, LONG).expect("inserts");
    set_n(&mut session, at, 11).expect("updates");
    set_n(&mut session, at, 12).expect("updates again");
    assert_eq!(get(&mut session, 1).map(|r| r.0), Some(12));
    session.rollback();
    assert_eq!(read(&mut session, 1), Some((10, LONG.into())));
    assert_eq!(read(&mut session, 2), None);
    assert_eq!(rows(&mut session), 1);
    commit_insert(&mut session, 2, 21, "again");
    assert_eq!(read(&mut session, 2), Some((21, "again".into())));
}

#[test]
fn an_old_snapshot_sees_old_versions_through_updates_and_deletes() {
    let world = World::new();
    let (mut writer, mut reader) = (world.session(), world.session());
    create(&mut writer, IndexKind::BTree);
    let first = commit_insert(&mut writer, 1, 10, LONG);
    let second = commit_insert(&mut writer, 2, 20, "two");
    begin(&mut reader, Isolation::RepeatableRead);
    assert_eq!(get(&mut reader, 1).map(|r| r.0), Some(10));
    for n in 11..30 {
        begin(&mut writer, Isolation::ReadCommitted);
        set_n(&mut writer, first, n).expect("updates");
        writer.commit().expect("commits");
    }
    begin(&mut writer, Isolation::ReadCommitted);
    delete(&mut writer, second).expect("deletes");
    writer.commit().expect("commits");
    commit_insert(&mut writer, 3, 30, "three");
    while world.engine.step() {}
    assert_eq!(get(&mut reader, 1), Some((10, LONG.into())));
    assert_eq!(get(&mut reader, 2), Some((20, "two".into())));
    assert_eq!(get(&mut reader, 3), None);
    reader.commit().expect("a read commits");
    assert_eq!(read(&mut reader, 1).map(|r| r.0), Some(29));
    assert_eq!(read(&mut reader, 2), None);
    assert_eq!(read(&mut reader, 3).map(|r| r.0), Some(30));
}

#[test]
fn a_unique_violation_names_its_index() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, "x");
    begin(&mut session, Isolation::ReadCommitted);
    let refused = insert(&mut session, 1, 11, "y");
    assert!(matches!(refused, Err(Stop::Error(Error::UniqueViolation { index })) if index == "t_pkey"));
    session.rollback();
    assert_eq!(rows(&mut session), 1);
}

#[test]
fn a_unique_insert_waits_for_the_other_inserter() {
    for (rolls_back, expected) in [(true, 1), (false, 0)] {
        let world = World::new();
        let (mut a, mut b) = (world.session(), world.session());
        create(&mut a, IndexKind::BTree);
        begin(&mut a, Isolation::ReadCommitted);
        begin(&mut b, Isolation::ReadCommitted);
        insert(&mut a, 1, 10, "a").expect("inserts");
        assert!(matches!(insert(&mut b, 1, 20, "b"), Err(Stop::Wait(_))));
        b.rollback_statement();
        if rolls_back {
            a.rollback();
        } else {
            a.commit().expect("commits");
        }
        b.begin_statement();
        let again = insert(&mut b, 1, 20, "b");
        assert_eq!(usize::from(again.is_ok()), expected);
        if again.is_ok() {
            b.commit().expect("commits");
        } else {
            b.rollback();
        }
        assert_eq!(read(&mut b, 1).map(|r| r.0), Some(if rolls_back { 20 } else { 10 }));
    }
}

#[test]
fn row_locks_queue_fairly_and_read_committed_sees_the_newer_version() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.session(), world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    for session in [&mut a, &mut b, &mut c] {
        begin(session, Isolation::ReadCommitted);
    }
    assert_eq!(set_n(&mut a, at, 11).expect("free"), Locked::Same);
    assert!(matches!(set_n(&mut b, at, 12), Err(Stop::Wait(_))));
    assert!(matches!(set_n(&mut c, at, 13), Err(Stop::Wait(_))));
    a.commit().expect("commits");
    // The lock is b's now: c, although asked again, still waits.
    c.rollback_statement();
    c.begin_statement();
    assert!(matches!(set_n(&mut c, at, 13), Err(Stop::Wait(_))));
    b.rollback_statement();
    b.begin_statement();
    assert_eq!(set_n(&mut b, at, 12).expect("handed over"), Locked::Same);
    b.commit().expect("commits");
    c.rollback_statement();
    c.begin_statement();
    set_n(&mut c, at, 13).expect("handed over");
    c.commit().expect("commits");
    assert_eq!(read(&mut a, 1).map(|r| r.0), Some(13));
}

#[test]
fn repeatable_read_fails_on_a_row_that_changed() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    begin(&mut b, Isolation::RepeatableRead);
    begin(&mut a, Isolation::ReadCommitted);
    set_n(&mut a, at, 11).expect("updates");
    a.commit().expect("commits");
    assert!(matches!(set_n(&mut b, at, 12), Err(Stop::Error(Error::Serialization))));
    b.rollback();
}

#[test]
fn a_deadlock_is_found_when_it_closes() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let (x, y) = (commit_insert(&mut a, 1, 10, "x"), commit_insert(&mut a, 2, 20, "y"));
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    set_n(&mut a, x, 11).expect("free");
    set_n(&mut b, y, 21).expect("free");
    assert!(matches!(set_n(&mut a, y, 12), Err(Stop::Wait(_))));
    assert!(matches!(set_n(&mut b, x, 22), Err(Stop::Error(Error::Deadlock(_)))));
    b.rollback();
    a.rollback_statement();
    a.begin_statement();
    set_n(&mut a, y, 12).expect("handed over");
    a.commit().expect("commits");
    assert_eq!(read(&mut a, 2).map(|r| r.0), Some(12));
}

#[test]
fn nowait_does_not_queue() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    begin(&mut a, Isolation::ReadCommitted);
    set_n(&mut a, at, 11).expect("free");
    begin(&mut b, Isolation::ReadCommitted);
    b.set_nowait(true);
    assert!(matches!(set_n(&mut b, at, 12), Err(Stop::Error(Error::LockNotAvailable))));
    b.rollback();
    a.commit().expect("commits");
}

#[test]
fn ddl_waits_for_writers_and_writers_for_ddl() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.session(), world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    commit_insert(&mut a, 1, 10, "x");
    begin(&mut a, Isolation::ReadCommitted);
    insert(&mut a, 2, 20, "y").expect("inserts");
    begin(&mut b, Isolation::ReadCommitted);
    assert!(matches!(b.truncate("t"), Err(Stop::Wait(_))));
    begin(&mut c, Isolation::ReadCommitted);
    assert!(matches!(insert(&mut c, 3, 30, "z"), Err(Stop::Wait(_))));
    a.commit().expect("commits");
    b.rollback_statement();
    b.begin_statement();
    b.truncate("t").expect("alone now");
    b.commit().expect("commits");
    c.rollback_statement();
    c.begin_statement();
    insert(&mut c, 3, 30, "z").expect("into the emptied table");
    c.commit().expect("commits");
    assert_eq!(rows(&mut a), 1);
    assert_eq!(read(&mut a, 3).map(|r| r.0), Some(30));
}

#[test]
fn dropped_and_truncated_tables_stay_so_after_a_crash_and_their_pages_are_reused() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    begin(&mut session, Isolation::ReadCommitted);
    for id in 0..3000 {
        insert(&mut session, id, id, LONG).expect("inserts");
    }
    session.commit().expect("commits");
    while world.engine.step() {}
    let full = world.engine.stats().page_bytes;
    begin(&mut session, Isolation::ReadCommitted);
    session.truncate("t").expect("truncates");
    session.commit().expect("commits");
    commit_insert(&mut session, 7, 70, LONG);
    while world.engine.step() {}
    assert!(world.engine.stats().page_bytes < full);
    drop(session);
    world.reopen();
    let mut session = world.session();
    assert_eq!(rows(&mut session), 1);
    begin(&mut session, Isolation::ReadCommitted);
    session.drop_table("t").expect("drops");
    session.rollback();
    assert_eq!(rows(&mut session), 1);
    begin(&mut session, Isolation::ReadCommitted);
    session.drop_table("t").expect("drops");
    session.commit().expect("commits");
    drop(session);
    world.reopen();
    assert!(world.engine.schema().table("t").is_none());
}

#[test]
fn a_checkpoint_replaces_the_log() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::BTree);
    let ids: Vec<RowId> = (0..300).map(|id| commit_insert(&mut session, id, id, LONG)).collect();
    for round in 0..3 {
        for (i, &at) in ids.iter().enumerate() {
            begin(&mut session, Isolation::ReadCommitted);
            set_n(&mut session, at, i as i64 * 10 + round).expect("updates");
            session.commit().expect("commits");
        }
        world.engine.checkpoint().expect("a checkpoint");
    }
    begin(&mut session, Isolation::ReadCommitted);
    delete(&mut session, ids[5]).expect("deletes");
    session.commit().expect("commits");
    drop(session);
    for _ in 0..2 {
        world.reopen();
        let mut session = world.session();
        assert_eq!(rows(&mut session), 299);
        assert_eq!(read(&mut session, 5), None);
        assert_eq!(read(&mut session, 17), Some((172, LONG.into())));
        drop(session);
        world.engine.checkpoint().expect("a checkpoint");
    }
}

#[test]
fn a_transaction_larger_than_a_frame_is_whole_or_not_there() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let long: String = "0123456789abcdef".repeat(60);
    begin(&mut session, Isolation::ReadCommitted);
    for id in 0..2000 {
        insert(&mut session, id, id, &long).expect("inserts");
    }
    session.commit().expect("commits");
    begin(&mut session, Isolation::ReadCommitted);
    for id in 2000..4000 {
        insert(&mut session, id, id, &long).expect("inserts");
    }
    session.rollback();
    drop(session);
    world.reopen();
    let mut session = world.session();
    assert_eq!(rows(&mut session), 2000);
    assert_eq!(read(&mut session, 1999), Some((1999, long)));
}

#[test]
fn a_stream_of_updates_larger_than_the_log_goes_on() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let long: String = "0123456789abcdef".repeat(500);
    let ids: Vec<RowId> = (0..20).map(|id| commit_insert(&mut session, id, id, &long)).collect();
    let table = table(&session);
    // 3,000 values of 8 kB that share no byte with the last, through a log of 8 MiB.
    for round in 0..3000u64 {
        begin(&mut session, Isolation::ReadCommitted);
        let mut old = Row::default();
        session.lock(&table, ids[round as usize % 20], &mut old).expect("free");
        let mut new = old.clone();
        let note: Vec<u8> = (0..8000u64).map(|i| b'!' + ((round * 7919 + i * i) % 90) as u8).collect();
        new.set(&table.layout, 1, &Value::Int(round as i64));
        new.set(&table.layout, 2, &Value::Bytes(&note));
        session.update(&table, ids[round as usize % 20], &old, &mut new).expect("updates");
        session.commit().expect("commits");
    }
    assert!(world.engine.stats().checkpoints > 1);
    drop(session);
    world.reopen();
    let mut session = world.session();
    assert_eq!(read(&mut session, 19).map(|r| r.0), Some(2999));
    assert_eq!(rows(&mut session), 20);
}

#[test]
fn a_value_of_many_pieces_comes_back_whole() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let huge: String = (0..300_000).map(|i| char::from(b'a' + (i % 23) as u8)).collect();
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 1, 1, &huge).expect("inserts");
    session.commit().expect("commits");
    assert_eq!(read(&mut session, 1), Some((1, huge.clone())));
    drop(session);
    world.reopen();
    assert_eq!(read(&mut world.session(), 1), Some((1, huge)));
}

/// A hash index keeps only the first bits of a hash, so two keys of one row may share an entry. Removing the one that the
/// row no longer has must leave it to the other: it once went by the whole hash, and a row whose key changed between two
/// such keys was lost to lookups as soon as garbage was collected, or the change rolled back.
#[test]
fn keys_that_share_an_index_entry_do_not_take_it_from_each_other() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let table = table(&session);
    let hash = |id: i64| table.indexes[0].spec.hash(|_| Value::Int(id));
    // Of 150,000 scattered keys about twenty pairs agree in the first 29 bits of their hashes, which is what a new index
    // keeps.
    let scattered = |i: u64| ((i * i) ^ i << 17).wrapping_mul(0x94d0_49bb_1331_11eb).cast_signed() >> 16;
    let mut seen = std::collections::HashMap::new();
    let (first, second) = (1..150_000)
        .map(scattered)
        .find_map(|id| seen.insert(hash(id) >> 35, id).filter(|&twin| twin != id).map(|twin| (twin, id)))
        .expect("birthdays");
    let at = commit_insert(&mut session, first, 10, "moves");
    for (rolls_back, now) in [(true, first), (false, second)] {
        begin(&mut session, Isolation::ReadCommitted);
        let mut old = Row::default();
        session.lock(&table, at, &mut old).expect("locks");
        let mut new = old.clone();
        new.set(&table.layout, 0, &Value::Int(second));
        session.update(&table, at, &old, &mut new).expect("updates");
        if rolls_back {
            session.rollback();
        } else {
            session.commit().expect("commits");
        }
        while world.engine.step() {}
        assert_eq!(read(&mut session, now), Some((10, "moves".into())));
        assert_eq!(read(&mut session, first + second - now), None);
    }
}

/// Between the begin of a statement and its own definition: that was once taken for what the transaction itself had seen to.
#[test]
fn what_others_promise_just_before_an_own_definition_is_theirs() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::BTree);
    commit_insert(&mut a, 1, 10, "first");
    begin(&mut a, Isolation::RepeatableRead);
    assert_eq!(get(&mut a, 1), Some((10, "first".into())));
    a.begin_statement();
    begin(&mut b, Isolation::ReadCommitted);
    b.create_index("t", index("unique_n", 1, IndexKind::BTree, true)).expect("no two are equal");
    b.commit().expect("commits");
    create_named(&mut a, "other", IndexKind::BTree).expect("creates");
    a.begin_statement();
    let (t, other) = (table(&a), a.schema().table("other").expect("its own").clone());
    assert!(a.is_renewed(&t), "it is unique since the snapshot");
    assert!(!a.is_renewed(&other));
    a.rollback();
}
