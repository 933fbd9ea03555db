//! What does one restart cost, in a process of its own? Opens the database, notes the time, then checks the data, and tells all as one line of JSON.
//!
//! The parent is the workload `restart`, which dropped the files from the page cache before. The time is that of `Engine::open`: from
//! nothing to the first statement; starting a process is not part of it, and is told apart.

use crate::data::{Shape, Spec};
use crate::error::{BenchError, on};
use clap::Args;
use freshet_engine::engine::{Engine, Options, PhaseStats, RecoveryStats};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Args, Clone, Debug)]
pub struct ReopenArgs {
    #[arg(long)]
    pub data: PathBuf,
    /// Threads of the recovery; 0: one per core
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    #[arg(long)]
    pub memory_bytes: u64,
    #[arg(long)]
    pub log_bytes: u64,
    /// Recovery target in milliseconds, with which costs are measured and kept; 0: off
    #[arg(long, default_value_t = 0)]
    pub target_ms: u64,
    /// The table to check
    #[arg(long)]
    pub shape: Option<Shape>,
    #[arg(long, default_value_t = 0)]
    pub rows: u64,
}

impl ReopenArgs {
    fn target(&self) -> Duration {
        Duration::from_millis(self.target_ms)
    }
}

/// One restart.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Reopened {
    pub open_seconds: f64,
    /// Processor time of all threads meanwhile: it grows less than the time does beside other work.
    pub processor_seconds: f64,
    /// What the engine foretold before this restart, where it did.
    pub predicted_seconds: Option<f64>,
    pub recovery: Recovery,
    pub check_seconds: f64,
    pub rows: u64,
    pub sum: i64,
    pub tables: usize,
    pub index_entries: u64,
    pub page_bytes: u64,
    /// The most memory that the process ever had (VmHWM).
    pub peak_bytes: u64,
}

/// One part of a recovery.
#[derive(Clone, Copy, Default, Serialize, Deserialize, Debug)]
pub struct Part {
    pub seconds: f64,
    pub bytes: u64,
    pub items: u64,
}

impl Part {
    fn of(stats: &PhaseStats) -> Part {
        Part { seconds: stats.elapsed_us as f64 / 1e6, bytes: stats.bytes, items: stats.items }
    }
}

/// The engine's own account of its recovery.
#[derive(Clone, Copy, Default, Serialize, Deserialize, Debug)]
pub struct Recovery {
    /// Log read and judged; groups.
    pub scan: Part,
    pub images: Part,
    /// Log applied; deltas.
    pub replay: Part,
    /// Pages looked through; slots.
    pub restore: Part,
    /// Indexes; entries.
    pub rebuild: Part,
    pub scratch_bytes: u64,
}

impl Recovery {
    fn of(stats: &RecoveryStats) -> Recovery {
        Recovery {
            scan: Part::of(&stats.scan),
            images: Part::of(&stats.images),
            replay: Part::of(&stats.replay),
            restore: Part::of(&stats.restore),
            rebuild: Part::of(&stats.rebuild),
            scratch_bytes: stats.scratch_bytes,
        }
    }
}

/// Opens, measures and checks, in this process.
pub fn reopen(args: &ReopenArgs) -> Result<Reopened, BenchError> {
    let start = Instant::now();
    let engine = Engine::open(options(args))?;
    let open_seconds = start.elapsed().as_secs_f64();
    let processor_seconds = processor_seconds();
    let peak_bytes = peak_bytes();
    let start = Instant::now();
    let content = match args.shape {
        Some(shape) => Some(Spec { shape, rows: args.rows }.check(&engine)?),
        None => None,
    };
    let schema = engine.schema();
    Ok(Reopened {
        open_seconds,
        processor_seconds,
        predicted_seconds: engine.restart_forecast().last.predicted_seconds,
        recovery: Recovery::of(engine.recovery()),
        check_seconds: start.elapsed().as_secs_f64(),
        rows: content.map_or(0, |c| c.rows),
        sum: content.map_or(0, |c| c.sum),
        tables: schema.tables().count(),
        index_entries: schema.tables().flat_map(|t| &t.indexes).map(|i| i.entries()).sum(),
        page_bytes: engine.stats().page_bytes,
        peak_bytes,
    })
}

fn options(args: &ReopenArgs) -> Options {
    Options {
        create: false,
        memory_limit_bytes: args.memory_bytes,
        log_size_bytes: args.log_bytes,
        recovery_threads: args.threads,
        recovery_target: args.target(),
        ..Options::new(&args.data)
    }
}

/// Of this process since it began.
fn processor_seconds() -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields after the name, which may hold blanks: user time is the 12th, system time the 13th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_S
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// What the hidden subcommand does.
pub fn run_and_tell(args: &ReopenArgs) -> Result<(), BenchError> {
    let told = serde_json::to_string(&reopen(args)?).map_err(|e| BenchError::Machine(e.to_string()))?;
    writeln!(std::io::stdout(), "{told}").map_err(on(Path::new("standard output")))
}

/// The same in a new process of this program.
pub fn in_fresh_process(args: &ReopenArgs) -> Result<Reopened, BenchError> {
    let program = std::env::current_exe().map_err(on(Path::new("this program")))?;
    let mut command = Command::new(&program);
    command.args(["bench", "reopen"]).arg("--data").arg(&args.data);
    let numbers = [
        ("--threads", args.threads as u64),
        ("--memory-bytes", args.memory_bytes),
        ("--log-bytes", args.log_bytes),
        ("--rows", args.rows),
        ("--target-ms", args.target_ms),
    ];
    command.args(numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]));
    if let Some(shape) = args.shape {
        command
            .args(["--shape", clap::ValueEnum::to_possible_value(&shape).expect("every shape has a name").get_name()]);
    }
    let told = command.output().map_err(on(&program))?;
    if !told.status.success() {
        let reason = String::from_utf8_lossy(&told.stderr).trim().to_owned();
        return Err(BenchError::Engine(format!("the restarted process failed ({}): {reason}", told.status)));
    }
    serde_json::from_slice(&told.stdout)
        .map_err(|e| BenchError::Engine(format!("the restarted process told nothing that can be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_reopened_database_holds_what_was_put_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let spec = Spec { shape: Shape::Directory, rows: 777 };
        let engine = Engine::open(Options::small(dir.path())).expect("opens");
        spec.create(&engine).expect("creates");
        spec.load(&engine, 0, 1, &AtomicU64::new(0)).expect("loads");
        engine.checkpoint().expect("checkpoints");
        spec.update(&engine, 1000, 1, 3, &AtomicU64::new(0)).expect("updates");
        drop(engine);
        let args = ReopenArgs {
            data: dir.path().into(),
            threads: 1,
            memory_bytes: 64 << 20,
            log_bytes: 1 << 30,
            target_ms: 0,
            shape: Some(spec.shape),
            rows: spec.rows,
        };
        let reopened = reopen(&args).expect("reopens");
        assert_eq!((reopened.rows, reopened.sum, reopened.tables), (777, 1000, 1));
        assert_eq!(reopened.index_entries, 3 * 777);
        assert_eq!((reopened.recovery.rebuild.items, reopened.recovery.replay.items), (3 * 777, 1000));
        assert!(reopen(&ReopenArgs { data: dir.path().join("nothing"), ..args }).is_err());
    }
}
