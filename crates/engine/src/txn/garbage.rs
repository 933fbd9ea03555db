//! What may be forgotten? Version nodes, index entries, slots and pages that no snapshot can reach.
//!
//! 1. An item waits until the floor (`Sessions::floor`) has reached its cts: then no reader needs what lies below that version, and none
//!    that could still hold a reference to an undone node is left.
//! 2. A chain is cut at the first node whose stamp is at or below the floor, under the slot's latch. Items of several sessions are worked
//!    off in any order between sessions: what is below the cut is reached by nobody, so each item frees its own node.
//! 3. A deleted row's slot is given out again only after its entries are gone from every index, and never while someone holds its lock.
//! 4. An index entry goes only under the latch of its place in the index, and only if no reachable version has its key.

use super::core::Core;
use super::session::Write;
use super::sessions::Ended;
use super::version::{self, Node};
use crate::catalog::{Index, Table, Tree, TreeKey};
use crate::ids::{Cts, RowId, StorageId};
use crate::mem::{Account, Budget, Claim, Kind, NodeRef};
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, Row};
use crate::table::{Container, PRIMARY, SessionNo};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

/// What a write leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leftover {
    /// A node below the floor.
    Node,
    /// As `Node`, and the row is deleted: entries and slot.
    Deleted,
    /// A node that was unlinked by a rollback.
    Undone,
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
    undone: bool,
    /// By the writes' table numbers.
    storages: Box<[StorageId]>,
    writes: Vec<Write>,
    done: usize,
    /// What the list takes, until it is gone.
    _account: Account,
}

impl Batch {
    pub fn new(cts: Cts, undone: bool, storages: Box<[StorageId]>, writes: Vec<Write>, account: Account) -> Batch {
        Batch { cts, undone, storages, writes, done: 0, _account: account }
    }
}

/// Items of one piece of a queue.
const PIECE: usize = 512;

/// What a session's transactions left behind, oldest first, in pieces: it never moves as a whole.
pub(crate) struct GarbageQueue {
    pieces: VecDeque<VecDeque<Garbage>>,
    account: Account,
}

impl GarbageQueue {
    pub fn new(budget: &Arc<Budget>) -> GarbageQueue {
        GarbageQueue { pieces: VecDeque::new(), account: Account::new(budget, Kind::Transactions) }
    }

    /// The oldest item's.
    pub fn front_cts(&self) -> Option<Cts> {
        Some(self.pieces.front()?.front()?.cts())
    }

    fn front_is_deleted(&self) -> bool {
        let front = self.pieces.front().and_then(VecDeque::front);
        matches!(front, Some(Garbage::Row { leftover: Leftover::Deleted, .. }))
    }

    pub(super) fn push_back(&mut self, item: Garbage) {
        if self.pieces.back().is_none_or(|piece| piece.len() >= PIECE) {
            self.pieces.push_back(VecDeque::new());
        }
        let piece = self.pieces.back_mut().expect("one was just pushed");
        if piece.len() == piece.capacity() {
            let before = piece.capacity();
            piece.reserve_exact(before.max(4));
            // A commit has happened: there is no refusing what it leaves behind.
            self.account.take(((piece.capacity() - before) * size_of::<Garbage>()) as u64, Claim::Forced);
        }
        piece.push_back(item);
    }

    fn pop_front(&mut self) -> Option<Garbage> {
        let piece = self.pieces.front_mut()?;
        let item = piece.pop_front();
        if piece.is_empty() && (self.pieces.len() > 1 || self.pieces[0].capacity() > PIECE / 8) {
            let piece = self.pieces.pop_front().expect("just seen");
            self.account.give((piece.capacity() * size_of::<Garbage>()) as u64);
        }
        item
    }

    /// What could not be done yet is the oldest again.
    fn push_front(&mut self, item: Garbage) {
        match self.pieces.front_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push_front(item),
            _ => {
                let mut piece = VecDeque::with_capacity(4);
                piece.push_front(item);
                self.account.take((piece.capacity() * size_of::<Garbage>()) as u64, Claim::Forced);
                self.pieces.push_front(piece);
            }
        }
    }
}

impl Garbage {
    fn cts(&self) -> Cts {
        match self {
            Garbage::Row { cts, .. } | Garbage::Key { cts, .. } | Garbage::Storage { cts, .. } => *cts,
            Garbage::Batch(batch) => batch.cts,
        }
    }
}

impl Core {
    /// Works off up to `most` items of one session that the floor has passed. True if anything was done.
    pub(crate) fn collect(&self, place: &super::sessions::SessionPlace, floor: Cts, most: usize) -> bool {
        let Some(mut queue) = place.garbage.try_lock() else {
            return false;
        };
        let mut worked = false;
        let mut left = most;
        while left > 0 {
            let is_early = planted::is(Bug::ReuseRowEarly) && queue.front_is_deleted();
            if queue.front_cts().is_none_or(|cts| cts > floor && !is_early) {
                break;
            }
            left -= 1;
            let again = match queue.pop_front().expect("just seen") {
                Garbage::Storage { storage, .. } => {
                    self.free_storage(storage);
                    None
                }
                Garbage::Batch(mut batch) => {
                    let before = batch.done;
                    self.collect_batch(&mut batch, floor, left);
                    left -= left.min(batch.done - before);
                    worked |= batch.done > before;
                    (batch.done < batch.writes.len()).then_some(Garbage::Batch(batch))
                }
                item => self.collect_one(item, floor),
            };
            if let Some(again) = again {
                // It stays in front: behind it wait the long values that its key is read from.
                queue.push_front(again);
                break;
            }
            worked = true;
        }
        worked
    }

    /// Works off up to `most` writes, to the first that cannot be done yet.
    fn collect_batch(&self, batch: &mut Batch, floor: Cts, most: usize) {
        let end = batch.writes.len().min(batch.done.saturating_add(most));
        while batch.done < end {
            let item = batch.writes[batch.done].garbage(batch.cts, batch.undone, &batch.storages);
            if self.collect_one(item, floor).is_some() {
                break;
            }
            batch.done += 1;
        }
    }

    /// Makes room where the limit leaves none: collects what can be and, if need be, ends the snapshots that stand in its way, the oldest first.
    /// False: nothing came of it. Called without latches.
    pub(super) fn make_room(&self, me: SessionNo, may_end: bool) -> bool {
        let mut freed = self.collect_everything();
        while may_end && !freed {
            match self.sessions.end_oldest(&self.log, me, &self.checkpoint_readers) {
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
        let floor = self.sessions.floor(&self.log);
        let mut worked = false;
        for (_, place) in self.sessions.all() {
            worked |= self.collect(place, floor, usize::MAX);
        }
        self.arena.release_parked();
        worked
    }

    /// Nobody else looks into a storage meanwhile: see `collect_one`.
    fn free_storage(&self, storage: StorageId) {
        let mut stores = self.stores.write();
        if let Some(store) = stores.remove(&storage) {
            store.containers().flat_map(Container::pages).for_each(|page| self.pages.free(page));
        }
    }

    /// One round over all sessions.
    pub(crate) fn collect_all(&self, most_each: usize) -> bool {
        let is_blind = planted::is(Bug::CutUnderSnapshot);
        let floor = if is_blind { Cts::last_of(self.log.durable()) } else { self.sessions.floor(&self.log) };
        let mut worked = false;
        let mut oldest = Cts::MAX;
        for (_, place) in self.sessions.all() {
            worked |= self.collect(place, floor, most_each);
            if let Some(next) = place.garbage.try_lock().and_then(|queue| queue.front_cts()) {
                oldest = oldest.min(next);
            }
        }
        // What nobody reads at shall not hold back the last of it.
        let is_held_back = !worked && oldest <= Cts::last_of(self.log.durable());
        worked || is_held_back && self.sessions.revoke(&self.log) || self.request_epoch(oldest)
    }

    /// Closes the epoch that the `oldest` garbage waits for, when nothing else does: whoever only rolls back stages nothing, and the floor
    /// would stand still while undone nodes fill the memory. True if it was asked for here.
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

    /// The item itself if it cannot be done yet. A storage that is still listed keeps its pages while the list is latched.
    fn collect_one(&self, item: Garbage, floor: Cts) -> Option<Garbage> {
        let stores = self.stores.read();
        match item {
            Garbage::Row { leftover: Leftover::Undone, node, .. } => self.arena.free(node),
            Garbage::Row { leftover, storage, container, row, node, .. } => {
                if let Some(store) = stores.get(&storage) {
                    let container =
                        store.container(container).expect("invariant: a write names a container of its storage");
                    if !self.cut(container, row, floor, leftover) {
                        return Some(item);
                    }
                    if leftover == Leftover::Deleted {
                        self.forget_row(storage, container, row);
                    }
                }
                self.arena.free(node);
            }
            Garbage::Key { table, index, key, row, .. } => {
                if stores.contains_key(&table.store.id) {
                    // The versions that need the key go first: their nodes may wait in other sessions' queues.
                    self.cut(&table.store.primary, row, floor, Leftover::Node);
                    remove_entry(self, &table, &index, &key, row);
                }
            }
            Garbage::Storage { .. } | Garbage::Batch(_) => unreachable!("done by the caller, without the latch"),
        }
        None
    }

    /// Cuts the chain below the floor. False if the row is deleted and its lock still held or waited for: try again later.
    fn cut(&self, container: &Container, row: RowId, floor: Cts, leftover: Leftover) -> bool {
        let mut latched = container.slot(row).latch();
        let head = latched.head();
        if leftover == Leftover::Deleted && (head.owner().is_some() || head.is_waited()) {
            return false;
        }
        let old = |at: NodeRef| {
            let stamp = Node::new(&self.arena, at).stamp();
            stamp != version::UNSTAMPED && Cts(stamp) <= floor
        };
        if head.node.is_none() {
            return true;
        }
        if old(head.node) {
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

    /// Removes a deleted row's entries and frees its slot.
    fn forget_row(&self, storage: StorageId, container: &Container, row: RowId) {
        if container.number == PRIMARY {
            let schema = self.schema.load();
            if let Some(table) = schema.tables().find(|t| t.store.id == storage).filter(|t| !t.indexes.is_empty()) {
                let mut record = Row::default();
                container.slot(row).copy(record.start_copy(container.persistent_words()));
                for index in &table.indexes {
                    self.fetch_key_columns(table, index, &mut record);
                    remove_exactly(index, &key_of(index, &table.layout, &record, &mut KeyBuf::default()), row, || {
                        false
                    });
                }
            }
        }
        container.free_slot(row);
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

/// Removes (key, row) if no reachable version of the row has the key.
pub(super) fn remove_entry(core: &Core, table: &Table, index: &Index, key: &TreeKey, row: RowId) {
    let needed = || core.some_version_has(table, index, key, row);
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
    /// Whether the newest or any older version that is still linked needs this key's entry. Under the slot's latch nothing linked is freed.
    fn some_version_has(&self, table: &Table, index: &Index, key: &TreeKey, row: RowId) -> bool {
        let mut buf = KeyBuf::default();
        self.versions(table, row).into_iter().any(|mut version| {
            version.is_live() && {
                self.fetch_key_columns(table, index, &mut version);
                same_entry(index, &key_of(index, &table.layout, &version, &mut buf), key)
            }
        })
    }

    /// Copies of all linked versions, newest first.
    pub(crate) fn versions(&self, table: &Table, row: RowId) -> Vec<Row> {
        let container = &table.store.primary;
        let latched = container.slot(row).latch();
        let mut record = Row::default();
        latched.copy(record.start_copy(container.persistent_words()));
        let mut versions = vec![record.clone()];
        let mut at = latched.head().node;
        while !at.is_none() {
            let node = Node::new(&self.arena, at);
            node.undo(&mut record.words);
            if let Some(cts) = node.prev_cts() {
                record.words[0] = cts.0;
            }
            versions.push(record.clone());
            at = node.next();
        }
        versions
    }
}
