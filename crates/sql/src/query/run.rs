//! Where and how does a plan run? On threads of its own, within a memory limit, until it is done or its statement is.
//!
//! 1. No session's thread runs a query: it gets [`Outcome`]'s `ready` to wait for and takes the batches when they are there.
//! 2. A query that nobody waits for any more is aborted; its reads ended before, with the lease of its session's statement.
//! 3. A query of large tables runs on all of them at once (`exchange`), one of small tables on one.
//! 4. A query whose snapshot was ended (72000) is over within [`SNAPSHOT_LOOK`], whether it still reads or not.
//! 5. Its threads give way to others: a long query takes what short statements leave.
//! 6. A panic on these threads ends its query (see `unwind`).
//! 7. Nothing spills: what exceeds the query's limit, or what the database's memory limit leaves, is 53200.
//! 8. A query whose result is given in parts computes nothing while one lies untaken: besides what its operators hold there are two parts at most, the
//!    one that is computed and the one that was taken.

use super::apply::plans_within;
use super::asked::AskedGroups;
use super::constants::HIDE_CONSTANTS;
use super::estimate::snapshot_of;
use super::exchange::spread;
use super::fault::sql_error;
use super::first::FIRST_ROWS;
use super::fold::Fold;
use super::gather::Gather;
use super::interrupt::{Stopped, interruptible};
use super::iterate::OWN_RECURSIONS;
use super::lazy::LAZY_SIDES;
use super::lookup::LOOK_UP;
use super::order;
use super::rules::mended;
use super::sorted::{KeepActs, KeepSorts};
use super::template::Filled;
use crate::error::SqlError;
use crate::unwind::{error_of, reading};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, TrackConsumersPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use freshet_engine::engine::{Account, Claim};
use freshet_engine::io::urgency::{Long, Served, start_thread};
use freshet_engine::txn::Reader;
use futures::future::{Either, select};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::future::Future;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Between two looks whether a query's snapshot is still there.
const SNAPSHOT_LOOK: Duration = Duration::from_millis(100);

/// A thread that runs queries, taking turns between those it was given.
struct Worker {
    runtime: Handle,
    running: AtomicUsize,
}

impl Worker {
    fn start(number: usize) -> std::io::Result<Worker> {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("freshet-query-{number}"))
            // Plans are deep trees.
            .stack_size(8 << 20);
        start_thread(thread, Served::AfterOthers, move || {
            crate::unwind::reading_thread();
            let runtime = Builder::new_current_thread().enable_time().build();
            let made = runtime.as_ref().map(|r| r.handle().clone()).map_err(|e| std::io::Error::from(e.kind()));
            if tell.send(made).is_ok()
                && let Ok(runtime) = runtime
            {
                runtime.block_on(std::future::pending::<()>());
            }
        })?;
        let runtime = told.recv().map_err(std::io::Error::other)??;
        Ok(Worker { runtime, running: AtomicUsize::new(0) })
    }
}

/// The threads that queries run on, of all databases of the process: one per core, or as many as the system gives when the first query comes.
/// Where it gives none, the next query asks again.
fn workers() -> Result<&'static [Worker], SqlError> {
    static WORKERS: OnceLock<Vec<Worker>> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(workers) = WORKERS.get() {
        return Ok(workers);
    }
    let _starting = STARTING.lock();
    if let Some(workers) = WORKERS.get() {
        return Ok(workers);
    }
    let mut workers = Vec::new();
    for number in 0..cores() {
        match Worker::start(number) {
            Ok(worker) => workers.push(worker),
            Err(error) if workers.is_empty() => {
                return Err(SqlError::new("53000", format!("no threads for queries: {error}")));
            }
            Err(_) => break,
        }
    }
    Ok(WORKERS.get_or_init(|| workers))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The worker with the fewest queries.
fn worker() -> Result<&'static Worker, SqlError> {
    let least = workers()?.iter().min_by_key(|w| w.running.load(Ordering::Relaxed));
    Ok(least.expect("invariant: there is a core"))
}

/// Runs a part of a query on the part's worker.
pub fn spawn_on(part: usize, work: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle, SqlError> {
    let workers = workers()?;
    Ok(workers[part % workers.len()].runtime.spawn(work).abort_handle())
}

/// On how many workers a query runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    One,
    All,
}

/// Slots of all tables that a query reads, from which on it is worth more than one worker: a tenth of a second's work.
const PARALLEL_SLOTS: u64 = 100_000;

impl Parts {
    /// For a query that may run on all: as much as it reads is worth.
    pub fn of(plan: &LogicalPlan) -> Parts {
        let mut slots = 0;
        let mut is_whole = gives_rows_beside(plan);
        let counted = plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => {
                    slots += snapshot_of(scan).map_or(0, |snapshot| snapshot.table().slots());
                }
                LogicalPlan::Aggregate(aggregate) => {
                    is_whole |= aggregate.aggr_expr.iter().any(takes_rows_in_turn);
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if counted.is_ok() && !is_whole && slots >= PARALLEL_SLOTS && cores() > 1 { Parts::All } else { Parts::One }
    }
}

/// Whether rows of its own stand beside those of tables in a UNION ALL that nobody orders, as an export's header and trailer do: they are expected
/// where they were written, which parts that run at once do not keep to.
fn gives_rows_beside(plan: &LogicalPlan) -> bool {
    let reads_nothing =
        |plan: &LogicalPlan| !plan.exists(|node| Ok(matches!(node, LogicalPlan::TableScan(_)))).unwrap_or(true);
    match plan {
        LogicalPlan::Projection(projection) => gives_rows_beside(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => gives_rows_beside(&alias.input),
        LogicalPlan::Union(union) => union.inputs.iter().any(|input| reads_nothing(input) || gives_rows_beside(input)),
        _ => false,
    }
}

/// Whether an aggregate cannot be put together of parts: a sum without duplicates, or one that keeps its rows in the order in which they come.
fn takes_rows_in_turn(aggregate: &Expr) -> bool {
    match aggregate {
        Expr::Alias(alias) => takes_rows_in_turn(&alias.expr),
        Expr::AggregateFunction(call) => {
            let function = call.func.inner();
            function.downcast_ref::<Gather>().is_some()
                || (call.params.distinct && function.downcast_ref::<Fold>().is_some())
        }
        _ => false,
    }
}

/// Rules, functions and settings of planning for one worker, made once.
pub fn planning() -> &'static SessionState {
    static STATE: OnceLock<SessionState> = OnceLock::new();
    STATE.get_or_init(|| state(1))
}

fn planning_for(parts: Parts) -> &'static SessionState {
    static STATE: OnceLock<SessionState> = OnceLock::new();
    match parts {
        Parts::One => planning(),
        Parts::All => STATE.get_or_init(|| state(cores())),
    }
}

fn state(parts: usize) -> SessionState {
    let mut config =
        SessionConfig::new().with_target_partitions(parts).with_batch_size(8192).with_information_schema(false);
    let options = config.options_mut();
    options.execution.collect_statistics = false;
    options.optimizer.repartition_joins = parts > 1;
    options.optimizer.repartition_aggregations = parts > 1;
    options.optimizer.repartition_windows = false;
    options.optimizer.repartition_sorts = parts > 1;
    options.optimizer.enable_round_robin_repartition = false;
    // Scans do not take them, and joins are built anew by `interrupt`.
    options.optimizer.enable_dynamic_filter_pushdown = false;
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    // Filters moved once more: scans do not take them, and it finds a column by its name, which may be another table's.
    let wanted = |rule: &&Arc<dyn PhysicalOptimizerRule + Send + Sync>| !rule.name().starts_with("FilterPushdown");
    let mut rules: Vec<_> = state.physical_optimizers().iter().filter(wanted).cloned().collect();
    rules.insert(0, Arc::new(HIDE_CONSTANTS));
    // Sides are chosen before, and how rows are spread after.
    let sides = rules.iter().position(|rule| rule.name() == "join_selection").map_or(rules.len(), |at| at + 1);
    rules.insert(sides, Arc::new(LOOK_UP));
    // Before joins of rows are looked at, as those of groups are made of them.
    rules.insert(sides, Arc::new(AskedGroups));
    if let Some(settled) = rules.iter().position(|rule| rule.name() == "EnsureRequirements") {
        rules.insert(settled, Arc::new(KeepSorts));
    }
    for rule in rules.iter_mut().filter(|rule| rule.name() == "ProjectionPushdown") {
        *rule = Arc::new(KeepActs(Arc::clone(rule)));
    }
    rules.push(Arc::new(FIRST_ROWS));
    rules.push(Arc::new(LAZY_SIDES));
    rules.push(Arc::new(OWN_RECURSIONS));
    let logical = mended(state.optimizers());
    SessionStateBuilder::new_from_existing(state)
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(rules)
        .build()
}

/// The best plan that is found.
async fn physical_plan(plan: &LogicalPlan, parts: Parts) -> Result<Arc<dyn ExecutionPlan>> {
    let best = optimized(plan, parts)?;
    let state = planning_for(parts);
    state.query_planner().create_physical_plan(&best, state).await
}

/// The best logical plan that is found.
pub fn optimized(plan: &LogicalPlan, parts: Parts) -> Result<LogicalPlan> {
    let state = planning_for(parts);
    let best = state.optimize(plan)?;
    let Some(ordered) = order::ordered(&best)? else { return Ok(best) };
    // What a join passes on depends on what comes after it.
    let wanted = |rule: &&Arc<dyn OptimizerRule + Send + Sync>| {
        ["push_down_filter", "optimize_projections"].contains(&rule.name())
    };
    let rules = state.optimizers().iter().filter(wanted).cloned().collect();
    Optimizer::with_rules(rules).optimize(ordered, state, |_, _| {})
}

/// An optimized plan made physical.
pub fn planned_from(optimized: &LogicalPlan, parts: Parts) -> Result<Arc<dyn ExecutionPlan>> {
    let state = planning_for(parts);
    at_once(state.query_planner().create_physical_plan(optimized, state))
}

/// Planning waits for nothing but itself, so that it needs no executor, which the caller may be in already. Of many branches it plans a share
/// at a time, and wakes itself for the next.
fn at_once<T>(planning: impl Future<Output = Result<T>>) -> Result<T> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    // Its locks would count as the caller's work, and once that is too much wait for the caller to yield, who waits for them.
    let mut planning = pin!(tokio::task::unconstrained(planning));
    loop {
        if let Poll::Ready(planned) = planning.as_mut().poll(&mut Context::from_waker(&waker)) {
            return planned;
        }
        if !woken.0.swap(false, Ordering::Relaxed) {
            return Err(DataFusionError::Internal("planning waits".to_owned()));
        }
    }
}

/// Whether what waits can go on.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A query's memory: within its own limit, and drawn on the database's.
#[derive(Debug)]
struct Pool {
    limit_bytes: usize,
    account: Account,
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({} of {} bytes)", self.name(), self.account.bytes(), self.limit_bytes)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "freshet"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.account.take(additional as u64, Claim::Forced);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.account.give(shrink as u64);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        let within = self.reserved().saturating_add(additional) <= self.limit_bytes;
        if within && self.account.take(additional as u64, Claim::Read) {
            return Ok(());
        }
        let of = if within { "the database's memory limit" } else { "freshet.query_memory_mb" };
        Err(DataFusionError::ResourcesExhausted(format!("{of} leaves no room for {additional} bytes more")))
    }

    fn reserved(&self) -> usize {
        self.account.bytes() as usize
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes)
    }
}

fn task(memory_mb: usize, account: Account) -> Result<Arc<TaskContext>> {
    let consumers = NonZeroUsize::new(3).expect("three is not zero");
    let pool = Pool { limit_bytes: memory_mb.saturating_mul(1 << 20), account };
    let pool = TrackConsumersPool::new(pool, consumers);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()?;
    let context = SessionContext::new_with_state(planning().clone()).task_ctx();
    let config = context.session_config().clone();
    Ok(Arc::new(TaskContext::default().with_session_config(config).with_runtime(runtime)))
}

/// A result or a part of one, and what it is charged until it is used.
pub struct Collected {
    pub batches: Vec<RecordBatch>,
    pub is_last: bool,
    _held: MemoryReservation,
}

/// How a result is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Giving {
    Whole,
    /// A part as soon as there is one.
    Parts,
}

/// A part is given once it takes so much, each after the first twice as much, as each waits in the queue of long statements for its turn; an eighth of
/// the query's limit at most.
const PART_BYTES: usize = 1 << 20;
const PART_BYTES_MAX: usize = 4 << 20;

/// What is run.
pub enum Work {
    Plan(Box<LogicalPlan>, Parts),
    /// Planned before, or now for those that follow too.
    Template(Filled),
    /// Ready, and watched.
    Ready(Arc<dyn ExecutionPlan>),
}

async fn collect(
    work: Work,
    memory_mb: usize,
    account: Account,
    stopped: Stopped,
    parts: Option<&Shared>,
) -> Result<Collected> {
    let physical = match work {
        Work::Plan(plan, parts) => on_parts(interruptible(physical_plan(&plan, parts).await?, &stopped)?, parts)?,
        Work::Template(filled) => on_parts(interruptible(filled.physical()?, &stopped)?, filled.workers)?,
        Work::Ready(physical) => physical,
    };
    let task = task(memory_mb, account)?;
    let mut result = MemoryConsumer::new("result").register(task.memory_pool());
    let part_bytes_max = PART_BYTES_MAX.min(memory_mb.saturating_mul(1 << 20) / 8);
    let mut part_bytes = PART_BYTES.min(part_bytes_max);
    let mut stream = execute_stream(physical, task)?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        result.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
        if let Some(shared) = parts.filter(|_| result.size() >= part_bytes) {
            let batches = std::mem::take(&mut batches);
            shared.give(Collected { batches, is_last: false, _held: result.take() }).await;
            part_bytes = (2 * part_bytes).min(part_bytes_max);
        }
    }
    Ok(Collected { batches, is_last: true, _held: result })
}

/// Between a query and who takes its result.
#[derive(Default)]
struct Shared {
    given: Mutex<Option<Result<Collected, SqlError>>>,
    /// Something has been given, and taken.
    is_given: Notify,
    is_taken: Notify,
}

impl Shared {
    /// The last that is given: an error takes the place of a part that nobody has taken.
    fn finish(&self, result: Result<Collected, SqlError>) {
        *self.given.lock() = Some(result);
        self.is_given.notify_one();
    }

    /// Gives a part, and waits until it has been taken.
    async fn give(&self, part: Collected) {
        self.finish(Ok(part));
        let _waits = Long::waits();
        while self.given.lock().is_some() {
            self.is_taken.notified().await;
        }
    }
}

/// Ends the wait whatever becomes of the task.
struct Ending {
    shared: Arc<Shared>,
    worker: &'static Worker,
    _long: Long,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.worker.running.fetch_sub(1, Ordering::Relaxed);
        if self.shared.given.lock().is_none() {
            self.shared.finish(Err(SqlError::new("XX000", "the query's task ended early")));
        }
    }
}

/// Ready once nothing more can be read. A query that has read its tables computes on without asking them, perhaps for hours; what it would give
/// then is refused all the same.
async fn snapshot_lost(reader: &Reader) {
    while !reader.is_ended() {
        tokio::time::sleep(SNAPSHOT_LOOK).await;
    }
}

/// A query in progress.
pub struct Query {
    shared: Arc<Shared>,
    abort: AbortHandle,
    stopped: Stopped,
}

impl Query {
    /// `reader` is of the statement's snapshot.
    pub fn start(
        work: Work,
        memory_mb: usize,
        account: Account,
        reader: Reader,
        giving: Giving,
    ) -> Result<Query, SqlError> {
        let shared = Arc::new(Shared::default());
        let worker = worker()?;
        worker.running.fetch_add(1, Ordering::Relaxed);
        let ending = Ending { shared: shared.clone(), worker, _long: Long::begins() };
        let stopped = Stopped::default();
        let told = stopped.clone();
        let task = worker.runtime.spawn(async move {
            let parts = (giving == Giving::Parts).then_some(&*ending.shared);
            let collecting = std::pin::pin!(collect(work, memory_mb, account, told, parts));
            let lost = std::pin::pin!(snapshot_lost(&reader));
            let ended = AssertUnwindSafe(select(collecting, lost)).catch_unwind().await;
            let result = match ended {
                Ok(Either::Left((collected, _))) => collected.map_err(sql_error),
                Ok(Either::Right(((), _))) => Err(SqlError::new("57014", "the snapshot was ended")),
                Err(panic) => Err(error_of(panic.as_ref())),
            };
            ending.shared.finish(result);
        });
        Ok(Query { shared, abort: task.abort_handle(), stopped })
    }

    /// The result or its next part, once it is there.
    pub fn take(&self) -> Option<Result<Collected, SqlError>> {
        let taken = self.shared.given.lock().take();
        self.shared.is_taken.notify_one();
        taken
    }

    /// Ready once the result or its next part is there.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            while shared.given.lock().is_none() {
                shared.is_given.notified().await;
            }
        }
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.abort.abort();
    }
}

/// Whether DataFusion finds a way to run the plan, and the plans that it has for rows of their own.
pub fn can_run(plan: &LogicalPlan) -> bool {
    at_once(planning().create_physical_plan(plan)).is_ok() && plans_within(plan).iter().all(can_run)
}

fn on_parts(plan: Arc<dyn ExecutionPlan>, parts: Parts) -> Result<Arc<dyn ExecutionPlan>> {
    if parts == Parts::All { spread(plan) } else { Ok(plan) }
}

/// A plan as it would run.
pub fn planned(plan: &LogicalPlan, parts: Parts) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
    reading(|| at_once(physical_plan(plan, parts)).and_then(|plan| on_parts(plan, parts)).map_err(sql_error))
}
