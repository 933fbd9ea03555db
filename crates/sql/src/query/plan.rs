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
//! | [`GROUPING`] | a call of `grouping()`, until the rows are grouped |
//! | [`SETS`] | a column of a set-returning function among its outputs |
//!
//! Every relation has a name of its own in the plan, and every column of a subplan is called by its position, so that DataFusion never
//! looks up a name that a user chose.

use super::apply::{self, Applied, OuterValue};
use super::cells::data_type;
use super::compute::Computed;
use super::convert::{Leaf, Leaves, call, common, infix, key, lit};
use super::fault::sql_error;
use super::fold::{Fold, Kind};
use super::gather::Gather;
use super::lock::Locking;
use super::scan::Snapshot;
use super::sets::{FieldOf, OutputSets, SetCall, field_of, set_leaf, spread_rows};
use super::sums::FixedSum;
use super::template::Holes;
use super::window::Window;
use super::with::{Part, is_volatile};
use crate::bind::expr::{Bound, folded, table_oid};
use crate::bind::query::{
    Folds, Item, OrderItem, add_dependents, check_direct, order_items, over_groups, settled_outputs,
};
use crate::bind::record::{RECORD, by_fields, column_with_values, fields_of, must_compare, row_columns};
use crate::bind::scope::{Found, Merged, Scope, ScopeColumn, ScopeSource, SourceName};
use crate::bind::{Beyond, Bind, Binder, Mark, PLACEHOLDERS, Parts, Refusal};
use crate::compiled::aggregate::{Aggregate, AggregateFunction, Gathers};
use crate::define::view::query_of_table;
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::parse::distinct_keys;
use crate::rows::Column;
use crate::statistics::TableStatistics;
use crate::value::Datum;
use crate::value::cast::{CastContext, common_type, has_forms, without_modifier};
use crate::value::function::Function;
use crate::value::operator::{BinaryOp, BinaryOperator};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as DfColumn, DFSchema, DataFusionError, JoinType, ScalarValue, Spans, TableReference};
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
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

/// Source of placeholders for expressions of DataFusion's.
pub const GIVEN: u16 = PLACEHOLDERS;
/// Source of placeholders for window functions.
pub const WINDOW: u16 = PLACEHOLDERS + 1;
/// Source of placeholders for calls of `grouping()`.
pub const GROUPING: u16 = PLACEHOLDERS + 3;
/// Places from this one on are none of levels: what reads a recursion's rows is about them as about a row around.
const RECURSIONS: usize = usize::MAX / 2;
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
    /// As `Column`'s.
    pub is_computed: bool,
}

impl Output {
    /// The type that it has for what is made of it: a computed number keeps no precision.
    pub fn declared(&self) -> Type {
        Column { is_computed: self.is_computed, ..Column::new("", self.ty) }.declared()
    }

    /// The column as those see it who read the relation.
    pub fn scope_column(&self) -> ScopeColumn {
        ScopeColumn { is_computed: self.is_computed, ..ScopeColumn::new(self.name.clone(), self.ty) }
    }
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
    /// Where the plan is one of every row beside every row, and nothing more: what these are.
    pub(super) halves: Option<Halves>,
}

/// The items of FROM before one, and that one, which two plans give.
#[derive(Clone)]
pub(super) struct Halves {
    pub before: LogicalPlan,
    pub beside: LogicalPlan,
    /// The first source of the latter.
    pub first: u16,
}

/// A query around the one being planned.
pub(super) struct Level {
    scope: Scope,
    sources: Vec<Vec<Leaf>>,
    /// Its subquery runs for each row: what of the row it refers to.
    per_row: Option<PerRow>,
    /// The subquery's columns that stand beside the outer query's in its conditions.
    compared: HashSet<DfColumn>,
    /// Where its aggregates are, while its subquery is bound (`Binder::aggregates_around`).
    aggregates_at: usize,
    /// The blocks up to its own.
    blocks: usize,
}

/// A row's columns by their names, and one that is null where there is no row.
type RowColumns = (Vec<(String, Found)>, Option<Found>);

impl Level {
    /// The cells of the columns that make the row of one of its sources, and of the column that is null where there is no row.
    fn row_of(&self, source: u16) -> Bind<RowColumns> {
        let of = &self.scope.sources[usize::from(source)];
        let columns = row_columns(source, &self.scope, false);
        if !of.nullable {
            return Ok((columns, None));
        }
        let Some(column) = column_with_values(of) else {
            return refuse("the row of a relation without a NOT NULL column on the nullable side of an outer join");
        };
        Ok((columns, Some(Found { source, column, ty: of.columns[usize::from(column)].ty })))
    }
}

/// The values of a row that a subquery run for it refers to.
pub(super) struct PerRow {
    pub id: u32,
    pub slots: Vec<Leaf>,
}

/// What is to be computed for each row of a plan before its expressions are.
pub(super) struct Pending {
    pub name: String,
    pub per_row: PerRow,
    pub lefts: Vec<(DfExpr, Type)>,
    pub subplan: Option<LogicalPlan>,
    pub kind: apply::Kind,
    pub types: Vec<Type>,
    /// Asked for within an aggregate: before rows are grouped.
    pub in_aggregate: bool,
    /// For which rows it is asked, if not for all.
    pub guard: Option<DfExpr>,
}

/// A query of WITH.
pub(super) struct Cte {
    pub name: String,
    pub rel: Rel,
    /// Which levels' rows it is about, and which recursions' ([`Planner::recursion_mark`]).
    pub around: Vec<usize>,
    /// Its last columns that no star shows within it.
    pub added: usize,
}

/// A level whose row was asked for, by its place among them.
#[derive(Clone, Copy)]
pub(super) enum Reached {
    /// By a column's name.
    ByName(usize),
    /// By reading a part of WITH that is about it.
    ByWith(usize),
}

impl Reached {
    pub fn level(self) -> usize {
        match self {
            Reached::ByName(level) | Reached::ByWith(level) => level,
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    given: Vec<Leaf>,
    /// Those of `given` that are computed values of subqueries and of queries around.
    computed: HashSet<u16>,
    /// Those that are columns of queries around.
    outer: HashSet<u16>,
    pub(super) levels: Vec<Level>,
    /// Which levels' rows were asked for so far.
    pub(super) reached: Vec<Reached>,
    /// Columns of the scope that expressions are bound in now; the innermost last.
    blocks: Vec<Vec<Vec<Leaf>>>,
    pub windows: Option<Vec<Window>>,
    /// Where set-returning functions are allowed, those met so far.
    pub sets: Option<Vec<SetCall>>,
    /// Where they are not: the clause.
    pub setless: Option<&'static str>,
    pub named_windows: Vec<(String, ast::WindowSpec)>,
    pub(super) ctes: Vec<Cte>,
    /// The names by which recursions' rows are read.
    pub(super) readings: HashSet<String>,
    /// Of the SELECT that is being planned, if it locks rows; of the next one, and of the last.
    pub locking: Option<Locking>,
    pub next_locking: Option<Locking>,
    pub done_locking: Option<Locking>,
    /// Changes within WITH that return nothing.
    pub silent_ctes: Vec<String>,
    names: HashSet<String>,
    /// In WHERE or HAVING, where DataFusion takes EXISTS as it is.
    in_filter: bool,
    /// In the condition of an outer join, where it takes no subquery.
    in_outer_join: bool,
    /// Where in memory the parts of a condition are that must all hold: there DataFusion takes IN as it is. Elsewhere its join says false
    /// where IN says nothing.
    conjuncts: Vec<usize>,
    /// By block: what its expressions need computed for each row.
    pending: Vec<Vec<Pending>>,
    next_level: u32,
    /// The arguments of `grouping()` calls.
    groupings: Vec<Vec<Expr>>,
    /// The columns of USING that a join makes of its sides.
    pub merged: Vec<Merged>,
}

impl State {
    /// The query being bound as one that stands around another.
    fn level(&self, binder: &Binder<'_>, scope: &Scope, sources: Vec<Vec<Leaf>>, per_row: Option<PerRow>) -> Level {
        Level {
            scope: scope.clone(),
            sources,
            per_row,
            compared: HashSet::new(),
            aggregates_at: binder.aggregates_around.len(),
            blocks: self.blocks.len(),
        }
    }
}

impl Pending {
    pub fn of(
        name: String,
        per_row: PerRow,
        subplan: Option<LogicalPlan>,
        kind: apply::Kind,
        types: Vec<Type>,
    ) -> Pending {
        Pending { name, per_row, lefts: Vec::new(), subplan, kind, types, in_aggregate: false, guard: None }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is computed from these columns alone.
    pub fn is_of(&self, schema: &DFSchema) -> bool {
        let slots = self.per_row.slots.iter().map(|leaf| &leaf.expr);
        let mut values = slots.chain(self.lefts.iter().map(|(expr, _)| expr));
        values.all(|value| value.column_refs().into_iter().all(|column| schema.has_column(column)))
    }

    /// A row without inner rows stays, once.
    pub fn keep_left(&mut self) {
        if let apply::Kind::Lateral { left } = &mut self.kind {
            *left = true;
        }
    }

    /// A value of the row before, as the subquery refers to it.
    pub fn slot_of(&mut self, leaf: &Leaf) -> Leaf {
        let known = self.per_row.slots.iter().position(|slot| slot.expr == leaf.expr);
        let slot = known.unwrap_or_else(|| {
            self.per_row.slots.push(leaf.clone());
            self.per_row.slots.len() - 1
        });
        Leaf::new(call(OuterValue::new(self.per_row.id, slot, leaf.ty), Vec::new()), leaf.ty)
    }

    /// The subquery's own columns.
    pub fn inner_leaves(&self, leaves: &[Leaf]) -> Vec<Leaf> {
        let columns = self.subplan.as_ref().map(|plan| plan.schema().columns()).unwrap_or_default();
        columns.into_iter().zip(leaves).map(|(c, leaf)| Leaf::new(DfExpr::Column(c), leaf.ty)).collect()
    }

    /// Only inner rows for which a condition holds.
    pub fn filter_within(&mut self, condition: DfExpr) -> Bind<()> {
        let Some(plan) = self.subplan.take() else {
            return refuse("a condition of LEFT JOIN on the rows of a function other than TRUE");
        };
        self.subplan = Some(df(df(LogicalPlanBuilder::from(plan).filter(condition))?.build())?);
        Ok(())
    }
}

/// The state of planning one statement.
pub struct Planner<'a> {
    pub parameters: &'a [Datum],
    pub env: &'a Env,
    /// `None`: the plan is only looked at.
    pub reader: Option<Reader>,
    /// Correlated subqueries run for each row around them.
    pub per_row: bool,
    /// Sums are taken of numbers of any size (`fixed`).
    pub is_wide: bool,
    /// Where the plan is kept for other values of its parameters: those that stay open.
    pub holes: Option<Holes>,
    /// Some subquery is correlated in a way that is left to DataFusion.
    pub is_correlated: Cell<bool>,
    /// What is planned next is the statement's own SELECT.
    pub(super) is_outermost: Cell<bool>,
    /// One refers to more than the query right around it.
    pub is_deep: Cell<bool>,
    /// An outer join's condition asks a subquery about rows of both sides together.
    pub(super) asks_pairs: Cell<bool>,
    /// The changes within WITH.
    pub(super) parts: RefCell<Vec<Part>>,
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
        let (is_correlated, is_deep) = (Cell::new(false), Cell::new(false));
        Planner {
            parameters,
            env,
            reader,
            per_row: false,
            is_wide: false,
            holes: None,
            is_correlated,
            is_outermost: Cell::new(false),
            is_deep,
            asks_pairs: Cell::new(false),
            parts: RefCell::default(),
            state: RefCell::default(),
        }
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
        let leaves = Leaves {
            sources,
            placeholders: &placeholders,
            parameters: self.parameters,
            env: self.env,
            is_wide: self.is_wide,
            holes: self.holes.as_ref(),
        };
        Ok(convert(&leaves)?)
    }

    pub(super) fn given(&self, expr: DfExpr, ty: Type) -> Bound {
        let mut state = self.state.borrow_mut();
        state.given.push(Leaf::new(expr, ty));
        let column = (state.given.len() - 1) as u16;
        Bound::new(Expr::Cell { source: GIVEN, column }, ty)
    }

    /// The same of a value of a row around: wherever it stands, it is the same expression, as of a key of GROUP BY.
    fn given_once(&self, expr: DfExpr, ty: Type) -> Bound {
        let known = self.state.borrow().given.iter().position(|leaf| leaf.ty == ty && leaf.expr == expr);
        match known {
            Some(column) => Bound::new(Expr::Cell { source: GIVEN, column: column as u16 }, ty),
            None => self.given(expr, ty),
        }
    }

    /// The type of the value that a placeholder stands for.
    pub(super) fn given_type(&self, placeholder: &Expr) -> Bind<Type> {
        let state = self.state.borrow();
        let leaf = match placeholder {
            Expr::Cell { source: GIVEN, column } => state.given.get(usize::from(*column)),
            _ => None,
        };
        leaf.map_or_else(|| refuse("this expression in ON CONFLICT DO UPDATE"), |leaf| Ok(leaf.ty))
    }

    /// The plan's own columns that stand in the expressions.
    fn names_in<'e>(&self, exprs: impl Iterator<Item = &'e Expr>) -> HashSet<String> {
        let state = self.state.borrow();
        let mut names = HashSet::new();
        for expr in exprs {
            expr.walk(&mut |e| {
                if let Expr::Cell { source: GIVEN, column } = e
                    && let Some(leaf) = state.given.get(usize::from(*column))
                {
                    let columns = leaf.expr.column_refs().into_iter().filter(|column| column.relation.is_none());
                    names.extend(columns.map(|column| column.name.clone()));
                }
                true
            });
        }
        names
    }

    /// Says of what stands for a value whether that is computed.
    fn noted(&self, value: Bound, is_computed: bool) -> Bound {
        if let (Expr::Cell { source: GIVEN, column }, true) = (&value.expr, is_computed) {
            self.state.borrow_mut().computed.insert(*column);
        }
        value
    }

    fn noted_outer(&self, value: Bound, is_computed: bool) -> Bound {
        if let Expr::Cell { source: GIVEN, column } = &value.expr {
            self.state.borrow_mut().outer.insert(*column);
        }
        self.noted(value, is_computed)
    }

    /// Binds within a scope: subqueries can refer to its columns.
    pub fn within<T>(&self, sources: &[Vec<Leaf>], bind: impl FnOnce() -> Bind<T>) -> Bind<T> {
        {
            let mut state = self.state.borrow_mut();
            state.blocks.push(sources.to_vec());
            state.pending.push(Vec::new());
        }
        let bound = bind();
        let mut state = self.state.borrow_mut();
        state.blocks.pop();
        let left = state.pending.pop().unwrap_or_default();
        if bound.is_ok() && !left.is_empty() {
            return refuse("a subquery of this kind in this clause");
        }
        bound
    }

    // ---- subqueries that run for each row

    /// Binds a join's condition; gives with it what it asks of each row, if there may be something. FROM is no part of the block around it,
    /// which may wait for values of its own.
    pub(super) fn join_condition<T>(
        &self,
        sources: &[Vec<Leaf>],
        (is_outer, may_ask): (bool, bool),
        bind: impl FnOnce() -> Bind<T>,
    ) -> Bind<(T, Vec<Pending>)> {
        let mut asked = Vec::new();
        let around = std::mem::replace(&mut self.state.borrow_mut().in_outer_join, is_outer);
        let bound = self.within(sources, || {
            let bound = self.without_sets("JOIN conditions", bind);
            if may_ask {
                asked = self.take_pending();
            }
            bound
        });
        self.state.borrow_mut().in_outer_join = around;
        Ok((bound?, asked))
    }

    /// What the block's expressions asked for so far.
    pub(super) fn take_pending(&self) -> Vec<Pending> {
        self.state.borrow_mut().pending.last_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The plan with what its block's expressions need computed for each row.
    pub(super) fn applied(&self, plan: LogicalPlan) -> Bind<LogicalPlan> {
        let pending = self.take_pending();
        pending.into_iter().try_fold(plan, |plan, pending| self.apply_one(plan, pending))
    }

    /// The plan's columns under their names, and those that are computed: `name`, `name_1`, ...
    pub(super) fn apply_one(&self, plan: LogicalPlan, pending: Pending) -> Bind<LogicalPlan> {
        let Pending { name, per_row, lefts, subplan, kind, types, in_aggregate: _, guard } = pending;
        let kept: Vec<(Option<TableReference>, String)> =
            plan.schema().iter().map(|(relation, field)| (relation.cloned(), field.name().clone())).collect();
        let slots = per_row.slots.len();
        let columns = kept.iter().map(|(r, n)| DfExpr::Column(DfColumn::new(r.clone(), n)));
        let columns = columns.chain(per_row.slots.into_iter().map(|leaf| leaf.expr));
        let is_guarded = guard.is_some();
        let columns = columns.chain(lefts.into_iter().map(|(expr, _)| expr)).chain(guard);
        let named: Vec<DfExpr> = columns.enumerate().map(|(i, expr)| expr.alias(format!("c{i}"))).collect();
        let input = df(df(LogicalPlanBuilder::from(plan).project(named))?.build())?;
        let width = kept.len();
        let schema = Applied::schema_of(&input, width, &types);
        let (level, count) = (per_row.id, types.len());
        let clock = self.env.clock.clone();
        let is_volatile = subplan.as_ref().map_or(Ok(false), is_volatile)?;
        let applied =
            Applied { input, width, slots, level, subplan, kind, is_guarded, is_volatile, types, schema, clock };
        let relation = TableReference::bare(self.unique("applied"));
        let source = provider_as_source(Arc::new(applied));
        let scan = df(LogicalPlanBuilder::scan(relation.clone(), source, None))?;
        let mut outputs = Vec::with_capacity(width + count);
        for (i, (own, column)) in kept.into_iter().enumerate() {
            let given = DfExpr::Column(DfColumn::new(Some(relation.clone()), format!("c{i}")));
            outputs.push(match own {
                Some(own) => given.alias_qualified(Some(own), column),
                None => given.alias(column),
            });
        }
        for i in 0..count {
            let given = DfExpr::Column(DfColumn::new(Some(relation.clone()), format!("n{i}")));
            outputs.push(given.alias(numbered_name(&name, i)));
        }
        df(df(scan.project(outputs))?.build())
    }

    /// Plans a subquery that runs for each row.
    pub(super) fn per_row_query<T>(
        &self,
        binder: &mut Binder<'_>,
        scope: &Scope,
        sources: Vec<Vec<Leaf>>,
        plan: impl FnOnce(&mut Binder<'_>) -> Bind<T>,
    ) -> Bind<(T, PerRow)> {
        let id = {
            let mut state = self.state.borrow_mut();
            state.next_level += 1;
            let id = state.next_level;
            let per_row = Some(PerRow { id, slots: Vec::new() });
            let level = state.level(binder, scope, sources, per_row);
            state.levels.push(level);
            id
        };
        let stored = std::mem::take(&mut binder.output_types);
        let planned = plan(binder);
        binder.output_types = stored;
        let level = self.state.borrow_mut().levels.pop();
        let per_row = level.and_then(|level| level.per_row).unwrap_or(PerRow { id, slots: Vec::new() });
        Ok((planned?, per_row))
    }

    /// Has a value computed for each row of the block; gives what stands for it.
    fn ask(
        &self,
        binder: &Binder<'_>,
        per_row: PerRow,
        lefts: Vec<(DfExpr, Type)>,
        subplan: LogicalPlan,
        kind: apply::Kind,
        ty: Type,
    ) -> Bind<Bound> {
        let name = self.unique("each");
        let given = self.given(DfExpr::Column(DfColumn::new_unqualified(name.clone())), ty);
        let pending = Pending {
            lefts,
            in_aggregate: binder.in_aggregate,
            ..Pending::of(name, per_row, Some(subplan), kind, vec![ty])
        };
        self.put_off(pending)?;
        Ok(given)
    }

    /// Has values computed for each row of the block.
    pub(super) fn put_off(&self, pending: Pending) -> Bind<()> {
        match self.state.borrow_mut().pending.last_mut() {
            Some(block) => block.push(pending),
            None => return refuse("a subquery of this kind in this clause"),
        }
        Ok(())
    }

    /// Binds what may have no set-returning functions.
    pub fn without_sets<T>(&self, clause: &'static str, bind: impl FnOnce() -> Bind<T>) -> Bind<T> {
        let (sets, around) = {
            let mut state = self.state.borrow_mut();
            (state.sets.take(), state.setless.replace(clause))
        };
        let bound = bind();
        let mut state = self.state.borrow_mut();
        (state.sets, state.setless) = (sets, around);
        bound
    }

    /// Binds a condition of WHERE or HAVING.
    pub fn in_filter<T>(&self, condition: Option<&ast::Expr>, bind: impl FnOnce() -> Bind<T>) -> Bind<T> {
        let mut conjuncts = Vec::new();
        condition.inspect(|condition| add_conjuncts(condition, &mut conjuncts));
        let (before, others) = {
            let mut state = self.state.borrow_mut();
            (std::mem::replace(&mut state.in_filter, true), std::mem::replace(&mut state.conjuncts, conjuncts))
        };
        let bound = self.without_sets(if condition.is_some() { "WHERE" } else { "HAVING" }, bind);
        let mut state = self.state.borrow_mut();
        (state.in_filter, state.conjuncts) = (before, others);
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
        if let Some(holes) = &self.holes {
            holes.use_values(expr);
        }
        let frame = Frame { parameters: self.parameters, ..Frame::new(self.env) };
        Ok(evaluate(expr, &frame)?.into_datum())
    }

    // ---- relations

    /// A table at the statement's snapshot, as a source named `name`. Its last column is the row id.
    pub fn table(&self, table: &Arc<Table>, name: &str) -> Bind<(LogicalPlan, Vec<Leaf>)> {
        let provider = Arc::new(Snapshot::new(table.clone(), self.reader.clone(), self.known(table)));
        let relation = TableReference::bare(self.unique(name));
        let plan = df(LogicalPlanBuilder::scan(relation.clone(), provider_as_source(provider), None))?;
        let leaf = |name: &str, ty| Leaf::new(DfExpr::Column(DfColumn::new(Some(relation.clone()), name)), ty);
        let columns = table.def.columns.iter();
        let mut leaves: Vec<Leaf> = columns.map(|c| leaf(&c.name, c.ty)).collect();
        leaves.push(leaf(super::scan::ROW_ID, Type::Int8));
        Ok((df(plan.build())?, leaves))
    }

    /// What is known of a table: sampled if that is due, or as it is where a plan is only looked at.
    fn known(&self, table: &Arc<Table>) -> Option<Arc<TableStatistics>> {
        let statistics = self.env.statistics.as_ref()?;
        match &self.reader {
            Some(reader) => statistics.of(table, reader),
            None => statistics.get(table),
        }
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
        columns.iter().try_for_each(|column| must_compare(column.ty, "equality"))?;
        let mut keys = Vec::with_capacity(columns.len());
        let mut shown = Vec::new();
        let mut outputs = Vec::with_capacity(columns.len());
        for (i, output) in columns.into_iter().enumerate() {
            let value = DfExpr::Column(output.column.clone());
            keys.push(key(value.clone(), output.ty).alias(format!("k{i}")));
            let given = if has_forms(output.ty) {
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
        binder.aggregates_around.push(aggregates);
        let stored = std::mem::take(&mut binder.output_types);
        let in_aggregate = std::mem::take(&mut binder.in_aggregate);
        let (windows, named_windows, sets, setless, in_outer_join, in_filter, conjuncts) = {
            let mut state = self.state.borrow_mut();
            (
                state.windows.take(),
                std::mem::take(&mut state.named_windows),
                state.sets.take(),
                state.setless.take(),
                std::mem::take(&mut state.in_outer_join),
                std::mem::take(&mut state.in_filter),
                std::mem::take(&mut state.conjuncts),
            )
        };
        // A query within a locking one locks nothing by that.
        let around = {
            let mut state = self.state.borrow_mut();
            let next = state.next_locking.take();
            std::mem::replace(&mut state.locking, next)
        };
        let clauses = self.state.borrow().locking.as_ref().map(Locking::clauses).unwrap_or_default();
        let outside = std::mem::replace(&mut binder.locking, clauses);
        let ctes = self.state.borrow().ctes.len();
        let rel = self.query_inner(binder, query, stored);
        let mut state = self.state.borrow_mut();
        state.ctes.truncate(ctes);
        state.windows = windows;
        state.named_windows = named_windows;
        (state.sets, state.setless) = (sets, setless);
        (state.in_filter, state.conjuncts) = (in_filter, conjuncts);
        state.in_outer_join = in_outer_join;
        state.done_locking = std::mem::replace(&mut state.locking, around);
        binder.locking = outside;
        binder.aggregates = binder.aggregates_around.pop().flatten();
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
        let is_outermost = self.is_outermost.take();
        if !locks.is_empty() {
            return self.locking_query(binder, query);
        }
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty() {
            return refuse("a clause of another dialect");
        }
        if let Some(with) = with {
            self.with(binder, with, (query, false))?;
        }
        let order = order_items(order_by.as_ref())?;
        let is_set = !matches!(body.as_ref(), SetExpr::Select(_));
        let is_outermost = is_outermost && !is_set;
        let with_ties = fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
        if with_ties && order.is_empty() {
            return Err(SqlError::new("42601", "WITH TIES cannot be specified without ORDER BY clause").into());
        }
        let fetch = fetch.clone().map(|fetch| ast::Fetch { with_ties: false, ..fetch });
        let limits = || binder.limits(limit_clause.as_ref(), fetch.as_ref());
        let (limit, offset) = self.without_sets("LIMIT", limits).map_err(as_unsupported)?;
        let mut limits = Limits {
            limit: self.count(limit.as_ref(), "LIMIT")?,
            offset: self.count(offset.as_ref(), "OFFSET")?,
            with_ties,
        };
        self.is_outermost.set(is_outermost);
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
            SetExpr::Table(table) => self.table_query(binder, table)?,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                return refuse("a change within a query");
            }
        };
        let only_outputs = matches!(body.as_ref(), SetExpr::SetOperation { .. });
        let rel = self.order_outputs(binder, rel, (&order, only_outputs), &limits)?;
        limits.apply(rel)
    }

    /// The relation in an order, for a limit.
    fn sorted(&self, rel: Rel, sorts: Vec<Sort>, limits: &Limits) -> Bind<Rel> {
        if sorts.is_empty() {
            return Ok(rel);
        }
        let rel = match limits.last_rank() {
            Some(last) => self.ranked_to(rel, &sorts, last)?,
            None => rel,
        };
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).sort(sorts))?.build())?;
        Ok(Rel { plan, ..rel })
    }

    /// A count of LIMIT or OFFSET; while parameters are unknown, none.
    pub(super) fn count(&self, expr: Option<&Expr>, clause: &'static str) -> Bind<Option<u64>> {
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

    /// ORDER BY after a body that is not a SELECT: outputs by name or position, behind UNION and its like nothing that is made of them.
    fn order_outputs(
        &self,
        binder: &mut Binder<'_>,
        rel: Rel,
        (order, only_outputs): (&[&ast::OrderByExpr], bool),
        limits: &Limits,
    ) -> Bind<Rel> {
        if order.is_empty() {
            return Ok(rel);
        }
        let scope = scope_of(&rel);
        let leaves = vec![rel.columns.iter().map(|c| Leaf::new(DfExpr::Column(c.column.clone()), c.ty)).collect()];
        let item = |(i, c): (usize, &Output)| Item {
            expr: Expr::Cell { source: 0, column: i as u16 },
            ty: c.ty,
            name: c.name.clone(),
            is_computed: c.is_computed,
        };
        let items: Vec<Item> = rel.columns.iter().enumerate().map(item).collect();
        let order = binder.order(order, &items, false, &scope)?;
        if only_outputs && order.iter().any(|by| !matches!(by.expr, Expr::Cell { source: 0, .. })) {
            return Err(SqlError::new("0A000", "invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
                .with_detail("Only result column names can be used, not expressions or functions.")
                .with_hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.")
                .into());
        }
        let sorts = self.with_leaves(&leaves, |leaves| {
            order
                .iter()
                .map(|o| Ok(sort(leaves.convert(&o.expr, o.order.ty)?, o)))
                .collect::<Result<Vec<_>, SqlError>>()
        })?;
        self.sorted(rel, sorts, limits)
    }

    /// `TABLE t`.
    fn table_query(&self, binder: &mut Binder<'_>, table: &ast::Table) -> Bind<Rel> {
        let query = query_of_table(table)?;
        self.query(binder, &query)
    }

    fn values(&self, binder: &mut Binder<'_>, values: &ast::Values) -> Bind<Rel> {
        self.within(&[], || {
            let (rows, types) = self.without_sets("VALUES", || binder.value_rows(values))?;
            self.rows(rows, &types)
        })
    }

    /// Rows of expressions without columns.
    pub fn rows(&self, rows: Vec<Vec<Expr>>, types: &[Type]) -> Bind<Rel> {
        let columns: Vec<Output> = types
            .iter()
            .enumerate()
            .map(|(i, &ty)| Output { is_computed: true, ..output(format!("column{}", i + 1), ty) })
            .collect();
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
        let one = self.applied(df(LogicalPlanBuilder::empty(true).build())?)?;
        for exprs in literals {
            let rel = self.project(one.clone(), exprs.into_iter().zip(columns.iter().cloned()).collect(), true)?;
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
        let is_outermost = self.is_outermost.take();
        refuse_other_dialects(select)?;
        if let Some(top) = &select.top {
            if limits.limit.is_some() {
                return Err(SqlError::new("42601", "TOP and LIMIT exclude each other").into());
            }
            let top = binder.top(top).map_err(as_unsupported)?;
            limits.limit = self.count(Some(&top), "LIMIT")?;
        }
        let mut from = self.from(binder, &select.from)?;
        binder.locking = Vec::new();
        self.note_locks(select, &from)?;
        let sources = from.sources.clone();
        self.within(&sources, || {
            if let Some(selection) = &select.selection {
                let scope = from.scope.clone();
                let condition = self.in_filter(Some(selection), || binder.condition(selection, "WHERE", &scope))?;
                from.plan = self.filter(from.plan.clone(), &condition, &sources)?;
            }
            binder.output_types = stored;
            self.select_over(binder, select, order, limits, from, is_outermost)
        })
    }

    /// The rows for which a condition of the block holds.
    pub fn filter(&self, plan: LogicalPlan, condition: &Expr, sources: &[Vec<Leaf>]) -> Bind<LogicalPlan> {
        let pending = self.take_pending();
        self.filter_asking(plan, condition, sources, pending)
    }

    /// The rows for which a condition holds, which asks for `pending`.
    pub(super) fn filter_asking(
        &self,
        mut plan: LogicalPlan,
        condition: &Expr,
        sources: &[Vec<Leaf>],
        pending: Vec<Pending>,
    ) -> Bind<LogicalPlan> {
        let mut predicate = self.with_leaves(sources, |leaves| leaves.filter(condition))?;
        if !pending.is_empty() {
            // What needs nothing computed for each row is asked before.
            let names: Vec<&String> = pending.iter().map(|p| &p.name).collect();
            let waits = |part: &DfExpr| {
                part.column_refs().iter().any(|c| c.relation.is_none() && names.contains(&&c.name))
                    || part.is_volatile()
            };
            let (later, now): (Vec<DfExpr>, Vec<DfExpr>) =
                split_conjunction_owned(predicate).into_iter().partition(waits);
            if let Some(now) = conjunction(now) {
                plan = df(df(LogicalPlanBuilder::from(plan).filter(now))?.build())?;
            }
            plan = pending.into_iter().try_fold(plan, |plan, pending| self.apply_one(plan, pending))?;
            let Some(rest) = conjunction(later) else {
                return Ok(plan);
            };
            predicate = rest;
        }
        let (plan, predicate) = self.correlated_by_columns(plan, predicate)?;
        df(df(LogicalPlanBuilder::from(plan).filter(predicate))?.build())
    }

    /// A subquery over an aggregate can be decorrelated where a plain column equals something of the outer query: what is compared
    /// with it becomes a column. DataFusion gives such columns to the join by their names alone.
    fn correlated_by_columns(&self, plan: LogicalPlan, predicate: DfExpr) -> Bind<(LogicalPlan, DfExpr)> {
        let mut made = Vec::new();
        let mut parts: Vec<DfExpr> = split_conjunction_owned(predicate);
        for part in &mut parts {
            if let Some(inner) = beside_outer(part) {
                let name = self.unique("computed");
                let column = DfExpr::Column(DfColumn::new_unqualified(name.clone()));
                made.push(std::mem::replace(inner, column).alias(name));
            }
            self.note_compared(part);
        }
        let predicate = conjunction(parts).expect("a condition has a part");
        if made.is_empty() {
            return Ok((plan, predicate));
        }
        let all = plan.schema().columns().into_iter().map(DfExpr::Column).chain(made);
        let plan = df(df(LogicalPlanBuilder::from(plan).project(all.collect::<Vec<_>>()))?.build())?;
        Ok((plan, predicate))
    }

    /// Columns of one name beside the outer query's: no join tells them apart, so the subquery runs for each row.
    pub(super) fn note_compared(&self, part: &DfExpr) {
        if !part.contains_outer() {
            return;
        }
        for column in part.column_refs() {
            let mut state = self.state.borrow_mut();
            let Some(level) = state.levels.last_mut() else { return };
            let is_taken = level.compared.iter().any(|other| other.name == column.name && other != column);
            level.compared.insert(column.clone());
            self.is_deep.set(self.is_deep.get() || is_taken);
        }
    }

    /// What follows FROM and WHERE.
    fn select_over(
        &self,
        binder: &mut Binder<'_>,
        select: &Select,
        order: &[&ast::OrderByExpr],
        limits: &Limits,
        from: FromRel,
        is_outermost: bool,
    ) -> Bind<Rel> {
        let mut from = from;
        let scope = from.scope.clone();
        let groupings = std::mem::take(&mut self.state.borrow_mut().groupings);
        let distinct = matches!(select.distinct, Some(Distinct::Distinct));
        self.name_windows(select)?;
        binder.aggregates = Some(Vec::new());
        self.state.borrow_mut().windows = Some(Vec::new());
        self.state.borrow_mut().sets = Some(Vec::new());
        // Who reads a row of a function from outside takes it apart: there it is its fields.
        let projection = if is_outermost { select.projection.clone() } else { spread_rows(&select.projection) };
        let settled = settled_outputs(select, order);
        binder.settle_outputs(&settled);
        let items = binder.items(&projection, &scope);
        binder.output_types = Vec::new();
        let mut items = items?;
        let mut untyped = untyped_items(&projection, items.len());
        untyped.iter_mut().zip(settled).for_each(|(untyped, is_settled)| *untyped &= !is_settled);
        let mut order = binder.order(order, &items, distinct, &scope)?;
        let mut on = self.distinct_on(binder, select, &items, &order, &scope)?;
        let sets = self.state.borrow_mut().sets.take();
        let mut windows = self.state.borrow_mut().windows.take().unwrap_or_default();
        let having = match &select.having {
            None => None,
            // What is looked up in a subquery may be an aggregate, which no join of the rows before they are grouped knows.
            Some(having) => Some(self.in_filter(None, || binder.condition(having, "HAVING", &scope))?),
        };
        let aggregates = binder.aggregates.take().unwrap_or_default();
        let asked = self.take_pending();
        self.state.borrow_mut().sets = sets;
        let mut keys = self.group_keys(binder, &select.group_by, &items, &scope)?;
        let mut sets = OutputSets::new(self.state.borrow_mut().sets.take().unwrap_or_default());
        if let Some(Keys { exprs, sets: None }) = &mut keys {
            let in_sets = sets.later.iter().flat_map(|(_, call)| &call.args);
            let exprs_over = items.iter().map(|i| &i.expr).chain(order.iter().map(|o| &o.expr)).chain(having.as_ref());
            let exprs_over: Vec<&Expr> = exprs_over.chain(in_sets).collect();
            let in_subqueries = self.asked_by_subqueries(&asked, &exprs_over, &from.sources)?;
            add_dependents(exprs, exprs_over.into_iter().chain(&in_subqueries), &scope);
        }
        let groupings = std::mem::replace(&mut self.state.borrow_mut().groupings, groupings);
        let grouped = keys.is_some() || !aggregates.is_empty() || having.is_some() || !groupings.is_empty();
        let in_keys = self.names_in(keys.iter().flat_map(|keys| &keys.exprs).map(|(key, _)| key));
        let (before, after): (Vec<Pending>, Vec<Pending>) =
            asked.into_iter().partition(|p| !grouped || p.in_aggregate || in_keys.contains(&p.name));
        // Those of GROUP BY, be they outputs too, and those that aggregates fold.
        from.plan = self.applied(from.plan)?;
        from.plan = before.into_iter().try_fold(from.plan, |plan, pending| self.apply_one(plan, pending))?;
        self.refuse_folded_locks(Folds {
            distinct: select.distinct.is_some(),
            grouped: keys.is_some(),
            having: select.having.is_some(),
            aggregates: !aggregates.is_empty(),
            windows: !windows.is_empty(),
            sets: !sets.is_empty(),
        })?;
        let is_one_group = grouped && keys.is_none();
        let at_most_one = (is_one_group || select.from.is_empty()) && sets.is_empty();
        let FromRel { mut plan, scope, sources, halves: _ } = from;
        if let Some(keys) = &mut keys {
            plan = sets.expand_keys(self, plan, &sources, &mut keys.exprs)?;
            items.iter_mut().for_each(|item| sets.placed.put(&mut item.expr));
            order.iter_mut().for_each(|item| sets.placed.put(&mut item.expr));
            on.iter_mut().for_each(|(expr, _)| sets.placed.put(expr));
        }
        sets.refuse_in(&aggregates, &mut windows)?;
        let origins: Vec<Option<(u32, u16)>> =
            items.iter().map(|item| if grouped { None } else { origin(&item.expr, &scope) }).collect();
        let mut leaves = sources;
        if grouped {
            let keys = keys.unwrap_or_default();
            let has_direct = check_direct(&aggregates, &keys.exprs, &scope)?;
            if has_direct && keys.sets.is_some() {
                // It is null where the set leaves it out.
                return refuse("a grouped column as an ordered-set aggregate's argument, of several grouping sets");
            }
            let over = |expr: &mut Expr| -> Bind<()> {
                let taken = std::mem::replace(expr, Expr::NULL);
                let grouped = over_groups(taken, &keys.exprs, &aggregates, &scope)?;
                let first = (keys.exprs.len() + aggregates.len()) as u16;
                *expr = grouped.rewrite(&mut |e| match e {
                    Expr::Cell { source: GROUPING, column } => Some(Expr::Cell { source: 0, column: first + column }),
                    _ => None,
                });
                sets.placed.refuse_loose(expr)
            };
            items.iter_mut().try_for_each(|item| over(&mut item.expr))?;
            order.iter_mut().try_for_each(|item| over(&mut item.expr))?;
            on.iter_mut().try_for_each(|(expr, _)| over(expr))?;
            windows.iter_mut().try_for_each(|window| window.each_expr(&over))?;
            let mut having = having;
            having.iter_mut().try_for_each(&over)?;
            sets.later.iter_mut().flat_map(|(_, call)| &mut call.args).try_for_each(over)?;
            let groupings = grouping_places(&groupings, &keys)?;
            let before = leaves.clone();
            (plan, leaves) = match &keys.sets {
                None if groupings.is_empty() => self.group(plan, &leaves, &keys.exprs, &aggregates)?,
                None => {
                    let all = (0..keys.exprs.len()).collect();
                    self.group_sets(plan, &leaves, &keys, &[all], &aggregates, &groupings)?
                }
                Some(sets) => self.group_sets(plan, &leaves, &keys, sets, &aggregates, &groupings)?,
            };
            for mut pending in after {
                self.over_keys(&mut pending, &before, &keys, &leaves)?;
                plan = self.apply_one(plan, pending)?;
            }
            if let Some(having) = having {
                plan = self.filter(plan, &having, &leaves)?;
                // Joined, the group of no rows would be there whatever the condition says of it.
                let is_correlated = is_one_group && !plan.all_out_ref_exprs().is_empty();
                self.is_deep.set(self.is_deep.get() || is_correlated);
            }
        }
        let (mut plan, window_leaves) = self.window(plan, &leaves, &windows)?;
        if sets.come_last(&order, &on)
            && !(distinct || limits.with_ties)
            && !items.iter().map(|i| &i.expr).chain(order.iter().map(|o| &o.expr)).any(|e| self.asks_subquery(e))
        {
            let (order, on) = (std::mem::take(&mut order), std::mem::take(&mut on));
            plan = self.settled(plan, &leaves, &window_leaves, &order, &on)?;
        }
        let (plan, set_leaves) = sets.expand_outputs(self, plan, &leaves, &window_leaves)?;
        let selected =
            Selected { items, untyped, origins, order, on, distinct, at_most_one, window_leaves, set_leaves };
        self.finish_select(plan, &leaves, selected, limits)
    }

    /// The columns of FROM that subqueries beside groups refer to.
    fn asked_by_subqueries(&self, asked: &[Pending], exprs: &[&Expr], sources: &[Vec<Leaf>]) -> Bind<Vec<Expr>> {
        let slots = asked.iter().flat_map(|pending| pending.per_row.slots.iter().map(|leaf| &leaf.expr));
        let lefts = asked.iter().flat_map(|pending| pending.lefts.iter().map(|(left, _)| left));
        let mut columns: Vec<DfColumn> = Vec::new();
        slots.chain(lefts).for_each(|value| columns.extend(value.column_refs().into_iter().cloned()));
        let state = self.state.borrow();
        let mut given: Vec<&DfExpr> = Vec::new();
        for expr in exprs {
            expr.walk(&mut |e| {
                if let Expr::Cell { source: GIVEN, column } = e {
                    given.extend(state.given.get(usize::from(*column)).map(|leaf| &leaf.expr));
                }
                true
            });
        }
        for value in given {
            df(value.apply(|e| {
                let subquery = match e {
                    DfExpr::ScalarSubquery(subquery) => Some(subquery),
                    DfExpr::Exists(Exists { subquery, .. }) | DfExpr::InSubquery(InSubquery { subquery, .. }) => {
                        Some(subquery)
                    }
                    _ => None,
                };
                columns.extend(subquery.iter().flat_map(|s| &s.outer_ref_columns).filter_map(|outer| match outer {
                    DfExpr::OuterReferenceColumn(_, column) => Some(column.clone()),
                    _ => None,
                }));
                Ok(TreeNodeRecursion::Continue)
            }))?;
        }
        let is_asked = |leaf: &Leaf| matches!(&leaf.expr, DfExpr::Column(column) if columns.contains(column));
        let mut found = Vec::new();
        for (source, leaves) in sources.iter().enumerate() {
            let own = leaves.iter().enumerate().filter(|(_, leaf)| is_asked(leaf));
            found.extend(own.map(|(column, _)| Expr::Column { source: source as u16, column: column as u16 }));
        }
        Ok(found)
    }

    /// The rows in an order, and the first of each that DISTINCT ON tells apart, before a set-returning function repeats them.
    fn settled(
        &self,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        windows: &[Leaf],
        order: &[OrderItem],
        on: &[(Expr, Type)],
    ) -> Bind<LogicalPlan> {
        let placeholders = |source: u16, column: u16| match source {
            WINDOW => windows.get(usize::from(column)).cloned(),
            GIVEN => self.state.borrow().given.get(usize::from(column)).cloned(),
            _ => None,
        };
        let leaves = Leaves {
            sources,
            placeholders: &placeholders,
            parameters: self.parameters,
            env: self.env,
            is_wide: self.is_wide,
            holes: self.holes.as_ref(),
        };
        let by = |by: &OrderItem| Ok(sort(leaves.convert(&by.expr, by.order.ty)?, by));
        let sorts = order.iter().map(by).collect::<Result<Vec<_>, SqlError>>()?;
        let keys = on.iter().map(|(expr, ty)| Ok(key(leaves.convert(expr, *ty)?, *ty)));
        let keys = keys.collect::<Result<Vec<_>, SqlError>>()?;
        let plan = if keys.is_empty() { plan } else { self.first_rows(plan, keys, &sorts)? };
        df(df(LogicalPlanBuilder::from(plan).sort(sorts))?.build())
    }

    /// Whether a subquery stands in it that refers to the rows around it.
    fn asks_subquery(&self, expr: &Expr) -> bool {
        let state = self.state.borrow();
        let asks = |leaf: &Leaf| {
            let is_subquery = |e: &DfExpr| match e {
                DfExpr::ScalarSubquery(query) => !query.outer_ref_columns.is_empty(),
                _ => false,
            };
            leaf.expr.exists(|e| Ok(is_subquery(e))).expect("invariant: looking at an expression does not fail")
        };
        let mut found = false;
        expr.walk(&mut |e| {
            if let Expr::Cell { source: GIVEN, column } = e {
                found |= state.given.get(usize::from(*column)).is_some_and(asks);
            }
            !found
        });
        found
    }

    /// DISTINCT ON's expressions.
    fn distinct_on(
        &self,
        binder: &mut Binder<'_>,
        select: &Select,
        items: &[Item],
        order: &[OrderItem],
        scope: &Scope,
    ) -> Bind<Vec<(Expr, Type)>> {
        let Some(Distinct::On(list)) = &select.distinct else {
            return Ok(Vec::new());
        };
        let expressions = GroupByExpr::Expressions(list.clone(), Vec::new());
        let on = binder.group_keys(&expressions, items, scope)?.unwrap_or_default();
        if order.iter().take(on.len()).any(|by| !on.iter().any(|(expr, _)| *expr == by.expr)) {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            return Err(SqlError::new("42P10", message).into());
        }
        Ok(on)
    }

    fn finish_select(&self, plan: LogicalPlan, leaves: &[Vec<Leaf>], selected: Selected, limits: &Limits) -> Bind<Rel> {
        let selected = match selected.distinct && selected.items.iter().any(|item| fields_of(&item.expr).is_some()) {
            true => {
                let (items, selected) = selected.by_fields();
                return self.rows_again(self.finish_select(plan, leaves, selected, limits)?, items);
            }
            false => selected,
        };
        let Selected { items, untyped, origins, order, on, distinct, at_most_one, window_leaves, set_leaves } =
            selected;
        let placeholders = |source: u16, column: u16| match source {
            WINDOW => window_leaves.get(usize::from(column)).cloned(),
            SETS => set_leaf(&set_leaves, column),
            GIVEN => self.state.borrow().given.get(usize::from(column)).cloned(),
            _ => None,
        };
        let leaves = Leaves {
            sources: leaves,
            placeholders: &placeholders,
            parameters: self.parameters,
            env: self.env,
            is_wide: self.is_wide,
            holes: self.holes.as_ref(),
        };
        // Outputs that do something do it for the rows that are left, in their order.
        let is_settled = on.is_empty() && !(order.is_empty() || distinct || limits.with_ties);
        let in_order = |is: &dyn Fn(&Expr) -> bool| order.iter().any(|by| is(&by.expr));
        let acts_last = is_settled
            && items.iter().any(|item| item.expr.is_volatile())
            && !in_order(&|expr: &Expr| expr.is_volatile());
        // Subqueries are asked for the rows that a limit leaves, which have to be put in order again behind them.
        let asks_last = is_settled
            && limits.limit.is_some()
            && items.iter().any(|item| self.asks_subquery(&item.expr))
            && !in_order(&|expr: &Expr| self.asks_subquery(expr));
        let no_limits = Limits::default();
        let (plan, order, limits) = match acts_last || asks_last {
            false => (plan, order, limits),
            true => {
                let by = |by: &OrderItem| Ok(sort(leaves.convert(&by.expr, by.order.ty)?, by));
                let sorts = order.iter().map(by).collect::<Result<Vec<_>, SqlError>>()?;
                let sorted = df(df(LogicalPlanBuilder::from(plan).sort(sorts))?.build())?;
                let order = if acts_last { Vec::new() } else { order };
                (limits.limited(sorted)?, order, &no_limits)
            }
        };
        let mut outputs = Vec::with_capacity(items.len());
        for ((item, untyped), origin) in items.iter().zip(untyped).zip(origins) {
            let expr = leaves.convert(&item.expr, item.ty)?;
            outputs.push((
                expr,
                Output { untyped, origin, is_computed: item.is_computed, ..output(item.name.clone(), item.ty) },
            ));
        }
        outputs.extend(self.row_ids());
        let visible = outputs.len();
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
        let mut rel = self.project(plan, outputs, at_most_one)?;
        if distinct {
            rel = self.distinct(rel)?;
        }
        if !on_keys.is_empty() {
            rel = self.first_of_each(rel, on_keys, &sorts)?;
        }
        rel = limits.apply(self.sorted(rel, sorts, limits)?)?;
        if rel.columns.len() > visible {
            rel.columns.truncate(visible);
            let outputs = rel.columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
            rel = self.project(rel.plan, outputs, rel.at_most_one)?;
        }
        Ok(rel)
    }

    /// Rows that were told apart by their fields, as the outputs that they are.
    fn rows_again(&self, rel: Rel, items: Vec<Item>) -> Bind<Rel> {
        let sources = vec![rel.columns.iter().map(|c| Leaf::new(DfExpr::Column(c.column.clone()), c.ty)).collect()];
        let mut next = 0;
        let mut outputs = Vec::with_capacity(items.len());
        for item in items {
            let given = rel.columns.get(usize::from(next)).cloned();
            let made = over_cells(item.expr, &mut next);
            let expr = self.with_leaves(&sources, |leaves| leaves.convert(&made, item.ty))?;
            let of_row = Output { is_computed: item.is_computed, ..output(item.name, item.ty) };
            outputs.push((expr, given.filter(|_| matches!(made, Expr::Cell { .. })).unwrap_or(of_row)));
        }
        self.project(rel.plan, outputs, rel.at_most_one)
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
        let (list, is_distinct) = distinct_keys(list);
        if !list.iter().any(super::grouping::is_set) {
            let keys = binder.group_keys(group_by, items, scope).map_err(as_unsupported)?;
            return Ok(keys.map(|exprs| Keys { exprs, sets: None }));
        }
        let sets = super::grouping::expanded(list)?;
        let mut exprs: Vec<(Expr, Type)> = Vec::new();
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(sets.len());
        for set in sets {
            let mut in_set = Vec::with_capacity(set.len());
            for ast in set {
                let one = GroupByExpr::Expressions(vec![ast], Vec::new());
                let bound = binder.group_keys(&one, items, scope).map_err(as_unsupported)?.unwrap_or_default();
                for key in bound {
                    let at = exprs.iter().position(|known| *known == key).unwrap_or_else(|| {
                        exprs.push(key);
                        exprs.len() - 1
                    });
                    if !in_set.contains(&at) {
                        in_set.push(at);
                    }
                }
            }
            let is_same =
                |known: &Vec<usize>| known.len() == in_set.len() && known.iter().all(|key| in_set.contains(key));
            if !(is_distinct && places.iter().any(is_same)) {
                places.push(in_set);
            }
        }
        Ok(Some(Keys { exprs, sets: Some(places) }))
    }

    /// The groups of several sets of keys, one after the other. The columns: keys (null where a set lacks one), aggregates, and what
    /// `grouping()` says of the set.
    fn group_sets(
        &self,
        plan: LogicalPlan,
        leaves: &[Vec<Leaf>],
        keys: &Keys,
        sets: &[Vec<usize>],
        aggregates: &[Aggregate],
        groupings: &[Vec<usize>],
    ) -> Bind<(LogicalPlan, Vec<Vec<Leaf>>)> {
        let mut all: Option<LogicalPlan> = None;
        for set in sets {
            let exprs: Vec<(Expr, Type)> = set.iter().map(|&at| keys.exprs[at].clone()).collect();
            let (grouped, columns) = self.group(plan.clone(), leaves, &exprs, aggregates)?;
            let mut outputs = Vec::new();
            for (at, (_, ty)) in keys.exprs.iter().enumerate() {
                let value = match set.iter().position(|own| *own == at) {
                    Some(place) => columns[0][place].expr.clone(),
                    None => lit(*ty, &Datum::Null)?,
                };
                outputs.push(value.alias(format!("k{at}")));
            }
            for at in 0..aggregates.len() {
                outputs.push(columns[0][set.len() + at].expr.clone().alias(format!("f{at}")));
            }
            for (i, asked) in groupings.iter().enumerate() {
                let bits = asked.iter().fold(0, |bits, key| bits << 1 | i64::from(!set.contains(key)));
                outputs.push(lit(Type::Int4, &Datum::Int(bits))?.alias(format!("s{i}")));
            }
            if outputs.is_empty() {
                outputs.push(lit(Type::Int4, &Datum::Int(0))?.alias("none"));
            }
            let one = df(df(LogicalPlanBuilder::from(grouped).project(outputs))?.build())?;
            all = Some(match all {
                None => one,
                Some(before) => df(df(LogicalPlanBuilder::from(before).union(one))?.build())?,
            });
        }
        let Some(plan) = all else {
            return refuse("GROUP BY without a set");
        };
        let column = |name: String, ty| Leaf::new(DfExpr::Column(DfColumn::new_unqualified(name)), ty);
        let mut columns: Vec<Leaf> =
            keys.exprs.iter().enumerate().map(|(at, (_, ty))| column(format!("k{at}"), *ty)).collect();
        for (at, aggregate) in aggregates.iter().enumerate() {
            let (_, ty) = self.with_leaves(leaves, |l| fold_of(aggregate, l))?;
            columns.push(column(format!("f{at}"), ty));
        }
        columns.extend((0..groupings.len()).map(|i| column(format!("s{i}"), Type::Int4)));
        Ok((plan, vec![columns]))
    }

    /// A subquery beside groups refers to their keys.
    fn over_keys(&self, pending: &mut Pending, before: &[Vec<Leaf>], keys: &Keys, after: &[Vec<Leaf>]) -> Bind<()> {
        let mut given = Vec::with_capacity(keys.exprs.len());
        for (expr, ty) in &keys.exprs {
            given.push(self.with_leaves(before, |l| l.convert(expr, *ty))?);
        }
        let replace = |expr: &mut DfExpr| -> Bind<()> {
            let taken = std::mem::replace(expr, DfExpr::Literal(ScalarValue::Null, None));
            let mut loose = None;
            let replaced = df(taken.transform_down(|e| {
                if let Some(at) = given.iter().position(|key| *key == e) {
                    let leaf = after[0][at].expr.clone();
                    return Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump));
                }
                if let Some(at) = fold_of_column(&e) {
                    let leaf = after[0][keys.exprs.len() + at].expr.clone();
                    return Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump));
                }
                if let DfExpr::Column(column) = &e
                    && column.relation.is_some()
                {
                    loose.get_or_insert_with(|| column.name.clone());
                }
                Ok(Transformed::no(e))
            }))?;
            *expr = replaced.data;
            match loose {
                None => Ok(()),
                Some(name) => {
                    let message = format!("subquery uses ungrouped column \"{name}\" from outer query");
                    Err(SqlError::new("42803", message).into())
                }
            }
        };
        pending.per_row.slots.iter_mut().try_for_each(|leaf| replace(&mut leaf.expr))?;
        pending.lefts.iter_mut().try_for_each(|(expr, _)| replace(expr))
    }

    /// Groups. Its columns are the keys, then the aggregates, as source 0.
    fn group(
        &self,
        plan: LogicalPlan,
        leaves: &[Vec<Leaf>],
        keys: &[(Expr, Type)],
        aggregates: &[Aggregate],
    ) -> Bind<(LogicalPlan, Vec<Vec<Leaf>>)> {
        let taken: HashSet<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        // No column of a table is called as one of the plan's own.
        let named = |kind: char, number: usize| {
            let mut name = format!("{kind}{number}");
            while taken.contains(&name) {
                name.push('_');
            }
            name
        };
        let mut groups = Vec::new();
        let mut folded = Vec::new();
        let mut columns = Vec::new();
        for (i, (expr, ty)) in keys.iter().enumerate() {
            must_compare(*ty, "equality")?;
            let value = self.with_leaves(leaves, |l| l.convert(expr, *ty))?;
            let column = if has_forms(*ty) {
                // Of equal numbers that are written differently the first is shown.
                groups.push(key(value.clone(), *ty).alias(named('g', i)));
                folded.push(plain_aggregate(first_value_udaf(), vec![value], false, None).alias(named('n', i)));
                DfColumn::new_unqualified(named('n', i))
            } else if let DfExpr::Column(column) = &value
                && super::compute::Key::of(*ty).is_none()
            {
                // It keeps its name, by which subqueries refer to it.
                groups.push(value.clone());
                column.clone()
            } else {
                groups.push(key(value, *ty).alias(named('g', i)));
                DfColumn::new_unqualified(named('g', i))
            };
            columns.push(Leaf::new(DfExpr::Column(column), *ty));
        }
        let mut known = HashSet::new();
        groups.retain(|group| known.insert(group.clone()));
        for (i, aggregate) in aggregates.iter().enumerate() {
            let (expr, ty) = self.with_leaves(leaves, |l| fold_of(aggregate, l))?;
            folded.push(expr.alias(named('a', i)));
            columns.push(Leaf::new(DfExpr::Column(DfColumn::new_unqualified(named('a', i))), ty));
        }
        if groups.is_empty() && folded.is_empty() {
            // HAVING alone makes one group.
            let count = plain_aggregate(count_udaf(), vec![lit(Type::Int8, &Datum::Int(1))?], false, None);
            folded.push(count.alias(named('a', 0)));
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
        let sides = [left, right];
        // A parameter without a type takes that of the other side's column.
        let types = |rel: &Rel| -> Vec<Type> { rel.columns.iter().map(|column| without_modifier(column.ty)).collect() };
        let (open_left, open_right) = (open_outputs(left), open_outputs(right));
        let (left, right) = match (open_left.contains(&true), open_right.contains(&true)) {
            (true, true) => {
                // Where both sides are open there is text.
                let mut stored = types(&self.tried(binder, right)?);
                for (ty, _) in stored.iter_mut().zip(open_right).filter(|(_, is_open)| *is_open) {
                    *ty = Type::Text;
                }
                let left = self.set_operand_as(binder, left, stored)?;
                let right = self.set_operand_as(binder, right, types(&left))?;
                (left, right)
            }
            (true, false) => {
                let right = self.set_operand(binder, right)?;
                let left = self.set_operand_as(binder, left, types(&right))?;
                (left, right)
            }
            (_, is_open) => {
                let left = self.set_operand(binder, left)?;
                let stored = if is_open { types(&left) } else { Vec::new() };
                let right = self.set_operand_as(binder, right, stored)?;
                (left, right)
            }
        };
        let rel = self.combine(op, all, left, right)?;
        for side in sides {
            note_literals(binder, side, &rel.columns);
        }
        Ok(rel)
    }

    /// An operand as it is by itself, which says nothing of parameters yet.
    pub(super) fn tried(&self, binder: &mut Binder<'_>, body: &SetExpr) -> Bind<Rel> {
        let (parameters, parts) = (binder.parameters.clone(), self.parts.borrow().len());
        let operand = self.set_operand(binder, body);
        binder.parameters = parameters;
        self.parts.borrow_mut().truncate(parts);
        operand
    }

    fn set_operand_as(&self, binder: &mut Binder<'_>, body: &SetExpr, stored: Vec<Type>) -> Bind<Rel> {
        let around = std::mem::replace(&mut binder.output_types, stored);
        let operand = self.set_operand(binder, body);
        binder.output_types = around;
        operand
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
            // What comes together with other types keeps no modifier.
            let is_computed = column.is_computed || column.ty != ty;
            outputs.push((expr, Output { ty, untyped: false, origin: None, is_computed, ..column }));
        }
        self.project(rel.plan, outputs, rel.at_most_one)
    }

    // ---- subqueries

    /// A query whose names may mean columns of the query around it.
    fn subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Rel> {
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let rel = self.correlated(binder, scope, sources, |binder| self.query(binder, query))?;
        self.note_unjoinable(&rel)?;
        Ok(rel)
    }

    /// A subquery that cannot become a join runs for each row, as one that may give something else for each.
    pub(super) fn note_unjoinable(&self, rel: &Rel) -> Bind<()> {
        let is_each = !is_joinable(&rel.plan) || !rel.plan.all_out_ref_exprs().is_empty() && is_volatile(&rel.plan)?;
        self.is_deep.set(self.is_deep.get() || is_each);
        Ok(())
    }

    pub fn correlated<T>(
        &self,
        binder: &mut Binder<'_>,
        scope: &Scope,
        sources: Vec<Vec<Leaf>>,
        plan: impl FnOnce(&mut Binder<'_>) -> Bind<T>,
    ) -> Bind<T> {
        {
            let mut state = self.state.borrow_mut();
            let level = state.level(binder, scope, sources, None);
            state.levels.push(level);
        }
        let stored = std::mem::take(&mut binder.output_types);
        let planned = plan(binder);
        binder.output_types = stored;
        self.state.borrow_mut().levels.pop();
        planned
    }

    /// DataFusion joins a correlated subquery as if it had no LIMIT or OFFSET, and as if an aggregate gave no row where there are none.
    fn note_limits(&self, query: &ast::Query, rel: &Rel) {
        let limited = query.limit_clause.is_some() || query.fetch.is_some() || rel.at_most_one;
        if limited && !rel.plan.all_out_ref_exprs().is_empty() {
            self.is_deep.set(true);
        }
    }

    /// A subquery that may run for each row: its plan, and what it refers to, if that is how it runs.
    fn maybe_per_row(
        &self,
        binder: &mut Binder<'_>,
        query: &ast::Query,
        scope: &Scope,
        always: bool,
    ) -> Bind<(Rel, Option<PerRow>)> {
        if !self.per_row && !always {
            return Ok((self.subquery(binder, query, scope)?, None));
        }
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let correlated = self.is_correlated.replace(false);
        let (rel, per_row) = self.per_row_query(binder, scope, sources, |binder| self.query(binder, query))?;
        // It is planned by itself when it runs: what is correlated within is not looked at with the rest.
        self.is_deep.set(self.is_deep.get() || self.is_correlated.get());
        self.is_correlated.set(self.is_correlated.get() || correlated);
        let needed = always || !per_row.slots.is_empty();
        Ok((rel, needed.then_some(per_row)))
    }

    /// `(a, b) = (SELECT x, y ...)` and `a operator ANY (SELECT ...)`: compared with each row.
    fn compared_subquery(
        &self,
        binder: &mut Binder<'_>,
        left: &[&ast::Expr],
        op: BinaryOp,
        query: &ast::Query,
        scope: &Scope,
        (all, single): (bool, bool),
    ) -> Bind<Bound> {
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let (rel, per_row) = self.maybe_per_row(binder, query, scope, true)?;
        if rel.columns.len() != left.len() {
            let what = if rel.columns.len() < left.len() { "few" } else { "many" };
            return Err(SqlError::new("42601", format!("subquery has too {what} columns")).into());
        }
        let mut lefts = Vec::with_capacity(left.len());
        let mut cells = (Vec::with_capacity(left.len()), Vec::with_capacity(left.len()));
        for (i, (ast, column)) in left.iter().zip(&rel.columns).enumerate() {
            let bound = binder.bind(ast, scope)?;
            let bound = match bound.ty {
                Some(_) => bound,
                None => Bound::new(binder.coerce(bound, column.ty, CastContext::Implicit)?, column.ty),
            };
            let ty = bound.ty.unwrap_or(Type::Text);
            let expr = self.with_folds(binder, bound.expr, &sources)?;
            let value = self.with_leaves(&sources, |leaves| leaves.convert(&expr, ty))?;
            self.note_subqueries(&value)?;
            lefts.push((value, ty));
            cells.0.push(Bound::new(Expr::Cell { source: 0, column: i as u16 }, ty));
            cells.1.push(Bound::new(Expr::Cell { source: 1, column: i as u16 }, column.ty));
        }
        let condition = match (left.len(), op) {
            (1, op) => {
                let (l, r) = (cells.0.remove(0), cells.1.remove(0));
                if op.is_comparison() {
                    binder.compare(op, l, r)?.expr
                } else {
                    let operator = BinaryOperator::resolve(op, l.ty, r.ty)?;
                    let left = Box::new(binder.coerce(l, operator.left, CastContext::Implicit)?);
                    let right = Box::new(binder.coerce(r, operator.right, CastContext::Implicit)?);
                    Expr::Binary { operator, left, right }
                }
            }
            (_, op) => binder.bound_rows(cells.0, op, cells.1)?.expr,
        };
        let per_row = per_row.expect("it was asked for");
        self.ask(binder, per_row, lefts, rel.plan, apply::Kind::Quantified { condition, all, single }, Type::Bool)
    }

    /// `ARRAY(SELECT ...)`.
    fn array_subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Bound> {
        let (rel, per_row) = self.maybe_per_row(binder, query, scope, true)?;
        let of = only_column(&rel)?.ty.as_array();
        // A char's length says which blanks it is shown with.
        let is_as_it_is = matches!(of, Type::Array(_) | Type::Char(_));
        let of = if is_as_it_is { of } else { crate::value::cast::without_modifier(of) };
        // An element has the form of its type, which a number of a fixed scale has not.
        let rel = self.cast_columns(rel, &[of])?;
        let per_row = per_row.expect("it was asked for");
        self.ask(binder, per_row, Vec::new(), rel.plan, apply::Kind::Array(of), Type::array_of(of))
    }

    /// `grouping(a, b)`: a bit for each key, set where the row's set lacks it.
    fn grouping(&self, binder: &mut Binder<'_>, function: &ast::Function, scope: &Scope) -> Bind<Bound> {
        let args = crate::bind::expr::plain_args(&function.args).unwrap_or_default();
        let mut bound = Vec::with_capacity(args.len());
        for arg in args {
            bound.push(binder.bind(arg, scope)?.expr);
        }
        let mut state = self.state.borrow_mut();
        state.groupings.push(bound);
        let column = (state.groupings.len() - 1) as u16;
        Ok(Bound::new(Expr::Cell { source: GROUPING, column }, Type::Int4))
    }

    /// A subquery whose value may be null, though its column may not: it may have no row.
    fn nullable(&self, rel: Rel) -> Bind<Rel> {
        let column = only_column(&rel)?.clone();
        if rel.plan.schema().field(0).is_nullable() {
            return Ok(rel);
        }
        let itself = Expr::Cell { source: 0, column: 0 };
        let same = Computed::new(itself, 1, column.ty, self.env.clock.clone());
        let value = call(same, vec![DfExpr::Column(column.column.clone())]);
        self.project(rel.plan, vec![(value, column)], rel.at_most_one)
    }

    fn scalar_subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Bound> {
        let always = self.state.borrow().in_outer_join;
        if self.per_row || always {
            let (rel, per_row) = self.maybe_per_row(binder, query, scope, always)?;
            let &Output { ty, is_computed, .. } = only_column(&rel)?;
            let value = match per_row {
                Some(per_row) => self.scalar_per_row(binder, per_row, rel.plan, ty)?,
                None => self.given(DfExpr::ScalarSubquery(subquery_of(self.nullable(rel)?.plan)), ty),
            };
            return Ok(self.noted(value, is_computed));
        }
        let rel = self.subquery(binder, query, scope)?;
        let &Output { ty, is_computed, .. } = only_column(&rel)?;
        let column = DfExpr::Column(rel.columns[0].column.clone());
        let is_alone = rel.plan.all_out_ref_exprs().is_empty();
        if rel.at_most_one || is_alone {
            let rel = if is_alone { self.nullable(rel)? } else { rel };
            // DataFusion itself refuses a second row of a subquery that it runs once.
            return Ok(self.noted(self.given(DfExpr::ScalarSubquery(subquery_of(rel.plan)), ty), is_computed));
        }
        // Decorrelated it is a join, which would give the outer row twice: first value and count, checked per outer row.
        let value = plain_aggregate(first_value_udaf(), vec![column], false, None);
        let one = lit(Type::Int8, &Datum::Int(1))?;
        let count = plain_aggregate(count_udaf(), vec![one], false, None);
        let named = |expr: DfExpr| expr.alias(self.unique("only"));
        let folded = |expr: DfExpr| -> Bind<DfExpr> {
            let none: Vec<DfExpr> = Vec::new();
            let plan = df(df(LogicalPlanBuilder::from(rel.plan.clone()).aggregate(none, vec![named(expr)]))?.build())?;
            Ok(DfExpr::ScalarSubquery(subquery_of(plan)))
        };
        let only = self.only_row(ty, folded(value)?, folded(count)?);
        Ok(self.noted(self.given(only, ty), is_computed))
    }

    /// The value of a subquery that gave so many rows. It is the evaluator's to compute, which does so where CASE and its like ask for it.
    fn only_row(&self, ty: Type, value: DfExpr, count: DfExpr) -> DfExpr {
        let args = (0..2).map(|column| Expr::Cell { source: 0, column }).collect();
        let only = Expr::Call { function: Box::new(Function::only_row(ty)), args };
        call(Computed::new(only, 2, ty, self.env.clock.clone()), vec![value, count])
    }

    fn scalar_per_row(&self, binder: &Binder<'_>, per_row: PerRow, subplan: LogicalPlan, ty: Type) -> Bind<Bound> {
        let name = self.unique("each");
        let column = |at: usize| DfExpr::Column(DfColumn::new_unqualified(numbered_name(&name, at)));
        let given = self.given(self.only_row(ty, column(0), column(1)), ty);
        let pending = Pending::of(name, per_row, Some(subplan), apply::Kind::Scalar, vec![ty, Type::Int8]);
        self.put_off(Pending { in_aggregate: binder.in_aggregate, ..pending })?;
        Ok(given)
    }

    fn exists(&self, binder: &mut Binder<'_>, query: &ast::Query, negated: bool, scope: &Scope) -> Bind<Bound> {
        let in_filter = self.state.borrow().in_filter;
        // No join gives what an aggregate folds, or decides which rows an outer join extends.
        let always = binder.in_aggregate || self.state.borrow().in_outer_join;
        let (rel, per_row) = self.maybe_per_row(binder, query, scope, always)?;
        if let Some(per_row) = per_row {
            return self.ask(binder, per_row, Vec::new(), rel.plan, apply::Kind::Exists { negated }, Type::Bool);
        }
        self.note_limits(query, &rel);
        if in_filter {
            let exists = DfExpr::Exists(Exists { subquery: subquery_of(rel.plan), negated });
            return Ok(self.given(exists, Type::Bool));
        }
        let one = lit(Type::Int8, &Datum::Int(1))?;
        let count = plain_aggregate(count_udaf(), vec![one.clone()], false, None).alias(self.unique("only"));
        let none: Vec<DfExpr> = Vec::new();
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).aggregate(none, vec![count]))?.build())?;
        let op = if negated { Operator::Lt } else { Operator::GtEq };
        Ok(self.given(infix(DfExpr::ScalarSubquery(subquery_of(plan)), op, one), Type::Bool))
    }

    /// Whether an expression is a column that is null in no row.
    fn is_known(&self, binder: &mut Binder<'_>, expr: &ast::Expr, scope: &Scope) -> Bind<bool> {
        let Bound { expr: Expr::Column { source, column }, .. } = binder.bind(expr, scope)? else { return Ok(false) };
        let of = &scope.sources[usize::from(source)];
        let is_not_null = |table: &Arc<Table>| table.def.columns[usize::from(column)].not_null;
        Ok(!of.nullable && of.table.as_ref().is_some_and(is_not_null))
    }

    /// `a IN (SELECT ...)` where that is no join: `a` is looked up among what the subquery gives.
    fn member_subquery(
        &self,
        binder: &mut Binder<'_>,
        expr: &ast::Expr,
        query: &ast::Query,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let (rel, per_row) = self.maybe_per_row(binder, query, scope, true)?;
        if rel.columns.len() != 1 {
            return Err(SqlError::new("42601", "subquery has too many columns").into());
        }
        let given = only_column(&rel)?.ty;
        let bound = binder.bind(expr, scope)?;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, bound.ty, Some(given))?;
        let Some(ty) = common(operator.left, operator.right) else {
            let op = if negated { BinaryOp::Ne } else { BinaryOp::Eq };
            return self.compared_subquery(binder, &[expr], op, query, scope, (negated, false));
        };
        let wanted = binder.coerce(bound, operator.left, CastContext::Implicit)?;
        let wanted = self.with_folds(binder, wanted, &sources)?;
        let wanted = self.with_leaves(&sources, |leaves| leaves.as_type(&wanted, operator.left, ty))?;
        self.note_subqueries(&wanted)?;
        let rel = self.cast_columns(rel, &[ty])?;
        let per_row = per_row.expect("it was asked for");
        self.ask(binder, per_row, vec![(wanted, ty)], rel.plan, apply::Kind::Member { ty, negated }, Type::Bool)
    }

    /// What is compared with a subquery's rows, with columns that stand for its aggregates until the rows are grouped (`over_keys`).
    fn with_folds(&self, binder: &Binder<'_>, expr: Expr, sources: &[Vec<Leaf>]) -> Bind<Expr> {
        if !expr.has_aggregate() {
            return Ok(expr);
        }
        let aggregates = binder.aggregates.as_deref().unwrap_or_default();
        let mut types = Vec::with_capacity(aggregates.len());
        for aggregate in aggregates {
            types.push(self.with_leaves(sources, |leaves| Ok(fold_of(aggregate, leaves)?.1))?);
        }
        Ok(expr.rewrite(&mut |e| match e {
            Expr::Aggregate(at) => {
                let column = DfColumn::new_unqualified(format!("{FOLD}{at}"));
                Some(self.given(DfExpr::Column(column), types[usize::from(*at)]).expr)
            }
            _ => None,
        }))
    }

    /// The rows that are compared with a subquery's are a plan of their own, in which nothing becomes a join.
    fn note_subqueries(&self, value: &DfExpr) -> Bind<()> {
        let is_subquery =
            |e: &DfExpr| Ok(matches!(e, DfExpr::ScalarSubquery(_) | DfExpr::Exists(_) | DfExpr::InSubquery(_)));
        self.is_deep.set(self.is_deep.get() || df(value.exists(is_subquery))?);
        Ok(())
    }

    fn in_subquery(
        &self,
        binder: &mut Binder<'_>,
        expr: &ast::Expr,
        query: &ast::Query,
        negated: bool,
        scope: &Scope,
        is_conjunct: bool,
    ) -> Bind<Bound> {
        if let Some(left) = crate::bind::row_items(expr) {
            let op = if negated { BinaryOp::Ne } else { BinaryOp::Eq };
            return self.compared_subquery(binder, &left, op, query, scope, (negated, false));
        }
        // DataFusion's join knows nulls among the subquery's rows, but not all that an optimizer may leave out before, nor those on the left.
        let is_join = is_conjunct && !self.per_row && (!negated || self.is_known(binder, expr, scope)?);
        if !is_join {
            return self.member_subquery(binder, expr, query, negated, scope);
        }
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        let rel = self.subquery(binder, query, scope)?;
        let has_nulls = || rel.plan.schema().fields().first().is_none_or(|field| field.is_nullable());
        if negated && (!rel.plan.all_out_ref_exprs().is_empty() || has_nulls()) {
            return self.member_subquery(binder, expr, query, negated, scope);
        }
        self.note_limits(query, &rel);
        let given = only_column(&rel)?.clone();
        let bound = binder.bind(expr, scope)?;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, bound.ty, Some(given.ty))?;
        let Some(ty) = common(operator.left, operator.right) else {
            // Only the evaluator compares them.
            let op = if negated { BinaryOp::Ne } else { BinaryOp::Eq };
            return self.compared_subquery(binder, &[expr], op, query, scope, (negated, false));
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
        let is_conjunct = {
            let state = self.state.borrow();
            state.in_filter && state.conjuncts.contains(&place_of(ast))
        };
        Ok(Some(match ast {
            A::Subquery(query) => self.scalar_subquery(binder, query, scope)?,
            A::Exists { subquery, negated } => self.exists(binder, subquery, *negated, scope)?,
            A::InSubquery { expr, subquery, negated } => {
                self.in_subquery(binder, expr, subquery, *negated, scope, is_conjunct)?
            }
            A::AnyOp { left, compare_op, right, is_some: _ } => match right.as_ref() {
                A::Subquery(query) if *compare_op == B::Eq => {
                    self.in_subquery(binder, left, query, false, scope, is_conjunct)?
                }
                A::Subquery(query) => {
                    let left_parts = crate::bind::row_items(left).unwrap_or_else(|| vec![left]);
                    let op = quantified_op(compare_op)?;
                    self.compared_subquery(binder, &left_parts, op, query, scope, (false, false))?
                }
                _ => return Ok(None),
            },
            A::AllOp { left, compare_op, right } => match right.as_ref() {
                A::Subquery(query) if *compare_op == B::NotEq => {
                    self.in_subquery(binder, left, query, true, scope, is_conjunct)?
                }
                A::Subquery(query) => {
                    let left_parts = crate::bind::row_items(left).unwrap_or_else(|| vec![left]);
                    let op = quantified_op(compare_op)?;
                    self.compared_subquery(binder, &left_parts, op, query, scope, (true, false))?
                }
                _ => return Ok(None),
            },
            A::BinaryOp { left, op, right } => match (crate::bind::row_items(left), right.as_ref()) {
                (Some(parts), A::Subquery(query)) => {
                    let op = quantified_op(op)?;
                    self.compared_subquery(binder, &parts, op, query, scope, (false, true))?
                }
                _ => return Ok(None),
            },
            A::Function(function) if function.over.is_some() => self.bind_window(binder, function, scope)?,
            A::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
                match (&function.args, name) {
                    (ast::FunctionArguments::Subquery(query), "array") => self.array_subquery(binder, query, scope)?,
                    (_, "grouping") => self.grouping(binder, function, scope)?,
                    _ => return self.set_output(binder, function, None, scope),
                }
            }
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

    fn row_subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &Scope) -> Bind<Vec<Bound>> {
        let (rel, per_row) = self.maybe_per_row(binder, query, scope, true)?;
        let name = self.unique("each");
        let types: Vec<Type> = rel.columns.iter().map(|column| column.ty).collect();
        let given = |(at, column): (usize, &Output)| {
            let value = DfExpr::Column(DfColumn::new_unqualified(numbered_name(&name, at)));
            self.noted(self.given(value, column.ty), column.is_computed)
        };
        let row = rel.columns.iter().enumerate().map(given).collect();
        let per_row = per_row.expect("it was asked for");
        let pending = Pending::of(name, per_row, Some(rel.plan), apply::Kind::Row, types);
        self.put_off(Pending { in_aggregate: binder.in_aggregate, ..pending })?;
        Ok(row)
    }

    fn is_part_of_with(&self, name: &str) -> bool {
        self.state.borrow().ctes.iter().any(|cte| cte.name == name)
    }

    fn is_computed(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Cell { source: GIVEN, column } if self.state.borrow().computed.contains(column))
    }

    fn has_set(&self, expr: &Expr) -> bool {
        expr.mentions(|source| source == SETS)
    }

    fn outer_column(&self, names: &[String], source: Option<&SourceName>) -> Bind<Option<Bound>> {
        let Some(name) = names.last() else { return Ok(None) };
        let (level, found) = {
            let state = self.state.borrow();
            let mut nearest = None;
            for (at, level) in state.levels.iter().enumerate().rev() {
                let looked = match source {
                    None => level.scope.column(name),
                    Some(source) => level.scope.qualified(source, name),
                };
                if looked.is_err()
                    && let Some(table) = level.scope.tableoid(source, name)?
                {
                    return Ok(Some(table_oid(table)));
                }
                match looked {
                    Ok(column) => {
                        nearest = Some((at, column));
                        break;
                    }
                    Err(error) if matches!(&*error.sqlstate, "42702" | "42P09") => return Err(error.into()),
                    Err(error) if error.sqlstate == "42703" && source.is_some() => return Err(error.into()),
                    Err(_) => {}
                }
            }
            match nearest {
                Some(nearest) => nearest,
                None => return Ok(None),
            }
        };
        self.outer_cell(level, found)
    }

    fn outer_row(&self, binder: &mut Binder<'_>, name: &str) -> Bind<Option<Bound>> {
        let (level, columns, present) = {
            let state = self.state.borrow();
            let of_name = |(at, level): (usize, &Level)| level.scope.source(name).ok().map(|source| (at, source));
            let Some((at, source)) = state.levels.iter().enumerate().rev().find_map(of_name) else { return Ok(None) };
            let (columns, present) = state.levels[at].row_of(source)?;
            (at, columns, present)
        };
        // No join takes a row apart.
        self.is_correlated.set(true);
        self.is_deep.set(true);
        let cell = |found| self.outer_cell(level, found)?.map_or_else(|| refuse("this row of a query further out"), Ok);
        let fields = columns.into_iter().map(|(name, found)| Ok((name, cell(found)?)));
        let record = binder.record(fields.collect::<Bind<_>>()?)?;
        let Some(present) = present else { return Ok(Some(record)) };
        let is_missing = Expr::IsNull { expr: Box::new(cell(present)?.expr), negated: false };
        let branches = vec![(is_missing, Expr::NULL)];
        Ok(Some(Bound::new(Expr::Case { branches, otherwise: Some(Box::new(record.expr)) }, RECORD)))
    }

    fn columns_around(&self, source: &SourceName) -> Option<Vec<String>> {
        let state = self.state.borrow();
        state.levels.iter().rev().find_map(|level| {
            let columns = row_columns(level.scope.source_named(source).ok()?, &level.scope, false);
            Some(columns.into_iter().map(|(name, _)| name).collect())
        })
    }

    fn is_outer_row(&self, name: &str) -> bool {
        let state = self.state.borrow();
        let is_column = |level: &Level| level.scope.column(name).map_or_else(|e| e.sqlstate != "42703", |_| true);
        !state.levels.iter().any(is_column) && state.levels.iter().any(|level| level.scope.source(name).is_ok())
    }

    fn mark(&self, _: &Binder<'_>) -> Mark {
        let state = self.state.borrow();
        let slots = |level: &Level| level.per_row.as_ref().map_or(0, |per_row| per_row.slots.len());
        Mark {
            levels: state.levels.len(),
            reached: state.reached.len(),
            slots: state.levels.iter().map(slots).collect(),
            pending: state.pending.last().map_or(0, Vec::len),
        }
    }

    fn owner(&self, mark: &Mark, is_own: bool) -> Option<usize> {
        let state = self.state.borrow();
        let by_name = |reached: &Reached| match *reached {
            Reached::ByName(level) => Some(level),
            Reached::ByWith(_) => None,
        };
        let since: Vec<usize> = state.reached[mark.reached..].iter().filter_map(by_name).collect();
        // A subquery in the arguments has this query for its nearest level.
        let is_own = is_own || since.contains(&mark.levels);
        since.into_iter().filter(|&level| !is_own && level < mark.levels).max()
    }

    fn folded_around(&self, binder: &mut Binder<'_>, mark: Mark, owner: usize, parts: Parts<'_>) -> Bind<Bound> {
        self.is_correlated.set(true);
        self.is_deep.set(true);
        if !self.per_row {
            return refuse("an aggregate of a query further out");
        }
        self.forget_since(&mark);
        let (scope, aggregates_at, blocks) = {
            let state = self.state.borrow();
            let level = &state.levels[owner];
            (level.scope.clone(), level.aggregates_at, level.blocks)
        };
        let around = binder.aggregates_around.get_mut(aggregates_at).map(Option::take);
        let Some(Some(mut theirs)) = around else {
            return Err(SqlError::new("42803", "aggregate functions are not allowed here").into());
        };
        // Its arguments are bound as if they stood in their own query.
        let deeper = self.state.borrow_mut().without_deeper(owner, blocks);
        let own = binder.aggregates.take();
        let in_aggregate = std::mem::replace(&mut binder.in_aggregate, true);
        let bound = parts(binder, &scope);
        binder.in_aggregate = in_aggregate;
        binder.aggregates = own;
        let sources = self.state.borrow().blocks.last().cloned().unwrap_or_default();
        self.state.borrow_mut().put_back(deeper);
        let bound = bound.and_then(|(aggregate, ty)| {
            let ty_of = self.with_leaves(&sources, |leaves| Ok(fold_of(&aggregate, leaves)?.1))?;
            Ok((folded(&mut theirs, aggregate, ty), ty_of))
        });
        binder.aggregates_around[aggregates_at] = Some(theirs);
        let (value, ty) = bound?;
        let Bound { expr: Expr::Aggregate(at), .. } = value else { unreachable!("invariant: an aggregate was folded") };
        let leaf = Leaf::new(DfExpr::Column(DfColumn::new_unqualified(format!("{FOLD}{at}"))), ty);
        self.outer_value(owner, leaf, true)
    }
}

impl State {
    /// Takes away what stands within the subquery of a level, as if its query were bound itself.
    fn without_deeper(&mut self, level: usize, blocks: usize) -> Deeper {
        Deeper {
            levels: self.levels.split_off(level),
            blocks: self.blocks.split_off(blocks),
            pending: self.pending.split_off(blocks),
            windows: self.windows.take(),
            sets: self.sets.take(),
            in_outer_join: std::mem::take(&mut self.in_outer_join),
            in_filter: std::mem::take(&mut self.in_filter),
        }
    }

    fn put_back(&mut self, deeper: Deeper) {
        let Deeper { levels, blocks, pending, windows, sets, in_outer_join, in_filter } = deeper;
        self.levels.extend(levels);
        self.blocks.extend(blocks);
        self.pending.extend(pending);
        (self.windows, self.sets) = (windows, sets);
        (self.in_outer_join, self.in_filter) = (in_outer_join, in_filter);
    }
}

/// What stands between an aggregate and the query further out that it is of.
struct Deeper {
    levels: Vec<Level>,
    blocks: Vec<Vec<Vec<Leaf>>>,
    pending: Vec<Vec<Pending>>,
    windows: Option<Vec<Window>>,
    sets: Option<Vec<SetCall>>,
    in_outer_join: bool,
    in_filter: bool,
}

impl Planner<'_> {
    /// A column of a level's row, as it stands in the queries within it.
    fn outer_cell(&self, level: usize, found: Found) -> Bind<Option<Bound>> {
        let (leaf, is_computed) = {
            let state = self.state.borrow();
            let of = &state.levels[level];
            let (source, column) = (usize::from(found.source), usize::from(found.column));
            let leaf = of.sources.get(source).and_then(|leaves| leaves.get(column)).cloned();
            (leaf, of.scope.sources[source].columns[column].is_computed)
        };
        self.state.borrow_mut().reached.push(Reached::ByName(level));
        leaf.map(|leaf| self.outer_value(level, leaf, is_computed)).transpose()
    }

    /// What is computed of a level's row, likewise.
    fn outer_value(&self, level: usize, leaf: Leaf, is_computed: bool) -> Bind<Bound> {
        let ty = leaf.ty;
        let slot = {
            let mut state = self.state.borrow_mut();
            state.levels[level].per_row.as_mut().map(|per_row| {
                let known = per_row.slots.iter().position(|known| known.expr == leaf.expr);
                let slot = known.unwrap_or_else(|| {
                    per_row.slots.push(leaf.clone());
                    per_row.slots.len() - 1
                });
                (per_row.id, slot)
            })
        };
        if let Some((id, slot)) = slot {
            let value = call(OuterValue::new(id, slot, ty), Vec::new());
            return Ok(self.noted_outer(self.given_once(value, ty), is_computed));
        }
        let is_nearest = level + 1 == self.state.borrow().levels.len();
        self.is_deep.set(self.is_deep.get() || !is_nearest);
        self.is_correlated.set(true);
        let DfExpr::Column(column) = leaf.expr else {
            self.is_deep.set(true);
            return Ok(self.noted_outer(self.given(lit(ty, &Datum::Null)?, ty), is_computed));
        };
        let field = datafusion::arrow::datatypes::Field::new(column.name.clone(), data_type(ty), true);
        let value = self.given_once(DfExpr::OuterReferenceColumn(Arc::new(field), column), ty);
        Ok(self.noted_outer(value, is_computed))
    }

    /// How many columns of queries around were found so far.
    pub(super) fn reached(&self) -> usize {
        self.state.borrow().reached.len()
    }

    /// Of which queries around the one that is bound now some were since then, and of which recursions.
    pub(super) fn reached_out(&self, since: usize) -> Vec<usize> {
        let state = self.state.borrow();
        let is_out = |level: &usize| *level < state.levels.len() || *level >= RECURSIONS;
        let since = state.reached[since..].iter().map(|reached| reached.level());
        let mut out: Vec<usize> = since.filter(is_out).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Stands among levels for the rows that the recursion read last which is planned now.
    pub(super) fn recursion_mark(&self) -> usize {
        let of_recursion = |cte: &&Cte| cte.around.iter().any(|&level| level >= RECURSIONS);
        RECURSIONS + self.state.borrow().ctes.iter().filter(of_recursion).count()
    }

    /// Undoes what binding has asked of the rows around since then.
    fn forget_since(&self, mark: &Mark) {
        let mut state = self.state.borrow_mut();
        for (level, &slots) in state.levels.iter_mut().zip(&mark.slots) {
            if let Some(per_row) = &mut level.per_row {
                per_row.slots.truncate(slots);
            }
        }
        if let Some(pending) = state.pending.last_mut() {
            pending.truncate(mark.pending);
        }
    }
}

/// Whether a subquery means the same once its conditions on the rows around it stand in a join with them, where DataFusion takes them, over whatever
/// they stand in: a window function would see the rows of all, and an outer join extend others.
fn is_joinable(plan: &LogicalPlan) -> bool {
    if plan.all_out_ref_exprs().is_empty() {
        return true;
    }
    let keeps = match plan {
        LogicalPlan::Window(_) | LogicalPlan::Distinct(datafusion::logical_expr::Distinct::On(_)) => false,
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
        _ => true,
    };
    keeps && plan.inputs().into_iter().all(is_joinable)
}

/// What an expression is told apart by while its statement is bound.
fn place_of(ast: &ast::Expr) -> usize {
    std::ptr::from_ref(ast).addr()
}

/// The places of the parts that a condition joins by AND.
fn add_conjuncts(condition: &ast::Expr, places: &mut Vec<usize>) {
    match condition {
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
            add_conjuncts(left, places);
            add_conjuncts(right, places);
        }
        ast::Expr::Nested(inner) => add_conjuncts(inner, places),
        part => places.push(place_of(part)),
    }
}

/// GROUP BY's keys.
#[derive(Default)]
struct Keys {
    exprs: Vec<(Expr, Type)>,
    /// GROUPING SETS and its like: which keys each set has.
    sets: Option<Vec<Vec<usize>>>,
}

/// Which keys the arguments of each `grouping()` are.
fn grouping_places(groupings: &[Vec<Expr>], keys: &Keys) -> Bind<Vec<Vec<usize>>> {
    let place = |arg: &Expr| {
        keys.exprs.iter().position(|(key, _)| key == arg).ok_or_else(|| {
            let message = "arguments to GROUPING must be grouping expressions of the associated query level";
            Refusal::Error(SqlError::new("42803", message))
        })
    };
    groupings.iter().map(|args| args.iter().map(place).collect()).collect()
}

pub(super) fn numbered_name(name: &str, at: usize) -> String {
    if at == 0 { name.to_owned() } else { format!("{name}_{at}") }
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

impl Selected {
    /// The same with the fields of rows in their places; and the outputs as they were.
    fn by_fields(self) -> (Vec<Item>, Selected) {
        let (mut items, mut untyped, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for ((item, is_untyped), origin) in self.items.iter().zip(self.untyped).zip(self.origins) {
            let fields = by_fields(item.expr.clone(), item.ty);
            let is_row = fields_of(&item.expr).is_some();
            for (expr, ty) in fields {
                items.push(Item { expr, ty, name: item.name.clone(), is_computed: is_row || item.is_computed });
                untyped.push(is_untyped && !is_row);
                origins.push(origin.filter(|_| !is_row));
            }
        }
        (self.items, Selected { items, untyped, origins, ..self })
    }
}

/// An output over the columns that its fields, or itself, have become.
fn over_cells(expr: Expr, next: &mut u16) -> Expr {
    let Some(fields) = fields_of(&expr) else {
        *next += 1;
        return Expr::Cell { source: 0, column: *next - 1 };
    };
    let mut fields = fields.into_iter().map(|(field, _)| over_cells(field, next)).collect::<Vec<_>>().into_iter();
    match expr {
        Expr::Call { function, args } => {
            let of = |(at, arg): (usize, Expr)| if at % 2 == 0 { Some(arg) } else { fields.next() };
            Expr::Call { function, args: args.into_iter().enumerate().filter_map(of).collect() }
        }
        other => other,
    }
}

/// LIMIT and OFFSET.
#[derive(Default)]
struct Limits {
    limit: Option<u64>,
    offset: Option<u64>,
    /// With the rows that are equal to the last one in the order.
    with_ties: bool,
}

impl Limits {
    /// The rank of the last row that WITH TIES lets through: ties of that row have its rank, those after it a higher one.
    fn last_rank(&self) -> Option<u64> {
        let limit = self.limit.filter(|_| self.with_ties)?;
        Some(limit.saturating_add(self.offset.unwrap_or(0)))
    }

    fn apply(&self, rel: Rel) -> Bind<Rel> {
        let plan = self.limited(rel.plan)?;
        Ok(Rel { plan, ..rel })
    }

    fn limited(&self, plan: LogicalPlan) -> Bind<LogicalPlan> {
        if self.limit.is_none() && self.offset.unwrap_or(0) == 0 {
            return Ok(plan);
        }
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        // With ties the rows that are too many are gone already.
        let fetch = self.limit.filter(|&limit| !self.with_ties || limit == 0);
        let (skip, fetch) = (number(self.offset.unwrap_or(0)), fetch.map(number));
        df(df(LogicalPlanBuilder::from(plan).limit(skip, fetch))?.build())
    }
}

pub fn output(name: String, ty: Type) -> Output {
    Output { name, ty, column: DfColumn::new_unqualified(""), untyped: false, origin: None, is_computed: false }
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

fn quantified_op(op: &ast::BinaryOperator) -> Bind<BinaryOp> {
    use ast::BinaryOperator as B;
    Ok(match op {
        B::Eq => BinaryOp::Eq,
        B::NotEq => BinaryOp::Ne,
        B::Lt => BinaryOp::Lt,
        B::LtEq => BinaryOp::Le,
        B::Gt => BinaryOp::Gt,
        B::GtEq => BinaryOp::Ge,
        B::PGLikeMatch => BinaryOp::Like,
        B::PGNotLikeMatch => BinaryOp::NotLike,
        B::PGILikeMatch => BinaryOp::ILike,
        B::PGNotILikeMatch => BinaryOp::NotILike,
        B::PGRegexMatch => BinaryOp::Regex,
        B::PGRegexNotMatch => BinaryOp::NotRegex,
        B::PGRegexIMatch => BinaryOp::RegexFold,
        B::PGRegexNotIMatch => BinaryOp::NotRegexFold,
        B::PGBitwiseShiftLeft => BinaryOp::Within,
        B::PGBitwiseShiftRight => BinaryOp::Contains,
        B::PGOverlap => BinaryOp::Overlaps,
        B::Custom(symbol) if symbol == "<<=" => BinaryOp::WithinOrEqual,
        B::Custom(symbol) if symbol == ">>=" => BinaryOp::ContainsOrEqual,
        other => return refuse(format!("{other} with a subquery")),
    })
}

/// What the compiled road leaves to another, on this road is not there.
pub fn as_unsupported(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NotCompiled { what, position } => SqlError::unsupported(what).at(position).into(),
        error => error,
    }
}

fn scope_of(rel: &Rel) -> Scope {
    let columns = rel.columns.iter().map(Output::scope_column);
    Scope { sources: vec![ScopeSource::of_columns(String::new(), columns.collect())], ..Scope::default() }
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
        ast::Expr::Value(v) => {
            use ast::Value::{EscapedStringLiteral, Null, SingleQuotedString};
            matches!(v.value, Null | SingleQuotedString(_) | EscapedStringLiteral(_))
        }
        _ => false,
    };
    let items = projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => untyped(e),
        _ => false,
    });
    items.collect()
}

/// Tells of an operand's literals which types they take: those of the set operation's columns.
fn note_literals(binder: &mut Binder<'_>, body: &SetExpr, columns: &[Output]) {
    match body {
        SetExpr::Select(select) if select.projection.len() == columns.len() => {
            for (item, column) in select.projection.iter().zip(columns) {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && let ast::Expr::Value(literal) = expr
                {
                    binder.note_output(literal, column.ty);
                }
            }
        }
        SetExpr::Query(query) if query.with.is_none() => note_literals(binder, &query.body, columns),
        _ => {}
    }
}

/// Which outputs of a SELECT are a parameter alone.
fn open_outputs(body: &SetExpr) -> Vec<bool> {
    fn is_open(expr: &ast::Expr) -> bool {
        match expr {
            ast::Expr::Value(v) => matches!(v.value, ast::Value::Placeholder(_)),
            ast::Expr::Nested(inner) => is_open(inner),
            _ => false,
        }
    }
    match body {
        SetExpr::Select(select) => {
            let of = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_open(expr),
                _ => false,
            };
            select.projection.iter().map(of).collect()
        }
        SetExpr::Query(query) if query.with.is_none() => open_outputs(&query.body),
        _ => Vec::new(),
    }
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
    if let Some(gathers) = &aggregate.gathered {
        return gather_call(gathers, aggregate.distinct, leaves);
    }
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
        AggregateFunction::Min if has_forms(ty) => fold(Kind::Least),
        AggregateFunction::Max if has_forms(ty) => fold(Kind::Greatest),
        AggregateFunction::Min => min_udaf(),
        AggregateFunction::Max => max_udaf(),
        AggregateFunction::BoolAnd => bool_and_udaf(),
        AggregateFunction::BoolOr => bool_or_udaf(),
        AggregateFunction::Sum => fold(Kind::Sum),
        AggregateFunction::Avg => fold(Kind::Average),
        AggregateFunction::Gathered => unreachable!("invariant: it was taken above"),
    };
    Ok((function, vec![arg], result))
}

fn gather_call(
    gathers: &Gathers,
    distinct: bool,
    leaves: &Leaves<'_>,
) -> Result<(Arc<AggregateUDF>, Vec<DfExpr>, Type), SqlError> {
    let Gathers { signature, args, order } = gathers;
    let mut exprs = Vec::with_capacity(args.len() + order.len());
    for (arg, ty) in args.iter().zip(&signature.arguments) {
        exprs.push(leaves.convert(arg, *ty)?);
    }
    for (expr, by) in order {
        exprs.push(leaves.convert(expr, by.ty)?);
    }
    let orders = order.iter().map(|(_, by)| *by).collect();
    let gather = Gather::new(signature.clone(), orders, distinct, leaves.env.clock.clone());
    Ok((Arc::new(AggregateUDF::new_from_impl(gather)), exprs, signature.result))
}

/// A sum or average at a fixed scale.
fn fixed_sum(aggregate: &Aggregate, leaves: &Leaves<'_>) -> Option<(Arc<AggregateUDF>, Vec<DfExpr>, Type)> {
    let average = match aggregate.function {
        AggregateFunction::Sum => false,
        AggregateFunction::Avg => true,
        _ => return None,
    };
    let (arg, ty) = aggregate.arg.as_ref().filter(|_| !aggregate.distinct)?;
    let (_, result) = aggregate.function.types(Some(*ty))?;
    let (summand, input) = leaves.summand(arg, *ty)?;
    let sum = FixedSum::of(average, input, result)?;
    Some((Arc::new(AggregateUDF::new_from_impl(sum)), vec![summand], result))
}

/// Begins the names of columns that stand for aggregates; no other has such a name.
const FOLD: &str = "\0fold";

/// The aggregate that a column stands for.
fn fold_of_column(expr: &DfExpr) -> Option<usize> {
    match expr {
        DfExpr::Column(column) => column.name.strip_prefix(FOLD)?.parse().ok(),
        _ => None,
    }
}

/// An aggregate whose argument may fail, so that it is computed only for the rows that its FILTER leaves: DataFusion asks that afterwards.
fn guarded_fold(aggregate: &Aggregate) -> Option<Aggregate> {
    let filter = aggregate.filter.as_ref()?;
    let guarded = |arg: &Expr| Expr::Case { branches: vec![(filter.clone(), arg.clone())], otherwise: None };
    let mut guarding = aggregate.clone();
    let mut is_guarded = false;
    let mut guard = |arg: &mut Expr| {
        if arg.may_fail() && !arg.is_volatile() {
            *arg = guarded(arg);
            is_guarded = true;
        }
    };
    guarding.arg.iter_mut().for_each(|(arg, _)| guard(arg));
    if let Some(gathers) = &mut guarding.gathered {
        gathers.args.iter_mut().for_each(&mut guard);
        gathers.order.iter_mut().for_each(|(expr, _)| guard(expr));
    }
    is_guarded.then_some(guarding)
}

fn fold_of(aggregate: &Aggregate, leaves: &Leaves<'_>) -> Result<(DfExpr, Type), SqlError> {
    let (function, args, ty) = match fixed_sum(aggregate, leaves) {
        Some(fixed) => fixed,
        None => aggregate_call(guarded_fold(aggregate).as_ref().unwrap_or(aggregate), leaves)?,
    };
    let filter = aggregate.filter.as_ref().map(|f| leaves.condition(f)).transpose()?;
    // Duplicates change neither a truth nor a minimum, but for how that is written.
    let distinct = aggregate.distinct
        && match aggregate.function {
            AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg => true,
            _ => aggregate.arg.as_ref().is_some_and(|(_, ty)| has_forms(*ty)),
        };
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

/// What is compared with something of the outer query, where that is no column by itself.
fn beside_outer(part: &mut DfExpr) -> Option<&mut DfExpr> {
    let DfExpr::BinaryExpr(binary) = part else { return None };
    if binary.op != Operator::Eq {
        return None;
    }
    let (left, right) = (&mut binary.left, &mut binary.right);
    let inner = match (left.contains_outer(), right.contains_outer()) {
        (true, false) if !left.any_column_refs() => right,
        (false, true) if !right.any_column_refs() => left,
        _ => return None,
    };
    (!matches!(inner.as_ref(), DfExpr::Column(_)) && inner.any_column_refs()).then_some(inner.as_mut())
}
