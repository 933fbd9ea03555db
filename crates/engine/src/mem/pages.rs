//! Pages of 64 KiB: page number x page size + base is the address.
//!
//! | page's metadata (outside the page, volatile) | meaning |
//! |---|---|
//! | storage | the storage it belongs to, 0: free |
//! | generation | grows each time the page is given out; every logged operation names it |
//! | container, ordinal | which container of the storage, and the page's position there |
//! | slot words | width of its slots |
//! | allocated in | the epoch whose log says so |
//! | changed in, mark | what its published image lacks: `mark` |

use super::mark::{CLEAN, PageMark};
use super::space::Space;
use super::{Account, Budget, Claim, Kind, PAGE_BYTES};
use crate::ids::{Epoch, PageNo, StorageId};
use crate::planted::{self, Bug};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// What a page is, as allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageMeta {
    pub storage: StorageId,
    pub container: u16,
    pub slot_words: u16,
    pub ordinal: u32,
    pub generation: u32,
}

/// One page's metadata, readable without a latch: written only while nobody can reach the page (allocation, free after the last snapshot, recovery).
#[derive(Default)]
struct MetaWords {
    /// storage 32 | generation 32
    identity: AtomicU64,
    /// container 16 | slot words 16 | ordinal 32
    place: AtomicU64,
    /// The epoch in which the allocation was logged; MAX until it is; 0 after a recovery.
    allocated_in: AtomicU64,
    mark: PageMark,
}

struct FreePages {
    /// Never given out: from here on.
    next: u32,
    returned: Vec<PageNo>,
}

/// All pages of a database.
pub(crate) struct Pages {
    space: Space,
    meta: Box<[MetaWords]>,
    free: Mutex<FreePages>,
    budget: Arc<Budget>,
    used: AtomicU32,
}

impl Pages {
    pub fn new(limit_bytes: u64, huge: bool, budget: Arc<Budget>) -> io::Result<Pages> {
        let space = Space::reserve(limit_bytes, huge)?;
        let count = (space.words() / PAGE_WORDS).min(1 << 28);
        let meta = std::iter::repeat_with(MetaWords::default).take(count).collect();
        let free = Mutex::new(FreePages { next: 0, returned: Vec::new() });
        Ok(Pages { space, meta, free, budget, used: AtomicU32::new(0) })
    }

    /// Words `at..at + count` of a page.
    #[inline]
    pub fn words(&self, page: PageNo, at: usize, count: usize) -> &[AtomicU64] {
        debug_assert!(at + count <= PAGE_WORDS);
        self.space.slice(page.0 as usize * PAGE_WORDS + at, count)
    }

    /// Takes a free page and gives it a new generation. `None`: the memory limit is reached. Its words are zero.
    pub fn allocate(
        &self,
        storage: StorageId,
        container: u16,
        slot_words: u16,
        ordinal: u32,
    ) -> Option<(PageNo, PageMeta)> {
        if !self.budget.take(Kind::Pages, PAGE_BYTES as u64, Claim::Growth) {
            return None;
        }
        let mut free = self.free.lock();
        let page = match free.returned.pop() {
            Some(page) => page,
            None if (free.next as usize) < self.meta.len() => {
                free.next += 1;
                PageNo(free.next - 1)
            }
            None => {
                self.budget.give(Kind::Pages, PAGE_BYTES as u64);
                return None;
            }
        };
        let kept = planted::is(Bug::KeepGeneration) && self.generation(page) > 0;
        let generation = self.generation(page) + u32::from(!kept);
        let meta = PageMeta { storage, container, slot_words, ordinal, generation };
        self.set_allocated_in(page, Epoch(u64::MAX));
        self.meta[page.0 as usize].mark.forget();
        self.set_meta(page, &meta);
        self.used.fetch_add(1, Ordering::Relaxed);
        Some((page, meta))
    }

    /// Returns a page. Nothing may reach it any more. Its generation stays, its words become zero.
    pub fn free(&self, page: PageNo) {
        self.forget(page);
        self.free.lock().returned.push(page);
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.budget.give(Kind::Pages, PAGE_BYTES as u64);
    }

    pub fn generation(&self, page: PageNo) -> u32 {
        self.meta[page.0 as usize].identity.load(Ordering::Acquire) as u32
    }

    /// Where the page's metadata begins, for who wants to start loading it. None of a page that this database cannot have: who loads ahead was
    /// not checked yet.
    #[inline]
    pub fn meta_word(&self, page: PageNo) -> Option<&AtomicU64> {
        self.meta.get(page.0 as usize).map(|meta| &meta.identity)
    }

    /// The page's metadata; `None` if it is free.
    pub fn meta(&self, page: PageNo) -> Option<PageMeta> {
        let meta = self.meta.get(page.0 as usize)?;
        let identity = meta.identity.load(Ordering::Acquire);
        let place = meta.place.load(Ordering::Relaxed);
        (identity >> 32 != 0).then_some(PageMeta {
            storage: StorageId((identity >> 32) as u32),
            generation: identity as u32,
            container: (place >> 48) as u16,
            slot_words: (place >> 32) as u16,
            ordinal: place as u32,
        })
    }

    /// The epoch in which the page's allocation was logged: MAX while it is not.
    pub fn allocated_in(&self, page: PageNo) -> Epoch {
        Epoch(self.meta[page.0 as usize].allocated_in.load(Ordering::Acquire))
    }

    pub fn set_allocated_in(&self, page: PageNo, epoch: Epoch) {
        self.meta[page.0 as usize].allocated_in.store(epoch.0, Ordering::Release);
    }

    /// A change of `epoch` is being installed in the page: between announce and leave, or by a recovery.
    #[inline]
    pub fn note_change(&self, page: PageNo, epoch: Epoch) {
        self.meta[page.0 as usize].mark.note_change(epoch.0);
    }

    /// The first epoch whose changes of the page its published image may lack; `None`: it lacks none.
    pub fn mark(&self, page: PageNo) -> Option<Epoch> {
        epoch_of(self.meta[page.0 as usize].mark.lowest())
    }

    /// The mark that remains if an image as of the end of `covered` is published.
    pub fn mark_after(&self, page: PageNo, covered: Epoch) -> Option<Epoch> {
        epoch_of(self.meta[page.0 as usize].mark.after(covered.0))
    }

    /// The page's image as of the end of `covered` is in force. One thread at a time.
    pub fn publish(&self, page: PageNo, covered: Epoch) {
        self.meta[page.0 as usize].mark.publish(covered.0);
    }

    /// Pages whose published image lacks something.
    pub fn dirty(&self) -> usize {
        (0..self.high_water()).map(PageNo).filter(|&p| self.meta(p).is_some() && self.mark(p).is_some()).count()
    }

    fn set_meta(&self, page: PageNo, meta: &PageMeta) {
        let words = &self.meta[page.0 as usize];
        let place = u64::from(meta.container) << 48 | u64::from(meta.slot_words) << 32 | u64::from(meta.ordinal);
        words.place.store(place, Ordering::Relaxed);
        let identity = u64::from(meta.storage.0) << 32 | u64::from(meta.generation);
        words.identity.store(identity, Ordering::Release);
    }

    /// Recovery: the page was last given out with this metadata (or only its generation is known, when it is free).
    /// False if the page lies beyond the memory limit.
    pub fn restore(&self, page: PageNo, generation: u32, meta: Option<&PageMeta>) -> bool {
        if page.0 as usize >= self.meta.len() {
            return false;
        }
        match meta {
            Some(meta) => self.set_meta(page, meta),
            None => self.meta[page.0 as usize].identity.store(u64::from(generation), Ordering::Release),
        }
        let mut free = self.free.lock();
        free.next = free.next.max(page.0 + 1);
        true
    }

    /// Empties a page that nothing can reach: only its generation stays.
    pub fn forget(&self, page: PageNo) {
        self.space.discard(page.0 as usize * PAGE_WORDS, PAGE_WORDS);
        let generation = self.generation(page);
        self.meta[page.0 as usize].identity.store(u64::from(generation), Ordering::Release);
    }

    /// Recovery, after every `restore`: pages below the highest that belong to nothing are free. False if the pages in use
    /// exceed the memory limit.
    pub fn finish_restore(&self) -> bool {
        let mut free = self.free.lock();
        free.returned = (0..free.next).rev().map(PageNo).filter(|&p| self.meta(p).is_none()).collect();
        let used = free.next - free.returned.len() as u32;
        self.used.store(used, Ordering::Relaxed);
        self.budget.take(Kind::Pages, u64::from(used) * PAGE_BYTES as u64, Claim::Finish)
    }

    /// Pages ever given out: every page in use is below this.
    pub fn high_water(&self) -> u32 {
        self.free.lock().next
    }

    /// For what is kept of pages and slots beside them.
    pub fn account(&self) -> Account {
        Account::new(&self.budget, Kind::Tables)
    }

    /// Where their memory lies.
    pub fn addresses(&self) -> Range<usize> {
        self.space.addresses()
    }

    /// Bytes of metadata, for every page that the limit allows.
    pub fn metadata_bytes(&self) -> u64 {
        (self.meta.len() * size_of::<MetaWords>()) as u64
    }

    pub fn used_bytes(&self) -> u64 {
        u64::from(self.used.load(Ordering::Relaxed)) * PAGE_BYTES as u64
    }
}

fn epoch_of(mark: u64) -> Option<Epoch> {
    (mark != CLEAN).then_some(Epoch(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(limit: u64) -> Pages {
        Pages::new(limit, false, Arc::new(Budget::new(limit))).expect("a small reservation")
    }

    #[test]
    fn a_freed_page_comes_back_zero_with_a_larger_generation() {
        let pages = pages(2 << 20);
        let (page, first) = pages.allocate(StorageId(7), 0, 8, 0).expect("room");
        pages.words(page, 5, 1)[0].store(99, Ordering::Relaxed);
        pages.free(page);
        assert_eq!(pages.meta(page), None);
        let (again, second) = pages.allocate(StorageId(8), 1, 16, 3).expect("room");
        assert_eq!(again, page);
        assert_eq!(second.generation, first.generation + 1);
        assert_eq!(pages.meta(page), Some(second));
        assert_eq!(pages.words(page, 5, 1)[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn growth_is_refused_at_the_limit_and_possible_again_after_a_free() {
        let pages = pages(2 << 20);
        let taken: Vec<_> = std::iter::from_fn(|| pages.allocate(StorageId(1), 0, 8, 0)).collect();
        assert_eq!(taken.len(), 28, "an eighth is the reserve");
        pages.free(taken[3].0);
        assert!(pages.allocate(StorageId(1), 0, 8, 0).is_some());
        assert!(pages.allocate(StorageId(1), 0, 8, 0).is_none());
    }
}
