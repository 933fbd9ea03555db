//! What is known of a table's values, so that plans can be compared? Counts of a sample, kept in memory beside the statement cache.
//!
//! | of a table | of a column |
//! |---|---|
//! | rows | share of nulls, average width in bytes |
//! | slots at the time | distinct values, by the estimator of Haas and Stokes (the paper of 1998, their "Duj1") |
//! | | the most common values with their shares, and bounds that divide the other values evenly |
//!
//! 1. ANALYZE samples 30,000 rows, as PostgreSQL does by default. A table whose statistics a plan asks for is sampled smaller when the plan first
//!    runs, before it is chosen, and again once it has grown or shrunk by a fifth: on both roads.
//! 2. Statistics only choose between plans that give the same: they may be old. They are gone after a restart, and not in the catalog, where each
//!    would be a commit that checkpoints and replicas carry: the first plan samples anew, which takes a few milliseconds and knows the table as it is.
//! 3. They are found by the table's id, and a column's by its name and type: what a table is changed to has none until it is sampled again.

mod column;

pub use column::ColumnStatistics;

use crate::error::SqlError;
use crate::value::Datum;
use freshet_engine::catalog::Table;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{PageCursor, Reader, RowPicks};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that ANALYZE looks at.
pub const SAMPLE_ROWS: u64 = 30_000;
/// Rows that are looked at when nobody asked for it.
const QUICK_ROWS: u64 = 4_000;
/// With fewer slots a table is small whatever it holds.
const WORTH_SLOTS: u64 = 1_000;
/// Slots visited under one lease.
const LEASE_SLOTS: u64 = 1_024;
/// Longer values count for width only.
const VALUE_BYTES_MAX: usize = 1_000;

/// What is known of all tables of a database.
#[derive(Debug, Default)]
pub struct Statistics {
    tables: RwLock<HashMap<u32, Arc<TableStatistics>>>,
    /// How often something became known or was forgotten.
    epoch: AtomicU64,
    /// How often a query was planned that is not compiled.
    pub plannings: AtomicU64,
}

/// What is known of one table.
#[derive(Debug)]
pub struct TableStatistics {
    /// Those that live, estimated.
    pub rows: f64,
    /// All of its slots when it was sampled.
    slots: u64,
    columns: Vec<(String, Type, ColumnStatistics)>,
}

impl TableStatistics {
    pub fn column(&self, name: &str, ty: Type) -> Option<&ColumnStatistics> {
        self.columns.iter().find(|(n, t, _)| n == name && *t == ty).map(|(_, _, statistics)| statistics)
    }

    pub fn columns(&self) -> impl Iterator<Item = (&str, Type, &ColumnStatistics)> {
        self.columns.iter().map(|(name, ty, statistics)| (name.as_str(), *ty, statistics))
    }

    /// Rows of the table as it is, by the share of slots that lived.
    pub fn rows_of(&self, table: &Table) -> f64 {
        self.rows * table.slots() as f64 / self.slots.max(1) as f64
    }

    pub fn is_old(&self, table: &Table) -> bool {
        table.slots().abs_diff(self.slots) * 5 > self.slots
    }
}

impl Statistics {
    /// What is known, as it is.
    pub fn get(&self, table: &Table) -> Option<Arc<TableStatistics>> {
        self.tables.read().get(&table.id.0).cloned()
    }

    /// What is known of a table that is worth it, sampled before if it must be.
    pub fn of(&self, table: &Arc<Table>, reader: &Reader) -> Option<Arc<TableStatistics>> {
        if let Some(known) = self.get(table).filter(|known| !known.is_old(table)) {
            return Some(known);
        }
        if table.slots() < WORTH_SLOTS {
            return None;
        }
        self.analyze(table, reader, QUICK_ROWS, &mut || Ok(())).ok()
    }

    /// Whether a table is worth to be sampled.
    pub fn lacks(&self, table: &Table) -> bool {
        table.slots() >= WORTH_SLOTS && self.get(table).is_none_or(|known| known.is_old(table))
    }

    /// What is known is the same as long as this is.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Samples a table. `look` is asked every few milliseconds whether to go on.
    pub fn analyze(
        &self,
        table: &Arc<Table>,
        reader: &Reader,
        rows: u64,
        look: Look<'_>,
    ) -> Result<Arc<TableStatistics>, SqlError> {
        let made = Arc::new(Sample::take(table, reader, rows, look)?.statistics(table, look)?);
        self.tables.write().insert(table.id.0, made.clone());
        self.epoch.fetch_add(1, Ordering::AcqRel);
        Ok(made)
    }

    /// Forgets tables that are no more.
    pub fn retain(&self, is_there: impl Fn(u32) -> bool) {
        self.tables.write().retain(|id, _| is_there(*id));
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// An error: the statement was cancelled, or its time is over.
type Look<'a> = &'a mut dyn FnMut() -> Result<(), SqlError>;

/// Values of some rows, by column.
struct Sample {
    slots: u64,
    visited: u64,
    live: u64,
    columns: Vec<column::Values>,
}

impl Sample {
    /// One slot of each stretch, at a place that differs from stretch to stretch.
    fn take(table: &Arc<Table>, reader: &Reader, rows: u64, look: Look<'_>) -> Result<Sample, SqlError> {
        let slots = table.slots();
        let wanted = rows.min(slots);
        let columns = table.def.columns.iter().map(|_| column::Values::default()).collect();
        let mut sample = Sample { slots, visited: wanted, live: 0, columns };
        let picks = RowPicks::of(table, 0..table.def.columns.len() as u16);
        let mut row = Row::default();
        let mut next = 0;
        while next < wanted {
            look()?;
            let end = wanted.min(next + LEASE_SLOTS);
            let read = reader.batch(|batch| {
                for i in next..end {
                    let at = place(i, wanted, slots);
                    if batch.scan_next(table, &mut PageCursor::at(at), at + 1, &picks, &mut row).is_some() {
                        (0..table.def.columns.len()).for_each(|c| batch.fetch_long(table, &mut row, c));
                        sample.add(table, &row);
                    }
                }
            });
            read.map_err(|_| SqlError::new("57014", "canceling statement: its snapshot was given up"))?;
            next = end;
        }
        Ok(sample)
    }

    fn add(&mut self, table: &Table, row: &Row) {
        self.live += 1;
        for (column, values) in self.columns.iter_mut().enumerate() {
            let value = row.get(&table.layout, column);
            match value {
                Value::Null => values.nulls += 1,
                Value::Bytes(bytes) if bytes.len() > VALUE_BYTES_MAX => values.add_wide(bytes.len()),
                value => values.add(Datum::from(value), width(table.def.columns[column].ty, &value)),
            }
        }
    }

    /// Each column's values are sorted.
    fn statistics(self, table: &Table, look: Look<'_>) -> Result<TableStatistics, SqlError> {
        let rows = self.slots as f64 * self.live as f64 / self.visited.max(1) as f64;
        let columns = table.def.columns.iter().zip(self.columns).map(|(def, values)| {
            look()?;
            Ok((def.name.clone(), def.ty, values.statistics(def.ty, rows)))
        });
        Ok(TableStatistics { rows, slots: self.slots, columns: columns.collect::<Result<_, SqlError>>()? })
    }
}

fn width(ty: Type, value: &Value<'_>) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len() + 1,
        _ => ty.field_bytes(),
    }
}

/// A slot of the `i`-th of `parts` stretches.
fn place(i: u64, parts: u64, slots: u64) -> u64 {
    let (start, end) = (share(i, parts, slots), share(i + 1, parts, slots));
    // Any odd multiplier spreads; this is that of Knuth's hash.
    start + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (end - start).max(1)
}

fn share(i: u64, parts: u64, slots: u64) -> u64 {
    (u128::from(i) * u128::from(slots) / u128::from(parts.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_one_slot_of_each_stretch() {
        let places: Vec<u64> = (0..10).map(|i| place(i, 10, 1_000)).collect();
        assert!(
            places.iter().enumerate().all(|(i, p)| (i as u64 * 100..(i as u64 + 1) * 100).contains(p)),
            "{places:?}"
        );
        assert!((0..7).map(|i| place(i, 7, 7)).eq(0..7));
    }
}
