//! How many long statements run at a time? So many that every core has work, and no more: the others wait for a place in their order, and where too
//! many wait, new work is refused (53000) before everybody's takes forever.
//!
//! 1. A place is held while the statement uses a thread, not while it waits for a lock: so nobody who holds a place waits for one who wants one.
//!    So is that of a long *message*, while it is read and planned and its statement begins: these are others, since a statement may run for minutes.
//! 2. Only a statement that begins a transaction is refused. Who has a transaction open has locks, and the sooner it is over the better.

use super::threads::Threads;
use freshet_db::SqlError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub struct LongStatements {
    places: Arc<Semaphore>,
    /// Of long messages.
    messages: Arc<Semaphore>,
    running_max: usize,
    waiting_max: usize,
    waiting: AtomicUsize,
    refused: AtomicU64,
    threads: Threads,
}

/// What is seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongFacts {
    pub running: usize,
    pub waiting: usize,
    pub refused: u64,
}

/// A place of a long statement or message, given back when dropped.
pub struct LongPlace {
    _permit: OwnedSemaphorePermit,
}

/// Among those who wait, until dropped.
struct Waiting(Arc<LongStatements>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LongStatements {
    pub fn start(running_max: usize, waiting_max: usize, stack_bytes: usize) -> io::Result<Arc<LongStatements>> {
        Ok(Arc::new(LongStatements {
            places: Arc::new(Semaphore::new(running_max)),
            messages: Arc::new(Semaphore::new(running_max)),
            running_max,
            waiting_max,
            waiting: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            threads: Threads::start(stack_bytes)?,
        }))
    }

    /// A place for a long message, if there is one and nobody came before.
    pub fn try_message_place(&self) -> Option<LongPlace> {
        self.messages.clone().try_acquire_owned().ok().map(|permit| LongPlace { _permit: permit })
    }

    /// A place for a long message once there is one.
    pub fn message_place(&self) -> impl Future<Output = LongPlace> + use<> {
        let messages = self.messages.clone();
        async move { LongPlace { _permit: messages.acquire_owned().await.expect("the semaphore is never closed") } }
    }

    /// Runs a long statement, or takes a long message, that has a place. What it gives; nothing if it panicked.
    pub fn run<T: Send + 'static>(&self, statement: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        self.threads.run(statement)
    }

    /// A place, if there is one and nobody came before.
    pub fn try_place(&self) -> Option<LongPlace> {
        self.places.clone().try_acquire_owned().ok().map(|permit| LongPlace { _permit: permit })
    }

    /// A place once there is one. `is_new`: the statement begins its transaction.
    pub fn place(self: &Arc<Self>, is_new: bool) -> Result<impl Future<Output = LongPlace> + use<>, SqlError> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(self.clone());
        if is_new && before >= self.waiting_max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let message = "the server is overloaded: too many long statements wait already";
            let detail = format!("{} run, and {before} wait for one of them to end.", self.running_max);
            return Err(SqlError::new("53000", message).with_detail(detail).with_hint("Try again later."));
        }
        let places = self.places.clone();
        Ok(async move {
            let permit = places.acquire_owned().await.expect("the semaphore is never closed");
            drop(waiting);
            LongPlace { _permit: permit }
        })
    }

    pub fn facts(&self) -> LongFacts {
        LongFacts {
            running: self.running_max - self.places.available_permits(),
            waiting: self.waiting.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn places_are_given_in_order_and_new_work_is_refused_where_too_many_wait() {
        let long = LongStatements::start(1, 1, 64 << 10).expect("a thread");
        let first = long.try_place().expect("one is free");
        assert!(long.try_place().is_none());
        let mut second = Box::pin(long.place(true).expect("one may wait"));
        assert!(second.as_mut().now_or_never().is_none());
        let refused = long.place(true).err().expect("no more may");
        assert_eq!(refused.sqlstate, "53000");
        let mut third = Box::pin(long.place(false).expect("an open transaction may wait"));
        assert!(third.as_mut().now_or_never().is_none());
        assert_eq!(long.facts(), LongFacts { running: 1, waiting: 2, refused: 1 });
        drop(first);
        let second = second.as_mut().now_or_never().expect("its turn");
        assert!(third.as_mut().now_or_never().is_none());
        drop(third);
        drop(second);
        assert_eq!(long.facts(), LongFacts { running: 0, waiting: 0, refused: 1 });
    }
}
