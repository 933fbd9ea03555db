//! Runs every file of `slt/` over the embedded API, each on a database of its own.
//!
//! `connection NAME` gives a record its own session; errors are matched against `SQLSTATE: message`.

use freshet_db::{Database, Options, Session, SqlError, Type, Value};
use sqllogictest::{DBOutput, DefaultColumnType, Runner};
use std::path::{Path, PathBuf};

struct Embedded {
    session: Session,
    /// The road that every statement which can take it is made to take.
    road: &'static str,
}

/// What only the compiled road serves, or what tells the roads apart.
fn shows_its_road(sql: &str) -> bool {
    let sql = sql.to_ascii_uppercase();
    let of_one_road = ["ADVISORY", "VAL("];
    sql.starts_with("EXPLAIN") || of_one_road.iter().any(|word| sql.contains(word))
}

/// An error as the files match it.
#[derive(Debug)]
struct Refused(SqlError);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SqlError { sqlstate, message, detail, position, .. } = &self.0;
        write!(f, "{sqlstate}: {message}")?;
        if let Some(detail) = detail {
            write!(f, " | {detail}")?;
        }
        if let Some(position) = position {
            write!(f, " @ {position}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

impl sqllogictest::DB for Embedded {
    type Error = Refused;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Refused> {
        let road = if shows_its_road(sql) { "auto" } else { self.road };
        self.session.inner().set("freshet.road", road).map_err(Refused)?;
        // As a client of the simple protocol sends it.
        let (statement, count) = self.session.run_text(sql).map_err(Refused)?;
        if statement.columns().is_empty() {
            return Ok(DBOutput::StatementComplete(count));
        }
        let rows = self.session.rows();
        let types = statement.columns().iter().map(|c| column_type(c.ty)).collect();
        let width = statement.columns().len();
        let cells = (0..rows.len()).map(|row| {
            (0..width)
                .map(|column| match rows.get(row, column) {
                    Value::Null => "NULL".to_owned(),
                    _ => match rows.display(row, column).expect("the cell is not null") {
                        text if text.is_empty() => "(empty)".to_owned(),
                        text => text,
                    },
                })
                .collect()
        });
        Ok(DBOutput::Rows { types, rows: cells.collect() })
    }

    fn engine_name(&self) -> &str {
        if cfg!(feature = "query") { "query" } else { "compiled" }
    }
}

fn column_type(ty: Type) -> DefaultColumnType {
    match ty {
        Type::Int2 | Type::Int4 | Type::Int8 => DefaultColumnType::Integer,
        Type::Float4 | Type::Float8 | Type::Decimal { .. } | Type::Numeric { .. } => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    }
}

fn run(name: &str, road: &'static str) {
    run_file(&directory().join(name).with_extension("slt"), road);
}

/// Every file of a folder of `slt/records/`, each on a database of its own.
#[cfg(feature = "query")]
fn run_folder(name: &str, road: &'static str) {
    let folder = directory().join("records").join(name);
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        run_file(&entry.expect("the folder can be read").path(), road);
        files += 1;
    }
    assert!(files > 0, "{name} has records");
}

fn run_file(file: &Path, road: &'static str) {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let db = Database::open(Options::small(dir.path())).expect("the database opens");
    let mut runner = Runner::new(|| async {
        let session = db.session().map_err(Refused)?;
        Ok(Embedded { session, road })
    });
    runner.with_column_validator(sqllogictest::strict_column_validator);
    if let Err(error) = runner.run_file(file) {
        panic!("{}", error.display(false));
    }
}

/// The records where cargo runs this test, not where it was built: build output is shared between clones.
fn directory() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.join("tests/slt")
}

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::run(stringify!($name), "auto");
        })*

        /// The same files with DataFusion for all that it can serve.
        #[cfg(feature = "query")]
        mod on_the_query_road {
            $(#[test]
            fn $name() {
                $crate::run(stringify!($name), "query");
            })*
        }

        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
#[cfg(feature = "query")]
use files;

files!(
    aggregate,
    alter,
    change,
    conflict,
    constraint,
    define,
    explain,
    join,
    locks,
    long_key,
    lookup,
    once,
    savepoint,
    schema,
    select,
    sequence,
    statistics,
    transaction,
    types,
    view
);

/// Files of what only DataFusion serves.
#[cfg(feature = "query")]
mod only_with_query {
    super::files!(queue, query, sets);
}

/// Folders of `slt/records/`: records by area, with PostgreSQL's answers (`scripts/slt check` asks it again).
#[cfg(feature = "query")]
macro_rules! folders {
    ($($name:ident),* $(,)?) => {
        mod records {
            $(#[test]
            fn $name() {
                super::run_folder(stringify!($name), "auto");
            })*
        }

        const FOLDERS: &[&str] = &[$(stringify!($name)),*];
    };
}

#[cfg(feature = "query")]
folders!(
    aggregate, alter, array, cast, catalog, constraint, create, datetime, enums, expression, group, interval, join,
    json, limits, math, matrix, merge, optimizer, order, role, row, series, session, set, string, subquery, view,
    window, with, zone,
);

/// What a role may and may not do, what definitions and sessions keep, and what expressions give, in a build that lacks one of the roads: what
/// needs that is left out.
#[cfg(not(feature = "query"))]
#[test]
fn records_on_the_compiled_road() {
    let mut failures = Vec::new();
    for name in [
        "role/roles",
        "role/grants",
        "role/nobody",
        "role/usage",
        "role/reading",
        "role/local_authorization",
        "alter/retyped",
        "array/trim_fill",
        "cast/by_name",
        "constraint/duplicates",
        "create/owned_types",
        "create/public_schema",
        "create/session_literals",
        "create/storage_options",
        "create/temporary_kinds",
        "create/value_sources",
        "datetime/offsets",
        "enums/alter",
        "enums/define",
        "enums/use",
        "expression/collated",
        "expression/environment",
        "interval/fields_once",
        "json/built_keys",
        "math/templates",
        "session/deferrable",
        "session/kept_by_name",
        "session/read_only_permanent",
        "session/read_only_temporary",
        "session/set_config",
        "session/set_lists",
        "session/transaction_number",
        "session/void",
        "string/one_byte",
        "string/regexp_parts",
        "string/similar_parts",
    ] {
        let file = directory().join("records").join(name).with_extension("slt");
        let dir = tempfile::tempdir().expect("a directory for the database");
        let db = Database::open(Options::small(dir.path())).expect("the database opens");
        let mut runner = Runner::new(|| async {
            let session = db.session().map_err(Refused)?;
            Ok(Embedded { session, road: "auto" })
        });
        runner.with_column_validator(sqllogictest::strict_column_validator);
        for record in sqllogictest::parse_file::<DefaultColumnType>(&file).expect("records") {
            if let Err(error) = runner.run(record) {
                let error = error.display(false).to_string();
                if !error.contains("which this build lacks") {
                    failures.push(error);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[cfg(feature = "query")]
#[test]
fn every_folder_is_named() {
    for entry in std::fs::read_dir(directory().join("records")).expect("the records are there") {
        let name = entry.expect("the directory can be read").file_name().into_string().expect("names are plain");
        assert!(FOLDERS.contains(&name.as_str()), "the records of {name} are run by no test");
    }
}

#[test]
fn every_file_is_named() {
    for entry in std::fs::read_dir(directory()).expect("the files are there") {
        let path = entry.expect("the directory can be read").path();
        let name = path.file_stem().and_then(|n| n.to_str()).expect("names are plain");
        if path.is_dir() {
            continue;
        }
        #[cfg(feature = "query")]
        let is_named = NAMES.contains(&name) || only_with_query::NAMES.contains(&name);
        #[cfg(not(feature = "query"))]
        let is_named = NAMES.contains(&name) || ["queue", "query", "sets"].contains(&name);
        assert!(is_named, "{name}.slt is run by no test");
    }
}
