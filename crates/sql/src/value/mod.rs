//! How are values written and computed? Text and binary forms as PostgreSQL has them, casts, arithmetic.

pub mod aggregate;
mod array;
mod binary;
pub mod cast;
pub(crate) mod datetime;
pub(crate) mod digits;
mod fault;
mod float;
pub mod function;
pub(crate) mod interval;
mod json;
mod label;
pub(crate) mod network;
pub mod numeric;
mod oid;
pub mod operator;
mod ordered;
pub mod pattern;
pub mod pgtype;
mod record;
pub mod search;
pub mod set;
mod text;
pub mod zone;

#[cfg(test)]
mod tests;

pub use datetime::DateStyle;
pub(crate) use datetime::{BadDateStyle, is_read_by_clock};
pub(crate) use fault::second_row;
pub(crate) use function::{quoted_ident, quoted_literal};
pub use interval::IntervalStyle;
pub(crate) use json::write_string as write_json_string;
pub use numeric::Numeric;
pub(crate) use numeric::send_small_decimal;
pub(crate) use text::limit_length;
pub use zone::{Clock, Seeded, Zone};

use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};

/// An owned value.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Uuid(u128),
    Bytes(Box<[u8]>),
}

impl Datum {
    /// With what it owns.
    pub fn memory_bytes(&self) -> u64 {
        let owned = if let Datum::Bytes(v) = self { v.len().next_multiple_of(16) } else { 0 };
        (size_of::<Datum>() + owned) as u64
    }

    pub fn as_value(&self) -> Value<'_> {
        match self {
            Datum::Null => Value::Null,
            Datum::Bool(v) => Value::Bool(*v),
            Datum::Int(v) => Value::Int(*v),
            Datum::Float(v) => Value::Float(*v),
            Datum::Decimal(v) => Value::Decimal(*v),
            Datum::Uuid(v) => Value::Uuid(*v),
            Datum::Bytes(v) => Value::Bytes(v),
        }
    }
}

impl From<Value<'_>> for Datum {
    fn from(value: Value<'_>) -> Datum {
        match value {
            Value::Null => Datum::Null,
            Value::Bool(v) => Datum::Bool(v),
            Value::Int(v) => Datum::Int(v),
            Value::Float(v) => Datum::Float(v),
            Value::Decimal(v) => Datum::Decimal(v),
            Value::Uuid(v) => Datum::Uuid(v),
            Value::Bytes(v) => Datum::Bytes(v.into()),
        }
    }
}

/// 22021 for what is no text: bytes that are not UTF-8, or a zero.
pub fn check_text(bytes: &[u8]) -> Result<(), SqlError> {
    if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) {
        return Err(SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""));
    }
    Ok(())
}

/// The elements of a stored array.
pub fn array_items(element: Type, stored: &[u8]) -> Vec<Datum> {
    array::Array::from_stored(element, stored).items
}

/// An array of one dimension.
pub fn array_datum(element: Type, items: Vec<Datum>) -> Datum {
    array::Array::of(items).to_datum(element)
}

/// An `int2vector` or `oidvector`.
pub fn vector_datum(kind: freshet_engine::schema::VectorKind, items: Vec<i64>) -> Datum {
    oid::vector(kind, items.into_iter())
}

/// One array of arrays.
pub fn nested_arrays(element: Type, items: Vec<Datum>) -> Result<Datum, SqlError> {
    let parts = items.iter().filter_map(|item| match item {
        Datum::Bytes(stored) => Some(array::Array::from_stored(element, stored)),
        _ => None,
    });
    Ok(array::Array::nested(parts.collect())?.to_datum(element))
}

/// Reads PostgreSQL's text form (input function of the type).
pub fn from_text(ty: Type, text: &[u8]) -> Result<Datum, SqlError> {
    text::read(ty, text, Clock::UTC)
}

/// An integer written in the plainest way, as programs do: digits, and a minus before them. `None`: the type is none of an integer, or
/// [`from_text`] is to read it or to say why not.
#[inline]
pub fn plain_integer(ty: Type, text: &[u8]) -> Option<i64> {
    text::read_plain_integer(ty, text)
}

/// As [`from_text`], by a session's clock.
pub fn from_text_by(ty: Type, text: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    text::read(ty, text, clock)
}

/// Reads PostgreSQL's binary form (receive function of the type).
pub fn from_binary(ty: Type, bytes: &[u8]) -> Result<Datum, SqlError> {
    binary::read(ty, bytes, Clock::UTC)
}

/// As [`from_binary`], by a session's clock: labels of enums are found in its catalog.
pub fn from_binary_by(ty: Type, bytes: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    binary::read(ty, bytes, clock)
}

/// Appends PostgreSQL's text form. The value is not null.
pub fn to_text(ty: Type, value: &Value<'_>, out: &mut Vec<u8>) {
    text::write(ty, value, Clock::UTC, out)
}

/// As [`to_text`], by a session's clock.
pub fn to_text_by(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    text::write(ty, value, clock, out)
}

/// Appends PostgreSQL's binary form. The value is not null.
pub fn to_binary(ty: Type, value: &Value<'_>, out: &mut Vec<u8>) {
    binary::write(ty, value, Clock::UTC, out)
}

/// As [`to_binary`], by a session's clock.
pub fn to_binary_by(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    binary::write(ty, value, clock, out)
}
