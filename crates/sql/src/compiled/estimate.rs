//! How many of a table's rows does a condition leave? By the table's statistics, or by rules of thumb.

use crate::expr::Expr;
use crate::statistics::{ColumnStatistics, TableStatistics};
use crate::value::Datum;
use crate::value::network::Network;
use crate::value::operator::BinaryOp;
use crate::value::pattern::like_prefix;
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
            Some((table.def.columns.get(usize::from(*column))?.ty, values_of_column(*column, table, known)))
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
        Expr::In { expr, list, negated: false, .. } => (one_of(expr) * list.len() as f64).min(1.0),
        Expr::Quantified { operator, left, all: false, .. } if operator.op == BinaryOp::Eq => {
            (one_of(left) * ELEMENTS).min(1.0)
        }
        Expr::IsNull { expr, negated } => match values_of(expr) {
            Some((_, Some(values))) if *negated => 1.0 - values.null_fraction,
            Some((_, Some(values))) => values.null_fraction,
            _ if *negated => 1.0 - EQUAL,
            _ => EQUAL,
        },
        Expr::Like { expr, pattern, escape, insensitive: false, negated: false } => {
            matching(values_of(expr), pattern, *escape)
        }
        Expr::Call { function, args } => match function.containment() {
            Some((address, network)) => within(values_of(&args[address]), &args[network]),
            None => OTHER,
        },
        Expr::And(list) => shares(list, source, table, known),
        Expr::Or(list) => 1.0 - list.iter().map(|arm| 1.0 - share(arm, source, table, known)).product::<f64>(),
        _ => OTHER,
    }
}

/// A pattern leaves those that begin as it does.
fn matching(of: Option<(Type, Option<&ColumnStatistics>)>, pattern: &Expr, escape: Option<char>) -> f64 {
    let Expr::Const(Datum::Bytes(pattern)) = pattern else { return EQUAL };
    let mut prefix = like_prefix(pattern, escape);
    let (Some((ty, Some(values))), false) = (of, prefix.is_empty()) else {
        return if prefix.is_empty() { OTHER } else { EQUAL };
    };
    let above = values.compared(ty, BinaryOp::Ge, &Datum::Bytes(prefix.clone().into()));
    if let Some(last) = prefix.last_mut() {
        *last = last.saturating_add(1);
    }
    let below = values.compared(ty, BinaryOp::Lt, &Datum::Bytes(prefix.into()));
    between(above, below, values)
}

/// A network leaves its addresses.
fn within(of: Option<(Type, Option<&ColumnStatistics>)>, network: &Expr) -> f64 {
    let (Expr::Const(Datum::Bytes(network)), Some((ty, Some(values)))) = (network, of) else { return OTHER };
    let network = Network::from_stored(network);
    let above = values.compared(ty, BinaryOp::Ge, &network.network().to_datum());
    let below = values.compared(ty, BinaryOp::Le, &network.last().to_datum());
    between(above, below, values)
}

/// Of the share above one bound and the share below another.
fn between(above: f64, below: f64, values: &ColumnStatistics) -> f64 {
    (above + below - (1.0 - values.null_fraction)).max(LEAST)
}

/// The share for which all of the conditions hold. What is above one bound and below another is what both leave, not a part of a part.
pub fn shares<'e>(
    conditions: impl IntoIterator<Item = &'e Expr>,
    source: u16,
    table: &Table,
    known: Option<&TableStatistics>,
) -> f64 {
    let mut product = 1.0;
    let mut bounds: Vec<(u16, bool, f64)> = Vec::new();
    for condition in conditions {
        let share = share(condition, source, table, known);
        let Some((column, is_lower)) = bounded(condition, source) else {
            product *= share;
            continue;
        };
        let other = bounds.iter().position(|(of, lower, _)| *of == column && *lower != is_lower);
        match other.map(|at| bounds.swap_remove(at)) {
            Some((_, _, other)) => {
                product *= match values_of_column(column, table, known) {
                    Some(values) => (share + other - (1.0 - values.null_fraction)).max(LEAST),
                    None => share * other,
                }
            }
            None => bounds.push((column, is_lower, share)),
        }
    }
    product * bounds.iter().map(|(_, _, share)| share).product::<f64>()
}

fn values_of_column<'a>(
    column: u16,
    table: &Table,
    known: Option<&'a TableStatistics>,
) -> Option<&'a ColumnStatistics> {
    let def = table.def.columns.get(usize::from(column))?;
    known?.column(&def.name, def.ty)
}

/// A range that is smaller than the statistics can tell.
const LEAST: f64 = 0.0005;

/// The column that a comparison bounds by a constant, and whether from below.
fn bounded(condition: &Expr, source: u16) -> Option<(u16, bool)> {
    let Expr::Compare { operator, left, right } = condition else { return None };
    let (column, op) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column { source: of, column }, Expr::Const(_)) if *of == source => (*column, operator.op),
        (Expr::Const(_), Expr::Column { source: of, column }) if *of == source => (*column, operator.op.flipped()),
        _ => return None,
    };
    match op {
        BinaryOp::Gt | BinaryOp::Ge => Some((column, true)),
        BinaryOp::Lt | BinaryOp::Le => Some((column, false)),
        _ => None,
    }
}

/// `column op value`, of a type.
fn compared((ty, known): (Type, Option<&ColumnStatistics>), op: BinaryOp, value_type: Type, value: &Expr) -> f64 {
    match (value, known) {
        (Expr::Const(datum), Some(values)) if value_type == ty.unrounded() && *datum != Datum::Null => {
            values.compared(ty, op, datum)
        }
        (_, Some(values)) if op == BinaryOp::Eq => (1.0 - values.null_fraction) / values.distinct.max(1.0),
        _ if op == BinaryOp::Eq => EQUAL,
        _ => OTHER,
    }
}
