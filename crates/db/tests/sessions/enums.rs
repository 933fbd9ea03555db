//! Enums: what others see of a change, and what a restart and a power cut leave.

use crate::world::World;
use freshet_db::{Database, Datum, Options, Session};
use freshet_engine::io::mem::MemIo;
use std::sync::Arc;

const MOODS: &str = "CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE t (id int PRIMARY KEY, m mood NOT NULL DEFAULT 'ok', past mood[]);
    CREATE INDEX t_m ON t (m);
    CREATE VIEW v AS SELECT id FROM t WHERE m = 'happy' OR m = 'sad'";

const CHANGES: &str = "INSERT INTO t VALUES (1, 'sad', '{ok,sad}'), (2, DEFAULT, NULL);
    ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad';
    ALTER TYPE mood RENAME VALUE 'happy' TO 'glad';
    ALTER TYPE mood RENAME TO feeling;
    COMMENT ON TYPE feeling IS 'how it is';
    INSERT INTO t VALUES (3, 'awful', '{glad}'), (4, 'glad', '{}')";

fn set_up(db: &Database) {
    let mut session = db.session().expect("a session");
    session.run("CREATE TYPE gone AS ENUM ('x')").expect("a type");
    session.run(&MOODS.replace("'ok')", "'ok', 'happy')")).expect("the setup runs");
    session.run(CHANGES).expect("the changes run");
    session.run("DROP TYPE gone").expect("it is dropped");
}

fn told(session: &mut Session, sql: &str) -> String {
    let statement = session.prepare(sql).expect(sql);
    let rows = session.query(&statement, &[]).expect(sql);
    (0..rows.len()).map(|row| rows.display(row, 0).unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

fn enums_hold(db: &Database) {
    let mut session = db.session().expect("a session");
    let all = |session: &mut Session| told(session, "SELECT id || m::text FROM t ORDER BY m");
    assert_eq!(all(&mut session), "3awful 1sad 2ok 4glad");
    assert_eq!(told(&mut session, "SELECT past FROM t WHERE m > 'awful' AND m < 'ok'"), "{ok,sad}");
    assert_eq!(told(&mut session, "SELECT id FROM v ORDER BY id"), "1 4");
    assert_eq!(told(&mut session, "SELECT obj_description('feeling'::regtype)"), "how it is");
    session.run("ALTER TYPE feeling ADD VALUE 'fine' AFTER 'ok'").expect("it can be changed");
    session.run("INSERT INTO t (id, m) VALUES (5, 'fine'), (6, DEFAULT)").expect("the new label is one");
    assert_eq!(all(&mut session), "3awful 1sad 2ok 6ok 5fine 4glad");
    assert_eq!(session.run("INSERT INTO t VALUES (7, 'happy')").expect_err("another name").sqlstate, "22P02");
    assert_eq!(session.run("SELECT 'x'::gone").expect_err("it was dropped").sqlstate, "42704");
    assert_eq!(session.run("DROP TYPE feeling").expect_err("columns are of it").sqlstate, "2BP01");
}

#[test]
fn enums_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory for the database");
    for checkpoint in [false, true] {
        let path = dir.path().join(checkpoint.to_string());
        let db = Database::open(Options::small(&path)).expect("the database opens");
        set_up(&db);
        if checkpoint {
            db.checkpoint().expect("images are written");
        }
        drop(db);
        enums_hold(&Database::open(Options::small(&path)).expect("it opens again"));
    }
}

#[test]
fn enums_survive_a_power_cut() {
    for seed in 0..6 {
        let io = MemIo::seeded(seed);
        let db = Database::open_on(Arc::new(io.clone()), Options::small("/db")).expect("the database opens");
        set_up(&db);
        let after = io.crash(seed);
        drop(db);
        enums_hold(&Database::open_on(Arc::new(after), Options::small("/db")).expect("it opens again"));
    }
}

/// Plans that were made before are made anew: a label has another name, and one is in between.
#[test]
fn a_change_of_a_type_counts_for_plans_that_are_kept() {
    let world = World::new(&MOODS.replace("'ok')", "'ok', 'happy')"));
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("INSERT INTO t VALUES (1, 'sad'), (2, 'happy')");
    let above = "SELECT count(*) FROM t WHERE m > 'ok'";
    assert_eq!(b.number(above), Some(1));
    a.ok("ALTER TYPE mood ADD VALUE 'fine' AFTER 'ok'");
    a.ok("UPDATE t SET m = 'fine' WHERE id = 1");
    assert_eq!(b.number(above), Some(2));
    a.ok("ALTER TYPE mood RENAME VALUE 'ok' TO 'okay'");
    assert_eq!(b.fails(above), "22P02");
    // Nobody else sees a type before it is committed.
    a.ok("BEGIN");
    a.ok("CREATE TYPE other AS ENUM ('a')");
    assert_eq!(b.fails("SELECT 'a'::other"), "42704");
    a.ok("ROLLBACK");
    assert_eq!(a.fails("SELECT 'a'::other"), "42704");
}

/// Only labels are values of a parameter: a number that is none must not get into a row.
#[test]
fn parameters_are_labels() {
    let world = World::new(&MOODS.replace("'ok')", "'ok', 'happy')"));
    let mut session = world.db.session().expect("a session");
    let insert = session.prepare("INSERT INTO t (id, m) VALUES ($1, $2)").expect("it is fine SQL");
    let label = |text: &str| Datum::Bytes(text.as_bytes().into());
    session.execute(&insert, &[Datum::Int(1), label("happy")]).expect("a label");
    for (other, state) in [(label("glum"), "22P02"), (Datum::Int(5), "42804")] {
        let refused = session.execute(&insert, &[Datum::Int(2), other]).expect_err("no label");
        assert_eq!(refused.sqlstate, state);
    }
    assert_eq!(told(&mut session, "SELECT m FROM t"), "happy");
}
