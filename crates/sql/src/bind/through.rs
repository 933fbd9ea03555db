//! What does a change of a view change? The one table whose rows the view shows, through the view's names and conditions.
//!
//! 1. A view is changed through where each of its rows is one row of a table: what PostgreSQL calls automatically updatable. Its columns are
//!    columns of the table, or computed: these are read and never set.
//! 2. UPDATE and DELETE find rows that the view shows. INSERT may add one that it does not, unless the view has a check option.

use super::names::RelationName;
use super::query::{has_group_by, has_own_call, is_aggregate};
use super::scope::{Found, Scope, ScopeColumn, ScopeSource, SourceName, fold};
use super::{Bind, Binder, Refusal};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::parse;
use freshet_engine::catalog::{CheckOption, Schema, Table, View};
use freshet_engine::schema::Type;
use sqlparser::ast::{self, ObjectName, SelectItem, SetExpr, TableFactor};
use std::sync::Arc;

/// The table behind a view.
#[derive(Clone, Debug)]
pub struct Through {
    pub table: Arc<Table>,
    /// The view that the statement names, and what it does with it: `insert into`.
    pub view: String,
    pub command: String,
    /// The view's columns in their order, and the table's; those behind all of the table's are computed.
    pub columns: Vec<(String, u16)>,
    pub computed: Vec<(Expr, Type)>,
    /// What the view asks of the table's rows.
    pub conditions: Vec<(ast::Expr, Scope)>,
    /// What columns of the table are given by the views, where an INSERT leaves them out.
    pub defaults: Vec<(u16, String)>,
    /// Those of them that the outermost view says itself: an UPDATE to DEFAULT asks no other.
    pub own_defaults: Vec<u16>,
    /// What must hold of rows that are written: views with their conditions, the innermost first.
    pub checks: Vec<(String, ast::Expr, Scope)>,
}

impl Through {
    /// The table's row under the view's names.
    pub fn scope(&self, name: String) -> Scope {
        let own = |at: usize| self.columns.iter().find(|(_, column)| usize::from(*column) == at);
        let columns = self.table.def.columns.iter().enumerate();
        let columns = columns.map(|(at, c)| ScopeColumn::new(own(at).map(|c| c.0.clone()).unwrap_or_default(), c.ty));
        let computed = self.computed.iter().enumerate().map(|(at, (_, ty))| {
            let name = own(self.table.def.columns.len() + at).map(|c| c.0.clone()).unwrap_or_default();
            ScopeColumn { is_computed: true, ..ScopeColumn::new(name, *ty) }
        });
        let columns: Vec<ScopeColumn> = columns.chain(computed).collect();
        let shown = |&(_, column): &(String, u16)| Found { source: 0, column, ty: columns[usize::from(column)].ty };
        let first = self.columns.iter().map(shown).collect();
        let computed = self.computed.iter().map(|(expr, _)| expr.clone()).collect();
        let table = Some(self.table.clone());
        let source = ScopeSource { table, computed, ..ScopeSource::of_columns(name, columns) };
        Scope { sources: vec![source], first, ..Scope::default() }
    }

    /// 0A000 for a column that is none of the table's.
    pub fn check_set(&self, column: u16) -> Result<(), SqlError> {
        if usize::from(column) < self.table.def.columns.len() {
            return Ok(());
        }
        let name = self.columns.iter().find(|(_, of)| *of == column).map_or("", |(name, _)| name.as_str());
        let verb = if self.command == "update" { "update" } else { "insert into" };
        let message = format!("cannot {verb} column \"{name}\" of view \"{}\"", self.view);
        let detail = "View columns that are not columns of their base relation are not updatable.";
        Err(SqlError::new("0A000", message).with_detail(detail))
    }
}

impl Binder<'_> {
    /// The table behind the view of this name; `None`: it is no view's name. `command`: as messages call it, `insert into`.
    pub fn through(&mut self, name: &ObjectName, command: &str) -> Bind<Option<Through>> {
        let wanted = RelationName::of(name)?;
        match wanted.view(self.schema) {
            Some(view) if wanted.table(self.schema).is_none() => {
                let mut behind = self.behind(view, command, false)?;
                behind.view.clone_from(&view.def.name);
                command.clone_into(&mut behind.command);
                Ok(Some(behind))
            }
            _ => Ok(None),
        }
    }

    /// `cascaded`: a view above checks what is written by this one's condition too.
    fn behind(&mut self, view: &View, command: &str, cascaded: bool) -> Bind<Through> {
        let cascaded = cascaded || view.def.check == Some(CheckOption::Cascaded);
        let refused = |detail: &str| -> Refusal {
            SqlError::new("55000", format!("cannot {command} view \"{}\"", view.def.name)).with_detail(detail).into()
        };
        let query = parse(&view.def.query)?.query().ok_or_else(|| refused("It is no query."))?;
        let select =
            plain_select(&query).map_err(|what| refused(&format!("{what} are not automatically updatable.")))?;
        let one = "Views that do not select from a single table or view are not automatically updatable.";
        let [ast::TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins }] =
            select.from.as_slice()
        else {
            return Err(refused(one));
        };
        if !joins.is_empty() {
            return Err(refused(one));
        }
        let below = RelationName::of(name)?;
        let mut behind = match below.view(self.schema) {
            Some(inner) if below.table(self.schema).is_none() => self.behind(inner, command, cascaded)?,
            _ => of_table(self.relation(name)?),
        };
        let named = alias.iter().flat_map(|alias| &alias.columns);
        for (column, name) in behind.columns.iter_mut().zip(named) {
            column.0 = fold(&name.name);
        }
        let alias =
            alias.as_ref().map_or_else(|| Ok(RelationName::of(name)?.name), |a| Ok::<_, SqlError>(fold(&a.name)))?;
        let scope = behind.scope(alias);
        if let Some(item) = select.projection.iter().find(|item| has_aggregate(item)) {
            let is_window = has_own_call(item, |function| function.over.is_some());
            let what = if is_window { "window functions" } else { "aggregate functions" };
            return Err(refused(&format!("Views that return {what} are not automatically updatable.")));
        }
        let mut columns = Vec::with_capacity(view.def.columns.len());
        let mut computed = Vec::new();
        for ((shown, _), item) in view.def.columns.iter().zip(&select.projection) {
            let column = match self.plain_item(item, &scope) {
                Some(column) if usize::from(column) < behind.table.def.columns.len() => column,
                _ => {
                    let what = format!("a change of view {}, which has such computed columns", view.def.name);
                    let value = self.computed_item(item, &scope).ok_or_else(|| SqlError::unsupported(what))?;
                    computed.push(value);
                    (behind.table.def.columns.len() + computed.len() - 1) as u16
                }
            };
            columns.push((shown.clone(), column));
        }
        if command != "delete from" && columns.len() == computed.len() {
            return Err(refused("Views that have no updatable columns are not automatically updatable."));
        }
        behind.computed = computed;
        if select.projection.len() != view.def.columns.len() {
            return Err(SqlError::unsupported(format!("a change of view {}", view.def.name)).into());
        }
        behind.own_defaults.clear();
        for (shown, text) in &view.def.defaults {
            let column = columns[usize::from(*shown)].1;
            if usize::from(column) >= behind.table.def.columns.len() {
                continue;
            }
            behind.own_defaults.push(column);
            behind.defaults.retain(|(other, _)| *other != column);
            behind.defaults.push((column, text.clone()));
        }
        behind.columns = columns;
        if let Some(selection) = &select.selection {
            if cascaded || view.def.check.is_some() {
                behind.checks.push((view.def.name.clone(), selection.clone(), scope.clone()));
            }
            behind.conditions.push((selection.clone(), scope));
        }
        Ok(behind)
    }

    /// What an output is computed by.
    fn computed_item(&mut self, item: &SelectItem, scope: &Scope) -> Option<(Expr, Type)> {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return None };
        let bound = self.bind(expr, scope).and_then(|bound| self.known(bound)).ok()?;
        Some((bound.expr, bound.ty.unwrap_or(Type::Text)))
    }

    /// The column that an output is, if it is one.
    fn plain_item(&self, item: &SelectItem, scope: &Scope) -> Option<u16> {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return None };
        let found = match expr {
            ast::Expr::Identifier(name) => scope.column(&fold(name)),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [source, name] => scope.qualified(&SourceName::bare(fold(source)), &fold(name)),
                _ => return None,
            },
            _ => return None,
        };
        found.ok().map(|found| found.column)
    }
}

/// Whether the view is changed through.
pub fn is_changeable(view: &View, schema: &Arc<Schema>) -> bool {
    Binder::new("", schema, &[]).behind(view, "update", false).is_ok()
}

/// Whether the view's column of this number, from 1, is one of the table behind it.
pub fn is_settable(view: &View, column: usize, schema: &Arc<Schema>) -> bool {
    let Ok(behind) = Binder::new("", schema, &[]).behind(view, "update", false) else { return false };
    let found = column.checked_sub(1).and_then(|at| behind.columns.get(at));
    found.is_some_and(|(_, column)| usize::from(*column) < behind.table.def.columns.len())
}

fn of_table(table: Arc<Table>) -> Through {
    let columns = table.def.columns.iter().enumerate().filter(|(_, c)| c.is_visible());
    let columns = columns.map(|(at, c)| (c.name.clone(), at as u16)).collect();
    let (defaults, own_defaults) = (Vec::new(), Vec::new());
    let (conditions, computed, checks) = (Vec::new(), Vec::new(), Vec::new());
    let (view, command) = (String::new(), String::new());
    Through { table, view, command, columns, computed, conditions, defaults, own_defaults, checks }
}

/// 0A000 for a query whose view's rows are not those of a table, so that there is nothing to check when one is written.
pub fn check_changeable(query: &ast::Query) -> Result<(), SqlError> {
    let reads_one = |select: &ast::Select| matches!(select.from.as_slice(), [ast::TableWithJoins { relation: TableFactor::Table { args: None, .. }, joins }] if joins.is_empty());
    let refused = match plain_select(query) {
        Ok(select) if !reads_one(select) => "Views that do not select from a single table or view",
        Ok(select) if select.projection.iter().any(has_aggregate) => "Views that return aggregate functions",
        Ok(select) if !select.projection.iter().any(may_be_column) => "Views that have no updatable columns",
        Ok(_) => return Ok(()),
        Err(what) => what,
    };
    let message = "WITH CHECK OPTION is supported only on automatically updatable views";
    Err(SqlError::new("0A000", message).with_hint(format!("{refused} are not automatically updatable.")))
}

/// An aggregate or a window function, but for those of subqueries.
fn has_aggregate(item: &SelectItem) -> bool {
    has_own_call(item, |function| is_aggregate(function) || function.over.is_some())
}

fn may_be_column(item: &SelectItem) -> bool {
    use ast::Expr::{CompoundIdentifier, Identifier};
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(expr, Identifier(_) | CompoundIdentifier(_))
        }
        _ => true,
    }
}

/// The SELECT of a view that can be changed through, but for what it reads; else what such views contain.
fn plain_select(query: &ast::Query) -> Result<&ast::Select, &'static str> {
    let ast::Query { with, body, limit_clause, fetch, .. } = query;
    if with.is_some() {
        return Err("Views containing WITH");
    }
    if limit_clause.is_some() || fetch.is_some() {
        return Err("Views containing LIMIT or OFFSET");
    }
    let select = match body.as_ref() {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => return Err("Views containing UNION, INTERSECT, or EXCEPT"),
        _ => return Err("Views that do not select from a single table or view"),
    };
    if select.distinct.is_some() {
        return Err("Views containing DISTINCT");
    }
    if has_group_by(select) {
        return Err("Views containing GROUP BY");
    }
    if select.having.is_some() {
        return Err("Views containing HAVING");
    }
    Ok(select)
}
