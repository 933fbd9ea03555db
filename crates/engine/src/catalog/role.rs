//! Who may do what? Roles, which roles they are members of, and the rights to an object beyond its owner's.
//!
//! Rights stand beside the definitions, not in them: an object without any is the first role's (`public` the database's owner's), with the rights that PostgreSQL gives by default.
//! So a database in which nobody cares for roles keeps none of this, and one from before there were roles reads as it did.

use super::NamespaceId;
use std::fmt;

/// A role's identity: its oid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoleId(pub u32);

impl RoleId {
    /// Everybody, as a grantee.
    pub const PUBLIC: RoleId = RoleId(0);
    /// The first role, which may do everything and owns what nobody else does; PostgreSQL's oid. It has no definition before another role is
    /// made, and then no name of its own: whoever is connected is called as they call themselves.
    pub const FIRST: RoleId = RoleId(10);
    /// Stands for whoever owns the database: `pg_database_owner`, with PostgreSQL's oid. It has no definition.
    pub const DATABASE_OWNER: RoleId = RoleId(6171);
}

impl Default for RoleId {
    fn default() -> RoleId {
        RoleId::FIRST
    }
}

/// What a password is checked against, as text. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(pub String);

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// That a role is a member of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    pub of: RoleId,
    pub grantor: RoleId,
    /// WITH ADMIN OPTION: it may take others in.
    pub admin: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleDef {
    pub name: String,
    pub is_superuser: bool,
    /// It has the rights of the roles that it is a member of without SET ROLE.
    pub inherits: bool,
    pub creates_roles: bool,
    pub creates_databases: bool,
    pub can_log_in: bool,
    /// Kept for show: there is no replication by this protocol, and no row security.
    pub replicates: bool,
    pub bypasses_row_security: bool,
    /// -1: none.
    pub connections_max: i32,
    /// Until when the password is good: microseconds since 2000-01-01.
    pub valid_until: Option<i64>,
    pub verifier: Option<Verifier>,
    pub member_of: Vec<Membership>,
    /// Settings with which its sessions begin: name and value.
    pub settings: Vec<(String, String)>,
}

impl Default for RoleDef {
    fn default() -> RoleDef {
        RoleDef {
            name: String::new(),
            is_superuser: false,
            inherits: true,
            creates_roles: false,
            creates_databases: false,
            can_log_in: false,
            replicates: false,
            bypasses_row_security: false,
            connections_max: -1,
            valid_until: None,
            verifier: None,
            member_of: Vec::new(),
            settings: Vec::new(),
        }
    }
}

impl RoleDef {
    /// What the first role is from the beginning.
    pub fn first(name: &str) -> RoleDef {
        RoleDef {
            name: name.to_owned(),
            is_superuser: true,
            creates_roles: true,
            creates_databases: true,
            can_log_in: true,
            replicates: true,
            bypasses_row_security: true,
            ..RoleDef::default()
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    pub id: RoleId,
    pub def: RoleDef,
}

/// What one role gave another, or everybody: a bit for each privilege, whose meaning is the SQL layer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub grantee: RoleId,
    pub grantor: RoleId,
    pub privileges: u16,
    /// Those of them that the grantee may give on.
    pub grantable: u16,
}

/// An object's owner and list of grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    pub owner: RoleId,
    /// `None`: what an object of its kind has by default.
    pub grants: Option<Vec<Grant>>,
}

impl Rights {
    /// Of an object of which nothing is said.
    pub fn unsaid(object: u32) -> Rights {
        let is_public = object == NamespaceId::PUBLIC.0;
        Rights { owner: if is_public { RoleId::DATABASE_OWNER } else { RoleId::FIRST }, grants: None }
    }
}
