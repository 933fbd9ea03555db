//! What must DataFusion not know to be constant? It leaves out sort keys that are, and DataFusion 55 believes of two things that they are:
//!
//! | what | though |
//! |---|---|
//! | a column of an outer join that is constant before it | it is null where no row was found |
//! | the key of a window's partitions that a filter or a literal makes constant | the window then misses the sort |

use super::replace::{NodeOrder, Replace};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal, NoOp};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An expression that tells nobody that it is constant.
#[derive(Debug)]
struct Hidden {
    expr: Arc<dyn PhysicalExpr>,
    /// Of expressions whose children are all constant DataFusion knows that they are; this is a child that is not.
    unknown: Arc<dyn PhysicalExpr>,
}

impl Hidden {
    fn of(expr: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        Arc::new(Hidden { expr, unknown: Arc::new(NoOp::new()) })
    }
}

impl PartialEq for Hidden {
    fn eq(&self, other: &Hidden) -> bool {
        self.expr.as_ref() == other.expr.as_ref()
    }
}

impl Eq for Hidden {}

impl Hash for Hidden {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
    }
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expr.fmt(f)
    }
}

impl PhysicalExpr for Hidden {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expr.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expr.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expr.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.expr.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr, &self.unknown]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Hidden::of(children.into_iter().next().unwrap_or_else(|| self.expr.clone())))
    }

    fn fmt_sql(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expr.fmt_sql(f)
    }
}

/// What is computed, whether anybody may know that it is constant or not.
pub fn shown(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    expr.downcast_ref::<Hidden>().map_or(expr, |hidden| &hidden.expr)
}

/// The first rule of physical planning: filters, projections and the sides of outer joins keep to themselves what is constant.
pub const HIDE_CONSTANTS: Replace = Replace { name: "hide_constants", order: NodeOrder::Up, with: hidden };

fn hidden(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let predicate = Hidden::of(filter.predicate().clone());
        return Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?)));
    }
    match node.downcast_ref::<ProjectionExec>() {
        Some(projection) => without_literals(projection),
        None => without_constant_sides(node),
    }
}

fn without_literals(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_literal = |e: &ProjectionExpr| e.expr.downcast_ref::<Literal>().is_some();
    if !projection.expr().iter().any(is_literal) {
        return Ok(None);
    }
    let exprs = projection.expr().iter().map(|e| match is_literal(e) {
        true => ProjectionExpr { expr: Hidden::of(e.expr.clone()), alias: e.alias.clone() },
        false => e.clone(),
    });
    projected(exprs.collect(), projection.input(), &projection.schema()).map(Some)
}

/// An outer join, if a side whose rows may be missing has columns that are constant.
fn without_constant_sides(join: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let hashed = join.downcast_ref::<HashJoinExec>().map(HashJoinExec::join_type);
    let may_miss = match hashed.or_else(|| join.downcast_ref::<NestedLoopJoinExec>().map(NestedLoopJoinExec::join_type))
    {
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(JoinType::Full) => [true, true],
        _ => return Ok(None),
    };
    let mut is_changed = false;
    let mut sides: Vec<Arc<dyn ExecutionPlan>> = join.children().into_iter().cloned().collect();
    for (side, may_miss) in sides.iter_mut().zip(may_miss) {
        if may_miss && let Some(hiding) = without_constants(side)? {
            (*side, is_changed) = (hiding, true);
        }
    }
    if is_changed { replace_children_if_necessary(join.clone(), sides).map(Some) } else { Ok(None) }
}

/// The same rows; `None`: nothing of them is known to be constant.
fn without_constants(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = plan.schema();
    let known = plan.equivalence_properties();
    let mut exprs = Vec::with_capacity(schema.fields().len());
    let mut is_any = false;
    for (at, field) in schema.fields().iter().enumerate() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        let is_constant = known.is_expr_constant(&column).is_some();
        is_any |= is_constant;
        let expr = if is_constant { Hidden::of(column) } else { column };
        exprs.push(ProjectionExpr { expr, alias: field.name().clone() });
    }
    if is_any { projected(exprs, plan, &schema).map(Some) } else { Ok(None) }
}

fn projected(
    exprs: Vec<ProjectionExpr>,
    input: &Arc<dyn ExecutionPlan>,
    schema: &Schema,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(ProjectionExec::try_new_with_schema_metadata(exprs, input.clone(), schema)?))
}
