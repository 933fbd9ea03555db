//! How are dates and times read and written? As PostgreSQL does it, by the setting DateStyle.
//!
//! A date counts days, a timestamp microseconds, since 2000-01-01 in the proleptic Gregorian calendar; `-infinity` and
//! `infinity` are the least and the greatest number of the field.
//!
//! Input passes two stages, as in PostgreSQL, because a field's meaning depends on its neighbours:
//! 1. the text is cut into fields by their look: `12:30` is a time, `1/2/03` a date, `+02` a zone, `8` a number;
//! 2. fields are given to year, month, day and time in the order met, each taking what is still missing.

pub(crate) mod abbreviations;
mod parse;
mod style;

pub(crate) use parse::{
    is_read_by_clock, read_date, read_time, read_timestamp, read_timestamptz, zone_named, zone_or_offset,
};
pub use style::DateStyle;
pub(crate) use style::{BadDateStyle, DateForm, DateOrder};

use super::zone::Zone;

/// PostgreSQL cuts names of zones there.
const ABBREVIATION_MAX: usize = 10;
/// Days from 1970-01-01 to 2000-01-01.
pub(crate) const EPOCH_DAYS: i64 = 10_957;
pub(crate) const DAY_US: i64 = 86_400_000_000;
pub(crate) const HOUR_US: i64 = 3_600_000_000;
pub(crate) const MINUTE_US: i64 = 60_000_000;
pub(crate) const SECOND_US: i64 = 1_000_000;

pub(crate) const DATE_INFINITY: i64 = i32::MAX as i64;
pub(crate) const DATE_NEGATIVE_INFINITY: i64 = i32::MIN as i64;
pub(crate) const INFINITY: i64 = i64::MAX;
pub(crate) const NEGATIVE_INFINITY: i64 = i64::MIN;

/// 4713-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -2_451_545;
/// The day after 5874897-12-31.
const DATE_END: i64 = 2_145_031_949;
/// 4713-11-24 BC, midnight.
const TIMESTAMP_MIN: i64 = -211_813_488_000_000_000;
/// 294277-01-01, midnight: the first moment that is out of range.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;

/// Microseconds rounded to so many digits of a second.
pub(crate) fn rounded(us: i64, digits: u32) -> i64 {
    let unit = 10i64.pow(6u32.saturating_sub(digits));
    let half = if us < 0 { -(unit / 2) } else { unit / 2 };
    match us.checked_add(half) {
        Some(moved) if is_finite(us) => moved / unit * unit,
        _ => us,
    }
}

/// A day of the calendar. Year 0 is 1 BC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
}

/// Days since 2000-01-01. Counts in eras of 400 years from a March 1st, so that a leap day ends its year.
pub(crate) fn days_of(civil: Civil) -> i64 {
    let year = civil.year - i64::from(civil.month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = (civil.month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + civil.day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - EPOCH_DAYS
}

/// The inverse of [`days_of`].
pub(crate) fn civil_of(days: i64) -> Civil {
    let days = days + EPOCH_DAYS + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month_civil = if month < 10 { month + 3 } else { month - 9 };
    Civil {
        year: era * 400 + year_of_era + i64::from(month_civil <= 2),
        month: month_civil,
        day: day_of_year - (153 * month + 2) / 5 + 1,
    }
}

pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

pub(crate) fn date_is_finite(days: i64) -> bool {
    days != DATE_INFINITY && days != DATE_NEGATIVE_INFINITY
}

pub(crate) fn is_finite(timestamp: i64) -> bool {
    timestamp != INFINITY && timestamp != NEGATIVE_INFINITY
}

/// Whether a finite date is one PostgreSQL has.
pub(crate) fn date_in_range(days: i64) -> bool {
    (DATE_MIN..DATE_END).contains(&days)
}

pub(crate) fn timestamp_in_range(timestamp: i64) -> bool {
    (TIMESTAMP_MIN..TIMESTAMP_END).contains(&timestamp)
}

/// Whether a date comes after all timestamps that PostgreSQL has.
pub(crate) fn is_beyond_timestamps(days: i64) -> bool {
    date_is_finite(days) && days.checked_mul(DAY_US).is_none_or(|us| us >= TIMESTAMP_END)
}

pub(crate) fn write_date(days: i64, style: DateStyle, out: &mut Vec<u8>) {
    match days {
        DATE_INFINITY => out.extend_from_slice(b"infinity"),
        DATE_NEGATIVE_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => {
            let civil = civil_of(days);
            match style.form {
                DateForm::Iso => write_civil(civil, out),
                DateForm::Postgres => write_in_order(civil, style.order, b'-', out),
                _ => write_local_date(civil, style, out),
            }
            write_era(civil, out);
        }
    }
}

pub(crate) fn write_time(time: i64, out: &mut Vec<u8>) {
    write_two(time / HOUR_US, out);
    out.push(b':');
    write_two(time % HOUR_US / MINUTE_US, out);
    out.push(b':');
    write_two(time % MINUTE_US / SECOND_US, out);
    let mut fraction = time % SECOND_US;
    if fraction != 0 {
        let mut digits = [b'0'; 6];
        for digit in digits.iter_mut().rev() {
            *digit += (fraction % 10) as u8;
            fraction /= 10;
        }
        let kept = digits.iter().rposition(|d| *d != b'0').map_or(0, |i| i + 1);
        out.push(b'.');
        out.extend_from_slice(&digits[..kept]);
    }
}

/// `zone`: that of a timestamptz, whose local time and offset are written, or in a form that is not ISO the zone's name of its time.
pub(crate) fn write_timestamp(timestamp: i64, zone: Option<&Zone>, style: DateStyle, out: &mut Vec<u8>) {
    match timestamp {
        INFINITY => return out.extend_from_slice(b"infinity"),
        NEGATIVE_INFINITY => return out.extend_from_slice(b"-infinity"),
        _ => {}
    }
    let local = zone.map_or(timestamp, |zone| zone.to_local(timestamp));
    let (days, time) = (local.div_euclid(DAY_US), local.rem_euclid(DAY_US));
    let civil = civil_of(days);
    if style.form == DateForm::Postgres {
        write_in_words(civil, days, time, style.order, out);
    } else {
        match style.form {
            DateForm::Iso => write_civil(civil, out),
            _ => write_local_date(civil, style, out),
        }
        out.push(b' ');
        write_time(time, out);
    }
    match zone {
        None => {}
        Some(zone) if style.form != DateForm::Iso => {
            out.push(b' ');
            let name = zone.abbreviation(timestamp);
            out.extend_from_slice(&name.as_bytes()[..name.len().min(ABBREVIATION_MAX)]);
        }
        Some(Zone::Utc) => out.extend_from_slice(b"+00"),
        Some(zone) => write_offset(zone.offset_s(timestamp), out),
    }
    write_era(civil, out);
}

/// `Mon Feb 05 12:30:00 2024`.
fn write_in_words(civil: Civil, days: i64, time: i64, order: DateOrder, out: &mut Vec<u8>) {
    const WEEKDAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS[civil.month as usize - 1].as_bytes();
    // 2000-01-01 was a Saturday.
    out.extend_from_slice(WEEKDAYS[days.rem_euclid(7) as usize].as_bytes());
    out.push(b' ');
    if order == DateOrder::Dmy {
        write_two(civil.day, out);
        out.push(b' ');
        out.extend_from_slice(month);
    } else {
        out.extend_from_slice(month);
        out.push(b' ');
        write_two(civil.day, out);
    }
    out.push(b' ');
    write_time(time, out);
    out.push(b' ');
    write_year(civil, out);
}

/// A date as the forms `SQL` and `German` have it.
fn write_local_date(civil: Civil, style: DateStyle, out: &mut Vec<u8>) {
    match style.form {
        DateForm::German => write_in_order(civil, DateOrder::Dmy, b'.', out),
        _ => write_in_order(civil, style.order, b'/', out),
    }
}

/// The year comes last; the day comes first only where the order says so.
fn write_in_order(civil: Civil, order: DateOrder, between: u8, out: &mut Vec<u8>) {
    let (first, second) = match order {
        DateOrder::Dmy => (civil.day, civil.month),
        _ => (civil.month, civil.day),
    };
    write_two(first, out);
    out.push(between);
    write_two(second, out);
    out.push(between);
    write_year(civil, out);
}

/// `+02`, `-03:30`, `+00:19:32`.
fn write_offset(offset_s: i64, out: &mut Vec<u8>) {
    out.push(if offset_s < 0 { b'-' } else { b'+' });
    let seconds = offset_s.abs();
    write_two(seconds / 3600, out);
    if seconds % 3600 != 0 {
        out.push(b':');
        write_two(seconds % 3600 / 60, out);
    }
    if seconds % 60 != 0 {
        out.push(b':');
        write_two(seconds % 60, out);
    }
}

fn write_civil(civil: Civil, out: &mut Vec<u8>) {
    write_year(civil, out);
    out.push(b'-');
    write_two(civil.month, out);
    out.push(b'-');
    write_two(civil.day, out);
}

fn write_year(civil: Civil, out: &mut Vec<u8>) {
    let year = if civil.year > 0 { civil.year } else { 1 - civil.year };
    if year < 10_000 {
        write_two(year / 100, out);
        write_two(year % 100, out);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(year).as_bytes());
    }
}

fn write_era(civil: Civil, out: &mut Vec<u8>) {
    if civil.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_two(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]);
}
