//! Powers, exponentials and logarithms: series in fixed-point integers with digits to spare, rounded to PostgreSQL's scale.

use super::arithmetic::leading;
use super::{Finite, INTEGER_DIGITS_MAX, Numeric, Unscaled, big_power, round_quotient};
use crate::error::SqlError;
use crate::value::fault;
use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::f64::consts::{LN_10, LOG10_E};

const SIGNIFICANT_DIGITS_MIN: i64 = 16;
const DISPLAY_SCALE_MAX: i64 = 1000;
/// Digits computed beyond those that are shown.
const GUARD_DIGITS: i64 = 12;
/// PostgreSQL's limits of what exponentials are computed of: beyond, they overflow or are zero.
const EXP_MAX: f64 = 6_000.0;
const POWER_LN_MAX: f64 = 6_020.0;

impl Numeric {
    /// The natural logarithm.
    pub fn ln(&self) -> Result<Numeric, SqlError> {
        check_logarithm(self)?;
        let Numeric::Finite(finite) = self else {
            return Ok(self.clone());
        };
        let scale = display_scale(ln_exponent(finite), &[finite]);
        let places = scale + GUARD_DIGITS;
        Numeric::finite(drop_places(&ln_fixed(finite, places), GUARD_DIGITS), scale)
    }

    /// The logarithm to a base.
    pub fn log(&self, base: &Numeric) -> Result<Numeric, SqlError> {
        if matches!(self, Numeric::NaN) || matches!(base, Numeric::NaN) {
            return Ok(Numeric::NaN);
        }
        check_logarithm(base)?;
        check_logarithm(self)?;
        let (number, base) = match (self, base) {
            (Numeric::Finite(number), Numeric::Finite(base)) => (number, base),
            (Numeric::Finite(_), _) => return Ok(Numeric::zero()),
            (_, Numeric::Finite(_)) => return Ok(Numeric::Infinity),
            _ => return Ok(Numeric::NaN),
        };
        let scale = display_scale(ln_exponent(number) - ln_exponent(base), &[number, base]);
        // A logarithm close to zero begins late: its first digits must be there too.
        let places = scale + GUARD_DIGITS + (-ln_exponent(base)).max(0) * 2;
        let (dividend, divisor) = (ln_fixed(number, places), ln_fixed(base, places));
        if divisor.is_zero() {
            return Err(fault::division_by_zero());
        }
        let quotient = round_quotient(&(dividend * big_power(scale as u32)), &divisor);
        Numeric::finite(quotient.into(), scale)
    }

    /// `e` to this power.
    pub fn exp(&self) -> Result<Numeric, SqlError> {
        let finite = match self {
            Numeric::NaN | Numeric::Infinity => return Ok(self.clone()),
            Numeric::NegativeInfinity => return Ok(Numeric::zero()),
            Numeric::Finite(finite) => finite,
        };
        let weight = (approximate(finite) * LOG10_E).clamp(-2000.0, 2000.0);
        let scale = display_scale(weight as i64, &[finite]);
        if approximate(finite).abs() >= EXP_MAX {
            return beyond(approximate(finite), scale);
        }
        let digits = approximate(finite) * LOG10_E;
        let places = scale + GUARD_DIGITS + (digits.max(0.0) as i64);
        let fixed = exp_fixed(&to_fixed(finite, places), places)?;
        Numeric::finite(drop_places(&fixed, places - scale), scale)
    }

    /// This number to a power.
    pub fn power(&self, exponent: &Numeric) -> Result<Numeric, SqlError> {
        let (base, power) = match (self, exponent) {
            (Numeric::Finite(base), Numeric::Finite(power)) => (base, power),
            _ => return special_power(self, exponent),
        };
        if base.unscaled.is_zero() && power.unscaled.is_negative() {
            let message = "zero raised to a negative power is undefined";
            return Err(SqlError::new("2201F", message));
        }
        let whole = exponent.trunc(0)?;
        let is_whole = whole == *exponent;
        if base.unscaled.is_negative() && !is_whole {
            return Err(fault::complex_power());
        }
        if is_whole
            && let Ok(n) = whole.to_i64("integer")
            && let Ok(n) = i32::try_from(n)
        {
            return whole_power(base, n);
        }
        if base.unscaled.is_zero() {
            let scale = SIGNIFICANT_DIGITS_MIN.max(base.scale.into()).max(power.scale.into());
            return Numeric::finite(Unscaled::Small(0), scale.min(DISPLAY_SCALE_MAX));
        }
        let odd = is_whole && whole.rem(&Numeric::from_i64(2))?.signum() != 0;
        let magnitude = fractional_power(base, power)?;
        Ok(if base.unscaled.is_negative() && odd { magnitude.negated() } else { magnitude })
    }
}

fn special_power(base: &Numeric, exponent: &Numeric) -> Result<Numeric, SqlError> {
    let one = Numeric::from_i64(1);
    if *base == one || exponent.signum() == 0 && !matches!(exponent, Numeric::NaN) {
        return Ok(one);
    }
    match (base, exponent) {
        (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
        (_, Numeric::Infinity | Numeric::NegativeInfinity) => {
            let grows = matches!(exponent, Numeric::Infinity);
            if base.signum() == 0 && !grows {
                let message = "zero raised to a negative power is undefined";
                return Err(SqlError::new("2201F", message));
            }
            let magnitude = base.clone().abs();
            if magnitude == one {
                return Ok(one);
            }
            Ok(match (magnitude > one) == grows {
                true => Numeric::Infinity,
                false => Numeric::zero(),
            })
        }
        (Numeric::NegativeInfinity, _) if exponent.trunc(0)? != *exponent => Err(fault::complex_power()),
        _ if exponent.signum() < 0 => Ok(Numeric::zero()),
        (Numeric::Infinity, _) => Ok(Numeric::Infinity),
        _ => {
            let odd = exponent.rem(&Numeric::from_i64(2))?.signum() != 0;
            Ok(if odd { Numeric::NegativeInfinity } else { Numeric::Infinity })
        }
    }
}

/// A power that is an integer shows [`SIGNIFICANT_DIGITS_MIN`] places, or the base's if those are more.
fn whole_power(base: &Finite, n: i32) -> Result<Numeric, SqlError> {
    let scale = SIGNIFICANT_DIGITS_MIN.max(base.scale.into()).min(DISPLAY_SCALE_MAX);
    if base.unscaled.is_zero() {
        let value = Numeric::from_i64(i64::from(n == 0));
        return value.round(scale);
    }
    let digits = f64::from(n) * (approximate_ln(base) / LN_10);
    check_weight(digits)?;
    if digits + 1.0 < -(scale as f64) {
        return Numeric::finite(Unscaled::Small(0), scale);
    }
    let kept = scale + GUARD_DIGITS * 2 + digits.abs() as i64;
    let (power, places) = repeated_product(base, n.unsigned_abs(), kept as u64);
    let unscaled = if n >= 0 {
        drop_places(&power, places - scale)
    } else {
        round_quotient(&drop_places(&BigInt::one(), -(places + scale)).to_big(), &power).into()
    };
    Numeric::finite(unscaled, scale)
}

/// The power as an integer and a count of places, by squaring; exact to about `kept` digits.
fn repeated_product(base: &Finite, n: u32, kept: u64) -> (BigInt, i64) {
    let shorten = |(value, places): (BigInt, i64)| {
        // A digit takes 3.33 bits: what is dropped is surely beyond `kept`.
        let surplus = (value.bits() / 4).saturating_sub(kept) as i64;
        (drop_places(&value, surplus).to_big(), places - surplus)
    };
    let times = |a: &(BigInt, i64), b: &(BigInt, i64)| shorten((&a.0 * &b.0, a.1 + b.1));
    let base = (base.unscaled.to_big(), i64::from(base.scale));
    let mut result = (BigInt::one(), 0);
    for bit in (0..u32::BITS - n.leading_zeros()).rev() {
        result = times(&result, &result);
        if n >> bit & 1 == 1 {
            result = times(&result, &base);
        }
    }
    result
}

fn fractional_power(base: &Finite, power: &Finite) -> Result<Numeric, SqlError> {
    let magnitude = Finite { unscaled: absolute(&base.unscaled), scale: base.scale };
    // PostgreSQL chooses the scale by a logarithm of about nine digits; powers of ten show the difference.
    let unit = 10f64.powi((8 - ln_exponent(&magnitude)).max(0) as i32);
    // The millionth lifts a half that the float holds a little too small.
    let round = |value: f64| (value * unit + value.signum() * 1e-6).round() / unit;
    let ln = round(approximate(power) * round(approximate_ln(&magnitude)));
    if ln.abs() >= POWER_LN_MAX {
        return beyond(ln, DISPLAY_SCALE_MAX);
    }
    let digits = ln / LN_10;
    let scale = display_scale(digits as i64, &[base, power]);
    let power_digits = (power.unscaled.digit_count() - i64::from(power.scale)).max(0);
    let places = scale + GUARD_DIGITS + digits.max(0.0) as i64 + power_digits;
    let ln = ln_fixed(&magnitude, places);
    let exponent = drop_places(&(ln * power.unscaled.to_big()), power.scale.into()).to_big();
    let fixed = exp_fixed(&exponent, places)?;
    Numeric::finite(drop_places(&fixed, places - scale), scale)
}

fn absolute(unscaled: &Unscaled) -> Unscaled {
    unscaled.to_big().abs().into()
}

fn check_logarithm(number: &Numeric) -> Result<(), SqlError> {
    match (number, number.signum()) {
        (Numeric::NaN, _) | (_, 1) => Ok(()),
        (_, 0) => Err(fault::logarithm("zero")),
        _ => Err(fault::logarithm("a negative number")),
    }
}

/// An exponential beyond the limits.
fn beyond(exponent: f64, scale: i64) -> Result<Numeric, SqlError> {
    if exponent > 0.0 {
        return Err(fault::numeric_overflow());
    }
    Numeric::finite(Unscaled::Small(0), scale)
}

/// Refuses a result with more digits than a numeric has.
fn check_weight(digits: f64) -> Result<(), SqlError> {
    if digits > INTEGER_DIGITS_MAX as f64 {
        return Err(fault::numeric_overflow());
    }
    Ok(())
}

/// Places that show [`SIGNIFICANT_DIGITS_MIN`] digits of a number with this decimal exponent, or what the operands show.
fn display_scale(exponent: i64, operands: &[&Finite]) -> i64 {
    let shown = operands.iter().map(|o| i64::from(o.scale)).max();
    (SIGNIFICANT_DIGITS_MIN - exponent).max(shown.unwrap_or(0)).clamp(0, DISPLAY_SCALE_MAX)
}

/// About the number; infinite if no float holds it.
fn approximate(number: &Finite) -> f64 {
    let mut text = Vec::new();
    Numeric::Finite(number.clone()).write(&mut text);
    let text = std::str::from_utf8(&text).ok();
    text.and_then(|t| t.parse().ok()).expect("a number's text reads as a float")
}

/// About the logarithm of the absolute value.
fn approximate_ln(number: &Finite) -> f64 {
    number.unscaled.with_digits(|digits| {
        let head = digits.iter().take(17);
        let head = head.fold(0.0, |n, d| n * 10.0 + f64::from(d - b'0'));
        let dropped = digits.len() as f64 - digits.len().min(17) as f64;
        f64::ln(head) + (dropped - f64::from(number.scale)) * LN_10
    })
}

/// About the decimal exponent of the logarithm.
fn ln_exponent(number: &Finite) -> i64 {
    let own = Numeric::Finite(number.clone());
    let near_one = own >= Numeric::from_decimal(9, 1) && own <= Numeric::from_decimal(11, 1);
    if !near_one {
        return approximate_ln(number).abs().log10() as i64;
    }
    match own.sub(&Numeric::from_i64(1)) {
        Ok(Numeric::Finite(excess)) if !excess.unscaled.is_zero() => {
            let (weight, first) = leading(&excess);
            weight * 4 + f64::from(first).log10() as i64
        }
        _ => 0,
    }
}

// Fixed point: an integer counts units of 10^-places.

fn to_fixed(number: &Finite, places: i64) -> BigInt {
    drop_places(&number.unscaled.to_big(), i64::from(number.scale) - places).to_big()
}

/// Divides by `10^places`, rounding; multiplies if that is negative.
fn drop_places(value: &BigInt, places: i64) -> Unscaled {
    if places > 0 {
        round_quotient(value, &big_power(places as u32)).into()
    } else {
        (value * big_power(-places as u32)).into()
    }
}

/// `2 atanh(a / b)`, which is `ln((b + a) / (b - a))`; `a` is at most a fifth of `b`.
fn ln_ratio(a: &BigInt, b: &BigInt, one: &BigInt) -> BigInt {
    let z = one * a / b;
    let square = &z * &z / one;
    let (mut term, mut sum, mut divisor) = (z.clone(), z, 3u32);
    loop {
        term = &term * &square / one;
        let part = &term / divisor;
        if part.is_zero() {
            return sum * 2;
        }
        sum += part;
        divisor += 2;
    }
}

/// The logarithm of a positive number: `m * 2^k` with m within a third of 1, then the series of atanh.
fn ln_fixed(number: &Finite, places: i64) -> BigInt {
    let spare = GUARD_DIGITS + 8;
    let one = big_power((places + spare) as u32);
    let power = big_power(number.scale.into());
    let mut numerator = number.unscaled.to_big();
    let mut denominator = power;
    let mut k = numerator.bits() as i64 - denominator.bits() as i64;
    if k > 0 {
        denominator <<= k as u64;
    } else {
        numerator <<= -k as u64;
    }
    // Now the ratio is between 1/2 and 2; bring it between 3/4 and 3/2.
    if &numerator * 2 > &denominator * 3 {
        denominator <<= 1;
        k += 1;
    } else if &numerator * 4 < &denominator * 3 {
        numerator <<= 1;
        k -= 1;
    }
    let mantissa = ln_ratio(&(&numerator - &denominator), &(&numerator + &denominator), &one);
    let ln_2 = ln_ratio(&BigInt::one(), &BigInt::from(3), &one);
    drop_places(&(mantissa + ln_2 * k), spare).to_big()
}

/// `e^x`: `x = k ln 10 + r`, the series for `r / 2^j`, squared j times.
fn exp_fixed(x: &BigInt, places: i64) -> Result<BigInt, SqlError> {
    const HALVINGS: u32 = 16;
    let spare = GUARD_DIGITS + 8;
    let one = big_power((places + spare) as u32);
    let ten = Finite { unscaled: Unscaled::Small(10), scale: 0 };
    let ln_10 = ln_fixed(&ten, places + spare);
    let x = x * big_power(spare as u32);
    let k = &x / &ln_10;
    let rest = &x - &k * &ln_10;
    let k = k.to_i64().ok_or_else(fault::numeric_overflow)?;
    let small: BigInt = rest >> HALVINGS;
    let (mut term, mut sum, mut n) = (one.clone(), one.clone(), 1u32);
    loop {
        term = &term * &small / &one / n;
        if term.is_zero() {
            break;
        }
        sum += &term;
        n += 1;
    }
    for _ in 0..HALVINGS {
        sum = &sum * &sum / &one;
    }
    if k.unsigned_abs() as i64 > INTEGER_DIGITS_MAX && k > 0 {
        return Err(fault::numeric_overflow());
    }
    // Far below the last place: zero, without a giant divisor.
    if k < -(places + spare + 2) {
        return Ok(BigInt::zero());
    }
    Ok(drop_places(&sum, spare - k).to_big())
}
