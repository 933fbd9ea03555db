//! The file of one checkpoint: images one after another, then the generations of all pages.
//!
//! An image (little-endian):
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
//! The generations: magic `FGEN`, count u32, CRC32C u32 of what follows, then a u32 for each page from 0 on.

use crate::ids::{Cts, PageNo, StorageId};
use crate::io::{File, Io, OpenOptions};
use crate::log::Incarnation;
use crate::mem::{PageMeta, bytes_of};
use std::io;
use std::path::Path;
use std::sync::Arc;

const IMAGE_MAGIC: &[u8; 4] = b"FIMG";
const GENERATIONS_MAGIC: &[u8; 4] = b"FGEN";
const HEAD_BYTES: usize = 56;
const BUFFER_BYTES: usize = 1 << 20;

/// What an image says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImageHead {
    pub page: PageNo,
    pub meta: PageMeta,
    pub snapshot: Cts,
    pub incarnation: Incarnation,
    pub slots: u32,
}

/// Appends images to a new file.
pub(super) struct ImageWriter {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
}

impl ImageWriter {
    pub fn create(io: &Arc<dyn Io>, path: &Path) -> io::Result<ImageWriter> {
        if io.exists(path)? {
            io.remove(path)?;
        }
        let file = io.open(path, OpenOptions { create: true, direct: false })?;
        Ok(ImageWriter { file, buffer: Vec::new(), written: 0 })
    }

    pub fn put(&mut self, head: &ImageHead, payload: &[u64]) -> io::Result<()> {
        let payload = bytes_of(payload);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(IMAGE_MAGIC);
        for field in [head.page.0, head.meta.storage.0, head.meta.generation] {
            self.buffer.extend_from_slice(&field.to_le_bytes());
        }
        self.buffer.extend_from_slice(&head.meta.container.to_le_bytes());
        self.buffer.extend_from_slice(&head.meta.slot_words.to_le_bytes());
        self.buffer.extend_from_slice(&head.meta.ordinal.to_le_bytes());
        self.buffer.extend_from_slice(&head.snapshot.0.to_le_bytes());
        self.buffer.extend_from_slice(&head.incarnation.0.to_le_bytes());
        self.buffer.extend_from_slice(&head.slots.to_le_bytes());
        self.buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        let crc = crc32c::crc32c(&self.buffer[start..]);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Appends the generations and makes the file durable; gives its length.
    pub fn finish(&mut self, generations: impl Iterator<Item = u32>) -> io::Result<u64> {
        let bytes: Vec<u8> = generations.flat_map(u32::to_le_bytes).collect();
        self.buffer.extend_from_slice(GENERATIONS_MAGIC);
        self.buffer.extend_from_slice(&((bytes.len() / 4) as u32).to_le_bytes());
        self.buffer.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        self.buffer.extend_from_slice(&bytes);
        self.flush()?;
        self.file.sync()?;
        Ok(self.written)
    }
}

/// Why the images cannot be used: they were synced before the manifest named them, so this is damage.
#[derive(Debug)]
pub(crate) struct BadImages {
    pub offset: u64,
    pub reason: String,
}

fn bad(offset: u64, reason: impl ToString) -> BadImages {
    BadImages { offset, reason: reason.to_string() }
}

/// Where an image's payload lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImagePlace {
    pub head: ImageHead,
    offset: u64,
    bytes: u32,
    crc: u32,
}

impl ImagePlace {
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn payload_bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// A finished file, read back.
pub(crate) struct ImageFile {
    file: Arc<dyn File>,
    pub images: Vec<ImagePlace>,
    /// Of every page from 0 on, free ones included.
    pub generations: Vec<u32>,
}

impl ImageFile {
    /// Reads all heads and the generations; payloads come later, by any number of threads.
    pub fn open(io: &Arc<dyn Io>, path: &Path, bytes: u64) -> Result<ImageFile, BadImages> {
        let file = io.open(path, OpenOptions::default()).map_err(|e| bad(0, e))?;
        let length = file.len().map_err(|e| bad(0, e))?;
        if length < bytes {
            return Err(bad(length, format!("{length} bytes where the manifest says {bytes}")));
        }
        let mut opened = ImageFile { file, images: Vec::new(), generations: Vec::new() };
        let mut at = 0;
        while at < bytes {
            at = opened.read_next(at, bytes)?;
        }
        Ok(opened)
    }

    fn read_next(&mut self, at: u64, end: u64) -> Result<u64, BadImages> {
        let mut head = [0u8; HEAD_BYTES];
        let known = (end - at).min(HEAD_BYTES as u64) as usize;
        self.file.read_at(&mut head[..known], at).map_err(|e| bad(at, e))?;
        let u32_at = |i: usize| u32::from_le_bytes(head[i..i + 4].try_into().expect("4 bytes"));
        let u64_at = |i: usize| u64::from_le_bytes(head[i..i + 8].try_into().expect("8 bytes"));
        if &head[..4] == GENERATIONS_MAGIC && known >= 12 {
            return self.read_generations(at + 12, u32_at(4), u32_at(8));
        }
        if &head[..4] != IMAGE_MAGIC || known < HEAD_BYTES || crc32c::crc32c(&head[..52]) != u32_at(52) {
            return Err(bad(at, "no valid image head"));
        }
        let half = |i: usize| u16::from_le_bytes(head[i..i + 2].try_into().expect("2 bytes"));
        let meta = PageMeta {
            storage: StorageId(u32_at(8)),
            generation: u32_at(12),
            container: half(16),
            slot_words: half(18),
            ordinal: u32_at(20),
        };
        let head = ImageHead {
            page: PageNo(u32_at(4)),
            meta,
            snapshot: Cts(u64_at(24)),
            incarnation: Incarnation(u64_at(32)),
            slots: u32_at(40),
        };
        let place = ImagePlace { head, offset: at + HEAD_BYTES as u64, bytes: u32_at(44), crc: u32_at(48) };
        self.images.push(place);
        Ok(place.offset + u64::from(place.bytes))
    }

    fn read_generations(&mut self, at: u64, count: u32, crc: u32) -> Result<u64, BadImages> {
        let mut bytes = vec![0; count as usize * 4];
        self.file.read_at(&mut bytes, at).map_err(|e| bad(at, e))?;
        if crc32c::crc32c(&bytes) != crc {
            return Err(bad(at, "the generations do not check"));
        }
        self.generations = bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes"))).collect();
        Ok(at + bytes.len() as u64)
    }

    /// The image's payload, checked.
    pub fn read<'b>(&self, image: &ImagePlace, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], BadImages> {
        buffer.resize(image.bytes as usize, 0);
        self.file.read_at(buffer, image.offset).map_err(|e| bad(image.offset, e))?;
        if crc32c::crc32c(buffer) != image.crc {
            return Err(bad(image.offset, format!("the image of page {} does not check", image.head.page.0)));
        }
        Ok(buffer)
    }
}
