//! Which operator do a symbol and two types name, and what does it give?
//!
//! [`BinaryOperator::resolve`] decides once per statement; [`BinaryOperator::apply`] runs per row. The choices are those of PostgreSQL's
//! operator table, found by asking it for every pair of types:
//!
//! - integers: the wider of the two; with numeric: numeric; with a float: `double precision`. Only two `real` give `real`;
//! - an untyped literal takes the other side's type, without its modifiers;
//! - sums, products and rests of decimals stay 128-bit integers where the operands' precision shows that they fit; the scale
//!   is the one that numeric arithmetic would show.
//!
//! NULL on either side gives NULL.

use super::cast::{self, is_float, is_integer, is_numeric, is_text, number_rank};
use super::network::Network;
use super::numeric::{Numeric, POWERS};
use super::pgtype::{self, DECIMAL_DIGITS_MAX, NUMERIC};
use super::zone::Clock;
use super::{Datum, datetime, fault, function, pattern, text};
use crate::bind::record::must_compare;
use crate::error::SqlError;
use freshet_engine::schema::{NetworkKind, OidKind, Type, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Power,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Concat,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Like,
    NotLike,
    ILike,
    NotILike,
    /// Regular expressions. Beside an operand they are functions; here for what has an operator over an array or a subquery.
    Regex,
    NotRegex,
    RegexFold,
    NotRegexFold,
    /// Of addresses, functions too.
    Within,
    WithinOrEqual,
    Contains,
    ContainsOrEqual,
    Overlaps,
}

impl BinaryOp {
    /// The comparison that is the same with its sides exchanged.
    pub fn flipped(self) -> BinaryOp {
        match self {
            BinaryOp::Lt => BinaryOp::Gt,
            BinaryOp::Le => BinaryOp::Ge,
            BinaryOp::Gt => BinaryOp::Lt,
            BinaryOp::Ge => BinaryOp::Le,
            same => same,
        }
    }

    /// The symbol in PostgreSQL's operator table, which messages show.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Power => "^",
            BinaryOp::BitAnd => "&",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "#",
            BinaryOp::ShiftLeft => "<<",
            BinaryOp::ShiftRight => ">>",
            BinaryOp::Concat => "||",
            BinaryOp::Eq => "=",
            BinaryOp::Ne => "<>",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Like => "~~",
            BinaryOp::NotLike => "!~~",
            BinaryOp::ILike => "~~*",
            BinaryOp::NotILike => "!~~*",
            BinaryOp::Regex => "~",
            BinaryOp::NotRegex => "!~",
            BinaryOp::RegexFold => "~*",
            BinaryOp::NotRegexFold => "!~*",
            BinaryOp::Within => "<<",
            BinaryOp::WithinOrEqual => "<<=",
            BinaryOp::Contains => ">>",
            BinaryOp::ContainsOrEqual => ">>=",
            BinaryOp::Overlaps => "&&",
        }
    }

    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }

    /// Whether a comparison holds for an order.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            BinaryOp::Eq => order.is_eq(),
            BinaryOp::Ne => order.is_ne(),
            BinaryOp::Lt => order.is_lt(),
            BinaryOp::Le => order.is_le(),
            BinaryOp::Gt => order.is_gt(),
            BinaryOp::Ge => order.is_ge(),
            _ => false,
        }
    }
}

/// How an operator computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    Integer,
    /// Both sides are brought to the result's scale (for a product: are left as they are).
    Decimal,
    Numeric,
    Float4,
    Float8,
    DateAndDays,
    DaysAndDate,
    DateMinusDate,
    /// The time of day is added to or taken from the other side, a date or timestamp.
    WithTime,
    TimeWith,
    Concat,
    ConcatBytes,
    Like,
    Regex,
    Network,
    Compare(Comparison),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    /// Both sides have one form and no different scales.
    Same,
    /// `char` and `varchar`: blanks at the end do not count.
    WithoutBlanks,
    Decimal,
    Numeric,
    Float,
    Moment,
}

/// An operator for two types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BinaryOperator {
    pub op: BinaryOp,
    /// What the sides must have; differs from what was asked only for untyped literals.
    pub left: Type,
    pub right: Type,
    pub result: Type,
    kernel: Kernel,
}

/// The result's type of `left op right` (`None`: an untyped literal).
pub fn binary_result_type(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Result<Type, SqlError> {
    BinaryOperator::resolve(op, left, right).map(|operator| operator.result)
}

impl BinaryOperator {
    /// Finds the operator; `None` is the type of an untyped literal, which must then be read as the type given here.
    pub fn resolve(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Result<BinaryOperator, SqlError> {
        use BinaryOp::*;
        // A vector is compared as the array that it is, and digits of a second limit what is kept only.
        let plain = |ty: Type| ty.as_array().unrounded();
        let (left, right) = (left.map(plain), right.map(plain));
        let resolved = match op {
            Add | Sub | Mul | Div | Mod => resolve_arithmetic(op, left, right),
            Power => resolve_power(left, right),
            BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => resolve_bits(op, left, right),
            Concat => resolve_concat(left, right),
            Like | NotLike | ILike | NotILike => resolve_like(op, left, right),
            Regex | NotRegex | RegexFold | NotRegexFold => resolve_regex(left, right),
            Within | WithinOrEqual | Contains | ContainsOrEqual | Overlaps => resolve_networks(left, right),
            Eq | Ne | Lt | Le | Gt | Ge => resolve_comparison(op, left, right),
        };
        let Resolved { left, right, result, kernel } = resolved.map_err(|refusal| refusal.error(op, left, right))?;
        Ok(BinaryOperator { op, left, right, result, kernel })
    }

    /// Computes; the values have the operator's types.
    pub fn apply(&self, left: &Value<'_>, right: &Value<'_>) -> Result<Datum, SqlError> {
        if left.is_null() || right.is_null() {
            return Ok(Datum::Null);
        }
        match (self.kernel, *left, *right) {
            (Kernel::Integer, Value::Int(a), Value::Int(b)) => self.integers(a, b),
            (Kernel::Decimal, _, _) => self.decimals(left, right),
            (Kernel::Compare(_), _, _) => Ok(Datum::Bool(self.op.holds(self.compare(left, right)?))),
            (Kernel::Numeric, _, _) => self.numerics(left, right),
            (Kernel::Float4, Value::Float(a), Value::Float(b)) => self.floats4(a, b),
            (Kernel::Float8, _, _) => self.floats8(left, right),
            (Kernel::DateAndDays, Value::Int(date), Value::Int(days)) => self.date(date, days),
            (Kernel::DaysAndDate, Value::Int(days), Value::Int(date)) => self.date(date, days),
            (Kernel::DateMinusDate, Value::Int(a), Value::Int(b)) => dates_apart(a, b),
            (Kernel::WithTime, Value::Int(moment), Value::Int(time)) => self.with_time(self.left, moment, time),
            (Kernel::TimeWith, Value::Int(time), Value::Int(moment)) => self.with_time(self.right, moment, time),
            (Kernel::Concat, _, _) => {
                let mut out = Vec::new();
                cast::write_as_text(self.left, left, Clock::UTC, &mut out);
                cast::write_as_text(self.right, right, Clock::UTC, &mut out);
                Ok(Datum::Bytes(out.into()))
            }
            (Kernel::ConcatBytes, Value::Bytes(a), Value::Bytes(b)) => Ok(Datum::Bytes([a, b].concat().into())),
            (Kernel::Like, Value::Bytes(a), Value::Bytes(b)) => self.like(a, b).map(Datum::Bool),
            (Kernel::Regex, Value::Bytes(a), Value::Bytes(b)) => self.regex(a, b).map(Datum::Bool),
            (Kernel::Network, Value::Bytes(a), Value::Bytes(b)) => Ok(Datum::Bool(self.networks(a, b))),
            _ => {
                panic!("invariant: a value has the form of its type: {self:?}, {left:?}, {right:?}")
            }
        }
    }

    /// Whether it computes with exact numbers that are not all integers.
    pub fn is_exact(&self) -> bool {
        matches!(self.kernel, Kernel::Decimal | Kernel::Numeric)
    }

    /// Whether two values of the right side compare by it as either of them does with one of the left.
    pub fn orders_right(&self) -> bool {
        self.left == self.right || matches!(self.kernel, Kernel::Compare(Comparison::Same))
    }

    /// The order of two values that are not null, for a comparison.
    pub fn compare(&self, left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, SqlError> {
        let Kernel::Compare(comparison) = self.kernel else {
            panic!("invariant: only comparisons order values: {self:?}");
        };
        Ok(match comparison {
            Comparison::Same => self.left.compare(left, right),
            Comparison::WithoutBlanks => match (*left, *right) {
                (Value::Bytes(a), Value::Bytes(b)) => text::trim_blanks(a).cmp(text::trim_blanks(b)),
                _ => self.left.compare(left, right),
            },
            Comparison::Decimal => {
                let ((a, a_scale), (b, b_scale)) = (unscaled(self.left, left), unscaled(self.right, right));
                compare_decimals(a, a_scale, b, b_scale)
            }
            Comparison::Numeric => numeric(self.left, left).cmp(&numeric(self.right, right)),
            Comparison::Float => {
                let (a, b) = (float(self.left, left)?, float(self.right, right)?);
                Type::Float8.compare(&Value::Float(a), &Value::Float(b))
            }
            Comparison::Moment => moment(self.left, left).cmp(&moment(self.right, right)),
        })
    }

    fn integers(&self, a: i64, b: i64) -> Result<Datum, SqlError> {
        let overflow = || fault::out_of_range(self.result);
        let value = match self.op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::Div | BinaryOp::Mod if b == 0 => return Err(fault::division_by_zero()),
            BinaryOp::Div => a.checked_div(b),
            BinaryOp::Mod => Some(a.checked_rem(b).unwrap_or(0)),
            BinaryOp::BitAnd => Some(a & b),
            BinaryOp::BitOr => Some(a | b),
            BinaryOp::BitXor => Some(a ^ b),
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
                return Ok(Datum::Int(self.shift(a, b as u32)));
            }
            _ => None,
        };
        cast::check_integer(value.ok_or_else(overflow)?, self.result).map(Datum::Int)
    }

    /// Shifts as the processor does: the count counts within the width (32 bits for `smallint`, as C promotes it).
    fn shift(&self, value: i64, count: u32) -> i64 {
        let left = self.op == BinaryOp::ShiftLeft;
        match self.result {
            Type::Int8 if left => value.wrapping_shl(count),
            Type::Int8 => value.wrapping_shr(count),
            ty => {
                let narrow = value as i32;
                let shifted = match left {
                    true => narrow.wrapping_shl(count),
                    false => narrow.wrapping_shr(count),
                };
                match ty {
                    Type::Int2 => i64::from(shifted as i16),
                    _ => i64::from(shifted),
                }
            }
        }
    }

    fn decimals(&self, left: &Value<'_>, right: &Value<'_>) -> Result<Datum, SqlError> {
        let ((a, a_scale), (b, b_scale)) = (unscaled(self.left, left), unscaled(self.right, right));
        if self.op == BinaryOp::Mul {
            // The operands' precisions add up to at most 38 digits.
            return Ok(Datum::Decimal(a * b));
        }
        let scale = a_scale.max(b_scale);
        let a = a * POWERS[usize::from(scale - a_scale)];
        let b = b * POWERS[usize::from(scale - b_scale)];
        Ok(Datum::Decimal(match self.op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            _ if b == 0 => return Err(fault::division_by_zero()),
            _ => a % b,
        }))
    }

    fn numerics(&self, left: &Value<'_>, right: &Value<'_>) -> Result<Datum, SqlError> {
        let (a, b) = (numeric(self.left, left), numeric(self.right, right));
        let result = match self.op {
            BinaryOp::Add => a.add(&b),
            BinaryOp::Sub => a.sub(&b),
            BinaryOp::Mul => a.mul(&b),
            BinaryOp::Div => a.div(&b),
            BinaryOp::Mod => a.rem(&b),
            _ => a.power(&b),
        };
        Ok(Datum::Bytes(result?.to_stored()))
    }

    fn floats4(&self, a: f64, b: f64) -> Result<Datum, SqlError> {
        let (a, b) = (a as f32, b as f32);
        let result = match self.op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            _ => a / b,
        };
        check_float(self.op, a.into(), b.into(), result.into()).map(Datum::Float)
    }

    fn floats8(&self, left: &Value<'_>, right: &Value<'_>) -> Result<Datum, SqlError> {
        let (a, b) = (float(self.left, left)?, float(self.right, right)?);
        let result = match self.op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            _ => return power(a, b).map(Datum::Float),
        };
        check_float(self.op, a, b, result).map(Datum::Float)
    }

    fn date(&self, date: i64, days: i64) -> Result<Datum, SqlError> {
        if !datetime::date_is_finite(date) {
            return Ok(Datum::Int(date));
        }
        let moved = if self.op == BinaryOp::Sub { date - days } else { date + days };
        if !datetime::date_in_range(moved) {
            return Err(SqlError::new("22008", "date out of range"));
        }
        Ok(Datum::Int(moved))
    }

    fn with_time(&self, ty: Type, moment: i64, time: i64) -> Result<Datum, SqlError> {
        let start = match ty {
            Type::Date => cast::date_to_timestamp(moment)?,
            _ => moment,
        };
        if !datetime::is_finite(start) {
            return Ok(Datum::Int(start));
        }
        let moved = if self.op == BinaryOp::Sub { start - time } else { start + time };
        if !datetime::timestamp_in_range(moved) {
            return Err(SqlError::new("22008", "timestamp out of range"));
        }
        Ok(Datum::Int(moved))
    }

    /// `char` is compared with its blanks.
    fn shown<'v>(&self, value: &'v [u8]) -> Cow<'v, [u8]> {
        match self.left {
            Type::Char(n) => {
                let mut out = Vec::new();
                text::write_padded(n, value, &mut out);
                out.into()
            }
            _ => value.into(),
        }
    }

    fn regex(&self, value: &[u8], pattern: &[u8]) -> Result<bool, SqlError> {
        let folds = matches!(self.op, BinaryOp::RegexFold | BinaryOp::NotRegexFold);
        let matched = function::matches_regex(&self.shown(value), pattern, folds)?;
        Ok(matched != matches!(self.op, BinaryOp::NotRegex | BinaryOp::NotRegexFold))
    }

    fn networks(&self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (Network::from_stored(a), Network::from_stored(b));
        match self.op {
            BinaryOp::Within => a.is_within(b),
            BinaryOp::WithinOrEqual => a.is_within_or_equal(b),
            BinaryOp::Contains => b.is_within(a),
            BinaryOp::ContainsOrEqual => b.is_within_or_equal(a),
            _ => a.overlaps(b),
        }
    }

    fn like(&self, value: &[u8], like: &[u8]) -> Result<bool, SqlError> {
        let value = self.shown(value);
        let fold = matches!(self.op, BinaryOp::ILike | BinaryOp::NotILike);
        let matched = match self.left {
            Type::Bytea => pattern::like_bytes(&value, like, Some(b'\\'))?,
            _ => pattern::like(&value, like, Some('\\'), fold)?,
        };
        Ok(matched != matches!(self.op, BinaryOp::NotLike | BinaryOp::NotILike))
    }
}

/// What an operator is, or why there is none.
struct Resolved {
    left: Type,
    right: Type,
    result: Type,
    kernel: Kernel,
}

enum Refusal {
    DoesNotExist,
    NotUnique,
}

type Resolution = Result<Resolved, Refusal>;

impl Refusal {
    fn error(self, op: BinaryOp, left: Option<Type>, right: Option<Type>) -> SqlError {
        let name = |ty: Option<Type>| ty.map_or("unknown", pgtype::name);
        let operator = format!("{} {} {}", name(left), op.symbol(), name(right));
        let (mut error, hint) = match self {
            Refusal::DoesNotExist => (
                SqlError::new("42883", format!("operator does not exist: {operator}")),
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            ),
            Refusal::NotUnique => (
                SqlError::new("42725", format!("operator is not unique: {operator}")),
                "Could not choose a best candidate operator. You might need to add explicit type casts.",
            ),
        };
        error.hint = Some(hint.to_owned());
        error
    }
}

/// Gives untyped literals the other side's type.
fn both(left: Option<Type>, right: Option<Type>) -> Option<(Type, Type)> {
    Some(match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (Some(left), None) => (left, cast::without_modifier(left)),
        (None, Some(right)) => (cast::without_modifier(right), right),
        (None, None) => return None,
    })
}

fn resolve_arithmetic(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Resolution {
    let (a, b) = both(left, right).ok_or(Refusal::NotUnique)?;
    let (Some(rank_a), Some(rank_b)) = (number_rank(a), number_rank(b)) else {
        return resolve_datetime(op, left, right);
    };
    let resolved = |result, kernel| Ok(Resolved { left: a, right: b, result, kernel });
    if is_float(a) || is_float(b) {
        if op == BinaryOp::Mod {
            return Err(Refusal::DoesNotExist);
        }
        return match (a, b) {
            (Type::Float4, Type::Float4) => resolved(Type::Float4, Kernel::Float4),
            _ => resolved(Type::Float8, Kernel::Float8),
        };
    }
    if is_integer(a) && is_integer(b) {
        return resolved(if rank_a > rank_b { a } else { b }, Kernel::Integer);
    }
    match decimal_result(op, a, b) {
        Some(result) => resolved(result, Kernel::Decimal),
        None => resolved(NUMERIC, Kernel::Numeric),
    }
}

/// Digits before and after the point that values of the type may have; `None` without bounds.
fn digits(ty: Type) -> Option<(i32, i32)> {
    Some(match ty {
        Type::Int2 => (5, 0),
        Type::Int4 => (10, 0),
        Type::Int8 => (19, 0),
        Type::Decimal { precision, scale } => ((i32::from(precision) - i32::from(scale)).max(0), scale.into()),
        _ => return None,
    })
}

/// The type of a sum, product or rest that is sure to fit 128 bits.
fn decimal_result(op: BinaryOp, a: Type, b: Type) -> Option<Type> {
    let ((whole_a, scale_a), (whole_b, scale_b)) = (digits(a)?, digits(b)?);
    let (whole, scale) = match op {
        BinaryOp::Add | BinaryOp::Sub => (whole_a.max(whole_b) + 1, scale_a.max(scale_b)),
        BinaryOp::Mod => (whole_a.max(whole_b), scale_a.max(scale_b)),
        BinaryOp::Mul => (whole_a + whole_b, scale_a + scale_b),
        _ => return None,
    };
    (whole + scale <= i32::from(DECIMAL_DIGITS_MAX))
        .then_some(Type::Decimal { precision: (whole + scale).max(1) as u8, scale: scale as u8 })
}

fn resolve_datetime(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Resolution {
    use Type::{Date, Int2, Int4, Time, Timestamp, Timestamptz};
    let resolved = |left, right, result, kernel| Ok(Resolved { left, right, result, kernel });
    let stamped = |ty| if ty == Date { Timestamp } else { ty };
    match (op, left, right) {
        (BinaryOp::Add | BinaryOp::Sub, Some(Date), Some(days @ (Int2 | Int4))) => {
            resolved(Date, days, Date, Kernel::DateAndDays)
        }
        (BinaryOp::Add, Some(days @ (Int2 | Int4)), Some(Date)) => resolved(days, Date, Date, Kernel::DaysAndDate),
        (BinaryOp::Sub, Some(Date), Some(Date) | None) | (BinaryOp::Sub, None, Some(Date)) => {
            resolved(Date, Date, Int4, Kernel::DateMinusDate)
        }
        (BinaryOp::Add, Some(Date), None)
        | (BinaryOp::Add, None, Some(Date))
        | (BinaryOp::Add, Some(Time), Some(Time)) => Err(Refusal::NotUnique),
        (BinaryOp::Add | BinaryOp::Sub, Some(moment @ (Date | Timestamp | Timestamptz)), Some(Time)) => {
            resolved(moment, Time, stamped(moment), Kernel::WithTime)
        }
        (BinaryOp::Add, Some(Time), Some(moment @ (Date | Timestamp | Timestamptz))) => {
            resolved(Time, moment, stamped(moment), Kernel::TimeWith)
        }
        _ => Err(Refusal::DoesNotExist),
    }
}

/// `^` is there for numeric and `double precision`; the latter wins unless one side is numeric and the other no float.
fn resolve_power(left: Option<Type>, right: Option<Type>) -> Resolution {
    let is_number = |ty: Option<Type>| ty.is_none_or(|ty| number_rank(ty).is_some());
    if !is_number(left) || !is_number(right) {
        return Err(Refusal::DoesNotExist);
    }
    let any = |is: fn(Type) -> bool| left.is_some_and(is) || right.is_some_and(is);
    let (result, kernel) =
        if any(is_numeric) && !any(is_float) { (NUMERIC, Kernel::Numeric) } else { (Type::Float8, Kernel::Float8) };
    Ok(Resolved { left: left.unwrap_or(result), right: right.unwrap_or(result), result, kernel })
}

fn resolve_bits(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Resolution {
    let resolved = |left, right, result| Ok(Resolved { left, right, result, kernel: Kernel::Integer });
    if matches!(op, BinaryOp::ShiftLeft | BinaryOp::ShiftRight) {
        return match (left, right) {
            (None, Some(Type::Int2) | None) => Err(Refusal::NotUnique),
            (None, Some(Type::Int4)) => resolved(Type::Int4, Type::Int4, Type::Int4),
            (Some(a), b) if is_integer(a) => match b.unwrap_or(Type::Int4) {
                b @ (Type::Int2 | Type::Int4) => resolved(a, b, a),
                _ => Err(Refusal::DoesNotExist),
            },
            _ => Err(Refusal::DoesNotExist),
        };
    }
    let (a, b) = both(left, right).ok_or(Refusal::NotUnique)?;
    if !is_integer(a) || !is_integer(b) {
        return Err(Refusal::DoesNotExist);
    }
    resolved(a, b, if number_rank(a) > number_rank(b) { a } else { b })
}

fn resolve_concat(left: Option<Type>, right: Option<Type>) -> Resolution {
    let texts = |ty: Option<Type>| ty.is_none_or(is_text);
    let resolved = |other: Type, kernel| {
        Ok(Resolved { left: left.unwrap_or(other), right: right.unwrap_or(other), result: other, kernel })
    };
    match (left, right) {
        (Some(Type::Bytea), Some(Type::Bytea) | None) | (None, Some(Type::Bytea)) => {
            resolved(Type::Bytea, Kernel::ConcatBytes)
        }
        _ if texts(left) || texts(right) => resolved(Type::Text, Kernel::Concat),
        _ => Err(Refusal::DoesNotExist),
    }
}

fn resolve_like(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Resolution {
    let folds = matches!(op, BinaryOp::ILike | BinaryOp::NotILike);
    let bytes = |ty: Option<Type>| ty == Some(Type::Bytea);
    let texts = |ty: Option<Type>| ty.is_none_or(is_text);
    let other = match (left, right) {
        _ if texts(left) && texts(right) => Type::Text,
        _ if !folds && (bytes(left) || left.is_none()) && (bytes(right) || right.is_none()) => Type::Bytea,
        _ => return Err(Refusal::DoesNotExist),
    };
    Ok(Resolved {
        left: left.unwrap_or(other),
        right: right.unwrap_or(other),
        result: Type::Bool,
        kernel: Kernel::Like,
    })
}

fn resolve_regex(left: Option<Type>, right: Option<Type>) -> Resolution {
    let texts = |ty: Option<Type>| ty.is_none_or(is_text);
    if !texts(left) || !texts(right) {
        return Err(Refusal::DoesNotExist);
    }
    let (left, right) = (left.unwrap_or(Type::Text), right.unwrap_or(Type::Text));
    Ok(Resolved { left, right, result: Type::Bool, kernel: Kernel::Regex })
}

fn resolve_networks(left: Option<Type>, right: Option<Type>) -> Resolution {
    if !left.is_none_or(is_network) || !right.is_none_or(is_network) {
        return Err(Refusal::DoesNotExist);
    }
    Ok(Resolved { left: INET, right: INET, result: Type::Bool, kernel: Kernel::Network })
}

fn resolve_comparison(op: BinaryOp, left: Option<Type>, right: Option<Type>) -> Resolution {
    let (a, b) = match both(left, right) {
        None => (Type::Text, Type::Text),
        // Only `char` has operators of its own among the text types.
        Some((_, b)) if left.is_none() && matches!(b, Type::Varchar(_)) => (Type::Text, b),
        // And only inet of the networks.
        Some((_, b)) if left.is_none() && b == CIDR => (INET, b),
        Some((a, _)) if right.is_none() && a == CIDR => (a, INET),
        Some((a, _)) if right.is_none() && matches!(a, Type::Varchar(_)) => (a, Type::Text),
        Some(pair) => pair,
    };
    if a == Type::Json || b == Type::Json || matches!(a, Type::System(_)) || matches!(b, Type::System(_)) {
        return Err(Refusal::DoesNotExist);
    }
    // Nor have arrays of what has none: equal rows may be stored in different bytes.
    if must_compare(a, "equality").and(must_compare(b, "equality")).is_err() {
        return Err(Refusal::DoesNotExist);
    }
    if matches!(a, Type::Oid(_)) || matches!(b, Type::Oid(_)) {
        return resolve_oids(op, (left, a), (right, b));
    }
    if let (Type::Network(NetworkKind::Mac), Type::Network(NetworkKind::Mac8))
    | (Type::Network(NetworkKind::Mac8), Type::Network(NetworkKind::Mac)) = (a, b)
    {
        // Each becomes the other by itself.
        return Err(Refusal::NotUnique);
    }
    let comparison = if number_rank(a).is_some() && number_rank(b).is_some() {
        if is_float(a) || is_float(b) {
            Comparison::Float
        } else if is_integer(a) && is_integer(b) || is_stored(a) && is_stored(b) {
            Comparison::Same
        } else if digits(a).is_some() && digits(b).is_some() {
            Comparison::Decimal
        } else {
            Comparison::Numeric
        }
    } else if matches!((a, b), (Type::Char(_), Type::Varchar(_)) | (Type::Varchar(_), Type::Char(_))) {
        Comparison::WithoutBlanks
    } else if cast::same_base(a, b) || is_text(a) && is_text(b) || is_network(a) && is_network(b) {
        Comparison::Same
    } else if is_moment(a) && is_moment(b) {
        Comparison::Moment
    } else {
        return Err(Refusal::DoesNotExist);
    };
    Ok(Resolved { left: a, right: b, result: Type::Bool, kernel: Kernel::Compare(comparison) })
}

/// Oids of every kind are compared as numbers, transactions only for equality; a literal is read as a number too.
fn resolve_oids(op: BinaryOp, left: (Option<Type>, Type), right: (Option<Type>, Type)) -> Resolution {
    let is_xid = |ty: Type| matches!(ty, Type::Oid(OidKind::Xid | OidKind::Cid));
    let side = |(given, taken): (Option<Type>, Type)| match (given, taken) {
        (None, Type::Oid(_)) if !is_xid(taken) => Type::Oid(OidKind::Oid),
        _ => taken,
    };
    let (a, b) = (side(left), side(right));
    let comparable = match (a, b) {
        _ if is_xid(a) || is_xid(b) => {
            matches!(op, BinaryOp::Eq | BinaryOp::Ne) && (a == b || is_xid(a) && b == Type::Int4)
        }
        (Type::Oid(_), Type::Oid(_)) => true,
        (Type::Oid(_), other) | (other, Type::Oid(_)) => is_integer(other),
        _ => false,
    };
    match comparable {
        true => Ok(Resolved { left: a, right: b, result: Type::Bool, kernel: Kernel::Compare(Comparison::Same) }),
        false => Err(Refusal::DoesNotExist),
    }
}

/// A numeric in the form whose bytes compare as the numbers do.
fn is_stored(ty: Type) -> bool {
    matches!(ty, Type::Numeric { .. })
}

const INET: Type = Type::Network(NetworkKind::Inet);
const CIDR: Type = Type::Network(NetworkKind::Cidr);

/// Whose values are compared whichever of the two types each has.
fn is_network(ty: Type) -> bool {
    matches!(ty, Type::Network(NetworkKind::Inet | NetworkKind::Cidr))
}

fn is_moment(ty: Type) -> bool {
    matches!(ty, Type::Date | Type::Timestamp | Type::Timestamptz)
}

// Values in the form that a kernel wants. That they have one is what `resolve` found.

fn unscaled(ty: Type, value: &Value<'_>) -> (i128, u8) {
    match (ty, *value) {
        (Type::Decimal { scale, .. }, Value::Decimal(v)) => (v, scale),
        (_, Value::Int(v)) => (v.into(), 0),
        _ => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}

fn numeric(ty: Type, value: &Value<'_>) -> Numeric {
    cast::to_numeric(ty, value).expect("a numeric operator has numbers on both sides")
}

fn float(ty: Type, value: &Value<'_>) -> Result<f64, SqlError> {
    cast::to_f64(ty, value).expect("a float operator has numbers on both sides")
}

/// Microseconds since 2000-01-01; 128 bits because dates reach further than timestamps.
fn moment(ty: Type, value: &Value<'_>) -> i128 {
    match (ty, *value) {
        (Type::Date, Value::Int(datetime::DATE_INFINITY)) => datetime::INFINITY.into(),
        (Type::Date, Value::Int(datetime::DATE_NEGATIVE_INFINITY)) => datetime::NEGATIVE_INFINITY.into(),
        (Type::Date, Value::Int(days)) => {
            let us = i128::from(days) * i128::from(datetime::DAY_US);
            // A date beyond all timestamps is still before infinity.
            us.min(i128::from(datetime::INFINITY) - 1)
        }
        (_, Value::Int(timestamp)) => timestamp.into(),
        _ => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}

fn compare_decimals(a: i128, a_scale: u8, b: i128, b_scale: u8) -> Ordering {
    let scale = a_scale.max(b_scale);
    let up = |v: i128, own: u8| v.checked_mul(POWERS[usize::from(scale - own)]);
    match (up(a, a_scale), up(b, b_scale)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => Numeric::from_decimal(a, a_scale).cmp(&Numeric::from_decimal(b, b_scale)),
    }
}

fn dates_apart(a: i64, b: i64) -> Result<Datum, SqlError> {
    if !datetime::date_is_finite(a) || !datetime::date_is_finite(b) {
        return Err(SqlError::new("22008", "cannot subtract infinite dates"));
    }
    Ok(Datum::Int(a - b))
}

/// A float's result, if it is one: overflow, underflow and division by zero are errors, infinity in gives infinity out.
fn check_float(op: BinaryOp, a: f64, b: f64, result: f64) -> Result<f64, SqlError> {
    if op == BinaryOp::Div && b == 0.0 && !a.is_nan() {
        return Err(fault::division_by_zero());
    }
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(fault::float_overflow());
    }
    let product = op == BinaryOp::Mul && b != 0.0 || op == BinaryOp::Div && !b.is_infinite();
    if result == 0.0 && a != 0.0 && product {
        return Err(fault::float_underflow());
    }
    Ok(result)
}

/// `a ^ b` of floats.
pub(crate) fn power(a: f64, b: f64) -> Result<f64, SqlError> {
    if a == 0.0 && b < 0.0 {
        return Err(SqlError::new("2201F", "zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.is_finite() && b.fract() != 0.0 {
        return Err(fault::complex_power());
    }
    let result = a.powf(b);
    if a.is_finite() && b.is_finite() {
        if result.is_infinite() {
            return Err(fault::float_overflow());
        }
        if result == 0.0 && a != 0.0 {
            return Err(fault::float_underflow());
        }
    }
    Ok(result)
}

/// `-value`. The result has the value's type.
pub fn negate(ty: Type, value: &Value<'_>) -> Result<Datum, SqlError> {
    Ok(match (ty, *value) {
        (_, Value::Null) => Datum::Null,
        (_, Value::Int(v)) if is_integer(ty) => {
            let negated = v.checked_neg().ok_or_else(|| fault::out_of_range(ty))?;
            Datum::Int(cast::check_integer(negated, ty)?)
        }
        (_, Value::Float(v)) => Datum::Float(-v),
        (_, Value::Decimal(v)) => Datum::Decimal(-v),
        (Type::Numeric { .. }, Value::Bytes(v)) => Datum::Bytes(Numeric::from_stored(v).negated().to_stored()),
        _ => {
            let mut error = SqlError::new("42883", format!("operator does not exist: - {}", pgtype::name(ty)));
            let hint =
                "No operator matches the given name and argument type. You might need to add an explicit type cast.";
            error.hint = Some(hint.to_owned());
            return Err(error);
        }
    })
}

// Three-valued logic: `None` is unknown.

pub fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

pub fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

pub fn not(a: Option<bool>) -> Option<bool> {
    a.map(|a| !a)
}
