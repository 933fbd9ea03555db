//! Which locks does a statement take before it reads? LOCK TABLE's, and those of readers while somebody bars them.

use super::access::Access;
use super::query::Query;
use super::{Halt, Run};
use crate::error::SqlError;
use freshet_engine::catalog::Table;
use freshet_engine::txn::{Error, LockMode, Stop};
use std::sync::Arc;

/// LOCK TABLE.
#[derive(Clone, Debug)]
pub struct TableLocks {
    pub tables: Vec<Arc<Table>>,
    pub mode: LockMode,
    pub nowait: bool,
}

/// A lock mode by its words.
pub fn mode_named(words: &str) -> Option<LockMode> {
    Some(match words {
        "ACCESS SHARE" => LockMode::AccessShare,
        "ROW SHARE" => LockMode::RowShare,
        "ROW EXCLUSIVE" => LockMode::RowExclusive,
        "SHARE UPDATE EXCLUSIVE" => LockMode::ShareUpdateExclusive,
        "SHARE" => LockMode::Share,
        "SHARE ROW EXCLUSIVE" => LockMode::ShareRowExclusive,
        "EXCLUSIVE" => LockMode::Exclusive,
        "ACCESS EXCLUSIVE" => LockMode::AccessExclusive,
        _ => return None,
    })
}

pub fn lock_tables(locks: &TableLocks, run: &mut Run<'_>) -> Result<(), Halt> {
    run.engine.set_nowait(locks.nowait);
    let locked = locks.tables.iter().try_for_each(|table| match run.engine.lock_table(table, locks.mode) {
        Err(Stop::Error(Error::LockNotAvailable)) => {
            let message = format!("could not obtain lock on relation \"{}\"", table.def.name);
            Err(SqlError::new("55P03", message).into())
        }
        locked => Ok(locked?),
    });
    run.engine.set_nowait(false);
    locked
}

/// Waits where a table that the query reads is barred.
pub fn enter_read(query: &Query, run: &mut Run<'_>) -> Result<(), Halt> {
    if !run.engine.has_barred_tables() {
        return Ok(());
    }
    for table in query.tables.iter().flatten() {
        run.engine.read_table(table)?;
    }
    for step in &query.steps {
        if let Access::Derived(inner) = &step.access {
            enter_read(inner, run)?;
        }
    }
    Ok(())
}
