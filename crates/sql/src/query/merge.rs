//! What does MERGE do with each row? The source is joined with the target; for each row the first clause that applies tells what happens.
//!
//! The query gives the target's row id (null where nothing matches), the number of the clause, and the values of every clause, which are computed
//! only where it is theirs.
//!
//! 1. A row of the target is changed once: a second source row that would change it is 21000.
//! 2. Without NOT MATCHED clauses the join is an inner one.

use super::cells::Cells;
use super::change::{Changed, lock_to_change, update_target, value_cell};
use super::convert::Leaf;
use super::plan::{FromRel, Pending, Planner, Rel, as_unsupported, df, output, refuse};
use crate::bind::change::is_default;
use crate::bind::scope::{Scope, ScopeSource};
use crate::bind::{Bind, Binder};
use crate::compiled::change::{Delete, Given, Insert, InsertSource, Update, delete_row, insert_given};
use crate::compiled::rules::Event;
use crate::compiled::{Halt, Run};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::query::change::Action;
use crate::rows::RowSet;
use crate::value::Datum;
use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan, LogicalPlanBuilder};
use freshet_engine::catalog::Table;
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Type, Value};
use freshet_engine::txn::Strength;
use sqlparser::ast::{self, MergeAction, MergeClauseKind, MergeInsertKind, TableWithJoins};
use std::sync::Arc;

/// MERGE's clauses.
#[derive(Clone, Debug)]
pub struct Merge {
    pub target: Arc<Table>,
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug)]
struct Clause {
    what: What,
    /// The first of its values, of `width`, among the query's columns.
    first: usize,
    width: usize,
}

#[derive(Clone, Debug)]
enum What {
    Nothing,
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

/// A clause as it is bound: whether it applies, and its values.
struct BoundClause {
    what: What,
    applies: Expr,
    values: Vec<(Expr, Type)>,
}

/// Columns before the clauses' values: the row id and the clause.
const BEFORE_VALUES: usize = 2;

impl Merge {
    pub fn apply_row(
        &self,
        columns: &[Cells<'_>],
        row: usize,
        changed: &mut Changed,
        run: &mut Run<'_>,
        rows: &mut RowSet,
    ) -> Result<bool, Halt> {
        let Value::Int(number) = columns[1].get(row) else { return Ok(false) };
        let clause = &self.clauses[number as usize];
        let values = &columns[clause.first..clause.first + clause.width];
        match &clause.what {
            What::Nothing => Ok(false),
            What::Insert(insert) => {
                insert_given(insert, &Given::each(clause.width), |column| values[column].get(row), run, rows)
            }
            What::Update(update) => match self.target(columns[0].get(row), changed, run)? {
                Some(id) => update_target(update, id, values, row, run, rows),
                None => Ok(false),
            },
            What::Delete(delete) => match self.target(columns[0].get(row), changed, run)? {
                Some(id) => delete_row(delete, id, run, rows).map(|()| true),
                None => Ok(false),
            },
        }
    }

    /// Locks the row that is to be changed.
    fn target(&self, id: Value<'_>, changed: &mut Changed, run: &mut Run<'_>) -> Result<Option<RowId>, Halt> {
        let Value::Int(number) = id else {
            return Err(SqlError::new("XX000", "invariant: a matched row has an id").into());
        };
        if !changed.insert((self.target.id, number)) {
            return Err(SqlError::new("21000", "MERGE command cannot affect row a second time")
                .with_hint("Ensure that not more than one source row matches any one target row.")
                .into());
        }
        lock_to_change(&self.target, RowId(number as u64), Strength::Update, run)
    }
}

fn is_matched(clause: &ast::MergeClause) -> bool {
    clause.clause_kind == MergeClauseKind::Matched
}

/// A clause after one of its kind that always applies is an error.
fn check_reachable(clauses: &[ast::MergeClause]) -> Result<(), SqlError> {
    let mut always = [false; 2];
    for clause in clauses {
        let seen = &mut always[usize::from(is_matched(clause))];
        if *seen {
            return Err(SqlError::new("42601", "unreachable WHEN clause specified after unconditional WHEN clause"));
        }
        *seen = clause.predicate.is_none();
    }
    Ok(())
}

impl Planner<'_> {
    pub fn merge(&self, binder: &mut Binder<'_>, merge: &ast::Merge) -> Bind<(Rel, Action)> {
        let ast::Merge { merge_token: _, optimizer_hints: _, into: _, table, source, on, clauses, output: returning } =
            merge;
        if returning.is_some() {
            return Err(SqlError::new("42601", "syntax error at or near \"RETURNING\"").into());
        }
        check_reachable(clauses)?;
        let written = TableWithJoins { relation: table.clone(), joins: Vec::new() };
        let (target, target_scope) = binder.target_table(&written, "merge into").map_err(as_unsupported)?;
        if binder.through.is_some() {
            let message = format!("cannot execute MERGE on relation \"{}\"", target_scope.sources[0].name);
            let detail = "This operation is not supported for views.";
            return Err(SqlError::new("0A000", message).with_detail(detail).into());
        }
        let source = TableWithJoins { relation: source.clone(), joins: Vec::new() };
        let source = self.from(binder, std::slice::from_ref(&source))?;
        let kind = if clauses.iter().all(is_matched) { JoinType::Inner } else { JoinType::Left };
        let name = target_scope.sources[0].name.clone();
        let (from, row_id) = self.merged(binder, source.clone(), (&target, name), on, kind)?;
        let at = source.sources.len() as u16;
        let mut bound = Vec::with_capacity(clauses.len());
        let mut from = from;
        let sources = from.sources.clone();
        let rel = self.within(&sources, || {
            for clause in clauses {
                let scope = if is_matched(clause) { &from.scope } else { &source.scope };
                let (clause, asked) = self.clause(binder, clause, &target, scope, at)?;
                bound.push(clause);
                from.plan = self.asked_for(from.plan.clone(), &sources, &bound, asked)?;
            }
            self.merge_rel(&from, row_id.clone(), &bound)
        })?;
        let mut first = BEFORE_VALUES;
        let mut clauses = Vec::with_capacity(bound.len());
        for BoundClause { what, values, .. } in bound {
            clauses.push(Clause { what, first, width: values.len() });
            first += values.len();
        }
        Ok((rel, Action::Merge(Box::new(Merge { target, clauses }))))
    }

    /// The source joined with the target, which is its last source and has its row id behind its columns.
    fn merged(
        &self,
        binder: &mut Binder<'_>,
        mut from: FromRel,
        (target, name): (&Arc<Table>, String),
        on: &ast::Expr,
        kind: JoinType,
    ) -> Bind<(FromRel, Leaf)> {
        let (plan, leaves) = self.table(target, &name)?;
        let row_id = leaves.last().expect("invariant: the last column is the row id").clone();
        let namespace = (name == target.def.name).then_some(target.def.namespace);
        from.scope.add(ScopeSource { namespace, ..ScopeSource::of_table(name, target) })?;
        from.sources.push(leaves);
        let (scope, sources) = (from.scope.clone(), from.sources.clone());
        let condition = self.within(&sources, || binder.condition(on, "MERGE", &scope))?;
        let parts = match condition {
            Expr::And(parts) => parts,
            one => vec![one],
        };
        let on = self.with_leaves(&sources, |leaves| {
            parts.iter().map(|part| leaves.condition(part)).collect::<Result<Vec<_>, _>>()
        })?;
        from.plan = df(df(LogicalPlanBuilder::from(from.plan).join_on(plan, kind, on))?.build())?;
        Ok((from, row_id))
    }

    /// The rows with what clauses ask of them: the last one's values are asked of the rows that are its own.
    fn asked_for(
        &self,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        clauses: &[BoundClause],
        [of_condition, of_values]: [Vec<Pending>; 2],
    ) -> Bind<LogicalPlan> {
        let plan = of_condition.into_iter().try_fold(plan, |plan, asked| self.apply_one(plan, asked))?;
        let no = Expr::Const(Datum::Bool(false));
        let Some((own, earlier)) = clauses.split_last() else { return Ok(plan) };
        let branches = earlier.iter().map(|clause| (clause.applies.clone(), no.clone()));
        let branches = branches.chain([(own.applies.clone(), Expr::Const(Datum::Bool(true)))]).collect();
        let is_own = Expr::Case { branches, otherwise: Some(Box::new(no.clone())) };
        of_values.into_iter().try_fold(plan, |plan, asked| {
            let guard = self.with_leaves(sources, |leaves| leaves.convert(&is_own, Type::Bool))?;
            self.apply_one(plan, Pending { guard: Some(guard), ..asked })
        })
    }

    /// A clause, and what it asks of each row: for its condition, and for its values. `at`: the target's number among the sources.
    fn clause(
        &self,
        binder: &mut Binder<'_>,
        clause: &ast::MergeClause,
        target: &Arc<Table>,
        scope: &Scope,
        at: u16,
    ) -> Bind<(BoundClause, [Vec<Pending>; 2])> {
        let row_id = Expr::Cell { source: at, column: target.def.columns.len() as u16 };
        let mut applies = vec![Expr::IsNull { expr: Box::new(row_id), negated: is_matched(clause) }];
        if let Some(predicate) = &clause.predicate {
            applies.push(binder.condition(predicate, "MERGE WHEN", scope)?);
        }
        let of_condition = self.take_pending();
        let (what, values) = match &clause.action {
            MergeAction::Update(update) if marks_nothing(update.assignments.first()) => (What::Nothing, Vec::new()),
            MergeAction::Update(update) => {
                if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                    return refuse("a MERGE clause of another dialect");
                }
                self.merge_update(binder, (target, at), &update.assignments, scope)?
            }
            MergeAction::Delete { .. } => {
                let search = binder.search(target, &Scope::of_table(target, None), None)?;
                let rules = binder.rules(target, Event::Delete, &[])?;
                (What::Delete(Delete { search, rules, returning: None }), Vec::new())
            }
            MergeAction::Insert(insert) if insert.columns.first().is_some_and(is_mark) => (What::Nothing, Vec::new()),
            MergeAction::Insert(insert) => self.merge_insert(binder, target, insert, scope)?,
        };
        Ok((BoundClause { what, applies: Expr::And(applies), values }, [of_condition, self.take_pending()]))
    }

    fn merge_update(
        &self,
        binder: &mut Binder<'_>,
        (target, at): (&Arc<Table>, u16),
        assignments: &[ast::Assignment],
        scope: &Scope,
    ) -> Bind<(What, Vec<(Expr, Type)>)> {
        let sets = binder.sets((target, at), assignments, scope)?;
        let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
        let rules = binder.rules(target, Event::Update, &columns)?;
        let search = binder.search(target, &Scope::of_table(target, None), None)?;
        let not_null = columns.iter().copied();
        let not_null = not_null.filter(|&c| target.def.columns[usize::from(c)].not_null).collect();
        let cells = columns.iter().enumerate().map(|(i, &column)| (column, value_cell(i))).collect();
        let ty = |column: u16| target.def.columns[usize::from(column)].ty;
        let values = sets.into_iter().map(|(column, expr)| (expr, ty(column))).collect();
        Ok((What::Update(Update { search, sets: cells, not_null, rules, returning: None }), values))
    }

    fn merge_insert(
        &self,
        binder: &mut Binder<'_>,
        target: &Arc<Table>,
        insert: &ast::MergeInsertExpr,
        scope: &Scope,
    ) -> Bind<(What, Vec<(Expr, Type)>)> {
        let MergeInsertKind::Values(ast::Values { rows, .. }) = &insert.kind else {
            return refuse("INSERT ROW");
        };
        let [row] = rows.as_slice() else {
            return Err(SqlError::new("42601", "syntax error in MERGE's VALUES").into());
        };
        if insert.insert_predicate.is_some() {
            return refuse("a MERGE clause of another dialect");
        }
        binder.overriding = None;
        let mut targets = binder.targets(target, &insert.columns)?;
        crate::bind::change::check_width(row.content.len(), &mut targets, !insert.columns.is_empty())?;
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for (&column, value) in targets.iter().zip(&row.content) {
            // What is left to the default is left out.
            if !is_default(value) {
                let ty = target.def.columns[usize::from(column)].ty;
                values.push((binder.assigned(target, column, value, scope)?, ty));
                columns.push(column);
            }
        }
        let plan = binder.insert_into(target, columns, InsertSource::Values(Vec::new()))?;
        Ok((What::Insert(plan), values))
    }

    fn merge_rel(&self, from: &FromRel, row_id: Leaf, clauses: &[BoundClause]) -> Bind<Rel> {
        let branches = clauses.iter().enumerate();
        let branches = branches.map(|(i, clause)| (clause.applies.clone(), Expr::Const(Datum::Int(i as i64))));
        let which = Expr::Case { branches: branches.collect(), otherwise: None };
        let number = self.with_leaves(&from.sources, |leaves| leaves.convert(&which, Type::Int4))?;
        let row_id = (row_id.expr, output(String::new(), Type::Int8));
        let mut outputs: Vec<(DfExpr, _)> = vec![row_id, (number, output(String::new(), Type::Int4))];
        for (i, clause) in clauses.iter().enumerate() {
            for (value, ty) in &clause.values {
                // Computed only where the clause is the one that applies.
                let before = clauses[..i].iter().map(|earlier| (earlier.applies.clone(), Expr::NULL));
                let branches = before.chain([(clause.applies.clone(), value.clone())]).collect();
                let value = Expr::Case { branches, otherwise: None };
                let value = self.with_leaves(&from.sources, |leaves| leaves.convert(&value, *ty))?;
                outputs.push((value, output(String::new(), *ty)));
            }
        }
        self.project(from.plan.clone(), outputs, false)
    }
}

/// DO NOTHING, as `parse` tells it in words that the grammar takes.
fn marks_nothing(assignment: Option<&ast::Assignment>) -> bool {
    assignment.is_some_and(|a| matches!(&a.target, ast::AssignmentTarget::ColumnName(name) if is_mark(name)))
}

fn is_mark(name: &ast::ObjectName) -> bool {
    name.0.first().and_then(|part| part.as_ident()).is_some_and(crate::parse::is_nothing)
}
