//! What does a transaction read of a table that was emptied or written anew after its snapshot, or whose keys became unique or columns without nulls?
//! Nothing: it is told so.
//!
//! TRUNCATE and an ALTER TABLE that writes every row again wait for nobody who reads. The rows that a snapshot saw before lie in the storage that the
//! table had then; in the one that it has now it would find none.

use super::Session;
use crate::bind::names::tables_below;
use crate::cache::Prepared;
use crate::error::SqlError;
use crate::parse::{Parsed, parse};
use crate::route::Plan;
use freshet_engine::catalog::Table;

impl Session {
    /// 40001 for a statement that names such a table, itself or through a view.
    pub(super) fn check_renewed(&mut self, statement: &Prepared) -> Result<(), SqlError> {
        if !self.inner.may_be_renewed() || matches!(statement.plan, Plan::Define(_)) {
            return Ok(());
        }
        let Parsed::Sql(parsed) = parse(&statement.sql)? else { return Ok(()) };
        let schema = self.inner.schema().clone();
        let schema = self.named(&schema);
        match tables_below(&*parsed, &schema).iter().find(|table| self.inner.is_renewed(table)) {
            Some(table) => Err(is_renewed(&table.def.name)),
            None => Ok(()),
        }
    }

    /// The same of a table that is read as a whole.
    pub(super) fn check_table_renewed(&self, table: &Table) -> Result<(), SqlError> {
        if self.inner.is_renewed(table) { Err(is_renewed(&table.def.name)) } else { Ok(()) }
    }
}

#[cold]
fn is_renewed(table: &str) -> SqlError {
    let message = "could not serialize access due to concurrent truncation, rewrite or constraint";
    SqlError::new("40001", message).with_detail(format!("It is of the table \"{table}\"."))
}
