//! Expressions of PostgreSQL's own: arrays, intervals, time zones, regular expressions, rows, and operators that are functions.

use super::expr::{Bound, beyond_timestamps, fold_constant, text};
use super::scope::Scope;
use super::{Bind, Binder, Refusal};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::cast::{CastContext, is_numeric};
use crate::value::function::Function;
use crate::value::interval::{self, Fields, Limit, Unit};
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::pgtype::{name as type_name, second_digits};
use crate::value::{self, Datum};
use freshet_engine::schema::{NetworkKind, SystemKind, Type};
use sqlparser::ast::{
    self, AccessExpr, BinaryOperator as Symbol, DateTimeField, FunctionArg, FunctionArgExpr, FunctionArgOperator,
    FunctionArguments, Subscript,
};
use std::borrow::Cow;

/// Operators that are nothing but functions, named by their symbol.
pub(super) fn operator_function(op: &Symbol) -> Option<&'static str> {
    Some(match op {
        Symbol::Arrow => "->",
        Symbol::LongArrow => "->>",
        Symbol::HashArrow => "#>",
        Symbol::HashLongArrow => "#>>",
        Symbol::AtArrow => "@>",
        Symbol::ArrowAt => "<@",
        Symbol::HashMinus => "#-",
        Symbol::Question => "?",
        Symbol::QuestionPipe => "?|",
        Symbol::QuestionAnd => "?&",
        Symbol::PGOverlap => "&&",
        Symbol::PGStartsWith => "^@",
        Symbol::PGRegexMatch => "~",
        Symbol::PGRegexIMatch => "~*",
        Symbol::PGRegexNotMatch => "!~",
        Symbol::PGRegexNotIMatch => "!~*",
        Symbol::Custom(symbol) if symbol == "<<=" => "<<=",
        Symbol::Custom(symbol) if symbol == ">>=" => ">>=",
        _ => return None,
    })
}

/// What `OPERATOR(pg_catalog.~)` names.
pub(super) fn named_operator(parts: &[String]) -> Option<Symbol> {
    let symbol = match parts {
        [symbol] => symbol,
        [schema, symbol] if schema == "pg_catalog" => symbol,
        _ => return None,
    };
    Some(match symbol.as_str() {
        "=" => Symbol::Eq,
        "<>" | "!=" => Symbol::NotEq,
        "<" => Symbol::Lt,
        "<=" => Symbol::LtEq,
        ">" => Symbol::Gt,
        ">=" => Symbol::GtEq,
        "+" => Symbol::Plus,
        "-" => Symbol::Minus,
        "*" => Symbol::Multiply,
        "/" => Symbol::Divide,
        "%" => Symbol::Modulo,
        "||" => Symbol::StringConcat,
        "~" => Symbol::PGRegexMatch,
        "~*" => Symbol::PGRegexIMatch,
        "!~" => Symbol::PGRegexNotMatch,
        "!~*" => Symbol::PGRegexNotIMatch,
        "~~" => Symbol::PGLikeMatch,
        "~~*" => Symbol::PGILikeMatch,
        "!~~" => Symbol::PGNotLikeMatch,
        "!~~*" => Symbol::PGNotILikeMatch,
        "@>" => Symbol::AtArrow,
        "<@" => Symbol::ArrowAt,
        "&&" => Symbol::PGOverlap,
        "<<" => Symbol::PGBitwiseShiftLeft,
        ">>" => Symbol::PGBitwiseShiftRight,
        "<<=" | ">>=" => Symbol::Custom(symbol.clone()),
        "&" => Symbol::BitwiseAnd,
        "|" => Symbol::BitwiseOr,
        "#" => Symbol::PGBitwiseXor,
        "->" => Symbol::Arrow,
        "->>" => Symbol::LongArrow,
        _ => return None,
    })
}

/// Whether an operator on these types is a function: on arrays, documents, intervals and addresses, and where an interval comes out.
pub(crate) fn is_operator_function(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> bool {
    let plain = |ty: Type| ty.as_array().unrounded();
    let (left, right) = (left.map(plain), right.map(plain));
    let either = |is: fn(Type) -> bool| left.is_some_and(is) || right.is_some_and(is);
    if op == BinaryOp::Concat {
        let text = |ty: Option<Type>| ty.is_some_and(value::cast::is_text);
        // A document beside a text is written as one; to an array a text is an element.
        return either(|ty| matches!(ty, Type::Array(_)))
            || either(|ty| ty == Type::Jsonb) && !text(left) && !text(right);
    }
    use BinaryOp::{Add, BitAnd, BitOr, ShiftLeft, ShiftRight, Sub};
    if matches!(op, Add | Sub | BitAnd | BitOr | ShiftLeft | ShiftRight) && either(|ty| matches!(ty, Type::Network(_)))
    {
        return true;
    }
    let arithmetic = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div);
    let moment =
        |ty: Option<Type>| matches!(ty, Some(Type::Date | Type::Timestamp | Type::Timestamptz)) || ty.is_none();
    let apart = op == BinaryOp::Sub
        && (moment(left) && moment(right)
            || matches!((left, right), (Some(Type::Time) | None, Some(Type::Time)) | (Some(Type::Time), None)))
        && either(|ty| matches!(ty, Type::Timestamp | Type::Timestamptz | Type::Time));
    // What is added to a timestamp or a time can only be an interval.
    let is_stamp = |ty: Option<Type>| matches!(ty, Some(Type::Timestamp | Type::Timestamptz | Type::Time));
    let later = op == BinaryOp::Add && (is_stamp(left) && right.is_none() || left.is_none() && is_stamp(right));
    arithmetic
        && (apart || later || either(|ty| matches!(ty, Type::Interval | Type::Jsonb | Type::Json | Type::Array(_))))
}

/// The parts of `(a, b)` or `ROW(a, b)`.
pub(crate) fn row_items(ast: &ast::Expr) -> Option<Vec<&ast::Expr>> {
    match ast {
        ast::Expr::Tuple(items) => Some(items.iter().collect()),
        ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            super::expr::plain_args(&function.args)
        }
        ast::Expr::Nested(inner) => row_items(inner),
        _ => None,
    }
}

/// Whether what is of the second type is a moment by the session's zone where it is compared with the first one.
fn is_moment_of(zoned: Option<Type>, local: Option<Type>) -> bool {
    zoned.map(Type::unrounded) == Some(Type::Timestamptz)
        && matches!(local.map(Type::unrounded), Some(Type::Date | Type::Timestamp))
}

/// Whether an array has no items, nor arrays that have any: `ARRAY[ARRAY[]]` has no dimensions.
fn holds_nothing(array: &ast::Array) -> bool {
    array.elem.iter().all(|item| matches!(item, ast::Expr::Array(inner) if holds_nothing(inner)))
}

/// The arguments of `make_interval` in their order, those that are left out as zeros.
pub(super) fn interval_args(args: &FunctionArguments) -> Option<Vec<ast::Expr>> {
    const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let zero = || ast::Expr::Value(ast::Value::Number("0".to_owned(), false).with_empty_span());
    let mut given: Vec<Option<ast::Expr>> = vec![None; NAMES.len()];
    for (i, arg) in list.args.iter().enumerate() {
        let (at, expr) = match arg {
            // The grammar takes `name := value` for an operator's.
            FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::BinaryOp {
                left,
                op: Symbol::Assignment,
                right,
            })) => {
                let ast::Expr::Identifier(name) = left.as_ref() else { return None };
                (NAMES.iter().position(|n| *n == super::scope::fold(name))?, right.as_ref())
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (i, expr),
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(expr),
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            } => (NAMES.iter().position(|n| *n == super::scope::fold(name))?, expr),
            FunctionArg::ExprNamed {
                name: ast::Expr::Identifier(name),
                arg: FunctionArgExpr::Expr(expr),
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            } => (NAMES.iter().position(|n| *n == super::scope::fold(name))?, expr),
            _ => return None,
        };
        *given.get_mut(at)? = Some(expr.clone());
    }
    Some(given.into_iter().map(|expr| expr.unwrap_or_else(zero)).collect())
}

/// What is subscripted, and by what: in `t.a[1]` and `(f(x)).a[1]` the grammar makes the field's name part of the chain.
fn subscripted<'a>(root: &'a ast::Expr, chain: &'a [AccessExpr]) -> Option<(Cow<'a, ast::Expr>, &'a [AccessExpr])> {
    let field = |access: &'a AccessExpr| match access {
        AccessExpr::Dot(ast::Expr::Identifier(field)) => Some(field),
        _ => None,
    };
    let fields: Vec<&ast::Ident> = chain.iter().map_while(field).collect();
    let (dots, subscripts) = chain.split_at(fields.len());
    if subscripts.is_empty() || !subscripts.iter().all(|access| matches!(access, AccessExpr::Subscript(_))) {
        return None;
    }
    let array = match root {
        _ if fields.is_empty() => Cow::Borrowed(root),
        ast::Expr::Identifier(first) => {
            let parts = std::iter::once(first).chain(fields).cloned();
            Cow::Owned(ast::Expr::CompoundIdentifier(parts.collect()))
        }
        _ => {
            let (root, access_chain) = (Box::new(root.clone()), dots.to_vec());
            Cow::Owned(ast::Expr::CompoundFieldAccess { root, access_chain })
        }
    };
    Some((array, subscripts))
}

/// The array of `LIKE ALL (array)`, which the grammar reads as a call: so it stands in definitions that were kept before the parser made an
/// operator of it.
fn every(pattern: &ast::Expr) -> Option<&ast::Expr> {
    let ast::Expr::Function(function) = pattern else { return None };
    let is_all = matches!(function.name.0.as_slice(), [ast::ObjectNamePart::Identifier(name)]
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all"));
    let args = super::expr::plain_args(&function.args).filter(|_| is_all)?;
    let [array] = args.as_slice() else { return None };
    Some(*array)
}

impl Binder<'_> {
    /// Whether [`Binder::more`] takes an expression.
    pub(super) fn is_more(&self, ast: &ast::Expr) -> bool {
        use ast::Expr as A;
        match ast {
            A::AnyOp { right, .. } | A::AllOp { right, .. } => !matches!(right.as_ref(), A::Subquery(_)),
            A::Like { any: true, .. } | A::ILike { any: true, .. } => true,
            A::Like { pattern, .. } | A::ILike { pattern, .. } => every(pattern).is_some(),
            A::AtTimeZone { .. }
            | A::Array(_)
            | A::IsNormalized { .. }
            | A::Interval(_)
            | A::SimilarTo { .. }
            | A::Overlay { .. }
            | A::Collate { .. } => true,
            A::CompoundFieldAccess { root, access_chain } => subscripted(root, access_chain).is_some(),
            _ => false,
        }
    }

    pub(super) fn more(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        use ast::Expr as A;
        match ast {
            A::AnyOp { left, compare_op, right, is_some: _ } => self.quantified(left, compare_op, right, false, scope),
            A::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true, scope),
            A::Like { negated, any, expr, pattern, escape_char: None } => {
                let op = if *negated { BinaryOp::NotLike } else { BinaryOp::Like };
                self.quantified_by(expr, op, every(pattern).unwrap_or(pattern), !any, scope)
            }
            A::ILike { negated, any, expr, pattern, escape_char: None } => {
                let op = if *negated { BinaryOp::NotILike } else { BinaryOp::ILike };
                self.quantified_by(expr, op, every(pattern).unwrap_or(pattern), !any, scope)
            }
            A::AtTimeZone { timestamp, time_zone } => {
                let (moment, zone) = (self.bind(timestamp, scope)?, self.bind(time_zone, scope)?);
                let moment = if moment.ty == Some(Type::Date) {
                    Bound::new(self.coerce(moment, Type::Timestamptz, CastContext::Implicit)?, Type::Timestamptz)
                } else {
                    moment
                };
                self.call_bound("timezone", vec![zone, moment])
            }
            A::Array(array) if !array.named => Err(SqlError::new("42601", "syntax error at or near \"[\"").into()),
            A::Array(array) => self.array(array, scope),
            A::Interval(interval) => self.interval(interval),
            A::SimilarTo { negated, expr, pattern, escape_char } => {
                let escape = match escape_char.as_ref().map(|v| &v.value) {
                    None => "\\",
                    Some(ast::Value::SingleQuotedString(s) | ast::Value::EscapedStringLiteral(s)) => s,
                    Some(other) => return Err(SqlError::unsupported(format!("ESCAPE {other}")).into()),
                };
                let escape = Bound::new(text(escape), Type::Text);
                let value = self.bind(expr, scope)?;
                let args = vec![self.with_blanks(value)?, self.bind(pattern, scope)?, escape];
                let Bound { expr, .. } = self.call_bound("similar to", args)?;
                let expr = if *negated { Expr::Not(Box::new(expr)) } else { expr };
                Ok(Bound::new(expr, Type::Bool))
            }
            A::IsNormalized { expr, form, negated } => {
                let form = form.map(|form| Bound::new(text(&form.to_string()), Type::Text));
                let args = std::iter::once(self.bind(expr, scope)?).chain(form).collect();
                let Bound { expr, .. } = self.call_bound("is_normalized", args)?;
                let expr = if *negated { Expr::Not(Box::new(expr)) } else { expr };
                Ok(Bound::new(expr, Type::Bool))
            }
            A::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut args: Vec<&ast::Expr> = vec![expr, overlay_what, overlay_from];
                args.extend(overlay_for.as_deref());
                self.call("overlay", &args, scope)
            }
            A::Collate { expr, collation } => {
                let bound = self.bind(expr, scope)?;
                super::types::collation_of(collation, bound.ty.unwrap_or(Type::Text))?;
                Ok(bound)
            }
            A::CompoundFieldAccess { root, access_chain } => {
                let (array, subscripts) = subscripted(root, access_chain)
                    .ok_or_else(|| self.not_compiled(&format!("the expression {ast}"), ast))?;
                self.subscripts(&array, subscripts, scope)
            }
            other => Err(self.not_compiled(&format!("the expression {other}"), other)),
        }
    }

    // ---- times

    fn interval(&mut self, ast: &ast::Interval) -> Bind<Bound> {
        let ast::Interval { value: given, leading_field, leading_precision, last_field, fractional_seconds_precision } =
            ast;
        let digits = match (leading_precision, fractional_seconds_precision) {
            (None, digits) => *digits,
            (digits, None) if matches!(leading_field, Some(DateTimeField::Second)) && last_field.is_none() => *digits,
            _ => return Err(SqlError::new("42601", "syntax error at or near \"(\"").into()),
        };
        let ast::Expr::Value(literal) = given.as_ref() else {
            return Err(SqlError::new("42601", format!("syntax error at or near \"{given}\"")).into());
        };
        let (ast::Value::SingleQuotedString(source) | ast::Value::EscapedStringLiteral(source)) = &literal.value else {
            return Err(SqlError::new("42601", format!("syntax error at or near \"{given}\"")).into());
        };
        let unit = |field: &DateTimeField| Unit::named(&field.to_string().to_ascii_lowercase());
        let fields = match (leading_field, last_field) {
            (None, _) => None,
            (Some(first), last) => {
                let first = unit(first).ok_or_else(|| SqlError::unsupported(ast.to_string()))?;
                let last = match last {
                    Some(last) => unit(last).ok_or_else(|| SqlError::unsupported(ast.to_string()))?,
                    None => first,
                };
                Some(Fields { first, last })
            }
        };
        let mut read = interval::read(source.as_bytes(), fields)?;
        if let Some(fields) = fields {
            let Some(limit) = Limit::new(fields, digits.map(second_digits)) else {
                let last = last_field.as_ref().map_or(String::new(), |last| last.to_string().to_lowercase());
                return Err(SqlError::new("42601", format!("syntax error at or near \"{last}\"")).into());
            };
            read = limit.apply(read);
        }
        Ok(Bound::new(Expr::Const(Datum::Bytes(read.to_stored())), Type::Interval))
    }

    /// A timestamptz is compared with a date or timestamp as moments, by the session's zone.
    pub(super) fn moments_alike(&mut self, left: Bound, right: Bound) -> Bind<(Bound, Bound)> {
        Ok(match (is_moment_of(right.ty, left.ty), is_moment_of(left.ty, right.ty)) {
            (true, _) => (self.as_moment(left)?, right),
            (_, true) => (left, self.as_moment(right)?),
            _ => (left, right),
        })
    }

    fn as_moment(&mut self, bound: Bound) -> Bind<Bound> {
        let bound = beyond_timestamps(bound, Type::Timestamptz);
        Ok(Bound::new(self.coerce(bound, Type::Timestamptz, CastContext::Implicit)?, Type::Timestamptz))
    }

    /// A value as text where its text depends on the session.
    pub(super) fn shown(&mut self, bound: Bound) -> Bind<Bound> {
        match bound.ty {
            Some(ty)
                if (value::cast::needs_clock(ty, Type::Text) || ty == Type::Interval) && !value::cast::is_text(ty) =>
            {
                Ok(Bound::new(self.coerce(bound, Type::Text, CastContext::Assignment)?, Type::Text))
            }
            _ => Ok(bound),
        }
    }

    // ---- arrays

    fn array(&mut self, array: &ast::Array, scope: &Scope) -> Bind<Bound> {
        let mut bound = Vec::with_capacity(array.elem.len());
        for item in &array.elem {
            // Arrays within need not say ARRAY again.
            bound.push(match item {
                ast::Expr::Array(inner) => self.array(inner, scope)?,
                item => self.bind(item, scope)?,
            });
        }
        if bound.is_empty() {
            return Err(SqlError::new("42P18", "cannot determine type of empty array")
                .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
                .into());
        }
        // A vector among others is a row of them.
        let ty = self.common_of("ARRAY", &bound)?.as_array();
        let ty = match value::cast::without_modifier(ty) {
            number if is_numeric(number) => number,
            _ => ty,
        };
        if ty == Type::System(SystemKind::Void) {
            return Err(SqlError::new("42704", "could not find array type for data type void").into());
        }
        let args = self.coerce_all(bound, ty)?;
        let function = Function::array(ty, args.len());
        let result = function.result;
        Ok(Bound::new(fold_constant(Expr::Call { function: Box::new(function), args }), result))
    }

    /// `ARRAY[]::type[]`: an empty array, or elements that take the type.
    pub(super) fn typed_array(&mut self, array: &ast::Array, to: Type, scope: &Scope) -> Bind<Option<Bound>> {
        let Type::Array(element) = to else {
            return Ok(None);
        };
        let items: &[ast::Expr] = if holds_nothing(array) { &[] } else { &array.elem };
        if items.iter().any(|item| matches!(item, ast::Expr::Array(_))) {
            return Ok(None);
        }
        let mut args = Vec::with_capacity(items.len());
        for item in items {
            let bound = self.bind(item, scope)?;
            if matches!(bound.ty, Some(Type::Array(_))) {
                return Ok(None);
            }
            args.push(self.explicit_cast(bound, *element)?);
        }
        let function = Function::array(*element, args.len());
        Ok(Some(Bound::new(fold_constant(Expr::Call { function: Box::new(function), args }), to)))
    }

    fn subscripts(&mut self, root: &ast::Expr, chain: &[AccessExpr], scope: &Scope) -> Bind<Bound> {
        let array = self.bind(root, scope)?;
        let Some(ty @ Type::Array(_)) = array.ty.map(Type::as_array) else {
            let what = array.ty.map_or("unknown", type_name);
            if let (Some(Type::Name), [AccessExpr::Subscript(Subscript::Index { index })]) = (array.ty, chain) {
                let at = Bound::new(self.subscript(index, scope)?, Type::Int4);
                return self.call_bound("name at", vec![array, at]);
            }
            if array.ty == Some(Type::Jsonb) {
                return self.json_subscripts(array, chain, scope);
            }
            let message = format!("cannot subscript type {what} because it does not support subscripting");
            return Err(SqlError::new("42804", message).into());
        };
        // A bound that is left out is none; one that is null makes the slice null.
        let mut nulls = Vec::new();
        let slices = chain.iter().any(|access| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. })));
        let mut args = vec![array.expr];
        for access in chain {
            let AccessExpr::Subscript(subscript) = access else {
                return Err(SqlError::unsupported(format!("the access {access}")).into());
            };
            match subscript {
                Subscript::Index { index } if slices => {
                    let index = self.subscript(index, scope)?;
                    nulls.push(Expr::IsNull { expr: Box::new(index.clone()), negated: false });
                    args.push(Expr::Const(Datum::Int(1)));
                    args.push(index);
                }
                Subscript::Index { index } => args.push(self.subscript(index, scope)?),
                Subscript::Slice { lower_bound, upper_bound, stride: None } => {
                    for bound in [lower_bound, upper_bound] {
                        args.push(match bound {
                            Some(bound) => {
                                let bound = self.subscript(bound, scope)?;
                                nulls.push(Expr::IsNull { expr: Box::new(bound.clone()), negated: false });
                                bound
                            }
                            None => Expr::NULL,
                        });
                    }
                }
                other => return Err(SqlError::unsupported(format!("the subscript {other}")).into()),
            }
        }
        let function = match slices {
            true => Function::slice(ty, chain.len()),
            false => Function::subscript(ty, chain.len()).expect("the type is an array's"),
        };
        let result = function.result;
        let call = Expr::Call { function: Box::new(function), args };
        let branches: Vec<(Expr, Expr)> =
            nulls.into_iter().map(|is_null| (fold_constant(is_null), Expr::NULL)).collect();
        let unknown = |(is_null, _): &(Expr, Expr)| *is_null != Expr::Const(Datum::Bool(false));
        let branches: Vec<(Expr, Expr)> = branches.into_iter().filter(unknown).collect();
        let value = match branches.is_empty() {
            true => call,
            false => Expr::Case { branches, otherwise: Some(Box::new(call)) },
        };
        Ok(Bound::new(fold_constant(value), result))
    }

    pub(super) fn subscript(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Expr> {
        let bound = self.bind(ast, scope)?;
        self.coerce(bound, Type::Int4, CastContext::Assignment)
    }

    /// `document['key'][0]`.
    /// A path, not one `->` after the other: these find a scalar at its place 0.
    fn json_subscripts(&mut self, document: Bound, chain: &[AccessExpr], scope: &Scope) -> Bind<Bound> {
        let mut arguments = vec![document];
        for access in chain {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(SqlError::new("42804", "jsonb subscript does not support slices").into());
            };
            let step = self.json_step(index, scope)?;
            arguments.push(Bound::new(self.coerce(step, Type::Text, CastContext::Assignment)?, Type::Text));
        }
        self.call_bound("jsonb_extract_path", arguments)
    }

    fn quantified(
        &mut self,
        left: &ast::Expr,
        op: &Symbol,
        right: &ast::Expr,
        all: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let op = match op {
            Symbol::Eq => BinaryOp::Eq,
            Symbol::NotEq => BinaryOp::Ne,
            Symbol::Lt => BinaryOp::Lt,
            Symbol::LtEq => BinaryOp::Le,
            Symbol::Gt => BinaryOp::Gt,
            Symbol::GtEq => BinaryOp::Ge,
            Symbol::PGLikeMatch => BinaryOp::Like,
            Symbol::PGNotLikeMatch => BinaryOp::NotLike,
            Symbol::PGILikeMatch => BinaryOp::ILike,
            Symbol::PGNotILikeMatch => BinaryOp::NotILike,
            Symbol::PGRegexMatch => BinaryOp::Regex,
            Symbol::PGRegexNotMatch => BinaryOp::NotRegex,
            Symbol::PGRegexIMatch => BinaryOp::RegexFold,
            Symbol::PGRegexNotIMatch => BinaryOp::NotRegexFold,
            Symbol::PGBitwiseShiftLeft => BinaryOp::Within,
            Symbol::PGBitwiseShiftRight => BinaryOp::Contains,
            Symbol::PGOverlap => BinaryOp::Overlaps,
            Symbol::Custom(symbol) if symbol == "<<=" => BinaryOp::WithinOrEqual,
            Symbol::Custom(symbol) if symbol == ">>=" => BinaryOp::ContainsOrEqual,
            other => return Err(SqlError::unsupported(format!("{other} ANY")).into()),
        };
        self.quantified_by(left, op, right, all, scope)
    }

    fn quantified_by(
        &mut self,
        left: &ast::Expr,
        op: BinaryOp,
        right: &ast::Expr,
        all: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let right = unnested(right);
        if let (Some(row), ast::Expr::Array(array), BinaryOp::Eq | BinaryOp::Ne) = (row_items(left), right, op)
            && let Some(rows) = array.elem.iter().map(row_items).collect::<Option<Vec<_>>>()
        {
            return self.row_among(&row, op, &rows, all, scope);
        }
        let (left, array) = (self.bind(left, scope)?, self.bind(right, scope)?);
        self.quantified_over(left, op, array, all)
    }

    /// `(a, b) = ANY (ARRAY[ROW(c, d)])`. As values rows with nulls in the same places are equal.
    fn row_among(
        &mut self,
        row: &[&ast::Expr],
        op: BinaryOp,
        rows: &[Vec<&ast::Expr>],
        all: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let mut parts = Vec::with_capacity(rows.len());
        for other in rows {
            parts.push(self.rows_distinct(row, other, op == BinaryOp::Eq, scope)?.expr);
        }
        Ok(Bound::new(if all { Expr::And(parts) } else { Expr::Or(parts) }, Type::Bool))
    }

    /// `left op ANY (array)`, or ALL.
    pub(super) fn quantified_over(&mut self, left: Bound, op: BinaryOp, array: Bound, all: bool) -> Bind<Bound> {
        let element = match array.ty.map(Type::as_array) {
            Some(Type::Array(element)) => *element,
            // An array of what stands on the left.
            None => match left.ty {
                Some(Type::Varchar(_)) | None => Type::Text,
                Some(ty @ (Type::Array(_) | Type::Vector(_))) => {
                    let message = format!("could not find array type for data type {}", type_name(ty));
                    return Err(SqlError::new("42704", message).into());
                }
                Some(Type::Network(NetworkKind::Cidr)) => Type::Network(NetworkKind::Inet),
                Some(ty) => value::cast::without_modifier(ty),
            },
            Some(_) => return Err(SqlError::new("42809", "op ANY/ALL (array) requires array on right side").into()),
        };
        let (left, array, element) = if is_moment_of(left.ty, Some(element)) {
            let moments = Type::array_of(Type::Timestamptz);
            (left, Bound::new(self.coerce(array, moments, CastContext::Implicit)?, moments), Type::Timestamptz)
        } else if is_moment_of(Some(element), left.ty) {
            (self.as_moment(left)?, array, element)
        } else {
            (left, array, element)
        };
        let operator = BinaryOperator::resolve(op, left.ty, Some(element))?;
        let left = self.coerce(left, operator.left, CastContext::Implicit)?;
        let array = self.coerce(array, Type::array_of(operator.right), CastContext::Implicit)?;
        if let (BinaryOp::Eq, false, Expr::Const(Datum::Bytes(stored))) = (op, all, &array) {
            // A list that is known can be looked up in an index.
            let items = value::array_items(operator.right, stored);
            if !items.is_empty() {
                let list = items.into_iter().map(|item| (operator, Expr::Const(item))).collect();
                return Ok(Bound::new(Expr::one_of(Box::new(left), list, false), Type::Bool));
            }
        }
        let (left, array) = (Box::new(left), Box::new(array));
        Ok(Bound::new(Expr::quantified(operator, left, array, all), Type::Bool))
    }

    /// `(a, b) OVERLAPS (c, d)`: b and d are ends, or how long it is to them.
    pub(super) fn overlaps(&mut self, spans: [(&ast::Expr, &ast::Expr); 2], scope: &Scope) -> Bind<Bound> {
        let mut args = Vec::with_capacity(4);
        for (start, end) in spans {
            let mut bound = self.bind(end, scope)?;
            if bound.ty.map(Type::unrounded) == Some(Type::Interval) {
                let (left, right) = (Box::new(start.clone()), Box::new(end.clone()));
                bound = self.bind(&ast::Expr::BinaryOp { left, op: Symbol::Plus, right }, scope)?;
            }
            args.push(self.bind(start, scope)?);
            args.push(bound);
        }
        self.call_bound("overlaps", args)
    }

    // ---- rows

    fn row(&mut self, items: &[&ast::Expr], scope: &Scope) -> Bind<Vec<Bound>> {
        items.iter().map(|item| self.bind(item, scope)).collect()
    }

    /// `(a, b) < (x, y)`: the first parts that differ decide.
    pub(super) fn rows(
        &mut self,
        left: &[&ast::Expr],
        op: BinaryOp,
        right: &[&ast::Expr],
        scope: &Scope,
    ) -> Bind<Bound> {
        let (left, right) = (self.row(left, scope)?, self.row(right, scope)?);
        self.bound_rows(left, op, right)
    }

    pub fn bound_rows(&mut self, left: Vec<Bound>, op: BinaryOp, right: Vec<Bound>) -> Bind<Bound> {
        if left.len() != right.len() {
            return Err(SqlError::new("42601", "unequal number of entries in row expressions").into());
        }
        let mut pairs: Vec<(Bound, Bound)> = left.into_iter().zip(right).collect();
        let each = |binder: &mut Self, op, pairs: Vec<(Bound, Bound)>| -> Bind<Vec<Expr>> {
            pairs.into_iter().map(|(l, r)| Ok(binder.compare(op, l, r)?.expr)).collect()
        };
        let expr = match op {
            BinaryOp::Eq => Expr::And(each(self, op, pairs)?),
            BinaryOp::Ne => Expr::Or(each(self, op, pairs)?),
            _ => {
                let (strict, loose) = match op {
                    BinaryOp::Lt | BinaryOp::Le => (BinaryOp::Lt, BinaryOp::Le),
                    _ => (BinaryOp::Gt, BinaryOp::Ge),
                };
                // The first parts are in this order in any case: by that an index finds the rows.
                let is_plain = |(l, r): &&(Bound, Bound)| !l.expr.is_volatile() && !r.expr.is_volatile();
                let first = pairs.first().filter(is_plain).filter(|_| pairs.len() > 1).cloned();
                let Some((l, r)) = pairs.pop() else {
                    return Err(SqlError::unsupported("a comparison of empty rows").into());
                };
                let mut rest = self.compare(op, l, r)?.expr;
                for (l, r) in pairs.into_iter().rev() {
                    let before = self.compare(strict, l.clone(), r.clone())?.expr;
                    let equal = self.compare(BinaryOp::Eq, l, r)?.expr;
                    rest = Expr::Or(vec![before, Expr::And(vec![equal, rest])]);
                }
                match first {
                    Some((l, r)) => Expr::And(vec![self.compare(loose, l, r)?.expr, rest]),
                    None => rest,
                }
            }
        };
        Ok(Bound::new(expr, Type::Bool))
    }

    /// A row is null if all its parts are, and not null if none is.
    pub(super) fn row_is_null(&mut self, items: &[&ast::Expr], negated: bool, scope: &Scope) -> Bind<Bound> {
        let mut parts = Vec::with_capacity(items.len());
        for item in self.row(items, scope)? {
            let expr = Box::new(self.known(item)?.expr);
            parts.push(Expr::IsNull { expr, negated });
        }
        Ok(Bound::new(Expr::And(parts), Type::Bool))
    }

    pub(super) fn rows_distinct(
        &mut self,
        left: &[&ast::Expr],
        right: &[&ast::Expr],
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        if left.len() != right.len() {
            return Err(SqlError::new("42601", "unequal number of entries in row expressions").into());
        }
        let (left, right) = (self.row(left, scope)?, self.row(right, scope)?);
        let mut parts = Vec::with_capacity(left.len());
        for (l, r) in left.into_iter().zip(right) {
            let (operator, left, right) = self.comparison(BinaryOp::Eq, l, r)?;
            parts.push(Expr::Distinct { operator, left: Box::new(left), right: Box::new(right), negated });
        }
        Ok(Bound::new(if negated { Expr::And(parts) } else { Expr::Or(parts) }, Type::Bool))
    }

    pub(super) fn row_in_list(
        &mut self,
        items: &[&ast::Expr],
        list: &[ast::Expr],
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let mut equal = Vec::with_capacity(list.len());
        for row in list {
            let Some(row) = row_items(row) else {
                return Err(Refusal::Error(SqlError::new("42601", "unequal number of entries in row expressions")));
            };
            equal.push(self.rows(items, BinaryOp::Eq, &row, scope)?.expr);
        }
        let any = if equal.len() == 1 { equal.remove(0) } else { Expr::Or(equal) };
        Ok(Bound::new(if negated { Expr::Not(Box::new(any)) } else { any }, Type::Bool))
    }
}

fn unnested(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) => inner,
        other => other,
    }
}
