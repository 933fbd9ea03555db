//! Is each planted bug found by the seed that found it first?

use freshet_engine::planted::Bug;
use freshet_sim::hunt::{FOUND, find, hunt};
use freshet_sim::plan::Plan;
use freshet_sim::schedule::run_acts;
use freshet_sim::shrink::shrink;

/// Before a bug that is not where it was counts as not found.
const SEEDS_MAX: u64 = 3000;

#[test]
fn every_bug_is_found_by_its_seed_and_nothing_is_without_it() {
    for &(bug, seed) in FOUND {
        assert_eq!(find(None, seed), None, "freshet-sim --seed {seed}");
        if find(Some(bug), seed).is_none() {
            let caught = hunt(bug, 0, SEEDS_MAX).map(|(seed, _)| seed);
            assert!(caught.is_some(), "{} is not found in {SEEDS_MAX} seeds", bug.name());
            eprintln!("{} has moved from seed {seed} to {caught:?}: freshet-sim --hunt", bug.name());
        }
    }
}

#[test]
fn every_bug_has_its_seed() {
    let is_found = |bug: &Bug| FOUND.iter().any(|(found, _)| found == bug);
    let missing: Vec<_> = Bug::ALL.iter().filter(|bug| !is_found(bug)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(FOUND.len() >= 14);
}

#[test]
fn a_failing_schedule_shrinks_to_one_that_fails_and_loses_most_of_it() {
    let (seed, _) = hunt(Bug::ForgetKey, 0, SEEDS_MAX).expect("it is found");
    freshet_engine::planted::plant(Some(Bug::ForgetKey));
    let plan = Plan::of(seed);
    let acts = shrink(&plan);
    let outcome = run_acts(&plan, &acts, true);
    freshet_engine::planted::plant(None);
    assert!(outcome.wrong.is_some());
    assert!(acts.len() < plan.acts.len() / 4, "{} of {}", acts.len(), plan.acts.len());
}
