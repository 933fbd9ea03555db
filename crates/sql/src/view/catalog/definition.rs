//! How are expressions and queries of definitions written? As the functions `pg_get_expr`, `pg_get_viewdef` and their like write them.

use crate::catalog::Catalog;
use crate::catalog::definition::{stored_default, style};
use freshet_engine::catalog::{Constraint, Index, Schema, Table, View};
use std::sync::Arc;

fn catalog(schema: &Arc<Schema>) -> Catalog {
    Catalog::new(schema.clone(), None)
}

pub fn view(schema: &Arc<Schema>, view: &View) -> String {
    catalog(schema).view_text(view, false)
}

/// What gives a column its value: that of the relation with this oid, counted from 1.
pub fn default(schema: &Arc<Schema>, relation: u32, column: i16, text: &str) -> String {
    catalog(schema).expression(&stored_default(column as u16, text), relation, style(false))
}

/// A check's condition in the parentheses that `pg_get_constraintdef` writes.
pub fn check_clause(schema: &Arc<Schema>, constraint: &Constraint) -> String {
    let text = catalog(schema).constraint_text(constraint.id, false).unwrap_or_default();
    text.strip_prefix("CHECK ").map(str::to_owned).unwrap_or(text)
}

pub fn index(schema: &Arc<Schema>, table: &Arc<Table>, index: &Index) -> String {
    catalog(schema).index_definition(table, index, false)
}
