//! What is used by what, and what may be used by whom? The relations of `information_schema` that name a use, a right on a type, a function or a
//! sequence, or a type of something.
//!
//! Empty, as nothing here can have any: `column_domain_usage`, `domain_udt_usage` (there are no domains), `check_constraint_routine_usage`,
//! `view_routine_usage`, `routine_*_usage` (every function comes along, and uses of those PostgreSQL does not tell either).

use super::super::About;
use super::fill::{Filled, Filler, Source, cells};
use super::information::{
    OF_COLUMNS, Told, collations, database, is_told, owns, readable, routines_of_catalog, source, told_grants,
    type_place,
};
use super::relation::{Relation, relations};
use super::roles;
use crate::bind::names::{RelationName, namespace_name};
use crate::define::{names_column, view};
use crate::role::acl::{Kind as AclKind, Privileges, default_grants, effective};
use freshet_engine::catalog::{ColumnRole, RoleId};
use freshet_engine::schema::Type;

const OF_TYPE: &[&str] =
    &["grantor", "grantee", "udt_catalog", "udt_schema", "udt_name", "privilege_type", "is_grantable"];

const OF_ROUTINE: &[&str] = &[
    "grantor",
    "grantee",
    "specific_catalog",
    "specific_schema",
    "specific_name",
    "routine_catalog",
    "routine_schema",
    "routine_name",
    "privilege_type",
    "is_grantable",
];

const OF_USE: &[&str] = &[
    "grantor",
    "grantee",
    "object_catalog",
    "object_schema",
    "object_name",
    "object_type",
    "privilege_type",
    "is_grantable",
];

pub static SOURCES: &[Source] = &[
    source(
        "view_column_usage",
        &["view_catalog", "view_schema", "view_name", "table_catalog", "table_schema", "table_name", "column_name"],
        view_columns,
    ),
    source(
        "column_column_usage",
        &["table_catalog", "table_schema", "table_name", "column_name", "dependent_column"],
        columns_of_columns,
    ),
    source(
        "column_udt_usage",
        &["udt_catalog", "udt_schema", "udt_name", "table_catalog", "table_schema", "table_name", "column_name"],
        types_of_columns,
    ),
    source(
        "data_type_privileges",
        &["object_catalog", "object_schema", "object_name", "object_type", "dtd_identifier"],
        described_types,
    ),
    source(
        "collation_character_set_applicability",
        &["collation_catalog", "collation_schema", "collation_name", "character_set_name"],
        |about, rows| {
            for name in collations() {
                rows.row(cells![database(about), "pg_catalog", name, "UTF8"]);
            }
            Ok(())
        },
    ),
    source("udt_privileges", OF_TYPE, |about, rows| row_types(about, rows, Told::All)),
    source("role_udt_grants", OF_TYPE, |about, rows| row_types(about, rows, Told::Roles)),
    source("routine_privileges", OF_ROUTINE, |about, rows| routines(about, rows, Told::All)),
    source("role_routine_grants", OF_ROUTINE, |about, rows| routines(about, rows, Told::Roles)),
    source("usage_privileges", OF_USE, |about, rows| uses(about, rows, Told::All)),
    source("role_usage_grants", OF_USE, |about, rows| uses(about, rows, Told::Roles)),
];

/// The columns of tables and views that views read, for who owns what is read.
fn view_columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    let all = relations(about.schema);
    for reader in about.schema.views() {
        let reader_space = namespace_name(about.schema, reader.def.namespace);
        let is_read = |r: &&Relation<'_>| r.is_table_or_view() && reader.def.reads.contains(&r.oid);
        for read in all.iter().filter(is_read).filter(|r| owns(about, r.oid)) {
            let space = namespace_name(about.schema, read.namespace);
            let name = RelationName { namespace: Some(space.clone()), name: read.name.to_owned() };
            let attributes = read.attributes();
            let columns: Vec<String> =
                attributes.iter().filter(|a| a.ty.is_some()).map(|a| a.name.clone().into_owned()).collect();
            for (place, column) in columns.iter().enumerate() {
                if view::uses_column(&reader.def.query, &name, &columns, place, about.schema) {
                    let (reader_name, space) = (reader.def.name.as_str(), space.as_str());
                    rows.row(cells![
                        database,
                        reader_space.as_str(),
                        reader_name,
                        database,
                        space,
                        read.name,
                        column.as_str()
                    ]);
                }
            }
        }
    }
    Ok(())
}

/// What generated columns are computed of.
fn columns_of_columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for table in about.schema.tables().filter(|table| owns(about, table.id.0)) {
        let space = namespace_name(about.schema, table.def.namespace);
        for generated in table.def.columns.iter().filter(|c| c.role == ColumnRole::Generated) {
            let text = generated.default.as_deref().unwrap_or_default();
            for (at, column) in table.def.columns.iter().enumerate().filter(|(_, c)| c.is_visible()) {
                if names_column(text, &table.def, at, about.schema) {
                    let (table, of) = (table.def.name.as_str(), generated.name.as_str());
                    rows.row(cells![database(about), space.as_str(), table, column.name.as_str(), of]);
                }
            }
        }
    }
    Ok(())
}

/// The columns of each type that the role owns: those that come along are the first superuser's.
fn types_of_columns(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    let is_first = roles::is_enabled(about, RoleId::FIRST);
    let is_owned = |ty: Type| match ty {
        Type::Enum(id) | Type::Array(&Type::Enum(id)) => owns(about, id.0),
        _ => is_first,
    };
    for relation in readable(about.schema) {
        let space = namespace_name(about.schema, relation.namespace);
        for attribute in relation.attributes() {
            let Some(ty) = attribute.ty.filter(|ty| is_owned(*ty)) else { continue };
            let (type_space, type_name) = type_place(about.schema, ty);
            let column = attribute.name.as_ref();
            rows.row(cells![database, type_space, type_name, database, space.as_str(), relation.name, column]);
        }
    }
    Ok(())
}

/// What has a type that `columns`, `parameters` and `routines` tell of.
fn described_types(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let database = database(about);
    for relation in readable(about.schema).filter(|relation| is_told(about, relation, OF_COLUMNS)) {
        let space = namespace_name(about.schema, relation.namespace);
        for attribute in relation.attributes().iter().filter(|a| a.ty.is_some()) {
            rows.row(cells![database, space.as_str(), relation.name, "TABLE", attribute.number.to_string()]);
        }
    }
    for routine in routines_of_catalog() {
        let arguments = (1..=routine.arguments.len()).map(|number| number.to_string());
        let result = (routine.kind == "f").then(|| "0".to_owned());
        for number in arguments.chain(result) {
            rows.row(cells![database, "pg_catalog", routine.specific_name(), "ROUTINE", number]);
        }
    }
    Ok(())
}

/// Each table and view is of a type of its own, which is everybody's to use.
fn row_types(about: &About<'_>, rows: &mut Filler<'_>, told: Told) -> Filled {
    for relation in readable(about.schema) {
        let space = namespace_name(about.schema, relation.namespace);
        let owner = about.schema.owner(relation.oid);
        let grants = (owner, default_grants(AclKind::Type, relation.oid, owner));
        for (grantor, grantee, _, is_grantable) in told_grants(about, grants, told) {
            let database = database(about);
            rows.row(cells![grantor, grantee, database, space.as_str(), relation.name, "TYPE USAGE", is_grantable]);
        }
    }
    Ok(())
}

/// Every function is everybody's to call. What is granted is the same for all: one privilege, as on a type.
fn routines(about: &About<'_>, rows: &mut Filler<'_>, told: Told) -> Filled {
    let owner = RoleId::FIRST;
    let granted = told_grants(about, (owner, default_grants(AclKind::Type, 0, owner)), told);
    for routine in routines_of_catalog() {
        for (grantor, grantee, _, is_grantable) in &granted {
            let database = database(about);
            rows.row(cells![
                grantor.as_str(),
                grantee.as_str(),
                database,
                "pg_catalog",
                routine.specific_name(),
                database,
                "pg_catalog",
                routine.name.as_str(),
                "EXECUTE",
                *is_grantable
            ]);
        }
    }
    Ok(())
}

/// Collations are everybody's; of sequences what was granted is told.
fn uses(about: &About<'_>, rows: &mut Filler<'_>, told: Told) -> Filled {
    let database = database(about);
    if told == Told::All || roles::is_enabled(about, RoleId::FIRST) {
        let owner = roles::name(about, RoleId::FIRST);
        for name in collations() {
            let owner = owner.as_str();
            rows.row(cells![owner, "PUBLIC", database, "pg_catalog", name, "COLLATION", "USAGE", "NO"]);
        }
    }
    let is_granted = |id: u32| about.schema.rights(id).is_some_and(|rights| rights.grants.is_some());
    let (usage, _) = Privileges::USAGE.names().next().expect("a privilege has a name");
    for sequence in about.schema.sequences().filter(|sequence| is_granted(sequence.id)) {
        let space = namespace_name(about.schema, sequence.def.namespace);
        let granted = told_grants(about, effective(about.schema, AclKind::Sequence, sequence.id), told);
        for (grantor, grantee, _, is_grantable) in granted.into_iter().filter(|grant| grant.2 == usage) {
            let (space, name) = (space.as_str(), sequence.def.name.as_str());
            rows.row(cells![grantor, grantee, database, space, name, "SEQUENCE", usage, is_grantable]);
        }
    }
    Ok(())
}
