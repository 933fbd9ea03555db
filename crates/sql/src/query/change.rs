//! How are rows changed by what a query finds? The query gives row ids and new values; the engine changes the rows.
//!
//! DataFusion's own hooks for changes lose the conditions that its planner turns into joins, so they are not used: a change is planned
//! as `SELECT row id, new values, what RETURNING gives` and applied here.
//!
//! 1. The rows are known before the first one is changed.
//! 2. A row that several matches name is changed by the first; MERGE refuses the second (21000).
//! 3. READ COMMITTED: a row with a newer version than the query saw is locked, and the statement is undone and run again with that
//!    lock held, at a new snapshot: the second run sees what it locked. REPEATABLE READ fails with 40001.

use super::cells::Cells;
use super::convert::{Leaf, lit};
use super::lock::LockRows;
use super::merge::Merge;
use super::plan::{FromRel, Output, Planner, Rel, as_unsupported, df, output, refuse};
use crate::bind::change::assignment_cast;
use crate::bind::scope::Scope;
use crate::bind::{Bind, Binder, PLACEHOLDERS};
use crate::compiled::change::{Delete, Given, Insert, InsertSource, Returning, Update};
use crate::compiled::conflict::ConflictUpdate;
use crate::compiled::query::Query;
use crate::compiled::rules::Event;
use crate::compiled::{Halt, Run, Scratch, change};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::road::RoadContext;
use crate::rows::{Column, RowSet};
use crate::value::Datum;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::Column as DfColumn;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlanBuilder};
use freshet_engine::catalog::{Table, TableId};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Type, Value};
use freshet_engine::txn::{Locked, Strength, WaitToken};
use sqlparser::ast::{self, FromTable, SelectItem, SetExpr, TableWithJoins, UpdateTableFromKind};
use std::collections::HashSet;
use std::sync::Arc;

/// What becomes of a query's rows.
#[derive(Clone, Debug)]
pub enum Action {
    Give(Arc<[Column]>),
    Insert(Box<Insert>, Vec<Given>),
    /// The first column is the row id, then come the new values, then what RETURNING gives.
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// The first column is the target's row id or null, the second tells what is done, then come values.
    Merge(Box<Merge>),
    /// Locks the rows that the query found: see `lock`.
    Lock(Box<LockRows>),
    /// A query of the compiled road, which needs no plan of this one.
    Run(Box<Query>),
}

impl Action {
    pub fn command(&self) -> &'static str {
        match self {
            Action::Give(_) | Action::Lock(_) | Action::Run(_) => "SELECT",
            Action::Insert(..) => "INSERT",
            Action::Update(_) => "UPDATE",
            Action::Delete(_) => "DELETE",
            Action::Merge(_) => "MERGE",
        }
    }

    /// The operation and the table, as EXPLAIN shows them; `None`: rows are given.
    pub fn shown(&self) -> Option<(&'static str, &str)> {
        let (operation, table) = match self {
            Action::Give(_) | Action::Lock(_) | Action::Run(_) => return None,
            Action::Insert(insert, _) => ("Insert", insert.tables[0].as_ref()),
            Action::Update(update) => ("Update", update.search.tables[0].as_ref()),
            Action::Delete(delete) => ("Delete", delete.search.tables[0].as_ref()),
            Action::Merge(merge) => ("Merge", Some(&merge.target)),
        };
        Some((operation, table.map_or("", |table| table.def.name.as_str())))
    }

    fn returning(&self) -> Option<&Returning> {
        match self {
            Action::Give(_) | Action::Merge(_) | Action::Lock(_) | Action::Run(_) => None,
            Action::Insert(insert, _) => insert.returning.as_ref(),
            Action::Update(update) => update.returning.as_ref(),
            Action::Delete(delete) => delete.returning.as_ref(),
        }
    }

    /// Whether it locks rows and changes none.
    pub fn locks(&self) -> bool {
        matches!(self, Action::Lock(_) | Action::Run(_))
    }

    /// Whether it is a change with RETURNING.
    pub fn returns(&self) -> bool {
        self.returning().is_some()
    }

    pub fn columns(&self) -> Arc<[Column]> {
        match (self, self.returning()) {
            (Action::Give(columns), _) => columns.clone(),
            (Action::Lock(lock), _) => lock.columns.clone(),
            (Action::Run(query), _) => query.columns.clone(),
            (_, Some(returning)) => returning.columns.clone(),
            (_, None) => Arc::new([]),
        }
    }
}

/// Columns of a result.
pub fn columns_of(outputs: &[Output]) -> Arc<[Column]> {
    outputs
        .iter()
        .map(|o| Column { origin: o.origin, is_computed: o.is_computed, ..Column::new(&o.name, o.ty) })
        .collect()
}

// ---- planning

impl Planner<'_> {
    pub fn insert(&self, binder: &mut Binder<'_>, insert: &ast::Insert) -> Bind<(Rel, Action)> {
        let (rel, plan, values) = self.within(&[], || {
            let mut given = None;
            let mut plan = binder.insert_with(insert, &mut |binder, table, targets, explicit| {
                given = Some(self.rows_to_insert(binder, insert.source.as_deref(), (table, targets), explicit)?);
                Ok(InsertSource::Values(Vec::new()))
            })?;
            let (rel, values) = given.expect("invariant: the source was asked for");
            let update = plan.conflict.as_ref().and_then(|conflict| conflict.update.as_ref());
            let of_updated = update.and_then(|update| update.returning.as_ref());
            for returning in plan.returning.iter().chain(of_updated) {
                refuse_placeholders(&returning.output)?;
            }
            plan.source = InsertSource::Values(Vec::new());
            let rel = match plan.conflict.as_mut().and_then(|conflict| conflict.update.as_mut()) {
                Some(update) => self.with_asked_values(rel, update)?,
                None => rel,
            };
            Ok((rel, plan, values))
        })?;
        Ok((rel, Action::Insert(Box::new(plan), values)))
    }

    /// The rows, and how each column is given.
    fn rows_to_insert(
        &self,
        binder: &mut Binder<'_>,
        source: Option<&ast::Query>,
        (table, targets): (&Arc<Table>, &mut Vec<u16>),
        explicit: bool,
    ) -> Bind<(Rel, Vec<Given>)> {
        let Some(query) = source else {
            // DEFAULT VALUES: one row of no column.
            targets.clear();
            let row = df(LogicalPlanBuilder::empty(true).build())?;
            let nothing = (lit(Type::Int4, &Datum::Int(0))?, output(String::new(), Type::Int4));
            return Ok((self.project(row, vec![nothing], true)?, Given::each(0)));
        };
        if let SetExpr::Values(values) = query.body.as_ref()
            && crate::bind::from::is_bare(query)
        {
            let rel = self.within(&[], || {
                let InsertSource::Values(rows) = binder.insert_values(table, targets, values, explicit)? else {
                    return refuse("this INSERT");
                };
                let types = targets.iter().map(|&c| table.def.columns[usize::from(c)].ty);
                self.rows(rows, &types.collect::<Vec<_>>())
            })?;
            return Ok((rel, Given::each(targets.len())));
        }
        let type_of = |&column: &u16| table.def.columns.get(usize::from(column)).map_or(Type::Text, |c| c.ty);
        binder.output_types = targets.iter().map(type_of).collect();
        let rel = self.query(binder, query)?;
        crate::bind::change::check_width(rel.columns.len(), targets, explicit)?;
        binder.check_once(table, targets)?;
        let mut given = Vec::with_capacity(targets.len());
        for (at, (&target, column)) in targets.iter().zip(&rel.columns).enumerate() {
            let def = &table.def.columns[usize::from(target)];
            let cast = match column.untyped {
                true => Some((column.ty, def.ty)),
                false => assignment_cast(column.ty, def.ty, &def.name)?,
            };
            given.push(Given { at, cast });
        }
        binder.note_names(&given);
        binder.leave_aside(table, targets, &mut given)?;
        Ok((rel, given))
    }

    /// What DO UPDATE asks without naming the two rows stands behind the values of each row that comes.
    fn with_asked_values(&self, rel: Rel, update: &mut ConflictUpdate) -> Bind<Rel> {
        let mut exprs = update.sets.iter().map(|(_, expr)| expr).chain(&update.condition);
        if !exprs.any(|expr| expr.mentions(|source| source >= PLACEHOLDERS)) {
            return Ok(rel);
        }
        let Rel { plan, columns, at_most_one } = rel;
        let plan = self.applied(plan)?;
        let mut outputs: Vec<(DfExpr, Output)> =
            columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        let exprs = update.sets.iter_mut().map(|(_, expr)| expr).chain(&mut update.condition);
        for expr in exprs {
            let mut asked = Vec::new();
            let first = outputs.len();
            *expr = std::mem::replace(expr, Expr::NULL).rewrite(&mut |e| match e {
                Expr::Cell { source, .. } if *source >= PLACEHOLDERS => {
                    asked.push(e.clone());
                    Some(value_cell(first + asked.len() - 1))
                }
                _ => None,
            });
            for cell in asked {
                let ty = self.given_type(&cell)?;
                let value = self.with_leaves(&[], |leaves| leaves.convert(&cell, ty))?;
                outputs.push((value, output(String::new(), ty)));
            }
        }
        update.names_cells = true;
        self.project(plan, outputs, at_most_one)
    }

    pub fn update(&self, binder: &mut Binder<'_>, update: &ast::Update) -> Bind<(Rel, Action)> {
        let ast::Update {
            update_token: _,
            optimizer_hints: _,
            table: target,
            assignments,
            from,
            selection,
            returning,
            output: given,
            or,
            order_by,
            limit,
        } = update;
        if given.is_some() || or.is_some() || !order_by.is_empty() || limit.is_some() {
            return refuse("an UPDATE clause of another dialect");
        }
        let list: &[TableWithJoins] = match from {
            None => &[],
            Some(UpdateTableFromKind::AfterSet(list)) => list,
            Some(UpdateTableFromKind::BeforeSet(_)) => return refuse("FROM before SET"),
        };
        let (table, mut from, row_id) = self.changed(binder, (target, "update"), list, selection.as_ref())?;
        let ty = |column: u16| table.def.columns[usize::from(column)].ty;
        let sources = from.sources.clone();
        let (columns, rules, values) = self.within(&sources, || {
            let sets = self.without_sets("UPDATE", || binder.sets((&table, 0), assignments, &from.scope))?;
            let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
            let rules = binder.rules(&table, Event::Update, &columns)?;
            let computed = rules.iter().flat_map(|rules| &rules.computed);
            let computed: Vec<(u16, Expr)> =
                computed.map(|(column, expr)| (*column, with_new_values(expr.clone(), &sets))).collect();
            from.plan = self.applied(from.plan.clone())?;
            let new = sets.into_iter().chain(computed).map(|(column, expr)| (column, expr, ty(column)));
            let values = self.with_new_columns(&mut from, new.collect())?;
            Ok((columns, rules, values))
        })?;
        let sources = from.sources.clone();
        self.within(&sources, || {
            let returned = self.returned(binder, returning.as_deref(), &from.scope)?;
            from.plan = self.applied(from.plan.clone())?;
            let (rel, returning) = self.change_rel(from, row_id, &values[..columns.len()], returned)?;
            // The query has found the rows: nothing more is asked of them.
            binder.through = None;
            let search = binder.search(&table, &Scope::of_table(&table, None), None)?;
            let sets = columns.iter().enumerate().map(|(i, column)| (*column, value_cell(i)));
            let sets: Vec<(u16, Expr)> = sets.collect();
            let not_null = sets.iter().map(|(c, _)| *c);
            let not_null = not_null.filter(|&c| table.def.columns[usize::from(c)].not_null).collect();
            Ok((rel, Action::Update(Box::new(Update { search, sets, not_null, rules, returning }))))
        })
    }

    pub fn delete(&self, binder: &mut Binder<'_>, delete: &ast::Delete) -> Bind<(Rel, Action)> {
        let ast::Delete {
            delete_token: _,
            optimizer_hints: _,
            tables,
            from,
            using,
            selection,
            returning,
            output: given,
            order_by,
            limit,
        } = delete;
        if !tables.is_empty() || given.is_some() || !order_by.is_empty() || limit.is_some() {
            return refuse("a DELETE clause of another dialect");
        }
        let (FromTable::WithFromKeyword(list) | FromTable::WithoutKeyword(list)) = from;
        let [target] = list.as_slice() else {
            return refuse("DELETE from several tables");
        };
        let using = using.as_deref().unwrap_or(&[]);
        let (table, mut from, row_id) = self.changed(binder, (target, "delete from"), using, selection.as_ref())?;
        let sources = from.sources.clone();
        self.within(&sources, || {
            let returned = self.returned(binder, returning.as_deref(), &from.scope)?;
            from.plan = self.applied(from.plan.clone())?;
            let (rel, returning) = self.change_rel(from, row_id, &[], returned)?;
            // The query has found the rows: nothing more is asked of them.
            binder.through = None;
            let search = binder.search(&table, &Scope::of_table(&table, None), None)?;
            let rules = binder.rules(&table, Event::Delete, &[])?;
            Ok((rel, Action::Delete(Box::new(Delete { search, rules, returning }))))
        })
    }

    /// The table that changes as source 0, joined with what else is read, under the condition; and its row id.
    fn changed(
        &self,
        binder: &mut Binder<'_>,
        (target, command): (&TableWithJoins, &str),
        others: &[TableWithJoins],
        selection: Option<&ast::Expr>,
    ) -> Bind<(Arc<Table>, FromRel, Leaf)> {
        let (table, scope) = binder.target_table(target, command).map_err(as_unsupported)?;
        let (mut plan, mut leaves) = self.table(&table, &scope.sources[0].name)?;
        let row_id = leaves.pop().expect("invariant: the last column is the row id");
        let own = vec![leaves.clone()];
        plan = self.within(&own, || {
            for condition in self.in_filter(None, || binder.view_conditions())? {
                plan = self.filter(plan, &condition, &own)?;
            }
            Ok(plan)
        })?;
        let mut from =
            self.relation_after(binder, FromRel { plan, scope, sources: vec![leaves], halves: None }, others)?;
        if let Some(selection) = selection {
            let (scope, sources) = (from.scope.clone(), from.sources.clone());
            from.plan = self.within(&sources, || {
                let condition = self.in_filter(Some(selection), || binder.condition(selection, "WHERE", &scope))?;
                self.filter(from.plan, &condition, &sources)
            })?;
        }
        Ok((table, from, row_id))
    }

    /// Puts the new values of the table that is source 0 beside the rows, where what comes later finds them instead of the old ones.
    fn with_new_columns(&self, from: &mut FromRel, new: Vec<(u16, Expr, Type)>) -> Bind<Vec<Leaf>> {
        let mut outputs: Vec<DfExpr> = from.plan.schema().columns().into_iter().map(DfExpr::Column).collect();
        let mut leaves = Vec::with_capacity(new.len());
        for (_, expr, ty) in &new {
            let value = self.with_leaves(&from.sources, |leaves| leaves.convert(expr, *ty))?;
            let name = self.unique("new");
            outputs.push(value.alias(name.clone()));
            leaves.push(Leaf::new(DfExpr::Column(DfColumn::new_unqualified(name)), *ty));
        }
        from.plan = df(df(LogicalPlanBuilder::from(from.plan.clone()).project(outputs))?.build())?;
        for ((column, ..), leaf) in new.iter().zip(&leaves) {
            from.sources[0][usize::from(*column)] = leaf.clone();
        }
        Ok(leaves)
    }

    /// RETURNING's expressions and columns.
    #[expect(clippy::type_complexity, reason = "expressions with their types, and the columns they make")]
    fn returned(
        &self,
        binder: &mut Binder<'_>,
        items: Option<&[SelectItem]>,
        scope: &Scope,
    ) -> Bind<Option<(Vec<(Expr, Type)>, Arc<[Column]>)>> {
        let Some(items) = items else {
            return Ok(None);
        };
        let items = binder.items(items, scope)?;
        let columns =
            items.iter().map(|i| Column { is_computed: i.is_computed, ..Column::new(&i.name, i.ty) }).collect();
        Ok(Some((items.into_iter().map(|i| (i.expr, i.ty)).collect(), columns)))
    }

    #[expect(clippy::type_complexity, reason = "expressions with their types, and the columns they make")]
    fn change_rel(
        &self,
        from: FromRel,
        row_id: Leaf,
        values: &[Leaf],
        returned: Option<(Vec<(Expr, Type)>, Arc<[Column]>)>,
    ) -> Bind<(Rel, Option<Returning>)> {
        let width = values.len();
        let mut outputs: Vec<(DfExpr, Output)> = vec![(row_id.expr, output(String::new(), Type::Int8))];
        outputs.extend(values.iter().map(|leaf| (leaf.expr.clone(), output(String::new(), leaf.ty))));
        for (expr, ty) in returned.iter().flat_map(|(items, _)| items) {
            let value = self.with_leaves(&from.sources, |leaves| leaves.convert(expr, *ty))?;
            outputs.push((value, output(String::new(), *ty)));
        }
        let rel = self.project(from.plan, outputs, false)?;
        let returning = returned.map(|(items, columns)| Returning {
            output: (0..items.len()).map(|i| value_cell(width + i)).collect(),
            columns,
            long_columns: Vec::new(),
            queries: None,
        });
        Ok((rel, returning))
    }
}

/// What the query gave for the row at hand stands beside it, as cells of the same source.
pub(super) fn value_cell(at: usize) -> Expr {
    Expr::Cell { source: 0, column: at as u16 }
}

/// Generated columns are computed of the changed row.
fn with_new_values(expr: Expr, sets: &[(u16, Expr)]) -> Expr {
    expr.rewrite(&mut |e| match e {
        Expr::Column { source: 0, column } => {
            sets.iter().find(|(set, _)| set == column).map(|(_, value)| value.clone())
        }
        _ => None,
    })
}

fn refuse_placeholders(exprs: &[Expr]) -> Bind<()> {
    if exprs.iter().any(|e| e.mentions(|source| source >= PLACEHOLDERS)) {
        return refuse("a subquery in INSERT's RETURNING");
    }
    Ok(())
}

// ---- applying

/// Rows that the statement's parts have changed so far.
pub type Changed = HashSet<(TableId, i64)>;

/// Applies a query's rows; gives how many were given or changed.
pub fn apply(
    action: &Action,
    batches: &[RecordBatch],
    changed: &mut Changed,
    context: &mut RoadContext<'_>,
    rows: &mut RowSet,
) -> Result<u64, Halt> {
    rows.start(&action.columns());
    with_run(context, |run| {
        match action {
            Action::Lock(lock) => return lock.apply(batches, run, rows),
            Action::Run(query) => {
                crate::compiled::query::run(query, run, rows)?;
                return Ok(rows.len() as u64);
            }
            _ => {}
        }
        let mut count = 0;
        for batch in batches {
            let columns = super::compute::readable(batch.columns()).map_err(super::fault::sql_error)?;
            for row in 0..batch.num_rows() {
                count += u64::from(apply_row(action, &columns, row, changed, run, rows)?);
            }
        }
        Ok(count)
    })
}

/// What is due at the statement's end.
pub fn finish(action: &Action, context: &mut RoadContext<'_>, is_last_of_several: bool) -> Result<(), Halt> {
    if action.command() == "SELECT" && !is_last_of_several {
        return Ok(());
    }
    with_run(context, crate::compiled::rules::finish_statement)
}

fn with_run<T>(context: &mut RoadContext<'_>, f: impl FnOnce(&mut Run<'_>) -> Result<T, Halt>) -> Result<T, Halt> {
    let mut scratch = Scratch::default();
    scratch.make_room(1);
    f(&mut Run::new(
        &mut *context.session,
        (context.parameters, context.env),
        &mut scratch,
        &mut *context.interrupt,
        &mut *context.constraints,
    ))
}

fn apply_row(
    action: &Action,
    columns: &[Cells<'_>],
    row: usize,
    changed: &mut Changed,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<bool, Halt> {
    match action {
        Action::Give(_) => {
            for column in columns {
                rows.push(&column.get(row));
            }
            rows.finish_row()?;
            Ok(true)
        }
        Action::Insert(insert, values) => {
            let update = insert.conflict.as_ref().and_then(|conflict| conflict.update.as_ref());
            if update.is_some_and(|update| update.names_cells) {
                update_cells(columns, row, run);
            }
            change::insert_given(insert, values, |column| columns[column].get(row), run, rows)
        }
        Action::Update(update) => {
            let Some(id) = target(&update.search, Strength::NoKeyUpdate, columns[0].get(row), changed, run)? else {
                return Ok(false);
            };
            update_target(update, id, &columns[1..], row, run, rows)
        }
        Action::Delete(delete) => {
            let Some(id) = target(&delete.search, Strength::Update, columns[0].get(row), changed, run)? else {
                return Ok(false);
            };
            // What RETURNING gives.
            update_cells(&columns[1..], row, run);
            change::delete_row(delete, id, run, rows).map(|()| true)
        }
        Action::Merge(merge) => merge.apply_row(columns, row, changed, run, rows),
        Action::Lock(_) | Action::Run(_) => unreachable!("invariant: their rows are not applied one by one"),
    }
}

/// Locks the row of this id into the scratch's row 0, unless this statement has changed it or it is gone.
fn target(
    search: &Query,
    strength: Strength,
    id: Value<'_>,
    changed: &mut Changed,
    run: &mut Run<'_>,
) -> Result<Option<RowId>, Halt> {
    let Value::Int(id) = id else {
        return Err(SqlError::new("XX000", "invariant: a change names its rows").into());
    };
    let table = search.tables[0].as_ref().expect("invariant: a change is to a stored table");
    if !changed.insert((table.id, id)) {
        return Ok(None);
    }
    lock_to_change(table, RowId(id as u64), strength, run)
}

/// Locks the row into the scratch's row 0; `None` if it is gone. Whoever is to wait for the table has no row of it yet.
pub(super) fn lock_to_change(
    table: &Arc<Table>,
    id: RowId,
    strength: Strength,
    run: &mut Run<'_>,
) -> Result<Option<RowId>, Halt> {
    run.engine.enter_table(table)?;
    match run.engine.lock_as(table, id, strength, &mut run.scratch.rows[0])? {
        Locked::Gone => Ok(None),
        Locked::Newer => Err(Halt::Wait(WaitToken::ready())),
        Locked::Same => Ok(Some(id)),
    }
}

fn update_cells(columns: &[Cells<'_>], row: usize, run: &mut Run<'_>) {
    run.scratch.cells[0].clear();
    run.scratch.cells[0].extend(columns.iter().map(|c| Datum::from(c.get(row))));
}

/// Updates the locked row with the values of these columns.
pub(super) fn update_target(
    update: &Update,
    id: RowId,
    columns: &[Cells<'_>],
    row: usize,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<bool, Halt> {
    update_cells(columns, row, run);
    change::update_row(update, id, run, rows).map(|()| true)
}
