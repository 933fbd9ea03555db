//! How soon does a thread get a processor that others use?
//!
//! The scheduler of Linux (EEVDF) gives a processor to the thread whose slice would be over first, of those that have not had more than their share.
//! A thread that asks for short slices comes before others as soon as it has something to do, and gets no more time than they do. Who flushes
//! the log works for 20 us at a time, and everybody waits for it: with slices as long as the workers' it waited for the scheduler's tick where
//! these used all processors, 4 ms each time, and now and then for four of them.
//!
//! The same holds for who serves sessions while what takes long has all processors: that is [less urgent](Served::AfterOthers), but whoever has a
//! processor keeps it for a slice from those whose slices are no shorter. Beside a query on both of two processors one in a hundred of selects
//! took 2.8 ms, and takes 0.17. Not at other times: clients that share the processors would be interrupted for each of their requests, and send
//! fewer of them at once.
//!
//! The one `unsafe` block is a system call that rustix does not have. It reads a structure of the length that its first field says, and writes nothing.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

/// The shortest that Linux grants.
const SLICE_NS: u64 = 100_000;
/// What the kernel takes for no wish.
const SLICE_OF_ALL: u64 = 0;

/// As `nice -n 5`: about a quarter of the time that a thread gets which nobody has told so, and all of it where nobody else has work. Not less: other
/// programs on the machine are before it too, and what takes long is not to take for ever.
#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
const LOWER: i32 = 5;

/// As many turns without anything long later a server's thread is as urgent as others again: to change that takes two system calls.
const CALM_TURNS: u32 = 1_000;

/// What takes long, of the whole process.
static LONG: AtomicUsize = AtomicUsize::new(0);

/// Something takes long, and counts as that while this lives: [as work](Long::begins), or as one less [while it waits](Long::waits) for somebody, a
/// client perhaps that reads no further, and takes no processor.
#[derive(Debug)]
pub struct Long {
    waits: bool,
}

impl Long {
    pub fn begins() -> Long {
        Long::count(false)
    }

    /// By who has begun something long.
    pub fn waits() -> Long {
        Long::count(true)
    }

    fn count(waits: bool) -> Long {
        change(!waits);
        Long { waits }
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        change(self.waits);
    }
}

fn change(more: bool) {
    if more {
        LONG.fetch_add(1, Ordering::Relaxed)
    } else {
        LONG.fetch_sub(1, Ordering::Relaxed)
    };
}

/// Of a thread that serves sessions, turn by turn: whether it is to be served soon, as something takes long beside it.
#[derive(Default, Debug)]
pub struct Urgency {
    /// Turns since there was something. None: it is as urgent as others.
    calm_turns: Option<u32>,
}

impl Urgency {
    /// The thread has a turn. Whether it is urgent.
    pub fn turns(&mut self) -> bool {
        let is_long = LONG.load(Ordering::Relaxed) > 0;
        match &mut self.calm_turns {
            None if !is_long => {}
            None => {
                be_served_soon();
                self.calm_turns = Some(0);
            }
            Some(calm) if is_long => *calm = 0,
            Some(calm) if *calm < CALM_TURNS => *calm += 1,
            Some(_) => {
                be_served_as_others();
                self.calm_turns = None;
            }
        }
        self.calm_turns.is_some()
    }
}

/// How soon a thread gets a processor, from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    AsOthers,
    /// It does what takes long, and nobody waits for it who waits for little.
    AfterOthers,
}

/// Starts a thread for `work`, which is served like that whoever starts it: from who serves sessions it would have short slices, which Linux hands down.
pub fn start_thread<T: Send + 'static>(
    thread: Builder,
    served: Served,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread.spawn(move || {
        match served {
            Served::AsOthers => be_served_as_others(),
            Served::AfterOthers => give_way(),
        }
        work()
    })
}

/// From here on this thread works for a short time whenever it works, and others wait for that. Kernels before 6.12 take no notice.
pub fn be_served_soon() {
    ask_for_slices(SLICE_NS);
}

/// The end of that, and the beginning of a thread that may have been started in the midst of it.
pub(crate) fn be_served_as_others() {
    ask_for_slices(SLICE_OF_ALL);
}

/// From here on this thread comes after others.
fn give_way() {
    // Of Linux this is the thread's, elsewhere it would be the process's. Who may not have it, goes on as before.
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    let _ = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, now.max(LOWER)));
    be_served_as_others();
}

fn ask_for_slices(slice_ns: u64) {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    {
        let Ok(nice) = rustix::process::getpriority_process(None) else { return };
        let wanted = attributes(nice, slice_ns);
        // SAFETY: see the head of the module; `wanted` lives until the call is over. Refused, the thread goes on as before.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    let _ = slice_ns;
}

/// Of a thread as nice as it is.
#[cfg(target_os = "linux")]
fn attributes(nice: i32, slice_ns: u64) -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        // Not looked at: it stays what it is. Who runs the server with a real-time policy has better ones than slices, and this is refused.
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    /// What the kernel says of this thread; none where it is not allowed to ask.
    fn told() -> Option<libc::sched_attr> {
        let mut told = attributes(0, 0);
        // SAFETY: the kernel writes no more than the length that it is given, which is the structure's.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut told, told.size, 0) };
        (result == 0).then_some(told)
    }

    #[test]
    fn a_thread_asks_for_short_slices_and_stays_as_nice_as_it_is() {
        let Some(before) = told() else { return println!("skipped: sched_getattr is not allowed here") };
        let after = std::thread::spawn(|| {
            give_way();
            let nice = told().map(|of_it| of_it.sched_nice);
            be_served_soon();
            (nice, told())
        });
        let (nice, after) = after.join().expect("it ends");
        let after = after.expect("it was allowed before");
        assert_eq!(Some(after.sched_nice), nice);
        // Kernels that know no slices say nothing of them.
        if before.sched_runtime > 0 {
            assert_eq!(after.sched_runtime, SLICE_NS);
            assert_ne!(before.sched_runtime, SLICE_NS, "this one did not ask");
        }
    }

    #[test]
    fn a_thread_is_served_as_it_was_started_whoever_started_it() {
        let nice = || rustix::process::getpriority_process(None).expect("a thread has one");
        let slice = || told().map_or(0, |told| told.sched_runtime);
        let before = (nice(), slice());
        let started = std::thread::spawn(move || {
            be_served_soon();
            [Served::AsOthers, Served::AfterOthers].map(|served| {
                let thread = start_thread(Builder::new(), served, move || (nice(), slice()));
                thread.expect("a thread").join().expect("it ends")
            })
        });
        assert_eq!(started.join().expect("it ends"), [before, (before.0.max(LOWER), before.1)]);
        assert_eq!((nice(), slice()), before);
    }

    /// Nothing else of these tests takes long.
    #[test]
    fn who_serves_is_urgent_beside_what_takes_long_and_a_while_longer() {
        let slice = || told().map_or(0, |told| told.sched_runtime);
        std::thread::spawn(move || {
            let (mut urgency, before) = (Urgency::default(), slice());
            assert!(!urgency.turns());
            let long = [Long::begins(), Long::begins()];
            let waits = [Long::waits(), Long::waits()];
            assert!(!urgency.turns(), "both wait for somebody");
            drop(waits);
            assert!(urgency.turns());
            if before > 0 {
                assert_eq!(slice(), SLICE_NS);
            }
            drop(long);
            let urgent = (0..2 * CALM_TURNS).take_while(|_| urgency.turns()).count();
            assert_eq!(urgent, CALM_TURNS as usize);
            assert_eq!(slice(), before);
        })
        .join()
        .expect("it ends");
    }
}
