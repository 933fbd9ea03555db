//! What does a recovery read? (interim: signatures)
use super::group::BadFrame;
use super::*;
use crate::io::{AlignedBuf, Io};

/// One valid group with an epoch up to D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRef {
    pub device: DeviceId,
    pub incarnation: Incarnation,
    pub group: GroupNo,
    pub epoch: Epoch,
    pub segment: SegmentNo,
    /// Of the group in its segment.
    pub offset: u64,
    pub header_bytes: u32,
    pub body_bytes: u64,
    pub body_crc: u32,
    pub wall_us: u64,
}

/// What lay beyond the horizon: commits that were never acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    pub epochs: u64,
    pub groups: u64,
    pub body_bytes: u64,
}

/// Why a database must not be opened: what was acknowledged is not all there, or what is there cannot be trusted.
#[derive(Clone, Debug)]
pub enum LogDamage {
    Io {
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    Frame {
        path: PathBuf,
        offset: u64,
        device: DeviceId,
        epoch: Epoch,
        bad: BadFrame,
    },
}

impl fmt::Display for LogDamage {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}
impl std::error::Error for LogDamage {}

pub struct Scan {}

/// Reads and judges the whole log. `start` is what the caller's manifest saved (or the default), `relied_on` the largest
/// epoch that any image named by the manifest was taken in.
pub fn scan(
    io: &Arc<dyn Io>,
    options: &LogOptions,
    start: &LogStart,
    relied_on: Epoch,
) -> Result<Scan, LogDamage> {
    let _ = (io, options, start, relied_on);
    unimplemented!()
}

impl Scan {
    pub fn database(&self) -> DatabaseId {
        unimplemented!()
    }
    /// The horizon D.
    pub fn durable(&self) -> Epoch {
        unimplemented!()
    }
    pub fn largest_epoch_seen(&self) -> Epoch {
        unimplemented!()
    }
    pub fn discarded(&self) -> Discarded {
        unimplemented!()
    }
    /// Every valid group from the log's start to D, each once, in no particular order across devices.
    pub fn groups(&self) -> &[GroupRef] {
        unimplemented!()
    }
    /// Reads one group and checks it again; the result is its body, for [`frames`]. Any number of threads.
    pub fn read_group<'b>(
        &self,
        group: &GroupRef,
        buf: &'b mut AlignedBuf,
    ) -> Result<&'b [u8], LogDamage> {
        let _ = (group, buf);
        unimplemented!()
    }
}
