//! What goes with what is dropped, and what forbids it? DROP, TRUNCATE, COMMENT.

use super::{Definer, Done};
use crate::bind::names::RelationName;
use crate::bind::scope::fold;
use crate::error::SqlError;
use freshet_engine::catalog::{IndexId, NamespaceId, Schema, SequenceValue, Table, TableDef, TableId};
use sqlparser::ast::{self, CommentObject, ObjectName, ObjectType, TruncateIdentityOption};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What one DROP takes away.
#[derive(Default)]
struct Removal {
    tables: BTreeSet<TableId>,
    views: BTreeSet<u32>,
    sequences: BTreeSet<u32>,
    /// Foreign keys of tables that stay.
    constraints: BTreeSet<(TableId, u32)>,
    /// Defaults of columns that stay.
    defaults: BTreeSet<(TableId, u16)>,
    /// What was not asked for: itself, and "what depends on what".
    dependents: Vec<(String, String)>,
}

impl Removal {
    /// Everything that depends on what is to go, until nothing more does.
    fn close(&mut self, schema: &Schema) {
        loop {
            let before = self.size();
            for id in self.tables.clone() {
                self.close_table(schema, id);
            }
            for id in self.views.clone() {
                let name = schema.view_by_id(id).map_or_else(String::new, |v| v.def.name.clone());
                self.close_readers(schema, id, &format!("view {name}"));
            }
            for id in self.sequences.clone() {
                self.close_sequence(schema, id);
            }
            if self.size() == before {
                return;
            }
        }
    }

    fn size(&self) -> usize {
        self.tables.len() + self.views.len() + self.sequences.len() + self.constraints.len() + self.defaults.len()
    }

    fn close_table(&mut self, schema: &Schema, id: TableId) {
        let Some(table) = schema.table_by_id(id) else { return };
        let name = &table.def.name;
        for (child, constraint, _) in schema.references(id) {
            if !self.tables.contains(&child.id) && self.constraints.insert((child.id, constraint.id)) {
                let what = format!("constraint {} on table {}", constraint.name, child.def.name);
                self.dependents.push((what.clone(), format!("{what} depends on table {name}")));
            }
        }
        self.close_readers(schema, id.0, &format!("table {name}"));
        self.sequences.extend(schema.sequences_of(id).map(|s| s.id));
    }

    fn close_readers(&mut self, schema: &Schema, id: u32, what: &str) {
        for view in schema.readers(id) {
            if self.views.insert(view.id) {
                let name = format!("view {}", view.def.name);
                self.dependents.push((name.clone(), format!("{name} depends on {what}")));
            }
        }
    }

    fn close_sequence(&mut self, schema: &Schema, id: u32) {
        let Some(sequence) = schema.sequence_by_id(id) else { return };
        let text = super::sequence::default_of_sequence(schema, sequence.def.namespace, &sequence.def.name);
        let asked = text.trim_end_matches("::regclass)").to_owned();
        for table in schema.tables().filter(|t| !self.tables.contains(&t.id)) {
            for (at, column) in table.def.columns.iter().enumerate() {
                let asks = column.default.as_deref().is_some_and(|d| d.contains(&asked));
                if asks && self.defaults.insert((table.id, at as u16)) {
                    let what = format!("default value for column {} of table {}", column.name, table.def.name);
                    let on = format!("{what} depends on sequence {}", sequence.def.name);
                    self.dependents.push((what, on));
                }
            }
        }
        self.close_readers(schema, id, &format!("sequence {}", sequence.def.name));
    }

    /// 2BP01 unless everything may go.
    fn check(&self, cascade: bool, what: &str) -> Result<Option<String>, SqlError> {
        if self.dependents.is_empty() {
            return Ok(None);
        }
        if !cascade {
            let lines: Vec<&str> = self.dependents.iter().map(|(_, line)| line.as_str()).collect();
            return Err(SqlError::new("2BP01", format!("cannot drop {what} because other objects depend on it"))
                .with_detail(lines.join("\n"))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        Ok(Some(match self.dependents.as_slice() {
            [(one, _)] => format!("drop cascades to {one}"),
            several => format!("drop cascades to {} other objects", several.len()),
        }))
    }
}

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
            ObjectType::Table | ObjectType::View | ObjectType::Sequence => {}
            other => return Err(SqlError::unsupported(format!("DROP {other}")).into()),
        }
        let schema = self.schema();
        let mut removal = Removal::default();
        let mut shown = Vec::new();
        for name in names {
            let name = RelationName::of(name)?;
            let found = match object {
                ObjectType::Table => name.table(&schema).map(|t| removal.tables.insert(t.id)),
                ObjectType::View => name.view(&schema).map(|v| removal.views.insert(v.id)),
                _ => name.sequence(&schema).map(|s| removal.sequences.insert(s.id)),
            };
            let word = object.to_string().to_lowercase();
            shown.push(format!("{word} {}", name.name));
            if found.is_some() {
                continue;
            }
            self.check_absent(&name, &word, &schema, if_exists)?;
        }
        self.check_owned(&removal, &schema)?;
        removal.close(&schema);
        let what = if let [one] = shown.as_slice() { one.clone() } else { "desired object(s)".to_owned() };
        if let Some(notice) = removal.check(cascade, &what)? {
            self.notice("00000", notice);
        }
        self.remove(removal)
    }

    /// There is no such object: another one, a notice, or an error.
    fn check_absent(&mut self, name: &RelationName, word: &str, schema: &Schema, if_exists: bool) -> Done<()> {
        let other = name.table(schema).is_some()
            || name.view(schema).is_some()
            || name.sequence(schema).is_some()
            || name.index(schema).is_some();
        if other {
            let article = if word == "index" { "an" } else { "a" };
            return Err(SqlError::new("42809", format!("\"{}\" is not {article} {word}", name.name)).into());
        }
        let known = name.namespace.as_ref().is_none_or(|n| schema.namespace(n).is_some());
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
        for &sequence in &removal.sequences {
            self.engine.drop_sequence(sequence)?;
        }
        Ok(())
    }

    /// Changes what the table's definition says.
    pub(super) fn change_def(&mut self, id: TableId, change: impl FnOnce(&mut TableDef)) -> Done<()> {
        let table = self.engine.schema().table_by_id(id).cloned().expect("the table was just looked up");
        self.nothing_awaited(&table, "ALTER TABLE")?;
        let mut def = table.def.clone();
        change(&mut def);
        Ok(self.engine.redefine_table(id, def)?)
    }

    /// Drops constraints that refer to an index's key, or refuses to.
    pub(super) fn release_index(&mut self, table: &Arc<Table>, index: IndexId, what: &str, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::default();
        for (child, constraint, key) in schema.references(table.id) {
            if key.parent_index == index && removal.constraints.insert((child.id, constraint.id)) {
                let dependent = format!("constraint {} on table {}", constraint.name, child.def.name);
                let line = format!("{dependent} depends on index {}", what.rsplit(' ').next().unwrap_or_default());
                removal.dependents.push((dependent, line));
            }
        }
        if let Some(notice) = removal.check(cascade, what)? {
            self.notice("00000", notice);
        }
        self.remove(removal)
    }

    fn drop_index(&mut self, name: &ObjectName, if_exists: bool, cascade: bool) -> Done<()> {
        let name = RelationName::of(name)?;
        let schema = self.schema();
        let Some((table, index)) = name.index(&schema) else {
            return self.check_absent(&name, "index", &schema, if_exists);
        };
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
        if id == NamespaceId::PUBLIC && !cascade {
            return Err(SqlError::unsupported("dropping the schema public").into());
        }
        let mut removal = contents(&schema, id);
        for table in schema.tables_in(id) {
            removal.dependents.push((
                format!("table {}", table.def.name),
                format!("table {0}.{1} depends on schema {0}", name, table.def.name),
            ));
        }
        for view in schema.views().filter(|v| v.def.namespace == id) {
            removal.dependents.push((
                format!("view {}", view.def.name),
                format!("view {0}.{1} depends on schema {0}", name, view.def.name),
            ));
        }
        for sequence in schema.sequences().filter(|s| s.def.namespace == id && s.def.owner.is_none()) {
            removal.dependents.push((
                format!("sequence {}", sequence.def.name),
                format!("sequence {0}.{1} depends on schema {0}", name, sequence.def.name),
            ));
        }
        removal.close(&schema);
        if let Some(notice) = removal.check(cascade, &format!("schema {name}"))? {
            self.notice("00000", notice);
        }
        self.remove(removal)?;
        if id == NamespaceId::PUBLIC {
            // It stays, empty: its oid is fixed.
            return Ok(());
        }
        Ok(self.engine.drop_namespace(id)?)
    }

    /// Drops everything in a temporary schema.
    pub(super) fn empty_namespace(&mut self, id: NamespaceId) -> Done<()> {
        let schema = self.schema();
        let mut removal = contents(&schema, id);
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
        self.follow_keys(&mut ids, cascades)?;
        for &id in &ids {
            let table = self.engine.schema().table_by_id(id).cloned().expect("the table was just looked up");
            self.nothing_awaited(&table, "TRUNCATE")?;
            self.engine.truncate_by_id(id)?;
            if *identity == Some(TruncateIdentityOption::Restart) {
                let owned: Vec<_> = self.engine.schema().sequences_of(id).cloned().collect();
                for sequence in owned {
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
                let relation = RelationName::of(&ObjectName(parts.clone()))?;
                match relation.view(&schema) {
                    Some(view) => match view.def.columns.iter().position(|(name, _)| *name == column) {
                        Some(at) => (view.id, at as u16 + 1),
                        None => return Err(no_column(&column, &relation.name).into()),
                    },
                    None => {
                        let table = self.table(&ObjectName(parts))?;
                        match table.column(&column) {
                            Some(at) => (table.id.0, at as u16 + 1),
                            None => return Err(no_column(&column, &relation.name).into()),
                        }
                    }
                }
            }
            CommentObject::View | CommentObject::Sequence | CommentObject::Index => {
                let relation = RelationName::of(name)?;
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
            // There is one database, and nothing shows its comment.
            CommentObject::Database => return Ok(()),
            other => return Err(SqlError::unsupported(format!("COMMENT ON {other}")).into()),
        };
        Ok(self.engine.set_comment(object, column, text)?)
    }
}

fn no_column(column: &str, relation: &str) -> SqlError {
    SqlError::new("42703", format!("column \"{column}\" of relation \"{relation}\" does not exist"))
}

/// Everything in a schema.
fn contents(schema: &Schema, id: NamespaceId) -> Removal {
    Removal {
        tables: schema.tables_in(id).map(|t| t.id).collect(),
        views: schema.views().filter(|v| v.def.namespace == id).map(|v| v.id).collect(),
        sequences: schema.sequences().filter(|s| s.def.namespace == id).map(|s| s.id).collect(),
        ..Removal::default()
    }
}
