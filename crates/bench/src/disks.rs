//! The workload `disks`: P*TIME's updates over modelled log disks (REFERENCE.md A1, F2 to F4).
//!
//! | case | disks | shows |
//! |---|---|---|
//! | `cache-off` | flush 8 ms, 4 of them | response of 9 to 16 ms whatever the sessions: one flush, or two where one is under way (F2) |
//! | `cache-on` | the same behind a cache of 300 KB | response of 1 to 3 ms until the cache is full (F2) |
//! | `volume` | flush 8 ms, 0.3 MB/s; 1, 2 and 4 of them | rate against disks where the volume limits (F4) |
//! | `flush` | flush 8 ms; 1, 2 and 4 of them | the same where only the flush limits |
//! | `deferred` | one disk, durable and deferred | the same peak (F3) |
//!
//! Due of the first two is the shape of F2: the median is one flush or two without the cache, one answer or some more with it, whatever the
//! sessions, as long as the processors have time left.
//!
//! A closed loop of n sessions over disks that take 8 ms a flush, whatever is in it, gets at most n commits in 8 ms, be they one disk or many: group
//! commit makes one flush do for all. So more disks help only where a flush takes longer the more is in it. A P*TIME disk took 35 K commits a
//! second (140 K on four); at our 32 bytes a commit 0.3 MB/s are a quarter of that, so that what 4,800 sessions commit
//! at once takes half a second on one disk, and two flushes of 8 ms beside it are little.
//!
//! Half of the sessions fill a group while the other half's is written. Of 4,800 sessions each of four disks then gets 17 KB a group, of which
//! its 8 ms and the padding to 4 KiB are a fifth: what a group costs whatever is in it, which no disk added takes less of. So `volume` runs twice as many.

use crate::adapter::{Content, Kind};
use crate::device::{Cache, Model};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::log_plan::LogPlan;
use crate::run::{Measured, Plan};
use crate::shape::{Order, record168};
use crate::source::{Draw, Rows, content_after};
use crate::suite::{Running, SESSIONS, Suite, SuiteArgs, Workload};
use clap::Args;
use std::time::Duration;

const FLUSH: Duration = Duration::from_millis(8);
const DISKS: [usize; 3] = [1, 2, 4];
const RESPONSE_DISKS: usize = 4;
const RESPONSE_SESSIONS: [usize; 5] = [1, 10, 100, 1000, 4800];
const VOLUME_BYTES_PER_S: u64 = 300_000;
const VOLUME_SESSIONS: usize = 2 * SESSIONS;
/// P*TIME's disks: a small cache, and what they take in a row.
const CACHE: Cache = Cache { bytes: 300_000, answer: Duration::from_millis(1) };
const CACHED_BYTES_PER_S: u64 = 40_000_000;
/// What F2 published, and what our median may be: what the model takes at least, and the same upper end with a tenth for threads to be woken.
const OFF_PUBLISHED_US: (f64, f64) = (9e3, 16e3);
const OFF_DUE: Due = Due::P50WithinUs(8e3, 17.6e3);
const ON_PUBLISHED_US: (f64, f64) = (1e3, 3e3);
const ON_DUE: Due = Due::P50WithinUs(1e3, 3.3e3);
/// Of a disk that is added, as long as the processors do not limit.
const DOUBLING: f64 = 1.8;
/// Above this share of the machine's processors it is they that limit.
const BUSY: f64 = 0.85;

const WORKLOAD: Workload = Workload {
    name: "disks",
    cases: &[
        ("cache-off", "response by sessions, 4 disks that flush in 8 ms"),
        ("cache-on", "the same with a write-behind cache of 300 KB"),
        ("volume", "rate by disks, where the volume limits"),
        ("flush", "rate by disks, where only the flush limits"),
        ("deferred", "one disk, durable and deferred"),
    ],
    adapters: &["freshet"],
    rows: 8_000_000,
    judged_rows: 1_000_000,
    indexes: 1,
    has_own_devices: true,
};

/// Durable updates over modelled log disks: P*TIME's F2 to F4
#[derive(Args, Clone, Debug)]
pub struct DisksArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

pub fn run(args: &DisksArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, record168(Order::Hash).raw_bytes())?;
    suite.sessions_most = VOLUME_SESSIONS;
    let measured = suite.each(|suite, kind| {
        response(suite, kind, "cache-off", off(None))?;
        response(suite, kind, "cache-on", on())?;
        by_disks(suite, kind, "volume", off(Some(VOLUME_BYTES_PER_S)), VOLUME_SESSIONS)?;
        by_disks(suite, kind, "flush", off(None), SESSIONS)?;
        deferred(suite, kind)
    });
    suite.finish(measured)
}

fn off(bandwidth_bytes_per_s: Option<u64>) -> Model {
    Model { flush: FLUSH, bandwidth_bytes_per_s, cache: None }
}

fn on() -> Model {
    Model { flush: FLUSH, bandwidth_bytes_per_s: Some(CACHED_BYTES_PER_S), cache: Some(CACHE) }
}

/// A loaded table over so many disks.
struct Test {
    running: Running,
    content: Content,
}

impl Test {
    fn start(suite: &mut Suite, kind: Kind, model: Model, disks: usize) -> Result<Test, BenchError> {
        let log = LogPlan::of_models(vec![model; disks], format!("{disks} disks"));
        let rows = suite.rows;
        let running = suite.start(kind, &[record168(Order::Hash)], &[rows], &log)?;
        suite.load(&running, 0, rows)?;
        let content = Content { rows, sum: 0 };
        suite.check(&running, 0, content)?;
        Ok(Test { running, content })
    }

    /// Updates, and how much of the processors they took.
    fn update(&mut self, suite: &Suite, case: &str, plan: &Plan) -> Result<(Measured<Rows>, f64), BenchError> {
        let (shape, rows) = (&self.running.tables[0], suite.rows);
        let source = |thread: usize, sessions: usize| Rows::new(Draw::Update, 0, shape, rows, sessions, thread as u64);
        let (began, start) = (processor_seconds(), std::time::Instant::now());
        let measured = suite.measure(&self.running, case, plan, source)?;
        let busy = (processor_seconds() - began) / start.elapsed().as_secs_f64() / suite.machine.cores as f64;
        self.content = content_after(self.content, &measured.sources);
        suite.check(&self.running, 0, self.content)?;
        Ok((measured, busy))
    }
}

/// What this process has used of all processors.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which may hold anything: fields 14 and 15 are ticks in user and kernel mode.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    const TICKS_PER_S: f64 = 100.0;
    (ticks(14) + ticks(15)) / TICKS_PER_S
}

/// F2: what a commit waits, by sessions.
fn response(suite: &mut Suite, kind: Kind, case: &'static str, model: Model) -> Result<(), BenchError> {
    if !suite.has(case) {
        return Ok(());
    }
    let mut test = Test::start(suite, kind, model, RESPONSE_DISKS)?;
    let sweep = if suite.args.sessions.is_empty() { RESPONSE_SESSIONS.to_vec() } else { suite.args.sessions.clone() };
    for sessions in sweep {
        let plan = suite.plan(suite.threads().min(sessions), sessions);
        let (measured, busy) = test.update(suite, case, &plan)?;
        let mut figure = suite.figure_of(&test.running, case, "operations", &plan, &measured);
        figure.at = Some(sessions as f64);
        let (published, due) =
            if model.cache.is_some() { (ON_PUBLISHED_US, ON_DUE) } else { (OFF_PUBLISHED_US, OFF_DUE) };
        (figure.published_us, figure.source) = (Some(published), "F2");
        let (from, to) = (published.0 / 1e3, published.1 / 1e3);
        let note = format!("{from} to {to} ms in 2004 (F2); processors {:.0} %", busy * 100.0);
        let limit = limit(suite, &test.running, &plan, &figure);
        suite.tell(figure.limit(limit).note(note), (busy < BUSY).then_some(due));
    }
    Ok(())
}

/// F4: the rate, by disks.
fn by_disks(
    suite: &mut Suite,
    kind: Kind,
    case: &'static str,
    model: Model,
    sessions: usize,
) -> Result<(), BenchError> {
    if !suite.has(case) {
        return Ok(());
    }
    let sessions = if suite.args.sessions.is_empty() { sessions } else { suite.sessions() };
    let mut before: Option<f64> = None;
    for disks in DISKS {
        let mut test = Test::start(suite, kind, model, disks)?;
        let plan = suite.plan(suite.threads().min(sessions), sessions);
        let (measured, busy) = test.update(suite, case, &plan)?;
        let mut figure = suite.figure_of(&test.running, case, "operations", &plan, &measured);
        figure.at = Some(disks as f64);
        let rate = figure.rate_per_s;
        let note = format!("{disks} disks; processors {:.0} %", busy * 100.0);
        let limit = limit(suite, &test.running, &plan, &figure);
        suite.tell(figure.clone().limit(limit).note(note), None);
        if let Some(before) = before {
            let doubled = figure.derived_ratio(format!("{disks} disks to {}", disks / 2), rate / before);
            let limited = model.bandwidth_bytes_per_s.is_some() && busy < BUSY;
            suite.tell(doubled, limited.then_some(Due::RatioAtLeast(DOUBLING)));
        }
        before = Some(rate);
    }
    Ok(())
}

/// What a closed loop gets of such disks at most, and of the processors.
fn limit(suite: &Suite, running: &Running, plan: &Plan, figure: &Figure) -> f64 {
    let update = suite.rates(plan.threads).update;
    suite.limit_of_changes(running, plan, update, 1.0, figure.log_bytes_per_op)
}

/// F3: durable and deferred on one disk.
fn deferred(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    if !suite.has("deferred") {
        return Ok(());
    }
    let mut test = Test::start(suite, kind, Model { bandwidth_bytes_per_s: Some(CACHED_BYTES_PER_S), ..off(None) }, 1)?;
    let sessions = if suite.args.sessions.is_empty() { SESSIONS } else { suite.sessions() };
    for (name, durable) in [("durable", true), ("deferred", false)] {
        let plan = Plan { durable, ..suite.plan(suite.threads().min(sessions), sessions) };
        let (measured, busy) = test.update(suite, "deferred", &plan)?;
        let figure = suite.figure_of(&test.running, "deferred", "operations", &plan, &measured);
        let note = format!("processors {:.0} %", busy * 100.0);
        let limit = limit(suite, &test.running, &plan, &figure);
        suite.tell(Figure { figure: name.into(), ..figure }.limit(limit).note(note), None);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_help_where_the_volume_limits() {
        let of = |model: Model, disks: usize, bytes| {
            let log = LogPlan::of_models(vec![model; disks], "disks");
            log.answers_per_s(4800, bytes, true).expect("is modelled")
        };
        let volume = |disks| of(off(Some(VOLUME_BYTES_PER_S)), disks, 32.0);
        assert!(
            volume(2) / volume(1) > 1.9 && volume(4) / volume(2) > 1.8,
            "{} {} {}",
            volume(1),
            volume(2),
            volume(4)
        );
        let flush = |disks| of(off(None), disks, 64.0);
        assert_eq!(flush(1), flush(4));
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = processor_seconds();
        let mut word = 1u64;
        while processor_seconds() < before + 0.02 {
            word = std::hint::black_box(word.wrapping_mul(31));
        }
    }
}
