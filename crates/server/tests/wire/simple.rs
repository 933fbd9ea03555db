//! The simple protocol: scripts, their implicit transaction, errors and notices.

use crate::client::{Client, Reply, query};
use crate::connect;

#[test]
fn rows_come_with_their_description() {
    let mut client = connect();
    client.query("create table simple_rows(id int primary key, name text)");
    assert_eq!(
        client.query("insert into simple_rows values (1, 'one'), (2, null)"),
        [Reply::Complete("INSERT 0 2".into()), Reply::Ready('I')]
    );
    assert_eq!(
        client.query("select id, name from simple_rows order by id"),
        [
            Reply::Columns(vec![("id".into(), 23, 0), ("name".into(), 25, 0)]),
            Reply::Row(vec![Some(b"1".to_vec()), Some(b"one".to_vec())]),
            Reply::Row(vec![Some(b"2".to_vec()), None]),
            Reply::Complete("SELECT 2".into()),
            Reply::Ready('I'),
        ]
    );
    assert_eq!(
        client.query("update simple_rows set name = 'x' where id = 9"),
        [Reply::Complete("UPDATE 0".into()), Reply::Ready('I')]
    );
    assert_eq!(
        client.query("delete from simple_rows where id = 1"),
        [Reply::Complete("DELETE 1".into()), Reply::Ready('I')]
    );
}

/// Each session calls the database as it likes, and so a name that begins with another's is refused; what is kept has none.
#[test]
fn what_one_session_defines_by_the_databases_name_another_reads_by_its_own() {
    let mut client = connect();
    client.query("create schema named; create sequence named.s");
    let defined = "create table test.named.t (id int primary key default nextval('test.named.s'), v int check (test.named.t.v > 0), \
         w int generated always as (test.named.t.v + 1) stored)";
    for text in [
        defined,
        "insert into test.named.t (v) values (1), (2)",
        "create view test.named.v as select test.named.t.id, t.w from test.named.t where test.named.t.v > 1",
        "create view named.counted as select (select count(*) from test.named.t as o where o.v <= test.named.t.v) from test.named.t",
        "create index on test.named.t (w) where v > 1",
    ] {
        let replies = client.query(text);
        assert!(matches!(replies.last(), Some(Reply::Ready('I'))) && replies.len() == 2, "{text}: {replies:?}");
    }
    assert_eq!(client.sqlstate("select * from other.named.v"), "0A000");
    let mut other = Client::open(client.server_address());
    other.start(&[("user", "tester"), ("database", "other")]);
    other.until_ready();
    // Not by the plan of who may, either.
    assert_eq!(client.value("select w from test.named.v"), "3");
    assert_eq!(other.sqlstate("select w from test.named.v"), "0A000");
    assert_eq!(other.value("select w from other.named.v"), "3");
    assert_eq!(other.value("select sum(count) from named.counted"), "3");
    assert_eq!(other.value("insert into other.named.t (v) values (7) returning other.named.t.id + w"), "11");
    assert_eq!(other.sqlstate("insert into named.t (v) values (0)"), "23514");
    // Whichever thread plans and runs it, and what that has planned before: more sessions than there are workers.
    let joined = |of: &str| format!("select count(*) from {of}.named.t a full join {of}.named.t b on a.v < b.v");
    let connected = |name: &'static str| {
        let mut session = Client::open(client.server_address());
        session.start(&[("user", "tester"), ("database", name)]);
        session.until_ready();
        (name, session)
    };
    let mut sessions = ["alpha", "beta", "gamma", "delta", "epsilon"].map(connected);
    for _ in 0..50 {
        sessions.iter_mut().for_each(|(name, session)| session.send(&query(&joined(name))));
        for (name, session) in &mut sessions {
            let replies = session.until_ready();
            assert!(replies.contains(&Reply::Complete("SELECT 1".into())), "{name}: {replies:?}");
        }
    }
}

/// The statement before it may hold its worker for a moment only; that is over for one which runs elsewhere.
#[test]
fn analyze_takes_as_long_as_it_takes() {
    let mut client = connect();
    client.query("create table simple_analyze(id int primary key, name text)");
    client.query("insert into simple_analyze select g, repeat('x', g % 50) || g from generate_series(1, 20000) g");
    assert_eq!(client.value("select name from simple_analyze where id = 1"), "x1");
    assert_eq!(client.query("vacuum analyze simple_analyze"), [Reply::Complete("VACUUM".into()), Reply::Ready('I')]);
    assert_eq!(client.value("select count(*) from simple_analyze"), "20000");
}

#[test]
fn rows_without_columns_are_rows() {
    let mut client = connect();
    client.query("create table simple_bare(id int primary key)");
    client.query("insert into simple_bare values (1), (2)");
    for query in
        ["select from simple_bare", "select from generate_series(1, 1) union all select from simple_bare where id = 1"]
    {
        let [columns, rows @ .., complete, ready] = &client.query(query)[..] else { panic!("{query}") };
        assert_eq!(
            (columns, complete, ready),
            (&Reply::Columns(vec![]), &Reply::Complete("SELECT 2".into()), &Reply::Ready('I'))
        );
        assert_eq!(rows, [Reply::Row(vec![]), Reply::Row(vec![])], "{query}");
    }
    assert_eq!(client.query("delete from simple_bare"), [Reply::Complete("DELETE 2".into()), Reply::Ready('I')]);
}

#[test]
fn nothing_to_do_is_an_empty_query() {
    let mut client = connect();
    for script in ["", " ;; ", "-- a comment", "/* another */"] {
        assert_eq!(client.query(script), [Reply::EmptyQuery, Reply::Ready('I')], "{script:?}");
    }
}

#[test]
fn a_script_is_one_transaction() {
    let mut client = connect();
    client.query("create table simple_script(id int primary key)");
    let replies = client.query(
        "insert into simple_script values (1); insert into simple_script values (1); insert into simple_script values (2)",
    );
    assert_eq!(replies[0], Reply::Complete("INSERT 0 1".into()));
    assert!(matches!(&replies[1], Reply::Error(_, state, _) if state == "23505"));
    assert_eq!(replies[2..], [Reply::Ready('I')], "the rest does not run");
    assert_eq!(client.value("select count(*) from simple_script"), "0");

    let replies = client.query("insert into simple_script values (1); commit; insert into simple_script values (1)");
    assert!(replies.contains(&Reply::Complete("COMMIT".into())), "{replies:?}");
    assert_eq!(client.value("select count(*) from simple_script"), "1");
}

#[test]
fn a_script_is_read_whole_before_it_runs() {
    let mut client = connect();
    client.query("create table simple_whole(id int primary key)");
    let replies =
        client.query("insert into simple_whole values (1); commit; selec 1; insert into simple_whole values (2)");
    assert!(matches!(&replies[..], [Reply::Error(_, state, _), Reply::Ready('I')] if state == "42601"), "{replies:?}");
    assert_eq!(client.value("select count(*) from simple_whole"), "0");
    // What is not there yet may be named.
    let replies =
        client.query("create table simple_later(id int); insert into simple_later values (1); select * from nowhere");
    assert_eq!(replies[..2], [Reply::Complete("CREATE TABLE".into()), Reply::Complete("INSERT 0 1".into())]);
    assert!(matches!(&replies[2], Reply::Error(_, state, _) if state == "42P01"), "{replies:?}");
}

#[test]
fn the_status_follows_the_transaction() {
    let mut client = connect();
    client.query("create table simple_status(id int primary key)");
    assert_eq!(client.query("begin"), [Reply::Complete("BEGIN".into()), Reply::Ready('T')]);
    assert_eq!(
        client.query("insert into simple_status values (1)"),
        [Reply::Complete("INSERT 0 1".into()), Reply::Ready('T')]
    );
    let failed = client.query("select no_such_column from simple_status");
    assert!(matches!(&failed[0], Reply::Error(_, state, _) if state == "42703"));
    assert_eq!(failed[1], Reply::Ready('E'));
    assert_eq!(client.sqlstate("select 1"), "25P02");
    assert_eq!(client.query("commit"), [Reply::Complete("ROLLBACK".into()), Reply::Ready('I')]);
    assert_eq!(client.value("select count(*) from simple_status"), "0");
    let replies = client.query("rollback");
    assert!(matches!(&replies[0], Reply::Notice(state, _) if state == "25P01"));
    assert_eq!(replies[1..], [Reply::Complete("ROLLBACK".into()), Reply::Ready('I')]);
}

#[test]
fn changed_settings_are_told_once() {
    let mut client = connect();
    assert_eq!(
        client.query("set application_name = 'a b'"),
        [Reply::Complete("SET".into()), Reply::Parameter("application_name".into(), "a b".into()), Reply::Ready('I'),]
    );
    assert_eq!(client.query("select 1").len(), 4);
}

/// Rows beyond what a session may hold unsent, to a client that reads late.
#[test]
fn large_results_flow() {
    let mut client = connect();
    client.send(&query("select x, x * 2 from generate_series(1, 50000) as t(x)"));
    let replies = client.until_ready();
    let rows = replies.iter().filter(|r| matches!(r, Reply::Row(_)));
    assert_eq!(rows.count(), 50_000);
    assert_eq!(replies[replies.len() - 2..], [Reply::Complete("SELECT 50000".into()), Reply::Ready('I')]);
}

#[test]
fn text_that_is_not_utf8_is_an_error_of_the_statement() {
    let mut client = connect();
    client.send(b"Q\0\0\0\x0fselect '\xff'\0");
    let replies = client.until_ready();
    assert!(matches!(&replies[0], Reply::Error(severity, state, _)
        if severity == "ERROR" && state == "22021"));
    assert_eq!(client.value("select 1"), "1");
}

/// Texts that differ in their values alone are planned once; what they mean is what they say.
#[test]
fn values_in_the_text_keep_their_types() {
    let mut client = connect();
    client.query("create table simple_values(id bigint primary key, s smallint, n numeric(6,2), c char(4), v varchar(3), d date)");
    for id in [1i32, 2, -3] {
        let insert = format!("insert into simple_values values ({id}, {id}, {id}, 'a', 'it', '2026-01-0{}')", id.abs());
        assert_eq!(client.query(&insert)[0], Reply::Complete("INSERT 0 1".into()));
    }
    for (sql, value) in [
        ("select n from simple_values where id = 2", "2.00"),
        ("select n from simple_values where id = -3", "-3.00"),
        ("select d from simple_values where id = 1", "2026-01-01"),
        ("select count(*) from simple_values where id = 3000000000", "0"),
        ("select count(*) from simple_values where s = 100000", "0"),
        ("select pg_typeof(s + 1) from simple_values where id = 1", "integer"),
        ("select pg_typeof(s + 3000000000) from simple_values where id = 1", "bigint"),
        ("select n / 2 from simple_values where id = 1", "0.50000000000000000000"),
        ("select id / 2 from simple_values where id = -3", "-1"),
    ] {
        // The second time the plan is there.
        assert_eq!(client.value(sql), value, "{sql}");
        assert_eq!(client.value(sql), value, "{sql}");
    }
    for (sql, state) in [
        ("update simple_values set s = 100000 where id = 1", "22003"),
        ("update simple_values set s = 100000 where id = 1", "22003"),
        ("update simple_values set v = 'long' where id = 1", "22001"),
        ("update simple_values set v = 'long' where id = 1", "22001"),
        ("update simple_values set d = 'never' where id = 1", "22007"),
        ("insert into simple_values values (1, 1, 1, 'a', 'b', '2026-01-01')", "23505"),
        ("insert into simple_values values (99999999999999999999, 1, 1, 'a', 'b', '2026-01-01')", "22003"),
    ] {
        assert_eq!(client.sqlstate(sql), state, "{sql}");
    }
    assert_eq!(
        client.query("update simple_values set v = 'x  ', n = 7 where id = 2")[0],
        Reply::Complete("UPDATE 1".into())
    );
    assert_eq!(client.value("select '[' || v || ']' || n from simple_values where id = 2"), "[x  ]7.00");
}

#[test]
fn a_session_that_ends_itself_says_nothing_else() {
    let mut client = connect();
    let end =
        ("FATAL".to_owned(), "57P01".to_owned(), "terminating connection due to administrator command".to_owned());
    let end = Reply::Error(end.0, end.1, end.2);
    assert_eq!(client.query("select pg_terminate_backend(pg_backend_pid())"), [end, Reply::Closed]);
    let mut client = connect();
    client.query("create table simple_end(i int)");
    let replies = client.query("insert into simple_end select 1 where pg_terminate_backend(pg_backend_pid())");
    assert_eq!(replies.last(), Some(&Reply::Closed));
    assert_eq!(connect().value("select count(*) from simple_end"), "0", "its statement is undone");
}

#[test]
fn a_parameter_of_nobody_is_shown_where_it_stands() {
    let mut client = connect();
    client.send(&query("select $2"));
    let (kind, body) = client.read_raw();
    let text = String::from_utf8_lossy(&body);
    assert_eq!(kind, b'E');
    assert!(text.contains("\0C42P02\0Mthere is no parameter $2\0") && text.contains("\0P8\0"), "{text}");
}

#[test]
fn the_ends_of_a_connection_are_told() {
    let mut client = connect();
    let ask = "select inet_server_addr(), inet_server_port(), inet_client_addr(), inet_client_port()";
    let (server, peer) = (client.server_address(), client.own_address());
    let told = [server.ip().to_string(), server.port().to_string(), peer.ip().to_string(), peer.port().to_string()];
    assert_eq!(client.rows(ask), [told.map(|end| crate::IS_DIRECT.then_some(end))]);
}

#[test]
fn set_to_the_default_is_a_set() {
    let mut client = connect();
    for (statement, tag) in [
        ("set time zone local", "SET"),
        ("set time zone default", "SET"),
        ("set work_mem to default", "SET"),
        ("reset work_mem", "RESET"),
    ] {
        assert!(client.query(statement).contains(&Reply::Complete(tag.into())), "{statement}");
    }
}

/// A result is described once, also where the one before it has filled the output; and a client that is slow gets all rows, each once.
#[test]
fn results_behind_a_full_output_are_described_once() {
    let mut client = connect();
    let long = "select repeat('x', 300000)";
    let replies = client
        .query(&format!("{long}; select 1; {long}; select g, 'row ' || g from generate_series(1, 50000) g; select 2"));
    let described = replies.iter().filter(|reply| matches!(reply, Reply::Columns(_))).count();
    assert_eq!(described, 5);
    let rows: Vec<_> = replies.iter().filter_map(crate::client::text_row).collect();
    assert_eq!(rows.len(), 50_004);
    assert_eq!(rows[0][0].as_ref().map(String::len), Some(300_000));
    assert_eq!(rows[1], [Some("1".to_owned())]);
    for (at, row) in rows[3..50_003].iter().enumerate() {
        assert_eq!(*row, [Some(format!("{}", at + 1)), Some(format!("row {}", at + 1))]);
    }
    assert_eq!(replies.last(), Some(&Reply::Ready('I')));
}

/// What takes longer than a worker has for it runs on a thread of its own, from its beginning, so that it takes nothing of a sequence twice.
#[test]
fn a_long_statement_takes_each_value_of_a_sequence_once() {
    let mut client = connect();
    client.query("create table simple_serial(id serial primary key, x int)");
    for from in [0, 10_000] {
        let insert =
            format!("insert into simple_serial(x) select g from generate_series({}, {}) g", from + 1, from + 10_000);
        assert_eq!(client.query(&insert)[0], Reply::Complete("INSERT 0 10000".into()));
    }
    let values: Vec<String> = (1..=5_000).map(|x| format!("({x})")).collect();
    client.query(&format!("insert into simple_serial(x) values {}", values.join(", ")));
    assert_eq!(client.value("select concat(min(id), ' ', max(id), ' ', count(*)) from simple_serial"), "1 25000 25000");
    assert_eq!(client.value("select count(nextval('simple_serial_id_seq')) from simple_serial"), "25000");
    assert_eq!(client.value("select nextval('simple_serial_id_seq')"), "50001");
}
