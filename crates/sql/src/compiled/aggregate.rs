//! How are rows folded? count, sum, avg, min, max and their like, by groups in a hash map.

use super::query::Query;
use super::{Flow, Halt, Run};
use crate::charge::Charge;
use crate::error::SqlError;
use crate::expr::{Expr, Frame, evaluate, test};
use crate::value::Datum;
use crate::value::cast::has_forms;
use crate::value::numeric::{Numeric, NumericSum};
use crate::value::pgtype::NUMERIC;
use freshet_engine::schema::{NetworkKind, OidKind, Type, Value};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
    /// Of all the rows, with its arguments in [`Aggregate::gathered`]; not on the compiled road.
    Gathered,
}

impl AggregateFunction {
    pub fn named(name: &str) -> Option<AggregateFunction> {
        Some(match name {
            "count" => AggregateFunction::Count,
            "sum" => AggregateFunction::Sum,
            "avg" => AggregateFunction::Avg,
            "min" => AggregateFunction::Min,
            "max" => AggregateFunction::Max,
            "bool_and" | "every" => AggregateFunction::BoolAnd,
            "bool_or" => AggregateFunction::BoolOr,
            _ => return None,
        })
    }

    /// 42725 for a literal without a type, where the function is there for several.
    pub fn check_known(self, name: &str) -> Result<(), SqlError> {
        if !matches!(self, AggregateFunction::Sum | AggregateFunction::Avg) {
            return Ok(());
        }
        let message = format!("function {name}(unknown) is not unique");
        Err(SqlError::new("42725", message)
            .with_hint("Could not choose a best candidate function. You might need to add explicit type casts."))
    }

    /// What the argument is cast to (`None`: taken as it is), and the result's type; `None` where there is no such aggregate.
    pub fn types(self, arg: Option<Type>) -> Option<(Option<Type>, Type)> {
        use Type::*;
        let integer = |t| matches!(t, Int2 | Int4 | Int8);
        let decimal = |t| matches!(t, Decimal { .. } | Numeric { .. });
        match (self, arg) {
            (AggregateFunction::Count, _) => Some((None, Int8)),
            (_, None) | (AggregateFunction::Gathered, _) => None,
            (AggregateFunction::Sum, Some(Int2 | Int4)) => Some((None, Int8)),
            (AggregateFunction::Sum, Some(Int8)) => Some((None, NUMERIC)),
            (AggregateFunction::Sum, Some(t)) if decimal(t) => Some((None, NUMERIC)),
            (AggregateFunction::Sum, Some(t @ (Float4 | Float8))) => Some((None, t)),
            (AggregateFunction::Avg, Some(t)) if integer(t) || decimal(t) => Some((None, NUMERIC)),
            (AggregateFunction::Avg, Some(Float4 | Float8)) => Some((None, Float8)),
            (AggregateFunction::Sum | AggregateFunction::Avg, _) => None,
            (AggregateFunction::Min | AggregateFunction::Max, Some(t)) => match t {
                Bool | Uuid | Bytea | Json | Jsonb | Network(NetworkKind::Mac | NetworkKind::Mac8) => None,
                Network(_) => Some((Some(Network(NetworkKind::Inet)), Network(NetworkKind::Inet))),
                Varchar(_) | Name | CharByte => Some((Some(Text), Text)),
                Oid(OidKind::Xid | OidKind::Cid) | System(_) => None,
                Oid(_) => Some((Some(Oid(OidKind::Oid)), Oid(OidKind::Oid))),
                t => Some((None, t)),
            },
            (AggregateFunction::BoolAnd | AggregateFunction::BoolOr, Some(Bool)) => Some((None, Bool)),
            (AggregateFunction::BoolAnd | AggregateFunction::BoolOr, _) => None,
        }
    }
}

/// An aggregate over the rows of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    pub function: AggregateFunction,
    /// `None`: `count(*)`.
    pub arg: Option<(Expr, Type)>,
    pub distinct: bool,
    pub filter: Option<Expr>,
    pub gathered: Option<Box<Gathers>>,
}

impl Aggregate {
    /// Whether it is of a column or cell of a source that `is` tells.
    pub fn mentions(&self, is: impl Fn(u16) -> bool) -> bool {
        let own = self.arg.iter().map(|(expr, _)| expr).chain(&self.filter);
        let gathered = self.gathered.iter().flat_map(|g| g.args.iter().chain(g.order.iter().map(|(expr, _)| expr)));
        own.chain(gathered).any(|expr| expr.mentions(&is))
    }
}

/// An aggregate of all its rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Gathers {
    pub signature: crate::value::aggregate::Signature,
    pub args: Vec<Expr>,
    pub order: Vec<(Expr, super::sort::KeyOrder)>,
}

impl Gathers {
    pub fn each_expr(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        self.args.iter_mut().for_each(&mut *f);
        self.order.iter_mut().for_each(|(expr, _)| f(expr));
    }
}

/// GROUP BY: keys and aggregates. Its result is a computed row: the keys, then the aggregates.
#[derive(Clone, Debug)]
pub struct Grouping {
    pub keys: Vec<(Expr, Type)>,
    pub aggregates: Vec<Aggregate>,
    pub having: Option<Expr>,
    pub ends: Option<Ends>,
}

/// Of rows that come in the order of a value, min() or max() of it wants the first that has one.
#[derive(Clone, Debug)]
pub struct Ends {
    pub value: Expr,
    /// The same rows from the other end, where both are asked for.
    pub other: Option<Box<Query>>,
}

impl Grouping {
    /// Whether what it keeps grows with the rows.
    pub fn is_unbounded(&self) -> bool {
        !self.keys.is_empty() || self.aggregates.iter().any(|a| a.distinct)
    }
}

enum State {
    Count(i64),
    /// sum(smallint), sum(integer): bigint.
    Integer(Option<i64>),
    Float {
        sum: f64,
        count: i64,
    },
    Decimal(NumericSum),
    Best(Datum),
    Truth(Option<bool>),
}

struct Accumulator {
    state: State,
    seen: Option<HashSet<Box<[u8]>>>,
}

impl Accumulator {
    fn new(aggregate: &Aggregate) -> Accumulator {
        let ty = aggregate.arg.as_ref().map(|(_, ty)| *ty);
        let state = match (aggregate.function, ty) {
            (AggregateFunction::Count, _) => State::Count(0),
            (AggregateFunction::Min | AggregateFunction::Max, _) => State::Best(Datum::Null),
            (AggregateFunction::BoolAnd | AggregateFunction::BoolOr, _) => State::Truth(None),
            (_, Some(Type::Float4 | Type::Float8)) => State::Float { sum: 0.0, count: 0 },
            (AggregateFunction::Sum, Some(Type::Int2 | Type::Int4)) => State::Integer(None),
            _ => State::Decimal(NumericSum::default()),
        };
        Accumulator { state, seen: aggregate.distinct.then(HashSet::new) }
    }

    /// Takes a row; gives the bytes that it takes from now on.
    fn add(&mut self, aggregate: &Aggregate, frame: &Frame<'_>) -> Result<u64, SqlError> {
        if let Some(filter) = &aggregate.filter
            && !test(filter, frame)?
        {
            return Ok(0);
        }
        let Some((arg, ty)) = &aggregate.arg else {
            if let State::Count(n) = &mut self.state {
                *n += 1;
            }
            return Ok(0);
        };
        let scalar = evaluate(arg, frame)?;
        let value = scalar.value();
        let mut bytes = 0;
        if value.is_null() {
            return Ok(0);
        }
        if let Some(seen) = &mut self.seen {
            let mut key = Vec::new();
            encode_key(*ty, &value, &mut key);
            let more = HASHED_KEY_BYTES + key.len() as u64;
            if !seen.insert(key.into()) {
                return Ok(0);
            }
            bytes = more;
        }
        self.state.add(aggregate.function, *ty, &value)?;
        Ok(bytes)
    }

    fn result(&self, aggregate: &Aggregate) -> Result<Datum, SqlError> {
        let average = aggregate.function == AggregateFunction::Avg;
        Ok(match &self.state {
            State::Count(n) => Datum::Int(*n),
            State::Integer(sum) => sum.map_or(Datum::Null, Datum::Int),
            State::Float { count: 0, .. } => Datum::Null,
            State::Float { sum, count } if average => Datum::Float(sum / *count as f64),
            State::Float { sum, .. } => match aggregate.arg {
                Some((_, Type::Float4)) => Datum::Float(f64::from(*sum as f32)),
                _ => Datum::Float(*sum),
            },
            State::Decimal(sum) => {
                let number = if average { sum.average()? } else { sum.sum()? };
                number.map_or(Datum::Null, |n| Datum::Bytes(n.to_stored()))
            }
            State::Best(best) => best.clone(),
            State::Truth(truth) => truth.map_or(Datum::Null, Datum::Bool),
        })
    }
}

impl State {
    fn add(&mut self, function: AggregateFunction, ty: Type, value: &Value<'_>) -> Result<(), SqlError> {
        match (self, value) {
            (State::Count(n), _) => *n += 1,
            (State::Integer(sum), Value::Int(v)) => {
                let total = sum.unwrap_or(0).checked_add(*v);
                *sum = Some(total.ok_or_else(|| SqlError::new("22003", "bigint out of range"))?);
            }
            (State::Float { sum, count }, Value::Float(v)) => {
                *sum += v;
                *count += 1;
            }
            (State::Decimal(sum), Value::Int(v)) => sum.add_decimal(i128::from(*v), 0)?,
            (State::Decimal(sum), Value::Decimal(v)) => {
                let scale = match ty {
                    Type::Decimal { scale, .. } => scale,
                    _ => 0,
                };
                sum.add_decimal(*v, scale)?;
            }
            (State::Decimal(sum), Value::Bytes(stored)) => sum.add(&Numeric::from_stored(stored))?,
            (State::Best(best), value) => {
                let wanted = if function == AggregateFunction::Min { Ordering::Less } else { Ordering::Greater };
                let order = |best: &Datum| ty.compare(value, &best.as_value());
                // Of equal values the last is told; where they look the same it need not be kept.
                let is_taken = |order| order == wanted || order == Ordering::Equal && has_forms(ty);
                if matches!(best, Datum::Null) || is_taken(order(best)) {
                    *best = Datum::from(*value);
                }
            }
            (State::Truth(truth), Value::Bool(v)) => {
                *truth = Some(match (*truth, function) {
                    (None, _) => *v,
                    (Some(t), AggregateFunction::BoolAnd) => t && *v,
                    (Some(t), _) => t || *v,
                });
            }
            (_, other) => unreachable!("invariant: an argument has its aggregate's form: {other:?}"),
        }
        Ok(())
    }
}

/// Appends bytes that are equal exactly for values that are equal, nulls included.
pub fn encode_key(ty: Type, value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::Null => out.push(0),
        Value::Bool(v) => out.extend([1, u8::from(v)]),
        Value::Int(v) => {
            out.push(1);
            out.extend(v.to_le_bytes());
        }
        Value::Float(v) => {
            out.push(1);
            let v = if v.is_nan() {
                f64::NAN
            } else if v == 0.0 {
                0.0
            } else {
                v
            };
            out.extend(v.to_bits().to_le_bytes());
        }
        Value::Decimal(v) => {
            out.push(1);
            out.extend(v.to_le_bytes());
        }
        Value::Uuid(v) => {
            out.push(1);
            out.extend(v.to_le_bytes());
        }
        Value::Bytes(v) => {
            let v = ty.key_bytes(v);
            out.push(1);
            out.extend((v.len() as u64).to_le_bytes());
            out.extend_from_slice(v);
        }
    }
}

struct Group {
    keys: Vec<Datum>,
    accumulators: Vec<Accumulator>,
}

/// The groups so far, in the order in which they came up.
pub struct Groups<'q> {
    grouping: &'q Grouping,
    places: HashMap<Box<[u8]>, usize>,
    groups: Vec<Group>,
    key: Vec<u8>,
    bytes: u64,
    charge: Charge,
}

/// What a hash table takes for a key beyond its bytes: its place, twice while the table grows, and its allocation.
pub const HASHED_KEY_BYTES: u64 = 96;
/// What a group takes beyond its keys and accumulators.
const GROUP_BYTES: u64 = 2 * size_of::<Group>() as u64 + HASHED_KEY_BYTES + 32;

impl<'q> Groups<'q> {
    pub fn new(grouping: &'q Grouping, charge: Charge) -> Groups<'q> {
        let (places, groups) = (HashMap::new(), Vec::new());
        let mut groups = Groups { grouping, places, groups, key: Vec::new(), bytes: 0, charge };
        if grouping.keys.is_empty() {
            // Without GROUP BY there is one group, rows or not.
            groups.add_group(Vec::new());
        }
        groups
    }

    fn add_group(&mut self, keys: Vec<Datum>) -> usize {
        let aggregates = self.grouping.aggregates.iter();
        self.groups.push(Group { keys, accumulators: aggregates.map(Accumulator::new).collect() });
        self.groups.len() - 1
    }

    pub fn add(&mut self, frame: &Frame<'_>) -> Result<(), SqlError> {
        let grouping = self.grouping;
        let at = if grouping.keys.is_empty() { 0 } else { self.place(frame)? };
        let group = &mut self.groups[at];
        for (accumulator, aggregate) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            self.bytes += accumulator.add(aggregate, frame)?;
        }
        self.charge.reach(self.bytes)
    }

    fn place(&mut self, frame: &Frame<'_>) -> Result<usize, SqlError> {
        self.key.clear();
        for (expr, ty) in &self.grouping.keys {
            encode_key(*ty, &evaluate(expr, frame)?.value(), &mut self.key);
        }
        if let Some(&at) = self.places.get(self.key.as_slice()) {
            return Ok(at);
        }
        let mut keys = Vec::with_capacity(self.grouping.keys.len());
        for (expr, _) in &self.grouping.keys {
            keys.push(evaluate(expr, frame)?.into_datum());
        }
        self.bytes += GROUP_BYTES + self.key.len() as u64 + keys.iter().map(Datum::memory_bytes).sum::<u64>();
        self.bytes += (self.grouping.aggregates.len() * size_of::<Accumulator>()) as u64;
        self.charge.reach(self.bytes)?;
        let at = self.add_group(keys);
        self.places.insert(self.key.as_slice().into(), at);
        Ok(at)
    }

    /// Cells of a group's row.
    pub fn width(&self) -> usize {
        self.grouping.keys.len() + self.grouping.aggregates.len()
    }

    /// Gives each group's computed row, at source 0.
    pub fn finish(
        self,
        run: &mut Run<'_>,
        mut each: impl FnMut(&mut Run<'_>) -> Result<Flow, Halt>,
    ) -> Result<(), Halt> {
        for group in self.groups {
            run.row()?;
            let mut row = group.keys;
            for (accumulator, aggregate) in group.accumulators.iter().zip(&self.grouping.aggregates) {
                row.push(accumulator.result(aggregate)?);
            }
            run.scratch.cells[0] = row;
            if let Some(having) = &self.grouping.having
                && !test(having, &run.frame(&[]))?
            {
                continue;
            }
            if each(run)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}
