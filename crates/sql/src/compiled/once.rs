//! How do an UPDATE or DELETE of one row by its key and an INSERT of one row run, where they are transactions of their own? In one go: no snapshot, no
//! row lock, no lists.
//!
//! `engine::txn::{once, insertion}` say how. What this way does not serve, and whatever is not as it mostly is, `change` does: a row that is not there or
//! is locked, one that is there already, a value that is null or out of range, a long string. Expressions may be computed twice, so they have no
//! functions.

use super::access::Access;
use super::change::{Delete, Insert, InsertSource, Update};
use super::query::Query;
use crate::counts::Count;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::route::Plan;
use crate::session::{Ahead, CommandTag};
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use freshet_engine::catalog::{Index, IndexKind, Table};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{IntegerWord, Row, Type};
use freshet_engine::txn::{Change, Insertion, Lookup, Session};
use std::sync::Arc;

/// A statement that changes one row.
#[derive(Debug)]
pub enum Once {
    Update(Updating),
    Delete(Deleting),
    Insert(Inserting),
}

#[derive(Debug)]
pub struct Updating {
    change: Change,
    key: Term,
    sets: Vec<Set>,
    not_null: Vec<u16>,
    tables: Vec<Option<Arc<Table>>>,
}

#[derive(Debug)]
enum Set {
    Integer(IntegerWord, Sum),
    Other(u16, Expr),
}

/// An integer that is at hand.
#[derive(Clone, Copy, Debug)]
enum Term {
    Const(i64),
    Param(u16),
    Column(IntegerWord),
}

#[derive(Debug)]
enum Sum {
    One(Term),
    Add(Term, Term),
    Sub(Term, Term),
}

impl Term {
    fn of(expr: &Expr, table: &Table) -> Option<Term> {
        match expr {
            Expr::Const(Datum::Int(v)) => Some(Term::Const(*v)),
            Expr::Param(i) => Some(Term::Param(*i)),
            Expr::Column { source: 0, column } => table.layout.integer_word(*column).map(Term::Column),
            _ => None,
        }
    }

    #[inline]
    fn value(self, row: &Row, parameters: &[Datum]) -> Option<i64> {
        match self {
            Term::Column(at) => row.integer(at),
            _ => self.at_hand(parameters),
        }
    }

    /// What needs no row. The parameters may be any.
    #[inline]
    fn at_hand(self, parameters: &[Datum]) -> Option<i64> {
        match self {
            Term::Const(v) => Some(v),
            Term::Param(i) => match parameters.get(usize::from(i)) {
                Some(Datum::Int(v)) => Some(*v),
                _ => None,
            },
            Term::Column(_) => None,
        }
    }
}

impl Sum {
    /// Of an expression whose value is an integer of this type.
    fn of(expr: &Expr, ty: Type, table: &Table) -> Option<Sum> {
        let Expr::Binary { operator, left, right } = expr else {
            return Term::of(expr, table).map(Sum::One);
        };
        let is_integer = |ty| matches!(ty, Type::Int2 | Type::Int4 | Type::Int8);
        if operator.result != ty || !is_integer(operator.left) || !is_integer(operator.right) {
            return None;
        }
        let (left, right) = (Term::of(left, table)?, Term::of(right, table)?);
        match operator.op {
            BinaryOp::Add => Some(Sum::Add(left, right)),
            BinaryOp::Sub => Some(Sum::Sub(left, right)),
            _ => None,
        }
    }

    /// `None`: a null, or out of range.
    #[inline]
    fn value(&self, row: &Row, parameters: &[Datum]) -> Option<i64> {
        let of = |term: Term| term.value(row, parameters);
        match *self {
            Sum::One(term) => of(term),
            Sum::Add(a, b) => of(a)?.checked_add(of(b)?),
            Sum::Sub(a, b) => of(a)?.checked_sub(of(b)?),
        }
    }
}

impl Once {
    pub fn of(plan: &Plan) -> Option<Once> {
        match plan {
            Plan::Update(update) => Updating::of(update).map(Once::Update),
            Plan::Delete(delete) => Deleting::of(delete).map(Once::Delete),
            Plan::Insert(insert) => Inserting::of(insert).map(Once::Insert),
            _ => None,
        }
    }

    /// What it answers when it has changed its row.
    pub fn tag(&self) -> CommandTag {
        let command = match self {
            Once::Update(_) => "UPDATE",
            Once::Delete(_) => "DELETE",
            Once::Insert(_) => "INSERT",
        };
        CommandTag { command, rows: Some(1) }
    }

    /// The counter of its row.
    #[inline]
    pub fn counts_as(&self) -> Count {
        match self {
            Once::Update(_) => Count::RowsUpdated,
            Once::Delete(_) => Count::RowsDeleted,
            Once::Insert(_) => Count::RowsInserted,
        }
    }

    /// Starts loading what `run` will want first. The parameters may be any.
    #[inline]
    pub fn prefetch(&self, parameters: &[Datum]) {
        if let Some((change, key)) = self.change()
            && let Some(key) = key.at_hand(parameters)
        {
            change.prefetch(key);
        }
    }

    /// The parameter that is the key.
    #[inline]
    pub fn key_parameter(&self) -> Option<u16> {
        match self {
            Once::Insert(insert) => insert.key.as_ref().map(|(_, at)| *at),
            _ => match self.change()? {
                (_, Term::Param(at)) => Some(at),
                _ => None,
            },
        }
    }

    /// Starts loading what a later `run` with this key will want.
    #[inline]
    pub fn load_ahead(&self, engine: &Session, key: i64, what: Ahead) {
        match (self, self.change(), what) {
            (Once::Insert(Inserting { key: Some((entries, _)), .. }), _, Ahead::Entry) => {
                entries.prefetch_integer_to_insert(key)
            }
            // A new row's slot is at hand.
            (Once::Insert(_), ..) => {}
            (_, Some((change, _)), Ahead::Entry) => change.prefetch(key),
            (_, Some((change, _)), Ahead::Row) => engine.load_row_ahead(change, key),
            (_, None, _) => {}
        }
    }

    #[inline]
    fn change(&self) -> Option<(&Change, Term)> {
        match self {
            Once::Update(update) => Some((&update.change, update.key)),
            Once::Delete(delete) => Some((&delete.change, delete.key)),
            Once::Insert(_) => None,
        }
    }

    /// Runs it; the parameters have their types' forms. `None`: nothing has happened, and the longer way does it or says why not.
    #[inline]
    pub fn run(&self, engine: &mut Session, parameters: &[Datum], env: &Env) -> Option<Cts> {
        let done = match self {
            Once::Update(update) => {
                let key = update.key.at_hand(parameters)?;
                engine.change_once(&update.change, key, |old, new| update.set(old, new, parameters, env))?
            }
            Once::Delete(delete) => engine.delete_once(&delete.change, delete.key.at_hand(parameters)?)?,
            Once::Insert(insert) => engine.insert_once(&insert.insertion, |row| insert.set(row, parameters, env))?.1,
        };
        Some(done.cts)
    }
}

/// The index and the key of a search for one row by a constant or parameter, if it is one and looks at nothing else.
fn row_by_key(search: &Query) -> Option<(&Arc<Table>, &Arc<Index>, Term)> {
    let [step] = search.steps.as_slice() else { return None };
    let Access::Unique { index, keys } = &step.access else { return None };
    let ([key], [Some(table)]) = (keys.as_slice(), search.tables.as_slice()) else { return None };
    if !search.is_by_key() || !search.precondition.is_empty() {
        return None;
    }
    match key.leaf()? {
        expr @ (Expr::Const(_) | Expr::Param(_)) => Some((table, index, Term::of(expr, table)?)),
        _ => None,
    }
}

/// Whether an expression may be computed twice.
fn is_pure(expr: &Expr) -> bool {
    let mut is_pure = true;
    expr.walk(&mut |expr| {
        is_pure &= !matches!(expr, Expr::Call { .. } | Expr::Sequence { .. } | Expr::LastValue | Expr::Key { .. });
        is_pure &= !matches!(expr, Expr::Env(value) if value.is_of_transaction());
        true
    });
    is_pure
}

#[derive(Debug)]
pub struct Deleting {
    change: Change,
    key: Term,
}

impl Deleting {
    fn of(delete: &Delete) -> Option<Deleting> {
        // All of it is looked at: a clause that comes later is not left out.
        let Delete { search, rules: None, returning: None } = delete else { return None };
        let (table, index, key) = row_by_key(search)?;
        Some(Deleting { change: Change::deletion(table, index)?, key })
    }
}

/// A column that an INSERT gives: in short, if it is an integer at hand.
#[derive(Debug)]
struct Given {
    column: u16,
    integer: Option<(IntegerWord, Term)>,
    expr: Expr,
}

#[derive(Debug)]
pub struct Inserting {
    insertion: Insertion,
    /// A unique hash index whose key is one integer, and the parameter that is it.
    key: Option<(Lookup, u16)>,
    given: Vec<Given>,
    /// Columns that take no null and may have one if all goes the short way: those that are not given.
    left_null: bool,
    not_null: Vec<u16>,
    tables: Vec<Option<Arc<Table>>>,
}

impl Inserting {
    fn of(insert: &Insert) -> Option<Inserting> {
        // All of it is looked at: a clause that comes later is not left out.
        let Insert { tables, columns, source, defaults, not_null, rules: None, conflict: None, returning: None } =
            insert
        else {
            return None;
        };
        let ([Some(table)], InsertSource::Values(rows)) = (tables.as_slice(), source) else { return None };
        let [row] = rows.as_slice() else { return None };
        let given = columns.iter().zip(row).chain(defaults.iter().map(|(column, expr)| (column, expr)));
        let given = given.map(|(&column, expr)| {
            let term = Term::of(expr, table).filter(|term| !matches!(term, Term::Column(_)));
            let integer = table.layout.integer_word(column).zip(term);
            is_pure(expr).then(|| Given { column, integer, expr: expr.clone() })
        });
        let given = given.collect::<Option<Vec<Given>>>()?;
        let is_given = |column: &u16| given.iter().any(|g| g.column == *column);
        let left_null = !not_null.iter().all(is_given);
        let key = Inserting::key(table, &given);
        let (not_null, tables) = (not_null.clone(), tables.clone());
        Some(Inserting { insertion: Insertion::new(table), key, given, left_null, not_null, tables })
    }

    fn key(table: &Arc<Table>, given: &[Given]) -> Option<(Lookup, u16)> {
        let of_index = |index: &Arc<Index>| {
            let [only] = index.def.columns.as_slice() else { return None };
            let given = given.iter().find(|given| given.column == only.column)?;
            let Some((_, Term::Param(at))) = given.integer else { return None };
            index.def.unique.then(|| (Lookup::new(table, index, []), at))
        };
        table.indexes.iter().filter(|index| index.def.kind == IndexKind::Hash).find_map(of_index)
    }

    #[inline]
    fn set(&self, row: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        let mut may_be_null = self.left_null;
        for given in &self.given {
            let integer = given.integer.and_then(|(at, term)| Some((at, term.at_hand(parameters)?)));
            match integer {
                Some((at, value)) if at.fits(value) => row.set_integer(at, value),
                _ => {
                    may_be_null = true;
                    if !self.set_other(given, row, parameters, env) {
                        return false;
                    }
                }
            }
        }
        let layout = &self.insertion.table().layout;
        !may_be_null || !self.not_null.iter().any(|&column| row.is_null(layout, usize::from(column)))
    }

    #[inline(never)]
    fn set_other(&self, given: &Given, row: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        // Values name no columns.
        let frame = Frame { tables: &self.tables, parameters, ..Frame::new(env) };
        let Ok(scalar) = evaluate(&given.expr, &frame) else { return false };
        row.set(&self.insertion.table().layout, usize::from(given.column), &scalar.value());
        true
    }
}

impl Updating {
    fn of(update: &Update) -> Option<Updating> {
        // All of it is looked at: a clause that comes later is not left out.
        let Update { search, sets, not_null, rules: None, returning: None } = update else { return None };
        let (table, index, key) = row_by_key(search)?;
        if !sets.iter().all(|(_, expr)| is_pure(expr)) {
            return None;
        }
        let mut read = Vec::new();
        for (_, expr) in sets {
            expr.walk(&mut |expr| {
                if let Expr::Column { column, .. } = expr {
                    read.push(*column);
                }
                true
            });
        }
        let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
        let set = |(column, expr): &(u16, Expr)| {
            let sum = Sum::of(expr, table.layout.column_type(usize::from(*column)), table);
            match (table.layout.integer_word(*column), sum) {
                (Some(at), Some(sum)) => Set::Integer(at, sum),
                _ => Set::Other(*column, expr.clone()),
            }
        };
        let change = Change::new(table, index, &read, &columns)?;
        let sets = sets.iter().map(set).collect();
        Some(Updating { change, key, sets, not_null: not_null.clone(), tables: search.tables.clone() })
    }

    #[inline]
    fn set(&self, old: &Row, new: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        self.sets.iter().all(|set| match set {
            Set::Integer(at, sum) => match sum.value(old, parameters) {
                Some(value) if at.fits(value) => {
                    new.set_integer(*at, value);
                    true
                }
                _ => false,
            },
            Set::Other(column, expr) => self.set_other(*column, expr, old, new, parameters, env),
        })
    }

    #[inline(never)]
    fn set_other(&self, column: u16, expr: &Expr, old: &Row, new: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        let frame = Frame { tables: &self.tables, rows: std::slice::from_ref(old), parameters, ..Frame::new(env) };
        let Ok(scalar) = evaluate(expr, &frame) else { return false };
        let is_refused = scalar.is_null() && self.not_null.contains(&column);
        if !is_refused {
            new.set(&self.change.table().layout, usize::from(column), &scalar.value());
        }
        !is_refused
    }
}
