//! Buckets and slots of the bare loop.
//!
//! | words of a slot | |
//! |---|---|
//! | 0 | sequence count: odd while it is written |
//! | 1 | timestamp |
//! | 2 | nothing: a version chain's place |
//! | 3..24 | 21 fields, the first of them the key |
//!
//! A bucket is one line: a word that says whether entries went on to the next bucket, and seven entries {24 bits, not all zero | slot}; zero is
//! none.
//! Slots are never reused for another key, so a key's place is found without the sequence count.

use freshet_engine::mem::HugeWords;
use freshet_engine::mem::prefetch::prefetch;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// 192 bytes: three lines.
pub const SLOT_WORDS: usize = 24;
const KEY_WORD: usize = 3;
pub const COUNTER_WORD: usize = KEY_WORD + 5;
const BUCKET_WORDS: usize = 8;
const SLOT_BITS: u32 = 40;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Entries to a bucket, on average, at most: overflow stays rare.
const FILL: u64 = 4;

pub struct Table {
    slots: HugeWords,
    buckets: Buckets,
}

/// An index without what it leads to.
pub struct Buckets {
    words: HugeWords,
    mask: usize,
}

/// A search on its way.
#[derive(Clone, Copy, Default)]
pub struct Pending {
    key: u64,
    hash: u64,
    slot: Option<u64>,
}

/// murmur3's finaliser.
#[inline]
pub fn hash(key: u64) -> u64 {
    let mut h = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The hash's part of an entry, in its place; never zero.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash | 1 << 63) & !SLOT_MASK
}

impl Buckets {
    pub fn new(capacity: u64) -> io::Result<Buckets> {
        let buckets = capacity.div_ceil(FILL).next_power_of_two() as usize;
        Ok(Buckets { words: HugeWords::zeroed(buckets * BUCKET_WORDS)?, mask: buckets - 1 })
    }

    #[inline(always)]
    fn bucket(&self, number: usize) -> &[AtomicU64; BUCKET_WORDS] {
        let words = &self.words[number * BUCKET_WORDS..][..BUCKET_WORDS];
        words.try_into().expect("so many words")
    }

    /// A part of all words, for each of several threads that touch them before anything is timed.
    pub fn clear(&self, parts: usize, part: usize) {
        let each = self.words.len().div_ceil(parts);
        self.words.chunks(each).nth(part).into_iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    #[inline(always)]
    pub fn ask_for(&self, hash: u64) {
        prefetch(&self.bucket(hash as usize & self.mask)[0]);
    }

    #[inline]
    pub fn enter(&self, hash: u64, slot: u64) {
        let new = tag(hash) | slot;
        let mut at = hash as usize & self.mask;
        loop {
            let bucket = self.bucket(at);
            let free = bucket[1..].iter().find(|entry| {
                entry.load(Ordering::Relaxed) == 0
                    && entry.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed).is_ok()
            });
            if free.is_some() {
                return;
            }
            bucket[0].store(1, Ordering::Relaxed);
            at = (at + 1) & self.mask;
        }
    }
}

impl Table {
    /// Key `k` lies in slot `k`: what an allocator would cost is not part of the limit.
    pub fn new(capacity: u64) -> io::Result<Table> {
        let slots = HugeWords::zeroed(capacity as usize * SLOT_WORDS)?;
        Ok(Table { slots, buckets: Buckets::new(capacity)? })
    }

    #[inline(always)]
    fn bucket(&self, number: usize) -> &[AtomicU64; BUCKET_WORDS] {
        self.buckets.bucket(number)
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.buckets.mask
    }

    /// What an index is built from.
    #[inline(always)]
    pub fn key(&self, slot: u64) -> u64 {
        self.slot(slot)[KEY_WORD].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &[AtomicU64; SLOT_WORDS] {
        let words = &self.slots[number as usize * SLOT_WORDS..][..SLOT_WORDS];
        words.try_into().expect("so many words")
    }

    /// One bit for each entry with this tag. Without a branch on any of them: which entry it is cannot be predicted, and a branch that goes wrong
    /// when the line comes would keep the processor from working on the next search meanwhile. Few instructions, for the same reason: the
    /// searches that overlap have to fit in the processor's window.
    #[inline(always)]
    fn matches(bucket: &[AtomicU64; BUCKET_WORDS], tag: u64) -> u32 {
        let hit = |n: usize| u32::from(bucket[n + 1].load(Ordering::Acquire) ^ tag <= SLOT_MASK) << n;
        hit(0) | hit(1) | hit(2) | hit(3) | hit(4) | hit(5) | hit(6)
    }

    /// An entry that was deleted since leads to another key's slot.
    #[inline(always)]
    fn slot_of(bucket: &[AtomicU64; BUCKET_WORDS], hit: u32) -> u64 {
        bucket[(1 + hit as usize) & 7].load(Ordering::Relaxed) & SLOT_MASK
    }

    /// The slot of a key.
    #[inline(always)]
    fn find(&self, key: u64, hash: u64) -> Option<u64> {
        let mut at = hash as usize & self.mask();
        loop {
            let bucket = self.bucket(at);
            let mut hits = Table::matches(bucket, tag(hash));
            while hits != 0 {
                let slot = Table::slot_of(bucket, hits.trailing_zeros());
                if self.key(slot) == key {
                    return Some(slot);
                }
                hits &= hits - 1;
            }
            if bucket[0].load(Ordering::Relaxed) == 0 {
                return None;
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Copies the slot under its sequence count.
    #[inline(always)]
    fn copy(&self, slot: u64, to: &mut [u64; SLOT_WORDS]) {
        let words = self.slot(slot);
        loop {
            let before = words[0].load(Ordering::Acquire);
            *to = std::array::from_fn(|n| words[n].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before & 1 == 0 && words[0].load(Ordering::Relaxed) == before {
                return;
            }
            std::hint::spin_loop();
        }
    }

    #[inline(always)]
    pub fn read(&self, key: u64, to: &mut [u64; SLOT_WORDS]) -> bool {
        match self.find(key, hash(key)) {
            Some(slot) => {
                self.copy(slot, to);
                true
            }
            None => false,
        }
    }

    /// One field under the sequence count, without the rest of the slot.
    #[inline(always)]
    pub fn read_counter(&self, key: u64) -> Option<u64> {
        self.find(key, hash(key)).map(|slot| self.counter(slot))
    }

    #[inline(always)]
    fn counter(&self, slot: u64) -> u64 {
        let words = self.slot(slot);
        loop {
            let before = words[0].load(Ordering::Acquire);
            let counter = words[COUNTER_WORD].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if before & 1 == 0 && words[0].load(Ordering::Relaxed) == before {
                return counter;
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    pub fn begin(&self, key: u64) -> Pending {
        let hash = hash(key);
        self.buckets.ask_for(hash);
        Pending { key, hash, slot: None }
    }

    /// The bucket is here: the slot's lines are asked for.
    #[inline]
    pub fn advance(&self, pending: &mut Pending) {
        let bucket = self.bucket(pending.hash as usize & self.mask());
        let hits = Table::matches(bucket, tag(pending.hash));
        pending.slot = (hits != 0).then(|| Table::slot_of(bucket, hits.trailing_zeros()));
        if let Some(slot) = pending.slot {
            let words = self.slot(slot);
            prefetch(&words[0]);
            prefetch(&words[COUNTER_WORD]);
        }
    }

    #[inline]
    pub fn finish(&self, pending: &Pending) -> Option<u64> {
        match pending.slot {
            Some(slot) if self.key(slot) == pending.key => Some(self.counter(slot)),
            // The tag was another key's, or the entry lies further on.
            _ => self.read_counter(pending.key),
        }
    }

    /// Runs `work` with the slot's sequence count taken.
    #[inline]
    fn write<T>(&self, slot: u64, work: impl FnOnce(&[AtomicU64]) -> T) -> T {
        let words = self.slot(slot);
        let taken = loop {
            let count = words[0].load(Ordering::Relaxed);
            let free = count & 1 == 0;
            if free && words[0].compare_exchange_weak(count, count + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break count;
            }
            std::hint::spin_loop();
        };
        fence(Ordering::Release);
        let result = work(words);
        words[0].store(taken + 2, Ordering::Release);
        result
    }

    /// Adds one to the counter; gives the timestamp and the XOR of what changed.
    #[inline]
    pub fn add_one(&self, key: u64, draw: impl FnOnce() -> u64) -> (u64, u64) {
        let slot = self.find(key, hash(key)).expect("invariant: updated keys are there");
        self.write(slot, |words| {
            let old = words[COUNTER_WORD].load(Ordering::Relaxed);
            let cts = draw();
            words[1].store(cts, Ordering::Relaxed);
            words[COUNTER_WORD].store(old + 1, Ordering::Relaxed);
            (cts, old ^ (old + 1))
        })
    }

    /// Fills a slot and enters it; gives the fields.
    #[inline]
    pub fn insert(&self, key: u64, slot: u64, cts: u64) -> [u64; SLOT_WORDS - KEY_WORD] {
        let fields = std::array::from_fn(|i| match i {
            0 => key,
            5 => 0,
            i => key.wrapping_mul(31).wrapping_add(i as u64),
        });
        self.write(slot, |words| {
            words[1].store(cts, Ordering::Relaxed);
            words[KEY_WORD..].iter().zip(&fields).for_each(|(word, &field)| word.store(field, Ordering::Relaxed));
        });
        self.buckets.enter(hash(key), slot);
        fields
    }

    #[inline]
    pub fn delete(&self, key: u64, cts: u64) {
        let hash = hash(key);
        let slot = self.find(key, hash).expect("invariant: deleted keys are there");
        self.write(slot, |words| words[1].store(cts, Ordering::Relaxed));
        let old = tag(hash) | slot;
        let mut at = hash as usize & self.mask();
        loop {
            let gone = self.bucket(at)[1..].iter().find(|entry| {
                entry.load(Ordering::Relaxed) == old
                    && entry.compare_exchange(old, 0, Ordering::Release, Ordering::Relaxed).is_ok()
            });
            if gone.is_some() {
                return;
            }
            at = (at + 1) & self.mask();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_until_they_are_deleted_one_by_one_and_batched() {
        let table = Table::new(5_000).expect("fits");
        (0..5_000).for_each(|key| _ = table.insert(key, key, 1));
        let mut slot = [0; SLOT_WORDS];
        for key in 0..5_000 {
            assert!(table.read(key, &mut slot) && slot[KEY_WORD] == key);
            let mut pending = table.begin(key);
            table.advance(&mut pending);
            assert_eq!(table.finish(&pending), Some(0));
            assert_eq!(table.read_counter(key), Some(0));
        }
        assert!(!table.read(5_000, &mut slot));
        (0..5_000).step_by(2).for_each(|key| table.delete(key, 2));
        (0..5_000).for_each(|key| assert_eq!(table.read(key, &mut slot), key % 2 == 1));
    }

    #[test]
    fn an_update_gives_the_xor_of_what_it_changed() {
        let table = Table::new(10).expect("fits");
        table.insert(3, 3, 1);
        for n in 0..9u64 {
            assert_eq!(table.add_one(3, || n + 2), (n + 2, n ^ (n + 1)));
        }
        let mut slot = [0; SLOT_WORDS];
        assert!(table.read(3, &mut slot));
        assert_eq!((slot[1], slot[COUNTER_WORD]), (10, 9));
    }
}
