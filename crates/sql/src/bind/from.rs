//! What does FROM read? Sources, joins, and the order of the loops over them.

use super::expr::Bound;
use super::names::{alias_of_source, is_of_view};
use super::scope::{Merged, MergedOf, Scope, ScopeColumn, ScopeSource, fold, relation_name};
use super::{Bind, Binder, Refusal, not_compiled};
use crate::compiled::access::{Access, Choice, Knowledge, Rank, WantedOrder, choose, view_key};
use crate::compiled::estimate::shares;
use crate::compiled::query::{Query, Step};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{call_of, columns_and_alias};
use crate::rows::Column;
use crate::value::Datum;
use crate::value::cast::CastContext;
use crate::value::function::rows::RowFunction;
use crate::value::operator::BinaryOp;
use crate::value::set::SetFunction;
use freshet_engine::catalog::Table;
use freshet_engine::schema::Type;
use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, ObjectName, SetExpr, TableAlias,
    TableFactor, TableWithJoins,
};
use std::ops::Range;
use std::sync::Arc;

/// FROM and its ON conditions.
#[derive(Default)]
pub struct From {
    pub scope: Scope,
    /// By source; the path of a computed one.
    pub computed: Vec<Option<Access>>,
    /// By source: what a LEFT JOIN matches by.
    pub outer: Vec<Option<Vec<Expr>>>,
    /// Conditions of inner joins, which are as good as WHERE's.
    pub conditions: Vec<Expr>,
    pub known: Knowledge,
}

impl From {
    pub fn tables(&self) -> Vec<Option<Arc<Table>>> {
        let sources = self.scope.sources.iter();
        sources.map(|s| s.table.clone()).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.scope.sources.iter().map(|s| s.name.clone()).collect()
    }

    pub fn widths(&self) -> Vec<usize> {
        let sources = self.scope.sources.iter();
        sources.map(|s| s.columns.len() - s.computed.len()).collect()
    }

    pub(super) fn add(&mut self, source: ScopeSource, computed: Option<Access>) -> Bind<u16> {
        let at = self.scope.add(source)?;
        self.computed.push(computed);
        self.outer.push(None);
        Ok(at)
    }
}

impl Binder<'_> {
    pub fn from(&mut self, list: &[TableWithJoins]) -> Bind<From> {
        let mut from = From { known: self.knowledge(), ..From::default() };
        for item in list {
            let TableWithJoins { relation, joins } = item;
            let first = from.scope.sources.len();
            from.scope.begin_item();
            self.factor(relation, &mut from)?;
            for join in joins {
                self.join(join, first, &mut from)?;
            }
        }
        Ok(from)
    }

    pub(super) fn knowledge(&self) -> Knowledge {
        Knowledge { statistics: self.statistics.clone(), ..Knowledge::default() }
    }

    pub(super) fn note_estimates(&mut self, known: &Knowledge) {
        self.is_estimated |= known.is_asked.get();
        self.unknown_tables.extend(known.unknown.take());
    }

    pub(super) fn factor(&mut self, factor: &TableFactor, from: &mut From) -> Bind<u16> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                index_hints,
            } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => match args {
                None => self.table_source(name, alias.as_ref(), from),
                Some(ast::TableFunctionArgs { args, settings: None }) => {
                    self.called_source(name, args, alias.as_ref(), from)
                }
                Some(_) => not_compiled(format!("the source {factor}")),
            },
            TableFactor::Function { lateral: false, name, args, with_ordinality: false, alias } => {
                self.called_source(name, args, alias.as_ref(), from)
            }
            TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                self.derived_source(subquery, alias.as_ref(), from)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } if table_with_joins.joins.is_empty() => {
                self.factor(&table_with_joins.relation, from)
            }
            other => not_compiled(format!("the source {other}")),
        }
    }

    fn table_source(&mut self, name: &ObjectName, alias: Option<&TableAlias>, from: &mut From) -> Bind<u16> {
        if let Some(view) = self.view(name) {
            let (alias, columns) = alias_parts(alias)?;
            let namespace = view.namespace().filter(|_| alias.is_none());
            let source = ScopeSource::of_view(alias.unwrap_or_else(|| view.name().to_owned()), &view);
            let mut source = ScopeSource { namespace, ..source };
            rename(&mut source, columns)?;
            return from.add(source, Some(Access::View { view, schema: self.schema.clone(), key: None }));
        }
        let table = self.table(name)?;
        let (alias, columns) = alias_parts(alias)?;
        let mut source = ScopeSource::of_relation(&table, alias);
        rename(&mut source, columns)?;
        from.add(source, None)
    }

    fn called_source(
        &mut self,
        name: &ObjectName,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
        from: &mut From,
    ) -> Bind<u16> {
        if is_series(name) {
            let (bounds, source) = self.series(name, args, alias)?;
            return from.add(source, Some(Access::Series(bounds)));
        }
        let own = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let is_set = SetFunction::exists(&own) || RowFunction::of_named_columns(&own).is_some();
        if is_set || alias.is_some_and(|alias| alias.columns.iter().any(|c| c.data_type.is_some())) {
            return not_compiled(format!("the function {name} in FROM"));
        }
        let (value, ty) = self.called_once(name, args)?;
        let (alias, names) = alias_parts(alias)?;
        let called = alias.unwrap_or(own);
        let column = Column { is_computed: true, ..Column::new(&called, ty) };
        let source = vec![ScopeColumn { is_computed: true, ..ScopeColumn::new(called.clone(), ty) }];
        let mut source = ScopeSource { is_scalar: true, ..ScopeSource::of_columns(called.clone(), source) };
        rename(&mut source, names)?;
        // A query of its own: it is called once, however often a join asks for its row.
        let row = Query::of_rows(&called, vec![vec![value]], vec![column]);
        from.add(source, Some(Access::Derived(Box::new(row))))
    }

    /// A function that gives one value, which names no column of what stands before it.
    fn called_once(&mut self, name: &ObjectName, args: &[FunctionArg]) -> Bind<(Expr, Type)> {
        let list = ast::FunctionArgumentList { duplicate_treatment: None, args: args.to_vec(), clauses: Vec::new() };
        let call = call_of(name.clone(), ast::FunctionArguments::List(list));
        let outer = self.aggregates.take();
        let bound = self.bind(&call, &Scope::default()).and_then(|bound| self.known(bound));
        self.aggregates = outer;
        match bound {
            Ok(Bound { expr, ty, .. }) => Ok((expr, ty.unwrap_or(Type::Text))),
            // The other road knows the columns before it, and more functions.
            Err(Refusal::Error(e)) if matches!(e.sqlstate, "42703" | "42P01" | "42883") && self.beyond.is_none() => {
                Err(Refusal::NotCompiled { what: e.message, position: e.position })
            }
            Err(refusal) => Err(within_from(refusal)),
        }
    }

    /// Start, end and step of a generate_series in FROM, and the one column that it gives.
    pub fn series(
        &mut self,
        name: &ObjectName,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
    ) -> Bind<([Expr; 3], ScopeSource)> {
        if !is_series(name) || !matches!(args.len(), 2 | 3) {
            return not_compiled(format!("the function {name} in FROM"));
        }
        let mut bounds = Vec::with_capacity(3);
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else {
                return not_compiled(format!("the argument {arg}"));
            };
            let bound = self.bind(arg, &Scope::default()).map_err(|refusal| match refusal {
                // The other road knows the columns before it.
                Refusal::Error(e) if matches!(e.sqlstate, "42703" | "42P01") && self.beyond.is_none() => {
                    Refusal::NotCompiled { what: e.message, position: e.position }
                }
                other => other,
            });
            bounds.push(bound?);
        }
        if bounds.len() == 2 {
            bounds.push(Bound::new(Expr::Const(Datum::Int(1)), Type::Int4));
        }
        let mut ty = Type::Int4;
        for bound in &bounds {
            match bound.ty {
                None | Some(Type::Int2 | Type::Int4) => {}
                Some(Type::Int8) => ty = Type::Int8,
                Some(_) => return not_compiled("generate_series of this type"),
            }
        }
        let bounds = self.coerce_all(bounds, ty)?;
        let bounds: [Expr; 3] = bounds.try_into().expect("two bounds and a step were bound above");
        let (alias, columns) = alias_parts(alias)?;
        let alias = alias.unwrap_or_else(|| SERIES.to_owned());
        let value = vec![ScopeColumn::new(alias.clone(), ty)];
        let mut source = ScopeSource { is_scalar: true, ..ScopeSource::of_columns(alias, value) };
        rename(&mut source, columns)?;
        Ok((bounds, source))
    }

    fn derived_source(&mut self, query: &ast::Query, alias: Option<&TableAlias>, from: &mut From) -> Bind<u16> {
        let around = self.is_kept;
        self.is_kept |= alias.is_some_and(|alias| is_of_view(&alias.name));
        let added = self.subquery_source(query, alias, from);
        self.is_kept = around;
        added
    }

    fn subquery_source(&mut self, query: &ast::Query, alias: Option<&TableAlias>, from: &mut From) -> Bind<u16> {
        let namespace = alias.and_then(|alias| alias_of_source(&alias.name).1);
        let (alias, names) = alias_parts(alias)?;
        let Some(alias) = alias else {
            return Err(SqlError::new("42601", "subquery in FROM must have an alias").into());
        };
        if let Some(source) = self.flattened(query, (&alias, namespace), &names, from)? {
            return Ok(source);
        }
        let outer = self.aggregates.take();
        let locked = self.locked_derived(query, &alias);
        let query = locked.as_ref().unwrap_or(query);
        let (columns, access) = match query.body.as_ref() {
            SetExpr::Values(values) if is_bare(query) => {
                let (rows, types) = self.value_rows(values)?;
                let named = |(i, ty)| ScopeColumn::new(format!("column{}", i + 1), ty);
                let columns = types.into_iter().enumerate().map(named);
                let columns = columns.map(|column| ScopeColumn { is_computed: true, ..column });
                (columns.collect(), Access::Values(rows))
            }
            _ => {
                let inner = self.query(query)?;
                let column =
                    |c: &Column| ScopeColumn { is_computed: c.is_computed, ..ScopeColumn::new(c.name.clone(), c.ty) };
                let columns = inner.columns.iter().map(column);
                (columns.collect(), Access::Derived(Box::new(inner)))
            }
        };
        self.aggregates = outer;
        let mut source = ScopeSource { namespace, ..ScopeSource::of_columns(alias, columns) };
        rename(&mut source, names)?;
        from.add(source, Some(access))
    }

    /// `first`: the first source of its item of FROM, before which a join sees nothing.
    fn join(&mut self, join: &Join, first: usize, from: &mut From) -> Bind<()> {
        let Join { relation, global, join_operator } = join;
        if *global {
            return not_compiled("a GLOBAL join");
        }
        check_condition(join_operator)?;
        let (constraint, left) = match join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => (c, false),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (c, true),
            _ => return not_compiled(format!("the join {join}")),
        };
        let before = from.scope.behind(first);
        let known = from.conditions.len();
        let source = self.factor(relation, from)?;
        // What a subquery in its place asks of its rows.
        let own = from.conditions.split_off(known);
        let mut conditions = match constraint {
            JoinConstraint::On(on) => {
                let scope = from.scope.behind(first);
                conjuncts(self.condition(on, "JOIN/ON", &scope)?)
            }
            JoinConstraint::Using(columns) if columns_and_alias(columns).1.is_some() => {
                return not_compiled("a name for the columns of USING");
            }
            JoinConstraint::Using(columns) => self.using(columns, &before, (source, left), from)?,
            JoinConstraint::None => Vec::new(),
            JoinConstraint::Natural => return not_compiled("NATURAL JOIN"),
        };
        conditions.extend(own);
        if left {
            from.outer[usize::from(source)] = Some(conditions);
            from.scope.sources[usize::from(source)].nullable = true;
        } else {
            from.conditions.extend(conditions);
        }
        Ok(())
    }

    /// `joined`: the source and whether it is a LEFT JOIN's.
    fn using(
        &mut self,
        columns: &[ObjectName],
        before: &Scope,
        joined: (u16, bool),
        from: &mut From,
    ) -> Bind<Vec<Expr>> {
        let (source, is_left) = joined;
        let mut conditions = Vec::with_capacity(columns.len());
        let mut merged = Vec::with_capacity(columns.len());
        for name in columns {
            let name = relation_name(name)?;
            let left = left_of_using(before, &name)?;
            let right = {
                let columns = &from.scope.sources[usize::from(source)].columns;
                let at = columns.iter().position(|c| c.name == name);
                let Some(at) = at else {
                    return Err(SqlError::new(
                        "42703",
                        format!("column \"{name}\" specified in USING clause does not exist in right table"),
                    )
                    .into());
                };
                super::scope::Found { source, column: at as u16, ty: columns[at].ty }
            };
            let (l, r) = (from.scope.expr(left), from.scope.expr(right));
            let equal = self.compare(BinaryOp::Eq, Bound::new(l, left.ty), Bound::new(r, right.ty))?;
            conditions.push(equal.expr);
            let pair = Merged::new(left, right, if is_left { MergedOf::Left } else { MergedOf::Either })?;
            if pair.is_made() {
                return not_compiled("a merged column of two types");
            }
            from.scope.sources[usize::from(pair.hidden().source)].merged.push(pair.hidden().column);
            merged.push(pair.kept());
        }
        from.scope.merge_first(merged);
        Ok(conditions)
    }

    /// The rows of VALUES, every column of one type.
    pub fn value_rows(&mut self, values: &ast::Values) -> Bind<(Vec<Vec<Expr>>, Vec<Type>)> {
        self.value_rows_of(values, &Scope::default())
    }

    /// Rows of expressions over the columns of a scope.
    pub fn value_rows_of(&mut self, values: &ast::Values, scope: &Scope) -> Bind<(Vec<Vec<Expr>>, Vec<Type>)> {
        let ast::Values { explicit_row, value_keyword, rows } = values;
        if *explicit_row || *value_keyword {
            return Err(SqlError::new("42601", "VALUES takes rows in parentheses").into());
        }
        let rows = rows.iter().map(|row| self.spread(&row.content, scope)).collect::<Bind<Vec<_>>>()?;
        let width = rows.first().map_or(0, |row| row.len());
        let mut columns: Vec<Vec<Bound>> = vec![Vec::with_capacity(rows.len()); width];
        for row in &rows {
            if row.len() != width {
                return Err(SqlError::new("42601", "VALUES lists must all be the same length").into());
            }
            for (column, expr) in columns.iter_mut().zip(row.iter()) {
                column.push(self.bind(expr, scope)?);
            }
        }
        let mut types = Vec::with_capacity(width);
        let mut list: Vec<Vec<Expr>> = rows.iter().map(|_| Vec::with_capacity(width)).collect();
        for column in columns {
            let ty = self.common_of("VALUES", &column)?;
            types.push(ty);
            for (row, expr) in list.iter_mut().zip(self.coerce_all(column, ty)?) {
                row.push(expr);
            }
        }
        Ok((list, types))
    }

    /// A count for LIMIT and the like.
    pub fn row_count(&mut self, ast: &ast::Expr) -> Bind<Expr> {
        let bound = self.bind(ast, &Scope::default())?;
        self.coerce(bound, Type::Int8, CastContext::Assignment)
    }
}

/// What PostgreSQL says of an aggregate that is called in FROM.
pub fn within_from(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Error(e) if e.sqlstate == "42803" => {
            let message = "aggregate functions are not allowed in functions in FROM".to_owned();
            Refusal::Error(SqlError { message, ..e })
        }
        other => other,
    }
}

const SERIES: &str = "generate_series";

/// Whether a function's name is `generate_series`.
pub fn is_series(name: &ObjectName) -> bool {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    match parts.as_slice() {
        [name] => name == SERIES,
        [schema, name] => schema == "pg_catalog" && name == SERIES,
        _ => false,
    }
}

/// A query that is nothing but its body.
pub fn is_bare(query: &ast::Query) -> bool {
    let ast::Query {
        with,
        body: _,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    with.is_none()
        && order_by.is_none()
        && limit_clause.is_none()
        && fetch.is_none()
        && locks.is_empty()
        && for_clause.is_none()
        && settings.is_none()
        && format_clause.is_none()
        && pipe_operators.is_empty()
}

pub fn alias_parts(alias: Option<&TableAlias>) -> Bind<(Option<String>, Vec<String>)> {
    let Some(alias) = alias else {
        return Ok((None, Vec::new()));
    };
    let TableAlias { explicit: _, name, columns, at: None } = alias else {
        return not_compiled(format!("the alias {alias}"));
    };
    if columns.iter().any(|c| c.data_type.is_some()) {
        return not_compiled(format!("the alias {alias}"));
    }
    Ok((Some(alias_of_source(name).0), columns.iter().map(|c| fold(&c.name)).collect()))
}

pub fn rename(source: &mut ScopeSource, names: Vec<String>) -> Result<(), SqlError> {
    let visible = source.columns.iter().filter(|c| !c.name.is_empty()).count();
    if names.len() > visible {
        return Err(SqlError::new(
            "42P10",
            format!(
                "table \"{}\" has {} columns available but {} columns specified",
                source.name,
                visible,
                names.len()
            ),
        ));
    }
    for (column, name) in source.columns.iter_mut().filter(|c| !c.name.is_empty()).zip(names) {
        column.name = name;
    }
    Ok(())
}

/// The parts of a condition that must all hold.
pub fn conjuncts(condition: Expr) -> Vec<Expr> {
    match condition {
        Expr::And(list) => list.into_iter().flat_map(conjuncts).collect(),
        Expr::Const(Datum::Bool(true)) => Vec::new(),
        other => vec![other],
    }
}

// ---- the order of the loops

/// The loops of a join, and whether they give the wanted order.
pub struct Loops {
    pub steps: Vec<Step>,
    pub precondition: Vec<Expr>,
    pub ordered: bool,
    /// Every loop gives at most one row.
    pub one_row: bool,
    /// A stored table, or many computed rows, are looked through for every row of the loops outside of them.
    pub rescans: bool,
}

/// How many rows a path may be expected to give. Without statistics: a keyed path beats a bounded one beats a scan.
fn expected_rows(access: &Access, rank: &Rank) -> f64 {
    match access {
        _ if rank.one_row => 1.0,
        Access::Lookup { .. } => 10.0,
        Access::Points { list, .. } => 2.0 * list.expected() as f64,
        Access::Union(arms) => arms
            .iter()
            .map(|arm| expected_rows(&arm.access, &Rank { one_row: false, bounds: 2, ..Rank::default() }))
            .sum(),
        Access::Unique { .. } => 1.0,
        Access::Range(range) if !range.equal.is_empty() => 50.0 / (range.equal.len() + rank.bounds) as f64,
        Access::Range(_) if rank.bounds == 2 => 1_000.0,
        Access::Range(_) if rank.bounds == 1 => 10_000.0,
        Access::View { key: Some(_), .. } => 3.0,
        Access::Series(_) | Access::Values(_) | Access::Derived(_) | Access::View { .. } => 100.0,
        _ => 1_000_000.0,
    }
}

/// Chooses the order of the loops and each one's path.
pub fn plan_loops(from: &mut From, mut conditions: Vec<Expr>, order: &[(u16, WantedOrder)]) -> Loops {
    // As PostgreSQL has it, the cheaper are asked first: what may fail is spared rows that others reject.
    if conditions.iter().any(Expr::may_fail) {
        conditions.sort_by_key(Expr::operators);
    }
    let (loose, conditions): (Vec<_>, Vec<_>) = conditions.into_iter().partition(|c| c.last_source().is_none());
    let count = from.scope.sources.len();
    // What has another value each time is asked of each row.
    let (each_row, precondition): (Vec<Expr>, Vec<Expr>) =
        loose.into_iter().partition(|c| count > 0 && c.is_volatile());
    let sequence = order_of_loops(from, &conditions);
    let mut loops =
        Loops { steps: Vec::with_capacity(count), precondition, ordered: true, one_row: true, rescans: false };
    let mut rest = conditions;
    let mut outer_rows = 1.0;
    let mut done = vec![false; count];
    for (depth, &source) in sequence.iter().enumerate() {
        let known = |s: u16| s == source || done[usize::from(s)];
        let (mut now, later): (Vec<Expr>, Vec<Expr>) = rest.into_iter().partition(|c| !c.mentions(|s| !known(s)));
        rest = later;
        let wanted: Vec<WantedOrder> = if depth == 0 && order.iter().all(|(s, _)| *s == source) {
            order.iter().map(|(_, wanted)| *wanted).collect()
        } else {
            Vec::new()
        };
        let mut outer = from.outer[usize::from(source)].take();
        let choice = {
            let keyed = outer.as_ref().unwrap_or(&now);
            let choice = path(from, source, keyed, &|s| done[usize::from(s)], &wanted);
            looks_through_many(from, source, outer_rows, &mut loops);
            let rows = rows_of_path(from, source, keyed, &choice, depth == 0);
            let is_again = depth > 0 && from.scope.sources[usize::from(source)].table.is_some();
            let is_led = choice.rank.one_row || choice.keyed.iter().any(|&at| keyed[at].mentions(|s| s != source));
            loops.rescans |= is_again && !is_led && outer_rows * rows > LOOKS_MAX;
            outer_rows *= rows;
            choice
        };
        let answered = outer.as_mut().unwrap_or(&mut now);
        let mut at = 0;
        let access = match from.computed[usize::from(source)].take() {
            Some(_) if matches!(choice.access, Access::View { .. }) => choice.access,
            Some(access) => access,
            None => choice.access,
        };
        let shown = |is_key: bool| {
            let of = answered.iter().enumerate().filter(|(at, _)| choice.keyed.contains(at) == is_key);
            of.map(|(_, condition)| describe(condition, from)).collect()
        };
        let (keyed, conditions) = (shown(true), shown(false));
        let asked = answered.extract_if(.., |_| {
            at += 1;
            choice.answered.contains(&(at - 1))
        });
        let answered = asked.collect();
        if depth == 0 {
            loops.ordered = choice.ordered && order.iter().all(|(s, _)| *s == source) || order.is_empty();
        }
        loops.one_row &= choice.rank.one_row;
        loops.rescans |= depth > 0 && matches!(access, Access::Scan | Access::View { key: None, .. });
        loops.steps.push(Step { source, access, filter: now, outer, answered, keyed, conditions });
        done[usize::from(source)] = true;
    }
    if let Some(last) = loops.steps.last_mut() {
        last.conditions.extend(each_row.iter().map(|condition| describe(condition, from)));
        last.filter.extend(each_row);
    }
    loops
}

/// Rows of a stored table that may be looked at along an index by conditions that say nothing of the loops outside of it, again for each of their rows:
/// about as long as it takes to plan a hash join.
const LOOKS_MAX: f64 = 100_000.0;

/// Rows of the outer loops for each of which a computed source may be looked through.
const FEW_OUTER_ROWS: f64 = 10.0;

/// Notes a computed source whose rows are better hashed.
fn looks_through_many(from: &From, source: u16, outer_rows: f64, loops: &mut Loops) {
    if let Some(Access::Derived(inner)) = &from.computed[usize::from(source)] {
        loops.rescans |= outer_rows > FEW_OUTER_ROWS && !inner.gives_few() && !inner.locks_rows();
    }
}

fn describe(condition: &Expr, from: &From) -> String {
    crate::expr::show(condition, &|source, column| {
        let source = &from.scope.sources[usize::from(source)];
        let name = &source.columns[usize::from(column)].name;
        if from.scope.sources.len() > 1 { format!("{}.{name}", source.name) } else { name.clone() }
    })
}

fn path(
    from: &From,
    source: u16,
    conditions: &[Expr],
    available: &dyn Fn(u16) -> bool,
    order: &[WantedOrder],
) -> Choice {
    if let Some(table) = &from.scope.sources[usize::from(source)].table {
        return choose(table, source, conditions, available, order, &from.known);
    }
    let access = match &from.computed[usize::from(source)] {
        Some(Access::View { view, schema, .. }) => {
            let key = view_key(view, source, conditions, available);
            Access::View { view: view.clone(), schema: schema.clone(), key }
        }
        _ => Access::Scan,
    };
    Choice { access, answered: Vec::new(), keyed: Vec::new(), ordered: order.is_empty(), rank: Rank::default() }
}

/// Of so many sources each is tried as the first; of more the one with the fewest rows is.
const EVERY_FIRST_MAX: usize = 12;

/// More sources than that are joined as they are written: a greedy order looks at all conditions for each that is left, each time.
const REORDERED_MAX: usize = 48;

/// An outer join stays where it stands, and so do the others beside it.
fn order_of_loops(from: &From, conditions: &[Expr]) -> Vec<u16> {
    let count = from.scope.sources.len();
    if from.outer.iter().any(Option::is_some) || count > REORDERED_MAX {
        return (0..count as u16).collect();
    }
    let firsts = 0..count as u16;
    let best = if count <= EVERY_FIRST_MAX {
        firsts.map(|first| order_from(from, conditions, first)).min_by(|a, b| a.1.total_cmp(&b.1))
    } else {
        cheapest(from, conditions, firsts, &[]).map(|(first, _)| order_from(from, conditions, first))
    };
    best.map_or(Vec::new(), |(sequence, _)| sequence)
}

/// A greedy order that starts with `first`, and its cost: rows looked at.
fn order_from(from: &From, conditions: &[Expr], first: u16) -> (Vec<u16>, f64) {
    let count = from.scope.sources.len() as u16;
    let mut sequence: Vec<u16> = Vec::with_capacity(usize::from(count));
    let (mut rows, mut cost) = (1.0, 0.0);
    let mut next = cheapest(from, conditions, first..first + 1, &[]);
    while let Some((source, expected)) = next {
        sequence.push(source);
        rows *= expected;
        cost += rows;
        next = cheapest(from, conditions, 0..count, &sequence);
    }
    (sequence, cost)
}

/// The source that gives the fewest rows for each row of the loops of `before`, and how many.
fn cheapest(from: &From, conditions: &[Expr], among: Range<u16>, before: &[u16]) -> Option<(u16, f64)> {
    let rated = among.filter(|source| !before.contains(source)).map(|source| {
        let choice = path(from, source, conditions, &|s| before.contains(&s), &[]);
        (source, rows_of_path(from, source, conditions, &choice, before.is_empty()))
    });
    rated.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn rows_of_path(from: &From, source: u16, conditions: &[Expr], choice: &Choice, is_first: bool) -> f64 {
    match &from.computed[usize::from(source)] {
        Some(access) if !matches!(access, Access::View { .. }) => expected_rows(access, &choice.rank),
        _ => counted_rows(from, source, conditions, choice, is_first)
            .unwrap_or_else(|| expected_rows(&choice.access, &choice.rank)),
    }
}

/// The rows of a path by the table's statistics. What is read whole for each row of the loops before it has none: see `refuse_rescans`.
fn counted_rows(from: &From, source: u16, conditions: &[Expr], choice: &Choice, is_first: bool) -> Option<f64> {
    let table = from.scope.sources[usize::from(source)].table.as_ref()?;
    if choice.rank.one_row || from.scope.sources.len() == 1 || (!is_first && matches!(choice.access, Access::Scan)) {
        return None;
    }
    let known = from.known.of(table)?;
    let share = shares(choice.keyed.iter().map(|&at| &conditions[at]), source, table, Some(&known));
    Some((known.rows_of(table) * share).max(1.0))
}

/// Refuses what only another road can do well.
pub fn refuse_rescans(loops: &Loops) -> Result<(), Refusal> {
    if crate::road::has_other_road() && loops.rescans {
        return not_compiled("a join without an index on its key");
    }
    Ok(())
}

/// The column of USING in what stands to the left.
pub(crate) fn left_of_using(before: &Scope, name: &str) -> Result<super::scope::Found, SqlError> {
    before.column(name).map_err(|mut e| {
        if e.sqlstate == "42703" {
            e.message = format!("column \"{name}\" specified in USING clause does not exist in left table");
        }
        e
    })
}

/// The column of USING in what is joined.
#[cfg(feature = "query")]
pub(crate) fn right_of_using(joined: &Scope, name: &str) -> Result<super::scope::Found, SqlError> {
    joined.column(name).map_err(|mut e| {
        if e.sqlstate == "42703" {
            e.message = format!("column \"{name}\" specified in USING clause does not exist in right table");
        }
        e
    })
}

/// 42601 for a join without what it is by, and a CROSS JOIN with it: the grammar takes both.
pub fn check_condition(operator: &JoinOperator) -> Result<(), SqlError> {
    match operator {
        JoinOperator::CrossJoin(JoinConstraint::None) => Ok(()),
        JoinOperator::CrossJoin(_) => Err(SqlError::new("42601", "a CROSS JOIN takes neither ON nor USING")),
        JoinOperator::Join(JoinConstraint::None)
        | JoinOperator::Inner(JoinConstraint::None)
        | JoinOperator::Left(JoinConstraint::None)
        | JoinOperator::LeftOuter(JoinConstraint::None)
        | JoinOperator::Right(JoinConstraint::None)
        | JoinOperator::RightOuter(JoinConstraint::None)
        | JoinOperator::FullOuter(JoinConstraint::None) => Err(SqlError::new("42601", "a JOIN needs ON or USING")),
        _ => Ok(()),
    }
}
