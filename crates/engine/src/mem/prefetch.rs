//! Which memory is asked for before it is wanted? The line at an address: it comes while the processor goes on, and nothing is read.
//!
//! Forgotten where the processor has no such instruction in stable Rust, and under the model checkers.
//!
//! 1. A prefetch reads nothing architecturally, so any address is allowed: what was there may be gone.

use crate::sync::atomic::AtomicU64;

/// Starts loading the line that is at an address, whatever is there by now.
#[inline]
pub fn prefetch_address(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // SAFETY: by 1.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    let _ = address;
}

/// Starts loading the line in which a value begins.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch_address(std::ptr::from_ref(value).addr());
}

/// Starts loading the line that holds `word`.
#[inline]
pub fn prefetch(word: &AtomicU64) {
    prefetch_value(word);
}

/// As `prefetch`, for who will write the line: it comes without another core keeping a copy, so that the write does not wait once more.
#[inline]
pub fn prefetch_write(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // SAFETY: by 1; a processor without the instruction takes it for none.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    let _ = word;
}
