//! Who is told that an epoch is durable, that there is room again? Wakers, without any runtime.
//!
//! Every wait follows one order: register under the lock, then look again. The other side changes the state first and
//! takes the lock afterwards, so either the waiter sees the change or the change sees the waiter.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::ids::{Cts, DeviceId};

use super::waiters::poll_once;
use super::{Log, LogError};

/// Resolves when every commit up to a cts is durable, or with the error that poisoned the log. Dropping it early is fine.
#[must_use = "a commit is acknowledged only after its wait"]
pub struct DurableWait {
    /// None when it was durable at once: the common case for reads touches no shared count.
    log: Option<Arc<Log>>,
    cts: Cts,
    registered: Option<Waker>,
}

impl DurableWait {
    pub(super) fn new(log: &Arc<Log>, cts: Cts) -> DurableWait {
        let durable = log.durable() >= cts.epoch();
        DurableWait { log: (!durable).then(|| log.clone()), cts, registered: None }
    }

    /// What a poll would say, without registering: none while undecided.
    pub fn outcome(&self) -> Option<Result<(), LogError>> {
        let Some(log) = &self.log else {
            return Some(Ok(()));
        };
        if log.durable() >= self.cts.epoch() {
            return Some(Ok(()));
        }
        log.poisoned().map(Err)
    }

    /// Flushes on this thread, if that is all that is missing: holds it for about one flush of the device. The wait may go on.
    pub fn flush_once(&self) {
        self.log.iter().for_each(|log| log.flush_once(self.cts));
    }

    /// Blocks until resolved; some other thread drives the log.
    pub fn wait(self) -> Result<(), LogError> {
        block_on(self)
    }

    /// Blocks until resolved, driving the log on this thread whenever no other thread does.
    pub fn wait_inline(self) -> Result<(), LogError> {
        let Some(log) = self.log.clone() else {
            return Ok(());
        };
        let cts = self.cts;
        let mut waiting = pin!(self);
        loop {
            if log.flush_inline(cts)? {
                return Ok(());
            }
            // Another thread is on it, and may stop: look again soon.
            if let Some(outcome) = block_for(waiting.as_mut(), Duration::from_millis(1)) {
                return outcome;
            }
        }
    }
}

impl Future for DurableWait {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(log) = self.log.clone() else { return Poll::Ready(Ok(())) };
        if self.registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return self.outcome().map_or(Poll::Pending, Poll::Ready);
        }
        let register = || {
            log.request(self.cts.epoch());
            log.durable_waiters.register(self.cts.epoch(), cx.waker().clone());
        };
        let polled = poll_once(|| self.outcome(), register);
        self.registered = Some(cx.waker().clone());
        polled
    }
}

/// Resolves when it is worth reserving again: a group was sealed, a segment became ready, the log failed.
#[must_use = "reserving again without waiting is a busy loop"]
pub struct StageWait {
    log: Arc<Log>,
    device: DeviceId,
    missing: Missing,
    /// Of [`StageWaiters`], from before the refusal.
    seen: u64,
}

/// What a reservation lacked.
enum Missing {
    Bytes(u64),
    /// No more bulk frames staged than so many bytes.
    BulkRoom(u64),
}

impl StageWait {
    pub(super) fn new(log: &Arc<Log>, device: DeviceId, missing: u64, seen: u64) -> StageWait {
        StageWait { log: log.clone(), device, missing: Missing::Bytes(missing), seen }
    }

    pub(super) fn bulk(log: &Arc<Log>, device: DeviceId, staged_most: u64, seen: u64) -> StageWait {
        StageWait { log: log.clone(), device, missing: Missing::BulkRoom(staged_most), seen }
    }

    fn is_over(&self) -> bool {
        // Room is looked at too: space that was given back unused is told only to those who are registered.
        self.log.stage_waiters.changes() != self.seen
            || self.log.poisoned().is_some()
            || match self.missing {
                Missing::Bytes(bytes) => self.log.has_room(self.device, bytes),
                Missing::BulkRoom(most) => self.log.has_bulk_room(self.device, most),
            }
    }

    /// Blocks; some other thread drives the log.
    pub fn wait(self) {
        block_on(self);
    }

    /// Blocks, driving the log on this thread whenever no other thread does.
    pub fn wait_inline(self) {
        let log = self.log.clone();
        let mut waiting = pin!(self);
        while !waiting.is_over() {
            if log.step() != super::Progress::Worked {
                block_for(waiting.as_mut(), Duration::from_millis(1));
            }
        }
        log.wake_for_rest();
    }
}

impl std::fmt::Debug for StageWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StageWait(since {})", self.seen)
    }
}

impl Future for StageWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_once(|| self.is_over().then_some(()), || self.log.stage_waiters.register(cx.waker().clone()))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Unparks this thread. Made once: whoever is woken for what it waited for before looks again, and sleeps again.
fn own_waker() -> Waker {
    std::thread_local! {
        static OWN: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    }
    // A thread that is going away has none any more.
    OWN.try_with(Waker::clone).unwrap_or_else(|_| Waker::from(Arc::new(Unpark(std::thread::current()))))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = own_waker();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn block_for<F: Future>(mut future: Pin<&mut F>, timeout: Duration) -> Option<F::Output> {
    let waker = own_waker();
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
        return Some(output);
    }
    std::thread::park_timeout(timeout);
    match future.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
