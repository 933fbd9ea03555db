//! Does the engine know its own restart, and hold it: the cases `prediction` and `target`.

use super::Run;
use super::made::{IN_FLIGHT, Made, checkpoint_now};
use crate::cold;
use crate::data::{Shape, Spec, Sustained};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::progress::{during, say};
use crate::reopen::Reopened;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::promise::{Forecast, Work};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A step in the life of the database whose restarts are predicted.
struct Stage {
    /// Rows in eighths of the largest size.
    eighths: u64,
    checkpoint: bool,
    /// Updates per row, behind the checkpoint.
    updates: f64,
}

const STAGES: [Stage; 7] = [
    Stage { eighths: 1, checkpoint: false, updates: 0.0 },
    Stage { eighths: 1, checkpoint: true, updates: 1.0 },
    Stage { eighths: 3, checkpoint: false, updates: 0.0 },
    Stage { eighths: 4, checkpoint: true, updates: 0.1 },
    Stage { eighths: 4, checkpoint: false, updates: 2.0 },
    Stage { eighths: 8, checkpoint: true, updates: 0.0 },
    Stage { eighths: 8, checkpoint: false, updates: 1.0 },
];

const RESTARTS: usize = 3;
/// A target that costs are measured for and that never asks for a checkpoint.
const FAR_TARGET: Duration = Duration::from_secs(100_000);

pub(super) fn prediction(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(8_000_000).max(8);
    let updates: f64 = STAGES.iter().map(|stage| stage.updates * (stage.eighths * rows / 8) as f64).sum();
    let mut made = Made::new(Spec { shape: Shape::Record168, rows }, updates as u64);
    say(&format!("\nprediction: up to {rows} rows, {} sizes and log lengths", STAGES.len()));
    let scratch = run.scratch("prediction")?;
    made.check_machine(scratch.path())?;
    (made.updates, made.spec.rows) = (0, 0);
    let mut figures = Vec::new();
    for (at, stage) in STAGES.iter().enumerate() {
        let told = predicted_restart(run, &mut made, stage, rows, scratch.path())?;
        // What nobody has measured is only calibrated: the first restart has no claim.
        let note = format!("costs only calibrated; {}", told.note);
        figures.push(if at == 0 { told.note(note) } else { run.due(told, Due::RatioWithin(0.3)) });
    }
    Ok(figures)
}

/// Brings the database to a stage, and compares what the engine foretells with what the restart takes.
fn predicted_restart(
    run: &Run<'_>,
    made: &mut Made,
    stage: &Stage,
    rows: u64,
    dir: &Path,
) -> Result<Figure, BenchError> {
    let options = Options { recovery_target: FAR_TARGET, ..made.options(dir) };
    if made.spec.rows > 0 {
        // What this open measures must not come from the page cache either.
        cold::drop_cached(&options.data_dir)?;
    }
    let engine = Engine::open(options)?;
    if made.spec.rows == 0 {
        made.spec.create(&engine)?;
    }
    let before = std::mem::replace(&mut made.spec.rows, rows * stage.eighths / 8);
    during("load", made.spec.rows - before, |done| made.spec.load(&engine, before, run.threads, done))?;
    if stage.checkpoint {
        checkpoint_now(&engine)?;
    }
    let updates = (stage.updates * made.spec.rows as f64) as u64;
    made.update(run, &engine, updates, made.updates + 1)?;
    made.updates += updates;
    wait_for_costs(&engine);
    let forecast = engine.restart_forecast();
    drop(engine);
    let reopened = median_restart(run, made, dir)?;
    let predicted = forecast.predicted_seconds.unwrap_or(0.0);
    let amount = |work: Work| forecast.phases.iter().find(|p| p.work == work).map_or(0.0, |p| p.amount as f64);
    let (images, log) = (amount(Work::Images) / 1e6, amount(Work::Log) / 1e6);
    let name = format!("predicted {predicted:.3} s; {images:.0} MB of images, {log:.0} MB of log");
    let figure = Figure::new("prediction", &name, made.spec.rows as f64, "rows", reopened.open_seconds);
    let figure = figure.ratio(predicted / reopened.open_seconds).threads(run.threads);
    Ok(figure.note(most_off(&forecast, &reopened)))
}

/// Of a few restarts the one in the middle: beside other work a single one says little.
fn median_restart(run: &Run<'_>, made: &Made, dir: &Path) -> Result<Reopened, BenchError> {
    let restart = |_| made.restart_with(dir, run.threads, FAR_TARGET);
    let mut restarts = (0..RESTARTS).map(restart).collect::<Result<Vec<_>, _>>()?;
    restarts.sort_by(|a, b| a.open_seconds.total_cmp(&b.open_seconds));
    Ok(restarts.swap_remove(RESTARTS / 2))
}

/// The part of a restart whose time was foretold worst.
fn most_off(forecast: &Forecast, reopened: &Reopened) -> String {
    let foretold =
        |of: &[Work]| forecast.phases.iter().filter(|p| of.contains(&p.work)).map(|p| p.seconds).sum::<f64>();
    let recovery = &reopened.recovery;
    let real = [
        ("log", foretold(&[Work::Log, Work::Deltas]), recovery.scan.seconds + recovery.replay.seconds),
        ("images", foretold(&[Work::Images]), recovery.images.seconds),
        ("rows", foretold(&[Work::Slots]), recovery.restore.seconds),
        ("indexes", foretold(&[Work::HashEntries, Work::TreeEntries]), recovery.rebuild.seconds),
    ];
    let rest = reopened.open_seconds - real.iter().map(|(_, _, seconds)| seconds).sum::<f64>();
    let all = real.into_iter().chain([("fixed", forecast.fixed_seconds, rest)]);
    let worst = all.max_by(|a, b| (a.1 - a.2).abs().total_cmp(&(b.1 - b.2).abs()));
    worst.map_or(String::new(), |(name, foretold, real)| format!("most off: {name} {foretold:.3} s for {real:.3} s"))
}

/// A young engine calibrates what no recovery has measured, a kind each tenth of a second.
fn wait_for_costs(engine: &Engine) {
    let start = Instant::now();
    while engine.restart_forecast().predicted_seconds.is_none() && start.elapsed() < Duration::from_secs(5) {
        thread::park_timeout(Duration::from_millis(20));
    }
}

// ---- holding a target

/// A target that leaves the log this much room: as a share of the floor, and in seconds.
const ROOM_SHARE: f64 = 0.3;
const ROOM_SECONDS: f64 = 0.2;

pub(super) fn target(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(2_000_000);
    let mut made = Made::new(Spec { shape: Shape::Record168, rows }, 0);
    // Room for all that is logged meanwhile: it is the target that keeps the log short.
    made.log_bytes += (run.args.seconds * 200e6) as u64;
    say(&format!("\ntarget: {rows} rows, durable updates for {} s under a recovery target", run.args.seconds));
    let scratch = run.scratch("target")?;
    let engine = made.build(run, scratch.path())?;
    checkpoint_now(&engine)?;
    drop(engine);
    // What restarts cost here.
    median_restart(run, &made, scratch.path())?;
    let engine = Engine::open(Options { recovery_target: FAR_TARGET, ..made.options(scratch.path()) })?;
    wait_for_costs(&engine);
    let floor = engine.restart_forecast().floor_seconds.unwrap_or(0.0);
    let target = floor * (1.0 + ROOM_SHARE) + ROOM_SECONDS;
    engine.set_recovery_target(Duration::from_secs_f64(target));
    let before = engine.stats().checkpoints;
    let (sustained, highest) = updates_under_target(run, &made, &engine)?;
    let checkpoints = engine.stats().checkpoints - before;
    drop(engine);
    made.updates = sustained.operations;
    let reopened = made.restart(scratch.path(), run.threads)?;
    let rate = Figure::new("target", "durable updates", sustained.operations as f64, "updates", sustained.seconds);
    let foretold = Figure::new("target", "highest prediction to target", 0.0, "", highest).ratio(highest / target);
    let real = Figure::new("target", "restart to target", 0.0, "", reopened.open_seconds);
    let note = format!("target {target:.2} s, of which images and indexes {floor:.2} s; {checkpoints} checkpoints");
    Ok(vec![
        rate.threads(run.threads).note(note),
        run.due(foretold, Due::RatioAtMost(1.0)),
        run.due(real.ratio(reopened.open_seconds / target).threads(run.threads), Due::RatioAtMost(1.0)),
    ])
}

/// Updates, and the longest restart that was foretold meanwhile.
fn updates_under_target(run: &Run<'_>, made: &Made, engine: &Engine) -> Result<(Sustained, f64), BenchError> {
    let time = Duration::from_secs_f64(run.args.seconds);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut highest = 0.0f64;
            while !stop.load(Ordering::Relaxed) {
                highest = highest.max(engine.restart_forecast().predicted_seconds.unwrap_or(0.0));
                thread::park_timeout(Duration::from_millis(50));
            }
            highest
        });
        let work = |done: &AtomicU64| made.spec.update_for(engine, time, run.threads, IN_FLIGHT, done);
        let sustained = during("durable updates under a target", time.as_millis() as u64, work);
        stop.store(true, Ordering::Relaxed);
        let highest = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sustained.map(|sustained| (sustained, highest))
    })
}
