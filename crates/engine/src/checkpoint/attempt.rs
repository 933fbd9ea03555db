//! What does one checkpoint do? Lanes image the pages that need it, then one of them publishes.
//!
//! ```text
//!  list ----> lanes, side by side: take some pages, copy them as of S, append, write ----> sync ----+
//!  (start)         (as often as there are pages)                                                    | all lanes
//!    +----------------------------------------------------------------------------------------------+
//!    +--> publish: names durable, manifest durable, marks rise ----> recycle the log ----> remove segments, by pieces
//! ```
//!
//! A page is listed if it is marked, or if its image lies in a segment that is being emptied: one of which more than half will be dead once the
//! marked pages have new images, or one in a directory that is no longer in use. So compaction reads nothing back.

use super::Failure;
use super::image::{ImageHead, ImagePlace, ImageSegmentNo};
use super::manifest::{Manifest, SegmentEntry};
use super::segment::{Appender, Written};
use crate::ids::{Cts, Epoch, PageNo, RowId};
use crate::io::Io;
use crate::mem::{PAGE_WORDS, PageMeta, Pages};
use crate::planted::{self, Bug};
use crate::table::{SessionNo, VOLATILE_WORDS};
use crate::txn::core::Core;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// One checkpoint under way, shared by its lanes.
pub(super) struct Attempt {
    pub number: u64,
    /// The last attempt that was published, whose segments are gone on with.
    pub after: u64,
    /// What it will replace.
    pub manifest: Arc<Manifest>,
    emptied: BTreeSet<ImageSegmentNo>,
    pages: Vec<PageNo>,
    next: AtomicUsize,
    lanes_left: AtomicU32,
    pub started_us: u64,
    pub total_bytes: u64,
    /// Bytes copied and bytes written so far.
    pub copied_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    /// Somebody waits: no pacing.
    pub urgent: AtomicBool,
    /// Nothing is imaged, or removed, before this time, if the attempt is paced.
    pub next_step_us: AtomicU64,
}

impl Attempt {
    /// Lists what is to be imaged. `dirs` are the directories in use.
    pub fn start(
        core: &Core,
        number: u64,
        after: u64,
        manifest: Arc<Manifest>,
        dirs: &[PathBuf],
        lanes: u32,
        now_us: u64,
    ) -> Attempt {
        let emptied = segments_to_empty(&core.pages, &manifest, dirs);
        let is_emptied = |image: &&ImagePlace| emptied.contains(&image.segment) && is_in_force(&core.pages, image);
        let moved: BTreeSet<PageNo> = manifest.images.iter().filter(is_emptied).map(|i| i.head.page).collect();
        let all = (0..core.pages.high_water()).map(PageNo);
        let mut total_bytes = 0;
        let mut pages = Vec::new();
        for page in all {
            let Some(meta) = core.pages.meta(page) else { continue };
            if core.pages.mark(page).is_some() || moved.contains(&page) {
                pages.push(page);
                total_bytes += full_bytes(&meta);
            }
        }
        Attempt {
            number,
            after,
            manifest,
            emptied,
            pages,
            next: AtomicUsize::new(0),
            lanes_left: AtomicU32::new(lanes),
            started_us: now_us,
            total_bytes,
            copied_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            urgent: AtomicBool::new(false),
            next_step_us: AtomicU64::new(0),
        }
    }

    pub fn pages_total(&self) -> u64 {
        self.pages.len() as u64
    }

    pub fn pages_done(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.pages.len()) as u64
    }

    pub fn left_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.copied_bytes.load(Ordering::Relaxed))
    }

    fn take(&self, count: usize) -> &[PageNo] {
        let from = self.next.fetch_add(count, Ordering::Relaxed).min(self.pages.len());
        &self.pages[from..self.pages.len().min(from + count)]
    }

    /// A lane has written and synced its part; true for the last one.
    pub fn lane_is_done(&self) -> bool {
        self.lanes_left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Bytes of the image of a page with all its slots in use.
fn full_bytes(meta: &PageMeta) -> u64 {
    let slot_words = usize::from(meta.slot_words).max(VOLATILE_WORDS + 1);
    (PAGE_WORDS / slot_words * (slot_words - VOLATILE_WORDS) * 8) as u64
}

/// The page still is what the image was made of.
fn is_in_force(pages: &Pages, image: &ImagePlace) -> bool {
    pages.meta(image.head.page) == Some(image.head.meta)
}

fn segments_to_empty(pages: &Pages, manifest: &Manifest, dirs: &[PathBuf]) -> BTreeSet<ImageSegmentNo> {
    let mut kept: BTreeMap<ImageSegmentNo, u64> = BTreeMap::new();
    let stays = |i: &&ImagePlace| is_in_force(pages, i) && pages.mark(i.head.page).is_none();
    for image in manifest.images.iter().filter(stays) {
        *kept.entry(image.segment).or_default() += image.bytes();
    }
    let is_used = |s: &SegmentEntry| manifest.backup_dirs.get(s.dir as usize).is_some_and(|d| dirs.contains(d));
    let is_sparse = |s: &SegmentEntry| kept.get(&s.number).copied().unwrap_or(0) * 2 < s.bytes;
    manifest.segments.iter().filter(|s| is_sparse(s) || !is_used(s)).map(|s| s.number).collect()
}

/// How much a lane does at a time.
#[derive(Clone, Copy)]
pub(super) struct Grain {
    /// Pages copied under one snapshot.
    pub pages: usize,
    /// Bytes written at once.
    pub write_bytes: usize,
}

/// What lanes need of the world.
pub(super) struct Surroundings<'a> {
    pub core: &'a Core,
    pub io: &'a Arc<dyn Io>,
    pub next_segment: &'a AtomicU32,
    pub grain: Grain,
}

/// One writer of images: a directory and a thread's worth of work.
pub(super) struct Lane {
    reader: SessionNo,
    appender: Appender,
    payload: Vec<u64>,
    /// The attempt that it works for, or worked for last.
    attempt: u64,
    is_done: bool,
}

impl Lane {
    pub fn new(reader: SessionNo, appender: Appender) -> Lane {
        Lane { reader, appender, payload: Vec::new(), attempt: 0, is_done: true }
    }

    /// Whether it has nothing more to do for the attempt.
    pub fn is_done(&self, attempt: &Attempt) -> bool {
        self.attempt == attempt.number && self.is_done
    }

    fn begin(&mut self, io: &Arc<dyn Io>, attempt: &Attempt) {
        if self.attempt == attempt.number {
            return;
        }
        if self.attempt != attempt.after {
            self.appender.abandon(io);
        }
        self.appender.keep_if(|number| attempt.manifest.has_segment(number) && !attempt.emptied.contains(&number));
        self.attempt = attempt.number;
        self.is_done = false;
    }

    /// Images some pages, or syncs what it has written and is done. Gives the bytes copied.
    pub fn step(&mut self, around: &Surroundings<'_>, attempt: &Attempt) -> Result<u64, Failure> {
        self.begin(around.io, attempt);
        let pages = attempt.take(around.grain.pages);
        let mut copied = 0;
        if pages.is_empty() {
            let written = self.appender.finish()?;
            attempt.written_bytes.fetch_add(written, Ordering::Relaxed);
            self.is_done = true;
        } else {
            if !self.appender.is_open() {
                let number = around.next_segment.fetch_add(1, Ordering::Relaxed);
                self.appender.create(around.io, ImageSegmentNo(number))?;
            }
            copied = self.copy(around.core, pages);
            attempt.copied_bytes.fetch_add(copied, Ordering::Relaxed);
            // Nobody's snapshot stands meanwhile.
            let written = self.appender.write_if_due(around.grain.write_bytes)?;
            attempt.written_bytes.fetch_add(written, Ordering::Relaxed);
        }
        Ok(copied)
    }

    fn copy(&mut self, core: &Core, pages: &[PageNo]) -> u64 {
        let place = core.sessions.place(self.reader);
        let snapshot = if planted::is(Bug::ImageAhead) {
            place.register(&core.log, Cts::ZERO)
        } else {
            place.register_durable(&core.log, Cts::ZERO).expect("nothing is below zero")
        };
        let bytes = pages.iter().map(|&page| self.image_page(core, page, snapshot)).sum();
        place.unregister();
        bytes
    }

    fn image_page(&mut self, core: &Core, page: PageNo, snapshot: Cts) -> u64 {
        // The list is latched: a storage in it keeps its pages.
        let stores = core.stores.read();
        let Some(meta) = core.pages.meta(page) else { return 0 };
        // Module invariant 6. It stays marked.
        if core.pages.allocated_in(page) > snapshot.epoch() {
            return 0;
        }
        let Some(container) = stores.get(&meta.storage).and_then(|s| s.container(meta.container)) else {
            return 0;
        };
        let first = u64::from(meta.ordinal) * container.slots_per_page();
        let slots = container.high_water().saturating_sub(first).min(container.slots_per_page());
        let words = container.persistent_words();
        self.payload.resize(slots as usize * words, 0);
        for (slot, record) in self.payload.chunks_exact_mut(words).enumerate() {
            core.read_raw(container, RowId::new(page, slot as u16), snapshot, record);
        }
        let incarnation = core.log.incarnation();
        self.appender.put(ImageHead { page, meta, snapshot, incarnation, slots: slots as u32 }, &self.payload);
        if planted::is(Bug::MarkCleanEarly) {
            core.pages.publish(page, snapshot.epoch());
        }
        full_bytes(&meta)
    }

    pub fn take_written(&mut self) -> Written {
        self.payload = Vec::new();
        self.appender.take_written()
    }

    pub fn abandon(&mut self, io: &Arc<dyn Io>) {
        self.appender.abandon(io);
    }
}

/// The manifest that puts `written` in force. `dirs` as they are recorded.
pub(super) fn next_manifest(
    core: &Core,
    base: &Manifest,
    written: &[Written],
    dirs: &[PathBuf],
    next_segment: ImageSegmentNo,
) -> Manifest {
    let fresh: BTreeMap<PageNo, &ImagePlace> =
        written.iter().flat_map(|w| &w.images).map(|image| (image.head.page, image)).collect();
    let (needed, log_from) = needed_log(core, &fresh);
    let older = base.images.iter().filter(|i| !fresh.contains_key(&i.head.page));
    let mut images: Vec<ImagePlace> =
        older.chain(fresh.values().copied()).filter(|i| is_in_force(&core.pages, i)).copied().collect();
    images.sort_unstable_by_key(|i| i.head.page);
    let mut backup_dirs = dirs.to_vec();
    let segments = segments_in_force(base, written, &images, &mut backup_dirs);
    // Pages that are free were freed by durable commits, and what the log has of their former life may go: so the manifest relies on those
    // commits too. Read after everything that could show a page free.
    let generations = (0..core.pages.high_water()).map(|p| core.pages.generation(PageNo(p))).collect();
    let relied_on = core.log.durable();
    Manifest {
        created: base.created,
        database: base.database,
        incarnation: core.log.incarnation(),
        checkpoints: base.checkpoints + 1,
        relied_on,
        complete_below: needed,
        log_start: core.log.log_start(log_from),
        next_segment,
        backup_dirs,
        segments,
        images,
        // One that is too high only wastes numbers: epochs that are lost are void for ever.
        generations,
        whole: None,
    }
}

/// The first epoch that some published image may lack once `fresh` are published, and the first that the log needs for it
/// (module invariant 3; the order of reads is the proof's).
fn needed_log(core: &Core, fresh: &BTreeMap<PageNo, &ImagePlace>) -> (Epoch, Epoch) {
    let mut needed = Epoch(core.log.durable().0 + 1);
    for page in (0..core.pages.high_water()).map(PageNo) {
        let Some(meta) = core.pages.meta(page) else { continue };
        let mark = match fresh.get(&page) {
            Some(image) if image.head.meta == meta => core.pages.mark_after(page, image.head.snapshot.epoch()),
            _ => core.pages.mark(page),
        };
        needed = mark.map_or(needed, |mark| mark.min(needed));
    }
    let fragment = core.first_fragment_from(needed);
    (needed, fragment.map_or(needed, |first| first.min(needed)))
}

/// The segments that hold any of `images`, their directories behind those in use.
fn segments_in_force(
    base: &Manifest,
    written: &[Written],
    images: &[ImagePlace],
    backup_dirs: &mut Vec<PathBuf>,
) -> Vec<SegmentEntry> {
    let mut live: BTreeMap<ImageSegmentNo, u64> = BTreeMap::new();
    for image in images {
        *live.entry(image.segment).or_default() += image.bytes();
    }
    let mut all: BTreeMap<ImageSegmentNo, SegmentEntry> = BTreeMap::new();
    for entry in base.segments.iter().filter(|s| live.contains_key(&s.number)) {
        let dir = base.backup_dirs.get(entry.dir as usize).cloned().unwrap_or_default();
        let known = backup_dirs.iter().position(|d| *d == dir);
        let at = known.unwrap_or_else(|| {
            backup_dirs.push(dir);
            backup_dirs.len() - 1
        });
        all.insert(entry.number, SegmentEntry { dir: at as u32, ..*entry });
    }
    // Later ones have more bytes of the same segment.
    all.extend(written.iter().flat_map(|w| &w.segments).map(|entry| (entry.number, *entry)));
    let in_force =
        |entry: &SegmentEntry| live.get(&entry.number).map(|&live_bytes| SegmentEntry { live_bytes, ..*entry });
    all.values().filter_map(in_force).collect()
}

/// After the manifest is durable: marks rise, fragments are forgotten.
pub(super) fn raise_marks(core: &Core, manifest: &Manifest, written: &[Written]) {
    for image in written.iter().flat_map(|w| &w.images).filter(|i| is_in_force(&core.pages, i)) {
        core.pages.publish(image.head.page, image.head.snapshot.epoch());
    }
    core.forget_fragments_below(manifest.complete_below);
}

/// Whether a checkpoint that started now could free log that the last one could not.
pub(super) fn could_free(core: &Core, manifest: &Manifest) -> bool {
    let after = Epoch(core.log.durable().0 + 1);
    let fragment = core.first_fragment_from(after);
    fragment.map_or(after, |epoch| epoch.min(after)) > manifest.log_start.epoch
}

/// How a directory is recorded: the data directory may move, the working directory is another each time.
pub(super) fn recorded(dir: &Path, data_dir: &Path) -> PathBuf {
    if dir == data_dir {
        return PathBuf::new();
    }
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf())
}
