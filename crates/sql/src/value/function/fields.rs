//! How does a document become rows of columns that a statement names and types? `json_to_record`, `jsonb_to_recordset` and their like.

use super::arguments::Arguments;
use crate::error::SqlError;
use crate::value::json::{Node, NodeValue, parse};
use crate::value::zone::Clock;
use crate::value::{Datum, array_datum, text as texts};
use freshet_engine::schema::Type;

type Result<T> = std::result::Result<T, SqlError>;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new("22023", message)
}

/// The rows of the first argument, an object or an array of them; the second has the key of each column.
pub(super) fn rows(a: &Arguments<'_>, types: &[Type], many: bool) -> Result<Vec<Vec<Datum>>> {
    if a.is_null(0) {
        return Ok(if many { Vec::new() } else { vec![vec![Datum::Null; types.len()]] });
    }
    let mut shown = Vec::new();
    texts::write(a.types[0], &a.values[0], a.clock, &mut shown);
    let document = parse(&shown, false)?;
    let keys = a.texts(1);
    let prefix = if a.types[0] == Type::Json { "json" } else { "jsonb" };
    let row = |node: &Node<'_>| -> Result<Vec<Datum>> {
        if !matches!(node.value, NodeValue::Object(_)) {
            return Err(match many {
                true => invalid(format!("argument of {prefix}_to_recordset must be an array of objects")),
                false => invalid(format!("cannot call {prefix}_to_record on {}", kind(node))),
            });
        }
        let cells = keys.iter().zip(types).map(|(key, &ty)| match node.field(key) {
            Some(value) => value_of(value, ty, a.clock),
            None => Ok(Datum::Null),
        });
        cells.collect()
    };
    match &document.value {
        NodeValue::Array(items) if many => items.iter().map(row).collect(),
        _ if many => Err(invalid(format!("cannot call {prefix}_to_recordset on {}", kind(&document)))),
        _ => Ok(vec![row(&document)?]),
    }
}

fn kind(node: &Node<'_>) -> &'static str {
    match node.value {
        NodeValue::Array(_) => "an array",
        NodeValue::Object(_) => "an object",
        _ => "a scalar",
    }
}

/// The value as the type reads its text.
fn value_of(node: &Node<'_>, ty: Type, clock: &Clock) -> Result<Datum> {
    match (&node.value, ty) {
        (NodeValue::Null, _) => Ok(Datum::Null),
        (_, Type::Json | Type::Jsonb) => texts::read(ty, node.text.as_bytes(), clock),
        (NodeValue::Array(items), Type::Array(element)) => {
            let items = items.iter().map(|item| value_of(item, *element, clock));
            Ok(array_datum(*element, items.collect::<Result<_>>()?))
        }
        (NodeValue::String(text), _) => texts::read(ty, text.as_bytes(), clock),
        _ => texts::read(ty, node.text.as_bytes(), clock),
    }
}
