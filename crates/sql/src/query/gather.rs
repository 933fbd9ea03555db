//! How are aggregates taken that need all their rows? Rows of arguments and of what they are ordered by gather until the group is complete.

use super::cells::{Writer, data_type};
use super::compute::readable;
use super::fault::carried;
use crate::compiled::aggregate::encode_key;
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::value::aggregate::Signature as Gathers;
use crate::value::{Clock, Datum};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An aggregate over rows of arguments, then of the values they are ordered by.
#[derive(Debug, Clone)]
pub struct Gather {
    gathers: Gathers,
    orders: Vec<KeyOrder>,
    distinct: bool,
    clock: Clock,
    /// Its own for each kind and order: DataFusion takes functions of one name and the same arguments for one.
    name: String,
    signature: Signature,
}

impl PartialEq for Gather {
    fn eq(&self, other: &Gather) -> bool {
        self.gathers == other.gathers && self.orders == other.orders && self.distinct == other.distinct
    }
}

impl Eq for Gather {}

impl Hash for Gather {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.gathers.hash(state);
        self.distinct.hash(state);
        self.orders.iter().for_each(|by| (by.descending, by.nulls_first).hash(state));
    }
}

impl Gather {
    pub fn new(gathers: Gathers, orders: Vec<KeyOrder>, distinct: bool, clock: Clock) -> Gather {
        let arguments = gathers.arguments.len() + orders.len();
        let mut name = format!("gather {:?}", gathers.what).to_lowercase();
        for by in &orders {
            name.push_str(if by.descending { " desc" } else { " asc" });
            name.push_str(if by.nulls_first { " nulls first" } else { "" });
        }
        Gather { gathers, orders, distinct, clock, name, signature: Signature::any(arguments, Volatility::Immutable) }
    }

    fn start(&self) -> Rows {
        Rows { of: self.clone(), rows: VecDeque::new(), bytes: 0 }
    }
}

impl AggregateUDFImpl for Gather {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.gathers.result))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.start()))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.start()))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[rows]", args.name), DataType::BinaryView, true))])
    }
}

struct Rows {
    of: Gather,
    /// All that came, also those that do not count: a frame takes them away again.
    rows: VecDeque<Vec<Datum>>,
    bytes: usize,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rows({:?}, {})", self.of.gathers.what, self.rows.len())
    }
}

impl Rows {
    fn push(&mut self, row: Vec<Datum>) {
        self.bytes += row.iter().map(|datum| datum.memory_bytes() as usize).sum::<usize>() + size_of::<Vec<Datum>>();
        self.rows.push_back(row);
    }

    fn order(&self, a: &[Datum], b: &[Datum]) -> Ordering {
        let keys = self.of.gathers.arguments.len();
        for (i, order) in self.of.orders.iter().enumerate() {
            let found = compared(order, &a[keys + i], &b[keys + i]);
            if found.is_ne() {
                return found;
            }
        }
        Ordering::Equal
    }

    fn result(&self) -> Result<Datum, SqlError> {
        let of = &self.of;
        let mut rows: Vec<Vec<Datum>> = self.rows.iter().filter(|row| of.gathers.takes(row)).cloned().collect();
        if of.gathers.what.is_hypothetical() {
            return self.placed(rows);
        }
        if of.distinct {
            let mut seen = HashSet::new();
            rows.retain(|row| {
                let mut key = Vec::new();
                for (ty, datum) in of.gathers.arguments.iter().zip(row) {
                    encode_key(*ty, &datum.as_value(), &mut key);
                }
                seen.insert(key)
            });
            if of.orders.is_empty() {
                // Duplicates are found by sorting, and that order stays.
                let ty = of.gathers.arguments[0];
                let order = KeyOrder { ty, descending: false, nulls_first: false };
                rows.sort_by(|a, b| compared(&order, &a[0], &b[0]));
            }
        }
        if !of.orders.is_empty() {
            rows.sort_by(|a, b| self.order(a, b));
        }
        of.gathers.finish(&rows, &of.clock)
    }

    /// Where the row that the first arguments make would stand.
    fn placed(&self, mut rows: Vec<Vec<Datum>>) -> Result<Datum, SqlError> {
        let of = &self.of;
        let width = of.orders.len();
        let Some(first) = rows.first() else {
            return Ok(of.gathers.place(0, 0, 0, 0));
        };
        let wanted: Vec<Datum> = first[..width].to_vec();
        let keys = of.gathers.arguments.len();
        let against = |row: &[Datum]| {
            let pairs = of.orders.iter().enumerate();
            pairs
                .map(|(i, order)| compared(order, &row[keys + i], &wanted[i]))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        rows.sort_by(|a, b| self.order(a, b));
        let before = rows.iter().filter(|row| against(row).is_lt()).count();
        let equal = rows.iter().filter(|row| against(row).is_eq()).count();
        let mut different = 0;
        for (i, row) in rows[..before].iter().enumerate() {
            different += usize::from(i == 0 || self.order(&rows[i - 1], row).is_ne());
        }
        Ok(of.gathers.place(rows.len(), before, equal, different))
    }
}

pub(super) fn compared(order: &KeyOrder, a: &Datum, b: &Datum) -> Ordering {
    let found = match (a, b) {
        (Datum::Null, Datum::Null) => return Ordering::Equal,
        (Datum::Null, _) => return if order.nulls_first { Ordering::Less } else { Ordering::Greater },
        (_, Datum::Null) => return if order.nulls_first { Ordering::Greater } else { Ordering::Less },
        (a, b) => order.ty.compare(&a.as_value(), &b.as_value()),
    };
    if order.descending { found.reverse() } else { found }
}

impl Accumulator for Rows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let cells = readable(values)?;
        for row in 0..values[0].len() {
            self.push(cells.iter().map(|c| c.get(row).into()).collect());
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows.drain(..values[0].len().min(self.rows.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.result().map_err(carried)?;
        let mut out = Writer::new(self.of.gathers.result, 1);
        out.push(&result.as_value()).map_err(carried)?;
        ScalarValue::try_from_array(&out.finish(), 0)
    }

    fn size(&self) -> usize {
        size_of::<Rows>() + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut out = Vec::new();
        for row in &self.rows {
            row.iter().for_each(|datum| put(datum, &mut out));
        }
        Ok(vec![ScalarValue::BinaryView(Some(out))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states: &BinaryViewArray = states[0].as_binary_view();
        let width = self.of.gathers.arguments.len() + self.of.orders.len();
        for at in (0..states.len()).filter(|&at| states.is_valid(at)) {
            let mut rest = states.value(at);
            while !rest.is_empty() {
                let row = (0..width).map(|_| taken(&mut rest)).collect();
                self.push(row);
            }
        }
        Ok(())
    }
}

/// A value in a state: what it is, then it.
fn put(datum: &Datum, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.push(0),
        Datum::Bool(v) => out.extend([1, u8::from(*v)]),
        Datum::Int(v) => {
            out.push(2);
            out.extend(v.to_le_bytes());
        }
        Datum::Float(v) => {
            out.push(3);
            out.extend(v.to_le_bytes());
        }
        Datum::Decimal(v) => {
            out.push(4);
            out.extend(v.to_le_bytes());
        }
        Datum::Uuid(v) => {
            out.push(5);
            out.extend(v.to_le_bytes());
        }
        Datum::Bytes(v) => {
            out.push(6);
            out.extend((v.len() as u64).to_le_bytes());
            out.extend_from_slice(v);
        }
    }
}

fn taken(rest: &mut &[u8]) -> Datum {
    fn chunk<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
        let (taken, after) = rest.split_first_chunk::<N>().expect("invariant: a state is whole");
        *rest = after;
        *taken
    }
    match chunk::<1>(rest)[0] {
        0 => Datum::Null,
        1 => Datum::Bool(chunk::<1>(rest)[0] == 1),
        2 => Datum::Int(i64::from_le_bytes(chunk(rest))),
        3 => Datum::Float(f64::from_le_bytes(chunk(rest))),
        4 => Datum::Decimal(i128::from_le_bytes(chunk(rest))),
        5 => Datum::Uuid(u128::from_le_bytes(chunk(rest))),
        _ => {
            let length = u64::from_le_bytes(chunk(rest)) as usize;
            let (taken, after) = rest.split_at(length);
            *rest = after;
            Datum::Bytes(taken.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::aggregate::Gathered;
    use freshet_engine::schema::{Type, Value};

    fn rows(values: &[Value<'_>], distinct: bool) -> Rows {
        let gathers = Gathered::ArrayAgg.resolve(&[Some(Type::Int4)]).expect("there");
        let mut rows = Gather::new(gathers, Vec::new(), distinct, Clock::default()).start();
        values.iter().for_each(|v| rows.push(vec![(*v).into()]));
        rows
    }

    #[test]
    fn a_state_comes_back_whole_and_duplicates_go() {
        let mut part = rows(&[Value::Int(2), Value::Null, Value::Int(1), Value::Int(2)], true);
        let state: Vec<ArrayRef> =
            part.state().expect("a state").iter().map(|s| s.to_array().expect("an array")).collect();
        let mut whole = rows(&[], true);
        whole.merge_batch(&state).expect("merges");
        assert_eq!(whole.rows.len(), 4);
        let Datum::Bytes(stored) = whole.result().expect("an array") else { panic!("an array") };
        assert_eq!(crate::value::array_items(Type::Int4, &stored), [Datum::Int(1), Datum::Int(2), Datum::Null]);
    }
}
