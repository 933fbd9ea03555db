//! Devices that fail, disks and memory that are full: nothing acknowledged is lost, and what can go on goes on.

use crate::model::{Model, Named, Plan, seeds};
use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options, Part};
use freshet_engine::ids::DeviceId;
use freshet_engine::io::mem::{Call, Fault, MemClock, MemIo};
use freshet_engine::txn::{Error, Isolation, Stop};
use std::sync::Arc;
use std::time::Duration;

/// The workload with one planned fault. Says what failed: the log, a checkpoint, nothing.
fn run_with_fault(plan: &Plan, call: Call, nth: u64, fault: Fault) -> (bool, usize) {
    let io = MemIo::new();
    let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
    io.plan_fault(call, nth, fault);
    let poisoned = model.run(150).is_err();
    if poisoned {
        let reason = model.engine.failure().expect("a failed log says why");
        assert!(reason.contains("nothing more is acknowledged"), "{reason}");
        let operations = io.operations();
        assert!(model.engine.checkpoint().is_err());
        assert!((0..100).any(|_| !model.engine.step()), "nothing is left to do");
        assert_eq!(io.operations(), operations, "nothing is tried again");
    }
    let failed_checkpoints = model.failed_checkpoints;
    let after = io.crash(nth);
    model.recovered(plan.open(&after).unwrap_or_else(|e| panic!("{call:?} {nth} {fault:?}: {e}")));
    model.run(20).expect("the new files work");
    model.check_quiet();
    (poisoned, failed_checkpoints)
}

#[test]
fn a_device_that_fails_once_loses_nothing_acknowledged() {
    for seed in seeds(2) {
        let _named = Named(seed);
        let plan =
            Plan { seed, devices: 1 + seed as usize, ddl: true, checkpoints: true, note_bytes: 500, eager: true };
        let (mut poisoned, mut checkpoints) = (0, 0);
        for nth in 0..30 {
            for (call, fault) in [(Call::Sync, Fault::Eio), (Call::Write, Fault::Eio), (Call::Write, Fault::Short(700))]
            {
                let (log, checkpoint) = run_with_fault(&plan, call, nth, fault);
                poisoned += usize::from(log);
                checkpoints += checkpoint;
            }
        }
        assert!(poisoned > 10 && checkpoints > 3, "{poisoned} {checkpoints}");
    }
}

#[test]
fn a_poisoned_log_refuses_commits_and_rolls_them_back() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    while world.engine.step() {}
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 2, 20, LONG).expect("inserts");
    world.io.plan_fault(Call::Sync, 0, Fault::Eio);
    let committed = session.commit().expect("pre-commit needs no device");
    while world.engine.step() {}
    assert!(!world.engine.is_durable(committed.cts));
    assert!(matches!(world.engine.wait_durable(committed.cts).wait(), Err(Error::LogFailed(_))));
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 3, 30, "x").expect("versions need no log");
    assert!(matches!(session.commit(), Err(Stop::Error(Error::LogFailed(_)))));
    assert!(!session.in_transaction());
    assert_eq!(read(&mut session, 3), None);
    drop(session);
    let mut after = Session::new(&open(&world.io.crash(1)));
    assert_eq!(read(&mut after, 1), Some((10, LONG.into())));
}

/// A large transaction whose fragments wait for their turn is told like everyone else.
#[test]
fn a_log_that_fails_under_fragments_ends_the_wait_for_their_turn() {
    let io = MemIo::new();
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, ..Options::small("/db") };
    let engine = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options).expect("opens");
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    let note = "0123456789abcdef".repeat(1000);
    begin(&mut session, Isolation::ReadCommitted);
    for id in 0..30 {
        insert(&mut session, id, 0, &note).expect("inserts");
    }
    let mut other = Session::new(&engine);
    begin(&mut other, Isolation::ReadCommitted);
    insert(&mut other, 100, 0, "x").expect("inserts");
    other.commit().expect("commits");
    io.plan_fault(Call::Sync, 0, Fault::Eio);
    // Its epoch is sealed and written: what is staged now belongs to the next.
    assert!(engine.step_part(Part::Device(DeviceId(0))) && engine.step_part(Part::Device(DeviceId(0))));
    let session: &mut freshet_engine::txn::Session = &mut session;
    assert!(matches!(session.commit(), Err(Stop::Wait(_))), "two fragments are staged");
    while engine.step() {}
    assert!(engine.failure().is_some(), "there was something to sync");
    assert!(matches!(session.commit(), Err(Stop::Error(Error::LogFailed(_)))));
    assert!(!session.in_transaction());
}

/// A sync fails, the process ends and begins again. The kernel has called the pages clean: readers see what was never written, and no later sync
/// covers it. The new incarnation built on that, and a power cut then left a database that refused to open.
#[test]
fn what_a_failed_sync_left_is_not_built_upon() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    while world.engine.step() {}
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 2, 20, LONG).expect("inserts");
    world.io.plan_fault(Call::Sync, 0, Fault::Eio);
    session.commit().expect("pre-commit needs no device");
    while world.engine.step() {}
    assert!(world.engine.failure().is_some());
    let io = world.io.clone();
    drop((session, world));
    let seen = rows(&mut Session::new(&open(&io)));
    for seed in 0..20 {
        let after = if seed == 0 { lose_unflushed(&io) } else { io.fork().crash(seed) };
        assert_eq!(rows(&mut Session::new(&open(&after))), seen, "seed {seed}");
    }
}

/// The same with a device that leaves at that very open: its last groups, which nothing proves to be on disk, are written there once more.
#[test]
fn what_a_failed_sync_left_on_a_directory_that_leaves_is_not_built_upon() {
    assert_eq!(lost_with_a_directory(), Vec::<String>::new());
    #[cfg(feature = "planted")]
    {
        use freshet_engine::planted::{Bug, plant};
        plant(Some(Bug::TrustPageCache));
        let lost = lost_with_a_directory();
        plant(None);
        assert!(!lost.is_empty(), "who relies on the page cache loses something");
    }
}

fn lost_with_a_directory() -> Vec<String> {
    [["/log0", "/log1"], ["/log1", "/log0"]]
        .into_iter()
        .flat_map(|[stays, leaves]| lost_when_leaving(stays, leaves))
        .collect()
}

fn lost_when_leaving(stays: &str, leaves: &str) -> Vec<String> {
    let io = MemIo::new();
    let dirs = |names: &[&str]| names.iter().map(|name| name.into()).collect::<Vec<std::path::PathBuf>>();
    let open_with = |io: &MemIo, log: &[&str], retired: &[&str]| {
        let (log_dirs, retired_log_dirs) = (dirs(log), dirs(retired));
        let options = Options { log_dirs, retired_log_dirs, ..Options::small("/db") };
        Engine::open_with(Arc::new(io.clone()), MemClock::new(), options).map_err(|e| e.0)
    };
    let engine = open_with(&io, &["/log0", "/log1"], &[]).expect("opens");
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    while engine.step() {}
    begin(&mut session, Isolation::ReadCommitted);
    insert(&mut session, 2, 20, LONG).expect("inserts");
    io.plan_fault(Call::Sync, 0, Fault::Eio);
    session.commit().expect("pre-commit needs no device");
    while engine.step() {}
    assert!(engine.failure().is_some());
    drop((session, engine));
    let engine = open_with(&io, &[stays], &[leaves]).expect("opens");
    let seen = rows(&mut Session::new(&engine));
    let mut lost = Vec::new();
    for seed in 0..20 {
        let after = if seed == 0 { lose_unflushed(&io) } else { io.fork().crash(seed) };
        let found = open_with(&after, &[stays], &[leaves]).map(|engine| rows(&mut Session::new(&engine)));
        if found.as_ref() != Ok(&seen) {
            lost.push(format!("without {leaves}, seed {seed}: {found:?}"));
        }
    }
    lost
}

/// A sync of a directory fails, behind a manifest's or a segment's new name, and the process ends and begins again. It sees the new name, and no later
/// sync of the directory covers it: who builds on it loses what was acknowledged when the power goes.
#[test]
fn a_name_whose_sync_failed_is_not_built_upon() {
    assert_eq!(lost_names(), Vec::<String>::new());
    #[cfg(feature = "planted")]
    {
        use freshet_engine::planted::{Bug, plant};
        plant(Some(Bug::TrustNames));
        let lost = lost_names();
        plant(None);
        assert!(!lost.is_empty(), "who relies on such a name loses something");
    }
}

/// What a power cut takes that was acknowledged, by the fault before it.
fn lost_names() -> Vec<String> {
    let mut lost = Vec::new();
    let mut failed = 0;
    for nth in 0..25 {
        let io = MemIo::new();
        let mut id = 0;
        let mut rows_more = |engine: &Engine, count: i64| {
            let mut session = Session::new(engine);
            for _ in 0..count {
                commit_insert(&mut session, id, 10, LONG);
                id += 1;
            }
            while engine.step() {}
        };
        let try_open = || Engine::open_with(Arc::new(io.clone()), MemClock::new(), Options::small("/db"));
        // Half of the faults meet an open, the others a checkpoint and what follows it.
        if nth >= 12 {
            drop(open(&io));
            io.plan_fault(Call::Name, nth - 12, Fault::Eio);
            failed += usize::from(try_open().is_err());
            io.clear_faults();
        }
        let engine = open(&io);
        create(&mut Session::new(&engine), IndexKind::Hash);
        rows_more(&engine, 5);
        if nth < 12 {
            io.plan_fault(Call::Name, nth, Fault::Eio);
            failed += usize::from(engine.checkpoint().is_err());
            io.clear_faults();
        }
        drop(engine);
        let engine = open(&io);
        rows_more(&engine, 5);
        for seed in 0..20 {
            let after = if seed == 0 { lose_unflushed(&io) } else { io.fork().crash(seed) };
            let found = Engine::open_with(Arc::new(after), MemClock::new(), Options::small("/db"));
            let found = found.map(|engine| rows(&mut Session::new(&engine))).map_err(|e| e.0);
            if found.as_ref() != Ok(&10) {
                lost.push(format!("fault {nth}, seed {seed}: {found:?}"));
            }
        }
    }
    assert!(failed > 8, "{failed}");
    lost
}

/// The same with the fence's own record, and a power cut while the next open writes it again: the record after it could be kept without it.
#[test]
fn a_fence_whose_sync_failed_is_completed_in_order() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    drop(session);
    world.reopen();
    let World { io, engine } = world;
    drop(engine);
    let mut fences = 0;
    for nth in 0..12 {
        let failed = io.fork();
        failed.plan_fault(Call::Sync, nth, Fault::Eio);
        let options = Options::small("/db");
        match Engine::open_with(Arc::new(failed.clone()), MemClock::new(), options.clone()) {
            Ok(_) => continue,
            Err(refused) => fences += usize::from(refused.0.contains("fence")),
        }
        for cut in 0..16 {
            let io = failed.fork();
            io.cut_power_after(io.operations() + cut);
            let _ = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone());
            for seed in 0..12 {
                let after = io.fork().crash(seed);
                assert_eq!(rows(&mut Session::new(&open(&after))), 1, "sync {nth}, cut {cut}, seed {seed}");
            }
        }
    }
    assert!(fences >= 2, "a fence's sync failed");
}

/// A file system that is full: commits are refused for want of log, checkpoints fail, and both go on when there is space again.
#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_space() {
    let io = MemIo::new();
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, ..Options::small("/db") };
    let engine = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone()).expect("opens");
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    while engine.step() {}
    let used = io.used_bytes();
    io.set_space_bytes(used + (300 << 10));
    let note = "0123456789abcdef".repeat(100);
    let mut ids = 0..;
    let mut committed = 0;
    let refused = loop {
        let id = ids.next().expect("without end");
        begin(&mut session, Isolation::ReadCommitted);
        let stop = match insert(&mut session, id, 0, &note) {
            Ok(_) => match session.commit() {
                Ok(_) => {
                    committed += 1;
                    continue;
                }
                Err(stop) => stop,
            },
            Err(stop) => stop,
        };
        match stop {
            Stop::Wait(_) => session.rollback(),
            Stop::Error(error) => break error,
        }
        assert!(id < 10_000, "a full disk is noticed");
    };
    assert_eq!(refused, Error::LogFull);
    session.rollback();
    assert!(engine.failure().is_none(), "a full disk is no failed device");
    assert!(matches!(engine.checkpoint(), Err(Error::Checkpoint(_))));
    assert_eq!(rows(&mut session), committed);
    io.set_space_bytes(u64::MAX);
    engine.checkpoint().expect("there is space");
    for id in 20_000..20_010 {
        commit_insert(&mut session, id, 0, &note);
    }
    while engine.step() {}
    drop((session, engine));
    let after = Engine::open_with(Arc::new(io.crash(3)), MemClock::new(), options).expect("opens");
    assert_eq!(rows(&mut Session::new(&after)), committed + 10);
}

/// Whatever allocation the memory limit refuses, the statement is undone, the transaction commits what it had, and the database goes on.
#[test]
fn the_memory_limit_refuses_a_statement_and_nothing_else() {
    for kilobytes in (4096..5120).step_by(64) {
        let io = MemIo::new();
        let options = Options { memory_limit_bytes: kilobytes << 10, ..Options::small("/db") };
        let engine = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone()).expect("opens");
        let mut session = Session::new(&engine);
        create(&mut session, IndexKind::BTree);
        let note = "0123456789abcdef".repeat(30);
        let at = commit_insert(&mut session, -1, 0, &note);
        let mut kept = 1;
        begin(&mut session, Isolation::ReadCommitted);
        for id in 0.. {
            session.begin_statement();
            let stop = match id % 3 {
                0 => set_n(&mut session, at, id).map(drop),
                _ => insert(&mut session, id, 0, &note).map(|_| kept += 1),
            };
            match stop {
                Ok(()) => {}
                Err(Stop::Error(Error::OutOfMemory(_))) => break,
                other => panic!("{other:?}"),
            }
            assert!(id < 50_000, "the limit is noticed");
        }
        session.rollback_statement();
        session.commit().expect("what was done needs no more memory");
        while engine.step() {}
        assert_eq!(rows(&mut session), kept, "limit {kilobytes} KiB");
        begin(&mut session, Isolation::ReadCommitted);
        session.truncate("t").expect("needs a row's version");
        session.commit().expect("commits");
        while engine.step() {}
        for id in 0..50 {
            commit_insert(&mut session, id, 0, &note);
        }
        while engine.step() {}
        drop((session, engine));
        let after = Engine::open_with(Arc::new(io.crash(3)), MemClock::new(), options).expect("opens");
        assert_eq!(rows(&mut Session::new(&after)), 50);
    }
}

#[test]
fn a_transaction_larger_than_the_log_is_refused_and_leaves_no_trace() {
    let io = MemIo::new();
    let small = Options::small("/db");
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, log_size_bytes: 1 << 20, ..small };
    let engine = Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone()).expect("opens");
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, -1, 0, "x");
    let note = "0123456789abcdef".repeat(1000);
    begin(&mut session, Isolation::ReadCommitted);
    for id in 0..100 {
        insert(&mut session, id, 0, &note).expect("inserts");
    }
    let refused = loop {
        while engine.step() {}
        match (*session).commit() {
            Err(Stop::Wait(wait)) => assert!(!wait.is_lock(), "no lock_timeout ends it: {wait:?}"),
            ended => break ended,
        }
    };
    assert!(matches!(refused, Err(Stop::Error(Error::LogFull))));
    assert_eq!(rows(&mut session), 1);
    for id in 0..200 {
        commit_insert(&mut session, id, 0, &note[..4000]);
    }
    while engine.step() {}
    drop((session, engine));
    let after = Engine::open_with(Arc::new(io.crash(3)), MemClock::new(), options).expect("opens");
    assert_eq!(rows(&mut Session::new(&after)), 201);
}

/// Damage below the horizon is no torn tail: the database refuses, and says where.
#[test]
fn damage_below_the_horizon_is_refused_with_file_and_offset() {
    for checkpoint in [false, true] {
        let world = World::new();
        let mut session = world.session();
        create(&mut session, IndexKind::Hash);
        for id in 0..20 {
            commit_insert(&mut session, id, id, LONG);
            while world.engine.step() {}
        }
        if checkpoint {
            world.engine.checkpoint().expect("a checkpoint");
            commit_insert(&mut session, 20, 20, LONG);
            commit_insert(&mut session, 21, 21, LONG);
            while world.engine.step() {}
        }
        drop(session);
        let io = world.io.crash(1);
        let (path, offset) =
            if checkpoint { ("/db/images-000001", 70) } else { ("/db/log/log-000000000001.seg", 5 * 4096 + 200) };
        let names = io.names();
        let path =
            names.iter().find(|n| n.as_path() == std::path::Path::new(path)).unwrap_or_else(|| panic!("{names:?}"));
        io.flip_bit(path, offset, 3).expect("the file is there");
        let refused = Engine::open_with(Arc::new(io), MemClock::new(), Options::small("/db"));
        let Err(refused) = refused else { panic!("damage at {offset} of {} went unnoticed", path.display()) };
        assert!(refused.0.contains("offset"), "{refused}");
    }
}

/// A checkpoint gives up the log and the images of pages that TRUNCATE has freed. When decay then takes the commit that truncated, and no witness
/// shows it, the log seems to end before: the table was served, without its rows.
#[test]
fn a_truncation_that_decays_does_not_bring_back_an_empty_table() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    begin(&mut session, Isolation::ReadCommitted);
    create_named(&mut session, "u", IndexKind::Hash).expect("creates");
    session.commit().expect("commits");
    commit_insert(&mut session, 1, 10, LONG);
    begin(&mut session, Isolation::ReadCommitted);
    session.truncate("t").expect("truncates");
    insert_into(&mut session, "u", &[7, 8], Some(LONG)).expect("inserts");
    while world.engine.step() {}
    // Pages are copied before the truncation is durable, and freed before the manifest is written.
    freshet_engine::txn::Session::commit(&mut session).expect("commits");
    world.engine.request_checkpoint_within(Duration::ZERO);
    while world.engine.checkpoint_progress().pages_done < world.engine.checkpoint_progress().pages_total.max(1) {
        assert!(world.engine.step_part(Part::Checkpoint), "pages are left");
    }
    while world.engine.step_part(Part::Device(DeviceId(0))) || world.engine.step_part(Part::Garbage) {}
    while world.engine.step_part(Part::Checkpoint) {}
    assert_eq!(world.engine.stats().checkpoints, 1);
    drop(session);
    let io = world.io.crash(1);
    let log = std::path::Path::new("/db/log/log-000000000001.seg");
    let mut refused = 0;
    for block in io.written_blocks(log).expect("the log is there") {
        let io = io.fork();
        io.flip_bit(log, block + 150, 1).expect("the file is there");
        match Engine::open_with(Arc::new(io), MemClock::new(), Options::small("/db")) {
            Err(_) => refused += 1,
            Ok(engine) => {
                let mut session = Session::new(&engine);
                let found = (rows(&mut session), rows_of(&mut session, "u"));
                assert!(found == (0, 1) || found == (1, 0), "block at {block}: {found:?}");
            }
        }
    }
    assert!(refused > 0, "the last groups are relied on");
}

/// Nothing can be opened without a block for the fence: it says so, changes nothing, and opens when there is one.
#[test]
fn a_disk_without_a_free_block_is_told_with_the_remedy() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    commit_insert(&mut session, 1, 10, LONG);
    while world.engine.step() {}
    let io = world.io.clone();
    drop((session, world));
    io.set_space_bytes(io.used_bytes());
    let refused =
        Engine::open_with(Arc::new(io.clone()), MemClock::new(), Options::small("/db")).expect_err("no space");
    assert!(refused.0.contains("fence") || refused.0.contains("manifest"), "{refused}");
    assert!(refused.0.contains("free some space"), "{refused}");
    io.set_space_bytes(u64::MAX);
    assert_eq!(rows(&mut Session::new(&open(&io))), 1);
}
