//! `to_char` of dates and times, `to_date`, `to_timestamp`: templates of fields. Numbers are in [`numbers`].

mod numbers;
mod reading;

pub(super) use numbers::{float_to_char, integer_to_char, numeric_to_char, to_number};
pub(super) use reading::{to_date, to_timestamp};

use super::arguments::{Arguments, text};
use super::calendar::{first_of_year, iso_week, weekday};
use crate::error::SqlError;
use crate::value::datetime::{self, DAY_US, HOUR_US, MINUTE_US, SECOND_US, civil_of};
use crate::value::{Datum, interval::Interval};

type Result<T = Datum> = std::result::Result<T, SqlError>;

/// The fields, longer names before those that they begin with; each is written in large or in small letters.
const FIELDS: &[&str] = &[
    "SSSSS", "SSSS", "HH24", "HH12", "Y,YYY", "YYYY", "IYYY", "IDDD", "MONTH", "A.M.", "P.M.", "B.C.", "A.D.", "MON",
    "DAY", "DDD", "YYY", "IYY", "TZH", "TZM", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "FX", "HH", "MI", "SS", "MS",
    "US", "AM", "PM", "YY", "IY", "BC", "AD", "MM", "DY", "DD", "ID", "WW", "IW", "CC", "RM", "TZ", "OF", "Y", "I",
    "D", "W", "J", "Q",
];

/// Those that may also be written with a large letter before small ones.
const WORDS: &[(&str, &str)] = &[("Month", "MONTH"), ("Mon", "MON"), ("Day", "DAY"), ("Dy", "DY")];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// A part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Field(Field),
    /// A space, or a sign that is neither letter nor digit: what it is matters little where a text is read.
    Separator(char),
    Literal(char),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    name: &'static str,
    /// As it is written, which tells the case of words.
    written: String,
    /// FM: nothing is padded.
    fill: bool,
    /// TM: names, in the language of the locale, are not padded either.
    named: bool,
    /// TH or th.
    ordinal: Option<bool>,
}

fn parts(template: &str) -> Vec<Part> {
    let mut out = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let prefix = rest.get(..2).unwrap_or("");
        let (fill, named) = (matches!(prefix, "FM" | "fm"), matches!(prefix, "TM" | "tm"));
        if fill || named {
            rest = &rest[2..];
        }
        if let Some((name, length)) = field_at(rest) {
            let written = rest[..length].to_owned();
            rest = &rest[length..];
            let ordinal = match rest.get(..2) {
                Some("TH") => Some(true),
                Some("th") => Some(false),
                _ => None,
            };
            rest = if ordinal.is_some() || rest.starts_with("SP") { &rest[2..] } else { rest };
            out.push(Part::Field(Field { name, written, fill, named, ordinal }));
        } else if let Some(quoted) = rest.strip_prefix('"') {
            rest = after_quoted(quoted, &mut out);
        } else {
            rest = rest.strip_prefix('\\').filter(|after| after.starts_with('"')).unwrap_or(rest);
            let Some(c) = rest.chars().next() else { break };
            rest = &rest[c.len_utf8()..];
            let parts = c.is_ascii_graphic() && !c.is_ascii_alphanumeric() || c.is_ascii_whitespace();
            out.push(if parts { Part::Separator(c) } else { Part::Literal(c) });
        }
    }
    out
}

/// The field that a template goes on with, and its length.
fn field_at(rest: &str) -> Option<(&'static str, usize)> {
    let is_small = rest.starts_with(|c: char| c.is_ascii_lowercase());
    let is_written = |name: &&&str| match rest.get(..name.len()) {
        Some(written) if is_small => {
            written.eq_ignore_ascii_case(name) && !written.contains(|c: char| c.is_ascii_uppercase())
        }
        Some(written) => written == **name,
        None => false,
    };
    let word = || WORDS.iter().find(|(written, _)| rest.starts_with(written)).map(|(_, name)| *name);
    let name = word().or_else(|| FIELDS.iter().find(is_written).copied())?;
    Some((name, name.len()))
}

/// Takes what stands in quotes, where a backslash takes the meaning from what follows it; gives what is behind.
fn after_quoted<'a>(quoted: &'a str, out: &mut Vec<Part>) -> &'a str {
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => out.push(Part::Literal(chars.next().unwrap_or(c))),
            c => out.push(Part::Literal(c)),
        }
    }
    chars.as_str()
}

/// Where a local time belongs: offset in seconds and the zone's name for it, if it has a zone.
#[derive(Default)]
pub(super) struct Place {
    pub zone: Option<(i64, String)>,
}

/// What a template can show.
struct Shown {
    year: i64,
    month: i64,
    day: i64,
    /// Since 2000-01-01; of an interval, as if it were a date.
    days: i64,
    /// Of the year.
    day_of_year: i64,
    /// Of the day; of an interval all of them.
    us: i64,
    is_interval: bool,
}

fn ordinal_of(number: i64, upper: bool) -> &'static str {
    let last = number.abs() % 100;
    let lower = match (last / 10, last % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    match (upper, lower) {
        (false, lower) => lower,
        (true, "st") => "ST",
        (true, "nd") => "ND",
        (true, "rd") => "RD",
        (true, _) => "TH",
    }
}

/// A word in the case in which its field is written.
fn in_case(word: &str, written: &str) -> String {
    let mut letters = written.chars();
    match (letters.next(), letters.next()) {
        (Some(a), Some(b)) if a.is_ascii_uppercase() && b.is_ascii_uppercase() => word.to_uppercase(),
        (Some(a), _) if a.is_ascii_lowercase() => word.to_lowercase(),
        _ => word.to_owned(),
    }
}

/// A century has two digits, and those beyond have all that they need.
fn century_width(century: i64) -> usize {
    match century {
        0..=99 => 2,
        -99..0 => 3,
        _ => 0,
    }
}

impl Shown {
    fn write(&self, template: &str, place: &Place) -> Result<String> {
        let mut out = String::new();
        for part in parts(template) {
            match part {
                Part::Literal(c) | Part::Separator(c) => out.push(c),
                Part::Field(field) => self.field(&field, place, &mut out)?,
            }
        }
        Ok(out)
    }

    fn field(&self, field: &Field, place: &Place, out: &mut String) -> Result<()> {
        let mut number = |value: i64, width: usize| {
            let width = if field.fill { 0 } else { width };
            out.push_str(&format!("{value:0width$}"));
            if let Some(upper) = field.ordinal {
                out.push_str(ordinal_of(value, upper));
            }
        };
        // One more where a sign takes one.
        let signed = |value: i64, width: usize| width + usize::from(value < 0);
        let (hour, minute, second) =
            (self.us / HOUR_US, self.us % HOUR_US / MINUTE_US, self.us % MINUTE_US / SECOND_US);
        let shown = |year: i64| if !self.is_interval && year <= 0 { 1 - year } else { year };
        let year = shown(self.year);
        let week_year = || shown(iso_week(self.days).0);
        match field.name {
            "HH24" => number(hour, signed(hour, 2)),
            "HH" | "HH12" => number(if hour % 12 == 0 { 12 } else { hour % 12 }, signed(hour, 2)),
            "MI" => number(minute, signed(minute, 2)),
            "SS" => number(second, signed(second, 2)),
            "SSSS" | "SSSSS" => number(self.us / SECOND_US, 0),
            "YYYY" => number(year, signed(year, 4)),
            "YYY" => number(year % 1000, signed(year, 3)),
            "YY" => number(year % 100, signed(year, 2)),
            "Y" => number(year % 10, 1),
            "IYYY" => number(week_year(), signed(year, 4)),
            "IYY" => number(week_year() % 1000, signed(year, 3)),
            "IY" => number(week_year() % 100, signed(year, 2)),
            "I" => number(week_year() % 10, 1),
            "MM" => number(self.month, signed(self.month, 2)),
            "DDD" => number(self.day_of_year, 3),
            "IDDD" => number((iso_week(self.days).1 - 1) * 7 + weekday(self.days), 3),
            "DD" => number(self.day, 2),
            "D" if !self.is_interval => number(weekday(self.days) % 7 + 1, 0),
            "ID" if !self.is_interval => number(weekday(self.days), 0),
            "WW" => number((self.day_of_year - 1) / 7 + 1, 2),
            "W" => number((self.day - 1) / 7 + 1, 0),
            "IW" => number(iso_week(self.days).1, 2),
            "CC" => {
                let century = match self.year {
                    year if self.is_interval => year / 100,
                    year if year > 0 => (year - 1) / 100 + 1,
                    year => year / 100 - 1,
                };
                number(century, century_width(century));
            }
            "J" => number(self.days + 2_451_545, 0),
            "Q" if self.month != 0 => number((self.month - 1) / 3 + 1, 0),
            "Q" | "FX" => {}
            "Y,YYY" => {
                out.push_str(&format!("{},", year / 1000));
                out.push_str(&format!("{:03}", year % 1000));
                out.push_str(field.ordinal.map_or("", |upper| ordinal_of(year, upper)));
            }
            name => match fraction_digits(name) {
                Some(digits) => {
                    let value = self.us % SECOND_US / 10i64.pow(6 - digits);
                    out.push_str(&format!("{value:0width$}", width = digits as usize));
                    out.push_str(field.ordinal.map_or("", |upper| ordinal_of(value, upper)));
                }
                None => out.push_str(&self.word(field, place)?),
            },
        }
        Ok(())
    }

    fn word(&self, field: &Field, place: &Place) -> Result<String> {
        let Field { name, written, .. } = field;
        let afternoon = self.us / HOUR_US % 24 >= 12;
        let half = |am: &str, pm: &str| in_case_of(if afternoon { pm } else { am }, written);
        match *name {
            "AM" | "PM" => return Ok(half("AM", "PM")),
            "A.M." | "P.M." => return Ok(half("A.M.", "P.M.")),
            "RM" => return Ok(self.roman_month(field)),
            _ if self.is_interval => {
                let hint = "Intervals are not tied to specific calendar dates.";
                return Err(
                    SqlError::new("22007", "invalid format specification for an interval value").with_hint(hint)
                );
            }
            _ => {}
        }
        let month = MONTHS[(self.month.clamp(1, 12) - 1) as usize];
        let day = DAYS[(weekday(self.days) - 1) as usize];
        let is_bare = field.fill || field.named;
        let padded = |word: String| if is_bare { word } else { format!("{word:<9}") };
        let before = self.year <= 0;
        let offset = place.zone.as_ref().map_or(0, |(offset, _)| *offset);
        let (sign, hours, minutes) =
            (if offset < 0 { '-' } else { '+' }, offset.abs() / 3600, offset.abs() % 3600 / 60);
        Ok(match *name {
            "BC" | "AD" => in_case_of(if before { "BC" } else { "AD" }, written),
            "B.C." | "A.D." => in_case_of(if before { "B.C." } else { "A.D." }, written),
            "MONTH" => padded(in_case(month, written)),
            "MON" => in_case(&month[..3], written),
            "DAY" => padded(in_case(day, written)),
            "DY" => in_case(&day[..3], written),
            "TZ" => place.zone.as_ref().map_or(String::new(), |(_, name)| in_case_of(name, written)),
            "TZH" => format!("{sign}{hours:02}"),
            "TZM" => format!("{minutes:02}"),
            // OF.
            _ => {
                let width = if field.fill { 0 } else { 2 };
                let hours = format!("{sign}{hours:0width$}");
                if offset % 3600 == 0 { hours } else { format!("{hours}:{minutes:02}") }
            }
        })
    }

    /// The months of an interval count from the year's end where they are negative; whole years end with December.
    fn roman_month(&self, field: &Field) -> String {
        let month = match (self.month, self.year) {
            (0, 0) => return String::new(),
            (0, year) if year < 0 => 1,
            (0, _) => 12,
            (month, _) if month < 0 => 13 + month,
            (month, _) => month,
        };
        let roman = in_case_of(ROMAN[(month.clamp(1, 12) - 1) as usize], &field.written);
        if field.fill { roman } else { format!("{roman:<4}") }
    }
}

/// The digits of a second that a field has.
fn fraction_digits(name: &str) -> Option<u32> {
    match name {
        "MS" => Some(3),
        "US" => Some(6),
        _ => name.strip_prefix("FF").and_then(|digits| digits.parse().ok()),
    }
}

/// All letters large or all small, as the field's first is.
fn in_case_of(word: &str, written: &str) -> String {
    if written.starts_with(|c: char| c.is_ascii_lowercase()) { word.to_lowercase() } else { word.to_owned() }
}

/// A local time by a template.
pub(super) fn formatted(local: i64, template: &str, place: &Place) -> Result<String> {
    let days = local.div_euclid(DAY_US);
    let civil = civil_of(days);
    let shown = Shown {
        year: civil.year,
        month: civil.month,
        day: civil.day,
        days,
        day_of_year: days - first_of_year(civil.year) + 1,
        us: local.rem_euclid(DAY_US),
        is_interval: false,
    };
    shown.write(template, place)
}

pub(super) fn timestamp_to_char(a: &Arguments<'_>) -> Result {
    if !datetime::is_finite(a.int(0)) || a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    formatted(a.int(0), a.text(1), &Place::default()).map(text)
}

pub(super) fn moment_to_char(a: &Arguments<'_>) -> Result {
    if !datetime::is_finite(a.int(0)) || a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    let zone = &a.clock.zone;
    let place = Place { zone: Some((zone.offset_s(a.int(0)), zone.abbreviation(a.int(0)))) };
    formatted(zone.to_local(a.int(0)), a.text(1), &place).map(text)
}

pub(super) fn interval_to_char(a: &Arguments<'_>) -> Result {
    if a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    let Interval { months, days, us } = a.interval(0);
    let (year, month, day) = (i64::from(months / 12), i64::from(months % 12), i64::from(days));
    let shown = Shown {
        year,
        month,
        day,
        days: julian_of(year, month, day) - 2_451_545,
        day_of_year: i64::from(months) * 30 + day,
        us,
        is_interval: true,
    };
    shown.write(a.text(1), &Place::default()).map(text)
}

/// The Julian day of a date, whose month and day may also be none: PostgreSQL's formula decides what is shown of them.
fn julian_of(year: i64, month: i64, day: i64) -> i64 {
    let (month, year) = if month > 2 { (month + 1, year + 4800) } else { (month + 13, year + 4799) };
    let century = year / 100;
    year * 365 - 32_167 + year / 4 - century + century / 4 + 7834 * month / 256 + day
}
