//! Column types and the values the engine stores.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};

/// A column's type, with PostgreSQL's meaning. The engine knows how each is stored and ordered, never how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    /// `numeric(p,s)` with p <= 38: an unscaled integer of 4 (p <= 9), 8 (p <= 18) or 16 bytes.
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// `numeric` without precision, or with one beyond 38 or a negative scale: order-preserving bytes whose last two
    /// hold the display scale, see `freshet_sql::value::numeric`. The type modifier is checked above the engine.
    Numeric {
        typmod: Option<(u16, i16)>,
    },
    /// `char(n)`: stored without trailing blanks.
    Char(u32),
    Varchar(u32),
    Text,
    Bytea,
    /// Days since 2000-01-01.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 2000-01-01.
    Timestamp,
    /// Microseconds since 2000-01-01 UTC.
    Timestamptz,
    Uuid,
    /// Order-preserving bytes: see `freshet_sql::value::network`.
    Network(NetworkKind),
    /// Order-preserving bytes of the whole length, then 8 bytes (months, days) that order nothing: see `freshet_sql::value::interval`.
    Interval,
    /// Text as it was given.
    Json,
    /// Order-preserving bytes, then what orders nothing, then how much that is: see `freshet_sql::value::json`.
    Jsonb,
    /// An array of a scalar type, in bytes as those of `Jsonb`: see `freshet_sql::value::array`. Made by [`Type::array_of`].
    Array(&'static Type),
    /// An object's number, unsigned 32 bits.
    Oid(OidKind),
    /// An identifier: text of at most 63 bytes.
    Name,
    /// `"char"`: one byte as text, or none.
    CharByte,
    /// `int2vector`, `oidvector`: stored as the arrays of [`Type::vector_element`], written otherwise.
    Vector(VectorKind),
    /// Of system relations' columns only: text with which nothing is computed.
    System(SystemKind),
    /// A type that users made of labels: each value is its label's number, in the order in which they were declared.
    Enum(EnumId),
    /// `timestamp(3)` and its like: a second has so many digits, 0..=6; what an interval's larger numbers mean is not the engine's to know. Stored,
    /// ordered and computed with as the plain type.
    Rounded(TimeKind, u8),
}

/// The identity of an enum: its oid. What its labels are is in the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EnumId(pub u32);

/// Types whose seconds may be limited in their digits. By each kind's order here definitions name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TimeKind {
    Time,
    Timestamp,
    Timestamptz,
    Interval,
}

impl TimeKind {
    /// In the order of their codes.
    pub const ALL: [TimeKind; 4] = [TimeKind::Time, TimeKind::Timestamp, TimeKind::Timestamptz, TimeKind::Interval];

    /// The type without the limit.
    pub fn plain(self) -> Type {
        match self {
            TimeKind::Time => Type::Time,
            TimeKind::Timestamp => Type::Timestamp,
            TimeKind::Timestamptz => Type::Timestamptz,
            TimeKind::Interval => Type::Interval,
        }
    }
}

/// What an object's number is a number of, and so how it is written. By each kind's order here definitions name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OidKind {
    Oid,
    Xid,
    Cid,
    Class,
    Type,
    Proc,
    Procedure,
    Operator,
    OperatorWithTypes,
    Namespace,
    Role,
    Collation,
}

impl OidKind {
    /// In the order of their codes.
    pub const ALL: [OidKind; 12] = [
        OidKind::Oid,
        OidKind::Xid,
        OidKind::Cid,
        OidKind::Class,
        OidKind::Type,
        OidKind::Proc,
        OidKind::Procedure,
        OidKind::Operator,
        OidKind::OperatorWithTypes,
        OidKind::Namespace,
        OidKind::Role,
        OidKind::Collation,
    ];

    /// Whether it is written as a name.
    pub fn has_name(self) -> bool {
        !matches!(self, OidKind::Oid | OidKind::Xid | OidKind::Cid)
    }
}

/// Addresses of networks, and of the cards in them. By each kind's order here definitions name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NetworkKind {
    Inet,
    Cidr,
    /// `macaddr`.
    Mac,
    /// `macaddr8`.
    Mac8,
}

impl NetworkKind {
    /// In the order of their codes.
    pub const ALL: [NetworkKind; 4] = [NetworkKind::Inet, NetworkKind::Cidr, NetworkKind::Mac, NetworkKind::Mac8];
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum VectorKind {
    Int2,
    Oid,
}

/// Types that PostgreSQL's system relations have columns of. Definitions name each by its number; 4 is free, it was inet's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SystemKind {
    NodeTree = 0,
    AclItem = 1,
    AnyArray = 2,
    Lsn = 3,
    NDistinct = 5,
    Dependencies = 6,
    McvList = 7,
    /// A row, which is a result and no column: see `freshet_sql::value::record`.
    Record = 8,
    /// What a function gives that gives nothing: an empty text.
    Void = 9,
}

impl SystemKind {
    pub const ALL: [SystemKind; 9] = [
        SystemKind::NodeTree,
        SystemKind::AclItem,
        SystemKind::AnyArray,
        SystemKind::Lsn,
        SystemKind::NDistinct,
        SystemKind::Dependencies,
        SystemKind::McvList,
        SystemKind::Record,
        SystemKind::Void,
    ];
}

/// A value in the form the engine stores: `Int` for every integer, date and time type and for enums, `Bytes` for every
/// variable-length type, `Decimal` unscaled at its column's scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Uuid(u128),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl Type {
    /// Bytes of the field in a record.
    #[inline]
    pub fn field_bytes(self) -> usize {
        match self {
            Type::Bool => 1,
            Type::Int2 => 2,
            Type::Int4 | Type::Float4 | Type::Date => 4,
            Type::Int8 | Type::Float8 | Type::Time | Type::Timestamp | Type::Timestamptz => 8,
            Type::Oid(_) | Type::Enum(_) => 8,
            Type::Decimal { precision, .. } => match precision {
                0..=9 => 4,
                10..=18 => 8,
                _ => 16,
            },
            Type::Rounded(kind, _) => kind.plain().field_bytes(),
            Type::Uuid => 16,
            _ => 16,
        }
    }

    /// The type with so many digits of a second, if its values have seconds.
    pub fn rounded(self, digits: u8) -> Option<Type> {
        TimeKind::ALL.into_iter().find(|kind| kind.plain() == self).map(|kind| Type::Rounded(kind, digits))
    }

    /// The type, of an array its elements' too, without a limit of digits.
    #[inline]
    pub fn unrounded(self) -> Type {
        match self {
            Type::Rounded(kind, _) => kind.plain(),
            Type::Array(Type::Rounded(kind, _)) => Type::array_of(kind.plain()),
            other => other,
        }
    }

    /// Whether the field is a 16-byte descriptor of bytes.
    pub fn is_variable(self) -> bool {
        use Type::*;
        matches!(
            self,
            Numeric { .. } | Char(_) | Varchar(_) | Text | Bytea | Interval | Json | Jsonb | Array(_) | Name | CharByte
        ) || matches!(self, Vector(_) | System(_) | Network(_) | Rounded(TimeKind::Interval, _))
    }

    /// The type of arrays of this type. Each is made once and kept: there are as many as there are types with their modifiers in use.
    pub fn array_of(element: Type) -> Type {
        static MADE: Mutex<Vec<&'static Type>> = Mutex::new(Vec::new());
        let element = match element {
            Type::Decimal { precision, scale } => Type::Numeric { typmod: Some((precision.into(), scale.into())) },
            Type::Array(_) => return element,
            other => other,
        };
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.iter().find(|ty| ***ty == element) {
            return Type::Array(known);
        }
        let kept: &'static Type = Box::leak(Box::new(element));
        made.push(kept);
        Type::Array(kept)
    }

    /// The element of a vector's array.
    pub fn vector_element(kind: VectorKind) -> Type {
        match kind {
            VectorKind::Int2 => Type::Int2,
            VectorKind::Oid => Type::Oid(OidKind::Oid),
        }
    }

    /// A vector as the array that it is; every other type as itself.
    pub fn as_array(self) -> Type {
        match self {
            Type::Vector(kind) => Type::array_of(Type::vector_element(kind)),
            other => other,
        }
    }

    /// The bytes of a stored variable-length value that take part in equality and order: a numeric's display scale
    /// does not, nor an interval's split into months and days.
    pub fn key_bytes(self, stored: &[u8]) -> &[u8] {
        match self {
            Type::Numeric { .. } => &stored[..stored.len().saturating_sub(2)],
            Type::Interval | Type::Rounded(TimeKind::Interval, _) => &stored[..stored.len().saturating_sub(8)],
            Type::Jsonb | Type::Array(_) | Type::Vector(_) => match stored.split_last_chunk::<4>() {
                Some((rest, unordered)) => &rest[..rest.len().saturating_sub(u32::from_be_bytes(*unordered) as usize)],
                None => stored,
            },
            _ => stored,
        }
    }

    /// PostgreSQL's order of two non-null values of this type: NaN is largest and equal to itself, -0 equals 0, text by bytes
    /// (the "C" collation).
    pub fn compare(self, a: &Value<'_>, b: &Value<'_>) -> Ordering {
        match (a, b) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
            (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => match (a.is_nan(), b.is_nan()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => a.partial_cmp(b).expect("neither is NaN"),
            },
            (Value::Bytes(a), Value::Bytes(b)) => self.key_bytes(a).cmp(self.key_bytes(b)),
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            _ => panic!("invariant: values of one column have one form: {a:?}, {b:?}"),
        }
    }
}
