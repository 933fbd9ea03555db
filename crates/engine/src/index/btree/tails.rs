//! Where are the words of a key that its node has no room for?
//!
//! Such a key has its first words in the node, as every key; what is left is its *tail*, a chain of blocks of one cache line:
//!
//! | words of a block | |
//! |---|---|
//! | 0 | number of the next block, 0 if none |
//! | 1..8 | words of the tail |
//!
//! The node keeps {words of the tail 32, number of its first block 32}, 0 if there is none. So most comparisons end in the node, and one that does
//! not reads a line for each seven words that the two keys share.
//!
//! 1. Each stored entry that means something owns its tail alone: a leaf's, an inner node's but the last, the high entry of a node that has a right
//!    neighbour. Entries that move take it along, entries that are copied (a leaf's last as its high entry) get one of their own.
//! 2. A tail is written before its entry is stored, and never changed. It is freed only under the latch of the node that had the entry, while that
//!    node is being changed. Blocks are written only after a fence that follows their coming from the list of free ones.
//! 3. So a reader that meets another tail's words in a block sees, by the fences, the version of the node that had given the block up: its validation
//!    fails, as it does for any other word of a changed node. What it reads until then is atomic words of some tail, and the number of words that it
//!    reads is one that was stored in a node: it ends.

use super::numbered::Numbered;
use crate::index::words::LINE_WORDS;
use crate::mem::prefetch::prefetch;
use crate::mem::{Account, Claim};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::*, fence};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

/// Words of a tail in a block.
const BLOCK_WORDS: usize = LINE_WORDS - 1;

/// A tail as a node keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail(pub u64);

impl Tail {
    pub const NONE: Tail = Tail(0);

    fn new(len: usize, first: u32) -> Tail {
        Tail((len as u64) << 32 | u64::from(first))
    }

    fn len(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn first(self) -> u32 {
        self.0 as u32
    }
}

/// The blocks of a tail: those of a key of some three hundred bytes without an allocation.
type Numbers = SmallVec<[u32; 6]>;

/// Blocks that so many words take.
pub fn blocks_of(words: usize) -> usize {
    words.div_ceil(BLOCK_WORDS)
}

pub struct Tails {
    blocks: Numbered,
    /// Numbers of free blocks, on several shelves: writers of different leaves seldom meet.
    free: [Mutex<Vec<u32>>; Tails::SHELVES],
    /// How many lie there, about.
    free_count: AtomicU64,
    /// Blocks that a build has paid for.
    prepaid: AtomicU64,
    account: OnceLock<Arc<Account>>,
}

impl Tails {
    pub const BLOCK_BYTES: usize = LINE_WORDS * 8;

    const SHELVES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

    pub fn new() -> Tails {
        Tails {
            blocks: Numbered::new(LINE_WORDS),
            free: std::array::from_fn(|_| Mutex::new(Vec::new())),
            free_count: AtomicU64::new(0),
            prepaid: AtomicU64::new(0),
            account: OnceLock::new(),
        }
    }

    pub fn draw_on(&self, account: Arc<Account>) {
        self.account.set(account).expect("an index is charged once");
    }

    /// So many blocks are taken from the account already.
    pub fn prepay(&self, blocks: usize) {
        self.prepaid.store(blocks as u64, Relaxed);
    }

    /// A tail of these words, if there is memory for it. `place` tells writers apart.
    pub fn add(&self, words: &[u64], place: usize, claim: Claim) -> Option<Tail> {
        if words.is_empty() {
            return Some(Tail::NONE);
        }
        let count = blocks_of(words.len());
        let mut numbers = Numbers::with_capacity(count);
        self.take_free(count, place, &mut numbers);
        let missing = count - numbers.len();
        if missing > 0 && !(self.blocks.has_room(missing) && self.take(missing as u64, claim)) {
            self.give_free(&numbers, place);
            return None;
        }
        numbers.extend((0..missing).map(|_| self.blocks.add()));
        // Invariant 2: after the blocks were given back, before anything is written.
        fence(Release);
        let followers = numbers.iter().skip(1).copied().chain(std::iter::once(0));
        for ((&number, next), part) in numbers.iter().zip(followers).zip(words.chunks(BLOCK_WORDS)) {
            let block = self.block(number);
            block[0].store(u64::from(next), Relaxed);
            block[1..].iter().zip(part).for_each(|(to, &word)| to.store(word, Relaxed));
        }
        Some(Tail::new(words.len(), numbers[0]))
    }

    /// Takes memory for new blocks: what is prepaid first.
    fn take(&self, blocks: u64, claim: Claim) -> bool {
        let paid = self.prepaid.fetch_update(Relaxed, Relaxed, |left| Some(left - left.min(blocks)));
        let rest = blocks - paid.unwrap_or(0).min(blocks);
        let bytes = rest * self.blocks.piece_bytes() as u64;
        rest == 0 || self.account.get().is_none_or(|account| account.take(bytes, claim))
    }

    /// Gives a tail's blocks to whoever wants one next (invariant 2).
    pub fn free(&self, tail: Tail, place: usize) {
        let mut numbers = Numbers::with_capacity(blocks_of(tail.len()));
        let mut number = tail.first();
        while number != 0 {
            numbers.push(number);
            number = self.block(number)[0].load(Relaxed) as u32;
        }
        debug_assert_eq!(numbers.len(), blocks_of(tail.len()), "invariant: a tail that is owned is whole");
        self.give_free(&numbers, place);
    }

    fn give_free(&self, numbers: &[u32], place: usize) {
        if !numbers.is_empty() {
            self.free_count.fetch_add(numbers.len() as u64, Relaxed);
            self.free[place % Self::SHELVES].lock().extend_from_slice(numbers);
        }
    }

    /// Up to `count` free blocks, from the place's own shelf first.
    fn take_free(&self, count: usize, place: usize, numbers: &mut Numbers) {
        for shelf in 0..Self::SHELVES {
            if numbers.len() == count || self.free_count.load(Relaxed) == 0 {
                return;
            }
            let mut free = self.free[(place + shelf) % Self::SHELVES].lock();
            let kept = free.len().saturating_sub(count - numbers.len());
            self.free_count.fetch_sub((free.len() - kept) as u64, Relaxed);
            numbers.extend(free.drain(kept..));
        }
    }

    fn block(&self, number: u32) -> &[AtomicU64] {
        self.blocks.get(number).expect("a number that was given out has its chunk")
    }

    /// The tail's words, as far as they are to be found: they mean something once it is validated that their entry was there all the while.
    #[inline]
    fn words(&self, tail: Tail) -> TailWords<'_> {
        TailWords { tails: self, next: tail.first(), block: &[], left: tail.len() }
    }

    #[inline]
    pub fn compare(&self, tail: Tail, words: &[u64]) -> Ordering {
        self.words(tail).cmp(words.iter().copied())
    }

    pub fn append(&self, tail: Tail, to: &mut Vec<u64>) {
        to.extend(self.words(tail));
    }

    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes()
    }

    /// Blocks that are not free, when nothing changes.
    #[cfg(all(test, not(loom)))]
    pub fn used_blocks(&self) -> usize {
        let free: usize = self.free.iter().map(|shelf| shelf.lock().len()).sum();
        self.memory_bytes() / self.blocks.piece_bytes() - free
    }
}

struct TailWords<'a> {
    tails: &'a Tails,
    next: u32,
    /// What is left of the block that is being read.
    block: &'a [AtomicU64],
    left: usize,
}

impl Iterator for TailWords<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        if self.block.is_empty() {
            if self.next == 0 {
                return None;
            }
            let (link, words) = self.tails.blocks.get(self.next)?.split_first()?;
            self.next = link.load(Relaxed) as u32;
            self.block = words;
            // The next line comes while this one is compared.
            if self.next != 0
                && let Some(block) = self.tails.blocks.get(self.next)
            {
                prefetch(&block[0]);
            }
        }
        let (word, rest) = self.block.split_first()?;
        self.block = rest;
        self.left -= 1;
        Some(word.load(Relaxed))
    }
}
