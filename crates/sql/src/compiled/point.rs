//! How does a SELECT of one row by its key run? Index, slot, cells: no cursor, no frame, no copy of what is not asked for.
//!
//! It is the statement that a database of this kind runs most. What it may do is little, so that the processor overlaps
//! one statement's cache misses with the next one's: its instructions must fit the reorder buffer more than once.
//!
//! A query that is one gives exactly what `query::run` gives for it.

use super::access::Access;
use super::query::Query;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::rows::RowSet;
use crate::value::Datum;
use freshet_engine::catalog::{Index, Table};
use freshet_engine::schema::{Picks, Row, Value};
use freshet_engine::txn::Session;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Key {
    Param(u16),
    Const(Datum),
}

impl Key {
    fn of(expr: &Expr) -> Option<Key> {
        match expr {
            Expr::Param(i) => Some(Key::Param(*i)),
            Expr::Const(datum) => Some(Key::Const(datum.clone())),
            _ => None,
        }
    }

    #[inline]
    fn value<'a>(&'a self, parameters: &'a [Datum]) -> Value<'a> {
        match self {
            Key::Param(i) => parameters[usize::from(*i)].as_value(),
            Key::Const(datum) => datum.as_value(),
        }
    }
}

/// A SELECT of columns of at most one row, found by a unique index.
#[derive(Debug)]
pub struct Point {
    table: Arc<Table>,
    index: Arc<Index>,
    keys: Vec<Key>,
    output: Vec<u16>,
    long_columns: Vec<u16>,
    /// The words of keys and output.
    picks: Picks,
}

impl Point {
    /// The query as a lookup, if it is one.
    pub fn of(query: &Query) -> Option<Point> {
        let [step] = query.steps.as_slice() else { return None };
        let is_plain = step.filter.is_empty()
            && step.outer.is_none()
            && query.precondition.is_empty()
            && query.grouping.is_none()
            && query.limit.is_none()
            && query.offset.is_none()
            && query.lock.is_none()
            && query.sort.is_empty()
            && !query.distinct;
        let Access::Unique { index, keys } = &step.access else { return None };
        if !is_plain {
            return None;
        }
        let table = query.tables[usize::from(step.source)].as_ref()?;
        let keys = keys.iter().map(|key| Key::of(key.leaf()?)).collect::<Option<Vec<_>>>()?;
        let output = query.output.iter().map(|expr| match expr {
            Expr::Column { source, column } if *source == step.source => Some(*column),
            _ => None,
        });
        let output = output.collect::<Option<Vec<_>>>()?;
        let of_key = index.spec.columns().map(|column| column.column);
        Some(Point {
            picks: table.layout.picks(output.iter().copied().chain(of_key).map(usize::from)),
            table: table.clone(),
            index: index.clone(),
            keys,
            output,
            long_columns: query.long_columns[usize::from(step.source)].clone(),
        })
    }

    /// Reads the row within the session's transaction; its cells go to `rows`.
    #[inline]
    pub fn run(
        &self,
        engine: &mut Session,
        parameters: &[Datum],
        row: &mut Row,
        rows: &mut RowSet,
    ) -> Result<(), SqlError> {
        if self.keys.iter().any(|key| key.value(parameters).is_null()) {
            return Ok(());
        }
        let value = |i: usize| self.keys[i].value(parameters);
        if engine.get_picked(&self.table, &self.index, value, &self.picks, row).is_none() {
            return Ok(());
        }
        for &column in &self.long_columns {
            engine.fetch_long(&self.table, row, usize::from(column));
        }
        for &column in &self.output {
            rows.push(&row.get(&self.table.layout, usize::from(column)));
        }
        rows.finish_row()
    }
}
