//! What does the database tell about itself? Read-only relations whose rows are computed when a query opens them.
//!
//! ```text
//! SELECT ... FROM freshet_memory WHERE ... ORDER BY ...
//!                 └─ bind: no table of that name, so the view ─ compiled: `Access::View` ─┐
//!                                                            └─ other road: literal rows ─┴─ `SystemView::rows`
//! ```
//!
//! 1. A view is no table: it has no oid, no snapshot and no locks. Its rows are what its source says at that moment, durable or not.
//! 2. A table of the same name hides a view, so that no table of an older database becomes unreachable; new ones are refused.
//! 3. `rows` neither waits nor takes a latch that a commit needs for longer than it takes to read a counter.
//!
//! Another view is another module here and a line in [`VIEWS`].

mod activity;
mod checkpoint;
mod huge_pages;
mod locks;
mod log;
mod memory;
mod restart;

use crate::error::SqlError;
use crate::expr::Env;
use crate::rows::Column;
use crate::value::Datum;
use freshet_engine::catalog::Schema;
use freshet_engine::engine::Engine;
use freshet_engine::schema::Type;
use std::sync::Arc;

/// Every view, by name.
pub const VIEWS: &[&dyn SystemView] = &[
    &checkpoint::CheckpointView,
    &huge_pages::HugePagesView,
    &log::LogView,
    &memory::MemoryView,
    &RESTART,
    &locks::LocksView,
    &activity::ActivityView,
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
}

impl std::fmt::Debug for dyn SystemView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The view of this name.
pub fn named(name: &str) -> Option<&'static dyn SystemView> {
    VIEWS.iter().copied().find(|view| view.name() == name)
}

/// A view's columns as those of a result.
pub(crate) fn columns(view: &dyn SystemView) -> Arc<[Column]> {
    let columns = view.columns().iter();
    columns.map(|&(name, ty)| Column { name: name.to_owned(), ty, origin: None }).collect()
}

/// A view's rows; none where a plan is only looked at and there is no database behind it.
pub fn rows(view: &dyn SystemView, schema: &Arc<Schema>, env: &Env) -> Result<Vec<Cells>, SqlError> {
    let rows = match &env.engine {
        Some(engine) => view.rows(&About { engine, schema, env })?,
        None => Vec::new(),
    };
    let width = view.columns().len();
    assert!(rows.iter().all(|row| row.len() == width), "view invariant: a row of {} has {width} cells", view.name());
    Ok(rows)
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
