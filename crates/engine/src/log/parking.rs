//! Where do the threads sleep that drive the log? Until there is work, or a while.
//!
//! ```text
//! driver                                    who makes work
//!   counts itself among those parked          makes it, sequentially consistent
//!   takes the mutex, notes the wakes          looks whether anyone is parked; if not, that is all
//!   looks for work; finds it: up again        takes the mutex, counts a wake, notifies
//!   sleeps while no wake was counted
//! ```
//!
//! 1. Of driver and maker, one sees the other: a driver that is not seen finds the work.
//! 2. A wake between a driver's look and its sleep is counted after the driver noted the wakes: it does not sleep.
//! 3. Where nobody sleeps, work costs a look at a word that nobody writes.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Parking {
    parked: AtomicUsize,
    wakes: Mutex<u64>,
    changed: Condvar,
}

impl Parking {
    /// Sleeps until a wake or the timeout, unless `has_work` once the sleeper can be seen.
    pub fn park(&self, timeout: Duration, has_work: impl FnOnce() -> bool) {
        let deadline = Instant::now() + timeout;
        self.parked.fetch_add(1, Ordering::SeqCst);
        let mut wakes = self.wakes.lock();
        let before = *wakes;
        let mut is_over = has_work();
        while !is_over && *wakes == before {
            (wakes, is_over) = self.changed.wait_until(wakes, deadline);
        }
        drop(wakes);
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether anyone sleeps or is about to. Read after a sequentially consistent store of the work.
    pub fn is_anyone_parked(&self) -> bool {
        self.parked.load(Ordering::SeqCst) > 0
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn wakes(&self) -> u64 {
        *self.wakes.lock()
    }

    pub fn wake(&self) {
        *self.wakes.lock() += 1;
        self.changed.notify_all();
    }
}

/// Not by loom, to which sequentially consistent accesses are no more than acquire and release.
#[cfg(all(test, shuttle))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicU64;
    use crate::sync::{Arc, thread};

    struct Log {
        parking: Parking,
        /// Pieces of work that wait.
        work: AtomicU64,
        done: AtomicU64,
    }

    /// Works until all is done.
    fn drive(log: &Log, all: u64, looks_again: bool) {
        while log.done.load(Ordering::SeqCst) < all {
            let taken = log.work.swap(0, Ordering::SeqCst);
            if log.done.fetch_add(taken, Ordering::SeqCst) + taken == all {
                // As the log does when it is closed.
                log.parking.wake();
            }
            let has_work = || log.work.load(Ordering::SeqCst) > 0 || log.done.load(Ordering::SeqCst) == all;
            if looks_again {
                log.parking.park(Duration::from_secs(1), has_work);
            } else if !has_work() {
                log.parking.park(Duration::from_secs(1), || false);
            }
        }
    }

    /// Drivers beside one who makes so much work, one by one: a wake-up that is lost is a driver that sleeps for ever.
    fn nobody_sleeps_beside_work(drivers: usize, work: u64, looks_again: bool) {
        let log = Arc::new(Log { parking: Parking::default(), work: AtomicU64::new(0), done: AtomicU64::new(0) });
        let drivers: Vec<_> = (0..drivers)
            .map(|_| {
                let log = Arc::clone(&log);
                thread::spawn(move || drive(&log, work, looks_again))
            })
            .collect();
        for _ in 0..work {
            log.work.fetch_add(1, Ordering::SeqCst);
            if log.parking.is_anyone_parked() {
                log.parking.wake();
            }
        }
        drivers.into_iter().for_each(|driver| driver.join().expect("a driver does not panic"));
    }

    #[test]
    fn shuttle_no_driver_sleeps_beside_work() {
        shuttle::check_dfs(|| nobody_sleeps_beside_work(1, 1, true), None);
    }

    #[test]
    fn shuttle_no_driver_of_two_sleeps_beside_work() {
        shuttle::check_random(|| nobody_sleeps_beside_work(2, 2, true), 200_000);
    }

    /// The model finds it.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn shuttle_looking_before_it_can_be_seen_loses_a_wake_up() {
        shuttle::check_dfs(|| nobody_sleeps_beside_work(1, 1, false), None);
    }
}
