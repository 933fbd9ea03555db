//! How does EXPLAIN write what a plan computes? As PostgreSQL writes a condition: by names and values, without the places and types that DataFusion has
//! them by. What this does not know keeps DataFusion's words.

use super::cells::datum;
use super::compute::{Computed, Key};
use super::constants::shown;
use super::lazy::junction;
use crate::expr::{show, show_value};
use crate::value::Datum;
use crate::value::pgtype::format_type;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use freshet_engine::schema::Type;
use std::sync::Arc;

/// An expression of a physical plan.
pub fn text(expr: &Arc<dyn PhysicalExpr>) -> String {
    let expr = shown(expr);
    if let Some(column) = expr.downcast_ref::<Column>() {
        return column.name().to_owned();
    }
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return value(literal.value(), None);
    }
    if let Some(op) = junction(expr).map(|junction| *junction.op()) {
        let mut parts = Vec::new();
        chained(expr, op, &mut parts);
        return format!("({})", parts.join(&format!(" {op} ")));
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return infix(binary);
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return format!("(NOT {})", text(not.arg()));
    }
    if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
        return format!("({} IS NULL)", text(null.arg()));
    }
    if let Some(null) = expr.downcast_ref::<IsNotNullExpr>() {
        return format!("({} IS NOT NULL)", text(null.arg()));
    }
    // An integer as a wider one, mostly.
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return text(cast.expr());
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let items: Vec<String> = list.list().iter().map(|item| beside(item, list.expr())).collect();
        let not = if list.negated() { "NOT " } else { "" };
        return format!("({} {not}IN ({}))", text(list.expr()), items.join(", "));
    }
    if let Some((_, argument)) = Key::within(expr) {
        return text(argument);
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return called(call);
    }
    without_places(&expr.to_string())
}

fn infix(binary: &BinaryExpr) -> String {
    let operator = match binary.op() {
        Operator::NotEq => "<>".to_owned(),
        other => other.to_string(),
    };
    let (left, right) = (beside(binary.left(), binary.right()), beside(binary.right(), binary.left()));
    format!("({left} {operator} {right})")
}

/// The parts of a chain of ANDs or of ORs.
fn chained(expr: &Arc<dyn PhysicalExpr>, op: Operator, parts: &mut Vec<String>) {
    match junction(expr).filter(|junction| *junction.op() == op) {
        Some(junction) => [junction.left(), junction.right()].into_iter().for_each(|side| chained(side, op, parts)),
        None => parts.push(text(expr)),
    }
}

/// What an expression is compared with: a literal beside a key is one.
fn beside(expr: &Arc<dyn PhysicalExpr>, other: &Arc<dyn PhysicalExpr>) -> String {
    match (expr.downcast_ref::<Literal>(), Key::within(other)) {
        (Some(literal), Some((key, _))) => value(literal.value(), Some(key)),
        _ => text(expr),
    }
}

fn called(call: &ScalarFunctionExpr) -> String {
    let argument = |at: u16| call.args().get(usize::from(at)).map_or_else(String::new, text);
    if let Some(computed) = call.fun().inner().downcast_ref::<Computed>() {
        return show(computed.expr(), &|_, column| argument(column));
    }
    let arguments: Vec<String> = call.args().iter().map(text).collect();
    format!("{}({})", call.name(), arguments.join(", "))
}

/// A value as its SQL type has it; a key stands for a value that has it.
fn value(scalar: &ScalarValue, key: Option<&Key>) -> String {
    let (ty, datum) = match (datum(scalar), key) {
        (Some(Datum::Null), _) => return "NULL".to_owned(),
        // What a key leaves out of these says how their parts are written.
        (Some(_), Some(key)) if matches!(key.ty(), Type::Jsonb | Type::Array(_) | Type::Vector(_)) => {
            return format!("'...'::{}", format_type(key.ty()));
        }
        (Some(datum), Some(key)) => (Some(key.ty()), key.value_of(datum)),
        (Some(datum), None) => (type_of(&scalar.data_type()), datum),
        (None, _) => return scalar.to_string(),
    };
    match ty {
        Some(ty) => show_value(&datum, Some(ty)),
        None => scalar.to_string(),
    }
}

/// The SQL type whose values these are, where there is but one.
fn type_of(ty: &DataType) -> Option<Type> {
    Some(match ty {
        DataType::Boolean => Type::Bool,
        DataType::Int16 => Type::Int2,
        DataType::Int32 => Type::Int4,
        DataType::Int64 => Type::Int8,
        DataType::Float32 => Type::Float4,
        DataType::Float64 => Type::Float8,
        DataType::Decimal128(precision, scale) => {
            Type::Decimal { precision: *precision, scale: u8::try_from(*scale).ok()? }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Type::Text,
        DataType::Date32 => Type::Date,
        DataType::Time64(TimeUnit::Microsecond) => Type::Time,
        DataType::Timestamp(TimeUnit::Microsecond, None) => Type::Timestamp,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Type::Timestamptz,
        _ => return None,
    })
}

/// A text of DataFusion's without the places of columns: `c0@0 > 1`.
fn without_places(text: &str) -> String {
    let mut parts = text.split('@');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == part.len() {
            out.push('@');
        }
        out.push_str(rest);
    }
    out
}
