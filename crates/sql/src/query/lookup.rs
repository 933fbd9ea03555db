//! When is a join better done row by row? When few rows meet a large table that has an index on what they are joined by: each row looks up its own.
//!
//! DataFusion plans a hash join of every equality. [`LOOK_UP`], a rule of physical planning, puts an [`IndexLookupJoin`] in its place where
//! the side that would be kept in memory is estimated to be much smaller than the table that would be read past it.
//!
//! | join | of the small side | of the table |
//! |---|---|---|
//! | inner | beside each row of the table that it meets | |
//! | left | the same, and once with nulls where there is none | |
//! | left semi, left anti | those that meet one, or none | |
//! | right semi | | those that are met, once |
//!
//! An index gives candidates: each is read at the statement's snapshot and compared with the key, then the scan's own conditions are asked.

use super::compute::readable;
use super::fault::carried;
use super::replace::{NodeOrder, Replace};
use super::scan::{Finder, SnapshotScan};
use super::text::text;
use crate::error::SqlError;
use crate::explain::{Actual, ENTRY_COST, Estimate, Node, Property, ROW_COST, Told, all_of};
use crate::value::Datum;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::{concat, filter, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinSide, JoinType, NullEquality, Result, ScalarValue, Statistics};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use freshet_engine::catalog::Index;
use freshet_engine::ids::RowId;
use freshet_engine::txn::Reader;
use futures::StreamExt;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many rows of a scan cost as much as one that is looked up.
const LOOKUP_COST: f64 = 16.0;
/// Smaller tables are read as fast.
const WORTH_SLOTS: u64 = 256;
/// Elements of a list, as PostgreSQL thinks of an array that it does not know.
const ELEMENTS: f64 = 10.0;
/// Rows of the small side that are looked up under one lease.
const ROWS_OF_LEASE: usize = 512;

/// The rule that puts lookups in the place of hash joins.
pub const LOOK_UP: Replace = Replace { name: "look_up", order: NodeOrder::Up, with: looked_up };

fn looked_up(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    match IndexLookupJoin::of(join) {
        Some(join) => Ok(Some(Arc::new(join))),
        None => looked_up_swapped(join),
    }
}

/// The same with its sides swapped, where DataFusion left a table before rows whose number nobody told it.
fn looked_up_swapped(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_known = |side| rows_told(side).is_some();
    if scan_below(join.left()).is_none() || is_known(join.right()) {
        return Ok(None);
    }
    let swapped = join.swap_inputs(*join.partition_mode())?;
    let replaced = swapped.transform_down(|node| {
        let found = node.downcast_ref::<HashJoinExec>().and_then(IndexLookupJoin::of);
        Ok(match found {
            Some(join) => Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>),
            None => Transformed::no(node),
        })
    })?;
    Ok(replaced.transformed.then_some(replaced.data))
}

fn rows_told(plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    let told = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    told.num_rows.get_value().map(|rows| *rows as f64)
}

/// Rows of a plan, estimated: at most those of what it reads, but for the elements of lists.
fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    let told = rows_told(plan);
    if told.is_some() {
        return told;
    }
    let children = plan.children();
    let [input] = children.as_slice() else { return None };
    let each = if plan.downcast_ref::<UnnestExec>().is_some() { ELEMENTS } else { 1.0 };
    Some(rows_of(input)? * each)
}

/// Rows, each joined with those of a table that its key finds.
#[derive(Debug)]
pub struct IndexLookupJoin {
    outer: Arc<dyn ExecutionPlan>,
    inner: Arc<SnapshotScan>,
    index: Arc<Index>,
    /// What is equal: a column of the table's, and an expression over the outer rows.
    pairs: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    /// By column of the index, from its first: which of the pairs.
    order: Vec<usize>,
    filter: Option<JoinFilter>,
    join_type: JoinType,
    /// Of the joined columns: those that are given.
    projection: Option<Vec<usize>>,
    /// Estimated.
    rows: usize,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    counts: Arc<Counts>,
}

/// What was looked up.
#[derive(Debug, Default)]
struct Counts {
    keys: AtomicU64,
    rows: AtomicU64,
}

pub fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&SnapshotScan> {
    match plan.downcast_ref::<CooperativeExec>() {
        Some(inner) => scan_below(inner.input()),
        None => plan.downcast_ref::<SnapshotScan>(),
    }
}

impl IndexLookupJoin {
    /// `None`: the join is none, or the table is better read as a whole.
    pub fn of(join: &HashJoinExec) -> Option<IndexLookupJoin> {
        let is_known = matches!(
            join.join_type(),
            JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::RightSemi
        );
        if !is_known || join.null_equality() != NullEquality::NullEqualsNothing || join.null_aware {
            return None;
        }
        let scan = scan_below(join.right())?;
        if !scan.reads_all() || scan.table().slots() < WORTH_SLOTS {
            return None;
        }
        let outer_rows = rows_of(join.left())?;
        let (left, right) = (join.left().schema(), join.right().schema());
        let mut pairs = Vec::with_capacity(join.on().len());
        for (outer, inner) in join.on() {
            let column = scan.table_column(inner.downcast_ref::<Column>()?.index())?;
            if outer.data_type(&left).ok()? != inner.data_type(&right).ok()? {
                return None;
            }
            pairs.push((column, outer.clone()));
        }
        let columns: Vec<usize> = pairs.iter().map(|(column, _)| *column).collect();
        let (index, order) = scan.index_for(&columns)?;
        let rows_per_key = scan.rows_per_key(&index, order.len());
        if outer_rows * LOOKUP_COST * rows_per_key.max(1.0) > scan.table().slots() as f64 {
            return None;
        }
        let rows = match join.join_type() {
            JoinType::LeftSemi | JoinType::LeftAnti => outer_rows,
            _ => outer_rows * rows_per_key,
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(join.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Some(IndexLookupJoin {
            outer: join.left().clone(),
            inner: Arc::new(scan.clone()),
            index,
            pairs,
            order,
            filter: join.filter().cloned(),
            join_type: *join.join_type(),
            projection: join.projection.as_ref().map(|p| p.to_vec()),
            rows: rows.ceil() as usize,
            schema: join.schema(),
            properties: Arc::new(properties),
            counts: Arc::default(),
        })
    }

    fn with(&self, outer: Arc<dyn ExecutionPlan>, inner: Arc<SnapshotScan>) -> IndexLookupJoin {
        IndexLookupJoin {
            outer,
            inner,
            index: self.index.clone(),
            pairs: self.pairs.clone(),
            order: self.order.clone(),
            filter: self.filter.clone(),
            join_type: self.join_type,
            projection: self.projection.clone(),
            rows: self.rows,
            schema: self.schema.clone(),
            properties: self.properties.clone(),
            counts: Arc::default(),
        }
    }

    /// The same at another snapshot, with values in the holes of the table's own filters. `None`: as of a scan.
    pub fn at(&self, reader: &Reader, values: &[ScalarValue]) -> Result<Option<IndexLookupJoin>> {
        let inner = self.inner.at(reader, values)?;
        Ok(inner.map(|inner| self.with(self.outer.clone(), Arc::new(inner))))
    }

    /// The same with a condition whose sides are computed where they are asked for; `None`: it is right as it is.
    pub fn lazy(&self) -> Result<Option<IndexLookupJoin>> {
        let filter = self.filter.as_ref().map(super::lazy::join_filter).transpose()?.flatten();
        let with =
            |filter| IndexLookupJoin { filter: Some(filter), ..self.with(self.outer.clone(), self.inner.clone()) };
        Ok(filter.map(with))
    }

    /// As EXPLAIN shows it, over the outer rows' node.
    pub fn node(&self, estimate: Estimate, outer: Node) -> Node {
        let which = match self.join_type {
            JoinType::Left => "Left",
            JoinType::LeftAnti => "Anti",
            JoinType::LeftSemi | JoinType::RightSemi => "Semi",
            _ => "Inner",
        };
        let rows = (self.rows as f64 / outer.estimate.rows.max(1.0)).max(1.0);
        let each =
            Estimate { startup: ENTRY_COST, total: ENTRY_COST + rows * (ENTRY_COST + ROW_COST), rows, width: 0.0 };
        let mut inner = self.inner.lookup_node(&self.index, each);
        let keys = self.order.iter().map(|&at| {
            let (column, expr) = &self.pairs[at];
            format!("({} = {})", self.inner.table().def.columns[*column].name, text(expr))
        });
        let keys = all_of(&keys.collect::<Vec<_>>());
        inner.properties.insert(0, Property { name: "Index Cond", value: Told::Text(keys), is_about: false });
        if outer.actual.is_some() {
            let loops = self.counts.keys.load(Ordering::Relaxed);
            let rows = self.counts.rows.load(Ordering::Relaxed) as f64 / loops.max(1) as f64;
            inner.actual = Some(Actual { rows, loops, startup_ms: 0.0, total_ms: 0.0 });
        }
        let node = Node::join("Nested Loop", which, estimate);
        let node = match &self.filter {
            Some(filter) => node.with("Join Filter", text(filter.expression())),
            None => node,
        };
        node.over(vec![outer, inner])
    }
}

impl DisplayAs for IndexLookupJoin {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (table, index) = (&self.inner.table().def.name, &self.index.def.name);
        write!(f, "IndexLookupJoin: {:?}, {table} by key of {index}", self.join_type)
    }
}

impl ExecutionPlan for IndexLookupJoin {
    fn name(&self) -> &str {
        "IndexLookupJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.outer]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for (_, expr) in &self.pairs {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let outer = children.pop().unwrap_or_else(|| self.outer.clone());
        Ok(Arc::new(self.with(outer, self.inner.clone())))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let unknown = Statistics::new_unknown(&self.schema);
        Ok(Arc::new(unknown.with_num_rows(Precision::Inexact(self.rows))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let outer = self.outer.execute(partition, context)?;
        let run = Run {
            outer,
            join: Arc::new(IndexLookupJoin {
                counts: self.counts.clone(),
                ..self.with(self.outer.clone(), self.inner.clone())
            }),
            met: HashSet::new(),
        };
        let batches =
            futures::stream::try_unfold(run, |mut run| async move { Ok(run.next().await?.map(|batch| (batch, run))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }
}

/// A join in progress.
struct Run {
    outer: SendableRecordBatchStream,
    join: Arc<IndexLookupJoin>,
    /// Rows of the table that were given, where each is given once.
    met: HashSet<RowId>,
}

/// Pairs of rows that meet: places of outer rows, and the table's rows with their ids.
struct Met {
    places: UInt32Array,
    ids: Vec<RowId>,
    columns: Vec<ArrayRef>,
}

impl Run {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(outer) = self.outer.next().await {
            let outer = outer?;
            let met = self.join.filtered(&outer, self.join.look_up(&outer)?)?;
            let joined = self.join.clone().given(&outer, met, &mut self.met)?;
            if joined.num_rows() > 0 {
                return Ok(Some(joined));
            }
        }
        Ok(None)
    }
}

impl IndexLookupJoin {
    fn look_up(&self, outer: &RecordBatch) -> Result<Met> {
        let mut arrays = Vec::with_capacity(self.pairs.len());
        for (_, expr) in &self.pairs {
            arrays.push(expr.evaluate(outer)?.into_array(outer.num_rows())?);
        }
        let cells = readable(&arrays)?;
        let mut output = self.inner.output();
        let (mut places, mut ids) = (Vec::new(), Vec::new());
        let mut finder = Finder::default();
        for start in (0..outer.num_rows()).step_by(ROWS_OF_LEASE) {
            let end = outer.num_rows().min(start + ROWS_OF_LEASE);
            let read = self.inner.reader()?.batch(|batch| -> Result<(), SqlError> {
                for row in start..end {
                    finder.equal.clear();
                    for ((column, _), cell) in self.pairs.iter().zip(&cells) {
                        finder.equal.push((*column, Datum::from(cell.get(row))));
                    }
                    if finder.equal.iter().any(|(_, value)| *value == Datum::Null) {
                        continue;
                    }
                    self.counts.keys.fetch_add(1, Ordering::Relaxed);
                    self.inner.find(batch, &self.index, &self.order, &mut finder, &mut |id, found| {
                        places.push(row as u32);
                        ids.push(id);
                        self.inner.push(&mut output, id, found)
                    })?;
                }
                Ok(())
            });
            let ended = |_| SqlError::new("57014", "canceling statement: its snapshot was given up");
            read.map_err(ended).and_then(|found| found).map_err(carried)?;
        }
        self.counts.rows.fetch_add(ids.len() as u64, Ordering::Relaxed);
        let columns = self.inner.finish(output)?.columns().to_vec();
        Ok(Met { places: places.into(), ids, columns })
    }

    /// The pairs for which the join's other conditions hold.
    fn filtered(&self, outer: &RecordBatch, met: Met) -> Result<Met> {
        let Some(condition) = &self.filter else { return Ok(met) };
        if met.ids.is_empty() {
            return Ok(met);
        }
        let mut columns = Vec::with_capacity(condition.column_indices().len());
        for of in condition.column_indices() {
            columns.push(match of.side {
                JoinSide::Left => take(outer.column(of.index), &met.places, None)?,
                _ => met.columns[of.index].clone(),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(met.ids.len()));
        let pairs = RecordBatch::try_new_with_options(condition.schema().clone(), columns, &options)?;
        let holds = condition.expression().evaluate(&pairs)?.into_array(met.ids.len())?;
        let Some(holds) = holds.as_any().downcast_ref::<BooleanArray>() else {
            return Err(DataFusionError::Internal("a join's condition is no truth".to_owned()));
        };
        met.only(holds)
    }

    /// What the join gives of a batch.
    fn given(&self, outer: &RecordBatch, met: Met, known: &mut HashSet<RowId>) -> Result<RecordBatch> {
        let mut is_met = vec![false; outer.num_rows()];
        met.places.values().iter().for_each(|&place| is_met[place as usize] = true);
        let rows_that = |wanted: bool| -> UInt32Array {
            let rows = is_met.iter().enumerate().filter(|(_, met)| **met == wanted);
            rows.map(|(row, _)| row as u32).collect::<Vec<u32>>().into()
        };
        let taken = |rows: &UInt32Array| -> Result<Vec<ArrayRef>> {
            outer.columns().iter().map(|column| Ok(take(column, rows, None)?)).collect()
        };
        let (columns, rows) = match self.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => {
                let rows = rows_that(self.join_type == JoinType::LeftSemi);
                (taken(&rows)?, rows.len())
            }
            JoinType::RightSemi => {
                let is_new: BooleanArray = met.ids.iter().map(|id| Some(known.insert(*id))).collect();
                let met = met.only(&is_new)?;
                (met.columns, met.ids.len())
            }
            JoinType::Left => {
                let alone = rows_that(false);
                let all = concat(&[&met.places, &alone])?;
                let all: UInt32Array = all.to_data().into();
                let mut columns = taken(&all)?;
                for column in &met.columns {
                    let nulls = new_null_array(column.data_type(), alone.len());
                    columns.push(concat(&[column.as_ref(), nulls.as_ref()])?);
                }
                (columns, all.len())
            }
            _ => {
                let mut columns = taken(&met.places)?;
                columns.extend(met.columns);
                (columns, met.ids.len())
            }
        };
        let columns = match &self.projection {
            Some(projection) => projection.iter().map(|&at| columns[at].clone()).collect(),
            None => columns,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl Met {
    fn only(self, wanted: &BooleanArray) -> Result<Met> {
        let kept = filter(&self.places, wanted)?;
        let is_kept = |at: usize| wanted.is_valid(at) && wanted.value(at);
        let ids = self.ids.iter().enumerate().filter(|(at, _)| is_kept(*at)).map(|(_, id)| *id).collect();
        let columns = self.columns.iter().map(|column| Ok(filter(column, wanted)?)).collect::<Result<_>>()?;
        Ok(Met { places: kept.to_data().into(), ids, columns })
    }
}
