//! Plans of queries that are not compiled: made once for many runs, and anew when what they depend on has changed.

use crate::world::{Client, World};
use freshet_db::sql::Step;
use freshet_db::{Database, IntoDatum, Options, RowSet};

const JOIN: &str = "SELECT a.v, count(b.id) FROM a LEFT JOIN b ON b.a > a.id WHERE a.id = $1 GROUP BY a.v";

fn world() -> World {
    let world = World::new("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, a int)");
    world.client().ok("INSERT INTO a SELECT n, 'v' || n FROM generate_series(1, 50) AS n");
    world.client().ok("INSERT INTO b SELECT n, n % 50 + 1 FROM generate_series(1, 500) AS n");
    world
}

/// Runs it with the value, and gives its row as text.
fn run(client: &mut Client, sql: &str, value: i32) -> Vec<String> {
    let statement = client.session.prepare(sql, &[]).expect("it is planned");
    let mut rows = RowSet::default();
    let mut step = client.session.execute(&statement, &[value.into_datum()], &mut rows).expect("it runs");
    while let Step::Wait(mut wait) = step {
        wait.block(None);
        step = client.session.resume(&mut rows).expect("it goes on");
    }
    let mut shown = Vec::new();
    for row in 0..rows.len() {
        let cells = (0..statement.columns.len()).map(|column| rows.display(row, column).unwrap_or_default());
        shown.push(cells.collect::<Vec<_>>().join(" "));
    }
    shown
}

/// How often a query was planned while this ran.
fn plannings(client: &mut Client, work: impl FnOnce(&mut Client)) -> u64 {
    let before = client.session.queries_planned();
    work(client);
    client.session.queries_planned() - before
}

#[test]
fn a_statement_that_runs_again_is_not_planned_again() {
    let world = world();
    let mut client = world.client();
    // Its first run is planned for its value, the second for those that follow.
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 1))), 1);
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 2))), 1);
    let many = plannings(&mut client, |c| {
        for value in 1..=50 {
            let below = (value..50).count() * 10;
            assert_eq!(run(c, JOIN, value), [format!("v{value} {below}")], "{value}");
        }
        assert!(run(c, JOIN, 51).is_empty());
    });
    assert_eq!(many, 0);
    // Another session has the same plan.
    let mut other = world.client();
    assert_eq!(plannings(&mut other, |c| assert_eq!(run(c, JOIN, 50), ["v50 0"])), 0);
}

#[test]
fn a_plan_sees_what_each_run_sees() {
    let world = world();
    let mut client = world.client();
    for _ in 0..3 {
        assert_eq!(run(&mut client, JOIN, 49), ["v49 10"]);
    }
    client.ok("BEGIN");
    client.ok("INSERT INTO b VALUES (501, 50)");
    assert_eq!(run(&mut client, JOIN, 49), ["v49 11"]);
    client.ok("ROLLBACK");
    assert_eq!(run(&mut client, JOIN, 49), ["v49 10"]);
    world.client().ok("DELETE FROM b WHERE a = 50");
    assert_eq!(run(&mut client, JOIN, 49), ["v49 0"]);
}

#[test]
fn what_planning_looks_at_makes_new_plans() {
    let world = world();
    let mut client = world.client();
    for _ in 0..3 {
        run(&mut client, JOIN, 1);
    }
    client.ok("ANALYZE a");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 1))), 1, "statistics");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 2))), 0);
    client.ok("CREATE INDEX ON a (v)");
    run(&mut client, JOIN, 1);
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 2))), 1, "DDL");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 3))), 0);
    client.ok("SET timezone = 'Europe/Berlin'");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 3))), 1, "the zone");
    client.ok("SET max_parallel_workers_per_gather = 0");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 3))), 1, "workers");
    client.ok("INSERT INTO b SELECT n, 1 FROM generate_series(1000, 9000) AS n");
    assert_eq!(plannings(&mut client, |c| drop(run(c, JOIN, 3))), 1, "a table that grew");
}

#[test]
fn a_limit_has_a_plan_for_each_of_a_few_values() {
    let world = world();
    let mut client = world.client();
    let sql = "SELECT a.id FROM a, b WHERE b.a > a.id ORDER BY a.id, b.id LIMIT $1";
    for limit in [1, 3, 1, 3, 1, 3] {
        assert_eq!(run(&mut client, sql, limit).len(), limit as usize);
    }
    let again = plannings(&mut client, |c| {
        for limit in [3, 1, 3, 1] {
            assert_eq!(run(c, sql, limit).len(), limit as usize);
        }
    });
    assert_eq!(again, 0);
}

#[test]
fn what_knows_the_time_is_planned_each_time() {
    let world = world();
    let mut client = world.client();
    let sql = "SELECT count(b.id) FROM a LEFT JOIN b ON b.a > a.id WHERE a.id > $1 AND now() > '2000-01-01'";
    let planned = plannings(&mut client, |c| {
        for value in 40..45 {
            let met: usize = (value as usize + 1..50).map(|id| (id..50).count() * 10).sum();
            assert_eq!(run(c, sql, value), [met.to_string()]);
        }
    });
    assert_eq!(planned, 5);
}

#[test]
fn a_plan_knows_the_settings_of_no_other_session() {
    let world = world();
    world.client().ok("CREATE VIEW own AS SELECT a.id FROM a WHERE a.id % 10 = current_setting('app.t')::int");
    let (mut one, mut two) = (world.client(), world.client());
    one.ok("SET app.t = '5'");
    two.ok("SET app.t = '7'");
    let filtered = "SELECT count(*), min(a.id) FROM a
        WHERE a.id % 10 = current_setting('app.t')::int AND a.id IN (SELECT id FROM b) AND a.id > $1";
    let shown = "SELECT DISTINCT current_setting('app.t') FROM a WHERE a.id IN (SELECT id FROM b) AND a.id > $1";
    let viewed = "SELECT count(*), min(id) FROM own WHERE id IN (SELECT id FROM b) AND id > $1";
    for _ in 0..3 {
        for (client, setting) in [(&mut one, 5), (&mut two, 7)] {
            assert_eq!(run(client, filtered, 0), [format!("5 {setting}")]);
            assert_eq!(run(client, shown, 0), [setting.to_string()]);
            assert_eq!(run(client, viewed, 0), [format!("5 {setting}")]);
        }
    }
    one.ok("SET app.t = '3'");
    assert_eq!(run(&mut one, filtered, 0), ["5 3"]);
    let schema = "SELECT DISTINCT current_schema() FROM public.a WHERE id IN (SELECT id FROM public.b) AND id > $1";
    world.client().ok("CREATE SCHEMA other");
    two.ok("SET search_path = other, public");
    for _ in 0..3 {
        assert_eq!(run(&mut one, schema, 0), ["public"]);
        assert_eq!(run(&mut two, schema, 0), ["other"]);
    }
}

#[test]
fn a_few_rows_look_up_those_of_a_large_table() {
    let world = world();
    world.client().ok("CREATE TABLE big (id int PRIMARY KEY, b int, w int)");
    world.client().ok("INSERT INTO big SELECT n, n % 500 + 1, n FROM generate_series(1, 20000) AS n");
    world.client().ok("CREATE INDEX big_b ON big (b)");
    let mut client = world.client();
    client.ok("SET freshet.road = query");
    let explained = |client: &mut Client, sql: &str| {
        client.ok(&format!("EXPLAIN (COSTS OFF) {sql}"));
        let lines = (0..client.rows.len()).map(|row| client.rows.display(row, 0).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    };
    for (sql, expected) in [
        ("SELECT count(*) FROM b JOIN big ON big.b = b.id WHERE b.a = 7", 400),
        ("SELECT count(*) FROM b LEFT JOIN big ON big.b = b.id AND big.w > 10000 WHERE b.a = 7", 200),
        ("SELECT count(*) FROM b WHERE b.a = 7 AND EXISTS (SELECT 1 FROM big WHERE big.b = b.id)", 10),
        (
            "SELECT count(*) FROM b WHERE b.a = 7 AND NOT EXISTS (SELECT 1 FROM big WHERE big.b = b.id AND big.w > 19700)",
            4,
        ),
        ("SELECT count(*) FROM big WHERE big.b IN (SELECT id FROM b WHERE a = 7)", 400),
        // Groups that few rows ask for.
        (
            "SELECT sum(n)::int FROM (SELECT (SELECT count(*) FROM big WHERE big.b = b.id) AS n FROM b WHERE b.a = 7) s",
            400,
        ),
        ("SELECT count(*) FROM b WHERE b.a = 7 AND (SELECT max(w) FROM big WHERE big.b = b.id) > 19700", 6),
        (
            "SELECT sum(n)::int FROM b, LATERAL (SELECT count(*) AS n FROM big WHERE big.b = b.id AND w > 10000) s WHERE b.a = 7",
            200,
        ),
        (
            "SELECT sum(n)::int FROM (SELECT (SELECT count(*) FROM big WHERE big.b = b.id) AS n FROM b ORDER BY a, id LIMIT 3) s",
            120,
        ),
    ] {
        let plan = explained(&mut client, sql);
        assert!(plan.contains("Index Scan using big_b on big"), "{sql}: {plan}");
        assert_eq!(client.number(sql), Some(expected), "{sql}: {plan}");
    }
}

#[test]
fn the_first_plan_after_a_restart_knows_its_tables() {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let open = || Database::open(Options::small(dir.path())).expect("the database opens");
    // Without statistics the indexes are alike: one of the tables would be read by its worse one.
    let tables = [("one", ["kind", "code"]), ("two", ["code", "kind"])];
    let by_code = |db: &Database| {
        let mut client = Client { session: db.sql_session().expect("a session"), rows: RowSet::default() };
        for (table, _) in tables {
            client.ok(&format!("EXPLAIN (COSTS OFF) SELECT id FROM {table} WHERE kind = 1 AND code = 7"));
            let plan = client.rows.display(0, 0).unwrap_or_default();
            assert!(plan.contains(&format!("Index Scan using {table}_code on {table}")), "{plan}");
        }
    };
    let db = open();
    let mut session = db.session().expect("a session");
    for (table, indexes) in tables {
        session.run(&format!("CREATE TABLE {table} (id int PRIMARY KEY, kind int, code int)")).expect("creates");
        for column in indexes {
            session.run(&format!("CREATE INDEX {table}_{column} ON {table} ({column})")).expect("creates");
        }
        let rows = format!("INSERT INTO {table} SELECT n, n % 2, n % 1000 FROM generate_series(1, 5000) AS n");
        session.run(&rows).expect("inserts");
    }
    session.run("ANALYZE").expect("samples");
    by_code(&db);
    drop((session, db));
    by_code(&open());
}

/// What is found along an index by conditions that say nothing of the other table is hashed, not gone through for each of the other's rows, whether the
/// rows were counted or not; unless that is a handful.
#[test]
fn a_range_is_not_gone_through_for_each_row_of_a_join() {
    let world = world();
    let mut client = world.client();
    client.ok("INSERT INTO a SELECT n, 'v' || n FROM generate_series(51, 2000) AS n");
    client.ok("INSERT INTO b SELECT n, n % 50 + 1 FROM generate_series(501, 2000) AS n");
    for counts in ["SELECT 1", "ANALYZE"] {
        client.ok(counts);
        for (sql, is_compiled) in [
            ("SELECT count(*) FROM a, b WHERE length(a.v) = b.a AND a.id < 1000", false),
            ("SELECT count(*) FROM a JOIN b ON length(a.v) = b.a WHERE b.id > 500", false),
            ("SELECT count(*) FROM a JOIN b ON a.id = b.a WHERE b.id > 500", true),
            ("SELECT count(*) FROM a, b WHERE length(a.v) = b.a AND a.id = 7 AND b.id < 9", true),
        ] {
            client.ok(&format!("EXPLAIN {sql}"));
            let lines = (0..client.rows.len()).filter_map(|row| client.rows.display(row, 0));
            assert_eq!(lines.into_iter().any(|line| line == "Road: compiled"), is_compiled, "{counts}: {sql}");
        }
    }
}

/// The lines of EXPLAIN on the query road.
fn explained(client: &mut Client, how: &str, sql: &str) -> Vec<String> {
    client.ok("SET freshet.road = 'query'");
    client.ok(&format!("EXPLAIN ({how}) {sql}"));
    (0..client.rows.len()).map(|row| client.rows.display(row, 0).unwrap_or_default().trim().to_owned()).collect()
}

fn ticks() -> World {
    let world = World::new(
        "CREATE TABLE ticks (id int PRIMARY KEY, sym text NOT NULL, ts timestamp, price int);
         CREATE INDEX ticks_at ON ticks (sym, ts);
         CREATE INDEX ticks_price ON ticks (price);
         CREATE TABLE orders (id int PRIMARY KEY, sym text, ts timestamp, qty bigint)",
    );
    let mut client = world.client();
    client
        .ok("INSERT INTO ticks SELECT n, 's' || n % 20, timestamp '2026-01-05 09:00' + n * interval '1 second', n % 97
               FROM generate_series(1, 4000) n");
    client.ok("INSERT INTO orders SELECT n, 's' || n % 25, timestamp '2026-01-05 09:00' + n * interval '37 seconds', n
               FROM generate_series(1, 100) n");
    client.ok("ANALYZE");
    world
}

#[test]
fn first_rows_are_read_in_the_order_of_an_index_where_that_costs_less() {
    let world = ticks();
    let mut client = world.client();
    let forward = "Index Scan using ticks_at on ticks";
    let backward = "Index Scan Backward using ticks_at on ticks";
    for (what, scan, sorts) in [
        ("WHERE sym = 's3' ORDER BY ts LIMIT 2", forward, false),
        ("WHERE sym = 's3' ORDER BY ts DESC LIMIT 2", backward, false),
        ("WHERE sym = 's3' ORDER BY sym, ts DESC LIMIT 2", backward, false),
        ("ORDER BY sym DESC, ts DESC LIMIT 2 OFFSET 3", backward, false),
        ("ORDER BY price DESC LIMIT 2", "Index Scan Backward using ticks_price on ticks", false),
        ("WHERE id % 3 = 0 ORDER BY price LIMIT 2", "Index Scan using ticks_price on ticks", false),
        // No index has its order.
        ("WHERE sym = 's3' ORDER BY ts DESC NULLS LAST LIMIT 2", forward, true),
        ("ORDER BY sym, ts DESC LIMIT 2", "Seq Scan on ticks", true),
        ("WHERE sym > 's3' ORDER BY ts LIMIT 2", forward, true),
        // All rows are found and sorted for less.
        ("WHERE id < 5 ORDER BY price LIMIT 2", "Index Scan using ticks_pkey on ticks", true),
        ("WHERE id BETWEEN 5 AND 7 ORDER BY price LIMIT 2", "Index Scan using ticks_pkey on ticks", true),
        ("ORDER BY sym, ts LIMIT 3000", "Seq Scan on ticks", true),
        // All of them are asked for.
        ("WHERE sym = 's3' ORDER BY ts", forward, true),
    ] {
        let sql = format!("SELECT * FROM (SELECT price, sym FROM ticks {what}) x WHERE price > -1");
        let lines = explained(&mut client, "COSTS OFF", &sql);
        assert!(lines.iter().any(|line| line.trim_start_matches("->  ") == scan), "{what}: {lines:#?}");
        assert_eq!(lines.iter().any(|line| line.contains("Sort")), sorts, "{what}: {lines:#?}");
    }
}

#[test]
fn first_rows_of_a_large_table_are_not_read_in_parts() {
    let world = World::new("CREATE TABLE h (id int PRIMARY KEY, k int); CREATE INDEX h_k ON h (k, id)");
    let mut client = world.client();
    client.ok("INSERT INTO h SELECT n, n % 1000 FROM generate_series(1, 120000) n");
    client.ok("ANALYZE");
    for what in [
        "id FROM h ORDER BY k DESC LIMIT 5",
        "* FROM h ORDER BY k DESC LIMIT 5",
        "k + 1 FROM h ORDER BY k DESC LIMIT 5",
    ] {
        let lines = explained(&mut client, "COSTS OFF", &format!("SELECT {what}"));
        let scan = "->  Index Scan Backward using h_k on h";
        assert!(lines.iter().any(|line| line == scan), "{what}: {lines:#?}");
    }
}

#[test]
fn the_least_and_the_greatest_are_first_rows() {
    let world = ticks();
    let mut client = world.client();
    client.ok("INSERT INTO ticks VALUES (9001, 's3', NULL, NULL), (9002, 'none', NULL, 5)");
    let (forward, backward) = ("Index Scan using ticks_at on ticks", "Index Scan Backward using ticks_at on ticks");
    for (what, scan, value) in [
        ("max(id) FROM ticks", "Index Scan Backward using ticks_pkey on ticks", Some("9002")),
        ("min(ts) FROM ticks WHERE sym = 's3'", forward, Some("2026-01-05 09:00:03")),
        ("min(ts) FROM ticks WHERE sym = 'none'", forward, None),
        ("max(ts) FROM ticks WHERE sym = 's3' AND ts < '2026-01-05 09:00:40'", backward, Some("2026-01-05 09:00:23")),
        // Nulls would come first.
        ("max(ts) FROM ticks WHERE sym = 's3'", forward, Some("2026-01-05 10:06:23")),
        ("max(price) FROM ticks", "Seq Scan on ticks", Some("96")),
        ("max(price + 1) FROM ticks", "Seq Scan on ticks", Some("97")),
    ] {
        let sql = format!("SELECT {what}");
        let lines = explained(&mut client, "COSTS OFF", &sql);
        assert!(lines.iter().any(|line| line.trim_start_matches("->  ") == scan), "{what}: {lines:#?}");
        client.ok(&sql);
        assert_eq!(client.rows.display(0, 0).as_deref(), value, "{what}");
    }
}

#[test]
fn a_condition_that_holds_for_no_row_reads_none() {
    let world = ticks();
    let mut client = world.client();
    for condition in ["price = NULL", "price > NULL AND id < 9", "id = ANY (ARRAY[]::int[])", "id = NULL OR sym < NULL"]
    {
        let lines = explained(&mut client, "COSTS OFF", &format!("SELECT count(*) FROM ticks WHERE {condition}"));
        assert!(lines.iter().all(|line| !line.contains("Scan")), "{condition}: {lines:#?}");
        client.ok(&format!("SELECT count(*) FROM ticks WHERE {condition}"));
        assert_eq!(client.rows.display(0, 0).as_deref(), Some("0"), "{condition}");
    }
    // A null of one run is not one of the next.
    let sql = "SELECT count(*) FROM ticks t JOIN orders o ON o.sym = t.sym WHERE t.id = nullif($1, 3)";
    for value in [1, 1, 1, 3, 1, 3] {
        let met = if value == 3 { "0" } else { "4" };
        assert_eq!(run(&mut client, sql, value), [met], "{value}");
    }
}

#[test]
fn a_subquery_that_runs_for_each_row_is_planned_for_all_of_them() {
    let world = ticks();
    let mut client = world.client();
    let kept = ["Subquery Runs: 100", "Subquery Plans: 2"];
    let for_each = ["Subquery Runs: 100", "Subquery Plans: 101"];
    for (subquery, counts) in [
        ("SELECT price FROM ticks t WHERE t.sym = o.sym AND t.ts <= o.ts ORDER BY t.ts DESC LIMIT 1", kept),
        ("SELECT price FROM ticks t WHERE t.sym = o.sym AND t.ts > o.ts - interval '9 s' ORDER BY t.ts LIMIT 1", kept),
        (
            "SELECT sum(price * o.qty) FROM (SELECT price FROM ticks t WHERE t.sym = o.sym AND t.ts <= o.ts
          ORDER BY t.ts DESC LIMIT 3) x",
            kept,
        ),
        (
            "SELECT price FROM ticks t WHERE t.sym = nullif(o.sym, 's' || o.qty) AND t.id + 1 > o.qty ORDER BY t.ts LIMIT 1",
            for_each,
        ),
        (
            "SELECT price FROM ticks t WHERE t.sym = nullif(o.sym, 's' || o.qty) AND t.id > o.id ORDER BY t.ts LIMIT 1",
            kept,
        ),
        ("SELECT max(t.ts) FROM ticks t WHERE t.sym = o.sym AND t.ts <= o.ts", kept),
        // An integer and a wider one.
        ("SELECT price FROM ticks t WHERE t.id = o.qty ORDER BY t.ts LIMIT 1", kept),
        ("SELECT price FROM ticks t WHERE t.id IN (o.qty, o.id + 1) ORDER BY t.ts LIMIT 1", kept),
    ] {
        let lines = explained(&mut client, "ANALYZE, COSTS OFF", &format!("SELECT ({subquery}) FROM orders o"));
        for count in counts {
            assert!(lines.iter().any(|line| line == count), "{subquery}: {lines:#?}");
        }
    }
}

/// Floats and numbers without a scale are compared by keys, integers with fractions as wider numbers.
#[test]
fn values_that_are_written_in_several_ways_are_keys_of_an_index() {
    let world = World::new(
        "CREATE TABLE quotes (id int PRIMARY KEY, f float8, n numeric, d numeric(12,2), i int, day date);
         CREATE INDEX quotes_f ON quotes (f); CREATE INDEX quotes_n ON quotes (n, id);
         CREATE INDEX quotes_d ON quotes (d); CREATE INDEX quotes_i ON quotes (i); CREATE INDEX quotes_day ON quotes (day);
         CREATE TABLE asks (id int PRIMARY KEY, f float8, n numeric, d numeric(14,4), b bigint, ts timestamp)",
    );
    let mut client = world.client();
    client.ok("INSERT INTO quotes SELECT k, k / 4.0, k / 4.0, k / 8.0, k, date '2026-01-01' + k % 365
               FROM generate_series(1, 4000) k");
    client.ok("INSERT INTO asks SELECT k, k * 11.3, k * 11.3, k * 5.0025, k * 37, timestamp '2026-01-01' + k * interval '9 hours'
               FROM generate_series(1, 100) k");
    client.ok("ANALYZE");
    for (condition, index) in [
        ("q.f > 990.5", "quotes_f"),
        ("q.n = 12.50", "quotes_n"),
        ("q.n IN (1, 12.50)", "quotes_n"),
        ("q.d > 499.001", "quotes_d"),
        ("q.i > 3990.5", "quotes_i"),
        ("q.day = timestamp '2026-01-05'", "quotes_day"),
    ] {
        let sql = format!("SELECT * FROM quotes q JOIN asks a ON a.id < 3 AND q.id >= a.id WHERE {condition}");
        let lines = explained(&mut client, "COSTS OFF", &sql);
        let scan = format!("Index Scan using {index} on quotes");
        assert!(lines.iter().any(|line| line.contains(&scan)), "{condition}: {lines:#?}");
    }
    for (order, index) in [("f", "quotes_f"), ("n, id", "quotes_n")] {
        let lines = explained(&mut client, "COSTS OFF", &format!("SELECT id FROM quotes q ORDER BY {order} LIMIT 3"));
        let scan = format!("->  Index Scan using {index} on quotes");
        assert!(lines.contains(&scan), "{order}: {lines:#?}");
    }
    for subquery in [
        "SELECT id FROM quotes q WHERE q.f <= a.f ORDER BY q.f DESC LIMIT 1",
        "SELECT id FROM quotes q WHERE q.n <= a.n ORDER BY q.n DESC, q.id DESC LIMIT 1",
        "SELECT id FROM quotes q WHERE q.d <= a.d ORDER BY q.d DESC LIMIT 1",
        "SELECT id FROM quotes q WHERE q.f <= a.b AND q.f > a.b - 10 ORDER BY q.f DESC LIMIT 1",
        "SELECT id FROM quotes q WHERE q.i > a.n ORDER BY q.i LIMIT 1",
        "SELECT id FROM quotes q WHERE q.day >= a.ts ORDER BY q.day LIMIT 1",
    ] {
        let lines = explained(&mut client, "ANALYZE, COSTS OFF", &format!("SELECT ({subquery}) FROM asks a"));
        assert!(lines.iter().any(|line| line == "Subquery Plans: 2"), "{subquery}: {lines:#?}");
    }
    // Half of an integer equals none: such a row is planned by itself.
    client.ok("SELECT sum((SELECT q.id FROM quotes q WHERE q.i = a.n ORDER BY q.i LIMIT 1)) FROM asks a WHERE a.id IN (1, 10, 20, 25)");
    assert_eq!(client.rows.display(0, 0).as_deref(), Some("339"));
}

#[test]
fn a_subquery_within_another_keeps_its_plan_for_the_rows_around_both() {
    let world = ticks();
    let mut client = world.client();
    let within =
        "SELECT u.price FROM ticks u WHERE u.sym = t.sym AND u.ts > t.ts AND u.id > o.id ORDER BY u.ts LIMIT 1";
    let subquery = format!(
        "SELECT max(({within})) FROM (SELECT * FROM ticks t WHERE t.sym = o.sym AND t.ts <= o.ts ORDER BY t.ts DESC LIMIT 4) t"
    );
    let sql = format!("SELECT sum(({subquery})) FROM orders o");
    let lines = explained(&mut client, "ANALYZE, COSTS OFF", &sql);
    assert!(lines.iter().any(|line| line == "Subquery Plans: 2"), "{lines:#?}");
}

#[test]
fn a_plan_says_what_it_computes_by_names_and_values() {
    let world = World::new(
        "CREATE TABLE t (id int PRIMARY KEY, s text, d date, n numeric, m numeric(10,2), f float8, iv interval,
                         na numeric[], ia interval[], j jsonb);
         CREATE TABLE u (id int PRIMARY KEY, t int, s text, f float8)",
    );
    let mut client = world.client();
    for (sql, line) in [
        ("SELECT * FROM t WHERE s = 'it''s'", "Filter: (s = 'it''s')"),
        ("SELECT * FROM t WHERE d > '2026-01-05'", "Filter: (d > 2026-01-05)"),
        ("SELECT * FROM t WHERE n > 12.5", "Filter: (n > 12.5)"),
        ("SELECT * FROM t WHERE m < 3", "Filter: (m < 3.00)"),
        ("SELECT * FROM t WHERE 1.5 = f", "Filter: (1.5 = f)"),
        ("SELECT * FROM t WHERE iv <> '1 day'", "Filter: (iv <> '1 day')"),
        ("SELECT * FROM t WHERE id IN (1, 2) AND id + 1 > 2", "Filter: ((id + 1) > 2)"),
        ("SELECT * FROM t WHERE NOT (m = 3 OR s IS NULL)", "Filter: ((m <> 3.00) AND (s IS NOT NULL))"),
        ("SELECT * FROM t JOIN u ON t.id = u.t AND t.f > u.f", "Join Filter: (f > f)"),
        (
            "SELECT * FROM t JOIN u ON t.id = u.t AND 1 / t.id > u.id AND t.s || u.s = 'ab'",
            "Join Filter: (((1 / id) > id) AND ((s || s) = 'ab'))",
        ),
        (
            "SELECT s, count(*) FROM t GROUP BY s HAVING count(*) > 3 AND max(d) > '2026-01-01'",
            "Filter: ((a0 > 3) AND (a1 > 2026-01-01))",
        ),
        ("SELECT * FROM t WHERE n IN (1, 2.50)", "Filter: (n IN (1, 2.50))"),
        ("SELECT * FROM t WHERE na IN ('{1.5}', '{2}')", "Filter: (na IN ('...'::numeric[], '...'::numeric[]))"),
        ("SELECT * FROM t WHERE j IN ('{\"a\":1.0}', '[1.50]')", "Filter: (j IN ('...'::jsonb, '...'::jsonb))"),
        (
            "SELECT * FROM t WHERE ia IN ('{1 day}', '{2 days}')",
            "Filter: (ia IN ('...'::interval[], '...'::interval[]))",
        ),
        ("SELECT * FROM t WHERE n = ALL ('{1.50,1.5}')", "Filter: (n = ALL ('{1.50,1.5}'))"),
    ] {
        let lines = explained(&mut client, "COSTS OFF", sql);
        assert!(lines.iter().any(|found| found == line), "{sql}: {lines:#?}");
    }
}
