//! Functions of numbers: trigonometry, divisors, buckets.

use super::arguments::{Arguments, numeric};
use crate::error::SqlError;
use crate::value::numeric::Numeric;
use crate::value::{Datum, cast, fault};
use freshet_engine::schema::{Type, Value};
use std::cell::Cell;

type Result = std::result::Result<Datum, SqlError>;

fn input_out_of_range() -> SqlError {
    SqlError::new("22003", "input is out of range")
}

macro_rules! plain {
    ($($name:ident: $x:ident => $result:expr;)+) => {
        $(pub(super) fn $name(a: &Arguments<'_>) -> Result {
            let $x = a.float(0);
            Ok(Datum::Float($result))
        })+
    };
}

plain! {
    atan: x => x.atan();
    sinh: x => x.sinh();
    cosh: x => x.cosh();
    tanh: x => x.tanh();
    asinh: x => asinh_of(x);
    degrees: x => x.to_degrees();
    radians: x => x.to_radians();
    sqrt: x => x.sqrt();
    cbrt: x => x.cbrt();
    atand: x => in_degrees(x.atan(), 1f64.atan(), 45.0);
}

/// As C's library computes it, which loses no digits near zero.
fn asinh_of(x: f64) -> f64 {
    x.asinh()
}

/// Only of finite angles.
fn finite(x: f64, f: impl Fn(f64) -> f64) -> Result {
    if x.is_infinite() {
        return Err(input_out_of_range());
    }
    Ok(Datum::Float(f(x)))
}

pub(super) fn sin(a: &Arguments<'_>) -> Result {
    finite(a.float(0), f64::sin)
}

pub(super) fn cos(a: &Arguments<'_>) -> Result {
    finite(a.float(0), f64::cos)
}

pub(super) fn tan(a: &Arguments<'_>) -> Result {
    finite(a.float(0), f64::tan)
}

pub(super) fn cot(a: &Arguments<'_>) -> Result {
    finite(a.float(0), |x| 1.0 / x.tan())
}

fn within(x: f64, low: f64, high: f64, f: impl Fn(f64) -> f64) -> Result {
    if x < low || x > high {
        return Err(input_out_of_range());
    }
    Ok(Datum::Float(f(x)))
}

pub(super) fn asin(a: &Arguments<'_>) -> Result {
    within(a.float(0), -1.0, 1.0, f64::asin)
}

pub(super) fn acos(a: &Arguments<'_>) -> Result {
    within(a.float(0), -1.0, 1.0, f64::acos)
}

pub(super) fn acosh(a: &Arguments<'_>) -> Result {
    within(a.float(0), 1.0, f64::INFINITY, f64::acosh)
}

pub(super) fn atanh(a: &Arguments<'_>) -> Result {
    within(a.float(0), -1.0, 1.0, f64::atanh)
}

pub(super) fn atan2(a: &Arguments<'_>) -> Result {
    Ok(Datum::Float(a.float(0).atan2(a.float(1))))
}

// In degrees the well-known values are exact: each result is scaled by one that is known.

fn in_degrees(radians: f64, known: f64, degrees: f64) -> f64 {
    radians / known * degrees
}

fn sin_0_to_30(x: f64) -> f64 {
    x.to_radians().sin() / 30f64.to_radians().sin() / 2.0
}

fn cos_0_to_60(x: f64) -> f64 {
    1.0 - (1.0 - x.to_radians().cos()) / (1.0 - 60f64.to_radians().cos()) / 2.0
}

fn sin_quadrant(x: f64) -> f64 {
    if x <= 30.0 { sin_0_to_30(x) } else { cos_0_to_60(90.0 - x) }
}

fn cos_quadrant(x: f64) -> f64 {
    if x <= 60.0 { cos_0_to_60(x) } else { sin_0_to_30(90.0 - x) }
}

fn sine(x: f64) -> f64 {
    let mut x = x % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        x = 180.0 - x;
    }
    sign * sin_quadrant(x)
}

fn cosine(x: f64) -> f64 {
    let mut x = (x % 360.0).abs();
    let mut sign = 1.0;
    if x > 180.0 {
        x = 360.0 - x;
    }
    if x > 90.0 {
        (x, sign) = (180.0 - x, -sign);
    }
    sign * cos_quadrant(x)
}

fn quotient(x: f64, flip: bool) -> f64 {
    let mut x = x % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        (x, sign) = (180.0 - x, -sign);
    }
    let (s, c) = (sin_quadrant(x), cos_quadrant(x));
    let value = if flip {
        (c / s) / (cos_quadrant(45.0) / sin_quadrant(45.0))
    } else {
        (s / c) / (sin_quadrant(45.0) / cos_quadrant(45.0))
    };
    sign * value + 0.0
}

pub(super) fn sind(a: &Arguments<'_>) -> Result {
    finite(a.float(0), sine)
}

pub(super) fn cosd(a: &Arguments<'_>) -> Result {
    finite(a.float(0), cosine)
}

pub(super) fn tand(a: &Arguments<'_>) -> Result {
    finite(a.float(0), |x| quotient(x, false))
}

pub(super) fn cotd(a: &Arguments<'_>) -> Result {
    finite(a.float(0), |x| quotient(x, true))
}

fn asin_quadrant(x: f64) -> f64 {
    if x <= 0.5 { x.asin() / 0.5f64.asin() * 30.0 } else { 90.0 - x.acos() / 0.5f64.acos() * 60.0 }
}

fn acos_quadrant(x: f64) -> f64 {
    if x <= 0.5 { 90.0 - x.asin() / 0.5f64.asin() * 30.0 } else { x.acos() / 0.5f64.acos() * 60.0 }
}

pub(super) fn asind(a: &Arguments<'_>) -> Result {
    within(a.float(0), -1.0, 1.0, |x| if x >= 0.0 { asin_quadrant(x) } else { -asin_quadrant(-x) })
}

pub(super) fn acosd(a: &Arguments<'_>) -> Result {
    within(a.float(0), -1.0, 1.0, |x| if x >= 0.0 { acos_quadrant(x) } else { 90.0 + asin_quadrant(-x) })
}

pub(super) fn atan2d(a: &Arguments<'_>) -> Result {
    Ok(Datum::Float(in_degrees(a.float(0).atan2(a.float(1)), 1f64.atan(), 45.0)))
}

fn greatest_divisor(a: i64, b: i64) -> Option<i64> {
    let (mut a, mut b) = (i128::from(a).abs(), i128::from(b).abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).ok()
}

pub(super) fn gcd(a: &Arguments<'_>) -> Result {
    let divisor = greatest_divisor(a.int(0), a.int(1)).ok_or_else(|| fault::out_of_range(a.result))?;
    cast::check_integer(divisor, a.result).map(Datum::Int)
}

pub(super) fn lcm(a: &Arguments<'_>) -> Result {
    let (x, y) = (a.int(0), a.int(1));
    if x == 0 || y == 0 {
        return Ok(Datum::Int(0));
    }
    let out_of_range = || fault::out_of_range(a.result);
    let divisor = greatest_divisor(x, y).ok_or_else(out_of_range)?;
    let multiple = i128::from(x / divisor).abs() * i128::from(y).abs();
    cast::check_integer(i64::try_from(multiple).map_err(|_| out_of_range())?, a.result).map(Datum::Int)
}

fn divisor_of(a: Numeric, b: Numeric) -> std::result::Result<Numeric, SqlError> {
    let (mut a, mut b) = (a.abs(), b.abs());
    if !matches!((&a, &b), (Numeric::Finite(_), Numeric::Finite(_))) {
        return Ok(Numeric::NaN);
    }
    let scale = a.scale().max(b.scale());
    while b.signum() != 0 {
        let rest = a.rem(&b)?;
        (a, b) = (b, rest);
    }
    a.round(scale.into())
}

pub(super) fn gcd_numeric(a: &Arguments<'_>) -> Result {
    Ok(numeric(&divisor_of(a.number(0), a.number(1))?))
}

pub(super) fn lcm_numeric(a: &Arguments<'_>) -> Result {
    let (x, y) = (a.number(0), a.number(1));
    let divisor = divisor_of(x.clone(), y.clone())?;
    if matches!(divisor, Numeric::NaN) {
        return Ok(numeric(&Numeric::NaN));
    }
    let scale = x.scale().max(y.scale());
    if x.signum() == 0 || y.signum() == 0 {
        return Ok(numeric(&Numeric::zero().round(scale.into())?));
    }
    Ok(numeric(&x.div_whole(&divisor)?.mul(&y)?.abs().round(scale.into())?))
}

pub(super) fn factorial(a: &Arguments<'_>) -> Result {
    let n = a.int(0);
    if n < 0 {
        return Err(SqlError::new("22003", "factorial of a negative number is undefined"));
    }
    if n > 32_177 {
        return Err(fault::numeric_overflow());
    }
    let mut product = num_bigint::BigInt::from(1);
    for factor in 2..=n {
        product *= factor;
    }
    Ok(numeric(&Numeric::parse(product.to_string().as_bytes())?))
}

thread_local! {
    /// xorshift; 0 until it is first asked.
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// 64 bits of chance, good enough for `random()` and for uuids of version 4.
pub(super) fn chance() -> u64 {
    CHANCE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::thread::current().id());
            x = seed | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

pub(super) fn random(a: &Arguments<'_>) -> Result {
    // 52 bits, as PostgreSQL takes of its generator.
    let bits = a.clock.seeded.next().unwrap_or_else(chance) >> 12;
    Ok(Datum::Float(bits as f64 / (1u64 << 52) as f64))
}

pub(super) fn setseed(a: &Arguments<'_>) -> Result {
    let seed = a.float(0);
    if !(-1.0..=1.0).contains(&seed) {
        return Err(SqlError::new("22023", format!("setseed parameter {seed} is out of allowed range [-1,1]")));
    }
    a.clock.seeded.set(seed);
    Ok(Datum::Bytes(Box::default()))
}

fn bucket_error(message: &str) -> SqlError {
    SqlError::new("2201G", message)
}

pub(super) fn width_bucket_numeric(a: &Arguments<'_>) -> Result {
    let (x, low, high, count) = (a.number(0), a.number(1), a.number(2), a.int(3));
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if [&x, &low, &high].iter().any(|n| matches!(n, Numeric::NaN)) {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if !matches!((&low, &high), (Numeric::Finite(_), Numeric::Finite(_))) {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low.cmp(&high).is_eq() {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let rising = low.cmp(&high).is_lt();
    let before = if rising { x.cmp(&low).is_lt() } else { x.cmp(&low).is_gt() };
    let after = if rising { x.cmp(&high).is_ge() } else { x.cmp(&high).is_le() };
    Ok(Datum::Int(match (before, after) {
        (true, _) => 0,
        (_, true) => check_count(count + 1)?,
        _ => {
            let part = x.sub(&low)?.mul(&Numeric::from_i64(count))?;
            part.div(&high.sub(&low)?)?.floor()?.to_i64("integer")? + 1
        }
    }))
}

fn check_count(count: i64) -> std::result::Result<i64, SqlError> {
    cast::check_integer(count, Type::Int4)
}

pub(super) fn width_bucket_float(a: &Arguments<'_>) -> Result {
    let (x, low, high, count) = (a.float(0), a.float(1), a.float(2), a.int(3));
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if x.is_nan() || low.is_nan() || high.is_nan() {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let (before, after) = if low < high { (x < low, x >= high) } else { (x > low, x <= high) };
    Ok(Datum::Int(match (before, after) {
        (true, _) => 0,
        (_, true) => check_count(count + 1)?,
        _ => (count as f64 * ((x - low) / (high - low))) as i64 + 1,
    }))
}

/// How many of the sorted bounds do not exceed the first argument.
pub(super) fn width_bucket_among(a: &Arguments<'_>) -> Result {
    let bounds = a.array(1);
    if bounds.dimensions.len() > 1 {
        return Err(SqlError::new("2202E", "thresholds must be one-dimensional array"));
    }
    if bounds.items.contains(&Datum::Null) {
        return Err(SqlError::new("22004", "thresholds array must not contain NULLs"));
    }
    let reached = |item: &&Datum| a.types[0].compare(&item.as_value(), &a.values[0]).is_le();
    Ok(Datum::Int(bounds.items.iter().take_while(reached).count() as i64))
}

pub(super) fn bit_not(a: &Arguments<'_>) -> Result {
    match a.values[0] {
        Value::Int(v) => Ok(Datum::Int(!v)),
        _ => Ok(Datum::Null),
    }
}
