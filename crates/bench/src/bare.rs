//! What could any software reach here? The same access, hand-written, without SQL, sessions, locks or versions: the practical limit.
//!
//! | part | what |
//! |---|---|
//! | [`table`] | buckets of seven tagged words, slots of 192 bytes under a sequence count, huge pages advised |
//! | [`log`] | rings of records, one flusher, groups of 4 KiB blocks past the page cache, one sync each |
//!
//! A search finds the bucket, then the slot, and reads one field under its sequence count (`search`), or copies the whole slot
//! (`search_row`). A batched one reads the field of 32 keys, each step prefetched for all of them. An update takes the slot's sequence count, draws its timestamp from one counter, stages
//! the XOR of what it changes, and counts when a group that holds it has been flushed; so many updates are in flight as there are sessions in
//! the headline cases. An insert stages as many bytes as the workload's rows have, a delete none. An index is built (`entries`) by reading
//! the key of each slot in turn and entering it into buckets that are there, prefetched 32 ahead.

pub mod log;
pub mod table;

use crate::adapter::on_threads;
use crate::error::{BenchError, on};
use crate::random::Random;
use log::{Flushed, Log, Ring};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use table::{Buckets, Pending, SLOT_WORDS, Table, hash};

pub const BATCH: usize = 32;
/// As the headline cases have sessions.
const IN_FLIGHT: u64 = 4800;
/// Operations between readings of the clock: reading it waits for all that is under way.
const READ_STRIDE: u64 = 512;
const STRIDE: u64 = 64;
/// Rows that inserts add and deletes take away, in parts of what is there.
const GROWTH: u64 = 4;

/// Operations per second of one number of threads.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Rates {
    pub threads: usize,
    pub search: f64,
    pub search_row: f64,
    pub batched: f64,
    pub update: f64,
    pub insert: f64,
    pub delete: f64,
    pub entries: f64,
    pub one_row: f64,
    pub ten_rows: f64,
    /// Of the update's flushes, on average; and the one that the update at the 99th percentile waits through.
    pub flush_us: f64,
    pub flush_p99_us: u64,
}

/// The limits with one thread and with more.
#[derive(Clone, Serialize, Debug, Default)]
pub struct Limits {
    pub rows: u64,
    pub rates: Vec<Rates>,
}

impl Limits {
    /// Measures in `dir` for each number of threads, `time` each case; an insert logs `row_bytes`, or a slot's fields where a row has more.
    pub fn measure(
        dir: &Path,
        rows: u64,
        row_bytes: u64,
        threads: &[usize],
        time: Duration,
        done: &AtomicU64,
    ) -> Result<Limits, BenchError> {
        let most = threads.iter().copied().max().unwrap_or(1);
        let bare = Bare::fill(rows.max(10), row_bytes, most)?;
        let path = dir.join("bare.log");
        let each = |&threads: &usize| {
            let rates = bare.rates(&path, threads, time);
            done.fetch_add(1, Ordering::Relaxed);
            rates
        };
        let rates = threads.iter().map(each).collect::<Result<Vec<Rates>, BenchError>>();
        let _ = std::fs::remove_file(&path);
        Ok(Limits { rows, rates: rates? })
    }

    /// Of so many threads, or of the nearest number that was measured.
    pub fn of(&self, threads: usize) -> Option<&Rates> {
        self.rates.iter().min_by_key(|rates| rates.threads.abs_diff(threads))
    }

    /// What it takes, in bytes.
    pub fn memory_bytes(rows: u64) -> u64 {
        (rows + rows / GROWTH) * (SLOT_WORDS as u64 * 8 + 2 * 16)
    }
}

impl Rates {
    /// What is reached with a share of updates, if neither gets in the other's way.
    pub fn mix(&self, update_share: f64) -> f64 {
        1.0 / ((1.0 - update_share) / self.search + update_share / self.update)
    }
}

struct Bare {
    table: Table,
    cts: Counter,
    rows: u64,
    /// That an insert logs.
    row_words: usize,
}

/// On a line of its own.
#[repr(align(128))]
struct Counter(AtomicU64);

impl Bare {
    fn fill(rows: u64, row_bytes: u64, threads: usize) -> Result<Bare, BenchError> {
        let table =
            Table::new(rows + rows / GROWTH).map_err(|e| BenchError::Machine(format!("the bare table: {e}")))?;
        let bare = Bare { table, cts: Counter(AtomicU64::new(1)), rows, row_words: row_bytes.div_ceil(8) as usize };
        on_threads(threads, |thread| {
            let (from, to) = part(0, rows, threads, thread);
            (from..to).for_each(|key| _ = bare.table.insert(key, key, 0));
            Ok(())
        })?;
        Ok(bare)
    }

    fn rates(&self, path: &Path, threads: usize, time: Duration) -> Result<Rates, BenchError> {
        let search = self.reading(threads, time, |random| {
            let found = self.table.read_counter(random.below(self.rows));
            std::hint::black_box(found.expect("invariant: every key below `rows` is there"));
            1
        })?;
        let search_row = self.reading(threads, time, |random| {
            let mut slot = [0; SLOT_WORDS];
            assert!(self.table.read(random.below(self.rows), &mut slot), "invariant: every key below `rows` is there");
            std::hint::black_box(&slot);
            1
        })?;
        let batched = self.reading(threads, time, |random| {
            let keys: [u64; BATCH] = std::array::from_fn(|_| random.below(self.rows));
            self.read_batch(&keys)
        })?;
        let (update, flushed) =
            self.writing(path, threads, time, |random, ring| self.update(random.below(self.rows), ring))?;
        let (one_row, _) = self.writing(path, threads, time, |_, ring| self.update(0, ring))?;
        let (ten_rows, _) = self.writing(path, threads, time, |random, ring| self.update(random.below(10), ring))?;
        let insert = self.growing(path, threads, |key, ring| {
            let cts = self.cts.0.fetch_add(1, Ordering::Relaxed);
            let words = self.table.insert(key, key, cts);
            ring.stage(log::Kind::Insert, key, cts, &words[..self.row_words.min(words.len())]);
        })?;
        let delete = self.growing(path, threads, |key, ring| {
            let cts = self.cts.0.fetch_add(1, Ordering::Relaxed);
            self.table.delete(key, cts);
            ring.stage(log::Kind::Delete, key, cts, &[]);
        })?;
        let entries = self.entering(threads)?;
        let (flush_us, flush_p99_us) = (flushed.mean_us, flushed.p99_us);
        Ok(Rates {
            threads,
            search,
            search_row,
            batched,
            update,
            insert,
            delete,
            entries,
            one_row,
            ten_rows,
            flush_us,
            flush_p99_us,
        })
    }

    fn read_batch(&self, keys: &[u64; BATCH]) -> u64 {
        let mut pending = [Pending::default(); BATCH];
        for (pending, &key) in pending.iter_mut().zip(keys) {
            *pending = self.table.begin(key);
        }
        for pending in &mut pending {
            self.table.advance(pending);
        }
        for pending in &pending {
            let found = self.table.finish(pending);
            std::hint::black_box(found.expect("invariant: every key below `rows` is there"));
        }
        BATCH as u64
    }

    fn update(&self, key: u64, ring: &Ring) {
        let (cts, delta) = self.table.add_one(key, || self.cts.0.fetch_add(1, Ordering::Relaxed));
        ring.stage(log::Kind::Update, key, cts, &[delta]);
    }

    fn reading(
        &self,
        threads: usize,
        time: Duration,
        work: impl Fn(&mut Random) -> u64 + Sync,
    ) -> Result<f64, BenchError> {
        let start = Instant::now();
        let counts = on_threads(threads, |thread| {
            let mut random = Random(0x1234_5678_9abc_def1 ^ ((thread as u64 + 1) << 40));
            let mut count = 0;
            // Once at least, also where the thread starts late.
            loop {
                for _ in 0..READ_STRIDE {
                    count += work(&mut random);
                }
                if start.elapsed() >= time {
                    return Ok(count);
                }
            }
        })?;
        Ok(counts.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
    }

    /// Rate of durable operations, and what flushes took.
    fn writing(
        &self,
        path: &Path,
        threads: usize,
        time: Duration,
        work: impl Fn(&mut Random, &Ring) + Sync,
    ) -> Result<(f64, Flushed), BenchError> {
        let log = Log::create(path, self.log_bytes(), threads).map_err(on(path))?;
        let in_flight = IN_FLIGHT / threads as u64;
        let (counts, flushed) = log.with_flusher(|rings, start| {
            on_threads(threads, |thread| {
                let mut random = Random(0x0fed_cba9_8765_4321 ^ ((thread as u64 + 1) << 40));
                let ring = &rings[thread];
                let mut count = 0;
                loop {
                    for _ in 0..STRIDE {
                        ring.wait_for_fewer_than(in_flight);
                        work(&mut random, ring);
                    }
                    count += STRIDE;
                    if start.elapsed() >= time {
                        break;
                    }
                }
                ring.wait_for_fewer_than(1);
                Ok(count)
            })
        })?;
        let counts = counts?;
        Ok((counts.iter().sum::<u64>() as f64 / flushed.seconds, flushed))
    }

    /// As much as all rows: a smoke run writes little.
    fn log_bytes(&self) -> u64 {
        self.rows * self.row_words as u64 * 8
    }

    /// Entries of one index over all rows.
    fn entering(&self, threads: usize) -> Result<f64, BenchError> {
        let built = Buckets::new(self.rows).map_err(|e| BenchError::Machine(format!("the bare index: {e}")))?;
        on_threads(threads, |thread| {
            built.clear(threads, thread);
            Ok(())
        })?;
        let start = Instant::now();
        on_threads(threads, |thread| {
            let (mut slot, to) = part(0, self.rows, threads, thread);
            let mut hashes = [0; BATCH];
            while slot < to {
                let batch = &mut hashes[..(to - slot).min(BATCH as u64) as usize];
                for (hashed, slot) in batch.iter_mut().zip(slot..) {
                    *hashed = hash(self.table.key(slot));
                    built.ask_for(*hashed);
                }
                batch.iter().zip(slot..).for_each(|(&hashed, slot)| built.enter(hashed, slot));
                slot += batch.len() as u64;
            }
            Ok(())
        })?;
        Ok(self.rows as f64 / start.elapsed().as_secs_f64())
    }

    /// A fixed number of operations on keys above those that are always there.
    fn growing(&self, path: &Path, threads: usize, work: impl Fn(u64, &Ring) + Sync) -> Result<f64, BenchError> {
        let log = Log::create(path, self.log_bytes(), threads).map_err(on(path))?;
        let (in_flight, more) = (IN_FLIGHT / threads as u64, self.rows / GROWTH);
        let (done, flushed) = log.with_flusher(|rings, _| {
            on_threads(threads, |thread| {
                let (from, to) = part(self.rows, self.rows + more, threads, thread);
                let ring = &rings[thread];
                for key in from..to {
                    ring.wait_for_fewer_than(in_flight);
                    work(key, ring);
                }
                ring.wait_for_fewer_than(1);
                Ok(())
            })
        })?;
        done?;
        Ok(more as f64 / flushed.seconds)
    }
}

/// The thread's part of a range.
fn part(from: u64, to: u64, threads: usize, thread: usize) -> (u64, u64) {
    let at = |n: usize| from + (to - from) * n as u64 / threads as u64;
    (at(thread), at(thread + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_measured_and_the_mix_lies_between() {
        let dir = tempfile::tempdir().expect("a directory");
        let time = Duration::from_millis(100);
        let limits = Limits::measure(dir.path(), 2_000, 168, &[1, 2], time, &AtomicU64::new(0)).expect("measures");
        for rates in &limits.rates {
            let all = [
                rates.search,
                rates.batched,
                rates.update,
                rates.insert,
                rates.delete,
                rates.entries,
                rates.one_row,
                rates.ten_rows,
            ];
            assert!(all.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{rates:?}");
            let mix = rates.mix(0.5);
            assert!(mix <= rates.search.max(rates.update) && mix >= rates.search.min(rates.update));
        }
        assert_eq!(limits.of(2).map(|rates| rates.threads), Some(2));
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
    }

    #[test]
    fn what_was_updated_by_several_threads_adds_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let bare = Bare::fill(100, 168, 2).expect("fits");
        let time = Duration::from_millis(20);
        let path = dir.path().join("log");
        let before = bare.cts.0.load(Ordering::Relaxed);
        bare.writing(&path, 2, time, |random, ring| bare.update(random.below(100), ring)).expect("writes");
        let drawn = bare.cts.0.load(Ordering::Relaxed) - before;
        let mut slot = [0; SLOT_WORDS];
        let counter = |key| {
            assert!(bare.table.read(key, &mut slot));
            slot[table::COUNTER_WORD]
        };
        assert_eq!((0..100).map(counter).sum::<u64>(), drawn);
    }
}
