//! How soon does a thread get a processor that others use?
//!
//! The scheduler of Linux (EEVDF) gives a processor to the thread whose slice would be over first, of those that have not had more than their share.
//! A thread that asks for short slices comes before others as soon as it has something to do, and gets no more time than they do. Who flushes
//! the log works for 20 us at a time, and everybody waits for it: with slices as long as the workers' it waited for the scheduler's tick where
//! these used all processors, 4 ms each time, and now and then for four of them.
//!
//! The one `unsafe` block is a system call that rustix does not have. It reads a structure of the length that its first field says, and writes nothing.

/// The shortest that Linux grants.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000;

/// From here on this thread works for a short time whenever it works, and others wait for that. Kernels before 6.12 take no notice.
pub fn be_served_soon() {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    {
        let Ok(nice) = rustix::process::getpriority_process(None) else { return };
        let wanted = attributes(nice, SLICE_NS);
        // SAFETY: see the head of the module; `wanted` lives until the call is over. Refused, the thread goes on as before.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
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
            crate::sync::priority::give_way();
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
}
