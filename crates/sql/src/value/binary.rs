//! How is a value sent as bytes? PostgreSQL's send and receive function of each type: everything big-endian.
//!
//! | type | bytes |
//! |---|---|
//! | boolean | 1: zero or not |
//! | integers, floats, date, time, timestamps | the field's width |
//! | numeric | see [`numeric`] |
//! | uuid | 16 |
//! | inet, cidr | family, bits of the mask, whether it is a cidr, the address's length, 1 each; the address |
//! | macaddr, macaddr8 | 6, 8 |
//! | interval | microseconds 8, days 4, months 4 |
//! | json, jsonb | the text; before that of jsonb a 1 |
//! | arrays | dimensions, flags, the element's oid, 4 each; each dimension: length and lower bound; each element: length, bytes |
//! | text types, bytea | as they are |
//! | oid and what is written as a name | 4 |
//! | enums | the label |
//! | "char" | 1, zero for none |
//! | int2vector, oidvector | as arrays |
//! | rows | how many fields, 4; each: its type's oid and its length, 4 each, then its bytes |

use super::interval::{self, Interval};
use super::network::{Mac, Network};
use super::zone::Clock;
use super::{Datum, array, datetime, fault, json, label, numeric, record, text};
use crate::error::SqlError;
use freshet_engine::schema::{NetworkKind, SystemKind, Type, Value};

/// The receive function.
pub(crate) fn read(ty: Type, bytes: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    Ok(match ty {
        Type::Bool => Datum::Bool(u8::from_be_bytes(exactly(bytes)?) != 0),
        Type::Int2 => Datum::Int(i16::from_be_bytes(exactly(bytes)?).into()),
        Type::Int4 => Datum::Int(i32::from_be_bytes(exactly(bytes)?).into()),
        Type::Int8 => Datum::Int(i64::from_be_bytes(exactly(bytes)?)),
        Type::Float4 => Datum::Float(f32::from_be_bytes(exactly(bytes)?).into()),
        Type::Float8 => Datum::Float(f64::from_be_bytes(exactly(bytes)?)),
        Type::Decimal { precision, scale } => Datum::Decimal(numeric::receive_decimal(bytes, precision, scale)?),
        Type::Numeric { typmod } => Datum::Bytes(numeric::receive_numeric(bytes, typmod)?),
        Type::Char(_) | Type::Varchar(_) | Type::Text => {
            Datum::Bytes(text::limit_length(ty, text::check_text(bytes)?, false)?.into())
        }
        Type::Bytea => Datum::Bytes(bytes.into()),
        Type::Date => {
            let days = i64::from(i32::from_be_bytes(exactly(bytes)?));
            let valid = !datetime::date_is_finite(days) || datetime::date_in_range(days);
            Datum::Int(in_range(days, valid, "date out of range")?)
        }
        Type::Time => {
            let time = i64::from_be_bytes(exactly(bytes)?);
            let valid = (0..=datetime::DAY_US).contains(&time);
            Datum::Int(in_range(time, valid, "time out of range")?)
        }
        Type::Timestamp | Type::Timestamptz => {
            let timestamp = i64::from_be_bytes(exactly(bytes)?);
            let valid = !datetime::is_finite(timestamp) || datetime::timestamp_in_range(timestamp);
            Datum::Int(in_range(timestamp, valid, "timestamp out of range")?)
        }
        Type::Uuid => Datum::Uuid(u128::from_be_bytes(exactly(bytes)?)),
        Type::Network(kind @ (NetworkKind::Inet | NetworkKind::Cidr)) => Network::receive(kind, bytes)?.to_datum(),
        Type::Network(kind) => Mac::receive(kind, bytes)?,
        Type::Interval => Datum::Bytes(interval::receive(bytes)?.to_stored()),
        Type::Json => json::read_json(text::check_text(bytes)?)?,
        Type::Jsonb => json::receive_jsonb(bytes)?,
        Type::Array(element) => array::receive(*element, bytes, clock)?,
        Type::Enum(id) => Datum::Int(label::read(id, bytes, clock)?),
        Type::Oid(_) => Datum::Int(u32::from_be_bytes(exactly(bytes)?).into()),
        Type::Name => Datum::Bytes(text::limit_length(ty, text::check_text(bytes)?, false)?.into()),
        Type::CharByte if bytes == [0] => Datum::Bytes(Box::default()),
        Type::CharByte => {
            let [byte] = exactly::<1>(bytes)?;
            Datum::Bytes(text::limit_length(ty, &[byte], false)?.into())
        }
        Type::Vector(kind) => array::receive(Type::vector_element(kind), bytes, clock)?,
        Type::System(SystemKind::Record) => {
            return Err(SqlError::unsupported("input of anonymous composite types"));
        }
        Type::System(_) => Datum::Bytes(text::check_text(bytes)?.into()),
        Type::Rounded(kind, digits) => text::rounded(read(kind.plain(), bytes, clock)?, digits),
    })
}

/// The send function. The value has the type's form and is not null.
pub(crate) fn write(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    match (ty, *value) {
        (Type::Bool, Value::Bool(v)) => out.push(u8::from(v)),
        (Type::Int2, Value::Int(v)) => out.extend_from_slice(&(v as i16).to_be_bytes()),
        (Type::Int4 | Type::Date, Value::Int(v)) => out.extend_from_slice(&(v as i32).to_be_bytes()),
        (Type::Int8 | Type::Time | Type::Timestamp | Type::Timestamptz, Value::Int(v)) => {
            out.extend_from_slice(&v.to_be_bytes());
        }
        (Type::Float4, Value::Float(v)) => out.extend_from_slice(&(v as f32).to_be_bytes()),
        (Type::Float8, Value::Float(v)) => out.extend_from_slice(&v.to_be_bytes()),
        (Type::Decimal { scale, .. }, Value::Decimal(v)) => numeric::send_decimal(v, scale, out),
        (Type::Numeric { .. }, Value::Bytes(v)) => numeric::send_stored(v, out),
        (Type::Char(n), Value::Bytes(v)) => text::write_padded(n, v, out),
        (Type::Varchar(_) | Type::Text | Type::Bytea | Type::Json, Value::Bytes(v)) => out.extend_from_slice(v),
        (Type::Uuid, Value::Uuid(v)) => out.extend_from_slice(&v.to_be_bytes()),
        (Type::Network(kind @ (NetworkKind::Inet | NetworkKind::Cidr)), Value::Bytes(v)) => {
            Network::from_stored(v).send(kind, out);
        }
        (Type::Network(_), Value::Bytes(v)) => out.extend_from_slice(v),
        (Type::Interval, Value::Bytes(v)) => interval::send(Interval::from_stored(v), out),
        (Type::Jsonb, Value::Bytes(v)) => {
            out.push(1);
            json::Json::from_stored(v).write(out);
        }
        (Type::Array(element), Value::Bytes(v)) => array::send(*element, v, clock, out),
        (Type::Enum(id), Value::Int(v)) => label::write(id, v, clock, out),
        (Type::Oid(_), Value::Int(v)) => out.extend_from_slice(&(v as u32).to_be_bytes()),
        (Type::System(SystemKind::Record), Value::Bytes(v)) => record::send(v, out),
        (Type::Name | Type::System(_), Value::Bytes(v)) => out.extend_from_slice(v),
        (Type::CharByte, Value::Bytes(v)) => out.push(v.first().copied().unwrap_or(0)),
        (Type::Vector(kind), Value::Bytes(v)) => array::send(Type::vector_element(kind), v, clock, out),
        (Type::Rounded(kind, _), _) => write(kind.plain(), value, clock, out),
        _ => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}

/// All the bytes, which must be `N`.
fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| if bytes.len() < N { fault::binary_too_short() } else { fault::binary_invalid() })
}

fn in_range(value: i64, valid: bool, message: &str) -> Result<i64, SqlError> {
    if valid { Ok(value) } else { Err(SqlError::new("22008", message)) }
}
