//! What does a tree node look like, and where do nodes live?
//!
//! | words | leaf and inner node |
//! |---|---|
//! | 0 | version and latch (`index::latch`) |
//! | 1 | {descending streak 8, ascending streak 8, last insert's position 16, entries 16} |
//! | 2 | link to the right neighbour, 0 if none |
//! | 3 | leaf: inserts seen, this leaf's ancestors included |
//! | 4 | life: how often the node's number was given out and taken back |
//! | W + 1 | high entry: no entry of this node is above it; means nothing without a right neighbour |
//! | capacity x W | key words; of one-word keys from the next line on |
//! | capacity | row ids |
//! | capacity | inner node: links to children |
//!
//! An *entry* is W key words and a row id, ordered as W + 1 words from the first. In an inner node, entry i is the high
//! entry of child i; the last child's is the node's own, and what is stored in its place means nothing.
//!
//! 1. All words but 0 change only under the latch, and only between `latch` and `unlatch`.
//! 2. Nodes are numbered from 1; their memory is kept and never moves until the tree is dropped, and a number of the leaf table is always a leaf.
//!    Numbers are given out again: each time the node has another *life*, which is even while it is in the tree.
//! 3. A link is a number and a life, and means the node in that life only: whoever follows one compares the lives in the same reading as
//!    what it looks at. Lives differ: the link is old, and the way to it begins again at the root.
//! 4. In one life a node's lower bound never changes: splits move entries to the right, and of two nodes that are merged the left one stays. So
//!    whoever holds a link to a living node, however old, finds every entry at or above that bound by going right.
//! 5. A node dies under its own latch and its left neighbour's. So the right neighbour of a latched node is alive.

use super::super::latch;
use super::super::words::{LINE_WORDS, Words, prefetch};
use crate::ids::RowId;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use crate::sync::{Mutex, step};
use std::cmp::Ordering;

const VERSION: usize = 0;
const META: usize = 1;
const RIGHT: usize = 2;
const INSERTS: usize = 3;
const LIFE: usize = 4;
const HIGH: usize = 5;

const STREAK_MAX: u64 = 255;

/// A node in one of its lives: life 32, number 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link(u64);

impl Link {
    pub const NONE: Link = Link(0);

    fn new(id: u32, life: u32) -> Link {
        Link(u64::from(life) << 32 | u64::from(id))
    }

    #[inline]
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn life(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.id() == 0
    }
}

/// An entry, or a position in the order of entries.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub key: &'a [u64],
    pub row: u64,
}

impl<'a> At<'a> {
    /// From W + 1 words.
    pub fn of(words: &'a [u64]) -> At<'a> {
        let (row, key) = words.split_last().expect("an entry has at least two words");
        At { key, row: *row }
    }

    pub fn words(self) -> impl Iterator<Item = u64> {
        self.key.iter().copied().chain(std::iter::once(self.row))
    }
}

/// Where things are in the nodes of one kind of one tree.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: usize,
    pub capacity: usize,
    pub words: usize,
    keys: usize,
    rows: usize,
    children: usize,
    is_inner: bool,
}

impl Shape {
    /// Entries that even the widest keys get in a node.
    const CAPACITY_MIN: usize = 16;

    /// About 1 KiB, more for wide keys.
    pub fn leaf(width: usize) -> Shape {
        let fitting = (128 - Self::keys_at(width)) / (width + 1);
        Shape::new(width, fitting.max(Self::CAPACITY_MIN), false)
    }

    /// About 1.5 KiB: a child costs a key, a row id and a number, and sixty of them save a level over thirty.
    pub fn inner(width: usize) -> Shape {
        let fitting = (192 - Self::keys_at(width)) / (width + 2);
        Shape::new(width, fitting.max(Self::CAPACITY_MIN), true)
    }

    /// Keys of one word fill whole lines, which are searched as such.
    fn keys_at(width: usize) -> usize {
        let header = HIGH + width + 1;
        if width == 1 { header.next_multiple_of(LINE_WORDS) } else { header }
    }

    pub fn new(width: usize, capacity: usize, is_inner: bool) -> Shape {
        let keys = Self::keys_at(width);
        let rows = keys + capacity * width;
        let children = rows + capacity;
        let words = if is_inner { children + capacity } else { children };
        Shape { width, capacity, words: words.next_multiple_of(8), keys, rows, children, is_inner }
    }
}

/// A node as anyone may look at it. What it says means nothing until the version has been checked.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    words: &'a [AtomicU64],
    shape: &'a Shape,
}

impl<'a> Node<'a> {
    #[inline]
    fn get(self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    #[inline]
    fn set(self, at: usize, value: u64) {
        self.words[at].store(value, Relaxed);
    }

    /// Starts loading what a search will read: the header and, of narrow keys, all; the lines of a binary search
    /// depend on each other, fetched ahead they do not.
    #[inline]
    pub fn prefetch(self) {
        const LINES_MAX: usize = 16;
        // A leaf's row ids too: which line of them is wanted is known a miss later. Of an inner node they are looked at for equal keys only.
        let end = if self.shape.is_inner { self.shape.rows } else { self.shape.words };
        let lines = self.words[..end].chunks(LINE_WORDS).take(LINES_MAX);
        lines.for_each(|line| prefetch(&line[0]));
    }

    #[inline]
    pub fn begin_read(self) -> u64 {
        latch::begin_read(&self.words[VERSION])
    }

    /// As `begin_read`, without waiting: nothing while someone changes the node.
    #[inline]
    pub fn try_begin_read(self) -> Option<u64> {
        latch::try_begin_read(&self.words[VERSION])
    }

    #[inline]
    #[must_use]
    pub fn end_read(self, seen: u64) -> bool {
        latch::end_read(&self.words[VERSION], seen)
    }

    /// Entries; never more than fit, even when read amid a change.
    #[inline]
    pub fn count(self) -> usize {
        ((self.get(META) & 0xffff) as usize).min(self.shape.capacity)
    }

    #[inline]
    pub fn right(self) -> Link {
        Link(self.get(RIGHT))
    }

    /// Whether the node is in the life that the link means.
    #[inline]
    pub fn is_meant_by(self, link: Link) -> bool {
        self.get(LIFE) == u64::from(link.life())
    }

    /// The node in its present life, which is known not to end.
    pub fn link(self, id: u32) -> Link {
        Link::new(id, self.get(LIFE) as u32)
    }

    pub fn inserts(self) -> u64 {
        self.get(INSERTS)
    }

    #[inline]
    pub fn row(self, i: usize) -> u64 {
        self.get(self.shape.rows + i)
    }

    #[inline]
    pub fn child(self, i: usize) -> Link {
        Link(self.get(self.shape.children + i))
    }

    #[inline]
    fn compare(self, keys: usize, row: usize, at: At<'_>) -> Ordering {
        for (word, sought) in self.words[keys..].iter().zip(at.key) {
            match word.load(Relaxed).cmp(sought) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        self.get(row).cmp(&at.row)
    }

    #[inline]
    pub fn compare_entry(self, i: usize, at: At<'_>) -> Ordering {
        self.compare(self.shape.keys + i * self.shape.width, self.shape.rows + i, at)
    }

    #[inline]
    pub fn key_equals(self, i: usize, key: &[u64]) -> bool {
        let words = &self.words[self.shape.keys + i * self.shape.width..][..self.shape.width];
        words.iter().zip(key).all(|(word, sought)| word.load(Relaxed) == *sought)
    }

    /// Whether `at` is above all that this node may hold, so that it is to be sought to the right.
    #[inline]
    pub fn is_below(self, at: At<'_>) -> bool {
        !self.right().is_none() && self.compare(HIGH, HIGH + self.shape.width, at) == Ordering::Less
    }

    /// The first of `count` entries that is not below `at`.
    #[inline]
    pub fn lower_bound(self, count: usize, at: At<'_>) -> usize {
        match *at.key {
            // No row id is below zero: what is looked up by key alone looks at keys alone.
            [key] if at.row == 0 => self.first_word_not_below(count, key),
            [key] => first_not_below(count, |i| {
                let word = self.get(self.shape.keys + i);
                word < key || word == key && self.row(i) < at.row
            }),
            _ => first_not_below(count, |i| self.compare_entry(i, at) == Ordering::Less),
        }
    }

    /// The first of `count` keys of one word that is not below `key`. Each line's last key first, then the keys of one line: two looks that wait for
    /// memory, where halving waits once for each bit.
    #[inline]
    fn first_word_not_below(self, count: usize, key: u64) -> usize {
        let keys = &self.words[self.shape.keys..][..count];
        let is_below = |word: &AtomicU64| usize::from(word.load(Relaxed) < key);
        let lines: usize = keys.chunks_exact(LINE_WORDS).map(|line| is_below(&line[LINE_WORDS - 1])).sum();
        let first = lines * LINE_WORDS;
        if self.shape.is_inner {
            // Of the children that the line's keys belong to one is wanted next.
            let children = &self.words[self.shape.children + first..];
            children.iter().take(LINE_WORDS).step_by(LINE_WORDS - 1).for_each(prefetch);
        }
        let within = match keys[first..].first_chunk::<LINE_WORDS>() {
            Some(line) => line.iter().map(is_below).sum::<usize>(),
            None => keys[first..].iter().map(is_below).sum::<usize>(),
        };
        first + within
    }

    /// The same, begun where the key is thought to be.
    #[inline]
    pub fn first_word_not_below_near(self, count: usize, key: u64, guess: usize) -> usize {
        let is_below = |i: usize| self.get(self.shape.keys + i) < key;
        let (mut low, mut high, mut step) = (guess.min(count), guess.min(count), 1);
        if low < count && is_below(low) {
            low += 1;
            high = low;
            while high < count && is_below(high) {
                low = high + 1;
                high = (high + step).min(count);
                step *= 2;
            }
        } else {
            while low > 0 && !is_below(low - 1) {
                high = low - 1;
                low = low.saturating_sub(step);
                step *= 2;
            }
        }
        low + first_not_below(high - low, |i| is_below(low + i))
    }

    /// The key of an entry whose keys have one word.
    #[inline]
    pub fn key_word(self, i: usize) -> u64 {
        self.get(self.shape.keys + i)
    }

    /// The same of the high entry.
    #[inline]
    pub fn high_word(self) -> u64 {
        self.get(HIGH)
    }

    /// Starts loading the header and the lines with the keys and row ids of the entries from `low` to `high`, of one-word keys.
    #[inline]
    pub fn prefetch_entries(self, low: usize, high: usize) {
        prefetch(&self.words[0]);
        let high = high.min(self.shape.capacity - 1);
        for part in [self.shape.keys, self.shape.rows] {
            let lines = (part + low) / LINE_WORDS..=(part + high) / LINE_WORDS;
            lines.for_each(|line| prefetch(&self.words[line * LINE_WORDS]));
        }
    }

    /// Which of `count` children covers `at`.
    #[inline]
    pub fn child_for(self, count: usize, at: At<'_>) -> usize {
        self.lower_bound(count.saturating_sub(1), at)
    }

    pub fn copy_high(self, to: &mut Vec<u64>) {
        to.clear();
        to.extend((HIGH..=HIGH + self.shape.width).map(|at| self.get(at)));
    }

    pub fn copy_entry(self, i: usize, to: &mut Vec<u64>) {
        to.clear();
        self.append_entry(i, to);
    }

    pub fn append_entry(self, i: usize, to: &mut Vec<u64>) {
        let keys = self.shape.keys + i * self.shape.width;
        to.extend((keys..keys + self.shape.width).map(|at| self.get(at)));
        to.push(self.row(i));
    }

    pub fn latch(self, id: u32) -> Latched<'a> {
        Latched { node: self, id, version: latch::latch(&self.words[VERSION]), changed: false }
    }
}

/// Halves without a branch on what is compared, which nobody could predict.
#[inline]
fn first_not_below(count: usize, is_below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut size) = (0, count);
    while size > 1 {
        let half = size / 2;
        low += usize::from(is_below(low + half - 1)) * half;
        size -= half;
    }
    low + usize::from(size == 1 && is_below(low))
}

/// A node under its latch, which goes when this is dropped; and then the version, if anything was changed.
pub struct Latched<'a> {
    node: Node<'a>,
    pub id: u32,
    version: u64,
    changed: bool,
}

impl<'a> std::ops::Deref for Latched<'a> {
    type Target = Node<'a>;

    fn deref(&self) -> &Node<'a> {
        &self.node
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        latch::unlatch(&self.node.words[VERSION], self.version, self.changed);
    }
}

impl<'a> Latched<'a> {
    fn set(&mut self, at: usize, value: u64) {
        self.changed = true;
        self.node.set(at, value);
    }

    pub fn is_full(&self) -> bool {
        self.count() == self.shape().capacity
    }

    fn shape(&self) -> &'a Shape {
        self.node.shape
    }

    fn set_entry(&mut self, i: usize, at: At<'_>) {
        let keys = self.shape().keys + i * self.shape().width;
        for (word, &value) in at.key.iter().enumerate() {
            self.set(keys + word, value);
        }
        self.set(self.shape().rows + i, at.row);
    }

    fn set_high(&mut self, at: At<'_>) {
        for (word, value) in at.words().enumerate() {
            self.set(HIGH + word, value);
        }
    }

    /// Moves words `from..from + len` by one place of `step` words, up or down.
    fn shift(&mut self, from: usize, len: usize, step: usize, up: bool) {
        self.changed = true;
        let words = self.node.words;
        if up {
            for at in (from..from + len).rev() {
                words[at + step].store(words[at].load(Relaxed), Relaxed);
            }
        } else {
            for at in from..from + len {
                words[at - step].store(words[at].load(Relaxed), Relaxed);
            }
        }
    }

    /// Makes place for an entry at `i`; the caller fills it and sets the count.
    fn open(&mut self, i: usize) {
        let (shape, rest) = (self.shape(), self.count() - i);
        self.shift(shape.keys + i * shape.width, rest * shape.width, shape.width, true);
        self.shift(shape.rows + i, rest, 1, true);
        if shape.is_inner {
            self.shift(shape.children + i, rest, 1, true);
        }
    }

    /// Inserts into a leaf that has room.
    pub fn insert(&mut self, i: usize, at: At<'_>) {
        let meta = self.node.get(META);
        let (count, last) = (meta & 0xffff, meta >> 16 & 0xffff);
        let (up, down) = (meta >> 32 & STREAK_MAX, meta >> 40 & STREAK_MAX);
        self.open(i);
        self.set_entry(i, at);
        // Just above the one before; just below it, which has moved up.
        let up = if i as u64 == last + 1 { (up + 1).min(STREAK_MAX) } else { 0 };
        let down = if i as u64 == last { (down + 1).min(STREAK_MAX) } else { 0 };
        self.set(META, down << 40 | up << 32 | (i as u64) << 16 | (count + 1));
        self.count_insert();
    }

    fn count_insert(&mut self) {
        let inserts = self.node.get(INSERTS) + 1;
        self.set(INSERTS, inserts);
    }

    /// Whether an insert at `i` goes on with a row of them that have come each just above, or each just below, the one before.
    fn is_run(&self, i: usize) -> bool {
        const RUN: u64 = 3;
        let meta = self.node.get(META);
        let (last, up, down) = ((meta >> 16 & 0xffff) as usize, meta >> 32 & STREAK_MAX, meta >> 40 & STREAK_MAX);
        i == last + 1 && up >= RUN || i == last && down >= RUN
    }

    pub fn remove(&mut self, i: usize) {
        let (shape, count) = (self.shape(), self.count());
        let rest = count - i - 1;
        self.shift(shape.keys + (i + 1) * shape.width, rest * shape.width, shape.width, false);
        self.shift(shape.rows + i + 1, rest, 1, false);
        self.set(META, count as u64 - 1);
    }

    /// Adds an entry, with a child in an inner node, above all others: for filling a node nobody else knows.
    pub fn append(&mut self, at: At<'_>, child: Option<Link>) {
        let count = self.count();
        self.set_entry(count, at);
        if let Some(child) = child {
            self.set(self.shape().children + count, child.0);
        }
        self.set(META, count as u64 + 1);
    }

    pub fn end_at(&mut self, right: Link, high: At<'_>) {
        self.set_high(high);
        self.set(RIGHT, right.0);
    }

    /// This node in its present life.
    pub fn own_link(&self) -> Link {
        self.node.link(self.id)
    }

    /// Takes all entries of the right neighbour, which is latched too and dies.
    pub fn absorb(&mut self, right: &mut Latched<'_>) {
        let shape = self.shape();
        let mut entry = Vec::with_capacity(shape.width + 1);
        if shape.is_inner {
            // The last child's high entry was the node's own.
            let last = self.count() - 1;
            self.node.copy_high(&mut entry);
            self.set_entry(last, At::of(&entry));
        }
        for i in 0..right.count() {
            right.node.copy_entry(i, &mut entry);
            self.append(At::of(&entry), shape.is_inner.then(|| right.node.child(i)));
        }
        right.node.copy_high(&mut entry);
        self.end_at(right.right(), At::of(&entry));
        // Larger than either: a stamp of one says nothing of what came into the other.
        let inserts = self.inserts().max(right.inserts()) + 1;
        self.set(INSERTS, inserts);
        right.set(META, 0);
        right.count_insert();
        let life = right.node.get(LIFE) + 1;
        right.set(LIFE, life & u64::from(u32::MAX));
    }

    /// Where the node has two children beside each other.
    pub fn position_of(&self, left: Link, right: Link) -> Option<usize> {
        (1..self.count()).find(|&i| self.child(i - 1) == left && self.child(i) == right)
    }

    /// Forgets child `i`, which the child before it has absorbed.
    pub fn remove_child(&mut self, i: usize) {
        let (shape, count) = (self.shape(), self.count());
        // The child before it ends where this one ended.
        self.shift(shape.keys + i * shape.width, (count - i) * shape.width, shape.width, false);
        self.shift(shape.rows + i, count - i, 1, false);
        self.shift(shape.children + i + 1, count - i - 1, 1, false);
        self.set(META, count as u64 - 1);
    }

    /// Moves the entries from `keep` on to the empty node `new`, which becomes the right neighbour. The high entry is
    /// the caller's to set: it depends on what is inserted next.
    fn move_to(&mut self, new: &mut Latched<'_>, keep: usize) {
        let shape = self.shape();
        let mut high = Vec::with_capacity(shape.width + 1);
        for i in keep..self.count() {
            self.node.copy_entry(i, &mut high);
            new.append(At::of(&high), shape.is_inner.then(|| self.node.child(i)));
        }
        self.node.copy_high(&mut high);
        new.end_at(self.right(), At::of(&high));
        let inserts = self.inserts().max(new.inserts()) + 1;
        new.set(INSERTS, inserts);
        self.set(META, keep as u64);
        self.set(RIGHT, new.own_link().0);
        self.count_insert();
    }

    fn end_at_last(&mut self) -> Vec<u64> {
        let mut high = Vec::with_capacity(self.shape().width + 1);
        self.node.copy_entry(self.count() - 1, &mut high);
        self.set_high(At::of(&high));
        high
    }

    /// Splits this full leaf while inserting at `i`; returns its new high entry. Ascending and descending inserts, of the whole tree or
    /// of a run within it (one instrument's ticks among others'), leave full leaves behind: they split where they insert,
    /// any other in the middle.
    pub fn split_leaf(&mut self, new: &mut Latched<'_>, i: usize, at: At<'_>) -> Vec<u64> {
        let count = self.count();
        let is_edge = i == count && self.right().is_none();
        let keep = if is_edge || self.is_run(i) { i } else { count / 2 };
        self.move_to(new, keep);
        // A run goes on in the left node, while it has room.
        if i < keep || i == keep && keep < count {
            self.insert(i, at);
        } else {
            new.insert(i - keep, at);
        }
        self.end_at_last()
    }

    /// Notes in an inner node with room that the child that covers `high` now ends there, and that `right` has the rest.
    pub fn insert_child(&mut self, high: At<'_>, right: Link) {
        let count = self.count();
        let i = self.child_for(count, high);
        self.open(i);
        // Entry i + 1 is the old entry i: its high entry stays, its child is the new one.
        self.set(self.shape().children + i + 1, right.0);
        self.set_entry(i, high);
        self.set(META, count as u64 + 1);
    }

    /// Splits this full inner node while noting a split child; returns its new high entry.
    pub fn split_inner(&mut self, new: &mut Latched<'_>, high: At<'_>, right: Link) -> Vec<u64> {
        let count = self.count();
        let i = self.child_for(count, high);
        if i == count - 1 && self.right().is_none() {
            // At the right edge of the tree the left node stays full. Only there: a full node that has a neighbour may be
            // split again in the same place, and would leave a row of nodes with one child.
            self.move_to(new, count);
            new.append(high, Some(right));
            self.set_high(high);
            return high.words().collect();
        }
        self.move_to(new, count / 2);
        let middle = self.end_at_last();
        if i < self.count() {
            self.insert_child(high, right);
        } else {
            new.insert_child(high, right);
        }
        middle
    }
}

/// Nodes of one kind by number, in chunks that double: no number ever moves, and the table is as large as the tree.
pub struct Nodes {
    shape: Shape,
    chunks: [AtomicPtr<AtomicU64>; Nodes::CHUNKS],
    next: AtomicU32,
    owned: Mutex<Vec<Words>>,
    /// Numbers of nodes that died.
    free: Mutex<Vec<u32>>,
}

impl Nodes {
    const CHUNKS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 32 };

    pub fn new(shape: Shape) -> Nodes {
        Nodes {
            shape,
            chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            next: AtomicU32::new(1),
            owned: Mutex::new(Vec::new()),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Chunk k has the 2^k nodes from number 2^k on.
    #[inline]
    pub fn node(&self, id: u32) -> Node<'_> {
        assert!(id != 0, "node 0 is no node: a link was followed before it was validated");
        step();
        let chunk = id.ilog2() as usize;
        let within = (id - (1 << chunk)) as usize * self.shape.words;
        let base = self.chunks[chunk].load(Acquire);
        assert!(!base.is_null(), "a node's number is known only once its chunk exists");
        // SAFETY: the chunk has 2^chunk nodes of `words` words, initialised atomics that `owned` keeps until the tree is
        // dropped (invariant 2; `words` invariant 1), and `within` is the start of one of them.
        let words = unsafe { std::slice::from_raw_parts(base.add(within), self.shape.words) };
        Node { words, shape: &self.shape }
    }

    /// The number of a node that died, for [`revive`](Self::revive).
    pub fn take_free(&self) -> Option<u32> {
        self.free.lock().pop()
    }

    /// Takes the number of a node that died. Whoever has an old link may still latch it, and find out.
    pub fn give_free(&self, id: u32) {
        self.free.lock().push(id);
    }

    /// A node that died, empty and latched, in its next life.
    pub fn revive(&self, id: u32) -> Latched<'_> {
        let mut node = self.node(id).latch(id);
        let life = node.get(LIFE) + 1;
        node.set(LIFE, life & u64::from(u32::MAX));
        node.set(META, 0);
        node.set(RIGHT, 0);
        node
    }

    /// Nodes that died and were not given out again.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn free_count(&self) -> usize {
        self.free.lock().len()
    }

    /// A new, empty node, latched; nobody else knows it until its number is stored somewhere.
    pub fn add(&self) -> Latched<'_> {
        let id = self.next.fetch_add(1, Relaxed);
        assert!(id != u32::MAX, "a tree has fewer than 2^32 nodes: their keys alone would fill terabytes");
        let chunk = id.ilog2() as usize;
        if self.chunks[chunk].load(Acquire).is_null() {
            let mut owned = self.owned.lock();
            if self.chunks[chunk].load(Acquire).is_null() {
                let words = Words::zeroed(self.shape.words << chunk);
                words.advise_huge();
                self.chunks[chunk].store(words.as_ptr().cast_mut(), Release);
                owned.push(words);
            }
        }
        self.node(id).latch(id)
    }

    /// Entries of a node.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shape.capacity
    }

    pub fn node_bytes(&self) -> usize {
        self.shape.words * 8
    }

    /// Of the nodes in use; the last chunk's others are address space only, but for the rest of one huge page.
    pub fn memory_bytes(&self) -> usize {
        (self.next.load(Relaxed) as usize - 1) * self.shape.words * 8
    }
}

/// The root and its level in one word, so that they are read together. Level 0 is a leaf.
pub struct Root(AtomicU64);

impl Root {
    pub fn new(level: usize, id: u32) -> Root {
        Root(AtomicU64::new((level as u64) << 32 | u64::from(id)))
    }

    #[inline]
    pub fn load(&self) -> (usize, u32) {
        let word = self.0.load(Acquire);
        ((word >> 32) as usize, word as u32)
    }

    pub fn store(&self, level: usize, id: u32) {
        self.0.store((level as u64) << 32 | u64::from(id), Release);
    }
}

/// A row id as read from a node.
pub fn row_id(word: u64) -> RowId {
    RowId(word)
}
