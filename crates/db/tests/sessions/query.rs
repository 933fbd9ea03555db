//! The road to DataFusion beside other sessions: snapshots, re-evaluation, cancelling, limits. Driven in steps where order matters.

use crate::world::{ACCOUNTS, World};
use freshet_db::sql::Step;
use freshet_db::{IntoDatum, SqlError, Type};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TOTAL: &str = "SELECT sum(v)::bigint FROM t WHERE id IN (SELECT id FROM t)";
const SEEN: &str = "CREATE VIEW seen AS SELECT * FROM t";
const TOTAL_SEEN: &str = "SELECT sum(v)::bigint FROM seen WHERE id IN (SELECT id FROM seen)";

#[test]
fn a_query_sees_its_own_snapshot_whatever_is_committed_while_it_runs() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    let wait = a.waits(TOTAL);
    b.ok("UPDATE t SET v = v + 1000");
    b.ok("DELETE FROM t WHERE id = 3");
    a.resume(wait).expect("it goes on");
    assert_eq!(a.rows.i64(0, 0), Some(60));
    assert_eq!(a.number(TOTAL), Some(2030));
}

#[test]
fn a_transaction_sees_its_own_changes_and_a_steady_rest() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(a.number(TOTAL), Some(60));
    b.ok("INSERT INTO t VALUES (4, 40)");
    a.ok("UPDATE t SET v = 11 WHERE id = 1");
    assert_eq!(a.number(TOTAL), Some(61));
    a.ok("ROLLBACK");
    assert_eq!(a.number(TOTAL), Some(100));
}

#[test]
fn a_sum_is_steady_while_money_moves() {
    let world = World::new(ACCOUNTS);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut writer = world.db.session().expect("a session");
            let moves = writer.prepare("UPDATE t SET v = CASE id WHEN 1 THEN v - 1 ELSE v + 1 END WHERE id <= 2");
            let moves = moves.expect("it is compiled");
            while !stop.load(Ordering::Relaxed) {
                writer.execute(&moves, &[]).expect("the move is made");
            }
        });
        let mut reader = world.client();
        for _ in 0..50 {
            assert_eq!(reader.number(TOTAL), Some(60));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_change_by_a_subquery_waits_and_builds_on_what_was_committed() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = v + 1 WHERE id = 1");
    let wait = b.waits("UPDATE t SET v = v * 2 WHERE id IN (SELECT id FROM t WHERE id < 3)");
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect("it goes on").tag.to_string(), "UPDATE 2");
    assert_eq!(b.number(TOTAL), Some(22 + 40 + 30));
}

/// The row is free again when the change comes to it, but it is not the one that the query saw: the statement runs anew.
#[test]
fn a_change_by_a_subquery_is_run_again_over_what_was_committed_meanwhile() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    // The rows' locks are held, so that the change has to wait however fast its query is.
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 5 WHERE id = 1");
    a.ok("UPDATE t SET v = 35 WHERE id = 2");
    let wait = b.waits("UPDATE t SET v = v * 2 WHERE v IN (SELECT v FROM t WHERE v < 30)");
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect("it goes on").tag.to_string(), "UPDATE 1");
    assert_eq!(b.number("SELECT v FROM t WHERE id = 1"), Some(10));
    assert_eq!(b.number("SELECT v FROM t WHERE id = 2"), Some(35));

    a.ok("BEGIN");
    a.ok("DELETE FROM t WHERE id = 1");
    let wait = b.waits("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE v = 10)");
    a.ok("COMMIT");
    assert_eq!(b.resume(wait).expect("it goes on").tag.to_string(), "DELETE 0");
}

#[test]
fn in_repeatable_read_a_newer_row_is_40001() {
    let world = World::new(ACCOUNTS);
    let (mut a, mut b) = (world.client(), world.client());
    b.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    b.ok("SELECT v FROM t WHERE id = 3");
    a.ok("UPDATE t SET v = 0 WHERE id = 1");
    let failed = b.run("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id = 1)");
    assert_eq!(failed.expect_err("the row is newer").sqlstate, "40001");
}

#[test]
fn a_query_that_is_cancelled_leaves_a_session_that_works() {
    let world = World::new(ACCOUNTS);
    let mut a = world.client();
    a.ok("SET freshet.road = query");
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a + b < 0";
    let mut wait = a.waits(endless);
    assert!(!wait.block(Some(Duration::from_millis(20))), "it takes longer than that");
    let error = a.session.cancel(SqlError::new("57014", "canceling statement due to user request"));
    assert_eq!(error.sqlstate, "57014");
    assert_eq!(a.number(TOTAL), Some(60));

    a.ok("BEGIN");
    drop(a.waits(endless));
    a.session.cancel(SqlError::new("57014", "canceling statement due to user request"));
    assert_eq!(a.run(TOTAL).expect_err("the block has failed").sqlstate, "25P02");
    a.ok("ROLLBACK");

    let mut session = world.db.session().expect("a session");
    session.run("SET freshet.road = query").expect("the setting is known");
    session.run("SET statement_timeout = 20").expect("the setting is known");
    session.run("SET lock_timeout = 1").expect("the setting is known");
    assert_eq!(session.run(endless).expect_err("it takes longer").sqlstate, "57014");
}

#[test]
fn a_query_that_would_hold_more_than_its_limit_fails() {
    let world = World::new(ACCOUNTS);
    let mut session = world.db.session().expect("a session");
    session.run("SET freshet.road = query").expect("the setting is known");
    session.run("SET freshet.query_memory_mb = 1").expect("the setting is known");
    for sql in [
        "SELECT g FROM generate_series(1, 1000000) g ORDER BY -g",
        "SELECT count(*) FROM (SELECT DISTINCT md5(g::text) FROM generate_series(1, 1000000) g) x",
        "SELECT a FROM generate_series(1, 1000000) a JOIN generate_series(1, 1000000) b ON a = b",
    ] {
        let error = session.run(sql).expect_err(sql);
        assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
    }
    session.run("RESET freshet.query_memory_mb").expect("the setting is known");
    let sql =
        session.prepare("SELECT max(a) FROM generate_series(1, 100000) a JOIN generate_series(1, 100000) b ON a = b");
    let rows = session.query(&sql.expect("it is planned"), &[]).expect("there is room");
    assert_eq!(rows.i64(0, 0), Some(100_000));
}

#[test]
fn parameters_are_typed_by_what_they_meet() {
    let world = World::new(ACCOUNTS);
    let mut session = world.db.session().expect("a session");
    let sql = "SELECT v, $3 FROM t WHERE id IN (SELECT id FROM t WHERE v > $1) AND id < $2 ORDER BY id LIMIT $4";
    let statement = session.prepare(sql).expect("it is planned");
    assert_eq!(statement.parameters(), [Type::Int4, Type::Int4, Type::Text, Type::Int8]);
    let given = [15.into_datum(), 10.into_datum(), "x".into_datum(), 1_i64.into_datum()];
    let rows = session.query(&statement, &given).expect("it runs");
    assert_eq!((rows.len(), rows.i64(0, 0), rows.text(0, 1)), (1, Some(20), Some("x")));
    // The same statement, planned for other values.
    let given = [5.into_datum(), 10.into_datum(), "y".into_datum(), 9_i64.into_datum()];
    let rows = session.query(&statement, &given).expect("it runs");
    assert_eq!((rows.len(), rows.i64(0, 0), rows.text(2, 1)), (3, Some(10), Some("y")));
}

#[test]
fn explain_names_the_road_and_the_index() {
    let world = World::new(ACCOUNTS);
    let mut session = world.db.session().expect("a session");
    let sql = "EXPLAIN SELECT v FROM t WHERE id = 2 AND v IN (SELECT v FROM t)";
    let statement = session.prepare(sql).expect("it is planned");
    let rows = session.query(&statement, &[]).expect("it is explained");
    let lines: Vec<&str> = (0..rows.len()).filter_map(|i| rows.text(i, 0)).collect();
    assert_eq!(lines.last(), Some(&"Road: DataFusion"));
    assert!(lines.iter().any(|l| l.contains("Index Scan using t_pkey on t")), "{lines:#?}");
}

/// Each of these is compiled while its table is small. They once stayed so, since the roads did not agree on what is computed or on who reads the clock.
#[test]
fn what_computes_over_a_large_table_takes_the_other_road() {
    let world = World::new(
        "CREATE TABLE f (id int PRIMARY KEY, p numeric(12, 2), d numeric(12, 2), t text, on_day date);
         CREATE TABLE dim (k int PRIMARY KEY, name text)",
    );
    let mut session = world.db.session().expect("a session");
    let queries = [
        "SELECT 100.00 * sum(CASE WHEN t LIKE 'P%' THEN p * (1 - d) ELSE 0 END) / sum(p * (1 - d)) FROM f",
        "SELECT t, sum(p), avg(p), count(*), sum(p * (1 - d)), min(p), sum(p * (1 - d) * (1 + d)) FROM f GROUP BY t",
        "SELECT extract(year FROM on_day) AS y, sum(p * d) FROM f GROUP BY 1",
        "SELECT name, sum(p - d) FROM f JOIN dim ON dim.k = f.id GROUP BY name",
        "SELECT t, round(avg(p), 2), sum(id), avg(id), max(on_day) FROM f GROUP BY t",
        "SELECT t, sum(p) / 7.0, sum(d) FILTER (WHERE p > 1) FROM f WHERE on_day < date '2020-03-01' GROUP BY t",
    ];
    let mut road = |sql: &str| {
        let statement = session.prepare(&format!("EXPLAIN {sql}")).expect("it is planned");
        let rows = session.query(&statement, &[]).expect("it is explained");
        rows.text(rows.len() - 1, 0).expect("a line").to_owned()
    };
    for sql in queries {
        assert_eq!(road(sql), "Road: compiled", "{sql}");
    }
    let mut filler = world.db.session().expect("a session");
    filler
        .run(
            "INSERT INTO f SELECT g, g % 1000 / 10.0, 0.05, CASE WHEN g % 5 = 0 THEN 'PROMO' ELSE 'X' END,
                                  date '2020-01-01' + g % 100 FROM generate_series(1, 60000) AS g",
        )
        .expect("it fills");
    for sql in queries {
        assert_eq!(road(sql), "Road: DataFusion", "{sql}");
    }
}

#[test]
fn a_forced_road_is_taken_or_refused() {
    let world = World::new(ACCOUNTS);
    let mut session = world.db.session().expect("a session");
    session.run("SET freshet.road = compiled").expect("the setting is known");
    assert_eq!(session.run(TOTAL).expect_err("not compiled").sqlstate, "0A000");
    session.run("SET freshet.road = query").expect("the setting is known");
    let statement = session.prepare("EXPLAIN SELECT v FROM t WHERE id = 2").expect("it is planned");
    let rows = session.query(&statement, &[]).expect("it is explained");
    assert_eq!(rows.text(rows.len() - 1, 0), Some("Road: DataFusion"));
    assert_eq!(session.run("UPDATE t SET v = 1 WHERE id = 2").expect("it runs"), 1);
}

#[test]
fn a_schema_that_changes_under_a_statement_is_met_anew() {
    let world = World::new(ACCOUNTS);
    let mut session = world.db.session().expect("a session");
    let statement = session.prepare(TOTAL).expect("it is planned");
    session.run("CREATE INDEX t_v ON t (v); TRUNCATE t; INSERT INTO t VALUES (7, 7)").expect("the schema changes");
    let rows = session.query(&statement, &[]).expect("it runs");
    assert_eq!(rows.i64(0, 0), Some(7));
}

/// It once had locked the row, and was a deadlock with LOCK TABLE.
#[test]
fn a_change_that_waits_for_a_table_has_no_row_of_it() {
    for change in [
        "UPDATE t SET v = v + 1 FROM (VALUES (2)) AS x (i) WHERE t.id = x.i",
        "DELETE FROM t USING (VALUES (2)) AS x (i) WHERE t.id = x.i",
        "MERGE INTO t USING (VALUES (2)) AS x (i) ON t.id = x.i WHEN MATCHED THEN UPDATE SET v = v + 1",
    ] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
        a.ok("BEGIN");
        a.ok("UPDATE t SET v = 11 WHERE id = 1");
        b.ok("BEGIN");
        let of_lock = b.waits("LOCK TABLE t IN SHARE MODE");
        c.ok("BEGIN");
        let mut step = c.start(change).expect(change);
        let of_change = loop {
            match step {
                Step::Done(_) => panic!("{change} does not wait"),
                Step::Wait(wait) if wait.is_lock() => break wait,
                Step::Wait(mut wait) => {
                    wait.block(None);
                    step = c.session.resume(&mut c.rows).expect(change);
                }
                Step::Part(_) => unreachable!("nobody asked for messages"),
            }
        };
        a.ok("SELECT v FROM t WHERE id = 2 FOR UPDATE NOWAIT");
        a.ok("COMMIT");
        b.resume(of_lock).expect("it has the table");
        b.ok("COMMIT");
        assert_eq!(c.resume(of_change).expect(change).tag.rows, Some(1));
    }
}

/// As in `locks`, on this road; also through views, below which it once saw no tables.
#[test]
fn a_query_that_waited_for_a_table_reads_what_was_committed_meanwhile() {
    for read in [TOTAL, TOTAL_SEEN] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        a.ok(SEEN);
        a.ok("BEGIN");
        a.ok("LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
        a.ok("INSERT INTO t VALUES (4, 40)");
        let wait = b.waits(read);
        assert!(wait.is_lock(), "{read}");
        a.ok("COMMIT");
        b.resume(wait).expect("it goes on");
        assert_eq!(b.rows.i64(0, 0), Some(100), "{read}");
    }
}

/// Each takes what the other leaves: one of them must not.
#[test]
fn what_a_serializable_transaction_reads_through_a_view_counts() {
    for read in [TOTAL, TOTAL_SEEN] {
        let world = World::new(ACCOUNTS);
        let (mut a, mut b) = (world.client(), world.client());
        a.ok(SEEN);
        for (client, id) in [(&mut a, 1), (&mut b, 2)] {
            client.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
            assert_eq!(client.number(read), Some(60), "{read}");
            client.ok(&format!("UPDATE t SET v = v - 40 WHERE id = {id}"));
        }
        a.ok("COMMIT");
        assert_eq!(b.fails("COMMIT"), "40001", "{read}");
    }
}
