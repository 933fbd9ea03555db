//! Addresses of network cards: 6 bytes, or 8.

use super::number_of;
use crate::error::SqlError;
use crate::value::text::{is_space, trim_space};
use crate::value::{Datum, fault, pgtype};
use freshet_engine::schema::{NetworkKind, Type};
use std::io::Write;

/// A macaddr8; a macaddr as the one that it becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mac(pub [u8; 8]);

/// How the six bytes of a macaddr may be written: how many in a row, and what is between rows.
const FORMS: [(usize, u8); 6] = [(1, b':'), (1, b'-'), (3, b':'), (3, b'-'), (2, b'.'), (2, b'-')];

impl Mac {
    /// With the two bytes that a macaddr8 has in its middle.
    pub fn of_six([a, b, c, d, e, f]: [u8; 6]) -> Mac {
        Mac([a, b, c, 0xff, 0xfe, d, e, f])
    }

    pub fn from_stored(stored: &[u8]) -> Mac {
        match *stored {
            [a, b, c, d, e, f] => Mac::of_six([a, b, c, d, e, f]),
            _ => Mac(stored.try_into().expect("invariant: a stored address has 6 or 8 bytes")),
        }
    }

    /// As a value of the type.
    pub fn to_datum(self, kind: NetworkKind) -> Result<Datum, SqlError> {
        let Mac([a, b, c, d, e, f, g, h]) = self;
        match kind {
            NetworkKind::Mac if (d, e) == (0xff, 0xfe) => Ok(Datum::Bytes([a, b, c, f, g, h].into())),
            NetworkKind::Mac => {
                let error = SqlError::new("22003", "macaddr8 data out of range to convert to macaddr");
                Err(error.with_hint(
                    "Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for example \
                     xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.",
                ))
            }
            _ => Ok(Datum::Bytes(self.0.into())),
        }
    }

    pub fn read(kind: NetworkKind, text: &[u8]) -> Result<Datum, SqlError> {
        let invalid = || fault::invalid_text(pgtype::name(Type::Network(kind)), text);
        if kind == NetworkKind::Mac8 {
            return read_pairs(text).ok_or_else(invalid)?.to_datum(kind);
        }
        let forms = FORMS.into_iter().find_map(|(row, separator)| read_rows(text, row, separator));
        let numbers = forms.or_else(|| read_rows(text, 6, b':')).ok_or_else(invalid)?;
        let byte = |number: u32| u8::try_from(number).ok();
        let bytes: Option<Vec<u8>> = numbers.into_iter().map(byte).collect();
        bytes.map(|bytes| Datum::Bytes(bytes.into())).ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            SqlError::new("22003", format!("invalid octet value in \"macaddr\" value: \"{text}\""))
        })
    }

    pub fn receive(kind: NetworkKind, bytes: &[u8]) -> Result<Datum, SqlError> {
        match (kind, bytes.len()) {
            (NetworkKind::Mac8, 6) => Mac::from_stored(bytes).to_datum(kind),
            (NetworkKind::Mac8, 8) | (NetworkKind::Mac, 6) => Ok(Datum::Bytes(bytes.into())),
            (NetworkKind::Mac8, 7) | (_, 0..6) => Err(fault::binary_too_short()),
            _ => Err(fault::binary_invalid()),
        }
    }

    pub fn write(stored: &[u8], out: &mut Vec<u8>) {
        for (at, byte) in stored.iter().enumerate() {
            let colon = if at == 0 { "" } else { ":" };
            write!(out, "{colon}{byte:02x}").expect("memory takes all");
        }
    }

    /// As the address of an interface in IPv6.
    pub fn with_seventh_bit(self) -> Mac {
        let mut bytes = self.0;
        bytes[0] |= 2;
        Mac(bytes)
    }
}

/// Two addresses' bytes, of one type, joined one by one.
pub(crate) fn combined(a: &[u8], b: &[u8], by: fn(u8, u8) -> u8) -> Box<[u8]> {
    a.iter().zip(b).map(|(a, b)| by(*a, *b)).collect()
}

/// Six hexadecimal numbers as C's scanf reads them: of two digits where they stand in rows, of any number where each stands alone. Blanks before one do
/// not count.
fn read_rows(text: &[u8], row: usize, separator: u8) -> Option<[u32; 6]> {
    let digits_max = if row == 1 { 8 } else { 2 };
    let mut numbers = [0; 6];
    let mut rest = trim_space(text);
    for (at, number) in numbers.iter_mut().enumerate() {
        if at > 0 && at % row == 0 {
            rest = rest.strip_prefix(&[separator])?;
        }
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        let length = rest.iter().take(digits_max).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, behind) = rest.split_at(length);
        *number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        rest = behind;
    }
    rest.is_empty().then_some(numbers)
}

/// Pairs of hexadecimal digits, six or eight, with one sort of separator between any of them. A single character at the end is overlooked, as by PostgreSQL.
fn read_pairs(text: &[u8]) -> Option<Mac> {
    let mut rest = &text[text.iter().take_while(|byte| is_space(**byte)).count()..];
    let mut bytes = Vec::with_capacity(8);
    let mut separator = None;
    while let [high, low, behind @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = digit(*high)? << 4 | digit(*low)?;
        if bytes.len() == 8 {
            return None;
        }
        bytes.push(byte as u8);
        rest = behind;
        if let [sign @ (b':' | b'-' | b'.'), behind @ ..] = rest {
            if *separator.get_or_insert(*sign) != *sign {
                return None;
            }
            rest = behind;
        }
        if matches!(bytes.len(), 6 | 8) && rest.first().is_some_and(|byte| is_space(*byte)) {
            rest = trim_space(rest);
            if !rest.is_empty() {
                return None;
            }
        }
    }
    match *bytes {
        [a, b, c, d, e, f] => Some(Mac::of_six([a, b, c, d, e, f])),
        [_, _, _, _, _, _, _, _] => Some(Mac((number_of(&bytes) as u64).to_be_bytes())),
        _ => None,
    }
}
