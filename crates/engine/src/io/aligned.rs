//! Which memory may direct I/O use? A growable byte buffer whose start and capacity are multiples of 4 KiB.
//!
//! Invariants the `unsafe` blocks rest on:
//!
//! 1. `Block` is 4,096 initialised bytes without padding, so a slice of n blocks is a slice of n x 4,096 bytes.
//! 2. `len <= blocks.len() * BLOCK_BYTES`, so the first `len` bytes are inside the blocks.

use std::ops::{Deref, DerefMut};

/// The unit of direct I/O, and the alignment of every group, image and fence record.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

/// A byte buffer aligned to [`BLOCK_BYTES`]. It grows by whole blocks and keeps its memory when cleared.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuf {
    pub fn new() -> AlignedBuf {
        AlignedBuf::default()
    }

    pub fn with_capacity(bytes: usize) -> AlignedBuf {
        AlignedBuf { blocks: vec![Block([0; BLOCK_BYTES]); bytes.div_ceil(BLOCK_BYTES)], len: 0 }
    }

    pub fn zeroed(bytes: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::with_capacity(bytes);
        buf.len = bytes;
        buf
    }

    /// Bytes it holds without growing.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes the length `bytes`; what is added reads as zero.
    pub fn resize(&mut self, bytes: usize) {
        let old = self.len;
        self.grow(bytes);
        self.len = bytes;
        if bytes > old {
            self[old..].fill(0);
        }
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.grow(start + bytes.len());
        self.len = start + bytes.len();
        self[start..].copy_from_slice(bytes);
    }

    /// Appends zeros up to the next multiple of [`BLOCK_BYTES`].
    pub fn pad_to_block(&mut self) {
        self.resize(self.len.next_multiple_of(BLOCK_BYTES));
    }

    fn grow(&mut self, bytes: usize) {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks, Block([0; BLOCK_BYTES]));
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by (1) and (2) `len` initialised bytes follow the pointer, inside one allocation that `self` owns
        // and that the returned borrow keeps from changing.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive, and any bytes are valid in a block.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_aligned_and_padded_with_zeros() {
        let mut buf = AlignedBuf::new();
        assert!(buf.is_empty());
        buf.extend_from_slice(&[7; 5000]);
        buf.resize(10);
        buf.pad_to_block();
        assert_eq!(buf.len(), BLOCK_BYTES);
        assert!(buf[..10].iter().all(|&b| b == 7) && buf[10..].iter().all(|&b| b == 0));
        assert_eq!(buf.as_ptr() as usize % BLOCK_BYTES, 0);
    }
}
