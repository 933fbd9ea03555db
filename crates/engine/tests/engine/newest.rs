//! Reads of what is newest and durable, at a registration that follows the horizon: what they must see, what they must not, and what they keep.

use crate::world::{column, index};
use freshet_engine::catalog::{IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Change, Insertion, IntegerLookup, Isolation, Lookup, Session, Stop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

fn stepped() -> Engine {
    Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens")
}

/// A table `t` of `id` and `n`, found by hash.
fn create(engine: &Engine, pump: impl Fn()) -> Arc<Table> {
    let columns = vec![column("id", Type::Int8), column("n", Type::Int8)];
    let def = TableDef { name: "t".into(), columns, ..Default::default() };
    let mut session = engine.connect().expect("a place");
    let by_id = index("t_id", 0, IndexKind::Hash, true);
    transact(&mut session, pump, |s| s.create_table(def.clone(), vec![by_id.clone()]).map(drop));
    engine.schema().table("t").expect("created").clone()
}

/// A transaction of one statement that fails only where it must wait.
fn transact(session: &mut Session, pump: impl Fn(), mut work: impl FnMut(&mut Session) -> Result<(), Stop>) -> Cts {
    session.begin(Isolation::ReadCommitted, false);
    loop {
        session.begin_statement();
        match work(session) {
            Ok(()) => return commit(session, pump),
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                pump();
                token.block(None);
            }
            Err(Stop::Error(error)) => panic!("{error}"),
        }
    }
}

fn commit(session: &mut Session, pump: impl Fn()) -> Cts {
    loop {
        match session.commit() {
            Ok(committed) => return committed.cts,
            Err(Stop::Wait(mut token)) => {
                pump();
                token.block(None);
            }
            Err(Stop::Error(error)) => panic!("{error}"),
        }
    }
}

/// As a session's first write of a table goes, and every later one: in one go, or else the longer way.
fn write(session: &mut Session, table: &Arc<Table>, id: i64, n: i64, pump: impl Fn()) -> Cts {
    let change = Change::new(table, &table.indexes[0], &[], &[1]).expect("an integer names the row");
    let set = |_: &Row, row: &mut Row| {
        row.set(&table.layout, 1, &Value::Int(n));
        true
    };
    if let Some(done) = session.change_once(&change, id, set) {
        return done.cts;
    }
    let fill = |row: &mut Row| {
        row.set(&table.layout, 0, &Value::Int(id));
        row.set(&table.layout, 1, &Value::Int(n));
        true
    };
    if let Some((_, done)) = session.insert_once(&Insertion::new(table), fill) {
        return done.cts;
    }
    let by_id = Lookup::new(table, &table.indexes[0], [0, 1]);
    transact(session, pump, |session| {
        let (mut old, mut new) = (Row::default(), Row::new(&table.layout));
        fill(&mut new);
        match session.look_up(&by_id, |_| Value::Int(id), &mut old) {
            None => session.insert(table, &mut new).map(drop),
            Some(at) => session.lock(table, at, &mut old).and_then(|_| session.update(table, at, &old, &mut new)),
        }
    })
}

fn by_key(table: &Arc<Table>) -> IntegerLookup {
    IntegerLookup::new(table, &table.indexes[0], 1).expect("integers")
}

/// By each way that reads one row, and what the answers must wait for.
fn read_both(session: &mut Session, table: &Arc<Table>, id: i64) -> ([Option<i64>; 2], Cts) {
    let (integer, cts) = session.read_integer(&by_key(table), id).map_err(|_| "reads").expect("reads");
    let (lookup, mut row) = (Lookup::new(table, &table.indexes[0], [1]), Row::default());
    let (found, waits) = session.look_up_once(&lookup, id, &mut row).map_err(|_| "reads").expect("reads");
    let n = found.map(|_| match row.get(&table.layout, 1) {
        Value::Int(n) => n,
        other => panic!("{other:?}"),
    });
    ([integer.flatten(), n], cts.max(waits))
}

/// The same where nothing changes meanwhile.
fn read(session: &mut Session, table: &Arc<Table>, id: i64) -> (Option<i64>, Cts) {
    let ([integer, n], waits) = read_both(session, table, id);
    assert_eq!(n, integer);
    (n, waits)
}

#[test]
fn what_is_durable_is_seen_at_once_and_nothing_else_is() {
    let engine = stepped();
    let pump = || while engine.step() {};
    let table = create(&engine, pump);
    let (mut a, mut b) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
    write(&mut a, &table, 1, 0, pump);
    pump();
    for n in 1..200 {
        // The first read of a turn meets a moved horizon, the second one does not.
        for _ in 0..2 {
            assert_eq!(read(&mut b, &table, 1), (Some(n - 1), Cts::ZERO));
        }
        let cts = write(&mut a, &table, 1, n, pump);
        assert!(!engine.is_durable(cts), "the engine is stepped by hand");
        assert_eq!(read(&mut b, &table, 1), (Some(n - 1), Cts::ZERO), "the newest version is not durable");
        let (own, waits) = read(&mut a, &table, 1);
        assert_eq!((own, waits >= cts), (Some(n), true), "who wrote it sees it, and waits for it");
        if n % 3 == 0 {
            write(&mut a, &table, 1000 + n, n, pump);
        }
        pump();
        assert!(engine.is_durable(cts));
        if n % 3 == 0 {
            assert_eq!(read(&mut b, &table, 1000 + n), (Some(n), Cts::ZERO));
        }
    }
}

#[test]
fn a_session_that_only_reads_what_is_newest_holds_nothing_back() {
    let engine = stepped();
    let pump = || while engine.step() {};
    let table = create(&engine, pump);
    let (mut a, mut b, mut c) =
        (engine.connect().expect("a place"), engine.connect().expect("a place"), engine.connect().expect("a place"));
    (1..50).for_each(|id| _ = write(&mut a, &table, id, 0, pump));
    pump();
    read(&mut b, &table, 1);
    read(&mut c, &table, 1);
    let before = engine.stats().version_bytes;
    for n in 0..2_000 {
        write(&mut a, &table, 1 + n % 49, n, pump);
        pump();
        let seen = b.read_integer(&by_key(&table), 1 + n % 49).map_err(|_| "reads").expect("reads");
        assert_eq!(seen, (Some(Some(n)), Cts::ZERO));
    }
    pump();
    let after = engine.stats().version_bytes;
    assert!(after <= before + (64 << 10), "2,000 versions of 48 bytes and more were left: {before}, {after}");
    // One that rested meanwhile, and one that goes on to a snapshot of its own.
    assert_eq!(read(&mut c, &table, 5).1, Cts::ZERO);
    b.begin(Isolation::RepeatableRead, true);
    let old = b.find_integer(&by_key(&table), 1);
    write(&mut a, &table, 1, -1, pump);
    pump();
    assert_eq!(b.find_integer(&by_key(&table), 1), old);
    b.rollback();
    assert_eq!(read(&mut b, &table, 1), (Some(-1), Cts::ZERO));
}

#[test]
fn a_table_that_was_dropped_or_emptied_is_not_read_any_more() {
    let engine = stepped();
    let pump = || while engine.step() {};
    let table = create(&engine, pump);
    let (mut a, mut b) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
    write(&mut a, &table, 1, 7, pump);
    pump();
    assert_eq!(read(&mut b, &table, 1), (Some(7), Cts::ZERO));
    transact(&mut a, pump, |s| s.truncate("t"));
    pump();
    // Statements that were planned for the old table are not run against the new schema; what a new plan says:
    let emptied = engine.schema().table("t").expect("is there").clone();
    assert_eq!(read(&mut b, &emptied, 1).0, None);
    write(&mut a, &emptied, 1, 8, pump);
    pump();
    assert_eq!(read(&mut b, &emptied, 1), (Some(8), Cts::ZERO));
}

/// Whoever begins to read after a value was answered as durable sees that or a newer one, and none is seen before it is durable.
#[test]
fn readers_of_many_sessions_see_what_was_answered_before() {
    const SESSIONS: usize = 40;
    const ROWS: i64 = 4;
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        Options { direct_io: false, sessions_max: 3 * SESSIONS as u32, ..Options::small(dir.path().join("data")) };
    let engine = Engine::open(options).expect("opens");
    let table = create(&engine, || ());
    let mut writer = engine.connect().expect("a place");
    let mut last = Cts::ZERO;
    (0..ROWS).for_each(|id| last = write(&mut writer, &table, id, 0, || ()));
    engine.wait_durable(last).wait().expect("writes");
    let answered: [AtomicI64; ROWS as usize] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut sessions: Vec<Session> =
                        (0..SESSIONS).map(|_| engine.connect().expect("a place")).collect();
                    let mut reads = 0u64;
                    let mut seen = [[0; ROWS as usize]; SESSIONS];
                    while !stop.load(Ordering::Relaxed) {
                        for (session, seen) in sessions.iter_mut().zip(&mut seen) {
                            let id = (reads % ROWS as u64) as i64;
                            let least = answered[id as usize].load(Ordering::Acquire);
                            let (both, waits) = read_both(session, &table, id);
                            let [first, second] = both.map(|n| n.expect("the row is there"));
                            let known = least.max(seen[id as usize]);
                            assert!(known <= first && first <= second, "{first} and {second} after {known}");
                            assert_eq!(waits, Cts::ZERO, "who only reads waits for nothing");
                            seen[id as usize] = second;
                            reads += 1;
                        }
                    }
                    reads
                })
            })
            .collect();
        for n in 1..=600 {
            let id = n % ROWS;
            let cts = write(&mut writer, &table, id, n, || ());
            engine.wait_durable(cts).wait().expect("writes");
            answered[id as usize].store(n, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
        let reads: u64 = readers.into_iter().map(|reader| reader.join().expect("reads")).sum();
        assert!(reads > 1_000, "{reads}");
    });
}
