//! The workload `tptbm`: TimesTen's transaction benchmark over log devices of 2002 (REFERENCE.md A3), modelled.
//!
//! | device | is | as |
//! |---|---|---|
//! | A | a write-through RAID | a disk of 10,000 rpm that turns once for each flush |
//! | B shared | a write-behind cache of 24 MB before it, shared with a process that writes at random every other second | |
//! | B dedicated | the same without that process | |
//! | C | a file cache, an SSD of its day | nearly no latency |
//!
//! What is compared is the ratios between the devices: absolute rates are the models'. The limit of a rate is that of the device, which answers
//! every session in each flush, or that of the bare loop.

use crate::adapter::{Answer, Content, Fetch, Kind, Op};
use crate::bare::Rates;
use crate::device::{Cache, Model};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::log_plan::LogPlan;
use crate::random::Random;
use crate::run::Source;
use crate::shape::{ColumnShape, IndexShape, Order, TableShape, Ty};
use crate::suite::{Running, Suite, SuiteArgs, Workload};
use clap::Args;
use freshet_engine::io::{AlignedBuf, Io, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: [usize; 4] = [1, 4, 8, 16];
const FLUSH: Duration = Duration::from_micros(6500);
const BANDWIDTH: Option<u64> = Some(20_000_000);
const CACHE: Cache = Cache { bytes: 24_000_000, answer: Duration::from_micros(1000) };
const SSD: Duration = Duration::from_micros(700);
/// Of a hundred operations of the mix; the others are inserts.
const READS: u64 = 80;
const UPDATES: u64 = 15;
/// The other process writes so much at a time, as fast as it is taken, and then pauses for as long.
const LOAD_BYTES: usize = 64 << 10;
const LOAD_FILE_BYTES: u64 = 64 << 20;
const LOAD_TURN: Duration = Duration::from_secs(1);

const WORKLOAD: Workload = Workload {
    name: "tptbm",
    cases: &[
        ("updates", "100 % updates, durable, over devices A, B and C"),
        ("mix", "80 % reads, 15 % updates, 5 % inserts over the same"),
    ],
    adapters: &["freshet"],
    rows: 1_000_000,
    judged_rows: 1_000_000,
    indexes: 1,
    has_own_devices: true,
};

/// Updates over log devices of 2002: TimesTen's benchmark, devices modelled
#[derive(Args, Clone, Debug)]
pub struct TptbmArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

struct Device {
    name: &'static str,
    model: Model,
    /// Another process writes to it.
    is_shared: bool,
    /// Published at 1 and 8 processes.
    published: [f64; 2],
}

fn devices() -> [Device; 4] {
    let raid = Model { flush: FLUSH, bandwidth_bytes_per_s: BANDWIDTH, cache: None };
    let cached = Model { cache: Some(CACHE), ..raid };
    let ssd = Model { flush: SSD, bandwidth_bytes_per_s: None, cache: None };
    let device = |name, model, is_shared, published| Device { name, model, is_shared, published };
    [
        device("A write-through", raid, false, [148.0, 476.0]),
        device("B write-behind, shared", cached, true, [522.0, 1570.0]),
        device("B write-behind, dedicated", cached, false, [898.0, 2696.0]),
        device("C file cache", ssd, false, [1268.0, 3341.0]),
    ]
}

/// A subscriber of tptbm: a number, two short texts and a long one.
fn subscriber() -> TableShape {
    let column = |(name, ty): (&str, Ty)| ColumnShape { name: name.to_owned(), ty };
    TableShape {
        name: "vpn_users",
        columns: [
            ("vpn_nb", Ty::Int8),
            ("directory_nb", Ty::Char(10)),
            ("last_calling_party", Ty::Int8),
            ("descr", Ty::Char(100)),
        ]
        .map(column)
        .into(),
        indexes: vec![IndexShape { column: 0, unique: true, order: Order::Hash }],
        counter: 2,
        row: |id, cells| cells.extend([id, id % 10_000_000, 0, id * 31].map(|number| number as i64)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kinds {
    Updates,
    Mix,
}

impl Kinds {
    /// What the bare loop makes of it, and how many commits an operation has.
    fn bare(self, rates: &Rates) -> (f64, f64) {
        match self {
            Kinds::Updates => (rates.update, 1.0),
            Kinds::Mix => {
                let [reads, updates] = [READS, UPDATES].map(|percent| percent as f64 / 100.0);
                let inserts = 1.0 - reads - updates;
                let operation_s = reads / rates.search_row + updates / rates.update + inserts / rates.insert;
                (1.0 / operation_s, updates + inserts)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind3 {
    Read,
    Update,
    Insert,
}

struct Calls {
    kinds: Kinds,
    rows: u64,
    /// The next key that this thread inserts, and how far it is to the one after.
    next: u64,
    stride: u64,
    random: Random,
    cells: Vec<i64>,
    row: fn(u64, &mut Vec<i64>),
    kind: Vec<Kind3>,
    updated: u64,
    inserted: u64,
}

impl Source for Calls {
    fn next(&mut self, session: usize) -> Option<Op<'_>> {
        let key = self.random.below(self.rows) as i64;
        let drawn = self.random.below(100);
        let kind = match self.kinds {
            Kinds::Mix if drawn < READS => Kind3::Read,
            Kinds::Mix if drawn >= READS + UPDATES => Kind3::Insert,
            _ => Kind3::Update,
        };
        self.kind[session] = kind;
        Some(match kind {
            Kind3::Read => Op::Search { table: 0, index: 0, key, fetch: Fetch::Row },
            Kind3::Update => Op::Update { table: 0, index: 0, key, column: 2, add: 1 },
            Kind3::Insert => {
                self.cells.clear();
                (self.row)(self.next, &mut self.cells);
                self.next += self.stride;
                Op::Insert { table: 0, cells: &self.cells }
            }
        })
    }

    fn answered(&mut self, session: usize, answer: Answer) -> Result<(), BenchError> {
        let kind = self.kind[session];
        if answer.rows != 1 {
            return Err(BenchError::WrongData(format!("{kind:?} of one row answered {}", answer.rows)));
        }
        self.updated += u64::from(kind == Kind3::Update);
        self.inserted += u64::from(kind == Kind3::Insert);
        Ok(())
    }
}

pub fn run(args: &TptbmArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, subscriber().raw_bytes())?;
    let measured = suite.each(|suite, kind| {
        devices().iter().try_for_each(|device| measure(suite, kind, device))?;
        ["updates", "mix"].into_iter().for_each(|case| ratios(suite, kind, case));
        Ok(())
    });
    suite.finish(measured)
}

/// What the table holds, and the first key that nobody has inserted.
struct Held {
    content: Content,
    next: u64,
}

fn measure(suite: &mut Suite, kind: Kind, device: &Device) -> Result<(), BenchError> {
    let log = LogPlan::of_models(vec![device.model], device.name);
    let rows = suite.rows;
    let running = suite.start(kind, &[subscriber()], &[rows * 2], &log)?;
    suite.load(&running, 0, rows)?;
    let mut held = Held { content: Content { rows, sum: 0 }, next: rows };
    suite.check(&running, 0, held.content)?;
    for (case, kinds) in [("updates", Kinds::Updates), ("mix", Kinds::Mix)] {
        let sweep = if suite.has(case) { sessions(suite) } else { Vec::new() };
        for sessions in sweep {
            let figure = drive(suite, &running, device, case, kinds, sessions, &mut held)?;
            suite.tell(figure, None);
        }
    }
    suite.check(&running, 0, held.content)
}

fn sessions(suite: &Suite) -> Vec<usize> {
    if suite.args.sessions.is_empty() { SESSIONS.to_vec() } else { suite.args.sessions.clone() }
}

fn drive(
    suite: &Suite,
    running: &Running,
    device: &Device,
    case: &str,
    kinds: Kinds,
    sessions: usize,
    held: &mut Held,
) -> Result<Figure, BenchError> {
    let plan = suite.plan(suite.threads().min(sessions), sessions);
    let (first, stride, rows) = (held.next, plan.threads as u64, suite.rows);
    let source = |thread: usize, sessions: usize| Calls {
        kinds,
        rows,
        next: first + thread as u64,
        stride,
        random: Random((thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ first),
        cells: Vec::new(),
        row: subscriber().row,
        kind: vec![Kind3::Read; sessions],
        updated: 0,
        inserted: 0,
    };
    let measured = beside_load(device, running, suite, || suite.measure(running, case, &plan, source))?;
    for source in &measured.sources {
        held.content.rows += source.inserted;
        held.content.sum += source.updated as i64;
    }
    // Threads insert unevenly: the next measurement begins above all of them.
    held.next = measured.sources.iter().map(|source| source.next).max().unwrap_or(first);
    let mut figure = suite.figure_of(running, case, "operations", &plan, &measured);
    (figure.figure, figure.at) = (device.name.to_owned(), Some(sessions as f64));
    figure.is_growing = kinds == Kinds::Mix;
    let published = [1, 8].iter().position(|&processes| processes == sessions).map(|at| device.published[at]);
    if kinds == Kinds::Updates {
        (figure.published_per_s, figure.source) = (published, "A3");
    }
    let (bare, commits) = kinds.bare(&suite.rates(plan.threads));
    let limit = suite.limit_of_changes(running, &plan, bare, commits, figure.log_bytes_per_op);
    Ok(figure.limit(limit))
}

/// Runs `work`, beside a thread that writes to the same device if it is a shared one.
fn beside_load<T>(
    device: &Device,
    running: &Running,
    suite: &Suite,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    if !device.is_shared {
        return work();
    }
    let Some(files) = &running.setup.log_files else { return work() };
    let io = files.io();
    let stop = AtomicBool::new(false);
    let turn = LOAD_TURN.min(Duration::from_secs_f64(suite.args.seconds / 4.0));
    let path = running.setup.log.directories(&running.setup.dir).swap_remove(0).join("load.tmp");
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load_device(&*io, &path, turn, &running.setup.log, &stop));
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        let loaded = loading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        loaded.map_err(crate::error::on(&path))?;
        worked
    })
}

/// Before the device takes its time it is left alone: it would never come to rest.
fn load_device(
    io: &dyn Io,
    path: &std::path::Path,
    turn: Duration,
    log: &LogPlan,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let file = io.open(path, OpenOptions { create: true, direct: true })?;
    let block = AlignedBuf::zeroed(LOAD_BYTES);
    let mut random = Random(77);
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let turns = start.elapsed().as_nanos() / turn.as_nanos().max(1);
        if turns % 2 == 1 || !log.is_engaged() {
            std::thread::sleep(Duration::from_millis(10).min(turn));
            continue;
        }
        let at = random.below(LOAD_FILE_BYTES / LOAD_BYTES as u64) * LOAD_BYTES as u64;
        file.write_at(&block, at)?;
    }
    io.remove(path)
}

/// Between devices, ours beside the published ones.
fn ratios(suite: &mut Suite, kind: Kind, case: &str) {
    let names = devices().map(|device| device.name);
    let published = devices().map(|device| device.published);
    for (processes, sessions) in [1, 8].into_iter().enumerate() {
        let find = |device: usize| {
            let told = suite.told(case, kind.name).filter(|f| f.figure == names[device] && f.sessions == sessions);
            told.last().cloned()
        };
        let found: Vec<Option<Figure>> = (0..names.len()).map(find).collect();
        for (over, under) in [(3, 0), (3, 1), (2, 0), (1, 0)] {
            if let (Some(over_figure), Some(under_figure)) = (found[over].clone(), &found[under]) {
                let ratio = over_figure.rate_per_s / under_figure.rate_per_s;
                let then = published[over][processes] / published[under][processes];
                let note = if case == "updates" { format!("{then:.1} x in 2002") } else { String::new() };
                let name = format!("{} to {}", short(names[over]), short(names[under]));
                let figure = Figure { p50_us: None, p99_us: None, ..over_figure.derived_ratio(name, ratio) };
                suite.tell(figure.note(note), None);
            }
        }
    }
}

/// `B write-behind, shared` as `B shared`.
fn short(name: &str) -> String {
    let last = name.rsplit(", ").next().filter(|last| *last != name);
    last.map_or_else(|| name[..1].to_owned(), |last| format!("{} {last}", &name[..1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_reads_updates_and_inserts_of_keys_of_its_own() {
        let mut calls = Calls {
            kinds: Kinds::Mix,
            rows: 100,
            next: 101,
            stride: 2,
            random: Random(3),
            cells: Vec::new(),
            row: subscriber().row,
            kind: vec![Kind3::Read],
            updated: 0,
            inserted: 0,
        };
        let (mut reads, mut keys) = (0, Vec::new());
        for _ in 0..10_000 {
            match calls.next(0) {
                Some(Op::Search { key, .. }) if key < 100 => reads += 1,
                Some(Op::Update { key, .. }) if key < 100 => {}
                Some(Op::Insert { cells, .. }) => keys.push(cells[0]),
                other => panic!("{other:?}"),
            }
            calls.answered(0, Answer { rows: 1, sum: 0 }).expect("one row");
        }
        assert!((7800..8200).contains(&reads) && (1350..1650).contains(&calls.updated), "{reads} {}", calls.updated);
        assert!((400..600).contains(&calls.inserted) && calls.inserted == keys.len() as u64, "{}", calls.inserted);
        assert!(keys.iter().zip(0..).all(|(&key, n)| key == 101 + 2 * n), "{keys:?}");
        assert!(calls.next(0).is_some() && calls.answered(0, Answer::default()).is_err());
    }

    #[test]
    fn names_are_shortened_for_ratios() {
        assert_eq!(devices().map(|device| short(device.name)), ["A", "B shared", "B dedicated", "C"]);
    }
}
