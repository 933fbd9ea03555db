//! How does memory come back? Images and deltas in any order, on all cores, into zeroed pages; then the catalog; then the indexes.
//!
//! | phase | reads | makes |
//! |---|---|---|
//! | scan | the log, once | the horizon, and a digest of each group: allocations, fragments |
//! | load | image payloads and deltas, at the same time | the persistent part of every slot |
//! | restore | every slot's header, the system table | free slots, schema, stores, the next storage id |
//! | rebuild | rows | indexes (`txn::fill`) |
//!
//! Invariants:
//!
//! 1. An operation is applied iff its page generation is the page's final one and its cts is above the image's S: exactly the deltas that the
//!    image lacks (DESIGN invariants 2 and 5).
//! 2. Everything is applied by XOR onto zero, images too: order and thread do not matter.
//! 3. After the last operation a slot's cts is that of its newest durable commit, because each operation XORs prev_cts ^ cts: a missing or repeated
//!    one leaves a timestamp that no commit has. What can be checked cheaply is: none is above the durable horizon.
//! 4. A fragment is applied iff its commit is in the log; count and CRC sum of a commit's fragments must agree.
//! 5. Nothing on disk is changed: a recovery that ends half way is begun again.
//! 6. Memory beside pages and indexes is bounded: a read buffer per thread, a digest per group, and the keys of the B+-trees of one
//!    batch of tables while they are sorted.
//!
//! Reading order: `progress`, `prescan`, `latch`, `apply`, `restore`, `rebuild`. After P*TIME (VLDB 2004).

mod latch;
mod apply;
mod prescan;
mod progress;
mod rebuild;
mod restore;

pub(crate) use prescan::Digest;
pub(crate) use progress::Meter;
pub use progress::{Phase, PhaseStats, RecoveryProgress, RecoveryReport, RecoveryStats};
pub(crate) use rebuild::{rebuild, sorted_together};
pub(crate) use restore::restore;

use crate::catalog::BadObject;
use crate::checkpoint::{BadImages, ImagePlace, Images};
use crate::crew::Crew;
use crate::ids::{Cts, PageNo, RowId, StorageId};
use crate::log::{GroupRef, LogDamage, RUN_BYTES, Scan};
use crate::mem::{PAGE_WORDS, Pages, RestartCosts};
use crate::planted::{self, Bug};
use crate::table::VOLATILE_WORDS;
use apply::{Scratch, Target};
use prescan::Prescan;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why memory could not be brought back. Nothing is guessed.
#[derive(Debug)]
pub(crate) enum ReplayError {
    Log(LogDamage),
    Images(BadImages),
    Record {
        group: GroupRef,
        reason: &'static str,
    },
    /// A fragmented commit without all its fragments.
    Fragments {
        txn: u64,
    },
    Object(BadObject),
    /// A slot's timestamp is above the horizon: a delta is missing or was applied twice.
    Telescope {
        row: RowId,
        cts: Cts,
    },
    /// A container's pages have a gap.
    Gap {
        storage: StorageId,
        container: u16,
        ordinal: u32,
    },
    MemoryLimit,
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Log(damage) => write!(f, "{damage}"),
            ReplayError::Images(bad) => {
                write!(f, "damaged images: {} at offset {}: {}", bad.path.display(), bad.offset, bad.reason)
            }
            ReplayError::Record { group, reason } => write!(
                f,
                "unreadable commit record ({reason}) in device {}, segment {}, group at offset {}, epoch {}",
                group.device.0, group.segment.0, group.offset, group.epoch.0
            ),
            ReplayError::Fragments { txn } => write!(f, "large transaction {txn:#x} lacks fragments in the log"),
            ReplayError::Object(bad) => write!(f, "damaged system table: {}", bad.0),
            ReplayError::Telescope { row, cts } => {
                write!(f, "row {row:?} has timestamp {cts:?}, which no commit has: a delta is missing or repeated")
            }
            ReplayError::Gap { storage, container, ordinal } => {
                write!(f, "storage {} container {container} lacks its page {ordinal}", storage.0)
            }
            ReplayError::MemoryLimit => f.write_str("the memory limit is smaller than the database"),
        }
    }
}

/// What a restart takes on top of the pages and indexes that it brings back, the keys that it sorts aside: a read buffer for each thread,
/// and for each page what the pre-scan and the list of images keep of it.
pub(crate) fn costs(threads: usize, longest_file_bytes: u64) -> RestartCosts {
    const OF_A_PAGE: u64 = 256;
    RestartCosts { fixed_bytes: threads as u64 * RUN_BYTES.min(longest_file_bytes), page_bytes: OF_A_PAGE }
}

/// What replay leaves beside the pages.
pub(crate) struct Replayed {
    pub images: PhaseStats,
    pub replay: PhaseStats,
    /// Pages that the log changed or allocated.
    pub changed_pages: u64,
}

/// A piece of the load's work.
enum Piece {
    Images(Range<usize>),
    Groups(Range<usize>),
}

/// Brings every page back. The caller has created `pages` empty; `digests` are those of the scan's groups.
pub(crate) fn replay(
    pages: &Pages,
    scan: &Scan,
    digests: Vec<Digest>,
    images: Option<&Images>,
    crew: Crew,
    meter: &Meter,
) -> Result<Replayed, ReplayError> {
    let groups = scan.groups();
    let prescan = Prescan::of(groups, digests, images)?;
    prescan.restore_pages(pages, images)?;
    let places = images.map_or(&[][..], |images| &images.images);
    let image_bytes: u64 = places.iter().map(ImagePlace::bytes).sum();
    let log_bytes: u64 = groups.iter().map(GroupRef::bytes).sum();
    meter.expect(Phase::Load, image_bytes + log_bytes);
    meter.begin(Phase::Load);
    let began_us = meter.elapsed_us();
    let image_runs = runs(places, ImagePlace::follows, ImagePlace::bytes).map(Piece::Images);
    let group_runs = runs(groups, GroupRef::follows, GroupRef::bytes).map(Piece::Groups);
    let pieces: Vec<Piece> = image_runs.chain(group_runs).collect();
    let target = Target::new(pages, &prescan);
    let (images_us, groups_from_us, deltas) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
    crew.doubled().work(
        pieces.len(),
        || {
            meter.take_scratch(RUN_BYTES);
            Scratch::default()
        },
        |scratch, at| {
            match &pieces[at] {
                Piece::Images(range) => {
                    let images = images.expect("there are places of images");
                    let run = &places[range.clone()];
                    target.load_images(images, run, &mut scratch.buffer)?;
                    meter.add(run.iter().map(ImagePlace::bytes).sum());
                    images_us.fetch_max(meter.elapsed_us(), Ordering::Relaxed);
                }
                Piece::Groups(range) => {
                    groups_from_us.fetch_min(meter.elapsed_us(), Ordering::Relaxed);
                    let run = &groups[range.clone()];
                    target.apply_run(scan, run, scratch)?;
                    meter.add(run.iter().map(GroupRef::bytes).sum());
                }
            }
            Ok(())
        },
        |scratch| {
            deltas.fetch_add(scratch.deltas, Ordering::Relaxed);
            meter.give_scratch(RUN_BYTES);
        },
    )?;
    let ended_us = meter.elapsed_us();
    let changed_pages = if planted::is(Bug::ForgetReplayedMark) { 0 } else { target.note_changes() };
    let images = PhaseStats {
        elapsed_us: images_us.into_inner().saturating_sub(began_us),
        bytes: image_bytes,
        items: places.len() as u64,
    };
    let elapsed_us = ended_us.saturating_sub(groups_from_us.into_inner().min(ended_us));
    let replay = PhaseStats { elapsed_us, bytes: log_bytes, items: deltas.into_inner() };
    Ok(Replayed { images, replay, changed_pages })
}

/// What every page is and holds, volatile parts left out: equal for equal databases while nobody writes, however they were recovered.
pub(crate) fn persistent_digest(pages: &Pages) -> u64 {
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (0..pages.high_water()).map(PageNo).fold(0, |state, page| {
        let Some(meta) = pages.meta(page) else { return mix(state, u64::from(pages.generation(page))) };
        let identity = [meta.storage.0, meta.generation, meta.ordinal, meta.container.into(), meta.slot_words.into()];
        let state = identity.into_iter().fold(state, |state, word| mix(state, word.into()));
        let slots = pages.words(page, 0, PAGE_WORDS).chunks_exact(usize::from(meta.slot_words));
        slots
            .flat_map(|slot| &slot[VOLATILE_WORDS..])
            .fold(state, |state, word| mix(state, word.load(Ordering::Relaxed)))
    })
}

/// Cuts a list into runs that one read serves.
fn runs<T>(
    list: &[T],
    follows: impl Fn(&T, &T) -> bool,
    bytes: impl Fn(&T) -> u64,
) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from;
        let mut sum = bytes(list.get(start)?);
        from += 1;
        while let Some(next) = list.get(from)
            && follows(next, &list[from - 1])
            && sum + bytes(next) <= RUN_BYTES
        {
            sum += bytes(next);
            from += 1;
        }
        Some(start..from)
    })
}
