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
//! | date, time, timestamp, timestamptz | 1082, 1083, 1114, 1184 | 4, 8, 8, 8 | -1 |
//! | numeric(p,s) | 1700 | -1 | (p << 16 \| s & 0x7ff) + 4 |
//! | uuid | 2950 | 16 | -1 |

use freshet_engine::schema::Type;

/// The `n` of a `char` or `varchar` without a length modifier.
pub const UNLIMITED: u32 = u32::MAX;

/// PostgreSQL's largest `n` of `char(n)` and `varchar(n)`.
pub const LENGTH_MAX: u32 = 10_485_760;

/// Largest precision and scale of [`Type::Decimal`]: what an `i128` holds.
pub const DECIMAL_DIGITS_MAX: u8 = 38;

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
    };
    PgType { oid, length, modifier: modifier(ty) }
}

/// Oids of arrays, by their elements'.
const ARRAYS: [(u32, u32); 19] = [
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
    let oid = describe(element).oid;
    let found = ARRAYS.iter().find(|(own, _)| *own == oid);
    found.map(|(_, array)| *array).expect("every scalar type has arrays")
}

fn modifier(ty: Type) -> i32 {
    match ty {
        Type::Array(element) => modifier(*element),
        Type::Char(n) | Type::Varchar(n) if n <= LENGTH_MAX => n as i32 + 4,
        Type::Decimal { precision, scale } => numeric_modifier(precision.into(), scale.into()),
        Type::Numeric { typmod: Some((precision, scale)) } => numeric_modifier(precision, scale),
        _ => -1,
    }
}

fn numeric_modifier(precision: u16, scale: i16) -> i32 {
    (i32::from(precision) << 16 | i32::from(scale) & 0x7ff) + 4
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
        1083 => Type::Time,
        1114 => Type::Timestamp,
        1184 => Type::Timestamptz,
        1700 if modifier < 4 => NUMERIC,
        1700 => {
            let packed = modifier - 4;
            let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
            numeric((packed >> 16) as u16, scale as i16)
        }
        2950 => Type::Uuid,
        1186 => Type::Interval,
        114 => Type::Json,
        3802 => Type::Jsonb,
        other => {
            let (element, _) = ARRAYS.iter().find(|(_, array)| *array == other)?;
            Type::array_of(from_oid(*element, modifier)?)
        }
    })
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
        Type::Json => "json[]",
        Type::Jsonb => "jsonb[]",
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
        ];
        for ty in types {
            let wire = describe(ty);
            assert_eq!(from_oid(wire.oid, wire.modifier), Some(ty), "{ty:?}");
        }
        assert_eq!(from_oid(600, -1), None);
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
        ];
        for (ty, modifier, name) in cases {
            assert_eq!(describe(ty).modifier, modifier, "{name}");
            assert_eq!(format_type(ty), name);
        }
    }
}
