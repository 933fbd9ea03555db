//! Functions that ask the catalog: what objects are called, how they are defined, how large they are, who may do what.
//!
//! They see the schema that their statement sees (`Clock::catalog`). Where a number means nothing they give NULL, as PostgreSQL does.

use super::arguments::{Arguments, text};
use crate::bind::names::is_temporary;
use crate::catalog::definition::style;
use crate::catalog::names::is_visible_enum;
use crate::catalog::{Catalog, Relation, builtin, oid};
use crate::error::SqlError;
use crate::role::acl::{self, Kind, Privileges};
use crate::role::{self, Access};
use crate::value::numeric::Numeric;
use crate::value::pgtype::{self, NUMERIC};
use crate::value::{Datum, array_datum, quoted_ident};
use freshet_engine::catalog::{NamespaceId, RoleId, Table};
use freshet_engine::schema::{EnumId, OidKind, SystemKind, Type, Value};
use std::sync::Arc;

type Result = std::result::Result<Datum, SqlError>;

fn catalog<'a>(a: &Arguments<'a>) -> std::result::Result<&'a Catalog, SqlError> {
    a.clock.catalog.get().ok_or_else(|| SqlError::unsupported("a question to the catalog in this place"))
}

/// A role by its name or its number.
fn role_at(catalog: &Catalog, a: &Arguments<'_>, at: usize) -> std::result::Result<RoleId, SqlError> {
    Ok(RoleId(match a.types[at] {
        Type::Text => catalog.find(OidKind::Role, &quoted_ident(a.text(at)))?,
        _ => oid_at(a, at),
    }))
}

fn oid_at(a: &Arguments<'_>, at: usize) -> u32 {
    a.int(at) as u32
}

fn optional(value: Option<impl AsRef<[u8]>>) -> Datum {
    value.map_or(Datum::Null, text)
}

/// The flag that says whether to write prettily, if there is one.
fn is_pretty(a: &Arguments<'_>, at: usize) -> bool {
    a.len() > at && matches!(a.values[at], Value::Bool(true))
}

// ---- definitions

pub(super) fn format_type(a: &Arguments<'_>) -> Result {
    if a.is_null(0) {
        return Ok(Datum::Null);
    }
    let modifier = if a.is_null(1) { None } else { Some(a.int(1) as i32) };
    Ok(text(catalog(a)?.type_text(oid_at(a, 0), modifier)))
}

pub(super) fn pg_get_expr(a: &Arguments<'_>) -> Result {
    Ok(text(catalog(a)?.expression(a.text(0), oid_at(a, 1), style(is_pretty(a, 2)))))
}

pub(super) fn pg_get_constraintdef(a: &Arguments<'_>) -> Result {
    Ok(optional(catalog(a)?.constraint_text(oid_at(a, 0), is_pretty(a, 1))))
}

pub(super) fn pg_get_indexdef(a: &Arguments<'_>) -> Result {
    let column = if a.len() > 1 { a.int(1) } else { 0 };
    Ok(optional(catalog(a)?.index_text(oid_at(a, 0), column, is_pretty(a, 2))))
}

pub(super) fn pg_get_viewdef(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let number = match a.types[0] {
        Type::Text => catalog.find(OidKind::Class, a.text(0))?,
        _ => oid_at(a, 0),
    };
    // A width to wrap at asks for the pretty form.
    let pretty = is_pretty(a, 1) || a.len() > 1 && matches!(a.values[1], Value::Int(_));
    Ok(optional(catalog.view_of(number).map(|view| catalog.view_text(view, pretty))))
}

pub(super) fn pg_get_ruledef(a: &Arguments<'_>) -> Result {
    Ok(optional(catalog(a)?.rule_text(oid_at(a, 0), is_pretty(a, 1))))
}

/// Of what there is none of here: triggers, partitions, extended statistics, bodies of functions in SQL.
pub(super) fn nothing(_: &Arguments<'_>) -> Result {
    Ok(Datum::Null)
}

pub(super) fn pg_get_function_arguments(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let shown = |proc: &'static builtin::SystemProc| {
        let types = proc.arguments.iter().map(|ty| catalog.type_text(*ty, None));
        types.collect::<Vec<_>>().join(", ")
    };
    Ok(optional(builtin::proc_of(oid_at(a, 0)).map(shown)))
}

pub(super) fn pg_get_function_result(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let shown = |proc: &'static builtin::SystemProc| {
        let ty = catalog.type_text(proc.result, None);
        if proc.gives_set { format!("SETOF {ty}") } else { ty }
    };
    Ok(optional(builtin::proc_of(oid_at(a, 0)).map(shown)))
}

pub(super) fn pg_get_userbyid(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let user = catalog.role_name(oid_at(a, 0));
    Ok(text(user.unwrap_or_else(|| role::unknown_name(RoleId(oid_at(a, 0))))))
}

/// `schema.sequence` of the column that owns one.
pub(super) fn pg_get_serial_sequence(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let number = catalog.find(OidKind::Class, a.text(0))?;
    // Columns of views and of the system's own relations have none.
    let Some(Relation::Table(table)) = catalog.relation(number) else { return Ok(Datum::Null) };
    let column = a.text(1);
    let at = table.def.columns.iter().position(|c| c.is_visible() && c.name == column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.def.name);
        SqlError::new("42703", message)
    })?;
    let owned = catalog.schema.sequences_of(table.id).find(|s| s.def.owner == Some((table.id, at as u16)));
    Ok(optional(owned.map(|sequence| catalog.qualified_name(Relation::Sequence(sequence)))))
}

// ---- names

fn by_name(a: &Arguments<'_>, kind: OidKind) -> Result {
    match catalog(a)?.find(kind, a.text(0)) {
        Ok(number) => Ok(Datum::Int(number.into())),
        // Not there; what is no name, or in a schema that may not be used, is still an error.
        Err(error) if !matches!(error.sqlstate, "42601" | "42602" | "0A000" | "42501") => Ok(Datum::Null),
        Err(error) => Err(error),
    }
}

pub(super) fn to_regclass(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Class)
}

pub(super) fn to_regtype(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Type)
}

pub(super) fn to_regproc(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Proc)
}

pub(super) fn to_regprocedure(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Procedure)
}

pub(super) fn to_regnamespace(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Namespace)
}

pub(super) fn to_regrole(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Role)
}

pub(super) fn to_regcollation(a: &Arguments<'_>) -> Result {
    by_name(a, OidKind::Collation)
}

pub(super) fn pg_table_is_visible(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let relation = catalog.relation(oid_at(a, 0));
    Ok(relation.map_or(Datum::Null, |relation| Datum::Bool(catalog.is_visible(relation))))
}

/// A row type is visible as its relation is, an array as its elements' type.
pub(super) fn pg_type_is_visible(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let number = oid_at(a, 0);
    if builtin::type_of(number).is_some() {
        return Ok(Datum::Bool(true));
    }
    if let Some(Type::Enum(id) | Type::Array(&Type::Enum(id))) = pgtype::from_oid_in(number, -1, &catalog.schema) {
        let made = catalog.schema.enum_by_id(id);
        return Ok(made.map_or(Datum::Null, |made| Datum::Bool(is_visible_enum(&catalog.schema, made))));
    }
    let relation = oid::relation_of_row_type(number).or_else(|| oid::relation_of_row_array(number));
    let relation = relation.and_then(|number| catalog.relation(number));
    Ok(relation.map_or(Datum::Null, |relation| Datum::Bool(catalog.is_visible(relation))))
}

/// Functions, operators and the like are those of `pg_catalog`, whose names nothing hides.
pub(super) fn is_visible(a: &Arguments<'_>) -> Result {
    /// From here on numbers are not PostgreSQL's own.
    const OWN: u32 = 16384;
    Ok(if oid_at(a, 0) < OWN && oid_at(a, 0) > 0 { Datum::Bool(true) } else { Datum::Null })
}

pub(super) fn current_schemas(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let path = if a.bool(0) { catalog.search_path() } else { catalog.schema.path().to_vec() };
    // The session's temporary tables are searched without being asked.
    let named = path.into_iter().filter(|id| a.bool(0) || !is_temporary(&catalog.schema, *id));
    let names = named.filter_map(|id| catalog.namespace_name(id).map(text)).collect();
    Ok(array_datum(Type::Name, names))
}

pub(super) fn pg_my_temp_schema(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let own = catalog.schema.path().iter().find(|id| is_temporary(&catalog.schema, **id));
    Ok(Datum::Int(own.map_or(0, |id| id.0).into()))
}

pub(super) fn pg_is_other_temp_schema(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let id = NamespaceId(oid_at(a, 0));
    Ok(Datum::Bool(is_temporary(&catalog.schema, id) && !catalog.schema.path().contains(&id)))
}

// ---- comments

/// What PostgreSQL says of the schemas that it brings along.
fn known_comment(number: u32) -> Option<&'static str> {
    match number {
        11 => Some("system catalog schema"),
        2200 => Some("standard public schema"),
        _ => None,
    }
}

/// Whether an object stands in the system relation.
fn is_listed(catalog: &Catalog, number: u32, listing: &str) -> bool {
    match listing {
        "pg_class" => catalog.relation(number).is_some(),
        "pg_type" => catalog.schema.enum_by_id(EnumId(number)).is_some(),
        "pg_namespace" => catalog.namespace_name(NamespaceId(number)).is_some(),
        "pg_constraint" => catalog.constraint(number).is_some(),
        _ => false,
    }
}

pub(super) fn obj_description(a: &Arguments<'_>) -> Result {
    let (catalog, number) = (catalog(a)?, oid_at(a, 0));
    if a.len() > 1 && !is_listed(catalog, number, a.text(1)) {
        return Ok(Datum::Null);
    }
    let comment = catalog.schema.comment(number, 0).map(|comment| comment.to_string());
    Ok(optional(comment.or_else(|| known_comment(number).map(str::to_owned))))
}

pub(super) fn shobj_description(a: &Arguments<'_>) -> Result {
    let (schema, number) = (&catalog(a)?.schema, oid_at(a, 0));
    let is_listed = match a.text(1) {
        "pg_database" => number == oid::DATABASE,
        "pg_authid" => schema.role(RoleId(number)).is_some(),
        _ => false,
    };
    let comment = schema.comment(number, 0).filter(|_| is_listed);
    Ok(optional(comment.map(|comment| comment.to_string())))
}

pub(super) fn col_description(a: &Arguments<'_>) -> Result {
    let comment = match u16::try_from(a.int(1)) {
        Ok(column) if column > 0 => catalog(a)?.schema.comment(oid_at(a, 0), column),
        _ => None,
    };
    Ok(optional(comment.map(|comment| comment.to_string())))
}

// ---- encodings

/// By PostgreSQL's numbers.
const ENCODINGS: [&str; 42] = [
    "SQL_ASCII",
    "EUC_JP",
    "EUC_CN",
    "EUC_KR",
    "EUC_TW",
    "EUC_JIS_2004",
    "UTF8",
    "MULE_INTERNAL",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "WIN1256",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "WIN1251",
    "WIN1252",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1257",
    "KOI8U",
    "SJIS",
    "BIG5",
    "GBK",
    "UHC",
    "GB18030",
    "JOHAB",
    "SHIFT_JIS_2004",
];

pub(super) fn pg_encoding_to_char(a: &Arguments<'_>) -> Result {
    let name = usize::try_from(a.int(0)).ok().and_then(|at| ENCODINGS.get(at));
    Ok(text(name.copied().unwrap_or_default()))
}

/// -1 for a name of none.
pub(super) fn pg_char_to_encoding(a: &Arguments<'_>) -> Result {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = match plain(a.text(0)).as_str() {
        "unicode" => "utf8".to_owned(),
        "iso88591" => "latin1".to_owned(),
        other => other.to_owned(),
    };
    let at = ENCODINGS.iter().position(|name| plain(name) == wanted);
    Ok(Datum::Int(at.map_or(-1, |at| at as i64)))
}

/// Texts are UTF-8, on both sides.
pub(super) fn encoding(_: &Arguments<'_>) -> Result {
    Ok(text("UTF8"))
}

// ---- sizes

fn with_engine<T>(
    a: &Arguments<'_>,
    of: impl FnOnce(&freshet_engine::engine::Engine) -> T,
) -> std::result::Result<T, SqlError> {
    match &catalog(a)?.session {
        Some(session) => Ok(of(&session.engine)),
        None => Err(SqlError::unsupported("a size in this place")),
    }
}

fn index_bytes(table: &Table) -> u64 {
    table.indexes.iter().map(|index| index.memory_bytes()).sum()
}

fn size(bytes: u64) -> Datum {
    Datum::Int(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Bytes of a relation, without what belongs to it; only its main part has any.
pub(super) fn pg_relation_size(a: &Arguments<'_>) -> Result {
    if a.len() > 1 {
        match a.text(1) {
            "main" => {}
            "fsm" | "vm" | "init" => return Ok(Datum::Int(0)),
            _ => {
                return Err(SqlError::new("22023", "invalid fork name")
                    .with_hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\"."));
            }
        }
    }
    Ok(match catalog(a)?.relation(oid_at(a, 0)) {
        None => Datum::Null,
        Some(Relation::Index(_, index)) => size(index.memory_bytes()),
        Some(Relation::Table(table)) => size(with_engine(a, |engine| engine.table_bytes(table))?),
        Some(_) => Datum::Int(0),
    })
}

pub(super) fn pg_indexes_size(a: &Arguments<'_>) -> Result {
    Ok(match catalog(a)?.relation(oid_at(a, 0)) {
        None => Datum::Null,
        Some(Relation::Table(table)) => size(index_bytes(table)),
        Some(_) => Datum::Int(0),
    })
}

pub(super) fn pg_total_relation_size(a: &Arguments<'_>) -> Result {
    Ok(match catalog(a)?.relation(oid_at(a, 0)) {
        Some(Relation::Table(table)) => size(with_engine(a, |engine| engine.table_bytes(table))? + index_bytes(table)),
        _ => return pg_relation_size(a),
    })
}

/// What the database takes of its memory. By name or number; 3D000 for another one.
pub(super) fn pg_database_size(a: &Arguments<'_>) -> Result {
    let own = match (&catalog(a)?.session, a.types[0]) {
        (Some(session), Type::Name) if session.database != a.text(0) => {
            return Err(SqlError::new("3D000", format!("database \"{}\" does not exist", a.text(0))));
        }
        (_, Type::Name) => true,
        _ => oid_at(a, 0) == oid::DATABASE,
    };
    if !own {
        return Ok(Datum::Null);
    }
    Ok(size(with_engine(a, |engine| engine.memory_limit().used_bytes)?))
}

/// Everything is in the default tablespace.
pub(super) fn pg_tablespace_size(a: &Arguments<'_>) -> Result {
    let own = match a.types[0] {
        Type::Name => match a.text(0) {
            "pg_default" => true,
            "pg_global" => false,
            other => return Err(SqlError::new("42704", format!("tablespace \"{other}\" does not exist"))),
        },
        _ => oid_at(a, 0) == oid::TABLESPACE,
    };
    Ok(if own { size(with_engine(a, |engine| engine.memory_limit().used_bytes)?) } else { Datum::Int(0) })
}

pub(super) fn pg_tablespace_location(a: &Arguments<'_>) -> Result {
    // Both of PostgreSQL's lie in the data directory.
    Ok(if matches!(oid_at(a, 0), 1663 | 1664) { text("") } else { Datum::Null })
}

/// Rounded half up to units of 1024, once there are ten of the next one.
pub(super) fn pg_size_pretty(a: &Arguments<'_>) -> Result {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let bytes = match a.types[0] {
        Type::Int8 => i128::from(a.int(0)),
        _ => {
            let number = a.number(0);
            let limit = Numeric::from_i64(10 * 1024);
            if number < limit && number.clone().negated() < limit {
                let mut shown = Vec::new();
                crate::value::to_text(NUMERIC, &Value::Bytes(&number.to_stored()), &mut shown);
                shown.extend_from_slice(b" bytes");
                return Ok(text(shown));
            }
            i128::from(number.trunc(0)?.to_i64("bigint")?)
        }
    };
    let (mut size, mut unit, mut halves) = (bytes, 0, 1);
    // Kept in halves after the first step, so that rounding happens once.
    while size.abs() >= 10 * 1024 * halves && unit + 1 < UNITS.len() {
        size /= if unit == 0 { 512 } else { 1024 };
        halves = 2;
        unit += 1;
    }
    let rounded = if halves == 2 { (size + size.signum()) / 2 } else { size };
    Ok(text(format!("{rounded} {}", UNITS[unit])))
}

pub(super) fn pg_size_bytes(a: &Arguments<'_>) -> Result {
    let given = a.text(0);
    let trimmed = given.trim();
    let end = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let invalid = || SqlError::new("22023", format!("invalid size: \"{given}\""));
    let number = Numeric::parse(trimmed[..end].trim().as_bytes()).map_err(|_| invalid())?;
    let unit: i64 = match trimmed[end..].trim().to_ascii_lowercase().as_str() {
        "" | "bytes" | "b" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        "tb" => 1 << 40,
        "pb" => 1 << 50,
        other => {
            return Err(invalid()
                .with_detail(format!("Invalid size unit: \"{other}\"."))
                .with_hint("Valid units are \"bytes\", \"B\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\"."));
        }
    };
    Ok(Datum::Int(number.mul(&Numeric::from_i64(unit))?.to_i64("bigint")?))
}

// ---- others

pub(super) fn not_in_recovery(_: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(false))
}

/// 55000: what only a server that follows another can be asked.
pub(super) fn not_recovering(_: &Arguments<'_>) -> Result {
    Err(SqlError::new("55000", "recovery is not in progress")
        .with_hint("Recovery control functions can only be executed during recovery."))
}

pub(super) fn no(_: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(false))
}

pub(super) fn zero(_: &Arguments<'_>) -> Result {
    Ok(Datum::Int(0))
}

/// What is done at once, as nothing is kept back here.
pub(super) fn done(_: &Arguments<'_>) -> Result {
    Ok(Datum::Bytes(Box::default()))
}

/// Sessions that stand in the way of a snapshot: no transaction waits for a safe one.
pub(super) fn nobody(_: &Arguments<'_>) -> Result {
    Ok(array_datum(Type::Int4, Vec::new()))
}

pub(super) fn row_security_active(a: &Arguments<'_>) -> Result {
    catalog(a)?.find(OidKind::Class, a.text(0))?;
    Ok(Datum::Bool(false))
}

pub(super) fn pg_encoding_max_length(a: &Arguments<'_>) -> Result {
    // Of SQL_ASCII, of UTF8, and of the sets of one byte that follow them.
    Ok(match a.int(0) {
        0 | 8..=34 => Datum::Int(1),
        6 => Datum::Int(4),
        _ => Datum::Null,
    })
}

/// The types of a function's arguments.
pub(super) fn oidvectortypes(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let shown = |item: &Datum| match item {
        Datum::Int(number) => catalog.type_text(*number as u32, None),
        _ => String::new(),
    };
    let types: Vec<String> = a.array(0).items.iter().map(shown).collect();
    Ok(text(types.join(", ")))
}
/// Which changes a relation takes, as bits: 4 UPDATE, 8 INSERT, 16 DELETE.
fn changes_of(catalog: &Catalog, number: u32) -> i64 {
    const ALL: i64 = 28;
    match catalog.relation(number) {
        Some(Relation::Table(_)) => ALL,
        Some(Relation::View(view)) if crate::bind::through::is_changeable(view, &catalog.schema) => ALL,
        _ => 0,
    }
}

pub(super) fn pg_relation_is_updatable(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(changes_of(catalog(a)?, oid_at(a, 0))))
}

pub(super) fn pg_column_is_updatable(a: &Arguments<'_>) -> Result {
    let (catalog, number, column) = (catalog(a)?, oid_at(a, 0), a.int(1));
    let is_set = match catalog.relation(number) {
        Some(Relation::View(view)) => {
            crate::bind::through::is_settable(view, usize::try_from(column).unwrap_or(0), &catalog.schema)
        }
        _ => changes_of(catalog, number) != 0,
    };
    Ok(Datum::Bool(column > 0 && is_set))
}

/// A table's rows are told by its primary key.
pub(super) fn pg_get_replica_identity_index(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let Some(Relation::Table(table)) = catalog.relation(oid_at(a, 0)) else { return Ok(Datum::Null) };
    let key = table.indexes.iter().find(|index| index.def.primary);
    Ok(key.map_or(Datum::Null, |index| Datum::Int(index.id.0.into())))
}

/// The access methods' numbers in `pg_am`.
const BTREE: u32 = 403;
const HASH: u32 = 405;

pub(super) fn pg_indexam_has_property(a: &Arguments<'_>) -> Result {
    let method = oid_at(a, 0);
    if !matches!(method, BTREE | HASH) {
        return Ok(Datum::Null);
    }
    Ok(match a.text(1).to_ascii_lowercase().as_str() {
        "can_order" | "can_include" => Datum::Bool(method == BTREE),
        "can_unique" | "can_multi_col" | "can_exclude" => Datum::Bool(true),
        _ => Datum::Null,
    })
}

/// The index of a number, and whether it is ordered.
fn index_at(catalog: &Catalog, number: u32) -> Option<(&Arc<freshet_engine::catalog::Index>, bool)> {
    match catalog.relation(number)? {
        Relation::Index(_, index) => Some((index, !matches!(index.def.kind, freshet_engine::catalog::IndexKind::Hash))),
        _ => None,
    }
}

pub(super) fn pg_index_has_property(a: &Arguments<'_>) -> Result {
    let Some((_, is_ordered)) = index_at(catalog(a)?, oid_at(a, 0)) else { return Ok(Datum::Null) };
    Ok(match a.text(1).to_ascii_lowercase().as_str() {
        "clusterable" => Datum::Bool(is_ordered),
        "index_scan" | "bitmap_scan" => Datum::Bool(true),
        "backward_scan" => Datum::Bool(true),
        _ => Datum::Null,
    })
}

pub(super) fn pg_index_column_has_property(a: &Arguments<'_>) -> Result {
    let Some((index, is_ordered)) = index_at(catalog(a)?, oid_at(a, 0)) else { return Ok(Datum::Null) };
    let property = a.text(2).to_ascii_lowercase();
    let Some(at) =
        usize::try_from(a.int(1) - 1).ok().filter(|&at| at < index.def.columns.len() + index.def.include.len())
    else {
        return Ok(Datum::Null);
    };
    let Some(key) = index.def.columns.get(at) else {
        // A column that is only carried along has no order.
        return Ok(match property.as_str() {
            "orderable" | "distance_orderable" | "search_array" | "search_nulls" => Datum::Bool(false),
            "returnable" => Datum::Bool(true),
            _ => Datum::Null,
        });
    };
    let nulls_first = key.descending != (index.def.nulls_against >> at.min(31) & 1 == 1);
    Ok(match property.as_str() {
        "asc" => Datum::Bool(is_ordered && !key.descending),
        "desc" => Datum::Bool(is_ordered && key.descending),
        "nulls_first" => Datum::Bool(is_ordered && nulls_first),
        "nulls_last" => Datum::Bool(is_ordered && !nulls_first),
        "orderable" | "returnable" | "search_array" | "search_nulls" => Datum::Bool(is_ordered),
        "distance_orderable" => Datum::Bool(false),
        _ => Datum::Null,
    })
}

/// Permanent tables could be published.
pub(super) fn pg_relation_is_publishable(a: &Arguments<'_>) -> Result {
    let catalog = catalog(a)?;
    let is_permanent = |table: &Arc<Table>| !is_temporary(&catalog.schema, table.def.namespace);
    Ok(match catalog.relation(oid_at(a, 0)) {
        None => Datum::Null,
        Some(Relation::Table(table)) => Datum::Bool(is_permanent(table)),
        Some(_) => Datum::Bool(false),
    })
}

/// NULL until the first value was taken.
pub(super) fn pg_sequence_last_value(a: &Arguments<'_>) -> Result {
    Ok(match catalog(a)?.relation(oid_at(a, 0)) {
        Some(Relation::Sequence(sequence)) => {
            let value = sequence.state.value();
            if value.is_called { Datum::Int(value.last) } else { Datum::Null }
        }
        Some(relation) => {
            return Err(SqlError::new("42809", format!("\"{}\" is not a sequence", relation.name())));
        }
        None => Datum::Null,
    })
}

/// The channels that the session listens on.
pub(super) fn listening(a: &Arguments<'_>) -> Vec<Datum> {
    let session = a.clock.catalog.get().and_then(|catalog| catalog.session.as_ref());
    let channels = session.and_then(|session| session.hearing.as_ref()).map(|hearing| hearing.channels());
    channels.unwrap_or_default().into_iter().map(|channel| Datum::Bytes(channel.into_bytes().into())).collect()
}

/// 42P01 for a number of nothing.
pub(super) fn sequence_parameters(a: &Arguments<'_>) -> std::result::Result<Vec<Datum>, SqlError> {
    let number = oid_at(a, 0);
    let def = match catalog(a)?.relation(number) {
        Some(Relation::Sequence(sequence)) => &sequence.def,
        Some(relation) => {
            return Err(SqlError::new("42809", format!("\"{}\" is not a sequence", relation.name())));
        }
        None => return Err(SqlError::new("42P01", format!("relation with OID {number} does not exist"))),
    };
    let ints = |list: &[i64]| list.iter().map(|v| Datum::Int(*v)).collect::<Vec<_>>();
    let mut row = ints(&[def.start, def.min, def.max, def.increment]);
    row.push(Datum::Bool(def.cycle));
    row.extend(ints(&[def.cache, pgtype::describe(def.ty).oid.into()]));
    Ok(row)
}

/// The privileges that access control lists give: grantor, grantee, privilege, whether it may be given on.
pub(super) fn grants(a: &Arguments<'_>) -> std::result::Result<Vec<Vec<Datum>>, SqlError> {
    let schema = &catalog(a)?.schema;
    let role = |name: &str| match schema.role_named(name) {
        Some(role) => Ok(Datum::Int(role.id.0.into())),
        None => Err(SqlError::new("42704", format!("role \"{name}\" does not exist"))),
    };
    let mut rows = Vec::new();
    for item in a.array(0).items {
        let Datum::Bytes(item) = item else {
            return Err(SqlError::new("22004", "ACL arrays must not contain null values"));
        };
        let item = String::from_utf8_lossy(&item).into_owned();
        let Some(item) = acl::Item::of_text(&item) else {
            return Err(SqlError::new("22P02", format!("invalid aclitem: \"{item}\"")));
        };
        let grantor = role(&item.grantor)?;
        let grantee = item.grantee.as_deref().map_or(Ok(Datum::Int(0)), role)?;
        for (privilege, may_give) in item.privileges {
            rows.push(vec![grantor.clone(), grantee.clone(), text(privilege), Datum::Bool(may_give)]);
        }
    }
    Ok(rows)
}

/// What the owner of an object may do where nothing was granted.
pub(super) fn acldefault(a: &Arguments<'_>) -> Result {
    let (everybody, owner) = match a.text(0) {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "L" => ("", "rw"),
        "n" => ("", "UC"),
        "p" => ("", "sA"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        other => return Err(SqlError::new("XX000", format!("unrecognized object type abbreviation: {other}"))),
    };
    let name = catalog(a)?.show(OidKind::Role, oid_at(a, 1));
    let item = |who: &str, may: &str| text(format!("{who}={may}/{name}"));
    let mut items = Vec::new();
    if !everybody.is_empty() {
        items.push(item("", everybody));
    }
    if !owner.is_empty() {
        items.push(item(&name, owner));
    }
    Ok(array_datum(Type::System(SystemKind::AclItem), items))
}

// ---- privileges

/// True, or the error that a name means nothing.
fn known(is_there: bool, missing: impl FnOnce() -> SqlError) -> std::result::Result<bool, SqlError> {
    if is_there { Ok(true) } else { Err(missing()) }
}

/// What a privilege is asked of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Privileged {
    Table,
    AnyColumn,
    Column,
    Sequence,
    Schema,
    Database,
    Function,
    Type,
    Tablespace,
    Language,
    ForeignDataWrapper,
    Server,
    /// `pg_has_role`.
    Role,
}

impl Privileged {
    pub(super) fn named(name: &str) -> Option<Privileged> {
        Some(match name {
            "has_table_privilege" => Privileged::Table,
            "has_any_column_privilege" => Privileged::AnyColumn,
            "has_column_privilege" => Privileged::Column,
            "has_sequence_privilege" => Privileged::Sequence,
            "has_schema_privilege" => Privileged::Schema,
            "has_database_privilege" => Privileged::Database,
            "has_function_privilege" => Privileged::Function,
            "has_type_privilege" => Privileged::Type,
            "has_tablespace_privilege" => Privileged::Tablespace,
            "has_language_privilege" => Privileged::Language,
            "has_foreign_data_wrapper_privilege" => Privileged::ForeignDataWrapper,
            "has_server_privilege" => Privileged::Server,
            "pg_has_role" => Privileged::Role,
            _ => return None,
        })
    }

    /// The arguments that say of what, without who asks.
    fn places(self) -> usize {
        if self == Privileged::Column { 3 } else { 2 }
    }

    /// What the arguments are taken as: names as text, numbers as oids, a column's as a smallint.
    pub(super) fn arguments(self, given: &[Option<Type>]) -> Option<Vec<Type>> {
        let places = self.places();
        if given.len() != places && given.len() != places + 1 {
            return None;
        }
        let last = given.len() - 1;
        let taken = |(at, ty): (usize, &Option<Type>)| match ty {
            None => Some(Type::Text),
            Some(ty) if crate::value::cast::is_text(*ty) => Some(Type::Text),
            Some(_) if at == last => None,
            Some(Type::Int2 | Type::Int4) if self == Privileged::Column && at + 1 == last => Some(Type::Int4),
            Some(Type::Oid(_) | Type::Int2 | Type::Int4 | Type::Int8) => Some(Type::Oid(OidKind::Oid)),
            Some(_) => None,
        };
        given.iter().enumerate().map(taken).collect()
    }

    fn privileges(self) -> &'static [&'static str] {
        match self {
            Privileged::Table => &["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "RULE"],
            Privileged::AnyColumn | Privileged::Column => &["SELECT", "INSERT", "UPDATE", "REFERENCES"],
            Privileged::Sequence => &["USAGE", "SELECT", "UPDATE"],
            Privileged::Schema => &["CREATE", "USAGE"],
            Privileged::Database => &["CREATE", "CONNECT", "TEMPORARY", "TEMP"],
            Privileged::Function => &["EXECUTE"],
            Privileged::Type | Privileged::Language | Privileged::ForeignDataWrapper | Privileged::Server => &["USAGE"],
            Privileged::Tablespace => &["CREATE"],
            Privileged::Role => &["USAGE", "MEMBER"],
        }
    }

    /// Whether a role, or else who asks, has one of the privileges of a list.
    pub(super) fn call(self, a: &Arguments<'_>) -> Result {
        if a.values.iter().any(Value::is_null) {
            return Ok(Datum::Null);
        }
        let catalog = catalog(a)?;
        let object = a.len() - self.places();
        let own = catalog.session.as_ref().map_or(RoleId::FIRST, |session| session.role);
        let role = match object {
            0 => own,
            _ => role_at(catalog, a, 0)?,
        };
        let is_there = self.is_there(catalog, a, object)?;
        self.check_privileges(a.text(a.len() - 1))?;
        if !is_there {
            return Ok(Datum::Null);
        }
        let words = a.text(a.len() - 1).to_ascii_uppercase();
        if self == Privileged::Role {
            let of = role_at(catalog, a, object)?;
            let has = |word: &str| match word.trim() {
                "USAGE" => role::has_rights_of(&catalog.schema, role, of),
                "MEMBER" => role::is_member(&catalog.schema, role, of),
                _ => role::is_admin(&catalog.schema, role, of),
            };
            return Ok(Datum::Bool(words.split(',').any(has)));
        }
        let Some(access) = Access::of(&catalog.schema, role) else { return Ok(Datum::Bool(true)) };
        let (has, may_give) = self.held(catalog, a, object, &access)?;
        let asked = |word: &str| {
            let word = word.trim();
            let plain = word.strip_suffix(" WITH GRANT OPTION");
            let one = Privileges::named(plain.unwrap_or(word)).unwrap_or_default();
            !one.is_none() && if plain.is_some() { may_give.has(one) } else { has.has(one) }
        };
        Ok(Datum::Bool(words.split(',').any(asked)))
    }

    /// What a role that is no superuser has on the object, and may give on.
    fn held(
        self,
        catalog: &Catalog,
        a: &Arguments<'_>,
        at: usize,
        access: &Access,
    ) -> std::result::Result<(Privileges, Privileges), SqlError> {
        let by_name = a.types[at] == Type::Text;
        let nothing = Privileges::NONE;
        Ok(match self {
            Privileged::Table | Privileged::AnyColumn | Privileged::Column | Privileged::Sequence => {
                let number = if by_name { catalog.find(OidKind::Class, a.text(at))? } else { oid_at(a, at) };
                match catalog.relation(number) {
                    Some(Relation::Sequence(_)) => access.held(Kind::Sequence, number),
                    Some(Relation::Table(_) | Relation::View(_)) => access.held(Kind::Table, number),
                    Some(Relation::System(system)) if role::check::is_secret(system.name) => (nothing, nothing),
                    Some(Relation::System(_)) => (Privileges::SELECT, nothing),
                    _ => (nothing, nothing),
                }
            }
            Privileged::Schema => {
                let number = match by_name {
                    true => catalog.find(OidKind::Namespace, &quoted_ident(a.text(at)))?,
                    false => oid_at(a, at),
                };
                access.held(Kind::Schema, number)
            }
            Privileged::Database => access.held(Kind::Database, oid::DATABASE),
            // Everybody's, as PostgreSQL makes them; the languages for what nobody may trust are not.
            Privileged::Function | Privileged::Type => (Privileges(!0), nothing),
            Privileged::Language => {
                let is_sql = if by_name { a.text(at) == "sql" } else { oid_at(a, at) == 14 };
                (if is_sql { Privileges::USAGE } else { nothing }, nothing)
            }
            Privileged::Tablespace | Privileged::ForeignDataWrapper | Privileged::Server | Privileged::Role => {
                (nothing, nothing)
            }
        })
    }

    fn check_privileges(self, list: &str) -> std::result::Result<(), SqlError> {
        for word in list.split(',') {
            let upper = word.trim().to_ascii_uppercase();
            let plain = upper.strip_suffix(" WITH GRANT OPTION").or_else(|| upper.strip_suffix(" WITH ADMIN OPTION"));
            if !self.privileges().contains(&plain.unwrap_or(&upper)) {
                return Err(SqlError::new("22023", format!("unrecognized privilege type: \"{}\"", word.trim())));
            }
        }
        Ok(())
    }

    /// False for a number of nothing; a name of nothing is an error.
    fn is_there(self, catalog: &Catalog, a: &Arguments<'_>, at: usize) -> std::result::Result<bool, SqlError> {
        let by_name = a.types[at] == Type::Text;
        let class = || -> std::result::Result<Option<u32>, SqlError> {
            let number = if by_name { catalog.find(OidKind::Class, a.text(at))? } else { oid_at(a, at) };
            Ok(catalog.relation(number).map(|_| number))
        };
        let missing = |what: &str, state| SqlError::new(state, format!("{what} \"{}\" does not exist", a.text(at)));
        Ok(match self {
            Privileged::Table | Privileged::AnyColumn => class()?.is_some(),
            Privileged::Sequence => match class()?.and_then(|number| catalog.relation(number)) {
                None => false,
                Some(Relation::Sequence(_)) => true,
                Some(relation) => {
                    return Err(SqlError::new("42809", format!("\"{}\" is not a sequence", relation.name())));
                }
            },
            Privileged::Column => match class()? {
                None => false,
                Some(number) => self.has_column(catalog, number, a, at + 1)?,
            },
            Privileged::Schema if by_name => {
                catalog.find(OidKind::Namespace, &quoted_ident(a.text(at))).map(|_| true)?
            }
            Privileged::Schema => catalog.namespace_name(NamespaceId(oid_at(a, at))).is_some(),
            Privileged::Database if by_name => {
                let own = catalog.session.as_ref().is_some_and(|session| session.database == a.text(at));
                known(own, || missing("database", "3D000"))?
            }
            Privileged::Database => oid_at(a, at) == oid::DATABASE,
            Privileged::Function if by_name => catalog.find(OidKind::Procedure, a.text(at)).map(|_| true)?,
            Privileged::Function => builtin::proc_of(oid_at(a, at)).is_some(),
            Privileged::Type if by_name => catalog.find(OidKind::Type, a.text(at)).map(|_| true)?,
            Privileged::Type => catalog.show_type(oid_at(a, at)).is_some(),
            Privileged::Tablespace if by_name => {
                known(matches!(a.text(at), "pg_default" | "pg_global"), || missing("tablespace", "42704"))?
            }
            Privileged::Tablespace => matches!(oid_at(a, at), 1663 | 1664),
            Privileged::Role if by_name => catalog.find(OidKind::Role, &quoted_ident(a.text(at))).map(|_| true)?,
            Privileged::Role => catalog.role_name(oid_at(a, at)).is_some(),
            Privileged::Language if by_name => {
                known(matches!(a.text(at), "internal" | "c" | "sql"), || missing("language", "42704"))?
            }
            Privileged::Language => matches!(oid_at(a, at), 12..=14),
            Privileged::ForeignDataWrapper | Privileged::Server if by_name => {
                let what = if self == Privileged::Server { "server" } else { "foreign-data wrapper" };
                return Err(missing(what, "42704"));
            }
            Privileged::ForeignDataWrapper | Privileged::Server => false,
        })
    }

    fn has_column(
        self,
        catalog: &Catalog,
        number: u32,
        a: &Arguments<'_>,
        at: usize,
    ) -> std::result::Result<bool, SqlError> {
        let names: Vec<&str> = match catalog.relation(number) {
            Some(Relation::Table(table)) => {
                table.def.columns.iter().map(|c| if c.is_visible() { c.name.as_str() } else { "" }).collect()
            }
            Some(Relation::View(view)) => view.def.columns.iter().map(|(name, _)| name.as_str()).collect(),
            // The columns of the system's relations are not listed here.
            _ => return Ok(true),
        };
        if a.types[at] != Type::Text {
            let place = usize::try_from(a.int(at) - 1).ok();
            return Ok(place.is_some_and(|place| names.get(place).is_some_and(|name| !name.is_empty())));
        }
        let wanted = a.text(at);
        if names.contains(&wanted) {
            return Ok(true);
        }
        let relation = catalog.relation(number).map_or(String::new(), |relation| relation.name().to_owned());
        Err(SqlError::new("42703", format!("column \"{wanted}\" of relation \"{relation}\" does not exist")))
    }
}
