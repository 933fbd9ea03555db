//! Whose directory is it? One that is moved away, replaced or mounted over while it is served keeps what was acknowledged, and takes nothing from the one
//! that is in its place.

use crate::threads::{count_and_sum, create, fill, read, transact};
use crate::world::insert_into;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options, Part};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::txn::{Error, Isolation};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than it takes an engine to look.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(dir: &Path) -> Options {
    Options { direct_io: false, segment_bytes: 256 << 10, stage_limit_bytes: 160 << 10, ..Options::small(dir) }
}

fn open(dir: &Path) -> Engine {
    Engine::open(options(dir)).expect("opens")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).expect("copies");
        }
    }
}

/// One row, acknowledged.
fn acknowledge(engine: &Engine, id: i64) -> Result<(), Error> {
    let mut session = engine.connect()?;
    let note = "x".repeat(20_000);
    transact(&mut session, Isolation::ReadCommitted, |s| insert_into(s, "t", &[id, 1], Some(&note)).map(drop))?;
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    count_and_sum(&mut session, "t");
    let seen = session.commit().map_err(|_| Error::Cancelled)?;
    engine.wait_durable(seen.cts).wait()
}

fn rows(engine: &Engine) -> u64 {
    read(&mut engine.connect().expect("a place"), |s| count_and_sum(s, "t").0)
}

fn failure_of(engine: &Engine) -> String {
    let start = Instant::now();
    loop {
        match engine.failure() {
            Some(reason) => return reason,
            None => assert!(start.elapsed() < PATIENCE, "it is served for ever"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_backup_put_in_the_place_of_a_served_directory_is_another_database() {
    let base = tempfile::tempdir().expect("a directory");
    let (data, moved, backup) = (base.path().join("data"), base.path().join("moved"), base.path().join("backup"));
    let first = open(&data);
    create(&first, "t", IndexKind::Hash, true);
    fill(&first, "t", 10, 1);
    first.checkpoint().expect("a checkpoint");
    drop(first);
    copy(&data, &backup);
    let old = open(&data);
    std::fs::rename(&data, &moved).expect("renames");
    copy(&backup, &data);
    let new = open(&data);
    let mut acknowledged = [0, 0];
    for id in 1000.. {
        if acknowledge(&new, id).is_ok() {
            acknowledged[0] += 1;
        }
        match acknowledge(&old, id) {
            Ok(()) => acknowledged[1] += 1,
            Err(_) => break,
        }
        if id % 20 == 0 {
            // Into the directory that was locked, or refused: it may have failed meanwhile.
            let _ = old.checkpoint();
        }
    }
    let reason = failure_of(&old);
    assert!(reason.contains(data.to_str().expect("a readable path")), "{reason}");
    acknowledge(&new, 1_000_000).expect("the new one is served");
    assert_eq!(new.failure(), None);
    drop((old, new));
    assert_eq!(rows(&open(&data)), 10 + acknowledged[0] + 1, "what the new one acknowledged, and nothing else");
    // The row that was not acknowledged may have reached the log: nobody was told that it had not.
    let unsure = rows(&open(&moved)).checked_sub(10 + acknowledged[1]);
    assert!(matches!(unsure, Some(0 | 1)), "what the old one acknowledged: {unsure:?} more");
}

#[test]
fn an_idle_database_ends_when_one_of_its_directories_is_moved() {
    let base = tempfile::tempdir().expect("a directory");
    for name in ["data", "log0", "log1", "images"] {
        let at = |name: &str| base.path().join(name);
        let own =
            Options { log_dirs: vec![at("log0"), at("log1")], backup_dirs: vec![at("images")], ..options(&at("data")) };
        let engine = Engine::open(own.clone()).expect("opens");
        assert_eq!(engine.failure(), None);
        std::fs::rename(at(name), at("elsewhere")).expect("renames");
        let reason = failure_of(&engine);
        assert!(reason.contains(at(name).to_str().expect("a readable path")), "{reason}");
        drop(engine);
        std::fs::rename(at("elsewhere"), at(name)).expect("renames");
        drop(Engine::open(own).expect("it is whole"));
    }
}

#[test]
fn a_lock_that_is_lost_ends_every_directory_that_is_written_and_no_other() {
    let io = MemIo::new();
    let clock = MemClock::new();
    let open = |log_dirs: &[&str], retired: &[&str]| {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let options = Options {
            log_dirs: paths(log_dirs),
            retired_log_dirs: paths(retired),
            backup_dirs: paths(&["/images"]),
            ..Options::small("/db")
        };
        Engine::open_with(Arc::new(io.clone()), clock.clone(), options).expect("opens")
    };
    drop(open(&["/log0", "/log1"], &[]));
    for lost in ["/db/lock", "/log0/lock", "/images/lock", "/log1/lock"] {
        let engine = open(&["/log0"], &["/log1"]);
        while engine.step() {}
        io.lose_lock(Path::new(lost));
        while engine.step() {}
        assert_eq!(engine.failure(), None, "it is looked once a second");
        clock.advance_us(1_000_000);
        engine.step_part(Part::Checkpoint);
        assert_eq!(engine.failure().is_some_and(|reason| reason.contains(lost)), lost != "/log1/lock", "{lost}");
    }
}
