//! What checkpoints cost: the cases `checkpoint` and `paced`.

use super::Run;
use super::made::{IN_FLIGHT, Made, checkpoint_now, total_figure};
use crate::data::{Shape, Spec, Sustained};
use crate::error::{BenchError, on};
use crate::figure::{Due, Figure};
use crate::progress::{during, say};
use freshet_engine::engine::Engine;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A deadline that leaves the pace to the engine.
const NO_HURRY: Duration = Duration::from_secs(3600);

pub(super) fn checkpoint(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(8_000_000);
    let made = Made::new(Spec { shape: Shape::Record168, rows }, 0);
    say(&format!("\ncheckpoint: {rows} rows, unthrottled"));
    let scratch = run.scratch("checkpoint")?;
    let engine = made.build(run, scratch.path())?;
    let logged = engine.stats().commit_record_bytes as f64;
    let before = backup_bytes(&scratch.path().join("data"))?;
    let seconds = checkpoint_now(&engine)?;
    let written = (backup_bytes(&scratch.path().join("data"))? - before) as f64;
    drop(engine);
    let note = format!("write amplification {:.2} image bytes per logged byte", written / logged.max(1.0));
    let figure = Figure::new("checkpoint", "unthrottled", written, "bytes", seconds).note(note);
    let reopened = made.restart(scratch.path(), run.threads)?;
    Ok(vec![
        run.due(figure.limit(run.machine.write_bytes_per_s), Due::RatioAtLeast(0.5)),
        total_figure("checkpoint", &made, &reopened).threads(run.threads),
    ])
}

/// Bytes of images in the data directory.
fn backup_bytes(data: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(data).map_err(on(data))? {
        let entry = entry.map_err(on(data))?;
        if entry.file_name().to_string_lossy().starts_with("images-") {
            bytes += entry.metadata().map_err(on(data))?.len();
        }
    }
    Ok(bytes)
}

pub(super) fn paced(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(8_000_000);
    let mut made = Made::new(Spec { shape: Shape::Record168, rows }, 0);
    made.log_bytes *= 3;
    say(&format!("\npaced: {rows} rows, durable updates with and without checkpoints"));
    let scratch = run.scratch("paced")?;
    let engine = made.build(run, scratch.path())?;
    checkpoint_now(&engine)?;
    let time = Duration::from_secs_f64(run.args.seconds);
    let sustain = |what: &str| {
        let work = |done: &AtomicU64| made.spec.update_for(&engine, time, run.threads, IN_FLIGHT, done);
        during(what, time.as_millis() as u64, work)
    };
    // Caches, version memory and the log's segments as they are under load.
    let warm = sustain("warm up")?;
    let without = sustain("durable updates")?;
    let before = engine.stats();
    let stop = AtomicBool::new(false);
    let with = thread::scope(|scope| {
        let checkpoints = scope.spawn(|| checkpoints_until(&engine, &stop));
        let with = sustain("durable updates, checkpoints");
        stop.store(true, Ordering::Relaxed);
        let done = checkpoints.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        with.and_then(|with| done.map(|()| with))
    })?;
    let checkpoints = engine.stats().checkpoints - before.checkpoints;
    let imaged = engine.checkpoint_progress().bytes;
    drop(engine);
    made.updates = warm.operations + without.operations + with.operations;
    let reopened = made.restart(scratch.path(), run.threads)?;
    let plain = sustained_figure("without", &without, run);
    let beside = sustained_figure("with", &with, run).limit(without.rate());
    let beside = run.due(beside, Due::RatioAtLeast(0.85));
    let p99 = with.p99_us() as f64 / without.p99_us().max(1) as f64;
    let latency = Figure::new("paced", "p99 with to without", 0.0, "", 0.0)
        .ratio(p99)
        .note(format!("{checkpoints} checkpoints finished, {:.0} MB of another", imaged as f64 / 1e6));
    let latency = run.due(latency, Due::RatioAtMost(1.5));
    Ok(vec![plain, beside, latency, total_figure("paced", &made, &reopened)])
}

/// One checkpoint after the other, each at the default pace.
fn checkpoints_until(engine: &Engine, stop: &AtomicBool) -> Result<(), BenchError> {
    let mut begun = None;
    while !stop.load(Ordering::Relaxed) {
        let progress = engine.checkpoint_progress();
        if let Some(failure) = progress.failure {
            return Err(BenchError::Engine(failure.reason));
        }
        if begun.is_none_or(|finished| finished < progress.finished) {
            begun = Some(progress.finished);
            engine.request_checkpoint_within(NO_HURRY);
        }
        thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

fn sustained_figure(name: &str, sustained: &Sustained, run: &Run<'_>) -> Figure {
    let mut figure = Figure::new(
        "paced",
        &format!("durable updates {name} checkpoints"),
        sustained.operations as f64,
        "updates",
        sustained.seconds,
    );
    figure.sessions = run.threads * IN_FLIGHT;
    figure.p50_us = Some(sustained.latency_us.value_at_quantile(0.5) as f64);
    figure.p99_us = Some(sustained.p99_us() as f64);
    figure.log_bytes_per_op = Some(sustained.log_bytes_per_op);
    let (p50, p99) = (figure.p50_us.unwrap_or(0.0), sustained.p99_us());
    figure.threads(run.threads).note(format!("p50 {p50} us, p99 {p99} us, {:.0} log bytes", sustained.log_bytes_per_op))
}
