//! What is known of a column's values, and how many rows a condition on it leaves.

use crate::value::Datum;
use crate::value::operator::BinaryOp;
use freshet_engine::schema::Type;
use std::cmp::Ordering;

/// Values that are told one by one, and bounds between the others, at most.
const COMMON_MAX: usize = 100;
const BOUNDS_MAX: usize = 101;
/// A value is common if it comes so many times as often as the average one.
const COMMON_TIMES: f64 = 1.25;

/// What is known of a column.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// The share of rows that are null.
    pub null_fraction: f64,
    /// Average bytes of a value.
    pub width: f64,
    /// Values that differ, of the whole table; at least 1.
    pub distinct: f64,
    /// With their shares of all rows, the most common first.
    pub common: Vec<(Datum, f64)>,
    /// Of the values that are not common, ascending: between two bounds lie equally many.
    pub bounds: Vec<Datum>,
    /// Between the values' order and the rows' places, from -1 to 1.
    pub correlation: f64,
}

/// A column's values in a sample, in the rows' order.
#[derive(Default)]
pub(super) struct Values {
    pub nulls: u64,
    values: Vec<Datum>,
    wide: u64,
    bytes: u64,
}

/// Equal values of a sample.
struct Run {
    start: usize,
    count: usize,
}

impl Values {
    pub fn add(&mut self, value: Datum, bytes: usize) {
        self.values.push(value);
        self.bytes += bytes as u64;
    }

    pub fn add_wide(&mut self, bytes: usize) {
        self.wide += 1;
        self.bytes += bytes as u64;
    }

    /// Of a column of a table that has so many rows.
    pub fn statistics(self, ty: Type, rows: f64) -> ColumnStatistics {
        let valued = self.values.len() as u64 + self.wide;
        let sampled = valued + self.nulls;
        if valued == 0 {
            return ColumnStatistics { null_fraction: 1.0, distinct: 1.0, ..ColumnStatistics::default() };
        }
        let null_fraction = self.nulls as f64 / sampled as f64;
        let mut order: Vec<usize> = (0..self.values.len()).collect();
        order.sort_by(|&a, &b| ty.compare(&self.values[a].as_value(), &self.values[b].as_value()));
        let runs = runs(ty, &self.values, &order);
        let distinct = self.distinct(&runs, rows * (1.0 - null_fraction));
        let common = common(&runs, valued as usize, runs.len() as f64 + self.wide as f64);
        let rest: Vec<usize> = runs
            .iter()
            .filter(|r| !common.contains(&r.start))
            .flat_map(|r| &order[r.start..r.start + r.count])
            .copied()
            .collect();
        let share = |run: &Run| run.count as f64 / sampled as f64;
        let mut told: Vec<(Datum, f64)> = runs
            .iter()
            .filter(|run| common.contains(&run.start))
            .map(|run| (self.values[order[run.start]].clone(), share(run)))
            .collect();
        told.sort_by(|a, b| b.1.total_cmp(&a.1));
        ColumnStatistics {
            null_fraction,
            width: self.bytes as f64 / valued as f64,
            distinct,
            common: told,
            bounds: bounds(&self.values, &rest),
            correlation: correlation(&order),
        }
    }

    /// Haas and Stokes: n d / (n - f1 + f1 n / N), where f1 values came once.
    fn distinct(&self, runs: &[Run], rows: f64) -> f64 {
        let n = (self.values.len() as u64 + self.wide) as f64;
        let d = runs.len() as f64 + self.wide as f64;
        let once = runs.iter().filter(|run| run.count == 1).count() as f64 + self.wide as f64;
        let all = rows.max(n);
        if once >= n {
            return all;
        }
        (n * d / (n - once + once * n / all)).clamp(d, all).max(1.0)
    }
}

fn runs(ty: Type, values: &[Datum], order: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, &i) in order.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if ty.compare(&values[order[run.start]].as_value(), &values[i].as_value()).is_eq() => {
                run.count += 1;
            }
            _ => runs.push(Run { start: at, count: 1 }),
        }
    }
    runs
}

/// Where the runs of common values start.
fn common(runs: &[Run], sampled: usize, distinct: f64) -> std::collections::HashSet<usize> {
    let average = sampled as f64 / distinct.max(1.0);
    let all_fit = runs.len() <= COMMON_MAX && runs.iter().all(|run| run.count > 1);
    let is_common = |run: &&Run| all_fit || (run.count > 1 && run.count as f64 > average * COMMON_TIMES);
    let mut most: Vec<&Run> = runs.iter().filter(is_common).collect();
    most.sort_by_key(|run| std::cmp::Reverse(run.count));
    most.iter().take(COMMON_MAX).map(|run| run.start).collect()
}

fn bounds(values: &[Datum], order: &[usize]) -> Vec<Datum> {
    if order.len() < 2 {
        return Vec::new();
    }
    let count = order.len().min(BOUNDS_MAX);
    (0..count).map(|i| values[order[i * (order.len() - 1) / (count - 1)]].clone()).collect()
}

/// Pearson's, of places in the sample and in the order.
fn correlation(order: &[usize]) -> f64 {
    let n = order.len() as f64;
    if n < 2.0 {
        return 1.0;
    }
    let mean = (n - 1.0) / 2.0;
    let together: f64 = order.iter().enumerate().map(|(i, &at)| (i as f64 - mean) * (at as f64 - mean)).sum();
    together / (n * (n * n - 1.0) / 12.0)
}

impl ColumnStatistics {
    fn common_share(&self) -> f64 {
        self.common.iter().map(|(_, share)| share).sum()
    }

    /// The share of rows that are neither null nor of a common value.
    fn rest_share(&self) -> f64 {
        (1.0 - self.null_fraction - self.common_share()).max(0.0)
    }

    /// The share of rows whose value is this one.
    pub fn equal(&self, ty: Type, value: &Datum) -> f64 {
        let is_it = |common: &Datum| ty.compare(&common.as_value(), &value.as_value()).is_eq();
        if let Some((_, share)) = self.common.iter().find(|(common, _)| is_it(common)) {
            return *share;
        }
        self.rest_share() / (self.distinct - self.common.len() as f64).max(1.0)
    }

    /// The share of rows for which `value op constant` holds.
    pub fn compared(&self, ty: Type, op: BinaryOp, with: &Datum) -> f64 {
        let equal = self.equal(ty, with);
        match op {
            BinaryOp::Eq => equal,
            BinaryOp::Ne => (1.0 - self.null_fraction - equal).max(0.0),
            BinaryOp::Lt => self.below(ty, with, false),
            BinaryOp::Le => self.below(ty, with, true),
            BinaryOp::Gt => (1.0 - self.null_fraction - self.below(ty, with, true)).max(0.0),
            BinaryOp::Ge => (1.0 - self.null_fraction - self.below(ty, with, false)).max(0.0),
            _ => 0.5,
        }
    }

    fn below(&self, ty: Type, with: &Datum, inclusive: bool) -> f64 {
        let is_below = |value: &Datum| match ty.compare(&value.as_value(), &with.as_value()) {
            Ordering::Less => true,
            Ordering::Equal => inclusive,
            Ordering::Greater => false,
        };
        let common: f64 = self.common.iter().filter(|(value, _)| is_below(value)).map(|(_, share)| share).sum();
        common + self.rest_share() * self.bounds_below(ty, with, is_below)
    }

    /// The share of the values between bounds that lies below; within two bounds as if they were even.
    fn bounds_below(&self, ty: Type, with: &Datum, is_below: impl Fn(&Datum) -> bool) -> f64 {
        if self.bounds.len() < 2 {
            return 0.5;
        }
        let below = self.bounds.partition_point(&is_below);
        let gaps = (self.bounds.len() - 1) as f64;
        match below {
            0 => 0.0,
            below if below == self.bounds.len() => 1.0,
            below => ((below - 1) as f64 + within(ty, &self.bounds[below - 1], &self.bounds[below], with)) / gaps,
        }
    }

    /// The share of rows for which a condition of this value alone holds, as it does for the values that are known.
    pub fn holding(&self, holds: impl Fn(&Datum) -> bool) -> f64 {
        let common: f64 = self.common.iter().filter(|(value, _)| holds(value)).map(|(_, share)| share).sum();
        if self.bounds.is_empty() {
            return common;
        }
        let holding = self.bounds.iter().filter(|value| holds(value)).count() as f64;
        // None of a hundred may still be a half of one.
        common + self.rest_share() * holding.max(0.5) / self.bounds.len() as f64
    }
}

/// How far a value lies from one bound to the next.
fn within(ty: Type, low: &Datum, high: &Datum, value: &Datum) -> f64 {
    let number = |datum: &Datum| match datum {
        Datum::Int(v) => Some(*v as f64),
        Datum::Decimal(v) => Some(*v as f64),
        Datum::Float(v) if v.is_finite() => Some(*v),
        Datum::Bytes(stored) if matches!(ty, Type::Numeric { .. }) => {
            crate::value::Numeric::from_stored(stored).to_f64().ok().filter(|v| v.is_finite())
        }
        _ => None,
    };
    match (number(low), number(high), number(value)) {
        (Some(low), Some(high), Some(value)) if high > low => ((value - low) / (high - low)).clamp(0.0, 1.0),
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl Iterator<Item = i64>, rows: f64) -> ColumnStatistics {
        let mut sample = Values::default();
        values.for_each(|v| sample.add(Datum::Int(v), 4));
        sample.statistics(Type::Int4, rows)
    }

    #[test]
    fn a_key_has_as_many_values_as_rows_and_even_bounds() {
        let key = of((0..1_000).map(|i| i * 10), 10_000.0);
        assert_eq!(key.distinct, 10_000.0);
        assert!(key.common.is_empty());
        assert_eq!(key.bounds.len(), 101);
        assert!((key.correlation - 1.0).abs() < 1e-9);
        let below = key.compared(Type::Int4, BinaryOp::Lt, &Datum::Int(2_500));
        assert!((below - 0.25).abs() < 0.01, "{below}");
        assert_eq!(key.compared(Type::Int4, BinaryOp::Gt, &Datum::Int(20_000)), 0.0);
    }

    #[test]
    fn few_values_are_all_common() {
        let few = of((0..1_000).map(|i| i % 4), 1_000_000.0);
        assert_eq!((few.distinct, few.common.len(), few.bounds.len()), (4.0, 4, 0));
        assert_eq!(few.equal(Type::Int4, &Datum::Int(3)), 0.25);
        assert_eq!(few.compared(Type::Int4, BinaryOp::Le, &Datum::Int(1)), 0.5);
        assert_eq!(few.holding(|v| *v == Datum::Int(2)), 0.25);
    }

    #[test]
    fn nulls_and_a_value_that_prevails_are_told_apart() {
        let mut sample = Values { nulls: 500, ..Values::default() };
        (0..500).for_each(|i| sample.add(Datum::Int(if i < 250 { 7 } else { i }), 4));
        let known = sample.statistics(Type::Int4, 1_000.0);
        assert_eq!(known.null_fraction, 0.5);
        assert_eq!(known.common, [(Datum::Int(7), 0.25)]);
        assert!((known.compared(Type::Int4, BinaryOp::Ne, &Datum::Int(7)) - 0.25).abs() < 1e-9);
    }
}
