//! `to_date` and `to_timestamp`: a text read by a template.

use super::super::arguments::Arguments;
use super::{MONTHS, Part, Result, parts};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::datetime::{
    self, Civil, DAY_US, HOUR_US, MINUTE_US, SECOND_US, date_in_range, days_in_month, days_of, timestamp_in_range,
};

/// What was read; `None` is what the template left open.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    before_christ: bool,
    hour: i64,
    /// Read as one of twelve.
    twelve: bool,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    us: i64,
    offset_s: Option<i64>,
}

fn invalid(value: &str, field: &str) -> SqlError {
    SqlError::new("22007", format!("invalid value \"{value}\" for \"{field}\""))
}

fn out_of_range(source: &str) -> SqlError {
    SqlError::new("22008", format!("date/time field value out of range: \"{source}\""))
}

/// How many digits a field takes where digits follow.
fn width(name: &str) -> usize {
    match name {
        "YYYY" | "IYYY" => 4,
        "YYY" | "IYY" | "DDD" | "IDDD" | "MS" => 3,
        "US" => 6,
        "Y" | "I" | "D" | "ID" | "W" | "Q" => 1,
        "J" | "SSSS" | "SSSSS" => 7,
        _ => 2,
    }
}

struct Source<'a> {
    rest: &'a str,
}

impl<'a> Source<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Digits, with a sign before them; all of them where no digits can follow.
    fn number(&mut self, name: &str, fixed: bool) -> Result<(i64, usize)> {
        self.skip_space();
        let digits_from = usize::from(self.rest.starts_with(['-', '+']));
        let available = self.rest[digits_from..].bytes().take_while(u8::is_ascii_digit).count();
        let taken = if fixed { available.min(width(name)) } else { available };
        if taken == 0 {
            let shown: String = self.rest.chars().take(width(name)).collect();
            if shown.is_empty() {
                return Ok((0, 0));
            }
            return Err(invalid(&shown, name).with_detail("Value must be an integer."));
        }
        let (number, rest) = self.rest.split_at(digits_from + taken);
        self.rest = rest;
        let value = number.parse().map_err(|_| invalid(number, name))?;
        Ok((value, taken))
    }

    /// One of these words, in any case: its place.
    fn word(&mut self, name: &str, words: &[&str]) -> Result<usize> {
        self.skip_space();
        let upper = self.rest.to_uppercase();
        match words.iter().position(|word| upper.starts_with(&word.to_uppercase())) {
            Some(at) => {
                self.rest = &self.rest[words[at].len()..];
                Ok(at)
            }
            None => {
                let shown: String = self.rest.chars().take(name.len()).collect();
                Err(invalid(&shown, name)
                    .with_detail("The given value did not match any of the allowed values for this field."))
            }
        }
    }
}

/// Reads every field; the text may end before the template does.
fn read(source: &str, template: &str) -> Result<Fields> {
    let parts = parts(template);
    let mut fields = Fields::default();
    let mut text = Source { rest: source.trim_start() };
    for (i, part) in parts.iter().enumerate() {
        if text.rest.is_empty() {
            break;
        }
        match part {
            Part::Literal(c) if c.is_alphanumeric() => {
                let mut chars = text.rest.chars();
                chars.next();
                text.rest = chars.as_str();
            }
            // A separator may stand for any other, or for none.
            Part::Literal(_) => {
                if text.rest.starts_with(|c: char| !c.is_alphanumeric() && !matches!(c, '+' | '-')) {
                    let mut chars = text.rest.chars();
                    chars.next();
                    text.rest = chars.as_str();
                } else if text.rest.starts_with(['+', '-']) {
                    text.rest = &text.rest[1..];
                }
            }
            Part::Quoted(quoted) => {
                let mut chars = text.rest.chars();
                quoted.chars().for_each(|_| {
                    chars.next();
                });
                text.rest = chars.as_str();
            }
            Part::Field { name, fill, ordinal, .. } => {
                let digits_follow = match parts.get(i + 1) {
                    Some(Part::Field { name, .. }) => !matches!(*name, "MONTH" | "MON" | "DAY" | "DY" | "AM" | "PM"),
                    Some(Part::Literal(c)) => c.is_ascii_digit(),
                    _ => false,
                };
                field(name, digits_follow && !fill, &mut text, &mut fields)?;
                if ordinal.is_some() {
                    text.rest = text.rest.get(2..).unwrap_or("");
                }
            }
        }
    }
    Ok(fields)
}

/// A year of fewer digits than four is one of the years around 2000.
fn near_2000(value: i64, digits: usize) -> i64 {
    match digits {
        1 | 2 if value < 70 => value + 2000,
        1 | 2 if value < 100 => value + 1900,
        3 if value < 520 => value + 2000,
        3 if value < 1000 => value + 1000,
        _ => value,
    }
}

fn field(name: &str, fixed: bool, text: &mut Source<'_>, fields: &mut Fields) -> Result<()> {
    match name {
        "MONTH" | "MON" => {
            let short: Vec<&str> = MONTHS.iter().map(|m| &m[..3]).collect();
            let at = match name {
                "MONTH" => text.word(name, &MONTHS).or_else(|e| text.word(name, &short).map_err(|_| e))?,
                _ => text.word(name, &short)?,
            };
            fields.month = Some(at as i64 + 1);
        }
        "DAY" => drop(text.word(name, &super::DAYS)?),
        "DY" => {
            let short: Vec<&str> = super::DAYS.iter().map(|d| &d[..3]).collect();
            text.word(name, &short)?;
        }
        "AM" | "PM" => fields.afternoon = Some(text.word(name, &["AM", "PM"])? == 1),
        "A.M." | "P.M." => fields.afternoon = Some(text.word(name, &["A.M.", "P.M."])? == 1),
        "BC" | "AD" => fields.before_christ = text.word(name, &["AD", "BC"])? == 1,
        "B.C." | "A.D." => fields.before_christ = text.word(name, &["A.D.", "B.C."])? == 1,
        "RM" => {
            // The longer ones first: VIII is no V.
            let mut order: Vec<usize> = (0..12).collect();
            order.sort_by_key(|&i| std::cmp::Reverse(super::ROMAN[i].len()));
            let words: Vec<&str> = order.iter().map(|&i| super::ROMAN[i]).collect();
            fields.month = Some(order[text.word(name, &words)?] as i64 + 1);
        }
        "Y,YYY" => {
            let (thousands, _) = text.number("Y", false)?;
            text.rest = text.rest.strip_prefix(',').ok_or_else(|| invalid(text.rest, name))?;
            fields.year = Some(thousands * 1000 + text.number("YYY", true)?.0);
        }
        "TZH" | "OF" => {
            let negative = text.rest.trim_start().starts_with('-');
            let hours = text.number(name, true)?.0;
            let mut offset = hours * 3600;
            if name == "OF" && text.rest.starts_with(':') {
                text.rest = &text.rest[1..];
                let minutes = text.number(name, true)?.0 * 60;
                offset += if negative { -minutes } else { minutes };
            }
            fields.offset_s = Some(offset);
        }
        "TZM" => {
            let minutes = text.number(name, true)?.0 * 60;
            let offset = fields.offset_s.unwrap_or(0);
            fields.offset_s = Some(if offset < 0 { offset - minutes } else { offset + minutes });
        }
        "TZ" => return Err(SqlError::unsupported("formatting field \"TZ\" is only supported in to_char")),
        _ => {
            let (value, digits) = text.number(name, fixed)?;
            if digits > 0 {
                number(name, value, digits, fields)?;
            }
        }
    }
    Ok(())
}

fn number(name: &str, value: i64, digits: usize, fields: &mut Fields) -> Result<()> {
    let fraction = |places: usize| {
        let scale = 10f64.powi(places as i32 - digits as i32);
        (value as f64 * scale) as i64
    };
    match name {
        "YYYY" => fields.year = Some(value),
        "YYY" | "YY" | "Y" => fields.year = Some(near_2000(value, digits)),
        "IYYY" => fields.iso_year = Some(value),
        "IYY" | "IY" | "I" => fields.iso_year = Some(near_2000(value, digits)),
        "MM" => fields.month = Some(value),
        "DD" => fields.day = Some(value),
        "DDD" => fields.day_of_year = Some(value),
        "IW" => fields.iso_week = Some(value),
        "ID" => fields.iso_day = Some(value),
        "J" => fields.julian = Some(value),
        "HH24" => fields.hour = value,
        "HH" | "HH12" => {
            if !(1..=12).contains(&value) {
                return Err(SqlError::new("22007", format!("hour \"{value}\" is invalid for the 12-hour clock"))
                    .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            (fields.hour, fields.twelve) = (value, true);
        }
        "MI" => fields.minute = value,
        "SS" => fields.second = value,
        "MS" => fields.us += fraction(3) * 1000,
        "US" => fields.us += fraction(6),
        "SSSS" | "SSSSS" => {
            (fields.hour, fields.minute, fields.second) = (value / 3600, value % 3600 / 60, value % 60);
        }
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => fields.us += fraction(6),
        "CC" => fields.year = fields.year.or(Some((value - 1) * 100 + 1)),
        // The quarter and the week are only shown.
        _ => {}
    }
    Ok(())
}

impl Fields {
    fn days(&self, source: &str) -> Result<i64> {
        if let Some(julian) = self.julian {
            return Ok(julian - 2_451_545);
        }
        if let Some(week) = self.iso_week {
            let year = self.iso_year.or(self.year).unwrap_or(1);
            let fourth = days_of(Civil { year, month: 1, day: 4 });
            let monday = fourth - (super::weekday(fourth) - 1);
            return Ok(monday + (week - 1) * 7 + self.iso_day.unwrap_or(1) - 1);
        }
        // Nothing read is the first day of 1 BC, as PostgreSQL has it.
        let read = self.year.or(self.iso_year);
        let year = match read {
            Some(year) if self.before_christ => 1 - year,
            Some(year) if year < 0 => year + 1,
            Some(year) => year,
            None => 0,
        };
        if let Some(day) = self.day_of_year {
            let length = 365 + i64::from(datetime::is_leap(year));
            if !(1..=length).contains(&day) {
                return Err(out_of_range(source));
            }
            return Ok(super::first_of_year(year) + day - 1);
        }
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return Err(out_of_range(source));
        }
        Ok(days_of(Civil { year, month, day }))
    }

    fn time(&self, source: &str) -> Result<i64> {
        let hour = match self.afternoon {
            Some(afternoon) if !self.twelve && !(1..=12).contains(&self.hour) => {
                let _ = afternoon;
                return Err(SqlError::new("22007", format!("hour \"{}\" is invalid for the 12-hour clock", self.hour)));
            }
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            None if self.twelve && self.hour == 12 => 0,
            _ => self.hour,
        };
        let fits = (0..24).contains(&hour) && (0..60).contains(&self.minute) && (0..60).contains(&self.second);
        if !fits {
            return Err(out_of_range(source));
        }
        Ok(hour * HOUR_US + self.minute * MINUTE_US + self.second * SECOND_US + self.us)
    }
}

pub(crate) fn to_date(a: &Arguments<'_>) -> Result {
    let days = read(a.text(0), a.text(1))?.days(a.text(0))?;
    if !date_in_range(days) {
        return Err(SqlError::new("22008", format!("date out of range: \"{}\"", a.text(0))));
    }
    Ok(Datum::Int(days))
}

pub(crate) fn to_timestamp(a: &Arguments<'_>) -> Result {
    let source = a.text(0);
    let fields = read(source, a.text(1))?;
    let local = fields.days(source)?.checked_mul(DAY_US).and_then(|us| us.checked_add(fields.time(source).ok()?));
    fields.time(source)?;
    let moment = local.map(|local| match fields.offset_s {
        Some(offset) => local - offset * SECOND_US,
        None => a.clock.zone.to_utc(local),
    });
    moment
        .filter(|us| timestamp_in_range(*us))
        .map(Datum::Int)
        .ok_or_else(|| SqlError::new("22008", "timestamp out of range"))
}
