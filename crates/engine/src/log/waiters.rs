//! Who is to be woken? Lists of wakers, and the order in which they are asked.
//!
//! ```text
//! waiter                                   the log
//!   look: is it so? then ready               change the state
//!   register, under the list's latch         take the list, under its latch
//!   look again                               wake who was on it
//! ```
//!
//! 1. Whoever registers before the list is taken is woken. Whoever registers after it took the latch later, so the state's change happened before
//!    his second look, which finds it.
//! 2. `StageWaiters` spares the log the latch where nobody waits: there the count of waiters and the count of changes take the latch's part, each
//!    side stores its own before it looks at the other's, all sequentially consistent.

use crate::ids::Epoch;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

/// One poll of a wait: `look` says how it ended, `register` leaves the waker with whoever ends it.
pub(super) fn poll_once<T>(look: impl Fn() -> Option<T>, register: impl FnOnce()) -> Poll<T> {
    if let Some(outcome) = look() {
        return Poll::Ready(outcome);
    }
    register();
    look().map_or(Poll::Pending, Poll::Ready)
}

/// Wakers by the epoch they wait for. One flush takes whole lists, so its cost per waiter is the wake itself, and the lists serve again.
pub(super) struct DurableWaiters {
    waiting: Mutex<Waiting>,
    counted: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Few: an epoch can be waited for from its first draw until it is durable.
    by_epoch: Vec<(Epoch, Vec<Waker>)>,
    /// Empty lists.
    spare: Vec<Vec<Waker>>,
}

impl Waiting {
    /// The list of the first epoch up to `durable` that has one.
    fn take_due(&mut self, durable: Epoch) -> Option<Vec<Waker>> {
        let of_first = self.by_epoch.iter().enumerate().min_by_key(|(_, (epoch, _))| *epoch);
        let (at, _) = of_first.filter(|(_, (epoch, _))| *epoch <= durable)?;
        Some(self.by_epoch.swap_remove(at).1)
    }

    fn keep(&mut self, list: Vec<Waker>) {
        /// As many as epochs have waiters at a time, mostly.
        const SPARES_MAX: usize = 4;
        if list.capacity() > 0 && self.spare.len() < SPARES_MAX {
            self.spare.push(list);
        }
    }
}

impl DurableWaiters {
    pub fn new() -> DurableWaiters {
        DurableWaiters { waiting: Mutex::new(Waiting::default()), counted: AtomicU64::new(0) }
    }

    /// How many there were, with those who flushed themselves.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Somebody waits without a place in a list.
    pub fn note_one(&self) {
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    pub fn register(&self, epoch: Epoch, waker: Waker) {
        self.note_one();
        let mut waiting = self.waiting.lock();
        if let Some((_, list)) = waiting.by_epoch.iter_mut().find(|(of, _)| *of == epoch) {
            return list.push(waker);
        }
        let mut list = waiting.spare.pop().unwrap_or_default();
        list.push(waker);
        waiting.by_epoch.push((epoch, list));
    }

    /// Wakes everyone who waits for an epoch up to `durable`.
    pub fn wake_to(&self, durable: Epoch) {
        let mut told = Vec::new();
        loop {
            let due = {
                let mut waiting = self.waiting.lock();
                waiting.keep(told);
                waiting.take_due(durable)
            };
            let Some(mut list) = due else { return };
            list.drain(..).for_each(Waker::wake);
            told = list;
        }
    }

    pub fn wake_all(&self) {
        self.wake_to(Epoch(u64::MAX));
    }
}

/// Tells those who were refused for lack of room that something changed.
pub(super) struct StageWaiters {
    /// Counts changes; a refused caller noted the count before it looked for room.
    changes: AtomicU64,
    waiting: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

impl StageWaiters {
    pub fn new() -> StageWaiters {
        StageWaiters { changes: AtomicU64::new(0), waiting: AtomicUsize::new(0), wakers: Mutex::new(Vec::new()) }
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub fn is_anyone_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// For space given back by a worker: nothing shared is written unless somebody waits.
    pub fn wake_if_waiting(&self) {
        if self.is_anyone_waiting() {
            self.wake();
        }
    }

    pub fn wake(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let wakers = {
            let mut wakers = self.wakers.lock();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut *wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub fn register(&self, waker: Waker) {
        let mut wakers = self.wakers.lock();
        wakers.push(waker);
        self.waiting.store(wakers.len(), Ordering::SeqCst);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicBool;
    use crate::sync::{Arc, thread};
    use std::task::Wake;

    struct Bell(AtomicBool);

    impl Wake for Bell {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn bell() -> (std::sync::Arc<Bell>, Waker) {
        let bell = std::sync::Arc::new(Bell(AtomicBool::new(false)));
        (bell.clone(), bell.into())
    }

    #[cfg(loom)]
    /// Waits for epoch 2 beside a log that completes 1 and 2, and tells of each when it is `told`: at the end whoever still waits was woken.
    fn wait_for_an_epoch(tells_first: bool) {
        struct Log {
            durable: AtomicU64,
            waiters: DurableWaiters,
        }
        let log = Arc::new(Log { durable: AtomicU64::new(0), waiters: DurableWaiters::new() });
        let flusher = {
            let log = Arc::clone(&log);
            // As `Log::complete` does.
            thread::spawn(move || {
                for epoch in [1, 2] {
                    if tells_first {
                        log.waiters.wake_to(Epoch(epoch));
                    }
                    log.durable.store(epoch, Ordering::Release);
                    if !tells_first {
                        log.waiters.wake_to(Epoch(epoch));
                    }
                }
            })
        };
        let (bell, waker) = bell();
        let look = || (log.durable.load(Ordering::Acquire) >= 2).then_some(());
        let polled = poll_once(look, || log.waiters.register(Epoch(2), waker));
        flusher.join().expect("the flusher does not panic");
        assert!(polled.is_ready() || bell.0.load(Ordering::SeqCst), "nobody woke who waits for what is durable");
    }

    #[cfg(loom)]
    #[test]
    fn loom_whoever_waits_for_an_epoch_is_woken() {
        loom::model(|| wait_for_an_epoch(false));
    }

    /// The model finds it.
    #[cfg(loom)]
    #[test]
    #[should_panic(expected = "nobody woke")]
    fn loom_telling_before_the_change_loses_a_waiter() {
        loom::model(|| wait_for_an_epoch(true));
    }

    #[cfg(shuttle)]
    /// Waits for room that another gives back: he looks whether anyone waits, and takes the latch only then.
    fn wait_for_room(looks_again: bool) {
        struct Log {
            room: AtomicBool,
            waiters: StageWaiters,
        }
        let log = Arc::new(Log { room: AtomicBool::new(false), waiters: StageWaiters::new() });
        let giver = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                log.room.store(true, Ordering::SeqCst);
                log.waiters.wake_if_waiting();
            })
        };
        let (bell, waker) = bell();
        let seen = log.waiters.changes();
        let look = || (log.waiters.changes() != seen || log.room.load(Ordering::SeqCst)).then_some(());
        let polled = match looks_again {
            true => poll_once(look, || log.waiters.register(waker)),
            false => {
                log.waiters.register(waker);
                Poll::Pending
            }
        };
        giver.join().expect("the giver does not panic");
        assert!(polled.is_ready() || bell.0.load(Ordering::SeqCst), "nobody woke who waits for room");
    }

    /// Not by loom, to which sequentially consistent accesses are no more than acquire and release.
    #[cfg(shuttle)]
    #[test]
    fn shuttle_whoever_waits_for_room_is_woken() {
        shuttle::check_dfs(|| wait_for_room(true), None);
    }

    /// The model finds it.
    #[cfg(shuttle)]
    #[test]
    #[should_panic(expected = "nobody woke")]
    fn shuttle_not_looking_again_loses_a_waiter() {
        shuttle::check_dfs(|| wait_for_room(false), None);
    }
}
