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
//! 4. Validation comes after the draw and waits for nobody. What it cannot decide, or does not know any more, fails it: 40001. The cts of who
//!    fails installs nothing, and his note counts for nobody.
//! 5. The list holds what was changed since the oldest registered snapshot, as long as that is not too much. `lost` is the largest cts of what is
//!    not in it: who has a snapshot below that fails.
//! 6. Who changed nothing needs no validation, READ ONLY or not: its place in the order is S, where it has read, and all that commits validate as
//!    of their own cts. That holds for whoever writes at another level, too: the order of commits is an order of states, of which it sees one.
//!
//! Whoever writes at a lower level is noted, but not validated: as in PostgreSQL, what is serializable is so among SERIALIZABLE transactions.
//! A transaction that only wrote what others have read is not stopped, but one that read what others have written since is, even without a
//! cycle: stricter than PostgreSQL's SSI, which lets it pass if the other one has no conflict out.
//!
//! Sources: precision locking (Jordan, Banerjee, Batman 1981) against recent deltas, as in HyPer (Neumann, Mühlbauer, Kemper, SIGMOD 2015).

use super::core::Core;
use super::rows::{copy_committed, read_version};
use super::session::{Session, Write};
use crate::catalog::{Index, IndexId, Schema, Table, TableId, Tree};
use crate::ids::{Cts, RowId};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, KeyPart, Row, Value};
use crate::table::{PRIMARY, SessionNo};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Not drawn yet, or not said.
const UNDECIDED: u64 = 0;
/// It did not commit.
const ABANDONED: u64 = u64::MAX;
/// What the notes may weigh, in rows: some 32 MiB.
const WEIGHT_MAX: usize = 1 << 20;
/// What a note weighs besides its rows.
const NOTE_WEIGHT: usize = 6;
/// Keys and ranges of an index that a transaction remembers one by one; beyond them it has read all of it.
const KEYS_MAX: usize = 4096;
/// Looks at a note whose cts is about to be said.
const LOOKS: usize = 256;

/// What a commit changes.
pub(super) struct Noted {
    cts: AtomicU64,
    rows: Box<[(TableId, RowId)]>,
    /// The schema, a table's whole content, or more than is told.
    is_all: bool,
}

impl Noted {
    /// The commit has this cts.
    pub fn say(&self, cts: Cts) {
        self.cts.store(cts.0, Ordering::SeqCst);
    }

    pub fn abandon(&self) {
        self.cts.store(ABANDONED, Ordering::SeqCst);
    }

    fn weight(&self) -> usize {
        NOTE_WEIGHT + self.rows.len()
    }

    /// Looks a while for a cts that is not said yet.
    fn decided(&self) -> u64 {
        for _ in 0..LOOKS {
            let cts = self.cts.load(Ordering::SeqCst);
            if cts != UNDECIDED {
                return cts;
            }
            std::hint::spin_loop();
        }
        UNDECIDED
    }
}

#[derive(Default)]
struct List {
    registered: Vec<(SessionNo, Cts)>,
    notes: VecDeque<Arc<Noted>>,
    /// How many notes came before the first.
    first: u64,
    weight: usize,
    /// See invariant 5.
    lost: Cts,
}

impl List {
    fn drop_first(&mut self) {
        if let Some(note) = self.notes.pop_front() {
            self.first += 1;
            self.weight -= note.weight();
        }
    }

    /// Forgets what all registered snapshots see.
    fn prune(&mut self) {
        let oldest = self.registered.iter().map(|r| r.1).min().unwrap_or(Cts::MAX);
        let is_seen = |note: &Arc<Noted>| match note.cts.load(Ordering::SeqCst) {
            UNDECIDED => oldest == Cts::MAX,
            ABANDONED => true,
            cts => Cts(cts) <= oldest,
        };
        while self.notes.front().is_some_and(is_seen) {
            self.drop_first();
        }
    }

    /// Forgets the oldest notes where there are too many.
    fn bound(&mut self) {
        while self.weight > WEIGHT_MAX {
            match self.notes.front().map(|note| note.cts.load(Ordering::SeqCst)) {
                None | Some(UNDECIDED) => return,
                Some(ABANDONED) => {}
                Some(cts) => self.lost = self.lost.max(Cts(cts)),
            }
            self.drop_first();
        }
    }
}

/// What commits change while somebody wants to know.
#[derive(Default)]
pub(crate) struct Serial {
    /// How many are registered.
    registered: AtomicU32,
    list: Mutex<List>,
}

impl Serial {
    /// Whether commits note what they change. Asked while holding the thread's worker (invariant 2).
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.registered.load(Ordering::SeqCst) != 0
    }

    fn register(&self, me: SessionNo) {
        let mut list = self.list.lock();
        list.registered.push((me, Cts::ZERO));
        self.registered.store(list.registered.len() as u32, Ordering::SeqCst);
    }

    fn set_snapshot(&self, me: SessionNo, snapshot: Cts) {
        let mut list = self.list.lock();
        list.registered.iter_mut().filter(|r| r.0 == me).for_each(|r| r.1 = snapshot);
    }

    fn leave(&self, me: SessionNo) {
        let mut list = self.list.lock();
        list.registered.retain(|r| r.0 != me);
        self.registered.store(list.registered.len() as u32, Ordering::SeqCst);
        list.prune();
    }

    /// Before the cts is drawn: room is made and everything allocated.
    fn note(&self, rows: Vec<(TableId, RowId)>, is_all: bool) -> Arc<Noted> {
        let is_all = is_all || rows.len() > WEIGHT_MAX / 4;
        let rows = if is_all { Box::default() } else { rows.into_boxed_slice() };
        let noted = Arc::new(Noted { cts: AtomicU64::new(UNDECIDED), rows, is_all });
        let mut list = self.list.lock();
        list.weight += noted.weight();
        list.notes.push_back(noted.clone());
        list.bound();
        noted
    }
}

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
    tables: HashSet<TableId>,
    indexes: HashMap<IndexId, OfIndex>,
}

impl Reads {
    pub fn least_snapshot(&self) -> Cts {
        self.from
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

    fn note_range(&mut self, index: IndexId, lower: &KeyBuf, upper: &KeyBuf) {
        let of_index = self.indexes.entry(index).or_default();
        if !of_index.is_all && !planted::is(Bug::ForgetRanges) {
            of_index.ranges.push((lower.words.as_slice().into(), upper.words.as_slice().into()));
            of_index.bound();
        }
    }

    /// Whether a version of a row meets a predicate.
    fn meets(&self, core: &Core, table: &Table, row: &mut Row, key: &mut KeyBuf) -> bool {
        row.is_live()
            && table.indexes.iter().any(|index| {
                let Some(of_index) = self.indexes.get(&index.id) else { return false };
                if of_index.is_all {
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

/// Whose reads are looked at, and as of when.
pub(super) struct Validation<'a> {
    pub core: &'a Core,
    pub me: SessionNo,
    pub schema: &'a Schema,
    pub snapshot: Cts,
    /// Its own changes.
    pub own: Option<&'a Arc<Noted>>,
}

impl Validation<'_> {
    /// Before the draw: whether what is decided by now lets the transaction commit. What is looked at here is not looked at again.
    pub fn holds_so_far(&self, reads: &mut Reads) -> bool {
        if planted::is(Bug::SkipValidation) {
            return true;
        }
        let (notes, first) = {
            let list = self.core.serial.list.lock();
            let from = reads.checked.max(list.first);
            let notes: Vec<_> = list.notes.iter().skip((from - list.first) as usize).cloned().collect();
            (notes, from)
        };
        let mut is_prefix = true;
        for (at, note) in (first..).zip(&notes) {
            let cts = note.cts.load(Ordering::SeqCst);
            is_prefix &= cts != UNDECIDED;
            if cts != UNDECIDED && self.is_in_the_way(reads, note, cts, Cts::MAX) {
                return false;
            }
            if is_prefix {
                reads.checked = at + 1;
            }
        }
        true
    }

    /// After the draw of `cts`: whether the transaction may commit with it.
    pub fn holds(&self, reads: &Reads, cts: Cts) -> bool {
        if planted::is(Bug::SkipValidation) {
            return true;
        }
        let list = self.core.serial.list.lock();
        if reads.is_lost || (list.lost > self.snapshot && !reads.is_empty()) {
            return false;
        }
        let from = reads.checked.max(list.first);
        let notes = list.notes.iter().skip((from - list.first) as usize);
        let others = notes.filter(|note| self.own.is_none_or(|own| !Arc::ptr_eq(own, note)));
        !others.into_iter().any(|note| self.is_in_the_way(reads, note, note.decided(), cts))
    }

    /// Whether the note's commit, of `drawn` or undecided, may come before `cts` and has changed what was read.
    fn is_in_the_way(&self, reads: &Reads, note: &Noted, drawn: u64, cts: Cts) -> bool {
        if planted::is(Bug::SkipSmallerCts) && drawn != UNDECIDED && Cts(drawn) > self.core.log.watermark() {
            return false;
        }
        if drawn == ABANDONED || (drawn != UNDECIDED && (Cts(drawn) <= self.snapshot || Cts(drawn) > cts)) {
            return false;
        }
        if note.is_all {
            return !reads.is_empty();
        }
        let (mut row, mut key) = (Row::default(), KeyBuf::default());
        note.rows.iter().any(|&(table, id)| self.is_touched(reads, table, id, cts, &mut row, &mut key))
    }

    fn is_touched(&self, reads: &Reads, table: TableId, id: RowId, cts: Cts, row: &mut Row, key: &mut KeyBuf) -> bool {
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
        let slot = primary.slot(id);
        for _ in 0..LOOKS {
            let seen = slot.state();
            read_version(core, me, snapshot, primary, id, row);
            let mut is_met = reads.meets(core, table, row, key);
            copy_committed(core, me, primary, id, row);
            is_met |= row.cts() > cts || reads.meets(core, table, row, key);
            slot.copy(row.start_copy(primary.persistent_words()));
            is_met |= reads.meets(core, table, row, key);
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

    /// The transaction has looked for a key, found or not.
    #[inline]
    pub(super) fn note_key<'a>(&mut self, index: &Index, value: impl Fn(usize) -> Value<'a>) {
        if let Some(reads) = &mut self.reads {
            reads.note_key(index, value);
        }
    }

    #[inline]
    pub(super) fn note_range(&mut self, index: &Index, lower: &KeyBuf, upper: &KeyBuf) {
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
