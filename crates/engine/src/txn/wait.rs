//! Waiting without parking a thread: tokens that are futures, and a way for threads to wait for a future.

use crate::log::StageWait;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Told once; one waits.
#[derive(Default, Debug)]
pub(super) struct Signal {
    state: Mutex<SignalState>,
}

#[derive(Default, Debug)]
struct SignalState {
    told: bool,
    waker: Option<Waker>,
}

impl Signal {
    pub fn tell(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.told = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.told {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[derive(Debug)]
enum On {
    Nothing,
    Lock(Arc<Signal>),
    /// A checkpoint that frees log.
    Space(Arc<Signal>),
    Stage(StageWait),
}

/// A wait for a lock, for a transaction's end or for room in the log. A future for event loops; `block` for threads.
#[derive(Debug)]
pub struct WaitToken {
    on: On,
    /// What was waited for already for the same lock.
    since: Option<Instant>,
}

impl WaitToken {
    fn on(on: On) -> WaitToken {
        WaitToken { on, since: None }
    }

    /// It goes on with a wait for the same lock that began then.
    pub(super) fn since(self, began: Instant) -> WaitToken {
        WaitToken { since: Some(began), ..self }
    }

    /// How long the lock was waited for before.
    pub fn waited(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ready at once: run the statement again.
    pub fn ready() -> WaitToken {
        WaitToken::on(On::Nothing)
    }

    pub(super) fn signal(signal: Arc<Signal>) -> WaitToken {
        WaitToken::on(On::Lock(signal))
    }

    pub(super) fn space(signal: Arc<Signal>) -> WaitToken {
        WaitToken::on(On::Space(signal))
    }

    pub(super) fn stage(wait: StageWait) -> WaitToken {
        WaitToken::on(On::Stage(wait))
    }

    /// Whether it waits for another transaction, not for room in the log.
    pub fn is_lock(&self) -> bool {
        matches!(self.on, On::Lock(_))
    }

    /// Waits on the calling thread; false if `limit` passed first.
    pub fn block(&mut self, limit: Option<Duration>) -> bool {
        block_on(self, limit).is_some()
    }
}

impl Future for WaitToken {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.on {
            On::Nothing => Poll::Ready(()),
            On::Lock(signal) | On::Space(signal) => signal.poll(context),
            On::Stage(wait) => Pin::new(wait).poll(context),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread until it is ready or `limit` has passed.
pub fn block_on<F: Future + Unpin>(future: &mut F, limit: Option<Duration>) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = limit.map(|l| Instant::now() + l);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                std::thread::park_timeout(left);
            }
        }
    }
}
