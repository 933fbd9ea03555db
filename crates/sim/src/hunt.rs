//! Does it bite? Every planted bug has to be found.
//!
//! [`FOUND`] is what `freshet-sim --hunt` printed last: for each bug the first seed from 0 on that finds it, which is one less than the number of
//! seeds that it took. The tests replay them: found with the bug, nothing without it. A change of the engine that writes in another order may move
//! a bug to another seed; the test then hunts for it, and says so.

use crate::plan::Plan;
use crate::schedule::run;
use freshet_engine::planted::{Bug, plant};

/// The seed that found each bug.
pub const FOUND: &[(Bug, u64)] = &[
    (Bug::SkipFlush, 1),
    (Bug::AcknowledgeEarly, 28),
    (Bug::AcknowledgeFirstDevice, 4),
    (Bug::SealBeforeLeft, 2),
    (Bug::SnapshotAtClock, 0),
    (Bug::DrawBeforeLock, 0),
    (Bug::StampTwice, 0),
    (Bug::RetryFlush, 65),
    (Bug::IgnoreShortWrite, 79),
    (Bug::TrustPageCache, 81),
    (Bug::SkipFence, 2),
    (Bug::OverwriteFence, 1),
    (Bug::ReviveDiscarded, 8),
    (Bug::SubmitAhead, 16),
    (Bug::StaleBlock, 2),
    (Bug::SkipBodyCheck, 79),
    (Bug::SkipWitness, 7),
    (Bug::ForgetDirectorySync, 1),
    (Bug::RecycleEarly, 4),
    (Bug::ForgetFragments, 586),
    (Bug::ImageAhead, 9),
    (Bug::PublishFirst, 4),
    (Bug::ForgetImageName, 5),
    (Bug::MarkCleanEarly, 30),
    (Bug::ForgetMark, 2),
    (Bug::ForgetLaterChange, 42),
    (Bug::RemoveNeeded, 2),
    (Bug::RepeatDelta, 0),
    (Bug::ForgetImageTime, 50),
    (Bug::ReplayFormerLife, 36),
    (Bug::ForgetReplayedMark, 2),
    (Bug::ReuseRowEarly, 22),
    (Bug::CutUnderSnapshot, 0),
    (Bug::DropChainNode, 1),
    (Bug::KeepGeneration, 0),
    (Bug::ForgetDependency, 15),
    (Bug::SkipUndecided, 0),
    (Bug::ForgetKey, 0),
    (Bug::RemoveNeededKey, 7),
];

/// What the seed finds with the bug planted.
pub fn find(bug: Option<Bug>, seed: u64) -> Option<String> {
    plant(bug);
    let outcome = run(&Plan::of(seed));
    plant(None);
    outcome.wrong
}

/// The first of `count` seeds that finds the bug, and what it finds.
pub fn hunt(bug: Bug, from: u64, count: u64) -> Option<(u64, String)> {
    (from..from.saturating_add(count)).find_map(|seed| Some((seed, find(Some(bug), seed)?)))
}
