//! What goes with what is dropped, and what forbids it? DROP, TRUNCATE, COMMENT.

use super::removal::Removal;
use super::{Definer, Done};
use crate::bind::names::{RelationName, TEMPORARY, namespace_named};
use crate::bind::scope::fold;
use crate::catalog::oid;
use crate::error::SqlError;
use crate::role::acl::Privileges;
use freshet_engine::catalog::{
    ColumnDef, ColumnRole, IndexId, NamespaceId, Schema, SequenceValue, Table, TableDef, TableId,
};
use freshet_engine::schema::EnumId;
use sqlparser::ast::{self, CommentObject, Ident, ObjectName, ObjectType, TruncateIdentityOption};
use std::sync::Arc;

fn absent(what: &str, name: &RelationName) -> String {
    format!("{what} \"{}\" does not exist, skipping", name.name)
}

impl Definer<'_> {
    pub(super) fn drop(
        &mut self,
        object: &ObjectType,
        if_exists: bool,
        names: &[ObjectName],
        cascade: bool,
    ) -> Done<()> {
        match object {
            ObjectType::Schema => return names.iter().try_for_each(|name| self.drop_schema(name, if_exists, cascade)),
            ObjectType::Index => return names.iter().try_for_each(|name| self.drop_index(name, if_exists, cascade)),
            ObjectType::Type => return self.drop_types(names, if_exists, cascade),
            ObjectType::Table | ObjectType::View | ObjectType::Sequence => {}
            other => return Err(SqlError::unsupported(format!("DROP {other}")).into()),
        }
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        let mut shown = Vec::new();
        for name in names {
            let name = RelationName::of(name)?;
            let found = match object {
                ObjectType::Table => name.table(&schema).map(|table| {
                    removal.tables.insert(table.id);
                    table.id.0
                }),
                ObjectType::View => name.view(&schema).map(|view| {
                    removal.views.insert(view.id);
                    view.id
                }),
                _ => name.sequence(&schema).map(|sequence| {
                    removal.sequences.insert(sequence.id);
                    sequence.id
                }),
            };
            let word = object.to_string().to_lowercase();
            match found {
                Some(id) => {
                    removal.asked.push((id, None));
                    shown.push(format!("{word} {}", removal.relation(id)));
                }
                None => self.check_absent(&name, &word, &schema, if_exists)?,
            }
        }
        self.check_owned(&removal, &schema)?;
        self.check_may_drop(&removal, &schema)?;
        self.remove_all(removal, &schema, cascade, &shown)
    }

    /// Removes what was asked for, with all that depends on it if it may go.
    pub(super) fn remove_all(
        &mut self,
        mut removal: Removal,
        schema: &Arc<Schema>,
        cascade: bool,
        shown: &[String],
    ) -> Done<()> {
        removal.close(schema);
        let what = if let [one] = shown { one.clone() } else { "desired object(s)".to_owned() };
        self.defined.notices.extend(removal.check(cascade, &what)?);
        self.remove(removal)
    }

    /// There is no such object: another one, a notice, or an error.
    pub(super) fn check_absent(
        &mut self,
        name: &RelationName,
        word: &str,
        schema: &Schema,
        if_exists: bool,
    ) -> Done<()> {
        let other = name.table(schema).is_some()
            || name.view(schema).is_some()
            || name.sequence(schema).is_some()
            || name.index(schema).is_some();
        if other {
            let article = if word == "index" { "an" } else { "a" };
            return Err(SqlError::new("42809", format!("\"{}\" is not {article} {word}", name.name)).into());
        }
        let known = name.namespace.as_ref().is_none_or(|n| namespace_named(schema, n).is_some());
        if !if_exists {
            return Err(match (&name.namespace, known) {
                (Some(namespace), false) => SqlError::new("3F000", format!("schema \"{namespace}\" does not exist")),
                _ if word == "index" => SqlError::new("42704", format!("index \"{}\" does not exist", name.name)),
                _ => SqlError::new("42P01", format!("{word} \"{}\" does not exist", name.name)),
            }
            .into());
        }
        match (&name.namespace, known) {
            (Some(namespace), false) => {
                self.notice("00000", format!("schema \"{namespace}\" does not exist, skipping"))
            }
            _ => self.notice("00000", absent(word, name)),
        }
        Ok(())
    }

    /// What is named is dropped by its owner, or its schema's.
    fn check_may_drop(&self, removal: &Removal, schema: &Schema) -> Done<()> {
        let tables = removal.tables.iter().map(|id| id.0);
        for id in tables.chain(removal.views.iter().copied()).chain(removal.sequences.iter().copied()) {
            let namespace = self.object(schema, id).and_then(|target| target.namespace);
            let owns_schema = namespace.is_some_and(|id| self.access().is_some_and(|access| access.owns(id.0)));
            if !owns_schema {
                self.check_owner(id)?;
            }
        }
        Ok(())
    }

    /// Drops these and what depends on them: DROP OWNED.
    pub(super) fn drop_objects(&mut self, ids: &[u32], cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        removal.asked = ids.iter().map(|&id| (id, None)).collect();
        let mut namespaces = Vec::new();
        for &id in ids {
            if schema.table_by_id(TableId(id)).is_some() {
                removal.tables.insert(TableId(id));
            } else if schema.view_by_id(id).is_some() {
                removal.views.insert(id);
            } else if let Some(sequence) = schema.sequence_by_id(id) {
                // That of a column goes with its table.
                if sequence.def.owner.is_none_or(|(table, _)| schema.owner(table.0) != schema.owner(id)) {
                    removal.sequences.insert(id);
                }
            } else if let Some(made) = schema.enum_by_id(EnumId(id)) {
                removal.enums.insert(made.id);
            } else if let Some(namespace) = schema.namespace_by_id(NamespaceId(id)) {
                removal.add_contents(&schema, namespace.id, &namespace.name);
                namespaces.push(namespace.id);
            }
        }
        self.check_owned(&removal, &schema)?;
        removal.close(&schema);
        let what = match ids {
            [one] => self.object(&schema, *one).map_or_else(String::new, |target| target.described()),
            _ => "desired object(s)".to_owned(),
        };
        self.defined.notices.extend(removal.check(cascade, &what)?);
        self.remove(removal)?;
        for id in namespaces.into_iter().filter(|&id| !id.is_system()) {
            self.engine.drop_namespace(id)?;
        }
        Ok(())
    }

    pub(super) fn drop_with_dependents(&mut self, tables: &[TableId]) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        removal.tables.extend(tables);
        removal.close(&schema);
        self.remove(removal)
    }

    /// The sequence of an identity column goes with that only.
    fn check_owned(&self, removal: &Removal, schema: &Schema) -> Done<()> {
        for &id in &removal.sequences {
            let Some(sequence) = schema.sequence_by_id(id) else { continue };
            let Some((table, column)) = sequence.def.owner else { continue };
            let Some(table) = schema.table_by_id(table).filter(|t| !removal.tables.contains(&t.id)) else { continue };
            let column = &table.def.columns[usize::from(column)];
            if column.is_identity() {
                let name = &sequence.def.name;
                let needs = format!("column {} of table {}", column.name, table.def.name);
                return Err(SqlError::new("2BP01", format!("cannot drop sequence {name} because {needs} requires it"))
                    .with_hint(format!("You can drop {needs} instead."))
                    .into());
            }
        }
        Ok(())
    }

    fn remove(&mut self, removal: Removal) -> Done<()> {
        for &(table, constraint) in &removal.constraints {
            self.change_def(table, |def| def.constraints.retain(|c| c.id != constraint))?;
        }
        for &(table, column) in &removal.defaults {
            self.change_def(table, |def| def.columns[usize::from(column)].default = None)?;
        }
        for &view in &removal.views {
            self.engine.drop_view(view)?;
        }
        for &id in &removal.tables {
            let table = self.engine.schema().table_by_id(id).cloned().expect("the table was just looked up");
            self.nothing_awaited(&table, "DROP TABLE")?;
            self.engine.drop_table_by_id(id)?;
            self.temporary.on_commit.retain(|(temporary, _)| *temporary != id);
        }
        for &index in &removal.indexes {
            self.engine.drop_index_by_id(index)?;
        }
        for &(table, at) in &removal.hidden {
            self.change_def(table, |def| {
                let ty = def.columns[usize::from(at)].ty;
                let name = format!("........pg.dropped.{}........", at + 1);
                def.columns[usize::from(at)] =
                    ColumnDef { name, ty, role: ColumnRole::Dropped, ..ColumnDef::default() };
            })?;
        }
        let told = self.defined.notices.len();
        for &(table, at) in &removal.columns {
            let Some(table) = self.engine.schema().table_by_id(table).cloned() else { continue };
            let name = Ident::with_quote('"', table.def.columns[usize::from(at)].name.clone());
            self.nothing_awaited(&table, "ALTER TABLE")?;
            self.drop_column(&table, &name, true, true)?;
        }
        // What goes with a column was told, or goes without a word.
        self.defined.notices.truncate(told);
        for &sequence in &removal.sequences {
            self.engine.drop_sequence(sequence)?;
        }
        for &made in &removal.enums {
            self.engine.drop_enum(made)?;
        }
        Ok(())
    }

    /// Changes what the table's definition says.
    pub(super) fn change_def(&mut self, id: TableId, change: impl FnOnce(&mut TableDef)) -> Done<()> {
        let table = self.engine.schema().table_by_id(id).cloned().expect("the table was just looked up");
        let mut def = table.def.clone();
        change(&mut def);
        for constraint in table.def.constraints.iter().filter(|c| def.constraints.iter().all(|kept| kept.id != c.id)) {
            self.engine.set_comment(constraint.id, 0, None)?;
        }
        Ok(self.engine.redefine_table(id, def)?)
    }

    /// Drops constraints that refer to an index's key, or refuses to.
    pub(super) fn release_index(&mut self, table: &Arc<Table>, index: IndexId, what: &str, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        let (on, on_what) = ((index.0, None), format!("index {}", removal.relation(index.0)));
        removal.asked.push(on);
        for (child, constraint, key) in schema.references(table.id) {
            if key.parent_index == index && removal.constraints.insert((child.id, constraint.id)) {
                let name = format!("constraint {} on table {}", constraint.name, removal.relation(child.id.0));
                removal.add(on, (constraint.id, None), name, &on_what);
            }
        }
        self.defined.notices.extend(removal.check(cascade, what)?);
        self.remove(removal)
    }

    /// Views whose GROUP BY has a primary key that is gone now, and which show more of its table than that: gone with it, or forbidding that.
    pub(super) fn release_groups(&mut self, table: &Arc<Table>, what: &str, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        let on = (table.id.0, Some(0));
        removal.asked.push(on);
        for view in schema.readers(table.id.0).filter(|view| super::view::lacks_group(view, &schema)) {
            removal.views.insert(view.id);
            let name = format!("view {}", removal.relation(view.id));
            removal.add(on, (view.id, None), name, what);
        }
        removal.close(&schema);
        self.defined.notices.extend(removal.check(cascade, what)?);
        self.remove(removal)
    }

    fn drop_index(&mut self, name: &ObjectName, if_exists: bool, cascade: bool) -> Done<()> {
        let name = RelationName::of(name)?;
        let schema = self.schema();
        let Some((table, index)) = name.index(&schema) else {
            return self.check_absent(&name, "index", &schema, if_exists);
        };
        self.check_index_owner(index.id)?;
        self.nothing_awaited(table, "DROP INDEX")?;
        if index.def.constraint != 0 {
            let (index, table) = (&index.def.name, &table.def.name);
            let message = format!("cannot drop index {index} because constraint {index} on table {table} requires it");
            return Err(SqlError::new("2BP01", message)
                .with_hint(format!("You can drop constraint {index} on table {table} instead."))
                .into());
        }
        self.release_index(table, index.id, &format!("index {}", index.def.name), cascade)?;
        Ok(self.engine.drop_index_by_id(index.id)?)
    }

    // ---- schemas

    fn drop_schema(&mut self, name: &ObjectName, if_exists: bool, cascade: bool) -> Done<()> {
        let name = RelationName::of(name)?.name;
        let schema = self.schema();
        let Some(namespace) = schema.namespace(&name) else {
            if if_exists {
                self.notice("00000", format!("schema \"{name}\" does not exist, skipping"));
                return Ok(());
            }
            return Err(SqlError::new("3F000", format!("schema \"{name}\" does not exist")).into());
        };
        let id = namespace.id;
        if id.is_system() || name.starts_with("pg_") {
            return Err(SqlError::new(
                "2BP01",
                format!("cannot drop schema {name} because it is required by the database system"),
            )
            .into());
        }
        self.check_owner(id.0)?;
        let mut removal = Removal::contents(&schema, id, &name);
        removal.close(&schema);
        self.defined.notices.extend(removal.check(cascade, &format!("schema {name}"))?);
        self.remove(removal)?;
        Ok(self.engine.drop_namespace(id)?)
    }

    /// Drops everything in a temporary schema.
    pub(super) fn empty_namespace(&mut self, id: NamespaceId) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::contents(&schema, id, TEMPORARY);
        removal.close(&schema);
        self.remove(removal)
    }

    // ---- TRUNCATE

    pub(super) fn truncate(&mut self, truncate: &ast::Truncate) -> Done<()> {
        let ast::Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } = truncate;
        if partitions.is_some() || *if_exists || on_cluster.is_some() {
            return Err(SqlError::unsupported("a TRUNCATE clause of another dialect").into());
        }
        let cascades = *cascade == Some(ast::CascadeOption::Cascade);
        let mut ids: Vec<TableId> = Vec::new();
        for target in table_names {
            let table = self.table(&target.name)?;
            if !ids.contains(&table.id) {
                ids.push(table.id);
            }
        }
        for &id in &ids {
            self.check_table(id.0, Privileges::TRUNCATE)?;
        }
        self.follow_keys(&mut ids, cascades)?;
        for &id in &ids {
            let table = self.engine.schema().table_by_id(id).cloned().expect("the table was just looked up");
            self.check_table(id.0, Privileges::TRUNCATE)?;
            self.nothing_awaited(&table, "TRUNCATE")?;
            self.engine.truncate_by_id(id)?;
            if *identity == Some(TruncateIdentityOption::Restart) {
                let owned: Vec<_> = self.engine.schema().sequences_of(id).cloned().collect();
                for sequence in owned {
                    self.check_owner(sequence.id)?;
                    let start = SequenceValue { last: sequence.def.start, is_called: false };
                    self.engine.redefine_sequence(sequence.id, sequence.def.clone(), Some(start))?;
                }
            }
        }
        Ok(())
    }

    /// Tables that refer to those: truncated, too, or forbidding it.
    fn follow_keys(&mut self, ids: &mut Vec<TableId>, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut at = 0;
        while at < ids.len() {
            for (child, _, _) in schema.references(ids[at]) {
                if ids.contains(&child.id) {
                    continue;
                }
                if !cascade {
                    let parent = schema.table_by_id(ids[at]).map_or("", |t| &t.def.name);
                    let child = &child.def.name;
                    return Err(SqlError::new(
                        "0A000",
                        "cannot truncate a table referenced in a foreign key constraint",
                    )
                    .with_detail(format!("Table \"{child}\" references \"{parent}\"."))
                    .with_hint(format!("Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE."))
                    .into());
                }
                self.notice("00000", format!("truncate cascades to table \"{}\"", child.def.name));
                ids.push(child.id);
            }
            at += 1;
        }
        Ok(())
    }

    // ---- COMMENT

    pub(super) fn comment(&mut self, kind: &CommentObject, name: &ObjectName, text: Option<&str>) -> Done<()> {
        let text = text.filter(|t| !t.is_empty());
        let schema = self.schema();
        let (object, column) = match kind {
            CommentObject::Table => (self.table(name)?.id.0, 0),
            CommentObject::Column => {
                let mut parts = name.0.clone();
                let column = parts.pop().and_then(|p| p.as_ident().map(fold)).unwrap_or_default();
                let relation = self.named(&ObjectName(parts.clone()))?;
                match relation.view(&schema) {
                    Some(view) => match view.def.columns.iter().position(|(name, _)| *name == column) {
                        Some(at) => (view.id, at as u16 + 1),
                        None => return Err(no_column(&column, &relation.name).into()),
                    },
                    None => {
                        let table = self.table(&ObjectName(parts))?;
                        match table.named_column(&column) {
                            Some(at) => (table.id.0, at as u16 + 1),
                            None => return Err(no_column(&column, &relation.name).into()),
                        }
                    }
                }
            }
            CommentObject::View | CommentObject::Sequence | CommentObject::Index => {
                let relation = self.named(name)?;
                let id = match kind {
                    CommentObject::View => relation.view(&schema).map(|v| v.id),
                    CommentObject::Sequence => relation.sequence(&schema).map(|s| s.id),
                    _ => relation.index(&schema).map(|(_, i)| i.id.0),
                };
                (id.ok_or_else(|| relation.undefined())?, 0)
            }
            CommentObject::Schema => {
                let wanted = RelationName::of(name)?.name;
                let found = schema.namespace(&wanted).map(|n| n.id.0);
                (found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{wanted}\" does not exist")))?, 0)
            }
            CommentObject::Role => (self.role_to_comment_on(&RelationName::of(name)?.name)?, 0),
            CommentObject::Database => {
                let wanted = RelationName::of(name)?.name;
                if wanted != self.env.database {
                    // As in PostgreSQL, so that a dump of a database with another name is taken.
                    self.notice("3D000", format!("database \"{wanted}\" does not exist"));
                    return Ok(());
                }
                (oid::DATABASE, 0)
            }
            CommentObject::Extension => return self.comment_on_extension(&RelationName::of(name)?.name),
            other => return Err(SqlError::unsupported(format!("COMMENT ON {other}")).into()),
        };
        match kind {
            CommentObject::Index => self.check_index_owner(IndexId(object))?,
            _ => self.check_owner(object)?,
        }
        Ok(self.engine.set_comment(object, column, text)?)
    }
}

impl Definer<'_> {
    pub(super) fn comment_on_constraint(&mut self, name: &Ident, table: &ObjectName, text: Option<&str>) -> Done<()> {
        let (name, table) = (fold(name), self.table(table)?);
        self.check_owner(table.id.0)?;
        let own = table.def.constraints.iter().find(|c| c.name == name).map(|c| c.id);
        let key =
            || table.indexes.iter().find(|i| i.def.constraint != 0 && i.def.name == name).map(|i| i.def.constraint);
        let Some(id) = own.or_else(key) else {
            let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.def.name);
            return Err(SqlError::new("42704", message).into());
        };
        Ok(self.engine.set_comment(id, 0, text.filter(|text| !text.is_empty()))?)
    }
}

fn no_column(column: &str, relation: &str) -> SqlError {
    SqlError::new("42703", format!("column \"{column}\" of relation \"{relation}\" does not exist"))
}
