//! The workload `scan`: the sum of a column over all rows of a table whose rows lie whole in one container.
//!
//! Such a scan moves every byte of every row for eight of them, so its limit is the memory's bandwidth over the bytes of a row.

use crate::adapter::{Answer, Content, Kind, Op};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::run::{Plan, Source};
use crate::shape::{Order, record168};
use crate::source::{Draw, Rows, content_after};
use crate::suite::{Suite, SuiteArgs, Workload};
use clap::Args;
use std::time::{Duration, Instant};

const WORKLOAD: Workload = Workload {
    name: "scan",
    cases: &[("sum", "count and sum over all rows, one session and one for each core")],
    adapters: &["freshet", "freshet-native", "sqlite", "redb", "postgres"],
    rows: 8_000_000,
    judged_rows: 1_000_000,
    indexes: 1,
    has_own_devices: false,
};

/// Updates before the scans, so that the sum is not zero.
const UPDATES_MS: u64 = 200;
const SCAN_TIME_MAX: Duration = Duration::from_secs(3600);

/// Full-table sum over the row container
#[derive(Args, Clone, Debug)]
pub struct ScanArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

pub fn run(args: &ScanArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, record168(Order::Hash).raw_bytes())?;
    let measured = suite.each(measure);
    suite.finish(measured)
}

/// Scans until a time, one at least, each of which must give the same.
struct Scans {
    due: Content,
    until: Instant,
    scans: u64,
}

impl Source for Scans {
    fn next(&mut self, _session: usize) -> Option<Op<'_>> {
        (self.scans == 0 || Instant::now() < self.until).then_some(Op::Sum { table: 0 })
    }

    fn answered(&mut self, _session: usize, answer: Answer) -> Result<(), BenchError> {
        self.scans += 1;
        if (Content { rows: answer.rows, sum: answer.sum }) == self.due {
            return Ok(());
        }
        Err(BenchError::WrongData(format!("a scan gave {answer:?} where {:?} is there", self.due)))
    }
}

fn measure(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    let shape = record168(Order::Hash);
    let (rows, log) = (suite.rows, suite.log.clone());
    let running = suite.start(kind, std::slice::from_ref(&shape), &[rows], &log)?;
    suite.load(&running, 0, rows)?;
    let mut plan = suite.plan(suite.threads(), suite.threads());
    (plan.warm_up, plan.time) = (Duration::ZERO, Duration::from_millis(UPDATES_MS));
    let updates = suite.measure(&running, "updates", &plan, |thread, own| {
        Rows::new(Draw::Update, 0, &shape, rows, own, thread as u64)
    })?;
    let due = content_after(Content { rows, sum: 0 }, &updates.sources);
    suite.check(&running, 0, due)?;
    let row_bytes = running.adapter.facts().table_bytes.map_or(shape.raw_bytes() as f64, |b| b as f64 / rows as f64);
    let time = Duration::from_secs_f64(suite.args.seconds);
    for threads in suite.thread_counts() {
        // A scan is long: the window ends with the last one.
        let plan = Plan { warm_up: Duration::ZERO, time: SCAN_TIME_MAX, ..suite.plan(threads, threads) };
        let source = |_: usize, _: usize| Scans { due, until: Instant::now() + time, scans: 0 };
        let measured = suite.measure(&running, "sum", &plan, source)?;
        let mut figure = suite.figure_of(&running, "sum", "rows", &plan, &measured);
        figure.amount *= rows as f64;
        figure.rate_per_s *= rows as f64;
        let bandwidth = suite.bandwidth(threads);
        let note = format!("{row_bytes:.0} B a row");
        suite.tell(Figure { slices: Vec::new(), ..figure.limit(bandwidth / row_bytes).note(note) }, None);
    }
    Ok(())
}
