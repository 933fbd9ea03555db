//! What do window functions give over `RANGE BETWEEN offset PRECEDING AND ...`? DataFusion adds to its own numbers and moments, by days of 24 hours;
//! here the evaluator adds, by the session's zone, and to every type that PostgreSQL counts along.
//!
//! A frame's ends are looked for in the partition, which is in the order of its key. An aggregate takes up what comes into its frame and gives up
//! what leaves it, where it can; otherwise it begins anew.

use super::compute::readable_one;
use super::fault::carried;
use super::frame::{Along, Edge, Frame};
use super::gather::compared;
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::value::cast::is_numeric;
use crate::value::function::Function;
use crate::value::interval::Interval;
use crate::value::{Clock, Datum, Numeric};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;
use freshet_engine::schema::Type;
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
}

/// A window function's arguments are what it takes, the FILTER's value where there is one, and the key.
#[derive(Clone, Debug)]
struct Ranged {
    takes: Takes,
    is_filtered: bool,
    order: KeyOrder,
    start: Edge,
    end: Edge,
    clock: Clock,
    result: DataType,
    name: String,
    signature: Signature,
}

impl PartialEq for Ranged {
    fn eq(&self, other: &Ranged) -> bool {
        self.takes == other.takes && self.order == other.order && self.name == other.name
    }
}

impl Eq for Ranged {}

impl Hash for Ranged {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The window function of so many arguments, with the filter, without the key.
pub fn ranged_udwf(
    takes: Takes,
    (arguments, is_filtered): (usize, bool),
    (frame, along, order): (&Frame, &Along, KeyOrder),
    clock: Clock,
    result: DataType,
) -> Arc<WindowUDF> {
    let (start, end) = (frame.start.clone(), frame.end.clone());
    let order = KeyOrder { ty: along.ty, ..order };
    let of = match &takes {
        Takes::Aggregate(function) => function.name().to_owned(),
        other => format!("{other:?}"),
    };
    // Its own for each frame: DataFusion takes window functions of one name for one.
    let name = format!("{of} range {start:?} to {end:?} of {:?}", along.ty).to_lowercase();
    let signature = Signature::any(arguments + 1, Volatility::Immutable);
    Arc::new(WindowUDF::from(Ranged { takes, is_filtered, order, start, end, clock, result, name, signature }))
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
        let lack = || DataFusionError::Internal("a range has a key".to_owned());
        let (key, values) = values.split_last().ok_or_else(lack)?;
        let keys = readable_one(key)?;
        let keys: Vec<Datum> = (0..rows).map(|row| keys.get(row).into()).collect();
        let frames = Frames::new(&self.of, &keys).all().map_err(carried)?;
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
                let frames = frames.into_iter().map(|frame| before[frame.start]..before[frame.end]);
                self.aggregated(function, &kept, frames.collect())
            }
            Takes::Aggregate(function) => self.aggregated(function, values, frames),
            Takes::First | Takes::Last | Takes::Nth(_) => {
                let place = |frame: &Range<usize>| {
                    let at = match self.of.takes {
                        Takes::Last => frame.end.checked_sub(1)?,
                        Takes::Nth(nth) => frame.start.checked_add(usize::try_from(nth - 1).ok()?)?,
                        _ => frame.start,
                    };
                    frame.contains(&at).then_some(at as u64)
                };
                let places: UInt64Array = frames.iter().map(place).collect();
                Ok(take(values.first().ok_or_else(lack)?, &places, None)?)
            }
        }
    }
}

impl Partition {
    fn aggregated(&self, function: &AggregateUDF, values: &[ArrayRef], frames: Vec<Range<usize>>) -> Result<ArrayRef> {
        let mut accumulator = self.started(function)?;
        let mut held = 0..0;
        let mut results = Vec::with_capacity(frames.len());
        let part = |rows: Range<usize>| -> Vec<ArrayRef> {
            values.iter().map(|array| array.slice(rows.start, rows.end - rows.start)).collect()
        };
        for frame in frames {
            if frame.is_empty() {
                results.push(function.default_value(&self.of.result)?);
                continue;
            }
            let grows = frame.start >= held.start && frame.start <= held.end && frame.end >= held.end;
            let can_follow = grows && (frame.start == held.start || accumulator.supports_retract_batch());
            if !can_follow {
                accumulator = self.started(function)?;
                held = frame.start..frame.start;
            }
            if frame.end > held.end {
                accumulator.update_batch(&part(held.end..frame.end))?;
            }
            if frame.start > held.start {
                accumulator.retract_batch(&part(held.start..frame.start))?;
            }
            held = frame;
            results.push(accumulator.evaluate()?);
        }
        ScalarValue::iter_to_array(results)
    }

    fn started(&self, function: &AggregateUDF) -> Result<Box<dyn Accumulator>> {
        let count = self.exprs.len() - 1 - usize::from(self.of.is_filtered);
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
    keys: &'a [Datum],
    /// The rows that have a key: nulls are in no offset's reach, and each other's peers.
    keyed: Range<usize>,
    /// The key's sum and difference with an interval, where it has them.
    sums: Option<[Function; 2]>,
}

impl<'a> Frames<'a> {
    fn new(of: &'a Ranged, keys: &'a [Datum]) -> Frames<'a> {
        let nulls = keys.iter().filter(|key| **key == Datum::Null).count();
        let keyed = if of.order.nulls_first { nulls..keys.len() } else { 0..keys.len() - nulls };
        let with = |symbol| Function::resolve(symbol, &[Some(of.order.ty), Some(Type::Interval)]).ok();
        let sums = with("+").and_then(|sum| Some([sum, with("-")?]));
        Frames { of, keys, keyed, sums }
    }

    fn all(&self) -> Result<Vec<Range<usize>>, SqlError> {
        let mut frames = Vec::with_capacity(self.keys.len());
        let mut last: Option<(Range<usize>, Range<usize>)> = None;
        for row in 0..self.keys.len() {
            // Peers have one frame.
            let frame = match last.take() {
                Some((peers, frame)) if peers.contains(&row) => (peers, frame),
                _ => {
                    let peers = self.peers(row);
                    let frame = self.frame(row, &peers)?;
                    (peers, frame)
                }
            };
            frames.push(frame.1.clone());
            last = Some(frame);
        }
        Ok(frames)
    }

    fn order(&self, a: &Datum, b: &Datum) -> Ordering {
        compared(&self.of.order, a, b)
    }

    fn peers(&self, row: usize) -> Range<usize> {
        let key = &self.keys[row];
        let start = self.keys.partition_point(|other| self.order(other, key).is_lt());
        start..self.keys.partition_point(|other| self.order(other, key).is_le())
    }

    fn frame(&self, row: usize, peers: &Range<usize>) -> Result<Range<usize>, SqlError> {
        let start = match self.limit(row, &self.of.start, true)? {
            None if self.of.start == Edge::First => 0,
            None => peers.start,
            Some(limit) => self.first(|key| self.order(key, &limit).is_lt()),
        };
        let end = match self.limit(row, &self.of.end, false)? {
            None if self.of.end == Edge::Last => self.keys.len(),
            None => peers.end,
            Some(limit) => self.first(|key| self.order(key, &limit).is_le()),
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
                let limit = self.moved(key, offset, is_after != self.of.order.descending)?;
                Ok(Some(self.all_if_unknown(limit, key, is_start)))
            }
        }
    }

    /// What infinitely precedes infinity, or infinitely follows minus infinity, is taken to be every number.
    fn all_if_unknown(&self, limit: Datum, key: &Datum, is_start: bool) -> Datum {
        let is_low = is_start != self.of.order.descending;
        match (&limit, key) {
            (Datum::Float(reached), Datum::Float(key)) if reached.is_nan() && !key.is_nan() => {
                Datum::Float(if is_low { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            (Datum::Bytes(reached), Datum::Bytes(key)) if is_numeric(self.of.order.ty) => {
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
        let ty = self.of.order.ty;
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
