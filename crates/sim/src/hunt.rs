//! Does it bite? Every planted bug has to be found.

use crate::plan::Plan;
use crate::schedule::run;
use freshet_engine::planted::{Bug, plant};

/// The first of `count` seeds that finds the bug, and what it finds.
pub fn hunt(bug: Bug, from: u64, count: u64) -> Option<(u64, String)> {
    plant(Some(bug));
    let caught = (from..from.saturating_add(count)).find_map(|seed| Some((seed, run(&Plan::of(seed)).wrong?)));
    plant(None);
    caught
}
