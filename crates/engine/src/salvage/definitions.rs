//! Which definitions can be carried over as they were? Those whose names are free and that refer to nothing that is lost.
//!
//! What is lost of a definition's surroundings changes it as little as possible, and each change is told: a table stays without a foreign key whose
//! parent is lost, a column without a default whose sequence is; a view that reads what is lost is lost. SQL text is the SQL layer's, but for the
//! sequence that a default asks, which is found by its form.

use super::{SalvageError, Writer, is_refusal};
use crate::catalog::{
    ColumnRole, Constraint, ConstraintKind, Counters, ForeignKey, IndexId, NamespaceId, Object, Rights, RoleDef,
    RoleId, TEMPORARY_PREFIX, Table, TableDef, TableId, ViewDef,
};
use crate::inspect::{Defined, Loss, Remains, label};
use crate::schema::{Row, Type, Value};
use crate::txn::{Isolation, TableCursor};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) struct Definitions<'a> {
    objects: &'a [(u32, Object)],
    tables: Vec<&'a Defined>,
    temporary: BTreeSet<NamespaceId>,
    /// Ids that exist in the new database, of indexes and constraints too.
    made: BTreeSet<u32>,
    /// Those of what is temporary.
    left_out: BTreeSet<u32>,
    /// Name spaces whose names are lost: text that names them means nothing.
    unnamed: BTreeSet<NamespaceId>,
    others: u64,
}

impl<'a> Definitions<'a> {
    pub fn of(remains: &'a Remains) -> Definitions<'a> {
        let objects = remains.objects();
        let temporary = objects.iter().filter_map(|(id, object)| match object {
            Object::Namespace(name) if name.starts_with(TEMPORARY_PREFIX) => Some(NamespaceId(*id)),
            _ => None,
        });
        let mut definitions = Definitions {
            objects,
            tables: remains.tables(),
            temporary: temporary.collect(),
            made: BTreeSet::new(),
            left_out: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            others: 0,
        };
        definitions.leave_out_temporary();
        definitions
    }

    /// Tables that were made, in the order in which they were created.
    pub fn tables(&self) -> Vec<&'a Defined> {
        self.tables.iter().filter(|table| self.made.contains(&table.id.0)).copied().collect()
    }

    /// What was made beside tables and indexes.
    pub fn made(&self) -> u64 {
        self.others
    }

    fn leave_out_temporary(&mut self) {
        let is_temporary = |namespace: &NamespaceId| self.temporary.contains(namespace);
        let mut left_out: BTreeSet<u32> = self.temporary.iter().map(|id| id.0).collect();
        let (gone, kept): (Vec<&Defined>, Vec<_>) =
            self.tables.iter().copied().partition(|table| is_temporary(&table.def.namespace));
        gone.iter().for_each(|table| left_out.extend(ids_of(table)));
        for (id, object) in self.objects {
            match object {
                Object::Sequence { def, .. } if is_temporary(&def.namespace) => left_out.insert(*id),
                Object::View(def) if is_temporary(&def.namespace) => left_out.insert(*id),
                Object::Enum(def) if is_temporary(&def.namespace) => left_out.insert(*id),
                _ => false,
            };
        }
        (self.tables, self.left_out) = (kept, left_out);
    }

    /// Makes everything but the rows.
    pub fn make(&mut self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        for (id, def) in self.all(|object| if let Object::Role(def) = object { Some(def) } else { None }) {
            let def = self.role_of(def, losses);
            self.restore(writer, id, &Object::Role(def), losses)?;
        }
        let mut names = self.all(|object| if let Object::Namespace(name) = object { Some(name) } else { None });
        // `public` may be another one than the first, which has to go before.
        names.sort_by_key(|(_, name)| !name.is_empty());
        for (id, name) in names {
            self.restore(writer, id, &Object::Namespace(name.clone()), losses)?;
        }
        self.name_name_spaces(writer, losses)?;
        for (id, object) in self.all(|object| matches!(object, Object::Enum(_)).then_some(object)) {
            self.restore(writer, id, object, losses)?;
        }
        for (id, object) in self.all(|object| matches!(object, Object::Sequence { .. }).then_some(object)) {
            self.restore(writer, id, object, losses)?;
        }
        for table in self.tables.clone() {
            self.make_table(writer, table, losses)?;
        }
        self.drop_dangling(writer, losses)?;
        self.make_views(writer, losses)?;
        self.make_attached(writer, losses)
    }

    /// Objects of one kind that are not temporary.
    fn all<T>(&self, of_kind: impl Fn(&'a Object) -> Option<T>) -> Vec<(u32, T)> {
        let kept = self.objects.iter().filter(|(id, _)| !self.left_out.contains(id));
        kept.filter_map(|(id, object)| Some((*id, of_kind(object)?))).collect()
    }

    fn restore(
        &mut self,
        writer: &mut Writer<'_>,
        id: u32,
        object: &Object,
        losses: &mut Vec<Loss>,
    ) -> Result<(), SalvageError> {
        if !self.made.insert(id) {
            losses.push(Loss::of(None, format!("{}: another definition has its id", self.title(object))));
            return Ok(());
        }
        match writer.transaction(|session| session.restore(id, object)) {
            Ok(()) => self.others += 1,
            Err(error) if is_refusal(&error) => {
                self.made.remove(&id);
                losses.push(Loss::of(None, format!("{}: {error}", self.title(object))));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn make_table(
        &mut self,
        writer: &mut Writer<'_>,
        table: &Defined,
        losses: &mut Vec<Loss>,
    ) -> Result<(), SalvageError> {
        let ids = ids_of(table);
        if let Some(taken) = ids.iter().find(|id| self.made.contains(id)) {
            let reason = format!("with all rows: another definition has the id {taken}");
            losses.push(Loss::of(Some(table.label.clone()), reason));
            return Ok(());
        }
        let mut def = self.without_lost_sequences(table, losses);
        self.replace_lost_types(table, &mut def, losses);
        let indexes: Vec<_> = table.index_ids.iter().copied().zip(table.indexes.iter().cloned()).collect();
        match writer.transaction(|session| session.restore_table(table.id, def.clone(), indexes.clone())) {
            Ok(()) => self.made.extend(ids),
            Err(error) if is_refusal(&error) => {
                losses.push(Loss::of(Some(table.label.clone()), format!("with all rows: {error}")));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Name spaces that have relations and no name get one.
    fn name_name_spaces(&mut self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        let of_objects = self.objects.iter().filter_map(|(_, object)| match object {
            Object::Sequence { def, .. } => Some(def.namespace),
            Object::View(def) => Some(def.namespace),
            Object::Enum(def) => Some(def.namespace),
            _ => None,
        });
        let used: BTreeSet<_> = self.tables.iter().map(|table| table.def.namespace).chain(of_objects).collect();
        let is_unnamed = |id: &&NamespaceId| {
            **id != NamespaceId::PUBLIC && !self.temporary.contains(id) && !self.made.contains(&id.0)
        };
        let unnamed: Vec<_> = used.iter().filter(is_unnamed).copied().collect();
        for id in unnamed {
            let name = format!("salvaged_{}", id.0);
            losses.push(Loss::of(None, format!("the name of schema {}, which is {name} now", id.0)));
            self.restore(writer, id.0, &Object::Namespace(name), losses)?;
            self.unnamed.insert(id);
        }
        Ok(())
    }

    // ---- what refers to what is lost

    fn role_of(&self, def: &RoleDef, losses: &mut Vec<Loss>) -> RoleDef {
        let is_there = |id: RoleId| self.is_role(id);
        let mut def = def.clone();
        let before = def.member_of.len();
        def.member_of.retain(|membership| is_there(membership.of));
        if def.member_of.len() < before {
            let lost = before - def.member_of.len();
            losses.push(Loss::of(None, format!("role {}: {lost} memberships of roles that are lost", def.name)));
        }
        for membership in def.member_of.iter_mut().filter(|membership| !is_there(membership.grantor)) {
            membership.grantor = RoleId::FIRST;
        }
        def
    }

    fn is_role(&self, id: RoleId) -> bool {
        matches!(id, RoleId::PUBLIC | RoleId::FIRST | RoleId::DATABASE_OWNER)
            || self.objects.iter().any(|(own, object)| *own == id.0 && matches!(object, Object::Role(_)))
    }

    fn without_lost_sequences(&self, table: &Defined, losses: &mut Vec<Loss>) -> TableDef {
        let mut def = table.def.clone();
        for column in &mut def.columns {
            let asked = column.default.as_deref().and_then(sequence_in);
            let Some((namespace, name)) = asked else { continue };
            if !self.has_sequence(namespace.as_deref(), &name) {
                let reason = format!("the default of column {}: sequence {name}, which it asks, is lost", column.name);
                losses.push(Loss::of(Some(table.label.clone()), reason));
                column.default = None;
                if column.is_identity() {
                    column.role = ColumnRole::Plain;
                }
            }
        }
        def
    }

    /// Columns of enums that are lost are of the numbers that stood for the labels: they are stored alike.
    fn replace_lost_types(&self, table: &Defined, def: &mut TableDef, losses: &mut Vec<Loss>) {
        for column in &mut def.columns {
            let (of, numbers) = match column.ty {
                Type::Enum(of) => (of, Type::Int8),
                Type::Array(&Type::Enum(of)) => (of, Type::array_of(Type::Int8)),
                _ => continue,
            };
            if !self.made.contains(&of.0) {
                // What a dropped column was of is dropped rightly.
                if column.role != ColumnRole::Dropped {
                    let reason = format!("the labels of column {}: its type is lost", column.name);
                    losses.push(Loss::of(Some(table.label.clone()), reason));
                }
                (column.ty, column.default) = (numbers, None);
            }
        }
    }

    fn has_sequence(&self, namespace: Option<&str>, name: &str) -> bool {
        self.objects.iter().any(|(id, object)| match object {
            Object::Sequence { def, .. } => {
                let is_in = namespace.is_none_or(|wanted| self.name_of(def.namespace) == Some(wanted));
                def.name == name && self.made.contains(id) && is_in
            }
            _ => false,
        })
    }

    fn name_of(&self, namespace: NamespaceId) -> Option<&str> {
        if namespace == NamespaceId::PUBLIC {
            return Some("public");
        }
        self.objects.iter().find_map(|(id, object)| match object {
            Object::Namespace(name) if *id == namespace.0 => Some(name.as_str()),
            _ => None,
        })
    }

    /// Takes away foreign keys whose parent was not made, and sequences' owners that were not.
    fn drop_dangling(&mut self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        for table in self.tables() {
            let leads_nowhere = |constraint: &Constraint| match &constraint.kind {
                ConstraintKind::Foreign(key) => {
                    !self.made.contains(&key.parent.0) || !self.made.contains(&key.parent_index.0)
                }
                ConstraintKind::Check { .. } => false,
            };
            let Some(made) = writer.session.schema().table_by_id(table.id).cloned() else { continue };
            let (gone, kept): (Vec<_>, Vec<_>) = made.def.constraints.iter().cloned().partition(leads_nowhere);
            if gone.is_empty() {
                continue;
            }
            for constraint in &gone {
                let reason = format!("foreign key {}: the table that it refers to is lost", constraint.name);
                losses.push(Loss::of(Some(table.label.clone()), reason));
            }
            let def = TableDef { constraints: kept, ..made.def.clone() };
            writer.transaction(|session| session.redefine_table(table.id, def.clone()))?;
        }
        for (id, def) in self.all(|object| if let Object::Sequence { def, .. } = object { Some(def) } else { None }) {
            if self.made.contains(&id) && def.owner.is_some_and(|(table, _)| !self.made.contains(&table.0)) {
                let title = format!("sequence {}", label(self.objects, def.namespace, &def.name));
                losses.push(Loss::of(None, format!("the owner of {title}: its table is lost")));
                let mut def = def.clone();
                def.owner = None;
                writer.transaction(|session| session.redefine_sequence(id, def.clone(), None))?;
            }
        }
        Ok(())
    }

    /// Views after those that they read.
    fn make_views(&mut self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        let mut left = self.all(|object| if let Object::View(def) = object { Some(def) } else { None });
        loop {
            let is_ready = |def: &ViewDef| {
                let is_made = |id: &u32| self.made.contains(id) || *id < Counters::FIRST.next_id;
                def.reads.iter().all(is_made) && !self.is_named_anew(def)
            };
            let (ready, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, def)| is_ready(def));
            left = rest;
            if ready.is_empty() {
                break;
            }
            for (id, def) in ready {
                self.restore(writer, id, &Object::View(def.clone()), losses)?;
            }
        }
        for (_, def) in left {
            let title = label(self.objects, def.namespace, &def.name);
            losses.push(Loss::of(None, format!("view {title}: something that it reads is lost")));
        }
        Ok(())
    }

    /// Whether the view reads something in a schema whose name is lost, which its text names.
    fn is_named_anew(&self, def: &ViewDef) -> bool {
        let namespace_of = |id: &u32| {
            let own = self.objects.iter().find(|(own, _)| own == id)?;
            match &own.1 {
                Object::Table(table) => Some(table.def.namespace),
                Object::Sequence { def, .. } => Some(def.namespace),
                Object::View(def) => Some(def.namespace),
                _ => None,
            }
        };
        !self.unnamed.is_empty() && def.reads.iter().filter_map(namespace_of).any(|id| self.unnamed.contains(&id))
    }

    /// Comments, owners and grants.
    fn make_attached(&mut self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        for (id, object) in self.all(Some) {
            let (on, stored) = match object {
                Object::Comment { object: on, .. } => (*on, object.clone()),
                Object::Rights { object: on, rights } => {
                    let rights = self.rights_of(*on, rights, losses);
                    (*on, Object::Rights { object: *on, rights })
                }
                _ => continue,
            };
            if self.left_out.contains(&on) {
                continue;
            }
            if on >= Counters::FIRST.next_id && !self.made.contains(&on) {
                losses.push(Loss::of(None, format!("{}: what it is about is lost", self.title(object))));
                continue;
            }
            self.restore(writer, id, &stored, losses)?;
        }
        Ok(())
    }

    fn rights_of(&self, on: u32, rights: &Rights, losses: &mut Vec<Loss>) -> Rights {
        let mut rights = rights.clone();
        let mut lose = |what: &str| losses.push(Loss::of(None, format!("{what} {on}: a role is lost")));
        if !self.is_role(rights.owner) {
            lose("the owner of object");
            rights.owner = RoleId::FIRST;
        }
        if let Some(grants) = &mut rights.grants {
            let before = grants.len();
            grants.retain(|grant| self.is_role(grant.grantee) && self.is_role(grant.grantor));
            if grants.len() < before {
                lose("grants on object");
            }
        }
        rights
    }

    fn title(&self, object: &Object) -> String {
        match object {
            Object::Counters(_) => "the counters".into(),
            Object::Table(table) => format!("table {}", label(self.objects, table.def.namespace, &table.def.name)),
            Object::Index { def, .. } => format!("index {}", def.name),
            Object::Sequence { def, .. } => format!("sequence {}", label(self.objects, def.namespace, &def.name)),
            Object::View(def) => format!("view {}", label(self.objects, def.namespace, &def.name)),
            Object::Enum(def) => format!("type {}", label(self.objects, def.namespace, &def.name)),
            Object::Namespace(name) => format!("schema {name}"),
            Object::Comment { object, .. } => format!("a comment on object {object}"),
            Object::Role(def) => format!("role {}", def.name),
            Object::Rights { object, .. } => format!("owner and grants of object {object}"),
        }
    }

    // ---- foreign keys

    /// Finds foreign keys that rows break whose parents are lost: those are NOT VALID from now on.
    pub fn look_at_foreign_keys(&self, writer: &mut Writer<'_>, losses: &mut Vec<Loss>) -> Result<(), SalvageError> {
        for table in self.tables() {
            let Some(made) = writer.session.schema().table_by_id(table.id).cloned() else { continue };
            let mut def = made.def.clone();
            for constraint in def.constraints.iter_mut().filter(|constraint| constraint.validated) {
                let ConstraintKind::Foreign(key) = &constraint.kind else { continue };
                let orphans = writer.orphans(&made, key)?;
                if orphans == Some(0) {
                    continue;
                }
                let found =
                    orphans.map_or_else(|| "was not checked".into(), |rows| format!("is broken by {rows} rows"));
                let reason = format!("foreign key {} {found}: it is NOT VALID now", constraint.name);
                losses.push(Loss::of(Some(table.label.clone()), reason));
                constraint.validated = false;
            }
            if def != made.def {
                writer.transaction(|session| session.redefine_table(table.id, def.clone()))?;
            }
        }
        Ok(())
    }
}

impl Writer<'_> {
    /// How many rows refer to a row that is not there; `None` where values of the two sides cannot be compared as they are stored.
    fn orphans(&mut self, child: &Arc<Table>, key: &ForeignKey) -> Result<Option<u64>, SalvageError> {
        let schema = self.session.schema().clone();
        let Some(parent) = schema.table_by_id(key.parent) else { return Ok(None) };
        let Some(index) = parent.indexes.iter().find(|index| index.id == key.parent_index) else { return Ok(None) };
        let own_of = |column: u16| {
            let at = key.parent_columns.iter().position(|&there| there == column)?;
            let (own, there) = (usize::from(key.columns[at]), usize::from(column));
            is_stored_alike(child.def.columns[own].ty, parent.def.columns[there].ty).then_some(own)
        };
        let Some(columns) = index.def.columns.iter().map(|c| own_of(c.column)).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let (mut cursor, mut row, mut met) = (TableCursor::default(), Row::default(), Row::default());
        let mut orphans = 0;
        self.session.begin(Isolation::RepeatableRead, true);
        self.session.begin_statement();
        while self.session.scan_next(child, &mut cursor, &mut row).is_some() {
            columns.iter().for_each(|&column| self.session.fetch_long(child, &mut row, column));
            let is_null = |column: &usize| row.is_null(&child.layout, *column);
            // MATCH SIMPLE: one null is enough. MATCH FULL: some nulls and some not were refused when the row was written.
            if columns.iter().any(is_null) {
                continue;
            }
            let value = |i: usize| -> Value<'_> { row.get(&child.layout, columns[i]) };
            orphans += u64::from(self.session.get(parent, index, value, &mut met).is_none());
        }
        self.commit()?;
        Ok(Some(orphans))
    }
}

/// Whether equal values of the two types are equal as they are stored.
fn is_stored_alike(a: Type, b: Type) -> bool {
    let is_integer = |ty: Type| matches!(ty, Type::Int2 | Type::Int4 | Type::Int8);
    let is_text = |ty: Type| matches!(ty, Type::Text | Type::Varchar(_));
    a.unrounded() == b.unrounded() || is_integer(a) && is_integer(b) || is_text(a) && is_text(b)
}

/// Of the table, its indexes and constraints.
fn ids_of(table: &Defined) -> Vec<u32> {
    let keys = table.indexes.iter().map(|index| index.constraint).filter(|id| *id != 0);
    let constraints = table.def.constraints.iter().map(|constraint| constraint.id);
    let TableId(own) = table.id;
    table.index_ids.iter().map(|IndexId(id)| *id).chain(keys).chain(constraints).chain([own]).collect()
}

/// The sequence that a default asks with nextval, and its schema.
fn sequence_in(default: &str) -> Option<(Option<String>, String)> {
    let (_, behind) = default.split_once("nextval('")?;
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = behind.chars().peekable();
    while let Some(next) = chars.next() {
        let part = parts.last_mut().expect("there is one");
        match next {
            '\'' if chars.peek() != Some(&'\'') => break,
            '\'' => part.extend(chars.next()),
            '"' if quoted && chars.peek() == Some(&'"') => part.extend(chars.next()),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => part.push(other),
        }
    }
    let name = parts.pop()?;
    Some((parts.pop(), name))
}

#[cfg(test)]
mod tests {
    use super::sequence_in;

    #[test]
    fn the_sequence_of_a_default_is_found() {
        let found = |text| sequence_in(text).map(|(namespace, name)| (namespace.unwrap_or_default(), name));
        let named = |namespace: &str, name: &str| Some((namespace.to_owned(), name.to_owned()));
        assert_eq!(found("nextval('public.t_id_seq'::regclass)"), named("public", "t_id_seq"));
        assert_eq!(found("1 + nextval('\"My \"\"S\".\"it''s.a\"')"), named("My \"S", "it's.a"));
        assert_eq!(found("nextval('s')"), named("", "s"));
        assert_eq!(found("'next'"), None);
    }
}
