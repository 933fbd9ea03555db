//! How much has been done? Counters of each session, and their sums for statistics views and for who watches from outside.
//!
//! Invariants:
//! 1. A counter has one writer, its session: counting is a load and a store, no locked instruction and no shared cache line.
//! 2. Sums never fall: a session's counts are added to those of the sessions that are gone under the lock under which sums are made.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// On lines of its own: its session writes it with every statement.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Counters([AtomicU64; COUNTS]);

impl Counters {
    fn add_to(&self, sums: &mut Sums) {
        for (sum, counter) in sums.0.iter_mut().zip(&self.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

/// A session's, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    own: Arc<Counters>,
    all: Arc<AllCounts>,
}

impl Counting {
    #[inline]
    pub fn add(&self, what: Count, more: u64) {
        let counter = &self.own.0[what as usize];
        // Invariant 1: nobody else writes it.
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut sessions = self.all.0.lock();
        self.own.add_to(&mut sessions.gone);
        sessions.live.retain(|counters| !Arc::ptr_eq(counters, &self.own));
    }
}

#[derive(Default, Debug)]
struct Sessions {
    live: Vec<Arc<Counters>>,
    /// Of those that are gone.
    gone: Sums,
}

/// All sessions of a database.
#[derive(Default, Debug)]
pub struct AllCounts(Mutex<Sessions>);

impl AllCounts {
    pub(crate) fn join(self: &Arc<AllCounts>) -> Counting {
        let own = Arc::<Counters>::default();
        self.0.lock().live.push(own.clone());
        Counting { own, all: self.clone() }
    }

    pub fn sums(&self) -> Sums {
        let sessions = self.0.lock();
        let mut sums = sessions.gone;
        sessions.live.iter().for_each(|counters| counters.add_to(&mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_outlive_their_sessions() {
        let all = Arc::<AllCounts>::default();
        let (first, second) = (all.join(), all.join());
        first.add(Count::Commits, 2);
        second.add(Count::Commits, 3);
        second.add(Count::Errors, 1);
        assert_eq!((all.sums().get(Count::Commits), all.sums().get(Count::Errors)), (5, 1));
        drop(second);
        assert_eq!((all.sums().get(Count::Commits), all.sums().get(Count::Errors)), (5, 1));
        first.add(Count::Commits, 1);
        drop(first);
        assert_eq!(all.sums().get(Count::Commits), 6);
        assert!(all.0.lock().live.is_empty());
    }
}
