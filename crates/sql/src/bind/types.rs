//! Which type does a type's name mean, and which collation a collation's?

use super::names::namespace_named;
use super::scope::fold;
use crate::catalog::names;
use crate::error::SqlError;
use crate::value::cast;
use crate::value::interval::{Fields, Limit, Unit};
use crate::value::pgtype::{self, LENGTH_MAX, UNLIMITED, name as type_name, second_digits};
use freshet_engine::catalog::{CollationId, EnumType, Schema};
use freshet_engine::schema::{EnumId, OidKind, TimeKind, Type};
use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Ident, IntervalFields, ObjectName, TimezoneInfo,
};
use std::sync::Arc;

/// With this, its number and its name definitions call an enum of `pg_catalog`, as which nobody can make one: what they mean stays when the type
/// gets another name.
const KEPT_ENUM: &str = "enum ";

/// What definitions call the enum; [`kept_enum`] reads it.
pub fn kept_name(made: &EnumType) -> String {
    format!("{KEPT_ENUM}{} {}", made.id.0, made.def.name)
}

/// Whether a definition's text calls the enum so, by whatever name it had.
pub fn names_kept(text: &str, id: EnumId) -> bool {
    text.contains(&format!("\"{KEPT_ENUM}{} ", id.0))
}

/// The number and the name that such a name has.
pub fn kept_enum(name: &str) -> Option<(EnumId, &str)> {
    let (number, name) = name.strip_prefix(KEPT_ENUM)?.split_once(' ')?;
    Some((EnumId(number.parse().ok()?), name))
}

/// What a column is called that is of a type of users'.
pub fn column_name_of(name: &ObjectName) -> Option<String> {
    let last = fold(name.0.last()?.as_ident()?);
    Some(kept_enum(&last).map_or_else(|| last.clone(), |(_, name)| name.to_owned()))
}

/// The type a syntax tree names, in the schema's path where it is one of users'.
pub fn type_of(data_type: &DataType, schema: &Schema) -> Result<Type, SqlError> {
    Ok(match data_type {
        DataType::Bool | DataType::Boolean => Type::Bool,
        DataType::SmallInt(None) | DataType::Int2(None) => Type::Int2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Type::Int4,
        DataType::BigInt(None) | DataType::Int8(None) => Type::Int8,
        DataType::Real | DataType::Float4 => Type::Float4,
        DataType::DoublePrecision | DataType::Float8 => Type::Float8,
        DataType::Double(ExactNumberInfo::None) => Type::Float8,
        DataType::Float(info) => float(info)?,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Char(length) | DataType::Character(length) => Type::Char(length_of("character", length, 1)?),
        DataType::Varchar(length) | DataType::CharVarying(length) | DataType::CharacterVarying(length) => {
            Type::Varchar(length_of("character varying", length, UNLIMITED)?)
        }
        DataType::Text => Type::Text,
        DataType::Bytea => Type::Bytea,
        DataType::Date => Type::Date,
        DataType::Time(precision, zone) => {
            if zoned(zone) {
                return Err(SqlError::unsupported("type time with time zone"));
            }
            limited(Type::Time, *precision)
        }
        DataType::Timestamp(precision, zone) => {
            limited(if zoned(zone) { Type::Timestamptz } else { Type::Timestamp }, *precision)
        }
        DataType::Uuid => Type::Uuid,
        DataType::Interval { fields: None, precision } => limited(Type::Interval, *precision),
        DataType::Interval { fields: Some(fields), precision } => limited_interval(*fields, *precision),
        DataType::JSON => Type::Json,
        DataType::JSONB => Type::Jsonb,
        DataType::Regclass => Type::Oid(OidKind::Class),
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::AngleBracket(element)) => {
            Type::array_of(type_of(element, schema)?)
        }
        DataType::Custom(name, modifiers) => named(name, modifiers, schema)?,
        DataType::Int(Some(_))
        | DataType::Integer(Some(_))
        | DataType::BigInt(Some(_))
        | DataType::SmallInt(Some(_)) => {
            return Err(SqlError::new("42601", "syntax error at or near \"(\""));
        }
        other => foreign(other, schema)?,
    })
}

/// A word that is a type in other dialects: here it is one that a user has made, or none.
fn foreign(data_type: &DataType, schema: &Schema) -> Result<Type, SqlError> {
    let text = data_type.to_string().to_lowercase();
    let word = text.split_once('(').map_or(text.as_str(), |(word, _)| word).trim_end();
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(SqlError::unsupported(format!("type {data_type}")));
    }
    named(&ObjectName::from(vec![Ident::new(word)]), &[], schema)
}

fn zoned(zone: &TimezoneInfo) -> bool {
    matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz)
}

fn limited(plain: Type, digits: Option<u64>) -> Type {
    digits.map_or(plain, |digits| with_digits(plain, digits))
}

/// `interval day to second(3)`.
fn limited_interval(fields: IntervalFields, digits: Option<u64>) -> Type {
    let words = fields.to_string().to_lowercase();
    let mut units = words.split(" to ").filter_map(Unit::named);
    let first = units.next().expect("the grammar's fields are units");
    let fields = Fields { first, last: units.next().unwrap_or(first) };
    let limit = Limit::new(fields, digits.map(second_digits)).expect("the grammar's fields are PostgreSQL's");
    Type::Rounded(TimeKind::Interval, limit.number())
}

/// A type of times whose seconds have so many digits, or as many as there are: `parse::digits_notice` says so.
pub fn with_digits(plain: Type, digits: u64) -> Type {
    let digits = second_digits(digits);
    plain.rounded(digits).unwrap_or(plain)
}

fn float(info: &ExactNumberInfo) -> Result<Type, SqlError> {
    match info {
        ExactNumberInfo::None => Ok(Type::Float8),
        ExactNumberInfo::Precision(1..=24) => Ok(Type::Float4),
        ExactNumberInfo::Precision(25..=53) => Ok(Type::Float8),
        ExactNumberInfo::Precision(0) => Err(SqlError::new("22023", "precision for type float must be at least 1 bit")),
        ExactNumberInfo::Precision(_) => {
            Err(SqlError::new("22023", "precision for type float must be less than 54 bits"))
        }
        ExactNumberInfo::PrecisionAndScale(..) => {
            Err(SqlError::new("42601", "type modifier is not allowed for type float"))
        }
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<Type, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(pgtype::NUMERIC),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    if !(1..=1000).contains(&precision) {
        return Err(SqlError::new("22023", format!("NUMERIC precision {precision} must be between 1 and 1000")));
    }
    if !(-1000..=1000).contains(&scale) {
        return Err(SqlError::new("22023", format!("NUMERIC scale {scale} must be between -1000 and 1000")));
    }
    Ok(pgtype::numeric(precision as u16, scale as i16))
}

/// `pg_catalog.numeric(p, s)`.
fn modified_numeric(modifiers: &[String]) -> Result<Type, SqlError> {
    let invalid = || SqlError::new("22023", "invalid NUMERIC type modifier");
    let numbers = modifiers.iter().map(|text| text.trim().parse::<i64>().map_err(|_| invalid()));
    let numbers = numbers.collect::<Result<Vec<i64>, _>>()?;
    let precision = |p: i64| u64::try_from(p).map_err(|_| invalid());
    match numbers.as_slice() {
        [p] => numeric(&ExactNumberInfo::Precision(precision(*p)?)),
        [p, s] => numeric(&ExactNumberInfo::PrecisionAndScale(precision(*p)?, *s)),
        _ => Err(invalid()),
    }
}

fn length_of(name: &str, length: &Option<CharacterLength>, default: u32) -> Result<u32, SqlError> {
    match length {
        None => Ok(default),
        Some(CharacterLength::IntegerLength { length, unit: None }) => checked_length(name, *length),
        Some(other) => Err(SqlError::unsupported(format!("type {name}({other})"))),
    }
}

fn checked_length(name: &str, length: u64) -> Result<u32, SqlError> {
    match length {
        0 => Err(SqlError::new("22023", format!("length for type {name} must be at least 1"))),
        n if n > u64::from(LENGTH_MAX) => {
            Err(SqlError::new("22023", format!("length for type {name} cannot exceed {LENGTH_MAX}")))
        }
        n => Ok(n as u32),
    }
}

/// Names that the grammar has no word for.
fn named(name: &ObjectName, modifiers: &[String], schema: &Schema) -> Result<Type, SqlError> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let text = parts.join(".");
    let missing = || match is_of_rows(&parts, schema) {
        true => SqlError::unsupported(format!("type {text}, of a relation's rows")),
        false => SqlError::new("42704", format!("type \"{text}\" does not exist")),
    };
    if let Some(ty) = of_users(&parts, schema) {
        return match modifiers {
            [] => Ok(ty),
            _ => Err(SqlError::new("42601", format!("type modifier is not allowed for type \"{text}\""))),
        };
    }
    let short = match parts.as_slice() {
        [short] => short.as_str(),
        [namespace, short] if namespace == "pg_catalog" => short.as_str(),
        [namespace, _] if namespace_named(schema, namespace).is_none() => {
            return Err(SqlError::new("3F000", format!("schema \"{namespace}\" does not exist")));
        }
        _ => return Err(missing()),
    };
    let length = || match modifiers {
        [] => Ok(None),
        [one] => one
            .parse::<u64>()
            .map(Some)
            .map_err(|_| SqlError::new("22023", format!("invalid type modifier for type {short}"))),
        _ => Err(SqlError::new("22023", format!("invalid type modifier for type {short}"))),
    };
    let plain = match short {
        "bpchar" => {
            return Ok(Type::Char(match length()? {
                Some(n) => checked_length("character", n)?,
                None => UNLIMITED,
            }));
        }
        "nchar" => return Ok(Type::Char(checked_length("character", length()?.unwrap_or(1))?)),
        "varchar" => {
            return Ok(Type::Varchar(match length()? {
                Some(n) => checked_length("character varying", n)?,
                None => UNLIMITED,
            }));
        }
        "serial" | "serial4" | "bigserial" | "serial8" | "smallserial" | "serial2" => {
            return Err(SqlError::unsupported(format!("type {short} (sequences)")));
        }
        "numeric" if !modifiers.is_empty() => return modified_numeric(modifiers),
        "time" | "timestamp" | "timestamptz" | "interval" if !modifiers.is_empty() => {
            let plain = pgtype::named(short).ok_or_else(missing)?;
            return Ok(limited(plain, length()?));
        }
        _ => pgtype::named(short).ok_or_else(missing)?,
    };
    if modifiers.is_empty() {
        Ok(plain)
    } else {
        Err(SqlError::new("42601", format!("type modifier is not allowed for type \"{short}\"")))
    }
}

/// Whether a relation has the name: then its rows are a type in PostgreSQL.
fn is_of_rows(parts: &[String], schema: &Schema) -> bool {
    match parts {
        [name] => schema.table(name).is_some() || schema.view(name).is_some(),
        [namespace, name] => namespace_named(schema, namespace)
            .is_some_and(|id| schema.table_in(id, name).is_some() || schema.view_in(id, name).is_some()),
        _ => false,
    }
}

/// The enum, or the array of one, that the parts of a name mean.
fn of_users(parts: &[String], schema: &Schema) -> Option<Type> {
    let find = |name: &str| match parts {
        [_] if pgtype::named(name).is_some() => None,
        [_] => schema.enum_type(name),
        [namespace, _] if namespace == "pg_catalog" => schema.enum_by_id(kept_enum(name)?.0),
        [namespace, _] => schema.enum_in(namespace_named(schema, namespace)?, name),
        _ => None,
    };
    let name = parts.last()?;
    let of = |made: &Arc<EnumType>| Type::Enum(made.id);
    let array = || find(name.strip_prefix('_')?).map(of).map(Type::array_of);
    find(name).map(of).or_else(array)
}

/// The collation that is named, if it is another than the type's own: all order by bytes, and it is kept for show. 42704: there is none of this
/// name; 42804: the type has none.
pub fn collation_of(name: &ObjectName, ty: Type) -> Result<Option<CollationId>, SqlError> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let found = names::collation_of(&parts).ok_or_else(|| names::no_collation(&parts.join(".")))?;
    match own_collation(ty) {
        None => Err(SqlError::new("42804", format!("collations are not supported by type {}", type_name(ty)))),
        own => Ok(Some(found).filter(|_| own != Some(found))),
    }
}

/// What a column of the type has that names none.
pub fn own_collation(ty: Type) -> Option<CollationId> {
    match ty {
        Type::Name => Some(CollationId(950)),
        Type::Array(element) => own_collation(*element),
        ty => cast::is_text(ty).then_some(CollationId(100)),
    }
}
