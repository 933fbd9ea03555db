//! Which relation does a name mean? With its schema, or along the search path.

use super::scope::{Scope, SourceName, fold};
use super::{Bind, Binder};
use crate::error::SqlError;
use crate::parse::span_position;
use freshet_engine::catalog::{Index, NamespaceId, Schema, Sequence, Table, TableId, View};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Spanned, Visit, visit_relations};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A relation's name, as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelationName {
    pub namespace: Option<String>,
    pub name: String,
}

impl std::fmt::Display for RelationName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

thread_local! {
    /// What the session of the statement that this thread plans or runs calls the database.
    static DATABASE: RefCell<String> = const { RefCell::new(String::new()) };
    /// A name began with it since.
    static IS_NAMED: Cell<bool> = const { Cell::new(false) };
}

/// From here on this thread takes names that begin with this database's.
pub fn enter_database(name: &str) {
    IS_NAMED.set(false);
    DATABASE.with_borrow_mut(|database| {
        if database != name {
            name.clone_into(database);
        }
    });
}

/// Whether a name began with the database's since it was entered: to a session that calls it otherwise the statement is none.
pub fn is_database_named() -> bool {
    IS_NAMED.get()
}

/// Leaves the database's name out before a schema's. 0A000 for another's.
pub fn within_database(parts: &mut Vec<String>, named: usize) -> Result<(), SqlError> {
    if parts.len() != named {
        return Ok(());
    }
    if DATABASE.with_borrow(|database| *database != parts[0]) {
        let name = parts.join(".");
        let message = format!("cross-database references are not implemented: {name}");
        return Err(SqlError::new("0A000", message));
    }
    IS_NAMED.set(true);
    parts.remove(0);
    Ok(())
}

impl RelationName {
    pub fn of(name: &ObjectName) -> Result<RelationName, SqlError> {
        let mut parts = Vec::with_capacity(name.0.len());
        for part in &name.0 {
            match part {
                ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
                ObjectNamePart::Function(_) => {
                    return Err(SqlError::new("42601", format!("invalid name {name}")));
                }
            }
        }
        within_database(&mut parts, 3)?;
        let last = parts.pop().unwrap_or_default();
        match parts.len() {
            0 => Ok(RelationName { namespace: None, name: last }),
            1 => Ok(RelationName { namespace: parts.pop(), name: last }),
            _ => Err(SqlError::new("42601", format!("improper qualified name (too many dotted names): {name}"))),
        }
    }

    /// The name in a text, as `regclass` reads it.
    pub fn of_text(text: &str) -> Result<RelationName, SqlError> {
        let invalid = || SqlError::new("42602", format!("invalid name syntax: \"{text}\""));
        let ast = crate::parse::parse_expression(text).map_err(|_| invalid())?;
        let parts: Vec<Ident> = match ast {
            sqlparser::ast::Expr::Identifier(ident) => vec![ident],
            sqlparser::ast::Expr::CompoundIdentifier(parts) => parts,
            _ => return Err(invalid()),
        };
        RelationName::of(&ObjectName(parts.into_iter().map(ObjectNamePart::Identifier).collect()))
    }

    fn namespace_in(&self, schema: &Schema) -> Result<Option<NamespaceId>, SqlError> {
        match &self.namespace {
            None => Ok(None),
            Some(name) => namespace_named(schema, name).map(Some).ok_or_else(|| self.undefined()),
        }
    }

    /// 42P01.
    pub fn undefined(&self) -> SqlError {
        SqlError::new("42P01", format!("relation \"{self}\" does not exist"))
    }

    pub fn table<'s>(&self, schema: &'s Schema) -> Option<&'s Arc<Table>> {
        match self.namespace_in(schema).ok()? {
            Some(namespace) => schema.table_in(namespace, &self.name),
            None => schema.table(&self.name),
        }
    }

    pub fn view<'s>(&self, schema: &'s Schema) -> Option<&'s Arc<View>> {
        match self.namespace_in(schema).ok()? {
            Some(namespace) => schema.view_in(namespace, &self.name),
            None => schema.view(&self.name),
        }
    }

    pub fn sequence<'s>(&self, schema: &'s Schema) -> Option<&'s Arc<Sequence>> {
        match self.namespace_in(schema).ok()? {
            Some(namespace) => schema.sequence_in(namespace, &self.name),
            None => schema.sequence(&self.name),
        }
    }

    pub fn index<'s>(&self, schema: &'s Schema) -> Option<(&'s Arc<Table>, &'s Arc<Index>)> {
        match self.namespace_in(schema).ok()? {
            Some(namespace) => schema.index_in(namespace, &self.name),
            None => schema.index(&self.name),
        }
    }

    /// Where a new relation of this name goes.
    pub fn home(&self, schema: &Schema) -> Result<NamespaceId, SqlError> {
        let id = match &self.namespace {
            Some(name) => {
                let found = namespace_named(schema, name);
                found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{name}\" does not exist")))?
            }
            None => {
                let first = schema.path().iter().copied().find(|id| !id.is_system() && !is_temporary(schema, *id));
                first.ok_or_else(|| SqlError::new("3F000", "no schema has been selected to create in"))?
            }
        };
        if id.is_system() {
            let message = format!("permission denied to create \"{self}\"");
            return Err(
                SqlError::new("42501", message).with_detail("System catalog modifications are currently disallowed.")
            );
        }
        Ok(id)
    }
}

/// Schemas of temporary tables are named so.
pub use freshet_engine::catalog::TEMPORARY_PREFIX as TEMPORARY;

pub fn is_temporary(schema: &Schema, id: NamespaceId) -> bool {
    schema.namespace_by_id(id).is_some_and(|n| n.name.starts_with(TEMPORARY))
}

/// Whether it is the schema of this session's temporary tables.
pub fn is_temporary_of(schema: &Schema, id: NamespaceId, session_number: u32) -> bool {
    let number = schema.namespace_by_id(id).and_then(|n| n.name.strip_prefix(TEMPORARY));
    number.and_then(|number| number.parse().ok()) == Some(session_number)
}

/// Any session's own schema of temporary tables is called so.
pub const OWN_TEMPORARY: &str = "pg_temp";

/// The schema of this name, as the session sees it.
pub fn namespace_named(schema: &Schema, name: &str) -> Option<NamespaceId> {
    match name {
        OWN_TEMPORARY => schema.path().iter().copied().find(|id| is_temporary(schema, *id)),
        _ => schema.namespace(name).map(|n| n.id),
    }
}

/// Behind it stands the number of a schema, in the name of what stands for a view in FROM: it is in no text.
const OF_NAMESPACE: char = '\0';

/// What stands for a view that has no alias is called so.
pub fn name_of_view(view: &View) -> Ident {
    Ident::with_quote('"', format!("{}{OF_NAMESPACE}{}", view.def.name, view.def.namespace.0))
}

/// The same of one that has an alias.
pub fn alias_of_view(alias: &Ident) -> Ident {
    Ident::with_quote('"', format!("{}{OF_NAMESPACE}", fold(alias)))
}

/// Whether it stands for a view.
pub fn is_of_view(alias: &Ident) -> bool {
    alias.value.find(OF_NAMESPACE).is_some_and(|at| at > 0)
}

/// What a source is called by its alias, and the schema of the view for which it stands.
pub fn alias_of_source(alias: &Ident) -> (String, Option<NamespaceId>) {
    let mut name = fold(alias);
    let namespace = name.find(OF_NAMESPACE).filter(|at| *at > 0).and_then(|at| {
        let namespace = name[at + 1..].parse().ok().map(NamespaceId);
        name.truncate(at);
        namespace
    });
    (name, namespace)
}

/// The name of a schema, for messages.
pub fn namespace_name(schema: &Schema, id: NamespaceId) -> String {
    schema.namespace_by_id(id).map_or_else(|| "public".to_owned(), |n| n.name.clone())
}

/// A name as SQL text: quoted where it has to be.
pub fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let is_word = sqlparser::keywords::ALL_KEYWORDS.binary_search(&name.to_ascii_uppercase().as_str()).is_ok();
    if is_plain && !is_word { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// `schema.name` as SQL text.
pub fn qualified(schema: &Schema, namespace: NamespaceId, name: &str) -> String {
    format!("{}.{}", quoted(&namespace_name(schema, namespace)), quoted(name))
}

/// The tables that a statement names, and those below the views that it names.
pub fn tables_below(statement: &impl Visit, schema: &Schema) -> Vec<Arc<Table>> {
    let mut ids = Vec::new();
    let _ = visit_relations(statement, |name: &ObjectName| {
        let Ok(name) = RelationName::of(name) else { return ControlFlow::<()>::Continue(()) };
        match (name.table(schema), name.view(schema)) {
            (Some(table), _) => ids.push(table.id.0),
            (None, Some(view)) => ids.extend_from_slice(&view.def.reads),
            (None, None) => {}
        }
        ControlFlow::Continue(())
    });
    let (mut tables, mut seen) = (Vec::new(), HashSet::new());
    while let Some(id) = ids.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Some(view) = schema.view_by_id(id) {
            ids.extend_from_slice(&view.def.reads);
        }
        tables.extend(schema.table_by_id(TableId(id)).cloned());
    }
    tables
}

impl Binder<'_> {
    /// The source that a reference means.
    pub fn source_meant(&self, named: &SourceName, scope: &Scope) -> Result<u16, SqlError> {
        match scope.source_named(named) {
            Err(error) if error.sqlstate == "42P01" && self.is_kept => {
                scope.source_named(&named.leniently()).map_err(|_| error)
            }
            found => found,
        }
    }

    /// What a reference of this name means in FROM.
    pub fn source_name(&self, relation: RelationName) -> SourceName {
        let namespace = relation.namespace.as_ref().and_then(|name| namespace_named(self.schema, name));
        SourceName { relation, namespace, is_lenient: false }
    }

    /// A table that is named where a table must stand.
    pub fn relation(&self, name: &ObjectName) -> Bind<Arc<Table>> {
        let position = span_position(self.sql, name.span());
        let wanted = RelationName::of(name)?;
        if let Some(table) = wanted.table(self.schema) {
            return Ok(table.clone());
        }
        let is_other = wanted.view(self.schema).is_some()
            || wanted.sequence(self.schema).is_some()
            || wanted.index(self.schema).is_some();
        if !is_other {
            return Err(wanted.undefined().at(position).into());
        }
        Err(SqlError::new("42809", format!("\"{}\" is not a table", wanted.name)).at(position).into())
    }
}
