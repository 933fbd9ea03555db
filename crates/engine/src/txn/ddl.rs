//! Changing the schema: transactions over the system table that end by publishing a new schema.
//!
//! 1. DDL transactions are serial: each locks the counters' row first and keeps it to its end.
//! 2. A table that changes under existing rows is taken alone: its gate is closed, then every transaction that writes it is waited for.
//! 3. A schema is published after the cts is drawn and before the commit leaves, so that who registers a snapshot and then sees the old schema
//!    has a snapshot below that cts, which keeps dropped pages (see `garbage`).

use super::fill::{Filling, fill};
use super::garbage::key_of;
use super::locks::Strength;
use super::rows::copy_committed;
use super::session::{KeyChange, Session};
use super::{Error, Stop};
use crate::catalog::{
    ConstraintKind, Counters, Index, IndexDef, IndexId, NamespaceId, Object, Schema, Table, TableDef, TableId,
    TableObject, TreeKey,
};
use crate::ids::{RowId, StorageId};
use crate::index::{Conflict, Probe};
use crate::mem::{Account, Claim, Kind};
use crate::planted::{self, Bug};
use crate::schema::{Layout, LayoutError, Row};
use crate::sync::gate::Gate;
use crate::table::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Columns of a table; null bits and column numbers are 16-bit.
const COLUMNS_MAX: usize = 1600;
/// Columns of an index, as in PostgreSQL.
const KEY_COLUMNS_MAX: usize = 32;

/// The counters' row: the first of the system table, there since creation.
fn counters_row(system: &Table) -> RowId {
    system.store.primary.nth(0).expect("invariant: the system table has its counters")
}

impl Session {
    /// Creates a table with `indexes` in order, the primary key first. Constraints get their ids here; a foreign key to the table itself, and to an
    /// index of its own, is completed.
    pub fn create_table(&mut self, def: TableDef, indexes: Vec<IndexDef>) -> Result<(), Stop> {
        self.create_table_with_id(def, indexes).map(drop)
    }

    pub fn create_table_with_id(&mut self, mut def: TableDef, indexes: Vec<IndexDef>) -> Result<TableId, Stop> {
        let mut counters = self.begin_ddl()?;
        let id = TableId(self.core.next_id(&mut counters)?);
        let index_ids = indexes.iter().map(|_| self.core.next_id(&mut counters).map(IndexId));
        let ids = index_ids.collect::<Result<Vec<IndexId>, _>>()?;
        self.complete_constraints(&mut counters, id, &mut def, &indexes, &ids)?;
        self.make_table(counters, id, def, ids.into_iter().zip(indexes))?;
        self.own_new(id.0)?;
        Ok(id)
    }

    /// Makes an empty table whose ids are given.
    pub(super) fn make_table(
        &mut self,
        mut counters: Counters,
        id: TableId,
        def: TableDef,
        indexes: impl Iterator<Item = (IndexId, IndexDef)>,
    ) -> Result<(), Stop> {
        self.check_name_in(def.namespace, &def.name)?;
        let def = def.for_new_storage();
        let layout = layout_of(&def)?;
        let storage = self.next_storage(&mut counters);
        let store = self.new_store(storage, &layout);
        self.put_object(id.0, &Object::Table(TableObject { storage, def: def.clone() }))?;
        let mut table = Table::new(id, def, layout, Vec::new(), store, Arc::new(Gate::default()));
        for (id, index) in indexes {
            let index = self.put_index(&mut counters, &table, id, index)?;
            let mut list = table.indexes.clone();
            list.push(index);
            table = table.with_indexes(list);
        }
        self.change_schema(counters, |schema| schema.put(Arc::new(table)))
    }

    pub fn drop_table(&mut self, name: &str) -> Result<(), Stop> {
        self.begin_ddl()?;
        let table = self.own_table(name)?;
        self.drop_table_by_id(table.id)
    }

    /// Drops the table with its indexes and comments. What else refers to it is the caller's to drop before.
    pub fn drop_table_by_id(&mut self, id: TableId) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        let table = self.own_table_by_id(id)?;
        self.take_alone(&table)?;
        self.remove_object(table.id.0)?;
        for index in &table.indexes {
            self.remove_object(index.id.0)?;
        }
        let constraints = table.def.constraints.iter().map(|c| c.id);
        let indexes = table.indexes.iter().flat_map(|i| [i.id.0, i.def.constraint]);
        let objects: Vec<u32> = [table.id.0].into_iter().chain(indexes).chain(constraints).collect();
        let attached = self.remove_attached(&objects)?;
        self.ddl.dropped.push(table.store.id);
        self.change_schema(counters, |schema| {
            schema.remove_table(id);
            schema.forget(&attached);
        })
    }

    pub fn truncate(&mut self, name: &str) -> Result<(), Stop> {
        self.begin_ddl()?;
        let table = self.own_table(name)?;
        self.truncate_by_id(table.id)
    }

    /// Gives the table a new, empty storage.
    pub fn truncate_by_id(&mut self, id: TableId) -> Result<(), Stop> {
        let table = {
            self.begin_ddl()?;
            self.own_table_by_id(id)?
        };
        self.take_alone(&table)?;
        self.renew(&table, table.def.clone()).map(drop)
    }

    /// Gives the table another definition and a new, empty storage for it; its indexes are those whose columns are all there.
    pub(super) fn renew(&mut self, table: &Arc<Table>, def: TableDef) -> Result<Arc<Table>, Stop> {
        let mut counters = self.begin_ddl()?;
        let mut def = def.for_new_storage();
        let layout = layout_of(&def)?;
        self.complete_constraints(&mut counters, table.id, &mut def, &[], &[])?;
        let storage = self.next_storage(&mut counters);
        let store = self.new_store(storage, &layout);
        self.change_object(table.id.0, &Object::Table(TableObject { storage, def: def.clone() }))?;
        let seed = self.core.hash_seed;
        let budget = self.core.budget.clone();
        let empty = |i: &Arc<Index>| {
            let index = Index::new(i.id, i.def.clone(), &def, &layout, seed, 0);
            index.inspect(|index| index.charge_to(&budget)).map(Arc::new)
        };
        let indexes = table.indexes.iter().map(empty).collect::<Result<_, _>>().map_err(Error::LimitExceeded)?;
        let emptied = Arc::new(Table::new(table.id, def, layout, indexes, store, table.gate.clone()));
        self.ddl.dropped.push(table.store.id);
        self.change_schema(counters, |schema| schema.put(emptied.clone()))?;
        Ok(emptied)
    }

    pub fn create_index(&mut self, table: &str, def: IndexDef) -> Result<(), Stop> {
        self.begin_ddl()?;
        let table = self.own_table(table)?;
        self.create_index_on(table.id, def).map(drop)
    }

    pub fn create_index_on(&mut self, table: TableId, def: IndexDef) -> Result<IndexId, Stop> {
        let mut counters = self.begin_ddl()?;
        let table = self.own_table_by_id(table)?;
        self.check_name_in(table.def.namespace, &def.name)?;
        self.take_alone(&table)?;
        let id = IndexId(self.core.next_id(&mut counters)?);
        let index = self.put_index(&mut counters, &table, id, def)?;
        self.build(&table, &index)?;
        if index.def.unique {
            self.check_shown_unique(&table, &index)?;
        }
        let mut indexes = table.indexes.clone();
        // The primary key's index comes first, as after a restart.
        let at = if index.def.primary { 0 } else { indexes.len() };
        indexes.insert(at, index);
        self.change_schema(counters, |schema| schema.put(Arc::new(table.with_indexes(indexes))))?;
        Ok(id)
    }

    pub fn drop_index(&mut self, name: &str) -> Result<(), Stop> {
        self.begin_ddl()?;
        let found = self.schema().index(name).map(|(_, i)| i.id);
        self.drop_index_by_id(found.ok_or_else(|| Error::UndefinedIndex(name.into()))?)
    }

    pub fn drop_index_by_id(&mut self, id: IndexId) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        let table = self.table_of_index(id)?;
        self.take_alone(&table)?;
        self.remove_object(id.0)?;
        let gone = table.indexes.iter().filter(|i| i.id == id).flat_map(|i| [i.id.0, i.def.constraint]);
        let attached = self.remove_attached(&gone.collect::<Vec<_>>())?;
        let indexes = table.indexes.iter().filter(|i| i.id != id).cloned().collect();
        self.change_schema(counters, |schema| {
            schema.put(Arc::new(table.with_indexes(indexes)));
            schema.forget(&attached);
        })
    }

    pub(super) fn table_of_index(&self, id: IndexId) -> Result<Arc<Table>, Stop> {
        let table = self.schema().tables().find(|t| t.indexes.iter().any(|i| i.id == id)).cloned();
        Ok(table.ok_or_else(|| Error::UndefinedIndex(id.0.to_string()))?)
    }

    /// Takes the DDL lock and starts from the schema that is current under it.
    pub(super) fn begin_ddl(&mut self) -> Result<Counters, Stop> {
        self.needs_write()?;
        let system = self.core.system.clone();
        let mut row = Row::default();
        self.lock_newest(&system, counters_row(&system), Strength::Update, &mut row)?;
        if self.ddl.schema.is_none() {
            self.begin_schema();
        }
        match self.object_of(&system, &mut row) {
            (_, Object::Counters(counters)) => Ok(counters),
            _ => panic!("invariant: the system table's first row holds the counters"),
        }
    }

    fn object_of(&self, system: &Table, row: &mut Row) -> (u32, Object) {
        self.core.fetch_long(system, row, 2);
        Object::of_row(system, row).expect("invariant: system rows are written by this version or checked at open")
    }

    /// The transaction's own schema moves on, and the counters with it.
    pub(super) fn change_schema(
        &mut self,
        mut counters: Counters,
        change: impl FnOnce(&mut Schema),
    ) -> Result<(), Stop> {
        counters.schema_version += 1;
        self.change_row(counters_row(&self.core.system.clone()), 0, &Object::Counters(counters))?;
        let mut schema = Schema::clone(self.schema());
        schema.version = counters.schema_version;
        change(&mut schema);
        self.ddl.schema = Some(Arc::new(schema));
        Ok(())
    }

    pub(super) fn check_name_in(&self, namespace: NamespaceId, name: &str) -> Result<(), Stop> {
        if self.schema().has_relation_in(namespace, name) {
            return Err(Error::DuplicateRelation(name.into()).into());
        }
        Ok(())
    }

    /// Types share their names with tables and views, each of which is a type.
    pub(super) fn check_type_name_in(&self, namespace: NamespaceId, name: &str) -> Result<(), Stop> {
        let schema = self.schema();
        let is_taken = schema.enum_in(namespace, name).is_some()
            || schema.table_in(namespace, name).is_some()
            || schema.view_in(namespace, name).is_some();
        if is_taken {
            return Err(Error::DuplicateRelation(name.into()).into());
        }
        Ok(())
    }

    pub(super) fn own_table(&self, name: &str) -> Result<Arc<Table>, Stop> {
        Ok(self.schema().table(name).cloned().ok_or_else(|| Error::UndefinedTable(name.into()))?)
    }

    pub(super) fn own_table_by_id(&self, id: TableId) -> Result<Arc<Table>, Stop> {
        Ok(self.schema().table_by_id(id).cloned().ok_or_else(|| Error::UndefinedTable(id.0.to_string()))?)
    }

    /// An id that no page was ever allocated for, committed or not: allocations stay in the log when what they were for is rolled back.
    pub(super) fn next_storage(&self, counters: &mut Counters) -> StorageId {
        let id = self.core.next_storage.fetch_add(1, Ordering::Relaxed);
        counters.next_storage = id + 1;
        StorageId(id)
    }

    /// Gives new constraints their ids, and completes what refers to the table that is being made.
    pub(super) fn complete_constraints(
        &self,
        counters: &mut Counters,
        id: TableId,
        def: &mut TableDef,
        indexes: &[IndexDef],
        ids: &[IndexId],
    ) -> Result<(), Error> {
        for constraint in &mut def.constraints {
            if constraint.id == 0 {
                constraint.id = self.core.next_id(counters)?;
            }
            if let ConstraintKind::Foreign(key) = &mut constraint.kind
                && key.parent == TableId(0)
            {
                key.parent = id;
                let columns = |i: &IndexDef| i.columns.iter().map(|c| c.column).collect::<Vec<_>>();
                let mut sorted = key.parent_columns.clone();
                sorted.sort_unstable();
                let same = |i: &&IndexDef| {
                    let mut own = columns(i);
                    own.sort_unstable();
                    i.unique && own == sorted
                };
                if let Some(at) = indexes.iter().position(|i| same(&i)) {
                    key.parent_index = ids[at];
                }
            }
        }
        Ok(())
    }

    pub(super) fn new_store(&mut self, storage: StorageId, layout: &Layout) -> Arc<Store> {
        let store = Arc::new(Store::new(&self.core.pages, storage, layout.words()));
        self.core.stores.write().insert(storage, store.clone());
        self.ddl.created.push(storage);
        store
    }

    // ---- rows of the system table

    pub(super) fn put_object(&mut self, id: u32, object: &Object) -> Result<(), Stop> {
        let system = self.core.system.clone();
        let mut row = object.to_row(&system, id);
        self.insert(&system, &mut row).map(drop)
    }

    fn put_index(
        &mut self,
        counters: &mut Counters,
        table: &Table,
        id: IndexId,
        mut def: IndexDef,
    ) -> Result<Arc<Index>, Stop> {
        self.check_name_in(table.def.namespace, &def.name)?;
        if def.constraint == IndexDef::CONSTRAINT {
            def.constraint = self.core.next_id(counters)?;
        }
        if def.columns.len() > KEY_COLUMNS_MAX {
            return Err(Error::LimitExceeded(format!("an index of more than {KEY_COLUMNS_MAX} columns")).into());
        }
        let index = self.new_index(id, &def, table, table.slots())?;
        self.put_object(id.0, &Object::Index { table: table.id, def })?;
        Ok(Arc::new(index))
    }

    /// An empty index that expects `rows`.
    pub(super) fn new_index(&self, id: IndexId, def: &IndexDef, table: &Table, rows: u64) -> Result<Index, Error> {
        // Asked for before it is made, and given back for the index to take.
        let first = Account::new(&self.core.budget, Kind::Indexes);
        if !first.take(Index::planned_bytes(def, rows), Claim::Growth) {
            return Err(Error::OutOfMemory("an index"));
        }
        let index = Index::new(id, def.clone(), &table.def, &table.layout, self.core.hash_seed, rows)
            .map_err(Error::LimitExceeded)?;
        drop(first);
        index.charge_to(&self.core.budget);
        Ok(index)
    }

    /// The row of an object. Only the DDL lock's holder changes system rows, so the newest versions are looked at.
    pub(super) fn find_object(&mut self, id: u32) -> RowId {
        self.find_object_if_any(id).expect("invariant: every object of the schema has its row")
    }

    /// Whoever does not hold the DDL lock finds what is committed.
    pub(super) fn find_object_if_any(&mut self, id: u32) -> Option<RowId> {
        let system = self.core.system.clone();
        let primary = &system.store.primary;
        let mut row = Row::default();
        (0..primary.high_water()).filter_map(|at| primary.nth(at)).find(|&at| {
            copy_committed(&self.core, self.no, primary, at, &mut row);
            row.is_live() && row.get(&system.layout, 0) == crate::schema::Value::Int(i64::from(id))
        })
    }

    pub(super) fn change_object(&mut self, id: u32, object: &Object) -> Result<(), Stop> {
        let at = self.find_object(id);
        self.change_row(at, id, object)
    }

    pub(super) fn change_row(&mut self, at: RowId, id: u32, object: &Object) -> Result<(), Stop> {
        let system = self.core.system.clone();
        let mut old = Row::default();
        self.lock_newest(&system, at, Strength::Update, &mut old)?;
        self.update(&system, at, &old, &mut object.to_row(&system, id))
    }

    pub(super) fn remove_object(&mut self, id: u32) -> Result<(), Stop> {
        let system = self.core.system.clone();
        let at = self.find_object(id);
        let mut old = Row::default();
        self.lock_newest(&system, at, Strength::Update, &mut old)?;
        if planted::is(Bug::KeepObject) {
            return Ok(());
        }
        self.delete(&system, at, &old)
    }

    // ---- building an index

    /// Enters every linked version of every row: older snapshots will use the index too. The table is this transaction's alone.
    pub(super) fn build(&mut self, table: &Arc<Table>, index: &Arc<Index>) -> Result<(), Stop> {
        let core = self.core.clone();
        let builder = self.builder();
        let aged = fill(&[Filling::new(table, std::slice::from_ref(index))], core.crew, &builder);
        let aged = aged.map_err(|unfit| builder.stop_of(unfit))?;
        aged.into_iter().try_for_each(|(_, id)| self.enter_versions(table, index, id))
    }

    /// Enters a row that has older versions.
    fn enter_versions(&mut self, table: &Arc<Table>, index: &Arc<Index>, id: RowId) -> Result<(), Stop> {
        let versions = self.core.versions(table, id);
        let versions = versions.into_iter().map(|version| version.row);
        for (age, mut version) in versions.enumerate().filter(|(_, v)| v.is_live()) {
            self.core.fetch_key_columns(table, index, &mut version);
            // Only a unique key looks at its equals: elsewhere that would cost the square of their number.
            let unique = index.def.is_key() && age == 0 && !index.def.exempts(&table.layout, &version);
            if age > 0 {
                index.note_moved();
                self.room_for_key_change()?;
            }
            let entry = self.enter_version(table, index, id, &version, unique)?;
            if age > 0 {
                // The update that made this version old did not know the index: its entry is this transaction's to take out.
                let (table, index, command) = (table.clone(), index.clone(), self.command);
                let (old, new) = (entry.clone(), entry);
                self.key_changes.push(KeyChange { table, index, row: id, old, new, command });
            }
        }
        Ok(())
    }

    fn enter_version(
        &mut self,
        table: &Table,
        index: &Index,
        id: RowId,
        version: &Row,
        unique: bool,
    ) -> Result<TreeKey, Stop> {
        let (core, primary) = (&*self.core, &table.store.primary);
        let mut other = Row::default();
        let probe = |met: RowId| {
            primary.slot(met).copy(other.start_copy(primary.persistent_words()));
            core.fetch_key_columns(table, index, &mut other);
            let same = other.is_live()
                && !planted::is(Bug::SkipBuildCheck)
                && index.spec.rows_equal(&table.layout, &other, version);
            if same { Probe::Duplicate } else { Probe::Ignore }
        };
        let entry = key_of(index, &table.layout, version, &mut self.key);
        match index.insert(&entry, id, Claim::Growth, unique, probe) {
            Ok(_) => Ok(entry),
            Err(Conflict::OutOfMemory) => Err(Error::OutOfMemory("an index").into()),
            Err(_) => Err(Error::UniqueViolation { index: index.def.name.clone() }.into()),
        }
    }
}

pub(super) fn layout_of(def: &TableDef) -> Result<Layout, Error> {
    if def.columns.len() > COLUMNS_MAX {
        return Err(Error::LimitExceeded(format!("tables can have at most {COLUMNS_MAX} columns")));
    }
    def.layout().map_err(|LayoutError::TooWide(bytes)| {
        Error::LimitExceeded(format!("row is too wide: {bytes} bytes of fields"))
    })
}
