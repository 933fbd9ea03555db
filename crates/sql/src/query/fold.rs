//! How are sums and averages taken as PostgreSQL takes them? `sum(integer)` is bigint, `sum(bigint)` and averages of whole numbers
//! are numeric, and a sum that does not fit is an error.

use super::cells::{Cells, Writer, data_type};
use super::compute::readable_one;
use super::fault::carried;
use crate::compiled::aggregate::encode_key;
use crate::error::SqlError;
use crate::value::numeric::{Numeric, NumericSum};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use freshet_engine::schema::{Type, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// `sum` or `avg` of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    average: bool,
    input: Type,
    result: Type,
    signature: Signature,
}

impl Fold {
    pub fn new(average: bool, input: Type, result: Type) -> Fold {
        Fold { average, input, result, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn total(&self) -> Total {
        match self.input {
            Type::Float4 | Type::Float8 => Total::Float { sum: 0.0, infinite: [0; 3] },
            Type::Int2 | Type::Int4 if !self.average => Total::Integer(0),
            _ => Total::Number(NumericSum::default()),
        }
    }
}

impl AggregateUDFImpl for Fold {
    fn name(&self) -> &str {
        if self.average { "avg" } else { "sum" }
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
        Ok(Box::new(Folding {
            average: self.average,
            input: self.input,
            result: self.result,
            total: self.total(),
            count: 0,
            seen: args.is_distinct.then(HashSet::new),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part: &str, ty: DataType| Arc::new(Field::new(format!("{}[{part}]", args.name), ty, true));
        Ok(vec![field("sum", DataType::BinaryView), field("float", DataType::Float64), field("count", DataType::Int64)])
    }
}

#[derive(Debug)]
enum Total {
    /// Wide enough for 2^64 bigints.
    Integer(i128),
    Number(NumericSum),
    /// Infinities and NaN are counted apart (NaN, +, -), so that they can leave a window's frame.
    Float {
        sum: f64,
        infinite: [i64; 3],
    },
}

struct Folding {
    average: bool,
    input: Type,
    result: Type,
    total: Total,
    count: i64,
    seen: Option<HashSet<Box<[u8]>>>,
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
                if sign < 0 && !matches!(number, Numeric::Finite(_)) {
                    return Err(SqlError::unsupported("a window frame that leaves a numeric NaN or infinity"));
                }
                sum.add(&if sign < 0 { number.negated() } else { number })?;
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
                    let value = if self.average { sum / self.count as f64 } else { sum };
                    if value.is_infinite() && infinite[1] == 0 && infinite[2] == 0 {
                        return Err(SqlError::new("22003", "value out of range: overflow"));
                    }
                    out.push(&Value::Float(value))?;
                }
                Total::Number(sum) => {
                    let number = sum.sum()?.unwrap_or_else(Numeric::zero);
                    // The count is ours: values that left a window's frame were added with the other sign.
                    let number = match self.average {
                        true => number.div(&Numeric::from_i64(self.count))?,
                        false => number,
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
        };
        let stored = ScalarValue::BinaryView(Some(number.to_stored().into()));
        Ok(vec![stored, ScalarValue::Float64(Some(float)), ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.seen.is_some() {
            return Err(carried(SqlError::unsupported("a distinct sum in parts")));
        }
        let numbers = readable_one(&states[0])?;
        let floats = readable_one(&states[1])?;
        let counts = states[2].as_primitive::<Int64Type>();
        for row in 0..states[0].len() {
            self.count += counts.value(row);
            self.merge(&numbers, &floats, row).map_err(carried)?;
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
            Total::Float { .. } => self.add(&float, 1)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datum;

    fn folding(average: bool, input: Type, result: Type) -> Folding {
        let fold = Fold::new(average, input, result);
        Folding { average, input, result, total: fold.total(), count: 0, seen: None }
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
    fn an_infinite_float_can_leave_a_frame() {
        let mut sum = folding(false, Type::Float8, Type::Float8);
        let infinite = array(Type::Float8, &[Value::Float(f64::INFINITY)]);
        sum.update_batch(&[array(Type::Float8, &[Value::Float(2.0)])]).expect("adds");
        sum.update_batch(std::slice::from_ref(&infinite)).expect("adds");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Float64(Some(f64::INFINITY)));
        sum.retract_batch(&[infinite]).expect("takes away");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Float64(Some(2.0)));
    }
}
