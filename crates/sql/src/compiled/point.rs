//! How does a SELECT by key run, of one row or of a list? Index, slot, cells: no cursor, no frame, no copy of what is not asked for.
//!
//! It is the statement that a database of this kind runs most. What it may do is little, so that the processor overlaps
//! one statement's cache misses with the next one's: its instructions must fit the reorder buffer more than once.
//!
//! A query that is one gives exactly what `query::run` gives for it.

use super::access::{self, Access};
use super::query::Query;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::rows::RowSet;
use crate::session::Ahead;
use crate::value::Datum;
use freshet_engine::schema::{IntegerWord, Row, Type, Value};
use freshet_engine::txn::{Lookup, Session};

#[derive(Clone, Debug)]
enum Key {
    Param(u16),
    Const(Datum),
}

impl Key {
    fn of(expr: &Expr) -> Option<Key> {
        match expr {
            Expr::Param(i) => Some(Key::Param(*i)),
            Expr::Const(datum) => Some(Key::Const(datum.clone())),
            _ => None,
        }
    }

    #[inline]
    fn value<'a>(&'a self, parameters: &'a [Datum]) -> Value<'a> {
        match self {
            Key::Param(i) => parameters[usize::from(*i)].as_value(),
            Key::Const(datum) => datum.as_value(),
        }
    }
}

/// Integers that one column of the key shall have, each in turn.
#[derive(Debug)]
struct List {
    /// Which column.
    varying: usize,
    items: Vec<Key>,
}

/// A SELECT of columns of at most one row, found by a unique index, or of one for each item of a list.
#[derive(Debug)]
pub struct Point {
    lookup: Lookup,
    /// What stands for the varying one is not looked at.
    keys: Vec<Key>,
    list: Option<List>,
    /// The one parameter that is the key, if the key is an integer.
    only: Option<u16>,
    output: Vec<Output>,
}

#[derive(Debug)]
enum Output {
    Integer(IntegerWord),
    Other(u16),
}

impl Point {
    /// The query as a lookup, if it is one.
    pub fn of(query: &Query) -> Option<Point> {
        let [step] = query.steps.as_slice() else { return None };
        let is_plain = step.filter.is_empty()
            && step.outer.is_none()
            && query.precondition.is_empty()
            && query.grouping.is_none()
            && query.limit.is_none()
            && query.offset.is_none()
            && query.locks.is_empty()
            && query.sort.is_empty()
            && !query.distinct;
        let (index, keys, list) = match &step.access {
            Access::Unique { index, keys } => (index, keys, None),
            Access::Points { index, keys, varying, list: access::List::Values(list) } => {
                (index, keys, Some((*varying, list)))
            }
            _ => return None,
        };
        if !is_plain || !index.def.unique {
            return None;
        }
        let table = query.tables[usize::from(step.source)].as_ref()?;
        let list = match list {
            None => None,
            Some((varying, items)) => {
                let column = index.spec.columns().nth(varying)?.column;
                if !is_integer(table.layout.column_type(usize::from(column))) {
                    return None;
                }
                let items = items.iter().map(|key| Key::of(key.leaf()?)).collect::<Option<Vec<_>>>()?;
                Some(List { varying, items })
            }
        };
        let keys = keys.iter().map(|key| Key::of(key.leaf()?)).collect::<Option<Vec<_>>>()?;
        let output = query.output.iter().map(|expr| match expr {
            Expr::Column { source, column } if *source == step.source => Some(*column),
            _ => None,
        });
        let output = output.collect::<Option<Vec<_>>>()?;
        let lookup = Lookup::new(table, index, output.iter().copied());
        let only = match (keys.as_slice(), &list) {
            ([Key::Param(i)], None) if lookup.has_integer_key() => Some(*i),
            _ => None,
        };
        let place = |column| table.layout.integer_word(column).map_or(Output::Other(column), Output::Integer);
        let output = output.into_iter().map(place).collect();
        Some(Point { lookup, keys, list, only, output })
    }

    /// Starts loading what `run` will want first.
    #[inline]
    pub fn prefetch(&self, parameters: &[Datum]) {
        if let Some(i) = self.only
            && let Some(Datum::Int(key)) = parameters.get(usize::from(i))
        {
            self.lookup.prefetch_integer(*key);
        }
    }

    /// The parameter that is the key, if the key is an integer.
    #[inline]
    pub fn key_parameter(&self) -> Option<u16> {
        self.only
    }

    /// Starts loading what a later `run` with this key will want.
    #[inline]
    pub fn load_ahead(&self, key: i64, what: Ahead) {
        match what {
            Ahead::Entry => self.lookup.prefetch_integer(key),
            Ahead::Row => self.lookup.prefetch_row_of_integer(key),
        }
    }

    /// Reads the row of an integer key as a transaction of its own, if its newest version is durable and all is as it mostly is: whether it is in
    /// `row`. If not, `run` is to tell.
    #[inline]
    pub fn look_up_newest(&self, engine: &mut Session, parameters: &[Datum], row: &mut Row) -> bool {
        match self.only.map(|i| &parameters[usize::from(i)]) {
            Some(Datum::Int(key)) => engine.look_up_newest(&self.lookup, *key, row).is_some(),
            _ => false,
        }
    }

    /// The cells of the row that `look_up_newest` has found.
    #[inline]
    pub fn give_found(&self, row: &Row, rows: &mut RowSet) -> Result<(), SqlError> {
        self.give(row, rows)
    }

    /// Reads the row within the session's transaction; its cells go to `rows`.
    #[inline]
    pub fn run(
        &self,
        engine: &mut Session,
        parameters: &[Datum],
        scratch: &mut PointScratch,
        rows: &mut RowSet,
    ) -> Result<(), SqlError> {
        let row = &mut scratch.row;
        let found = match self.only.map(|i| &parameters[usize::from(i)]) {
            Some(Datum::Int(key)) => engine.look_up_integer(&self.lookup, *key, row),
            _ => return self.run_other(engine, parameters, scratch, rows),
        };
        if found.is_some() { self.give(row, rows) } else { Ok(()) }
    }

    /// A list, a key of several columns or of another type, a null.
    #[inline(never)]
    fn run_other(
        &self,
        engine: &mut Session,
        parameters: &[Datum],
        scratch: &mut PointScratch,
        rows: &mut RowSet,
    ) -> Result<(), SqlError> {
        if let Some(list) = &self.list {
            return self.run_list(list, engine, parameters, scratch, rows);
        }
        if self.keys.iter().any(|key| key.value(parameters).is_null()) {
            return Ok(());
        }
        let value = |i: usize| self.keys[i].value(parameters);
        match engine.look_up(&self.lookup, value, &mut scratch.row) {
            Some(_) => self.give(&scratch.row, rows),
            None => Ok(()),
        }
    }

    #[inline]
    fn give(&self, row: &Row, rows: &mut RowSet) -> Result<(), SqlError> {
        for output in &self.output {
            match *output {
                Output::Integer(at) => rows.push_integer(row.integer(at)),
                Output::Other(column) => rows.push_column(&self.lookup.table().layout, row, usize::from(column)),
            }
        }
        rows.finish_row()
    }

    /// In order of the list's values, each once, as the longer way gives them.
    #[inline(never)]
    fn run_list(
        &self,
        list: &List,
        engine: &mut Session,
        parameters: &[Datum],
        scratch: &mut PointScratch,
        rows: &mut RowSet,
    ) -> Result<(), SqlError> {
        let is_varying = |i: usize| i == list.varying;
        if self.keys.iter().enumerate().any(|(i, key)| !is_varying(i) && key.value(parameters).is_null()) {
            return Ok(());
        }
        let PointScratch { row, integers } = scratch;
        integers.clear();
        integers.extend(list.items.iter().filter_map(|item| match item.value(parameters) {
            Value::Int(v) => Some(v),
            _ => None,
        }));
        integers.sort_unstable();
        integers.dedup();
        let value = |at: usize, i: usize| {
            if is_varying(i) { Value::Int(integers[at]) } else { self.keys[i].value(parameters) }
        };
        self.give_many(engine, integers.len(), value, row, rows, |_, _| {})
    }

    /// Reads the rows of many keys; `each` learns which of them have one, and how many rows there are then.
    #[inline]
    fn give_many<'a>(
        &self,
        engine: &mut Session,
        count: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
        row: &mut Row,
        rows: &mut RowSet,
        mut each: impl FnMut(usize, &RowSet),
    ) -> Result<(), SqlError> {
        let mut given = Ok(());
        engine.look_up_many(&self.lookup, count, value, row, |at, _, row| {
            if given.is_ok() {
                given = self.give(row, rows);
                each(at, rows);
            }
        });
        given
    }

    /// Whether `run_many` can run it.
    pub fn is_single(&self) -> bool {
        self.list.is_none()
    }

    /// Reads the row of each of many sets of parameters; `ends` learns how many rows there are after each.
    pub fn run_many(
        &self,
        engine: &mut Session,
        sets: &[&[Datum]],
        scratch: &mut PointScratch,
        rows: &mut RowSet,
        ends: &mut Vec<usize>,
    ) -> Result<(), SqlError> {
        // A key with a null matches no row.
        let value = |at: usize, i: usize| self.keys[i].value(sets[at]);
        let given = self.give_many(engine, sets.len(), value, &mut scratch.row, rows, |at, rows| {
            ends.resize(at, rows.len() - 1);
            ends.push(rows.len());
        });
        ends.resize(sets.len(), rows.len());
        given
    }
}

fn is_integer(ty: Type) -> bool {
    let ty = ty.unrounded();
    matches!(ty, Type::Int2 | Type::Int4 | Type::Int8 | Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz)
}

/// What runs reuse.
#[derive(Default)]
pub struct PointScratch {
    row: Row,
    integers: Vec<i64>,
}

impl PointScratch {
    /// What it takes beside itself.
    pub fn spare_bytes(&self) -> usize {
        self.row.spare_bytes() + self.integers.capacity() * size_of::<i64>()
    }
}
