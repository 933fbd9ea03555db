//! Which groups of the past are valid? A list, one record per incarnation, in every log and backup directory.
//!
//! The record of incarnation i says: before it, the horizon was D; what earlier incarnations wrote beyond D was never
//! acknowledged and is void for ever; its own epochs begin at `first_epoch`. It is durable in every directory before i
//! writes its first group, so a discarded epoch cannot come back when a second crash changes what can be read.
//!
//! The file `fence` is a sequence of blocks of 4,096 bytes, one record each, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `FRESHFNC` |
//! | 8 | 4 | format version of the log, 1 |
//! | 12 | 4 | CRC32C of the block, computed with these four bytes zero |
//! | 16 | 16 | database id |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | D: the horizon before this incarnation |
//! | 48 | 8 | first epoch of this incarnation |
//! | 56 | 8 | wall clock, us since 1970 |
//! | 64 | 2 | number of devices |
//! | 66 | 2 | device of this directory in this incarnation; 65,535 in a directory that holds none |
//! | 68 | 4,028 | zero |
//!
//! A record has a block for itself, so that appending never changes a sector of a valid one. Only a tail that fails its
//! checksum is overwritten: it was never relied on. Records that no group proves to be durable are written again, as they are: an earlier
//! open may have ended with a failed sync, and what it left lives in the page cache only. The same goes for the file's name: where no group
//! proves it, the list is written to a file of its own, which takes the name.
//!
//! The longest valid list wins; shorter ones must be its beginning and are completed by the next open.
//!
//! Each incarnation has its own device set, and its directories say in its record which device they were. So directories may be
//! given in any order, new ones join with the next incarnation, and old ones leave:
//!
//! 1. The first directory of [`LogOptions::fence_dirs`] (the data directory) gets a record last. A record that it lacks is of an
//!    incarnation that never wrote a group, for its fence was not durable everywhere.
//! 2. Every device of every other incarnation whose valid epochs reach to the log's start must be among the directories given. One
//!    that is not is refused by number: nothing else can tell what was acknowledged on it alone.
//!    So is one whose list ends before a record that the data directory has: it is an earlier copy of itself.
//! 3. A directory without a record, that holds no segments but unused ones of this database, joins. It has a segment before the
//!    record that names it is durable, so a device never lacks one later.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES, Io, OpenOptions};
use crate::planted::{self, Bug};

use super::group::{u32_at, u64_at};
use super::scan::LogDamage;
use super::{DatabaseId, Incarnation, LogOptions, LogStart};

pub const FILE_NAME: &str = "fence";
/// The list before it gets its name; means nothing.
const TEMPORARY_NAME: &str = "fence.new";
const MAGIC: [u8; 8] = *b"FRESHFNC";
const VERSION: u32 = 1;
const NO_DEVICE: u16 = u16::MAX;

/// One incarnation's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceRecord {
    pub database: DatabaseId,
    pub incarnation: Incarnation,
    /// Groups of earlier incarnations beyond it are void.
    pub horizon: Epoch,
    pub first_epoch: Epoch,
    pub wall_us: u64,
    pub devices: u16,
}

impl FenceRecord {
    fn encode(&self, device: u16) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.database.0.to_le_bytes());
        let words = [self.incarnation.0, self.horizon.0, self.first_epoch.0, self.wall_us];
        for (i, word) in words.iter().enumerate() {
            block[32 + 8 * i..40 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        block[64..66].copy_from_slice(&self.devices.to_le_bytes());
        block[66..68].copy_from_slice(&device.to_le_bytes());
        let crc = crc32c::crc32c(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

/// What one block of a fence file is.
enum Block {
    Record(FenceRecord, u16),
    Version(u32),
    Invalid,
}

fn decode(block: &[u8]) -> Block {
    if block[0..8] != MAGIC {
        return Block::Invalid;
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &[0; 4]);
    if crc32c::crc32c_append(crc, &block[16..]) != u32_at(block, 12) {
        return Block::Invalid;
    }
    if u32_at(block, 8) != VERSION {
        return Block::Version(u32_at(block, 8));
    }
    let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let record = FenceRecord {
        database: DatabaseId(u128::from_le_bytes(block[16..32].try_into().expect("16 bytes"))),
        incarnation: Incarnation(u64_at(block, 32)),
        horizon: Epoch(u64_at(block, 40)),
        first_epoch: Epoch(u64_at(block, 48)),
        wall_us: u64_at(block, 56),
        devices: u16_at(64),
    };
    Block::Record(record, u16_at(66))
}

/// The valid beginning of one directory's list.
pub(super) struct FenceFile {
    pub path: PathBuf,
    pub records: Vec<FenceRecord>,
    /// The device that each record gives this directory, if any.
    devices: Vec<Option<DeviceId>>,
    /// Blocks up to the last valid record, which is more than `records` when one before it is damaged.
    reach: usize,
    /// Blocks, valid or not.
    blocks: usize,
}

pub(super) fn read(io: &dyn Io, dir: &Path) -> Result<FenceFile, LogDamage> {
    let path = dir.join(FILE_NAME);
    let damage = |action, error| LogDamage::io(action, &path, error);
    let mut found = FenceFile { path: path.clone(), records: Vec::new(), devices: Vec::new(), reach: 0, blocks: 0 };
    let file = match io.open(&path, OpenOptions::default()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(damage("open", error)),
    };
    // What is about to be relied on may so far live in the page cache only.
    file.sync().map_err(|error| damage("sync", error))?;
    let blocks = file.len().map_err(|error| damage("measure", error))? / BLOCK_BYTES as u64;
    found.blocks = blocks as usize;
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    for number in 0..found.blocks {
        file.read_at(&mut block, (number * BLOCK_BYTES) as u64).map_err(|error| damage("read", error))?;
        match decode(&block) {
            Block::Record(record, device) => {
                // Incarnations follow each other: another copy of a record is as bad as none.
                let follows = found.records.last().is_none_or(|last| record.incarnation.0 == last.incarnation.0 + 1);
                if found.records.len() == number && follows {
                    found.records.push(record);
                    found.devices.push((device != NO_DEVICE).then_some(DeviceId(device)));
                }
                found.reach = number + 1;
            }
            Block::Version(version) => return Err(LogDamage::UnknownVersion { path, version }),
            Block::Invalid => {}
        }
    }
    Ok(found)
}

/// The list that all directories agree on, and how much of it each has.
pub struct FenceList {
    records: Vec<FenceRecord>,
    /// Records present in each directory, in the order of `places`.
    present: Vec<usize>,
    /// Per log directory, retired ones behind: the device that each of its records gives it.
    claims: Vec<Vec<Option<DeviceId>>>,
    /// Of the same directories: records that each must have had, if it was a device then. It lacks one for certain where its file ends before.
    blocks: Vec<usize>,
    /// Records that the data directory has: every device of theirs had them before. Zero without a data directory.
    last: usize,
    /// Records of which it is known that they were durable everywhere: only their incarnations may have written.
    complete: usize,
}

/// Every directory that gets the fence, with the device it will hold; in this order, the data directory last.
fn places(options: &LogOptions) -> impl Iterator<Item = (&Path, u16)> {
    let devices = options.dirs.iter().enumerate().map(|(i, dir)| (dir.as_path(), i as u16));
    let others = options.fence_dirs.iter().skip(1).chain(options.fence_dirs.first());
    devices.chain(others.map(|dir| (dir.as_path(), NO_DEVICE)))
}

/// Every directory that may hold a device.
fn held(options: &LogOptions) -> impl Iterator<Item = &Path> {
    options.dirs.iter().chain(&options.retired_dirs).map(PathBuf::as_path)
}

impl FenceList {
    /// `start` is the log's: what must be there from it on is checked.
    pub(super) fn load(io: &dyn Io, options: &LogOptions, start: &LogStart) -> Result<FenceList, LogDamage> {
        let retired = options.retired_dirs.iter().map(|dir| read(io, dir)).collect::<Result<Vec<_>, _>>()?;
        let files = places(options).map(|(dir, _)| read(io, dir)).collect::<Result<Vec<_>, _>>()?;
        let Some(list) = FenceList::of(options, &files, &retired) else {
            return Err(LogDamage::Absent { path: options.dirs[0].clone() });
        };
        // Whose they are comes first: in a conflict, all are of one database.
        files.iter().chain(&retired).try_for_each(|file| list.check_database(file))?;
        files.iter().chain(&retired).try_for_each(|file| list.check(file))?;
        list.check_devices(options, start)?;
        Ok(list)
    }

    /// `None`: there is no record anywhere.
    fn of(options: &LogOptions, files: &[FenceFile], retired: &[FenceFile]) -> Option<FenceList> {
        let longest = files.iter().chain(retired).max_by_key(|file| file.records.len())?;
        let records = longest.records.clone();
        let last = files.last().filter(|_| !options.fence_dirs.is_empty()).map_or(0, |file| file.records.len());
        let complete = if last == 0 { records.len() } else { last };
        let held = files.iter().take(options.dirs.len()).chain(retired);
        let blocks = held.clone().map(|file| file.blocks).collect();
        let claims = held.map(|file| file.devices.clone()).collect();
        let present = files.iter().map(|file| file.records.len()).collect();
        (!records.is_empty()).then_some(FenceList { records, present, claims, blocks, last, complete })
    }

    /// What is wrong with one directory's copy.
    fn check(&self, file: &FenceFile) -> Result<(), LogDamage> {
        let path = file.path.clone();
        if file.reach > self.records.len() {
            let offset = (file.records.len() * BLOCK_BYTES) as u64;
            return Err(LogDamage::FenceDamaged { path, offset });
        }
        self.check_database(file)?;
        match self.records.starts_with(&file.records) {
            true => Ok(()),
            false => Err(LogDamage::FenceConflict { path }),
        }
    }

    fn check_database(&self, file: &FenceFile) -> Result<(), LogDamage> {
        let is_own = |record: &FenceRecord| record.database == self.database();
        match file.records.iter().all(is_own) {
            true => Ok(()),
            false => Err(LogDamage::OtherDatabase { path: file.path.clone() }),
        }
    }

    /// (2) Every device that may have groups from the log's start on is there, once.
    fn check_devices(&self, options: &LogOptions, start: &LogStart) -> Result<(), LogDamage> {
        let dirs: Vec<&Path> = held(options).collect();
        for (at, record) in self.records[..self.complete].iter().enumerate() {
            let range = self.valid_epochs(record.incarnation);
            if range.is_none_or(|(first, last)| last < first.max(start.epoch)) {
                continue;
            }
            for device in (0..record.devices).map(DeviceId) {
                let mut holders = (0..dirs.len()).filter(|&dir| self.claim(dir, at) == Some(device));
                let mut certain = (0..dirs.len()).filter(|&dir| self.claims[dir].get(at) == Some(&Some(device)));
                if let (Some(first), Some(second)) = (certain.next(), certain.next()) {
                    let [path, other] = [first, second].map(|dir| dirs[dir].to_path_buf());
                    return Err(LogDamage::SameDevice { path, other, device });
                }
                match holders.next() {
                    Some(_) => {}
                    None => {
                        // The one that should be it, most likely: not mounted, or emptied, or with what it held earlier.
                        let empty = dirs.iter().zip(&self.claims).find(|(_, claims)| claims.is_empty());
                        let was =
                            |(_, claims): &(_, &Vec<_>)| claims.len() <= at && claims.last() == Some(&Some(device));
                        let earlier = || dirs.iter().zip(&self.claims).find(was);
                        let path = empty.or_else(earlier).map_or_else(PathBuf::new, |(dir, _)| dir.to_path_buf());
                        return Err(LogDamage::MissingDevice { device, path });
                    }
                }
            }
        }
        Ok(())
    }

    /// The device that a directory was in the incarnation of record `at`. One without that record was retired then, or the end of its
    /// list is damaged: it was what it had been, if no other says that it was that. Where the data directory has a record and a directory's
    /// list ends before, though, nothing is damaged there: it is the directory as it was earlier, and what was acknowledged since is elsewhere.
    fn claim(&self, dir: usize, at: usize) -> Option<DeviceId> {
        if let Some(own) = self.claims[dir].get(at) {
            return *own;
        }
        if at < self.last && at >= self.blocks[dir] {
            return None;
        }
        let before = (*self.claims[dir].last()?)?;
        let is_taken = self.claims.iter().any(|claims| claims.get(at) == Some(&Some(before)));
        (!is_taken).then_some(before)
    }

    /// The device that a log directory was in an incarnation.
    pub(super) fn device_of(&self, dir: usize, incarnation: Incarnation) -> Option<DeviceId> {
        let at = self.records.iter().position(|record| record.incarnation == incarnation)?;
        self.claim(dir, at)
    }

    /// Whether the directory has ever been this device, or has no record yet.
    pub(super) fn may_be(&self, dir: usize, device: DeviceId) -> bool {
        let claims = &self.claims[dir];
        claims.is_empty() || claims.contains(&Some(device))
    }

    /// Whether a log directory has no record: it is about to join.
    pub(super) fn is_joining(&self, dir: usize) -> bool {
        self.claims[dir].is_empty()
    }

    pub fn database(&self) -> DatabaseId {
        self.records[0].database
    }

    pub fn newest(&self) -> &FenceRecord {
        self.records.last().expect("a loaded list is not empty")
    }

    /// The epochs of `incarnation` that may be valid, both ends included; none if it is not in the list.
    pub fn valid_epochs(&self, incarnation: Incarnation) -> Option<(Epoch, Epoch)> {
        let at = self.records.iter().position(|record| record.incarnation == incarnation)?;
        let next = self.records.get(at + 1).filter(|_| !planted::is(Bug::ReviveDiscarded));
        let last = next.map_or(Epoch(u64::MAX), |next| next.horizon);
        Some((self.records[at].first_epoch, last))
    }

    /// Appends `record` everywhere, with what a directory lacks before it, durably. Records up to `proven` are known to be.
    pub(super) fn extend(
        &self,
        io: &dyn Io,
        options: &LogOptions,
        record: FenceRecord,
        proven: Incarnation,
    ) -> Result<(), LogDamage> {
        let unproven = self.records.partition_point(|record| record.incarnation <= proven);
        for (number, ((dir, device), &present)) in places(options).zip(&self.present).enumerate() {
            let is_named = planted::is(Bug::TrustNames) || self.is_named(number, options, unproven);
            let before = |at: usize| if device == NO_DEVICE { None } else { self.claim(number, at) };
            let present = if is_named { present.min(unproven) } else { 0 };
            let missing =
                (present..self.records.len()).map(|at| (self.records[at], before(at).map_or(NO_DEVICE, |d| d.0)));
            let records: Vec<_> = missing.chain([(record, device)]).collect();
            if is_named {
                append(io, dir, present, &records)?;
            } else {
                replace(io, dir, &records)?;
            }
        }
        Ok(())
    }

    /// Whether a power cut cannot take the file's name: it was durable before a group was written that is there. Directories without
    /// a device may have come since; the data directory is there from the first.
    fn is_named(&self, number: usize, options: &LogOptions, unproven: usize) -> bool {
        match number < options.dirs.len() {
            true => self.claims[number].iter().take(unproven).any(Option::is_some),
            false => unproven > 0 && number + 1 == self.present.len() && self.present[number] > 0,
        }
    }

    /// The first record of a new database.
    pub(super) fn found(io: &dyn Io, options: &LogOptions, record: FenceRecord) -> Result<(), LogDamage> {
        for (dir, device) in places(options) {
            replace(io, dir, &[(record, device)])?;
        }
        Ok(())
    }
}

/// All copies, for an inspection.
#[derive(Default)]
pub(super) struct Fences {
    /// The longest list, if any copy has one.
    pub list: Option<FenceList>,
    pub problems: Vec<LogDamage>,
    /// Copies that lack records of the list.
    pub short: Vec<PathBuf>,
}

pub(super) fn survey(io: &dyn Io, options: &LogOptions, start: &LogStart) -> Fences {
    let mut fences = Fences::default();
    let mut read_all = |dirs: &mut dyn Iterator<Item = &Path>| -> Vec<FenceFile> {
        let mut files = Vec::new();
        for dir in dirs {
            files.push(read(io, dir).unwrap_or_else(|damage| {
                fences.problems.push(damage);
                FenceFile { path: dir.join(FILE_NAME), records: Vec::new(), devices: Vec::new(), reach: 0, blocks: 0 }
            }));
        }
        files
    };
    let files = read_all(&mut places(options).map(|(dir, _)| dir));
    let retired = read_all(&mut options.retired_dirs.iter().map(PathBuf::as_path));
    let Some(list) = FenceList::of(options, &files, &retired) else {
        fences.problems.push(LogDamage::Absent { path: options.dirs[0].clone() });
        return fences;
    };
    for file in &files {
        if let Err(damage) = list.check(file) {
            fences.problems.push(damage);
        } else if file.records.len() < list.records.len() {
            fences.short.push(file.path.clone());
        }
    }
    if let Err(damage) = list.check_devices(options, start) {
        fences.problems.push(damage);
    }
    fences.list = Some(list);
    fences
}

fn append(io: &dyn Io, dir: &Path, at: usize, records: &[(FenceRecord, u16)]) -> Result<(), LogDamage> {
    let path = dir.join(FILE_NAME);
    let damage = |action, error| LogDamage::io(action, &path, error);
    io.create_dir_all(dir).map_err(|error| damage("create the directory of", error))?;
    let file = io.open(&path, OpenOptions { create: true, direct: false }).map_err(|error| damage("open", error))?;
    for (i, (record, device)) in records.iter().enumerate() {
        let at = if planted::is(Bug::OverwriteFence) { 0 } else { at };
        let offset = ((at + i) * BLOCK_BYTES) as u64;
        file.write_at(&record.encode(*device), offset).map_err(|error| damage("write", error))?;
        // One by one: a power cut must not keep a record and lose the one before it.
        file.sync().map_err(|error| damage("sync", error))?;
    }
    io.sync_dir(dir).map_err(|error| damage("sync the directory of", error))
}

fn replace(io: &dyn Io, dir: &Path, records: &[(FenceRecord, u16)]) -> Result<(), LogDamage> {
    let (path, to) = (dir.join(TEMPORARY_NAME), dir.join(FILE_NAME));
    let damage = |action, error| LogDamage::io(action, &path, error);
    io.create_dir_all(dir).map_err(|error| damage("create the directory of", error))?;
    if io.exists(&path).map_err(|error| damage("look for", error))? {
        io.remove(&path).map_err(|error| damage("remove", error))?;
    }
    let file = io.open(&path, OpenOptions { create: true, direct: false }).map_err(|error| damage("create", error))?;
    let records = if planted::is(Bug::OverwriteFence) { &records[records.len() - 1..] } else { records };
    for (at, (record, device)) in records.iter().enumerate() {
        let offset = (at * BLOCK_BYTES) as u64;
        file.write_at(&record.encode(*device), offset).map_err(|error| damage("write", error))?;
    }
    file.sync().map_err(|error| damage("sync", error))?;
    io.rename(&path, &to).map_err(|error| damage("rename", error))?;
    io.sync_dir(dir).map_err(|error| damage("sync the directory of", error))
}
