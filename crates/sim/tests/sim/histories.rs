//! Does what threads see of each other have an order? And is it seen where it has none?

use freshet_sim::stress::{Ran, Stress, run};

fn ran(stress: Stress) -> Ran {
    let dir = tempfile::tempdir().expect("a temporary directory");
    run(&stress, dir.path())
}

#[test]
fn what_threads_see_has_an_order() {
    let times = std::env::var("FRESHET_TEST_SCALE").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    for seed in 0..3 * times {
        let stress = Stress { seed, threads: 4, transactions: 1000, devices: 1 + seed as usize % 3, bug: None };
        let Ran { committed, rolled_back, wrong } = ran(stress);
        assert!(wrong.is_empty(), "{stress:?}: {}", wrong[0]);
        assert!(committed > 1500 && rolled_back > 100, "{committed} and {rolled_back}");
    }
}

/// Mistakes that one thread alone may never see, and some that it does.
#[cfg(feature = "planted")]
#[test]
fn what_has_no_order_is_seen() {
    use freshet_engine::planted::Bug;
    const SEEDS_MAX: u64 = 40;
    let bugs = [Bug::SkipConflict, Bug::SnapshotAtClock, Bug::DrawBeforeLock, Bug::StampTwice];
    for bug in bugs {
        let found = (0..SEEDS_MAX).find(|&seed| {
            let stress = Stress { seed, threads: 4, transactions: 400, devices: 1, bug: Some(bug) };
            !ran(stress).wrong.is_empty()
        });
        assert!(found.is_some(), "{} is not seen in {SEEDS_MAX} runs", bug.name());
        eprintln!("{} is seen in run {found:?}", bug.name());
    }
}
