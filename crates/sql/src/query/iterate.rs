//! How does a recursion run that DataFusion's own exec does not run? That tells rows apart by their bytes, and lets its term read them once.
//!
//! | what is asked | how the plan says so |
//! |---|---|
//! | UNION without ALL of values that are written in several ways | behind the columns stand the keys by which some are compared, called as [`key_of`] says |
//! | a term that reads the rows several times | readings are called as [`reading`] says, after the recursion |
//! | a subquery in the term that runs for each row | it has plans of its own, which are given the rows ([`Reading`]) |
//!
//! 1. A row is new if no row before it has equal values, by whatever they are compared. Of rows that are equal the first is given.
//! 2. Every reading of a step has all rows of the step before it.
//! 3. A plan that is kept runs with rows of its own each time ([`Recursion::fresh`]).

use super::apply::ApplyExec;
use super::replace::{NodeOrder, Replace};
use datafusion::arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// No name of a user's has it.
const MARK: char = '\0';

/// What the key is called by which a column is compared.
pub fn key_of(column: usize) -> String {
    format!("{MARK}key{column}")
}

/// What a reading of a recursion's rows is called that is not the only one.
pub fn reading(recursion: &str, number: usize) -> String {
    format!("{recursion}{MARK}{number}")
}

fn is_reading(name: &str, recursion: &str) -> bool {
    name.strip_prefix(recursion).is_some_and(|rest| rest.is_empty() || rest.starts_with(MARK))
}

/// The rule that replaces recursions that DataFusion's exec does not run.
pub const OWN_RECURSIONS: Replace = Replace {
    name: "own_recursions",
    order: NodeOrder::Up,
    with: |node| {
        let own = node.downcast_ref::<RecursiveQueryExec>().map(Recursion::of).transpose()?.flatten();
        Ok(own.map(|own| Arc::new(own) as Arc<dyn ExecutionPlan>))
    },
};

/// The rows of the last step.
type Work = Arc<Mutex<Vec<RecordBatch>>>;

/// A first term, and one that is run over the rows of the step before until there are none.
#[derive(Debug)]
pub struct Recursion {
    name: String,
    first: Arc<dyn ExecutionPlan>,
    term: Arc<dyn ExecutionPlan>,
    work: Work,
    /// The columns by which rows are told apart; `None`: all are given.
    told_apart_by: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
}

impl Recursion {
    fn of(query: &RecursiveQueryExec) -> Result<Option<Recursion>> {
        let schema = query.schema();
        let keys: Vec<String> = (0..schema.fields().len()).map(key_of).collect();
        let has_key = |column: usize| schema.index_of(&keys[column]).is_ok();
        let is_told_apart = query.is_distinct() && (0..keys.len()).any(has_key);
        if !is_told_apart && !reads_again(query.recursive_term(), query.name())? {
            return Ok(None);
        }
        let told_apart_by = query.is_distinct().then(|| (0..keys.len()).filter(|&at| !has_key(at)).collect());
        let work = Work::default();
        let reading = Reading { recursion: query.name().to_owned(), work: work.clone() };
        let term = reading.within(query.recursive_term().clone())?;
        Ok(Some(Recursion::new(query.name().to_owned(), [query.static_term().clone(), term], work, told_apart_by)))
    }

    fn new(
        name: String,
        [first, term]: [Arc<dyn ExecutionPlan>; 2],
        work: Work,
        told_apart_by: Option<Vec<usize>>,
    ) -> Recursion {
        let properties = properties(first.schema());
        Recursion { name, first, term, work, told_apart_by, properties }
    }

    /// The same for a run of its own.
    pub fn fresh(&self) -> Result<Recursion> {
        let work = Work::default();
        let reading = Reading { recursion: self.name.clone(), work: work.clone() };
        let term = self.term.clone().transform_up(|node| {
            let rows = node.downcast_ref::<WorkRows>().filter(|rows| Arc::ptr_eq(&rows.work, &self.work));
            let fresh: Arc<dyn ExecutionPlan> = match (rows, node.downcast_ref::<ApplyExec>()) {
                (Some(rows), _) => Arc::new(WorkRows { work: work.clone(), ..rows.clone() }),
                (_, Some(apply)) => Arc::new(apply.reading(&reading)),
                _ => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(fresh))
        })?;
        Ok(Recursion::new(self.name.clone(), [self.first.clone(), term.data], work, self.told_apart_by.clone()))
    }
}

fn properties(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// Whether the term reads the rows more than once, or where DataFusion does not look.
fn reads_again(term: &Arc<dyn ExecutionPlan>, recursion: &str) -> Result<bool> {
    let mut found = false;
    term.apply(|node| {
        let table = node.downcast_ref::<WorkTableExec>();
        found |= table.is_some_and(|table| table.name() != recursion && is_reading(table.name(), recursion));
        found |= node.downcast_ref::<ApplyExec>().is_some();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// A recursion's rows, for who reads them.
#[derive(Clone, Debug)]
pub struct Reading {
    pub recursion: String,
    work: Work,
}

impl Reading {
    /// The plan with every reading of the recursion's rows as one of these.
    pub fn within(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = plan.transform_up(|node| {
            let table = node.downcast_ref::<WorkTableExec>().filter(|table| is_reading(table.name(), &self.recursion));
            let read: Arc<dyn ExecutionPlan> = match (table, node.downcast_ref::<ApplyExec>()) {
                (Some(table), _) => {
                    let schema = WorkTableExec::schema(table);
                    let rows = WorkRows { work: self.work.clone(), properties: properties(schema) };
                    Arc::new(CooperativeExec::new(Arc::new(rows)))
                }
                (_, Some(apply)) => Arc::new(apply.reading(self)),
                _ => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(read))
        })?;
        Ok(replaced.data)
    }
}

/// The rows of the step before, of which there may be fewer columns.
#[derive(Clone, Debug)]
struct WorkRows {
    work: Work,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for WorkRows {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkTableExec")
    }
}

impl ExecutionPlan for WorkRows {
    fn name(&self) -> &str {
        "WorkTableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let batches: Vec<Result<RecordBatch>> =
            self.work.lock().iter().map(|batch| columns_of(batch, &schema)).collect();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches))))
    }
}

/// The columns that a reading asks for, by their names.
fn columns_of(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch> {
    let places = schema.fields().iter().map(|field| batch.schema().index_of(field.name()));
    Ok(batch.project(&places.collect::<std::result::Result<Vec<_>, _>>()?)?)
}

impl DisplayAs for Recursion {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecursiveQueryExec: name={}, is_distinct={}", self.name, self.told_apart_by.is_some())
    }
}

impl ExecutionPlan for Recursion {
    fn name(&self) -> &str {
        "RecursiveQueryExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.first, &self.term]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition, Distribution::SinglePartition]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let terms = <[_; 2]>::try_from(children).unwrap_or_else(|_| [self.first.clone(), self.term.clone()]);
        Ok(Arc::new(Recursion::new(self.name.clone(), terms, self.work.clone(), self.told_apart_by.clone())))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let register = |what: &str| MemoryConsumer::new(what).register(context.memory_pool());
        let seen =
            self.told_apart_by.as_ref().map(|columns| Seen::of(columns, &schema, register("rows of a recursion")));
        let steps = Steps {
            stream: self.first.execute(0, context.clone())?,
            term: self.term.clone(),
            work: self.work.clone(),
            rows: Vec::new(),
            held: register("a step of a recursion"),
            seen: seen.transpose()?,
            schema: schema.clone(),
            context,
        };
        let batches = futures::stream::try_unfold(steps, |mut steps| async move {
            Ok(steps.next().await?.map(|batch| (batch, steps)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

struct Steps {
    /// The step that runs.
    stream: SendableRecordBatchStream,
    term: Arc<dyn ExecutionPlan>,
    work: Work,
    /// What it has given.
    rows: Vec<RecordBatch>,
    /// Of the rows, and of those of the step before.
    held: MemoryReservation,
    seen: Option<Seen>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
}

impl Steps {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = match self.stream.next().await {
                Some(batch) => as_of(&self.schema, &batch?)?,
                None if self.rows.is_empty() => return Ok(None),
                None => {
                    *self.work.lock() = std::mem::take(&mut self.rows);
                    let size = self.work.lock().iter().map(RecordBatch::get_array_memory_size).sum();
                    self.held.try_resize(size)?;
                    self.stream = reset_plan_states(self.term.clone())?.execute(0, self.context.clone())?;
                    continue;
                }
            };
            let batch = match &mut self.seen {
                Some(seen) => seen.new_rows(&batch)?,
                None => batch,
            };
            if batch.num_rows() > 0 {
                self.held.try_grow(batch.get_array_memory_size())?;
                self.rows.push(batch.clone());
                return Ok(Some(batch));
            }
        }
    }
}

fn as_of(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?)
}

/// The rows that were given.
struct Seen {
    columns: Vec<usize>,
    converter: RowConverter,
    rows: HashSet<Box<[u8]>>,
    held: MemoryReservation,
}

/// What a set needs for a row besides its bytes, about.
const ROW_BYTES: usize = 32;

impl Seen {
    fn of(columns: &[usize], schema: &Schema, held: MemoryReservation) -> Result<Seen> {
        let fields = columns.iter().map(|&at| SortField::new(schema.field(at).data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        Ok(Seen { columns: columns.to_vec(), converter, rows: HashSet::new(), held })
    }

    fn new_rows(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns: Vec<_> = self.columns.iter().map(|&at| batch.column(at).clone()).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let mut bytes = 0;
        let mut is_new = |row: &[u8]| {
            let is_new = !self.rows.contains(row);
            if is_new {
                bytes += row.len() + ROW_BYTES;
                self.rows.insert(row.into());
            }
            Some(is_new)
        };
        let new: BooleanArray = rows.iter().map(|row| is_new(row.as_ref())).collect();
        self.held.try_grow(bytes)?;
        Ok(filter_record_batch(batch, &new)?)
    }
}
