//! Which groups does somebody ask for? A correlated subquery that aggregates becomes a join with the groups of its whole table; where few rows
//! ask, only their groups are made.
//!
//! ```text
//! HashJoin                        HashJoin
//!   outer rows                      KeptRows: outer rows
//!   groups by the join's key  =>    groups by the join's key
//!     table                           IndexLookupJoin, right semi
//!                                       distinct keys of the same KeptRows
//!                                       table
//! ```
//!
//! 1. Rows of a group that no outer row asks for are left out, and of the others none: each group that is asked for is what it was.
//! 2. Outer rows are found once and kept, so that the keys are those of the rows that are joined, however these are found.
//! 3. It is done where [`IndexLookupJoin`] finds it cheaper than to read the table.
//! 4. A plan with a term of WITH RECURSIVE is left alone: the term runs once for each step, and kept rows would stay those of the first.

use super::constants::shown;
use super::lookup::{IndexLookupJoin, scan_below};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinType, NullEquality, Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, replace_children_if_necessary};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The rule that has only groups made that somebody asks for.
#[derive(Debug)]
pub struct AskedGroups;

impl PhysicalOptimizerRule for AskedGroups {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if plan.exists(|node| Ok(node.downcast_ref::<RecursiveQueryExec>().is_some()))? {
            return Ok(plan);
        }
        let replaced = plan.transform_up(|node| {
            let asked = node.downcast_ref::<HashJoinExec>().map(narrowed).transpose()?.flatten();
            Ok(asked.map_or_else(|| Transformed::no(node), Transformed::yes))
        })?;
        Ok(replaced.data)
    }

    fn name(&self) -> &str {
        "asked_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join with fewer groups; `None`: none of its sides are groups, or they are better made all.
fn narrowed(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
    if join.null_equality() != NullEquality::NullEqualsNothing || join.null_aware {
        return Ok(None);
    }
    let ty = join.join_type();
    // What the join gives of the groups must not depend on those that meet nothing.
    if matches!(ty, Inner | Left | LeftSemi | LeftAnti | LeftMark) && are_groups(join.right()) {
        return over_asked(join);
    }
    if matches!(ty, Inner | Right | RightSemi | RightAnti | RightMark) && are_groups(join.left()) {
        let swapped = join.swap_inputs(*join.partition_mode())?;
        let replaced = swapped.transform_down(|node| {
            let asked = node.downcast_ref::<HashJoinExec>().map(over_asked).transpose()?.flatten();
            Ok(match asked {
                Some(join) => Transformed::new(join, true, TreeNodeRecursion::Stop),
                None => Transformed::no(node),
            })
        })?;
        return Ok(replaced.transformed.then_some(replaced.data));
    }
    Ok(None)
}

fn are_groups(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.downcast_ref::<AggregateExec>().is_some() {
        return true;
    }
    let is_of_rows = plan.downcast_ref::<ProjectionExec>().is_some()
        || plan.downcast_ref::<FilterExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some();
    is_of_rows && plan.children().into_iter().all(are_groups)
}

/// A column of the groups, and what the outer rows ask for there.
#[derive(Clone)]
struct Key {
    at: usize,
    asked: Arc<dyn PhysicalExpr>,
}

/// The join, whose right side are groups, with those that its left side asks for.
fn over_asked(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (left, right) = (join.left().schema(), join.right().schema());
    let mut keys = Vec::with_capacity(join.on().len());
    for (outer, inner) in join.on() {
        let Some(column) = inner.downcast_ref::<Column>() else { continue };
        if outer.data_type(&left)? == inner.data_type(&right)? {
            keys.push(Key { at: column.index(), asked: outer.clone() });
        }
    }
    let (outer, source, keys) = match kept_below(join.left(), &keys) {
        Some((kept, keys)) => (join.left().clone(), kept, keys),
        // Two plans of a plan with two of a plan: that does not end well.
        None if holds_kept_rows(join.left()) => return Ok(None),
        None => {
            let kept = Arc::new(KeptRows::new(join.left().clone()));
            (kept.clone() as Arc<dyn ExecutionPlan>, kept, keys)
        }
    };
    let Some(groups) = asked(join.right(), keys, &source, false)? else { return Ok(None) };
    let joined = join.builder().with_partition_mode(PartitionMode::CollectLeft).build_exec()?;
    replace_children_if_necessary(joined, vec![outer, groups]).map(Some)
}

/// The kept rows that outer rows come from, each of them or none, if these have the keys.
fn kept_below(outer: &Arc<dyn ExecutionPlan>, keys: &[Key]) -> Option<(Arc<KeptRows>, Vec<Key>)> {
    if let Some(kept) = outer.downcast_ref::<KeptRows>() {
        let kept = KeptRows::of(kept.input.clone(), kept.rows.clone(), kept.for_keys);
        return Some((Arc::new(kept), keys.to_vec()));
    }
    let asked_at =
        |key: &Key| key.asked.downcast_ref::<Column>().map(|column| Key { at: column.index(), ..key.clone() });
    let (side, below) = keys_below(outer, keys.iter().map(asked_at).collect::<Option<_>>()?)?;
    let input = *outer.children().get(side)?;
    if below.len() != keys.len() || outer.downcast_ref::<AggregateExec>().is_some() {
        return None;
    }
    let schema = input.schema();
    let asked = below.iter().zip(keys).map(|(below, key)| {
        let column = Column::new(schema.fields().get(below.at)?.name(), below.at);
        Some(Key { at: key.at, asked: Arc::new(column) })
    });
    kept_below(input, &asked.collect::<Option<Vec<_>>>()?)
}

fn holds_kept_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<KeptRows>().is_some() || plan.children().into_iter().any(holds_kept_rows)
}

/// A plan that gives no rows but those with the keys that outer rows ask for, down to the table; `is_below`: of an aggregate.
fn asked(
    plan: &Arc<dyn ExecutionPlan>,
    keys: Vec<Key>,
    outer: &KeptRows,
    is_below: bool,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if keys.is_empty() {
        return Ok(None);
    }
    if scan_below(plan).is_some() {
        return if is_below { looked_up(plan, &keys, outer) } else { Ok(None) };
    }
    let Some((side, keys)) = keys_below(plan, keys) else { return Ok(None) };
    let is_below = is_below || plan.downcast_ref::<AggregateExec>().is_some();
    let mut children: Vec<Arc<dyn ExecutionPlan>> = plan.children().into_iter().cloned().collect();
    let Some(child) = asked(&children[side], keys, outer, is_below)? else { return Ok(None) };
    children[side] = child;
    replace_children_if_necessary(plan.clone(), children).map(Some)
}

/// Which child of a plan the keys come from, as columns of that; `None`: what the plan gives for a key depends on rows with others.
fn keys_below(plan: &Arc<dyn ExecutionPlan>, keys: Vec<Key>) -> Option<(usize, Vec<Key>)> {
    let moved = |to: &dyn Fn(usize) -> Option<usize>| -> Vec<Key> {
        let key = |key: &Key| to(key.at).map(|at| Key { at, ..key.clone() });
        keys.iter().filter_map(key).collect()
    };
    let column = |expr: &Arc<dyn PhysicalExpr>| shown(expr).downcast_ref::<Column>().map(Column::index);
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some((0, moved(&|at| column(&projection.expr().get(at)?.expr))));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return Some((0, moved(&|at| filter.projection().as_ref().map_or(Some(at), |given| given.get(at).copied()))));
    }
    if plan.downcast_ref::<CooperativeExec>().is_some() {
        return Some((0, keys));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let by = aggregate.group_expr();
        let is_plain = by.is_single() && aggregate.limit_options().is_none();
        return is_plain.then(|| (0, moved(&|at| column(&by.expr().get(at)?.0))));
    }
    let join = plan.downcast_ref::<HashJoinExec>()?;
    keys_of_side(join, &keys)
}

/// The keys of one side of a join, whose rows the join gives, each by itself.
fn keys_of_side(join: &HashJoinExec, keys: &[Key]) -> Option<(usize, Vec<Key>)> {
    if !matches!(join.join_type(), JoinType::Inner | JoinType::Left | JoinType::Right) {
        return None;
    }
    let width = join.left().schema().fields().len();
    let mut sides = [Vec::new(), Vec::new()];
    for key in keys {
        let at = join.projection.as_ref().map_or(Some(key.at), |given| given.get(key.at).copied())?;
        let (side, at) = if at < width { (0, at) } else { (1, at - width) };
        sides[side].push(Key { at, ..key.clone() });
    }
    let [left, right] = sides;
    let of_left = !left.is_empty() && *join.join_type() != JoinType::Right;
    let of_right = !right.is_empty() && *join.join_type() != JoinType::Left;
    match (of_left, of_right) {
        (true, _) => Some((0, left)),
        (false, true) => Some((1, right)),
        (false, false) => None,
    }
}

/// The rows of a table with these keys, each once.
fn looked_up(table: &Arc<dyn ExecutionPlan>, keys: &[Key], outer: &KeptRows) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let distinct = outer.distinct(keys)?;
    let (left, right) = (distinct.schema(), table.schema());
    let on = keys.iter().enumerate().map(|(i, key)| {
        let of_keys: Arc<dyn PhysicalExpr> = Arc::new(Column::new(left.field(i).name(), i));
        let of_table: Arc<dyn PhysicalExpr> = Arc::new(Column::new(right.field(key.at).name(), key.at));
        (of_keys, of_table)
    });
    let join = HashJoinExec::try_new(
        distinct,
        table.clone(),
        on.collect(),
        None,
        &JoinType::RightSemi,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(IndexLookupJoin::of(&join).map(|join| Arc::new(join) as Arc<dyn ExecutionPlan>))
}

/// Rows that are found once and read twice: as they are, and for their keys.
#[derive(Debug)]
pub struct KeptRows {
    input: Arc<dyn ExecutionPlan>,
    /// Of the run: a plan runs once.
    rows: Arc<OnceCell<Rows>>,
    /// The second reader.
    pub for_keys: bool,
    properties: Arc<PlanProperties>,
}

#[derive(Debug)]
struct Rows {
    batches: Vec<RecordBatch>,
    _held: MemoryReservation,
}

/// The cells of a plan that is to run, by those of the plan that it is made from.
#[derive(Default)]
pub struct FreshCells(HashMap<usize, Arc<OnceCell<Rows>>>);

impl KeptRows {
    fn new(input: Arc<dyn ExecutionPlan>) -> KeptRows {
        KeptRows::of(input, Arc::default(), false)
    }

    fn of(input: Arc<dyn ExecutionPlan>, rows: Arc<OnceCell<Rows>>, for_keys: bool) -> KeptRows {
        let properties = PlanProperties::new(
            input.properties().eq_properties.clone(),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        KeptRows { input, rows, for_keys, properties: Arc::new(properties) }
    }

    /// The same for a run of its own, in which both readers share their rows.
    pub fn fresh(&self, cells: &mut FreshCells) -> KeptRows {
        let rows = cells.0.entry(Arc::as_ptr(&self.rows).addr()).or_default();
        KeptRows::of(self.input.clone(), rows.clone(), self.for_keys)
    }

    /// The keys that are asked for, each once.
    fn distinct(&self, keys: &[Key]) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: Arc<dyn ExecutionPlan> = Arc::new(KeptRows::of(self.input.clone(), self.rows.clone(), true));
        let by = keys.iter().enumerate().map(|(i, key)| (key.asked.clone(), format!("k{i}")));
        let by = PhysicalGroupBy::new_single(by.collect());
        let schema = rows.schema();
        let distinct = AggregateExec::try_new(AggregateMode::Single, by, Vec::new(), Vec::new(), rows, schema)?;
        Ok(Arc::new(distinct))
    }
}

async fn found(input: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Rows> {
    let held = MemoryConsumer::new("kept rows").register(context.memory_pool());
    let mut stream = input.execute(0, context)?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        held.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok(Rows { batches, _held: held })
}

impl DisplayAs for KeptRows {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptRows{}", if self.for_keys { ": for keys" } else { "" })
    }
}

impl ExecutionPlan for KeptRows {
    fn name(&self) -> &str {
        "KeptRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| self.input.clone());
        Ok(Arc::new(KeptRows::of(input, self.rows.clone(), self.for_keys)))
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let unknown = || Arc::new(Statistics::new_unknown(&self.schema()));
        Ok(inputs.first().cloned().unwrap_or_else(unknown))
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None)]
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, cell) = (self.input.clone(), self.rows.clone());
        let kept = async move {
            let rows = cell.get_or_try_init(|| found(input, context)).await?;
            let batches: Vec<Result<RecordBatch>> = rows.batches.iter().cloned().map(Ok).collect();
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        let batches = futures::stream::once(kept).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
