//! The manifest: the one file that says what a data directory is, and which images and which log are in force.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `FRESHET\n` |
//! | 8..12 | format version, 2 |
//! | 12..16 | 0: being created; 1: in use |
//! | 16..32 | database id |
//! | 32..40 | incarnation that wrote it |
//! | 40..48 | checkpoints so far |
//! | 48..56 | the durable epoch when it was written |
//! | 56..64 | complete below: every change of an earlier epoch is in the images |
//! | 64..72, 72..80 | log start: epoch, epoch before |
//! | 80..84 | number of the next segment of images |
//! | 84..88, 88..92, 92..96, 96..100, 100..104 | devices n, backup directories b, segments s, images i, pages g |
//! | 20 n | device 4, log segment 8, group 8 |
//! | b times | length 2, path; empty: the data directory |
//! | 24 s | segment 4, backup directory 4, bytes 8, of them live 8 |
//! | 56 i | page 4, storage 4, generation 4, container 2, slot words 2, ordinal 4, S 8, incarnation 8, slots 4, payload CRC 4, segment 4, offset 8 |
//! | 4 g | generation of each page from 0 on, free ones included |
//! | last 4 | CRC32C of all before |
//!
//! Images ascend by page. Format version 1 had one file for all images, which is still read.

use super::image::{ImageHead, ImagePlace, ImageSegmentNo};
use crate::ids::{Cts, DeviceId, Epoch, PageNo, StorageId};
use crate::io::{Io, OpenOptions};
use crate::log::{DatabaseId, DeviceStart, GroupNo, Incarnation, LogStart, SegmentNo};
use crate::mem::PageMeta;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FRESHET\n";
pub(crate) const FORMAT_VERSION: u32 = 2;
pub(super) const NAME: &str = "manifest";
const TEMPORARY_NAME: &str = "manifest.new";

/// A segment of images and how much of it is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentEntry {
    pub number: ImageSegmentNo,
    /// Its place in the list of backup directories.
    pub dir: u32,
    /// Durable bytes; what lies behind means nothing.
    pub bytes: u64,
    pub live_bytes: u64,
}

/// The images of format version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WholeImages {
    pub number: ImageSegmentNo,
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    /// The first commit is durable.
    pub created: bool,
    pub database: DatabaseId,
    pub incarnation: Incarnation,
    pub checkpoints: u64,
    pub relied_on: Epoch,
    pub complete_below: Epoch,
    pub log_start: LogStart,
    pub next_segment: ImageSegmentNo,
    /// Empty: the data directory.
    pub backup_dirs: Vec<PathBuf>,
    pub segments: Vec<SegmentEntry>,
    /// Ascending by page.
    pub images: Vec<ImagePlace>,
    pub generations: Vec<u32>,
    /// Read from a directory of format version 1; never written.
    pub whole: Option<WholeImages>,
}

/// Why a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum ManifestError {
    Io(io::Error),
    UnknownVersion(u32),
    Damaged(&'static str),
}

impl Manifest {
    pub fn new(database: DatabaseId) -> Manifest {
        Manifest {
            created: false,
            database,
            incarnation: Incarnation(0),
            checkpoints: 0,
            relied_on: Epoch(0),
            complete_below: Epoch(0),
            log_start: LogStart::default(),
            next_segment: ImageSegmentNo(1),
            backup_dirs: Vec::new(),
            segments: Vec::new(),
            images: Vec::new(),
            generations: Vec::new(),
            whole: None,
        }
    }

    pub fn has_segment(&self, number: ImageSegmentNo) -> bool {
        self.segments.iter().any(|s| s.number == number)
    }

    /// The directory that the segment was written to.
    pub fn dir_of(&self, segment: &SegmentEntry, data_dir: &Path) -> PathBuf {
        match self.backup_dirs.get(segment.dir as usize) {
            Some(dir) if !dir.as_os_str().is_empty() => dir.clone(),
            _ => data_dir.to_path_buf(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + 60 * self.images.len() + 4 * self.generations.len());
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, u32::from(self.created));
        out.extend_from_slice(&self.database.0.to_le_bytes());
        let start = &self.log_start;
        let (relied_on, complete_below) = (self.relied_on.0, self.complete_below.0);
        for field in [self.incarnation.0, self.checkpoints, relied_on, complete_below, start.epoch.0, start.prev.0] {
            put_u64(&mut out, field);
        }
        put_u32(&mut out, self.next_segment.0);
        let (dirs, segments) = (self.backup_dirs.len(), self.segments.len());
        for count in [start.devices.len(), dirs, segments, self.images.len(), self.generations.len()] {
            put_u32(&mut out, count as u32);
        }
        for device in &start.devices {
            put_u32(&mut out, u32::from(device.device.0));
            put_u64(&mut out, device.segment.0);
            put_u64(&mut out, device.group.0);
        }
        for dir in self.backup_dirs.iter().map(|d| d.as_os_str().as_bytes()) {
            out.extend_from_slice(&(dir.len() as u16).to_le_bytes());
            out.extend_from_slice(dir);
        }
        for segment in &self.segments {
            put_u32(&mut out, segment.number.0);
            put_u32(&mut out, segment.dir);
            put_u64(&mut out, segment.bytes);
            put_u64(&mut out, segment.live_bytes);
        }
        self.images.iter().for_each(|image| put_image(&mut out, image));
        self.generations.iter().for_each(|&generation| put_u32(&mut out, generation));
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let damaged = ManifestError::Damaged;
        if bytes.len() < 16 || &bytes[..8] != MAGIC {
            return Err(damaged("not a manifest"));
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        let mut fields = Fields(&body[8..]);
        let version = fields.u32().unwrap_or_default();
        if version != 1 && version != FORMAT_VERSION {
            return Err(ManifestError::UnknownVersion(version));
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(crc.try_into().expect("4 bytes")) {
            return Err(damaged("its CRC does not check"));
        }
        let decoded = if version == 1 { decode_first(&mut fields) } else { decode_second(&mut fields) };
        decoded.filter(|_| fields.0.is_empty()).ok_or(damaged("its length is wrong"))
    }

    /// Bytes of the images in force, heads and what lies between them included.
    pub fn image_bytes(&self) -> u64 {
        let live: u64 = self.segments.iter().map(|segment| segment.live_bytes).sum();
        self.whole.as_ref().map_or(live, |whole| whole.bytes)
    }

    pub fn exists(io: &Arc<dyn Io>, dir: &Path) -> io::Result<bool> {
        io.exists(&dir.join(NAME))
    }

    /// `None`: there is none.
    pub fn load(io: &Arc<dyn Io>, dir: &Path) -> Result<Option<Manifest>, ManifestError> {
        let path = dir.join(NAME);
        if !io.exists(&path).map_err(ManifestError::Io)? {
            return Ok(None);
        }
        // Its name may so far live in the page cache only, and what it makes dispensable is given up before the next one is written.
        io.sync_dir(dir).map_err(ManifestError::Io)?;
        let file = io.open(&path, OpenOptions::default()).map_err(ManifestError::Io)?;
        let mut bytes = vec![0; file.len().map_err(ManifestError::Io)? as usize];
        file.read_at(&mut bytes, 0).map_err(ManifestError::Io)?;
        Manifest::decode(&bytes).map(Some)
    }

    /// Replaces the manifest; it is durable when this returns.
    pub fn save(&self, io: &Arc<dyn Io>, dir: &Path) -> io::Result<()> {
        self.stage(io, dir)?;
        Manifest::switch(io, dir)
    }

    /// Writes it under its temporary name: it means nothing yet, whether this succeeds or not.
    pub fn stage(&self, io: &Arc<dyn Io>, dir: &Path) -> io::Result<()> {
        assert!(self.whole.is_none(), "invariant: images of format version 1 are adopted before a manifest is written");
        let temporary = dir.join(TEMPORARY_NAME);
        if io.exists(&temporary)? {
            io.remove(&temporary)?;
        }
        let file = io.open(&temporary, OpenOptions { create: true, direct: false })?;
        file.write_at(&self.encode(), 0)?;
        file.sync()
    }

    /// Puts the staged one in force. If this fails, either may be.
    pub fn switch(io: &Arc<dyn Io>, dir: &Path) -> io::Result<()> {
        io.rename(&dir.join(TEMPORARY_NAME), &dir.join(NAME))?;
        io.sync_dir(dir)
    }
}

fn put_u32(out: &mut Vec<u8>, field: u32) {
    out.extend_from_slice(&field.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, field: u64) {
    out.extend_from_slice(&field.to_le_bytes());
}

fn put_image(out: &mut Vec<u8>, image: &ImagePlace) {
    let ImageHead { page, meta, snapshot, incarnation, slots } = image.head;
    [page.0, meta.storage.0, meta.generation].into_iter().for_each(|field| put_u32(out, field));
    out.extend_from_slice(&meta.container.to_le_bytes());
    out.extend_from_slice(&meta.slot_words.to_le_bytes());
    put_u32(out, meta.ordinal);
    put_u64(out, snapshot.0);
    put_u64(out, incarnation.0);
    [slots, image.payload_crc, image.segment.0].into_iter().for_each(|field| put_u32(out, field));
    put_u64(out, image.offset);
}

/// Reads bytes that were checked as a whole; `None` beyond their end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().expect("2 bytes")))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().expect("4 bytes")))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().expect("8 bytes")))
    }

    fn database(&mut self) -> Option<DatabaseId> {
        Some(DatabaseId(u128::from_le_bytes(self.bytes(16)?.try_into().expect("16 bytes"))))
    }

    fn device(&mut self) -> Option<DeviceStart> {
        let device = DeviceId(u16::try_from(self.u32()?).ok()?);
        Some(DeviceStart { device, segment: SegmentNo(self.u64()?), group: GroupNo(self.u64()?) })
    }

    fn dir(&mut self) -> Option<PathBuf> {
        let length = self.u16()?;
        Some(PathBuf::from(OsStr::from_bytes(self.bytes(usize::from(length))?)))
    }

    fn segment(&mut self) -> Option<SegmentEntry> {
        Some(SegmentEntry {
            number: ImageSegmentNo(self.u32()?),
            dir: self.u32()?,
            bytes: self.u64()?,
            live_bytes: self.u64()?,
        })
    }

    fn image(&mut self) -> Option<ImagePlace> {
        let (page, storage, generation) = (self.u32()?, self.u32()?, self.u32()?);
        let (container, slot_words, ordinal) = (self.u16()?, self.u16()?, self.u32()?);
        let meta = PageMeta { storage: StorageId(storage), container, slot_words, ordinal, generation };
        let (snapshot, incarnation) = (Cts(self.u64()?), Incarnation(self.u64()?));
        let head = ImageHead { page: PageNo(page), meta, snapshot, incarnation, slots: self.u32()? };
        let (payload_crc, segment) = (self.u32()?, ImageSegmentNo(self.u32()?));
        Some(ImagePlace { head, segment, offset: self.u64()?, payload_crc })
    }

    fn list<T>(&mut self, count: u32, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..count).map(|_| item(self)).collect()
    }
}

fn decode_second(fields: &mut Fields<'_>) -> Option<Manifest> {
    let created = fields.u32()? != 0;
    let mut manifest = Manifest { created, ..Manifest::new(fields.database()?) };
    manifest.incarnation = Incarnation(fields.u64()?);
    manifest.checkpoints = fields.u64()?;
    manifest.relied_on = Epoch(fields.u64()?);
    manifest.complete_below = Epoch(fields.u64()?);
    manifest.log_start.epoch = Epoch(fields.u64()?);
    manifest.log_start.prev = Epoch(fields.u64()?);
    manifest.next_segment = ImageSegmentNo(fields.u32()?);
    let (devices, dirs, segments) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (images, generations) = (fields.u32()?, fields.u32()?);
    manifest.log_start.incarnation = manifest.incarnation;
    manifest.log_start.devices = fields.list(devices, Fields::device)?;
    manifest.backup_dirs = fields.list(dirs, Fields::dir)?;
    manifest.segments = fields.list(segments, Fields::segment)?;
    manifest.images = fields.list(images, Fields::image)?;
    manifest.generations = fields.list(generations, Fields::u32)?;
    Some(manifest)
}

/// Format version 1: checkpoint number (its images' name) 8, bytes of the images 8, largest epoch of an S 8, log start 16, devices.
fn decode_first(fields: &mut Fields<'_>) -> Option<Manifest> {
    let created = fields.u32()? != 0;
    let mut manifest = Manifest { created, ..Manifest::new(fields.database()?) };
    manifest.incarnation = Incarnation(fields.u64()?);
    let number = u32::try_from(fields.u64()?).ok()?;
    let bytes = fields.u64()?;
    manifest.checkpoints = u64::from(number);
    manifest.next_segment = ImageSegmentNo(number.checked_add(1)?);
    manifest.whole = (number > 0).then_some(WholeImages { number: ImageSegmentNo(number), bytes });
    manifest.relied_on = Epoch(fields.u64()?);
    manifest.log_start.epoch = Epoch(fields.u64()?);
    manifest.log_start.prev = Epoch(fields.u64()?);
    let devices = fields.u32()?;
    manifest.log_start.incarnation = manifest.incarnation;
    manifest.log_start.devices = fields.list(devices, Fields::device)?;
    Some(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let meta = PageMeta { storage: StorageId(9), container: 16, slot_words: 12, ordinal: 4, generation: 3 };
        let head = ImageHead { page: PageNo(1), meta, snapshot: Cts(1 << 40), incarnation: Incarnation(2), slots: 5 };
        let mut manifest = Manifest::new(DatabaseId(77));
        manifest.checkpoints = 3;
        manifest.log_start.devices =
            vec![DeviceStart { device: DeviceId(1), segment: SegmentNo(5), group: GroupNo(9) }];
        manifest.backup_dirs = vec![PathBuf::new(), PathBuf::from("/backup")];
        manifest.segments = vec![SegmentEntry { number: ImageSegmentNo(6), dir: 1, bytes: 4096, live_bytes: 456 }];
        manifest.images = vec![ImagePlace { head, segment: ImageSegmentNo(6), offset: 512, payload_crc: 0xfeed }];
        manifest.generations = vec![1, 3];
        manifest
    }

    #[test]
    fn a_manifest_reads_back_and_no_flipped_bit_passes() {
        let manifest = sample();
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).expect("as written"), manifest);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = Manifest::new(DatabaseId(1)).encode();
        bytes[8] = 99;
        assert!(matches!(Manifest::decode(&bytes), Err(ManifestError::UnknownVersion(99))));
    }
}
