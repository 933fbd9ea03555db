//! What is the shortest way to the same failure? Acts are left out, in halves first (Zeller's ddmin), as long as the run still fails.

use crate::plan::{Act, Plan};
use crate::schedule::run_acts;

/// Runs that a shrink may take.
const RUNS_MAX: usize = 600;

/// A list of acts that still fails and from which no single one can be left out, as far as [`RUNS_MAX`] runs show.
pub fn shrink(plan: &Plan) -> Vec<Act> {
    let mut acts = plan.acts.clone();
    let mut runs = 0;
    let mut piece = acts.len().div_ceil(2);
    while piece > 0 && runs < RUNS_MAX {
        let mut at = 0;
        let before = acts.len();
        while at < acts.len() && runs < RUNS_MAX {
            let mut fewer = acts.clone();
            fewer.drain(at..(at + piece).min(acts.len()));
            runs += 1;
            if run_acts(plan, &fewer, false).wrong.is_some() {
                acts = fewer;
            } else {
                at += piece;
            }
        }
        if acts.len() == before {
            piece /= 2;
        } else {
            piece = piece.min(acts.len().div_ceil(2));
        }
    }
    acts
}
