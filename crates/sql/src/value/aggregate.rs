//! What do the aggregates give that need all their rows? They gather their arguments, sorted and without duplicates where they are asked
//! for so, and compute at the end.

mod statistics;

use super::array::Array;
use super::cast::{self, is_float, is_implicit, is_integer, is_numeric, is_text};
use super::function::json as documents;
use super::interval::Interval;
use super::json::{self, Json};
use super::numeric::Numeric;
use super::pgtype::NUMERIC;
use super::zone::Clock;
use super::{Datum, text};
use crate::bind::record::RECORD;
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};
use std::cmp::Ordering;

pub use statistics::Statistic;

/// What is computed of all rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Gathered {
    StringAgg,
    ArrayAgg,
    BitAnd,
    BitOr,
    BitXor,
    SumInterval,
    AvgInterval,
    Statistic(Statistic),
    /// Ordered-set aggregates: a fraction (or fractions), then the value that rows are ordered by.
    PercentileCont,
    PercentileDisc,
    Mode,
    /// Hypothetical rows: what they would be, then the values that rows are ordered by.
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    JsonAgg,
    JsonbAgg,
    JsonObjectAgg,
    JsonbObjectAgg,
    AnyValue,
}

/// An aggregate for given argument types.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Signature {
    pub what: Gathered,
    /// What the arguments must be cast to; of an ordered-set aggregate the values that rows are ordered by come last.
    pub arguments: Vec<Type>,
    pub result: Type,
}

impl Gathered {
    pub fn named(name: &str) -> Option<Gathered> {
        Some(match name {
            "string_agg" => Gathered::StringAgg,
            "array_agg" => Gathered::ArrayAgg,
            "bit_and" => Gathered::BitAnd,
            "bit_or" => Gathered::BitOr,
            "bit_xor" => Gathered::BitXor,
            "percentile_cont" => Gathered::PercentileCont,
            "percentile_disc" => Gathered::PercentileDisc,
            "mode" => Gathered::Mode,
            "json_agg" => Gathered::JsonAgg,
            "jsonb_agg" => Gathered::JsonbAgg,
            "json_object_agg" => Gathered::JsonObjectAgg,
            "jsonb_object_agg" => Gathered::JsonbObjectAgg,
            _ => return Statistic::named(name).map(Gathered::Statistic),
        })
    }

    /// `rank(...) WITHIN GROUP` and its like, which are window functions without it.
    pub fn hypothetical(name: &str) -> Option<Gathered> {
        Some(match name {
            "rank" => Gathered::Rank,
            "dense_rank" => Gathered::DenseRank,
            "percent_rank" => Gathered::PercentRank,
            "cume_dist" => Gathered::CumeDist,
            _ => return None,
        })
    }

    /// Whether its rows are ordered within the group, and the last arguments are what they are ordered by.
    pub fn is_ordered_set(self) -> bool {
        use Gathered::*;
        matches!(self, PercentileCont | PercentileDisc | Mode) || self.is_hypothetical()
    }

    pub fn is_hypothetical(self) -> bool {
        matches!(self, Gathered::Rank | Gathered::DenseRank | Gathered::PercentRank | Gathered::CumeDist)
    }

    /// Whether a row with a null in its only argument, or in one of two, counts.
    fn takes_nulls(self) -> bool {
        use Gathered::*;
        matches!(self, ArrayAgg | JsonAgg | JsonbAgg | JsonObjectAgg | JsonbObjectAgg) || self.is_hypothetical()
    }

    /// The types to cast to, and of the result; `None` where there is no such aggregate.
    pub fn resolve(self, given: &[Option<Type>]) -> Option<Signature> {
        let plain: Vec<Option<Type>> = given.iter().map(|ty| ty.map(Type::unrounded)).collect();
        let given = plain.as_slice();
        let known = |at: usize| given.get(at).map(|ty| ty.unwrap_or(Type::Text));
        let text = |at: usize| given.get(at).is_some_and(|ty| ty.is_none_or(is_text));
        let (arguments, result): (Vec<Type>, Type) = match (self, given.len()) {
            (Gathered::StringAgg, 2) if given.contains(&Some(Type::Bytea)) => (vec![Type::Bytea; 2], Type::Bytea),
            (Gathered::StringAgg, 2) if text(0) && text(1) => (vec![Type::Text; 2], Type::Text),
            (Gathered::ArrayAgg, 1) => {
                let of = cast::without_modifier(known(0)?.as_array());
                let of = if matches!(of, Type::Varchar(_)) && given[0].is_none() { Type::Text } else { of };
                (vec![of], Type::array_of(of))
            }
            (Gathered::BitAnd | Gathered::BitOr | Gathered::BitXor, 1) if given[0].is_some_and(is_integer) => {
                (vec![known(0)?], known(0)?)
            }
            (Gathered::SumInterval | Gathered::AvgInterval, 1) => (vec![Type::Interval], Type::Interval),
            (Gathered::Statistic(statistic), count) => return statistic.resolve(given, count),
            (Gathered::PercentileCont | Gathered::PercentileDisc, 2) => {
                let many = matches!(given[0], Some(Type::Array(_)));
                // An array of arrays is no type.
                if many && matches!(known(1)?.as_array(), Type::Array(_)) {
                    return None;
                }
                let fraction = if many { Type::array_of(Type::Float8) } else { Type::Float8 };
                let value = match (self, known(1)?) {
                    (Gathered::PercentileDisc, ty) => cast::without_modifier(ty),
                    (_, Type::Interval) => Type::Interval,
                    (_, ty) if is_implicit(ty, Type::Float8) => Type::Float8,
                    _ => return None,
                };
                (vec![fraction, value], if many { Type::array_of(value) } else { value })
            }
            (Gathered::Mode, 1) => {
                let ty = cast::without_modifier(known(0)?);
                (vec![ty], ty)
            }
            (Gathered::Rank | Gathered::DenseRank | Gathered::PercentRank | Gathered::CumeDist, count)
                if count > 0 && count.is_multiple_of(2) =>
            {
                let rows: Vec<Type> = (count / 2..count).map(known).collect::<Option<_>>()?;
                let result = match self {
                    Gathered::Rank | Gathered::DenseRank => Type::Int8,
                    _ => Type::Float8,
                };
                (rows.iter().chain(&rows).map(|ty| cast::without_modifier(*ty)).collect(), result)
            }
            (Gathered::JsonAgg, 1) => (vec![known(0)?.as_array()], Type::Json),
            (Gathered::JsonbAgg, 1) => (vec![known(0)?.as_array()], Type::Jsonb),
            (Gathered::JsonObjectAgg, 2) => (vec![known(0)?, known(1)?], Type::Json),
            (Gathered::JsonbObjectAgg, 2) => (vec![known(0)?, known(1)?], Type::Jsonb),
            _ => return None,
        };
        let fits = given.iter().zip(&arguments).all(|(ty, to)| ty.is_none_or(|ty| is_implicit(ty, *to)));
        fits.then_some(Signature { what: self, arguments, result })
    }
}

impl Signature {
    /// Whether a row with these arguments counts.
    pub fn takes(&self, row: &[Datum]) -> bool {
        if self.what.takes_nulls() {
            return true;
        }
        match self.what {
            // A null fraction makes the result null; a null separator is an empty one.
            Gathered::PercentileCont | Gathered::PercentileDisc => row[1] != Datum::Null,
            Gathered::StringAgg => row[0] != Datum::Null,
            _ => !row[..self.arguments.len()].contains(&Datum::Null),
        }
    }

    /// The result over rows in their order; each begins with the arguments.
    pub fn finish(&self, rows: &[Vec<Datum>], clock: &Clock) -> Result<Datum, SqlError> {
        let counts_nothing = self.what.is_hypothetical() || self.what == Gathered::Statistic(Statistic::RegrCount);
        if rows.is_empty() && !counts_nothing {
            return Ok(Datum::Null);
        }
        let of = self.arguments[0];
        match self.what {
            Gathered::StringAgg => Ok(string_agg(rows)),
            Gathered::ArrayAgg => {
                let items: Vec<Datum> = rows.iter().map(|row| row[0].clone()).collect();
                match of {
                    Type::Array(element) => nested(*element, &items),
                    of => Ok(Array::of(items).to_datum(of)),
                }
            }
            Gathered::BitAnd => Ok(bits(rows, |a, b| a & b)),
            Gathered::BitOr => Ok(bits(rows, |a, b| a | b)),
            Gathered::BitXor => Ok(bits(rows, |a, b| a ^ b)),
            Gathered::SumInterval | Gathered::AvgInterval => {
                let mut sum = Interval::default();
                for row in rows {
                    sum = sum.plus(interval(&row[0]))?;
                }
                if self.what == Gathered::AvgInterval {
                    sum = sum.divided(rows.len() as f64)?;
                }
                Ok(Datum::Bytes(sum.to_stored()))
            }
            Gathered::Statistic(statistic) => statistic.finish(of, rows),
            Gathered::PercentileCont | Gathered::PercentileDisc => self.percentiles(rows),
            Gathered::Mode => Ok(mode(of, rows)),
            Gathered::Rank | Gathered::DenseRank | Gathered::PercentRank | Gathered::CumeDist => {
                unreachable!("invariant: hypothetical rows are placed by `place`")
            }
            Gathered::JsonAgg | Gathered::JsonbAgg => self.document(rows, clock),
            Gathered::JsonObjectAgg | Gathered::JsonbObjectAgg => self.object(rows, clock),
            Gathered::AnyValue => Ok(rows[0][0].clone()),
        }
    }

    /// Where a hypothetical row would stand: how many rows come before it, how many equal it, how many different ones come before.
    pub fn place(&self, rows: usize, before: usize, equal: usize, different: usize) -> Datum {
        match self.what {
            Gathered::Rank => Datum::Int(before as i64 + 1),
            Gathered::DenseRank => Datum::Int(different as i64 + 1),
            Gathered::PercentRank if rows == 0 => Datum::Float(0.0),
            Gathered::PercentRank => Datum::Float(before as f64 / rows as f64),
            _ => Datum::Float((before + equal + 1) as f64 / (rows + 1) as f64),
        }
    }

    fn percentiles(&self, rows: &[Vec<Datum>]) -> Result<Datum, SqlError> {
        let of = self.arguments[1];
        let one = |fraction: &Datum| match fraction {
            Datum::Float(fraction) => self.percentile(*fraction, rows),
            _ => Ok(Datum::Null),
        };
        match (&rows[0][0], self.arguments[0]) {
            (Datum::Bytes(stored), Type::Array(element)) => {
                let Array { dimensions, items } = Array::from_stored(*element, stored);
                let items = items.iter().map(one).collect::<Result<_, _>>()?;
                Ok(Array { dimensions, items }.to_datum(of))
            }
            (fraction, _) => one(fraction),
        }
    }

    fn percentile(&self, fraction: f64, rows: &[Vec<Datum>]) -> Result<Datum, SqlError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(SqlError::new("22003", format!("percentile value {fraction} is not between 0 and 1")));
        }
        if self.what == Gathered::PercentileDisc {
            let at = (fraction * rows.len() as f64).ceil().max(1.0) as usize - 1;
            return Ok(rows[at.min(rows.len() - 1)][1].clone());
        }
        let place = fraction * (rows.len() - 1) as f64;
        let (low, high) = (&rows[place.floor() as usize][1], &rows[place.ceil() as usize][1]);
        let part = place - place.floor();
        Ok(match (low, high) {
            (Datum::Float(low), Datum::Float(high)) if place.floor() == place.ceil() => {
                let _ = high;
                Datum::Float(*low)
            }
            (Datum::Float(low), Datum::Float(high)) => Datum::Float(low + part * (high - low)),
            (low, high) => {
                let (low, high) = (interval(low), interval(high));
                Datum::Bytes(low.plus(high.minus(low)?.times(part)?)?.to_stored())
            }
        })
    }

    fn document(&self, rows: &[Vec<Datum>], clock: &Clock) -> Result<Datum, SqlError> {
        if self.result == Type::Jsonb {
            let items = rows.iter().map(|row| documents::to_json(self.arguments[0], &row[0].as_value(), clock));
            return Ok(Json::Array(items.collect::<Result<_, _>>()?).to_datum());
        }
        let mut out = vec![b'['];
        // PostgreSQL begins a line for each row and each array.
        let is_wide = matches!(self.arguments[0], Type::Array(_) | RECORD);
        for (i, row) in rows.iter().enumerate() {
            let is_line = is_wide && row[0] != Datum::Null;
            out.extend_from_slice(match (i, is_line) {
                (0, _) => b"",
                (_, true) => b", \n ",
                (_, false) => b", ",
            });
            documents::write_json(self.arguments[0], &row[0].as_value(), clock, &mut out);
        }
        out.push(b']');
        Ok(Datum::Bytes(out.into()))
    }

    fn object(&self, rows: &[Vec<Datum>], clock: &Clock) -> Result<Datum, SqlError> {
        let key = |row: &[Datum]| -> Result<String, SqlError> {
            if row[0] == Datum::Null {
                return Err(SqlError::new("22023", "field name must not be null"));
            }
            let mut out = Vec::new();
            // Moments are written as in documents.
            if matches!(self.arguments[0], Type::Date | Type::Timestamp | Type::Timestamptz) {
                documents::write_json(self.arguments[0], &row[0].as_value(), clock, &mut out);
                return Ok(String::from_utf8_lossy(&out).trim_matches('"').to_owned());
            }
            text::write(self.arguments[0], &row[0].as_value(), clock, &mut out);
            Ok(String::from_utf8_lossy(&out).into_owned())
        };
        if self.result == Type::Jsonb {
            let pair =
                |row: &Vec<Datum>| Ok((key(row)?, documents::to_json(self.arguments[1], &row[1].as_value(), clock)?));
            return Ok(Json::object(rows.iter().map(pair).collect::<Result<_, SqlError>>()?).to_datum());
        }
        let mut out = b"{ ".to_vec();
        for (i, row) in rows.iter().enumerate() {
            out.extend_from_slice(if i > 0 { b", " } else { b"" });
            json::write_string(&key(row)?, &mut out);
            out.extend_from_slice(b" : ");
            documents::write_json(self.arguments[1], &row[1].as_value(), clock, &mut out);
        }
        out.extend_from_slice(b" }");
        Ok(Datum::Bytes(out.into()))
    }
}

fn interval(datum: &Datum) -> Interval {
    match datum {
        Datum::Bytes(stored) => Interval::from_stored(stored),
        other => panic!("invariant: an interval has its form: {other:?}"),
    }
}

/// The first separator stands before no value.
fn string_agg(rows: &[Vec<Datum>]) -> Datum {
    let mut out = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        if let (true, Datum::Bytes(separator)) = (i > 0, &row[1]) {
            out.extend_from_slice(separator);
        }
        if let Datum::Bytes(value) = &row[0] {
            out.extend_from_slice(value);
        }
    }
    Datum::Bytes(out.into())
}

fn nested(element: Type, items: &[Datum]) -> Result<Datum, SqlError> {
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Datum::Bytes(stored) => parts.push(Array::from_stored(element, stored)),
            _ => return Err(SqlError::new("22004", "cannot accumulate null arrays")),
        }
    }
    if parts.iter().any(|part| part.dimensions.is_empty()) {
        return Err(SqlError::new("2202E", "cannot accumulate empty arrays"));
    }
    let first = parts[0].dimensions.clone();
    if parts.iter().any(|part| part.dimensions != first) {
        return Err(SqlError::new("2202E", "cannot accumulate arrays of different dimensionality"));
    }
    Ok(Array::nested(parts)?.to_datum(element))
}

fn bits(rows: &[Vec<Datum>], fold: impl Fn(i64, i64) -> i64) -> Datum {
    let values = rows.iter().filter_map(|row| if let Datum::Int(v) = row[0] { Some(v) } else { None });
    values.reduce(fold).map_or(Datum::Null, Datum::Int)
}

/// The value that comes most often; the first of several. The rows are in order.
fn mode(of: Type, rows: &[Vec<Datum>]) -> Datum {
    let (mut best, mut most) = (0, 0);
    let mut start = 0;
    for at in 0..rows.len() {
        if of.compare(&rows[at][0].as_value(), &rows[start][0].as_value()) != Ordering::Equal {
            start = at;
        }
        if at - start + 1 > most {
            (best, most) = (start, at - start + 1);
        }
    }
    rows[best][0].clone()
}

/// A number as the statistics of numerics count it.
fn number(of: Type, value: &Value<'_>) -> Numeric {
    cast::to_numeric(of, value).unwrap_or(Numeric::NaN)
}

fn counts_as_numeric(of: Type) -> bool {
    is_integer(of) || is_numeric(of)
}

fn result_of(of: Type) -> Type {
    if is_float(of) { Type::Float8 } else { NUMERIC }
}
