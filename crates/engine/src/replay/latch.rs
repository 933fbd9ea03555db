//! Who changes a page while the log is replayed? One word a page: whether it is latched, and whether anything was written.
//!
//! 1. The latch is taken with an acquire and given back with a release: whoever has it sees all that was written under it before, by plain loads.
//! 2. *Touched* is set by giving it back, and never cleared. So who finds it unset finds the page as it was made.

use crate::sync::Spin;
use crate::sync::atomic::{AtomicU32, Ordering::*};

const LATCHED: u32 = 1;
const TOUCHED: u32 = 2;

pub(super) struct PageLatch(AtomicU32);

/// A page under its latch.
pub(super) struct Held<'a> {
    latch: &'a PageLatch,
    pub was_touched: bool,
}

impl PageLatch {
    pub fn new() -> PageLatch {
        PageLatch(AtomicU32::new(0))
    }

    pub fn hold(&self) -> Held<'_> {
        let mut spin = Spin::new();
        loop {
            let seen = self.0.load(Relaxed);
            if seen & LATCHED == 0 && self.0.compare_exchange(seen, seen | LATCHED, Acquire, Relaxed).is_ok() {
                return Held { latch: self, was_touched: seen & TOUCHED != 0 };
            }
            spin.turn();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.latch.0.store(TOUCHED, Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicU64;
    use crate::sync::{Arc, thread};

    struct Page {
        latch: PageLatch,
        words: [AtomicU64; 2],
    }

    fn write(page: &Page, with: impl Fn(u64) -> u64) {
        page.words.iter().for_each(|word| word.store(with(word.load(Relaxed)), Relaxed));
    }

    /// As `load_image` and `apply` do: a copy onto a page that nothing has touched, else bits that differ.
    fn load_image(page: &Page) {
        let held = page.latch.hold();
        match held.was_touched {
            true => write(page, |word| word ^ 1),
            false => write(page, |_| 1),
        }
    }

    fn apply(page: &Page, delta: u64) {
        let _held = page.latch.hold();
        write(page, |word| word ^ delta);
    }

    #[test]
    fn loom_an_image_and_deltas_give_the_same_in_any_order() {
        loom::model(|| {
            let words = [AtomicU64::new(0), AtomicU64::new(0)];
            let page = Arc::new(Page { latch: PageLatch::new(), words });
            let other = {
                let page = Arc::clone(&page);
                thread::spawn(move || [2, 4].into_iter().for_each(|delta| apply(&page, delta)))
            };
            load_image(&page);
            other.join().expect("the other does not panic");
            let _held = page.latch.hold();
            assert_eq!([0, 1].map(|at| page.words[at].load(Relaxed)), [7, 7]);
        });
    }
}
