//! What does the device under a directory promise, and how long does it take to keep it?
//!
//! Linux tells in sysfs what the driver knows: whether there is a write cache that a flush has to empty, whether single writes can be forced through
//! it (FUA), and the size of a logical block. How long a flush takes is tried out: a few blocks are written over and synced, as the log does it, both as
//! a write with an fdatasync behind it and as one durable write (`RWF_DSYNC`); the log takes the way that was clearly faster. A write
//! cache that the kernel does not know of (a host's, a controller's) shows only in that time, if at all.

use super::{AlignedBuf, BLOCK_BYTES, FlushWay, Io, OpenOptions};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flushes that are tried: a few milliseconds on a disk that takes one for each.
const TRIES: usize = 9;
/// A way that is not the usual one has to take at most this share of its time: on a busy machine medians of nine differ by a third.
const CLEARLY_FASTER: f64 = 0.5;
const PROBE: &str = "probe.tmp";

/// What is known of a log device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceFacts {
    pub dir: PathBuf,
    /// `write back` or `write through`, where the kernel knows.
    pub write_cache: Option<String>,
    /// Whether a single write can be forced through the cache.
    pub fua: Option<bool>,
    pub logical_block_bytes: Option<u32>,
    pub is_direct: bool,
    /// The median of a flush of 4 KiB by the way that is taken; zero where none was tried.
    pub flush_us: u64,
    pub way: FlushWay,
    /// The median by the other way; zero where it is not to be had.
    pub other_way_us: u64,
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a flush of 4 KiB takes {} us", self.dir.display(), self.flush_us)?;
        let (taken, other) = match self.way {
            FlushWay::WriteThenSync => ("fdatasync", "RWF_DSYNC"),
            FlushWay::DurableWrite => ("RWF_DSYNC", "fdatasync"),
        };
        write!(f, " by {taken}")?;
        if self.other_way_us > 0 {
            write!(f, " ({} us by {other})", self.other_way_us)?;
        }
        write!(f, ", {}", if self.is_direct { "direct I/O" } else { "through the page cache" })?;
        if let Some(cache) = &self.write_cache {
            write!(f, ", write cache: {cache}")?;
        }
        if let Some(fua) = self.fua {
            write!(f, ", {}", if fua { "FUA" } else { "no FUA" })?;
        }
        match self.logical_block_bytes {
            Some(bytes) => write!(f, ", logical block {bytes} bytes"),
            None => Ok(()),
        }
    }
}

/// Looks at the device under `dir` and tries it out. What cannot be found out is left open: nothing depends on it.
pub fn probe(io: &dyn Io, dir: &Path, direct: bool) -> DeviceFacts {
    let queue = queue_of(dir);
    let told = |name: &str| {
        let text = std::fs::read_to_string(queue.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let mut facts = DeviceFacts {
        dir: dir.to_path_buf(),
        write_cache: told("write_cache"),
        fua: told("fua").map(|fua| fua != "0"),
        logical_block_bytes: told("logical_block_size").and_then(|bytes| bytes.parse().ok()),
        ..DeviceFacts::default()
    };
    let path = dir.join(PROBE);
    if let Ok(tried) = Tried::on(io, &path, direct) {
        tried.tell(&mut facts);
    }
    // It means nothing: one that a crash leaves is written over by the next open.
    let _ = io.remove(&path);
    facts
}

/// The block device's queue in sysfs; a partition has its disk's.
fn queue_of(dir: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    [block.join("queue"), block.join("../queue")].into_iter().find(|queue| queue.is_dir())
}

/// Medians of the two ways.
struct Tried {
    sync_us: u64,
    /// `None`: the kernel or the file system refuses it.
    durable_write_us: Option<u64>,
    is_direct: bool,
}

impl Tried {
    fn on(io: &dyn Io, path: &Path, direct: bool) -> std::io::Result<Tried> {
        let file = io.open(path, OpenOptions { create: true, direct })?;
        let mut block = AlignedBuf::default();
        block.extend_from_slice(&[0x5a; BLOCK_BYTES]);
        // Written once before, as a segment is: what follows has no metadata to commit.
        for at in 0..TRIES {
            file.write_at(&block, (at * BLOCK_BYTES) as u64)?;
        }
        file.sync()?;
        let sync_us = median_us(|at| {
            file.write_at(&block, at)?;
            file.sync()
        })?;
        let durable_write_us = median_us(|at| file.write_durably_at(&block, at)).ok();
        Ok(Tried { sync_us, durable_write_us, is_direct: file.is_direct() })
    }

    fn tell(&self, facts: &mut DeviceFacts) {
        let Tried { sync_us, durable_write_us, is_direct } = *self;
        facts.is_direct = is_direct;
        (facts.way, facts.flush_us, facts.other_way_us) = match durable_write_us {
            Some(us) if (us as f64) < sync_us as f64 * CLEARLY_FASTER => (FlushWay::DurableWrite, us, sync_us),
            other => (FlushWay::WriteThenSync, sync_us, other.unwrap_or(0)),
        };
    }
}

/// Of one flush at each place.
fn median_us(flush: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<u64> {
    let mut times = Vec::with_capacity(TRIES);
    for at in 0..TRIES {
        let start = Instant::now();
        flush((at * BLOCK_BYTES) as u64)?;
        times.push(start.elapsed().as_micros() as u64);
    }
    times.sort_unstable();
    Ok(times[TRIES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::os::OsIo;

    #[test]
    fn a_directory_is_tried_out_and_left_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let facts = probe(&OsIo::new(), dir.path(), true);
        assert!(facts.flush_us > 0, "{facts}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
        assert!(facts.to_string().starts_with(&dir.path().display().to_string()), "{facts}");
    }

    #[test]
    fn a_directory_that_is_not_there_promises_nothing() {
        let facts = probe(&OsIo::new(), Path::new("/nowhere/at/all"), true);
        assert_eq!((facts.flush_us, facts.write_cache), (0, None));
    }

    #[test]
    fn the_way_that_is_clearly_faster_is_taken() {
        let taken = |sync_us, durable_write_us| {
            let mut facts = DeviceFacts::default();
            Tried { sync_us, durable_write_us, is_direct: true }.tell(&mut facts);
            (facts.way, facts.flush_us, facts.other_way_us)
        };
        assert_eq!(taken(1600, Some(4000)), (FlushWay::WriteThenSync, 1600, 4000));
        assert_eq!(taken(130, Some(125)), (FlushWay::WriteThenSync, 130, 125));
        assert_eq!(taken(130, Some(60)), (FlushWay::DurableWrite, 60, 130));
        assert_eq!(taken(130, None), (FlushWay::WriteThenSync, 130, 0));
    }
}
