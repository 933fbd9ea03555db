//! Functions and operators of intervals.

use super::arguments::{Arguments, interval, numeric};
use super::calendar;
use crate::error::SqlError;
use crate::value::interval::{self as spans, Interval};
use crate::value::numeric::Numeric;
use crate::value::{Datum, cast, datetime};
use freshet_engine::schema::Type;

type Result = std::result::Result<Datum, SqlError>;

/// The place of the argument of type interval, and of the other.
fn places(a: &Arguments<'_>) -> (usize, usize) {
    if a.types[0] == Type::Interval { (0, 1) } else { (1, 0) }
}

pub(super) fn plus(a: &Arguments<'_>) -> Result {
    a.interval(0).plus(a.interval(1)).map(interval)
}

pub(super) fn minus(a: &Arguments<'_>) -> Result {
    a.interval(0).minus(a.interval(1)).map(interval)
}

pub(super) fn negated(a: &Arguments<'_>) -> Result {
    a.interval(0).negated().map(interval)
}

pub(super) fn times(a: &Arguments<'_>) -> Result {
    let (span, factor) = places(a);
    a.interval(span).times(a.float(factor)).map(interval)
}

pub(super) fn divided(a: &Arguments<'_>) -> Result {
    if a.float(1) == 0.0 {
        return Err(crate::value::fault::division_by_zero());
    }
    a.interval(0).divided(a.float(1)).map(interval)
}

pub(super) fn date_plus(a: &Arguments<'_>) -> Result {
    let (span, date) = places(a);
    spans::moved(cast::date_to_timestamp(a.int(date))?, a.interval(span)).map(Datum::Int)
}

pub(super) fn date_minus(a: &Arguments<'_>) -> Result {
    spans::moved(cast::date_to_timestamp(a.int(0))?, a.interval(1).negated()?).map(Datum::Int)
}

pub(super) fn timestamp_plus(a: &Arguments<'_>) -> Result {
    let (span, timestamp) = places(a);
    spans::moved(a.int(timestamp), a.interval(span)).map(Datum::Int)
}

pub(super) fn timestamp_minus(a: &Arguments<'_>) -> Result {
    spans::moved(a.int(0), a.interval(1).negated()?).map(Datum::Int)
}

pub(super) fn moment_plus(a: &Arguments<'_>) -> Result {
    let (span, moment) = places(a);
    spans::moved_in(a.int(moment), a.interval(span), &a.clock.zone).map(Datum::Int)
}

pub(super) fn moment_minus(a: &Arguments<'_>) -> Result {
    spans::moved_in(a.int(0), a.interval(1).negated()?, &a.clock.zone).map(Datum::Int)
}

/// A time of day goes around.
pub(super) fn time_plus(a: &Arguments<'_>) -> Result {
    let (span, time) = places(a);
    Ok(Datum::Int((a.int(time) + a.interval(span).us % datetime::DAY_US).rem_euclid(datetime::DAY_US)))
}

pub(super) fn time_minus(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int((a.int(0) - a.interval(1).us % datetime::DAY_US).rem_euclid(datetime::DAY_US)))
}

pub(super) fn times_apart(a: &Arguments<'_>) -> Result {
    Ok(interval(Interval::of_us(a.int(0) - a.int(1))))
}

pub(super) fn timestamps_apart(a: &Arguments<'_>) -> Result {
    spans::between(a.int(0), a.int(1)).map(interval)
}

pub(super) fn justify_days(a: &Arguments<'_>) -> Result {
    a.interval(0).justify_days().map(interval)
}

pub(super) fn justify_hours(a: &Arguments<'_>) -> Result {
    a.interval(0).justify_hours().map(interval)
}

pub(super) fn justify_interval(a: &Arguments<'_>) -> Result {
    a.interval(0).justify().map(interval)
}

pub(super) fn make_interval(a: &Arguments<'_>) -> Result {
    let part = |at: usize| i128::from(a.int(at));
    let seconds = (a.float(6) * 1e6).round_ties_even();
    if !seconds.is_finite() || seconds.abs() > 9e18 {
        return Err(spans::out_of_range());
    }
    let us = (part(4) * 3600 + part(5) * 60) * i128::from(datetime::SECOND_US) + seconds as i128;
    Interval::checked(part(0) * 12 + part(1), part(2) * 7 + part(3), us).map(interval)
}

pub(super) fn extract(a: &Arguments<'_>) -> Result {
    let (unscaled, scale) = calendar::interval_field(a.bytes(0), a.interval(1))?;
    Ok(numeric(&Numeric::from_decimal(unscaled, scale)))
}

pub(super) fn date_part(a: &Arguments<'_>) -> Result {
    let (unscaled, scale) = calendar::interval_field(a.bytes(0), a.interval(1))?;
    Ok(Datum::Float(unscaled as f64 / 10f64.powi(scale.into())))
}

pub(super) fn date_trunc(a: &Arguments<'_>) -> Result {
    calendar::interval_trunc(a.bytes(0), a.interval(1)).map(interval)
}

pub(super) fn isfinite(_: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(true))
}

pub(super) fn age(a: &Arguments<'_>) -> Result {
    spans::age(a.int(0), a.int(1)).map(interval)
}

pub(super) fn age_of_moments(a: &Arguments<'_>) -> Result {
    let local = |at: usize| a.clock.zone.to_local(a.int(at));
    spans::age(local(0), local(1)).map(interval)
}

/// Since midnight of today.
pub(super) fn age_today(a: &Arguments<'_>) -> Result {
    let zone = &a.clock.zone;
    let today = zone.to_local(a.clock.now).div_euclid(datetime::DAY_US) * datetime::DAY_US;
    let then = if a.types[0] == Type::Timestamptz { zone.to_local(a.int(0)) } else { a.int(0) };
    spans::age(today, then).map(interval)
}

/// `interval(p)`: seconds with so many digits.
pub(super) fn with_digits(a: &Arguments<'_>) -> Result {
    let span = a.interval(0);
    Ok(interval(Interval { us: datetime::rounded(span.us, a.int(1).clamp(0, 6) as u32), ..span }))
}
