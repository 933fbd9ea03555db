//! `information_schema`: what the schema has, in the standard's words and with PostgreSQL's choices.

use super::super::About;
use super::fill::{Fill, Filled, Filler, Source, cells};
use super::fixed;
use super::relation::{Attribute, Key, Kind, Relation, key, relations};
use super::roles;
use crate::bind::names::namespace_name;
use crate::bind::through;
use crate::catalog::{names, oid};
use crate::role::acl::{self, Kind as AclKind, Privileges};
use crate::role::{self, Access};
use crate::value::interval::Limit;
use crate::value::{Datum, pgtype};
use freshet_engine::catalog::{
    Action, CheckOption, ColumnRole, Constraint, ConstraintKind, ForeignKey, Grant, Index, NamespaceId, RoleId, Schema,
    Sequence, Table,
};
use freshet_engine::schema::{TimeKind, Type};
use std::sync::Arc;

/// Their rows name the database, which is the session's.
pub(super) const fn source(relation: &'static str, columns: &'static [&'static str], fill: Fill) -> Source {
    Source { namespace: NamespaceId::INFORMATION, relation, columns, follows_schema: false, fill }
}

pub static SOURCES: &[Source] = &[
    source("information_schema_catalog_name", &["catalog_name"], |about, rows| {
        rows.row(cells![database(about)]);
        Ok(())
    }),
    source("schemata", &["catalog_name", "schema_name", "schema_owner"], schemata),
    source(
        "tables",
        &[
            "table_catalog",
            "table_schema",
            "table_name",
            "table_type",
            "is_insertable_into",
            "is_typed",
            "commit_action",
        ],
        tables,
    ),
    source(
        "views",
        &[
            "table_catalog",
            "table_schema",
            "table_name",
            "view_definition",
            "check_option",
            "is_updatable",
            "is_insertable_into",
            "is_trigger_updatable",
            "is_trigger_deletable",
            "is_trigger_insertable_into",
        ],
        views,
    ),
    source(
        "columns",
        &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "ordinal_position",
            "column_default",
            "is_nullable",
            "data_type",
            "character_maximum_length",
            "character_octet_length",
            "numeric_precision",
            "numeric_precision_radix",
            "numeric_scale",
            "datetime_precision",
            "interval_type",
            "collation_catalog",
            "collation_schema",
            "collation_name",
            "udt_catalog",
            "udt_schema",
            "udt_name",
            "dtd_identifier",
            "is_self_referencing",
            "is_identity",
            "identity_generation",
            "identity_start",
            "identity_increment",
            "identity_maximum",
            "identity_minimum",
            "identity_cycle",
            "is_generated",
            "generation_expression",
            "is_updatable",
        ],
        columns,
    ),
    source(
        "element_types",
        &[
            "object_catalog",
            "object_schema",
            "object_name",
            "object_type",
            "collection_type_identifier",
            "data_type",
            "udt_catalog",
            "udt_schema",
            "udt_name",
            "dtd_identifier",
        ],
        element_types,
    ),
    source(
        "table_constraints",
        &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_type",
            "is_deferrable",
            "initially_deferred",
            "enforced",
            "nulls_distinct",
        ],
        table_constraints,
    ),
    source(
        "key_column_usage",
        &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "ordinal_position",
            "position_in_unique_constraint",
        ],
        key_columns,
    ),
    source(
        "constraint_column_usage",
        &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
        constraint_columns,
    ),
    source(
        "constraint_table_usage",
        &["table_catalog", "table_schema", "table_name", "constraint_catalog", "constraint_schema", "constraint_name"],
        constraint_tables,
    ),
    source(
        "referential_constraints",
        &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "unique_constraint_catalog",
            "unique_constraint_schema",
            "unique_constraint_name",
            "match_option",
            "update_rule",
            "delete_rule",
        ],
        references,
    ),
    source(
        "check_constraints",
        &["constraint_catalog", "constraint_schema", "constraint_name", "check_clause"],
        checks,
    ),
    source(
        "sequences",
        &[
            "sequence_catalog",
            "sequence_schema",
            "sequence_name",
            "data_type",
            "numeric_precision",
            "numeric_precision_radix",
            "numeric_scale",
            "start_value",
            "minimum_value",
            "maximum_value",
            "increment",
            "cycle_option",
        ],
        sequences,
    ),
    source(
        "view_table_usage",
        &["view_catalog", "view_schema", "view_name", "table_catalog", "table_schema", "table_name"],
        view_tables,
    ),
    source("table_privileges", TABLE_PRIVILEGES, |about, rows| told_table_privileges(about, rows, Told::All)),
    source("role_table_grants", TABLE_PRIVILEGES, |about, rows| told_table_privileges(about, rows, Told::Roles)),
    source("column_privileges", COLUMN_PRIVILEGES, |about, rows| told_column_privileges(about, rows, Told::All)),
    source("role_column_grants", COLUMN_PRIVILEGES, |about, rows| told_column_privileges(about, rows, Told::Roles)),
    source("enabled_roles", &["role_name"], |about, rows| {
        for role in roles::all(about).iter().filter(|role| roles::is_enabled(about, role.id)) {
            rows.row(cells![role.def.name.as_str()]);
        }
        Ok(())
    }),
    source("applicable_roles", &["grantee", "role_name", "is_grantable"], |about, rows| {
        applicable_roles(about, rows, false)
    }),
    source("administrable_role_authorizations", &["grantee", "role_name", "is_grantable"], |about, rows| {
        applicable_roles(about, rows, true)
    }),
    source(
        "character_sets",
        &[
            "character_set_name",
            "character_repertoire",
            "form_of_use",
            "default_collate_catalog",
            "default_collate_schema",
            "default_collate_name",
        ],
        |about, rows| {
            rows.row(cells!["UTF8", "UCS", "UTF8", database(about), "pg_catalog", "default"]);
            Ok(())
        },
    ),
    source(
        "collations",
        &["collation_catalog", "collation_schema", "collation_name", "pad_attribute"],
        |about, rows| {
            for name in collations() {
                rows.row(cells![database(about), "pg_catalog", name, "NO PAD"]);
            }
            Ok(())
        },
    ),
    source(
        "routines",
        &[
            "specific_catalog",
            "specific_schema",
            "specific_name",
            "routine_catalog",
            "routine_schema",
            "routine_name",
            "routine_type",
            "data_type",
            "type_udt_catalog",
            "type_udt_schema",
            "type_udt_name",
            "dtd_identifier",
            "routine_body",
            "external_name",
            "external_language",
            "parameter_style",
            "is_deterministic",
            "sql_data_access",
            "is_null_call",
            "schema_level_routine",
            "security_type",
        ],
        routines,
    ),
    source(
        "parameters",
        &[
            "specific_catalog",
            "specific_schema",
            "specific_name",
            "ordinal_position",
            "parameter_mode",
            "is_result",
            "as_locator",
            "data_type",
            "udt_catalog",
            "udt_schema",
            "udt_name",
            "dtd_identifier",
        ],
        parameters,
    ),
];

pub(super) fn database<'a>(about: &'a About<'_>) -> &'a str {
    &about.env.database
}

pub(super) fn yes(truth: bool) -> &'static str {
    if truth { "YES" } else { "NO" }
}

/// All of a table's privileges but SELECT: what its constraints are told for.
const CHANGES: Privileges = Privileges(AclKind::Table.possible().0 & !Privileges::SELECT.0);

/// What can be granted on single columns.
pub(super) const OF_COLUMNS: Privileges =
    Privileges::INSERT.with(Privileges::SELECT).with(Privileges::UPDATE).with(Privileges::REFERENCES);

/// Whether the role has the owner's rights.
pub(super) fn owns(about: &About<'_>, object: u32) -> bool {
    about.env.access.as_ref().is_none_or(|access| access.owns(object))
}

/// Whether the role owns the object or has any of these privileges on it: it is not told of others'.
fn has_any(about: &About<'_>, kind: AclKind, object: u32, any_of: Privileges) -> bool {
    let has = |access: &Access| access.owns(object) || access.held(kind, object).0.has_any(any_of);
    about.env.access.as_deref().is_none_or(has)
}

/// [`has_any`] of a table or view; those of the system are everybody's to read.
pub(super) fn is_told(about: &About<'_>, relation: &Relation<'_>, any_of: Privileges) -> bool {
    match relation.kind {
        Kind::System(_) => any_of.has(Privileges::SELECT) || about.env.access.is_none(),
        _ => has_any(about, AclKind::Table, relation.oid, any_of),
    }
}

pub(super) fn collations() -> Vec<Datum> {
    let Some(section) = fixed::section("pg_collation") else { return Vec::new() };
    let at = section.columns.iter().position(|c| *c == "collname").unwrap_or_default();
    section.rows.iter().map(|row| row[at].clone()).collect()
}

// ---- relations and columns

fn schemata(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for namespace in about.schema.namespaces() {
        let id = namespace.id.0;
        if has_any(about, AclKind::Schema, id, AclKind::Schema.possible()) {
            let owner = roles::name(about, about.schema.owner(id));
            rows.row(cells![database(about), namespace.name.as_str(), owner]);
        }
    }
    Ok(())
}

/// Tables and views.
pub(super) fn readable(schema: &Schema) -> impl Iterator<Item = Relation<'_>> {
    relations(schema).into_iter().filter(Relation::is_table_or_view)
}

fn tables(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let any = AclKind::Table.possible();
    for relation in readable(about.schema).filter(|relation| is_told(about, relation, any)) {
        let space = namespace_name(about.schema, relation.namespace);
        let is_temporary = space.starts_with(crate::bind::names::TEMPORARY);
        let is_view = relation.letter() == 'v';
        let kind = match (is_view, is_temporary) {
            (true, _) => "VIEW",
            (_, true) => "LOCAL TEMPORARY",
            _ => "BASE TABLE",
        };
        let action = is_temporary.then_some("PRESERVE");
        let insertable = yes(is_changeable(about, &relation));
        rows.row(cells![database(about), space, relation.name, kind, insertable, "NO", action]);
    }
    Ok(())
}

fn views(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let any = AclKind::Table.possible();
    for view in about.schema.views().filter(|view| has_any(about, AclKind::Table, view.id, any)) {
        let space = namespace_name(about.schema, view.def.namespace);
        let text = owns(about, view.id).then(|| super::definition::view(about.schema, view));
        let (changes, no) = (yes(through::is_changeable(view, about.schema)), "NO");
        let check = match view.def.check {
            None => "NONE",
            Some(CheckOption::Local) => "LOCAL",
            Some(CheckOption::Cascaded) => "CASCADED",
        };
        rows.row(cells![database(about), space, view.def.name.as_str(), text, check, changes, changes, no, no, no]);
    }
    Ok(())
}

/// What a type's modifier says in the standard's columns.
#[derive(Default)]
struct Measures {
    length: Option<i32>,
    octets: Option<i32>,
    precision: Option<i32>,
    radix: Option<i32>,
    scale: Option<i32>,
    datetime: Option<i32>,
    fields: Option<String>,
}

/// The most bytes of a text without a limit, as PostgreSQL says.
const TEXT_OCTETS: i32 = 1 << 30;

fn measures(ty: Type) -> Measures {
    let number = |precision, radix, scale| Measures { precision, radix: Some(radix), scale, ..Measures::default() };
    match ty {
        Type::Char(n) | Type::Varchar(n) if n <= pgtype::LENGTH_MAX => {
            Measures { length: Some(n as i32), octets: Some(n as i32 * 4), ..Measures::default() }
        }
        Type::Char(_) | Type::Varchar(_) | Type::Text => Measures { octets: Some(TEXT_OCTETS), ..Measures::default() },
        Type::Int2 => number(Some(16), 2, Some(0)),
        Type::Int4 => number(Some(32), 2, Some(0)),
        Type::Int8 => number(Some(64), 2, Some(0)),
        Type::Float4 => number(Some(24), 2, None),
        Type::Float8 => number(Some(53), 2, None),
        Type::Decimal { precision, scale } => number(Some(precision.into()), 10, Some(scale.into())),
        Type::Numeric { typmod } => number(typmod.map(|(p, _)| i32::from(p)), 10, typmod.map(|(_, s)| i32::from(s))),
        Type::Date => Measures { datetime: Some(0), ..Measures::default() },
        Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            Measures { datetime: Some(6), ..Measures::default() }
        }
        Type::Rounded(TimeKind::Interval, limit) => {
            let limit = Limit::of(limit);
            let datetime = Some(limit.digits().map_or(6, i32::from));
            Measures { datetime, fields: limit.of_fields(), ..Measures::default() }
        }
        Type::Rounded(_, digits) => Measures { datetime: Some(digits.into()), ..Measures::default() },
        _ => Measures::default(),
    }
}

/// `data_type`: the type without its modifier.
fn data_type(ty: Type) -> String {
    match ty.as_array() {
        Type::Array(_) => "ARRAY".to_owned(),
        Type::Enum(_) => "USER-DEFINED".to_owned(),
        _ => pgtype::name(ty).to_owned(),
    }
}

/// `udt_schema` and `udt_name`.
pub(super) fn type_place(schema: &Schema, ty: Type) -> (String, String) {
    let (Type::Enum(id) | Type::Array(&Type::Enum(id))) = ty else {
        let facts = fixed::type_facts(pgtype::describe(ty).oid);
        return ("pg_catalog".to_owned(), facts.map_or_else(String::new, |f| f.name.to_owned()));
    };
    let Some(made) = schema.enum_by_id(id) else { return Default::default() };
    let space = namespace_name(schema, made.def.namespace);
    match ty {
        Type::Enum(_) => (space, made.def.name.clone()),
        _ => (space, super::objects::array_name(&made.def.name)),
    }
}

fn columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for relation in readable(about.schema).filter(|relation| is_told(about, relation, OF_COLUMNS)) {
        let space = namespace_name(about.schema, relation.namespace);
        let is_changeable = is_changeable(about, &relation);
        let view = about.schema.view_by_id(relation.oid);
        let is_set = |number: i16| {
            let number = usize::try_from(number).unwrap_or(0);
            is_changeable && view.is_none_or(|view| through::is_settable(view, number, about.schema))
        };
        for attribute in relation.attributes() {
            if let Some(ty) = attribute.ty {
                rows.row(column_row(about, &relation, is_set(attribute.number), &space, &attribute, ty));
            }
        }
    }
    Ok(())
}

/// Whether rows may be written by its name.
fn is_changeable(about: &About<'_>, relation: &Relation<'_>) -> bool {
    let view = about.schema.view_by_id(relation.oid);
    view.map_or_else(|| relation.letter() == 'r', |view| through::is_changeable(view, about.schema))
}

fn column_row(
    about: &About<'_>,
    relation: &Relation<'_>,
    is_set: bool,
    space: &str,
    attribute: &Attribute<'_>,
    ty: Type,
) -> Vec<Datum> {
    let database = database(about);
    let measures = measures(ty);
    let (type_space, type_name) = type_place(about.schema, ty);
    let text =
        attribute.default.map(|text| super::definition::default(about.schema, relation.oid, attribute.number, text));
    let is_generated = attribute.role == ColumnRole::Generated;
    let (default, generation) = if is_generated { (None, text) } else { (text, None) };
    let collation = names::collation_name(attribute.collation()).filter(|name| *name != "default");
    let head = cells![
        database,
        space,
        relation.name,
        attribute.name.as_ref(),
        i32::from(attribute.number),
        default,
        yes(!attribute.not_null),
        data_type(ty),
        measures.length,
        measures.octets,
        measures.precision,
        measures.radix,
        measures.scale,
        measures.datetime,
        measures.fields,
        collation.map(|_| database),
        collation.map(|_| "pg_catalog"),
        collation,
        database,
        type_space,
        type_name,
        attribute.number.to_string(),
        "NO",
    ];
    let updatable = yes(is_set);
    let tail = cells![if is_generated { "ALWAYS" } else { "NEVER" }, generation, updatable];
    head.into_iter().chain(identity(about.schema, relation, attribute)).chain(tail).collect()
}

/// `is_identity` and what follows.
fn identity(schema: &Schema, relation: &Relation<'_>, attribute: &Attribute<'_>) -> [Datum; 7] {
    let generation = match attribute.role {
        ColumnRole::IdentityAlways => "ALWAYS",
        ColumnRole::IdentityByDefault => "BY DEFAULT",
        _ => return cells!["NO", Datum::Null, Datum::Null, Datum::Null, Datum::Null, Datum::Null, "NO"],
    };
    let own = |s: &&Arc<Sequence>| {
        s.def.owner.is_some_and(|(table, column)| (table.0, column as i16 + 1) == (relation.oid, attribute.number))
    };
    let Some(def) = schema.sequences().find(own).map(|s| &s.def) else {
        return cells!["YES", generation, Datum::Null, Datum::Null, Datum::Null, Datum::Null, "NO"];
    };
    let text = |value: i64| value.to_string();
    cells!["YES", generation, text(def.start), text(def.increment), text(def.max), text(def.min), yes(def.cycle)]
}

fn element_types(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    for relation in readable(about.schema).filter(|relation| is_told(about, relation, OF_COLUMNS)) {
        let space = namespace_name(about.schema, relation.namespace);
        let kind = if relation.letter() == 'v' { "VIEW" } else { "TABLE" };
        for attribute in relation.attributes() {
            let Some(Type::Array(element)) = attribute.ty.map(Type::as_array) else { continue };
            let number = attribute.number;
            let (type_space, type_name) = type_place(about.schema, *element);
            rows.row(cells![
                database,
                space.as_str(),
                relation.name,
                kind,
                number.to_string(),
                data_type(*element),
                database,
                type_space,
                type_name,
                format!("a{number}"),
            ]);
        }
    }
    Ok(())
}

// ---- constraints

/// A constraint, keys included.
enum Rule<'a> {
    Key(&'a Index),
    Check(&'a Constraint, &'a [u16]),
    Foreign(&'a Constraint, &'a ForeignKey),
    /// A check in the standard's view.
    NotNull(usize, String),
}

impl Rule<'_> {
    fn name(&self) -> &str {
        match self {
            Rule::Key(index) => &index.def.name,
            Rule::Check(constraint, _) | Rule::Foreign(constraint, _) => &constraint.name,
            Rule::NotNull(_, name) => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Rule::Key(index) if index.def.primary => "PRIMARY KEY",
            Rule::Key(_) => "UNIQUE",
            Rule::Check(..) | Rule::NotNull(..) => "CHECK",
            Rule::Foreign(..) => "FOREIGN KEY",
        }
    }
}

fn rules(table: &Table) -> Vec<Rule<'_>> {
    let keys = table.indexes.iter().filter(|index| index.def.constraint != 0).map(|index| Rule::Key(index));
    let others = table.def.constraints.iter().map(|constraint| match &constraint.kind {
        ConstraintKind::Check { columns, .. } => Rule::Check(constraint, columns),
        ConstraintKind::Foreign(key) => Rule::Foreign(constraint, key),
    });
    let columns = table.def.columns.iter().enumerate().filter(|(_, c)| c.not_null && c.is_visible());
    let not_null = columns
        .map(|(at, _)| Rule::NotNull(at, format!("{}_{}_{}_not_null", table.def.namespace.0, table.id.0, at + 1)));
    keys.chain(others).chain(not_null).collect()
}

/// Calls `each` with every rule of the tables that the role owns or has any of these privileges on, its table and the schema that names it.
fn each_rule(about: &About<'_>, any_of: Privileges, mut each: impl FnMut(&Arc<Table>, &str, &Rule<'_>)) {
    for table in about.schema.tables().filter(|table| has_any(about, AclKind::Table, table.id.0, any_of)) {
        let space = namespace_name(about.schema, table.def.namespace);
        rules(table).iter().for_each(|rule| each(table, &space, rule));
    }
}

fn table_constraints(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, CHANGES, |table, space, rule| {
        let (deferrable, deferred) = match rule {
            Rule::Foreign(_, key) => (key.deferrable, key.deferred),
            Rule::Key(index) => (index.def.deferrable, index.def.deferred),
            Rule::Check(..) | Rule::NotNull(..) => (false, false),
        };
        let distinct = match rule {
            Rule::Key(index) if rule.kind() == "UNIQUE" => Some(yes(!index.def.nulls_not_distinct)),
            _ => None,
        };
        let name = table.def.name.as_str();
        rows.row(cells![
            database,
            space,
            rule.name(),
            database,
            space,
            name,
            rule.kind(),
            yes(deferrable),
            yes(deferred),
            "YES",
            distinct
        ]);
    });
    Ok(())
}

fn column_name(table: &Table, column: u16) -> &str {
    &table.def.columns[usize::from(column)].name
}

/// The columns of a key, without what is computed.
fn key_of(table: &Table, index: &Index) -> Vec<u16> {
    let columns = index.def.columns.iter().filter_map(|part| match key(table, &index.def, part) {
        Key::Column(number) => Some(number as u16 - 1),
        Key::Expression(_) => None,
    });
    columns.collect()
}

fn key_columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, OF_COLUMNS, |table, space, rule| {
        let (columns, within) = match rule {
            Rule::Key(index) => (key_of(table, index), Vec::new()),
            Rule::Foreign(_, foreign) => {
                let parent = about.schema.table_by_id(foreign.parent);
                let index = parent.and_then(|p| p.indexes.iter().find(|i| i.id == foreign.parent_index));
                let place =
                    |column: &u16| index?.def.columns.iter().position(|k| k.column == *column).map(|at| at as i32 + 1);
                (foreign.columns.clone(), foreign.parent_columns.iter().map(place).collect())
            }
            _ => return,
        };
        for (at, &column) in columns.iter().enumerate() {
            let name = table.def.name.as_str();
            let position = within.get(at).copied().flatten();
            rows.row(cells![
                database,
                space,
                rule.name(),
                database,
                space,
                name,
                column_name(table, column),
                at as i32 + 1,
                position
            ]);
        }
    });
    Ok(())
}

fn constraint_columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, AclKind::Table.possible(), |table, space, rule| {
        let (of, columns) = match rule {
            Rule::Key(index) => (table, key_of(table, index)),
            Rule::Check(_, columns) => (table, columns.to_vec()),
            Rule::Foreign(_, key) => match about.schema.table_by_id(key.parent) {
                Some(parent) => (parent, key.parent_columns.clone()),
                None => return,
            },
            Rule::NotNull(..) => return,
        };
        if !owns(about, of.id.0) {
            return;
        }
        let of_space = namespace_name(about.schema, of.def.namespace);
        for column in columns {
            let column = column_name(of, column);
            rows.row(cells![database, of_space.as_str(), of.def.name.as_str(), column, database, space, rule.name()]);
        }
    });
    Ok(())
}

fn constraint_tables(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, AclKind::Table.possible(), |table, space, rule| {
        let of = match rule {
            Rule::Key(_) => Some(table),
            Rule::Foreign(_, key) => about.schema.table_by_id(key.parent),
            _ => None,
        };
        if let Some(of) = of.filter(|of| owns(about, of.id.0)) {
            let of_space = namespace_name(about.schema, of.def.namespace);
            rows.row(cells![database, of_space, of.def.name.as_str(), database, space, rule.name()]);
        }
    });
    Ok(())
}

fn action(action: Action) -> &'static str {
    match action {
        Action::NoAction => "NO ACTION",
        Action::Restrict => "RESTRICT",
        Action::Cascade => "CASCADE",
        Action::SetNull => "SET NULL",
        Action::SetDefault => "SET DEFAULT",
    }
}

fn references(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, CHANGES, |_, space, rule| {
        let Rule::Foreign(constraint, key) = rule else { return };
        let parent = about.schema.table_by_id(key.parent);
        let index = parent.and_then(|p| p.indexes.iter().find(|i| i.id == key.parent_index && i.def.constraint != 0));
        let of_space = parent.filter(|_| index.is_some()).map(|p| namespace_name(about.schema, p.def.namespace));
        let unique = index.map(|i| i.def.name.as_str());
        let matching = if key.full { "FULL" } else { "NONE" };
        rows.row(cells![
            database,
            space,
            constraint.name.as_str(),
            unique.map(|_| database),
            of_space,
            unique,
            matching,
            action(key.on_update),
            action(key.on_delete),
        ]);
    });
    Ok(())
}

fn checks(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    each_rule(about, Privileges::NONE, |table, space, rule| {
        let clause = match rule {
            Rule::Check(constraint, _) => super::definition::check_clause(about.schema, constraint),
            Rule::NotNull(at, _) => format!("{} IS NOT NULL", table.def.columns[*at].name),
            _ => return,
        };
        rows.row(cells![database, space, rule.name(), clause]);
    });
    Ok(())
}

// ---- the rest

fn sequences(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    let any = AclKind::Sequence.possible();
    for sequence in about.schema.sequences().filter(|s| has_any(about, AclKind::Sequence, s.id, any)) {
        let def = &sequence.def;
        let of_identity = def.owner.is_some_and(|(table, column)| {
            about.schema.table_by_id(table).is_some_and(|t| t.def.columns[usize::from(column)].is_identity())
        });
        if of_identity {
            continue;
        }
        let space = namespace_name(about.schema, def.namespace);
        let precision = measures(def.ty).precision;
        let text = |value: i64| value.to_string();
        rows.row(cells![
            database,
            space,
            def.name.as_str(),
            pgtype::name(def.ty),
            precision,
            2,
            0,
            text(def.start),
            text(def.min),
            text(def.max),
            text(def.increment),
            yes(def.cycle),
        ]);
    }
    Ok(())
}

fn view_tables(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    let all = relations(about.schema);
    for view in about.schema.views() {
        let space = namespace_name(about.schema, view.def.namespace);
        let is_read = |r: &&Relation<'_>| r.is_table_or_view() && view.def.reads.contains(&r.oid);
        for read in all.iter().filter(is_read).filter(|r| owns(about, r.oid)) {
            let of_space = namespace_name(about.schema, read.namespace);
            rows.row(cells![database, space.as_str(), view.def.name.as_str(), database, of_space, read.name]);
        }
    }
    Ok(())
}

const TABLE_PRIVILEGES: &[&str] = &[
    "grantor",
    "grantee",
    "table_catalog",
    "table_schema",
    "table_name",
    "privilege_type",
    "is_grantable",
    "with_hierarchy",
];

const COLUMN_PRIVILEGES: &[&str] = &[
    "grantor",
    "grantee",
    "table_catalog",
    "table_schema",
    "table_name",
    "column_name",
    "privilege_type",
    "is_grantable",
];

/// Tables and views of users.
fn owned(schema: &Schema) -> impl Iterator<Item = Relation<'_>> {
    readable(schema).filter(|relation| !matches!(relation.kind, Kind::System(_)))
}

/// Which grants are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// To and by the roles whose rights the session's has, and to everybody.
    All,
    /// Not those to everybody by others.
    Roles,
}

/// Grantor, grantee, privilege, and whether it may be given on, for every privilege that is told of: of these, on what this role owns.
pub(super) fn told_grants(
    about: &About<'_>,
    (owner, grants): (RoleId, Vec<Grant>),
    told: Told,
) -> Vec<(String, String, &'static str, &'static str)> {
    let mut all = Vec::new();
    for grant in grants {
        let to_everybody = grant.grantee == RoleId::PUBLIC;
        let is_ours =
            roles::is_enabled(about, grant.grantor) || !to_everybody && roles::is_enabled(about, grant.grantee);
        if !(is_ours || to_everybody && told == Told::All) {
            continue;
        }
        let grantee = if to_everybody { "PUBLIC".to_owned() } else { roles::name(about, grant.grantee) };
        let has_owners = !to_everybody && role::inherited(about.schema, grant.grantee).contains(&owner);
        for (name, one) in Privileges(grant.privileges).names() {
            let is_grantable = has_owners || Privileges(grant.grantable).has(one);
            all.push((roles::name(about, grant.grantor), grantee.clone(), name, yes(is_grantable)));
        }
    }
    all
}

fn told_table_privileges(about: &About<'_>, rows: &mut Filler<'_>, told: Told) -> Filled {
    let database = database(about);
    for relation in owned(about.schema) {
        let space = namespace_name(about.schema, relation.namespace);
        for (grantor, grantee, privilege, is_grantable) in
            told_grants(about, acl::effective(about.schema, AclKind::Table, relation.oid), told)
        {
            let hierarchy = yes(privilege == "SELECT");
            rows.row(cells![
                grantor,
                grantee,
                database,
                space.as_str(),
                relation.name,
                privilege,
                is_grantable,
                hierarchy
            ]);
        }
    }
    Ok(())
}

/// What is granted on a table is on each of its columns.
fn told_column_privileges(about: &About<'_>, rows: &mut Filler<'_>, told: Told) -> Filled {
    let database = database(about);
    let of_columns: Vec<&str> = OF_COLUMNS.names().map(|(name, _)| name).collect();
    for relation in owned(about.schema) {
        let space = namespace_name(about.schema, relation.namespace);
        for (grantor, grantee, privilege, is_grantable) in
            told_grants(about, acl::effective(about.schema, AclKind::Table, relation.oid), told)
        {
            if !of_columns.contains(&privilege) {
                continue;
            }
            for attribute in relation.attributes().iter().filter(|a| a.ty.is_some()) {
                rows.row(cells![
                    grantor.as_str(),
                    grantee.as_str(),
                    database,
                    space.as_str(),
                    relation.name,
                    attribute.name.as_ref(),
                    privilege,
                    is_grantable
                ]);
            }
        }
    }
    Ok(())
}

/// Memberships of the roles whose rights the session's has; those with ADMIN OPTION only, if told so.
fn applicable_roles(about: &About<'_>, rows: &mut Filler<'_>, with_admin: bool) -> Filled {
    let schema = about.schema;
    let owns_database = (schema.owner(oid::DATABASE), RoleId::DATABASE_OWNER, false);
    let granted = schema.roles().flat_map(|role| role.def.member_of.iter().map(|m| (role.id, m.of, m.admin)));
    for (member, of, admin) in granted.chain([owns_database]) {
        if roles::is_enabled(about, member) && (admin || !with_admin) {
            rows.row(cells![roles::name(about, member), roles::name(about, of), yes(admin)]);
        }
    }
    Ok(())
}

/// Functions, as `pg_proc` has them: number, name, result, arguments, kind, volatility, whether a null gives null.
pub(super) struct Routine {
    oid: i64,
    pub name: String,
    result: u32,
    pub arguments: Vec<u32>,
    pub kind: String,
    volatility: String,
    is_strict: bool,
}

impl Routine {
    /// A name that no other function has.
    pub fn specific_name(&self) -> String {
        format!("{}_{}", self.name, self.oid)
    }
}

pub(super) fn routines_of_catalog() -> Vec<Routine> {
    let Some(section) = fixed::section("pg_proc") else { return Vec::new() };
    let at = |name: &str| section.columns.iter().position(|c| *c == name).unwrap_or_default();
    let (oid, name, result, arguments) = (at("oid"), at("proname"), at("prorettype"), at("proargtypes"));
    let (kind, volatility, strict) = (at("prokind"), at("provolatile"), at("proisstrict"));
    let number = |datum: &Datum| if let Datum::Int(n) = datum { *n } else { 0 };
    let text = |datum: &Datum| {
        if let Datum::Bytes(b) = datum { String::from_utf8_lossy(b).into_owned() } else { String::new() }
    };
    let types = |datum: &Datum| match datum {
        Datum::Bytes(stored) => {
            let element = Type::Oid(freshet_engine::schema::OidKind::Oid);
            crate::value::array_items(element, stored).iter().map(|d| number(d) as u32).collect()
        }
        _ => Vec::new(),
    };
    let routine = |row: &Vec<Datum>| Routine {
        oid: number(&row[oid]),
        name: text(&row[name]),
        result: number(&row[result]) as u32,
        arguments: types(&row[arguments]),
        kind: text(&row[kind]),
        volatility: text(&row[volatility]),
        is_strict: row[strict] == Datum::Bool(true),
    };
    section.rows.iter().map(routine).collect()
}

/// `data_type` and `udt_name` of a type by its oid.
fn type_names(oid: u32) -> (String, &'static str) {
    let own = fixed::type_facts(oid).map_or("", |f| f.name);
    let shown = pgtype::from_oid(oid, -1).map_or_else(|| own.to_owned(), data_type);
    (shown, own)
}

fn routines(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    for routine in routines_of_catalog().into_iter().filter(|r| r.kind == "f") {
        let (ty, udt) = type_names(routine.result);
        let specific = routine.specific_name();
        rows.row(cells![
            database,
            "pg_catalog",
            specific,
            database,
            "pg_catalog",
            routine.name.as_str(),
            "FUNCTION",
            ty,
            database,
            "pg_catalog",
            udt,
            "0",
            "EXTERNAL",
            routine.name.as_str(),
            "INTERNAL",
            "GENERAL",
            yes(routine.volatility == "i"),
            "MODIFIES",
            yes(routine.is_strict),
            "YES",
            "INVOKER",
        ]);
    }
    Ok(())
}

fn parameters(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    for routine in routines_of_catalog() {
        let specific = routine.specific_name();
        for (at, &argument) in routine.arguments.iter().enumerate() {
            let (ty, udt) = type_names(argument);
            let number = at as i32 + 1;
            rows.row(cells![
                database,
                "pg_catalog",
                specific.as_str(),
                number,
                "IN",
                "NO",
                "NO",
                ty,
                database,
                "pg_catalog",
                udt,
                number.to_string(),
            ]);
        }
    }
    Ok(())
}
