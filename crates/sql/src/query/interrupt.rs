//! How is a query stopped that computes without a pause? DataFusion's operators yield when they give rows; a join or filter that
//! rejects everything gives none. So what they ask of each batch first asks whether anybody still waits, and joins that give many rows
//! yield between them.

use super::apply::ApplyExec;
use super::asked::{FreshCells, KeptRows};
use super::fault::carried;
use super::iterate::Recursion;
use crate::error::SqlError;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many joins of a plan yield. Each asks for a share of what its task may do in one go, 128 in tokio, before it asks its inputs: a plan of
/// more, one within the other, would never come to its leaves.
const YIELDING_MAX: usize = 64;

/// Set once nobody waits for a query any more.
pub type Stopped = Arc<AtomicBool>;

/// A condition that fails once its query is stopped.
#[derive(Debug)]
struct Checked {
    condition: Arc<dyn PhysicalExpr>,
    stopped: Stopped,
}

impl PartialEq for Checked {
    fn eq(&self, other: &Checked) -> bool {
        self.condition.as_ref() == other.condition.as_ref()
    }
}

impl Eq for Checked {}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl std::fmt::Display for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Checked {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.condition.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.condition.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(carried(SqlError::new("57014", "canceling statement: nobody waits for it")));
        }
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = children.into_iter().next().unwrap_or_else(|| self.condition.clone());
        Ok(Arc::new(Checked { condition, stopped: self.stopped.clone() }))
    }

    fn fmt_sql(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// The plan with its joins and filters made to stop.
pub fn interruptible(plan: Arc<dyn ExecutionPlan>, stopped: &Stopped) -> Result<Arc<dyn ExecutionPlan>> {
    let checked = |condition: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(Checked { condition: condition.clone(), stopped: stopped.clone() })
    };
    let join_filter = |filter: Option<&JoinFilter>| {
        filter.map(|f| JoinFilter::new(checked(f.expression()), f.column_indices().to_vec(), f.schema().clone()))
    };
    let mut cells = FreshCells::default();
    let mut yielding = 0;
    let transformed = plan.transform_up(|node| {
        let replaced: Arc<dyn ExecutionPlan> = if let Some(filter) = node.downcast_ref::<FilterExec>() {
            let builder = FilterExecBuilder::from(filter);
            return Ok(Transformed::yes(Arc::new(builder.with_predicate(checked(filter.predicate())).build()?)));
        } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            let (left, right) = (join.left().clone(), join.right().clone());
            let filter = join_filter(join.filter());
            let projection = join.projection().as_ref().map(|p| p.to_vec());
            Arc::new(NestedLoopJoinExec::try_new(left, right, filter, join.join_type(), projection)?)
        } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            Arc::new(join.builder().with_filter(join_filter(join.filter())).build()?)
        } else if let Some(apply) = node.downcast_ref::<ApplyExec>() {
            return Ok(Transformed::yes(Arc::new(apply.stopping(stopped)) as Arc<dyn ExecutionPlan>));
        } else if let Some(kept) = node.downcast_ref::<KeptRows>() {
            return Ok(Transformed::yes(Arc::new(kept.fresh(&mut cells)) as Arc<dyn ExecutionPlan>));
        } else if let Some(recursion) = node.downcast_ref::<Recursion>() {
            return Ok(Transformed::yes(Arc::new(recursion.fresh()?) as Arc<dyn ExecutionPlan>));
        } else if node.downcast_ref::<CrossJoinExec>().is_some() {
            node
        } else {
            return Ok(Transformed::no(node));
        };
        if yielding == YIELDING_MAX {
            return Ok(Transformed::yes(replaced));
        }
        yielding += 1;
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(replaced)) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(transformed.data)
}
