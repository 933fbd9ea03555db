//! Which conditions can be asked of hidden columns, so that indexes on expressions and partial unique indexes answer them?
//!
//! 1. The expression that a hidden column is computed by is that column: it is immutable, so its stored value is its value.
//! 2. A partial unique index is about its key where the predicate holds, and null elsewhere. Where each part of the predicate is among the
//!    conditions, what they ask of the key is asked of the hidden column besides.

use super::Binder;
use super::from::conjuncts;
use super::rules::table_expr;
use super::scope::Scope;
use crate::expr::Expr;
use freshet_engine::catalog::{ColumnRole, Table};
use std::sync::Arc;

impl Binder<'_> {
    /// A condition over the scope's rows, asked of hidden columns where they know the answer.
    pub(super) fn with_hidden(&self, condition: Expr, scope: &Scope) -> Expr {
        let tables =
            scope.sources.iter().enumerate().filter_map(|(at, source)| Some((at as u16, source.table.as_ref()?)));
        tables.fold(condition, |condition, (source, table)| {
            let hidden = self.hidden_of(table, source);
            if hidden.is_empty() { condition } else { asked_of(condition, &hidden) }
        })
    }

    /// Hidden columns of a source, each with its expression.
    fn hidden_of(&self, table: &Arc<Table>, source: u16) -> Vec<(Expr, Expr)> {
        let columns = table.def.columns.iter().enumerate();
        let hidden = columns.filter(|(_, c)| c.role == ColumnRole::Hidden).filter_map(|(at, column)| {
            let (expr, _) = table_expr(column.default.as_deref()?, column.ty, table, self.schema).ok()?;
            let expr = expr.rewrite(&mut |e| match e {
                Expr::Column { source: 0, column } => Some(Expr::Column { source, column: *column }),
                _ => None,
            });
            Some((expr, Expr::Column { source, column: at as u16 }))
        });
        hidden.collect()
    }
}

fn asked_of(condition: Expr, hidden: &[(Expr, Expr)]) -> Expr {
    let parts = conjuncts(condition);
    let keys = hidden.iter().filter_map(|(expr, column)| Some((key_where_it_holds(expr, &parts)?, column)));
    let mut more = Vec::new();
    for (key, column) in keys {
        for part in parts.iter().filter(|part| matches!(part, Expr::Compare { .. } | Expr::In { negated: false, .. })) {
            let asked = replaced(part, key, column);
            if asked != *part {
                more.push(asked);
            }
        }
    }
    let whole =
        parts.iter().map(|part| hidden.iter().fold(part.clone(), |part, (expr, column)| replaced(&part, expr, column)));
    Expr::And(whole.chain(more).collect())
}

/// The key of a partial unique index, if the conditions say that its predicate holds.
fn key_where_it_holds<'e>(expr: &'e Expr, parts: &[Expr]) -> Option<&'e Expr> {
    let Expr::Case { branches, otherwise: None } = expr else { return None };
    let [(predicate, key)] = branches.as_slice() else { return None };
    conjuncts(predicate.clone()).iter().all(|part| parts.contains(part)).then_some(key)
}

fn replaced(part: &Expr, expr: &Expr, column: &Expr) -> Expr {
    part.clone().rewrite(&mut |e| (e == expr).then(|| column.clone()))
}
