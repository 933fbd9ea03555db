//! Is each planted bug found by the seed that found it first?

use freshet_engine::planted::Bug;
use freshet_sim::hunt::{FOUND, find};
use freshet_sim::plan::Plan;
use freshet_sim::schedule::run_acts;
use freshet_sim::shrink::shrink;

#[test]
fn every_bug_is_found_by_its_seed_and_nothing_is_without_it() {
    for &(bug, seed) in FOUND {
        assert_eq!(find(None, seed), None, "freshet-sim --seed {seed}");
        assert!(find(Some(bug), seed).is_some(), "freshet-sim --seed {seed} --plant {}", bug.name());
    }
}

#[test]
fn every_bug_has_its_seed() {
    let missing: Vec<_> = Bug::ALL.iter().filter(|bug| !FOUND.iter().any(|(found, _)| found == *bug)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(FOUND.len() >= 14);
}

#[test]
fn a_failing_schedule_shrinks_to_one_that_fails_and_loses_most_of_it() {
    let (bug, seed) = (Bug::ForgetKey, FOUND.iter().find(|(bug, _)| *bug == Bug::ForgetKey).expect("it is listed").1);
    freshet_engine::planted::plant(Some(bug));
    let plan = Plan::of(seed);
    let acts = shrink(&plan);
    let outcome = run_acts(&plan, &acts, true);
    freshet_engine::planted::plant(None);
    assert!(outcome.wrong.is_some());
    assert!(acts.len() < plan.acts.len() / 4, "{} of {}", acts.len(), plan.acts.len());
}
