//! Version nodes: how an older version is reached from the bytes in place.
//!
//! | word | content |
//! |---|---|
//! | 0 | stamp: [`UNSTAMPED`] until pre-commit, then the cts of the version the node leads *from* |
//! | 1 | `prev_cts` of the version it leads to, or [`SAME_TXN`]: that one is its own transaction's earlier write |
//! | 2 | next (older) node 32, command number 32 |
//! | 3 | kind 32, bitmap words 32 |
//! | 4.. | a bit for each record word that differs |
//! | then | the XOR of those words |
//!
//! 1. Everything but stamp and next is written once, before the node is linked under its slot's latch; later only a fold (`fold`) changes it.
//! 2. The `cts` word is never inside a bitmap: undoing a node gives a copy `prev_cts` instead.
//! 3. A reader at S touches a committed node only if its version is newer than S, so a node whose stamp is at or below
//!    every registered snapshot may be cut off and freed.

use super::record::Changed;
use crate::ids::Cts;
use crate::mem::{Arena, ArenaCursor, Claim, NodeRef};
use crate::table::Head;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const UNSTAMPED: u64 = u64::MAX;
const SAME_TXN: u64 = u64::MAX;
const HEADER_WORDS: usize = 4;
/// Kinds of node.
const DELTA: u32 = 0;
/// The slot was never used: what lies below is all zero, and needs no XOR to be stored.
const FRESH: u32 = 1;
/// Where the bitmap began stands a reference to another node, the *companion*, whose bitmap and XOR count instead.
const MOVED: u32 = 2;

/// A node in place.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    at: NodeRef,
}

/// What a new node holds besides its bits.
pub(super) struct NewNode<'a> {
    /// `None`: the version below is the same transaction's.
    pub prev_cts: Option<Cts>,
    pub next: NodeRef,
    pub command: u32,
    /// The slot was never used; `changed` is empty then.
    pub fresh: bool,
    /// Words of the persistent part.
    pub words: usize,
    /// Those that differ, ascending, the cts word not among them.
    pub changed: &'a [Changed],
}

/// Where a session writes nodes: its cursor, and its thread's place.
pub(super) struct Pen<'a> {
    pub cursor: &'a mut ArenaCursor,
    pub place: usize,
}

/// Writes a node that leads back over what changed. `None`: no memory for versions.
pub(super) fn write(arena: &Arena, pen: Pen<'_>, claim: Claim, node: &NewNode<'_>) -> Option<NodeRef> {
    let bitmap_words = if node.fresh { 0 } else { node.words.div_ceil(64) };
    let data = HEADER_WORDS + bitmap_words;
    let at = arena.allocate(pen.cursor, pen.place, data + node.changed.len(), claim)?;
    let words = arena.words(at, 0, data + node.changed.len());
    words[0].store(UNSTAMPED, Relaxed);
    words[1].store(node.prev_cts.map_or(SAME_TXN, |c| c.0), Relaxed);
    words[2].store(u64::from(node.command) << 32 | u64::from(node.next.0), Relaxed);
    let kind = if node.fresh { FRESH } else { DELTA };
    words[3].store(u64::from(kind) << 32 | bitmap_words as u64, Relaxed);
    let mut changed = node.changed.iter().zip(&words[data..]).peekable();
    for (block, bitmap) in words[HEADER_WORDS..data].iter().enumerate() {
        let mut bits = 0u64;
        while let Some(((i, xor), word)) = changed.next_if(|((i, _), _)| usize::from(*i) / 64 == block) {
            bits |= 1 << (i % 64);
            word.store(*xor, Relaxed);
        }
        bitmap.store(bits, Relaxed);
    }
    Some(at)
}

impl<'a> Node<'a> {
    pub fn new(arena: &'a Arena, at: NodeRef) -> Node<'a> {
        assert!(!at.is_none(), "invariant: a version newer than the snapshot has a node that leads below it");
        Node { arena, at }
    }

    fn word(&self, at: usize) -> u64 {
        self.arena.words(self.at, at, 1)[0].load(Relaxed)
    }

    pub fn at(&self) -> NodeRef {
        self.at
    }

    fn set_word(&self, at: usize, word: u64) {
        self.arena.words(self.at, at, 1)[0].store(word, Relaxed);
    }

    fn kind(&self) -> u32 {
        (self.word(3) >> 32) as u32
    }

    fn set_kind(&self, kind: u32) {
        self.set_word(3, u64::from(kind) << 32 | self.word(3) & u64::from(u32::MAX));
    }

    /// The node that holds bitmap and XOR in this one's place.
    pub fn companion(&self) -> Option<NodeRef> {
        (self.kind() == MOVED).then(|| NodeRef(self.word(HEADER_WORDS) as u32))
    }

    /// The node that holds its bitmap and XOR.
    fn body(&self) -> Node<'a> {
        self.companion().map_or(*self, |at| Node { at, ..*self })
    }

    /// Composes the next older node of the chain with this one and takes its place: this one now leads to where that led. `free` is given what is
    /// no longer linked. False, and nothing has changed, if there was no memory for what both change. `words`: of the record.
    pub fn absorb(
        &self,
        older: &Node<'_>,
        words: usize,
        allocate: impl FnOnce(usize) -> Option<NodeRef>,
        mut free: impl FnMut(NodeRef),
    ) -> bool {
        assert!(!self.is_fresh(), "invariant: nothing lies below a slot's first version");
        if older.is_fresh() {
            self.companion().into_iter().for_each(&mut free);
            self.set_kind(FRESH);
        } else if older.body().is_within(&self.body()) {
            let own = self.body();
            older.each(|i, xor| own.flip(i, xor));
        } else {
            let mut all = vec![0; words];
            let mut bits = vec![0u64; words.div_ceil(64)];
            for node in [self, older] {
                node.each(|i, xor| {
                    all[i] ^= xor;
                    bits[i / 64] |= 1 << (i % 64);
                });
            }
            let changed: usize = bits.iter().map(|block| block.count_ones() as usize).sum();
            let Some(at) = allocate(HEADER_WORDS + bits.len() + changed) else {
                return false;
            };
            Node { at, ..*self }.fill(&bits, &all);
            self.companion().into_iter().for_each(&mut free);
            self.set_kind(MOVED);
            self.set_word(HEADER_WORDS, u64::from(at.0));
        }
        self.set_word(1, older.word(1));
        self.set_next(older.next());
        older.companion().into_iter().for_each(&mut free);
        free(older.at);
        true
    }

    /// Copies the node, and makes one of it and its companion. Nothing if there is no memory.
    pub fn copy(&self, allocate: impl FnOnce(usize) -> Option<NodeRef>) -> Option<Node<'a>> {
        let body = self.body();
        let blocks = if self.is_fresh() { 0 } else { body.word(3) as u32 as usize };
        let changed: usize = (0..blocks).map(|b| body.word(HEADER_WORDS + b).count_ones() as usize).sum();
        let words = HEADER_WORDS + blocks + changed;
        let copy = Node { at: allocate(words)?, ..*self };
        (0..HEADER_WORDS - 1).for_each(|at| copy.set_word(at, self.word(at)));
        let kind = if self.is_fresh() { FRESH } else { DELTA };
        copy.set_word(3, u64::from(kind) << 32 | blocks as u64);
        (HEADER_WORDS..words).for_each(|at| copy.set_word(at, body.word(at)));
        Some(copy)
    }

    /// Makes it a companion of these differences.
    fn fill(&self, bits: &[u64], all: &[u64]) {
        (0..HEADER_WORDS - 1).for_each(|at| self.set_word(at, 0));
        self.set_word(3, u64::from(DELTA) << 32 | bits.len() as u64);
        bits.iter().enumerate().for_each(|(block, bits)| self.set_word(HEADER_WORDS + block, *bits));
        let is_set = |i: &usize| bits[i / 64] >> (i % 64) & 1 == 1;
        let data = HEADER_WORDS + bits.len();
        (0..all.len()).filter(is_set).enumerate().for_each(|(at, i)| self.set_word(data + at, all[i]));
    }

    /// Whether every word that it names is named by `other`.
    fn is_within(&self, other: &Node<'_>) -> bool {
        let blocks = self.word(3) as u32 as usize;
        let others = other.word(3) as u32 as usize;
        (0..blocks).all(|b| b < others && self.word(HEADER_WORDS + b) & !other.word(HEADER_WORDS + b) == 0)
    }

    /// XORs the difference of record word `i`, which it names.
    fn flip(&self, i: usize, xor: u64) {
        let blocks = self.word(3) as u32 as usize;
        let block = |b: usize| self.word(HEADER_WORDS + b);
        let before: u32 = (0..i / 64).map(|b| block(b).count_ones()).sum();
        let within = (block(i / 64) & ((1 << (i % 64)) - 1)).count_ones();
        let at = HEADER_WORDS + blocks + (before + within) as usize;
        self.set_word(at, self.word(at) ^ xor);
    }

    pub fn stamp(&self) -> u64 {
        self.word(0)
    }

    pub fn set_stamp(&self, cts: Cts) {
        self.arena.words(self.at, 0, 1)[0].store(cts.0, Relaxed);
    }

    /// `None`: the version below is the same transaction's.
    pub fn prev_cts(&self) -> Option<Cts> {
        let word = self.word(1);
        (word != SAME_TXN).then_some(Cts(word))
    }

    pub fn next(&self) -> NodeRef {
        NodeRef(self.word(2) as u32)
    }

    /// Cuts or relinks what is older. Under the slot's latch.
    pub fn set_next(&self, next: NodeRef) {
        let word = self.word(2) & !u64::from(u32::MAX) | u64::from(next.0);
        self.arena.words(self.at, 2, 1)[0].store(word, Relaxed);
    }

    pub fn command(&self) -> u32 {
        (self.word(2) >> 32) as u32
    }

    pub fn is_fresh(&self) -> bool {
        self.kind() == FRESH
    }

    /// Calls `each` for every record word that differs, with the XOR. Not for fresh nodes.
    pub fn each(&self, mut each: impl FnMut(usize, u64)) {
        let body = self.body();
        let bitmap_words = body.word(3) as u32 as usize;
        let mut data = HEADER_WORDS + bitmap_words;
        for block in 0..bitmap_words {
            let mut bits = body.word(HEADER_WORDS + block);
            while bits != 0 {
                each(block * 64 + bits.trailing_zeros() as usize, body.word(data));
                data += 1;
                bits &= bits - 1;
            }
        }
    }

    /// The flags below the node, of a record that has these above it.
    pub fn flags_below(&self, flags: u64) -> u64 {
        const FLAGS: u64 = 1 << 1;
        let body = self.body();
        match self.is_fresh() {
            true => 0,
            // They are the record's second word, and the first is in no node.
            false if body.word(HEADER_WORDS) & FLAGS != 0 => {
                flags ^ body.word(HEADER_WORDS + body.word(3) as u32 as usize)
            }
            false => flags,
        }
    }

    /// Takes the node's change off a private copy, the cts word aside.
    pub fn undo(&self, record: &mut [u64]) {
        if self.is_fresh() {
            record[1..].fill(0);
        } else {
            self.each(|i, xor| record[i] ^= xor);
        }
    }
}

/// Takes everything newer than `snapshot` off a copy made with `head`; the copy's first word becomes its version's cts. Nothing keeps the nodes in
/// place: a fold may free them meanwhile. So nothing that they say leads outside the arena or the record, and the caller asks `is_unchanged` before
/// it believes the result. False: what was met is no chain. `ends`: where the chain ends above the snapshot, the slot was unused.
pub(super) fn rewind(
    arena: &Arena,
    record: &mut [u64],
    head: Head,
    snapshot: Cts,
    ends: bool,
    is_unchanged: impl Fn() -> bool,
) -> bool {
    let mut at = head.node;
    let mut uncommitted = head.is_dirty();
    while uncommitted || Cts(record[0]) > snapshot {
        if at.is_none() && ends {
            record.fill(0);
            return true;
        }
        let Some((prev, next)) = undo_shared(arena, record, at) else {
            return false;
        };
        // Of the nodes of one transaction only the oldest names the version below.
        if prev != SAME_TXN {
            record[0] = prev;
            uncommitted = false;
        }
        at = next;
        if !is_unchanged() {
            return false;
        }
    }
    true
}

/// Takes a node's change off; gives the cts below and the next node. Nothing if it is no node of such a record.
fn undo_shared(arena: &Arena, record: &mut [u64], at: NodeRef) -> Option<(u64, NodeRef)> {
    let word = |node: NodeRef, at: usize| arena.try_word(node, at).map(|word| word.load(Relaxed));
    if at.is_none() {
        return None;
    }
    let (prev, next, form) = (word(at, 1)?, NodeRef(word(at, 2)? as u32), word(at, 3)?);
    let body = match (form >> 32) as u32 {
        FRESH => {
            record[1..].fill(0);
            return Some((prev, next));
        }
        DELTA => at,
        MOVED => NodeRef(word(at, HEADER_WORDS)? as u32),
        _ => return None,
    };
    let blocks = word(body, 3)? as u32 as usize;
    if blocks != record.len().div_ceil(64) {
        return None;
    }
    let mut data = HEADER_WORDS + blocks;
    for block in 0..blocks {
        let mut bits = word(body, HEADER_WORDS + block)?;
        while bits != 0 {
            *record.get_mut(block * 64 + bits.trailing_zeros() as usize)? ^= word(body, data)?;
            data += 1;
            bits &= bits - 1;
        }
    }
    Some((prev, next))
}

/// Takes the uncommitted nodes off; gives the node of the committed version below. Nodes of one transaction that share a
/// version name it only in the oldest of them.
pub(super) fn undo_uncommitted(arena: &Arena, record: &mut [u64], mut at: NodeRef) -> NodeRef {
    loop {
        let node = Node::new(arena, at);
        node.undo(record);
        at = node.next();
        if let Some(cts) = node.prev_cts() {
            record[0] = cts.0;
            return at;
        }
    }
}
