//! What is an interval? Months, days and microseconds, each with a sign of its own: a month is as long as its calendar month, a day as
//! its zone's day. Compared, a month counts 30 days and a day 24 hours.
//!
//! # Stored form
//!
//! The whole length in microseconds, 16 bytes, big-endian, its sign inverted; then months and days, 4 bytes each. The microseconds are
//! the length without both. Bytes compare as intervals do, but for the last eight (`Type::key_bytes`).

mod arithmetic;
mod parse;

pub(crate) use arithmetic::*;
pub(crate) use parse::{Fields, Unit, read};

use super::datetime::{DAY_US, HOUR_US, MINUTE_US, SECOND_US};
use super::fault;
use crate::error::SqlError;

/// Days that a month counts where its calendar month is not known.
pub(crate) const MONTH_DAYS: i64 = 30;

/// How intervals are shown: the setting `intervalstyle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IntervalStyle {
    #[default]
    Postgres,
    Verbose,
    Iso8601,
}

impl IntervalStyle {
    /// The names that the setting takes. (`sql_standard` would change what is read, too.)
    pub const NAMES: &[&str] = &["postgres", "postgres_verbose", "iso_8601"];

    pub fn named(name: &str) -> IntervalStyle {
        match name {
            "postgres_verbose" => IntervalStyle::Verbose,
            "iso_8601" => IntervalStyle::Iso8601,
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
    pub fn write_in(&self, style: IntervalStyle, out: &mut Vec<u8>) {
        match style {
            IntervalStyle::Postgres => self.write(out),
            IntervalStyle::Verbose => self.write_verbose(out),
            IntervalStyle::Iso8601 => self.write_iso_8601(out),
        }
    }

    /// Years, months, days, hours and minutes, each with its sign, and the microseconds that are left.
    fn parts(&self) -> ([i64; 5], i64) {
        let months = i64::from(self.months);
        let minutes = self.us % HOUR_US / MINUTE_US;
        ([months / 12, months % 12, self.days.into(), self.us / HOUR_US, minutes], self.us % MINUTE_US)
    }

    /// In the style `postgres_verbose`: the first part says the sign of all.
    fn write_verbose(&self, out: &mut Vec<u8>) {
        let (parts, us) = self.parts();
        let units = ["year", "mon", "day", "hour", "min"];
        let mut is_before = None;
        out.push(b'@');
        for (count, unit) in parts.into_iter().zip(units).filter(|(count, _)| *count != 0) {
            let count = if *is_before.get_or_insert(count < 0) { -count } else { count };
            let plural = if count == 1 { "" } else { "s" };
            out.extend_from_slice(format!(" {count} {unit}{plural}").as_bytes());
        }
        if us != 0 {
            let sign = if (us < 0) != *is_before.get_or_insert(us < 0) { "-" } else { "" };
            let plural = if us.abs() == SECOND_US { "" } else { "s" };
            out.extend_from_slice(format!(" {sign}{} sec{plural}", seconds(us)).as_bytes());
        }
        out.extend_from_slice(match is_before {
            None => b" 0",
            Some(true) => b" ago",
            Some(false) => b"",
        });
    }

    /// In the style `iso_8601`, with designators.
    fn write_iso_8601(&self, out: &mut Vec<u8>) {
        if *self == Interval::default() {
            return out.extend_from_slice(b"PT0S");
        }
        let (parts, us) = self.parts();
        let designated = |counts: &[i64], designators: &str| -> String {
            let parts = counts.iter().zip(designators.chars()).filter(|(count, _)| **count != 0);
            parts.map(|(count, designator)| format!("{count}{designator}")).collect()
        };
        let (date, mut time) = (designated(&parts[..3], "YMD"), designated(&parts[3..], "HM"));
        if us != 0 {
            let sign = if us < 0 { "-" } else { "" };
            time.push_str(&format!("{sign}{}S", seconds(us)));
        }
        let mark = if time.is_empty() { "" } else { "T" };
        out.extend_from_slice(format!("P{date}{mark}{time}").as_bytes());
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

/// Seconds without their sign.
fn seconds(us: i64) -> String {
    let us = us.unsigned_abs();
    let (whole, fraction) = (us / SECOND_US as u64, us % SECOND_US as u64);
    match fraction {
        0 => whole.to_string(),
        _ => format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned(),
    }
}

/// Hours, at least two digits, minutes, seconds.
fn write_clock(us: u64, out: &mut Vec<u8>) {
    let [hour, minute, second] = [HOUR_US, MINUTE_US, SECOND_US].map(|unit| unit as u64);
    let head = format!("{:02}:{:02}:{:02}", us / hour, us % hour / minute, us % minute / second);
    out.extend_from_slice(head.as_bytes());
    let fraction = us % second;
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
