//! Which files do images go to? Segments, `images-<6 digits>`, each appended to by one lane.
//!
//! ```text
//!   published by earlier checkpoints | written by this one, then padded to 4 KiB | (next checkpoint)
//! ```
//!
//! 1. What a manifest names is never written again: a lane goes on behind it, at the next 4 KiB.
//! 2. A segment that was being written when an attempt failed is never written again, whether the write, the sync or something else
//!    failed: the manifest on disk may name what the attempt wrote, and a failed sync leaves nothing to build on.
//! 3. No number is used twice: a file with a number above all that is named may still lie there.

use super::Failure;
use super::image::{self, ImageHead, ImagePlace, ImageSegmentNo};
use super::manifest::SegmentEntry;
use crate::io::{AlignedBuf, BLOCK_BYTES, File, Io, OpenOptions};
use crate::planted::{self, Bug};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "images-";

pub(super) fn file_name(number: ImageSegmentNo) -> String {
    format!("{PREFIX}{:06}", number.0)
}

pub(super) fn parse_name(name: &str) -> Option<ImageSegmentNo> {
    let number = ImageSegmentNo(name.strip_prefix(PREFIX)?.parse().ok()?);
    (file_name(number) == name).then_some(number)
}

/// The file that a lane appends to.
struct Open {
    number: ImageSegmentNo,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes written: a multiple of 4 KiB.
    bytes: u64,
    /// Something was appended since the last sync.
    is_dirty: bool,
}

/// One writer of images, in one directory.
pub(super) struct Appender {
    dir: u32,
    path: PathBuf,
    direct: bool,
    segment_bytes: u64,
    open: Option<Open>,
    /// Not yet written; belongs at `open.bytes`.
    buffer: AlignedBuf,
    written: Written,
}

/// What a lane adds to the manifest.
#[derive(Default)]
pub(super) struct Written {
    pub images: Vec<ImagePlace>,
    /// Synced; their live bytes are not known here.
    pub segments: Vec<SegmentEntry>,
    /// Where a file was created whose name has to be made durable.
    pub new_names_in: Option<PathBuf>,
    files: Vec<Touched>,
}

/// A file that was written to.
enum Touched {
    Created(PathBuf),
    /// The checkpoint before left it, with that length.
    Grown(Arc<dyn File>, u64),
}

impl Written {
    /// Gives back the space of what no manifest names or ever named: a full disk is not kept full by it. What cannot be given back now is
    /// removed by the next checkpoint, or the next open.
    pub fn discard(&mut self, io: &Arc<dyn Io>) {
        for file in self.files.drain(..) {
            let _ = match file {
                Touched::Created(path) => io.remove(&path),
                Touched::Grown(file, length) => file.set_len(length),
            };
        }
        *self = Written::default();
    }
}

impl Appender {
    pub fn new(dir: u32, path: PathBuf, direct: bool, segment_bytes: u64) -> Appender {
        let (open, buffer) = (None, AlignedBuf::new());
        Appender { dir, path, direct, segment_bytes, open, buffer, written: Written::default() }
    }

    /// Gives up what was written and not yet handed over, and the segment it was written to (invariant 2).
    pub fn abandon(&mut self, io: &Arc<dyn Io>) {
        self.open = None;
        self.buffer = AlignedBuf::new();
        self.written.discard(io);
    }

    /// Goes on with its segment only if that stays.
    pub fn keep_if(&mut self, stays: impl FnOnce(ImageSegmentNo) -> bool) {
        self.open = self.open.take().filter(|open| stays(open.number));
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn create(&mut self, io: &Arc<dyn Io>, number: ImageSegmentNo) -> Result<(), Failure> {
        let path = self.path.join(file_name(number));
        let options = OpenOptions { create: true, direct: self.direct };
        let file = io.open(&path, options).map_err(|e| Failure::new("create", &path, e))?;
        self.written.new_names_in = (!planted::is(Bug::ForgetImageName)).then(|| self.path.clone());
        self.open = Some(Open { number, path, file, bytes: 0, is_dirty: false });
        Ok(())
    }

    /// Adds an image to the open segment; `write` writes it.
    pub fn put(&mut self, head: ImageHead, payload: &[u64]) {
        let open = self.open.as_mut().expect("invariant: a lane opens a segment before it takes an image");
        let offset = open.bytes + self.buffer.len() as u64;
        let payload_crc = image::put(&mut self.buffer, &head, payload);
        if !std::mem::replace(&mut open.is_dirty, true) {
            self.written.files.push(match open.bytes {
                0 => Touched::Created(open.path.clone()),
                length => Touched::Grown(open.file.clone(), length),
            });
        }
        self.written.images.push(ImagePlace { head, segment: open.number, offset, payload_crc });
    }

    /// Writes once `write_bytes` have come together; a full segment is finished. Gives the bytes written.
    pub fn write_if_due(&mut self, write_bytes: usize) -> Result<u64, Failure> {
        let Some(open) = &self.open else { return Ok(0) };
        if open.bytes + self.buffer.len() as u64 >= self.segment_bytes {
            let written = self.finish()?;
            self.open = None;
            return Ok(written);
        }
        if self.buffer.len() >= write_bytes { self.write() } else { Ok(0) }
    }

    /// Writes the whole blocks of the buffer and keeps the rest.
    fn write(&mut self) -> Result<u64, Failure> {
        let Some(open) = &mut self.open else { return Ok(0) };
        let whole = self.buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
        open.file.write_at(&self.buffer[..whole], open.bytes).map_err(|e| Failure::new("write", &open.path, e))?;
        open.bytes += whole as u64;
        let rest = self.buffer.len() - whole;
        self.buffer.copy_within(whole.., 0);
        self.buffer.resize(rest);
        Ok(whole as u64)
    }

    /// Writes what is left, padded, and syncs: the images are durable, though not yet the name of a new file.
    pub fn finish(&mut self) -> Result<u64, Failure> {
        if self.open.as_ref().is_none_or(|open| !open.is_dirty) {
            return Ok(0);
        }
        self.buffer.pad_to_block();
        let written = self.write()?;
        if let Some(open) = &mut self.open {
            if !planted::is(Bug::PublishFirst) {
                open.file.sync().map_err(|e| Failure::new("sync", &open.path, e))?;
            }
            open.is_dirty = false;
            let entry = SegmentEntry { number: open.number, dir: self.dir, bytes: open.bytes, live_bytes: 0 };
            self.written.segments.push(entry);
        }
        Ok(written)
    }

    /// Gives what was written to whoever publishes it, and the buffer's memory back.
    pub fn take_written(&mut self) -> Written {
        self.buffer = AlignedBuf::new();
        std::mem::take(&mut self.written)
    }
}

/// The files in the directory whose segments are not needed.
pub(super) fn unneeded(
    io: &Arc<dyn Io>,
    dir: &Path,
    is_needed: impl Fn(ImageSegmentNo) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    let names = io.list(dir).map_err(|e| Failure::new("list", dir, e))?;
    let is_needed = |number| is_needed(number) && !planted::is(Bug::RemoveNeeded);
    Ok(names.iter().filter(|n| parse_name(n).is_some_and(|number| !is_needed(number))).map(|n| dir.join(n)).collect())
}

/// A number above all that lie in the directory.
pub(super) fn next_number(io: &Arc<dyn Io>, dir: &Path) -> Result<ImageSegmentNo, Failure> {
    let names = io.list(dir).map_err(|e| Failure::new("list", dir, e))?;
    let largest = names.iter().filter_map(|n| parse_name(n)).max().unwrap_or_default();
    Ok(ImageSegmentNo(largest.0 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(parse_name(&file_name(ImageSegmentNo(17))), Some(ImageSegmentNo(17)));
        assert_eq!(parse_name(&file_name(ImageSegmentNo(7_654_321))), Some(ImageSegmentNo(7_654_321)));
        for other in ["images-17", "images-", "image-000017", "images-00001x", "images-0000017", "manifest"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
