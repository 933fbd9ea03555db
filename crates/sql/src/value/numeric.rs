//! How does `numeric` count? Decimal numbers of any length, with PostgreSQL's scales; 128-bit integers where they suffice.
//!
//! A finite number is an integer, the *unscaled* value, divided by `10^scale`. The scale is the number of digits that are shown
//! after the point, and every operation has its own rule for the scale of its result.
//!
//! Invariants
//! 1. `Unscaled::Big` holds only what `i128` does not.
//! 2. At most [`INTEGER_DIGITS_MAX`] digits stand before the point and [`SCALE_MAX`] after it.
//!
//! # Stored form of `Type::Numeric`
//!
//! Keys are compared as bytes, so the bytes are chosen to compare as the numbers do: a number is `0.d1 d2 d3... * 100^x` with
//! digits of base 100, `d1` and the last one not zero. The form without the two last bytes is the same for equal numbers
//! (`1.5`, `1.50`) and never ends with a zero byte.
//!
//! | bytes | content |
//! |---|---|
//! | head | NaN `ff`, Infinity `fe`, zero `80`, -Infinity `01` |
//! | head of a positive number | `aa + x` for -40 <= x < 40; `81` and x + 2^15 in 2 bytes for smaller x; `d2` and x in 3 bytes for larger |
//! | digits | each `d + 1` |
//! | of a negative number | head and digits of its absolute value, every bit inverted, then `ff` |
//! | last two | display scale, big-endian |
//!
//! # Sent form
//!
//! Four 16-bit words: count of base-10000 digits, weight of the first digit, sign (0, `4000` negative, `c000` NaN, `d000` Infinity,
//! `f000` -Infinity), display scale; then the digits.

mod arithmetic;
mod power;
mod stored;
mod sum;
mod wire;

#[cfg(feature = "query")]
pub(crate) use stored::stored_of_key;
pub use sum::NumericSum;
pub(crate) use wire::{receive_decimal, receive_numeric, send_decimal, send_small_decimal, send_stored};

use super::fault;
use super::pgtype::DECIMAL_DIGITS_MAX;
use super::text::trim_space;
use crate::error::SqlError;
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use std::cmp::Ordering;

/// Digits that may stand before the point: 32768 of base 10000.
pub const INTEGER_DIGITS_MAX: i64 = 131_072;
/// Digits that may stand after the point.
pub const SCALE_MAX: i64 = 16_383;
/// Significant digits that a float gives to a numeric.
const FLOAT8_DIGITS: usize = 15;
const FLOAT4_DIGITS: usize = 6;

/// Powers of ten that an `i128` holds.
pub(crate) const POWERS: [i128; 39] = {
    let mut powers = [1i128; 39];
    let mut i = 1;
    while i < 39 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

#[derive(Clone, Debug)]
pub enum Numeric {
    NegativeInfinity,
    Finite(Finite),
    Infinity,
    NaN,
}

/// `unscaled / 10^scale`.
#[derive(Clone, Debug)]
pub struct Finite {
    unscaled: Unscaled,
    scale: u16,
}

#[derive(Clone, Debug)]
enum Unscaled {
    Small(i128),
    Big(BigInt),
}

impl From<BigInt> for Unscaled {
    fn from(big: BigInt) -> Unscaled {
        match big.to_i128() {
            Some(small) => Unscaled::Small(small),
            None => Unscaled::Big(big),
        }
    }
}

impl Unscaled {
    fn to_big(&self) -> BigInt {
        match self {
            Unscaled::Small(v) => BigInt::from(*v),
            Unscaled::Big(v) => v.clone(),
        }
    }

    fn is_zero(&self) -> bool {
        matches!(self, Unscaled::Small(0))
    }

    fn is_negative(&self) -> bool {
        match self {
            Unscaled::Small(v) => *v < 0,
            Unscaled::Big(v) => v.is_negative(),
        }
    }

    fn negated(self) -> Unscaled {
        match self {
            Unscaled::Small(v) => match v.checked_neg() {
                Some(v) => Unscaled::Small(v),
                None => Unscaled::Big(-BigInt::from(v)),
            },
            Unscaled::Big(v) => (-v).into(),
        }
    }

    /// Times `10^places`.
    fn scaled_up(&self, places: u32) -> Unscaled {
        if let Unscaled::Small(v) = self
            && (*v == 0 || places == 0)
        {
            return self.clone();
        }
        if let Unscaled::Small(v) = self
            && let Some(power) = POWERS.get(places as usize)
            && let Some(product) = v.checked_mul(*power)
        {
            return Unscaled::Small(product);
        }
        (self.to_big() * big_power(places)).into()
    }

    /// Divided by `10^places`, rounded half away from zero.
    fn rounded_down(&self, places: u32) -> Unscaled {
        match self {
            Unscaled::Small(v) => Unscaled::Small(round_small(*v, places)),
            Unscaled::Big(v) => round_quotient(v, &big_power(places)).into(),
        }
    }

    /// Divided by `10^places`, cut off.
    fn cut_down(&self, places: u32) -> Unscaled {
        match self {
            Unscaled::Small(v) => Unscaled::Small(POWERS.get(places as usize).map_or(0, |p| v / p)),
            Unscaled::Big(v) => (v / big_power(places)).into(),
        }
    }

    /// The digits of the absolute value; none for zero.
    fn with_digits<T>(&self, use_digits: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Unscaled::Small(0) => use_digits(b""),
            Unscaled::Small(v) => use_digits(itoa::Buffer::new().format(v.unsigned_abs()).as_bytes()),
            Unscaled::Big(v) => use_digits(v.magnitude().to_str_radix(10).as_bytes()),
        }
    }

    fn digit_count(&self) -> i64 {
        match self {
            Unscaled::Small(0) => 0,
            Unscaled::Small(v) => i64::from(v.unsigned_abs().ilog10()) + 1,
            Unscaled::Big(_) => self.with_digits(|d| d.len() as i64),
        }
    }
}

fn big_power(places: u32) -> BigInt {
    match POWERS.get(places as usize) {
        Some(power) => BigInt::from(*power),
        None => BigInt::from(10).pow(places),
    }
}

/// `value / 10^places`, rounded half away from zero.
pub(crate) fn round_small(value: i128, places: u32) -> i128 {
    let Some(power) = POWERS.get(places as usize) else {
        // Half of 10^39 is more than an i128 holds.
        return 0;
    };
    let (quotient, rest) = (value / power, (value % power).unsigned_abs());
    // Not `2 * rest >= power`, which may overflow.
    if rest >= power.unsigned_abs() - rest { quotient + value.signum() } else { quotient }
}

/// Rounded half away from zero.
fn round_quotient(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let quotient = dividend / divisor;
    let rest = (dividend - &quotient * divisor).abs();
    if &rest * 2 < divisor.abs() {
        return quotient;
    }
    match dividend.sign() == divisor.sign() {
        true => quotient + 1,
        false => quotient - 1,
    }
}

impl Numeric {
    pub fn zero() -> Numeric {
        Numeric::from_decimal(0, 0)
    }

    /// The number of a `Decimal` value.
    pub fn from_decimal(unscaled: i128, scale: u8) -> Numeric {
        Numeric::Finite(Finite { unscaled: Unscaled::Small(unscaled), scale: scale.into() })
    }

    /// The unscaled value and the scale, of a finite number that 128 bits and a scale of 255 hold.
    pub fn small(&self) -> Option<(i128, u8)> {
        match self {
            Numeric::Finite(Finite { unscaled: Unscaled::Small(unscaled), scale }) => {
                Some((*unscaled, u8::try_from(*scale).ok()?))
            }
            _ => None,
        }
    }

    pub fn from_i64(value: i64) -> Numeric {
        Numeric::from_decimal(value.into(), 0)
    }

    /// A finite number, if it is within the limits.
    fn finite(unscaled: Unscaled, scale: i64) -> Result<Numeric, SqlError> {
        let scale = u16::try_from(scale).map_err(|_| fault::numeric_overflow())?;
        if let Unscaled::Big(_) = unscaled
            && unscaled.digit_count() - i64::from(scale) > INTEGER_DIGITS_MAX
        {
            return Err(fault::numeric_overflow());
        }
        Ok(Numeric::Finite(Finite { unscaled, scale }))
    }

    /// The cast from `double precision`, which keeps 15 digits.
    pub fn from_f64(value: f64) -> Numeric {
        Numeric::from_float(value, FLOAT8_DIGITS)
    }

    /// The cast from `real`, which keeps 6 digits.
    pub fn from_f32(value: f32) -> Numeric {
        Numeric::from_float(value.into(), FLOAT4_DIGITS)
    }

    fn from_float(value: f64, digits: usize) -> Numeric {
        if value.is_nan() {
            return Numeric::NaN;
        }
        if value.is_infinite() {
            return match value > 0.0 {
                true => Numeric::Infinity,
                false => Numeric::NegativeInfinity,
            };
        }
        let text = format!("{value:.*e}", digits - 1);
        let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
        let mantissa = mantissa.trim_end_matches('0');
        Numeric::parse(format!("{mantissa}e{exponent}").as_bytes())
            .expect("a float is far within the limits of numeric")
    }

    /// Reads the text form.
    pub fn parse(text: &[u8]) -> Result<Numeric, SqlError> {
        let trimmed = trim_space(text);
        if let Some(special) = parse_special(trimmed) {
            return Ok(special);
        }
        let invalid = || fault::invalid_text("numeric", text);
        let (negative, rest) = split_sign(trimmed);
        let mantissa_end = rest.iter().position(|b| matches!(b, b'e' | b'E'));
        let (mantissa, exponent) = rest.split_at(mantissa_end.unwrap_or(rest.len()));
        let exponent = match exponent {
            [] => 0,
            [_, digits @ ..] => parse_exponent(digits).ok_or_else(invalid)?,
        };
        let point = mantissa.iter().position(|b| *b == b'.');
        let (whole, fraction) = mantissa.split_at(point.unwrap_or(mantissa.len()));
        let fraction = fraction.strip_prefix(b".").unwrap_or(fraction);
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(invalid());
        }
        let unscaled = parse_digits(&digits);
        let unscaled = if negative { unscaled.negated() } else { unscaled };
        let scale = fraction.len() as i64 - exponent;
        if scale >= 0 {
            return Numeric::finite(unscaled, scale.min(i64::from(u16::MAX))).and_then(Numeric::within_scale);
        }
        if unscaled.digit_count() - scale > INTEGER_DIGITS_MAX && !unscaled.is_zero() {
            return Err(fault::numeric_overflow());
        }
        Numeric::finite(unscaled.scaled_up(-scale as u32), 0)
    }

    fn within_scale(self) -> Result<Numeric, SqlError> {
        match &self {
            Numeric::Finite(f) if i64::from(f.scale) > SCALE_MAX => Err(fault::numeric_overflow()),
            _ => Ok(self),
        }
    }

    /// Appends the text form.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Numeric::NaN => out.extend_from_slice(b"NaN"),
            Numeric::Infinity => out.extend_from_slice(b"Infinity"),
            Numeric::NegativeInfinity => out.extend_from_slice(b"-Infinity"),
            Numeric::Finite(Finite { unscaled, scale }) => {
                if unscaled.is_negative() {
                    out.push(b'-');
                }
                unscaled.with_digits(|digits| write_point(digits, (*scale).into(), out));
            }
        }
    }

    /// Digits shown after the point.
    pub fn scale(&self) -> u16 {
        match self {
            Numeric::Finite(finite) => finite.scale,
            _ => 0,
        }
    }

    /// The nearest integer, half away from zero; `type_name` is for the message.
    pub fn to_i64(&self, type_name: &str) -> Result<i64, SqlError> {
        let cannot = |what| fault::feature(format!("cannot convert {what} to {type_name}"));
        match self {
            Numeric::NaN => Err(cannot("NaN")),
            Numeric::Infinity | Numeric::NegativeInfinity => Err(cannot("infinity")),
            Numeric::Finite(finite) => match finite.unscaled.rounded_down(finite.scale.into()) {
                Unscaled::Small(v) => i64::try_from(v).ok(),
                Unscaled::Big(_) => None,
            }
            .ok_or_else(|| SqlError::new("22003", format!("{type_name} out of range"))),
        }
    }

    /// The nearest float.
    pub fn to_f64(&self) -> Result<f64, SqlError> {
        if let Numeric::Finite(finite) = self
            && let Unscaled::Small(v) = finite.unscaled
            && let Some(float) = exact_float(v, finite.scale)
        {
            return Ok(float);
        }
        let mut text = Vec::new();
        self.write(&mut text);
        super::float::read_float8(&text)
    }

    pub fn to_f32(&self) -> Result<f32, SqlError> {
        let mut text = Vec::new();
        self.write(&mut text);
        super::float::read_float4(&text)
    }

    /// The value of a `numeric(precision, scale)` column that is stored as an integer.
    pub fn to_decimal(&self, precision: u8, scale: u8) -> Result<i128, SqlError> {
        let Numeric::Finite(finite) = self else {
            return Err(match self {
                Numeric::NaN => fault::feature(format!("numeric({precision},{scale}) cannot hold NaN")),
                _ => infinite_field(precision.into(), scale.into()),
            });
        };
        let own = u32::from(finite.scale);
        let wanted = u32::from(scale);
        let moved = if own > wanted {
            finite.unscaled.rounded_down(own - wanted)
        } else {
            finite.unscaled.scaled_up(wanted - own)
        };
        match moved {
            Unscaled::Small(v) if fits(v, precision) => Ok(v),
            _ => Err(field_overflow(precision.into(), scale.into())),
        }
    }

    /// Rounds to the scale of a type modifier and checks its precision.
    pub fn apply_typmod(self, typmod: Option<(u16, i16)>) -> Result<Numeric, SqlError> {
        let Some((precision, scale)) = typmod else {
            return Ok(self);
        };
        match self {
            Numeric::NaN => Ok(self),
            Numeric::Infinity | Numeric::NegativeInfinity => Err(infinite_field(precision.into(), scale.into())),
            Numeric::Finite(_) => {
                let rounded = self.round(scale.into())?;
                let Numeric::Finite(finite) = &rounded else {
                    return Ok(rounded);
                };
                let whole = finite.unscaled.digit_count() - i64::from(finite.scale);
                if whole > i64::from(precision) - i64::from(scale) && !finite.unscaled.is_zero() {
                    return Err(field_overflow(precision.into(), scale.into()));
                }
                Ok(rounded)
            }
        }
    }
}

/// PostgreSQL's order: NaN is equal to itself and above everything.
impl Ord for Numeric {
    fn cmp(&self, other: &Numeric) -> Ordering {
        let rank = |n: &Numeric| match n {
            Numeric::NegativeInfinity => 0,
            Numeric::Finite(_) => 1,
            Numeric::Infinity => 2,
            Numeric::NaN => 3,
        };
        match (self, other) {
            (Numeric::Finite(a), Numeric::Finite(b)) => {
                let scale = a.scale.max(b.scale);
                let (a, b) = (a.at_scale(scale), b.at_scale(scale));
                match (&a, &b) {
                    (Unscaled::Small(a), Unscaled::Small(b)) => a.cmp(b),
                    _ => a.to_big().cmp(&b.to_big()),
                }
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Equal numbers are equal whatever their scales.
impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl Finite {
    /// The unscaled value at a scale that is not smaller.
    fn at_scale(&self, scale: u16) -> Unscaled {
        self.unscaled.scaled_up(u32::from(scale - self.scale))
    }
}

fn parse_special(text: &[u8]) -> Option<Numeric> {
    if text.eq_ignore_ascii_case(b"nan") {
        return Some(Numeric::NaN);
    }
    let (negative, word) = split_sign(text);
    let infinite = word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"infinity");
    infinite.then_some(match negative {
        true => Numeric::NegativeInfinity,
        false => Numeric::Infinity,
    })
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// An exponent, or one beyond all limits for more digits than matter.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: i64, d: &u8| (n * 10 + i64::from(d - b'0')).min(1_000_000_000);
    let exponent = digits.iter().fold(0, add);
    Some(if negative { -exponent } else { exponent })
}

fn parse_digits(digits: &[u8]) -> Unscaled {
    if digits.len() <= usize::from(DECIMAL_DIGITS_MAX) {
        return Unscaled::Small(small_digits(digits));
    }
    match BigInt::parse_bytes(digits, 10) {
        Some(big) => big.into(),
        None => unreachable!("the caller passes digits"),
    }
}

/// At most 38 digits.
fn small_digits(digits: &[u8]) -> i128 {
    let mut value = 0i128;
    // 18 digits at a time: 64-bit arithmetic is several times faster.
    for chunk in digits.chunks(18) {
        let part = chunk.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
        value = value * POWERS[chunk.len()] + i128::from(part);
    }
    value
}

/// Whether so many digits hold the integer.
pub(crate) fn fits(unscaled: i128, precision: u8) -> bool {
    unscaled.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs()
}

/// Exact operands of one correctly rounded division.
fn exact_float(unscaled: i128, scale: u16) -> Option<f64> {
    const EXACT: u128 = 1 << 53;
    let power = *POWERS.get(usize::from(scale)).filter(|_| scale <= 22)?;
    (unscaled.unsigned_abs() <= EXACT).then(|| unscaled as f64 / power as f64)
}

pub(crate) fn field_overflow(precision: i32, scale: i32) -> SqlError {
    let digits = precision - scale;
    let (base, limit) = if digits == 0 { ("", 1) } else { ("10^", digits) };
    let detail = format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {base}{limit}."
    );
    fault::with_detail(SqlError::new("22003", "numeric field overflow"), detail)
}

fn infinite_field(precision: i32, scale: i32) -> SqlError {
    let detail = format!("A field with precision {precision}, scale {scale} cannot hold an infinite value.");
    fault::with_detail(SqlError::new("22003", "numeric field overflow"), detail)
}

/// Writes digits with the point before the last `scale` of them.
fn write_point(digits: &[u8], scale: usize, out: &mut Vec<u8>) {
    if digits.len() <= scale || digits.is_empty() {
        out.push(b'0');
        if scale > 0 {
            out.push(b'.');
            out.extend(std::iter::repeat_n(b'0', scale - digits.len()));
            out.extend_from_slice(digits);
        }
        return;
    }
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    out.extend_from_slice(whole);
    if scale > 0 {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

/// Reads a `numeric(precision, scale)` that is stored as an integer.
pub(crate) fn read_decimal(text: &[u8], precision: u8, scale: u8) -> Result<i128, SqlError> {
    match read_plain(text, scale) {
        Some(unscaled) if fits(unscaled, precision) => Ok(unscaled),
        Some(_) => Err(field_overflow(precision.into(), scale.into())),
        None => Numeric::parse(text)?.to_decimal(precision, scale),
    }
}

/// The usual case: no exponent, at most 38 digits. `None` for every other text.
fn read_plain(text: &[u8], scale: u8) -> Option<i128> {
    let (negative, number) = split_sign(trim_space(text));
    let (mut value, mut digits, mut places, mut fraction) = (0i128, 0u32, 0u32, false);
    for &byte in number {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                places += u32::from(fraction);
                if digits > u32::from(DECIMAL_DIGITS_MAX) {
                    return None;
                }
                value = value * 10 + i128::from(byte - b'0');
            }
            b'.' if !fraction => fraction = true,
            _ => return None,
        }
    }
    if digits == 0 {
        return None;
    }
    let scale = u32::from(scale);
    let value = if places > scale {
        round_small(value, places - scale)
    } else {
        value.checked_mul(POWERS[(scale - places) as usize])?
    };
    Some(if negative { -value } else { value })
}

pub(crate) fn write_decimal(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let magnitude = unscaled.unsigned_abs();
    // Most amounts fit 64 bits, which print faster.
    match u64::try_from(magnitude) {
        Ok(0) => write_point(b"", scale.into(), out),
        Ok(v) => write_point(itoa::Buffer::new().format(v).as_bytes(), scale.into(), out),
        Err(_) => write_point(itoa::Buffer::new().format(magnitude).as_bytes(), scale.into(), out),
    }
}

/// Reads a `numeric` in stored form.
pub(crate) fn read_numeric(text: &[u8], typmod: Option<(u16, i16)>) -> Result<Box<[u8]>, SqlError> {
    Ok(Numeric::parse(text)?.apply_typmod(typmod)?.to_stored())
}

pub(crate) fn write_stored(stored: &[u8], out: &mut Vec<u8>) {
    stored::View::of(stored).write(out);
}
