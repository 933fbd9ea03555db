//! How are expressions and queries of definitions written? As the functions `pg_get_expr`, `pg_get_viewdef` and their like write them.

use super::relation::Relation;
use freshet_engine::catalog::{Constraint, ConstraintKind, Index, Schema, Table, View};

pub fn view(_schema: &Schema, view: &View) -> String {
    format!(" {};", view.def.query)
}

pub fn expression(_schema: &Schema, _relation: &Relation<'_>, text: &str) -> String {
    text.to_owned()
}

pub fn check_clause(_schema: &Schema, _table: &Table, constraint: &Constraint) -> String {
    match &constraint.kind {
        ConstraintKind::Check { condition, .. } => format!("(({condition}))"),
        ConstraintKind::Foreign(_) => String::new(),
    }
}

pub fn index(_schema: &Schema, _table: &Table, index: &Index) -> String {
    index.def.name.clone()
}
