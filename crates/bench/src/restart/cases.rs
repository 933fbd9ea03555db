//! The cases: what is built, what is measured, what is due.

use super::{Case, Run};
use crate::cold;
use crate::data::{Content, Shape, Spec, transact};
use crate::error::{BenchError, on};
use crate::figure::{Due, Figure};
use crate::machine::{disk_available, memory_available};
use crate::progress::{during, say};
use crate::reopen::{Part, ReopenArgs, Reopened, in_fresh_process};
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::promise::{Forecast, Work};
use freshet_engine::schema::{KeyColumn, Type};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A deadline that leaves the pace to the engine.
const NO_HURRY: Duration = Duration::from_secs(3600);
const MEMORY_FLOOR: u64 = 1 << 30;
/// Commits of each thread on their way to the disk: as many sessions.
const IN_FLIGHT: usize = 1000;

pub(super) fn run(case: Case, run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    match case {
        Case::F9 => f9(run),
        Case::F10 => f10(run),
        Case::Directory => directory(run),
        Case::Empty => tables(run, "empty", 0, 0.2),
        Case::Tables => tables(run, "tables", 1000, 0.5),
        Case::Checkpoint => checkpoint(run),
        Case::Paced => paced(run),
        Case::Prediction => prediction(run),
    }
}

/// A database that a case made, and what it must hold.
struct Made {
    spec: Spec,
    updates: u64,
    memory_bytes: u64,
    log_bytes: u64,
}

impl Made {
    fn new(spec: Spec, updates: u64) -> Made {
        let memory_bytes = spec.memory_bytes() * 5 / 4 + MEMORY_FLOOR;
        // All of it fits the log, so that only the case decides when there is a checkpoint.
        let log_bytes = (spec.rows * 260 + updates * 64) * 5 / 2 + MEMORY_FLOOR;
        Made { spec, updates, memory_bytes, log_bytes }
    }

    fn options(&self, dir: &Path) -> Options {
        Options {
            memory_limit_bytes: self.memory_bytes,
            log_size_bytes: self.log_bytes,
            // The case decides when there is a checkpoint, not the promise.
            recovery_target: Duration::ZERO,
            ..Options::new(dir.join("data"))
        }
    }

    /// Says what is missing before anything is done.
    fn check_machine(&self, dir: &Path) -> Result<(), BenchError> {
        let memory = self.spec.memory_bytes() + MEMORY_FLOOR;
        if memory > memory_available() {
            return Err(short_of("memory", memory, memory_available()));
        }
        let disk = self.spec.rows * 260 * 2 + self.updates * 64 + MEMORY_FLOOR;
        let free = disk_available(dir)?;
        if disk > free { Err(short_of("disk space", disk, free)) } else { Ok(()) }
    }

    /// Creates the database and loads it.
    fn build(&self, run: &Run<'_>, dir: &Path) -> Result<Engine, BenchError> {
        self.check_machine(dir)?;
        let engine = Engine::open(self.options(dir))?;
        self.spec.create(&engine)?;
        let what = format!("load {}", self.spec.shape.table_name());
        during(&what, self.spec.rows, |done| self.spec.load(&engine, 0, run.threads, done))?;
        Ok(engine)
    }

    fn update(&self, run: &Run<'_>, engine: &Engine, count: u64, seed: u64) -> Result<(), BenchError> {
        during("update", count, |done| self.spec.update(engine, count, run.threads, seed, done))
    }

    /// Restarts cold in a fresh process and checks the data there.
    fn restart(&self, dir: &Path, threads: usize) -> Result<Reopened, BenchError> {
        self.restart_with(dir, threads, Duration::ZERO)
    }

    fn restart_with(&self, dir: &Path, threads: usize, target: Duration) -> Result<Reopened, BenchError> {
        let data = dir.join("data");
        cold::drop_cached(&data)?;
        let args = ReopenArgs {
            data,
            threads,
            memory_bytes: self.memory_bytes,
            log_bytes: self.log_bytes,
            target_ms: target.as_millis() as u64,
            shape: Some(self.spec.shape),
            rows: self.spec.rows,
        };
        let reopened = during("restart", 1, |_| in_fresh_process(&args))?;
        let found = Content { rows: reopened.rows, sum: reopened.sum };
        let expected = Content { rows: self.spec.rows, sum: self.updates as i64 };
        if found != expected {
            return Err(BenchError::WrongData(format!("{found:?} after the restart where {expected:?} was written")));
        }
        Ok(reopened)
    }
}

fn short_of(what: &str, needed: u64, there: u64) -> BenchError {
    let giga = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let (needed, there) = (giga(needed), giga(there));
    BenchError::Machine(format!(
        "needs {needed:.1} GiB of {what}, {there:.1} GiB are free: give --rows a smaller number"
    ))
}

/// Gives the seconds that it took.
fn checkpoint_now(engine: &Engine) -> Result<f64, BenchError> {
    during("checkpoint", 1, |_| {
        let start = Instant::now();
        engine.checkpoint()?;
        Ok(start.elapsed().as_secs_f64())
    })
}

// ---- restarts of a large table

fn f9(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(8_000_000);
    let made = Made::new(Spec { shape: Shape::Record168, rows }, run.updates(rows));
    say(&format!("\nf9: {} rows, {} logged updates", made.spec.rows, made.updates));
    let scratch = run.scratch("f9")?;
    let engine = made.build(run, scratch.path())?;
    checkpoint_now(&engine)?;
    made.update(run, &engine, made.updates, 1)?;
    drop(engine);
    let reopened = made.restart(scratch.path(), run.threads)?;
    // The reference's size only: a smaller run has no claim to it.
    let is_full = made.updates == 10_000_000 && run.is_full();
    Ok(restart_figures("f9", &made, &reopened, run)
        .into_iter()
        .map(|(figure, due)| if is_full { due.map_or(figure.clone(), |due| figure.due(due)) } else { figure })
        .collect())
}

/// Total and phases of a restart, each with what is due of F9.
fn restart_figures(case: &str, made: &Made, reopened: &Reopened, run: &Run<'_>) -> Vec<(Figure, Option<Due>)> {
    let recovery = &reopened.recovery;
    let read_limit = run.machine.read_limit();
    let bytes =
        |name: &str, part: &Part| Figure::new(case, name, part.bytes as f64, "bytes", part.seconds).limit(read_limit);
    let items =
        |name: &str, part: &Part, unit: &'static str| Figure::new(case, name, part.items as f64, unit, part.seconds);
    let mut figures = vec![
        (total_figure(case, made, reopened), Some(Due::SecondsAtMost(4.0))),
        (bytes("log scan", &recovery.scan), None),
        (bytes("image load", &recovery.images), Some(Due::RatioAtLeast(0.6))),
        (items("delta replay", &recovery.replay, "deltas"), Some(Due::RateAtLeast(6e6))),
        (items("row restore", &recovery.restore, "slots"), None),
        (items("index rebuild", &recovery.rebuild, "entries"), Some(Due::RateAtLeast(1e7))),
    ];
    figures.retain(|(figure, _)| figure.amount > 0.0);
    figures.iter_mut().for_each(|(figure, _)| figure.threads = run.threads);
    figures
}

fn total_figure(case: &str, made: &Made, reopened: &Reopened) -> Figure {
    let note = format!(
        "{} updates, {} index entries; {:.2} s of processor; peak {:.2} x pages",
        made.updates,
        reopened.index_entries,
        reopened.processor_seconds,
        reopened.peak_bytes as f64 / reopened.page_bytes.max(1) as f64
    );
    Figure::new(case, "total restart", reopened.rows as f64, "rows", reopened.open_seconds).note(note)
}

fn f10(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let wanted = run.rows(40_000_000);
    let per_row = Shape::Record168.memory_bytes_per_row();
    let room = (memory_available() / 10 * 8).saturating_sub(MEMORY_FLOOR) / per_row;
    let rows = wanted.min(room);
    let made = Made::new(Spec { shape: Shape::Record168, rows }, run.args.updates.unwrap_or(rows / 2));
    say(&format!("\nf10: {rows} rows of {wanted} (memory allows {room}), {} logged updates", made.updates));
    let scratch = run.scratch("f10")?;
    let engine = made.build(run, scratch.path())?;
    checkpoint_now(&engine)?;
    made.update(run, &engine, made.updates, 1)?;
    drop(engine);
    let mut figures = Vec::new();
    let mut processor_seconds = Vec::new();
    for threads in [1, run.threads.max(2)] {
        let reopened = made.restart(scratch.path(), threads)?;
        let case = format!("f10 by {threads}");
        let told = restart_figures(&case, &made, &reopened, run).into_iter();
        figures.extend(told.map(|(figure, _)| figure.threads(threads)));
        let recovery = &reopened.recovery;
        processor_seconds.push(recovery.replay.seconds + recovery.restore.seconds + recovery.rebuild.seconds);
    }
    let speedup = Figure::new("f10", "replay, restore, rebuild: one thread to all", 0.0, "", 0.0)
        .ratio(processor_seconds[0] / processor_seconds[1].max(f64::MIN_POSITIVE));
    figures.push(if run.is_full() && run.threads == 2 { speedup.due(Due::RatioAtLeast(1.8)) } else { speedup });
    Ok(figures)
}

fn directory(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
    let rows = run.rows(12_000_000);
    let made = Made::new(Spec { shape: Shape::Directory, rows }, run.args.updates.unwrap_or(rows / 10));
    say(&format!("\ndirectory: {rows} subscribers, three hash indexes, {} logged updates", made.updates));
    let scratch = run.scratch("directory")?;
    let start = Instant::now();
    let engine = made.build(run, scratch.path())?;
    let load_seconds = start.elapsed().as_secs_f64();
    let checkpoint_seconds = checkpoint_now(&engine)?;
    let image_bytes = engine.stats().page_bytes as f64;
    made.update(run, &engine, made.updates, 1)?;
    drop(engine);
    let reopened = made.restart(scratch.path(), run.threads)?;
    let mut figures = vec![
        Figure::new("directory", "load, three indexes", rows as f64, "rows", load_seconds).threads(run.threads),
        Figure::new("directory", "checkpoint", image_bytes, "bytes", checkpoint_seconds)
            .limit(run.machine.write_bytes_per_s),
    ];
    figures.extend(restart_figures("directory", &made, &reopened, run).into_iter().map(|(figure, _)| figure));
    Ok(figures)
}

// ---- clean restarts

fn tables(run: &Run<'_>, case: &str, count: usize, due: f64) -> Result<Vec<Figure>, BenchError> {
    // A smoke run makes fewer.
    let count = run.args.rows.map_or(count, |rows| count.min(rows as usize));
    say(&format!("\n{case}: {count} tables"));
    let scratch = run.scratch(case)?;
    let data = scratch.path().join("data");
    let usual = Options::new(&data);
    let engine = Engine::open(usual.clone())?;
    during("create tables", count as u64, |done| create_tables(&engine, count, done))?;
    drop(engine);
    cold::drop_cached(&data)?;
    let (memory_bytes, log_bytes) = (usual.memory_limit_bytes, usual.log_size_bytes);
    let args = ReopenArgs { data, threads: run.threads, memory_bytes, log_bytes, target_ms: 0, shape: None, rows: 0 };
    let reopened = in_fresh_process(&args)?;
    if reopened.tables != count {
        return Err(BenchError::WrongData(format!("{} tables after the restart of {count}", reopened.tables)));
    }
    let figure = Figure::new(case, "clean restart", count as f64, "tables", reopened.open_seconds).threads(run.threads);
    Ok(vec![run.due(figure, Due::SecondsAtMost(due))])
}

fn create_tables(engine: &Engine, count: usize, done: &AtomicU64) -> Result<(), BenchError> {
    let mut session = engine.connect()?;
    let column = |name: &str| ColumnDef { name: name.into(), ty: Type::Int8, not_null: true, default: None };
    let mut last = None;
    for n in 0..count {
        let def = TableDef { name: format!("t{n}"), columns: vec![column("id"), column("n")] };
        let index = IndexDef {
            name: format!("t{n}_pkey"),
            kind: IndexKind::BTree,
            unique: true,
            primary: true,
            columns: vec![KeyColumn { column: 0, descending: false }],
        };
        last = Some(transact(&mut session, |s| s.create_table(def.clone(), vec![index.clone()]))?);
        done.fetch_add(1, Ordering::Relaxed);
    }
    match last {
        Some(cts) => Ok(engine.wait_durable(cts).wait()?),
        None => Ok(()),
    }
}

// ---- checkpoints

fn checkpoint(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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

fn paced(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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

fn sustained_figure(name: &str, sustained: &crate::data::Sustained, run: &Run<'_>) -> Figure {
    let mut figure = Figure::new(
        "paced",
        &format!("durable updates {name} checkpoints"),
        sustained.operations as f64,
        "updates",
        sustained.seconds,
    );
    figure.sessions = run.threads * IN_FLIGHT;
    figure.p50_us = Some(sustained.latency_us.value_at_quantile(0.5));
    figure.p99_us = Some(sustained.p99_us());
    figure.log_bytes_per_op = Some(sustained.log_bytes_per_op);
    let (p50, p99) = (figure.p50_us.unwrap_or(0), sustained.p99_us());
    figure.threads(run.threads).note(format!("p50 {p50} us, p99 {p99} us, {:.0} log bytes", sustained.log_bytes_per_op))
}

// ---- predictions

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

fn prediction(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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
