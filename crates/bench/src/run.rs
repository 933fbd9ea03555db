//! How fast does a system answer? A closed loop of sessions over a few threads, or an open one at a given rate.
//!
//! Each thread owns some of the sessions and drives them with commits in flight: it submits for whoever is idle, and asks who was answered.
//! What a figure rests on:
//!
//! 1. *Window.* After the warm-up, operations answered in `seconds` count. Those in flight at its end are waited for, do not count for the
//!    rate, and do count for the oracle.
//! 2. *Latency* is from submission to the moment the thread learns of the answer. The clock is read once for a stride of submissions, before
//!    them, so an operation in flight seems up to a stride longer than it was: some [`STRIDE_NS`]. Of operations answered at once, which last less
//!    than the clock takes to read, one in a stride of up to [`STRIDE_MAX`] is timed and stands for all.
//! 3. *Coordinated omission.* A closed loop does not submit while it waits, so a stall hides the operations it kept from being submitted. The
//!    corrected histogram adds them: for every latency above the mean interval between a session's operations, one for each interval that
//!    it covers. An open loop (`rate`) measures from the time at which an operation was due, and needs no correction.
//! 4. *Stalls.* Answers are counted per 100 ms; a figure carries the counts.

use crate::adapter::{Adapter, Answer, Driver, Facts, Op, Submitted};
use crate::error::BenchError;
use crate::progress::during;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Submissions between readings of the clock, at least, while any stay under way; asking who was answered comes as often.
const STRIDE: usize = 16;
/// The same, at most: reading the clock waits for all cache misses that are under way, and would keep those of one operation
/// from overlapping the next one's. With 16 it cost half the rate of searches, those between updates included.
const STRIDE_MAX: usize = 256;
/// What a stride with operations under way may take, so that their latencies stay true.
const STRIDE_NS: u64 = 32_000;
/// Operations answered at once that take longer are all timed.
const SHORT_NS: u64 = 2_000;
pub const SLICE_MS: u64 = 100;
const SLICE_NS: u64 = SLICE_MS * 1_000_000;

#[derive(Clone, Debug)]
pub struct Plan {
    pub threads: usize,
    pub sessions: usize,
    pub warm_up: Duration,
    pub time: Duration,
    /// Operations per second of all threads: an open loop.
    pub rate: Option<f64>,
    pub durable: bool,
}

/// What one thread does. Sessions are its own, from 0.
pub trait Source: Send {
    /// The session's next operation; `None`: it has nothing more to do.
    fn next(&mut self, session: usize) -> Option<Op<'_>>;

    /// What the system said to it.
    fn answered(&mut self, session: usize, answer: Answer) -> Result<(), BenchError>;
}

/// What came out. `sources` hold what the oracle compares with the content.
pub struct Measured<S> {
    pub sources: Vec<S>,
    pub operations: u64,
    pub seconds: f64,
    /// As measured, and corrected for coordinated omission. Nanoseconds.
    pub latency_ns: Histogram<u64>,
    pub corrected_ns: Histogram<u64>,
    /// Answers in each 100 ms of the window.
    pub slices: Vec<u64>,
    pub before: Facts,
    pub after: Facts,
    pub resident_before: Option<u64>,
    pub resident_after: Option<u64>,
}

impl<S> Measured<S> {
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }

    pub fn p50_us(&self) -> f64 {
        self.corrected_ns.value_at_quantile(0.5) as f64 / 1e3
    }

    pub fn p99_us(&self) -> f64 {
        self.corrected_ns.value_at_quantile(0.99) as f64 / 1e3
    }

    /// Growth of a counter in the window, by operation.
    pub fn per_operation(&self, count: fn(&Facts) -> Option<u64>) -> Option<f64> {
        let grown = count(&self.after)?.saturating_sub(count(&self.before)?);
        (self.operations > 0).then(|| grown as f64 / self.operations as f64)
    }

    pub fn per_second(&self, count: fn(&Facts) -> Option<u64>) -> Option<f64> {
        let grown = count(&self.after)?.saturating_sub(count(&self.before)?);
        (self.seconds > 0.0).then(|| grown as f64 / self.seconds)
    }
}

impl<S> Measured<S> {
    /// Adds another turn of the same work, after a pause that does not count. Memory is compared from the end of the first turn that was as large
    /// as the last one: before, the table never held so many rows.
    pub fn add_turn(sum: &mut Option<Measured<S>>, turn: Measured<S>, is_larger: bool) {
        let sum = match sum {
            None => sum.insert(turn),
            Some(sum) => {
                sum.append(turn);
                sum
            }
        };
        if is_larger {
            sum.resident_before = sum.resident_after;
        }
    }

    fn append(&mut self, turn: Measured<S>) {
        self.sources.extend(turn.sources);
        self.operations += turn.operations;
        self.seconds += turn.seconds;
        self.latency_ns.add(&turn.latency_ns).expect("both grow as needed");
        self.corrected_ns.add(&turn.corrected_ns).expect("both grow as needed");
        self.slices.extend(turn.slices);
        self.after = self.after.grown_by(&turn.before, &turn.after);
        self.resident_after = turn.resident_after;
    }
}

/// Sessions of one thread: as even as they can be, and at least one.
pub fn share(sessions: usize, threads: usize, thread: usize) -> usize {
    sessions / threads + usize::from(thread < sessions % threads)
}

/// Runs one source a thread against the system. `source(thread, sessions of the thread)`.
pub fn measure<S: Source>(
    what: &str,
    adapter: &dyn Adapter,
    plan: &Plan,
    source: impl Fn(usize, usize) -> S + Sync,
) -> Result<Measured<S>, BenchError> {
    let threads = plan.threads.clamp(1, plan.sessions.max(1));
    let total_ms = (plan.warm_up + plan.time).as_millis() as u64;
    during(what, total_ms, |passed_ms| {
        let shared = Shared {
            ready: Barrier::new(threads + 1),
            stop: AtomicBool::new(false),
            running: AtomicU64::new(threads as u64),
            window: plan.warm_up.as_nanos() as u64..(plan.warm_up + plan.time).as_nanos() as u64,
            watcher: thread::current(),
        };
        thread::scope(|scope| {
            let (shared, source) = (&shared, &source);
            let running: Vec<_> = (0..threads)
                .map(|n| {
                    let sessions = share(plan.sessions.max(1), threads, n);
                    scope.spawn(move || shared.run_thread(adapter, plan, threads, sessions, || source(n, sessions)))
                })
                .collect();
            let watched = shared.watch(adapter, passed_ms);
            let done: Result<Vec<Loop<S>>, BenchError> = running
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            Ok(gather(plan, shared, done?, watched, adapter))
        })
    })
}

/// Facts and resident memory at the window's beginning and, where it was reached, its end.
struct Watched {
    before: (Facts, Option<u64>),
    after: Option<(Facts, Option<u64>)>,
}

struct Shared {
    ready: Barrier,
    stop: AtomicBool,
    running: AtomicU64,
    /// Nanoseconds from the common start.
    window: std::ops::Range<u64>,
    watcher: thread::Thread,
}

impl Shared {
    fn run_thread<S: Source>(
        &self,
        adapter: &dyn Adapter,
        plan: &Plan,
        threads: usize,
        sessions: usize,
        source: impl FnOnce() -> S,
    ) -> Result<Loop<S>, BenchError> {
        let made = adapter.driver(sessions, plan.durable).map(|driver| (driver, source()));
        self.ready.wait();
        let result = made.and_then(|(mut driver, source)| {
            let interval = plan.rate.map(|rate| 1e9 * threads as f64 / rate);
            let mut one = Loop::new(source, sessions, self.window.clone(), interval);
            one.run(&mut *driver, &self.stop)?;
            Ok(one)
        });
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.watcher.unpark();
        result
    }

    fn watch(&self, adapter: &dyn Adapter, passed_ms: &AtomicU64) -> Watched {
        let look = || (adapter.facts(), adapter.resident_bytes());
        self.ready.wait();
        let start = Instant::now();
        let until = |ns: u64| {
            while self.running.load(Ordering::Acquire) > 0 {
                let now = start.elapsed().as_nanos() as u64;
                passed_ms.store(now / 1_000_000, Ordering::Relaxed);
                if now >= ns {
                    return true;
                }
                thread::park_timeout(Duration::from_nanos((ns - now).min(SLICE_NS)));
            }
            false
        };
        // A window that begins at once begins before the first operation.
        let first = look();
        let begun = self.window.start > 0 && until(self.window.start);
        let before = if begun { look() } else { first };
        let after = until(self.window.end).then(look);
        Watched { before, after }
    }
}

fn gather<S>(plan: &Plan, shared: &Shared, all: Vec<Loop<S>>, watched: Watched, adapter: &dyn Adapter) -> Measured<S> {
    let mut latency_ns = histogram();
    let mut slices: Vec<u64> = Vec::new();
    let mut operations = 0;
    let mut end = shared.window.start;
    for one in &all {
        latency_ns.add(&one.latency_ns).expect("both grow as needed");
        slices.resize(slices.len().max(one.slices.len()), 0);
        slices.iter_mut().zip(&one.slices).for_each(|(all, own)| *all += own);
        operations += one.counted;
        end = end.max(one.ended);
    }
    let seconds = (end - shared.window.start) as f64 / 1e9;
    // The last slice is not a whole one.
    slices.truncate(((end - shared.window.start) / SLICE_NS) as usize);
    let corrected_ns = corrected(&latency_ns, plan, seconds, operations);
    let (after, resident_after) = watched.after.unwrap_or_else(|| (adapter.facts(), adapter.resident_bytes()));
    Measured {
        sources: all.into_iter().map(|one| one.source).collect(),
        operations,
        seconds,
        latency_ns,
        corrected_ns,
        slices,
        before: watched.before.0,
        after,
        resident_before: watched.before.1,
        resident_after,
    }
}

/// With what a stall kept a closed loop from submitting: an operation in each mean interval of a session.
fn corrected(latency_ns: &Histogram<u64>, plan: &Plan, seconds: f64, operations: u64) -> Histogram<u64> {
    if plan.rate.is_some() {
        return latency_ns.clone();
    }
    let interval_ns = plan.sessions as f64 * seconds * 1e9 / operations.max(1) as f64;
    latency_ns.clone_correct((interval_ns as u64).max(1))
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are valid")
}

/// The next stride of operations that stay under way, by what the last one took with the answers that came.
fn next_stride(stride: usize, took_ns: u64) -> usize {
    let next = if took_ns > STRIDE_NS { stride / 2 } else { stride * 2 };
    next.clamp(STRIDE, STRIDE_MAX)
}

/// One thread's loop.
struct Loop<S> {
    source: S,
    window: std::ops::Range<u64>,
    /// Between submissions of an open loop.
    interval: Option<f64>,
    start: Instant,
    idle: VecDeque<usize>,
    /// By session: when its operation was submitted, or due.
    begun: Vec<u64>,
    busy: usize,
    latency_ns: Histogram<u64>,
    /// Answered at once since one of them was timed.
    untimed: u64,
    stride: usize,
    /// When the last stride with operations that stay under way began.
    paced_from: Option<u64>,
    /// Answers since the clock was read.
    fresh: u64,
    counted: u64,
    slices: Vec<u64>,
    /// Where its part of the window ended.
    ended: u64,
}

impl<S: Source> Loop<S> {
    fn new(source: S, sessions: usize, window: std::ops::Range<u64>, interval: Option<f64>) -> Loop<S> {
        let start = Instant::now();
        Loop {
            source,
            window,
            interval,
            start,
            idle: (0..sessions).collect(),
            begun: vec![0; sessions],
            busy: 0,
            latency_ns: histogram(),
            untimed: 0,
            stride: STRIDE,
            paced_from: None,
            fresh: 0,
            counted: 0,
            slices: Vec::new(),
            ended: 0,
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&mut self, driver: &mut dyn Driver, stop: &AtomicBool) -> Result<(), BenchError> {
        let mut done = Vec::new();
        let mut submitted = 0u64;
        loop {
            let now = self.now();
            if let Some(from) = self.paced_from.take() {
                self.stride = next_stride(self.stride, now - from);
            }
            self.tick(now);
            if now >= self.window.end || stop.load(Ordering::Relaxed) {
                break;
            }
            let waits = match self.interval {
                None => {
                    self.submit_some(driver, now)?;
                    self.idle.is_empty()
                }
                Some(interval) => {
                    self.submit_due(driver, now, interval, &mut submitted)?;
                    false
                }
            };
            if waits {
                self.paced_from = None;
            }
            if self.busy > 0 {
                self.collect(driver, waits, &mut done)?;
            } else if self.idle.is_empty() {
                break;
            }
        }
        while self.busy > 0 {
            self.collect(driver, true, &mut done)?;
            if self.now() < self.window.end {
                self.tick(self.now());
            }
        }
        Ok(())
    }

    /// Counts what was answered since the last tick.
    fn tick(&mut self, now: u64) {
        let fresh = std::mem::take(&mut self.fresh);
        if now < self.window.start {
            return;
        }
        if self.ended == 0 {
            // The first tick in the window: what went before was the warm-up.
            self.ended = now.max(1);
            self.untimed = 0;
            if self.window.start > 0 {
                self.latency_ns.reset();
                return;
            }
        }
        self.ended = now.max(1);
        self.counted += fresh;
        let slice = ((now - self.window.start) / SLICE_NS) as usize;
        if slice >= self.slices.len() {
            self.slices.resize(slice + 1, 0);
        }
        self.slices[slice] += fresh;
    }

    fn submit_some(&mut self, driver: &mut dyn Driver, now: u64) -> Result<(), BenchError> {
        for n in 0..self.stride {
            let Some(&session) = self.idle.front() else {
                return Ok(());
            };
            // Looked at where it was made: a copy of what was just stored in parts waits for all loads before it, cache misses included.
            let op = self.source.next(session);
            let Some(op) = &op else {
                self.idle.pop_front();
                continue;
            };
            match driver.submit(session, op)? {
                Submitted::InFlight => {
                    self.idle.pop_front();
                    self.begun[session] = now;
                    self.busy += 1;
                    self.paced_from = Some(now);
                }
                Submitted::Done(answer) => {
                    self.untimed += 1;
                    if n == 0 {
                        let took = self.now() - now;
                        let count = std::mem::take(&mut self.untimed);
                        self.record(took, count);
                        self.stride = if took > SHORT_NS { 1 } else { (self.stride * 2).clamp(STRIDE, STRIDE_MAX) };
                    }
                    self.fresh += 1;
                    self.source.answered(session, answer)?;
                    // A lone session stays where it is.
                    if self.idle.len() > 1 {
                        self.idle.rotate_left(1);
                    }
                    // Sixteen that each wait for a device may outlast the window; none of them would count.
                    if self.stride == 1 && self.busy == 0 {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Submits what is due by now, as far as sessions are idle.
    fn submit_due(
        &mut self,
        driver: &mut dyn Driver,
        now: u64,
        interval: f64,
        submitted: &mut u64,
    ) -> Result<(), BenchError> {
        let mut is_early = true;
        for _ in 0..STRIDE {
            let due = (*submitted as f64 * interval) as u64;
            if due > now {
                break;
            }
            is_early = false;
            let Some(session) = self.idle.pop_front() else {
                break;
            };
            let Some(op) = self.source.next(session) else {
                continue;
            };
            *submitted += 1;
            match driver.submit(session, &op)? {
                Submitted::InFlight => {
                    self.begun[session] = due;
                    self.busy += 1;
                }
                Submitted::Done(answer) => {
                    self.record(self.now() - due, 1);
                    self.fresh += 1;
                    self.source.answered(session, answer)?;
                    self.idle.push_back(session);
                }
            }
        }
        if is_early {
            // Other threads do the system's work meanwhile.
            thread::yield_now();
        }
        Ok(())
    }

    fn collect(
        &mut self,
        driver: &mut dyn Driver,
        wait: bool,
        done: &mut Vec<crate::adapter::Completion>,
    ) -> Result<(), BenchError> {
        driver.completions(wait, done)?;
        if done.is_empty() {
            return Ok(());
        }
        let now = self.now();
        for completion in done.drain(..) {
            self.record(now.saturating_sub(self.begun[completion.session]), 1);
            self.fresh += 1;
            self.busy -= 1;
            self.source.answered(completion.session, completion.answer)?;
            self.idle.push_back(completion.session);
        }
        Ok(())
    }

    fn record(&mut self, ns: u64, count: u64) {
        self.latency_ns.record_n(ns.max(1), count).expect("the histogram grows as needed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{Completion, Content, Loading};
    use crate::shape::TableShape;

    fn plan(sessions: usize, time: Duration, rate: Option<f64>) -> Plan {
        Plan { threads: 1, sessions, warm_up: Duration::ZERO, time, rate, durable: true }
    }

    /// 1,000 operations of 1 ms, and one that stalls its session for as long as all of them took.
    #[test]
    fn one_stall_in_a_closed_loop_is_what_it_kept_from_being_submitted() {
        let mut measured = histogram();
        measured.record_n(1_000_000, 1000).expect("fits");
        measured.record(1_000_000_000).expect("fits");
        let p99_ms = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.99) / 1_000_000;
        assert_eq!(p99_ms(&measured), 1, "one in a thousand is not seen");
        let closed = corrected(&measured, &plan(1, Duration::from_secs(2), None), 2.0, 1001);
        // 500 more, of 2 ms each more than the one before.
        assert!((1450..=1550).contains(&closed.len()) && p99_ms(&closed) > 950, "{} {}", closed.len(), p99_ms(&closed));
        // Of ten sessions one stalled: the others went on.
        let beside = corrected(&measured, &plan(10, Duration::from_secs(2), None), 2.0, 10_000);
        assert!(beside.len() > 1400, "{}", beside.len());
        // An open loop counts from when an operation was due.
        let open = corrected(&measured, &plan(1, Duration::from_secs(2), Some(500.0)), 2.0, 1001);
        assert_eq!(open, measured);
    }

    const STALL: Duration = Duration::from_millis(60);

    /// Nothing but what drives it.
    struct Driven(fn() -> Box<dyn Driver>);

    /// Answers everybody a moment later, and the third time only after a stall.
    #[derive(Default)]
    struct StallingDriver {
        busy: Vec<usize>,
        rounds: u64,
    }

    /// Answers at once, which takes [`SLOW`].
    struct SlowDriver;

    const SLOW: Duration = Duration::from_millis(20);

    impl Adapter for Driven {
        fn create(&mut self, _: &[TableShape]) -> Result<(), BenchError> {
            Ok(())
        }

        fn load(&self, _: &Loading<'_>) -> Result<(), BenchError> {
            Ok(())
        }

        fn driver<'a>(&'a self, _: usize, _: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
            Ok(self.0())
        }

        fn content(&self, _: usize) -> Result<Content, BenchError> {
            Ok(Content::default())
        }

        fn facts(&self) -> Facts {
            Facts::default()
        }
    }

    impl Driver for StallingDriver {
        fn submit(&mut self, session: usize, _: &Op<'_>) -> Result<Submitted, BenchError> {
            self.busy.push(session);
            Ok(Submitted::InFlight)
        }

        fn completions(&mut self, _: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
            self.rounds += 1;
            thread::sleep(if self.rounds == 3 { STALL } else { Duration::from_micros(100) });
            done.extend(self.busy.drain(..).map(|session| Completion { session, answer: Answer::default() }));
            Ok(())
        }
    }

    impl Driver for SlowDriver {
        fn submit(&mut self, _: usize, _: &Op<'_>) -> Result<Submitted, BenchError> {
            thread::sleep(SLOW);
            Ok(Submitted::Done(Answer::default()))
        }

        fn completions(&mut self, _: bool, _: &mut Vec<Completion>) -> Result<(), BenchError> {
            Ok(())
        }
    }

    struct Sums;

    impl Source for Sums {
        fn next(&mut self, _: usize) -> Option<Op<'_>> {
            Some(Op::Sum { table: 0 })
        }

        fn answered(&mut self, _: usize, _: Answer) -> Result<(), BenchError> {
            Ok(())
        }
    }

    #[test]
    fn a_stall_shows_in_the_99th_percentile() {
        for rate in [None, Some(1000.0)] {
            let plan = plan(1, 4 * STALL, rate);
            let stalling = Driven(|| Box::new(StallingDriver::default()));
            let measured = measure("stalling", &stalling, &plan, |_, _| Sums).expect("answers");
            // A slower machine has fewer answers, of which the stall is a larger part.
            assert!(measured.p99_us() >= STALL.as_micros() as f64 / 2.0, "{rate:?}: {} us", measured.p99_us());
        }
    }

    #[test]
    fn a_window_shorter_than_a_stride_of_slow_operations_has_answers() {
        let whole = Plan { warm_up: SLOW / 20, ..plan(1, SLOW * 15, None) };
        assert!(whole.time < SLOW * STRIDE as u32);
        let measured = measure("slow", &Driven(|| Box::new(SlowDriver)), &whole, |_, _| Sums).expect("answers");
        assert!(measured.operations > 0 && measured.rate() > 0.0);
    }
}
