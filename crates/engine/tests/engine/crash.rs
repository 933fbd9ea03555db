//! Power cuts at every operation on files: what was durable is there, nothing is half there, and nothing else is.
//!
//! The workload is `model`'s. Its operations on files are counted once; then it runs again for each of them with the power cut there. What is
//! recovered must be a committed state no older than what the engine called durable; then work goes on, and crashes again.

use crate::damaged::subject;
use crate::model::{Model, Named, Plan, seeds};
use freshet_engine::engine::Engine;
use freshet_engine::inspect::check;
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use std::sync::Arc;

/// Opens after a crash; now and then the power fails again while recovering.
fn reopen(plan: &Plan, io: &mut MemIo, cut: u64, seed: u64) -> Engine {
    if cut.is_multiple_of(3) {
        io.cut_power_after((cut / 3) % 23);
        let _ = plan.open(io);
        *io = io.crash(seed ^ 0x5eed);
    }
    plan.open(io).unwrap_or_else(|e| panic!("cut after {cut}: {e}"))
}

/// The workload with the power cut after so many operations, then another life. False if it ended before.
fn run_and_cut(plan: &Plan, actions: usize, cut: u64) -> bool {
    let mut io = MemIo::new();
    let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
    io.cut_power_after(io.operations() + cut);
    let ended = model.run(actions).is_ok();
    io = io.crash(plan.seed * 7919 + cut);
    let engine = reopen(plan, &mut io, cut, plan.seed + cut);
    model.recovered(engine);
    model.run(10).expect("the power is on");
    io = io.crash(cut);
    model.recovered(plan.open(&io).unwrap_or_else(|e| panic!("second life, cut after {cut}: {e}")));
    model.check_quiet();
    !ended
}

fn cut_everywhere(plan: &Plan, actions: usize, stride: u64) {
    let _named = Named(plan.seed);
    let mut cut = plan.seed % stride;
    while run_and_cut(plan, actions, cut) {
        cut += stride;
    }
    assert!(cut > 30, "the workload wrote, but only {cut} times");
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    for seed in seeds(3) {
        let devices = 1 + seed as usize % 3;
        let plan = Plan { seed, devices, ddl: true, checkpoints: true, note_bytes: 3000, eager: seed % 2 == 0 };
        cut_everywhere(&plan, 160, 1);
    }
}

#[test]
fn a_power_cut_while_the_log_goes_round_loses_nothing_acknowledged() {
    let mut checkpoints = 0;
    for seed in seeds(2) {
        // Notes of 40 KB: values in pieces, commits in fragments, and a log of four small segments that a checkpoint must free.
        let plan =
            Plan { seed: seed + 50, devices: 1, ddl: false, checkpoints: false, note_bytes: 40_000, eager: true };
        let mut uncut = Model::new(plan.clone(), plan.open(&MemIo::new()).expect("opens"));
        uncut.run(600).expect("the power is on");
        checkpoints += uncut.engine.stats().checkpoints;
        cut_everywhere(&plan, 600, 17);
    }
    assert!(checkpoints > 0, "the log went round");
}

/// A supervisor that restarts a slow first start: what the processes wrote is all there.
#[test]
fn two_kills_while_a_database_is_created_leave_one_that_can_be_created() {
    let plan = Plan { seed: 1, devices: 2, ddl: false, checkpoints: false, note_bytes: 100, eager: false };
    let clock = MemClock::new();
    let open = |io: &MemIo| {
        clock.advance_us(1000);
        Engine::open_with(Arc::new(io.clone()), clock.clone(), plan.options())
    };
    let killed_after = |io: &MemIo, operations: u64| {
        let io = io.fork();
        io.keep_power();
        io.cut_power_after(io.operations() + operations);
        let is_done = open(&io).is_ok();
        (io, is_done)
    };
    for first in 0.. {
        let (io, is_done) = killed_after(&MemIo::new(), first);
        if is_done {
            assert!(first > 10);
            break;
        }
        for second in (first % 2..).step_by(2) {
            let (io, is_done) = killed_after(&io, second);
            if is_done {
                break;
            }
            let third = killed_after(&io, u64::MAX >> 1);
            assert!(third.1, "after {first} and {second}: {:?}", open(&third.0).err());
            let dead = io.fork();
            dead.keep_power();
            let dead: Arc<dyn Io> = Arc::new(dead);
            if let Ok(report) = check(&dead, &subject(&plan.options()), &mut |_| {}) {
                assert!(!report.is_damaged(), "after {first} and {second}: {report}");
            }
        }
    }
}

#[test]
fn a_power_cut_while_a_database_is_created_leaves_one_that_can_be_created() {
    let plan = Plan { seed: 1, devices: 2, ddl: false, checkpoints: false, note_bytes: 100, eager: false };
    let mut cut = 0;
    loop {
        let mut io = MemIo::new();
        io.cut_power_after(cut);
        let done = plan.open(&io).is_ok();
        for seed in 0..3 {
            io = io.crash(cut * 3 + seed);
            let mut model = Model::new(plan.clone(), plan.open(&io).unwrap_or_else(|e| panic!("cut after {cut}: {e}")));
            model.run(5).expect("the power is on");
            model.check_quiet();
            if !done {
                // The next seed: the same power cut, other losses.
                io = MemIo::new();
                io.cut_power_after(cut);
                let _ = plan.open(&io);
            } else {
                break;
            }
        }
        if done {
            break;
        }
        cut += 1;
    }
    assert!(cut > 10);
}
