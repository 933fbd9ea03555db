//! Changes of one row in one go: inserts and deletes among threads, what they leave to the longer way; integers by key.

use crate::model::Dice;
use crate::world::{column, index};
use freshet_engine::catalog::{IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Change, Error, Insertion, IntegerLookup, Isolation, Session, Stop, Strength, TableCursor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Engine {
    let options = Options { direct_io: false, stage_limit_bytes: 512 << 10, ..Options::small(dir.join("data")) };
    Engine::open(options).expect("opens")
}

fn stepped() -> Engine {
    Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens")
}

/// What lets time pass before a wait: an engine without threads is stepped.
type Pump<'a> = &'a (dyn Fn() + Sync);

/// A table `t` of `id` and `n`, both integers, `n` may be null.
fn create(pump: Pump<'_>, engine: &Engine, indexes: Vec<IndexDef>) {
    let def = TableDef {
        name: "t".into(),
        columns: vec![column("id", Type::Int8), column("n", Type::Int8)],
        ..Default::default()
    };
    let mut session = engine.connect().expect("a place");
    transact(pump, &mut session, |s| s.create_table(def.clone(), indexes.clone()).map(drop)).expect("creates");
}

fn table(session: &Session) -> Arc<Table> {
    session.schema().table("t").expect("created").clone()
}

fn transact(
    pump: Pump<'_>,
    session: &mut Session,
    mut work: impl FnMut(&mut Session) -> Result<(), Stop>,
) -> Result<(), Error> {
    session.begin(Isolation::ReadCommitted, false);
    loop {
        session.begin_statement_at_newest();
        match work(session) {
            Ok(()) => break,
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                pump();
                assert!(token.block(Some(FOR_EVER)), "a wait for ever");
            }
            Err(Stop::Error(error)) => {
                session.rollback();
                return Err(error);
            }
        }
    }
    loop {
        match session.commit() {
            Ok(_) => return Ok(()),
            Err(Stop::Wait(mut token)) => {
                pump();
                assert!(token.block(Some(FOR_EVER)), "a wait for ever");
            }
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

fn set(row: &mut Row, table: &Table, id: i64, n: i64) {
    row.set(&table.layout, 0, &Value::Int(id));
    row.set(&table.layout, 1, &Value::Int(n));
}

fn insert_once(session: &mut Session, id: i64, n: i64) -> bool {
    let table = table(session);
    let done = session.insert_once(&Insertion::new(&table), |row| {
        set(row, &table, id, n);
        true
    });
    done.is_some()
}

fn insert_longer(pump: Pump<'_>, session: &mut Session, id: i64, n: i64) -> Result<(), Error> {
    transact(pump, session, |s| {
        let table = table(s);
        let mut row = Row::new(&table.layout);
        set(&mut row, &table, id, n);
        s.insert(&table, &mut row).map(drop)
    })
}

fn delete_once(session: &mut Session, id: i64) -> bool {
    let table = table(session);
    let deletion = Change::deletion(&table, &table.indexes[0]).expect("an integer names the row");
    session.delete_once(&deletion, id).is_some()
}

/// True if the row was there.
fn delete_longer(pump: Pump<'_>, session: &mut Session, id: i64) -> bool {
    let mut was_there = false;
    transact(pump, session, |s| {
        let (table, mut row) = (table(s), Row::default());
        let found = s.lock_by_key(&table, &table.indexes[0], |_| Value::Int(id), Strength::Update, &mut row)?;
        was_there = found.is_some();
        found.map_or(Ok(()), |at| s.delete(&table, at, &row))
    })
    .expect("deletes");
    was_there
}

/// The ids that one snapshot sees by a scan, in order.
fn ids(session: &mut Session) -> Vec<i64> {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let (table, mut cursor, mut row, mut ids) = (table(session), TableCursor::default(), Row::default(), Vec::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        let Value::Int(id) = row.get(&table.layout, 0) else { panic!("a number") };
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut Row::default());
        assert!(found.is_some(), "{id} is found by its key");
        ids.push(id);
    }
    session.rollback();
    ids.sort_unstable();
    ids
}

fn keys(kind: IndexKind) -> Vec<IndexDef> {
    vec![index("t_pkey", 0, kind, true), index("t_n", 1, IndexKind::BTree, false)]
}

/// Threads insert and delete the same few keys, in one go where they can: a key is there as often as it was inserted more often than deleted, no snapshot
/// sees one twice, and so it is after a restart.
#[test]
fn rows_that_come_and_go_in_one_go_are_there_once() {
    const KEYS: i64 = 24;
    const EACH: u64 = 6_000;
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path());
        let pump: Pump<'_> = &|| {};
        create(pump, &engine, keys(kind));
        let there: Vec<AtomicI64> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
        let (short, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (engine, there, short) = (&engine, &there, &short);
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    scope.spawn(move || {
                        let mut session = engine.connect().expect("a place");
                        let mut dice = Dice(writer + 5);
                        for turn in 0..EACH {
                            let id = dice.below(KEYS as u64) as i64;
                            let (inserts, is_short) = (dice.below(2) == 0, turn % 8 != 0);
                            let done = is_short
                                && if inserts {
                                    insert_once(&mut session, id, turn as i64)
                                } else {
                                    delete_once(&mut session, id)
                                };
                            short.fetch_add(u64::from(done), Ordering::Relaxed);
                            let done = done
                                || match inserts {
                                    false => delete_longer(pump, &mut session, id),
                                    true => match insert_longer(pump, &mut session, id, turn as i64) {
                                        Ok(()) => true,
                                        Err(Error::UniqueViolation { .. }) => false,
                                        Err(error) => panic!("{error}"),
                                    },
                                };
                            there[id as usize]
                                .fetch_add(i64::from(done) * if inserts { 1 } else { -1 }, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut session = engine.connect().expect("a place");
                while !over.load(Ordering::Relaxed) {
                    let seen = ids(&mut session);
                    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "a key twice: {seen:?}");
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, Ordering::Relaxed);
            ended.into_iter().chain([reader.join()]).for_each(|ended| ended.expect("nobody panics"));
        });
        let expected: Vec<i64> = (0..KEYS).filter(|&id| there[id as usize].load(Ordering::Relaxed) == 1).collect();
        assert!(there.iter().all(|n| (0..2).contains(&n.load(Ordering::Relaxed))), "{there:?}");
        assert!(short.load(Ordering::Relaxed) > EACH / 2, "many changes are short: {short:?}");
        assert_eq!(ids(&mut engine.connect().expect("a place")), expected);
        drop(engine);
        assert_eq!(ids(&mut open(dir.path()).connect().expect("a place")), expected);
    }
}

/// A row that one of two unique indexes refuses leaves no trace in the other, nor does one whose key another inserts just now; its slot is used again.
#[test]
fn an_insert_that_is_refused_leaves_nothing() {
    let engine = stepped();
    let pump: Pump<'_> = &|| while engine.step() {};
    create(pump, &engine, vec![index("t_pkey", 0, IndexKind::Hash, true), index("t_n", 1, IndexKind::BTree, true)]);
    let (mut a, mut b) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
    insert_longer(pump, &mut a, 1, 10).expect("inserts");
    insert_longer(pump, &mut b, 2, 20).expect("inserts");
    assert!(!insert_once(&mut b, 3, 10), "10 is there");
    assert!(!insert_once(&mut b, 1, 30), "1 is there");
    let slots = table(&b).slots();
    assert!(insert_once(&mut b, 3, 30), "neither is there");
    a.begin(Isolation::ReadCommitted, false);
    a.begin_statement_at_newest();
    let (t, mut row) = (table(&a), Row::new(&table(&a).layout));
    set(&mut row, &t, 4, 40);
    a.insert(&t, &mut row).expect("inserts");
    assert!(!insert_once(&mut b, 5, 40), "40 is undecided");
    assert!(!delete_once(&mut b, 4), "it is not there yet");
    a.rollback();
    assert!(insert_once(&mut b, 5, 40));
    assert!(!delete_once(&mut b, 4) && delete_once(&mut b, 2) && !delete_once(&mut b, 2));
    assert!(matches!(insert_longer(pump, &mut a, 5, 50), Err(Error::UniqueViolation { .. })));
    assert!(insert_once(&mut b, 2, 20), "what was deleted may come again");
    while engine.step() {}
    assert_eq!(ids(&mut b), [1, 2, 3, 5]);
    assert!(table(&b).slots() <= slots + 3, "slots of refused rows are used again");
    let entries: u64 = table(&b).indexes.iter().map(|index| index.entries()).sum();
    assert_eq!(entries, 8, "an entry for each row and index");
}

/// Nobody else's uncommitted version, nothing newer than the snapshot, nulls as such; found by hash and by tree.
#[test]
fn an_integer_by_key_is_that_of_the_version_which_is_seen() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let engine = stepped();
        let pump: Pump<'_> = &|| while engine.step() {};
        create(pump, &engine, keys(kind));
        let (mut a, mut b) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
        insert_longer(pump, &mut a, 1, 10).expect("inserts");
        transact(pump, &mut a, |s| {
            let (table, mut row) = (table(s), Row::new(&table(s).layout));
            row.set(&table.layout, 0, &Value::Int(2));
            s.insert(&table, &mut row).map(drop)
        })
        .expect("inserts");
        while engine.step() {}
        let t = table(&a);
        let by_key = IntegerLookup::new(&t, &t.indexes[0], 1).expect("integers");
        let read = |session: &mut Session, id| session.read_integer(&by_key, id).map_err(|_| "reads").expect("reads").0;
        b.begin(Isolation::RepeatableRead, true);
        assert_eq!(b.find_integer(&by_key, 1), Some(Some(10)));
        a.begin(Isolation::ReadCommitted, false);
        a.begin_statement_at_newest();
        let mut old = Row::default();
        let at = a
            .lock_by_key(&t, &t.indexes[0], |_| Value::Int(1), Strength::Update, &mut old)
            .map_err(|_| "locks")
            .expect("locks");
        let mut new = old.clone();
        new.set(&t.layout, 1, &Value::Int(11));
        a.update(&t, at.expect("it is there"), &old, &mut new).map_err(|_| "updates").expect("updates");
        let mut c = engine.connect().expect("a place");
        assert_eq!([1, 2, 3].map(|id| read(&mut c, id)), [Some(Some(10)), Some(None), None]);
        a.commit().map_err(|_| "commits").expect("commits");
        while engine.step() {}
        assert_eq!([1, 2, 3].map(|id| read(&mut c, id)), [Some(Some(11)), Some(None), None]);
        // And at the kept registration, a second time.
        assert_eq!([1, 2, 3].map(|id| read(&mut c, id)), [Some(Some(11)), Some(None), None]);
        assert_eq!(b.find_integer(&by_key, 1), Some(Some(10)), "the snapshot is older");
        b.rollback();
        assert!(delete_once(&mut a, 1));
        while engine.step() {}
        assert_eq!(read(&mut c, 1), None);
    }
}
