//! Checkpoints: only what changed is written, nothing old is kept for ever, and a directory that fails stops nothing else.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{CheckpointProgress, Engine, OpenError, Options};
use freshet_engine::ids::RowId;
use freshet_engine::io::mem::{Call, Fault, MemClock, MemIo};
use freshet_engine::io::{Clock, Io};
use freshet_engine::schema::Row;
use freshet_engine::txn::{Error, Isolation, Stop};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options {
        stage_limit_bytes: 160 << 10,
        segment_bytes: 256 << 10,
        log_size_bytes: 2 << 20,
        image_segment_bytes: 256 << 10,
        ..Options::small("/db")
    }
}

fn open_as(io: &MemIo, clock: &Arc<MemClock>, options: Options) -> Result<Engine, OpenError> {
    Engine::open_with(Arc::new(io.clone()), clock.clone(), options)
}

struct Db {
    io: MemIo,
    clock: Arc<MemClock>,
    options: Options,
    engine: Engine,
}

impl Db {
    fn new(options: Options) -> Db {
        let (io, clock) = (MemIo::new(), MemClock::new());
        let engine = open_as(&io, &clock, options.clone()).expect("opens");
        Db { io, clock, options, engine }
    }

    fn session(&self) -> Session {
        Session::new(&self.engine)
    }

    /// After a crash; `self` keeps the new world.
    fn reopen(&mut self, seed: u64) {
        self.io = self.io.crash(seed);
        self.engine = open_as(&self.io, &self.clock, self.options.clone()).expect("opens");
    }

    fn settle(&self) {
        while self.engine.step() {}
    }

    fn progress(&self) -> CheckpointProgress {
        self.engine.checkpoint_progress()
    }

    /// Pages that a checkpoint now images.
    fn checkpoint(&self) -> u64 {
        self.settle();
        self.engine.checkpoint().expect("a checkpoint");
        self.progress().last.expect("there was one").pages
    }

    fn images(&self) -> Vec<PathBuf> {
        let is_image = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("images-"));
        self.io.names().into_iter().filter(is_image).collect()
    }
}

/// Rows with notes of 500 bytes in a container of their own: about 130 to a page.
fn fill(session: &mut Session, name: &str, rows: i64) -> Vec<RowId> {
    begin(session, Isolation::ReadCommitted);
    create_named(session, name, IndexKind::Hash).expect("creates");
    session.commit().expect("commits");
    let note = "x".repeat(500);
    let mut ids = Vec::new();
    for chunk in 0..rows / 50 {
        begin(session, Isolation::ReadCommitted);
        for id in chunk * 50..chunk * 50 + 50 {
            while session.engine.step() {}
            ids.push(insert_into(session, name, &[id, 0], Some(&note)).expect("inserts"));
        }
        session.commit().expect("commits");
    }
    ids
}

fn update(session: &mut Session, id: RowId, n: i64) {
    begin(session, Isolation::ReadCommitted);
    set_n(session, id, n).expect("updates");
    session.commit().expect("commits");
}

/// The old note's slot is free afterwards, the new one's may lie anywhere.
fn change_note(session: &mut Session, id: RowId, n: i64) {
    begin(session, Isolation::ReadCommitted);
    let table = table(session);
    let mut old = Row::default();
    session.lock(&table, id, &mut old).expect("nobody else has it");
    let note = format!("{n}{}", "z".repeat(600));
    let mut new = row(&table, 0, n, &note);
    new.set(&table.layout, 0, &old.get(&table.layout, 0));
    session.update(&table, id, &old, &mut new).expect("updates");
    session.commit().expect("commits");
}

#[test]
fn only_changed_pages_are_imaged_and_clean_ones_do_not_hold_the_log() {
    let mut db = Db::new(options());
    let mut session = db.session();
    let ids = fill(&mut session, "t", 1000);
    let all = db.checkpoint();
    assert!(all >= 8, "a table of {all} pages");
    assert_eq!(db.progress().dirty_pages, 0);
    assert_eq!(db.checkpoint(), 0, "nothing has changed");
    // The log goes round many times over two pages; the others are never written again.
    let before = db.engine.stats();
    for round in 0..3000 {
        update(&mut session, ids[round as usize % 2], round);
    }
    db.settle();
    let after = db.engine.stats();
    assert!(after.checkpoints - before.checkpoints >= 3, "the log went round: {after:?}");
    assert!(db.progress().last.expect("there was one").pages <= 2);
    drop(session);
    for seed in 0..2 {
        db.reopen(seed);
        let mut session = db.session();
        assert_eq!((read(&mut session, 0).map(|r| r.0), read(&mut session, 1).map(|r| r.0)), (Some(2998), Some(2999)));
        assert_eq!(rows(&mut session), 1000);
        assert!(db.progress().dirty_pages <= 2, "what the log did not change is clean after a recovery");
    }
}

#[test]
fn segments_are_emptied_when_more_than_half_is_dead() {
    let mut db = Db::new(Options { checkpoint_threads: 1, ..options() });
    let mut session = db.session();
    let ids = fill(&mut session, "t", 1000);
    db.checkpoint();
    let live = db.progress().live_bytes;
    let (mut most, mut moved) = (0, 0);
    for round in 0..40 {
        for &id in ids.iter().skip(round * 37 % 1000).take(60) {
            change_note(&mut session, id, round as i64);
        }
        let dirty = {
            db.settle();
            db.progress().dirty_pages
        };
        moved += db.checkpoint() - dirty;
        let progress = db.progress();
        most = most.max(progress.segment_bytes);
        let on_disk: u64 = db.images().iter().map(|p| db.io.contents(p).expect("a file").len() as u64).sum();
        assert_eq!(on_disk, progress.segment_bytes, "what is not in force is removed");
    }
    let bound = 2 * live + db.options.image_segment_bytes + (64 << 10);
    assert!(most <= bound, "{most} bytes for {live} live ones, at most {bound}");
    assert!(moved > 0, "pages were moved out of sparse segments");
    drop(session);
    db.reopen(1);
    let mut session = db.session();
    assert_eq!(rows(&mut session), 1000);
    assert_eq!(db.checkpoint(), 0, "a recovery from images alone changes nothing");
}

#[test]
fn images_go_to_all_backup_directories_and_a_missing_one_is_named() {
    let dirs = ["/b0", "/b1", "/b2"].map(PathBuf::from);
    let mut db = Db::new(Options { backup_dirs: dirs.to_vec(), ..options() });
    let mut session = db.session();
    fill(&mut session, "t", 2000);
    db.checkpoint();
    drop(session);
    for dir in &dirs {
        assert!(db.images().iter().any(|p| p.starts_with(dir)), "{} has images", dir.display());
        assert!(db.io.names().contains(&dir.join("fence")));
    }
    db.io = db.io.crash(1);
    let lost: Vec<_> = db.images().into_iter().filter(|p| p.starts_with("/b1")).collect();
    let contents: Vec<_> = lost.iter().map(|p| db.io.contents(p).expect("a file")).collect();
    lost.iter().for_each(|p| db.io.lose(p));
    let Err(refused) = open_as(&db.io, &db.clock, db.options.clone()) else { panic!("a directory is missing") };
    assert!(refused.0.contains("/b1") && refused.0.contains("missing"), "{refused}");
    // Mounted elsewhere, its segments are found.
    db.io = db.io.crash(2);
    db.io.create_dir_all(Path::new("/elsewhere")).expect("a directory");
    for (path, bytes) in lost.iter().zip(&contents) {
        db.io.replace(&Path::new("/elsewhere").join(path.file_name().expect("a file's name")), bytes);
    }
    db.options.backup_dirs = vec!["/b0".into(), "/elsewhere".into(), "/b2".into()];
    db.reopen(3);
    assert_eq!(rows(&mut db.session()), 2000);
    assert!(db.checkpoint() > 0, "what is not where it is recorded is written again");
    // Directories that are no longer in use are read, and emptied by the next checkpoint.
    db.options.backup_dirs = vec!["/b0".into()];
    db.reopen(4);
    assert_eq!(rows(&mut db.session()), 2000);
    assert!(db.checkpoint() > 0);
    assert_eq!(db.checkpoint(), 0);
    for gone in db.images().iter().filter(|p| !p.starts_with("/b0")) {
        db.io.lose(gone);
    }
    db.reopen(5);
    assert_eq!(rows(&mut db.session()), 2000);
}

#[test]
fn a_directory_given_twice_is_refused() {
    let (io, clock) = (MemIo::new(), MemClock::new());
    for backup_dirs in [vec!["/b".into(), "/b".into()], vec!["/db/log".into()]] {
        let Err(refused) = open_as(&io, &clock, Options { backup_dirs, ..options() }) else {
            panic!("it is there twice")
        };
        assert!(refused.0.contains("twice"), "{refused}");
    }
    open_as(&io, &clock, Options { backup_dirs: vec!["/b".into(), "/db".into()], ..options() }).expect("opens");
}

/// From version 1, or from a time without backup directories: the data directory is emptied of images too.
#[test]
fn images_leave_the_data_directory_when_others_are_given() {
    let mut db = Db::new(options());
    fill(&mut db.session(), "t", 500);
    db.checkpoint();
    assert!(db.images().iter().all(|p| p.starts_with("/db")));
    db.options.backup_dirs = vec!["/b".into()];
    db.reopen(1);
    assert!(db.checkpoint() > 0);
    db.settle();
    assert!(db.images().iter().all(|p| p.starts_with("/b")), "{:?}", db.images());
    db.reopen(2);
    assert_eq!(rows(&mut db.session()), 500);
}

#[test]
fn a_backup_directory_has_one_database() {
    let shared = vec![PathBuf::from("/shared")];
    let db = Db::new(Options { backup_dirs: shared.clone(), ..options() });
    let other = Options { data_dir: "/other".into(), backup_dirs: shared, ..options() };
    let Err(refused) = open_as(&db.io, &db.clock, other.clone()) else { panic!("it is in use") };
    assert!(refused.0.contains("/shared") && refused.0.contains("in use"), "{refused}");
    let after = db.io.crash(1);
    let Err(refused) = open_as(&after, &db.clock, other) else { panic!("it belongs to another database") };
    assert!(refused.0.contains("/shared"), "{refused}");
}

/// A directory that cannot be written is told with file and error; commits go on, a new attempt follows by itself, with new files.
#[test]
fn a_failing_backup_directory_stops_checkpoints_and_nothing_else() {
    for (call, fault, words) in [
        (Call::Write, Fault::Enospc, "No space left"),
        (Call::Write, Fault::Eio, "Input/output error"),
        (Call::Sync, Fault::Eio, "Input/output error"),
    ] {
        let mut db = Db::new(Options { checkpoint_threads: 1, ..options() });
        let mut session = db.session();
        let ids = fill(&mut session, "t", 100);
        db.settle();
        db.io.plan_fault(call, 0, fault);
        let failed = db.engine.checkpoint();
        assert!(
            matches!(&failed, Err(Error::Checkpoint(why)) if why.contains("images-") && why.contains(words)),
            "{failed:?}"
        );
        assert!(db.images().is_empty(), "what it wrote takes no space");
        let failure = db.progress().failure.expect("it is told");
        assert!(failure.reason.contains("/db/images-000001") && failure.attempts == 1, "{failure:?}");
        update(&mut session, ids[0], 77);
        db.settle();
        assert_eq!(db.engine.stats().checkpoints, 0, "not at once");
        db.clock.advance_us(failure.retry_in_us);
        db.settle();
        assert_eq!(db.engine.stats().checkpoints, 1, "but after a while");
        let progress = db.progress();
        assert!(progress.failure.is_none() && progress.dirty_pages == 0, "{progress:?}");
        assert!(!db.images().iter().any(|p| p.ends_with("images-000001")), "with new files");
        drop(session);
        db.reopen(1);
        assert_eq!(read(&mut db.session(), 0).map(|r| r.0), Some(77));
    }
}

/// A failed attempt leaves the former manifest in force, or its own: whatever the next attempt does must not disturb what either names.
#[test]
fn an_attempt_that_fails_anywhere_disturbs_no_manifest() {
    let mut failures = 0;
    for call in [Call::Write, Call::Sync, Call::Name] {
        for nth in 0.. {
            // The power goes at once, in the middle of the next attempt, or after it.
            let failed = [0, 2, 4, 7, 1000].map(|cut| fail_and_cut(call, nth, cut));
            failures += u32::from(failed[0]);
            if !failed[0] {
                break;
            }
        }
    }
    assert!(failures > 8, "{failures}");
}

fn fail_and_cut(call: Call, nth: u64, cut: u64) -> bool {
    let backup_dirs = vec!["/b0".into(), "/b1".into()];
    let mut db = Db::new(Options { backup_dirs, checkpoint_threads: 1, ..options() });
    let mut session = db.session();
    let ids = fill(&mut session, "t", 250);
    db.checkpoint();
    for &id in ids.iter().step_by(7) {
        update(&mut session, id, 1);
    }
    db.settle();
    db.io.plan_fault(call, nth, Fault::Eio);
    if db.engine.checkpoint().is_ok() {
        return false;
    }
    let poisoned = db.engine.failure().is_some();
    for &id in ids.iter().step_by(35).filter(|_| !poisoned) {
        update(&mut session, id, 2);
    }
    db.settle();
    db.io.cut_power_after(db.io.operations() + cut);
    db.clock.advance_us(60_000_000);
    db.settle();
    drop(session);
    db.reopen(nth * 8 + cut);
    let mut session = db.session();
    assert_eq!(rows(&mut session), 250);
    let last = if poisoned { 1 } else { 2 };
    for (id, n) in [(0, last), (7, 1), (35, last), (1, 0)] {
        let seen = read(&mut session, id).map(|r| r.0);
        assert_eq!(seen, Some(n), "row {id}, {call:?} {nth} failed, power cut after {cut}");
    }
    true
}

#[test]
fn a_paced_checkpoint_waits_for_the_clock_and_a_request_ends_the_waiting() {
    let db = Db::new(Options { checkpoint_bytes_per_s: 1 << 20, log_size_bytes: 16 << 20, ..options() });
    let mut session = db.session();
    fill(&mut session, "t", 2000);
    db.settle();
    let before = db.progress().finished;
    db.engine.request_checkpoint_within(Duration::from_secs(3600));
    db.settle();
    let progress = db.progress();
    assert!(progress.running && progress.paced && progress.pages_done < progress.pages_total, "{progress:?}");
    db.clock.advance_us(300_000);
    db.settle();
    let later = db.progress();
    assert!(later.pages_done > progress.pages_done && later.running, "{later:?}");
    assert!((1 << 20..2 << 20).contains(&later.pace_bytes_per_s));
    // It is due now.
    db.engine.request_checkpoint_within(Duration::ZERO);
    db.settle();
    assert_eq!((db.progress().running, db.progress().finished), (false, before + 1));
    assert!(db.progress().last.expect("it is over").paced);
}

/// Who turns a lane comes late, as threads do that wait for a processor.
#[test]
fn a_paced_checkpoint_reaches_its_pace_though_every_turn_is_late() {
    const PACE: u64 = 64 << 20;
    let db = Db::new(Options { checkpoint_bytes_per_s: PACE, log_size_bytes: 16 << 20, ..options() });
    let mut session = db.session();
    fill(&mut session, "t", 8000);
    db.settle();
    db.engine.request_checkpoint_within(Duration::from_secs(3600));
    db.settle();
    let before = db.progress();
    for _ in 0..5 {
        db.clock.advance_us(6000);
        db.settle();
    }
    let after = db.progress();
    let (due, done) = (PACE * 30 / 1000 / (64 << 10), after.pages_done - before.pages_done);
    assert!(after.running && (due * 3 / 4..=due * 3 / 2).contains(&done), "{done} pages where {due} are due");
}

/// A clock by which an operation of the file system takes a millisecond, and a look at the clock a microsecond.
struct Busy(MemIo, Arc<MemClock>);

impl Clock for Busy {
    fn monotonic_us(&self) -> u64 {
        self.1.advance_us(1);
        1000 * self.0.operations() + self.1.monotonic_us()
    }

    fn wall_us(&self) -> u64 {
        self.1.wall_us()
    }
}

/// What a checkpoint makes superfluous is removed by pieces with rests for as long as a piece took, unless another checkpoint is due.
#[test]
fn a_paced_checkpoint_leaves_the_device_to_commits_between_removals() {
    for is_waited_for in [false, true] {
        let io = MemIo::new();
        let options = Options { checkpoint_bytes_per_s: 1 << 40, log_size_bytes: 16 << 20, ..options() };
        let clock = MemClock::new();
        let busy = Arc::new(Busy(io.clone(), clock.clone()));
        let engine = Engine::open_with(Arc::new(io.clone()), busy, options.clone()).expect("opens");
        let mut db = Db { io, clock, options, engine };
        let mut session = db.session();
        let ids = fill(&mut session, "t", 2000);
        db.checkpoint();
        ids.iter().for_each(|&id| change_note(&mut session, id, 1));
        db.settle();
        let (before, files) = (db.progress(), db.images());
        let bytes = || files.iter().map(|file| db.io.contents(file).map_or(0, |bytes| bytes.len())).sum::<usize>();
        db.engine.request_checkpoint_within(Duration::from_secs(3600));
        let all = bytes();
        while bytes() == all {
            db.engine.step();
        }
        assert!(db.progress().running, "{:?}", db.progress());
        let (mut pieces, mut at_once, mut has_rested) = (0, 0, false);
        if is_waited_for {
            db.engine.request_checkpoint_within(Duration::ZERO);
        }
        while db.progress().finished == before.finished {
            let left = bytes();
            has_rested |= !db.engine.step();
            assert!(left - bytes() <= db.options.image_segment_bytes as usize / 64);
            if bytes() < left {
                pieces += 1;
                at_once += u32::from(!std::mem::take(&mut has_rested));
            }
        }
        assert!(bytes() == 0 && pieces > 64, "{pieces} pieces");
        assert_eq!(at_once, if is_waited_for { pieces } else { 0 }, "of {pieces} pieces that were not rested for");
        drop(session);
        db.reopen(1);
        assert_eq!(rows(&mut db.session()), 2000);
    }
}

/// A large commit stages fragments, then some pages are imaged, then it becomes durable, then the checkpoint is published: those images lack it,
/// and although it is durable its fragments are needed, which lie before the images' S.
#[test]
fn fragments_stay_as_long_as_an_image_lacks_their_commit() {
    let mut db = Db::new(Options { checkpoint_threads: 1, log_size_bytes: 16 << 20, ..options() });
    let mut session = db.session();
    let ids = fill(&mut session, "t", 1000);
    db.settle();
    begin(&mut session, Isolation::ReadCommitted);
    let table = table(&session);
    for &id in &ids {
        let (mut old, mut new) = (Row::default(), row(&table, 0, 2, &"y".repeat(600)));
        while db.engine.step() {}
        session.lock(&table, id, &mut old).expect("nobody else has it");
        new.set(&table.layout, 0, &old.get(&table.layout, 0));
        session.update(&table, id, &old, &mut new).expect("updates");
    }
    let mut waits = 0;
    while let Err(stop) = std::ops::DerefMut::deref_mut(&mut session).commit() {
        assert!(matches!(stop, Stop::Wait(_)), "{stop:?}");
        waits += 1;
        db.settle();
        if waits == 2 {
            db.engine.set_checkpoint_pace(1);
            db.engine.request_checkpoint_within(Duration::from_secs(1 << 40));
            // The first pages are the system table's.
            while db.progress().pages_done < 8 {
                db.clock.advance_us(1 << 40);
                db.settle();
            }
        }
    }
    assert!(waits > 2 && db.progress().running, "{waits} waits");
    db.settle();
    db.engine.set_checkpoint_pace(0);
    db.settle();
    assert!(!db.progress().running);
    drop(session);
    db.reopen(3);
    let mut session = db.session();
    assert_eq!(rows(&mut session), 1000);
    assert_eq!(read(&mut session, 999), Some((2, "y".repeat(600))));
}
