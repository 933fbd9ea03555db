//! How does a commit become durable? Several devices write, one epoch at a time, and recovery tells damage from a tail.
//!
//! | word | meaning |
//! |---|---|
//! | frame | bytes that a caller stages in one piece: a commit record or a fragment of one |
//! | epoch | the commits that become durable together; the upper 44 bits of a commit timestamp |
//! | group | what one device writes in one flush: the frames of one epoch staged on it, under one header |
//! | device | a log directory |
//! | segment | one zero-filled file of a device, recycled when images have replaced its groups |
//! | chain | the epochs in order, each naming the one before; every closed epoch writes at least one group |
//! | horizon D | the last epoch of the chain that, with all before it, is on all its devices |
//! | witness | the horizon that was acknowledged when a group was sealed; D can never be below it |
//! | fence | the list {incarnation, D, first epoch} that says for ever which groups of the past are valid |
//! | incarnation | one run of the database between an open and the next |
//!
//! Reading order: [`group`] the bytes of a group; [`fence`] the bytes of the fence; `segment` the files of a device;
//! [`epoch`] the clock and the announcements; `buffers` and `stage` where workers leave their frames; `waiters` and `wait` who is told; `parking` where drivers sleep; `flush` the
//! state machine that seals, writes, syncs and acknowledges; [`scan`] what a recovery reads; `survey` what is
//! left of a damaged log; `open` how a log begins.
//!
//! The formats byte by byte and the argument for each invariant: `docs/internals/log.md`. After Silo (SOSP 2013) for
//! epochs, P*TIME (VLDB 2004) for parallel differential streams.
//!
//! Invariants:
//!
//! 1. A timestamp is drawn only while announced, so a closed epoch whose announcements have left gets no more frames.
//! 2. Acknowledged bytes are never rewritten: groups are padded forward to 4 KiB.
//! 3. Epochs are consecutive within an incarnation, and e+2 is submitted only when e is complete.
//! 4. A reservation is granted only if a prepared segment can hold everything reserved: after the draw nothing fails
//!    but the device.
//! 5. The fence is durable in every directory before the first group of its incarnation is written.
//! 6. A failed write or sync ends acknowledgement for ever.

pub mod group;

pub mod fence;
mod segment;

pub mod epoch;
mod buffers;
mod stage;
mod waiters;
mod wait;
mod parking;
mod attendance;
mod attendant;

mod flush;

pub mod scan;

pub(crate) mod survey;

mod open;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{DeviceId, Epoch};

pub use attendant::Attendant;
pub use flush::{Log, LogStats, Progress};
pub use group::{Frames, frames};
pub use scan::{Discarded, GroupRef, LogDamage, Look, RUN_BYTES, Scan, scan, scan_with};
pub use stage::{Announced, Reserved, Worker};
pub use wait::{DurableWait, StageWait};

/// The identity of a database, drawn at random when it is created; groups and fences of another are never read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatabaseId(pub u128);

/// One run of a database. The first is 1; an open makes the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u64);

/// A group's position in its device's stream; never repeats on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupNo(pub u64);

/// A segment's position in its device's stream, and its file's name. A recycled file gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentNo(pub u64);

/// How many devices one database may have: all participants of an epoch fit the first block of a group.
pub const DEVICES_MAX: usize = 64;

/// Where the log lives and how large it may grow.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// One directory per device, in the order of the device ids.
    pub dirs: Vec<PathBuf>,
    /// Directories that devices of former incarnations left: what is still needed of them is read, nothing is written.
    pub retired_dirs: Vec<PathBuf>,
    /// Further directories that carry a copy of the fence (the backup directories).
    pub fence_dirs: Vec<PathBuf>,
    pub segment_bytes: u64,
    /// All devices together; growth beyond is refused, not attempted.
    pub log_size_bytes: u64,
    /// What may be staged on one device and not yet sealed. A frame is at most a quarter of it.
    pub stage_limit_bytes: u64,
    pub direct_io: bool,
    /// After so much idleness a witness group follows the last acknowledgement.
    pub idle_witness_us: u64,
    /// Threads that a recovery scan may use; 1 makes it deterministic in its order of reads.
    pub scan_threads: usize,
}

impl LogOptions {
    /// Segments of 64 MiB, a log of 4 GiB, 16 MiB staged per device.
    pub fn new(dirs: Vec<PathBuf>) -> LogOptions {
        LogOptions {
            dirs,
            retired_dirs: Vec::new(),
            fence_dirs: Vec::new(),
            segment_bytes: 64 << 20,
            log_size_bytes: 4 << 30,
            stage_limit_bytes: 16 << 20,
            direct_io: true,
            idle_witness_us: 10_000,
            scan_threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(8)),
        }
    }

    /// The largest frame that can be staged.
    pub fn frame_limit_bytes(&self) -> u64 {
        self.stage_limit_bytes / 4
    }

    /// The largest frame of many that one large transaction stages: short enough that the commits behind it wait for its flush about as long as
    /// for any other (half a millisecond at 2 GB/s).
    pub fn bulk_frame_limit_bytes(&self) -> u64 {
        self.frame_limit_bytes().min(1 << 20)
    }
}

/// Where the needed part of the log begins. The caller saves it durably (in its manifest) *before* it recycles what
/// lies below, and hands it to [`scan`]. The default means: from the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// Groups of this epoch and later ones are needed.
    pub epoch: Epoch,
    /// The last epoch of the chain before it; zero when there is none.
    pub prev: Epoch,
    /// The incarnation whose devices are meant.
    pub incarnation: Incarnation,
    /// The first segment and group still needed on each device, in the order of the device ids.
    pub devices: Vec<DeviceStart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStart {
    pub device: DeviceId,
    pub segment: SegmentNo,
    pub group: GroupNo,
}

/// Why the log refuses. Cloned to every waiter.
#[derive(Clone, Debug)]
pub enum LogError {
    /// A write or a flush failed, now or earlier: nothing more is acknowledged until the database is opened again.
    Poisoned { action: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// The configured size, or the file system, is used up; a checkpoint frees space (SQLSTATE 53100).
    Full { used_bytes: u64, capacity_bytes: u64 },
    /// The caller must split what it logs.
    FrameTooLarge { bytes: u64, limit_bytes: u64 },
    /// Memory for staging could not be had (SQLSTATE 53200).
    OutOfMemory { bytes: u64 },
    /// Every worker slot is claimed.
    NoWorkerSlot { limit: usize },
    /// The options contradict themselves or the log.
    Options { reason: String },
    /// There is a log with content where one was to be created.
    Exists { path: PathBuf },
    /// Another process uses the directory.
    Locked { path: PathBuf },
    /// Opening or creating failed; the log was not used yet.
    Io { action: &'static str, path: PathBuf, source: Arc<io::Error> },
}

impl LogError {
    fn io(action: &'static str, path: &Path, error: io::Error) -> LogError {
        LogError::Io { action, path: path.to_path_buf(), source: Arc::new(error) }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Poisoned { action, path, source } => {
                write!(f, "the log failed ({action} {}: {source}); nothing more is acknowledged", path.display())
            }
            LogError::Full { used_bytes, capacity_bytes } => {
                write!(f, "the log is full: {used_bytes} of {capacity_bytes} bytes in use")
            }
            LogError::FrameTooLarge { bytes, limit_bytes } => {
                write!(f, "a log frame of {bytes} bytes exceeds the limit of {limit_bytes}")
            }
            LogError::OutOfMemory { bytes } => write!(f, "no memory to stage {bytes} bytes of log"),
            LogError::NoWorkerSlot { limit } => {
                write!(f, "all {limit} log worker slots are in use")
            }
            LogError::Options { reason } => write!(f, "log options: {reason}"),
            LogError::Exists { path } => write!(f, "{} already holds a log", path.display()),
            LogError::Locked { path } => {
                write!(f, "{} is in use, by another process or by this one", path.display())
            }
            LogError::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}{}", path.display(), room_hint(source))
            }
        }
    }
}

/// What helps where there is no space: not one free block is too few to open.
pub(crate) fn room_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "; free some space: to open takes some blocks of each log and backup directory, and the manifest's length of the data directory"
        }
        _ => "",
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Poisoned { source, .. } | LogError::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// Why a reservation was not granted.
#[derive(Debug)]
pub enum ReserveError {
    /// Too much is staged, or the next segment is being prepared: wait, then reserve again.
    Busy(StageWait),
    Refused(LogError),
}

#[cfg(test)]
mod tests;
