//! Which settings does a SELECT change? Those that its outputs give to `set_config`: one after the other, with what stands between them.

use super::{Plan, Routed, plain};
use crate::bind::query::{Item, column_name};
use crate::bind::scope::{Scope, fold};
use crate::bind::{Bind, Binder, Refusal};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::rows::Column;
use crate::value::cast::CastContext;
use freshet_engine::catalog::Schema;
use freshet_engine::schema::Type;
use sqlparser::ast::{self, GroupByExpr, SelectItem, Statement};
use std::sync::Arc;

/// A SELECT with `set_config` among its outputs.
#[derive(Debug)]
pub struct ConfigQuery {
    pub outputs: Vec<ConfigOutput>,
    /// A name that means nothing sets nothing and gives no row: it was looked for in `pg_settings`.
    pub only_known: bool,
}

#[derive(Debug)]
pub enum ConfigOutput {
    /// The value that the setting has then.
    Set {
        name: Expr,
        value: Expr,
        local: Expr,
    },
    Value(Expr),
}

/// `SELECT set_config('name', 'value', false), ...` without a FROM. `None`: another statement.
pub(super) fn set_config(
    sql: &str,
    statement: &Statement,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
) -> Result<Option<Routed>, SqlError> {
    let Statement::Query(query) = statement else { return Ok(None) };
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
    if !select.projection.iter().any(|item| call_of(item).is_some()) {
        return Ok(None);
    }
    let looked_for = wanted_setting(select);
    let is_alone = select.from.is_empty() && select.selection.is_none();
    if !is_plain(query, select) || !is_alone && looked_for.is_none() {
        return Err(SqlError::unsupported("set_config in a query with FROM or other clauses"));
    }
    let mut binder = Binder::new(sql, schema, declared);
    let bound = outputs(&mut binder, &select.projection, looked_for);
    let (outputs, columns) = bound.map_err(|refusal| match refusal {
        Refusal::Error(error) => error,
        Refusal::NotCompiled { what, position } => {
            SqlError::unsupported(format!("{what} beside set_config")).at(position)
        }
    })?;
    if binder.uses_sequences {
        return Err(SqlError::unsupported("a function with effects beside set_config"));
    }
    Ok(Some(Routed {
        columns: columns.into(),
        parameters: binder.parameter_types(),
        uses_clock: binder.uses_clock,
        ..plain(Plan::SetConfig(Box::new(ConfigQuery { outputs, only_known: looked_for.is_some() })))
    }))
}

fn outputs(
    binder: &mut Binder<'_>,
    projection: &[SelectItem],
    looked_for: Option<&ast::Expr>,
) -> Bind<(Vec<ConfigOutput>, Vec<Column>)> {
    let (mut outputs, mut columns) = (Vec::new(), Vec::new());
    for item in projection {
        if let Some((name, arguments)) = call_of(item) {
            columns.push(Column::new(&name, Type::Text));
            outputs.push(set_output(binder, arguments, looked_for)?);
            continue;
        }
        for Item { expr, ty, name, .. } in binder.items(std::slice::from_ref(item), &Scope::default())? {
            columns.push(Column::new(&name, ty));
            outputs.push(ConfigOutput::Value(expr));
        }
    }
    Ok((outputs, columns))
}

fn set_output(
    binder: &mut Binder<'_>,
    arguments: &[ast::FunctionArg],
    looked_for: Option<&ast::Expr>,
) -> Bind<ConfigOutput> {
    let given = arguments.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Identifier(name))) if name.value == "name" => {
            looked_for
        }
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    let given: Option<Vec<&ast::Expr>> = given.collect();
    let Some([name, value, local]) = given.and_then(|given| <[&ast::Expr; 3]>::try_from(given).ok()) else {
        return Err(SqlError::new("42883", "function set_config does not exist with these arguments").into());
    };
    let mut argument = |ast, ty| {
        let bound = binder.bind(ast, &Scope::default())?;
        binder.coerce(bound, ty, CastContext::Implicit)
    };
    Ok(ConfigOutput::Set {
        name: argument(name, Type::Text)?,
        value: argument(value, Type::Text)?,
        local: argument(local, Type::Bool)?,
    })
}

/// The name and the arguments of an output that is a call of `set_config`.
fn call_of(item: &SelectItem) -> Option<(String, &[ast::FunctionArg])> {
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
        _ => return None,
    };
    let mut inner = expr;
    while let ast::Expr::Nested(nested) = inner {
        inner = nested;
    }
    let ast::Expr::Function(function) = inner else { return None };
    let called = function.name.to_string().to_lowercase();
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let is_it = called.strip_prefix("pg_catalog.").unwrap_or(&called) == "set_config";
    is_it.then(|| (alias.map_or_else(|| column_name(expr), fold), list.args.as_slice()))
}

/// Nothing but outputs, FROM and WHERE.
fn is_plain(query: &ast::Query, select: &ast::Select) -> bool {
    let is_ungrouped =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, more) if keys.is_empty() && more.is_empty());
    is_ungrouped
        && select.having.is_none()
        && select.distinct.is_none()
        && select.top.is_none()
        && select.into.is_none()
        && select.named_window.is_empty()
        && query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
}

/// The setting that `FROM pg_settings WHERE name = 'setting'` names, as pg_dump sets what a server may lack.
fn wanted_setting(select: &ast::Select) -> Option<&ast::Expr> {
    let [ast::TableWithJoins { relation: ast::TableFactor::Table { name, alias: None, args: None, .. }, joins }] =
        select.from.as_slice()
    else {
        return None;
    };
    let source = name.to_string().to_lowercase();
    let is_settings = source.strip_prefix("pg_catalog.").unwrap_or(&source) == "pg_settings" && joins.is_empty();
    match select.selection.as_ref()? {
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } if is_settings => {
            matches!(left.as_ref(), ast::Expr::Identifier(column) if column.value == "name").then_some(right)
        }
        _ => None,
    }
}
