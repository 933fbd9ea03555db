//! Which rows does ON CONFLICT look for, and what does it do with them?

use super::change::long_columns;
use super::from::conjuncts;
use super::scope::{Scope, ScopeSource, relation_name};
use super::{Bind, Binder};
use crate::compiled::conflict::{ConflictUpdate, OnConflict};
use crate::compiled::rules::Event;
use crate::error::SqlError;
use crate::expr::Expr;
use freshet_engine::catalog::{Index, IndexDef, Table};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction, OnInsert};
use std::sync::Arc;

impl Binder<'_> {
    pub(super) fn on_conflict(
        &mut self,
        table: &Arc<Table>,
        scope: &Scope,
        on: &OnInsert,
        predicate: Option<&ast::Expr>,
    ) -> Bind<OnConflict> {
        let OnInsert::OnConflict(ast::OnConflict { conflict_target, action }) = on else {
            return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE").into());
        };
        let arbiters = match conflict_target {
            None => {
                if matches!(action, OnConflictAction::DoUpdate(_)) {
                    let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                    return Err(SqlError::new("42601", message)
                        .with_hint("For example, ON CONFLICT (column_name).")
                        .into());
                }
                table.indexes.iter().filter(|i| i.def.is_key()).cloned().collect()
            }
            Some(ConflictTarget::Columns(columns)) => self.inferred(table, columns, predicate)?,
            Some(ConflictTarget::OnConstraint(name)) => vec![named(table, &relation_name(name)?)?],
        };
        if arbiters.iter().any(|index| index.def.deferrable) {
            let message =
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
            return Err(SqlError::new("55000", message).into());
        }
        let update = match action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => Some(self.conflict_update(table, scope, update)?),
        };
        Ok(OnConflict { arbiters, update })
    }

    /// Unique indexes over exactly these columns.
    fn inferred(
        &mut self,
        table: &Arc<Table>,
        columns: &[ast::Ident],
        predicate: Option<&ast::Expr>,
    ) -> Bind<Vec<Arc<Index>>> {
        let mut wanted = Vec::with_capacity(columns.len());
        for column in columns {
            let name = ast::ObjectName::from(vec![column.clone()]);
            wanted.push(table.def.columns[usize::from(self.target(table, &name)?)].name.clone());
        }
        wanted.sort_unstable();
        wanted.dedup();
        let predicate = predicate.map(ToString::to_string);
        let fits = |index: &&Arc<Index>| {
            let mut own = key_names(table, &index.def);
            own.sort_unstable();
            let is_meant = index.def.predicate.is_none()
                || predicate.as_deref().is_some_and(|p| Some(bare(p)) == index.def.predicate.as_deref().map(bare));
            index.def.is_key() && own == wanted && is_meant
        };
        let found: Vec<Arc<Index>> = table.indexes.iter().filter(fits).cloned().collect();
        if found.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new("42P10", message).into());
        }
        Ok(found)
    }

    fn conflict_update(&mut self, table: &Arc<Table>, scope: &Scope, update: &ast::DoUpdate) -> Bind<ConflictUpdate> {
        let mut both = scope.clone();
        both.add(ScopeSource { name: "excluded".to_owned(), ..scope.sources[0].clone() })?;
        let sets = self.sets(table, &update.assignments, &both)?;
        let condition = match &update.selection {
            None => Vec::new(),
            Some(selection) => conjuncts(self.condition(selection, "WHERE", &both)?),
        };
        let exprs = || sets.iter().map(|(_, expr)| expr).chain(&condition);
        let of_source = |source: u16| {
            let only = exprs().map(|e| of_one_source(e, source));
            long_columns(table, only.collect::<Vec<_>>().iter())
        };
        let long_columns = [of_source(0), of_source(1)];
        let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
        let not_null = columns.iter().copied();
        let not_null = not_null.filter(|&c| table.def.columns[usize::from(c)].not_null).collect();
        let rules = self.rules(table, Event::Update, &columns)?;
        let tables = vec![Some(table.clone()), Some(table.clone())];
        Ok(ConflictUpdate { tables, sets, condition, not_null, long_columns, rules })
    }
}

/// The expression without columns of the other source.
fn of_one_source(expr: &Expr, source: u16) -> Expr {
    expr.clone().rewrite(&mut |e| match e {
        Expr::Column { source: of, .. } if *of != source => Some(Expr::NULL),
        _ => None,
    })
}

fn named(table: &Table, name: &str) -> Bind<Arc<Index>> {
    let found = table.indexes.iter().find(|i| i.def.constraint != 0 && i.def.name == name);
    found.cloned().ok_or_else(|| {
        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.def.name);
        SqlError::new("42704", message).into()
    })
}

/// What an index is over, as it was written: columns by their names, expressions by their text.
pub fn key_names(table: &Table, index: &IndexDef) -> Vec<String> {
    let name = |column: u16| {
        let def = &table.def.columns[usize::from(column)];
        match (def.is_visible(), &def.default) {
            (false, Some(text)) => crate::define::shown_key(text, index.predicate.as_deref()),
            _ => def.name.clone(),
        }
    };
    index.columns.iter().map(|c| name(c.column)).collect()
}

/// Without the parentheses around the whole.
fn bare(text: &str) -> &str {
    text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text.trim())
}
