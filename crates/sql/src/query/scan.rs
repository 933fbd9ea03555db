//! How does DataFusion read a table? Batches of rows at the statement's snapshot, through an index where the filter gives a key.
//!
//! | filter | served by | pushed down |
//! |---|---|---|
//! | `column op literal`, `column op column`, IN, IS [NOT] NULL, AND and OR of such | the engine's own comparison | exactly |
//! | an expression of the compiled evaluator over the table's columns | that evaluator, on the row | exactly |
//! | anything else | | no |
//!
//! A large table that is read as a whole is read in several partitions, on as many threads (`exchange`): each takes every nth stretch of slots.
//! The rows come from one lease of the session (`freshet_engine::txn::Reader`): own changes are seen, nothing is locked.
//! The provider has one column more than the table: the row id, for changes that are planned as queries.

use super::cells::{Writer, data_type, datum};
use super::compute::Computed;
use super::fault::carried;
use super::template::{filled, has_hole, hole_of};
use crate::error::SqlError;
use crate::explain::{Estimate, Node};
use crate::expr::{Env, Expr, Frame, test};
use crate::statistics::TableStatistics;
use crate::value::operator::BinaryOp;
use crate::value::{Datum, array_items};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{
    ColumnStatistics, Constraint, Constraints, DataFusionError, Result, ScalarValue, Statistics, ToDFSchema,
};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Cast, Expr as DfExpr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use freshet_engine::catalog::{Index, IndexKind, Table};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{KeyBuf, KeyPart, Row, Type, Value};
use freshet_engine::txn::{Batch, Direction, PageCursor, RangeCursor, Reader, RowPicks};
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Rows of one batch.
const BATCH_ROWS: usize = 8192;
/// The same of the first batch of rows in an order, of which few are wanted; each that follows has four times as many.
const FIRST_ROWS: usize = 64;
/// Rows of an index that one lease of the reader visits at most.
const STRETCH_ROWS: usize = 4 * 1024;
/// Slots that one lease of the reader visits at most: a selective filter must not hold it for a whole table. A partition takes so many at a time.
const STRETCH_SLOTS: u64 = 32 * 1024;
/// The name of the row id's column: no SQL identifier can be it.
pub const ROW_ID: &str = "row id";

/// A table at a snapshot. Without a reader it can be planned and not run.
#[derive(Clone, Debug)]
pub struct Snapshot {
    table: Arc<Table>,
    reader: Option<Reader>,
    schema: SchemaRef,
    constraints: Constraints,
    /// What is known of its values.
    known: Option<Arc<TableStatistics>>,
}

impl Snapshot {
    pub fn new(table: Arc<Table>, reader: Option<Reader>, known: Option<Arc<TableStatistics>>) -> Snapshot {
        let columns = table.def.columns.iter();
        let mut fields: Vec<Field> = columns.map(|c| Field::new(&c.name, data_type(c.ty), !c.not_null)).collect();
        fields.push(Field::new(ROW_ID, data_type(Type::Int8), false));
        let constraints = Constraints::new_unverified(unique_keys(&table));
        Snapshot { table, reader, schema: Arc::new(Schema::new(fields)), constraints, known }
    }

    /// At which it is read, if that is known.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// The table at another snapshot.
    pub fn at(&self, reader: Option<&Reader>) -> Snapshot {
        Snapshot { reader: reader.cloned(), ..self.clone() }
    }
}

fn unique_keys(table: &Table) -> Vec<Constraint> {
    let mut keys = vec![Constraint::PrimaryKey(vec![table.def.columns.len()])];
    for index in table.indexes.iter().filter(|i| i.def.unique) {
        let columns: Vec<usize> = index.def.columns.iter().map(|c| usize::from(c.column)).collect();
        // What DataFusion groups by must be equal where the key is: not so for types with a key of their own.
        let plain = columns.iter().all(|&c| super::compute::Key::of(table.def.columns[c].ty).is_none());
        let not_null = columns.iter().all(|&c| table.def.columns[c].not_null);
        match (plain, not_null) {
            (true, true) => keys.push(Constraint::PrimaryKey(columns)),
            (true, false) => keys.push(Constraint::Unique(columns)),
            (false, _) => {}
        }
    }
    keys
}

impl TableProvider for Snapshot {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&DfExpr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let served = |filter: &&DfExpr| match Condition::of(filter, &self.table) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(served).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let rows = self.rows_of(&[]) as usize;
        Some(Statistics::new_unknown(&self.schema).with_num_rows(Precision::Inexact(rows)))
    }

    // What `async_trait` would write: the trait asks for a boxed future.
    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        state: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        filters: &'c [DfExpr],
        limit: Option<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'f>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
        Self: 'f,
    {
        let scan = self.plan_scan(state, projection, filters, limit);
        Box::pin(async move { scan })
    }
}

impl Snapshot {
    fn plan_scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[DfExpr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let is_served = |filter: &&DfExpr| Condition::of(filter, &self.table).is_some();
        let (served, rewritten): (Vec<DfExpr>, Vec<DfExpr>) = filters.iter().cloned().partition(|f| is_served(&f));
        let workers = state.config().target_partitions();
        // The optimizer may give a filter that it was offered another form.
        let Some(rest) = conjunction(rewritten) else {
            let wanted = Wanted { columns, filters: served, limit, in_order: None };
            return Ok(Arc::new(self.scan_of(workers, wanted)?));
        };
        let all = (0..self.schema.fields().len()).collect();
        let wanted = Wanted { columns: all, filters: served, limit: None, in_order: None };
        let predicate = state.create_physical_expr(rest, &self.schema.clone().to_dfschema()?)?;
        let filtered = Arc::new(FilterExec::try_new(predicate, Arc::new(self.scan_of(workers, wanted)?))?);
        let given = columns.iter().map(|&c| {
            let name = self.schema.field(c).name();
            ProjectionExpr { expr: Arc::new(PhysicalColumn::new(name, c)), alias: name.clone() }
        });
        Ok(Arc::new(ProjectionExec::try_new(given, filtered)?))
    }

    fn scan_of(&self, workers: usize, wanted: Wanted) -> Result<SnapshotScan> {
        let Wanted { columns, filters, limit, in_order } = &wanted;
        let schema = Arc::new(self.schema.project(columns)?);
        let told = self.told(filters, columns);
        let conditions = self.conditions(filters);
        // What a hole is filled with may be anything; there is no row with a null.
        let path = if !filters.iter().any(has_hole) && conditions.iter().any(Condition::is_never) {
            Path::Nothing
        } else {
            match in_order {
                Some(order) => order.path(&conditions),
                None => self.path_for(&conditions),
            }
        };
        let partitions = match (&path, limit) {
            (Path::All, None) => self.partitions(workers),
            _ => 1,
        };
        let order = in_order.as_ref().map(|order| order.sort_exprs(&schema));
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema.clone(), order),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let is_key = |filter: &&DfExpr| Condition::of(filter, &self.table).is_some_and(|c| path.finds_by(&c));
        let (keyed, shown): (Vec<&DfExpr>, Vec<&DfExpr>) = filters.iter().partition(is_key);
        let texts = |list: Vec<&DfExpr>| list.into_iter().map(ToString::to_string).collect();
        let (keyed, shown) = (texts(keyed), texts(shown));
        Ok(SnapshotScan {
            scan: Arc::new(Scan::new(&self.table, &wanted, conditions, path, schema, partitions)),
            reader: self.reader.clone(),
            told,
            keyed,
            shown,
            of: Arc::new(Origin { snapshot: self.at(None), wanted }),
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::NonCooperative)),
        })
    }

    /// What filters come to, each for itself.
    fn conditions(&self, filters: &[DfExpr]) -> Vec<Condition> {
        let served = filters.iter().filter_map(|f| Condition::of(f, &self.table));
        let parts = served.flat_map(|c| match c {
            Condition::All(list) => list,
            one => vec![one],
        });
        parts.collect()
    }
}

impl Snapshot {
    /// In how many parts it is worth reading.
    fn partitions(&self, most: usize) -> usize {
        let stretches = usize::try_from(self.table.slots() / STRETCH_SLOTS).unwrap_or(usize::MAX);
        stretches.clamp(1, most.max(1))
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Rows for which these filters hold, estimated.
    pub fn rows_of(&self, filters: &[DfExpr]) -> f64 {
        let all = self.known.as_ref().map_or(self.table.slots() as f64, |known| known.rows_of(&self.table));
        // Nobody knows what is to come where a hole is all that is asked.
        let filters: Vec<DfExpr> = filters.iter().filter(|f| hole_of(f).is_none()).cloned().collect();
        (all * super::estimate::share(&self.conditions(&filters), &self.table, self.known.as_deref())).max(1.0)
    }

    /// Distinct values of a column, estimated.
    pub fn distinct(&self, column: &str) -> Option<f64> {
        let at = self.table.column(column)?;
        if let Some(values) = self.known.as_ref().and_then(|k| k.column(column, self.table.def.columns[at].ty)) {
            return Some(values.distinct);
        }
        let is_key = |index: &&Arc<Index>| {
            index.def.unique && index.def.columns.len() == 1 && usize::from(index.def.columns[0].column) == at
        };
        self.table.indexes.iter().find(is_key).map(|_| self.rows_of(&[]))
    }

    /// What DataFusion is told of a scan.
    fn told(&self, filters: &[DfExpr], columns: &[usize]) -> Statistics {
        let rows = self.rows_of(filters);
        let one = |&column: &usize| {
            let name = self.schema.field(column).name();
            let distinct = self.distinct(name).map_or(Precision::Absent, |d| Precision::Inexact(d.min(rows) as usize));
            ColumnStatistics { distinct_count: distinct, ..ColumnStatistics::new_unknown() }
        };
        Statistics {
            num_rows: Precision::Inexact(rows as usize),
            total_byte_size: Precision::Absent,
            column_statistics: columns.iter().map(one).collect(),
        }
    }
}

/// A filter that a scan decides by itself. Only TRUE passes, so that neither NOT nor unknown needs a place.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    Compare {
        column: usize,
        op: BinaryOp,
        with: Datum,
    },
    /// Both columns are of one type.
    Columns {
        left: usize,
        op: BinaryOp,
        right: usize,
    },
    /// In the order of the column's type, each value once, no null.
    In {
        column: usize,
        list: Vec<Datum>,
    },
    Null {
        column: usize,
        negated: bool,
    },
    /// What the optimizer made of a condition that is always, or never, true.
    Always(bool),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// An expression of the compiled road, over the row as source 0.
    Computed {
        expr: Expr,
        env: Arc<Env>,
    },
}

impl Condition {
    /// A hole in it stands for a value that is not known yet.
    fn of(filter: &DfExpr, table: &Table) -> Option<Condition> {
        if has_hole(filter) {
            return Condition::of(&filled(filter.clone(), &[]).ok()?, table);
        }
        match filter {
            DfExpr::BinaryExpr(binary) => match binary.op {
                Operator::And => Self::both(&binary.left, &binary.right, table).map(Condition::All),
                Operator::Or => Self::both(&binary.left, &binary.right, table).map(Condition::Any),
                op => {
                    let op = comparison(op)?;
                    if let (Some(left), Some(right)) = (column_of(&binary.left, table), column_of(&binary.right, table))
                    {
                        let columns = &table.def.columns;
                        return (columns.get(left)?.ty == columns.get(right)?.ty).then_some(Condition::Columns {
                            left,
                            op,
                            right,
                        });
                    }
                    match column_and_literal(&binary.left, &binary.right, table) {
                        Some((column, with)) => Some(Condition::compare(column, op, with, table)),
                        None => {
                            let (column, with) = column_and_literal(&binary.right, &binary.left, table)?;
                            Some(Condition::compare(column, mirrored(op), with, table))
                        }
                    }
                }
            },
            DfExpr::Literal(ScalarValue::Boolean(truth), _) => Some(Condition::Always(*truth == Some(true))),
            DfExpr::IsNull(inner) => Some(Condition::Null { column: column_of(inner, table)?, negated: false }),
            DfExpr::IsNotNull(inner) => Some(Condition::Null { column: column_of(inner, table)?, negated: true }),
            DfExpr::InList(list) if !list.negated => {
                let column = column_of(&list.expr, table)?;
                let items = list.list.iter().map(|item| literal_for(item, column, table));
                Some(Condition::among(column, items.collect::<Option<_>>()?, table))
            }
            DfExpr::ScalarFunction(call) => {
                let computed = call.func.inner().downcast_ref::<Computed>()?;
                let arg = |a: &DfExpr| match a {
                    DfExpr::Literal(scalar, _) => Some(Expr::Const(datum(scalar)?)),
                    column => Some(Expr::Column { source: 0, column: column_of(column, table)? as u16 }),
                };
                let args = call.args.iter().map(arg).collect::<Option<Vec<Expr>>>()?;
                let expr = computed.expr().clone().rewrite(&mut |e| match e {
                    Expr::Cell { column, .. } => args.get(usize::from(*column)).cloned(),
                    _ => None,
                });
                if let Some((column, list)) = listed(&expr, table) {
                    return Some(Condition::among(column, list, table));
                }
                let env = Arc::new(Env { clock: computed.clock().clone(), ..Env::default() });
                Some(Condition::Computed { expr, env })
            }
            _ => None,
        }
    }

    /// A number beyond those of the column's type is compared with none of them.
    fn compare(column: usize, op: BinaryOp, with: Datum, table: &Table) -> Condition {
        let (least, greatest) = match (&with, table.def.columns[column].ty) {
            (Datum::Int(_), Type::Int2) => (i64::from(i16::MIN), i64::from(i16::MAX)),
            (Datum::Int(_), Type::Int4) => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let holds_for_all = match with {
            Datum::Int(with) if with < least => matches!(op, BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Ne),
            Datum::Int(with) if with > greatest => matches!(op, BinaryOp::Lt | BinaryOp::Le | BinaryOp::Ne),
            _ => return Condition::Compare { column, op, with },
        };
        if holds_for_all { Condition::Null { column, negated: true } } else { Condition::Always(false) }
    }

    /// Whether it holds for no row.
    fn is_never(&self) -> bool {
        match self {
            Condition::Compare { with, .. } => *with == Datum::Null,
            Condition::In { list, .. } => list.is_empty(),
            Condition::Always(truth) => !truth,
            Condition::All(list) => list.iter().any(Condition::is_never),
            Condition::Any(list) => list.iter().all(Condition::is_never),
            Condition::Columns { .. } | Condition::Null { .. } | Condition::Computed { .. } => false,
        }
    }

    /// That the column's value is one of these.
    fn among(column: usize, mut list: Vec<Datum>, table: &Table) -> Condition {
        let ty = table.layout.column_type(column);
        list.retain(|item| *item != Datum::Null);
        list.sort_by(|a, b| ty.compare(&a.as_value(), &b.as_value()));
        list.dedup_by(|a, b| ty.compare(&a.as_value(), &b.as_value()).is_eq());
        Condition::In { column, list }
    }

    fn both(left: &DfExpr, right: &DfExpr, table: &Table) -> Option<Vec<Condition>> {
        Some(vec![Condition::of(left, table)?, Condition::of(right, table)?])
    }

    /// Columns that are looked at.
    fn columns(&self, out: &mut Vec<usize>) {
        match self {
            Condition::Compare { column, .. } | Condition::In { column, .. } | Condition::Null { column, .. } => {
                out.push(*column);
            }
            Condition::Columns { left, right, .. } => out.extend([*left, *right]),
            Condition::Always(_) => {}
            Condition::All(list) | Condition::Any(list) => list.iter().for_each(|c| c.columns(out)),
            Condition::Computed { expr, .. } => expr.walk(&mut |e| {
                if let Expr::Column { column, .. } = e {
                    out.push(usize::from(*column));
                }
                true
            }),
        }
    }

    fn holds(&self, tables: &[Option<Arc<Table>>; 1], row: &Row) -> Result<bool, SqlError> {
        let table = tables[0].as_ref().expect("invariant: the only source is a table");
        let get = |column: usize| row.get(&table.layout, column);
        Ok(match self {
            Condition::Compare { column, op, with } => {
                let (value, with) = (get(*column), with.as_value());
                !value.is_null() && !with.is_null() && {
                    op.holds(table.layout.column_type(*column).compare(&value, &with))
                }
            }
            Condition::Columns { left, op, right } => {
                let (a, b) = (get(*left), get(*right));
                !a.is_null() && !b.is_null() && op.holds(table.layout.column_type(*left).compare(&a, &b))
            }
            Condition::In { column, list } => {
                let (value, ty) = (get(*column), table.layout.column_type(*column));
                !value.is_null() && list.binary_search_by(|item| ty.compare(&item.as_value(), &value)).is_ok()
            }
            Condition::Null { column, negated } => row.is_null(&table.layout, *column) != *negated,
            Condition::Always(truth) => *truth,
            Condition::All(list) => {
                for condition in list {
                    if !condition.holds(tables, row)? {
                        return Ok(false);
                    }
                }
                true
            }
            Condition::Any(list) => {
                for condition in list {
                    if condition.holds(tables, row)? {
                        return Ok(true);
                    }
                }
                false
            }
            Condition::Computed { expr, env } => {
                test(expr, &Frame { tables, rows: std::slice::from_ref(row), ..Frame::new(env) })?
            }
        })
    }
}

/// The column and the values of `column = ANY (array)`, where no element has to be converted.
fn listed(expr: &Expr, table: &Table) -> Option<(usize, Vec<Datum>)> {
    let Expr::Quantified { operator, left, array, all: false, .. } = expr else { return None };
    let (Expr::Column { column, .. }, Expr::Const(array)) = (left.as_ref(), array.as_ref()) else { return None };
    let column = usize::from(*column);
    let ty = table.def.columns.get(column)?.ty;
    if operator.op != BinaryOp::Eq || (operator.left, operator.right) != (ty, ty) {
        return None;
    }
    let items = match array {
        Datum::Bytes(stored) => array_items(ty, stored),
        _ => Vec::new(),
    };
    Some((column, items))
}

fn comparison(op: Operator) -> Option<BinaryOp> {
    Some(match op {
        Operator::Eq => BinaryOp::Eq,
        Operator::NotEq => BinaryOp::Ne,
        Operator::Lt => BinaryOp::Lt,
        Operator::LtEq => BinaryOp::Le,
        Operator::Gt => BinaryOp::Gt,
        Operator::GtEq => BinaryOp::Ge,
        _ => return None,
    })
}

fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        symmetric => symmetric,
    }
}

fn column_of(expr: &DfExpr, table: &Table) -> Option<usize> {
    match expr {
        DfExpr::Column(column) => table.column(&column.name),
        _ => None,
    }
}

fn column_and_literal(column: &DfExpr, literal: &DfExpr, table: &Table) -> Option<(usize, Datum)> {
    if let DfExpr::Cast(cast) = column {
        return widened_and_literal(cast, literal, table);
    }
    let column = column_of(column, table)?;
    Some((column, literal_for(literal, column, table)?))
}

/// A column of integers as wider ones, and a literal of these: an optimizer takes such a cast away where it knows the value, and not where that is a hole.
fn widened_and_literal(cast: &Cast, literal: &DfExpr, table: &Table) -> Option<(usize, Datum)> {
    let bytes = |ty: &DataType| match ty {
        DataType::Int16 => Some(2),
        DataType::Int32 => Some(4),
        DataType::Int64 => Some(8),
        _ => None,
    };
    let column = column_of(&cast.expr, table)?;
    let (own, wide) = (table.def.columns[column].ty, cast.field.data_type());
    let is_integer = matches!(own, Type::Int2 | Type::Int4);
    match literal {
        DfExpr::Literal(scalar, _)
            if is_integer && bytes(&data_type(own))? < bytes(wide)? && scalar.data_type() == *wide =>
        {
            Some((column, datum(scalar)?))
        }
        _ => None,
    }
}

/// The literal, if it is of exactly the column's type.
fn literal_for(expr: &DfExpr, column: usize, table: &Table) -> Option<Datum> {
    let ty = table.def.columns[column].ty;
    match expr {
        DfExpr::Literal(scalar, _) if scalar.data_type() == data_type(ty) => datum(scalar),
        _ => None,
    }
}

/// How rows are found. Each gives a superset of what the conditions want.
#[derive(Debug)]
enum Path {
    All,
    /// The whole key is given.
    Lookup {
        index: Arc<Index>,
        key: Vec<Datum>,
    },
    /// Equal values for a prefix of an ordered key, and perhaps bounds on the next column.
    Range {
        index: Arc<Index>,
        equal: Vec<Datum>,
        lower: Option<Datum>,
        upper: Option<Datum>,
        direction: Direction,
    },
    /// The rows of all of these, each once: of a list's values, of the arms of an OR.
    Several(Vec<Path>),
    /// There are none.
    Nothing,
}

/// What it costs to look a key up, and to fetch a row of an index, in rows that are read one after another.
const LOOKUP_ROWS: f64 = 2.0;

impl Snapshot {
    /// How the rows for which all these hold are found: by the index that leads to the fewest, by several look-ups where that is less.
    fn path_for(&self, conditions: &[Condition]) -> Path {
        let all: Vec<&Condition> = conditions.iter().collect();
        let mut best: Option<(f64, usize, Path)> = None;
        for index in &self.table.indexes {
            let Some((worth, path)) = Path::through(index, &all) else { continue };
            let cost = LOOKUP_ROWS + LOOKUP_ROWS * self.rows_by(&path, conditions);
            let is_better =
                best.as_ref().is_none_or(|(least, most, _)| cost < *least || cost == *least && worth > *most);
            if is_better {
                best = Some((cost, worth, path));
            }
        }
        let limit = best.as_ref().map_or(self.table.slots() as f64, |(cost, ..)| *cost);
        match self.several(conditions, limit) {
            Some(path) => path,
            None => best.map_or(Path::All, |(_, _, path)| path),
        }
    }

    /// Rows that a path leads to, estimated.
    fn rows_by(&self, path: &Path, conditions: &[Condition]) -> f64 {
        if path.is_of_one_row() {
            return 1.0;
        }
        let used: Vec<Condition> = conditions.iter().filter(|c| path.finds_by(c)).cloned().collect();
        self.rows_of(&[]) * super::estimate::share(&used, &self.table, self.known.as_deref())
    }

    /// The cheapest of the lists and ORs that lead to rows through indexes, if it costs less than this.
    fn several(&self, conditions: &[Condition], mut limit: f64) -> Option<Path> {
        let mut best = None;
        for (at, condition) in conditions.iter().enumerate() {
            let arms = match condition {
                Condition::In { list, .. } => list.len(),
                Condition::Any(arms) => arms.len(),
                _ => continue,
            };
            if arms as f64 * LOOKUP_ROWS >= limit {
                continue;
            }
            let rest = conditions[..at].iter().chain(&conditions[at + 1..]).collect();
            let Some(paths) = self.arms(condition, rest) else { continue };
            let rows = match paths.iter().all(Path::is_of_one_row) {
                true => paths.len() as f64,
                false => {
                    self.rows_of(&[])
                        * super::estimate::share(std::slice::from_ref(condition), &self.table, self.known.as_deref())
                }
            };
            let cost = LOOKUP_ROWS * (paths.len() as f64 + rows);
            if cost < limit {
                (limit, best) = (cost, Some(Path::Several(paths)));
            }
        }
        best
    }

    /// A path for each value or arm, beside what else holds; none if one of them leads through no index.
    fn arms<'c>(&self, condition: &'c Condition, mut beside: Vec<&'c Condition>) -> Option<Vec<Path>> {
        let through = |index: &Arc<Index>, conditions: &[&Condition]| Path::through(index, conditions);
        match condition {
            Condition::In { column, list } => {
                let equal = |item: &Datum| Condition::Compare { column: *column, op: BinaryOp::Eq, with: item.clone() };
                let first = equal(list.first()?);
                let asked =
                    |item: &Condition, index: &Arc<Index>| through(index, &[beside.as_slice(), &[item]].concat());
                let usable = self.table.indexes.iter().filter_map(|index| {
                    let (worth, path) = asked(&first, index)?;
                    path.finds_by(&first).then_some((worth, index))
                });
                let (_, index) = usable.max_by_key(|(worth, _)| *worth)?;
                list.iter().map(|item| asked(&equal(item), index).map(|(_, path)| path)).collect()
            }
            Condition::Any(arms) => {
                let count = beside.len();
                let path_of = |arm: &'c Condition| {
                    beside.truncate(count);
                    match arm {
                        Condition::All(list) => beside.extend(list),
                        one => beside.push(one),
                    }
                    let paths = self.table.indexes.iter().filter_map(|index| through(index, &beside));
                    let own = paths.filter(|(_, path)| beside[count..].iter().any(|c| path.finds_by(c)));
                    own.max_by_key(|(worth, _)| *worth).map(|(_, path)| path)
                };
                arms.iter().filter(|arm| !arm.is_never()).map(path_of).collect()
            }
            _ => None,
        }
    }
}

impl Path {
    fn is_of_one_row(&self) -> bool {
        matches!(self, Path::Lookup { index, .. } if index.def.unique)
    }

    /// The index, if there is but one.
    fn index(&self) -> Option<&Arc<Index>> {
        match self {
            Path::All | Path::Nothing => None,
            Path::Lookup { index, .. } | Path::Range { index, .. } => Some(index),
            Path::Several(paths) => {
                let first = paths.first()?.index()?;
                let is_same = |path: &Path| path.index().is_some_and(|index| Arc::ptr_eq(index, first));
                paths.iter().all(is_same).then_some(first)
            }
        }
    }

    /// By name, each once.
    fn index_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match self {
            Path::Several(paths) => paths.iter().flat_map(Path::index_names).collect(),
            one => one.index().map(|index| index.def.name.as_str()).into_iter().collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    /// One after the other.
    fn arm(&self, at: usize) -> Option<&Path> {
        match self {
            Path::Several(paths) => paths.get(at),
            one => (at == 0).then_some(one),
        }
    }

    /// Whether it finds its rows by this condition, among others.
    fn finds_by(&self, condition: &Condition) -> bool {
        let (index, equal, bounded) = match self {
            Path::All | Path::Nothing => return false,
            Path::Several(paths) => {
                return match condition {
                    Condition::Compare { .. } => paths.iter().all(|path| path.finds_by(condition)),
                    Condition::In { column, .. } => {
                        let is_key =
                            |index: &Arc<Index>| index.def.columns.iter().any(|c| usize::from(c.column) == *column);
                        self.index().is_some_and(is_key)
                    }
                    Condition::Any(arms) => arms.iter().filter(|arm| !arm.is_never()).count() == paths.len(),
                    _ => false,
                };
            }
            Path::Lookup { index, key } => (index, key.len(), false),
            Path::Range { index, equal, lower, upper, .. } => (index, equal.len(), lower.is_some() || upper.is_some()),
        };
        let Condition::Compare { column, op, .. } = condition else { return false };
        let at = index.def.columns.iter().position(|c| usize::from(c.column) == *column);
        at.is_some_and(|at| match op {
            BinaryOp::Eq => at < equal,
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => bounded && at == equal,
            _ => false,
        })
    }

    /// The path through an index and its worth, if the conditions give a key.
    fn through(index: &Arc<Index>, conditions: &[&Condition]) -> Option<(usize, Path)> {
        let equal_to = |wanted: usize| {
            conditions.iter().find_map(|c| match c {
                Condition::Compare { column, op: BinaryOp::Eq, with } if *column == wanted => Some(with.clone()),
                _ => None,
            })
        };
        let columns: Vec<usize> = index.def.columns.iter().map(|c| usize::from(c.column)).collect();
        let equal: Vec<Datum> = columns.iter().map_while(|&c| equal_to(c)).collect();
        if equal.len() == columns.len() {
            let worth = 100 + columns.len() + usize::from(index.def.unique) * 1000;
            return Some((worth, Path::Lookup { index: index.clone(), key: equal }));
        }
        if index.def.kind == IndexKind::Hash {
            return None;
        }
        let next = columns[equal.len()];
        let bound = |ops: [BinaryOp; 2]| {
            conditions.iter().find_map(|c| match c {
                Condition::Compare { column, op, with }
                    if *column == next && ops.contains(op) && *with != Datum::Null =>
                {
                    Some(with.clone())
                }
                _ => None,
            })
        };
        let lower = bound([BinaryOp::Gt, BinaryOp::Ge]);
        let upper = bound([BinaryOp::Lt, BinaryOp::Le]);
        let worth = equal.len() * 4 + usize::from(lower.is_some()) + usize::from(upper.is_some());
        (worth > 0)
            .then(|| (worth, Path::Range { index: index.clone(), equal, lower, upper, direction: Direction::Forward }))
    }
}

/// The order of an index, or its reverse, that rows are given in.
#[derive(Clone, Debug)]
struct InOrder {
    index: Arc<Index>,
    direction: Direction,
    /// As it was asked for, by place among the scan's columns. The nodes above rely on it.
    keys: Vec<(usize, SortOptions)>,
    /// Rows that are looked at where each one meets the conditions.
    rows: f64,
}

impl InOrder {
    fn sort_exprs(&self, schema: &Schema) -> Vec<PhysicalSortExpr> {
        let expr = |place: usize| Arc::new(PhysicalColumn::new(schema.field(place).name(), place));
        self.keys.iter().map(|(place, options)| PhysicalSortExpr::new(expr(*place), *options)).collect()
    }

    /// As much of the index as the conditions leave.
    fn path(&self, conditions: &[Condition]) -> Path {
        let InOrder { index, direction, .. } = self.clone();
        match Path::through(&index, &conditions.iter().collect::<Vec<_>>()) {
            Some((_, Path::Range { equal, lower, upper, .. })) => Path::Range { index, equal, lower, upper, direction },
            // Its rows have one key.
            Some((_, lookup)) => lookup,
            None => Path::Range { index, equal: Vec::new(), lower: None, upper: None, direction },
        }
    }
}

/// Of rows that come in order, one of so many passes what DataFusion asks of them: its default, too.
const PASSING: f64 = 5.0;
/// What it costs to plan a query, in rows that are read.
const PLANNING_ROWS: f64 = 3_000.0;

impl Snapshot {
    /// The index through which the first rows in an order are found for the least, if that is less than to find all of them by a path and to sort.
    fn order_by_index(&self, wanted: &Wanted, path: &Path, first: &First<'_>) -> Option<InOrder> {
        let conditions = self.conditions(&wanted.filters);
        let met = self.rows_of(&wanted.filters);
        let rows = first.count as f64 * if first.is_filtered { PASSING } else { 1.0 };
        let orders = self.table.indexes.iter().filter_map(|index| {
            let direction = self.direction(index, first, &conditions)?;
            let order = InOrder { index: index.clone(), direction, keys: Vec::new(), rows };
            Some((self.cost_in_order(&order, &conditions, met), order))
        });
        let (least, order) = orders.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least <= self.cost_of_all(path, &conditions)).then_some(order)
    }

    /// Of the first rows, where so many meet the conditions.
    fn cost_in_order(&self, order: &InOrder, conditions: &[Condition], met: f64) -> f64 {
        let rows = self.rows_by(&order.path(conditions), conditions).max(1.0);
        LOOKUP_ROWS + LOOKUP_ROWS * rows.min(order.rows * (rows / met).max(1.0))
    }

    fn cost_of_all(&self, path: &Path, conditions: &[Condition]) -> f64 {
        match path {
            Path::All => self.table.slots() as f64,
            path => LOOKUP_ROWS + LOOKUP_ROWS * self.rows_by(path, conditions),
        }
    }

    /// Whether all rows, now that the values are known, are found and sorted for less than the first ones in this order, planning included.
    fn is_better_sorted(&self, order: &InOrder, filters: &[DfExpr]) -> bool {
        let conditions = self.conditions(filters);
        if conditions.iter().any(Condition::is_never) {
            return false;
        }
        let first = self.cost_in_order(order, &conditions, self.rows_of(filters));
        first > PLANNING_ROWS && first > PLANNING_ROWS + self.cost_of_all(&self.path_for(&conditions), &conditions)
    }

    /// How an index is read to give rows in an order. Columns that all rows have one value of say nothing of it.
    fn direction(&self, index: &Index, first: &First<'_>, conditions: &[Condition]) -> Option<Direction> {
        if index.def.kind != IndexKind::BTree {
            return None;
        }
        let is_one = |column: usize| {
            let equal =
                |c: &Condition| matches!(c, Condition::Compare { column: of, op: BinaryOp::Eq, .. } if *of == column);
            conditions.iter().any(equal)
        };
        let has_value = |column: usize| {
            let compared = |c: &Condition| matches!(c, Condition::Compare { column: of, .. } if *of == column);
            self.table.def.columns[column].not_null || conditions.iter().any(compared)
        };
        if first.has_values && first.keys.iter().any(|(key, options)| options.nulls_first && !has_value(*key)) {
            return None;
        }
        let mut columns = index.def.columns.iter().filter(|c| !is_one(usize::from(c.column)));
        let mut direction = None;
        for (key, options) in first.keys.iter().filter(|(key, _)| !is_one(*key)) {
            let column = columns.next().filter(|column| usize::from(column.column) == *key)?;
            let of = &self.table.def.columns[*key];
            // Nulls are the largest values of an index.
            let nulls_are_there = of.not_null || options.nulls_first == options.descending;
            if !nulls_are_there || !is_sorted_alike(of.ty) {
                return None;
            }
            let needed = if column.descending == options.descending { Direction::Forward } else { Direction::Backward };
            if *direction.get_or_insert(needed) != needed {
                return None;
            }
        }
        Some(direction.unwrap_or(Direction::Forward))
    }
}

/// Whether DataFusion sorts the type's values as an index does. Those with a key of their own it never sorts by themselves.
fn is_sorted_alike(ty: Type) -> bool {
    let of_numbers = matches!(ty.unrounded(), Type::Bool | Type::Int2 | Type::Int4 | Type::Int8 | Type::Decimal { .. });
    let of_time = matches!(ty.unrounded(), Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz);
    of_numbers || of_time || matches!(ty, Type::Text | Type::Varchar(_) | Type::Uuid | Type::Bytea)
}

/// The ends of a range in the index's own words.
fn range_ends(index: &Index, equal: &[Datum], lower: Option<&Datum>, upper: Option<&Datum>) -> (KeyBuf, KeyBuf) {
    let descending = index.def.columns[equal.len()].descending;
    let (first, last) = if descending { (upper, lower) } else { (lower, upper) };
    let mut low = KeyBuf::default();
    index.spec.encode(&mut low, |i| match (i.cmp(&equal.len()), first) {
        (std::cmp::Ordering::Less, _) => KeyPart::Value(equal[i].as_value()),
        (std::cmp::Ordering::Equal, Some(bound)) => KeyPart::Value(bound.as_value()),
        _ => KeyPart::Lowest,
    });
    let mut high = KeyBuf::default();
    index.spec.encode(&mut high, |i| match (i.cmp(&equal.len()), last) {
        (std::cmp::Ordering::Less, _) => KeyPart::Value(equal[i].as_value()),
        (std::cmp::Ordering::Equal, Some(bound)) => KeyPart::Value(bound.as_value()),
        _ => KeyPart::Highest,
    });
    index.spec.pad_high(&mut high);
    (low, high)
}

#[derive(Debug)]
struct Scan {
    /// The one table, as the evaluator takes sources.
    tables: [Option<Arc<Table>>; 1],
    table: Arc<Table>,
    /// Positions in the provider's schema.
    columns: Vec<usize>,
    /// The cheap ones first.
    conditions: Vec<Test>,
    path: Path,
    limit: Option<usize>,
    is_in_order: bool,
    schema: SchemaRef,
    partitions: usize,
    /// What a full scan copies of a row.
    picks: RowPicks,
    /// Variable-length columns that are given.
    given: Vec<usize>,
}

/// A condition, and the variable-length columns that it looks at: a long value is fetched only for a row that passed what came before.
#[derive(Debug)]
struct Test {
    condition: Condition,
    variable: Vec<usize>,
}

impl Test {
    /// A comparison of what lies in the row costs least, the evaluator most: what may fail is asked of the rows that are left, as in PostgreSQL.
    fn rank(&self) -> (u8, usize) {
        match &self.condition {
            Condition::Computed { expr, .. } => (2, expr.operators()),
            _ => (u8::from(!self.variable.is_empty()), 0),
        }
    }
}

impl Scan {
    fn new(
        table: &Arc<Table>,
        wanted: &Wanted,
        conditions: Vec<Condition>,
        path: Path,
        schema: SchemaRef,
        partitions: usize,
    ) -> Scan {
        let (columns, limit, is_in_order) = (wanted.columns.clone(), wanted.limit, wanted.in_order.is_some());
        let mut looked_at = Vec::new();
        conditions.iter().for_each(|c| c.columns(&mut looked_at));
        let is_own = |c: &usize| *c < table.def.columns.len();
        let picked = looked_at.iter().chain(&columns).copied().filter(is_own);
        let picks = RowPicks::of(table, picked.map(|c| c as u16));
        let variable = |c: &usize| is_own(c) && table.layout.column_type(*c).is_variable();
        let given = columns.iter().copied().filter(variable).collect();
        let test = |condition: Condition| {
            let mut looked_at = Vec::new();
            condition.columns(&mut looked_at);
            looked_at.retain(variable);
            looked_at.sort_unstable();
            looked_at.dedup();
            Test { condition, variable: looked_at }
        };
        let mut conditions: Vec<Test> = conditions.into_iter().map(test).collect();
        conditions.sort_by_key(Test::rank);
        let tables = [Some(table.clone())];
        let table = table.clone();
        Scan { tables, table, columns, conditions, path, limit, is_in_order, schema, partitions, picks, given }
    }
}

/// Where a scan stands between batches.
enum Position {
    Slots(PageCursor),
    Candidates(Vec<RowId>, usize),
    Entries(Box<RangeCursor>),
    Start,
    End,
}

/// A scan in progress, or a partition of one.
struct Progress {
    scan: Arc<Scan>,
    reader: Reader,
    position: Position,
    /// Where the partition's stretch ends.
    stretch_end: u64,
    /// Slots when the scan began: rows of later ones are not of its snapshot.
    slots: u64,
    left: usize,
    /// Of the next batch, at most.
    batch_rows: usize,
    row: Row,
    /// Which of several paths is being followed, and the rows that they gave.
    arm: usize,
    given: HashSet<RowId>,
}

impl Progress {
    fn new(scan: Arc<Scan>, reader: Reader, partition: usize) -> Progress {
        let first = partition as u64 * STRETCH_SLOTS;
        let position = match scan.path {
            Path::All => Position::Slots(PageCursor::at(first)),
            _ => Position::Start,
        };
        let (slots, left) = (scan.table.slots(), scan.limit.unwrap_or(usize::MAX));
        let batch_rows = if scan.is_in_order { FIRST_ROWS } else { BATCH_ROWS };
        Progress {
            scan,
            reader,
            position,
            stretch_end: first + STRETCH_SLOTS,
            slots,
            left,
            batch_rows,
            row: Row::default(),
            arm: 0,
            given: HashSet::new(),
        }
    }

    /// Where the lease that begins may read to: past the end of a stretch the partition's next one begins.
    fn stretch(&mut self) -> u64 {
        let Position::Slots(cursor) = &mut self.position else {
            return 0;
        };
        if cursor.position() >= self.stretch_end {
            let next = self.stretch_end + (self.scan.partitions as u64 - 1) * STRETCH_SLOTS;
            self.stretch_end = next + STRETCH_SLOTS;
            *cursor = PageCursor::at(next);
        }
        self.slots.min(self.stretch_end)
    }

    /// The next batch that has rows.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let scan = self.scan.clone();
        while self.left > 0 && !matches!(self.position, Position::End) {
            let rows = self.batch_rows.min(self.left);
            self.batch_rows = BATCH_ROWS.min(4 * self.batch_rows);
            let mut out = Output::new(&scan, rows);
            let reader = self.reader.clone();
            let read = reader.batch(|batch| self.fill(batch, &mut out, rows));
            let ended = |_| SqlError::new("57014", "canceling statement: its snapshot was given up");
            read.map_err(ended).and_then(|filled| filled).map_err(carried)?;
            if out.rows > 0 {
                self.left -= out.rows;
                return out.finish(&scan).map(Some);
            }
        }
        Ok(None)
    }

    fn fill(&mut self, batch: &mut Batch<'_>, out: &mut Output, rows: usize) -> Result<(), SqlError> {
        let scan = self.scan.clone();
        if matches!(self.position, Position::Start) {
            self.position = start(&scan, self.arm, batch);
        }
        let slots_end = self.stretch();
        let mut looked_at = 0;
        while out.rows < rows && looked_at < STRETCH_ROWS {
            looked_at += usize::from(!matches!(self.position, Position::Slots(_)));
            let next = match &mut self.position {
                Position::Slots(cursor) => batch.scan_next(&scan.table, cursor, slots_end, &scan.picks, &mut self.row),
                Position::Candidates(list, at) => next_candidate(&scan, batch, list, at, &mut self.row),
                Position::Entries(cursor) => match scan.path.arm(self.arm).expect("the arm that was begun") {
                    Path::Range { index, .. } => batch.range_next(&scan.table, index, cursor, &mut self.row),
                    _ => None,
                },
                Position::Start | Position::End => None,
            };
            let Some(id) = next else {
                if scan.path.arm(self.arm + 1).is_some() {
                    self.arm += 1;
                    self.position = start(&scan, self.arm, batch);
                    continue;
                }
                if !matches!(&self.position, Position::Slots(cursor) if cursor.position() < self.slots) {
                    self.position = Position::End;
                }
                return Ok(());
            };
            if matches!(scan.path, Path::Several(_)) && !self.given.insert(id) {
                continue;
            }
            if !holds(&scan, batch, &mut self.row)? {
                continue;
            }
            for &column in &scan.given {
                batch.fetch_long(&scan.table, &mut self.row, column);
            }
            out.push(&scan, id, &self.row)?;
        }
        Ok(())
    }
}

fn holds(scan: &Scan, batch: &mut Batch<'_>, row: &mut Row) -> Result<bool, SqlError> {
    for Test { condition, variable } in &scan.conditions {
        for &column in variable {
            batch.fetch_long(&scan.table, row, column);
        }
        if !condition.holds(&scan.tables, row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn start(scan: &Scan, arm: usize, batch: &mut Batch<'_>) -> Position {
    let Some(path) = scan.path.arm(arm) else { return Position::End };
    match path {
        Path::All | Path::Several(_) => Position::Slots(PageCursor::at(0)),
        Path::Nothing => Position::Candidates(Vec::new(), 0),
        Path::Lookup { index, key } => {
            let mut candidates = Vec::new();
            batch.lookup(index, |i| key[i].as_value(), &mut candidates);
            candidates.sort_unstable();
            candidates.dedup();
            Position::Candidates(candidates, 0)
        }
        Path::Range { index, equal, lower, upper, direction } => {
            let (low, high) = range_ends(index, equal, lower.as_ref(), upper.as_ref());
            Position::Entries(Box::new(batch.range(index, &low, &high, *direction)))
        }
    }
}

fn next_candidate(scan: &Scan, batch: &mut Batch<'_>, list: &[RowId], at: &mut usize, row: &mut Row) -> Option<RowId> {
    while let Some(&id) = list.get(*at) {
        *at += 1;
        if batch.read(&scan.table, id, row) {
            return Some(id);
        }
    }
    None
}

/// A batch being written.
pub struct Output {
    writers: Vec<Writer>,
    rows: usize,
}

impl Output {
    fn new(scan: &Scan, rows: usize) -> Output {
        let capacity = match scan.path {
            Path::Lookup { .. } => 1,
            _ => rows.min(1024),
        };
        let columns = &scan.table.def.columns;
        let ty = |c: &usize| columns.get(*c).map_or(Type::Int8, |column| column.ty);
        Output { writers: scan.columns.iter().map(|c| Writer::new(ty(c), capacity)).collect(), rows: 0 }
    }

    fn push(&mut self, scan: &Scan, id: RowId, row: &Row) -> Result<(), SqlError> {
        for (writer, &column) in self.writers.iter_mut().zip(&scan.columns) {
            if column < scan.table.def.columns.len() {
                writer.push(&row.get(&scan.table.layout, column))?;
            } else {
                writer.push(&Value::Int(id.0 as i64))?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn finish(mut self, scan: &Scan) -> Result<RecordBatch> {
        let arrays = self.writers.iter_mut().map(Writer::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(scan.schema.clone(), arrays, &options)?)
    }
}

/// What is looked for, and buffers.
#[derive(Default)]
pub struct Finder {
    /// Columns of the table, and the values that they must have.
    pub equal: Vec<(usize, Datum)>,
    key: Vec<Datum>,
    candidates: Vec<RowId>,
    row: Row,
}

/// What a scan was planned from.
#[derive(Debug)]
struct Origin {
    snapshot: Snapshot,
    wanted: Wanted,
}

/// The first rows of an order.
#[derive(Clone, Copy)]
pub struct First<'k> {
    /// By place among the columns of what gives the rows.
    pub keys: &'k [(usize, SortOptions)],
    pub count: usize,
    /// None of them may have a null for its first key.
    pub has_values: bool,
    /// Not every row that a scan gives is one of them.
    pub is_filtered: bool,
}

/// What a scan is to give.
#[derive(Clone, Debug)]
struct Wanted {
    columns: Vec<usize>,
    filters: Vec<DfExpr>,
    limit: Option<usize>,
    /// Rows are wanted in this order.
    in_order: Option<InOrder>,
}

/// The scan as DataFusion's plans have it.
#[derive(Clone, Debug)]
pub struct SnapshotScan {
    scan: Arc<Scan>,
    reader: Option<Reader>,
    /// Rows and values, estimated.
    told: Statistics,
    /// Filters that the path finds its rows by, and the others, as they are shown.
    keyed: Vec<String>,
    shown: Vec<String>,
    of: Arc<Origin>,
    properties: Arc<PlanProperties>,
}

impl SnapshotScan {
    /// The same at another snapshot, with values in its filters' holes: so it finds another path. `None`: it promises an order for which these values are
    /// none to read by.
    pub fn at(&self, reader: &Reader, values: &[ScalarValue]) -> Result<Option<SnapshotScan>> {
        let Origin { snapshot, wanted } = self.of.as_ref();
        if !wanted.filters.iter().any(has_hole) {
            return Ok(Some(SnapshotScan { reader: Some(reader.clone()), ..self.clone() }));
        }
        let filters = wanted.filters.iter().map(|f| filled(f.clone(), values)).collect::<Result<Vec<_>>>()?;
        if filters.iter().any(|f| Condition::of(f, &snapshot.table).is_none()) {
            return Err(DataFusionError::Internal("a filter changed with its values".to_owned()));
        }
        if wanted.in_order.as_ref().is_some_and(|order| snapshot.is_better_sorted(order, &filters)) {
            return Ok(None);
        }
        snapshot.at(Some(reader)).scan_of(1, Wanted { filters, ..wanted.clone() }).map(Some)
    }

    /// The same scan in the order of an index; `None`: no index has it, or to read by it costs more.
    pub fn in_order(&self, first: &First<'_>) -> Result<Option<SnapshotScan>> {
        let Origin { snapshot, wanted } = self.of.as_ref();
        if wanted.limit.is_some() || wanted.in_order.is_some() || matches!(self.scan.path, Path::Nothing) {
            return Ok(None);
        }
        let key = |(place, options): &(usize, SortOptions)| Some((self.table_column(*place)?, *options));
        let Some(keys) = first.keys.iter().map(key).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let of_table = First { keys: &keys, ..*first };
        let Some(order) = snapshot.order_by_index(wanted, &self.scan.path, &of_table) else { return Ok(None) };
        let in_order = InOrder { keys: first.keys.to_vec(), ..order };
        let limit = (!first.is_filtered).then_some(first.count);
        let wanted = Wanted { limit, in_order: Some(in_order), ..wanted.clone() };
        Snapshot { reader: self.reader.clone(), ..snapshot.clone() }.scan_of(1, wanted).map(Some)
    }

    // ---- for joins that look rows up

    pub fn table(&self) -> &Arc<Table> {
        &self.scan.table
    }

    /// Whether it reads the whole table.
    pub fn reads_all(&self) -> bool {
        matches!(self.scan.path, Path::All) && self.scan.limit.is_none()
    }

    /// The table's column that is given at this place.
    pub fn table_column(&self, place: usize) -> Option<usize> {
        self.scan.columns.get(place).copied().filter(|&column| column < self.scan.table.def.columns.len())
    }

    /// The index that has most of these columns first, and by its columns which of them.
    pub fn index_for(&self, columns: &[usize]) -> Option<(Arc<Index>, Vec<usize>)> {
        let covered = |index: &Index| -> Vec<usize> {
            let keys = index.def.columns.iter().map(|key| usize::from(key.column));
            keys.map_while(|key| columns.iter().position(|column| *column == key)).collect()
        };
        let found = self.scan.table.indexes.iter().map(|index| (index, covered(index)));
        let usable = found.filter(|(index, order)| match index.def.kind {
            IndexKind::Hash => order.len() == index.def.columns.len(),
            IndexKind::BTree => !order.is_empty(),
        });
        let best = usable.max_by_key(|(index, order)| {
            let is_whole = order.len() == index.def.columns.len();
            (is_whole && index.def.unique, order.len(), is_whole)
        });
        best.map(|(index, order)| (index.clone(), order))
    }

    /// Rows that have the same values in the index's first columns, estimated.
    pub fn rows_per_key(&self, index: &Index, columns: usize) -> f64 {
        if index.def.unique && columns == index.def.columns.len() {
            return 1.0;
        }
        let snapshot = &self.of.snapshot;
        let rows = snapshot.rows_of(&[]);
        let keys = index.def.columns.iter().take(columns);
        let names = keys.map(|key| &self.scan.table.def.columns[usize::from(key.column)].name);
        let distinct: f64 = names.map(|name| snapshot.distinct(name).unwrap_or_else(|| rows.sqrt())).product();
        rows / distinct.clamp(1.0, rows.max(1.0))
    }

    pub fn reader(&self) -> Result<&Reader> {
        self.reader
            .as_ref()
            .ok_or_else(|| DataFusionError::Internal("a plan without a snapshot is only shown".to_owned()))
    }

    /// Gives every row that has the finder's values and meets the scan's conditions.
    pub fn find(
        &self,
        batch: &mut Batch<'_>,
        index: &Arc<Index>,
        order: &[usize],
        finder: &mut Finder,
        give: &mut dyn FnMut(RowId, &Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let Finder { equal, key, candidates, row } = finder;
        key.clear();
        key.extend(order.iter().map(|&at| equal[at].1.clone()));
        if key.len() == index.def.columns.len() {
            candidates.clear();
            batch.lookup(index, |i| key[i].as_value(), candidates);
            candidates.sort_unstable();
            candidates.dedup();
            for &id in candidates.iter() {
                if batch.read(&self.scan.table, id, row) && self.meets(batch, equal, row)? {
                    give(id, row)?;
                }
            }
            return Ok(());
        }
        let (low, high) = range_ends(index, key, None, None);
        let mut cursor = batch.range(index, &low, &high, Direction::Forward);
        while let Some(id) = batch.range_next(&self.scan.table, index, &mut cursor, row) {
            if self.meets(batch, equal, row)? {
                give(id, row)?;
            }
        }
        Ok(())
    }

    fn meets(&self, batch: &mut Batch<'_>, equal: &[(usize, Datum)], row: &mut Row) -> Result<bool, SqlError> {
        let table = &self.scan.table;
        for (column, wanted) in equal {
            let ty = table.layout.column_type(*column);
            if ty.is_variable() {
                batch.fetch_long(table, row, *column);
            }
            let value = row.get(&table.layout, *column);
            if value.is_null() || ty.compare(&value, &wanted.as_value()).is_ne() {
                return Ok(false);
            }
        }
        if !holds(&self.scan, batch, row)? {
            return Ok(false);
        }
        self.scan.given.iter().for_each(|&column| batch.fetch_long(table, row, column));
        Ok(true)
    }

    pub fn output(&self) -> Output {
        Output::new(&self.scan, BATCH_ROWS)
    }

    pub fn push(&self, output: &mut Output, id: RowId, row: &Row) -> Result<(), SqlError> {
        output.push(&self.scan, id, row)
    }

    pub fn finish(&self, output: Output) -> Result<RecordBatch> {
        output.finish(&self.scan)
    }

    /// As EXPLAIN shows what is looked up.
    pub fn lookup_node(&self, index: &Index, estimate: Estimate) -> Node {
        let table = &self.scan.table.def.name;
        let node = Node::new("Index Scan", estimate).being("Scan Direction", "Forward");
        let node = node.about(" using ", "Index Name", &index.def.name).on(table, table);
        let asked: Vec<String> = self.keyed.iter().chain(&self.shown).cloned().collect();
        if asked.is_empty() { node } else { node.with("Filter", format!("({})", asked.join(" AND "))) }
    }

    /// Rows that it looks at, estimated.
    pub fn rows_read(&self) -> f64 {
        match self.scan.path {
            Path::All => self.scan.table.slots() as f64,
            Path::Nothing => 0.0,
            _ => self.told.num_rows.get_value().map_or(1.0, |rows| *rows as f64),
        }
    }

    /// As EXPLAIN shows it.
    pub fn node(&self, estimate: Estimate) -> Node {
        let table = &self.scan.table.def.name;
        let node = match &self.scan.path {
            Path::All => Node::new("Seq Scan", estimate),
            Path::Nothing => return Node::new("Result", estimate).with("One-Time Filter", "false"),
            path => {
                let (way, told) = match path {
                    Path::Range { direction: Direction::Backward, .. } => (" Backward using ", "Backward"),
                    _ => (" using ", "Forward"),
                };
                let names = path.index_names().join(", ");
                Node::new("Index Scan", estimate).being("Scan Direction", told).about(way, "Index Name", &names)
            }
        };
        let node = node.on(table, table);
        let all_of = |list: &[String]| match list {
            [one] => format!("({one})"),
            several => format!("(({}))", several.join(") AND (")),
        };
        let node = if self.keyed.is_empty() { node } else { node.with("Index Cond", all_of(&self.keyed)) };
        if self.shown.is_empty() { node } else { node.with("Filter", all_of(&self.shown)) }
    }
}

impl DisplayAs for SnapshotScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = &self.scan.table.def.name;
        let kind = |index: &Index| match index.def.kind {
            IndexKind::Hash => "hash",
            IndexKind::BTree => "btree",
        };
        match &self.scan.path {
            Path::All => write!(f, "SnapshotScan: {table}")?,
            Path::Nothing => write!(f, "SnapshotScan: no row of {table}")?,
            Path::Lookup { index, .. } => {
                write!(f, "SnapshotScan: {table} by key of {} ({})", index.def.name, kind(index))?;
            }
            Path::Range { index, direction, .. } => {
                let way = if *direction == Direction::Backward { ", backward" } else { "" };
                write!(f, "SnapshotScan: {table} by range of {} ({}){way}", index.def.name, kind(index))?;
            }
            Path::Several(paths) => {
                write!(
                    f,
                    "SnapshotScan: {table} by {} keys of {}",
                    paths.len(),
                    self.scan.path.index_names().join(", ")
                )?;
            }
        }
        let names: Vec<&str> = self.scan.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        let filters: Vec<&str> = self.keyed.iter().chain(&self.shown).map(String::as_str).collect();
        if !filters.is_empty() {
            write!(f, ", filter=[{}]", filters.join(" AND "))?;
        }
        match self.scan.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SnapshotScan {
    fn name(&self) -> &str {
        "SnapshotScan"
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

    fn fetch(&self) -> Option<usize> {
        self.scan.limit
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut told = self.told.clone();
        let all = told.num_rows.get_value().copied().unwrap_or(0).min(self.scan.limit.unwrap_or(usize::MAX));
        let rows = if args.partition().is_some() { all / self.scan.partitions } else { all };
        told.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(told))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(reader) = self.reader.clone() else {
            return Err(DataFusionError::Internal("a plan without a snapshot is only shown".to_owned()));
        };
        let progress = Progress::new(self.scan.clone(), reader, partition);
        let batches = futures::stream::try_unfold(progress, |mut progress| async move {
            Ok(progress.next_batch()?.map(|batch| (batch, progress)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.scan.schema.clone(), batches)))
    }
}
