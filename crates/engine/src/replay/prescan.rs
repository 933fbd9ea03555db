//! What must be known before the first delta is applied? Each page's last generation, and which large commits there are.
//!
//! A digest of each group is made while the log is read for the first time; digests of groups that do not count are dropped.

use super::ReplayError;
use crate::checkpoint::Images;
use crate::ids::{Cts, Epoch, PageNo};
use crate::log::{GroupRef, frames};
use crate::mem::{PAGE_WORDS, PageMeta, Pages};
use crate::table::VOLATILE_WORDS;
use crate::txn::record::{self, BadRecord, Frame};
use std::collections::HashMap;

/// A page as the pre-scan leaves it.
#[derive(Clone, Copy)]
pub(super) struct Final {
    pub meta: PageMeta,
    /// Deltas at or below are in the image; zero without one.
    pub snapshot: Cts,
    /// Without an image: the epoch whose log has the allocation.
    pub allocated: Option<Epoch>,
}

/// A fragmented commit.
#[derive(Clone, Copy)]
pub(super) struct Large {
    pub cts: Cts,
    count: u64,
    crc_sum: u32,
}

/// What one group says of pages and of large commits.
#[derive(Default)]
pub(crate) struct Digest {
    pages: Vec<(PageNo, PageMeta)>,
    large: Vec<(u64, Large)>,
    /// Transaction and CRC.
    fragments: Vec<(u64, u32)>,
    bad: Option<BadRecord>,
}

impl Digest {
    pub fn of(body: &[u8]) -> Digest {
        let mut digest = Digest::default();
        for frame in frames(body) {
            let read = frame.map_err(|_| BadRecord("a frame's length")).and_then(record::read_frame);
            if let Err(bad) = read.and_then(|frame| digest.add(frame)) {
                digest.bad = Some(bad);
                break;
            }
        }
        digest
    }

    fn add(&mut self, frame: Frame<'_>) -> Result<(), BadRecord> {
        match frame {
            Frame::Page { meta, .. } if !is_plausible(&meta) => return Err(BadRecord("a page of impossible slots")),
            Frame::Page { page, meta } => self.pages.push((page, meta)),
            Frame::CommitFragments { cts, txn, count, crc_sum, .. } => {
                self.large.push((txn, Large { cts, count, crc_sum }));
            }
            Frame::Fragment { txn, operations, .. } => self.fragments.push((txn, crc32c::crc32c(operations.0))),
            Frame::Commit { .. } => {}
        }
        Ok(())
    }
}

/// Whether slots of this width have a place in a page and for their volatile part.
pub(super) fn is_plausible(meta: &PageMeta) -> bool {
    (VOLATILE_WORDS + 1..=PAGE_WORDS).contains(&usize::from(meta.slot_words))
}

#[derive(Default)]
pub(super) struct Prescan {
    pub pages: HashMap<PageNo, Final>,
    pub large: HashMap<u64, Large>,
    /// Count and CRC sum of the fragments seen.
    fragments: HashMap<u64, (u64, u32)>,
}

impl Prescan {
    /// `digests` are those of `groups`.
    pub fn of(groups: &[GroupRef], digests: Vec<Digest>, images: Option<&Images>) -> Result<Prescan, ReplayError> {
        let mut found = Prescan::default();
        for image in images.iter().flat_map(|i| &i.images) {
            let last = Final { meta: image.head.meta, snapshot: image.head.snapshot, allocated: None };
            found.pages.insert(image.head.page, last);
        }
        for (group, digest) in groups.iter().zip(digests) {
            if let Some(bad) = digest.bad {
                return Err(ReplayError::Record { group: *group, reason: bad.0 });
            }
            found.add(group.epoch, digest);
        }
        Ok(found)
    }

    fn add(&mut self, epoch: Epoch, digest: Digest) {
        for (page, meta) in digest.pages {
            let known = self.pages.get(&page).map_or(0, |f| f.meta.generation);
            if meta.generation > known {
                self.pages.insert(page, Final { meta, snapshot: Cts::ZERO, allocated: Some(epoch) });
            }
        }
        self.large.extend(digest.large);
        for (txn, crc) in digest.fragments {
            let (count, sum) = self.fragments.entry(txn).or_default();
            *count += 1;
            *sum = sum.wrapping_add(crc);
        }
    }

    /// Gives `pages` their last generations, and checks that no large commit lacks a fragment that matters.
    pub fn restore_pages(&self, pages: &Pages, images: Option<&Images>) -> Result<(), ReplayError> {
        for (page, &generation) in images.iter().flat_map(|i| &i.generations).enumerate() {
            if !pages.restore(PageNo(page as u32), generation, None) {
                return Err(ReplayError::MemoryLimit);
            }
        }
        for (page, last) in &self.pages {
            if !pages.restore(*page, last.meta.generation, Some(&last.meta)) {
                return Err(ReplayError::MemoryLimit);
            }
        }
        let complete_below = images.map_or(Epoch(0), |images| images.complete_below);
        for (txn, large) in &self.large {
            let has_all = self.fragments.get(txn) == Some(&(large.count, large.crc_sum));
            if large.cts.epoch() >= complete_below && !has_all {
                return Err(ReplayError::Fragments { txn: *txn });
            }
        }
        Ok(())
    }
}
