//! The workload `copy`: COPY of a file into a table with a primary key, and back into another file, on our server and on PostgreSQL.
//!
//! Both get the same file and the same statements: CREATE TABLE, `COPY t FROM 'file'`, count and sums, `COPY t TO 'file'`. In each run each server is
//! started on an empty directory and ends before the next one starts, so that neither has the other's pages beside it; the best run counts. What COPY
//! FROM was answered for is durable on both. Rows, sums and the size of the file that comes out are those of the file that went in, or there is no figure.

use crate::adapter::freshet_wire::{self, Wire};
use crate::adapter::postgres::{self, Postgres};
use crate::adapter::sql::{Dialect, definition};
use crate::adapter::wire::ask_in_turn;
use crate::adapter::{Kind, Setup};
use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting, short};
use crate::log_plan::LogPlan;
use crate::machine::{Machine, disk_available, memory_available};
use crate::progress::{during, say, waiting};
use crate::scratch::Scratch;
use crate::served::System;
use crate::shape::{Order, TableShape, record168};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const OURS: &str = "freshet-wire";
const THEIRS: &str = "postgres";
const KINDS: [Kind; 2] = [freshet_wire::KIND, postgres::KIND];

/// What is copied where, and what is due of ours in multiples of PostgreSQL's.
const CASES: [(&str, f64); 2] = [("from", 3.0), ("to", 2.0)];

/// With fewer rows, or a build that is not optimised, a run only shows that it works.
const JUDGED_ROWS: u64 = 1_000_000;
/// Each run asks over one connection at a time.
const SESSIONS: usize = 4;
const MEMORY_BESIDE_BYTES: u64 = 1 << 30;
/// A log's files that are made ahead, and what is written while the last checkpoint still counts.
const DISK_BESIDE_BYTES: u64 = 6 << 30;
const DISK_BESIDE_SMALL_BYTES: u64 = 1 << 30;
const WRITE_BYTES: usize = 1 << 20;
/// What the machine is measured with, from and to: its disk is the limit, and a test has little to copy.
const PROBE_BYTES: (u64, u64) = (16 << 20, 256 << 20);

/// COPY of a file into a table and back, beside PostgreSQL
#[derive(Args, Clone, Debug)]
pub struct CopyArgs {
    /// Rows of 21 bigints, 168 bytes
    #[arg(long, value_name = "N", default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: u64,
    /// Runs of each server, of which the best counts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Only these cases [default: all]
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',')]
    cases: Vec<String>,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the file and the databases are made
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
}

/// The file that is read, and what a table holds that has it.
struct Input {
    path: PathBuf,
    bytes: u64,
    /// Rows, and the sums of the first and the last column.
    content: [u64; 3],
}

/// Seconds of the best run, where the case was asked for.
#[derive(Clone, Copy, Default, Debug)]
struct Best([Option<f64>; CASES.len()]);

pub fn run(args: &CopyArgs) -> Result<(), BenchError> {
    let cases = chosen(&args.cases)?;
    figure::refuse_unwritable(&args.json)?;
    fs::create_dir_all(&args.data).map_err(on(&args.data))?;
    let kinds = available();
    if kinds.is_empty() {
        return Err(BenchError::Machine("there is no server to copy into".into()));
    }
    let shape = record168(Order::Btree);
    say_needs(args, &shape)?;
    let probe_bytes = (args.rows * shape.raw_bytes()).clamp(PROBE_BYTES.0, PROBE_BYTES.1);
    let machine = Machine::measure(&args.data, probe_bytes)?;
    machine.lines().iter().for_each(|line| say(line));
    let scratch = Scratch::new(&args.data, "copy")?;
    let path = std::path::absolute(scratch.path().join("rows.copy")).map_err(on(scratch.path()))?;
    let input = during("the file", args.rows, |done| Input::write(path, &shape, args.rows, done))?;
    say(&format!("{} rows, a file of {}B", short(args.rows as f64), short(input.bytes as f64)));
    let mut best: BTreeMap<&'static str, Best> = BTreeMap::new();
    for run in 1..=args.runs {
        for kind in &kinds {
            let what = format!("{}: run {run} of {}", kind.name, args.runs);
            let found = waiting(&what, || copy(kind.name, &scratch, &shape, &input, cases))?;
            say(&format!("{what}: {}", found.told(args.rows)));
            best.entry(kind.name).or_default().take(found);
        }
    }
    finish(args, machine, &input, &best)
}

/// For each case, whether it is told.
fn chosen(names: &[String]) -> Result<[bool; CASES.len()], BenchError> {
    let known = CASES.map(|(name, _)| name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(BenchError::Usage(format!("copy has no case {unknown}; there are: {}", known.join(", "))));
    }
    Ok(known.map(|case| names.is_empty() || names.iter().any(|name| name == case)))
}

fn available() -> Vec<Kind> {
    let is_there = |kind: &Kind| match (kind.is_available)() {
        Ok(()) => true,
        Err(missing) => {
            say(&missing.line(kind.name));
            false
        }
    };
    KINDS.into_iter().filter(is_there).collect()
}

/// For one server: there is never a second one.
fn memory_bytes(shape: &TableShape, rows: u64) -> u64 {
    rows * shape.memory_bytes() * 3 / 2 + MEMORY_BESIDE_BYTES
}

/// Both files, the table, and as much again for the log or the image of a checkpoint.
fn disk_bytes(shape: &TableShape, rows: u64) -> u64 {
    // All numbers of a row have at most as many digits as the last row's last one.
    let digits = row(shape, rows).iter().map(|cell| cell.to_string().len() as u64).max().unwrap_or(0);
    let file = rows * shape.columns.len() as u64 * (digits + 1);
    let table = rows * shape.memory_bytes();
    2 * file + 2 * table + if rows >= JUDGED_ROWS { DISK_BESIDE_BYTES } else { DISK_BESIDE_SMALL_BYTES }
}

fn say_needs(args: &CopyArgs, shape: &TableShape) -> Result<(), BenchError> {
    let needs = [
        ("memory", memory_bytes(shape, args.rows), memory_available()),
        ("disk", disk_bytes(shape, args.rows), disk_available(&args.data)?),
    ];
    let [memory, disk] = needs.map(|(_, need, _)| need >> 20);
    say(&format!("{} rows need up to {memory} MiB of memory and {disk} MiB of disk", short(args.rows as f64)));
    match needs.into_iter().find(|(_, need, have)| need > have) {
        None => Ok(()),
        Some((what, need, have)) => Err(BenchError::Machine(format!(
            "copy needs about {} MiB of {what} and {} MiB are available: use fewer rows with --rows, or another disk with --data",
            need >> 20,
            have >> 20
        ))),
    }
}

fn row(shape: &TableShape, id: u64) -> Vec<i64> {
    let mut cells = Vec::with_capacity(shape.columns.len());
    (shape.row)(id, &mut cells);
    cells
}

impl Input {
    /// Writes it to the disk, so that no server has to wait until the kernel has.
    fn write(path: PathBuf, shape: &TableShape, rows: u64, done: &AtomicU64) -> Result<Input, BenchError> {
        let mut file = BufWriter::with_capacity(WRITE_BYTES, File::create(&path).map_err(on(&path))?);
        let (mut cells, mut line) = (Vec::new(), String::new());
        let mut content = [rows, 0, 0];
        let mut bytes = 0;
        for id in 0..rows {
            cells.clear();
            line.clear();
            (shape.row)(id, &mut cells);
            text_of(&cells, &mut line);
            file.write_all(line.as_bytes()).map_err(on(&path))?;
            bytes += line.len() as u64;
            content[1] += cells[0] as u64;
            content[2] += cells[cells.len() - 1] as u64;
            done.store(id + 1, Ordering::Relaxed);
        }
        let file = file.into_inner().map_err(|error| on(&path)(error.into_error()))?;
        file.sync_all().map_err(on(&path))?;
        Ok(Input { path, bytes, content })
    }

    fn bytes_of_a_row(&self) -> f64 {
        self.bytes as f64 / self.content[0] as f64
    }
}

/// A line of COPY's text format.
fn text_of(cells: &[i64], line: &mut String) {
    use std::fmt::Write;
    for (n, cell) in cells.iter().enumerate() {
        let before = if n == 0 { "" } else { "\t" };
        write!(line, "{before}{cell}").expect("a string grows");
    }
    line.push('\n');
}

impl Best {
    fn take(&mut self, found: Best) {
        for (best, found) in self.0.iter_mut().zip(found.0) {
            *best = (*best).into_iter().chain(found).reduce(f64::min);
        }
    }

    fn told(&self, rows: u64) -> String {
        let told = CASES.iter().zip(self.0).filter_map(|((case, _), seconds)| {
            let seconds = seconds?;
            Some(format!("{case} {seconds:.3} s, {} rows/s", short(rows as f64 / seconds)))
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

/// One run: a server on a directory of its own, which is gone afterwards.
fn copy(
    name: &'static str,
    parent: &Scratch,
    shape: &TableShape,
    input: &Input,
    cases: [bool; CASES.len()],
) -> Result<Best, BenchError> {
    let scratch = Scratch::new(parent.path(), name)?;
    let log = LogPlan::of_all(&[]).map_err(BenchError::Usage)?;
    let setup = Setup::new(scratch.path().to_owned(), log, memory_bytes(shape, input.content[0]), SESSIONS)?;
    let system = match name {
        THEIRS => System::Postgres(Postgres::start(&setup)?),
        _ => System::Freshet(Wire::start(&setup)?),
    };
    let from = copy_from(&system, shape, input)?;
    let to = if cases[1] { Some(copy_to(&system, scratch.path(), shape, input)?) } else { None };
    Ok(Best([cases[0].then_some(from), to]))
}

/// Seconds until all rows are in the table, durable.
fn copy_from(system: &System, shape: &TableShape, input: &Input) -> Result<f64, BenchError> {
    // The very same statement for both.
    let mut statements = vec!["SET synchronous_commit = on".to_owned()];
    statements.extend(definition(shape, Dialect::Postgres));
    let copy = statements.len();
    let (table, last) = (shape.name, shape.columns.last().map_or("", |column| &column.name));
    statements.push(format!("COPY {table} FROM {}", literal(&input.path)));
    statements.push(format!("SELECT count(*), sum({})::bigint, sum({last})::bigint FROM {table}", shape.key_name(0)));
    let answers = ask_in_turn(system.address(), &statements)?;
    let found = answers.last().and_then(|(rows, _)| rows.first()).map(Vec::as_slice).unwrap_or_default();
    let due = input.content.map(|number| Some(number.to_string()));
    if found != due {
        let wrong = format!("{} holds {found:?} after COPY FROM, where {due:?} are due", system.name());
        return Err(BenchError::WrongData(wrong));
    }
    Ok(answers[copy].1)
}

/// Seconds until all rows are in a file of the directory.
fn copy_to(system: &System, dir: &Path, shape: &TableShape, input: &Input) -> Result<f64, BenchError> {
    let path = std::path::absolute(dir.join("out.copy")).map_err(on(dir))?;
    let answers = ask_in_turn(system.address(), &[format!("COPY {} TO {}", shape.name, literal(&path))])?;
    let bytes = fs::metadata(&path).map_err(on(&path))?.len();
    if bytes != input.bytes {
        let wrong = format!("{} copied {bytes} bytes, where {} are due", system.name(), input.bytes);
        return Err(BenchError::WrongData(wrong));
    }
    Ok(answers[0].1)
}

fn literal(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}

/// The figures of a case, of each server; what the disk writes of the file's bytes is the limit.
fn figures_of(
    at: usize,
    input: &Input,
    best: &BTreeMap<&'static str, Best>,
    machine: &Machine,
    is_judged: bool,
) -> Vec<Figure> {
    let (case, due) = CASES[at];
    let limit = machine.write_bytes_per_s / input.bytes_of_a_row();
    let figure = |adapter: &'static str| {
        let seconds = best.get(adapter)?.0[at]?;
        let figure = Figure::new(case, "rows", input.content[0] as f64, "rows", seconds).threads(1).limit(limit);
        let note = format!("{:.3} s, {:.0} MB/s of the file", seconds, input.bytes as f64 / seconds / 1e6);
        Some(Figure { workload: "copy", adapter, sessions: 1, ..figure }.note(note))
    };
    let (ours, theirs) = (figure(OURS), figure(THEIRS));
    let times = ours.as_ref().zip(theirs.as_ref()).map(|(ours, theirs)| {
        let times = ours.clone().derived_ratio("times PostgreSQL", ours.rate_per_s / theirs.rate_per_s).note("");
        times.due_if(is_judged, Due::RatioAtLeast(due))
    });
    [ours, theirs, times].into_iter().flatten().collect()
}

fn finish(
    args: &CopyArgs,
    machine: Machine,
    input: &Input,
    best: &BTreeMap<&'static str, Best>,
) -> Result<(), BenchError> {
    let is_judged = args.rows >= JUDGED_ROWS && machine.optimised;
    let figures: Vec<Figure> =
        (0..CASES.len()).flat_map(|at| figures_of(at, input, best, &machine, is_judged)).collect();
    say("");
    figure::rates_table(&figures).iter().for_each(|line| say(line));
    if let Some(path) = &args.json {
        let config = BTreeMap::from([("rows", args.rows.to_string()), ("runs", args.runs.to_string())]);
        let setting = Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine };
        figure::append_json(path, &figures, &setting)?;
    }
    say("");
    say(&figure::verdict(&figures));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_every_row_and_its_need_is_not_told_too_small() {
        let dir = tempfile::tempdir().expect("a directory");
        let shape = record168(Order::Btree);
        let path = dir.path().join("rows.copy");
        let input = Input::write(path.clone(), &shape, 1_000, &AtomicU64::new(0)).expect("writes");
        let text = fs::read_to_string(&path).expect("reads");
        let lines: Vec<Vec<i64>> =
            text.lines().map(|line| line.split('\t').map(|cell| cell.parse().expect("a number")).collect()).collect();
        assert_eq!((lines.len(), input.bytes), (1_000, text.len() as u64));
        assert!(lines.iter().enumerate().all(|(id, cells)| *cells == row(&shape, id as u64)));
        assert_eq!(input.content, [1_000, 499_500, 31 * 499_500 + 20 * 1_000]);
        assert!(disk_bytes(&shape, 1_000) >= DISK_BESIDE_SMALL_BYTES + 2 * input.bytes);
    }

    #[test]
    fn the_best_run_counts_and_only_what_was_asked_for() {
        let mut best = Best::default();
        for from in [2.0, 1.0, 3.0] {
            best.take(Best([Some(from), None]));
        }
        assert_eq!(best.0, [Some(1.0), None]);
        assert_eq!(best.told(2_000), "from 1.000 s, 2000 rows/s");
        assert!(matches!(chosen(&["into".to_owned()]), Err(BenchError::Usage(_))));
        assert_eq!(chosen(&["to".to_owned()]).expect("known"), [false, true]);
    }

    #[test]
    fn a_path_is_one_literal() {
        assert_eq!(literal(Path::new("/tmp/it's")), "'/tmp/it''s'");
    }
}
