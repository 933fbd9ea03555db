//! `to_char` of numbers.

use super::super::super::arguments::{Arguments, text};
use super::super::{Result, ordinal_of};
use super::template::{Part, SignPlace, Template};
use crate::error::SqlError;
use crate::value::numeric::Numeric;
use freshet_engine::schema::Type;

/// The digits that a float surely has.
const FLOAT4_DIGITS: usize = 6;
const FLOAT8_DIGITS: usize = 15;

/// A number on its way into a template.
struct Layout<'a> {
    t: &'a Template,
    /// Digits and a point, without the sign; `NaN`, `Infinity`, or what shows that it does not fit.
    number: &'a [u8],
    /// How much of the number is written.
    at: usize,
    is_negative: bool,
    /// Positions before the number's first digit.
    blank: usize,
    /// The position in the template.
    position: usize,
    /// That of the last; there may be none.
    last: i64,
    /// In fill mode, the number's last character that is shown.
    relevant: Option<usize>,
    sign: SignPlace,
    sign_is_written: bool,
    brackets: bool,
    /// Whether the position before shows a digit: only behind one stands a separator.
    behind_digit: bool,
    /// Where a number has fewer characters than the template, PostgreSQL goes no further.
    is_cut: bool,
    out: String,
}

/// A number by its template; `before` and `after` are the positions that it has.
fn laid_out(template: &Template, number: &str, before: usize, after: usize) -> Result<String> {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let length = number.find('.').unwrap_or(number.len());
    let overflow = format!("{}.{}", "#".repeat(before), "#".repeat(after));
    let number = if length > before { &overflow } else { number };
    let t = Template { before, after, ..template.clone() };
    let blank = before.saturating_sub(length);
    let own_sign = t.plus || t.minus;
    let sign = match t.sign {
        // Behind all digits it is behind the number.
        SignPlace::Before if !own_sign && template.before_sign == before => SignPlace::After,
        sign => sign,
    };
    let sign_is_written = if own_sign { t.minus } else { !is_negative && t.fill && !t.has_sign };
    let relevant = if t.fill && t.has_point { last_relevant(number, t.zero_end.saturating_sub(blank)) } else { None };
    let more = usize::from(!sign_is_written && blank == 0);
    let mut layout = Layout {
        number: number.as_bytes(),
        at: 0,
        is_negative,
        blank,
        position: 0,
        last: (before + after + more) as i64 - 1,
        relevant,
        sign,
        sign_is_written,
        brackets: t.brackets && (own_sign || is_negative || !t.fill),
        behind_digit: false,
        is_cut: false,
        out: String::new(),
        t: &t,
    };
    template.parts.iter().try_for_each(|part| layout.part(*part))?;
    Ok(layout.out)
}

/// Where the number's last digit stands that is shown though nothing is filled: the last that is no zero, or the template's last `0`.
fn last_relevant(number: &str, zeros: usize) -> Option<usize> {
    let point = number.find('.')?;
    let digit = number.rfind(|c| c != '0').filter(|at| *at > point).unwrap_or(point);
    Some(if zeros > 0 { digit.max(zeros.min(number.len() - 1)) } else { digit })
}

impl Layout<'_> {
    fn part(&mut self, part: Part) -> Result<()> {
        let (fill, roman) = (self.t.fill, self.t.roman);
        let space = |out: &mut String| {
            if !fill {
                out.push(' ')
            }
        };
        match part {
            _ if self.is_cut => {}
            Part::Nine | Part::Zero | Part::Point if roman => {}
            Part::Nine | Part::Zero | Part::Point => self.digit(part),
            Part::Comma | Part::Group if self.behind_digit => self.out.push(','),
            Part::Comma | Part::Group => space(&mut self.out),
            Part::Currency => self.out.push(' '),
            Part::Minus if self.is_negative && !roman => self.out.push('-'),
            Part::Plus if !self.is_negative && !roman => self.out.push('+'),
            Part::Minus | Part::Plus => space(&mut self.out),
            // Of no sign PostgreSQL makes the end.
            Part::PlusOrMinus if roman => self.is_cut = true,
            Part::PlusOrMinus => self.out.push(if self.is_negative { '-' } else { '+' }),
            // It stands with the digits.
            Part::Sign => {}
            Part::Ordinal(upper) => {
                let is_number = self.number.first() != Some(&b'#') && !self.is_negative && !self.t.has_point;
                if is_number && !roman {
                    let last = self.last_digits()?;
                    self.out.push_str(ordinal_of(last, upper));
                }
            }
            Part::Roman(upper) => {
                let number = String::from_utf8_lossy(self.number).into_owned();
                let number = if upper { number } else { number.to_lowercase() };
                self.out.push_str(&if fill { number } else { format!("{number:>15}") });
            }
            Part::Literal(c) => self.out.push(c),
        }
        Ok(())
    }

    /// The number's last two digits, which tell the ending of an ordinal number.
    fn last_digits(&self) -> Result<i64> {
        let number = String::from_utf8_lossy(self.number);
        let digits = number.get(number.len().saturating_sub(2)..).unwrap_or("");
        let digits = digits.parse().or_else(|_| digits.get(1..).unwrap_or("").parse());
        digits.map_err(|_| SqlError::new("22P02", format!("\"{number}\" is not a number")))
    }

    /// Whether a zero before the point is not shown.
    fn is_bare_zero(&self) -> bool {
        self.t.zero_from.is_none() && self.at == 0 && self.number.first() == Some(&b'0') && self.t.after != 0
    }

    fn ends_with_point(&self) -> bool {
        self.relevant.is_some_and(|at| self.number[at] == b'.')
    }

    fn write_sign(&mut self) {
        let is_there = self.position >= self.blank || self.t.zero_from == Some(self.position);
        if self.sign_is_written || !is_there || self.is_bare_zero() && !self.ends_with_point() {
            return;
        }
        let sign = if self.is_negative { '-' } else { '+' };
        if self.t.has_sign {
            if self.sign == SignPlace::Before {
                self.out.push(sign);
                self.sign_is_written = true;
            }
            return;
        }
        match (self.brackets, self.is_negative) {
            (true, true) => self.out.push('<'),
            (true, false) => self.out.push(' '),
            (false, true) => self.out.push('-'),
            (false, false) if !self.t.fill => self.out.push(' '),
            (false, false) => {}
        }
        self.sign_is_written = true;
    }

    fn digit(&mut self, part: Part) {
        self.behind_digit = false;
        self.write_sign();
        let is_zero = self.t.zero_from.is_some_and(|from| from <= self.position);
        if self.position < self.blank && !is_zero {
            if !self.t.fill {
                self.out.push(' ');
            }
        } else if self.position < self.blank {
            self.out.push('0');
            self.behind_digit = true;
        } else {
            self.character(part);
            self.at = (self.at + 1).min(self.number.len());
        }
        let end = self.last + i64::from(self.blank > 0) + i64::from(self.t.has_point);
        if self.relevant != Some(self.at) && self.position as i64 + 1 == end && !self.is_cut {
            if self.sign_is_written && self.brackets {
                self.out.push(if self.is_negative { '>' } else { ' ' });
            } else if self.t.has_sign && self.sign == SignPlace::After {
                self.out.push(if self.is_negative { '-' } else { '+' });
            }
        }
        self.position += 1;
    }

    /// Writes the number's next character.
    fn character(&mut self, part: Part) {
        match self.number.get(self.at) {
            Some(b'.') => {
                if !self.ends_with_point() || self.t.fill {
                    self.out.push('.');
                }
            }
            _ if self.relevant.is_some_and(|at| self.at > at) && part != Part::Zero => {}
            Some(_) if self.is_bare_zero() => match self.t.fill {
                false => self.out.push(' '),
                true if self.ends_with_point() => self.out.push('0'),
                true => {}
            },
            Some(c) => {
                self.out.push(*c as char);
                self.behind_digit = true;
            }
            None => self.is_cut = true,
        }
    }
}

/// With an exponent nothing else of a template counts.
fn not_finite(t: &Template) -> String {
    format!(" {}.{}", "#".repeat(t.before), "#".repeat(t.after + 4))
}

/// `1.5e+03` with so many digits after the point, and a blank for the sign of what is not negative.
fn scientific(number: &Numeric, t: &Template) -> String {
    let Numeric::Finite(_) = number else {
        return not_finite(t);
    };
    let mut shown = Vec::new();
    number.write(&mut shown);
    let is_negative = shown.first() == Some(&b'-');
    let point = shown.iter().position(|b| *b == b'.').unwrap_or(shown.len()) - usize::from(is_negative);
    let all: Vec<u8> = shown.into_iter().filter(u8::is_ascii_digit).collect();
    let first = all.iter().position(|b| *b != b'0');
    let exponent = first.map_or(0, |first| point as i64 - 1 - first as i64);
    let mut digits: Vec<u8> = all[first.unwrap_or(all.len())..].to_vec();
    let rounds_up = digits.get(t.after + 1).is_some_and(|b| *b >= b'5');
    digits.resize(t.after + 1, b'0');
    if rounds_up {
        increment(&mut digits);
    }
    let whole = digits.len() - t.after;
    let (before, after) = digits.split_at(whole);
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let point = if t.after > 0 { "." } else { "" };
    format!("{}{before}{point}{after}e{}", if is_negative { '-' } else { ' ' }, two_digits(exponent))
}

/// The next number of these digits, which may have one more.
fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

fn two_digits(exponent: i64) -> String {
    format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The same of a float, rounded as C does.
fn scientific_float(value: f64, t: &Template) -> String {
    if !value.is_finite() {
        return not_finite(t);
    }
    let shown = format!("{value:.after$e}", after = t.after);
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let sign = if mantissa.starts_with('-') { "" } else { " " };
    format!("{sign}{mantissa}e{}", two_digits(exponent.parse().unwrap_or(0)))
}

fn roman(value: i64) -> String {
    const VALUES: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&value) {
        return "#".repeat(15);
    }
    let (mut value, mut out) = (value, String::new());
    for (size, letters) in VALUES {
        while value >= size {
            out.push_str(letters);
            value -= size;
        }
    }
    out
}

/// A Roman number takes no positions, no sign and no point.
fn in_roman(t: &Template, value: i64) -> Result<String> {
    let bare = Template { parts: t.parts.clone(), fill: t.fill, roman: true, ..Template::default() };
    laid_out_roman(&bare, &roman(value))
}

fn laid_out_roman(t: &Template, number: &str) -> Result<String> {
    let mut layout = Layout {
        t,
        number: number.as_bytes(),
        at: 0,
        is_negative: false,
        blank: 0,
        position: 0,
        last: 0,
        relevant: None,
        sign: SignPlace::None,
        sign_is_written: true,
        brackets: false,
        behind_digit: false,
        is_cut: false,
        out: String::new(),
    };
    t.parts.iter().try_for_each(|part| layout.part(*part))?;
    Ok(layout.out)
}

fn int4_of(value: i64) -> Result<i64> {
    i32::try_from(value).map(i64::from).map_err(|_| SqlError::new("22003", "integer out of range"))
}

pub(crate) fn numeric_to_char(a: &Arguments<'_>) -> Result {
    let number = a.number(0);
    let t = Template::parse(a.text(1))?;
    if t.roman {
        return in_roman(&t, int4_of(number.round(0)?.to_i64("integer")?)?).map(text);
    }
    if t.exponent {
        return Ok(text(scientific(&number, &t)));
    }
    let shifted = match t.shifted {
        0 => number,
        n => number.mul(&Numeric::parse(format!("1e{n}").as_bytes())?)?,
    };
    let mut shown = Vec::new();
    shifted.round(t.after as i64)?.write(&mut shown);
    laid_out(&t, &String::from_utf8_lossy(&shown), t.before + t.shifted, t.after).map(text)
}

pub(crate) fn integer_to_char(a: &Arguments<'_>) -> Result {
    let value = a.int(0);
    let is_small = a.types[0] == Type::Int4;
    let t = Template::parse(a.text(1))?;
    if t.roman {
        return in_roman(&t, int4_of(value)?).map(text);
    }
    if t.exponent {
        let shown =
            if is_small { scientific_float(value as f64, &t) } else { scientific(&Numeric::from_i64(value), &t) };
        return Ok(text(shown));
    }
    let scale = 10i64.checked_pow(t.shifted as u32);
    let shifted = match is_small {
        // PostgreSQL does not look whether it fits.
        true => i64::from((value as i32).wrapping_mul(scale.unwrap_or(i64::MAX).min(i32::MAX.into()) as i32)),
        false => scale
            .and_then(|scale| value.checked_mul(scale))
            .ok_or_else(|| SqlError::new("22003", "bigint out of range"))?,
    };
    let zeros = if t.after > 0 { format!(".{}", "0".repeat(t.after)) } else { String::new() };
    laid_out(&t, &format!("{shifted}{zeros}"), t.before + t.shifted, t.after).map(text)
}

/// A float is shown with as many digits as it surely has.
pub(crate) fn float_to_char(a: &Arguments<'_>) -> Result {
    let value = a.float(0);
    let is_small = a.types[0] == Type::Float4;
    let t = Template::parse(a.text(1))?;
    if t.roman {
        return in_roman(&t, value.round_ties_even() as i64).map(text);
    }
    if t.exponent {
        return Ok(text(scientific_float(value, &t)));
    }
    let scale = 10f64.powi(t.shifted as i32);
    let shifted = match (t.has_shift, is_small) {
        (false, _) => value,
        (true, true) => f64::from(value as f32 * scale as f32),
        (true, false) => value * scale,
    };
    let most = if is_small { FLOAT4_DIGITS } else { FLOAT8_DIGITS };
    let after = t.after.min(most.saturating_sub(plain(shifted.abs(), 0).len()));
    laid_out(&t, &plain(shifted, after), t.before + t.shifted, after).map(text)
}

/// A float in digits, without an exponent.
fn plain(value: f64, after: usize) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => if value < 0.0 { "-Infinity" } else { "Infinity" }.to_owned(),
        value => format!("{value:.after$}"),
    }
}
