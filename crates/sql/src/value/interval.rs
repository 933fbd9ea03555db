//! What is an interval? Months, days and microseconds, each with a sign of its own: a month is as long as its calendar month, a day as
//! its zone's day. Compared, a month counts 30 days and a day 24 hours.
//!
//! # Stored form
//!
//! The whole length in microseconds, 16 bytes, big-endian, its sign inverted; then months and days, 4 bytes each. The microseconds are
//! the length without both. Bytes compare as intervals do, but for the last eight (`Type::key_bytes`).

mod arithmetic;
mod limit;
mod parse;

pub(crate) use arithmetic::*;
pub(crate) use limit::Limit;
pub(crate) use parse::{Fields, Unit, read};

use super::datetime::{DAY_US, HOUR_US, MINUTE_US, SECOND_US};
use super::fault;
use crate::error::SqlError;

/// Days that a month counts where its calendar month is not known.
pub(crate) const MONTH_DAYS: i64 = 30;

/// How intervals are written: the setting IntervalStyle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IntervalStyle {
    #[default]
    Postgres,
    PostgresVerbose,
    Iso8601,
}

impl IntervalStyle {
    /// The setting's values, but for `sql_standard`, by which intervals would be read otherwise too.
    pub(crate) const NAMES: &[&str] = &["postgres", "postgres_verbose", "iso_8601"];

    pub(crate) fn named(name: &str) -> IntervalStyle {
        match name {
            "iso_8601" => IntervalStyle::Iso8601,
            "postgres_verbose" => IntervalStyle::PostgresVerbose,
            _ => IntervalStyle::Postgres,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Interval {
    pub months: i32,
    pub days: i32,
    pub us: i64,
}

impl Interval {
    pub fn length_us(&self) -> i128 {
        let days = i128::from(self.days) + i128::from(self.months) * i128::from(MONTH_DAYS);
        i128::from(self.us) + days * i128::from(DAY_US)
    }

    pub fn to_stored(self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(24);
        out.extend_from_slice(&((self.length_us() as u128) ^ 1 << 127).to_be_bytes());
        out.extend_from_slice(&self.months.to_be_bytes());
        out.extend_from_slice(&self.days.to_be_bytes());
        out.into()
    }

    pub fn from_stored(stored: &[u8]) -> Interval {
        let (length, rest) = stored.split_first_chunk::<16>().expect("invariant: an interval has 24 bytes");
        let (months, days) = rest.split_first_chunk::<4>().expect("invariant: an interval has 24 bytes");
        let days = days.first_chunk::<4>().expect("invariant: an interval has 24 bytes");
        let mut interval = Interval { months: i32::from_be_bytes(*months), days: i32::from_be_bytes(*days), us: 0 };
        let length = (u128::from_be_bytes(*length) ^ 1 << 127) as i128;
        interval.us = (length - interval.length_us()) as i64;
        interval
    }

    /// The output function.
    pub fn write_as(&self, style: IntervalStyle, out: &mut Vec<u8>) {
        match style {
            IntervalStyle::Postgres => self.write(out),
            IntervalStyle::PostgresVerbose => self.write_in_words(out),
            IntervalStyle::Iso8601 => self.write_in_designators(out),
        }
    }

    /// Years, months, days, hours and minutes, and microseconds, each with its own sign.
    fn fields(&self) -> ([i64; 5], i64) {
        let minutes = self.us / MINUTE_US;
        let date = [self.months / 12, self.months % 12, self.days].map(i64::from);
        ([date[0], date[1], date[2], minutes / 60, minutes % 60], self.us % MINUTE_US)
    }

    /// `P1Y2M3DT4H5M6.7S`.
    fn write_in_designators(&self, out: &mut Vec<u8>) {
        let (fields, us) = self.fields();
        if fields == [0; 5] && us == 0 {
            return out.extend_from_slice(b"PT0S");
        }
        out.push(b'P');
        for (at, (count, unit)) in fields.into_iter().zip("YMDHM".chars()).enumerate() {
            if at == 3 && self.us != 0 {
                out.push(b'T');
            }
            if count != 0 {
                out.extend_from_slice(format!("{count}{unit}").as_bytes());
            }
        }
        if us != 0 {
            out.extend_from_slice(if us < 0 { b"-" } else { b"" });
            write_seconds(us.unsigned_abs(), out);
            out.push(b'S');
        }
    }

    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6.7 secs ago`: the first part says whether all of it is before.
    fn write_in_words(&self, out: &mut Vec<u8>) {
        let (fields, us) = self.fields();
        let sign = fields.into_iter().chain([us]).find(|count| *count != 0).map_or(0, i64::signum);
        out.push(b'@');
        for (count, unit) in fields.into_iter().zip(["year", "mon", "day", "hour", "min"]) {
            if count != 0 {
                let count = count * sign;
                out.extend_from_slice(format!(" {count} {unit}{}", if count == 1 { "" } else { "s" }).as_bytes());
            }
        }
        if us != 0 {
            out.extend_from_slice(if us.signum() == sign { b" " } else { b" -" });
            write_seconds(us.unsigned_abs(), out);
            out.extend_from_slice(if us.abs() == SECOND_US { b" sec" } else { b" secs" });
        }
        out.extend_from_slice(match sign {
            0 => b" 0".as_slice(),
            -1 => b" ago",
            _ => b"",
        });
    }

    /// The output function, in the style `postgres`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (mut first, mut after_negative) = (true, false);
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
            let blank = if first { "" } else { " " };
            let sign = if after_negative && count > 0 { "+" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            out.extend_from_slice(format!("{blank}{sign}{count} {unit}{plural}").as_bytes());
            (first, after_negative) = (false, count < 0);
        }
        if first || self.us != 0 {
            let sign = match self.us {
                us if us < 0 => "-",
                _ if after_negative => "+",
                _ => "",
            };
            out.extend_from_slice(if first { b"" } else { b" " });
            out.extend_from_slice(sign.as_bytes());
            write_clock(self.us.unsigned_abs(), out);
        }
    }
}

/// Hours, at least two digits, minutes, seconds.
fn write_clock(us: u64, out: &mut Vec<u8>) {
    let [hour, minute, second] = [HOUR_US, MINUTE_US, SECOND_US].map(|unit| unit as u64);
    let head = format!("{:02}:{:02}:{:02}", us / hour, us % hour / minute, us % minute / second);
    out.extend_from_slice(head.as_bytes());
    write_fraction(us % second, out);
}

/// Seconds without zeros before them.
fn write_seconds(us: u64, out: &mut Vec<u8>) {
    let second = SECOND_US as u64;
    out.extend_from_slice((us / second).to_string().as_bytes());
    write_fraction(us % second, out);
}

fn write_fraction(fraction: u64, out: &mut Vec<u8>) {
    if fraction != 0 {
        let digits = format!(".{fraction:06}");
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

pub(crate) fn out_of_range() -> SqlError {
    SqlError::new("22008", "interval out of range")
}

/// The receive function: microseconds, days, months.
pub(crate) fn receive(bytes: &[u8]) -> Result<Interval, SqlError> {
    let bytes: &[u8; 16] = bytes.try_into().map_err(|_| fault::binary_invalid())?;
    let (us, rest) = bytes.split_first_chunk::<8>().expect("sixteen are more than eight");
    let (days, months) = rest.split_first_chunk::<4>().expect("eight are more than four");
    let months = months.first_chunk::<4>().expect("four are left");
    Ok(Interval { months: i32::from_be_bytes(*months), days: i32::from_be_bytes(*days), us: i64::from_be_bytes(*us) })
}

pub(crate) fn send(interval: Interval, out: &mut Vec<u8>) {
    out.extend_from_slice(&interval.us.to_be_bytes());
    out.extend_from_slice(&interval.days.to_be_bytes());
    out.extend_from_slice(&interval.months.to_be_bytes());
}
