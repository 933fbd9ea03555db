//! Which object does a name in a text mean, and how is an object named? What `regclass` and its like read and write.
//!
//! A name without its schema is found along the search path, which begins with the session's temporary tables and `pg_catalog` unless it says
//! otherwise; so an object is written without its schema where that finds it again.

use super::{Catalog, Relation, builtin, oid};
use crate::bind::types::type_of;
use crate::error::SqlError;
use crate::value::pgtype;
use crate::value::quoted_ident;
use freshet_engine::catalog::{CollationId, EnumType, IndexKind, NamespaceId, OperatorClassId, RoleId, Schema};
use freshet_engine::schema::{EnumId, OidKind};
use sqlparser::ast;

/// Collations, by PostgreSQL's numbers.
const COLLATIONS: [(u32, &str); 4] = [(100, "default"), (950, "C"), (951, "POSIX"), (12340, "ucs_basic")];

/// Operator classes that are no type's default, by PostgreSQL's numbers.
const CLASSES: [(u32, IndexKind, &str); 8] = [
    (4217, IndexKind::BTree, "text_pattern_ops"),
    (4218, IndexKind::BTree, "varchar_pattern_ops"),
    (4219, IndexKind::BTree, "bpchar_pattern_ops"),
    (10044, IndexKind::BTree, "varchar_ops"),
    (10056, IndexKind::Hash, "text_pattern_ops"),
    (10057, IndexKind::Hash, "varchar_pattern_ops"),
    (10058, IndexKind::Hash, "bpchar_pattern_ops"),
    (10045, IndexKind::Hash, "varchar_ops"),
];

/// The class of this name, if it is no type's default.
pub fn operator_class(kind: IndexKind, name: &str) -> Option<OperatorClassId> {
    let class = CLASSES.iter().find(|(_, own, class)| *own == kind && *class == name);
    class.map(|(oid, ..)| OperatorClassId(*oid))
}

pub fn operator_class_name(class: OperatorClassId) -> &'static str {
    CLASSES.iter().find(|(oid, ..)| *oid == class.0).map_or("", |(.., name)| name)
}

/// The collation that these parts of a name mean.
pub fn collation_of(parts: &[String]) -> Option<CollationId> {
    let (name, space) = parts.split_last()?;
    let is_ours = matches!(space, [] | [_]) && space.iter().all(|space| space == "pg_catalog");
    COLLATIONS.iter().find(|(_, own)| is_ours && own == name).map(|(oid, _)| CollationId(*oid))
}

pub fn collation_name(collation: u32) -> Option<&'static str> {
    COLLATIONS.iter().find(|(own, _)| *own == collation).map(|(_, name)| *name)
}

/// 42704: there is no such collation.
pub fn no_collation(name: &str) -> SqlError {
    SqlError::new("42704", format!("collation \"{name}\" for encoding \"UTF8\" does not exist"))
}

/// The parts of a name with dots, in lower case unless quoted; 42602 for what is none.
pub fn parts(text: &str) -> Result<Vec<String>, SqlError> {
    let invalid = || SqlError::new("42602", "invalid name syntax");
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted).ok_or_else(invalid)?,
            None => {
                let end = rest.find(|c: char| c == '.' || c.is_whitespace() || c == '"').unwrap_or(rest.len());
                (rest[..end].to_lowercase(), &rest[end..])
            }
        };
        if part.is_empty() {
            return Err(invalid());
        }
        parts.push(part);
        let after = after.trim_start();
        match after.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None if after.is_empty() => return Ok(parts),
            None => return Err(invalid()),
        }
    }
}

/// What stands before the closing quote, and what comes after it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return Some((part, rest)),
        }
    }
}

fn undefined(what: &str, name: &str, sqlstate: &'static str) -> SqlError {
    SqlError::new(sqlstate, format!("{what} \"{name}\" does not exist"))
}

/// An enum's name as it is written: with its schema where it is not found without.
pub fn enum_name(schema: &Schema, made: &EnumType) -> String {
    let name = &made.def.name;
    match is_visible_enum(schema, made) {
        true => quoted_ident(name),
        false => {
            let namespace = crate::bind::names::namespace_name(schema, made.def.namespace);
            format!("{}.{}", quoted_ident(&namespace), quoted_ident(name))
        }
    }
}

/// Whether its bare name means it: no other type of the name stands before it on the search path.
pub fn is_visible_enum(schema: &Schema, made: &EnumType) -> bool {
    let name = &made.def.name;
    let hides = |namespace: NamespaceId| match namespace {
        NamespaceId::CATALOG => builtin::type_named(name).is_some(),
        other => {
            schema.enum_in(other, name).is_some()
                || schema.table_in(other, name).is_some()
                || schema.view_in(other, name).is_some()
        }
    };
    let found = path(schema).into_iter().find(|&namespace| hides(namespace));
    found == Some(made.def.namespace)
}

/// The search path with what it has by itself.
fn path(schema: &Schema) -> Vec<NamespaceId> {
    let mut path = schema.path().to_vec();
    if !path.contains(&NamespaceId::CATALOG) {
        let is_temporary = |id: &NamespaceId| crate::bind::names::is_temporary(schema, *id);
        let at = path.iter().take_while(|id| is_temporary(id)).count();
        path.insert(at, NamespaceId::CATALOG);
    }
    path
}

impl Catalog {
    /// The name spaces in which bare names are looked for.
    pub fn search_path(&self) -> Vec<NamespaceId> {
        path(&self.schema)
    }

    /// The number of the object that a text names.
    pub fn find(&self, kind: OidKind, text: &str) -> Result<u32, SqlError> {
        match kind {
            OidKind::Class => self.find_relation(text),
            OidKind::Type => self.find_type(text),
            OidKind::Proc => find_proc(text),
            OidKind::Procedure => self.find_procedure(text),
            OidKind::Namespace => self.find_namespace(&one_name(text)?),
            OidKind::Role => self.find_role(&one_name(text)?),
            OidKind::Collation => find_collation(text),
            _ => {
                Err(SqlError::unsupported(format!("{} by name", pgtype::name(freshet_engine::schema::Type::Oid(kind)))))
            }
        }
    }

    /// How the object is written; a number of nothing as itself.
    pub fn show(&self, kind: OidKind, number: u32) -> String {
        let name = match kind {
            _ if number == 0 => Some("-".to_owned()),
            OidKind::Class => self.relation(number).map(|relation| self.relation_name(relation)),
            OidKind::Type => self.show_type(number),
            OidKind::Proc => show_proc(number),
            OidKind::Procedure => self.show_procedure(number),
            OidKind::Namespace => self.namespace_name(NamespaceId(number)).map(quoted_ident),
            OidKind::Role => self.role_name(number).map(|name| quoted_ident(&name)),
            OidKind::Collation => collation_name(number).map(quoted_ident),
            _ => None,
        };
        name.unwrap_or_else(|| number.to_string())
    }

    // ---- relations

    fn relation_in(&self, namespace: NamespaceId, name: &str) -> Option<Relation<'_>> {
        let schema = &self.schema;
        let table = schema.table_in(namespace, name).map(Relation::Table);
        table
            .or_else(|| schema.view_in(namespace, name).map(Relation::View))
            .or_else(|| schema.sequence_in(namespace, name).map(Relation::Sequence))
            .or_else(|| schema.index_in(namespace, name).map(|(table, index)| Relation::Index(table, index)))
            .or_else(|| builtin::relation_named(namespace, name).map(Relation::System))
    }

    /// The relation that a name along the search path means.
    pub fn relation_named(&self, name: &str) -> Option<Relation<'_>> {
        self.search_path().into_iter().find_map(|namespace| self.relation_in(namespace, name))
    }

    fn find_relation(&self, text: &str) -> Result<u32, SqlError> {
        let parts = parts(text)?;
        let found = match parts.as_slice() {
            [name] => self.relation_named(name).ok_or_else(|| undefined("relation", name, "42P01"))?,
            [namespace, name] => self.relation_of(namespace, name)?,
            [database, namespace, name] => {
                if self.session.as_ref().is_some_and(|session| session.database != *database) {
                    let message = format!("cross-database references are not implemented: \"{text}\"");
                    return Err(SqlError::unsupported(message));
                }
                self.relation_of(namespace, name)?
            }
            _ => return Err(SqlError::new("42601", format!("improper relation name (too many dotted names): {text}"))),
        };
        Ok(found.oid())
    }

    fn relation_of(&self, namespace: &str, name: &str) -> Result<Relation<'_>, SqlError> {
        let named = crate::bind::names::namespace_named(&self.schema, namespace);
        let id = named.ok_or_else(|| undefined("schema", namespace, "3F000"))?;
        let access = self.session.as_ref().and_then(|session| session.access.as_deref());
        if access.is_some_and(|access| !access.may_use(id)) {
            return Err(crate::role::denied("schema", namespace));
        }
        let missing = || undefined("relation", &format!("{namespace}.{name}"), "42P01");
        self.relation_in(id, name).ok_or_else(missing)
    }

    /// Whether the relation's bare name means it.
    pub fn is_visible(&self, relation: Relation<'_>) -> bool {
        let (own, name) = (relation.namespace(), relation.name());
        for namespace in self.search_path() {
            if namespace == own {
                return true;
            }
            if self.relation_in(namespace, name).is_some() {
                return false;
            }
        }
        false
    }

    /// The relation's name, with its schema where it is not found without.
    pub fn relation_name(&self, relation: Relation<'_>) -> String {
        match self.is_visible(relation) {
            true => quoted_ident(relation.name()),
            false => self.qualified_name(relation),
        }
    }

    pub fn qualified_name(&self, relation: Relation<'_>) -> String {
        let namespace = self.namespace_name(relation.namespace()).unwrap_or_default();
        format!("{}.{}", quoted_ident(namespace), quoted_ident(relation.name()))
    }

    // ---- types

    /// The enum's name, with its schema where it is not found without.
    pub fn enum_name(&self, made: &EnumType) -> String {
        enum_name(&self.schema, made)
    }

    /// The label of this number; one that is newer than this catalog is asked of the engine.
    pub fn label_of(&self, id: EnumId, number: i64) -> Option<String> {
        let label = |schema: &Schema| schema.enum_by_id(id)?.def.label_of(number).map(|label| label.text.clone());
        label(&self.schema).or_else(|| label(&self.session.as_ref()?.engine.schema()))
    }

    fn find_type(&self, text: &str) -> Result<u32, SqlError> {
        if let Ok(ast::Expr::Cast { data_type, expr, .. }) = crate::parse::parse_expression(&format!("NULL::{text}"))
            && matches!(expr.as_ref(), ast::Expr::Value(_))
            && let Ok(ty) = type_of(&data_type, &self.schema)
        {
            return Ok(pgtype::describe(ty).oid);
        }
        let missing = || undefined("type", text.trim(), "42704");
        let (name, is_array) = match text.trim().strip_suffix("[]") {
            Some(element) => (element, true),
            None => (text, false),
        };
        let parts = parts(name).map_err(|_| missing())?;
        let builtin = match parts.as_slice() {
            [name] => Some(name),
            [namespace, name] if namespace == "pg_catalog" => Some(name),
            _ => None,
        };
        if let Some(ty) = builtin.and_then(|name| builtin::type_named(name)) {
            return Ok(if is_array { array_of(ty).ok_or_else(missing)? } else { ty.oid });
        }
        let relation = match parts.as_slice() {
            [name] => self.relation_named(name),
            [namespace, name] => {
                let found = self.relation_of(namespace, name);
                Some(found.map_err(|error| if error.sqlstate == "42501" { error } else { missing() })?)
            }
            _ => None,
        };
        match relation {
            Some(relation @ (Relation::Table(_) | Relation::View(_))) if is_array => Ok(oid::row_array(relation.oid())),
            Some(relation @ (Relation::Table(_) | Relation::View(_))) => Ok(oid::row_type(relation.oid())),
            _ => Err(missing()),
        }
    }

    /// A type's name without modifiers.
    pub fn show_type(&self, number: u32) -> Option<String> {
        if let Some(ty) = builtin::type_of(number) {
            return Some(ty.shown.to_owned());
        }
        let row = |id: u32| self.relation(id).map(|relation| self.relation_name(relation));
        let of_enum = |id: u32| self.schema.enum_by_id(EnumId(id)).map(|made| self.enum_name(made));
        if let Some(name) = of_enum(number) {
            return Some(name);
        }
        if let Some(name) = oid::relation_of_row_array(number).and_then(of_enum) {
            return Some(format!("{name}[]"));
        }
        match oid::relation_of_row_type(number) {
            Some(id) => row(id),
            None => oid::relation_of_row_array(number).and_then(row).map(|name| format!("{name}[]")),
        }
    }

    // ---- others

    fn find_namespace(&self, name: &str) -> Result<u32, SqlError> {
        let found = self.schema.namespace(name).map(|namespace| namespace.id.0);
        found.ok_or_else(|| undefined("schema", name, "3F000"))
    }

    fn find_role(&self, name: &str) -> Result<u32, SqlError> {
        let session = self.session.as_ref().map_or("", |session| session.session_user.as_str());
        crate::role::named(&self.schema, name, session).map(|role| role.0)
    }

    /// The name of the role of this number. The first one's is the session's until it has its own.
    pub fn role_name(&self, number: u32) -> Option<String> {
        let session = self.session.as_ref().map(|session| session.session_user.as_str());
        crate::role::known_name(&self.schema, RoleId(number), session)
    }

    fn find_procedure(&self, text: &str) -> Result<u32, SqlError> {
        let missing = || undefined("function", text, "42883");
        let (name, rest) = text.split_once('(').ok_or_else(|| SqlError::new("22P02", "expected a left parenthesis"))?;
        let list = rest.trim_end().strip_suffix(')');
        let list = list.ok_or_else(|| SqlError::new("22P02", "expected a right parenthesis"))?;
        let given = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let types = given.map(|name| self.find_type(name)).collect::<Result<Vec<u32>, _>>()?;
        let procs = builtin::procs_named(&catalog_part(name)?);
        procs.iter().find(|proc| proc.arguments == types).map(|proc| proc.oid).ok_or_else(missing)
    }

    fn show_procedure(&self, number: u32) -> Option<String> {
        let proc = builtin::proc_of(number)?;
        let types = proc.arguments.iter().map(|ty| self.show_type(*ty).unwrap_or_else(|| ty.to_string()));
        Some(format!("{}({})", quoted_ident(proc.name), types.collect::<Vec<_>>().join(",")))
    }
}

/// The number of the array type of a type of the system's.
fn array_of(element: &builtin::SystemType) -> Option<u32> {
    builtin::type_named(&format!("_{}", element.name)).map(|ty| ty.oid)
}

fn one_name(text: &str) -> Result<String, SqlError> {
    let mut parts = parts(text)?;
    match parts.len() {
        1 => Ok(parts.remove(0)),
        _ => Err(SqlError::new("42602", "invalid name syntax")),
    }
}

/// A name that is looked for in `pg_catalog` only.
fn catalog_part(text: &str) -> Result<String, SqlError> {
    let mut parts = parts(text)?;
    match parts.len() {
        2 if parts[0] != "pg_catalog" => Err(undefined("function", text.trim(), "42883")),
        1 | 2 => Ok(parts.pop().unwrap_or_default()),
        _ => Err(SqlError::new("42602", "invalid name syntax")),
    }
}

fn find_proc(text: &str) -> Result<u32, SqlError> {
    match builtin::procs_named(&catalog_part(text)?) {
        [] => Err(undefined("function", text, "42883")),
        [one] => Ok(one.oid),
        _ => Err(SqlError::new("42725", format!("more than one function named \"{text}\""))),
    }
}

fn show_proc(number: u32) -> Option<String> {
    let proc = builtin::proc_of(number)?;
    let name = quoted_ident(proc.name);
    Some(if builtin::procs_named(proc.name).len() == 1 { name } else { format!("pg_catalog.{name}") })
}

fn find_collation(text: &str) -> Result<u32, SqlError> {
    collation_of(&parts(text)?).map(|found| found.0).ok_or_else(|| no_collation(text))
}
