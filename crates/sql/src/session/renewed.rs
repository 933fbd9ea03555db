//! What does a transaction read of a table that was emptied or written anew after its snapshot, or whose keys became unique or columns without nulls?
//! Nothing: it is told so.
//!
//! TRUNCATE and an ALTER TABLE that writes every row again wait for nobody who reads. The rows that a snapshot saw before lie in the storage that the
//! table had then; in the one that it has now it would find none.

use super::Session;
use crate::bind::names::RelationName;
use crate::cache::Prepared;
use crate::error::SqlError;
use crate::parse::{Parsed, parse};
use crate::route::Plan;
use freshet_engine::catalog::{Schema, Table, TableId};
use sqlparser::ast;
use std::ops::ControlFlow;

impl Session {
    /// 40001 for a statement that names such a table, itself or through a view.
    pub(super) fn check_renewed(&mut self, statement: &Prepared) -> Result<(), SqlError> {
        if !self.inner.may_be_renewed() || matches!(statement.plan, Plan::Define(_)) {
            return Ok(());
        }
        let Parsed::Sql(parsed) = parse(&statement.sql)? else { return Ok(()) };
        let schema = self.inner.schema().clone();
        let schema = self.named(&schema);
        let mut renewed = None;
        let _ = ast::visit_relations(&*parsed, |name: &ast::ObjectName| {
            let Ok(name) = RelationName::of(name) else { return ControlFlow::Continue(()) };
            let read = match (name.table(&schema), name.view(&schema)) {
                (Some(table), _) => vec![table.id.0],
                (None, Some(view)) => view.def.reads.clone(),
                (None, None) => Vec::new(),
            };
            renewed = self.renewed_of(&schema, read);
            if renewed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        renewed.map_or(Ok(()), |table| Err(is_renewed(&table)))
    }

    /// The same of a table that is read as a whole.
    pub(super) fn check_table_renewed(&self, table: &Table) -> Result<(), SqlError> {
        if self.inner.is_renewed(table) { Err(is_renewed(&table.def.name)) } else { Ok(()) }
    }

    /// The first of these tables that is so, and of those that these views read.
    fn renewed_of(&self, schema: &Schema, mut ids: Vec<u32>) -> Option<String> {
        while let Some(id) = ids.pop() {
            if let Some(view) = schema.view_by_id(id) {
                ids.extend_from_slice(&view.def.reads);
            }
            let table = schema.table_by_id(TableId(id)).filter(|table| self.inner.is_renewed(table));
            if let Some(table) = table {
                return Some(table.def.name.clone());
            }
        }
        None
    }
}

#[cold]
fn is_renewed(table: &str) -> SqlError {
    let message = "could not serialize access due to concurrent truncation, rewrite or constraint";
    SqlError::new("40001", message).with_detail(format!("It is of the table \"{table}\"."))
}
