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
use super::rows::{copy_committed, read_version};
use super::session::{Session, Write};
use crate::catalog::{Index, IndexId, Schema, Table, TableId, Tree};
use crate::ids::{Cts, RowId};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, KeyPart, Row, Value};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::table::{PRIMARY, SessionNo};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

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
const LOOKS: usize = if cfg!(loom) { 1 } else { 256 };
/// Notes that are copied out at a time, and that may be left to look at after the draw.
const NOTES_TOGETHER: usize = 256;

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

    /// Those that are not before `checked`, and the number of the first.
    fn from(&self, checked: u64) -> (u64, impl ExactSizeIterator<Item = &Arc<Noted>>) {
        let from = checked.max(self.first);
        (from, self.notes.range((from - self.first) as usize..))
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
pub(crate) struct Serial {
    /// How many are registered.
    registered: AtomicU32,
    list: Mutex<List>,
}

impl Serial {
    pub fn new() -> Serial {
        Serial { registered: AtomicU32::new(0), list: Mutex::new(List::default()) }
    }

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

    /// Copies some of the notes that are not before `at`; gives the number of the first of them.
    fn some_from(&self, at: u64, notes: &mut Vec<Arc<Noted>>) -> u64 {
        let list = self.list.lock();
        let (first, left) = list.from(at);
        notes.extend(left.take(NOTES_TOGETHER).cloned());
        first
    }

    /// After a draw: whether none of the notes that are not before `checked` is in the way. `notes` is a place for some.
    fn holds(
        &self,
        checked: u64,
        snapshot: Cts,
        own: Option<&Arc<Noted>>,
        notes: &mut Vec<Arc<Noted>>,
        mut is_in_the_way: impl FnMut(&Noted, u64) -> bool,
    ) -> bool {
        {
            let list = self.list.lock();
            let (_, left) = list.from(checked);
            if list.lost > snapshot || left.len() > notes.capacity() {
                return false;
            }
            notes.extend(left.cloned());
        }
        let mut others = notes.iter().filter(|note| own.is_none_or(|own| !Arc::ptr_eq(own, note)));
        let holds = !others.any(|note| is_in_the_way(note, note.decided()));
        notes.clear();
        holds
    }
}

/// Whether a commit of `drawn`, or undecided, may come after the snapshot and before `cts`.
fn may_lie_between(snapshot: Cts, drawn: u64, cts: Cts) -> bool {
    drawn == UNDECIDED || (drawn != ABANDONED && Cts(drawn) > snapshot && Cts(drawn) <= cts)
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

    fn note_range(&mut self, index: IndexId, lower: &KeyBuf, upper: &KeyBuf) {
        let of_index = self.indexes.entry(index).or_default();
        if !of_index.is_all && !planted::is(Bug::ForgetRanges) {
            of_index.ranges.push((lower.words.as_slice().into(), upper.words.as_slice().into()));
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
    let is_long = |column: u16| row.stored(&table.layout, usize::from(column)).is_some();
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
                let cts = note.cts.load(Ordering::SeqCst);
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

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::thread;

    /// Two rows, and who is between draw and install.
    struct World {
        serial: Serial,
        clock: AtomicU64,
        workers: [Mutex<()>; 2],
        /// The commit that wrote each row; 0: none.
        written: [AtomicU64; 2],
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            serial: Serial::new(),
            clock: AtomicU64::new(1),
            workers: [Mutex::new(()), Mutex::new(())],
            written: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    struct Done {
        snapshot: u64,
        cts: u64,
        /// The commit whose version of the other row was read.
        read: u64,
    }

    fn let_commits_end(world: &World) {
        world.workers.iter().for_each(|worker| drop(worker.lock()));
    }

    /// Reads the other row and writes its own, in SERIALIZABLE; nothing if it is refused.
    fn transact(world: &World, me: usize) -> Option<Done> {
        let (no, other) = (SessionNo(me as u32), 1 - me);
        world.serial.register(no);
        let_commits_end(world);
        let snapshot = world.clock.load(Ordering::SeqCst);
        // The watermark passes it.
        let_commits_end(world);
        world.serial.set_snapshot(no, Cts(snapshot));
        let read = Some(world.written[other].load(Ordering::SeqCst)).filter(|cts| *cts <= snapshot).unwrap_or(0);
        let (cts, holds) = {
            let _worker = world.workers[me].lock();
            let noted = world.serial.note(vec![(TableId(0), RowId(me as u64))], false);
            let cts = world.clock.fetch_add(1, Ordering::SeqCst) + 1;
            noted.say(Cts(cts));
            let mut notes = Vec::with_capacity(NOTES_TOGETHER);
            let in_the_way = |note: &Noted, drawn: u64| {
                may_lie_between(Cts(snapshot), drawn, Cts(cts)) && note.rows[0].1 == RowId(other as u64)
            };
            let holds = world.serial.holds(0, Cts(snapshot), Some(&noted), &mut notes, in_the_way);
            match holds {
                true => world.written[me].store(cts, Ordering::SeqCst),
                false => noted.abandon(),
            }
            (cts, holds)
        };
        world.serial.leave(no);
        holds.then_some(Done { snapshot, cts, read })
    }

    /// Writes row 1 at another level.
    fn write(world: &World) -> u64 {
        let _worker = world.workers[1].lock();
        let noted = world.serial.is_watched().then(|| world.serial.note(vec![(TableId(0), RowId(1))], false));
        let cts = world.clock.fetch_add(1, Ordering::SeqCst) + 1;
        noted.iter().for_each(|noted| noted.say(Cts(cts)));
        world.written[1].store(cts, Ordering::SeqCst);
        cts
    }

    fn check(race: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        // Without a bound it does not end in minutes.
        model.preemption_bound = Some(3);
        model.check(race);
    }

    #[test]
    fn loom_of_two_that_write_askew_the_later_has_read_what_the_earlier_wrote() {
        check(|| {
            let world = world();
            let beside = {
                let world = world.clone();
                thread::spawn(move || transact(&world, 1))
            };
            let first = transact(&world, 0);
            let second = beside.join().expect("the other does not panic");
            if let (Some(first), Some(second)) = (first, second) {
                let (earlier, later) = if first.cts < second.cts { (first, second) } else { (second, first) };
                assert_eq!((earlier.read, later.read), (0, earlier.cts));
            }
        });
    }

    #[test]
    fn loom_a_writer_of_another_level_is_seen_or_noted() {
        check(|| {
            let world = world();
            let beside = {
                let world = world.clone();
                thread::spawn(move || write(&world))
            };
            let reader = transact(&world, 0);
            let written = beside.join().expect("the other does not panic");
            if let Some(Done { snapshot, cts, read }) = reader {
                assert!(written > cts || read == written, "{written} is missed by {cts} of snapshot {snapshot}");
            }
        });
    }
}
