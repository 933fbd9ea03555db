//! Version nodes: bump allocation in chunks, a chunk reused when its last node is freed.
//!
//! A node is named by a [`NodeRef`]: its position in units of two words. Who may still read a freed node is decided by the transactions'
//! garbage collection (`txn::garbage`), not here: a node is freed only when nobody can reach it.

use super::Budget;
use super::space::Space;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const UNIT_WORDS: usize = 2;
/// Holds the largest node (a whole record of 32 KiB with its bitmap) several times.
const CHUNK_WORDS: usize = (256 << 10) / 8;

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
    next_word: usize,
}

struct FreeChunks {
    next: u32,
    returned: Vec<u32>,
}

/// All version nodes of a database.
pub(crate) struct Arena {
    space: Space,
    /// Nodes of each chunk not yet freed, and one for the cursor that holds it.
    live: Box<[AtomicU32]>,
    free: Mutex<FreeChunks>,
    budget: Arc<Budget>,
}

impl Arena {
    pub fn new(limit_bytes: u64, budget: Arc<Budget>) -> io::Result<Arena> {
        let limit = limit_bytes.min(u64::from(u32::MAX) * 16);
        let space = Space::reserve(limit, false)?;
        let chunks = space.words() / CHUNK_WORDS;
        let live = std::iter::repeat_with(AtomicU32::default).take(chunks).collect();
        Ok(Arena { space, live, free: Mutex::new(FreeChunks { next: 0, returned: Vec::new() }), budget })
    }

    /// A node of `words` words, content undefined. `None`: the memory limit is reached.
    pub fn allocate(&self, cursor: &mut ArenaCursor, words: usize) -> Option<NodeRef> {
        let words = words.next_multiple_of(UNIT_WORDS);
        assert!(words <= CHUNK_WORDS - UNIT_WORDS, "invariant: a node fits a chunk");
        if cursor.chunk.is_none() || cursor.next_word + words > CHUNK_WORDS {
            self.next_chunk(cursor)?;
        }
        let chunk = cursor.chunk.expect("next_chunk gave one");
        let word = chunk as usize * CHUNK_WORDS + cursor.next_word;
        cursor.next_word += words;
        self.live[chunk as usize].fetch_add(1, Ordering::Relaxed);
        Some(NodeRef((word / UNIT_WORDS) as u32))
    }

    fn next_chunk(&self, cursor: &mut ArenaCursor) -> Option<()> {
        // Acquire, as in `drop_one`: with all its nodes freed the cursor's own chunk is as good as another, and costs nothing at the limit.
        if cursor.chunk.is_some_and(|chunk| self.live[chunk as usize].load(Ordering::Acquire) == 1) {
            cursor.next_word = UNIT_WORDS;
            return Some(());
        }
        let mut free = self.free.lock();
        let chunk = match free.returned.pop() {
            Some(chunk) => chunk,
            None => {
                if free.next as usize == self.live.len() || !self.budget.take((CHUNK_WORDS * 8) as u64) {
                    return None;
                }
                free.next += 1;
                free.next - 1
            }
        };
        drop(free);
        self.live[chunk as usize].store(1, Ordering::Relaxed);
        self.release(cursor);
        // The first unit of every chunk stays unused, so that no node has the name 0.
        *cursor = ArenaCursor { chunk: Some(chunk), next_word: UNIT_WORDS };
        Some(())
    }

    /// Lets go of the cursor's chunk.
    pub fn release(&self, cursor: &mut ArenaCursor) {
        if let Some(chunk) = cursor.chunk.take() {
            self.drop_one(chunk);
        }
    }

    /// Frees a node that nobody can reach.
    pub fn free(&self, node: NodeRef) {
        self.drop_one((node.0 as usize * UNIT_WORDS / CHUNK_WORDS) as u32);
    }

    fn drop_one(&self, chunk: u32) {
        // AcqRel: every use of the chunk's nodes happens before its reuse.
        if self.live[chunk as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free.lock().returned.push(chunk);
        }
    }

    /// The node's words from its `at`-th on.
    #[inline]
    pub fn words(&self, node: NodeRef, at: usize, count: usize) -> &[AtomicU64] {
        self.space.slice(node.0 as usize * UNIT_WORDS + at, count)
    }

    /// Bytes of chunks that hold nodes or cursors.
    pub fn used_bytes(&self) -> u64 {
        let free = self.free.lock();
        (u64::from(free.next) - free.returned.len() as u64) * (CHUNK_WORDS * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_reused_only_after_its_last_node_and_its_cursor() {
        let arena = Arena::new(4 << 20, Arc::new(Budget::new(4 << 20))).expect("a small reservation");
        let mut cursor = ArenaCursor::default();
        let nodes: Vec<NodeRef> = (0..100).map(|_| arena.allocate(&mut cursor, 7).expect("room")).collect();
        assert!(nodes.iter().all(|n| !n.is_none()));
        assert_eq!(arena.used_bytes(), 256 << 10);
        nodes.iter().for_each(|&n| arena.free(n));
        assert_eq!(arena.used_bytes(), 256 << 10, "the cursor still holds it");
        arena.release(&mut cursor);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn allocation_is_refused_at_the_limit() {
        let arena = Arena::new(4 << 20, Arc::new(Budget::new(1 << 20))).expect("a small reservation");
        let mut cursor = ArenaCursor::default();
        let mut nodes = Vec::new();
        while let Some(node) = arena.allocate(&mut cursor, 1000) {
            nodes.push(node);
        }
        assert_eq!(nodes.len(), 4 * (CHUNK_WORDS / 1000));
        nodes.iter().for_each(|&n| arena.free(n));
        assert!(arena.allocate(&mut cursor, 1000).is_some());
    }
}
