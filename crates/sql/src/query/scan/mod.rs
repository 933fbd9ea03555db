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

mod condition;
mod path;
mod rows;

use super::cells::data_type;
use super::run::planning;
use super::template::{filled, has_hole, hole_of};
use super::text::text;
use crate::error::SqlError;
use crate::explain::{Estimate, Node};
use crate::statistics::TableStatistics;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{
    ColumnStatistics, Constraint, Constraints, DataFusionError, Result, ScalarValue, Statistics, ToDFSchema,
};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr as DfExpr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
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
use freshet_engine::schema::{Row, Type};
use freshet_engine::txn::{Direction, Reader};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

pub use condition::Condition;
use condition::parts_of;
pub use path::{First, SortKey};
use path::{InOrder, Path};
use rows::{BATCH_ROWS, Progress, STRETCH_SLOTS, Scan};
pub use rows::{Finder, Output};

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
        let conditions = self.conditions(filters);
        let path = self.path_of(&wanted, &conditions);
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
        Ok(SnapshotScan {
            scan: Arc::new(Scan::new(&self.table, &wanted, conditions, path, schema, partitions)),
            reader: self.reader.clone(),
            told: OnceLock::new(),
            of: Arc::new(Origin { snapshot: self.at(None), wanted }),
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::NonCooperative)),
        })
    }

    fn path_of(&self, wanted: &Wanted, conditions: &[Condition]) -> Path {
        // What a hole is filled with may be anything; there is no row with a null.
        if conditions.iter().any(Condition::is_never) && !wanted.filters.iter().any(has_hole) {
            return Path::Nothing;
        }
        match &wanted.in_order {
            Some(order) => order.path(conditions),
            None => self.path_for(conditions),
        }
    }

    /// What filters come to, each for itself.
    fn conditions(&self, filters: &[DfExpr]) -> Vec<Condition> {
        parts_of(filters.iter().filter_map(|f| Condition::of(f, &self.table)))
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
        // Nobody knows what is to come where a hole is all that is asked.
        let asked = filters.iter().filter(|f| hole_of(f).is_none());
        self.rows_that_meet(&parts_of(asked.filter_map(|f| Condition::of(f, &self.table))))
    }

    /// Rows for which all these hold, estimated.
    fn rows_that_meet(&self, conditions: &[Condition]) -> f64 {
        let all = self.known.as_ref().map_or(self.table.slots() as f64, |known| known.rows_of(&self.table));
        (all * super::estimate::share(conditions, &self.table, self.known.as_deref())).max(1.0)
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

/// What a scan was planned from.
#[derive(Debug)]
struct Origin {
    snapshot: Snapshot,
    wanted: Wanted,
}

/// What a scan is to give.
#[derive(Clone, Debug)]
pub struct Wanted {
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
    /// Rows and values, estimated once somebody asks.
    told: OnceLock<Statistics>,
    of: Arc<Origin>,
    properties: Arc<PlanProperties>,
}

impl SnapshotScan {
    /// The same at another snapshot, with values in its filters' holes: so it finds another path. `None`: with these values a filter is none that it decides,
    /// or it promises an order for which they are none to read by.
    pub fn at(&self, reader: &Reader, values: &[ScalarValue]) -> Result<Option<SnapshotScan>> {
        let Origin { snapshot, wanted } = self.of.as_ref();
        if !wanted.filters.iter().any(has_hole) {
            return Ok(Some(SnapshotScan { reader: Some(reader.clone()), ..self.clone() }));
        }
        let filters = wanted.filters.iter().map(|f| filled(f.clone(), values)).collect::<Result<Vec<_>>>()?;
        // A value may be none that the column's type has, as half of an integer.
        let served = filters.iter().map(|f| Condition::of(f, &snapshot.table)).collect::<Option<Vec<_>>>();
        let Some(served) = served else { return Ok(None) };
        let conditions = parts_of(served.into_iter());
        if wanted.in_order.as_ref().is_some_and(|order| snapshot.is_better_sorted(order, &conditions)) {
            return Ok(None);
        }
        let wanted = Wanted { filters, ..wanted.clone() };
        let path = snapshot.path_of(&wanted, &conditions);
        if self.scan.partitions != 1 {
            return Err(DataFusionError::Internal("invariant: a plan that is kept reads in one part".to_owned()));
        }
        let scan = Scan::new(&snapshot.table, &wanted, conditions, path, self.scan.schema.clone(), 1);
        Ok(Some(SnapshotScan {
            scan: Arc::new(scan),
            reader: Some(reader.clone()),
            told: OnceLock::new(),
            of: Arc::new(Origin { snapshot: snapshot.clone(), wanted }),
            properties: self.properties.clone(),
        }))
    }

    /// Rows and values, estimated.
    fn told(&self) -> &Statistics {
        let Origin { snapshot, wanted } = self.of.as_ref();
        self.told.get_or_init(|| snapshot.told(&wanted.filters, &wanted.columns))
    }

    /// Filters that the path finds its rows by, and the others, as they are shown.
    fn texts(&self) -> [Vec<String>; 2] {
        let Origin { snapshot, wanted } = self.of.as_ref();
        let is_key = |filter: &&DfExpr| {
            Condition::of(filter, &snapshot.table).is_some_and(|condition| self.scan.path.finds_by(&condition))
        };
        let (keyed, others): (Vec<&DfExpr>, Vec<&DfExpr>) = wanted.filters.iter().partition(is_key);
        let physical =
            |filter: &DfExpr| planning().create_physical_expr(filter.clone(), &snapshot.schema.clone().to_dfschema()?);
        // One with a hole has no values yet.
        let shown = |filter: &DfExpr| physical(filter).map_or_else(|_| filter.to_string(), |filter| text(&filter));
        [keyed, others].map(|list| list.into_iter().map(shown).collect())
    }

    /// The same scan in the order of an index; `None`: no index has it, or to read by it costs more.
    pub fn in_order(&self, first: &First) -> Result<Option<SnapshotScan>> {
        let Origin { snapshot, wanted } = self.of.as_ref();
        if wanted.limit.is_some() || wanted.in_order.is_some() || matches!(self.scan.path, Path::Nothing) {
            return Ok(None);
        }
        let of_table = |key: &SortKey| Some(key.at(self.table_column(key.place)?));
        let Some(keys) = first.keys.iter().map(of_table).collect::<Option<_>>() else { return Ok(None) };
        let of_table = First { keys, ..first.clone() };
        let Some(order) = snapshot.order_by_index(wanted, &self.scan.path, &of_table) else { return Ok(None) };
        let in_order = order.asked_for(first.keys.clone());
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
        node.with_all("Filter", &self.texts().concat())
    }

    /// Rows that it looks at, estimated.
    pub fn rows_read(&self) -> f64 {
        match self.scan.path {
            Path::All => self.scan.table.slots() as f64,
            Path::Nothing => 0.0,
            _ => self.told().num_rows.get_value().map_or(1.0, |rows| *rows as f64),
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
        let [keyed, others] = self.texts();
        node.with_all("Index Cond", &keyed).with_all("Filter", &others)
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
        let filters = self.texts().concat();
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
        let mut told = self.told().clone();
        let all = told.num_rows.get_value().copied().unwrap_or(0).min(self.scan.limit.unwrap_or(usize::MAX));
        let rows = if args.partition().is_some() { all / self.scan.partitions } else { all };
        told.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(told))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let progress = Progress::new(self.scan.clone(), self.reader()?.clone(), partition);
        let batches = futures::stream::try_unfold(progress, |mut progress| async move {
            Ok(progress.next_batch()?.map(|batch| (batch, progress)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.scan.schema.clone(), batches)))
    }
}
