//! How does a number become memory that never moves? Pieces of one length, in chunks that double: the table is as large as what it holds.
//!
//! 1. Pieces are numbered from 1. Chunk k has the 2^k pieces from number 2^k on; it comes into being before any of its numbers is given out, and is
//!    kept until the table is dropped.

use super::super::words::Words;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

pub struct Numbered {
    piece_words: usize,
    chunks: [AtomicPtr<AtomicU64>; Numbered::CHUNKS],
    next: AtomicU32,
    owned: Mutex<Vec<Words>>,
}

impl Numbered {
    /// The checkers' trees are small, and loom knows few objects.
    const CHUNKS: usize = if cfg!(loom) {
        6
    } else if cfg!(shuttle) {
        8
    } else {
        32
    };

    pub fn new(piece_words: usize) -> Numbered {
        Numbered {
            piece_words,
            chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            next: AtomicU32::new(1),
            owned: Mutex::new(Vec::new()),
        }
    }

    /// The piece of this number, which is not 0. Nothing if its chunk is not to be seen yet: the number was read from memory that another thread is
    /// writing, and not yet validated.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&[AtomicU64]> {
        let chunk = number.ilog2() as usize;
        let within = (number - (1 << chunk)) as usize * self.piece_words;
        let base = self.chunks[chunk].load(Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: the chunk has 2^chunk pieces of `piece_words` words, initialised atomics that `owned` keeps until the table is dropped
        // (invariant 1; `words` invariant 1), and `within` is the start of one of them.
        Some(unsafe { std::slice::from_raw_parts(base.add(within), self.piece_words) })
    }

    /// Whether so many more can have numbers, whoever else takes some at this moment.
    pub fn has_room(&self, more: usize) -> bool {
        const TAKEN_BESIDE: u64 = 1 << 20;
        u64::from(self.next.load(Relaxed)) + more as u64 + TAKEN_BESIDE < u64::from(u32::MAX)
    }

    /// The number of a new piece of zeros; nobody else knows it until it is stored somewhere.
    pub fn add(&self) -> u32 {
        let number = self.next.fetch_add(1, Relaxed);
        assert!(
            number != u32::MAX,
            "invariant: of nodes there are never 2^32, terabytes of keys; of less who adds asks for room"
        );
        let chunk = number.ilog2() as usize;
        if self.chunks[chunk].load(Acquire).is_null() {
            let mut owned = self.owned.lock();
            if self.chunks[chunk].load(Acquire).is_null() {
                let words = Words::zeroed(self.piece_words << chunk);
                words.advise_huge();
                self.chunks[chunk].store(words.as_ptr().cast_mut(), Release);
                owned.push(words);
            }
        }
        number
    }

    /// Pieces that were given out.
    #[inline]
    pub fn count(&self) -> usize {
        self.next.load(Relaxed) as usize - 1
    }

    pub fn piece_bytes(&self) -> usize {
        self.piece_words * 8
    }

    /// Of the pieces that were given out; the last chunk's others are address space only, but for the rest of one huge page.
    pub fn memory_bytes(&self) -> usize {
        self.count() * self.piece_bytes()
    }
}
