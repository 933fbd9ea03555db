//! What becomes of kinds of objects that are not here? DROP IF EXISTS finds none of them and says so, as it would in PostgreSQL: scripts and
//! migrations begin with it. Everything else about them is refused.

use super::{Definer, Done};
use crate::bind::names::{RelationName, namespace_named};
use crate::bind::scope::fold;
use crate::bind::types::type_of;
use crate::error::SqlError;
use crate::value::function::Function;
use freshet_engine::catalog::Schema;
use sqlparser::ast::{
    CreateExtension, DropExtension, DropFunction, DropTrigger, FunctionDesc, ObjectName, ObjectType, Statement,
};

/// Extensions whose objects are here, or that scripts make before they ask for nothing of them.
const EXTENSIONS: [&str; 4] = ["pg_stat_statements", "plpgsql", "pgcrypto", "uuid-ossp"];

/// So many of them are said to be missing by nobody.
const OF_EVERY_DATABASE: usize = 2;

/// The command, if it is about what is not here.
pub(super) fn tag(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::Drop { object_type, .. } => match object_type {
            ObjectType::MaterializedView => "DROP MATERIALIZED VIEW",
            ObjectType::Database => "DROP DATABASE",
            ObjectType::Collation => "DROP COLLATION",
            _ => return None,
        },
        Statement::DropDomain(_) => "DROP DOMAIN",
        Statement::DropFunction(_) => "DROP FUNCTION",
        Statement::DropProcedure { .. } => "DROP PROCEDURE",
        Statement::DropTrigger(_) => "DROP TRIGGER",
        Statement::DropExtension(_) => "DROP EXTENSION",
        Statement::CreateExtension(_) => "CREATE EXTENSION",
        _ => return None,
    })
}

impl Definer<'_> {
    /// Runs such a command.
    pub(super) fn absent(&mut self, statement: &Statement, tag: &str) -> Done<()> {
        match statement {
            Statement::Drop { object_type, if_exists: true, names, .. } => {
                names.iter().try_for_each(|name| self.absent_object(object_type, name, tag))
            }
            Statement::DropDomain(drop) if drop.if_exists => self.absent_object(&ObjectType::Type, &drop.name, tag),
            Statement::DropFunction(DropFunction { if_exists: true, func_desc, .. }) => {
                func_desc.iter().try_for_each(|function| self.absent_function("function", function, tag))
            }
            Statement::DropProcedure { if_exists: true, proc_desc, .. } => {
                proc_desc.iter().try_for_each(|function| self.absent_function("procedure", function, tag))
            }
            Statement::DropTrigger(DropTrigger { if_exists: true, trigger_name, table_name: Some(table), .. }) => {
                self.absent_trigger(trigger_name, table)
            }
            Statement::DropExtension(DropExtension { if_exists: true, names, .. }) => {
                names.iter().try_for_each(|name| match fold(name) {
                    name if EXTENSIONS[..OF_EVERY_DATABASE].contains(&name.as_str()) => {
                        Err(SqlError::unsupported(tag).into())
                    }
                    name => self.skip(format!("extension \"{name}\"")),
                })
            }
            // Its objects are here already, whoever asks for them.
            Statement::CreateExtension(CreateExtension { name, .. }) if EXTENSIONS.contains(&fold(name).as_str()) => {
                self.notice("42710", format!("extension \"{}\" already exists, skipping", fold(name)));
                Ok(())
            }
            _ => Err(SqlError::unsupported(tag).into()),
        }
    }

    /// Dumps comment on the language that every database of PostgreSQL has.
    pub(super) fn comment_on_extension(&mut self, name: &str) -> Done<()> {
        if !EXTENSIONS.contains(&name) {
            return Err(SqlError::new("42704", format!("extension \"{name}\" does not exist")).into());
        }
        self.notice("00000", "COMMENT ON EXTENSION changes nothing here");
        Ok(())
    }

    fn skip(&mut self, what: String) -> Done<()> {
        self.notice("00000", format!("{what} does not exist, skipping"));
        Ok(())
    }

    /// A notice of the schema that a name is in, if there is no such schema.
    fn is_homeless(&mut self, name: &RelationName) -> Done<bool> {
        let schema = self.schema();
        let homeless = name.namespace.clone().filter(|namespace| namespace_named(&schema, namespace).is_none());
        match homeless {
            None => Ok(false),
            Some(namespace) => self.skip(format!("schema \"{namespace}\"")).map(|()| true),
        }
    }

    pub(super) fn absent_object(&mut self, object: &ObjectType, name: &ObjectName, tag: &str) -> Done<()> {
        let name = RelationName::of(name)?;
        match object {
            ObjectType::MaterializedView => {
                let schema = self.schema();
                self.check_absent(&name, "materialized view", &schema, true)
            }
            ObjectType::Database if name.name == self.env.database => Err(SqlError::unsupported(tag).into()),
            ObjectType::Database => self.skip(format!("database \"{}\"", name.name)),
            _ if self.is_homeless(&name)? => Ok(()),
            ObjectType::Type if is_type(&name, &self.schema()) => Err(SqlError::unsupported(tag).into()),
            ObjectType::Type => self.skip(format!("type \"{name}\"")),
            _ => self.skip(format!("collation \"{name}\"")),
        }
    }

    fn absent_function(&mut self, what: &str, function: &FunctionDesc, tag: &str) -> Done<()> {
        let name = RelationName::of(&function.name)?;
        if self.is_homeless(&name)? {
            return Ok(());
        }
        if Function::exists(&name.name) {
            return Err(SqlError::unsupported(tag).into());
        }
        let arguments = function.args.iter().flatten().map(|argument| argument.data_type.to_string().to_lowercase());
        let arguments = arguments.collect::<Vec<_>>().join(",");
        self.skip(format!("{what} {name}({arguments})"))
    }

    fn absent_trigger(&mut self, trigger: &ObjectName, table: &ObjectName) -> Done<()> {
        let (trigger, table) = (RelationName::of(trigger)?, RelationName::of(table)?);
        if self.is_homeless(&table)? {
            return Ok(());
        }
        let schema = self.schema();
        if table.table(&schema).is_none() && table.view(&schema).is_none() {
            return self.skip(format!("relation \"{}\"", table.name));
        }
        self.skip(format!("trigger \"{}\" for relation \"{}\"", trigger.name, table.name))
    }
}

/// Whether a type of this name is here.
pub(super) fn is_type(name: &RelationName, schema: &Schema) -> bool {
    let own = name.namespace.as_deref().is_none_or(|namespace| namespace == "pg_catalog");
    let is_read = |text: &str| {
        crate::parse::parse_types(text).is_ok_and(|types| types.iter().all(|ty| type_of(ty, schema).is_ok()))
    };
    own && (crate::catalog::builtin::type_named(&name.name).is_some() || is_read(&name.name))
}
