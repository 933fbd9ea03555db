//! How do rows come and go in bulk? COPY: bytes of PostgreSQL's text, CSV and binary formats to rows, and rows to bytes.
//!
//! ```text
//! bytes ─ split ─▶ chunks of whole records ─┬─ load: threads, each records ▶ rows ▶ an appender   (empty table, own transaction)
//!                                           └─ session: records ▶ parameters of an INSERT         (everything else)
//! rows  ─ encode ─▶ pieces of bytes ─▶ a client, a file             (of a long table: unload, a thread, writes them ahead)
//! ```
//!
//! | module | question |
//! |---|---|
//! | `options` | what the WITH list asks for |
//! | `condition` | which rows are kept |
//! | `split` | where a record ends, whatever the size of the pieces that come |
//! | `fields` | what a record's fields are |
//! | `convert` | what value a field has, and where it stands if it has none |
//! | `plain` | what a record says that is nothing but digits and plain text |
//! | `load` | how threads fill an empty table |
//! | `encode` | how a row is written |
//! | `unload` | how a table's rows are written while those before them are sent |
//!
//! 1. All of a COPY is one transaction: an error leaves nothing of it.
//! 2. An error names the table and the line; one of a value its column and text too, as PostgreSQL's CONTEXT.
//! 3. Whatever the bytes are, the outcome is rows or an error.

pub mod condition;
pub mod convert;
pub mod encode;
pub mod fields;
pub mod load;
pub mod options;
pub mod plain;
pub mod split;
pub mod unload;

use crate::error::SqlError;
use crate::parse::copy::{CopyPlace, CopySource, CopyStatement};
use condition::Condition;
use freshet_engine::catalog::{ColumnRole, Schema, Table};
use options::Format;
use sqlparser::ast::Ident;
use std::sync::Arc;

/// A COPY that is bound.
#[derive(Debug)]
pub enum CopyPlan {
    From {
        table: Arc<Table>,
        columns: Vec<u16>,
        /// `INSERT INTO t (...) VALUES ($1, ...)`: what every row has to pass.
        insert: String,
        /// WHERE.
        condition: Option<Arc<Condition>>,
        format: Format,
        place: CopyPlace,
    },
    Table {
        table: Arc<Table>,
        columns: Vec<u16>,
        format: Format,
        place: CopyPlace,
    },
    Query {
        sql: String,
        format: Format,
        place: CopyPlace,
    },
}

impl CopyPlan {
    pub fn format(&self) -> &Format {
        match self {
            CopyPlan::From { format, .. } | CopyPlan::Table { format, .. } | CopyPlan::Query { format, .. } => format,
        }
    }
}

/// Finds the table and its columns. `columns_of` tells the names of a query's columns.
pub fn bind(
    copy: &CopyStatement,
    schema: &Arc<Schema>,
    columns_of: impl FnOnce(&str) -> Result<Vec<String>, SqlError>,
) -> Result<CopyPlan, SqlError> {
    let place = copy.place.clone();
    let (name, wanted) = match &copy.source {
        CopySource::Query(sql) => {
            let names = columns_of(sql)?;
            let format = Format::of(&copy.options, false, &names, None)?;
            return Ok(CopyPlan::Query { sql: sql.clone(), format, place });
        }
        CopySource::Table { name, columns } => (name, columns),
    };
    let table = table_of(name, schema)?;
    let columns = columns_of_table(&table, wanted)?;
    let names: Vec<String> = columns.iter().map(|&c| table.def.columns[usize::from(c)].name.clone()).collect();
    let format = Format::of(&copy.options, copy.into_table, &names, Some(&table))?;
    if !copy.into_table {
        return Ok(CopyPlan::Table { table, columns, format, place });
    }
    let quoted: Vec<String> = names.iter().map(|name| Ident::with_quote('"', name).to_string()).collect();
    let places: Vec<String> = (1..=names.len()).map(|n| format!("${n}")).collect();
    // A copy of the values is what is asked for, whoever else might give them.
    let is_identity = |&c: &u16| table.def.columns[usize::from(c)].role == ColumnRole::IdentityAlways;
    let overriding = if columns.iter().any(is_identity) { "OVERRIDING SYSTEM VALUE " } else { "" };
    let insert = match names.is_empty() {
        true => format!("INSERT INTO {name} DEFAULT VALUES"),
        false => format!("INSERT INTO {name} ({}) {overriding}VALUES ({})", quoted.join(", "), places.join(", ")),
    };
    let condition =
        copy.condition.as_ref().map(|said| Condition::bind(said, &table, schema).map(Arc::new)).transpose()?;
    Ok(CopyPlan::From { table, columns, insert, condition, format, place })
}

fn table_of(name: &str, schema: &Arc<Schema>) -> Result<Arc<Table>, SqlError> {
    let statement = format!("TABLE {name}");
    let mut binder = crate::bind::Binder::new(&statement, schema, &[]);
    let name = crate::parse::parse_name(name)?;
    match binder.table(&name) {
        Ok(table) => Ok(table),
        Err(crate::bind::Refusal::Error(error)) => Err(SqlError { position: None, ..error }),
        Err(crate::bind::Refusal::NotCompiled { what, .. }) => {
            binder.uses_clock = false;
            Err(SqlError::unsupported(format!("COPY of {what}"))
                .with_hint("COPY (SELECT ...) TO copies what a query gives."))
        }
    }
}

fn no_column(name: &str, table: &Table) -> SqlError {
    SqlError::new("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.def.name))
}

fn columns_of_table(table: &Table, wanted: &[String]) -> Result<Vec<u16>, SqlError> {
    if wanted.is_empty() {
        let columns = table.def.columns.iter().enumerate();
        return Ok(columns.filter(|(_, def)| def.is_visible() && !def.is_computed()).map(|(i, _)| i as u16).collect());
    }
    let mut columns = Vec::with_capacity(wanted.len());
    for name in wanted {
        let column = table.column(name).filter(|&column| table.def.columns[column].is_visible());
        let Some(column) = column else {
            return Err(no_column(name, table));
        };
        if table.def.columns[column].is_computed() {
            return Err(SqlError::new("42P10", format!("column \"{name}\" is a generated column"))
                .with_detail("Generated columns cannot be used in COPY."));
        }
        let column = column as u16;
        if columns.contains(&column) {
            return Err(SqlError::new("42701", format!("column \"{name}\" specified more than once")));
        }
        columns.push(column);
    }
    Ok(columns)
}
