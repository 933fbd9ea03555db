//! Orders that protocols get wrong, each once gone wrong here. The head of a test tells its story.

use crate::world::*;
use freshet_engine::catalog::{IndexDef, IndexKind};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::io::mem::{Call, Fault, MemClock, MemIo};
use freshet_engine::schema::{KeyColumn, Row, Value};
use freshet_engine::txn::{Direction, Error, Isolation, Stop, TableCursor, WaitToken};
use std::sync::Arc;
use std::time::Duration;

fn waits<T: std::fmt::Debug>(result: Result<T, Stop>) -> WaitToken {
    match result {
        Err(Stop::Wait(token)) => token,
        other => panic!("expected a wait, got {other:?}"),
    }
}

fn is_told(token: &mut WaitToken) -> bool {
    token.block(Some(Duration::ZERO))
}

fn retry(session: &mut Session) {
    session.rollback_statement();
    session.begin_statement();
}

/// A transaction that writes a row twice leaves two nodes for one version. A reader of the version below met the newer, which does not
/// name what it leads to, and stopped the process.
#[test]
fn a_row_written_twice_by_one_transaction_is_one_version_to_older_snapshots() {
    let world = World::new();
    let (mut writer, mut reader) = (world.session(), world.session());
    create(&mut writer, IndexKind::Hash);
    let first = commit_insert(&mut writer, 1, 10, LONG);
    begin(&mut reader, Isolation::RepeatableRead);
    begin(&mut writer, Isolation::ReadCommitted);
    set_n(&mut writer, first, 11).expect("updates");
    writer.begin_statement();
    set_n(&mut writer, first, 12).expect("updates again");
    writer.begin_statement();
    let second = insert(&mut writer, 2, 20, LONG).expect("inserts");
    set_n(&mut writer, second, 21).expect("updates its own row");
    writer.begin_statement();
    delete(&mut writer, second).expect("deletes its own row");
    writer.commit().expect("commits");
    assert_eq!(get(&mut reader, 1), Some((10, LONG.into())));
    assert_eq!(get(&mut reader, 2), None);
    world.engine.checkpoint().expect("a checkpoint copies what was durable");
    reader.commit().expect("a read commits");
    assert_eq!(read(&mut reader, 1).map(|r| r.0), Some(12));
    assert_eq!(read(&mut reader, 2), None);
}

/// Page allocations stay in the log when the CREATE TABLE they were for is rolled back. Its storage id went to the next table, which then had
/// two first pages at recovery; and the garbage of the first freed the pages of the second.
#[test]
fn a_rolled_back_table_leaves_its_storage_id_to_nobody() {
    for checkpoint in [false, true] {
        let mut world = World::new();
        let mut session = world.session();
        for round in 0..2 {
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
            create_table(&mut session, IndexKind::Hash).expect("creates");
            session.begin_statement();
            for id in 0..50 {
                insert(&mut session, id, round, LONG).expect("inserts");
            }
            if round == 0 {
                session.rollback();
            } else {
                session.commit().expect("commits");
            }
        }
        while world.engine.step() {}
        assert_eq!(rows(&mut session), 50);
        if checkpoint {
            world.engine.checkpoint().expect("a checkpoint");
        }
        drop(session);
        for _ in 0..2 {
            world.reopen();
            let mut session = world.session();
            assert_eq!(rows(&mut session), 50);
            assert_eq!(read(&mut session, 7), Some((1, LONG.into())));
            begin(&mut session, Isolation::ReadCommitted);
            for id in 50..53 {
                insert(&mut session, id, 1, LONG).expect("inserts");
            }
            session.rollback();
        }
    }
}

/// The same after a crash inside the transaction that created the table: its pages are durable, it is not.
#[test]
fn a_table_lost_in_a_crash_leaves_its_storage_id_to_nobody() {
    let mut world = World::new();
    let mut session = world.session();
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    create_table(&mut session, IndexKind::Hash).expect("creates");
    session.begin_statement();
    for id in 0..3000 {
        insert(&mut session, id, 1, LONG).expect("inserts");
    }
    let mut other = world.session();
    other.begin(Isolation::ReadCommitted, false);
    other.begin_statement();
    drop(other);
    world.reopen();
    session.rollback();
    drop(session);
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    // Short notes: pages that held long values now hold rows, so the old table's later pages of rows are nobody's again.
    begin(&mut session, Isolation::ReadCommitted);
    for id in 0..3000 {
        insert(&mut session, id, 2, "x").expect("inserts");
    }
    session.commit().expect("commits");
    for _ in 0..2 {
        drop(session);
        world.reopen();
        session = world.session();
        assert_eq!(rows(&mut session), 3000);
    }
}

/// Undoing a DDL statement undid its rows, but not the schema that the transaction would publish, nor the list of storages to free.
#[test]
fn undoing_a_ddl_statement_undoes_its_schema() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    begin(&mut session, Isolation::ReadCommitted);
    session.truncate("t").expect("truncates");
    session.rollback_statement();
    session.begin_statement();
    insert(&mut session, 2, 20, LONG).expect("inserts into the table as it was");
    session.begin_statement();
    session.drop_table("t").expect("drops");
    session.rollback_statement();
    session.commit().expect("commits");
    while world.engine.step() {}
    assert_eq!(rows(&mut session), 2);
    drop(session);
    world.reopen();
    assert_eq!(rows(&mut world.session()), 2);
}

/// A statement that drops two tables and waits for the second is undone and run again: the first must be there again.
#[test]
fn ddl_of_two_tables_waits_and_runs_again() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    begin(&mut a, Isolation::ReadCommitted);
    create_named(&mut a, "u", IndexKind::Hash).expect("creates");
    a.commit().expect("commits");
    begin(&mut a, Isolation::ReadCommitted);
    insert(&mut a, 1, 10, LONG).expect("inserts");
    begin(&mut b, Isolation::ReadCommitted);
    let drop_both = |s: &mut Session| s.drop_table("u").and_then(|()| s.drop_table("t"));
    let mut token = waits(drop_both(&mut b));
    a.commit().expect("commits");
    assert!(is_told(&mut token));
    retry(&mut b);
    drop_both(&mut b).expect("both are there and free");
    b.commit().expect("commits");
    assert!(world.engine.schema().tables().next().is_none());
}

/// A waiter for a transaction's end that queued behind a waiter for the lock was told only when that one had ended too.
#[test]
fn the_end_of_a_transaction_is_told_to_all_who_wait_for_it() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.session(), world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    for session in [&mut a, &mut b, &mut c] {
        begin(session, Isolation::ReadCommitted);
    }
    delete(&mut a, at).expect("deletes");
    let mut lock = waits(set_n(&mut b, at, 11).map(drop));
    let mut end = waits(insert(&mut c, 1, 12, "y").map(drop));
    a.commit().expect("commits");
    assert!(is_told(&mut lock) && is_told(&mut end));
    retry(&mut c);
    insert(&mut c, 1, 12, "y").expect("the key is free");
    c.commit().expect("commits");
    b.rollback();
    assert_eq!(read(&mut a, 1), Some((12, "y".into())));
}

/// A read at the durable horizon took the schema of a commit that was not durable: it reported a table as empty whose truncation could still be
/// lost, and waited for nothing.
#[test]
fn a_read_that_shows_a_new_schema_depends_on_its_commit() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    commit_insert(&mut a, 1, 10, "x");
    begin(&mut a, Isolation::ReadCommitted);
    a.truncate("t").expect("truncates");
    let truncated = a.commit().expect("commits");
    assert!(!world.engine.is_durable(truncated.cts));
    b.begin_read();
    b.begin_statement();
    assert_eq!(get(&mut b, 1), None);
    assert!(b.dependency() >= truncated.cts);
    let read = b.commit().expect("a read commits");
    assert!(read.cts >= truncated.cts);
}

/// Rolled-back versions are freed when the floor has passed them; a database that only rolls back closed no epoch, so the floor stood still until
/// the memory was full, and then even a commit had none.
#[test]
fn rollbacks_alone_do_not_fill_the_memory() {
    let io = MemIo::new();
    let options = Options { memory_limit_bytes: 4 << 20, ..Options::small("/db") };
    let engine = Engine::open_with(Arc::new(io), MemClock::new(), options).expect("opens");
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, "x");
    for round in 0..12_000 {
        begin(&mut session, Isolation::ReadCommitted);
        let refused = insert(&mut session, 1, round, LONG);
        assert!(matches!(refused, Err(Stop::Error(Error::UniqueViolation { .. }))), "round {round}: {refused:?}");
        session.rollback();
    }
    commit_insert(&mut session, 2, 20, LONG);
    assert_eq!(rows(&mut session), 2);
}

/// The checkpoint took its place among the sessions', so a full house stopped checkpoints for good.
#[test]
fn a_checkpoint_needs_no_session_of_anyone() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let mut all = vec![session];
    while let Ok(session) = world.engine.connect() {
        all.push(Session::of(&world.engine, session));
    }
    assert_eq!(all.len(), 64);
    world.engine.checkpoint().expect("a checkpoint");
}

/// A deleted row whose lock went to a waiter is forgotten after the waiter has let go, and its index entries with it, whose keys are read
/// from long values that were deleted with it.
#[test]
fn a_deleted_row_under_lock_is_forgotten_later_and_wholly() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    begin(&mut a, Isolation::ReadCommitted);
    a.create_index("t", index("t_note", 2, IndexKind::Hash, true)).expect("creates");
    a.commit().expect("commits");
    let long: String = "0123456789abcdef".repeat(5000);
    let at = commit_insert(&mut a, 1, 10, &long);
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    delete(&mut a, at).expect("deletes");
    let mut token = waits(set_n(&mut b, at, 11).map(drop));
    a.commit().expect("commits");
    assert!(is_told(&mut token));
    retry(&mut b);
    for id in 10..20 {
        commit_insert(&mut a, id, 10, &format!("{id}{long}"));
    }
    b.rollback();
    while world.engine.step() {}
    let entries: Vec<u64> = table(&a).indexes.iter().map(|i| i.entries()).collect();
    assert_eq!(entries, [10, 10, 10]);
}

/// An index is built over old versions too; nobody took out their entries when the versions went.
#[test]
fn an_index_built_over_old_versions_loses_their_entries() {
    let world = World::new();
    let (mut a, mut reader) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let ids: Vec<RowId> = (0..10).map(|id| commit_insert(&mut a, id, id, LONG)).collect();
    begin(&mut reader, Isolation::RepeatableRead);
    for &at in &ids {
        begin(&mut a, Isolation::ReadCommitted);
        set_n(&mut a, at, 100).expect("updates");
        a.commit().expect("commits");
    }
    begin(&mut a, Isolation::ReadCommitted);
    delete(&mut a, ids[3]).expect("deletes");
    a.commit().expect("commits");
    begin(&mut a, Isolation::ReadCommitted);
    a.create_index("t", index("t_n2", 1, IndexKind::Hash, false)).expect("creates");
    a.commit().expect("commits");
    reader.begin_statement();
    assert_eq!(ids_by_n(&mut reader, "t_n2", 4), [4]);
    assert_eq!(ids_by_n(&mut reader, "t_n2", 3), [3]);
    assert!(ids_by_n(&mut reader, "t_n2", 100).is_empty());
    reader.commit().expect("a read commits");
    while world.engine.step() {}
    let entries: Vec<u64> = table(&a).indexes.iter().map(|i| i.entries()).collect();
    assert_eq!(entries, [9, 9, 9]);
}

/// A staging limit whose frames cannot hold the widest record stopped the process at the commit of such a record.
#[test]
fn a_staging_limit_too_small_for_a_record_is_refused() {
    let options = Options { stage_limit_bytes: 64 << 10, ..Options::small("/db") };
    let refused = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), options);
    assert!(refused.is_err_and(|e| e.0.contains("staging limit")));
}

/// A checkpoint that failed after its manifest was in force left its number to the next one, which began by removing the images that the manifest
/// names; and the rename of a manifest could survive a power cut that the name of its images did not.
#[test]
fn a_failed_checkpoint_and_a_power_cut_in_the_next_lose_nothing() {
    for fault in [(Call::Sync, 0), (Call::Sync, 1), (Call::Write, 0), (Call::Write, 1), (Call::Write, 2)] {
        let mut cut = 0;
        loop {
            let world = World::new();
            let mut session = world.session();
            create(&mut session, IndexKind::Hash);
            commit_insert(&mut session, 1, 10, LONG);
            while world.engine.step() {}
            world.engine.checkpoint().expect("a checkpoint");
            commit_insert(&mut session, 2, 20, LONG);
            while world.engine.step() {}
            world.io.plan_fault(fault.0, fault.1, Fault::Eio);
            let _ = world.engine.checkpoint();
            let before = world.io.operations();
            world.io.cut_power_after(before + cut);
            let _ = world.engine.checkpoint();
            let done = world.io.operations() <= before + cut;
            drop(session);
            for seed in 0..3 {
                let io = world.io.crash(seed + cut * 7);
                let mut after = Session::new(&open(&io));
                assert_eq!(rows(&mut after), 2, "fault {fault:?}, power cut after {cut}, seed {seed}");
            }
            if done {
                break;
            }
            cut += 1;
        }
    }
}

/// Keys of text are cut, so words alone put neither the rest of the text nor the columns after it in order; only rows whose words were all the
/// same were put in order, and backwards only if the first of them was cut.
#[test]
fn cut_keys_come_in_the_order_of_whole_rows() {
    let world = World::new();
    let mut a = world.session();
    create(&mut a, IndexKind::Hash);
    let prefix = "0123456789abcdef".repeat(2);
    let notes = ["", "0", "b", "ba", "c", "zzz"].map(|rest| format!("{prefix}{rest}"));
    let mut id = 0;
    for n in [3, 1, 2] {
        for note in notes.iter().rev().chain(&[prefix[..31].to_string(), "1".into()]) {
            commit_insert(&mut a, id, n, note);
            id += 1;
        }
    }
    for (name, descending) in
        [("up", [false, false]), ("down", [true, true]), ("mixed", [true, false]), ("other", [false, true])]
    {
        let columns =
            [(2, descending[0]), (1, descending[1])].map(|(column, descending)| KeyColumn { column, descending });
        let def = IndexDef { columns: columns.into(), ..index(name, 2, IndexKind::BTree, false) };
        begin(&mut a, Isolation::ReadCommitted);
        a.create_index("t", def).expect("creates");
        a.commit().expect("commits");
    }
    begin(&mut a, Isolation::ReadCommitted);
    let table = table(&a);
    for index in table.indexes.iter().filter(|i| i.def.columns.len() == 2) {
        for direction in [Direction::Forward, Direction::Backward] {
            let rows = ordered(&mut a, &table, index, direction);
            assert_eq!(rows.len(), id as usize);
            for pair in rows.windows(2) {
                let order = index.spec.compare_rows(&table.layout, &pair[0], &pair[1]);
                let right = if direction == Direction::Forward { order.is_le() } else { order.is_ge() };
                assert!(right, "{} {direction:?}", index.def.name);
            }
        }
    }
    a.rollback();
}

/// A large commit waits for room between its fragments, while checkpoints recycle the log: not the fragments, which the commit is going to name.
#[test]
fn checkpoints_beside_a_large_commit_keep_its_fragments() {
    let io = MemIo::new();
    let small = Options::small("/db");
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, log_size_bytes: 8 << 20, ..small };
    let engine = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone()).expect("opens");
    let (mut large, mut other) = (engine.connect().expect("a place"), Session::new(&engine));
    create(&mut other, IndexKind::Hash);
    let note = "0123456789abcdef".repeat(1000);
    large.begin(Isolation::ReadCommitted, false);
    large.begin_statement();
    let table = large.schema().table("t").expect("created").clone();
    for id in 0..100 {
        large.insert(&table, &mut row(&table, id, 1, &note)).expect("inserts");
        while engine.step() {}
    }
    let mut waits = 0;
    while let Err(stop) = large.commit() {
        assert!(matches!(stop, Stop::Wait(_)), "{stop:?}");
        waits += 1;
        for id in 0..3 {
            commit_insert(&mut other, 1000 + waits * 3 + id, 2, &note);
        }
        while engine.step() {}
        engine.checkpoint().expect("a checkpoint");
    }
    assert!(waits > 3, "{waits} waits");
    while engine.step() {}
    drop((large, other, engine));
    let after = Engine::open_with(Arc::new(io.crash(1)), MemClock::new(), options).expect("opens");
    assert_eq!(rows(&mut Session::new(&after)), 100 + 3 * waits as usize);
}

/// A checkpoint copied pages whose allocation was lost with its epoch. Such a page could stand behind one that was lost and had no image, because the
/// checkpoint had passed it: a container with a gap, which recovery refuses.
#[test]
fn images_do_not_outlive_the_allocation_of_their_pages() {
    let small = Options::small("/db");
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, log_size_bytes: 1 << 20, ..small };
    let open = |io: &MemIo| Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone()).expect("opens");
    let io = MemIo::new();
    let engine = open(&io);
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, -1, 0, "x");
    begin(&mut session, Isolation::ReadCommitted);
    create_named(&mut session, "u", IndexKind::Hash).expect("creates");
    session.commit().expect("commits");
    let note = "0123456789abcdef".repeat(1000);
    for id in 0..120 {
        begin(&mut session, Isolation::ReadCommitted);
        insert_into(&mut session, "u", &[id, 1], Some(&note)).expect("inserts");
        session.commit().expect("commits");
    }
    begin(&mut session, Isolation::ReadCommitted);
    session.truncate("u").expect("truncates");
    session.commit().expect("commits");
    while engine.step() {}
    engine.checkpoint().expect("a checkpoint");
    drop((session, engine));
    // After a restart free pages are given out in their order: some thirty, of which a checkpoint passes eight a step.
    let filled = lose_unflushed(&io);
    for steps_before in 0..6 {
        for steps_after in 0..6 {
            let io = lose_unflushed(&filled);
            let engine = open(&io);
            let mut session = engine.connect().expect("a place");
            let table = session.schema().table("t").expect("created").clone();
            let is_running = || io.names().iter().filter(|n| n.to_string_lossy().contains("images-")).count() > 1;
            let mut round = 0;
            while !is_running() {
                session.begin(Isolation::ReadCommitted, false);
                session.begin_statement();
                let (mut cursor, mut old) = (TableCursor::default(), Row::default());
                let at = session.scan_next(&table, &mut cursor, &mut old).expect("the row is there");
                session.lock(&table, at, &mut old).expect("nobody else has it");
                let mut new = old.clone();
                round += 1;
                new.set(&table.layout, 1, &Value::Int(round));
                session.update(&table, at, &old, &mut new).expect("updates");
                while let Err(Stop::Wait(_)) = session.commit() {
                    engine.step();
                }
                while !is_running() && engine.step() {}
            }
            (0..steps_before).take_while(|_| engine.step()).for_each(drop);
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
            for id in 0..120 {
                if insert_into(&mut session, "u", &[id, 1], Some(&note)).is_err() {
                    break;
                }
            }
            (0..steps_after).take_while(|_| engine.step()).for_each(drop);
            let mut after = Session::new(&open(&lose_unflushed(&io)));
            assert_eq!(rows(&mut after), 1, "{steps_before} steps before, {steps_after} after");
        }
    }
}
