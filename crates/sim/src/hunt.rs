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
    (Bug::AcknowledgeEarly, 10),
    (Bug::AcknowledgeFirstDevice, 3),
    (Bug::SealBeforeLeft, 7),
    (Bug::SnapshotAtClock, 2),
    (Bug::DrawBeforeLock, 1),
    (Bug::StampTwice, 2),
    (Bug::RetryFlush, 121),
    (Bug::IgnoreShortWrite, 34),
    (Bug::TrustPageCache, 121),
    (Bug::TrustNames, 140),
    (Bug::SkipFence, 0),
    (Bug::OverwriteFence, 0),
    (Bug::ReviveDiscarded, 42),
    (Bug::SubmitAhead, 6),
    (Bug::StaleBlock, 2),
    (Bug::SkipBodyCheck, 9),
    (Bug::SkipWitness, 1042),
    (Bug::ForgetDirectorySync, 0),
    (Bug::RecycleEarly, 2),
    (Bug::ForgetFragments, 1364),
    (Bug::ImageAhead, 3),
    (Bug::PublishFirst, 2),
    (Bug::ForgetImageName, 7),
    (Bug::MarkCleanEarly, 136),
    (Bug::ForgetMark, 2),
    (Bug::ForgetLaterChange, 6),
    (Bug::RemoveNeeded, 2),
    (Bug::RepeatDelta, 1),
    (Bug::ForgetImageTime, 7),
    (Bug::ReplayFormerLife, 120),
    (Bug::ForgetReplayedMark, 6),
    (Bug::ReuseRowEarly, 2),
    (Bug::CutUnderSnapshot, 2),
    (Bug::DropChainNode, 3),
    (Bug::FoldNeeded, 146),
    (Bug::KeepGeneration, 0),
    (Bug::ForgetDependency, 28),
    (Bug::SkipConflict, 7),
    (Bug::SkipUndecided, 0),
    (Bug::ForgetKey, 0),
    (Bug::RemoveNeededKey, 365),
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
