//! The bare loop's log: a ring of words for each thread, and one flusher that gathers them into groups.
//!
//! 1. Only the ring's thread stages: it stores the words, moves `staged.words`, then counts in `staged.operations` (release each). Only the
//!    flusher reads them: the count first (acquire), so that the words it finds cover it. It moves `durable` when a sync that began after
//!    their write has returned. An operation whose words it found before it was counted is durable when it is, without another write.
//! 2. The ring is larger than what may be in flight, so words between `durable` and `staged` are never overwritten.

use freshet_engine::io::os::OsIo;
use freshet_engine::io::{AlignedBuf, BLOCK_BYTES, File, Io, OpenOptions};
use freshet_market::apply::latency_histogram;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// In flight at most: 4,800 inserts of 24 words by one thread.
const RING_WORDS: usize = 1 << 17;
/// The log is written round and round: in so much, where the table is not small.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
const GROUP_HEADER_BYTES: usize = 64;
/// The longest that the flusher or a thread sleeps if it was not told.
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Clone, Copy)]
pub enum Kind {
    Update = 1,
    Insert = 2,
    Delete = 3,
}

/// What one side writes lies on a line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Own {
    words: AtomicU64,
    operations: AtomicU64,
}

pub struct Ring {
    words: Vec<AtomicU64>,
    staged: Own,
    durable: Own,
    waits: AtomicBool,
    waiter: parking::Place,
    flusher: Thread,
}

/// Where the ring's thread can be found while it waits.
mod parking {
    use std::sync::Mutex;
    use std::thread::Thread;

    #[derive(Default)]
    pub struct Place(Mutex<Option<Thread>>);

    impl Place {
        pub fn take(&self) {
            *self.0.lock().expect("no holder panics") = Some(std::thread::current());
        }

        pub fn wake(&self) {
            if let Some(thread) = &*self.0.lock().expect("no holder panics") {
                thread.unpark();
            }
        }
    }
}

impl Ring {
    fn new(flusher: Thread) -> Ring {
        Ring {
            words: (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect(),
            staged: Own::default(),
            durable: Own::default(),
            waits: AtomicBool::new(false),
            waiter: parking::Place::default(),
            flusher,
        }
    }

    /// A record: {kind, length}, place, timestamp, bytes.
    #[inline]
    pub fn stage(&self, kind: Kind, place: u64, cts: u64, bytes: &[u64]) {
        let at = self.staged.words.load(Ordering::Relaxed);
        let word = |n: usize, value: u64| self.words[(at as usize + n) % RING_WORDS].store(value, Ordering::Relaxed);
        word(0, (kind as u64) << 32 | bytes.len() as u64);
        word(1, place);
        word(2, cts);
        bytes.iter().enumerate().for_each(|(n, &value)| word(3 + n, value));
        self.staged.words.store(at + 3 + bytes.len() as u64, Ordering::Release);
        let operations = self.staged.operations.load(Ordering::Relaxed);
        self.staged.operations.store(operations + 1, Ordering::Release);
    }

    #[inline]
    fn in_flight(&self) -> u64 {
        self.staged.operations.load(Ordering::Relaxed) - self.durable.operations.load(Ordering::Acquire)
    }

    #[inline]
    pub fn wait_for_fewer_than(&self, operations: u64) {
        if self.in_flight() >= operations {
            self.wait(operations);
        }
    }

    #[cold]
    fn wait(&self, operations: u64) {
        self.waiter.take();
        while self.in_flight() >= operations {
            self.flusher.unpark();
            self.waits.store(true, Ordering::SeqCst);
            if self.in_flight() >= operations {
                thread::park_timeout(PAUSE);
            }
        }
        self.waits.store(false, Ordering::Relaxed);
    }
}

pub struct Log {
    file: Arc<dyn File>,
    bytes: u64,
    threads: usize,
}

pub struct Flushed {
    /// From the beginning to the last flush.
    pub seconds: f64,
    pub mean_us: f64,
    /// An operation in a hundred waited through a longer flush: what the device alone makes of the tail with so many in flight.
    pub p99_us: u64,
}

impl Log {
    pub fn create(path: &Path, bytes: u64, threads: usize) -> io::Result<Log> {
        let bytes = bytes.clamp(*FILE_BYTES.start(), *FILE_BYTES.end()) >> 20 << 20;
        let file = OsIo::new().open(path, OpenOptions { create: true, direct: true })?;
        let zeroes = AlignedBuf::zeroed(1 << 20);
        if file.len()? < bytes {
            (0..bytes >> 20).try_for_each(|mib| file.write_at(&zeroes, mib << 20))?;
            file.sync()?;
        }
        Ok(Log { file, bytes, threads })
    }

    /// Runs `work` beside a flusher; all that was staged is durable afterwards.
    pub fn with_flusher<T: Send>(
        &self,
        work: impl FnOnce(&[Ring], Instant) -> T + Send,
    ) -> Result<(T, Flushed), crate::error::BenchError> {
        let flusher = thread::current();
        let rings: Vec<Ring> = (0..self.threads).map(|_| Ring::new(flusher.clone())).collect();
        let over = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                let result = work(&rings, start);
                over.store(true, Ordering::Release);
                flusher.unpark();
                result
            });
            let flushed = self.flush_until(&rings, &over, start);
            // A log that fails releases those who wait for it, and then says so.
            if flushed.is_err() {
                while !over.load(Ordering::Acquire) {
                    rings.iter().for_each(Ring::give_up);
                    thread::park_timeout(PAUSE);
                }
            }
            let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let flushed = flushed.map_err(|e| crate::error::BenchError::Machine(format!("the bare log: {e}")))?;
            Ok((result, flushed))
        })
    }

    fn flush_until(&self, rings: &[Ring], over: &AtomicBool, start: Instant) -> io::Result<Flushed> {
        let most = GROUP_HEADER_BYTES + rings.len() * RING_WORDS * 8;
        let mut group = AlignedBuf::zeroed(most.next_multiple_of(BLOCK_BYTES));
        let (mut at, mut flushes, mut busy) = (0u64, 0u32, Duration::ZERO);
        let mut waited_us = latency_histogram();
        loop {
            let ends = over.load(Ordering::Acquire);
            let (bytes, marks) = gather(rings, &mut group);
            if bytes == GROUP_HEADER_BYTES {
                rings.iter().zip(marks).for_each(|(ring, mark)| ring.count_durable(mark));
                if ends {
                    let mean_us = busy.as_secs_f64() * 1e6 / f64::from(flushes.max(1));
                    let p99_us = waited_us.value_at_quantile(0.99);
                    return Ok(Flushed { seconds: start.elapsed().as_secs_f64(), mean_us, p99_us });
                }
                thread::park_timeout(PAUSE);
                continue;
            }
            let length = bytes.next_multiple_of(BLOCK_BYTES);
            group[bytes..length].fill(0);
            if at + length as u64 > self.bytes {
                at = 0;
            }
            let begun = Instant::now();
            self.file.write_at(&group[..length], at)?;
            self.file.sync()?;
            let took = begun.elapsed();
            busy += took;
            flushes += 1;
            at += length as u64;
            for (ring, (words, operations)) in rings.iter().zip(marks) {
                let landed = operations - ring.durable.operations.load(Ordering::Relaxed);
                waited_us.record_n((took.as_micros() as u64).max(1), landed).expect("no flush lasts an hour");
                ring.set_durable(words, operations);
            }
        }
    }
}

impl Ring {
    fn set_durable(&self, words: u64, operations: u64) {
        self.durable.words.store(words, Ordering::Relaxed);
        self.durable.operations.store(operations, Ordering::SeqCst);
        if self.waits.swap(false, Ordering::SeqCst) {
            self.waiter.wake();
        }
    }

    /// Nothing is staged that is not durable: nor are operations that were counted since.
    fn count_durable(&self, (words, operations): (u64, u64)) {
        if operations > self.durable.operations.load(Ordering::Relaxed) {
            self.set_durable(words, operations);
        }
    }

    fn give_up(&self) {
        self.set_durable(self.staged.words.load(Ordering::Acquire), self.staged.operations.load(Ordering::Acquire));
    }
}

/// Copies what is staged behind a header; gives the bytes, and where each ring stands then.
fn gather(rings: &[Ring], group: &mut AlignedBuf) -> (usize, Vec<(u64, u64)>) {
    let mut bytes = GROUP_HEADER_BYTES;
    let mut marks = Vec::with_capacity(rings.len());
    for ring in rings {
        // Counted first: words cover at least so many operations.
        let operations = ring.staged.operations.load(Ordering::Acquire);
        let (from, to) = (ring.durable.words.load(Ordering::Relaxed), ring.staged.words.load(Ordering::Acquire));
        for at in from..to {
            let word = ring.words[at as usize % RING_WORDS].load(Ordering::Relaxed);
            group[bytes..bytes + 8].copy_from_slice(&word.to_le_bytes());
            bytes += 8;
        }
        marks.push((to, operations));
    }
    let header = [0x6261_7265, bytes as u64, marks.len() as u64];
    for (word, value) in header.into_iter().enumerate() {
        group[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    (bytes, marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_is_counted_after_its_words_were_flushed_is_durable() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = Log::create(&dir.path().join("log"), 0, 1).expect("creates");
        let until = |what: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_secs(10);
            while !what() && Instant::now() < end {
                thread::sleep(PAUSE);
            }
            what()
        };
        let (is_durable, _) = log
            .with_flusher(|rings, _| {
                let ring = &rings[0];
                ring.staged.words.store(3, Ordering::Release);
                assert!(until(&|| ring.durable.words.load(Ordering::Acquire) == 3));
                ring.staged.operations.store(1, Ordering::Release);
                until(&|| ring.in_flight() == 0)
            })
            .expect("writes");
        assert!(is_durable, "nobody stages anything behind it, and it is waited for");
    }

    #[test]
    fn everything_staged_is_in_the_file_when_nobody_waits_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = Log::create(&path, 0, 1).expect("creates");
        let (_, flushed) = log
            .with_flusher(|rings, _| {
                for n in 0..10_000 {
                    rings[0].wait_for_fewer_than(50);
                    rings[0].stage(Kind::Update, n, n + 7, &[n ^ 1]);
                }
                rings[0].wait_for_fewer_than(1);
            })
            .expect("writes");
        assert!(flushed.seconds > 0.0 && flushed.mean_us > 0.0);
        let bytes = std::fs::read(&path).expect("reads");
        let words: Vec<u64> = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight"))).collect();
        let header = (Kind::Update as u64) << 32 | 1;
        let mut next = 0;
        for record in words.windows(4).filter(|w| w[0] == header && w[2] == w[1] + 7 && w[3] == w[1] ^ 1) {
            assert_eq!(record[1], next);
            next += 1;
        }
        assert_eq!(next, 10_000);
    }
}
