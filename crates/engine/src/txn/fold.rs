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
//!
//! Not folded: deleted rows and long values that an update replaced. They keep their slots until the floor has passed them.

use super::core::Core;
use super::garbage::{Batch, Garbage, Leftover, remove_entry};
use super::version::{self, Node};
use crate::ids::{Cts, RowId, StorageId};
use crate::index::latch;
use crate::mem::{ArenaCursor, Claim, NodeRef};
use crate::planted::{self, Bug};
use crate::table::Container;
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
    fn is_needed(&self, from: Cts, to: Cts) -> bool {
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

/// A node that an item would have folded.
#[derive(Clone, Copy)]
struct Wanted {
    storage: StorageId,
    container: u16,
    row: RowId,
    node: NodeRef,
    /// Its item, and of a batch its write.
    item: usize,
    write: usize,
}

/// What became of a wanted node: the item and the write, and where the node is now, if anywhere.
type Outcome = (usize, usize, Option<NodeRef>);

impl Core {
    /// Folds the nodes of items that the floor holds back; gives those that are still needed, in their order.
    pub(super) fn fold(&self, items: Vec<Garbage>, horizon: &Horizon) -> Vec<Garbage> {
        let mut kept = Vec::with_capacity(items.len());
        let (mut part, mut writes) = (Vec::new(), 0);
        for item in items {
            writes += item.writes();
            part.push(item);
            if writes >= PART_WRITES {
                kept.append(&mut self.fold_part(std::mem::take(&mut part), horizon));
                writes = 0;
            }
        }
        kept.append(&mut self.fold_part(part, horizon));
        kept
    }

    fn fold_part(&self, items: Vec<Garbage>, horizon: &Horizon) -> Vec<Garbage> {
        let mut wanted = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            note_wanted(item, at, &mut wanted);
        }
        wanted.sort_unstable_by_key(|w| (w.row.0, w.node.0));
        let mut outcomes = self.fold_rows(&wanted, horizon);
        outcomes.sort_unstable_by_key(|(item, write, _)| (*item, *write));
        let mut kept = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let from = outcomes.partition_point(|(item, ..)| *item < at);
            let to = outcomes.partition_point(|(item, ..)| *item <= at);
            kept.extend(self.rest_of(item, &outcomes[from..to]));
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

    /// What is left of an item when those of its nodes are gone or have moved.
    fn rest_of(&self, item: Garbage, outcomes: &[Outcome]) -> Option<Garbage> {
        match item {
            Garbage::Row { cts, leftover, storage, container, row, .. } if !outcomes.is_empty() => {
                let node = outcomes[0].2?;
                Some(Garbage::Row { cts, leftover, storage, container, row, node })
            }
            Garbage::Batch(batch) => batch.after(outcomes).map(Garbage::Batch),
            Garbage::Key { ref table, ref index, ref key, row, .. } => {
                let stores = self.stores.read();
                if !stores.contains_key(&table.store.id) || self.some_version_has(table, index, key, row) {
                    return Some(item);
                }
                // Asked again under the entry's latch.
                remove_entry(self, table, index, key, row);
                None
            }
            item => Some(item),
        }
    }
}

/// Lists the nodes that the item may fold: those that lead from one live version to another.
fn note_wanted(item: &Garbage, at: usize, wanted: &mut Vec<Wanted>) {
    let mut note = |item: &Garbage, write| {
        if let Garbage::Row { leftover: Leftover::Node, storage, container, row, node, .. } = *item {
            wanted.push(Wanted { storage, container, row, node, item: at, write });
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
                    self.outcomes.push((own.item, own.write, None));
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
                self.outcomes.push((own.item, own.write, Some(copy.at())));
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
        let moved = outcomes.iter().filter_map(|(_, write, node)| node.map(|node| (*write, node)));
        moved.for_each(|(write, node)| self.move_node(write, node));
        let gone = outcomes.iter().filter(|(_, _, node)| node.is_none());
        self.without(gone.map(|(_, write, _)| *write))
    }

    /// The writes that are not done, with their positions.
    fn items(&self) -> impl Iterator<Item = (usize, Garbage)> {
        (self.done()..self.len()).map(|at| (at, self.item(at)))
    }
}
