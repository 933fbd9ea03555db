//! How is a float written? The shortest digits that read back as the same float, in PostgreSQL's layout.
//!
//! PostgreSQL differs from other shortest printers in one point: it never takes digits that lie exactly halfway between two floats, because such
//! text reads back right only under round-half-even. `1e23` is printed as `9.999999999999999e+22`.

use super::fault;
use super::text::trim_space;
use crate::error::SqlError;

/// Digits from which on a number is written with an exponent.
const PLAIN_DIGITS_FLOAT8: i32 = 15;
const PLAIN_DIGITS_FLOAT4: i32 = 6;

/// Reads a `double precision`.
pub(crate) fn read_float8(text: &[u8]) -> Result<f64, SqlError> {
    let trimmed = trim_space(text);
    let parsed = std::str::from_utf8(trimmed).ok().and_then(|t| t.parse().ok());
    let value: f64 = parsed.ok_or_else(|| fault::invalid_text("double precision", text))?;
    if left_range(trimmed, value.is_infinite(), value == 0.0) {
        return Err(out_of_range(trimmed, "double precision"));
    }
    Ok(value)
}

/// Reads a `real`.
pub(crate) fn read_float4(text: &[u8]) -> Result<f32, SqlError> {
    let trimmed = trim_space(text);
    let parsed = std::str::from_utf8(trimmed).ok().and_then(|t| t.parse().ok());
    let value: f32 = parsed.ok_or_else(|| fault::invalid_text("real", text))?;
    if left_range(trimmed, value.is_infinite(), value == 0.0) {
        return Err(out_of_range(trimmed, "real"));
    }
    Ok(value)
}

/// Whether a number became infinite or zero without being written so.
fn left_range(text: &[u8], infinite: bool, zero: bool) -> bool {
    let mantissa = text.iter().take_while(|b| !matches!(b, b'e' | b'E'));
    if infinite {
        text.iter().any(u8::is_ascii_digit)
    } else {
        zero && mantissa.into_iter().any(|b| matches!(b, b'1'..=b'9'))
    }
}

fn out_of_range(text: &[u8], type_name: &str) -> SqlError {
    let text = String::from_utf8_lossy(text);
    SqlError::new("22003", format!("\"{text}\" is out of range for type {type_name}"))
}

/// Appends a `double precision`.
pub(crate) fn write_float8(value: f64, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    let magnitude = value.abs();
    let mut digits = Digits::of(ryu::Buffer::new().format_finite(magnitude).as_bytes());
    if digits.is_halfway(halves_float8(magnitude)) {
        digits = Digits::longer(
            digits.length,
            |text| text.parse::<f64>().is_ok_and(|v| v == magnitude),
            magnitude,
            halves_float8(magnitude),
        );
    }
    digits.write(PLAIN_DIGITS_FLOAT8, out);
}

/// Appends a `real`.
pub(crate) fn write_float4(value: f32, out: &mut Vec<u8>) {
    if write_special(f64::from(value), out) {
        return;
    }
    let magnitude = value.abs();
    let mut digits = Digits::of(ryu::Buffer::new().format_finite(magnitude).as_bytes());
    if digits.is_halfway(halves_float4(magnitude)) {
        digits = Digits::longer(
            digits.length,
            |text| text.parse::<f32>().is_ok_and(|v| v == magnitude),
            f64::from(magnitude),
            halves_float4(magnitude),
        );
    }
    digits.write(PLAIN_DIGITS_FLOAT4, out);
}

/// Writes the sign, and all of a value that has no digits; true if nothing is left to write.
fn write_special(value: f64, out: &mut Vec<u8>) -> bool {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
        return true;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value.is_infinite() {
        out.extend_from_slice(b"Infinity");
    } else if value == 0.0 {
        out.push(b'0');
    }
    value.is_infinite() || value == 0.0
}

/// A number `odd * 2^exponent`.
type Dyadic = (u128, i32);

fn dyadic(mantissa: u128, exponent: i32) -> Dyadic {
    let zeros = mantissa.trailing_zeros();
    (mantissa >> zeros, exponent + zeros as i32)
}

/// The points halfway to the next smaller and larger float. A power of two has a nearer neighbour below.
fn halves_float8(value: f64) -> [Dyadic; 2] {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
    halves(exponent, fraction, 1 << 52, 1075)
}

fn halves_float4(value: f32) -> [Dyadic; 2] {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 23) as i32 & 0xff, bits & ((1 << 23) - 1));
    halves(exponent, u64::from(fraction), 1 << 23, 150)
}

fn halves(exponent: i32, fraction: u64, implicit: u64, bias: i32) -> [Dyadic; 2] {
    let normal = exponent != 0;
    let mantissa = u128::from(if normal { fraction | implicit } else { fraction });
    let below = if fraction == 0 && exponent > 1 { 1 } else { 2 };
    let unit = if normal { exponent } else { 1 } - bias - 2;
    [dyadic(4 * mantissa - below, unit), dyadic(4 * mantissa + 2, unit)]
}

/// `0.d1d2d3... * 10^point`, no zeros at either end.
struct Digits {
    digits: [u8; 20],
    length: usize,
    point: i32,
}

impl Digits {
    /// Takes the digits of a plain or scientific text.
    fn of(text: &[u8]) -> Digits {
        let mut digits = Digits { digits: [0; 20], length: 0, point: 0 };
        let (mut fraction, mut places, mut written) = (false, 0, 0);
        for (i, &byte) in text.iter().enumerate() {
            match byte {
                b'.' => fraction = true,
                b'e' | b'E' => {
                    let exponent: i32 = std::str::from_utf8(&text[i + 1..])
                        .ok()
                        .and_then(|t| t.parse().ok())
                        .expect("a printed float has an exponent of digits");
                    places -= exponent;
                    break;
                }
                digit => {
                    places += i32::from(fraction);
                    // Zeros of `0.00012` and of `1200000.0` may exceed the room; they are no digits of the number.
                    if digits.length > 0 || digit != b'0' {
                        written += 1;
                        if let Some(slot) = digits.digits.get_mut(digits.length) {
                            *slot = digit;
                            digits.length += 1;
                        }
                    }
                }
            }
        }
        digits.point = written - places;
        while digits.length > 0 && digits.digits[digits.length - 1] == b'0' {
            digits.length -= 1;
        }
        digits
    }

    /// Whether the digits are exactly one of the two points.
    fn is_halfway(&self, halves: [Dyadic; 2]) -> bool {
        let exponent = self.point - self.length as i32;
        // A halfway point has an odd factor above 2^24 or is below the smallest normal float; with 17 digits it must be
        // an integer, and 5^24 does not divide a factor below 2^55.
        if !(0..=23).contains(&exponent) {
            return false;
        }
        let integer = self.digits[..self.length].iter().fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
        let own = dyadic(integer * 5u128.pow(exponent as u32), exponent);
        halves.contains(&own)
    }

    /// The fewest digits beyond `length` that still read as the value and are not halfway.
    fn longer(length: usize, reads_back: impl Fn(&str) -> bool, value: f64, halves: [Dyadic; 2]) -> Digits {
        (length..=17)
            .find_map(|n| {
                let text = format!("{value:.*e}", n - 1);
                let digits = Digits::of(text.as_bytes());
                (reads_back(&text) && !digits.is_halfway(halves)).then_some(digits)
            })
            .expect("17 digits tell every float from its neighbours")
    }

    fn write(&self, plain_digits: i32, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.length];
        let exponent = self.point - 1;
        if exponent < -4 || exponent >= plain_digits {
            return self.write_scientific(exponent, out);
        }
        if self.point <= 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', -self.point as usize));
            out.extend_from_slice(digits);
        } else if self.point as usize >= self.length {
            out.extend_from_slice(digits);
            out.extend(std::iter::repeat_n(b'0', self.point as usize - self.length));
        } else {
            let (whole, fraction) = digits.split_at(self.point as usize);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    }

    fn write_scientific(&self, exponent: i32, out: &mut Vec<u8>) {
        out.push(self.digits[0]);
        if self.length > 1 {
            out.push(b'.');
            out.extend_from_slice(&self.digits[1..self.length]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let exponent = exponent.unsigned_abs();
        if exponent < 10 {
            out.push(b'0');
        }
        out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
    }
}
