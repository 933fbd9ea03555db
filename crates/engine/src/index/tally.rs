//! How many entries are there? A count in sixteen lines, of which a thread writes one: writers share them only where there are more threads.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[repr(align(64))]
struct Stripe(AtomicU64);

pub struct Tally([Stripe; Tally::STRIPES]);

/// This thread's stripe of every tally. To a checker, whose threads are no threads, there is one.
fn stripe() -> usize {
    #[cfg(any(loom, shuttle))]
    return 0;
    #[cfg(not(any(loom, shuttle)))]
    {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        std::thread_local! {
            static STRIPE: usize = THREADS.fetch_add(1, Relaxed) as usize % Tally::STRIPES;
        }
        // A thread that is going away has none any more.
        STRIPE.try_with(|stripe| *stripe).unwrap_or(0)
    }
}

impl Tally {
    const STRIPES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

    pub fn new() -> Tally {
        Tally(std::array::from_fn(|_| Stripe(AtomicU64::new(0))))
    }

    pub fn add(&self) {
        self.0[stripe()].0.fetch_add(1, Relaxed);
    }

    /// A stripe may go below zero, as an entry may be counted by one thread and discounted by another; the sum wraps back.
    pub fn subtract(&self) {
        self.0[stripe()].0.fetch_sub(1, Relaxed);
    }

    /// Exact when nothing changes meanwhile.
    pub fn total(&self) -> usize {
        let sum = self.0.iter().fold(0u64, |sum, stripe| sum.wrapping_add(stripe.0.load(Relaxed)));
        sum.cast_signed().max(0) as usize
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_writes_one_line_and_the_sum_is_of_all() {
        let tally = Tally::new();
        std::thread::scope(|scope| {
            for _ in 0..Tally::STRIPES {
                scope.spawn(|| (0..100).for_each(|_| tally.add()));
            }
        });
        tally.subtract();
        assert_eq!(tally.total(), 100 * Tally::STRIPES - 1);
        let tally = Tally::new();
        (0..100).for_each(|_| tally.add());
        let written = tally.0.iter().filter(|stripe| stripe.0.load(Relaxed) != 0).count();
        assert_eq!(written, 1, "a thread writes the lines of others");
    }
}
