//! The workload `restart`: how long until a database answers again, and what do checkpoints cost meanwhile?
//!
//! | case | what | due |
//! |---|---|---|
//! | `f9` | 8 M x 168 B, hash index, image of all, 10 M logged updates | total 4 s; load 0.6 of read bandwidth; 6 M deltas/s; 10 M entries/s |
//! | `f10` | 40 M x 168 B, or as many as memory allows; 20 M updates; 1 and 2 threads | 2 threads 1.8 x one |
//! | `directory` | 12 M subscribers with three hash indexes | |
//! | `empty`, `tables` | clean restart of a new database, and of 1,000 tables | 0.2 s, 0.5 s |
//! | `checkpoint` | everything imaged without a pace | 0.5 of write bandwidth |
//! | `paced` | durable updates with the paced checkpoint and without | rate 0.85, p99 1.5 x |
//! | `prediction` | what the engine foretold against what it took, seven sizes and log lengths | within 30 % |
//! | `target` | durable updates under a recovery target a little above what images and indexes take, then a restart | within the target |
//!
//! Every restart is a fresh process that finds nothing of the database in the page cache, and every database is checked afterwards: a run
//! whose data is wrong fails. Sources of the figures: P*TIME's F9, F10 and its 2002 directory (REFERENCE.md).

mod made;

mod restarts;

mod checkpoints;

mod promise;

use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting};
use crate::machine::Machine;
use crate::progress::{during, say};
use crate::scratch::Scratch;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Restarts and checkpoints, against the disk's own bandwidth
#[derive(Args, Clone, Debug)]
pub struct RestartArgs {
    /// Rows of every table case [default: the case's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    rows: Option<u64>,
    /// Logged updates [default: 10 for every 8 rows, as the source has it]
    #[arg(long, value_name = "N")]
    updates: Option<u64>,
    /// Seconds of each measurement under load
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// Only these cases [default: all]
    #[arg(long = "case", value_name = "CASE", value_enum)]
    cases: Vec<Case>,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the databases are made, on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
    /// Threads that load, update and recover [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Case {
    F9,
    F10,
    Directory,
    Empty,
    Tables,
    Checkpoint,
    Paced,
    Prediction,
    Target,
}

impl Case {
    fn measure(self, run: &Run<'_>) -> Result<Vec<Figure>, BenchError> {
        match self {
            Case::F9 => restarts::f9(run),
            Case::F10 => restarts::f10(run),
            Case::Directory => restarts::directory(run),
            Case::Empty => restarts::tables(run, "empty", 0, 0.2),
            Case::Tables => restarts::tables(run, "tables", 1000, 0.5),
            Case::Checkpoint => checkpoints::checkpoint(run),
            Case::Paced => checkpoints::paced(run),
            Case::Prediction => promise::prediction(run),
            Case::Target => promise::target(run),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 86_400.0 => Ok(s),
        _ => Err("a number of seconds above 0".to_owned()),
    }
}

/// What every case works with.
pub(crate) struct Run<'a> {
    args: &'a RestartArgs,
    machine: &'a Machine,
    threads: usize,
}

impl Run<'_> {
    fn rows(&self, usual: u64) -> u64 {
        self.args.rows.unwrap_or(usual)
    }

    fn updates(&self, rows: u64) -> u64 {
        self.args.updates.unwrap_or(rows / 8 * 10)
    }

    /// The sizes are the cases' own: what is due of them is judged.
    fn is_full(&self) -> bool {
        self.args.rows.is_none()
    }

    fn due(&self, figure: Figure, due: Due) -> Figure {
        if self.is_full() { figure.due(due) } else { figure }
    }

    fn scratch(&self, case: &str) -> Result<Scratch, BenchError> {
        Scratch::new(&self.args.data, case)
    }
}

pub fn run(args: &RestartArgs) -> Result<(), BenchError> {
    if args.threads == Some(0) {
        return Err(BenchError::Usage("--threads must be at least 1".into()));
    }
    figure::refuse_unwritable(&args.json)?;
    std::fs::create_dir_all(&args.data).map_err(on(&args.data))?;
    let machine = measure_machine(&args.data, args.rows)?;
    machine.lines().iter().for_each(|line| say(line));
    say("restarts: a fresh process; the database's files synced and dropped from the page cache (posix_fadvise)");
    let threads = args.threads.unwrap_or(machine.cores);
    let run = Run { args, machine: &machine, threads };
    let mut figures = Vec::new();
    for case in chosen(&args.cases) {
        let told = case.measure(&run)?;
        say("");
        figure::table(&told).iter().for_each(|line| say(line));
        figures.extend(told);
    }
    if let Some(path) = &args.json {
        figure::append_json(path, &figures, &setting(args, machine.clone()))?;
    }
    say("");
    say(&figure::verdict(&figures));
    Ok(())
}

fn chosen(cases: &[Case]) -> Vec<Case> {
    let mut chosen = if cases.is_empty() { Case::value_variants().to_vec() } else { cases.to_vec() };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The probe's file is small where the run is: a smoke run takes no gigabyte.
fn measure_machine(dir: &Path, rows: Option<u64>) -> Result<Machine, BenchError> {
    let bytes = rows.map_or(1 << 30, |rows| (rows * 168).clamp(8 << 20, 1 << 30));
    during("limits of this machine", 1, |done| {
        let machine = Machine::measure(dir, bytes);
        done.store(1, Ordering::Relaxed);
        machine
    })
}

fn setting(args: &RestartArgs, machine: Machine) -> Setting {
    let mut config = BTreeMap::from([
        ("data", args.data.display().to_string()),
        ("seconds", args.seconds.to_string()),
        ("page_cache", "dropped by posix_fadvise".to_owned()),
    ]);
    if let Some(rows) = args.rows {
        config.insert("rows", rows.to_string());
    }
    if let Some(updates) = args.updates {
        config.insert("updates", updates.to_string());
    }
    Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine }
}
