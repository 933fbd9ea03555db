//! How does a syntax tree become a typed expression? Names, parameter types, implicit casts, constant folding.
//!
//! Literals in quotes, NULL and parameters start without a type and take the one their context asks for, as in
//! PostgreSQL: the other side of a comparison, the column they are assigned to, the type they are cast to.

use super::more::{interval_args, is_operator_function, operator_function, row_items};
use super::names::{RelationName, within_database};
use super::record::{RECORD, RecordsAre, must_compare};
use super::scope::{Found, Scope, SourceName, fold};
use super::types::{kept_enum, type_of};
use super::{Bind, Binder, PLACEHOLDERS, Parts, Refusal};
use crate::catalog::Known;
use crate::compiled::aggregate::{Aggregate, AggregateFunction};
use crate::error::SqlError;
use crate::expr::{Env, EnvValue, Expr, Frame, evaluate};
use crate::parse::printed::national;
use crate::parse::{DEPTH_MAX, span_position};
use crate::value::aggregate::Gathered;
use crate::value::cast::{self, CastContext, common_type, number_literal};
use crate::value::datetime::{INFINITY, is_beyond_timestamps};
use crate::value::function::Function;
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::pgtype::{LENGTH_MAX, NUMERIC, SECOND_DIGITS_MAX, UNLIMITED, name as type_name};
use crate::value::{self, Clock, Datum};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{NetworkKind, OidKind, Type};
use sqlparser::ast::{
    self, BinaryOperator as Symbol, CaseWhen, CastKind, CeilFloorKind, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, Spanned, TrimWhereField, UnaryOperator, helpers::attached_token::AttachedToken,
};
use sqlparser::tokenizer::Span;

/// An expression with its type; `None` while the context has not given one.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    pub expr: Expr,
    pub ty: Option<Type>,
    /// Where a literal stands.
    span: Span,
}

impl Bound {
    pub(super) fn untyped(expr: Expr) -> Bound {
        Bound { expr, ty: None, span: Span::empty() }
    }

    pub fn new(expr: Expr, ty: Type) -> Bound {
        Bound { expr, ty: Some(ty), span: Span::empty() }
    }
}

/// A literal whose meaning the session's zone, clock or search path has a part in, as the type that it was given.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionLiteral {
    pub text: String,
    pub ty: Type,
    span: Span,
}

impl SessionLiteral {
    /// Whether it is the literal that stands there.
    pub fn is_at(&self, value: &ast::ValueWithSpan) -> bool {
        self.span == value.span
            && self.span != Span::empty()
            && value.clone().into_string().is_some_and(|text| text == self.text)
    }
}

/// Whether values are objects of users, which literals find by their names.
fn finds_objects(ty: Type) -> bool {
    match ty {
        Type::Array(element) => finds_objects(*element),
        Type::Oid(kind) => matches!(kind, OidKind::Class | OidKind::Namespace | OidKind::Role),
        Type::Enum(_) => true,
        _ => false,
    }
}

/// The type of a literal that no context has given one.
const UNKNOWN_OID: i64 = 705;

/// How a parameter that meets a value of this type is typed: without the modifier, so that what a column could not hold
/// compares as what it is.
fn parameter_type(ty: Type) -> Type {
    match cast::without_modifier(ty) {
        Type::Varchar(_) => Type::Text,
        other => other,
    }
}

impl Binder<'_> {
    pub fn bind(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        crate::parse::wanted::check()?;
        self.depth += 1;
        if self.depth > 2 * DEPTH_MAX {
            return Err(SqlError::new("54001", "stack depth limit exceeded").into());
        }
        let bound = self.bind_inner(ast, scope).map_err(|refusal| match refusal {
            Refusal::Error(error) => Refusal::Error(error.at(span_position(self.sql, ast.span()))),
            other => other,
        });
        self.depth -= 1;
        let Bound { expr, ty, .. } = bound?;
        let span = if ty.is_none() { ast.span() } else { Span::empty() };
        Ok(Bound { expr: fold_constant(expr), ty, span })
    }

    fn bind_inner(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        use ast::Expr as A;
        if let Some(bound) = self.row_field(ast, scope)? {
            return Ok(bound);
        }
        if let Some(beyond) = self.beyond {
            // What a subquery finds around it is this query's.
            let outer_columns = self.outer_columns;
            if let Some(bound) = beyond.expression(self, ast, scope)? {
                self.outer_columns = outer_columns;
                return Ok(bound);
            }
        }
        if let Some(row) = self.row_of_columns(ast, scope)? {
            return Ok(row);
        }
        if let Some(items) = row_items(ast).filter(|_| !matches!(ast, A::Nested(_))) {
            return self.row_value(&items, scope);
        }
        match ast {
            A::Identifier(ident) => self.name(ident, scope),
            A::QualifiedWildcard(name, _) => {
                let name = self.source_name(RelationName::of(name)?);
                if let Some(row) = self.whole_row(&name, scope)? {
                    return Ok(row);
                }
                let missing = self.source_meant(&name, scope).map(drop);
                Err(missing.expect_err("a source that is there has a row").into())
            }
            A::CompoundIdentifier(parts) => self.compound(parts, scope),
            A::Value(value) => self.literal(&value.value),
            A::Nested(inner) => self.bind(inner, scope),
            A::BinaryOp { left, op, right } => self.binary(ast, left, op, right, scope),
            A::UnaryOp { op, expr } => self.unary(op, expr, scope),
            A::IsNull(e) => self.is_null(e, false, scope),
            A::IsNotNull(e) => self.is_null(e, true, scope),
            A::IsTrue(e) => self.is_truth(e, true, false, scope),
            A::IsNotTrue(e) => self.is_truth(e, true, true, scope),
            A::IsFalse(e) => self.is_truth(e, false, false, scope),
            A::IsNotFalse(e) => self.is_truth(e, false, true, scope),
            A::IsUnknown(e) => self.is_unknown(e, false, scope),
            A::IsNotUnknown(e) => self.is_unknown(e, true, scope),
            A::IsDistinctFrom(l, r) => self.distinct(l, r, false, scope),
            A::IsNotDistinctFrom(l, r) => self.distinct(l, r, true, scope),
            A::InList { expr, list, negated } => self.in_list(expr, list, *negated, scope),
            A::Between { expr, negated, low, high } => self.between(expr, low, high, *negated, scope),
            A::Like { negated, any: false, expr, pattern, escape_char } if !self.is_more(ast) => {
                self.like(expr, pattern, escape_char, false, *negated, scope)
            }
            A::ILike { negated, any: false, expr, pattern, escape_char } if !self.is_more(ast) => {
                self.like(expr, pattern, escape_char, true, *negated, scope)
            }
            A::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, array: false, format: None } => {
                let to = type_of(data_type, self.schema)?;
                if let Some(number) = kept_label(expr, data_type, to) {
                    self.check_label(number, to)?;
                    return Ok(Bound::new(Expr::Const(Datum::Int(number)), to));
                }
                if let Some(number) = bits_of(expr, to)? {
                    return Ok(Bound::new(Expr::Const(Datum::Int(number)), to));
                }
                if let A::Array(array) = bare(expr)
                    && let Some(bound) = self.typed_array(array, to, scope)?
                {
                    return Ok(bound);
                }
                let inner = self.bind(expr, scope)?;
                Ok(Bound::new(self.explicit_cast(inner, to)?, to))
            }
            A::TypedString(ast::TypedString { data_type, value, uses_odbc_syntax: false }) => {
                let to = type_of(data_type, self.schema)?;
                let inner = Bound { span: value.span, ..self.literal(&value.value)? };
                Ok(Bound::new(self.explicit_cast(inner, to)?, to))
            }
            A::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope)
            }
            A::Function(function) => self.function(function, scope),
            A::Ceil { expr, field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.call("ceil", &[expr], scope)
            }
            A::Floor { expr, field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.call("floor", &[expr], scope)
            }
            A::Position { expr, r#in } => self.call("position", &[r#in, expr], scope),
            A::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                self.substring(expr, substring_from.as_deref(), substring_for.as_deref(), scope)
            }
            A::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut args: Vec<&ast::Expr> = vec![expr];
                args.extend(trim_what.as_deref());
                args.extend(trim_characters.iter().flatten());
                self.call(name, &args, scope)
            }
            A::Extract { field, syntax: _, expr } => {
                let field = match field {
                    ast::DateTimeField::Custom(field) => field.value.clone(),
                    plain => plain.to_string(),
                };
                let field = Bound::new(text(&field.to_lowercase()), Type::Text);
                let from = self.bind(expr, scope)?;
                self.call_bound("extract", vec![field, from])
            }
            A::Subquery(query) => self.scalar_subquery(query).map_err(|refusal| self.placed(refusal, ast)),
            A::Exists { subquery, negated } => {
                self.exists_subquery(subquery, *negated).map_err(|refusal| self.placed(refusal, ast))
            }
            A::InSubquery { expr, subquery, negated } => {
                self.in_subquery(expr, subquery, *negated, scope).map_err(|refusal| self.placed(refusal, ast))
            }
            other if self.is_more(other) => self.more(other, scope),
            other => Err(self.not_compiled(&format!("the expression {other}"), ast)),
        }
    }

    /// Says where what is not compiled stands.
    fn placed(&self, refusal: Refusal, ast: &ast::Expr) -> Refusal {
        match refusal {
            Refusal::NotCompiled { what, position: None } => self.not_compiled(&what, ast),
            other => other,
        }
    }

    pub fn not_compiled(&self, what: &str, ast: &ast::Expr) -> Refusal {
        Refusal::NotCompiled { what: what.to_owned(), position: span_position(self.sql, ast.span()) }
    }

    // ---- leaves

    fn name(&mut self, ident: &Ident, scope: &Scope) -> Bind<Bound> {
        let name = fold(ident);
        let error = match scope.column(&name) {
            Ok(found) => return Ok(self.column(found, scope)),
            Err(error) => error.at(span_position(self.sql, ident.span)),
        };
        let is_missing = error.sqlstate == "42703";
        if let Some(table) = scope.tableoid(None, &name)? {
            return Ok(table_oid(table));
        }
        if let Some(xmax) = self.xmax_of_new_row(&name, scope) {
            return Ok(xmax);
        }
        let outer = self.outer_column(std::slice::from_ref(&name), None, error);
        match outer {
            Err(Refusal::Error(error)) if is_missing && error.sqlstate == "42703" => {
                match (self.whole_row(&SourceName::bare(name.clone()), scope)?, self.beyond) {
                    (Some(row), _) => Ok(row),
                    (None, Some(beyond)) => beyond.outer_row(self, &name)?.ok_or(Refusal::Error(error)),
                    (None, None) => Err(Refusal::Error(error)),
                }
            }
            outer => outer,
        }
    }

    fn compound(&mut self, parts: &[Ident], scope: &Scope) -> Bind<Bound> {
        let mut names: Vec<String> = parts.iter().map(fold).collect();
        within_database(&mut names, 4)?;
        let (source, column) = match names.as_slice() {
            [source, column] => (SourceName::bare(source.clone()), column),
            [namespace, source, column] => {
                let relation = RelationName { namespace: Some(namespace.clone()), name: source.clone() };
                (self.source_name(relation), column)
            }
            _ => return Err(SqlError::new("42P01", format!("invalid reference to {}", names.join("."))).into()),
        };
        let position = parts.first().and_then(|i| span_position(self.sql, i.span));
        match self.column_of(&names, &source, column, scope) {
            Err(Refusal::Error(error)) if error.sqlstate == "42P01" && self.is_kept => {
                let lenient = self.column_of(&names, &source.leniently(), column, scope);
                lenient.map_err(|refusal| match refusal {
                    Refusal::Error(other) if other.sqlstate == "42P01" => error.at(position).into(),
                    other => other,
                })
            }
            Err(Refusal::Error(error)) => Err(error.at(position).into()),
            bound => bound,
        }
    }

    /// A column of a source that is named, here or around.
    fn column_of(&mut self, names: &[String], source: &SourceName, column: &str, scope: &Scope) -> Bind<Bound> {
        match scope.qualified(source, column) {
            Ok(found) => Ok(self.column(found, scope)),
            Err(error) => match scope.tableoid(Some(source), column)? {
                Some(table) => Ok(table_oid(table)),
                None => match self.xmax_of_new_row(column, scope).filter(|_| scope.source_named(source).is_ok()) {
                    Some(xmax) => Ok(xmax),
                    None => self.outer_column(names, Some(source), error),
                },
            },
        }
    }

    /// What `(xmax = 0)` asks, the usual way to find out whether an upsert inserted.
    fn xmax_of_new_row(&mut self, name: &str, scope: &Scope) -> Option<Bound> {
        // Not where a subquery's own sources are asked.
        let of = scope.sources.first().and_then(|source| source.table.as_ref()).map(|table| table.id);
        let xmax = self.xmax.as_mut().filter(|xmax| name == "xmax" && of == Some(xmax.of))?;
        xmax.is_asked = true;
        let value = if xmax.is_updated { Expr::Env(EnvValue::Xid) } else { Expr::Const(Datum::Int(0)) };
        Some(Bound::new(value, Type::Oid(OidKind::Xid)))
    }

    /// A column of a query around this one, or the error that there is none here.
    fn outer_column(&mut self, names: &[String], source: Option<&SourceName>, error: SqlError) -> Bind<Bound> {
        // A source of this name hides those around it, whatever columns it has.
        let missing = error.sqlstate == "42P01" || error.sqlstate == "42703" && names.len() == 1;
        let outer = match self.beyond {
            Some(beyond) if missing => beyond.outer_column(names, source)?,
            None if missing => names.last().and_then(|name| self.column_around(source, name)),
            _ => None,
        };
        self.outer_columns += usize::from(outer.is_some());
        outer.ok_or(Refusal::Error(error))
    }

    fn column(&mut self, found: Found, scope: &Scope) -> Bound {
        Bound::new(scope.expr(found), found.ty)
    }

    pub(super) fn literal(&mut self, value: &ast::Value) -> Bind<Bound> {
        use ast::Value as V;
        Ok(match value {
            V::Null => Bound::untyped(Expr::NULL),
            V::Boolean(b) => Bound::new(Expr::Const(Datum::Bool(*b)), Type::Bool),
            V::Number(digits, false) => {
                let (ty, datum) =
                    number_literal(digits).map_err(|_| SqlError::new("22003", "value overflows numeric format"))?;
                Bound::new(Expr::Const(datum), ty)
            }
            V::SingleQuotedString(s) | V::EscapedStringLiteral(s) | V::UnicodeStringLiteral(s) => {
                Bound::untyped(text(s))
            }
            V::DollarQuotedString(s) => Bound::untyped(text(&s.value)),
            V::NationalStringLiteral(s) => Bound::new(text(&national(s)), Type::Char(UNLIMITED)),
            V::Placeholder(name) => return self.parameter(name),
            other => return Err(SqlError::unsupported(format!("the literal {other}")).into()),
        })
    }

    fn parameter(&mut self, name: &str) -> Bind<Bound> {
        let number = name.strip_prefix('$').and_then(|n| n.parse::<u16>().ok());
        let Some(number) = number.filter(|&n| n > 0) else {
            return Err(SqlError::new("42P02", format!("there is no parameter {name}")).into());
        };
        if self.parameters.len() < usize::from(number) {
            self.parameters.resize(usize::from(number), None);
        }
        let ty = self.parameters[usize::from(number) - 1];
        Ok(Bound { expr: Expr::Param(number - 1), ty, span: Span::empty() })
    }

    // ---- operators

    fn binary(
        &mut self,
        ast: &ast::Expr,
        left: &ast::Expr,
        op: &Symbol,
        right: &ast::Expr,
        scope: &Scope,
    ) -> Bind<Bound> {
        use Symbol as B;
        if let B::PGCustomBinaryOperator(parts) = op
            && let Some(plain) = super::more::named_operator(parts)
        {
            return self.binary(ast, left, &plain, right, scope);
        }
        let comparison = match op {
            B::And => return self.junction(ast, &B::And, Expr::And, scope),
            B::Or => return self.junction(ast, &B::Or, Expr::Or, scope),
            B::Eq => Some(BinaryOp::Eq),
            B::NotEq => Some(BinaryOp::Ne),
            B::Lt => Some(BinaryOp::Lt),
            B::LtEq => Some(BinaryOp::Le),
            B::Gt => Some(BinaryOp::Gt),
            B::GtEq => Some(BinaryOp::Ge),
            _ => None,
        };
        if let Some(op) = comparison {
            if let (Some(l), Some(r)) = (row_items(left), row_items(right)) {
                return self.rows(&l, op, &r, scope);
            }
            let (l, r) = (self.bind(left, scope)?, self.bind(right, scope)?);
            let how = match op {
                BinaryOp::Eq => RecordsAre::Equal,
                BinaryOp::Ne => RecordsAre::Unequal,
                op => RecordsAre::Ordered(op),
            };
            let of_records = self.compare_records(how, (left, &l), (right, &r), scope)?;
            return of_records.map_or_else(|| self.compare(op, l, r), Ok);
        }
        let insensitive = match op {
            B::PGLikeMatch => Some((false, false)),
            B::PGNotLikeMatch => Some((false, true)),
            B::PGILikeMatch => Some((true, false)),
            B::PGNotILikeMatch => Some((true, true)),
            _ => None,
        };
        if let Some((insensitive, negated)) = insensitive {
            return self.like(left, right, &None, insensitive, negated, scope);
        }
        if *op == B::Overlaps
            && let (Some([a, b]), Some([c, d])) = (row_items(left).as_deref(), row_items(right).as_deref())
        {
            return self.overlaps([(*a, *b), (*c, *d)], scope);
        }
        if let Some(symbol) = operator_function(op) {
            let (left, right) = (self.bind(left, scope)?, self.bind(right, scope)?);
            let left = if matches!(symbol, "~" | "~*" | "!~" | "!~*") { self.with_blanks(left)? } else { left };
            if symbol == "&&" && left.ty.is_none() && right.ty.is_none() {
                return Err(SqlError::new("42725", "operator is not unique: unknown && unknown").into());
            }
            return self.call_bound(symbol, vec![left, right]);
        }
        let op = match op {
            B::Plus => BinaryOp::Add,
            B::Minus => BinaryOp::Sub,
            B::Multiply => BinaryOp::Mul,
            B::Divide => BinaryOp::Div,
            B::Modulo => BinaryOp::Mod,
            B::PGExp => BinaryOp::Power,
            B::BitwiseAnd => BinaryOp::BitAnd,
            B::BitwiseOr => BinaryOp::BitOr,
            B::PGBitwiseXor => BinaryOp::BitXor,
            B::PGBitwiseShiftLeft => BinaryOp::ShiftLeft,
            B::PGBitwiseShiftRight => BinaryOp::ShiftRight,
            B::StringConcat => BinaryOp::Concat,
            _ => return Err(self.not_compiled(&format!("the operator {op}"), ast)),
        };
        let (mut left, mut right) = (self.bind(left, scope)?, self.bind(right, scope)?);
        if is_operator_function(op, left.ty, right.ty) {
            return self.call_bound(op.symbol(), vec![left, right]);
        }
        let operator = BinaryOperator::resolve(op, left.ty, right.ty)?;
        if op == BinaryOp::Concat {
            // As text by the session's clock, where that matters.
            left = self.shown(left)?;
            right = self.shown(right)?;
        }
        let operator = if op == BinaryOp::Concat { BinaryOperator::resolve(op, left.ty, right.ty)? } else { operator };
        let left = Box::new(self.coerce(left, operator.left, CastContext::Implicit)?);
        let right = Box::new(self.coerce(right, operator.right, CastContext::Implicit)?);
        Ok(Bound::new(Expr::Binary { operator, left, right }, operator.result))
    }

    /// A chain of ANDs or ORs is a deep tree in the syntax and one list here.
    fn junction(&mut self, ast: &ast::Expr, op: &Symbol, build: fn(Vec<Expr>) -> Expr, scope: &Scope) -> Bind<Bound> {
        let mut parts = Vec::new();
        let mut rest = ast;
        while let ast::Expr::BinaryOp { left, op: inner, right } = rest {
            if inner != op {
                break;
            }
            parts.push(right.as_ref());
            rest = left;
        }
        parts.push(rest);
        let name = if *op == Symbol::And { "AND" } else { "OR" };
        let mut list = Vec::with_capacity(parts.len());
        for part in parts.into_iter().rev() {
            match self.condition(part, name, scope)? {
                Expr::And(inner) if *op == Symbol::And => list.extend(inner),
                Expr::Or(inner) if *op == Symbol::Or => list.extend(inner),
                other => list.push(other),
            }
        }
        Ok(Bound::new(build(list), Type::Bool))
    }

    fn unary(&mut self, op: &UnaryOperator, expr: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        match op {
            UnaryOperator::Not => {
                let inner = self.condition(expr, "NOT", scope)?;
                Ok(Bound::new(Expr::Not(Box::new(inner)), Type::Bool))
            }
            UnaryOperator::Minus | UnaryOperator::Plus => {
                if let Some((ty, least)) = negative_literal(op, expr) {
                    return Ok(Bound::new(Expr::Const(least), ty));
                }
                let inner = self.bind(expr, scope)?;
                if inner.ty.map(Type::unrounded) == Some(Type::Interval) {
                    return if *op == UnaryOperator::Plus { Ok(inner) } else { self.call_bound("-", vec![inner]) };
                }
                if inner.ty.is_none() && matches!(inner.expr, Expr::Const(_)) {
                    let error = SqlError::new("42725", format!("operator is not unique: {op} unknown"));
                    return Err(error
                        .with_hint(
                            "Could not choose a best candidate operator. You might need to add explicit type casts.",
                        )
                        .into());
                }
                let ty = inner.ty.unwrap_or(Type::Float8);
                if cast::context(ty, Type::Float8) != Some(CastContext::Implicit) {
                    return Err(
                        SqlError::new("42883", format!("operator does not exist: {op} {}", type_name(ty))).into()
                    );
                }
                let inner = self.coerce(inner, ty, CastContext::Implicit)?;
                if *op == UnaryOperator::Plus {
                    return Ok(Bound::new(inner, ty));
                }
                let expr = Box::new(inner);
                Ok(Bound::new(Expr::Negate { expr, ty }, ty))
            }
            other => {
                let symbol = match other {
                    UnaryOperator::BitwiseNot => "~",
                    UnaryOperator::PGSquareRoot => "|/",
                    UnaryOperator::PGCubeRoot => "||/",
                    UnaryOperator::PGAbs => "abs",
                    _ => {
                        return Err(Refusal::NotCompiled {
                            what: format!("the operator {other}"),
                            position: span_position(self.sql, expr.span()),
                        });
                    }
                };
                let inner = self.bind(expr, scope)?;
                self.call_bound(symbol, vec![inner])
            }
        }
    }

    pub fn compare(&mut self, op: BinaryOp, left: Bound, right: Bound) -> Bind<Bound> {
        let (operator, left, right) = self.comparison(op, left, right)?;
        Ok(Bound::new(Expr::Compare { operator, left: Box::new(left), right: Box::new(right) }, Type::Bool))
    }

    /// The operator and the sides as it wants them.
    pub(super) fn comparison(&mut self, op: BinaryOp, left: Bound, right: Bound) -> Bind<(BinaryOperator, Expr, Expr)> {
        let (left, right) = self.moments_alike(left, right)?;
        let operator = BinaryOperator::resolve(op, left.ty, right.ty)?;
        let left = self.coerce(beyond_timestamps(left, operator.left), operator.left, CastContext::Implicit)?;
        let right = self.coerce(beyond_timestamps(right, operator.right), operator.right, CastContext::Implicit)?;
        Ok((operator, left, right))
    }

    fn is_null(&mut self, expr: &ast::Expr, negated: bool, scope: &Scope) -> Bind<Bound> {
        if let Some(items) = row_items(expr) {
            return self.row_is_null(&items, negated, scope);
        }
        if let Some(bound) = self.whole_row_is_null(expr, negated, scope)? {
            return Ok(bound);
        }
        let inner = self.bind(expr, scope)?;
        let expr = Box::new(self.known(inner)?.expr);
        Ok(Bound::new(Expr::IsNull { expr, negated }, Type::Bool))
    }

    fn is_truth(&mut self, expr: &ast::Expr, value: bool, negated: bool, scope: &Scope) -> Bind<Bound> {
        let expr = Box::new(self.condition(expr, "IS", scope)?);
        Ok(Bound::new(Expr::IsTruth { expr, value, negated }, Type::Bool))
    }

    fn is_unknown(&mut self, expr: &ast::Expr, negated: bool, scope: &Scope) -> Bind<Bound> {
        let expr = Box::new(self.condition(expr, "IS", scope)?);
        Ok(Bound::new(Expr::IsNull { expr, negated }, Type::Bool))
    }

    fn distinct(&mut self, left: &ast::Expr, right: &ast::Expr, negated: bool, scope: &Scope) -> Bind<Bound> {
        if let (Some(l), Some(r)) = (row_items(left), row_items(right)) {
            return self.rows_distinct(&l, &r, negated, scope);
        }
        let (l, r) = (self.bind(left, scope)?, self.bind(right, scope)?);
        let how = if negated { RecordsAre::NotDistinct } else { RecordsAre::Distinct };
        if let Some(compared) = self.compare_records(how, (left, &l), (right, &r), scope)? {
            return Ok(compared);
        }
        let (operator, left, right) = self.comparison(BinaryOp::Eq, l, r)?;
        Ok(Bound::new(Expr::Distinct { operator, left: Box::new(left), right: Box::new(right), negated }, Type::Bool))
    }

    fn in_list(&mut self, expr: &ast::Expr, list: &[ast::Expr], negated: bool, scope: &Scope) -> Bind<Bound> {
        if let Some(items) = row_items(expr) {
            return self.row_in_list(&items, list, negated, scope);
        }
        let mut wanted = self.bind(expr, scope)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            items.push(self.bind(item, scope)?);
        }
        if wanted.ty == Some(RECORD) {
            return self.record_in_list((expr, &wanted), list.iter().zip(&items), negated, scope);
        }
        if wanted.ty.is_none() {
            let types: Vec<Option<Type>> = items.iter().map(|i| i.ty).collect();
            let ty = common_type("IN", &types)?;
            wanted = Bound::new(self.coerce(wanted, ty, CastContext::Implicit)?, ty);
        }
        let items = self.alike_in_list(&wanted, items)?;
        let mut compared = Vec::with_capacity(items.len());
        for item in items {
            compared.push(self.comparison(BinaryOp::Eq, wanted.clone(), item)?);
        }
        let first = compared.first().map_or_else(|| wanted.expr.clone(), |(_, value, _)| value.clone());
        if compared.iter().all(|(_, value, _)| *value == first) {
            let list = compared.into_iter().map(|(operator, _, item)| (operator, item)).collect();
            return Ok(Bound::new(Expr::one_of(Box::new(first), list, negated), Type::Bool));
        }
        // What is looked for is another value for some of them: a date as a moment.
        let equal = |(operator, value, item)| Expr::Compare { operator, left: Box::new(value), right: Box::new(item) };
        let any = Expr::Or(compared.into_iter().map(equal).collect());
        Ok(Bound::new(if negated { Expr::Not(Box::new(any)) } else { any }, Type::Bool))
    }

    /// Of several items without columns PostgreSQL makes an array: they have one type, which the value's counts for too. Exact numbers of
    /// different types compare as if they had it.
    fn alike_in_list(&mut self, wanted: &Bound, items: Vec<Bound>) -> Bind<Vec<Bound>> {
        let is_plain = |item: &Bound| !item.expr.mentions(|source| source < PLACEHOLDERS) && !item.expr.has_aggregate();
        let plain = items.iter().filter(|item| is_plain(item));
        let types: Vec<Option<Type>> = std::iter::once(wanted.ty).chain(plain.map(|item| item.ty)).collect();
        let is_other = |ty: &Type| wanted.ty.is_some_and(|wanted| !cast::same_base(wanted, *ty));
        // 'pg_class'::regclass in ('pg_class', 'pg_type'): names, where a single one would have to be a number.
        let are_names = matches!(wanted.ty, Some(Type::Oid(_))) && types.contains(&None);
        if types.len() < 3 || !are_names && !types.iter().flatten().any(is_other) {
            return Ok(items);
        }
        let Ok(common) = common_type("IN", &types) else {
            return Ok(items);
        };
        let is_exact = |ty: Type| cast::is_integer(ty) || cast::is_numeric(ty);
        let mut alike = Vec::with_capacity(items.len());
        for item in items {
            let is_same = item.ty.is_some_and(|ty| is_exact(ty) && is_exact(common));
            alike.push(match is_plain(&item) && !is_same {
                true => Bound::new(self.coerce(item, common, CastContext::Implicit)?, common),
                false => item,
            });
        }
        Ok(alike)
    }

    /// A `char(n)` as text with its blanks: patterns see them.
    pub(super) fn with_blanks(&mut self, bound: Bound) -> Bind<Bound> {
        match bound.ty {
            Some(Type::Char(length)) if length <= LENGTH_MAX => {
                let length = Bound::new(Expr::Const(Datum::Int(length.into())), Type::Int4);
                self.call_bound("rpad", vec![bound, length])
            }
            _ => Ok(bound),
        }
    }

    fn between(
        &mut self,
        expr: &ast::Expr,
        low: &ast::Expr,
        high: &ast::Expr,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let (low, high) = match (row_items(expr), row_items(low), row_items(high)) {
            (Some(row), Some(low), Some(high)) => {
                (self.rows(&row, BinaryOp::Ge, &low, scope)?, self.rows(&row, BinaryOp::Le, &high, scope)?)
            }
            _ => {
                let value = self.bind(expr, scope)?;
                let low = self.bind(low, scope)?;
                let low = self.compare(BinaryOp::Ge, value.clone(), low)?;
                // By now a parameter may have its type: x BETWEEN $1 AND $1 + y.
                let value = if value.ty.is_none() { self.bind(expr, scope)? } else { value };
                let high = self.bind(high, scope)?;
                (low, self.compare(BinaryOp::Le, value, high)?)
            }
        };
        let both = Expr::And(vec![low.expr, high.expr]);
        let expr = if negated { Expr::Not(Box::new(both)) } else { both };
        Ok(Bound::new(expr, Type::Bool))
    }

    fn like(
        &mut self,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: &Option<ast::ValueWithSpan>,
        insensitive: bool,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let escape = match escape.as_ref().map(|v| &v.value) {
            None => Some('\\'),
            Some(ast::Value::SingleQuotedString(s) | ast::Value::EscapedStringLiteral(s)) => {
                let mut chars = s.chars();
                match (chars.next(), chars.next()) {
                    (first, None) => first,
                    _ => {
                        return Err(SqlError::new("22025", "invalid escape string")
                            .with_hint("Escape string must be empty or one character.")
                            .into());
                    }
                }
            }
            Some(other) => {
                return Err(SqlError::unsupported(format!("ESCAPE {other}")).into());
            }
        };
        let (value, pattern) = (self.bind(expr, scope)?, self.bind(pattern, scope)?);
        let op = if insensitive { BinaryOp::ILike } else { BinaryOp::Like };
        let operator = BinaryOperator::resolve(op, value.ty, pattern.ty)?;
        if operator.left == Type::Bytea {
            return self.like_bytes(value, pattern, escape, negated);
        }
        let value = match value.ty {
            Some(Type::Char(_)) => self.with_blanks(value)?.expr,
            _ => self.coerce(value, operator.left, CastContext::Implicit)?,
        };
        Ok(Bound::new(
            Expr::Like {
                expr: Box::new(value),
                pattern: Box::new(self.coerce(pattern, operator.right, CastContext::Implicit)?),
                escape,
                insensitive,
                negated,
            },
            Type::Bool,
        ))
    }

    fn like_bytes(&mut self, value: Bound, pattern: Bound, escape: Option<char>, negated: bool) -> Bind<Bound> {
        let escape = escape.map_or(Datum::Bytes(Box::default()), |c| Datum::Bytes(c.to_string().into_bytes().into()));
        let escape = Bound::new(Expr::Const(escape), Type::Bytea);
        let pattern = self.call_bound("like_escape", vec![pattern, escape])?;
        self.call_bound(if negated { "notlike" } else { "like" }, vec![value, pattern])
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&ast::Expr>,
        scope: &Scope,
    ) -> Bind<Bound> {
        let operand = operand.map(|o| self.bind(o, scope)).transpose()?;
        // What gives another value each time is asked once for all WHENs.
        let is_once = operand.as_ref().is_some_and(|operand| operand.expr.is_volatile());
        let once = is_once.then(|| self.next_given());
        let whole = operand.clone();
        let operand = operand.map(|operand| match once {
            Some(id) => Bound { expr: Expr::Given(id), ..operand },
            None => operand,
        });
        let mut tests = Vec::with_capacity(conditions.len());
        let mut results = Vec::with_capacity(conditions.len() + 1);
        for CaseWhen { condition, result } in conditions {
            tests.push(match &operand {
                None => self.condition(condition, "CASE/WHEN", scope)?,
                Some(operand) => {
                    let value = self.bind(condition, scope)?;
                    self.compare(BinaryOp::Eq, operand.clone(), value)?.expr
                }
            });
            results.push(self.bind(result, scope)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.bind(otherwise, scope)?);
        }
        // What ELSE gives comes first where types are chosen.
        let mut types: Vec<Option<Type>> = results.iter().map(|result| result.ty).collect();
        types.rotate_right(usize::from(otherwise.is_some()));
        let ty = common_type("CASE", &types)?;
        let mut results = self.coerce_all(results, ty)?;
        // Without ELSE there is a NULL of no digits.
        let ty = if otherwise.is_none() { ty.unrounded() } else { ty };
        let otherwise = otherwise.and_then(|_| results.pop()).map(Box::new);
        let case = Expr::Case { branches: tests.into_iter().zip(results).collect(), otherwise };
        let case = match (once, whole) {
            (Some(id), Some(whole)) => Expr::Let { id, value: Box::new(whole.expr), body: Box::new(case) },
            _ => case,
        };
        self.refuse_sets(&case, "CASE")?;
        Ok(Bound::new(case, ty))
    }

    /// What is computed for some rows only gives no sets.
    fn refuse_sets(&self, expr: &Expr, place: &str) -> Bind<()> {
        if !self.beyond.is_some_and(|beyond| beyond.has_set(expr)) {
            return Ok(());
        }
        let message = format!("set-returning functions are not allowed in {place}");
        let hint = "You might be able to move the set-returning function into a LATERAL FROM item.";
        Err(SqlError::new("0A000", message).with_hint(hint).into())
    }

    fn next_given(&mut self) -> u16 {
        self.given += 1;
        self.given
    }

    // ---- functions

    fn function(&mut self, function: &ast::Function, scope: &Scope) -> Bind<Bound> {
        if let Some(plain) = with_whole_rows(function, scope)? {
            return self.function(&plain, scope);
        }
        let ast::Function { name, uses_odbc_syntax, parameters, args, filter, null_treatment, over, within_group } =
            function;
        let whole = || ast::Expr::Function(function.clone());
        if over.is_some() {
            return Err(self.not_compiled("a window function", &whole()));
        }
        if *uses_odbc_syntax || *parameters != FunctionArguments::None || null_treatment.is_some() {
            return Err(self.not_compiled(&format!("the call {function}"), &whole()));
        }
        let name = name.to_string().to_lowercase().replace('"', "");
        let of_extension = name.strip_prefix("public.").filter(|own| Function::is_of_extension(own));
        let name = name.strip_prefix("pg_catalog.").or(of_extension).unwrap_or(&name);
        let gathered = match within_group.is_empty() {
            true => Gathered::named(name),
            false => Gathered::named(name).or_else(|| Gathered::hypothetical(name)),
        };
        if let Some(gathered) = gathered {
            return self.gathered_call(gathered, function, scope);
        }
        if !within_group.is_empty() {
            let message = format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
            return Err(SqlError::new("42809", message).into());
        }
        if let Some(aggregate) = AggregateFunction::named(name) {
            return self.aggregate(aggregate, name, args, filter.as_deref(), &whole(), scope);
        }
        if filter.is_some() {
            return Err(
                SqlError::new("42809", format!("FILTER specified, but {name} is not an aggregate function")).into()
            );
        }
        if matches!(args, FunctionArguments::None) {
            return match environment(name) {
                Some((value, ty)) => Ok(self.env(value, ty)),
                None => Err(self.not_compiled(name, &whole())),
            };
        }
        if name == "make_interval"
            && let Some(args) = interval_args(args)
        {
            return self.call(name, &args.iter().collect::<Vec<_>>(), scope);
        }
        let args =
            plain_args(args).ok_or_else(|| self.not_compiled(&format!("the arguments of {function}"), &whole()))?;
        if let Some((array, before)) = spread_array(&args) {
            return self.spread_call(name, before, array, scope);
        }
        if let Some(bound) = self.sequence_call(name, &args, scope)? {
            return Ok(bound);
        }
        if let Some(bound) = self.key_call(name, &args, scope)? {
            return Ok(bound);
        }
        if args.is_empty()
            && let Some((value, ty)) = environment_call(name)
        {
            return Ok(self.env(value, ty));
        }
        if let [digits] = args.as_slice()
            && let Some((value, ty)) = environment(name).filter(|(_, ty)| ty.rounded(0).is_some())
        {
            return self.rounded_clock(value, ty, digits);
        }
        match name {
            "coalesce" => {
                let bound = self.bind_all(&args, scope)?;
                let ty = self.common_of("COALESCE", &bound)?;
                let all = Expr::Coalesce(self.coerce_all(bound, ty)?);
                self.refuse_sets(&all, "COALESCE")?;
                Ok(Bound::new(all, ty))
            }
            "greatest" | "least" => {
                let bound = self.bind_all(&args, scope)?;
                let ty = self.common_of(&name.to_uppercase(), &bound)?;
                let list = self.coerce_all(bound, ty)?;
                let greatest = name == "greatest";
                Ok(Bound::new(Expr::Extreme { greatest, list, ty }, ty))
            }
            "quote_literal" | "quote_nullable" if args.len() == 1 => {
                let bound = self.bind(args[0], scope)?;
                let shown = Bound::new(self.explicit_cast(bound, Type::Text)?, Type::Text);
                self.call_bound(name, vec![shown])
            }
            "nullif" if args.len() == 2 => self.nullif(args[0], args[1], scope),
            "pg_typeof" if args.len() == 1 => {
                let bound = self.bind(args[0], scope)?;
                match (bound.ty, &bound.expr) {
                    (None, Expr::Const(_)) => {
                        Ok(Bound::new(Expr::Const(Datum::Int(UNKNOWN_OID)), Type::Oid(OidKind::Type)))
                    }
                    _ => self.call_bound(name, vec![bound]),
                }
            }
            "current_setting" if matches!(args.len(), 1 | 2) => {
                let name = self.bind(args[0], scope)?;
                let name = Box::new(self.coerce(name, Type::Text, CastContext::Implicit)?);
                let missing_ok = match args.get(1) {
                    None => false,
                    Some(ast::Expr::Value(v)) if v.value == ast::Value::Boolean(true) => true,
                    Some(ast::Expr::Value(v)) if v.value == ast::Value::Boolean(false) => false,
                    Some(other) => return Err(self.not_compiled("missing_ok", other)),
                };
                Ok(Bound::new(Expr::Setting { name, missing_ok }, Type::Text))
            }
            _ if args.len() == 1 => {
                let argument = self.bind(args[0], scope)?;
                match self.cast_by_name(name, &function.name, &argument)? {
                    Some(cast) => Ok(cast),
                    None => self.call_bound(name, vec![argument]),
                }
            }
            _ => self.call(name, &args, scope),
        }
    }

    /// `date(x)`: a type's name, called with one argument, is a cast where no function has the name.
    fn cast_by_name(&mut self, name: &str, written: &ObjectName, argument: &Bound) -> Bind<Option<Bound>> {
        let Some(ObjectNamePart::Identifier(last)) = written.0.last() else { return Ok(None) };
        let is_syntax = last.quote_style.is_none() && NAMES_OF_TYPES_ALONE.contains(&name);
        if is_syntax || Function::resolve(name, &[argument.ty]).is_ok() {
            return Ok(None);
        }
        let named = ast::DataType::Custom(written.clone(), Vec::new());
        let Some(to) = type_of(&named, self.schema).ok().filter(|to| !matches!(to, Type::Array(_))) else {
            return Ok(None);
        };
        match self.explicit_cast(argument.clone(), to) {
            Ok(expr) => Ok(Some(Bound::new(expr, to))),
            // PostgreSQL then has no such function.
            Err(Refusal::Error(error)) if error.sqlstate == "42846" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `current_timestamp(p)`.
    fn rounded_clock(&mut self, value: EnvValue, plain: Type, digits: &ast::Expr) -> Bind<Bound> {
        let ast::Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(number, false), .. }) = digits else {
            return Err(SqlError::new("42601", format!("syntax error at or near \"{digits}\"")).into());
        };
        let to = super::types::with_digits(plain, number.parse().unwrap_or(u64::MAX));
        let bound = self.env(value, plain);
        Ok(Bound::new(self.explicit_cast(bound, to)?, to))
    }

    fn env(&mut self, value: EnvValue, ty: Type) -> Bound {
        self.uses_clock |= matches!(
            value,
            EnvValue::Now
                | EnvValue::StatementTime
                | EnvValue::LocalTimestamp
                | EnvValue::CurrentDate
                | EnvValue::LocalTime
        );
        Bound::new(Expr::Env(value), ty)
    }

    fn nullif(&mut self, left: &ast::Expr, right: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        let (mut left, right) = (self.bind(left, scope)?, self.bind(right, scope)?);
        // A varchar has no equality of its own: it meets a char as one, and anything else as text. So does a char meet text.
        let own = match (left.ty, right.ty) {
            (Some(Type::Varchar(_)), Some(Type::Char(_))) => Some(Type::Char(UNLIMITED)),
            (Some(Type::Varchar(_)), _) | (Some(Type::Char(_)), Some(Type::Text)) => Some(Type::Text),
            _ => None,
        };
        if let Some(ty) = own {
            left = Bound::new(self.coerce(left, ty, CastContext::Implicit)?, ty);
        }
        if let (Some(given), Some(other)) = (left.ty, right.ty) {
            let ty = nullif_type(given, other);
            left = Bound::new(self.coerce(left, ty, CastContext::Implicit)?, ty);
        }
        let given = left.ty;
        let uncast = left.clone();
        let (operator, left, right) = self.comparison(BinaryOp::Eq, left, right)?;
        if let Some(ty) = given.filter(|ty| !cast::same_base(*ty, operator.left)) {
            // It is compared as another type, and given as its own.
            let is_equal = Expr::Compare { operator, left: Box::new(left), right: Box::new(right) };
            let value = Expr::Case { branches: vec![(is_equal, Expr::NULL)], otherwise: Some(Box::new(uncast.expr)) };
            return Ok(Bound::new(value, ty));
        }
        // A literal without a type takes the one that it is compared as.
        let ty = given.unwrap_or(operator.left);
        Ok(Bound::new(Expr::NullIf { operator, left: Box::new(left), right: Box::new(right) }, ty))
    }

    fn substring(
        &mut self,
        expr: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
        scope: &Scope,
    ) -> Bind<Bound> {
        let mut args = vec![self.bind(expr, scope)?];
        args.push(match from {
            Some(from) => self.bind(from, scope)?,
            None => Bound::new(Expr::Const(Datum::Int(1)), Type::Int4),
        });
        if let Some(length) = length {
            args.push(self.bind(length, scope)?);
        }
        self.call_bound("substring", args)
    }

    pub(super) fn call(&mut self, name: &str, args: &[&ast::Expr], scope: &Scope) -> Bind<Bound> {
        let bound = self.bind_all(args, scope)?;
        self.call_bound(name, bound)
    }

    pub(super) fn call_bound(&mut self, name: &str, args: Vec<Bound>) -> Bind<Bound> {
        let types: Vec<Option<Type>> = args.iter().map(|a| a.ty).collect();
        if name == "pg_collation_for" && types == [None] {
            // What has no type has no collation.
            return Ok(Bound::new(Expr::NULL, Type::Text));
        }
        let function = match Function::resolve(name, &types) {
            Ok(function) => function,
            Err(error) if self.beyond.is_none() && crate::road::has_other_road() && !Function::exists(name) => {
                return Err(Refusal::NotCompiled { what: error.message, position: None });
            }
            Err(error) => return Err(error.into()),
        };
        let mut exprs = Vec::with_capacity(args.len());
        for (arg, &ty) in args.into_iter().zip(&function.arguments) {
            exprs.push(self.coerce(arg, ty, CastContext::Implicit)?);
        }
        let result = function.result;
        self.uses_clock |= function.needs_clock();
        Ok(Bound::new(Expr::Call { function: Box::new(function), args: exprs }, result))
    }

    /// A row that is only told from others: as the document of its values, where equal ones are written alike.
    fn distinct_row(&mut self, row: &ast::Expr, items: &[&ast::Expr], scope: &Scope) -> Bind<Bound> {
        let items = self.bind_all(items, scope)?;
        let is_alike = |item: &Bound| match item.ty.map(Type::unrounded) {
            Some(Type::Interval | Type::Array(_) | Type::Vector(_) | Type::Json | Type::System(_)) => false,
            ty => ty.is_none_or(|ty| must_compare(ty, "equality").is_ok()),
        };
        match !items.is_empty() && items.iter().all(is_alike) {
            true => self.call_bound("jsonb_build_array", items),
            false => self.bind(row, scope),
        }
    }

    /// `name(before, VARIADIC array)`.
    fn spread_call(&mut self, name: &str, before: &[&ast::Expr], array: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        let mut args = self.bind_all(before, scope)?;
        let array = self.bind(array, scope)?;
        let Some(Type::Array(element)) = array.ty.map(Type::as_array) else {
            return Err(SqlError::new("42804", "VARIADIC argument must be an array").into());
        };
        let types: Vec<Option<Type>> = args.iter().map(|arg| arg.ty).collect();
        let function = Function::resolve_spread(name, &types, *element)?;
        args.push(array);
        let mut exprs = Vec::with_capacity(args.len());
        for (arg, &ty) in args.into_iter().zip(&function.arguments) {
            exprs.push(self.coerce(arg, ty, CastContext::Implicit)?);
        }
        let result = function.result;
        self.uses_clock |= function.needs_clock();
        Ok(Bound::new(Expr::Call { function: Box::new(function), args: exprs }, result))
    }

    fn aggregate(
        &mut self,
        function: AggregateFunction,
        name: &str,
        args: &FunctionArguments,
        filter: Option<&ast::Expr>,
        ast: &ast::Expr,
        scope: &Scope,
    ) -> Bind<Bound> {
        self.within_aggregate(ast, scope, &mut |binder, scope| {
            binder.aggregate_parts(function, name, args, filter, ast, scope)
        })
    }

    /// Binds an aggregate's parts, in which no other aggregate may stand. Of columns further out alone, it is an aggregate of their query.
    pub(super) fn within_aggregate(&mut self, ast: &ast::Expr, scope: &Scope, parts: Parts<'_>) -> Bind<Bound> {
        let mark = self.beyond.map(|beyond| (beyond, beyond.mark(self)));
        let mark = mark.filter(|(_, mark)| mark.levels > 0 && !self.in_aggregate);
        let own = self.aggregates.take();
        if own.is_none() && mark.is_none() {
            return Err(self.no_aggregate(ast));
        }
        let was_in = std::mem::replace(&mut self.in_aggregate, true);
        let before = self.outer_columns;
        let inner = parts(self, scope);
        self.in_aggregate = was_in;
        let is_outer = |aggregate: &Aggregate| !aggregate.mentions(|source| source < PLACEHOLDERS);
        self.aggregates = own;
        let (aggregate, ty) = inner?;
        if let Some((beyond, mark)) = mark
            && let Some(owner) = beyond.owner(&mark, !is_outer(&aggregate))
        {
            let bound = beyond.folded_around(self, mark, owner, parts);
            return bound.map_err(|refusal| self.placed(refusal, ast));
        }
        if self.beyond.is_none() && self.outer_columns > before && is_outer(&aggregate) {
            return Err(self.not_compiled("an aggregate of a query further out", ast));
        }
        match &mut self.aggregates {
            Some(aggregates) => Ok(folded(aggregates, aggregate, ty)),
            None => Err(self.no_aggregate(ast)),
        }
    }

    fn no_aggregate(&self, ast: &ast::Expr) -> Refusal {
        let what = if self.in_aggregate {
            "aggregate function calls cannot be nested"
        } else {
            "aggregate functions are not allowed here"
        };
        SqlError::new("42803", what).at(span_position(self.sql, ast.span())).into()
    }

    fn aggregate_parts(
        &mut self,
        function: AggregateFunction,
        name: &str,
        args: &FunctionArguments,
        filter: Option<&ast::Expr>,
        ast: &ast::Expr,
        scope: &Scope,
    ) -> Bind<(Aggregate, Type)> {
        let FunctionArguments::List(list) = args else {
            return Err(self.not_compiled("this call of an aggregate", ast));
        };
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        // In which order rows are counted or added up changes nothing.
        let order = super::gather::order_clause(clauses).filter(|_| self.beyond.is_some());
        match order {
            Some(order) => drop(self.aggregate_order(order, scope)?),
            None if clauses.is_empty() => {}
            None => return Err(self.not_compiled("a clause in an aggregate's arguments", ast)),
        }
        let distinct = matches!(duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
        let filter = filter.map(|f| self.condition(f, "FILTER", scope)).transpose()?;
        let arg = match args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if function == AggregateFunction::Count && !distinct => {
                None
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))] => {
                let row = row_items(arg).filter(|_| function == AggregateFunction::Count && distinct);
                Some(match row {
                    Some(items) => self.distinct_row(arg, &items, scope)?,
                    None => self.bind(arg, scope)?,
                })
            }
            _ => return Err(self.not_compiled(&format!("{name} with these arguments"), ast)),
        };
        if arg.as_ref().is_some_and(|arg| arg.ty.is_none()) {
            function.check_known(name)?;
        }
        let arg = arg.map(|a| self.known(a)).transpose()?;
        let arg = arg.map(|a| self.time_to_add(function, a)).transpose()?;
        let ty = arg.as_ref().and_then(|a| a.ty).map(Type::unrounded);
        if let (Some(Type::Interval), Some(arg)) = (ty, &arg) {
            let what = match function {
                AggregateFunction::Sum => Some(Gathered::SumInterval),
                AggregateFunction::Avg => Some(Gathered::AvgInterval),
                _ => None,
            };
            if what.is_some() && self.beyond.is_none() {
                return Err(self.not_compiled("a sum of intervals", ast));
            }
            if let Some(what) = what {
                return self.gathered_over(what, name, vec![arg.clone()], Vec::new(), distinct, filter);
            }
        }
        if let (AggregateFunction::Min | AggregateFunction::Max, Some(ty)) = (function, ty) {
            must_compare(ty, "ordering")?;
        }
        let Some((input, result)) = function.types(ty) else {
            return Err(SqlError::new("42883", format!("function {name}({}) does not exist", shown(ty))).into());
        };
        let arg = match (arg, input) {
            (Some(arg), Some(input)) => Some((self.coerce(arg, input, CastContext::Implicit)?, input)),
            (Some(arg), None) => Some((arg.expr, ty.unwrap_or(Type::Text))),
            (None, _) => None,
        };
        if let Some((_, ty)) = arg.as_ref().filter(|_| distinct) {
            must_compare(*ty, "equality")?;
        }
        let aggregate = Aggregate { function, arg, distinct, filter, gathered: None };
        Ok((aggregate, result))
    }

    pub fn bind_all(&mut self, list: &[&ast::Expr], scope: &Scope) -> Bind<Vec<Bound>> {
        list.iter().map(|e| self.bind(e, scope)).collect()
    }

    // ---- types

    /// A condition: boolean, or an error that names the clause.
    pub fn condition(&mut self, ast: &ast::Expr, clause: &str, scope: &Scope) -> Bind<Expr> {
        let condition = self.boolean(ast, clause, scope)?;
        let finds_rows = matches!(clause, "WHERE" | "JOIN/ON");
        Ok(if finds_rows { self.with_hidden(condition, scope) } else { condition })
    }

    /// The same of a row that is not stored yet.
    pub fn boolean(&mut self, ast: &ast::Expr, clause: &str, scope: &Scope) -> Bind<Expr> {
        let bound = self.bind(ast, scope)?;
        match bound.ty {
            None | Some(Type::Bool) => self.coerce(bound, Type::Bool, CastContext::Implicit),
            Some(ty) => Err(SqlError::new(
                "42804",
                format!("argument of {clause} must be type boolean, not type {}", type_name(ty)),
            )
            .at(span_position(self.sql, ast.span()))
            .into()),
        }
    }

    /// 22P02 for a number that is no label's: definitions have none such, but anybody may write what they write.
    fn check_label(&self, number: i64, ty: Type) -> Bind<()> {
        let Type::Enum(id) = ty else { return Ok(()) };
        match self.schema.enum_by_id(id).and_then(|made| made.def.label_of(number)) {
            Some(_) => Ok(()),
            None => {
                let message = format!("invalid input value for enum {}: \"{number}\"", type_name(ty));
                Err(SqlError::new("22P02", message).into())
            }
        }
    }

    /// Gives an expression without a type the type text.
    pub fn known(&mut self, bound: Bound) -> Bind<Bound> {
        match bound.ty {
            Some(_) => Ok(bound),
            None => {
                let expr = self.coerce(bound, Type::Text, CastContext::Implicit)?;
                Ok(Bound::new(expr, Type::Text))
            }
        }
    }

    pub fn common_of(&self, clause: &str, list: &[Bound]) -> Bind<Type> {
        let types: Vec<Option<Type>> = list.iter().map(|b| b.ty).collect();
        Ok(common_type(clause, &types)?)
    }

    pub fn coerce_all(&mut self, list: Vec<Bound>, ty: Type) -> Bind<Vec<Expr>> {
        list.into_iter().map(|b| self.coerce(b, ty, CastContext::Implicit)).collect()
    }

    /// The expression as a value of type `to`.
    pub fn coerce(&mut self, bound: Bound, to: Type, context: CastContext) -> Bind<Expr> {
        let from = match (bound.ty, &bound.expr) {
            (Some(from), _) => from,
            (None, Expr::Const(Datum::Null)) => return Ok(bound.expr),
            (None, Expr::Const(Datum::Bytes(literal))) if value::is_read_by_clock(literal, to) => {
                self.note_literal(literal, to, bound.span);
                self.uses_clock = true;
                let (expr, from) = (Box::new(bound.expr), Type::Text);
                return Ok(Expr::Cast { expr, from, to, explicit: true });
            }
            // Who is connected is not known yet.
            (None, Expr::Const(Datum::Bytes(literal))) if to == Type::Oid(OidKind::Role) => {
                self.note_literal(literal, to, bound.span);
                self.uses_clock = true;
                let (expr, from) = (Box::new(bound.expr), Type::Text);
                return Ok(Expr::Cast { expr, from, to, explicit: true });
            }
            (None, Expr::Const(Datum::Bytes(literal))) => {
                let read = value::from_text_by(to, literal, &self.names_by(to));
                if finds_objects(to) {
                    self.note_literal(literal, to, bound.span);
                }
                return Ok(Expr::Const(read.map_err(|e| e.at(span_position(self.sql, bound.span)))?));
            }
            (None, Expr::Param(i)) => self.type_parameter(*i, to, context),
            (None, _) => Type::Text,
        };
        if from == to || same_form(from, to) {
            return Ok(bound.expr);
        }
        if bound.expr == Expr::NULL {
            return Ok(Expr::NULL);
        }
        if cast::context(from, to).is_none_or(|needed| needed > context) {
            return Err(SqlError::new(
                "42804",
                format!("an expression of type {} does not become {} by itself", type_name(from), type_name(to)),
            )
            .with_hint("You will need to rewrite or cast the expression.")
            .into());
        }
        self.uses_clock |= cast::needs_clock(from, to);
        Ok(fold_constant(Expr::Cast {
            expr: Box::new(bound.expr),
            from,
            to,
            explicit: context == CastContext::Explicit,
        }))
    }

    /// Notes a literal that stands alone in a set operation's column of this type.
    #[cfg(feature = "query")]
    pub fn note_output(&mut self, literal: &ast::ValueWithSpan, ty: Type) {
        use ast::Value::{EscapedStringLiteral, SingleQuotedString};
        if let SingleQuotedString(text) | EscapedStringLiteral(text) = &literal.value
            && (value::is_read_by_clock(text.as_bytes(), ty) || finds_objects(ty))
        {
            self.note_literal(text.as_bytes(), ty, literal.span);
        }
    }

    fn note_literal(&mut self, literal: &[u8], ty: Type, span: Span) {
        let text = String::from_utf8_lossy(literal).into_owned();
        self.session_literals.push(SessionLiteral { text, ty, span });
    }

    /// By what a literal of the type is read: the catalog as the statement sees it, where that matters.
    fn names_by(&self, ty: Type) -> Clock {
        match cast::shows_names(ty) {
            true => Clock { catalog: Known::of_schema(self.schema), ..Clock::default() },
            false => Clock::default(),
        }
    }

    /// The first context decides a parameter's type.
    fn type_parameter(&mut self, parameter: u16, to: Type, context: CastContext) -> Type {
        let ty = match context {
            CastContext::Assignment => to,
            _ => parameter_type(to),
        }
        // Another place may want all digits of it.
        .unrounded();
        *self.parameters[usize::from(parameter)].get_or_insert(ty)
    }

    /// The argument of an aggregate: what adds up times of the day takes them for intervals.
    pub fn time_to_add(&mut self, function: AggregateFunction, arg: Bound) -> Bind<Bound> {
        let adds = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
        match arg.ty.map(Type::unrounded) {
            Some(Type::Time) if adds => {
                let interval = self.coerce(arg, Type::Interval, CastContext::Implicit)?;
                Ok(Bound::new(interval, Type::Interval))
            }
            _ => Ok(arg),
        }
    }

    pub(super) fn explicit_cast(&mut self, bound: Bound, to: Type) -> Bind<Expr> {
        let bound = match (&bound.expr, bound.ty) {
            // 'abcdef'::varchar(3) cuts, where the input function would refuse.
            (Expr::Const(Datum::Bytes(_)), None) if matches!(to, Type::Varchar(_) | Type::Char(_)) => {
                Bound::new(bound.expr, Type::Text)
            }
            (Expr::Const(Datum::Bytes(_)), None) => match cast::without_length(to) {
                Some(whole) => Bound::new(self.coerce(bound, whole, CastContext::Explicit)?, whole),
                None => bound,
            },
            _ => bound,
        };
        let from = bound.ty;
        self.coerce(bound, to, CastContext::Explicit).map_err(|e| match (e, from) {
            (Refusal::Error(e), Some(from)) if e.sqlstate == "42804" => {
                SqlError::new("42846", format!("cannot cast type {} to {}", type_name(from), type_name(to))).into()
            }
            (e, _) => e,
        })
    }
}

/// Types whose values have one form and need no check to go from the first to the second.
fn same_form(from: Type, to: Type) -> bool {
    use Type::*;
    match (from, to) {
        (Int2, Int4 | Int8) | (Int4, Int8) => true,
        (Varchar(_) | Text | Name | CharByte, Text | Varchar(UNLIMITED)) => true,
        (Oid(_), Oid(_)) => true,
        (Vector(_), Array(_)) => from.as_array() == to,
        (Varchar(a), Varchar(b)) => a <= b,
        (Network(NetworkKind::Cidr), Network(NetworkKind::Inet)) => true,
        (Char(_), Char(UNLIMITED)) => true,
        (Char(a), Char(b)) => a <= b,
        (Numeric { .. }, Numeric { typmod: None }) => true,
        (Decimal { precision: p1, scale: s1 }, Decimal { precision: p2, scale: s2 }) => s1 == s2 && p1 <= p2,
        (from, Rounded(kind, SECOND_DIGITS_MAX)) => from.unrounded() == kind.plain(),
        (Rounded(a, p), Rounded(b, q)) => a == b && p <= q && q <= SECOND_DIGITS_MAX,
        (from @ (Rounded(..) | Array(Rounded(..))), to) => from.unrounded() == to,
        _ => false,
    }
}

/// `-n` of a whole number: the least of a type is one, though `n` is none of the type.
fn negative_literal(op: &UnaryOperator, expr: &ast::Expr) -> Option<(Type, Datum)> {
    match expr {
        ast::Expr::Nested(inner) => negative_literal(op, inner),
        ast::Expr::Value(value) if *op == UnaryOperator::Minus => {
            let ast::Value::Number(digits, false) = &value.value else { return None };
            let negative: i64 = format!("-{digits}").parse().ok()?;
            let ty = if i32::try_from(negative).is_ok() { Type::Int4 } else { Type::Int8 };
            Some((ty, Datum::Int(negative)))
        }
        _ => None,
    }
}

/// The same of all its rows.
pub fn table_oid(table: &Table) -> Bound {
    Bound::new(Expr::Const(Datum::Int(i64::from(table.id.0))), Type::Oid(OidKind::Oid))
}

/// What NULLIF compares its first value as, and gives: numbers of two kinds meet as the wider one.
fn nullif_type(left: Type, right: Type) -> Type {
    match (left, right) {
        _ if cast::is_integer(left) && cast::is_numeric(right) => NUMERIC,
        _ if (cast::is_integer(left) || cast::is_numeric(left)) && cast::is_float(right) => Type::Float8,
        (Type::Network(NetworkKind::Cidr), _) => Type::Network(NetworkKind::Inet),
        _ => left,
    }
}

pub fn text(s: &str) -> Expr {
    Expr::Const(Datum::Bytes(s.as_bytes().into()))
}

fn shown(ty: Option<Type>) -> &'static str {
    ty.map_or("unknown", type_name)
}

/// The call with `t` for the argument `t.*`, which is the whole row; `None`: there is none.
fn with_whole_rows(function: &ast::Function, scope: &Scope) -> Result<Option<ast::Function>, SqlError> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let row_of = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => name.0.last()?.as_ident().cloned(),
        _ => None,
    };
    if !list.args.iter().any(|arg| row_of(arg).is_some()) {
        return Ok(None);
    }
    let mut list = list.clone();
    for arg in &mut list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(named)) = arg else { continue };
        if named.0.len() > 1 {
            let whole = ast::Expr::QualifiedWildcard(named.clone(), AttachedToken::empty());
            *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(whole));
            continue;
        }
        let Some(name) = row_of(arg) else { continue };
        scope.source(&fold(&name))?;
        if scope.column(&fold(&name)).is_ok() {
            let message = format!("the row of {name}, which is a column's name too");
            return Err(SqlError::unsupported(message));
        }
        *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Identifier(name)));
    }
    Ok(Some(ast::Function { args: FunctionArguments::List(list), ..function.clone() }))
}

/// The number of an enum's label, as definitions keep them: `281474976710656::pg_catalog."enum 16390 mood"`.
pub(crate) fn kept_label(expr: &ast::Expr, data_type: &ast::DataType, to: Type) -> Option<i64> {
    let (Type::Enum(_), ast::Expr::Value(value), ast::DataType::Custom(name, _)) = (to, expr, data_type) else {
        return None;
    };
    let ast::Value::Number(digits, false) = &value.value else { return None };
    let last = name.0.last().and_then(|part| part.as_ident())?;
    kept_enum(&last.value)?;
    digits.parse().ok()
}

/// `x'1F'` and `b'101'` as a whole number of this type.
fn bits_of(expr: &ast::Expr, to: Type) -> Result<Option<i64>, SqlError> {
    let ast::Expr::Value(value) = expr else { return Ok(None) };
    let (digits, radix, bits_each) = match &value.value {
        ast::Value::HexStringLiteral(digits) => (digits, 16, 4),
        ast::Value::SingleQuotedByteStringLiteral(digits) => (digits, 2, 1),
        _ => return Ok(None),
    };
    let bits_max = match to {
        Type::Int4 => 32,
        Type::Int8 => 64,
        _ => return Ok(None),
    };
    if let Some(wrong) = digits.chars().find(|c| !c.is_digit(radix)) {
        let kind = if radix == 16 { "hexadecimal" } else { "binary" };
        return Err(SqlError::new("22P02", format!("\"{wrong}\" is not a valid {kind} digit")));
    }
    if digits.len() * bits_each > bits_max {
        return Err(SqlError::new("22003", format!("{} out of range", type_name(to))));
    }
    let number = u64::from_str_radix(digits, radix).unwrap_or(0);
    Ok(Some(if bits_max == 32 { i64::from(number as u32 as i32) } else { number as i64 }))
}

/// The positional arguments, where there is nothing else.
pub(crate) fn plain_args(args: &FunctionArguments) -> Option<Vec<&ast::Expr>> {
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let ast::FunctionArgumentList { duplicate_treatment: None, args, clauses } = list else {
        return None;
    };
    if !clauses.is_empty() {
        return None;
    }
    args.iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
            _ => None,
        })
        .collect()
}

/// Types whose names are part of the grammar: without quotes they call nothing.
const NAMES_OF_TYPES_ALONE: &[&str] = &[
    "bigint",
    "bit",
    "boolean",
    "char",
    "character",
    "dec",
    "decimal",
    "float",
    "int",
    "integer",
    "interval",
    "nchar",
    "numeric",
    "real",
    "smallint",
    "time",
    "timestamp",
    "varchar",
];

/// Keywords that are calls without parentheses.
fn environment(name: &str) -> Option<(EnvValue, Type)> {
    Some(match name {
        "current_timestamp" => (EnvValue::Now, Type::Timestamptz),
        "localtimestamp" => (EnvValue::LocalTimestamp, Type::Timestamp),
        "current_date" => (EnvValue::CurrentDate, Type::Date),
        "localtime" => (EnvValue::LocalTime, Type::Time),
        "current_user" | "user" | "current_role" => (EnvValue::User, Type::Name),
        "session_user" => (EnvValue::SessionUser, Type::Name),
        "current_catalog" => (EnvValue::Database, Type::Name),
        "current_schema" => (EnvValue::Schema, Type::Name),
        _ => return None,
    })
}

fn environment_call(name: &str) -> Option<(EnvValue, Type)> {
    Some(match name {
        "now" | "transaction_timestamp" => (EnvValue::Now, Type::Timestamptz),
        "statement_timestamp" => (EnvValue::StatementTime, Type::Timestamptz),
        "pg_postmaster_start_time" | "pg_conf_load_time" => (EnvValue::OpenedTime, Type::Timestamptz),
        "getpgusername" => (EnvValue::User, Type::Name),
        "version" => (EnvValue::Version, Type::Text),
        "current_database" => (EnvValue::Database, Type::Name),
        "current_schema" => (EnvValue::Schema, Type::Name),
        "pg_backend_pid" => (EnvValue::BackendPid, Type::Int4),
        "txid_current" => (EnvValue::TransactionId, Type::Int8),
        "txid_current_if_assigned" => (EnvValue::TransactionIdIfAssigned, Type::Int8),
        "inet_server_addr" => (EnvValue::ServerAddress, Type::Network(NetworkKind::Inet)),
        "inet_server_port" => (EnvValue::ServerPort, Type::Int4),
        "inet_client_addr" => (EnvValue::ClientAddress, Type::Network(NetworkKind::Inet)),
        "inet_client_port" => (EnvValue::ClientPort, Type::Int4),
        _ => return None,
    })
}

/// An expression of constants is one. What fails to evaluate is left to fail when, and if, it runs.
pub fn fold_constant(expr: Expr) -> Expr {
    let foldable = match &expr {
        Expr::Const(_)
        | Expr::Param(_)
        | Expr::Column { .. }
        | Expr::Cell { .. }
        | Expr::Aggregate(_)
        | Expr::Env(_)
        | Expr::Setting { .. } => false,
        inner if inner.needs_clock() => false,
        inner => {
            let mut constant = true;
            let mut top = true;
            inner.walk(&mut |e| {
                constant &= top || e.is_constant();
                let deeper = top;
                top = false;
                deeper
            });
            constant
        }
    };
    if !foldable {
        return expr;
    }
    let env = Env::default();
    let frame = Frame::new(&env);
    match evaluate(&expr, &frame).map(|scalar| scalar.into_datum()) {
        Ok(datum) => Expr::Const(datum),
        Err(_) => expr,
    }
}

/// A column's default from its text, as the column's type, and whether it asks for the time.
pub fn default_of(
    text: &str,
    ty: Type,
    schema: &std::sync::Arc<freshet_engine::catalog::Schema>,
) -> Bind<(Expr, Uses)> {
    let ast = crate::parse::parse_expression(text)?;
    let mut binder = Binder::new(text, schema, &[]);
    let bound = binder.bind(&ast, &Scope::default())?;
    let expr = binder.coerce(bound, ty, CastContext::Assignment)?;
    if !binder.parameters.is_empty() {
        return Err(SqlError::new("42P02", "there is no parameter $1").into());
    }
    Ok((expr, Uses { clock: binder.uses_clock, sequences: binder.uses_sequences }))
}

/// What an expression needs of its statement.
#[derive(Clone, Copy, Default, Debug)]
pub struct Uses {
    pub clock: bool,
    pub sequences: bool,
}

/// The array of `VARIADIC array`, and the arguments before it.
fn spread_array<'a, 'b>(args: &'b [&'a ast::Expr]) -> Option<(&'a ast::Expr, &'b [&'a ast::Expr])> {
    let (last, before) = args.split_last()?;
    let ast::Expr::Function(function) = last else { return None };
    let is_spread = matches!(function.name.0.as_slice(), [ast::ObjectNamePart::Identifier(name)]
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("variadic"));
    match plain_args(&function.args).filter(|_| is_spread)?.as_slice() {
        [array] => Some((array, before)),
        _ => None,
    }
}

/// Without the parentheses around it.
fn bare(ast: &ast::Expr) -> &ast::Expr {
    match ast {
        ast::Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// An aggregate among those of its query; one that is there already is taken once.
pub(crate) fn folded(aggregates: &mut Vec<Aggregate>, aggregate: Aggregate, ty: Type) -> Bound {
    let at = aggregates.iter().position(|known| *known == aggregate);
    let at = at.unwrap_or_else(|| {
        aggregates.push(aggregate);
        aggregates.len() - 1
    });
    Bound::new(Expr::Aggregate(at as u16), ty)
}

/// A date that comes after every timestamp is compared as such, though it cannot become one.
pub(super) fn beyond_timestamps(bound: Bound, to: Type) -> Bound {
    match bound {
        Bound { expr: Expr::Const(Datum::Int(days)), ty: Some(Type::Date), .. }
            if matches!(to, Type::Timestamp | Type::Timestamptz) && is_beyond_timestamps(days) =>
        {
            Bound::new(Expr::Const(Datum::Int(INFINITY - 1)), to)
        }
        bound => bound,
    }
}
