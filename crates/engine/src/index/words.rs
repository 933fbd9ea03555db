//! Where do index nodes live? In zeroed, 64-byte aligned arrays of atomic words, huge pages where they pay.
//!
//! 1. Every word of such an array is an `AtomicU64` from the moment it exists until the array is dropped; nobody forms
//!    any other reference to its bytes.
//! 2. An array is dropped only with the index that owns it, which no thread uses then.

use crate::sync::atomic::AtomicU64;
use std::ops::Deref;

/// Words in a cache line.
pub const LINE_WORDS: usize = 8;

/// A huge page. A dependent miss costs 175 ns with them and 280 ns without (DESIGN.md section 11).
#[cfg(not(any(loom, shuttle, miri)))]
const HUGE_BYTES: usize = 2 << 20;

#[cfg(not(any(loom, shuttle)))]
pub struct Words {
    base: std::ptr::NonNull<AtomicU64>,
    len: usize,
    mapped: bool,
}

#[cfg(not(any(loom, shuttle)))]
// SAFETY: a `Words` owns its memory, and shares it only as `&[AtomicU64]`, which any thread may use.
unsafe impl Send for Words {}
#[cfg(not(any(loom, shuttle)))]
// SAFETY: as above.
unsafe impl Sync for Words {}

#[cfg(not(any(loom, shuttle)))]
impl Words {
    /// `len` zero words. Two megabytes and more come from the system on their own huge-page boundary and become
    /// resident as they are touched.
    pub fn zeroed(len: usize) -> Words {
        #[cfg(not(miri))]
        if len * 8 >= HUGE_BYTES {
            return Words::mapped(len);
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty (asserted in `layout`), and zero bytes are valid `AtomicU64`s.
        let base = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<AtomicU64>();
        match std::ptr::NonNull::new(base) {
            Some(base) => Words { base, len, mapped: false },
            None => std::alloc::handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> std::alloc::Layout {
        assert!(len > 0, "an array of words is not empty");
        std::alloc::Layout::from_size_align(len * 8, 64).expect("index arrays are far below isize::MAX bytes")
    }

    #[cfg(not(miri))]
    fn mapped(len: usize) -> Words {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        let bytes = (len * 8).next_multiple_of(4096);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at an address of the system's choice touches no existing memory.
        let raw = match unsafe { mmap_anonymous(std::ptr::null_mut(), bytes + HUGE_BYTES, prot, flags) } {
            Ok(raw) => raw.cast::<u8>(),
            Err(_) => std::alloc::handle_alloc_error(Self::layout(len)),
        };
        let head = raw.align_offset(HUGE_BYTES);
        // SAFETY: `head` is below HUGE_BYTES, so base..base+bytes and the trimmings lie inside the mapping just made,
        // and nobody has a pointer into the trimmings. A failure to trim leaves address space reserved, no more.
        let base = unsafe {
            let base = raw.add(head);
            if head > 0 {
                let _ = munmap(raw.cast(), head);
            }
            let _ = munmap(base.add(bytes).cast(), HUGE_BYTES - head);
            base.cast::<AtomicU64>()
        };
        Words { base: std::ptr::NonNull::new(base).expect("a mapping is not at address zero"), len, mapped: true }
    }

    /// Asks for huge pages. Not done by itself: the first touch of a huge page makes all of it resident, which an
    /// index of a few kilobytes should not pay. Refusal costs speed only.
    pub fn advise_huge(&self) {
        #[cfg(not(miri))]
        if self.mapped {
            // SAFETY: the range is ours (invariant 2), and this advice does not change what it holds.
            let _ = unsafe {
                rustix::mm::madvise(self.base.as_ptr().cast(), self.len * 8, rustix::mm::Advice::LinuxHugepage)
            };
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: base..base+len are initialised atomics (invariant 1) that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for Words {
    fn drop(&mut self) {
        if self.mapped {
            #[cfg(not(miri))]
            // SAFETY: this is the range that `mapped` kept; the index is going, so nobody uses it (invariant 2).
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), (self.len * 8).next_multiple_of(4096)) };
        } else {
            // SAFETY: allocated in `zeroed` with this same layout.
            unsafe { std::alloc::dealloc(self.base.as_ptr().cast(), Self::layout(self.len)) }
        }
    }
}

/// Under a checker, atomics are objects: made one by one.
#[cfg(any(loom, shuttle))]
pub struct Words(Box<[AtomicU64]>);

#[cfg(any(loom, shuttle))]
impl Words {
    pub fn zeroed(len: usize) -> Words {
        Words((0..len).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn advise_huge(&self) {}
}

#[cfg(any(loom, shuttle))]
impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}
