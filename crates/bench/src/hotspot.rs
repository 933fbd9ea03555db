//! The workload `hotspot`: all sessions increment one row, and ten rows. Locks are released before the flush, so the device does not limit it.

use crate::adapter::{Content, Kind};
use crate::error::BenchError;
use crate::figure::Due;
use crate::shape::{Order, record168};
use crate::source::{Draw, Rows, content_after};
use crate::suite::{Suite, SuiteArgs, Workload};
use clap::Args;

const WORKLOAD: Workload = Workload {
    name: "hotspot",
    cases: &[("one-row", "every session increments the same row"), ("ten-rows", "one of ten rows")],
    adapters: &["freshet", "freshet-native", "sqlite", "redb", "postgres"],
    rows: 10_000,
    judged_rows: 0,
    indexes: 1,
    has_own_devices: false,
};

/// All sessions increment one row, and ten rows
#[derive(Args, Clone, Debug)]
pub struct HotspotArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

pub fn run(args: &HotspotArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, record168(Order::Hash).raw_bytes())?;
    let measured = suite.each(measure);
    suite.finish(measured)
}

fn measure(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    let shape = record168(Order::Hash);
    let (rows, log) = (suite.rows, suite.log.clone());
    let running = suite.start(kind, std::slice::from_ref(&shape), &[rows], &log)?;
    suite.load(&running, 0, rows)?;
    let mut content = Content { rows, sum: 0 };
    for (case, hot) in [("one-row", 1), ("ten-rows", 10)] {
        if !suite.has(case) {
            continue;
        }
        for sessions in suite.session_counts() {
            let plan = suite.plan(suite.threads(), sessions);
            let source = |thread: usize, own: usize| Rows::new(Draw::Update, 0, &shape, hot, own, thread as u64);
            let measured = suite.measure(&running, case, &plan, source)?;
            content = content_after(content, &measured.sources);
            suite.check(&running, 0, content)?;
            let figure = suite.figure_of(&running, case, "operations", &plan, &measured);
            let bare = suite.rates(plan.threads);
            let bare = if hot == 1 { bare.one_row } else { bare.ten_rows };
            let figure =
                figure.clone().limit(suite.limit_of_changes(&running, &plan, bare, 1.0, figure.log_bytes_per_op));
            let is_due = hot == 1 && sessions >= crate::suite::SESSIONS && kind.is_ours();
            suite.tell(figure, is_due.then_some(Due::RateAtLeast(1e6)));
        }
    }
    Ok(())
}
