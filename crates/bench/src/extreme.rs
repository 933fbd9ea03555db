//! The workload `extreme`: eXtremeDB's two tests (REFERENCE.md A5), a disk engine against memory with a log.
//!
//! | case | a loop | is |
//! |---|---|---|
//! | `insert`, `update`, `delete` | 2 rows | one durable transaction |
//! | `search`, `traverse` | 8 searches, or 8 steps along a B+-tree | one transaction |
//! | `accounts` | UPDATE accounts, SELECT it, UPDATE tellers, UPDATE branches, INSERT account_history | five transactions of one session |
//!
//! The limit of a loop is that of its statements in the bare loop, and a session waits for a flush at each commit: one a loop, four where each statement
//! commits by itself. Eight steps in key order are a search and seven more rows at the memory's bandwidth.
//!
//! The disk engine is SQLite with its data in its cache and every commit on the disk. The log device is this machine's; with
//! `--log model:flush=8ms` ours has a disk that turns, as the source's first column.

use crate::adapter::{Answer, Content, Fetch, Kind, Op};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::random::Random;
use crate::run::{Measured, Plan, Source};
use crate::shape::{COUNTER_168, ColumnShape, IndexShape, Order, TableShape, Ty, record168};
use crate::suite::{Running, Suite, SuiteArgs, Workload};
use clap::Args;
use std::ops::Range;
use std::time::Duration;

/// Rows of a changing loop, and of a reading one.
const CHANGES: usize = 2;
const READS: usize = 8;
/// Of the first test's loops at the same time: the source has one task.
const TASKS: usize = 1;
const STATEMENTS: u64 = 5;
/// Of them, those that change something.
const COMMITS: f64 = 4.0;
const ACCOUNT_SESSIONS: [usize; 6] = [2, 4, 8, 16, 24, 36];
/// Published loops a millisecond at those sessions: disk engine on flash, memory with a log.
const PUBLISHED: [[f64; 6]; 2] = [[3.89, 7.05, 10.35, 11.37, 11.84, 12.21], [9.59, 16.38, 27.39, 42.63, 43.59, 48.40]];
const ACCOUNTS_PER_TELLER: u64 = 10_000;
const TELLERS_PER_BRANCH: u64 = 10;
/// The first turn of inserts and deletes is small, so that a slow system is done with it soon.
const TURN_ROWS_FIRST: u64 = 1000;
const TURN_TIME_MAX: Duration = Duration::from_secs(3600);

const WORKLOAD: Workload = Workload {
    name: "extreme",
    cases: &[
        ("insert", "2 rows a loop, durable"),
        ("delete", "2 rows a loop, durable"),
        ("update", "2 rows a loop, durable"),
        ("search", "8 rows a loop, by hash key"),
        ("traverse", "8 rows a loop, in key order"),
        ("accounts", "five statements a loop, 2 to 36 sessions"),
    ],
    adapters: &["freshet-native", "freshet", "sqlite"],
    rows: 1_000_000,
    judged_rows: 1_000_000,
    indexes: 1,
    has_own_devices: false,
};

/// Loops of a few statements, a disk engine against memory with a log: eXtremeDB's tests
#[derive(Args, Clone, Debug)]
pub struct ExtremeArgs {
    #[command(flatten)]
    suite: SuiteArgs,
}

pub fn run(args: &ExtremeArgs) -> Result<(), BenchError> {
    let mut suite = Suite::new(&args.suite, WORKLOAD, record168(Order::Hash).raw_bytes())?;
    let measured = suite.each(|suite, kind| {
        loops(suite, kind)?;
        if suite.has("accounts") { accounts(suite, kind) } else { Ok(()) }
    });
    against_disk_engine(&mut suite);
    suite.finish(measured)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Insert,
    Update,
    Delete,
    Search,
    Traverse,
}

/// One thread's loops over one table, a transaction each.
struct Loops {
    step: Step,
    rows: u64,
    /// The next key that this thread inserts or deletes.
    next: u64,
    end: u64,
    random: Random,
    ops: Vec<Op<'static>>,
    done: u64,
}

impl Loops {
    /// In one order, so that nobody deadlocks.
    fn draw_keys(&mut self, count: usize) -> Vec<i64> {
        let mut keys: Vec<i64> = (0..count).map(|_| self.random.below(self.rows) as i64).collect();
        keys.sort_unstable();
        keys
    }

    /// Keys of its own, in turn; none when they are used up.
    fn next_keys(&mut self) -> Option<std::ops::Range<u64>> {
        let first = self.next;
        self.next = first + CHANGES as u64;
        (self.next <= self.end).then_some(first..self.next)
    }

    fn rows_due(&self) -> u64 {
        match self.step {
            Step::Insert | Step::Update | Step::Delete => CHANGES as u64,
            Step::Search | Step::Traverse => READS as u64,
        }
    }
}

impl Source for Loops {
    fn next(&mut self, _: usize) -> Option<Op<'_>> {
        let (table, index) = (0, 0);
        self.ops.clear();
        match self.step {
            Step::Insert => {
                let keys = self.next_keys()?;
                self.ops.extend(keys.map(|id| Op::InsertRow { table, id }));
            }
            Step::Delete => {
                let keys = self.next_keys()?;
                self.ops.extend(keys.map(|key| Op::Delete { table, index, key: key as i64 }));
            }
            Step::Update => {
                let keys = self.draw_keys(CHANGES);
                let update = |key| Op::Update { table, index, key, column: COUNTER_168, add: 1 };
                self.ops.extend(keys.into_iter().map(update));
            }
            Step::Search => {
                let keys = self.draw_keys(READS);
                self.ops.extend(keys.into_iter().map(|key| Op::Search { table, index, key, fetch: Fetch::Counter }));
            }
            Step::Traverse => {
                let key = self.random.below(self.rows - READS as u64) as i64;
                return Some(Op::Traverse { table, index, key, rows: READS });
            }
        }
        Some(Op::Transaction(&self.ops))
    }

    fn answered(&mut self, _: usize, answer: Answer) -> Result<(), BenchError> {
        let due = self.rows_due();
        if answer.rows != due {
            let (step, got) = (self.step, answer.rows);
            return Err(BenchError::WrongData(format!("a loop of {step:?} answered {got} rows, {due} are due")));
        }
        self.done += 1;
        Ok(())
    }
}

/// The first test.
fn loops(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    let by_hash = ["insert", "delete", "update", "search"];
    if by_hash.iter().any(|case| suite.has(case)) {
        let mut test = Test::start(suite, kind, Order::Hash)?;
        if suite.has("insert") || suite.has("delete") {
            test.turns(suite)?;
        }
        for (case, step) in [("update", Step::Update), ("search", Step::Search)] {
            if suite.has(case) {
                let measured = test.drive(suite, case, step, 0..0)?;
                test.tell(suite, case, step, &measured);
            }
        }
    }
    if suite.has("traverse") {
        let mut test = Test::start(suite, kind, Order::Btree)?;
        let measured = test.drive(suite, "traverse", Step::Traverse, 0..0)?;
        test.tell(suite, "traverse", Step::Traverse, &measured);
    }
    Ok(())
}

struct Test {
    running: Running,
    plan: Plan,
    content: Content,
}

impl Test {
    fn start(suite: &mut Suite, kind: Kind, order: Order) -> Result<Test, BenchError> {
        let (log, rows) = (suite.log.clone(), suite.rows);
        let sessions = if suite.args.sessions.is_empty() { TASKS } else { suite.sessions() };
        let running = suite.start(kind, &[record168(order)], &[rows * 2], &log)?;
        suite.load(&running, 0, rows)?;
        let content = Content { rows, sum: 0 };
        suite.check(&running, 0, content)?;
        let plan = suite.plan(suite.threads().min(sessions), sessions);
        Ok(Test { running, plan, content })
    }

    fn drive(
        &mut self,
        suite: &Suite,
        case: &str,
        step: Step,
        keys: Range<u64>,
    ) -> Result<Measured<Loops>, BenchError> {
        let (rows, threads) = (suite.rows, self.plan.threads as u64);
        let own =
            |thread: u64| keys.start + (keys.end - keys.start) / CHANGES as u64 * thread / threads * CHANGES as u64;
        let source = |thread: usize, _: usize| Loops {
            step,
            rows,
            next: own(thread as u64),
            end: own(thread as u64 + 1),
            random: Random((thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            ops: Vec::new(),
            done: 0,
        };
        let plan = match step {
            // Until all keys are done.
            Step::Insert | Step::Delete => Plan { warm_up: Duration::ZERO, time: TURN_TIME_MAX, ..self.plan.clone() },
            _ => self.plan.clone(),
        };
        let measured = suite.measure(&self.running, case, &plan, source)?;
        let done: u64 = measured.sources.iter().map(|source| source.done * CHANGES as u64).sum();
        match step {
            Step::Insert => self.content.rows += done,
            Step::Delete => self.content.rows -= done,
            Step::Update => self.content.sum += done as i64,
            Step::Search | Step::Traverse => {}
        }
        suite.check(&self.running, 0, self.content)?;
        Ok(measured)
    }

    /// Inserts and deletes by turns, more and more rows, until each was measured for long enough.
    fn turns(&mut self, suite: &mut Suite) -> Result<(), BenchError> {
        let rows = suite.rows;
        let (mut turn, mut largest) = (TURN_ROWS_FIRST.min(rows), 0);
        let steps = [("insert", Step::Insert), ("delete", Step::Delete)];
        let mut both: [Option<Measured<Loops>>; 2] = [None, None];
        while !both.iter().all(|m| m.as_ref().is_some_and(|m| m.seconds >= suite.args.seconds)) {
            let mut longest = 0f64;
            for ((case, step), sum) in steps.into_iter().zip(&mut both) {
                let one = self.drive(suite, case, step, rows..rows + turn / 2 * 2)?;
                longest = longest.max(one.seconds);
                Measured::add_turn(sum, one, turn > largest);
            }
            largest = largest.max(turn);
            if longest < suite.args.seconds / 8.0 {
                turn = (turn * 4).min(rows);
            }
        }
        for ((case, step), measured) in steps.into_iter().zip(both) {
            if let Some(measured) = measured.filter(|_| suite.has(case)) {
                self.tell(suite, case, step, &measured);
            }
        }
        Ok(())
    }

    /// Of loops.
    fn limit(&self, suite: &Suite, step: Step, log_bytes: Option<f64>) -> f64 {
        let (threads, reads) = (self.plan.threads, READS as f64);
        let bare = suite.rates(threads);
        let changes =
            |rate: f64| suite.limit_of_changes(&self.running, &self.plan, rate / CHANGES as f64, 1.0, log_bytes);
        match step {
            Step::Insert => changes(bare.insert),
            Step::Update => changes(bare.update),
            Step::Delete => changes(bare.delete),
            Step::Search => bare.search / reads,
            Step::Traverse => {
                let row_s = self.running.tables[0].raw_bytes() as f64 / suite.bandwidth(threads);
                1.0 / (1.0 / bare.search + (reads - 1.0) * row_s)
            }
        }
    }

    fn tell(&self, suite: &mut Suite, case: &str, step: Step, measured: &Measured<Loops>) {
        let figure = suite.figure_of(&self.running, case, "loops", &self.plan, measured);
        let limit = self.limit(suite, step, figure.log_bytes_per_op);
        let mut figure = figure.limit(limit);
        let is_disk = is_disk_engine(self.running.kind);
        let on_flash = match (case, is_disk) {
            ("insert", true) | ("delete", true) => Some(5.69),
            ("update", true) => Some(16.17),
            ("insert", false) => Some(29.22),
            ("update", false) => Some(34.60),
            ("delete", false) => Some(32.26),
            _ => None,
        };
        let on_disk = match case {
            "insert" => Some(5.11),
            "update" => Some(5.32),
            "delete" => Some(5.31),
            _ => None,
        };
        let per_ms = if suite.log.is_modelled() && !is_disk { on_disk } else { on_flash };
        (figure.published_per_s, figure.source) = (per_ms.map(|loops| loops * 1e3), "A5");
        suite.tell(figure, None);
    }
}

fn is_disk_engine(kind: Kind) -> bool {
    kind.name == "sqlite"
}

// ---- the account loop

const ACCOUNTS: usize = 0;
const TELLERS: usize = 1;
const BRANCHES: usize = 2;
const HISTORY: usize = 3;

fn holders(name: &'static str) -> TableShape {
    let column = |(name, ty): (&str, Ty)| ColumnShape { name: name.to_owned(), ty };
    TableShape {
        name,
        columns: [("id", Ty::Int8), ("branch", Ty::Int8), ("balance", Ty::Int8), ("filler", Ty::Char(80))]
            .map(column)
            .into(),
        indexes: vec![IndexShape { column: 0, unique: true, order: Order::Hash }],
        counter: 2,
        row: |id, cells| cells.extend([id, id / TELLERS_PER_BRANCH, 0, id * 31].map(|number| number as i64)),
    }
}

/// A row for each loop; every loop moves one.
fn history() -> TableShape {
    let column = |(name, ty): (&str, Ty)| ColumnShape { name: name.to_owned(), ty };
    TableShape {
        name: "account_history",
        columns: [("id", Ty::Int8), ("account", Ty::Int8), ("delta", Ty::Int8), ("filler", Ty::Char(22))]
            .map(column)
            .into(),
        indexes: vec![IndexShape { column: 0, unique: true, order: Order::Hash }],
        counter: 2,
        row: |id, cells| cells.extend([id, id / 7, 1, id].map(|number| number as i64)),
    }
}

/// The sizes of the four tables, as loaded.
fn sizes(accounts: u64) -> [u64; 4] {
    let tellers = (accounts / ACCOUNTS_PER_TELLER).max(1);
    [accounts, tellers, (tellers / TELLERS_PER_BRANCH).max(1), 0]
}

/// One thread's sessions, each somewhere in its loop.
struct Accounts {
    sizes: [u64; 4],
    step: Vec<u64>,
    /// The account of the loop under way.
    account: Vec<i64>,
    random: Random,
    next_history: u64,
    stride: u64,
    /// Acknowledged, by step.
    done: [u64; STATEMENTS as usize],
}

impl Source for Accounts {
    fn next(&mut self, session: usize) -> Option<Op<'_>> {
        let update = |table: usize, key: i64| Op::Update { table, index: 0, key, column: 2, add: 1 };
        if self.step[session] == 0 {
            self.account[session] = self.random.below(self.sizes[ACCOUNTS]) as i64;
        }
        let account = self.account[session];
        Some(match self.step[session] {
            0 => update(ACCOUNTS, account),
            1 => Op::Search { table: ACCOUNTS, index: 0, key: account, fetch: Fetch::Row },
            2 => update(TELLERS, self.random.below(self.sizes[TELLERS]) as i64),
            3 => update(BRANCHES, self.random.below(self.sizes[BRANCHES]) as i64),
            _ => {
                let id = self.next_history;
                self.next_history += self.stride;
                Op::InsertRow { table: HISTORY, id }
            }
        })
    }

    fn answered(&mut self, session: usize, answer: Answer) -> Result<(), BenchError> {
        let step = self.step[session];
        // Its own update is in what it reads.
        if answer.rows != 1 || step == 1 && answer.sum < 1 {
            return Err(BenchError::WrongData(format!("statement {} of a loop answered {answer:?}", step + 1)));
        }
        self.done[step as usize] += 1;
        self.step[session] = (step + 1) % STATEMENTS;
        Ok(())
    }
}

/// The second test.
fn accounts(suite: &mut Suite, kind: Kind) -> Result<(), BenchError> {
    let (log, rows) = (suite.log.clone(), suite.rows);
    let sizes = sizes(rows);
    let tables = [holders("accounts"), holders("tellers"), holders("branches"), history()];
    let mut needed = sizes;
    needed[HISTORY] = rows * 8;
    let running = suite.start(kind, &tables, &needed, &log)?;
    for table in [ACCOUNTS, TELLERS, BRANCHES] {
        suite.load(&running, table, sizes[table])?;
    }
    let mut held = sizes.map(|rows| Content { rows, sum: 0 });
    let mut next_history = 0;
    let sweep = if suite.args.sessions.is_empty() { ACCOUNT_SESSIONS.to_vec() } else { suite.args.sessions.clone() };
    for sessions in sweep {
        let plan = suite.plan(suite.threads().min(sessions), sessions);
        let stride = plan.threads as u64;
        let source = |thread: usize, sessions: usize| Accounts {
            sizes,
            step: vec![0; sessions],
            account: vec![0; sessions],
            random: Random((thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ next_history),
            next_history: next_history + thread as u64,
            stride,
            done: [0; STATEMENTS as usize],
        };
        let measured = suite.measure(&running, "accounts", &plan, source)?;
        for source in &measured.sources {
            let [accounts, _, tellers, branches, history] = source.done;
            held[ACCOUNTS].sum += accounts as i64;
            held[TELLERS].sum += tellers as i64;
            held[BRANCHES].sum += branches as i64;
            held[HISTORY].rows += history;
            held[HISTORY].sum += history as i64;
            next_history = next_history.max(source.next_history);
        }
        for (table, &content) in held.iter().enumerate() {
            suite.check(&running, table, content)?;
        }
        tell_accounts(suite, &running, &plan, &measured);
    }
    Ok(())
}

fn tell_accounts(suite: &mut Suite, running: &Running, plan: &Plan, measured: &Measured<Accounts>) {
    let mut figure = suite.figure_of(running, "accounts", "loops", plan, measured);
    figure.amount /= STATEMENTS as f64;
    figure.rate_per_s /= STATEMENTS as f64;
    figure.at = Some(plan.sessions as f64);
    figure.is_growing = true;
    let published = &PUBLISHED[usize::from(!is_disk_engine(running.kind))];
    let point = ACCOUNT_SESSIONS.iter().position(|&sessions| sessions == plan.sessions);
    (figure.published_per_s, figure.source) = (point.map(|at| published[at] * 1e3), "A5");
    figure.slices.clear();
    figure.log_bytes_per_op = figure.log_bytes_per_op.map(|bytes| bytes * STATEMENTS as f64);
    let bare = suite.rates(plan.threads);
    let bare = 1.0 / (3.0 / bare.update + 1.0 / bare.search_row + 1.0 / bare.insert);
    let limit = suite.limit_of_changes(running, plan, bare, COMMITS, figure.log_bytes_per_op);
    suite.tell(figure.limit(limit).note("latencies of statements"), None);
}

/// Memory with a log in multiples of the disk engine, beside what was published.
fn against_disk_engine(suite: &mut Suite) {
    let is_modelled = suite.log.is_modelled();
    for adapter in ["freshet-native", "freshet"] {
        for (case, flash, disk) in [
            ("insert", 29.22 / 5.69, 5.11 / 1.60),
            ("update", 34.60 / 16.17, 5.32 / 3.00),
            ("delete", 32.26 / 5.69, 5.31 / 1.50),
        ] {
            let then = if is_modelled { disk } else { flash };
            ratio(suite, adapter, case, None, then);
        }
        for (at, sessions) in ACCOUNT_SESSIONS.into_iter().enumerate() {
            ratio(suite, adapter, "accounts", Some(sessions), PUBLISHED[1][at] / PUBLISHED[0][at]);
        }
    }
}

fn ratio(suite: &mut Suite, adapter: &'static str, case: &str, sessions: Option<usize>, then: f64) {
    let find = |adapter: &str| {
        let told = suite.told(case, adapter).filter(|f| sessions.is_none_or(|sessions| f.sessions == sessions));
        told.last().cloned()
    };
    if let (Some(own), Some(disk)) = (find(adapter), find("sqlite")) {
        let ratio = own.rate_per_s / disk.rate_per_s;
        let figure = own.derived_ratio("to the disk engine", ratio);
        let figure = Figure { p50_us: None, p99_us: None, log_bytes_per_op: None, ..figure };
        suite.tell(figure.note(format!("{then:.1} x in 2013")), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_five_statements_and_the_fifth_writes_history() {
        let mut accounts = Accounts {
            sizes: sizes(1_000_000),
            step: vec![0; 2],
            account: vec![0; 2],
            random: Random(5),
            next_history: 1,
            stride: 2,
            done: [0; 5],
        };
        for _ in 0..7 {
            for session in 0..2 {
                assert!(accounts.next(session).is_some());
                accounts.answered(session, Answer { rows: 1, sum: 1 }).expect("as due");
            }
        }
        assert_eq!((accounts.done, accounts.next_history), ([4, 4, 2, 2, 2], 5));
        assert!(matches!(accounts.next(0), Some(Op::Update { table: TELLERS, .. })));
        assert!(accounts.answered(0, Answer::default()).is_err());
    }

    #[test]
    fn loops_of_inserts_use_each_key_once_and_end() {
        let new = |step| Loops { step, rows: 10, next: 10, end: 15, random: Random(3), ops: Vec::new(), done: 0 };
        let mut inserts = new(Step::Insert);
        let mut ids = Vec::new();
        while let Some(Op::Transaction(ops)) = inserts.next(0) {
            ids.extend(ops.iter().map(|op| if let Op::InsertRow { id, .. } = op { *id } else { 0 }));
        }
        assert_eq!(ids, [10, 11, 12, 13]);
        let mut updates = new(Step::Update);
        assert!(updates.next(0).is_some());
        assert!(updates.answered(0, Answer { rows: 1, sum: 0 }).is_err(), "two rows are due");
    }
}
