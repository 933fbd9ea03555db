//! Where do bytes live? One reserved range of address space for pages, one for version nodes, and the budget that everything draws on.
//!
//! Everything here is handed out as `&[AtomicU64]`: other modules load and store words atomically and need no `unsafe`.
//!
//! Terms and invariants the unsafe blocks argue from:
//! 1. *Range*: a private anonymous mapping made by [`space::Space::reserve`], readable and writable, page-aligned, unmapped only when
//!    its `Space` is dropped. A borrow of a `Space` therefore keeps every address of its range valid.
//! 2. Every access to a range goes through `AtomicU64` at 8-byte-aligned addresses: no access of another size or kind races with it.
//! 3. Untouched and discarded words read as zero; any bit pattern is a valid `u64`.
//!
//! Source: P*TIME's direct addressing (VLDB 2004); DESIGN section 3. The model checkers compile the page marks and the arena.

#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
mod arena;
mod budget;
#[cfg(not(any(loom, shuttle)))]
mod huge;
#[cfg(not(any(loom, shuttle)))]
mod machine;
mod mark;
#[cfg(not(any(loom, shuttle)))]
mod pages;
pub mod prefetch;
#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
mod space;
pub mod touched;

#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
pub(crate) use arena::{Arena, ArenaCursor, Freed, NodeRef};
pub use budget::{Account, Claim, Kind};
pub(crate) use budget::{Budget, RestartCosts};
#[cfg(not(any(loom, shuttle)))]
pub use huge::HugeWords;
#[cfg(not(any(loom, shuttle)))]
pub use machine::{HugeUse, available_bytes, resident_bytes};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use machine::{gives_huge_pages, huge_use};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use pages::{PAGE_WORDS, PageMeta, Pages};

pub(crate) const PAGE_BYTES: usize = 64 << 10;

/// The bytes of a word slice. The machine is little-endian (asserted below), so memory order is layout order.
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: every bit pattern is a valid u8, u8 has alignment 1, the length is the slice's own in bytes, and the borrow
    // lasts as long.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) }
}

const _: () = assert!(cfg!(target_endian = "little"), "layouts are little-endian");
