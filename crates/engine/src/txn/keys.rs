//! Which rows have this key now? For foreign keys and deferred unique ones, which no snapshot may deceive.
//!
//! 1. A row is looked at in its newest version: the committed one, or this transaction's own. Another's uncommitted version is nobody's yet.
//! 2. A deferred key is entered into its index first and looked for afterwards: of two transactions that enter the same one, who is later sees the
//!    other's, undecided as it may be. Who has to know waits for its end.
//! 3. A child's insert shares the key of the row it refers to; who deletes that row, or changes its key, has all of it locked. So once the one has the lock, the other has
//!    ended, or will wait and look again: a child's insert that was not committed when its parent was locked does not exist.

use super::locks::Strength;
use super::rows::{copy_committed, verdict};
use super::session::{Held, Session};
use super::values::fetch_extension;
use super::{Direction, Error, Stop};
use crate::catalog::{Index, Table};
use crate::ids::RowId;
use crate::index::Probe;
use crate::planted::{self, Bug};
use crate::schema::{KeyBuf, KeyPart, Row, Value};
use crate::table::PRIMARY;
use std::sync::Arc;

impl Session {
    /// Locks the row with this key in a unique index against its end and a change of the key, and copies its newest version, which is a committed one
    /// or its own. `value(i)` is the key's i-th
    /// column.
    pub fn lock_key<'a>(
        &mut self,
        table: &Arc<Table>,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        row: &mut Row,
    ) -> Result<Option<RowId>, Stop> {
        self.enter(table)?;
        let mut candidates = Vec::new();
        loop {
            candidates.clear();
            self.entries_with_key(index, &value, &mut candidates);
            let found = candidates.iter().copied().find(|&id| self.has_key_now(table, index, id, &value, row));
            let Some(id) = found else { return Ok(None) };
            if planted::is(Bug::SkipKeyShare) {
                return Ok(Some(id));
            }
            self.lock_newest(table, id, Strength::KeyShare, row)?;
            self.dependency = self.dependency.max(row.cts());
            if row.is_live() {
                self.core.fetch_key_columns(table, index, row);
                if index.spec.row_matches(&table.layout, row, &value) {
                    return Ok(Some(id));
                }
            }
        }
    }

    /// Whether the row's newest version has the key. Its long values may go with a change that no snapshot saw coming: then it is looked at anew.
    fn has_key_now<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        id: RowId,
        value: &impl Fn(usize) -> Value<'a>,
        row: &mut Row,
    ) -> bool {
        let slot = table.store.primary.slot(id);
        loop {
            let seen = slot.state();
            let has_key = self.newest(table, id, row) && {
                self.core.fetch_key_columns(table, index, row);
                index.spec.row_matches(&table.layout, row, value)
            };
            if !index.spec.has_variable() || slot.is_unchanged(seen) {
                return has_key;
            }
        }
    }

    /// Copies the row's newest version, committed or own; false if that is no row. Its long values are there while the row is locked, or as long as the
    /// statement's snapshot sees the same version.
    pub fn newest(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        copy_committed(&self.core, self.no, &table.store.primary, id, row);
        fetch_extension(table, row);
        self.dependency = self.dependency.max(row.cts());
        row.is_live()
    }

    /// Whether another row has the key of this one, which is in place, in an index; or may come to have it, as its transaction ends. Of several the
    /// first that has it now.
    fn twin(&mut self, table: &Table, index: &Index, id: RowId, row: &mut Row) -> Option<(RowId, Probe)> {
        self.core.fetch_key_columns(table, index, row);
        if index.def.exempts(&table.layout, row) {
            return None;
        }
        let columns: Vec<usize> = index.spec.columns().map(|c| usize::from(c.column)).collect();
        let mut candidates = Vec::new();
        self.entries_with_key(index, |i| row.get(&table.layout, columns[i]), &mut candidates);
        let mut met = None;
        for other in candidates.into_iter().filter(|other| *other != id) {
            match verdict(&self.core, self.no, table, index, other, row) {
                Probe::Ignore => {}
                Probe::Wait => met = Some((other, Probe::Wait)),
                Probe::Duplicate => return Some((other, Probe::Duplicate)),
            }
        }
        met
    }

    /// Whether the row's deferrable key has to be looked at again.
    pub fn may_have_twin(&mut self, table: &Arc<Table>, index: &Index, id: RowId, row: &mut Row) -> bool {
        self.twin(table, index, id, row).is_some()
    }

    /// Demands that no other row has the deferrable key of this one, as it is now.
    pub fn demand_unique(&mut self, table: &Arc<Table>, index: &Index, id: RowId, row: &mut Row) -> Result<(), Stop> {
        match self.twin(table, index, id, row) {
            None | Some((_, Probe::Ignore)) => Ok(()),
            Some((other, Probe::Wait)) => {
                let held = Held { table: self.enter(table)?, container: PRIMARY, row: other };
                Err(self.wait_for_owner(held))
            }
            Some((other, Probe::Duplicate)) => {
                let mut met = Row::default();
                self.newest(table, other, &mut met);
                self.note_newer_than_snapshot(&met);
                Err(Error::UniqueViolation { index: index.def.name.clone() }.into())
            }
        }
    }

    /// The next row of a full scan in its newest version.
    pub fn scan_newest(&mut self, table: &Table, position: &mut u64, row: &mut Row) -> Option<RowId> {
        let primary = &table.store.primary;
        while *position < primary.high_water() {
            let id = primary.nth(*position)?;
            *position += 1;
            if self.newest(table, id, row) {
                return Some(id);
            }
        }
        None
    }

    /// Appends the rows that may have these values in the index's first columns, in any version: look at each. An index without order takes whole keys.
    pub fn candidates<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        value: impl Fn(usize) -> Option<Value<'a>>,
        candidates: &mut Vec<RowId>,
    ) {
        let columns = index.spec.columns().len();
        if (0..columns).all(|i| value(i).is_some()) {
            return self.lookup(table, index, |i| value(i).unwrap_or(Value::Null), candidates);
        }
        let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
        index.spec.encode(&mut lower, |i| value(i).map_or(KeyPart::Lowest, KeyPart::Value));
        index.spec.encode(&mut upper, |i| value(i).map_or(KeyPart::Highest, KeyPart::Value));
        index.spec.pad_high(&mut upper);
        let mut cursor = self.range(index, &lower, &upper, Direction::Forward);
        cursor.each_entry(index, |id| candidates.push(id));
    }

    /// Announces that this transaction depends on the table's rows as they are: DDL on it waits.
    pub fn enter_table(&mut self, table: &Arc<Table>) -> Result<(), Stop> {
        self.enter(table).map(drop)
    }
}
