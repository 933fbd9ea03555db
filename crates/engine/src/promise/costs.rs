//! What does a unit of work cost here? Seconds a unit by kind, from recoveries of this database; kept in a file that only advises.
//!
//! The file `restart` of the data directory is text, one fact a line, closed by the CRC32C of all before:
//!
//! ```text
//! freshet restart 1
//! threads 2
//! predicted 2.900000
//! rest 0.081000
//! measured image load 1468006400 0.912300
//! measured image load 1468006400 0.934100
//! calibrated btree index rebuild 65536 0.010000
//! crc 89abcdef
//! ```
//!
//! The last five recoveries count, oldest first. Of three or more the dearest and the cheapest are left out: a recovery that ran beside
//! other work says little about the next one.
//!
//! It is written over in place and never synced: after a power cut an old one, none, or one that does not check is as good. A rename
//! would free the old file's blocks, which on a file system that discards them at once takes seconds. Line feeds fill the last block, and cover
//! what a longer text left: the file keeps its length.

use super::Entries;
use super::work::{Work, Workload};
use crate::io::{BLOCK_BYTES, Io, OpenOptions};
use crate::replay::{PhaseStats, RecoveryStats};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(super) const NAME: &str = "restart";
const HEAD: &str = "freshet restart 1";
/// A longer file is none of ours.
const BYTES_MAX: u64 = 64 << 10;
/// Work that took less says little about what more of it would take.
const SECONDS_MIN: f64 = 0.005;
/// Deltas have at least the rest of a replay's time.
const REREAD_SHARE_MAX: f64 = 0.7;
/// Recoveries that count.
const KEPT: usize = 5;
/// So many at least before outliers are told from them.
const JUDGED: usize = 3;
/// A calibration weighs as if it had taken this long in a recovery.
const CALIBRATED_SECONDS: f64 = 0.02;

/// An amount of one kind of work and the time it took.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Sample {
    amount: f64,
    seconds: f64,
}

impl Sample {
    fn scaled(self, by: f64) -> Sample {
        Sample { amount: self.amount * by, seconds: self.seconds * by }
    }

    fn plus(self, other: Sample) -> Sample {
        Sample { amount: self.amount + other.amount, seconds: self.seconds + other.seconds }
    }

    fn per_unit(self) -> f64 {
        self.seconds / self.amount
    }

    /// All of them as one, without the dearest and the cheapest where there are enough.
    fn sum(samples: &[Sample]) -> Sample {
        let mut sorted = samples.to_vec();
        sorted.sort_by(|a, b| a.per_unit().total_cmp(&b.per_unit()));
        let judged = if sorted.len() >= JUDGED { &sorted[1..sorted.len() - 1] } else { &sorted[..] };
        judged.iter().fold(Sample::default(), |sum, sample| sum.plus(*sample))
    }
}

/// The newest stay.
fn keep<T>(list: &mut Vec<T>, newest: T) {
    if list.len() == KEPT {
        list.remove(0);
    }
    list.push(newest);
}

/// The last real restart.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct LastRestart {
    pub seconds: f64,
    /// What was predicted before it, where something was.
    pub predicted_seconds: Option<f64>,
}

/// What one recovery took.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Measured {
    pub work: Workload,
    /// By the wall clock; a kind that goes side by side with others has its share. Indexes of all kinds stand in `index_seconds`.
    pub seconds: [f64; Work::COUNT],
    pub index_seconds: f64,
    pub total_seconds: f64,
    pub threads: usize,
}

impl Measured {
    /// Images and deltas go side by side at the end of the one and the beginning of the other, so their times are cut to what both took.
    /// Replay reads the log again: what its bytes cost in the scan is the log's share of it, the rest is the deltas'.
    pub fn of(stats: &RecoveryStats, entries: Entries) -> Measured {
        let seconds_of = |phase: &PhaseStats| phase.elapsed_us as f64 / 1e6;
        let (scan, restore, rebuild) =
            (seconds_of(&stats.scan), seconds_of(&stats.restore), seconds_of(&stats.rebuild));
        let total_seconds = stats.total_us as f64 / 1e6;
        let both = seconds_of(&stats.images) + seconds_of(&stats.replay);
        let took = (total_seconds - scan - restore - rebuild).max(0.0);
        let cut = if both > took { took / both } else { 1.0 };
        let (images, replay) = (seconds_of(&stats.images) * cut, seconds_of(&stats.replay) * cut);
        let reread = (scan * stats.replay.bytes as f64 / stats.scan.bytes.max(1) as f64).min(replay * REREAD_SHARE_MAX);
        let parts = [
            (Work::Log, stats.scan.bytes, scan + reread),
            (Work::Images, stats.images.bytes, images),
            (Work::Deltas, stats.replay.items, replay - reread),
            (Work::Slots, stats.restore.items, restore),
            (Work::HashEntries, entries.hash, 0.0),
            (Work::TreeEntries, entries.tree, 0.0),
        ];
        let mut measured =
            Measured { index_seconds: rebuild, total_seconds, threads: stats.threads, ..Measured::default() };
        for (work, amount, seconds) in parts {
            measured.work[work] = amount;
            measured.seconds[work as usize] = seconds;
        }
        measured
    }
}

/// Seconds a unit, by kind of work.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Costs {
    /// Of the last recoveries that had enough of the kind, oldest first.
    measured: [Vec<Sample>; Work::COUNT],
    calibrated: [Sample; Work::COUNT],
    /// What the last recoveries took beside that.
    rests: Vec<f64>,
    threads: usize,
    /// What was predicted when the file was last written.
    pub predicted_seconds: Option<f64>,
}

impl Costs {
    /// With what another recovery measured.
    pub fn after(mut self, recovery: &Measured) -> Costs {
        // Work of another number of threads took another time.
        let threads = match self.threads {
            0 => 1.0,
            before => before as f64 / recovery.threads.max(1) as f64,
        };
        self.threads = recovery.threads.max(1);
        for work in Work::ALL {
            self.measured[work as usize].iter_mut().for_each(|sample| sample.seconds *= threads);
            self.calibrated[work as usize].seconds *= threads;
        }
        let mut rest = recovery.total_seconds;
        let seconds = self.seconds_by_kind(recovery);
        for work in Work::ALL {
            let sample = Sample { amount: recovery.work[work] as f64, seconds: seconds[work as usize] };
            if recovery.work[work] >= work.worth_measuring() && sample.seconds >= SECONDS_MIN {
                keep(&mut self.measured[work as usize], sample);
                rest -= sample.seconds;
            }
        }
        keep(&mut self.rests, rest.max(0.0));
        self
    }

    /// What a restart takes whatever it reads.
    pub fn rest_seconds(&self) -> f64 {
        let mut sorted = self.rests.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// A recovery's times with that of the indexes shared out by what each kind's entries cost so far.
    fn seconds_by_kind(&self, recovery: &Measured) -> [f64; Work::COUNT] {
        let mut seconds = recovery.seconds;
        let expected = |work: Work| self.per_unit(work).unwrap_or(1e-7) * recovery.work[work] as f64;
        let (hash, tree) = (expected(Work::HashEntries), expected(Work::TreeEntries));
        let all = hash + tree;
        if all > 0.0 {
            seconds[Work::HashEntries as usize] = recovery.index_seconds * hash / all;
            seconds[Work::TreeEntries as usize] = recovery.index_seconds * tree / all;
        }
        seconds
    }

    pub fn calibrate(&mut self, work: Work, amount: f64, seconds: f64) {
        self.calibrated[work as usize] = Sample { amount, seconds };
    }

    /// No recovery has measured this kind for long enough to need nothing else.
    pub fn lacks(&self, work: Work) -> bool {
        Sample::sum(&self.measured[work as usize]).seconds < CALIBRATED_SECONDS
            && self.calibrated[work as usize].amount == 0.0
    }

    /// Seconds a unit; `None` where nothing is known.
    pub fn per_unit(&self, work: Work) -> Option<f64> {
        let (measured, calibrated) = (Sample::sum(&self.measured[work as usize]), self.calibrated[work as usize]);
        let weighed = match calibrated.seconds > 0.0 {
            true => calibrated.scaled(CALIBRATED_SECONDS / calibrated.seconds),
            false => Sample::default(),
        };
        let all = measured.plus(weighed);
        (all.amount > 0.0).then(|| all.per_unit())
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\nthreads {}\n", self.threads);
        let mut put = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a String takes every write");
        if let Some(seconds) = self.predicted_seconds {
            put(format_args!("predicted {seconds:.6}\n"));
        }
        self.rests.iter().for_each(|seconds| put(format_args!("rest {seconds:.6}\n")));
        for work in Work::ALL {
            let calibrated = [self.calibrated[work as usize]];
            let kinds = [("measured", &self.measured[work as usize][..]), ("calibrated", &calibrated)];
            for (kind, samples) in kinds {
                for Sample { amount, seconds } in samples.iter().filter(|sample| sample.amount > 0.0) {
                    put(format_args!("{kind} {} {amount:.0} {seconds:.9}\n", work.name()));
                }
            }
        }
        let crc = crc32c::crc32c(text.as_bytes());
        text.push_str(&format!("crc {crc:08x}\n"));
        text
    }

    fn of_text(text: &str) -> Option<Costs> {
        let (body, crc) = text.trim_end().rsplit_once("crc ")?;
        if u32::from_str_radix(crc, 16).ok()? != crc32c::crc32c(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut costs = Costs::default();
        for line in lines {
            let (name, value) = line.split_once(' ')?;
            match name {
                "threads" => costs.threads = value.parse().ok()?,
                "predicted" => costs.predicted_seconds = Some(seconds_of(value)?),
                "rest" => keep(&mut costs.rests, seconds_of(value)?),
                "measured" | "calibrated" => {
                    let (work, sample) = sample_of(value)?;
                    match work {
                        Some(work) if name == "measured" => keep(&mut costs.measured[work as usize], sample),
                        Some(work) => costs.calibrated[work as usize] = sample,
                        // Of a later version.
                        None => {}
                    }
                }
                // What a later version may add.
                _ => {}
            }
        }
        Some(costs)
    }

    /// `None`: there is no such file, or none that can be used.
    pub fn load(io: &Arc<dyn Io>, path: &Path) -> Option<Costs> {
        let file = io.open(path, OpenOptions::default()).ok()?;
        let bytes = file.len().ok().filter(|&n| n <= BYTES_MAX)?;
        let mut text = vec![0; bytes as usize];
        file.read_at(&mut text, 0).ok()?;
        Costs::of_text(std::str::from_utf8(&text).ok()?)
    }

    pub fn save(&self, io: &Arc<dyn Io>, path: &Path) -> io::Result<()> {
        let file = io.open(path, OpenOptions { create: true, direct: false })?;
        let mut text = self.to_text().into_bytes();
        if file.len()? > BYTES_MAX {
            file.set_len(0)?;
        }
        text.resize(text.len().max(file.len()? as usize).next_multiple_of(BLOCK_BYTES), b'\n');
        file.write_at(&text, 0)
    }
}

fn seconds_of(text: &str) -> Option<f64> {
    text.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)
}

/// `<name of the work> <amount> <seconds>`.
fn sample_of(line: &str) -> Option<(Option<Work>, Sample)> {
    let (line, seconds) = line.rsplit_once(' ')?;
    let (name, amount) = line.rsplit_once(' ')?;
    let sample = Sample { amount: seconds_of(amount)?, seconds: seconds_of(seconds)? };
    let work = Work::ALL.into_iter().find(|work| work.name() == name);
    (sample.amount > 0.0).then_some((work, sample))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mem::{Call, Fault, MemIo};

    fn recovery(bytes: u64, seconds: f64) -> Measured {
        let mut measured = Measured { total_seconds: seconds + 0.5, threads: 2, ..Measured::default() };
        measured.work[Work::Images] = bytes;
        measured.seconds[Work::Images as usize] = seconds;
        measured
    }

    #[test]
    fn what_a_recovery_measured_outweighs_what_was_calibrated() {
        let mut costs = Costs::default();
        costs.calibrate(Work::Images, 1e6, 0.001);
        assert_eq!(costs.per_unit(Work::Images), Some(1e-9));
        assert_eq!(costs.per_unit(Work::Log), None);
        let costs = costs.after(&recovery(1_000_000_000, 2.0));
        let cost = costs.per_unit(Work::Images).expect("measured");
        assert!((1.9e-9..2.1e-9).contains(&cost), "{cost}");
        assert!((costs.rest_seconds() - 0.5).abs() < 1e-9);
        assert!(!costs.lacks(Work::Images) && costs.lacks(Work::Log));
    }

    #[test]
    fn an_instant_recovery_or_one_of_nothing_says_nothing() {
        for measured in [recovery(1_000_000_000, 0.000_001), recovery(100, 5.0)] {
            assert_eq!(Costs::default().after(&measured).per_unit(Work::Images), None);
        }
    }

    #[test]
    fn parts_that_overlap_add_up_to_no_more_than_the_whole() {
        let part = |elapsed_us: u64| PhaseStats { elapsed_us, bytes: 100 << 20, items: 1_000_000 };
        let stats = RecoveryStats {
            threads: 2,
            total_us: 3_000_000,
            scan: part(500_000),
            images: part(1_500_000),
            replay: part(1_500_000),
            restore: part(100_000),
            rebuild: part(400_000),
            ..RecoveryStats::default()
        };
        let measured = Measured::of(&stats, Entries { hash: 1_000_000, tree: 0 });
        let parts = measured.seconds.iter().sum::<f64>() + measured.index_seconds;
        // The log's share of the replay is what its bytes cost in the scan.
        assert!((parts - 3.0).abs() < 1e-9, "{parts}");
        assert_eq!(measured.seconds[Work::Log as usize], 1.0);
        assert_eq!(Costs::default().after(&measured).rest_seconds(), 0.0);
    }

    #[test]
    fn the_last_recoveries_count_without_their_outliers() {
        let mut costs = Costs::default();
        for seconds in [9.0, 9.0, 9.0, 2.0, 2.0, 50.0, 2.0, 0.1] {
            costs = costs.after(&recovery(1_000_000_000, seconds));
        }
        assert_eq!(costs.measured[Work::Images as usize].len(), KEPT);
        let cost = costs.per_unit(Work::Images).expect("measured");
        assert!((cost - 2e-9).abs() < 1e-12, "{cost}");
    }

    #[test]
    fn threads_share_the_work() {
        let mut by_one = recovery(0, 0.0);
        by_one.threads = 1;
        let costs = Costs::default().after(&recovery(1_000_000_000, 4.0)).after(&by_one);
        let cost = costs.per_unit(Work::Images).expect("measured");
        assert!((cost - 8e-9).abs() < 1e-12, "{cost}");
    }

    #[test]
    fn the_time_of_all_indexes_is_shared_by_what_their_kinds_cost() {
        let mut costs = Costs::default();
        costs.calibrate(Work::HashEntries, 1e6, 0.02);
        costs.calibrate(Work::TreeEntries, 1e6, 0.06);
        let mut measured = Measured { index_seconds: 8.0, total_seconds: 8.0, threads: 1, ..Measured::default() };
        measured.work[Work::HashEntries] = 100_000_000;
        measured.work[Work::TreeEntries] = 100_000_000;
        let costs = costs.after(&measured);
        let [hash, tree] = [Work::HashEntries, Work::TreeEntries].map(|w| costs.per_unit(w).expect("measured") * 1e8);
        assert!((hash - 2.0).abs() < 0.1 && (tree - 6.0).abs() < 0.1, "{hash} {tree}");
        assert_eq!(costs.rest_seconds(), 0.0);
    }

    /// Replacing it by a rename freed blocks, and the upkeep thread stood still for seconds while the disk discarded them.
    #[test]
    fn the_file_is_written_over_in_place_and_a_torn_one_is_none() {
        let world = MemIo::new();
        let (dir, path) = (Path::new("d"), Path::new("d/restart"));
        world.create_dir_all(dir).unwrap();
        let io: Arc<dyn Io> = Arc::new(world.clone());
        let mut long = Costs::default();
        for _ in 0..KEPT {
            long = long.after(&recovery(1_000_000_000, 2.0));
        }
        long.save(&io, path).unwrap();
        io.sync_dir(dir).unwrap();
        let held = io.open(path, OpenOptions::default()).unwrap();
        let bytes = held.len().unwrap();
        let short = Costs::default().after(&recovery(1_000_000_000, 1.0));
        // No name changes: one that would is refused.
        world.plan_fault(Call::Name, 0, Fault::Eio);
        short.save(&io, path).unwrap();
        world.clear_faults();
        assert_eq!(held.len().unwrap(), bytes);
        let expected = Costs::of_text(&short.to_text());
        assert_eq!(Costs::load(&io, path), expected, "nothing of the longer one is left");
        let mut found = [0; 3];
        for seed in 0..200 {
            let after: Arc<dyn Io> = Arc::new(world.fork().crash(seed));
            let costs = Costs::load(&after, path);
            assert!(costs.is_none() || costs == expected || costs == Costs::of_text(&long.to_text()), "seed {seed}");
            found[if costs.is_none() { 0 } else { 1 + usize::from(costs == expected) }] += 1;
        }
        assert!(found[2] > 0, "{found:?}");
    }

    #[test]
    fn the_file_reads_back_and_no_flipped_byte_passes() {
        let mut costs = Costs::default().after(&recovery(77 << 20, 2.0));
        costs.calibrate(Work::TreeEntries, 1000.0, 0.25);
        costs.predicted_seconds = Some(3.5);
        let text = costs.to_text();
        assert_eq!(Costs::of_text(&text), Some(costs));
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let read = String::from_utf8(bytes).ok().and_then(|t| Costs::of_text(&t));
            assert_eq!(read, None, "byte {at}");
        }
    }
}
