//! Which operator classes may an index name? The order is by bytes and each type has one: what is named must be there and of the type. It changes
//! nothing, is kept, and the catalogs show it.

use crate::bind::scope::fold;
use crate::catalog::names;
use crate::error::SqlError;
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{IndexKind, OperatorClassId};
use freshet_engine::schema::{NetworkKind, OidKind, Type, VectorKind};
use sqlparser::ast::ObjectName;

/// The class, if it is no type's default. 42704: there is none of this name; 42804: it is of another type.
pub fn class(class: &ObjectName, kind: IndexKind, ty: Type) -> Result<Option<OperatorClassId>, SqlError> {
    let name = class.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    match accepts(&name, ty.unrounded()) {
        Some(true) => Ok(names::operator_class(kind, &name)),
        Some(false) => Err(of_another_type(&name, ty)),
        None => {
            let method = match kind {
                IndexKind::BTree => "btree",
                IndexKind::Hash => "hash",
            };
            let message = format!("operator class \"{name}\" does not exist for access method \"{method}\"");
            Err(SqlError::new("42704", message))
        }
    }
}

/// Whether a key of the class may get this type.
pub fn check_class(class: OperatorClassId, ty: Type) -> Result<(), SqlError> {
    let name = names::operator_class_name(class);
    match accepts(name, ty.unrounded()) {
        Some(false) => Err(of_another_type(name, ty)),
        _ => Ok(()),
    }
}

fn of_another_type(class: &str, ty: Type) -> SqlError {
    SqlError::new("42804", format!("operator class \"{class}\" does not accept data type {}", type_name(ty)))
}

/// Whether the class is of the type; `None`: there is no such class.
fn accepts(class: &str, ty: Type) -> Option<bool> {
    Some(match class {
        "text_ops" | "varchar_ops" | "text_pattern_ops" | "varchar_pattern_ops" => {
            matches!(ty, Type::Text | Type::Varchar(_))
        }
        "bpchar_ops" | "bpchar_pattern_ops" => matches!(ty, Type::Char(_)),
        "array_ops" => matches!(ty, Type::Array(_)),
        "bool_ops" => ty == Type::Bool,
        "bytea_ops" => ty == Type::Bytea,
        "char_ops" => ty == Type::CharByte,
        "date_ops" => ty == Type::Date,
        "enum_ops" => matches!(ty, Type::Enum(_)),
        "float4_ops" => ty == Type::Float4,
        "float8_ops" => ty == Type::Float8,
        "int2_ops" => ty == Type::Int2,
        "int4_ops" => ty == Type::Int4,
        "int8_ops" => ty == Type::Int8,
        "inet_ops" => matches!(ty, Type::Network(NetworkKind::Inet | NetworkKind::Cidr)),
        "cidr_ops" => matches!(ty, Type::Network(NetworkKind::Inet | NetworkKind::Cidr)),
        "macaddr_ops" => ty == Type::Network(NetworkKind::Mac),
        "macaddr8_ops" => ty == Type::Network(NetworkKind::Mac8),
        "interval_ops" => ty == Type::Interval,
        "jsonb_ops" => ty == Type::Jsonb,
        "name_ops" => ty == Type::Name,
        "numeric_ops" => matches!(ty, Type::Decimal { .. } | Type::Numeric { .. }),
        "oid_ops" => matches!(ty, Type::Oid(kind) if !matches!(kind, OidKind::Xid | OidKind::Cid)),
        "oidvector_ops" => ty == Type::Vector(VectorKind::Oid),
        "time_ops" => ty == Type::Time,
        "timestamp_ops" => ty == Type::Timestamp,
        "timestamptz_ops" => ty == Type::Timestamptz,
        "uuid_ops" => ty == Type::Uuid,
        _ => return None,
    })
}
