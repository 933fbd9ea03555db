//! How does PostgreSQL write an expression that it keeps? Checks, defaults, keys of indexes and conditions, from the text that they were defined by.
//!
//! The text is parsed and every part gets its type, since what is shown depends on it: a literal shows its type, and so does what was cast without
//! being asked. Then it is written in PostgreSQL's manner: every operator in parentheses, or, prettily, where they are needed.
//!
//! What is not known here (subqueries, windows) is `None`: the caller shows the text as it was given.

use super::Catalog;
use crate::bind::expr::{kept_label, plain_args};
use crate::bind::more::is_operator_function;
use crate::bind::scope::{Scope, SourceName, fold};
use crate::bind::types::type_of;
use crate::compiled::aggregate::AggregateFunction;
use crate::value::cast::{self, common_type, is_float, is_integer, is_numeric, is_text, number_rank};
use crate::value::function::Function;
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::pgtype::{self, NUMERIC, UNLIMITED};
use crate::value::{self, quoted_ident, quoted_literal};
use freshet_engine::schema::{OidKind, Type};
use sqlparser::ast::{self, BinaryOperator as Symbol, Expr, FunctionArguments, UnaryOperator, Value};
use std::ops::ControlFlow;

const BPCHAR: Type = Type::Char(UNLIMITED);

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Parentheses only where they are needed.
    pub pretty: bool,
}

/// What a part looks like.
#[derive(Clone, Debug)]
enum Node {
    /// A name or a literal.
    Atom(String),
    /// A literal that takes its context's type.
    Untyped(String),
    Null,
    Call {
        head: String,
        args: Vec<Node>,
        between: &'static str,
        tail: &'static str,
    },
    Cast {
        arg: Box<Node>,
        ty: String,
    },
    Op {
        symbol: String,
        left: Option<Box<Node>>,
        right: Box<Node>,
    },
    Any {
        left: Box<Node>,
        symbol: &'static str,
        word: &'static str,
        array: Box<Node>,
    },
    Bool {
        word: &'static str,
        args: Vec<Node>,
    },
    Not(Box<Node>),
    Test {
        arg: Box<Node>,
        suffix: &'static str,
    },
    Distinct {
        left: Box<Node>,
        right: Box<Node>,
        negated: bool,
    },
    Case {
        operand: Option<Box<Node>>,
        branches: Vec<(Node, Node)>,
        otherwise: Box<Node>,
    },
    AtZone {
        moment: Box<Node>,
        zone: Box<Node>,
    },
}

type Typed = (Node, Option<Type>);

/// Reads parts of an expression over the sources of a scope.
pub struct Deparser<'a> {
    pub catalog: &'a Catalog,
    pub scope: &'a Scope,
    /// Whether columns are written with their source's name.
    pub qualified: bool,
    pub style: Style,
}

impl Deparser<'_> {
    /// An expression as it stands in a clause, as the type if one is asked for.
    pub fn shown(&self, ast: &Expr, to: Option<Type>) -> Option<String> {
        let mut out = Writer { out: String::new(), style: self.style, level: 0 };
        let node = self.whole(ast, to)?;
        out.write(&node);
        Some(out.out)
    }

    /// An output of a query, whose lines begin so far from the left.
    pub fn shown_at(&self, ast: &Expr, blanks: usize) -> Option<String> {
        let mut out = Writer { out: String::new(), style: self.style, level: blanks };
        out.write(&self.whole(ast, None)?);
        Some(out.out)
    }

    /// As [`Self::shown`], and whether it looks like a call.
    pub fn shown_key(&self, ast: &Expr) -> Option<(String, bool)> {
        let node = self.whole(ast, None)?;
        let mut out = Writer { out: String::new(), style: self.style, level: 0 };
        out.write(&node);
        Some((out.out, matches!(node, Node::Call { between: ", ", .. })))
    }

    /// The type of an expression.
    pub fn type_of(&self, ast: &Expr) -> Option<Option<Type>> {
        Some(self.node(ast)?.1)
    }

    fn whole(&self, ast: &Expr, to: Option<Type>) -> Option<Node> {
        pgtype::name_by(&self.catalog.schema);
        let (node, ty) = self.node(ast)?;
        Some(match (&node, ty) {
            // What becomes the type without being asked does not show it.
            (Node::Untyped(_) | Node::Null, _) => {
                self.coerced((node, ty), to.map_or(Type::Text, cast::without_modifier))?
            }
            _ => node,
        })
    }

    fn node(&self, ast: &Expr) -> Option<Typed> {
        match ast {
            Expr::Nested(inner) => self.node(inner),
            Expr::Identifier(ident) => self.column(None, &fold(ident)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [qualifier, name] => self.column(Some(&fold(qualifier)), &fold(name)),
                _ => None,
            },
            Expr::Value(value) => literal(&value.value),
            Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::IsNull(e) => self.test(e, "IS NULL"),
            Expr::IsNotNull(e) => self.test(e, "IS NOT NULL"),
            Expr::IsTrue(e) => self.test(e, "IS TRUE"),
            Expr::IsNotTrue(e) => self.test(e, "IS NOT TRUE"),
            Expr::IsFalse(e) => self.test(e, "IS FALSE"),
            Expr::IsNotFalse(e) => self.test(e, "IS NOT FALSE"),
            Expr::IsUnknown(e) => self.test(e, "IS UNKNOWN"),
            Expr::IsNotUnknown(e) => self.test(e, "IS NOT UNKNOWN"),
            Expr::IsDistinctFrom(l, r) => self.distinct(l, r, false),
            Expr::IsNotDistinctFrom(l, r) => self.distinct(l, r, true),
            Expr::Between { expr, negated, low, high } => self.between(expr, low, high, *negated),
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                self.operator(if *negated { "!~~" } else { "~~" }, expr, pattern)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                self.operator(if *negated { "!~~*" } else { "~~*" }, expr, pattern)
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, "ANY"),
            Expr::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, "ALL"),
            Expr::Cast { expr, data_type, .. } => {
                let to = self.named_type(data_type)?;
                if let (Some(number), Type::Enum(id)) = (kept_label(expr, data_type, to), to) {
                    let label = self.catalog.label_of(id, number)?;
                    return Some((constant(to, &label), Some(to)));
                }
                self.cast(expr, to)
            }
            Expr::TypedString(typed) => {
                let (node, ty) = literal(&typed.value.value)?;
                let to = self.named_type(&typed.data_type)?;
                Some((self.coerced((node, ty), to)?, Some(to)))
            }
            Expr::Interval(interval) => {
                let ast::Interval { value, leading_field: None, last_field: None, .. } = interval else { return None };
                let text = self.node(value)?;
                Some((self.coerced(text, Type::Interval)?, Some(Type::Interval)))
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Array(array) => self.array(&array.elem),
            Expr::AtTimeZone { timestamp, time_zone } => {
                let (moment, zone) = (self.node(timestamp)?, self.node(time_zone)?);
                let result = Function::resolve("timezone", &[zone.1, moment.1]).ok()?.result;
                let (moment, zone) = (Box::new(moment.0), Box::new(self.coerced(zone, Type::Text)?));
                Some((Node::AtZone { moment, zone }, Some(result)))
            }
            Expr::Function(function) => self.function(function),
            Expr::Extract { field, expr, .. } => {
                let from = self.node(expr)?;
                let args = vec![Node::Atom(field.to_string().to_lowercase()), from.0];
                Some((Node::Call { head: "EXTRACT(".into(), args, between: " FROM ", tail: ")" }, Some(NUMERIC)))
            }
            Expr::Trim { trim_where, trim_what: None, expr, trim_characters: None } => {
                let side = match trim_where {
                    None | Some(ast::TrimWhereField::Both) => "BOTH",
                    Some(ast::TrimWhereField::Leading) => "LEADING",
                    Some(ast::TrimWhereField::Trailing) => "TRAILING",
                };
                let arg = self.typed(expr, Type::Text)?;
                let head = format!("TRIM({side} FROM ");
                Some((Node::Call { head, args: vec![arg], between: " ", tail: ")" }, Some(Type::Text)))
            }
            Expr::Substring { expr, substring_from: Some(from), substring_for, shorthand, special } => {
                let mut args = vec![self.typed(expr, Type::Text)?, self.typed(from, Type::Int4)?];
                if let Some(length) = substring_for {
                    args.push(self.typed(length, Type::Int4)?);
                }
                let node = if *shorthand || *special {
                    Node::Call { head: "\"substring\"(".into(), args, between: ", ", tail: ")" }
                } else {
                    let mut words = vec![args.remove(0)];
                    for (word, arg) in ["FROM", "FOR"].into_iter().zip(args) {
                        words.extend([Node::Atom(word.to_owned()), arg]);
                    }
                    Node::Call { head: "SUBSTRING(".into(), args: words, between: " ", tail: ")" }
                };
                Some((node, Some(Type::Text)))
            }
            Expr::Ceil { expr, .. } => self.call("ceil", &[expr]),
            Expr::Floor { expr, .. } => self.call("floor", &[expr]),
            _ => None,
        }
    }

    fn named_type(&self, data_type: &ast::DataType) -> Option<Type> {
        type_of(data_type, &self.catalog.schema).ok()
    }

    fn column(&self, qualifier: Option<&str>, name: &str) -> Option<Typed> {
        let found = match qualifier {
            Some(qualifier) => self.scope.qualified(&SourceName::bare(qualifier.to_owned()), name).ok()?,
            None => match self.scope.column(name) {
                Ok(found) => found,
                // Words that are calls without parentheses.
                Err(_) => return self.keyword(name),
            },
        };
        let source = &self.scope.sources[usize::from(found.source)].name;
        let text = match self.qualified {
            true => format!("{}.{}", quoted_ident(source), quoted_ident(name)),
            false => quoted_ident(name),
        };
        Some((Node::Atom(text), Some(found.ty)))
    }

    fn keyword(&self, name: &str) -> Option<Typed> {
        let ty = match name {
            "current_timestamp" => Type::Timestamptz,
            "localtimestamp" => Type::Timestamp,
            "current_date" => Type::Date,
            "localtime" => Type::Time,
            "current_user" | "session_user" | "current_role" | "user" | "current_catalog" | "current_schema" => {
                Type::Name
            }
            _ => return None,
        };
        Some((Node::Atom(name.to_uppercase()), Some(ty)))
    }

    /// `CURRENT_TIMESTAMP(3)`.
    fn rounded_clock(&self, name: &str, args: &[&Expr]) -> Option<Typed> {
        let [Expr::Value(value)] = args else { return None };
        let Value::Number(digits, false) = &value.value else { return None };
        let (_, plain) = self.keyword(name)?;
        let digits = digits.parse::<u8>().unwrap_or(u8::MAX).min(pgtype::SECOND_DIGITS_MAX);
        let text = format!("{}({digits})", name.to_uppercase());
        Some((Node::Atom(text), plain?.rounded(digits)))
    }

    /// An expression as what a function or operator takes.
    fn typed(&self, ast: &Expr, to: Type) -> Option<Node> {
        let typed = self.node(ast)?;
        self.coerced(typed, to)
    }

    /// A part as the type, which it shows if it has another one.
    fn coerced(&self, (node, from): Typed, to: Type) -> Option<Node> {
        Some(match (node, from) {
            (Node::Untyped(text), _) => {
                let clock = self.catalog.clock();
                // What another clock reads otherwise stays as it was written. Digits of a second are cut behind the literal.
                let is_told = is_moment(to) && value::is_read_by_clock(text.as_bytes(), to);
                let of = if is_told { Type::Text } else { to.unrounded() };
                let datum = value::from_text_by(of, text.as_bytes(), &clock).ok()?;
                let mut shown = Vec::new();
                value::to_text_by(of, &datum.as_value(), &clock, &mut shown);
                constant(to, &String::from_utf8_lossy(&shown))
            }
            (Node::Null, _) => Node::Atom(format!("NULL::{}", pgtype::format_type(to))),
            (node, Some(from)) if cast::same_base(from, to) => node,
            (node, _) => Node::Cast { arg: Box::new(node), ty: pgtype::format_type(cast::without_modifier(to)) },
        })
    }

    /// What an operator's sides are taken as.
    fn operands(&self, symbol: &str, left: Option<Type>, right: Option<Type>) -> Option<(Type, Type, Type)> {
        let numbers = |ty: Option<Type>| ty.is_some_and(|ty| number_rank(ty).is_some());
        let result = |l: Type, r: Type| -> Option<Type> {
            match binary_op(symbol) {
                Some(op) => BinaryOperator::resolve(op, Some(l), Some(r)).ok().map(|operator| operator.result),
                None => Function::resolve(symbol, &[Some(l), Some(r)]).ok().map(|function| function.result),
            }
        };
        if let (Some(l), Some(r)) = (left, right)
            && numbers(left)
            && numbers(right)
        {
            let (l, r) = number_sides(l, r);
            return Some((l, r, result(l, r)?));
        }
        let text = |ty: Option<Type>| ty.is_none_or(is_text);
        if text(left) && text(right) {
            let all = |is: fn(Type) -> bool| {
                [left, right].into_iter().flatten().all(is) && (left.is_some() || right.is_some())
            };
            let compares = binary_op(symbol).is_some_and(BinaryOp::is_comparison);
            let has_char = [left, right].into_iter().flatten().any(|ty| matches!(ty, Type::Char(_)));
            let of = if compares && has_char && all(|ty| matches!(ty, Type::Char(_) | Type::Varchar(_))) {
                BPCHAR
            } else if compares && all(|ty| ty == Type::Name) {
                Type::Name
            } else if compares && all(|ty| ty == Type::CharByte) {
                Type::CharByte
            } else {
                Type::Text
            };
            return Some((of, of, result(of, of)?));
        }
        if let Some(op) = binary_op(symbol).filter(|op| !is_operator_function(*op, left, right))
            && let Ok(operator) = BinaryOperator::resolve(op, left, right)
        {
            return Some((operator.left, operator.right, operator.result));
        }
        let function = Function::resolve(symbol, &[left, right]).ok()?;
        Some((function.arguments[0], function.arguments[1], function.result))
    }

    fn operator(&self, symbol: &str, left: &Expr, right: &Expr) -> Option<Typed> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        let (l, r, result) = self.operands(symbol, left.1, right.1)?;
        let (left, right) = (self.coerced(left, l)?, self.coerced(right, r)?);
        let node = Node::Op { symbol: symbol.to_owned(), left: Some(Box::new(left)), right: Box::new(right) };
        Some((node, Some(result)))
    }

    fn binary(&self, left: &Expr, op: &Symbol, right: &Expr) -> Option<Typed> {
        let word = match op {
            Symbol::And => "AND",
            Symbol::Or => "OR",
            _ => return self.operator(symbol_of(op)?, left, right),
        };
        // A chain is one list, to the left.
        let mut args = match unnested(left) {
            Expr::BinaryOp { op: inner, .. } if inner == op => match self.node(left)?.0 {
                Node::Bool { args, .. } => args,
                other => vec![other],
            },
            _ => vec![self.typed(left, Type::Bool)?],
        };
        args.push(self.typed(right, Type::Bool)?);
        Some((Node::Bool { word, args }, Some(Type::Bool)))
    }

    fn unary(&self, op: UnaryOperator, expr: &Expr) -> Option<Typed> {
        match op {
            UnaryOperator::Not => Some((Node::Not(Box::new(self.typed(expr, Type::Bool)?)), Some(Type::Bool))),
            UnaryOperator::Minus => match unnested(expr) {
                Expr::Value(value) => match &value.value {
                    Value::Number(digits, _) => {
                        let (ty, _) = cast::number_literal(digits).ok()?;
                        let ty = cast::without_modifier(ty);
                        Some((Node::Atom(format!("'-{digits}'::{}", pgtype::format_type(ty))), Some(ty)))
                    }
                    _ => None,
                },
                other => {
                    let (node, ty) = self.node(other)?;
                    Some((Node::Op { symbol: "-".to_owned(), left: None, right: Box::new(node) }, ty))
                }
            },
            UnaryOperator::Plus => self.node(expr),
            _ => None,
        }
    }

    fn test(&self, expr: &Expr, suffix: &'static str) -> Option<Typed> {
        let (node, ty) = self.node(expr)?;
        let node = if ty.is_none() { self.coerced((node, ty), Type::Text)? } else { node };
        Some((Node::Test { arg: Box::new(node), suffix }, Some(Type::Bool)))
    }

    fn distinct(&self, left: &Expr, right: &Expr, negated: bool) -> Option<Typed> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        let (l, r, _) = self.operands("=", left.1, right.1)?;
        let (left, right) = (Box::new(self.coerced(left, l)?), Box::new(self.coerced(right, r)?));
        Some((Node::Distinct { left, right, negated }, Some(Type::Bool)))
    }

    fn between(&self, expr: &Expr, low: &Expr, high: &Expr, negated: bool) -> Option<Typed> {
        let (first, second, word) = if negated { ("<", ">", "OR") } else { (">=", "<=", "AND") };
        let args = vec![self.operator(first, expr, low)?.0, self.operator(second, expr, high)?.0];
        Some((Node::Bool { word, args }, Some(Type::Bool)))
    }

    /// Items that are no columns make an array where there are several, the others are compared one by one.
    fn in_list(&self, expr: &Expr, list: &[Expr], negated: bool) -> Option<Typed> {
        let symbol = if negated { "<>" } else { "=" };
        let constants: Vec<&Expr> = list.iter().filter(|item| !self.mentions_column(item)).collect();
        let (mut shown, singles) = match constants.as_slice() {
            [_, _, ..] => {
                let others = list.iter().filter(|item| self.mentions_column(item)).collect();
                (Some(self.in_array(expr, &constants, negated)?), others)
            }
            _ => (None, list.iter().collect::<Vec<&Expr>>()),
        };
        let word = if negated { "AND" } else { "OR" };
        for item in singles {
            let (one, _) = self.operator(symbol, expr, item)?;
            shown = Some(match shown {
                None => one,
                Some(before) => Node::Bool { word, args: vec![before, one] },
            });
        }
        Some((shown?, Some(Type::Bool)))
    }

    fn mentions_column(&self, ast: &Expr) -> bool {
        let found = ast::visit_expressions(ast, |part| {
            let is_column = match part {
                Expr::Identifier(ident) => self.scope.column(&fold(ident)).is_ok(),
                Expr::CompoundIdentifier(_) => true,
                _ => false,
            };
            if is_column { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found.is_break()
    }

    fn in_array(&self, expr: &Expr, list: &[&Expr], negated: bool) -> Option<Node> {
        let symbol = if negated { "<>" } else { "=" };
        let wanted = self.node(expr)?;
        let items = list.iter().map(|item| self.node(item)).collect::<Option<Vec<Typed>>>()?;
        let types: Vec<Option<Type>> = std::iter::once(wanted.1).chain(items.iter().map(|item| item.1)).collect();
        let of = cast::without_modifier(common_type("IN", &types).ok()?);
        let items = items.into_iter().map(|item| self.coerced(item, of)).collect::<Option<Vec<Node>>>()?;
        let mut array = Node::Call { head: "ARRAY[".into(), args: items, between: ", ", tail: "]" };
        let (side, element, _) = self.operands(symbol, Some(wanted.1.unwrap_or(of)), Some(of))?;
        if !cast::same_base(element, of) {
            array = Node::Cast { arg: Box::new(array), ty: format!("{}[]", pgtype::format_type(element)) };
        }
        let left = Box::new(self.coerced(wanted, side)?);
        let word = if negated { "ALL" } else { "ANY" };
        Some(Node::Any { left, symbol, word, array: Box::new(array) })
    }

    fn quantified(&self, left: &Expr, op: &Symbol, right: &Expr, word: &'static str) -> Option<Typed> {
        let symbol = symbol_of(op)?;
        let (left, array) = (self.node(left)?, self.node(right)?);
        let element = match array.1.map(Type::as_array) {
            Some(Type::Array(element)) => *element,
            None => cast::without_modifier(left.1?),
            Some(_) => return None,
        };
        let (side, element, _) = self.operands(symbol, left.1, Some(element))?;
        let (left, array) = (self.coerced(left, side)?, self.coerced(array, Type::array_of(element))?);
        Some((Node::Any { left: Box::new(left), symbol, word, array: Box::new(array) }, Some(Type::Bool)))
    }

    fn cast(&self, expr: &Expr, to: Type) -> Option<Typed> {
        if let (Expr::Array(array), Type::Array(element)) = (unnested(expr), to) {
            return self.array_as(&array.elem, *element);
        }
        let (node, from) = self.node(expr)?;
        let node = match (node, from) {
            (node @ (Node::Untyped(_) | Node::Null), _) => self.coerced((node, None), to)?,
            (node, Some(from)) if from == to => node,
            (node, _) => Node::Cast { arg: Box::new(node), ty: pgtype::format_type(to) },
        };
        Some((node, Some(to)))
    }

    fn case(&self, operand: Option<&Expr>, conditions: &[ast::CaseWhen], otherwise: Option<&Expr>) -> Option<Typed> {
        let mut results = conditions.iter().map(|when| self.node(&when.result)).collect::<Option<Vec<Typed>>>()?;
        results.push(match otherwise {
            Some(otherwise) => self.node(otherwise)?,
            None => (Node::Null, None),
        });
        // What stands behind ELSE is asked first.
        let types: Vec<Option<Type>> =
            results.last().into_iter().chain(&results[..conditions.len()]).map(|result| result.1).collect();
        let ty = common_type("CASE", &types).ok()?;
        let of = cast::without_modifier(ty);
        let mut results = results.into_iter().map(|result| self.coerced(result, of)).collect::<Option<Vec<Node>>>()?;
        let otherwise = Box::new(results.pop()?);
        let operand_node = match operand {
            Some(operand) => Some(self.node(operand)?),
            None => None,
        };
        let mut tests = Vec::with_capacity(conditions.len());
        for when in conditions {
            tests.push(match &operand_node {
                None => self.typed(&when.condition, Type::Bool)?,
                Some(operand) => {
                    let value = self.node(&when.condition)?;
                    let (_, r, _) = self.operands("=", operand.1, value.1)?;
                    self.coerced(value, r)?
                }
            });
        }
        let operand = operand_node.map(|(node, _)| Box::new(node));
        Some((Node::Case { operand, branches: tests.into_iter().zip(results).collect(), otherwise }, Some(ty)))
    }

    /// An array that is cast: so is each of its items, and only where there are none the type is shown.
    fn array_as(&self, items: &[Expr], element: Type) -> Option<Typed> {
        let of = Type::array_of(element);
        if items.is_empty() {
            let shown = pgtype::format_type(cast::without_modifier(of));
            return Some((Node::Atom(format!("ARRAY[]::{shown}")), Some(of)));
        }
        let item = |item: &Expr| match unnested(item) {
            Expr::Array(inner) => self.array_as(&inner.elem, element),
            _ => self.cast(item, element),
        };
        let args = items.iter().map(|one| Some(item(one)?.0)).collect::<Option<Vec<Node>>>()?;
        Some((Node::Call { head: "ARRAY[".into(), args, between: ", ", tail: "]" }, Some(of)))
    }

    fn array(&self, items: &[Expr]) -> Option<Typed> {
        if items.is_empty() {
            return None;
        }
        let items = items.iter().map(|item| self.node(item)).collect::<Option<Vec<Typed>>>()?;
        let types: Vec<Option<Type>> = items.iter().map(|item| item.1).collect();
        let of = cast::without_modifier(common_type("ARRAY", &types).ok()?);
        let args = items.into_iter().map(|item| self.coerced(item, of)).collect::<Option<Vec<Node>>>()?;
        Some((Node::Call { head: "ARRAY[".into(), args, between: ", ", tail: "]" }, Some(Type::array_of(of))))
    }

    fn function(&self, function: &ast::Function) -> Option<Typed> {
        if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty() {
            return None;
        }
        let name = function.name.to_string().to_lowercase().replace('"', "");
        let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
        if matches!(function.args, FunctionArguments::None) {
            return self.keyword(name);
        }
        if let Some(aggregate) = AggregateFunction::named(name) {
            return self.aggregate(name, aggregate, &function.args);
        }
        let args = plain_args(&function.args)?;
        let keyword = match name {
            "coalesce" => "COALESCE(",
            "greatest" => "GREATEST(",
            "least" => "LEAST(",
            "nullif" => {
                let [left, right] = args.as_slice() else { return None };
                let (left, right) = (self.node(left)?, self.node(right)?);
                let (l, r, _) = self.operands("=", left.1, right.1)?;
                let ty = left.1.unwrap_or(l);
                let args = vec![self.coerced(left, l)?, self.coerced(right, r)?];
                return Some((Node::Call { head: "NULLIF(".into(), args, between: ", ", tail: ")" }, Some(ty)));
            }
            "nextval" | "currval" => return self.sequence_call(name, &args),
            "current_timestamp" | "localtimestamp" | "localtime" => return self.rounded_clock(name, &args),
            "now" if args.is_empty() => {
                return Some((
                    Node::Call { head: "now(".into(), args: Vec::new(), between: ", ", tail: ")" },
                    Some(Type::Timestamptz),
                ));
            }
            _ => return self.call(name, &args),
        };
        let parts = args.iter().map(|arg| self.node(arg)).collect::<Option<Vec<Typed>>>()?;
        let types: Vec<Option<Type>> = parts.iter().map(|part| part.1).collect();
        let ty = common_type(name, &types).ok()?;
        let of = cast::without_modifier(ty);
        let args = parts.into_iter().map(|part| self.coerced(part, of)).collect::<Option<Vec<Node>>>()?;
        Some((Node::Call { head: keyword.into(), args, between: ", ", tail: ")" }, Some(ty)))
    }

    fn aggregate(&self, name: &str, aggregate: AggregateFunction, args: &FunctionArguments) -> Option<Typed> {
        let FunctionArguments::List(list) = args else { return None };
        if !list.clauses.is_empty() {
            return None;
        }
        let distinct = matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
        let head = format!("{name}({}", if distinct { "DISTINCT " } else { "" });
        let (args, ty) = match list.args.as_slice() {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] => {
                (vec![Node::Atom("*".to_owned())], Type::Int8)
            }
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg))] => {
                let arg = self.node(arg)?;
                let (input, result) = aggregate.types(arg.1.map(Type::unrounded))?;
                let input = input.or(arg.1).unwrap_or(Type::Text);
                (vec![self.coerced(arg, input)?], result)
            }
            _ => return None,
        };
        Some((Node::Call { head, args, between: ", ", tail: ")" }, Some(ty)))
    }

    fn call(&self, name: &str, args: &[&Expr]) -> Option<Typed> {
        let parts = args.iter().map(|arg| self.node(arg)).collect::<Option<Vec<Typed>>>()?;
        let types: Vec<Option<Type>> = parts.iter().map(|part| part.1).collect();
        let function = Function::resolve(name, &types).ok()?;
        let mut args = Vec::with_capacity(parts.len());
        for (part, to) in parts.into_iter().zip(&function.arguments) {
            args.push(self.coerced(part, *to)?);
        }
        let head = format!("{}(", quoted_ident(name));
        Some((Node::Call { head, args, between: ", ", tail: ")" }, Some(function.result)))
    }

    /// The sequence by the name that finds it.
    fn sequence_call(&self, name: &str, args: &[&Expr]) -> Option<Typed> {
        let [arg] = args else { return None };
        let mut arg = unnested(arg);
        while let Expr::Cast { expr, .. } = arg {
            arg = unnested(expr);
        }
        let (Node::Untyped(text), _) = self.node(arg)? else { return None };
        let arg = self.coerced((Node::Untyped(text), None), Type::Oid(OidKind::Class))?;
        Some((Node::Call { head: format!("{name}("), args: vec![arg], between: ", ", tail: ")" }, Some(Type::Int8)))
    }
}

fn unnested(ast: &Expr) -> &Expr {
    match ast {
        Expr::Nested(inner) => unnested(inner),
        other => other,
    }
}

fn is_moment(ty: Type) -> bool {
    matches!(ty.unrounded(), Type::Date | Type::Timestamp | Type::Timestamptz | Type::Time)
}

fn literal(value: &Value) -> Option<Typed> {
    Some(match value {
        Value::Null => (Node::Null, None),
        Value::Boolean(b) => (Node::Atom(b.to_string()), Some(Type::Bool)),
        Value::Number(digits, false) => {
            let (ty, _) = cast::number_literal(digits).ok()?;
            let ty = cast::without_modifier(ty);
            (constant(ty, digits), Some(ty))
        }
        Value::SingleQuotedString(s) | Value::EscapedStringLiteral(s) | Value::UnicodeStringLiteral(s) => {
            (Node::Untyped(s.clone()), None)
        }
        Value::DollarQuotedString(s) => (Node::Untyped(s.value.clone()), None),
        _ => return None,
    })
}

/// A literal that shows its type, unless it would be read as that.
fn constant(ty: Type, text: &str) -> Node {
    let unsigned = text.starts_with(|c: char| c.is_ascii_digit());
    Node::Atom(match ty {
        Type::Int4 if unsigned => text.to_owned(),
        Type::Decimal { .. } | Type::Numeric { .. } if unsigned && !text.bytes().all(|b| b.is_ascii_digit()) => {
            text.to_owned()
        }
        Type::Bool => if text.starts_with('t') { "true" } else { "false" }.to_owned(),
        Type::Char(_) => format!("{}::bpchar", quoted_literal(text)),
        Type::Oid(OidKind::Class) => format!("{}::regclass", quoted_literal(text)),
        ty => format!("{}::{}", quoted_literal(text), pgtype::format_type(ty)),
    })
}

/// Which types an operator of two numbers takes, of those that PostgreSQL has one for.
fn number_sides(left: Type, right: Type) -> (Type, Type) {
    if is_integer(left) && is_integer(right) || is_float(left) && is_float(right) {
        return (left, right);
    }
    let other = if is_float(left) || is_float(right) { Type::Float8 } else { NUMERIC };
    let side = |ty: Type| match ty {
        ty if is_float(ty) => ty,
        ty if is_numeric(ty) && other == NUMERIC => ty,
        _ => other,
    };
    (side(left), side(right))
}

fn symbol_of(op: &Symbol) -> Option<&'static str> {
    Some(match op {
        Symbol::Eq => "=",
        Symbol::NotEq => "<>",
        Symbol::Lt => "<",
        Symbol::LtEq => "<=",
        Symbol::Gt => ">",
        Symbol::GtEq => ">=",
        Symbol::Plus => "+",
        Symbol::Minus => "-",
        Symbol::Multiply => "*",
        Symbol::Divide => "/",
        Symbol::Modulo => "%",
        Symbol::PGExp => "^",
        Symbol::StringConcat => "||",
        Symbol::BitwiseAnd => "&",
        Symbol::BitwiseOr => "|",
        Symbol::PGBitwiseXor => "#",
        Symbol::PGBitwiseShiftLeft => "<<",
        Symbol::PGBitwiseShiftRight => ">>",
        Symbol::PGLikeMatch => "~~",
        Symbol::PGNotLikeMatch => "!~~",
        Symbol::PGILikeMatch => "~~*",
        Symbol::PGNotILikeMatch => "!~~*",
        Symbol::PGRegexMatch => "~",
        Symbol::PGRegexIMatch => "~*",
        Symbol::PGRegexNotMatch => "!~",
        Symbol::PGRegexNotIMatch => "!~*",
        Symbol::Arrow => "->",
        Symbol::LongArrow => "->>",
        Symbol::HashArrow => "#>",
        Symbol::HashLongArrow => "#>>",
        Symbol::AtArrow => "@>",
        Symbol::ArrowAt => "<@",
        Symbol::Question => "?",
        Symbol::PGOverlap => "&&",
        Symbol::Custom(symbol) if symbol == "<<=" => "<<=",
        Symbol::Custom(symbol) if symbol == ">>=" => ">>=",
        _ => return None,
    })
}

/// The operators that the table of operators has, the others are functions.
fn binary_op(symbol: &str) -> Option<BinaryOp> {
    use BinaryOp::*;
    let all = [
        Add, Sub, Mul, Div, Mod, Power, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight, Concat, Eq, Ne, Lt, Le, Gt, Ge,
        Like, NotLike, ILike, NotILike,
    ];
    all.into_iter().find(|op| op.symbol() == symbol)
}

/// What a part stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around<'a> {
    /// An operator with this symbol; whether the part is its first side.
    Op(&'a str, bool),
    And,
    Or,
    Not,
    Cast,
    Other,
}

struct Writer {
    out: String,
    style: Style,
    /// Blanks before a line.
    level: usize,
}

impl Writer {
    /// Starts a line.
    fn keyword(&mut self, word: &str) {
        let kept = self.out.trim_end_matches(' ').len();
        self.out.truncate(kept);
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', self.level));
        self.out.push_str(word);
    }

    fn open(&mut self) {
        if !self.style.pretty {
            self.out.push('(');
        }
    }

    fn close(&mut self) {
        if !self.style.pretty {
            self.out.push(')');
        }
    }

    /// A part, within parentheses if it would be read otherwise.
    fn part(&mut self, node: &Node, around: Around<'_>) {
        let needs = self.style.pretty && !is_simple(node, around);
        if needs {
            self.out.push('(');
        }
        self.write(node);
        if needs {
            self.out.push(')');
        }
    }

    fn write(&mut self, node: &Node) {
        match node {
            Node::Atom(text) => self.out.push_str(text),
            Node::Untyped(text) => self.out.push_str(&quoted_literal(text)),
            Node::Null => self.out.push_str("NULL"),
            Node::Call { head, args, between, tail } => {
                self.out.push_str(head);
                for (i, arg) in args.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(between);
                    }
                    self.write(arg);
                }
                self.out.push_str(tail);
            }
            Node::Cast { arg, ty } => {
                self.open();
                self.part(arg, Around::Cast);
                self.close();
                self.out.push_str("::");
                self.out.push_str(ty);
            }
            Node::Op { symbol, left, right } => {
                self.open();
                if let Some(left) = left {
                    self.part(left, Around::Op(symbol, true));
                    self.out.push(' ');
                }
                self.out.push_str(symbol);
                self.out.push(' ');
                self.part(right, Around::Op(symbol, false));
                self.close();
            }
            Node::Any { left, symbol, word, array } => {
                self.open();
                self.part(left, Around::Other);
                self.out.push_str(&format!(" {symbol} {word} ("));
                self.part(array, Around::Other);
                self.out.push(')');
                self.close();
            }
            Node::Bool { word, args } => {
                self.open();
                for (i, arg) in args.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(&format!(" {word} "));
                    }
                    self.part(arg, if *word == "AND" { Around::And } else { Around::Or });
                }
                self.close();
            }
            Node::Not(arg) => {
                self.open();
                self.out.push_str("NOT ");
                self.part(arg, Around::Not);
                self.close();
            }
            Node::Test { arg, suffix } => {
                self.open();
                self.part(arg, Around::Other);
                self.out.push(' ');
                self.out.push_str(suffix);
                self.close();
            }
            Node::Distinct { left, right, negated: false } => {
                self.open();
                self.part(left, Around::Other);
                self.out.push_str(" IS DISTINCT FROM ");
                self.part(right, Around::Other);
                self.close();
            }
            Node::Distinct { left, right, negated: true } => {
                let of = Node::Distinct { left: left.clone(), right: right.clone(), negated: false };
                self.write(&Node::Not(Box::new(of)));
            }
            Node::AtZone { moment, zone } => {
                self.out.push('(');
                self.part(moment, Around::Cast);
                self.out.push_str(" AT TIME ZONE ");
                self.part(zone, Around::Cast);
                self.out.push(')');
            }
            Node::Case { operand, branches, otherwise } => self.case(operand.as_deref(), branches, otherwise),
        }
    }

    fn case(&mut self, operand: Option<&Node>, branches: &[(Node, Node)], otherwise: &Node) {
        self.keyword("CASE");
        if let Some(operand) = operand {
            self.out.push(' ');
            self.write(operand);
        }
        self.level += 4;
        for (condition, result) in branches {
            self.keyword("WHEN ");
            self.write(condition);
            self.out.push_str(" THEN ");
            self.write(result);
        }
        self.keyword("ELSE ");
        self.write(otherwise);
        self.level -= 4;
        self.keyword("END");
    }
}

/// Whether a part is read as one also without parentheses.
fn is_simple(node: &Node, around: Around<'_>) -> bool {
    match node {
        Node::Atom(_) | Node::Untyped(_) | Node::Null | Node::Call { .. } | Node::Case { .. } | Node::AtZone { .. } => {
            true
        }
        Node::Cast { arg, .. } => is_simple(arg, around),
        Node::Op { symbol, left: Some(_), .. } => match around {
            Around::Op(outer, is_first) => binds_tighter(symbol, outer, is_first),
            around => is_within_words(around),
        },
        Node::Op { .. } | Node::Test { .. } | Node::Distinct { .. } => is_within_words(around),
        Node::Bool { word: "OR", .. } => around == Around::Or,
        Node::Bool { .. } | Node::Not(_) => matches!(around, Around::And | Around::Or),
        Node::Any { .. } => false,
    }
}

/// AND, OR and NOT bind less than any operator.
fn is_within_words(around: Around<'_>) -> bool {
    matches!(around, Around::And | Around::Or | Around::Not)
}

fn binds_tighter(inner: &str, outer: &str, is_first: bool) -> bool {
    let rank = |symbol: &str| match symbol {
        "+" | "-" => Some(1),
        "*" | "/" | "%" => Some(2),
        _ => None,
    };
    match (rank(inner), rank(outer)) {
        (Some(inner), Some(outer)) => inner > outer || inner == outer && is_first,
        _ => false,
    }
}
