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
    (Bug::AcknowledgeEarly, 9),
    (Bug::AcknowledgeFirstDevice, 3),
    (Bug::SealBeforeLeft, 2),
    (Bug::SnapshotAtClock, 2),
    (Bug::DrawBeforeLock, 1),
    (Bug::StampTwice, 2),
    (Bug::RetryFlush, 156),
    (Bug::IgnoreShortWrite, 1326),
    (Bug::TrustPageCache, 121),
    (Bug::TrustNames, 140),
    (Bug::SkipFence, 0),
    (Bug::OverwriteFence, 0),
    (Bug::ReviveDiscarded, 60),
    (Bug::SubmitAhead, 6),
    (Bug::StaleBlock, 2),
    (Bug::SkipBodyCheck, 133),
    (Bug::SkipWitness, 576),
    (Bug::ForgetDirectorySync, 0),
    (Bug::RecycleEarly, 2),
    (Bug::ForgetFragments, 981),
    (Bug::ImageAhead, 3),
    (Bug::PublishFirst, 2),
    (Bug::ForgetImageName, 7),
    (Bug::MarkCleanEarly, 399),
    (Bug::ForgetMark, 2),
    (Bug::ForgetLaterChange, 17),
    (Bug::RemoveNeeded, 2),
    (Bug::RepeatDelta, 1),
    (Bug::ForgetImageTime, 12),
    (Bug::ReplayFormerLife, 85),
    (Bug::ForgetReplayedMark, 32),
    (Bug::ReuseRowEarly, 4),
    (Bug::CutUnderSnapshot, 2),
    (Bug::DropChainNode, 0),
    (Bug::FoldNeeded, 9),
    (Bug::KeepGeneration, 23),
    (Bug::ForgetDependency, 17),
    (Bug::SkipConflict, 11),
    (Bug::SkipUndecided, 2),
    (Bug::ForgetKey, 12),
    (Bug::RemoveNeededKey, 172),
    (Bug::SkipValidation, 17),
    (Bug::ForgetRanges, 17),
    (Bug::ReadAhead, 143),
    (Bug::KeepUndone, 3),
    (Bug::ReleaseEarlier, 3),
    (Bug::KeepSchema, 19),
    (Bug::SkipKeyShare, 1),
    (Bug::ShareKeyChange, 114),
    (Bug::SkipBuildCheck, 7),
    (Bug::SkipWriters, 3),
    (Bug::KeepObject, 26),
    (Bug::ForgetMissing, 3),
    (Bug::LoseLink, 3),
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
