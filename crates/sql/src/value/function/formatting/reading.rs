//! `to_date` and `to_timestamp`: a text read by a template.
//!
//! A number takes as many characters as its field has where digits follow, and all digits that there are elsewhere. A separator of the template
//! stands for any one of the text, or for none. What a day is, is told by year, month and day, by the day of the year, by weeks of the year or
//! the month, by weeks of ISO 8601, or by a Julian day; the rest is that of 0001-01-01 BC.

use super::super::arguments::Arguments;
use super::{DAYS, Field, MONTHS, Part, ROMAN, Result, parts};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::datetime::{
    self, Civil, DAY_US, HOUR_US, MINUTE_US, SECOND_US, civil_of, date_in_range, days_in_month, days_of,
    timestamp_in_range,
};

/// By which calendar a template speaks of days.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Calendar {
    Gregorian,
    Weeks,
}

/// What was read; 0 is what the template left open, as PostgreSQL has it.
#[derive(Default)]
struct Read {
    calendar: Option<Calendar>,
    hour: i64,
    is_twelve: bool,
    /// Sets of words have two, of which the second is 1.
    afternoon: i64,
    minute: i64,
    second: i64,
    of_day: i64,
    ms: i64,
    us: i64,
    /// The digits of FF1 to FF6.
    precision: u32,
    /// Of the week, Sunday is 1.
    weekday: i64,
    day: i64,
    day_of_year: i64,
    month: i64,
    year: i64,
    /// How many digits the year's field has.
    year_digits: usize,
    before_christ: i64,
    week: i64,
    week_of_month: i64,
    century: i64,
    julian: i64,
    /// 0: no zone was read.
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
}

fn format_error(message: String) -> SqlError {
    SqlError::new("22007", message)
}

fn out_of_range(source: &str) -> SqlError {
    SqlError::new("22008", format!("date/time field value out of range: \"{source}\""))
}

/// Puts a value in a field that may have been read before.
fn set(place: &mut i64, value: i64, field: &Field) -> Result<()> {
    if *place != 0 && *place != value {
        let message = format!("conflicting values for \"{}\" field in formatting string", field.written);
        return Err(
            format_error(message).with_detail("This value contradicts a previous setting for the same field type.")
        );
    }
    *place = value;
    Ok(())
}

/// Whether a field is of digits, which a number before it leaves to it.
fn is_of_digits(name: &str) -> bool {
    !matches!(
        name,
        "A.D."
            | "A.M."
            | "AD"
            | "AM"
            | "B.C."
            | "BC"
            | "DAY"
            | "DY"
            | "FX"
            | "MONTH"
            | "MON"
            | "OF"
            | "P.M."
            | "PM"
            | "RM"
            | "TZH"
            | "TZ"
    )
}

/// The calendar of a field that belongs to one.
fn calendar_of(name: &str) -> Option<Calendar> {
    match name {
        "IDDD" | "ID" | "IW" | "IYYY" | "IYY" | "IY" | "I" => Some(Calendar::Weeks),
        "DDD" | "DD" | "D" | "MM" | "MONTH" | "MON" | "RM" | "WW" | "W" | "Y,YYY" | "YYYY" | "YYY" | "YY" | "Y" => {
            Some(Calendar::Gregorian)
        }
        _ => None,
    }
}

/// A text on the way through a template.
struct Source<'a> {
    text: &'a str,
    at: usize,
    /// Characters skipped that the template does not speak of.
    extra: i64,
    /// FX: as many characters as the template has.
    is_exact: bool,
}

impl<'a> Source<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) {
        self.at += self.rest().chars().next().map_or(0, char::len_utf8);
    }

    fn skip_spaces(&mut self) {
        while self.rest().starts_with(|c: char| c.is_ascii_whitespace()) {
            self.at += 1;
            self.extra += 1;
        }
    }

    /// A whole number as C reads it from the start of a text: its value, `None` if it is beyond all bounds, and how many bytes it takes.
    fn leading(text: &str) -> (Option<i64>, usize) {
        let blank = text.bytes().take_while(u8::is_ascii_whitespace).count();
        let sign = usize::from(text[blank..].starts_with(['-', '+']));
        let digits = text[blank + sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return (Some(0), 0);
        }
        let end = blank + sign + digits;
        (text[blank..end].parse().ok(), end)
    }

    /// A number of a field, and how many characters it took. `takes_all`: it is as long as its digits go.
    fn number(&mut self, field: &Field, width: usize, takes_all: bool) -> Result<(i64, usize)> {
        let start = self.at;
        let name = &field.written;
        let rest = self.rest();
        let blank = rest.bytes().take_while(u8::is_ascii_whitespace).count();
        let shown = String::from_utf8_lossy(&rest.as_bytes()[blank..rest.len().min(blank + width)]).into_owned();
        let remain = rest.len() - blank;
        let hint = "If your source string is not fixed-width, try using the \"FM\" modifier.";
        let value = if takes_all {
            let (value, length) = Self::leading(rest);
            self.at += length;
            value
        } else {
            if remain < width {
                let message = format!("source string too short for \"{name}\" formatting field");
                let detail = format!("Field requires {width} characters, but only {remain} remain.");
                return Err(format_error(message).with_detail(detail).with_hint(hint));
            }
            let (value, length) = Self::leading(&shown);
            if 0 < length && length < width {
                let message = format!("invalid value \"{shown}\" for \"{name}\"");
                let detail = format!("Field requires {width} characters, but only {length} could be parsed.");
                return Err(format_error(message).with_detail(detail).with_hint(hint));
            }
            self.at += blank + length;
            value
        };
        if self.at == start {
            let message = format!("invalid value \"{shown}\" for \"{name}\"");
            return Err(format_error(message).with_detail("Value must be an integer."));
        }
        let value = value.filter(|value| i32::try_from(*value).is_ok()).ok_or_else(|| {
            let message = format!("value for \"{name}\" in source string is out of range");
            let detail = format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX);
            SqlError::new("22008", message).with_detail(detail)
        })?;
        Ok((value, self.at - start))
    }

    /// One of these words, in any case: its place.
    fn word(&mut self, field: &Field, words: &[&str]) -> Result<i64> {
        let rest = self.rest();
        let is_there = |word: &&str| rest.get(..word.len()).is_some_and(|there| there.eq_ignore_ascii_case(word));
        match words.iter().position(is_there) {
            Some(at) => {
                self.at += words[at].len();
                Ok(at as i64)
            }
            None => {
                let shown = rest.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or("");
                let message = format!("invalid value \"{shown}\" for \"{}\"", field.written);
                let detail = "The given value did not match any of the allowed values for this field.";
                Err(format_error(message).with_detail(detail))
            }
        }
    }
}

/// Reads every field; the text may end before the template does.
fn read(source: &str, template: &str) -> Result<Read> {
    let parts = parts(template);
    let mut out = Read::default();
    let mut text = Source { text: source, at: 0, extra: 0, is_exact: false };
    for (i, part) in parts.iter().enumerate() {
        if text.rest().is_empty() {
            break;
        }
        let is_exact_mark = matches!(part, Part::Field(Field { name: "FX", .. }));
        if !text.is_exact && !is_exact_mark && (i == 0 || matches!(part, Part::Field(_))) {
            text.skip_spaces();
        }
        match part {
            _ if text.is_exact && !matches!(part, Part::Field(_)) => text.next(),
            Part::Separator(_) => {
                // One that is more than the template's may be a sign.
                text.extra -= 1;
                if text.rest().starts_with(|c: char| c.is_ascii_punctuation() || c.is_ascii_whitespace()) {
                    text.next();
                    text.extra += 1;
                }
            }
            Part::Literal(_) if text.extra > 0 => text.extra -= 1,
            Part::Literal(_) => text.next(),
            Part::Field(field) => {
                let takes_all = field.fill
                    || field.ordinal.is_some()
                    || match parts.get(i + 1) {
                        Some(Part::Field(next)) => !is_of_digits(next.name),
                        Some(Part::Literal(c) | Part::Separator(c)) => !c.is_ascii_digit(),
                        None => true,
                    };
                if let Some(calendar) = calendar_of(field.name) {
                    if out.calendar.is_some_and(|other| other != calendar) {
                        let hint = "Do not mix Gregorian and ISO week date conventions in a formatting template.";
                        let message = "invalid combination of date conventions".to_owned();
                        return Err(format_error(message).with_hint(hint));
                    }
                    out.calendar = Some(calendar);
                }
                out.field(field, takes_all, &mut text)?;
                if !text.is_exact {
                    text.extra = 0;
                    text.skip_spaces();
                }
            }
        }
    }
    Ok(out)
}

/// A year of fewer digits than four is one of the years around 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

impl Read {
    fn field(&mut self, field: &Field, takes_all: bool, text: &mut Source<'_>) -> Result<()> {
        let halves = [["AM", "PM"], ["A.M.", "P.M."]];
        let eras = [["AD", "BC"], ["A.D.", "B.C."]];
        let short: Vec<&str> = MONTHS.iter().map(|m| &m[..3]).collect();
        // A week of words begins with Sunday.
        let days: Vec<&str> = (0..7).map(|at| DAYS[(at + 6) % 7]).collect();
        let short_days: Vec<&str> = days.iter().map(|d| &d[..3]).collect();
        match field.name {
            "FX" => text.is_exact = true,
            "AM" | "PM" | "A.M." | "P.M." => {
                let half = text.word(field, &halves[usize::from(field.name.len() > 2)])?;
                set(&mut self.afternoon, half, field)?;
                self.is_twelve = true;
            }
            "BC" | "AD" | "B.C." | "A.D." => {
                let era = text.word(field, &eras[usize::from(field.name.len() > 2)])?;
                set(&mut self.before_christ, era, field)?;
            }
            "MONTH" => set(&mut self.month, text.word(field, &MONTHS)? + 1, field)?,
            "MON" => set(&mut self.month, text.word(field, &short)? + 1, field)?,
            "RM" => {
                // The later ones first, for VIII is no V.
                let backwards: Vec<&str> = ROMAN.iter().rev().copied().collect();
                set(&mut self.month, 12 - text.word(field, &backwards)?, field)?;
            }
            "DAY" | "DY" => {
                let words = if field.name == "DAY" { &days } else { &short_days };
                set(&mut self.weekday, text.word(field, words)?, field)?;
                self.weekday += 1;
            }
            "TZ" | "OF" => {
                let message = format!("formatting field \"{}\" is only supported in to_char", field.written);
                return Err(SqlError::unsupported_as(message));
            }
            "TZH" => {
                self.zone_sign = match text.rest().as_bytes().first() {
                    Some(sign @ (b'+' | b'-' | b' ')) => {
                        text.at += 1;
                        if *sign == b'-' { -1 } else { 1 }
                    }
                    // It may have been taken for a separator.
                    _ if text.extra > 0 && text.text[..text.at].ends_with('-') => -1,
                    _ => 1,
                };
                let hours = text.number(field, 2, takes_all)?.0;
                set(&mut self.zone_hours, hours, field)?;
            }
            "Y,YYY" => {
                let (thousands, length) = Source::leading(text.rest());
                let after = text.rest().get(length..).and_then(|rest| rest.strip_prefix(','));
                let rest = after.filter(|_| length > 0).unwrap_or("");
                let three = rest.get(..3).unwrap_or(rest);
                let (years, taken) = Source::leading(three);
                let (Some(thousands), Some(years)) = (thousands, years.filter(|_| taken > 0)) else {
                    return Err(format_error("invalid input string for \"Y,YYY\"".to_owned()));
                };
                set(&mut self.year, years + thousands.clamp(-1 << 31, 1 << 31) * 1000, field)?;
                self.year_digits = 4;
                text.at += length + 1 + taken;
                self.skip_ordinal(field, text);
            }
            _ => self.number(field, takes_all, text)?,
        }
        Ok(())
    }

    fn skip_ordinal(&self, field: &Field, text: &mut Source<'_>) {
        if field.ordinal.is_some() {
            text.next();
            text.next();
        }
    }

    fn number(&mut self, field: &Field, takes_all: bool, text: &mut Source<'_>) -> Result<()> {
        let name = field.name;
        let width = match name {
            "HH12" | "HH24" => 2,
            "MS" | "IDDD" => 3,
            "US" => 6,
            "ID" => 1,
            "TZM" => 2,
            _ => name.strip_prefix("FF").map_or(name.len(), |digits| usize::from(digits.as_bytes()[0] - b'0')),
        };
        let (value, length) = text.number(field, width, takes_all)?;
        // A fraction's digits count from the point.
        let scaled = |digits: usize| value * 10i64.pow(digits.saturating_sub(length) as u32);
        match name {
            "HH" | "HH12" | "HH24" => {
                set(&mut self.hour, value, field)?;
                self.is_twelve |= name != "HH24";
            }
            "MI" => set(&mut self.minute, value, field)?,
            "SS" => set(&mut self.second, value, field)?,
            "SSSS" | "SSSSS" => set(&mut self.of_day, value, field)?,
            "MS" => {
                set(&mut self.ms, value, field)?;
                self.ms = scaled(3);
            }
            "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                if name != "US" {
                    self.precision = width as u32;
                }
                set(&mut self.us, value, field)?;
                self.us = scaled(6);
            }
            "TZM" => {
                self.zone_sign = if self.zone_sign == 0 { 1 } else { self.zone_sign };
                return set(&mut self.zone_minutes, value, field);
            }
            "MM" => set(&mut self.month, value, field)?,
            "DDD" | "IDDD" => set(&mut self.day_of_year, value, field)?,
            "DD" => set(&mut self.day, value, field)?,
            "D" => set(&mut self.weekday, value, field)?,
            "ID" => {
                set(&mut self.weekday, value, field)?;
                self.weekday = if self.weekday >= 7 { 1 } else { self.weekday + 1 };
            }
            "WW" | "IW" => set(&mut self.week, value, field)?,
            "W" => set(&mut self.week_of_month, value, field)?,
            "CC" => set(&mut self.century, value, field)?,
            "J" => set(&mut self.julian, value, field)?,
            "YYYY" | "IYYY" => self.read_year(value, 4, field)?,
            "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
                set(&mut self.year, value, field)?;
                let year = if length < 4 { near_2020(value) } else { value };
                self.year = year;
                self.year_digits = name.len() - usize::from(name.starts_with('I') && name.len() > 1);
            }
            // The quarter is only shown.
            _ => {}
        }
        self.skip_ordinal(field, text);
        Ok(())
    }

    fn read_year(&mut self, year: i64, digits: usize, field: &Field) -> Result<()> {
        set(&mut self.year, year, field)?;
        self.year_digits = digits;
        Ok(())
    }

    /// The year, where one was read or follows from the century.
    fn year(&self) -> Option<i64> {
        let century = if self.before_christ == 1 { -self.century } else { self.century };
        match (self.year, century) {
            (0, 0) => None,
            (0, 1..) => Some((century - 1) * 100 + 1),
            (0, _) => Some(century * 100 + 1),
            // Two digits of a century: the 21st has 2001 to 2100, the 6th before Christ 600 to 501.
            (year, century) if century != 0 && self.year_digits <= 2 => Some(match (year % 100, century) {
                (0, 0..) => century * 100,
                (0, _) => century * 100 + 1,
                (year, 0..) => year + (century - 1) * 100,
                (year, _) => (century + 1) * 100 - year + 1,
            }),
            (year, _) => {
                let year = if self.before_christ == 1 { -year } else { year };
                // Year 0 is 1 BC.
                Some(if year < 0 { year + 1 } else { year })
            }
        }
    }

    /// Days since 2000-01-01.
    fn days(&self, source: &str) -> Result<i64> {
        let read_year = self.year();
        let mut has_year = read_year.is_some();
        let (mut has_month, mut has_day) = (false, false);
        let mut date = Civil { year: read_year.unwrap_or(0), month: 1, day: 1 };
        let mut whole = |date: &mut Civil, days: i64| {
            *date = civil_of(days);
            (has_year, has_month, has_day) = (true, true, true);
        };
        if self.julian != 0 {
            whole(&mut date, self.julian - 2_451_545);
        }
        let mut day_of_year = self.day_of_year;
        if self.week != 0 {
            if self.calendar == Some(Calendar::Weeks) {
                let weekday = match self.weekday {
                    0 => 0,
                    1 => 6,
                    weekday => weekday - 2,
                };
                let monday = first_monday(date.year) + (self.week - 1) * 7;
                whole(&mut date, monday + weekday);
            } else {
                day_of_year = (self.week - 1) * 7 + 1;
            }
        }
        let day = if self.week_of_month != 0 { (self.week_of_month - 1) * 7 + 1 } else { self.day };
        if day != 0 {
            (date.day, has_day) = (day, true);
        }
        if self.month != 0 {
            (date.month, has_month) = (self.month, true);
        }
        if day_of_year != 0 && (date.month <= 1 || date.day <= 1) {
            if date.year == 0 && self.before_christ == 0 {
                let message = "cannot calculate day of year without year information".to_owned();
                return Err(format_error(message));
            }
            if self.calendar == Some(Calendar::Weeks) {
                date = civil_of(first_monday(date.year) + day_of_year - 1);
                has_year = true;
            } else {
                let (month, day) = within_year(date.year, day_of_year);
                date.month = if date.month <= 1 { month } else { date.month };
                date.day = if date.day <= 1 { day } else { date.day };
            }
            (has_month, has_day) = (true, true);
        }
        let is_month = !has_month || (1..=12).contains(&date.month);
        let is_day = !has_day || (1..=31).contains(&date.day);
        let is_whole = has_year && has_month && has_day;
        if !is_month || !is_day || is_whole && date.day > days_in_month(date.year, date.month) {
            return Err(out_of_range(source));
        }
        Ok(days_of(Civil { day: 1, ..date }) + date.day - 1)
    }

    /// Days since 2000-01-01 and microseconds of the day.
    fn moment(&self, source: &str) -> Result<(i64, i64)> {
        let or = |value: i64, otherwise: i64| if value != 0 { value } else { otherwise };
        let mut hour = or(self.hour, self.of_day / 3600);
        let minute = or(self.minute, self.of_day % 3600 / 60);
        let second = or(self.second, self.of_day % 60);
        if self.is_twelve {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                let hint = "Use the 24-hour clock, or give an hour between 1 and 12.";
                return Err(format_error(message).with_hint(hint));
            }
            hour = hour % 12 + 12 * self.afternoon;
        }
        let days = self.days(source)?;
        let fraction = self.ms * 1000 + self.us;
        let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
        if !fits || !(0..SECOND_US).contains(&fraction) {
            return Err(out_of_range(source));
        }
        Ok((days, hour * HOUR_US + minute * MINUTE_US + second * SECOND_US + fraction))
    }

    /// The offset of a zone that was read.
    fn offset_s(&self, source: &str) -> Result<Option<i64>> {
        if self.zone_sign == 0 {
            return Ok(None);
        }
        if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
            let message = format!("time zone displacement out of range: \"{source}\"");
            return Err(SqlError::new("22009", message));
        }
        Ok(Some(self.zone_sign * (self.zone_hours * 3600 + self.zone_minutes * 60)))
    }
}

/// The Monday of the first week of a year by ISO 8601: that which has January 4th.
fn first_monday(year: i64) -> i64 {
    let fourth = days_of(Civil { year, month: 1, day: 4 });
    fourth - (super::weekday(fourth) - 1)
}

/// Month and day of a day of the year; of one that it has not, month 13.
fn within_year(year: i64, day_of_year: i64) -> (i64, i64) {
    let mut day = day_of_year;
    for month in 1..=12 {
        let length = days_in_month(year, month);
        if day <= length {
            return (month, day);
        }
        day -= length;
    }
    (13, day)
}

pub(crate) fn to_date(a: &Arguments<'_>) -> Result {
    let source = a.text(0);
    let read = read(source, a.text(1))?;
    let (days, _) = read.moment(source)?;
    read.offset_s(source)?;
    if !date_in_range(days) {
        return Err(SqlError::new("22008", format!("date out of range: \"{source}\"")));
    }
    Ok(Datum::Int(days))
}

pub(crate) fn to_timestamp(a: &Arguments<'_>) -> Result {
    let source = a.text(0);
    let read = read(source, a.text(1))?;
    let (days, time) = read.moment(source)?;
    let offset = read.offset_s(source)?;
    let local = days.checked_mul(DAY_US).and_then(|us| us.checked_add(time));
    let moment = local.map(|local| match offset {
        Some(offset) => local - offset * SECOND_US,
        None => a.clock.zone.to_utc(local),
    });
    let moment = moment.map(|us| if read.precision > 0 { datetime::rounded(us, read.precision) } else { us });
    moment
        .filter(|us| timestamp_in_range(*us))
        .map(Datum::Int)
        .ok_or_else(|| SqlError::new("22008", "timestamp out of range"))
}
