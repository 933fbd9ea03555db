//! What a transaction takes with it when it ends or goes back, and what it must not see of others' definitions.

use crate::world::World;
use freshet_db::{Database, Options};

const DEFERRED: &str = "CREATE TABLE p (id int PRIMARY KEY);
    CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO p VALUES (1)";

/// What is owed does not outlive what it was owed for: COMMIT once waited for ever, and its worker with it.
#[test]
fn a_debt_that_was_undone_does_not_meet_a_new_schema() {
    let world = World::new(DEFERRED);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("SAVEPOINT s");
    a.ok("DELETE FROM p");
    a.ok("ROLLBACK TO s");
    b.ok("ALTER TABLE p ADD COLUMN x int");
    a.ok("COMMIT");
    assert_eq!(a.number("SELECT count(*) FROM p"), Some(1));
}

/// In the newest schema such a table has none of the rows that the snapshot sees: it once looked empty.
#[test]
fn whoever_keeps_its_snapshot_is_told_of_a_rewritten_table() {
    for change in ["TRUNCATE t", "ALTER TABLE t ALTER COLUMN v TYPE bigint"] {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            for read in
                ["SELECT sum(v) FROM t", "SELECT v FROM seen", "UPDATE t SET v = 1 WHERE id = 1", "COPY t TO STDOUT"]
            {
                let world = World::new(
                    "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20);
                     CREATE TABLE other (id int); CREATE TABLE kept (v int); INSERT INTO kept VALUES (3)",
                );
                let (mut a, mut b) = (world.client(), world.client());
                if read.contains("seen") {
                    if change.starts_with("ALTER") {
                        continue;
                    }
                    b.ok("CREATE VIEW seen AS SELECT v FROM t");
                }
                a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
                assert_eq!(a.number("SELECT count(*) FROM t"), Some(2), "{change}");
                b.ok(change);
                assert_eq!(a.number("SELECT count(*) FROM other"), Some(0), "what was not touched is there");
                assert_eq!(a.fails(read), "40001", "{level}: {change}, {read}");
                a.ok("ROLLBACK");
                // What leaves the rows where they are is no reason.
                a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
                a.ok("SELECT count(*) FROM other");
                b.ok("ALTER TABLE kept ADD COLUMN more int DEFAULT 7");
                b.ok("CREATE INDEX ON kept (v)");
                assert_eq!(a.number("SELECT sum(v) FROM kept"), Some(3));
                a.ok("ROLLBACK");
            }
        }
    }
}

/// A unique index ends a search at the first row of a key, and a column without nulls is counted by rows: what holds of the rows of now was once
/// believed of the snapshot's, too.
#[test]
fn whoever_keeps_its_snapshot_is_told_of_what_was_promised_since() {
    for (mend, promise, read) in [
        ("DELETE FROM t WHERE id = 4", "CREATE UNIQUE INDEX ON t (a)", "SELECT count(*) FROM t WHERE a = 1"),
        ("DELETE FROM t WHERE id = 4", "ALTER TABLE t ADD UNIQUE (a)", "UPDATE t SET b = 77 WHERE a = 1"),
        ("UPDATE t SET b = 0 WHERE b IS NULL", "ALTER TABLE t ALTER b SET NOT NULL", "SELECT count(b) FROM t"),
    ] {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let world = World::new(
                "CREATE TABLE t (id int PRIMARY KEY, a int, b int);
                 INSERT INTO t VALUES (1, 1, 1), (2, 2, NULL), (4, 1, 9); CREATE TABLE other (id int)",
            );
            let (mut a, mut b) = (world.client(), world.client());
            a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
            a.ok("SELECT count(*) FROM other");
            b.ok(mend);
            assert_eq!(a.number("SELECT count(*) FROM t"), Some(3), "rows may change");
            b.ok(promise);
            assert_eq!(a.fails(read), "40001", "{level}: {promise}, {read}");
            a.ok("ROLLBACK");
            // What it promises itself is no reason.
            a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
            a.ok("ALTER TABLE t ADD UNIQUE (b)");
            assert_eq!(a.number("SELECT count(*) FROM t WHERE b = 1"), Some(1));
            a.ok("ROLLBACK");
        }
    }
}

/// It was once seen of the newest rows only, and then believed of the snapshot's.
#[test]
fn what_a_transaction_promises_holds_of_its_own_snapshot() {
    for (others, own, promise) in [
        ("DELETE FROM t WHERE id = 4", "DELETE FROM t WHERE id = 4", "CREATE UNIQUE INDEX ON t (a)"),
        ("UPDATE t SET a = 5 WHERE id = 4", "UPDATE t SET a = 5 WHERE id = 4", "ALTER TABLE t ADD UNIQUE (a)"),
        ("DELETE FROM t WHERE id = 2", "DELETE FROM t WHERE id = 2", "ALTER TABLE t ALTER b SET NOT NULL"),
        ("UPDATE t SET b = 0 WHERE id = 2", "UPDATE t SET b = 0 WHERE id = 2", "ALTER TABLE t ADD PRIMARY KEY (b)"),
    ] {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let world = World::new(
                "CREATE TABLE t (id int, a int, b int); INSERT INTO t VALUES (1, 1, 1), (2, 2, NULL), (4, 1, 9);
                 CREATE TABLE other (id int)",
            );
            let (mut a, mut b) = (world.client(), world.client());
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            // Its own changes it sees.
            a.ok(&begin);
            a.ok(own);
            a.ok(promise);
            a.ok("ROLLBACK");
            a.ok(&begin);
            a.ok("SELECT count(*) FROM other");
            b.ok(others);
            assert_eq!(a.fails(promise), "40001", "{level}: {promise}");
            a.ok("ROLLBACK");
            // What others added, or changed of other columns, is no reason.
            a.ok(&begin);
            a.ok("SELECT count(*) FROM other");
            b.ok("INSERT INTO t VALUES (7, 7, 7)");
            b.ok("UPDATE t SET id = 10 WHERE id = 1");
            a.ok(promise);
            assert_eq!(a.number("SELECT id FROM t WHERE a = 1"), Some(1), "{level}: {promise}");
            a.ok("ROLLBACK");
        }
    }
}

/// A new column was once not there for the first statement that named it.
#[test]
fn a_transaction_plans_by_what_others_have_committed() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let world = World::new(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int); INSERT INTO other VALUES (1)",
        );
        let (mut a, mut b) = (world.client(), world.client());
        a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(a.number("SELECT count(*) FROM t"), Some(0));
        b.ok("ALTER TABLE other ADD COLUMN x int DEFAULT 7");
        b.ok("CREATE TABLE late (id int)");
        assert_eq!(a.number("SELECT x FROM other"), Some(7), "{level}");
        assert_eq!(a.number("SELECT count(*) FROM late"), Some(0), "{level}");
        a.ok("ALTER TABLE t ADD COLUMN own int");
        b.ok("INSERT INTO late VALUES (1)");
        assert_eq!(a.number("SELECT count(own) FROM t"), Some(0), "{level}");
        a.ok("ROLLBACK");
    }
}

/// Read-only it remembered nothing of what it read; back at the savepoint it may write, and nobody could say whether that is serializable.
#[test]
fn a_serializable_transaction_has_one_snapshot() {
    let world = World::new("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)");
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    a.ok("SAVEPOINT s");
    a.ok("SET TRANSACTION READ ONLY");
    assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(0));
    b.ok("UPDATE t SET v = 1 WHERE id = 1");
    a.ok("ROLLBACK TO s");
    assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(0));
    let written = a.run("UPDATE t SET v = 5 WHERE id = 2").map_err(|e| e.sqlstate).map(|_| ());
    let ended = written.and_then(|()| a.run("COMMIT").map_err(|e| e.sqlstate).map(|_| ()));
    assert_eq!(ended, Err("40001"));
}

fn embedded() -> (Database, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let db = Database::open(Options::small(dir.path())).expect("the database opens");
    db.session().and_then(|mut s| s.run(DEFERRED)).expect("the setup runs");
    (db, dir)
}

#[test]
fn a_commit_that_is_refused_leaves_nothing_to_the_next_statement() {
    let (db, _dir) = embedded();
    let mut session = db.session().expect("a session");
    let [savepoint, orphan] =
        ["SAVEPOINT s", "INSERT INTO c VALUES (1, 99)"].map(|sql| session.prepare(sql).expect("it is valid"));
    let mut transaction = session.begin().expect("a transaction");
    transaction.execute(&savepoint, &[]).expect("a savepoint");
    transaction.execute(&orphan, &[]).expect("it is looked at later");
    assert_eq!(transaction.commit().expect_err("there is no parent").sqlstate, "23503");
    session.run("INSERT INTO p VALUES (2)").expect("a transaction of its own");
    let count = session.prepare("SELECT count(*) FROM c").expect("it is valid");
    assert_eq!(session.query(&count, &[]).expect("it runs").i64(0, 0), Some(0));
}

#[test]
fn a_transaction_that_is_dropped_leaves_what_is_the_sessions() {
    let (db, _dir) = embedded();
    let mut session = db.session().expect("a session");
    session.run("CREATE TEMPORARY TABLE mine (id int); INSERT INTO mine VALUES (1)").expect("it runs");
    session.run("SELECT pg_advisory_lock(7)").expect("it is free");
    let wrong = session.prepare("INSERT INTO p VALUES (1)").expect("it is valid");
    drop(session.begin().expect("a transaction"));
    let mut failing = session.begin().expect("a transaction");
    assert!(failing.execute(&wrong, &[]).is_err());
    assert_eq!(failing.commit().expect_err("it failed").sqlstate, "25P02");
    let count = session.prepare("SELECT count(*) FROM mine").expect("the table is there");
    assert_eq!(session.query(&count, &[]).expect("it runs").i64(0, 0), Some(1));
    let mut other = db.session().expect("a session");
    let free = other.prepare("SELECT pg_try_advisory_lock(7)").expect("it is valid");
    assert_eq!(other.query(&free, &[]).expect("it runs").bool(0, 0), Some(false));
}
