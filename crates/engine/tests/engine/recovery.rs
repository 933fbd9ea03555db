//! Does a recovery come to the same memory whatever it does first?
//!
//! The documented XOR vector, replayed for real: 0000 -> 0101 (T1) -> 1001 (T2), the deltas on different devices and so read in either order, and the
//! loser dropped (P*TIME, VLDB 2004).

use crate::model::{Model, Named, Plan, seeds};
use crate::world::{column, index, insert_into, lose_unflushed, row_of_ids};
use freshet_engine::catalog::{IndexKind, TableDef};
use freshet_engine::engine::{Engine, Options, RecoveryStats};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Isolation, Session, TableCursor};
use std::path::PathBuf;
use std::sync::Arc;

fn open(io: &MemIo, threads: usize) -> Engine {
    let log_dirs = vec![PathBuf::from("/log0"), PathBuf::from("/log1")];
    let options = Options { log_dirs, recovery_threads: threads, ..Options::small("/db") };
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options).expect("opens")
}

/// One directory with images, several devices, dropped and created tables, long values, reused rows and pages, and a torn tail,
/// recovered by 1 to 8 threads in shuffled orders: the same persistent words, the same rows through every index, the same figures.
#[test]
fn neither_order_nor_threads_change_what_is_recovered() {
    let (mut images, mut deltas, mut torn) = (0, 0, 0);
    for seed in seeds(6) {
        let _named = Named(seed);
        let devices = 1 + seed as usize % 3;
        let plan = Plan { seed, devices, ddl: true, checkpoints: true, note_bytes: 3000, eager: seed % 2 == 0 };
        let mut io = MemIo::new();
        let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
        model.run(400).expect("the power is on");
        io = io.crash(seed);
        let open = |recovery_threads: usize, recovery_seed: u64| {
            let options = Options { recovery_threads, recovery_seed, ..plan.options() };
            let io = Arc::new(io.fork());
            Engine::open_with(io, MemClock::new(), options)
                .unwrap_or_else(|e| panic!("{recovery_threads} threads: {e}"))
        };
        let first = open(1, 0);
        let (digest, stats) = (first.persistent_digest(), *first.recovery());
        images += stats.images.items;
        deltas += stats.replay.items;
        torn += stats.discarded.groups;
        model.recovered(first);
        model.check_quiet();
        for (threads, order) in [(1, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 6), (8, 0), (8, 7), (8, 8)] {
            let other = open(threads, order);
            assert_eq!(other.persistent_digest(), digest, "{threads} threads, order {order}");
            let figures = |s: &RecoveryStats| {
                (s.scan.items, s.images.items, s.replay.items, s.rebuild.items, s.changed_pages, s.discarded)
            };
            assert_eq!(figures(other.recovery()), figures(&stats), "{threads} threads, order {order}");
        }
        for order in 10..13 {
            model.recovered(open(3, order));
            model.check_quiet();
        }
    }
    assert!(images > 0 && deltas > 0 && torn > 0, "{images} images, {deltas} deltas, {torn} groups of torn tails");
}

/// A database whose log moves from device to device while it is used, with a power cut before each move.
#[test]
fn log_devices_join_and_leave_between_restarts() {
    let plan = Plan { seed: 5, devices: 2, ddl: true, checkpoints: false, note_bytes: 3000, eager: true };
    let mut io = MemIo::new();
    let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
    let try_open = |io: &MemIo, log: &[&str], retired: &[&str]| {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let (log_dirs, retired_log_dirs) = (paths(log), paths(retired));
        Engine::open_with(
            Arc::new(io.clone()),
            MemClock::new(),
            Options { log_size_bytes: (1 << 20) * log.len() as u64, log_dirs, retired_log_dirs, ..plan.options() },
        )
    };
    let sets: [(&[&str], &[&str]); 4] = [
        (&["/log1", "/log0"], &[]),
        (&["/log2", "/log1", "/log0"], &[]),
        (&["/log2"], &["/log0", "/log1"]),
        (&["/log3"], &["/log1", "/log2", "/log0"]),
    ];
    for (log, retired) in sets {
        model.run(60).expect("the power is on");
        io = io.crash(log.len() as u64);
        let engine = try_open(&io, log, retired).unwrap_or_else(|e| panic!("{log:?}: {e}"));
        if !retired.is_empty() {
            // The log of the run before is still needed.
            let refused =
                try_open(&io.fork(), log, &[]).map(drop).expect_err("what the log needs lies in what is left out");
            assert!(refused.to_string().contains("is missing: none of the directories"), "{refused}");
        }
        model.recovered(engine);
    }
    model.engine.checkpoint().expect("a checkpoint");
    model.run(40).expect("the power is on");
    io = io.crash(10);
    model.recovered(try_open(&io, &["/log3", "/log2"], &[]).expect("images have replaced what the others held"));
    model.check_quiet();
}

fn settle(engine: &Engine) {
    while engine.step() {}
}

fn store(engine: &Engine, session: &mut Session, n: i64) {
    settle(engine);
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let table = session.schema().table("t").expect("created").clone();
    let (mut cursor, mut old) = (TableCursor::default(), Row::default());
    let at = session.scan_next(&table, &mut cursor, &mut old).expect("the row is there");
    session.lock(&table, at, &mut old).expect("nobody else has it");
    let mut new = old.clone();
    new.set(&table.layout, 1, &Value::Int(n));
    session.update(&table, at, &old, &mut new).expect("updates");
    session.commit().expect("commits");
}

fn stored(engine: &Engine) -> i64 {
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = session.schema().table("t").expect("created").clone();
    let mut row = Row::default();
    session.scan_next(&table, &mut TableCursor::default(), &mut row).expect("the row is there");
    row_of_ids(&table, &row)[1]
}

/// Blocks of a device's log that hold groups: what a step wrote.
fn blocks(io: &MemIo, device: usize) -> usize {
    let dir = format!("/log{device}");
    let segments = io.names().into_iter().filter(|n| n.starts_with(&dir) && n.extension().is_some_and(|e| e == "seg"));
    let held = |path: PathBuf| {
        io.contents(&path).expect("a segment").chunks(4096).filter(|block| block.iter().any(|b| *b != 0)).count()
    };
    segments.map(held).sum()
}

#[test]
fn the_documented_xor_vector_replays_in_both_orders_and_without_its_loser() {
    for swapped in [false, true] {
        for loses in [false, true] {
            let io = MemIo::new();
            let engine = open(&io, 1);
            // A stepped engine spreads sessions over devices by their number, and one thread replays device after device.
            let mut sessions = [0, 1].map(|_| engine.connect().expect("a place"));
            if swapped {
                sessions.reverse();
            }
            let [a, b] = &mut sessions;
            settle(&engine);
            a.begin(Isolation::ReadCommitted, false);
            a.begin_statement();
            let columns = vec![column("id", Type::Int8), column("n", Type::Int4)];
            let def = TableDef { name: "t".into(), columns, ..Default::default() };
            a.create_table(def, vec![index("t_pkey", 0, IndexKind::Hash, true)]).expect("creates");
            a.begin_statement();
            insert_into(a, "t", &[1, 0b0000], None).expect("inserts");
            settle(&engine);
            a.commit().expect("commits");
            settle(&engine);
            let before = [0, 1].map(|d| blocks(&io, d));
            store(&engine, a, 0b0101);
            settle(&engine);
            let first = [0, 1].map(|d| blocks(&io, d) - before[d]);
            store(&engine, b, 0b1001);
            if !loses {
                settle(&engine);
                let second = [0, 1].map(|d| blocks(&io, d) - before[d] - first[d]);
                // Content goes where its session's worker writes; a witness may follow on either.
                let (at, other) = if first[0] > first[1] { (0, 1) } else { (1, 0) };
                assert!(second[other] >= second[at], "T1 wrote {first:?} and T2 {second:?}: one on each device");
            }
            assert_eq!(stored(&engine), 0b1001);
            let after = if loses { lose_unflushed(&io) } else { io.crash(1) };
            for threads in [1, 4] {
                let expected = if loses { 0b0101 } else { 0b1001 };
                assert_eq!(stored(&open(&after.crash(1), threads)), expected, "swapped {swapped}, loses {loses}");
            }
        }
    }
}
