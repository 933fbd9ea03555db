//! Which rows does ON CONFLICT look for, and what does it do with them?

use super::change::long_columns;
use super::from::conjuncts;
use super::scope::{Scope, ScopeSource, relation_name};
use super::{Bind, Binder, Refusal};
use crate::compiled::conflict::{ConflictUpdate, OnConflict};
use crate::compiled::init::{RowQueries, reads};
use crate::compiled::rules::Event;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{conflict_key, has_query, parse_expression};
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
            wanted.push(self.conflict_key(table, column)?);
        }
        wanted.sort_unstable();
        wanted.dedup();
        let asked: Vec<String> = predicate.map(parts_of).unwrap_or_default();
        let is_meant = |index: &Index| match &index.def.predicate {
            None => true,
            Some(own) => parse_expression(own).is_ok_and(|own| parts_of(&own).iter().all(|part| asked.contains(part))),
        };
        let fits = |index: &&Arc<Index>| {
            let mut own = key_names(table, &index.def);
            own.sort_unstable();
            index.def.is_key() && own == wanted && is_meant(index)
        };
        let found: Vec<Arc<Index>> = table.indexes.iter().filter(fits).cloned().collect();
        if found.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new("42P10", message).into());
        }
        Ok(found)
    }

    /// A column's name, or an expression as its index has it.
    fn conflict_key(&mut self, table: &Arc<Table>, key: &ast::Ident) -> Bind<String> {
        let Some(text) = conflict_key(key) else {
            let name = ast::ObjectName::from(vec![key.clone()]);
            return Ok(table.def.columns[usize::from(self.target(table, &name)?)].name.clone());
        };
        let lower = text.to_lowercase();
        for (word, what) in
            [(" asc", "ASC/DESC"), (" desc", "ASC/DESC"), (" first", "NULLS FIRST/LAST"), (" last", "NULLS FIRST/LAST")]
        {
            if lower.ends_with(word) {
                let message = format!("{what} is not allowed in ON CONFLICT clause");
                return Err(SqlError::new("42P10", message).into());
            }
        }
        // There is one class of operators for a type, and one collation.
        let of_class = text.rsplit_once(' ').filter(|(_, class)| class.to_lowercase().ends_with("_ops"));
        let expr = parse_expression(of_class.map_or(text, |(key, _)| key))?;
        match without_parentheses(&expr) {
            ast::Expr::Identifier(name) => {
                let name = ast::ObjectName::from(vec![name.clone()]);
                Ok(table.def.columns[usize::from(self.target(table, &name)?)].name.clone())
            }
            other => {
                self.bind(other, &Scope::of_table(table, None))?;
                Ok(other.to_string())
            }
        }
    }

    fn conflict_update(&mut self, table: &Arc<Table>, scope: &Scope, update: &ast::DoUpdate) -> Bind<ConflictUpdate> {
        let mut both = scope.clone();
        both.add(ScopeSource { name: "excluded".to_owned(), ..scope.sources[0].clone() })?;
        let (sets, condition, queries) = match self.asking_rows(table, &both, update)? {
            Some(asking) => asking,
            None => {
                let sets = self.sets((table, 0), &update.assignments, &both)?;
                (sets, self.conflict_condition(update, &both)?, None)
            }
        };
        let arguments = queries.iter().flat_map(|queries| queries.arguments.iter().map(|(_, column)| column));
        let arguments: Vec<&Expr> = arguments.collect();
        let exprs = || sets.iter().map(|(_, expr)| expr).chain(&condition).chain(arguments.iter().copied());
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
        Ok(ConflictUpdate { tables, sets, condition, not_null, long_columns, rules, queries })
    }

    fn conflict_condition(&mut self, update: &ast::DoUpdate, both: &Scope) -> Bind<Vec<Expr>> {
        match &update.selection {
            None => Ok(Vec::new()),
            Some(selection) => Ok(conjuncts(self.condition(selection, "WHERE", both)?)),
        }
    }

    /// The expressions with the queries in them that are about the two rows, if there are such.
    fn asking_rows(&mut self, table: &Arc<Table>, both: &Scope, update: &ast::DoUpdate) -> Bind<Option<AskingRows>> {
        let mut values = update.assignments.iter().map(|assignment| &assignment.value);
        if !values.any(has_query) && !update.selection.as_ref().is_some_and(has_query) {
            return Ok(None);
        }
        // They are computed by the compiled road, whoever plans the rest.
        let (beyond, parameters) = (self.beyond.take(), self.parameters.clone());
        self.surround(both.clone());
        let sets = self.sets((table, 0), &update.assignments, both);
        let of_sets = self.around.as_ref().map_or(0, |around| around.queries.len());
        let condition = self.conflict_condition(update, both);
        self.beyond = beyond;
        let around = self.around.take().expect("it was just set");
        if around.arguments.is_empty() {
            self.parameters = parameters;
            return Ok(None);
        }
        let refused = |refusal| match refusal {
            Refusal::NotCompiled { what, .. } => {
                Refusal::Error(SqlError::unsupported(format!("{what} like this in ON CONFLICT DO UPDATE")))
            }
            error => error,
        };
        let (sets, condition) = (sets.map_err(refused)?, condition.map_err(refused)?);
        if around.queries.iter().any(|asked| reads(&asked.plan.query, table.id)) {
            // It would see what the statement has inserted before.
            return Err(SqlError::unsupported("a subquery of the target in ON CONFLICT DO UPDATE").into());
        }
        self.asks_rows = true;
        let count = around.count();
        let arguments = around.arguments.iter().map(|&(number, found)| (number, both.expr(found))).collect();
        let mut of_sets_and_condition = around.queries;
        let of_condition = of_sets_and_condition.split_off(of_sets);
        let queries = RowQueries { count, arguments, of_condition, of_sets: of_sets_and_condition };
        Ok(Some((sets, condition, Some(Arc::new(queries)))))
    }
}

/// What DO UPDATE sets, its condition, and what they ask.
type AskingRows = (Vec<(u16, Expr)>, Vec<Expr>, Option<Arc<RowQueries>>);

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

/// What stands between the ANDs of a condition.
fn parts_of(condition: &ast::Expr) -> Vec<String> {
    match condition {
        ast::Expr::Nested(inner) => parts_of(inner),
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
            parts_of(left).into_iter().chain(parts_of(right)).collect()
        }
        other => vec![other.to_string()],
    }
}

fn without_parentheses(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => without_parentheses(inner),
        other => other,
    }
}
