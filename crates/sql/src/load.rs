//! What does a bulk load make of the values it is given? The rows that an INSERT of them would make, where that does no more than store them.

use crate::bind::names::RelationName;
use crate::catalog::names;
use crate::error::SqlError;
use crate::session::{convert, has_form};
use crate::value::zone::Clock;
use crate::value::{self, Datum, cast, pgtype};
use freshet_engine::catalog::{ColumnRole, ConstraintKind, Schema, Table, TableId};
use freshet_engine::schema::{Row, Type, Value};

/// The table that a text names as SQL does: bare, or with its schema.
pub fn table_named(schema: &Schema, text: &str) -> Result<TableId, SqlError> {
    let mut parts = names::parts(text)?;
    let name = parts.pop().unwrap_or_default();
    let namespace = parts.pop();
    if !parts.is_empty() {
        let message = format!("improper relation name (too many dotted names): {text}");
        return Err(SqlError::new("42601", message));
    }
    let name = RelationName { namespace, name };
    name.table(schema).map(|table| table.id).ok_or_else(|| name.undefined())
}

/// 0A000 for a table whose rows are more than the values that are given, or are held to more than types, nulls and keys.
pub fn check_loadable(table: &Table) -> Result<(), SqlError> {
    let of_role = |role: ColumnRole| match role {
        ColumnRole::Generated => Some("generated columns"),
        ColumnRole::Hidden => Some("an index on an expression or a condition"),
        ColumnRole::IdentityAlways => Some("an identity column that is GENERATED ALWAYS"),
        ColumnRole::Plain | ColumnRole::IdentityByDefault | ColumnRole::Dropped => None,
    };
    let of_kind = |kind: &ConstraintKind| match kind {
        ConstraintKind::Check { .. } => "a CHECK constraint",
        ConstraintKind::Foreign(_) => "a foreign key",
    };
    let columns = table.def.columns.iter().filter_map(|column| of_role(column.role));
    let constraints = table.def.constraints.iter().map(|constraint| of_kind(&constraint.kind));
    match columns.chain(constraints).next() {
        None => Ok(()),
        Some(what) => {
            let message = format!("a bulk load of table \"{}\", which has {what}", table.def.name);
            Err(SqlError::unsupported(message).with_hint("Use COPY or INSERT."))
        }
    }
}

/// Sets the columns of a row that is spent or new: one value for each that is to be seen, in their order. Bytes for a type that has another
/// form in a row are text, as everywhere in the embedded API. The table was found loadable.
pub fn set_row(table: &Table, row: &mut Row, values: &[Datum]) -> Result<(), SqlError> {
    row.reset(&table.layout);
    let mut given = values.iter();
    for (column, def) in table.def.columns.iter().enumerate().filter(|(_, def)| def.is_visible()) {
        let Some(datum) = given.next() else { return Err(miscounted(table, values)) };
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
            (ty, Datum::Bytes(text)) if ty != Type::Bytea => {
                value::check_text(text)?;
                row.set(&table.layout, column, &value::from_text(ty, text)?.as_value());
            }
            (ty, datum) if has_form(ty, datum) => row.set(&table.layout, column, &datum.as_value()),
            (ty, datum) => row.set(&table.layout, column, &convert(ty, datum, Clock::UTC)?.as_value()),
        }
    }
    if given.next().is_some() { Err(miscounted(table, values)) } else { Ok(()) }
}

#[cold]
fn miscounted(table: &Table, values: &[Datum]) -> SqlError {
    let wanted = table.def.columns.iter().filter(|column| column.is_visible()).count();
    let (name, given) = (&table.def.name, values.len());
    SqlError::new("42601", format!("table \"{name}\" has {wanted} columns but {given} values were given"))
}

#[cold]
pub(crate) fn null_violation(table: &Table, column: usize) -> SqlError {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        table.def.columns[column].name, table.def.name
    );
    SqlError::new("23502", message)
}
