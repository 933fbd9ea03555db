//! How is one row inserted, as a transaction of its own? Place and record first, then the row and its entries, then draw, stage and let go.
//!
//! As `once` changes one row: in its thread's place, without lists, snapshot or the session's own lines.
//!
//! ```text
//! hold the thread's worker; say which table; look at its gate and whether it is current
//! slot of the thread's batch, version node, record, room in the log        nobody sees any of it: this may fail
//! row into its slot, as an uncommitted one of this session                 from here on others may meet it
//! its entries, each after the unique check                                 one that objects: all of it is taken back
//! announce and draw, stage, stamp node and row, let go of the lock         nothing waits, fails or allocates
//! tell whoever has waited for the end
//! ```
//!
//! 1. From its first entry to its stamp the row is locked and *dirty*, as every uncommitted one: a unique check of another session that meets it
//!    finds it undecided and waits for its end. It would not do to hold the slot's latch instead, which such a check takes under the index's.
//! 2. This side waits for nothing but latches. Where its own unique check meets an undecided row, or one of the same key, the row is taken back,
//!    and the longer way waits or says so.
//! 3. `once`'s invariants 3 and 4 hold: the table stays, and where nothing was inserted nothing has happened.

use super::core::Core;
use super::garbage::{key_of, remove_entry};
use super::once::{Done, OwnPen, RECORD_HEADER_BYTES};
use super::record::{self, Changed};
use super::rows::{differences, enter_index};
use super::session::{Session, commit_header};
use super::version::{self, NewNode, Node, Pen};
use super::{Committed, garbage::Leftover};
use crate::catalog::Table;
use crate::ids::{Cts, RowId};
use crate::index::latch;
use crate::log::Worker;
use crate::mem::{Claim, NodeRef};
use crate::schema::{KeyBuf, Row};
use crate::table::{SessionNo, Slot};
use std::cell::Cell;
use std::sync::Arc;

/// Inserts of one row into a table. Made once, for many runs.
#[derive(Clone, Debug)]
pub struct Insertion {
    table: Arc<Table>,
    /// All null.
    empty: Row,
}

impl Insertion {
    pub fn new(table: &Arc<Table>) -> Insertion {
        Insertion { table: table.clone(), empty: Row::new(&table.layout) }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

/// What an insert reuses: the thread's, because a session's own would be cold.
#[derive(Default)]
struct Scratch {
    row: Row,
    changed: Vec<Changed>,
    body: Vec<u8>,
    key: KeyBuf,
}

std::thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The row that is being inserted.
struct Target<'a> {
    core: &'a Core,
    me: SessionNo,
    table: &'a Table,
    id: RowId,
    slot: Slot<'a>,
}

impl Session {
    /// Inserts a row as a READ COMMITTED transaction of its own. `set` is given a row of nulls to set the columns of, and says whether to go on.
    /// `None`: nothing has happened, and `begin` and `insert` are to do it, or to say why not. Rows with long values go that way.
    #[inline]
    pub fn insert_once(
        &mut self,
        insertion: &Insertion,
        set: impl FnOnce(&mut Row) -> bool,
    ) -> Option<(RowId, Committed)> {
        // A value in the extension is one more to be stored.
        if insertion.table.layout.is_extended() || !self.is_free_for_once() {
            return None;
        }
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.row.copy_from(&insertion.empty);
        let is_ready = set(&mut scratch.row) && scratch.row.heap.is_empty();
        let done = if is_ready { self.insert_with(&insertion.table, &mut scratch) } else { None };
        SCRATCH.set(Some(scratch));
        let done = done?;
        Some((done.id, self.leave_once(insertion.table.store.id, Leftover::Node, done)))
    }

    #[inline]
    fn insert_with(&mut self, table: &Arc<Table>, scratch: &mut Scratch) -> Option<Done> {
        let Session { core, no, checked, waits_inline, .. } = self;
        let core: &Core = core;
        // They are cold: on their way while the row gets its place.
        table.indexes.iter().for_each(|index| index.prefetch_entry(&table.layout, &scratch.row));
        let number = no.0 as usize;
        let mut pen = OwnPen::new(core, number);
        let place = core.worker_place(number);
        let mut worker = place.lock();
        let entered = place.enter(table.id);
        if !core.is_open(table, *checked) {
            return None;
        }
        let primary = &table.store.primary;
        // A page is taken the longer way.
        let id = core.slot_of_batch(primary, number).ok()?;
        let target = Target { core, me: *no, table, id, slot: primary.slot(id) };
        let done = target.insert(scratch, pen.pen(), &mut worker, *waits_inline);
        match &done {
            Some(done) => place.count_commit(done.record_bytes),
            None => core.free_slot(primary, id),
        }
        drop(entered);
        done
    }
}

impl Target<'_> {
    fn insert(&self, scratch: &mut Scratch, pen: Pen<'_>, worker: &mut Worker, waits_inline: bool) -> Option<Done> {
        let Target { core, id, slot, .. } = self;
        let Scratch { row, changed, body, key } = scratch;
        let prev_cts = Cts(slot.load(0));
        let node = self.write_node(row, prev_cts, changed, pen)?;
        let generation = core.pages.generation(id.page());
        body.clear();
        // The base is the version below.
        match prev_cts {
            Cts::ZERO => record::put_new_record(body, *id, generation, 0, &row.words),
            _ => record::put_changed(body, *id, generation, 0, changed),
        }
        let Ok(reserved) = worker.reserve(body.len() as u64 + RECORD_HEADER_BYTES) else {
            core.arena.freed().add(node);
            return None;
        };
        self.put(row, node);
        let entered = self.enter_indexes(row, key);
        if entered < self.table.indexes.len() {
            self.take_back(row, changed, node);
            self.remove_entries(row, key, entered);
            self.let_go();
            return None;
        }
        let (mut announced, cts) = reserved.announce_and_draw();
        let header = commit_header(cts, prev_cts, None);
        announced.stage(cts.epoch(), &[header.bytes(), body]);
        // Announced until all is noted: see `mem::mark`.
        core.pages.note_change(id.page(), cts.epoch());
        let is_waited = self.stamp(node, cts);
        match waits_inline {
            true => announced.leave_quietly(),
            false => announced.leave(),
        }
        if is_waited {
            core.locks.hand_over(*id, *slot);
        }
        Some(Done { cts, node, id: *id, record_bytes: (4 + header.bytes().len() + body.len()) as u64 })
    }

    /// A node that leads back to what the slot has now.
    fn write_node(&self, row: &Row, prev_cts: Cts, changed: &mut Vec<Changed>, pen: Pen<'_>) -> Option<NodeRef> {
        let head = self.slot.head();
        assert!(head.owner().is_none(), "invariant: a slot given out is nobody's");
        let fresh = prev_cts == Cts::ZERO;
        changed.clear();
        if !fresh {
            differences(self.slot, &row.words[1..], 1, changed);
        }
        let words = self.table.store.primary.persistent_words();
        let node = NewNode { prev_cts: Some(prev_cts), next: head.node, command: 1, fresh, words, changed };
        version::write(&self.core.arena, pen, Claim::Growth, &node)
    }

    /// Writes the row into its slot, uncommitted.
    fn put(&self, row: &Row, node: NodeRef) {
        let mut latched = self.slot.latch();
        let head = latched.head();
        if !head.node.is_none() {
            // What an older snapshot needs of the slot's former rows may have been cut or moved since the head was read.
            Node::new(&self.core.arena, node).set_next(head.node);
        }
        row.words.iter().enumerate().skip(1).for_each(|(at, &word)| latched.set(at, word));
        latched.set_head(head.with_owner(Some(self.me)).with_dirty(true).with_node(node));
    }

    /// Enters the row into the indexes, up to the first that objects; how many.
    fn enter_indexes(&self, row: &mut Row, key: &mut KeyBuf) -> usize {
        let Target { core, me, table, id, .. } = self;
        let mut enter = |index| enter_index(core, *me, table, index, *id, row, Claim::Growth, key);
        table.indexes.iter().take_while(|index| enter(index).is_ok()).count()
    }

    /// What `put` has done is undone; the lock stays.
    fn take_back(&self, row: &Row, changed: &[Changed], node: NodeRef) {
        let Target { core, id, slot, .. } = self;
        let written = Node::new(&core.arena, node);
        let mut latched = slot.latch();
        if written.is_fresh() {
            (1..row.words.len()).for_each(|at| latched.set(at, 0));
        }
        changed.iter().for_each(|&(at, xor)| latched.set(usize::from(at), row.words[usize::from(at)] ^ xor));
        // Readers of older versions who walk the node learn it here.
        let word = core.folds.of(*id);
        let seen = latch::latch(word);
        latched.set_head(latched.head().with_node(written.next()).with_dirty(false));
        latch::unlatch(word, seen, true);
        drop(latched);
        core.arena.freed().add(node);
    }

    /// Of the row that was taken back, from the first `entered` indexes.
    fn remove_entries(&self, row: &Row, buf: &mut KeyBuf, entered: usize) {
        for index in &self.table.indexes[..entered] {
            let key = key_of(index, &self.table.layout, row, buf);
            remove_entry(self.core, self.table, index, &key, self.id);
        }
    }

    /// Gives up the lock of a row that was taken back: whoever has met it learns that it is over.
    fn let_go(&self) {
        let mut latched = self.slot.latch();
        let head = latched.head();
        if head.is_waited() {
            drop(latched);
            // Not to an heir: the slot goes back.
            self.core.locks.dissolve(self.id, self.slot);
        } else {
            latched.set_head(head.with_owner(None));
        }
    }

    /// The row is committed; its lock goes, unless someone waits for it: true.
    fn stamp(&self, node: NodeRef, cts: Cts) -> bool {
        let mut latched = self.slot.latch();
        latched.set(0, cts.0);
        Node::new(&self.core.arena, node).set_stamp(cts);
        let head = latched.head().with_dirty(false);
        let owner = if head.is_waited() { head.owner() } else { None };
        latched.set_head(head.with_owner(owner));
        head.is_waited()
    }
}
