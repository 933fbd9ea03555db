//! What a program may get wrong: a bulk load of what it does not check, a reader that is interrupted, numbers out of bounds, another's ticket.

use freshet_db::{Appender, Database, Datum, IntoDatum, Options, Session, SqlError, Ticket, Value};
use freshet_engine::ids::Cts;
use std::io::{ErrorKind, Read};

fn open() -> (tempfile::TempDir, Database, Session) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Database::open(Options::small(directory.path())).expect("the database opens");
    let session = db.session().expect("a session");
    (directory, db, session)
}

fn loaded(db: &Database, table: &str, rows: &[Vec<Datum>]) -> Result<u64, SqlError> {
    let load = db.bulk_load(table)?;
    let mut appender: Appender = load.appender()?;
    rows.iter().try_for_each(|row| appender.append(row))?;
    appender.finish()?;
    load.commit()
}

fn shown(session: &mut Session, sql: &str) -> Vec<String> {
    let statement = session.prepare(sql).expect(sql);
    let rows = session.query(&statement, &[]).expect(sql);
    let cell = |row, column| match rows.get(row, column) {
        Value::Null => "NULL".to_owned(),
        _ => rows.display(row, column).expect("not null"),
    };
    let columns = rows.columns().len();
    (0..rows.len()).map(|row| (0..columns).map(|c| cell(row, c)).collect::<Vec<_>>().join("|")).collect()
}

/// Values are stored in their types' own forms, as an INSERT stores them.
#[test]
fn a_bulk_load_reads_texts_as_their_types() {
    let (_directory, db, mut session) = open();
    let ty = ["jsonb", "json", "interval", "int[]", "text[]", "int2vector", "numeric", "date", "name", "varchar(3)"];
    let good = ["{\"k\": 1}", "{\"k\":1}", "1 day", "{1,2}", "{a,b}", "1 2", "1.50", "2026-11-20", "n", "abc"];
    let bad = ["{k}", "{k}", "one day", "{1,x}", "{a", "1 x", "1.5x", "2026-13-20", "n\0", "abcd"];
    for ((ty, good), bad) in ty.iter().zip(good).zip(bad) {
        session.run(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t (id int, v {ty})")).expect(ty);
        let rows = vec![vec![1.into_datum(), good.into_datum()], vec![2.into_datum(), Datum::Null]];
        assert_eq!(loaded(&db, "t", &rows), Ok(2), "{ty}");
        session.run(&format!("INSERT INTO t VALUES (3, '{good}')")).expect(ty);
        let cells = shown(&mut session, "SELECT v FROM t ORDER BY id");
        assert_eq!((&cells[0], cells[1].as_str()), (&cells[2], "NULL"), "{ty}");
        session.run("TRUNCATE t").expect(ty);
        let load = db.bulk_load("t").expect("it is empty");
        let mut appender = load.appender().expect("an appender");
        let refused = appender.append(&[1.into_datum(), bad.into_datum()]);
        assert!(refused.is_err_and(|error| error.sqlstate.starts_with("22")), "{ty}: {bad:?}");
    }
}

/// Whatever an INSERT would check or compute, and a load does not, is refused before the first row.
#[test]
fn a_bulk_load_refuses_what_it_would_not_check() {
    let (_directory, db, mut session) = open();
    session
        .run(
            "CREATE TABLE parent (a int PRIMARY KEY);
             CREATE TABLE child (a int REFERENCES parent);
             CREATE TABLE late (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             CREATE TABLE positive (a int CHECK (a > 0));
             CREATE TABLE doubled (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
             CREATE TABLE numbered (a int GENERATED ALWAYS AS IDENTITY);
             CREATE TABLE lowered (a int, b text);
             CREATE UNIQUE INDEX ON lowered ((a % 10));
             CREATE TABLE partial (a int, b text);
             CREATE UNIQUE INDEX ON partial (a) WHERE b IS NULL",
        )
        .expect("tables");
    for table in ["child", "late", "positive", "doubled", "numbered", "lowered", "partial"] {
        let error = db.bulk_load(table).err().unwrap_or_else(|| panic!("{table} is loaded"));
        assert_eq!(error.sqlstate, "0A000", "{table}: {error:?}");
        // It left nothing behind that keeps others out.
        session.run(&format!("TRUNCATE {table}")).expect(table);
    }
    assert_eq!(loaded(&db, "parent", &[vec![1.into_datum()]]), Ok(1));
    session.run("INSERT INTO child VALUES (1)").expect("its parent is there");
}

/// Columns are those that an INSERT sees, and the table is named as there.
#[test]
fn a_bulk_load_takes_visible_columns_of_any_schema() {
    let (_directory, db, mut session) = open();
    session
        .run(
            "CREATE SCHEMA sc; CREATE TABLE sc.t (id int PRIMARY KEY, gone text NOT NULL, v text);
             ALTER TABLE sc.t DROP COLUMN gone; CREATE TABLE \"Order\" (id int)",
        )
        .expect("tables");
    assert_eq!(loaded(&db, "SC.t", &[vec![1.into_datum(), "one".into_datum()]]), Ok(1));
    assert_eq!(shown(&mut session, "SELECT * FROM sc.t"), ["1|one"]);
    assert_eq!(loaded(&db, "\"Order\"", &[vec![1.into_datum()]]), Ok(1));
    for (table, state) in [("t", "42P01"), ("nosuch.t", "42P01"), ("a.b.c", "42601"), ("", "42602")] {
        assert_eq!(db.bulk_load(table).err().map(|error| error.sqlstate), Some(state), "{table}");
    }
    session.run("TRUNCATE sc.t").expect("its owner's");
    for row in [vec![1.into_datum()], vec![1.into_datum(), Datum::Null, Datum::Null]] {
        assert_eq!(loaded(&db, "sc.t", &[row]).expect_err("another number of columns").sqlstate, "42601");
    }
}

/// Gives a byte at a time, and says before each that a signal came.
struct Interrupted<'a>(&'a [u8], bool);

impl Read for Interrupted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(ErrorKind::Interrupted.into());
        }
        self.0.read(&mut buffer[..1])
    }
}

#[test]
fn a_reader_that_was_interrupted_is_asked_again() {
    let (_directory, _db, mut session) = open();
    session.run("CREATE TABLE t (id int, v text)").expect("a table");
    assert_eq!(session.copy_in("COPY t FROM STDIN", Interrupted(b"1\tone\n2\ttwo\n", false)), Ok(2));
    assert_eq!(shown(&mut session, "SELECT * FROM t ORDER BY id"), ["1|one", "2|two"]);
}

#[test]
#[should_panic(expected = "column 2 of a result with 2")]
fn a_column_that_is_not_there_is_no_other_rows() {
    let (_directory, _db, mut session) = open();
    session.run("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2), (3, 4)").expect("a table");
    let statement = session.prepare("SELECT a, b FROM t").expect("a query");
    let rows = session.query(&statement, &[]).expect("rows");
    rows.i64(0, 2);
}

#[test]
fn numbers_that_cannot_be_are_refused_in_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |options: Options| Database::open(options).err().expect("refused").to_string();
    for sessions_max in [0, u32::MAX] {
        let why = refused(Options { sessions_max, ..Options::small(directory.path()) });
        assert!(why.starts_with("sessions_max is between 1 and"), "{why}");
    }
    let why = refused(Options { recovery_threads: usize::MAX, ..Options::small(directory.path()) });
    assert!(why.starts_with("recovery_threads is at most"), "{why}");
    let _db = Database::open(Options::small(directory.path())).expect("it opens");
    let why = refused(Options::small(directory.path()));
    assert!(why.ends_with("is in use, by another process or by this one"), "{why}");
}

#[test]
fn nobody_waits_for_a_ticket_that_is_none() {
    let (_directory, db, mut session) = open();
    session.run("CREATE TABLE t (id int)").expect("a table");
    let insert = session.prepare("INSERT INTO t VALUES (1)").expect("an insert");
    let (_, ticket) = session.execute_ticket(&insert, &[]).expect("a row");
    assert_eq!(db.wait(ticket), Ok(()));
    assert_eq!(db.wait(Ticket(Cts(u64::MAX))).expect_err("no commit has it").sqlstate, "22023");
    assert_eq!(db.durable(Ticket(Cts(u64::MAX))).wait().expect_err("no commit has it").sqlstate, "22023");
}
