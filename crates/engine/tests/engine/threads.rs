//! Real threads on real files: sums stay, counts are exact, one of many wins, nobody waits for ever.

use crate::model::Dice;
use crate::world::{column, index, insert_into, row_of_ids};
use freshet_engine::catalog::{IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Change, Error, Isolation, Locked, Session, Stop, TableCursor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A wait that takes so long is a wait for ever.
const FOR_EVER: Duration = Duration::from_secs(60);

fn options(dir: &Path, devices: usize) -> Options {
    let log_dirs = (0..devices).map(|i| dir.join(format!("log{i}"))).collect();
    Options { log_dirs, direct_io: false, stage_limit_bytes: 512 << 10, ..Options::small(dir.join("data")) }
}

fn open(dir: &Path, devices: usize) -> Engine {
    Engine::open(options(dir, devices)).expect("opens")
}

pub fn create(engine: &Engine, name: &str, kind: IndexKind, note: bool) {
    let mut columns = vec![column("id", Type::Int8), column("n", Type::Int8)];
    if note {
        columns.push(column("note", Type::Text));
    }
    let def = TableDef { name: name.into(), columns, ..Default::default() };
    let mut session = engine.connect().expect("a place");
    transact(&mut session, Isolation::ReadCommitted, |s| {
        s.create_table(def.clone(), vec![index(&format!("{name}_pkey"), 0, kind, true)])
    })
    .expect("creates");
}

fn table(session: &Session, name: &str) -> Arc<Table> {
    session.schema().table(name).expect("created").clone()
}

/// Runs one statement to its commit, waiting and starting anew as a server would. Errors roll back.
pub fn transact<T>(
    session: &mut Session,
    isolation: Isolation,
    mut statement: impl FnMut(&mut Session) -> Result<T, Stop>,
) -> Result<T, Error> {
    session.begin(isolation, false);
    let done = loop {
        session.begin_statement();
        match statement(session) {
            Ok(done) => break done,
            Err(Stop::Wait(mut token)) => {
                assert!(token.block(Some(FOR_EVER)), "a wait for ever");
                session.rollback_statement();
            }
            Err(Stop::Error(error)) => {
                session.rollback();
                return Err(error);
            }
        }
    };
    loop {
        match session.commit() {
            Ok(_) => return Ok(done),
            Err(Stop::Wait(mut token)) => assert!(token.block(Some(FOR_EVER)), "a wait for ever"),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

fn find(session: &mut Session, table: &Table, id: i64) -> Option<RowId> {
    session.get(table, &table.indexes[0], |_| Value::Int(id), &mut Row::default())
}

/// Adds to a row's number, on the newest version.
fn add(session: &mut Session, name: &str, id: i64, amount: i64) -> Result<i64, Stop> {
    let table = table(session, name);
    let at = find(session, &table, id).expect("the row is there");
    let mut old = Row::default();
    let locked = session.lock(&table, at, &mut old)?;
    assert!(locked != Locked::Gone);
    let Value::Int(n) = old.get(&table.layout, 1) else { panic!("a number") };
    let mut new = old.clone();
    new.set(&table.layout, 1, &Value::Int(n + amount));
    session.update(&table, at, &old, &mut new)?;
    Ok(n + amount)
}

/// Number of rows and sum of their numbers, as one snapshot sees them.
pub fn count_and_sum(session: &mut Session, name: &str) -> (u64, i64) {
    let table = table(session, name);
    let (mut cursor, mut row, mut count, mut sum) = (TableCursor::default(), Row::default(), 0, 0);
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        let Value::Int(n) = row.get(&table.layout, 1) else { panic!("a number") };
        count += 1;
        sum += n;
    }
    (count, sum)
}

pub fn read<T>(session: &mut Session, read: impl FnOnce(&mut Session) -> T) -> T {
    session.begin_read();
    session.begin_statement();
    let result = read(session);
    session.commit().map(drop).expect("a read commits");
    result
}

/// Rows that everyone sees: other sessions read at the durable horizon.
pub fn fill(engine: &Engine, name: &str, rows: i64, n: i64) {
    let mut session = engine.connect().expect("a place");
    transact(&mut session, Isolation::ReadCommitted, |s| {
        (0..rows).try_for_each(|id| insert_into(s, name, &[id, n], None).map(drop))
    })
    .expect("inserts");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    count_and_sum(&mut session, name);
    let seen = session.commit().expect("a read commits");
    engine.wait_durable(seen.cts).wait().expect("becomes durable");
}

#[test]
fn transfers_keep_their_sum_under_readers_checkpoints_and_garbage_collection() {
    const ACCOUNTS: i64 = 20;
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 2);
    create(&engine, "accounts", IndexKind::Hash, false);
    fill(&engine, "accounts", ACCOUNTS, 100);
    let (done, transfers, deadlocks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|seed| {
                let (engine, transfers, deadlocks) = (&engine, &transfers, &deadlocks);
                scope.spawn(move || {
                    let mut session = engine.connect().expect("a place");
                    let mut dice = Dice(seed);
                    for _ in 0..400 {
                        let (from, to) = (dice.below(ACCOUNTS as u64) as i64, dice.below(ACCOUNTS as u64) as i64);
                        let isolation =
                            if dice.one_in(3) { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
                        let moved = transact(&mut session, isolation, |s| {
                            add(s, "accounts", from, -7)?;
                            add(s, "accounts", to, 7)
                        });
                        match moved {
                            Ok(_) => transfers.fetch_add(1, Ordering::Relaxed),
                            Err(Error::Deadlock(_) | Error::Serialization) => deadlocks.fetch_add(1, Ordering::Relaxed),
                            Err(error) => panic!("{error}"),
                        };
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut session = engine.connect().expect("a place");
            while !done.load(Ordering::Relaxed) {
                let sum = read(&mut session, |s| count_and_sum(s, "accounts"));
                assert_eq!(sum, (ACCOUNTS as u64, ACCOUNTS * 100));
                session.begin(Isolation::RepeatableRead, true);
                for _ in 0..3 {
                    session.begin_statement();
                    assert_eq!(count_and_sum(&mut session, "accounts"), (ACCOUNTS as u64, ACCOUNTS * 100));
                }
                session.commit().map(drop).expect("a read commits");
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                engine.checkpoint().expect("a checkpoint");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|e| e.expect("a writer ends well"));
    });
    assert!(transfers.load(Ordering::Relaxed) > 600, "{transfers:?} transfers, {deadlocks:?} deadlocks");
    drop(engine);
    let engine = open(dir.path(), 2);
    let mut session = engine.connect().expect("a place");
    assert_eq!(read(&mut session, |s| count_and_sum(s, "accounts")), (ACCOUNTS as u64, ACCOUNTS * 100));
}

/// Writers over many pages, tables that come, are emptied and go, paced and unthrottled checkpoints on four lanes over tiny segments: after each of
/// several lives everything is there, and nothing else.
#[test]
fn lives_with_incremental_checkpoints_keep_every_row() {
    const ROWS: i64 = 5000;
    let dir = tempfile::tempdir().expect("a directory");
    let backup_dirs = [0, 1].map(|i| dir.path().join(format!("backup{i}"))).to_vec();
    let usual = Options { backup_dirs, image_segment_bytes: 256 << 10, ..options(dir.path(), 2) };
    let engine = Engine::open(usual.clone()).expect("opens");
    create(&engine, "t", IndexKind::Hash, false);
    fill(&engine, "t", ROWS, 100);
    drop(engine);
    for life in 0..3 {
        let engine = Engine::open(usual.clone()).expect("opens");
        assert_eq!(
            engine.connect().map(|mut s| read(&mut s, |s| count_and_sum(s, "t"))),
            Ok((ROWS as u64, ROWS * 100))
        );
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|thread| {
                    let engine = &engine;
                    scope.spawn(move || {
                        let mut session = engine.connect().expect("a place");
                        let mut dice = Dice(life * 10 + thread);
                        let is_enough = |round| round >= 600 && engine.stats().checkpoints >= 4;
                        for round in (0..).take_while(|&round| !is_enough(round)) {
                            // Now near each other, now anywhere: pages are clean for a while.
                            let near = if round % 200 < 150 { 40 } else { ROWS as u64 };
                            let (from, to) = (dice.below(near) as i64, dice.below(near) as i64);
                            let moved = transact(&mut session, Isolation::ReadCommitted, |s| {
                                add(s, "t", from, -3)?;
                                add(s, "t", to, 3)
                            });
                            assert!(matches!(moved, Ok(_) | Err(Error::Deadlock(_))), "{moved:?}");
                        }
                    })
                })
                .collect();
            let ddl = scope.spawn(|| {
                for round in 0..6 {
                    let name = format!("u{round}");
                    create(&engine, &name, IndexKind::Hash, false);
                    fill(&engine, &name, 400, 1);
                    let mut session = engine.connect().expect("a place");
                    transact(&mut session, Isolation::ReadCommitted, |s| s.truncate(&name)).expect("truncates");
                    fill(&engine, &name, 30, 2);
                    transact(&mut session, Isolation::ReadCommitted, |s| s.drop_table(&name)).expect("drops");
                }
            });
            scope.spawn(|| {
                for round in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    engine.set_checkpoint_pace(if round % 2 == 0 { 8 << 20 } else { 0 });
                    engine.request_checkpoint_within(Duration::from_secs(5));
                    engine.checkpoint().expect("a checkpoint");
                }
            });
            let ended: Vec<_> = writers.into_iter().chain([ddl]).map(|w| w.join()).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|e| e.expect("a writer ends well"));
        });
    }
    let engine = Engine::open(usual).expect("opens");
    let mut session = engine.connect().expect("a place");
    assert_eq!(read(&mut session, |s| count_and_sum(s, "t")), (ROWS as u64, ROWS * 100));
    assert_eq!(engine.schema().tables().count(), 1);
}

/// A program on a machine of few cores drives thousands of sessions from as few threads; its log disks are none the fewer for it.
#[test]
fn sessions_of_one_thread_use_every_device() {
    const DEVICES: usize = 4;
    /// Of which no byte is zero, as the log leaves zero bytes out.
    const MARK: i64 = i64::from_le_bytes(*b"all used");
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(Options { log_size_bytes: 16 << 20, ..options(dir.path(), DEVICES) }).expect("opens");
    create(&engine, "t", IndexKind::Hash, false);
    let mut sessions = Vec::new();
    for id in 0..2 * DEVICES as i64 {
        let mut session = engine.connect().expect("a place");
        transact(&mut session, Isolation::ReadCommitted, |s| insert_into(s, "t", &[id, MARK], None).map(drop))
            .expect("inserts");
        sessions.push(session);
    }
    drop(sessions);
    // Closing flushes everything.
    drop(engine);
    for device in 0..DEVICES {
        let files = std::fs::read_dir(dir.path().join(format!("log{device}"))).expect("lists");
        let bytes = files.flat_map(|file| std::fs::read(file.expect("an entry").path()).expect("reads"));
        let bytes: Vec<u8> = bytes.collect();
        assert!(bytes.windows(8).any(|bytes| bytes == MARK.to_le_bytes()), "device {device} has no commit");
    }
}

#[test]
fn increments_of_one_hot_row_are_all_counted() {
    const THREADS: i64 = 4;
    const EACH: i64 = 400;
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 1);
    create(&engine, "hot", IndexKind::BTree, false);
    fill(&engine, "hot", 1, 0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut session = engine.connect().expect("a place");
                let mut last = 0;
                for _ in 0..EACH {
                    let now = transact(&mut session, Isolation::ReadCommitted, |s| add(s, "hot", 0, 1)).expect("adds");
                    assert!(now > last, "a session's next snapshot covers its last commit");
                    last = now;
                }
            });
        }
    });
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    assert_eq!(count_and_sum(&mut session, "hot"), (1, THREADS * EACH));
    session.rollback();
    drop((session, engine));
    let engine = open(dir.path(), 1);
    assert_eq!(read(&mut engine.connect().expect("a place"), |s| count_and_sum(s, "hot")), (1, THREADS * EACH));
}

/// Long values of a row are written by whoever has the row's lock; its last holder could still be letting go of them. Transactions
/// of many rows, whose locks go one after another, by sessions that do not queue: so a lock changes hands at the stamp and not behind it.
#[test]
fn long_values_of_hot_rows_go_with_their_locks() {
    const ROWS: i64 = 40;
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 1);
    create(&engine, "t", IndexKind::Hash, true);
    let mut session = engine.connect().expect("a place");
    transact(&mut session, Isolation::ReadCommitted, |s| {
        (0..ROWS).try_for_each(|id| insert_into(s, "t", &[id, 1], Some(&note_of(id, 1))).map(drop))
    })
    .expect("inserts");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let engine = &engine;
            scope.spawn(move || {
                let mut session = engine.connect().expect("a place");
                for round in 0..150 {
                    session.begin(Isolation::ReadCommitted, false);
                    session.set_nowait(true);
                    session.begin_statement();
                    let changed =
                        (0..ROWS).filter(|id| change(&mut session, *id, 0, 7, 5 + (thread + round + id) % 20).is_ok());
                    let changed = changed.count();
                    if round % 5 == 0 || changed == 0 {
                        session.rollback();
                        continue;
                    }
                    while let Err(Stop::Wait(mut token)) = session.commit() {
                        assert!(token.block(Some(FOR_EVER)), "a wait for ever");
                    }
                }
            });
        }
    });
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    assert_eq!(whole_rows(&mut session).len(), ROWS as usize);
}

/// A writer that met a closed gate withdrew its announcement and waited; DDL that had seen the announcement waited for the writer. One of them was
/// told of a deadlock.
#[test]
fn writers_beside_ddl_are_not_told_of_deadlocks() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 1);
    create(&engine, "t", IndexKind::Hash, false);
    create(&engine, "u", IndexKind::Hash, false);
    fill(&engine, "t", 4, 0);
    fill(&engine, "u", 4, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (engine, done) = (&engine, &done);
                scope.spawn(move || {
                    let mut session = engine.connect().expect("a place");
                    while !done.load(Ordering::Relaxed) {
                        transact(&mut session, Isolation::ReadCommitted, |s| {
                            add(s, "u", thread, 1)?;
                            add(s, "t", thread, 1)
                        })
                        .expect("a writer beside DDL waits and goes on");
                    }
                })
            })
            .collect();
        let ddl = scope.spawn(|| {
            let mut session = engine.connect().expect("a place");
            for _ in 0..200 {
                transact(&mut session, Isolation::ReadCommitted, |s| {
                    s.create_index("t", index("t_n", 1, IndexKind::Hash, false))
                })
                .expect("creates");
                transact(&mut session, Isolation::ReadCommitted, |s| s.drop_index("t_n")).expect("drops");
            }
        });
        let ended = ddl.join();
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|w| w.join().expect("a writer ends well"));
        ended.expect("DDL ends well");
    });
}

#[test]
fn of_several_inserters_of_a_key_exactly_one_wins() {
    const KEYS: i64 = 150;
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path(), 2);
        create(&engine, "t", kind, false);
        let (wins, sum) = (AtomicU64::new(0), AtomicI64::new(0));
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let (engine, wins, sum) = (&engine, &wins, &sum);
                scope.spawn(move || {
                    let mut session = engine.connect().expect("a place");
                    let mut dice = Dice(thread as u64);
                    for id in 0..KEYS {
                        let roll_back = dice.one_in(3);
                        let inserted = transact(&mut session, Isolation::ReadCommitted, |s| {
                            insert_into(s, "t", &[id, thread], None)?;
                            if roll_back { Err(Error::Serialization.into()) } else { Ok(()) }
                        });
                        match inserted {
                            Ok(()) => {
                                wins.fetch_add(1, Ordering::Relaxed);
                                sum.fetch_add(thread, Ordering::Relaxed);
                            }
                            Err(Error::UniqueViolation { .. } | Error::Serialization) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        drop(engine);
        let engine = open(dir.path(), 2);
        let mut session = engine.connect().expect("a place");
        let seen = read(&mut session, |s| count_and_sum(s, "t"));
        assert_eq!(seen, (wins.into_inner(), sum.into_inner()));
        let table = table(&session, "t");
        let mut keys = std::collections::BTreeSet::new();
        read(&mut session, |s| {
            let (mut cursor, mut row) = (TableCursor::default(), Row::default());
            while s.scan_next(&table, &mut cursor, &mut row).is_some() {
                let Value::Int(id) = row.get(&table.layout, 0) else { panic!("a number") };
                assert!(keys.insert(id), "{id} twice");
            }
        });
    }
}

/// Sessions that take several locks in any order, give up waiting at random, and meet deadlocks: everyone gets on, and every change that was
/// committed is counted.
#[test]
fn locks_are_handed_on_through_cancels_and_deadlocks() {
    const ROWS: u64 = 4;
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 1);
    create(&engine, "t", IndexKind::Hash, false);
    fill(&engine, "t", ROWS as i64, 0);
    let total = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (engine, total) = (&engine, &total);
            scope.spawn(move || {
                let mut session = engine.connect().expect("a place");
                let mut dice = Dice(seed);
                for _ in 0..250 {
                    session.begin(Isolation::ReadCommitted, false);
                    let mut added = 0;
                    'statements: for _ in 0..3 {
                        let id = dice.below(ROWS) as i64;
                        loop {
                            session.begin_statement();
                            match add(&mut session, "t", id, 1) {
                                Ok(_) => break,
                                Err(Stop::Wait(mut token)) => {
                                    let gives_up = dice.one_in(4);
                                    let limit =
                                        if gives_up { Duration::from_micros(dice.below(200)) } else { FOR_EVER };
                                    let told = token.block(Some(limit));
                                    assert!(told || gives_up, "a wait for ever");
                                    session.rollback_statement();
                                    if !told {
                                        session.abandon_wait();
                                        continue 'statements;
                                    }
                                }
                                Err(Stop::Error(Error::Deadlock(_))) => {
                                    session.rollback();
                                    added = 0;
                                    break 'statements;
                                }
                                Err(Stop::Error(error)) => panic!("{error}"),
                            }
                        }
                        added += 1;
                    }
                    if !session.in_transaction() {
                        continue;
                    }
                    if dice.one_in(5) {
                        session.rollback();
                        continue;
                    }
                    while let Err(Stop::Wait(mut token)) = session.commit() {
                        assert!(token.block(Some(FOR_EVER)), "a wait for ever");
                    }
                    total.fetch_add(added, Ordering::Relaxed);
                }
            });
        }
    });
    drop(engine);
    let engine = open(dir.path(), 1);
    let seen = read(&mut engine.connect().expect("a place"), |s| count_and_sum(s, "t"));
    assert_eq!(seen, (ROWS, total.into_inner()));
}

/// DDL takes the table alone while writers come and go; whatever they wrote before and after is in the index, and no writer is refused.
#[test]
fn an_index_created_while_writers_run_has_every_row() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 2);
    create(&engine, "t", IndexKind::Hash, false);
    fill(&engine, "t", 50, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let engine = &engine;
                scope.spawn(move || {
                    let mut session = engine.connect().expect("a place");
                    let mut dice = Dice(thread);
                    for round in 0..300 {
                        let id = dice.below(50) as i64;
                        let new = 100 + thread as i64 * 10_000 + round;
                        let wrote = transact(&mut session, Isolation::ReadCommitted, |s| {
                            insert_into(s, "t", &[new, round], None)?;
                            add(s, "t", id, 1)
                        });
                        wrote.expect("a writer beside DDL waits and goes on");
                    }
                })
            })
            .collect();
        let indexer = scope.spawn(|| {
            let mut session = engine.connect().expect("a place");
            for round in 0.. {
                let kind = if round % 2 == 0 { IndexKind::BTree } else { IndexKind::Hash };
                transact(&mut session, Isolation::ReadCommitted, |s| s.create_index("t", index("t_n", 1, kind, false)))
                    .expect("creates");
                check_index(&mut session);
                if done.load(Ordering::Relaxed) {
                    break;
                }
                transact(&mut session, Isolation::ReadCommitted, |s| s.drop_index("t_n")).expect("drops");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|e| e.expect("a writer ends well"));
        indexer.join().expect("DDL ends well");
    });
    let mut session = engine.connect().expect("a place");
    check_index(&mut session);
    drop((session, engine));
    let engine = open(dir.path(), 2);
    let mut session = engine.connect().expect("a place");
    assert_eq!(read(&mut session, |s| count_and_sum(s, "t")).0, 650);
    check_index(&mut session);
}

/// Every row of one snapshot is found through the last index.
fn check_index(session: &mut Session) {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = table(session, "t");
    let index = table.indexes.last().expect("there is one");
    let (mut cursor, mut row, mut candidates) = (TableCursor::default(), Row::default(), Vec::new());
    while let Some(id) = session.scan_next(&table, &mut cursor, &mut row) {
        let ids = row_of_ids(&table, &row);
        candidates.clear();
        session.lookup(&table, index, |_| Value::Int(ids[usize::from(index.def.columns[0].column)]), &mut candidates);
        assert!(candidates.contains(&id), "{} leads to {ids:?}", index.def.name);
    }
    session.commit().map(drop).expect("a read commits");
}

/// Sessions insert, move, change and delete rows of the same few keys, with values in slots of their own, and roll back at random. Every snapshot
/// has each key at most once and each row whole; in the end every index has exactly the rows' entries, and a reopen finds the same.
#[test]
fn rows_of_few_keys_stay_unique_whole_and_indexed() {
    const KEYS: u64 = 16;
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path(), 2);
        create(&engine, "t", kind, true);
        let mut session = engine.connect().expect("a place");
        for (name, column, kind) in [("t_n", 1, IndexKind::BTree), ("t_note", 2, IndexKind::Hash)] {
            transact(&mut session, Isolation::ReadCommitted, |s| s.create_index("t", index(name, column, kind, false)))
                .expect("creates");
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|seed| {
                    let engine = &engine;
                    scope.spawn(move || {
                        let mut session = engine.connect().expect("a place");
                        let mut dice = Dice(seed + 7);
                        for _ in 0..1000 {
                            let (key, to, what, n) =
                                (dice.below(KEYS) as i64, dice.below(KEYS) as i64, dice.below(8), dice.below(200));
                            let roll_back = dice.one_in(5);
                            let changed = transact(&mut session, Isolation::ReadCommitted, |s| {
                                change(s, key, to, what, n as i64)?;
                                if roll_back { Err(Error::Serialization.into()) } else { Ok(()) }
                            });
                            match changed {
                                Ok(())
                                | Err(Error::UniqueViolation { .. } | Error::Serialization | Error::Deadlock(_)) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut session = engine.connect().expect("a place");
                for round in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    if round % 2 == 0 {
                        read(&mut session, whole_rows);
                    } else {
                        session.begin(Isolation::RepeatableRead, true);
                        session.begin_statement();
                        let seen = whole_rows(&mut session);
                        session.begin_statement();
                        assert_eq!(whole_rows(&mut session), seen, "a snapshot does not move");
                        session.commit().map(drop).expect("a read commits");
                    }
                }
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    engine.checkpoint().expect("a checkpoint");
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|e| e.expect("a writer ends well"));
        });
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let seen = whole_rows(&mut session);
        let committed = session.commit().expect("a read commits");
        engine.wait_durable(committed.cts).wait().expect("becomes durable");
        let table = table(&session, "t");
        let is_clean = || table.indexes.iter().all(|i| i.entries() == seen.len() as u64);
        let give_up = std::time::Instant::now() + FOR_EVER;
        while !is_clean() && std::time::Instant::now() < give_up {
            engine.step();
            std::thread::yield_now();
        }
        assert!(is_clean(), "{} rows, indexes {:?}", seen.len(), table.indexes);
        drop((session, table, engine));
        let engine = open(dir.path(), 2);
        assert_eq!(read(&mut engine.connect().expect("a place"), whole_rows), seen);
    }
}

/// A note that says whose it is, long enough to lie in a slot of its own more often than not.
fn note_of(key: i64, n: i64) -> String {
    format!("{key}/{n};").repeat(1 + n as usize)
}

fn change(session: &mut Session, key: i64, to: i64, what: u64, n: i64) -> Result<(), Stop> {
    let table = table(session, "t");
    let Some(at) = find(session, &table, key) else {
        return insert_into(session, "t", &[key, n], Some(&note_of(key, n))).map(drop);
    };
    let mut old = Row::default();
    // Another's key by now, or nobody's: not what was asked for.
    if session.lock(&table, at, &mut old)? == Locked::Gone || row_of_ids(&table, &old)[0] != key {
        return Ok(());
    }
    if what < 2 {
        return session.delete(&table, at, &old);
    }
    let id = if what < 4 { to } else { key };
    let mut new = old.clone();
    new.set(&table.layout, 0, &Value::Int(id));
    new.set(&table.layout, 1, &Value::Int(n));
    new.set(&table.layout, 2, &Value::Bytes(note_of(id, n).as_bytes()));
    session.update(&table, at, &old, &mut new)
}

/// The rows of a snapshot by key, each checked against what its note says.
fn whole_rows(session: &mut Session) -> std::collections::BTreeMap<i64, i64> {
    let table = table(session, "t");
    let (mut cursor, mut row) = (TableCursor::default(), Row::default());
    let mut rows = std::collections::BTreeMap::new();
    while let Some(at) = session.scan_next(&table, &mut cursor, &mut row) {
        session.fetch_long(&table, &mut row, 2);
        let [id, n] = row_of_ids(&table, &row);
        assert_eq!(row.get(&table.layout, 2), Value::Bytes(note_of(id, n).as_bytes()), "a whole row");
        assert!(rows.insert(id, n).is_none(), "key {id} twice in one snapshot");
        assert_eq!(find(session, &table, id), Some(at), "the key leads to its row");
    }
    rows
}

/// Adds to a row's number in one go; false if that is left to the longer way.
fn add_once(session: &mut Session, name: &str, id: i64) -> bool {
    let table = table(session, name);
    let Some(change) = Change::new(&table, &table.indexes[0], &[1], &[1]) else { return false };
    let done = session.change_once(&change, id, |old, new| {
        let Value::Int(n) = old.get(&table.layout, 1) else { panic!("a number") };
        new.set(&table.layout, 1, &Value::Int(n + 1));
        true
    });
    done.is_some()
}

/// Short changes, locks, held snapshots, an index that comes and goes, and a restart: every addition is there once, and every version right.
#[test]
fn short_and_long_changes_of_few_rows_are_all_counted_beside_readers_and_ddl() {
    const ROWS: i64 = 12;
    const EACH: u64 = 6_000;
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path(), 2);
        create(&engine, "t", kind, false);
        fill(&engine, "t", ROWS, 0);
        let (short, added, over) = (AtomicU64::new(0), AtomicI64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    let (engine, short, added) = (&engine, &short, &added);
                    scope.spawn(move || {
                        let mut session = engine.connect().expect("a place");
                        let mut dice = Dice(writer + 77);
                        for turn in 0..EACH {
                            let id = dice.below(ROWS as u64) as i64;
                            if turn % 8 != 0 && add_once(&mut session, "t", id) {
                                short.fetch_add(1, Ordering::Relaxed);
                                added.fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                            // Two rows in one transaction, in the order that makes no deadlock.
                            transact(&mut session, Isolation::ReadCommitted, |s| {
                                add(s, "t", id, 1)?;
                                if id + 1 < ROWS { add(s, "t", id + 1, 1) } else { Ok(0) }
                            })
                            .expect("adds");
                            added.fetch_add(1 + i64::from(id + 1 < ROWS), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut session = engine.connect().expect("a place");
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    session.begin(Isolation::RepeatableRead, true);
                    session.begin_statement();
                    let (first, again) = (count_and_sum(&mut session, "t"), count_and_sum(&mut session, "t"));
                    session.rollback();
                    assert_eq!(first, again, "a snapshot stays");
                    assert!(first.0 == ROWS as u64 && first.1 >= last, "{first:?} after {last}");
                    last = first.1;
                }
            });
            scope.spawn(|| {
                let mut session = engine.connect().expect("a place");
                while !over.load(Ordering::Relaxed) {
                    let made = index("t_n", 1, IndexKind::BTree, false);
                    transact(&mut session, Isolation::ReadCommitted, |s| s.create_index("t", made.clone()))
                        .expect("creates");
                    // Every row is found by the number that it has.
                    read(&mut session, |s| {
                        let t = table(s, "t");
                        let (mut cursor, mut row, mut candidates) =
                            (TableCursor::default(), Row::default(), Vec::new());
                        while let Some(id) = s.scan_next(&t, &mut cursor, &mut row) {
                            let Value::Int(n) = row.get(&t.layout, 1) else { panic!("a number") };
                            candidates.clear();
                            s.lookup(&t, &t.indexes[1], |_| Value::Int(n), &mut candidates);
                            assert!(candidates.contains(&id), "row {id:?} with {n}");
                        }
                    });
                    transact(&mut session, Isolation::ReadCommitted, |s| s.drop_index("t_n")).expect("drops");
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.expect("a writer does not panic"));
        });
        assert!(short.load(Ordering::Relaxed) > EACH, "most changes are short: {short:?}");
        let expected = (ROWS as u64, added.load(Ordering::Relaxed));
        // At the watermark: a read at the durable horizon may lack the last ones.
        let mut session = engine.connect().expect("a place");
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        assert_eq!(count_and_sum(&mut session, "t"), expected);
        session.rollback();
        let stats = engine.stats();
        assert!(stats.commit_records >= 3 * EACH, "short changes count as commits: {}", stats.commit_records);
        drop(session);
        drop(engine);
        let engine = open(dir.path(), 2);
        let mut session = engine.connect().expect("a place");
        assert_eq!(read(&mut session, |s| count_and_sum(s, "t")), expected);
    }
}

/// Who holds a row's lock, or waits for it, is not overtaken by a short change; a row that is not there is none's.
#[test]
fn a_short_change_leaves_locked_and_missing_rows_to_the_longer_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), 1);
    create(&engine, "t", IndexKind::Hash, false);
    fill(&engine, "t", 3, 0);
    let (mut a, mut b) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
    // Whoever has not written the table in this schema does so the longer way once.
    transact(&mut b, Isolation::ReadCommitted, |s| add(s, "t", 0, 1)).expect("adds");
    a.begin(Isolation::ReadCommitted, false);
    a.begin_statement();
    add(&mut a, "t", 1, 5).expect("nobody holds it");
    assert!(!add_once(&mut b, "t", 1), "another holds the lock");
    assert!(!add_once(&mut b, "t", 99), "it is not there");
    assert!(add_once(&mut b, "t", 2));
    a.commit().expect("commits");
    assert!(add_once(&mut b, "t", 1));
    b.begin(Isolation::ReadCommitted, false);
    assert!(!add_once(&mut b, "t", 1), "it is in a transaction");
    b.rollback();
    b.begin(Isolation::RepeatableRead, true);
    b.begin_statement();
    assert_eq!(count_and_sum(&mut b, "t"), (3, 1 + 5 + 1 + 1));
    b.rollback();
}
