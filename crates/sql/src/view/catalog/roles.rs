//! The relations about roles: who there is, who is a member of whom, and what is granted, as text.
//!
//! What others are told of passwords is that there may be one; the verifiers stand in `pg_authid` and `pg_shadow`, which are the superusers'.

use super::super::About;
use super::fill::{Cell, Filled, Filler, Source, cells, source};
use crate::catalog::oid;
use crate::role;
use crate::role::acl::{self, Kind};
use crate::value::{Datum, array_datum};
use freshet_engine::catalog::{NamespaceId, Role, RoleDef, RoleId, Schema};
use freshet_engine::schema::{SystemKind, Type};
use std::sync::Arc;

const SHADOW: &[&str] =
    &["usename", "usesysid", "usecreatedb", "usesuper", "userepl", "usebypassrls", "passwd", "valuntil", "useconfig"];

pub static SOURCES: &[Source] = &[
    source(
        "pg_authid",
        &[
            "oid",
            "rolname",
            "rolsuper",
            "rolinherit",
            "rolcreaterole",
            "rolcreatedb",
            "rolcanlogin",
            "rolreplication",
            "rolbypassrls",
            "rolconnlimit",
            "rolpassword",
            "rolvaliduntil",
        ],
        authid,
    ),
    source("pg_auth_members", &["roleid", "member", "grantor", "admin_option"], members),
    source("pg_db_role_setting", &["setdatabase", "setrole", "setconfig"], role_settings),
    source(
        "pg_roles",
        &[
            "rolname",
            "rolsuper",
            "rolinherit",
            "rolcreaterole",
            "rolcreatedb",
            "rolcanlogin",
            "rolreplication",
            "rolconnlimit",
            "rolpassword",
            "rolvaliduntil",
            "rolbypassrls",
            "rolconfig",
            "oid",
        ],
        roles,
    ),
    source("pg_user", SHADOW, |about, rows| shadow(about, rows, false)),
    source("pg_shadow", SHADOW, |about, rows| shadow(about, rows, true)),
    source("pg_group", &["groname", "grosysid", "grolist"], groups),
];

/// Those that are there, and the one that stands for the database's owner; before there are any, the first one, called as the session is.
pub fn all(about: &About<'_>) -> Vec<Arc<Role>> {
    let name = oid::DATABASE_OWNER_NAME.to_owned();
    let predefined = Role { id: RoleId::DATABASE_OWNER, def: RoleDef { name, ..RoleDef::default() } };
    let mut all: Vec<Arc<Role>> = about.schema.roles().cloned().collect();
    if all.is_empty() {
        all.push(Arc::new(Role { id: RoleId::FIRST, def: RoleDef::first(&about.env.session_user) }));
    }
    all.push(Arc::new(predefined));
    all
}

fn settings(def: &RoleDef) -> Datum {
    if def.settings.is_empty() {
        return Datum::Null;
    }
    let items = def.settings.iter().map(|(name, value)| format!("{name}={value}").cell());
    array_datum(Type::Text, items.collect())
}

fn authid(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for role in all(about) {
        let def = &role.def;
        rows.row(cells![
            role.id.0,
            def.name.as_str(),
            def.is_superuser,
            def.inherits,
            def.creates_roles,
            def.creates_databases,
            def.can_log_in,
            def.replicates,
            def.bypasses_row_security,
            def.connections_max,
            def.verifier.as_ref().map(|verifier| verifier.0.as_str()),
            def.valid_until,
        ]);
    }
    Ok(())
}

fn roles(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for role in all(about) {
        let def = &role.def;
        rows.row(cells![
            def.name.as_str(),
            def.is_superuser,
            def.inherits,
            def.creates_roles,
            def.creates_databases,
            def.can_log_in,
            def.replicates,
            def.connections_max,
            "********",
            def.valid_until,
            def.bypasses_row_security,
            settings(def),
            role.id.0,
        ]);
    }
    Ok(())
}

fn shadow(about: &About<'_>, rows: &mut Filler<'_>, tells: bool) -> Filled {
    for role in all(about).iter().filter(|role| role.def.can_log_in) {
        let def = &role.def;
        let verifier = def.verifier.as_ref().map(|verifier| verifier.0.as_str());
        rows.row(cells![
            def.name.as_str(),
            role.id.0,
            def.creates_databases,
            def.is_superuser,
            def.replicates,
            def.bypasses_row_security,
            if tells { verifier } else { Some("********") },
            def.valid_until,
            settings(def),
        ]);
    }
    Ok(())
}

fn members(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for role in about.schema.roles() {
        for of in &role.def.member_of {
            rows.row(cells![of.of.0, role.id.0, of.grantor.0, of.admin]);
        }
    }
    Ok(())
}

/// Roles that do not log in, with their direct members.
fn groups(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for role in all(about).iter().filter(|role| !role.def.can_log_in) {
        let is_member = |other: &&Arc<Role>| other.def.member_of.iter().any(|m| m.of == role.id);
        let list = about.schema.roles().filter(is_member).map(|other| other.id.0.cell());
        let list = array_datum(Type::Oid(freshet_engine::schema::OidKind::Oid), list.collect());
        rows.row(cells![role.def.name.as_str(), role.id.0, list]);
    }
    Ok(())
}

fn role_settings(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for role in about.schema.roles().filter(|role| !role.def.settings.is_empty()) {
        rows.row(cells![0_u32, role.id.0, settings(&role.def)]);
    }
    Ok(())
}

/// The name of a role; the first one's is the session's until it has its own.
pub fn name(about: &About<'_>, role: RoleId) -> String {
    role::name(about.schema, role, &about.env.session_user)
}

/// Whether the session's role has that one's rights; a superuser has all.
pub fn is_enabled(about: &About<'_>, role: RoleId) -> bool {
    about.env.access.as_ref().is_none_or(|access| access.has_role(role))
}

/// The owner's number.
pub fn owner(schema: &Schema, object: u32) -> u32 {
    schema.owner(object).0
}

/// What is granted on an object, as `relacl` and its like have it; NULL where that is what it has by default.
pub fn list(about: &About<'_>, kind: Kind, object: u32) -> Datum {
    let Some(grants) = about.schema.rights(object).and_then(|rights| rights.grants.as_ref()) else {
        // The schemas that PostgreSQL brings along come with what everybody has.
        let is_told = kind == Kind::Schema
            && [NamespaceId::PUBLIC.0, NamespaceId::CATALOG.0, NamespaceId::INFORMATION.0].contains(&object);
        if !is_told {
            return Datum::Null;
        }
        let mut grants = acl::default_grants(kind, object, about.schema.owner(object));
        grants.rotate_left(1);
        return items(about, &grants);
    };
    items(about, grants)
}

fn items(about: &About<'_>, grants: &[freshet_engine::catalog::Grant]) -> Datum {
    let items = grants.iter().map(|grant| acl::item_text(grant, |role| name(about, role)).cell());
    array_datum(Type::System(SystemKind::AclItem), items.collect())
}
