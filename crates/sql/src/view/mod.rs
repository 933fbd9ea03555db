//! What does the database tell about itself? Read-only relations whose rows are computed when a query opens them.
//!
//! ```text
//! SELECT ... FROM pg_class WHERE ... ORDER BY ...
//!                 └─ bind: `find`, a relation of that name ─ compiled: `Access::View` ─┐
//!                                                        └─ other road: a table in memory ─┴─ `rows`
//! ```
//!
//! 1. A view is no table: it has no snapshot and no locks. Its rows are what its source says at that moment, durable or not; those of
//!    the catalog are of the statement's schema.
//! 2. `freshet_*`: a table of the same name hides a view, so that no table of an older database becomes unreachable; new ones are refused.
//! 3. `rows` neither waits nor takes a latch that a commit needs for longer than it takes to read a counter.
//!
//! Another view is another module here and a line in [`VIEWS`]. One with the name of a PostgreSQL relation has its columns, and stands for it.

mod activity;
mod catalog;
mod checkpoint;
mod huge_pages;
mod locks;
mod log;
mod memory;
mod restart;
mod stat;
mod statements;

use crate::bind::names::RelationName;
use crate::error::SqlError;
use crate::expr::Env;
use crate::rows::Column;
use crate::value::Datum;
use freshet_engine::catalog::{NamespaceId, Schema, Sequence};
use freshet_engine::engine::Engine;
use freshet_engine::schema::{OidKind, Type};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Every view that is not generated from PostgreSQL's list, by name. They stand in `pg_catalog`.
pub const VIEWS: &[&dyn SystemView] = &[
    &checkpoint::CheckpointView,
    &huge_pages::HugePagesView,
    &log::LogView,
    &memory::MemoryView,
    &RESTART,
    &locks::LocksView,
    &activity::ActivityView,
    &stat::IndexStatView,
    &stat::LocksStatView,
    &stat::GarbageStatView,
    &stat::LatencyStatView,
    &statements::StatementsView,
    &statements::StatementsInfoView,
];

/// What EXPLAIN RESTART shows too.
pub(crate) const RESTART: restart::RestartView = restart::RestartView;

/// A row of a view: one value per column.
pub type Cells = Vec<Datum>;

/// What a relation may tell about.
pub struct About<'a> {
    pub engine: &'a Engine,
    /// The catalog as the statement sees it: within a transaction with its own changes.
    pub schema: &'a Arc<Schema>,
    pub env: &'a Env,
}

/// A relation that is computed.
pub trait SystemView: Sync {
    fn name(&self) -> &'static str;
    fn columns(&self) -> &'static [(&'static str, Type)];
    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError>;

    /// The oid of a relation that is a table in PostgreSQL, so that its rows have a `tableoid`; 0: none.
    fn number(&self) -> u32 {
        0
    }

    /// Its rows follow from the schema alone, and are kept with it.
    fn follows_schema(&self) -> bool {
        false
    }

    /// They tell of statistics too.
    fn follows_statistics(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn SystemView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The column that tells which table a row is of.
pub const TABLEOID: &str = "tableoid";

/// What a query can read that is no table.
#[derive(Clone, Debug)]
pub enum Relation {
    View(&'static dyn SystemView),
    /// Where it stands, in one row.
    Sequence(Arc<Sequence>),
}

impl Relation {
    pub fn name(&self) -> &str {
        match self {
            Relation::View(view) => view.name(),
            Relation::Sequence(sequence) => &sequence.def.name,
        }
    }

    /// The schema that it is in; `None`: it is no relation of the catalog's.
    pub fn namespace(&self) -> Option<NamespaceId> {
        match self {
            Relation::View(view) => {
                let spaces = [NamespaceId::CATALOG, NamespaceId::INFORMATION];
                spaces.into_iter().find(|space| named_in(*space, view.name()).is_some())
            }
            Relation::Sequence(sequence) => Some(sequence.def.namespace),
        }
    }

    pub fn columns(&self) -> &'static [(&'static str, Type)] {
        match self {
            Relation::View(view) => view.columns(),
            Relation::Sequence(_) => catalog::SEQUENCE_COLUMNS,
        }
    }

    /// The value of its column [`TABLEOID`], which stands behind the others.
    pub fn tableoid(&self) -> Option<u32> {
        let number = if let Relation::View(view) = self { view.number() } else { 0 };
        (number != 0).then_some(number)
    }

    /// All columns, those included that `*` does not mean.
    pub fn every_column(&self) -> impl Iterator<Item = (&'static str, Type)> {
        self.columns().iter().copied().chain(self.tableoid().map(|_| (TABLEOID, Type::Oid(OidKind::Oid))))
    }

    /// Why it cannot be changed.
    pub fn refuse_change(&self) -> SqlError {
        let name = self.name();
        match self {
            Relation::Sequence(_) => SqlError::new("42809", format!("cannot change sequence \"{name}\"")),
            Relation::View(_) if catalog::is_table(name) => {
                SqlError::new("42501", format!("permission denied: \"{name}\" is a system catalog"))
            }
            Relation::View(_) => SqlError::new("42809", format!("\"{name}\" is a system view")),
        }
    }
}

/// The view of the database's own of this name.
pub fn named(name: &str) -> Option<&'static dyn SystemView> {
    VIEWS.iter().copied().find(|view| view.name() == name)
}

fn named_in(namespace: NamespaceId, name: &str) -> Option<&'static dyn SystemView> {
    let own = if namespace == NamespaceId::CATALOG { named(name) } else { None };
    own.or_else(|| catalog::named(namespace, name))
}

/// What the name means, if that is no table and no view of a user.
pub fn find(name: &RelationName, schema: &Schema) -> Option<Relation> {
    if let Some(namespace) = &name.namespace {
        let id = schema.namespace(namespace)?.id;
        let view = named_in(id, &name.name).map(Relation::View);
        return view.or_else(|| schema.sequence_in(id, &name.name).cloned().map(Relation::Sequence));
    }
    let path = schema.path();
    let first = (!path.contains(&NamespaceId::CATALOG)).then_some(NamespaceId::CATALOG);
    for id in first.into_iter().chain(path.iter().copied()) {
        if let Some(view) =
            named_in(id, &name.name).filter(|view| named(view.name()).is_none() || !is_hidden(name, schema))
        {
            return Some(Relation::View(view));
        }
        if let Some(sequence) = schema.sequence_in(id, &name.name) {
            return Some(Relation::Sequence(sequence.clone()));
        }
        if schema.has_relation_in(id, &name.name) {
            return None;
        }
    }
    None
}

/// Rule 2.
fn is_hidden(name: &RelationName, schema: &Schema) -> bool {
    name.name.starts_with("freshet_") && name.table(schema).is_some()
}

/// A view's columns as those of a result.
pub(crate) fn columns(view: &dyn SystemView) -> Arc<[Column]> {
    let columns = view.columns().iter();
    columns.map(|&(name, ty)| Column::new(name, ty)).collect()
}

// ---- rows

/// A relation's rows, and what finds them.
#[derive(Default)]
pub struct Rows {
    pub rows: Vec<Cells>,
    by_column: Mutex<HashMap<u16, Arc<ByValue>>>,
    /// The rows in the other road's form.
    #[cfg(feature = "query")]
    pub(crate) batch: std::sync::OnceLock<datafusion::arrow::array::RecordBatch>,
}

/// Rows by the value of one column.
pub type ByValue = HashMap<ColumnValue, Arc<[u32]>>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ColumnValue {
    Bool(bool),
    Int(i64),
    Bytes(Box<[u8]>),
}

impl ColumnValue {
    /// `None` for a null, and for what is not looked up.
    pub fn of(value: &Datum) -> Option<ColumnValue> {
        Some(match value {
            Datum::Bool(truth) => ColumnValue::Bool(*truth),
            Datum::Int(number) => ColumnValue::Int(*number),
            Datum::Bytes(bytes) => ColumnValue::Bytes(bytes.clone()),
            _ => return None,
        })
    }
}

impl Rows {
    fn new(rows: Vec<Cells>) -> Rows {
        Rows { rows, ..Rows::default() }
    }

    /// The rows with this value in the column, by their places.
    pub fn having(&self, column: u16, value: &Datum) -> Arc<[u32]> {
        let by_value = self.by_column.lock().entry(column).or_insert_with(|| Arc::new(self.by_value(column))).clone();
        let found = ColumnValue::of(value).and_then(|value| by_value.get(&value).cloned());
        found.unwrap_or_default()
    }

    fn by_value(&self, column: u16) -> ByValue {
        let mut places: HashMap<ColumnValue, Vec<u32>> = HashMap::new();
        for (place, row) in self.rows.iter().enumerate() {
            if let Some(value) = ColumnValue::of(&row[usize::from(column)]) {
                places.entry(value).or_default().push(place as u32);
            }
        }
        places.into_iter().map(|(value, places)| (value, places.into())).collect()
    }
}

/// The rows of one version of the schema, by the relations' names; those of `information_schema` have no names of `pg_catalog`.
#[derive(Default)]
struct Kept(Mutex<HashMap<&'static str, (u64, Arc<Rows>)>>);

/// A relation's rows; none where a plan is only looked at and there is no database behind it.
pub fn rows(relation: &Relation, schema: &Arc<Schema>, env: &Env) -> Result<Arc<Rows>, SqlError> {
    let Some(engine) = &env.engine else { return Ok(Arc::default()) };
    let view = match relation {
        Relation::View(view) => *view,
        Relation::Sequence(sequence) => return Ok(Arc::new(Rows::new(vec![catalog::sequence_row(sequence)]))),
    };
    let about = About { engine, schema, env };
    if !view.follows_schema() {
        return Ok(Arc::new(made(view, &about)?));
    }
    let kept = schema.derived(Kept::default);
    let epoch = match &env.statistics {
        Some(statistics) if view.follows_statistics() => statistics.epoch(),
        _ => 0,
    };
    if let Some((of, rows)) = kept.0.lock().get(view.name())
        && *of == epoch
    {
        return Ok(rows.clone());
    }
    // Not under the lock: two may make the same.
    let rows = Arc::new(made(view, &about)?);
    kept.0.lock().insert(view.name(), (epoch, rows.clone()));
    Ok(rows)
}

fn made(view: &'static dyn SystemView, about: &About<'_>) -> Result<Rows, SqlError> {
    let mut rows = view.rows(about)?;
    let width = view.columns().len();
    assert!(rows.iter().all(|row| row.len() == width), "view invariant: a row of {} has {width} cells", view.name());
    if let Some(number) = Relation::View(view).tableoid() {
        rows.iter_mut().for_each(|row| row.push(Datum::Int(number.into())));
    }
    Ok(Rows::new(rows))
}

/// Text as a cell.
fn text(value: &str) -> Datum {
    Datum::Bytes(value.as_bytes().into())
}

/// A count or a size as a cell; what no bigint holds is its largest.
fn number(value: u64) -> Datum {
    Datum::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_columns_are_distinct() {
        for (i, view) in VIEWS.iter().enumerate() {
            assert!(VIEWS[..i].iter().all(|v| v.name() != view.name()), "{}", view.name());
            let columns = view.columns();
            assert!(!columns.is_empty() && columns.len() < usize::from(u16::MAX), "{}", view.name());
            for (j, (column, _)) in columns.iter().enumerate() {
                assert!(columns[..j].iter().all(|(c, _)| c != column), "{}.{column}", view.name());
            }
        }
    }
}
