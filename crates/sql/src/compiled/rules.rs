//! What must hold of a table's rows beside their keys? Computed columns, checks, foreign keys.
//!
//! | rule | when |
//! |---|---|
//! | computed columns, NOT NULL, checks | before the row is written |
//! | check options of views | as soon as the row is written |
//! | a child's parent | as soon as the child is written; if it is not there, again at the statement's end, or at commit |
//! | a deferrable key | likewise, where another row has it or may come to have it |
//! | a parent's children | likewise; CASCADE, SET NULL and SET DEFAULT at the statement's end |
//!
//! 1. A table without rules has none of this: plans have `None`.
//! 2. A child's write locks its parent's row, and whoever takes a parent away has its row locked (see the engine's `txn::keys`). So each sees what
//!    the other did, whatever their snapshots.
//! 3. What is due names a row or a key, never a version: run again, or after a part of the transaction was undone, it says what is true then.

use super::change::{Columns, failing_row};
use super::{Halt, Run};
use crate::error::SqlError;
use crate::expr::{Expr, Frame, evaluate, truth};
use crate::value::{self, Datum, cast};
use freshet_engine::catalog::{Action, Index, Schema, Table, TableId};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{NetworkKind, Row, Type, Value};
use freshet_engine::txn::{Error, Locked, Stop, Strength};
use std::collections::HashMap;
use std::sync::Arc;

/// The rules of one table for one kind of change.
#[derive(Debug)]
pub struct Rules {
    pub table: Arc<Table>,
    /// The schema's name, for messages.
    pub namespace: String,
    /// The table, alone in a list as frames want it.
    pub tables: Vec<Option<Arc<Table>>>,
    /// Columns that follow from others, in an order in which each follows from those before.
    pub computed: Vec<(u16, Expr)>,
    /// Computed columns that take no null.
    pub not_null: Vec<u16>,
    pub checks: Vec<Check>,
    /// The check options of the views that the change goes through: by the view's name, what its rows must meet.
    pub view_checks: Vec<Check>,
    /// Variable-length columns that expressions and keys look at.
    pub long_columns: Vec<u16>,
    pub keys: Vec<DeferrableKey>,
    pub parents: Vec<Parent>,
    pub children: Vec<Child>,
}

impl Rules {
    /// Whether a row is looked at once more when it is inserted.
    pub fn look_at_inserts(&self) -> bool {
        !self.parents.is_empty() || !self.keys.is_empty() || !self.view_checks.is_empty()
    }
}

/// A PRIMARY KEY or UNIQUE constraint that is DEFERRABLE.
#[derive(Debug)]
pub struct DeferrableKey {
    /// Of the constraint.
    pub id: u32,
    pub index: Arc<Index>,
    pub columns: Vec<u16>,
}

#[derive(Debug)]
pub struct Check {
    pub name: String,
    pub condition: Expr,
}

/// Which rows a change may make, or end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    Insert,
    Update,
    Delete,
}

/// A foreign key of the table itself.
#[derive(Debug)]
pub struct Parent {
    pub id: u32,
    pub name: String,
    pub columns: Vec<u16>,
    pub table: Arc<Table>,
    pub index: Arc<Index>,
    /// For each column of the index, which of `columns` it is compared with.
    pub order: Vec<usize>,
    pub full: bool,
    pub deferrable: bool,
    pub deferred: bool,
}

/// A foreign key of another table, or this one, that refers to the table.
#[derive(Debug)]
pub struct Child {
    pub id: u32,
    pub name: String,
    /// The referenced columns, here.
    pub columns: Vec<u16>,
    pub table: Arc<Table>,
    pub child_columns: Vec<u16>,
    /// An index of the child that begins with these columns; for each of its columns, which of `child_columns` it is.
    pub index: Option<(Arc<Index>, Vec<Option<usize>>)>,
    /// The unique index here that the key rests on.
    pub key: Arc<Index>,
    pub on_update: Action,
    pub on_delete: Action,
    /// Those of `child_columns` that a delete sets; none: all.
    pub delete_columns: Vec<u16>,
    /// By column: the key is a `char(n)` and the child's a text, whose blanks at the end do not count.
    pub padded: Vec<bool>,
    pub deferrable: bool,
    pub deferred: bool,
}

/// What a session's transaction owes to its constraints.
#[derive(Default)]
pub struct Constraints {
    /// Of the statement that runs.
    due: Vec<Due>,
    /// Rows that the statement that runs, an INSERT, has updated as ON CONFLICT says.
    updated_instead: u64,
    /// Until commit, or SET CONSTRAINTS IMMEDIATE.
    deferred: Vec<Due>,
    /// SET CONSTRAINTS ALL.
    all: Option<bool>,
    /// SET CONSTRAINTS, by id.
    modes: HashMap<u32, bool>,
    /// For cascades, of one schema.
    rules: HashMap<(TableId, Event), Arc<Rules>>,
    rules_of: Option<Arc<Schema>>,
}

/// What a transaction owed to its constraints at a savepoint.
pub struct Mark {
    /// The first so many of what was deferred; it only grows,
    owed: usize,
    /// unless it is settled: then these.
    kept: Option<Vec<Due>>,
    all: Option<bool>,
    modes: HashMap<u32, bool>,
}

/// What is to be looked at later.
#[derive(Clone)]
enum Due {
    /// A row whose key another row had, or might come to have.
    Key { rules: Arc<Rules>, at: usize, row: RowId },
    /// A child's row, whose parent was not there.
    Parent { rules: Arc<Rules>, at: usize, row: RowId },
    /// A key that had children when it went.
    Children { rules: Arc<Rules>, at: usize, key: Vec<Datum>, restrict: bool },
    /// Children that go with their parent's key, or get another: `new` is the parent's new key.
    Act { rules: Arc<Rules>, at: usize, key: Vec<Datum>, new: Option<Vec<Datum>> },
}

impl Due {
    fn constraint(&self) -> (u32, bool, bool) {
        match self {
            Due::Key { rules, at, .. } => {
                let key = &rules.keys[*at];
                (key.id, true, key.index.def.deferred)
            }
            Due::Parent { rules, at, .. } => {
                let parent = &rules.parents[*at];
                (parent.id, parent.deferrable, parent.deferred)
            }
            Due::Children { rules, at, restrict, .. } => {
                let child = &rules.children[*at];
                (child.id, child.deferrable && !restrict, child.deferred)
            }
            Due::Act { rules, at, .. } => (rules.children[*at].id, false, false),
        }
    }

    fn rules(&self) -> &Arc<Rules> {
        match self {
            Due::Key { rules, .. } | Due::Parent { rules, .. } => rules,
            Due::Children { rules, .. } | Due::Act { rules, .. } => rules,
        }
    }

    /// The same by the schema as it is now, in which the table at the constraint's other end may have been changed; `None`: the constraint is gone.
    fn renewed(mut self, run: &mut Run<'_>) -> Result<Option<Due>, Halt> {
        let id = self.constraint().0;
        let Some(table) = run.engine.schema().table_by_id(self.rules().table.id).cloned() else { return Ok(None) };
        let found = match &mut self {
            Due::Key { rules, at, .. } => {
                *rules = rules_for(&table, Event::Insert, run)?;
                rules.keys.iter().position(|key| key.id == id).map(|found| *at = found)
            }
            Due::Parent { rules, at, .. } => {
                *rules = rules_for(&table, Event::Insert, run)?;
                rules.parents.iter().position(|parent| parent.id == id).map(|found| *at = found)
            }
            Due::Children { rules, at, .. } | Due::Act { rules, at, .. } => {
                *rules = rules_for(&table, Event::Delete, run)?;
                rules.children.iter().position(|child| child.id == id).map(|found| *at = found)
            }
        };
        Ok(found.map(|()| self))
    }
}

impl Constraints {
    /// A statement begins, or begins anew.
    pub fn start_statement(&mut self) {
        self.due.clear();
        self.updated_instead = 0;
    }

    pub(super) fn count_updated_instead(&mut self) {
        self.updated_instead += 1;
    }

    /// How many of the rows that the statement says it has inserted were there and updated.
    pub fn take_updated_instead(&mut self) -> u64 {
        std::mem::take(&mut self.updated_instead)
    }

    /// How much the statement that runs owes.
    pub fn owed(&self) -> usize {
        self.due.len()
    }

    /// What the statement did since it owed so much is undone.
    pub fn owe_only(&mut self, owed: usize) {
        self.due.truncate(owed);
    }

    /// For a savepoint.
    pub fn mark(&self) -> Mark {
        Mark { owed: self.deferred.len(), kept: None, all: self.all, modes: self.modes.clone() }
    }

    /// What was owed at the savepoint is about to be settled: it is owed again if that is undone.
    pub fn keep_for(&self, mark: &mut Mark) {
        mark.kept.get_or_insert_with(|| self.deferred[..mark.owed].to_vec());
    }

    /// What came after the savepoint is undone.
    pub fn return_to(&mut self, mark: &mut Mark) {
        self.due.clear();
        match mark.kept.take() {
            Some(kept) => self.deferred = kept,
            None => self.deferred.truncate(mark.owed),
        }
        self.all = mark.all;
        self.modes.clone_from(&mark.modes);
    }

    /// The transaction ended.
    pub fn end(&mut self) {
        let is_unused = self.deferred.is_empty()
            && self.due.is_empty()
            && self.all.is_none()
            && self.modes.is_empty()
            && self.rules_of.is_none();
        if is_unused {
            return;
        }
        self.due.clear();
        self.deferred.clear();
        self.all = None;
        self.modes.clear();
        self.rules.clear();
        self.rules_of = None;
    }

    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether something of the table's rows is still to be looked at.
    pub fn await_table(&self, table: TableId) -> bool {
        self.deferred.iter().any(|due| due.rules().table.id == table)
    }

    /// SET CONSTRAINTS: all (`None`) or these.
    pub fn set(&mut self, ids: Option<&[u32]>, deferred: bool) {
        match ids {
            None => {
                self.all = Some(deferred);
                self.modes.clear();
            }
            Some(ids) => self.modes.extend(ids.iter().map(|&id| (id, deferred))),
        }
    }

    fn defers(&self, due: &Due) -> bool {
        let (id, deferrable, initially) = due.constraint();
        deferrable && self.modes.get(&id).copied().or(self.all).unwrap_or(initially)
    }
}

impl Run<'_> {
    fn row_frame<'a>(&'a self, rules: &'a Rules, row: &'a Row) -> Frame<'a> {
        Frame {
            tables: &rules.tables,
            rows: std::slice::from_ref(row),
            parameters: self.parameters,
            ..Frame::new(self.env)
        }
    }
}

// ---- before a row is written

/// Sets the computed columns.
pub fn compute(rules: &Rules, row: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    for &column in &rules.long_columns {
        run.engine.fetch_long(&rules.table, row, usize::from(column));
    }
    for (column, expr) in &rules.computed {
        let datum = evaluate(expr, &run.row_frame(rules, row))?.into_datum();
        row.set(&rules.table.layout, usize::from(*column), &datum.as_value());
    }
    Ok(())
}

/// Checks the row; long columns were fetched by `compute`.
pub fn check(rules: &Rules, row: &mut Row, of: Columns<'_>, run: &mut Run<'_>) -> Result<(), Halt> {
    for check in &rules.checks {
        if truth(&check.condition, &run.row_frame(rules, row))? == Some(false) {
            return Err(check_violation(rules, check, row, of, run).into());
        }
    }
    Ok(())
}

#[cold]
fn check_violation(rules: &Rules, check: &Check, row: &mut Row, of: Columns<'_>, run: &mut Run<'_>) -> SqlError {
    let table = &rules.table;
    let message = format!("new row for relation \"{}\" violates check constraint \"{}\"", table.def.name, check.name);
    let error = SqlError::new("23514", message).about(&rules.namespace, &table.def.name, None, Some(&check.name));
    SqlError { detail: failing_row(table, row, of, run), ..error }
}

// ---- after a row is written

/// Whether the views that the change goes through show the row.
fn check_views(rules: &Rules, row: &mut Row, of: Columns<'_>, run: &mut Run<'_>) -> Result<(), Halt> {
    for check in &rules.view_checks {
        if truth(&check.condition, &run.row_frame(rules, row))? != Some(true) {
            let message = format!("new row violates check option for view \"{}\"", check.name);
            let detail = failing_row(&rules.table, row, of, run);
            return Err(SqlError { detail, ..SqlError::new("44000", message) }.into());
        }
    }
    Ok(())
}

/// Looks for the parents of a row that was inserted.
pub fn inserted(rules: &Arc<Rules>, id: RowId, row: &mut Row, of: Columns<'_>, run: &mut Run<'_>) -> Result<(), Halt> {
    check_views(rules, row, of, run)?;
    for at in 0..rules.keys.len() {
        look_for_twin(rules, at, id, row, run);
    }
    if is_replica(run) {
        return Ok(());
    }
    for at in 0..rules.parents.len() {
        look_for_parent(rules, at, id, row, run)?;
    }
    Ok(())
}

/// Whether foreign keys are left to whom the rows come from (`session_replication_role`).
fn is_replica(run: &Run<'_>) -> bool {
    run.env.settings.fast.is_replica
}

fn look_for_twin(rules: &Arc<Rules>, at: usize, id: RowId, row: &mut Row, run: &mut Run<'_>) {
    if run.engine.may_have_twin(&rules.table, &rules.keys[at].index, id, row) {
        run.constraints.due.push(Due::Key { rules: rules.clone(), at, row: id });
    }
}

/// The same of a row that was updated, and what becomes of its children. `old` is the version before.
pub fn updated(
    rules: &Arc<Rules>,
    id: RowId,
    old: &mut Row,
    new: &mut Row,
    of: Columns<'_>,
    run: &mut Run<'_>,
) -> Result<(), Halt> {
    check_views(rules, new, of, run)?;
    for (at, key) in rules.keys.iter().enumerate() {
        let before = key_of(&rules.table, &key.columns, old, run);
        let after = key_of(&rules.table, &key.columns, new, run);
        if !is_same_key(&rules.table, &key.columns, &before, &after) {
            look_for_twin(rules, at, id, new, run);
        }
    }
    if is_replica(run) {
        return Ok(());
    }
    for at in 0..rules.parents.len() {
        let columns = &rules.parents[at].columns;
        let before = key_of(&rules.table, columns, old, run);
        if before != key_of(&rules.table, columns, new, run) {
            look_for_parent(rules, at, id, new, run)?;
        }
    }
    for (at, child) in rules.children.iter().enumerate() {
        let before = key_of(&rules.table, &child.columns, old, run);
        let after = key_of(&rules.table, &child.columns, new, run);
        if !is_same_key(&rules.table, &child.columns, &before, &after) {
            leave_children(rules, at, before, Some(after), child.on_update, run)?;
        }
    }
    Ok(())
}

/// What becomes of the children of a row that was deleted.
pub fn deleted(rules: &Arc<Rules>, old: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    if is_replica(run) {
        return Ok(());
    }
    for (at, child) in rules.children.iter().enumerate() {
        let key = key_of(&rules.table, &child.columns, old, run);
        leave_children(rules, at, key, None, child.on_delete, run)?;
    }
    Ok(())
}

fn is_same_key(table: &Table, columns: &[u16], a: &[Datum], b: &[Datum]) -> bool {
    columns.iter().zip(a.iter().zip(b)).all(|(&column, (a, b))| {
        let ty = table.layout.column_type(usize::from(column));
        ty.compare(&a.as_value(), &b.as_value()).is_eq()
    })
}

fn key_of(table: &Table, columns: &[u16], row: &mut Row, run: &mut Run<'_>) -> Vec<Datum> {
    let mut key = Vec::with_capacity(columns.len());
    for &column in columns {
        run.engine.fetch_long(table, row, usize::from(column));
        key.push(row.get(&table.layout, usize::from(column)).into());
    }
    key
}

fn look_for_parent(rules: &Arc<Rules>, at: usize, id: RowId, row: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    if !has_parent(rules, at, row, run)? {
        run.constraints.due.push(Due::Parent { rules: rules.clone(), at, row: id });
    }
    Ok(())
}

/// Demands the parents of a row that is there, for a key that is new.
pub fn demand_parents(rules: &Arc<Rules>, row: &mut Row, run: &mut Run<'_>) -> Result<(), Halt> {
    for at in 0..rules.parents.len() {
        if !has_parent(rules, at, row, run)? {
            return Err(no_parent(rules, at, row, run).into());
        }
    }
    Ok(())
}

/// Whether the row refers to nothing, or to a row that is there; that row is locked.
fn has_parent(rules: &Rules, at: usize, row: &mut Row, run: &mut Run<'_>) -> Result<bool, Halt> {
    let parent = &rules.parents[at];
    let key = key_of(&rules.table, &parent.columns, row, run);
    let nulls = key.iter().filter(|datum| **datum == Datum::Null).count();
    if nulls == key.len() || (nulls > 0 && !parent.full) {
        return Ok(true);
    }
    if nulls > 0 {
        return Ok(false);
    }
    let types = parent.columns.iter().map(|&c| rules.table.layout.column_type(usize::from(c)));
    let types: Vec<Type> = types.collect();
    let mut wanted = Vec::with_capacity(key.len());
    for (column, &from) in parent.index.spec.columns().zip(&parent.order) {
        let to = parent.table.layout.column_type(usize::from(column.column));
        match as_stored(types[from], &key[from], to) {
            Some(datum) => wanted.push(datum),
            None => return Ok(false),
        }
    }
    let mut found = Row::default();
    let locked = run.engine.lock_key(&parent.table, &parent.index, |i| wanted[i].as_value(), &mut found)?;
    Ok(locked.is_some())
}

/// A value in the form of another column's type; `None`: no value of that type equals it.
fn as_stored(from: Type, datum: &Datum, to: Type) -> Option<Datum> {
    if from == to {
        return Some(datum.clone());
    }
    let integer = |ty| matches!(ty, Type::Int2 | Type::Int4 | Type::Int8);
    let network = |ty| matches!(ty, Type::Network(NetworkKind::Inet | NetworkKind::Cidr));
    if integer(from) && integer(to) || network(from) && network(to) {
        return Some(datum.clone());
    }
    let trimmed = matches!(to, Type::Char(_)).then(|| without_blanks(datum));
    let datum = trimmed.as_ref().unwrap_or(datum);
    let there = cast::cast(from, &datum.as_value(), to, true).ok()?;
    let back = cast::cast(to, &there.as_value(), from, true).ok()?;
    from.compare(&back.as_value(), &datum.as_value()).is_eq().then_some(there)
}

/// A text as `char(n)` compares it.
fn without_blanks(datum: &Datum) -> Datum {
    match datum {
        Datum::Bytes(text) => {
            let end = text.iter().rposition(|&b| b != b' ').map_or(0, |last| last + 1);
            Datum::Bytes(text[..end].into())
        }
        other => other.clone(),
    }
}

fn leave_children(
    rules: &Arc<Rules>,
    at: usize,
    key: Vec<Datum>,
    new: Option<Vec<Datum>>,
    action: Action,
    run: &mut Run<'_>,
) -> Result<(), Halt> {
    if key.contains(&Datum::Null) {
        return Ok(());
    }
    let mut found = Vec::new();
    children(&rules.table, &rules.children[at], &key, true, &mut found, run)?;
    if found.is_empty() {
        return Ok(());
    }
    let rules = rules.clone();
    run.constraints.due.push(match action {
        Action::NoAction => Due::Children { rules, at, key, restrict: false },
        Action::Restrict => Due::Children { rules, at, key, restrict: true },
        Action::Cascade | Action::SetNull | Action::SetDefault => Due::Act { rules, at, key, new },
    });
    Ok(())
}

/// Rows of the child that refer to the key in their newest version; all of them, or the first.
fn children(
    parent: &Table,
    child: &Child,
    key: &[Datum],
    first: bool,
    found: &mut Vec<RowId>,
    run: &mut Run<'_>,
) -> Result<(), Halt> {
    let table = &child.table;
    run.engine.enter_table(table)?;
    let mut wanted = Vec::with_capacity(key.len());
    for ((&here, &there), datum) in child.columns.iter().zip(&child.child_columns).zip(key) {
        let (from, to) = (parent.layout.column_type(usize::from(here)), table.layout.column_type(usize::from(there)));
        match as_stored(from, datum, to) {
            Some(datum) => wanted.push(datum),
            None => return Ok(()),
        }
    }
    let mut row = Row::default();
    match &child.index {
        Some((index, order)) => {
            let mut candidates = Vec::new();
            let value = |i: usize| order[i].map(|at| wanted[at].as_value());
            run.engine.candidates(table, index, value, &mut candidates);
            candidates.sort_unstable();
            candidates.dedup();
            for id in candidates {
                run.row()?;
                if run.engine.newest(table, id, &mut row) && refers(child, &wanted, &mut row, run) {
                    found.push(id);
                    if first {
                        return Ok(());
                    }
                }
            }
        }
        None => {
            let mut position = 0;
            while let Some(id) = run.engine.scan_newest(table, &mut position, &mut row) {
                run.row()?;
                if refers(child, &wanted, &mut row, run) {
                    found.push(id);
                    if first {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

/// What the child refers to, as the parent's key is compared with it.
fn child_key(child: &Child, row: &mut Row, run: &mut Run<'_>) -> Vec<Datum> {
    let mut key = key_of(&child.table, &child.child_columns, row, run);
    for (datum, _) in key.iter_mut().zip(&child.padded).filter(|(_, is_padded)| **is_padded) {
        *datum = without_blanks(datum);
    }
    key
}

fn refers(child: &Child, wanted: &[Datum], row: &mut Row, run: &mut Run<'_>) -> bool {
    let key = child_key(child, row, run);
    !key.contains(&Datum::Null) && is_same_key(&child.table, &child.child_columns, &key, wanted)
}

// ---- at the statement's end, and at commit

/// What is due at the end of a statement that changed rows.
pub fn finish_statement(run: &mut Run<'_>) -> Result<(), Halt> {
    if run.constraints.due.is_empty() {
        return Ok(());
    }
    work_off(run, true)
}

/// What was deferred, at commit or when it is asked for (`ids`).
pub fn settle(run: &mut Run<'_>, ids: Option<&[u32]>) -> Result<(), Halt> {
    let deferred = run.constraints.deferred.clone();
    let (asked, left): (Vec<Due>, Vec<Due>) =
        deferred.into_iter().partition(|due| ids.is_none_or(|ids| ids.contains(&due.constraint().0)));
    let mut due = Vec::with_capacity(asked.len());
    for asked in asked {
        due.extend(asked.renewed(run)?);
    }
    run.constraints.due = due;
    work_off(run, false)?;
    run.constraints.deferred = left;
    Ok(())
}

fn work_off(run: &mut Run<'_>, may_defer: bool) -> Result<(), Halt> {
    let mut later = Vec::new();
    // In order: what is due grows as it is worked off.
    let mut at = 0;
    while at < run.constraints.due.len() {
        let due = run.constraints.due[at].clone();
        at += 1;
        if may_defer && run.constraints.defers(&due) {
            later.push(due);
            continue;
        }
        match due {
            Due::Key { rules, at, row } => demand_unique(&rules, at, row, run)?,
            Due::Parent { rules, at, row } => demand_parent(&rules, at, row, run)?,
            Due::Children { rules, at, key, restrict } => demand_childless(&rules, at, &key, restrict, run)?,
            Due::Act { rules, at, key, new } => act(&rules, at, &key, new.as_deref(), run)?,
        }
    }
    run.constraints.due.clear();
    run.constraints.deferred.extend(later);
    Ok(())
}

fn demand_unique(rules: &Arc<Rules>, at: usize, id: RowId, run: &mut Run<'_>) -> Result<(), Halt> {
    let mut row = Row::default();
    if !run.engine.newest(&rules.table, id, &mut row) {
        return Ok(());
    }
    match run.engine.demand_unique(&rules.table, &rules.keys[at].index, id, &mut row) {
        Err(Stop::Error(Error::UniqueViolation { index })) => {
            Err(super::change::key_violation(&index, &rules.table, &mut row, run).into())
        }
        done => Ok(done?),
    }
}

fn demand_parent(rules: &Arc<Rules>, at: usize, id: RowId, run: &mut Run<'_>) -> Result<(), Halt> {
    let mut row = Row::default();
    if !run.engine.newest(&rules.table, id, &mut row) || has_parent(rules, at, &mut row, run)? {
        return Ok(());
    }
    Err(no_parent(rules, at, &mut row, run).into())
}

#[cold]
fn no_parent(rules: &Rules, at: usize, row: &mut Row, run: &mut Run<'_>) -> SqlError {
    let parent = &rules.parents[at];
    let key = key_of(&rules.table, &parent.columns, row, run);
    let detail = match key.contains(&Datum::Null) {
        true => "MATCH FULL does not allow mixing of null and nonnull key values.".to_owned(),
        false => {
            let shown = shown_key(&rules.table, &parent.columns, &key, run);
            format!("Key {shown}is not present in table \"{}\".", parent.table.def.name)
        }
    };
    SqlError::new("23503", no_parent_message(rules, parent)).with_detail(detail).about(
        &rules.namespace,
        &rules.table.def.name,
        None,
        Some(&parent.name),
    )
}

fn no_parent_message(rules: &Rules, parent: &Parent) -> String {
    format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        rules.table.def.name, parent.name
    )
}

/// `(a, b)=(1, 2) `, and nothing to a role that may not read the table.
fn shown_key(table: &Table, columns: &[u16], key: &[Datum], run: &Run<'_>) -> String {
    if !run.may_read(table) {
        return String::new();
    }
    let clock = run.showing_clock();
    let names: Vec<&str> = columns.iter().map(|&c| table.def.columns[usize::from(c)].name.as_str()).collect();
    let values = columns.iter().zip(key).map(|(&column, datum)| {
        let mut text = Vec::new();
        match datum.as_value() {
            Value::Null => text.extend_from_slice(b"null"),
            value => value::to_text_by(table.layout.column_type(usize::from(column)), &value, &clock, &mut text),
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    format!("({})=({}) ", names.join(", "), values.collect::<Vec<_>>().join(", "))
}

fn demand_childless(
    rules: &Arc<Rules>,
    at: usize,
    key: &[Datum],
    restrict: bool,
    run: &mut Run<'_>,
) -> Result<(), Halt> {
    let child = &rules.children[at];
    if !restrict && has_key(rules, child, key, run)? {
        return Ok(());
    }
    let mut row = Row::default();
    loop {
        let mut found = Vec::new();
        children(&rules.table, child, key, true, &mut found, run)?;
        let Some(&id) = found.first() else { return Ok(()) };
        // Whoever is about to take the child away is waited for.
        if run.engine.lock_as(&child.table, id, Strength::KeyShare, &mut row)? != Locked::Gone {
            break;
        }
    }
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        rules.table.def.name, child.name, child.table.def.name
    );
    let shown = shown_key(&rules.table, &child.columns, key, run);
    let detail = format!("Key {shown}is still referenced from table \"{}\".", child.table.def.name);
    Err(SqlError::new("23503", message)
        .with_detail(detail)
        .about(&rules.namespace, &child.table.def.name, None, Some(&child.name))
        .into())
}

/// Whether a row with the key is there again.
fn has_key(rules: &Rules, child: &Child, key: &[Datum], run: &mut Run<'_>) -> Result<bool, Halt> {
    let mut order = Vec::with_capacity(key.len());
    for column in child.key.spec.columns() {
        match child.columns.iter().position(|&c| c == column.column) {
            Some(at) => order.push(at),
            None => return Ok(false),
        }
    }
    let mut row = Row::default();
    let found = run.engine.lock_key(&rules.table, &child.key, |i| key[order[i]].as_value(), &mut row)?;
    Ok(found.is_some())
}

/// Deletes the children of a key, or gives them another one.
fn act(rules: &Arc<Rules>, at: usize, key: &[Datum], new: Option<&[Datum]>, run: &mut Run<'_>) -> Result<(), Halt> {
    let child = &rules.children[at];
    let action = if new.is_some() { child.on_update } else { child.on_delete };
    let deletes = new.is_none() && action == Action::Cascade;
    let event = if deletes { Event::Delete } else { Event::Update };
    let own = rules_for(&child.table, event, run)?;
    let mut found = Vec::new();
    children(&rules.table, child, key, false, &mut found, run)?;
    let mut old = Row::default();
    for id in found {
        run.row()?;
        if run.engine.lock(&child.table, id, &mut old)? == Locked::Gone {
            continue;
        }
        let wanted = child_key(child, &mut old, run);
        let types = child.columns.iter().map(|&c| rules.table.layout.column_type(usize::from(c)));
        let still =
            types.zip(&child.child_columns).zip(key.iter().zip(&wanted)).all(|((from, &column), (key, has))| {
                let to = child.table.layout.column_type(usize::from(column));
                as_stored(from, key, to)
                    .is_some_and(|key| *has != Datum::Null && to.compare(&key.as_value(), &has.as_value()).is_eq())
            });
        if !still {
            continue;
        }
        if deletes {
            super::change::delete_with(&own, id, &mut old, run)?;
            continue;
        }
        let mut changed = old.clone();
        let sets =
            |column: &u16| new.is_some() || child.delete_columns.is_empty() || child.delete_columns.contains(column);
        for (i, &column) in child.child_columns.iter().enumerate().filter(|(_, column)| sets(column)) {
            let value = match (action, new) {
                (Action::Cascade, Some(new)) => {
                    let from = rules.table.layout.column_type(usize::from(child.columns[i]));
                    let to = child.table.layout.column_type(usize::from(column));
                    if from == to { new[i].clone() } else { cast::cast(from, &new[i].as_value(), to, false)? }
                }
                (Action::SetDefault, _) => default_value(&child.table, column, run)?,
                _ => Datum::Null,
            };
            changed.set(&child.table.layout, usize::from(column), &value.as_value());
        }
        super::change::update_with(&own, id, &mut old, &mut changed, run)?;
    }
    match action {
        // The default may be the key that goes: then nothing has changed, and nothing else would ask.
        Action::SetDefault => demand_childless(rules, at, key, false, run),
        _ => Ok(()),
    }
}

fn default_value(table: &Table, column: u16, run: &mut Run<'_>) -> Result<Datum, Halt> {
    let def = &table.def.columns[usize::from(column)];
    let Some(text) = &def.default else { return Ok(Datum::Null) };
    let schema = run.engine.schema().clone();
    let expr = crate::bind::rules::default_expr(text, def.ty, &schema)?;
    let frame = Frame::new(run.env);
    Ok(evaluate(&expr, &frame)?.into_datum())
}

/// A table's rules by the schema as it is now, bound once in a statement.
fn rules_for(table: &Arc<Table>, event: Event, run: &mut Run<'_>) -> Result<Arc<Rules>, Halt> {
    let schema = run.engine.schema().clone();
    if !run.constraints.rules_of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &schema)) {
        run.constraints.rules.clear();
        run.constraints.rules_of = Some(schema.clone());
    }
    let key = (table.id, event);
    if let Some(rules) = run.constraints.rules.get(&key) {
        return Ok(rules.clone());
    }
    let rules = Arc::new(crate::bind::rules::rules_of(table, &schema, event, None)?);
    run.constraints.rules.insert(key, rules.clone());
    Ok(rules)
}
