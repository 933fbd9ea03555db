//! The schema `public`, dropped and made anew: what others see of it, and what a restart leaves.

use crate::world::World;
use freshet_db::{Database, Options};

#[test]
fn a_dropped_public_stays_so_over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory for the database");
    for (number, checkpoint) in [false, true].into_iter().enumerate() {
        let path = dir.path().join(number.to_string());
        let open = || Database::open(Options::small(&path)).expect("the database opens");
        let db = open();
        let mut session = db.session().expect("a session");
        session.run("CREATE TABLE t (id int PRIMARY KEY); DROP SCHEMA public CASCADE").expect("it is dropped");
        if checkpoint {
            db.checkpoint().expect("images are written");
        }
        drop((session, db));
        let db = open();
        let mut session = db.session().expect("a session");
        assert_eq!(session.run("CREATE TABLE t (id int)").expect_err("there is no schema").sqlstate, "3F000");
        session.run("CREATE SCHEMA public; CREATE TABLE t (id int PRIMARY KEY, n int)").expect("it is made anew");
        session.run("INSERT INTO t VALUES (1, 2)").expect("the table is there");
        if checkpoint {
            db.checkpoint().expect("images are written");
        }
        drop((session, db));
        let db = open();
        let mut session = db.session().expect("a session");
        session.run("INSERT INTO public.t VALUES (2, 3)").expect("the table is in it");
        assert_eq!(session.run("INSERT INTO t VALUES (1, 3)").expect_err("the row is there").sqlstate, "23505");
        assert_eq!(session.run("CREATE SCHEMA public").expect_err("there is one").sqlstate, "42P06");
    }
}

/// Plans that others made before mean the new tables; before that they mean none.
#[test]
fn plans_that_are_kept_see_the_new_public() {
    let world = World::new("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let (mut a, mut b) = (world.client(), world.client());
    let count = "SELECT count(*) FROM t";
    assert_eq!(b.number(count), Some(1));
    a.ok("BEGIN");
    a.ok("DROP SCHEMA public CASCADE");
    assert_eq!(a.fails("SELECT count(*) FROM t"), "42P01");
    a.ok("ROLLBACK");
    assert_eq!(b.number(count), Some(1));
    a.ok("DROP SCHEMA public CASCADE");
    assert_eq!(b.fails(count), "42P01");
    a.ok("CREATE SCHEMA public");
    a.ok("CREATE TABLE t (id int PRIMARY KEY)");
    assert_eq!(b.number(count), Some(0));
    b.ok("INSERT INTO t VALUES (7), (8)");
    assert_eq!(a.number(count), Some(2));
    a.ok("CREATE SCHEMA other");
    a.ok("CREATE TABLE other.t (id int)");
    a.ok("SET search_path = other, public");
    assert_eq!(a.number(count), Some(0));
    assert_eq!(b.number(count), Some(2));
}
