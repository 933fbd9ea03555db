//! What does INSERT ... ON CONFLICT do with a row whose key is there?
//!
//! 1. Before a row is inserted its keys are looked for, in the newest versions. What is committed between that look and the insert is a unique
//!    violation of the insert, for which the whole statement looks again; another's unfinished insert of the key is waited for.
//! 2. DO UPDATE locks the row that is there, and looks at it as it is then, whatever the snapshot (READ COMMITTED); REPEATABLE READ fails with
//!    40001 if that is newer.

use super::change::{Insert, Returning, Setting, only_table, set_row};
use super::init::RowQueries;
use super::query::holds;
use super::rules::Rules;
use super::{Halt, Run};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::rows::RowSet;
use crate::value::Datum;
use freshet_engine::catalog::{Index, Table};
use freshet_engine::ids::RowId;
use freshet_engine::schema::Row;
use freshet_engine::txn::{Isolation, Locked, Strength};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct OnConflict {
    /// Unique indexes whose keys are looked for.
    pub arbiters: Vec<Arc<Index>>,
    /// `None`: DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// DO UPDATE: source 0 is the row that is there, source 1 the one that was to be inserted.
#[derive(Clone, Debug)]
pub struct ConflictUpdate {
    pub tables: Vec<Option<Arc<Table>>>,
    pub sets: Vec<(u16, Expr)>,
    pub condition: Vec<Expr>,
    pub not_null: Vec<u16>,
    /// Variable-length columns that the expressions look at, by source.
    pub long_columns: [Vec<u16>; 2],
    pub rules: Option<Arc<Rules>>,
    /// What the statement returns of a row that it updates, if that is another than of one that it inserts.
    pub returning: Option<Returning>,
    /// What the expressions ask of the two rows.
    pub queries: Option<Arc<RowQueries>>,
    /// The expressions name what another road computed beside the row: cells of source 0.
    pub names_cells: bool,
}

/// Looks for rows in the way of the scratch's `changed` row. `None`: there is none, it is to be inserted; else whether a row was changed.
pub fn resolve(
    conflict: &OnConflict,
    plan: &Insert,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<Option<bool>, Halt> {
    run.scratch.make_room(2);
    let table = only_table(&plan.tables);
    run.engine.enter_table(table)?;
    let mut found = Row::default();
    for index in &conflict.arbiters {
        let Some(id) = in_the_way(table, index, &mut found, run)? else { continue };
        let Some(update) = &conflict.update else {
            return leave(table, id, run).map(|()| Some(false));
        };
        return update_instead(update, plan, (index.as_ref(), id), run, rows).map(Some);
    }
    Ok(None)
}

/// The row that has the changed row's key of this index.
fn in_the_way(table: &Table, index: &Index, found: &mut Row, run: &mut Run<'_>) -> Result<Option<RowId>, Halt> {
    let mut key = Vec::with_capacity(index.def.columns.len());
    for column in index.spec.columns() {
        let column = usize::from(column.column);
        let row = &mut run.scratch.changed;
        run.engine.fetch_long(table, row, column);
        key.push(Datum::from(row.get(&table.layout, column)));
    }
    if key.contains(&Datum::Null) && !index.def.nulls_not_distinct {
        return Ok(None);
    }
    let mut candidates = Vec::new();
    run.engine.candidates(table, index, |i| Some(key[i].as_value()), &mut candidates);
    for id in candidates {
        if !run.engine.newest(table, id, found) {
            continue;
        }
        let mut is_it = true;
        for (column, wanted) in index.spec.columns().zip(&key) {
            let column = usize::from(column.column);
            run.engine.fetch_long(table, found, column);
            let value = found.get(&table.layout, column);
            let ty = table.layout.column_type(column);
            is_it = is_it && ty.compare(&value, &wanted.as_value()).is_eq();
        }
        if is_it {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Whether the scratch's row 0, which is locked, has the key of its `changed` row.
fn has_same_key(table: &Table, index: &Index, run: &mut Run<'_>) -> bool {
    index.spec.columns().all(|column| {
        let column = usize::from(column.column);
        run.engine.fetch_long(table, &mut run.scratch.rows[0], column);
        let (has, wanted) =
            (run.scratch.rows[0].get(&table.layout, column), run.scratch.changed.get(&table.layout, column));
        table.layout.column_type(column).compare(&has, &wanted).is_eq()
    })
}

/// DO NOTHING: where one snapshot is to tell the whole truth, the row in the way must be in it.
fn leave(table: &Table, id: RowId, run: &mut Run<'_>) -> Result<(), Halt> {
    let is_snapshot = run.engine.isolation() != Isolation::ReadCommitted;
    if is_snapshot && !run.engine.read(table, id, &mut Row::default()) {
        return Err(freshet_engine::txn::Error::Serialization.into());
    }
    Ok(())
}

fn update_instead(
    update: &ConflictUpdate,
    plan: &Insert,
    (index, id): (&Index, RowId),
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<bool, Halt> {
    let table = only_table(&plan.tables);
    if run.engine.written_by_statement(table, id) {
        let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
        return Err(SqlError::new("21000", message)
            .with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            )
            .into());
    }
    let locked = run.engine.lock_as(table, id, Strength::NoKeyUpdate, &mut run.scratch.rows[0])?;
    if locked == Locked::Gone || !has_same_key(table, index, run) {
        // Deleted meanwhile, or given another key: look again.
        return Err(Halt::Wait(freshet_engine::txn::WaitToken::ready()));
    }
    std::mem::swap(&mut run.scratch.changed, &mut run.scratch.rows[1]);
    for (source, columns) in update.long_columns.iter().enumerate() {
        for &column in columns {
            run.engine.fetch_long(table, &mut run.scratch.rows[source], usize::from(column));
        }
    }
    let mut given = match &update.queries {
        None => Cow::Borrowed(run.parameters),
        Some(queries) => Cow::Owned(queries.parameters(&update.tables, run)?),
    };
    if let Some(queries) = &update.queries {
        queries.ask(&queries.of_condition, given.to_mut(), run)?;
    }
    if !holds(&update.condition, &run.with_parameters(&given).frame(&update.tables))? {
        return Ok(false);
    }
    if let Some(queries) = &update.queries {
        queries.ask(&queries.of_sets, given.to_mut(), run)?;
    }
    let change = Setting {
        tables: &update.tables,
        sets: &update.sets,
        not_null: &update.not_null,
        rules: update.rules.as_ref(),
        returning: update.returning.as_ref().or(plan.returning.as_ref()),
    };
    set_row(&change, id, &mut run.with_parameters(&given), rows)?;
    run.constraints.count_updated_instead();
    Ok(true)
}
