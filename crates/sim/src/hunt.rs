//! Does it bite? Every planted bug has to be found.
//!
//! [`FOUND`] is what `freshet-sim --hunt` printed last: for each bug the first seed from 0 on that finds it, which is one less than the number of
//! seeds that it took. `scripts/test` replays them: found with the bug, nothing without it.

use crate::plan::Plan;
use crate::schedule::run;
use freshet_engine::planted::{Bug, plant};

/// The seed that found each bug.
pub const FOUND: &[(Bug, u64)] = &[];

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
