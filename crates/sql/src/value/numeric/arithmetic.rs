//! Sums, products, quotients and roots, each with PostgreSQL's scale of the result.

use super::{Finite, INTEGER_DIGITS_MAX, Numeric, POWERS, SCALE_MAX, Unscaled, big_power, round_quotient};
use crate::error::SqlError;
use crate::value::fault;
use num_bigint::BigInt;

/// A quotient shows at least as many significant digits as a float has.
const SIGNIFICANT_DIGITS_MIN: i64 = 16;
/// A computed scale is at most this, unless an operand's is larger.
const DISPLAY_SCALE_MAX: i64 = 1000;

impl Numeric {
    pub fn add(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        use Numeric::*;
        match (self, other) {
            (Finite(a), Finite(b)) => {
                let scale = a.scale.max(b.scale);
                let (a, b) = (a.at_scale(scale), b.at_scale(scale));
                if let (Unscaled::Small(a), Unscaled::Small(b)) = (&a, &b)
                    && let Some(sum) = a.checked_add(*b)
                {
                    return Numeric::finite(Unscaled::Small(sum), scale.into());
                }
                Numeric::finite((a.to_big() + b.to_big()).into(), scale.into())
            }
            (NaN, _) | (_, NaN) => Ok(NaN),
            (Infinity, NegativeInfinity) | (NegativeInfinity, Infinity) => Ok(NaN),
            (Infinity, _) | (_, Infinity) => Ok(Infinity),
            (NegativeInfinity, _) | (_, NegativeInfinity) => Ok(NegativeInfinity),
        }
    }

    pub fn sub(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        self.add(&other.clone().negated())
    }

    pub fn mul(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        use Numeric::*;
        match (self, other) {
            (Finite(a), Finite(b)) => {
                let scale = i64::from(a.scale) + i64::from(b.scale);
                let product = match (&a.unscaled, &b.unscaled) {
                    (Unscaled::Small(a), Unscaled::Small(b)) if a.checked_mul(*b).is_some() => Unscaled::Small(a * b),
                    (a, b) => (a.to_big() * b.to_big()).into(),
                };
                let kept = scale.min(SCALE_MAX);
                Numeric::finite(product.rounded_down((scale - kept) as u32), kept)
            }
            (NaN, _) | (_, NaN) => Ok(NaN),
            _ => Ok(match self.signum() * other.signum() {
                0 => NaN,
                1 => Infinity,
                _ => NegativeInfinity,
            }),
        }
    }

    pub fn div(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        use Numeric::*;
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (_, Finite(b)) if b.unscaled.is_zero() => Err(fault::division_by_zero()),
            (Finite(a), Finite(b)) => {
                let scale = quotient_scale(a, b);
                Numeric::finite(quotient(a, b, scale), scale)
            }
            (Finite(_), _) => Ok(Numeric::zero()),
            (_, Finite(_)) => Ok(match self.signum() * other.signum() {
                1 => Infinity,
                _ => NegativeInfinity,
            }),
            _ => Ok(NaN),
        }
    }

    /// The rest of the division towards zero: its sign is this number's.
    pub fn rem(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        use Numeric::*;
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (_, Finite(b)) if b.unscaled.is_zero() => Err(fault::division_by_zero()),
            (Finite(a), Finite(b)) => {
                let scale = a.scale.max(b.scale);
                let rest = match (a.at_scale(scale), b.at_scale(scale)) {
                    (Unscaled::Small(a), Unscaled::Small(b)) => Unscaled::Small(a.checked_rem(b).unwrap_or(0)),
                    (a, b) => (a.to_big() % b.to_big()).into(),
                };
                Numeric::finite(rest, scale.into())
            }
            (Finite(_), _) => Ok(self.clone()),
            _ => Ok(NaN),
        }
    }

    /// The quotient cut off to an integer.
    pub fn div_whole(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        match (self, other) {
            (Numeric::Finite(_), Numeric::Finite(b)) if !b.unscaled.is_zero() => {
                let rest = self.rem(other)?;
                self.sub(&rest)?.div(other)?.round(0)
            }
            _ => self.div(other),
        }
    }

    /// The same number without zeros at the end of its places.
    pub fn trim_scale(&self) -> Numeric {
        let Numeric::Finite(finite) = self else {
            return self.clone();
        };
        let zeros = finite.unscaled.with_digits(|digits| match digits {
            b"" => finite.scale,
            _ => digits.iter().rev().take_while(|d| **d == b'0').count() as u16,
        });
        let dropped = zeros.min(finite.scale);
        Numeric::Finite(Finite { unscaled: finite.unscaled.cut_down(dropped.into()), scale: finite.scale - dropped })
    }

    pub fn negated(self) -> Numeric {
        match self {
            Numeric::NaN => Numeric::NaN,
            Numeric::Infinity => Numeric::NegativeInfinity,
            Numeric::NegativeInfinity => Numeric::Infinity,
            Numeric::Finite(Finite { unscaled, scale }) => {
                Numeric::Finite(Finite { unscaled: unscaled.negated(), scale })
            }
        }
    }

    pub fn abs(self) -> Numeric {
        if self.signum() < 0 { self.negated() } else { self }
    }

    /// -1, 0 or 1; 0 for NaN.
    pub fn signum(&self) -> i32 {
        match self {
            Numeric::NaN => 0,
            Numeric::Infinity => 1,
            Numeric::NegativeInfinity => -1,
            Numeric::Finite(f) if f.unscaled.is_zero() => 0,
            Numeric::Finite(f) if f.unscaled.is_negative() => -1,
            Numeric::Finite(_) => 1,
        }
    }

    /// Rounded half away from zero to `places` after the point (before it if negative), which are then shown.
    pub fn round(&self, places: i64) -> Result<Numeric, SqlError> {
        self.at_places(places, Unscaled::rounded_down)
    }

    /// Cut off after `places`.
    pub fn trunc(&self, places: i64) -> Result<Numeric, SqlError> {
        self.at_places(places, Unscaled::cut_down)
    }

    fn at_places(&self, places: i64, down: impl Fn(&Unscaled, u32) -> Unscaled) -> Result<Numeric, SqlError> {
        let Numeric::Finite(finite) = self else {
            return Ok(self.clone());
        };
        let places = places.clamp(-INTEGER_DIGITS_MAX - 1, SCALE_MAX);
        let own = i64::from(finite.scale);
        let moved = if places < own {
            down(&finite.unscaled, (own - places) as u32)
        } else {
            finite.unscaled.scaled_up((places - own) as u32)
        };
        if places >= 0 { Numeric::finite(moved, places) } else { Numeric::finite(moved.scaled_up(-places as u32), 0) }
    }

    /// The largest integer that is not above.
    pub fn floor(&self) -> Result<Numeric, SqlError> {
        let whole = self.trunc(0)?;
        if whole > *self {
            return whole.sub(&Numeric::from_i64(1));
        }
        Ok(whole)
    }

    /// The smallest integer that is not below.
    pub fn ceil(&self) -> Result<Numeric, SqlError> {
        let whole = self.trunc(0)?;
        if whole < *self {
            return whole.add(&Numeric::from_i64(1));
        }
        Ok(whole)
    }

    pub fn sqrt(&self) -> Result<Numeric, SqlError> {
        let finite = match self {
            Numeric::NaN | Numeric::Infinity => return Ok(self.clone()),
            Numeric::NegativeInfinity => return Err(fault::root_of_negative()),
            Numeric::Finite(finite) => finite,
        };
        if finite.unscaled.is_negative() {
            return Err(fault::root_of_negative());
        }
        let (weight, _) = leading(finite);
        // Digits before the point of the root.
        let root_digits = if weight >= 0 { weight * 4 / 2 + 1 } else { 1 - (1 - weight * 4) / 2 };
        let scale = (SIGNIFICANT_DIGITS_MIN - root_digits).max(finite.scale.into()).clamp(0, DISPLAY_SCALE_MAX);
        let places = 2 * scale - i64::from(finite.scale);
        let square = if places >= 0 {
            finite.unscaled.to_big() * big_power(places as u32)
        } else {
            finite.unscaled.to_big() / big_power(-places as u32)
        };
        let root = square.sqrt();
        // Half of a unit more than the root, squared, is `root^2 + root + 1/4`.
        let rounded = if square - &root * &root > root { root + 1 } else { root };
        Numeric::finite(rounded.into(), scale)
    }
}

/// The quotient rounded half away from zero to `scale`.
fn quotient(a: &Finite, b: &Finite, scale: i64) -> Unscaled {
    let places = scale + i64::from(b.scale) - i64::from(a.scale);
    // A dividend may have more places than a quotient shows.
    if places < 0 {
        let divisor = b.unscaled.to_big() * big_power(places.unsigned_abs() as u32);
        return round_quotient(&a.unscaled.to_big(), &divisor).into();
    }
    if let (Unscaled::Small(a), Unscaled::Small(b)) = (&a.unscaled, &b.unscaled)
        && let Some(power) = POWERS.get(places as usize)
        && let Some(dividend) = a.checked_mul(*power)
        && let Some(quotient) = dividend.checked_div(*b)
    {
        let (rest, divisor) = ((dividend % b).unsigned_abs(), b.unsigned_abs());
        let away = i128::from(rest >= divisor - rest) * dividend.signum() * b.signum();
        return Unscaled::Small(quotient + away);
    }
    let dividend: BigInt = a.unscaled.to_big() * big_power(places as u32);
    round_quotient(&dividend, &b.unscaled.to_big()).into()
}

/// Enough digits for [`SIGNIFICANT_DIGITS_MIN`], not fewer than either operand shows.
fn quotient_scale(a: &Finite, b: &Finite) -> i64 {
    let ((weight_a, first_a), (weight_b, first_b)) = (leading(a), leading(b));
    // With equal first digits the quotient may or may not reach the weight; assume it does not.
    let weight = weight_a - weight_b - i64::from(first_a <= first_b);
    (SIGNIFICANT_DIGITS_MIN - weight * 4).max(a.scale.into()).max(b.scale.into()).clamp(0, DISPLAY_SCALE_MAX)
}

/// Weight and value of the first digit in base 10000; zeros for zero.
pub(super) fn leading(number: &Finite) -> (i64, u32) {
    number.unscaled.with_digits(|digits| {
        if digits.is_empty() {
            return (0, 0);
        }
        let exponent = digits.len() as i64 - 1 - i64::from(number.scale);
        let weight = exponent.div_euclid(4);
        let taken = (exponent.rem_euclid(4) + 1) as usize;
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0'));
        let first = padded.take(taken).fold(0, |n, d| n * 10 + u32::from(d - b'0'));
        (weight, first)
    })
}
