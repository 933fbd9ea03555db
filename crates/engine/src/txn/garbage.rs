//! What may be forgotten? Version nodes, index entries, slots and pages that no snapshot can reach.
//!
//! 1. An item waits until the floor (`Sessions::floor`) has reached its cts: then no reader needs what lies below that version, and none
//!    that could still hold a reference to an undone node is left.
//! 2. A chain is cut at the first node whose stamp is at or below the floor, under the slot's latch. Items of several sessions are worked
//!    off in any order between sessions: what is below the cut is reached by nobody, so each item frees its own node.
//! 3. A deleted row's slot is given out again only after its entries are gone from every index, and never while someone holds its lock.
//! 4. An index entry goes only under the latch of its place in the index, and only if no reachable version has its key.

use super::core::Core;
use super::version::{self, Node};
use crate::catalog::{Index, Table, Tree, TreeKey};
use crate::ids::{Cts, RowId, StorageId};
use crate::mem::NodeRef;
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, Row};
use crate::table::{Container, PRIMARY};
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
}

impl Garbage {
    fn cts(&self) -> Cts {
        match self {
            Garbage::Row { cts, .. } | Garbage::Key { cts, .. } | Garbage::Storage { cts, .. } => *cts,
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
        for _ in 0..most {
            let is_early = |g: &Garbage| {
                planted::is(Bug::ReuseRowEarly) && matches!(g, Garbage::Row { leftover: Leftover::Deleted, .. })
            };
            if queue.front().is_none_or(|g| g.cts() > floor && !is_early(g)) {
                break;
            }
            let item = queue.pop_front().expect("just seen");
            if let Garbage::Storage { storage, .. } = item {
                self.free_storage(storage);
            } else if let Some(again) = self.collect_one(item, floor) {
                // It stays in front: behind it wait the long values that its key is read from.
                queue.push_front(again);
                break;
            }
            worked = true;
        }
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
            if let Some(next) = place.garbage.try_lock().and_then(|queue| queue.front().map(Garbage::cts)) {
                oldest = oldest.min(next);
            }
        }
        worked || self.request_epoch(oldest)
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
            Garbage::Storage { .. } => unreachable!("freed by the caller, without the latch"),
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
