//! How do values travel in Arrow? Types, arrays written and read.
//!
//! | type | Arrow | note |
//! |---|---|---|
//! | bool, int2, int4, int8, float4, float8 | Boolean, Int16.., Float32, Float64 | |
//! | numeric(p,s), p <= 38 | Decimal128(p,s) | where s > p, of s digits |
//! | other numeric | BinaryView | the stored bytes; a key of it leaves out the display scale |
//! | char, varchar, text | Utf8View | |
//! | bytea | BinaryView | |
//! | interval, jsonb, arrays | BinaryView | the stored bytes; a key of them leaves out what orders nothing |
//! | json | Utf8View | |
//! | date | Date32 | Arrow counts from 1970 |
//! | time | Time64(us) | |
//! | timestamp, timestamptz | Timestamp(us), Timestamp(us, UTC) | counted from 2000, as everywhere here: from 1970 the last 30 years of the range have no number |
//! | uuid | FixedSizeBinary(16) | |
//! | oid and what is written as a name | Int64 | |
//! | name, "char" | Utf8View | |

use crate::error::SqlError;
use crate::value::Datum;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, BooleanArray, BooleanBuilder, Date32Array,
    Date32Builder, Decimal128Array, Decimal128Builder, FixedSizeBinaryArray, FixedSizeBinaryBuilder, Float32Array,
    Float32Builder, Float64Array, Float64Builder, Int16Array, Int16Builder, Int32Array, Int32Builder, Int64Array,
    Int64Builder, StringArray, StringViewArray, StringViewBuilder, Time64MicrosecondArray, Time64MicrosecondBuilder,
    TimestampMicrosecondArray, TimestampMicrosecondBuilder, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use freshet_engine::schema::{Type, Value};
use std::sync::Arc;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;

/// The Arrow type of a type's arrays.
pub fn data_type(ty: Type) -> DataType {
    match ty {
        Type::Bool => DataType::Boolean,
        Type::Int2 => DataType::Int16,
        Type::Int4 => DataType::Int32,
        Type::Int8 | Type::Oid(_) | Type::Enum(_) => DataType::Int64,
        Type::Float4 => DataType::Float32,
        Type::Float8 => DataType::Float64,
        // Arrow has no numeric(3,5): the zeros behind the point count there.
        Type::Decimal { precision, scale } => DataType::Decimal128(precision.max(scale), scale as i8),
        Type::Numeric { .. } | Type::Bytea | Type::Interval | Type::Jsonb | Type::Array(_) | Type::Vector(_) => {
            DataType::BinaryView
        }
        Type::Network(_) => DataType::BinaryView,
        Type::Char(_) | Type::Varchar(_) | Type::Text | Type::Json => DataType::Utf8View,
        Type::Name | Type::CharByte | Type::System(_) => DataType::Utf8View,
        Type::Date => DataType::Date32,
        Type::Time => DataType::Time64(TimeUnit::Microsecond),
        Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Uuid => DataType::FixedSizeBinary(16),
        Type::Rounded(kind, _) => data_type(kind.plain()),
    }
}

fn days_to_arrow(days: i64) -> i32 {
    match days as i32 {
        infinite @ (i32::MIN | i32::MAX) => infinite,
        days => days + EPOCH_DAYS,
    }
}

fn days_from_arrow(days: i32) -> i64 {
    i64::from(match days {
        infinite @ (i32::MIN | i32::MAX) => infinite,
        days => days - EPOCH_DAYS,
    })
}

/// Writes values of one type into an array.
pub struct Writer {
    ty: Type,
    builder: Builder,
}

enum Builder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder),
    Bytes(BinaryViewBuilder),
    Text(StringViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Moment(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl Writer {
    pub fn new(ty: Type, rows: usize) -> Writer {
        let builder = match ty {
            Type::Bool => Builder::Bool(BooleanBuilder::with_capacity(rows)),
            Type::Int2 => Builder::Int2(Int16Builder::with_capacity(rows)),
            Type::Int4 => Builder::Int4(Int32Builder::with_capacity(rows)),
            Type::Int8 | Type::Oid(_) | Type::Enum(_) => Builder::Int8(Int64Builder::with_capacity(rows)),
            Type::Float4 => Builder::Float4(Float32Builder::with_capacity(rows)),
            Type::Float8 => Builder::Float8(Float64Builder::with_capacity(rows)),
            Type::Decimal { .. } => {
                Builder::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(data_type(ty)))
            }
            Type::Numeric { .. }
            | Type::Bytea
            | Type::Interval
            | Type::Jsonb
            | Type::Array(_)
            | Type::Vector(_)
            | Type::Network(_) => Builder::Bytes(BinaryViewBuilder::with_capacity(rows)),
            Type::Char(_)
            | Type::Varchar(_)
            | Type::Text
            | Type::Json
            | Type::Name
            | Type::CharByte
            | Type::System(_) => Builder::Text(StringViewBuilder::with_capacity(rows)),
            Type::Date => Builder::Date(Date32Builder::with_capacity(rows)),
            Type::Time => Builder::Time(Time64MicrosecondBuilder::with_capacity(rows)),
            Type::Timestamp | Type::Timestamptz => {
                Builder::Moment(TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(data_type(ty)))
            }
            Type::Uuid => Builder::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16)),
            Type::Rounded(kind, _) => Writer::new(kind.plain(), rows).builder,
        };
        Writer { ty, builder }
    }

    pub fn push(&mut self, value: &Value<'_>) -> Result<(), SqlError> {
        match (&mut self.builder, *value) {
            (Builder::Bool(b), Value::Bool(v)) => b.append_value(v),
            (Builder::Int2(b), Value::Int(v)) => b.append_value(v as i16),
            (Builder::Int4(b), Value::Int(v)) => b.append_value(v as i32),
            (Builder::Int8(b), Value::Int(v)) => b.append_value(v),
            (Builder::Float4(b), Value::Float(v)) => b.append_value(v as f32),
            (Builder::Float8(b), Value::Float(v)) => b.append_value(v),
            (Builder::Decimal(b), Value::Decimal(v)) => b.append_value(v),
            (Builder::Bytes(b), Value::Bytes(v)) => b.append_value(v),
            (Builder::Text(b), Value::Bytes(v)) => b.append_value(as_text(v)?),
            (Builder::Date(b), Value::Int(v)) => b.append_value(days_to_arrow(v)),
            (Builder::Time(b), Value::Int(v)) => b.append_value(v),
            (Builder::Moment(b), Value::Int(v)) => b.append_value(v),
            (Builder::Uuid(b), Value::Uuid(v)) => {
                b.append_value(v.to_be_bytes()).expect("invariant: a uuid has 16 bytes");
            }
            (builder, Value::Null) => builder.push_null(),
            (_, other) => panic!("invariant: a value has its type's form: {:?}, {other:?}", self.ty),
        }
        Ok(())
    }

    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.builder {
            Builder::Bool(b) => Arc::new(b.finish()),
            Builder::Int2(b) => Arc::new(b.finish()),
            Builder::Int4(b) => Arc::new(b.finish()),
            Builder::Int8(b) => Arc::new(b.finish()),
            Builder::Float4(b) => Arc::new(b.finish()),
            Builder::Float8(b) => Arc::new(b.finish()),
            Builder::Decimal(b) => Arc::new(b.finish()),
            Builder::Bytes(b) => Arc::new(b.finish()),
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Date(b) => Arc::new(b.finish()),
            Builder::Time(b) => Arc::new(b.finish()),
            Builder::Moment(b) => Arc::new(b.finish()),
            Builder::Uuid(b) => Arc::new(b.finish()),
        }
    }
}

impl Builder {
    fn push_null(&mut self) {
        match self {
            Builder::Bool(b) => b.append_null(),
            Builder::Int2(b) => b.append_null(),
            Builder::Int4(b) => b.append_null(),
            Builder::Int8(b) => b.append_null(),
            Builder::Float4(b) => b.append_null(),
            Builder::Float8(b) => b.append_null(),
            Builder::Decimal(b) => b.append_null(),
            Builder::Bytes(b) => b.append_null(),
            Builder::Text(b) => b.append_null(),
            Builder::Date(b) => b.append_null(),
            Builder::Time(b) => b.append_null(),
            Builder::Moment(b) => b.append_null(),
            Builder::Uuid(b) => b.append_null(),
        }
    }
}

fn as_text(bytes: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|_| SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""))
}

/// An array whose cells are read as values.
pub enum Cells<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int2(&'a Int16Array),
    Int4(&'a Int32Array),
    Int8(&'a Int64Array),
    Count(&'a UInt64Array),
    Float4(&'a Float32Array),
    Float8(&'a Float64Array),
    Decimal(&'a Decimal128Array),
    Bytes(&'a BinaryViewArray),
    Text(&'a StringViewArray),
    PlainText(&'a StringArray),
    Date(&'a Date32Array),
    Time(&'a Time64MicrosecondArray),
    Moment(&'a TimestampMicrosecondArray),
    Uuid(&'a FixedSizeBinaryArray),
}

impl<'a> Cells<'a> {
    /// `None`: no array that values come in.
    pub fn of(array: &'a dyn Array) -> Option<Cells<'a>> {
        Some(match array.data_type() {
            DataType::Null => Cells::Null,
            DataType::Boolean => Cells::Bool(array.as_boolean()),
            DataType::Int16 => Cells::Int2(array.as_primitive()),
            DataType::Int32 => Cells::Int4(array.as_primitive()),
            DataType::Int64 => Cells::Int8(array.as_primitive()),
            DataType::UInt64 => Cells::Count(array.as_primitive()),
            DataType::Float32 => Cells::Float4(array.as_primitive()),
            DataType::Float64 => Cells::Float8(array.as_primitive()),
            DataType::Decimal128(..) => Cells::Decimal(array.as_primitive()),
            DataType::BinaryView => Cells::Bytes(array.as_binary_view()),
            DataType::Utf8View => Cells::Text(array.as_string_view()),
            DataType::Utf8 => Cells::PlainText(array.as_string()),
            DataType::Date32 => Cells::Date(array.as_primitive()),
            DataType::Time64(TimeUnit::Microsecond) => Cells::Time(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Cells::Moment(array.as_primitive()),
            DataType::FixedSizeBinary(16) => Cells::Uuid(array.as_fixed_size_binary()),
            _ => return None,
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Cells::Null => true,
            Cells::Bool(a) => a.is_null(row),
            Cells::Int2(a) => a.is_null(row),
            Cells::Int4(a) => a.is_null(row),
            Cells::Int8(a) => a.is_null(row),
            Cells::Count(a) => a.is_null(row),
            Cells::Float4(a) => a.is_null(row),
            Cells::Float8(a) => a.is_null(row),
            Cells::Decimal(a) => a.is_null(row),
            Cells::Bytes(a) => a.is_null(row),
            Cells::Text(a) => a.is_null(row),
            Cells::PlainText(a) => a.is_null(row),
            Cells::Date(a) => a.is_null(row),
            Cells::Time(a) => a.is_null(row),
            Cells::Moment(a) => a.is_null(row),
            Cells::Uuid(a) => a.is_null(row),
        }
    }

    pub fn get(&self, row: usize) -> Value<'a> {
        if self.is_null(row) {
            return Value::Null;
        }
        match self {
            Cells::Null => Value::Null,
            Cells::Bool(a) => Value::Bool(a.value(row)),
            Cells::Int2(a) => Value::Int(a.value(row).into()),
            Cells::Int4(a) => Value::Int(a.value(row).into()),
            Cells::Int8(a) => Value::Int(a.value(row)),
            Cells::Count(a) => Value::Int(a.value(row) as i64),
            Cells::Float4(a) => Value::Float(a.value(row).into()),
            Cells::Float8(a) => Value::Float(a.value(row)),
            Cells::Decimal(a) => Value::Decimal(a.value(row)),
            Cells::Bytes(a) => Value::Bytes(a.value(row)),
            Cells::Text(a) => Value::Bytes(a.value(row).as_bytes()),
            Cells::PlainText(a) => Value::Bytes(a.value(row).as_bytes()),
            Cells::Date(a) => Value::Int(days_from_arrow(a.value(row))),
            Cells::Time(a) => Value::Int(a.value(row)),
            Cells::Moment(a) => Value::Int(a.value(row)),
            Cells::Uuid(a) => {
                let bytes = a.value(row).try_into().expect("invariant: the array's items have 16 bytes");
                Value::Uuid(u128::from_be_bytes(bytes))
            }
        }
    }
}

/// The literal of a value.
pub fn literal(ty: Type, value: &Value<'_>) -> Result<ScalarValue, SqlError> {
    let mut writer = Writer::new(ty, 1);
    writer.push(value)?;
    let array = writer.finish();
    ScalarValue::try_from_array(&array, 0).map_err(super::fault::sql_error)
}

/// The value of a literal.
pub fn datum(scalar: &ScalarValue) -> Option<Datum> {
    let array = scalar.to_array().ok()?;
    Some(Cells::of(&array)?.get(0).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::numeric::Numeric;
    use freshet_engine::schema::NetworkKind;

    #[test]
    fn every_type_comes_back_from_arrow_as_it_went() {
        let stored = Numeric::parse(b"-123456789012345678901234567890123456789012.50").expect("a number").to_stored();
        let cases: Vec<(Type, Value<'_>)> = vec![
            (Type::Bool, Value::Bool(true)),
            (Type::Int2, Value::Int(-7)),
            (Type::Int4, Value::Int(i64::from(i32::MIN))),
            (Type::Int8, Value::Int(i64::MAX)),
            (Type::Float4, Value::Float(1.5)),
            (Type::Float8, Value::Float(-0.1)),
            (Type::Decimal { precision: 38, scale: 4 }, Value::Decimal(10_i128.pow(37))),
            (Type::Decimal { precision: 3, scale: 5 }, Value::Decimal(12)),
            (Type::Numeric { typmod: None }, Value::Bytes(&stored)),
            (Type::Text, Value::Bytes("ä".as_bytes())),
            (Type::Bytea, Value::Bytes(&[0, 255])),
            (Type::Network(NetworkKind::Inet), Value::Bytes(&[2, 10, 0, 0, 1, 32])),
            (Type::Date, Value::Int(-10_957)),
            (Type::Date, Value::Int(i64::from(i32::MAX))),
            // 5874897-12-31
            (Type::Date, Value::Int(2_145_031_948)),
            (Type::Time, Value::Int(1)),
            (Type::Timestamp, Value::Int(0)),
            // 294276-12-31 23:59:59.999999
            (Type::Timestamp, Value::Int(9_223_371_331_199_999_999)),
            (Type::Timestamptz, Value::Int(i64::MIN)),
            (Type::Uuid, Value::Uuid(1 << 127 | 1)),
        ];
        for (ty, value) in cases {
            let mut writer = Writer::new(ty, 2);
            writer.push(&value).expect("in range");
            writer.push(&Value::Null).expect("null");
            let array = writer.finish();
            assert_eq!(*array.data_type(), data_type(ty), "{ty:?}");
            let cells = Cells::of(&array).expect("a type of ours");
            assert_eq!(cells.get(0), value, "{ty:?}");
            assert_eq!(cells.get(1), Value::Null, "{ty:?}");
            assert_eq!(datum(&literal(ty, &value).expect("in range")), Some(value.into()), "{ty:?}");
        }
    }
}
