//! Version nodes: bump allocation in chunks, a chunk reused when its last node is freed.
//!
//! A node is named by a [`NodeRef`]: its position in units of two words. Who may still read a freed node is decided by the transactions'
//! garbage collection (`txn::garbage`), not here: a node is freed only when nobody can reach it.
//!
//! 1. A chunk is held by one cursor at most, and counts [`HELD`] for it: it is not reused while a session allocates from it. The cursor counts
//!    its nodes by itself and settles when it lets go, so that allocating writes no word that another thread writes; whoever frees in a row
//!    counts a chunk's nodes together ([`Freed`]).
//! 2. Chunks with nodes, cursors' chunks and a few spare ones are taken from the budget; the others are given back with their memory.
//!
//! A session has a cursor while it writes, and parks it with its thread afterwards: a thousand idle sessions hold no chunk.

use super::space::Space;
use super::{Budget, Claim, Kind};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::io;
use std::ops::Range;
use std::sync::Arc;

const UNIT_WORDS: usize = 2;
/// Holds the largest node: a whole record of 32 KiB with its bitmap. In a model, two small ones.
const CHUNK_WORDS: usize = if cfg!(loom) { 16 } else { (64 << 10) / 8 };
const CHUNK_BYTES: u64 = CHUNK_WORDS as u64 * 8;
/// Threads that find the chunk which they used last.
const PARKED: usize = if cfg!(loom) { 1 } else { 32 };
/// The most free chunks that keep their memory.
const SPARES_MAX: usize = 64;
const NO_CURSOR: u64 = u64::MAX;
/// What a cursor counts for in its chunk: more than the chunk's nodes.
const HELD: u32 = 1 << 30;

/// A node's position, in units of 16 bytes; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct NodeRef(pub u32);

impl NodeRef {
    pub const NONE: NodeRef = NodeRef(0);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Where one session allocates. It holds its chunk, which is not reused meanwhile.
#[derive(Default)]
pub(crate) struct ArenaCursor {
    chunk: Option<u32>,
    next_word: u16,
    /// Nodes taken from the chunk that its count does not have yet.
    nodes: u16,
}

const _: () = assert!(CHUNK_WORDS <= u16::MAX as usize);

/// Nodes that were freed one after another, by chunk: one count for many. Dropping it settles.
pub(crate) struct Freed<'a> {
    arena: &'a Arena,
    chunk: u32,
    nodes: u32,
}

impl Freed<'_> {
    /// Frees a node that nobody can reach.
    #[inline]
    pub fn add(&mut self, node: NodeRef) {
        let chunk = Arena::chunk_of(node);
        if chunk != self.chunk {
            self.settle();
            self.chunk = chunk;
        }
        self.nodes += 1;
    }

    fn settle(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        if nodes > 0 {
            self.arena.drop_many(self.chunk, nodes);
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

/// A line for each thread: two of them never write the same one.
#[repr(align(128))]
struct Parked(AtomicU64);

impl ArenaCursor {
    fn pack(self) -> Option<u64> {
        self.chunk.map(|chunk| u64::from(chunk) << 32 | u64::from(self.nodes) << 16 | u64::from(self.next_word))
    }

    fn unpack(word: u64) -> ArenaCursor {
        ArenaCursor { chunk: Some((word >> 32) as u32), nodes: (word >> 16) as u16, next_word: word as u16 }
    }
}

struct FreeChunks {
    next: u32,
    /// Still resident, and still taken from the budget.
    spare: Vec<u32>,
    returned: Vec<u32>,
}

/// All version nodes of a database.
pub(crate) struct Arena {
    space: Space,
    /// Nodes of each chunk not yet freed; while a cursor holds it [`HELD`] less those freed.
    live: Box<[AtomicU32]>,
    free: Mutex<FreeChunks>,
    spares_max: usize,
    /// Cursors between transactions, by thread: chunk 32, nodes 16, next word 16.
    parked: [Parked; PARKED],
    budget: Arc<Budget>,
}

impl Arena {
    pub fn new(limit_bytes: u64, huge: bool, budget: Arc<Budget>) -> io::Result<Arena> {
        let limit = limit_bytes.min(u64::from(u32::MAX) * 16);
        let space = Space::reserve(limit, huge)?;
        let chunks = space.words() / CHUNK_WORDS;
        let live = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        Ok(Arena {
            space,
            live,
            free: Mutex::new(FreeChunks { next: 0, spare: Vec::new(), returned: Vec::new() }),
            spares_max: ((budget.reserve_bytes() / 8 / CHUNK_BYTES) as usize).min(SPARES_MAX),
            parked: std::array::from_fn(|_| Parked(AtomicU64::new(NO_CURSOR))),
            budget,
        })
    }

    /// A node of `words` words, content undefined. `None`: the memory limit is reached. `place` is the thread's.
    #[inline]
    pub fn allocate(&self, cursor: &mut ArenaCursor, place: usize, words: usize, claim: Claim) -> Option<NodeRef> {
        let words = words.next_multiple_of(UNIT_WORDS);
        assert!(words <= CHUNK_WORDS - UNIT_WORDS, "invariant: a node fits a chunk");
        if cursor.chunk.is_none() {
            self.unpark(cursor, place);
        }
        if cursor.chunk.is_none() || cursor.next_word as usize + words > CHUNK_WORDS {
            self.next_chunk(cursor, claim)?;
        }
        let chunk = cursor.chunk.expect("next_chunk gave one");
        let word = chunk as usize * CHUNK_WORDS + cursor.next_word as usize;
        cursor.next_word += words as u16;
        cursor.nodes += 1;
        Some(NodeRef((word / UNIT_WORDS) as u32))
    }

    fn unpark(&self, cursor: &mut ArenaCursor, place: usize) {
        // Acquire, as in `park`: who takes a cursor over goes on where it was left.
        let parked = self.parked[place % PARKED].0.swap(NO_CURSOR, Ordering::Acquire);
        if parked != NO_CURSOR {
            *cursor = ArenaCursor::unpack(parked);
        }
    }

    /// Leaves the cursor to whoever writes next on this thread.
    pub fn park(&self, cursor: &mut ArenaCursor, place: usize) {
        let Some(word) = std::mem::take(cursor).pack() else { return };
        let before = self.parked[place % PARKED].0.swap(word, Ordering::AcqRel);
        if before != NO_CURSOR {
            self.release(&mut ArenaCursor::unpack(before));
        }
    }

    fn next_chunk(&self, cursor: &mut ArenaCursor, claim: Claim) -> Option<()> {
        // With all its nodes freed the cursor's own chunk is as good as another, and costs nothing at the limit.
        let chunk = match cursor.chunk.filter(|_| self.is_empty(cursor)) {
            Some(own) => own,
            None => {
                let chunk = self.take_chunk(claim)?;
                self.release(cursor);
                chunk
            }
        };
        self.live[chunk as usize].store(HELD, Ordering::Relaxed);
        // Whoever still looks at a node that was freed here sees, with what is written from now on, that it was folded away (`txn::fold`).
        fence(Ordering::Release);
        // The first unit of every chunk stays unused, so that no node has the name 0.
        *cursor = ArenaCursor { chunk: Some(chunk), next_word: UNIT_WORDS as u16, nodes: 0 };
        Some(())
    }

    /// Whether all nodes of the cursor's chunk were freed.
    fn is_empty(&self, cursor: &ArenaCursor) -> bool {
        // Acquire, as in `drop_many`.
        let live = |chunk: u32| self.live[chunk as usize].load(Ordering::Acquire);
        cursor.chunk.is_some_and(|chunk| live(chunk) == HELD - u32::from(cursor.nodes))
    }

    fn take_chunk(&self, claim: Claim) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(chunk) = free.spare.pop() {
            return Some(chunk);
        }
        if free.returned.is_empty() && free.next as usize == self.live.len() {
            return None;
        }
        if !self.budget.take(Kind::Versions, CHUNK_BYTES, claim) {
            return None;
        }
        Some(free.returned.pop().unwrap_or_else(|| {
            free.next += 1;
            free.next - 1
        }))
    }

    /// Lets go of the cursor's chunk.
    pub fn release(&self, cursor: &mut ArenaCursor) {
        let ArenaCursor { chunk, nodes, .. } = std::mem::take(cursor);
        if let Some(chunk) = chunk {
            self.drop_many(chunk, HELD - u32::from(nodes));
        }
    }

    /// Lets go of the chunks of cursors that nobody uses.
    pub fn release_parked(&self) {
        for parked in &self.parked {
            let cursor = parked.0.swap(NO_CURSOR, Ordering::Acquire);
            if cursor != NO_CURSOR {
                self.release(&mut ArenaCursor::unpack(cursor));
            }
        }
    }

    /// Frees nodes, many in a row.
    pub fn freed(&self) -> Freed<'_> {
        Freed { arena: self, chunk: 0, nodes: 0 }
    }

    fn chunk_of(node: NodeRef) -> u32 {
        (node.0 as usize * UNIT_WORDS / CHUNK_WORDS) as u32
    }

    fn drop_many(&self, chunk: u32, count: u32) {
        // AcqRel: every use of the chunk's nodes happens before its reuse.
        let before = self.live[chunk as usize].fetch_sub(count, Ordering::AcqRel);
        debug_assert!(before >= count, "arena invariant 1: {count} nodes freed of {before}");
        if before != count {
            return;
        }
        {
            let mut free = self.free.lock();
            if free.spare.len() < self.spares_max {
                free.spare.push(chunk);
                return;
            }
        }
        self.space.discard(chunk as usize * CHUNK_WORDS, CHUNK_WORDS);
        self.budget.give(Kind::Versions, CHUNK_BYTES);
        self.free.lock().returned.push(chunk);
    }

    /// The node's words from its `at`-th on.
    #[inline]
    pub fn words(&self, node: NodeRef, at: usize, count: usize) -> &[AtomicU64] {
        self.space.slice(node.0 as usize * UNIT_WORDS + at, count)
    }

    /// Whether few nodes are left in the node's chunk, and nobody adds to it: it is kept for little.
    pub fn is_sparse(&self, node: NodeRef) -> bool {
        const FEW: u32 = 32;
        self.live[Self::chunk_of(node) as usize].load(Ordering::Relaxed) <= FEW
    }

    /// A word of what may have been a node; nothing outside the arena.
    #[inline]
    pub fn try_word(&self, node: NodeRef, at: usize) -> Option<&AtomicU64> {
        let word = node.0 as usize * UNIT_WORDS + at;
        (word < self.space.words()).then(|| &self.space.slice(word, 1)[0])
    }

    /// Bytes of chunks that hold nodes or a session's cursor.
    pub fn used_bytes(&self) -> u64 {
        let free = self.free.lock();
        let parked = self.parked.iter().map(|p| p.0.load(Ordering::Acquire)).filter(|&p| p != NO_CURSOR);
        let empty = parked.filter(|&p| self.is_empty(&ArenaCursor::unpack(p))).count();
        let free_chunks = free.returned.len() + free.spare.len() + empty;
        // Parking goes on meanwhile.
        u64::from(free.next).saturating_sub(free_chunks as u64) * CHUNK_BYTES
    }

    /// Where its memory lies.
    pub fn addresses(&self) -> Range<usize> {
        self.space.addresses()
    }

    /// Bytes of what is kept of every chunk that the limit allows.
    pub fn metadata_bytes(&self) -> u64 {
        (self.live.len() * size_of::<AtomicU32>()) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn arena(limit: u64) -> (Arena, Arc<Budget>) {
        let budget = Arc::new(Budget::new(limit));
        (Arena::new(4 << 20, false, budget.clone()).expect("a small reservation"), budget)
    }

    #[test]
    fn a_chunk_is_reused_only_after_its_last_node_and_its_cursor() {
        let (arena, _) = arena(4 << 20);
        let mut cursor = ArenaCursor::default();
        let mut take = |arena: &Arena| arena.allocate(&mut cursor, 0, 7, Claim::Finish).expect("room");
        let nodes: Vec<NodeRef> = (0..100).map(|_| take(&arena)).collect();
        assert!(nodes.iter().all(|n| !n.is_none()));
        assert_eq!(arena.used_bytes(), CHUNK_BYTES);
        nodes.iter().for_each(|&n| arena.freed().add(n));
        assert_eq!(arena.used_bytes(), CHUNK_BYTES, "the cursor still holds it");
        arena.release(&mut cursor);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn allocation_is_refused_at_the_limit_and_memory_comes_back() {
        let (arena, budget) = arena(1 << 20);
        let mut cursor = ArenaCursor::default();
        let mut nodes = Vec::new();
        while let Some(node) = arena.allocate(&mut cursor, 0, 1000, Claim::Finish) {
            nodes.push(node);
        }
        assert_eq!(nodes.len(), 16 * (CHUNK_WORDS / 1000));
        nodes.iter().for_each(|&n| arena.freed().add(n));
        assert_eq!(budget.used_bytes(), CHUNK_BYTES, "a limit of 1 MiB keeps no spare chunk beside the cursor's");
        assert!(arena.allocate(&mut cursor, 0, 1000, Claim::Finish).is_some());
    }

    #[test]
    fn who_writes_next_on_a_thread_goes_on_in_its_chunk() {
        let (arena, _) = arena(4 << 20);
        let (mut a, mut b) = (ArenaCursor::default(), ArenaCursor::default());
        let first = arena.allocate(&mut a, 3, 8, Claim::Finish).expect("room");
        arena.park(&mut a, 3);
        let second = arena.allocate(&mut b, 3, 8, Claim::Finish).expect("room");
        assert_eq!(second.0, first.0 + 4);
        assert_eq!(arena.used_bytes(), CHUNK_BYTES);
        arena.allocate(&mut a, 3, 8, Claim::Finish).expect("room");
        arena.park(&mut a, 3);
        arena.park(&mut b, 3);
        assert_eq!(arena.used_bytes(), 2 * CHUNK_BYTES, "both have nodes");
        arena.freed().add(first);
        arena.freed().add(second);
        arena.release_parked();
        assert_eq!(arena.used_bytes(), CHUNK_BYTES);
    }
}
