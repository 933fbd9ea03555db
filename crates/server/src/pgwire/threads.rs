//! On which threads do long statements run? On those of one pool, which begins with one and makes another where all are busy.
//!
//! 1. The first one is there from the beginning. So where the system gives no more (ulimit -u, pids.max, TasksMax), work waits for a thread that
//!    is there; nothing is refused, and nothing ends.
//! 2. They give way to the workers' threads: a long statement takes what the short ones leave, and they do not wait for its turn to end
//!    (`freshet_engine::io::urgency`).
//! 3. Work that waits, waits only for work that ends or gives its thread back by itself ([`super::long`], 1).

use freshet_engine::io::urgency::{Long, Served, start_thread};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::oneshot;

/// A thread without work ends after this time, but for the last one.
const KEEP: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    stack_bytes: usize,
    waiting: VecDeque<Work>,
    threads: usize,
    /// Threads that have no work, begun or not: one that was just made counts before it runs, so that nobody makes another for the same work.
    free: usize,
    is_closed: bool,
    /// How often the system gave none.
    refused: u64,
}

struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

/// The pool; dropped, its threads end with the work that they have.
pub struct Threads(Arc<Pool>);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Threads {
    pub fn start(stack_bytes: usize) -> io::Result<Threads> {
        let state = Mutex::new(State { stack_bytes, ..State::default() });
        let pool = Arc::new(Pool { state, changed: Condvar::new() });
        pool.add_thread(&mut pool.lock())?;
        Ok(Threads(pool))
    }

    /// What the work gives; nothing if it panicked.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (give, given) = oneshot::channel();
        let work = move || {
            // Nobody may want it any more.
            let _ = give.send(work());
        };
        let pool = &self.0;
        let mut state = pool.lock();
        state.waiting.push_back(Box::new(work));
        if state.free < state.waiting.len()
            && let Err(error) = pool.add_thread(&mut state)
        {
            state.refused += 1;
            let (refused, threads) = (state.refused, state.threads);
            drop(state);
            if refused.is_power_of_two() {
                tracing::warn!(
                    "{refused} long statements got no thread of their own and wait for one of {threads}: {error}"
                );
            }
        }
        pool.changed.notify_one();
        given
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = self.clone();
        let thread = Builder::new().name("freshet-long".to_owned()).stack_size(state.stack_bytes);
        start_thread(thread, Served::AfterOthers, move || {
            let mut next = pool.next(pool.lock());
            while let Some(work) = next {
                let long = Long::begins();
                // Who waits for it is told by what it does not give.
                let _ = catch_unwind(AssertUnwindSafe(work));
                drop(long);
                let mut state = pool.lock();
                state.free += 1;
                next = pool.next(state);
            }
        })?;
        state.threads += 1;
        state.free += 1;
        Ok(())
    }

    /// Work for a thread that is free. `None`: the thread is to end.
    fn next(&self, mut state: MutexGuard<'_, State>) -> Option<Work> {
        loop {
            if let Some(work) = state.waiting.pop_front() {
                state.free -= 1;
                return Some(work);
            }
            if state.is_closed {
                return None;
            }
            let waited = self.changed.wait_timeout(state, KEEP).unwrap_or_else(PoisonError::into_inner);
            let is_late = waited.1.timed_out();
            state = waited.0;
            if is_late && state.waiting.is_empty() && state.threads > 1 {
                state.threads -= 1;
                state.free -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn as_many_threads_as_work_and_one_is_enough() {
        let threads = Threads::start(64 << 10).expect("a thread");
        let meet = |number, all: &Arc<Barrier>| {
            let all = all.clone();
            threads.run(move || {
                all.wait();
                number
            })
        };
        let done = |given: Vec<oneshot::Receiver<i32>>| -> Vec<i32> {
            given.into_iter().map(|given| given.blocking_recv().expect("it is done")).collect()
        };
        let three = Arc::new(Barrier::new(3));
        assert_eq!(done((0..3).map(|number| meet(number, &three)).collect()), [0, 1, 2]);
        // No system gives a stack of that size.
        threads.0.lock().stack_bytes = 1 << 60;
        let four = Arc::new(Barrier::new(4));
        let busy: Vec<_> = (0..3).map(|number| meet(number, &four)).collect();
        let waiting = (3..6).map(|number| threads.run(move || number)).collect();
        assert!(threads.0.lock().refused > 0);
        four.wait();
        assert_eq!((done(busy), done(waiting)), (vec![0, 1, 2], vec![3, 4, 5]));
    }

    #[test]
    fn who_waits_for_work_that_broke_is_told() {
        let threads = Threads::start(64 << 10).expect("a thread");
        assert!(threads.run(|| std::panic::resume_unwind(Box::new(()))).blocking_recv().is_err());
        assert_eq!(threads.run(|| 1).blocking_recv(), Ok(1), "the thread is still there");
    }
}
