//! What do window functions give over frames that DataFusion has not: `RANGE BETWEEN offset PRECEDING AND ...`, EXCLUDE, and `nth_value` by a
//! column over any? DataFusion adds to its own numbers and moments, by days of 24 hours; here the evaluator adds, by the session's zone, and to
//! every type that PostgreSQL counts along.
//!
//! A frame's ends are looked for in the partition, which is in the order of its keys. What is excluded parts a frame, in three at most. An
//! aggregate takes up what comes into its frame and gives up what leaves it, where it can; otherwise, and over a frame in parts, it begins anew.

use super::compute::readable_one;
use super::fault::carried;
use super::frame::{Edge, Exclusion, Frame};
use super::gather::compared;
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::value::cast::is_numeric;
use crate::value::function::Function;
use crate::value::interval::Interval;
use crate::value::{Clock, Datum, Numeric};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, UInt64Array};
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;
use freshet_engine::schema::Type;
use sqlparser::ast::WindowFrameUnits;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// What is taken of a frame's rows.
#[derive(Clone, PartialEq, Debug)]
pub enum Takes {
    Aggregate(Arc<AggregateUDF>),
    First,
    Last,
    /// Counted from one.
    Nth(i64),
    /// The same by the second argument.
    NthBy,
}

/// A frame, and what its rows are in the order of: with a range's offset the key that it is counted along.
pub struct Framed<'a> {
    pub frame: &'a Frame,
    pub orders: Vec<KeyOrder>,
}

/// A window function's arguments are what it takes, the FILTER's value where there is one, and the keys.
#[derive(Clone, Debug)]
struct Ranged {
    takes: Takes,
    is_filtered: bool,
    orders: Vec<KeyOrder>,
    units: WindowFrameUnits,
    start: Edge,
    end: Edge,
    exclusion: Exclusion,
    /// Offsets are added to the key.
    is_along: bool,
    clock: Clock,
    result: DataType,
    name: String,
    signature: Signature,
}

impl PartialEq for Ranged {
    fn eq(&self, other: &Ranged) -> bool {
        self.takes == other.takes && self.orders == other.orders && self.name == other.name
    }
}

impl Eq for Ranged {}

impl Hash for Ranged {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The window function of so many arguments, with the filter, without the keys.
pub fn ranged_udwf(
    takes: Takes,
    (arguments, is_filtered): (usize, bool),
    Framed { frame, orders }: Framed<'_>,
    clock: Clock,
    result: DataType,
) -> Arc<WindowUDF> {
    let Frame { units, start, end, along, exclusion } = frame.clone();
    let of = match &takes {
        Takes::Aggregate(function) => function.name().to_owned(),
        other => format!("{other:?}"),
    };
    // Its own for each frame: DataFusion takes window functions of one name for one.
    let name = format!("{of} {units} {start:?} to {end:?} without {exclusion:?} of {orders:?}").to_lowercase();
    let signature = match arguments + orders.len() {
        0 => Signature::nullary(Volatility::Immutable),
        count => Signature::any(count, Volatility::Immutable),
    };
    let is_along = along.is_some();
    Arc::new(WindowUDF::from(Ranged {
        takes,
        is_filtered,
        orders,
        units,
        start,
        end,
        exclusion,
        is_along,
        clock,
        result,
        name,
        signature,
    }))
}

impl WindowUDFImpl for Ranged {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let (exprs, fields) = (args.input_exprs().to_vec(), args.input_fields().to_vec());
        Ok(Box::new(Partition { of: self.clone(), exprs, fields }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), self.result.clone(), true)))
    }
}

#[derive(Debug)]
struct Partition {
    of: Ranged,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<FieldRef>,
}

impl PartitionEvaluator for Partition {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let lack = || DataFusionError::Internal("a frame has its keys".to_owned());
        let count = values.len().checked_sub(self.of.orders.len()).ok_or_else(lack)?;
        let (values, keys) = values.split_at(count);
        let mut columns: Vec<Vec<Datum>> = Vec::with_capacity(keys.len());
        for key in keys {
            let key = readable_one(key)?;
            columns.push((0..rows).map(|row| key.get(row).into()).collect());
        }
        let frames = Frames::new(&self.of, &columns, rows).all().map_err(carried)?;
        match &self.of.takes {
            Takes::Aggregate(function) if self.of.is_filtered => {
                let (mask, values) = values.split_last().ok_or_else(lack)?;
                let mask = mask.as_boolean();
                let kept = values.iter().map(|array| filter(array, mask)).collect::<Result<Vec<_>, _>>()?;
                let mut before = Vec::with_capacity(rows + 1);
                before.push(0);
                for row in 0..rows {
                    before.push(before[row] + usize::from(mask.is_valid(row) && mask.value(row)));
                }
                let kept_of = |part: Range<usize>| before[part.start]..before[part.end];
                let frames = frames
                    .into_iter()
                    .map(|parts| parts.into_iter().map(kept_of).filter(|part| !part.is_empty()).collect());
                self.aggregated(function, &kept, frames.collect())
            }
            Takes::Aggregate(function) => self.aggregated(function, values, frames),
            Takes::First | Takes::Last | Takes::Nth(_) | Takes::NthBy => {
                let counts = match self.of.takes {
                    Takes::NthBy => values.get(1).and_then(|by| by.as_any().downcast_ref::<Int32Array>()),
                    _ => None,
                };
                let mut places: Vec<Option<u64>> = Vec::with_capacity(rows);
                for (row, parts) in frames.iter().enumerate() {
                    let nth = match (&self.of.takes, counts) {
                        (Takes::Nth(nth), _) => Some(*nth),
                        (Takes::NthBy, Some(counts)) => counts.is_valid(row).then(|| i64::from(counts.value(row))),
                        (Takes::NthBy, None) => return Err(lack()),
                        _ => Some(1),
                    };
                    if nth.is_some_and(|nth| nth <= 0) {
                        let message = "argument of nth_value must be greater than zero";
                        return Err(carried(SqlError::new("22016", message)));
                    }
                    places.push(match self.of.takes {
                        Takes::Last => parts.last().map(|part| part.end as u64 - 1),
                        _ => nth.and_then(|nth| nth_of(parts, nth as u64 - 1)),
                    });
                }
                let places = UInt64Array::from(places);
                Ok(take(values.first().ok_or_else(lack)?, &places, None)?)
            }
        }
    }
}

/// The row that has so many before it in these parts.
fn nth_of(parts: &[Range<usize>], before: u64) -> Option<u64> {
    let mut left = before;
    for part in parts {
        let length = part.len() as u64;
        if left < length {
            return Some(part.start as u64 + left);
        }
        left -= length;
    }
    None
}

/// A frame without what is excluded, in its order.
fn without(frame: Range<usize>, row: usize, peers: &Range<usize>, exclusion: Exclusion) -> Vec<Range<usize>> {
    let holes: [Range<usize>; 2] = match exclusion {
        Exclusion::Nothing => [0..0, 0..0],
        Exclusion::Row => [row..row + 1, 0..0],
        Exclusion::Group => [peers.clone(), 0..0],
        Exclusion::Ties => [peers.start..row, row + 1..peers.end],
    };
    let mut parts = vec![frame];
    for hole in holes.into_iter().filter(|hole| !hole.is_empty()) {
        let around = |part: Range<usize>| [part.start..part.end.min(hole.start), part.start.max(hole.end)..part.end];
        parts = parts.into_iter().flat_map(around).collect();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

impl Partition {
    fn aggregated(
        &self,
        function: &AggregateUDF,
        values: &[ArrayRef],
        frames: Vec<Vec<Range<usize>>>,
    ) -> Result<ArrayRef> {
        let mut accumulator = self.started(function)?;
        let mut held = 0..0;
        let mut results: Vec<ScalarValue> = Vec::with_capacity(frames.len());
        let part = |rows: &Range<usize>| -> Vec<ArrayRef> {
            values.iter().map(|array| array.slice(rows.start, rows.end - rows.start)).collect()
        };
        for (row, parts) in frames.iter().enumerate() {
            let frame = match parts.as_slice() {
                [] => {
                    results.push(function.default_value(&self.of.result)?);
                    continue;
                }
                [frame] => frame.clone(),
                // Peers that are left out together have one frame.
                parts if row > 0 && frames[row - 1] == *parts => {
                    results.push(results[row - 1].clone());
                    continue;
                }
                parts => {
                    let mut accumulator = self.started(function)?;
                    parts.iter().try_for_each(|rows| accumulator.update_batch(&part(rows)))?;
                    results.push(accumulator.evaluate()?);
                    continue;
                }
            };
            let grows = frame.start >= held.start && frame.start <= held.end && frame.end >= held.end;
            let can_follow = grows && (frame.start == held.start || accumulator.supports_retract_batch());
            if !can_follow {
                accumulator = self.started(function)?;
                held = frame.start..frame.start;
            }
            if frame.end > held.end {
                accumulator.update_batch(&part(&(held.end..frame.end)))?;
            }
            if frame.start > held.start {
                accumulator.retract_batch(&part(&(held.start..frame.start)))?;
            }
            held = frame;
            results.push(accumulator.evaluate()?);
        }
        ScalarValue::iter_to_array(results)
    }

    fn started(&self, function: &AggregateUDF) -> Result<Box<dyn Accumulator>> {
        let count = self.exprs.len() - self.of.orders.len() - usize::from(self.of.is_filtered);
        let schema = Schema::new(self.fields.clone());
        let return_field = Arc::new(Field::new(&self.of.name, self.of.result.clone(), true));
        function.create_sliding_accumulator(AccumulatorArgs {
            return_field,
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: &self.of.name,
            is_distinct: false,
            exprs: &self.exprs[..count],
            expr_fields: &self.fields[..count],
        })
    }
}

/// The frames of a partition's rows.
struct Frames<'a> {
    of: &'a Ranged,
    rows: usize,
    /// The first key, which offsets are counted along.
    keys: &'a [Datum],
    /// The rows that have a key: nulls are in no offset's reach, and each other's peers.
    keyed: Range<usize>,
    /// Rows of equal keys, in their order, and which of them each row is in.
    groups: Vec<Range<usize>>,
    group_of: Vec<usize>,
    /// The key's sum and difference with an interval, where it has them.
    sums: Option<[Function; 2]>,
}

impl<'a> Frames<'a> {
    fn new(of: &'a Ranged, columns: &'a [Vec<Datum>], rows: usize) -> Frames<'a> {
        let keys: &[Datum] = columns.first().map_or(&[], Vec::as_slice);
        let nulls = keys.iter().filter(|key| **key == Datum::Null).count();
        let nulls_first = of.orders.first().is_some_and(|order| order.nulls_first);
        let keyed = if nulls_first { nulls..keys.len() } else { 0..keys.len() - nulls };
        let is_peer = |row: usize| {
            let mut orders = of.orders.iter().zip(columns);
            orders.all(|(order, keys)| compared(order, &keys[row - 1], &keys[row]).is_eq())
        };
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut group_of = Vec::with_capacity(rows);
        for row in 0..rows {
            match groups.last_mut() {
                Some(group) if is_peer(row) => group.end = row + 1,
                _ => groups.push(row..row + 1),
            }
            group_of.push(groups.len() - 1);
        }
        let ty = of.orders.first().map(|order| order.ty).filter(|_| of.is_along);
        let with = |symbol| Function::resolve(symbol, &[ty, Some(Type::Interval)]).ok().filter(|_| ty.is_some());
        let sums = with("+").and_then(|sum| Some([sum, with("-")?]));
        Frames { of, rows, keys, keyed, groups, group_of, sums }
    }

    /// Each row's frame, in the parts that are left of it.
    fn all(&self) -> Result<Vec<Vec<Range<usize>>>, SqlError> {
        let mut frames = Vec::with_capacity(self.rows);
        let mut last: Option<(usize, Range<usize>)> = None;
        for row in 0..self.rows {
            let group = self.group_of[row];
            let peers = &self.groups[group];
            let frame = match &last {
                // Peers have one frame, unless rows are counted.
                Some((known, frame)) if *known == group && self.of.units != WindowFrameUnits::Rows => frame.clone(),
                _ => self.frame(row, peers)?,
            };
            frames.push(without(frame.clone(), row, peers, self.of.exclusion));
            last = Some((group, frame));
        }
        Ok(frames)
    }

    /// Of the key that offsets are counted along.
    fn order(&self, a: &Datum, b: &Datum) -> Ordering {
        compared(&self.of.orders[0], a, b)
    }

    fn frame(&self, row: usize, peers: &Range<usize>) -> Result<Range<usize>, SqlError> {
        let (start, end) = match self.of.units {
            WindowFrameUnits::Rows => {
                let own = counted(row..row + 1, self.rows, &self.of.start, &self.of.end, |row| row..row + 1);
                (own.start, own.end)
            }
            WindowFrameUnits::Groups => {
                let group = self.group_of[row];
                let own = counted(group..group + 1, self.groups.len(), &self.of.start, &self.of.end, |at| {
                    self.groups[at].clone()
                });
                (own.start, own.end)
            }
            WindowFrameUnits::Range => {
                let start = match self.limit(row, &self.of.start, true)? {
                    None if self.of.start == Edge::First => 0,
                    None => peers.start,
                    Some(limit) => self.first(|key| self.order(key, &limit).is_lt()),
                };
                let end = match self.limit(row, &self.of.end, false)? {
                    None if self.of.end == Edge::Last => self.rows,
                    None => peers.end,
                    Some(limit) => self.first(|key| self.order(key, &limit).is_le()),
                };
                (start, end)
            }
        };
        Ok(start..end.max(start))
    }

    /// The first row with a key for which `is_before` does not hold.
    fn first(&self, is_before: impl Fn(&Datum) -> bool) -> usize {
        self.keyed.start + self.keys[self.keyed.clone()].partition_point(is_before)
    }

    /// How far an offset reaches from a row, at the frame's start or end; `None`: there is no offset, or no key.
    fn limit(&self, row: usize, edge: &Edge, is_start: bool) -> Result<Option<Datum>, SqlError> {
        let (offset, is_after) = match edge {
            Edge::Before(offset) => (offset, false),
            Edge::After(offset) => (offset, true),
            _ => return Ok(None),
        };
        match &self.keys[row] {
            Datum::Null => Ok(None),
            key => {
                let limit = self.moved(key, offset, is_after != self.of.orders[0].descending)?;
                Ok(Some(self.all_if_unknown(limit, key, is_start)))
            }
        }
    }

    /// What infinitely precedes infinity, or infinitely follows minus infinity, is taken to be every number.
    fn all_if_unknown(&self, limit: Datum, key: &Datum, is_start: bool) -> Datum {
        let is_low = is_start != self.of.orders[0].descending;
        match (&limit, key) {
            (Datum::Float(reached), Datum::Float(key)) if reached.is_nan() && !key.is_nan() => {
                Datum::Float(if is_low { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            (Datum::Bytes(reached), Datum::Bytes(key)) if is_numeric(self.of.orders[0].ty) => {
                let is_known = |stored: &[u8]| !matches!(Numeric::from_stored(stored), Numeric::NaN);
                match is_known(reached) || !is_known(key) {
                    true => limit,
                    false if is_low => Datum::Bytes(Numeric::NegativeInfinity.to_stored()),
                    false => Datum::Bytes(Numeric::Infinity.to_stored()),
                }
            }
            _ => limit,
        }
    }

    /// The key and the offset, or less it. What no number of its type holds is beyond all of them.
    fn moved(&self, key: &Datum, offset: &Datum, is_up: bool) -> Result<Datum, SqlError> {
        let ty = self.of.orders[0].ty;
        Ok(match (key, offset) {
            (Datum::Int(key), Datum::Int(by)) => {
                Datum::Int(if is_up { key.saturating_add(*by) } else { key.saturating_sub(*by) })
            }
            (Datum::Float(key), Datum::Float(by)) => Datum::Float(if is_up { key + by } else { key - by }),
            // It goes on beyond midnight, where the operator would begin anew.
            (Datum::Int(time), Datum::Bytes(by)) if ty == Type::Time => {
                let us = Interval::from_stored(by).us;
                Datum::Int(if is_up { time.saturating_add(us) } else { time.saturating_sub(us) })
            }
            (Datum::Bytes(key), Datum::Bytes(by)) if ty != Type::Interval => {
                let (key, by) = (Numeric::from_stored(key), Numeric::from_stored(by));
                Datum::Bytes(if is_up { key.add(&by) } else { key.sub(&by) }?.to_stored())
            }
            _ => {
                let sum = self.sums.as_ref().expect("invariant: what is neither number nor time has intervals added");
                sum[usize::from(!is_up)].call_by(&[key.as_value(), offset.as_value()], &self.of.clock)?
            }
        })
    }
}

/// The rows of a frame whose ends are so many steps from the one that is `own`, of `count` steps in all; each has the rows that `rows` says.
fn counted(
    own: Range<usize>,
    count: usize,
    start: &Edge,
    end: &Edge,
    rows: impl Fn(usize) -> Range<usize>,
) -> Range<usize> {
    let steps = |offset: &Datum| match offset {
        Datum::Int(steps) => usize::try_from(*steps).unwrap_or(usize::MAX),
        _ => 0,
    };
    let first = match start {
        Edge::First => 0,
        Edge::Before(by) => own.start.saturating_sub(steps(by)),
        Edge::Current => own.start,
        Edge::After(by) => own.start.saturating_add(steps(by)).min(count),
        Edge::Last => count,
    };
    // One past the last.
    let past = match end {
        Edge::First => 0,
        Edge::Before(by) => own.end.saturating_sub(steps(by)),
        Edge::Current => own.end,
        Edge::After(by) => own.end.saturating_add(steps(by)).min(count),
        Edge::Last => count,
    };
    if first >= past {
        return 0..0;
    }
    rows(first).start..rows(past - 1).end
}

#[cfg(test)]
mod tests {
    use super::{Datum, Edge, Exclusion, counted, nth_of, without};

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a frame may be left in one part")]
    fn what_is_excluded_parts_a_frame() {
        let parts = |exclusion| without(1..8, 4, &(3..6), exclusion);
        assert_eq!(parts(Exclusion::Nothing), [1..8]);
        assert_eq!(parts(Exclusion::Row), [1..4, 5..8]);
        assert_eq!(parts(Exclusion::Group), [1..3, 6..8]);
        assert_eq!(parts(Exclusion::Ties), [1..3, 4..5, 6..8]);
        assert!(without(4..5, 4, &(3..6), Exclusion::Row).is_empty());
        assert_eq!(without(6..8, 4, &(3..6), Exclusion::Ties), [6..8]);
        assert_eq!(without(0..4, 4, &(3..6), Exclusion::Group), [0..3]);
    }

    #[test]
    fn a_row_is_counted_over_the_parts() {
        let parts = [1..3, 6..8];
        assert_eq!((0..5).map(|n| nth_of(&parts, n)).collect::<Vec<_>>(), [Some(1), Some(2), Some(6), Some(7), None]);
    }

    #[test]
    fn ends_are_counted_in_steps() {
        let by = |n| Datum::Int(n);
        let of = |row: usize, start: &Edge, end: &Edge| counted(row..row + 1, 5, start, end, |at| at * 2..at * 2 + 2);
        assert_eq!(of(2, &Edge::Before(by(1)), &Edge::After(by(1))), 2..8);
        assert_eq!(of(0, &Edge::Before(by(3)), &Edge::Before(by(1))), 0..0);
        assert_eq!(of(4, &Edge::After(by(1)), &Edge::After(by(9))), 0..0);
        assert_eq!(of(4, &Edge::First, &Edge::Last), 0..10);
        assert_eq!(of(1, &Edge::After(by(1)), &Edge::Last), 4..10);
    }
}
