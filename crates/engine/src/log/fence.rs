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
//! | 66 | 2 | device of this directory; 65,535 in a directory that holds no device |
//! | 68 | 4,028 | zero |
//!
//! A record has a block for itself, so that appending never changes a sector of a valid one. Only a tail that fails its
//! checksum is overwritten: it was never relied on. Records that no group proves to be durable are written again, as they are: an earlier
//! open may have ended with a failed sync, and what it left lives in the page cache only.
//!
//! The longest valid list wins; shorter ones must be its beginning and are completed by the next open. A directory of a
//! device without any record is a lost device.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES, Io, OpenOptions};
use crate::planted::{self, Bug};

use super::group::{u32_at, u64_at};
use super::scan::LogDamage;
use super::{DatabaseId, Incarnation, LogOptions};

pub const FILE_NAME: &str = "fence";
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
    /// The device that the records give this directory; none without records or outside the device set.
    pub device: Option<DeviceId>,
    /// Blocks up to the last valid record, which is more than `records` when one before it is damaged.
    reach: usize,
}

pub(super) fn read(io: &dyn Io, dir: &Path) -> Result<FenceFile, LogDamage> {
    let path = dir.join(FILE_NAME);
    let damage = |action, error| LogDamage::io(action, &path, error);
    let mut found = FenceFile { path: path.clone(), records: Vec::new(), device: None, reach: 0 };
    let file = match io.open(&path, OpenOptions::default()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(damage("open", error)),
    };
    // What is about to be relied on may so far live in the page cache only.
    file.sync().map_err(|error| damage("sync", error))?;
    let blocks = file.len().map_err(|error| damage("measure", error))? / BLOCK_BYTES as u64;
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    for number in 0..blocks as usize {
        file.read_at(&mut block, (number * BLOCK_BYTES) as u64).map_err(|error| damage("read", error))?;
        match decode(&block) {
            Block::Record(record, device) => {
                if found.records.len() == number {
                    found.records.push(record);
                    found.device = (device != NO_DEVICE).then_some(DeviceId(device));
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
}

/// Every directory that carries the fence, with the device it holds.
fn places(options: &LogOptions) -> impl Iterator<Item = (&Path, u16)> {
    let devices = options.dirs.iter().enumerate().map(|(i, dir)| (dir.as_path(), i as u16));
    devices.chain(options.fence_dirs.iter().map(|dir| (dir.as_path(), NO_DEVICE)))
}

impl FenceList {
    pub(super) fn load(io: &dyn Io, options: &LogOptions) -> Result<FenceList, LogDamage> {
        let mut files = Vec::new();
        for (dir, _) in places(options) {
            files.push(read(io, dir)?);
        }
        let longest = files.iter().max_by_key(|file| file.records.len()).expect("there is a device");
        if longest.records.is_empty() {
            return Err(LogDamage::Absent { path: options.dirs[0].clone() });
        }
        let list = FenceList {
            records: longest.records.clone(),
            present: files.iter().map(|file| file.records.len()).collect(),
        };
        for (number, (file, (dir, device))) in files.iter().zip(places(options)).enumerate() {
            list.check(file, dir, device)?;
            debug_assert_eq!(list.present[number], file.records.len());
        }
        let given = options.dirs.len();
        match list.newest().devices as usize {
            expected if expected == given => Ok(list),
            expected => Err(LogDamage::DeviceCount { expected, given }),
        }
    }

    /// What is wrong with one directory's copy.
    fn check(&self, file: &FenceFile, dir: &Path, device: u16) -> Result<(), LogDamage> {
        let path = file.path.clone();
        if file.reach > self.records.len() {
            let offset = (file.records.len() * BLOCK_BYTES) as u64;
            return Err(LogDamage::FenceDamaged { path, offset });
        }
        if file.records.iter().any(|record| record.database != self.records[0].database) {
            return Err(LogDamage::OtherDatabase { path });
        }
        if !self.records.starts_with(&file.records) {
            return Err(LogDamage::FenceConflict { path });
        }
        if device == NO_DEVICE {
            return Ok(());
        }
        let (expected, path) = (DeviceId(device), dir.to_path_buf());
        match file.device {
            Some(found) if found == expected => Ok(()),
            None if file.records.is_empty() => Err(LogDamage::MissingDevice { device: expected, path }),
            found => Err(LogDamage::WrongDevice { path, expected, found }),
        }
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
        let mut records = self.records.clone();
        records.push(record);
        let unproven = records.partition_point(|record| record.incarnation <= proven);
        for ((dir, device), &present) in places(options).zip(&self.present) {
            let present = present.min(unproven);
            append(io, dir, device, present, &records[present..])?;
        }
        Ok(())
    }

    /// The first record of a new database.
    pub(super) fn found(io: &dyn Io, options: &LogOptions, record: FenceRecord) -> Result<(), LogDamage> {
        for (dir, device) in places(options) {
            append(io, dir, device, 0, &[record])?;
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

pub(super) fn survey(io: &dyn Io, options: &LogOptions) -> Fences {
    let mut fences = Fences::default();
    let mut files = Vec::new();
    for (dir, device) in places(options) {
        match read(io, dir) {
            Ok(file) => files.push((file, dir, device)),
            Err(damage) => fences.problems.push(damage),
        }
    }
    let Some((longest, ..)) = files.iter().max_by_key(|(file, ..)| file.records.len()) else { return fences };
    if longest.records.is_empty() {
        fences.problems.push(LogDamage::Absent { path: options.dirs[0].clone() });
        return fences;
    }
    let present = files.iter().map(|(file, ..)| file.records.len()).collect();
    let list = FenceList { records: longest.records.clone(), present };
    for (file, dir, device) in &files {
        if let Err(damage) = list.check(file, dir, *device) {
            fences.problems.push(damage);
        } else if file.records.len() < list.records.len() {
            fences.short.push(file.path.clone());
        }
    }
    let (expected, given) = (list.newest().devices as usize, options.dirs.len());
    if expected != given {
        fences.problems.push(LogDamage::DeviceCount { expected, given });
    }
    fences.list = Some(list);
    fences
}

fn append(io: &dyn Io, dir: &Path, device: u16, at: usize, records: &[FenceRecord]) -> Result<(), LogDamage> {
    let path = dir.join(FILE_NAME);
    let damage = |action, error| LogDamage::io(action, &path, error);
    io.create_dir_all(dir).map_err(|error| damage("create the directory of", error))?;
    let file = io.open(&path, OpenOptions { create: true, direct: false }).map_err(|error| damage("open", error))?;
    for (i, record) in records.iter().enumerate() {
        let at = if planted::is(Bug::OverwriteFence) { 0 } else { at };
        let offset = ((at + i) * BLOCK_BYTES) as u64;
        file.write_at(&record.encode(device), offset).map_err(|error| damage("write", error))?;
        // One by one: a power cut must not keep a record and lose the one before it.
        file.sync().map_err(|error| damage("sync", error))?;
    }
    io.sync_dir(dir).map_err(|error| damage("sync the directory of", error))
}
