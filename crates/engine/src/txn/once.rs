//! How is one row changed by its key, as a transaction of its own? Read, compute, and then latch, draw, write and let go in one go.
//!
//! It is the change that a database of this kind runs most, and thousands of sessions take turns on a thread: each line of the session's
//! own state that it touches is cold. So it keeps no lists, takes no snapshot and no row lock, and announces itself in its thread's place.
//!
//! ```text
//! hold the thread's worker; say which table; look at its gate and whether it is current
//! index, row: copy the words asked for, with the sequence count
//! compute; write the version node; compose the record; reserve room in the log     nothing is held: this may fail
//! latch the row if its count is still that one                                     else from the copy on again
//! announce and draw, stamp the node, write words and cts, let go of the latch      nothing waits, fails or allocates
//! stage the record, note the page, leave
//! ```
//!
//! 1. *The row's latch stands for its lock.* The cts is drawn under it, and nothing is written unless the row is as it was copied, with nobody
//!    holding or wanting its lock: so commit order is epoch order, and what was computed is of the newest version. It is held for a
//!    draw and a few stores, in which nothing waits. Readers who meet it spin.
//! 2. The columns that are set are in no index, so no entry moves.
//! 3. *The table stays.* Whoever changes the schema closes the gate, lets a heavy fence pass, and waits until no short change is at the table; a
//!    short change says its table, lets a light fence pass, and looks at the gate. It waits for nothing while it is there.
//! 4. Where anything is not as it mostly is (the lock is held, the key is not there, the log has no room, memory is short), nothing has
//!    happened, and the longer way says why.

use super::Committed;
use super::core::Core;
use super::garbage::{Garbage, Leftover};
use super::lookup::Lookup;
use super::record::{self, Changed};
use super::session::{Session, State, commit_header};
use super::version::{self, NewNode, Node, Pen};
use crate::catalog::{Index, Table};
use crate::ids::{Cts, RowId, StorageId};
use crate::log::Reserved;
use crate::mem::prefetch::{prefetch_value, prefetch_write};
use crate::mem::{Arena, ArenaCursor, Claim, NodeRef};
use crate::planted::{self, Bug, Point};
use crate::schema::{Picks, Row};
use crate::table::{Head, Latched, PRIMARY, Slot};
use std::cell::Cell;
use std::sync::Arc;

/// Room for a commit record's header.
pub(super) const RECORD_HEADER_BYTES: u64 = 64;
/// Copies of a row that others are changing, before it is left to the longer way, which queues.
const TRIES: usize = 8;
/// Looks at a row that is latched: about what a latch is held.
const LOOKS: usize = 64;

/// A change of some columns of the row that a unique key names. Made once, for many runs.
#[derive(Clone, Debug)]
pub struct Change {
    lookup: Lookup,
    /// The words that the columns which are set lie in, ascending; the flags' where the row is deleted.
    words: Box<[u16]>,
    deletes: bool,
}

impl Change {
    /// Looks at the columns `read` and changes those `set`. `None`: the key is no single integer, or an index has a column that is set.
    pub fn new(table: &Arc<Table>, index: &Arc<Index>, read: &[u16], set: &[u16]) -> Option<Change> {
        let mut keys = table.indexes.iter().flat_map(|index| &index.def.columns);
        if keys.any(|key| set.contains(&key.column)) {
            return None;
        }
        let lookup = Lookup::new(table, index, read.iter().chain(set).copied());
        let of_sets = set.iter().flat_map(|&column| table.layout.words_of(usize::from(column)));
        let mut words: Vec<u16> = of_sets.map(|word| word as u16).collect();
        words.sort_unstable();
        words.dedup();
        lookup.has_integer_key().then(|| Change { lookup, words: words.into(), deletes: false })
    }

    /// Deletes the row. `None`: the key is no single integer.
    pub fn deletion(table: &Arc<Table>, index: &Arc<Index>) -> Option<Change> {
        // Whether a long value goes with it is seen in its columns.
        let lookup = Lookup::new(table, index, table.variable.iter().map(|&column| column as u16));
        lookup.has_integer_key().then(|| Change { lookup, words: [1].into(), deletes: true })
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.lookup.table
    }

    /// Starts loading what the change of this key's row will want first.
    #[inline]
    pub fn prefetch(&self, key: i64) {
        self.lookup.prefetch_integer(key);
    }

    /// A row that may have the key: the first that the index leads to.
    #[inline]
    fn find(&self, key: i64) -> Option<RowId> {
        self.lookup.guess_integer(key)
    }

    /// What the operation takes in a record, at most: row id, three varints, and of each word distance, mask and bytes.
    fn operation_bytes_max(&self) -> u64 {
        5 + 5 + 10 + 3 + self.words.len() as u64 * 12
    }

    /// The words in which the copies differ.
    #[inline]
    fn differences(&self, old: &Row, new: &Row, changed: &mut Vec<Changed>) {
        changed.clear();
        for &at in &self.words {
            let xor = old.words[usize::from(at)] ^ new.words[usize::from(at)];
            if xor != 0 {
                changed.push((at, xor));
            }
        }
    }
}

/// What a change reuses: the thread's, because a session's own would be cold.
#[derive(Default)]
struct Scratch {
    old: Row,
    new: Row,
    changed: Vec<Changed>,
    body: Vec<u8>,
}

std::thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The row that is being changed.
struct Target<'a> {
    core: &'a Core,
    change: &'a Change,
    key: i64,
    id: RowId,
    slot: Slot<'a>,
}

/// A version that is not linked yet.
struct Draft {
    node: NodeRef,
    head: Head,
    /// The row's sequence count when it was copied.
    seen: u64,
}

impl Session {
    /// Changes the row with this key, as a READ COMMITTED transaction of its own. `set` is given the row's newest version, of which the change's columns
    /// are there, and a copy to set columns of; it says whether to go on, and may be asked again. `None`: nothing has happened, and `begin`,
    /// `lock_by_key` and `update` are to do it, or to say why not.
    #[inline]
    pub fn change_once(
        &mut self,
        change: &Change,
        key: i64,
        set: impl FnMut(&Row, &mut Row) -> bool,
    ) -> Option<Committed> {
        if !self.is_free_for_once() {
            return None;
        }
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let done = self.change_with(change, key, &mut scratch, set);
        SCRATCH.set(Some(scratch));
        let leftover = if change.deletes { Leftover::Deleted } else { Leftover::Node };
        Some(self.leave_once(change.table().store.id, leftover, done?))
    }

    /// Starts loading what of the session the short ways look at: for who knows some sessions ahead which one comes.
    #[inline]
    pub fn load_ahead(&self) {
        prefetch_value(&self.core);
    }

    /// Starts loading the place that a look-up registers at. It reads what `load_ahead` loads, so it is said a few statements later.
    #[inline]
    pub fn load_place_ahead(&self) {
        prefetch_value(self.place());
    }

    /// Starts loading the row of this key, for who will change it. It reads what `load_ahead` and `Change::prefetch` load, so it is said a few
    /// statements later.
    #[inline]
    pub fn load_row_ahead(&self, change: &Change, key: i64) {
        let Lookup { table, picks, .. } = &change.lookup;
        if let Some(row) = change.lookup.guess_integer(key) {
            table.store.primary.prefetch_write(row, &change.words, picks);
            self.core.pages.meta_word(row.page()).into_iter().for_each(prefetch_write);
        }
        if self.has_kept() {
            prefetch_write(self.place().kept_word());
        }
    }

    /// Deletes the row with this key, as `change_once` changes one. `None`: nothing has happened, and `delete` is to do it.
    #[inline]
    pub fn delete_once(&mut self, deletion: &Change, key: i64) -> Option<Committed> {
        debug_assert!(deletion.deletes, "invariant: it is made by `Change::deletion`");
        self.change_once(deletion, key, |_, row| {
            row.set_dead();
            true
        })
    }

    /// Whether the session is in no transaction, and no other thread has to do with it.
    #[inline]
    pub(super) fn is_free_for_once(&self) -> bool {
        self.state == State::Idle && !self.waiting && self.lease.is_none()
    }

    /// Takes note of a change that has committed, and leaves its garbage.
    #[inline]
    pub(super) fn leave_once(&mut self, storage: StorageId, leftover: Leftover, done: Done) -> Committed {
        let Done { cts, node, id, record_bytes } = done;
        self.met = self.met.max(cts);
        self.last_record_bytes = record_bytes;
        self.follow_horizon();
        let core = &*self.core;
        let mut garbage = core.garbage_of(self.no);
        garbage.push_back(Garbage::Row { cts, leftover, storage, container: PRIMARY, row: id, node });
        core.collect_due(&mut garbage);
        Committed { cts }
    }

    #[inline]
    fn change_with(
        &mut self,
        change: &Change,
        key: i64,
        scratch: &mut Scratch,
        mut set: impl FnMut(&Row, &mut Row) -> bool,
    ) -> Option<Done> {
        let Session { core, no, checked, waits_inline, .. } = self;
        let (core, table): (&Core, _) = (core, change.table());
        let number = no.0 as usize;
        let mut pen = OwnPen::new(core, number);
        let place = core.worker_place(number);
        let mut worker = place.lock();
        let entered = place.enter(table.id);
        if !core.is_open(table, *checked) {
            return None;
        }
        let id = change.find(key)?;
        let target = Target { core, change, key, id, slot: table.store.primary.slot(id) };
        table.store.primary.prefetch_write(id, &change.words, &change.lookup.picks);
        core.pages.meta_word(id.page()).into_iter().for_each(prefetch_write);
        // While the row is on its way.
        let mut reserved = Some(worker.reserve(RECORD_HEADER_BYTES + change.operation_bytes_max()).ok()?);
        for _ in 0..TRIES {
            let draft = target.draft(scratch, pen.pen(), &mut set)?;
            let committed = target.commit(&draft, scratch, &mut reserved, *waits_inline);
            let Some((cts, record_bytes)) = committed else {
                core.arena.freed().add(draft.node);
                continue;
            };
            drop(reserved);
            place.count_commit(record_bytes);
            drop(entered);
            drop(worker);
            return Some(Done { cts, node: draft.node, id, record_bytes });
        }
        None
    }
}

/// The thread's cursor, which goes back to it.
pub(super) struct OwnPen<'a> {
    cursor: ArenaCursor,
    place: usize,
    arena: &'a Arena,
}

impl<'a> OwnPen<'a> {
    pub fn new(core: &'a Core, number: usize) -> OwnPen<'a> {
        OwnPen { cursor: ArenaCursor::default(), place: core.thread(number), arena: &core.arena }
    }

    pub fn pen(&mut self) -> Pen<'_> {
        Pen { cursor: &mut self.cursor, place: self.place }
    }
}

impl Drop for OwnPen<'_> {
    fn drop(&mut self) {
        self.arena.park(&mut self.cursor, self.place);
    }
}

/// A change that has committed.
pub(super) struct Done {
    pub cts: Cts,
    pub node: NodeRef,
    pub id: RowId,
    pub record_bytes: u64,
}

impl Target<'_> {
    /// Copies the row, computes, and writes the node and the record's body: all that can fail.
    #[inline]
    fn draft(
        &self,
        scratch: &mut Scratch,
        pen: Pen<'_>,
        set: &mut impl FnMut(&Row, &mut Row) -> bool,
    ) -> Option<Draft> {
        let Target { core, change, key, id, slot } = self;
        let Scratch { old, new, changed, body } = scratch;
        let (layout, picks) = (&change.table().layout, &change.lookup.picks);
        let (head, seen) = copy(*slot, picks, old.start_copy(layout.words()))?;
        // Where the key is an index's only column, the row says whether it is that key's.
        if !head.is_free() || !old.has_integer(change.lookup.integer?, *key) {
            return None;
        }
        // A long value is fetched to be looked at, and unlinked when it goes: the longer way.
        if old.has_long(layout, &picks.variable) {
            return None;
        }
        new.copy_picked(old, picks);
        if !set(old, new) || new.has_long(layout, &picks.variable) {
            return None;
        }
        change.differences(old, new, changed);
        let node = NewNode {
            prev_cts: Some(old.cts()),
            next: head.node,
            command: 1,
            fresh: false,
            words: layout.words(),
            changed,
        };
        let node = version::write(&core.arena, pen, Claim::Finish, &node)?;
        body.clear();
        // The base is the version that the row had.
        record::put_changed(body, *id, core.pages.generation(id.page()), 0, changed);
        Some(Draft { node, head, seen })
    }

    /// Commits the draft, if the row is as it was: gives the cts, and the record's bytes. `None`: nothing has happened.
    #[inline]
    fn commit(
        &self,
        draft: &Draft,
        scratch: &Scratch,
        reserved: &mut Option<Reserved<'_>>,
        waits_inline: bool,
    ) -> Option<(Cts, u64)> {
        let Target { core, id, .. } = self;
        let Scratch { old, new, changed, body } = scratch;
        planted::turn(Point::Copied);
        let mut latched = self.latch(draft)?;
        let reserved = reserved.take().expect("invariant: a change commits once");
        let (mut announced, cts) = reserved.announce_and_draw();
        Node::new(&core.arena, draft.node).set_stamp(cts);
        latched.set(0, cts.0);
        for &(at, _) in changed {
            latched.set(usize::from(at), new.words[usize::from(at)]);
        }
        let head = latched.head();
        latched.set_head(head.with_node(draft.node));
        drop(latched);
        let header = commit_header(cts, old.cts(), None);
        announced.stage(cts.epoch(), &[header.bytes(), body]);
        // Announced until all is noted: see `mem::mark`.
        core.pages.note_change(id.page(), cts.epoch());
        match waits_inline {
            true => announced.leave_quietly(),
            false => announced.leave(),
        }
        Some((cts, (4 + header.bytes().len() + body.len()) as u64))
    }
}

impl<'a> Target<'a> {
    /// The row's latch, if the row is as it was copied.
    #[inline]
    fn latch(&self, draft: &Draft) -> Option<Latched<'a>> {
        if planted::is(Bug::LatchChanged) {
            let latched = self.slot.latch();
            let head = latched.head();
            Node::new(&self.core.arena, draft.node).set_next(head.node);
            return head.is_free().then_some(latched);
        }
        let latched = self.slot.latch_unchanged(draft.seen)?;
        debug_assert_eq!(latched.head(), draft.head, "invariant 1: the row is as it was copied");
        Some(latched)
    }
}

/// Copies the words asked for. `None`: others keep writing the row.
#[inline]
fn copy(slot: Slot<'_>, picks: &Picks, words: &mut [u64]) -> Option<(Head, u64)> {
    for _ in 0..LOOKS {
        if let Some(copied) = slot.try_copy_counted(picks, words) {
            return Some(copied);
        }
        std::hint::spin_loop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
    use crate::engine::{Engine, Options};
    use crate::io::mem::{MemClock, MemIo};
    use crate::log::Progress;
    use crate::schema::{KeyColumn, Type, Value};
    use crate::txn::{Isolation, Stop};

    fn column(name: &str) -> ColumnDef {
        ColumnDef { name: name.into(), ty: Type::Int8, not_null: true, ..ColumnDef::default() }
    }

    /// Engines with threads may have to prepare room first.
    fn transact(session: &mut Session, mut work: impl FnMut(&mut Session) -> Result<(), Stop>) {
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        while let Err(stop) = work(session).and_then(|()| session.commit().map(drop)) {
            let Stop::Wait(mut token) = stop else { panic!("{stop:?}") };
            token.block(None);
            session.rollback();
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
        }
    }

    /// A table of two integers with one row, which the session may change in one go.
    fn table(session: &mut Session) -> Arc<Table> {
        let columns = vec![KeyColumn { column: 0, descending: false }];
        let key =
            IndexDef { name: "t_pkey".into(), kind: IndexKind::Hash, unique: true, columns, ..Default::default() };
        let def = TableDef { name: "t".into(), columns: vec![column("id"), column("n")], ..Default::default() };
        transact(session, |s| s.create_table(def.clone(), vec![key.clone()]));
        let mut table = None;
        transact(session, |s| {
            let t = s.schema().table("t").expect("created").clone();
            let mut row = Row::new(&t.layout);
            (0..2).for_each(|column| row.set(&t.layout, column, &Value::Int(1)));
            s.insert(&t, &mut row)?;
            table = Some(t);
            Ok(())
        });
        table.expect("just inserted into")
    }

    /// Whoever is alone writes the log himself: its thread is woken for other work at most.
    #[test]
    fn a_session_alone_commits_without_the_logs_thread() {
        const CHANGES: u64 = 200;
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options { direct_io: false, ..Options::small(dir.path().join("data")) };
        let engine = Engine::open(options).expect("opens");
        let mut session = engine.connect().expect("a place");
        session.set_waits_inline(true);
        let table = table(&mut session);
        let change = Change::new(&table, &table.indexes[0], &[1], &[1]).expect("the key is an integer");
        let core = session.core.clone();
        let before = core.log.wakes();
        for n in 0..CHANGES {
            let changed = session.change_once(&change, 1, |_, row| {
                row.set(&table.layout, 1, &Value::Int(n as i64 + 2));
                true
            });
            engine.wait_durable(changed.expect("nobody is in the way").cts).wait().expect("the log works");
        }
        let woken = core.log.wakes() - before;
        assert!(woken < CHANGES / 10, "{woken} times in {CHANGES} commits");
    }

    /// What a session kept from its last read moves with its changes, though nobody revokes it.
    #[test]
    fn a_session_that_changes_rows_holds_no_garbage_back() {
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens");
        let mut session = engine.connect().expect("a place");
        while engine.step() {}
        let table = table(&mut session);
        while engine.step() {}
        let change = Change::new(&table, &table.indexes[0], &[1], &[1]).expect("the key is an integer");
        let core = session.core.clone();
        session.begin_read();
        session.commit().expect("a read commits");
        let kept = core.sessions.floor(&core.log);
        for n in 0..3 {
            let changed = session.change_once(&change, 1, |_, row| {
                row.set(&table.layout, 1, &Value::Int(n + 2));
                true
            });
            changed.expect("nobody is in the way");
            while core.log.step() == Progress::Worked {}
        }
        let durable = Cts::last_of(core.log.durable());
        assert!(
            kept < core.sessions.floor(&core.log) && core.sessions.floor(&core.log) < durable,
            "as of the last change"
        );
        session.begin_read();
        assert_eq!(core.sessions.floor(&core.log), durable);
        session.commit().expect("a read commits");
    }
}
