//! Where do bytes live? (memory of pages and version nodes; filled in by what follows)

/// The bytes of a word slice. The machine is little-endian (asserted below), so memory order is layout order.
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: every bit pattern is a valid u8, u8 has alignment 1, the length is the slice's own in bytes, and the borrow lasts as long.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) }
}

const _: () = assert!(cfg!(target_endian = "little"), "layouts are little-endian");
