//! When is a subquery in FROM its table under other names? When it only leaves out columns and rows. Then its table stands in the query around it, so
//! that conditions from outside find an index, and rows are locked where they lie. Views come here as subqueries.

use super::from::{From, conjuncts, is_bare, rename};
use super::names::RelationName;
use super::query::has_group_by;
use super::scope::{Scope, ScopeColumn, ScopeSource, SourceName, fold};
use super::{Bind, Binder};
use crate::expr::Expr;
use crate::parse::{locking, locking_all};
use freshet_engine::catalog::NamespaceId;
use sqlparser::ast::{self, LockClause, Select, SelectItem, SetExpr, TableFactor};

impl Binder<'_> {
    /// Adds the table of a plain subquery as a source; `None`: the subquery is more than that.
    pub(super) fn flattened(
        &mut self,
        query: &ast::Query,
        (alias, namespace): (&str, Option<NamespaceId>),
        names: &[String],
        from: &mut From,
    ) -> Bind<Option<u16>> {
        let Some((source, conditions)) = self.flat_source(query, alias, names)? else { return Ok(None) };
        let at = from.add(ScopeSource { namespace, ..source }, None)?;
        let moved = |condition: Expr| {
            condition.rewrite(&mut |e| match e {
                Expr::Column { source: 0, column } => Some(Expr::Column { source: at, column: *column }),
                _ => None,
            })
        };
        from.conditions.extend(conditions.into_iter().map(moved));
        Ok(Some(at))
    }

    /// The table of a plain subquery as a source called `alias`, and what must hold of its rows, which are those of source 0.
    pub(crate) fn flat_source(
        &mut self,
        query: &ast::Query,
        alias: &str,
        names: &[String],
    ) -> Bind<Option<(ScopeSource, Vec<Expr>)>> {
        let SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
        if !is_bare(query) || !is_plain(select) || !self.may_be_flat(&select.from[0].relation) {
            return Ok(None);
        }
        let inits = self.init.as_ref().map_or(0, |init| init.plans.len());
        let (around, aggregates) = (std::mem::take(&mut self.locking), self.aggregates.take());
        let flat = self.flat(select);
        self.locking = around;
        self.aggregates = aggregates;
        let Some((mut source, conditions)) = flat? else {
            if let Some(init) = &mut self.init {
                init.plans.truncate(inits);
            }
            self.not_flat.insert(std::ptr::from_ref(query).addr());
            return Ok(None);
        };
        source.name = alias.to_owned();
        rename(&mut source, names.to_vec())?;
        Ok(Some((source, conditions)))
    }

    /// Whether what a subquery selects from may turn out to be a table: asked before anything in it is bound, which would be bound again in vain
    /// by each subquery around it.
    fn may_be_flat(&self, relation: &TableFactor) -> bool {
        match relation {
            TableFactor::Table { args, .. } => args.is_none(),
            TableFactor::Derived { lateral: false, subquery, .. } => match subquery.body.as_ref() {
                SetExpr::Select(select) if is_bare(subquery) && is_plain(select) => {
                    let is_known = self.not_flat.contains(&std::ptr::from_ref(subquery.as_ref()).addr());
                    !is_known && self.may_be_flat(&select.from[0].relation)
                }
                _ => false,
            },
            TableFactor::NestedJoin { table_with_joins, .. } => self.may_be_flat(&table_with_joins.relation),
            _ => false,
        }
    }

    /// The table as the SELECT shows it, and what must hold of its rows.
    fn flat(&mut self, select: &Select) -> Bind<Option<(ScopeSource, Vec<Expr>)>> {
        let mut inner = From::default();
        self.factor(&select.from[0].relation, &mut inner)?;
        let [source] = inner.scope.sources.as_slice() else { return Ok(None) };
        let Some(table) = source.table.clone() else { return Ok(None) };
        let Some(columns) = shown(self, &select.projection, &inner.scope) else { return Ok(None) };
        let mut conditions = std::mem::take(&mut inner.conditions);
        if let Some(selection) = &select.selection {
            conditions.extend(conjuncts(self.condition(selection, "WHERE", &inner.scope)?));
        }
        let hidden = |column: &ScopeColumn| ScopeColumn::new(String::new(), column.ty);
        let mut all: Vec<ScopeColumn> = source.columns.iter().map(hidden).collect();
        for (at, name) in columns {
            all[usize::from(at)].name = name;
        }
        let source = ScopeSource { table: Some(table), derived: true, ..ScopeSource::of_columns(String::new(), all) };
        Ok(Some((source, conditions)))
    }

    /// A subquery in FROM with the locking clauses of the query around it, where some are for it.
    pub(crate) fn locked_derived(&self, query: &ast::Query, alias: &str) -> Option<ast::Query> {
        let locks = locks_for(&self.locking, alias);
        if locks.is_empty() || matches!(query.body.as_ref(), SetExpr::Values(_)) {
            return None;
        }
        let mut locked = query.clone();
        locked.locks.extend(locks);
        Some(locked)
    }
}

/// The clauses that lock the rows of a subquery called so.
pub fn locks_for(clauses: &[LockClause], alias: &str) -> Vec<LockClause> {
    let is_for = |clause: &&LockClause| {
        let (_, of) = locking(clause);
        of.is_empty() || of.iter().any(|name| fold(name) == alias)
    };
    clauses.iter().filter(is_for).map(locking_all).collect()
}

/// Whether it is `SELECT columns FROM one [WHERE condition]`.
fn is_plain(select: &Select) -> bool {
    let is_one = matches!(select.from.as_slice(), [one] if one.joins.is_empty());
    is_one
        && !has_group_by(select)
        && select.distinct.is_none()
        && select.top.is_none()
        && select.having.is_none()
        && select.into.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty()
        && select.lateral_views.is_empty()
}

/// The columns that are shown, in the table's order, each once; `None`: there is more to it.
fn shown(binder: &Binder<'_>, projection: &[SelectItem], scope: &Scope) -> Option<Vec<(u16, String)>> {
    let column = |ast: &ast::Expr| {
        let found = match ast {
            ast::Expr::Identifier(ident) => scope.column(&fold(ident)).ok()?,
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [source, name] => scope.qualified(&SourceName::bare(fold(source)), &fold(name)).ok()?,
                [namespace, source, name] => {
                    let relation = RelationName { namespace: Some(fold(namespace)), name: fold(source) };
                    scope.qualified(&binder.source_name(relation), &fold(name)).ok()?
                }
                _ => return None,
            },
            _ => return None,
        };
        Some((found.column, scope.sources[0].columns[usize::from(found.column)].name.clone()))
    };
    let mut columns: Vec<(u16, String)> = Vec::new();
    for item in projection {
        match item {
            SelectItem::UnnamedExpr(ast) => columns.push(column(ast)?),
            SelectItem::ExprWithAlias { expr, alias } => columns.push((column(expr)?.0, fold(alias))),
            SelectItem::Wildcard(options) if *options == ast::WildcardAdditionalOptions::default() => {
                columns.extend(
                    scope
                        .all()
                        .iter()
                        .map(|found| (found.column, scope.sources[0].columns[usize::from(found.column)].name.clone())),
                );
            }
            _ => return None,
        }
    }
    columns.is_sorted_by(|a, b| a.0 < b.0).then_some(columns)
}
