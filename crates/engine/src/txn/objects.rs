//! Changing what is not rows: definitions of tables, sequences, views, enums, name spaces, comments, roles and rights.
//!
//! 1. Every change is one of the system table's rows, in the session's transaction, under the DDL lock (see `ddl`); so it commits, rolls back and
//!    recovers like a row.
//! 2. A table whose definition changes is taken alone first: nobody writes it by the old one.
//! 3. A rewrite inserts every row anew, as this transaction's own: what it did before to the table is in it, and older snapshots keep the old storage.

use super::ddl::layout_of;
use super::locks::Strength;
use super::rows::copy_committed;
use super::session::Session;
use super::values::fetch_extension;
use super::{Error, Stop};
use crate::catalog::{
    Attached, ColumnDef, Counters, EnumDef, EnumType, Index, IndexDef, IndexId, Namespace, NamespaceId, Object, Rights,
    Role, RoleDef, RoleId, Sequence, SequenceDef, SequenceState, SequenceValue, Table, TableDef, TableId, TableObject,
    View, ViewDef,
};
use crate::schema::{EnumId, Row};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sets a new row, the second, from an old one.
pub type Convert<'a, E> = dyn FnMut(&mut Session, &Table, &mut Row, &Table, &mut Row) -> Result<(), E> + 'a;

/// Looks at a row.
pub type Each<'a, E> = dyn FnMut(&mut Session, &Arc<Table>, &mut Row) -> Result<(), E> + 'a;

impl Session {
    /// Takes the DDL lock: from here to its end the transaction's schema is everybody's last, and its own changes.
    pub fn begin_definition(&mut self) -> Result<(), Stop> {
        self.begin_ddl().map(drop)
    }

    /// This session's place among all, from 1.
    pub fn number(&self) -> u32 {
        self.no.0 + 1
    }

    // ---- tables

    /// Gives the table another definition of the same record: names, defaults, constraints, roles, NOT NULL, the lengths of texts. Rows stay as
    /// they are. An index that encodes its key differently now is built anew.
    pub fn redefine_table(&mut self, id: TableId, mut def: TableDef) -> Result<(), Stop> {
        let mut counters = self.begin_ddl()?;
        let table = self.own_table_by_id(id)?;
        if (table.def.namespace, &table.def.name) != (def.namespace, &def.name) {
            self.check_name_in(def.namespace, &def.name)?;
        }
        self.take_alone(&table)?;
        let layout = layout_of(&def)?;
        assert!(layout.is_same_record(&table.layout), "invariant: who changes the record rewrites the table");
        self.complete_constraints(&mut counters, id, &mut def, &[], &[])?;
        self.change_object(id.0, &Object::Table(TableObject { storage: table.store.id, def: def.clone() }))?;
        let loosened = |index: &Index| {
            index.spec.columns().any(|c| {
                let column = usize::from(c.column);
                table.def.columns[column].not_null && !def.columns[column].not_null
            })
        };
        let bare = Table::new(id, def.clone(), layout.clone(), Vec::new(), table.store.clone(), table.gate.clone());
        let mut indexes = Vec::with_capacity(table.indexes.len());
        for index in &table.indexes {
            if !loosened(index) {
                indexes.push(index.clone());
                continue;
            }
            let rebuilt = Arc::new(self.new_index(index.id, &index.def, &bare, table.slots())?);
            self.build(&table, &rebuilt)?;
            indexes.push(rebuilt);
        }
        let (store, gate) = (table.store.clone(), table.gate.clone());
        let redefined = Table::new(id, def, layout, indexes, store, gate);
        self.change_schema(counters, |schema| schema.put(Arc::new(redefined)))
    }

    /// Adds a column at the table's end and touches no row: those that are there have what the column calls missing. False: there is no room for
    /// that, and the table is to be rewritten.
    pub fn add_column(&mut self, id: TableId, column: ColumnDef) -> Result<bool, Stop> {
        let mut counters = self.begin_ddl()?;
        let table = self.own_table_by_id(id)?;
        self.take_alone(&table)?;
        let mut def = table.def.clone().with_added(column);
        let Ok(layout) = layout_of(&def) else { return Ok(false) };
        self.complete_constraints(&mut counters, id, &mut def, &[], &[])?;
        self.change_object(id.0, &Object::Table(TableObject { storage: table.store.id, def: def.clone() }))?;
        let (store, gate) = (table.store.clone(), table.gate.clone());
        let wider = Table::new(id, def, layout, table.indexes.clone(), store, gate);
        self.change_schema(counters, |schema| schema.put(Arc::new(wider)))?;
        Ok(true)
    }

    /// Gives the table another definition and each row another record: `convert` is given the old row and a new one to set.
    pub fn rewrite_table<E: From<Stop>>(
        &mut self,
        id: TableId,
        def: TableDef,
        convert: &mut Convert<'_, E>,
    ) -> Result<(), E> {
        self.begin_ddl()?;
        let old = self.own_table_by_id(id)?;
        self.take_alone(&old)?;
        let new = self.renew(&old, def)?;
        let (mut row, mut record) = (Row::default(), Row::default());
        let primary = &old.store.primary;
        for at in (0..primary.high_water()).filter_map(|at| primary.nth(at)) {
            copy_committed(&self.core, self.no, primary, at, &mut row);
            if !row.is_live() {
                continue;
            }
            fetch_extension(&old, &mut row);
            record.reset(&new.layout);
            convert(self, &old, &mut row, &new, &mut record)?;
            self.insert(&new, &mut record)?;
        }
        Ok(())
    }

    /// Calls `each` with every row as it is now, this transaction's changes included; nobody else writes the table.
    pub fn each_row_alone<E: From<Stop>>(&mut self, id: TableId, each: &mut Each<'_, E>) -> Result<(), E> {
        self.begin_ddl()?;
        let table = self.own_table_by_id(id)?;
        self.take_alone(&table)?;
        let mut row = Row::default();
        let primary = &table.store.primary;
        for at in (0..primary.high_water()).filter_map(|at| primary.nth(at)) {
            copy_committed(&self.core, self.no, primary, at, &mut row);
            if row.is_live() {
                fetch_extension(&table, &mut row);
                each(self, &table, &mut row)?;
            }
        }
        Ok(())
    }

    /// Deletes every row of a table that nobody else writes, as it is now. Rows change, no definition: so it waits for no DDL.
    pub fn delete_rows_alone(&mut self, id: TableId) -> Result<(), Stop> {
        let table = self.own_table_by_id(id)?;
        let mut row = Row::default();
        let primary = &table.store.primary;
        for at in (0..primary.high_water()).filter_map(|at| primary.nth(at)) {
            copy_committed(&self.core, self.no, primary, at, &mut row);
            if row.is_live() {
                self.lock_newest(&table, at, Strength::Update, &mut row)?;
                self.delete(&table, at, &row)?;
            }
        }
        Ok(())
    }

    /// Gives an index another definition of the same key: its name, what constraint it is of.
    pub fn redefine_index(&mut self, id: IndexId, mut def: IndexDef) -> Result<(), Stop> {
        let mut counters = self.begin_ddl()?;
        let table = self.table_of_index(id)?;
        let old = table.indexes.iter().find(|i| i.id == id).expect("the table of this index has it").clone();
        if old.def.name != def.name {
            self.check_name_in(table.def.namespace, &def.name)?;
        }
        assert!(old.def.columns == def.columns && old.def.kind == def.kind, "invariant: another key is another index");
        self.take_alone(&table)?;
        if def.constraint == IndexDef::CONSTRAINT {
            def.constraint = self.core.next_id(&mut counters)?;
        }
        self.change_object(id.0, &Object::Index { table: table.id, def: def.clone() })?;
        let rebuilt = Arc::new(self.new_index(id, &def, &table, table.slots())?);
        self.build(&table, &rebuilt)?;
        if def.unique && !old.def.unique {
            self.check_shown_unique(&table, &rebuilt)?;
        }
        let same = table.indexes.iter().map(|i| if i.id == id { rebuilt.clone() } else { i.clone() });
        let mut indexes: Vec<_> = same.collect();
        indexes.sort_by_key(|i| (!i.def.primary, i.id));
        self.change_schema(counters, |schema| schema.put(Arc::new(table.with_indexes(indexes))))
    }

    // ---- sequences

    pub fn create_sequence(&mut self, def: SequenceDef, value: SequenceValue) -> Result<u32, Stop> {
        let mut counters = self.begin_ddl()?;
        self.check_name_in(def.namespace, &def.name)?;
        let id = self.core.next_id(&mut counters)?;
        self.put_object(id, &Object::Sequence { def: def.clone(), value })?;
        let state = Arc::new(SequenceState::new(value, true));
        self.ddl.sequences.push((id, state.clone()));
        let sequence = Arc::new(Sequence { id, def, state });
        self.change_schema(counters, |schema| schema.put_sequence(sequence))?;
        self.own_new(id)?;
        Ok(id)
    }

    /// Another definition, and a new start unless `value` is `None`.
    pub fn redefine_sequence(&mut self, id: u32, def: SequenceDef, value: Option<SequenceValue>) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        let old = self.own_sequence(id)?;
        if (old.def.namespace, &old.def.name) != (def.namespace, &def.name) {
            self.check_name_in(def.namespace, &def.name)?;
        }
        // Its row is this transaction's from here on: nobody else makes room for values, and what the state says stays.
        self.lock_object(id)?;
        let now = {
            let mut state = old.state.lock();
            state.left = 0;
            state.value
        };
        let value = value.unwrap_or(now);
        self.change_object(id, &Object::Sequence { def: def.clone(), value })?;
        let state = Arc::new(SequenceState::new(value, true));
        self.ddl.sequences.push((id, state.clone()));
        let sequence = Arc::new(Sequence { id, def, state });
        self.change_schema(counters, |schema| schema.put_sequence(sequence))
    }

    pub fn drop_sequence(&mut self, id: u32) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.own_sequence(id)?;
        self.remove_object(id)?;
        let attached = self.remove_attached(&[id])?;
        self.change_schema(counters, |schema| {
            schema.remove_sequence(id);
            schema.forget(&attached);
        })
    }

    pub(super) fn own_sequence(&self, id: u32) -> Result<Arc<Sequence>, Stop> {
        Ok(self.schema().sequence_by_id(id).cloned().ok_or_else(|| Error::UndefinedTable(id.to_string()))?)
    }

    // ---- views

    pub fn create_view(&mut self, def: ViewDef) -> Result<u32, Stop> {
        let mut counters = self.begin_ddl()?;
        self.check_name_in(def.namespace, &def.name)?;
        let id = self.core.next_id(&mut counters)?;
        self.put_object(id, &Object::View(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_view(Arc::new(View { id, def })))?;
        self.own_new(id)?;
        Ok(id)
    }

    pub fn redefine_view(&mut self, id: u32, def: ViewDef) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        let old = self.schema().view_by_id(id).cloned();
        let old = old.ok_or_else(|| Error::UndefinedTable(id.to_string()))?;
        if (old.def.namespace, &old.def.name) != (def.namespace, &def.name) {
            self.check_name_in(def.namespace, &def.name)?;
        }
        self.change_object(id, &Object::View(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_view(Arc::new(View { id, def })))
    }

    pub fn drop_view(&mut self, id: u32) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.remove_object(id)?;
        let attached = self.remove_attached(&[id])?;
        self.change_schema(counters, |schema| {
            schema.remove_view(id);
            schema.forget(&attached);
        })
    }

    // ---- enums

    pub fn create_enum(&mut self, mut def: EnumDef) -> Result<EnumId, Stop> {
        let mut counters = self.begin_ddl()?;
        self.check_type_name_in(def.namespace, &def.name)?;
        let id = self.core.next_id(&mut counters)?;
        self.complete_labels(&mut counters, &mut def)?;
        self.put_object(id, &Object::Enum(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_enum(Arc::new(EnumType { id: EnumId(id), def })))?;
        self.own_new(id)?;
        Ok(EnumId(id))
    }

    /// Another name, more labels or other texts of them. Numbers of labels stay: rows have them.
    pub fn redefine_enum(&mut self, id: EnumId, mut def: EnumDef) -> Result<(), Stop> {
        let mut counters = self.begin_ddl()?;
        let old = self.own_enum(id)?;
        if (old.def.namespace, &old.def.name) != (def.namespace, &def.name) {
            self.check_type_name_in(def.namespace, &def.name)?;
        }
        self.complete_labels(&mut counters, &mut def)?;
        self.change_object(id.0, &Object::Enum(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_enum(Arc::new(EnumType { id, def })))
    }

    /// No column is of it any more.
    pub fn drop_enum(&mut self, id: EnumId) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.own_enum(id)?;
        self.remove_object(id.0)?;
        let attached = self.remove_attached(&[id.0])?;
        self.change_schema(counters, |schema| {
            schema.remove_enum(id);
            schema.forget(&attached);
        })
    }

    fn own_enum(&self, id: EnumId) -> Result<Arc<EnumType>, Stop> {
        Ok(self.schema().enum_by_id(id).cloned().ok_or_else(|| Error::UndefinedTable(id.0.to_string()))?)
    }

    fn complete_labels(&self, counters: &mut Counters, def: &mut EnumDef) -> Result<(), Stop> {
        for label in def.labels.iter_mut().filter(|label| label.oid == 0) {
            label.oid = self.core.next_id(counters)?;
        }
        Ok(())
    }

    // ---- name spaces

    pub fn create_namespace(&mut self, name: &str) -> Result<NamespaceId, Stop> {
        let mut counters = self.begin_ddl()?;
        let id = self.core.next_id(&mut counters)?;
        self.put_object(id, &Object::Namespace(name.into()))?;
        let namespace = Namespace { id: NamespaceId(id), name: name.into() };
        self.change_schema(counters, |schema| schema.put_namespace(namespace))?;
        self.own_new(id)?;
        Ok(NamespaceId(id))
    }

    pub fn rename_namespace(&mut self, id: NamespaceId, name: &str) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.change_object(id.0, &Object::Namespace(name.into()))?;
        self.change_schema(counters, |schema| schema.put_namespace(Namespace { id, name: name.into() }))
    }

    /// Nothing is in it any more.
    pub fn drop_namespace(&mut self, id: NamespaceId) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        match id {
            NamespaceId::PUBLIC => self.put_object(id.0, &Object::Namespace(String::new()))?,
            _ => self.remove_object(id.0)?,
        }
        let attached = self.remove_attached(&[id.0])?;
        self.change_schema(counters, |schema| {
            schema.remove_namespace(id);
            schema.forget(&attached);
        })
    }

    // ---- comments

    /// `column`: its number from 1, or 0 for the object itself. `None` takes the comment away.
    pub fn set_comment(&mut self, object: u32, column: u16, text: Option<&str>) -> Result<(), Stop> {
        let mut counters = self.begin_ddl()?;
        let known = self.schema().comment_id(object, column);
        match (known, text) {
            (None, None) => Ok(()),
            (Some(id), None) => {
                self.remove_object(id)?;
                self.change_schema(counters, |schema| schema.remove_comment(object, column))
            }
            (known, Some(text)) => {
                let comment = Object::Comment { object, column, text: text.into() };
                let id = match known {
                    Some(id) => {
                        self.change_object(id, &comment)?;
                        id
                    }
                    None => {
                        let id = self.core.next_id(&mut counters)?;
                        self.put_object(id, &comment)?;
                        id
                    }
                };
                self.change_schema(counters, |schema| schema.put_comment(object, column, id, text))
            }
        }
    }

    /// Takes away the comments on these objects and their columns, and their rights; gives what the schema has to forget.
    pub(super) fn remove_attached(&mut self, objects: &[u32]) -> Result<Attached, Stop> {
        let mut gone = Attached::default();
        for &object in objects.iter().filter(|&&object| object != 0) {
            for (column, id) in self.schema().comments_of(object) {
                self.remove_object(id)?;
                gone.comments.push((object, column));
            }
            if let Some(id) = self.schema().rights_id(object) {
                self.remove_object(id)?;
                gone.rights.push(object);
            }
        }
        Ok(gone)
    }

    // ---- roles and rights

    pub fn create_role(&mut self, def: RoleDef) -> Result<RoleId, Stop> {
        let mut counters = self.begin_ddl()?;
        let id = self.core.next_id(&mut counters)?;
        self.put_role(counters, RoleId(id), def)?;
        Ok(RoleId(id))
    }

    /// Gives the first role a name of its own.
    pub fn name_first_role(&mut self, def: RoleDef) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        assert!(self.schema().role(RoleId::FIRST).is_none(), "invariant: the first role is named once");
        self.put_role(counters, RoleId::FIRST, def)
    }

    fn put_role(&mut self, counters: Counters, id: RoleId, def: RoleDef) -> Result<(), Stop> {
        self.put_object(id.0, &Object::Role(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_role(Arc::new(Role { id, def })))
    }

    pub fn redefine_role(&mut self, id: RoleId, def: RoleDef) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.change_object(id.0, &Object::Role(def.clone()))?;
        self.change_schema(counters, |schema| schema.put_role(Arc::new(Role { id, def })))
    }

    /// Nothing refers to it any more.
    pub fn drop_role(&mut self, id: RoleId) -> Result<(), Stop> {
        let counters = self.begin_ddl()?;
        self.remove_object(id.0)?;
        let attached = self.remove_attached(&[id.0])?;
        self.change_schema(counters, |schema| {
            schema.remove_role(id);
            schema.forget(&attached);
        })
    }

    /// Who owns what this session makes from here on.
    pub fn set_creator(&mut self, role: RoleId) {
        self.creator = role;
    }

    pub(super) fn own_new(&mut self, object: u32) -> Result<(), Stop> {
        self.set_rights(object, Rights { owner: self.creator, grants: None })
    }

    /// The current schema's `rights_version`, of which a plan must be that skips the schema.
    #[inline]
    pub fn rights_version(&self) -> u64 {
        self.core.rights_version.load(Ordering::Acquire)
    }

    /// Says who owns the object and what is granted on it. What is said already stays as it is.
    pub fn set_rights(&mut self, object: u32, rights: Rights) -> Result<(), Stop> {
        let mut counters = self.begin_ddl()?;
        if self.schema().rights(object).map_or_else(|| rights == Rights::unsaid(object), |known| *known == rights) {
            return Ok(());
        }
        let stored = Object::Rights { object, rights: rights.clone() };
        let id = match self.schema().rights_id(object) {
            Some(id) => {
                self.change_object(id, &stored)?;
                id
            }
            None => {
                let id = self.core.next_id(&mut counters)?;
                self.put_object(id, &stored)?;
                id
            }
        };
        self.change_schema(counters, |schema| schema.put_rights(object, id, rights))
    }
}
