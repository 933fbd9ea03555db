//! Who does work that is many pieces? Threads that take the next piece of a list until it is empty: a recovery's, an index's.
//!
//! 1. No piece depends on another: any order and any number of threads give the same memory. Tests shuffle.
//! 2. The first error ends the work; pieces under way finish.
//! 3. With one thread everything happens on the caller's, so that a simulator drives it. With more the caller's is one of them: where the system
//!    gives no others, it does all the work.

use crate::io::urgency::be_served_as_others;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// Runs `work` on the caller's thread and on up to `others` more, as many as the system gives.
pub(crate) fn with_others(others: usize, work: impl Fn() + Sync) {
    on_threads(others, Builder::new, &work);
}

fn on_threads(others: usize, thread: impl Fn() -> Builder, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 0..others {
            let other = || {
                be_served_as_others();
                work();
            };
            if thread().spawn_scoped(scope, other).is_err() {
                break;
            }
        }
        work();
    });
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    pub threads: usize,
    /// Not zero: the pieces are taken in an order drawn from it.
    pub seed: u64,
}

impl Crew {
    /// Twice the threads, where work waits for a device half of the time: one waits while another computes. Eight keep a device
    /// busy; beyond that only more cores need more.
    pub fn doubled(self) -> Crew {
        const ENOUGH: usize = 8;
        let threads = if self.threads > 1 { (self.threads * 2).min(ENOUGH).max(self.threads) } else { 1 };
        Crew { threads, ..self }
    }

    /// Does `count` pieces of work. Each thread has a state of its own, which it hands in at its end.
    pub fn work<S, E: Send>(
        self,
        count: usize,
        start: impl Fn() -> S + Sync,
        piece: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
        finish: impl Fn(S) + Sync,
    ) -> Result<(), E> {
        let order = self.order(count);
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<E>> = Mutex::new(None);
        let run = || {
            let mut state = start();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    break;
                }
                let at = order.as_ref().map_or(at, |order| order[at]);
                if let Err(error) = piece(&mut state, at) {
                    next.store(count, Ordering::Relaxed);
                    failed.lock().get_or_insert(error);
                    break;
                }
            }
            finish(state);
        };
        with_others(self.threads.min(count).saturating_sub(1), run);
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// A permutation (Fisher and Yates), if one is wanted.
    fn order(self, count: usize) -> Option<Vec<usize>> {
        if self.seed == 0 {
            return None;
        }
        let mut order: Vec<usize> = (0..count).collect();
        let mut state = self.seed;
        for at in (1..count).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(at, (state % (at as u64 + 1)) as usize);
        }
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_in_any_order_by_any_number() {
        for (threads, seed) in [(1, 0), (1, 7), (4, 0), (4, 9), (64, 3)] {
            let done = Mutex::new(Vec::new());
            let crew = Crew { threads, seed };
            crew.work(
                37,
                Vec::new,
                |mine: &mut Vec<usize>, at| {
                    mine.push(at);
                    Ok::<(), ()>(())
                },
                |mine| done.lock().extend(mine),
            )
            .expect("nothing fails");
            let mut done = done.into_inner();
            if threads == 1 {
                assert_eq!(done == (0..37).collect::<Vec<_>>(), seed == 0);
            }
            done.sort_unstable();
            assert_eq!(done, (0..37).collect::<Vec<_>>());
        }
    }

    #[test]
    fn without_other_threads_the_caller_does_the_work() {
        let done = Mutex::new(Vec::new());
        // No system gives a stack of that size.
        on_threads(3, || Builder::new().stack_size(1 << 60), &|| done.lock().push(std::thread::current().id()));
        assert_eq!(done.into_inner(), [std::thread::current().id()]);
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let done = AtomicUsize::new(0);
        let crew = Crew { threads: 1, seed: 0 };
        let result = crew.work(
            100,
            || (),
            |(), at| {
                done.fetch_add(1, Ordering::Relaxed);
                if at == 5 { Err(at) } else { Ok(()) }
            },
            |()| (),
        );
        assert_eq!((result, done.into_inner()), (Err(5), 6));
    }
}
