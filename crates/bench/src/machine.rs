//! What are the limits here? Measured in the process and directory of the run, so that every figure becomes a ratio.
//!
//! | limit | how |
//! |---|---|
//! | sequential write | 1 MiB blocks into a new file past the page cache, one fdatasync at the end |
//! | sequential read, direct | the same file, 1 MiB blocks past the page cache, by 1 and by 4 threads |
//! | sequential read, cached | the same through a page cache that was dropped before |
//! | flush | a block written over zeroes and fdatasync, median of many, by size |
//! | dependent miss | a walk through a random cycle much larger than any cache |
//!
//! A file system that refuses O_DIRECT is measured through its page cache, and `direct` says so.

use crate::cold;
use crate::error::{BenchError, on};
use freshet_engine::io::os::OsIo;
use freshet_engine::io::{AlignedBuf, File, Io, OpenOptions};
use serde::Serialize;
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
        let measured = Disk::measure(&path, bytes).map_err(on(&path));
        let removed = std::fs::remove_file(&path);
        let disk = measured?;
        removed.map_err(on(&path))?;
        Ok(Machine {
            processor: field("/proc/cpuinfo", "model name"),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib("MemTotal") << 10,
            os: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
            optimised: !cfg!(debug_assertions),
            direct: disk.direct,
            write_bytes_per_s: disk.write,
            read_bytes_per_s: disk.read,
            read_parallel_bytes_per_s: disk.read_parallel,
            read_cached_bytes_per_s: disk.read_cached,
            flush_us: disk.flush_us,
            dependent_miss_ns: dependent_miss_ns((bytes as usize).min(256 << 20)),
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
            format!("dependent miss {:.0} ns", self.dependent_miss_ns),
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

/// Memory that new work may take, as the kernel sees it.
pub fn memory_available() -> u64 {
    memory_kib("MemAvailable") << 10
}

fn memory_kib(name: &str) -> u64 {
    field("/proc/meminfo", name).trim_end_matches(" kB").parse().unwrap_or(0)
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
        let file = OsIo.open(path, OpenOptions { create: true, direct: true })?;
        let write = bytes / timed(|| write_all(&file, blocks))?;
        let read = bytes / timed(|| read_blocks(&file, &AtomicU64::new(0), blocks))?;
        let read_parallel = bytes / timed(|| read_by_many(&file, blocks))?;
        cold::drop_file(&std::fs::File::open(path)?)?;
        let buffered = OsIo.open(path, OpenOptions::default())?;
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

/// One random cycle through all lines (Sattolo), each found only by reading the one before.
fn dependent_miss_ns(bytes: usize) -> f64 {
    const LINE: usize = 64 / size_of::<u32>();
    const STEPS: u32 = 500_000;
    let lines = (bytes / 64).max(2);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = crate::data::Random(0x9e37_79b9_7f4a_7c15);
    for i in (1..lines).rev() {
        order.swap(i, random.below(i as u64) as usize);
    }
    let mut cycle = vec![0u32; lines * LINE];
    for (at, &to) in order.iter().enumerate() {
        cycle[at * LINE] = to * LINE as u32;
    }
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..STEPS {
        at = cycle[at] as usize;
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(STEPS);
    // The walk must not be optimised away.
    if at == usize::MAX { 0.0 } else { ns }
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
        assert!(machine.dependent_miss_ns > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
        assert!(memory_available() > 0 && disk_available(dir.path()).expect("a file system") > 0);
    }
}
