//! What does a session forget of temporary objects that were undone? What others make next is no business of its own: it once dropped that.

use crate::world::{Client, World};

const SETUP: &str = "CREATE TABLE p (id int PRIMARY KEY);
    CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)";

const WAYS: [&str; 6] =
    ["ROLLBACK", "ROLLBACK TO", "an error", "an error after a savepoint", "a COMMIT that fails", "a client that goes"];

/// Makes something temporary, and undoes it.
fn undo(client: &mut Client, create: &str, way: &str) {
    client.ok("BEGIN");
    if way.contains("TO") || way.contains("savepoint") {
        client.ok("SAVEPOINT s");
    }
    client.ok(create);
    match way {
        "ROLLBACK" => _ = client.ok("ROLLBACK"),
        "ROLLBACK TO" => {
            client.ok("ROLLBACK TO s");
            client.ok("COMMIT");
        }
        "an error" => {
            assert_eq!(client.fails("SELECT 1 / 0"), "22012");
            client.ok("COMMIT");
        }
        "an error after a savepoint" => {
            assert_eq!(client.fails("SELECT 1 / 0"), "22012");
            client.ok("ROLLBACK TO s");
            client.ok("COMMIT");
        }
        "a COMMIT that fails" => {
            client.ok("INSERT INTO c VALUES (1, 99)");
            assert_eq!(client.fails("COMMIT"), "23503");
        }
        _ => client.session.abandon(),
    }
}

#[test]
fn a_commit_leaves_tables_alone_that_are_not_its_sessions() {
    for way in WAYS {
        for action in ["DROP", "DELETE ROWS"] {
            for has_schema in [false, true] {
                let world = World::new(SETUP);
                let (mut a, mut b) = (world.client(), world.client());
                if has_schema {
                    a.ok("CREATE TEMP TABLE warm (a int)");
                }
                undo(&mut a, &format!("CREATE TEMP TABLE q (a int) ON COMMIT {action}"), way);
                for name in ["first", "second", "third"] {
                    let of = if name == "third" { &mut a } else { &mut b };
                    of.ok(&format!("CREATE TABLE {name} (a int)"));
                    of.ok(&format!("INSERT INTO {name} VALUES (1), (2)"));
                }
                a.ok("INSERT INTO p VALUES (1)");
                for name in ["first", "second", "third"] {
                    let count = b.number(&format!("SELECT count(*) FROM {name}"));
                    assert_eq!(count, Some(2), "{way}, ON COMMIT {action}, {has_schema}");
                }
            }
        }
    }
}

/// Not when it closes or discards, not as the home of its next temporary table, and not in its path.
#[test]
fn a_schema_that_others_make_is_no_sessions_own() {
    for way in WAYS {
        let world = World::new(SETUP);
        let (mut a, mut b) = (world.client(), world.client());
        b.ok("CREATE TABLE tt (a int)");
        undo(&mut a, "CREATE TEMP TABLE q (a int)", way);
        for schema in ["important", "more"] {
            b.ok(&format!("CREATE SCHEMA {schema}"));
            b.ok(&format!("CREATE TABLE {schema}.tt (a int)"));
            b.ok(&format!("INSERT INTO {schema}.tt VALUES (1), (2)"));
        }
        a.ok("INSERT INTO tt VALUES (3)");
        assert_eq!(b.number("SELECT count(*) FROM public.tt"), Some(1), "{way}");
        a.ok("CREATE TEMP TABLE mine (a int)");
        let mine = "SELECT count(*) FROM pg_class WHERE relname = 'mine' AND relpersistence = 't'";
        assert_eq!(b.number(mine), Some(1), "{way}");
        a.ok("DISCARD ALL");
        undo(&mut a, "CREATE TEMP TABLE q (a int)", "ROLLBACK");
        b.ok("CREATE SCHEMA later");
        a.session.close();
        for schema in ["important", "more"] {
            assert_eq!(b.number(&format!("SELECT count(*) FROM {schema}.tt")), Some(2), "{way}");
        }
        assert_eq!(b.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'later'"), Some(1), "{way}");
    }
}

#[test]
fn the_value_of_a_sequence_that_was_undone_is_not_the_next_ones() {
    let world = World::new(SETUP);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("CREATE SEQUENCE gone");
    a.ok("SELECT nextval('gone')");
    a.ok("ROLLBACK");
    b.ok("CREATE SEQUENCE fresh START 500");
    assert_eq!(a.fails("SELECT currval('fresh')"), "55000");
}

#[test]
fn what_happens_on_commit_comes_back_with_a_table_whose_drop_was_undone() {
    let world = World::new(SETUP);
    let mut a = world.client();
    a.ok("CREATE TEMP TABLE kept (a int) ON COMMIT DELETE ROWS");
    a.ok("BEGIN");
    a.ok("CREATE TEMP TABLE gone (a int) ON COMMIT DROP");
    a.ok("SAVEPOINT s");
    a.ok("DROP TABLE kept, gone");
    a.ok("ROLLBACK TO s");
    a.ok("INSERT INTO kept VALUES (1)");
    a.ok("COMMIT");
    assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
    assert_eq!(a.fails("SELECT count(*) FROM gone"), "42P01");
    a.ok("BEGIN");
    a.ok("DROP TABLE kept");
    a.ok("ROLLBACK");
    a.ok("INSERT INTO kept VALUES (1)");
    assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
}

#[test]
fn a_temporary_table_is_emptied_on_commit_whoever_defines_something_meanwhile() {
    let world = World::new(SETUP);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("CREATE TEMP TABLE kept (a int PRIMARY KEY, t text) ON COMMIT DELETE ROWS");
    b.ok("BEGIN");
    b.ok("CREATE TABLE undecided (a int)");
    for _ in 0..2 {
        a.ok("BEGIN");
        a.ok("INSERT INTO kept SELECT g, repeat('x', g * 40) FROM generate_series(1, 300) g");
        a.ok("UPDATE kept SET a = -a WHERE a < 100");
        a.ok("DELETE FROM kept WHERE a > 250");
        assert_eq!(a.number("SELECT count(*) FROM kept"), Some(250));
        a.ok("COMMIT");
        assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
    }
    a.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    a.ok("INSERT INTO kept VALUES (1)");
    a.ok("SAVEPOINT s");
    a.ok("INSERT INTO kept VALUES (2)");
    a.ok("ROLLBACK TO s");
    a.ok("COMMIT");
    assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
    b.ok("ROLLBACK");
}

#[test]
fn a_large_temporary_table_is_emptied_on_commit() {
    let world = World::new(SETUP);
    let mut a = world.client();
    a.ok("CREATE TEMP TABLE kept (a int PRIMARY KEY) ON COMMIT DELETE ROWS");
    a.ok("BEGIN");
    a.ok("INSERT INTO kept SELECT g FROM generate_series(1, 5000) g");
    a.ok("COMMIT");
    assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
    a.ok("INSERT INTO kept VALUES (1)");
    assert_eq!(a.number("SELECT count(*) FROM kept"), Some(0));
}
