//! A plain array of words in huge pages, for whoever measures what this memory can do.

use super::space::Space;
use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

/// Zeroed words in a range of their own, huge pages advised. Memory is taken where it is touched.
pub struct HugeWords(Space);

impl HugeWords {
    pub fn zeroed(words: usize) -> io::Result<HugeWords> {
        Ok(HugeWords(Space::reserve(words as u64 * 8, true)?))
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }
}

impl Deref for HugeWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        self.0.slice(0, self.0.words())
    }
}
