//! How are sums and averages taken as PostgreSQL takes them? `sum(integer)` is bigint, `sum(bigint)` and averages of whole numbers
//! are numeric, and a sum that does not fit is an error. Of values whose equals may be written differently also least and greatest: the last of
//! equal ones; of floats NaN is the greatest.
//!
//! A moving window's frame takes away what leaves it, where that is exact; sums of floats are folded anew over the frame, and of least and greatest
//! values those are kept that may yet be.

use super::cells::{Cells, Writer, data_type};
use super::compute::readable_one;
use super::fault::carried;
use crate::compiled::aggregate::encode_key;
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::cast::is_float;
use crate::value::numeric::{Numeric, NumericSum};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use freshet_engine::schema::{Type, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Sum,
    Average,
    Least,
    Greatest,
}

impl Kind {
    /// Whether a value stays the least or greatest beside one that comes later.
    fn is_better(self, ty: Type, value: &Value<'_>, later: &Value<'_>) -> bool {
        let wanted = if self == Kind::Least { Ordering::Less } else { Ordering::Greater };
        ty.compare(value, later) == wanted
    }
}

/// An aggregate over one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    kind: Kind,
    input: Type,
    result: Type,
    signature: Signature,
}

impl Fold {
    pub fn new(kind: Kind, input: Type, result: Type) -> Fold {
        Fold { kind, input, result, signature: Signature::any(1, Volatility::Immutable) }
    }

    /// `moves`: values leave again.
    fn start(&self, distinct: bool, moves: bool) -> Folding {
        let total = match (self.kind, self.input) {
            (Kind::Least | Kind::Greatest, _) => Total::Best(Datum::Null),
            (_, Type::Float4 | Type::Float8) => Total::Float { sum: 0.0, infinite: [0; 3] },
            (Kind::Sum, Type::Int2 | Type::Int4) => Total::Integer(0),
            _ => Total::Number(NumericSum::default()),
        };
        let Fold { kind, input, result, .. } = *self;
        let framed = (moves && matches!(input, Type::Numeric { .. })).then(FramedNumbers::default);
        Folding { kind, input, result, total, count: 0, seen: distinct.then(HashSet::new), framed }
    }
}

impl AggregateUDFImpl for Fold {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Sum => "sum",
            Kind::Average => "avg",
            Kind::Least => "min",
            Kind::Greatest => "max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.result))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.start(args.is_distinct, false)))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let folding = self.start(args.is_distinct, true);
        Ok(match (self.kind, self.input) {
            (Kind::Least | Kind::Greatest, _) => Box::new(FramedBest::new(folding)),
            (_, Type::Float4 | Type::Float8) => Box::new(Framed { empty: folding, values: VecDeque::new() }),
            _ => Box::new(folding),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part: &str, ty: DataType| Arc::new(Field::new(format!("{}[{part}]", args.name), ty, true));
        Ok(vec![field("sum", DataType::BinaryView), field("float", DataType::Float64), field("count", DataType::Int64)])
    }
}

#[derive(Clone, Debug)]
enum Total {
    /// Wide enough for 2^64 bigints.
    Integer(i128),
    Number(NumericSum),
    /// Infinities and NaN are counted apart (NaN, +, -).
    Float {
        sum: f64,
        infinite: [i64; 3],
    },
    /// The least or greatest value so far.
    Best(Datum),
}

#[derive(Clone)]
struct Folding {
    kind: Kind,
    input: Type,
    result: Type,
    total: Total,
    count: i64,
    seen: Option<HashSet<Box<[u8]>>>,
    /// Of a moving frame over numerics without a scale.
    framed: Option<FramedNumbers>,
}

/// What a sum cannot tell of the numbers that are in a frame: one that has left is not to be seen any more.
#[derive(Clone, Default, Debug)]
struct FramedNumbers {
    /// How many there are of each scale.
    scales: BTreeMap<u16, i64>,
    nan: i64,
    infinite: i64,
    negative_infinite: i64,
}

impl FramedNumbers {
    /// Whether the number is finite, and so one of the sum's.
    fn count(&mut self, number: &Numeric, sign: i64) -> bool {
        match number {
            Numeric::NaN => self.nan += sign,
            Numeric::Infinity => self.infinite += sign,
            Numeric::NegativeInfinity => self.negative_infinite += sign,
            Numeric::Finite(_) => {
                let of_scale = self.scales.entry(number.scale()).or_default();
                *of_scale += sign;
                if *of_scale == 0 {
                    self.scales.remove(&number.scale());
                }
                return true;
            }
        }
        false
    }

    /// The sum of those that are in the frame, as it is written.
    fn sum(&self, finite: Numeric) -> Result<Numeric, SqlError> {
        match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) => {
                let scale = self.scales.last_key_value().map_or(0, |(scale, _)| *scale);
                finite.round(scale.into())
            }
            (0, _, 0) => Ok(Numeric::Infinity),
            (0, 0, _) => Ok(Numeric::NegativeInfinity),
            _ => Ok(Numeric::NaN),
        }
    }
}

impl std::fmt::Debug for Folding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Folding({:?}, {} values)", self.input, self.count)
    }
}

impl Folding {
    fn each(&mut self, array: &ArrayRef, sign: i64) -> Result<()> {
        let cells = readable_one(array)?;
        for row in 0..array.len() {
            let value = cells.get(row);
            if value.is_null() || !self.is_new(&value) {
                continue;
            }
            self.count += sign;
            self.add(&value, sign).map_err(carried)?;
        }
        Ok(())
    }

    fn is_new(&mut self, value: &Value<'_>) -> bool {
        let Some(seen) = &mut self.seen else {
            return true;
        };
        let mut key = Vec::new();
        encode_key(self.input, value, &mut key);
        seen.insert(key.into())
    }

    fn add(&mut self, value: &Value<'_>, sign: i64) -> Result<(), SqlError> {
        match (&mut self.total, *value) {
            (Total::Integer(sum), Value::Int(v)) => *sum += i128::from(v) * i128::from(sign),
            (Total::Float { sum, infinite }, Value::Float(v)) => match v {
                v if v.is_nan() => infinite[0] += sign,
                f64::INFINITY => infinite[1] += sign,
                f64::NEG_INFINITY => infinite[2] += sign,
                v => *sum += v * sign as f64,
            },
            (Total::Best(best), value) => {
                let stays = !matches!(best, Datum::Null) && self.kind.is_better(self.input, &best.as_value(), &value);
                if !stays {
                    *best = Datum::from(value);
                }
            }
            (Total::Number(sum), Value::Int(v)) => sum.add_decimal(i128::from(v) * i128::from(sign), 0)?,
            (Total::Number(sum), Value::Decimal(v)) => {
                let scale = match self.input {
                    Type::Decimal { scale, .. } => scale,
                    _ => 0,
                };
                sum.add_decimal(v * i128::from(sign), scale)?;
            }
            (Total::Number(sum), Value::Bytes(stored)) => {
                let number = Numeric::from_stored(stored);
                if self.framed.as_mut().is_none_or(|framed| framed.count(&number, sign)) {
                    sum.add(&if sign < 0 { number.negated() } else { number })?;
                }
            }
            (_, other) => unreachable!("invariant: an argument has its aggregate's form: {other:?}"),
        }
        Ok(())
    }

    fn result(&self) -> Result<ScalarValue, SqlError> {
        let mut out = Writer::new(self.result, 1);
        if self.count == 0 {
            out.push(&Value::Null)?;
        } else {
            match &self.total {
                Total::Integer(sum) => {
                    let sum = i64::try_from(*sum).map_err(|_| SqlError::new("22003", "bigint out of range"))?;
                    out.push(&Value::Int(sum))?;
                }
                Total::Float { sum, infinite } => {
                    let sum = float_total(*sum, infinite);
                    let value = if self.kind == Kind::Average { sum / self.count as f64 } else { sum };
                    if value.is_infinite() && infinite[1] == 0 && infinite[2] == 0 {
                        return Err(SqlError::new("22003", "value out of range: overflow"));
                    }
                    out.push(&Value::Float(value))?;
                }
                Total::Best(best) => out.push(&best.as_value())?,
                Total::Number(sum) => {
                    let number = sum.sum()?.unwrap_or_else(Numeric::zero);
                    let number = match &self.framed {
                        Some(framed) => framed.sum(number)?,
                        None => number,
                    };
                    // The count is ours: values that left a window's frame were added with the other sign.
                    let number = match self.kind {
                        Kind::Average => number.div(&Numeric::from_i64(self.count))?,
                        _ => number,
                    };
                    out.push(&Value::Bytes(&number.to_stored()))?;
                }
            }
        }
        ScalarValue::try_from_array(&out.finish(), 0).map_err(super::fault::sql_error)
    }
}

fn float_total(sum: f64, infinite: &[i64; 3]) -> f64 {
    match infinite {
        [0, 0, 0] => sum,
        [0, _, 0] => f64::INFINITY,
        [0, 0, _] => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}

impl Accumulator for Folding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        self.seen.is_none()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.result().map_err(carried)
    }

    fn size(&self) -> usize {
        let seen = self.seen.as_ref().map_or(0, |s| s.iter().map(|k| k.len() + 32).sum());
        size_of::<Folding>() + 64 + seen
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (number, float) = match &self.total {
            Total::Integer(sum) => (Numeric::from_decimal(*sum, 0), 0.0),
            Total::Number(sum) => (sum.sum().map_err(carried)?.unwrap_or_else(Numeric::zero), 0.0),
            Total::Float { sum, infinite } => (Numeric::zero(), float_total(*sum, infinite)),
            Total::Best(Datum::Float(best)) => (Numeric::zero(), *best),
            Total::Best(_) => (Numeric::zero(), 0.0),
        };
        let stored = match &self.total {
            Total::Best(Datum::Bytes(best)) => best.clone(),
            _ => number.to_stored(),
        };
        let stored = ScalarValue::BinaryView(Some(stored.into()));
        Ok(vec![stored, ScalarValue::Float64(Some(float)), ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.seen.is_some() {
            return Err(carried(SqlError::unsupported("a distinct sum in parts")));
        }
        let numbers = readable_one(&states[0])?;
        let floats = readable_one(&states[1])?;
        let counts = states[2].as_primitive::<Int64Type>();
        for row in (0..states[0].len()).filter(|&row| counts.value(row) > 0) {
            self.merge(&numbers, &floats, row).map_err(carried)?;
            self.count += counts.value(row);
        }
        Ok(())
    }
}

impl Folding {
    fn merge(&mut self, numbers: &Cells<'_>, floats: &Cells<'_>, row: usize) -> Result<(), SqlError> {
        let (Value::Bytes(stored), float) = (numbers.get(row), floats.get(row)) else {
            return Ok(());
        };
        match &mut self.total {
            Total::Integer(sum) => *sum += Numeric::from_stored(stored).to_decimal(38, 0)?,
            Total::Number(sum) => sum.add(&Numeric::from_stored(stored))?,
            Total::Best(_) if !is_float(self.input) => self.add(&Value::Bytes(stored), 1)?,
            Total::Float { .. } | Total::Best(_) => self.add(&float, 1)?,
        }
        Ok(())
    }
}

/// The values of a moving frame, folded anew for each row: floats do not add and subtract to what they were.
#[derive(Debug)]
struct Framed {
    empty: Folding,
    values: VecDeque<Option<f64>>,
}

impl Accumulator for Framed {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let cells = readable_one(&values[0])?;
        self.values.extend((0..values[0].len()).map(|row| match cells.get(row) {
            Value::Float(v) => Some(v),
            _ => None,
        }));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.drain(..values[0].len());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut folding = self.empty.clone();
        for &value in self.values.iter().flatten() {
            let value = Value::Float(value);
            if folding.is_new(&value) {
                folding.count += 1;
                folding.add(&value, 1).map_err(carried)?;
            }
        }
        folding.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<Framed>() + self.values.capacity() * size_of::<Option<f64>>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(carried(SqlError::unsupported("a window's frame in parts")))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(carried(SqlError::unsupported("a window's frame in parts")))
    }
}

/// The values of a moving frame that are, or may yet be, its least or greatest: each is better than those behind it.
#[derive(Debug)]
struct FramedBest {
    empty: Folding,
    /// With their numbers among all rows.
    values: VecDeque<(u64, Datum)>,
    /// How many rows have come and left.
    come: u64,
    left: u64,
}

impl FramedBest {
    fn new(empty: Folding) -> FramedBest {
        FramedBest { empty, values: VecDeque::new(), come: 0, left: 0 }
    }
}

impl Accumulator for FramedBest {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let cells = readable_one(&values[0])?;
        for row in 0..values[0].len() {
            let value = cells.get(row);
            if !value.is_null() {
                let Folding { kind, input, .. } = self.empty;
                let stays = |(_, last): &(u64, Datum)| kind.is_better(input, &last.as_value(), &value);
                while self.values.back().is_some_and(|last| !stays(last)) {
                    self.values.pop_back();
                }
                self.values.push_back((self.come, Datum::from(value)));
            }
            self.come += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.left += values[0].len() as u64;
        while self.values.front().is_some_and(|(number, _)| *number < self.left) {
            self.values.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut folding = self.empty.clone();
        if let Some((_, best)) = self.values.front() {
            folding.count = 1;
            folding.total = Total::Best(best.clone());
        }
        folding.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<FramedBest>() + self.values.capacity() * size_of::<(u64, Datum)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(carried(SqlError::unsupported("a window's frame in parts")))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(carried(SqlError::unsupported("a window's frame in parts")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folding(average: bool, input: Type, result: Type) -> Folding {
        Fold::new(if average { Kind::Average } else { Kind::Sum }, input, result).start(false, false)
    }

    fn array(ty: Type, values: &[Value<'_>]) -> ArrayRef {
        let mut writer = Writer::new(ty, values.len());
        values.iter().for_each(|v| writer.push(v).expect("in range"));
        writer.finish()
    }

    fn number(scalar: &ScalarValue) -> String {
        let Some(Datum::Bytes(stored)) = super::super::cells::datum(scalar) else {
            panic!("a number");
        };
        let mut text = Vec::new();
        Numeric::from_stored(&stored).write(&mut text);
        String::from_utf8(text).expect("digits")
    }

    #[test]
    fn sums_and_averages_have_postgresqls_types_and_digits() {
        let numeric = Type::Numeric { typmod: None };
        let mut sum = folding(false, Type::Int8, numeric);
        sum.update_batch(&[array(Type::Int8, &[Value::Int(i64::MAX), Value::Null, Value::Int(i64::MAX)])])
            .expect("adds");
        assert_eq!(number(&sum.evaluate().expect("a sum")), "18446744073709551614");
        let mut average = folding(true, Type::Int4, numeric);
        average.update_batch(&[array(Type::Int4, &[Value::Int(1), Value::Int(2), Value::Int(2)])]).expect("adds");
        assert_eq!(number(&average.evaluate().expect("an average")), "1.6666666666666667");
        let mut empty = folding(false, Type::Int4, Type::Int8);
        assert!(empty.evaluate().expect("null").is_null());
    }

    #[test]
    fn parts_merge_and_values_leave_a_frame() {
        let decimal = Type::Decimal { precision: 12, scale: 2 };
        let numeric = Type::Numeric { typmod: None };
        let mut part = folding(false, decimal, numeric);
        part.update_batch(&[array(decimal, &[Value::Decimal(150), Value::Decimal(250)])]).expect("adds");
        part.retract_batch(&[array(decimal, &[Value::Decimal(150)])]).expect("takes away");
        let state: Vec<ArrayRef> =
            part.state().expect("a state").iter().map(|s| s.to_array().expect("an array")).collect();
        let mut whole = folding(false, decimal, numeric);
        whole.update_batch(&[array(decimal, &[Value::Decimal(1)])]).expect("adds");
        whole.merge_batch(&state).expect("merges");
        assert_eq!(number(&whole.evaluate().expect("a sum")), "2.51");
    }

    #[test]
    fn a_frame_of_floats_is_folded_anew() {
        let mut sum = Framed { empty: folding(false, Type::Float8, Type::Float8), values: VecDeque::new() };
        let infinite = array(Type::Float8, &[Value::Float(f64::INFINITY), Value::Null]);
        sum.update_batch(std::slice::from_ref(&infinite)).expect("adds");
        sum.update_batch(&[array(Type::Float8, &[Value::Float(0.1), Value::Float(0.2)])]).expect("adds");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Float64(Some(f64::INFINITY)));
        sum.retract_batch(&[infinite]).expect("takes away");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Float64(Some(0.1 + 0.2)));
    }

    #[test]
    fn nan_is_the_greatest_float() {
        let values = [array(Type::Float8, &[Value::Float(1.0), Value::Float(f64::NAN), Value::Float(-2.0)])];
        for (kind, expected) in [(Kind::Greatest, f64::NAN), (Kind::Least, -2.0)] {
            let mut fold = Fold::new(kind, Type::Float8, Type::Float8).start(false, false);
            fold.update_batch(&values).expect("compares");
            let ScalarValue::Float64(Some(found)) = fold.evaluate().expect("a value") else {
                panic!("a float");
            };
            assert!(found == expected || (found.is_nan() && expected.is_nan()), "{kind:?}: {found}");
        }
    }
}
