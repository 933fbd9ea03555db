//! Who may do what? The rights of a session's role, as of one version of the schema.
//!
//! | module | question |
//! |---|---|
//! | `acl` | which privileges are there, and what does a list of them give |
//! | `password` | what is kept of a password |
//! | `check` | what must a role be allowed for a statement |
//! | `names` | which schemas does a statement name |
//!
//! ```text
//! session: a statement is planned ─ Access of its role and schema ─▶ names, check: the names in it ─▶ plan, kept for that role and schema
//!          SET ROLE, GRANT, ...   ─ another role or schema version ─▶ the plan is another one's: planned and checked anew
//! ```
//!
//! 1. Rights are looked at where names are: when a statement is planned. A plan is of one version of the schema, of which roles and grants are
//!    part, and of one role; so what was allowed when it was planned is allowed when it runs, and a prepared statement that runs again looks at
//!    nothing but these two.
//! 2. Who may do everything has no `Access`: superusers share their plans, and a database without roles pays for none of this.
//! 3. A session's temporary tables are its own: no other session names, makes or moves anything in their schema, whatever role it has.
//! 4. A foreign key looks into the other table whoever the session is, as its owner would.

pub mod acl;
pub mod check;
pub mod names;
pub mod password;

use crate::catalog::oid;
use crate::error::SqlError;
use acl::{Kind, Privileges};
use freshet_engine::catalog::{Membership, NamespaceId, RoleDef, RoleId, Schema};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rights of a role that may not do everything.
pub struct Access {
    pub role: RoleId,
    pub schema: Arc<Schema>,
    /// Itself, and whose rights it has by inheritance.
    has: BTreeSet<RoleId>,
    /// Of the session whose role it is.
    temporary: Option<NamespaceId>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "access of role {} at {}", self.role.0, self.schema.version)
    }
}

/// Whether the role may do everything. One that was dropped may not.
pub fn is_superuser(schema: &Schema, role: RoleId) -> bool {
    match schema.role(role) {
        Some(known) => known.def.is_superuser,
        None => role == RoleId::FIRST,
    }
}

/// The role and those of which it is a member, through whomever.
fn reached(schema: &Schema, role: RoleId, follows: impl Fn(&RoleDef) -> bool) -> BTreeSet<RoleId> {
    let mut all = BTreeSet::from([role]);
    let mut rest = vec![role];
    while let Some(next) = rest.pop() {
        let Some(known) = schema.role(next).filter(|role| follows(&role.def)) else { continue };
        rest.extend(known.def.member_of.iter().map(|m| m.of).filter(|&of| all.insert(of)));
    }
    if all.contains(&schema.owner(oid::DATABASE)) {
        all.insert(RoleId::DATABASE_OWNER);
    }
    all
}

/// Whose rights the role has without SET ROLE.
pub fn inherited(schema: &Schema, role: RoleId) -> BTreeSet<RoleId> {
    reached(schema, role, |def| def.inherits)
}

/// Whether the role has the other one's rights without SET ROLE; a superuser has all.
pub fn has_rights_of(schema: &Schema, role: RoleId, of: RoleId) -> bool {
    is_superuser(schema, role) || inherited(schema, role).contains(&of)
}

/// Whether the role may become the other one.
pub fn is_member(schema: &Schema, role: RoleId, of: RoleId) -> bool {
    is_superuser(schema, role) || is_member_itself(schema, role, of)
}

/// Whether the role is a member of the other one, a superuser of all roles not by being one.
pub fn is_member_itself(schema: &Schema, role: RoleId, of: RoleId) -> bool {
    reached(schema, role, |_| true).contains(&of)
}

/// Whether the role may take others into this one: by an ADMIN OPTION of its own or of a role that it is a member of.
pub fn is_admin(schema: &Schema, role: RoleId, of: RoleId) -> bool {
    if is_superuser(schema, role) {
        return true;
    }
    let all = reached(schema, role, |_| true);
    let is_it = |m: &Membership| m.of == of && m.admin;
    all.iter().any(|role| schema.role(*role).is_some_and(|role| role.def.member_of.iter().any(is_it)))
}

/// The role's name, if there is such a role. The first one is called as the session calls itself until it has a name of its own.
pub fn known_name(schema: &Schema, role: RoleId, session: Option<&str>) -> Option<String> {
    match schema.role(role) {
        Some(known) => Some(known.def.name.clone()),
        None if role == RoleId::FIRST => session.map(str::to_owned),
        None if role == RoleId::DATABASE_OWNER => Some(oid::DATABASE_OWNER_NAME.to_owned()),
        None => None,
    }
}

/// The same; of none as PostgreSQL calls it.
pub fn name(schema: &Schema, role: RoleId, session: &str) -> String {
    known_name(schema, role, Some(session)).unwrap_or_else(|| unknown_name(role))
}

pub fn unknown_name(role: RoleId) -> String {
    format!("unknown (OID={})", role.0)
}

/// The role of this name, for a session that calls the first role by its own.
pub fn named(schema: &Schema, name: &str, session: &str) -> Result<RoleId, SqlError> {
    let missing = || SqlError::new("42704", format!("role \"{name}\" does not exist"));
    match schema.role_named(name) {
        Some(role) => Ok(role.id),
        None if !schema.has_roles() && name == session => Ok(RoleId::FIRST),
        None if name == oid::DATABASE_OWNER_NAME => Ok(RoleId::DATABASE_OWNER),
        None => Err(missing()),
    }
}

impl Access {
    /// `None`: the role may do everything.
    pub fn of(schema: &Arc<Schema>, role: RoleId) -> Option<Access> {
        if is_superuser(schema, role) {
            return None;
        }
        Some(Access { role, schema: schema.clone(), has: inherited(schema, role), temporary: None })
    }

    /// The same for a session with this schema of temporary tables.
    pub fn of_session(self, temporary: Option<NamespaceId>) -> Access {
        Access { temporary, ..self }
    }

    /// The same for who looks names up along the path of this copy of the schema.
    pub fn along(&self, schema: &Arc<Schema>) -> Access {
        Access { role: self.role, schema: schema.clone(), has: self.has.clone(), temporary: self.temporary }
    }

    /// Whether it has the rights of that role.
    pub fn has_role(&self, role: RoleId) -> bool {
        self.has.contains(&role)
    }

    pub fn owns(&self, object: u32) -> bool {
        self.has_role(self.schema.owner(object))
    }

    /// What it may do with an object, and what of it it may give on.
    pub fn held(&self, kind: Kind, object: u32) -> (Privileges, Privileges) {
        let (owner, grants) = acl::effective(&self.schema, kind, object);
        let (has, mut may_give) = acl::held(&grants, |role| self.has_role(role));
        if self.has_role(owner) {
            may_give = may_give.with(kind.possible());
        }
        (has, may_give)
    }

    pub fn may(&self, kind: Kind, object: u32, wanted: Privileges) -> bool {
        self.held(kind, object).0.has(wanted)
    }

    /// Whether names in the schema can be looked up. Whoever owns another session's temporary schema may not.
    pub fn may_use(&self, namespace: NamespaceId) -> bool {
        match crate::bind::names::is_temporary(&self.schema, namespace) {
            true => self.temporary == Some(namespace),
            false => self.may(Kind::Schema, namespace.0, Privileges::USAGE),
        }
    }
}

/// 42501: `permission denied for table t`.
pub fn denied(what: &str, name: &str) -> SqlError {
    SqlError::new("42501", format!("permission denied for {what} {name}"))
}

/// 42501: `must be owner of table t`.
pub fn not_owner(what: &str, name: &str) -> SqlError {
    SqlError::new("42501", format!("must be owner of {what} {name}"))
}

// ---- coming in

/// What a client that calls itself so is checked by. The rest of its session's rights follow from the role.
#[derive(Clone, Debug)]
pub struct Login {
    pub role: RoleId,
    /// `None`: no role of this name, or it may not log in, or it has no password, or that is of yesterday; which of these is nobody's business.
    pub verifier: Option<String>,
}

/// Whom a name means that comes in with a password.
pub fn login(schema: &Schema, user: &str, now_us: i64) -> Login {
    let Some(role) = schema.role_named(user) else {
        return Login { role: RoleId::PUBLIC, verifier: None };
    };
    let is_good = role.def.valid_until.is_none_or(|until| now_us < until);
    let verifier = role.def.verifier.as_ref().filter(|_| is_good).map(|verifier| verifier.0.clone());
    Login { role: role.id, verifier }
}

/// The role that a client which has proven its name becomes.
pub fn admit(schema: &Arc<Schema>, user: &str, database: &str) -> Result<RoleId, SqlError> {
    if !schema.has_roles() {
        return Ok(RoleId::FIRST);
    }
    let refused = |message: String| SqlError::new("28000", message);
    let role = schema.role_named(user).ok_or_else(|| refused(format!("role \"{user}\" does not exist")))?;
    if !role.def.can_log_in {
        return Err(refused(format!("role \"{user}\" is not permitted to log in")));
    }
    let connects = |access: Access| access.may(Kind::Database, oid::DATABASE, Privileges::CONNECT);
    if !Access::of(schema, role.id).is_none_or(connects) {
        return Err(SqlError::new("42501", format!("permission denied for database \"{database}\""))
            .with_detail("User does not have CONNECT privilege."));
    }
    Ok(role.id)
}

/// How many sessions the role may have at the same time.
pub fn connections_max(schema: &Schema, role: RoleId) -> Option<usize> {
    let role = schema.role(role).filter(|role| !role.def.is_superuser)?;
    usize::try_from(role.def.connections_max).ok()
}
