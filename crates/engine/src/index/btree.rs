//! Which rows have a key in this range? A B-link tree whose readers latch nothing (OLFIT).
//!
//! Keys are words compared from the first; callers normalise columns into words whose order is theirs. Either all keys of a tree have as many words,
//! which lie in the nodes; or they have at least so many, and what a key has beyond them lies outside of the nodes (`tails`). Of two keys that
//! are equal as far as both go, the shorter one comes first. Entries are ordered by (key, row id), so equal keys are neighbours and every entry
//! is distinct.
//!
//! A reader copies what it needs of a node between two equal readings of its version, and only then believes it. A writer
//! latches the node it changes; to split one it adds a right neighbour, links it, lets the latch go and tells the parent.
//! In between, and ever after for readers with old numbers, the high entry sends whoever seeks a larger entry right.
//!
//! 1. `node`'s invariants hold.
//! 2. In an inner node, the child left of separator s covers nothing above s or has a neighbour that does; the child right
//!    of s begins exactly above s. So a descent that remembers the separator left of its way, and the high entries that it
//!    passed going right, knows the exact lower bound of the leaf it reaches: backward scans need no left links.
//! 3. Parents may be told of two splits of one child in either order.
//! 4. Every insert of a key into a unique index latches the leaf that covers (key, 0) first and holds it to the end. So
//!    two of them cannot pass each other, however many leaves the key's entries fill.
//! 5. Latches go from left to right and from child to parent; none is taken while a parent's is held, save its right
//!    neighbours'.
//! 6. Two neighbours that have become nearly empty are merged, if one parent names both, beside each other: under the latches of left, right and
//!    parent the left one takes what the right one has, the parent forgets the right one, and that dies. A node that a split has just made is
//!    not named yet, so it stays until its parent was told, and so does every link that is on its way there.
//! 7. Nobody registers to read a node, and nobody waits for readers: a dead node's number is given out again at once. Links are compared
//!    with the life that they find (`node` invariant 3), so that a link to a node that died leads back to the root, never astray.
//!
//! 8. A key's words beyond its node's belong to that node's entry, and are read as the node is: copied or compared between two equal readings of the
//!    node's version, from memory that stays the tree's. They are given up under the node's latch only (`tails` invariants 1 to 3).
//!
//! The height never falls: a tree that was large and is small has inner nodes of one child at its top.

mod hints;
mod node;
mod numbered;
mod tails;
#[cfg(test)]
mod tests;
mod word;

use self::hints::Hints;
use self::node::{At, Latched, Link, Node, Nodes, Root, Shape, row_id};
use self::tails::{Tail, Tails, blocks_of};
use super::tally::Tally;
use super::{Conflict, Probe};
use crate::ids::RowId;
use crate::mem::{Account, Claim};
use crate::sync::Mutex;
use crate::sync::atomic::{Ordering::Acquire, fence};
use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

/// Keys that go down together: each has about ten lines on their way.
const BATCH: usize = 16;

/// Inner nodes seen on the way down, by level. Ten levels of the narrowest nodes hold more leaves than have numbers.
const LEVELS_MAX: usize = 16;

pub struct BTreeIndex {
    /// Words of each key, or the fewest if there are tails.
    width: usize,
    tails: Option<Arc<Tails>>,
    /// No other tree's.
    number: u64,
    hints: Hints,
    leaves: Nodes,
    inners: Nodes,
    root: Root,
    /// Taken to replace the root.
    growth: Mutex<()>,
    tally: Tally,
    /// Who pays for growth, once it is known.
    account: OnceLock<Arc<Account>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Direction {
    #[default]
    Forward,
    Backward,
}

/// The inner node that a descent went through at each level; none where it did not. Index 0 is unused.
type Path = [Link; LEVELS_MAX];

const NO_PATH: Path = [Link::NONE; LEVELS_MAX];

/// The separator left of a descent's way, the exact lower bound of where it leads; none where there is nothing below.
#[derive(Clone, Default, Debug)]
struct Low {
    words: Vec<u64>,
    /// One that is not known to hold yet.
    step: Vec<u64>,
}

impl BTreeIndex {
    pub const WIDTH_MAX: usize = 64;
    /// The longest key of a tree whose keys differ in length.
    pub const KEY_WORDS_MAX: usize = 512;

    /// An empty index over keys of `width` words.
    pub fn new(width: usize) -> BTreeIndex {
        assert!((1..=Self::WIDTH_MAX).contains(&width), "a key has 1 to 64 words");
        BTreeIndex::with_shapes(Shape::leaf(width), Shape::inner(width))
    }

    /// An empty index over keys of `width` to [`KEY_WORDS_MAX`](Self::KEY_WORDS_MAX) words, of which a node has the first `width`.
    pub fn with_tails(width: usize) -> BTreeIndex {
        assert!((2..Self::WIDTH_MAX).contains(&width), "a node has 2 to 63 words of a key");
        BTreeIndex::with_shapes(Shape::leaf(width + 1).with_tails(), Shape::inner(width + 1).with_tails())
    }

    fn with_shapes(leaf: Shape, inner: Shape) -> BTreeIndex {
        let tails = leaf.has_tails().then(|| Arc::new(Tails::new()));
        let leaves = Nodes::new(leaf, tails.clone());
        let first = leaves.add().id;
        BTreeIndex {
            width: leaf.inline,
            number: word::number(),
            hints: Hints::new(),
            leaves,
            inners: Nodes::new(inner, tails.clone()),
            tails,
            root: Root::new(0, first),
            growth: Mutex::new(()),
            tally: Tally::new(),
            account: OnceLock::new(),
        }
    }

    /// From now on the index takes its memory from `account`, what it has now included.
    pub fn charge_to(&self, account: Arc<Account>) {
        account.take(self.memory_bytes() as u64, Claim::Forced);
        self.draw_on(account);
    }

    /// As `charge_to`, for a part of a structure that has paid for it.
    pub(super) fn draw_on(&self, account: Arc<Account>) {
        if let Some(tails) = &self.tails {
            tails.draw_on(account.clone());
        }
        self.account.set(account).expect("an index is charged once");
    }

    fn take(&self, nodes: &Nodes, claim: Claim) -> bool {
        self.account.get().is_none_or(|account| account.take(nodes.node_bytes() as u64, claim))
    }

    /// An inner node, which the split of a leaf entails.
    fn add_inner(&self) -> Latched<'_> {
        self.try_add(&self.inners, Claim::Forced).expect("memory is forced")
    }

    /// A new node, or one that died, latched; nothing if there is no memory for it.
    fn try_add<'n>(&self, nodes: &'n Nodes, claim: Claim) -> Option<Latched<'n>> {
        match nodes.take_free() {
            Some(id) => Some(nodes.revive(id)),
            None => self.take(nodes, claim).then(|| nodes.add()),
        }
    }

    /// The tail of a key that an entry in the node `place` is to have.
    fn new_tail(&self, at: At<'_>, place: u32, claim: Claim) -> Result<Tail, Conflict> {
        let Some(tails) = &self.tails else { return Ok(Tail::NONE) };
        tails.add(&at.key[self.width..], place as usize, claim).ok_or(Conflict::OutOfMemory)
    }

    /// Whether the words that a key has beyond its node's are few enough.
    fn admits(&self, key: &[u64]) -> bool {
        match self.tails {
            None => key.len() == self.width,
            Some(_) => (self.width..=Self::KEY_WORDS_MAX).contains(&key.len()),
        }
    }

    /// What the words of a key take outside of the nodes.
    pub fn tail_blocks(&self, key: &[u64]) -> usize {
        blocks_of(key.len() - self.width)
    }

    /// Takes what a build of so many entries in so many parts needs, whose keys have so many [`tail_blocks`](Self::tail_blocks): at most, but for keys
    /// that end leaves and are longer than others. [`join`](Self::join) gives back what was not needed.
    pub fn take_for_build(&self, entries: usize, parts: usize, tail_blocks: usize, claim: Claim) -> bool {
        let Some(account) = self.account.get() else { return true };
        let mut nodes = entries.div_ceil(self.leaves.capacity()) + parts;
        let mut bytes = nodes * self.leaves.node_bytes();
        if let Some(tails) = &self.tails {
            // The last key of each leaf is stored twice more.
            let blocks = tail_blocks + 2 * (tail_blocks.div_ceil(self.leaves.capacity()) + parts);
            tails.prepay(blocks);
            bytes += blocks * Tails::BLOCK_BYTES;
        }
        while nodes > 1 {
            nodes = nodes.div_ceil(self.inners.capacity());
            bytes += nodes * self.inners.node_bytes();
        }
        account.take(bytes as u64, claim)
    }

    /// An index of entries that come in ascending order, in full leaves. Repeated entries count once.
    pub fn bulk_build<K: AsRef<[u64]>>(width: usize, entries: impl IntoIterator<Item = (K, RowId)>) -> BTreeIndex {
        let mut tree = BTreeIndex::new(width);
        tree.fill(entries);
        tree
    }

    fn fill<K: AsRef<[u64]>>(&mut self, entries: impl IntoIterator<Item = (K, RowId)>) {
        let part = self.build_part(true, entries);
        self.join(std::iter::once(part));
    }

    /// Fills leaves with entries that come in ascending order, for a tree that is empty and that nobody uses: several threads may
    /// build parts, of which each lies wholly below the next, and one then [`joins`](Self::join) them. Repeated entries count once.
    pub fn build_part<K: AsRef<[u64]>>(
        &self,
        is_first: bool,
        entries: impl IntoIterator<Item = (K, RowId)>,
    ) -> TreePart {
        let (_, root) = self.root.load();
        let node = if is_first { self.leaves.node(root).latch(root) } else { self.leaves.add() };
        let first = node.own_link();
        let mut level = LevelBuilder { nodes: &self.leaves, node, ends: Vec::new() };
        let mut last: Vec<u64> = Vec::new();
        for (key, row) in entries {
            let at = self.at(key.as_ref(), row);
            if !last.is_empty() {
                let order = At::of(&last).cmp(&at);
                assert!(order != Ordering::Greater, "a tree is built from entries in ascending order");
                if order == Ordering::Equal {
                    continue;
                }
            }
            level.append(at);
            self.tally.add();
            last.clear();
            last.extend(at.words());
        }
        TreePart { first, end: level.node.own_link(), ends: level.finish(), last }
    }

    /// Makes one tree of the parts that were built for it, in their order.
    pub fn join(&self, parts: impl Iterator<Item = TreePart>) {
        let mut ends: Vec<End> = Vec::new();
        // Of the parts so far: the first leaf, the last one, and the entry that it ends with.
        let mut joined: Option<(Link, Link, Vec<u64>)> = None;
        for part in parts.filter(|part| !part.last.is_empty()) {
            let first = match joined.take() {
                None => part.first,
                Some((first, end, high)) => {
                    self.leaves.node(end.id()).latch(end.id()).end_at_last(part.first);
                    ends.push(End { link: end, high, right: part.first });
                    first
                }
            };
            ends.extend(part.ends);
            joined = Some((first, part.end, part.last));
        }
        let Some((mut top, ..)) = joined else { return self.settle_account() };
        let mut height = 0;
        while !ends.is_empty() {
            // `ends` lacks the last node of the level below, which ends nowhere.
            let mut level = LevelBuilder { nodes: &self.inners, node: self.inners.add(), ends: Vec::new() };
            let children = std::mem::take(&mut ends);
            let edge = children.last().map_or(Link::NONE, |end| end.right);
            for End { link, high, .. } in children {
                level.append_child(At::of(&high), link);
            }
            level.append_last(edge);
            top = level.node.own_link();
            ends = level.finish();
            height += 1;
        }
        self.root.store(height, top.id());
        self.settle_account();
    }

    fn settle_account(&self) {
        if let Some(tails) = &self.tails {
            tails.prepay(0);
        }
        if let Some(account) = self.account.get() {
            account.hold(self.memory_bytes() as u64, Claim::Forced);
        }
    }

    fn at<'a>(&self, key: &'a [u64], row: RowId) -> At<'a> {
        assert!(self.admits(key), "a key of {} words is none of its index", key.len());
        At { key, row: row.0 }
    }

    fn nodes(&self, level: usize) -> &Nodes {
        if level == 0 { &self.leaves } else { &self.inners }
    }

    /// The root and its level, as they were at one moment.
    #[inline]
    fn top(&self) -> (usize, Link) {
        loop {
            let (level, id) = self.root.load();
            let link = self.nodes(level).node(id).link(id);
            // A root dies only after another has taken its place: if it is still the root, this is its life.
            fence(Acquire);
            if self.root.load() == (level, id) {
                return (level, link);
            }
        }
    }

    /// The node of `level` that covers `at`, or one to the left of it that links to it. `path` learns the inner nodes met,
    /// and `low`, if given, the entry above which the node begins: empty if it is the first.
    #[inline]
    fn descend(&self, level: usize, at: At<'_>, path: &mut Path, mut low: Option<&mut Low>) -> Link {
        loop {
            if let Some(link) = self.try_descend(level, at, path, low.as_deref_mut()) {
                return link;
            }
        }
    }

    /// Nothing if a node died on the way.
    #[inline]
    fn try_descend(&self, level: usize, at: At<'_>, path: &mut Path, mut low: Option<&mut Low>) -> Option<Link> {
        let (mut here, mut link) = self.top();
        debug_assert!(here >= level, "a tree does not shrink");
        if let Some(low) = low.as_deref_mut() {
            low.words.clear();
        }
        while here > level {
            let node = self.inners.node(link.id());
            let seen = node.begin_read();
            let is_alive = node.is_meant_by(link);
            let goes_right = node.is_below(at);
            let count = node.count();
            let child = node.child_for(count, at);
            let next = if goes_right { node.right() } else { node.child(child) };
            let mut narrows = false;
            if let Some(low) = low.as_deref_mut() {
                narrows = goes_right || child > 0;
                if goes_right {
                    node.copy_high(&mut low.step);
                } else if child > 0 {
                    node.copy_entry(child - 1, &mut low.step);
                }
            }
            if !node.end_read(seen) {
                continue;
            }
            if !is_alive {
                return None;
            }
            if let Some(low) = low.as_deref_mut().filter(|_| narrows) {
                std::mem::swap(&mut low.words, &mut low.step);
            }
            if !goes_right {
                path[here] = link;
                here -= 1;
                self.nodes(here).node(next.id()).prefetch();
            }
            link = next;
        }
        Some(link)
    }

    /// The node that the link means, latched; nothing if it has died.
    fn latch_alive(&self, level: usize, link: Link) -> Option<Latched<'_>> {
        let node = self.nodes(level).node(link.id()).latch(link.id());
        node.is_meant_by(link).then_some(node)
    }

    /// From a latched node to the one that covers `at`, latched: it or to the right of it.
    fn latch_onwards<'n>(&'n self, level: usize, mut node: Latched<'n>, at: At<'_>) -> Latched<'n> {
        while node.is_below(at) {
            // Alive, because its left neighbour is latched.
            let right = node.right().id();
            node = self.nodes(level).node(right).latch(right);
        }
        node
    }

    /// The leaf that covers `at`, latched.
    fn latch_leaf(&self, at: At<'_>, path: &mut Path) -> Latched<'_> {
        loop {
            let link = self.descend(0, at, path, None);
            if let Some(leaf) = self.latch_alive(0, link) {
                return self.latch_onwards(0, leaf, at);
            }
        }
    }

    /// Adds an entry; false if it was there.
    pub fn insert(&self, key: &[u64], row: RowId) -> bool {
        self.try_insert(key, row, Claim::Forced).expect("memory is forced")
    }

    /// Adds an entry if there is memory for it; false if it was there.
    pub fn try_insert(&self, key: &[u64], row: RowId, claim: Claim) -> Result<bool, Conflict> {
        let at = self.at(key, row);
        let mut path = NO_PATH;
        let leaf = self.latch_leaf(at, &mut path);
        Ok(self.place(leaf, at, claim)?.finish(self, &path))
    }

    /// Adds an entry unless the `probe` objects to one of equal key; false if it was there. The probe sees every such
    /// entry but the row's own, under the latch of the key's first leaf. It must not enter this index, nor wait.
    pub fn insert_unique(&self, key: &[u64], row: RowId, probe: impl FnMut(RowId) -> Probe) -> Result<bool, Conflict> {
        self.try_insert_unique(key, row, Claim::Forced, probe)
    }

    /// As `insert_unique`, if there is memory for it.
    pub fn try_insert_unique(
        &self,
        key: &[u64],
        row: RowId,
        claim: Claim,
        mut probe: impl FnMut(RowId) -> Probe,
    ) -> Result<bool, Conflict> {
        let at = self.at(key, row);
        let start = At { key, row: 0 };
        let mut path = NO_PATH;
        let first = self.latch_leaf(start, &mut path);
        let mut check = |other: u64| match row_id(other) {
            other if other == row => Ok(()),
            other => probe(other).verdict(other),
        };
        for i in first.lower_bound(first.count(), start)..first.count() {
            if !first.key_equals(i, key) {
                break;
            }
            check(first.row(i))?;
        }
        let last = At { key, row: u64::MAX };
        if first.is_below(last) {
            // The key's entries may go on in other leaves: they may change meanwhile, but none can be added.
            while !self.check_beyond(first.right(), key, &mut check)? {}
        }
        if !first.is_below(at) {
            return Ok(self.place(first, at, claim)?.finish(self, &path));
        }
        let right = first.right().id();
        let leaf = self.latch_onwards(0, self.leaves.node(right).latch(right), at);
        let placed = self.place(leaf, at, claim);
        drop(first);
        Ok(placed?.finish(self, &path))
    }

    /// Checks the key's entries from a leaf on whose left neighbour is latched; false if one to the right of it died meanwhile.
    fn check_beyond(
        &self,
        mut link: Link,
        key: &[u64],
        check: &mut impl FnMut(u64) -> Result<(), Conflict>,
    ) -> Result<bool, Conflict> {
        let (start, last) = (At { key, row: 0 }, At { key, row: u64::MAX });
        let mut rows = Vec::new();
        while !link.is_none() {
            let leaf = self.leaves.node(link.id());
            let seen = leaf.begin_read();
            let is_alive = leaf.is_meant_by(link);
            rows.clear();
            let (from, to) = (leaf.lower_bound(leaf.count(), start), leaf.lower_bound(leaf.count(), last));
            rows.extend((from..to).map(|i| leaf.row(i)));
            let next = if leaf.is_below(last) { leaf.right() } else { Link::NONE };
            if leaf.end_read(seen) {
                if !is_alive {
                    return Ok(false);
                }
                rows.iter().try_for_each(|&row| check(row))?;
                link = next;
            }
        }
        Ok(true)
    }

    /// Inserts into the leaf that covers `at`, splitting it if it is full and there is memory for another. Lets the latch go.
    fn place(&self, mut leaf: Latched<'_>, at: At<'_>, claim: Claim) -> Result<Placed, Conflict> {
        let i = leaf.lower_bound(leaf.count(), at);
        if i < leaf.count() && leaf.compare_entry(i, at) == Ordering::Equal {
            return Ok(Placed::Present);
        }
        let tail = self.new_tail(at, leaf.id, claim)?;
        if !leaf.is_full() {
            self.tally.add();
            leaf.insert(i, at, tail);
            return Ok(Placed::Done);
        }
        let Some(mut new) = self.try_add(&self.leaves, claim) else {
            self.tails.iter().for_each(|tails| tails.free(tail, leaf.id as usize));
            return Err(Conflict::OutOfMemory);
        };
        self.tally.add();
        let high = leaf.split_leaf(&mut new, i, at, tail);
        Ok(Placed::Split { high, right: new.own_link() })
    }

    /// Tells the inner nodes of `level` that a child now ends at `high` and that `right` has the rest of it.
    fn insert_separator(&self, mut level: usize, mut high: Vec<u64>, mut right: Link, path: &Path) {
        loop {
            let at = At::of(&high);
            let Some(mut node) = self.latch_parent(level, at, right, path) else {
                return;
            };
            if !node.is_full() {
                node.insert_child(at, right);
                return;
            }
            let mut new = self.add_inner();
            let split = node.split_inner(&mut new, at, right);
            right = new.own_link();
            drop((new, node));
            high = split;
            level += 1;
        }
    }

    /// Where the separator goes, latched; nothing if that was a new root, which now has it.
    fn latch_parent(&self, level: usize, at: At<'_>, right: Link, path: &Path) -> Option<Latched<'_>> {
        let mut known = path[level];
        loop {
            if !known.is_none()
                && let Some(node) = self.latch_alive(level, known)
            {
                return Some(self.latch_onwards(level, node, at));
            }
            // The descent began below this level, or its node has died: the tree has grown since, or must now.
            let growth = self.growth.lock();
            let (top, root) = self.root.load();
            if top < level {
                let mut new = self.add_inner();
                new.append(at, Some(self.nodes(top).node(root).link(root)));
                new.append_last(right);
                let id = new.id;
                drop(new);
                self.root.store(level, id);
                return None;
            }
            drop(growth);
            known = self.descend(level, at, &mut { NO_PATH }, None);
        }
    }

    /// Removes an entry unless it is `needed`, which is asked under its leaf's latch, and only if the entry is there. True
    /// if it was removed.
    pub fn remove(&self, key: &[u64], row: RowId, needed: impl FnOnce() -> bool) -> bool {
        let at = self.at(key, row);
        let mut leaf = self.latch_leaf(at, &mut { NO_PATH });
        let i = leaf.lower_bound(leaf.count(), at);
        if i == leaf.count() || leaf.compare_entry(i, at) != Ordering::Equal || needed() {
            return false;
        }
        leaf.remove(i);
        self.tally.subtract();
        let (left, link) = (leaf.count(), leaf.own_link());
        drop(leaf);
        // Twice in a leaf's life: neighbours that are too full the first time are not asked at every entry.
        if left == 0 || left == self.leaves.capacity() / 4 {
            self.merge_around(0, at, link);
        }
        true
    }

    // ---- structural deletes

    /// Merges the node of `level` that covers `at` with a neighbour, if they fit one node and have one parent. Whoever is in the way has it
    /// left undone: the next removal nearby tries again.
    fn merge_around(&self, level: usize, at: At<'_>, link: Link) {
        if self.root.load().0 <= level {
            return;
        }
        let parent = self.descend(level + 1, at, &mut { NO_PATH }, None);
        let node = self.inners.node(parent.id());
        let seen = node.begin_read();
        let (is_alive, count) = (node.is_meant_by(parent), node.count());
        let i = node.child_for(count, at);
        let is_here = node.child(i) == link;
        let right = (i + 1 < count).then(|| (node.child(i), node.child(i + 1)));
        let left = (i > 0).then(|| (node.child(i - 1), node.child(i)));
        if node.end_read(seen) && is_alive && is_here {
            let _ =
                [right, left].into_iter().flatten().find(|&(left, right)| self.merge(level, at, left, right, parent));
        }
    }

    /// Merges `right` into `left`, two children of `parent` when it was looked at; false if that is no longer so, or they do not fit one node.
    /// One of them covers `at`.
    fn merge(&self, level: usize, at: At<'_>, left: Link, right: Link, parent: Link) -> bool {
        let nodes = self.nodes(level);
        let Some(mut left) = self.latch_alive(level, left).filter(|left| left.right() == right) else {
            return false;
        };
        let mut right = nodes.node(right.id()).latch(right.id());
        let (a, b) = (left.count(), right.count());
        // A node is left with room, unless nothing has to be moved into it.
        let most = if a == 0 || b == 0 { nodes.capacity() } else { nodes.capacity() * 3 / 4 };
        if a + b > most {
            return false;
        }
        let Some(mut above) = self.latch_alive(level + 1, parent) else {
            return false;
        };
        let Some(place) = above.position_of(left.own_link(), right.own_link()) else {
            return false;
        };
        left.absorb(&mut right);
        above.remove_child(place);
        let few = above.count() <= (self.inners.capacity() / 4).max(1);
        let dead = right.id;
        drop((above, right, left));
        nodes.give_free(dead);
        if few {
            self.merge_around(level + 1, at, parent);
        }
        true
    }

    pub fn contains(&self, key: &[u64], row: RowId) -> bool {
        let at = self.at(key, row);
        let mut link = self.find_leaf(at);
        loop {
            let leaf = self.leaves.node(link.id());
            let seen = leaf.begin_read();
            let is_alive = leaf.is_meant_by(link);
            let (right, goes_right, count) = (leaf.right(), leaf.is_below(at), leaf.count());
            let i = leaf.lower_bound(count, at);
            let found = i < count && leaf.compare_entry(i, at) == Ordering::Equal;
            if leaf.end_read(seen) {
                match is_alive {
                    true if goes_right => link = right,
                    true => return found,
                    false => link = self.find_leaf(at),
                }
            }
        }
    }

    /// Calls `found` with each row that has an entry of this key, in order, until it breaks.
    #[inline]
    pub fn lookup<B>(&self, key: &[u64], found: impl FnMut(RowId) -> ControlFlow<B>) -> ControlFlow<B> {
        let leaf = self.find_leaf(self.at(key, RowId(0)));
        self.lookup_from(leaf, key, found)
    }

    /// The leaf that covers `at`, or one to the left of it.
    #[inline]
    fn find_leaf(&self, at: At<'_>) -> Link {
        'again: loop {
            let (mut level, mut link) = self.top();
            while level > 0 {
                level -= 1;
                let Some(child) = self.child_covering(link, at) else { continue 'again };
                link = child;
                self.nodes(level).node(link.id()).prefetch();
            }
            return link;
        }
    }

    /// Calls `found(i, row)` with each row that has an entry of the i-th of `count` keys, `key(i)`, for all i in order. A key has all its words, those
    /// beyond its node's too. The misses of many keys are waited for together: all go down a level before one goes down the next.
    pub fn lookup_batch<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'k [u64],
        mut found: impl FnMut(usize, RowId),
    ) {
        let start = |i| self.at(key(i), RowId(0));
        let mut leaves = [Link::NONE; BATCH];
        for first in (0..count).step_by(BATCH) {
            let leaves = &mut leaves[..BATCH.min(count - first)];
            let (mut level, root) = self.top();
            leaves.fill(root);
            while level > 0 {
                level -= 1;
                // Whose node died goes down alone, at the end.
                for (link, i) in leaves.iter_mut().zip(first..).filter(|(l, _)| !l.is_none()) {
                    *link = self.child_covering(*link, start(i)).unwrap_or_default();
                    if !link.is_none() {
                        self.nodes(level).node(link.id()).prefetch();
                    }
                }
            }
            for (&mut link, i) in leaves.iter_mut().zip(first..) {
                let leaf = if link.is_none() { self.find_leaf(start(i)) } else { link };
                let _: ControlFlow<()> = self.lookup_from(leaf, key(i), |row| {
                    found(i, row);
                    ControlFlow::Continue(())
                });
            }
        }
    }

    /// The child that covers `at`, or one to the left of it, of an inner node that covers it or is to the left of one. Nothing if a node
    /// has died.
    #[inline]
    fn child_covering(&self, link: Link, at: At<'_>) -> Option<Link> {
        self.seen_of_child(link, at, |node, _, i| node.child(i))
    }

    /// What `look` sees of that child, given its node, the node's count and the child's place: it may be of a node that changes, and is seen again then.
    #[inline]
    fn seen_of_child<T>(&self, mut link: Link, at: At<'_>, look: impl Fn(Node<'_>, usize, usize) -> T) -> Option<T> {
        loop {
            let node = self.inners.node(link.id());
            let seen = node.begin_read();
            let is_alive = node.is_meant_by(link);
            let found = match node.is_below(at) {
                true => Err(node.right()),
                false => {
                    let count = node.count();
                    Ok(look(node, count, node.child_for(count, at)))
                }
            };
            if !node.end_read(seen) {
                continue;
            }
            if !is_alive {
                return None;
            }
            match found {
                Ok(found) => return Some(found),
                Err(right) => link = right,
            }
        }
    }

    /// As `lookup`, from a leaf that covers the key's first entry or is to the left of it.
    #[inline]
    fn lookup_from<B>(
        &self,
        mut link: Link,
        key: &[u64],
        mut found: impl FnMut(RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        /// Rows copied at once; most keys have one.
        const CHUNK: usize = 4;
        let mut from = self.at(key, RowId(0));
        let last = At { key, row: u64::MAX };
        while !link.is_none() {
            let mut rows = [0; CHUNK];
            let leaf = self.leaves.node(link.id());
            let seen = leaf.begin_read();
            let is_alive = leaf.is_meant_by(link);
            let count = leaf.count();
            let first = leaf.lower_bound(count, from);
            let mut copied = 0;
            while copied < CHUNK && first + copied < count && leaf.key_equals(first + copied, key) {
                rows[copied] = leaf.row(first + copied);
                copied += 1;
            }
            let next = if leaf.is_below(last) { leaf.right() } else { Link::NONE };
            if !leaf.end_read(seen) {
                continue;
            }
            if !is_alive {
                link = self.find_leaf(from);
                continue;
            }
            rows[..copied].iter().try_for_each(|&row| found(row_id(row)))?;
            if copied > 0 {
                // Never back: the leaf after this one may be merged into it.
                from.row = rows[copied - 1] + 1;
            }
            if copied < CHUNK {
                link = next;
            }
        }
        ControlFlow::Continue(())
    }

    /// A cursor over the entries whose keys lie within the bounds. Where keys differ in length, bounds are included: no key is the last before another.
    pub fn scan(&self, lower: Bound<&[u64]>, upper: Bound<&[u64]>, direction: Direction) -> Cursor {
        let entry = |key: &[u64], row: u64| -> Vec<u64> { At { key, row }.words().collect() };
        let nothing = vec![0; self.width];
        for bound in [lower, upper] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                assert!(self.admits(key), "a bound has as many words as the index's keys");
            }
            let is_excluded = matches!(bound, Bound::Excluded(_));
            assert!(!is_excluded || self.tails.is_none(), "bounds are included where keys differ in length");
        }
        let lower = match lower {
            Bound::Included(key) => Some(entry(key, 0)),
            Bound::Excluded(key) => successor(entry(key, u64::MAX)),
            Bound::Unbounded => Some(entry(&nothing, 0)),
        };
        let upper = match upper {
            Bound::Included(key) => Some(entry(key, u64::MAX)),
            Bound::Excluded(key) => predecessor(entry(key, 0)),
            Bound::Unbounded => Some(self.above_all()),
        };
        let done = match (&lower, &upper) {
            (Some(lower), Some(upper)) => At::of(lower) > At::of(upper),
            _ => true,
        };
        let (lower, upper) = (lower.unwrap_or_default(), upper.unwrap_or_default());
        Cursor { lower, upper, direction, done, ..Cursor::default() }
    }

    /// Makes `cursor` one over the entries whose keys lie within the bounds, both included, with the memory that it has.
    pub fn scan_again(&self, cursor: &mut Cursor, lower: &[u64], upper: &[u64], direction: Direction) {
        assert!(self.admits(lower) && self.admits(upper), "a bound has as many words as the index's keys");
        for (words, key, row) in [(&mut cursor.lower, lower, 0), (&mut cursor.upper, upper, u64::MAX)] {
            words.clear();
            words.extend(At { key, row }.words());
        }
        cursor.direction = direction;
        cursor.leaf = Link::NONE;
        cursor.done = At::of(&cursor.lower) > At::of(&cursor.upper);
        cursor.stamp = LeafStamp::default();
    }

    /// A position at or above every entry.
    fn above_all(&self) -> Vec<u64> {
        let words = if self.tails.is_some() { Self::KEY_WORDS_MAX } else { self.width };
        vec![u64::MAX; words + 1]
    }

    /// Whether no entry has come into the leaf since its stamp was taken.
    pub fn stamp_holds(&self, stamp: LeafStamp) -> bool {
        let leaf = self.leaves.node(stamp.leaf.id());
        loop {
            let seen = leaf.begin_read();
            let holds = leaf.is_meant_by(stamp.leaf) && leaf.inserts() == stamp.inserts;
            if leaf.end_read(seen) {
                return holds;
            }
        }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn len(&self) -> usize {
        self.tally.total()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of the entries and the way to them: what a restart makes anew. Hints come again as keys are looked up.
    pub fn memory_bytes(&self) -> usize {
        let tails = self.tails.as_ref().map_or(0, |tails| tails.memory_bytes());
        size_of::<Self>() + self.leaves.memory_bytes() + self.inners.memory_bytes() + tails
    }
}

/// What became of an insert into a leaf; the latches are gone.
enum Placed {
    Present,
    Done,
    Split { high: Vec<u64>, right: Link },
}

impl Placed {
    /// Tells the parent of a split; true if the entry is new.
    fn finish(self, tree: &BTreeIndex, path: &Path) -> bool {
        match self {
            Placed::Present => false,
            Placed::Done => true,
            Placed::Split { high, right } => {
                tree.insert_separator(1, high, right, path);
                true
            }
        }
    }
}

/// The leaves of one part of a tree that is being built.
pub struct TreePart {
    first: Link,
    end: Link,
    ends: Vec<End>,
    /// The last entry; empty if there is none.
    last: Vec<u64>,
}

/// A finished node of the level being built: its high entry, and its right neighbour.
struct End {
    link: Link,
    high: Vec<u64>,
    right: Link,
}

/// Fills the nodes of one level from left to right.
struct LevelBuilder<'a> {
    nodes: &'a Nodes,
    node: Latched<'a>,
    ends: Vec<End>,
}

impl<'a> LevelBuilder<'a> {
    fn append(&mut self, at: At<'_>) {
        self.make_room();
        self.node.append(at, None);
    }

    fn append_child(&mut self, high: At<'_>, child: Link) {
        self.make_room();
        self.node.append(high, Some(child));
    }

    fn append_last(&mut self, child: Link) {
        self.make_room();
        self.node.append_last(child);
    }

    fn make_room(&mut self) {
        if self.node.is_full() {
            let new = self.nodes.add();
            let right = new.own_link();
            let high = self.node.end_at_last(right);
            self.ends.push(End { link: self.node.own_link(), high, right });
            self.node = new;
        }
    }

    fn finish(self) -> Vec<End> {
        self.ends
    }
}

/// The next entry in the order, of keys of one length or of a row that is not the last of its key; nothing after the last.
fn successor(mut entry: Vec<u64>) -> Option<Vec<u64>> {
    for word in entry.iter_mut().rev() {
        let (next, carries) = word.overflowing_add(1);
        *word = next;
        if !carries {
            return Some(entry);
        }
    }
    None
}

/// The entry before in the order; nothing before the first.
fn predecessor(mut entry: Vec<u64>) -> Option<Vec<u64>> {
    for word in entry.iter_mut().rev() {
        let (next, borrows) = word.overflowing_sub(1);
        *word = next;
        if !borrows {
            return Some(entry);
        }
    }
    None
}

/// Entries copied out of an index: keys with their rows.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// A key's words and a row id each.
    words: Vec<u64>,
    /// How many words each entry has; 0 if they differ.
    stride: usize,
    /// Where each entry ends, if they differ.
    ends: Vec<usize>,
}

impl Entries {
    pub fn new() -> Entries {
        Entries::default()
    }

    pub fn len(&self) -> usize {
        self.words.len().checked_div(self.stride).unwrap_or(self.ends.len())
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// What it keeps.
    pub fn memory_bytes(&self) -> usize {
        (self.words.capacity() + self.ends.capacity()) * size_of::<u64>()
    }

    pub fn get(&self, i: usize) -> (&[u64], RowId) {
        let (from, to) = match self.stride {
            0 => (i.checked_sub(1).map_or(0, |before| self.ends[before]), self.ends[i]),
            stride => (i * stride, (i + 1) * stride),
        };
        let at = At::of(&self.words[from..to]);
        (at.key, row_id(at.row))
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
    }

    /// Adds an entry as a reader sees it: it means something once that is validated.
    fn push(&mut self, node: Node<'_>, i: usize) {
        node.append_entry(i, &mut self.words);
        if self.stride == 0 {
            self.ends.push(self.words.len());
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u64], RowId)> + ExactSizeIterator {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// A leaf as a cursor read it, for phantom checks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeafStamp {
    leaf: Link,
    inserts: u64,
}

/// A position in a scan. It keeps nothing of the index, so that it may rest between the statements of a session; each
/// batch is one leaf's entries as they were at one moment.
#[derive(Clone, Default, Debug)]
pub struct Cursor {
    /// The entries not yet returned lie within these, both inclusive.
    lower: Vec<u64>,
    upper: Vec<u64>,
    direction: Direction,
    /// Forward: the leaf that begins at `lower`, if known.
    leaf: Link,
    done: bool,
    stamp: LeafStamp,
    /// Memory of a step.
    low: Low,
    high: Vec<u64>,
}

impl Cursor {
    /// What it keeps.
    pub fn memory_bytes(&self) -> usize {
        let kept = [&self.lower, &self.upper, &self.low.words, &self.low.step, &self.high];
        kept.iter().map(|words| words.capacity() * size_of::<u64>()).sum()
    }

    /// Replaces `out` by the next entries in the direction of the scan; false, and nothing in `out`, at its end. An entry
    /// present throughout the scan is returned once; one that comes or goes meanwhile, once or not at all.
    pub fn next_batch(&mut self, tree: &BTreeIndex, out: &mut Entries) -> bool {
        out.clear();
        out.stride = if tree.tails.is_some() { 0 } else { tree.width + 1 };
        while !self.done && out.is_empty() {
            match self.direction {
                Direction::Forward => self.step_forward(tree, out),
                Direction::Backward => self.step_backward(tree, out),
            }
        }
        !out.is_empty()
    }

    /// The leaf of the last batch, as it was. A batch may have passed empty leaves unstamped.
    pub fn stamp(&self) -> LeafStamp {
        self.stamp
    }

    fn step_forward(&mut self, tree: &BTreeIndex, out: &mut Entries) {
        let mut link = self.leaf;
        let mut high = std::mem::take(&mut self.high);
        loop {
            if link.is_none() {
                link = tree.descend(0, At::of(&self.lower), &mut { NO_PATH }, None);
            }
            let leaf = tree.leaves.node(link.id());
            let (is_alive, right, goes_right, inserts) = leaf.read_settled(link.id(), || {
                let goes_right = leaf.is_below(At::of(&self.lower));
                if !goes_right {
                    let (from, to) = self.range(leaf);
                    out.clear();
                    (from..to).for_each(|i| out.push(leaf, i));
                    leaf.copy_high(&mut high);
                }
                (leaf.is_meant_by(link), leaf.right(), goes_right, leaf.inserts())
            });
            if !is_alive || goes_right {
                link = if is_alive { right } else { Link::NONE };
                out.clear();
                continue;
            }
            self.stamp = LeafStamp { leaf: link, inserts };
            self.high = successor(high).unwrap_or_default();
            if self.high.is_empty() || right.is_none() || At::of(&self.high) > At::of(&self.upper) {
                self.done = true;
            } else {
                std::mem::swap(&mut self.lower, &mut self.high);
                self.leaf = right;
            }
            return;
        }
    }

    fn step_backward(&mut self, tree: &BTreeIndex, out: &mut Entries) {
        let mut low = std::mem::take(&mut self.low);
        let mut high = std::mem::take(&mut self.high);
        let mut link = Link::NONE;
        loop {
            if link.is_none() {
                link = tree.descend(0, At::of(&self.upper), &mut { NO_PATH }, Some(&mut low));
            }
            let leaf = tree.leaves.node(link.id());
            let (is_alive, right, goes_right, inserts) = leaf.read_settled(link.id(), || {
                let goes_right = leaf.is_below(At::of(&self.upper));
                if goes_right {
                    leaf.copy_high(&mut high);
                } else {
                    let (from, to) = self.range(leaf);
                    out.clear();
                    (from..to).rev().for_each(|i| out.push(leaf, i));
                }
                (leaf.is_meant_by(link), leaf.right(), goes_right, leaf.inserts())
            });
            if !is_alive {
                out.clear();
                link = Link::NONE;
                continue;
            }
            if goes_right {
                std::mem::swap(&mut low.words, &mut high);
                link = right;
                continue;
            }
            self.stamp = LeafStamp { leaf: link, inserts };
            if low.words.is_empty() || At::of(&low.words) < At::of(&self.lower) {
                self.done = true;
            } else {
                std::mem::swap(&mut self.upper, &mut low.words);
            }
            (self.low, self.high) = (low, high);
            return;
        }
    }

    /// The leaf's entries within the bounds.
    fn range(&self, leaf: Node<'_>) -> (usize, usize) {
        let count = leaf.count();
        let from = leaf.lower_bound(count, At::of(&self.lower));
        let upper = At::of(&self.upper);
        let mut to = leaf.lower_bound(count, upper);
        if to < count && leaf.compare_entry(to, upper) == Ordering::Equal {
            to += 1;
        }
        (from, to)
    }
}
