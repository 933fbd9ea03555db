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
//! In a tree whose keys differ in length, the last of the W words names a *tail* (`tails`), where the key's words from the W-th on are. Keys are
//! compared word by word to the end of the shorter one, which comes first if the other goes on; of equal keys the row ids decide.
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
use super::super::words::LINE_WORDS;
use super::numbered::Numbered;
use super::tails::{Tail, Tails};
use crate::ids::RowId;
use crate::mem::Claim;
use crate::mem::prefetch::prefetch;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::sync::{Mutex, step};
use std::cmp::Ordering;
use std::sync::Arc;

/// Copies of a node that may fail before the reader takes its latch: a leaf's takes a microsecond, and a writer holds it for less.
const COPIES_MAX: u32 = 8;

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

    /// A link as `word` gave it.
    #[inline]
    pub fn of_word(word: u64) -> Link {
        Link(word)
    }

    #[inline]
    pub fn word(self) -> u64 {
        self.0
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct At<'a> {
    pub key: &'a [u64],
    pub row: u64,
}

impl<'a> At<'a> {
    /// From the words of a key and a row id.
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
    /// Words of a key in a node.
    pub width: usize,
    /// How many of them are the key's own: all, or all but the last one, which names the tail.
    pub inline: usize,
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
        Shape { width, inline: width, capacity, words: words.next_multiple_of(8), keys, rows, children, is_inner }
    }

    /// The same for keys of different lengths.
    pub fn with_tails(self) -> Shape {
        assert!(self.width > 2, "keys of one word, which go the short ways, have no tails");
        Shape { inline: self.width - 1, ..self }
    }

    #[inline]
    pub fn has_tails(&self) -> bool {
        self.inline < self.width
    }
}

/// A node as anyone may look at it. What it says means nothing until the version has been checked.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    words: &'a [AtomicU64],
    of: &'a Nodes,
}

impl<'a> Node<'a> {
    #[inline]
    fn shape(self) -> &'a Shape {
        &self.of.shape
    }

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
        let end = if self.shape().is_inner { self.shape().rows } else { self.shape().words };
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

    /// What `copy` finds while nobody changes the node, whose number is `id`. Copied again where somebody did; after some such turns under the node's
    /// latch, so that a reader who copies much does not wait for ever where others write all the time. He must hold no latch.
    pub fn read_settled<T>(self, id: u32, mut copy: impl FnMut() -> T) -> T {
        for _ in 0..COPIES_MAX {
            let seen = self.begin_read();
            let copied = copy();
            if self.end_read(seen) {
                return copied;
            }
        }
        let _latched = self.latch(id);
        copy()
    }

    /// Entries; never more than fit, even when read amid a change.
    #[inline]
    pub fn count(self) -> usize {
        ((self.get(META) & 0xffff) as usize).min(self.shape().capacity)
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
        self.get(self.shape().rows + i)
    }

    #[inline]
    pub fn child(self, i: usize) -> Link {
        Link(self.get(self.shape().children + i))
    }

    #[inline]
    fn compare(self, keys: usize, row: usize, at: At<'_>) -> Ordering {
        let inline = self.shape().inline;
        for (word, sought) in self.words[keys..keys + inline].iter().zip(at.key) {
            match word.load(Relaxed).cmp(sought) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        if self.shape().has_tails() {
            match self.compare_tail(keys + inline, &at.key[inline..]) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        self.get(row).cmp(&at.row)
    }

    /// The key's words from the one at `at` on, against those of another.
    fn compare_tail(self, at: usize, rest: &[u64]) -> Ordering {
        self.of.tails().compare(Tail(self.get(at)), rest)
    }

    #[inline]
    pub fn compare_entry(self, i: usize, at: At<'_>) -> Ordering {
        self.compare(self.shape().keys + i * self.shape().width, self.shape().rows + i, at)
    }

    #[inline]
    pub fn key_equals(self, i: usize, key: &[u64]) -> bool {
        let (keys, inline) = (self.shape().keys + i * self.shape().width, self.shape().inline);
        let words = &self.words[keys..][..inline];
        words.iter().zip(key).all(|(word, sought)| word.load(Relaxed) == *sought)
            && (!self.shape().has_tails() || self.compare_tail(keys + inline, &key[inline..]) == Ordering::Equal)
    }

    /// Whether `at` is above all that this node may hold, so that it is to be sought to the right.
    #[inline]
    pub fn is_below(self, at: At<'_>) -> bool {
        !self.right().is_none() && self.compare(HIGH, HIGH + self.shape().width, at) == Ordering::Less
    }

    /// The first of `count` entries that is not below `at`.
    #[inline]
    pub fn lower_bound(self, count: usize, at: At<'_>) -> usize {
        match *at.key {
            // No row id is below zero: what is looked up by key alone looks at keys alone.
            [key] if at.row == 0 => self.first_word_not_below(count, key),
            [key] => first_not_below(count, |i| {
                let word = self.get(self.shape().keys + i);
                word < key || word == key && self.row(i) < at.row
            }),
            _ => first_not_below(count, |i| self.compare_entry(i, at) == Ordering::Less),
        }
    }

    /// The first of `count` keys of one word that is not below `key`. Each line's last key first, then the keys of one line: two looks that wait for
    /// memory, where halving waits once for each bit.
    #[inline]
    fn first_word_not_below(self, count: usize, key: u64) -> usize {
        let keys = &self.words[self.shape().keys..][..count];
        let is_below = |word: &AtomicU64| usize::from(word.load(Relaxed) < key);
        let lines: usize = keys.chunks_exact(LINE_WORDS).map(|line| is_below(&line[LINE_WORDS - 1])).sum();
        let first = lines * LINE_WORDS;
        if self.shape().is_inner {
            // Of the children that the line's keys belong to one is wanted next.
            let children = &self.words[self.shape().children + first..];
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
        let is_below = |i: usize| self.get(self.shape().keys + i) < key;
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
        self.get(self.shape().keys + i)
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
        let high = high.min(self.shape().capacity - 1);
        for part in [self.shape().keys, self.shape().rows] {
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
        self.append_words(HIGH, HIGH + self.shape().width, to);
    }

    pub fn copy_entry(self, i: usize, to: &mut Vec<u64>) {
        to.clear();
        self.append_entry(i, to);
    }

    pub fn append_entry(self, i: usize, to: &mut Vec<u64>) {
        self.append_words(self.shape().keys + i * self.shape().width, self.shape().rows + i, to);
    }

    fn append_words(self, keys: usize, row: usize, to: &mut Vec<u64>) {
        let inline = self.shape().inline;
        to.extend((keys..keys + inline).map(|at| self.get(at)));
        if self.shape().has_tails() {
            self.of.tails().append(Tail(self.get(keys + inline)), to);
        }
        to.push(self.get(row));
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
        &self.node.of.shape
    }

    fn place_of(&self, i: usize) -> (usize, usize) {
        (self.shape().keys + i * self.shape().width, self.shape().rows + i)
    }

    /// Stores an entry, with its tail.
    fn write(&mut self, (keys, row): (usize, usize), at: At<'_>, tail: Tail) {
        let inline = self.shape().inline;
        for (word, &value) in at.key[..inline].iter().enumerate() {
            self.set(keys + word, value);
        }
        if self.shape().has_tails() {
            self.set(keys + inline, tail.0);
        }
        self.set(row, at.row);
    }

    /// Takes over the entry at `from` of a node, which it ceases to be an entry of: with its tail.
    fn take_over(&mut self, (keys, row): (usize, usize), node: Node<'_>, from: (usize, usize)) {
        for word in 0..self.shape().width {
            self.set(keys + word, node.get(from.0 + word));
        }
        self.set(row, node.get(from.1));
    }

    /// A tail for another copy of a key, which is not asked for: a split that was granted entails it.
    fn new_tail(&self, at: At<'_>) -> Tail {
        if !self.shape().has_tails() {
            return Tail::NONE;
        }
        let rest = &at.key[self.shape().inline..];
        self.node.of.tails().add(rest, self.id as usize, Claim::Forced).expect("memory is forced")
    }

    /// Frees the tail of an entry that is about to be forgotten.
    fn free_tail(&mut self, keys: usize) {
        if self.shape().has_tails() {
            self.changed = true;
            let tail = Tail(self.get(keys + self.shape().inline));
            self.node.of.tails().free(tail, self.id as usize);
        }
    }

    fn set_high(&mut self, at: At<'_>) {
        let tail = self.new_tail(at);
        self.write(self.high_place(), at, tail);
    }

    fn high_place(&self) -> (usize, usize) {
        (HIGH, HIGH + self.shape().width)
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

    /// Inserts into a leaf that has room, with the key's tail.
    pub fn insert(&mut self, i: usize, at: At<'_>, tail: Tail) {
        let meta = self.node.get(META);
        let (count, last) = (meta & 0xffff, meta >> 16 & 0xffff);
        let (up, down) = (meta >> 32 & STREAK_MAX, meta >> 40 & STREAK_MAX);
        self.open(i);
        self.write(self.place_of(i), at, tail);
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
        self.free_tail(self.place_of(i).0);
        let rest = count - i - 1;
        self.shift(shape.keys + (i + 1) * shape.width, rest * shape.width, shape.width, false);
        self.shift(shape.rows + i + 1, rest, 1, false);
        self.set(META, count as u64 - 1);
    }

    /// Adds an entry, with a child in an inner node, above all others: for filling a node nobody else knows.
    pub fn append(&mut self, at: At<'_>, child: Option<Link>) {
        let count = self.count();
        let tail = self.new_tail(at);
        self.write(self.place_of(count), at, tail);
        if let Some(child) = child {
            self.set(self.shape().children + count, child.0);
        }
        self.set(META, count as u64 + 1);
    }

    /// Adds an inner node's last child, which ends where the node does.
    pub fn append_last(&mut self, child: Link) {
        let count = self.count();
        self.set(self.shape().children + count, child.0);
        self.set(META, count as u64 + 1);
    }

    /// Adds an entry of another node, which forgets it, above all others.
    fn append_from(&mut self, node: Node<'_>, i: usize) {
        let (shape, count) = (self.shape(), self.count());
        self.take_over(self.place_of(count), node, (shape.keys + i * shape.width, shape.rows + i));
        if shape.is_inner {
            self.set(shape.children + count, node.child(i).0);
        }
        self.set(META, count as u64 + 1);
    }

    /// The last entry becomes the high entry of a node that has none, and `right` its neighbour. Returns that entry.
    pub fn end_at_last(&mut self, right: Link) -> Vec<u64> {
        let last = self.count() - 1;
        let mut high = Vec::with_capacity(self.shape().width + 1);
        self.node.copy_entry(last, &mut high);
        if self.shape().is_inner {
            // The last child's high entry is from now on the node's own.
            self.take_over(self.high_place(), self.node, self.place_of(last));
        } else {
            self.set_high(At::of(&high));
        }
        self.set(RIGHT, right.0);
        high
    }

    /// This node in its present life.
    pub fn own_link(&self) -> Link {
        self.node.link(self.id)
    }

    /// Takes all entries of the right neighbour, which is latched too and dies.
    pub fn absorb(&mut self, right: &mut Latched<'_>) {
        if self.shape().is_inner {
            // The last child's high entry was the node's own.
            let last = self.count() - 1;
            self.take_over(self.place_of(last), self.node, self.high_place());
        } else {
            self.free_tail(HIGH);
        }
        (0..right.count()).for_each(|i| self.append_from(right.node, i));
        self.take_over(self.high_place(), right.node, right.high_place());
        self.set(RIGHT, right.right().0);
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
        self.free_tail(self.place_of(i - 1).0);
        self.shift(shape.keys + i * shape.width, (count - i) * shape.width, shape.width, false);
        self.shift(shape.rows + i, count - i, 1, false);
        self.shift(shape.children + i + 1, count - i - 1, 1, false);
        self.set(META, count as u64 - 1);
    }

    /// Moves the entries from `keep` on to the empty node `new`, which becomes the right neighbour. The high entry is
    /// the caller's to set: it depends on what is inserted next.
    fn move_to(&mut self, new: &mut Latched<'_>, keep: usize) {
        (keep..self.count()).for_each(|i| new.append_from(self.node, i));
        new.take_over(new.high_place(), self.node, self.high_place());
        new.set(RIGHT, self.right().0);
        let inserts = self.inserts().max(new.inserts()) + 1;
        new.set(INSERTS, inserts);
        self.set(META, keep as u64);
        self.set(RIGHT, new.own_link().0);
        self.count_insert();
    }

    /// Splits this full leaf while inserting at `i`; returns its new high entry. Ascending and descending inserts, of the whole tree or
    /// of a run within it (one instrument's ticks among others'), leave full leaves behind: they split where they insert,
    /// any other in the middle.
    pub fn split_leaf(&mut self, new: &mut Latched<'_>, i: usize, at: At<'_>, tail: Tail) -> Vec<u64> {
        let count = self.count();
        let is_edge = i == count && self.right().is_none();
        let keep = if is_edge || self.is_run(i) { i } else { count / 2 };
        self.move_to(new, keep);
        // A run goes on in the left node, while it has room.
        if i < keep || i == keep && keep < count {
            self.insert(i, at, tail);
        } else {
            new.insert(i - keep, at, tail);
        }
        self.end_at_last(new.own_link())
    }

    /// Notes in an inner node with room that the child that covers `high` now ends there, and that `right` has the rest.
    pub fn insert_child(&mut self, high: At<'_>, right: Link) {
        let count = self.count();
        let i = self.child_for(count, high);
        let tail = self.new_tail(high);
        self.open(i);
        // Entry i + 1 is the old entry i: its high entry stays, its child is the new one.
        self.set(self.shape().children + i + 1, right.0);
        self.write(self.place_of(i), high, tail);
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
            new.append_last(right);
            self.set_high(high);
            return high.words().collect();
        }
        self.move_to(new, count / 2);
        let middle = self.end_at_last(new.own_link());
        if i < self.count() {
            self.insert_child(high, right);
        } else {
            new.insert_child(high, right);
        }
        middle
    }
}

/// Nodes of one kind by number.
pub struct Nodes {
    shape: Shape,
    nodes: Numbered,
    /// Where keys differ in length: shared by the nodes of both kinds.
    tails: Option<Arc<Tails>>,
    /// Numbers of nodes that died.
    free: Mutex<Vec<u32>>,
}

impl Nodes {
    pub fn new(shape: Shape, tails: Option<Arc<Tails>>) -> Nodes {
        assert_eq!(shape.has_tails(), tails.is_some(), "tails have their place");
        Nodes { shape, nodes: Numbered::new(shape.words), tails, free: Mutex::new(Vec::new()) }
    }

    #[inline]
    fn tails(&self) -> &Tails {
        self.tails.as_ref().expect("a tree whose keys differ in length has tails")
    }

    #[inline]
    pub fn node(&self, id: u32) -> Node<'_> {
        assert!(id != 0, "node 0 is no node: a link was followed before it was validated");
        step();
        let words = self.nodes.get(id).expect("a node's number is known only once its chunk exists");
        Node { words, of: self }
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
        let id = self.nodes.add();
        self.node(id).latch(id)
    }

    /// Entries of a node.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shape.capacity
    }

    pub fn node_bytes(&self) -> usize {
        self.nodes.piece_bytes()
    }

    /// Nodes that ever were, dead ones included.
    #[inline]
    pub fn count(&self) -> usize {
        self.nodes.count()
    }

    /// Of the nodes in use.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
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
