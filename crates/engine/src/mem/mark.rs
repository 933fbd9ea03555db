//! Which part of the log does a page still need? Two words per page, that installers and one publisher share without a latch.
//!
//! | word | meaning |
//! |---|---|
//! | changed in | the largest epoch with an installed change of the page |
//! | mark | the first epoch whose change the page's *published* image may lack; [`CLEAN`]: it lacks none |
//!
//! ```text
//! installer of epoch e, between announce and leave      publisher of an image as of the end of s, once it is durable
//!   changed_in = max(changed_in, e)                       mark = CLEAN
//!   mark       = min(mark, e)                             if changed_in > s: mark = min(mark, s + 1)
//! ```
//!
//! All accesses are sequentially consistent, so they have one order. Each side stores its own word before it looks at the other's, and
//! looks before it writes, so that a page costs one shared write per epoch.
//!
//! 1. An installer that is under way while an image of s is published has an epoch above s: whoever installed in s or before had left when s
//!    became durable, and an image is as of a durable epoch.
//! 2. After both, mark <= e. If the installer looked at the mark after CLEAN was stored, it lowered it to e. Otherwise its look came
//!    before CLEAN, hence its `changed_in` did too (its own store, or the larger value that kept it from storing), and the publisher, who
//!    looks after CLEAN, finds a change above s and stores s + 1 <= e.
//! 3. `changed_in` never falls, not even when the page is freed and given out again: a publisher of the former life's image then finds
//!    the new life's epoch, which is above its s, and leaves a mark too low, which only keeps more log.
//! 4. A mark that is seen after epoch d became durable is at or below every change up to d that the published image lacks.

use crate::planted::{self, Bug};
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Later than every epoch.
pub(crate) const CLEAN: u64 = u64::MAX;

pub(crate) struct PageMark {
    changed_in: AtomicU64,
    mark: AtomicU64,
}

impl Default for PageMark {
    fn default() -> PageMark {
        PageMark { changed_in: AtomicU64::new(0), mark: AtomicU64::new(CLEAN) }
    }
}

impl PageMark {
    /// A change of `epoch` is being installed. Only while the epoch is held open.
    #[inline]
    pub fn note_change(&self, epoch: u64) {
        if self.changed_in.load(SeqCst) < epoch {
            self.changed_in.fetch_max(epoch, SeqCst);
        }
        if self.mark.load(SeqCst) > epoch && !planted::is(Bug::ForgetMark) {
            self.mark.fetch_min(epoch, SeqCst);
        }
    }

    pub fn lowest(&self) -> u64 {
        self.mark.load(SeqCst)
    }

    /// The mark that publishing an image as of the end of `covered` would leave, as far as the page was changed until now.
    pub fn after(&self, covered: u64) -> u64 {
        if self.changed_in.load(SeqCst) > covered { covered + 1 } else { CLEAN }
    }

    /// An image as of the end of `covered` is in force. One thread at a time.
    pub fn publish(&self, covered: u64) {
        self.mark.store(CLEAN, SeqCst);
        if self.changed_in.load(SeqCst) > covered && !planted::is(Bug::ForgetLaterChange) {
            self.mark.fetch_min(covered + 1, SeqCst);
        }
    }

    /// The page is about to be given out: nothing of it is in the log, and its former life needs none.
    pub fn forget(&self) {
        self.mark.store(CLEAN, SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_the_oldest_change_that_the_image_lacks() {
        let mark = PageMark::default();
        assert_eq!(mark.lowest(), CLEAN);
        mark.note_change(7);
        mark.note_change(9);
        mark.note_change(8);
        assert_eq!((mark.lowest(), mark.after(8), mark.after(9)), (7, 9, CLEAN));
        mark.publish(8);
        assert_eq!(mark.lowest(), 9);
        mark.publish(9);
        assert_eq!(mark.lowest(), CLEAN);
        mark.note_change(12);
        assert_eq!(mark.lowest(), 12);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    /// Installers of `epochs` beside a publisher of an image as of 1: the mark ends at or below the first of them.
    fn race(epochs: [u64; 2]) {
        let mark = Arc::new(PageMark::default());
        mark.note_change(1);
        let installers = epochs.map(|epoch| {
            let mark = Arc::clone(&mark);
            thread::spawn(move || mark.note_change(epoch))
        });
        mark.publish(1);
        installers.into_iter().for_each(|i| i.join().expect("an installer does not panic"));
        let first = epochs.into_iter().min().expect("there are two");
        assert!(mark.lowest() <= first, "{} is above {first}", mark.lowest());
    }

    #[cfg(loom)]
    #[test]
    fn loom_no_change_beside_a_publication_is_lost() {
        loom::model(|| race([2, 2]));
        loom::model(|| race([3, 2]));
    }

    #[cfg(shuttle)]
    #[test]
    fn shuttle_no_change_beside_a_publication_is_lost() {
        shuttle::check_random(|| race([2, 2]), 5_000);
        shuttle::check_random(|| race([3, 2]), 5_000);
    }
}
