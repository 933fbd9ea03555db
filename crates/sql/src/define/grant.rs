//! What do GRANT, REVOKE and OWNER TO change, and who may say them?

use super::{Definer, Done};
use crate::bind::names::{RelationName, is_temporary, namespace_name};
use crate::bind::scope::fold;
use crate::catalog::oid;
use crate::error::SqlError;
use crate::parse::{GrantStatement, GrantTarget, RoleSpec};
use crate::role::acl::{self, Kind, Privileges};
use crate::role::{self, Access};
use freshet_engine::catalog::{IndexId, NamespaceId, Rights, RoleId, Schema, TableId};
use freshet_engine::schema::EnumId;
use sqlparser::ast::ObjectName;
use std::sync::Arc;

/// Something that has an owner.
pub(super) struct Target {
    pub id: u32,
    pub kind: Kind,
    /// `table`, `view` and so on.
    pub what: &'static str,
    pub name: String,
    pub namespace: Option<NamespaceId>,
}

impl Target {
    pub fn described(&self) -> String {
        format!("{} {}", self.what, self.name)
    }
}

impl Definer<'_> {
    /// The rights of who runs this, by the schema as it is now; `None`: all.
    pub(super) fn access(&self) -> Option<Access> {
        let temporary = self.own_temporary();
        Access::of(self.engine.schema(), self.env.role).map(|access| access.of_session(temporary))
    }

    /// The name of a relation that is looked up: 42501 if it says a schema that may not be used.
    pub(super) fn named(&self, name: &ObjectName) -> Done<RelationName> {
        let name = RelationName::of(name)?;
        self.access().map_or(Ok(()), |access| access.check_usable(&name))?;
        Ok(name)
    }

    /// The names in a clause, as [`Self::named`] asks for each.
    pub(super) fn check_names_in(&self, part: &impl sqlparser::ast::Visit) -> Done<()> {
        Ok(self.access().map_or(Ok(()), |access| access.check_names_in(part))?)
    }

    /// What has an owner under this number.
    pub(super) fn object(&self, schema: &Schema, id: u32) -> Option<Target> {
        let target =
            |kind, what, name: &str, namespace| Some(Target { id, kind, what, name: name.to_owned(), namespace });
        if let Some(table) = schema.table_by_id(TableId(id)) {
            return target(Kind::Table, "table", &table.def.name, Some(table.def.namespace));
        }
        if let Some(view) = schema.view_by_id(id) {
            return target(Kind::Table, "view", &view.def.name, Some(view.def.namespace));
        }
        if let Some(sequence) = schema.sequence_by_id(id) {
            return target(Kind::Sequence, "sequence", &sequence.def.name, Some(sequence.def.namespace));
        }
        if let Some(made) = schema.enum_by_id(EnumId(id)) {
            return target(Kind::Type, "type", &made.def.name, Some(made.def.namespace));
        }
        if let Some(namespace) = schema.namespace_by_id(NamespaceId(id)) {
            return target(Kind::Schema, "schema", &namespace.name, None);
        }
        if id == oid::DATABASE {
            return target(Kind::Database, "database", &self.env.database, None);
        }
        None
    }

    /// 42501 unless the role owns the object.
    pub(super) fn check_owner(&self, id: u32) -> Done<()> {
        let Some(access) = self.access() else { return Ok(()) };
        if access.owns(id) {
            return Ok(());
        }
        match self.object(&access.schema, id) {
            Some(target) => Err(role::not_owner(target.what, &target.name).into()),
            None => Ok(()),
        }
    }

    /// An index is its table's owner's.
    pub(super) fn check_index_owner(&self, id: IndexId) -> Done<()> {
        let Some(access) = self.access() else { return Ok(()) };
        let found = access.schema.tables().find_map(|t| t.indexes.iter().find(|i| i.id == id).map(|i| (t, i)));
        match found {
            Some((table, index)) if !access.owns(table.id.0) => Err(role::not_owner("index", &index.def.name).into()),
            _ => Ok(()),
        }
    }

    /// Whether relations can be made in the schema: in that of temporary tables only by the session whose they are.
    pub(super) fn check_create_in(&self, namespace: NamespaceId) -> Done<()> {
        let schema = self.engine.schema();
        let is_temporary = is_temporary(schema, namespace);
        if is_temporary && self.own_temporary() == Some(namespace) {
            return Ok(());
        }
        match self.access() {
            None if is_temporary => {
                let message = "cannot create relations in temporary schemas of other sessions";
                Err(SqlError::new("42P16", message).into())
            }
            None => Ok(()),
            Some(access) if !is_temporary && access.may(Kind::Schema, namespace.0, Privileges::CREATE) => Ok(()),
            Some(_) => Err(role::denied("schema", &namespace_name(schema, namespace)).into()),
        }
    }

    pub(super) fn check_database(&self, wanted: Privileges) -> Done<()> {
        let Some(access) = self.access() else { return Ok(()) };
        if access.may(Kind::Database, oid::DATABASE, wanted) {
            return Ok(());
        }
        let database = &self.env.database;
        Err(match wanted {
            Privileges::TEMPORARY => SqlError::new(
                "42501",
                format!("permission denied to create temporary tables in database \"{database}\""),
            ),
            _ => role::denied("database", database),
        }
        .into())
    }

    /// A foreign key refers to a table only for who may.
    pub(super) fn check_references(&self, id: u32) -> Done<()> {
        self.check_table(id, Privileges::REFERENCES)
    }

    pub(super) fn check_table(&self, id: u32, wanted: Privileges) -> Done<()> {
        let Some(access) = self.access() else { return Ok(()) };
        if access.may(Kind::Table, id, wanted) {
            return Ok(());
        }
        match self.object(&access.schema, id) {
            Some(target) => Err(role::denied(target.what, &target.name).into()),
            None => Ok(()),
        }
    }

    // ---- GRANT and REVOKE

    pub(super) fn grant(&mut self, grant: &GrantStatement) -> Done<()> {
        if let Some(by) = &grant.granted_by
            && self.resolve(by)? != self.env.role
        {
            return Err(SqlError::new("0A000", "grantor must be current user").into());
        }
        let mut grantees = Vec::with_capacity(grant.roles.len());
        for spec in &grant.roles {
            let grantee = if *spec == RoleSpec::Public { RoleId::PUBLIC } else { self.resolve(spec)? };
            if grantee == RoleId::PUBLIC && grant.is_grant && grant.option {
                return Err(SqlError::new("0LP01", "grant options can only be granted to roles").into());
            }
            grantees.push(grantee);
        }
        for target in self.targets(&grant.target)? {
            self.grant_on(&target, grant, &grantees)?;
        }
        Ok(())
    }

    fn targets(&self, target: &GrantTarget) -> Done<Vec<Target>> {
        let schema = self.schema();
        match target {
            GrantTarget::Objects { kind, names } => {
                names.iter().map(|name| self.target(&schema, *kind, name)).collect()
            }
            GrantTarget::AllInSchema { kind, schemas } => {
                let mut all = Vec::new();
                for name in schemas {
                    let name = fold(name);
                    self.access().map_or(Ok(()), |access| access.check_schema(&name))?;
                    let found = schema.namespace(&name).map(|n| n.id);
                    let id =
                        found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{name}\" does not exist")))?;
                    let ids: Vec<u32> = match kind {
                        Kind::Sequence => schema.sequences().filter(|s| s.def.namespace == id).map(|s| s.id).collect(),
                        _ => {
                            let views = schema.views().filter(|v| v.def.namespace == id).map(|v| v.id);
                            schema.tables_in(id).map(|t| t.id.0).chain(views).collect()
                        }
                    };
                    all.extend(ids.into_iter().filter_map(|id| self.object(&schema, id)));
                }
                Ok(all)
            }
        }
    }

    fn target(&self, schema: &Arc<Schema>, kind: Kind, name: &ObjectName) -> Done<Target> {
        let written = match kind {
            Kind::Table | Kind::Sequence | Kind::Type => self.named(name)?,
            _ => RelationName::of(name)?,
        };
        let id = match kind {
            Kind::Schema => match schema.namespace(&written.name) {
                Some(namespace) => namespace.id.0,
                None => return Err(SqlError::new("3F000", format!("schema \"{written}\" does not exist")).into()),
            },
            Kind::Database if written.name == self.env.database => oid::DATABASE,
            Kind::Database => {
                return Err(SqlError::new("3D000", format!("database \"{written}\" does not exist")).into());
            }
            Kind::Type => match super::enums::named(&written, schema) {
                Some(made) => made.id.0,
                None if super::absent::is_type(&written, schema) => {
                    return Err(SqlError::unsupported("a privilege on a type of the system").into());
                }
                None => return Err(SqlError::new("42704", format!("type \"{written}\" does not exist")).into()),
            },
            Kind::Sequence => match written.sequence(schema) {
                Some(sequence) => sequence.id,
                None if written.table(schema).is_some() || written.view(schema).is_some() => {
                    return Err(SqlError::new("42809", format!("\"{}\" is not a sequence", written.name)).into());
                }
                None => return Err(written.undefined().into()),
            },
            Kind::Table => {
                let table = written.table(schema).map(|t| t.id.0);
                let other = || written.view(schema).map(|v| v.id).or_else(|| written.sequence(schema).map(|s| s.id));
                match table.or_else(other) {
                    Some(id) => id,
                    None if written.index(schema).is_some() => {
                        return Err(SqlError::new("42809", format!("\"{}\" is an index", written.name)).into());
                    }
                    None if crate::view::find(&written, schema).is_some() => {
                        return Err(SqlError::unsupported("a privilege on a relation of the system").into());
                    }
                    None => return Err(written.undefined().into()),
                }
            }
        };
        let found = self.object(schema, id);
        Ok(found.ok_or_else(|| written.undefined())?)
    }

    fn grant_on(&mut self, target: &Target, grant: &GrantStatement, grantees: &[RoleId]) -> Done<()> {
        let possible = target.kind.possible();
        let asked = grant.privileges.unwrap_or(possible);
        if !possible.has(asked) {
            let (name, _) = asked.without(possible).names().next().unwrap_or(("", Privileges::NONE));
            let what = if target.kind == Kind::Table { "relation" } else { target.kind.name() };
            return Err(SqlError::new("0LP01", format!("invalid privilege type {name} for {what}")).into());
        }
        let schema = self.engine.schema().clone();
        let (owner, mut grants) = acl::effective(&schema, target.kind, target.id);
        let (grantor, may_give) = self.grantor(&schema, target, owner, asked)?;
        let given = asked.of_both(may_give);
        self.warn_of_less(grant, target, asked, given);
        if given.is_none() {
            return Ok(());
        }
        for &grantee in grantees {
            if grant.is_grant {
                acl::add(&mut grants, grantee, grantor, given, grant.option);
                continue;
            }
            let taken = acl::take(&mut grants, owner, (grantee, grantor), given, grant.option, grant.cascade);
            if taken.is_err() {
                return Err(SqlError::new("2BP01", "dependent privileges exist")
                    .with_hint("Use CASCADE to revoke them too.")
                    .into());
            }
        }
        Ok(self.engine.set_rights(target.id, Rights { owner, grants: Some(grants) })?)
    }

    /// In whose name it is granted, and what that may grant: the owner's, or the role's with the most options.
    fn grantor(
        &self,
        schema: &Arc<Schema>,
        target: &Target,
        owner: RoleId,
        asked: Privileges,
    ) -> Done<(RoleId, Privileges)> {
        let Some(access) = self.access() else { return Ok((owner, target.kind.possible())) };
        if access.has_role(owner) {
            return Ok((owner, target.kind.possible()));
        }
        let (_, grants) = acl::effective(schema, target.kind, target.id);
        let options = |role: RoleId| acl::held(&grants, |own| own == role).1.of_both(asked);
        let reached = role::inherited(schema, self.env.role);
        let others = reached.iter().copied().filter(|role| *role != self.env.role);
        let mut best = (self.env.role, options(self.env.role));
        for role in others {
            if options(role).0.count_ones() > best.1.0.count_ones() {
                best = (role, options(role));
            }
        }
        let (has, _) = access.held(target.kind, target.id);
        if best.1.is_none() && has.is_none() {
            return Err(role::denied(target.what, &target.name).into());
        }
        Ok(best)
    }

    fn warn_of_less(&mut self, grant: &GrantStatement, target: &Target, asked: Privileges, given: Privileges) {
        let (state, how) = if grant.is_grant { ("01007", "were granted") } else { ("01006", "could be revoked") };
        let name = &target.name;
        if given.is_none() {
            self.notice(state, format!("no privileges {how} for \"{name}\""));
        } else if grant.privileges.is_some() && given != asked {
            self.notice(state, format!("not all privileges {how} for \"{name}\""));
        }
    }

    // ---- owners

    /// ALTER ... OWNER TO.
    pub(super) fn change_owner(&mut self, id: u32, new: &RoleSpec) -> Done<()> {
        let new = self.resolve(new)?;
        let schema = self.engine.schema().clone();
        if schema.owner(id) == new {
            return Ok(());
        }
        self.check_owner(id)?;
        if self.access().is_some() {
            if !role::is_member(&schema, self.env.role, new) {
                let name = self.role_name(new);
                return Err(SqlError::new("42501", format!("must be member of role \"{name}\"")).into());
            }
            self.check_new_owner(&schema, id, new)?;
        }
        self.set_owner(id, new)
    }

    /// The new owner could have made it there.
    fn check_new_owner(&self, schema: &Arc<Schema>, id: u32, new: RoleId) -> Done<()> {
        let Some(target) = self.object(schema, id) else { return Ok(()) };
        // Who gives a schema away could have made it for the other one.
        if target.kind == Kind::Schema {
            return self.check_database(Privileges::CREATE);
        }
        let Some(access) = Access::of(schema, new) else { return Ok(()) };
        match target.namespace {
            Some(namespace) if !access.may(Kind::Schema, namespace.0, Privileges::CREATE) => {
                Err(role::denied("schema", &namespace_name(schema, namespace)).into())
            }
            None if !access.may(Kind::Database, oid::DATABASE, Privileges::CREATE) => {
                Err(role::denied("database", &self.env.database).into())
            }
            _ => Ok(()),
        }
    }

    fn set_owner(&mut self, id: u32, new: RoleId) -> Done<()> {
        let schema = self.engine.schema().clone();
        let owned = schema.sequences_of(TableId(id)).map(|sequence| sequence.id);
        for object in std::iter::once(id).chain(owned) {
            let rights = schema.rights(object).cloned().unwrap_or_else(|| Rights::unsaid(object));
            self.engine.set_rights(object, acl::with_owner(&rights, new))?;
        }
        Ok(())
    }

    fn owned_roles(&self, roles: &[RoleSpec], action: &str) -> Done<Vec<RoleId>> {
        let mut ids = Vec::with_capacity(roles.len());
        for spec in roles {
            let role = self.resolve(spec)?;
            let schema = self.engine.schema();
            if !role::has_rights_of(schema, self.env.role, role) {
                return Err(SqlError::new("42501", format!("permission denied to {action} objects")).into());
            }
            if role == RoleId::FIRST {
                let name = self.role_name(role);
                let message = format!(
                    "cannot {action} objects owned by role {name} because they are required by the database system"
                );
                return Err(SqlError::new("2BP01", message).into());
            }
            ids.push(role);
        }
        Ok(ids)
    }

    pub(super) fn reassign_owned(&mut self, roles: &[RoleSpec], new: &RoleSpec) -> Done<()> {
        let roles = self.owned_roles(roles, "reassign")?;
        let new = self.resolve(new)?;
        let schema = self.engine.schema().clone();
        if !role::has_rights_of(&schema, self.env.role, new) {
            return Err(SqlError::new("42501", "permission denied to reassign objects").into());
        }
        for (object, rights) in schema.all_rights().filter(|(_, rights)| roles.contains(&rights.owner)) {
            self.engine.set_rights(object, acl::with_owner(rights, new))?;
        }
        Ok(())
    }

    pub(super) fn drop_owned(&mut self, roles: &[RoleSpec], cascade: bool) -> Done<()> {
        let roles = self.owned_roles(roles, "drop")?;
        let schema = self.engine.schema().clone();
        let owned = schema.all_rights().filter(|(_, rights)| roles.contains(&rights.owner)).map(|(object, _)| object);
        self.drop_objects(&owned.collect::<Vec<_>>(), cascade)?;
        let schema = self.engine.schema().clone();
        for (object, rights) in schema.all_rights() {
            let Some(grants) = &rights.grants else { continue };
            let mut left = grants.clone();
            left.retain(|g| !roles.contains(&g.grantee) && !roles.contains(&g.grantor));
            if left.len() != grants.len() {
                self.engine.set_rights(object, Rights { owner: rights.owner, grants: Some(left) })?;
            }
        }
        Ok(())
    }
}
