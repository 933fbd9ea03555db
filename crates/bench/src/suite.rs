//! What do workloads on adapters share? Arguments, the machine and its limits, starting a system, the figure of a measurement, the end.
//!
//! A workload is a list of cases. It goes through the chosen adapters one after the other, each alone: start, load, measure, check, close. What
//! a run needs is said before it starts ([`Suite::start`]); a system that is not installed, or cannot have the workload's tables or log, costs a
//! line before the first measurement, not the run. What was measured before something failed is told and written.

use crate::adapter::{self, Adapter, CONNECTIONS_USUAL, Content, Kind, Loading, Setup};
use crate::bare::{Limits, Rates};
use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting};
use crate::log_plan::{Laid, LogPlan};
use crate::machine::{self, Machine};
use crate::progress::{during, say, waiting};
use crate::report;
use crate::run::{self, Measured, Plan, Source};
use crate::scratch::Scratch;
use crate::shape::TableShape;
use clap::Args;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The headline's sessions (REFERENCE.md F6), and so many updates does the bare loop have in flight.
pub const SESSIONS: usize = 4800;
/// Log, images and what else a run writes, beside its data.
const DISK_BESIDE_BYTES: u64 = 6 << 30;
/// Of a database that is smaller than a few log segments.
const DISK_SMALL_BYTES: u64 = 256 << 20;
const DISK_BESIDE_SMALL_BYTES: u64 = 1 << 30;
/// The log of a database, at most: what our options allow by default.
const LOG_BYTES: u64 = 4 << 30;
/// What memory may grow by in a window and still be flat: a share, and buffers that were not touched before.
const GROWTH_SHARE: f64 = 0.02;
const GROWTH_BYTES: f64 = (64 << 20) as f64;
/// From here on a run is long enough that memory must be flat.
const FLAT_SECONDS: f64 = 30.0;
/// What a database takes beside its data.
const MEMORY_BESIDE_BYTES: u64 = 1 << 30;

/// What every workload takes.
#[derive(Args, Clone, Debug)]
pub struct SuiteArgs {
    /// Rows of the table [default: the workload's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1 << 32))]
    pub rows: Option<u64>,
    /// Seconds of each measurement; headline figures take 60
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds before each measurement
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Only these cases [default: all]
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Only these systems [default: the workload's own]
    #[arg(long = "adapter", value_name = "ADAPTER", value_delimiter = ',')]
    pub adapters: Vec<String>,
    /// Threads that drive the sessions, several for a sweep [default: one per core, and one where scaling is due]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    pub threads: Vec<usize>,
    /// Sessions of all threads, several for a sweep [default: 4800]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    pub sessions: Vec<usize>,
    /// Log streams, a log directory, or modelled devices: model:flush=8ms,bandwidth=40MB/s,... (repeatable)
    #[arg(long, value_name = "LOG")]
    pub log: Vec<LogPlan>,
    /// Operations per second of an open loop [default: closed loop]
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub rate: Option<f64>,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Where the databases are made, on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    pub data: PathBuf,
}

/// A number above 0, fractions too.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 1e12 => Ok(s),
        _ => Err("a number above 0".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=100_000).contains(&n) => Ok(n),
        _ => Err("a number from 1 to 100000".to_owned()),
    }
}

/// A workload as its module describes it.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Names, and what each of them measures.
    pub cases: &'static [(&'static str, &'static str)],
    pub adapters: &'static [&'static str],
    pub rows: u64,
    /// With fewer rows a run only shows that it works: nothing is due.
    pub judged_rows: u64,
    /// Of the table that has the most.
    pub indexes: usize,
    /// It brings modelled log devices, which only systems in this process that write through our file traits can have.
    pub has_own_devices: bool,
}

/// A run of one workload.
pub struct Suite {
    pub args: SuiteArgs,
    pub workload: Workload,
    pub machine: Machine,
    limits: Limits,
    /// Of 4 KiB, where the log is; none where that is no place for a file.
    pub flush_us: Option<f64>,
    pub rows: u64,
    pub log: LogPlan,
    /// Of a driver, at most, where there are connections.
    pub connections: usize,
    /// That a case of this workload opens, unless `--sessions` says more.
    pub sessions_most: usize,
    pub(crate) kinds: Vec<Kind>,
    figures: Vec<Figure>,
    notes: BTreeMap<&'static str, String>,
}

/// A system with its tables, in a directory that goes when it does.
pub struct Running {
    pub kind: Kind,
    pub adapter: Opened,
    pub tables: Vec<TableShape>,
    pub setup: Setup,
    // Dropped last.
    _laid: Laid,
    _scratch: Scratch,
}

/// An adapter that shows for how long it takes to close.
pub struct Opened {
    name: &'static str,
    adapter: Option<Box<dyn Adapter>>,
}

impl Deref for Opened {
    type Target = dyn Adapter;

    fn deref(&self) -> &Self::Target {
        self.adapter.as_deref().expect("invariant: only `drop` takes it")
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.adapter.as_deref_mut().expect("invariant: only `drop` takes it")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let adapter = self.adapter.take();
        waiting(&format!("{}: close", self.name), || drop(adapter));
    }
}

impl Suite {
    /// Refuses what does not exist and what cannot be, then measures the machine and the bare loop, whose inserts log `row_bytes`.
    pub fn new(args: &SuiteArgs, workload: Workload, row_bytes: u64) -> Result<Suite, BenchError> {
        refuse_unknown(args, &workload)?;
        let chosen = adapter::chosen(&args.adapters, workload.adapters)?;
        let log = LogPlan::of_all(&args.log).map_err(BenchError::Usage)?;
        figure::refuse_unwritable(args.json.iter().chain(&args.html))?;
        let kinds = here(&workload, chosen, &log)?;
        let rows = args.rows.unwrap_or(workload.rows);
        std::fs::create_dir_all(&args.data).map_err(on(&args.data))?;
        let machine = measure_machine(args, rows)?;
        machine.lines().iter().for_each(|line| say(line));
        let mut suite = Suite {
            args: args.clone(),
            workload,
            machine,
            limits: Limits::default(),
            flush_us: None,
            rows,
            log,
            connections: CONNECTIONS_USUAL,
            sessions_most: SESSIONS,
            kinds,
            figures: Vec::new(),
            notes: BTreeMap::new(),
        };
        suite.measure_limits(row_bytes)?;
        Ok(suite)
    }

    fn measure_limits(&mut self, row_bytes: u64) -> Result<(), BenchError> {
        need_memory(Limits::memory_bytes(self.rows), "the bare loop", self.rows)?;
        let threads = self.thread_counts();
        let time = Duration::from_secs_f64((self.args.seconds / 4.0).min(1.0));
        let scratch = Scratch::new(self.log.place(&self.args.data), "freshet-bench-bare")?;
        let (dir, rows) = (scratch.path(), self.rows);
        self.flush_us = match &self.log {
            LogPlan::Directories(_) => Some(machine::flush_us_in(dir)?),
            LogPlan::Raw(_) => None,
            LogPlan::Streams(_) | LogPlan::Modelled(_) => self.machine.flush_us.first().map(|(_, us)| *us),
        };
        let measure = |done: &_| Limits::measure(dir, rows, row_bytes, &threads, time, done);
        self.limits = during("bare loop", threads.len() as u64, measure)?;
        for rates in &self.limits.rates {
            say(&limit_line(rates));
        }
        Ok(())
    }

    /// What the bare loop reaches with so many threads.
    pub fn rates(&self, threads: usize) -> Rates {
        *self.limits.of(threads).expect("invariant: the bare loop was measured with one number of threads at least")
    }

    /// The bare loop's rate, as far as the log lets sessions that wait for it reach it: `commits` is how many of them an operation has. Where as
    /// many are in flight as in the bare loop, the flushes of this machine's disk are in its rate already.
    pub fn limit_of_changes(
        &self,
        running: &Running,
        plan: &Plan,
        bare_per_s: f64,
        commits: f64,
        log_bytes_per_op: Option<f64>,
    ) -> f64 {
        let commit_bytes = log_bytes_per_op.unwrap_or(0.0) / commits;
        let modelled = running.setup.log.answers_per_s(plan.sessions, commit_bytes, plan.durable);
        let flush_us = self.flush_us.filter(|_| plan.durable && plan.sessions < SESSIONS);
        let flushed = flush_us.map_or(f64::INFINITY, |us| plan.sessions as f64 * 1e6 / us);
        bare_per_s.min(modelled.unwrap_or(flushed) / commits)
    }

    /// The memory's, to so many threads.
    pub fn bandwidth(&self, threads: usize) -> f64 {
        if threads == 1 { self.machine.memory_core_bytes_per_s } else { self.machine.memory_bytes_per_s }
    }

    /// One and all cores, or what was asked for.
    pub fn thread_counts(&self) -> Vec<usize> {
        let mut counts = match self.args.threads.as_slice() {
            [] => vec![1, self.machine.cores],
            given => given.to_vec(),
        };
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The headline's.
    pub fn threads(&self) -> usize {
        self.thread_counts().last().copied().unwrap_or(1)
    }

    pub fn sessions(&self) -> usize {
        self.session_counts().last().copied().unwrap_or(SESSIONS)
    }

    pub fn session_counts(&self) -> Vec<usize> {
        if self.args.sessions.is_empty() { vec![SESSIONS] } else { self.args.sessions.clone() }
    }

    /// Whether the case was asked for, or nothing was.
    pub fn has(&self, case: &str) -> bool {
        self.args.cases.is_empty() || self.args.cases.iter().any(|asked| asked == case)
    }

    /// Measures every system that is here, until one fails.
    pub fn each(&mut self, measure: impl Fn(&mut Suite, Kind) -> Result<(), BenchError>) -> Result<(), BenchError> {
        let kinds = self.kinds.clone();
        kinds.into_iter().try_for_each(|kind| {
            say(&format!("{}: {}", kind.name, kind.about));
            measure(self, kind)
        })
    }

    /// Opens a system with these tables, empty. `rows` is what they will hold.
    pub fn start(
        &mut self,
        kind: Kind,
        tables: &[TableShape],
        rows: &[u64],
        log: &LogPlan,
    ) -> Result<Running, BenchError> {
        let data: u64 = tables.iter().zip(rows).map(|(table, rows)| table.memory_bytes() * rows).sum();
        let memory_bytes = data * 3 / 2 + MEMORY_BESIDE_BYTES;
        need_memory(memory_bytes, kind.name, rows.iter().sum())?;
        let place = if kind.is_in_one_place { log.place(&self.args.data) } else { &self.args.data };
        self.need_disk(data, place)?;
        let scratch = Scratch::new(&self.args.data, kind.name)?;
        let most = self.session_counts().into_iter().max().unwrap_or(0).max(self.sessions_most);
        let laid = Laid::at(log.clone(), scratch.path());
        log.refuse_too_small(scratch.path(), LOG_BYTES)?;
        let mut setup = Setup::new(scratch.path().to_owned(), log.clone(), memory_bytes, most)?;
        setup.connections = self.connections;
        let adapter = waiting(&format!("{}: start", kind.name), || {
            let mut adapter = (kind.start)(&setup)?;
            adapter.create(tables).map(|()| adapter)
        });
        let adapter = Opened { name: kind.name, adapter: Some(adapter?) };
        let note = adapter.note();
        if !note.is_empty() && self.notes.insert(kind.name, note.clone()).as_ref() != Some(&note) {
            say(&format!("{}: {note}", kind.name));
        }
        Ok(Running { kind, adapter, tables: tables.to_vec(), setup, _laid: laid, _scratch: scratch })
    }

    fn need_disk(&self, data: u64, place: &Path) -> Result<(), BenchError> {
        // The images of a checkpoint, twice while the next one is written.
        let need = data * 2 + if data >= DISK_SMALL_BYTES { DISK_BESIDE_BYTES } else { DISK_BESIDE_SMALL_BYTES };
        let have = machine::disk_available(place)?;
        if need > have {
            return Err(BenchError::Machine(format!(
                "{} needs about {} MiB of disk and {} has {} MiB: use --data or --log on another disk, or fewer rows with --rows",
                self.workload.name,
                need >> 20,
                place.display(),
                have >> 20
            )));
        }
        Ok(())
    }

    /// Fills a table; the figure of it, not yet told.
    pub fn load(&self, running: &Running, table: usize, rows: u64) -> Result<Figure, BenchError> {
        // Of modelled devices each gets files that it recycles later: see `Adapter::checkpoint`.
        let devices = if running.setup.log.is_modelled() { running.setup.log.devices() } else { 1 };
        let threads = self.threads().max(devices);
        let what = format!("{}: load {}", running.kind.name, running.tables[table].name);
        let start = Instant::now();
        during(&what, rows, |done| running.adapter.load(&Loading { table, rows: 0..rows, threads, done }))?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(self.figure(running, "load", "rows", rows as f64, seconds).threads(threads))
    }

    /// A figure of a system of this run.
    pub fn figure(&self, running: &Running, case: &str, unit: &'static str, amount: f64, seconds: f64) -> Figure {
        let figure = Figure::new(case, unit, amount, unit, seconds);
        Figure { workload: self.workload.name, adapter: running.kind.name, ..figure }
    }

    pub fn plan(&self, threads: usize, sessions: usize) -> Plan {
        Plan {
            threads,
            sessions,
            warm_up: Duration::from_secs_f64(self.args.warm_up),
            time: Duration::from_secs_f64(self.args.seconds),
            rate: self.args.rate,
            durable: true,
        }
    }

    pub fn measure<S: Source>(
        &self,
        running: &Running,
        case: &str,
        plan: &Plan,
        source: impl Fn(usize, usize) -> S + Sync,
    ) -> Result<Measured<S>, BenchError> {
        if running.setup.log.is_modelled() {
            waiting(&format!("{}: checkpoint", running.kind.name), || running.adapter.checkpoint())?;
        }
        waiting(&format!("{}: devices at rest", running.kind.name), || running.setup.engage(true));
        let measured = run::measure(&format!("{}: {case}", running.kind.name), &*running.adapter, plan, source);
        running.setup.engage(false);
        measured
    }

    /// The figure of a measurement, with how long and how much log, not yet told.
    pub fn figure_of<S>(
        &self,
        running: &Running,
        case: &str,
        unit: &'static str,
        plan: &Plan,
        m: &Measured<S>,
    ) -> Figure {
        Figure {
            threads: plan.threads,
            sessions: plan.sessions,
            p50_us: Some(m.p50_us()),
            p99_us: Some(m.p99_us()),
            p99_measured_us: Some(m.latency_ns.value_at_quantile(0.99) as f64 / 1e3),
            log_bytes_per_op: m.per_operation(|f| f.log_bytes).filter(|b| *b > 0.0),
            log_overhead_bytes_per_op: m.per_operation(|f| f.log_overhead_bytes).filter(|b| *b > 0.0),
            flushes_per_s: m.per_second(|f| f.flushes).filter(|r| *r > 0.0),
            checkpoints: m.after.checkpoints.zip(m.before.checkpoints).map(|(after, before)| after - before),
            memory_bytes: m.resident_before.zip(m.resident_after),
            slices: m.slices.clone(),
            note: m.resident_before.zip(m.resident_after).map_or(String::new(), growth),
            ..self.figure(running, case, unit, m.operations as f64, m.seconds)
        }
    }

    /// Fails the run if the system does not hold what it should.
    pub fn check(&self, running: &Running, table: usize, due: Content) -> Result<(), BenchError> {
        let what = format!("{}: oracle of {}", running.kind.name, running.tables[table].name);
        let found = waiting(&what, || running.adapter.content(table))?;
        if found == due {
            return Ok(());
        }
        let (name, table) = (running.kind.name, running.tables[table].name);
        Err(BenchError::WrongData(format!(
            "{name}: {table} holds {} rows with a sum of {}, where {} with {} were acknowledged",
            found.rows, found.sum, due.rows, due.sum
        )))
    }

    /// Whether what is due is judged.
    pub fn is_judged(&self) -> bool {
        self.rows >= self.workload.judged_rows && self.machine.optimised
    }

    /// Says a figure at once, with what is due of it, and keeps it. Of a long run of ours memory is due to be flat.
    pub fn tell(&mut self, figure: Figure, due: Option<Due>) {
        let memory = flat(&figure);
        self.tell_one(figure, due);
        if let Some((figure, due)) = memory {
            self.tell_one(figure, Some(due));
        }
    }

    fn tell_one(&mut self, figure: Figure, due: Option<Due>) {
        let figure = match due {
            Some(due) => figure.due_if(self.is_judged(), due),
            None => figure,
        };
        let line = figure::rates_table(std::slice::from_ref(&figure)).pop().unwrap_or_default();
        say(&format!("  {line}"));
        self.figures.push(figure);
    }

    /// Rates told of a case by an adapter.
    pub fn told(&self, case: &str, adapter: &str) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(move |f| f.case == case && f.adapter == adapter && f.rate_per_s > 0.0)
    }

    /// The table, the files, the verdict of what [`Suite::each`] measured; where it failed, without a verdict. Of wrong data there are no figures.
    pub fn finish(mut self, measured: Result<(), BenchError>) -> Result<(), BenchError> {
        if matches!(measured, Err(BenchError::WrongData(_))) {
            return measured;
        }
        if self.figures.is_empty() {
            let nothing =
                format!("{}: nothing was measured: no system here has the cases asked for", self.workload.name);
            return measured.and(Err(BenchError::Machine(nothing)));
        }
        compare_with_peers(&mut self.figures);
        say("");
        figure::rates_table(&self.figures).iter().for_each(|line| say(line));
        let (name, cases) = (self.workload.name, self.workload.cases);
        let files = (self.args.json.as_deref(), self.args.html.as_deref());
        let written = report::write(files, name, cases, &self.figures, &self.setting());
        say("");
        if measured.is_ok() {
            say(&figure::verdict(&self.figures));
        }
        match (measured, written) {
            (Err(failed), Err(unwritten)) => {
                say(&unwritten.to_string());
                Err(failed)
            }
            (measured, written) => measured.and(written),
        }
    }

    fn setting(&self) -> Setting {
        let mut config = BTreeMap::from([
            ("data", self.args.data.display().to_string()),
            ("rows", self.rows.to_string()),
            ("seconds", self.args.seconds.to_string()),
            ("warm_up", self.args.warm_up.to_string()),
            ("log", self.log.to_string()),
        ]);
        if let Some(rate) = self.args.rate {
            config.insert("rate", rate.to_string());
        }
        config.extend(self.notes.iter().map(|(name, note)| (*name, note.clone())));
        let version = env!("CARGO_PKG_VERSION");
        Setting { commit: figure::commit(), version, config, machine: self.machine.clone() }
    }
}

fn refuse_unknown(args: &SuiteArgs, workload: &Workload) -> Result<(), BenchError> {
    let name = workload.name;
    let known: Vec<&str> = workload.cases.iter().map(|(name, _)| *name).collect();
    if let Some(case) = args.cases.iter().find(|case| !known.contains(&case.as_str())) {
        return Err(BenchError::Usage(format!("{name} has no case {case}; there are: {}", known.join(", "))));
    }
    if workload.has_own_devices && !args.log.is_empty() {
        return Err(BenchError::Usage(format!("{name} brings its own log devices: --log is for the other workloads")));
    }
    Ok(())
}

/// The systems that can be measured; a line for each that cannot.
fn here(workload: &Workload, chosen: Vec<Kind>, log: &LogPlan) -> Result<Vec<Kind>, BenchError> {
    let (mut here, mut lines) = (Vec::new(), Vec::new());
    for kind in chosen {
        match left_out(workload, &kind, log) {
            None => here.push(kind),
            Some(line) => lines.push(line),
        }
    }
    if here.is_empty() {
        return Err(BenchError::Machine(format!("{}: nothing to measure; {}", workload.name, lines.join("; "))));
    }
    lines.iter().for_each(|line| say(line));
    Ok(here)
}

/// Why a system is not measured, and what to do about it.
fn left_out(workload: &Workload, kind: &Kind, log: &LogPlan) -> Option<String> {
    // A log that is not on directories is reached only through our file traits.
    let is_in_process = workload.has_own_devices || log.is_in_process();
    if is_in_process && !["freshet", "freshet-native"].contains(&kind.name) {
        return Some(format!("{}: left out: it writes its files by itself, not to modelled or raw devices", kind.name));
    }
    if kind.has_one_index && workload.indexes > 1 {
        let (name, indexes) = (workload.name, workload.indexes);
        return Some(format!("{}: left out: it has one index a table, and {name} needs {indexes}", kind.name));
    }
    let missing = (kind.is_available)().err()?;
    Some(missing.line(kind.name))
}

/// The probe's file is small where the run is: a smoke run takes no gigabyte.
fn measure_machine(args: &SuiteArgs, rows: u64) -> Result<Machine, BenchError> {
    let bytes = (rows * 168).clamp(8 << 20, 256 << 20);
    during("limits of this machine", 1, |_| Machine::measure(&args.data, bytes))
}

fn limit_line(rates: &Rates) -> String {
    let m = |rate: f64| format!("{:.2}", rate / 1e6);
    format!(
        "bare loop, {} threads, M/s: search {} (row {}), batched {}, update {} ({:.0} us a flush, {:.1} ms for one update in a hundred), insert {}, delete {}, index entries {}, one row {}, ten rows {}",
        rates.threads,
        m(rates.search),
        m(rates.search_row),
        m(rates.batched),
        m(rates.update),
        rates.flush_us,
        rates.flush_p99_us as f64 / 1e3,
        m(rates.insert),
        m(rates.delete),
        m(rates.entries),
        m(rates.one_row),
        m(rates.ten_rows)
    )
}

/// What a window's end may have in multiples of its beginning.
fn growth_most(before: u64) -> f64 {
    let most = 1.0 + GROWTH_SHARE + GROWTH_BYTES / (before as f64).max(1.0);
    // As it is told.
    (most * 1e3).round() / 1e3
}

/// Memory that is not flat is said.
fn growth((before, after): (u64, u64)) -> String {
    if after as f64 <= before as f64 * growth_most(before) {
        return String::new();
    }
    format!("memory grew from {} to {} MiB", before >> 20, after >> 20)
}

/// Memory of a long run of ours that adds no rows, with what is due of it.
fn flat(figure: &Figure) -> Option<(Figure, Due)> {
    let (before, after) = figure.memory_bytes.filter(|(before, _)| *before > 0)?;
    let is_ours = figure.adapter.starts_with("freshet");
    if !is_ours || figure.is_growing || figure.rate_per_s <= 0.0 || figure.seconds < FLAT_SECONDS {
        return None;
    }
    let memory = figure.clone().derived_ratio("memory", after as f64 / before as f64);
    let note = format!("from {} to {} MiB", before >> 20, after >> 20);
    let memory = Figure { memory_bytes: Some((before, after)), p50_us: None, p99_us: None, ..memory.note(note) };
    Some((memory, Due::RatioAtMost(growth_most(before))))
}

fn need_memory(need: u64, who: &str, rows: u64) -> Result<(), BenchError> {
    let have = machine::memory_available();
    if have > 0 && need > have {
        return Err(BenchError::Machine(format!(
            "{who} needs about {} MiB of memory for {rows} rows and {} MiB are available: use fewer with --rows",
            need >> 20,
            have >> 20
        )));
    }
    Ok(())
}

/// Ours in multiples of the others', where the same was measured.
fn compare_with_peers(figures: &mut [Figure]) {
    let is_ours = |adapter: &str| adapter.starts_with("freshet");
    let key = |f: &Figure| (f.case.clone(), f.figure.clone(), f.threads, f.sessions, f.at.map(f64::to_bits));
    let peers: Vec<_> = figures.iter().filter(|f| !is_ours(f.adapter) && f.rate_per_s > 0.0).cloned().collect();
    for own in figures.iter_mut().filter(|f| is_ours(f.adapter)) {
        let own_key = key(own);
        for peer in peers.iter().filter(|peer| key(peer) == own_key) {
            own.peers.insert(peer.adapter, own.rate_per_s / peer.rate_per_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Missing;

    #[test]
    fn a_peer_that_is_not_here_costs_a_line_with_the_remedy() {
        let hidden = Kind {
            name: "hidden",
            about: "a peer that is not installed",
            is_available: || Err(Missing { reason: "it is not installed".into(), remedy: "install it".into() }),
            start: |_| Err(BenchError::Usage("never started".into())),
            is_in_one_place: false,
            has_one_index: false,
        };
        let here = LogPlan::default();
        let told = |kind: &Kind, log: &LogPlan| left_out(&WORKLOAD, kind, log);
        assert_eq!(told(&hidden, &here).as_deref(), Some("hidden: left out: it is not installed; install it"));
        assert_eq!(told(&adapter::native::KIND, &here), None);
        let modelled: LogPlan = "model:flush=1ms".parse().expect("a model");
        assert_eq!(told(&adapter::native::KIND, &modelled), None);
        let line = told(&adapter::postgres::KIND, &modelled).expect("it has no models");
        assert!(line.starts_with("postgres: left out: it writes its files by itself"), "{line}");
        let refused = here_error(&WORKLOAD, vec![hidden]);
        assert_eq!(refused, "made-up: nothing to measure; hidden: left out: it is not installed; install it");
    }

    const WORKLOAD: Workload = Workload {
        name: "made-up",
        cases: &[("load", "rows")],
        adapters: &["freshet-native"],
        rows: 100,
        judged_rows: 1_000_000,
        indexes: 3,
        has_own_devices: false,
    };

    fn here_error(workload: &Workload, kinds: Vec<Kind>) -> String {
        here(workload, kinds, &LogPlan::default()).err().expect("nobody is here").to_string()
    }

    #[test]
    fn a_system_that_cannot_have_the_tables_or_the_devices_is_left_out_before_the_run() {
        let keyed = Kind { name: "keyed", has_one_index: true, ..adapter::native::KIND };
        let both = here(&WORKLOAD, vec![adapter::native::KIND, keyed], &LogPlan::default()).expect("one is here");
        assert_eq!(both.iter().map(|kind| kind.name).collect::<Vec<_>>(), ["freshet-native"]);
        let one = Workload { indexes: 1, ..WORKLOAD };
        assert_eq!(here(&one, vec![keyed], &LogPlan::default()).map(|kinds| kinds.len()).ok(), Some(1));
        let modelled = Workload { has_own_devices: true, ..one };
        assert!(here_error(&modelled, vec![keyed]).contains("made-up: nothing to measure"));
    }

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        suite: SuiteArgs,
    }

    /// A run in `dir` that has told a figure, and what `measured` made of it.
    fn finished(dir: &Path, json: &str, measured: Result<(), BenchError>) -> Result<(), BenchError> {
        let (data, json, html) = (dir.join("data"), dir.join(json), dir.join("a.html"));
        let words = format!(
            "bench --rows 100 --seconds 0.01 --threads 1 --adapter freshet-native --data {} --json {} --html {}",
            data.display(),
            json.display(),
            html.display()
        );
        let args = <Words as clap::Parser>::try_parse_from(words.split(' ')).expect("words").suite;
        let mut suite = Suite::new(&args, WORKLOAD, 168)?;
        // The directory is gone when the figures come.
        let _ = std::fs::remove_dir(dir.join("gone"));
        suite.tell(Figure::new("load", "rows", 100.0, "rows", 1.0), None);
        suite.finish(measured)
    }

    #[test]
    fn figures_are_written_wherever_they_can_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let (page, text) = (dir.path().join("a.html"), dir.path().join("a.json"));
        let refused = finished(dir.path(), "nowhere/a.json", Ok(())).expect_err("it cannot be written");
        assert!(refused.to_string().contains("nowhere/a.json") && !dir.path().join("data").exists(), "{refused}");
        std::fs::create_dir(dir.path().join("gone")).expect("makes");
        let late = finished(dir.path(), "gone/a.json", Ok(())).expect_err("it cannot be written any more");
        assert!(late.to_string().contains("gone/a.json") && page.exists(), "{late}");
        let failed = finished(dir.path(), "a.json", Err(BenchError::Engine("it broke".into())));
        assert!(matches!(failed, Err(BenchError::Engine(_))));
        assert_eq!(std::fs::read_to_string(&text).expect("figures").lines().count(), 1);
        let wrong = finished(dir.path(), "a.json", Err(BenchError::WrongData("a row".into())));
        assert!(matches!(wrong, Err(BenchError::WrongData(_))));
        assert_eq!(std::fs::read_to_string(&text).expect("figures").lines().count(), 1, "none of wrong data");
    }

    #[test]
    fn memory_of_a_long_run_is_due_to_be_flat() {
        let of = |adapter: &'static str, seconds: f64, after_mib: u64| {
            let figure = Figure::new("update", "operations", 1e6, "operations", seconds);
            Figure { adapter, memory_bytes: Some((2048 << 20, after_mib << 20)), ..figure }
        };
        let met = |figure: Figure| flat(&figure).map(|(figure, due)| figure.due(due).met == Some(true));
        // 2 % and 64 MiB are 105.
        assert_eq!(met(of("freshet", 60.0, 2150)), Some(true));
        assert_eq!(met(of("freshet", 60.0, 2160)), Some(false));
        assert_eq!(met(of("freshet-native", 30.0, 4096)), Some(false));
        assert_eq!(met(of("freshet", 60.0, 1024)), Some(true));
        assert_eq!(met(of("freshet", 29.0, 4096)), None, "too short to say");
        assert_eq!(met(of("sqlite", 60.0, 4096)), None, "not ours");
        assert_eq!(met(Figure { is_growing: true, ..of("freshet", 60.0, 4096) }), None, "rows were added");
        assert_eq!(met(of("freshet", 60.0, 4096).derived("of the hash rate")), None, "told already");
        let (figure, _) = flat(&of("freshet", 60.0, 2160)).expect("is judged");
        assert_eq!((figure.figure.as_str(), figure.rate_per_s), ("memory", 0.0));
        assert!(growth((2048 << 20, 2160 << 20)).contains("2160 MiB") && growth((2048 << 20, 2150 << 20)).is_empty());
    }
}
