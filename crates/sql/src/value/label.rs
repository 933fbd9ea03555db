//! How are values of enums written? As their labels, in text and in binary form alike.
//!
//! A value is the number of its label. What that is the catalog knows, which the clock has.

use super::zone::Clock;
use super::{Datum, digits, fault, pgtype, text};
use crate::error::SqlError;
use freshet_engine::catalog::EnumType;
use freshet_engine::schema::{EnumId, Type};
use std::sync::Arc;

/// The enum as this clock's catalog has it.
fn of(id: EnumId, clock: &Clock) -> Result<&Arc<EnumType>, SqlError> {
    let Some(catalog) = clock.catalog.get() else {
        return Err(SqlError::unsupported("a value of an enum in this place"));
    };
    catalog.schema.enum_by_id(id).ok_or_else(|| SqlError::new("42704", format!("type {} does not exist", id.0)))
}

/// The number of the label that a text is.
pub(crate) fn read(id: EnumId, label: &[u8], clock: &Clock) -> Result<i64, SqlError> {
    let made = of(id, clock)?;
    match made.def.label(text::check_text(label)?) {
        Some(found) => Ok(found.number),
        None => {
            let name = match clock.catalog.get() {
                Some(catalog) => catalog.enum_name(made),
                None => made.def.name.clone(),
            };
            Err(fault::quoted("22P02", &format!("invalid input value for enum {name}"), label))
        }
    }
}

/// A number that is no label's (no more, or not yet by this catalog) is written as itself.
pub(crate) fn write(id: EnumId, number: i64, clock: &Clock, out: &mut Vec<u8>) {
    let label = clock.catalog.get().and_then(|catalog| catalog.label_of(id, number));
    match label {
        Some(label) => out.extend_from_slice(label.as_bytes()),
        None => digits::write(number, out),
    }
}

/// Where in the order a label stands that a value is.
fn place(made: &EnumType, value: &Datum) -> Option<usize> {
    let Datum::Int(number) = value else { return None };
    made.def.labels.binary_search_by_key(number, |label| label.number).ok()
}

/// `enum_first` and `enum_last`.
pub(crate) fn end(ty: Type, last: bool, clock: &Clock) -> Result<Datum, SqlError> {
    let Type::Enum(id) = ty else { return Ok(Datum::Null) };
    let labels = &of(id, clock)?.def.labels;
    match if last { labels.last() } else { labels.first() } {
        Some(label) => Ok(Datum::Int(label.number)),
        None => Err(SqlError::new("55000", format!("enum {} contains no values", pgtype::name(ty)))),
    }
}

/// `enum_range` of two values: all labels from one to the other; a null is the first or the last.
pub(crate) fn range(ty: Type, from: &Datum, to: &Datum, clock: &Clock) -> Result<Datum, SqlError> {
    let Type::Enum(id) = ty else { return Ok(Datum::Null) };
    let made = of(id, clock)?;
    let first = place(made, from).unwrap_or(0);
    let end = place(made, to).map_or(made.def.labels.len(), |last| last + 1);
    let labels = made.def.labels.get(first..end).unwrap_or_default();
    Ok(super::array_datum(ty, labels.iter().map(|label| Datum::Int(label.number)).collect()))
}
