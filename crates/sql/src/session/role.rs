//! Who is this session? Who logged in, who it says it is (SET SESSION AUTHORIZATION), and whose rights are in force (SET ROLE).
//!
//! The names are settings, so that a rollback takes a SET back; the numbers follow from them when they change. What the role may do is of one
//! version of the schema, and looked up again when that is another one.

use super::Session;
use crate::catalog::Known;
use crate::error::SqlError;
use crate::expr::Ends;
use crate::role::{self, Access};
use crate::settings::Settings;
use freshet_engine::catalog::{RoleId, Schema};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// No role: what `SHOW role` says.
const NONE: &str = "none";

/// A change of definitions or rights that was made, for who keeps a record of such.
#[derive(Clone, Copy, Debug)]
pub struct Audited<'a> {
    pub user: &'a str,
    pub session_user: &'a str,
    pub database: &'a str,
    pub pid: i32,
    pub command: &'static str,
    /// Without any password.
    pub statement: &'a str,
}

pub(super) type Auditor = Box<dyn Fn(Audited<'_>) + Send>;

/// What stands for the text of a command that has a password in it.
pub(super) const SECRET_TEXT: &str = "<a command with a password>";

/// Who logged in.
#[derive(Debug)]
pub(super) struct Identity {
    role: RoleId,
    user: String,
    /// As of which the role may do everything.
    seen: Option<u64>,
    /// Who was meant by the names that this session has taken: another role's name, or nobody's, may be the same by now.
    taken: BTreeMap<String, RoleId>,
}

/// What a name means whose role is gone: nobody, who may do nothing.
const GONE: RoleId = RoleId(u32::MAX);

impl Default for Identity {
    /// Who embeds a database is its first role.
    fn default() -> Identity {
        Identity { role: RoleId::FIRST, user: "freshet".to_owned(), seen: None, taken: BTreeMap::new() }
    }
}

impl Session {
    /// Who is connected, to what, and the number that cancels. That it is who it says is proven before.
    pub fn identify(&mut self, user: &str, database: &str, backend_pid: i32) -> Result<(), SqlError> {
        let schema = self.engine.schema();
        let role = role::admit(&schema, user, database)?;
        self.identity = Identity { role, user: user.to_owned(), ..Identity::default() };
        self.rights_key = 0;
        self.env.database = database.to_owned();
        self.env.backend_pid = backend_pid;
        self.env.hearing.iter().for_each(|hearing| hearing.identify(backend_pid));
        self.inner.set_name(backend_pid as u32);
        if let Some(known) = schema.role(role) {
            for (name, value) in &known.def.settings {
                // One that is not there any more keeps nobody out.
                let _ = self.env.settings.set(name, value);
            }
        }
        self.env.set_clock();
        self.be(user, NONE);
        self.assume(&schema);
        // All of them are told at the beginning.
        self.reported.clear();
        self.member = Some(self.cache.activity.join(backend_pid, role, user, database, super::now()));
        Ok(())
    }

    /// The session is of a client over TCP. After `identify`.
    pub fn connected_over(&mut self, server: SocketAddr, client: SocketAddr) {
        self.env.ends = Some(Ends::new(server, client));
        self.member.iter().for_each(|member| member.set_client(client));
    }

    /// Whoever keeps a record hears from here on of each definition that is made. What is rolled back later was told too.
    pub fn audit_with(&mut self, auditor: impl Fn(Audited<'_>) + Send + 'static) {
        self.auditor = Some(Box::new(auditor));
    }

    pub(super) fn tell_auditor(&self, command: &'static str, statement: &crate::cache::Prepared) {
        if let Some(auditor) = &self.auditor {
            auditor(Audited {
                user: &self.env.user,
                session_user: &self.env.session_user,
                database: &self.env.database,
                pid: self.env.backend_pid,
                command,
                statement: if statement.is_secret() { SECRET_TEXT } else { &statement.sql },
            });
        }
    }

    fn be(&mut self, session_user: &str, role: &str) {
        let is_superuser = self.env.access.is_none();
        self.env.settings.identify(session_user, role, is_superuser);
    }

    /// Makes the settings true: after a SET, and after what was set is taken back.
    pub(super) fn assume_settings(&mut self) {
        let schema = self.schema_to_plan_by();
        self.assume(&schema);
    }

    fn assume(&mut self, schema: &Arc<Schema>) {
        let session_user = self.env.settings.get("session_authorization").unwrap_or_default();
        let taken = |name: &str| self.identity.taken.get(name).copied();
        let known = |name: &str| taken(name).or_else(|| Some(schema.role_named(name)?.id)).unwrap_or(GONE);
        let is_login = session_user.is_empty() || session_user == self.identity.user || !schema.has_roles();
        let session = if is_login { self.identity.role } else { known(&session_user) };
        let role = self.env.settings.get("role").filter(|role| role != NONE);
        self.env.session_role = session;
        self.env.role = role.map_or(session, |role| known(&role));
        self.identity.seen = None;
        self.refresh_access(schema);
        self.env.clock.catalog = Known::default();
        let is_superuser = role::is_superuser(schema, session);
        let role = self.env.settings.get("role").unwrap_or_else(|| NONE.to_owned());
        let before = self.env.settings.clone();
        let session_user = self.env.session_user.clone();
        self.env.settings.identify(&session_user, &role, is_superuser);
        let told = self.env.settings.reported_changes(&before);
        self.reported.extend(told);
    }

    /// Whether what the role may do is known as of this schema.
    pub(super) fn knows_access(&self, schema: &Arc<Schema>) -> bool {
        match &self.env.access {
            Some(access) => self.identity.seen.is_some() && Arc::ptr_eq(&access.schema, schema),
            None => self.identity.seen == Some(schema.rights_version()),
        }
    }

    /// What the role may do, by this schema.
    pub(super) fn refresh_access(&mut self, schema: &Arc<Schema>) {
        if self.knows_access(schema) {
            return;
        }
        let temporary = self.own_temporary(schema);
        self.env.access = Access::of(schema, self.env.role).map(|access| Arc::new(access.of_session(temporary)));
        if let Some(sequences) = &self.env.sequences {
            sequences.set_access(self.env.access.clone());
        }
        self.rights_key = if self.env.access.is_some() { self.env.role.0 } else { 0 };
        self.env.user = role::name(schema, self.env.role, &self.identity.user);
        self.env.session_user = role::name(schema, self.env.session_role, &self.identity.user);
        // Versions of a transaction's own that is rolled back may be another's then.
        let is_committed = Arc::ptr_eq(schema, &self.engine.schema());
        self.identity.seen = Some(if is_committed { schema.rights_version() } else { u64::MAX });
    }

    /// SET ROLE; the setting's value to be.
    pub(super) fn set_role(&mut self, name: &str) -> Result<(), SqlError> {
        if name != NONE {
            let schema = self.schema_to_plan_by();
            let role = role::named(&schema, name, &self.identity.user)
                .map_err(|error| SqlError { sqlstate: "22023", ..error })?;
            if !role::is_member(&schema, self.env.session_role, role) {
                return Err(SqlError::new("42501", format!("permission denied to set role \"{name}\"")));
            }
            self.identity.taken.insert(name.to_owned(), role);
        }
        let session_user = self.env.session_user.clone();
        self.be(&session_user, name);
        self.assume_settings();
        Ok(())
    }

    /// SET SESSION AUTHORIZATION; `None`: who logged in.
    pub(super) fn set_session_authorization(&mut self, name: Option<&str>) -> Result<(), SqlError> {
        let own = self.identity.user.clone();
        let name = name.unwrap_or(&own);
        if name != own {
            let schema = self.schema_to_plan_by();
            let role = role::named(&schema, name, &own).map_err(|error| SqlError { sqlstate: "22023", ..error })?;
            if !role::is_superuser(&schema, self.identity.role) {
                return Err(SqlError::new("42501", "permission denied to set session authorization"));
            }
            self.identity.taken.insert(name.to_owned(), role);
        }
        self.be(name, NONE);
        self.assume_settings();
        Ok(())
    }

    /// The settings as they were at first, of the same role.
    pub(super) fn fresh_settings(&self) -> Settings {
        let mut fresh = self.env.settings.fresh();
        let own = |name: &str| self.env.settings.get(name).unwrap_or_default();
        fresh.identify(&own("session_authorization"), &own("role"), own("is_superuser") != "off");
        fresh
    }

    /// 42501 for who may not change what is the whole database's.
    pub(super) fn check_superuser(&self, setting: &str) -> Result<(), SqlError> {
        match self.env.access {
            None => Ok(()),
            Some(_) => Err(SqlError::new("42501", format!("permission denied to set parameter \"{setting}\""))),
        }
    }
}
