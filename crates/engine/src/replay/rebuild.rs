//! Rebuilding indexes after replay, when every live row has exactly one version.
//!
//! | index | how |
//! |---|---|
//! | hash | sized for the rows counted, then filled by all threads at once, each fetching a batch of buckets ahead; nothing splits |
//! | B+-tree | each thread collects and sorts a run; the runs are cut at the same keys, and each cut is merged into leaves of its own |
//!
//! A table's indexes are filled in one pass over its pages, of which only the words of keys are read. Tables go by in batches, so
//! that no more than one batch's keys are in memory beside the trees.

use super::{Crew, Meter, Phase, PhaseStats};
use crate::catalog::{Index, Table, Tree};
use crate::ids::{PageNo, RowId};
use crate::index::{BTreeIndex, TreePart};
use crate::mem::PAGE_WORDS;
use crate::schema::{KeyBuf, LIVE, Row};
use crate::txn::fetch_stored;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;

/// Pages that a thread takes at once.
const STRIDE: usize = 32;
/// Tables are worked off together until they have so many slots.
const BATCH_SLOTS: u64 = 1 << 20;
const PAGE_BYTES: u64 = (PAGE_WORDS * 8) as u64;

/// Fills all indexes of the tables. Nobody else uses them.
pub(crate) fn rebuild<'a>(tables: impl Iterator<Item = &'a Arc<Table>>, crew: Crew, meter: &Meter) -> PhaseStats {
    let tables: Vec<Filling<'a>> = tables.filter(|table| !table.indexes.is_empty()).map(|t| Filling::new(t)).collect();
    let bytes = tables.iter().map(|table| table.pages.len() as u64 * PAGE_BYTES).sum();
    meter.expect(Phase::Rebuild, bytes);
    meter.begin(Phase::Rebuild);
    let began_us = meter.elapsed_us();
    batches(&tables, |table| table.table, |batch| fill(batch, crew, meter));
    let items = tables.iter().flat_map(|table| &table.table.indexes).map(|index| index.entries()).sum();
    PhaseStats { elapsed_us: meter.elapsed_us().saturating_sub(began_us), bytes, items }
}

/// Calls `each` with the tables that are worked off together.
fn batches<'t, T>(mut rest: &'t [T], table: impl Fn(&T) -> &Table, mut each: impl FnMut(&'t [T])) {
    while !rest.is_empty() {
        let mut slots = 0;
        let fits = rest.iter().take_while(|item| {
            let fits = slots < BATCH_SLOTS;
            slots += table(item).slots();
            fits
        });
        let (batch, after) = rest.split_at(fits.count());
        each(batch);
        rest = after;
    }
}

/// The most bytes of ordered indexes whose keys a rebuild would have in memory at the same time.
pub(crate) fn sorted_together<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> u64 {
    let ordered =
        |table: &Table| table.indexes.iter().filter(|i| i.is_ordered()).map(|i| i.memory_bytes()).sum::<u64>();
    let tables: Vec<&Arc<Table>> = tables.filter(|table| !table.indexes.is_empty()).collect();
    let mut most = 0;
    batches(&tables, |table| table, |batch| most = most.max(batch.iter().map(|t| ordered(t)).sum()));
    most
}

/// A table whose indexes are being filled.
struct Filling<'a> {
    table: &'a Table,
    pages: Vec<PageNo>,
    /// Of each B+-tree among the indexes, the runs collected; empty lists for hash indexes.
    runs: Vec<Mutex<Vec<Run>>>,
}

/// Keys and row ids, one after another, in order once sorted.
type Run = Vec<u64>;

impl<'a> Filling<'a> {
    fn new(table: &'a Table) -> Filling<'a> {
        let runs = table.indexes.iter().map(|_| Mutex::default()).collect();
        Filling { table, pages: table.store.primary.pages(), runs }
    }
}

/// Work that cannot fail.
fn sure(done: Result<(), Infallible>) {
    match done {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

fn fill<'b>(batch: &'b [Filling<'b>], crew: Crew, meter: &'b Meter) {
    let strides = |(i, table): (usize, &Filling<'_>)| (0..table.pages.len()).step_by(STRIDE).map(move |from| (i, from));
    let pieces: Vec<(usize, usize)> = batch.iter().enumerate().flat_map(strides).collect();
    let work = |collector: &mut Collector<'b>, at: usize| {
        let (table, from) = pieces[at];
        collector.turn_to(&batch[table]);
        let pages = &batch[table].pages;
        let pages = &pages[from..pages.len().min(from + STRIDE)];
        collector.collect(pages);
        meter.add(pages.len() as u64 * PAGE_BYTES);
        Ok(())
    };
    sure(crew.work(pieces.len(), || Collector::new(meter), work, |mut collector| collector.hand_in()));
    build_trees(batch, crew, meter);
}

/// What one thread has of the table that it is at.
struct Collector<'b> {
    meter: &'b Meter,
    table: Option<&'b Filling<'b>>,
    row: Row,
    key: KeyBuf,
    /// Per index: entries of the hash index, or the run of the tree.
    hashes: Vec<Vec<(u64, RowId)>>,
    runs: Vec<Run>,
}

impl<'b> Collector<'b> {
    fn new(meter: &'b Meter) -> Collector<'b> {
        let (hashes, runs) = (Vec::new(), Vec::new());
        Collector { meter, table: None, row: Row::default(), key: KeyBuf::default(), hashes, runs }
    }

    fn turn_to(&mut self, table: &'b Filling<'b>) {
        if self.table.is_some_and(|current| std::ptr::eq(current, table)) {
            return;
        }
        self.hand_in();
        let indexes = table.table.indexes.len();
        self.hashes.resize_with(indexes, Vec::new);
        self.runs.resize_with(indexes, Vec::new);
        self.table = Some(table);
    }

    /// Sorts the runs and leaves them with their table.
    fn hand_in(&mut self) {
        let Some(table) = self.table.take() else { return };
        let indexes = table.table.indexes.iter().zip(&table.runs);
        for (run, (index, runs)) in self.runs.iter_mut().zip(indexes) {
            let mut run = std::mem::take(run);
            if !run.is_empty() {
                self.meter.take_scratch(run.len() as u64 * 8);
                sort(&mut run, index.spec.words() + 1);
                runs.lock().push(run);
            }
        }
    }

    fn collect(&mut self, pages: &[PageNo]) {
        let Some(Filling { table, .. }) = self.table else { return };
        let primary = &table.store.primary;
        for &page in pages {
            for id in (0..primary.slots_per_page()).map(|slot| RowId::new(page, slot as u16)) {
                let slot = primary.slot(id);
                if slot.load(1) & LIVE != 0 {
                    self.row.pick(primary.persistent_words(), &table.key_words, |at| slot.load(at));
                    self.add(table, id);
                }
            }
        }
        for (entries, index) in self.hashes.iter_mut().zip(&table.indexes) {
            if let Tree::Hash(tree) = &index.tree {
                tree.bulk_insert(entries.drain(..));
            }
        }
    }

    fn add(&mut self, table: &Table, id: RowId) {
        for (i, index) in table.indexes.iter().enumerate() {
            for column in index.spec.columns() {
                fetch_stored(table, &mut self.row, usize::from(column.column));
            }
            match &index.tree {
                Tree::Hash(_) => self.hashes[i].push((index.spec.hash_row(&table.layout, &self.row), id)),
                Tree::BTree(_) => {
                    index.spec.of_row(&table.layout, &self.row, &mut self.key);
                    self.runs[i].extend_from_slice(&self.key.words);
                    self.runs[i].push(id.0);
                }
            }
        }
    }
}

// ---- B+-trees

/// Sorts entries of so many words each.
fn sort(run: &mut Run, words: usize) {
    /// Entries as arrays of their length: compared in place, and moved whole.
    fn arrays<const WORDS: usize>(run: &mut [u64]) {
        run.as_chunks_mut::<WORDS>().0.sort_unstable();
    }
    match words {
        2 => arrays::<2>(run),
        3 => arrays::<3>(run),
        4 => arrays::<4>(run),
        5 => arrays::<5>(run),
        6 => arrays::<6>(run),
        7 => arrays::<7>(run),
        8 => arrays::<8>(run),
        9 => arrays::<9>(run),
        10 => arrays::<10>(run),
        // Wider keys are sorted through references, which takes their memory twice.
        _ => {
            let mut entries: Vec<&[u64]> = run.chunks_exact(words).collect();
            entries.sort_unstable();
            *run = entries.concat();
        }
    }
}

/// A tree with its sorted runs, and where they are cut.
struct Cut<'a> {
    index: &'a Index,
    tree: &'a BTreeIndex,
    runs: Vec<Run>,
    /// Entries that begin the second and later parts.
    cuts: Vec<Vec<u64>>,
    parts: Vec<Mutex<Option<TreePart>>>,
}

fn build_trees(batch: &[Filling<'_>], crew: Crew, meter: &Meter) {
    let mut trees = Vec::new();
    for table in batch {
        for (index, runs) in table.table.indexes.iter().zip(&table.runs) {
            if let Tree::BTree(tree) = &index.tree {
                let runs = std::mem::take(&mut *runs.lock());
                let cuts = cuts(&runs, index.spec.words() + 1, crew.threads);
                let parts = (0..=cuts.len()).map(|_| Mutex::default()).collect();
                trees.push(Cut { index, tree, runs, cuts, parts });
            }
        }
    }
    let pieces: Vec<(usize, usize)> =
        trees.iter().enumerate().flat_map(|(i, tree)| (0..tree.parts.len()).map(move |part| (i, part))).collect();
    let work = |(): &mut (), at: usize| {
        let (tree, part) = pieces[at];
        let cut = &trees[tree];
        *cut.parts[part].lock() = Some(cut.build(part));
        Ok(())
    };
    sure(crew.work(pieces.len(), || (), work, |()| ()));
    for Cut { tree, runs, parts, .. } in trees {
        tree.join(parts.into_iter().filter_map(Mutex::into_inner));
        meter.give_scratch(runs.iter().map(|run| run.len() as u64 * 8).sum());
    }
}

/// Entries that cut the runs into about equal parts, from the longest run. Small trees are not cut.
fn cuts(runs: &[Run], words: usize, parts: usize) -> Vec<Vec<u64>> {
    const PART_ENTRIES: usize = 1 << 14;
    let entries: usize = runs.iter().map(|run| run.len() / words).sum();
    let parts = parts.min(entries / PART_ENTRIES).max(1);
    let Some(longest) = runs.iter().max_by_key(|run| run.len()) else { return Vec::new() };
    let at = |part: usize| longest.len() / words * part / parts * words;
    (1..parts).map(|part| longest[at(part)..at(part) + words].to_vec()).collect()
}

impl Cut<'_> {
    /// Merges what lies between two cuts into leaves.
    fn build(&self, part: usize) -> TreePart {
        let words = self.index.spec.words() + 1;
        let bound = |run: &Run, cut: Option<&Vec<u64>>, otherwise: usize| match cut {
            Some(cut) => lower_bound(run, words, cut) * words,
            None => otherwise,
        };
        let low = part.checked_sub(1).map(|before| &self.cuts[before]);
        let high = self.cuts.get(part);
        let slices = self.runs.iter().map(|run| &run[bound(run, low, 0)..bound(run, high, run.len())]);
        let mut slices: Vec<&[u64]> = slices.filter(|slice| !slice.is_empty()).collect();
        let merged = std::iter::from_fn(|| {
            let (first, _) = slices.iter().enumerate().min_by_key(|(_, slice)| &slice[..words])?;
            let (entry, rest) = slices[first].split_at(words);
            if rest.is_empty() {
                slices.swap_remove(first);
            } else {
                slices[first] = rest;
            }
            Some((&entry[..words - 1], RowId(entry[words - 1])))
        });
        self.tree.build_part(part == 0, merged)
    }
}

/// The first entry of a sorted run that is not below `cut`.
fn lower_bound(run: &Run, words: usize, cut: &[u64]) -> usize {
    let (mut low, mut high) = (0, run.len() / words);
    while low < high {
        let middle = low + (high - low) / 2;
        if &run[middle * words..(middle + 1) * words] < cut { low = middle + 1 } else { high = middle }
    }
    low
}
