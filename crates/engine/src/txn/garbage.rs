//! What may be forgotten? Version nodes, index entries, slots and pages that no snapshot can reach.
//!
//! 1. An item waits until the floor (`Sessions::floor`) has reached its cts: then no reader needs what lies below that version. What a
//!    rollback unlinks is no garbage: it is freed at once (`Core::read_older` tells who may still walk it).
//! 2. A chain is cut at the first node whose stamp is at or below the floor, under the slot's latch. Items of several queues are worked
//!    off in any order between queues: what is below the cut is reached by nobody, so each item frees its own node.
//! 3. A deleted row's slot is given out again only after its entries are gone from every index, and never while someone holds its lock.
//!    Such a row is set aside together with what its commit left behind it; what is younger goes on without it.
//! 4. An index entry goes only under the latch of its place in the index, and only if no reachable version has its key.
//!    What a snapshot holds back for long is folded (`fold`): a node goes with its item, others' nodes stay.
//! 5. A floor stays true: it is at or below every snapshot in use, then and later. So one that was found before serves any thread.
//!
//! Each thread that commits has a queue, and works it off itself: a row's slot, its node and the node's chunk are then in that core's cache and no
//! other's. What threads leave that do little else, the upkeep's thread does.

use super::core::Core;
use super::session::{Change, Write};
use super::version::{self, Node};
use crate::catalog::{Index, Table, Tree, TreeKey};
use crate::ids::{Cts, RowId, StorageId};
use crate::mem::{Account, Budget, Claim, Freed, Kind, NodeRef};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, Row};
use crate::sync::phase::Ended;
use crate::table::{Container, PRIMARY, SessionNo, Store};
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

/// What a write leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leftover {
    /// A node below the floor.
    Node,
    /// As `Node`, and the row is deleted: entries and slot. A long value of a deleted row: its slot, after the row's entries.
    Deleted,
    /// As `Node`, and the long value is replaced by another: its slot.
    Replaced,
}

pub(super) enum Garbage {
    Row {
        cts: Cts,
        leftover: Leftover,
        storage: StorageId,
        container: u16,
        row: RowId,
        node: NodeRef,
    },
    /// A key that the row had before `cts`.
    Key {
        cts: Cts,
        table: Arc<Table>,
        index: Arc<Index>,
        key: TreeKey,
        row: RowId,
    },
    /// A storage that no schema names any more.
    Storage {
        cts: Cts,
        storage: StorageId,
    },
    /// The writes of a large transaction.
    Batch(Box<Batch>),
}

/// Writes that one transaction left behind, worked off in their order.
pub(super) struct Batch {
    cts: Cts,
    /// By the writes' table numbers.
    storages: Box<[StorageId]>,
    writes: Vec<Write>,
    done: usize,
    /// What the list takes, until it is gone.
    account: Account,
}

impl Batch {
    pub fn new(cts: Cts, storages: Box<[StorageId]>, writes: Vec<Write>, account: Account) -> Batch {
        Batch { cts, storages, writes, done: 0, account }
    }

    /// Writes that were worked off.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn move_node(&mut self, write: usize, node: NodeRef) {
        self.writes[write].node = node;
    }

    /// The slot that the write freed is given back: of the write only its node is left.
    pub(super) fn keep_node_only(&mut self, write: usize) {
        self.writes[write].change = Change::Update;
    }

    /// The batch without those writes, which come in ascending order; nothing if none is left.
    pub(super) fn without(mut self: Box<Self>, mut gone: impl Iterator<Item = usize>) -> Option<Box<Batch>> {
        let Some(first) = gone.next() else { return Some(self) };
        let mut next = Some(first);
        let (mut at, done) = (0, self.done);
        self.writes.retain(|_| {
            at += 1;
            let is_gone = at <= done || next == Some(at - 1);
            if next == Some(at - 1) {
                next = gone.next();
            }
            !is_gone
        });
        self.done = 0;
        self.writes.shrink_to_fit();
        self.account.hold((self.writes.capacity() * size_of::<Write>()) as u64, Claim::Forced);
        (!self.writes.is_empty()).then_some(self)
    }

    pub(super) fn item(&self, at: usize) -> Garbage {
        let write = &self.writes[at];
        write.garbage(self.cts, self.storages[usize::from(write.held.table)])
    }
}

/// Items of one piece of a queue.
const PIECE: usize = 512;
/// Queues of a database, one per thread that commits; threads share them when there are more.
const QUEUES: usize = 32;
/// Items after which a thread looks what of its queue can be done, or as many as there are sessions: looking for a floor asks every session, whose
/// line then has to come back to the thread that it was of (seen as a third of a commit, with 4,800 sessions and a look after 1,024).
const DUE_MIN: usize = 1024;
/// The same where one thread is every session's.
const DUE_STEPPED: usize = 32;
/// So many items that the floor holds back are worth a look at the snapshots: they take a few hundred KiB with their nodes.
const HELD_BACK: usize = 4096;
const HELD_BACK_STEPPED: usize = 8;
/// Who left so many between two rounds of the upkeep is busy, and collects by itself.
const BUSY: u64 = 64;
/// Items done under one hold of a queue that is not the caller's own.
const PORTION: usize = 64;

/// What a thread's transactions left behind, in the order in which they ended, in pieces: it never moves as a whole.
pub(crate) struct GarbageQueue {
    pieces: VecDeque<VecDeque<Garbage>>,
    /// An emptied piece, for the next one.
    spare: Option<VecDeque<Garbage>>,
    /// What could not be done in its turn, each with what its commit left behind it.
    stalled: Vec<VecDeque<Garbage>>,
    /// Older than what is in pieces: what the floor holds back and a snapshot needs (`fold`).
    held: VecDeque<Garbage>,
    /// Writes in those, and how many there were when they were last looked through.
    held_writes: usize,
    held_seen: usize,
    account: Account,
    /// Items ever left here; as of the last collection by the owner, and of the last round of the upkeep.
    left: u64,
    collected_at: u64,
    seen_at: u64,
}

impl GarbageQueue {
    fn new(budget: &Arc<Budget>) -> GarbageQueue {
        GarbageQueue {
            pieces: VecDeque::new(),
            spare: None,
            stalled: Vec::new(),
            held: VecDeque::new(),
            held_writes: 0,
            held_seen: 0,
            account: Account::new(budget, Kind::Transactions),
            left: 0,
            collected_at: 0,
            seen_at: 0,
        }
    }

    /// What comes next, as far as it is at hand.
    fn next_items(&self) -> impl Iterator<Item = &Garbage> + Clone {
        self.held.iter().chain(self.pieces.front().into_iter().flatten()).take(AHEAD)
    }

    /// The oldest item's.
    fn front_cts(&self) -> Option<Cts> {
        let oldest = self.held.front().or_else(|| self.pieces.front()?.front());
        oldest.map(Garbage::cts)
    }

    fn is_empty(&self) -> bool {
        self.stalled.is_empty() && self.front_cts().is_none()
    }

    fn front_is_deleted(&self) -> bool {
        let front = self.held.front().or_else(|| self.pieces.front()?.front());
        matches!(front, Some(Garbage::Row { leftover: Leftover::Deleted | Leftover::Replaced, .. }))
    }

    /// A long value's slot: it is looked at together with the row that it was of.
    fn front_is_value(&self) -> bool {
        let front = self.held.front().or_else(|| self.pieces.front()?.front());
        front.is_some_and(Garbage::is_value)
    }

    pub(super) fn push_back(&mut self, item: Garbage) {
        self.left += 1;
        if self.pieces.back().is_none_or(|piece| piece.len() >= PIECE) {
            let piece = self.spare.take().unwrap_or_default();
            self.pieces.push_back(piece);
        }
        let piece = self.pieces.back_mut().expect("one was just pushed");
        if piece.len() == piece.capacity() {
            let before = piece.capacity();
            piece.reserve_exact(before.max(4));
            // A commit has happened: there is no refusing what it leaves behind.
            self.account.take(bytes_of(piece.capacity() - before), Claim::Forced);
        }
        piece.push_back(item);
    }

    fn pop_front(&mut self) -> Option<Garbage> {
        if let Some(item) = self.held.pop_front() {
            self.held_writes -= item.writes();
            if self.held.len() < self.held.capacity() / 4 {
                self.resize_held(|held| held.shrink_to(held.len() * 2));
            }
            return Some(item);
        }
        let piece = self.pieces.front_mut()?;
        let item = piece.pop_front();
        if piece.is_empty() && (self.pieces.len() > 1 || self.pieces[0].capacity() > PIECE / 8) {
            let piece = self.pieces.pop_front().expect("just seen");
            if self.spare.is_none() && piece.capacity() == PIECE {
                self.spare = Some(piece);
            } else {
                self.account.give(bytes_of(piece.capacity()));
            }
        }
        item
    }

    fn resize_held(&mut self, change: impl FnOnce(&mut VecDeque<Garbage>)) {
        let before = self.held.capacity();
        change(&mut self.held);
        let now = self.held.capacity();
        self.account.take(bytes_of(now.saturating_sub(before)), Claim::Forced);
        self.account.give(bytes_of(before.saturating_sub(now)));
    }

    /// Whether so many writes that have not been looked through wait for the floor to get from `floor` to `limit`.
    fn is_held_back(&self, floor: Cts, limit: Cts, many: usize) -> bool {
        let mut writes = 0;
        for item in self.pieces.iter().flatten().take_while(|item| item.cts() <= limit) {
            writes += if item.cts() > floor { item.writes() } else { 0 };
            if writes >= many {
                return true;
            }
        }
        false
    }

    /// Takes what can be folded: up to `most` items that have not been looked through, and those that have if they have doubled, and whether so.
    fn take_held_back(&mut self, limit: Cts, most: usize, many: usize) -> (Vec<Garbage>, bool) {
        let mut items = Vec::new();
        let looks_again = self.held_writes >= self.held_seen.saturating_mul(2).saturating_add(many);
        if looks_again {
            items.extend(self.held.drain(..));
            (self.held_writes, self.held_seen) = (0, 0);
        }
        let held = std::mem::take(&mut self.held);
        let most = items.len().saturating_add(most);
        while self.front_cts().is_some_and(|cts| cts <= limit) && (items.len() < most || self.front_is_value()) {
            items.extend(self.pop_front());
        }
        self.held = held;
        (items, looks_again)
    }

    /// Keeps what is still needed.
    fn hold(&mut self, kept: Vec<Garbage>, looked_again: bool) {
        self.held_writes += kept.iter().map(Garbage::writes).sum::<usize>();
        self.resize_held(|held| held.extend(kept));
        if looked_again {
            self.held_seen = self.held_writes;
        }
    }

    /// What cannot be done yet is set aside, with what the same commit left behind it: there lie the long values that a row's key is read from.
    fn stall(&mut self, item: Garbage) {
        let cts = item.cts();
        let mut items = VecDeque::with_capacity(1);
        items.push_back(item);
        while self.front_cts() == Some(cts) {
            items.push_back(self.pop_front().expect("just seen"));
        }
        self.account.take(bytes_of(items.capacity()), Claim::Forced);
        self.stalled.push(items);
    }
}

fn bytes_of(items: usize) -> u64 {
    (items * size_of::<Garbage>()) as u64
}

/// A copy of a row's version.
pub(super) struct Version {
    pub row: Row,
    /// The timestamp of the next one; MAX: there is none, or it is not committed.
    pub until: Cts,
    pub is_committed: bool,
}

/// All queues of a database.
pub(crate) struct GarbageQueues {
    queues: Box<[Line<Mutex<GarbageQueue>>]>,
    /// A floor that was found earlier: at or below every snapshot in use, then and later.
    floor: Line<AtomicU64>,
}

#[repr(align(128))]
struct Line<T>(T);

impl GarbageQueues {
    pub fn new(budget: &Arc<Budget>) -> GarbageQueues {
        let queue = || Line(Mutex::new(GarbageQueue::new(budget)));
        GarbageQueues { queues: std::iter::repeat_with(queue).take(QUEUES).collect(), floor: Line(AtomicU64::new(0)) }
    }

    fn of(&self, thread: usize) -> MutexGuard<'_, GarbageQueue> {
        self.queues[thread % QUEUES].0.lock()
    }

    /// Writes whose versions wait to be forgotten, and items that were ever left here.
    fn sizes(&self) -> (u64, u64) {
        let size = |queue: &Line<Mutex<GarbageQueue>>| {
            let queue = queue.0.lock();
            let items = queue.held.iter().chain(queue.pieces.iter().flatten()).chain(queue.stalled.iter().flatten());
            (items.map(|item| item.writes() as u64).sum::<u64>(), queue.left)
        };
        self.queues.iter().map(size).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Whether anything waits for the floor to get from `above` to `to`. What is being worked off is not asked.
    pub fn wait_between(&self, above: Cts, to: Cts) -> bool {
        let front = |queue: &Line<Mutex<GarbageQueue>>| queue.0.try_lock().and_then(|queue| queue.front_cts());
        self.queues.iter().filter_map(front).any(|cts| cts > above && cts <= to)
    }
}

impl Garbage {
    fn cts(&self) -> Cts {
        match self {
            Garbage::Row { cts, .. } | Garbage::Key { cts, .. } | Garbage::Storage { cts, .. } => *cts,
            Garbage::Batch(batch) => batch.cts,
        }
    }

    /// A long value of a deleted row.
    pub(super) fn is_value(&self) -> bool {
        matches!(self, Garbage::Row { leftover: Leftover::Deleted, container, .. } if *container != PRIMARY)
    }

    fn due(&self) -> Option<Due> {
        match *self {
            Garbage::Row { leftover, storage, container, row, .. } => Some(Due { storage, container, row, leftover }),
            _ => None,
        }
    }

    pub(super) fn writes(&self) -> usize {
        if let Garbage::Batch(batch) = self { batch.writes.len() - batch.done } else { 1 }
    }
}

/// Items whose cache misses are waited for together.
const AHEAD: usize = 16;
/// Rows that a sweep has cut already.
const CUTS: usize = 64;

/// One go at a queue, with what its items share.
struct Sweep<'c> {
    core: &'c Core,
    floor: Cts,
    /// A storage that is still listed keeps its pages while the list is latched.
    stores: RwLockReadGuard<'c, HashMap<StorageId, Arc<Store>>>,
    store: Option<Arc<Store>>,
    freed: Freed<'c>,
    keys: Keys,
    /// Rows whose chains were cut at this floor: a hot row is walked once, not for every version.
    cuts: [(StorageId, RowId); CUTS],
}

/// How the entries of deleted rows are found.
#[derive(Default)]
pub(super) struct Keys {
    /// The version of the schema that was asked, for whose table, and that table, if it has indexes.
    asked: Option<(u64, StorageId)>,
    table: Option<Arc<Table>>,
    row: Row,
    key: KeyBuf,
}

impl Keys {
    fn find_table(&mut self, core: &Core, storage: StorageId) {
        // Read before the schema, after which it grows.
        let asked = Some((core.schema_version.load(Ordering::Acquire), storage));
        if self.asked != asked {
            let schema = core.schema.load();
            let table = schema.tables().find(|t| t.store.id == storage).filter(|t| !t.indexes.is_empty());
            (self.asked, self.table) = (asked, table.cloned());
        }
    }

    /// The words of a deleted row that its keys lie in. Nobody writes them any more.
    fn read(row: &mut Row, table: &Table, id: RowId) {
        let container = &table.store.primary;
        let slot = container.slot(id);
        row.pick(container.persistent_words(), &table.key_words, |at| slot.load(at));
    }

    /// Starts loading the buckets that have a deleted row's entries; its own words are on their way.
    fn prefetch_entries(&mut self, core: &Core, storage: StorageId, id: RowId) {
        self.find_table(core, storage);
        let Some(table) = &self.table else { return };
        Keys::read(&mut self.row, table, id);
        table.indexes.iter().for_each(|index| index.prefetch_entry(&table.layout, &self.row));
    }

    /// Removes a deleted row's entries and frees its slot; of a long value only the slot.
    pub(super) fn forget_row(&mut self, core: &Core, store: &Store, container: &Container, row: RowId) {
        if container.number == PRIMARY {
            self.remove_entries(core, store, row);
        }
        core.free_slot(container, row);
    }

    fn remove_entries(&mut self, core: &Core, store: &Store, id: RowId) {
        self.find_table(core, store.id);
        let Keys { table: Some(table), row, key, .. } = self else { return };
        Keys::read(row, table, id);
        for index in &table.indexes {
            core.fetch_key_columns(table, index, row);
            remove_exactly(index, &key_of(index, &table.layout, row, key), id, || false);
        }
    }
}

/// A row that the collection is about to look at.
struct Due {
    storage: StorageId,
    container: u16,
    row: RowId,
    leftover: Leftover,
}

impl<'c> Sweep<'c> {
    fn new(core: &'c Core, floor: Cts) -> Sweep<'c> {
        let none = (StorageId(u32::MAX), RowId::MAX);
        let (stores, freed) = (core.stores.read(), core.arena.freed());
        Sweep { core, floor, stores, store: None, freed, keys: Keys::default(), cuts: [none; CUTS] }
    }

    /// Starts loading what the next items will look at: they were left long enough ago to be in no cache, and one after the other they would be
    /// waited for one by one.
    fn prefetch(&mut self, items: impl Iterator<Item = Due> + Clone) {
        for Due { storage, container, row, .. } in items.clone() {
            self.find_store(storage);
            if let Some(container) = self.store.as_ref().and_then(|store| store.container(container)) {
                container.prefetch(row, None);
            }
        }
        for Due { storage, row, .. } in items.filter(|i| i.leftover != Leftover::Node && i.container == PRIMARY) {
            // One that was dropped has its pages no more.
            if self.stores.contains_key(&storage) {
                self.keys.prefetch_entries(self.core, storage, row);
            }
        }
    }

    fn is_cut(&mut self, storage: StorageId, row: RowId) -> bool {
        let place = &mut self.cuts[row.0 as usize % CUTS];
        std::mem::replace(place, (storage, row)) == (storage, row)
    }

    /// Frees a node that leads from a committed version, and what belongs to it.
    fn free(&mut self, node: NodeRef) {
        if self.core.has_companions.load(Ordering::Relaxed)
            && let Some(companion) = Node::new(&self.core.arena, node).companion()
        {
            self.freed.add(companion);
        }
        self.freed.add(node);
    }

    fn find_store(&mut self, storage: StorageId) {
        if self.store.as_ref().is_none_or(|store| store.id != storage) {
            self.store = self.stores.get(&storage).cloned();
        }
    }

    /// The item itself if it cannot be done yet.
    fn one(&mut self, item: Garbage) -> Option<Garbage> {
        match item {
            Garbage::Row { leftover, storage, container, row, node, .. } => {
                self.find_store(storage);
                // Value containers have rows of the same ids in other pages: an id names one slot of the database.
                let is_done = leftover == Leftover::Node && self.is_cut(storage, row);
                if let Some(store) = self.store.as_ref().filter(|_| !is_done) {
                    let container =
                        store.container(container).expect("invariant: a write names a container of its storage");
                    if !self.core.cut(container, row, node, self.floor, leftover) {
                        return Some(item);
                    }
                    if leftover != Leftover::Node {
                        self.keys.forget_row(self.core, store, container, row);
                    }
                }
                self.free(node);
            }
            Garbage::Key { table, index, key, row, .. } => {
                if self.stores.contains_key(&table.store.id) {
                    // The versions that need the key go first: their nodes may wait in other queues.
                    self.core.cut(&table.store.primary, row, NodeRef::NONE, self.floor, Leftover::Node);
                    remove_entry(self.core, &table, &index, &key, row);
                }
            }
            Garbage::Storage { storage, .. } => {
                let core = self.core;
                self.store = None;
                RwLockReadGuard::unlocked(&mut self.stores, || core.free_storage(storage));
            }
            Garbage::Batch(_) => unreachable!("worked off by `batch`"),
        }
        None
    }

    /// Works off up to `most` writes, to the first that cannot be done yet; how many.
    fn batch(&mut self, batch: &mut Batch, most: usize) -> usize {
        let before = batch.done;
        let end = batch.writes.len().min(batch.done.saturating_add(most));
        while batch.done < end {
            if (batch.done - before).is_multiple_of(AHEAD) {
                let ahead = batch.done..end.min(batch.done + AHEAD);
                self.prefetch(ahead.filter_map(|at| batch.item(at).due()));
            }
            if self.one(batch.item(batch.done)).is_some() {
                break;
            }
            batch.done += 1;
        }
        batch.done - before
    }

    /// One item or part of a batch: how many were done, and what is left of it.
    fn step(&mut self, item: Garbage, most: usize) -> (usize, Option<Garbage>) {
        match item {
            Garbage::Batch(mut batch) => {
                let done = self.batch(&mut batch, most);
                (done, (batch.done < batch.writes.len()).then_some(Garbage::Batch(batch)))
            }
            item => {
                let left = self.one(item);
                (usize::from(left.is_none()), left)
            }
        }
    }

    /// What was set aside in earlier sweeps.
    fn stalled(&mut self, queue: &mut GarbageQueue, most: usize) -> usize {
        let mut done = 0;
        let mut at = 0;
        while at < queue.stalled.len() && done < most {
            while done < most
                && let Some(item) = queue.stalled[at].pop_front()
            {
                let (worked, left) = self.step(item, most - done);
                done += worked;
                if let Some(left) = left {
                    queue.stalled[at].push_front(left);
                    break;
                }
            }
            if queue.stalled[at].is_empty() {
                let items = queue.stalled.swap_remove(at);
                queue.account.give(bytes_of(items.capacity()));
            } else {
                at += 1;
            }
        }
        done
    }
}

impl Core {
    /// This thread's queue, for what a transaction leaves behind. Dropping the guard ends it; `collect_due` comes first.
    pub(super) fn garbage_of(&self, session: SessionNo) -> MutexGuard<'_, GarbageQueue> {
        self.garbage.of(self.thread(session.0 as usize))
    }

    /// Works off a part of the caller's own queue, once enough has come together: as much as has come, and some of what had to wait.
    pub(super) fn collect_due(&self, queue: &mut GarbageQueue) {
        let due = if self.is_stepped { DUE_STEPPED } else { DUE_MIN.max(self.sessions.count()) };
        if queue.left - queue.collected_at < due as u64 {
            return;
        }
        queue.collected_at = queue.left;
        let most = 2 * due;
        let known = Cts(self.garbage.floor.0.load(Ordering::Acquire));
        let done = self.collect(queue, known, most);
        if done < most && self.log.durable() > known.epoch() {
            let floor = self.find_floor();
            let done = done + self.collect(queue, floor, most - done);
            if done < most && (self.is_stepped || self.sessions.is_held_back(floor, &self.log)) {
                self.fold_held_back(queue, floor, most);
            }
        }
    }

    /// Looks through garbage that a snapshot holds back, once there is much of it; true if any of it is gone.
    fn fold_held_back(&self, queue: &mut GarbageQueue, floor: Cts, most: usize) -> bool {
        let many = if self.is_stepped { HELD_BACK_STEPPED } else { HELD_BACK };
        if !queue.is_held_back(floor, Cts::last_of(self.log.durable()), many) {
            return false;
        }
        let horizon = self.sessions.horizon(&self.log);
        let (items, looks_again) = queue.take_held_back(horizon.limit, most, many);
        let writes = |items: &[Garbage]| items.iter().map(Garbage::writes).sum::<usize>();
        let before = writes(&items);
        let kept = self.fold(items, &horizon);
        let is_less = writes(&kept) < before;
        queue.hold(kept, looks_again);
        is_less
    }

    /// Writes whose versions wait to be forgotten, items that were ever left here, and the last floor that was found.
    pub(crate) fn garbage_facts(&self) -> (u64, u64, Cts) {
        let (writes, left) = self.garbage.sizes();
        (writes, left, Cts(self.garbage.floor.0.load(Ordering::Acquire)))
    }

    fn find_floor(&self) -> Cts {
        let floor = self.sessions.floor(&self.log);
        Cts(self.garbage.floor.0.fetch_max(floor.0, Ordering::AcqRel).max(floor.0))
    }

    /// Works off up to `most` items of one queue that the floor has passed; how many were done.
    fn collect(&self, queue: &mut GarbageQueue, floor: Cts, most: usize) -> usize {
        let is_early = |queue: &GarbageQueue| planted::is(Bug::ReuseRowEarly) && queue.front_is_deleted();
        let is_due = |queue: &GarbageQueue| queue.front_cts().is_some_and(|cts| cts <= floor || is_early(queue));
        if queue.stalled.is_empty() && !is_due(queue) {
            return 0;
        }
        let mut sweep = Sweep::new(self, floor);
        let mut done = sweep.stalled(queue, most);
        let mut items = 0;
        while done < most && is_due(queue) {
            if usize::is_multiple_of(items, AHEAD) {
                sweep.prefetch(queue.next_items().filter_map(Garbage::due));
            }
            items += 1;
            let item = queue.pop_front().expect("just seen");
            let is_batch = matches!(item, Garbage::Batch(_));
            let (worked, left) = sweep.step(item, most - done);
            done += worked;
            if let Some(left) = left {
                // A long batch goes on next time from where it is now, in front of what is younger.
                queue.stall(left);
                if is_batch {
                    break;
                }
            }
        }
        done
    }

    /// Makes room where the limit leaves none: collects what can be and, if need be, ends the snapshots that stand in its way, the oldest first.
    /// False: nothing came of it. Called without latches.
    pub(super) fn make_room(&self, me: SessionNo, may_end: bool) -> bool {
        let mut freed = self.collect_everything();
        while may_end && !freed {
            match self.sessions.end_oldest(&self.log, me, &self.checkpoint_readers, &self.garbage) {
                Some(Ended::AtOnce) => freed |= self.collect_everything(),
                // It will be told; whoever comes later finds the room.
                Some(Ended::WhenNoticed) | None => break,
            }
        }
        freed
    }

    /// All garbage below the floor. True if there was any.
    fn collect_everything(&self) -> bool {
        self.sessions.revoke(&self.log);
        let floor = self.find_floor();
        let mut worked = false;
        for queue in &self.garbage.queues {
            if let Some(mut queue) = queue.0.try_lock() {
                worked |= self.collect(&mut queue, floor, usize::MAX) > 0;
                worked |= self.fold_held_back(&mut queue, floor, usize::MAX);
            }
        }
        self.arena.release_parked();
        worked
    }

    /// Nobody else looks into a storage meanwhile: see [`Sweep`].
    fn free_storage(&self, storage: StorageId) {
        let mut stores = self.stores.write();
        if let Some(store) = stores.remove(&storage) {
            store.containers().flat_map(Container::pages).for_each(|page| self.pages.free(page));
        }
    }

    /// One round over all queues that no busy thread works off.
    pub(crate) fn collect_all(&self, most_each: usize) -> bool {
        let is_blind = planted::is(Bug::CutUnderSnapshot);
        let find = || if is_blind { Cts::last_of(self.log.durable()) } else { self.find_floor() };
        // It asks every session, whose line then has to come back to the thread that it was of: only where something waits for it.
        let mut floor = None;
        let mut worked = false;
        let mut oldest = Cts::MAX;
        for queue in &self.garbage.queues {
            let is_left_to_us = queue.0.try_lock().is_some_and(|mut queue| {
                let since = queue.left - queue.seen_at;
                queue.seen_at = queue.left;
                (self.is_stepped || since < BUSY) && !queue.is_empty()
            });
            if !is_left_to_us {
                continue;
            }
            let floor = *floor.get_or_insert_with(find);
            let mut left = most_each;
            let mut next = Cts::MAX;
            while left > 0 {
                // A portion at a time: its thread may come back.
                let Some(mut queue) = queue.0.try_lock() else { break };
                let done = self.collect(&mut queue, floor, left.min(PORTION));
                worked |= done > 0;
                if done < PORTION {
                    worked |= self.fold_held_back(&mut queue, floor, most_each);
                }
                next = queue.front_cts().unwrap_or(Cts::MAX);
                left = if done < PORTION { 0 } else { left.saturating_sub(done) };
            }
            oldest = oldest.min(next);
        }
        // What nobody reads at shall not hold back the last of it.
        let is_held_back = !worked && oldest <= Cts::last_of(self.log.durable());
        worked || is_held_back && self.sessions.revoke(&self.log) || self.request_epoch(oldest)
    }

    /// Closes the epoch that the `oldest` garbage waits for, when nothing else does: whoever only rolls back stages nothing, and the floor
    /// would stand still while storages that were rolled back fill the memory. True if it was asked for here.
    fn request_epoch(&self, oldest: Cts) -> bool {
        let now = self.log.now();
        let is_idle = self.seen_by_garbage.swap(now.0, Ordering::Relaxed) == now.0;
        let epoch = oldest.epoch();
        let is_due = oldest != Cts::MAX && epoch > self.log.durable() && self.failure().is_none();
        if is_due && !is_idle {
            // Threads look again in a while; who steps by hand is told that there is more to do.
            return self.is_stepped;
        }
        if !is_due || self.requested_by_garbage.fetch_max(epoch.0, Ordering::Relaxed) >= epoch.0 {
            return false;
        }
        // Polling a wait is how an epoch is asked for; nobody stays to be told.
        let _ = Pin::new(&mut self.log.wait_durable(oldest)).poll(&mut Context::from_waker(Waker::noop()));
        true
    }

    /// Cuts the chain below the floor. `node`'s stamp is known to be so. False if the row is deleted and its lock still held or waited for: try
    /// again later.
    fn cut(&self, container: &Container, row: RowId, node: NodeRef, floor: Cts, leftover: Leftover) -> bool {
        let mut latched = container.slot(row).latch();
        let head = latched.head();
        if leftover != Leftover::Node && head.is_wanted() {
            return false;
        }
        let old = |at: NodeRef| {
            let stamp = Node::new(&self.arena, at).stamp();
            stamp != version::UNSTAMPED && Cts(stamp) <= floor
        };
        if head.node.is_none() {
            return true;
        }
        if head.node == node || old(head.node) {
            latched.set_head(head.with_node(NodeRef::NONE));
            return true;
        }
        let mut at = Node::new(&self.arena, head.node);
        if planted::is(Bug::DropChainNode) && !at.next().is_none() {
            at.set_next(Node::new(&self.arena, at.next()).next());
        }
        while !at.next().is_none() {
            if old(at.next()) {
                at.set_next(NodeRef::NONE);
                break;
            }
            at = Node::new(&self.arena, at.next());
        }
        true
    }
}

/// The row's key in the index. Long values of key columns must have been fetched.
pub(crate) fn key_of(index: &Index, layout: &crate::schema::Layout, row: &Row, buf: &mut KeyBuf) -> TreeKey {
    match &index.tree {
        Tree::Hash(_) => TreeKey::Hash(index.spec.hash_row(layout, row)),
        Tree::BTree(_) => {
            index.spec.of_row(layout, row, buf);
            TreeKey::Words(buf.words.as_slice().into())
        }
    }
}

/// Whether two keys of a row have one entry between them: a hash index keeps less than the hash.
fn same_entry(index: &Index, a: &TreeKey, b: &TreeKey) -> bool {
    match (&index.tree, a, b) {
        (Tree::Hash(tree), TreeKey::Hash(a), TreeKey::Hash(b)) => tree.same_entry(*a, *b),
        _ => a == b,
    }
}

/// Removes (key, row) if no reachable version of the row has the key. One that stays may stay for longer than the version that it was left for:
/// nobody comes back for it, and the slot's next row may have another key.
pub(super) fn remove_entry(core: &Core, table: &Table, index: &Index, key: &TreeKey, row: RowId) {
    let needed = || {
        let needed = core.some_version_has(table, index, key, row);
        if needed {
            index.note_moved();
        }
        needed
    };
    remove_exactly(index, key, row, || !planted::is(Bug::RemoveNeededKey) && needed());
}

fn remove_exactly(index: &Index, key: &TreeKey, row: RowId, needed: impl FnOnce() -> bool) {
    match (&index.tree, key) {
        (Tree::Hash(tree), TreeKey::Hash(hash)) => tree.remove(*hash, row, needed),
        (Tree::BTree(tree), TreeKey::Words(words)) => tree.remove(words, row, needed),
        _ => unreachable!("invariant: a key has its index's form"),
    };
}

impl Core {
    /// Whether the newest or any older version that a snapshot may see needs this key's entry. Of one that nobody sees the long values may be gone,
    /// and what is read in their place may look like any key.
    pub(super) fn some_version_has(&self, table: &Table, index: &Index, key: &TreeKey, row: RowId) -> bool {
        let horizon = std::cell::OnceCell::new();
        self.versions_with(table, index, key, row).any(|version| {
            version.until == Cts::MAX
                || horizon.get_or_init(|| self.sessions.horizon(&self.log)).is_needed(version.row.cts(), version.until)
        })
    }

    /// The linked versions of the row, newest first, that have the key as far as its entry tells.
    pub(super) fn versions_with<'k>(
        &'k self,
        table: &'k Table,
        index: &'k Index,
        key: &'k TreeKey,
        row: RowId,
    ) -> impl Iterator<Item = Version> + 'k {
        let mut buf = KeyBuf::default();
        self.versions(table, row).into_iter().filter_map(move |mut version| {
            let has_key = version.row.is_live() && {
                self.fetch_key_columns(table, index, &mut version.row);
                same_entry(index, &key_of(index, &table.layout, &version.row, &mut buf), key)
            };
            has_key.then_some(version)
        })
    }

    /// Copies of all linked versions, newest first.
    pub(super) fn versions(&self, table: &Table, row: RowId) -> Vec<Version> {
        let container = &table.store.primary;
        let latched = container.slot(row).latch();
        let mut record = Row::default();
        latched.copy(record.start_copy(container.persistent_words()));
        let mut versions = Vec::new();
        let mut until = Cts::MAX;
        let mut at = latched.head().node;
        while !at.is_none() {
            let node = Node::new(&self.arena, at);
            let is_committed = node.stamp() != version::UNSTAMPED;
            versions.push(Version { row: record.clone(), until, is_committed });
            until = Cts(node.stamp());
            node.undo(&mut record.words);
            if let Some(cts) = node.prev_cts() {
                record.words[0] = cts.0;
            }
            at = node.next();
        }
        versions.push(Version { row: record, until, is_committed: true });
        versions
    }
}
