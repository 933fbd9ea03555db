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
        // Of longer words nothing more is read.
        const LETTERS_MAX: usize = 10;
        Some(match word.get(..LETTERS_MAX).unwrap_or(word) {
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
            "millisecon" | "ms" | "msec" | "msecs" | "mseconds" | "msecond" => Unit::Millisecond,
            "microsecon" | "us" | "usec" | "usecs" | "useconds" | "usecond" => Unit::Microsecond,
            _ => return None,
        })
    }
}

/// Why a text is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Format,
    /// A number that no field holds.
    Range,
    /// Years and months fit by themselves, but not together.
    Together,
}

type Parsed<T> = Result<T, Refusal>;

/// An interval on its way, wide enough not to overflow before it is checked.
#[derive(Clone, Copy, Default)]
struct Sum {
    years: i128,
    months: i128,
    days: i128,
    us: i128,
    /// The units that were met, a bit for each: none is given twice.
    met: u16,
}

impl Sum {
    fn finish(self) -> Parsed<Interval> {
        let small = |number: i128| i32::try_from(number).map_err(|_| Refusal::Range);
        let (years, months) = (small(self.years)?, small(self.months)?);
        Ok(Interval {
            months: i32::try_from(i64::from(years) * 12 + i64::from(months)).map_err(|_| Refusal::Together)?,
            days: small(self.days)?,
            us: i64::try_from(self.us).map_err(|_| Refusal::Range)?,
        })
    }

    fn meet(&mut self, units: &[Unit]) -> Parsed<()> {
        let bits = units.iter().fold(0, |bits, unit| bits | 1 << *unit as u16);
        if self.met & bits != 0 {
            return Err(Refusal::Format);
        }
        self.met |= bits;
        Ok(())
    }

    fn add(&mut self, whole: i128, fraction: f64, unit: Unit) {
        let years = match unit {
            Unit::Millennium => 1_000,
            Unit::Century => 100,
            Unit::Decade => 10,
            _ => 1,
        };
        match unit {
            Unit::Millennium | Unit::Century | Unit::Decade | Unit::Year => {
                self.years += whole * years;
                // Of a fraction of a year only whole months are kept.
                self.months += (fraction * (years * 12) as f64).round_ties_even() as i128;
            }
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

    fn negated(self) -> Sum {
        Sum { years: -self.years, months: -self.months, days: -self.days, us: -self.us, ..self }
    }
}

/// The input function.
pub(crate) fn read(text: &[u8], fields: Option<Fields>) -> Result<Interval, SqlError> {
    let invalid = || fault::invalid_datetime("interval", text);
    let source = std::str::from_utf8(text).map_err(|_| invalid())?;
    let lower = source.trim().to_ascii_lowercase();
    let read = match verbose(&lower, fields) {
        Err(Refusal::Format) => iso(source),
        read => read,
    };
    let interval = read.and_then(Sum::finish).map_err(|refusal| match refusal {
        Refusal::Together => out_of_range(),
        Refusal::Format if !lower.split_whitespace().any(is_wide_clock) => invalid(),
        _ => fault::quoted("22015", "interval field value out of range", text),
    })?;
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
fn verbose(text: &str, fields: Option<Fields>) -> Parsed<Sum> {
    let mut words = words(text, fields)?;
    let mut sum = Sum::default();
    let ago = matches!(words.last(), Some(Word::Name(name)) if name == "ago");
    if ago {
        words.pop();
    }
    if words.is_empty() {
        return Err(Refusal::Format);
    }
    let bare = fields.map_or(Unit::Second, |f| f.last);
    let mut unit = Some(bare);
    for word in words.into_iter().rev() {
        match word {
            Word::Name(name) if name == "@" => {}
            Word::Name(name) => unit = Some(Unit::named(&name).ok_or(Refusal::Format)?),
            Word::Clock(negative, us) => {
                sum.meet(&[Unit::Hour, Unit::Minute, Unit::Second, Unit::Millisecond, Unit::Microsecond])?;
                sum.us += if negative { -us } else { us };
                unit = Some(Unit::Day);
            }
            Word::YearMonth(negative, years, months) => {
                sum.meet(&[Unit::Month])?;
                let all = years * 12 + months;
                sum.months += if negative { -all } else { all };
                unit = None;
            }
            Word::Number(negative, whole, fraction) => {
                let sign = if negative { -1 } else { 1 };
                let of = unit.take().ok_or(Refusal::Format)?;
                match of {
                    Unit::Second if fraction != 0.0 => {
                        sum.meet(&[Unit::Second, Unit::Millisecond, Unit::Microsecond])?;
                    }
                    _ => sum.meet(&[of])?,
                }
                sum.add(whole * sign, fraction * sign as f64, of);
                // As before a time of day.
                unit = (of == Unit::Hour).then_some(Unit::Day);
            }
        }
    }
    if !ago {
        return Ok(sum);
    }
    sum.finish()?;
    Ok(sum.negated())
}

fn words(text: &str, fields: Option<Fields>) -> Parsed<Vec<Word>> {
    let mut rest = text;
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let Some(first) = rest.chars().next() else {
            return Ok(words);
        };
        // A sign may stand apart from its number.
        let sign = if matches!(first, '-' | '+') { &rest[..1] } else { "" };
        rest = rest[sign.len()..].trim_ascii_start();
        if !sign.is_empty() && !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(Refusal::Format);
        }
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
            false => quantity(&format!("{sign}{word}"), fields)?,
        });
    }
}

fn quantity(word: &str, fields: Option<Fields>) -> Parsed<Word> {
    let (negative, digits) = match word.as_bytes().first() {
        Some(b'-') => (true, &word[1..]),
        Some(b'+') => (false, &word[1..]),
        _ => (false, word),
    };
    if digits.contains(':') {
        return Ok(Word::Clock(negative, clock(digits, fields).ok_or(Refusal::Format)?));
    }
    if let Some((years, months)) = digits.split_once('-') {
        let (years, months) = (whole(years)?, whole(months)?);
        return if months < 12 { Ok(Word::YearMonth(negative, years, months)) } else { Err(Refusal::Range) };
    }
    let (whole, fraction) = number(digits)?;
    Ok(Word::Number(negative, whole, fraction))
}

fn whole(digits: &str) -> Parsed<i128> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refusal::Format);
    }
    digits.parse::<i64>().map(i128::from).map_err(|_| Refusal::Range)
}

fn number(text: &str) -> Parsed<(i128, f64)> {
    if text.contains('e') {
        let value = text.parse().ok().filter(|v: &f64| v.abs() < 1e18).ok_or(Refusal::Format)?;
        return Ok((value.trunc() as i128, value.fract()));
    }
    match text.split_once('.') {
        None => Ok((whole(text)?, 0.0)),
        Some((a, b)) if a.is_empty() && b.is_empty() => Err(Refusal::Format),
        Some((a, b)) => {
            let whole = if a.is_empty() { 0 } else { whole(a)? };
            let plain = b.bytes().all(|d| d.is_ascii_digit());
            let fraction = if plain { format!("0.{b}0").parse().ok() } else { None };
            Ok((whole, fraction.ok_or(Refusal::Format)?))
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
    let (hours, minutes) = (whole(hours).ok()?, whole(minutes).ok()?);
    let (seconds, fraction) = number(seconds).ok()?;
    if minutes > 59 || seconds > 60 {
        return None;
    }
    let us = (fraction * SECOND_US as f64).round() as i128;
    Some(hours * i128::from(HOUR_US) + minutes * i128::from(MINUTE_US) + seconds * i128::from(SECOND_US) + us)
}

/// Whether a word is a time of too many minutes or seconds.
fn is_wide_clock(word: &str) -> bool {
    let parts: Vec<&str> = word.trim_start_matches(['-', '+']).split(':').collect();
    let known: Option<Vec<i128>> = parts.iter().map(|part| number(part).ok().map(|(whole, _)| whole)).collect();
    match known.as_deref() {
        Some([_, minutes]) => *minutes > 59,
        Some([_, minutes, seconds]) => *minutes > 59 || *seconds > 60,
        _ => false,
    }
}

/// `P1Y2M3DT4H5M6.5S`, and the short forms `P0001-02-03T04:05:06` and `P00010203T040506`.
fn iso(text: &str) -> Parsed<Sum> {
    const DATE: [Unit; 3] = [Unit::Year, Unit::Month, Unit::Day];
    const TIME: [Unit; 3] = [Unit::Hour, Unit::Minute, Unit::Second];
    let mut rest = text.strip_prefix('P').filter(|rest| !rest.is_empty()).ok_or(Refusal::Format)?;
    let mut sum = Sum::default();
    let (mut in_time, mut is_first) = (false, true);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            (in_time, is_first, rest) = (true, true, after);
            continue;
        }
        let start = rest;
        let (whole, fraction) = iso_number(&mut rest)?;
        let (units, separator, digits) = if in_time { (TIME, ':', 6) } else { (DATE, '-', 8) };
        let unit = match (rest.chars().next(), in_time) {
            (Some('Y'), false) => Unit::Year,
            (Some('M'), false) => Unit::Month,
            (Some('W'), false) => Unit::Week,
            (Some('D'), false) => Unit::Day,
            (Some('H'), true) => Unit::Hour,
            (Some('M'), true) => Unit::Minute,
            (Some('S'), true) => Unit::Second,
            (next, _) if next.is_none() || next == Some('T') && !in_time || next == Some(separator) => {
                if !is_first {
                    return Err(Refusal::Format);
                }
                let width = start.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
                if width == digits && next != Some(separator) {
                    sum.add(whole / 10_000, 0.0, units[0]);
                    sum.add(whole / 100 % 100, 0.0, units[1]);
                    // A fraction of these seconds counts for nothing.
                    sum.add(whole % 100, if in_time { 0.0 } else { fraction }, units[2]);
                } else {
                    sum.add(whole, fraction, units[0]);
                    iso_extended(&mut sum, &mut rest, &units[1..], separator)?;
                }
                if in_time && !rest.is_empty() {
                    return Err(Refusal::Format);
                }
                continue;
            }
            _ => return Err(Refusal::Format),
        };
        sum.add(whole, fraction, unit);
        is_first = false;
        rest = &rest[1..];
    }
    Ok(sum)
}

/// The second and third number of `years-months-days` or `hours:minutes:seconds`.
fn iso_extended(sum: &mut Sum, rest: &mut &str, units: &[Unit], separator: char) -> Parsed<()> {
    for unit in units {
        let Some(after) = rest.strip_prefix(separator) else { break };
        *rest = after;
        let (whole, fraction) = iso_number(rest)?;
        sum.add(whole, fraction, *unit);
    }
    if rest.is_empty() || rest.starts_with('T') { Ok(()) } else { Err(Refusal::Format) }
}

/// The longest float that the text begins with, in whole and fraction.
fn iso_number(rest: &mut &str) -> Parsed<(i128, f64)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut end = usize::from(rest.starts_with('-'));
    end += digits(&rest[end..]);
    if rest[end..].starts_with('.') {
        end += 1 + digits(&rest[end + 1..]);
    }
    if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['-', '+']));
        let length = digits(&exponent[sign..]);
        end += if length > 0 { 1 + sign + length } else { 0 };
    }
    let value: f64 = rest[..end].parse().map_err(|_| Refusal::Format)?;
    if value.abs() > 1e15 {
        return Err(Refusal::Range);
    }
    *rest = &rest[end..];
    Ok((value.trunc() as i128, value.fract()))
}

impl Interval {
    /// From sums that may be too large.
    pub(crate) fn checked(months: i128, days: i128, us: i128) -> Result<Interval, SqlError> {
        Sum { months, days, us, ..Sum::default() }.finish().map_err(|_| out_of_range())
    }
}
