//! How are the rows of a range of an ordered index met in the exact order of its keys, each once? By its entries, each of which stands for its row only where
//! it has the key of the version that is seen.
//!
//! 1. A row comes up under the key of the version that its reader sees, and under no other: an entry of another version's key is passed over.
//! 2. The tree's words tell the order of all keys but those that are cut: of these, rows of the same first words are read together, and put in order.
//! 3. A cursor keeps nothing of the index, so that it may rest between batches and statements; the reader's snapshot is the same for all of its rows.

use super::core::Core;
use super::session::Session;
use crate::catalog::{Index, Table, Tree};
use crate::ids::RowId;
use crate::index::{Cursor, Direction as TreeDirection, Entries};
use crate::schema::{KeyBuf, KeySpec, Row};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

impl Direction {
    pub fn reversed(self) -> Direction {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

/// Who sees one version of each row at most: a session's statement, or a reader of it on another thread.
pub(super) trait Sees {
    fn core(&self) -> &Core;

    /// Copies the version of the row that is seen; false if none is.
    fn see(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool;

    /// Whether a version that is not committed may be seen: its own.
    fn may_see_own(&self) -> bool;

    /// For the key of the row at hand.
    fn key(&mut self) -> &mut KeyBuf;
}

impl Sees for Session {
    fn core(&self) -> &Core {
        &self.core
    }

    #[inline]
    fn see(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        self.read(table, id, row)
    }

    fn may_see_own(&self) -> bool {
        !self.writes.is_empty()
    }

    fn key(&mut self) -> &mut KeyBuf {
        &mut self.key
    }
}

/// Position of an index range scan.
pub struct RangeCursor {
    of: Spare,
    at: usize,
    direction: Direction,
    /// Rows that the index's words do not put in order, in order; used where keys are cut.
    ties: Vec<(RowId, Row)>,
    tie_at: usize,
}

/// What a range keeps of the index.
#[derive(Default)]
struct Spare {
    tree: Cursor,
    batch: Entries,
}

/// A longer one is not kept: that of a leaf of long keys.
const SPARE_BYTES_MAX: usize = 64 << 10;

std::thread_local! {
    /// That of the thread's last range: a statement allocates nothing for one.
    static SPARE: std::cell::Cell<Option<Spare>> = const { std::cell::Cell::new(None) };
}

impl Drop for RangeCursor {
    fn drop(&mut self) {
        if self.of.tree.memory_bytes() + self.of.batch.memory_bytes() <= SPARE_BYTES_MAX {
            let spare = std::mem::take(&mut self.of);
            // A thread that ends may have given it up before.
            let _ = SPARE.try_with(|place| place.set(Some(spare)));
        }
    }
}

/// Rows of a range that are on their way to the processor's cache while one is read: rows near in key order lie anywhere.
const ROWS_AHEAD: usize = 4;

impl RangeCursor {
    /// Before a range of an ordered index, both ends inclusive in words.
    pub(super) fn before(index: &Index, lower: &KeyBuf, upper: &KeyBuf, direction: Direction) -> RangeCursor {
        let Tree::BTree(tree) = &index.tree else {
            panic!("invariant: only an ordered index is asked for a range");
        };
        let towards = match direction {
            Direction::Forward => TreeDirection::Forward,
            Direction::Backward => TreeDirection::Backward,
        };
        let mut of = SPARE.take().unwrap_or_default();
        // What is cut says nothing of the order.
        tree.scan_again(&mut of.tree, KeySpec::lower_end(&lower.words), &upper.words, towards);
        of.batch.clear();
        RangeCursor { of, at: 0, direction, ties: Vec::new(), tie_at: 0 }
    }

    /// The next row that is seen, in exact key order, each once.
    pub(super) fn next(&mut self, by: &mut impl Sees, table: &Table, index: &Index, row: &mut Row) -> Option<RowId> {
        loop {
            if let Some((id, tie)) = self.ties.get(self.tie_at) {
                row.copy_from(tie);
                self.tie_at += 1;
                return Some(*id);
            }
            let id = self.next_entry(table, index)?;
            if !self.entry_holds(by, table, index, id, row) {
                continue;
            }
            if !KeySpec::is_cut(self.words()) {
                return Some(id);
            }
            self.gather_ties(by, table, index, id, row);
        }
    }

    /// The rows of all entries, as they stand there.
    pub(super) fn each_entry(&mut self, index: &Index, mut each: impl FnMut(RowId)) {
        let Tree::BTree(tree) = &index.tree else {
            panic!("invariant: only an ordered index is asked for a range");
        };
        let Spare { tree: cursor, batch } = &mut self.of;
        while cursor.next_batch(tree, batch) {
            (0..batch.len()).for_each(|at| each(batch.get(at).1));
        }
    }

    /// The key of the entry that was given last.
    fn words(&self) -> &[u64] {
        self.of.batch.get(self.at - 1).0
    }

    fn next_entry(&mut self, table: &Table, index: &Index) -> Option<RowId> {
        let Tree::BTree(tree) = &index.tree else {
            panic!("invariant: only an ordered index is asked for a range");
        };
        if self.at >= self.of.batch.len() {
            if !self.of.tree.next_batch(tree, &mut self.of.batch) {
                return None;
            }
            self.at = 0;
            (1..ROWS_AHEAD).for_each(|ahead| self.load_ahead(table, ahead));
        }
        self.load_ahead(table, ROWS_AHEAD);
        self.at += 1;
        Some(self.of.batch.get(self.at - 1).1)
    }

    /// Starts loading the row of the entry that is `ahead` of the next one.
    fn load_ahead(&self, table: &Table, ahead: usize) {
        if self.at + ahead < self.of.batch.len() {
            table.store.primary.prefetch_all(self.of.batch.get(self.at + ahead).1);
        }
    }

    /// Whether the entry given last has exactly the key of the version that is seen: nobody asks the row again. [`Index::has_moved`] speaks of what a
    /// snapshot sees; its own changes a session sees whenever they were made, so that who has made any compares.
    fn entry_holds(&mut self, by: &mut impl Sees, table: &Table, index: &Index, id: RowId, row: &mut Row) -> bool {
        if !by.see(table, id, row) {
            return false;
        }
        if !index.has_moved() && !by.may_see_own() && !KeySpec::is_cut(self.words()) {
            return true;
        }
        by.core().fetch_key_columns(table, index, row);
        let key = by.key();
        index.spec.of_row(&table.layout, row, key);
        self.words() == key.words
    }

    /// Reads every further row whose key is the same as far as words tell the order, and puts them in the rows' own.
    fn gather_ties(&mut self, by: &mut impl Sees, table: &Table, index: &Index, id: RowId, row: &mut Row) {
        self.ties.clear();
        self.tie_at = 0;
        self.ties.push((id, row.clone()));
        let lead = KeySpec::lower_end(self.words()).to_vec();
        while let Some(next) = self.next_entry(table, index) {
            if !self.words().starts_with(&lead) {
                self.at -= 1;
                break;
            }
            if self.entry_holds(by, table, index, next, row) {
                self.ties.push((next, row.clone()));
            }
        }
        let backward = self.direction == Direction::Backward;
        self.ties.sort_by(|a, b| {
            let order = index.spec.compare_rows(&table.layout, &a.1, &b.1);
            if backward { order.reverse() } else { order }
        });
    }
}

impl Session {
    /// A range over a B+-tree index, both ends inclusive in words (`index.spec.encode`, `pad_high` for the upper one): a
    /// superset, which the caller's conditions narrow.
    pub fn range(&mut self, index: &Index, lower: &KeyBuf, upper: &KeyBuf, direction: Direction) -> RangeCursor {
        self.note_range(index, KeySpec::lower_end(&lower.words), &upper.words);
        RangeCursor::before(index, lower, upper, direction)
    }

    /// The next visible row of the range in exact key order, each row once.
    pub fn range_next(
        &mut self,
        table: &Table,
        index: &Index,
        cursor: &mut RangeCursor,
        row: &mut Row,
    ) -> Option<RowId> {
        cursor.next(self, table, index, row)
    }
}
