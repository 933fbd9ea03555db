//! Where do a table's rows live? Containers of equal slots over pages, and size-classed containers for long values.
//!
//! | container | slots hold |
//! |---|---|
//! | 0 | records, with the slot header (further column groups will follow as 1..) |
//! | 16 + class | long values, class c in slots of 64 << c bytes |
//!
//! 1. A container's pages are known by ordinal; slots per page are fixed, so a row id names page and slot directly.
//! 2. A slot is given out once, and again only after `give_slots`: garbage collection gives it when no snapshot can see its row. Threads take and
//!    give batches (`txn::slots`).
//! 3. Slots at or above a container's high-water mark were never given out and are zero.
//! 4. A bulk load fills a storage that no schema names in many commits. Its rows have no versions, and are visible from the load's own commit
//!    on: to snapshots at or above `visible_from`. Below their first commit lies the zero of a slot that was never used.

mod slot;

pub(crate) use slot::{Head, Latched, Owned, SessionNo, Slot, VOLATILE_WORDS};

use crate::ids::{Cts, PageNo, RowId, StorageId};
#[cfg(not(any(loom, shuttle)))]
use crate::mem::prefetch::{prefetch, prefetch_write};
use crate::mem::{Account, Claim, PAGE_WORDS, PageMeta, Pages};
use crate::schema::{LIVE, Picks};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const PRIMARY: u16 = 0;
const VALUES: u16 = 16;
const CLASSES: usize = 10;
/// Words of a value slot before its payload: volatile part, cts, flags.
const VALUE_HEADER_WORDS: usize = VOLATILE_WORDS + 2;
/// The longest value that one slot holds; longer ones are cut into pieces of this length.
pub(crate) const PIECE_BYTES: usize = (64 << (CLASSES - 1)) - VALUE_HEADER_WORDS * 8;

/// Slots that a thread takes at a time, at most.
pub(crate) const BATCH_SLOTS_MAX: usize = 64;
#[cfg(not(any(loom, shuttle)))]
const LINE_WORDS: usize = 8;
/// The rest of a long slot is left to the processor, which sees that its lines follow one another.
#[cfg(not(any(loom, shuttle)))]
const PREFETCHED_LINES_MAX: usize = 6;

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoSlot {
    /// A page has to be allocated (and logged) first: `Container::add_page`.
    NeedsPage,
}

#[derive(Default)]
struct Allocation {
    free: Vec<RowId>,
    /// The page that the last new slot was of, with its ordinal: asking the list of pages for each would write a line that all share.
    page: Option<(u64, PageNo)>,
}

/// Where a container's memory is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ContainerMemory {
    pub page_bytes: u64,
    /// Of those.
    pub free_slot_bytes: u64,
    pub list_bytes: u64,
    /// What the lists may come to take.
    pub list_taken_bytes: u64,
}

/// What a recovery finds in some pages of a container.
#[derive(Default)]
pub(crate) struct Survey {
    /// Slots that are not live, in their order, those never given out included.
    free: Vec<RowId>,
    /// One above the position of the last slot that was ever given out; 0 without one.
    used: u64,
    pub live: u64,
}

/// Slots of one width over a list of pages.
pub(crate) struct Container {
    pub storage: StorageId,
    pub number: u16,
    slot_words: usize,
    slots_per_page: u64,
    pages: RwLock<Vec<PageNo>>,
    allocation: Mutex<Allocation>,
    /// Held while a page is added, so that an ordinal is logged once.
    pub growth: Mutex<()>,
    /// Slots ever given out, counted from the first page's first slot.
    high_water: AtomicU64,
    /// The commit of the bulk load that filled it, MAX until then; 0: none did, since the last restart.
    visible_from: AtomicU64,
    space: Arc<Pages>,
    /// The lists of pages and free slots.
    account: Account,
}

impl Container {
    pub fn new(space: Arc<Pages>, storage: StorageId, number: u16, persistent_words: usize) -> Container {
        let slot_words = persistent_words + VOLATILE_WORDS;
        Container {
            account: space.account(),
            storage,
            number,
            slot_words,
            slots_per_page: ((PAGE_WORDS / slot_words) as u64).min(1 << 12),
            pages: RwLock::default(),
            allocation: Mutex::default(),
            growth: Mutex::default(),
            high_water: AtomicU64::new(0),
            visible_from: AtomicU64::new(0),
            space,
        }
    }

    /// Words of a slot's persistent part.
    pub fn persistent_words(&self) -> usize {
        self.slot_words - VOLATILE_WORDS
    }

    pub fn slot_bytes(&self) -> usize {
        self.slot_words * 8
    }

    pub fn slots_per_page(&self) -> u64 {
        self.slots_per_page
    }

    #[inline]
    pub fn slot(&self, row: RowId) -> Slot<'_> {
        let slot = u64::from(row.slot());
        assert!(slot < self.slots_per_page, "invariant: a row id names a slot of its container");
        Slot::new(self.space.words(row.page(), slot as usize * self.slot_words, self.slot_words))
    }

    /// Starts loading the slot's own words and these of its persistent part.
    #[inline]
    pub fn prefetch(&self, row: RowId, picks: Option<&Picks>) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let start = usize::from(row.slot()) * self.slot_words;
            let words = self.space.words(row.page(), start, self.slot_words);
            prefetch(&words[0]);
            let picked = picks.into_iter().flat_map(|picks| picks.few.iter().chain(&picks.rest));
            picked.for_each(|&at| prefetch(&words[VOLATILE_WORDS + usize::from(at)]));
        }
        #[cfg(any(loom, shuttle))]
        let _ = (row, picks);
    }

    /// Starts loading the slot's lines.
    #[inline]
    pub fn prefetch_all(&self, row: RowId) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let start = usize::from(row.slot()) * self.slot_words;
            let words = self.space.words(row.page(), start, self.slot_words);
            words.iter().step_by(LINE_WORDS).take(PREFETCHED_LINES_MAX).for_each(prefetch);
        }
        #[cfg(any(loom, shuttle))]
        let _ = row;
    }

    /// As `prefetch`, for who will write the slot's own words and these.
    #[inline]
    pub fn prefetch_write(&self, row: RowId, written: &[u16], read: &Picks) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let start = usize::from(row.slot()) * self.slot_words;
            let words = self.space.words(row.page(), start, self.slot_words);
            prefetch_write(&words[0]);
            written.iter().for_each(|&at| prefetch_write(&words[VOLATILE_WORDS + usize::from(at)]));
        }
        #[cfg(any(loom, shuttle))]
        let _ = written;
        self.prefetch(row, Some(read));
    }

    /// Whether the id names a slot of this container.
    pub fn holds(&self, row: RowId) -> bool {
        let page = (row <= RowId::MAX).then(|| self.space.meta(row.page())).flatten();
        u64::from(row.slot()) < self.slots_per_page
            && page.is_some_and(|meta| meta.storage == self.storage && meta.container == self.number)
    }

    /// Slots that are taken at a time.
    #[inline]
    pub fn batch_slots(&self) -> usize {
        (self.high_water.load(Ordering::Relaxed) as usize / 8).clamp(1, BATCH_SLOTS_MAX)
    }

    /// Slots for new rows, the next one last: freed ones, else the next of the last page. At least one.
    pub fn take_slots(&self, slots: &mut Vec<RowId>) -> Result<(), NoSlot> {
        let most = self.batch_slots();
        let mut allocation = self.allocation.lock();
        if !allocation.free.is_empty() {
            let kept = allocation.free.len().saturating_sub(most);
            slots.extend(allocation.free.drain(kept..));
            return Ok(());
        }
        let next = self.high_water.load(Ordering::Relaxed);
        let (ordinal, slot) = (next / self.slots_per_page, next % self.slots_per_page);
        let page = match allocation.page {
            Some((at, page)) if at == ordinal => page,
            _ => *self.pages.read().get(ordinal as usize).ok_or(NoSlot::NeedsPage)?,
        };
        allocation.page = Some((ordinal, page));
        let count = (most as u64).min(self.slots_per_page - slot);
        self.high_water.store(next + count, Ordering::Release);
        slots.extend((slot..slot + count).rev().map(|slot| RowId::new(page, slot as u16)));
        Ok(())
    }

    /// The slot at this position, if its page exists.
    pub fn nth(&self, position: u64) -> Option<RowId> {
        let pages = self.pages.read();
        let page = *pages.get((position / self.slots_per_page) as usize)?;
        Some(RowId::new(page, (position % self.slots_per_page) as u16))
    }

    /// The page at this position, and the position of its first slot.
    pub fn page_at(&self, position: u64) -> Option<(PageNo, u64)> {
        let ordinal = position / self.slots_per_page;
        let page = *self.pages.read().get(ordinal as usize)?;
        Some((page, ordinal * self.slots_per_page))
    }

    /// Takes back slots of rows that nobody can see, or that were not used.
    pub fn give_slots(&self, slots: impl ExactSizeIterator<Item = RowId>) {
        let free = &mut self.allocation.lock().free;
        if free.len() + slots.len() > free.capacity() {
            // By a quarter, so that it stays within what was taken with the pages.
            free.reserve_exact((free.len() / 4).max(16).max(slots.len()));
        }
        free.extend(slots);
    }

    /// Takes the memory of the lists that another page may lengthen: who deletes its rows can no longer be refused a place for their slots.
    pub fn take_page_lists(&self) -> bool {
        self.account.take(self.page_lists_bytes(), Claim::Growth)
    }

    /// Gives it back, where there was no page.
    pub fn give_page_lists(&self) {
        self.account.give(self.page_lists_bytes());
    }

    fn page_lists_bytes(&self) -> u64 {
        self.slots_per_page * (size_of::<RowId>() * 5 / 4) as u64 + 2 * size_of::<PageNo>() as u64
    }

    pub fn memory(&self) -> ContainerMemory {
        let allocation = self.allocation.lock();
        let pages = self.pages.read();
        ContainerMemory {
            page_bytes: pages.len() as u64 * PAGE_WORDS as u64 * 8,
            free_slot_bytes: allocation.free.len() as u64 * self.slot_words as u64 * 8,
            list_bytes: (allocation.free.capacity() * size_of::<RowId>()) as u64,
            list_taken_bytes: self.account.bytes(),
        }
    }

    /// Slots ever given out: a scan visits the positions below.
    pub fn high_water(&self) -> u64 {
        self.high_water.load(Ordering::Acquire)
    }

    /// Whether `take_slot` would need a page.
    pub fn is_full(&self) -> bool {
        let free = !self.allocation.lock().free.is_empty();
        !free && self.high_water() >= self.pages.read().len() as u64 * self.slots_per_page
    }

    /// Appends a page, which was allocated with `page_request` under the growth latch.
    pub fn add_page(&self, page: PageNo) {
        self.pages.write().push(page);
    }

    /// Appends a page all of whose slots are given out at once.
    pub fn add_page_given_out(&self, page: PageNo) {
        let mut pages = self.pages.write();
        pages.push(page);
        self.high_water.store(pages.len() as u64 * self.slots_per_page, Ordering::Release);
    }

    /// The snapshot from which on rows may be seen (module invariant 4).
    #[inline]
    pub fn visible_from(&self) -> Cts {
        // Relaxed: it was stored before the schema was that leads here.
        Cts(self.visible_from.load(Ordering::Relaxed))
    }

    /// Whether a chain may end above a snapshot.
    pub fn is_loaded(&self) -> bool {
        self.visible_from() != Cts::ZERO
    }

    pub fn pages(&self) -> Vec<PageNo> {
        self.pages.read().clone()
    }

    /// Recovery: looks through pages of this container, the first of which has that ordinal. No slot's timestamp may be above the
    /// durable `horizon`: the row that has one is the error.
    pub fn survey(&self, pages: &[PageNo], first_ordinal: u64, horizon: Cts) -> Result<Survey, (RowId, Cts)> {
        let mut survey = Survey::default();
        for (&page, ordinal) in pages.iter().zip(first_ordinal..) {
            let words = self.space.words(page, 0, PAGE_WORDS);
            for (slot, words) in words.chunks_exact(self.slot_words).take(self.slots_per_page as usize).enumerate() {
                let place = Slot::new(words);
                let row = RowId::new(page, slot as u16);
                let cts = Cts(place.load(0));
                if cts > horizon {
                    return Err((row, cts));
                }
                if cts != Cts::ZERO {
                    survey.used = ordinal * self.slots_per_page + slot as u64 + 1;
                }
                if place.load(1) & LIVE == 0 {
                    survey.free.push(row);
                } else {
                    survey.live += 1;
                }
            }
        }
        Ok(survey)
    }

    /// Recovery: takes the pages in order of ordinal, and of what was found in them, in the same order, the free slots: all that
    /// are not live.
    pub fn restore(&self, pages: Vec<PageNo>, surveys: Vec<Survey>) {
        let high_water = surveys.iter().map(|survey| survey.used).max().unwrap_or(0);
        let mut free: Vec<RowId> = surveys.into_iter().flat_map(|survey| survey.free).collect();
        // At the end are those that were never given out (module invariant 3).
        let never = pages.len() as u64 * self.slots_per_page - high_water;
        free.truncate(free.len().saturating_sub(never as usize));
        // The lowest is given out first.
        free.reverse();
        self.account.hold(pages.len() as u64 * self.page_lists_bytes(), Claim::Forced);
        *self.allocation.lock() = Allocation { free, page: None };
        *self.pages.write() = pages;
        self.high_water.store(high_water, Ordering::Release);
    }

    /// Whether a page with this metadata can belong here: a damaged log must not lead outside a slot.
    pub fn accepts(&self, meta: &PageMeta) -> bool {
        self.slot_words == usize::from(meta.slot_words)
    }

    /// What a new page of this container is allocated with.
    pub fn page_request(&self) -> (StorageId, u16, u16, u32) {
        (self.storage, self.number, self.slot_words as u16, self.pages.read().len() as u32)
    }
}

/// The number of the container for a long value (or piece) of this length.
pub(crate) fn container_for(bytes: usize) -> u16 {
    debug_assert!(bytes <= PIECE_BYTES);
    let slot = bytes + VALUE_HEADER_WORDS * 8;
    VALUES + (slot.next_power_of_two().max(64).trailing_zeros() - 6) as u16
}

/// All containers of one incarnation of a table.
pub(crate) struct Store {
    pub id: StorageId,
    pub primary: Container,
    values: Vec<Container>,
}

impl Store {
    pub fn new(space: &Arc<Pages>, id: StorageId, record_words: usize) -> Store {
        let value = |class: usize| {
            let words = (64usize << class) / 8 - VOLATILE_WORDS;
            Container::new(space.clone(), id, VALUES + class as u16, words)
        };
        Store {
            id,
            primary: Container::new(space.clone(), id, PRIMARY, record_words),
            values: (0..CLASSES).map(value).collect(),
        }
    }

    /// The container for a long value (or piece) of this length.
    pub fn values_for(&self, bytes: usize) -> &Container {
        &self.values[usize::from(container_for(bytes) - VALUES)]
    }

    /// The container of long values that a slot of this id belongs to, if it does.
    pub fn values_of(&self, id: RowId) -> Option<&Container> {
        let page = (id <= RowId::MAX).then(|| self.primary.space.meta(id.page())).flatten()?;
        let number = page.container.checked_sub(VALUES).filter(|_| page.storage == self.id)?;
        let container = self.values.get(usize::from(number))?;
        (u64::from(id.slot()) < container.slots_per_page).then_some(container)
    }

    pub fn container(&self, number: u16) -> Option<&Container> {
        match number {
            PRIMARY => Some(&self.primary),
            _ => self.values.get(usize::from(number.checked_sub(VALUES)?)),
        }
    }

    /// Rows are seen from this commit on; MAX while a bulk load goes on.
    pub fn set_visible_from(&self, cts: Cts) {
        self.containers().for_each(|container| container.visible_from.store(cts.0, Ordering::SeqCst));
    }

    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        std::iter::once(&self.primary).chain(&self.values)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.id.0)
    }
}
