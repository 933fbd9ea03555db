//! The sent form: base-10000 digits. The table is at the head of [`super`].

use super::stored::{Kind, View};
use super::{Numeric, parse_digits};
use crate::error::SqlError;
use crate::value::fault;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;
const SCALE_MASK: u16 = 0x3fff;

/// Appends the sent form of a stored number.
pub(crate) fn send_stored(stored: &[u8], out: &mut Vec<u8>) {
    let view = View::of(stored);
    let negative = match view.kind {
        Kind::NaN => return send_head(0, 0, NAN, 0, out),
        Kind::Infinity { negative: false } => return send_head(0, 0, INFINITY, 0, out),
        Kind::Infinity { negative: true } => return send_head(0, 0, NEGATIVE_INFINITY, 0, out),
        Kind::Finite { negative } => negative,
    };
    if view.is_zero() {
        return send_head(0, 0, 0, view.scale, out);
    }
    let digit = |place| view.digit(place);
    send_digits(negative, view.whole_digits(), view.digit_count(), view.scale, digit, out);
}

/// Appends the sent form of an integer at a scale.
pub(crate) fn send_decimal(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    if unscaled == 0 {
        return send_head(0, 0, 0, scale.into(), out);
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(unscaled.unsigned_abs()).as_bytes();
    let count = digits.len() as i32;
    let digit = |place: i32| {
        let digit = usize::try_from(place).ok().and_then(|p| digits.get(p));
        digit.map_or(0, |d| d - b'0')
    };
    send_digits(unscaled < 0, count - i32::from(scale), count, scale.into(), digit, out);
}

fn send_head(count: i32, weight: i32, sign: u16, scale: u16, out: &mut Vec<u8>) {
    for word in [count as u16, weight as u16, sign, scale] {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// `digit` gives the decimal digits, of which `count` are known and the first `whole` stand before the point (the first is after `-whole`
/// zeros if that is negative).
fn send_digits(negative: bool, whole: i32, count: i32, scale: u16, digit: impl Fn(i32) -> u8, out: &mut Vec<u8>) {
    let group = |weight: i32| {
        let first = whole - 4 * (weight + 1);
        (first..first + 4).fold(0u16, |n, place| n * 10 + u16::from(digit(place)))
    };
    let mut weight = (whole + 3).div_euclid(4) - 1;
    // The stored form pairs digits, so a first pair may leave the first group empty.
    while group(weight) == 0 {
        weight -= 1;
    }
    let mut last = (whole - count).div_euclid(4);
    while group(last) == 0 {
        last += 1;
    }
    let sign = if negative { NEGATIVE } else { 0 };
    send_head(weight - last + 1, weight, sign, scale, out);
    for weight in (last..=weight).rev() {
        out.extend_from_slice(&group(weight).to_be_bytes());
    }
}

/// Reads the sent form for a column of stored numbers.
pub(crate) fn receive_numeric(bytes: &[u8], typmod: Option<(u16, i16)>) -> Result<Box<[u8]>, SqlError> {
    Ok(receive(bytes)?.apply_typmod(typmod)?.to_stored())
}

/// Reads the sent form for a column of integers.
pub(crate) fn receive_decimal(bytes: &[u8], precision: u8, scale: u8) -> Result<i128, SqlError> {
    receive(bytes)?.to_decimal(precision, scale)
}

fn invalid(part: &str) -> SqlError {
    SqlError::new("22P03", format!("invalid {part} in external \"numeric\" value"))
}

fn receive(bytes: &[u8]) -> Result<Numeric, SqlError> {
    let (head, digits) = bytes.split_at_checked(8).ok_or_else(fault::binary_too_short)?;
    let word = |bytes: &[u8], i: usize| u16::from_be_bytes([bytes[2 * i], bytes[2 * i + 1]]);
    let (count, weight) = (usize::from(word(head, 0)), word(head, 1) as i16);
    let (sign, scale) = (word(head, 2), word(head, 3));
    if !matches!(sign, 0 | NEGATIVE | NAN | INFINITY | NEGATIVE_INFINITY) {
        return Err(invalid("sign"));
    }
    if scale & !SCALE_MASK != 0 {
        return Err(invalid("scale"));
    }
    if digits.len() < count * 2 {
        return Err(fault::binary_too_short());
    }
    if digits.len() > count * 2 {
        return Err(fault::binary_invalid());
    }
    let digits: Vec<u16> = (0..count).map(|i| word(digits, i)).collect();
    if digits.iter().any(|d| *d >= 10_000) {
        return Err(invalid("digit"));
    }
    match sign {
        NAN => Ok(Numeric::NaN),
        INFINITY => Ok(Numeric::Infinity),
        NEGATIVE_INFINITY => Ok(Numeric::NegativeInfinity),
        _ => assemble(sign == NEGATIVE, &digits, weight.into(), scale),
    }
}

/// The digits cut at the scale that was sent.
fn assemble(negative: bool, digits: &[u16], weight: i32, scale: u16) -> Result<Numeric, SqlError> {
    let first = digits.iter().position(|d| *d != 0).unwrap_or(digits.len());
    let weight = weight - first as i32;
    let digits = &digits[first..];
    let text: String = digits.iter().map(|d| format!("{d:04}")).collect();
    let magnitude = parse_digits(text.as_bytes());
    // The last digit counts units of 10^-places.
    let places = 4 * (digits.len() as i32 - 1 - weight);
    let wanted = i32::from(scale);
    let unscaled = if places > wanted {
        magnitude.cut_down((places - wanted) as u32)
    } else {
        magnitude.scaled_up((wanted - places) as u32)
    };
    let unscaled = if negative { unscaled.negated() } else { unscaled };
    Numeric::finite(unscaled, scale.into())
}
