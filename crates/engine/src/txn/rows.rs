//! Reading and writing rows: what a statement sees, row locks, versions, index entries.

use super::core::{CHANGED, Core};
use super::garbage::key_of;
use super::locks::{Asked, Strength};
use super::record::Changed;
use super::session::{Change, Held, KeyChange, Session, Write, container, room_for_one};
use super::values::fetch_extension;
use super::version::{self, NewNode, Node, Pen};
use super::{Error, Isolation, Locked, Stop, values};
use crate::catalog::{Index, Table, TreeKey};
use crate::ids::{Cts, PageNo, RowId};
use crate::index::{Conflict, Probe};
use crate::mem::{Claim, NodeRef};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, LIVE, Picks, Row, Value};
use crate::sync::Spin;
use crate::table::{Container, Owned, PIECE_BYTES, PRIMARY, SessionNo, Slot};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Looks at a lock that another holds before queueing for it: some ten microseconds, about what it takes to wake a parked thread.
const LOOKS_MAX: u32 = 256;

/// The longest value of one column.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Position of a full scan.
#[derive(Clone, Copy, Default, Debug)]
pub struct TableCursor {
    next: u64,
    /// The page of `next`, where the next one begins, and its own first position.
    page: PageNo,
    page_end: u64,
    page_start: u64,
}

/// Rows of one key that are on their way to the processor's cache while one is read.
const CANDIDATES_AHEAD: usize = 8;

#[cfg(test)]
std::thread_local! {
    /// How often this thread has looked at a row, for tests of how many are met.
    pub(super) static LOOKS_AT_ROWS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[inline]
fn note_look() {
    #[cfg(test)]
    LOOKS_AT_ROWS.set(LOOKS_AT_ROWS.get() + 1);
}

/// Copies the version of a row that a snapshot sees; false if it sees none. Own changes are seen.
#[inline]
pub(super) fn read_version(
    core: &Core,
    me: SessionNo,
    snapshot: Cts,
    container: &Container,
    id: RowId,
    row: &mut Row,
) -> bool {
    note_look();
    let words = row.start_copy(container.persistent_words());
    let head = container.slot(id).copy(words);
    if snapshot < container.visible_from() && !(head.is_dirty() && head.owner() == Some(me)) {
        // Loaded in bulk after the snapshot; callers ask the copy whether it lives.
        words[1] &= !LIVE;
        return false;
    }
    if head.is_dirty() || Cts(words[0]) > snapshot {
        core.read_older(container, id, words, Some(me), snapshot);
    }
    words[1] & LIVE != 0
}

/// As `read_version`, without what the session itself wrote by `command`, its newest.
pub(super) fn read_before(
    core: &Core,
    me: SessionNo,
    command: u32,
    snapshot: Cts,
    container: &Container,
    id: RowId,
    row: &mut Row,
) -> bool {
    let head = container.slot(id).copy(&mut []);
    if !head.is_dirty() || head.owner() != Some(me) {
        return read_version(core, me, snapshot, container, id, row);
    }
    let words = row.start_copy(container.persistent_words());
    // Nobody frees what is linked to a latched slot.
    let latched = container.slot(id).latch();
    latched.copy(words);
    version::undo_command(&core.arena, words, latched.head(), command, snapshot);
    words[1] & LIVE != 0
}

/// Most holders are about to commit on another core: whoever queues at once makes the next one wait for a thread to be woken, and the one after
/// that too. Reads only, and gives up at once where somebody queues already: a thousand waiters do not look.
#[cold]
fn wait_for_release(slot: Slot<'_>) {
    for _ in 0..LOOKS_MAX {
        let head = slot.head();
        if head.owner().is_none() || head.is_waited() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// Copies the newest committed version, or the session's own uncommitted one.
#[inline]
pub(super) fn copy_committed(core: &Core, me: SessionNo, container: &Container, id: RowId, row: &mut Row) {
    note_look();
    let words = row.start_copy(container.persistent_words());
    let head = container.slot(id).copy(words);
    if head.is_dirty() && head.owner() != Some(me) {
        undo_under_latch(core, container, id, words);
    }
}

/// Nobody frees what is linked to a latched slot.
#[cold]
fn undo_under_latch(core: &Core, container: &Container, id: RowId, words: &mut [u64]) {
    let latched = container.slot(id).latch();
    latched.copy(words);
    let head = latched.head();
    if head.is_dirty() {
        version::undo_uncommitted(&core.arena, words, head.node);
    }
}

/// As `read_version`, of the `picks` only; whether the version is live is for the caller to see.
#[inline]
pub(super) fn read_picked(
    core: &Core,
    me: SessionNo,
    snapshot: Cts,
    container: &Container,
    id: RowId,
    picks: &Picks,
    row: &mut Row,
) {
    note_look();
    let words = row.start_copy(container.persistent_words());
    let head = container.slot(id).try_copy_picked(picks, words);
    let is_it = head.is_some_and(|head| !head.is_dirty()) && Cts(words[0]) <= snapshot;
    if !is_it || snapshot < container.visible_from() {
        read_older(core, me, snapshot, container, id, row);
    }
}

#[cold]
fn read_older(core: &Core, me: SessionNo, snapshot: Cts, container: &Container, id: RowId, row: &mut Row) {
    read_version(core, me, snapshot, container, id, row);
}

impl Session {
    /// Copies the version of the row that the statement sees; false if it sees none.
    #[inline]
    pub fn read(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        self.assert_snapshot();
        let live = read_version(&self.core, self.no, self.snapshot, &table.store.primary, id, row);
        fetch_extension(table, row);
        if !planted::is(Bug::ForgetDependency) {
            self.dependency = self.dependency.max(row.cts());
        }
        live
    }

    /// Brings a long value of the copy onto its heap, so that `Row::get` can give it. Does nothing for other columns.
    pub fn fetch_long(&mut self, table: &Table, row: &mut Row, column: usize) {
        self.core.fetch_long(table, row, column);
    }

    /// The same of all columns of an index: what a range gave may have none of its long ones yet.
    #[inline]
    pub fn fetch_key_columns(&mut self, table: &Table, index: &Index, row: &mut Row) {
        self.core.fetch_key_columns(table, index, row);
    }

    /// The next visible row of a full scan.
    pub fn scan_next(&mut self, table: &Table, cursor: &mut TableCursor, row: &mut Row) -> Option<RowId> {
        if cursor.next == 0 {
            self.note_table(table);
        }
        while cursor.next < table.store.primary.high_water() {
            if cursor.next >= cursor.page_end {
                // The list of pages is latched once a page: all scans share its latch.
                (cursor.page, cursor.page_start) = table.store.primary.page_at(cursor.next)?;
                cursor.page_end = cursor.page_start + table.store.primary.slots_per_page();
            }
            let id = RowId::new(cursor.page, (cursor.next - cursor.page_start) as u16);
            cursor.next += 1;
            if self.read(table, id, row) {
                return Some(id);
            }
        }
        None
    }

    /// The visible row with this key in a unique index. `value(i)` is the key's i-th column.
    #[inline]
    pub fn get<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        row: &mut Row,
    ) -> Option<RowId> {
        self.assert_snapshot();
        self.note_key(index, &value);
        let (core, me, snapshot) = (&*self.core, self.no, self.snapshot);
        let mut dependency = self.dependency;
        let check = |id: RowId| {
            let live = read_version(core, me, snapshot, &table.store.primary, id, row);
            dependency = dependency.max(row.cts());
            if live {
                core.fetch_key_columns(table, index, row);
                if index.spec.row_matches(&table.layout, row, &value) {
                    return ControlFlow::Break(id);
                }
            }
            ControlFlow::Continue(())
        };
        let found = index.find_first(&value, &mut self.key, check);
        self.dependency = dependency;
        match found {
            ControlFlow::Break(id) => {
                fetch_extension(table, row);
                Some(id)
            }
            ControlFlow::Continue(()) => None,
        }
    }

    /// Appends candidates with this key in any index: read each and check its columns. The first rows are on their way when it returns; for the others
    /// there is [`load_ahead_of`](Self::load_ahead_of).
    pub fn lookup<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        candidates: &mut Vec<RowId>,
    ) {
        self.note_key(index, &value);
        let first = candidates.len();
        self.entries_with_key(index, value, candidates);
        candidates[first..].iter().take(CANDIDATES_AHEAD).for_each(|&id| table.store.primary.prefetch_all(id));
    }

    /// Starts loading a row behind the candidate `at`, which is about to be read.
    #[inline]
    pub fn load_ahead_of(&self, table: &Table, candidates: &[RowId], at: usize) {
        if let Some(&id) = candidates.get(at + CANDIDATES_AHEAD) {
            table.store.primary.prefetch_all(id);
        }
    }

    pub(super) fn entries_with_key<'a>(
        &mut self,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        candidates: &mut Vec<RowId>,
    ) {
        let _ = index.find(value, &mut self.key, |id| {
            candidates.push(id);
            ControlFlow::<()>::Continue(())
        });
    }

    /// Locks the row for itself and copies its newest version.
    pub fn lock(&mut self, table: &Arc<Table>, id: RowId, row: &mut Row) -> Result<Locked, Stop> {
        self.lock_as(table, id, Strength::Update, row)
    }

    /// Locks the row and copies its newest version. An update that turns out to change a unique key takes the rest of the lock itself.
    pub fn lock_as(
        &mut self,
        table: &Arc<Table>,
        id: RowId,
        strength: Strength,
        row: &mut Row,
    ) -> Result<Locked, Stop> {
        let newly = self.lock_newest(table, id, strength, row)?;
        self.dependency = self.dependency.max(row.cts());
        let newer = row.cts() > self.snapshot;
        if newer && self.isolation().keeps_snapshot() && !planted::is(Bug::SkipConflict) {
            self.note_newer();
            return Err(Error::Serialization.into());
        }
        if !row.is_live() {
            if newly {
                self.unlock_last(strength);
            }
            return Ok(Locked::Gone);
        }
        Ok(if newer { Locked::Newer } else { Locked::Same })
    }

    /// Locks the row with this key in a unique index as it is now, not as a snapshot sees it, and copies its newest version: for a READ COMMITTED
    /// statement that changes one row, which would look at the newest version anyhow. Needs no snapshot: the table is entered first, so its
    /// pages stay, and nothing older than the newest committed version is read, except under the row's latch. The key's columns are of fixed
    /// length ([`Index::has_fixed_key`]).
    pub fn lock_by_key<'a>(
        &mut self,
        table: &Arc<Table>,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        strength: Strength,
        row: &mut Row,
    ) -> Result<Option<RowId>, Stop> {
        debug_assert!(self.isolation() == Isolation::ReadCommitted, "invariant: a snapshot says what else to lock");
        self.enter(table)?;
        loop {
            let (core, me) = (&*self.core, self.no);
            let mut dependency = self.dependency;
            let check = |id: RowId| {
                copy_committed(core, me, &table.store.primary, id, row);
                dependency = dependency.max(row.cts());
                let is_it = row.is_live() && index.spec.row_matches(&table.layout, row, &value);
                if is_it { ControlFlow::Break(id) } else { ControlFlow::Continue(()) }
            };
            let found = index.find_first(&value, &mut self.key, check);
            self.dependency = dependency;
            let ControlFlow::Break(id) = found else {
                return Ok(None);
            };
            let newly = self.lock_newest(table, id, strength, row)?;
            self.dependency = self.dependency.max(row.cts());
            if row.is_live() && index.spec.row_matches(&table.layout, row, &value) {
                return Ok(Some(id));
            }
            // It was another's meanwhile, who deleted it or gave it another key: another row may have this one now.
            if newly {
                self.unlock_last(strength);
            }
        }
    }

    /// Takes the row's lock whatever its version; true if this transaction did not have it yet. Of a row that another writes, which only its key
    /// shared allows, the committed version is copied.
    pub(super) fn lock_newest(
        &mut self,
        table: &Arc<Table>,
        id: RowId,
        strength: Strength,
        row: &mut Row,
    ) -> Result<bool, Stop> {
        let held = Held { table: self.enter_in(table, true)?, container: PRIMARY, row: id };
        self.room_for_lock(Claim::Finish)?;
        if strength.is_shared() {
            return self.share_newest(table, held, strength, row);
        }
        let primary = &table.store.primary;
        let slot = primary.slot(id);
        if slot.head().owner().is_some_and(|owner| owner != self.no) && !self.core.is_stepped {
            wait_for_release(slot);
        }
        let mut latched = slot.latch();
        let owned = latched.try_own(self.no, strength == Strength::Update);
        if owned == Owned::Others {
            drop(latched);
            let newly = matches!(self.ask_row(table, held, strength)?, Asked::Newly);
            primary.slot(id).latch().copy(row.start_copy(primary.persistent_words()));
            fetch_extension(table, row);
            return Ok(newly);
        }
        let newly = owned == Owned::Newly;
        latched.copy(row.start_copy(primary.persistent_words()));
        drop(latched);
        if newly {
            self.held.push(held);
        }
        fetch_extension(table, row);
        Ok(newly)
    }

    #[cold]
    fn share_newest(
        &mut self,
        table: &Arc<Table>,
        held: Held,
        strength: Strength,
        row: &mut Row,
    ) -> Result<bool, Stop> {
        let is_own = table.store.primary.slot(held.row).head().owner() == Some(self.no);
        let newly = !is_own && matches!(self.ask_row(table, held, strength)?, Asked::Newly);
        copy_committed(&self.core, self.no, &table.store.primary, held.row, row);
        fetch_extension(table, row);
        Ok(newly)
    }

    /// The lock of a row that this transaction writes is to be of its keys too: nobody refers to them while they change.
    fn lock_keys(&mut self, table: &Arc<Table>, held: Held) -> Result<(), Stop> {
        if planted::is(Bug::ShareKeyChange) {
            return Ok(());
        }
        let owned = table.store.primary.slot(held.row).latch().try_own(self.no, true);
        if owned == Owned::Others {
            self.ask_row(table, held, Strength::Update)?;
        }
        Ok(())
    }

    /// Whether this transaction's current statement has already written the row, so that an update does not meet its
    /// own result again.
    pub fn written_by_statement(&mut self, table: &Table, id: RowId) -> bool {
        let primary = &table.store.primary;
        let head = primary.slot(id).copy(&mut []);
        head.is_dirty()
            && head.owner() == Some(self.no)
            && Node::new(&self.core.arena, head.node).command() == self.command
    }

    pub fn insert(&mut self, table: &Arc<Table>, row: &mut Row) -> Result<RowId, Stop> {
        let number = self.enter(table)?;
        self.store_long_values(number, table, row)?;
        if table.layout.is_extended() {
            fetch_extension(table, row);
            self.store_extension(number, table, row)?;
        }
        let id = self
            .core
            .take_slot(&table.store.primary, self.no.0 as usize)
            .map_err(|stop| self.or_wait_for_space(stop))?;
        let held = Held { table: number, container: PRIMARY, row: id };
        self.put_new(&table.store.primary, held, &row.words[1..table.layout.words()])?;
        for index in &table.indexes {
            self.add_entry(number, table, index, id, row, Claim::Growth)?;
            self.check_one_of_snapshot(table, index, id, row)?;
        }
        Ok(id)
    }

    /// Writes a new record into a slot that this transaction was given. `words` are those after the cts; what they do not
    /// reach stays residue.
    fn put_new(&mut self, container: &Container, held: Held, words: &[u64]) -> Result<(), Stop> {
        let slot = container.slot(held.row);
        let room = self.room_for_lock(Claim::Growth).and_then(|()| self.room_for_write(Claim::Growth));
        if let Err(error) = room {
            self.core.free_slot(container, held.row);
            return Err(error.into());
        }
        let head = slot.head();
        assert!(head.owner().is_none(), "invariant: a slot given out is nobody's");
        let prev_cts = slot.load(0);
        let fresh = prev_cts == 0;
        let mut changed = CHANGED.take();
        changed.clear();
        if !fresh {
            differences(slot, words, 1, &mut changed);
        }
        let node = NewNode {
            prev_cts: Some(Cts(prev_cts)),
            next: head.node,
            command: self.command,
            fresh,
            words: container.persistent_words(),
            changed: &changed,
        };
        let node = self.write_node(Claim::Growth, &node);
        CHANGED.set(changed);
        let Some(node) = node else {
            self.core.free_slot(container, held.row);
            return Err(Error::OutOfMemory("a version").into());
        };
        let mut latched = slot.latch();
        // What an older snapshot needs of the slot's former rows may have been cut or moved since the head was read.
        let head = latched.head();
        if !head.node.is_none() {
            Node::new(&self.core.arena, node).set_next(head.node);
        }
        for (i, &word) in (1..).zip(words) {
            latched.set(i, word);
        }
        latched.set_head(head.with_owner(Some(self.no)).with_dirty(true).with_node(node));
        drop(latched);
        self.held.push(held);
        self.writes.push(Write { held, node, command: self.command, change: Change::Insert });
        Ok(())
    }

    /// `old` is what `lock` gave; `new` a copy of it with columns set.
    pub fn update(&mut self, table: &Arc<Table>, id: RowId, old: &Row, new: &mut Row) -> Result<(), Stop> {
        let number = self.enter(table)?;
        let layout = &table.layout;
        // Whether anything changes in the extension, which is written anew then as a whole.
        let extends = layout.is_extended() && old.words[layout.words()..] != new.words[layout.words()..];
        let moves = extends && table.has_key_in_extension(false);
        let keys_touched = moves || table.key_words.iter().any(|&w| old.words[w] != new.words[w]);
        if keys_touched && (table.differs_in_unique(old, new) || moves && table.has_key_in_extension(true)) {
            self.lock_keys(table, Held { table: number, container: PRIMARY, row: id })?;
        }
        if !extends {
            new.shorten(layout);
        }
        self.store_long_values(number, table, new)?;
        if extends {
            self.store_extension(number, table, new)?;
        }
        let held = Held { table: number, container: PRIMARY, row: id };
        self.overwrite(table, held, &new.words[..layout.words()], Change::Update)?;
        // As the caller gave it.
        fetch_extension(table, new);
        for &column in table.variable.iter().filter(|&&column| extends || !layout.is_in_extension(column)) {
            if let Some((length, value)) = old.stored(layout, column)
                && new.stored(layout, column).map(|s| s.1) != Some(value)
            {
                self.unlink_value(number, table, value, length, Change::Replace)?;
            }
        }
        if let Some(linked) = old.link(layout).filter(|_| extends) {
            self.unlink_extension(number, table, linked, Change::Replace)?;
        }
        if keys_touched {
            self.move_entries(number, table, id, old, new)?;
        }
        Ok(())
    }

    /// `old` is what `lock` gave.
    pub fn delete(&mut self, table: &Arc<Table>, id: RowId, old: &Row) -> Result<(), Stop> {
        let number = self.enter(table)?;
        let mut dead = std::mem::take(&mut self.row_a);
        dead.copy_from(old);
        dead.words[1] &= !LIVE;
        dead.shorten(&table.layout);
        let held = Held { table: number, container: PRIMARY, row: id };
        let written = self.overwrite(table, held, &dead.words, Change::Delete);
        self.row_a = dead;
        written?;
        for &column in &table.variable {
            if let Some((length, value)) = old.stored(&table.layout, column) {
                self.unlink_value(number, table, value, length, Change::Delete)?;
            }
        }
        if let Some(linked) = old.link(&table.layout).filter(|_| table.layout.is_extended()) {
            self.unlink_extension(number, table, linked, Change::Delete)?;
        }
        Ok(())
    }

    // ---- the extension

    /// Stores a whole row's extension, unless it is what is missing without one, and links the row to it. Its long values are stored.
    fn store_extension(&mut self, number: u16, table: &Arc<Table>, row: &mut Row) -> Result<(), Stop> {
        let Some(words) = row.extension(&table.layout) else {
            row.set_link(&table.layout, None);
            return Ok(());
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let stored = self.store_piece(number, table, &bytes)?;
        if planted::is(Bug::LoseLink) {
            return Ok(());
        }
        row.set_link(&table.layout, Some(stored));
        Ok(())
    }

    fn unlink_extension(&mut self, number: u16, table: &Arc<Table>, linked: RowId, change: Change) -> Result<(), Stop> {
        let values = table.store.values_of(linked).expect("invariant: a locked row's link leads to a long value");
        self.unlink_slot(number, table, values, linked, change)
    }

    #[inline]
    fn room_for_lock(&mut self, claim: Claim) -> Result<(), Error> {
        room_for_one(&mut self.held, &self.account, claim).or_else(|error| {
            self.make_room(claim, error)?;
            room_for_one(&mut self.held, &self.account, claim)
        })
    }

    #[inline]
    fn room_for_write(&mut self, claim: Claim) -> Result<(), Error> {
        room_for_one(&mut self.writes, &self.account, claim).or_else(|error| {
            self.make_room(claim, error)?;
            room_for_one(&mut self.writes, &self.account, claim)
        })
    }

    pub(super) fn room_for_key_change(&mut self) -> Result<(), Error> {
        room_for_one(&mut self.key_changes, &self.account, Claim::Finish).or_else(|error| {
            self.make_room(Claim::Finish, error)?;
            room_for_one(&mut self.key_changes, &self.account, Claim::Finish)
        })
    }

    /// Where something was refused: collects garbage, and for what has to finish ends snapshots. The error again if nothing came of it.
    #[cold]
    fn make_room(&self, claim: Claim, error: Error) -> Result<(), Error> {
        if self.core.make_room(self.no, claim == Claim::Finish) { Ok(()) } else { Err(error) }
    }

    /// A node of this session's. `None`: there is no memory for versions, and none could be made.
    fn write_node(&mut self, claim: Claim, node: &NewNode<'_>) -> Option<NodeRef> {
        let core = &*self.core;
        let place = core.thread(self.no.0 as usize);
        loop {
            let written = version::write(&core.arena, Pen { cursor: &mut self.cursor, place }, claim, node);
            // What was collected may not have emptied a chunk yet.
            if written.is_some() || !core.make_room(self.no, claim == Claim::Finish) {
                return written;
            }
        }
    }

    /// Makes `new` the newest version of a row whose lock this transaction holds: one of its own also where nothing differs. Who updates a row to what it
    /// is, to rely on it, is to meet whoever changes it at an older snapshot.
    fn overwrite(&mut self, table: &Table, held: Held, new: &[u64], change: Change) -> Result<(), Stop> {
        let container = container(table, held.container);
        let slot = container.slot(held.row);
        self.room_for_write(Claim::Finish)?;
        let head = slot.head();
        assert!(head.owner() == Some(self.no), "invariant: a row is written under its lock");
        let mut changed = CHANGED.take();
        changed.clear();
        differences(slot, &new[1..], 1, &mut changed);
        // A row written before by this transaction keeps its committed cts until pre-commit; only its oldest node names it.
        let prev_cts = (!head.is_dirty()).then_some(Cts(slot.load(0)));
        let words = container.persistent_words();
        let node = NewNode { prev_cts, next: head.node, command: self.command, fresh: false, words, changed: &changed };
        let node = self.write_node(Claim::Finish, &node);
        if let Some(node) = node {
            let mut latched = slot.latch();
            // Garbage collection may have cut the chain since the head was read: what it cut must not be linked again.
            let head = latched.head();
            Node::new(&self.core.arena, node).set_next(head.node);
            for &(i, _) in &changed {
                latched.set(usize::from(i), new[usize::from(i)]);
            }
            latched.set_head(head.with_dirty(true).with_node(node));
        }
        CHANGED.set(changed);
        let Some(node) = node else {
            return Err(Error::OutOfMemory("a version").into());
        };
        self.writes.push(Write { held, node, command: self.command, change });
        Ok(())
    }

    // ---- index entries

    /// Enters a row that is in place into an index, after the unique check.
    fn add_entry(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        index: &Arc<Index>,
        id: RowId,
        row: &mut Row,
        claim: Claim,
    ) -> Result<TreeKey, Stop> {
        match self.try_entry(number, table, index, id, row, claim) {
            Err(Stop::Error(error @ Error::OutOfMemory(_))) => {
                self.make_room(claim, error)?;
                self.try_entry(number, table, index, id, row, claim)
            }
            entered => entered,
        }
    }

    fn try_entry(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        index: &Arc<Index>,
        id: RowId,
        row: &mut Row,
        claim: Claim,
    ) -> Result<TreeKey, Stop> {
        match enter_index(&self.core, self.no, table, index, id, row, claim, &mut self.key) {
            Ok(key) => Ok(key),
            Err(Conflict::Duplicate(other)) => {
                let mut met = Row::default();
                table.store.primary.slot(other).copy(met.start_copy(table.layout.words()));
                self.dependency = self.dependency.max(met.cts());
                self.note_newer_than_snapshot(&met);
                Err(Error::UniqueViolation { index: index.def.name.clone() }.into())
            }
            Err(Conflict::OutOfMemory) => Err(Error::OutOfMemory("an index").into()),
            Err(Conflict::Wait(other)) => {
                let held = Held { table: number, container: PRIMARY, row: other };
                Err(self.wait_for_owner(held))
            }
        }
    }

    /// A unique key has at most one row, and who looks for it stops at the first that is seen. A transaction that keeps its snapshot could see two: the
    /// one that it writes, and the one that has been another's since. It is told to begin anew, as if it had wanted to write that other one.
    /// To be called when the row is entered: later nobody else gets the key.
    fn check_one_of_snapshot(&mut self, table: &Table, index: &Index, id: RowId, row: &Row) -> Result<(), Stop> {
        if !self.isolation().keeps_snapshot() || !index.def.unique {
            return Ok(());
        }
        let columns: Vec<usize> = index.spec.columns().map(|key| usize::from(key.column)).collect();
        // Nobody stops at the first row of a key with nulls, equal or not.
        if columns.iter().any(|&column| row.is_null(&table.layout, column)) {
            return Ok(());
        }
        let value = |i: usize| row.get(&table.layout, columns[i]);
        let (core, me, snapshot, primary) = (&*self.core, self.no, self.snapshot, &table.store.primary);
        let mut seen = std::mem::take(&mut self.row_a);
        let other = index.find_first(value, &mut self.key, |other| {
            if other == id || !read_version(core, me, snapshot, primary, other, &mut seen) {
                return ControlFlow::Continue(());
            }
            core.fetch_key_columns(table, index, &mut seen);
            match index.spec.row_matches(&table.layout, &seen, value) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        self.row_a = seen;
        match other {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                self.note_newer();
                Err(Error::Serialization.into())
            }
        }
    }

    /// Enters an updated row under its new keys. Old entries stay for older snapshots.
    fn move_entries(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        id: RowId,
        old: &Row,
        new: &mut Row,
    ) -> Result<(), Stop> {
        let mut before = std::mem::take(&mut self.row_b);
        before.copy_from(old);
        let mut moved = Ok(());
        for index in &table.indexes {
            self.core.fetch_key_columns(table, index, &mut before);
            self.core.fetch_key_columns(table, index, new);
            if index.spec.rows_equal(&table.layout, &before, new) {
                continue;
            }
            let old_key = key_of(index, &table.layout, &before, &mut self.key);
            index.note_moved();
            let room = self.room_for_key_change();
            let entered = room.map_err(Stop::from);
            match entered.and_then(|()| self.add_entry(number, table, index, id, new, Claim::Finish)) {
                Ok(new_key) => {
                    self.key_changes.push(KeyChange {
                        table: table.clone(),
                        index: index.clone(),
                        row: id,
                        old: old_key,
                        new: new_key,
                        command: self.command,
                    });
                    moved = self.check_one_of_snapshot(table, index, id, new);
                }
                Err(stop) => moved = Err(stop),
            }
            if moved.is_err() {
                break;
            }
        }
        self.row_b = before;
        moved
    }

    // ---- long values

    /// Stores every long value that was set on the row, and points the row at it.
    fn store_long_values(&mut self, number: u16, table: &Arc<Table>, row: &mut Row) -> Result<(), Stop> {
        if row.heap.is_empty() {
            return Ok(());
        }
        for &column in &table.variable {
            if let Some(bytes) = row.unstored(&table.layout, column) {
                if bytes.len() > VALUE_BYTES_MAX {
                    return Err(Error::LimitExceeded(format!("a value of {} bytes", bytes.len())).into());
                }
                let stored = self.store_value(number, table, bytes)?;
                row.set_stored(&table.layout, column, stored);
            }
        }
        Ok(())
    }

    fn store_value(&mut self, number: u16, table: &Arc<Table>, bytes: &[u8]) -> Result<RowId, Stop> {
        if bytes.len() <= PIECE_BYTES {
            return self.store_piece(number, table, bytes);
        }
        let mut list = Vec::with_capacity(bytes.len().div_ceil(PIECE_BYTES) * 8);
        for piece in bytes.chunks(PIECE_BYTES) {
            list.extend_from_slice(&self.store_piece(number, table, piece)?.0.to_le_bytes());
        }
        self.store_value(number, table, &list)
    }

    fn store_piece(&mut self, number: u16, table: &Arc<Table>, bytes: &[u8]) -> Result<RowId, Stop> {
        let values = table.store.values_for(bytes.len());
        let row = self.core.take_slot(values, self.no.0 as usize).map_err(|stop| self.or_wait_for_space(stop))?;
        let words = values::piece_words(bytes);
        self.put_new(values, Held { table: number, container: values.number, row }, &words)?;
        Ok(row)
    }

    /// Tombstones a value (all its pieces): the version that had it is superseded by this transaction.
    fn unlink_value(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        row: RowId,
        length: usize,
        change: Change,
    ) -> Result<(), Stop> {
        let Some(list_length) = values::list_bytes(length) else {
            return self.unlink_piece(number, table, row, length, change);
        };
        let mut list = Vec::with_capacity(list_length);
        values::read(&table.store, row, list_length, &mut list);
        let mut left = length;
        for id in list.chunks_exact(8) {
            let piece = RowId(u64::from_le_bytes(id.try_into().expect("8 bytes")));
            self.unlink_piece(number, table, piece, left.min(PIECE_BYTES), change)?;
            left -= left.min(PIECE_BYTES);
        }
        self.unlink_value(number, table, row, list_length, change)
    }

    fn unlink_piece(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        row: RowId,
        length: usize,
        change: Change,
    ) -> Result<(), Stop> {
        self.unlink_slot(number, table, table.store.values_for(length), row, change)
    }

    fn unlink_slot(
        &mut self,
        number: u16,
        table: &Arc<Table>,
        values: &Container,
        row: RowId,
        change: Change,
    ) -> Result<(), Stop> {
        let held = Held { table: number, container: values.number, row };
        let mut words = vec![0; values.persistent_words()];
        self.room_for_lock(Claim::Finish)?;
        let mut latched = values.slot(row).latch();
        let head = latched.head();
        match head.owner() {
            None => {
                latched.set_head(head.with_owner(Some(self.no)));
                self.held.push(held);
            }
            // Stored earlier in this transaction.
            Some(owner) => assert!(owner == self.no, "invariant: a value is locked by who locks its row"),
        }
        latched.copy(&mut words);
        drop(latched);
        words[1] &= !LIVE;
        self.overwrite(table, held, &words, change)
    }

    /// Gives up the lock taken last, of a row that turned out to be gone.
    fn unlock_last(&mut self, strength: Strength) {
        if strength.is_shared() {
            return self.stop_sharing_last();
        }
        if let Some(last) = self.held.pop() {
            self.release(last);
        }
    }
}

/// The words in which a slot, whose persistent bytes nobody else writes now, differs from `new`, which begins at its word `first`.
#[inline]
pub(super) fn differences(slot: Slot<'_>, new: &[u64], first: usize, changed: &mut Vec<Changed>) {
    for (i, &word) in (first..).zip(new) {
        let xor = slot.load(i) ^ word;
        if xor != 0 {
            changed.push((i as u16, xor));
        }
    }
}

/// Enters a row that is in place into an index, after the unique check.
#[expect(clippy::too_many_arguments, reason = "what is entered where, by whom, and the buffer for its key")]
pub(super) fn enter_index(
    core: &Core,
    me: SessionNo,
    table: &Table,
    index: &Index,
    id: RowId,
    row: &mut Row,
    claim: Claim,
    key: &mut KeyBuf,
) -> Result<TreeKey, Conflict> {
    core.fetch_key_columns(table, index, row);
    let unique = index.def.unique && !index.def.exempts(&table.layout, row);
    let key = key_of(index, &table.layout, row, key);
    index.insert(&key, id, claim, unique, |other| verdict(core, me, table, index, other, row))?;
    Ok(key)
}

/// What a unique insert of `row` has to think of an existing entry: looks at the newest version and, where that is
/// uncommitted, at the committed one below. The long values of a key are read without the latch: whoever takes them away changes the row first,
/// and then it is looked at anew.
pub(super) fn verdict(core: &Core, me: SessionNo, table: &Table, index: &Index, other: RowId, row: &Row) -> Probe {
    let slot = table.store.primary.slot(other);
    let mut spin = Spin::new();
    loop {
        let (probe, seen) = verdict_of_now(core, me, table, index, slot, row);
        if !index.spec.has_variable() || slot.is_unchanged(seen) {
            return probe;
        }
        spin.turn();
    }
}

/// With the state of the slot that it is about.
fn verdict_of_now(core: &Core, me: SessionNo, table: &Table, index: &Index, slot: Slot<'_>, row: &Row) -> (Probe, u64) {
    note_look();
    let mut newest = Row::default();
    let mut below = None;
    let latched = slot.latch();
    latched.copy(newest.start_copy(table.store.primary.persistent_words()));
    let head = latched.head();
    if head.is_dirty() && head.owner() != Some(me) {
        let mut committed = newest.clone();
        version::undo_uncommitted(&core.arena, &mut committed.words, head.node);
        below = Some(committed);
    }
    let seen = latched.seen();
    drop(latched);
    let same_key = |version: &mut Row| {
        version.is_live() && {
            core.fetch_key_columns(table, index, version);
            index.spec.rows_equal(&table.layout, version, row)
        }
    };
    // Of both: what is undecided may end as either.
    let has_key = same_key(&mut newest) || below.as_mut().is_some_and(same_key);
    let probe = match below {
        _ if !has_key => Probe::Ignore,
        Some(_) if planted::is(Bug::SkipUndecided) => Probe::Ignore,
        Some(_) => Probe::Wait,
        None => Probe::Duplicate,
    };
    (probe, seen)
}
