//! What does a query read, in DataFusion's terms? SELECT and what it is made of, bound by the compiled road's binder and put together
//! as a logical plan.
//!
//! The binder knows names, types and PostgreSQL's rules; what it cannot bind (subqueries, window functions, names of outer queries) it
//! asks of [`Planner`], which answers with placeholders: cells of sources that are none of FROM. So an expression means the same on
//! both roads, and DataFusion's own SQL planner, its types and its functions have no say.
//!
//! | placeholder source | stands for |
//! |---|---|
//! | [`GIVEN`] | an expression of DataFusion's: a subquery, a column of an outer query |
//! | [`WINDOW`] | a window function of this SELECT |
//! | [`SETS`] | a column of a set-returning function among its outputs |
//!
//! Every relation has a name of its own in the plan, and every column of a subplan is called by its position, so that DataFusion never
//! looks up a name that a user chose.

use super::cells::data_type;
use super::compute::OnlyRow;
use super::convert::{Leaf, Leaves, call, common, infix, key, lit};
use super::fault::sql_error;
use super::fold::{Fold, Kind};
use super::scan::Snapshot;
use super::sets::{FieldOf, SetCall, field_of, set_leaf, spread_rows};
use super::window::Window;
use crate::bind::expr::Bound;
use crate::bind::query::{Item, OrderItem, order_items, over_groups};
use crate::bind::scope::{Scope, ScopeColumn, ScopeSource};
use crate::bind::{Beyond, Bind, Binder, PLACEHOLDERS, Refusal};
use crate::compiled::aggregate::{Aggregate, AggregateFunction};
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::value::Datum;
use crate::value::cast::{CastContext, common_type, is_float};
use crate::value::operator::{BinaryOp, BinaryOperator};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{Column as DfColumn, DataFusionError, ScalarValue, Spans, TableReference};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::expr::{AggregateFunction as DfAggregate, Exists, InSubquery, Sort};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{AggregateUDF, Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{Type, Value};
use freshet_engine::txn::Reader;
use sqlparser::ast::{self, Distinct, GroupByExpr, Select, SelectFlavor, SelectItem, SetExpr};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Source of placeholders for expressions of DataFusion's.
pub const GIVEN: u16 = PLACEHOLDERS;
/// Source of placeholders for window functions.
pub const WINDOW: u16 = PLACEHOLDERS + 1;
/// Source of placeholders for set-returning functions among the outputs.
pub const SETS: u16 = PLACEHOLDERS + 2;

/// A column of a relation.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub ty: Type,
    pub column: DfColumn,
    /// A literal without a type, which takes the type of its context.
    pub untyped: bool,
    pub origin: Option<(u32, u16)>,
}

/// A relation: a plan and what its columns are.
#[derive(Clone, Debug)]
pub struct Rel {
    pub plan: LogicalPlan,
    pub columns: Vec<Output>,
    /// An aggregate without groups, or no FROM.
    pub at_most_one: bool,
}

/// What FROM gives: a plan, and by source the columns of its scope.
#[derive(Clone)]
pub struct FromRel {
    pub plan: LogicalPlan,
    pub scope: Scope,
    pub sources: Vec<Vec<Leaf>>,
}

/// A query around the one being planned.
struct Level {
    scope: Scope,
    sources: Vec<Vec<Leaf>>,
}

#[derive(Default)]
pub(super) struct State {
    given: Vec<Leaf>,
    levels: Vec<Level>,
    /// Columns of the scope that expressions are bound in now; the innermost last.
    blocks: Vec<Vec<Vec<Leaf>>>,
    pub windows: Option<Vec<Window>>,
    /// Where set-returning functions are allowed, those met so far.
    pub sets: Option<Vec<SetCall>>,
    pub named_windows: Vec<(String, ast::WindowSpec)>,
    pub ctes: Vec<(String, Rel)>,
    names: HashSet<String>,
    /// In WHERE or HAVING, where DataFusion takes EXISTS and IN as they are.
    in_filter: bool,
}

/// The state of planning one statement.
pub struct Planner<'a> {
    pub parameters: &'a [Datum],
    pub env: &'a Env,
    /// `None`: the plan is only looked at.
    pub reader: Option<Reader>,
    pub(super) state: RefCell<State>,
}

pub fn df<T>(result: Result<T, DataFusionError>) -> Bind<T> {
    result.map_err(|e| Refusal::Error(sql_error(e)))
}

/// What this road does not take either.
pub fn refuse<T>(what: impl std::fmt::Display) -> Bind<T> {
    Err(SqlError::unsupported(what).into())
}

impl<'a> Planner<'a> {
    pub fn new(parameters: &'a [Datum], env: &'a Env, reader: Option<Reader>) -> Planner<'a> {
        Planner { parameters, env, reader, state: RefCell::default() }
    }

    // ---- names and leaves

    /// A name that no other relation of the plan has.
    pub fn unique(&self, wanted: &str) -> String {
        let mut state = self.state.borrow_mut();
        let mut name = wanted.to_owned();
        let mut number = 2;
        while !state.names.insert(name.clone()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        name
    }

    /// Converts within the scope whose columns are `sources`.
    pub fn with_leaves<T>(
        &self,
        sources: &[Vec<Leaf>],
        convert: impl FnOnce(&Leaves<'_>) -> Result<T, SqlError>,
    ) -> Bind<T> {
        let placeholders = |source: u16, column: u16| match source {
            GIVEN => self.state.borrow().given.get(usize::from(column)).cloned(),
            _ => None,
        };
        let leaves = Leaves { sources, placeholders: &placeholders, parameters: self.parameters, env: self.env };
        Ok(convert(&leaves)?)
    }

    fn given(&self, expr: DfExpr, ty: Type) -> Bound {
        let mut state = self.state.borrow_mut();
        state.given.push(Leaf::new(expr, ty));
        let column = (state.given.len() - 1) as u16;
        Bound::new(Expr::Cell { source: GIVEN, column }, ty)
    }

    /// Binds within a scope: subqueries can refer to its columns.
    pub fn within<T>(&self, sources: &[Vec<Leaf>], bind: impl FnOnce() -> Bind<T>) -> Bind<T> {
        self.state.borrow_mut().blocks.push(sources.to_vec());
        let bound = bind();
        self.state.borrow_mut().blocks.pop();
        bound
    }

    /// Binds a condition of WHERE or HAVING.
    pub fn in_filter<T>(&self, bind: impl FnOnce() -> Bind<T>) -> Bind<T> {
        let before = std::mem::replace(&mut self.state.borrow_mut().in_filter, true);
        let bound = bind();
        self.state.borrow_mut().in_filter = before;
        bound
    }

    /// The value of an expression without columns.
    pub fn constant(&self, expr: &Expr, clause: &str) -> Bind<Datum> {
        let mut free = true;
        expr.walk(&mut |e| {
            free &= !matches!(e, Expr::Column { .. } | Expr::Cell { .. });
            free
        });
        if !free {
            return refuse(format!("a subquery or column in {clause}"));
        }
        let frame = Frame { tables: &[], rows: &[], cells: &[], parameters: self.parameters, env: self.env };
        Ok(evaluate(expr, &frame)?.into_datum())
    }

    // ---- relations

    /// A table at the statement's snapshot, as a source named `name`. Its last column is the row id.
    pub fn table(&self, table: &Arc<Table>, name: &str) -> Bind<(LogicalPlan, Vec<Leaf>)> {
        let provider = Arc::new(Snapshot::new(table.clone(), self.reader.clone()));
        let relation = TableReference::bare(self.unique(name));
        let plan = df(LogicalPlanBuilder::scan(relation.clone(), provider_as_source(provider), None))?;
        let leaf = |name: &str, ty| Leaf::new(DfExpr::Column(DfColumn::new(Some(relation.clone()), name)), ty);
        let columns = table.def.columns.iter();
        let mut leaves: Vec<Leaf> = columns.map(|c| leaf(&c.name, c.ty)).collect();
        leaves.push(leaf(super::scan::ROW_ID, Type::Int8));
        Ok((df(plan.build())?, leaves))
    }

    /// A relation as a source of FROM.
    pub fn source(&self, rel: Rel, name: &str) -> Bind<(LogicalPlan, Vec<Leaf>)> {
        let relation = TableReference::bare(self.unique(name));
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).alias(relation.clone()))?.build())?;
        let leaves = rel.columns.iter().map(|c| {
            let column = DfColumn::new(Some(relation.clone()), c.column.name.clone());
            Leaf::new(DfExpr::Column(column), c.ty)
        });
        Ok((plan, leaves.collect()))
    }

    /// Gives the plan's columns positional names, in the order of the expressions.
    pub fn project(&self, plan: LogicalPlan, outputs: Vec<(DfExpr, Output)>, at_most_one: bool) -> Bind<Rel> {
        let mut exprs = Vec::with_capacity(outputs.len());
        let mut columns = Vec::with_capacity(outputs.len());
        for (i, (expr, output)) in outputs.into_iter().enumerate() {
            let name = format!("c{i}");
            exprs.push(expr.alias(name.clone()));
            columns.push(Output { column: DfColumn::new_unqualified(name), ..output });
        }
        let plan = df(df(LogicalPlanBuilder::from(plan).project(exprs))?.build())?;
        Ok(Rel { plan, columns, at_most_one })
    }

    /// Without duplicates. Of equal values that are written differently (1.5, 1.50) the first stays.
    pub fn distinct(&self, rel: Rel) -> Bind<Rel> {
        let Rel { plan, columns, at_most_one } = rel;
        let mut keys = Vec::with_capacity(columns.len());
        let mut shown = Vec::new();
        let mut outputs = Vec::with_capacity(columns.len());
        for (i, output) in columns.into_iter().enumerate() {
            let value = DfExpr::Column(output.column.clone());
            keys.push(key(value.clone(), output.ty).alias(format!("k{i}")));
            let given = if matches!(output.ty, Type::Numeric { .. }) {
                shown.push(plain_aggregate(first_value_udaf(), vec![value], false, None).alias(format!("a{i}")));
                format!("a{i}")
            } else {
                format!("k{i}")
            };
            outputs.push((DfExpr::Column(DfColumn::new_unqualified(given)), output));
        }
        let plan = df(df(LogicalPlanBuilder::from(plan).aggregate(keys, shown))?.build())?;
        self.project(plan, outputs, at_most_one)
    }

    // ---- queries

    pub fn query(&self, binder: &mut Binder<'_>, query: &ast::Query) -> Bind<Rel> {
        let aggregates = binder.aggregates.take();
        let stored = std::mem::take(&mut binder.output_types);
        let in_aggregate = std::mem::take(&mut binder.in_aggregate);
        let (windows, sets, in_filter) = {
            let mut state = self.state.borrow_mut();
            (state.windows.take(), state.sets.take(), std::mem::take(&mut state.in_filter))
        };
        let ctes = self.state.borrow().ctes.len();
        let rel = self.query_inner(binder, query, stored);
        let mut state = self.state.borrow_mut();
        state.ctes.truncate(ctes);
        state.windows = windows;
        state.sets = sets;
        state.in_filter = in_filter;
        binder.aggregates = aggregates;
        binder.in_aggregate = in_aggregate;
        rel
    }

    /// `stored`: the types of the columns that the outputs go to, for literals without a type.
    fn query_inner(&self, binder: &mut Binder<'_>, query: &ast::Query, stored: Vec<Type>) -> Bind<Rel> {
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
        if let Some(lock) = locks.first() {
            return refuse(lock);
        }
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty() {
            return refuse("a clause of another dialect");
        }
        if let Some(with) = with {
            self.with(binder, with)?;
        }
        let order = order_items(order_by.as_ref())?;
        let (limit, offset) = binder.limits(limit_clause.as_ref(), fetch.as_ref()).map_err(as_unsupported)?;
        let mut limits =
            Limits { limit: self.count(limit.as_ref(), "LIMIT")?, offset: self.count(offset.as_ref(), "OFFSET")? };
        let rel = match body.as_ref() {
            SetExpr::Select(select) => return self.select(binder, select, &order, &mut limits, stored),
            SetExpr::Query(inner) => {
                binder.output_types = stored;
                self.query(binder, inner)?
            }
            SetExpr::Values(values) => self.values(binder, values)?,
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                self.set_operation(binder, *op, *set_quantifier, left, right)?
            }
            SetExpr::Table(_) => return refuse("TABLE"),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                return refuse("a change within a query");
            }
        };
        let rel = self.order_outputs(binder, rel, &order)?;
        limits.apply(rel)
    }

    /// A count of LIMIT or OFFSET; while parameters are unknown, none.
    fn count(&self, expr: Option<&Expr>, clause: &'static str) -> Bind<Option<u64>> {
        let Some(expr) = expr else {
            return Ok(None);
        };
        match self.constant(expr, clause)? {
            Datum::Int(n) => match u64::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => {
                    let sqlstate = if clause == "LIMIT" { "2201W" } else { "2201X" };
                    Err(SqlError::new(sqlstate, format!("{clause} must not be negative")).into())
                }
            },
            _ => Ok(None),
        }
    }

    /// ORDER BY after a body that is not a SELECT: outputs by name or position.
    fn order_outputs(&self, binder: &mut Binder<'_>, rel: Rel, order: &[&ast::OrderByExpr]) -> Bind<Rel> {
        if order.is_empty() {
            return Ok(rel);
        }
        let scope = scope_of(&rel);
        let leaves = vec![rel.columns.iter().map(|c| Leaf::new(DfExpr::Column(c.column.clone()), c.ty)).collect()];
        let item = |(i, c): (usize, &Output)| Item {
            expr: Expr::Cell { source: 0, column: i as u16 },
            ty: c.ty,
            name: c.name.clone(),
        };
        let items: Vec<Item> = rel.columns.iter().enumerate().map(item).collect();
        let order = binder.order(order, &items, false, &scope)?;
        let sorts = self.with_leaves(&leaves, |leaves| {
            order
                .iter()
                .map(|o| Ok(sort(leaves.convert(&o.expr, o.order.ty)?, o)))
                .collect::<Result<Vec<_>, SqlError>>()
        })?;
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).sort(sorts))?.build())?;
        Ok(Rel { plan, ..rel })
    }

    fn values(&self, binder: &mut Binder<'_>, values: &ast::Values) -> Bind<Rel> {
        let (rows, types) = self.within(&[], || binder.value_rows(values))?;
        self.rows(rows, &types)
    }

    /// Rows of expressions without columns.
    pub fn rows(&self, rows: Vec<Vec<Expr>>, types: &[Type]) -> Bind<Rel> {
        let columns: Vec<Output> =
            types.iter().enumerate().map(|(i, &ty)| output(format!("column{}", i + 1), ty)).collect();
        let mut plan: Option<LogicalPlan> = None;
        // Literals in one node; rows with subqueries each as a projection of nothing.
        let mut literals = Vec::with_capacity(rows.len());
        for row in &rows {
            let exprs: Vec<DfExpr> = self.with_leaves(&[], |leaves| {
                row.iter().zip(types).map(|(e, &ty)| leaves.convert(e, ty)).collect::<Result<_, _>>()
            })?;
            literals.push(exprs);
        }
        let plain = literals.iter().flatten().all(|e| matches!(e, DfExpr::Literal(..)));
        if plain && !types.is_empty() && !literals.is_empty() {
            let plan = df(df(LogicalPlanBuilder::values(literals))?.build())?;
            let given = plan.schema().columns();
            let outputs = given.into_iter().map(DfExpr::Column).zip(columns);
            return self.project(plan, outputs.collect(), rows.len() == 1);
        }
        for exprs in literals {
            let one = df(LogicalPlanBuilder::empty(true).build())?;
            let rel = self.project(one, exprs.into_iter().zip(columns.iter().cloned()).collect(), true)?;
            plan = Some(match plan {
                None => rel.plan,
                Some(before) => df(df(LogicalPlanBuilder::from(before).union(rel.plan))?.build())?,
            });
        }
        let Some(plan) = plan else {
            return refuse("VALUES without rows");
        };
        let given = plan.schema().columns();
        self.project(plan, given.into_iter().map(DfExpr::Column).zip(columns).collect(), rows.len() == 1)
    }

    // ---- SELECT

    fn select(
        &self,
        binder: &mut Binder<'_>,
        select: &Select,
        order: &[&ast::OrderByExpr],
        limits: &mut Limits,
        stored: Vec<Type>,
    ) -> Bind<Rel> {
        refuse_other_dialects(select)?;
        if let Some(top) = &select.top {
            if limits.limit.is_some() {
                return Err(SqlError::new("42601", "TOP and LIMIT exclude each other").into());
            }
            let top = binder.top(top).map_err(as_unsupported)?;
            limits.limit = self.count(Some(&top), "LIMIT")?;
        }
        let mut from = self.from(binder, &select.from)?;
        let sources = from.sources.clone();
        self.within(&sources, || {
            if let Some(selection) = &select.selection {
                let scope = from.scope.clone();
                let condition = self.in_filter(|| binder.condition(selection, "WHERE", &scope))?;
                from.plan = self.filter(from.plan.clone(), &condition, &sources)?;
            }
            binder.output_types = stored;
            self.select_over(binder, select, order, limits, from)
        })
    }

    pub fn filter(&self, plan: LogicalPlan, condition: &Expr, sources: &[Vec<Leaf>]) -> Bind<LogicalPlan> {
        let predicate = self.with_leaves(sources, |leaves| leaves.condition(condition))?;
        let (plan, predicate) = self.correlated_by_columns(plan, predicate)?;
        df(df(LogicalPlanBuilder::from(plan).filter(predicate))?.build())
    }

    /// A subquery over an aggregate can be decorrelated where a plain column equals something of the outer query: what is compared
    /// with it becomes a column.
    fn correlated_by_columns(&self, plan: LogicalPlan, predicate: DfExpr) -> Bind<(LogicalPlan, DfExpr)> {
        let mut made = Vec::new();
        let mut parts: Vec<DfExpr> = split_conjunction_owned(predicate);
        for part in &mut parts {
            let DfExpr::BinaryExpr(binary) = part else {
                continue;
            };
            if binary.op != Operator::Eq {
                continue;
            }
            let (left, right) = (&mut binary.left, &mut binary.right);
            let inner = match (left.contains_outer(), right.contains_outer()) {
                (true, false) if !left.any_column_refs() => right,
                (false, true) if !right.any_column_refs() => left,
                _ => continue,
            };
            if matches!(inner.as_ref(), DfExpr::Column(_)) || !inner.any_column_refs() {
                continue;
            }
            let name = self.unique("computed");
            let column = DfExpr::Column(DfColumn::new_unqualified(name.clone()));
            made.push(std::mem::replace(inner.as_mut(), column).alias(name));
        }
        let predicate = conjunction(parts).expect("a condition has a part");
        if made.is_empty() {
            return Ok((plan, predicate));
        }
        let all = plan.schema().columns().into_iter().map(DfExpr::Column).chain(made);
        let plan = df(df(LogicalPlanBuilder::from(plan).project(all.collect::<Vec<_>>()))?.build())?;
        Ok((plan, predicate))
    }

    /// What follows FROM and WHERE.
    fn select_over(
        &self,
        binder: &mut Binder<'_>,
        select: &Select,
        order: &[&ast::OrderByExpr],
        limits: &Limits,
        from: FromRel,
    ) -> Bind<Rel> {
        let scope = from.scope.clone();
        let distinct = matches!(select.distinct, Some(Distinct::Distinct));
        self.name_windows(select)?;
        binder.aggregates = Some(Vec::new());
        self.state.borrow_mut().windows = Some(Vec::new());
        self.state.borrow_mut().sets = Some(Vec::new());
        let projection = spread_rows(&select.projection);
        let items = binder.items(&projection, &scope);
        let sets = self.state.borrow_mut().sets.take().unwrap_or_default();
        binder.output_types = Vec::new();
        let mut items = items?;
        let untyped = untyped_items(&projection, items.len());
        let mut order = binder.order(order, &items, distinct, &scope)?;
        let mut on = self.distinct_on(binder, select, &items, &scope)?;
        let mut windows = self.state.borrow_mut().windows.take().unwrap_or_default();
        let having = match &select.having {
            None => None,
            Some(having) => Some(self.in_filter(|| binder.condition(having, "HAVING", &scope))?),
        };
        let aggregates = binder.aggregates.take().unwrap_or_default();
        let keys = self.group_keys(binder, &select.group_by, &items, &scope)?;
        let grouped = keys.is_some() || !aggregates.is_empty() || having.is_some();
        let at_most_one = (grouped && keys.is_none()) || (select.from.is_empty() && sets.is_empty());
        let alone = !grouped && windows.is_empty();
        let (FromRel { mut plan, scope, sources }, set_leaves) = self.expand_outputs(from, &sets, alone)?;
        let origins: Vec<Option<(u32, u16)>> =
            items.iter().map(|item| if grouped { None } else { origin(&item.expr, &scope) }).collect();
        let mut leaves = sources;
        if grouped {
            let keys = keys.unwrap_or_default();
            let over = |expr: &mut Expr| -> Bind<()> {
                let taken = std::mem::replace(expr, Expr::NULL);
                *expr = over_groups(taken, &keys.exprs, &aggregates, &scope)?;
                Ok(())
            };
            items.iter_mut().try_for_each(|item| over(&mut item.expr))?;
            order.iter_mut().try_for_each(|item| over(&mut item.expr))?;
            on.iter_mut().try_for_each(|(expr, _)| over(expr))?;
            windows.iter_mut().try_for_each(|window| window.each_expr(&over))?;
            let mut having = having;
            having.iter_mut().try_for_each(over)?;
            (plan, leaves) = self.group(plan, &leaves, &keys, &aggregates)?;
            if let Some(having) = having {
                plan = self.filter(plan, &having, &leaves)?;
            }
        }
        let (plan, window_leaves) = self.window(plan, &leaves, &windows)?;
        let selected =
            Selected { items, untyped, origins, order, on, distinct, at_most_one, window_leaves, set_leaves };
        self.finish_select(plan, &leaves, selected, limits)
    }

    /// DISTINCT ON's expressions.
    fn distinct_on(
        &self,
        binder: &mut Binder<'_>,
        select: &Select,
        items: &[Item],
        scope: &Scope,
    ) -> Bind<Vec<(Expr, Type)>> {
        let Some(Distinct::On(list)) = &select.distinct else {
            return Ok(Vec::new());
        };
        let expressions = GroupByExpr::Expressions(list.clone(), Vec::new());
        Ok(binder.group_keys(&expressions, items, scope)?.unwrap_or_default())
    }

    fn finish_select(&self, plan: LogicalPlan, leaves: &[Vec<Leaf>], selected: Selected, limits: &Limits) -> Bind<Rel> {
        let Selected { items, untyped, origins, order, on, distinct, at_most_one, window_leaves, set_leaves } =
            selected;
        let placeholders = |source: u16, column: u16| match source {
            WINDOW => window_leaves.get(usize::from(column)).cloned(),
            SETS => set_leaf(&set_leaves, column),
            GIVEN => self.state.borrow().given.get(usize::from(column)).cloned(),
            _ => None,
        };
        let leaves =
            Leaves { sources: leaves, placeholders: &placeholders, parameters: self.parameters, env: self.env };
        let mut outputs = Vec::with_capacity(items.len());
        for ((item, untyped), origin) in items.iter().zip(untyped).zip(origins) {
            let expr = leaves.convert(&item.expr, item.ty)?;
            outputs.push((expr, Output { untyped, origin, ..output(item.name.clone(), item.ty) }));
        }
        let mut sorts = Vec::with_capacity(order.len());
        // An ORDER BY that is no output is one on the way.
        for by in &order {
            let at = items.iter().position(|item| item.expr == by.expr && item.ty == by.order.ty);
            let at = match at {
                Some(at) => at,
                None => {
                    let expr = leaves.convert(&by.expr, by.order.ty)?;
                    outputs.push((expr, output(String::new(), by.order.ty)));
                    outputs.len() - 1
                }
            };
            sorts.push(sort(DfExpr::Column(DfColumn::new_unqualified(format!("c{at}"))), by));
        }
        let mut on_keys = Vec::with_capacity(on.len());
        for (expr, ty) in &on {
            outputs.push((leaves.convert(expr, *ty)?, output(String::new(), *ty)));
            let column = DfColumn::new_unqualified(format!("c{}", outputs.len() - 1));
            on_keys.push(key(DfExpr::Column(column), *ty));
        }
        let visible = items.len();
        let mut rel = self.project(plan, outputs, at_most_one)?;
        if distinct {
            rel = self.distinct(rel)?;
        }
        if !on_keys.is_empty() {
            rel = self.first_of_each(rel, on_keys, &sorts)?;
        }
        if !sorts.is_empty() {
            rel.plan = df(df(LogicalPlanBuilder::from(rel.plan).sort(sorts))?.build())?;
        }
        rel = limits.apply(rel)?;
        if rel.columns.len() > visible {
            rel.columns.truncate(visible);
            let outputs = rel.columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
            rel = self.project(rel.plan, outputs, rel.at_most_one)?;
        }
        Ok(rel)
    }

    fn group_keys(
        &self,
        binder: &mut Binder<'_>,
        group_by: &GroupByExpr,
        items: &[Item],
        scope: &Scope,
    ) -> Bind<Option<Keys>> {
        let GroupByExpr::Expressions(list, modifiers) = group_by else {
            return refuse("GROUP BY ALL");
        };
        if !modifiers.is_empty() {
            return refuse(group_by);
        }
        let grouped_alone =
            |e: &ast::Expr| matches!(e, ast::Expr::Rollup(_) | ast::Expr::Cube(_) | ast::Expr::GroupingSets(_));
        if list.iter().any(grouped_alone) {
            return refuse("ROLLUP, CUBE and GROUPING SETS");
        }
        Ok(binder.group_keys(group_by, items, scope).map_err(as_unsupported)?.map(|exprs| Keys { exprs }))
    }

    /// Groups. Its columns are the keys, then the aggregates, as source 0.
    fn group(
        &self,
        plan: LogicalPlan,
        leaves: &[Vec<Leaf>],
        keys: &Keys,
        aggregates: &[Aggregate],
    ) -> Bind<(LogicalPlan, Vec<Vec<Leaf>>)> {
        let mut groups = Vec::new();
        let mut folded = Vec::new();
        let mut columns = Vec::new();
        for (i, (expr, ty)) in keys.exprs.iter().enumerate() {
            let value = self.with_leaves(leaves, |l| l.convert(expr, *ty))?;
            let column = if matches!(ty, Type::Numeric { .. }) {
                // Of equal numbers that are written differently the first is shown.
                groups.push(key(value.clone(), *ty).alias(format!("g{i}")));
                folded.push(plain_aggregate(first_value_udaf(), vec![value], false, None).alias(format!("n{i}")));
                DfColumn::new_unqualified(format!("n{i}"))
            } else if let DfExpr::Column(column) = &value
                && super::compute::Key::of(*ty).is_none()
            {
                // It keeps its name, by which subqueries refer to it.
                groups.push(value.clone());
                column.clone()
            } else {
                groups.push(key(value, *ty).alias(format!("g{i}")));
                DfColumn::new_unqualified(format!("g{i}"))
            };
            columns.push(Leaf::new(DfExpr::Column(column), *ty));
        }
        groups.dedup();
        for (i, aggregate) in aggregates.iter().enumerate() {
            let (expr, ty) = self.with_leaves(leaves, |l| fold_of(aggregate, l))?;
            folded.push(expr.alias(format!("a{i}")));
            columns.push(Leaf::new(DfExpr::Column(DfColumn::new_unqualified(format!("a{i}"))), ty));
        }
        if groups.is_empty() && folded.is_empty() {
            // HAVING alone makes one group.
            let count = plain_aggregate(count_udaf(), vec![lit(Type::Int8, &Datum::Int(1))?], false, None);
            folded.push(count.alias("a0"));
        }
        let plan = df(df(LogicalPlanBuilder::from(plan).aggregate(groups, folded))?.build())?;
        Ok((plan, vec![columns]))
    }

    // ---- set operations

    fn set_operation(
        &self,
        binder: &mut Binder<'_>,
        op: ast::SetOperator,
        quantifier: ast::SetQuantifier,
        left: &SetExpr,
        right: &SetExpr,
    ) -> Bind<Rel> {
        let all = match quantifier {
            ast::SetQuantifier::All => true,
            ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
            other => return refuse(format!("{op} {other}")),
        };
        let left = self.set_operand(binder, left)?;
        let right = self.set_operand(binder, right)?;
        self.combine(op, all, left, right)
    }

    pub fn set_operand(&self, binder: &mut Binder<'_>, body: &SetExpr) -> Bind<Rel> {
        match body {
            SetExpr::Query(query) => self.query(binder, query),
            other => self.query(binder, &bare_query(other.clone())),
        }
    }

    pub fn combine(&self, op: ast::SetOperator, all: bool, left: Rel, right: Rel) -> Bind<Rel> {
        if left.columns.len() != right.columns.len() {
            let message = format!("each {op} query must have the same number of columns");
            return Err(SqlError::new("42601", message).into());
        }
        let pairs = left.columns.iter().zip(&right.columns);
        let name = op.to_string();
        let types = pairs.map(|(l, r)| common_type(&name, &[asked(l), asked(r)])).collect::<Result<Vec<_>, _>>()?;
        let left = self.cast_columns(left, &types)?;
        let right = self.cast_columns(right, &types)?;
        match op {
            ast::SetOperator::Union => {
                let columns = left.columns;
                let plan = df(df(LogicalPlanBuilder::from(left.plan).union(right.plan))?.build())?;
                let given = plan.schema().columns();
                let rel = self.project(plan, given.into_iter().map(DfExpr::Column).zip(columns).collect(), false)?;
                if all { Ok(rel) } else { self.distinct(rel) }
            }
            ast::SetOperator::Intersect => self.matching(left, right, all, true),
            ast::SetOperator::Except => self.matching(left, right, all, false),
            ast::SetOperator::Minus => refuse("MINUS"),
        }
    }

    /// The columns as these types.
    pub fn cast_columns(&self, rel: Rel, types: &[Type]) -> Bind<Rel> {
        let sources = vec![rel.columns.iter().map(|c| Leaf::new(DfExpr::Column(c.column.clone()), c.ty)).collect()];
        let mut outputs = Vec::with_capacity(types.len());
        for (i, (column, &ty)) in rel.columns.into_iter().zip(types).enumerate() {
            let cell = Expr::Cell { source: 0, column: i as u16 };
            let expr = self.with_leaves(&sources, |leaves| leaves.as_type(&cell, column.ty, ty))?;
            outputs.push((expr, Output { ty, untyped: false, origin: None, ..column }));
        }
        self.project(rel.plan, outputs, rel.at_most_one)
    }

    // ---- subqueries

    /// A query whose names may mean columns of the query around it.
    fn subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Rel> {
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        self.correlated(binder, scope, sources, |binder| self.query(binder, query))
    }

    pub fn correlated<T>(
        &self,
        binder: &mut Binder<'_>,
        scope: &Scope,
        sources: Vec<Vec<Leaf>>,
        plan: impl FnOnce(&mut Binder<'_>) -> Bind<T>,
    ) -> Bind<T> {
        self.state.borrow_mut().levels.push(Level { scope: scope.clone(), sources });
        let stored = std::mem::take(&mut binder.output_types);
        let planned = plan(binder);
        binder.output_types = stored;
        self.state.borrow_mut().levels.pop();
        planned
    }

    fn scalar_subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Bound> {
        let rel = self.subquery(binder, query, scope)?;
        let ty = only_column(&rel)?.ty;
        let column = DfExpr::Column(rel.columns[0].column.clone());
        if rel.at_most_one || rel.plan.all_out_ref_exprs().is_empty() {
            // DataFusion itself refuses a second row of a subquery that it runs once.
            return Ok(self.given(DfExpr::ScalarSubquery(subquery_of(rel.plan)), ty));
        }
        // Decorrelated it is a join, which would give the outer row twice: first value and count, checked per outer row.
        let value = plain_aggregate(first_value_udaf(), vec![column], false, None);
        let one = lit(Type::Int8, &Datum::Int(1))?;
        let count = plain_aggregate(count_udaf(), vec![one], false, None);
        let folded = |expr: DfExpr| -> Bind<DfExpr> {
            let none: Vec<DfExpr> = Vec::new();
            let plan =
                df(df(LogicalPlanBuilder::from(rel.plan.clone()).aggregate(none, vec![expr.alias("c0")]))?.build())?;
            Ok(DfExpr::ScalarSubquery(subquery_of(plan)))
        };
        let only = call(OnlyRow::new(ty), vec![folded(value)?, folded(count)?]);
        Ok(self.given(only, ty))
    }

    fn exists(&self, binder: &mut Binder<'_>, query: &ast::Query, negated: bool, scope: &Scope) -> Bind<Bound> {
        let in_filter = self.state.borrow().in_filter;
        let rel = self.subquery(binder, query, scope)?;
        if in_filter {
            let exists = DfExpr::Exists(Exists { subquery: subquery_of(rel.plan), negated });
            return Ok(self.given(exists, Type::Bool));
        }
        let one = lit(Type::Int8, &Datum::Int(1))?;
        let count = plain_aggregate(count_udaf(), vec![one.clone()], false, None).alias("c0");
        let none: Vec<DfExpr> = Vec::new();
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).aggregate(none, vec![count]))?.build())?;
        let op = if negated { Operator::Lt } else { Operator::GtEq };
        Ok(self.given(infix(DfExpr::ScalarSubquery(subquery_of(plan)), op, one), Type::Bool))
    }

    fn in_subquery(
        &self,
        binder: &mut Binder<'_>,
        expr: &ast::Expr,
        query: &ast::Query,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        if !self.state.borrow().in_filter {
            return refuse("IN (SELECT ...) outside of WHERE and HAVING");
        }
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let rel = self.subquery(binder, query, scope)?;
        let given = only_column(&rel)?.clone();
        let bound = binder.bind(expr, scope)?;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, bound.ty, Some(given.ty))?;
        let Some(ty) = common(operator.left, operator.right) else {
            return refuse(format!("a comparison of {:?} with a subquery of {:?}", operator.left, operator.right));
        };
        let wanted = binder.coerce(bound, operator.left, CastContext::Implicit)?;
        let wanted = self.with_leaves(&sources, |leaves| leaves.as_type(&wanted, operator.left, ty))?;
        let rel = self.cast_columns(rel, &[ty])?;
        let keyed = key(DfExpr::Column(rel.columns[0].column.clone()), ty);
        let rel = self.project(rel.plan, vec![(keyed, rel.columns[0].clone())], false)?;
        let inside = InSubquery::new(Box::new(key(wanted, ty)), subquery_of(rel.plan), negated);
        Ok(self.given(DfExpr::InSubquery(inside), Type::Bool))
    }
}

impl Beyond for Planner<'_> {
    fn expression(&self, binder: &mut Binder<'_>, ast: &ast::Expr, scope: &Scope) -> Bind<Option<Bound>> {
        use ast::BinaryOperator as B;
        use ast::Expr as A;
        Ok(Some(match ast {
            A::Subquery(query) => self.scalar_subquery(binder, query, scope)?,
            A::Exists { subquery, negated } => self.exists(binder, subquery, *negated, scope)?,
            A::InSubquery { expr, subquery, negated } => self.in_subquery(binder, expr, subquery, *negated, scope)?,
            A::AnyOp { left, compare_op: B::Eq, right, is_some: _ } => match right.as_ref() {
                A::Subquery(query) => self.in_subquery(binder, left, query, false, scope)?,
                _ => return Ok(None),
            },
            A::AllOp { left, compare_op: B::NotEq, right } => match right.as_ref() {
                A::Subquery(query) => self.in_subquery(binder, left, query, true, scope)?,
                _ => return Ok(None),
            },
            A::Function(function) if function.over.is_some() => self.bind_window(binder, function, scope)?,
            A::Function(function) => return self.set_output(binder, function, None, scope),
            A::CompoundFieldAccess { root, access_chain } => match field_of(root, access_chain) {
                Some(FieldOf::Call(function, field)) => {
                    return self.set_output(binder, function, Some(&field), scope);
                }
                Some(FieldOf::Column(column)) => binder.bind(&column, scope)?,
                None => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    fn outer_column(&self, names: &[String]) -> Bind<Option<Bound>> {
        let found = {
            let state = self.state.borrow();
            let mut found = None;
            for level in state.levels.iter().rev() {
                let looked = match names {
                    [name] => level.scope.column(name),
                    [qualifier, name] => level.scope.qualified(qualifier, name),
                    _ => return Ok(None),
                };
                match looked {
                    Ok(column) => {
                        let leaf = level.sources.get(usize::from(column.source));
                        found = leaf.and_then(|s| s.get(usize::from(column.column))).cloned();
                        break;
                    }
                    Err(error) if error.sqlstate == "42702" => return Err(error.into()),
                    Err(_) => {}
                }
            }
            found
        };
        let Some(leaf) = found else {
            return Ok(None);
        };
        let DfExpr::Column(column) = leaf.expr else {
            return refuse("a reference to a computed column of an outer query");
        };
        let field = datafusion::arrow::datatypes::Field::new(column.name.clone(), data_type(leaf.ty), true);
        Ok(Some(self.given(DfExpr::OuterReferenceColumn(Arc::new(field), column), leaf.ty)))
    }
}

/// GROUP BY's keys.
#[derive(Default)]
struct Keys {
    exprs: Vec<(Expr, Type)>,
}

/// A SELECT once its rows are grouped and its window functions are computed.
struct Selected {
    items: Vec<Item>,
    untyped: Vec<bool>,
    origins: Vec<Option<(u32, u16)>>,
    order: Vec<OrderItem>,
    on: Vec<(Expr, Type)>,
    distinct: bool,
    at_most_one: bool,
    window_leaves: Vec<Leaf>,
    set_leaves: Vec<Vec<Leaf>>,
}

/// LIMIT and OFFSET.
#[derive(Default)]
struct Limits {
    limit: Option<u64>,
    offset: Option<u64>,
}

impl Limits {
    fn apply(&self, rel: Rel) -> Bind<Rel> {
        if self.limit.is_none() && self.offset.unwrap_or(0) == 0 {
            return Ok(rel);
        }
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (skip, fetch) = (number(self.offset.unwrap_or(0)), self.limit.map(number));
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).limit(skip, fetch))?.build())?;
        Ok(Rel { plan, ..rel })
    }
}

pub fn output(name: String, ty: Type) -> Output {
    Output { name, ty, column: DfColumn::new_unqualified(""), untyped: false, origin: None }
}

fn sort(expr: DfExpr, by: &OrderItem) -> Sort {
    Sort { expr: key(expr, by.order.ty), asc: !by.order.descending, nulls_first: by.order.nulls_first }
}

pub fn subquery_of(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

fn only_column(rel: &Rel) -> Bind<&Output> {
    match rel.columns.as_slice() {
        [column] => Ok(column),
        _ => Err(SqlError::new("42601", "subquery must return only one column").into()),
    }
}

fn asked(column: &Output) -> Option<Type> {
    (!column.untyped).then_some(column.ty)
}

/// What the compiled road leaves to another, on this road is not there.
pub fn as_unsupported(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NotCompiled { what, position } => SqlError::unsupported(what).at(position).into(),
        error => error,
    }
}

fn scope_of(rel: &Rel) -> Scope {
    let columns = rel.columns.iter().map(|c| ScopeColumn { name: c.name.clone(), ty: c.ty });
    Scope {
        sources: vec![ScopeSource { name: String::new(), table: None, columns: columns.collect(), merged: Vec::new() }],
    }
}

fn origin(expr: &Expr, scope: &Scope) -> Option<(u32, u16)> {
    match expr {
        Expr::Column { source, column } => {
            let table = scope.sources.get(usize::from(*source))?.table.as_ref()?;
            Some((table.id.0, column + 1))
        }
        _ => None,
    }
}

/// Which items are literals without a type.
fn untyped_items(projection: &[SelectItem], items: usize) -> Vec<bool> {
    if projection.len() != items {
        return vec![false; items];
    }
    let untyped = |e: &ast::Expr| match e {
        ast::Expr::Value(v) => matches!(v.value, ast::Value::Null | ast::Value::SingleQuotedString(_)),
        _ => false,
    };
    let items = projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => untyped(e),
        _ => false,
    });
    items.collect()
}

pub fn plain_aggregate(
    function: Arc<AggregateUDF>,
    args: Vec<DfExpr>,
    distinct: bool,
    filter: Option<DfExpr>,
) -> DfExpr {
    DfExpr::AggregateFunction(DfAggregate::new_udf(function, args, distinct, filter.map(Box::new), Vec::new(), None))
}

/// An aggregate's function, arguments and result type.
pub fn aggregate_call(
    aggregate: &Aggregate,
    leaves: &Leaves<'_>,
) -> Result<(Arc<AggregateUDF>, Vec<DfExpr>, Type), SqlError> {
    let ty = aggregate.arg.as_ref().map(|(_, ty)| *ty);
    let Some((_, result)) = aggregate.function.types(ty) else {
        return Err(SqlError::new("42883", "no such aggregate for this type"));
    };
    let arg = match &aggregate.arg {
        None => DfExpr::Literal(ScalarValue::Int64(Some(1)), None),
        Some((arg, ty)) => leaves.convert(arg, *ty)?,
    };
    let ty = ty.unwrap_or(Type::Int8);
    let fold = |kind| Arc::new(AggregateUDF::new_from_impl(Fold::new(kind, ty, result)));
    let function = match aggregate.function {
        AggregateFunction::Count => {
            let arg = if aggregate.distinct { key(arg, ty) } else { arg };
            return Ok((count_udaf(), vec![arg], result));
        }
        AggregateFunction::Min if is_float(ty) => fold(Kind::Least),
        AggregateFunction::Max if is_float(ty) => fold(Kind::Greatest),
        AggregateFunction::Min => min_udaf(),
        AggregateFunction::Max => max_udaf(),
        AggregateFunction::BoolAnd => bool_and_udaf(),
        AggregateFunction::BoolOr => bool_or_udaf(),
        AggregateFunction::Sum => fold(Kind::Sum),
        AggregateFunction::Avg => fold(Kind::Average),
    };
    Ok((function, vec![arg], result))
}

fn fold_of(aggregate: &Aggregate, leaves: &Leaves<'_>) -> Result<(DfExpr, Type), SqlError> {
    let (function, args, ty) = aggregate_call(aggregate, leaves)?;
    let filter = aggregate.filter.as_ref().map(|f| leaves.condition(f)).transpose()?;
    // Duplicates change neither a minimum nor a truth.
    let distinct = aggregate.distinct
        && matches!(aggregate.function, AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg);
    Ok((plain_aggregate(function, args, distinct, filter), ty))
}

fn refuse_other_dialects(select: &Select) -> Bind<()> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top: _,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    if into.is_some() {
        return refuse("SELECT INTO");
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
        return refuse("a clause of another dialect");
    }
    Ok(())
}

fn bare_query(body: SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// A value that a plan needs while it is made.
pub fn int_of(datum: &Datum) -> Option<i64> {
    match datum.as_value() {
        Value::Int(v) => Some(v),
        _ => None,
    }
}
