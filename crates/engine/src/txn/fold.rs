//! Which versions does nobody need though an old snapshot stands? Those between two snapshots: each one's node is folded into the next newer.
//!
//! ```text
//! stamps      90 ---- 80 ---- 70 ---- 60 ---- (50)      snapshots 85 and 55: versions 80 and 50 are needed
//! folded      90 ------------ 80 ------------ (50)      80's node has taken in 70's and 60's: XOR composes
//! ```
//!
//! Garbage that the floor holds back is looked at a second time here, so that a snapshot held for minutes keeps what it needs, and not what
//! was written since.
//!
//! 1. A version that was current from c to c' is needed iff some snapshot S, now or later, has c <= S < c'. Versions with c' above the
//!    [`Horizon`]'s limit are left alone: the limit is the durable horizon as read before the scan, or the bound of an unfinished registration.
//!    Whoever registers later reads at or above the one, who is registering at or above the other.
//! 2. An item folds the node that is its own, and is gone with it. A node is unlinked and freed by its own item only, here or below the floor.
//!    What a fold needs more room for lies in a *companion* of the node that took it in, and is freed with that.
//!    What must stay is moved out of a chunk that is nearly empty, by its own item: else one version in a hundred would keep all the memory.
//! 3. A fold changes nodes that are linked, under the latch of the slot and that of the row's fold word. Who walks a chain holds the slot's
//!    latch, or copies as an optimist and asks the fold word afterwards (`Core::read_older`): a freed node's memory may be another's by then.
//! 4. Uncommitted nodes are not touched, nor those that lead to them. A rollback unlinks its nodes under the fold word too, and frees them
//!    at once.
//! 5. A deleted row's slot, or a long value's, is given back once no live version in its chain is needed: to whoever may still look at it the row is
//!    dead, and the chain that says so stays, below that of the slot's next row. So only the node is left of its item. Nobody holds or wants its
//!    lock then, and nobody takes the lock of a dead row (`Session::lock_newest`): who finds it through an entry that he read before finds it dead
//!    or another row, and looks at the key again.
//! 6. Whoever sees a version that has a long value has a snapshot from before the value was unlinked, and not from before it was written. A deleted
//!    row's values go after its entries, whose keys are read from them. Of a version that nobody needs the values may be gone while it is linked:
//!    nobody reads them but to compare a key, and what is told of it then is not believed (`Core::some_version_has`, `verdict`).

use super::core::Core;
use super::garbage::{Batch, Garbage, Keys, Leftover, remove_entry};
use super::version::{self, Node};
use crate::catalog::{Index, Table, TreeKey};
use crate::ids::{Cts, RowId, StorageId};
use crate::index::latch;
use crate::mem::{ArenaCursor, Claim, NodeRef};
use crate::planted::{self, Bug};
use crate::schema::LIVE;
use crate::table::{Container, PRIMARY};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes that are folded together: what is listed of them is not charged, so it is some hundred KiB.
const PART_WRITES: usize = 4096;

/// The snapshots in use.
pub(crate) struct Horizon {
    /// Nobody registers below it from now on.
    pub limit: Cts,
    /// Ascending.
    pub snapshots: Vec<Cts>,
}

impl Horizon {
    /// Whether a snapshot, now or later, reads the version that was current from `from` to `to`.
    pub(super) fn is_needed(&self, from: Cts, to: Cts) -> bool {
        let next = self.snapshots.partition_point(|snapshot| *snapshot < from);
        let is_seen = self.snapshots.get(next).is_some_and(|snapshot| *snapshot < to);
        to > self.limit || is_seen && !planted::is(Bug::FoldNeeded)
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Word(AtomicU64);

/// Version words of the folds, shared by rows: a reader of an older version finds out that its row's chain was folded.
pub(super) struct FoldWords(Box<[Word]>);

impl FoldWords {
    const WORDS: usize = 64;

    pub fn new() -> FoldWords {
        FoldWords(std::iter::repeat_with(Word::default).take(Self::WORDS).collect())
    }

    pub fn of(&self, row: RowId) -> &AtomicU64 {
        let mixed = row.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(mixed >> 58) as usize % Self::WORDS].0
    }
}

/// A node that an item would have folded, or whose slot it would give back.
#[derive(Clone, Copy)]
struct Wanted {
    cts: Cts,
    storage: StorageId,
    container: u16,
    row: RowId,
    node: NodeRef,
    leftover: Leftover,
    /// Its item, and of a batch its write.
    item: usize,
    write: usize,
}

/// What became of a wanted node, of that item and write.
type Outcome = (usize, usize, Fate);

#[derive(Clone, Copy)]
enum Fate {
    Folded,
    /// It lies elsewhere now.
    Moved(NodeRef),
    /// It stays, and its slot was given back.
    SlotFreed,
}

/// Which versions have a key that the row had before.
enum Bearer {
    None,
    /// One that a snapshot needs, or that is not committed.
    Older,
    Younger,
}

impl Core {
    /// Folds the nodes of items that the floor holds back; gives those that are still needed, in their order.
    pub(super) fn fold(&self, items: Vec<Garbage>, horizon: &Horizon) -> Vec<Garbage> {
        let mut kept = Vec::with_capacity(items.len());
        let (mut part, mut writes) = (Vec::new(), 0);
        for item in items {
            // A deleted row's values stay with it.
            if writes >= PART_WRITES && !item.is_value() {
                kept.append(&mut self.fold_part(std::mem::take(&mut part), horizon));
                writes = 0;
            }
            writes += item.writes();
            part.push(item);
        }
        kept.append(&mut self.fold_part(part, horizon));
        kept
    }

    fn fold_part(&self, items: Vec<Garbage>, horizon: &Horizon) -> Vec<Garbage> {
        let (mut nodes, mut slots) = (Vec::with_capacity(items.len()), Vec::new());
        for (at, item) in items.iter().enumerate() {
            note_wanted(item, at, &mut nodes, &mut slots);
        }
        nodes.sort_unstable_by_key(|w| (w.row.0, w.node.0));
        let mut outcomes = self.fold_rows(&nodes, horizon);
        self.free_slots(&slots, horizon, &mut outcomes);
        outcomes.sort_unstable_by_key(|(item, write, _)| (*item, *write));
        let mut kept = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let from = outcomes.partition_point(|(item, ..)| *item < at);
            let to = outcomes.partition_point(|(item, ..)| *item <= at);
            kept.extend(self.rest_of(item, &outcomes[from..to], horizon));
        }
        kept
    }

    fn fold_rows(&self, wanted: &[Wanted], horizon: &Horizon) -> Vec<Outcome> {
        // A storage that is listed keeps its pages while the list is latched.
        let stores = self.stores.read();
        let mut fold = Fold { core: self, horizon, cursor: ArenaCursor::default(), outcomes: Vec::new() };
        for of_row in wanted.chunk_by(|a, b| a.row == b.row) {
            let Wanted { storage, container, row, .. } = of_row[0];
            if let Some(container) = stores.get(&storage).and_then(|store| store.container(container)) {
                fold.chain(container, row, of_row);
            }
        }
        let Fold { mut cursor, outcomes, .. } = fold;
        self.arena.park(&mut cursor, self.thread(0));
        outcomes
    }

    /// Gives back the slots that nobody needs, a deleted row's before those of its values.
    fn free_slots(&self, slots: &[Wanted], horizon: &Horizon, outcomes: &mut Vec<Outcome>) {
        let (stores, mut keys) = (self.stores.read(), Keys::default());
        // The commit of the last row that stays: its values stay too.
        let mut stays = None;
        for wanted in slots {
            let is_row = wanted.container == PRIMARY;
            if !is_row && wanted.leftover == Leftover::Deleted && stays == Some((wanted.cts, wanted.storage)) {
                continue;
            }
            let store = stores.get(&wanted.storage);
            let is_free = store.and_then(|store| Some((store, store.container(wanted.container)?))).is_some_and(
                |(store, container)| {
                    let is_free = self.is_dead_to_all(container, wanted, horizon);
                    if is_free {
                        keys.forget_row(self, store, container, wanted.row);
                    }
                    is_free
                },
            );
            if is_free {
                outcomes.push((wanted.item, wanted.write, Fate::SlotFreed));
            }
            if is_row {
                stays = (!is_free).then_some((wanted.cts, wanted.storage));
            }
        }
    }

    /// Whether the wanted node made the slot's newest version, which is dead and nobody's, and no older one that lives is needed.
    fn is_dead_to_all(&self, container: &Container, wanted: &Wanted, horizon: &Horizon) -> bool {
        let latched = container.slot(wanted.row).latch();
        let head = latched.head();
        let mut flags = latched.load(1);
        if head.node != wanted.node || head.is_wanted() || flags & LIVE != 0 {
            return false;
        }
        let mut at = head.node;
        while !at.is_none() {
            let node = Node::new(&self.arena, at);
            let until = Cts(node.stamp());
            flags = node.flags_below(flags);
            let from = node.prev_cts().unwrap_or(until);
            if flags & LIVE != 0 && horizon.is_needed(from, until) {
                return false;
            }
            at = node.next();
        }
        true
    }

    /// What is left of an item when those of its nodes are gone or have moved.
    fn rest_of(&self, item: Garbage, outcomes: &[Outcome], horizon: &Horizon) -> Option<Garbage> {
        match item {
            Garbage::Row { cts, leftover, storage, container, row, node } if !outcomes.is_empty() => {
                let (leftover, node) = match outcomes[0].2 {
                    Fate::Folded => return None,
                    Fate::Moved(to) => (leftover, to),
                    Fate::SlotFreed => (Leftover::Node, node),
                };
                Some(Garbage::Row { cts, leftover, storage, container, row, node })
            }
            Garbage::Batch(batch) => batch.after(outcomes).map(Garbage::Batch),
            Garbage::Key { cts, ref table, ref index, ref key, row } => {
                let stores = self.stores.read();
                if !stores.contains_key(&table.store.id) {
                    return Some(item);
                }
                let is_needed = match self.who_has(table, index, key, row, cts, horizon) {
                    Bearer::None => false,
                    Bearer::Older => return Some(item),
                    Bearer::Younger => true,
                };
                if !is_needed {
                    // Asked again under the entry's latch.
                    remove_entry(self, table, index, key, row);
                }
                None
            }
            item => Some(item),
        }
    }

    /// Who needs the entry of a key that the row had before `cts`. A younger version that is committed leaves an item of its own for it.
    fn who_has(&self, table: &Table, index: &Index, key: &TreeKey, row: RowId, cts: Cts, horizon: &Horizon) -> Bearer {
        let mut bearer = Bearer::None;
        for version in self.versions_with(table, index, key, row) {
            // A fold may have moved the end of the version that the item is about, but no version's beginning.
            let from = version.row.cts();
            if version.is_committed && from >= cts && version.until > from {
                return Bearer::Younger;
            }
            if version.until == Cts::MAX || horizon.is_needed(from, version.until) {
                bearer = Bearer::Older;
            }
        }
        bearer
    }
}

/// Lists the nodes that the item may fold, and the slots that it may give back.
fn note_wanted(item: &Garbage, at: usize, nodes: &mut Vec<Wanted>, slots: &mut Vec<Wanted>) {
    let mut note = |item: &Garbage, write| {
        if let Garbage::Row { cts, leftover, storage, container, row, node } = *item {
            let wanted = Wanted { cts, storage, container, row, node, leftover, item: at, write };
            if leftover == Leftover::Node { nodes.push(wanted) } else { slots.push(wanted) }
        }
    };
    match item {
        Garbage::Batch(batch) => batch.items().for_each(|(write, item)| note(&item, write)),
        item => note(item, 0),
    }
}

struct Fold<'c> {
    core: &'c Core,
    horizon: &'c Horizon,
    /// For companions and copies.
    cursor: ArenaCursor,
    outcomes: Vec<Outcome>,
}

impl Fold<'_> {
    /// Folds or moves the wanted nodes of one row, which are in the order of their references, from the newest on.
    fn chain(&mut self, container: &Container, row: RowId, wanted: &[Wanted]) {
        let core = self.core;
        let arena = &core.arena;
        let mut latched = container.slot(row).latch();
        let word = core.folds.of(row);
        let mut fold = None;
        let mut freed = arena.freed();
        let mut newer: Option<Node<'_>> = None;
        loop {
            let at = newer.map_or(latched.head().node, |newer| newer.next());
            if at.is_none() {
                break;
            }
            let node = Node::new(arena, at);
            let own = wanted.binary_search_by_key(&at.0, |w| w.node.0).ok().map(|own| wanted[own]);
            let Some(own) = own.filter(|_| node.stamp() != version::UNSTAMPED) else {
                newer = Some(node);
                continue;
            };
            let cursor = &mut self.cursor;
            let allocate = |words| arena.allocate(cursor, core.thread(0), words, Claim::Finish);
            if let Some(newer) = newer.filter(|newer| may_fold(self.horizon, newer, &node)) {
                fold.get_or_insert_with(|| latch::latch(word));
                core.has_companions.store(true, Ordering::Relaxed);
                if newer.absorb(&node, container.persistent_words(), allocate, |node| freed.add(node)) {
                    self.outcomes.push((own.item, own.write, Fate::Folded));
                    continue;
                }
            } else if arena.is_sparse(at)
                && let Some(copy) = node.copy(allocate)
            {
                fold.get_or_insert_with(|| latch::latch(word));
                match newer {
                    Some(newer) => newer.set_next(copy.at()),
                    None => latched.set_head(latched.head().with_node(copy.at())),
                }
                node.companion().into_iter().for_each(|node| freed.add(node));
                freed.add(at);
                self.outcomes.push((own.item, own.write, Fate::Moved(copy.at())));
                newer = Some(copy);
                continue;
            }
            newer = Some(node);
        }
        if let Some(seen) = fold {
            latch::unlatch(word, seen, true);
        }
    }
}

fn may_fold(horizon: &Horizon, newer: &Node<'_>, older: &Node<'_>) -> bool {
    newer.stamp() != version::UNSTAMPED && !horizon.is_needed(Cts(older.stamp()), Cts(newer.stamp()))
}

impl Batch {
    /// The writes whose nodes are still there, where they are now; nothing if none is left.
    fn after(mut self: Box<Self>, outcomes: &[Outcome]) -> Option<Box<Batch>> {
        for &(_, write, fate) in outcomes {
            match fate {
                Fate::Folded => {}
                Fate::Moved(to) => self.move_node(write, to),
                Fate::SlotFreed => self.keep_node_only(write),
            }
        }
        let folded = outcomes.iter().filter(|(_, _, fate)| matches!(fate, Fate::Folded));
        self.without(folded.map(|(_, write, _)| *write))
    }

    /// The writes that are not done, with their positions.
    fn items(&self) -> impl Iterator<Item = (usize, Garbage)> {
        (self.done()..self.len()).map(|at| (at, self.item(at)))
    }
}
