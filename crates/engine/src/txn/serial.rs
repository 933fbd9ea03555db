//! Does what a SERIALIZABLE transaction read still hold when it commits? Precision locking: its predicates against what others changed meanwhile.
//!
//! | predicate | met by a changed row |
//! |---|---|
//! | a key of a hash index | whose hash is that key's |
//! | a range of an ordered index, a key among them | whose key lies in it |
//! | a whole table | of that table |
//!
//! The order is that of commit timestamps. A transaction with snapshot S and cts C has read as if at C if no row that meets one of its predicates
//! was changed by a commit between S and C: what it has found, and what it has not found, it would find again. So
//!
//! 1. Each commit that changes rows while some SERIALIZABLE transaction is registered notes them here, before it draws its cts, and says that cts
//!    at once when it is drawn. So whoever has drawn C and finds a note without a cts does not know whether that one comes before: it counts.
//! 2. Who registers says so first, then lets every commit under way end (each holds its thread's worker, and asks under that whether to note),
//!    and takes a snapshot of at least what was drawn by then. What was not noted lies below the snapshot.
//! 3. A changed row is looked at as S sees it, as it is committed now and as it lies in place. What it was between is no matter: the state just
//!    before C counts. Where the newest committed version is above C, that state is not in sight, and the row counts.
//! 4. Validation ends after the draw and waits for nobody: what was noted by the announcement was looked at before, the few notes since then are
//!    copied out under the list's latch into a place that was made for them, and rows into a buffer that was. Nobody holds that latch while he waits,
//!    draws or looks at a row. What cannot be decided so, or is not known any more, fails it: 40001. The cts of who fails installs nothing,
//!    and his note counts for nobody.
//! 5. The list holds what was changed since the oldest registered snapshot, as long as that is not too much. `lost` is the largest cts of what is
//!    not in it: who has a snapshot below that fails.
//! 6. Who changed nothing needs no validation, READ ONLY or not: its place in the order is S, where it has read, and all that commits validate as
//!    of their own cts. That holds for whoever writes at another level, too: the order of commits is an order of states, of which it sees one.
//!    Only who was told of something newer than S by an error, and went back to a savepoint, is looked at: his place is where he was told.
//! 7. Rows are looked at where the transaction's own schema has them. A table that it gave another storage, an index that it dropped: what
//!    it read there before cannot be looked at any more, and every change counts.
//!
//! Whoever writes at a lower level is noted, but not validated: as in PostgreSQL, what is serializable is so among SERIALIZABLE transactions.
//! A transaction that only wrote what others have read is not stopped, but one that read what others have written since is, even without a
//! cycle: stricter than PostgreSQL's SSI, which lets it pass if the other one has no conflict out.
//!
//! Sources: precision locking (Jordan, Banerjee, Batman 1981) against recent deltas, as in HyPer (Neumann, Mühlbauer, Kemper, SIGMOD 2015).

use super::core::Core;
use super::noted::{NOTES_TOGETHER, Noted, UNDECIDED, may_lie_between};
use super::rows::{copy_committed, read_version};
use super::session::{Session, Write};
use crate::catalog::{Index, IndexId, Schema, Table, TableId, Tree};
use crate::ids::{Cts, RowId};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, KeyPart, Row, Value};
use crate::table::{PRIMARY, SessionNo};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Keys and ranges of an index that a transaction remembers one by one; beyond them it has read all of it.
const KEYS_MAX: usize = 4096;
/// Looks at a row that others keep changing.
const LOOKS: usize = 256;

/// From the first key to the last, both of them in it.
type KeyRange = (Box<[u64]>, Box<[u64]>);

/// What a transaction read of an index.
#[derive(Default)]
struct OfIndex {
    is_all: bool,
    hashes: HashSet<u64>,
    ranges: Vec<KeyRange>,
}

impl OfIndex {
    fn bound(&mut self) {
        if self.hashes.len() + self.ranges.len() > KEYS_MAX {
            *self = OfIndex { is_all: true, ..OfIndex::default() };
        }
    }
}

/// What a SERIALIZABLE transaction has read.
#[derive(Default)]
pub(super) struct Reads {
    /// Its snapshot is at least this.
    from: Cts,
    /// Notes before this one are decided and were looked at.
    checked: u64,
    /// It cannot be known whether all changes were noted.
    is_lost: bool,
    /// It was told of something that is newer than its snapshot.
    has_met_newer: bool,
    /// What it read lies where its own schema does not lead any more (invariant 7).
    is_blind: bool,
    tables: HashSet<TableId>,
    indexes: HashMap<IndexId, OfIndex>,
    /// Made by the first look before the draw.
    looking: Option<Box<Looking>>,
}

/// Room for what validation looks at: nothing is allocated after the draw.
struct Looking {
    notes: Vec<Arc<Noted>>,
    row: Row,
    key: KeyBuf,
    /// No long value is fetched any more either.
    is_drawn: bool,
}

impl Looking {
    fn new() -> Box<Looking> {
        let notes = Vec::with_capacity(NOTES_TOGETHER);
        Box::new(Looking { notes, row: Row::with_room(), key: KeyBuf::with_room(), is_drawn: false })
    }
}

impl Reads {
    pub fn least_snapshot(&self) -> Cts {
        self.from
    }

    /// Whether even who changed nothing has to be validated (invariant 6).
    pub fn needs_validation(&self) -> bool {
        self.has_met_newer
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.indexes.is_empty()
    }

    fn note_key<'a>(&mut self, index: &Index, value: impl Fn(usize) -> Value<'a>) {
        let of_index = self.indexes.entry(index.id).or_default();
        if of_index.is_all || planted::is(Bug::ForgetRanges) {
            return;
        }
        match &index.tree {
            Tree::Hash(_) => _ = of_index.hashes.insert(index.spec.hash(&value)),
            Tree::BTree(_) => {
                let mut key = KeyBuf::default();
                index.spec.encode(&mut key, |i| KeyPart::Value(value(i)));
                let words: Box<[u64]> = key.words.as_slice().into();
                if of_index.ranges.last().is_none_or(|(lower, upper)| *lower != words || *upper != words) {
                    of_index.ranges.push((words.clone(), words));
                }
            }
        }
        of_index.bound();
    }

    fn note_range(&mut self, index: IndexId, lower: &[u64], upper: &[u64]) {
        let of_index = self.indexes.entry(index).or_default();
        if !of_index.is_all && !planted::is(Bug::ForgetRanges) {
            of_index.ranges.push((lower.into(), upper.into()));
            of_index.bound();
        }
    }

    /// Whether a version of a row meets a predicate. After the draw a key with a long value, which would have to be fetched, counts as one that does.
    fn meets(&self, core: &Core, table: &Table, looking: &mut Looking) -> bool {
        let Looking { row, key, is_drawn, .. } = looking;
        row.is_live()
            && table.indexes.iter().any(|index| {
                let Some(of_index) = self.indexes.get(&index.id) else { return false };
                if of_index.is_all || *is_drawn && has_long_key(table, index, row) {
                    return true;
                }
                core.fetch_key_columns(table, index, row);
                match &index.tree {
                    Tree::Hash(_) => of_index.hashes.contains(&index.spec.hash_row(&table.layout, row)),
                    Tree::BTree(_) => {
                        index.spec.of_row(&table.layout, row, key);
                        let words: &[u64] = &key.words;
                        of_index.ranges.iter().any(|(lower, upper)| **lower <= *words && *words <= **upper)
                    }
                }
            })
    }
}

fn has_long_key(table: &Table, index: &Index, row: &Row) -> bool {
    let is_long = |column: u16| {
        let column = usize::from(column);
        table.layout.is_in_extension(column) || row.stored(&table.layout, column).is_some()
    };
    index.spec.has_variable() && index.spec.columns().any(|c| is_long(c.column))
}

/// Whose reads are looked at, and as of when.
pub(super) struct Validation<'a> {
    pub core: &'a Core,
    pub me: SessionNo,
    pub schema: &'a Schema,
    /// The schema is the transaction's own.
    pub is_own_schema: bool,
    pub snapshot: Cts,
}

impl Validation<'_> {
    /// Before the draw: whether what is decided by now lets the transaction commit. What is looked at here is not looked at again.
    pub fn holds_so_far(&self, reads: &mut Reads) -> bool {
        if planted::is(Bug::SkipValidation) {
            return true;
        }
        let has = |id: &IndexId| self.schema.tables().any(|t| t.indexes.iter().any(|i| i.id == *id));
        reads.is_blind = self.is_own_schema && !reads.indexes.keys().all(has);
        let mut looking = reads.looking.take().unwrap_or_else(Looking::new);
        let mut notes = std::mem::take(&mut looking.notes);
        let (mut at, mut is_prefix, mut holds) = (reads.checked, true, true);
        while holds {
            notes.clear();
            at = self.core.serial.some_from(at, &mut notes);
            if notes.is_empty() {
                break;
            }
            for note in &notes {
                let cts = note.drawn();
                is_prefix &= cts != UNDECIDED;
                holds &= cts == UNDECIDED || !self.is_in_the_way(reads, note, cts, Cts::MAX, &mut looking);
                at += 1;
                if is_prefix {
                    reads.checked = at;
                }
            }
        }
        notes.clear();
        looking.notes = notes;
        reads.looking = Some(looking);
        holds
    }

    /// After the draw of `cts`: whether the transaction may commit with it. `own` are its own changes. It was asked before whether all holds so far.
    pub fn holds(&self, reads: &mut Reads, cts: Cts, own: Option<&Arc<Noted>>) -> bool {
        let Some(mut looking) = reads.looking.take() else { return planted::is(Bug::SkipValidation) };
        if reads.is_empty() || reads.is_lost {
            return !reads.is_lost;
        }
        let mut notes = std::mem::take(&mut looking.notes);
        looking.is_drawn = true;
        let in_the_way = |note: &Noted, drawn: u64| self.is_in_the_way(reads, note, drawn, cts, &mut looking);
        let holds = self.core.serial.holds(reads.checked, self.snapshot, own, &mut notes, in_the_way);
        looking.notes = notes;
        reads.looking = Some(looking);
        holds
    }

    /// Whether the note's commit, of `drawn` or undecided, may come before `cts` and has changed what was read.
    fn is_in_the_way(&self, reads: &Reads, note: &Noted, drawn: u64, cts: Cts, looking: &mut Looking) -> bool {
        if planted::is(Bug::SkipSmallerCts) && drawn != UNDECIDED && Cts(drawn) > self.core.log.watermark() {
            return false;
        }
        if !may_lie_between(self.snapshot, drawn, cts) {
            return false;
        }
        if note.is_all || reads.is_blind {
            return !reads.is_empty();
        }
        note.rows.iter().any(|&(table, id)| self.is_touched(reads, table, id, cts, looking))
    }

    fn is_touched(&self, reads: &Reads, table: TableId, id: RowId, cts: Cts, looking: &mut Looking) -> bool {
        if reads.tables.contains(&table) {
            return true;
        }
        let Some(table) = self.schema.table_by_id(table) else {
            return false;
        };
        if !table.indexes.iter().any(|index| reads.indexes.contains_key(&index.id)) {
            return false;
        }
        let Validation { core, me, snapshot, .. } = *self;
        let primary = &table.store.primary;
        if !primary.holds(id) {
            // Of the storage that the table had before this transaction gave it another.
            return true;
        }
        let slot = primary.slot(id);
        for _ in 0..LOOKS {
            let seen = slot.state();
            read_version(core, me, snapshot, primary, id, &mut looking.row);
            let mut is_met = reads.meets(core, table, looking);
            copy_committed(core, me, primary, id, &mut looking.row);
            is_met |= looking.row.cts() > cts || reads.meets(core, table, looking);
            slot.copy(looking.row.start_copy(primary.persistent_words()));
            is_met |= reads.meets(core, table, looking);
            if slot.is_unchanged(seen) {
                return is_met;
            }
        }
        true
    }
}

impl Core {
    /// Lets every commit that may not have seen the registration end. False where one thread drives all, and is in the middle of one.
    fn let_commits_end(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.each_worker(|worker| match worker.try_lock() {
            Some(_) => true,
            None if self.is_stepped => false,
            None => {
                drop(worker.lock());
                true
            }
        })
    }
}

impl Session {
    /// The transaction is SERIALIZABLE and may write: from here on all commits note what they change. Before its snapshot is taken.
    pub(super) fn begin_serial(&mut self) {
        if self.reads.is_none() {
            self.core.serial.register(self.no);
        }
        let is_lost = !self.core.let_commits_end();
        let from = if is_lost { Cts::ZERO } else { self.core.log.now() };
        self.reads = Some(Box::new(Reads { from, is_lost, ..Reads::default() }));
    }

    /// As `begin_serial` for one that has its snapshot and did not remember what it read there: it may read on, and not commit a change.
    pub(super) fn begin_serial_too_late(&mut self) {
        self.core.serial.register(self.no);
        self.reads = Some(Box::new(Reads { from: Cts::ZERO, is_lost: true, ..Reads::default() }));
        self.tell_serial();
    }

    /// The snapshot was taken.
    pub(super) fn tell_serial(&mut self) {
        if self.reads.is_some() {
            self.core.serial.set_snapshot(self.no, self.snapshot);
        }
    }

    pub(super) fn end_serial(&mut self) {
        if self.reads.take().is_some() {
            self.core.serial.leave(self.no);
        }
    }

    /// An error tells the transaction of a row that is newer than its snapshot.
    #[cold]
    pub(super) fn note_newer(&mut self) {
        if let Some(reads) = &mut self.reads {
            reads.has_met_newer = true;
        }
    }

    pub(super) fn note_newer_than_snapshot(&mut self, met: &Row) {
        if met.cts() > self.snapshot {
            self.note_newer();
        }
    }

    /// The transaction has looked for a key, found or not.
    #[inline]
    pub(super) fn note_key<'a>(&mut self, index: &Index, value: impl Fn(usize) -> Value<'a>) {
        if let Some(reads) = &mut self.reads {
            reads.note_key(index, value);
        }
    }

    #[inline]
    pub(super) fn note_range(&mut self, index: &Index, lower: &[u64], upper: &[u64]) {
        if let Some(reads) = &mut self.reads {
            reads.note_range(index.id, lower, upper);
        }
    }

    /// The transaction has looked at all rows of a table.
    #[inline]
    pub fn note_table(&mut self, table: &Table) {
        if let Some(reads) = &mut self.reads
            && !planted::is(Bug::ForgetRanges)
        {
            reads.tables.insert(table.id);
        }
    }

    /// Before the draw, while the thread's worker is held: what this commit changes, if somebody wants to know.
    pub(super) fn note_changes(&self) -> Option<Arc<Noted>> {
        if !self.core.serial.is_watched() {
            return None;
        }
        let is_all = self.ddl.schema.is_some() || !self.ddl.loaded.is_empty();
        let of_row = |w: &Write| (self.tables[usize::from(w.held.table)].id, w.held.row);
        let mut rows: Vec<_> = self.writes.iter().filter(|w| w.held.container == PRIMARY).map(of_row).collect();
        rows.sort_unstable();
        rows.dedup();
        Some(self.core.serial.note(rows, is_all))
    }
}
