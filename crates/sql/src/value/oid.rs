//! How are numbers of objects written? `oid` and its like as unsigned numbers, `regclass` and its like as names, vectors of either with blanks between.
//!
//! Names need a catalog, which the clock has; without one a number is written as it is.

use super::array::{Array, Dimension};
use super::text::trim_space;
use super::zone::Clock;
use super::{Datum, digits, fault, pgtype};
use crate::error::SqlError;
use freshet_engine::schema::{OidKind, Type, VectorKind};

/// The input function.
pub(crate) fn read(kind: OidKind, text: &[u8], clock: &Clock) -> Result<u32, SqlError> {
    let name = pgtype::name(Type::Oid(kind));
    let digits = trim_space(text);
    if !kind.has_name() || !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        return read_number(text, name);
    }
    if text == b"-" {
        return Ok(0);
    }
    let written = std::str::from_utf8(text).map_err(|_| fault::invalid_text(name, text))?;
    match clock.catalog.get() {
        Some(catalog) => catalog.find(kind, written),
        None => Err(SqlError::unsupported(format!("a {name} by name in this place"))),
    }
}

/// A number of 32 bits; a negative one stands for the unsigned one of the same bits.
fn read_number(text: &[u8], type_name: &str) -> Result<u32, SqlError> {
    let invalid = || fault::invalid_text(type_name, text);
    let trimmed = std::str::from_utf8(trim_space(text)).map_err(|_| invalid())?;
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid());
    }
    let out_of_range = || fault::text_out_of_range(type_name, text);
    let number = trimmed.parse::<i64>().map_err(|_| out_of_range())?;
    u32::try_from(number).or_else(|_| i32::try_from(number).map(|n| n as u32)).map_err(|_| out_of_range())
}

/// The output function.
pub(crate) fn write(kind: OidKind, number: u32, clock: &Clock, out: &mut Vec<u8>) {
    match clock.catalog.get() {
        _ if !kind.has_name() => digits::write(number.into(), out),
        Some(catalog) => out.extend_from_slice(catalog.show(kind, number).as_bytes()),
        None => match pgtype::from_oid(number, -1) {
            Some(ty) if kind == OidKind::Type => out.extend_from_slice(pgtype::name(ty).as_bytes()),
            _ if number == 0 => out.push(b'-'),
            _ => digits::write(number.into(), out),
        },
    }
}

/// A vector's stored form: that of an array whose first subscript is 0.
pub(crate) fn vector(kind: VectorKind, items: impl Iterator<Item = i64>) -> Datum {
    let items: Vec<Datum> = items.map(Datum::Int).collect();
    // PostgreSQL's has its dimension also where it is empty.
    let dimensions = vec![Dimension { length: items.len() as u32, lower: 0 }];
    Array { dimensions, items }.to_datum(Type::vector_element(kind))
}

pub(crate) fn read_vector(kind: VectorKind, text: &[u8]) -> Result<Datum, SqlError> {
    let words = text.split(|b| super::text::is_space(*b)).filter(|word| !word.is_empty());
    let element = Type::vector_element(kind);
    let items = words.map(|word| match super::text::read(element, word, Clock::UTC)? {
        Datum::Int(v) => Ok(v),
        _ => Err(fault::invalid_text(pgtype::name(element), word)),
    });
    let items = items.collect::<Result<Vec<i64>, SqlError>>()?;
    Ok(vector(kind, items.into_iter()))
}

pub(crate) fn write_vector(kind: VectorKind, stored: &[u8], out: &mut Vec<u8>) {
    let array = Array::from_stored(Type::vector_element(kind), stored);
    for (i, item) in array.items.iter().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        if let Datum::Int(v) = item {
            digits::write(*v, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: OidKind, number: u32) -> String {
        let mut out = Vec::new();
        write(kind, number, Clock::UTC, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_unsigned_and_types_have_names() {
        assert_eq!(read(OidKind::Oid, b" -1 ", Clock::UTC), Ok(u32::MAX));
        assert_eq!(read(OidKind::Class, b"1259", Clock::UTC), Ok(1259));
        for (text, state) in [("x", "22P02"), ("", "22P02"), ("4294967296", "22003"), ("-2147483649", "22003")] {
            assert_eq!(read(OidKind::Oid, text.as_bytes(), Clock::UTC).expect_err("no oid").sqlstate, state, "{text}");
        }
        assert_eq!(shown(OidKind::Type, 1114), "timestamp without time zone");
        assert_eq!(shown(OidKind::Class, 0), "-");
        assert_eq!(shown(OidKind::Oid, u32::MAX), "4294967295");
    }

    #[test]
    fn vectors_read_back() {
        let datum = read_vector(VectorKind::Int2, b"1  2 -3").expect("three numbers");
        let Datum::Bytes(stored) = &datum else { panic!("stored bytes") };
        let mut out = Vec::new();
        write_vector(VectorKind::Int2, stored, &mut out);
        assert_eq!(out, b"1 2 -3");
        assert_eq!(read_vector(VectorKind::Oid, b"1 x").expect_err("no oid").sqlstate, "22P02");
    }
}
