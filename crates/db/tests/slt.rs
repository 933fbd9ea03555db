//! Runs every file of `slt/` over the embedded API, each on a database of its own.
//!
//! `connection NAME` gives a record its own session; errors are matched against `SQLSTATE: message`.
//!
//! Where a file takes the road that the router chooses, every query of it is first made to take each road that can take it, and all must give the
//! same: types, rows and their order where the query has one, or the SQLSTATE. A road that cannot says 0A000; what is left out by its text is told
//! by [`shows_its_road`] and [`changes_by_being_asked`].

use freshet_db::sql::TransactionStatus;
use freshet_db::{Database, Options, Session, SqlError, Type, Value};
use sqllogictest::{ColumnType, DBOutput, DefaultColumnType, Runner};
use std::cell::Cell;
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

/// A query whose answer depends on how often or when it is asked, or which leaves something behind.
fn changes_by_being_asked(sql: &str) -> bool {
    const WORDS: &[&str] = &[
        // Sequences, settings and locks.
        "NEXTVAL",
        "SETVAL",
        "SET_CONFIG",
        "INTO",
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "NOWAIT",
        "SKIP",
        // Time.
        "CLOCK_TIMESTAMP",
        "STATEMENT_TIMESTAMP",
        "TRANSACTION_TIMESTAMP",
        "CURRENT_TIMESTAMP",
        "LOCALTIMESTAMP",
        "TIMEOFDAY",
        "NOW",
        "CURRENT_TIME",
        "LOCALTIME",
        "PG_SLEEP",
    ];
    // Chance, and what the server counts.
    const PARTS: &[&str] =
        &["RANDOM", "PG_STAT", "PG_LOCKS", "PG_PREPARED", "PG_CURSORS", "XACT", "TXID", "XMIN", "SNAPSHOT"];
    let sql = sql.to_ascii_uppercase();
    // Every other piece is within quotation marks.
    let mut words = sql.split('\'').step_by(2).flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| WORDS.contains(&word)) || PARTS.iter().any(|part| sql.contains(part))
}

fn is_query(sql: &str) -> bool {
    let first = sql.trim_start_matches(|c: char| c == '(' || c.is_whitespace());
    let first = first.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    ["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|word| first.eq_ignore_ascii_case(word))
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

type Answer = Result<DBOutput<DefaultColumnType>, Refused>;

thread_local! {
    /// How many answers of one road were held against the router's: a test has a thread of its own.
    static COMPARED: Cell<usize> = const { Cell::new(0) };
}

/// What of an answer must be the same on each road.
#[derive(Debug, PartialEq)]
enum Seen {
    Rows(String, Vec<Vec<String>>),
    Done(u64),
    Error(&'static str),
}

impl Seen {
    fn of(sql: &str, answer: &Answer) -> Seen {
        match answer {
            Err(error) => Seen::Error(error.0.sqlstate),
            Ok(DBOutput::StatementComplete(count)) => Seen::Done(*count),
            Ok(DBOutput::Rows { types, rows }) => {
                let mut rows = rows.clone();
                if !sql.to_ascii_uppercase().contains("ORDER BY") {
                    rows.sort();
                }
                Seen::Rows(types.iter().map(|ty| ty.to_char()).collect(), rows)
            }
            Ok(_) => unreachable!("it gives rows or none"),
        }
    }
}

impl Embedded {
    /// What a query gives on each of the roads that can take it; within a transaction nothing of it stays.
    fn on_each_road(&mut self, sql: &str) -> Vec<(&'static str, Answer)> {
        let status = self.session.status();
        let is_asked = self.road == "auto" && is_query(sql) && !shows_its_road(sql) && !changes_by_being_asked(sql);
        if !is_asked || status == TransactionStatus::Failed {
            return Vec::new();
        }
        let within = status == TransactionStatus::Open;
        let mut answers = Vec::new();
        for road in ["compiled", "query"] {
            if within {
                self.session.run("SAVEPOINT each_road").expect("a savepoint in a transaction");
            }
            let answer = self.run_on(road, sql);
            if within {
                self.session.run("ROLLBACK TO each_road; RELEASE each_road").expect("back to the savepoint");
            }
            if !matches!(&answer, Err(error) if error.0.sqlstate == "0A000") {
                COMPARED.set(COMPARED.get() + 1);
                answers.push((road, answer));
            }
        }
        answers
    }

    fn run_on(&mut self, road: &str, sql: &str) -> Answer {
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
}

impl sqllogictest::DB for Embedded {
    type Error = Refused;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Answer {
        let forced = self.on_each_road(sql);
        let answer = self.run_on(if shows_its_road(sql) { "auto" } else { self.road }, sql);
        for (road, other) in forced {
            let (expected, found) = (Seen::of(sql, &answer), Seen::of(sql, &other));
            assert_eq!(found, expected, "on the road {road}, and as the router has it: {sql}");
        }
        answer
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
    aggregate, alter, array, cast, catalog, constraint, copy, create, datetime, enums, expression, group, interval,
    join, json, limits, math, matrix, merge, name, network, optimizer, order, role, row, series, session, set, string,
    subquery, view, window, with, zone,
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
        "alter/types_together",
        "array/trim_fill",
        "cast/by_name",
        "catalog/usage",
        "constraint/duplicates",
        "constraint/include",
        "create/on_commit_references",
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
        "expression/any_pattern",
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

/// That the records of a folder pass says little where no road but the router's could take any of them.
#[test]
fn queries_are_asked_on_each_road() {
    run("select", "auto");
    let roads = if cfg!(feature = "query") { 2 } else { 1 };
    assert!(COMPARED.get() >= 40 * roads, "{} on {roads} roads", COMPARED.get());
}

/// An answer that differs is seen: in its rows, in their order if there is one, in its types and in its SQLSTATE.
#[test]
fn another_answer_is_another() {
    let rows = |letter: char, rows: &[&str]| {
        let rows = rows.iter().map(|row| vec![(*row).to_owned()]).collect();
        Ok(DBOutput::Rows { types: vec![DefaultColumnType::from_char(letter).expect("a type")], rows })
    };
    let refused = |sqlstate| Err(Refused(SqlError::new(sqlstate, "no")));
    let answers =
        [rows('I', &["1", "2"]), rows('I', &["2", "2"]), rows('T', &["1", "2"]), refused("22012"), refused("22003")];
    for (i, one) in answers.iter().enumerate() {
        for (j, other) in answers.iter().enumerate() {
            assert_eq!(Seen::of("SELECT", one) == Seen::of("SELECT", other), i == j);
        }
    }
    let turned = rows('I', &["2", "1"]);
    assert_eq!(Seen::of("SELECT a", &answers[0]), Seen::of("SELECT a", &turned));
    assert_ne!(Seen::of("SELECT a ORDER BY a", &answers[0]), Seen::of("SELECT a ORDER BY a", &turned));
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
