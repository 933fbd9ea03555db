//! `to_char` of dates and times, `to_date`, `to_timestamp`: templates of fields. Numbers are in [`numbers`].

mod numbers;
mod reading;

pub(super) use numbers::{float_to_char, numeric_to_char, to_number};
pub(super) use reading::{to_date, to_timestamp};

use super::arguments::{Arguments, text};
use super::calendar::{first_of_year, iso_week, weekday};
use crate::error::SqlError;
use crate::value::datetime::{self, DAY_US, HOUR_US, MINUTE_US, SECOND_US, civil_of};
use crate::value::{Datum, interval::Interval};

type Result<T = Datum> = std::result::Result<T, SqlError>;

/// The fields, longer names before those that they begin with.
const FIELDS: &[&str] = &[
    "SSSSS", "SSSS", "HH24", "HH12", "Y,YYY", "YYYY", "IYYY", "IDDD", "MONTH", "A.M.", "P.M.", "B.C.", "A.D.", "MON",
    "DAY", "DDD", "YYY", "IYY", "TZH", "TZM", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "HH", "MI", "SS", "MS", "US",
    "AM", "PM", "YY", "IY", "BC", "AD", "MM", "DY", "DD", "ID", "WW", "IW", "CC", "RM", "TZ", "OF", "Y", "I", "D", "W",
    "J", "Q",
];

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
    Field {
        name: &'static str,
        /// As it is written, which tells the case of words.
        written: String,
        /// FM: nothing is padded.
        fill: bool,
        /// TH or th.
        ordinal: Option<bool>,
    },
    Literal(char),
    /// In quotes.
    Quoted(String),
}

fn parts(template: &str) -> Vec<Part> {
    let mut out = Vec::new();
    let mut rest = template;
    let mut fill = false;
    while let Some(c) = rest.chars().next() {
        let upper = rest.to_ascii_uppercase();
        // Names in the language of the locale are not padded either.
        if upper.starts_with("FM") || upper.starts_with("TM") {
            (fill, rest) = (true, &rest[2..]);
            continue;
        }
        if upper.starts_with("FX") {
            rest = &rest[2..];
            continue;
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            out.push(Part::Quoted(quoted[..end].to_owned()));
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        if c == '\\' && rest.len() > 1 {
            let next = rest[1..].chars().next().expect("there is more than the backslash");
            out.push(Part::Literal(next));
            rest = &rest[1 + next.len_utf8()..];
            continue;
        }
        match FIELDS.iter().find(|f| upper.starts_with(**f)) {
            Some(name) => {
                let written = rest[..name.len()].to_owned();
                rest = &rest[name.len()..];
                let ordinal = match rest.get(..2) {
                    Some("TH") => Some(true),
                    Some("th") => Some(false),
                    _ => None,
                };
                rest = if ordinal.is_some() { &rest[2..] } else { rest };
                out.push(Part::Field { name, written, fill, ordinal });
                fill = false;
            }
            None => {
                out.push(Part::Literal(c));
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
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
    /// Of today; `None` for an interval.
    days: Option<i64>,
    /// Of the day; of an interval all of them.
    us: i64,
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

impl Shown {
    fn write(&self, template: &str, place: &Place) -> String {
        let mut out = String::new();
        for part in parts(template) {
            match part {
                Part::Literal(c) => out.push(c),
                Part::Quoted(text) => out.push_str(&text),
                Part::Field { name, written, fill, ordinal } => {
                    self.field(name, &written, fill, ordinal, place, &mut out)
                }
            }
        }
        out
    }

    fn field(&self, name: &str, written: &str, fill: bool, ordinal: Option<bool>, place: &Place, out: &mut String) {
        let mut number = |value: i64, width: usize| {
            let width = if fill { 0 } else { width + usize::from(value < 0) };
            out.push_str(&format!("{value:0width$}"));
            if let Some(upper) = ordinal {
                out.push_str(ordinal_of(value, upper));
            }
        };
        let (hour, minute, second) =
            (self.us / HOUR_US, self.us % HOUR_US / MINUTE_US, self.us % MINUTE_US / SECOND_US);
        let fraction = self.us % SECOND_US;
        let days = self.days.unwrap_or(0);
        let shown = |year: i64| if self.days.is_some() && year <= 0 { 1 - year } else { year };
        let (shown_year, week_year) = (shown(self.year), shown(iso_week(days).0));
        match name {
            "HH24" => number(hour, 2),
            "HH" | "HH12" => number(if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
            "MI" => number(minute, 2),
            "SS" => number(second, 2),
            "MS" => number(fraction / 1000, 3),
            "US" => number(fraction, 6),
            "SSSS" | "SSSSS" => number(self.us / SECOND_US, 0),
            "YYYY" => number(shown_year, 4),
            "YYY" => number(shown_year % 1000, 3),
            "YY" => number(shown_year % 100, 2),
            "Y" => number(shown_year % 10, 1),
            "IYYY" => number(week_year, 4),
            "IYY" => number(week_year % 1000, 3),
            "IY" => number(week_year % 100, 2),
            "I" => number(week_year % 10, 1),
            "MM" => number(self.month, 2),
            "DDD" => number(days - first_of_year(self.year) + 1, 3),
            "IDDD" => {
                let (_, week) = iso_week(days);
                number((week - 1) * 7 + weekday(days), 3)
            }
            "DD" => number(self.day, 2),
            "D" => number(weekday(days) % 7 + 1, 0),
            "ID" => number(weekday(days), 0),
            "WW" => number((days - first_of_year(self.year)) / 7 + 1, 2),
            "W" => number((self.day - 1) / 7 + 1, 0),
            "IW" => number(iso_week(days).1, 2),
            "CC" => {
                let year = self.year;
                number(if year > 0 { (year - 1) / 100 + 1 } else { year / 100 - 1 }, 2)
            }
            "J" => number(days + 2_451_545, 0),
            "Q" => number((self.month - 1) / 3 + 1, 0),
            "Y,YYY" => {
                out.push_str(&format!("{},{:03}", shown_year / 1000, shown_year % 1000));
            }
            _ => out.push_str(&self.word(name, written, fill, place)),
        }
    }

    fn word(&self, name: &str, written: &str, fill: bool, place: &Place) -> String {
        let days = self.days.unwrap_or(0);
        let month = MONTHS[(self.month.clamp(1, 12) - 1) as usize];
        let day = DAYS[(weekday(days) - 1) as usize];
        let padded = |word: String, width: usize| if fill { word } else { format!("{word:<width$}") };
        let afternoon = self.us % DAY_US >= DAY_US / 2;
        let before = self.year <= 0;
        let half = |am: &str, pm: &str| in_case_of(if afternoon { pm } else { am }, written);
        match name {
            "AM" | "PM" => half("AM", "PM"),
            "A.M." | "P.M." => half("A.M.", "P.M."),
            "BC" | "AD" => in_case_of(if before { "BC" } else { "AD" }, written),
            "B.C." | "A.D." => in_case_of(if before { "B.C." } else { "A.D." }, written),
            "MONTH" => padded(in_case(month, written), 9),
            "MON" => in_case(&month[..3], written),
            "DAY" => padded(in_case(day, written), 9),
            "DY" => in_case(&day[..3], written),
            "RM" => padded(in_case_of(ROMAN[(self.month.clamp(1, 12) - 1) as usize], written), 4),
            "TZ" => place.zone.as_ref().map_or(String::new(), |(_, name)| in_case_of(name, written)),
            "OF" => place.zone.as_ref().map_or(String::new(), |(offset, _)| {
                let (hours, minutes) = (offset.abs() / 3600, offset.abs() % 3600 / 60);
                let sign = if *offset < 0 { '-' } else { '+' };
                if minutes == 0 { format!("{sign}{hours:02}") } else { format!("{sign}{hours:02}:{minutes:02}") }
            }),
            "TZH" => place.zone.as_ref().map_or(String::new(), |(offset, _)| {
                format!("{}{:02}", if *offset < 0 { '-' } else { '+' }, offset.abs() / 3600)
            }),
            "TZM" => {
                place.zone.as_ref().map_or(String::new(), |(offset, _)| format!("{:02}", offset.abs() % 3600 / 60))
            }
            // FF1 to FF6.
            _ => {
                let digits = usize::from(name.as_bytes()[2] - b'0');
                format!("{:06}", self.us % SECOND_US)[..digits].to_owned()
            }
        }
    }
}

/// All letters large or all small, as the field's first is.
fn in_case_of(word: &str, written: &str) -> String {
    if written.starts_with(|c: char| c.is_ascii_lowercase()) { word.to_lowercase() } else { word.to_owned() }
}

/// A local time by a template.
pub(super) fn formatted(local: i64, template: &str, place: &Place) -> String {
    let days = local.div_euclid(DAY_US);
    let civil = civil_of(days);
    let shown =
        Shown { year: civil.year, month: civil.month, day: civil.day, days: Some(days), us: local.rem_euclid(DAY_US) };
    shown.write(template, place)
}

pub(super) fn timestamp_to_char(a: &Arguments<'_>) -> Result {
    if !datetime::is_finite(a.int(0)) || a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    Ok(text(formatted(a.int(0), a.text(1), &Place::default())))
}

pub(super) fn moment_to_char(a: &Arguments<'_>) -> Result {
    if !datetime::is_finite(a.int(0)) || a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    let zone = &a.clock.zone;
    let place = Place { zone: Some((zone.offset_s(a.int(0)), zone.abbreviation(a.int(0)))) };
    Ok(text(formatted(zone.to_local(a.int(0)), a.text(1), &place)))
}

pub(super) fn interval_to_char(a: &Arguments<'_>) -> Result {
    if a.text(1).is_empty() {
        return Ok(Datum::Null);
    }
    let Interval { months, days, us } = a.interval(0);
    let shown = Shown { year: (months / 12).into(), month: (months % 12).into(), day: days.into(), days: None, us };
    Ok(text(shown.write(a.text(1), &Place::default())))
}
