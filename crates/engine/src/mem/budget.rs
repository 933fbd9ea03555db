//! How much memory is taken, for what, and may there be more?
//!
//! | claim | made by | may fill |
//! |---|---|---|
//! | [`Claim::Growth`] | rows, index entries, results, sessions, caches | the limit less the reserve, and less what finishing took beyond it |
//! | [`Claim::Read`] | results and what leads to them | the limit less half of the reserve |
//! | [`Claim::Bulk`] | of these, what one owner holds beyond a quarter of the reserve | the limit less the reserve and a quarter of it |
//! | [`Claim::Finish`] | versions and write lists of updates and deletes | the limit |
//! | [`Claim::Forced`] | what can no longer be refused: inner nodes above a leaf that has split, a recovery | is counted afterwards |
//!
//! With G what growth holds, F what finishing holds (versions, write lists, garbage), R the reserve and L the limit:
//!
//! 1. Growth of b bytes is granted iff G + b + max(F, R) <= L: rows never take the room that an update or a delete needs to end.
//! 2. Reading of b bytes is granted iff G + b + max(F, R / 2) <= L: reads go on where growth has stopped. A large one is granted iff
//!    G + b + max(F, R) + R / 4 <= L: a query that wants all there is fails by itself, before others can no longer grow. Finishing is granted iff G + F + b <= L; a growing statement's own versions may fill half of the reserve only.
//! 3. What a restart holds at its peak, pages and indexes as they are now and what replay and the sorting of keys take on
//!    top, is at most L too: growth is refused before either would pass.
//! 4. Whoever takes gives back exactly that: an [`Account`] at the latest when it is dropped.
//! 5. What is resident and nobody took (code paged in, what the allocator keeps) is measured and part of G where the database is the whole
//!    process: [`Kind::Unaccounted`]. Between two looks it may take from R.
//!
//! Counters are relaxed and shared, so takers take in pieces: pages, chunks of versions, index nodes, results by doubling. A refusal
//! may be met by two who would have fitted one after the other; nothing passes the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What memory is for; `freshet_memory` tells it by these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages of all tables.
    Pages,
    /// What is kept of every page, session place and chunk that the limits allow, and of free slots.
    Tables,
    Indexes,
    /// Version nodes.
    Versions,
    /// Locks and writes of open transactions, and what committed ones left to collect.
    Transactions,
    /// What the process took before the database was opened, where it was told.
    Program,
    /// Staging, groups being written, zeros for segments; fixed at start.
    LogBuffers,
    /// Connections and their buffers.
    Sessions,
    /// Prepared statements.
    Statements,
    /// Results, sorts, groups, portals.
    Queries,
    /// What is resident beyond all the others, as last measured.
    Unaccounted,
}

impl Kind {
    pub const ALL: [Kind; 11] = [
        Kind::Pages,
        Kind::Tables,
        Kind::Indexes,
        Kind::Versions,
        Kind::Transactions,
        Kind::Program,
        Kind::LogBuffers,
        Kind::Sessions,
        Kind::Statements,
        Kind::Queries,
        Kind::Unaccounted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Pages => "pages",
            Kind::Tables => "page metadata",
            Kind::Indexes => "indexes",
            Kind::Versions => "versions",
            Kind::Transactions => "transactions",
            Kind::Program => "program",
            Kind::LogBuffers => "log buffers",
            Kind::Sessions => "sessions",
            Kind::Statements => "statement cache",
            Kind::Queries => "queries",
            Kind::Unaccounted => "unaccounted",
        }
    }

    /// Held by what has to finish rather than by what stays.
    fn finishes(self) -> bool {
        matches!(self, Kind::Versions | Kind::Transactions)
    }

    /// A restart brings it back.
    fn is_restored(self) -> bool {
        matches!(self, Kind::Pages | Kind::Tables | Kind::Indexes | Kind::Program)
    }
}

/// How urgent a take is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    Growth,
    Read,
    /// What [`Claim::Read`] becomes, for an owner that holds much.
    Bulk,
    Finish,
    Forced,
}

/// What a restart takes beyond the pages and indexes that it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RestartCosts {
    /// Buffers of all its threads.
    pub fixed_bytes: u64,
    /// Per page in use, in bytes.
    pub page_bytes: u64,
}

/// Ordered indexes are built from sorted runs, which grow by doubling: at most twice what the indexes take.
const SORT_FACTOR: u64 = 2;

/// The memory limit and what is taken of it.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: u64,
    reserve_bytes: u64,
    restart: RestartCosts,
    growing: AtomicU64,
    finishing: AtomicU64,
    kinds: [AtomicU64; Kind::ALL.len()],
    /// Bytes of the ordered indexes that a restart builds at the same time, as last counted, and what all have grown by since.
    sorted_together: AtomicU64,
    ordered_since: AtomicU64,
}

impl Budget {
    #[cfg(test)]
    pub fn new(limit_bytes: u64) -> Budget {
        Budget::with_restart(limit_bytes, RestartCosts::default())
    }

    /// An eighth of the limit is the reserve.
    pub fn with_restart(limit_bytes: u64, restart: RestartCosts) -> Budget {
        Budget {
            limit_bytes,
            reserve_bytes: limit_bytes / 8,
            restart,
            growing: AtomicU64::new(0),
            finishing: AtomicU64::new(0),
            kinds: Default::default(),
            sorted_together: AtomicU64::new(0),
            ordered_since: AtomicU64::new(0),
        }
    }

    /// Takes `bytes`, or refuses.
    pub fn take(&self, kind: Kind, bytes: u64, claim: Claim) -> bool {
        let counter = if kind.finishes() { &self.finishing } else { &self.growing };
        let before = counter.fetch_add(bytes, Relaxed);
        self.kinds[kind as usize].fetch_add(bytes, Relaxed);
        let granted = match (claim, kind.finishes()) {
            (Claim::Forced, _) => true,
            (Claim::Finish, _) => self.growing.load(Relaxed) + self.finishing.load(Relaxed) <= self.limit_bytes,
            (Claim::Read, false) => {
                let kept = self.finishing.load(Relaxed).max(self.reserve_bytes / 2);
                before + bytes + kept <= self.limit_bytes
            }
            (Claim::Bulk, false) => {
                let kept = self.finishing.load(Relaxed).max(self.reserve_bytes) + self.reserve_bytes / 4;
                before + bytes + kept <= self.limit_bytes
            }
            (Claim::Growth | Claim::Read | Claim::Bulk, true) => {
                // Rows may come into free slots where nothing else may grow.
                let (now, half) = (before + bytes, self.reserve_bytes / 2);
                let together = self.growing.load(Relaxed) + now;
                together + half <= self.limit_bytes || now <= half && together <= self.limit_bytes
            }
            (Claim::Growth, false) => {
                let kept = self.finishing.load(Relaxed).max(self.reserve_bytes);
                before + bytes + kept <= self.limit_bytes && (!kind.is_restored() || self.can_restart())
            }
        };
        if !granted {
            self.give(kind, bytes);
        }
        granted
    }

    pub fn give(&self, kind: Kind, bytes: u64) {
        let counter = if kind.finishes() { &self.finishing } else { &self.growing };
        counter.fetch_sub(bytes, Relaxed);
        self.kinds[kind as usize].fetch_sub(bytes, Relaxed);
    }

    /// Whether a restart with what is there now keeps within the limit.
    fn can_restart(&self) -> bool {
        self.restart_bytes() <= self.limit_bytes
    }

    /// The most that a restart would hold at once.
    pub fn restart_bytes(&self) -> u64 {
        let restored: u64 = Kind::ALL.into_iter().filter(|k| k.is_restored()).map(|k| self.used_for(k)).sum();
        let pages = self.used_for(Kind::Pages) / super::PAGE_BYTES as u64;
        restored + self.restart.fixed_bytes + pages * self.restart.page_bytes + self.sort_bytes()
    }

    fn sort_bytes(&self) -> u64 {
        (self.sorted_together.load(Relaxed) + self.ordered_since.load(Relaxed)) * SORT_FACTOR
    }

    /// The most bytes of ordered indexes that a restart builds at the same time, counted now.
    pub fn set_sorted_together(&self, bytes: u64) {
        self.ordered_since.store(0, Relaxed);
        self.sorted_together.store(bytes, Relaxed);
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    pub fn used_bytes(&self) -> u64 {
        self.growing.load(Relaxed) + self.finishing.load(Relaxed)
    }

    pub fn used_for(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].load(Relaxed)
    }
}

/// What one owner has taken; given back when it goes.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    kind: Kind,
    ordered: bool,
    bytes: AtomicU64,
}

impl Account {
    pub(crate) fn new(budget: &Arc<Budget>, kind: Kind) -> Account {
        Account { budget: budget.clone(), kind, ordered: false, bytes: AtomicU64::new(0) }
    }

    /// That of an index which a restart sorts.
    pub(crate) fn of_ordered(budget: &Arc<Budget>) -> Account {
        Account { budget: budget.clone(), kind: Kind::Indexes, ordered: true, bytes: AtomicU64::new(0) }
    }

    /// False: there is no room, and nothing was taken.
    pub fn take(&self, bytes: u64, claim: Claim) -> bool {
        let is_much = self.bytes() + bytes > self.budget.reserve_bytes / 4;
        let claim = if claim == Claim::Read && is_much { Claim::Bulk } else { claim };
        if self.ordered {
            // Before it is asked for: it counts twice for a restart.
            self.budget.ordered_since.fetch_add(bytes, Relaxed);
        }
        self.ask(bytes, claim)
    }

    /// The same of what a restart does not make anew, for what can be done without: where little is left, others get it.
    pub fn take_for_speed(&self, bytes: u64) -> bool {
        self.ask(bytes, Claim::Bulk)
    }

    /// Asks the budget, and holds what it grants.
    fn ask(&self, bytes: u64, claim: Claim) -> bool {
        let granted = self.budget.take(self.kind, bytes, claim);
        if granted {
            self.bytes.fetch_add(bytes, Relaxed);
        }
        granted
    }

    pub fn give(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "budget invariant 4: {bytes} bytes given back of {before}");
        self.budget.give(self.kind, bytes);
    }

    /// Holds `bytes` from now on, more or fewer than before. False: there is no room, and it holds what it held.
    pub fn hold(&self, bytes: u64, claim: Claim) -> bool {
        let now = self.bytes();
        if bytes <= now {
            self.give(now - bytes);
            return true;
        }
        self.take(bytes - now, claim)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// An empty one of the same kind.
    pub fn sibling(&self) -> Account {
        Account { budget: self.budget.clone(), kind: self.kind, ordered: self.ordered, bytes: AtomicU64::new(0) }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.give(self.kind, self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn growth_stops_at_the_reserve_and_finishing_at_the_limit() {
        let budget = Budget::new(8 * MIB);
        assert!(budget.take(Kind::Queries, 7 * MIB, Claim::Growth));
        assert!(!budget.take(Kind::Queries, 1, Claim::Growth));
        assert!(budget.take(Kind::Versions, MIB, Claim::Finish));
        assert!(!budget.take(Kind::Versions, 1, Claim::Finish));
        assert_eq!(budget.used_bytes(), 8 * MIB);
        budget.give(Kind::Queries, MIB);
        assert!(budget.take(Kind::Versions, MIB, Claim::Finish), "finishing goes on where growth left room");
        assert!(!budget.take(Kind::Queries, 1, Claim::Growth), "and growth waits until it has ended");
        budget.give(Kind::Versions, 2 * MIB);
        assert!(budget.take(Kind::Queries, MIB, Claim::Growth));
    }

    #[test]
    fn versions_of_new_rows_leave_half_of_the_reserve() {
        let budget = Budget::new(8 * MIB);
        assert!(budget.take(Kind::Queries, 7 * MIB, Claim::Growth));
        assert!(budget.take(Kind::Versions, MIB / 2, Claim::Growth));
        assert!(!budget.take(Kind::Versions, 1, Claim::Growth));
        assert!(budget.take(Kind::Versions, MIB / 2, Claim::Finish));
    }

    #[test]
    fn growth_that_could_not_restart_is_refused() {
        let restart = RestartCosts { fixed_bytes: 2 * MIB, page_bytes: 0 };
        let budget = Arc::new(Budget::with_restart(8 * MIB, restart));
        let index = Account::of_ordered(&budget);
        assert!(index.take(MIB, Claim::Growth));
        assert!(budget.take(Kind::Pages, 3 * MIB, Claim::Growth));
        assert_eq!(budget.restart_bytes(), 8 * MIB);
        assert!(!budget.take(Kind::Pages, 64 << 10, Claim::Growth), "the sort at a restart needs the rest");
        assert!(budget.take(Kind::Queries, MIB, Claim::Growth), "what a restart does not bring back has room");
        drop(index);
        budget.set_sorted_together(0);
        assert!(budget.take(Kind::Pages, MIB, Claim::Growth));
    }

    #[test]
    fn what_nobody_took_leaves_less_to_grow() {
        let budget = Arc::new(Budget::new(8 * MIB));
        let unaccounted = Account::new(&budget, Kind::Unaccounted);
        assert!(unaccounted.hold(2 * MIB, Claim::Forced));
        assert!(budget.take(Kind::Queries, 5 * MIB, Claim::Growth));
        assert!(!budget.take(Kind::Queries, 1, Claim::Growth));
        assert!(unaccounted.hold(MIB, Claim::Forced));
        assert!(budget.take(Kind::Queries, MIB, Claim::Growth));
        assert!(unaccounted.hold(9 * MIB, Claim::Forced));
        assert_eq!(budget.used_bytes(), 15 * MIB);
        assert!(!budget.take(Kind::Versions, 1, Claim::Finish), "the limit is the limit");
    }

    #[test]
    fn who_reads_much_leaves_others_room_to_grow() {
        let budget = Arc::new(Budget::new(8 * MIB));
        let greedy = Account::new(&budget, Kind::Queries);
        let mut steps = 0;
        while greedy.take(MIB / 16, Claim::Read) {
            steps += 1;
        }
        assert_eq!(steps * MIB / 16, 7 * MIB - MIB / 4, "all but the reserve and a quarter of it");
        assert!(budget.take(Kind::Pages, MIB / 4, Claim::Growth), "rows of others have room meanwhile");
        assert!(!budget.take(Kind::Pages, 1, Claim::Growth));
        let modest = Account::new(&budget, Kind::Queries);
        assert!(modest.take(MIB / 4, Claim::Read), "and what is small is read where growth has stopped");
        assert!(!modest.take(1, Claim::Read));
    }

    #[test]
    fn an_account_gives_back_what_it_took() {
        let budget = Arc::new(Budget::new(8 * MIB));
        let account = Account::new(&budget, Kind::Queries);
        assert!(account.hold(MIB, Claim::Growth));
        assert!(!account.hold(9 * MIB, Claim::Growth));
        assert_eq!((account.bytes(), budget.used_for(Kind::Queries)), (MIB, MIB));
        assert!(account.hold(MIB / 2, Claim::Growth));
        drop(account);
        assert_eq!(budget.used_bytes(), 0);
    }
}
