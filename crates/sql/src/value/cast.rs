//! Which types turn into which, when, and how?
//!
//! A cast is *implicit* (anywhere), for *assignment* (storing into a column) or *explicit* (`CAST`, `::`). PostgreSQL's table:
//!
//! | from | implicit | assignment | explicit |
//! |---|---|---|---|
//! | an integer | wider integers, numeric, floats | narrower integers | boolean (integer only) |
//! | numeric | floats | integers | |
//! | a float | double precision | integers, numeric, real | |
//! | boolean | | | integer |
//! | a text type | the other text types | | every type, by its input function |
//! | date | timestamp, timestamptz | | |
//! | timestamp | timestamptz | date, time | |
//! | timestamptz | | date, time, timestamp | |
//! | every type | | text types, by its output function | |
//! | an integer | oid and what is written as a name | | |
//! | oid | what is written as a name, and back | integer, bigint | |
//! | an enum | | text types, as every type | |
//! | int2vector, oidvector | the arrays that they are | | |
//! | cidr | inet | text types, as every type | |
//! | inet | | cidr | |
//! | macaddr, macaddr8 | each other | | |

use super::array::{Array, array_of};
use super::interval::Interval;
use super::json::{self, Json};
use super::network::{Mac, Network};
use super::numeric::{self, Numeric, POWERS};
use super::pgtype::{self, NUMERIC};
use super::zone::Clock;
use super::{Datum, datetime, fault, text};
use crate::error::SqlError;
use freshet_engine::schema::{NetworkKind, OidKind, SystemKind, Type, Value};

/// How much a cast is asked for; a stronger wish includes the weaker ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    Implicit,
    Assignment,
    Explicit,
}

/// Whether `ty` is one of the text types.
pub fn is_text(ty: Type) -> bool {
    matches!(ty, Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Name | Type::CharByte)
}

/// Whether values of the type, or of its elements, are written as names of objects, or as labels: by the catalog.
pub fn shows_names(ty: Type) -> bool {
    match ty {
        Type::Array(element) => shows_names(*element),
        Type::Oid(kind) => kind.has_name(),
        Type::Enum(_) => true,
        _ => false,
    }
}

pub(crate) fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::Int2 | Type::Int4 | Type::Int8)
}

/// Whether equal values may be written differently: 1.0 and 1.00, 0 and -0, a day and 24 hours.
pub fn has_forms(ty: Type) -> bool {
    let ty = ty.unrounded();
    let is_made_of_parts = matches!(ty, Type::Interval | Type::Jsonb | Type::Array(_) | Type::Vector(_));
    matches!(ty, Type::Numeric { .. } | Type::Float4 | Type::Float8) || is_made_of_parts
}

pub(crate) fn is_float(ty: Type) -> bool {
    matches!(ty, Type::Float4 | Type::Float8)
}

pub(crate) fn is_numeric(ty: Type) -> bool {
    matches!(ty, Type::Decimal { .. } | Type::Numeric { .. })
}

/// Position of a number type on the ladder of implicit casts.
pub(crate) fn number_rank(ty: Type) -> Option<u8> {
    Some(match ty {
        Type::Int2 => 0,
        Type::Int4 => 1,
        Type::Int8 => 2,
        Type::Decimal { .. } | Type::Numeric { .. } => 3,
        Type::Float4 => 4,
        Type::Float8 => 5,
        _ => return None,
    })
}

/// Whether two types differ at most in their modifiers.
pub fn same_base(a: Type, b: Type) -> bool {
    pgtype::describe(a).oid == pgtype::describe(b).oid
}

/// The weakest wish that the cast needs; `None` if there is no such cast.
pub fn context(from: Type, to: Type) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    let (from, to) = (from.unrounded(), to.unrounded());
    if same_base(from, to) || is_text(from) && is_text(to) {
        return Some(Implicit);
    }
    if is_text(to) {
        return Some(if from == Type::System(SystemKind::NodeTree) { Implicit } else { Assignment });
    }
    if is_text(from) {
        return Some(Explicit);
    }
    if matches!(from, Type::Vector(_)) {
        return context(from.as_array(), to);
    }
    if matches!(from, Type::Oid(_)) || matches!(to, Type::Oid(_)) {
        return oid_context(from, to);
    }
    if let (Some(a), Some(b)) = (number_rank(from), number_rank(to)) {
        return Some(if a < b { Implicit } else { Assignment });
    }
    match (from, to) {
        (Type::Int4, Type::Bool) | (Type::Bool, Type::Int4) => Some(Explicit),
        (Type::Date, Type::Timestamp | Type::Timestamptz) => Some(Implicit),
        (Type::Timestamp, Type::Timestamptz) => Some(Implicit),
        (Type::Timestamp | Type::Timestamptz, Type::Date | Type::Time) => Some(Assignment),
        (Type::Timestamptz, Type::Timestamp) => Some(Assignment),
        (Type::Time, Type::Interval) => Some(Implicit),
        (Type::Interval, Type::Time) => Some(Assignment),
        (Type::Json, Type::Jsonb) | (Type::Jsonb, Type::Json) => Some(Assignment),
        (Type::Jsonb, Type::Bool) => Some(Explicit),
        (Type::Jsonb, to) if number_rank(to).is_some() => Some(Explicit),
        (Type::Network(from), Type::Network(to)) => network_context(from, to),
        (Type::Array(from), Type::Array(to)) => context(*from, *to),
        _ => None,
    }
}

fn network_context(from: NetworkKind, to: NetworkKind) -> Option<CastContext> {
    use NetworkKind::{Cidr, Inet, Mac, Mac8};
    match (from, to) {
        (Cidr, Inet) | (Mac, Mac8) | (Mac8, Mac) => Some(CastContext::Implicit),
        (Inet, Cidr) => Some(CastContext::Assignment),
        _ => None,
    }
}

fn oid_context(from: Type, to: Type) -> Option<CastContext> {
    use CastContext::{Assignment, Implicit};
    use OidKind::{Cid, Oid, Operator, OperatorWithTypes, Proc, Procedure, Xid};
    match (from, to) {
        (Type::Oid(Xid | Cid), _) | (_, Type::Oid(Xid | Cid)) => None,
        (Type::Oid(Oid), Type::Oid(_)) | (Type::Oid(_), Type::Oid(Oid)) => Some(Implicit),
        (Type::Oid(Proc), Type::Oid(Procedure)) | (Type::Oid(Procedure), Type::Oid(Proc)) => Some(Implicit),
        (Type::Oid(Operator), Type::Oid(OperatorWithTypes)) => Some(Implicit),
        (Type::Oid(OperatorWithTypes), Type::Oid(Operator)) => Some(Implicit),
        (from, Type::Oid(_)) if is_integer(from) => Some(Implicit),
        (Type::Oid(_), Type::Int4 | Type::Int8) => Some(Assignment),
        _ => None,
    }
}

/// Casts a value, applying length and precision of the target. An explicit cast cuts text that is too long; any other
/// refuses it. That the context allows the cast is the caller's to check; a cast that does not exist is 42846.
pub fn cast(from: Type, value: &Value<'_>, to: Type, explicit: bool) -> Result<Datum, SqlError> {
    cast_by(from, value, to, explicit, Clock::UTC)
}

/// Whether the cast's result depends on the clock.
pub fn needs_clock(from: Type, to: Type) -> bool {
    let (from, to) = (from.unrounded(), to.unrounded());
    let zoned = |ty| match ty {
        Type::Array(element) => *element == Type::Timestamptz,
        ty => ty == Type::Timestamptz,
    };
    let moment = |ty| match ty {
        Type::Array(element) => matches!(*element, Type::Date | Type::Timestamp | Type::Time),
        ty => matches!(ty, Type::Date | Type::Timestamp | Type::Time),
    };
    let styled = |ty| match ty {
        Type::Array(element) => has_style(*element),
        ty => has_style(ty),
    };
    let named = shows_names(from) && !matches!(to, Type::Oid(_)) || shows_names(to) && !matches!(from, Type::Oid(_));
    from != to && (zoned(from) || zoned(to) || is_text(from) && moment(to) || styled(from) && is_text(to) || named)
}

/// Whether DateStyle or IntervalStyle say how values of the type are written.
pub(crate) fn has_style(ty: Type) -> bool {
    matches!(ty.unrounded(), Type::Date | Type::Timestamp | Type::Interval)
}

/// As [`cast`], by a session's clock.
pub fn cast_by(from: Type, value: &Value<'_>, to: Type, explicit: bool, clock: &Clock) -> Result<Datum, SqlError> {
    if value.is_null() {
        return match context(from, to) {
            Some(_) => Ok(Datum::Null),
            None => Err(no_cast(from, to)),
        };
    }
    if from == to {
        return Ok(Datum::from(*value));
    }
    if let Type::Rounded(kind, _) = from {
        return cast_by(kind.plain(), value, to, explicit, clock);
    }
    if let Type::Rounded(kind, digits) = to {
        return Ok(text::rounded(cast_by(from, value, kind.plain(), explicit, clock)?, digits));
    }
    if matches!(from, Type::Vector(_)) && !is_text(to) {
        return cast_by(from.as_array(), value, to, explicit, clock);
    }
    match to {
        _ if is_text(to) => to_text_type(from, value, to, explicit, clock),
        // A character's code: the way back of `to_text_type`.
        Type::Int4 if from == Type::CharByte => match *value {
            Value::Bytes(bytes) => Ok(Datum::Int(bytes.first().map_or(0, |byte| i64::from(*byte as i8)))),
            _ => Err(no_cast(from, to)),
        },
        _ if is_text(from) => {
            // The output function's text: a `char` has its blanks again.
            let mut bytes = Vec::new();
            text::write(from, value, clock, &mut bytes);
            match without_length(to).filter(|_| explicit) {
                Some(whole) => cast_by(whole, &text::read(whole, &bytes, clock)?.as_value(), to, explicit, clock),
                None => text::read(to, &bytes, clock),
            }
        }
        _ if from == Type::Jsonb && to != Type::Json => from_jsonb(value, to),
        Type::Int2 | Type::Int4 | Type::Int8 => to_integer(from, value, to),
        Type::Oid(_) => to_oid(from, value, to),
        Type::Decimal { precision, scale } => match (from, *value) {
            (_, Value::Int(v)) if is_integer(from) => rescale(v.into(), 0, precision, scale),
            (Type::Decimal { scale: own, .. }, Value::Decimal(v)) => rescale(v, own, precision, scale),
            _ => to_numeric(from, value).ok_or_else(|| no_cast(from, to))?.to_decimal(precision, scale),
        }
        .map(Datum::Decimal),
        Type::Numeric { typmod } => {
            let number = to_numeric(from, value).ok_or_else(|| no_cast(from, to))?;
            Ok(Datum::Bytes(number.apply_typmod(typmod)?.to_stored()))
        }
        Type::Float4 => to_float4(from, value, to).map(|v| Datum::Float(v.into())),
        Type::Float8 => match to_f64(from, value) {
            Some(float) => float.map(Datum::Float),
            None => Err(no_cast(from, to)),
        },
        Type::Bool => match (from, *value) {
            (Type::Int4, Value::Int(v)) => Ok(Datum::Bool(v != 0)),
            _ => Err(no_cast(from, to)),
        },
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => match *value {
            Value::Int(v) => to_datetime(from, v, to, clock),
            Value::Bytes(v) if from == Type::Interval && to == Type::Time => {
                Ok(Datum::Int(Interval::from_stored(v).us.rem_euclid(datetime::DAY_US)))
            }
            _ => Err(no_cast(from, to)),
        },
        Type::Interval => match (from, *value) {
            (Type::Time, Value::Int(us)) => Ok(Datum::Bytes(Interval::of_us(us).to_stored())),
            _ => Err(no_cast(from, to)),
        },
        Type::Json | Type::Jsonb if matches!(from, Type::Json | Type::Jsonb) => {
            let mut bytes = Vec::new();
            text::write(from, value, clock, &mut bytes);
            text::read(to, &bytes, clock)
        }
        Type::Network(kind) => match (from, *value) {
            (Type::Network(NetworkKind::Cidr), Value::Bytes(stored)) if kind == NetworkKind::Inet => {
                Ok(Datum::Bytes(stored.into()))
            }
            (Type::Network(NetworkKind::Inet), Value::Bytes(stored)) if kind == NetworkKind::Cidr => {
                Ok(Network::from_stored(stored).network().to_datum())
            }
            (Type::Network(NetworkKind::Mac | NetworkKind::Mac8), Value::Bytes(stored)) => {
                Mac::from_stored(stored).to_datum(kind)
            }
            _ => Err(no_cast(from, to)),
        },
        Type::Array(element) if matches!(from, Type::Array(_)) => {
            let Type::Array(own) = from else { unreachable!("the guard looked") };
            let Array { dimensions, items } = array_of(from, value);
            let items = items.iter().map(|item| cast_by(*own, &item.as_value(), *element, explicit, clock));
            Ok(Array { dimensions, items: items.collect::<Result<_, _>>()? }.to_datum(*element))
        }
        _ => Err(no_cast(from, to)),
    }
}

/// An `integer` gives the oid of the same 32 bits.
fn to_oid(from: Type, value: &Value<'_>, to: Type) -> Result<Datum, SqlError> {
    match (from, *value) {
        (Type::Oid(_), Value::Int(v)) => Ok(Datum::Int(v)),
        (Type::Int2 | Type::Int4, Value::Int(v)) => Ok(Datum::Int(i64::from(v as i32 as u32))),
        (Type::Int8, Value::Int(v)) => match u32::try_from(v) {
            Ok(oid) => Ok(Datum::Int(oid.into())),
            Err(_) => Err(SqlError::new("22003", "OID out of range")),
        },
        _ => Err(no_cast(from, to)),
    }
}

/// Stores a value of a column's base type into the column: applies length and precision as an assignment does.
pub fn coerce_typmod(value: &Value<'_>, from: Type, column: Type) -> Result<Datum, SqlError> {
    cast(from, value, column, false)
}

fn no_cast(from: Type, to: Type) -> SqlError {
    let (from, to) = (pgtype::name(from), pgtype::name(to));
    SqlError::new("42846", format!("cannot cast type {from} to {to}"))
}

/// A number or boolean out of a document.
fn from_jsonb(value: &Value<'_>, to: Type) -> Result<Datum, SqlError> {
    let json = json::json_of(Type::Jsonb, value)?;
    match (&json, to) {
        (Json::Bool(v), Type::Bool) => Ok(Datum::Bool(*v)),
        (Json::Number(number), to) if number_rank(to).is_some() => {
            cast(NUMERIC, &Value::Bytes(&number.to_stored()), to, true)
        }
        _ => {
            let (of, to) = (json.type_name(), pgtype::name(to));
            let of = if of == "number" { "numeric" } else { of };
            Err(SqlError::new("22023", format!("cannot cast jsonb {of} to type {to}")))
        }
    }
}

fn to_text_type(from: Type, value: &Value<'_>, to: Type, explicit: bool, clock: &Clock) -> Result<Datum, SqlError> {
    let limited = |bytes: &[u8]| text::limit_length(to, bytes, explicit).map(|kept| Datum::Bytes(kept.into()));
    match *value {
        // A number is a character's code.
        Value::Int(code) if to == Type::CharByte && from == Type::Int4 => match i8::try_from(code) {
            Ok(0) => limited(b""),
            Ok(code) => limited(&[code as u8]),
            Err(_) => Err(SqlError::new("22003", "\"char\" out of range")),
        },
        Value::Bytes(bytes) if is_text(from) => limited(bytes),
        _ => {
            let mut bytes = Vec::new();
            match to {
                // By the output function, which shows a host without its mask.
                Type::Name | Type::CharByte if from != Type::Bool => text::write(from, value, clock, &mut bytes),
                _ => write_as_text(from, value, clock, &mut bytes),
            }
            limited(&bytes)
        }
    }
}

/// Appends what a cast to `text` gives: booleans in full, `char` without its blanks.
pub(crate) fn write_as_text(from: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    match (from, *value) {
        (Type::Bool, Value::Bool(true)) => out.extend_from_slice(b"true"),
        (Type::Bool, Value::Bool(false)) => out.extend_from_slice(b"false"),
        (Type::Char(_), Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        // Always with its mask.
        (Type::Network(NetworkKind::Inet), Value::Bytes(stored)) => {
            Network::from_stored(stored).write(NetworkKind::Cidr, out);
        }
        _ => text::write(from, value, clock, out),
    }
}

/// Whether an integer is one of the type.
pub(crate) fn check_integer(value: i64, ty: Type) -> Result<i64, SqlError> {
    let fits = match ty {
        Type::Int2 => i16::try_from(value).is_ok(),
        Type::Int4 => i32::try_from(value).is_ok(),
        _ => true,
    };
    if fits { Ok(value) } else { Err(fault::out_of_range(ty)) }
}

fn to_integer(from: Type, value: &Value<'_>, to: Type) -> Result<Datum, SqlError> {
    let integer = match (from, *value) {
        (Type::Bool, Value::Bool(v)) if to == Type::Int4 => i64::from(v),
        (_, Value::Int(v)) if is_integer(from) => v,
        (Type::Oid(_), Value::Int(v)) if to == Type::Int4 => i64::from(v as u32 as i32),
        (Type::Oid(_), Value::Int(v)) if to == Type::Int8 => v,
        (_, Value::Float(v)) => float_to_integer(v).ok_or_else(|| fault::out_of_range(to))?,
        (Type::Decimal { scale, .. }, Value::Decimal(v)) => {
            i64::try_from(numeric::round_small(v, scale.into())).map_err(|_| fault::out_of_range(to))?
        }
        (Type::Numeric { .. }, Value::Bytes(v)) => Numeric::from_stored(v).to_i64(pgtype::name(to))?,
        _ => return Err(no_cast(from, to)),
    };
    check_integer(integer, to).map(Datum::Int)
}

/// The nearest integer, the even one of two.
fn float_to_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let rounded = value.round_ties_even();
    (-LIMIT..LIMIT).contains(&rounded).then_some(rounded as i64)
}

/// Moves an unscaled value to another scale and checks the precision there.
fn rescale(value: i128, from: u8, precision: u8, scale: u8) -> Result<i128, SqlError> {
    let overflow = || numeric::field_overflow(precision.into(), scale.into());
    let moved = if from > scale {
        numeric::round_small(value, u32::from(from - scale))
    } else {
        value.checked_mul(POWERS[usize::from(scale - from)]).ok_or_else(overflow)?
    };
    if moved.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs() { Ok(moved) } else { Err(overflow()) }
}

/// The number of a number type's value.
pub(crate) fn to_numeric(from: Type, value: &Value<'_>) -> Option<Numeric> {
    Some(match (from, *value) {
        (Type::Int2 | Type::Int4 | Type::Int8, Value::Int(v)) => Numeric::from_i64(v),
        (Type::Decimal { scale, .. }, Value::Decimal(v)) => Numeric::from_decimal(v, scale),
        (Type::Numeric { .. }, Value::Bytes(v)) => Numeric::from_stored(v),
        (Type::Float4, Value::Float(v)) => Numeric::from_f32(v as f32),
        (Type::Float8, Value::Float(v)) => Numeric::from_f64(v),
        _ => return None,
    })
}

/// A number type's value as a float.
pub(crate) fn to_f64(from: Type, value: &Value<'_>) -> Option<Result<f64, SqlError>> {
    Some(match (from, *value) {
        (_, Value::Float(v)) => Ok(v),
        (Type::Int2 | Type::Int4 | Type::Int8, Value::Int(v)) => Ok(v as f64),
        (Type::Decimal { .. } | Type::Numeric { .. }, _) => to_numeric(from, value)?.to_f64(),
        _ => return None,
    })
}

fn to_float4(from: Type, value: &Value<'_>, to: Type) -> Result<f32, SqlError> {
    match (from, *value) {
        (_, Value::Float(v)) => narrow_float(v),
        (_, Value::Int(v)) if is_integer(from) => Ok(v as f32),
        _ => to_numeric(from, value).ok_or_else(|| no_cast(from, to))?.to_f32(),
    }
}

/// `double precision` to `real`.
pub(crate) fn narrow_float(value: f64) -> Result<f32, SqlError> {
    let narrow = value as f32;
    if narrow.is_infinite() && !value.is_infinite() {
        return Err(fault::float_overflow());
    }
    if narrow == 0.0 && value != 0.0 {
        return Err(fault::float_underflow());
    }
    Ok(narrow)
}

fn to_datetime(from: Type, value: i64, to: Type, clock: &Clock) -> Result<Datum, SqlError> {
    let stamps = |ty| matches!(ty, Type::Timestamp | Type::Timestamptz);
    // A moment is looked at as its local time.
    let value = if from == Type::Timestamptz { clock.zone.to_local(value) } else { value };
    let moment = |local: i64| if to == Type::Timestamptz { clock.zone.to_utc(local) } else { local };
    Ok(match (from, to) {
        _ if stamps(from) && stamps(to) => Datum::Int(moment(value)),
        (Type::Date, _) if stamps(to) => Datum::Int(moment(date_to_timestamp(value)?)),
        (_, Type::Date) if stamps(from) => Datum::Int(timestamp_to_date(value)),
        (_, Type::Time) if stamps(from) && !datetime::is_finite(value) => Datum::Null,
        (_, Type::Time) if stamps(from) => Datum::Int(value.rem_euclid(datetime::DAY_US)),
        _ => return Err(no_cast(from, to)),
    })
}

pub(crate) fn date_to_timestamp(days: i64) -> Result<i64, SqlError> {
    match days {
        datetime::DATE_INFINITY => Ok(datetime::INFINITY),
        datetime::DATE_NEGATIVE_INFINITY => Ok(datetime::NEGATIVE_INFINITY),
        _ => days
            .checked_mul(datetime::DAY_US)
            .filter(|us| datetime::timestamp_in_range(*us))
            .ok_or_else(|| SqlError::new("22008", "date out of range for timestamp")),
    }
}

fn timestamp_to_date(timestamp: i64) -> i64 {
    match timestamp {
        datetime::INFINITY => datetime::DATE_INFINITY,
        datetime::NEGATIVE_INFINITY => datetime::DATE_NEGATIVE_INFINITY,
        _ => timestamp.div_euclid(datetime::DAY_US),
    }
}

/// Type and value of an unsigned number in a statement: `integer`, else `bigint`, else `numeric`.
pub fn number_literal(digits: &str) -> Result<(Type, Datum), SqlError> {
    if digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(value) = digits.parse::<i64>()
    {
        let ty = match i32::try_from(value) {
            Ok(_) => Type::Int4,
            Err(_) => Type::Int8,
        };
        return Ok((ty, Datum::Int(value)));
    }
    let number = Numeric::parse(digits.as_bytes())?;
    let largest = u16::from(pgtype::DECIMAL_DIGITS_MAX);
    if number.scale() <= largest {
        let scale = number.scale() as u8;
        if let Ok(unscaled) = number.to_decimal(pgtype::DECIMAL_DIGITS_MAX, scale) {
            let digits = unscaled.checked_ilog10().map_or(0, |d| d as u8 + 1);
            let precision = digits.max(scale).max(1);
            return Ok((Type::Decimal { precision, scale }, Datum::Decimal(unscaled)));
        }
    }
    Ok((NUMERIC, Datum::Bytes(number.to_stored())))
}

/// The one type that `COALESCE`, `CASE`, `GREATEST`, `VALUES`, `IN` or `UNION` gives its inputs (`None`: an untyped
/// literal); `construct` is for the message.
pub fn common_type(construct: &str, types: &[Option<Type>]) -> Result<Type, SqlError> {
    let mut known = types.iter().flatten().copied();
    let Some(mut chosen) = known.next() else {
        return Ok(Type::Text);
    };
    for ty in known {
        if same_base(chosen, ty) {
            chosen = wider_modifier(chosen, ty);
        } else if category(chosen) != category(ty) {
            let (a, b) = (pgtype::name(chosen), pgtype::name(ty));
            let message = format!("{construct} types {a} and {b} cannot be matched");
            return Err(SqlError::new("42804", message));
        } else if !is_preferred(chosen) && is_implicit(chosen, ty) && !is_implicit(ty, chosen) {
            chosen = without_modifier(ty);
        } else {
            chosen = without_modifier(chosen);
        }
    }
    // An untyped literal is read as the base type: it may not fit the modifier.
    if types.iter().any(Option::is_none) {
        chosen = without_modifier(chosen);
    }
    match types.iter().flatten().find(|ty| !is_implicit(**ty, chosen)) {
        None => Ok(chosen),
        Some(ty) => {
            let (ty, chosen) = (pgtype::name(*ty), pgtype::name(chosen));
            let construct = if construct == "CASE" { "CASE/WHEN" } else { construct };
            let message = format!("{construct} could not convert type {ty} to {chosen}");
            Err(SqlError::new("42846", message))
        }
    }
}

pub(crate) fn is_implicit(from: Type, to: Type) -> bool {
    context(from, to) == Some(CastContext::Implicit)
}

/// Keeps equal modifiers, drops different ones.
fn wider_modifier(a: Type, b: Type) -> Type {
    if a == b { a } else { without_modifier(a) }
}

/// The type without length or precision.
pub fn without_modifier(ty: Type) -> Type {
    match ty {
        Type::Decimal { .. } | Type::Numeric { .. } => NUMERIC,
        Type::Char(_) => Type::Char(pgtype::UNLIMITED),
        Type::Varchar(_) => Type::Varchar(pgtype::UNLIMITED),
        Type::Array(element) => Type::array_of(without_modifier(*element)),
        ty => ty.unrounded(),
    }
}

/// The type as which an explicit cast to an array of limited texts reads the whole texts that it then cuts.
pub fn without_length(ty: Type) -> Option<Type> {
    match ty {
        Type::Array(element) if matches!(*element, Type::Varchar(_) | Type::Char(_)) => {
            Some(without_modifier(ty)).filter(|whole| *whole != ty)
        }
        _ => None,
    }
}

/// Kinds of types between which overloads are decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Category {
    Boolean,
    Number,
    Text,
    DateTime,
    Interval,
    Array,
    Json,
    Enum,
    Network,
    Other,
}

pub(crate) fn category(ty: Type) -> Category {
    match ty.unrounded() {
        Type::Bool => Category::Boolean,
        _ if number_rank(ty).is_some() => Category::Number,
        Type::Oid(OidKind::Xid | OidKind::Cid) => Category::Other,
        Type::Oid(_) => Category::Number,
        Type::Vector(_) => Category::Array,
        _ if is_text(ty) => Category::Text,
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => Category::DateTime,
        Type::Interval => Category::Interval,
        Type::Array(_) => Category::Array,
        Type::Json | Type::Jsonb => Category::Json,
        Type::Enum(_) => Category::Enum,
        Type::Network(NetworkKind::Inet | NetworkKind::Cidr) => Category::Network,
        _ => Category::Other,
    }
}

/// The type of its category that wins when nothing else decides.
pub(crate) fn is_preferred(ty: Type) -> bool {
    let ty = ty.unrounded();
    matches!(
        ty,
        Type::Bool
            | Type::Float8
            | Type::Text
            | Type::Timestamptz
            | Type::Interval
            | Type::Oid(OidKind::Oid)
            | Type::Network(NetworkKind::Inet)
    )
}
