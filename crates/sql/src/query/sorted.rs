//! Which sorts within a query does somebody above rely on, though SQL promises nothing? An aggregate that keeps its rows, and a window without an
//! order of its own, take their input as it comes: PostgreSQL gives it in the order of the subquery below, and people count on that.
//!
//! So do outputs that do something each time they are computed, as taking a sequence's next value. OFFSET without LIMIT leaves out the first rows of an order.
//!
//! DataFusion takes away what sorts for nobody. Over such a sort this puts DataFusion's own node for a requirement, which forbids it, and which
//! DataFusion takes out again once sorts and partitions are settled.

use super::gather::Gather;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{Distribution, ExecutionPlan};
use std::sync::Arc;

/// The rule after which sorts below aggregates and windows stay; just before sorts are looked at.
#[derive(Debug)]
pub struct KeepSorts;

impl PhysicalOptimizerRule for KeepSorts {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let kept = plan.transform_up(|node| {
            let input = if takes_rows_as_they_come(&node) { only_input(&node) } else { None };
            let required = input.map(required).transpose()?.flatten();
            let Some(input) = required else { return Ok(Transformed::no(node)) };
            let is_offset = leaves_out(&node);
            let kept = replace_children_if_necessary(node, vec![input])?;
            // No sort for somebody above is moved below a requirement of another order, though that is one of a constant, which all rows have.
            let order = LexOrdering::new([PhysicalSortExpr::new_default(lit(true))]).filter(|_| is_offset);
            Ok(Transformed::yes(match order {
                Some(order) => Arc::new(in_order(kept, order)),
                None => kept,
            }))
        })?;
        Ok(kept.data)
    }

    fn name(&self) -> &str {
        "keep_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Moves projections as another rule does, but none that does something: it computes the rows that come to it, after the sorts and limits below.
#[derive(Debug)]
pub struct KeepActs(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

/// What no projection is moved past, and what lets all rows through.
const EVERY_ROW: usize = usize::MAX;

impl PhysicalOptimizerRule for KeepActs {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, options: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(acts(node)))? {
            return self.0.optimize(plan, options);
        }
        let held = plan.transform_up(|node| match only_input(&node).filter(|_| acts(&node)) {
            Some(input) => {
                let held = Arc::new(LocalLimitExec::new(input, EVERY_ROW));
                Ok(Transformed::yes(replace_children_if_necessary(node, vec![held])?))
            }
            None => Ok(Transformed::no(node)),
        })?;
        let moved = self.0.optimize(held.data, options)?;
        let freed = moved.transform_up(|node| match node.downcast_ref::<LocalLimitExec>() {
            Some(limit) if limit.fetch() == EVERY_ROW => Ok(Transformed::yes(Arc::clone(limit.input()))),
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(freed.data)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether it computes what does something each time.
fn acts(node: &Arc<dyn ExecutionPlan>) -> bool {
    let projection = node.downcast_ref::<ProjectionExec>();
    projection.is_some_and(|projection| projection.expr().iter().any(|output| is_volatile(&output.expr)))
}

/// An OFFSET without a LIMIT: which rows it leaves out depends on their order. Where there is a LIMIT, too, the sort below knows of both.
fn leaves_out(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0 && limit.fetch().is_none())
}

fn takes_rows_as_they_come(node: &Arc<dyn ExecutionPlan>) -> bool {
    if acts(node) || leaves_out(node) {
        return true;
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.aggr_expr().iter().any(|call| call.fun().inner().downcast_ref::<Gather>().is_some());
    }
    let windows = match (node.downcast_ref::<WindowAggExec>(), node.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(windows), _) => windows.window_expr(),
        (_, Some(windows)) => windows.window_expr(),
        _ => return false,
    };
    windows.iter().any(|window| window.order_by().is_empty())
}

fn only_input(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match node.children().as_slice() {
        [input] => Some(Arc::clone(input)),
        _ => None,
    }
}

fn in_order(plan: Arc<dyn ExecutionPlan>, order: LexOrdering) -> OutputRequirementExec {
    OutputRequirementExec::new(plan, Some(order.into()), Distribution::SinglePartition, None)
}

/// The plan with its order required; `None`: it has none of a sort below what gives rows as it gets them.
fn required(plan: Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let order = sort.expr().clone();
        return Ok(Some(Arc::new(in_order(plan, order))));
    }
    let is_kept_already = plan.downcast_ref::<OutputRequirementExec>().is_some();
    let input = if is_kept_already || plan.maintains_input_order() != [true] { None } else { only_input(&plan) };
    match input.map(required).transpose()?.flatten() {
        Some(input) => replace_children_if_necessary(plan, vec![input]).map(Some),
        None => Ok(None),
    }
}
