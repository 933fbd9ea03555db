//! How do images and deltas become pages? Under a latch per page, an image as a copy and a delta as plain loads and stores.
//!
//! 1. A page's words are changed only under its latch. So nothing here needs an atomic read-modify-write, and what a batch of
//!    deltas touches can be fetched ahead: a locked instruction would wait for every miss before it.
//! 2. Onto a page that nothing has touched an image is copied; onto any other it is XORed, as deltas are. Both give the same.
//! 3. An operation is applied iff its generation is the page's last and its cts is above the image's S (module invariant 1).

use super::ReplayError;
use super::latch::PageLatch;
use super::prescan::{Final, Prescan, is_plausible};
use crate::checkpoint::{ImagePlace, Images};
use crate::ids::{Cts, Epoch, PageNo};
use crate::io::AlignedBuf;
use crate::log::{GroupRef, Scan, frames};
use crate::mem::prefetch::prefetch;
use crate::mem::{PAGE_WORDS, Pages};
use crate::planted::{self, Bug};
use crate::table::VOLATILE_WORDS;
use crate::txn::record::{self, BadRecord, Frame, Reader};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Operations whose words are fetched together.
const BATCH: usize = 64;

/// A page as replay meets it.
struct Slot {
    latch: PageLatch,
    generation: u32,
    /// Zero: the page is free, no operation on it is wanted.
    slot_words: u32,
    snapshot: Cts,
    /// The smallest epoch whose log a delta applied was in, and the largest of its commits.
    first_epoch: AtomicU64,
    last_epoch: AtomicU64,
}

/// Where images and operations go.
pub(super) struct Target<'a> {
    pages: &'a Pages,
    prescan: &'a Prescan,
    slots: Vec<Slot>,
}

/// What a thread keeps between pieces of work.
#[derive(Default)]
pub(super) struct Scratch {
    pub buffer: AlignedBuf,
    batch: Batch,
    pub deltas: u64,
}

/// Operations taken apart, waiting for their words.
#[derive(Default)]
struct Batch {
    operations: Vec<Pending>,
    /// Positions in the page, and what is XORed there.
    words: Vec<(u16, u64)>,
    #[cfg(feature = "planted")]
    is_repeated: bool,
}

#[derive(Clone, Copy)]
struct Pending {
    page: PageNo,
    /// Of the slot's cts word.
    stamp_at: u16,
    stamp: u64,
    /// Of the log that had it, and of its commit: a fragment is written earlier.
    logged: Epoch,
    committed: Epoch,
    /// Where its words end in the batch.
    end: u32,
}

impl<'a> Target<'a> {
    /// `pages` have their last generations.
    pub fn new(pages: &'a Pages, prescan: &'a Prescan) -> Target<'a> {
        let slot = |page: PageNo| {
            let known = prescan.pages.get(&page);
            Slot {
                latch: PageLatch::new(),
                generation: pages.generation(page),
                slot_words: known.map_or(0, |last| u32::from(last.meta.slot_words)),
                snapshot: known.map_or(Cts::ZERO, |last| last.snapshot),
                first_epoch: AtomicU64::new(u64::MAX),
                last_epoch: AtomicU64::new(0),
            }
        };
        Target { pages, prescan, slots: (0..pages.high_water()).map(PageNo).map(slot).collect() }
    }

    /// Lowers the marks of pages to what their images lack and the log had, and counts those pages.
    pub fn note_changes(self) -> u64 {
        let mut changed = 0;
        for (page, slot) in (0..).map(PageNo).zip(self.slots) {
            let (first, last) = (slot.first_epoch.into_inner(), slot.last_epoch.into_inner());
            let allocated = self.prescan.pages.get(&page).and_then(|known| known.allocated);
            let noted = (last > 0).then_some([Epoch(first), Epoch(last)]).into_iter().flatten().chain(allocated);
            changed += u64::from(noted.map(|epoch| self.pages.note_change(page, epoch)).count() > 0);
        }
        changed
    }

    /// Loads images that lie close to each other.
    pub fn load_images(&self, images: &Images, run: &[ImagePlace], buffer: &mut AlignedBuf) -> Result<(), ReplayError> {
        let payloads = images.read_run(run, buffer).map_err(ReplayError::Images)?;
        run.iter().zip(payloads).try_for_each(|(image, payload)| self.load_image(images, image, payload))
    }

    fn load_image(&self, images: &Images, image: &ImagePlace, payload: &[u8]) -> Result<(), ReplayError> {
        let meta = &image.head.meta;
        let Some(Final { meta: last, .. }) = self.prescan.pages.get(&image.head.page) else { return Ok(()) };
        if last.generation != meta.generation {
            return Ok(());
        }
        let slots_fit = is_plausible(meta) && image.head.slots as usize * usize::from(meta.slot_words) <= PAGE_WORDS;
        let record = usize::from(meta.slot_words).saturating_sub(VOLATILE_WORDS);
        if !slots_fit || payload.len() != image.head.slots as usize * record * 8 {
            let reason = format!("the image of page {} does not fit a page", image.head.page.0);
            return Err(ReplayError::Images(images.bad(image, reason)));
        }
        let words = self.pages.words(image.head.page, 0, PAGE_WORDS);
        let held = self.slots[image.head.page.0 as usize].latch.hold();
        let places = words.chunks_exact(usize::from(meta.slot_words)).map(|slot| &slot[VOLATILE_WORDS..]);
        for (place, bytes) in places.zip(payload.chunks_exact(record * 8)) {
            for (word, bytes) in place.iter().zip(bytes.chunks_exact(8)) {
                let image = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                let before = if held.was_touched { word.load(Relaxed) } else { 0 };
                word.store(before ^ image, Relaxed);
            }
        }
        Ok(())
    }

    /// Applies groups that lie one behind the other.
    pub fn apply_run(&self, scan: &Scan, run: &[GroupRef], scratch: &mut Scratch) -> Result<(), ReplayError> {
        let Scratch { buffer, batch, deltas } = scratch;
        let bodies = scan.read_run(run, buffer).map_err(ReplayError::Log)?;
        for (group, body) in run.iter().zip(bodies) {
            let unreadable = |reason| ReplayError::Record { group: *group, reason };
            for frame in frames(body) {
                let frame = frame.map_err(|_| unreadable("a frame's length"))?;
                *deltas += self.take_frame(group.epoch, frame, batch).map_err(|bad| unreadable(bad.0))?;
            }
        }
        self.flush(batch);
        Ok(())
    }

    /// Gives the number of operations wanted.
    fn take_frame(&self, epoch: Epoch, frame: &[u8], batch: &mut Batch) -> Result<u64, BadRecord> {
        match record::read_frame(frame)? {
            Frame::Commit { cts, base, operations } | Frame::CommitFragments { cts, base, operations, .. } => {
                self.take(epoch, cts, base, operations, batch)
            }
            Frame::Fragment { txn, base, operations } => match self.prescan.large.get(&txn) {
                Some(large) => self.take(epoch, large.cts, base, operations, batch),
                None => Ok(0),
            },
            Frame::Page { .. } => Ok(0),
        }
    }

    fn take(
        &self,
        epoch: Epoch,
        cts: Cts,
        base: Cts,
        mut operations: Reader<'_>,
        batch: &mut Batch,
    ) -> Result<u64, BadRecord> {
        let mut taken = 0;
        while !operations.is_empty() {
            let operation = record::read_operation(&mut operations, base)?;
            let page = operation.row.page();
            let slot = self.slots.get(page.0 as usize);
            let slot = slot.ok_or(BadRecord("an operation on a page that was never allocated"))?;
            if operation.generation > slot.generation {
                return Err(BadRecord("an operation on a page generation that was never allocated"));
            }
            // A page freed before the images were taken has none, and its last generation is not wanted.
            let is_alive = slot.generation == operation.generation || planted::is(Bug::ReplayFormerLife);
            let is_missing = cts > slot.snapshot || planted::is(Bug::ForgetImageTime);
            let wanted = slot.slot_words != 0 && is_alive && is_missing;
            if !wanted {
                record::read_delta(&mut operations, |_, _| {})?;
                continue;
            }
            let width = slot.slot_words as usize;
            let start = usize::from(operation.row.slot()) * width;
            if start + width > PAGE_WORDS {
                return Err(BadRecord("an operation outside its page"));
            }
            let words = self.pages.words(page, start, width);
            prefetch(&words[VOLATILE_WORDS]);
            let mut outside = false;
            record::read_delta(&mut operations, |at, xor| match words.get(VOLATILE_WORDS + at) {
                Some(word) => {
                    prefetch(word);
                    batch.words.push(((start + VOLATILE_WORDS + at) as u16, xor));
                }
                None => outside = true,
            })?;
            if outside {
                return Err(BadRecord("an operation outside its slot"));
            }
            let (stamp_at, stamp) = ((start + VOLATILE_WORDS) as u16, operation.prev_cts.0 ^ cts.0);
            let end = batch.words.len() as u32;
            batch.operations.push(Pending { page, stamp_at, stamp, logged: epoch, committed: cts.epoch(), end });
            taken += 1;
            if batch.operations.len() == BATCH {
                self.flush(batch);
            }
        }
        Ok(taken)
    }

    fn flush(&self, batch: &mut Batch) {
        let mut from = 0;
        for operation in &batch.operations {
            let slot = &self.slots[operation.page.0 as usize];
            let words = self.pages.words(operation.page, 0, PAGE_WORDS);
            let to = operation.end as usize;
            let _held = slot.latch.hold();
            let deltas = batch.words[from..to].iter().copied();
            for (at, xor) in deltas.chain([(operation.stamp_at, operation.stamp)]) {
                let word = &words[usize::from(at)];
                word.store(word.load(Relaxed) ^ xor, Relaxed);
            }
            let (first, last) = (&slot.first_epoch, &slot.last_epoch);
            first.store(first.load(Relaxed).min(operation.logged.0), Relaxed);
            last.store(last.load(Relaxed).max(operation.committed.0), Relaxed);
            from = to;
        }
        #[cfg(feature = "planted")]
        if planted::is(Bug::RepeatDelta) && !std::mem::replace(&mut batch.is_repeated, true) {
            return self.flush(batch);
        }
        batch.operations.clear();
        batch.words.clear();
    }
}
