//! A check finds all damage, and nothing in what crashes leave.
//!
//! | promise | where it is tried |
//! |---|---|
//! | whatever a crash leaves is whole | power cuts at every operation, a check before each recovery |
//! | a flipped byte is refused or harmless, and a check tells which | every kind of byte of a small database |
//! | a check writes nothing and needs nobody else to be there | operations on files are counted |

use crate::damaged::{contents, subject, written};
use crate::model::{Dice, Model, Plan, seeds};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::{Finding, InspectError, Report, Severity, check};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::io::{File, Io, Lock, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn inspect(io: &MemIo, options: &Options) -> Report {
    let io: Arc<dyn Io> = Arc::new(io.clone());
    check(&io, &subject(options), &mut |_| {}).expect("a database that nobody has open")
}

fn whole(io: &MemIo, options: &Options) -> Report {
    let report = inspect(io, options);
    assert!(!report.is_damaged(), "{report}");
    report
}

fn cut_and_check(plan: &Plan, actions: usize, cut: u64) -> bool {
    let io = MemIo::new();
    let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
    io.cut_power_after(io.operations() + cut);
    let ended = model.run(actions).is_ok();
    drop(model);
    let after = io.crash(plan.seed * 31 + cut);
    whole(&after, &plan.options());
    // A recovery that fails on the way leaves nothing worse.
    after.cut_power_after(cut % 29);
    let _ = plan.open(&after);
    whole(&after.crash(cut), &plan.options());
    !ended
}

#[test]
fn what_a_power_cut_leaves_is_whole() {
    for seed in seeds(3) {
        let note_bytes = [500, 40_000, 3000][seed as usize % 3];
        let plan = Plan {
            seed,
            devices: 1 + seed as usize % 2,
            ddl: true,
            checkpoints: true,
            note_bytes,
            eager: seed % 2 == 0,
        };
        let mut cut = 0;
        while cut_and_check(&plan, 150, cut) {
            cut += 3;
        }
        assert!(cut > 30, "the workload wrote, but only {cut} times");
    }
}

fn open(io: &MemIo, options: &Options) -> Result<Engine, freshet_engine::engine::OpenError> {
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options.clone())
}

/// Offsets worth a flip: the heads of a file's first blocks, then one byte in so many of what is not zero.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    for (block, content) in bytes.chunks(4096).enumerate() {
        let Some(last) = content.iter().rposition(|b| *b != 0) else { continue };
        offsets.extend((0..=last).filter(|at| block < 2 && *at < 140 || at % 211 == 0).map(|at| block * 4096 + at));
    }
    offsets
}

#[test]
fn every_kind_of_flipped_byte_is_found_or_harmless() {
    let (io, options, expected) = written();
    assert_eq!(expected.len(), 8);
    let (mut found, mut harmless) = (0, 0);
    for path in io.names().into_iter().filter(|path| !path.ends_with("lock")) {
        for offset in offsets(&io.contents(&path).expect("a file")) {
            let flipped = io.crash(3);
            flipped.flip_bit(&path, offset as u64, offset as u32 % 8).expect("the file is there");
            let report = inspect(&flipped, &options);
            match open(&flipped, &options) {
                Err(refused) => {
                    assert!(report.is_damaged(), "{} at {offset}: refused ({refused}), not found", path.display());
                    found += 1;
                    let there = |f: &Finding| {
                        f.severity == Severity::Damage && f.path.as_ref().is_some_and(|p| path.starts_with(p))
                    };
                    assert!(report.findings.iter().any(there), "{} at {offset}: {report}", path.display());
                }
                Ok(engine) => {
                    assert_eq!(contents(&engine), expected, "{} at {offset} is served wrong", path.display());
                    harmless += 1;
                }
            }
        }
    }
    assert!(found > 500 && harmless > 10, "{found} found, {harmless} harmless");
}

#[test]
fn a_check_writes_nothing_and_refuses_a_database_in_use() {
    let (io, options, _) = written();
    let operations = io.operations();
    let report = whole(&io, &options);
    assert_eq!(io.operations(), operations);
    assert_eq!((report.tables, report.indexes, report.rows), (1, 2, 8));
    let engine = open(&io, &options).expect("the lock is free again");
    let shared: Arc<dyn Io> = Arc::new(io.clone());
    let in_use = check(&shared, &subject(&options), &mut |_| {}).expect_err("a server has it");
    assert_eq!(in_use, InspectError::InUse(PathBuf::from("/db")));
    drop(engine);
    let nothing: Arc<dyn Io> = Arc::new(MemIo::new());
    let none = check(&nothing, &subject(&options), &mut |_| {}).expect_err("there is none");
    assert_eq!(none, InspectError::NoDatabase(PathBuf::from("/db")));
}

/// A world in which files of some name may not be read.
struct Forbidding(MemIo, &'static str);

impl Forbidding {
    fn look(&self, path: &Path) -> io::Result<()> {
        let is_forbidden = path.to_string_lossy().contains(self.1);
        if is_forbidden { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }
}

impl Io for Forbidding {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.look(dir)?;
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        self.look(path)?;
        self.0.open(path, options)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.look(path)?;
        self.0.lock(path)
    }
}

#[test]
fn what_may_not_be_read_is_no_damage() {
    let (io, options, _) = written();
    for forbidden in ["manifest", "fence", ".seg", "images", "lock", "/db/log"] {
        let io: Arc<dyn Io> = Arc::new(Forbidding(io.clone(), forbidden));
        let refused = check(&io, &subject(&options), &mut |_| {}).expect_err("it cannot be read");
        let InspectError::Unreadable(path, _) = &refused else { panic!("{forbidden}: {refused}") };
        assert!(path.to_string_lossy().contains(forbidden), "{refused}");
    }
}

#[test]
fn an_image_segment_that_is_cut_is_found() {
    let (io, options, _) = written();
    let cut = io.crash(1);
    let segment =
        cut.names().into_iter().rfind(|name| name.to_string_lossy().starts_with("/db/images-")).expect("a segment");
    let file = cut.open(&segment, OpenOptions::default()).expect("the file is there");
    file.set_len(file.len().expect("measures") - 1).expect("cuts");
    let report = inspect(&cut, &options);
    let told =
        report.findings.iter().any(|f| f.path.as_ref() == Some(&segment) && f.reason.contains("the manifest says"));
    assert!(report.is_damaged() && told, "{report}");
    assert!(open(&cut, &options).is_err(), "it is served");
}

#[test]
fn a_lost_epoch_is_told_with_place_and_what_stands_behind() {
    let (io, options, _) = written();
    let names = io.names();
    let segment = names.iter().filter(|n| n.starts_with("/db/log") && n.extension().is_some_and(|e| e == "seg"));
    let used = |path: &&PathBuf| io.contents(path).expect("a file")[..8] == *b"FRESHGRP";
    let newest = segment.filter(used).max().unwrap_or_else(|| panic!("{names:?}"));
    // The first group of the incarnation, and its second.
    for lost in [0, 4096] {
        let io = io.crash(1);
        io.flip_bit(newest, lost + 150, 1).expect("the file is there");
        let report = inspect(&io, &options);
        let told = report.to_string();
        let gap = report.findings.iter().find(|f| f.reason.contains("missing") && f.path.as_ref() == Some(newest));
        let gap = gap.unwrap_or_else(|| panic!("{told}"));
        assert_eq!((gap.offset, gap.device.map(|d| d.0)), (Some(lost), Some(0)), "{told}");
        assert!(told.contains("of tables t"), "{told}");
        let Err(refused) = open(&io, &options) else { panic!("served without a lost epoch") };
        let place = format!("missing from {} at offset {lost} (device 0", newest.display());
        assert!(refused.0.contains(&place) && refused.0.contains("of tables t"), "{refused}");
    }
}

/// A device of several, images in directories of their own, statements of many sessions: whatever bit is flipped, what opens has lost nothing.
#[test]
fn a_flipped_bit_among_devices_and_histories_is_found_or_harmless() {
    let (mut found, mut harmless) = (0, 0);
    for seed in seeds(20) {
        let note_bytes = [500, 40_000][seed as usize % 2];
        let plan = Plan { seed, devices: 1 + seed as usize % 3, ddl: true, checkpoints: true, note_bytes, eager: true };
        let io = MemIo::new();
        let clock = MemClock::new();
        let open = |io: &MemIo| Engine::open_with(Arc::new(io.clone()), clock.clone(), plan.options());
        let mut model = Model::new(plan.clone(), open(&io).expect("opens"));
        model.run(120).expect("nothing fails");
        // The witness of the last commits, after which each of their bytes is guarded.
        for _ in 0..3 {
            while model.engine.step() {}
            clock.advance_us(20_000);
        }
        let mut dice = Dice(seed);
        for _ in 0..6 {
            let flipped = io.crash(seed);
            let (path, offset) = used_byte(&flipped, &mut dice);
            flipped.flip_bit(&path, offset, dice.below(8) as u32).expect("the file is there");
            let report = inspect(&flipped, &plan.options());
            match open(&flipped) {
                Ok(engine) => {
                    harmless += 1;
                    // Nothing acknowledged is lost, and nothing else is there.
                    model.recovered(engine);
                    model.check_quiet();
                    break;
                }
                Err(refused) => {
                    found += 1;
                    assert!(report.is_damaged(), "seed {seed}, {} at {offset}: {refused}; {report}", path.display());
                }
            }
        }
    }
    assert!(found > 20 && harmless > 3, "{found} found, {harmless} harmless");
}

/// Somewhere in a block that is not all zeros.
fn used_byte(io: &MemIo, dice: &mut Dice) -> (PathBuf, u64) {
    let files: Vec<PathBuf> = io.names().into_iter().filter(|path| !path.ends_with("lock")).collect();
    loop {
        let path = &files[dice.below(files.len() as u64) as usize];
        let bytes = io.contents(path).expect("a file");
        let blocks = bytes.len().div_ceil(4096).max(1) as u64;
        let block = dice.below(blocks) as usize * 4096;
        let content = &bytes[block..bytes.len().min(block + 4096)];
        let used = content.iter().rposition(|b| *b != 0);
        if let Some(used) = used {
            return (path.clone(), block as u64 + dice.below(used as u64 + 1));
        }
    }
}

/// Changes a byte of a group's body and makes all checksums right again, as a bug would.
fn forge(io: &MemIo, segment: &Path, group: usize, in_body: usize) {
    let mut bytes = io.contents(segment).expect("a file");
    let group = &mut bytes[group..];
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    let (participants, length) = (number(&group[110..112]), number(&group[96..104]));
    assert_eq!((participants, group[136 + 4]), (1, 1), "one device, and a commit's frame comes first");
    group[136 + in_body] ^= 1;
    let crc = crc32c::crc32c(&group[136..136 + length]).to_le_bytes();
    group[104..108].copy_from_slice(&crc);
    group[128..132].copy_from_slice(&crc);
    group[12..16].fill(0);
    let crc = crc32c::crc32c(&group[..136]).to_le_bytes();
    group[12..16].copy_from_slice(&crc);
    io.replace(segment, &bytes);
}

/// Every checksum is right, and a delta is for a version that the row does not have.
#[test]
fn a_delta_on_the_wrong_base_is_found_by_telescoping() {
    let (io, options, _) = written();
    let names = io.names();
    let segment = names.iter().filter(|n| n.starts_with("/db/log") && n.extension().is_some_and(|e| e == "seg"));
    let used = |path: &&PathBuf| io.contents(path).expect("a file")[..8] == *b"FRESHGRP";
    let newest = segment.filter(used).max().unwrap_or_else(|| panic!("{names:?}"));
    // Behind length, kind and timestamp: what the base is behind the timestamp.
    forge(&io, newest, 4096, 4 + 1 + 8);
    let report = inspect(&io, &options);
    let told = report.to_string();
    let broken = report.findings.iter().find(|f| f.row.is_some()).unwrap_or_else(|| panic!("{told}"));
    assert!(report.is_damaged() && broken.reason.contains("is for the version"), "{told}");
    assert_eq!((broken.table.as_deref(), broken.path.as_ref(), broken.offset), (Some("t"), Some(newest), Some(4096)));
}

#[test]
fn fixtures_of_every_version_are_whole() {
    for io in crate::format::fixtures() {
        let report = whole(&io, &crate::format::options());
        assert!(report.rows >= 20 && report.long_values > 20 && report.operations > 0 && report.images > 0, "{report}");
    }
}

/// A directory that was not named is no damage of the others.
#[test]
fn a_log_directory_that_is_not_given_is_asked_for() {
    let plan = Plan { seed: 3, devices: 2, ddl: true, checkpoints: true, note_bytes: 500, eager: false };
    let io = MemIo::new();
    let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
    model.run(200).expect("nothing fails");
    drop(model);
    let after = io.crash(1);
    let all = plan.options();
    whole(&after, &all);
    for left_out in 0..all.log_dirs.len() {
        let mut options = all.clone();
        options.log_dirs.remove(left_out);
        let report = inspect(&after, &options);
        assert!(report.is_damaged(), "{report}");
        let said = report.to_string();
        assert!(said.contains(&format!("log device {left_out} is missing")), "{said}");
        assert!(said.contains("--log-retired") && report.findings.len() == 2, "{said}");
        // Where it has left the log in the meantime, and is needed still.
        let options = Options { retired_log_dirs: vec![all.log_dirs[left_out].clone()], ..options };
        whole(&after, &options);
    }
}
