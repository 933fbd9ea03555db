//! What does the memory limit refuse, and what does it leave alone? Growth stops where a restart or the reserve would suffer; deletes and updates
//! end; a snapshot that keeps too many versions is ended, and nobody reads a wrong byte because of it.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{Error, Isolation, Stop, TableCursor};
use std::sync::Arc;

fn options(kilobytes: u64) -> Options {
    Options { memory_limit_bytes: kilobytes << 10, log_size_bytes: 32 << 20, ..Options::small("/db") }
}

fn open_within(io: &MemIo, kilobytes: u64) -> Engine {
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options(kilobytes)).expect("opens")
}

fn keeps_its_limit(engine: &Engine) {
    let limit = engine.memory_limit();
    assert!(limit.used_bytes <= limit.limit_bytes, "{limit:?}");
    assert!(limit.restart_bytes <= limit.limit_bytes, "{limit:?}");
}

/// Commits rows until one is refused; gives where they are.
fn fill(session: &mut Session, from: i64) -> Vec<RowId> {
    let mut places = Vec::new();
    for id in from.. {
        begin(session, Isolation::ReadCommitted);
        match insert(session, id, id % 7, "short") {
            Ok(at) => {
                session.commit().expect("what was granted commits");
                places.push(at);
            }
            Err(Stop::Error(Error::OutOfMemory(_))) => {
                session.rollback();
                return places;
            }
            Err(other) => panic!("{other:?}"),
        }
        keeps_its_limit(&session.engine);
    }
    unreachable!("the limit is noticed");
}

#[test]
fn a_full_database_restarts_within_its_limit_and_can_be_emptied() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let io = MemIo::new();
        let engine = open_within(&io, 8 << 10);
        let mut session = Session::new(&engine);
        create(&mut session, kind);
        let places = fill(&mut session, 0);
        assert!(places.len() > 1000, "{}", places.len());
        for (id, _) in places.iter().enumerate().step_by(97) {
            assert_eq!(read(&mut session, id as i64).map(|r| r.0), Some(id as i64 % 7));
        }
        while engine.step() {}
        drop((session, engine));

        let engine = open_within(&io.crash(3), 8 << 10);
        keeps_its_limit(&engine);
        let mut session = Session::new(&engine);
        assert_eq!(rows(&mut session), places.len());
        // In slices that the reserve holds, each in one transaction.
        for slice in places.chunks(500) {
            begin(&mut session, Isolation::ReadCommitted);
            for &at in slice {
                delete(&mut session, at).expect("the reserve holds five hundred deletes");
            }
            session.commit().expect("commits");
            while engine.step() {}
        }
        assert_eq!(rows(&mut session), 0);
        let again = fill(&mut session, 0);
        assert!(again.len() * 10 >= places.len() * 9, "{} of {}", again.len(), places.len());
    }
}

/// A transaction that fits the reserve commits, one that does not is undone, and both leave the indexes whole.
#[test]
fn a_change_of_everything_ends_or_is_undone_whole() {
    let io = MemIo::new();
    let engine = open_within(&io, 6 << 10);
    let mut session = Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    let places = fill(&mut session, 0);
    let mut refused = 0;
    for round in 1..=3 {
        begin(&mut session, Isolation::ReadCommitted);
        let changed = places.iter().try_for_each(|&at| set_n(&mut session, at, 100 * round).map(drop));
        match changed {
            Ok(()) => drop(session.commit().expect("commits")),
            Err(Stop::Error(Error::OutOfMemory(_))) => {
                refused += 1;
                session.rollback();
            }
            Err(other) => panic!("{other:?}"),
        }
        while engine.step() {}
        assert_eq!(rows(&mut session), places.len());
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        let by_n: usize = (0..7).map(|n| ids_by_n(&mut session, "t_n", n).len()).sum();
        let moved = ids_by_n(&mut session, "t_n", 100 * round).len();
        assert!([(places.len(), 0), (0, places.len())].contains(&(by_n, moved)), "{by_n} and {moved}");
        session.commit().expect("a read commits");
    }
    assert_eq!(refused, 3, "the reserve is an eighth, and every row has a version and a list entry");
}

fn all_n(session: &mut Session) -> Vec<i64> {
    let table = table(session);
    let (mut cursor, mut row, mut found) = (TableCursor::default(), Row::default(), Vec::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        let Value::Int(n) = row.get(&table.layout, 1) else { panic!("n is set") };
        found.push(n);
    }
    found
}

/// A table of equal rows, its reader of old and its writer.
struct Pinned {
    engine: Engine,
    reader: Session,
    writer: Session,
    places: Vec<RowId>,
    /// Snapshots that rest, each between two updates: without them nobody would need most of the versions, and they would be folded.
    between: Vec<Session>,
    has_between: bool,
}

impl Pinned {
    fn new() -> Pinned {
        let options = Options { sessions_max: 512, ..options(5 << 10) };
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), options).expect("opens");
        let (mut reader, mut writer) = (Session::new(&engine), Session::new(&engine));
        create(&mut writer, IndexKind::Hash);
        let places = (0..200).map(|id| commit_insert(&mut writer, id, 0, "short")).collect();
        reader.begin(Isolation::RepeatableRead, false);
        reader.begin_statement();
        assert_eq!(all_n(&mut reader), [0; 200]);
        Pinned { engine, reader, writer, places, between: Vec::new(), has_between: true }
    }

    /// Updates every row; false if that was refused.
    fn update(&mut self, n: i64) -> bool {
        begin(&mut self.writer, Isolation::ReadCommitted);
        for &at in &self.places {
            match set_n(&mut self.writer, at, n) {
                Ok(_) => {}
                Err(Stop::Error(Error::OutOfMemory(_))) => {
                    self.writer.rollback();
                    return false;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        self.writer.commit().expect("commits");
        while self.engine.step() {}
        if self.has_between {
            let mut between = Session::new(&self.engine);
            between.begin(Isolation::RepeatableRead, true);
            between.begin_statement();
            between.rest();
            self.between.push(between);
        }
        true
    }
}

#[test]
fn a_resting_snapshot_gives_way_at_once() {
    let mut world = Pinned::new();
    world.reader.rest();
    for n in 1..400 {
        assert!(world.update(n), "round {n}: the resting snapshot gives way");
    }
    world.reader.begin_statement();
    assert_eq!(world.reader.check_snapshot(), Err(Error::SnapshotTooOld));
    // Who reads all the same reads what is there now, and cannot commit.
    assert_eq!(all_n(&mut world.reader), [399; 200]);
    assert!(matches!(world.reader.commit(), Err(Stop::Error(Error::SnapshotTooOld))));
    world.reader.begin(Isolation::RepeatableRead, false);
    world.reader.begin_statement();
    assert_eq!(world.reader.check_snapshot(), Ok(()));
    assert_eq!(all_n(&mut world.reader), [399; 200]);
    world.reader.commit().expect("commits");
}

/// A temporary table is emptied at the end of a transaction that only read, and was told the truth.
#[test]
fn upkeep_of_a_transaction_that_only_read_goes_on_where_its_snapshot_was_ended() {
    let mut world = Pinned::new();
    world.reader.set_read_only(true);
    world.reader.rest();
    for n in 1..400 {
        assert!(world.update(n), "round {n}: the resting snapshot gives way");
    }
    world.reader.begin_upkeep();
    // There is little memory: what snapshots had kept goes.
    world.between.clear();
    while world.engine.step() {}
    let id = table(&world.reader).id;
    world.reader.truncate_by_id(id).expect("nobody else writes");
    world.reader.commit().expect("commits");
    begin(&mut world.writer, Isolation::ReadCommitted);
    assert!(all_n(&mut world.writer).is_empty());
    world.writer.commit().expect("commits");
}

/// Garbage that two snapshots keep waits for both: neither protects the other.
#[test]
fn two_resting_snapshots_of_the_same_age_give_way() {
    let mut world = Pinned::new();
    let mut second = Session::new(&world.engine);
    second.begin(Isolation::RepeatableRead, false);
    second.begin_statement();
    assert_eq!(all_n(&mut second), [0; 200]);
    second.rest();
    world.reader.rest();
    for n in 1..400 {
        assert!(world.update(n), "round {n}: both snapshots give way");
    }
    for session in [&mut world.reader, &mut second] {
        session.begin_statement();
        assert_eq!(session.check_snapshot(), Err(Error::SnapshotTooOld));
        session.rollback();
    }
}

#[test]
fn a_reading_statement_is_told_and_reads_right_until_it_ends() {
    let mut world = Pinned::new();
    let refused = (1..100_000).find(|&n| !world.update(n)).expect("the reader pins every version");
    assert_eq!(world.reader.check_snapshot(), Err(Error::SnapshotTooOld));
    assert!(!world.update(refused), "until the reader ends there is no room");
    // Its statement has not ended: every version that it needs is there.
    assert_eq!(all_n(&mut world.reader), [0; 200]);
    world.reader.rollback();
    while world.engine.step() {}
    assert!(world.update(7));
    assert_eq!(world.writer.check_snapshot(), Ok(()));
    begin(&mut world.reader, Isolation::ReadCommitted);
    assert_eq!(all_n(&mut world.reader), [7; 200]);
    world.reader.commit().expect("commits");
}

/// READ COMMITTED takes a snapshot for each statement: the one that was ended is not the next one's.
#[test]
fn a_read_committed_transaction_goes_on_with_its_next_statement() {
    let mut world = Pinned::new();
    world.reader.rollback();
    begin(&mut world.reader, Isolation::ReadCommitted);
    let old = (1..100_000).find(|&n| !world.update(n)).expect("the statement pins every version") - 1;
    assert_eq!(world.reader.check_snapshot(), Err(Error::SnapshotTooOld));
    assert_eq!(all_n(&mut world.reader), [0; 200]);
    world.reader.begin_statement();
    assert_eq!(world.reader.check_snapshot(), Ok(()));
    assert_eq!(all_n(&mut world.reader), [old; 200]);
    world.reader.rest();
    world.between.clear();
    world.has_between = false;
    while world.engine.step() {}
    for n in 1..400 {
        assert!(world.update(n), "round {n}: nothing is kept between statements");
    }
    world.reader.commit().expect("commits");
}

/// The transaction's own writes are kept while it lives, so an ended one is rolled back whole.
#[test]
fn an_ended_writer_is_rolled_back_whole() {
    let mut world = Pinned::new();
    let held = world.places.split_off(190);
    for &at in &held {
        set_n(&mut world.reader, at, -1).expect("nobody else writes");
    }
    world.reader.rest();
    for n in 1..400 {
        assert!(world.update(n), "round {n}");
    }
    world.reader.begin_statement();
    assert_eq!(world.reader.check_snapshot(), Err(Error::SnapshotTooOld));
    world.reader.rollback();
    while world.engine.step() {}
    begin(&mut world.writer, Isolation::ReadCommitted);
    let found = all_n(&mut world.writer);
    assert_eq!(found.iter().filter(|&&n| n == 399).count(), 190);
    assert_eq!(found.iter().filter(|&&n| n == 0).count(), 10, "the ten are as they were");
    world.writer.commit().expect("commits");
}

/// A read at the durable horizon leaves its registration to the next one. If it rested before it ended, nothing said that the next one reads: its
/// snapshot was ended at once, under it.
#[test]
fn a_read_that_rested_does_not_leave_the_next_one_unprotected() {
    for rests in [false, true] {
        let mut world = Pinned::new();
        world.reader.rollback();
        while world.engine.step() {}
        // As the shortest way through a session does: without the call that begins a statement.
        let read = |reader: &mut Session| {
            reader.begin_read();
            assert_eq!(all_n(reader), [0; 200]);
        };
        read(&mut world.reader);
        if rests {
            world.reader.rest();
        }
        freshet_engine::txn::Session::commit(&mut world.reader).expect("a read commits");
        read(&mut world.reader);
        (1..100_000).find(|&n| !world.update(n)).expect("the reader pins every version");
        assert_eq!(all_n(&mut world.reader), [0; 200], "rests: {rests}");
        assert!(world.reader.check_snapshot().is_err());
        world.reader.rollback();
        while world.engine.step() {}
        assert!(world.update(7));
    }
}

/// What an ended transaction has read may be gone from everywhere: its changes are not committed, whether it has noticed or not.
#[test]
fn an_ended_transaction_that_has_changed_something_does_not_commit() {
    for is_reading in [false, true] {
        let mut world = Pinned::new();
        let held = world.places.split_off(190);
        for &at in &held {
            set_n(&mut world.reader, at, -1).expect("nobody else writes");
        }
        if is_reading {
            (1..100_000).find(|&n| !world.update(n)).expect("the reader pins every version");
        } else {
            world.reader.rest();
            assert!((1..400).all(|n| world.update(n)), "the resting snapshot gives way");
        }
        let refused = world.reader.commit();
        assert!(matches!(refused, Err(Stop::Error(Error::SnapshotTooOld))), "reading: {is_reading}");
        assert!(!world.reader.in_transaction());
        while world.engine.step() {}
        begin(&mut world.writer, Isolation::ReadCommitted);
        assert_eq!(all_n(&mut world.writer).iter().filter(|&&n| n == 0).count(), 10, "the ten are as they were");
        world.writer.commit().expect("commits");
    }
}

/// A session that has a snapshot of its own is not in another's way for nothing: one that keeps no garbage is left alone.
#[test]
fn a_snapshot_that_keeps_nothing_is_not_ended() {
    let engine = open_within(&MemIo::new(), 5 << 10);
    let (mut reader, mut writer) = (Session::new(&engine), Session::new(&engine));
    create(&mut writer, IndexKind::Hash);
    let places = fill(&mut writer, 0);
    reader.begin(Isolation::RepeatableRead, true);
    reader.begin_statement();
    reader.rest();
    // One transaction too large for the reserve: its versions are its own, and the reader keeps none of them. How many rows there are when one is
    // refused depends on the hash functions, which are other ones each time; so it goes round until it is refused.
    begin(&mut writer, Isolation::ReadCommitted);
    let changed = (1..=20).flat_map(|round| places.iter().map(move |&at| (at, -round)));
    let changed = { changed }.try_for_each(|(at, n)| set_n(&mut writer, at, n).map(drop));
    assert!(matches!(changed, Err(Stop::Error(Error::OutOfMemory(_)))));
    writer.rollback();
    reader.begin_statement();
    assert_eq!(reader.check_snapshot(), Ok(()));
    assert_eq!(all_n(&mut reader).len(), places.len());
    reader.commit().expect("commits");
}
