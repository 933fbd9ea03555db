//! With what do threads meet? Atomics, fences, a mutex and a polite spin, from one place, so that a model checker can
//! stand in for the machine.
//!
//! | build | atomics and threads from | what it can show |
//! |---|---|---|
//! | plain | `std`, mutex from parking_lot | speed |
//! | `--cfg loom` | loom | every interleaving of a tiny case, weak memory included |
//! | `--cfg shuttle` | shuttle | random interleavings of the real structure, sequentially consistent |
//!
//! A loom atomic is larger than eight bytes and must be made inside the model, so memory full of atomics is never
//! obtained by casting bytes except in the plain build (`index::words` shows how).

pub(crate) mod gate;
pub(crate) mod keeping;
pub(crate) mod phase;

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub use parking_lot::{Mutex, MutexGuard};
    pub type InnerCondvar = parking_lot::Condvar;
    pub use std::sync::{Arc, atomic};
    pub use std::{hint, thread};
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::{Arc, MutexGuard, atomic};
    pub use loom::{hint, thread};
    pub type Inner<T> = loom::sync::Mutex<T>;
    pub type InnerCondvar = loom::sync::Condvar;
}

#[cfg(shuttle)]
mod imp {
    pub use shuttle::sync::{Arc, MutexGuard, atomic};
    pub use shuttle::{hint, thread};
    pub type Inner<T> = shuttle::sync::Mutex<T>;
    pub type InnerCondvar = shuttle::sync::Condvar;
}

pub use imp::{Arc, MutexGuard, atomic, hint, thread};
use std::time::Instant;

#[cfg(not(any(loom, shuttle)))]
pub use imp::Mutex;

/// A point at which loom tries every other thread. Nothing elsewhere.
///
/// Loom looks for conflicts with the *last* access to an atomic only: a thread that reads a word before it writes it (every
/// latch, every copy) hides the other thread's earlier read, and the schedules in between are never tried. All steps
/// write one word, and hide nothing.
#[inline(always)]
pub fn step() {
    #[cfg(loom)]
    {
        loom::lazy_static! {
            static ref STEP: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
        }
        STEP.store(0, atomic::Ordering::Relaxed);
    }
}

/// The checkers' mutexes poison; ours does not, so that code reads the same in every build.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub struct Mutex<T>(imp::Inner<T>);

#[cfg(any(loom, shuttle))]
impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

#[cfg(any(loom, shuttle))]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(imp::Inner::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a thread of the model panicked; the model has failed already")
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a thread of the model panicked; the model has failed already")
    }
}

/// Where threads sleep until what a mutex guards has changed.
pub struct Condvar(imp::InnerCondvar);

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar(imp::InnerCondvar::new())
    }
}

impl Condvar {
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Sleeps until it is notified or the deadline has passed: true. To a checker no time passes: who is not notified sleeps for ever.
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> (MutexGuard<'a, T>, bool) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let mut guard = guard;
            let is_over = self.0.wait_until(&mut guard, deadline).timed_out();
            (guard, is_over)
        }
        #[cfg(any(loom, shuttle))]
        {
            let _ = deadline;
            (self.0.wait(guard).expect("a thread of the model panicked; the model has failed already"), false)
        }
    }
}

/// A store-load fence of two sides, of which one runs often and the other seldom: Linux's `membarrier`.
///
/// The often side stores, calls [`fences::light`] and loads; the seldom side stores, calls [`fences::heavy`] and loads. As with two
/// sequentially consistent fences, at least one of them sees the other's store. The light one costs no instruction (a full
/// fence waits for every load before it, so that no two statements overlap their cache misses); the heavy one interrupts each processor
/// that runs a thread of this process, some microseconds. Where the system has no `membarrier`, and under the checkers, both
/// are plain fences.
pub mod fences {
    use super::atomic::{Ordering::SeqCst, fence};

    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    mod expedited {
        use rustix::thread::{MembarrierCommand, membarrier};
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

        /// Whether the light side may leave its fence to the heavy one. Never unset.
        static READY: AtomicBool = AtomicBool::new(false);
        static REGISTERED: OnceLock<bool> = OnceLock::new();

        #[inline]
        pub fn is_ready() -> bool {
            READY.load(Relaxed)
        }

        pub fn prepare() {
            let registered =
                *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
            READY.store(registered, Relaxed);
        }

        pub fn interrupt_all() {
            membarrier(MembarrierCommand::PrivateExpedited).expect("what was registered is not refused");
        }
    }

    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    mod expedited {
        pub fn is_ready() -> bool {
            false
        }

        pub fn prepare() {}

        pub fn interrupt_all() {}
    }

    /// Called once before either side is used; without it the light side fences by itself.
    pub fn prepare() {
        expedited::prepare();
    }

    #[inline]
    pub fn light() {
        if expedited::is_ready() {
            std::sync::atomic::compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    pub fn heavy() {
        fence(SeqCst);
        if expedited::is_ready() {
            expedited::interrupt_all();
        }
    }
}

/// Lets other threads run for some 50 us. Not by yielding: Linux 6.18 takes the rest of its slice from a thread each time it yields, and one
/// that yields in a loop beside busy threads stands still for up to a second (seen as commits of that length: more threads than cores).
pub fn give_way() {
    #[cfg(any(loom, shuttle))]
    thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::thread::sleep(std::time::Duration::from_micros(1));
}

/// Waiting for a latch that is held for nanoseconds: spin a little, then give the processor away, because the holder
/// may be off it.
#[derive(Default)]
pub struct Spin {
    turns: u32,
}

impl Spin {
    /// A few hundred nanoseconds of pause instructions; a latch held longer than that belongs to a thread that is not
    /// running, or to a segment being copied.
    const PAUSES: u32 = 64;

    pub fn new() -> Spin {
        Spin::default()
    }

    pub fn turn(&mut self) {
        // A checker must be told to run someone else at once: to it a pause is no progress.
        if cfg!(any(loom, shuttle)) || self.turns >= Self::PAUSES {
            give_way();
        } else {
            self.turns += 1;
            hint::spin_loop();
        }
    }
}
