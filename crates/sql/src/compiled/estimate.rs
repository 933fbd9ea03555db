//! How many of a table's rows does a condition leave? By the table's statistics, or by rules of thumb.

use crate::expr::Expr;
use crate::statistics::TableStatistics;
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use freshet_engine::catalog::Table;
use freshet_engine::schema::Type;

const EQUAL: f64 = 0.005;
pub const OTHER: f64 = 1.0 / 3.0;
/// Elements of an array that is not known yet.
const ELEMENTS: f64 = 10.0;

/// The share of a table's rows for which a condition holds.
pub fn share(condition: &Expr, source: u16, table: &Table, known: Option<&TableStatistics>) -> f64 {
    let values_of = |expr: &Expr| match expr {
        Expr::Column { source: of, column } if *of == source => {
            let def = table.def.columns.get(usize::from(*column))?;
            Some((def.ty, known.and_then(|known| known.column(&def.name, def.ty))))
        }
        _ => None,
    };
    let one_of = |expr: &Expr| match values_of(expr) {
        Some((_, Some(values))) => (1.0 - values.null_fraction) / values.distinct.max(1.0),
        _ => EQUAL,
    };
    match condition {
        Expr::Compare { operator, left, right } => match (values_of(left), values_of(right)) {
            (Some(_), Some(_)) => OTHER,
            (Some(of), None) => compared(of, operator.op, operator.right, right),
            (None, Some(of)) => compared(of, operator.op.flipped(), operator.left, left),
            (None, None) if operator.op == BinaryOp::Eq => EQUAL,
            (None, None) => OTHER,
        },
        Expr::In { expr, list, negated: false } => (one_of(expr) * list.len() as f64).min(1.0),
        Expr::Quantified { operator, left, all: false, .. } if operator.op == BinaryOp::Eq => {
            (one_of(left) * ELEMENTS).min(1.0)
        }
        Expr::IsNull { expr, negated } => match values_of(expr) {
            Some((_, Some(values))) if *negated => 1.0 - values.null_fraction,
            Some((_, Some(values))) => values.null_fraction,
            _ if *negated => 1.0 - EQUAL,
            _ => EQUAL,
        },
        Expr::And(list) => list.iter().map(|part| share(part, source, table, known)).product(),
        _ => OTHER,
    }
}

/// `column op value`, of a type.
fn compared(
    (ty, known): (Type, Option<&crate::statistics::ColumnStatistics>),
    op: BinaryOp,
    value_type: Type,
    value: &Expr,
) -> f64 {
    match (value, known) {
        (Expr::Const(datum), Some(values)) if value_type == ty.unrounded() && *datum != Datum::Null => {
            values.compared(ty, op, datum)
        }
        (_, Some(values)) if op == BinaryOp::Eq => (1.0 - values.null_fraction) / values.distinct.max(1.0),
        _ if op == BinaryOp::Eq => EQUAL,
        _ => OTHER,
    }
}
