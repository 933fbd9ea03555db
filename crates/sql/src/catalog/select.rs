//! How does PostgreSQL write a view's query? Its clauses on lines of their own, each column with its source's name.
//!
//! Every keyword stands at a distance from the left that PostgreSQL gives it: columns 4, FROM 3, WHERE, GROUP BY and ORDER BY 2, HAVING and LIMIT 1,
//! joins 5; a query within another one 8 further.
//!
//! WITH, windows and subqueries within expressions are not known here: then the text is shown as it was given.

use super::deparse::{Deparser, Style};
use super::{Catalog, Relation};
use crate::bind::names::RelationName;
use crate::bind::scope::{Scope, ScopeColumn, ScopeSource, fold};
use crate::value::quoted_ident;
use freshet_engine::catalog::View;
use freshet_engine::schema::Type;
use sqlparser::ast::{
    self, Distinct, Expr, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr,
    SetOperator, SetQuantifier, TableFactor, Value,
};

/// The text of a view's query, with a semicolon.
pub fn view_query(catalog: &Catalog, view: &View, style: Style) -> Option<String> {
    let ast = crate::parse::parse_expression(&format!("({})", view.def.query)).ok()?;
    let Expr::Subquery(query) = ast else { return None };
    let names: Vec<String> = view.def.columns.iter().map(|(name, _)| name.clone()).collect();
    let text = Lister { catalog, style }.query(&query, 0, &names)?;
    Some(format!("{text};"))
}

struct Lister<'a> {
    catalog: &'a Catalog,
    style: Style,
}

/// A line that begins so far from the left.
fn line(blanks: usize, text: &str) -> String {
    format!("\n{}{text}", " ".repeat(blanks))
}

/// A part of FROM: its text, and whether it is a join.
struct Part {
    text: String,
    is_join: bool,
}

impl Lister<'_> {
    fn query(&self, query: &Query, base: usize, names: &[String]) -> Option<String> {
        let Query { with: None, body, order_by, limit_clause, fetch, locks, .. } = query else { return None };
        if !locks.is_empty() {
            return None;
        }
        let mut out = match body.as_ref() {
            SetExpr::Select(select) => {
                let (text, scope) = self.select(select, base, names)?;
                text + &self.order(order_by.as_ref(), select, &scope, base, names)?
            }
            SetExpr::SetOperation { .. } if order_by.is_none() => self.operation(body, base, names)?,
            _ => return None,
        };
        let (mut limit, mut offset) = (None, None);
        match limit_clause {
            None => {}
            Some(LimitClause::LimitOffset { limit: l, offset: o, limit_by }) if limit_by.is_empty() => {
                (limit, offset) = (l.as_ref(), o.as_ref().map(|o| &o.value));
            }
            Some(_) => return None,
        }
        if let Some(fetch) = fetch {
            if fetch.with_ties || fetch.percent {
                return None;
            }
            limit = fetch.quantity.as_ref();
        }
        let empty = Scope::default();
        for (word, count) in [(" OFFSET ", offset), (" LIMIT ", limit)] {
            if let Some(count) = count {
                out += &line(base, word);
                out += &self.deparser(&empty).shown(count, Some(Type::Int8))?;
            }
        }
        Some(out)
    }

    fn operation(&self, body: &SetExpr, base: usize, names: &[String]) -> Option<String> {
        match body {
            SetExpr::Select(select) => Some(self.select(select, base, names)?.0),
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                // What is grouped by parentheses would need them again.
                if matches!(right.as_ref(), SetExpr::SetOperation { .. }) {
                    return None;
                }
                let word = match op {
                    SetOperator::Union => "UNION",
                    SetOperator::Except => "EXCEPT",
                    SetOperator::Intersect => "INTERSECT",
                    SetOperator::Minus => return None,
                };
                let all = match set_quantifier {
                    SetQuantifier::All => " ALL",
                    SetQuantifier::None | SetQuantifier::Distinct => "",
                    _ => return None,
                };
                let (left, right) = (self.operation(left, base, names)?, self.operation(right, base, names)?);
                Some(format!("{left}{}\n{}{right}", line(base, &format!("{word}{all}")), " ".repeat(base)))
            }
            _ => None,
        }
    }

    fn deparser<'s>(&'s self, scope: &'s Scope) -> Deparser<'s> {
        Deparser { catalog: self.catalog, scope, qualified: true, style: self.style }
    }

    fn select(&self, select: &Select, base: usize, names: &[String]) -> Option<(String, Scope)> {
        let Select { distinct, projection, from, selection, group_by, having, .. } = select;
        let is_plain = select.named_window.is_empty() && select.qualify.is_none() && select.into.is_none();
        if !is_plain || select.top.is_some() || !select.lateral_views.is_empty() {
            return None;
        }
        let mut scope = Scope::default();
        let mut sources = Vec::new();
        for item in from {
            sources.push(self.joined(item, base, &mut scope)?.text);
        }
        let mut out = " SELECT".to_owned();
        match distinct {
            None | Some(Distinct::All) => {}
            Some(Distinct::Distinct) => out += " DISTINCT",
            Some(_) => return None,
        }
        let items = self.items(projection, &scope, base, names)?;
        for (i, item) in items.iter().enumerate() {
            let starts_line = item.starts_with('\n');
            out += if i > 0 { "," } else { "" };
            out += &match (i, starts_line) {
                (_, true) => String::new(),
                (0, false) => " ".to_owned(),
                _ => line(base + 4, ""),
            };
            out += item;
        }
        if !sources.is_empty() {
            out += &line(base + 2, " FROM ");
            out += &sources.join(&format!(",{}", line(base + 4, "")));
        }
        let deparser = self.deparser(&scope);
        if let Some(condition) = selection {
            out += &line(base + 1, " WHERE ");
            out += &deparser.shown(condition, Some(Type::Bool))?;
        }
        match group_by {
            GroupByExpr::Expressions(list, modifiers) if modifiers.is_empty() => {
                if !list.is_empty() {
                    let keys = list.iter().map(|key| self.key(key, projection, &scope, names, false));
                    out += &line(base + 1, " GROUP BY ");
                    out += &keys.collect::<Option<Vec<_>>>()?.join(", ");
                }
            }
            _ => return None,
        }
        if let Some(condition) = having {
            out += &line(base, " HAVING ");
            out += &deparser.shown(condition, Some(Type::Bool))?;
        }
        Some((out, scope))
    }

    fn items(&self, projection: &[SelectItem], scope: &Scope, base: usize, names: &[String]) -> Option<Vec<String>> {
        if projection.len() != names.len() {
            return None;
        }
        let deparser = self.deparser(scope);
        let item = |(item, name): (&SelectItem, &String)| {
            let expr = output(item)?;
            let text = deparser.shown_at(expr, base + 8)?;
            let own = match expr {
                Expr::Identifier(ident) => fold(ident),
                Expr::CompoundIdentifier(parts) => fold(parts.last()?),
                _ => "?column?".to_owned(),
            };
            Some(if own == *name { text } else { format!("{text} AS {}", quoted_ident(name)) })
        };
        projection.iter().zip(names).map(item).collect()
    }

    /// A key of GROUP BY or ORDER BY: an output by its number or name, or an expression. A name alone is a column for the one before it is an
    /// output, and an output for the other before it is a column (`by_output`).
    fn key(
        &self,
        key: &Expr,
        projection: &[SelectItem],
        scope: &Scope,
        names: &[String],
        by_output: bool,
    ) -> Option<String> {
        let place = match key {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => digits.parse::<usize>().ok()?.checked_sub(1),
                _ => return None,
            },
            Expr::Identifier(ident) if by_output || scope.column(&fold(ident)).is_err() => {
                let name = fold(ident);
                let is_own = |(item, shown): (&SelectItem, &String)| match item {
                    SelectItem::ExprWithAlias { alias, .. } => fold(alias) == name,
                    SelectItem::UnnamedExpr(Expr::Identifier(own)) => fold(own) == name,
                    SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                        parts.last().map(fold) == Some(name.clone())
                    }
                    _ => *shown == name,
                };
                projection.iter().zip(names).position(is_own)
            }
            _ => None,
        };
        let expr = match place {
            Some(at) => output(projection.get(at)?)?,
            None => key,
        };
        let (text, is_call) = self.deparser(scope).shown_key(expr)?;
        let is_name = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        Some(if is_call || self.style.pretty && !is_name { format!("({text})") } else { text })
    }

    fn order(
        &self,
        order_by: Option<&ast::OrderBy>,
        select: &Select,
        scope: &Scope,
        base: usize,
        names: &[String],
    ) -> Option<String> {
        let Some(order_by) = order_by else { return Some(String::new()) };
        let ast::OrderByKind::Expressions(list) = &order_by.kind else { return None };
        let mut keys = Vec::with_capacity(list.len());
        for by in list {
            let key = self.key(&by.expr, &select.projection, scope, names, true)?;
            let descending = by.options.asc == Some(false);
            let nulls = match by.options.nulls_first {
                Some(first) if first != descending => {
                    if first {
                        " NULLS FIRST"
                    } else {
                        " NULLS LAST"
                    }
                }
                _ => "",
            };
            keys.push(format!("{key}{}{nulls}", if descending { " DESC" } else { "" }));
        }
        Some(line(base + 1, " ORDER BY ") + &keys.join(", "))
    }

    // ---- FROM

    fn joined(&self, item: &ast::TableWithJoins, base: usize, scope: &mut Scope) -> Option<Part> {
        let mut part = self.factor(&item.relation, base, scope)?;
        for join in &item.joins {
            part = self.join(part, join, base, scope)?;
        }
        Some(part)
    }

    fn factor(&self, factor: &TableFactor, base: usize, scope: &mut Scope) -> Option<Part> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(table_with_joins, base, scope),
            TableFactor::Table { name, alias, args: None, .. } => {
                let relation = self.relation(&RelationName::of(name).ok()?)?;
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    return None;
                }
                let shown = self.catalog.relation_name(relation);
                let alias = alias.as_ref().map(|alias| fold(&alias.name));
                let text = match &alias {
                    Some(alias) if alias != relation.name() => format!("{shown} {}", quoted_ident(alias)),
                    _ => shown,
                };
                scope.add(source_of(relation, alias)?).ok()?;
                Some(Part { text, is_join: false })
            }
            TableFactor::Derived { lateral: false, subquery, alias: Some(alias), .. } if alias.columns.is_empty() => {
                let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
                let names = output_names(&select.projection)?;
                let text = self.query(subquery, base + 8, &names)?;
                let columns = self.columns(select, &names, base)?;
                let name = fold(&alias.name);
                let text = format!("({text}) {}", quoted_ident(&name));
                scope.add(ScopeSource::of_columns(name, columns)).ok()?;
                Some(Part { text, is_join: false })
            }
            _ => None,
        }
    }

    /// The columns that a query within FROM gives.
    fn columns(&self, select: &Select, names: &[String], base: usize) -> Option<Vec<ScopeColumn>> {
        let (_, scope) = self.select(select, base, names)?;
        let deparser = self.deparser(&scope);
        let column = |(item, name): (&SelectItem, &String)| {
            let ty = deparser.type_of(output(item)?)?.unwrap_or(Type::Text);
            Some(ScopeColumn::new(name.clone(), ty))
        };
        select.projection.iter().zip(names).map(column).collect()
    }

    fn relation(&self, name: &RelationName) -> Option<Relation<'_>> {
        let schema = &self.catalog.schema;
        let table = name.table(schema).map(Relation::Table);
        table.or_else(|| name.view(schema).map(Relation::View))
    }

    fn join(&self, left: Part, join: &ast::Join, base: usize, scope: &mut Scope) -> Option<Part> {
        let right = self.factor(&join.relation, base, scope)?;
        if right.is_join {
            return None;
        }
        let (word, constraint) = match &join.join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) => ("JOIN", c),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => ("LEFT JOIN", c),
            JoinOperator::Right(c) | JoinOperator::RightOuter(c) => ("RIGHT JOIN", c),
            JoinOperator::FullOuter(c) => ("FULL JOIN", c),
            JoinOperator::CrossJoin(c) => ("CROSS JOIN", c),
            _ => return None,
        };
        let mut text = format!("{}{}", left.text, line(base + 4, &format!(" {word} {}", right.text)));
        match constraint {
            JoinConstraint::On(condition) => {
                let condition = self.deparser(scope).shown(condition, Some(Type::Bool))?;
                text += &if self.style.pretty { format!(" ON {condition}") } else { format!(" ON ({condition})") };
            }
            JoinConstraint::None if word == "CROSS JOIN" => {}
            _ => return None,
        }
        let text = if self.style.pretty { text } else { format!("({text})") };
        Some(Part { text, is_join: true })
    }
}

fn source_of(relation: Relation<'_>, alias: Option<String>) -> Option<ScopeSource> {
    let name = alias.unwrap_or_else(|| relation.name().to_owned());
    match relation {
        Relation::Table(table) => Some(ScopeSource { namespace: None, ..ScopeSource::of_table(name, table) }),
        Relation::View(view) => {
            let column = |(name, ty): &(String, Option<Type>)| ScopeColumn::new(name.clone(), ty.unwrap_or(Type::Text));
            let columns = view.def.columns.iter().map(column).collect();
            Some(ScopeSource::of_columns(name, columns))
        }
        _ => None,
    }
}

fn output(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn output_names(projection: &[SelectItem]) -> Option<Vec<String>> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(fold(ident)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(fold),
        _ => None,
    };
    projection.iter().map(name).collect()
}
