//! The stored form: bytes that compare as the numbers do. The table is at the head of [`super`].

use super::{Finite, Numeric, Unscaled, small_digits};
use num_bigint::BigInt;

const NAN: u8 = 0xff;
const INFINITY: u8 = 0xfe;
const LARGE: u8 = 0xd2;
const SMALL: u8 = 0x81;
const ZERO: u8 = 0x80;
const NEGATIVE_INFINITY: u8 = 0x01;
/// Head of a number with exponent 0.
const MIDDLE: i32 = 0xaa;
/// Exponents from `-SHORT_EXPONENTS` up to below `SHORT_EXPONENTS` are in the head.
const SHORT_EXPONENTS: i32 = 40;
const SMALL_BIAS: i32 = 1 << 15;
/// Above every inverted digit, so that of two negative numbers the one with more digits is less.
const END: u8 = 0xff;

impl Numeric {
    /// The stored form.
    pub fn to_stored(&self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(16);
        self.store(&mut out);
        out.into()
    }

    /// Appends the stored form.
    pub fn store(&self, out: &mut Vec<u8>) {
        match self {
            Numeric::NaN => out.push(NAN),
            Numeric::Infinity => out.push(INFINITY),
            Numeric::NegativeInfinity => out.push(NEGATIVE_INFINITY),
            Numeric::Finite(Finite { unscaled, scale }) => {
                let negative = unscaled.is_negative();
                unscaled.with_digits(|digits| encode(negative, digits, (*scale).into(), out));
            }
        }
        out.extend_from_slice(&self.scale().to_be_bytes());
    }

    /// Reads the stored form.
    pub fn from_stored(stored: &[u8]) -> Numeric {
        let view = View::of(stored);
        match view.kind {
            Kind::NaN => Numeric::NaN,
            Kind::Infinity { negative: false } => Numeric::Infinity,
            Kind::Infinity { negative: true } => Numeric::NegativeInfinity,
            Kind::Finite { negative } => {
                Numeric::Finite(Finite { unscaled: view.unscaled(negative), scale: view.scale })
            }
        }
    }
}

/// A stored form that has this key: with as few digits after the point as the number needs, or one more.
#[cfg(feature = "query")]
pub fn stored_of_key(key: &[u8]) -> Box<[u8]> {
    let mut stored = [key, &[0; 2]].concat();
    let view = View::of(&stored);
    let scale = u16::try_from((view.digit_count() - view.whole_digits()).max(0)).unwrap_or(u16::MAX);
    stored[key.len()..].copy_from_slice(&scale.to_be_bytes());
    stored.into()
}

fn encode(negative: bool, digits: &[u8], scale: i32, out: &mut Vec<u8>) {
    let kept = digits.iter().rposition(|d| *d != b'0').map_or(0, |i| i + 1);
    if kept == 0 {
        return out.push(ZERO);
    }
    let whole_digits = digits.len() as i32 - scale;
    let exponent = whole_digits.div_euclid(2) + whole_digits.rem_euclid(2);
    let start = out.len();
    encode_head(exponent, out);
    let mut digits = digits[..kept].iter().map(|d| d - b'0');
    // An odd number of digits before the point: the first digit stands alone.
    if whole_digits.rem_euclid(2) == 1 {
        out.extend(digits.next().map(|low| low + 1));
    }
    while let Some(high) = digits.next() {
        out.push(high * 10 + digits.next().unwrap_or(0) + 1);
    }
    if negative {
        out[start..].iter_mut().for_each(|b| *b = !*b);
        out.push(END);
    }
}

fn encode_head(exponent: i32, out: &mut Vec<u8>) {
    if exponent >= SHORT_EXPONENTS {
        out.push(LARGE);
        out.extend_from_slice(&exponent.to_be_bytes()[1..]);
    } else if exponent >= -SHORT_EXPONENTS {
        out.push((MIDDLE + exponent) as u8);
    } else {
        out.push(SMALL);
        out.extend_from_slice(&((exponent + SMALL_BIAS) as u16).to_be_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NaN,
    Infinity { negative: bool },
    Finite { negative: bool },
}

/// A stored number, taken apart in place.
pub(super) struct View<'a> {
    pub kind: Kind,
    pub scale: u16,
    /// `0.d1 d2... * 100^exponent`.
    exponent: i32,
    /// Encoded digits: each `d + 1`, or its inverse.
    digits: &'a [u8],
}

impl<'a> View<'a> {
    pub fn of(stored: &'a [u8]) -> View<'a> {
        let (key, scale) = stored.split_last_chunk::<2>().expect("invariant: a stored numeric ends with its scale");
        let scale = u16::from_be_bytes(*scale);
        let head = key[0];
        let kind = match head {
            NAN => Kind::NaN,
            INFINITY => Kind::Infinity { negative: false },
            NEGATIVE_INFINITY => Kind::Infinity { negative: true },
            _ => Kind::Finite { negative: head < ZERO },
        };
        if !matches!(kind, Kind::Finite { .. }) || head == ZERO {
            return View { kind, scale, exponent: 0, digits: &[] };
        }
        let flip = if head < ZERO { 0xff } else { 0 };
        let byte = |i: usize| i32::from(key[i] ^ flip);
        let (exponent, start) = match head ^ flip {
            LARGE => (byte(1) << 16 | byte(2) << 8 | byte(3), 4),
            SMALL => ((byte(1) << 8 | byte(2)) - SMALL_BIAS, 3),
            head => (i32::from(head) - MIDDLE, 1),
        };
        let end = key.len() - usize::from(flip != 0);
        View { kind, scale, exponent, digits: &key[start..end] }
    }

    fn negative(&self) -> bool {
        matches!(self.kind, Kind::Finite { negative: true } | Kind::Infinity { negative: true })
    }

    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Decimal digits before the point; negative if zeros follow the point.
    pub fn whole_digits(&self) -> i32 {
        self.exponent * 2
    }

    /// How many decimal digits there are from the first pair on.
    pub fn digit_count(&self) -> i32 {
        self.digits.len() as i32 * 2
    }

    /// The decimal digit at a place counted from the first pair, zero outside.
    pub fn digit(&self, place: i32) -> u8 {
        let Some(&encoded) = usize::try_from(place).ok().and_then(|p| self.digits.get(p / 2)) else {
            return 0;
        };
        let pair = if self.negative() { !encoded } else { encoded } - 1;
        if place % 2 == 0 { pair / 10 } else { pair % 10 }
    }

    /// Appends the text form.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.negative() {
            out.push(b'-');
        }
        match self.kind {
            Kind::NaN => return out.extend_from_slice(b"NaN"),
            Kind::Infinity { .. } => return out.extend_from_slice(b"Infinity"),
            Kind::Finite { .. } => {}
        }
        let whole = self.whole_digits();
        let first = i32::from(self.digit(0) == 0);
        if whole <= 0 {
            out.push(b'0');
        }
        out.extend((first..whole).map(|place| b'0' + self.digit(place)));
        if self.scale > 0 {
            out.push(b'.');
            let end = whole + i32::from(self.scale);
            out.extend((whole..end).map(|place| b'0' + self.digit(place)));
        }
    }

    fn unscaled(&self, negative: bool) -> Unscaled {
        let count = self.whole_digits() + i32::from(self.scale);
        let digits = (0..count).map(|place| b'0' + self.digit(place));
        let magnitude = if count <= 38 {
            let mut room = [0u8; 38];
            let count = count.max(0) as usize;
            room.iter_mut().zip(digits).for_each(|(slot, d)| *slot = d);
            Unscaled::Small(small_digits(&room[..count]))
        } else {
            let digits: Vec<u8> = digits.collect();
            BigInt::parse_bytes(&digits, 10).expect("the digits are digits").into()
        };
        if negative { magnitude.negated() } else { magnitude }
    }
}
