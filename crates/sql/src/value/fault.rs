//! What does PostgreSQL call each fault of a value? One constructor per SQLSTATE and message, so that the same fault reads
//! the same wherever it is found.

use super::pgtype;
use crate::error::SqlError;
use freshet_engine::schema::Type;

pub(crate) fn with_detail(mut error: SqlError, detail: String) -> SqlError {
    error.detail = Some(detail);
    error
}

/// The text is not a value of the type.
pub(crate) fn invalid_text(type_name: &str, text: &[u8]) -> SqlError {
    quoted("22P02", &format!("invalid input syntax for type {type_name}"), text)
}

/// The text is not a date or time.
pub(crate) fn invalid_datetime(type_name: &str, text: &[u8]) -> SqlError {
    quoted("22007", &format!("invalid input syntax for type {type_name}"), text)
}

/// A message about a text that ends with the text in quotes.
pub(crate) fn quoted(sqlstate: &'static str, message: &str, text: &[u8]) -> SqlError {
    let text = String::from_utf8_lossy(text);
    SqlError::new(sqlstate, format!("{message}: \"{text}\""))
}

/// An integer's text is a number, but not one of the type.
pub(crate) fn text_out_of_range(type_name: &str, text: &[u8]) -> SqlError {
    let text = String::from_utf8_lossy(text);
    SqlError::new("22003", format!("value \"{text}\" is out of range for type {type_name}"))
}

/// A computed number is not one of the type: "integer out of range".
pub(crate) fn out_of_range(ty: Type) -> SqlError {
    SqlError::new("22003", format!("{} out of range", pgtype::name(ty)))
}

/// A computed float beyond the largest finite one.
pub(crate) fn float_overflow() -> SqlError {
    SqlError::new("22003", "value out of range: overflow")
}

pub(crate) fn float_underflow() -> SqlError {
    SqlError::new("22003", "value out of range: underflow")
}

/// Of a subquery that is to give a value.
pub(crate) fn second_row() -> SqlError {
    SqlError::new("21000", "more than one row returned by a subquery used as an expression")
}

pub(crate) fn division_by_zero() -> SqlError {
    SqlError::new("22012", "division by zero")
}

/// A number with more digits before or after the point than a numeric can have.
pub(crate) fn numeric_overflow() -> SqlError {
    SqlError::new("22003", "value overflows numeric format")
}

pub(crate) fn too_long(ty: Type) -> SqlError {
    let name = pgtype::format_type(ty);
    SqlError::new("22001", format!("value too long for type {name}"))
}

pub(crate) fn feature(message: impl Into<String>) -> SqlError {
    SqlError::new("0A000", message)
}

/// The message ended inside the value.
pub(crate) fn binary_too_short() -> SqlError {
    SqlError::new("08P01", "insufficient data left in message")
}

/// Bytes are left after the value, or they form none.
pub(crate) fn binary_invalid() -> SqlError {
    SqlError::new("22P03", "incorrect binary data format")
}

pub(crate) fn complex_power() -> SqlError {
    let message = "a negative number raised to a non-integer power yields a complex result";
    SqlError::new("2201F", message)
}

/// `of`: "zero" or "a negative number".
pub(crate) fn logarithm(of: &str) -> SqlError {
    SqlError::new("2201E", format!("cannot take logarithm of {of}"))
}

pub(crate) fn pattern_ends_with_escape() -> SqlError {
    SqlError::new("22025", "LIKE pattern must not end with escape character")
}

pub(crate) fn root_of_negative() -> SqlError {
    SqlError::new("2201F", "cannot take square root of a negative number")
}

/// A number that is no Unicode character.
pub(crate) fn character(code: i64) -> SqlError {
    let message = if code > 0x10_ffff {
        format!("requested character too large for encoding: {code}")
    } else {
        format!("requested character not valid for encoding: {code}")
    };
    SqlError::new("54000", message)
}
