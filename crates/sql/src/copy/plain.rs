//! What does a record say that is nothing but digits and plain text? Its row, in one pass over its bytes.
//!
//! Most records of most files are such. [`Plain::read`] reads what it is sure of, and says so where it is not: then `fields` and `convert`
//! read the record from its beginning, and tell what is wrong with it, if anything is.
//!
//! 1. What it reads has the value that they give it.
//! 2. It knows no errors.

use super::load::{Target, set};
use super::options::{Format, Kind};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{IntegerWord, Row};
use memchr::{memchr, memchr3};

/// Digits of any 64-bit integer that cannot overflow.
const DIGITS_MAX: usize = 18;

#[derive(Clone, Copy)]
enum How {
    Integer(IntegerWord),
    /// What `set` reads.
    Other,
}

/// How the records of a load are read.
pub struct Plain {
    columns: Vec<How>,
}

impl Plain {
    /// Nothing for records that it cannot be sure of.
    pub fn of(table: &Table, target: &Target) -> Option<Plain> {
        let format = &target.format;
        // What may begin an integer must be nothing else.
        let begins_integer = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let has_own_meaning = [format.delimiter, format.quote, format.escape].iter().any(begins_integer);
        let null = &format.null;
        // A backslash at its end would take the delimiter along.
        let has_odd_null = null.first().is_some_and(begins_integer) || null.last() == Some(&b'\\');
        if format.is_binary() || has_own_meaning || has_odd_null || target.missing.is_some() {
            return None;
        }
        let how = |&column: &u16| table.layout.integer_word(column).map_or(How::Other, How::Integer);
        Some(Plain { columns: target.columns.iter().map(how).collect() })
    }

    /// Sets the row; false if it cannot be sure of the record: the row is spent then. `is_text`: the record was seen to be text.
    pub fn read(&self, record: &[u8], table: &Table, target: &Target, is_text: bool, row: &mut Row) -> bool {
        row.reset(&table.layout);
        let format = &target.format;
        let mut at = 0;
        for (field, how) in self.columns.iter().enumerate() {
            if field > 0 {
                if record.get(at) != Some(&format.delimiter) {
                    return false;
                }
                at += 1;
            }
            if let How::Integer(place) = *how
                && let Some((value, end)) = integer(record, at)
                && place.fits(value)
            {
                row.set_integer(place, value);
                at = end;
                continue;
            }
            let column = usize::from(target.columns[field]);
            if let Some(end) = null(record, at, format) {
                let is_forced = format.force_not_null.get(field).is_some_and(|&forced| forced);
                if is_forced || table.def.columns[column].not_null {
                    return false;
                }
                at = end;
                continue;
            }
            let end = at + plain_bytes(&record[at..], format);
            if set(table, column, &record[at..end], target, is_text, row).is_err() {
                return false;
            }
            at = end;
        }
        at == record.len()
    }
}

/// Where the marker for a null ends that is the field from `at` on.
fn null(record: &[u8], at: usize, format: &Format) -> Option<usize> {
    let end = at + format.null.len();
    let is_whole = record.get(end).is_none_or(|&next| next == format.delimiter);
    (is_whole && record.get(at..end)? == &*format.null).then_some(end)
}

/// How far no byte means anything but itself.
fn plain_bytes(rest: &[u8], format: &Format) -> usize {
    if format.kind == Kind::Text {
        return memchr3(format.delimiter, b'\\', b'\r', rest).unwrap_or(rest.len());
    }
    let end = memchr3(format.delimiter, format.quote, b'\r', rest).unwrap_or(rest.len());
    memchr(b'\n', &rest[..end]).unwrap_or(end)
}

/// The integer whose digits begin at `at`, perhaps behind a sign, and where they end; nothing if it may be none or too long.
#[inline]
fn integer(record: &[u8], at: usize) -> Option<(i64, usize)> {
    let is_negative = record.get(at) == Some(&b'-');
    let start = at + usize::from(is_negative);
    let (mut value, mut end) = (0u64, start);
    while let Some(bytes) = record.get(end..end + 8) {
        let (digits, count) = digits_of(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        // Too many digits are seen below.
        value = u64::wrapping_add(value.wrapping_mul(POWERS[count]), digits);
        end += count;
        if end - start > DIGITS_MAX {
            return None;
        }
        if count < 8 {
            return finished(value, start, end, is_negative);
        }
    }
    while let Some(digit) = record.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        value = value * 10 + u64::from(digit);
        end += 1;
        if end - start > DIGITS_MAX {
            return None;
        }
    }
    finished(value, start, end, is_negative)
}

#[inline]
fn finished(value: u64, start: usize, end: usize, is_negative: bool) -> Option<(i64, usize)> {
    let value = value as i64;
    (end > start).then_some((if is_negative { -value } else { value }, end))
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number that the digits among eight bytes are, up to the first that is none (the first byte is the lowest), and how many they are.
#[inline]
fn digits_of(bytes: u64) -> (u64, usize) {
    // A digit's byte becomes its value. Of any other one the highest bit is set in one of the two; what a sum carries leaves such a byte,
    // upwards, where nothing counts any more.
    let values = bytes ^ 0x3030_3030_3030_3030;
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = (others.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    // Zeros before them make eight; then neighbours are joined: by two, by four, all.
    let eight = values << (64 - 8 * count);
    let pairs = eight.wrapping_mul(10).wrapping_add(eight >> 8);
    let (even, odd) = (pairs & 0x0000_00ff_0000_00ff, pairs >> 16 & 0x0000_00ff_0000_00ff);
    let joined = even.wrapping_mul(100 + (1_000_000 << 32)).wrapping_add(odd.wrapping_mul(1 + (10_000 << 32)));
    (joined >> 32, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_read_to_their_end() {
        for (text, read) in [
            ("0", Some((0, 1))),
            ("-0\t", Some((0, 2))),
            ("12345678\t9", Some((12_345_678, 8))),
            ("-1234567890123\t456789012", Some((-1_234_567_890_123, 14))),
            ("000000000000000017,", Some((17, 18))),
            ("999999999999999999", Some((999_999_999_999_999_999, 18))),
            ("9223372036854775807", None),
            ("9999999999999999999999999", None),
            ("", None),
            ("-", None),
            ("-\t12345678", None),
            ("+1", None),
            ("\\N\t1234567", None),
            ("x1234567", None),
        ] {
            assert_eq!(integer(text.as_bytes(), 0), read, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_give_their_digits(bytes in any::<[u8; 8]>(), digits in 0usize..=8, seed in any::<u64>()) {
            let mut bytes = bytes;
            let numbers = bytes.iter_mut().take(digits).enumerate();
            numbers.for_each(|(i, byte)| *byte = b'0' + (seed >> (8 * i)) as u8 % 10);
            let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let value = bytes[..count].iter().fold(0, |value, byte| value * 10 + u64::from(byte - b'0'));
            prop_assert_eq!(digits_of(u64::from_le_bytes(bytes)), (value, count));
        }
    }
}
