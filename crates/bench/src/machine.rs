//! What are the limits here? Measured in the process and directory of the run, so that every figure becomes a ratio.
//!
//! | limit | how |
//! |---|---|
//! | sequential write | 1 MiB blocks into a new file past the page cache, one fdatasync at the end |
//! | sequential read, direct | the same file, 1 MiB blocks past the page cache, by 1 and by 4 threads |
//! | sequential read, cached | the same through a page cache that was dropped before |
//! | flush | a block written over zeroes and fdatasync, median of many, by size |
//! | dependent miss | a walk through a random cycle much larger than any cache, without huge pages and with |
//! | random lines | independent reads of one word a line, huge pages, one thread |
//! | memory bandwidth | a sum over the same memory, by one thread and by all |
//! | loopback | a byte there and back over TCP to another thread, median of many |
//!
//! A file system that refuses O_DIRECT is measured through its page cache, and `direct` says so.

use crate::cold;
use crate::error::{BenchError, on};
use crate::interrupt;
use crate::random::Random;
use freshet_engine::io::os::OsIo;
use freshet_engine::io::{AlignedBuf, File, Io, OpenOptions};
use freshet_engine::mem::HugeWords;
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const BLOCK: usize = 1 << 20;
const READERS: u64 = 4;
const FLUSH_SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const FLUSHES: usize = 30;
/// Above it this run is not alone.
const LOAD_MAX: f64 = 0.7;

/// What this machine can do, in the units of its figures.
#[derive(Clone, Serialize, Debug)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub os: String,
    pub optimised: bool,
    /// O_DIRECT was granted.
    pub direct: bool,
    pub write_bytes_per_s: f64,
    pub read_bytes_per_s: f64,
    pub read_parallel_bytes_per_s: f64,
    pub read_cached_bytes_per_s: f64,
    /// Bytes, median microseconds.
    pub flush_us: Vec<(usize, f64)>,
    pub dependent_miss_ns: f64,
    pub dependent_miss_huge_ns: f64,
    pub random_lines_per_s: f64,
    pub memory_core_bytes_per_s: f64,
    pub memory_bytes_per_s: f64,
    pub loopback_us: f64,
    /// Processes that wanted to run in the last minute, on average, before the run began.
    pub load_average: f64,
}

impl Machine {
    /// The best that sequential reads reached, however they were made.
    pub fn read_limit(&self) -> f64 {
        self.read_bytes_per_s.max(self.read_parallel_bytes_per_s).max(self.read_cached_bytes_per_s)
    }

    /// Measures in `dir`, with a file of `bytes`.
    pub fn measure(dir: &Path, bytes: u64) -> Result<Machine, BenchError> {
        let load_average = read("/proc/loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
        let path = dir.join("bench.probe");
        interrupt::will_make(&path, interrupt::file);
        let measured = Disk::measure(&path, bytes).map_err(on(&path));
        let removed = std::fs::remove_file(&path);
        interrupt::has_removed(&path);
        let disk = measured?;
        removed.map_err(on(&path))?;
        let memory = Memory::measure((bytes as usize).min(256 << 20))?;
        Ok(Machine {
            processor: field("/proc/cpuinfo", "model name"),
            cores: processors(),
            memory_bytes: memory_kib("MemTotal") << 10,
            os: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
            optimised: !cfg!(debug_assertions),
            direct: disk.direct,
            write_bytes_per_s: disk.write,
            read_bytes_per_s: disk.read,
            read_parallel_bytes_per_s: disk.read_parallel,
            read_cached_bytes_per_s: disk.read_cached,
            flush_us: disk.flush_us,
            dependent_miss_ns: memory.miss_ns,
            dependent_miss_huge_ns: memory.miss_huge_ns,
            random_lines_per_s: memory.random_lines,
            memory_core_bytes_per_s: memory.core_bandwidth,
            memory_bytes_per_s: memory.bandwidth,
            loopback_us: loopback_us().map_err(|e| BenchError::Machine(format!("TCP over the loopback: {e}")))?,
            load_average,
        })
    }

    pub fn lines(&self) -> Vec<String> {
        let flushes: Vec<String> =
            self.flush_us.iter().map(|(bytes, us)| format!("{} KiB {us:.0} us", bytes >> 10)).collect();
        let mega = |rate: f64| format!("{:.0} MB/s", rate / 1e6);
        let cached = if self.direct { "O_DIRECT" } else { "O_DIRECT refused" };
        let mut lines = vec![
            format!(
                "{}, {} cores, {:.1} GiB",
                self.processor,
                self.cores,
                self.memory_bytes as f64 / (1u64 << 30) as f64
            ),
            format!(
                "disk ({cached}): write {}, read {} ({} by {READERS}), cold page cache {}; flush {}",
                mega(self.write_bytes_per_s),
                mega(self.read_bytes_per_s),
                mega(self.read_parallel_bytes_per_s),
                mega(self.read_cached_bytes_per_s),
                flushes.join(", ")
            ),
            format!(
                "memory: dependent miss {:.0} ns, {:.0} ns in huge pages; {:.0} M random lines/s a core; {:.1} GB/s a core, {:.1} GB/s all; loopback {:.1} us",
                self.dependent_miss_ns,
                self.dependent_miss_huge_ns,
                self.random_lines_per_s / 1e6,
                self.memory_core_bytes_per_s / 1e9,
                self.memory_bytes_per_s / 1e9,
                self.loopback_us
            ),
        ];
        if self.load_average > LOAD_MAX {
            lines.push(format!(
                "other work runs here (load average {:.1}): times are too long, rates too low",
                self.load_average
            ));
        }
        lines
    }
}

pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Memory that new work may take, as the kernel sees it.
pub fn memory_available() -> u64 {
    memory_kib("MemAvailable") << 10
}

fn memory_kib(name: &str) -> u64 {
    field("/proc/meminfo", name).trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Memory of another process that is resident; `None` if there is no such process any more.
pub fn resident_bytes_of(pid: u32) -> Option<u64> {
    let kib: u64 = field(&format!("/proc/{pid}/status"), "VmRSS").trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// Bytes free for this user in the file system of `dir`.
pub fn disk_available(dir: &Path) -> Result<u64, BenchError> {
    let stat = rustix::fs::statvfs(dir).map_err(std::io::Error::from).map_err(on(dir))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().to_owned())
}

struct Disk {
    direct: bool,
    write: f64,
    read: f64,
    read_parallel: f64,
    read_cached: f64,
    flush_us: Vec<(usize, f64)>,
}

impl Disk {
    fn measure(path: &PathBuf, bytes: u64) -> std::io::Result<Disk> {
        let blocks = (bytes / BLOCK as u64).max(READERS);
        let bytes = (blocks * BLOCK as u64) as f64;
        let file = OsIo::new().open(path, OpenOptions { create: true, direct: true })?;
        let write = bytes / timed(|| write_all(&file, blocks))?;
        let read = bytes / timed(|| read_blocks(&file, &AtomicU64::new(0), blocks))?;
        let read_parallel = bytes / timed(|| read_by_many(&file, blocks))?;
        cold::drop_file(&std::fs::File::open(path)?)?;
        let buffered = OsIo::new().open(path, OpenOptions::default())?;
        let read_cached = bytes / timed(|| read_blocks(&buffered, &AtomicU64::new(0), blocks))?;
        let sizes = FLUSH_SIZES.into_iter().map(|size| Ok((size, flush_us(&file, size)?)));
        let flush_us = sizes.collect::<std::io::Result<_>>()?;
        Ok(Disk { direct: file.is_direct(), write, read, read_parallel, read_cached, flush_us })
    }
}

fn timed(work: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn write_all(file: &Arc<dyn File>, blocks: u64) -> std::io::Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK);
    // No zeroes, which some disks do not store.
    block.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 31 + i / 251) as u8);
    (0..blocks).try_for_each(|at| file.write_at(&block, at * BLOCK as u64))?;
    file.sync()
}

fn read_blocks(file: &Arc<dyn File>, next: &AtomicU64, blocks: u64) -> std::io::Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK);
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= blocks {
            return Ok(());
        }
        file.read_at(&mut block, at * BLOCK as u64)?;
    }
}

fn read_by_many(file: &Arc<dyn File>, blocks: u64) -> std::io::Result<()> {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| read_blocks(file, &next, blocks))).collect();
        readers.into_iter().try_for_each(|r| r.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Of 4 KiB, median, where the log of a run lies elsewhere than its data.
pub fn flush_us_in(dir: &Path) -> Result<f64, BenchError> {
    let path = dir.join(format!("freshet-bench-probe-{}", std::process::id()));
    interrupt::will_make(&path, interrupt::file);
    let opened = OsIo::new().open(&path, OpenOptions { create: true, direct: true });
    let measured = opened.and_then(|file| flush_us(&file, FLUSH_SIZES[0])).map_err(on(&path));
    let removed = std::fs::remove_file(&path).map_err(on(&path));
    interrupt::has_removed(&path);
    measured.and_then(|us| removed.map(|()| us))
}

fn flush_us(file: &Arc<dyn File>, size: usize) -> std::io::Result<f64> {
    let block = AlignedBuf::zeroed(size);
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        times.push(timed(|| {
            file.write_at(&block, 0)?;
            file.sync()
        })?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[FLUSHES / 2] * 1e6)
}

/// Words of a line.
const LINE: usize = 8;

struct Memory {
    miss_ns: f64,
    miss_huge_ns: f64,
    random_lines: f64,
    core_bandwidth: f64,
    bandwidth: f64,
}

impl Memory {
    fn measure(bytes: usize) -> Result<Memory, BenchError> {
        let words = (bytes / 8).max(2 * LINE);
        let small: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let miss_ns = dependent_miss_ns(&small);
        drop(small);
        let huge = HugeWords::zeroed(words).map_err(|e| BenchError::Machine(format!("memory for the probe: {e}")))?;
        let huge = &huge[..words];
        let miss_huge_ns = dependent_miss_ns(huge);
        let threads = processors();
        Ok(Memory {
            miss_ns,
            miss_huge_ns,
            random_lines: random_lines_per_s(huge),
            core_bandwidth: bandwidth(huge, 1),
            bandwidth: bandwidth(huge, threads),
        })
    }
}

/// One random cycle through all lines (Sattolo), each found only by reading the one before.
fn dependent_miss_ns(memory: &[AtomicU64]) -> f64 {
    const STEPS: u32 = 500_000;
    let lines = memory.len() / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for i in (1..lines).rev() {
        order.swap(i, random.below(i as u64) as usize);
    }
    for (at, &to) in order.iter().enumerate() {
        memory[at * LINE].store(u64::from(to) * LINE as u64, Ordering::Relaxed);
    }
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..STEPS {
        at = memory[at as usize].load(Ordering::Relaxed);
    }
    std::hint::black_box(at);
    start.elapsed().as_nanos() as f64 / f64::from(STEPS)
}

fn random_lines_per_s(memory: &[AtomicU64]) -> f64 {
    const READS: u32 = 10_000_000;
    let lines = (memory.len() / LINE) as u64;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let start = Instant::now();
    let sum = (0..READS)
        .fold(0u64, |sum, _| sum.wrapping_add(memory[random.below(lines) as usize * LINE].load(Ordering::Relaxed)));
    std::hint::black_box(sum);
    f64::from(READS) / start.elapsed().as_secs_f64()
}

/// Of several sums over all of it, each thread its own part.
fn bandwidth(memory: &[AtomicU64], threads: usize) -> f64 {
    const ROUNDS: usize = 4;
    let part = memory.len().div_ceil(threads);
    let start = Instant::now();
    thread::scope(|scope| {
        for part in memory.chunks(part) {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // Lines, not words: the processor's adders are not what is measured.
                    let sum =
                        part.iter().step_by(LINE).fold(0u64, |sum, w| sum.wrapping_add(w.load(Ordering::Relaxed)));
                    std::hint::black_box(sum);
                }
            });
        }
    });
    (memory.len() * 8 * ROUNDS) as f64 / start.elapsed().as_secs_f64()
}

fn loopback_us() -> std::io::Result<f64> {
    const TRIPS: usize = 2_000;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut byte = [0];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
            Ok(())
        });
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut byte = [7];
        let mut trip = || {
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)
        };
        let times: std::io::Result<Vec<f64>> = (0..TRIPS).map(|_| timed(&mut trip)).collect();
        drop(stream);
        echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut times = times?;
        times.sort_by(f64::total_cmp);
        Ok(times[TRIPS / 2] * 1e6)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_probe_gives_every_limit_and_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let machine = Machine::measure(dir.path(), 4 << 20).expect("measures");
        let rates = [machine.write_bytes_per_s, machine.read_bytes_per_s, machine.read_cached_bytes_per_s];
        assert!(rates.iter().all(|r| r.is_finite() && *r > 0.0), "{machine:?}");
        assert!(machine.dependent_miss_ns > 0.0 && machine.dependent_miss_huge_ns > 0.0 && machine.loopback_us > 0.0);
        let memory = [machine.random_lines_per_s, machine.memory_core_bytes_per_s, machine.memory_bytes_per_s];
        assert!(memory.iter().all(|r| r.is_finite() && *r > 0.0), "{machine:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
        assert!(resident_bytes_of(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert!(memory_available() > 0 && disk_available(dir.path()).expect("a file system") > 0);
    }
}
