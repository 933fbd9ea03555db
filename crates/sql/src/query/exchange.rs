//! How do the parts of a plan run on all cores? Each worker has an event loop of its own, so a part is moved to a worker by hand.
//!
//! ```text
//! worker 0:  scan ─ filter ─ part of an aggregation ─┐         ┌─ the groups of one half of the hashes ─┐
//!                                                    ├─ hash ──┤                                        ├─ gathered
//! worker 1:  scan ─ filter ─ part of an aggregation ─┘         └─ the groups of the other half ─────────┘
//! ```
//!
//! DataFusion plans the parts and where rows change between them; its own operators for that spawn tasks on the loop of whoever asks first,
//! which would be one core. [`spread`] puts an [`Exchange`] in their place or below them.
//!
//! 1. A part begins when the first of its readers asks for rows: not while a join still reads its other side.
//! 2. A part waits while all its readers have rows to do. So no reader starves, and what waits is charged to the query.
//! 3. A channel that closes without [`Message::End`] is an error: a part that dies never looks like one that is done.
//! 4. When the last reader goes, the parts are aborted.

use super::fault::carried;
use super::run::spawn_on;
use crate::unwind::error_of;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::{BatchPartitioner, RepartitionExec};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// Batches that a reader has before it when it is not hungry.
const DEPTH: usize = 4;

/// The plan with its parts on workers, as one part.
pub fn spread(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let spread = plan.transform_up(|node| {
        if let Some(repartition) = node.downcast_ref::<RepartitionExec>()
            && let Partitioning::Hash(..) = repartition.partitioning()
            && !repartition.preserve_order()
        {
            let properties = repartition.properties().clone();
            return Ok(Transformed::yes(Exchange::of(repartition.input().clone(), Kind::Hash, properties)));
        }
        let gathers = node.downcast_ref::<CoalescePartitionsExec>().is_some()
            || node.downcast_ref::<SortPreservingMergeExec>().is_some()
            || node.downcast_ref::<RepartitionExec>().is_some();
        if !gathers {
            return Ok(Transformed::no(node));
        }
        let children: Vec<_> = node.children().into_iter().map(|child| on_workers(child.clone())).collect();
        replaced(node, children).map(Transformed::yes)
    })?;
    let plan = spread.data;
    Ok(match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => Arc::new(CoalescePartitionsExec::new(on_workers(plan))),
    })
}

#[expect(deprecated, reason = "the successor takes options that say the same")]
fn replaced(node: Arc<dyn ExecutionPlan>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    node.with_new_children(children)
}

/// Each partition on a worker of its own.
fn on_workers(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if input.output_partitioning().partition_count() == 1 {
        return input;
    }
    let properties = input.properties().clone();
    Exchange::of(input, Kind::Pass, properties)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A partition's rows stay together, in their order.
    Pass,
    /// By the hash of the output partitioning's expressions.
    Hash,
}

/// Partitions that run on workers, and are read elsewhere.
#[derive(Debug)]
pub struct Exchange {
    input: Arc<dyn ExecutionPlan>,
    kind: Kind,
    properties: Arc<PlanProperties>,
    /// Of the run: a plan runs once.
    run: Mutex<Option<Arc<Run>>>,
}

impl Exchange {
    fn of(input: Arc<dyn ExecutionPlan>, kind: Kind, properties: Arc<PlanProperties>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Exchange { input, kind, properties, run: Mutex::default() })
    }

    /// The run that all readers share.
    fn run(&self, context: &Arc<TaskContext>) -> Arc<Run> {
        let mut run = self.run.lock();
        let made = run.get_or_insert_with(|| Arc::new(Run::new(self, context)));
        made.clone()
    }
}

impl DisplayAs for Exchange {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Pass => write!(f, "Exchange: {} workers", self.input.output_partitioning().partition_count()),
            Kind::Hash => write!(f, "Exchange: {}", self.properties.partitioning),
        }
    }
}

impl ExecutionPlan for Exchange {
    fn name(&self) -> &str {
        "Exchange"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        if let (Kind::Hash, Partitioning::Hash(exprs, _)) = (self.kind, &self.properties.partitioning) {
            for expr in exprs {
                f(expr)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| self.input.clone());
        Ok(Exchange::of(input, self.kind, self.properties.clone()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reading = Reading { run: self.run(&context), partition, receiver: None, ended: 0 };
        let batches = futures::stream::try_unfold(reading, |mut reading| async move {
            Ok(reading.next().await?.map(|batch| (batch, reading)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

enum Message {
    Batch(RecordBatch),
    Failed(DataFusionError),
    /// One part has no more.
    End,
}

/// What one reader has before it.
struct Queue {
    waiting: AtomicUsize,
    sender: UnboundedSender<Message>,
}

/// What the parts write to.
struct Queues {
    queues: Vec<Queue>,
    taken: Notify,
    held: MemoryReservation,
}

impl Queues {
    fn send(&self, to: usize, batch: RecordBatch) -> Result<()> {
        self.held.try_grow(batch.get_array_memory_size())?;
        self.queues[to].waiting.fetch_add(1, Ordering::AcqRel);
        // Whoever reads it no more needs no rows.
        let _ = self.queues[to].sender.send(Message::Batch(batch));
        Ok(())
    }

    fn took(&self, by: usize, batch: &RecordBatch) {
        self.held.shrink(batch.get_array_memory_size());
        self.queues[by].waiting.fetch_sub(1, Ordering::AcqRel);
        self.taken.notify_waiters();
    }

    /// Waits until one of these readers is hungry.
    async fn wait_for_room(&self, readers: std::ops::Range<usize>) {
        loop {
            let mut taken = pin!(self.taken.notified());
            // Before the look, so that none taken after it is missed.
            taken.as_mut().enable();
            if self.queues[readers.clone()].iter().any(|q| q.waiting.load(Ordering::Acquire) < DEPTH) {
                return;
            }
            taken.await;
        }
    }
}

/// One run: its parts, and what each reader takes.
struct Run {
    input: Arc<dyn ExecutionPlan>,
    partitioning: Option<Partitioning>,
    context: Arc<TaskContext>,
    queues: Arc<Queues>,
    /// How many parts write to a reader.
    writers: usize,
    receivers: Mutex<Vec<Option<UnboundedReceiver<Message>>>>,
    parts: Mutex<Parts>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Run({} readers)", self.queues.queues.len())
    }
}

/// The tasks of a run; they end with it.
#[derive(Default)]
struct Parts {
    started: Vec<bool>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Run {
    fn new(exchange: &Exchange, context: &Arc<TaskContext>) -> Run {
        let inputs = exchange.input.output_partitioning().partition_count();
        let readers = exchange.properties.partitioning.partition_count();
        let (mut queues, mut receivers) = (Vec::with_capacity(readers), Vec::with_capacity(readers));
        for _ in 0..readers {
            let (sender, receiver) = unbounded_channel();
            queues.push(Queue { waiting: AtomicUsize::new(0), sender });
            receivers.push(Some(receiver));
        }
        let held = MemoryConsumer::new("exchange").register(context.memory_pool());
        let (partitioning, writers) = match exchange.kind {
            Kind::Pass => (None, 1),
            Kind::Hash => (Some(exchange.properties.partitioning.clone()), inputs),
        };
        Run {
            input: exchange.input.clone(),
            partitioning,
            context: context.clone(),
            queues: Arc::new(Queues { queues, taken: Notify::new(), held }),
            writers,
            receivers: Mutex::new(receivers),
            parts: Mutex::new(Parts { started: vec![false; inputs], tasks: Vec::new() }),
        }
    }

    /// Starts what this reader waits for, if nobody did.
    fn start(&self, reader: usize) -> Result<()> {
        let mut parts = self.parts.lock();
        let wanted = match self.partitioning {
            None => reader..reader + 1,
            Some(_) => 0..parts.started.len(),
        };
        for part in wanted {
            if std::mem::replace(&mut parts.started[part], true) {
                continue;
            }
            let partitioner = self.partitioning.clone().map(|to| {
                let inputs = parts.started.len();
                BatchPartitioner::try_new(to, Time::default(), part, inputs)
            });
            let work = Work {
                stream: self.input.execute(part, self.context.clone())?,
                partitioner: partitioner.transpose()?,
                part,
                queues: self.queues.clone(),
            };
            parts.tasks.push(spawn_on(part, work.run()).map_err(carried)?);
        }
        Ok(())
    }
}

/// A part at work.
struct Work {
    stream: SendableRecordBatchStream,
    partitioner: Option<BatchPartitioner>,
    part: usize,
    queues: Arc<Queues>,
}

impl Work {
    fn readers(&self) -> std::ops::Range<usize> {
        match self.partitioner {
            None => self.part..self.part + 1,
            Some(_) => 0..self.queues.queues.len(),
        }
    }

    async fn run(mut self) {
        let readers = self.readers();
        let ended = AssertUnwindSafe(self.pass_on()).catch_unwind().await;
        match ended.unwrap_or_else(|panic| Err(carried(error_of(panic.as_ref())))) {
            Ok(()) => {
                for queue in &self.queues.queues[readers] {
                    let _ = queue.sender.send(Message::End);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for queue in &self.queues.queues[readers] {
                    let _ = queue.sender.send(Message::Failed(DataFusionError::Shared(error.clone())));
                }
            }
        }
    }

    async fn pass_on(&mut self) -> Result<()> {
        let readers = self.readers();
        while let Some(batch) = self.stream.next().await {
            let batch = batch?;
            self.queues.wait_for_room(readers.clone()).await;
            match &mut self.partitioner {
                None => self.queues.send(self.part, batch)?,
                Some(partitioner) => partitioner.partition(batch, |to, batch| self.queues.send(to, batch))?,
            }
        }
        Ok(())
    }
}

/// A reader of a run.
struct Reading {
    run: Arc<Run>,
    partition: usize,
    receiver: Option<UnboundedReceiver<Message>>,
    /// Parts that have no more.
    ended: usize,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.receiver.is_none() {
            self.receiver = self.run.receivers.lock()[self.partition].take();
            self.run.start(self.partition)?;
        }
        let Some(receiver) = &mut self.receiver else {
            return Err(DataFusionError::Internal("a partition is read twice".to_owned()));
        };
        while self.ended < self.run.writers {
            match receiver.recv().await {
                Some(Message::Batch(batch)) => {
                    self.run.queues.took(self.partition, &batch);
                    return Ok(Some(batch));
                }
                Some(Message::Failed(error)) => return Err(error),
                Some(Message::End) => self.ended += 1,
                None => return Err(DataFusionError::Internal("a part of the query ended early".to_owned())),
            }
        }
        Ok(None)
    }
}
