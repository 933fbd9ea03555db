//! How do CREATE, DROP and TRUNCATE run? The engine's catalog does the work, in the statement's transaction.

use super::Halt;
use crate::error::SqlError;
use freshet_engine::catalog::{IndexDef, TableDef};
use freshet_engine::txn::{Error, Session, Stop};

/// A change of the schema.
#[derive(Clone, Debug)]
pub enum Definition {
    CreateTable { table: TableDef, indexes: Vec<IndexDef>, if_not_exists: bool },
    DropTables { names: Vec<String>, if_exists: bool },
    CreateIndex { table: String, index: IndexDef, if_not_exists: bool },
    DropIndexes { names: Vec<String>, if_exists: bool },
    Truncate { names: Vec<String> },
}

/// A notice for the client: SQLSTATE and message.
pub type Notice = (&'static str, String);

impl Definition {
    pub fn tag(&self) -> &'static str {
        match self {
            Definition::CreateTable { .. } => "CREATE TABLE",
            Definition::DropTables { .. } => "DROP TABLE",
            Definition::CreateIndex { .. } => "CREATE INDEX",
            Definition::DropIndexes { .. } => "DROP INDEX",
            Definition::Truncate { .. } => "TRUNCATE TABLE",
        }
    }
}

pub fn run(definition: &Definition, engine: &mut Session) -> Result<Option<Notice>, Halt> {
    match definition {
        Definition::CreateTable { table, indexes, if_not_exists } => {
            let exists = engine.schema().table(&table.name).is_some();
            if exists && *if_not_exists {
                return Ok(Some(skipped(&table.name)));
            }
            engine.create_table(table.clone(), indexes.clone())?;
            Ok(None)
        }
        Definition::CreateIndex { table, index, if_not_exists } => {
            let exists = engine.schema().index(&index.name).is_some();
            if exists && *if_not_exists {
                return Ok(Some(skipped(&index.name)));
            }
            match engine.create_index(table, index.clone()) {
                Err(Stop::Error(Error::UniqueViolation { index })) => {
                    Err(SqlError::new("23505", format!("could not create unique index \"{index}\""))
                        .with_detail("Some key is there more than once.")
                        .into())
                }
                other => Ok(other.map(|()| None)?),
            }
        }
        Definition::DropTables { names, if_exists } => {
            let mut notice = None;
            for name in names {
                if engine.schema().table(name).is_some() {
                    engine.drop_table(name)?;
                } else if *if_exists {
                    notice = Some(absent("table", name));
                } else {
                    return Err(Error::UndefinedTable(name.clone()).into());
                }
            }
            Ok(notice)
        }
        Definition::DropIndexes { names, if_exists } => {
            let mut notice = None;
            for name in names {
                match engine.schema().index(name) {
                    Some((table, index)) if index.def.primary => {
                        return Err(of_primary_key(&table.def.name, name).into());
                    }
                    Some(_) => engine.drop_index(name)?,
                    None if *if_exists => notice = Some(absent("index", name)),
                    None => return Err(Error::UndefinedIndex(name.clone()).into()),
                }
            }
            Ok(notice)
        }
        Definition::Truncate { names } => {
            for name in names {
                engine.truncate(name)?;
            }
            Ok(None)
        }
    }
}

fn skipped(name: &str) -> Notice {
    ("42P07", format!("relation \"{name}\" already exists, skipping"))
}

fn absent(what: &str, name: &str) -> Notice {
    ("00000", format!("{what} \"{name}\" does not exist, skipping"))
}

fn of_primary_key(table: &str, index: &str) -> SqlError {
    SqlError::new("2BP01", format!("cannot drop index {index} because constraint {index} on table {table} requires it"))
}
