//! Which rows is the right side of AND and OR asked for? Those that the left side leaves open, as PostgreSQL does: `b = 0 OR a / b > 1` divides by no 0.
//!
//! DataFusion computes both sides of a whole batch and then joins them. [`LAZY_SIDES`], the last rule of physical planning, so after whatever merged
//! or moved conditions, finds sides that may fail:
//!
//! | where | what becomes of it |
//! |---|---|
//! | the conditions of a filter or join | they are asked in PostgreSQL's order: the cheaper first, else as they were written |
//! | AND, OR with a right side that may fail | [`Lazy`] |
//! | a call of the evaluator on what another computes and may fail | one call, in which CASE and its like choose what is computed |

use super::compute::Computed;
use super::constants::shown;
use super::lookup::IndexLookupJoin;
use super::replace::{NodeOrder, Replace};
use crate::expr::Expr;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::{and_kleene, or_kleene};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{ColumnarValue, Operator, ScalarUDF};
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr};
use datafusion::physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rule by which sides of AND and OR are computed only where they are asked for.
pub const LAZY_SIDES: Replace = Replace { name: "lazy_sides", order: NodeOrder::Up, with: with_lazy_sides };

fn with_lazy_sides(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let Some(predicate) = condition(filter.predicate(), &filter.input().schema())? else { return Ok(None) };
        return Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?)));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let Some(filter) = join.filter().map(join_filter).transpose()?.flatten() else { return Ok(None) };
        return join.builder().with_filter(Some(filter)).build_exec().map(Some);
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = join.filter().map(join_filter).transpose()?.flatten() else { return Ok(None) };
        let (left, right) = (join.left().clone(), join.right().clone());
        let projection = join.projection().as_ref().map(|p| p.to_vec());
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), join.join_type(), projection)?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<IndexLookupJoin>() {
        return Ok(join.lazy()?.map(|join| Arc::new(join) as Arc<dyn ExecutionPlan>));
    }
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    projected(projection)
}

fn projected(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut outputs = Vec::with_capacity(projection.expr().len());
    let mut is_changed = false;
    for output in projection.expr() {
        let lazy = lazy(output.expr.clone(), &schema)?;
        is_changed |= lazy.is_some();
        let expr = lazy.unwrap_or_else(|| output.expr.clone());
        outputs.push(ProjectionExpr { expr, alias: output.alias.clone() });
    }
    if !is_changed {
        return Ok(None);
    }
    Ok(Some(Arc::new(ProjectionExec::try_new(outputs, projection.input().clone())?)))
}

/// A join's condition; also of a join that looks rows up.
pub fn join_filter(filter: &JoinFilter) -> Result<Option<JoinFilter>> {
    let lazy = condition(filter.expression(), filter.schema())?;
    Ok(lazy.map(|lazy| JoinFilter::new(lazy, filter.column_indices().to_vec(), filter.schema().clone())))
}

/// A condition whose parts are asked in their order; `None`: it is right as it is.
fn condition(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let predicate = shown(predicate);
    if !may_fail(predicate) || is_volatile(predicate) {
        return lazy(predicate.clone(), schema);
    }
    let mut parts: Vec<Arc<dyn PhysicalExpr>> = split_conjunction(predicate).into_iter().cloned().collect();
    parts.sort_by_key(cost);
    let ordered = conjunction(parts);
    Ok(Some(lazy(ordered.clone(), schema)?.unwrap_or(ordered)))
}

/// The expression with lazy sides; `None`: it has none.
fn lazy(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if !may_fail(&expr) {
        return Ok(None);
    }
    let lazy = expr.transform_up(|e| {
        let replaced = match (e.downcast_ref::<BinaryExpr>(), e.downcast_ref::<ScalarFunctionExpr>()) {
            (Some(junction), _) => Lazy::of(junction)?.map(|lazy| Arc::new(lazy) as Arc<dyn PhysicalExpr>),
            (_, Some(call)) => fused(call, schema)?,
            _ => None,
        };
        Ok(replaced.map_or_else(|| Transformed::no(e), Transformed::yes))
    })?;
    Ok(lazy.transformed.then_some(lazy.data))
}

fn computed(expr: &Arc<dyn PhysicalExpr>) -> Option<(&ScalarFunctionExpr, &Computed)> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    Some((call, call.fun().inner().downcast_ref::<Computed>()?))
}

/// Whether it may be an error, for some row.
fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let fails = |e: &Arc<dyn PhysicalExpr>| computed(e).is_some_and(|(_, computed)| computed.expr().may_fail());
    expr.exists(|e| Ok(fails(e))).expect("invariant: looking at an expression does not fail")
}

/// What PostgreSQL thinks that it costs, in operators.
fn cost(expr: &Arc<dyn PhysicalExpr>) -> usize {
    let own = if let Some((_, computed)) = computed(expr) {
        computed.expr().operators()
    } else if let Some(list) = expr.downcast_ref::<InListExpr>() {
        list.list().len().div_ceil(2)
    } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        usize::from(!matches!(binary.op(), Operator::And | Operator::Or))
    } else {
        0
    };
    own + expr.children().into_iter().map(cost).sum::<usize>()
}

/// A call of the evaluator together with those that compute its arguments, where these may fail and it may not need them.
fn fused(call: &ScalarFunctionExpr, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(outer) = call.fun().inner().downcast_ref::<Computed>() else { return Ok(None) };
    let is_inner = |arg: &Arc<dyn PhysicalExpr>| {
        computed(arg).is_some_and(|(_, inner)| inner.expr().may_fail() && inner.is_plain())
    };
    if !outer.is_plain() || !outer.expr().chooses() || !call.args().iter().any(is_inner) {
        return Ok(None);
    }
    let mut args: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    let mut place = |arg: &Arc<dyn PhysicalExpr>| {
        let at = args.iter().position(|known| known == arg).unwrap_or_else(|| {
            args.push(arg.clone());
            args.len() - 1
        });
        Expr::Cell { source: 0, column: at as u16 }
    };
    let mut values = Vec::with_capacity(call.args().len());
    for arg in call.args() {
        values.push(match computed(arg).filter(|_| is_inner(arg)) {
            Some((inner_call, inner)) => {
                let cells: Vec<Expr> = inner_call.args().iter().map(&mut place).collect();
                with_cells(inner.expr(), &cells)
            }
            None => place(arg),
        });
    }
    let expr = with_cells(outer.expr(), &values);
    let fused = Computed::new(expr, args.len(), outer.result(), outer.clock().clone());
    let fused = Arc::new(ScalarUDF::new_from_impl(fused));
    let options = Arc::new(call.config_options().clone());
    Ok(Some(Arc::new(ScalarFunctionExpr::try_new(fused, args, schema, options)?)))
}

fn with_cells(expr: &Expr, values: &[Expr]) -> Expr {
    expr.clone().rewrite(&mut |e| match e {
        Expr::Cell { column, .. } => values.get(usize::from(*column)).cloned(),
        _ => None,
    })
}

/// What is an AND or OR, however it is computed.
pub fn junction(expr: &Arc<dyn PhysicalExpr>) -> Option<&BinaryExpr> {
    let is_junction = |binary: &&BinaryExpr| matches!(binary.op(), Operator::And | Operator::Or);
    match expr.downcast_ref::<Lazy>() {
        Some(lazy) => Some(&lazy.whole),
        None => expr.downcast_ref::<BinaryExpr>().filter(is_junction),
    }
}

/// AND or OR whose right side is computed for the rows that the left one leaves open.
#[derive(Debug)]
struct Lazy {
    whole: BinaryExpr,
    /// The right side over the columns that it needs, and which these are.
    right: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
}

impl Lazy {
    /// `None`: it is neither, or its right side never fails.
    fn of(junction: &BinaryExpr) -> Result<Option<Lazy>> {
        if !matches!(junction.op(), Operator::And | Operator::Or) || !may_fail(junction.right()) {
            return Ok(None);
        }
        let mut columns: Vec<usize> = collect_columns(junction.right()).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let over_columns = junction.right().clone().transform_up(|e| {
            let place = |column: &Column| {
                let at = columns.binary_search(&column.index()).expect("invariant: they were all collected");
                Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>
            };
            let placed = e.downcast_ref::<Column>().map(place);
            Ok(placed.map_or_else(|| Transformed::no(e), Transformed::yes))
        })?;
        Ok(Some(Lazy { whole: junction.clone(), right: over_columns.data, columns }))
    }

    fn is_and(&self) -> bool {
        *self.whole.op() == Operator::And
    }

    /// The rows that the left side does not decide.
    fn open(&self, left: &BooleanArray) -> BooleanArray {
        let decided = !self.is_and();
        left.iter().map(|value| Some(value != Some(decided))).collect()
    }
}

impl PartialEq for Lazy {
    fn eq(&self, other: &Lazy) -> bool {
        self.whole == other.whole
    }
}

impl Eq for Lazy {}

impl Hash for Lazy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.whole.hash(state);
    }
}

impl std::fmt::Display for Lazy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.whole.fmt(f)
    }
}

impl PhysicalExpr for Lazy {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.whole.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let left = self.whole.left().evaluate(batch)?.into_array(rows)?;
        let truths = as_boolean_array(&left)?;
        let open = self.open(truths);
        if !open.has_true() {
            return Ok(ColumnarValue::Array(left));
        }
        let right = self.right.evaluate_selection(&batch.project(&self.columns)?, &open)?.into_array(rows)?;
        let right = as_boolean_array(&right)?;
        let both = if self.is_and() { and_kleene(truths, right)? } else { or_kleene(truths, right)? };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![self.whole.left(), self.whole.right()]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let [left, right] = children.as_slice() else { return Ok(self) };
        let whole = BinaryExpr::new(left.clone(), *self.whole.op(), right.clone());
        Ok(match Lazy::of(&whole)? {
            Some(lazy) => Arc::new(lazy),
            None => Arc::new(whole),
        })
    }

    fn fmt_sql(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.whole.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::operator::{BinaryOp, BinaryOperator};
    use crate::value::{Clock, Datum};
    use datafusion::arrow::array::Int32Array;
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;
    use datafusion::physical_expr::expressions::Literal;
    use freshet_engine::schema::Type;

    /// `b = 0 op 6 / b > 2`.
    fn guarded(op: Operator, schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let cell = || Box::new(Expr::Cell { source: 0, column: 0 });
        let operator = |op| BinaryOperator::resolve(op, Some(Type::Int4), Some(Type::Int4)).expect("of integers");
        let constant = |value| Box::new(Expr::Const(Datum::Int(value)));
        let divided = Expr::Binary { operator: operator(BinaryOp::Div), left: constant(6), right: cell() };
        let more = Expr::Compare { operator: operator(BinaryOp::Gt), left: Box::new(divided), right: constant(2) };
        let call = Arc::new(ScalarUDF::new_from_impl(Computed::new(more, 1, Type::Bool, Clock::default())));
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("b", 0));
        let call = ScalarFunctionExpr::try_new(call, vec![column.clone()], schema, Arc::new(ConfigOptions::new()));
        let zero = Arc::new(Literal::new(datafusion::common::ScalarValue::Int32(Some(0))));
        let is_zero = Arc::new(BinaryExpr::new(column, Operator::Eq, zero));
        Arc::new(BinaryExpr::new(is_zero, op, Arc::new(call.expect("a call"))))
    }

    #[test]
    fn a_right_side_is_computed_where_the_left_leaves_it_open() {
        let schema = Arc::new(Schema::new(vec![Field::new("b", DataType::Int32, true)]));
        let values = Int32Array::from(vec![Some(0), Some(1), Some(6), None]);
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(values)]).expect("a batch");
        let either = guarded(Operator::Or, &schema);
        assert!(either.evaluate(&batch).is_err(), "DataFusion divides every row");
        let either = lazy(either, &schema).expect("no error").expect("its right side may fail");
        let truths = either.evaluate(&batch).expect("no row divides by 0").into_array(4).expect("an array");
        let wanted = BooleanArray::from(vec![Some(true), Some(true), Some(false), None]);
        assert_eq!(as_boolean_array(&truths).expect("truths"), &wanted);
        let both = lazy(guarded(Operator::And, &schema), &schema).expect("no error").expect("it may fail");
        assert!(both.evaluate(&batch).is_err(), "the row with 0 is the one that is left open");
    }
}
