//! Does the engine ask for checkpoints where the target of a restart needs one, and not where none helps? What work costs is told by a
//! file beforehand, and time by the test's clock, so that nothing here depends on the machine.

use crate::world::{Session, World, create, delete, insert};
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::promise::{State, Work};
use freshet_engine::txn::Isolation;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a unit of each kind of work costs, in microseconds.
fn costs(io: &MemIo, of: impl Fn(Work) -> f64) {
    let line = |work: Work| format!("measured {} 1000000 {:.9}\n", work.name(), of(work));
    let kinds: String = Work::ALL.into_iter().map(line).collect();
    let mut text = format!("freshet restart 1\nthreads 1\nrest 0.000000\npredicted 2.500000\n{kinds}");
    text.push_str(&format!("crc {:08x}\n", crc32c::crc32c(text.as_bytes())));
    io.replace(Path::new("/db/restart"), text.as_bytes());
}

fn open(io: &MemIo, clock: &Arc<MemClock>, target: Duration) -> Engine {
    let options = Options { recovery_target: target, ..Options::small("/db") };
    Engine::open_with(Arc::new(io.clone()), clock.clone(), options).expect("opens")
}

/// A database with an empty table and these costs, open.
fn world(target: Duration, of: impl Fn(Work) -> f64) -> (MemIo, Arc<MemClock>, Engine) {
    let first = World::new();
    create(&mut first.session(), IndexKind::Hash);
    let mut first = first;
    first.reopen();
    let io = first.io.clone();
    drop(first);
    costs(&io, of);
    let clock = MemClock::new();
    let engine = open(&io, &clock, target);
    (io, clock, engine)
}

fn only(work: Work, cost: f64) -> impl Fn(Work) -> f64 {
    move |of| if of == work { cost } else { 0.0 }
}

/// One committed row, a tenth of a second later.
fn work_on(session: &mut Session, clock: &MemClock, id: i64) {
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    insert(session, id, id, "row").expect("inserts");
    session.commit().expect("commits");
    clock.advance_us(100_000);
    while session.engine.step() {}
}

#[test]
fn checkpoints_begin_when_the_log_nears_the_target_and_keep_it() {
    // A delta costs 10 ms: 80 of them are 80 % of the target.
    let (_, clock, engine) = world(Duration::from_secs(1), only(Work::Deltas, 10_000.0));
    let mut session = Session::new(&engine);
    let mut most = 0.0f64;
    for id in 0..60 {
        work_on(&mut session, &clock, id);
    }
    assert_eq!(engine.stats().checkpoints, 0, "there is room");
    for id in 60..500 {
        work_on(&mut session, &clock, id);
        let forecast = engine.restart_forecast();
        assert_eq!(forecast.state, State::Held);
        most = most.max(forecast.predicted_seconds.expect("every cost is known"));
    }
    let checkpoints = engine.stats().checkpoints;
    assert!((5..=7).contains(&checkpoints), "{checkpoints} for 500 deltas of which 80 begin one");
    assert!((0.75..=1.0).contains(&most), "{most}");
}

#[test]
fn a_target_that_no_checkpoint_can_hold_is_told_and_not_tried() {
    let (_, clock, engine) = world(Duration::from_secs(1), only(Work::HashEntries, 10_000.0));
    let mut session = Session::new(&engine);
    let mut states = Vec::new();
    for id in 0..150 {
        work_on(&mut session, &clock, id);
        states.push(engine.restart_forecast().state);
    }
    states.dedup();
    assert_eq!(states, [State::Held, State::Near, State::OutOfReach]);
    assert_eq!(engine.stats().checkpoints, 0);
    let forecast = engine.restart_forecast();
    assert_eq!(forecast.dominating(), Some(Work::HashEntries));
    assert!(forecast.warning().expect("out of reach").contains("no checkpoint can help"));
    engine.set_recovery_target(Duration::from_secs(100));
    assert_eq!(engine.restart_forecast().state, State::Held);
    assert_eq!(engine.restart_forecast().warning(), None);
}

#[test]
fn without_a_target_nothing_is_asked_for_and_nothing_written() {
    let (io, clock, engine) = world(Duration::ZERO, only(Work::Deltas, 10_000.0));
    let before = io.contents(Path::new("/db/restart")).expect("as the test wrote it");
    let mut session = Session::new(&engine);
    (0..200).for_each(|id| work_on(&mut session, &clock, id));
    assert_eq!(engine.stats().checkpoints, 0);
    assert_eq!(engine.restart_forecast().state, State::Off);
    drop((session, engine));
    assert_eq!(io.contents(Path::new("/db/restart")).expect("still there"), before);
}

#[test]
fn a_file_of_costs_that_does_not_check_is_as_none() {
    let (io, clock, engine) = world(Duration::from_secs(1), only(Work::Deltas, 10_000.0));
    assert_eq!(engine.restart_forecast().last.predicted_seconds, Some(2.5));
    drop(engine);
    io.flip_bit(Path::new("/db/restart"), 30, 3).expect("the file is there");
    let engine = open(&io, &clock, Duration::from_secs(1));
    let mut session = Session::new(&engine);
    // Time that passes only between steps measures nothing, so nothing is known and nothing asked for.
    (0..100).for_each(|id| work_on(&mut session, &clock, id));
    assert_eq!(engine.restart_forecast().state, State::Unknown);
    assert_eq!(engine.restart_forecast().last.predicted_seconds, None);
    assert_eq!(engine.stats().checkpoints, 0);
}

#[test]
fn the_log_found_at_an_open_counts() {
    let (io, clock, engine) = world(Duration::from_secs(10), only(Work::Deltas, 10_000.0));
    let mut session = Session::new(&engine);
    (0..50).for_each(|id| work_on(&mut session, &clock, id));
    let before = engine.restart_forecast().predicted_seconds.expect("every cost is known");
    drop((session, engine));
    let engine = open(&io, &clock, Duration::from_secs(10));
    let after = engine.restart_forecast().predicted_seconds.expect("every cost is known");
    assert!((before - after).abs() < 0.05 && after > 0.5, "{before} before, {after} after");
    let foretold = engine.restart_forecast().last.predicted_seconds.expect("written at the close");
    assert!((foretold - before).abs() < 0.01, "{foretold}");
    let mut session = Session::new(&engine);
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let row = insert(&mut session, 1000, 1, "one more").expect("inserts");
    delete(&mut session, row).expect("deletes");
    session.commit().expect("commits");
    engine.checkpoint().expect("checkpoints");
    assert!(engine.restart_forecast().predicted_seconds.expect("known") < 0.05);
}
