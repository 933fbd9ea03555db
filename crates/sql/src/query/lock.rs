//! How does a query of this road lock rows? It runs first and gives row ids beside its rows, in its order; then they are locked one after the other
//! until its limit is met.
//!
//! 1. A locking query within another one is a part of the statement that comes before it, like a change within WITH: it runs once, and those after
//!    it read what it gave. The compiled road runs it where it can.
//! 2. A row with a newer version than the query saw is locked, and the statement runs again at a new snapshot with that lock held.
//! 3. A subquery that refers to the query around it cannot lock.

use super::change::{Action, columns_of};
use super::convert::Leaf;
use super::plan::{FromRel, Output, Planner, Rel, output, refuse};
use super::with::Part;
use crate::bind::query::{Folds, add_lock, locked_sources, locks_nothing, not_lockable, strength_of};
use crate::bind::{Bind, Binder, Refusal};
use crate::compiled::query::{LockWait, Query, RowLocking, lock_row};
use crate::compiled::{Halt, Run};
use crate::error::SqlError;
use crate::explain::{Estimate, Node, ROW_COST};
use crate::parse::locking;
use crate::rows::{Column, RowSet};
use datafusion::arrow::array::RecordBatch;
use datafusion::logical_expr::Expr as DfExpr;
use freshet_engine::catalog::Table;
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Type, Value};
use freshet_engine::txn::{Locked, WaitToken};
use sqlparser::ast::{self, JoinOperator, LockClause, NonBlock, SetExpr, TableFactor, TableWithJoins};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Locks what a query found; its row ids stand behind the columns that are given.
#[derive(Clone, Debug)]
pub struct LockRows {
    pub columns: Arc<[Column]>,
    of: Vec<LockOf>,
    limit: Option<u64>,
    offset: u64,
}

#[derive(Clone, Debug)]
struct LockOf {
    table: Arc<Table>,
    lock: RowLocking,
    /// Of its row id.
    column: usize,
}

/// The locking clauses of the SELECT that is being planned, and the row ids of what they lock.
#[derive(Default)]
pub struct Locking {
    clauses: Vec<LockClause>,
    of: Vec<(Arc<Table>, RowLocking, Leaf)>,
}

impl Locking {
    pub fn clauses(&self) -> Vec<LockClause> {
        self.clauses.clone()
    }
}

// ---- planning

impl Planner<'_> {
    /// A locking query within a statement: it becomes a part that comes first.
    pub(super) fn locking_query(&self, binder: &mut Binder<'_>, query: &ast::Query) -> Bind<Rel> {
        // It is to know nothing of the queries around it, for whose rows it would run.
        let levels = std::mem::take(&mut self.state.borrow_mut().levels);
        let planned = match self.compiled_query(binder, query)? {
            Some(query) => Ok((None, Action::Run(Box::new(query)))),
            None => self.locked(binder, query).map(|(rel, action)| (Some(rel.plan), action)),
        };
        let is_inner = !levels.is_empty();
        self.state.borrow_mut().levels = levels;
        let (plan, action) = match planned {
            Err(Refusal::Error(error)) if is_inner && matches!(error.sqlstate, "42703" | "42P01") => {
                return refuse("a correlated subquery that locks rows");
            }
            planned => planned?,
        };
        let (rel, into) = self.returned_later("locked", &action.columns())?;
        self.parts.borrow_mut().push(Part { plan, action, into: Some(into), name: None });
        Ok(rel)
    }

    /// The query as the compiled road runs it; `None`: it does not.
    fn compiled_query(&self, binder: &mut Binder<'_>, query: &ast::Query) -> Bind<Option<Query>> {
        if self.reads_with(query) {
            return Ok(None);
        }
        let beyond = binder.beyond.take();
        let bound = binder.query(query);
        binder.beyond = beyond;
        Ok(bound.ok())
    }

    /// Whether a name in the query is one that WITH gives.
    pub(super) fn reads_with(&self, query: &ast::Query) -> bool {
        let state = self.state.borrow();
        let is_known = |name: &str| {
            state.ctes.iter().any(|cte| cte.name == name) || state.silent_ctes.iter().any(|known| known == name)
        };
        let found = ast::visit_relations(query, |name| match name.0.last().and_then(|part| part.as_ident()) {
            Some(ident) if is_known(&crate::bind::scope::fold(ident)) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        query.with.is_some() || found.is_break()
    }

    /// A locking query by itself: its rows with their ids, and what is done with them.
    pub(super) fn locked(&self, binder: &mut Binder<'_>, query: &ast::Query) -> Bind<(Rel, Action)> {
        let Some(first) = query.locks.first() else { return refuse("a query that locks nothing") };
        if let Some(with) = &query.with {
            self.with(binder, with, (query, false))?;
        }
        let select = match query.body.as_ref() {
            SetExpr::Select(select) => select,
            SetExpr::SetOperation { .. } => return Err(locks_nothing(first, "UNION/INTERSECT/EXCEPT")),
            SetExpr::Values(_) => {
                let message = format!("FOR {} cannot be applied to VALUES", locking(first).0.words());
                return Err(SqlError::new("0A000", message).into());
            }
            _ => return refuse(format!("FOR {} of this query", locking(first).0.words())),
        };
        if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
            return refuse("FETCH ... WITH TIES of rows that are locked");
        }
        let (limit, offset) = binder.limits(query.limit_clause.as_ref(), query.fetch.as_ref())?;
        let limit = self.count(limit.as_ref(), "LIMIT")?;
        let offset = self.count(offset.as_ref(), "OFFSET")?.unwrap_or(0);
        let nullable = nullable_names(&select.from);
        if let Some((clause, _)) = named_of(&query.locks).into_iter().find(|(_, name)| nullable.contains(name)) {
            return Err(of_nullable_side(clause));
        }
        self.state.borrow_mut().next_locking = Some(Locking { clauses: query.locks.clone(), of: Vec::new() });
        let plain = ast::Query { locks: Vec::new(), with: None, limit_clause: None, fetch: None, ..query.clone() };
        let rel = self.query(binder, &plain);
        let locking = self.state.borrow_mut().done_locking.take().unwrap_or_default();
        let mut rel = rel?;
        let width = rel.columns.len().saturating_sub(locking.of.len());
        let of = locking.of.into_iter().enumerate();
        let of = of.map(|(i, (table, lock, _))| LockOf { table, lock, column: width + i }).collect();
        let columns = columns_of(&rel.columns[..width]);
        rel.at_most_one = false;
        Ok((rel, Action::Lock(Box::new(LockRows { columns, of, limit, offset }))))
    }

    /// Notes what of FROM is locked; the row ids that are given beside the outputs.
    pub(super) fn note_locks(&self, select: &ast::Select, from: &FromRel) -> Bind<()> {
        let clauses = match &self.state.borrow().locking {
            Some(locking) if locking.of.is_empty() => locking.clauses.clone(),
            _ => return Ok(()),
        };
        let nullable = nullable_names(&select.from);
        let derived = derived_names(&select.from);
        let mut locks: Vec<RowLocking> = Vec::new();
        for clause in &clauses {
            let (row_lock, of) = locking(clause);
            for source in locked_sources(clause, &from.scope)? {
                let entry = &from.scope.sources[usize::from(source)];
                if nullable.contains(&entry.name) {
                    return Err(of_nullable_side(clause));
                }
                if entry.table.is_none() {
                    let is_with = self.state.borrow().ctes.iter().any(|cte| cte.name == entry.name);
                    match derived.contains(&entry.name) {
                        true => {}
                        false if is_with => not_lockable(clause, "a WITH query")?,
                        false if !of.is_empty() => not_lockable(clause, "a function")?,
                        false => {}
                    }
                    continue;
                }
                let wait = match &clause.nonblock {
                    None => LockWait::Wait,
                    Some(NonBlock::Nowait) => LockWait::NoWait,
                    Some(NonBlock::SkipLocked) => LockWait::SkipLocked,
                };
                add_lock(&mut locks, RowLocking { source, strength: strength_of(row_lock), wait });
            }
        }
        let of = locks.into_iter().filter_map(|lock| {
            let at = usize::from(lock.source);
            let table = from.scope.sources[at].table.clone()?;
            // The row id stands behind the table's columns.
            let leaf = from.sources[at].get(table.def.columns.len())?.clone();
            Some((table, lock, leaf))
        });
        if let Some(locking) = &mut self.state.borrow_mut().locking {
            locking.of = of.collect();
        }
        Ok(())
    }

    /// Refuses to lock the rows of a SELECT that makes one of several.
    pub(super) fn refuse_folded_locks(&self, folds: Folds) -> Bind<()> {
        match self.state.borrow().locking.as_ref().and_then(|locking| locking.clauses.first()) {
            Some(clause) => folds.refuse_lock(clause),
            None => Ok(()),
        }
    }

    /// What is given beside a locking query's outputs.
    pub(super) fn row_ids(&self) -> Vec<(DfExpr, Output)> {
        let state = self.state.borrow();
        let of = state.locking.iter().flat_map(|locking| &locking.of);
        of.map(|(_, _, leaf)| (leaf.expr.clone(), output(String::new(), Type::Int8))).collect()
    }
}

fn of_nullable_side(clause: &LockClause) -> Refusal {
    let words = locking(clause).0.words();
    let message = format!("FOR {words} cannot be applied to the nullable side of an outer join");
    SqlError::new("0A000", message).into()
}

/// The names in OF, each with its clause.
fn named_of(clauses: &[LockClause]) -> Vec<(&LockClause, String)> {
    let names = clauses.iter().flat_map(|clause| {
        let (_, of) = locking(clause);
        of.into_iter().map(move |name| (clause, crate::bind::scope::fold(&name)))
    });
    names.collect()
}

fn names_of(factor: &TableFactor, out: &mut Vec<String>) {
    let alias = match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            names_of(&table_with_joins.relation, out);
            table_with_joins.joins.iter().for_each(|join| names_of(&join.relation, out));
            return;
        }
        TableFactor::Table { alias: None, name, .. } => {
            let last = name.0.last().and_then(|part| part.as_ident());
            out.extend(last.map(crate::bind::scope::fold));
            return;
        }
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias,
        _ => return,
    };
    out.extend(alias.as_ref().map(|alias| crate::bind::names::alias_of_source(&alias.name).0));
}

/// What an outer join may give nulls for.
fn nullable_names(list: &[TableWithJoins]) -> HashSet<String> {
    let mut nullable = HashSet::new();
    for item in list {
        let mut before = Vec::new();
        add_nullable(&item.relation, &mut nullable);
        names_of(&item.relation, &mut before);
        for join in &item.joins {
            add_nullable(&join.relation, &mut nullable);
            let mut own = Vec::new();
            names_of(&join.relation, &mut own);
            let (left, right) = match join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (false, false),
            };
            if left {
                nullable.extend(before.iter().cloned());
            }
            if right {
                nullable.extend(own.iter().cloned());
            }
            before.extend(own);
        }
    }
    nullable
}

fn add_nullable(factor: &TableFactor, nullable: &mut HashSet<String>) {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        nullable.extend(nullable_names(std::slice::from_ref(table_with_joins)));
    }
}

/// The names of subqueries, whose rows are locked within them.
fn derived_names(list: &[TableWithJoins]) -> HashSet<String> {
    let factors = list
        .iter()
        .flat_map(|item| std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation)));
    let mut names = Vec::new();
    for factor in factors {
        if let TableFactor::Derived { .. } = factor {
            names_of(factor, &mut names);
        }
    }
    names.into_iter().collect()
}

// ---- locking

impl LockRows {
    /// As EXPLAIN shows it, over the query's own node.
    pub(super) fn node(&self, query: Node) -> Node {
        let Estimate { total, rows, .. } = query.estimate;
        let estimate = Estimate { total: total + rows * ROW_COST, ..query.estimate };
        let actual = query.actual;
        let mut node = Node::new("LockRows", estimate).over(vec![query]);
        node.actual = actual;
        if self.limit.is_none() && self.offset == 0 {
            return node;
        }
        let rows = self.limit.map_or(rows, |limit| rows.min(limit as f64));
        let mut limited = Node::new("Limit", Estimate { rows, ..estimate }).over(vec![node]);
        limited.actual = actual;
        limited
    }

    /// Locks the rows of a query in their order; gives those that could be locked, up to the limit.
    pub(super) fn apply(&self, batches: &[RecordBatch], run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
        let locked = self.lock_all(batches, run, rows);
        run.engine.set_nowait(false);
        locked
    }

    fn lock_all(&self, batches: &[RecordBatch], run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
        let (mut skip, mut left) = (self.offset, self.limit.unwrap_or(u64::MAX));
        for batch in batches {
            let columns = super::compute::readable(batch.columns()).map_err(super::fault::sql_error)?;
            for row in 0..batch.num_rows() {
                if left == 0 {
                    return Ok(rows.len() as u64);
                }
                if !self.lock_row(|column| columns[column].get(row), run)? {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                for column in &columns[..self.columns.len()] {
                    rows.push(&column.get(row));
                }
                rows.finish_row()?;
                left -= 1;
            }
        }
        Ok(rows.len() as u64)
    }

    /// False: the row is gone, or is to be skipped.
    fn lock_row<'v>(&self, value: impl Fn(usize) -> Value<'v>, run: &mut Run<'_>) -> Result<bool, Halt> {
        for LockOf { table, lock, column } in &self.of {
            let Value::Int(id) = value(*column) else {
                return Err(SqlError::new("XX000", "invariant: a locking query names its rows").into());
            };
            match lock_row(table, RowId(id as u64), lock, 0, run)? {
                None | Some(Locked::Gone) => return Ok(false),
                Some(Locked::Same) => {}
                Some(Locked::Newer) => return Err(Halt::Wait(WaitToken::ready())),
            }
        }
        Ok(true)
    }
}
