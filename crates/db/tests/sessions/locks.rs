//! Two sessions on one thread: each waits where the other holds, and goes on when it lets go. Driven in steps, so every run is the same.

use crate::world::{ACCOUNTS, Client, World};
use freshet_db::sql::{Step, TransactionStatus};
use freshet_db::{IntoDatum, SqlError};
use freshet_engine::ids::Cts;

#[test]
fn an_update_waits_and_builds_on_what_was_committed() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = v + 1 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = v * 2 WHERE id = 1");
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect("it goes on").tag.to_string(), "UPDATE 1");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(22));
}

#[test]
fn an_update_waits_and_builds_on_what_was_before_a_rollback() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = v + 1 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = v * 2 WHERE id = 1");
    a.ok("ROLLBACK");
    b.resume(wait).expect("it goes on");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(20));
}

#[test]
fn a_condition_is_asked_again_of_the_newer_version() {
    for (change, update, tag) in [
        ("UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 0 WHERE v = 10", "UPDATE 0"),
        ("UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 1 AND v = 11", "UPDATE 0"),
        ("UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 1 AND v < 15", "UPDATE 1"),
        // The key itself moved: the row that was found is not the row that was asked for.
        ("UPDATE t SET id = 5 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 1", "UPDATE 0"),
        ("DELETE FROM t WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 1", "UPDATE 0"),
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id <= 2", "DELETE 1"),
        ("UPDATE t SET v = 100 WHERE id = 2", "DELETE FROM t WHERE v < 50", "DELETE 2"),
    ] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        a.ok("BEGIN");
        a.ok(change);
        let started = b.start(update).expect(update);
        a.ok("COMMIT");
        let outcome = match started {
            Step::Wait(wait) => b.resume(wait).expect(update),
            // What the condition does not match in the snapshot is never waited for.
            Step::Done(outcome) => outcome,
            Step::Part(_) => unreachable!("nobody asked for messages"),
        };
        assert_eq!(outcome.tag.to_string(), tag, "{change}; {update}");
    }
}

#[test]
fn repeatable_read_does_not_build_on_what_it_cannot_see() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    b.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(10));
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = 12 WHERE id = 1");
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect_err("the row changed").sqlstate, "40001");
    assert_eq!(b.session.status(), TransactionStatus::Failed);
    assert_eq!(b.fails("SELECT 1"), "25P02");
    assert_eq!(b.ok("COMMIT"), "ROLLBACK");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(11));
}

/// Two who may not both go rely on each other's row, and say so by writing it as it is.
#[test]
fn a_row_that_is_updated_to_what_it_is_has_changed() {
    let updates = [
        "UPDATE t SET v = v WHERE id = 2",
        "UPDATE t SET v = v WHERE id > 1",
        "INSERT INTO t VALUES (2, 0) ON CONFLICT (id) DO UPDATE SET v = t.v",
    ];
    for (relies, isolation) in updates.iter().flat_map(|u| ["REPEATABLE READ", "SERIALIZABLE"].map(|i| (u, i))) {
        for is_alone in [false, true] {
            let world = World::new(ACCOUNTS);
            let (mut a, mut b) = (world.client(), world.client());
            b.ok(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            b.ok("SELECT v FROM t WHERE id = 1");
            if !is_alone {
                a.ok(&format!("BEGIN ISOLATION LEVEL {isolation}"));
                a.ok("SELECT v FROM t WHERE id = 2");
            }
            a.ok(relies);
            if !is_alone {
                a.ok("UPDATE t SET v = 0 WHERE id = 1");
                a.ok("COMMIT");
            }
            assert_eq!(b.fails("UPDATE t SET v = 0 WHERE id = 2"), "40001", "{relies}, {isolation}, alone: {is_alone}");
        }
    }
}

#[test]
fn who_closes_a_circle_of_waits_is_refused() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    b.ok("BEGIN");
    a.ok("UPDATE t SET v = 1 WHERE id = 1");
    b.ok("UPDATE t SET v = 2 WHERE id = 2");
    let wait = a.waits("UPDATE t SET v = 1 WHERE id = 2");
    assert_eq!(b.fails("UPDATE t SET v = 2 WHERE id = 1"), "40P01");
    // The failed transaction holds nothing any more.
    assert_eq!(a.resume(wait).expect("it goes on").tag.to_string(), "UPDATE 1");
    a.ok("COMMIT");
    b.ok("ROLLBACK");
    assert_eq!(a.number("SELECT sum(v) FROM t WHERE id <= 2"), Some(2));
}

#[test]
fn an_insert_waits_for_the_one_that_has_its_key() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("INSERT INTO t VALUES (7, 70)");
    let wait = b.waits("INSERT INTO t VALUES (6, 60), (7, 71)");
    a.ok("ROLLBACK");
    assert_eq!(b.resume(wait).expect("the key is free").tag.to_string(), "INSERT 0 2");
    assert_eq!(b.number("SELECT count(*) FROM t"), Some(5));

    a.ok("BEGIN");
    a.ok("INSERT INTO t VALUES (8, 80)");
    let wait = b.waits("INSERT INTO t VALUES (8, 81)");
    a.ok("COMMIT");
    let error = b.resume(wait).expect_err("the key is taken");
    assert_eq!((error.sqlstate, error.detail.as_deref()), ("23505", Some("Key (id)=(8) already exists.")));
}

#[test]
fn a_locking_read_gives_the_newest_version() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    b.ok("BEGIN");
    let wait = b.waits("SELECT v FROM t WHERE id = 1 FOR UPDATE");
    a.ok("COMMIT");
    b.resume(wait).expect("it goes on");
    assert_eq!(b.rows.i64(0, 0), Some(11));
    let wait = a.waits("DELETE FROM t WHERE id = 1");
    b.ok("COMMIT");
    assert_eq!(a.resume(wait).expect("it goes on").tag.to_string(), "DELETE 1");
}

#[test]
fn a_cancelled_wait_leaves_the_queue() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = 12 WHERE id = 1");
    let last = c.waits("UPDATE t SET v = v + 2 WHERE id = 1");
    drop(wait);
    let error = b.session.cancel(SqlError::new("57014", "canceling statement due to user request"));
    assert_eq!(error.sqlstate, "57014");
    assert_eq!(b.session.status(), TransactionStatus::Idle);
    a.ok("COMMIT");
    c.resume(last).expect("it goes on");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(13));
}

#[test]
fn a_closed_session_lets_go_of_its_locks() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = v + 1 WHERE id = 1");
    a.session.close();
    b.resume(wait).expect("it goes on");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(11));
}

#[test]
fn a_prepared_statement_follows_the_schema() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    let statement = a.session.prepare("SELECT v FROM t WHERE v = $1", &[]).expect("it prepares");
    let run = |a: &mut Client, v: i64| -> Result<usize, SqlError> {
        match a.session.execute(&statement, &[v.into_datum()], &mut a.rows)? {
            Step::Done(_) => Ok(a.rows.len()),
            Step::Wait(_) | Step::Part(_) => panic!("a read waits"),
        }
    };
    assert_eq!(run(&mut a, 10).expect("a scan"), 1);
    b.ok("CREATE INDEX t_v ON t (v)");
    assert_eq!(run(&mut a, 20).expect("by the index"), 1);
    b.ok("DROP INDEX t_v");
    assert_eq!(run(&mut a, 30).expect("a scan again"), 1);
    b.ok("DROP TABLE t");
    assert_eq!(run(&mut a, 10).expect_err("no table").sqlstate, "42P01");
    b.ok("CREATE TABLE t (id int PRIMARY KEY, v int, more text)");
    assert_eq!(run(&mut a, 10).expect("an empty table"), 0);
    b.ok("DROP TABLE t");
    b.ok("CREATE TABLE t (id int PRIMARY KEY, v text)");
    assert_eq!(run(&mut a, 10).expect_err("its parameter stays an integer").sqlstate, "42883");
}

#[test]
fn ddl_waits_for_writers_of_its_table() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("INSERT INTO t VALUES (9, 90)");
    let wait = b.waits("CREATE INDEX t_v ON t (v)");
    a.ok("COMMIT");
    b.resume(wait).expect("it goes on");
    assert_eq!(b.number("SELECT id FROM t WHERE v = 90"), Some(9));
}

/// TRUNCATE and what writes a table anew wait for nobody who reads; a snapshot from before does not find the table empty.
#[test]
fn an_old_snapshot_is_told_of_a_table_that_was_written_anew() {
    for ddl in ["TRUNCATE t", "ALTER TABLE t ALTER v TYPE text", "ALTER TABLE t ADD COLUMN s serial"] {
        let world = World::new(
            "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE other (id int); CREATE VIEW seen AS SELECT id FROM t;
            INSERT INTO t VALUES (1, 1), (2, 2)",
        );
        let (mut a, mut b) = (world.client(), world.client());
        for query in ["SELECT count(*) FROM t", "SELECT count(*) FROM seen", "DELETE FROM t WHERE id = 1"] {
            a.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
            assert_eq!(a.number("SELECT count(*) FROM other"), Some(0));
            b.ok(ddl.replace("COLUMN s", "COLUMN IF NOT EXISTS s").as_str());
            assert_eq!(a.number("SELECT count(*) FROM other"), Some(0), "other tables are as they were");
            assert_eq!(a.run(query).map(|o| o.tag.to_string()).map_err(|e| e.sqlstate), Err("40001"), "{ddl}: {query}");
            a.ok("ROLLBACK");
            if ddl.starts_with("ALTER") {
                break;
            }
        }
        a.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
        a.ok("TRUNCATE t");
        assert_eq!(a.number("SELECT count(*) FROM t"), Some(0), "its own change is no surprise");
        a.ok("COMMIT");
    }
}

#[test]
fn several_statements_are_one_transaction_unless_they_say_otherwise() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.session.begin_implicit();
    a.ok("UPDATE t SET v = 0 WHERE id = 1");
    a.ok("UPDATE t SET v = 0 WHERE id = 2");
    assert_eq!(b.number("SELECT sum(v) FROM t"), Some(60));
    match a.session.commit_implicit() {
        Ok(Step::Done(outcome)) => a.answered(outcome),
        _ => panic!("the commit waits or fails"),
    };
    assert_eq!(b.number("SELECT sum(v) FROM t"), Some(30));

    a.session.begin_implicit();
    a.ok("UPDATE t SET v = 1 WHERE id = 1");
    assert_eq!(a.fails("SELECT 1 / 0"), "22012");
    assert_eq!(a.session.status(), TransactionStatus::Idle);
    assert!(matches!(a.session.commit_implicit(), Ok(Step::Done(_))));
    assert_eq!(b.number("SELECT sum(v) FROM t"), Some(30));

    a.session.begin_implicit();
    a.ok("UPDATE t SET v = 1 WHERE id = 1");
    let outcome = a.run("COMMIT").expect("it commits");
    let outcome = a.answered(outcome);
    assert_eq!(outcome.notices.first().map(|w| w.sqlstate), Some("25P01"));
    assert_eq!(b.number("SELECT sum(v) FROM t"), Some(31));
}

#[test]
fn replies_tell_what_they_depend_on() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    let commit = a.run("UPDATE t SET v = 11 WHERE id = 1").expect("it runs");
    let cts = commit.durable;
    if let Some(cts) = cts {
        world.db.engine().wait_durable(cts).wait().expect("the log works");
    }
    // A tag inside a block is provisional.
    a.ok("BEGIN");
    assert_eq!(a.run("UPDATE t SET v = 12 WHERE id = 1").expect("it runs").durable, None);
    a.ok("COMMIT");
    // Deferred commit answers at once.
    a.ok("SET synchronous_commit = off");
    assert_eq!(a.run("UPDATE t SET v = 13 WHERE id = 1").expect("it runs").durable, None);
}

/// Another session's DROP and CREATE show in errors and in prepared columns before they are durable.
#[test]
fn what_is_told_of_a_schema_waits_until_it_is_durable() {
    let world = World::new("");
    let (mut a, mut b) = (world.client(), world.client());
    let waited_for = |told: Option<Cts>, ddl: Option<Cts>| match (told, ddl) {
        (Some(told), Some(ddl)) => told >= ddl,
        // Durable by now.
        (None, Some(ddl)) => world.db.engine().is_durable(ddl),
        (_, None) => true,
    };
    for _ in 0..20 {
        let created = a.run("CREATE TABLE s (id int)").expect("it runs").durable;
        b.session.prepare("EXPLAIN SELECT id FROM s", &[]).expect("it is there");
        assert!(waited_for(b.session.prepare_dependency(), created));
        let dropped = a.run("DROP TABLE s").expect("it runs").durable;
        assert_eq!(b.session.prepare("SELECT id FROM s", &[]).expect_err("it is gone").sqlstate, "42P01");
        assert!(waited_for(b.session.error_dependency(), dropped));
    }
}

#[test]
fn parameters_are_checked() {
    let world = World::new("CREATE TABLE p (i int, s varchar(3), d numeric(4,2), n numeric, c char(2))");
    let mut session = world.db.session().expect("a session");
    let insert = session.prepare("INSERT INTO p VALUES ($1, $2, $3, $4, $5)").expect("it prepares");
    let none = || None::<i64>.into_datum();
    for (parameters, sqlstate) in [
        (vec![none()], "08P01"),
        (vec![3_000_000_000i64.into_datum(), none(), none(), none(), none()], "22003"),
        (vec![none(), "abcd".into_datum(), none(), none(), none()], "22001"),
        (vec![none(), (&[0xff_u8, 0xfe][..]).into_datum(), none(), none(), none()], "22021"),
        (vec![none(), none(), "100".into_datum(), none(), none()], "22003"),
        (vec![none(), none(), "x".into_datum(), none(), none()], "22P02"),
        (vec![none(), none(), none(), "1.x".into_datum(), none()], "22P02"),
        (vec![true.into_datum(), none(), none(), none(), none()], "42804"),
        (vec![none(), none(), none(), none(), "abc".into_datum()], "22001"),
    ] {
        let error = session.execute(&insert, &parameters).expect_err(sqlstate);
        assert_eq!(error.sqlstate, sqlstate, "{parameters:?}: {error}");
    }
    let good = ["7".into_datum(), "abc ".into_datum(), 12.into_datum(), "0.10".into_datum(), "a ".into_datum()];
    session.execute(&insert, &good).expect("these fit");
    let select = session.prepare("SELECT * FROM p WHERE c = $1 AND n = $2 AND d = $3").expect("it prepares");
    let rows = session.query(&select, &["a".into_datum(), "0.1".into_datum(), 12.into_datum()]).expect("it runs");
    let cells: Vec<_> = (0..5).map(|column| rows.display(0, column).expect("no nulls")).collect();
    assert_eq!(cells, ["7", "abc", "12.00", "0.10", "a "]);
}

#[test]
fn a_long_statement_can_be_ended_from_outside() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    let flag = a.session.cancel_flag();
    let statement =
        a.session.prepare("SELECT count(*) FROM generate_series(1, 1000000000000) g", &[]).expect("prepares");
    let canceller = std::thread::spawn(move || {
        // The statement clears the flag when it starts and takes it when it stops.
        let mut taken = 0;
        while taken < 2 {
            taken += u32::from(!flag.swap(true, std::sync::atomic::Ordering::Relaxed));
            std::thread::yield_now();
        }
    });
    let error = match a.session.execute(&statement, &[], &mut a.rows) {
        Err(error) => error,
        Ok(_) => panic!("a trillion rows were counted"),
    };
    canceller.join().expect("the canceller ends");
    assert_eq!(error.sqlstate, "57014");
    a.ok("SET statement_timeout = '5ms'");
    assert_eq!(a.fails("SELECT count(*) FROM generate_series(1, 1000000000000) g"), "57014");
    a.ok("RESET statement_timeout");
    assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(10));
}

#[test]
fn a_row_comes_up_once_though_stale_entries_lead_to_it() {
    let world = World::new(
        "CREATE TABLE s (id int PRIMARY KEY, v int, w text); CREATE INDEX s_v ON s (v); CREATE INDEX s_w ON s (w)",
    );
    let (mut a, mut old) = (world.client(), world.client());
    a.ok("INSERT INTO s VALUES (1, 1, repeat('long', 10) || 'a'), (2, 2, repeat('long', 10) || 'b')");
    // An old snapshot keeps the entries of older keys.
    old.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(old.number("SELECT count(*) FROM s"), Some(2));
    a.ok("UPDATE s SET v = 5 WHERE id = 1");
    assert_eq!(a.number("SELECT count(*) FROM s WHERE v IN (1, 5)"), Some(1));
    assert_eq!(a.number("SELECT count(*) FROM s WHERE v >= 1 AND v <= 5"), Some(2));
    assert_eq!(old.number("SELECT count(*) FROM s WHERE v IN (1, 5)"), Some(1));
    assert_eq!(
        a.number("SELECT count(*) FROM s WHERE w IN (repeat('long', 10) || 'a', repeat('long', 10) || 'b')"),
        Some(2)
    );
    assert_eq!(a.ok("UPDATE s SET v = v + 1 WHERE v IN (1, 2, 5, 6)"), "UPDATE 2");
}

/// Who locks a table so that nobody sees it half done: whoever waited for that once read it as it had been before.
#[test]
fn who_waits_for_a_table_reads_what_was_committed_meanwhile() {
    for read in [
        "SELECT count(*) FROM t",
        "SELECT v FROM t WHERE id = 4",
        "COPY t TO STDOUT",
        "SELECT count(*) FROM seen",
        "SELECT v FROM seen_again WHERE id = 4",
        "SELECT 4 WHERE EXISTS (SELECT FROM seen WHERE id = 4)",
    ] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        a.ok("CREATE VIEW seen AS SELECT * FROM t");
        a.ok("CREATE VIEW seen_again AS SELECT * FROM seen");
        b.ok("SELECT count(*) FROM t");
        a.ok("BEGIN");
        a.ok("LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
        a.ok("INSERT INTO t VALUES (4, 4)");
        let wait = b.waits(read);
        a.ok("COMMIT");
        b.resume(wait).expect(read);
        if read.starts_with("COPY") {
            let mut copied = Vec::new();
            while b.session.copy_out(&b.rows, &mut copied).expect(read).outcome.is_none() {}
            assert_eq!(copied, b"1\t10\n2\t20\n3\t30\n4\t4\n");
        } else {
            assert_eq!(b.rows.i64(0, 0), Some(4), "{read}");
        }
    }
}

/// What it once read at a snapshot that it kept is no reason: the table is emptied and filled under the lock so that nobody sees it half done.
#[test]
fn who_waits_for_a_table_that_is_filled_anew_reads_it() {
    for read in ["SELECT count(*) FROM t", "COPY t TO STDOUT"] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        for statement in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM t", "COMMIT"] {
            b.ok(statement);
        }
        for statement in ["BEGIN", "LOCK TABLE t", "TRUNCATE t", "INSERT INTO t VALUES (4, 4)"] {
            a.ok(statement);
        }
        let wait = b.waits(read);
        a.ok("COMMIT");
        b.resume(wait).expect(read);
        if !read.starts_with("COPY") {
            assert_eq!(b.rows.i64(0, 0), Some(1), "{read}");
        }
    }
}

/// LOCK TABLE reads nothing, so the transaction's one snapshot comes after it.
#[test]
fn who_locks_tables_first_reads_them_as_they_are_then() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for mode in ["SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"] {
            let world = World::new(ACCOUNTS);
            let (mut a, mut b) = (world.client(), world.client());
            b.ok("BEGIN");
            b.ok("UPDATE t SET v = 50 WHERE id = 1");
            a.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
            a.ok("LOCK TABLE t IN ACCESS SHARE MODE");
            let wait = a.waits(&format!("LOCK TABLE t IN {mode} MODE"));
            b.ok("COMMIT");
            a.resume(wait).expect("nobody else has it");
            b.ok("CREATE TABLE other (id int)");
            b.ok("INSERT INTO other VALUES (7)");
            assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(50), "{level}, {mode}");
            assert_eq!(a.number("SELECT id FROM other"), Some(7), "{level}, {mode}");
            // From here on it is as ever; a SERIALIZABLE one that writes must not have read what changes.
            if level == "REPEATABLE READ" {
                b.ok("UPDATE other SET id = 8");
                a.ok("LOCK TABLE other IN SHARE MODE");
                assert_eq!(a.number("SELECT id FROM other"), Some(7), "{level}, {mode}");
            }
            a.ok("UPDATE t SET v = v + 1 WHERE id = 1");
            a.ok("COMMIT");
            assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(51));
        }
    }
}

/// Those who lock rows go together with SHARE: it once waited for them for ever.
#[test]
fn who_locks_a_table_waits_for_those_who_were_there_before() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let mut d = world.client();
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    d.ok("BEGIN");
    d.ok("UPDATE t SET v = 21 WHERE id = 2");
    b.ok("BEGIN");
    let wait = b.waits("LOCK TABLE t IN SHARE MODE");
    assert!(wait.is_lock());
    c.ok("BEGIN");
    c.ok("SELECT v FROM t WHERE id = 3 FOR UPDATE");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let ended = [&mut a, &mut d];
    let mut wait = Some(wait);
    for client in ended {
        client.ok("COMMIT");
        let mut woken = wait.take().expect("it waits for the other one yet");
        if woken.block(Some(std::time::Duration::from_millis(100))) {
            match b.session.resume(&mut b.rows).expect("it goes on") {
                Step::Done(outcome) => assert_eq!(outcome.tag.to_string(), "LOCK TABLE"),
                Step::Wait(next) => {
                    // lock_timeout counts from the first wait on.
                    assert!(next.waited() >= std::time::Duration::from_millis(20));
                    wait = Some(next);
                }
                Step::Part(_) => unreachable!("nobody asked for messages"),
            }
        } else {
            wait = Some(woken);
        }
    }
    assert!(wait.is_none(), "only those who were there are waited for");
    assert_eq!(b.number("SELECT sum(v) FROM t"), Some(62));
    // What it has locked is not changed.
    c.waits("UPDATE t SET v = 31 WHERE id = 3");
    b.ok("COMMIT");
}

/// The lock that stays keeps the table closed: who has come since has a lock that goes together with it.
#[test]
fn a_stronger_lock_that_was_undone_does_not_make_a_weaker_one_wait() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    for statement in [
        "BEGIN",
        "LOCK TABLE t IN SHARE MODE",
        "SAVEPOINT s",
        "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE",
        "ROLLBACK TO s",
    ] {
        a.ok(statement);
    }
    b.ok("BEGIN");
    b.ok("SELECT v FROM t WHERE id = 1 FOR UPDATE");
    a.ok("LOCK TABLE t IN SHARE MODE");
    let wait = b.waits("UPDATE t SET v = 0 WHERE id = 1");
    a.ok("COMMIT");
    b.resume(wait).expect("nobody else has it");
    b.ok("COMMIT");
}

/// Who came through the closed gate to lock rows has a lock that goes together with SHARE, until it writes.
#[test]
fn whoever_only_locks_rows_is_not_in_the_way_of_share() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    for client in [&mut a, &mut b, &mut c] {
        client.ok("BEGIN");
    }
    a.ok("LOCK TABLE t IN SHARE MODE");
    c.ok("SELECT v FROM t WHERE id = 1 FOR UPDATE");
    b.ok("LOCK TABLE t IN SHARE MODE");
    let writes = c.waits("UPDATE t SET v = 0 WHERE id = 1");
    a.ok("COMMIT");
    assert!(!matches!(b.number("SELECT v FROM t WHERE id = 1"), Some(0)));
    b.ok("COMMIT");
    c.resume(writes).expect("nobody else has it");
    // Now it has written, and whoever locks the table waits for it.
    a.ok("BEGIN");
    let locks = a.waits("LOCK TABLE t IN SHARE MODE");
    c.ok("COMMIT");
    a.resume(locks).expect("it is over");
    assert_eq!(a.number("SELECT v FROM t WHERE id = 1"), Some(0));
    a.ok("COMMIT");
    // What LOCK TABLE calls ROW SHARE says nothing of rows that were written without a lock of the table.
    for first in ["UPDATE t SET v = 1 WHERE id = 1", "LOCK TABLE t IN ROW SHARE MODE"] {
        c.ok("BEGIN");
        c.ok(first);
        c.ok("LOCK TABLE t IN ROW SHARE MODE");
        c.ok("UPDATE t SET v = v + 1 WHERE id = 1");
        c.ok("SELECT v FROM t WHERE id = 2 FOR UPDATE");
        a.ok("BEGIN");
        let locks = a.waits("LOCK TABLE t IN SHARE MODE");
        c.ok("COMMIT");
        a.resume(locks).expect("it is over");
        a.ok("COMMIT");
    }
}

/// The statement that waits is undone and runs again; what it gave back it once gave back again.
#[test]
fn a_key_is_given_back_once_however_often_its_statement_runs() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    for _ in 0..2 {
        a.ok("SELECT pg_advisory_lock(8)");
    }
    b.ok("SELECT pg_advisory_lock(9)");
    c.ok("SELECT pg_advisory_lock(10)");
    let wait = a.waits("SELECT pg_advisory_unlock(8), pg_advisory_lock(9), pg_advisory_lock(10)");
    b.ok("SELECT pg_advisory_unlock(9)");
    let Step::Wait(wait) = ({
        let mut wait = wait;
        assert!(wait.block(Some(std::time::Duration::from_secs(20))));
        a.session.resume(&mut a.rows).expect("it goes on")
    }) else {
        panic!("the second key is another's")
    };
    c.ok("SELECT pg_advisory_unlock(10)");
    a.resume(wait).expect("both are free");
    assert_eq!(a.rows.bool(0, 0), Some(true));
    assert_eq!(truth(&mut a, "SELECT pg_advisory_unlock(8)"), Some(true), "one of two is left");
    assert_eq!(truth(&mut a, "SELECT pg_advisory_unlock(8)"), Some(false));
    // What the statement took itself it gives back in each run; and one that is cancelled has given back what it gave back, once.
    a.ok("SELECT pg_advisory_lock(8)");
    b.ok("SELECT pg_advisory_lock(11)");
    let wait =
        a.waits("SELECT pg_advisory_lock(8), pg_advisory_unlock(8), pg_advisory_unlock(8), pg_advisory_lock(11)");
    b.ok("SELECT pg_advisory_unlock(11)");
    a.resume(wait).expect("it is free");
    assert_eq!(truth(&mut a, "SELECT pg_advisory_unlock(8)"), Some(false));
    a.ok("SELECT pg_advisory_lock(8)");
    a.ok("SELECT pg_advisory_lock(8)");
    b.ok("SELECT pg_advisory_lock(12)");
    drop(a.waits("SELECT pg_advisory_unlock(8), pg_advisory_lock(12)"));
    a.session.cancel(SqlError::new("57014", "canceling statement due to user request"));
    assert_eq!(truth(&mut a, "SELECT pg_advisory_unlock(8)"), Some(true));
    assert_eq!(truth(&mut b, "SELECT pg_try_advisory_lock(8)"), Some(true));
}

/// A key that was waited for is the statement's, though it gives back all that it finds.
#[test]
fn who_gives_back_all_keys_keeps_the_one_it_has_waited_for() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("SELECT pg_advisory_lock(8)");
    b.ok("SELECT pg_advisory_lock(9)");
    let wait = a.waits("SELECT pg_advisory_unlock_all(), pg_advisory_lock(9)");
    let next = b.ok("SELECT pg_advisory_unlock(9)");
    assert_eq!(next, "SELECT 1");
    a.resume(wait).expect("it is free");
    assert_eq!(truth(&mut b, "SELECT pg_try_advisory_lock(9)"), Some(false));
    assert_eq!(truth(&mut b, "SELECT pg_try_advisory_lock(8)"), Some(true));
}

/// Nobody waits for its snapshot, and its own statement runs again; each call is slept for once.
#[test]
fn who_sleeps_keeps_its_row_locks() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    let sleeping = a.waits("UPDATE t SET v = v + 1 WHERE id = 1 RETURNING pg_sleep(0.05), v");
    assert!(!sleeping.is_lock());
    let wait = b.waits("UPDATE t SET v = v * 2 WHERE id = 1");
    assert!(wait.is_lock());
    a.resume(sleeping).expect("it wakes");
    assert_eq!(a.rows.i64(0, 1), Some(11));
    b.resume(wait).expect("it goes on");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(22));
    // Whoever is woken by a cancel has not slept.
    a.ok("BEGIN");
    drop(a.waits("SELECT pg_sleep(3600)"));
    a.session.cancel(SqlError::new("57014", "canceling statement due to user request"));
    assert_eq!(a.session.status(), TransactionStatus::Failed);
    a.ok("ROLLBACK");
    a.ok("PREPARE p AS SELECT pg_sleep(0.05)");
    for sleep in [
        "SELECT pg_sleep(0.05)",
        "EXECUTE p",
        "SELECT pg_sleep_for('50 ms')",
        "COPY (SELECT pg_sleep(0.05)) TO '/dev/null'",
    ] {
        for _ in 0..2 {
            let began = std::time::Instant::now();
            a.ok(sleep);
            assert!(began.elapsed() >= std::time::Duration::from_millis(50), "{sleep}");
        }
    }
    let began = std::time::Instant::now();
    assert_eq!(a.number("SELECT sum(length(pg_sleep(0.02)::text) + 1) FROM t"), Some(3));
    assert!(began.elapsed() >= std::time::Duration::from_millis(60));
}

fn truth(client: &mut crate::world::Client, sql: &str) -> Option<bool> {
    client.ok(sql);
    client.rows.bool(0, 0)
}
