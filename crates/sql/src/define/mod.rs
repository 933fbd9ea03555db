//! How is the schema changed? CREATE, ALTER, DROP, TRUNCATE, COMMENT: bound as they run, under the lock that makes such changes serial.
//!
//! | module | question |
//! |---|---|
//! | `create` | what do CREATE TABLE and CREATE INDEX define |
//! | `kept` | what does a definition keep of its session |
//! | `like` | what does LIKE take from another table |
//! | `constraint` | what do checks and foreign keys demand, and do the rows keep it |
//! | `alter` | what does ALTER TABLE change |
//! | `retype` | what do expressions over a column mean once its type is another one |
//! | `remove` | what goes with what is dropped, and what forbids it |
//! | `elements` | what does CREATE SCHEMA make besides the schema |
//! | `enums` | what is an enum |
//! | `sequence` | what are sequences, serial and identity columns |
//! | `storage` | what do storage options ask for |
//! | `schema` | what names a schema |
//! | `view` | what does a view stand for |
//! | `role` | what are roles, and who is a member of whom |
//! | `grant` | whose is what, and who may do what with it |
//!
//! 1. A statement takes the engine's DDL lock first and reads the schema under it: what it found is so until its transaction ends.
//! 2. Several changes of one statement are the engine's one after the other, in the statement's transaction; undone, they are undone together.

mod absent;
mod alter;
mod constraint;
mod create;
mod elements;
mod enums;
mod grant;
mod kept;
mod like;
mod opclass;
mod removal;
mod remove;
mod retype;
mod role;
mod schema;
mod sequence;
mod storage;
pub mod view;

pub use create::shown_key;
pub use kept::shown_by;
pub use retype::mentions as names_column;

use crate::bind::Refusal;
use crate::bind::names::{OWN_TEMPORARY, RelationName, TEMPORARY, is_temporary, is_temporary_of};
use crate::compiled::rules::Constraints;
use crate::compiled::{Halt, Interrupt};
use crate::error::SqlError;
use crate::expr::Env;
use crate::notice::Notice;
use crate::parse::{RoleSpec, Utility};
use crate::role::acl::Privileges;
use freshet_engine::catalog::{NamespaceId, Schema, SchemaPath, Table, TableId};
use freshet_engine::txn::Session;
use sqlparser::ast::{self, ObjectName, OnCommit, Statement};
use std::sync::Arc;

/// A change of the schema: what was written.
#[derive(Clone, Debug)]
pub struct Definition {
    pub sql: String,
    pub utility: Utility,
}

/// What a definition leaves to its session.
#[derive(Default, Debug)]
pub struct Defined {
    pub notices: Vec<Notice>,
    /// An INSERT that follows, of CREATE TABLE AS.
    pub then: Option<String>,
}

/// What a session knows of its temporary tables.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct Temporary {
    pub namespace: Option<NamespaceId>,
    /// ON COMMIT DELETE ROWS and DROP.
    pub on_commit: Vec<(TableId, bool)>,
}

impl Definition {
    pub fn tag(&self) -> &'static str {
        match &self.utility {
            Utility::CreateTableWithoutRows(_) => "CREATE TABLE AS",
            Utility::CreateSequence { .. } => "CREATE SEQUENCE",
            Utility::CreateSchemaOf { .. } => "CREATE SCHEMA",
            Utility::AlterSequence { .. } => "ALTER SEQUENCE",
            Utility::Alter { kind, .. } => match kind {
                crate::parse::AlterKind::Table => "ALTER TABLE",
                crate::parse::AlterKind::View => "ALTER VIEW",
                crate::parse::AlterKind::Index => "ALTER INDEX",
                crate::parse::AlterKind::Sequence => "ALTER SEQUENCE",
            },
            Utility::AlterSchema { .. } => "ALTER SCHEMA",
            Utility::CommentOnConstraint { .. } => "COMMENT",
            Utility::CreateEnum { .. } => "CREATE TYPE",
            Utility::AlterType { .. } => "ALTER TYPE",
            Utility::CommentOnType { .. } => "COMMENT",
            Utility::Role(command) => command.tag(),
            Utility::Statement(statement) => match statement.as_ref() {
                Statement::CreateTable(create) if create.query.is_some() => "CREATE TABLE AS",
                Statement::CreateTable(_) => "CREATE TABLE",
                Statement::CreateIndex(_) => "CREATE INDEX",
                Statement::CreateView(_) => "CREATE VIEW",
                Statement::CreateSchema { .. } => "CREATE SCHEMA",
                Statement::Truncate(_) => "TRUNCATE TABLE",
                Statement::Comment { .. } => "COMMENT",
                Statement::Drop { object_type, .. } => match object_type {
                    ast::ObjectType::Table => "DROP TABLE",
                    ast::ObjectType::View => "DROP VIEW",
                    ast::ObjectType::Index => "DROP INDEX",
                    ast::ObjectType::Schema => "DROP SCHEMA",
                    ast::ObjectType::Sequence => "DROP SEQUENCE",
                    ast::ObjectType::Type => "DROP TYPE",
                    _ => absent::tag(statement).unwrap_or("DROP"),
                },
                other => absent::tag(other).unwrap_or("DEFINE"),
            },
        }
    }

    /// Whether it goes on through several transactions in PostgreSQL, which allows that in no block of one.
    pub fn is_concurrent(&self) -> bool {
        let Utility::Statement(statement) = &self.utility else { return false };
        matches!(statement.as_ref(), Statement::CreateIndex(create) if create.concurrently)
    }

    /// Whether its text has a password in it.
    pub fn is_secret(&self) -> bool {
        matches!(&self.utility, Utility::Role(command) if command.is_secret())
    }

    /// Whether the grammar's statement is one of these.
    pub fn takes(statement: &Statement) -> bool {
        matches!(
            statement,
            Statement::CreateTable(_)
                | Statement::CreateIndex(_)
                | Statement::CreateView(_)
                | Statement::CreateSchema { .. }
                | Statement::Truncate(_)
                | Statement::Comment { .. }
                | Statement::Drop { .. }
        ) || absent::tag(statement).is_some()
    }
}

/// A definition as it runs.
pub struct Definer<'a> {
    pub sql: &'a str,
    pub engine: &'a mut Session,
    pub env: &'a Env,
    pub constraints: &'a mut Constraints,
    pub interrupt: &'a mut Interrupt,
    pub path: SchemaPath,
    pub temporary: &'a mut Temporary,
    pub defined: Defined,
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Halt {
        match refusal {
            Refusal::Error(error) => Halt::Error(error),
            Refusal::NotCompiled { what, position } => Halt::Error(SqlError::unsupported(what).at(position)),
        }
    }
}

type Done<T> = Result<T, Halt>;

pub fn run(definition: &Definition, mut definer: Definer<'_>) -> Done<Defined> {
    definer.engine.begin_definition()?;
    definer.engine.set_creator(definer.env.role);
    crate::value::pgtype::name_by(&definer.schema());
    definer.run(&definition.utility)?;
    Ok(definer.defined)
}

/// Drops a session's temporary schema with all that is in it.
pub fn drop_temporary(mut definer: Definer<'_>, namespace: NamespaceId) -> Done<()> {
    definer.engine.begin_definition()?;
    if !is_temporary(definer.engine.schema(), namespace) {
        return Ok(());
    }
    definer.empty_namespace(namespace)?;
    Ok(definer.engine.drop_namespace(namespace)?)
}

/// Drops tables with what depends on them, of which nobody is told: ON COMMIT DROP.
pub fn drop_at_commit(mut definer: Definer<'_>, tables: &[TableId]) -> Done<()> {
    definer.engine.begin_definition()?;
    definer.drop_with_dependents(tables)
}

impl Definer<'_> {
    fn run(&mut self, utility: &Utility) -> Done<()> {
        match utility {
            Utility::CreateSequence { name, if_not_exists, temporary, unlogged, clauses } => {
                if *unlogged {
                    self.notice("00000", "UNLOGGED changes nothing here");
                }
                self.create_sequence(name, *if_not_exists, *temporary, clauses)
            }
            Utility::CreateSchemaOf { schema, elements } => self.create_schema_of(schema, elements),
            Utility::AlterSequence { name, if_exists, clauses } => self.alter_sequence(name, *if_exists, clauses),
            Utility::Alter { kind, name, if_exists, actions } => self.alter(*kind, name, *if_exists, actions),
            Utility::AlterSchema { name, rename, owner } => self.alter_schema(name, rename.as_ref(), owner.as_ref()),
            Utility::CommentOnConstraint { constraint, table, comment } => {
                self.comment_on_constraint(constraint, table, comment.as_deref())
            }
            Utility::CreateEnum { name, labels } => self.create_enum(name, labels),
            Utility::AlterType { name, action } => self.alter_type(name, action),
            Utility::CommentOnType { name, comment } => self.comment_on_type(name, comment.as_deref()),
            Utility::Role(command) => self.role_command(command),
            Utility::Statement(statement) => self.statement(statement),
            Utility::CreateTableWithoutRows(create) => {
                self.create_table(create)?;
                self.defined.then = None;
                Ok(())
            }
        }
    }

    fn statement(&mut self, statement: &Statement) -> Done<()> {
        if let Some(tag) = absent::tag(statement) {
            return self.absent(statement, tag);
        }
        match statement {
            Statement::CreateTable(create) => {
                // Not its own name, for which CREATE is enough.
                self.check_names_in(&create.columns)?;
                self.check_names_in(&create.constraints)?;
                self.check_names_in(&create.query)?;
                self.create_table(create)
            }
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::CreateView(create) => self.create_view(create),
            Statement::CreateSchema {
                schema_name,
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => self.create_schema(schema_name, *if_not_exists).map(drop),
            Statement::Truncate(truncate) => self.truncate(truncate),
            Statement::Comment { object_type, object_name, comment, if_exists: false } => {
                self.comment(object_type, object_name, comment.as_deref())
            }
            Statement::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                restrict: _,
                purge: false,
                temporary: false,
                table: None,
            } => {
                if *object_type != ast::ObjectType::Schema {
                    names.iter().try_for_each(|name| self.named(name).map(drop))?;
                }
                self.drop(object_type, *if_exists, names, *cascade)
            }
            other => {
                Err(SqlError::unsupported(other.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ")).into())
            }
        }
    }

    /// The schema as this transaction has it, with the session's search path.
    fn schema(&self) -> Arc<Schema> {
        Arc::new(self.engine.schema().with_path(self.path.clone()))
    }

    fn notice(&mut self, sqlstate: &'static str, message: impl Into<String>) {
        self.defined.notices.push(Notice::new(sqlstate, message));
    }

    /// The schema of this session's temporary tables, if it is there.
    fn own_temporary(&self) -> Option<NamespaceId> {
        let (schema, number) = (self.engine.schema(), self.engine.number());
        self.temporary.namespace.filter(|&id| is_temporary_of(schema, id, number))
    }

    fn table(&self, name: &ObjectName) -> Done<Arc<Table>> {
        self.named(name)?;
        let schema = self.schema();
        let binder = crate::bind::Binder::new(self.sql, &schema, &[]);
        Ok(binder.table(name)?)
    }

    /// 55006: the table has checks that are still to be made.
    fn nothing_awaited(&self, table: &Table, command: &str) -> Done<()> {
        if !self.constraints.await_table(table.id) {
            return Ok(());
        }
        let message = format!("cannot {command} \"{}\" because it has pending trigger events", table.def.name);
        Err(SqlError::new("55006", message).into())
    }

    /// Where a new relation goes; a temporary one to the session's own schema.
    fn home(&mut self, name: &RelationName, temporary: bool) -> Done<NamespaceId> {
        let temporary = temporary || name.namespace.as_deref() == Some(OWN_TEMPORARY);
        if !temporary {
            let home = name.home(&self.schema())?;
            self.check_create_in(home)?;
            return Ok(home);
        }
        self.check_database(Privileges::TEMPORARY)?;
        if name.namespace.as_ref().is_some_and(|n| n != OWN_TEMPORARY) {
            let home = name.home(&self.schema())?;
            self.check_create_in(home)?;
            if !is_temporary(self.engine.schema(), home) {
                let message = "cannot create temporary relation in non-temporary schema";
                return Err(SqlError::new("42P16", message).into());
            }
            return Ok(home);
        }
        if let Some(id) = self.own_temporary() {
            return Ok(id);
        }
        let number = self.engine.number();
        let own = format!("{TEMPORARY}{number}");
        // Of a session that ended without its end. Others may be about to drop it, by its id (`session::leftover`).
        if let Some(left) = self.engine.schema().namespace(&own).map(|n| n.id) {
            self.empty_namespace(left)?;
            self.engine.drop_namespace(left)?;
        }
        let id = self.engine.create_namespace(&own)?;
        self.temporary.namespace = Some(id);
        let path: Vec<NamespaceId> = [id].into_iter().chain(self.path.iter().copied()).collect();
        self.path = path.into();
        Ok(id)
    }

    /// `None`: it is there already.
    fn create_schema(&mut self, name: &ast::SchemaName, if_not_exists: bool) -> Done<Option<NamespaceId>> {
        let (name, owner) = match name {
            ast::SchemaName::Simple(name) => (RelationName::of(name)?.name, None),
            ast::SchemaName::NamedAuthorization(name, owner) => (RelationName::of(name)?.name, Some(owner)),
            ast::SchemaName::UnnamedAuthorization(owner) => {
                let spec = RoleSpec::of(owner);
                let name = self.resolve(&spec).map(|role| self.role_name(role))?;
                (name, Some(owner))
            }
        };
        self.check_database(Privileges::CREATE)?;
        if self.engine.schema().namespace(&name).is_some() {
            if if_not_exists {
                self.notice("42P06", format!("schema \"{name}\" already exists, skipping"));
                return Ok(None);
            }
            return Err(SqlError::new("42P06", format!("schema \"{name}\" already exists")).into());
        }
        if name.starts_with("pg_") {
            return Err(SqlError::new("42939", format!("unacceptable schema name \"{name}\""))
                .with_detail("The prefix \"pg_\" is reserved for system schemas.")
                .into());
        }
        let id = self.engine.create_namespace(&name)?;
        if let Some(owner) = owner {
            self.change_owner(id.0, &RoleSpec::of(owner))?;
        }
        Ok(Some(id))
    }

    fn alter_schema(&mut self, name: &ast::Ident, rename: Option<&ast::Ident>, owner: Option<&RoleSpec>) -> Done<()> {
        let name = crate::bind::scope::fold(name);
        let found = self.engine.schema().namespace(&name).map(|n| n.id);
        let id = found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{name}\" does not exist")))?;
        self.check_owner(id.0)?;
        if is_temporary(self.engine.schema(), id) {
            return Err(SqlError::unsupported("a change of a schema of temporary tables").into());
        }
        if let Some(owner) = owner {
            return self.change_owner(id.0, owner);
        }
        let Some(new) = rename.map(crate::bind::scope::fold) else { return Ok(()) };
        // Under another name it is as good as a new one.
        self.check_database(Privileges::CREATE)?;
        if name == "public" || id.is_system() {
            return Err(SqlError::unsupported(format!("renaming schema {name}")).into());
        }
        if self.engine.schema().namespace(&new).is_some() {
            return Err(SqlError::new("42P06", format!("schema \"{new}\" already exists")).into());
        }
        if new.starts_with("pg_") {
            return Err(SqlError::new("42939", format!("unacceptable schema name \"{new}\""))
                .with_detail("The prefix \"pg_\" is reserved for system schemas.")
                .into());
        }
        self.rename_schema(id, &name, &new)
    }
}

/// What PostgreSQL calls an object that has no name: `table_column_label`, cut to 63 bytes in the longer of its names.
pub fn object_name(first: &str, second: &str, label: &str) -> String {
    const NAME_BYTES_MAX: usize = 63;
    let overhead = label.len() + 1 + usize::from(!second.is_empty());
    let (mut a, mut b) = (first.len(), second.len());
    while a + b + overhead > NAME_BYTES_MAX {
        if a > b { a -= 1 } else { b -= 1 }
    }
    let cut = |text: &str, bytes: usize| {
        let end = (0..=bytes).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text[..end].to_owned()
    };
    match second {
        "" => format!("{}_{label}", cut(first, a)),
        _ => format!("{}_{}_{label}", cut(first, a), cut(second, b)),
    }
}

/// The name, or the first of name1, name2, ... that is free.
pub fn unused(first: &str, second: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    let name = object_name(first, second, label);
    if !taken(&name) {
        return name;
    }
    let numbered = |n: u32| object_name(first, second, &format!("{label}{n}"));
    (1u32..).map(numbered).find(|n| !taken(n)).expect("some number is free")
}

pub fn on_commit_drops(action: Option<OnCommit>) -> Option<bool> {
    match action {
        None | Some(OnCommit::PreserveRows) => None,
        Some(OnCommit::DeleteRows) => Some(false),
        Some(OnCommit::Drop) => Some(true),
    }
}
