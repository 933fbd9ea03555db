//! Which of the rows that come does a COPY keep? Those that meet its WHERE, asked of each once its defaults are there and before anything else is.

use crate::bind::query::is_aggregate;
use crate::bind::scope::{Scope, fold};
use crate::bind::{Binder, Refusal};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::copy::CopyCondition;
use crate::parse::span_position;
use crate::value::set::SetFunction;
use freshet_engine::catalog::{Schema, Table};
use sqlparser::ast::{self, Spanned};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A condition that is bound.
#[derive(Debug)]
pub struct Condition {
    said: CopyCondition,
    /// Over source 0, the row.
    pub expr: Expr,
}

impl Condition {
    pub fn bind(said: &CopyCondition, table: &Arc<Table>, schema: &Arc<Schema>) -> Result<Condition, SqlError> {
        if let ControlFlow::Break(error) = ast::visit_expressions(&*said.expr, |part| refuse(part, &said.sql)) {
            return Err(error);
        }
        let mut binder = Binder::new(&said.sql, schema, &[]);
        let bound = binder.boolean(&said.expr, "WHERE", &Scope::of_table(table, None));
        let expr = bound.map_err(|refusal| match refusal {
            Refusal::Error(error) => error,
            Refusal::NotCompiled { what, position } => {
                SqlError::unsupported(format!("{what} in COPY's WHERE")).at(position)
            }
        })?;
        if binder.uses_sequences {
            return Err(SqlError::unsupported("a sequence in COPY's WHERE"));
        }
        check_columns(&expr, table)?;
        Ok(Condition { said: said.clone(), expr })
    }

    /// The same by another schema.
    pub fn renewed(&self, table: &Arc<Table>, schema: &Arc<Schema>) -> Result<Condition, SqlError> {
        Condition::bind(&self.said, table, schema)
    }
}

/// What a condition of COPY has no place for.
fn refuse(part: &ast::Expr, sql: &str) -> ControlFlow<SqlError> {
    let error = match part {
        ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => {
            SqlError::new("0A000", "cannot use subquery in COPY FROM WHERE condition")
        }
        ast::Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
            let (sqlstate, what) = match name.as_str() {
                "array" if matches!(function.args, ast::FunctionArguments::Subquery(_)) => {
                    let error = SqlError::new("0A000", "cannot use subquery in COPY FROM WHERE condition");
                    return ControlFlow::Break(error.at(span_position(sql, part.span())));
                }
                "grouping" => ("42803", "grouping operations"),
                _ if function.over.is_some() => ("42P20", "window functions"),
                _ if is_aggregate(function) => ("42803", "aggregate functions"),
                name if SetFunction::exists(name) => ("0A000", "set-returning functions"),
                _ => return ControlFlow::Continue(()),
            };
            SqlError::new(sqlstate, format!("{what} are not allowed in COPY FROM WHERE conditions"))
        }
        _ => return ControlFlow::Continue(()),
    };
    ControlFlow::Break(error.at(span_position(sql, part.span())))
}

/// Generated columns are not there yet.
fn check_columns(expr: &Expr, table: &Table) -> Result<(), SqlError> {
    let mut generated = None;
    expr.walk(&mut |part| {
        if let Expr::Column { column, .. } = part {
            let def = &table.def.columns[usize::from(*column)];
            generated = generated.or(def.is_computed().then_some(def));
        }
        generated.is_none()
    });
    match generated {
        None => Ok(()),
        Some(def) => {
            let message = "generated columns are not supported in COPY FROM WHERE conditions";
            let detail = format!("Column \"{}\" is a generated column.", def.name);
            Err(SqlError::new("42P10", message).with_detail(detail))
        }
    }
}
