//! How does memory come back? Images and deltas in any order, on all cores, into zeroed pages; then the catalog; then the indexes.
//!
//! | phase | reads | makes |
//! |---|---|---|
//! | pre-scan | image heads, frame heads | each page's final generation and S, the set of fragmented commits |
//! | apply | image payloads and deltas, at the same time | the persistent part of every slot |
//! | restore | system table | schema, stores, free slots |
//! | rebuild | rows | indexes |
//!
//! Invariants:
//!
//! 1. An operation is applied iff its page generation is the page's final one and its cts is above the image's S: exactly the deltas that the
//!    image lacks (DESIGN invariants 2 and 5).
//! 2. Everything is applied by `fetch_xor` onto zero, images too: order and thread do not matter.
//! 3. After the last operation a slot's cts is that of its newest durable commit, because each operation XORs prev_cts ^ cts: a missing or repeated
//!    one leaves a timestamp that no commit has. What can be checked cheaply is: none is above the durable horizon.
//! 4. A fragment is applied iff its commit is in the log; count and CRC sum of a commit's fragments must agree.

mod rebuild;

pub(crate) use rebuild::rebuild_indexes;

use crate::catalog::{BadObject, Counters, Gate, Index, IndexId, Object, Schema, Table, TableId};
use crate::checkpoint::{BadImages, Images};
use crate::ids::{Cts, Epoch, PageNo, RowId, StorageId};
use crate::io::AlignedBuf;
use crate::log::{GroupRef, LogDamage, Scan, frames};
use crate::mem::{PAGE_WORDS, PageMeta, Pages, RestartCosts};
use crate::schema::{Layout, Row};
use crate::table::{Container, PRIMARY, Store, VOLATILE_WORDS};
use crate::txn::record::{self, BadRecord, Frame, Reader};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// What a restart takes on top of the pages and indexes that it brings back: a window of the log and a group's payload for each thread,
/// and for each page what the pre-scan keeps, in a map that doubles and then in a table.
pub(crate) fn costs(threads: usize, segment_bytes: u64) -> RestartCosts {
    let window = (4 << 20).min(segment_bytes);
    let entry = (size_of::<(PageNo, Final)>() * 3 + size_of::<Option<Final>>()) as u64;
    RestartCosts { fixed_bytes: threads as u64 * window, page_bytes: entry }
}

/// A page as the pre-scan leaves it.
#[derive(Clone, Copy)]
struct Final {
    meta: PageMeta,
    /// Deltas at or below are in the image; zero without one.
    snapshot: Cts,
}

/// A fragmented commit.
struct Large {
    cts: Cts,
    count: u64,
    crc_sum: u32,
}

#[derive(Default)]
struct Prescan {
    pages: HashMap<PageNo, Final>,
    large: HashMap<u64, Large>,
    /// Count and CRC sum of the fragments seen.
    fragments: HashMap<u64, (u64, u32)>,
}

/// Brings every page back. The caller has created `pages` empty.
pub(crate) fn replay(pages: &Pages, scan: &Scan, images: Option<&Images>, threads: usize) -> Result<(), ReplayError> {
    let prescan = prescan(scan, images, threads)?;
    restore_pages(pages, &prescan, images)?;
    let table: Vec<Option<Final>> = {
        let mut table = vec![None; pages.high_water() as usize];
        prescan.pages.iter().for_each(|(page, last)| table[page.0 as usize] = Some(*last));
        table
    };
    let target = Target { pages, table: &table, large: &prescan.large };
    let image_count = images.map_or(0, |i| i.images.len());
    // Images and groups are one list of work: whoever is free takes the next piece.
    parallel(image_count + scan.groups().len(), threads, |at, scratch| match images.filter(|_| at < image_count) {
        Some(images) => target.load_image(images, at, scratch),
        None => target.apply_group(scan, &scan.groups()[at - image_count], scratch),
    })
}

#[derive(Default)]
struct Scratch {
    group: Option<AlignedBuf>,
    image: Vec<u8>,
}

/// Does `count` pieces of work on `threads` threads; the first error ends it.
fn parallel(
    count: usize,
    threads: usize,
    work: impl Fn(usize, &mut Scratch) -> Result<(), ReplayError> + Sync,
) -> Result<(), ReplayError> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<ReplayError>> = Mutex::new(None);
    let run = || {
        let mut scratch = Scratch::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = work(at, &mut scratch) {
                next.store(count, Ordering::Relaxed);
                failed.lock().get_or_insert(error);
                return;
            }
        }
    };
    if threads <= 1 {
        run();
    } else {
        std::thread::scope(|scope| (0..threads.min(count)).for_each(|_| drop(scope.spawn(run))));
    }
    failed.into_inner().map_or(Ok(()), Err)
}

fn prescan(scan: &Scan, images: Option<&Images>, threads: usize) -> Result<Prescan, ReplayError> {
    let found: Mutex<Prescan> = Mutex::default();
    for image in images.iter().flat_map(|i| &i.images) {
        let last = Final { meta: image.head.meta, snapshot: image.head.snapshot };
        found.lock().pages.insert(image.head.page, last);
    }
    parallel(scan.groups().len(), threads, |at, scratch| {
        let group = &scan.groups()[at];
        each_frame(scan, group, scratch, |frame| {
            let mut found = found.lock();
            match frame {
                Frame::Page { meta, .. } if !is_plausible(&meta) => {
                    return Err(BadRecord("a page of impossible slots"));
                }
                Frame::Page { page, meta } => {
                    let known = found.pages.get(&page).map_or(0, |f| f.meta.generation);
                    if meta.generation > known {
                        found.pages.insert(page, Final { meta, snapshot: Cts::ZERO });
                    }
                }
                Frame::CommitFragments { cts, txn, count, crc_sum, .. } => {
                    found.large.insert(txn, Large { cts, count, crc_sum });
                }
                Frame::Fragment { txn, operations, .. } => {
                    let (count, sum) = found.fragments.entry(txn).or_default();
                    *count += 1;
                    *sum = sum.wrapping_add(crc32c::crc32c(operations.0));
                }
                Frame::Commit { .. } => {}
            }
            Ok(())
        })
    })?;
    Ok(found.into_inner())
}

/// Whether slots of this width have a place in a page and for their volatile part.
fn is_plausible(meta: &PageMeta) -> bool {
    (VOLATILE_WORDS + 1..=PAGE_WORDS).contains(&usize::from(meta.slot_words))
}

fn each_frame(
    scan: &Scan,
    group: &GroupRef,
    scratch: &mut Scratch,
    mut each: impl FnMut(Frame<'_>) -> Result<(), BadRecord>,
) -> Result<(), ReplayError> {
    let buffer = scratch.group.get_or_insert_with(AlignedBuf::new);
    let body = scan.read_group(group, buffer).map_err(ReplayError::Log)?;
    let unreadable = |reason| ReplayError::Record { group: *group, reason };
    for frame in frames(body) {
        let frame = frame.map_err(|_| unreadable("a frame's length"))?;
        record::read_frame(frame).and_then(&mut each).map_err(|bad| unreadable(bad.0))?;
    }
    Ok(())
}

fn restore_pages(pages: &Pages, prescan: &Prescan, images: Option<&Images>) -> Result<(), ReplayError> {
    for (page, &generation) in images.iter().flat_map(|i| &i.generations).enumerate() {
        if !pages.restore(PageNo(page as u32), generation, None) {
            return Err(ReplayError::MemoryLimit);
        }
    }
    for (page, last) in &prescan.pages {
        if !pages.restore(*page, last.meta.generation, Some(&last.meta)) {
            return Err(ReplayError::MemoryLimit);
        }
    }
    let complete_below = images.map_or(Epoch(0), |i| i.complete_below);
    for (txn, large) in &prescan.large {
        let in_image = large.cts.epoch() < complete_below;
        if !in_image && prescan.fragments.get(txn) != Some(&(large.count, large.crc_sum)) {
            return Err(ReplayError::Fragments { txn: *txn });
        }
    }
    Ok(())
}

/// Where operations go.
struct Target<'a> {
    pages: &'a Pages,
    table: &'a [Option<Final>],
    large: &'a HashMap<u64, Large>,
}

impl Target<'_> {
    fn load_image(&self, images: &Images, at: usize, scratch: &mut Scratch) -> Result<(), ReplayError> {
        let image = &images.images[at];
        let meta = &image.head.meta;
        let last = self.table[image.head.page.0 as usize].expect("the pre-scan saw this image");
        if last.meta.generation != meta.generation {
            return Ok(());
        }
        let slots_fit = is_plausible(meta) && image.head.slots as usize * usize::from(meta.slot_words) <= PAGE_WORDS;
        let record = usize::from(meta.slot_words).saturating_sub(VOLATILE_WORDS);
        if !slots_fit || image.payload_bytes() != image.head.slots as usize * record * 8 {
            let reason = format!("the image of page {} does not fit a page", image.head.page.0);
            return Err(ReplayError::Images(images.bad(image, reason)));
        }
        let words = self.pages.words(image.head.page, 0, PAGE_WORDS);
        for (i, word) in images.read(image, &mut scratch.image).map_err(ReplayError::Images)?.enumerate() {
            if word != 0 {
                let place = (i / record) * usize::from(meta.slot_words) + VOLATILE_WORDS + i % record;
                words[place].fetch_xor(word, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn apply_group(&self, scan: &Scan, group: &GroupRef, scratch: &mut Scratch) -> Result<(), ReplayError> {
        each_frame(scan, group, scratch, |frame| match frame {
            Frame::Commit { cts, base, operations } | Frame::CommitFragments { cts, base, operations, .. } => {
                self.apply(cts, base, operations)
            }
            Frame::Fragment { txn, base, operations } => match self.large.get(&txn) {
                Some(large) => self.apply(large.cts, base, operations),
                None => Ok(()),
            },
            Frame::Page { .. } => Ok(()),
        })
    }

    fn apply(&self, cts: Cts, base: Cts, mut operations: Reader<'_>) -> Result<(), BadRecord> {
        while !operations.is_empty() {
            let operation = record::read_operation(&mut operations, base)?;
            let page = operation.row.page();
            let known =
                self.table.get(page.0 as usize).ok_or(BadRecord("an operation on a page that was never allocated"))?;
            if operation.generation > self.pages.generation(page) {
                return Err(BadRecord("an operation on a page generation that was never allocated"));
            }
            // A page freed before the images were taken has none, and its last generation is not wanted.
            let wanted = known.is_some_and(|l| l.meta.generation == operation.generation && cts > l.snapshot);
            let slot_words = known.map_or(0, |l| usize::from(l.meta.slot_words));
            let start = usize::from(operation.row.slot()) * slot_words;
            let fits = start + slot_words <= PAGE_WORDS;
            if wanted && !fits {
                return Err(BadRecord("an operation outside its page"));
            }
            let slot = if wanted { self.pages.words(page, start, slot_words) } else { &[] };
            let mut outside = false;
            record::read_delta(&mut operations, |at, xor| {
                if wanted {
                    match slot.get(VOLATILE_WORDS + at) {
                        Some(word) => drop(word.fetch_xor(xor, Ordering::Relaxed)),
                        None => outside = true,
                    }
                }
            })?;
            if outside {
                return Err(BadRecord("an operation outside its slot"));
            }
            if wanted {
                self.pages.note_change(page, cts.epoch());
                slot[VOLATILE_WORDS].fetch_xor(operation.prev_cts.0 ^ cts.0, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

// ---- the catalog

/// What the system table said.
pub(crate) struct Restored {
    pub schema: Schema,
    pub stores: HashMap<StorageId, Arc<Store>>,
    /// Above every storage that any page was ever allocated for, as far as images and log can tell.
    pub next_storage: u32,
}

/// Pages by storage and container, with their ordinals.
type ByContainer = HashMap<(StorageId, u16), Vec<(u32, PageNo)>>;

/// Reads the system table and makes schema and stores; pages of no known storage become free. `horizon` is the end of the durable epoch.
pub(crate) fn restore(
    pages: &Arc<Pages>,
    system: &Arc<Table>,
    seed: u64,
    horizon: Cts,
) -> Result<Restored, ReplayError> {
    let mut by_container: ByContainer = HashMap::new();
    for page in (0..pages.high_water()).map(PageNo) {
        if let Some(meta) = pages.meta(page) {
            by_container.entry((meta.storage, meta.container)).or_default().push((meta.ordinal, page));
        }
    }
    let largest = by_container.keys().map(|(storage, _)| storage.0).max().unwrap_or(0);
    restore_store(pages, &system.store, &mut by_container, horizon)?;
    let objects = read_objects(system)?;
    let rows = |storage: StorageId, store: &Store| {
        let pages = by_container.get(&(storage, PRIMARY)).map_or(0, Vec::len) as u64;
        // A table of one page stays small.
        pages.saturating_sub(1) * store.primary.slots_per_page()
    };
    let (schema, stores) = build_schema(pages, system, seed, &objects, rows)?;
    let counted = objects.iter().find_map(|(_, object)| match object {
        Object::Counters(counters) => Some(counters.next_storage),
        _ => None,
    });
    let next_storage = counted.unwrap_or(Counters::FIRST.next_storage).max(largest + 1);
    stores
        .values()
        .filter(|s| s.id != system.store.id)
        .try_for_each(|s| restore_store(pages, s, &mut by_container, horizon))?;
    // A page of a storage that was dropped, or created by a transaction that did not commit.
    for page in by_container.into_values().flatten().map(|(_, page)| page) {
        pages.forget(page);
    }
    if !pages.finish_restore() {
        return Err(ReplayError::MemoryLimit);
    }
    Ok(Restored { schema, stores, next_storage })
}

fn restore_store(
    pages: &Pages,
    store: &Store,
    by_container: &mut ByContainer,
    horizon: Cts,
) -> Result<(), ReplayError> {
    let of_store = by_container.iter().filter(|((storage, _), _)| *storage == store.id);
    let mut listed = of_store.flat_map(|(_, list)| list);
    if listed.any(|(_, page)| !pages.meta(*page).is_some_and(|m| store.accepts(&m))) {
        return Err(ReplayError::Object(BadObject("a page whose slots are not its table's")));
    }
    store.containers().try_for_each(|container| restore_container(container, by_container, horizon))
}

fn restore_container(container: &Container, pages: &mut ByContainer, horizon: Cts) -> Result<(), ReplayError> {
    let mut list = pages.remove(&(container.storage, container.number)).unwrap_or_default();
    list.sort_unstable();
    if let Some((ordinal, _)) = list.iter().enumerate().find(|(i, (ordinal, _))| *i as u32 != *ordinal) {
        let (storage, number) = (container.storage, container.number);
        return Err(ReplayError::Gap { storage, container: number, ordinal: ordinal as u32 });
    }
    container
        .restore(list.into_iter().map(|(_, page)| page).collect(), horizon)
        .map_err(|(row, cts)| ReplayError::Telescope { row, cts })
}

fn read_objects(system: &Table) -> Result<Vec<(u32, Object)>, ReplayError> {
    let primary = &system.store.primary;
    let mut objects = Vec::new();
    let mut row = Row::default();
    for id in (0..primary.high_water()).filter_map(|at| primary.nth(at)) {
        primary.slot(id).copy(row.start_copy(primary.persistent_words()));
        if row.is_live() {
            crate::txn::fetch_stored(system, &mut row, 2);
            objects.push(Object::of_row(system, &row).map_err(ReplayError::Object)?);
        }
    }
    Ok(objects)
}

type Stores = HashMap<StorageId, Arc<Store>>;

fn build_schema(
    pages: &Arc<Pages>,
    system: &Arc<Table>,
    seed: u64,
    objects: &[(u32, Object)],
    rows: impl Fn(StorageId, &Store) -> u64,
) -> Result<(Schema, Stores), ReplayError> {
    let mut schema = Schema::default();
    let mut stores = HashMap::from([(system.store.id, system.store.clone())]);
    for (id, object) in objects {
        match object {
            Object::Counters(Counters { schema_version, .. }) => schema.version = *schema_version,
            Object::Table(table) => {
                let types: Vec<_> = table.def.columns.iter().map(|c| c.ty).collect();
                let layout =
                    Layout::new(&types).map_err(|_| ReplayError::Object(BadObject("a table wider than a page")))?;
                let store = Arc::new(Store::new(pages, table.storage, layout.words()));
                stores.insert(table.storage, store.clone());
                let indexes =
                    build_indexes(TableId(*id), &table.def, &layout, seed, rows(table.storage, &store), objects)?;
                let gate = Arc::new(Gate::default());
                schema.put(Arc::new(Table::new(TableId(*id), table.def.clone(), layout, indexes, store, gate)));
            }
            Object::Index { .. } => {}
        }
    }
    Ok((schema, stores))
}

fn build_indexes(
    table: TableId,
    def: &crate::catalog::TableDef,
    layout: &Layout,
    seed: u64,
    rows: u64,
    objects: &[(u32, Object)],
) -> Result<Vec<Arc<Index>>, ReplayError> {
    let mut indexes = Vec::new();
    for (id, object) in objects {
        if let Object::Index { table: of, def: index } = object
            && *of == table
        {
            let index = Index::new(IndexId(*id), index.clone(), def, layout, seed, rows)
                .map_err(|_| ReplayError::Object(BadObject("an index key wider than a node takes")))?;
            indexes.push(Arc::new(index));
        }
    }
    indexes.sort_by_key(|i| (!i.def.primary, i.id));
    Ok(indexes)
}
