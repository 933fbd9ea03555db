//! An image: one page's persistent bytes as of S. Images lie one after another in segments; where, and which are in force, the manifest says.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `FIMG` |
//! | 4..8 | page |
//! | 8..12 | storage |
//! | 12..16 | generation |
//! | 16..18, 18..20 | container, slot words |
//! | 20..24 | ordinal |
//! | 24..32 | S |
//! | 32..40 | incarnation |
//! | 40..44 | slots that follow |
//! | 44..48 | payload bytes |
//! | 48..52 | CRC32C of the payload |
//! | 52..56 | CRC32C of bytes 0..52 |
//! | 56.. | the slots' persistent parts |
//!
//! All little-endian. The manifest repeats the head, so that a recovery reads head and payload in one piece and compares.

use super::manifest::{Manifest, WholeImages};
use super::segment;
use crate::ids::{Cts, Epoch, PageNo, StorageId};
use crate::io::shut::ShutFile;
use crate::io::{AlignedBuf, BLOCK_BYTES, File, Io, OpenOptions};
use crate::log::Incarnation;
use crate::mem::{PageMeta, bytes_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const IMAGE_MAGIC: &[u8; 4] = b"FIMG";
pub(super) const HEAD_BYTES: usize = 56;
/// Words of a slot that no image has.
const VOLATILE_WORDS: usize = crate::table::VOLATILE_WORDS;

/// A segment of images, in whichever directory. No number is used twice in the life of a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct ImageSegmentNo(pub u32);

/// What an image says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImageHead {
    pub page: PageNo,
    pub meta: PageMeta,
    pub snapshot: Cts,
    pub incarnation: Incarnation,
    pub slots: u32,
}

impl ImageHead {
    /// Bytes of the slots' persistent parts.
    pub fn payload_bytes(&self) -> usize {
        self.slots as usize * usize::from(self.meta.slot_words).saturating_sub(VOLATILE_WORDS) * 8
    }

    fn encode(&self, payload_crc: u32) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            head[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(IMAGE_MAGIC);
        [self.page.0, self.meta.storage.0, self.meta.generation].iter().for_each(|f| put(&f.to_le_bytes()));
        put(&self.meta.container.to_le_bytes());
        put(&self.meta.slot_words.to_le_bytes());
        put(&self.meta.ordinal.to_le_bytes());
        put(&self.snapshot.0.to_le_bytes());
        put(&self.incarnation.0.to_le_bytes());
        put(&self.slots.to_le_bytes());
        put(&(self.payload_bytes() as u32).to_le_bytes());
        put(&payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&head[..HEAD_BYTES - 4]);
        head[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// The head and the payload's CRC; `None` if it does not check.
    fn decode(head: &[u8]) -> Option<(ImageHead, u32)> {
        let u16_at = |i: usize| u16::from_le_bytes(head[i..i + 2].try_into().expect("2 bytes"));
        let u32_at = |i: usize| u32::from_le_bytes(head[i..i + 4].try_into().expect("4 bytes"));
        let u64_at = |i: usize| u64::from_le_bytes(head[i..i + 8].try_into().expect("8 bytes"));
        if head.len() < HEAD_BYTES || &head[..4] != IMAGE_MAGIC || crc32c::crc32c(&head[..52]) != u32_at(52) {
            return None;
        }
        let decoded = ImageHead {
            page: PageNo(u32_at(4)),
            meta: PageMeta {
                storage: StorageId(u32_at(8)),
                generation: u32_at(12),
                container: u16_at(16),
                slot_words: u16_at(18),
                ordinal: u32_at(20),
            },
            snapshot: Cts(u64_at(24)),
            incarnation: Incarnation(u64_at(32)),
            slots: u32_at(40),
        };
        (decoded.payload_bytes() as u64 == u64::from(u32_at(44))).then_some((decoded, u32_at(48)))
    }
}

/// Appends an image; gives its payload's CRC.
pub(super) fn put(out: &mut AlignedBuf, head: &ImageHead, payload: &[u64]) -> u32 {
    let payload = bytes_of(payload);
    assert_eq!(payload.len(), head.payload_bytes(), "invariant: an image has the slots that its head says");
    let crc = crc32c::crc32c(payload);
    out.extend_from_slice(&head.encode(crc));
    out.extend_from_slice(payload);
    crc
}

/// Where an image lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImagePlace {
    pub head: ImageHead,
    pub segment: ImageSegmentNo,
    /// Of the head in the segment.
    pub offset: u64,
    pub payload_crc: u32,
}

impl ImagePlace {
    pub fn payload_bytes(&self) -> usize {
        self.head.payload_bytes()
    }

    /// Head and payload.
    pub fn bytes(&self) -> u64 {
        (HEAD_BYTES + self.payload_bytes()) as u64
    }

    /// Whether one read should serve both: this image lies behind `before`, with less between them than another read would cost.
    pub fn follows(&self, before: &ImagePlace) -> bool {
        const GAP_BYTES: u64 = 128 << 10;
        let end = before.offset + before.bytes();
        self.segment == before.segment && (end..=end + GAP_BYTES).contains(&self.offset)
    }
}

/// Why images cannot be used: they were synced before the manifest named them, so this is damage, or a directory that is missing.
#[derive(Debug)]
pub(crate) struct BadImages {
    pub path: PathBuf,
    pub offset: u64,
    pub reason: String,
}

/// The images in force, and the files that hold them.
#[derive(Default)]
pub(crate) struct Images {
    /// In the order in which they lie in their segments.
    pub images: Vec<ImagePlace>,
    /// Of every page from 0 on, free ones included.
    pub generations: Vec<u32>,
    /// Every change of an earlier epoch is in the images.
    pub complete_below: Epoch,
    files: BTreeMap<ImageSegmentNo, (PathBuf, Arc<dyn File>)>,
}

impl Images {
    /// Opens the segments that the manifest names; payloads come later, by any number of threads. `dirs` are those in use now, where a
    /// segment is looked for that is not where it was written.
    pub fn open(
        io: &Arc<dyn Io>,
        data_dir: &Path,
        dirs: &[PathBuf],
        direct: bool,
        manifest: &Manifest,
    ) -> Result<Images, BadImages> {
        if let Some(whole) = &manifest.whole {
            return open_whole(io, data_dir, whole);
        }
        let mut files = BTreeMap::new();
        for entry in &manifest.segments {
            let recorded = manifest.dir_of(entry, data_dir);
            let (path, file) = find(io, &recorded, dirs, direct, entry.number)?;
            check_length(&path, &*file, entry.bytes)?;
            files.insert(entry.number, (path, file));
        }
        let mut images = manifest.images.clone();
        images.sort_unstable_by_key(|i| (i.segment, i.offset));
        let generations = manifest.generations.clone();
        Ok(Images { images, generations, complete_below: manifest.complete_below, files })
    }

    /// The images that the manifest names, as far as their segments are there, and what is wrong with those.
    pub fn survey(
        io: &Arc<dyn Io>,
        data_dir: &Path,
        dirs: &[PathBuf],
        manifest: &Manifest,
    ) -> (Images, Vec<BadImages>) {
        let mut wrong = Vec::new();
        if let Some(whole) = &manifest.whole {
            let found = open_whole(io, data_dir, whole).map_err(|bad| wrong.push(bad));
            return (found.unwrap_or_default(), wrong);
        }
        let mut images = Images {
            images: manifest.images.clone(),
            generations: manifest.generations.clone(),
            complete_below: manifest.complete_below,
            files: BTreeMap::new(),
        };
        images.images.sort_unstable_by_key(|i| (i.segment, i.offset));
        for entry in &manifest.segments {
            match find(io, &manifest.dir_of(entry, data_dir), dirs, false, entry.number) {
                Ok((path, file)) => {
                    wrong.extend(check_length(&path, &*file, entry.bytes).err());
                    images.files.insert(entry.number, (path, file));
                }
                Err(bad) => wrong.push(bad),
            }
        }
        (images, wrong)
    }

    /// Every image that checks in the segments of these directories, in force or not: what is left when the manifest is lost, or an image
    /// that it names.
    pub fn rummage(io: &Arc<dyn Io>, dirs: &[PathBuf]) -> Images {
        let mut left = Images::default();
        for dir in dirs {
            for number in io.list(dir).unwrap_or_default().iter().filter_map(|name| segment::parse_name(name)) {
                let path = dir.join(segment::file_name(number));
                let opened = io.open_to_read(&path).and_then(|file| Ok((file.len()?, file)));
                let Ok((bytes, file)) = opened else { continue };
                rummage_segment(&*file, number, bytes, &mut left.images);
                left.files.insert(number, (path, file));
            }
        }
        left
    }

    /// The file that holds the image.
    pub fn path(&self, image: &ImagePlace) -> &Path {
        self.files.get(&image.segment).map_or(Path::new(""), |(path, _)| path)
    }

    pub fn bad(&self, image: &ImagePlace, reason: impl ToString) -> BadImages {
        bad(self.path(image), image.offset, reason)
    }

    /// Reads images that lie close to each other in one segment at once, in their order; the result is their payloads, checked.
    pub fn read_run<'b>(&self, run: &[ImagePlace], buffer: &'b mut AlignedBuf) -> Result<Vec<&'b [u8]>, BadImages> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Vec::new()) };
        let missing = || self.bad(first, "in a segment that is not there");
        let (_, file) = self.files.get(&first.segment).ok_or_else(missing)?;
        let block = BLOCK_BYTES as u64;
        let start = first.offset / block * block;
        let length = file.len().map_err(|e| self.bad(first, e))?;
        let end = (last.offset + last.bytes()).next_multiple_of(block).min(length).max(start);
        buffer.resize((end - start) as usize);
        file.read_at(buffer, start).map_err(|e| self.bad(first, e))?;
        let payload = |image: &ImagePlace| {
            let at = (image.offset - start) as usize;
            self.checked(image, buffer.get(at..at + image.bytes() as usize).unwrap_or_default())
        };
        run.iter().map(payload).collect()
    }

    /// The payload of an image as it was read.
    fn checked<'b>(&self, image: &ImagePlace, bytes: &'b [u8]) -> Result<&'b [u8], BadImages> {
        if ImageHead::decode(bytes) != Some((image.head, image.payload_crc)) {
            return Err(self.bad(image, format!("the image of page {} is not where it should be", image.head.page.0)));
        }
        let payload = &bytes[HEAD_BYTES..];
        if crc32c::crc32c(payload) != image.payload_crc {
            return Err(self.bad(image, format!("the image of page {} does not check", image.head.page.0)));
        }
        Ok(payload)
    }
}

/// Heads that check, wherever they lie: images follow each other without gaps, on multiples of eight bytes.
fn rummage_segment(file: &dyn File, segment: ImageSegmentNo, bytes: u64, into: &mut Vec<ImagePlace>) {
    const WINDOW_BYTES: u64 = 1 << 20;
    let mut window = Vec::new();
    let mut offset = 0;
    while offset < bytes {
        // The next window begins with what may be a head's beginning at the end of this one.
        window.resize((bytes - offset).min(WINDOW_BYTES + HEAD_BYTES as u64) as usize, 0);
        let end = offset + WINDOW_BYTES;
        if file.read_at(&mut window, offset).is_ok() {
            let mut at = 0;
            while at + HEAD_BYTES <= window.len() && (at as u64) < WINDOW_BYTES {
                let found = ImageHead::decode(&window[at..at + HEAD_BYTES]);
                if let Some((head, payload_crc)) = found {
                    into.push(ImagePlace { head, segment, offset: offset + at as u64, payload_crc });
                }
                at += 8;
            }
        }
        offset = end;
    }
}

fn bad(path: &Path, offset: u64, reason: impl ToString) -> BadImages {
    BadImages { path: path.to_path_buf(), offset, reason: reason.to_string() }
}

/// Whether a segment is as long as it was when the manifest named it.
fn check_length(path: &Path, file: &dyn File, due_bytes: u64) -> Result<(), BadImages> {
    let length = file.len().map_err(|e| bad(path, 0, e))?;
    if length < due_bytes {
        return Err(bad(path, length, format!("{length} bytes where the manifest says {due_bytes}")));
    }
    Ok(())
}

type Found = (PathBuf, Arc<dyn File>);

/// The segment where it was written, or in another of the directories: one that was moved, or mounted elsewhere.
fn find(
    io: &Arc<dyn Io>,
    recorded: &Path,
    dirs: &[PathBuf],
    direct: bool,
    number: ImageSegmentNo,
) -> Result<Found, BadImages> {
    let name = segment::file_name(number);
    let places = std::iter::once(recorded).chain(dirs.iter().map(PathBuf::as_path).filter(|d| *d != recorded));
    for path in places.map(|dir| dir.join(&name)) {
        if io.exists(&path).map_err(|e| bad(&path, 0, e))? {
            let mut options = OpenOptions { create: false, direct };
            let open = |options| io.open(&path, options).map_err(|e| bad(&path, 0, e));
            let mut file = open(options)?;
            // Its last bytes can be read through the page cache only.
            let is_odd = file.len().map_err(|e| bad(&path, 0, e))? % BLOCK_BYTES as u64 != 0;
            if file.is_direct() && is_odd {
                options.direct = false;
                file = open(options)?;
            }
            let file = ShutFile::of(io, &path, options, &*file);
            return Ok((path, file));
        }
    }
    Err(bad(&recorded.join(&name), 0, format!("missing from the backup directory {}", recorded.display())))
}

// ---- format version 1: one file for all images, their generations behind them

const GENERATIONS_MAGIC: &[u8; 4] = b"FGEN";

/// Reads the heads of a file of format version 1: magic `FGEN`, count u32, CRC32C u32 and a u32 for each page stand where no further image does.
fn open_whole(io: &Arc<dyn Io>, data_dir: &Path, whole: &WholeImages) -> Result<Images, BadImages> {
    let path = data_dir.join(segment::file_name(whole.number));
    let file = io.open(&path, OpenOptions::default()).map_err(|e| bad(&path, 0, e))?;
    check_length(&path, &*file, whole.bytes)?;
    let (mut images, mut generations) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < whole.bytes {
        let mut head = [0u8; HEAD_BYTES];
        let known = (whole.bytes - at).min(HEAD_BYTES as u64) as usize;
        file.read_at(&mut head[..known], at).map_err(|e| bad(&path, at, e))?;
        if &head[..4] == GENERATIONS_MAGIC && known >= 12 {
            generations = read_generations(&*file, &path, at, &head)?;
            at += 12 + 4 * generations.len() as u64;
            continue;
        }
        let Some((head, payload_crc)) = ImageHead::decode(&head[..known]) else {
            return Err(bad(&path, at, "no valid image head"));
        };
        let place = ImagePlace { head, segment: whole.number, offset: at, payload_crc };
        at += place.bytes();
        images.push(place);
    }
    // Such a checkpoint has every page: what its oldest image holds, all of them hold, or the log has the page from its beginning.
    let complete_below = images.iter().map(|i| i.head.snapshot.epoch().0 + 1).min().unwrap_or(0);
    let files = BTreeMap::from([(whole.number, (path, file))]);
    Ok(Images { images, generations, complete_below: Epoch(complete_below), files })
}

fn read_generations(file: &dyn File, path: &Path, at: u64, head: &[u8]) -> Result<Vec<u32>, BadImages> {
    let u32_at = |i: usize| u32::from_le_bytes(head[i..i + 4].try_into().expect("4 bytes"));
    let left = file.len().map_err(|e| bad(path, at, e))?.saturating_sub(at + 12);
    let count = u64::from(u32_at(4));
    if count * 4 > left {
        return Err(bad(path, at, "the generations are cut short"));
    }
    let mut bytes = vec![0; count as usize * 4];
    file.read_at(&mut bytes, at + 12).map_err(|e| bad(path, at, e))?;
    if crc32c::crc32c(&bytes) != u32_at(8) {
        return Err(bad(path, at, "the generations do not check"));
    }
    Ok(bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_and_no_flipped_bit_passes() {
        let meta = PageMeta { storage: StorageId(9), container: 16, slot_words: 12, ordinal: 4, generation: 3 };
        let head = ImageHead { page: PageNo(77), meta, snapshot: Cts(1 << 40), incarnation: Incarnation(2), slots: 5 };
        let bytes = head.encode(0xfeed);
        assert_eq!(ImageHead::decode(&bytes), Some((head, 0xfeed)));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ImageHead::decode(&flipped), None, "bit {bit}");
        }
    }
}
