//! Blocks of DO beside other sessions: what they wait for, how they end, and what they leave.

use crate::world::{ACCOUNTS, World};
use freshet_db::SqlError;
use freshet_db::sql::TransactionStatus;

const ADDS: &str = "DO $$ BEGIN
    UPDATE t SET v = v + 1 WHERE id = 2;
    UPDATE t SET v = v + 1 WHERE id = 1;
    INSERT INTO t VALUES (4, 40);
END $$";

const CATCHES: &str = "DO $$ BEGIN
    INSERT INTO t VALUES (4, 40);
    BEGIN
        UPDATE t SET v = v + 1 WHERE id = 1;
    EXCEPTION WHEN OTHERS THEN INSERT INTO t VALUES (5, 50);
    END;
    INSERT INTO t VALUES (6, 60);
END $$";

fn cancelled() -> SqlError {
    SqlError::new("57014", "canceling statement due to user request")
}

#[test]
fn a_block_goes_on_with_the_statement_that_waited() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = v + 10 WHERE id = 1");
    let wait = b.waits(ADDS);
    assert_eq!(b.session.status(), TransactionStatus::Open);
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect("it goes on").tag.to_string(), "DO");
    assert_eq!(b.session.status(), TransactionStatus::Idle);
    assert_eq!(b.numbers("SELECT v FROM t ORDER BY id"), [21, 21, 30, 40]);
}

#[test]
fn a_block_that_waits_within_a_handler_can_be_caught_there() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("INSERT INTO t VALUES (7, 70)");
    let wait = b.waits(
        "DO $$ BEGIN
            INSERT INTO t VALUES (8, 80);
            BEGIN
                INSERT INTO t VALUES (9, 90), (7, 71);
            EXCEPTION WHEN unique_violation THEN INSERT INTO t VALUES (10, 100);
            END;
        END $$",
    );
    a.ok("COMMIT");
    b.resume(wait).expect("it is caught");
    assert_eq!(b.numbers("SELECT id FROM t ORDER BY id"), [1, 2, 3, 7, 8, 10]);
}

#[test]
fn a_request_to_end_is_caught_by_nobody_and_leaves_nothing() {
    for (block, within) in [(ADDS, false), (CATCHES, false), (CATCHES, true)] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        a.ok("BEGIN");
        a.ok("UPDATE t SET v = v + 10 WHERE id = 1");
        if within {
            b.ok("BEGIN");
            b.ok("UPDATE t SET v = 33 WHERE id = 3");
            b.ok("SAVEPOINT s");
        }
        b.waits(block);
        assert_eq!(b.session.cancel(cancelled()).sqlstate, "57014");
        if within {
            assert_eq!(b.session.status(), TransactionStatus::Failed);
            assert_eq!(b.fails("SELECT 1"), "25P02");
            b.ok("ROLLBACK TO s");
            b.ok("COMMIT");
        }
        assert_eq!(b.session.status(), TransactionStatus::Idle);
        a.ok("COMMIT");
        let third = if within { 33 } else { 30 };
        assert_eq!(a.numbers("SELECT v FROM t ORDER BY id"), [20, 20, third]);
        assert_eq!(b.ok(ADDS), "DO", "the session goes on");
    }
}

#[test]
fn a_block_is_one_statement_of_its_transaction() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    b.ok("BEGIN");
    b.ok(CATCHES);
    assert_eq!(a.numbers("SELECT v FROM t ORDER BY id"), [10, 20, 30], "nobody sees it before the commit");
    b.ok("SAVEPOINT s");
    assert_eq!(b.fails("DO $$ BEGIN DELETE FROM t; RAISE EXCEPTION 'no'; END $$"), "P0001");
    b.ok("ROLLBACK TO s");
    b.ok("RELEASE s");
    assert_eq!(b.fails("ROLLBACK TO s"), "3B001", "no savepoint of the block is left");
    b.ok("ROLLBACK");
    assert_eq!(a.numbers("SELECT v FROM t ORDER BY id"), [10, 20, 30]);
    // Of a script that is one transaction.
    b.session.begin_implicit();
    b.ok(CATCHES);
    assert_eq!(a.numbers("SELECT v FROM t ORDER BY id"), [10, 20, 30], "the script has not ended");
    assert_eq!(b.fails("INSERT INTO t VALUES (1, 1)"), "23505");
    assert_eq!(b.session.status(), TransactionStatus::Idle);
    assert_eq!(a.numbers("SELECT id FROM t ORDER BY id"), [1, 2, 3]);
}

/// A plan that is kept reads what its statements name when they run.
#[test]
fn a_block_may_be_run_again_after_the_schema_changed() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    let makes = "DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 't' AND column_name = 'n') THEN
            ALTER TABLE t ADD COLUMN n int DEFAULT 7;
            UPDATE t SET n = n + id;
        ELSE
            ALTER TABLE t DROP COLUMN n;
        END IF;
    END $$";
    for expected in [Some(8), None, Some(8)] {
        a.ok(makes);
        let is_there = a.run("SELECT n FROM t WHERE id = 1").is_ok();
        assert_eq!(is_there.then(|| a.number("SELECT n FROM t WHERE id = 1")).flatten(), expected);
    }
}

#[test]
fn rows_of_a_block_are_of_its_own_and_keys_of_its_commit() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    a.ok("CREATE TABLE c (t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)");
    assert_eq!(a.fails("DO $$ BEGIN INSERT INTO c VALUES (99); END $$"), "23503");
    a.ok("DO $$ BEGIN INSERT INTO c VALUES (99); INSERT INTO t VALUES (99, 1); END $$");
    let outcome = a.run("DO $$ BEGIN PERFORM * FROM t; END $$").expect("a block");
    assert_eq!((outcome.tag.rows, a.rows.len()), (None, 0), "nobody is given rows");
    a.ok("BEGIN READ ONLY");
    assert_eq!(a.fails("DO $$ BEGIN INSERT INTO c VALUES (1); END $$"), "25006");
    a.ok("ROLLBACK");
    assert_eq!(a.fails("DO $$ BEGIN DO 'begin end'; END $$"), "0A000");
    assert_eq!(a.numbers("SELECT count(*) FROM c"), [1]);
}

/// However many branches are not taken, and whatever ends a condition's line.
#[test]
fn conditions_are_asked_one_after_the_other() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    let many = "ELSIF false THEN NULL; ".repeat(5_000);
    a.ok(&format!("DO $$ BEGIN IF false THEN NULL; {many} ELSE DELETE FROM t WHERE id = 3; END IF; END $$"));
    assert_eq!(a.numbers("SELECT id FROM t ORDER BY id"), [1, 2]);
    let outcome = a.run(
        "DO $$ BEGIN
            IF FOUND -- was it
            THEN NULL; ELSE RAISE NOTICE '% [%] %', true, 'a'::char(3), NULL -- a comment
            ;
            END IF;
            RAISE WARNING '%', (SELECT count(*) FROM t);
        END $$",
    );
    let told: Vec<String> = outcome.expect("a block").notices.into_iter().map(|notice| notice.message).collect();
    assert_eq!(told, ["t [a  ] <NULL>", "2"]);
    assert_eq!(a.fails("DO $$ BEGIN RAISE NOTICE 'before'; PERFORM 1 / 0; END $$"), "22012");
    let told: Vec<String> = a.session.take_notices().into_iter().map(|notice| notice.message).collect();
    assert_eq!(told, ["before"]);
}

/// The limit of a lock's wait is an error as others are: migrations try again.
#[test]
fn the_limit_of_a_wait_can_be_caught() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 0 WHERE id = 1");
    let wait = b.waits(
        "DO $$ BEGIN
            INSERT INTO t VALUES (4, 40);
            BEGIN
                INSERT INTO t VALUES (5, 50);
                UPDATE t SET v = 1 WHERE id = 1;
            EXCEPTION WHEN lock_not_available THEN INSERT INTO t VALUES (6, 60);
            END;
        END $$",
    );
    assert!(!b.session.interrupt(&cancelled()), "that is caught by nobody");
    assert!(b.session.interrupt(&SqlError::new("55P03", "canceling statement due to lock timeout")));
    drop(wait);
    let step = b.session.resume(&mut b.rows).expect("it is caught");
    assert!(matches!(step, freshet_db::sql::Step::Done(_)));
    a.ok("ROLLBACK");
    assert_eq!(b.numbers("SELECT id FROM t ORDER BY id"), [1, 2, 3, 4, 6]);
}

/// A prepared statement may end the transaction: the block would not know.
#[test]
fn no_statement_of_a_block_stands_for_another() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    let commit = a.session.prepare("COMMIT", &[]).expect("a statement");
    a.session.keep_statement(b"c", &commit).expect("a name for it");
    for command in ["EXECUTE c", "DECLARE c CURSOR FOR SELECT 1", "COMMIT", "SAVEPOINT s", "COPY t TO STDOUT"] {
        let block = format!("DO $$ BEGIN DELETE FROM t; EXECUTE '{command}'; END $$");
        assert_eq!(a.fails(&block), "0A000", "{command}");
        assert_eq!(a.session.status(), TransactionStatus::Idle);
        assert_eq!(a.numbers("SELECT count(*) FROM t"), [3], "{command}");
    }
}

/// A worker has other sessions to serve.
#[test]
fn a_block_of_many_statements_goes_on_elsewhere() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    a.session.limit_inline(Some(std::time::Duration::ZERO));
    let step =
        a.start("DO $$ BEGIN INSERT INTO t VALUES (4, 40); INSERT INTO t VALUES (5, 50); END $$").expect("it begins");
    assert!(matches!(&step, freshet_db::sql::Step::Wait(wait) if wait.is_elsewhere()));
    let step = a.session.resume_elsewhere(&mut a.rows).expect("it goes on");
    assert!(matches!(step, freshet_db::sql::Step::Done(_)));
    // Between two statements a request to end finds nobody who waits.
    a.start("DO $$ BEGIN INSERT INTO t VALUES (6, 60); EXCEPTION WHEN query_canceled THEN NULL; END $$")
        .expect("it begins");
    assert!(!a.session.interrupt(&cancelled()));
    assert_eq!(a.session.cancel(cancelled()).sqlstate, "57014");
    assert_eq!(a.session.status(), TransactionStatus::Idle);
    a.session.limit_inline(None);
    assert_eq!(a.numbers("SELECT id FROM t ORDER BY id"), [1, 2, 3, 4, 5]);
}

/// The whole block's time, however short its statements are; who catches its end has no other one.
#[test]
fn the_time_of_a_block_is_that_of_all_its_statements() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    a.ok("SET statement_timeout = '1ms'");
    // Each so short that it looks at no clock, all together some milliseconds; and not so long a text that its reading is timed.
    let one = "BEGIN PERFORM count(*) / 0 FROM generate_series(1, 200); EXCEPTION WHEN OTHERS THEN NULL; END;";
    let many = one.repeat(160);
    assert_eq!(a.fails(&format!("DO $$ BEGIN {many} END $$")), "57014");
    let catches = format!(
        "DO $$ BEGIN
            BEGIN {many} EXCEPTION WHEN query_canceled THEN INSERT INTO t VALUES (4, 40); END;
            PERFORM pg_sleep(0.06);
        END $$"
    );
    a.ok(&catches);
    a.ok("SET statement_timeout = 0");
    assert_eq!(a.numbers("SELECT id FROM t ORDER BY id"), [1, 2, 3, 4]);
}
