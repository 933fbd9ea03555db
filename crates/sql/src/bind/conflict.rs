//! Which rows does ON CONFLICT look for, and what does it do with them?

use super::change::long_columns;
use super::from::conjuncts;
use super::scope::{Scope, ScopeSource, fold, relation_name};
use super::{Bind, Binder, Refusal};
use crate::compiled::conflict::{ConflictUpdate, OnConflict};
use crate::compiled::init::{RowQueries, reads};
use crate::compiled::rules::Event;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{conflict_key, has_query, parse_expression};
use freshet_engine::catalog::{Index, IndexDef, Table};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction, OnInsert};
use std::ops::ControlFlow;
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
            Some(ConflictTarget::Columns(columns)) => self.inferred(table, columns, predicate, scope)?,
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
        scope: &Scope,
    ) -> Bind<Vec<Arc<Index>>> {
        let mut wanted = Vec::with_capacity(columns.len());
        for column in columns {
            wanted.push(self.conflict_key(table, column)?);
        }
        let asked = match predicate {
            None => Vec::new(),
            Some(predicate) => conjuncts(self.condition(predicate, "WHERE", scope)?),
        };
        let mut found = Vec::new();
        for index in table.indexes.iter().filter(|index| index.def.is_key()) {
            let own = self.key_parts(table, &index.def)?;
            let is_same = own.iter().all(|part| wanted.contains(part)) && wanted.iter().all(|part| own.contains(part));
            if is_same && self.is_implied(table, &index.def, &asked)? {
                found.push(index.clone());
            }
        }
        if found.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new("42P10", message).into());
        }
        Ok(found)
    }

    /// What the keys of an index are.
    fn key_parts(&mut self, table: &Arc<Table>, index: &IndexDef) -> Bind<Vec<KeyPart>> {
        let mut parts = Vec::with_capacity(index.columns.len());
        for key in &index.columns {
            let def = &table.def.columns[usize::from(key.column)];
            parts.push(match (def.is_visible(), &def.default) {
                (false, Some(text)) => {
                    let shown = parse_expression(&crate::define::shown_key(text, index.predicate.as_deref()))?;
                    self.key_part(table, &shown)?
                }
                _ => KeyPart::Column(key.column),
            });
        }
        Ok(parts)
    }

    fn key_part(&mut self, table: &Arc<Table>, key: &ast::Expr) -> Bind<KeyPart> {
        let key = without_parentheses(key);
        if let ast::Expr::Identifier(name) = key {
            let name = fold(name);
            if let Some(at) = table.def.columns.iter().position(|column| column.is_visible() && column.name == name) {
                return Ok(KeyPart::Column(at as u16));
            }
        }
        Ok(KeyPart::Expression(self.bind(key, &Scope::of_table(table, None))?.expr))
    }

    /// Whether all parts of an index's predicate are among these.
    fn is_implied(&mut self, table: &Arc<Table>, index: &IndexDef, asked: &[Expr]) -> Bind<bool> {
        let Some(predicate) = &index.predicate else { return Ok(true) };
        let own = self.condition(&parse_expression(predicate)?, "WHERE", &Scope::of_table(table, None))?;
        Ok(conjuncts(own).iter().all(|part| asked.contains(part)))
    }

    /// A column, or an expression as its index has it.
    fn conflict_key(&mut self, table: &Arc<Table>, key: &ast::Ident) -> Bind<KeyPart> {
        let Some(text) = conflict_key(key) else {
            let name = ast::ObjectName::from(vec![key.clone()]);
            return Ok(KeyPart::Column(self.target(table, &name)?));
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
                Ok(KeyPart::Column(self.target(table, &name)?))
            }
            other => self.key_part(table, other),
        }
    }

    fn conflict_update(&mut self, table: &Arc<Table>, scope: &Scope, update: &ast::DoUpdate) -> Bind<ConflictUpdate> {
        let mut both = scope.clone();
        let mut excluded = ScopeSource { name: "excluded".to_owned(), namespace: None, ..scope.sources[0].clone() };
        for computed in &mut excluded.computed {
            *computed = std::mem::replace(computed, Expr::NULL).rewrite(&mut |e| match e {
                Expr::Column { source: 0, column } => Some(Expr::Column { source: 1, column: *column }),
                _ => None,
            });
        }
        both.add(excluded)?;
        let (sets, condition, queries) = match self.asking_rows(table, &both, update)? {
            Some(asking) => asking,
            None => {
                let sets = self.sets((table, 0), &update.assignments, &both);
                let sets = sets.map_err(|refusal| self.of_part(refusal, update, &both))?;
                let condition = self.conflict_condition(update, &both);
                (sets, condition.map_err(|refusal| self.of_part(refusal, update, &both))?, None)
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
        let returning = None;
        Ok(ConflictUpdate {
            tables,
            sets,
            condition,
            not_null,
            long_columns,
            rules,
            returning,
            queries,
            names_cells: false,
        })
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
        if let Some(name) = self.named_part(update) {
            return Err(part_about_rows(&name).into());
        }
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

    /// What was refused, if it was not for the rows that a subquery names.
    fn of_part(&self, refusal: Refusal, update: &ast::DoUpdate, both: &Scope) -> Refusal {
        let names_row = |error: &SqlError| {
            let names = |source: &ScopeSource| error.message.contains(&format!("\"{}\"", source.name));
            error.sqlstate == "42P01" && both.sources.iter().any(names)
        };
        match (&refusal, self.named_part(update)) {
            (Refusal::Error(error), Some(part)) if names_row(error) => part_about_rows(&part).into(),
            (Refusal::Error(error), None) if names_row(error) => {
                SqlError::unsupported("a subquery like this about the rows of ON CONFLICT DO UPDATE").into()
            }
            _ => refusal,
        }
    }

    /// A part of WITH that subqueries in it name.
    pub(super) fn named_part(&self, of: &impl ast::Visit) -> Option<String> {
        let beyond = self.beyond?;
        let found = ast::visit_relations(of, |relation| match relation.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)] if beyond.is_part_of_with(&fold(name)) => {
                ControlFlow::Break(fold(name))
            }
            _ => ControlFlow::Continue(()),
        });
        match found {
            ControlFlow::Break(name) => Some(name),
            ControlFlow::Continue(()) => None,
        }
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

fn part_about_rows(part: &str) -> SqlError {
    SqlError::unsupported(format!("a subquery of \"{part}\" of WITH about the rows of ON CONFLICT DO UPDATE"))
}

/// What a key of an index is.
#[derive(PartialEq)]
enum KeyPart {
    Column(u16),
    Expression(Expr),
}

fn without_parentheses(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => without_parentheses(inner),
        other => other,
    }
}
