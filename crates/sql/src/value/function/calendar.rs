//! Functions of dates and times: fields and truncation. A timestamptz is looked at as the clock's local time.

use super::{Function, FunctionId};
use crate::error::SqlError;
use crate::value::datetime::{self, Civil, DAY_US, EPOCH_DAYS, INFINITY, NEGATIVE_INFINITY, civil_of, days_of};
use crate::value::interval::Interval;
use crate::value::numeric::Numeric;
use crate::value::zone::{Clock, Zone};
use crate::value::{Datum, pgtype};
use freshet_engine::schema::{Type, Value};

const HOUR_US: i64 = 3_600_000_000;
const MINUTE_US: i64 = 60_000_000;
const SECOND_US: i64 = 1_000_000;
/// The Julian day of 2000-01-01.
const JULIAN_2000: i64 = 2_451_545;

pub(super) fn is_own(id: FunctionId) -> bool {
    use FunctionId::{DatePart, DateTrunc, Extract, IsFinite};
    matches!(id, DatePart | DateTrunc | Extract | IsFinite)
}

pub(super) fn call(function: &Function, values: &[Value<'_>], clock: &Clock) -> Result<Datum, SqlError> {
    match (function.id, values) {
        (FunctionId::IsFinite, [Value::Int(v)]) => Ok(Datum::Bool(is_finite(function.arguments[0], *v))),
        (id, [Value::Bytes(unit), Value::Int(v)]) => {
            let ty = function.arguments[1];
            let unit = Unit::of(unit, ty)?;
            match id {
                FunctionId::DateTrunc => trunc_in(unit, *v, ty, &clock.zone).map(Datum::Int),
                _ => field(unit, *v, ty, &clock.zone).map(|number| match (number, id) {
                    (None, _) => Datum::Null,
                    (Some(number), FunctionId::Extract) => Datum::Bytes(number.to_numeric().to_stored()),
                    (Some(number), _) => Datum::Float(number.to_float()),
                }),
            }
        }
        _ => Err(function.misplaced()),
    }
}

fn is_finite(ty: Type, value: i64) -> bool {
    match ty {
        Type::Date => datetime::date_is_finite(value),
        Type::Time => true,
        _ => datetime::is_finite(value),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    Dow,
    IsoDow,
    Doy,
    IsoYear,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

/// A field and how the statement spelled it, for messages.
struct Unit {
    field: Field,
    spelling: String,
}

impl Unit {
    fn of(text: &[u8], ty: Type) -> Result<Unit, SqlError> {
        let spelling = String::from_utf8_lossy(text).to_ascii_lowercase();
        let field = match spelling.as_str() {
            "microseconds" | "microsecond" | "us" | "usec" | "usecs" | "usecond" | "useconds" => Field::Microseconds,
            "milliseconds" | "millisecond" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => Field::Milliseconds,
            "second" | "seconds" | "sec" | "secs" | "s" => Field::Second,
            "minute" | "minutes" | "min" | "mins" | "m" => Field::Minute,
            "hour" | "hours" | "hr" | "hrs" | "h" => Field::Hour,
            "day" | "days" | "d" => Field::Day,
            "week" | "weeks" | "w" => Field::Week,
            "month" | "months" | "mon" | "mons" => Field::Month,
            "quarter" | "qtr" => Field::Quarter,
            "year" | "years" | "yr" | "yrs" | "y" => Field::Year,
            "decade" | "decades" | "dec" | "decs" => Field::Decade,
            "century" | "centuries" | "cent" | "c" => Field::Century,
            "millennium" | "millennia" | "mil" | "mils" => Field::Millennium,
            "epoch" => Field::Epoch,
            "dow" => Field::Dow,
            "isodow" => Field::IsoDow,
            "doy" => Field::Doy,
            "isoyear" => Field::IsoYear,
            "julian" | "jd" | "j" => Field::Julian,
            "timezone" => Field::Timezone,
            "timezone_hour" | "timezone_h" => Field::TimezoneHour,
            "timezone_minute" | "timezone_m" => Field::TimezoneMinute,
            _ => return Err(refuse("22023", "not recognized", &spelling, ty)),
        };
        Ok(Unit { field, spelling })
    }

    fn unsupported(&self, ty: Type) -> SqlError {
        refuse("0A000", "not supported", &self.spelling, ty)
    }
}

fn refuse(sqlstate: &'static str, what: &str, unit: &str, ty: Type) -> SqlError {
    let name = pgtype::name(ty);
    SqlError::new(sqlstate, format!("unit \"{unit}\" {what} for type {name}"))
}

/// A field's number: an integer of units of `10^-scale`, or an infinity.
enum Number {
    Exact(i128, u8),
    Julian { days: i64, time: i64 },
    Infinite { negative: bool },
}

impl Number {
    fn to_numeric(&self) -> Numeric {
        match *self {
            Number::Exact(unscaled, scale) => Numeric::from_decimal(unscaled, scale),
            Number::Julian { days, time } => {
                // The quotient shows 20 places.
                let part = Numeric::from_i64(time).div(&Numeric::from_i64(DAY_US));
                let whole = Numeric::from_i64(days + JULIAN_2000);
                part.and_then(|part| whole.add(&part)).expect("a Julian day is far within the limits of numeric")
            }
            Number::Infinite { negative: false } => Numeric::Infinity,
            Number::Infinite { negative: true } => Numeric::NegativeInfinity,
        }
    }

    fn to_float(&self) -> f64 {
        match *self {
            Number::Exact(unscaled, scale) => unscaled as f64 / 10f64.powi(scale.into()),
            Number::Julian { days, time } => (days + JULIAN_2000) as f64 + time as f64 / DAY_US as f64,
            Number::Infinite { negative: false } => f64::INFINITY,
            Number::Infinite { negative: true } => f64::NEG_INFINITY,
        }
    }
}

/// `None` is NULL: a field that comes again and again has no value at infinity.
fn field(unit: Unit, value: i64, ty: Type, zone: &Zone) -> Result<Option<Number>, SqlError> {
    let local = if ty == Type::Timestamptz { zone.to_local(value) } else { value };
    let (days, time) = match ty {
        Type::Date => (value, 0),
        Type::Time => (0, value),
        _ => (local.div_euclid(DAY_US), local.rem_euclid(DAY_US)),
    };
    if !supported(unit.field, ty) {
        return Err(unit.unsupported(ty));
    }
    if !is_finite(ty, value) {
        let grows = matches!(
            unit.field,
            Field::Year
                | Field::Decade
                | Field::Century
                | Field::Millennium
                | Field::Julian
                | Field::IsoYear
                | Field::Epoch
        );
        return Ok(grows.then_some(Number::Infinite { negative: value < 0 }));
    }
    let whole = |v: i64| Number::Exact(v.into(), 0);
    Ok(Some(match unit.field {
        Field::Microseconds => whole(time % MINUTE_US),
        Field::Milliseconds => Number::Exact((time % MINUTE_US).into(), 3),
        Field::Second => Number::Exact((time % MINUTE_US).into(), 6),
        Field::Minute => whole(time % HOUR_US / MINUTE_US),
        Field::Hour => whole(time / HOUR_US),
        Field::Epoch => match ty {
            Type::Date => whole((days + EPOCH_DAYS) * 86_400),
            Type::Time => Number::Exact(time.into(), 6),
            _ => {
                let since_1970 = i128::from(value) + i128::from(EPOCH_DAYS) * i128::from(DAY_US);
                Number::Exact(since_1970, 6)
            }
        },
        Field::Julian if ty == Type::Date => whole(days + JULIAN_2000),
        Field::Julian => Number::Julian { days, time },
        Field::Timezone => whole(zone.offset_s(value)),
        Field::TimezoneHour => whole(zone.offset_s(value) / 3600),
        Field::TimezoneMinute => whole(zone.offset_s(value) % 3600 / 60),
        calendar => whole(calendar_field(calendar, days)),
    }))
}

fn supported(field: Field, ty: Type) -> bool {
    use Field::*;
    let of_time = matches!(field, Microseconds | Milliseconds | Second | Minute | Hour);
    let of_zone = matches!(field, Timezone | TimezoneHour | TimezoneMinute);
    match ty {
        Type::Date => !of_time && !of_zone,
        Type::Time => of_time || field == Epoch,
        Type::Timestamptz => true,
        _ => !of_zone,
    }
}

fn calendar_field(field: Field, days: i64) -> i64 {
    let civil = civil_of(days);
    let year = civil.year;
    // There is no year 0: 1 BC is shown as -1.
    let shown = |year: i64| if year > 0 { year } else { year - 1 };
    match field {
        Field::Day => civil.day,
        Field::Month => civil.month,
        Field::Quarter => (civil.month - 1) / 3 + 1,
        Field::Year => shown(year),
        Field::Decade => year.div_euclid(10),
        Field::Century => span_number(year, 100),
        Field::Millennium => span_number(year, 1000),
        Field::Dow => weekday(days) % 7,
        Field::IsoDow => weekday(days),
        Field::Doy => days - first_of_year(year) + 1,
        Field::Week => iso_week(days).1,
        _ => shown(iso_week(days).0),
    }
}

/// Century or millennium of a year: the first begins with year 1, the one before it is -1.
fn span_number(year: i64, length: i64) -> i64 {
    if year > 0 { (year + length - 1) / length } else { -((length - year) / length) }
}

/// 1 for Monday to 7 for Sunday. 2000-01-01 was a Saturday.
pub(super) fn weekday(days: i64) -> i64 {
    (days + 5).rem_euclid(7) + 1
}

pub(super) fn first_of_year(year: i64) -> i64 {
    days_of(Civil { year, month: 1, day: 1 })
}

/// ISO 8601: a week belongs to the year that has its Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - weekday(days) + 4;
    let year = civil_of(thursday).year;
    (year, (thursday - first_of_year(year)) / 7 + 1)
}

/// `date_trunc` of a timestamp, or of a moment by the zone's clock. Hours and less are cut off with the offset that the moment has, which
/// tells apart what comes twice.
fn trunc_in(unit: Unit, value: i64, ty: Type, zone: &Zone) -> Result<i64, SqlError> {
    if ty != Type::Timestamptz || *zone == Zone::Utc || !datetime::is_finite(value) {
        return date_trunc(unit, value, ty);
    }
    let small =
        matches!(unit.field, Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour);
    let offset_us = zone.offset_s(value) * SECOND_US;
    let cut = date_trunc(unit, value + offset_us, ty)?;
    Ok(if small { cut - offset_us } else { zone.to_utc(cut) })
}

/// `date_trunc(unit, moment, zone)`.
pub(super) fn date_trunc_in(unit: &[u8], moment: i64, zone: &Zone) -> Result<i64, SqlError> {
    trunc_in(Unit::of(unit, Type::Timestamptz)?, moment, Type::Timestamptz, zone)
}

/// `extract` and `date_part` of an interval.
pub(super) fn interval_field(unit: &[u8], interval: Interval) -> Result<(i128, u8), SqlError> {
    let unit = Unit::of(unit, Type::Interval)?;
    let (months, us) = (i128::from(interval.months), i128::from(interval.us));
    let minute = us % i128::from(MINUTE_US);
    Ok(match unit.field {
        Field::Microseconds => (minute, 0),
        Field::Milliseconds => (minute, 3),
        Field::Second => (minute, 6),
        Field::Minute => (us % i128::from(HOUR_US) / i128::from(MINUTE_US), 0),
        Field::Hour => (us / i128::from(HOUR_US), 0),
        Field::Day => (interval.days.into(), 0),
        Field::Month => (months % 12, 0),
        Field::Quarter => (months % 12 / 3 + 1, 0),
        Field::Year => (months / 12, 0),
        Field::Decade => (months / 120, 0),
        Field::Century => (months / 1200, 0),
        Field::Millennium => (months / 12_000, 0),
        Field::Epoch => {
            // A year counts 365.25 days here, a month of what is left 30.
            let seconds = (months / 12) * 31_557_600 + (months % 12) * 30 * 86_400 + i128::from(interval.days) * 86_400;
            (seconds * i128::from(SECOND_US) + us, 6)
        }
        _ => return Err(unit.unsupported(Type::Interval)),
    })
}

/// `date_trunc` of an interval.
pub(super) fn interval_trunc(unit: &[u8], interval: Interval) -> Result<Interval, SqlError> {
    let unit = Unit::of(unit, Type::Interval)?;
    let Interval { months, days, us } = interval;
    let whole_months = |count: i32| Ok(Interval { months: months / count * count, days: 0, us: 0 });
    let whole_us = |count: i64| Ok(Interval { months, days, us: us / count * count });
    match unit.field {
        Field::Microseconds => Ok(interval),
        Field::Milliseconds => whole_us(1_000),
        Field::Second => whole_us(SECOND_US),
        Field::Minute => whole_us(MINUTE_US),
        Field::Hour => whole_us(HOUR_US),
        Field::Day => whole_us(i64::MAX),
        Field::Month => whole_months(1),
        Field::Quarter => whole_months(3),
        Field::Year => whole_months(12),
        Field::Decade => whole_months(120),
        Field::Century => whole_months(1200),
        Field::Millennium => whole_months(12_000),
        _ => Err(unit.unsupported(Type::Interval)),
    }
}

fn date_trunc(unit: Unit, timestamp: i64, ty: Type) -> Result<i64, SqlError> {
    let step = match unit.field {
        Field::Microseconds => 1,
        Field::Milliseconds => 1_000,
        Field::Second => SECOND_US,
        Field::Minute => MINUTE_US,
        Field::Hour => HOUR_US,
        Field::Day => DAY_US,
        Field::Week | Field::Month | Field::Quarter | Field::Year => 0,
        Field::Decade | Field::Century | Field::Millennium => 0,
        _ => return Err(unit.unsupported(ty)),
    };
    if matches!(timestamp, INFINITY | NEGATIVE_INFINITY) {
        return Ok(timestamp);
    }
    if step > 0 {
        return Ok(timestamp - timestamp.rem_euclid(step));
    }
    let days = first_day(unit.field, timestamp.div_euclid(DAY_US));
    let start = days * DAY_US;
    if !datetime::timestamp_in_range(start) {
        return Err(SqlError::new("22008", "timestamp out of range"));
    }
    Ok(start)
}

/// The first day of the week, month or longer span around a day.
fn first_day(field: Field, days: i64) -> i64 {
    let Civil { year, month, .. } = civil_of(days);
    let start = |year, month| days_of(Civil { year, month, day: 1 });
    // Centuries and millennia begin with their year 1.
    let span = |length: i64| (year - 1).div_euclid(length) * length + 1;
    match field {
        Field::Week => days - weekday(days) + 1,
        Field::Month => start(year, month),
        Field::Quarter => start(year, (month - 1) / 3 * 3 + 1),
        Field::Decade => start(year.div_euclid(10) * 10, 1),
        Field::Century => start(span(100), 1),
        Field::Millennium => start(span(1000), 1),
        _ => start(year, 1),
    }
}

/// Days since 2000-01-01; a negative year is one BC.
pub(super) fn make_date(year: i64, month: i64, day: i64) -> Result<i64, SqlError> {
    let refused = |message: &str| SqlError::new("22008", format!("{message}: {year}-{month:02}-{day:02}"));
    let civil = Civil { year: if year < 0 { year + 1 } else { year }, month, day };
    let in_calendar =
        year != 0 && (1..=12).contains(&month) && (1..=datetime::days_in_month(civil.year, month)).contains(&day);
    if !in_calendar {
        return Err(refused("date field value out of range"));
    }
    let days = days_of(civil);
    if !datetime::date_in_range(days) {
        return Err(refused("date out of range"));
    }
    Ok(days)
}
