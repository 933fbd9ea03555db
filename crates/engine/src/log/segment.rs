//! Which files does a device consist of? Segments of one size, `log-<number>.seg`, used in the order of their numbers.
//!
//! ```text
//!            rename from prepare.tmp                place                 all below the log's start
//!  (zeros) ---------------------------> spare ---------------> in use -----------------------------+
//!                                         ^                    (the last one is current)           |
//!                                         +--------------- rename to the next number --------------+
//! ```
//!
//! Of a device's files the current one and the next [`SPARES_WANTED`] spares are open; the others are opened when it is their turn, so that a large log
//! needs no more descriptors than a small one.
//!
//! A spare begins with a *marker*, which the first group placed in it overwrites (little-endian, the rest of the block zero):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `FRESHNEW` |
//! | 8 | 4 | version of the marker, 2 |
//! | 12 | 4 | CRC32C of bytes 0..72, computed with these four bytes zero |
//! | 16 | 16 | database id |
//! | 32 | 8 | segment number |
//! | 40 | 2 | device |
//! | 42 | 6 | zero |
//! | 48 | 8 | incarnation that wrote the marker |
//! | 56 | 8 | first number that this incarnation gave on this device |
//! | 64 | 8 | length of its segments |
//!
//! Version 1 ends at 48, its CRC too, and proves nothing about other segments.
//!
//! 1. A file named `log-*.seg` has its full length, written and synced: zeros at first, stale groups later. `fallocate`
//!    would not do: the first write into an unwritten extent makes every sync a metadata commit.
//! 2. A spare's name is durable before the spare is used; numbers only grow, and spares are used in their order.
//! 3. Stale groups of a recycled file carry the number it had before, so none is taken for a group of the new one.
//! 4. Files never exceed the configured number: the log's size is bounded.
//! 5. An incarnation gives its numbers without a gap, and each name is durable before the next number is given. So a marker proves that
//!    every segment from its incarnation's first number to its own was there, in its full length, but for those below the log's start:
//!    one that is not there now, or is shorter, was taken away by somebody else. So no segment is recycled that the saved start names
//!    ([`LogStart`](super::LogStart)), even if it ended before the start's first group.
//! 6. While the marker of its own number stands, nothing in a segment was acknowledged, nor anything after it on its device: a
//!    device writes a group only when the one before is synced, and the first one of a segment overwrites the marker. So a recovery
//!    need not read what lies behind it, and an unused segment costs a restart one block.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES, File, Io, OpenOptions, is_short_of_descriptors};
use crate::planted::{self, Bug};

use super::group::{u32_at, u64_at};
use super::{DatabaseId, GroupNo, Incarnation, SegmentNo};

/// A file being filled with zeros; its name says nothing to a scan.
pub const PREPARE_NAME: &str = "prepare.tmp";

/// Spares to keep ahead: one that the promise to reservations needs, one so that they go on when it is taken.
pub const SPARES_WANTED: usize = 2;

pub fn file_name(number: SegmentNo) -> String {
    format!("log-{:012}.seg", number.0)
}

pub fn parse_name(name: &str) -> Option<SegmentNo> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    let number = digits.parse().ok()?;
    (file_name(SegmentNo(number)) == name).then_some(SegmentNo(number))
}

const MARKER_MAGIC: [u8; 8] = *b"FRESHNEW";
const MARKER_VERSION: u32 = 2;
const MARKER_BYTES: usize = 72;
/// Of version 1.
const OLD_MARKER_BYTES: usize = 48;

/// What one incarnation writes into all markers of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    pub database: DatabaseId,
    pub device: DeviceId,
    /// Zero in a marker of version 1, as are the two below.
    pub incarnation: Incarnation,
    /// The first number that it gave on this device.
    pub first: SegmentNo,
    pub segment_bytes: u64,
}

/// The first block of an unused segment.
fn marker(owner: Owner, number: SegmentNo) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    block[0..8].copy_from_slice(&MARKER_MAGIC);
    block[8..12].copy_from_slice(&MARKER_VERSION.to_le_bytes());
    block[16..32].copy_from_slice(&owner.database.0.to_le_bytes());
    block[32..40].copy_from_slice(&number.0.to_le_bytes());
    block[40..42].copy_from_slice(&owner.device.0.to_le_bytes());
    block[48..56].copy_from_slice(&owner.incarnation.0.to_le_bytes());
    block[56..64].copy_from_slice(&owner.first.0.to_le_bytes());
    block[64..72].copy_from_slice(&owner.segment_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&block[..MARKER_BYTES]);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Which unused segment a first block is of, if it is a marker.
pub fn read_marker(block: &[u8]) -> Option<(Owner, SegmentNo)> {
    if block.len() < MARKER_BYTES || block[..8] != MARKER_MAGIC {
        return None;
    }
    let bytes = match u32_at(block, 8) {
        1 => OLD_MARKER_BYTES,
        MARKER_VERSION => MARKER_BYTES,
        _ => return None,
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &[0; 4]);
    if crc32c::crc32c_append(crc, &block[16..bytes]) != u32_at(block, 12) {
        return None;
    }
    let of_incarnation = |at: usize| if bytes == MARKER_BYTES { u64_at(block, at) } else { 0 };
    let owner = Owner {
        database: DatabaseId(u128::from(u64_at(block, 16)) | u128::from(u64_at(block, 24)) << 64),
        device: DeviceId(u16::from_le_bytes([block[40], block[41]])),
        incarnation: Incarnation(of_incarnation(48)),
        first: SegmentNo(of_incarnation(56)),
        segment_bytes: of_incarnation(64),
    };
    Some((owner, SegmentNo(u64_at(block, 32))))
}

/// Marks a segment unused, durably. What it held is below the log's start, or void.
pub fn mark_unused(file: &dyn File, owner: Owner, number: SegmentNo) -> io::Result<()> {
    file.write_at(&marker(owner, number), 0)?;
    file.sync()
}

/// A segment with groups that are or were needed.
pub struct InUse {
    pub number: SegmentNo,
    pub bytes: u64,
    pub first_group: GroupNo,
    pub last_epoch: Epoch,
}

struct Spare {
    number: SegmentNo,
    file: Arc<dyn File>,
}

struct Current {
    file: Arc<dyn File>,
    /// Bytes used.
    filled: u64,
}

/// Where a group goes.
pub struct Place {
    pub segment: SegmentNo,
    pub file: Arc<dyn File>,
    pub offset: u64,
}

/// One device's segments.
pub struct Segments {
    segment_bytes: u64,
    files_max: usize,
    /// Oldest first. With `current`, the last one is.
    in_use: VecDeque<InUse>,
    /// The current segment; none before the first group of this incarnation.
    current: Option<Current>,
    /// Open, and used in this order; then those that are not open.
    spares: VecDeque<Spare>,
    shut_spares: VecDeque<SegmentNo>,
    /// Files taken out of the lists for preparing or recycling.
    in_work: usize,
    next_number: SegmentNo,
    /// Every segment that comes into use from now on has this number or a larger one: those in work have theirs already.
    unused_from: SegmentNo,
}

impl Segments {
    /// `spares` are not open yet.
    pub fn new(
        segment_bytes: u64,
        files_max: usize,
        in_use: Vec<InUse>,
        spares: Vec<SegmentNo>,
        next_number: SegmentNo,
    ) -> Segments {
        debug_assert!(in_use.is_sorted_by_key(|s| s.number) && spares.is_sorted());
        let unused_from = spares.first().copied().unwrap_or(next_number);
        Segments {
            segment_bytes,
            files_max,
            in_use: in_use.into(),
            current: None,
            spares: VecDeque::new(),
            shut_spares: spares.into(),
            in_work: 0,
            next_number,
            unused_from,
        }
    }

    /// Those that can be used at once.
    pub fn spares(&self) -> usize {
        self.spares.len()
    }

    fn unused(&self) -> usize {
        self.spares.len() + self.shut_spares.len()
    }

    /// Whether another file may be made.
    pub fn may_grow(&self) -> bool {
        self.in_use.len() + self.unused() + self.in_work < self.files_max
    }

    /// Whether a spare is there or will be, though nothing is recycled.
    pub fn has_more(&self) -> bool {
        self.may_grow() || self.is_in_work() || self.unused() > 0
    }

    /// Whether a file is being made or renamed.
    pub fn is_in_work(&self) -> bool {
        self.in_work > 0
    }

    /// Whether the files bypass the page cache; unknown while there is none.
    pub fn is_direct(&self) -> Option<bool> {
        let spare = self.spares.front().map(|spare| &spare.file);
        Some(spare.or(self.current.as_ref().map(|current| &current.file))?.is_direct())
    }

    pub fn wants_spare(&self) -> bool {
        self.spares.len() < SPARES_WANTED && (self.may_grow() || !self.shut_spares.is_empty())
    }

    /// Whether the next spare is wanted now, `made` bytes of whose file are there, and not just some time: there is none, or the file would not be
    /// complete when half of the current segment is used, so that there is time for its name and for groups that come faster. To open one that is
    /// complete costs nothing.
    pub fn is_spare_pressing(&self, made: u64) -> bool {
        let due = (2 * self.filled()).min(self.segment_bytes);
        self.spares.is_empty() || made < due || self.next_to_open().is_some()
    }

    /// The spare to open next, if there are too few that are open.
    fn next_to_open(&self) -> Option<SegmentNo> {
        self.shut_spares.front().copied().filter(|_| self.spares.len() < SPARES_WANTED)
    }

    /// Bytes of the current segment that no further group goes to: all of them while there is none.
    fn filled(&self) -> u64 {
        self.current.as_ref().map_or(self.segment_bytes, |current| current.filled)
    }

    /// Whether a group of `bytes` that nobody reserved fits without touching what reservations were promised: a spare
    /// segment, or, when the last one has just been taken for them, up to `promised` bytes of the current one.
    pub fn has_room(&self, bytes: u64, promised: u64) -> bool {
        let current = self.segment_bytes - self.filled();
        match self.spares.len() {
            0 => bytes + promised <= current,
            1 => bytes <= current,
            _ => true,
        }
    }

    /// Takes the next `bytes` of the stream for `group` of `epoch`.
    pub fn place(&mut self, bytes: u64, group: GroupNo, epoch: Epoch) -> Place {
        assert!(bytes <= self.segment_bytes, "a group fits a segment (the staging limit is below it)");
        if self.filled() + bytes > self.segment_bytes {
            let spare = self.spares.pop_front().expect("log invariant 4: a reservation holds a spare segment");
            assert!(spare.number >= self.unused_from, "log: segments come into use in the order of their numbers");
            self.unused_from = SegmentNo(spare.number.0 + 1);
            self.in_use.push_back(InUse {
                number: spare.number,
                bytes: self.segment_bytes,
                first_group: group,
                last_epoch: epoch,
            });
            self.current = Some(Current { file: spare.file, filled: 0 });
        }
        let current = self.current.as_mut().expect("a segment was just made current");
        let (file, offset) = (current.file.clone(), current.filled);
        current.filled += bytes;
        let segment = self.in_use.back_mut().expect("invariant: the current segment is in use");
        segment.last_epoch = epoch;
        Place { segment: segment.number, file, offset }
    }

    pub fn used_bytes(&self) -> u64 {
        let whole: u64 = self.in_use.iter().map(|segment| segment.bytes).sum();
        whole - (self.segment_bytes - self.filled())
    }

    /// The first segment and group needed when everything below `epoch` is not.
    pub fn start(&self, epoch: Epoch, next_group: GroupNo) -> (SegmentNo, GroupNo) {
        if let Some(needed) = self.in_use.iter().find(|segment| segment.last_epoch >= epoch) {
            return (needed.number, needed.first_group);
        }
        // Nothing needed so far: the next group goes to the current segment or to one that is unused, perhaps still in work.
        let current = self.current.as_ref().and(self.in_use.back()).map(|segment| segment.number);
        (current.unwrap_or(self.unused_from), next_group)
    }

    /// Takes the segments below `first` out, except the current one. (By the number and not by the epoch: what was current and of no use
    /// when a start was asked for is named by it, though it may be full and of no use by now.)
    fn take_below(&mut self, first: SegmentNo) -> Vec<InUse> {
        let current = usize::from(self.current.is_some());
        let mut taken = Vec::new();
        while self.in_use.len() > current && self.in_use[0].number < first {
            // One of another size is removed: never the device's last file, without which a recovery would take it for lost.
            let is_last = self.in_use.len() == 1 && self.unused() == 0;
            if is_last && self.in_use[0].bytes != self.segment_bytes {
                break;
            }
            taken.extend(self.in_use.pop_front());
        }
        self.in_work += taken.len();
        taken
    }

    /// Takes segments back that were taken out, as they are.
    fn put_back(&mut self, segments: impl DoubleEndedIterator<Item = InUse>) {
        for segment in segments.rev() {
            self.in_work -= 1;
            self.in_use.push_front(segment);
        }
    }

    /// Takes the file that was just given [`Segments::next_number`], durably.
    fn add_spare(&mut self, file: Arc<dyn File>) {
        let number = self.next_number;
        self.next_number = SegmentNo(number.0 + 1);
        self.in_work -= 1;
        match self.shut_spares.is_empty() && self.spares.len() < SPARES_WANTED {
            true => self.spares.push_back(Spare { number, file }),
            false => self.shut_spares.push_back(number),
        }
    }
}

/// Why files could not be changed.
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    pub error: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, error: io::Error) -> FileError {
        FileError { action, path: path.to_path_buf(), error }
    }

    /// The file system is full, or files may not be as long, which a checkpoint or the operator can mend, or the process has no descriptor left,
    /// which a client that goes can; anything else is a failing device.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ) || is_short_of_descriptors(&self.error)
    }
}

/// Makes and renames a device's files, beside the commits: used under a lock of its own, never while a group is placed.
pub struct Preparer {
    dir: PathBuf,
    owner: Owner,
    direct: bool,
    segment_bytes: u64,
    zeros: AlignedBuf,
    filling: Option<(Arc<dyn File>, u64)>,
}

impl Preparer {
    pub fn new(dir: PathBuf, owner: Owner, direct: bool, segment_bytes: u64) -> Preparer {
        Preparer { dir, owner, direct, segment_bytes, zeros: AlignedBuf::new(), filling: None }
    }

    /// Whether a file is half made.
    pub fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Bytes of the file that is half made.
    pub fn made_bytes(&self) -> u64 {
        self.filling.as_ref().map_or(0, |(_, written)| *written)
    }

    pub fn buffer_bytes(&self) -> usize {
        self.zeros.capacity()
    }

    /// Writes up to `bytes` of zeros; true when the file is complete under its temporary name, though not yet synced.
    pub fn fill(&mut self, io: &dyn Io, bytes: u64) -> Result<bool, FileError> {
        let path = self.dir.join(PREPARE_NAME);
        let (file, written) = match self.filling.take() {
            Some(filling) => filling,
            None => {
                let options = OpenOptions { create: true, direct: self.direct };
                let file = io.open(&path, options).map_err(|error| FileError::new("create", &path, error))?;
                (file, 0)
            }
        };
        let chunk = bytes.min(self.segment_bytes - written) as usize;
        if self.zeros.len() < chunk {
            self.zeros.resize(chunk);
        }
        if let Err(error) = file.write_at(&self.zeros[..chunk], written) {
            return Err(self.give_up(io, FileError::new("write zeros to", &path, error)));
        }
        let written = written + chunk as u64;
        self.filling = Some((file, written));
        Ok(written == self.segment_bytes)
    }

    fn open(&self, io: &dyn Io, number: SegmentNo) -> Result<Arc<dyn File>, FileError> {
        let path = self.dir.join(file_name(number));
        let options = OpenOptions { create: false, direct: self.direct };
        io.open(&path, options).map_err(|error| FileError::new("open", &path, error))
    }

    /// Frees what a half-made file took, so that a full file system is not kept full by it.
    fn give_up(&mut self, io: &dyn Io, error: FileError) -> FileError {
        if error.is_no_space() {
            // Best effort: the next attempt writes over the file from its beginning.
            let _ = io.remove(&self.dir.join(PREPARE_NAME));
        }
        error
    }

    /// Marks and syncs the complete file, then gives it its name.
    pub fn finish(&mut self, io: &dyn Io, number: SegmentNo) -> Result<Arc<dyn File>, FileError> {
        let (file, written) = self.filling.take().expect("finish follows a complete fill");
        assert_eq!(written, self.segment_bytes, "a segment is complete before it gets its name");
        if let Err(error) = mark_unused(&*file, self.owner, number) {
            return Err(self.give_up(io, FileError::new("sync", &self.dir.join(PREPARE_NAME), error)));
        }
        let (from, to) = (self.dir.join(PREPARE_NAME), self.dir.join(file_name(number)));
        io.rename_to_new(&from, &to).map_err(|error| FileError::new("rename", &from, error))?;
        if !planted::is(Bug::ForgetDirectorySync) {
            io.sync_dir(&self.dir).map_err(|error| FileError::new("sync", &self.dir, error))?;
        }
        Ok(file)
    }
}

/// What the two locks guard together: `segments` briefly, `preparer` during file operations.
pub fn prepare(
    io: &dyn Io,
    segments: &parking_lot::Mutex<Segments>,
    preparer: &mut Preparer,
    bytes: u64,
) -> Result<bool, FileError> {
    if open_spare(io, segments, preparer)? {
        return Ok(true);
    }
    if !preparer.is_filling() {
        let mut segments = segments.lock();
        if !segments.wants_spare() {
            return Ok(false);
        }
        segments.in_work += 1;
    }
    let made = preparer.fill(io, bytes).and_then(|complete| {
        if complete {
            // Taken only by a file that is there: numbers have no gap (5). The preparer's lock keeps others from it meanwhile.
            let number = segments.lock().next_number;
            let file = preparer.finish(io, number)?;
            segments.lock().add_spare(file);
        }
        Ok(true)
    });
    if made.is_err() {
        segments.lock().in_work -= 1;
    }
    made
}

/// Opens the next spare that is not, where too few are; false if there is nothing to do. The preparer's lock keeps its name.
pub fn open_spare(
    io: &dyn Io,
    segments: &parking_lot::Mutex<Segments>,
    preparer: &Preparer,
) -> Result<bool, FileError> {
    let Some(number) = segments.lock().next_to_open() else { return Ok(false) };
    let file = preparer.open(io, number)?;
    let mut segments = segments.lock();
    segments.shut_spares.pop_front();
    segments.spares.push_back(Spare { number, file });
    Ok(true)
}

/// Marks a used file and gives it a new number, durable when this returns.
pub fn renumber(
    io: &dyn Io,
    dir: &Path,
    owner: Owner,
    file: &dyn File,
    (from, to): (SegmentNo, SegmentNo),
) -> Result<(), FileError> {
    let path = dir.join(file_name(from));
    mark_unused(file, owner, to).map_err(|error| FileError::new("mark", &path, error))?;
    io.rename_to_new(&path, &dir.join(file_name(to))).map_err(|error| FileError::new("rename", &path, error))?;
    io.sync_dir(dir).map_err(|error| FileError::new("sync", dir, error))
}

/// Turns the segments below `first` into spares; says how many.
pub fn recycle(
    io: &dyn Io,
    segments: &parking_lot::Mutex<Segments>,
    preparer: &mut Preparer,
    first: SegmentNo,
) -> Result<usize, FileError> {
    let taken = segments.lock().take_below(first);
    let (keep, odd): (Vec<_>, Vec<_>) = taken.into_iter().partition(|segment| segment.bytes == preparer.segment_bytes);
    // Files of another size, from before the option was changed, cannot be reused.
    for segment in &odd {
        let path = preparer.dir.join(file_name(segment.number));
        io.remove(&path).map_err(|error| FileError::new("remove", &path, error))?;
    }
    if !odd.is_empty() {
        io.sync_dir(&preparer.dir).map_err(|error| FileError::new("sync", &preparer.dir, error))?;
        segments.lock().in_work -= odd.len();
    }
    let mut count = 0;
    let mut keep = keep.into_iter();
    while let Some(segment) = keep.next() {
        let file = match preparer.open(io, segment.number) {
            Ok(file) => file,
            // The next checkpoint finds them where they are.
            Err(error) if error.is_no_space() => {
                segments.lock().put_back(std::iter::once(segment).chain(keep));
                break;
            }
            Err(error) => return Err(error),
        };
        // One by one: a power cut that kept a later name and lost an earlier one would look like a segment taken away (5).
        let number = segments.lock().next_number;
        renumber(io, &preparer.dir, preparer.owner, &*file, (segment.number, number))?;
        segments.lock().add_spare(file);
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_says_which_segment_is_unused_and_no_flipped_bit_passes() {
        let (first, incarnation) = (SegmentNo(4), Incarnation(5));
        let database = DatabaseId(77 << 64 | 3);
        let owner = Owner { database, device: DeviceId(2), incarnation, first, segment_bytes: 1 << 20 };
        let mut block = marker(owner, SegmentNo(9));
        assert_eq!(read_marker(&block), Some((owner, SegmentNo(9))));
        let old = {
            let mut block = block.clone();
            block[8] = 1;
            block[12..16].fill(0);
            block[OLD_MARKER_BYTES..].fill(0);
            let crc = crc32c::crc32c(&block[..OLD_MARKER_BYTES]);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
            block
        };
        let unknown = Owner { incarnation: Incarnation(0), first: SegmentNo(0), segment_bytes: 0, ..owner };
        assert_eq!(read_marker(&old), Some((unknown, SegmentNo(9))), "a marker of version 1");
        block[8] = 3;
        assert_eq!(read_marker(&block), None, "of a version to come");
        block[8] = 2;
        for bit in 0..MARKER_BYTES * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_marker(&flipped), None, "bit {bit}");
        }
        assert_eq!(read_marker(&AlignedBuf::zeroed(BLOCK_BYTES)), None);
    }

    /// Between taking a number and becoming a spare a file is synced and renamed, and a checkpoint may fix the log's start meanwhile.
    #[test]
    fn the_start_is_not_above_a_segment_that_is_being_made() {
        let mut segments = Segments::new(1 << 16, 4, Vec::new(), Vec::new(), SegmentNo(5));
        assert_eq!(segments.start(Epoch(9), GroupNo(3)), (SegmentNo(5), GroupNo(3)));
        segments.in_work += 1;
        let number = segments.next_number;
        let (start, _) = segments.start(Epoch(9), GroupNo(3));
        assert!(start <= number, "the group that goes to segment {} would not be read from {}", number.0, start.0);
        assert_eq!(start, number, "and nothing below it is needed");
    }

    #[test]
    fn the_last_file_of_a_device_is_not_removed() {
        let io = crate::io::mem::MemIo::new();
        let open = |number: u64| {
            let path = Path::new("d").join(file_name(SegmentNo(number)));
            io.open(&path, OpenOptions { create: true, direct: false }).unwrap();
            let (number, bytes) = (SegmentNo(number), BLOCK_BYTES as u64);
            InUse { number, bytes, first_group: GroupNo(number.0), last_epoch: Epoch(number.0) }
        };
        io.create_dir_all(Path::new("d")).unwrap();
        let odd = vec![open(1), open(2)];
        let segments = parking_lot::Mutex::new(Segments::new(1 << 16, 4, odd, Vec::new(), SegmentNo(3)));
        let (first, incarnation) = (SegmentNo(3), Incarnation(1));
        let owner = Owner { database: DatabaseId(7), device: DeviceId(0), incarnation, first, segment_bytes: 1 << 16 };
        let mut preparer = Preparer::new(PathBuf::from("d"), owner, false, 1 << 16);
        assert!(recycle(&io, &segments, &mut preparer, SegmentNo(3)).is_ok());
        assert_eq!(io.list(Path::new("d")).unwrap(), [file_name(SegmentNo(2))]);
        while segments.lock().spares() == 0 {
            assert!(prepare(&io, &segments, &mut preparer, 1 << 16).is_ok());
        }
        assert!(recycle(&io, &segments, &mut preparer, SegmentNo(3)).is_ok());
        assert!(!io.exists(&Path::new("d").join(file_name(SegmentNo(2)))).unwrap());
    }

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(parse_name(&file_name(SegmentNo(17))), Some(SegmentNo(17)));
        for other in ["log-17.seg", "log-.seg", "fence", PREPARE_NAME, "log-00000000001x.seg"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
