//! Filling indexes from the rows that are in place: at a restart, for CREATE INDEX, at the end of a bulk load.
//!
//! | index | how |
//! |---|---|
//! | hash | sized for the rows counted, then filled by all threads at once, each fetching a batch of buckets ahead; nothing splits |
//! | B+-tree | each thread collects and sorts a run; the runs are cut at the same keys, and each cut is merged into leaves of its own |
//!
//! A table's indexes are filled in one pass over its pages, of which only the words of keys are read.
//!
//! 1. Nobody writes the tables meanwhile: after replay nobody is there, DDL has closed the table's gate, a load has its storage to itself.
//!    Garbage collection may cut chains, which changes heads and no record.
//! 2. A row with a chain is not entered but given back as *aged*: the caller enters each of its versions.
//! 3. Where keys are checked no two rows of equal keys get past: of a hash index the later inserter meets the earlier one under the
//!    bucket's lock; in a tree equal keys are neighbours after the sort, and no cut parts them.

use crate::catalog::{Index, Table, Tree};
use crate::crew::Crew;
use crate::ids::{PageNo, RowId};
use crate::index::{BTreeIndex, Conflict, Probe, TreePart};
use crate::mem::{Claim, PAGE_WORDS};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, LIVE, Row};
use crate::txn::fetch_stored;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that a thread takes at once.
const STRIDE: usize = 32;
const PAGE_BYTES: u64 = (PAGE_WORDS * 8) as u64;
/// Merged entries after which a thread looks whether it shall stop.
const LOOK_EVERY: usize = 1 << 14;

/// Who has the indexes filled: what it asks for, and what it is told.
pub(crate) trait Overseer: Sync {
    /// Whether unique keys are to be checked, and memory to be asked for.
    fn is_checked(&self) -> bool;
    /// Bytes of pages that were worked off.
    fn done(&self, bytes: u64);
    /// Memory for keys being sorted; false: there is none.
    fn take_scratch(&self, bytes: u64) -> bool;
    fn give_scratch(&self, bytes: u64);
    fn is_cancelled(&self) -> bool;
}

/// Why indexes could not be filled. What is in them means nothing then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// Two rows have the same key of this unique index.
    Duplicate(String),
    OutOfMemory,
    Cancelled,
}

/// A table whose indexes are being filled.
pub(crate) struct Filling<'a> {
    table: &'a Table,
    indexes: &'a [Arc<Index>],
    pages: Vec<PageNo>,
    /// Record words of their keys.
    key_words: Vec<usize>,
    /// Of each B+-tree among the indexes, the runs collected; empty lists for hash indexes.
    runs: Vec<Mutex<Vec<Run>>>,
    aged: Mutex<Vec<RowId>>,
}

/// Entries, in order once sorted: each a key and a row id.
#[derive(Default)]
struct Run {
    /// Of entries of one length one after another. Of others each comes behind the number of its words.
    words: Vec<u64>,
    /// Words of each entry; 0 if they differ.
    stride: usize,
    /// Where the entries begin, in their order, if they differ in length.
    starts: Vec<u64>,
}

/// A part of a run.
#[derive(Clone, Copy)]
struct Slice<'a> {
    run: &'a Run,
    from: usize,
    to: usize,
}

impl Run {
    fn new(index: &Index) -> Run {
        let stride = if index.spec.is_string() { 0 } else { index.spec.words() + 1 };
        Run { stride, ..Run::default() }
    }

    fn len(&self) -> usize {
        self.words.len().checked_div(self.stride).unwrap_or(self.starts.len())
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    fn entry(&self, i: usize) -> &[u64] {
        match self.stride {
            0 => entry_at(&self.words, self.starts[i]),
            stride => &self.words[i * stride..(i + 1) * stride],
        }
    }

    fn push(&mut self, key: &[u64], id: RowId) {
        if self.stride == 0 {
            self.starts.push(self.words.len() as u64);
            self.words.push(key.len() as u64 + 1);
        }
        self.words.extend_from_slice(key);
        self.words.push(id.0);
    }

    fn sort(&mut self, overseer: &impl Overseer) -> Result<(), Unfit> {
        let Run { words, stride, starts } = self;
        match *stride {
            // Keys of which none is the beginning of another: with a row id behind each they are in the same order.
            0 => sort_by(starts, |&a, &b| entry_at(words, a).cmp(entry_at(words, b)), overseer),
            stride => sort(words, stride, overseer),
        }
    }

    /// The first entry that is not below `cut`.
    fn lower_bound(&self, cut: &[u64]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle) < cut { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// An entry behind the number of its words.
fn entry_at(words: &[u64], start: u64) -> &[u64] {
    let start = start as usize;
    &words[start + 1..][..words[start] as usize]
}

impl<'a> Filling<'a> {
    /// `indexes` are empty, and need not be the table's yet.
    pub fn new(table: &'a Table, indexes: &'a [Arc<Index>]) -> Filling<'a> {
        let runs = indexes.iter().map(|_| Mutex::default()).collect();
        let columns = indexes.iter().flat_map(|index| index.def.columns.iter());
        let mut key_words: Vec<usize> =
            columns.flat_map(|column| table.layout.words_of(usize::from(column.column))).collect();
        key_words.sort_unstable();
        key_words.dedup();
        let pages = table.store.primary.pages();
        Filling { table, indexes, pages, key_words, runs, aged: Mutex::default() }
    }

    pub fn table(&self) -> &Table {
        self.table
    }

    pub fn pages(&self) -> usize {
        self.pages.len()
    }
}

/// What the sorting takes, until it is over.
struct Scratch<'a, O: Overseer> {
    overseer: &'a O,
    taken: AtomicU64,
}

impl<O: Overseer> Scratch<'_, O> {
    /// Room for another entry of so many key words.
    fn make_room(&self, run: &mut Run, words: usize) -> Result<(), Unfit> {
        if run.stride > 0 {
            return self.make_room_in(&mut run.words, words + 1);
        }
        self.make_room_in(&mut run.words, words + 2)?;
        self.make_room_in(&mut run.starts, 1)
    }

    fn make_room_in(&self, list: &mut Vec<u64>, words: usize) -> Result<(), Unfit> {
        const FIRST_WORDS: usize = 1 << 10;
        if list.len() + words <= list.capacity() {
            return Ok(());
        }
        let more = list.capacity().max(FIRST_WORDS);
        if !self.overseer.take_scratch(more as u64 * 8) {
            return Err(Unfit::OutOfMemory);
        }
        self.taken.fetch_add(more as u64 * 8, Ordering::Relaxed);
        list.reserve_exact(list.capacity() + more - list.len());
        Ok(())
    }
}

impl<O: Overseer> Drop for Scratch<'_, O> {
    fn drop(&mut self) {
        self.overseer.give_scratch(*self.taken.get_mut());
    }
}

/// Fills the indexes; gives the aged rows of each table, by the tables' positions.
pub(crate) fn fill<'b, O: Overseer>(
    batch: &'b [Filling<'b>],
    crew: Crew,
    overseer: &O,
) -> Result<Vec<(usize, RowId)>, Unfit> {
    let scratch = Scratch { overseer, taken: AtomicU64::new(0) };
    let strides = |(i, table): (usize, &Filling<'_>)| (0..table.pages.len()).step_by(STRIDE).map(move |from| (i, from));
    let pieces: Vec<(usize, usize)> = batch.iter().enumerate().flat_map(strides).collect();
    let work = |collector: &mut Collector<'_, 'b, O>, at: usize| {
        if overseer.is_cancelled() {
            return Err(Unfit::Cancelled);
        }
        let (table, from) = pieces[at];
        collector.turn_to(&batch[table])?;
        let pages = &batch[table].pages;
        let pages = &pages[from..pages.len().min(from + STRIDE)];
        collector.collect(pages)?;
        overseer.done(pages.len() as u64 * PAGE_BYTES);
        Ok(())
    };
    // A thread that gives up as it sorts ends the work of all.
    let sorted = Mutex::new(Ok(()));
    let finish = |mut collector: Collector<'_, 'b, O>| {
        if let Err(unfit) = collector.hand_in() {
            *sorted.lock() = Err(unfit);
        }
    };
    crew.work(pieces.len(), || Collector::new(&scratch), work, finish)?;
    sorted.into_inner()?;
    build_trees(batch, crew, overseer)?;
    let aged = batch.iter().enumerate();
    Ok(aged.flat_map(|(i, table)| std::mem::take(&mut *table.aged.lock()).into_iter().map(move |id| (i, id))).collect())
}

/// What one thread has of the table that it is at.
struct Collector<'s, 'b, O: Overseer> {
    scratch: &'s Scratch<'s, O>,
    table: Option<&'b Filling<'b>>,
    row: Row,
    key: KeyBuf,
    /// Per index: entries of the hash index, or the run of the tree.
    hashes: Vec<Vec<(u64, RowId)>>,
    runs: Vec<Run>,
    aged: Vec<RowId>,
}

impl<'s, 'b, O: Overseer> Collector<'s, 'b, O> {
    fn new(scratch: &'s Scratch<'s, O>) -> Collector<'s, 'b, O> {
        let (hashes, runs, aged) = (Vec::new(), Vec::new(), Vec::new());
        Collector { scratch, table: None, row: Row::default(), key: KeyBuf::default(), hashes, runs, aged }
    }

    fn turn_to(&mut self, table: &'b Filling<'b>) -> Result<(), Unfit> {
        if self.table.is_some_and(|current| std::ptr::eq(current, table)) {
            return Ok(());
        }
        self.hand_in()?;
        self.hashes.resize_with(table.indexes.len(), Vec::new);
        self.runs = table.indexes.iter().map(|index| Run::new(index)).collect();
        self.table = Some(table);
        Ok(())
    }

    /// Sorts the runs and leaves them with their table.
    fn hand_in(&mut self) -> Result<(), Unfit> {
        let Some(table) = self.table.take() else { return Ok(()) };
        table.aged.lock().append(&mut self.aged);
        for (mut run, runs) in self.runs.drain(..).zip(&table.runs) {
            if !run.is_empty() {
                run.sort(self.scratch.overseer)?;
                runs.lock().push(run);
            }
        }
        Ok(())
    }

    fn collect(&mut self, pages: &[PageNo]) -> Result<(), Unfit> {
        let Some(Filling { table, indexes, key_words, .. }) = self.table else { return Ok(()) };
        let primary = &table.store.primary;
        for &page in pages {
            for id in (0..primary.slots_per_page()).map(|slot| RowId::new(page, slot as u16)) {
                let slot = primary.slot(id);
                if !slot.head().node.is_none() {
                    self.aged.push(id);
                } else if slot.load(1) & LIVE != 0 {
                    self.row.pick(primary.persistent_words(), key_words, |at| slot.load(at));
                    self.add(table, indexes, id)?;
                }
            }
        }
        let checked = self.scratch.overseer.is_checked();
        for (entries, index) in self.hashes.iter_mut().zip(*indexes) {
            match &index.tree {
                Tree::Hash(tree) if checked => {
                    let twins = Twins { table, index };
                    let unique = index.def.is_key() && !planted::is(Bug::SkipBuildCheck);
                    let probe =
                        |id, met| if unique && twins.is_pair(id, met) { Probe::Duplicate } else { Probe::Ignore };
                    tree.bulk_insert_checked(entries, unique, probe).map_err(|conflict| twins.unfit(conflict))?;
                    entries.clear();
                }
                Tree::Hash(tree) => tree.bulk_insert(entries.drain(..)),
                Tree::BTree(_) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, table: &Table, indexes: &[Arc<Index>], id: RowId) -> Result<(), Unfit> {
        for (i, index) in indexes.iter().enumerate() {
            for column in index.spec.columns() {
                fetch_stored(table, &mut self.row, usize::from(column.column));
            }
            match &index.tree {
                Tree::Hash(_) => self.hashes[i].push((index.spec.hash_row(&table.layout, &self.row), id)),
                Tree::BTree(_) => {
                    index.spec.of_row(&table.layout, &self.row, &mut self.key);
                    self.scratch.make_room(&mut self.runs[i], self.key.words.len())?;
                    self.runs[i].push(&self.key.words, id);
                }
            }
        }
        Ok(())
    }
}

/// Looks whether rows that an index cannot tell apart have one key.
struct Twins<'a> {
    table: &'a Table,
    index: &'a Index,
}

impl Twins<'_> {
    /// The row's columns; nothing if its key equals no other.
    fn key_of(&self, id: RowId) -> Option<Row> {
        let primary = &self.table.store.primary;
        let mut row = Row::default();
        primary.slot(id).copy(row.start_copy(primary.persistent_words()));
        for column in self.index.spec.columns() {
            fetch_stored(self.table, &mut row, usize::from(column.column));
        }
        (!self.index.def.exempts(&self.table.layout, &row)).then_some(row)
    }

    fn is_pair(&self, a: RowId, b: RowId) -> bool {
        let keys = self.key_of(a).zip(self.key_of(b));
        keys.is_some_and(|(a, b)| self.index.spec.rows_equal(&self.table.layout, &a, &b))
    }

    /// Whether any two of the rows, whose keys are equal in words, are.
    fn has_pair(&self, ids: &[RowId]) -> bool {
        let mut keys: Vec<Row> = ids.iter().filter_map(|&id| self.key_of(id)).collect();
        keys.sort_by(|a, b| self.index.spec.compare_rows(&self.table.layout, a, b));
        keys.windows(2).any(|pair| self.index.spec.rows_equal(&self.table.layout, &pair[0], &pair[1]))
    }

    fn unfit(&self, conflict: Conflict) -> Unfit {
        match conflict {
            Conflict::OutOfMemory => Unfit::OutOfMemory,
            Conflict::Duplicate(_) | Conflict::Wait(_) => Unfit::Duplicate(self.index.def.name.clone()),
        }
    }
}

// ---- B+-trees

/// Sorts entries of so many words each.
fn sort(run: &mut Vec<u64>, words: usize, overseer: &impl Overseer) -> Result<(), Unfit> {
    /// Entries as arrays of their length: compared in place, and moved whole.
    fn arrays<const WORDS: usize>(run: &mut [u64], overseer: &impl Overseer) -> Result<(), Unfit> {
        sort_by(run.as_chunks_mut::<WORDS>().0, Ord::cmp, overseer)
    }
    match words {
        2 => arrays::<2>(run, overseer),
        3 => arrays::<3>(run, overseer),
        4 => arrays::<4>(run, overseer),
        5 => arrays::<5>(run, overseer),
        6 => arrays::<6>(run, overseer),
        7 => arrays::<7>(run, overseer),
        8 => arrays::<8>(run, overseer),
        9 => arrays::<9>(run, overseer),
        10 => arrays::<10>(run, overseer),
        // Wider keys are sorted through references, which takes their memory twice.
        _ => {
            let mut entries: Vec<&[u64]> = run.chunks_exact(words).collect();
            sort_by(&mut entries, Ord::cmp, overseer)?;
            *run = entries.concat();
            Ok(())
        }
    }
}

/// Entries that are sorted or parted between two looks at whether to go on: some milliseconds.
const SORTED_AT_ONCE: usize = 1 << 15;

/// Sorts distinct items, and looks now and then whether it shall stop: it parts them as quicksort does until the parts are small. Measured it takes as
/// long as the library's sort of all.
fn sort_by<T: Copy>(
    items: &mut [T],
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
    overseer: &impl Overseer,
) -> Result<(), Unfit> {
    let go_on = || if overseer.is_cancelled() { Err(Unfit::Cancelled) } else { Ok(()) };
    // Numbers that came in order lie in order, mostly.
    let mut in_order = 1;
    while in_order < items.len() && order(&items[in_order - 1], &items[in_order]).is_lt() {
        in_order += 1;
        if in_order.is_multiple_of(SORTED_AT_ONCE) {
            go_on()?;
        }
    }
    let mut parts = if in_order < items.len() { vec![items] } else { Vec::new() };
    while let Some(part) = parts.pop() {
        go_on()?;
        if part.len() <= SORTED_AT_ONCE {
            part.sort_unstable_by(&order);
            continue;
        }
        let pivot = middle_of_samples(part, &order);
        let mut low = 0;
        for at in 0..part.len() {
            // Without a branch: which side an item is of cannot be foretold.
            let is_low = order(&part[at], &pivot).is_lt();
            part.swap(at, low);
            low += usize::from(is_low);
            if at.is_multiple_of(SORTED_AT_ONCE) {
                go_on()?;
            }
        }
        let (low, high) = part.split_at_mut(low);
        parts.extend([high, low]);
    }
    Ok(())
}

/// Half of the samples are below it, so neither side of a part is empty.
fn middle_of_samples<T: Copy>(part: &[T], order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    const SAMPLES: usize = 63;
    let mut samples: [T; SAMPLES] = std::array::from_fn(|i| part[part.len() / SAMPLES * i]);
    samples.sort_unstable_by(order);
    samples[SAMPLES / 2]
}

/// A tree with its sorted runs, and where they are cut.
struct Cut<'a> {
    table: &'a Table,
    index: &'a Index,
    tree: &'a BTreeIndex,
    runs: Vec<Run>,
    /// Positions that begin the second and later parts: keys without a row, so that equal keys stay together.
    cuts: Vec<Vec<u64>>,
    parts: Vec<Mutex<Option<TreePart>>>,
}

fn build_trees<O: Overseer>(batch: &[Filling<'_>], crew: Crew, overseer: &O) -> Result<(), Unfit> {
    let mut trees = Vec::new();
    for filling in batch {
        for (index, runs) in filling.indexes.iter().zip(&filling.runs) {
            if let Tree::BTree(tree) = &index.tree {
                let runs = std::mem::take(&mut *runs.lock());
                let cuts = cuts(&runs, crew.threads);
                let entries = runs.iter().map(Run::len).sum();
                let tail_blocks = runs.iter().map(|run| tail_blocks(tree, run)).sum();
                if overseer.is_checked() && !tree.take_for_build(entries, cuts.len() + 1, tail_blocks, Claim::Growth) {
                    return Err(Unfit::OutOfMemory);
                }
                let parts = (0..=cuts.len()).map(|_| Mutex::default()).collect();
                trees.push(Cut { table: filling.table, index, tree, runs, cuts, parts });
            }
        }
    }
    let pieces: Vec<(usize, usize)> =
        trees.iter().enumerate().flat_map(|(i, tree)| (0..tree.parts.len()).map(move |part| (i, part))).collect();
    let work = |(): &mut (), at: usize| {
        let (tree, part) = pieces[at];
        let cut = &trees[tree];
        *cut.parts[part].lock() = Some(cut.build(part, overseer)?);
        Ok(())
    };
    crew.work(pieces.len(), || (), work, |()| ())?;
    for Cut { tree, parts, .. } in trees {
        tree.join(parts.into_iter().filter_map(Mutex::into_inner));
    }
    Ok(())
}

/// What the keys of a run take outside of the tree's nodes.
fn tail_blocks(tree: &BTreeIndex, run: &Run) -> usize {
    if run.stride > 0 {
        return 0;
    }
    (0..run.len()).map(|i| run.entry(i)).map(|entry| tree.tail_blocks(&entry[..entry.len() - 1])).sum()
}

/// Keys that cut the runs into about equal parts, from the longest run. Small trees are not cut.
fn cuts(runs: &[Run], parts: usize) -> Vec<Vec<u64>> {
    const PART_ENTRIES: usize = 1 << 14;
    let entries: usize = runs.iter().map(Run::len).sum();
    let parts = parts.min(entries / PART_ENTRIES).max(1);
    let Some(longest) = runs.iter().max_by_key(|run| run.len()) else { return Vec::new() };
    let cut = |part: usize| {
        let mut cut = longest.entry(longest.len() * part / parts).to_vec();
        *cut.last_mut().expect("an entry has a row id") = 0;
        cut
    };
    (1..parts).map(cut).collect()
}

impl Cut<'_> {
    /// Merges what lies between two cuts into leaves.
    fn build<O: Overseer>(&self, part: usize, overseer: &O) -> Result<TreePart, Unfit> {
        let low = part.checked_sub(1).map(|before| &self.cuts[before]);
        let high = self.cuts.get(part);
        let slice = |run| Slice {
            run,
            from: low.map_or(0, |cut| run.lower_bound(cut)),
            to: high.map_or(run.len(), |cut| run.lower_bound(cut)),
        };
        let slices: Vec<Slice<'_>> = self.runs.iter().map(slice).filter(|slice| slice.from < slice.to).collect();
        let is_checked = overseer.is_checked() && self.index.def.is_key() && !planted::is(Bug::SkipBuildCheck);
        let twins = is_checked.then_some(Twins { table: self.table, index: self.index });
        let mut merge = Merge { slices, overseer, twins, alike: Vec::new(), key: Vec::new(), seen: 0, unfit: None };
        let built = self.tree.build_part(part == 0, &mut merge);
        merge.close();
        merge.unfit.map_or(Ok(built), Err)
    }
}

/// Entries of several sorted runs in one order. Ends early when it is found that the index cannot be.
struct Merge<'a, O: Overseer> {
    slices: Vec<Slice<'a>>,
    overseer: &'a O,
    /// Given where keys are checked.
    twins: Option<Twins<'a>>,
    /// Rows whose keys are equal to the last in words.
    alike: Vec<RowId>,
    key: Vec<u64>,
    seen: usize,
    unfit: Option<Unfit>,
}

impl<'a, O: Overseer> Iterator for &mut Merge<'a, O> {
    type Item = (&'a [u64], RowId);

    fn next(&mut self) -> Option<Self::Item> {
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK_EVERY) && self.overseer.is_cancelled() {
            self.unfit = Some(Unfit::Cancelled);
        }
        if self.unfit.is_some() {
            return None;
        }
        let (first, _) = self.slices.iter().enumerate().min_by_key(|(_, slice)| slice.run.entry(slice.from))?;
        let Slice { run, from, to } = self.slices[first];
        if from + 1 == to {
            self.slices.swap_remove(first);
        } else {
            self.slices[first].from += 1;
        }
        let (row, key) = run.entry(from).split_last().expect("an entry has a row id");
        let row = RowId(*row);
        if self.twins.is_some() {
            self.note(key, row);
        }
        Some((key, row))
    }
}

impl<O: Overseer> Merge<'_, O> {
    fn note(&mut self, key: &[u64], row: RowId) {
        if key != self.key {
            self.close();
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.alike.push(row);
    }

    /// The rows of one key in words are together: none may have the same key.
    fn close(&mut self) {
        if let Some(twins) = &self.twins
            && self.alike.len() > 1
            && twins.has_pair(&self.alike)
        {
            self.unfit.get_or_insert(Unfit::Duplicate(twins.index.def.name.clone()));
        }
        self.alike.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Cancels after so many looks.
    struct Patient(AtomicUsize);

    impl Overseer for Patient {
        fn is_checked(&self) -> bool {
            true
        }

        fn done(&self, _: u64) {}

        fn take_scratch(&self, _: u64) -> bool {
            true
        }

        fn give_scratch(&self, _: u64) {}

        fn is_cancelled(&self) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
        }
    }

    fn patient(looks: usize) -> Patient {
        Patient(AtomicUsize::new(looks))
    }

    /// Keys of each kind, each entry with a number of its own behind the key.
    fn entries(count: usize, key: impl Fn(u64) -> u64) -> Vec<[u64; 2]> {
        (0..count as u64).map(|i| [key(i), i]).collect()
    }

    #[test]
    fn entries_are_sorted_whatever_their_order_was() {
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for count in [0, 1, 2, SORTED_AT_ONCE, SORTED_AT_ONCE + 1, 5 * SORTED_AT_ONCE] {
            let kinds: [Vec<[u64; 2]>; 5] = [
                entries(count, spread),
                entries(count, |i| spread(i) % 3),
                entries(count, |i| i),
                entries(count, |i| u64::MAX - i),
                entries(count, |i| if i == count as u64 / 2 { 0 } else { i + 1 }),
            ];
            for mut kind in kinds {
                let mut expected = kind.clone();
                expected.sort_unstable();
                sort_by(&mut kind, Ord::cmp, &patient(usize::MAX)).expect("nobody cancels");
                assert!(kind == expected, "{count} entries");
            }
        }
    }

    #[test]
    fn a_sort_looks_often_whether_it_shall_stop() {
        let count = 20 * SORTED_AT_ONCE;
        for looks in [0, 1, 10, 40] {
            let mut entries = entries(count, |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(sort_by(&mut entries, Ord::cmp, &patient(looks)), Err(Unfit::Cancelled), "after {looks} looks");
        }
    }
}
