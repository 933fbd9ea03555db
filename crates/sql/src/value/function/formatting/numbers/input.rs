//! `to_number`: digits, point and sign of a text; what else stands in it is skipped where the template has something of its kind.

use super::super::super::arguments::{Arguments, numeric};
use super::super::Result;
use super::template::{Part, SignPlace, Template};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::numeric::Numeric;

/// A text on the way through a template.
struct Input<'a> {
    t: &'a Template,
    text: &'a [u8],
    at: usize,
    /// `-` or `+`, once read.
    sign: Option<u8>,
    number: Vec<u8>,
    before: usize,
    after: usize,
    in_fraction: bool,
}

impl Input<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Passes one character.
    fn next(&mut self) {
        self.at += 1;
        while self.peek().is_some_and(|b| b & 0xc0 == 0x80) {
            self.at += 1;
        }
    }

    /// Passes characters that no number has.
    fn skip_others(&mut self, most: usize) {
        for _ in 0..most {
            match self.peek() {
                Some(c) if !b"0123456789.,+-".contains(&c) => self.next(),
                _ => return,
            }
        }
    }

    fn sign_at(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied().filter(|c| matches!(c, b'-' | b'+'))
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Nine | Part::Zero | Part::Point => {
                self.digit(part != Part::Point);
                self.at += 1;
            }
            // There is no digit before it as far as this is told apart: in fill mode it takes nothing.
            Part::Comma | Part::Group if self.t.fill || self.peek() != Some(b',') => {}
            Part::Comma | Part::Group => self.at += 1,
            Part::Currency => self.skip_others(1),
            Part::Ordinal(_) if !self.t.has_point => self.skip_others(2),
            Part::Minus | Part::Plus | Part::PlusOrMinus => {
                let wanted: &[u8] = match part {
                    Part::Minus => b"-",
                    Part::Plus => b"+",
                    _ => b"-+",
                };
                match self.peek().filter(|c| wanted.contains(c)) {
                    Some(sign) => {
                        self.sign = Some(sign);
                        self.at += 1;
                    }
                    None => self.skip_others(1),
                }
            }
            Part::Literal(_) => self.next(),
            Part::Ordinal(_) | Part::Sign | Part::Roman(_) => {}
        }
    }

    /// Takes a digit or the point, and the sign that stands before or behind all of them.
    fn digit(&mut self, is_digit: bool) {
        if self.peek() == Some(b' ') {
            self.at += 1;
        }
        if self.sign.is_none() && is_digit && self.before + self.after == 0 {
            self.sign_before();
        }
        let Some(c) = self.peek() else { return };
        let mut is_read = false;
        if c.is_ascii_digit() {
            if self.in_fraction && self.after == self.t.after {
                return;
            }
            self.number.push(c);
            *(if self.in_fraction { &mut self.after } else { &mut self.before }) += 1;
            is_read = true;
        } else if self.t.has_point && !self.in_fraction && c == b'.' {
            self.number.push(c);
            (self.in_fraction, is_read) = (true, true);
        }
        if self.sign.is_none() && self.before + self.after > 0 {
            self.sign_behind(is_read);
        }
    }

    fn sign_before(&mut self) {
        if self.t.has_sign && self.t.sign == SignPlace::Before {
            self.sign = self.sign_at(self.at);
            self.at += usize::from(self.sign.is_some());
            return;
        }
        self.sign = match self.peek() {
            Some(b'-') => Some(b'-'),
            Some(b'<') if self.t.brackets => Some(b'-'),
            Some(b'+') => Some(b'+'),
            _ => return,
        };
        self.at += 1;
    }

    fn sign_behind(&mut self, is_read: bool) {
        let next = self.text.get(self.at + 1);
        if self.t.has_sign && is_read && next.is_some_and(|c| !c.is_ascii_digit()) {
            self.sign = self.sign_at(self.at + 1);
            self.at += usize::from(self.sign.is_some());
        } else if !is_read && !self.t.has_sign && (self.t.plus || self.t.minus) {
            self.sign = self.sign_at(self.at);
        }
    }
}

pub(crate) fn to_number(a: &Arguments<'_>) -> Result {
    let (source, template) = (a.text(0), a.text(1));
    if template.is_empty() {
        return Ok(Datum::Null);
    }
    let t = Template::parse(template)?;
    if let Some(what) = t.exponent.then_some("EEEE").or(t.roman.then_some("RN")) {
        return Err(SqlError::unsupported_as(format!("\"{what}\" not supported for input")));
    }
    let mut input = Input {
        t: &t,
        text: source.as_bytes(),
        at: 0,
        sign: None,
        number: Vec::new(),
        before: 0,
        after: 0,
        in_fraction: false,
    };
    for part in &t.parts {
        if input.at >= input.text.len() {
            break;
        }
        input.part(*part);
    }
    let Input { mut number, after, sign, .. } = input;
    if number.last() == Some(&b'.') {
        number.pop();
    }
    number.insert(0, sign.unwrap_or(b' '));
    let number = Numeric::parse(&number)?;
    let number = number.apply_typmod(Some(((t.before + t.shifted + after) as u16, after as i16)))?;
    let number = match t.shifted {
        0 if !t.has_shift => number,
        n => number.mul(&Numeric::from_i64(10).power(&Numeric::from_i64(-(n as i64)))?)?,
    };
    Ok(numeric(&number))
}
