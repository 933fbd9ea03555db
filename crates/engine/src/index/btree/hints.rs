//! Which leaf has a key of one word, without going down? Probably the one that a lookup of a key nearby came to.
//!
//! Keys are parted into granules, half as wide as the leaves' spans or up to as wide. The hints of a granule are one line, which it may share with others:
//!
//! | words | of a leaf that begins before the granule; of one that begins within it |
//! |---|---|
//! | 0; 3 | link, 0 if there is none |
//! | 1; 4 | its keys are above this |
//! | 2; 5 | and not above this |
//!
//! There are lines where a tree's inner nodes no longer fit a processor's cache: the way down waits for memory at each level then, and a line, once it is
//! known which, can be waited for beside other lookups. Where leaves' spans differ much, many share few lines, and who looks there heeds them less (`word`).
//!
//! 1. A hint proves nothing: its words are stored one by one by any thread, and the leaf has split, died or lives again since. `word` asks the leaf.
//! 2. A link in a line was one of this tree, a leaf's, when it was stored; stored by Release and loaded by Acquire, so that whoever has it sees the
//!    node's memory (`numbered`).
//! 3. Lines stay where they are until the tree is dropped. When there are more of them, or granules are parted anew, a line is another granule's; what it
//!    says is of the old one's keys, and its bounds say so.
//! 4. What is found to be as it was is not written: lookups that find their leaves where they were leave lines shared between processors.

use super::super::words::{LINE_WORDS, Words};
use super::node::Link;
use crate::mem::prefetch::prefetch;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::OnceLock;

/// Leaves of a tree that has hints: with more, the lowest inner nodes fill much of a second-level cache of 1 MiB.
const LEAVES_MIN: usize = if cfg!(loom) {
    usize::MAX
} else if cfg!(any(test, shuttle)) {
    4
} else {
    16 << 10
};
/// Lines in the first part; each further part has as many as all before it.
const FIRST_LINES: usize = if cfg!(any(test, shuttle)) { 8 } else { 16 << 10 };
const PARTS: usize = 24;
/// Of so many notes one looks whether there are lines enough.
const SAMPLE: u64 = if cfg!(any(test, shuttle)) { 2 } else { 1 << 12 };
/// Of the leaves whose spans were sampled last the middle one tells how wide a granule is.
const SPANS: usize = if cfg!(shuttle) { 1 } else { 9 };
/// Of two leaves that want one place each is noted by one of so many lookups: who writes, takes the line from everybody else.
const CONTENDED: u64 = 8;

const BEFORE: usize = 0;
const WITHIN: usize = 3;

/// The golden section of all words: what it is multiplied with is spread evenly, rows of numbers and rows of such rows (Knuth 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A leaf, and the bounds of its keys: above `low`, and not above `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    pub leaf: Link,
    pub low: u64,
    pub high: u64,
}

impl Hint {
    #[inline]
    fn is_of(&self, key: u64) -> bool {
        self.low < key && key <= self.high
    }

    /// Of two that do, one is old.
    fn overlaps(&self, other: &Hint) -> bool {
        self.low < other.high && other.low < self.high
    }
}

/// What a line says of a key.
pub enum Told {
    /// There are no hints, or none in the key's line.
    Nothing,
    /// The leaf that covers it, it says.
    Leaf(Hint),
    /// Leaves that do not.
    Others,
}

/// How keys are parted, and into how many lines: shift and binary logarithm in one word. Zero: there are no lines.
#[derive(Clone, Copy)]
struct Geometry(u64);

impl Geometry {
    fn new(shift: u8, lines: usize) -> Geometry {
        Geometry(u64::from(shift) << 8 | u64::from(lines.ilog2()))
    }

    #[inline]
    fn lines(self) -> usize {
        1 << (self.0 & 0xff)
    }

    #[inline]
    fn shift(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline]
    fn granule(self, key: u64) -> u64 {
        key >> self.shift()
    }

    #[inline]
    fn line(self, key: u64) -> usize {
        (self.granule(key).wrapping_mul(GOLDEN) >> (u64::from(u64::BITS) - (self.0 & 0xff))) as usize
    }
}

/// Binary logarithms of leaves' spans.
#[derive(Default)]
struct Spans {
    last: [u8; SPANS],
    seen: usize,
}

impl Spans {
    /// With one more, the middle one of as many as it takes.
    fn middle_with(&mut self, span: u64) -> Option<u8> {
        self.last[self.seen % SPANS] = span.max(1).ilog2() as u8;
        self.seen += 1;
        let mut sorted = self.last;
        sorted.sort_unstable();
        (self.seen >= SPANS).then_some(sorted[SPANS / 2])
    }
}

pub struct Hints {
    parts: OnceLock<Box<[OnceLock<Words>; PARTS]>>,
    geometry: AtomicU64,
    growth: Mutex<Spans>,
}

impl Hints {
    pub fn new() -> Hints {
        Hints { parts: OnceLock::new(), geometry: AtomicU64::new(0), growth: Mutex::new(Spans::default()) }
    }

    #[inline]
    fn geometry(&self) -> Option<Geometry> {
        let word = self.geometry.load(Acquire);
        (word != 0).then_some(Geometry(word))
    }

    /// The line of a key's granule.
    #[inline]
    fn line(&self, geometry: Geometry, key: u64) -> &[AtomicU64] {
        let line = geometry.line(key);
        let (part, first) = match line / FIRST_LINES {
            0 => (0, 0),
            doubled => (1 + doubled.ilog2() as usize, FIRST_LINES << doubled.ilog2()),
        };
        let parts = self.parts.get().expect("geometry is stored behind the first part");
        let words = parts[part].get().expect("geometry is stored behind its last part");
        &words[(line - first) * LINE_WORDS..][..LINE_WORDS]
    }

    /// Starts loading the line of a key; false if there are no hints.
    #[inline]
    pub fn load(&self, key: u64) -> bool {
        let Some(geometry) = self.geometry() else { return false };
        prefetch(&self.line(geometry, key)[0]);
        true
    }

    #[inline]
    pub fn look(&self, key: u64) -> Told {
        let Some(geometry) = self.geometry() else { return Told::Nothing };
        let line = self.line(geometry, key);
        let mut told = Told::Nothing;
        for hint in [BEFORE, WITHIN].into_iter().filter_map(|at| read(line, at)) {
            if hint.is_of(key) {
                return Told::Leaf(hint);
            }
            told = Told::Others;
        }
        told
    }

    /// Notes the leaf of a key, in a tree of so many leaves. `take` is asked for memory.
    pub fn note(&self, key: u64, hint: Hint, leaves: usize, take: impl Fn(u64) -> bool) {
        let lot = lot_of(key);
        if leaves >= LEAVES_MIN && lot.is_multiple_of(SAMPLE) {
            self.look_after(hint.high - hint.low, leaves, take);
        }
        let Some(geometry) = self.geometry() else { return };
        let line = self.line(geometry, key);
        let (at, beside) = match geometry.granule(hint.low + 1) == geometry.granule(key) {
            true => (WITHIN, BEFORE),
            false => (BEFORE, WITHIN),
        };
        if read(line, beside).is_some_and(|old| old.overlaps(&hint)) {
            line[beside].store(Link::NONE.word(), Release);
        }
        let is_other = |old: &Hint| old.leaf != hint.leaf && !old.overlaps(&hint);
        match read(line, at) {
            Some(old) if old == hint => {}
            Some(old) if is_other(&old) && !(lot / SAMPLE).is_multiple_of(CONTENDED) => {}
            _ => write(line, at, hint),
        }
    }

    /// More lines, where there are too few and there is memory for them; other granules, where they no longer fit the leaves. A leaf of this span was met.
    fn look_after(&self, span: u64, leaves: usize, take: impl Fn(u64) -> bool) {
        let Some(mut spans) = self.growth.try_lock() else { return };
        let Some(shift) = spans.middle_with(span) else { return };
        let before = self.geometry();
        let mut lines = before.map_or(0, Geometry::lines);
        if is_short(lines, leaves) {
            lines = self.add_lines(lines, leaves, take);
        }
        let fits = |geometry: Geometry| geometry.lines() == lines && geometry.shift().abs_diff(shift) <= 1;
        if lines > 0 && !before.is_some_and(fits) {
            self.geometry.store(Geometry::new(shift, lines).0, Release);
        }
    }

    /// How many there are then.
    fn add_lines(&self, mut lines: usize, leaves: usize, take: impl Fn(u64) -> bool) -> usize {
        let parts = self.parts.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        for part in parts.iter().filter(|part| part.get().is_none()) {
            let more = lines.max(FIRST_LINES);
            if !is_short(lines, leaves) || !take((more * LINE_WORDS * 8) as u64) {
                break;
            }
            let words = Words::zeroed(more * LINE_WORDS);
            words.advise_huge();
            part.set(words).unwrap_or_else(|_| unreachable!("invariant: parts are made under the growth lock"));
            lines += more;
        }
        lines
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn memory_bytes(&self) -> usize {
        self.geometry().map_or(0, |geometry| geometry.lines() * LINE_WORDS * 8)
    }
}

/// A number of 24 bits that says nothing of where the key is.
#[inline]
pub fn lot_of(key: u64) -> u64 {
    key.wrapping_mul(GOLDEN) >> 40
}

#[inline]
fn read(line: &[AtomicU64], at: usize) -> Option<Hint> {
    let leaf = Link::of_word(line[at].load(Acquire));
    (!leaf.is_none()).then(|| Hint { leaf, low: line[at + 1].load(Relaxed), high: line[at + 2].load(Relaxed) })
}

fn write(line: &[AtomicU64], at: usize, hint: Hint) {
    line[at + 1].store(hint.low, Relaxed);
    line[at + 2].store(hint.high, Relaxed);
    line[at].store(hint.leaf.word(), Release);
}

/// A leaf has up to two granules, each of which wants a line; with 1.7 lines a leaf of full ones nearly all find theirs, with 1.5 four of five.
fn is_short(lines: usize, leaves: usize) -> bool {
    4 * lines < 7 * leaves
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Leaves of a span, one behind another.
    fn hint_of(key: u64, span: u64) -> Hint {
        let low = (key - 1) / span * span;
        Hint { leaf: Link::of_word(1 + low / span), low, high: low + span }
    }

    fn is_told(hints: &Hints, key: u64) -> bool {
        matches!(hints.look(key), Told::Leaf(_))
    }

    #[test]
    fn what_was_noted_of_one_key_is_told_of_its_neighbours() {
        for span in [60, 64, 100, 127, 1 << 40] {
            let (hints, leaves) = (Hints::new(), 1000);
            let keys = || (0..leaves * 4).map(|i| 1 + i * span / 4);
            for _ in 0..20 {
                keys().for_each(|key| hints.note(key, hint_of(key, span), leaves as usize, |_| true));
            }
            let neighbours = keys().map(|key| key + span / 7);
            neighbours.clone().for_each(|key| match hints.look(key) {
                Told::Leaf(hint) => assert_eq!(hint, hint_of(key, span), "key {key}"),
                Told::Nothing | Told::Others => {}
            });
            let told = neighbours.filter(|&key| is_told(&hints, key)).count();
            assert!(told * 100 > 4 * leaves as usize * 85, "{told} of {} keys, span {span}", leaves * 4);
            assert!(hints.memory_bytes() <= 64 * 4 * leaves as usize);
        }
    }

    #[test]
    fn small_trees_have_no_hints_and_memory_is_asked_for() {
        let hints = Hints::new();
        let note = |leaves, grants: bool| {
            (0..SPANS).for_each(|_| hints.note(100, hint_of(100, 60), leaves, |_| grants));
            is_told(&hints, 100)
        };
        assert!(!note(LEAVES_MIN - 1, true), "it is not worth it");
        assert!(!note(LEAVES_MIN, false) && hints.memory_bytes() == 0, "there is no memory");
        assert!(note(LEAVES_MIN, true) && hints.memory_bytes() > 0);
        let before = hints.memory_bytes();
        assert!(note(100 * LEAVES_MIN, false) && hints.memory_bytes() == before, "what is there stays of use");
        assert!(note(100 * LEAVES_MIN, true) && hints.memory_bytes() > 30 * before, "it grows as the tree does");
    }

    /// A leaf splits within a granule; its halves are merged again.
    #[test]
    fn of_hints_that_overlap_the_old_one_goes() {
        let hints = Hints::new();
        let whole = Hint { leaf: Link::of_word(1), low: 64, high: 190 };
        let [left, right] = [Hint { high: 140, ..whole }, Hint { leaf: Link::of_word(2), low: 140, high: 190 }];
        (0..SPANS).for_each(|_| hints.note(150, whole, LEAVES_MIN, |_| true));
        let told = |key| match hints.look(key) {
            Told::Leaf(hint) => Some(hint),
            Told::Nothing | Told::Others => None,
        };
        assert_eq!((told(130), told(150)), (Some(whole), Some(whole)));
        hints.note(150, right, LEAVES_MIN, |_| true);
        assert_eq!((told(130), told(150)), (None, Some(right)));
        hints.note(130, left, LEAVES_MIN, |_| true);
        assert_eq!((told(130), told(150)), (Some(left), Some(right)));
        hints.note(150, whole, LEAVES_MIN, |_| true);
        assert_eq!((told(130), told(150)), (Some(whole), Some(whole)));
    }

    /// The first leaves that are met are others than most.
    #[test]
    fn granules_are_parted_anew_where_leaves_are_of_another_span() {
        let hints = Hints::new();
        let far = |i: u64| Hint { leaf: Link::of_word(9), low: i << 50, high: (i + 1) << 50 };
        (1..20).for_each(|i| hints.note((i << 50) + 1, far(i), 500, |_| true));
        let keys = || (0..2000).map(|i| 1 + i * 15);
        for _ in 0..20 {
            keys().for_each(|key| hints.note(key, hint_of(key, 60), 500, |_| true));
        }
        let told = keys().filter(|&key| is_told(&hints, key)).count();
        assert!(told > 1600, "{told} of 2000 keys");
    }
}
