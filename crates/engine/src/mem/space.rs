//! A reserved range of address space, as atomic words.

#[cfg(not(loom))]
pub(super) use mapped::Space;
#[cfg(loom)]
pub(super) use modelled::Space;

#[cfg(not(loom))]
mod mapped {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ffi::c_void;
    use std::io;
    use std::ops::Range;
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;

    /// A range (module invariant 1).
    pub struct Space {
        base: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: the range is only reached through `&[AtomicU64]` (module invariant 2), which any thread may use; the mapping belongs to the process.
    unsafe impl Send for Space {}
    // SAFETY: as for Send: shared access is atomic.
    unsafe impl Sync for Space {}

    impl Space {
        /// Reserves `bytes` (rounded up to 2 MiB), all zero, without taking memory. `huge` advises huge pages.
        pub fn reserve(bytes: u64, huge: bool) -> io::Result<Space> {
            let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?.next_multiple_of(2 << 20);
            // SAFETY: no address is given, so nothing that exists is mapped over.
            let base = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?;
            if huge {
                // SAFETY: the range was just mapped with this length; the advice changes no content. Refusal only costs speed.
                let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
            }
            let base = NonNull::new(base.cast::<AtomicU64>()).expect("mmap never returns null without MAP_FIXED");
            Ok(Space { base, words: bytes / 8 })
        }

        pub fn words(&self) -> usize {
            self.words
        }

        /// Where the range lies.
        pub fn addresses(&self) -> Range<usize> {
            let base = self.base.as_ptr().addr();
            base..base + self.words * 8
        }

        /// `count` words from `start`.
        #[inline]
        pub fn slice(&self, start: usize, count: usize) -> &[AtomicU64] {
            assert!(start <= self.words && count <= self.words - start, "invariant: an address lies in its range");
            // SAFETY: the words lie in the range (just asserted), which stays mapped while self is borrowed (module invariant 1),
            // and AtomicU64 has u64's layout, of which any bit pattern is valid (invariant 3).
            unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), count) }
        }

        /// Gives the memory of the words back; they read as zero afterwards. The caller has nothing there it still needs.
        pub fn discard(&self, start: usize, count: usize) {
            let words = self.slice(start, count);
            // SAFETY: the words lie in this private anonymous mapping; concurrent atomic readers see the old word or zero (invariant 3).
            let given =
                unsafe { madvise(words.as_ptr().cast_mut().cast::<c_void>(), count * 8, Advice::LinuxDontNeed) };
            if given.is_err() {
                words.iter().for_each(|w| w.store(0, std::sync::atomic::Ordering::Relaxed));
            }
        }
    }

    impl Drop for Space {
        fn drop(&mut self) {
            // SAFETY: base and length are those of the mapping, and no borrow outlives self.
            let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.words * 8) };
        }
    }
}

/// Under loom, atomics are objects: made one by one, and no more than are asked for.
#[cfg(loom)]
mod modelled {
    use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::io;
    use std::ops::Range;

    pub struct Space(Box<[AtomicU64]>);

    impl Space {
        pub fn reserve(bytes: u64, _huge: bool) -> io::Result<Space> {
            Ok(Space((0..bytes / 8).map(|_| AtomicU64::new(0)).collect()))
        }

        pub fn words(&self) -> usize {
            self.0.len()
        }

        pub fn addresses(&self) -> Range<usize> {
            0..0
        }

        pub fn slice(&self, start: usize, count: usize) -> &[AtomicU64] {
            &self.0[start..start + count]
        }

        pub fn discard(&self, start: usize, count: usize) {
            self.slice(start, count).iter().for_each(|word| word.store(0, Relaxed));
        }
    }
}
