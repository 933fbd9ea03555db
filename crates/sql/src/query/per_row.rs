//! Which plan does a subquery have that runs for each row around it? One for all of them, with holes for the row's values, for as long as its statement runs,
//! whose snapshot it reads.
//!
//! | where values stand | what a run does |
//! |---|---|
//! | in an expression of such values alone | it is computed before the run, and is one more hole |
//! | in a scan's filters | the scan finds its path by them |
//! | in outputs and aggregates | they are computed with them ([`RowValue`]) |
//! | in a subquery within, which runs for each row of this one | it gives that one its values, whose plans are kept as long (`apply`) |
//! | elsewhere, as in a filter that no scan takes | each row's subquery is planned with its values: of a literal an optimizer makes a key where a computation stands |
//! | in windows | the same: one that is about no column has an input without columns, which DataFusion does not run |
//!
//! An error of what is computed before is none yet, as perhaps nobody asks for it: that row's subquery is planned, too.

use super::apply::plans_of;
use super::estimate::snapshot_of;
use super::fault::carried;
use super::run::{Parts, optimized, planned_from, planning};
use super::scan::Snapshot;
use super::template::{has_hole, hole_of, hole_of_type, instance, is_reusable, with_exprs};
use crate::error::SqlError;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, ToDFSchema};
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use freshet_engine::txn::Reader;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A subquery's plan, into which the values of each row around it are put.
#[derive(Debug)]
pub struct PerRow {
    reader: Reader,
    physical: Arc<dyn ExecutionPlan>,
    /// The row's values, as what is computed of them takes them.
    schema: SchemaRef,
    /// The values of holes behind those of the row's own.
    computed: Vec<Arc<dyn PhysicalExpr>>,
    values: Values,
}

/// Of the run at hand: there is one at a time.
type Values = Arc<Mutex<Vec<ScalarValue>>>;

impl PerRow {
    /// Of a plan with holes for values like these. `None`: it is planned for each row.
    pub fn new(plan: LogicalPlan, like: &[ScalarValue]) -> Option<PerRow> {
        let reader = only_reader(&plan)?;
        let fields = like.iter().enumerate().map(|(at, value)| Field::new(format!("${at}"), value.data_type(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let (plan, computed) = with_computed(plan, like.len()).ok()?;
        let of_row = schema.clone().to_dfschema().ok()?;
        let physical = |expr: DfExpr| planning().create_physical_expr(of_columns(expr)?, &of_row);
        let computed = computed.into_iter().map(physical).collect::<Result<_>>().ok()?;
        let values = Values::default();
        let best = with_row_values(optimized(&plan, Parts::One).ok()?, &values).ok()??;
        let physical = planned_from(&best, Parts::One).ok()?;
        let is_kept = is_reusable(&physical).ok()?;
        is_kept.then_some(PerRow { reader, physical, schema, computed, values })
    }

    /// The plan of one row. `None`: it is planned with its values, as what is computed of them fails, or the plan of all is a bad one for them.
    pub fn physical(&self, of_row: &[ScalarValue]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let mut values = of_row.to_vec();
        if !self.computed.is_empty() {
            let arrays = of_row.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
            let row = RecordBatch::try_new(self.schema.clone(), arrays)?;
            for computed in &self.computed {
                values.push(match computed.evaluate(&row) {
                    Ok(ColumnarValue::Scalar(value)) => value,
                    Ok(ColumnarValue::Array(array)) => ScalarValue::try_from_array(&array, 0)?,
                    Err(_) => return Ok(None),
                });
            }
        }
        let plan = instance(self.physical.clone(), &self.reader, &values)?;
        *self.values.lock() = values;
        Ok(plan)
    }
}

/// What all its scans read by, those of subqueries within it that run for each row, too. `None`: it has none, or something else in it knows of a run.
fn only_reader(plan: &LogicalPlan) -> Option<Reader> {
    let mut reader = None;
    let is_plain = note_reader(plan, &mut reader);
    reader.filter(|_| is_plain)
}

fn note_reader(plan: &LogicalPlan, reader: &mut Option<Reader>) -> bool {
    let mut is_plain = true;
    let looked = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => match (snapshot_of(scan).map(Snapshot::reader), plans_of(scan)) {
                (Some(Some(read)), _) => *reader = Some(read.clone()),
                (None, Some(plans)) => is_plain &= plans.iter().all(|plan| note_reader(plan, reader)),
                _ => is_plain = false,
            },
            LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => is_plain = false,
            _ => {}
        }
        Ok(if is_plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    looked.is_ok() && is_plain
}

/// The plan with a hole for each expression that is of holes alone, numbered from `first` on, and these expressions.
fn with_computed(plan: LogicalPlan, first: usize) -> Result<(LogicalPlan, Vec<DfExpr>)> {
    let mut computed: Vec<DfExpr> = Vec::new();
    let plan = with_exprs(plan, &|_| true, &mut |expr| {
        expr.transform_down(|e| {
            if hole_of(&e).is_some() || !has_hole(&e) || !is_of_holes(&e) {
                return Ok(Transformed::no(e));
            }
            let ty = e.get_type(&DFSchema::empty())?;
            let at = computed.iter().position(|known| *known == e).unwrap_or_else(|| {
                computed.push(e);
                computed.len() - 1
            });
            Ok(Transformed::new(hole_of_type(first + at, ty), true, TreeNodeRecursion::Jump))
        })
    })?;
    Ok((plan, computed))
}

/// Whether it can be computed of the values of its holes. What an output is called is not part of it.
fn is_of_holes(expr: &DfExpr) -> bool {
    let is_one = |e: &DfExpr| match e {
        DfExpr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Volatile,
        DfExpr::Placeholder(_) | DfExpr::Literal(..) | DfExpr::BinaryExpr(_) | DfExpr::Not(_) => true,
        DfExpr::IsNull(_) | DfExpr::IsNotNull(_) | DfExpr::Negative(_) | DfExpr::Between(_) => true,
        DfExpr::IsTrue(_) | DfExpr::IsFalse(_) | DfExpr::IsUnknown(_) => true,
        DfExpr::IsNotTrue(_) | DfExpr::IsNotFalse(_) | DfExpr::IsNotUnknown(_) => true,
        DfExpr::Case(_) | DfExpr::Cast(_) | DfExpr::TryCast(_) | DfExpr::InList(_) => true,
        _ => false,
    };
    !expr.exists(|e| Ok(!is_one(e))).unwrap_or(true)
}

/// The expression with its holes as columns of a row's values.
fn of_columns(expr: DfExpr) -> Result<DfExpr> {
    let replaced = expr.transform_up(|e| match hole_of(&e) {
        Some(at) => Ok(Transformed::yes(DfExpr::Column(Column::new_unqualified(format!("${at}"))))),
        None => Ok(Transformed::no(e)),
    })?;
    Ok(replaced.data)
}

/// The optimized plan, whose nodes ask for the values of holes in what they compute; `None`: a hole decides which rows they give.
fn with_row_values(plan: LogicalPlan, values: &Values) -> Result<Option<LogicalPlan>> {
    let is_scan = |node: &LogicalPlan| matches!(node, LogicalPlan::TableScan(_));
    let computes = |node: &LogicalPlan| matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
    let mut decides = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            decides |= !is_scan(node) && !computes(node) && has_hole(expr);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if decides {
        return Ok(None);
    }
    let plan = with_exprs(plan, &computes, &mut |expr| {
        expr.transform_up(|e| {
            let Some(at) = hole_of(&e) else { return Ok(Transformed::no(e)) };
            let value = RowValue::new(at, e.get_type(&DFSchema::empty())?, values.clone());
            Ok(Transformed::yes(ScalarUDF::new_from_impl(value).call(Vec::new())))
        })
    })?;
    Ok(Some(plan))
}

/// A value of the row around, as the run at hand has it. It is asked anew each time, so that nothing keeps it.
#[derive(Debug)]
struct RowValue {
    at: usize,
    ty: DataType,
    values: Values,
    signature: Signature,
}

impl RowValue {
    fn new(at: usize, ty: DataType, values: Values) -> RowValue {
        RowValue { at, ty, values, signature: Signature::nullary(Volatility::Volatile) }
    }
}

impl PartialEq for RowValue {
    fn eq(&self, other: &RowValue) -> bool {
        self.at == other.at && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for RowValue {}

impl Hash for RowValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}

impl ScalarUDFImpl for RowValue {
    fn name(&self) -> &str {
        "row_value"
    }

    /// Columns of one name are one to DataFusion.
    fn schema_name(&self, _: &[DfExpr]) -> Result<String> {
        Ok(format!("row_value_{}", self.at))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.ty.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.values.lock().get(self.at) {
            Some(value) => Ok(ColumnarValue::Scalar(value.clone())),
            None => {
                Err(carried(SqlError::new("XX000", "invariant: a row's values are there before its subquery runs")))
            }
        }
    }
}
