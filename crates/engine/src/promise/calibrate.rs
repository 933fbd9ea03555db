//! What would a unit of work cost that no recovery has done here yet? Small pieces of the same work, timed, one kind a step.
//!
//! | kind | piece |
//! |---|---|
//! | log | 4 MiB of this database's own log read and checked |
//! | images | the same, and put into fresh memory |
//! | deltas | read from a record and applied at random places of 16 MiB |
//! | slots | a word of each, one after the other |
//! | hash entries | put into a fresh index at random |
//! | tree entries | sorted and put into a fresh index |
//!
//! Pieces take milliseconds and few MiB, so they flatter: a large database misses its caches more often. They hold until the first
//! recovery that takes its time (`costs`). Their memory comes from the database's budget, and only while as much again is free: whoever
//! works is never refused for a measurement's sake. Where the budget has no room the kind is measured at a later look.

use super::costs::Costs;
use super::work::Work;
use crate::ids::{Cts, PageNo, RowId};
use crate::index::{BTreeIndex, HashIndex};
use crate::io::{AlignedBuf, BLOCK_BYTES, Clock, File, Io, OpenOptions};
use crate::mem::{Account, Claim};
use crate::txn::record::{self, Reader};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of the names of the log's segments.
const SEGMENT_SUFFIX: &str = ".seg";
const READ_BYTES: u64 = 4 << 20;
const READ_AT_ONCE: u64 = 1 << 20;
const ROOM_BYTES: u64 = 16 << 20;
const ROOM_WORDS: usize = ROOM_BYTES as usize / 8;
const DELTAS: u32 = 50_000;
/// Of the benchmarks' record.
const SLOT_WORDS: usize = 25;
const ENTRIES: u64 = 50_000;
/// An entry takes most in the tree: 16 bytes to be sorted, 16 in the run that grows by doubling, 16 in nodes. The hash index takes 21.
const ENTRY_BYTES: u64 = 64;

/// The memory that the piece takes.
fn room_bytes(work: Work) -> u64 {
    match work {
        Work::Log => READ_BYTES,
        Work::Images => 2 * READ_BYTES,
        Work::Deltas | Work::Slots => ROOM_BYTES,
        Work::HashEntries | Work::TreeEntries => ENTRIES * ENTRY_BYTES,
    }
}

/// A calibration under way.
pub(super) struct Calibration {
    threads: usize,
    /// A segment in it is something of this database's that can be read.
    log_dir: PathBuf,
    /// Holds nothing between steps.
    memory: Account,
    next: usize,
}

impl Calibration {
    pub fn new(threads: usize, log_dir: PathBuf, memory: Account) -> Calibration {
        Calibration { threads: threads.max(1), log_dir, memory, next: 0 }
    }

    /// Calibrates the next kind that `costs` lacks, if there is memory for it now. False: there is none.
    pub fn step(&mut self, costs: &mut Costs, io: &Arc<dyn Io>, clock: &Arc<dyn Clock>) -> bool {
        while let Some(&work) = Work::ALL.get(self.next) {
            if !costs.lacks(work) {
                self.next += 1;
                continue;
            }
            let bytes = room_bytes(work);
            // As much again stays free for those who work meanwhile.
            if self.memory.take(2 * bytes, Claim::Growth) {
                self.memory.give(bytes);
                self.next += 1;
                // What cannot be read now is calibrated after the next open.
                if let Some((amount, seconds)) = self.measure(work, io, clock).filter(|(_, seconds)| *seconds > 0.0) {
                    costs.calibrate(work, amount, seconds);
                }
                self.memory.give(bytes);
            }
            return true;
        }
        false
    }

    fn measure(&self, work: Work, io: &Arc<dyn Io>, clock: &Arc<dyn Clock>) -> Option<(f64, f64)> {
        let timed = |piece: &mut dyn FnMut()| {
            let before = clock.monotonic_us();
            piece();
            (clock.monotonic_us() - before) as f64 / 1e6
        };
        // The disk is shared by the threads, the processor is not.
        let shared = 1.0 / self.threads as f64;
        let (amount, seconds) = match work {
            Work::Log | Work::Images => {
                let mut bytes = AlignedBuf::new();
                let mut read = Ok(0);
                let reading = timed(&mut || read = self.read_log(io, &mut bytes));
                let amount = read.ok().filter(|&n| n > 0)? as f64;
                let working = timed(&mut || check_and_place(&bytes, work == Work::Images));
                (amount, reading + working * shared)
            }
            Work::Deltas => {
                let room: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default).take(ROOM_WORDS).collect();
                (f64::from(DELTAS), timed(&mut || apply_deltas(&room)) * shared)
            }
            Work::Slots => {
                let room = vec![1u64; ROOM_WORDS];
                let slots = ROOM_WORDS / SLOT_WORDS;
                (slots as f64, timed(&mut || look_at_slots(&room)) * shared)
            }
            Work::HashEntries => (ENTRIES as f64, timed(&mut || fill_hash()) * shared),
            Work::TreeEntries => (ENTRIES as f64, timed(&mut || fill_tree()) * shared),
        };
        Some((amount, seconds))
    }

    fn read_log(&self, io: &Arc<dyn Io>, bytes: &mut AlignedBuf) -> io::Result<u64> {
        let names = io.list(&self.log_dir)?;
        let Some(name) = names.iter().find(|name| name.ends_with(SEGMENT_SUFFIX)) else { return Ok(0) };
        let file: Arc<dyn File> = io.open(&self.log_dir.join(name), OpenOptions { create: false, direct: true })?;
        let length = file.len()?.min(READ_BYTES) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        bytes.resize(length as usize);
        for from in (0..length).step_by(READ_AT_ONCE as usize) {
            let to = length.min(from + READ_AT_ONCE);
            file.read_at(&mut bytes[from as usize..to as usize], from)?;
        }
        Ok(length)
    }
}

/// A step of xorshift: places that no prefetcher guesses.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn check_and_place(bytes: &[u8], place: bool) {
    std::hint::black_box(crc32c::crc32c(bytes));
    if place {
        std::hint::black_box(bytes.to_vec());
    }
}

fn apply_deltas(room: &[AtomicU64]) {
    let mut operation = Vec::new();
    let mut delta = [0; SLOT_WORDS - 2];
    delta[6] = 1;
    record::put_operation(&mut operation, RowId::new(PageNo(7), 7), 1, 1000, &delta);
    let slots = (room.len() / SLOT_WORDS) as u64;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..DELTAS {
        let slot = (next_random(&mut state) % slots) as usize * SLOT_WORDS;
        let mut reader = Reader(std::hint::black_box(&operation));
        let read = record::read_operation(&mut reader, Cts::MAX).and_then(|_| {
            record::read_delta(&mut reader, |at, xor| {
                room[slot + 2 + at].fetch_xor(xor, Ordering::Relaxed);
            })
        });
        assert!(read.is_ok(), "invariant: what was just encoded is read");
        room[slot + 2].fetch_xor(1, Ordering::Relaxed);
    }
}

fn look_at_slots(room: &[u64]) {
    let used = room.iter().step_by(SLOT_WORDS).filter(|&&word| word != 0).count();
    std::hint::black_box(used);
}

fn fill_hash() {
    let index = HashIndex::with_capacity(ENTRIES as usize);
    let mut state = 0x2545_f491_4f6c_dd1d;
    for row in 0..ENTRIES {
        index.insert(next_random(&mut state), RowId(row));
    }
}

fn fill_tree() {
    let mut state = 0x2545_f491_4f6c_dd1d;
    let mut entries: Vec<(u64, u64)> = (0..ENTRIES).map(|row| (next_random(&mut state), row)).collect();
    entries.sort_unstable();
    let keys = entries.into_iter().map(|(key, row)| ([key], RowId(row)));
    std::hint::black_box(BTreeIndex::bulk_build(1, keys));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mem::MemClock;
    use crate::io::os::{OsClock, OsIo};
    use crate::mem::{Budget, Kind};

    fn memory(budget: &Arc<Budget>) -> Account {
        Account::new(budget, Kind::Queries)
    }

    #[test]
    fn every_kind_gets_a_cost_from_a_few_steps() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("log-000000000001.seg"), vec![7; 64 << 10]).expect("writes");
        let (io, clock): (Arc<dyn Io>, Arc<dyn Clock>) = (Arc::new(OsIo::new()), Arc::new(OsClock::new()));
        let mut costs = Costs::default();
        let budget = Arc::new(Budget::new(1 << 30));
        let mut calibration = Calibration::new(2, dir.path().into(), memory(&budget));
        let steps = std::iter::from_fn(|| calibration.step(&mut costs, &io, &clock).then_some(())).count();
        assert_eq!(steps, Work::COUNT);
        // A piece may be quicker than the clock's microsecond; the slow ones are not.
        assert!(costs.per_unit(Work::HashEntries).is_some() && costs.per_unit(Work::Deltas).is_some());
    }

    #[test]
    fn a_clock_that_stands_still_measures_nothing() {
        let clock: Arc<dyn Clock> = MemClock::new();
        let io: Arc<dyn Io> = Arc::new(crate::io::mem::MemIo::new());
        let mut costs = Costs::default();
        let mut calibration = Calibration::new(1, "/nothing".into(), memory(&Arc::new(Budget::new(1 << 30))));
        while calibration.step(&mut costs, &io, &clock) {}
        assert!(Work::ALL.into_iter().all(|work| costs.per_unit(work).is_none()));
    }

    #[test]
    fn memory_is_asked_for_and_a_kind_without_room_is_measured_later() {
        let (io, clock): (Arc<dyn Io>, Arc<dyn Clock>) = (Arc::new(OsIo::new()), Arc::new(OsClock::new()));
        let (mut costs, budget) = (Costs::default(), Arc::new(Budget::new(64 << 20)));
        let mut calibration = Calibration::new(2, "/nothing".into(), memory(&budget));
        let others = memory(&budget);
        assert!(others.take(40 << 20, Claim::Growth));
        // Beside 40 MiB and a reserve of 8 twice the 16 MiB of the deltas find no room, however often it is asked.
        for _ in 0..2 * Work::COUNT {
            assert!(calibration.step(&mut costs, &io, &clock), "it waits for room");
            assert_eq!(budget.used_bytes(), 40 << 20, "nothing is held between steps");
        }
        assert!(costs.per_unit(Work::Deltas).is_none());
        others.give(40 << 20);
        while calibration.step(&mut costs, &io, &clock) {}
        assert!(costs.per_unit(Work::Deltas).is_some() && costs.per_unit(Work::HashEntries).is_some());
    }
}
