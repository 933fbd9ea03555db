//! Restarts of large tables, and clean ones of small databases: the cases `f9`, `f10`, `directory`, `empty`, `tables`.

use super::Run;
use super::made::{MEMORY_FLOOR, Made, checkpoint_now, total_figure};
use crate::cold;
use crate::data::{Shape, Spec, transact};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::machine::memory_available;
use crate::progress::{during, say};
use crate::reopen::{Part, ReopenArgs, Reopened, in_fresh_process};
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::schema::{KeyColumn, Type};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(super) fn f9(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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

pub(super) fn f10(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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

pub(super) fn directory(run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
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

pub(super) fn tables(run: &Run<'_>, case: &str, count: usize, due: f64) -> Result<Vec<Figure>, BenchError> {
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
    let column = |name: &str| ColumnDef { name: name.into(), ty: Type::Int8, not_null: true, ..ColumnDef::default() };
    let mut last = None;
    for n in 0..count {
        let def = TableDef { name: format!("t{n}"), columns: vec![column("id"), column("n")], ..Default::default() };
        let index = IndexDef {
            name: format!("t{n}_pkey"),
            kind: IndexKind::BTree,
            unique: true,
            primary: true,
            columns: vec![KeyColumn { column: 0, descending: false }],
            ..IndexDef::default()
        };
        last = Some(transact(&mut session, |s| s.create_table(def.clone(), vec![index.clone()]))?);
        done.fetch_add(1, Ordering::Relaxed);
    }
    match last {
        Some(cts) => Ok(engine.wait_durable(cts).wait()?),
        None => Ok(()),
    }
}
