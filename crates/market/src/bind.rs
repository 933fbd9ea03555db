//! How do the feed's numbers become parameters and columns become numbers again?

use crate::calendar::{Date, Timestamp};
use freshet_db::{Datum, Value};

pub fn text(value: &str) -> Datum {
    Datum::Bytes(value.as_bytes().into())
}

pub fn int(value: impl Into<i64>) -> Datum {
    Datum::Int(value.into())
}

/// A price or amount in 1/10000, the scale of its column.
pub fn decimal(value: impl Into<i128>) -> Datum {
    Datum::Decimal(value.into())
}

pub fn date(value: Date) -> Datum {
    Datum::Int(i64::from(value.0))
}

pub fn timestamp(value: Timestamp) -> Datum {
    Datum::Int(value.0)
}

pub fn or_null(value: Option<Datum>) -> Datum {
    value.unwrap_or(Datum::Null)
}

/// The value as a parameter of the next statement.
pub fn owned(value: Value<'_>) -> Datum {
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
