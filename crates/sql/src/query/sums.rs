//! How are sums and averages of decimals and integers taken fast? As 128-bit integers, one for each group in one array.
//!
//! A sum that outgrows them fails with [`TOO_WIDE`](super::fixed::TOO_WIDE), and the statement runs again with `fold`'s numbers of any size.
//! The state between the parts of an aggregation is the sum, a decimal at the input's scale, and the count.

use super::cells::{Writer, data_type};
use super::fault::carried;
use super::fixed::{integers, scale_of, too_wide};
use crate::error::SqlError;
use crate::value::numeric::Numeric;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility};
use freshet_engine::schema::{Type, Value};
use std::sync::Arc;

/// A sum or average of values at one scale.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedSum {
    average: bool,
    input: Type,
    result: Type,
    signature: Signature,
}

impl FixedSum {
    /// `None`: the input has no one scale.
    pub fn of(average: bool, input: Type, result: Type) -> Option<FixedSum> {
        scale_of(input)?;
        Some(FixedSum { average, input, result, signature: Signature::any(1, Volatility::Immutable) })
    }

    fn scale(&self) -> u8 {
        scale_of(self.input).unwrap_or(0)
    }

    fn state_type(&self) -> DataType {
        DataType::Decimal128(38, self.scale() as i8)
    }

    /// Writes what a group gives.
    fn write(&self, sum: i128, count: i64, out: &mut Writer) -> Result<(), SqlError> {
        if count == 0 {
            return out.push(&Value::Null);
        }
        if self.result == Type::Int8 {
            let sum = i64::try_from(sum).map_err(|_| SqlError::new("22003", "bigint out of range"))?;
            return out.push(&Value::Int(sum));
        }
        let sum = Numeric::from_decimal(sum, self.scale());
        let number = if self.average { sum.div(&Numeric::from_i64(count))? } else { sum };
        out.push(&Value::Bytes(&number.to_stored()))
    }

    fn results(&self, sums: &[i128], counts: &[i64]) -> Result<ArrayRef> {
        let mut out = Writer::new(self.result, sums.len());
        for (&sum, &count) in sums.iter().zip(counts) {
            self.write(sum, count, &mut out).map_err(carried)?;
        }
        Ok(out.finish())
    }

    fn states(&self, sums: Vec<i128>, counts: Vec<i64>) -> Vec<ArrayRef> {
        let sums = Decimal128Array::new(sums.into(), None).with_data_type(self.state_type());
        vec![Arc::new(sums), Arc::new(Int64Array::from(counts))]
    }
}

impl AggregateUDFImpl for FixedSum {
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

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Total { of: self.clone(), sum: 0, count: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part: &str, ty: DataType| Arc::new(Field::new(format!("{}[{part}]", args.name), ty, true));
        Ok(vec![field("sum", self.state_type()), field("count", DataType::Int64)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Totals { of: self.clone(), sums: Vec::new(), counts: Vec::new() }))
    }
}

/// The rows that count: no nulls, and where the filter holds.
fn counted(array: &dyn Array, filter: Option<&BooleanArray>) -> impl Fn(usize) -> bool {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let filter = filter.cloned();
    move |row| {
        nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
            && filter.as_ref().is_none_or(|filter| filter.is_valid(row) && filter.value(row))
    }
}

#[inline]
fn add(sum: &mut i128, value: i128) -> Result<()> {
    *sum = sum.checked_add(value).ok_or_else(too_wide)?;
    Ok(())
}

/// The sum of all rows.
#[derive(Debug)]
struct Total {
    of: FixedSum,
    sum: i128,
    count: i64,
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = integers(&values[0])?;
        let counts = counted(&values[0], None);
        for (_, &number) in numbers.iter().enumerate().filter(|(row, _)| counts(*row)) {
            add(&mut self.sum, number)?;
            self.count += 1;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.of.results(&[self.sum], &[self.count])?, 0)
    }

    fn size(&self) -> usize {
        size_of::<Total>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let states = self.of.states(vec![self.sum], vec![self.count]);
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sums = integers(&states[0])?;
        for (&sum, count) in sums.iter().zip(states[1].as_primitive::<Int64Type>()) {
            add(&mut self.sum, sum)?;
            self.count += count.unwrap_or(0);
        }
        Ok(())
    }
}

/// The sums of groups.
#[derive(Debug)]
struct Totals {
    of: FixedSum,
    sums: Vec<i128>,
    counts: Vec<i64>,
}

impl Totals {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }
}

impl GroupsAccumulator for Totals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.grow(total_groups);
        let numbers = integers(&values[0])?;
        let counts = counted(&values[0], filter);
        for (row, (&number, &group)) in numbers.iter().zip(groups).enumerate() {
            if counts(row) {
                add(&mut self.sums[group], number)?;
                self.counts[group] += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        self.of.results(&sums, &counts)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        Ok(self.of.states(sums, counts))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.grow(total_groups);
        let sums = integers(&states[0])?;
        let counts = states[1].as_primitive::<Int64Type>().values();
        for ((&sum, &count), &group) in sums.iter().zip(counts.iter()).zip(groups) {
            add(&mut self.sums[group], sum)?;
            self.counts[group] += count;
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let numbers = integers(&values[0])?;
        let counts = counted(&values[0], filter);
        let counts: Vec<i64> = (0..numbers.len()).map(|row| i64::from(counts(row))).collect();
        let sums = numbers.iter().zip(&counts).map(|(&number, &count)| if count == 0 { 0 } else { number });
        Ok(self.of.states(sums.collect(), counts))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datum;

    const NUMERIC: Type = Type::Numeric { typmod: None };
    const PRICE: Type = Type::Decimal { precision: 15, scale: 2 };

    fn totals(average: bool) -> Totals {
        let of = FixedSum::of(average, PRICE, NUMERIC).expect("a scale");
        Totals { of, sums: Vec::new(), counts: Vec::new() }
    }

    fn prices(values: &[Option<i128>]) -> ArrayRef {
        let mut writer = Writer::new(PRICE, values.len());
        for value in values {
            writer.push(&value.map_or(Value::Null, Value::Decimal)).expect("in range");
        }
        writer.finish()
    }

    fn shown(array: &ArrayRef) -> Vec<Option<String>> {
        let cells = super::super::cells::Cells::of(array).expect("numbers");
        let show = |row| match Datum::from(cells.get(row)) {
            Datum::Bytes(stored) => {
                let mut text = Vec::new();
                Numeric::from_stored(&stored).write(&mut text);
                Some(String::from_utf8(text).expect("digits"))
            }
            _ => None,
        };
        (0..array.len()).map(show).collect()
    }

    #[test]
    fn groups_are_summed_in_parts_and_merged() {
        let values = prices(&[Some(150), None, Some(250), Some(-1)]);
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), None]);
        let mut part = totals(false);
        part.update_batch(std::slice::from_ref(&values), &[0, 1, 0, 2], Some(&filter), 3).expect("fits");
        let state = part.state(EmitTo::All).expect("a state");
        let mut whole = totals(false);
        whole.update_batch(&[prices(&[Some(1)])], &[0], None, 1).expect("fits");
        whole.merge_batch(&state, &[1, 2, 0], 3).expect("merges");
        let result = whole.evaluate(EmitTo::All).expect("sums");
        assert_eq!(shown(&result), [Some("0.01".to_owned()), Some("4.00".to_owned()), None]);
        let mut skipped = totals(false);
        let state = skipped.convert_to_state(&[values], Some(&filter)).expect("a state");
        skipped.merge_batch(&state, &[0, 0, 0, 0], 1).expect("merges");
        assert_eq!(shown(&skipped.evaluate(EmitTo::All).expect("sums")), [Some("4.00".to_owned())]);
    }

    #[test]
    fn averages_have_the_digits_of_numeric() {
        let mut average = totals(true);
        average.update_batch(&[prices(&[Some(100), Some(200), Some(200)])], &[0, 0, 0], None, 1).expect("fits");
        assert_eq!(
            shown(&average.evaluate(EmitTo::First(1)).expect("averages")),
            [Some("1.6666666666666667".to_owned())]
        );
    }

    #[test]
    fn a_sum_beyond_128_bits_is_told() {
        let wide = Type::Decimal { precision: 38, scale: 0 };
        let mut sum = Total { of: FixedSum::of(false, wide, NUMERIC).expect("a scale"), sum: 0, count: 0 };
        let mut writer = Writer::new(wide, 2);
        (0..2).for_each(|_| writer.push(&Value::Decimal(10_i128.pow(38) - 1)).expect("in range"));
        let error = sum.update_batch(&[writer.finish()]).expect_err("39 digits");
        assert_eq!(super::super::fault::sql_error(error).sqlstate, super::super::fixed::TOO_WIDE);
    }
}
