//! Where are the first rows of a sort found without sorting? In an index that has its order, from the end that they are at.
//!
//! `ORDER BY ts DESC LIMIT 1` below a join, or for each row around a subquery, reads one row of an index by (.., ts) and not all that the other conditions
//! leave. So does `max(ts)`, where nothing else is asked and the first row has no null. What the sort and the scan have between them passes rows on in their
//! order:
//!
//! | between | is kept |
//! |---|---|
//! | a projection, of which the sort's keys are columns, or keys of columns | as it is |
//! | a filter | with the rows that are wanted as its limit; the scan gives more of them at a time as it goes on |
//! | anything else | the sort, too |
//!
//! It is the last rule that looks at sorts: nothing after it moves rows.

use super::replace::{NodeOrder, Replace};
use super::scan::{First, SnapshotScan, SortKey};
use datafusion::arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use std::sync::Arc;

/// The rule by which first rows are read in an index's order.
pub const FIRST_ROWS: Replace = Replace {
    name: "first_rows",
    order: NodeOrder::Down,
    with: |node| match first_rows(node)? {
        None => extreme(node),
        read => Ok(read),
    },
};

/// In place of a sort that gives its first rows only, also of one in parts.
fn first_rows(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    match node.downcast_ref::<SortPreservingMergeExec>() {
        Some(merge) => read_for(merge.input(), merge.fetch(), true),
        None => read_for(node, None, false),
    }
}

/// In place of a sort, or of parts that are merged after projections, if these are merged for as many rows.
fn read_for(
    node: &Arc<dyn ExecutionPlan>,
    merged: Option<usize>,
    is_in_parts: bool,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>().filter(|_| is_in_parts) {
        let read = read_for(projection.input(), merged, is_in_parts)?;
        return read.map(|read| replace_children_if_necessary(Arc::clone(node), vec![read])).transpose();
    }
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(count) = sort.fetch().filter(|count| *count > 0) else { return Ok(None) };
    let is_one = match is_in_parts {
        true => merged == Some(count),
        false => sort.properties().output_partitioning().partition_count() == 1,
    };
    let keys = sort.expr().iter().map(|key| SortKey::of(&key.expr, key.options));
    let Some(keys) = keys.collect::<Option<_>>().filter(|_| is_one) else { return Ok(None) };
    let read = in_order(sort.input(), First { keys, count, has_values: false, is_filtered: false })?;
    Ok(read.map(|read| Arc::new(GlobalLimitExec::new(read, 0, Some(count))) as Arc<dyn ExecutionPlan>))
}

/// The lone min() or max() of all rows, of the first one that it could be.
fn extreme(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let ([call], [None]) = (aggregate.aggr_expr(), aggregate.filter_expr()) else { return Ok(None) };
    let is_of_all = *aggregate.mode() == AggregateMode::Single && aggregate.group_expr().is_empty();
    let descending = match call.fun().name() {
        "min" => false,
        "max" => true,
        _ => return Ok(None),
    };
    let expressions = call.expressions();
    let [argument] = expressions.as_slice() else { return Ok(None) };
    let options = SortOptions { descending, nulls_first: descending };
    let Some(key) = SortKey::of(argument, options).filter(|_| is_of_all) else { return Ok(None) };
    let keys = vec![key];
    let read = in_order(aggregate.input(), First { keys, count: 1, has_values: true, is_filtered: false })?;
    read.map(|read| replace_children_if_necessary(Arc::clone(node), vec![read])).transpose()
}

/// The plan with its first rows in this order; `None`: it cannot be had, or costs too much.
fn in_order(plan: &Arc<dyn ExecutionPlan>, first: First) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<SnapshotScan>() {
        let scan = scan.in_order(&first)?;
        return Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let keys = match filter.projection() {
            Some(given) => first.keys.iter().map(|key| key.at(given[key.place])).collect(),
            None => first.keys.clone(),
        };
        let of_many = First { keys, is_filtered: true, ..first };
        let read = if filter.fetch().is_none() { in_order(filter.input(), of_many)? } else { None };
        let filtered = |read| FilterExecBuilder::from(filter).with_input(read).with_fetch(Some(first.count)).build();
        return read.map(|read| Ok(Arc::new(filtered(read)?) as Arc<dyn ExecutionPlan>)).transpose();
    }
    let keys = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let of = |at: usize| projection.expr()[at].expr.downcast_ref::<Column>().map(Column::index);
        first.keys.iter().map(|key| Some(key.at(of(key.place)?))).collect::<Option<Vec<_>>>()
    } else {
        plan.downcast_ref::<CooperativeExec>().map(|_| first.keys.clone())
    };
    let children = plan.children();
    let (Some(keys), [input]) = (keys, children.as_slice()) else { return Ok(None) };
    let read = in_order(input, First { keys, ..first })?;
    read.map(|read| replace_children_if_necessary(Arc::clone(plan), vec![read])).transpose()
}
