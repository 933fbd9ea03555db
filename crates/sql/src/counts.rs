//! How much has been done? Counters of each thread, and their sums for statistics views and for who watches from outside.
//!
//! Of each thread and not of each session: a thread's are in its cache, where those of a thousand sessions that take turns on it are cold, which was
//! seen as a tenth of an insert.
//!
//! Invariants:
//! 1. A counter has one writer, its thread: counting is a load and a store, no locked instruction and no shared cache line.
//! 2. Sums never fall: a thread's counts are added to those of the threads that are gone under the lock under which sums are made.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Statements that ended well; the implicit BEGIN and COMMIT of a pipeline are none.
    Statements,
    /// Statements that ended with an error.
    Errors,
    Commits,
    Rollbacks,
    /// Rows that statements gave.
    RowsGiven,
    RowsInserted,
    RowsUpdated,
    RowsDeleted,
    /// Times a statement had to wait for a lock, and those that ended so.
    LockWaits,
    LockTimeouts,
    Deadlocks,
    /// 40001: another transaction was faster.
    SerializationFailures,
    /// CHECKPOINT, by whoever says it.
    CheckpointsAsked,
}

const COUNTS: usize = Count::CheckpointsAsked as usize + 1;

/// One session's, or a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums([u64; COUNTS]);

impl Sums {
    pub fn get(&self, what: Count) -> u64 {
        self.0[what as usize]
    }
}

/// On lines of its own: its thread writes it with every statement.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Counters([AtomicU64; COUNTS]);

impl Counters {
    fn add_to(&self, sums: &mut Sums) {
        for (sum, counter) in sums.0.iter_mut().zip(&self.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }

    #[inline]
    fn add(&self, counts: &[(Count, u64)]) {
        for &(what, more) in counts {
            let counter = &self.0[what as usize];
            // Invariant 1: nobody else writes it.
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }
}

/// What this thread counts for one database.
struct Own {
    all: Weak<AllCounts>,
    counters: Arc<Counters>,
}

impl Own {
    #[inline]
    fn is_of(&self, all: &Arc<AllCounts>) -> bool {
        std::ptr::eq(self.all.as_ptr(), Arc::as_ptr(all))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let mut threads = all.0.lock();
        self.counters.add_to(&mut threads.gone);
        threads.live.retain(|counters| !Arc::ptr_eq(counters, &self.counters));
    }
}

std::thread_local! {
    /// Of the databases that this thread has counted for, the last one first.
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

/// A session's way to the counters.
#[derive(Clone, Debug)]
pub(crate) struct Counting(Arc<AllCounts>);

impl Counting {
    pub fn add(&self, what: Count, more: u64) {
        self.add_all(&[(what, more)]);
    }

    #[inline]
    pub fn add_all(&self, counts: &[(Count, u64)]) {
        let added = OWN.try_with(|own| match own.borrow().first() {
            Some(first) if first.is_of(&self.0) => {
                first.counters.add(counts);
                true
            }
            _ => false,
        });
        if added != Ok(true) {
            self.add_to_another(counts);
        }
    }

    #[cold]
    fn add_to_another(&self, counts: &[(Count, u64)]) {
        let added = OWN.try_with(|own| {
            // What is dropped here is of databases that are gone, and asks nobody.
            let mut own = own.borrow_mut();
            own.retain(|one| one.all.strong_count() > 0);
            let at = own.iter().position(|one| one.is_of(&self.0)).unwrap_or_else(|| {
                own.push(self.0.join());
                own.len() - 1
            });
            own[..=at].rotate_right(1);
            own[0].counters.add(counts);
        });
        // The thread is about to end.
        if added.is_err() {
            let mut threads = self.0.0.lock();
            counts.iter().for_each(|&(what, more)| threads.gone.0[what as usize] += more);
        }
    }
}

#[derive(Default, Debug)]
struct Threads {
    live: Vec<Arc<Counters>>,
    /// Of those that are gone.
    gone: Sums,
}

/// All threads that have counted for a database.
#[derive(Default, Debug)]
pub struct AllCounts(Mutex<Threads>);

impl AllCounts {
    /// For a session.
    pub(crate) fn counting(self: &Arc<AllCounts>) -> Counting {
        Counting(self.clone())
    }

    fn join(self: &Arc<AllCounts>) -> Own {
        let counters = Arc::<Counters>::default();
        self.0.lock().live.push(counters.clone());
        Own { all: Arc::downgrade(self), counters }
    }

    pub fn sums(&self) -> Sums {
        let threads = self.0.lock();
        let mut sums = threads.gone;
        threads.live.iter().for_each(|counters| counters.add_to(&mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(all: &AllCounts, what: Count) -> u64 {
        all.sums().get(what)
    }

    #[test]
    fn counts_outlive_sessions_and_threads() {
        let all = Arc::<AllCounts>::default();
        let (first, second) = (all.counting(), all.counting());
        first.add_all(&[(Count::Commits, 2), (Count::RowsGiven, 7)]);
        second.add(Count::Commits, 3);
        drop(second);
        let elsewhere = first.clone();
        std::thread::spawn(move || elsewhere.add(Count::Commits, 10)).join().expect("counts");
        assert_eq!((sum(&all, Count::Commits), sum(&all, Count::RowsGiven)), (15, 7));
        assert_eq!(all.0.lock().live.len(), 1, "the other thread's are added to those that are gone");
        first.add(Count::Errors, 1);
        drop(first);
        assert_eq!((sum(&all, Count::Commits), sum(&all, Count::Errors)), (15, 1));
    }

    #[test]
    fn databases_that_take_turns_on_a_thread_count_for_themselves() {
        let both = [Arc::<AllCounts>::default(), Arc::<AllCounts>::default()];
        for turn in 0..10 {
            both[turn % 2].counting().add(Count::Statements, 1 + turn as u64);
        }
        assert_eq!(both.each_ref().map(|all| sum(all, Count::Statements)), [25, 30]);
        assert!(both.iter().all(|all| all.0.lock().live.len() == 1));
        let [first, second] = both;
        drop(second);
        Arc::<AllCounts>::default().counting().add(Count::Statements, 1);
        let known = OWN.with(|own| own.borrow().iter().filter(|one| one.is_of(&first)).count());
        assert_eq!(known, 1);
        assert!(OWN.with(|own| own.borrow().len()) <= 2, "what counted for a database that is gone is gone");
    }

    #[test]
    fn what_a_thread_counts_at_its_very_end_is_there() {
        struct AtEnd(Counting);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                self.0.add(Count::Rollbacks, 1);
            }
        }
        std::thread_local! {
            static LAST: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        }
        let all = Arc::<AllCounts>::default();
        let counting = all.counting();
        let thread = std::thread::spawn(move || {
            LAST.with(|last| *last.borrow_mut() = Some(AtEnd(counting.clone())));
            counting.add(Count::Commits, 1);
        });
        thread.join().expect("counts");
        assert_eq!((sum(&all, Count::Commits), sum(&all, Count::Rollbacks)), (1, 1));
    }
}
