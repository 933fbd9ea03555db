//! What do storage options ask for? Nothing that changes anything here: rows never move, old versions lie elsewhere, and garbage is collected as it
//! arises. Their names and values are looked at as PostgreSQL does, so that a mistake is told.

use super::{Definer, Done};
use crate::error::SqlError;
use crate::parse::{StorageOption, Stored, stored_of};
use freshet_engine::catalog::IndexKind;
use sqlparser::ast::{BinaryOperator, CreateTableOptions, Expr, Ident, SqlOption};

/// What an option may be of: a bit each.
const HEAP: u8 = 1;
const TOAST: u8 = 2;
const BTREE: u8 = 4;
const HASH: u8 = 8;
const COLUMN: u8 = 16;

enum Kind {
    Bool,
    Int(i64, i64),
    Real(f64, f64),
    /// `on`, `off`, `auto`.
    OnOffAuto,
}

struct Parameter(&'static str, u8, Kind);

/// What options are given to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    Table,
    Index(IndexKind),
    Column,
}

const MOST: i64 = i32::MAX as i64;

/// Of PostgreSQL 15, in the order of their names.
static PARAMETERS: &[Parameter] = &[
    Parameter("autovacuum_analyze_scale_factor", HEAP, Kind::Real(0.0, 100.0)),
    Parameter("autovacuum_analyze_threshold", HEAP, Kind::Int(0, MOST)),
    Parameter("autovacuum_enabled", HEAP | TOAST, Kind::Bool),
    Parameter("autovacuum_freeze_max_age", HEAP | TOAST, Kind::Int(100_000, 2_000_000_000)),
    Parameter("autovacuum_freeze_min_age", HEAP | TOAST, Kind::Int(0, 1_000_000_000)),
    Parameter("autovacuum_freeze_table_age", HEAP | TOAST, Kind::Int(0, 2_000_000_000)),
    Parameter("autovacuum_multixact_freeze_max_age", HEAP | TOAST, Kind::Int(10_000, 2_000_000_000)),
    Parameter("autovacuum_multixact_freeze_min_age", HEAP | TOAST, Kind::Int(0, 1_000_000_000)),
    Parameter("autovacuum_multixact_freeze_table_age", HEAP | TOAST, Kind::Int(0, 2_000_000_000)),
    Parameter("autovacuum_vacuum_cost_delay", HEAP | TOAST, Kind::Real(0.0, 100.0)),
    Parameter("autovacuum_vacuum_cost_limit", HEAP | TOAST, Kind::Int(1, 10_000)),
    Parameter("autovacuum_vacuum_insert_scale_factor", HEAP | TOAST, Kind::Real(0.0, 100.0)),
    Parameter("autovacuum_vacuum_insert_threshold", HEAP | TOAST, Kind::Int(-1, MOST)),
    Parameter("autovacuum_vacuum_scale_factor", HEAP | TOAST, Kind::Real(0.0, 100.0)),
    Parameter("autovacuum_vacuum_threshold", HEAP | TOAST, Kind::Int(0, MOST)),
    Parameter("deduplicate_items", BTREE, Kind::Bool),
    Parameter("fillfactor", HEAP | BTREE | HASH, Kind::Int(10, 100)),
    Parameter("log_autovacuum_min_duration", HEAP | TOAST, Kind::Int(-1, MOST)),
    Parameter("n_distinct", COLUMN, Kind::Real(-1.0, f64::MAX)),
    Parameter("n_distinct_inherited", COLUMN, Kind::Real(-1.0, f64::MAX)),
    Parameter("parallel_workers", HEAP, Kind::Int(0, 1024)),
    Parameter("toast_tuple_target", HEAP, Kind::Int(128, 8160)),
    Parameter("user_catalog_table", HEAP, Kind::Bool),
    Parameter("vacuum_cleanup_index_scale_factor", BTREE, Kind::Real(0.0, 1e10)),
    Parameter("vacuum_index_cleanup", HEAP | TOAST, Kind::OnOffAuto),
    Parameter("vacuum_truncate", HEAP | TOAST, Kind::Bool),
];

impl Definer<'_> {
    /// Looks at all that a definition says of storage, which changes nothing.
    pub(super) fn accept_stored(&mut self, stored: &[Stored], storage: Storage) -> Done<()> {
        let (mut options, mut key_options) = (Vec::new(), Vec::new());
        for stored in stored {
            match stored {
                Stored::Unlogged => self.notice("00000", "UNLOGGED changes nothing here"),
                Stored::Tablespace(name) => check_tablespace(name)?,
                Stored::Method(name) => check_method(name)?,
                Stored::Compression(name) => check_compression(name)?,
                Stored::Option(option) => options.push(option.clone()),
                Stored::KeyOption(option) => key_options.push(option.clone()),
            }
        }
        self.accept_storage(&options, storage)?;
        self.accept_storage(&key_options, Storage::Index(IndexKind::BTree))
    }

    /// Looks at options that change nothing, and says so.
    pub(super) fn accept_storage(&mut self, options: &[StorageOption], storage: Storage) -> Done<()> {
        check(options, storage)?;
        if options.iter().any(|option| option.name != "oids") {
            self.notice("00000", "storage parameters change nothing here");
        }
        Ok(())
    }

    /// SET and RESET: what is reset needs no value and may be any name.
    pub(super) fn alter_storage(&mut self, options: &[StorageOption], resets: bool, storage: Storage) -> Done<()> {
        if !resets {
            return self.accept_storage(options, storage);
        }
        if options.iter().any(|option| option.value.is_some()) {
            return Err(SqlError::new("42601", "RESET must not include values for parameters").into());
        }
        self.notice("00000", "storage parameters change nothing here");
        Ok(())
    }

    /// SET STATISTICS, STORAGE and COMPRESSION of a column.
    pub(super) fn accept_advice(&mut self, what: &str, value: &str) -> Done<()> {
        match what {
            "statistics" => match value.parse::<i64>() {
                Ok(..-1) => return Err(invalid(format!("statistics target {value} is too low")).into()),
                Ok(_) => {}
                Err(_) => {
                    return Err(SqlError::new("42601", format!("syntax error at or near \"{value}\"")).into());
                }
            },
            "storage" if !matches!(value, "plain" | "external" | "extended" | "main") => {
                return Err(invalid(format!("invalid storage type \"{value}\"")).into());
            }
            "compression" => check_compression(value)?,
            _ => {}
        }
        self.notice("00000", format!("SET {} changes nothing here", what.to_uppercase()));
        Ok(())
    }
}

/// 22023 for an option that is none, or has a value that it cannot have.
pub fn check(options: &[StorageOption], storage: Storage) -> Result<(), SqlError> {
    for (at, option) in options.iter().enumerate() {
        let is_same = |other: &StorageOption| other.name == option.name && other.namespace == option.namespace;
        if options[..at].iter().any(is_same) {
            return Err(invalid(format!("parameter \"{}\" specified more than once", option.name)));
        }
        check_one(option, storage)?;
    }
    Ok(())
}

fn check_one(option: &StorageOption, storage: Storage) -> Result<(), SqlError> {
    let of = match (storage, option.namespace.as_deref()) {
        (Storage::Table, None) => HEAP,
        (Storage::Table, Some("toast")) => TOAST,
        (Storage::Index(IndexKind::BTree), None) => BTREE,
        (Storage::Index(IndexKind::Hash), None) => HASH,
        (Storage::Column, None) => COLUMN,
        (_, Some(namespace)) => return Err(invalid(format!("unrecognized parameter namespace \"{namespace}\""))),
    };
    let name = option.name.as_str();
    let value = option.value_or_true();
    if of == HEAP && name == "oids" {
        return match truth(value) {
            Some(false) => Ok(()),
            Some(true) => Err(SqlError::new("0A000", "tables declared WITH OIDS are not supported")),
            None => Err(SqlError::new("42601", "oids requires a Boolean value")),
        };
    }
    match PARAMETERS.iter().find(|parameter| parameter.0 == name && parameter.1 & of != 0) {
        Some(parameter) => check_value(parameter, value),
        None => Err(invalid(format!("unrecognized parameter \"{name}\""))),
    }
}

fn check_value(Parameter(name, _, kind): &Parameter, value: &str) -> Result<(), SqlError> {
    let wrong = |kind: &str| invalid(format!("invalid value for {kind} option \"{name}\": {value}"));
    let outside = |low: String, high: String| {
        let detail = format!("Valid values are between \"{low}\" and \"{high}\".");
        invalid(format!("value {value} out of bounds for option \"{name}\"")).with_detail(detail)
    };
    match kind {
        Kind::Bool => truth(value).map(drop).ok_or_else(|| wrong("boolean")),
        Kind::Int(low, high) => {
            let number = value.trim().parse::<f64>().map_err(|_| wrong("integer"))?.round_ties_even();
            match (*low as f64..=*high as f64).contains(&number) {
                true => Ok(()),
                false => Err(outside(low.to_string(), high.to_string())),
            }
        }
        Kind::Real(low, high) => {
            let number = value.trim().parse::<f64>().map_err(|_| wrong("floating point"))?;
            match (*low..=*high).contains(&number) {
                true => Ok(()),
                false => Err(outside(format!("{low:.6}"), format!("{high:.6}"))),
            }
        }
        Kind::OnOffAuto if truth(value).is_some() || value.eq_ignore_ascii_case("auto") => Ok(()),
        Kind::OnOffAuto => Err(wrong("enum").with_detail("Valid values are \"on\", \"off\", and \"auto\".")),
    }
}

/// A beginning of true, false, yes or no, and the others in full.
fn truth(value: &str) -> Option<bool> {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str| !value.is_empty() && word.starts_with(value.as_str());
    match value.as_str() {
        "1" | "on" => Some(true),
        "0" | "of" | "off" => Some(false),
        _ if begins("true") || begins("yes") => Some(true),
        _ if begins("false") || begins("no") => Some(false),
        _ => None,
    }
}

pub fn check_tablespace(name: &str) -> Result<(), SqlError> {
    match name {
        "pg_default" => Ok(()),
        "pg_global" => Err(SqlError::new("22023", "only shared relations can be placed in pg_global tablespace")),
        _ => Err(SqlError::new("42704", format!("tablespace \"{name}\" does not exist"))),
    }
}

pub fn check_method(name: &str) -> Result<(), SqlError> {
    match name {
        "heap" => Ok(()),
        "btree" | "hash" | "gist" | "gin" | "spgist" | "brin" => {
            Err(SqlError::new("42809", format!("access method \"{name}\" is not of type TABLE")))
        }
        _ => Err(SqlError::new("42704", format!("access method \"{name}\" does not exist"))),
    }
}

pub fn check_compression(name: &str) -> Result<(), SqlError> {
    match name {
        "pglz" | "lz4" | "default" => Ok(()),
        _ => Err(invalid(format!("invalid compression method \"{name}\""))),
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new("22023", message)
}

/// The options of CREATE TABLE.
pub fn of_table(options: &CreateTableOptions) -> Result<Vec<Stored>, SqlError> {
    match options {
        CreateTableOptions::None => Ok(Vec::new()),
        CreateTableOptions::With(list) => list.iter().map(of_option).collect(),
        other => Err(SqlError::unsupported(format!("{other}"))),
    }
}

fn of_option(option: &SqlOption) -> Result<Stored, SqlError> {
    let stored = match option {
        SqlOption::KeyValue { key, value } => stored_as(key, value),
        _ => None,
    };
    stored.ok_or_else(|| SqlError::unsupported(format!("the storage parameter {option}")))
}

/// Those of CREATE INDEX.
pub fn of_index(options: &[Expr]) -> Result<Vec<Stored>, SqlError> {
    let stored = |expr: &Expr| match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match left.as_ref() {
            Expr::Identifier(key) => stored_as(key, right),
            _ => None,
        },
        _ => None,
    };
    let unknown = |expr: &Expr| SqlError::unsupported(format!("the storage parameter {expr}"));
    options.iter().map(|expr| stored(expr).ok_or_else(|| unknown(expr))).collect()
}

fn stored_as(key: &Ident, value: &Expr) -> Option<Stored> {
    match value {
        Expr::Value(value) => stored_of(&key.value, &value.value.clone().into_string()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(storage: Storage, name: &str, value: Option<&str>) -> Result<(), String> {
        let option = StorageOption::of(name.to_owned(), value.map(str::to_owned));
        check(&[option], storage).map_err(|error| error.message)
    }

    #[test]
    fn names_and_values_are_those_of_postgresql() {
        assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.0));
        assert_eq!(checked(Storage::Table, "fillfactor", Some("70")), Ok(()));
        assert_eq!(checked(Storage::Table, "toast.autovacuum_enabled", Some("off")), Ok(()));
        assert_eq!(checked(Storage::Table, "autovacuum_enabled", None), Ok(()));
        assert!(checked(Storage::Index(IndexKind::Hash), "fillfactor", Some("'70'")).is_err());
        for (storage, name, value, message) in [
            (Storage::Table, "fillfactor", "5", "value 5 out of bounds for option \"fillfactor\""),
            (Storage::Table, "fillfactor", "abc", "invalid value for integer option \"fillfactor\": abc"),
            (Storage::Table, "toast.fillfactor", "50", "unrecognized parameter \"fillfactor\""),
            (Storage::Table, "bread.fillfactor", "50", "unrecognized parameter namespace \"bread\""),
            (Storage::Table, "deduplicate_items", "on", "unrecognized parameter \"deduplicate_items\""),
            (
                Storage::Index(IndexKind::Hash),
                "deduplicate_items",
                "on",
                "unrecognized parameter \"deduplicate_items\"",
            ),
            (Storage::Column, "n_distinct", "-2", "value -2 out of bounds for option \"n_distinct\""),
            (Storage::Table, "oids", "true", "tables declared WITH OIDS are not supported"),
        ] {
            assert_eq!(checked(storage, name, Some(value)), Err(message.to_owned()));
        }
    }
}
