//! How do compiled INSERT, UPDATE and DELETE run? Find, lock, re-evaluate, write.
//!
//! 1. The rows that a statement changes are known before it changes the first one: their ids are gathered (or the one row is at
//!    hand), so that no statement meets its own result.
//! 2. A row is locked before it is changed. In READ COMMITTED a newer version is asked the whole condition again; a row that no
//!    longer meets it, or is gone, is left out.

use super::access;
use super::conflict::{self, OnConflict};
use super::init::RowQueries;
use super::query::{self, Query, holds};
use super::rules::{self, Rules};
use super::{Flow, Halt, Run};
use crate::catalog::Catalog;
use crate::charge::{Charge, room_for};
use crate::error::SqlError;
use crate::expr::{Expr, Frame, evaluate};
use crate::rows::{Column, RowSet};
use crate::value::{self, Clock, Datum};
use freshet_engine::catalog::{Index, Table};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Error, Locked, Stop, Strength};
use std::borrow::Cow;
use std::sync::Arc;

/// What RETURNING gives, over source 0.
#[derive(Clone, Debug)]
pub struct Returning {
    pub output: Vec<Expr>,
    pub columns: Arc<[Column]>,
    /// Variable-length columns that it looks at.
    pub long_columns: Vec<u16>,
    /// What it asks about each row.
    pub queries: Option<Arc<RowQueries>>,
}

#[derive(Clone, Debug)]
pub enum InsertSource {
    /// One expression for each target column, of its type.
    Values(Vec<Vec<Expr>>),
    /// A query, and what of its rows the target columns get.
    Query(Box<Query>, Vec<Given>),
}

/// Which value of a given row a column gets, and by which cast.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub at: usize,
    pub cast: Option<(Type, Type)>,
}

impl Given {
    /// All values of a row as they are.
    pub fn each(width: usize) -> Vec<Given> {
        (0..width).map(|at| Given { at, cast: None }).collect()
    }
}

#[derive(Clone, Debug)]
pub struct Insert {
    /// The table, alone in a list as frames want it.
    pub tables: Vec<Option<Arc<Table>>>,
    /// Target columns, in the order in which values are given.
    pub columns: Vec<u16>,
    pub source: InsertSource,
    /// Columns without a target that have a default.
    pub defaults: Vec<(u16, Expr)>,
    pub not_null: Vec<u16>,
    /// `None`: the table has no rules for inserts.
    pub rules: Option<Arc<Rules>>,
    /// ON CONFLICT.
    pub conflict: Option<Box<OnConflict>>,
    pub returning: Option<Returning>,
}

impl Insert {
    /// Whether what is stored is what is given, and nothing but nulls and keys is checked. Whoever gives an INSERT more to do says here whether a
    /// bulk load can leave it out.
    pub fn is_plain(&self) -> bool {
        let Insert { tables: _, columns: _, source: _, defaults, not_null: _, rules, conflict, returning } = self;
        defaults.is_empty() && rules.is_none() && conflict.is_none() && returning.is_none()
    }
}

#[derive(Clone, Debug)]
pub struct Update {
    /// Finds the rows: one stored source.
    pub search: Query,
    pub sets: Vec<(u16, Expr)>,
    /// Columns that are set and take no null.
    pub not_null: Vec<u16>,
    pub rules: Option<Arc<Rules>>,
    pub returning: Option<Returning>,
}

#[derive(Clone, Debug)]
pub struct Delete {
    pub search: Query,
    pub rules: Option<Arc<Rules>>,
    pub returning: Option<Returning>,
}

impl Insert {
    /// Whether it needs no snapshot: the unique checks look at the newest versions.
    pub fn reads_nothing(&self) -> bool {
        let asks = self.returning.as_ref().is_some_and(|returning| returning.queries.is_some());
        matches!(self.source, InsertSource::Values(_)) && self.rules.is_none() && self.conflict.is_none() && !asks
    }
}

pub(super) fn only_table(tables: &[Option<Arc<Table>>]) -> &Arc<Table> {
    tables[0].as_ref().expect("invariant: a change is to a stored table")
}

// ---- INSERT

/// Gives how many rows were inserted.
pub fn insert(plan: &Insert, run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
    run.scratch.make_room(1);
    if let Some(returning) = &plan.returning {
        rows.start(&returning.columns);
    }
    let count = insert_all(plan, run, rows)?;
    if plan.rules.is_some() || plan.conflict.is_some() {
        rules::finish_statement(run)?;
    }
    Ok(count)
}

/// As `insert`, of one of several parts of a statement: what is due at its end stays due.
pub fn insert_all(plan: &Insert, run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
    match &plan.source {
        InsertSource::Values(list) => {
            let keys = if list.len() > ROWS_AHEAD { integer_keys(plan) } else { Vec::new() };
            let mut count = 0;
            for (i, exprs) in list.iter().enumerate() {
                if let Some(ahead) = list.get(i + ROWS_AHEAD) {
                    load_ahead(plan, &keys, ahead, run.parameters);
                }
                count += u64::from(insert_values(plan, exprs, run, rows)?);
            }
            Ok(count)
        }
        InsertSource::Query(query, values) if streams(plan, query) => insert_stream(plan, query, values, run, rows),
        InsertSource::Query(query, values) => {
            let mut given = RowSet::default();
            run.env.engine.iter().for_each(|engine| given.charge_to(engine));
            query::run(query, run, &mut given)?;
            run.scratch.make_room(1);
            let mut count = 0;
            for i in 0..given.len() {
                count += u64::from(insert_given(plan, values, |column| given.get(i, column), run, rows)?);
            }
            Ok(count)
        }
    }
}

/// As `insert_all`, of a plan of one row, which is left out where it does not meet the condition.
pub fn insert_if(condition: &Expr, plan: &Insert, run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
    let InsertSource::Values(list) = &plan.source else {
        unreachable!("invariant: a COPY inserts values");
    };
    run.scratch.make_room(1);
    set_values(plan, &list[0], run)?;
    std::mem::swap(&mut run.scratch.changed, &mut run.scratch.rows[0]);
    let meets = holds(std::slice::from_ref(condition), &run.frame(&plan.tables));
    std::mem::swap(&mut run.scratch.changed, &mut run.scratch.rows[0]);
    match meets? {
        true => insert_row(plan, only_table(&plan.tables), run, rows).map(u64::from),
        false => Ok(0),
    }
}

/// Rows of a VALUES list whose index entries are on their way to the processor's cache while one is inserted.
const ROWS_AHEAD: usize = 8;

/// Indexes over one integer that the list has a value for: the index's place in its table, and the value's among a row's.
fn integer_keys(plan: &Insert) -> Vec<(usize, usize)> {
    let indexes = only_table(&plan.tables).indexes.iter().enumerate();
    let key = |(i, index): (usize, &Arc<Index>)| {
        let [only] = index.def.columns.as_slice() else { return None };
        Some((i, plan.columns.iter().position(|column| *column == only.column)?))
    };
    indexes.filter_map(key).collect()
}

fn load_ahead(plan: &Insert, keys: &[(usize, usize)], exprs: &[Expr], parameters: &[Datum]) {
    for &(index, at) in keys {
        let value = match exprs.get(at) {
            Some(Expr::Const(value)) => Some(value),
            Some(Expr::Param(number)) => parameters.get(usize::from(*number)),
            _ => None,
        };
        if let Some(Datum::Int(key)) = value {
            only_table(&plan.tables).indexes[index].prefetch_integer_to_insert(*key);
        }
    }
}

/// Whether rows can be inserted while the query runs: it does not read the table, and holds nothing back.
fn streams(plan: &Insert, query: &Query) -> bool {
    let target = only_table(&plan.tables).id;
    let reads_target = query.tables.iter().flatten().any(|t| t.id == target);
    let derived = query.steps.iter().any(|s| matches!(s.access, access::Access::Derived(_)));
    !reads_target
        && !derived
        && plan.returning.is_none()
        && plan.conflict.is_none()
        && query.grouping.is_none()
        && !query.distinct
        && query.sort.is_empty()
        && query.locks.is_empty()
        && query.limit.is_none()
        && query.offset.is_none()
}

fn insert_stream(
    plan: &Insert,
    query: &Query,
    values: &[Given],
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<u64, Halt> {
    run.scratch.make_room(query.tables.len().max(1));
    if !holds(&query.precondition, &run.frame(&query.tables))? {
        return Ok(0);
    }
    let mut count = 0;
    let mut cells: Vec<Datum> = Vec::with_capacity(query.output.len());
    query::descend(query, 0, run, &mut |run: &mut Run<'_>| {
        cells.clear();
        let frame = run.frame(&query.tables);
        for expr in &query.output {
            cells.push(evaluate(expr, &frame)?.into_datum());
        }
        // The query's own row of source 0 comes back after the insert has used its place.
        let row = std::mem::take(&mut run.scratch.rows[0]);
        let inserted = insert_given(plan, values, |column| cells[column].as_value(), run, rows);
        run.scratch.rows[0] = row;
        count += u64::from(inserted?);
        Ok(Flow::Continue)
    })?;
    Ok(count)
}

fn insert_values(plan: &Insert, exprs: &[Expr], run: &mut Run<'_>, rows: &mut RowSet) -> Result<bool, Halt> {
    set_values(plan, exprs, run)?;
    insert_row(plan, only_table(&plan.tables), run, rows)
}

/// Makes the scratch's `changed` row one of these values.
fn set_values(plan: &Insert, exprs: &[Expr], run: &mut Run<'_>) -> Result<(), SqlError> {
    let table = only_table(&plan.tables);
    let mut row = std::mem::take(&mut run.scratch.changed);
    row.reset(&table.layout);
    let frame = run.frame(&plan.tables);
    let mut set = || -> Result<(), SqlError> {
        for (expr, &column) in exprs.iter().zip(&plan.columns) {
            let scalar = evaluate(expr, &frame)?;
            row.set(&table.layout, usize::from(column), &scalar.value());
        }
        set_defaults(plan, table, &mut row, &frame)
    };
    let set = set();
    run.scratch.changed = row;
    set
}

/// Inserts a row of values that a query gave; false if a conflict left it out.
pub fn insert_given<'v>(
    plan: &Insert,
    values: &[Given],
    given: impl Fn(usize) -> Value<'v>,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<bool, Halt> {
    let table = only_table(&plan.tables);
    let mut row = std::mem::take(&mut run.scratch.changed);
    row.reset(&table.layout);
    for (&column, from) in plan.columns.iter().zip(values) {
        let value = given(from.at);
        let column = usize::from(column);
        match &from.cast {
            Some((from, to)) if !value.is_null() => {
                let datum = value::cast::cast_by(*from, &value, *to, false, &run.env.clock)?;
                row.set(&table.layout, column, &datum.as_value());
            }
            _ => row.set(&table.layout, column, &value),
        }
    }
    let set = set_defaults(plan, table, &mut row, &run.frame(&plan.tables));
    run.scratch.changed = row;
    set?;
    insert_row(plan, table, run, rows)
}

fn set_defaults(plan: &Insert, table: &Table, row: &mut Row, frame: &Frame<'_>) -> Result<(), SqlError> {
    for (column, expr) in &plan.defaults {
        let scalar = evaluate(expr, frame)?;
        row.set(&table.layout, usize::from(*column), &scalar.value());
    }
    Ok(())
}

/// Inserts the scratch's `changed` row; false if a conflict left it out.
fn insert_row(plan: &Insert, table: &Arc<Table>, run: &mut Run<'_>, rows: &mut RowSet) -> Result<bool, Halt> {
    run.row()?;
    let of = Columns::Inserted(&plan.columns);
    if let Some(rules) = &plan.rules {
        before_write(rules, of, run, |run| check_nulls(table, &plan.not_null, of, run))?;
    } else {
        check_nulls(table, &plan.not_null, of, run)?;
    }
    if let Some(conflict) = &plan.conflict
        && let Some(outcome) = conflict::resolve(conflict, plan, run, rows)?
    {
        return Ok(outcome);
    }
    match run.engine.insert(table, &mut run.scratch.changed) {
        Ok(id) => {
            if let Some(rules) = plan.rules.as_ref().filter(|rules| rules.look_at_inserts()) {
                with_changed(run, |row, run| rules::inserted(rules, id, row, of, run))?;
            }
        }
        Err(Stop::Error(Error::UniqueViolation { index }))
            if plan.conflict.as_ref().is_some_and(|c| c.arbiters.iter().any(|i| i.def.name == index)) =>
        {
            // Committed since it was looked for: the statement looks again.
            return Err(Halt::Wait(freshet_engine::txn::WaitToken::ready()));
        }
        Err(stop) => return Err(named(stop, table, run)),
    }
    if let Some(returning) = &plan.returning {
        std::mem::swap(&mut run.scratch.changed, &mut run.scratch.rows[0]);
        give(returning, &plan.tables, run, rows)?;
    }
    Ok(true)
}

/// Lends the scratch's `changed` row.
fn with_changed<T>(run: &mut Run<'_>, f: impl FnOnce(&mut Row, &mut Run<'_>) -> Result<T, Halt>) -> Result<T, Halt> {
    let mut row = std::mem::take(&mut run.scratch.changed);
    let result = f(&mut row, run);
    run.scratch.changed = row;
    result
}

/// What the rules want before the scratch's `changed` row is written.
fn before_write(
    rules: &Rules,
    of: Columns<'_>,
    run: &mut Run<'_>,
    nulls: impl FnOnce(&mut Run<'_>) -> Result<(), SqlError>,
) -> Result<(), Halt> {
    with_changed(run, |row, run| rules::compute(rules, row, run))?;
    nulls(run)?;
    check_nulls(&rules.table, &rules.not_null, of, run)?;
    with_changed(run, |row, run| rules::check(rules, row, of, run))
}

// ---- UPDATE and DELETE

/// Writes a change that a foreign key asks for, by the table's own rules.
pub fn update_with(rules: &Arc<Rules>, id: RowId, old: &mut Row, new: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    let table = &rules.table;
    rules::compute(rules, new, run)?;
    let not_null = |column: &usize| table.def.columns[*column].not_null && new.is_null(&table.layout, *column);
    let broken = (0..table.def.columns.len()).find(not_null);
    std::mem::swap(&mut run.scratch.changed, new);
    let refused = broken.map(|column| null_violation(table, column, Columns::None, run));
    std::mem::swap(&mut run.scratch.changed, new);
    if let Some(error) = refused {
        return Err(error.into());
    }
    rules::check(rules, new, Columns::None, run)?;
    if let Err(stop) = run.engine.update(table, id, old, new) {
        std::mem::swap(&mut run.scratch.changed, new);
        let halt = named(stop, table, run);
        std::mem::swap(&mut run.scratch.changed, new);
        return Err(halt);
    }
    rules::updated(rules, id, old, new, Columns::None, run)
}

pub fn delete_with(rules: &Arc<Rules>, id: RowId, old: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    run.engine.delete(&rules.table, id, old)?;
    rules::deleted(rules, old, run)
}

pub fn update(plan: &Update, run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
    if let Some(returning) = &plan.returning {
        rows.start(&returning.columns);
    }
    let count = for_each_locked(&plan.search, Strength::NoKeyUpdate, run, &mut |id, run: &mut Run<'_>| {
        update_row(plan, id, run, rows)
    })?;
    if plan.rules.is_some() {
        rules::finish_statement(run)?;
    }
    Ok(count)
}

/// Updates a locked row, which stands in the scratch's row 0.
pub fn update_row(plan: &Update, id: RowId, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    run.row()?;
    let change = Setting {
        tables: &plan.search.tables,
        sets: &plan.sets,
        not_null: &plan.not_null,
        rules: plan.rules.as_ref(),
        returning: plan.returning.as_ref(),
    };
    set_row(&change, id, run, rows)
}

/// What a row becomes: it is source 0 of the expressions.
pub(super) struct Setting<'p> {
    pub tables: &'p [Option<Arc<Table>>],
    pub sets: &'p [(u16, Expr)],
    pub not_null: &'p [u16],
    pub rules: Option<&'p Arc<Rules>>,
    pub returning: Option<&'p Returning>,
}

/// Writes the locked row, which stands in the scratch's row 0, with its new values, and gives what RETURNING asks for.
pub(super) fn set_row(change: &Setting<'_>, id: RowId, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    let table = only_table(change.tables);
    let mut changed = std::mem::take(&mut run.scratch.changed);
    changed.copy_from(&run.scratch.rows[0]);
    let frame = run.frame(change.tables);
    let mut set = || -> Result<(), SqlError> {
        for (column, expr) in change.sets {
            let scalar = evaluate(expr, &frame)?;
            changed.set(&table.layout, usize::from(*column), &scalar.value());
        }
        Ok(())
    };
    let set = set();
    run.scratch.changed = changed;
    set?;
    let of = Columns::Set(change.sets);
    match change.rules {
        Some(rules) => before_write(rules, of, run, |run| check_nulls(table, change.not_null, of, run))?,
        None => check_nulls(table, change.not_null, of, run)?,
    }
    let (old, new) = (&run.scratch.rows[0], &mut run.scratch.changed);
    if let Err(stop) = run.engine.update(table, id, old, new) {
        return Err(named(stop, table, run));
    }
    if let Some(rules) = change.rules {
        with_both(run, |old, new, run| rules::updated(rules, id, old, new, of, run))?;
    }
    if let Some(returning) = change.returning {
        std::mem::swap(&mut run.scratch.changed, &mut run.scratch.rows[0]);
        give(returning, change.tables, run, rows)?;
    }
    Ok(())
}

/// Lends the row before and after the change.
fn with_both<T>(
    run: &mut Run<'_>,
    f: impl FnOnce(&mut Row, &mut Row, &mut Run<'_>) -> Result<T, Halt>,
) -> Result<T, Halt> {
    let mut old = std::mem::take(&mut run.scratch.rows[0]);
    let result = with_changed(run, |new, run| f(&mut old, new, run));
    run.scratch.rows[0] = old;
    result
}

pub fn delete(plan: &Delete, run: &mut Run<'_>, rows: &mut RowSet) -> Result<u64, Halt> {
    if let Some(returning) = &plan.returning {
        rows.start(&returning.columns);
    }
    let count = for_each_locked(&plan.search, Strength::Update, run, &mut |id, run: &mut Run<'_>| {
        delete_row(plan, id, run, rows)
    })?;
    if plan.rules.is_some() {
        rules::finish_statement(run)?;
    }
    Ok(count)
}

/// Deletes a locked row, which stands in the scratch's row 0.
pub fn delete_row(plan: &Delete, id: RowId, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    run.row()?;
    let table = only_table(&plan.search.tables);
    if let Some(returning) = &plan.returning {
        give(returning, &plan.search.tables, run, rows)?;
    }
    run.engine.delete(table, id, &run.scratch.rows[0])?;
    if let Some(rules) = &plan.rules {
        let mut old = std::mem::take(&mut run.scratch.rows[0]);
        let left = rules::deleted(rules, &mut old, run);
        run.scratch.rows[0] = old;
        left?;
    }
    Ok(())
}

/// A longer list of targets does not stay with an idle session.
const TARGETS_KEPT_MAX: usize = 1024;

/// Locks the rows that the search finds and calls `each` with those that still meet its condition; the row stands in the
/// scratch's row 0.
fn for_each_locked(
    search: &Query,
    strength: Strength,
    run: &mut Run<'_>,
    each: &mut impl FnMut(RowId, &mut Run<'_>) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    run.scratch.make_room(1);
    if !holds(&search.precondition, &run.frame(&search.tables))? {
        return Ok(0);
    }
    if run.engine.is_at_newest() {
        return lock_one(search, strength, run, each);
    }
    super::lock::enter_read(search, run)?;
    run.engine.enter_table(only_table(&search.tables))?;
    let mut targets = std::mem::take(&mut run.scratch.targets);
    targets.clear();
    let mut charge = Charge::default();
    let found = query::descend(search, 0, run, &mut |run: &mut Run<'_>| {
        if targets.len() == targets.capacity() {
            if !charge.is_known() {
                charge = Charge::of_change(run.env.engine.as_ref());
            }
            room_for(&mut targets, 1, 0, &mut charge)?;
        }
        targets.push(run.scratch.ids[0]);
        Ok(Flow::Continue)
    });
    let mut count = 0;
    let mut result = found.map(|_| ());
    for &id in &targets {
        if result.is_err() {
            break;
        }
        result = lock_target(search, strength, id, run).and_then(|locked| {
            if locked {
                count += 1;
                each(id, run)?;
            }
            Ok(())
        });
    }
    if targets.capacity() > TARGETS_KEPT_MAX {
        targets = Vec::new();
    }
    run.scratch.targets = targets;
    result.map(|()| count)
}

/// The same where a key names the row: it is locked and then looked at, once.
fn lock_one(
    search: &Query,
    strength: Strength,
    run: &mut Run<'_>,
    each: &mut impl FnMut(RowId, &mut Run<'_>) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    run.row()?;
    let Some(id) = access::lock_unique(&search.view(0), strength, run)? else {
        return Ok(0);
    };
    each(id, run)?;
    Ok(1)
}

fn lock_target(search: &Query, strength: Strength, id: RowId, run: &mut Run<'_>) -> Result<bool, Halt> {
    let table = only_table(&search.tables);
    let locked = run.engine.lock_as(table, id, strength, &mut run.scratch.rows[0])?;
    if locked == Locked::Gone {
        return Ok(false);
    }
    for &column in &search.long_columns[0] {
        let row = &mut run.scratch.rows[0];
        run.engine.fetch_long(table, row, usize::from(column));
    }
    match locked {
        Locked::Newer => Ok(holds(&search.recheck, &run.frame(&search.tables))?),
        _ => Ok(true),
    }
}

fn give(
    returning: &Returning,
    tables: &[Option<Arc<Table>>],
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<(), Halt> {
    for &column in &returning.long_columns {
        let row = &mut run.scratch.rows[0];
        run.engine.fetch_long(only_table(tables), row, usize::from(column));
    }
    let parameters = match &returning.queries {
        None => Cow::Borrowed(run.parameters),
        Some(queries) => {
            let mut asked = queries.parameters(tables, run)?;
            queries.ask(&queries.of_sets, &mut asked, run)?;
            Cow::Owned(asked)
        }
    };
    let frame = Frame { parameters: &parameters, ..run.frame(tables) };
    for expr in &returning.output {
        rows.push(&evaluate(expr, &frame)?.value());
    }
    Ok(rows.finish_row()?)
}

// ---- constraints

/// Checks the scratch's `changed` row.
fn check_nulls(table: &Table, not_null: &[u16], of: Columns<'_>, run: &mut Run<'_>) -> Result<(), SqlError> {
    let row = &run.scratch.changed;
    match not_null.iter().find(|&&column| row.is_null(&table.layout, usize::from(column))) {
        None => Ok(()),
        Some(&column) => Err(null_violation(table, usize::from(column), of, run)),
    }
}

#[cold]
fn null_violation(table: &Table, column: usize, of: Columns<'_>, run: &mut Run<'_>) -> SqlError {
    let mut row = std::mem::take(&mut run.scratch.changed);
    let detail = failing_row(table, &mut row, of, run);
    run.scratch.changed = row;
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        table.def.columns[column].name, table.def.name
    );
    let name = &table.def.columns[column].name;
    let namespace = crate::bind::names::namespace_name(run.engine.schema(), table.def.namespace);
    let error = SqlError::new("23502", message).about(&namespace, &table.def.name, Some(name), None);
    SqlError { detail, ..error }
}

/// The columns whose values a statement gives itself.
#[derive(Clone, Copy)]
pub enum Columns<'p> {
    Inserted(&'p [u16]),
    Set(&'p [(u16, Expr)]),
    /// A foreign key changes the row.
    None,
}

impl Columns<'_> {
    fn has(self, column: usize) -> bool {
        match self {
            Columns::Inserted(columns) => columns.iter().any(|&c| usize::from(c) == column),
            Columns::Set(sets) => sets.iter().any(|&(c, _)| usize::from(c) == column),
            Columns::None => false,
        }
    }
}

/// The row as messages show it: to a role that may not read the table, no more than what its statement says itself.
pub fn failing_row(table: &Table, row: &mut Row, of: Columns<'_>, run: &mut Run<'_>) -> Option<String> {
    let is_read = run.may_read(table);
    let clock = run.showing_clock();
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (i, column) in table.def.columns.iter().enumerate() {
        if column.is_visible() && (is_read || of.has(i)) {
            run.engine.fetch_long(table, row, i);
            names.push(column.name.as_str());
            values.push(shown(table, row, i, 64, &clock));
        }
    }
    let values = values.join(", ");
    match is_read {
        true => Some(format!("Failing row contains ({values}).")),
        false if names.is_empty() => None,
        false => Some(format!("Failing row contains ({}) = ({values}).", names.join(", "))),
    }
}

/// A column's value as messages show it, cut after `limit` characters.
fn shown(table: &Table, row: &Row, column: usize, limit: usize, clock: &Clock) -> String {
    let mut text = Vec::new();
    match row.get(&table.layout, column) {
        Value::Null => text.extend_from_slice(b"null"),
        value => value::to_text_by(table.layout.column_type(column), &value, clock, &mut text),
    }
    let text = String::from_utf8_lossy(&text);
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

/// A stop with what only the statement knows: the key, of the scratch's `changed` row, that exists already.
fn named(stop: Stop, table: &Table, run: &mut Run<'_>) -> Halt {
    let Stop::Error(Error::UniqueViolation { index }) = stop else {
        return stop.into();
    };
    let mut row = std::mem::take(&mut run.scratch.changed);
    let error = key_violation(&index, table, &mut row, run);
    run.scratch.changed = row;
    error.into()
}

/// 23505: another row has the row's key of this index.
pub(super) fn key_violation(index: &str, table: &Table, row: &mut Row, run: &mut Run<'_>) -> SqlError {
    let found = table.indexes.iter().find(|i| i.def.name == index).filter(|_| run.may_read(table));
    let detail = found.map(|index| {
        for column in index.spec.columns() {
            run.engine.fetch_long(table, row, usize::from(column.column));
        }
        let names = Catalog::new(run.engine.schema().clone(), None).index_columns(table.id, &index.def);
        let columns: Vec<usize> = index.spec.columns().map(|column| usize::from(column.column)).collect();
        format!("{} already exists.", shown_index_key(&names, &columns, table, row, &run.showing_clock()))
    });
    let namespace = crate::bind::names::namespace_name(run.engine.schema(), table.def.namespace);
    let violation = SqlError::from(Error::UniqueViolation { index: index.to_owned() });
    let mut error = violation.about(&namespace, &table.def.name, None, Some(index));
    error.detail = detail;
    error
}

/// A row's key of an index whose columns are named so.
pub fn shown_index_key(names: &[String], columns: &[usize], table: &Table, row: &Row, clock: &Clock) -> String {
    let values: Vec<String> = columns.iter().map(|&column| shown(table, row, column, usize::MAX, clock)).collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}
