//! The input side: `1 year 2 months`, `3 4:05:06`, `1-2`, `P1Y2M3DT4H5M6S`, with PostgreSQL's rules for fractions.

use super::{Interval, out_of_range};
use crate::error::SqlError;
use crate::value::datetime::{DAY_US, HOUR_US, MINUTE_US, SECOND_US};
use crate::value::fault;

/// The fields an interval is limited to: `interval '1' year`, `day to second`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Fields {
    pub first: Unit,
    pub last: Unit,
}

/// Units in the order in which they get smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) enum Unit {
    Millennium,
    Century,
    Decade,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
}

impl Unit {
    pub fn named(word: &str) -> Option<Unit> {
        Some(match word {
            "millennium" | "millennia" | "mil" | "mils" => Unit::Millennium,
            "century" | "centuries" | "cent" | "c" => Unit::Century,
            "decade" | "decades" | "dec" | "decs" => Unit::Decade,
            "year" | "years" | "yr" | "yrs" | "y" => Unit::Year,
            "month" | "months" | "mon" | "mons" => Unit::Month,
            "week" | "weeks" | "w" => Unit::Week,
            "day" | "days" | "d" => Unit::Day,
            "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Hour,
            "minute" | "minutes" | "min" | "mins" | "m" => Unit::Minute,
            "second" | "seconds" | "sec" | "secs" | "s" => Unit::Second,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "mseconds" | "msecond" => Unit::Millisecond,
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "useconds" | "usecond" => Unit::Microsecond,
            _ => return None,
        })
    }
}

/// An interval on its way, wide enough not to overflow before it is checked.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    us: i128,
}

impl Sum {
    fn finish(self) -> Result<Interval, ()> {
        Ok(Interval {
            months: i32::try_from(self.months).map_err(drop)?,
            days: i32::try_from(self.days).map_err(drop)?,
            us: i64::try_from(self.us).map_err(drop)?,
        })
    }

    fn add(&mut self, whole: i128, fraction: f64, unit: Unit) {
        let months = match unit {
            Unit::Millennium => 12_000,
            Unit::Century => 1_200,
            Unit::Decade => 120,
            Unit::Year => 12,
            Unit::Month => 1,
            _ => 0,
        };
        match unit {
            Unit::Month => {
                self.months += whole;
                self.add_days(fraction * 30.0);
            }
            Unit::Week => {
                self.days += whole * 7;
                self.add_days(fraction * 7.0);
            }
            Unit::Day => {
                self.days += whole;
                self.add_us(fraction * DAY_US as f64);
            }
            _ if months > 0 => {
                // Of a fraction of a year only whole months are kept.
                self.months += whole * months + (fraction * months as f64).round_ties_even() as i128;
            }
            _ => {
                let us = match unit {
                    Unit::Hour => HOUR_US,
                    Unit::Minute => MINUTE_US,
                    Unit::Second => SECOND_US,
                    Unit::Millisecond => 1_000,
                    _ => 1,
                };
                self.us += whole * i128::from(us);
                self.add_us(fraction * us as f64);
            }
        }
    }

    fn add_days(&mut self, days: f64) {
        self.days += days.trunc() as i128;
        self.add_us(days.fract() * DAY_US as f64);
    }

    fn add_us(&mut self, us: f64) {
        self.us += us.round() as i128;
    }
}

/// The input function.
pub(crate) fn read(text: &[u8], fields: Option<Fields>) -> Result<Interval, SqlError> {
    let invalid = || fault::invalid_datetime("interval", text);
    let lower = std::str::from_utf8(text).map_err(|_| invalid())?.trim().to_ascii_lowercase();
    let sum = match iso(&lower) {
        Some(sum) => Some(sum),
        None => verbose(&lower, fields),
    };
    let overflow = || {
        let shown = String::from_utf8_lossy(text);
        SqlError::new("22015", format!("interval field value out of range: \"{shown}\""))
    };
    let Some(sum) = sum else {
        return Err(if lower.split_whitespace().any(is_wide_clock) { overflow() } else { invalid() });
    };
    // Years and months fit by themselves, but not together.
    let is_long = sum.months.unsigned_abs() < 12 << 31 && i32::try_from(sum.months).is_err();
    let interval = sum.finish().map_err(|()| if is_long { out_of_range() } else { overflow() })?;
    Ok(fields.map_or(interval, |fields| limited(interval, fields)))
}

/// Without what is smaller than the last field, or larger than a single one.
fn limited(interval: Interval, Fields { first, last }: Fields) -> Interval {
    let Interval { mut months, mut days, mut us } = interval;
    match last {
        Unit::Year => (months, days, us) = (months / 12 * 12, 0, 0),
        Unit::Month => (days, us) = (0, 0),
        Unit::Day => us = 0,
        Unit::Hour => us = us / HOUR_US * HOUR_US,
        Unit::Minute => us = us / MINUTE_US * MINUTE_US,
        _ => {}
    }
    if first == last && last == Unit::Month {
        days = 0;
    }
    Interval { months, days, us }
}

enum Word {
    /// Sign, whole, fraction.
    Number(bool, i128, f64),
    /// Years and months.
    YearMonth(bool, i128, i128),
    Clock(bool, i128),
    Name(String),
}

/// Fields from last to first, because a number without a unit is told by what follows it.
fn verbose(text: &str, fields: Option<Fields>) -> Option<Sum> {
    let mut words = words(text, fields)?;
    let mut sum = Sum::default();
    let ago = matches!(words.last(), Some(Word::Name(name)) if name == "ago");
    if ago {
        words.pop();
    }
    if words.is_empty() {
        return None;
    }
    let bare = fields.map_or(Unit::Second, |f| f.last);
    let mut unit = Some(bare);
    for word in words.into_iter().rev() {
        match word {
            Word::Name(name) if name == "@" => {}
            Word::Name(name) => unit = Some(Unit::named(&name)?),
            Word::Clock(negative, us) => {
                sum.us += if negative { -us } else { us };
                unit = Some(Unit::Day);
            }
            Word::YearMonth(negative, years, months) => {
                let all = years * 12 + months;
                sum.months += if negative { -all } else { all };
                unit = None;
            }
            Word::Number(negative, whole, fraction) => {
                let sign = if negative { -1 } else { 1 };
                sum.add(whole * sign, fraction * sign as f64, unit.take()?);
            }
        }
    }
    if ago {
        sum = Sum { months: -sum.months, days: -sum.days, us: -sum.us };
    }
    Some(sum)
}

fn words(text: &str, fields: Option<Fields>) -> Option<Vec<Word>> {
    let mut rest = text;
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let Some(first) = rest.chars().next() else {
            return Some(words);
        };
        let is_word = first.is_ascii_alphabetic() || first == '@';
        let belongs = |c: char| match is_word {
            true => c.is_ascii_alphabetic(),
            false => c.is_ascii_digit() || matches!(c, '.' | ':' | '-' | '+'),
        };
        let end = rest.char_indices().skip(1).find(|(i, c)| {
            let exponent = !is_word && *c == 'e' && rest[i + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-');
            !belongs(*c) && !exponent
        });
        let (word, left) = rest.split_at(end.map_or(rest.len(), |(i, _)| i));
        rest = left;
        words.push(match is_word {
            true => Word::Name(word.to_owned()),
            false => quantity(word, fields)?,
        });
    }
}

fn quantity(word: &str, fields: Option<Fields>) -> Option<Word> {
    let (negative, digits) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    if digits.contains(':') {
        return Some(Word::Clock(negative, clock(digits, fields)?));
    }
    if let Some((years, months)) = digits.split_once('-') {
        let (years, months): (i128, i128) = (whole(years)?, whole(months)?);
        return (months < 12).then_some(Word::YearMonth(negative, years, months));
    }
    let (whole, fraction) = number(digits)?;
    Some(Word::Number(negative, whole, fraction))
}

fn whole(digits: &str) -> Option<i128> {
    let plain = !digits.is_empty() && digits.len() < 30 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn number(text: &str) -> Option<(i128, f64)> {
    if text.contains('e') {
        let value: f64 = text.parse().ok().filter(|v: &f64| v.abs() < 1e18)?;
        return Some((value.trunc() as i128, value.fract()));
    }
    match text.split_once('.') {
        None => Some((whole(text)?, 0.0)),
        Some((a, b)) if a.is_empty() && b.is_empty() => None,
        Some((a, b)) => {
            let whole = if a.is_empty() { 0 } else { whole(a)? };
            let plain = b.bytes().all(|d| d.is_ascii_digit());
            Some((whole, if b.is_empty() { 0.0 } else { plain.then(|| format!("0.{b}").parse().ok())?? }))
        }
    }
}

/// Microseconds of `hours:minutes[:seconds]`, of `minutes:seconds` where the fields say so.
fn clock(text: &str, fields: Option<Fields>) -> Option<i128> {
    let parts: Vec<&str> = text.split(':').collect();
    let short = fields.is_some_and(|f| f.first == Unit::Minute && f.last == Unit::Second);
    let (hours, minutes, seconds) = match parts.as_slice() {
        [m, s] if short || s.contains('.') => ("0", *m, *s),
        [h, m] => (*h, *m, "0"),
        [h, m, s] => (*h, *m, *s),
        _ => return None,
    };
    let (hours, minutes, (seconds, fraction)) = (whole(hours)?, whole(minutes)?, number(seconds)?);
    if minutes > 59 || seconds > 60 {
        return None;
    }
    let us = (fraction * SECOND_US as f64).round() as i128;
    Some(hours * i128::from(HOUR_US) + minutes * i128::from(MINUTE_US) + seconds * i128::from(SECOND_US) + us)
}

/// Whether a word is a time of too many minutes or seconds.
fn is_wide_clock(word: &str) -> bool {
    let parts: Vec<&str> = word.trim_start_matches(['-', '+']).split(':').collect();
    let known: Option<Vec<i128>> = parts.iter().map(|part| number(part).map(|(whole, _)| whole)).collect();
    match known.as_deref() {
        Some([_, minutes]) => *minutes > 59,
        Some([_, minutes, seconds]) => *minutes > 59 || *seconds > 60,
        _ => false,
    }
}

/// `P1Y2M3DT4H5M6.5S`, and the short `P0001-02-03T04:05:06`.
fn iso(text: &str) -> Option<Sum> {
    let mut rest = text.strip_prefix('p')?;
    let mut sum = Sum::default();
    let mut in_time = false;
    let mut any = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('t') {
            (in_time, rest) = (true, after);
            continue;
        }
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))?;
        let (number_text, after) = rest.split_at(end);
        let (negative, digits) = match number_text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, number_text.trim_start_matches('+')),
        };
        let (whole, fraction) = number(digits)?;
        let unit = match (after.as_bytes().first()?, in_time) {
            (b'y', false) => Unit::Year,
            (b'm', false) => Unit::Month,
            (b'w', false) => Unit::Week,
            (b'd', false) => Unit::Day,
            (b'h', true) => Unit::Hour,
            (b'm', true) => Unit::Minute,
            (b's', true) => Unit::Second,
            _ => return None,
        };
        let sign = if negative { -1 } else { 1 };
        sum.add(whole * sign, fraction * sign as f64, unit);
        any = true;
        rest = &after[1..];
    }
    any.then_some(sum)
}

impl Interval {
    /// From sums that may be too large.
    pub(crate) fn checked(months: i128, days: i128, us: i128) -> Result<Interval, SqlError> {
        Sum { months, days, us }.finish().map_err(|()| out_of_range())
    }
}
