//! Which rows may have this key? Two volatile indexes, rebuilt at start, from key to row id.
//!
//! An entry is (key, row id) and says "some version of that row has, or had, this key". What the row says now, and to
//! whom, is the caller's question: every hit is checked against the version that the snapshot sees.
//!
//! | module | structure | key |
//! |---|---|---|
//! | [`hash`] | extendible hashing in cache-line buckets | a 64-bit hash, of which 29 bits or more are kept |
//! | [`btree`] | B-link tree under OLFIT versions | words, compared from the first: as many in each, or as many as a key takes |
//! | `latch` | the version word of a tree node | |
//! | `words` | memory made of atomic words | |
//!
//! Terms: a *latch* is physical and held for nanoseconds; nothing waits, allocates a lock or enters the same index while
//! holding one. *Present* means inserted and not removed.
//!
//! # Invariants
//!
//! 1. A present entry is found by every lookup that begins after its insert returned and ends before its remove began,
//!    whatever splits meanwhile: a lookup that met a structure being replaced starts again (DESIGN.md invariant 11).
//! 2. A lookup reports an entry at most once, and may report one that is not present (its key only resembles, or it has
//!    just gone): callers verify.
//! 3. All bytes that threads share are atomic words, never referenced as anything else. What is read without a latch is
//!    copied, bounds-checked and validated before it is believed.
//! 4. Memory of nodes and segments stays readable, and stays the same kind of node, until its index is dropped: a reader that lost a race reads
//!    an obsolete word, or one of another node of its kind, and finds out before it believes it. A hash segment's pieces are used again only
//!    once `retired` is set, which a reader looks at last; a tree node's number is given out again under another *life*, which every link
//!    names and every reader compares in the same validated reading. What a key has beyond its node's words is written over only once that node
//!    has changed, which its readers find. So what is removed is used again at once, and no reader holds it up.
//! 5. A unique check and its insert are one step towards every other insert of the key, and towards the removal of the
//!    entry: both are under the latch of the key's bucket or first leaf.
//! 6. Version words count up in at least 51 bits and are never reset: at 10^7 changes a second of one bucket they repeat
//!    after seven years, and a reader would have to sleep through exactly that.
//! 7. Latches are taken in one order: a bucket before a tree node, a leaf before its right neighbour, a child before its
//!    parent. Readers take none.
//!
//! 8. An index takes from its account before it grows, with no entry touched yet: a refused insert leaves it as it was. Only what a granted step
//!    entails (the nodes above a leaf that has split, entries that a copied segment has no place for) is taken without asking.
//!
//! Sources: Cha et al., "Cache-Conscious Concurrency Control of Main-Memory Indexes" (OLFIT), VLDB 2001; Lehman and Yao,
//! "Efficient Locking for Concurrent Operations on B-Trees", TODS 1981; Fagin et al., "Extendible Hashing", TODS 1979;
//! Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012.
//!
//! The model checkers are run by hand and by `scripts/verify`:
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p freshet-engine --lib --release loom_
//! RUSTFLAGS="--cfg shuttle" cargo test -p freshet-engine --lib --release shuttle_
//! ```

use crate::ids::RowId;

pub(crate) mod latch;
mod tally;
mod words;

pub mod btree;
pub mod hash;

pub use btree::{BTreeIndex, Cursor, Direction, Entries, TreePart};
pub use hash::HashIndex;

/// What the caller says of an entry that a unique insert meets under the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// No row with this key, now or if anyone's transaction ends either way.
    Ignore,
    /// A row with this key.
    Duplicate,
    /// It depends on a transaction that has not ended: wait for it without the latch, then insert again.
    Wait,
}

/// Why a unique insert inserted nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    Duplicate(RowId),
    Wait(RowId),
    /// The index would have to grow, and the memory limit leaves no room.
    OutOfMemory,
}

impl Probe {
    /// The verdict on the entry of `row`, as the inserter's result.
    fn verdict(self, row: RowId) -> Result<(), Conflict> {
        match self {
            Probe::Ignore => Ok(()),
            Probe::Duplicate => Err(Conflict::Duplicate(row)),
            Probe::Wait => Err(Conflict::Wait(row)),
        }
    }
}
