//! What do CREATE, ALTER and DROP ROLE define, and who may say them? As PostgreSQL 15 has it: CREATEROLE makes and changes all roles but superusers.
//!
//! The first command that names roles gives the first one its name, that of the session: from then on only roles that are there come in.

use super::{Definer, Done};
use crate::catalog::oid;
use crate::error::SqlError;
use crate::parse::{RoleCommand, RoleOptions, RoleSpec};
use crate::role;
use crate::settings::{self, Settings};
use crate::value::{self, Datum};
use freshet_engine::catalog::{Membership, Role, RoleDef, RoleId, Schema};
use freshet_engine::schema::Type;
use std::sync::Arc;

fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new("42501", message)
}

fn missing(name: &str) -> SqlError {
    SqlError::new("42704", format!("role \"{name}\" does not exist"))
}

impl Definer<'_> {
    pub(super) fn role_command(&mut self, command: &RoleCommand) -> Done<()> {
        match command {
            RoleCommand::Create { is_user, name, options } => self.create_role(*is_user, name, options),
            RoleCommand::Alter { role, options } => self.alter_role(role, options),
            RoleCommand::Rename { old, new } => self.rename_role(old, new),
            RoleCommand::Set { role, name, value } => self.set_of_role(role, name, value.as_deref()),
            RoleCommand::Drop { names, if_exists } => {
                names.iter().try_for_each(|name| self.drop_role(name, *if_exists))
            }
            RoleCommand::GrantRoles { is_grant, roles, members, admin, .. } => {
                self.name_first_role()?;
                for name in roles {
                    let role = self.resolve(&RoleSpec::Name(name.clone()))?;
                    for member in members {
                        let member = self.resolve(member)?;
                        self.change_membership(role, member, *is_grant, *admin)?;
                    }
                }
                Ok(())
            }
            RoleCommand::Grant(grant) => self.grant(grant),
            RoleCommand::DropOwned { roles, cascade } => self.drop_owned(roles, *cascade),
            RoleCommand::ReassignOwned { roles, new } => self.reassign_owned(roles, new),
        }
    }

    // ---- who

    fn is_superuser(&self) -> bool {
        role::is_superuser(self.engine.schema(), self.env.role)
    }

    fn may_create_roles(&self) -> bool {
        self.is_superuser() || self.engine.schema().role(self.env.role).is_some_and(|role| role.def.creates_roles)
    }

    fn name_first_role(&mut self) -> Done<()> {
        if self.engine.schema().has_roles() {
            return Ok(());
        }
        Ok(self.engine.name_first_role(RoleDef::first(&self.env.session_user))?)
    }

    fn role_named(&self, name: &str) -> Done<Arc<Role>> {
        Ok(self.engine.schema().role_named(name).cloned().ok_or_else(|| missing(name))?)
    }

    /// The role that is meant: not everybody.
    pub(super) fn resolve(&self, spec: &RoleSpec) -> Done<RoleId> {
        Ok(match spec {
            RoleSpec::Name(name) => role::named(self.engine.schema(), name, &self.env.session_user)?,
            RoleSpec::Public => return Err(missing("public").into()),
            RoleSpec::CurrentUser => self.env.role,
            RoleSpec::SessionUser => self.env.session_role,
        })
    }

    pub(super) fn role_name(&self, role: RoleId) -> String {
        role::name(self.engine.schema(), role, &self.env.session_user)
    }

    /// A name that a new role may have.
    fn new_name(&self, spec: &RoleSpec) -> Done<String> {
        let name = match spec {
            RoleSpec::Name(name) => name.clone(),
            RoleSpec::Public => "public".to_owned(),
            RoleSpec::CurrentUser => return Err(not_here("CURRENT_USER")),
            RoleSpec::SessionUser => return Err(not_here("SESSION_USER")),
        };
        if name == "public" || name == "none" {
            return Err(SqlError::new("42939", format!("role name \"{name}\" is reserved")).into());
        }
        if name.starts_with("pg_") {
            return Err(SqlError::new("42939", format!("role name \"{name}\" is reserved"))
                .with_detail("Role names starting with \"pg_\" are reserved.")
                .into());
        }
        if self.engine.schema().role_named(&name).is_some() {
            return Err(SqlError::new("42710", format!("role \"{name}\" already exists")).into());
        }
        Ok(name)
    }

    // ---- CREATE and ALTER

    fn create_role(&mut self, is_user: bool, name: &RoleSpec, options: &RoleOptions) -> Done<()> {
        let asks = |option: Option<bool>| option == Some(true);
        if !self.is_superuser() {
            for (asked, what) in [
                (asks(options.superuser), "superusers"),
                (asks(options.replication), "replication users"),
                (asks(options.bypass_row_security), "bypassrls users"),
            ] {
                if asked {
                    return Err(denied(format!("must be superuser to create {what}")).into());
                }
            }
            if !self.may_create_roles() {
                return Err(denied("permission denied to create role").into());
            }
        }
        self.name_first_role()?;
        let name = self.new_name(name)?;
        let mut def = RoleDef { name, can_log_in: is_user, ..RoleDef::default() };
        self.apply(&mut def, options)?;
        let id = self.engine.create_role(def)?;
        for of in &options.member_of {
            let of = self.resolve(of)?;
            self.change_membership(of, id, true, false)?;
        }
        for (members, admin) in [(&options.members, false), (&options.admins, true)] {
            for member in members {
                let member = self.resolve(member)?;
                self.change_membership(id, member, true, admin)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, def: &mut RoleDef, options: &RoleOptions) -> Done<()> {
        let set = |place: &mut bool, option: Option<bool>| *place = option.unwrap_or(*place);
        set(&mut def.is_superuser, options.superuser);
        set(&mut def.inherits, options.inherit);
        set(&mut def.creates_roles, options.create_role);
        set(&mut def.creates_databases, options.create_database);
        set(&mut def.can_log_in, options.login);
        set(&mut def.replicates, options.replication);
        set(&mut def.bypasses_row_security, options.bypass_row_security);
        def.connections_max = options.connections_max.unwrap_or(def.connections_max);
        if let Some(text) = &options.valid_until {
            def.valid_until = match value::from_text(Type::Timestamptz, text.as_bytes())? {
                Datum::Int(until) => Some(until),
                _ => None,
            };
        }
        if let Some(verifier) = &options.password {
            if options.password_was_empty {
                self.notice("00000", "empty string is not a valid password, clearing password");
            }
            def.verifier.clone_from(verifier);
        }
        Ok(())
    }

    fn alter_role(&mut self, spec: &RoleSpec, options: &RoleOptions) -> Done<()> {
        // Said of nobody it is still no one else's to say.
        self.name_first_role()?;
        let id = self.resolve(spec)?;
        let role = self.engine.schema().role(id).cloned().ok_or_else(|| missing(&self.role_name(id)))?;
        if !self.is_superuser() {
            self.check_alter(&role, options)?;
        }
        let mut def = role.def.clone();
        self.apply(&mut def, options)?;
        if id == RoleId::FIRST && !def.is_superuser {
            // Nobody could make it one again, as in PostgreSQL from 16 on.
            let message = "permission denied to alter role";
            let detail = "The bootstrap user must have the SUPERUSER attribute.";
            return Err(SqlError::new("0A000", message).with_detail(detail).into());
        }
        Ok(self.engine.redefine_role(id, def)?)
    }

    fn check_alter(&self, role: &Role, options: &RoleOptions) -> Done<()> {
        let refused = |message: &str| Err(denied(message).into());
        if role.def.is_superuser || options.superuser.is_some() {
            return refused("must be superuser to alter superuser roles or change superuser attribute");
        }
        if role.def.replicates || options.replication.is_some() {
            return refused("must be superuser to alter replication roles or change replication attribute");
        }
        if options.bypass_row_security.is_some() {
            return refused("must be superuser to change bypassrls attribute");
        }
        if self.may_create_roles() {
            return Ok(());
        }
        let RoleOptions { inherit, create_role, create_database, login, connections_max, valid_until, .. } = options;
        let flags = [inherit, create_role, create_database, login];
        let only_password =
            flags.iter().all(|flag| flag.is_none()) && connections_max.is_none() && valid_until.is_none();
        // One's own password is one's own.
        if only_password && options.password.is_some() && role.id == self.env.role {
            return Ok(());
        }
        refused("permission denied")
    }

    pub(super) fn role_to_comment_on(&mut self, name: &str) -> Done<u32> {
        self.name_first_role()?;
        let role = self.role_named(name)?;
        if role.def.is_superuser && !self.is_superuser() {
            return Err(denied("must be superuser").into());
        }
        if !self.may_create_roles() {
            return Err(denied("must have CREATEROLE privilege").into());
        }
        Ok(role.id.0)
    }

    fn rename_role(&mut self, old: &str, new: &RoleSpec) -> Done<()> {
        self.name_first_role()?;
        let role = self.role_named(old)?;
        for (own, what) in [(self.env.session_role, "session"), (self.env.role, "current")] {
            if role.id == own {
                return Err(SqlError::new("0A000", format!("{what} user cannot be renamed")).into());
            }
        }
        let name = self.new_name(new)?;
        if role.def.is_superuser && !self.is_superuser() {
            return Err(denied("must be superuser to rename superusers").into());
        }
        if !self.may_create_roles() {
            return Err(denied("permission denied to rename role").into());
        }
        Ok(self.engine.redefine_role(role.id, RoleDef { name, ..role.def.clone() })?)
    }

    /// A setting with which the role's sessions begin.
    fn set_of_role(&mut self, spec: &RoleSpec, name: &str, value: Option<&str>) -> Done<()> {
        self.name_first_role()?;
        let id = self.resolve(spec)?;
        let role = self.engine.schema().role(id).cloned().ok_or_else(|| missing(&self.role_name(id)))?;
        if role.def.is_superuser && !self.is_superuser() {
            return Err(denied("must be superuser to alter superusers").into());
        }
        if id != self.env.role && !self.may_create_roles() {
            return Err(denied("permission denied").into());
        }
        let is_superuser = self.is_superuser();
        if !is_superuser && settings::is_superusers(name) {
            return Err(denied(format!("permission denied to set parameter \"{name}\"")).into());
        }
        let mut def = role.def.clone();
        // RESET ALL leaves what only a superuser may change.
        let is_reset = |own: &str| own == name || (name.is_empty() && (is_superuser || !settings::is_superusers(own)));
        def.settings.retain(|(own, _)| !is_reset(own));
        if let Some(value) = value {
            // A value that could not be set is refused now.
            Settings::default().set(name, value)?;
            def.settings.push((name.to_owned(), value.to_owned()));
        }
        Ok(self.engine.redefine_role(id, def)?)
    }

    // ---- membership

    fn change_membership(&mut self, role: RoleId, member: RoleId, is_grant: bool, admin: bool) -> Done<()> {
        let schema = self.engine.schema().clone();
        let (role_name, member_name) = (self.role_name(role), self.role_name(member));
        let of_superuser = role::is_superuser(&schema, role);
        if of_superuser && !self.is_superuser() {
            return Err(denied("must be superuser to alter superusers").into());
        }
        if !of_superuser && !self.may_create_roles() && !role::is_admin(&schema, self.env.role, role) {
            return Err(denied(format!("must have admin option on role \"{role_name}\"")).into());
        }
        let known = schema.role(member).cloned().ok_or_else(|| missing(&member_name))?;
        let mut def = known.def.clone();
        let at = def.member_of.iter().position(|m| m.of == role);
        if !is_grant {
            match at {
                None => {
                    let message = format!("role \"{member_name}\" is not a member of role \"{role_name}\"");
                    self.notice("01000", message);
                    return Ok(());
                }
                Some(at) if admin => def.member_of[at].admin = false,
                Some(at) => drop(def.member_of.remove(at)),
            }
            return Ok(self.engine.redefine_role(member, def)?);
        }
        if role == RoleId::DATABASE_OWNER || member == RoleId::DATABASE_OWNER {
            let cannot =
                if member == RoleId::DATABASE_OWNER { "be a member of any role" } else { "have explicit members" };
            let message = format!("role \"{}\" cannot {cannot}", oid::DATABASE_OWNER_NAME);
            return Err(SqlError::new("0LP01", message).into());
        }
        if role::is_member_itself(&schema, role, member) {
            let message = format!("role \"{role_name}\" is a member of role \"{member_name}\"");
            return Err(SqlError::new("0LP01", message).into());
        }
        match at {
            Some(at) if def.member_of[at].admin || !admin => {
                let message = format!("role \"{member_name}\" is already a member of role \"{role_name}\"");
                self.notice("00000", message);
                return Ok(());
            }
            Some(at) => def.member_of[at].admin = true,
            None => def.member_of.push(Membership { of: role, grantor: self.env.role, admin }),
        }
        Ok(self.engine.redefine_role(member, def)?)
    }

    // ---- DROP

    fn drop_role(&mut self, spec: &RoleSpec, if_exists: bool) -> Done<()> {
        let RoleSpec::Name(name) = spec else {
            return Err(SqlError::new("22023", "cannot use special role specifier in DROP ROLE").into());
        };
        if !self.may_create_roles() {
            return Err(denied("permission denied to drop role").into());
        }
        let schema = self.engine.schema().clone();
        let Some(role) = schema.role_named(name) else {
            if if_exists {
                self.notice("00000", format!("role \"{name}\" does not exist, skipping"));
                return Ok(());
            }
            return Err(missing(name).into());
        };
        for (own, what) in [(self.env.role, "current"), (self.env.session_role, "session")] {
            if role.id == own {
                return Err(SqlError::new("55006", format!("{what} user cannot be dropped")).into());
            }
        }
        if role.def.is_superuser && !self.is_superuser() {
            return Err(denied("must be superuser to drop superusers").into());
        }
        if role.id == RoleId::FIRST {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(SqlError::new("2BP01", message).into());
        }
        let held = self.dependents(&schema, role.id);
        if !held.is_empty() {
            return Err(SqlError::new(
                "2BP01",
                format!("role \"{name}\" cannot be dropped because some objects depend on it"),
            )
            .with_detail(held.join("\n"))
            .into());
        }
        // Who was a member of it is no longer.
        for member in schema.roles().filter(|other| other.def.member_of.iter().any(|m| m.of == role.id)) {
            let mut def = member.def.clone();
            def.member_of.retain(|m| m.of != role.id);
            self.engine.redefine_role(member.id, def)?;
        }
        Ok(self.engine.drop_role(role.id)?)
    }

    /// What a role owns and was granted, a line each.
    fn dependents(&self, schema: &Schema, role: RoleId) -> Vec<String> {
        let mut lines = Vec::new();
        for (object, rights) in schema.all_rights() {
            let Some(target) = self.object(schema, object) else { continue };
            let what = target.described();
            if rights.owner == role {
                lines.push(format!("owner of {what}"));
            }
            let is_its = |g: &freshet_engine::catalog::Grant| g.grantee == role || g.grantor == role;
            if rights.owner != role && rights.grants.iter().flatten().any(is_its) {
                lines.push(format!("privileges for {what}"));
            }
        }
        lines
    }
}

fn not_here(word: &str) -> crate::compiled::Halt {
    SqlError::new("42939", format!("{word} cannot be used as a role name here")).into()
}
