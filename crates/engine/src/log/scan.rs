//! What does a recovery read, and is it all there? Every used segment once, every 4 KiB where no group is recognised.
//!
//! The log does not look into frames, but while a body is in the cache its caller may: [`scan_with`] makes a digest of each
//! group that checks, and gives those of the groups that count.
//!
//! The scan collects the groups whose header and body check, drops those that the fence voids, and follows the chain
//! from the log's start: the next epoch must name the last one as its predecessor and have every group that it names.
//! Where that ends is the horizon D. Then D is judged:
//!
//! 1. D below the newest fence, below a valid witness, or below an epoch that images rely on: something acknowledged is
//!    missing. That is damage, not a torn tail.
//! 2. A valid group more than one epoch beyond the first incomplete one: e+2 is submitted only when e is complete, so e
//!    was complete once. Damage.
//! 3. Groups of an incarnation that the fence does not know: the fence is damaged.
//! 4. A segment that a marker proves to have been there, and that is not, or is shorter. Damage: any number of epochs at the log's end, with
//!    their witnesses, may be gone with it.
//! 5. Otherwise what lies beyond D was never acknowledged and is discarded.
//!
//! Everything read is synced first: after a killed process it may live in the page cache only, and what is not on disk
//! must not become the ground of a new incarnation. After a failed sync even that is not enough: the kernel calls the pages clean, readers
//! see them, and a later sync succeeds and covers nothing. So what nothing proves to be on disk is written once more ([`Scan::rewrite_unproven`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::crew::with_others;
use crate::ids::{DeviceId, Epoch};
use crate::io::shut::ShutFile;
use crate::io::{AlignedBuf, BLOCK_BYTES, File, Io, Lock, OpenOptions};
use crate::planted::{self, Bug};

use super::fence::FenceList;
use super::flush::Chain;
use super::group::{BadFrame, GroupHeader, NoHeader, group_bytes};
use super::open::lock_dirs;
use super::segment::{self, Owner};
use super::{DatabaseId, GroupNo, Incarnation, LogOptions, LogStart, SegmentNo};

/// Read ahead of the scan; large reads are what makes a device fast.
const WINDOW_BYTES: u64 = 4 << 20;

/// What a caller who reads many groups should ask for at once.
pub const RUN_BYTES: u64 = 4 << 20;

/// One valid group with an epoch up to D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRef {
    /// Where it lies: a log directory, or behind them a retired one.
    pub(super) dir: usize,
    /// What its directory was in its incarnation.
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

impl GroupRef {
    /// Bytes of the group in its segment.
    pub fn bytes(&self) -> u64 {
        (u64::from(self.header_bytes) + self.body_bytes).next_multiple_of(BLOCK_BYTES as u64)
    }

    /// Whether this group lies right behind `before`, so that one read serves both.
    pub fn follows(&self, before: &GroupRef) -> bool {
        (self.dir, self.segment, self.offset) == (before.dir, before.segment, before.offset + before.bytes())
    }
}

/// What lay beyond the horizon: commits that were never acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    pub epochs: u64,
    pub groups: u64,
    pub body_bytes: u64,
}

/// Where something is, or should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    pub offset: u64,
    pub device: DeviceId,
    pub epoch: Epoch,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { path, offset, device, epoch } = self;
        write!(f, "{} at offset {offset} (device {}, epoch {})", path.display(), device.0, epoch.0)
    }
}

/// What proves that more was acknowledged than is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The fence of the newest incarnation.
    Fence,
    /// A group sealed when that epoch was acknowledged.
    Witness(Place),
    /// Images that the manifest names.
    Images,
    /// A later group, which was submitted only because the epoch was complete.
    Successor(Place),
}

/// Why a database must not be opened: what was acknowledged is not all there, or what is there cannot be trusted.
#[derive(Clone, Debug)]
pub enum LogDamage {
    Io {
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// Another process uses the directory.
    Locked {
        path: PathBuf,
    },
    /// No log was created here.
    Absent {
        path: PathBuf,
    },
    UnknownVersion {
        path: PathBuf,
        version: u32,
    },
    /// A device that may have what was acknowledged, and that no directory holds. The path is one that is empty, not mounted, or
    /// replaced; empty itself if there is none.
    MissingDevice {
        device: DeviceId,
        path: PathBuf,
    },
    /// Two directories say that they are the same device: one is a copy.
    SameDevice {
        path: PathBuf,
        other: PathBuf,
        device: DeviceId,
    },
    /// A segment that the marker of a later one proves to have been there, in its full length.
    SegmentTaken {
        path: PathBuf,
        device: DeviceId,
        /// What is left of it, if it is there at all.
        bytes: Option<u64>,
        due_bytes: u64,
        proof: PathBuf,
    },
    /// Segments without a fence: nobody knows whose.
    Foreign {
        path: PathBuf,
    },
    OtherDatabase {
        path: PathBuf,
    },
    FenceConflict {
        path: PathBuf,
    },
    FenceDamaged {
        path: PathBuf,
        offset: u64,
    },
    /// A group of an incarnation that no fence announces.
    UnknownIncarnation {
        place: Place,
        incarnation: Incarnation,
    },
    /// The log ends at `durable`, before `acknowledged`; `place` is where the next group should be.
    Lost {
        place: Place,
        durable: Epoch,
        acknowledged: Epoch,
        proof: Proof,
    },
    /// A group that checked a moment ago does not any more.
    Unreadable {
        place: Place,
    },
    /// A group checks, yet its body is not a sequence of frames.
    Frame {
        place: Place,
        bad: BadFrame,
    },
}

impl LogDamage {
    pub(super) fn io(action: &'static str, path: &Path, error: io::Error) -> LogDamage {
        LogDamage::Io { action, path: path.to_path_buf(), source: Arc::new(error) }
    }

    /// A file or directory that is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, LogDamage::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// What a creation leaves that did not come to its end: it ended before the first fence, between two devices, or between two fences of
    /// one that followed it, each with a record of its own.
    pub fn is_of_creation(&self) -> bool {
        matches!(self, LogDamage::Absent { .. } | LogDamage::MissingDevice { .. } | LogDamage::FenceConflict { .. })
    }
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDamage::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}{}", path.display(), super::room_hint(source))
            }
            LogDamage::Locked { path } => {
                write!(f, "{} is in use, by another process or by this one", path.display())
            }
            LogDamage::Absent { path } => write!(f, "there is no log in {}", path.display()),
            LogDamage::UnknownVersion { path, version } => {
                write!(f, "{} has log format version {version}, which this program does not know", path.display())
            }
            LogDamage::MissingDevice { device, path } if path.as_os_str().is_empty() => {
                write!(f, "log device {} is missing: none of the directories given holds it", device.0)
            }
            LogDamage::MissingDevice { device, path } => {
                write!(f, "log device {} is missing from {}", device.0, path.display())
            }
            LogDamage::SameDevice { path, other, device } => {
                write!(f, "{} and {} both hold log device {}", path.display(), other.display(), device.0)
            }
            LogDamage::SegmentTaken { path, device, bytes, due_bytes, proof } => {
                let is = match bytes {
                    None => "is not there".to_owned(),
                    Some(bytes) => format!("has {bytes} of its {due_bytes} bytes"),
                };
                let (path, proof) = (path.display(), proof.display());
                write!(f, "{path} (device {}) {is}, while {proof} proves that it was whole", device.0)?;
                f.write_str(": what was acknowledged may be missing")
            }
            LogDamage::Foreign { path } => {
                write!(f, "{} holds log segments and no fence: it cannot become a log directory", path.display())
            }
            LogDamage::OtherDatabase { path } => {
                write!(f, "{} belongs to another database", path.display())
            }
            LogDamage::FenceConflict { path } => {
                write!(f, "{} contradicts the other fence files", path.display())
            }
            LogDamage::FenceDamaged { path, offset } => {
                write!(f, "{} is damaged at offset {offset}", path.display())
            }
            LogDamage::UnknownIncarnation { place, incarnation } => {
                write!(f, "{place} belongs to incarnation {}, which no fence announces", incarnation.0)
            }
            LogDamage::Lost { place, durable, acknowledged, proof } => {
                let by = match proof {
                    Proof::Fence => "the fence".to_owned(),
                    Proof::Witness(witness) => format!("the witness in {witness}"),
                    Proof::Images => "the checkpoint".to_owned(),
                    Proof::Successor(successor) => format!("its successor {successor}"),
                };
                let (durable, acknowledged) = (durable.0, acknowledged.0);
                write!(
                    f,
                    "the log is damaged: it ends at epoch {durable}, while {by} proves that epoch {acknowledged} "
                )?;
                write!(f, "was complete; the next group is missing from {place}")
            }
            LogDamage::Unreadable { place } => {
                write!(f, "the log is damaged: {place} cannot be read any more")
            }
            LogDamage::Frame { place, bad } => {
                write!(f, "the log is damaged: {place} has a bad frame at byte {} of its body", bad.offset)
            }
        }
    }
}

impl std::error::Error for LogDamage {}

/// One log directory's files as the scan found them.
pub(super) struct DeviceScan {
    /// The directory is there, and locked.
    pub is_locked: bool,
    pub segments: Vec<SegmentScan>,
    /// The largest numbers seen, needed or not.
    pub last_segment: SegmentNo,
    pub last_group: GroupNo,
}

pub(super) struct SegmentScan {
    pub number: SegmentNo,
    pub file: Arc<dyn File>,
    pub bytes: u64,
    /// First group and last epoch of the groups up to D and not below the log's start.
    pub needed: Option<(GroupNo, Epoch)>,
    /// Its marker stands, and no segment with a larger number was used: it can be used without being looked into.
    pub is_fresh: bool,
}

/// A judged log: what to replay, and what the next incarnation builds on.
pub struct Scan {
    fence: FenceList,
    start: LogStart,
    chain: Chain,
    chain_end: Epoch,
    largest_epoch: Epoch,
    last_wall_us: u64,
    /// What was acknowledged, by fence and witnesses: so much is on disk.
    proven: Epoch,
    discarded: Discarded,
    read_bytes: u64,
    groups: Vec<GroupRef>,
    devices: Vec<DeviceScan>,
    files: HashMap<(usize, SegmentNo), (Arc<dyn File>, PathBuf)>,
    locks: Arc<Vec<Box<dyn Lock>>>,
}

/// Reads and judges the whole log. `start` is what the caller's manifest saved (or the default), `relied_on` the largest
/// epoch in which any image named by the manifest was taken.
pub fn scan(io: &Arc<dyn Io>, options: &LogOptions, start: &LogStart, relied_on: Epoch) -> Result<Scan, LogDamage> {
    let nothing = Look { digest: &|_: &[u8]| (), sized: &|_| (), read: &|_| () };
    Ok(scan_with(io, options, start, relied_on, &nothing)?.0)
}

/// What a caller wants to know while the log is read. Several threads call these at once.
pub struct Look<'a, D> {
    /// Makes what the caller keeps of a group's body that checks; whether the group counts is not known yet.
    pub digest: &'a (dyn Fn(&[u8]) -> D + Sync),
    /// Told once how many bytes will be read.
    pub sized: &'a (dyn Fn(u64) + Sync),
    /// Told how many were just read.
    pub read: &'a (dyn Fn(u64) + Sync),
}

/// As [`scan`], with the digest of each of [`Scan::groups`], in their order.
pub fn scan_with<D: Send>(
    io: &Arc<dyn Io>,
    options: &LogOptions,
    start: &LogStart,
    relied_on: Epoch,
    look: &Look<'_, D>,
) -> Result<(Scan, Vec<D>), LogDamage> {
    let locks = take_locks(&**io, options)?;
    let fence = FenceList::load(&**io, options, start)?;
    let (files, is_taken) = open_segments(io, options, start, &fence)?;
    let mut read = read_segments(&files, fence.database(), options.scan_threads, look)?;
    read.sort_by_key(|(found, _)| (found.dir, found.header.segment, found.header.offset));
    let (found, digests): (Vec<Found>, Vec<D>) = read.into_iter().unzip();
    let judge = Judge { fence: &fence, start, files: &files, found: &found, dirs: &options.dirs };
    judge.incarnations()?;
    let (chain, chain_end) = judge.follow_chain();
    judge.horizon(chain_end, relied_on)?;
    is_taken.map_or(Ok(()), Err)?;
    let largest_epoch = judge.largest_epoch(relied_on);
    let (kept, discarded) = judge.split(chain_end);
    let groups: Vec<GroupRef> =
        found.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(found, _)| group_ref(found)).collect();
    let digests = digests.into_iter().zip(kept).filter_map(|(digest, kept)| kept.then_some(digest)).collect();
    let last_wall_us = found.iter().map(|found| found.header.wall_us).max().unwrap_or(0).max(fence.newest().wall_us);
    let witnessed = found.iter().map(|found| found.header.witness).max().unwrap_or_default();
    let proven = witnessed.max(fence.newest().horizon);
    let read_bytes = files.iter().filter(|file| file.is_read).map(|file| file.bytes).sum();
    let devices = summarise(&**io, options, &fence, &files, &found, &groups, start);
    let files = files.into_iter().map(|f| ((f.dir, f.number), (f.file, f.path))).collect();
    let (start, locks) = (start.clone(), Arc::new(locks));
    let scan = Scan {
        fence,
        start,
        chain,
        chain_end,
        largest_epoch,
        last_wall_us,
        proven,
        discarded,
        read_bytes,
        groups,
        devices,
        files,
        locks,
    };
    Ok((scan, digests))
}

impl Scan {
    pub fn database(&self) -> DatabaseId {
        self.fence.database()
    }

    /// The horizon D. An epoch of the newest incarnation's void range counts as durable: nothing can be missing there.
    pub fn durable(&self) -> Epoch {
        self.chain_end.max(Epoch(self.fence.newest().first_epoch.0 - 1))
    }

    /// The last epoch of the chain that is complete.
    pub fn chain_end(&self) -> Epoch {
        self.chain_end
    }

    pub fn largest_epoch_seen(&self) -> Epoch {
        self.largest_epoch
    }

    /// Bytes of the segments that were read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    pub fn discarded(&self) -> Discarded {
        self.discarded
    }

    pub fn last_wall_us(&self) -> u64 {
        self.last_wall_us
    }

    pub fn start(&self) -> &LogStart {
        &self.start
    }

    /// Every valid group from the log's start to D, each once, ordered by directory and then as they lie there.
    pub fn groups(&self) -> &[GroupRef] {
        &self.groups
    }

    /// Reads one group and checks it again; the result is its body, for [`super::frames`]. Any number of threads, each
    /// with a buffer of its own.
    pub fn read_group<'b>(&self, group: &GroupRef, buf: &'b mut AlignedBuf) -> Result<&'b [u8], LogDamage> {
        let (file, path) = self.file_of(group);
        buf.resize(group.bytes() as usize);
        file.read_at(buf, group.offset).map_err(|error| LogDamage::io("read", path, error))?;
        self.body(group, buf)
    }

    /// Reads groups that [follow](GroupRef::follows) each other at once, and checks them again; the result is their bodies.
    pub fn read_run<'b>(&self, run: &[GroupRef], buf: &'b mut AlignedBuf) -> Result<Vec<&'b [u8]>, LogDamage> {
        let Some(first) = run.first() else { return Ok(Vec::new()) };
        debug_assert!(run.is_sorted_by(|a, b| b.follows(a)), "a run has no gaps");
        let (file, path) = self.file_of(first);
        buf.resize(run.iter().map(GroupRef::bytes).sum::<u64>() as usize);
        file.read_at(buf, first.offset).map_err(|error| LogDamage::io("read", path, error))?;
        let body = |group: &GroupRef| self.body(group, &buf[(group.offset - first.offset) as usize..]);
        run.iter().map(body).collect()
    }

    fn body<'b>(&self, group: &GroupRef, bytes: &'b [u8]) -> Result<&'b [u8], LogDamage> {
        let start = group.header_bytes as usize;
        let body = &bytes[start..start + group.body_bytes as usize];
        if crc32c::crc32c(body) != group.body_crc && !planted::is(Bug::SkipBodyCheck) {
            return Err(LogDamage::Unreadable { place: self.place(group) });
        }
        Ok(body)
    }

    /// Writes the groups again that no fence and no witness proves to be on disk, and syncs them: they are the last few. The bytes are those that
    /// are there, so it does not matter how far a power cut lets this come. Groups of retired directories too: what is acknowledged may be on them alone.
    pub(super) fn rewrite_unproven(&self) -> Result<(), LogDamage> {
        let mut buf = AlignedBuf::new();
        let mut written = BTreeSet::new();
        for group in self.groups.iter().filter(|group| group.epoch > self.proven) {
            self.read_group(group, &mut buf)?;
            let (file, path) = self.file_of(group);
            file.write_at(&buf, group.offset).map_err(|error| LogDamage::io("write", path, error))?;
            written.insert((group.dir, group.segment));
        }
        for place in written {
            let (file, path) = &self.files[&place];
            file.sync().map_err(|error| LogDamage::io("sync", path, error))?;
        }
        Ok(())
    }

    /// The newest incarnation that wrote any group: its fence was durable before.
    pub(super) fn last_incarnation(&self) -> Incarnation {
        self.groups.iter().map(|group| group.incarnation).max().unwrap_or_default()
    }

    fn file_of(&self, group: &GroupRef) -> &(Arc<dyn File>, PathBuf) {
        self.files.get(&(group.dir, group.segment)).expect("the group is one of this scan")
    }

    /// Names a bad frame of `group`, for the caller that iterates over [`super::frames`].
    pub fn bad_frame(&self, group: &GroupRef, bad: BadFrame) -> LogDamage {
        LogDamage::Frame { place: self.place(group), bad }
    }

    fn place(&self, group: &GroupRef) -> Place {
        Place { path: self.file_of(group).1.clone(), offset: group.offset, device: group.device, epoch: group.epoch }
    }

    /// The incarnation of the newest fence, whether it wrote a group or not.
    pub fn newest_incarnation(&self) -> Incarnation {
        self.fence.newest().incarnation
    }

    pub(super) fn fence(&self) -> &FenceList {
        &self.fence
    }

    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    pub(super) fn devices(&self) -> &[DeviceScan] {
        &self.devices
    }

    pub(super) fn locks(&self) -> Arc<Vec<Box<dyn Lock>>> {
        self.locks.clone()
    }
}

/// Every directory that may hold groups, retired ones last.
fn held(options: &LogOptions) -> impl Iterator<Item = &PathBuf> {
    options.dirs.iter().chain(&options.retired_dirs)
}

/// Locks what is there. What is not may join later, or is missed when the fence is read.
fn take_locks(io: &dyn Io, options: &LogOptions) -> Result<Vec<Box<dyn Lock>>, LogDamage> {
    let mut dirs = Vec::new();
    for dir in held(options) {
        if io.exists(dir).map_err(|error| LogDamage::io("look for", dir, error))? {
            dirs.push(dir.clone());
        }
    }
    lock_dirs(io, &dirs).map_err(|(path, error)| match error.kind() {
        io::ErrorKind::WouldBlock => LogDamage::Locked { path },
        _ => LogDamage::io("lock", &path, error),
    })
}

/// A segment file to read, or one that is not read: below the log's start, or unused.
struct SegmentFile {
    dir: usize,
    number: SegmentNo,
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
    is_read: bool,
    is_unused: bool,
}

/// Looks at every segment and syncs it. Each device has at least one from its creation on. Says whether one was [`taken`] away, too: what its groups
/// prove tells more, if there is any left that does.
fn open_segments(
    io: &Arc<dyn Io>,
    options: &LogOptions,
    start: &LogStart,
    fence: &FenceList,
) -> Result<(Vec<SegmentFile>, Option<LogDamage>), LogDamage> {
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    let mut files = Vec::new();
    let mut is_taken = None;
    for (dir, path) in held(options).enumerate() {
        let damage = |action, error| LogDamage::io(action, path, error);
        if !io.exists(path).map_err(|error| damage("look for", error))? {
            continue;
        }
        let device = fence.device_of(dir, start.incarnation);
        let start_here = start.devices.iter().find(|start| Some(start.device) == device);
        let mut first = start_here.map(|start| start.segment);
        io.sync_dir(path).map_err(|error| damage("sync", error))?;
        let names = io.list(path).map_err(|error| damage("list", error))?;
        let before = files.len();
        let (mut is_foreign, mut is_first_void) = (false, false);
        let mut markers = Vec::new();
        for number in names.iter().filter_map(|name| segment::parse_name(name)) {
            let path = path.join(segment::file_name(number));
            let damage = |action, error| LogDamage::io(action, &path, error);
            let open = OpenOptions { create: false, direct: options.direct_io };
            let file = io.open(&path, open).map_err(|error| damage("open", error))?;
            file.sync().map_err(|error| damage("sync", error))?;
            let bytes = file.len().map_err(|error| damage("measure", error))?;
            let is_needed = first.is_none_or(|first| number >= first);
            let mut marked = None;
            if is_needed && bytes >= BLOCK_BYTES as u64 {
                file.read_at(&mut block, 0).map_err(|error| damage("read", error))?;
                let own =
                    |(owner, _): &(Owner, _)| owner.database == fence.database() && fence.may_be(dir, owner.device);
                marked = segment::read_marker(&block).filter(own);
                let begins = start_here.filter(|start| number.0 == start.segment.0 + 1).map(|start| start.group);
                if begins.is_some_and(|group| begins_with(&block, (fence.database(), start.incarnation), number, group))
                {
                    is_first_void = true;
                }
            }
            let is_unused = marked.is_some_and(|(_, marked)| marked == number);
            markers.extend(marked.filter(|_| is_unused));
            // An earlier attempt to join may have ended between a new marker and the new name.
            is_foreign |= marked.is_none();
            let file = ShutFile::of(io, &path, open, &*file);
            files.push(SegmentFile { dir, number, path, file, bytes, is_read: is_needed && !is_unused, is_unused });
        }
        if is_foreign && fence.is_joining(dir) {
            return Err(LogDamage::Foreign { path: path.clone() });
        }
        // Up to release 0.1 of November 2026 a segment that the start names was recycled if the start's first group went to the next one.
        if is_first_void {
            first = first.map(|first| SegmentNo(first.0 + 1));
        }
        let lengths = files[before..].iter().map(|file| (file.number, file.bytes)).collect();
        // Who has lost the manifest knows where the groups begin, not from which segment on all must be there.
        let is_known = start.epoch == Epoch(0) || !start.devices.is_empty();
        let newest = fence.newest().incarnation;
        is_taken = is_taken.or_else(|| taken(path, &lengths, &markers, newest, first).filter(|_| is_known));
        let newest = fence.device_of(dir, fence.newest().incarnation);
        if let Some(device) = newest.filter(|_| files.len() == before) {
            return Err(LogDamage::MissingDevice { device, path: path.clone() });
        }
    }
    Ok((files, is_taken))
}

/// Whether a segment begins with this group.
fn begins_with(
    block: &[u8],
    (database, incarnation): (DatabaseId, Incarnation),
    number: SegmentNo,
    group: GroupNo,
) -> bool {
    GroupHeader::decode(block).is_ok_and(|header| {
        (header.database, header.incarnation) == (database, incarnation)
            && (header.segment, header.offset) == (number, 0)
            && header.group == group
    })
}

/// The first segment of a directory that the markers of the newest incarnation prove, and that was taken away or cut short by somebody else
/// ([`segment`], 5). Those of earlier incarnations need none: the fence's horizon proves what they held. `needed` is the log's start here.
pub(super) fn taken(
    dir: &Path,
    lengths: &BTreeMap<SegmentNo, u64>,
    markers: &[(Owner, SegmentNo)],
    newest: Incarnation,
    needed: Option<SegmentNo>,
) -> Option<LogDamage> {
    let of_newest = markers.iter().filter(|(owner, _)| owner.incarnation == newest);
    let (owner, last) = of_newest.max_by_key(|(_, number)| *number)?;
    let first = needed.map_or(owner.first, |needed| needed.max(owner.first));
    let is_whole = |number: &SegmentNo| lengths.get(number) == Some(&owner.segment_bytes);
    let number = (first.0..=last.0).map(SegmentNo).find(|number| !is_whole(number))?;
    Some(LogDamage::SegmentTaken {
        path: dir.join(segment::file_name(number)),
        device: owner.device,
        bytes: lengths.get(&number).copied(),
        due_bytes: owner.segment_bytes,
        proof: dir.join(segment::file_name(*last)),
    })
}

/// A group that checks, and the directory in which it lies.
struct Found {
    dir: usize,
    header: GroupHeader,
}

/// Every group whose header and body check, at the place its header names, with its digest.
fn read_segments<D: Send>(
    files: &[SegmentFile],
    database: DatabaseId,
    threads: usize,
    look: &Look<'_, D>,
) -> Result<Vec<(Found, D)>, LogDamage> {
    let files: Vec<_> = files.iter().filter(|file| file.is_read).collect();
    (look.sized)(files.iter().map(|file| file.bytes).sum());
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            match read_segment(file, database, look) {
                Ok(groups) => found.lock().extend(groups),
                Err(damage) => {
                    failed.lock().get_or_insert(damage);
                    return;
                }
            }
        }
    };
    with_others(threads.min(files.len()).saturating_sub(1), work);
    match failed.into_inner() {
        Some(damage) => Err(damage),
        None => Ok(found.into_inner()),
    }
}

/// A sliding view of a file.
struct Window<'a> {
    file: &'a SegmentFile,
    buf: AlignedBuf,
    start: u64,
}

impl Window<'_> {
    /// `bytes` from `offset`; both are multiples of the block, and inside the file.
    fn get(&mut self, offset: u64, bytes: u64) -> Result<&[u8], LogDamage> {
        if offset < self.start || offset + bytes > self.start + self.buf.len() as u64 {
            let whole_blocks = self.file.bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            let ahead = bytes.max(WINDOW_BYTES).min(whole_blocks - offset);
            self.buf.resize(ahead as usize);
            self.start = offset;
            let read = self.file.file.read_at(&mut self.buf, offset);
            read.map_err(|error| LogDamage::io("read", &self.file.path, error))?;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.buf[at..at + bytes as usize])
    }
}

fn read_segment<D>(file: &SegmentFile, database: DatabaseId, look: &Look<'_, D>) -> Result<Vec<(Found, D)>, LogDamage> {
    let mut found = Vec::new();
    let mut window = Window { file, buf: AlignedBuf::new(), start: 0 };
    let block = BLOCK_BYTES as u64;
    let (mut offset, mut reported) = (0, 0);
    while offset + block <= file.bytes {
        let mut next = offset + block;
        match GroupHeader::decode(window.get(offset, block)?) {
            Ok(header) if is_at_home(&header, file, database, offset) => {
                let bytes = group_bytes(header.participants.len(), header.body_bytes);
                let start = header.bytes();
                let body = &window.get(offset, bytes)?[start..start + header.body_bytes as usize];
                if crc32c::crc32c(body) == header.body_crc || planted::is(Bug::SkipBodyCheck) {
                    next = offset + bytes;
                    let digest = (look.digest)(body);
                    found.push((Found { dir: file.dir, header }, digest));
                }
            }
            Ok(_) | Err(NoHeader::Absent | NoHeader::Damaged) => {}
            Err(NoHeader::Version(version)) => {
                return Err(LogDamage::UnknownVersion { path: file.path.clone(), version });
            }
        }
        if next - reported >= WINDOW_BYTES || next + block > file.bytes {
            (look.read)(next - reported);
            reported = next;
        }
        offset = next;
    }
    Ok(found)
}

/// A group belongs where its header says: this database, segment and offset. Anything else is a stale block of a recycled file
/// or the inside of some row. Its device is what its directory was in its incarnation; in another directory it is the same group.
fn is_at_home(header: &GroupHeader, file: &SegmentFile, database: DatabaseId, offset: u64) -> bool {
    let own = |p: &&super::group::Participant| {
        (p.device, p.group, p.body_bytes, p.body_crc)
            == (header.device, header.group, header.body_bytes, header.body_crc)
    };
    let place = (header.segment, header.offset) == (file.number, offset);
    header.database == database
        && (place || planted::is(Bug::StaleBlock))
        && header.body_bytes <= file.bytes
        && offset + group_bytes(header.participants.len(), header.body_bytes) <= file.bytes
        && header.participants.iter().filter(own).count() == 1
}

/// Everything a verdict needs.
struct Judge<'a> {
    fence: &'a FenceList,
    start: &'a LogStart,
    files: &'a [SegmentFile],
    found: &'a [Found],
    dirs: &'a [PathBuf],
}

impl Judge<'_> {
    /// (3) Every group is of an incarnation that the fence knows.
    fn incarnations(&self) -> Result<(), LogDamage> {
        let newest = self.fence.newest().incarnation;
        match self.found.iter().find(|found| found.header.incarnation > newest) {
            None => Ok(()),
            Some(found) => Err(LogDamage::UnknownIncarnation {
                place: self.place_of(found),
                incarnation: found.header.incarnation,
            }),
        }
    }

    /// Not below the log's start, and not voided by the fence.
    fn is_valid(&self, header: &GroupHeader) -> bool {
        let in_fence = self.fence.valid_epochs(header.incarnation);
        let in_fence = in_fence.is_some_and(|(first, last)| first <= header.epoch && header.epoch <= last);
        in_fence && (header.epoch >= self.start.epoch || planted::is(Bug::StaleBlock))
    }

    fn epochs(&self) -> BTreeMap<Epoch, Vec<&GroupHeader>> {
        let mut epochs: BTreeMap<Epoch, Vec<&GroupHeader>> = BTreeMap::new();
        for header in self.headers().filter(|header| self.is_valid(header)) {
            epochs.entry(header.epoch).or_default().push(header);
        }
        epochs
    }

    fn follow_chain(&self) -> (Chain, Epoch) {
        let mut chain = Chain::default();
        let mut end = self.start.prev;
        if end > Epoch(0) {
            chain.push(end);
        }
        for (epoch, groups) in self.epochs() {
            if groups[0].prev_epoch != end || missing_from(&groups).is_some() {
                break;
            }
            chain.push(epoch);
            end = epoch;
        }
        (chain, end)
    }

    /// (1), (2): whether anything proves that the chain once went further.
    fn horizon(&self, end: Epoch, relied_on: Epoch) -> Result<(), LogDamage> {
        let newest = self.fence.newest();
        let lost = |acknowledged, proof| {
            let place = self.place_after(end);
            Err(LogDamage::Lost { place, durable: end, acknowledged, proof })
        };
        if end < newest.horizon {
            return lost(newest.horizon, Proof::Fence);
        }
        let durable = end.max(Epoch(newest.first_epoch.0 - 1));
        if let Some(witness) = self.found.iter().max_by_key(|found| found.header.witness)
            && witness.header.witness > durable
            && !planted::is(Bug::SkipWitness)
        {
            return lost(witness.header.witness, Proof::Witness(self.place_of(witness)));
        }
        if relied_on > durable {
            return lost(relied_on, Proof::Images);
        }
        // Epochs are consecutive: the first incomplete one is durable + 1, and only one more can have been submitted.
        let beyond =
            |found: &&Found| found.header.incarnation == newest.incarnation && found.header.epoch.0 > durable.0 + 2;
        match self.found.iter().find(beyond) {
            Some(found) => lost(Epoch(found.header.epoch.0 - 2), Proof::Successor(self.place_of(found))),
            None => Ok(()),
        }
    }

    fn largest_epoch(&self, relied_on: Epoch) -> Epoch {
        let newest = self.fence.newest();
        let groups = self.headers().map(|header| header.epoch);
        let known = [newest.horizon, newest.first_epoch, relied_on, self.start.epoch, self.start.prev];
        groups.chain(known).max().expect("the list is not empty")
    }

    /// The groups up to the chain's end, each (incarnation, device, group) once, and a summary of the others that the
    /// newest incarnation wrote. Says of each group found whether it is one of them.
    fn split(&self, end: Epoch) -> (Vec<bool>, Discarded) {
        let mut seen = BTreeSet::new();
        let mut discarded = Discarded::default();
        let mut epochs = BTreeSet::new();
        let counts = |header: &GroupHeader| {
            if !self.is_valid(header) {
                return false;
            }
            if header.epoch > end {
                discarded.groups += 1;
                discarded.body_bytes += header.body_bytes;
                epochs.insert(header.epoch);
                return false;
            }
            seen.insert((header.incarnation, header.device, header.group))
        };
        let kept = self.headers().map(counts).collect();
        discarded.epochs = epochs.len() as u64;
        (kept, discarded)
    }

    fn headers(&self) -> impl Iterator<Item = &GroupHeader> {
        self.found.iter().map(|found| &found.header)
    }

    fn place_of(&self, found: &Found) -> Place {
        let Found { dir, header } = found;
        let file = self.files.iter().find(|f| (f.dir, f.number) == (*dir, header.segment));
        Place {
            path: file.map_or_else(PathBuf::new, |file| file.path.clone()),
            offset: header.offset,
            device: header.device,
            epoch: header.epoch,
        }
    }

    /// Where the first group missing after the chain's `end` should be: behind its predecessor on its device.
    fn place_after(&self, end: Epoch) -> Place {
        let epochs = self.epochs();
        let next = epochs.range(Epoch(end.0 + 1)..).next();
        let of_next = next.map(|(_, groups)| groups[0]);
        let missing = next.and_then(|(epoch, groups)| Some((*epoch, missing_from(groups)?)));
        // A whole epoch of the next incarnation names the one that is missing before it, at the beginning of its own segment.
        let named = of_next.filter(|next| next.incarnation > self.incarnation_of(end)).map(|next| {
            let before = (next.device, GroupNo(next.group.0.saturating_sub(1)));
            (Epoch(next.prev_epoch.0.max(end.0 + 1)), before)
        });
        let expected = || (Epoch(end.0 + 1), self.expected_after(end));
        let (epoch, (device, group)) = missing.or(named).unwrap_or_else(expected);
        let of_device = || self.found.iter().filter(|found| found.header.device == device);
        let own = of_next.and_then(|next| of_device().find(|found| found.header.incarnation == next.incarnation));
        let before = of_device().filter(|found| found.header.group < group);
        let before = before.max_by_key(|found| (found.header.incarnation, found.header.group));
        match (before, own) {
            (Some(before), Some(own)) if before.header.incarnation < own.header.incarnation => {
                Place { offset: 0, epoch, ..self.place_of(own) }
            }
            (Some(before), _) => {
                let bytes = group_bytes(before.header.participants.len(), before.header.body_bytes);
                let place = self.place_of(before);
                Place { offset: place.offset + bytes, epoch, ..place }
            }
            (None, _) => {
                let newest = self.fence.newest().incarnation;
                let dir = (0..self.dirs.len()).find(|&dir| self.fence.device_of(dir, newest) == Some(device));
                let path = dir.map(|dir| self.dirs[dir].clone()).unwrap_or_default();
                let file = self.files.iter().find(|file| Some(file.dir) == dir && file.is_read);
                Place { path: file.map_or(path, |file| file.path.clone()), offset: 0, device, epoch }
            }
        }
    }

    fn incarnation_of(&self, epoch: Epoch) -> Incarnation {
        let of_epoch = self.headers().find(|header| header.epoch == epoch && self.is_valid(header));
        of_epoch.map_or(Incarnation(0), |header| header.incarnation)
    }

    /// Without any group of the next epoch, its first device is as good a guess as any: the one that wrote last.
    fn expected_after(&self, end: Epoch) -> (DeviceId, GroupNo) {
        let last = self.headers().filter(|header| header.epoch <= end);
        let last = last.max_by_key(|header| header.epoch);
        last.map_or((DeviceId(0), GroupNo(0)), |header| (header.device, GroupNo(header.group.0 + 1)))
    }
}

/// A group that the epoch names and that is not there.
pub(super) fn missing_from(groups: &[&GroupHeader]) -> Option<(DeviceId, GroupNo)> {
    let first = groups[0];
    let named = first.participants.iter().find(|participant| {
        !groups.iter().any(|group| {
            (group.device, group.group) == (participant.device, participant.group)
                && (group.body_bytes, group.body_crc) == (participant.body_bytes, participant.body_crc)
                && group.incarnation == first.incarnation
                && group.participants == first.participants
        })
    });
    named.map(|participant| (participant.device, participant.group))
}

fn group_ref(found: &Found) -> GroupRef {
    let header = &found.header;
    GroupRef {
        dir: found.dir,
        device: header.device,
        incarnation: header.incarnation,
        group: header.group,
        epoch: header.epoch,
        segment: header.segment,
        offset: header.offset,
        header_bytes: header.bytes() as u32,
        body_bytes: header.body_bytes,
        body_crc: header.body_crc,
        wall_us: header.wall_us,
    }
}

fn below(number: SegmentNo) -> SegmentNo {
    SegmentNo(number.0.saturating_sub(1))
}

/// What each directory that will be a device has.
fn summarise(
    io: &dyn Io,
    options: &LogOptions,
    fence: &FenceList,
    files: &[SegmentFile],
    found: &[Found],
    groups: &[GroupRef],
    start: &LogStart,
) -> Vec<DeviceScan> {
    let mut needed: HashMap<(usize, SegmentNo), (GroupNo, Epoch)> = HashMap::new();
    for group in groups {
        let entry = needed.entry((group.dir, group.segment)).or_insert((group.group, group.epoch));
        *entry = (entry.0.min(group.group), entry.1.max(group.epoch));
    }
    let device = |(dir, path): (usize, &PathBuf)| {
        let files = files.iter().filter(|file| file.dir == dir);
        let was = fence.device_of(dir, start.incarnation);
        let saved = start.devices.iter().find(|start| Some(start.device) == was);
        // What is below the log's start is not read again: no group may go there.
        let first = saved.map_or(SegmentNo(0), |start| start.segment);
        let last_used = files.clone().filter(|file| file.is_read).map(|file| file.number).max();
        let segment = |file: &SegmentFile| SegmentScan {
            number: file.number,
            file: file.file.clone(),
            bytes: file.bytes,
            needed: needed.get(&(dir, file.number)).copied(),
            is_fresh: file.is_unused && first <= file.number && last_used.is_none_or(|last| last < file.number),
        };
        let seen = found.iter().filter(|found| found.dir == dir).map(|found| found.header.group);
        DeviceScan {
            is_locked: io.exists(path).unwrap_or(false),
            last_segment: files.clone().map(|file| file.number).max().unwrap_or_default().max(below(first)),
            last_group: seen.max().unwrap_or_default().max(saved.map_or(GroupNo(0), |start| start.group)),
            segments: files.map(segment).collect(),
        }
    };
    options.dirs.iter().enumerate().map(device).collect()
}
