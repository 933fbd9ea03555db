//! Does a seed repeat, does it try things, is nothing found?

use freshet_sim::plan::Plan;
use freshet_sim::schedule::{Tally, run, run_acts};

/// A few of the seeds that `scripts/test` runs with the program.
#[test]
fn nothing_is_found_and_everything_is_tried() {
    let mut tally = Tally::default();
    for seed in 0..60 {
        let outcome = run(&Plan::of(seed));
        assert_eq!(outcome.wrong, None, "freshet-sim --seed {seed}");
        tally.add(&outcome.tally);
    }
    let tried = [tally.commits, tally.acknowledged, tally.waits, tally.violations, tally.checkpoints, tally.recoveries];
    assert!(tried.iter().all(|count| *count > 100), "{tally:?}");
    let rare = [
        tally.serializations,
        tally.deadlocks,
        tally.returns,
        tally.broken,
        tally.definitions,
        tally.log_failures,
        tally.cut_recoveries,
        tally.flips_refused,
    ];
    assert!(rare.iter().all(|count| *count > 0), "{tally:?}");
}

#[test]
fn a_seed_repeats_to_the_last_line() {
    for seed in 100..110 {
        let history = || {
            let plan = Plan::of(seed);
            let outcome = run_acts(&plan, &plan.acts, true);
            (outcome.history, outcome.tally)
        };
        let (first, second) = (history(), history());
        assert!(first.0.len() > 50, "{:?}", first.0);
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Seeds that found a mistake of ours, each with what it was.
#[test]
fn mistakes_that_were_found_are_gone() {
    let found = [
        // The log's start named a segment above one that came into use later: its groups were not read again.
        9006626, // One device was full, the log as a whole was not: no checkpoint came.
        6312,
    ];
    for seed in found {
        assert_eq!(run(&Plan::of(seed)).wrong, None, "freshet-sim --seed {seed}");
    }
}
