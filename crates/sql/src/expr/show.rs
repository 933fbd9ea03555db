//! How does EXPLAIN write a condition?

use super::Expr;
use crate::value::{Datum, operator::BinaryOperator, quoted_literal};
use freshet_engine::schema::Type;

/// The expression as text; `name` names a column of a source.
pub fn show(expr: &Expr, name: &dyn Fn(u16, u16) -> String) -> String {
    let infix = |left: &Expr, operator: &BinaryOperator, right: &Expr| {
        format!(
            "({} {} {})",
            typed(left, operator.left, name),
            operator.op.symbol(),
            typed(right, operator.right, name)
        )
    };
    match expr {
        Expr::Column { source, column } | Expr::Cell { source, column } => name(*source, *column),
        Expr::Param(i) => format!("${}", i + 1),
        Expr::Const(datum) => show_value(datum, None),
        Expr::Compare { operator, left, right } | Expr::Binary { operator, left, right } => {
            infix(left, operator, right)
        }
        Expr::And(list) => format!("({})", list_of(list, " AND ", name)),
        Expr::Or(list) => format!("({})", list_of(list, " OR ", name)),
        Expr::Not(inner) => format!("(NOT {})", show(inner, name)),
        Expr::IsNull { expr, negated } => {
            format!("({} IS{} NULL)", show(expr, name), not(*negated))
        }
        Expr::IsTruth { expr, value, negated } => {
            let value = if *value { "TRUE" } else { "FALSE" };
            format!("({} IS{} {value})", show(expr, name), not(*negated))
        }
        Expr::In { expr, list, negated, .. } => {
            let items = list.iter().map(|(o, item)| typed(item, o.right, name));
            let items: Vec<String> = items.collect();
            format!("({}{} IN ({}))", show(expr, name), not(*negated), items.join(", "))
        }
        Expr::Like { expr, pattern, negated, insensitive, .. } => {
            let like = if *insensitive { "ILIKE" } else { "LIKE" };
            format!("({}{} {like} {})", show(expr, name), not(*negated), typed(pattern, Type::Text, name))
        }
        Expr::Distinct { left, right, negated, .. } => {
            format!("({} IS{} DISTINCT FROM {})", show(left, name), not(*negated), show(right, name))
        }
        Expr::Cast { expr, to, .. } => format!("({})::{}", show(expr, name), crate::value::pgtype::format_type(*to)),
        Expr::Negate { expr, .. } => format!("(- {})", show(expr, name)),
        Expr::Call { function, args } => call(&function.id.shown(), args, name),
        Expr::Coalesce(list) => format!("COALESCE({})", list_of(list, ", ", name)),
        Expr::Extreme { greatest, list, .. } => {
            format!("{}({})", if *greatest { "GREATEST" } else { "LEAST" }, list_of(list, ", ", name))
        }
        Expr::NullIf { left, right, .. } => {
            format!("NULLIF({}, {})", show(left, name), show(right, name))
        }
        Expr::Case { branches, otherwise } => {
            let branch = |(when, then): &(Expr, Expr)| format!(" WHEN {} THEN {}", show(when, name), show(then, name));
            let branches: String = branches.iter().map(branch).collect();
            let otherwise = otherwise.as_ref().map_or_else(String::new, |e| format!(" ELSE {}", show(e, name)));
            format!("CASE{branches}{otherwise} END")
        }
        Expr::Let { id, value, body } => show(body, name).replacen(&format!("${{{id}}}"), &show(value, name), 1),
        Expr::Given(id) => format!("${{{id}}}"),
        Expr::Quantified { operator, left, array, all, .. } => {
            let which = if *all { "ALL" } else { "ANY" };
            let array = typed(array, Type::array_of(operator.right), name);
            format!("({} {} {which} ({array}))", show(left, name), operator.op.symbol())
        }
        Expr::Env(value) => format!("{value:?}").to_lowercase(),
        Expr::Setting { name: setting, .. } => format!("current_setting({})", show(setting, name)),
        Expr::Sequence { call, sequence, args } => {
            let args = list_of(args, ", ", name);
            match &sequence.0 {
                Some(sequence) if args.is_empty() => format!("{}('{}')", call.name(), sequence.def.name),
                Some(sequence) => format!("{}('{}', {args})", call.name(), sequence.def.name),
                None => format!("{}({args})", call.name()),
            }
        }
        Expr::LastValue => "lastval()".to_owned(),
        Expr::Key { call, args } => format!("{}({})", call.name(), list_of(args, ", ", name)),
        Expr::Aggregate(i) => format!("aggregate {i}"),
    }
}

/// An operator stands between its arguments, or before the only one.
fn call(function: &str, args: &[Expr], name: &dyn Fn(u16, u16) -> String) -> String {
    let is_operator = !function.starts_with(|c: char| c.is_ascii_alphabetic());
    match args {
        [left, right] if is_operator => format!("({} {function} {})", show(left, name), show(right, name)),
        [one] if is_operator => format!("({function} {})", show(one, name)),
        [value, pattern, _] if function == "similar to" => {
            format!("({} SIMILAR TO {})", show(value, name), show(pattern, name))
        }
        _ => format!("{function}({})", list_of(args, ", ", name)),
    }
}

fn not(negated: bool) -> &'static str {
    if negated { " NOT" } else { "" }
}

fn list_of(list: &[Expr], between: &str, name: &dyn Fn(u16, u16) -> String) -> String {
    let parts: Vec<String> = list.iter().map(|e| show(e, name)).collect();
    parts.join(between)
}

fn typed(expr: &Expr, ty: Type, name: &dyn Fn(u16, u16) -> String) -> String {
    match expr {
        Expr::Const(datum) => show_value(datum, Some(ty)),
        other => show(other, name),
    }
}

/// A value as text; `None`: of a type that is not known.
pub fn show_value(datum: &Datum, ty: Option<Type>) -> String {
    let mut text = Vec::new();
    match (datum, ty) {
        (Datum::Null, _) => return "NULL".to_owned(),
        (Datum::Int(v), None) => return v.to_string(),
        (Datum::Bool(v), _) => return v.to_string(),
        (Datum::Int(number), Some(Type::Enum(id))) => {
            if let Some(label) = crate::value::pgtype::label_named(id, *number) {
                return format!("{}::{}", quoted_literal(&label), crate::value::pgtype::format_type(Type::Enum(id)));
            }
            text.extend_from_slice(number.to_string().as_bytes());
        }
        (datum, Some(ty)) => crate::value::to_text(ty, &datum.as_value(), &mut text),
        (Datum::Bytes(v), None) => text.extend_from_slice(v),
        (other, None) => return format!("{other:?}"),
    }
    let text = String::from_utf8_lossy(&text);
    match datum {
        Datum::Bytes(_) if matches!(ty, Some(Type::Numeric { .. })) => text.into_owned(),
        Datum::Bytes(_) => format!("'{}'", text.replace('\'', "''")),
        _ => text.into_owned(),
    }
}
