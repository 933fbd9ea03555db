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
//! 1. Everything but stamp and next is written once, before the node is linked under its slot's latch.
//! 2. The `cts` word is never inside a bitmap: undoing a node gives a copy `prev_cts` instead.
//! 3. A reader at S touches a committed node only if its version is newer than S, so a node whose stamp is at or below
//!    every registered snapshot may be cut off and freed.

use super::record::Changed;
use crate::ids::Cts;
use crate::mem::{Arena, ArenaCursor, Claim, NodeRef};
use crate::table::{Head, SessionNo};
use std::sync::atomic::Ordering::Relaxed;

pub(super) const UNSTAMPED: u64 = u64::MAX;
const SAME_TXN: u64 = u64::MAX;
const HEADER_WORDS: usize = 4;
/// Kinds of node.
const DELTA: u32 = 0;
/// The slot was never used: what lies below is all zero, and needs no XOR to be stored.
const FRESH: u32 = 1;

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
        (self.word(3) >> 32) as u32 == FRESH
    }

    /// Calls `each` for every record word that differs, with the XOR. Not for fresh nodes.
    pub fn each(&self, mut each: impl FnMut(usize, u64)) {
        let bitmap_words = self.word(3) as u32 as usize;
        let mut data = HEADER_WORDS + bitmap_words;
        for block in 0..bitmap_words {
            let mut bits = self.word(HEADER_WORDS + block);
            while bits != 0 {
                each(block * 64 + bits.trailing_zeros() as usize, self.word(data));
                data += 1;
                bits &= bits - 1;
            }
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

/// Takes everything newer than `snapshot` off a copy made with `head`; the copy's first word becomes its version's cts. `me` sees its own
/// uncommitted version as it is.
#[inline]
pub(super) fn rewind(arena: &Arena, record: &mut [u64], head: Head, me: Option<SessionNo>, snapshot: Cts) {
    let mut at = head.node;
    if head.is_dirty() {
        if me.is_some() && head.owner() == me {
            return;
        }
        at = undo_uncommitted(arena, record, at);
    }
    while Cts(record[0]) > snapshot {
        let node = Node::new(arena, at);
        node.undo(record);
        // Of the nodes of one transaction only the oldest names the version below.
        if let Some(cts) = node.prev_cts() {
            record[0] = cts.0;
        }
        at = node.next();
    }
}

/// As `rewind` of a committed chain in a container that a bulk load filled: where the chain ends above the snapshot, the slot was unused.
pub(super) fn rewind_loaded(arena: &Arena, record: &mut [u64], head: Head, snapshot: Cts) {
    let mut at = if head.is_dirty() { undo_uncommitted(arena, record, head.node) } else { head.node };
    while Cts(record[0]) > snapshot {
        if at.is_none() {
            return record.fill(0);
        }
        let node = Node::new(arena, at);
        node.undo(record);
        if let Some(cts) = node.prev_cts() {
            record[0] = cts.0;
        }
        at = node.next();
    }
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
