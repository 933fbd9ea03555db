//! Functions of dates, times and time zones.

use super::arguments::{Arguments, text};
use super::calendar;
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::datetime::{self, DAY_US, EPOCH_DAYS, HOUR_US, MINUTE_US, SECOND_US};
use crate::value::zone::Zone;
use freshet_engine::schema::Value;
use std::time::{SystemTime, UNIX_EPOCH};

type Result<T = Datum> = std::result::Result<T, SqlError>;

fn out_of_range(message: String) -> SqlError {
    SqlError::new("22008", message)
}

pub(super) fn date_trunc_in(a: &Arguments<'_>) -> Result {
    let zone = datetime::zone_named(a.text(2))?;
    calendar::date_trunc_in(a.bytes(0), a.int(1), &zone).map(Datum::Int)
}

/// The start of the stride around a moment, counted from an origin.
pub(super) fn date_bin(a: &Arguments<'_>) -> Result {
    let (stride, at, origin) = (a.interval(0), a.int(1), a.int(2));
    if stride.months != 0 {
        return Err(SqlError::new("0A000", "timestamps cannot be binned into intervals containing months or years"));
    }
    let too_long = || out_of_range("interval out of range".to_owned());
    let stride = i64::try_from(stride.length_us()).map_err(|_| too_long())?;
    if stride <= 0 {
        return Err(out_of_range("stride must be greater than zero".to_owned()));
    }
    if !datetime::is_finite(at) {
        return Ok(Datum::Int(at));
    }
    if !datetime::is_finite(origin) {
        return Err(out_of_range("origin out of range".to_owned()));
    }
    let since = at.checked_sub(origin).ok_or_else(too_long)?;
    // Before the origin the start may be one that no timestamp has.
    let start = at.checked_sub(since.rem_euclid(stride)).filter(|us| datetime::timestamp_in_range(*us));
    start.map(Datum::Int).ok_or_else(|| out_of_range("timestamp out of range".to_owned()))
}

pub(super) fn to_moment(a: &Arguments<'_>) -> Result {
    in_range(datetime::zone_named(a.text(0))?.to_utc(a.int(1)))
}

pub(super) fn to_local(a: &Arguments<'_>) -> Result {
    in_range(datetime::zone_named(a.text(0))?.to_local(a.int(1)))
}

fn zone_of_interval(a: &Arguments<'_>) -> Result<Zone> {
    let span = a.interval(0);
    if span.months != 0 || span.days != 0 {
        let mut shown = Vec::new();
        span.write(&mut shown);
        let shown = String::from_utf8_lossy(&shown);
        return Err(SqlError::new("22023", format!("interval time zone \"{shown}\" must not include months or days")));
    }
    Ok(Zone::east(span.us / SECOND_US))
}

pub(super) fn to_moment_by(a: &Arguments<'_>) -> Result {
    in_range(zone_of_interval(a)?.to_utc(a.int(1)))
}

pub(super) fn to_local_by(a: &Arguments<'_>) -> Result {
    in_range(zone_of_interval(a)?.to_local(a.int(1)))
}

fn in_range(timestamp: i64) -> Result {
    if datetime::is_finite(timestamp) && !datetime::timestamp_in_range(timestamp) {
        return Err(out_of_range("timestamp out of range".to_owned()));
    }
    Ok(Datum::Int(timestamp))
}

fn time_of(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let us = (second * 1e6).round_ties_even();
    let whole = hour * HOUR_US + minute * MINUTE_US + if us.is_finite() { us as i64 } else { i64::MIN / 2 };
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    if !fits || whole > DAY_US {
        return Err(out_of_range(format!("time field value out of range: {hour}:{minute:02}:{second:02}")));
    }
    Ok(whole)
}

pub(super) fn make_time(a: &Arguments<'_>) -> Result {
    time_of(a.int(0), a.int(1), a.float(2)).map(Datum::Int)
}

fn local(a: &Arguments<'_>) -> Result<i64> {
    let days = calendar::make_date(a.int(0), a.int(1), a.int(2))?;
    let time = time_of(a.int(3), a.int(4), a.float(5))?;
    let at = days.checked_mul(DAY_US).and_then(|us| us.checked_add(time));
    at.filter(|us| datetime::timestamp_in_range(*us)).ok_or_else(|| out_of_range("timestamp out of range".to_owned()))
}

pub(super) fn make_timestamp(a: &Arguments<'_>) -> Result {
    local(a).map(Datum::Int)
}

pub(super) fn make_timestamptz(a: &Arguments<'_>) -> Result {
    let local = local(a)?;
    let own = if a.len() == 7 { Some(datetime::zone_or_offset(a.text(6))?) } else { None };
    in_range(own.as_ref().unwrap_or(&a.clock.zone).to_utc(local))
}

/// Seconds since 1970.
pub(super) fn to_timestamp(a: &Arguments<'_>) -> Result {
    let seconds = a.float(0);
    if seconds.is_infinite() {
        return Ok(Datum::Int(if seconds > 0.0 { datetime::INFINITY } else { datetime::NEGATIVE_INFINITY }));
    }
    let us = ((seconds - (EPOCH_DAYS * 86_400) as f64) * 1e6).round_ties_even();
    if seconds.is_nan() || us.abs() >= 9.3e18 || !datetime::timestamp_in_range(us as i64) {
        return Err(out_of_range(format!("timestamp out of range: \"{seconds}\"")));
    }
    Ok(Datum::Int(us as i64))
}

fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64 - EPOCH_DAYS * DAY_US
}

pub(super) fn clock_timestamp(_: &Arguments<'_>) -> Result {
    Ok(Datum::Int(wall_clock()))
}

pub(super) fn timeofday(a: &Arguments<'_>) -> Result {
    let now = wall_clock();
    let shown = super::formatting::formatted(
        a.clock.zone.to_local(now),
        "Dy Mon DD HH24:MI:SS.US YYYY",
        &super::formatting::Place::default(),
    )?;
    Ok(text(format!("{shown} {}", a.clock.zone.abbreviation(now))))
}

/// `(a, b) overlaps (c, d)`: whether two spans of time have a moment in common.
pub(super) fn overlaps(a: &Arguments<'_>) -> Result {
    let end = |at: usize| match a.values[at] {
        Value::Int(v) => Some(v),
        _ => None,
    };
    // A span that lacks an end may still be known to begin within the other.
    let ordered = |x: Option<i64>, y: Option<i64>| match (x, y) {
        (Some(x), Some(y)) => Some((x.min(y), Some(x.max(y)))),
        (Some(x), None) | (None, Some(x)) => Some((x, None)),
        (None, None) => None,
    };
    let (Some((s1, e1)), Some((s2, e2))) = (ordered(end(0), end(1)), ordered(end(2), end(3))) else {
        return Ok(Datum::Null);
    };
    let within = |start: i64, end: Option<i64>| match end {
        Some(end) if start < end => Datum::Bool(true),
        Some(end) if e1.is_some() && e2.is_some() => Datum::Bool(start < end),
        _ => Datum::Null,
    };
    Ok(match s1.cmp(&s2) {
        std::cmp::Ordering::Greater => within(s1, e2),
        std::cmp::Ordering::Less => within(s2, e1),
        std::cmp::Ordering::Equal if e1.is_none() || e2.is_none() => Datum::Null,
        std::cmp::Ordering::Equal => Datum::Bool(true),
    })
}

/// `timestamp(p)`, `time(p)`: a value with so many digits of a second.
pub(super) fn with_digits(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(datetime::rounded(a.int(0), a.int(1).clamp(0, 6) as u32)))
}
