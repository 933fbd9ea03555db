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

/// Gives the latch back. An untouched node keeps its version, and its readers their copies.
#[inline]
pub fn unlatch(version: &AtomicU64, seen: u64, changed: bool) {
    version.store(if changed { seen + 2 } else { seen }, Release);
}
