//! How does a compiled SELECT run? Nested loops over access paths, then grouping, projection, order, limit.
//!
//! ```text
//! step 0 ─ rows ─▶ step 1 ─ rows ─▶ ... ─▶ [groups ▶ HAVING] ─▶ projection ─▶ [DISTINCT] ─▶ [sort] ─▶ OFFSET, LIMIT
//! ```
//!
//! Where the order comes from an index, a reached limit stops the loops.

use super::access::{self, Access, StepView};
use super::aggregate::{Grouping, Groups, HASHED_KEY_BYTES, encode_key};
use super::sort::{KeyOrder, Sorter};
use super::{Flow, Halt, Run, Scratch};
use crate::charge::{Charge, room_for};
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate, test};
use crate::rows::{Column, RowSet};
use crate::value::Datum;
use freshet_engine::catalog::Table;
use freshet_engine::ids::RowId;
use freshet_engine::schema::Value;
use freshet_engine::txn::{Error, Locked, Stop, Strength};
use std::collections::HashSet;
use std::sync::Arc;

/// One loop of a join.
#[derive(Clone, Debug)]
pub struct Step {
    pub source: u16,
    pub access: Access,
    /// What must hold of the sources up to this one.
    pub filter: Vec<Expr>,
    /// LEFT JOIN: what makes a match. The filter is then asked after it, of the row of nulls too.
    pub outer: Option<Vec<Expr>>,
    /// What the path answers, so that nobody asks it again: for estimates.
    pub answered: Vec<Expr>,
    /// As EXPLAIN shows them: what the path finds its rows by, and what is asked of them.
    pub keyed: Vec<String>,
    pub conditions: Vec<String>,
}

/// What a locking clause does with a locked row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    Wait,
    NoWait,
    SkipLocked,
}

/// Of the rows of a source: how they are locked.
#[derive(Clone, Copy, Debug)]
pub struct RowLocking {
    pub source: u16,
    pub strength: Strength,
    pub wait: LockWait,
}

#[derive(Clone, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub order: KeyOrder,
}

/// A compiled SELECT.
#[derive(Clone, Debug)]
pub struct Query {
    /// By source; `None` for a computed one.
    pub tables: Vec<Option<Arc<Table>>>,
    /// By source: what the statement calls it.
    pub names: Vec<String>,
    /// By source: variable-length columns that are looked at.
    pub long_columns: Vec<Vec<u16>>,
    /// By source: columns of a computed one.
    pub widths: Vec<usize>,
    pub steps: Vec<Step>,
    /// A condition without columns: nothing is read unless it holds.
    pub precondition: Vec<Expr>,
    pub grouping: Option<Grouping>,
    pub output: Vec<Expr>,
    pub columns: Arc<[Column]>,
    pub distinct: bool,
    pub sort: Vec<SortKey>,
    /// The sort's orders, as the sorter wants them.
    pub orders: Vec<KeyOrder>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// Rows that are locked, by source.
    pub locks: Vec<RowLocking>,
    /// The whole condition, asked again of a newer version that was locked.
    pub recheck: Vec<Expr>,
}

/// Slots of a table that is better read by all cores: some milliseconds' work.
const HEAVY_SLOTS: u64 = 50_000;

impl Query {
    /// The rows of such a list, each with a value for every column; the values name no columns.
    pub fn of_rows(name: &str, rows: Vec<Vec<Expr>>, columns: Vec<Column>) -> Query {
        let output = (0..columns.len()).map(|i| Expr::Cell { source: 0, column: i as u16 });
        Query {
            tables: vec![None],
            names: vec![name.to_owned()],
            long_columns: vec![Vec::new()],
            widths: vec![columns.len()],
            steps: vec![Step {
                source: 0,
                access: Access::Values(rows),
                filter: Vec::new(),
                outer: None,
                answered: Vec::new(),
                keyed: Vec::new(),
                conditions: Vec::new(),
            }],
            precondition: Vec::new(),
            grouping: None,
            output: output.collect(),
            columns: columns.into(),
            distinct: false,
            sort: Vec::new(),
            orders: Vec::new(),
            limit: None,
            offset: None,
            locks: Vec::new(),
            recheck: Vec::new(),
        }
    }

    /// Whether it does more with a large table than to give its rows: the other road groups and joins a batch at a time, on all cores.
    pub fn is_heavy(&self) -> bool {
        !self.locks_rows() && self.reads_much() && self.computes()
    }

    /// Whether its rows are given one after the other as one source gives them, so that a run can stop behind any of them and go on later.
    fn gives_as_found(&self) -> bool {
        self.steps.len() == 1
            && self.steps[0].outer.is_none()
            && self.grouping.is_none()
            && self.sort.is_empty()
            && !self.distinct
            && !self.locks_rows()
    }

    /// Whether it locks rows, or a query in its FROM does.
    pub fn locks_rows(&self) -> bool {
        let locks = |step: &Step| matches!(&step.access, Access::Derived(inner) if inner.locks_rows());
        !self.locks.is_empty() || self.steps.iter().any(locks)
    }

    /// Whether its outputs are computed of the rows that are left after ORDER BY, OFFSET and LIMIT, in their order: what an output does, as taking
    /// a sequence's next value, it does for these alone.
    fn computes_last(&self) -> bool {
        !self.sort.is_empty()
            && !self.distinct
            && self.output.iter().any(Expr::is_volatile)
            && !self.sort.iter().any(|key| key.expr.is_volatile())
    }

    /// Whether it is known beforehand to give a handful of rows.
    pub fn gives_few(&self) -> bool {
        const FEW: i64 = 100;
        matches!(self.limit, Some(Expr::Const(Datum::Int(n))) if n <= FEW)
            || self.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty())
            || self.finds_one()
    }

    /// Whether each source gives one row at most.
    pub fn finds_one(&self) -> bool {
        let is_one = |step: &Step| match &step.access {
            Access::Unique { .. } => true,
            Access::Values(rows) => rows.len() <= 1,
            _ => false,
        };
        self.steps.iter().all(is_one)
    }

    fn reads_much(&self) -> bool {
        let stops_early = self.limit.is_some() && self.sort.is_empty() && !self.distinct && self.grouping.is_none();
        let is_large = |step: &Step| match &step.access {
            Access::Scan => {
                let table = self.tables.get(usize::from(step.source)).and_then(Option::as_ref);
                table.is_some_and(|table| table.slots() >= HEAVY_SLOTS)
            }
            Access::Derived(inner) => inner.reads_much(),
            _ => false,
        };
        !stops_early && self.steps.iter().any(is_large)
    }

    /// More than a sum of a column, which the compiled loop takes as fast as memory gives it.
    fn computes(&self) -> bool {
        let is_plain = |aggregate: &super::aggregate::Aggregate| {
            !aggregate.distinct
                && aggregate.filter.is_none()
                && aggregate.arg.as_ref().is_none_or(|(arg, _)| matches!(arg, Expr::Column { .. }))
        };
        let groups = |grouping: &Grouping| !grouping.keys.is_empty() || !grouping.aggregates.iter().all(is_plain);
        let is_derived = |step: &Step| matches!(&step.access, Access::Derived(inner) if inner.computes());
        self.steps.len() > 1 || self.grouping.as_ref().is_some_and(groups) || self.steps.iter().any(is_derived)
    }

    /// Whether it finds one row of one table by a unique key and nothing else, in an index that can be asked for the newest version. A further
    /// condition is asked before the row is locked, of the version that a snapshot sees.
    pub fn is_by_key(&self) -> bool {
        let [step] = &self.steps[..] else { return false };
        let (Access::Unique { index, .. }, Some(table)) = (&step.access, &self.tables[usize::from(step.source)]) else {
            return false;
        };
        step.outer.is_none() && step.filter.is_empty() && index.has_fixed_key(table)
    }

    pub fn view(&self, depth: usize) -> StepView<'_> {
        let step = &self.steps[depth];
        StepView {
            tables: &self.tables,
            source: step.source,
            access: &step.access,
            long_columns: &self.long_columns[usize::from(step.source)],
            depth,
        }
    }
}

/// Runs a query into `rows`.
pub fn run(query: &Query, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    run.scratch.make_room(query.tables.len().max(1));
    rows.start(&query.columns);
    let result = run_all(query, run, rows);
    if query.steps.len() > 1 {
        run.scratch.forget_kept();
    }
    result
}

fn run_all(query: &Query, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    super::lock::enter_read(query, run)?;
    let limits = Limits::of(query, run)?;
    if limits.left == 0 || !holds(&query.precondition, &run.frame(&query.tables))? {
        if let Some(grouping) = &query.grouping
            && limits.left > 0
        {
            return run_grouped(query, grouping, limits, false, run, rows);
        }
        return Ok(());
    }
    if let Some(grouping) = &query.grouping {
        return run_grouped(query, grouping, limits, true, run, rows);
    }
    if !query.locks.is_empty() {
        return run_locking(query, limits, run, rows);
    }
    if query.computes_last() {
        return take_in_order(query, limits, run, rows);
    }
    if run.scratch.gives_parts && query.gives_as_found() {
        let cursor = access::open(&query.view(0), run)?;
        return give(query, Paused { cursor, limits, part_bytes: PART_BYTES }, run, rows);
    }
    let mut output = Output::new(query, limits, rows, run.env);
    descend(query, 0, run, &mut |run: &mut Run<'_>| output.take(run))?;
    output.finish(run)
}

/// Messages that are worth to be sent while the rest is computed: no more than a result keeps for the next one. Each part after that is twice as large, as
/// each waits in the queue of long statements for its turn; a sixty-fourth of the memory limit at most, so that a full database can be read.
const PART_BYTES: usize = 512 << 10;
const PART_BYTES_MAX: usize = 8 << 20;
const PARTS_OF_LIMIT: u64 = 64;

/// Where a run stopped to give a part of its rows.
pub struct Paused {
    cursor: access::Cursor,
    limits: Limits,
    part_bytes: usize,
}

/// Goes on with a run that stopped, in the same statement of the same session, with the same scratch. `rows` are those of the next part.
pub fn go_on(query: &Query, paused: Paused, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    rows.start(&query.columns);
    give(query, paused, run, rows)
}

/// Gives rows until they are a part of the result, or all that are left.
fn give(query: &Query, from: Paused, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    let Paused { mut cursor, limits, part_bytes } = from;
    let (step, view) = (&query.steps[0], query.view(0));
    let mut output = Output::new(query, limits, rows, run.env);
    while access::next(&view, &mut cursor, run)? {
        if !holds(&step.filter, &run.frame(&query.tables))? {
            continue;
        }
        if output.take(run)? == Flow::Stop {
            break;
        }
        if output.rows.message_bytes() >= part_bytes {
            let limit = run.env.engine.as_ref().map_or(0, |engine| engine.memory_limit().limit_bytes);
            let most = PART_BYTES_MAX.min((limit / PARTS_OF_LIMIT) as usize);
            let part_bytes = (2 * part_bytes).min(most).max(PART_BYTES);
            run.scratch.paused = Some(Paused { cursor, limits: output.limits, part_bytes });
            break;
        }
    }
    Ok(())
}

fn run_grouped(
    query: &Query,
    grouping: &Grouping,
    limits: Limits,
    read: bool,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<(), Halt> {
    let engine = run.env.engine.as_ref().filter(|_| grouping.is_unbounded());
    let mut groups = Groups::new(grouping, Charge::of_query(engine));
    if read {
        let rows_of = std::iter::once(query).chain(grouping.ends.iter().filter_map(|ends| ends.other.as_deref()));
        for query in rows_of {
            gather(query, grouping, &mut groups, run)?;
        }
    }
    if query.computes_last() {
        return take_groups_in_order(query, groups, limits, run, rows);
    }
    let mut output = Output::new(query, limits, rows, run.env);
    groups.finish(run, |run| output.take(run))?;
    output.finish(run)
}

fn gather(query: &Query, grouping: &Grouping, groups: &mut Groups<'_>, run: &mut Run<'_>) -> Result<(), Halt> {
    descend(query, 0, run, &mut |run: &mut Run<'_>| {
        let frame = run.frame(&query.tables);
        groups.add(&frame)?;
        Ok(match &grouping.ends {
            Some(ends) if !evaluate(&ends.value, &frame)?.is_null() => Flow::Stop,
            _ => Flow::Continue,
        })
    })?;
    Ok(())
}

/// Groups are put in order, and the outputs computed of those that the limit leaves.
fn take_groups_in_order(
    query: &Query,
    groups: Groups<'_>,
    limits: Limits,
    run: &mut Run<'_>,
    rows: &mut RowSet,
) -> Result<(), Halt> {
    let charge = Charge::of_query(run.env.engine.as_ref());
    let mut sorter = Sorter::new(&query.orders, groups.width(), limits.kept(), charge);
    groups.finish(run, |run| {
        let frame = run.frame(&[]);
        for key in &query.sort {
            sorter.push(evaluate(&key.expr, &frame)?.into_datum());
        }
        frame.cells[0].iter().for_each(|cell| sorter.push(cell.clone()));
        sorter.row_done(&mut || run.look_around())?;
        Ok(Flow::Continue)
    })?;
    let mut output = Output::in_order(query, limits, rows, run.env);
    for group in sorter.finish(&mut || run.look_around())? {
        run.row()?;
        run.scratch.cells[0] = group;
        if output.take(run)? == Flow::Stop {
            break;
        }
    }
    output.finish(run)
}

fn run_locking(query: &Query, limits: Limits, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    let result = match query.sort.is_empty() {
        true => lock_as_found(query, limits, run, rows),
        false => take_in_order(query, limits, run, rows),
    };
    run.engine.set_nowait(false);
    result
}

fn lock_as_found(query: &Query, limits: Limits, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    let mut output = Output::new(query, limits, rows, run.env);
    descend(query, 0, run, &mut |run: &mut Run<'_>| {
        let locked = lock_rows(query, run)?;
        let flow = match locked.holds {
            true => output.take(run)?,
            false => Flow::Continue,
        };
        if locked.is_newer && query.steps.len() > 1 {
            take_back(query, run);
        }
        Ok(flow)
    })?;
    output.finish(run)
}

/// Brings the snapshot's versions of locked rows to hand again: what the loops go on to look for is by them.
fn take_back(query: &Query, run: &mut Run<'_>) {
    for lock in &query.locks {
        let at = usize::from(lock.source);
        let (Some(table), id) = (&query.tables[at], run.scratch.ids[at]) else { continue };
        if id != NO_ROW {
            run.engine.read(table, id, &mut run.scratch.rows[at]);
        }
    }
    fetch_all(query, run);
}

fn fetch_all(query: &Query, run: &mut Run<'_>) {
    for depth in 0..query.steps.len() {
        let view = query.view(depth);
        let is_there = run.scratch.ids[usize::from(view.source)] != NO_ROW;
        if is_there && query.tables[usize::from(view.source)].is_some() {
            access::fetch_long(&view, run);
        }
    }
}

/// Rows are put in order as the snapshot has them, then locked, and their outputs computed, one after the other until the limit is met.
fn take_in_order(query: &Query, limits: Limits, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    // A row that is locked may turn out to be gone.
    let keep = if query.locks.is_empty() { limits.kept() } else { None };
    let mut sorter = Sorter::new(&query.orders, places_width(query), keep, Charge::of_query(run.env.engine.as_ref()));
    descend(query, 0, run, &mut |run: &mut Run<'_>| {
        let frame = run.frame(&query.tables);
        for key in &query.sort {
            sorter.push(evaluate(&key.expr, &frame)?.into_datum());
        }
        push_places(query, run, &mut sorter);
        sorter.row_done(&mut || run.look_around())?;
        Ok(Flow::Continue)
    })?;
    let mut output = Output::in_order(query, limits, rows, run.env);
    for places in sorter.finish(&mut || run.look_around())? {
        run.row()?;
        take_places(query, places, run);
        if lock_rows(query, run)?.holds && output.take(run)? == Flow::Stop {
            break;
        }
    }
    output.finish(run)
}

/// Cells that a combination of rows is kept as: a row id for each stored one, or its cells.
fn places_width(query: &Query) -> usize {
    query.tables.iter().zip(&query.widths).map(|(table, width)| if table.is_some() { 1 } else { *width }).sum()
}

fn push_places(query: &Query, run: &Run<'_>, sorter: &mut Sorter<'_>) {
    for (source, table) in query.tables.iter().enumerate() {
        match (table, run.scratch.ids[source]) {
            (Some(_), NO_ROW) => sorter.push(Datum::Null),
            (Some(_), id) => sorter.push(Datum::Int(id.0 as i64)),
            (None, _) => run.scratch.cells[source].iter().for_each(|cell| sorter.push(cell.clone())),
        }
    }
}

/// Brings the rows of a combination to hand again.
fn take_places(query: &Query, places: Vec<Datum>, run: &mut Run<'_>) {
    let mut places = places.into_iter();
    for (source, table) in query.tables.iter().enumerate() {
        let Some(table) = table else {
            run.scratch.cells[source] = places.by_ref().take(query.widths[source]).collect();
            continue;
        };
        match places.next() {
            Some(Datum::Int(id)) => {
                let id = RowId(id as u64);
                run.scratch.ids[source] = id;
                run.engine.read(table, id, &mut run.scratch.rows[source]);
            }
            _ => nulls(query, source as u16, run),
        }
    }
    fetch_all(query, run);
}

/// What came of locking a combination of rows.
struct LockedRows {
    /// False if one is gone, they no longer meet the condition, or one is to be skipped.
    holds: bool,
    /// Some may stand in the scratch as they are now, not as the snapshot has them.
    is_newer: bool,
}

/// Locks the rows at hand.
fn lock_rows(query: &Query, run: &mut Run<'_>) -> Result<LockedRows, Halt> {
    let mut is_newer = false;
    for lock in &query.locks {
        let at = usize::from(lock.source);
        let table = query.tables[at].as_ref().expect("invariant: only stored rows are locked");
        match lock_row(table, run.scratch.ids[at], lock, at, run)? {
            None | Some(Locked::Gone) => return Ok(LockedRows { holds: false, is_newer: true }),
            Some(Locked::Same) => {}
            Some(Locked::Newer) => is_newer = true,
        }
        for depth in (0..query.steps.len()).filter(|&depth| query.steps[depth].source == lock.source) {
            access::fetch_long(&query.view(depth), run);
        }
    }
    let holds = !is_newer || holds(&query.recheck, &run.frame(&query.tables))?;
    Ok(LockedRows { holds, is_newer })
}

/// Locks a row, which then stands in the scratch's row `at` as it is now; `None`: somebody has it, and it is to be skipped. The session goes on not
/// to wait until it is told otherwise.
pub fn lock_row(
    table: &Arc<Table>,
    id: RowId,
    lock: &RowLocking,
    at: usize,
    run: &mut Run<'_>,
) -> Result<Option<Locked>, Halt> {
    run.engine.set_nowait(lock.wait != LockWait::Wait);
    match run.engine.lock_as(table, id, lock.strength, &mut run.scratch.rows[at]) {
        Ok(locked) => Ok(Some(locked)),
        Err(Stop::Error(Error::LockNotAvailable)) if lock.wait == LockWait::SkipLocked => Ok(None),
        Err(Stop::Error(Error::LockNotAvailable)) => {
            let message = format!("could not obtain lock on row in relation \"{}\"", table.def.name);
            Err(SqlError::new("55P03", message).into())
        }
        Err(stop) => Err(stop.into()),
    }
}

/// All rows as owned values, and what they are charged.
pub fn materialize(query: &Query, outer: &mut Run<'_>) -> Result<(Vec<Vec<Datum>>, Charge), Halt> {
    // What is measured is measured of it too.
    let mut scratch = Scratch { watch: outer.scratch.watch.take(), ..Scratch::default() };
    let mut inner = Run::new(
        &mut *outer.engine,
        (outer.parameters, outer.env),
        &mut scratch,
        &mut *outer.interrupt,
        &mut *outer.constraints,
    );
    let mut rows = RowSet::default();
    let mut charge = Charge::of_query(outer.env.engine.as_ref());
    outer.env.engine.iter().for_each(|engine| rows.charge_to(engine));
    let result = run(query, &mut inner, &mut rows);
    outer.scratch.watch = scratch.watch.take();
    result?;
    let width = query.columns.len();
    let mut owned: Vec<Vec<Datum>> = Vec::new();
    let mut bytes = 0;
    for row in 0..rows.len() {
        outer.row()?;
        let cells: Vec<Datum> = (0..width).map(|column| Datum::from(rows.get(row, column))).collect();
        bytes += (size_of::<Vec<Datum>>() + 16) as u64 + cells.iter().map(Datum::memory_bytes).sum::<u64>();
        room_for(&mut owned, 1, bytes, &mut charge)?;
        charge.reach(bytes)?;
        owned.push(cells);
    }
    Ok((owned, charge))
}

/// Calls `each` with every combination of rows that meets the conditions.
pub fn descend(
    query: &Query,
    depth: usize,
    run: &mut Run<'_>,
    each: &mut impl FnMut(&mut Run<'_>) -> Result<Flow, Halt>,
) -> Result<Flow, Halt> {
    let Some(step) = query.steps.get(depth) else {
        return each(run);
    };
    if run.scratch.watch.is_some() {
        return super::watch::descend(query, depth, run, each);
    }
    let view = query.view(depth);
    let mut cursor = access::open(&view, run)?;
    let mut matched = false;
    while access::next(&view, &mut cursor, run)? {
        if let Some(on) = &step.outer {
            if !holds(on, &run.frame(&query.tables))? {
                continue;
            }
            matched = true;
        }
        if !holds(&step.filter, &run.frame(&query.tables))? {
            continue;
        }
        if descend(query, depth + 1, run, each)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    if step.outer.is_some() && !matched {
        nulls(query, step.source, run);
        if holds(&step.filter, &run.frame(&query.tables))? {
            return descend(query, depth + 1, run, each);
        }
    }
    Ok(Flow::Continue)
}

pub fn holds(conditions: &[Expr], frame: &Frame<'_>) -> Result<bool, SqlError> {
    for condition in conditions {
        if !test(condition, frame)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// In place of the id of a row of nulls.
const NO_ROW: RowId = RowId(u64::MAX);

/// The row of nulls that a LEFT JOIN gives where nothing matches.
pub(super) fn nulls(query: &Query, source: u16, run: &mut Run<'_>) {
    let source = usize::from(source);
    match &query.tables[source] {
        Some(table) => {
            run.scratch.ids[source] = NO_ROW;
            run.scratch.rows[source].reset(&table.layout);
        }
        None => {
            let cells = &mut run.scratch.cells[source];
            cells.clear();
            cells.resize(query.widths[source], Datum::Null);
        }
    }
}

/// OFFSET and LIMIT of one run.
#[derive(Clone, Copy)]
struct Limits {
    skip: u64,
    left: u64,
}

impl Limits {
    /// Rows that are wanted of those in order, if not all.
    fn kept(&self) -> Option<usize> {
        let kept = self.left.saturating_add(self.skip);
        (self.left != u64::MAX).then(|| usize::try_from(kept).unwrap_or(usize::MAX))
    }

    fn of(query: &Query, run: &Run<'_>) -> Result<Limits, SqlError> {
        if query.limit.is_none() && query.offset.is_none() {
            return Ok(Limits { skip: 0, left: u64::MAX });
        }
        let frame = run.frame(&[]);
        let number = |expr: &Option<Expr>, sqlstate, name| match expr {
            None => Ok(None),
            Some(expr) => match evaluate(expr, &frame)?.value() {
                Value::Int(v) if v < 0 => Err(SqlError::new(sqlstate, format!("{name} must not be negative"))),
                Value::Int(v) => Ok(Some(v as u64)),
                _ => Ok(None),
            },
        };
        Ok(Limits {
            left: number(&query.limit, "2201W", "LIMIT")?.unwrap_or(u64::MAX),
            skip: number(&query.offset, "2201X", "OFFSET")?.unwrap_or(0),
        })
    }
}

/// Projection and what comes after it.
struct Output<'q, 'r> {
    query: &'q Query,
    rows: &'r mut RowSet,
    limits: Limits,
    seen: Option<HashSet<Box<[u8]>>>,
    sorter: Option<Sorter<'q>>,
    /// What DISTINCT remembers.
    charge: Charge,
    seen_bytes: u64,
}

impl<'q, 'r> Output<'q, 'r> {
    fn new(query: &'q Query, limits: Limits, rows: &'r mut RowSet, env: &Env) -> Output<'q, 'r> {
        let keep = limits.kept();
        let sorted = !query.sort.is_empty();
        Output {
            query,
            rows,
            limits,
            seen: query.distinct.then(HashSet::new),
            sorter: sorted.then(|| {
                let charge = Charge::of_query(env.engine.as_ref());
                Sorter::new(&query.orders, query.output.len(), keep, charge)
            }),
            // Asked for where it is needed: it touches a counter that all sessions share.
            charge: Charge::of_query(env.engine.as_ref().filter(|_| query.distinct)),
            seen_bytes: 0,
        }
    }

    /// For rows that come in the query's order.
    fn in_order(query: &'q Query, limits: Limits, rows: &'r mut RowSet, env: &Env) -> Output<'q, 'r> {
        Output { sorter: None, ..Output::new(query, limits, rows, env) }
    }

    /// Takes the row at hand.
    fn take(&mut self, run: &mut Run<'_>) -> Result<Flow, Halt> {
        let frame = &run.frame(&self.query.tables);
        if self.seen.is_some() && !self.is_new(frame)? {
            return Ok(Flow::Continue);
        }
        if let Some(sorter) = &mut self.sorter {
            for key in &self.query.sort {
                sorter.push(evaluate(&key.expr, frame)?.into_datum());
            }
            for expr in &self.query.output {
                sorter.push(evaluate(expr, frame)?.into_datum());
            }
            sorter.row_done(&mut || run.look_around())?;
            return Ok(Flow::Continue);
        }
        if self.limits.skip > 0 {
            self.limits.skip -= 1;
            // A row that OFFSET leaves out is computed all the same, where that does something.
            for expr in self.query.output.iter().filter(|expr| expr.is_volatile()) {
                evaluate(expr, frame)?;
            }
            return Ok(Flow::Continue);
        }
        for expr in &self.query.output {
            match expr {
                // Most outputs are columns, and rows many.
                Expr::Column { source, column } => {
                    let (layout, row) = frame.place(*source);
                    self.rows.push_column(layout, row, usize::from(*column));
                }
                _ => self.rows.push(&evaluate(expr, frame)?.value()),
            }
        }
        self.rows.finish_row()?;
        self.limits.left -= 1;
        Ok(if self.limits.left == 0 { Flow::Stop } else { Flow::Continue })
    }

    fn is_new(&mut self, frame: &Frame<'_>) -> Result<bool, SqlError> {
        let mut key = Vec::new();
        for (expr, column) in self.query.output.iter().zip(self.query.columns.iter()) {
            encode_key(column.ty, &evaluate(expr, frame)?.value(), &mut key);
        }
        self.charge.reach(self.seen_bytes + HASHED_KEY_BYTES + key.len() as u64)?;
        let seen = self.seen.as_mut().expect("the caller asks with DISTINCT only");
        let bytes = HASHED_KEY_BYTES + key.len() as u64;
        let is_new = seen.insert(key.into());
        self.seen_bytes += if is_new { bytes } else { 0 };
        Ok(is_new)
    }

    fn finish(self, run: &mut Run<'_>) -> Result<(), Halt> {
        let Some(sorter) = self.sorter else {
            return Ok(());
        };
        let skip = usize::try_from(self.limits.skip).unwrap_or(usize::MAX);
        let left = usize::try_from(self.limits.left).unwrap_or(usize::MAX);
        for row in sorter.finish(&mut || run.look_around())?.skip(skip).take(left) {
            run.row()?;
            for datum in &row {
                self.rows.push(&datum.as_value());
            }
            self.rows.finish_row()?;
        }
        Ok(())
    }
}
