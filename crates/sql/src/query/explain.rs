//! Which nodes does a plan of DataFusion's have, in PostgreSQL's words, and what did each take?
//!
//! A plan that is to be measured is wrapped, node by node, in [`Watched`], which counts what passes. What PostgreSQL has no node for is left out
//! (projections) or keeps DataFusion's name.

use super::apply::ApplyExec;
use super::asked::KeptRows;
use super::change::Action;
use super::exchange::Exchange;
use super::fault::sql_error;
use super::lookup::IndexLookupJoin;
use super::run::{Parts, planned};
use super::scan::SnapshotScan;
use super::text::text;
use super::with::Part;
use crate::error::SqlError;
use crate::explain::{Actual, Estimate, Node, OPERATOR_COST, Options, ROW_COST, Times};
use crate::expr::Env;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, Statistics};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream, displayable,
};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of what a plan is not expected to give so many rows.
const UNKNOWN_ROWS: f64 = 1000.0;

/// An EXPLAIN, as far as its statement's parts have run or been planned.
pub struct Explaining {
    pub options: Options,
    started: Instant,
    /// Of the first part; the others are planned when those before them have run.
    planned: Option<Duration>,
    /// Of the part at hand.
    pub plan: Option<Arc<dyn ExecutionPlan>>,
    nodes: Vec<Node>,
}

impl Explaining {
    /// `started`: when the statement was taken up to be planned.
    pub fn new(options: Options, started: Instant) -> Explaining {
        Explaining { options, started, planned: None, plan: None, nodes: Vec::new() }
    }

    /// A part's plan, ready to run and to be measured.
    pub fn watch(&mut self, plan: &LogicalPlan, workers: Parts) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        let plan = watched(planned(plan, workers)?).map_err(sql_error)?;
        self.plan = Some(plan.clone());
        self.planned.get_or_insert_with(|| self.started.elapsed());
        Ok(plan)
    }

    /// The part's query is done.
    pub fn finish_part(&mut self, part: &Part, env: &Env) {
        let mut node = match (self.plan.take(), &part.action) {
            (Some(plan), _) => node(&plan),
            (None, Action::Run(query)) => crate::explain::query_node(query, env),
            (None, _) => return,
        };
        if let Action::Lock(lock) = &part.action {
            node = lock.node(node);
        }
        if let Some((operation, table)) = part.action.shown() {
            let actual = node.actual;
            node = Node::change(operation, Some(table), node);
            node.actual = actual.map(|actual| Actual { rows: 0.0, ..actual });
        }
        node.subplan = match (&part.name, &part.into) {
            (Some(name), _) => Some(format!("CTE {name}")),
            (None, Some(_)) => Some(format!("InitPlan {}", self.nodes.len() + 1)),
            (None, None) => None,
        };
        self.nodes.push(node);
    }

    /// The statement is done.
    pub fn lines(mut self) -> Vec<String> {
        let all = self.started.elapsed();
        let planned = self.planned.unwrap_or(all);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let times = Times { planning_ms: milliseconds(planned), execution_ms: milliseconds(all - planned) };
        let Some(mut node) = self.nodes.pop() else { return Vec::new() };
        // What WITH changes stands before what reads it.
        node.children.splice(0..0, self.nodes);
        crate::explain::lines(&node, "DataFusion", &self.options, times)
    }
}

/// What passed through a node, in microseconds since the plan was made ready.
#[derive(Debug)]
struct Watch {
    started: Instant,
    rows: AtomicU64,
    loops: AtomicU64,
    first_us: AtomicU64,
    last_us: AtomicU64,
}

impl Watch {
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// As PostgreSQL tells it: rows of each loop on average.
    fn actual(&self) -> Actual {
        let loops = self.loops.load(Ordering::Acquire);
        let last = self.last_us.load(Ordering::Acquire);
        Actual {
            startup_ms: self.first_us.load(Ordering::Acquire).min(last) as f64 / 1e3,
            total_ms: last as f64 / 1e3,
            rows: self.rows.load(Ordering::Acquire) as f64 / loops.max(1) as f64,
            loops,
        }
    }
}

/// A node that is measured.
#[derive(Debug)]
pub struct Watched {
    inner: Arc<dyn ExecutionPlan>,
    watch: Arc<Watch>,
}

/// The plan with every node watched.
pub fn watched(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let started = Instant::now();
    let all = plan.transform_up(|inner| {
        let zero = || AtomicU64::new(0);
        let first_us = AtomicU64::new(u64::MAX);
        let watch = Arc::new(Watch { started, rows: zero(), loops: zero(), first_us, last_us: zero() });
        Ok(Transformed::yes(Arc::new(Watched { inner, watch }) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(all.data)
}

impl DisplayAs for Watched {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt_as(form, f)
    }
}

impl ExecutionPlan for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().unwrap_or_else(|| self.inner.clone());
        Ok(Arc::new(Watched { inner, watch: self.watch.clone() }))
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let unknown = || Arc::new(Statistics::new_unknown(&self.schema()));
        Ok(inputs.first().cloned().unwrap_or_else(unknown))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = self.inner.execute(partition, context)?;
        let (schema, watch) = (self.schema(), self.watch.clone());
        watch.loops.fetch_add(1, Ordering::AcqRel);
        let batches = futures::stream::unfold((stream, watch), |(mut stream, watch)| async move {
            let next = stream.next().await;
            let now = watch.now_us();
            watch.last_us.fetch_max(now, Ordering::AcqRel);
            let batch = next?;
            if let Ok(batch) = &batch {
                watch.first_us.fetch_min(now, Ordering::AcqRel);
                watch.rows.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
            }
            Some((batch, (stream, watch)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// The nodes of a plan.
pub fn node(plan: &Arc<dyn ExecutionPlan>) -> Node {
    of(plan, &StatisticsContext::new())
}

fn of(plan: &Arc<dyn ExecutionPlan>, statistics: &StatisticsContext) -> Node {
    let (inner, actual) = match plan.downcast_ref::<Watched>() {
        Some(watched) => (&watched.inner, Some(watched.watch.actual())),
        None => (plan, None),
    };
    if let Some(kept) = inner.downcast_ref::<KeptRows>() {
        return kept_rows(kept, actual, statistics);
    }
    let children: Vec<Node> = inner.children().into_iter().map(|child| of(child, statistics)).collect();
    let is_silent =
        inner.downcast_ref::<ProjectionExec>().is_some() || inner.downcast_ref::<CooperativeExec>().is_some();
    if is_silent && let [_] = children.as_slice() {
        return children.into_iter().next().expect("there is one");
    }
    let estimate = estimate(inner, &children, statistics);
    let mut node = named(inner, estimate, children);
    node.actual = actual;
    node
}

/// Rows that are read twice are shown where they are found; what asks for their keys reads them once more.
fn kept_rows(kept: &KeptRows, actual: Option<Actual>, statistics: &StatisticsContext) -> Node {
    let rows = of(kept.children()[0], statistics);
    if !kept.for_keys {
        return rows;
    }
    let estimate = Estimate { startup: 0.0, total: rows.estimate.rows * ROW_COST, ..rows.estimate };
    let mut node = Node::new("Kept Rows Scan", estimate);
    node.actual = actual;
    node
}

fn estimate(plan: &Arc<dyn ExecutionPlan>, children: &[Node], statistics: &StatisticsContext) -> Estimate {
    let told = statistics.compute(plan.as_ref(), &StatisticsArgs::new()).ok();
    let rows = told.and_then(|told| told.num_rows.get_value().copied()).map(|rows| rows as f64);
    let of_children = children.iter().map(|child| child.estimate.rows).fold(0.0, f64::max);
    let rows = rows.unwrap_or(if children.is_empty() { UNKNOWN_ROWS } else { of_children });
    let below: f64 = children.iter().map(|child| child.estimate.total).sum();
    let passing: f64 = children.iter().map(|child| child.estimate.rows).sum();
    let read = plan.downcast_ref::<SnapshotScan>().map_or(0.0, SnapshotScan::rows_read);
    let own = read * ROW_COST + passing * OPERATOR_COST + rows * ROW_COST;
    let width = plan.schema().fields().iter().map(|field| width(field.data_type())).sum();
    let blocks = plan.downcast_ref::<SortExec>().is_some() || plan.downcast_ref::<AggregateExec>().is_some();
    let total = below + own;
    let startup = match children {
        [] => 0.0,
        _ if blocks => total - rows * ROW_COST,
        children => children.iter().map(|child| child.estimate.startup).fold(0.0, f64::max),
    };
    Estimate { startup, total, rows, width }
}

fn width(ty: &DataType) -> f64 {
    ty.primitive_width().map_or(32.0, |bytes| bytes as f64)
}

fn named(plan: &Arc<dyn ExecutionPlan>, estimate: Estimate, mut children: Vec<Node>) -> Node {
    if let Some(scan) = plan.downcast_ref::<SnapshotScan>() {
        return scan.node(estimate);
    }
    if let Some(join) = plan.downcast_ref::<IndexLookupJoin>()
        && let Some(outer) = children.pop()
    {
        return join.node(estimate, outer);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let on: Vec<String> =
            join.on().iter().map(|(left, right)| format!("({} = {})", text(right), text(left))).collect();
        let hashed = if children.is_empty() { Vec::new() } else { vec![children.remove(0)] };
        let below = hashed.first().map_or(Estimate::default(), |node| node.estimate);
        let mut hash = Node::new("Hash", Estimate { startup: below.total, ..below });
        hash.actual = hashed.first().and_then(|node| node.actual);
        children.push(hash.over(hashed));
        let node = joined("Hash", *join.join_type(), estimate).with("Hash Cond", on.join(" AND "));
        let node = match join.filter() {
            Some(filter) => node.with("Join Filter", text(filter.expression())),
            None => node,
        };
        return node.over(children);
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let node = joined("Nested Loop", *join.join_type(), estimate);
        let node = match join.filter() {
            Some(filter) => node.with("Join Filter", text(filter.expression())),
            None => node,
        };
        return node.over(children);
    }
    let node = if plan.downcast_ref::<CrossJoinExec>().is_some() {
        Node::new("Nested Loop", estimate)
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        aggregated(aggregate, estimate)
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        Node::new("Sort", estimate).listing("Sort Key", sort_keys(sort.expr()))
    } else if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        Node::new("Gather Merge", estimate).listing("Sort Key", sort_keys(merge.expr()))
    } else if plan.downcast_ref::<CoalescePartitionsExec>().is_some() {
        Node::new("Gather", estimate)
    } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        Node::new("Result", estimate).with("Filter", text(filter.predicate()))
    } else if plan.downcast_ref::<GlobalLimitExec>().is_some() || plan.downcast_ref::<LocalLimitExec>().is_some() {
        Node::new("Limit", estimate)
    } else if plan.downcast_ref::<UnionExec>().is_some() {
        Node::new("Append", estimate)
    } else if plan.downcast_ref::<WindowAggExec>().is_some() || plan.downcast_ref::<BoundedWindowAggExec>().is_some() {
        Node::new("WindowAgg", estimate)
    } else if plan.downcast_ref::<Exchange>().is_some() {
        Node::new("Exchange", estimate).with("Partitions", displayable(plan.as_ref()).one_line().to_string().trim())
    } else if let Some(apply) = plan.downcast_ref::<ApplyExec>() {
        let node =
            Node::new("SubPlan", estimate).with("Runs", displayable(plan.as_ref()).one_line().to_string().trim());
        let [runs, plans] = [&apply.counts().runs, &apply.counts().plans].map(|count| count.load(Ordering::Relaxed));
        // Rows with equal values share a run.
        if runs > 0 { node.counting("Subquery Runs", runs).counting("Subquery Plans", plans) } else { node }
    } else {
        Node::new(plan.name().strip_suffix("Exec").unwrap_or(plan.name()), estimate)
    };
    node.over(children)
}

fn sort_keys(order: &LexOrdering) -> Vec<String> {
    let key = |key: &PhysicalSortExpr| match (key.options.descending, key.options.nulls_first) {
        (false, false) => text(&key.expr),
        (false, true) => format!("{} NULLS FIRST", text(&key.expr)),
        (true, true) => format!("{} DESC", text(&key.expr)),
        (true, false) => format!("{} DESC NULLS LAST", text(&key.expr)),
    };
    order.iter().map(key).collect()
}

fn joined(how: &str, ty: JoinType, estimate: Estimate) -> Node {
    let which = match ty {
        JoinType::Inner => "Inner",
        JoinType::Left => "Left",
        JoinType::Right => "Right",
        JoinType::Full => "Full",
        JoinType::LeftSemi | JoinType::RightSemi | JoinType::LeftMark | JoinType::RightMark => "Semi",
        JoinType::LeftAnti | JoinType::RightAnti => "Anti",
    };
    Node::join(how, which, estimate)
}

fn aggregated(aggregate: &AggregateExec, estimate: Estimate) -> Node {
    let part = match aggregate.mode() {
        AggregateMode::Partial | AggregateMode::PartialReduce => "Partial",
        AggregateMode::Final | AggregateMode::FinalPartitioned => "Finalize",
        AggregateMode::Single | AggregateMode::SinglePartitioned => "Simple",
    };
    let keys = aggregate.group_expr().expr().iter().map(|(expr, _)| text(expr)).collect();
    Node::aggregate(keys, part, estimate)
}
