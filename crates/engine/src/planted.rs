//! Does the simulator bite? Mistakes that can be switched on, and turns that it can take inside a commit.
//!
//! Each [`Bug`] is a small mutation at the place where a programmer would have made it; the code around it asks [`is`]. Without the feature
//! `planted`, which only the simulator asks for, `is` is the constant false and nothing is left of it.
//!
//! A simulator that drives everything on one thread never sees another thread between a draw and an install. [`turn`] stands there: the simulator
//! may look at the database, step the log and let its devices work, as another thread would.
//!
//! 1. Bug and turn are chosen for the calling thread: tests in parallel threads do not disturb each other. Threads that a recovery starts have none.

/// What can be made to go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// A group counts as synced when it is written.
    SkipFlush,
    /// An epoch is acknowledged when its last group is written, and synced afterwards.
    AcknowledgeEarly,
    /// An epoch is acknowledged when the first of its devices has it.
    AcknowledgeFirstDevice,
    /// An epoch is sealed while a commit with a smaller timestamp has not staged its record.
    SealBeforeLeft,
    /// A snapshot is the clock, not the watermark.
    SnapshotAtClock,
    /// The timestamp is drawn before the write set is locked.
    DrawBeforeLock,
    /// A slot gets the clock instead of the timestamp that its node and its record got.
    StampTwice,
    /// A failed sync is tried again, and believed.
    RetryFlush,
    /// A write that ended early is taken for a whole one.
    IgnoreShortWrite,
    /// What a failed sync left in the page cache is taken for durable after a restart.
    TrustPageCache,
    /// A name that a failed sync of its directory left is taken for durable after a restart.
    TrustNames,
    /// A new incarnation begins without its fence.
    SkipFence,
    /// The fence's record replaces the list instead of extending it.
    OverwriteFence,
    /// What the fence voids counts all the same.
    ReviveDiscarded,
    /// A third epoch is submitted before the first is complete.
    SubmitAhead,
    /// A block is taken for a group of the file that it lies in, whatever the group says.
    StaleBlock,
    /// A group's body is believed without its checksum.
    SkipBodyCheck,
    /// Nobody asks what the groups say was acknowledged.
    SkipWitness,
    /// A segment is used before its name is durable.
    ForgetDirectorySync,
    /// The log goes that the images do not replace yet.
    RecycleEarly,
    /// The log goes that holds fragments of a commit to come.
    ForgetFragments,
    /// An image is as of the watermark, not of the durable horizon.
    ImageAhead,
    /// The manifest is published before the images are synced.
    PublishFirst,
    /// A file of images is named by the manifest before its name is durable.
    ForgetImageName,
    /// A page counts as clean once it is copied.
    MarkCleanEarly,
    /// A change of a page that is clean is not noted.
    ForgetMark,
    /// Publishing an image forgets the changes that came after it.
    ForgetLaterChange,
    /// Images that the manifest names are removed with the others.
    RemoveNeeded,
    /// A batch of deltas is applied twice.
    RepeatDelta,
    /// Deltas that an image has are applied to it.
    ForgetImageTime,
    /// Deltas of a page's former life are applied to its present one.
    ReplayFormerLife,
    /// What a recovery applied does not make its pages dirty.
    ForgetReplayedMark,
    /// A deleted row's slot is given out while a snapshot sees the row.
    ReuseRowEarly,
    /// Garbage collection does not ask for the snapshots.
    CutUnderSnapshot,
    /// A node is unlinked from the middle of a chain without being merged.
    DropChainNode,
    /// A version is folded away though a snapshot between its neighbours sees it.
    FoldNeeded,
    /// A page given out again keeps its generation.
    KeepGeneration,
    /// A reply does not wait for what it read.
    ForgetDependency,
    /// REPEATABLE READ changes a row that has changed since its snapshot.
    SkipConflict,
    /// A unique check takes an undecided row for none.
    SkipUndecided,
    /// An update leaves the entry of its former key in the index for ever.
    ForgetKey,
    /// An entry is taken out of an index though a version that can be reached has its key.
    RemoveNeededKey,
    /// A SERIALIZABLE transaction commits whatever has changed since it read.
    SkipValidation,
    /// It looks only at commits that are installed, not at those that have drawn a smaller timestamp.
    SkipSmallerCts,
    /// It remembers none of the ranges and tables that it has looked through.
    ForgetRanges,
    /// A change in one go latches a row that is free, whatever was written since it was copied.
    LatchChanged,
    /// A short read by an integer key takes the newest version, durable or not.
    ReadAhead,
    /// Going back to a savepoint leaves the first statement since then as it is.
    KeepUndone,
    /// It lets go of locks that were taken before the savepoint.
    ReleaseEarlier,
    /// It leaves the transaction's schema as it has become.
    KeepSchema,
    /// A child does not lock the row that it refers to.
    SkipKeyShare,
    /// Who changes a row beside those who share its key may change the key, too.
    ShareKeyChange,
    /// A unique index is built over rows that have the same key.
    SkipBuildCheck,
    /// DDL does not wait for those who write the table.
    SkipWriters,
    /// A dropped object's row stays: after a restart it is there again.
    KeepObject,
    /// Rows from before a column was added have nothing in it.
    ForgetMissing,
    /// What is written into an added column is stored, and the row is not linked to it.
    LoseLink,
}

impl Bug {
    /// Those that only histories of threads show, not the simulator's schedules.
    pub const OF_HISTORIES: &[Bug] = &[Bug::SkipSmallerCts, Bug::LatchChanged];

    pub const ALL: &[Bug] = &[
        Bug::SkipFlush,
        Bug::AcknowledgeEarly,
        Bug::AcknowledgeFirstDevice,
        Bug::SealBeforeLeft,
        Bug::SnapshotAtClock,
        Bug::DrawBeforeLock,
        Bug::StampTwice,
        Bug::RetryFlush,
        Bug::IgnoreShortWrite,
        Bug::TrustPageCache,
        Bug::TrustNames,
        Bug::SkipFence,
        Bug::OverwriteFence,
        Bug::ReviveDiscarded,
        Bug::SubmitAhead,
        Bug::StaleBlock,
        Bug::SkipBodyCheck,
        Bug::SkipWitness,
        Bug::ForgetDirectorySync,
        Bug::RecycleEarly,
        Bug::ForgetFragments,
        Bug::ImageAhead,
        Bug::PublishFirst,
        Bug::ForgetImageName,
        Bug::MarkCleanEarly,
        Bug::ForgetMark,
        Bug::ForgetLaterChange,
        Bug::RemoveNeeded,
        Bug::RepeatDelta,
        Bug::ForgetImageTime,
        Bug::ReplayFormerLife,
        Bug::ForgetReplayedMark,
        Bug::ReuseRowEarly,
        Bug::CutUnderSnapshot,
        Bug::DropChainNode,
        Bug::FoldNeeded,
        Bug::KeepGeneration,
        Bug::ForgetDependency,
        Bug::SkipConflict,
        Bug::SkipUndecided,
        Bug::ForgetKey,
        Bug::RemoveNeededKey,
        Bug::SkipValidation,
        Bug::ForgetRanges,
        Bug::ReadAhead,
        Bug::KeepUndone,
        Bug::ReleaseEarlier,
        Bug::KeepSchema,
        Bug::SkipKeyShare,
        Bug::ShareKeyChange,
        Bug::SkipBuildCheck,
        Bug::SkipWriters,
        Bug::KeepObject,
        Bug::ForgetMissing,
        Bug::LoseLink,
    ];

    /// As on the command line: `SkipFlush` is `skip-flush`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }

    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Where a simulator may take a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// A change in one go has copied its row and not latched it.
    Copied,
    /// A commit has drawn its timestamp and staged nothing.
    Drawn,
    /// It has staged its record and stamped no row.
    Staged,
    /// It has stamped its rows and not left.
    Stamped,
}

#[cfg(feature = "planted")]
mod chosen {
    use super::{Bug, Point};
    use std::cell::{Cell, RefCell};

    type Turn = Box<dyn FnMut(Point)>;

    thread_local! {
        static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
        static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
    }

    /// Plants `bug` for this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        BUG.set(bug);
    }

    #[inline]
    pub fn is(bug: Bug) -> bool {
        BUG.get() == Some(bug)
    }

    /// What to do at every [`Point`] that this thread comes to.
    pub fn on_turn(turn: Option<Turn>) {
        TURN.set(turn);
    }

    pub(crate) fn turn(point: Point) {
        // Taken out meanwhile: what happens in a turn has no turns of its own.
        let Some(mut taken) = TURN.take() else { return };
        taken(point);
        TURN.set(Some(taken));
    }
}

#[cfg(not(feature = "planted"))]
mod chosen {
    use super::{Bug, Point};

    #[inline(always)]
    pub(crate) const fn is(_: Bug) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn turn(_: Point) {}
}

#[cfg(not(feature = "planted"))]
pub(crate) use chosen::is;
pub(crate) use chosen::turn;
#[cfg(feature = "planted")]
pub use chosen::{is, on_turn, plant};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_of_its_own_and_none_is_there_unasked() {
        for &bug in Bug::ALL.iter().chain(Bug::OF_HISTORIES) {
            assert_eq!(Bug::named(&bug.name()), Bug::ALL.contains(&bug).then_some(bug));
            assert!(!is(bug));
        }
        assert_eq!(Bug::SkipFlush.name(), "skip-flush");
    }
}
