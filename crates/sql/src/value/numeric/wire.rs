//! The sent form: base-10000 digits. The table is at the head of [`super`].

use super::stored::{Kind, View};
use super::{Numeric, fits, parse_digits};
use crate::error::SqlError;
use crate::value::fault;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;
const SCALE_MASK: u16 = 0x3fff;
const HEAD_BYTES: usize = 8;
/// Groups of four digits in 64 bits.
const SHORT_GROUPS: usize = 5;

const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

fn power(exponent: i64) -> Option<u64> {
    POWERS.get(usize::try_from(exponent).ok()?).copied()
}

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
    match i64::try_from(unscaled) {
        Ok(small) => send_small_decimal(small, scale, out),
        Err(_) => send_long(unscaled, scale, out),
    }
}

/// As [`send_decimal`], of an integer in one word.
pub(crate) fn send_small_decimal(unscaled: i64, scale: u8, out: &mut Vec<u8>) {
    if unscaled == 0 {
        return send_head(0, 0, 0, scale.into(), out);
    }
    let behind = scale.div_ceil(4);
    match unscaled.unsigned_abs().checked_mul(POWERS[usize::from(behind * 4 - scale)]) {
        Some(aligned) => send_short(unscaled < 0, aligned, behind, scale, out),
        None => send_long(unscaled.into(), scale, out),
    }
}

/// A number that is not zero, of which the last so many groups stand behind the point.
fn send_short(negative: bool, mut aligned: u64, behind: u8, scale: u8, out: &mut Vec<u8>) {
    let mut lowest = -i16::from(behind);
    while aligned.is_multiple_of(10_000) {
        aligned /= 10_000;
        lowest += 1;
    }
    // From the end to the front.
    let mut sent = [0; HEAD_BYTES + 2 * SHORT_GROUPS];
    let mut at = sent.len();
    let mut put = |word: u16| {
        at -= 2;
        sent[at..at + 2].copy_from_slice(&word.to_be_bytes());
    };
    let mut count = 0;
    while aligned > 0 {
        put((aligned % 10_000) as u16);
        aligned /= 10_000;
        count += 1;
    }
    let sign = if negative { NEGATIVE } else { 0 };
    [scale.into(), sign, (lowest + count - 1) as u16, count as u16].into_iter().for_each(put);
    out.extend_from_slice(&sent[at..]);
}

fn send_long(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
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
    match receive_short(bytes, precision, scale) {
        Some(unscaled) => Ok(unscaled),
        None => receive(bytes)?.to_decimal(precision, scale),
    }
}

/// A number of few digits that need not be rounded; of others, and what is not one, nothing.
fn receive_short(bytes: &[u8], precision: u8, scale: u8) -> Option<i128> {
    let (head, digits) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [count, weight, sign, sent] = [0, 2, 4, 6].map(|at| u16::from_be_bytes([head[at], head[at + 1]]));
    let is_short = usize::from(count) < SHORT_GROUPS && digits.len() == 2 * usize::from(count);
    if !is_short || !matches!(sign, 0 | NEGATIVE) || sent > scale.into() {
        return None;
    }
    let mut magnitude = 0;
    for digit in digits.chunks_exact(2).map(|digit| u16::from_be_bytes([digit[0], digit[1]])) {
        magnitude = magnitude * 10_000 + u64::from(digit);
        if digit >= 10_000 {
            return None;
        }
    }
    // The last digit counts units of 10^-places; what is behind the scale that was sent is cut.
    let places = 4 * (i64::from(count) - 1 - i64::from(weight as i16));
    let (sent, wanted) = (i64::from(sent), i64::from(scale));
    let cut =
        if places > sent { magnitude / power(places - sent)? } else { magnitude.checked_mul(power(sent - places)?)? };
    let unscaled = i128::from(cut.checked_mul(power(wanted - sent)?)?);
    fits(unscaled, precision).then_some(if sign == 0 { unscaled } else { -unscaled })
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
    let figures = |digit: u16| [1000, 100, 10, 1].map(|power| b'0' + (digit / power % 10) as u8);
    let text: Vec<u8> = digits.iter().flat_map(|digit| figures(*digit)).collect();
    let magnitude = parse_digits(&text);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn send(unscaled: i128, scale: u8, by: impl Fn(i128, u8, &mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        by(unscaled, scale, &mut out);
        out
    }

    /// Numbers around each power of ten and of two, of both signs.
    fn numbers() -> impl Iterator<Item = i128> {
        let tens = (0..38).map(|n| 10i128.pow(n));
        let twos = (0..127).map(|n| 1i128 << n);
        let around = tens.chain(twos).flat_map(|n| [n - 1, n, n + 1, n / 2 * 3, n / 7 * 5]);
        around.flat_map(|n| [n, -n]).filter(|n| *n != 0)
    }

    #[test]
    fn short_numbers_are_sent_as_long_ones() {
        for unscaled in numbers() {
            for scale in 0..=38 {
                let expected = send(unscaled, scale, send_long);
                assert_eq!(send(unscaled, scale, send_decimal), expected, "{unscaled} at {scale}");
            }
        }
    }

    #[test]
    fn short_numbers_are_received_as_long_ones() {
        let mut short = 0;
        for unscaled in numbers() {
            for (sent, precision, scale) in (0..=20).flat_map(|sent| [(sent, 38, 20), (sent, 12, 4), (sent, 5, 5)]) {
                let bytes = send(unscaled, sent, send_long);
                let expected = receive(&bytes).and_then(|number| number.to_decimal(precision, scale));
                let found = receive_short(&bytes, precision, scale);
                short += usize::from(found.is_some());
                assert!(
                    found.is_none() || found == expected.clone().ok(),
                    "{unscaled} at {sent}: {found:?}, {expected:?}"
                );
            }
        }
        assert!(short > 1_000, "{short}");
    }

    /// Whatever the words are: a short reading is the long one's, and where that has an error there is none.
    #[test]
    fn odd_words_are_received_alike() {
        let signs = [0u16, 1, 0x4000, 0x8000, 0xc000, 0xffff];
        let scales = [0u16, 1, 2, 4, 5, 9, 0x3fff, 0x4000, 0x8000];
        let mut heads = Vec::new();
        for weight in [0u16, 1, 2, 4, 7, 0xff, 0xfff8, 0xffff] {
            for sign in signs {
                heads.extend(scales.map(|scale| [weight, sign, scale]));
            }
        }
        for (count, digit) in [0u16, 1, 2, 4, 5].into_iter().flat_map(|c| [0u16, 1, 120, 9_999, 10_000].map(|d| (c, d)))
        {
            for head in &heads {
                let digits = (0..count).map(|at| if at % 2 == 0 { digit } else { 5_000 });
                let words = [count].into_iter().chain(*head).chain(digits);
                let bytes: Vec<u8> = words.flat_map(u16::to_be_bytes).collect();
                let expected = receive(&bytes).and_then(|number| number.to_decimal(18, 4));
                let found = receive_short(&bytes, 18, 4);
                assert!(found.is_none() || found == expected.clone().ok(), "{bytes:?}: {found:?}, {expected:?}");
            }
        }
    }
}
