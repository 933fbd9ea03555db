//! Power cuts at every operation on files: what was durable is there, nothing is half there, and nothing else is.
//!
//! The workload is `model`'s. Its operations on files are counted once; then it runs again for each of them with the power cut there. What is
//! recovered must be a committed state no older than what the engine called durable; then work goes on, and crashes again.

use crate::model::{Model, Named, Plan, seeds};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::{self, Subject};
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use std::sync::Arc;

fn dynamic(io: &MemIo) -> Arc<dyn Io> {
    Arc::new(io.clone())
}

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

/// Each attempt writes fences with a time of its own; a kill keeps what was written, synced or not.
#[test]
fn a_first_start_that_is_killed_twice_can_be_repeated() {
    let options = || Options {
        log_dirs: vec!["/log0".into(), "/log1".into()],
        backup_dirs: vec!["/backup".into()],
        ..Options::small("/db")
    };
    let start = |io: &MemIo, life: u64, kill_after: Option<u64>| {
        let clock = MemClock::new();
        clock.advance_us(life * 1_000_000);
        kill_after.into_iter().for_each(|count| io.cut_power_after(io.operations() + count));
        let opened = Engine::open_with(Arc::new(io.clone()), clock, options());
        io.keep_power();
        opened
    };
    let operations = {
        let io = MemIo::new();
        start(&io, 1, None).expect("a new database");
        io.operations()
    };
    assert!(operations > 20, "{operations}");
    let Options { data_dir, log_dirs, backup_dirs, .. } = options();
    let subject = Subject { data_dir, log_dirs, retired_log_dirs: Vec::new(), backup_dirs };
    let mut unfinished = 0;
    for first in 0..operations {
        let killed = MemIo::new();
        let _ = start(&killed, 1, Some(first));
        for second in (first % 3..operations).step_by(3) {
            let io = killed.fork();
            let _ = start(&io, 2, Some(second));
            if let Ok(report) = inspect::check(&dynamic(&io), &subject, &mut |_| {}) {
                assert!(!report.is_damaged(), "killed after {first} and {second}: {report}");
                unfinished += u64::from(report.findings.iter().any(|f| f.reason.contains("was being created")));
            }
            let opened = start(&io, 3, None);
            opened.unwrap_or_else(|e| panic!("killed after {first} and {second}: {e}"));
        }
    }
    assert!(unfinished > 0);
}
