//! How does an UPDATE of one row by its key run, where it is a transaction of its own? In one go: no snapshot, no row lock, no lists.
//!
//! `engine::txn::once` says how. What this way does not serve, and whatever is not as it mostly is, `change::update` does: a row that is not there or is
//! locked, a value that is null or out of range, a long string. Expressions may be computed twice, so they have no functions.

use super::access::Access;
use super::change::Update;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use freshet_engine::catalog::Table;
use freshet_engine::ids::Cts;
use freshet_engine::schema::{IntegerWord, Row, Type};
use freshet_engine::txn::{Change, Session};
use std::sync::Arc;

/// An UPDATE of one row.
#[derive(Debug)]
pub struct Once {
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

/// An eight-byte integer that is at hand.
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
            Term::Const(v) => Some(v),
            Term::Param(i) => self.parameter(parameters, i),
            Term::Column(at) => row.integer(at),
        }
    }

    #[inline]
    fn parameter(self, parameters: &[Datum], i: u16) -> Option<i64> {
        if let Datum::Int(v) = parameters[usize::from(i)] { Some(v) } else { None }
    }
}

impl Sum {
    /// Of an expression whose value is an eight-byte integer.
    fn of(expr: &Expr, table: &Table) -> Option<Sum> {
        let Expr::Binary { operator, left, right } = expr else {
            return Term::of(expr, table).map(Sum::One);
        };
        if operator.left != Type::Int8 || operator.right != Type::Int8 {
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
    /// The UPDATE as a change in one go, if it can be one.
    pub fn of(update: &Update) -> Option<Once> {
        // All of it is looked at: a clause that comes later is not left out.
        let Update { search, sets, not_null, rules: None, returning: None } = update else { return None };
        let [step] = search.steps.as_slice() else { return None };
        let Access::Unique { index, keys } = &step.access else { return None };
        let ([key], [Some(table)]) = (keys.as_slice(), search.tables.as_slice()) else { return None };
        if !search.is_by_key() || !search.precondition.is_empty() {
            return None;
        }
        let key = match key.leaf()? {
            expr @ (Expr::Const(_) | Expr::Param(_)) => Term::of(expr, table)?,
            _ => return None,
        };
        let mut read = Vec::new();
        let mut is_pure = true;
        for (_, expr) in sets {
            expr.walk(&mut |expr| {
                match expr {
                    Expr::Column { column, .. } => read.push(*column),
                    Expr::Call { .. } => is_pure = false,
                    _ => {}
                }
                true
            });
        }
        let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
        let set = |(column, expr): &(u16, Expr)| match (table.layout.integer_word(*column), Sum::of(expr, table)) {
            (Some(at), Some(sum)) => Set::Integer(at, sum),
            _ => Set::Other(*column, expr.clone()),
        };
        let change = Change::new(table, index, &read, &columns).filter(|_| is_pure)?;
        let sets = sets.iter().map(set).collect();
        Some(Once { change, key, sets, not_null: not_null.clone(), tables: search.tables.clone() })
    }

    #[inline]
    fn key(&self, parameters: &[Datum]) -> Option<i64> {
        match self.key {
            Term::Const(v) => Some(v),
            Term::Param(i) => self.key.parameter(parameters, i),
            Term::Column(_) => None,
        }
    }

    /// Starts loading what `run` will want first.
    #[inline]
    pub fn prefetch(&self, parameters: &[Datum]) {
        if let Some(key) = self.key(parameters) {
            self.change.prefetch(key);
        }
    }

    /// Runs it; the parameters have their types' forms. `None`: nothing has happened, and the longer way does it or says why not.
    #[inline]
    pub fn run(&self, engine: &mut Session, parameters: &[Datum], env: &Env) -> Option<Cts> {
        let key = self.key(parameters)?;
        let done = engine.change_once(&self.change, key, |old, new| self.set(old, new, parameters, env))?;
        Some(done.cts)
    }

    #[inline]
    fn set(&self, old: &Row, new: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        self.sets.iter().all(|set| match set {
            Set::Integer(at, sum) => sum.value(old, parameters).map(|value| new.set_integer(*at, value)).is_some(),
            Set::Other(column, expr) => self.set_other(*column, expr, old, new, parameters, env),
        })
    }

    #[inline(never)]
    fn set_other(&self, column: u16, expr: &Expr, old: &Row, new: &mut Row, parameters: &[Datum], env: &Env) -> bool {
        let frame = Frame { tables: &self.tables, rows: std::slice::from_ref(old), cells: &[], parameters, env };
        let Ok(scalar) = evaluate(expr, &frame) else { return false };
        let is_refused = scalar.is_null() && self.not_null.contains(&column);
        if !is_refused {
            new.set(&self.change.table().layout, usize::from(column), &scalar.value());
        }
        !is_refused
    }
}
