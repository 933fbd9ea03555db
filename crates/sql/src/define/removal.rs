//! What depends on what is to be dropped, and in which order is that told?
//!
//! Dependents are told in PostgreSQL's order: of the objects that depend on one, those that were made first; each before what depends on it
//! in turn, unless that depends on a later one too.

use super::retype::mentions;
use crate::bind::names::{RelationName, namespace_name};
use crate::bind::types::names_kept;
use crate::catalog::Catalog;
use crate::error::SqlError;
use crate::notice::Notice;
use freshet_engine::catalog::{
    ColumnDef, ColumnRole, ConstraintKind, Index, IndexId, NamespaceId, Schema, Table, TableId,
};
use freshet_engine::schema::{EnumId, OidKind, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A table, view, sequence, enum, constraint, index or schema by its number, or the default of a table's column, or that column.
pub(super) type Object = (u32, Option<u16>);

/// Something that depends on something that goes.
struct Dependent {
    on: Object,
    object: Object,
    /// As messages call it.
    name: String,
    /// "what depends on what".
    line: String,
}

/// What one DROP takes away.
pub(super) struct Removal {
    catalog: Catalog,
    /// What was asked for, in its order.
    pub asked: Vec<Object>,
    pub tables: BTreeSet<TableId>,
    pub views: BTreeSet<u32>,
    pub sequences: BTreeSet<u32>,
    /// Foreign keys of tables that stay.
    pub constraints: BTreeSet<(TableId, u32)>,
    /// Defaults of columns that stay.
    pub defaults: BTreeSet<(TableId, u16)>,
    pub enums: BTreeSet<EnumId>,
    /// Of tables that stay, of types that go.
    pub columns: BTreeSet<(TableId, u16)>,
    pub indexes: BTreeSet<IndexId>,
    /// Hidden columns of indexes that go.
    pub hidden: BTreeSet<(TableId, u16)>,
    dependents: Vec<Dependent>,
}

/// More than a table has columns.
const COLUMNS_MAX: u16 = 2000;

/// PostgreSQL tells no more.
const TOLD_MAX: usize = 100;

impl Removal {
    pub fn new(schema: Arc<Schema>) -> Removal {
        Removal {
            catalog: Catalog::new(schema, None),
            asked: Vec::new(),
            tables: BTreeSet::new(),
            views: BTreeSet::new(),
            sequences: BTreeSet::new(),
            constraints: BTreeSet::new(),
            defaults: BTreeSet::new(),
            enums: BTreeSet::new(),
            columns: BTreeSet::new(),
            indexes: BTreeSet::new(),
            hidden: BTreeSet::new(),
            dependents: Vec::new(),
        }
    }

    /// Everything in a schema, without the sequences that go with their columns.
    pub fn contents(schema: &Arc<Schema>, id: NamespaceId, name: &str) -> Removal {
        let mut removal = Removal::new(schema.clone());
        removal.asked.push((id.0, None));
        removal.add_contents(schema, id, name);
        removal
    }

    /// What is in a schema goes as well.
    pub fn add_contents(&mut self, schema: &Schema, id: NamespaceId, name: &str) {
        let on = (id.0, None);
        for table in schema.tables_in(id) {
            self.tables.insert(table.id);
            self.note(on, (table.id.0, None), "table", &format!("schema {name}"));
        }
        for view in schema.views().filter(|v| v.def.namespace == id) {
            self.views.insert(view.id);
            self.note(on, (view.id, None), "view", &format!("schema {name}"));
        }
        for sequence in schema.sequences().filter(|s| s.def.namespace == id) {
            self.sequences.insert(sequence.id);
            if sequence.def.owner.is_none() {
                self.note(on, (sequence.id, None), "sequence", &format!("schema {name}"));
            }
        }
        for made in schema.enums().filter(|made| made.def.namespace == id) {
            self.enums.insert(made.id);
            let type_name = format!("type {}", self.type_name(made.id));
            self.add(on, (made.id.0, None), type_name, &format!("schema {name}"));
        }
    }

    pub fn type_name(&self, id: EnumId) -> String {
        self.catalog.show(OidKind::Type, id.0)
    }

    /// The relation of this number, as it is found along the search path.
    pub fn relation(&self, id: u32) -> String {
        self.catalog.show(OidKind::Class, id)
    }

    fn note(&mut self, on: Object, object: Object, kind: &str, on_what: &str) {
        let name = format!("{kind} {}", self.relation(object.0));
        self.add(on, object, name, on_what);
    }

    /// Notes that `object` depends on `on`, unless it was asked for.
    pub fn add(&mut self, on: Object, object: Object, name: String, on_what: &str) {
        let is_known = |d: &Dependent| d.on == on && d.object == object;
        if !self.asked.contains(&object) && !self.dependents.iter().any(is_known) {
            let line = format!("{name} depends on {on_what}");
            self.dependents.push(Dependent { on, object, name, line });
        }
    }

    /// Everything that depends on what is to go, until nothing more does.
    pub fn close(&mut self, schema: &Arc<Schema>) {
        loop {
            let before = self.size();
            for id in self.tables.clone() {
                self.close_table(schema, id);
            }
            for id in self.views.clone() {
                self.close_readers(schema, id, "view");
            }
            for id in self.sequences.clone() {
                self.close_sequence(schema, id);
            }
            for id in self.enums.clone() {
                self.close_enum(schema, id);
            }
            if self.size() == before {
                return;
            }
        }
    }

    fn size(&self) -> usize {
        let parts = self.defaults.len() + self.columns.len() + self.indexes.len();
        self.tables.len() + self.views.len() + self.sequences.len() + self.constraints.len() + parts
    }

    /// Columns of the type go, and so do views that read these, or that name the type.
    fn close_enum(&mut self, schema: &Arc<Schema>, id: EnumId) {
        let on_what = format!("type {}", self.type_name(id));
        let columns: Vec<_> = schema.columns_of_enum(id).map(|(table, at)| (table.clone(), at)).collect();
        for (table, at) in columns {
            if self.tables.contains(&table.id) {
                continue;
            }
            let column = &table.def.columns[at];
            self.columns.insert((table.id, at as u16));
            // Those of one table are told from its last to its first, before what is computed of them.
            let code = if column.is_computed() { COLUMNS_MAX + at as u16 } else { COLUMNS_MAX - at as u16 };
            let object = (table.id.0, Some(code));
            if column.is_visible() {
                let array = if column.ty == Type::Enum(id) { "" } else { "[]" };
                let name = format!("column {} of table {}", column.name, self.relation(table.id.0));
                self.add((id.0, None), object, name.clone(), &format!("{on_what}{array}"));
                self.close_column(schema, (&table, at), object, &name);
            }
        }
        for view in schema.views().filter(|view| names_kept(&view.def.query, id)) {
            self.views.insert(view.id);
            self.note((id.0, None), (view.id, None), "view", &on_what);
        }
        for table in schema.tables() {
            if !self.tables.contains(&table.id) {
                self.close_texts(schema, table, id, &on_what);
            }
        }
    }

    /// Defaults and checks of columns that stay, and that name the type.
    fn close_texts(&mut self, schema: &Arc<Schema>, table: &Table, id: EnumId, on_what: &str) {
        let shown = self.relation(table.id.0);
        for (at, column) in table.def.columns.iter().enumerate() {
            let at = at as u16;
            let names = column.default.as_deref().is_some_and(|text| names_kept(text, id));
            if !names || self.columns.contains(&(table.id, at)) {
                continue;
            }
            let object = (table.id.0, Some(COLUMNS_MAX + at));
            if column.role == ColumnRole::Hidden {
                self.hidden.insert((table.id, at));
                for index in table.indexes.iter().filter(|index| index.def.columns.iter().any(|c| c.column == at)) {
                    self.close_index(schema, (table, index), id, on_what);
                }
            } else if column.is_computed() {
                self.columns.insert((table.id, at));
                self.add((id.0, None), object, format!("column {} of table {shown}", column.name), on_what);
            } else {
                self.defaults.insert((table.id, at));
                let name = format!("default value for column {} of table {shown}", column.name);
                self.add((id.0, None), object, name, on_what);
            }
        }
        for index in table.indexes.iter().filter(|i| i.def.predicate.as_deref().is_some_and(|p| names_kept(p, id))) {
            self.close_index(schema, (table, index), id, on_what);
        }
        for constraint in &table.def.constraints {
            let ConstraintKind::Check { condition, columns } = &constraint.kind else { continue };
            let goes = columns.iter().any(|&column| self.columns.contains(&(table.id, column)));
            if names_kept(condition, id) && !goes {
                self.constraints.insert((table.id, constraint.id));
                let name = format!("constraint {} on table {shown}", constraint.name);
                self.add((id.0, None), (constraint.id, None), name, on_what);
            }
        }
    }

    /// An index over an expression that names the type is told of unless it goes with a column that does.
    fn close_index(&mut self, schema: &Arc<Schema>, (table, index): (&Table, &Index), id: EnumId, on_what: &str) {
        let keys = index.def.columns.iter().filter_map(|c| table.def.columns[usize::from(c.column)].default.as_deref());
        let texts: Vec<&str> = keys.chain(index.def.predicate.as_deref()).collect();
        let mut columns = self.columns.iter().filter(|(of, _)| *of == table.id);
        let goes_along =
            columns.any(|&(_, at)| texts.iter().any(|text| mentions(text, &table.def, usize::from(at), schema)));
        self.indexes.insert(index.id);
        if !goes_along {
            let name = format!("index {}", self.relation(index.id.0));
            self.add((id.0, None), (index.id.0, None), name, on_what);
        }
    }

    fn close_column(&mut self, schema: &Arc<Schema>, (table, at): (&Table, usize), on: Object, on_what: &str) {
        let namespace = namespace_name(schema, table.def.namespace);
        let relation = RelationName { namespace: Some(namespace), name: table.def.name.clone() };
        let visible = |columns: &[ColumnDef]| -> Vec<String> {
            columns.iter().filter(|c| c.is_visible()).map(|c| c.name.clone()).collect()
        };
        let columns = visible(&table.def.columns);
        let place = visible(&table.def.columns[..at]).len();
        for view in schema.readers(table.id.0) {
            if super::view::uses_column(&view.def.query, &relation, &columns, place, schema) {
                self.views.insert(view.id);
                self.note(on, (view.id, None), "view", on_what);
            }
        }
    }

    fn close_table(&mut self, schema: &Schema, id: TableId) {
        let on_what = format!("table {}", self.relation(id.0));
        for (child, constraint, _) in schema.references(id) {
            if !self.tables.contains(&child.id) {
                self.constraints.insert((child.id, constraint.id));
                let name = format!("constraint {} on table {}", constraint.name, self.relation(child.id.0));
                self.add((id.0, None), (constraint.id, None), name, &on_what);
            }
        }
        self.close_readers(schema, id.0, "table");
        self.sequences.extend(schema.sequences_of(id).map(|s| s.id));
    }

    fn close_readers(&mut self, schema: &Schema, id: u32, kind: &str) {
        let on_what = format!("{kind} {}", self.relation(id));
        for view in schema.readers(id) {
            self.views.insert(view.id);
            self.note((id, None), (view.id, None), "view", &on_what);
        }
    }

    fn close_sequence(&mut self, schema: &Schema, id: u32) {
        let Some(sequence) = schema.sequence_by_id(id) else { return };
        let text = super::sequence::default_of_sequence(schema, sequence.def.namespace, &sequence.def.name);
        let asked = text.trim_end_matches("::regclass)").to_owned();
        let on_what = format!("sequence {}", self.relation(id));
        for table in schema.tables().filter(|t| !self.tables.contains(&t.id)).cloned().collect::<Vec<_>>() {
            for (at, column) in table.def.columns.iter().enumerate() {
                if column.default.as_deref().is_some_and(|d| d.contains(&asked)) {
                    self.defaults.insert((table.id, at as u16));
                    let name =
                        format!("default value for column {} of table {}", column.name, self.relation(table.id.0));
                    self.add((id, None), (table.id.0, Some(at as u16)), name, &on_what);
                }
            }
        }
        self.close_readers(schema, id, "sequence");
    }

    /// Each dependent once, by the object that it was found through, in the order in which they are told.
    fn in_order(&self) -> Vec<&Dependent> {
        let (mut seen, mut found) = (self.asked.clone(), Vec::new());
        for &asked in &self.asked {
            self.visit(asked, &mut seen, &mut found);
        }
        found.reverse();
        found
    }

    fn visit<'a>(&'a self, on: Object, seen: &mut Vec<Object>, found: &mut Vec<&'a Dependent>) {
        let mut below: Vec<&Dependent> = self.dependents.iter().filter(|d| d.on == on).collect();
        below.sort_by_key(|d| std::cmp::Reverse(d.object));
        for dependent in below {
            if !seen.contains(&dependent.object) {
                seen.push(dependent.object);
                self.visit(dependent.object, seen, found);
                found.push(dependent);
            }
        }
    }

    /// What is told of what goes along; 2BP01 unless everything may go.
    pub fn check(&self, cascade: bool, what: &str) -> Result<Option<Notice>, SqlError> {
        let dependents = self.in_order();
        let lines = |line: &dyn Fn(&Dependent) -> String| {
            let mut lines: Vec<String> = dependents.iter().take(TOLD_MAX).map(|d| line(d)).collect();
            if let more @ 1.. = dependents.len().saturating_sub(TOLD_MAX) {
                let objects = if more == 1 { "object" } else { "objects" };
                lines.push(format!("and {more} other {objects} (see server log for list)"));
            }
            lines.join("\n")
        };
        if !cascade && !dependents.is_empty() {
            let it = if self.asked.len() > 1 { "them" } else { "it" };
            return Err(SqlError::new("2BP01", format!("cannot drop {what} because other objects depend on {it}"))
                .with_detail(lines(&|d| d.line.clone()))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        Ok(match dependents.as_slice() {
            [] => None,
            [one] => Some(Notice::new("00000", format!("drop cascades to {}", one.name))),
            several => {
                let told = Notice::new("00000", format!("drop cascades to {} other objects", several.len()));
                Some(told.with_detail(lines(&|d| format!("drop cascades to {}", d.name))))
            }
        })
    }
}
