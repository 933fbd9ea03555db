//! What does a SELECT ask for? Projection, grouping, order and limits over FROM.

use super::expr::Bound;
use super::from::{From, conjuncts, is_bare, plan_loops, refuse_rescans};
use super::more::row_items;
use super::names::RelationName;
use super::record::{RECORD, by_fields, fields_of, must_compare, named_fields, row_columns};
use super::scope::{Scope, ScopeColumn, SourceName, fold};
use super::{Bind, Binder, PLACEHOLDERS, Refusal, not_compiled};
use crate::compiled::access::{Access, WantedOrder};
use crate::compiled::aggregate::{Aggregate, AggregateFunction, Ends, Grouping};
use crate::compiled::query::{LockWait, Query, RowLocking, SortKey, Step};
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{RowLock, distinct_keys, locking, row_of_fields, span_position};
use crate::rows::Column;
use crate::value::aggregate::Gathered;
use crate::value::cast::CastContext;
use crate::value::pgtype;
use freshet_engine::catalog::Schema;
use freshet_engine::schema::Type;
use freshet_engine::txn::Strength;
use sqlparser::ast::{
    self, Distinct, GroupByExpr, LimitClause, LockClause, NonBlock, OrderByKind, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned, Top, TopQuantity, Visit, Visitor, WildcardAdditionalOptions,
};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A column of the result before it is planned.
pub struct Item {
    pub expr: Expr,
    pub ty: Type,
    pub name: String,
    /// As `Column`'s.
    pub is_computed: bool,
}

impl Item {
    fn of_column(expr: Expr, column: &ScopeColumn) -> Item {
        Item { expr, ty: column.ty, name: column.name.clone(), is_computed: column.is_computed }
    }
}

/// One ORDER BY key.
pub struct OrderItem {
    pub expr: Expr,
    pub order: KeyOrder,
    /// NULLS FIRST or LAST is what an index gives by itself.
    plain_nulls: bool,
}

/// What follows the body of a query.
struct Tail<'a> {
    order: Vec<&'a ast::OrderByExpr>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    locks: &'a [LockClause],
}

/// Which outputs tell rows apart or put them in order: where they are literals these are text, whatever the rows are for.
pub fn settled_outputs(select: &Select, order: &[&ast::OrderByExpr]) -> Vec<bool> {
    let grouped: &[ast::Expr] = match &select.group_by {
        GroupByExpr::Expressions(list, _) => list,
        GroupByExpr::All(_) => &[],
    };
    let ordered = order.iter().map(|by| &by.expr);
    let number = |expr: &ast::Expr| match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(number, _) => number.to_string().parse::<usize>().ok(),
            _ => None,
        },
        _ => None,
    };
    let numbers: Vec<usize> = ordered.clone().chain(grouped).filter_map(number).collect();
    let is_named = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => {
            ordered.clone().any(|expr| matches!(expr, ast::Expr::Identifier(name) if fold(name) == fold(alias)))
        }
        _ => false,
    };
    let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
    let items = select.projection.iter().enumerate();
    items.map(|(at, item)| is_distinct || numbers.contains(&(at + 1)) || is_named(item)).collect()
}

/// A source of the query itself, or the columns of the nearest one around it that is called so, with what this query names each by.
enum Starred {
    Own(u16),
    Around(Vec<(String, ast::Expr)>),
}

fn qualified(source: &RelationName, column: &str) -> ast::Expr {
    let parts = source.namespace.as_deref().into_iter().chain([source.name.as_str(), column]);
    ast::Expr::CompoundIdentifier(parts.map(|name| ast::Ident::with_quote('"', name)).collect())
}

impl Binder<'_> {
    pub fn query(&mut self, query: &ast::Query) -> Bind<Query> {
        if let SetExpr::Query(inner) = query.body.as_ref()
            && is_bare(query)
        {
            return self.query(inner);
        }
        let outer = self.aggregates.take();
        let bound = self.query_inner(query);
        self.aggregates = outer;
        bound
    }

    fn query_inner(&mut self, query: &ast::Query) -> Bind<Query> {
        let ast::Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if with.is_some() {
            return not_compiled("WITH");
        }
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty() {
            return Err(SqlError::unsupported("a clause of another dialect").into());
        }
        let order = order_items(order_by.as_ref())?;
        let (limit, offset) = self.limits(limit_clause.as_ref(), fetch.as_ref())?;
        let tail = Tail { order, limit, offset, locks };
        match body.as_ref() {
            SetExpr::Select(select) => self.select(select, tail),
            SetExpr::Values(values) => self.values_query(values, tail),
            SetExpr::SetOperation { .. } if !locks.is_empty() => {
                Err(locks_nothing(&locks[0], "UNION/INTERSECT/EXCEPT"))
            }
            SetExpr::Query(_) => not_compiled("a query in parentheses with clauses after it"),
            SetExpr::SetOperation { op, .. } => not_compiled(op.to_string()),
            SetExpr::Table(_) => not_compiled("TABLE"),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(SqlError::unsupported("a change within a query").into())
            }
        }
    }

    pub fn limits(
        &mut self,
        clause: Option<&LimitClause>,
        fetch: Option<&ast::Fetch>,
    ) -> Bind<(Option<Expr>, Option<Expr>)> {
        let (mut limit, offset) = match clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let limit = limit.as_ref().map(|e| self.row_count(e)).transpose()?;
                let offset = offset.as_ref().map(|o| self.row_count(&o.value));
                (limit, offset.transpose()?)
            }
            Some(other) => {
                return Err(SqlError::new("42601", format!("{other} is not PostgreSQL's")).into());
            }
        };
        if let Some(fetch) = fetch {
            let ast::Fetch { with_ties, percent, quantity } = fetch;
            if *with_ties || *percent {
                return not_compiled(format!("{fetch}"));
            }
            if limit.is_some() {
                return Err(SqlError::new("42601", "multiple LIMIT clauses not allowed").into());
            }
            limit = Some(match quantity {
                Some(quantity) => self.row_count(quantity)?,
                None => Expr::Const(crate::value::Datum::Int(1)),
            });
        }
        Ok((limit, offset))
    }

    fn values_query(&mut self, values: &ast::Values, tail: Tail<'_>) -> Bind<Query> {
        if let Some(clause) = tail.locks.first() {
            let message = format!("FOR {} cannot be applied to VALUES", locking(clause).0.words());
            return Err(SqlError::new("0A000", message).into());
        }
        if !tail.order.is_empty() {
            return not_compiled("VALUES with ORDER BY");
        }
        let (rows, types) = self.value_rows(values)?;
        let columns: Vec<Column> = types
            .iter()
            .enumerate()
            .map(|(i, &ty)| Column { is_computed: true, ..Column::new(&format!("column{}", i + 1), ty) })
            .collect();
        let rows = Query::of_rows("*VALUES*", rows, columns);
        Ok(Query { limit: tail.limit, offset: tail.offset, ..rows })
    }

    fn select(&mut self, select: &Select, mut tail: Tail<'_>) -> Bind<Query> {
        let Select {
            select_token: _,
            optimizer_hints: _,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        if into.is_some() {
            return Err(SqlError::new("42601", "SELECT ... INTO is not allowed here").into());
        }
        if select_modifiers.as_ref().is_some_and(|m| m.is_any_set())
            || exclude.is_some()
            || !lateral_views.is_empty()
            || prewhere.is_some()
            || !connect_by.is_empty()
            || !cluster_by.is_empty()
            || !distribute_by.is_empty()
            || !sort_by.is_empty()
            || qualify.is_some()
            || value_table_mode.is_some()
            || *flavor != SelectFlavor::Standard
        {
            return Err(SqlError::unsupported("a clause of another dialect").into());
        }
        if !named_window.is_empty() {
            return not_compiled("WINDOW");
        }
        let distinct = match distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => return not_compiled("DISTINCT ON"),
        };
        if let Some(top) = top {
            if tail.limit.is_some() {
                return Err(SqlError::new("42601", "TOP and LIMIT exclude each other").into());
            }
            tail.limit = Some(self.top(top)?);
        }

        let stored_types = std::mem::take(&mut self.output_types);
        let around = std::mem::replace(&mut self.locking, tail.locks.to_vec());
        let from = self.from(from);
        self.locking = around;
        let mut from = from?;
        let scope = from.scope.clone();
        let mut conditions = std::mem::take(&mut from.conditions);
        if let Some(selection) = selection {
            conditions.extend(conjuncts(self.condition(selection, "WHERE", &scope)?));
        }
        self.aggregates = Some(Vec::new());
        self.output_types = stored_types;
        self.settle_outputs(&settled_outputs(select, &tail.order));
        let mut items = self.items(projection, &scope)?;
        self.output_types = Vec::new();
        if distinct {
            if items.iter().any(|item| fields_of(&item.expr).is_some()) {
                return not_compiled("DISTINCT of rows");
            }
            items.iter().try_for_each(|item| must_compare(item.ty, "equality"))?;
        }
        let is_having = having.is_some();
        let having = having.as_ref().map(|h| self.condition(h, "HAVING", &scope)).transpose()?;
        let mut order = self.order(&tail.order, &items, distinct, &scope)?;
        let aggregates = self.aggregates.take().unwrap_or_default();
        let mut keys = self.group_keys(group_by, &items, &scope)?;
        let keys_given = keys.is_some();
        if let Some(keys) = &mut keys {
            let asked = items.iter().map(|i| &i.expr).chain(order.iter().map(|o| &o.expr)).chain(having.as_ref());
            add_dependents(keys, asked, &scope);
        }

        let has_aggregates = !aggregates.is_empty();
        let grouped = keys.is_some() || has_aggregates || having.is_some();
        let grouping = if grouped {
            let keys = keys.unwrap_or_default();
            let having = having.map(|h| over_groups(h, &keys, &aggregates, &scope)).transpose()?;
            for item in &mut items {
                let expr = std::mem::replace(&mut item.expr, Expr::NULL);
                item.expr = over_groups(expr, &keys, &aggregates, &scope)?;
            }
            for item in &mut order {
                let expr = std::mem::replace(&mut item.expr, Expr::NULL);
                item.expr = over_groups(expr, &keys, &aggregates, &scope)?;
            }
            Some(Grouping { keys, aggregates, having, ends: None })
        } else {
            None
        };
        if let Some(clause) = tail.locks.first() {
            let folds = Folds {
                distinct,
                grouped: keys_given,
                having: is_having,
                aggregates: has_aggregates,
                ..Folds::default()
            };
            folds.refuse_lock(clause)?;
        }
        let locks = self.locks(tail.locks, &scope, &from)?;
        self.assemble(from, conditions, items, order, grouping, distinct, tail, locks)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one SELECT, each of its own kind")]
    fn assemble(
        &mut self,
        mut from: From,
        conditions: Vec<Expr>,
        items: Vec<Item>,
        order: Vec<OrderItem>,
        grouping: Option<Grouping>,
        distinct: bool,
        tail: Tail<'_>,
        locks: Vec<RowLocking>,
    ) -> Bind<Query> {
        let end = grouping.as_ref().and_then(|grouping| wanted_end(grouping, &from));
        let wanted = match &end {
            Some(end) => Some(vec![(0, end.order)]),
            None if grouping.is_none() && !distinct => index_order(&order, &from),
            None => None,
        };
        let tables = from.tables();
        let widths = from.widths();
        let columns = items.iter().map(|item| Column {
            origin: match (&item.expr, &grouping) {
                (Expr::Column { source, column }, None) => {
                    tables[usize::from(*source)].as_ref().map(|t| (t.id.0, column + 1))
                }
                _ => None,
            },
            is_computed: item.is_computed,
            ..Column::new(&item.name, item.ty)
        });
        let columns: Arc<[Column]> = columns.collect();
        let recheck = if locks.is_empty() { Vec::new() } else { conditions.clone() };
        let mut loops = plan_loops(&mut from, conditions, wanted.as_deref().unwrap_or(&[]));
        self.note_estimates(&from.known);
        refuse_rescans(&loops)?;
        let is_at_end = end.as_ref().is_some_and(|end| loops.ordered && starts_at_end(&mut loops.steps, end));
        let in_order = order.is_empty()
            || (grouping.is_none() && !distinct && (loops.one_row || (wanted.is_some() && loops.ordered)));
        let sort: Vec<SortKey> = if in_order {
            Vec::new()
        } else {
            order.into_iter().map(|o| SortKey { expr: o.expr, order: o.order }).collect()
        };
        let mut query = Query {
            long_columns: Vec::new(),
            names: from.names(),
            tables,
            widths,
            steps: loops.steps,
            precondition: loops.precondition,
            grouping,
            output: items.into_iter().map(|item| item.expr).collect(),
            columns,
            distinct,
            orders: sort.iter().map(|key| key.order).collect(),
            sort,
            limit: tail.limit,
            offset: tail.offset,
            locks,
            recheck,
        };
        query.long_columns = looked_at(&query);
        if let Some(end) = end.filter(|_| is_at_end) {
            grouping_ends(&mut query, end);
        }
        Ok(query)
    }

    pub fn top(&mut self, top: &Top) -> Bind<Expr> {
        let Top { with_ties, percent, quantity } = top;
        if *with_ties || *percent {
            return not_compiled(format!("{top}"));
        }
        match quantity {
            Some(TopQuantity::Constant(n)) => {
                let n = i64::try_from(*n).unwrap_or(i64::MAX);
                Ok(Expr::Const(crate::value::Datum::Int(n)))
            }
            Some(TopQuantity::Expr(expr)) => self.row_count(expr),
            None => Err(SqlError::new("42601", "TOP needs a number").into()),
        }
    }

    /// The result's columns.
    pub fn items(&mut self, projection: &[SelectItem], scope: &Scope) -> Bind<Vec<Item>> {
        let mut items = Vec::with_capacity(projection.len());
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(ast::Expr::Function(function)) if row_of_fields(function).is_some() => {
                    let row = row_of_fields(function).expect("it was just seen");
                    self.fields(row, scope, &mut items)?;
                }
                SelectItem::UnnamedExpr(expr) => {
                    let name = column_name(expr);
                    items.push(self.item(expr, name, items.len(), scope)?);
                }
                SelectItem::ExprWithAlias { alias, .. } if alias.quote_style == Some('\'') => {
                    let error = SqlError::new("42601", format!("syntax error at or near \"{alias}\""));
                    return Err(error.at(span_position(self.sql, alias.span)).into());
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    items.push(self.item(expr, fold(alias), items.len(), scope)?);
                }
                SelectItem::Wildcard(options) => {
                    plain_wildcard(options)?;
                    if scope.sources.is_empty() {
                        return Err(SqlError::new("42601", "SELECT * with no tables specified is not valid").into());
                    }
                    for found in scope.all() {
                        let column = &scope.sources[usize::from(found.source)].columns[usize::from(found.column)];
                        items.push(Item::of_column(scope.expr(found), column));
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    plain_wildcard(options)?;
                    let source = match self.starred(name, scope)? {
                        Starred::Own(source) => source,
                        Starred::Around(columns) => {
                            for (column, expr) in columns {
                                items.push(self.item(&expr, column, usize::MAX, scope)?);
                            }
                            continue;
                        }
                    };
                    let ordered = self.through.is_some() && scope.is_first(source);
                    all_columns(scope, source, ordered, &mut items);
                }
                other => return not_compiled(format!("the output {other}")),
            }
        }
        // PostgreSQL's limit, which leaves room for what a plan adds.
        const ITEMS_MAX: usize = 1664;
        if items.len() > ITEMS_MAX {
            let message = format!("target lists can have at most {ITEMS_MAX} entries");
            return Err(SqlError::new("54011", message).into());
        }
        Ok(items)
    }

    /// Literals among these outputs are text.
    pub fn settle_outputs(&mut self, settled: &[bool]) {
        let types = self.output_types.iter_mut().zip(settled);
        types.filter(|(_, is_settled)| **is_settled).for_each(|(ty, _)| *ty = Type::Text);
    }

    /// Whose columns `name.*` means.
    fn starred(&self, name: &ast::ObjectName, scope: &Scope) -> Bind<Starred> {
        let name = self.source_name(RelationName::of(name)?);
        let error = match self.source_meant(&name, scope) {
            Ok(source) => return Ok(Starred::Own(source)),
            Err(error) => error,
        };
        let around = |name: &SourceName| self.beyond.and_then(|beyond| beyond.columns_around(name));
        let lenient = || around(&name.leniently()).filter(|_| self.is_kept);
        let columns = around(&name).or_else(lenient).ok_or(error)?;
        let named = columns.into_iter().map(|column| {
            let expr = qualified(&name.relation, &column);
            (column, expr)
        });
        Ok(Starred::Around(named.collect()))
    }

    /// The values of a row of VALUES: `t.*` is one for each column.
    pub(super) fn spread<'v>(&self, row: &'v [ast::Expr], scope: &Scope) -> Bind<Cow<'v, [ast::Expr]>> {
        if !row.iter().any(|value| matches!(value, ast::Expr::QualifiedWildcard(..))) {
            return Ok(Cow::Borrowed(row));
        }
        let mut values = Vec::with_capacity(row.len());
        for value in row {
            let ast::Expr::QualifiedWildcard(name, _) = value else {
                values.push(value.clone());
                continue;
            };
            match self.starred(name, scope)? {
                Starred::Own(source) => {
                    let of = RelationName::of(name)?;
                    let columns = row_columns(source, scope, false).into_iter();
                    values.extend(columns.map(|(column, _)| qualified(&of, &column)));
                }
                Starred::Around(columns) => values.extend(columns.into_iter().map(|(_, expr)| expr)),
            }
        }
        Ok(Cow::Owned(values))
    }

    /// `(row).*`: one output for each field.
    fn fields(&mut self, row: &ast::Expr, scope: &Scope, items: &mut Vec<Item>) -> Bind<()> {
        // Of constants alone nothing but their text is left.
        if let Some(fields) = row_items(row) {
            for (at, field) in fields.into_iter().enumerate() {
                items.push(self.item(field, format!("f{}", at + 1), usize::MAX, scope)?);
            }
            return Ok(());
        }
        let Bound { expr, ty, .. } = self.bind(row, scope)?;
        let Some(fields) = named_fields(&expr) else {
            if ty == Some(RECORD) {
                return not_compiled(format!("the fields of {row}"));
            }
            let name = ty.map_or("unknown", pgtype::name);
            return Err(SqlError::new("42809", format!("type {name} is not composite")).into());
        };
        items.extend(fields.into_iter().map(|(name, expr, ty)| Item { expr, ty, name, is_computed: true }));
        Ok(())
    }

    fn item(&mut self, ast: &ast::Expr, name: String, at: usize, scope: &Scope) -> Bind<Item> {
        let bound = self.bind(ast, scope)?;
        if let (None, Some(&ty)) = (bound.ty, self.output_types.get(at)) {
            let expr = self.coerce(bound, ty, CastContext::Assignment)?;
            return Ok(Item { expr, ty, name, is_computed: false });
        }
        let Bound { expr, ty, .. } = self.known(bound)?;
        let ty = ty.unwrap_or(Type::Text);
        let is_computed = is_computed(ast) || is_computed_column(&expr, scope) || self.is_computed_elsewhere(&expr);
        Ok(Item { expr, ty, name, is_computed })
    }

    pub fn order(
        &mut self,
        list: &[&ast::OrderByExpr],
        items: &[Item],
        distinct: bool,
        scope: &Scope,
    ) -> Bind<Vec<OrderItem>> {
        let mut order = Vec::with_capacity(list.len());
        for item in list {
            let ast::OrderByExpr { expr, options, with_fill } = item;
            if with_fill.is_some() {
                return Err(SqlError::unsupported("WITH FILL").into());
            }
            let (expr, ty) = self.by_item(expr, items, "ORDER BY", true, scope)?;
            if distinct && !items.iter().any(|i| i.expr == expr) {
                return Err(SqlError::new(
                    "42P10",
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                )
                .into());
            }
            let descending = options.asc == Some(false);
            let nulls_first = options.nulls_first.unwrap_or(descending);
            // A row is never null: where its fields' nulls stand is not for the clause to say.
            let nulls_first = if fields_of(&expr).is_some() { descending } else { nulls_first };
            for (expr, ty) in by_fields(expr, ty) {
                must_compare(ty, "ordering")?;
                order.push(OrderItem {
                    expr,
                    order: KeyOrder { ty, descending, nulls_first },
                    plain_nulls: nulls_first == descending,
                });
            }
        }
        Ok(order)
    }

    /// An expression that may name an output by its position or its name.
    fn by_item(
        &mut self,
        ast: &ast::Expr,
        items: &[Item],
        clause: &str,
        outputs_first: bool,
        scope: &Scope,
    ) -> Bind<(Expr, Type)> {
        if let Some(n) = whole_number(ast) {
            let Ok(at) = n.parse::<i32>() else {
                return Err(SqlError::new("42601", format!("non-integer constant in {clause}"))
                    .at(span_position(self.sql, ast.span()))
                    .into());
            };
            let at = usize::try_from(at).ok().filter(|&n| n > 0);
            return match at.and_then(|n| items.get(n - 1)) {
                Some(item) => Ok((item.expr.clone(), item.ty)),
                None => Err(SqlError::new("42P10", format!("{clause} position {n} is not in select list"))
                    .at(span_position(self.sql, ast.span()))
                    .into()),
            };
        }
        if is_other_constant(ast) {
            let error = SqlError::new("42601", format!("non-integer constant in {clause}"));
            return Err(error.at(span_position(self.sql, ast.span())).into());
        }
        if let ast::Expr::Identifier(ident) = ast {
            let name = fold(ident);
            if outputs_first || scope.column(&name).is_err() {
                let mut named = items.iter().filter(|i| i.name == name);
                if let Some(item) = named.next() {
                    if named.any(|other| other.expr != item.expr) {
                        return Err(SqlError::new("42702", format!("{clause} \"{name}\" is ambiguous"))
                            .at(span_position(self.sql, ident.span))
                            .into());
                    }
                    return Ok((item.expr.clone(), item.ty));
                }
            }
        }
        let bound = self.bind(ast, scope)?;
        let bound = self.known(bound)?;
        Ok((bound.expr, bound.ty.unwrap_or(Type::Text)))
    }

    pub fn group_keys(
        &mut self,
        group_by: &GroupByExpr,
        items: &[Item],
        scope: &Scope,
    ) -> Bind<Option<Vec<(Expr, Type)>>> {
        let GroupByExpr::Expressions(list, modifiers) = group_by else {
            return not_compiled("GROUP BY ALL");
        };
        if !modifiers.is_empty() {
            return not_compiled(format!("{group_by}"));
        }
        // Of keys alone there is one set.
        let (list, _) = distinct_keys(list);
        if list.is_empty() {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(list.len());
        // Parentheses hold a list of keys, ROW makes one.
        fn within(ast: &ast::Expr) -> &[ast::Expr] {
            match ast {
                ast::Expr::Tuple(list) => list,
                one => std::slice::from_ref(one),
            }
        }
        for ast in list.iter().flat_map(within) {
            let (expr, ty) = self.by_item(ast, items, "GROUP BY", false, scope)?;
            if expr.has_aggregate() {
                return Err(SqlError::new("42803", "aggregate functions are not allowed in GROUP BY")
                    .at(span_position(self.sql, ast.span()))
                    .into());
            }
            for (expr, ty) in by_fields(expr, ty) {
                must_compare(ty, "equality")?;
                keys.push((expr, ty));
            }
        }
        Ok(Some(keys))
    }

    /// Which rows the clauses lock: of several that name one source, the strongest counts, and the shortest wait.
    fn locks(&mut self, clauses: &[LockClause], scope: &Scope, from: &From) -> Bind<Vec<RowLocking>> {
        let mut locks: Vec<RowLocking> = Vec::new();
        for clause in clauses {
            let (row_lock, _) = locking(clause);
            for source in locked_sources(clause, scope)? {
                let at = usize::from(source);
                let kind = match (&scope.sources[at].table, &from.computed[at]) {
                    (Some(_), _) => None,
                    // What is in it was locked with it, and is.
                    (None, Some(Access::Derived(_))) if !scope.sources[at].is_scalar => continue,
                    (None, Some(Access::Values(_))) => Some("VALUES"),
                    (None, _) => Some("a function"),
                };
                if let Some(kind) = kind {
                    not_lockable(clause, kind)?;
                    continue;
                }
                if from.outer[at].is_some() {
                    let words = row_lock.words();
                    let message = format!("FOR {words} cannot be applied to the nullable side of an outer join");
                    return Err(SqlError::new("0A000", message).into());
                }
                let wait = match &clause.nonblock {
                    None => LockWait::Wait,
                    Some(NonBlock::Nowait) => LockWait::NoWait,
                    Some(NonBlock::SkipLocked) => LockWait::SkipLocked,
                };
                add_lock(&mut locks, RowLocking { source, strength: strength_of(row_lock), wait });
            }
        }
        Ok(locks)
    }
}

/// Locks a source, or locks it more strongly.
pub fn add_lock(locks: &mut Vec<RowLocking>, new: RowLocking) {
    match locks.iter_mut().find(|lock| lock.source == new.source) {
        None => locks.push(new),
        Some(lock) => {
            lock.strength = lock.strength.max(new.strength);
            if new.wait == LockWait::NoWait || lock.wait == LockWait::Wait {
                lock.wait = new.wait;
            }
        }
    }
}

/// The sources that a locking clause names, or all.
pub fn locked_sources(clause: &LockClause, scope: &Scope) -> Bind<Vec<u16>> {
    let (row_lock, of) = locking(clause);
    if of.is_empty() {
        return Ok((0..scope.sources.len() as u16).collect());
    }
    let named = of.iter().map(|name| {
        let name = fold(name);
        // The first of several, as in PostgreSQL.
        let found = scope.sources.iter().position(|source| source.name == name).map(|at| at as u16);
        found.ok_or_else(|| {
            let words = row_lock.words();
            let message = format!("relation \"{name}\" in FOR {words} clause not found in FROM clause");
            Refusal::Error(SqlError::new("42P01", message))
        })
    });
    named.collect()
}

/// What cannot be locked is an error where it is named, and left alone otherwise.
pub fn not_lockable(clause: &LockClause, kind: &str) -> Bind<()> {
    let (row_lock, of) = locking(clause);
    match of.is_empty() {
        true => Ok(()),
        false => {
            let message = format!("FOR {} cannot be applied to {kind}", row_lock.words());
            Err(SqlError::new("0A000", message).into())
        }
    }
}

/// What makes one row of several, so that there is none to lock.
#[derive(Clone, Copy, Default)]
pub struct Folds {
    pub distinct: bool,
    pub grouped: bool,
    pub having: bool,
    pub aggregates: bool,
    pub windows: bool,
    pub sets: bool,
}

impl Folds {
    pub fn refuse_lock(self, clause: &LockClause) -> Bind<()> {
        let Folds { distinct, grouped, having, aggregates, windows, sets } = self;
        let all = [
            (distinct, "DISTINCT clause"),
            (grouped, "GROUP BY clause"),
            (having, "HAVING clause"),
            (aggregates, "aggregate functions"),
            (windows, "window functions"),
            (sets, "set-returning functions in the target list"),
        ];
        match all.iter().find(|(is_there, _)| *is_there) {
            None => Ok(()),
            Some((_, what)) => Err(locks_nothing(clause, what)),
        }
    }
}

/// A query that gives no rows of tables as they are.
pub fn locks_nothing(clause: &LockClause, what: &str) -> Refusal {
    let words = locking(clause).0.words();
    SqlError::new("0A000", format!("FOR {words} is not allowed with {what}")).into()
}

pub fn strength_of(lock: RowLock) -> Strength {
    match lock {
        RowLock::KeyShare => Strength::KeyShare,
        RowLock::Share => Strength::Share,
        RowLock::NoKeyUpdate => Strength::NoKeyUpdate,
        RowLock::Update => Strength::Update,
    }
}

pub fn order_items(order_by: Option<&ast::OrderBy>) -> Bind<Vec<&ast::OrderByExpr>> {
    match order_by {
        None => Ok(Vec::new()),
        Some(ast::OrderBy { kind: OrderByKind::Expressions(list), interpolate: None }) => Ok(list.iter().collect()),
        Some(other) => Err(SqlError::unsupported(format!("{other}")).into()),
    }
}

/// A number that stands alone, with its sign.
fn whole_number(ast: &ast::Expr) -> Option<String> {
    let number = |ast: &ast::Expr| match ast {
        ast::Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(digits, _), .. }) => Some(digits.clone()),
        _ => None,
    };
    match ast {
        ast::Expr::Nested(inner) => whole_number(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => Some(format!("-{}", number(expr)?)),
        plain => number(plain),
    }
}

/// A literal that is no number.
fn is_other_constant(ast: &ast::Expr) -> bool {
    match ast {
        ast::Expr::Value(literal) => !matches!(literal.value, ast::Value::Number(..) | ast::Value::Placeholder(_)),
        ast::Expr::Nested(inner) => is_other_constant(inner),
        _ => false,
    }
}

fn plain_wildcard(options: &WildcardAdditionalOptions) -> Result<(), SqlError> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    if opt_ilike.is_some()
        || opt_exclude.is_some()
        || opt_except.is_some()
        || opt_replace.is_some()
        || opt_rename.is_some()
        || opt_alias.is_some()
    {
        return Err(SqlError::unsupported("an option of *"));
    }
    Ok(())
}

/// `ordered`: as `*` shows them, which is as the view has them that is changed through.
fn all_columns(scope: &Scope, source: u16, ordered: bool, items: &mut Vec<Item>) {
    let entry = &scope.sources[usize::from(source)];
    let first = scope.first.iter().filter(|found| found.source == source).map(|found| found.column);
    let order: Vec<u16> = if ordered { first.collect() } else { (0..entry.columns.len() as u16).collect() };
    for i in order {
        let column = &entry.columns[usize::from(i)];
        if column.name.is_empty() {
            continue;
        }
        let found = super::scope::Found { source, column: i, ty: column.ty };
        items.push(Item::of_column(scope.expr(found), column));
    }
}

/// Whether an expression's value has no precision or scale that was asked for.
fn is_computed(ast: &ast::Expr) -> bool {
    use ast::Expr as A;
    match ast {
        A::Nested(inner) => is_computed(inner),
        A::Value(_) | A::BinaryOp { .. } | A::UnaryOp { .. } => true,
        A::Function(function) => !function.name.to_string().eq_ignore_ascii_case("nullif"),
        _ => false,
    }
}

impl Binder<'_> {
    /// Whether it is a subquery's only value, and computed there.
    fn is_computed_elsewhere(&self, expr: &Expr) -> bool {
        if let (Expr::Param(number), Some(init)) = (expr, &self.init) {
            let plan = number.checked_sub(init.first).and_then(|at| init.plans.get(usize::from(at)));
            return plan.is_some_and(|plan| plan.query.columns.first().is_some_and(|column| column.is_computed));
        }
        self.beyond.is_some_and(|beyond| beyond.is_computed(expr))
    }
}

/// Whether it is a column of what is so computed.
fn is_computed_column(expr: &Expr, scope: &Scope) -> bool {
    let Expr::Cell { source, column } = expr else { return false };
    let of = scope.sources.get(usize::from(*source));
    of.and_then(|of| of.columns.get(usize::from(*column))).is_some_and(|column| column.is_computed)
}

/// The name of a column whose expression has no alias, as PostgreSQL finds it.
pub fn column_name(ast: &ast::Expr) -> String {
    named(ast).unwrap_or_else(|| "?column?".to_owned())
}

fn named(ast: &ast::Expr) -> Option<String> {
    Some(figured(ast)?.0)
}

/// An expression's name, and whether a cast around it keeps that: it does not keep a type's or CASE's.
fn figured(ast: &ast::Expr) -> Option<(String, bool)> {
    use ast::Expr as A;
    let of_type = |data_type: &ast::DataType| {
        let name = match (super::types::type_of(data_type, &Schema::default()), data_type) {
            (Ok(ty), _) => short_name(ty).to_owned(),
            (Err(_), ast::DataType::Custom(name, _)) => super::types::column_name_of(name)?,
            (Err(_), ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, _))) => {
                let ast::DataType::Custom(name, _) = element.as_ref() else { return None };
                super::types::column_name_of(name)?
            }
            _ => return None,
        };
        Some((name, false))
    };
    let name = match ast {
        A::Identifier(ident) => fold(ident),
        A::CompoundIdentifier(parts) => fold(parts.last()?),
        A::Function(function) => {
            let name = function.name.to_string().to_lowercase();
            name.rsplit('.').next()?.to_owned()
        }
        A::QualifiedWildcard(name, _) => RelationName::of(name).ok()?.name,
        A::Nested(inner) | A::Collate { expr: inner, .. } => return figured(inner),
        A::Cast { expr, data_type, .. } => {
            return figured(expr).filter(|(_, is_kept)| *is_kept).or_else(|| of_type(data_type));
        }
        A::TypedString(typed) => return of_type(&typed.data_type),
        A::Case { else_result, .. } => {
            let otherwise = else_result.as_deref().and_then(figured).filter(|(_, is_kept)| *is_kept);
            return Some(otherwise.unwrap_or_else(|| ("case".to_owned(), false)));
        }
        A::Interval(_) => return Some(("interval".to_owned(), false)),
        A::Extract { .. } => "extract".to_owned(),
        A::Position { .. } => "position".to_owned(),
        A::Substring { shorthand: true, .. } => "substr".to_owned(),
        A::Substring { .. } => "substring".to_owned(),
        A::Trim { trim_where: Some(ast::TrimWhereField::Leading), .. } => "ltrim".to_owned(),
        A::Trim { trim_where: Some(ast::TrimWhereField::Trailing), .. } => "rtrim".to_owned(),
        A::Trim { .. } => "btrim".to_owned(),
        A::Ceil { .. } => "ceil".to_owned(),
        A::Floor { .. } => "floor".to_owned(),
        A::AtTimeZone { .. } => "timezone".to_owned(),
        A::Overlay { .. } => "overlay".to_owned(),
        A::Array(_) => "array".to_owned(),
        A::Exists { negated: false, .. } => "exists".to_owned(),
        A::Subquery(query) => first_name(query)?,
        A::CompoundFieldAccess { root, access_chain } => {
            let field = |access: &'_ ast::AccessExpr| match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(field)) => Some(fold(field)),
                _ => None,
            };
            match access_chain.iter().rev().find_map(field) {
                Some(name) => name,
                None => return figured(root),
            }
        }
        A::Tuple(_) => "row".to_owned(),
        A::BinaryOp { op: ast::BinaryOperator::Overlaps, .. } => "overlaps".to_owned(),
        _ => return None,
    };
    Some((name, true))
}

/// A scalar subquery is called as its column is.
fn first_name(query: &ast::Query) -> Option<String> {
    match query.body.as_ref() {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(expr) => named(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
            _ => None,
        },
        SetExpr::Query(inner) => first_name(inner),
        SetExpr::SetOperation { left, .. } => match left.as_ref() {
            SetExpr::Select(_) | SetExpr::Query(_) => {
                let inner = ast::Query { body: left.clone(), ..query.clone() };
                first_name(&inner)
            }
            _ => None,
        },
        SetExpr::Values(_) => Some("column1".to_owned()),
        _ => None,
    }
}

/// The catalog's name of a type.
fn short_name(ty: Type) -> &'static str {
    match ty.unrounded() {
        Type::Bool => "bool",
        Type::Int2 => "int2",
        Type::Int4 => "int4",
        Type::Int8 => "int8",
        Type::Float4 => "float4",
        Type::Float8 => "float8",
        Type::Decimal { .. } | Type::Numeric { .. } => "numeric",
        Type::Char(_) => "bpchar",
        Type::Varchar(_) => "varchar",
        Type::Timestamptz => "timestamptz",
        Type::Timestamp => "timestamp",
        Type::Time => "time",
        Type::CharByte => "char",
        Type::Array(element) => short_name(*element),
        other => pgtype::name(other),
    }
}

/// Where a table's whole primary key is grouped by, its other columns that are asked for are keys too: a group has one row of it.
pub fn add_dependents<'e>(keys: &mut Vec<(Expr, Type)>, asked: impl Iterator<Item = &'e Expr>, scope: &Scope) {
    let is_key = |keys: &[(Expr, Type)], source: u16, column: u16| {
        keys.iter().any(|(key, _)| *key == Expr::Column { source, column })
    };
    let known = |source: u16| {
        let source_of_key = scope.sources.get(usize::from(source)).filter(|entry| !entry.derived)?;
        let table = source_of_key.table.as_ref()?;
        // One that is checked later may have a key twice until then.
        let primary = table.indexes.first().filter(|index| index.def.primary && index.def.unique)?;
        primary.def.columns.iter().all(|c| is_key(keys, source, c.column)).then_some(())
    };
    let whole: Vec<u16> = (0..scope.sources.len() as u16).filter(|&source| known(source).is_some()).collect();
    for expr in asked {
        expr.walk(&mut |e| {
            if let Expr::Column { source, column } = e
                && whole.contains(source)
                && !is_key(keys, *source, *column)
            {
                let ty = scope.sources[usize::from(*source)].columns[usize::from(*column)].ty;
                keys.push((e.clone(), ty));
            }
            true
        });
    }
}

/// An expression of the select list, HAVING or ORDER BY over the groups' rows.
pub fn over_groups(expr: Expr, keys: &[(Expr, Type)], aggregates: &[Aggregate], scope: &Scope) -> Bind<Expr> {
    let mut loose = None;
    let rewritten = expr.rewrite(&mut |e| {
        if let Some(at) = keys.iter().position(|(key, _)| key == e) {
            return Some(Expr::Cell { source: 0, column: at as u16 });
        }
        match e {
            Expr::Aggregate(at) => {
                debug_assert!(usize::from(*at) < aggregates.len());
                Some(Expr::Cell { source: 0, column: keys.len() as u16 + at })
            }
            Expr::Cell { source, .. } if *source >= PLACEHOLDERS => None,
            Expr::Column { source, column } | Expr::Cell { source, column } => {
                loose.get_or_insert((*source, *column));
                None
            }
            _ => None,
        }
    });
    match loose {
        None => Ok(rewritten),
        Some((source, column)) => {
            let source = &scope.sources[usize::from(source)];
            let name = &source.columns[usize::from(column)].name;
            Err(SqlError::new(
                "42803",
                format!(
                    "column \"{}.{name}\" must appear in the GROUP BY clause or be used in an aggregate function",
                    source.name
                ),
            )
            .into())
        }
    }
}

/// What an ordered-set aggregate is given besides its rows, as the fraction of `percentile_cont`, is one for the whole group. Tells whether any
/// is of columns.
#[cfg(feature = "query")]
pub fn check_direct(aggregates: &[Aggregate], keys: &[(Expr, Type)], scope: &Scope) -> Bind<bool> {
    let mut is_of_columns = false;
    for gathers in aggregates.iter().filter_map(|aggregate| aggregate.gathered.as_ref()) {
        if !gathers.signature.what.is_ordered_set() {
            continue;
        }
        let direct = gathers.args.len() - gathers.order.len();
        for arg in &gathers.args[..direct] {
            is_of_columns |= arg.mentions(|source| source < PLACEHOLDERS);
            over_groups(arg.clone(), keys, aggregates, scope).map_err(|refusal| match refusal {
                Refusal::Error(error) if error.sqlstate == "42803" => {
                    let detail = "Direct arguments of an ordered-set aggregate must use only grouped columns.";
                    Refusal::Error(error.with_detail(detail))
                }
                other => other,
            })?;
        }
    }
    Ok(is_of_columns)
}

/// The value whose smallest or largest is all that is asked for, and the order that begins with it.
struct End {
    value: Expr,
    order: WantedOrder,
    /// Both are asked for.
    is_both: bool,
}

/// Whether the groups' one row is min() and max() of one column of the one table.
fn wanted_end(grouping: &Grouping, from: &From) -> Option<End> {
    let ([source], true) = (from.scope.sources.as_slice(), grouping.keys.is_empty()) else { return None };
    source.table.as_ref()?;
    let column = |aggregate: &Aggregate| match (&aggregate.arg, &aggregate.filter) {
        (Some((Expr::Column { source: 0, column }, _)), None) => Some(*column),
        (Some((Expr::Cast { expr, from: Type::Varchar(_), to: Type::Text, .. }, _)), None) => match **expr {
            Expr::Column { source: 0, column } => Some(column),
            _ => None,
        },
        _ => None,
    };
    let first = grouping.aggregates.first()?;
    let of = column(first)?;
    let is_largest = |aggregate: &Aggregate| match aggregate.function {
        AggregateFunction::Min => Some(false),
        AggregateFunction::Max => Some(true),
        _ => None,
    };
    let descending = is_largest(first)?;
    let mut is_both = false;
    for aggregate in &grouping.aggregates {
        is_both |= is_largest(aggregate)? != descending;
        if column(aggregate)? != of {
            return None;
        }
    }
    Some(End { value: Expr::Column { source: 0, column: of }, order: WantedOrder { column: of, descending }, is_both })
}

/// Lets the loop begin with the first row that has the value; false if its path does not begin there.
fn starts_at_end(steps: &mut [Step], end: &End) -> bool {
    let [Step { access: Access::Range(range), .. }] = steps else { return false };
    let next = range.index.spec.columns().nth(range.equal.len());
    range.not_null = next.is_some_and(|next| next.column == end.order.column);
    range.not_null
}

fn grouping_ends(query: &mut Query, end: End) {
    let other = end.is_both.then(|| {
        let mut other = Query { grouping: None, ..query.clone() };
        if let [Step { access: Access::Range(range), .. }] = other.steps.as_mut_slice() {
            range.direction = range.direction.reversed();
        }
        Box::new(other)
    });
    if let Some(grouping) = &mut query.grouping {
        grouping.ends = Some(Ends { value: end.value, other });
    }
}

/// The order as columns of stored sources, if an index could give it.
fn index_order(order: &[OrderItem], from: &From) -> Option<Vec<(u16, WantedOrder)>> {
    order
        .iter()
        .map(|item| match item.expr {
            Expr::Column { source, column } => {
                let table = from.scope.sources[usize::from(source)].table.as_ref()?;
                let not_null = table.def.columns[usize::from(column)].not_null;
                (item.plain_nulls || not_null)
                    .then_some((source, WantedOrder { column, descending: item.order.descending }))
            }
            _ => None,
        })
        .collect()
}

pub fn has_star(select: &Select) -> bool {
    let is_star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    select.projection.iter().any(is_star)
}

pub fn has_group_by(select: &Select) -> bool {
    !matches!(&select.group_by, GroupByExpr::Expressions(list, modifiers) if list.is_empty() && modifiers.is_empty())
}

/// By source: the variable-length columns that any expression of the query looks at.
pub fn looked_at(query: &Query) -> Vec<Vec<u16>> {
    let mut columns: Vec<Vec<u16>> = vec![Vec::new(); query.tables.len()];
    let mut note = |expr: &Expr| {
        expr.walk(&mut |e| {
            if let Expr::Column { source, column } = e {
                note_long(&query.tables, *source, *column, &mut columns);
            }
            true
        });
    };
    for step in &query.steps {
        step.filter.iter().for_each(&mut note);
        step.outer.iter().flatten().for_each(&mut note);
        step.access.expressions(&mut note);
    }
    query.recheck.iter().for_each(&mut note);
    match &query.grouping {
        // What stands after grouping is over the groups' rows.
        Some(grouping) => {
            grouping.keys.iter().for_each(|(key, _)| note(key));
            for aggregate in &grouping.aggregates {
                aggregate.arg.iter().for_each(|(arg, _)| note(arg));
                aggregate.filter.iter().for_each(&mut note);
            }
        }
        None => {
            query.output.iter().for_each(&mut note);
            query.sort.iter().for_each(|key| note(&key.expr));
        }
    }
    columns
}

fn note_long(
    tables: &[Option<Arc<freshet_engine::catalog::Table>>],
    source: u16,
    column: u16,
    columns: &mut [Vec<u16>],
) {
    let Some(table) = &tables[usize::from(source)] else {
        return;
    };
    let noted = &mut columns[usize::from(source)];
    let variable = table.layout.column_type(usize::from(column)).is_variable();
    if variable && !noted.contains(&column) {
        noted.push(column);
    }
}

/// Whether an expression calls such a function, and not only a query within it does.
pub fn has_own_call(node: &impl Visit, is_it: impl Fn(&ast::Function) -> bool) -> bool {
    struct Calls<F> {
        is_it: F,
        depth: usize,
    }
    impl<F: Fn(&ast::Function) -> bool> Visitor for Calls<F> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
            match expr {
                ast::Expr::Function(function) if self.depth == 0 && (self.is_it)(function) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    node.visit(&mut Calls { is_it, depth: 0 }).is_break()
}

/// Whether the function called is an aggregate, as a window function or not.
pub fn is_aggregate(function: &ast::Function) -> bool {
    let name = function.name.to_string().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    AggregateFunction::named(name).is_some() || Gathered::named(name).is_some()
}
