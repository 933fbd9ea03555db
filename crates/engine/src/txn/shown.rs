//! Does what is being promised of a table hold of what this transaction's own snapshot shows? Keys are unique and columns without nulls of the newest rows,
//! which is what who writes next relies on. A transaction that reads at one snapshot throughout may see others, and its plans rely on the same promise.

use super::fill::{Overseer, Unfit};
use super::garbage::Version;
use super::session::Session;
use super::values::fetch_extension;
use super::{Error, Stop};
use crate::catalog::{Index, Table, TableId};
use crate::schema::Row;

/// Slots after which it is asked whether the statement was cancelled.
const LOOK_EVERY: usize = 1 << 14;

impl Session {
    /// 40001 where the snapshot shows a row under a key that the row no longer has. The table is this transaction's alone, and its newest rows have
    /// unique keys: then so have those that the snapshot shows.
    pub(super) fn check_shown_unique(&self, table: &Table, index: &Index) -> Result<(), Stop> {
        self.check_shown(table, |shown, newest| {
            self.core.fetch_key_columns(table, index, shown);
            if index.spec.columns().any(|c| shown.is_null(&table.layout, usize::from(c.column))) {
                return true;
            }
            self.core.fetch_key_columns(table, index, newest);
            newest.is_live() && index.spec.rows_equal(&table.layout, shown, newest)
        })
    }

    /// 40001 where the snapshot shows a row with a null in the column. The newest rows have none, and the table is this transaction's alone.
    pub fn check_shown_not_null(&self, id: TableId, column: usize) -> Result<(), Stop> {
        let table = self.own_table_by_id(id)?;
        let has_value = |shown: &mut Row, _: &mut Row| {
            fetch_extension(&table, shown);
            !shown.is_null(&table.layout, column)
        };
        self.check_shown(&table, has_value)
    }

    /// Asks of each row of which the snapshot shows another version than the newest.
    fn check_shown(&self, table: &Table, holds: impl Fn(&mut Row, &mut Row) -> bool) -> Result<(), Stop> {
        if !self.isolation().keeps_snapshot() {
            return Ok(());
        }
        let primary = &table.store.primary;
        let builder = self.builder();
        for (seen, at) in (0..primary.high_water()).filter_map(|at| primary.nth(at)).enumerate() {
            if seen.is_multiple_of(LOOK_EVERY) && builder.is_cancelled() {
                return Err(builder.stop_of(Unfit::Cancelled));
            }
            if primary.slot(at).head().node.is_none() {
                continue;
            }
            let mut versions = self.core.versions(table, at);
            // Nobody else has changes of the table that are not committed.
            let is_shown = |version: &Version| !version.is_committed || version.row.cts() <= self.snapshot;
            let Some(shown) = versions.iter().position(is_shown).filter(|&at| at > 0) else { continue };
            let mut shown = versions.swap_remove(shown).row;
            if shown.is_live() && !holds(&mut shown, &mut versions[0].row) {
                return Err(Error::ShownOtherwise.into());
            }
        }
        Ok(())
    }
}
