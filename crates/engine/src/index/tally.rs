//! How many entries are there? A count in eight lines, so that writers of different places seldom share one.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[repr(align(64))]
struct Stripe(AtomicU64);

pub struct Tally([Stripe; Tally::STRIPES]);

impl Tally {
    const STRIPES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

    pub fn new() -> Tally {
        Tally(std::array::from_fn(|_| Stripe(AtomicU64::new(0))))
    }

    pub fn add(&self, place: usize) {
        self.0[place % Self::STRIPES].0.fetch_add(1, Relaxed);
    }

    /// A stripe may go below zero, as an entry may be counted in one and discounted in another; the sum wraps back.
    pub fn subtract(&self, place: usize) {
        self.0[place % Self::STRIPES].0.fetch_sub(1, Relaxed);
    }

    /// Exact when nothing changes meanwhile.
    pub fn total(&self) -> usize {
        let sum = self.0.iter().fold(0u64, |sum, stripe| sum.wrapping_add(stripe.0.load(Relaxed)));
        sum.cast_signed().max(0) as usize
    }
}
