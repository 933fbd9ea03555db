//! What does a bulk load make of the values it is given? The rows that an INSERT of them would make.

use crate::error::SqlError;
use crate::session::{convert, has_form};
use crate::value::zone::Clock;
use crate::value::{self, Datum, cast, pgtype};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{Row, TimeKind, Type, Value};

/// Sets every column of a row that is spent or new. Bytes for an unconstrained `numeric` are text, as everywhere in the embedded API.
pub fn set_row(table: &Table, row: &mut Row, values: &[Datum]) -> Result<(), SqlError> {
    if values.len() != table.def.columns.len() {
        let (name, wanted) = (&table.def.name, table.def.columns.len());
        return Err(SqlError::new(
            "42601",
            format!("table \"{name}\" has {wanted} columns but {} values were given", values.len()),
        ));
    }
    row.reset(&table.layout);
    for (column, (def, datum)) in table.def.columns.iter().zip(values).enumerate() {
        match (def.ty, datum) {
            (_, Datum::Null) if def.not_null => return Err(null_violation(table, column)),
            (_, Datum::Null) => {}
            (Type::Text | Type::Varchar(_) | Type::Char(_), Datum::Bytes(text)) => {
                value::check_text(text)?;
                let kept = value::limit_length(def.ty, text, false)?;
                row.set(&table.layout, column, &Value::Bytes(kept));
            }
            (Type::Numeric { typmod }, Datum::Bytes(text)) => {
                let number = value::from_text(pgtype::NUMERIC, text)?;
                let kept = cast::cast(pgtype::NUMERIC, &number.as_value(), Type::Numeric { typmod }, false)?;
                row.set(&table.layout, column, &kept.as_value());
            }
            (ty @ Type::Rounded(TimeKind::Interval, _), Datum::Bytes(text)) => {
                row.set(&table.layout, column, &value::from_text(ty, text)?.as_value());
            }
            (ty, datum) if has_form(ty, datum) => row.set(&table.layout, column, &datum.as_value()),
            (ty, datum) => row.set(&table.layout, column, &convert(ty, datum, Clock::UTC)?.as_value()),
        }
    }
    Ok(())
}

#[cold]
pub(crate) fn null_violation(table: &Table, column: usize) -> SqlError {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        table.def.columns[column].name, table.def.name
    );
    SqlError::new("23502", message)
}
