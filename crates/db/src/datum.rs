//! How do Rust's values become parameters?

use freshet_sql::value::{check_text, from_text, pgtype};
use freshet_sql::{Datum, SqlError, Type};

/// Typed parameters: `&session.execute(&st, &[1.into_datum(), ...])`.
///
/// A statement's parameters have types ([`crate::Statement::parameters`]). Numbers are converted as in an assignment, with
/// PostgreSQL's errors when they do not fit. A string may stand for a value of any type and is read as PostgreSQL reads it: that is how
/// decimals, dates and timestamps are given (`"12.50"`, `"2026-11-20"`).
///
/// ```
/// use freshet_db::IntoDatum;
/// let parameters = [42.into_datum(), "12.50".into_datum(), None::<i64>.into_datum(), true.into_datum()];
/// # let _ = parameters;
/// ```
pub trait IntoDatum {
    fn into_datum(self) -> Datum;
}

macro_rules! integers {
    ($($ty:ty),*) => {
        $(impl IntoDatum for $ty {
            fn into_datum(self) -> Datum {
                Datum::Int(self.into())
            }
        })*
    };
}

integers!(i8, i16, i32, i64, u8, u16, u32);

impl IntoDatum for f64 {
    fn into_datum(self) -> Datum {
        Datum::Float(self)
    }
}

impl IntoDatum for f32 {
    fn into_datum(self) -> Datum {
        Datum::Float(self.into())
    }
}

impl IntoDatum for bool {
    fn into_datum(self) -> Datum {
        Datum::Bool(self)
    }
}

impl IntoDatum for &str {
    fn into_datum(self) -> Datum {
        Datum::Bytes(self.as_bytes().into())
    }
}

impl IntoDatum for String {
    fn into_datum(self) -> Datum {
        Datum::Bytes(self.into_bytes().into())
    }
}

impl IntoDatum for &String {
    fn into_datum(self) -> Datum {
        self.as_str().into_datum()
    }
}

impl IntoDatum for &[u8] {
    fn into_datum(self) -> Datum {
        Datum::Bytes(self.into())
    }
}

impl IntoDatum for Vec<u8> {
    fn into_datum(self) -> Datum {
        Datum::Bytes(self.into())
    }
}

impl IntoDatum for Datum {
    fn into_datum(self) -> Datum {
        self
    }
}

impl<T: IntoDatum> IntoDatum for Option<T> {
    fn into_datum(self) -> Datum {
        self.map_or(Datum::Null, IntoDatum::into_datum)
    }
}

/// Brings parameters into the forms that the session takes. True: they stand in `converted`.
///
/// Bytes for an unconstrained `numeric`, an interval, a document, an address or an array are text here, never its stored form, which only the server's codec makes. Bytes for a text type
/// must be text.
pub(crate) fn check_bytes(types: &[Type], parameters: &[Datum], converted: &mut Vec<Datum>) -> Result<bool, SqlError> {
    let mut numerics = false;
    for (&ty, datum) in types.iter().zip(parameters) {
        let Datum::Bytes(bytes) = datum else {
            // Only labels are values of an enum: what they are stored as is nobody's.
            if matches!(ty, Type::Enum(_)) && *datum != Datum::Null {
                return Err(SqlError::new("42804", format!("a parameter of an enum cannot be {datum:?}")));
            }
            continue;
        };
        match ty {
            Type::Numeric { .. } | Type::Interval | Type::Json | Type::Jsonb | Type::Array(_) => numerics = true,
            Type::Vector(_) | Type::Network(_) => numerics = true,
            Type::Text | Type::Varchar(_) | Type::Char(_) => check_text(bytes)?,
            Type::Name | Type::CharByte | Type::System(_) => check_text(bytes)?,
            _ => {}
        }
    }
    if !numerics {
        return Ok(false);
    }
    converted.clear();
    for (i, datum) in parameters.iter().enumerate() {
        converted.push(match (types.get(i), datum) {
            (Some(Type::Numeric { .. }), Datum::Bytes(text)) => from_text(pgtype::NUMERIC, text)?,
            (
                Some(ty @ (Type::Interval | Type::Json | Type::Jsonb | Type::Array(_) | Type::Vector(_))),
                Datum::Bytes(text),
            ) => from_text(*ty, text)?,
            (Some(ty @ Type::Network(_)), Datum::Bytes(text)) => from_text(*ty, text)?,
            (_, datum) => datum.clone(),
        });
    }
    Ok(true)
}
