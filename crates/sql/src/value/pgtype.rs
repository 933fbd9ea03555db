//! How does PostgreSQL name each type? Object id, length, type modifier, and the names in messages and in `format_type`.
//!
//! | type | oid | length | modifier |
//! |---|---|---|---|
//! | boolean | 16 | 1 | -1 |
//! | bytea | 17 | -1 | -1 |
//! | bigint, smallint, integer | 20, 21, 23 | 8, 2, 4 | -1 |
//! | text | 25 | -1 | -1 |
//! | real, double precision | 700, 701 | 4, 8 | -1 |
//! | character(n), character varying(n) | 1042, 1043 | -1 | n + 4 |
//! | date, time, timestamp, timestamptz | 1082, 1083, 1114, 1184 | 4, 8, 8, 8 | -1, the latter three's the digits of a second |
//! | interval | 1186 | 16 | -1, or 0x7fff0000 and the digits of a second |
//! | numeric(p,s) | 1700 | -1 | (p << 16 \| s & 0x7ff) + 4 |
//! | uuid | 2950 | 16 | -1 |
//! | oid and what is written as a name | 26, 24, 2202..2206, 4089, 4096, 4191 | 4 | -1 |
//! | name, "char" | 19, 18 | 64, 1 | -1 |
//! | int2vector, oidvector | 22, 30 | -1 | -1 |
//! | an enum | its own | 4 | -1 |

use super::interval::Limit;
use crate::catalog::{names, oid};
use freshet_engine::catalog::Schema;
use freshet_engine::schema::{EnumId, NetworkKind, OidKind, SystemKind, TimeKind, Type, VectorKind};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The `n` of a `char` or `varchar` without a length modifier.
pub const UNLIMITED: u32 = u32::MAX;

/// PostgreSQL's largest `n` of `char(n)` and `varchar(n)`.
pub const LENGTH_MAX: u32 = 10_485_760;

/// Largest precision and scale of [`Type::Decimal`]: what an `i128` holds.
pub const DECIMAL_DIGITS_MAX: u8 = 38;

/// The most digits of a second.
pub const SECOND_DIGITS_MAX: u8 = 6;

/// So many digits of a second, or as many as there are.
pub fn second_digits(said: u64) -> u8 {
    u8::try_from(said).unwrap_or(u8::MAX).min(SECOND_DIGITS_MAX)
}

/// `numeric` without modifiers.
pub const NUMERIC: Type = Type::Numeric { typmod: None };

/// What the wire says of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PgType {
    pub oid: u32,
    /// Bytes of a fixed-length type, else -1.
    pub length: i16,
    pub modifier: i32,
}

/// The type as `numeric(precision, scale)` is declared; the caller has checked PostgreSQL's limits (1..=1000 and
/// -1000..=1000).
pub fn numeric(precision: u16, scale: i16) -> Type {
    let limit = i16::from(DECIMAL_DIGITS_MAX);
    if precision as i16 <= limit && (0..=limit).contains(&scale) {
        Type::Decimal { precision: precision as u8, scale: scale as u8 }
    } else {
        Type::Numeric { typmod: Some((precision, scale)) }
    }
}

pub fn describe(ty: Type) -> PgType {
    let (oid, length) = match ty {
        Type::Bool => (16, 1),
        Type::Bytea => (17, -1),
        Type::Int8 => (20, 8),
        Type::Int2 => (21, 2),
        Type::Int4 => (23, 4),
        Type::Text => (25, -1),
        Type::Float4 => (700, 4),
        Type::Float8 => (701, 8),
        Type::Char(_) => (1042, -1),
        Type::Varchar(_) => (1043, -1),
        Type::Date => (1082, 4),
        Type::Time => (1083, 8),
        Type::Timestamp => (1114, 8),
        Type::Timestamptz => (1184, 8),
        Type::Decimal { .. } | Type::Numeric { .. } => (1700, -1),
        Type::Uuid => (2950, 16),
        Type::Interval => (1186, 16),
        Type::Json => (114, -1),
        Type::Jsonb => (3802, -1),
        Type::Array(element) => (array_oid(*element), -1),
        Type::Oid(kind) => (kind_oid(kind), 4),
        Type::Name => (19, 64),
        Type::CharByte => (18, 1),
        Type::Vector(VectorKind::Int2) => (22, -1),
        Type::Vector(VectorKind::Oid) => (30, -1),
        Type::System(kind) => system_oid(kind),
        Type::Network(kind) => network_oid(kind),
        Type::Enum(EnumId(oid)) => (oid, 4),
        Type::Rounded(kind, _) => {
            let PgType { oid, length, .. } = describe(kind.plain());
            (oid, length)
        }
    };
    PgType { oid, length, modifier: modifier(ty) }
}

fn kind_oid(kind: OidKind) -> u32 {
    match kind {
        OidKind::Oid => 26,
        OidKind::Xid => 28,
        OidKind::Cid => 29,
        OidKind::Class => 2205,
        OidKind::Type => 2206,
        OidKind::Proc => 24,
        OidKind::Procedure => 2202,
        OidKind::Operator => 2203,
        OidKind::OperatorWithTypes => 2204,
        OidKind::Namespace => 4089,
        OidKind::Role => 4096,
        OidKind::Collation => 4191,
    }
}

fn kind_name(kind: OidKind) -> &'static str {
    match kind {
        OidKind::Oid => "oid",
        OidKind::Xid => "xid",
        OidKind::Cid => "cid",
        OidKind::Class => "regclass",
        OidKind::Type => "regtype",
        OidKind::Proc => "regproc",
        OidKind::Procedure => "regprocedure",
        OidKind::Operator => "regoper",
        OidKind::OperatorWithTypes => "regoperator",
        OidKind::Namespace => "regnamespace",
        OidKind::Role => "regrole",
        OidKind::Collation => "regcollation",
    }
}

/// Oid and length.
fn system_oid(kind: SystemKind) -> (u32, i16) {
    match kind {
        SystemKind::NodeTree => (194, -1),
        SystemKind::AclItem => (1033, 12),
        SystemKind::AnyArray => (2277, -1),
        SystemKind::Lsn => (3220, 8),
        SystemKind::NDistinct => (3361, -1),
        SystemKind::Dependencies => (3402, -1),
        SystemKind::McvList => (5017, -1),
        SystemKind::Record => (2249, -1),
        SystemKind::Void => (2278, 4),
    }
}

/// Oid and length.
fn network_oid(kind: NetworkKind) -> (u32, i16) {
    match kind {
        NetworkKind::Inet => (869, -1),
        NetworkKind::Cidr => (650, -1),
        NetworkKind::Mac => (829, 6),
        NetworkKind::Mac8 => (774, 8),
    }
}

fn system_name(kind: SystemKind) -> &'static str {
    match kind {
        SystemKind::NodeTree => "pg_node_tree",
        SystemKind::AclItem => "aclitem",
        SystemKind::AnyArray => "anyarray",
        SystemKind::Lsn => "pg_lsn",
        SystemKind::NDistinct => "pg_ndistinct",
        SystemKind::Dependencies => "pg_dependencies",
        SystemKind::McvList => "pg_mcv_list",
        SystemKind::Record => "record",
        SystemKind::Void => "void",
    }
}

/// Oids of arrays, by their elements'.
const ARRAYS: [(u32, u32); 42] = [
    (18, 1002),
    (19, 1003),
    (22, 1006),
    (24, 1008),
    (26, 1028),
    (28, 1011),
    (29, 1012),
    (30, 1013),
    (650, 651),
    (774, 775),
    (829, 1040),
    (869, 1041),
    (1033, 1034),
    (2202, 2207),
    (2203, 2208),
    (2204, 2209),
    (2205, 2210),
    (2206, 2211),
    (2249, 2287),
    (3220, 3221),
    (4089, 4090),
    (4096, 4097),
    (4191, 4192),
    (16, 1000),
    (17, 1001),
    (20, 1016),
    (21, 1005),
    (23, 1007),
    (25, 1009),
    (114, 199),
    (700, 1021),
    (701, 1022),
    (1042, 1014),
    (1043, 1015),
    (1082, 1182),
    (1083, 1183),
    (1114, 1115),
    (1184, 1185),
    (1186, 1187),
    (1700, 1231),
    (2950, 2951),
    (3802, 3807),
];

fn array_oid(element: Type) -> u32 {
    if let Type::Enum(EnumId(own)) = element {
        return oid::row_array(own);
    }
    let oid = describe(element).oid;
    let found = ARRAYS.iter().find(|(own, _)| *own == oid);
    // A few types of system relations have no arrays in PostgreSQL: those of their texts.
    found.map_or(1009, |(_, array)| *array)
}

fn modifier(ty: Type) -> i32 {
    match ty {
        Type::Array(element) => modifier(*element),
        Type::Char(n) | Type::Varchar(n) if n <= LENGTH_MAX => n as i32 + 4,
        Type::Decimal { precision, scale } => numeric_modifier(precision.into(), scale.into()),
        Type::Numeric { typmod: Some((precision, scale)) } => numeric_modifier(precision, scale),
        Type::Rounded(TimeKind::Interval, digits) => Limit::of(digits).modifier(),
        Type::Rounded(_, digits) => digits.into(),
        _ => -1,
    }
}

/// A type of times with its modifier.
fn with_digits(plain: Type, modifier: i32) -> Type {
    if plain == Type::Interval {
        return Limit::of_modifier(modifier).and_then(|limit| plain.rounded(limit.number())).unwrap_or(plain);
    }
    u8::try_from(modifier)
        .ok()
        .filter(|digits| *digits <= SECOND_DIGITS_MAX)
        .and_then(|n| plain.rounded(n))
        .unwrap_or(plain)
}

fn numeric_modifier(precision: u16, scale: i16) -> i32 {
    (i32::from(precision) << 16 | i32::from(scale) & 0x7ff) + 4
}

thread_local! {
    /// By what this thread names types of users, where there are any.
    static NAMED_BY: RefCell<Option<Schema>> = const { RefCell::new(None) };
}

/// From here on this thread names types of users as this schema does, along its path.
pub fn name_by(schema: &Schema) {
    NAMED_BY.with_borrow_mut(|names| *names = schema.has_enums().then(|| schema.enums_alone()));
}

/// The enum's label of this number, by the schema that names types: for EXPLAIN.
pub fn label_named(id: EnumId, number: i64) -> Option<String> {
    NAMED_BY.with_borrow(|schema| {
        let label = schema.as_ref()?.enum_by_id(id)?.def.label_of(number);
        label.map(|label| label.text.clone())
    })
}

/// The enum's name, with its schema where it is not found without. Each name is made once and kept.
fn enum_name(id: EnumId, behind: &str) -> &'static str {
    static MADE: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let found = NAMED_BY.with_borrow(|schema| {
        let schema = schema.as_ref()?;
        Some(names::enum_name(schema, schema.enum_by_id(id)?))
    });
    let name = found.unwrap_or_else(|| "enum".to_owned()) + behind;
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = made.get(name.as_str()) {
        return known;
    }
    let kept: &'static str = name.leak();
    made.insert(kept);
    kept
}

/// The type with this oid and modifier (-1 for none), one of users' included.
pub fn from_oid_in(oid: u32, modifier: i32, schema: &Schema) -> Option<Type> {
    let of_user = |id: u32| schema.enum_by_id(EnumId(id)).map(|made| Type::Enum(made.id));
    let array = || oid::relation_of_row_array(oid).and_then(of_user).map(Type::array_of);
    from_oid(oid, modifier).or_else(|| of_user(oid)).or_else(array)
}

/// The type with this oid and modifier (-1 for none); `None` for an oid we do not have.
pub fn from_oid(oid: u32, modifier: i32) -> Option<Type> {
    let length = u32::try_from(modifier.saturating_sub(4)).unwrap_or(UNLIMITED);
    Some(match oid {
        16 => Type::Bool,
        17 => Type::Bytea,
        20 => Type::Int8,
        21 => Type::Int2,
        23 => Type::Int4,
        25 => Type::Text,
        700 => Type::Float4,
        701 => Type::Float8,
        1042 => Type::Char(length),
        1043 => Type::Varchar(length),
        1082 => Type::Date,
        1083 => with_digits(Type::Time, modifier),
        1114 => with_digits(Type::Timestamp, modifier),
        1184 => with_digits(Type::Timestamptz, modifier),
        1700 if modifier < 4 => NUMERIC,
        1700 => {
            let packed = modifier - 4;
            let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
            numeric((packed >> 16) as u16, scale as i16)
        }
        2950 => Type::Uuid,
        1186 => with_digits(Type::Interval, modifier),
        114 => Type::Json,
        3802 => Type::Jsonb,
        19 => Type::Name,
        18 => Type::CharByte,
        22 => Type::Vector(VectorKind::Int2),
        30 => Type::Vector(VectorKind::Oid),
        other if let Some(ty) = other_type(other) => ty,
        other => {
            let (element, _) = ARRAYS.iter().find(|(_, array)| *array == other)?;
            Type::array_of(from_oid(*element, modifier)?)
        }
    })
}

fn other_type(oid: u32) -> Option<Type> {
    let kinds = OidKind::ALL.map(Type::Oid).into_iter();
    let kinds = kinds.chain(NetworkKind::ALL.map(Type::Network));
    kinds.chain(SystemKind::ALL.map(Type::System)).find(|ty| describe(*ty).oid == oid)
}

/// The type that PostgreSQL calls so in `pg_type`, without modifiers.
pub fn named(name: &str) -> Option<Type> {
    if let Some(element) = name.strip_prefix('_') {
        return named(element).map(Type::array_of);
    }
    let oid = NAMES.iter().find(|(own, _)| *own == name).map(|(_, oid)| *oid)?;
    from_oid(oid, -1)
}

/// What types are called in `pg_type`; their arrays are called so after an underscore.
const NAMES: [(&str, u32); 48] = [
    ("bool", 16),
    ("bytea", 17),
    ("char", 18),
    ("name", 19),
    ("int8", 20),
    ("int2", 21),
    ("int2vector", 22),
    ("int4", 23),
    ("regproc", 24),
    ("text", 25),
    ("oid", 26),
    ("xid", 28),
    ("cid", 29),
    ("oidvector", 30),
    ("json", 114),
    ("pg_node_tree", 194),
    ("float4", 700),
    ("float8", 701),
    ("cidr", 650),
    ("macaddr8", 774),
    ("macaddr", 829),
    ("inet", 869),
    ("aclitem", 1033),
    ("bpchar", 1042),
    ("varchar", 1043),
    ("date", 1082),
    ("time", 1083),
    ("timestamp", 1114),
    ("timestamptz", 1184),
    ("interval", 1186),
    ("numeric", 1700),
    ("regprocedure", 2202),
    ("regoper", 2203),
    ("regoperator", 2204),
    ("regclass", 2205),
    ("regtype", 2206),
    ("anyarray", 2277),
    ("uuid", 2950),
    ("pg_lsn", 3220),
    ("pg_ndistinct", 3361),
    ("pg_dependencies", 3402),
    ("jsonb", 3802),
    ("regnamespace", 4089),
    ("regrole", 4096),
    ("regcollation", 4191),
    ("pg_mcv_list", 5017),
    // The grammar's own words, which type names in texts may use too.
    ("float", 701),
    ("decimal", 1700),
];

/// What the type is called in `pg_type`.
pub fn catalog_name(ty: Type) -> String {
    if let Type::Array(element) = ty {
        return format!("_{}", catalog_name(*element));
    }
    let oid = describe(ty).oid;
    NAMES.iter().find(|(_, own)| *own == oid).map_or_else(|| name(ty).to_owned(), |(name, _)| (*name).to_owned())
}

/// The name without modifiers, as error messages have it.
pub fn name(ty: Type) -> &'static str {
    match ty {
        Type::Bool => "boolean",
        Type::Int2 => "smallint",
        Type::Int4 => "integer",
        Type::Int8 => "bigint",
        Type::Float4 => "real",
        Type::Float8 => "double precision",
        Type::Decimal { .. } | Type::Numeric { .. } => "numeric",
        Type::Char(_) => "character",
        Type::Varchar(_) => "character varying",
        Type::Text => "text",
        Type::Bytea => "bytea",
        Type::Date => "date",
        Type::Time => "time without time zone",
        Type::Timestamp => "timestamp without time zone",
        Type::Timestamptz => "timestamp with time zone",
        Type::Uuid => "uuid",
        Type::Interval => "interval",
        Type::Json => "json",
        Type::Jsonb => "jsonb",
        Type::Array(element) => array_name(*element),
        Type::Oid(kind) => kind_name(kind),
        Type::Name => "name",
        Type::CharByte => "\"char\"",
        Type::Vector(VectorKind::Int2) => "int2vector",
        Type::Vector(VectorKind::Oid) => "oidvector",
        Type::System(kind) => system_name(kind),
        Type::Network(NetworkKind::Inet) => "inet",
        Type::Network(NetworkKind::Cidr) => "cidr",
        Type::Network(NetworkKind::Mac) => "macaddr",
        Type::Network(NetworkKind::Mac8) => "macaddr8",
        Type::Rounded(kind, _) => name(kind.plain()),
        Type::Enum(id) => enum_name(id, ""),
    }
}

fn array_name(element: Type) -> &'static str {
    match element {
        Type::Bool => "boolean[]",
        Type::Int2 => "smallint[]",
        Type::Int4 => "integer[]",
        Type::Int8 => "bigint[]",
        Type::Float4 => "real[]",
        Type::Float8 => "double precision[]",
        Type::Decimal { .. } | Type::Numeric { .. } => "numeric[]",
        Type::Char(_) => "character[]",
        Type::Varchar(_) => "character varying[]",
        Type::Text | Type::Array(_) => "text[]",
        Type::Bytea => "bytea[]",
        Type::Date => "date[]",
        Type::Time => "time without time zone[]",
        Type::Timestamp => "timestamp without time zone[]",
        Type::Timestamptz => "timestamp with time zone[]",
        Type::Uuid => "uuid[]",
        Type::Interval => "interval[]",
        Type::Rounded(kind, _) => array_name(kind.plain()),
        Type::Json => "json[]",
        Type::Jsonb => "jsonb[]",
        Type::Name => "name[]",
        Type::CharByte => "\"char\"[]",
        Type::Vector(VectorKind::Int2) => "int2vector[]",
        Type::Vector(VectorKind::Oid) => "oidvector[]",
        Type::Oid(kind) => match kind {
            OidKind::Oid => "oid[]",
            OidKind::Xid => "xid[]",
            OidKind::Cid => "cid[]",
            OidKind::Class => "regclass[]",
            OidKind::Type => "regtype[]",
            OidKind::Proc => "regproc[]",
            OidKind::Procedure => "regprocedure[]",
            OidKind::Operator => "regoper[]",
            OidKind::OperatorWithTypes => "regoperator[]",
            OidKind::Namespace => "regnamespace[]",
            OidKind::Role => "regrole[]",
            OidKind::Collation => "regcollation[]",
        },
        Type::Enum(id) => enum_name(id, "[]"),
        Type::Network(NetworkKind::Inet) => "inet[]",
        Type::Network(NetworkKind::Cidr) => "cidr[]",
        Type::Network(NetworkKind::Mac) => "macaddr[]",
        Type::Network(NetworkKind::Mac8) => "macaddr8[]",
        Type::System(kind) => match kind {
            SystemKind::NodeTree => "pg_node_tree[]",
            SystemKind::AclItem => "aclitem[]",
            SystemKind::AnyArray => "anyarray[]",
            SystemKind::Lsn => "pg_lsn[]",
            SystemKind::NDistinct => "pg_ndistinct[]",
            SystemKind::Dependencies => "pg_dependencies[]",
            SystemKind::McvList => "pg_mcv_list[]",
            SystemKind::Record => "record[]",
            SystemKind::Void => "void[]",
        },
    }
}

/// The name with modifiers, as `format_type` has it.
pub fn format_type(ty: Type) -> String {
    let name = name(ty);
    match ty {
        Type::Char(n) | Type::Varchar(n) if n <= LENGTH_MAX => format!("{name}({n})"),
        Type::Char(_) => "bpchar".to_owned(),
        Type::Decimal { precision, scale } => format!("{name}({precision},{scale})"),
        Type::Numeric { typmod: Some((precision, scale)) } => format!("{name}({precision},{scale})"),
        Type::Array(element) => format!("{}[]", format_type(*element)),
        Type::Rounded(TimeKind::Interval, limit) => format!("{name}{}", Limit::of(limit).name()),
        // The digits stand behind the first word.
        Type::Rounded(_, digits) => match name.split_once(' ') {
            Some((first, rest)) => format!("{first}({digits}) {rest}"),
            None => format!("{name}({digits})"),
        },
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_and_modifiers_read_back() {
        let types = [
            Type::Bool,
            Type::Int2,
            Type::Int4,
            Type::Int8,
            Type::Float4,
            Type::Float8,
            numeric(12, 2),
            numeric(3, 5),
            numeric(3, -2),
            numeric(1000, 10),
            NUMERIC,
            Type::Char(3),
            Type::Char(UNLIMITED),
            Type::Varchar(20),
            Type::Varchar(UNLIMITED),
            Type::Text,
            Type::Bytea,
            Type::Date,
            Type::Time,
            Type::Timestamp,
            Type::Timestamptz,
            Type::Uuid,
            Type::Interval,
            Type::Json,
            Type::Jsonb,
            Type::array_of(Type::Varchar(3)),
            Type::array_of(numeric(12, 2)),
            Type::Name,
            Type::CharByte,
            Type::Vector(VectorKind::Int2),
            Type::Vector(VectorKind::Oid),
            Type::Oid(OidKind::Class),
            Type::array_of(Type::Oid(OidKind::Role)),
            Type::array_of(Type::System(SystemKind::AclItem)),
            Type::System(SystemKind::NodeTree),
            Type::Network(NetworkKind::Cidr),
            Type::array_of(Type::Network(NetworkKind::Mac8)),
            Type::Rounded(TimeKind::Time, 0),
            Type::Rounded(TimeKind::Timestamp, 3),
            Type::Rounded(TimeKind::Timestamptz, 6),
            Type::Rounded(TimeKind::Interval, 0),
            Type::array_of(Type::Rounded(TimeKind::Interval, 6)),
        ];
        for ty in types {
            let wire = describe(ty);
            assert_eq!(from_oid(wire.oid, wire.modifier), Some(ty), "{ty:?}");
        }
        assert_eq!(from_oid(600, -1), None);
        for (name, oid) in NAMES {
            assert_eq!(named(name).map(|ty| describe(ty).oid), Some(oid), "{name}");
        }
        assert_eq!(named("_regclass"), Some(Type::array_of(Type::Oid(OidKind::Class))));
        assert_eq!(catalog_name(Type::array_of(Type::CharByte)), "_char");
    }

    /// Recorded: `select atttypmod, format_type(atttypid, atttypmod) from pg_attribute`.
    #[test]
    fn names_are_postgresqls() {
        let cases = [
            (numeric(12, 2), 786438, "numeric(12,2)"),
            (numeric(3, -2), 198658, "numeric(3,-2)"),
            (Type::Char(3), 7, "character(3)"),
            (Type::Varchar(20), 24, "character varying(20)"),
            (Type::Varchar(UNLIMITED), -1, "character varying"),
            (Type::Char(UNLIMITED), -1, "bpchar"),
            (Type::Timestamptz, -1, "timestamp with time zone"),
            (Type::Rounded(TimeKind::Timestamptz, 0), 0, "timestamp(0) with time zone"),
            (Type::Rounded(TimeKind::Time, 2), 2, "time(2) without time zone"),
            (Type::Rounded(TimeKind::Interval, 3), 2_147_418_115, "interval(3)"),
            (Type::array_of(Type::Rounded(TimeKind::Timestamp, 3)), 3, "timestamp(3) without time zone[]"),
        ];
        for (ty, modifier, name) in cases {
            assert_eq!(describe(ty).modifier, modifier, "{name}");
            assert_eq!(format_type(ty), name);
        }
    }
}
