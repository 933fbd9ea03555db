//! How does a log begin? Created empty, or opened after a scan; in both cases the fence is durable before anything else.
//!
//! 1. The fence of the new incarnation is extended before any file with groups is renamed or removed: a renamed segment hides its
//!    discarded groups from the next scan, and only the fence then keeps their epochs from being used again.
//! 2. Each incarnation begins in a fresh segment: what a torn tail left is never written over while it is in use.
//! 3. A creation that did not finish may be repeated; one that was used may not.
//! 4. A directory that joins has a segment before the fence names it: a device without one is a lost one.
//! 5. A name that only a former open's sync of the directory covers is not relied on: that sync may have failed, and then no later one covers
//!    it. Unused segments get new names, before the fence; they hide nothing, as no group in them was synced. A segment with groups was
//!    named durably before the first of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{DeviceId, Epoch};
use crate::io::{BLOCK_BYTES, Clock, Io, Lock, OpenOptions};
use crate::planted::{self, Bug};

use super::fence::{self, FenceList, FenceRecord};
use super::flush::{Chain, Device};
use super::scan::{DeviceScan, LogDamage, Scan, SegmentScan};
use super::segment::{self, FileError, InUse, Owner, Segments};
use super::stage::workers_per_device;
use super::{DEVICES_MAX, DatabaseId, GroupNo, Incarnation, Log, LogError, LogOptions, SegmentNo};

/// One process per log directory.
const LOCK_NAME: &str = "lock";

/// What `create` and `open` have in common.
pub(super) struct Beginning {
    pub database: DatabaseId,
    pub incarnation: Incarnation,
    pub first_epoch: Epoch,
    /// The chain up to the horizon D, and D.
    pub chain: Chain,
    pub horizon: Epoch,
    pub wall_us: u64,
    pub next_group: Vec<GroupNo>,
    pub start_epoch: Epoch,
    pub locks: Vec<Arc<Vec<Box<dyn Lock>>>>,
}

impl Log {
    /// A new, empty log: incarnation 1. Refuses directories that hold a log with content.
    pub fn create(
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        options: &LogOptions,
        database: DatabaseId,
    ) -> Result<Arc<Log>, LogError> {
        let files_max = validate(options)?;
        for dir in &options.dirs {
            io.create_dir_all(dir).map_err(|error| LogError::io("create", dir, error))?;
        }
        let locks = lock_dirs(&*io, &options.dirs).map_err(lock_error)?;
        for dir in &options.dirs {
            clear_unused(&*io, dir)?;
        }
        for dir in &options.fence_dirs {
            // One that this creation left may stay; another database's may not be written over.
            if fence::read(&*io, dir)?.records.iter().any(|record| record.database != database) {
                return Err(LogError::Exists { path: dir.clone() });
            }
        }
        let record = FenceRecord {
            database,
            incarnation: Incarnation(1),
            horizon: Epoch(0),
            first_epoch: Epoch(1),
            wall_us: clock.wall_us(),
            devices: options.dirs.len() as u16,
        };
        FenceList::found(&*io, options, record)?;
        let device = |(i, dir): (usize, &PathBuf)| {
            let segments = Segments::new(options.segment_bytes, files_max, Vec::new(), Vec::new(), SegmentNo(1));
            let device = Device::new(owner_of(options, &record, i, SegmentNo(1)), dir, options, segments);
            device.prepare_first(&*io)?;
            Ok::<_, LogError>(device)
        };
        let devices = options.dirs.iter().enumerate().map(device).collect::<Result<Vec<_>, _>>()?;
        let beginning = Beginning {
            database,
            incarnation: record.incarnation,
            first_epoch: record.first_epoch,
            chain: Chain::default(),
            horizon: Epoch(0),
            wall_us: record.wall_us,
            next_group: vec![GroupNo(1); options.dirs.len()],
            start_epoch: Epoch(0),
            locks: vec![Arc::new(locks)],
        };
        Ok(Log::begin(io, clock, options, devices, beginning))
    }

    /// Starts the next incarnation after a scan: the fence is durable when this returns. Replay may go on reading
    /// through `scan` while the log is used, but not beyond the first [`Log::recycle_below`].
    pub fn open(
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        options: &LogOptions,
        scan: &Scan,
    ) -> Result<Arc<Log>, LogError> {
        let files_max = validate(options)?;
        let newest = scan.fence().newest();
        let record = FenceRecord {
            database: newest.database,
            incarnation: Incarnation(newest.incarnation.0 + 1),
            horizon: scan.chain_end(),
            // Room of one epoch, so that no arithmetic at the border has to be right to the last one.
            first_epoch: Epoch(scan.largest_epoch_seen().0 + 2),
            wall_us: clock.wall_us().max(scan.last_wall_us()),
            devices: options.dirs.len() as u16,
        };
        // Before anything else changes: renaming a segment hides discarded groups from the next scan, and only the
        // fence then keeps their epochs from being used again.
        if !planted::is(Bug::TrustPageCache) {
            scan.rewrite_unproven()?;
        }
        let mut locks = vec![scan.locks()];
        let mut joining = join(&*io, options, &record, files_max, scan, &mut locks)?;
        let mut unused = Vec::new();
        for (i, (dir, found)) in options.dirs.iter().zip(scan.devices()).enumerate() {
            let owner = owner_of(options, &record, i, above(found.last_segment));
            unused.push(name_unused(&*io, dir, owner, files_max, found)?);
        }
        if !planted::is(Bug::SkipFence) {
            scan.fence().extend(&*io, options, record, scan.last_incarnation())?;
        }
        let device = |(i, dir): (usize, &PathBuf)| {
            if let Some(device) = joining[i].take() {
                return Ok(device);
            }
            let found = &scan.devices()[i];
            let owner = owner_of(options, &record, i, above(found.last_segment));
            let segments = adopt(&*io, dir, owner, files_max, found, std::mem::take(&mut unused[i]))?;
            // Without a spare the first reservation waits for one to be filled with zeros. That is not done here: who only reads,
            // and a log that is full and must be recycled first, need none.
            let device = Device::new(owner, dir, options, segments);
            device.open_spares(&*io)?;
            Ok::<_, LogError>(device)
        };
        let devices = options.dirs.iter().enumerate().map(device).collect::<Result<Vec<_>, _>>()?;
        let beginning = Beginning {
            database: record.database,
            incarnation: record.incarnation,
            first_epoch: record.first_epoch,
            chain: scan.chain().clone(),
            horizon: record.horizon,
            wall_us: record.wall_us,
            next_group: scan.devices().iter().map(|found| GroupNo(found.last_group.0 + 1)).collect(),
            start_epoch: scan.start().epoch,
            locks,
        };
        Ok(Log::begin(io, clock, options, devices, beginning))
    }
}

fn validate(options: &LogOptions) -> Result<usize, LogError> {
    let refuse = |reason: String| Err(LogError::Options { reason });
    let devices = options.dirs.len();
    if devices == 0 || devices > DEVICES_MAX {
        return refuse(format!("1 to {DEVICES_MAX} log directories are supported, {devices} given"));
    }
    let all: Vec<_> = options.dirs.iter().chain(&options.retired_dirs).chain(&options.fence_dirs).collect();
    if let Some(twice) = (1..all.len()).find(|&i| all[..i].contains(&all[i])) {
        return refuse(format!("{} is given twice", all[twice].display()));
    }
    if !options.segment_bytes.is_multiple_of(BLOCK_BYTES as u64) || options.segment_bytes > 1 << 31 {
        return refuse(format!("segments are multiples of {BLOCK_BYTES} bytes up to 2 GiB"));
    }
    if options.stage_limit_bytes == 0 || workers_per_device(options) == 0 {
        let (stage, segment) = (options.stage_limit_bytes, options.segment_bytes);
        return refuse(format!("a staging limit of {stage} bytes does not go with segments of {segment} bytes"));
    }
    let files = options.log_size_bytes / devices as u64 / options.segment_bytes;
    if files < 4 {
        return refuse(format!("the log size must allow 4 segments on each device, it allows {files}"));
    }
    Ok(files as usize)
}

pub(super) fn lock_dirs(io: &dyn Io, dirs: &[PathBuf]) -> Result<Vec<Box<dyn Lock>>, (PathBuf, io::Error)> {
    dirs.iter().map(|dir| io.lock(&dir.join(LOCK_NAME)).map_err(|error| (dir.clone(), error))).collect()
}

impl From<LogDamage> for LogError {
    fn from(damage: LogDamage) -> LogError {
        match damage {
            LogDamage::Io { action, path, source } => LogError::Io { action, path, source },
            other => LogError::Options { reason: other.to_string() },
        }
    }
}

impl From<FileError> for LogError {
    fn from(failed: FileError) -> LogError {
        LogError::io(failed.action, &failed.path, failed.error)
    }
}

fn lock_error((path, error): (PathBuf, io::Error)) -> LogError {
    match error.kind() {
        io::ErrorKind::WouldBlock => LogError::Locked { path },
        _ => LogError::io("lock", &path, error),
    }
}

/// Makes devices of the directories that have no segment yet: each gets one, so that no later open takes it for a lost device.
fn join(
    io: &dyn Io,
    options: &LogOptions,
    record: &FenceRecord,
    files_max: usize,
    scan: &Scan,
    locks: &mut Vec<Arc<Vec<Box<dyn Lock>>>>,
) -> Result<Vec<Option<Device>>, LogError> {
    let mut joined = Vec::new();
    for (i, (dir, found)) in options.dirs.iter().zip(scan.devices()).enumerate() {
        if !found.segments.is_empty() {
            joined.push(None);
            continue;
        }
        if !found.is_locked {
            io.create_dir_all(dir).map_err(|error| LogError::io("create", dir, error))?;
            locks.push(Arc::new(lock_dirs(io, std::slice::from_ref(dir)).map_err(lock_error)?));
        }
        let next = above(found.last_segment);
        let segments = Segments::new(options.segment_bytes, files_max, Vec::new(), Vec::new(), next);
        let device = Device::new(owner_of(options, record, i, next), dir, options, segments);
        device.prepare_first(io)?;
        joined.push(Some(device));
    }
    Ok(joined)
}

/// Removes what an unfinished creation left. A directory with any group, or with the fence of a second incarnation, is
/// somebody's database.
fn clear_unused(io: &dyn Io, dir: &Path) -> Result<(), LogError> {
    let fence = fence::read(io, dir)?;
    if fence.records.len() > 1 {
        return Err(LogError::Exists { path: dir.to_path_buf() });
    }
    let names = io.list(dir).map_err(|error| LogError::io("list", dir, error))?;
    let files = names.iter().filter(|name| *name == segment::PREPARE_NAME || segment::parse_name(name).is_some());
    let paths: Vec<_> = files.map(|name| dir.join(name)).collect();
    for path in &paths {
        let file = io.open(path, OpenOptions::default()).map_err(|error| LogError::io("open", path, error))?;
        let len = file.len().map_err(|error| LogError::io("measure", path, error))?;
        let mut block = vec![0; BLOCK_BYTES.min(len as usize)];
        file.read_at(&mut block, 0).map_err(|error| LogError::io("read", path, error))?;
        if block.iter().any(|&byte| byte != 0) && segment::read_marker(&block).is_none() {
            return Err(LogError::Exists { path: dir.to_path_buf() });
        }
    }
    for path in &paths {
        io.remove(path).map_err(|error| LogError::io("remove", path, error))?;
    }
    io.sync_dir(dir).map_err(|error| LogError::io("sync", dir, error))
}

/// What the markers of the incarnation that `record` begins say on the device of directory `i`.
fn owner_of(options: &LogOptions, record: &FenceRecord, i: usize, first: SegmentNo) -> Owner {
    let FenceRecord { database, incarnation, .. } = *record;
    Owner { database, device: DeviceId(i as u16), incarnation, first, segment_bytes: options.segment_bytes }
}

fn above(number: SegmentNo) -> SegmentNo {
    SegmentNo(number.0 + 1)
}

/// Gives a device's unused segments new names, durable when this returns (5). All are marked before the first is renamed, the last ones first:
/// until the fence is extended, a marker of the incarnation before still proves what lies below it.
fn name_unused(
    io: &dyn Io,
    dir: &Path,
    owner: Owner,
    files_max: usize,
    found: &DeviceScan,
) -> Result<Vec<SegmentNo>, LogError> {
    let needed = found.segments.iter().filter(|segment| segment.needed.is_some()).count();
    let fresh = found.segments.iter().filter(|segment| segment.is_fresh && segment.bytes == owner.segment_bytes);
    let last: Vec<_> = fresh.rev().take(files_max.saturating_sub(needed)).collect();
    let number_of = |segment: &SegmentScan, next| if planted::is(Bug::TrustNames) { segment.number } else { next };
    let numbered = last.into_iter().rev().zip((owner.first.0..).map(SegmentNo));
    let named: Vec<_> = numbered.map(|(segment, next)| (segment, number_of(segment, next))).collect();
    let path = |number| dir.join(segment::file_name(number));
    // Before the names: whatever a power cut keeps of both is a file that recovery reads and finds without groups.
    for (segment, number) in named.iter().rev() {
        let marked = segment::mark_unused(&*segment.file, owner, *number);
        marked.map_err(|error| LogError::io("mark", &path(segment.number), error))?;
    }
    for (segment, number) in named.iter().filter(|(segment, number)| segment.number != *number) {
        let (from, to) = (path(segment.number), path(*number));
        io.rename_to_new(&from, &to).map_err(|error| LogError::io("rename", &from, error))?;
    }
    if !named.is_empty() {
        io.sync_dir(dir).map_err(|error| LogError::io("sync", dir, error))?;
    }
    Ok(named.into_iter().map(|(_, number)| number).collect())
}

/// Takes over a device's files: those with needed groups as they are, the others as spares under new numbers, behind the `spares` that
/// have theirs.
fn adopt(
    io: &dyn Io,
    dir: &Path,
    owner: Owner,
    files_max: usize,
    found: &DeviceScan,
    mut spares: Vec<SegmentNo>,
) -> Result<Segments, LogError> {
    let mut in_use = Vec::new();
    let last = spares.last().map_or(found.last_segment, |spare| found.last_segment.max(*spare));
    let mut next = above(last);
    let prepare = dir.join(segment::PREPARE_NAME);
    if io.exists(&prepare).map_err(|error| LogError::io("look for", &prepare, error))? {
        io.remove(&prepare).map_err(|error| LogError::io("remove", &prepare, error))?;
    }
    let needed = found.segments.iter().filter(|segment| segment.needed.is_some()).count();
    let is_fresh = |segment: &SegmentScan| segment.is_fresh && segment.bytes == owner.segment_bytes;
    // The first ones, if any, are those that are one too many.
    let mut unnamed = found.segments.iter().filter(|segment| is_fresh(segment)).count() - spares.len();
    let (mut used, mut odd) = (Vec::new(), Vec::new());
    for segment in &found.segments {
        if let Some((first_group, last_epoch)) = segment.needed {
            in_use.push(InUse { number: segment.number, bytes: segment.bytes, first_group, last_epoch });
            continue;
        }
        if is_fresh(segment) && unnamed == 0 {
            continue;
        }
        unnamed -= usize::from(is_fresh(segment));
        if segment.bytes == owner.segment_bytes && needed + spares.len() + used.len() < files_max {
            used.push(segment);
        } else {
            odd.push((dir.join(segment::file_name(segment.number)), segment));
        }
    }
    for segment in used {
        // One by one: this incarnation's numbers have no gap.
        segment::renumber(io, dir, owner, &*segment.file, (segment.number, next))?;
        spares.push(next);
        next = above(next);
    }
    // Without any segment the next recovery would take the device for a lost one: the last goes when there is another.
    if in_use.is_empty()
        && spares.is_empty()
        && let Some((_, kept)) = odd.pop()
    {
        let (number, bytes) = (kept.number, kept.bytes);
        in_use.push(InUse { number, bytes, first_group: GroupNo(0), last_epoch: Epoch(0) });
    }
    for (path, _) in odd {
        io.remove(&path).map_err(|error| LogError::io("remove", &path, error))?;
    }
    io.sync_dir(dir).map_err(|error| LogError::io("sync", dir, error))?;
    Ok(Segments::new(owner.segment_bytes, files_max, in_use, spares, next))
}
