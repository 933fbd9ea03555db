//! How is an integer written in digits? Eight at a time, which are the bytes of one word.
//!
//! COPY and results are mostly digits, and numbers are of different lengths: nothing here is called, or copied, by a length that the processor has to
//! guess. An integer of COPY's bench takes three quarters of the time that it took by pairs of digits, copied as many as there are.

/// What eight digits cannot tell.
const EIGHT: u64 = 100_000_000;
/// Eight times the digit zero.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Appends the digits, with a minus before them if it is negative.
#[inline]
pub(crate) fn write(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let rest = value.unsigned_abs();
    if rest < EIGHT {
        return write_first(rest, out);
    }
    let (high, low) = (rest / EIGHT, rest % EIGHT);
    if high < EIGHT {
        write_first(high, out);
    } else {
        write_first(high / EIGHT, out);
        write_eight(high % EIGHT, out);
    }
    write_eight(low, out);
}

/// All eight digits.
#[inline]
fn write_eight(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(digits_of(value) | ZEROS).to_le_bytes());
}

/// The digits without zeros before them. A length that is always the same costs no call: what is too much is taken back.
#[inline]
fn write_first(value: u64, out: &mut Vec<u8>) {
    let digits = digits_of(value);
    // The last one stands, zero or not.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    let end = out.len() + 8 - zeros as usize;
    out.extend_from_slice(&((digits | ZEROS) >> (8 * zeros)).to_le_bytes());
    out.truncate(end);
}

/// The eight digits of a number below [`EIGHT`], each a byte, the first one in the lowest. All parts of a word are divided at once: by a hundred
/// with `10_486 / 2^20`, which is exact below 10,000, by ten with `103 / 2^10`, exact below 100.
#[inline]
fn digits_of(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_that_rust_writes() {
        let check = |value: i64| {
            let mut out = b"before ".to_vec();
            write(value, &mut out);
            assert_eq!(String::from_utf8(out).expect("digits"), format!("before {value}"));
        };
        // Every four digits, in both halves of a word.
        for four in 0..10_000 {
            check(four);
            check(four * 10_000 + 9_999 - four);
        }
        for power in (0..19).map(|exponent| 10i64.pow(exponent)) {
            for value in [power - 1, power, power + 1, power.wrapping_mul(9), power / 7 * 3] {
                check(value);
                check(-value);
            }
        }
        [i64::MIN, i64::MIN + 1, i64::MAX].into_iter().for_each(check);
    }
}
