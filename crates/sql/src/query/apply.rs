//! How is a subquery run that DataFusion cannot join? For each row around it anew, with the row's values as literals.
//!
//! That is right for every subquery, whatever it correlates by. The rows around it are a plan of their own, so to DataFusion the whole is a
//! table. Rows with equal values share one run; for the second one with others a plan is made with its values open (`per_row`), which those that follow use.
//! A subquery within such a plan keeps its own for all rows around both: the holes in it are of the outer row's values first, then of its own row's.
//!
//! A reference to a value of the row around is a call of [`OuterValue`]; it is gone before a plan with it is optimized.

use super::cells::{Writer, data_type};
use super::compute::readable;
use super::fault::carried;
use super::interrupt::{Stopped, interruptible};
use super::iterate::Reading;
use super::per_row::PerRow;
use super::run::planning;
use super::template::{filled, has_hole, hole_at, with_exprs};
use crate::compiled::aggregate::encode_key;
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame};
use crate::value::zone::Clock;
use crate::value::{Datum, array_datum, second_row};
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::default_table_source::{DefaultTableSource, provider_as_source};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    TableProviderFilterPushDown, TableScan, TableType, Volatility,
};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
    execute_stream,
};
use freshet_engine::schema::{Type, Value};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value of the row around a subquery.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct OuterValue {
    /// Which subquery's row.
    pub level: u32,
    pub slot: usize,
    ty: Type,
    signature: Signature,
}

impl OuterValue {
    pub fn new(level: u32, slot: usize, ty: Type) -> OuterValue {
        OuterValue { level, slot, ty, signature: Signature::nullary(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OuterValue {
    fn name(&self) -> &str {
        "outer_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.ty))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(carried(SqlError::unsupported("this correlated subquery")))
    }
}

/// What becomes of the inner rows.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The only row's value.
    Scalar,
    /// The only row's values.
    Row,
    Exists {
        negated: bool,
    },
    /// A condition over the left values (cells of source 0) and an inner row (source 1).
    Quantified {
        condition: Expr,
        all: bool,
        /// At most one row, as of a subquery that is compared as a row.
        single: bool,
    },
    /// Whether a left value, of the same type, is among those of the only column.
    Member {
        ty: Type,
        negated: bool,
    },
    /// An array of the only column.
    Array(Type),
    /// The inner rows beside the outer one; `left`: once with nulls where there are none.
    Lateral {
        left: bool,
    },
}

/// The rows of a plan, each with what a subquery gives for it.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its columns: those passed on, then the values that the subquery refers to, then those it is compared with.
    pub input: LogicalPlan,
    pub width: usize,
    pub slots: usize,
    pub level: u32,
    pub subplan: Option<LogicalPlan>,
    pub kind: Kind,
    /// The last left value tells for which rows the subquery is asked; nulls stand beside the others.
    pub is_guarded: bool,
    /// A subquery may give something else for a row with equal values.
    pub is_volatile: bool,
    /// Of the columns that are added.
    pub types: Vec<Type>,
    pub schema: SchemaRef,
    /// By which values are compared.
    pub clock: Clock,
}

impl Applied {
    /// The schema: the columns passed on as `c0`, ..., the new ones as `n0`, ...
    pub fn schema_of(input: &LogicalPlan, width: usize, types: &[Type]) -> SchemaRef {
        let kept = input.schema().fields().iter().take(width).enumerate();
        let kept = kept.map(|(i, field)| Field::new(format!("c{i}"), field.data_type().clone(), true));
        let new = types.iter().enumerate().map(|(i, ty)| Field::new(format!("n{i}"), data_type(*ty), true));
        Arc::new(Schema::new(kept.chain(new).collect::<Vec<_>>()))
    }

    /// Which of the columns passed on a column of the schema is.
    fn passed_on(&self, column: &Column) -> Option<usize> {
        self.schema.index_of(&column.name).ok().filter(|&at| at < self.width)
    }

    /// Whether a condition is about the columns passed on alone, so that the subquery need not run for rows that do not meet it.
    fn is_of_input(&self, filter: &DfExpr) -> bool {
        let is_subquery = |e: &DfExpr| {
            matches!(
                e,
                DfExpr::ScalarSubquery(_) | DfExpr::Exists(_) | DfExpr::InSubquery(_) | DfExpr::SetComparison(_)
            )
        };
        let within = filter.exists(|e| Ok(is_subquery(e)));
        let columns = filter.column_refs();
        !columns.is_empty()
            && columns.into_iter().all(|column| self.passed_on(column).is_some())
            && !within.expect("invariant: looking at an expression does not fail")
    }

    /// The same of the rows that meet these conditions, each of which `is_of_input`.
    fn of_those(&self, filters: &[DfExpr]) -> Result<Applied> {
        let mut applied = self.clone();
        for filter in filters {
            let own = filter.clone().transform(|e| match &e {
                DfExpr::Column(column) => {
                    let at = self.passed_on(column).expect("invariant: only such conditions are taken");
                    Ok(Transformed::yes(DfExpr::Column(self.input.schema().qualified_field(at).into())))
                }
                _ => Ok(Transformed::no(e)),
            })?;
            applied.input = LogicalPlanBuilder::from(applied.input).filter(own.data)?.build()?;
        }
        Ok(applied)
    }
}

impl TableProvider for Applied {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&DfExpr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&DfExpr| match self.is_of_input(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(taken).collect())
    }

    // What `async_trait` would write: the trait asks for a boxed future.
    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        _: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        filters: &'c [DfExpr],
        _: Option<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'f>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
        Self: 'f,
    {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let made = self.of_those(filters).and_then(|applied| ApplyExec::new(Arc::new(applied), columns));
        Box::pin(async move { Ok(Arc::new(made?) as Arc<dyn ExecutionPlan>) })
    }
}

#[derive(Clone, Debug)]
pub struct ApplyExec {
    applied: Arc<Applied>,
    columns: Vec<usize>,
    stopped: Stopped,
    counts: Arc<Counts>,
    /// Of recursions around it, which its plans may read.
    readings: Vec<Reading>,
    /// What holes in its plans stand for, where it is part of a plan that is kept for many rows.
    around: Vec<ScalarValue>,
    kept: Arc<Kept>,
    properties: Arc<PlanProperties>,
}

/// Its plans, for all rows around.
#[derive(Debug, Default)]
struct Kept {
    input: Mutex<Plan>,
    subplan: Mutex<Plan>,
}

/// How a plan is made for a row's values.
#[derive(Debug, Default)]
enum Plan {
    /// The first row may be the only one.
    #[default]
    Unasked,
    Asked,
    Kept(PerRow),
    /// By the values of each.
    ForEach,
}

impl Plan {
    /// Made with these values' places open.
    fn open(plan: Result<LogicalPlan>, like: &[ScalarValue]) -> Plan {
        plan.ok().and_then(|plan| PerRow::new(plan, like)).map_or(Plan::ForEach, Plan::Kept)
    }

    /// The plan that is kept, with a row's values; `None`: one is to be made for them.
    fn physical(&self, values: &[ScalarValue]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match self {
            Plan::Kept(kept) => kept.physical(values),
            _ => Ok(None),
        }
    }
}

/// How often a subquery ran, and how often it was planned for that.
#[derive(Debug, Default)]
pub struct Counts {
    pub runs: AtomicU64,
    pub plans: AtomicU64,
}

impl ApplyExec {
    fn new(applied: Arc<Applied>, columns: Vec<usize>) -> Result<ApplyExec> {
        let schema = Arc::new(applied.schema.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(ApplyExec {
            applied,
            columns,
            stopped: Stopped::default(),
            counts: Arc::default(),
            readings: Vec::new(),
            around: Vec::new(),
            kept: Arc::default(),
            properties: Arc::new(properties),
        })
    }

    /// The same, stopped with its query.
    pub fn stopping(&self, stopped: &Stopped) -> ApplyExec {
        ApplyExec { stopped: stopped.clone(), ..self.clone() }
    }

    /// The same within a recursion, or within the same one that runs anew.
    pub fn reading(&self, of: &Reading) -> ApplyExec {
        let others = self.readings.iter().filter(|known| known.recursion != of.recursion);
        ApplyExec { readings: others.chain([of]).cloned().collect(), ..self.clone() }
    }

    /// The same with values in the holes of its plans.
    pub fn at(&self, values: &[ScalarValue]) -> ApplyExec {
        ApplyExec { around: values.to_vec(), ..self.clone() }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Runs a plan with all its values.
    async fn started(&self, plan: &LogicalPlan, context: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        // Plans within plans: the future is boxed to have a size.
        let mut physical = Box::pin(planning().create_physical_plan(plan)).await?;
        for reading in &self.readings {
            physical = reading.within(physical)?;
        }
        self.executed(physical, context)
    }

    fn executed(
        &self,
        physical: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        execute_stream(interruptible(physical, &self.stopped)?, context.clone())
    }
}

impl DisplayAs for ApplyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.applied.kind {
            Kind::Scalar => "scalar",
            Kind::Row => "row",
            Kind::Exists { .. } => "exists",
            Kind::Quantified { .. } | Kind::Member { .. } => "compared",
            Kind::Array(_) => "array",
            Kind::Lateral { .. } => "lateral",
        };
        write!(f, "SubqueryPerRow: {what}")
    }
}

impl ExecutionPlan for ApplyExec {
    fn name(&self) -> &str {
        "SubqueryPerRow"
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

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let run = Run { of: self.clone(), schema: schema.clone(), context, input: None, known: HashMap::new() };
        let batches =
            futures::stream::try_unfold(run, |mut run| async move { Ok(run.next().await?.map(|batch| (batch, run))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Results kept for rows with the same values.
const KNOWN_MAX: usize = 10_000;

/// Inner rows, or what they come to.
#[derive(Clone)]
enum Inner {
    Value(Datum),
    Rows(Arc<Vec<Vec<Datum>>>),
    Set(Arc<Members>),
}

/// The values of a subquery's only column, to be looked up in.
struct Members {
    keys: HashSet<Box<[u8]>>,
    has_null: bool,
}

impl Members {
    fn of(ty: Type, rows: &[Vec<Datum>]) -> Members {
        let mut members = Members { keys: HashSet::with_capacity(rows.len()), has_null: false };
        for value in rows.iter().flatten() {
            match value {
                Datum::Null => members.has_null = true,
                value => drop(members.keys.insert(key_of(ty, &value.as_value()))),
            }
        }
        members
    }

    /// Whether a value is one of them; null where a null leaves it open.
    fn have(&self, ty: Type, value: &Value<'_>, negated: bool) -> Datum {
        let is_empty = self.keys.is_empty() && !self.has_null;
        match value {
            _ if is_empty => Datum::Bool(negated),
            Value::Null => Datum::Null,
            value if self.keys.contains(&key_of(ty, value)) => Datum::Bool(!negated),
            _ if self.has_null => Datum::Null,
            _ => Datum::Bool(negated),
        }
    }
}

fn key_of(ty: Type, value: &Value<'_>) -> Box<[u8]> {
    let mut key = Vec::new();
    encode_key(ty, value, &mut key);
    key.into()
}

struct Run {
    of: ApplyExec,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    input: Option<SendableRecordBatchStream>,
    known: HashMap<Box<[u8]>, Inner>,
}

impl Run {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.input.is_none() {
            self.input = Some(self.rows_around().await?);
        }
        let input = self.input.as_mut().expect("it was just started");
        match input.next().await {
            None => Ok(None),
            Some(batch) => Ok(Some(self.batch(batch?).await?)),
        }
    }

    /// The rows that the subquery runs for.
    async fn rows_around(&mut self) -> Result<SendableRecordBatchStream> {
        let (of, context) = (&self.of, &self.context);
        let ApplyExec { applied, around, kept, .. } = of;
        if around.is_empty() {
            return of.started(&applied.input, context).await;
        }
        let physical = {
            let mut plan = kept.input.lock();
            if matches!(*plan, Plan::Unasked) {
                *plan = Plan::open(Ok(applied.input.clone()), around);
            }
            plan.physical(around)?
        };
        match physical {
            Some(physical) => of.executed(physical, context),
            None => of.started(&with_around(applied.input.clone(), around)?, context).await,
        }
    }

    async fn batch(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let applied = self.of.applied.clone();
        let arrays = batch.columns().to_vec();
        let mut kept: Vec<u32> = Vec::with_capacity(batch.num_rows());
        let mut writers: Vec<Writer> = applied.types.iter().map(|ty| Writer::new(*ty, batch.num_rows())).collect();
        for row in 0..batch.num_rows() {
            if self.of.stopped.load(Ordering::Relaxed) {
                return Err(carried(SqlError::new("57014", "canceling statement: nobody waits for it")));
            }
            match self.of_row(&arrays, row).await? {
                Inner::Value(value) => {
                    kept.push(row as u32);
                    writers[0].push(&value.as_value()).map_err(carried)?;
                }
                Inner::Set(_) => unreachable!("invariant: a value was looked up in it"),
                Inner::Rows(rows) => {
                    for inner in rows.iter() {
                        kept.push(row as u32);
                        for (writer, value) in writers.iter_mut().zip(inner) {
                            writer.push(&value.as_value()).map_err(carried)?;
                        }
                    }
                }
            }
        }
        let rows = kept.len();
        let kept = UInt32Array::from(kept);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.of.columns.len());
        let new: Vec<ArrayRef> = writers.iter_mut().map(Writer::finish).collect();
        for &column in &self.of.columns {
            columns.push(match column.checked_sub(applied.width) {
                None => take(&arrays[column], &kept, None)?,
                Some(new_column) => new[new_column].clone(),
            });
        }
        let options = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    async fn of_row(&mut self, arrays: &[ArrayRef], row: usize) -> Result<Inner> {
        let applied = self.of.applied.clone();
        let cells = readable(&arrays[applied.width..])?;
        let (slots, lefts) = cells.split_at(applied.slots);
        if applied.is_guarded && !lefts.last().is_some_and(|guard| matches!(guard.get(row), Value::Bool(true))) {
            return Ok(match applied.kind {
                Kind::Scalar | Kind::Row | Kind::Lateral { .. } => self.nulls(),
                _ => Inner::Value(Datum::Null),
            });
        }
        let mut key = Vec::new();
        for slot in slots {
            // Values that are written differently may give different results: the whole value is the key.
            match slot.get(row) {
                Value::Float(value) => encode_key(Type::Int8, &Value::Int(value.to_bits().cast_signed()), &mut key),
                value => encode_key(Type::Bytea, &value, &mut key),
            }
        }
        let inner = match self.known.get(key.as_slice()) {
            Some(known) => known.clone(),
            None => {
                let literals: Vec<ScalarValue> = arrays[applied.width..applied.width + applied.slots]
                    .iter()
                    .map(|array| ScalarValue::try_from_array(array, row))
                    .collect::<Result<_>>()?;
                let inner = self.run(&literals).await?;
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                // What is about no row is asked once, whatever it gives.
                if !applied.is_volatile || slots.is_empty() {
                    self.known.insert(key.into(), inner.clone());
                }
                inner
            }
        };
        match (&applied.kind, inner) {
            (Kind::Quantified { condition, all, single }, Inner::Rows(rows)) => {
                let left: Vec<Datum> = lefts.iter().map(|cell| cell.get(row).into()).collect();
                let clock = &applied.clock;
                compared(condition, &left, &rows, (*all, *single), clock).map(Inner::Value).map_err(carried)
            }
            (Kind::Member { ty, negated }, Inner::Set(members)) => {
                Ok(Inner::Value(members.have(*ty, &lefts[0].get(row), *negated)))
            }
            (_, inner) => Ok(inner),
        }
    }

    /// The subquery's rows for a row with these values.
    async fn inner_rows(&mut self, literals: &[ScalarValue]) -> Result<SendableRecordBatchStream> {
        let (of, context) = (&self.of, &self.context);
        let ApplyExec { applied, around, kept, counts, .. } = of;
        let (subplan, level) = (applied.subplan.as_ref().expect("invariant: there is a subquery"), applied.level);
        let values = [around, literals].concat();
        counts.runs.fetch_add(1, Ordering::Relaxed);
        let physical = {
            let mut plan = kept.subplan.lock();
            match *plan {
                Plan::Unasked => *plan = Plan::Asked,
                Plan::Asked => {
                    counts.plans.fetch_add(1, Ordering::Relaxed);
                    let hole = |outer: &OuterValue| hole_at(around.len() + outer.slot, outer.ty);
                    *plan = Plan::open(with_values(subplan.clone(), level, &hole), &values);
                }
                Plan::Kept(_) | Plan::ForEach => {}
            }
            plan.physical(&values)?
        };
        if let Some(physical) = physical {
            return of.executed(physical, context);
        }
        counts.plans.fetch_add(1, Ordering::Relaxed);
        let value = |outer: &OuterValue| DfExpr::Literal(literals[outer.slot].clone(), None);
        let plan = with_around(with_values(subplan.clone(), level, &value)?, around)?;
        of.started(&plan, context).await
    }

    async fn run(&mut self, literals: &[ScalarValue]) -> Result<Inner> {
        let mut stream = self.inner_rows(literals).await?;
        let mut rows: Vec<Vec<Datum>> = Vec::new();
        let enough = match self.of.applied.kind {
            Kind::Scalar | Kind::Row | Kind::Quantified { single: true, .. } => 2,
            Kind::Exists { .. } => 1,
            _ => usize::MAX,
        };
        while rows.len() < enough
            && let Some(batch) = stream.next().await
        {
            let batch = batch?;
            let cells = readable(batch.columns())?;
            rows.extend((0..batch.num_rows()).map(|row| cells.iter().map(|c| c.get(row).into()).collect()));
        }
        self.come_to(rows).map_err(carried)
    }

    fn nulls(&self) -> Inner {
        Inner::Rows(Arc::new(vec![vec![Datum::Null; self.of.applied.types.len()]]))
    }

    fn come_to(&self, rows: Vec<Vec<Datum>>) -> Result<Inner, SqlError> {
        Ok(match &self.of.applied.kind {
            Kind::Row if rows.len() > 1 => return Err(second_row()),
            // Whether a second row matters is for whoever wants the value.
            Kind::Scalar => {
                let count = Datum::Int(rows.len() as i64);
                let first = rows.into_iter().next().and_then(|mut row| row.pop());
                Inner::Rows(Arc::new(vec![vec![first.unwrap_or(Datum::Null), count]]))
            }
            Kind::Exists { negated } => Inner::Value(Datum::Bool(rows.is_empty() == *negated)),
            Kind::Member { ty, .. } => Inner::Set(Arc::new(Members::of(*ty, &rows))),
            Kind::Array(element) => {
                let items = rows.into_iter().filter_map(|mut row| row.pop()).collect();
                Inner::Value(match element {
                    Type::Array(inner) => crate::value::nested_arrays(**inner, items)?,
                    element => array_datum(*element, items),
                })
            }
            Kind::Row | Kind::Lateral { left: true } if rows.is_empty() => self.nulls(),
            _ => Inner::Rows(Arc::new(rows)),
        })
    }
}

fn compared(
    condition: &Expr,
    left: &[Datum],
    rows: &[Vec<Datum>],
    (all, single): (bool, bool),
    clock: &Clock,
) -> Result<Datum, SqlError> {
    if single && rows.len() > 1 {
        return Err(second_row());
    }
    let env = Env { clock: clock.clone(), ..Env::default() };
    let mut unknown = single && rows.is_empty();
    for row in rows {
        let cells = [left.to_vec(), row.clone()];
        let frame = Frame { cells: &cells, ..Frame::new(&env) };
        match crate::expr::truth(condition, &frame)? {
            Some(holds) if holds != all => return Ok(Datum::Bool(!all)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(all) })
}

/// The plan with what is given for the values of one level's row.
fn with_values(plan: LogicalPlan, level: u32, value: &dyn Fn(&OuterValue) -> DfExpr) -> Result<LogicalPlan> {
    everywhere(plan, &mut |expr| {
        expr.transform_up(|e| match outer_value(&e) {
            Some(outer) if outer.level == level => Ok(Transformed::yes(value(outer))),
            _ => Ok(Transformed::no(e)),
        })
    })
}

/// The plan with literals in its holes.
fn with_around(plan: LogicalPlan, around: &[ScalarValue]) -> Result<LogicalPlan> {
    if around.is_empty() {
        return Ok(plan);
    }
    everywhere(plan, &mut |expr| match has_hole(&expr) {
        true => Ok(Transformed::yes(filled(expr, around)?)),
        false => Ok(Transformed::no(expr)),
    })
}

/// The plan with other expressions, also in the plans of subqueries that run for each of its rows.
fn everywhere(plan: LogicalPlan, other: &mut dyn FnMut(DfExpr) -> Result<Transformed<DfExpr>>) -> Result<LogicalPlan> {
    let within = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let Some(applied) = applied_of(scan) else { return Ok(Transformed::no(node)) };
        let inner = Applied {
            input: everywhere(applied.input.clone(), other)?,
            subplan: applied.subplan.clone().map(|p| everywhere(p, other)).transpose()?,
            ..applied.clone()
        };
        let mut scan = scan.clone();
        scan.source = provider_as_source(Arc::new(inner));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    with_exprs(within.data, &|_| true, other)
}

fn outer_value(expr: &DfExpr) -> Option<&OuterValue> {
    match expr {
        DfExpr::ScalarFunction(call) => call.func.inner().downcast_ref::<OuterValue>(),
        _ => None,
    }
}

/// The plans that a plan's rows are found by one after the other: of rows that a subquery runs for, and of these subqueries.
pub fn plans_within(plan: &LogicalPlan) -> Vec<LogicalPlan> {
    let mut within = Vec::new();
    let looked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            within.extend(plans_of(scan).into_iter().flatten());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    looked.expect("invariant: looking at a plan does not fail");
    within
}

/// The same of one scan; `None`: it is a table's.
pub fn plans_of(scan: &TableScan) -> Option<Vec<LogicalPlan>> {
    let applied = applied_of(scan)?;
    let input = applied.of_those(&scan.filters).map_or_else(|_| applied.input.clone(), |those| those.input);
    Some([input].into_iter().chain(applied.subplan.clone()).collect())
}

fn applied_of(scan: &TableScan) -> Option<&Applied> {
    let source = scan.source.downcast_ref::<DefaultTableSource>()?;
    source.table_provider.downcast_ref::<Applied>()
}
