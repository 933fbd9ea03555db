//! How does a bound expression become one of DataFusion's? Natively where DataFusion means what PostgreSQL means; as a call of the
//! evaluator elsewhere.
//!
//! | expression | as |
//! |---|---|
//! | column, literal, parameter | itself; a parameter as the literal it is bound to |
//! | AND, OR, NOT, IS NULL, IS TRUE | native; an AND or OR with parts that may fail, other than a filter's own, is [`Computed`] |
//! | comparison, IN, IS DISTINCT FROM | native on one common type, by [`Key`] where equality is not that of the bytes |
//! | decimal or date compared with a constant of another type | native, with the constant as one of the first type ([`narrowed`]) |
//! | sums, differences and products of decimals | [`Fixed`], a column at a time |
//! | anything else | [`Computed`] over the columns it mentions |
//!
//! Native comparisons are what DataFusion can push down, join by and look keys up with.

use super::cells::{data_type, literal};
use super::compute::{Computed, Key};
use super::fixed::{Fixed, Op, Term, scale_of};
use super::template::Holes;
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::value::cast::{is_float, is_integer, is_numeric, same_base};
use crate::value::numeric::POWERS;
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::pgtype::NUMERIC;
use crate::value::{Clock, Datum};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::{Cast, InList, ScalarFunction};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{BinaryExpr, Expr as DfExpr, Operator, ScalarUDF, ScalarUDFImpl};
use freshet_engine::schema::{NetworkKind, Type, Value};
use std::sync::Arc;

/// What columns and placeholders stand for, and what parameters are bound to.
pub struct Leaves<'a> {
    /// By source and column.
    pub sources: &'a [Vec<Leaf>],
    pub placeholders: &'a dyn Fn(u16, u16) -> Option<Leaf>,
    pub parameters: &'a [Datum],
    pub env: &'a Env,
    /// Sums are not taken at a fixed scale: an earlier run found that they do not fit (`fixed`).
    pub is_wide: bool,
    /// Parameters stay open, where the plan is kept for other values.
    pub holes: Option<&'a Holes>,
}

/// An expression of DataFusion's with its SQL type.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub expr: DfExpr,
    pub ty: Type,
}

impl Leaf {
    pub fn new(expr: DfExpr, ty: Type) -> Leaf {
        Leaf { expr, ty }
    }
}

pub fn call(function: impl ScalarUDFImpl + 'static, args: Vec<DfExpr>) -> DfExpr {
    DfExpr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), args))
}

/// What the expression is compared, grouped and sorted by.
pub fn key(expr: DfExpr, ty: Type) -> DfExpr {
    match Key::of(ty) {
        Some(key) => call(key, vec![expr]),
        None => expr,
    }
}

/// The type that values of two types are natively compared as; `None`: only the evaluator compares them.
pub fn common(left: Type, right: Type) -> Option<Type> {
    use Type::*;
    let number = |t| is_integer(t) || is_numeric(t);
    Some(match (left, right) {
        (a, b) if a == b => a,
        (a, b) if is_integer(a) && is_integer(b) => Int8,
        (a, b) if number(a) && number(b) => match (a, b) {
            (Decimal { precision: p, scale: s }, Decimal { precision: q, scale: t }) if s == t => {
                Decimal { precision: p.max(q), scale: s }
            }
            _ => NUMERIC,
        },
        (a, b) if (is_float(a) || number(a)) && (is_float(b) || number(b)) => Float8,
        (Text | Varchar(_) | Name | CharByte, Text | Varchar(_) | Name | CharByte) => Text,
        (Oid(_), Oid(_)) => Int8,
        (Oid(_), other) | (other, Oid(_)) if is_integer(other) => Int8,
        // Against varchar blanks at the end do not count, against text those of the char do not.
        (Char(_), Char(_) | Varchar(_)) | (Varchar(_), Char(_)) => Char(crate::value::pgtype::UNLIMITED),
        (Char(_), Text) | (Text, Char(_)) => Text,
        _ => return None,
    })
}

/// The type as which values compare as they do as each of two; `None`: blanks or digits would count for one of them only.
fn alike(one: Type, other: Type) -> Option<Type> {
    use Type::*;
    let is_exact = |t| is_integer(t) || is_numeric(t) || matches!(t, Oid(_));
    let is_text = |t| matches!(t, Text | Varchar(_) | Name | CharByte);
    let is_char = |t| matches!(t, Char(_));
    let kinds: [&dyn Fn(Type) -> bool; 4] = [&is_exact, &is_text, &is_char, &is_float];
    let is_same = one == other || kinds.iter().any(|is_kind| is_kind(one) && is_kind(other));
    if is_same { common(one, other) } else { None }
}

impl Leaves<'_> {
    pub fn leaf(&self, source: u16, column: u16) -> Option<Leaf> {
        if source >= crate::bind::PLACEHOLDERS {
            return (self.placeholders)(source, column);
        }
        self.sources.get(usize::from(source))?.get(usize::from(column)).cloned()
    }

    fn known_leaf(&self, source: u16, column: u16) -> Result<Leaf, SqlError> {
        self.leaf(source, column)
            .ok_or_else(|| SqlError::unsupported("a reference to a column from within this clause"))
    }

    /// The expression, which is of type `ty`.
    pub fn convert(&self, expr: &Expr, ty: Type) -> Result<DfExpr, SqlError> {
        match expr {
            Expr::Const(datum) => lit(ty, datum),
            Expr::Param(i) => match self.holes {
                Some(holes) => Ok(holes.hole(*i, ty)),
                None => lit(ty, &self.parameters[usize::from(*i)]),
            },
            Expr::Column { source, column } | Expr::Cell { source, column } => {
                let leaf = self.known_leaf(*source, *column)?;
                Ok(widened(leaf, ty))
            }
            Expr::And(list) | Expr::Or(list) if self.chooses(list) => self.computed(expr, ty),
            Expr::And(list) => self.junction(list, Operator::And, true),
            Expr::Or(list) => self.junction(list, Operator::Or, false),
            Expr::Not(inner) => Ok(DfExpr::Not(Box::new(self.condition(inner)?))),
            Expr::IsNull { expr: inner, negated } => match inner.as_ref() {
                Expr::Column { source, column } | Expr::Cell { source, column } => {
                    let leaf = Box::new(self.known_leaf(*source, *column)?.expr);
                    Ok(if *negated { DfExpr::IsNotNull(leaf) } else { DfExpr::IsNull(leaf) })
                }
                _ => self.computed(expr, ty),
            },
            Expr::IsTruth { expr: inner, value, negated } => {
                let inner = Box::new(self.condition(inner)?);
                Ok(match (value, negated) {
                    (true, false) => DfExpr::IsTrue(inner),
                    (true, true) => DfExpr::IsNotTrue(inner),
                    (false, false) => DfExpr::IsFalse(inner),
                    (false, true) => DfExpr::IsNotFalse(inner),
                })
            }
            Expr::Compare { operator, left, right } => match native(operator.op) {
                Some(op) => match self.narrow_or_sides(operator, op, left, right)? {
                    Some(native) => Ok(native),
                    None => self.computed(expr, ty),
                },
                None => self.computed(expr, ty),
            },
            Expr::Binary { operator, .. } if matches!(ty, Type::Decimal { .. }) && operator.is_exact() => {
                match self.fixed_as(expr, ty) {
                    Some(fixed) => Ok(fixed),
                    None => self.computed(expr, ty),
                }
            }
            Expr::Distinct { operator, left, right, negated } => match self.sides(operator, left, right)? {
                Some((left, right)) => {
                    let op = if *negated { Operator::IsNotDistinctFrom } else { Operator::IsDistinctFrom };
                    Ok(infix(left, op, right))
                }
                None => self.computed(expr, ty),
            },
            Expr::In { expr: wanted, list, negated, .. } => match self.in_list(wanted, list, *negated)? {
                Some(native) => Ok(native),
                None => self.computed(expr, ty),
            },
            _ => self.computed(expr, ty),
        }
    }

    pub fn condition(&self, expr: &Expr) -> Result<DfExpr, SqlError> {
        self.convert(expr, Type::Bool)
    }

    /// A condition whose parts are asked one after the other wherever the optimizer moves them (`lazy`).
    pub fn filter(&self, expr: &Expr) -> Result<DfExpr, SqlError> {
        match expr {
            Expr::And(list) => self.junction(list, Operator::And, true),
            other => self.condition(other),
        }
    }

    /// Whether the evaluator has to choose which of the parts of an AND or OR are computed, as some may fail. Subqueries it cannot compute.
    fn chooses(&self, list: &[Expr]) -> bool {
        let may_fail = list.iter().skip(1).any(Expr::may_fail) && !list.iter().any(Expr::is_volatile);
        let asks = |source, column| {
            let is_subquery = |e: &DfExpr| {
                matches!(
                    e,
                    DfExpr::ScalarSubquery(_) | DfExpr::Exists(_) | DfExpr::InSubquery(_) | DfExpr::SetComparison(_)
                )
            };
            self.leaf(source, column).is_some_and(|leaf| leaf.expr.exists(|e| Ok(is_subquery(e))).unwrap_or(true))
        };
        let mut has_subquery = false;
        list.iter().for_each(|part| {
            part.walk(&mut |e| {
                has_subquery |= matches!(e, Expr::Cell { source, column } if asks(*source, *column));
                !has_subquery
            });
        });
        may_fail && !has_subquery
    }

    fn junction(&self, list: &[Expr], op: Operator, empty: bool) -> Result<DfExpr, SqlError> {
        let mut parts = Vec::with_capacity(list.len());
        for part in list {
            parts.push(self.condition(part)?);
        }
        let joined = parts.into_iter().reduce(|left, right| infix(left, op, right));
        Ok(joined.unwrap_or(DfExpr::Literal(ScalarValue::Boolean(Some(empty)), None)))
    }

    /// A native comparison, where there is one.
    fn narrow_or_sides(
        &self,
        operator: &BinaryOperator,
        op: Operator,
        left: &Expr,
        right: &Expr,
    ) -> Result<Option<DfExpr>, SqlError> {
        let (value, ty, constant, mirrored) = match (self.constant(left), self.constant(right)) {
            (None, Some(constant)) => (left, operator.left, Some((operator.right, constant)), op),
            (Some(constant), None) => (right, operator.right, Some((operator.left, constant)), op.swap().unwrap_or(op)),
            _ => (left, operator.left, None, op),
        };
        if let Some((of, datum)) = constant
            && of != ty
            && let Some((op, datum)) = narrowed(ty, mirrored, of, &datum)
        {
            return Ok(Some(infix(self.convert(value, ty)?, op, lit(ty, &datum)?)));
        }
        Ok(self.sides(operator, left, right)?.map(|(left, right)| compared(left, op, right)))
    }

    /// The value of an expression without columns that is always the same.
    fn constant(&self, expr: &Expr) -> Option<Datum> {
        let frame = Frame { parameters: self.parameters, ..Frame::new(self.env) };
        let is_free = !expr.mentions(|_| true) && !expr.has_aggregate() && !expr.asks_sequence();
        if self.holes.is_some() && mentions_parameters(expr) {
            return None;
        }
        if !is_free || expr.is_volatile() {
            return None;
        }
        if let Some(holes) = self.holes {
            holes.note_session(expr);
        }
        evaluate(expr, &frame).ok().map(|scalar| scalar.into_datum())
    }

    /// A decimal's arithmetic, which is sure to fit.
    fn fixed_as(&self, expr: &Expr, ty: Type) -> Option<DfExpr> {
        let mut args = Vec::new();
        let term = self.term(expr, ty, &mut args)?;
        let count = args.len();
        (count > 0 && Some(term.scale()) == scale_of(ty)).then(|| call(Fixed::of_type(term, count, ty), args))
    }

    /// What a sum is taken of, with its type; `None`: not at a fixed scale.
    pub fn summand(&self, expr: &Expr, ty: Type) -> Option<(DfExpr, Type)> {
        if self.is_wide {
            return None;
        }
        if let Expr::Column { source, column } | Expr::Cell { source, column } = expr {
            let leaf = self.leaf(*source, *column)?;
            return scale_of(leaf.ty).map(|_| (leaf.expr, leaf.ty));
        }
        let mut args = Vec::new();
        let term = self.term(expr, ty, &mut args)?;
        let fixed = Fixed::new(term, args.len());
        let ty = fixed.ty();
        (!args.is_empty()).then(|| (call(fixed, args), ty))
    }

    /// The expression over arguments that are integers at one scale.
    fn term(&self, expr: &Expr, ty: Type, args: &mut Vec<DfExpr>) -> Option<Term> {
        match expr {
            Expr::Const(datum) => Term::constant(ty, datum),
            Expr::Param(_) if self.holes.is_some() => None,
            Expr::Param(i) => Term::constant(ty, &self.parameters[usize::from(*i)]),
            Expr::Column { source, column } | Expr::Cell { source, column } => {
                let leaf = self.leaf(*source, *column)?;
                let scale = scale_of(leaf.ty)?;
                let at = args.iter().position(|a| *a == leaf.expr).unwrap_or_else(|| {
                    args.push(leaf.expr);
                    args.len() - 1
                });
                Some(Term::Argument { at, scale })
            }
            Expr::Binary { operator, left, right } if operator.is_exact() => {
                let op = Op::of(operator.op)?;
                let left = self.term(left, operator.left, args)?;
                let right = self.term(right, operator.right, args)?;
                Term::joined(op, left, right)
            }
            Expr::Cast { expr, from, to: Type::Numeric { typmod: None }, .. } => {
                scale_of(*from)?;
                self.term(expr, *from, args)
            }
            _ => None,
        }
    }

    /// Both sides as what they are natively compared by.
    fn sides(
        &self,
        operator: &BinaryOperator,
        left: &Expr,
        right: &Expr,
    ) -> Result<Option<(DfExpr, DfExpr)>, SqlError> {
        let Some(ty) = common(operator.left, operator.right) else {
            return Ok(None);
        };
        // By key only what may join; against a constant the evaluator is as good, and a scan can take it.
        let constant = |e: &Expr| matches!(e, Expr::Const(_) | Expr::Param(_));
        if Key::of(ty).is_some() && (constant(left) || constant(right)) {
            return Ok(None);
        }
        let left = self.as_type(left, operator.left, ty)?;
        let right = self.as_type(right, operator.right, ty)?;
        Ok(Some((key(left, ty), key(right, ty))))
    }

    /// The expression of type `from` cast to `to`.
    pub fn as_type(&self, expr: &Expr, from: Type, to: Type) -> Result<DfExpr, SqlError> {
        let loses_blanks = matches!(to, Type::Char(_)) && !matches!(from, Type::Char(_));
        // Arrays of every type travel as bytes, and so do texts of types with a length of their own.
        let (own, other) = (from.as_array(), to.as_array());
        let is_array = matches!(own, Type::Array(_)) || matches!(other, Type::Array(_));
        let is_cut = matches!(to, Type::Name | Type::CharByte);
        // As do addresses, of which only a cidr is an inet as it stands.
        let is_address = matches!((own, other), (Type::Network(a), Type::Network(b)) if (a, b) != (NetworkKind::Cidr, NetworkKind::Inet));
        let is_other = (is_array || is_cut || is_address) && !same_base(own, other);
        if (data_type(from) == data_type(to) && !loses_blanks && !is_other) || (is_integer(from) && is_integer(to)) {
            return self.convert(expr, to);
        }
        let cast = Expr::Cast { expr: Box::new(expr.clone()), from, to, explicit: false };
        self.computed(&cast, to)
    }

    fn in_list(
        &self,
        wanted: &Expr,
        list: &[(BinaryOperator, Expr)],
        negated: bool,
    ) -> Result<Option<DfExpr>, SqlError> {
        let Some((first, _)) = list.first() else {
            return Ok(None);
        };
        // DataFusion merges IN lists of one expression as sets, in which a null is one value among others, and what is written differently is different.
        let is_null = |item: &Expr| match item {
            Expr::Const(datum) => *datum == Datum::Null,
            // It may be.
            Expr::Param(_) if self.holes.is_some() => true,
            Expr::Param(i) => self.parameters[usize::from(*i)] == Datum::Null,
            _ => false,
        };
        if list.iter().any(|(_, item)| is_null(item)) {
            return Ok(None);
        }
        // Each item is compared as it would be alone; one type for all of them must not make others equal.
        let Some(mut ty) = common(first.left, first.right) else {
            return Ok(None);
        };
        for (operator, _) in &list[1..] {
            match common(operator.left, operator.right).and_then(|own| alike(ty, own)) {
                Some(wider) => ty = wider,
                None => return Ok(None),
            }
        }
        let expr = key(self.as_type(wanted, first.left, ty)?, ty);
        let mut items = Vec::with_capacity(list.len());
        for (operator, item) in list {
            items.push(key(self.as_type(item, operator.right, ty)?, ty));
        }
        let is_known = |item: &Expr| matches!(item, Expr::Const(_) | Expr::Param(_));
        if list.iter().all(|(_, item)| is_known(item)) {
            return Ok(Some(DfExpr::InList(InList { expr: Box::new(expr), list: items, negated })));
        }
        if wanted.is_volatile() || items.len() > SPELLED_OUT_MAX {
            return Ok(None);
        }
        let each = items.into_iter().map(|item| match negated {
            true => compared(expr.clone(), Operator::NotEq, item),
            false => compared(expr.clone(), Operator::Eq, item),
        });
        Ok(if negated { conjunction(each) } else { disjunction(each) })
    }

    /// A call of the evaluator, or the literal that the expression is.
    fn computed(&self, expr: &Expr, ty: Type) -> Result<DfExpr, SqlError> {
        let mut args: Vec<DfExpr> = Vec::new();
        let mut missing = None;
        let frame = Frame { parameters: self.parameters, ..Frame::new(self.env) };
        if let Some(holes) = self.holes {
            holes.note_session(expr);
        }
        let over_args = expr.clone().rewrite(&mut |e| match e {
            Expr::Column { source, column } | Expr::Cell { source, column } => {
                match self.known_leaf(*source, *column) {
                    Ok(leaf) => {
                        let at = args.iter().position(|a| *a == leaf.expr).unwrap_or_else(|| {
                            args.push(leaf.expr);
                            args.len() - 1
                        });
                        Some(Expr::Cell { source: 0, column: at as u16 })
                    }
                    Err(error) => {
                        missing.get_or_insert(error);
                        None
                    }
                }
            }
            Expr::Param(i) => match self.holes {
                None => Some(Expr::Const(self.parameters[usize::from(*i)].clone())),
                Some(holes) => {
                    let hole = holes.own(*i);
                    let at = args.iter().position(|a| *a == hole).unwrap_or_else(|| {
                        args.push(hole);
                        args.len() - 1
                    });
                    Some(Expr::Cell { source: 0, column: at as u16 })
                }
            },
            Expr::Env(_) | Expr::Setting { .. } => evaluate(e, &frame).ok().map(|s| Expr::Const(s.into_datum())),
            _ => None,
        });
        if let Some(error) = missing {
            return Err(error);
        }
        if args.is_empty() && !over_args.is_volatile() {
            // What fails is left to fail when, and if, it runs.
            if let Ok(scalar) = evaluate(&over_args, &frame) {
                return lit(ty, &scalar.into_datum());
            }
        }
        let arguments = args.len();
        let computed = Computed::new(over_args, arguments, ty, self.env.clock.clone());
        Ok(call(computed.with_sequences(self.env), args))
    }
}

/// Whether a parameter's value is part of it.
pub fn mentions_parameters(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |e| {
        found |= matches!(e, Expr::Param(_));
        !found
    });
    found
}

const DAY_US: i64 = 86_400_000_000;
/// Items of an IN list that are compared one by one where they are no constants, so that each may find an index.
const SPELLED_OUT_MAX: usize = 8;

/// `value op constant` with the constant, which is `of` another type, as one of the value's. A constant between two values of the type is
/// replaced by the one below it.
pub fn narrowed(ty: Type, op: Operator, of: Type, datum: &Datum) -> Option<(Operator, Datum)> {
    let (below, is_exact) = match (ty, of, datum.as_value()) {
        (Type::Decimal { precision, scale }, _, _) => {
            let (below, is_exact) = at_scale(scale, of, datum)?;
            let fits = below.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs();
            (fits.then_some(Datum::Decimal(below))?, is_exact)
        }
        (Type::Int2 | Type::Int4 | Type::Int8, Type::Decimal { .. } | Type::Numeric { .. }, _) => {
            let (below, is_exact) = at_scale(0, of, datum)?;
            let fits = match ty {
                Type::Int2 => i16::try_from(below).is_ok(),
                Type::Int4 => i32::try_from(below).is_ok(),
                _ => true,
            };
            (fits.then_some(Datum::Int(i64::try_from(below).ok()?))?, is_exact)
        }
        // The ends of the range stand for the infinities.
        (Type::Date, Type::Timestamp, Value::Int(us)) if !matches!(us, i64::MIN | i64::MAX) => {
            (Datum::Int(us.div_euclid(DAY_US)), us.rem_euclid(DAY_US) == 0)
        }
        _ => return None,
    };
    let op = match op {
        op if is_exact => op,
        Operator::Lt | Operator::LtEq => Operator::LtEq,
        Operator::Gt | Operator::GtEq => Operator::Gt,
        _ => return None,
    };
    Some((op, below))
}

/// The greatest number of a scale that is not above this one, in units of that scale, and whether it is this one.
fn at_scale(scale: u8, of: Type, number: &Datum) -> Option<(i128, bool)> {
    let Term::Constant { unscaled, scale: own } = Term::constant(of, number)? else {
        return None;
    };
    let power = POWERS[usize::from(own.abs_diff(scale))];
    match own <= scale {
        true => Some((unscaled.checked_mul(power)?, true)),
        false => Some((unscaled.div_euclid(power), unscaled.rem_euclid(power) == 0)),
    }
}

/// What the value is written as in a plan.
pub fn lit(ty: Type, datum: &Datum) -> Result<DfExpr, SqlError> {
    if ty == Type::Date && is_nameless(datum) {
        // DataFusion folds the call once it has named what the value is in.
        let value = Computed::new(Expr::Const(datum.clone()), 0, ty, Clock::default());
        return Ok(call(value, Vec::new()));
    }
    Ok(DfExpr::Literal(literal(ty, &datum.as_value())?, None))
}

/// Whether DataFusion writes a date as nothing, as it does those after the year 262142 and the infinities. It takes what it writes alike for one.
fn is_nameless(date: &Datum) -> bool {
    const SHOWN_DAYS: std::ops::Range<i64> = -90_000_000..90_000_000;
    matches!(date, Datum::Int(days) if !SHOWN_DAYS.contains(days))
}

/// A leaf as a wider type of the same form.
pub fn widened(leaf: Leaf, ty: Type) -> DfExpr {
    if data_type(leaf.ty) == data_type(ty) {
        return leaf.expr;
    }
    DfExpr::Cast(Cast::new(Box::new(leaf.expr), data_type(ty)))
}

/// A comparison, with what is no column's on its right: of several about one column DataFusion keeps the narrowest, and takes each for one that has its
/// literal there (`5 > a` with `a <= 5`, `a = 5` with `5 = a`).
fn compared(left: DfExpr, op: Operator, right: DfExpr) -> DfExpr {
    match op.swap() {
        Some(swapped) if !left.any_column_refs() && right.any_column_refs() => infix(right, swapped, left),
        _ => infix(left, op, right),
    }
}

pub fn infix(left: DfExpr, op: Operator, right: DfExpr) -> DfExpr {
    DfExpr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

pub fn native(op: BinaryOp) -> Option<Operator> {
    Some(match op {
        BinaryOp::Eq => Operator::Eq,
        BinaryOp::Ne => Operator::NotEq,
        BinaryOp::Lt => Operator::Lt,
        BinaryOp::Le => Operator::LtEq,
        BinaryOp::Gt => Operator::Gt,
        BinaryOp::Ge => Operator::GtEq,
        _ => return None,
    })
}
