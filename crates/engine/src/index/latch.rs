//! Has this node changed since I looked? One word that is a version to readers and a latch to writers (OLFIT).
//!
//! 1. Odd while a writer holds the latch. Each write leaves it larger by two, so equal even readings before and after a
//!    copy prove the copy consistent.
//! 2. A writer takes the word by compare-and-swap (Acquire), fences (Release), stores relaxed, and stores the version
//!    (Release). A reader loads the version (Acquire), loads relaxed, fences (Acquire), loads the version again: a data
//!    word of a later write carries that write's odd version with it through the two fences.

use crate::sync::Spin;
use crate::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The version before a read; spins while a writer is inside.
#[inline]
pub fn begin_read(version: &AtomicU64) -> u64 {
    let mut spin = Spin::new();
    loop {
        let seen = version.load(Acquire);
        if seen & 1 == 0 {
            return seen;
        }
        spin.turn();
    }
}

/// As `begin_read`, without waiting: nothing while someone is inside.
#[inline]
pub fn try_begin_read(version: &AtomicU64) -> Option<u64> {
    let seen = version.load(Acquire);
    (seen & 1 == 0).then_some(seen)
}

/// Whether nothing was written since `begin_read` returned `seen`.
#[inline]
#[must_use]
pub fn end_read(version: &AtomicU64, seen: u64) -> bool {
    fence(Acquire);
    version.load(Relaxed) == seen
}

/// Takes the latch; returns the even version that it replaced, which `unlatch` wants back.
#[inline]
pub fn latch(version: &AtomicU64) -> u64 {
    let mut spin = Spin::new();
    loop {
        let seen = version.load(Relaxed);
        if seen & 1 == 0 && version.compare_exchange(seen, seen + 1, Acquire, Relaxed).is_ok() {
            fence(Release);
            return seen;
        }
        spin.turn();
    }
}

/// Takes the latch if nothing was written since `begin_read` returned `seen`, and nobody is inside: what was read stays true until `unlatch`.
#[inline]
#[must_use]
pub fn latch_unchanged(version: &AtomicU64, seen: u64) -> bool {
    let is_latched = version.compare_exchange(seen, seen + 1, Acquire, Relaxed).is_ok();
    if is_latched {
        fence(Release);
    }
    is_latched
}

/// Gives the latch back. An untouched node keeps its version, and its readers their copies.
#[inline]
pub fn unlatch(version: &AtomicU64, seen: u64, changed: bool) {
    version.store(if changed { seen + 2 } else { seen }, Release);
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    struct Pair {
        version: AtomicU64,
        words: [AtomicU64; 2],
    }

    fn write(pair: &Pair, value: u64) {
        let seen = latch(&pair.version);
        pair.words.iter().for_each(|word| word.store(value, Relaxed));
        unlatch(&pair.version, seen, true);
    }

    fn read(pair: &Pair) -> Option<[u64; 2]> {
        let seen = begin_read(&pair.version);
        let words = [pair.words[0].load(Relaxed), pair.words[1].load(Relaxed)];
        end_read(&pair.version, seen).then_some(words)
    }

    fn pair() -> Arc<Pair> {
        Arc::new(Pair { version: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    /// No copy that validates mixes two writes, and none is older than what happened before it.
    #[test]
    fn loom_validated_copies_are_consistent() {
        loom::model(|| {
            let pair = pair();
            let writer = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    write(&pair, 1);
                    write(&pair, 2);
                })
            };
            if let Some([first, second]) = read(&pair) {
                assert_eq!(first, second);
            }
            writer.join().expect("the writer does not panic");
            assert_eq!(read(&pair), Some([2, 2]));
        });
    }

    #[test]
    fn loom_writers_exclude_each_other() {
        loom::model(|| {
            let pair = pair();
            let add = |pair: &Pair| {
                let seen = latch(&pair.version);
                let sum = pair.words[0].load(Relaxed) + 1;
                pair.words[0].store(sum, Relaxed);
                unlatch(&pair.version, seen, true);
            };
            let other = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || add(&pair))
            };
            add(&pair);
            other.join().expect("the writer does not panic");
            assert_eq!(read(&pair), Some([2, 0]));
            assert_eq!(pair.version.load(Relaxed), 4);
        });
    }

    /// What was computed from a copy is written only if the copy is still true: no addition is lost.
    #[test]
    fn loom_a_latch_of_what_is_unchanged_loses_no_write() {
        loom::model(|| {
            let pair = pair();
            let add = |pair: &Pair| {
                let seen = begin_read(&pair.version);
                let sum = pair.words[0].load(Relaxed) + 1;
                if !latch_unchanged(&pair.version, seen) {
                    return 0;
                }
                pair.words.iter().for_each(|word| word.store(sum, Relaxed));
                unlatch(&pair.version, seen, true);
                1
            };
            let other = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || add(&pair))
            };
            let mine = add(&pair);
            let added = mine + other.join().expect("the other does not panic");
            assert!(added > 0, "one of them was first");
            assert_eq!(read(&pair), Some([added; 2]));
        });
    }

    #[test]
    fn loom_an_untouched_node_keeps_its_version() {
        loom::model(|| {
            let pair = pair();
            let other = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    let seen = latch(&pair.version);
                    unlatch(&pair.version, seen, false);
                })
            };
            let seen = begin_read(&pair.version);
            other.join().expect("the other does not panic");
            assert!(end_read(&pair.version, seen));
        });
    }
}
