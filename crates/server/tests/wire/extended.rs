//! The extended protocol: statements, portals, pipelines.

use crate::client::*;
use crate::connect;

fn sqlstate_if_any(replies: &[Reply]) -> Option<String> {
    replies.iter().any(|reply| matches!(reply, Reply::Error(..))).then(|| sqlstate(replies))
}

fn row(values: &[&str]) -> Reply {
    Reply::Row(values.iter().map(|v| Some(v.as_bytes().to_vec())).collect())
}

#[test]
fn statements_are_described() {
    let mut client = connect();
    client.query("create table ext_describe(id int primary key, name varchar(10), n numeric(9,4))");
    client.send(
        &[
            parse("s", "select name, n from ext_describe where id = $1", &[]),
            describe_statement("s"),
            parse("i", "insert into ext_describe values ($1, $2, $3)", &[20]),
            describe_statement("i"),
            bind_formats("p", "s", &[], &[Some(b"1")], &[0, 1]),
            describe_portal("p"),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(
        client.until_ready(),
        [
            Reply::ParseComplete,
            Reply::Parameters(vec![23]),
            Reply::Columns(vec![("name".into(), 1043, 0), ("n".into(), 1700, 0)]),
            Reply::ParseComplete,
            Reply::Parameters(vec![20, 1043, 1700]),
            Reply::NoData,
            Reply::BindComplete,
            Reply::Columns(vec![("name".into(), 1043, 0), ("n".into(), 1700, 1)]),
            Reply::Ready('I'),
        ]
    );
}

#[test]
fn statements_are_run_again_and_closed() {
    let mut client = connect();
    client.query("create table ext_again(id int primary key, v int)");
    client.send(&[parse("ins", "insert into ext_again values ($1, $2)", &[]), sync()].concat());
    assert_eq!(client.until_ready(), [Reply::ParseComplete, Reply::Ready('I')]);
    for id in ["1", "2", "3"] {
        client.send(&[bind_text("", "ins", &[id, "7"]), execute("", 0), sync()].concat());
        assert_eq!(
            client.until_ready(),
            [Reply::BindComplete, Reply::Complete("INSERT 0 1".into()), Reply::Ready('I')]
        );
    }
    assert_eq!(client.value("select sum(v) from ext_again"), "21");

    client.send(&[close_statement("ins"), close_statement("never was"), sync()].concat());
    assert_eq!(client.until_ready(), [Reply::CloseComplete, Reply::CloseComplete, Reply::Ready('I')]);
    client.send(&[bind_text("", "ins", &["4", "7"]), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "26000");
}

#[test]
fn names_are_checked() {
    let mut client = connect();
    let failures = [
        ([parse("twice", "select 1", &[]), parse("twice", "select 2", &[])].concat(), "42P05"),
        (bind("", "nobody", &[]), "26000"),
        (execute("nobody", 0), "34000"),
        (describe_portal("nobody"), "34000"),
        (describe_statement("nobody"), "26000"),
        ([parse("", "select $1::int", &[]), bind("", "", &[])].concat(), "08P01"),
        ([parse("", "select 1", &[]), bind_formats("", "", &[], &[], &[0, 0])].concat(), "08P01"),
        (parse("", "select 1; select 2", &[]), "42601"),
        (parse("", "select $1", &[600]), "0A000"),
    ];
    for (at, (messages, state)) in failures.into_iter().enumerate() {
        client.send(&[messages, sync()].concat());
        let replies = client.until_ready();
        assert_eq!(sqlstate(&replies), state, "case {at}: {replies:?}");
        assert_eq!(replies.last(), Some(&Reply::Ready('I')));
    }
}

#[test]
fn after_an_error_everything_is_skipped_until_sync() {
    let mut client = connect();
    client.query("create table ext_skip(id int primary key)");
    client.send(
        &[
            run("insert into ext_skip values (1)", &[]),
            run("select 1 / 0 from ext_skip", &[]),
            run("insert into ext_skip values (2)", &[]),
            query("insert into ext_skip values (3)"),
            sync(),
            run("insert into ext_skip values (4)", &[]),
            sync(),
        ]
        .concat(),
    );
    let replies = client.until_ready();
    assert_eq!(
        replies[..4],
        [Reply::ParseComplete, Reply::BindComplete, Reply::Complete("INSERT 0 1".into()), Reply::ParseComplete,]
    );
    assert_eq!(sqlstate(&replies), "22012");
    assert!(matches!(replies[replies.len() - 2], Reply::Error(..)));
    assert_eq!(replies.last(), Some(&Reply::Ready('I')));
    assert_eq!(client.until_ready().last(), Some(&Reply::Ready('I')));
    // The pipeline was one transaction, so that its first insert is undone.
    assert_eq!(client.rows("select id from ext_skip"), [[Some("4".into())]]);
}

#[test]
fn a_pipeline_commits_at_its_sync() {
    let (mut client, mut other) = (connect(), connect());
    client.query("create table ext_pipeline(id int primary key)");
    client.send(
        &[
            run("insert into ext_pipeline values (1)", &[]),
            run("insert into ext_pipeline values (2)", &[]),
            encoded(pgwire::messages::extendedquery::Flush::new()),
        ]
        .concat(),
    );
    for expected in [
        Reply::ParseComplete,
        Reply::BindComplete,
        Reply::Complete("INSERT 0 1".into()),
        Reply::ParseComplete,
        Reply::BindComplete,
        Reply::Complete("INSERT 0 1".into()),
    ] {
        assert_eq!(client.read(), expected);
    }
    assert_eq!(other.value("select count(*) from ext_pipeline"), "0");
    client.send(&sync());
    assert_eq!(client.read(), Reply::Ready('I'));
    assert_eq!(other.value("select count(*) from ext_pipeline"), "2");
}

/// They need no transaction in READ COMMITTED, which is not to be seen.
#[test]
fn reads_by_key_see_what_their_pipeline_sees() {
    let (mut client, mut other) = (connect(), connect());
    client.query("create table ext_look(id int primary key, v int); insert into ext_look values (1, 10), (2, 20)");
    client.send(&[parse("look", "select v from ext_look where id = $1", &[]), sync()].concat());
    client.until_ready();
    let look = |key| [bind_text("", "look", &[key]), execute("", 0)].concat();
    let values =
        |replies: Vec<Reply>| -> Vec<Reply> { replies.into_iter().filter(|r| matches!(r, Reply::Row(_))).collect() };

    let change = run("update ext_look set v = v + 1 where id = 1", &[]);
    client
        .send(&[look("1"), look("2"), change.clone(), look("1"), run("select 1 / 0", &[]), look("1"), sync()].concat());
    let replies = client.until_ready();
    assert_eq!(sqlstate(&replies), "22012");
    assert_eq!(
        values(replies),
        [row(&["10"]), row(&["20"]), row(&["11"])],
        "its own change, and nothing behind the error"
    );
    assert_eq!(other.value("select v from ext_look where id = 1"), "10", "undone");

    let flush = encoded(pgwire::messages::extendedquery::Flush::new());
    for (level, after) in [("read committed", "11"), ("repeatable read", "11"), ("serializable", "12")] {
        client.query(&format!("set default_transaction_isolation = '{level}'"));
        client.send(&[look("1"), flush.clone()].concat());
        let mut first = Vec::new();
        while !matches!(first.last(), Some(Reply::Complete(_))) {
            first.push(client.read());
        }
        other.send(&[change.clone(), sync()].concat());
        other.until_ready();
        client.send(&[look("1"), sync()].concat());
        assert_eq!(values(client.until_ready()), [row(&[after])], "{level}");
    }
}

#[test]
fn a_transaction_may_span_pipelines() {
    let mut client = connect();
    client.query("create table ext_span(id int primary key)");
    client.send(&[run("begin", &[]), run("insert into ext_span values (1)", &[]), sync()].concat());
    assert_eq!(client.until_ready().last(), Some(&Reply::Ready('T')));
    client.send(&[run("insert into ext_span values ($1)", &["2"]), sync()].concat());
    assert_eq!(client.until_ready().last(), Some(&Reply::Ready('T')));
    client.send(&[run("commit", &[]), sync()].concat());
    assert_eq!(client.until_ready().last(), Some(&Reply::Ready('I')));
    assert_eq!(client.value("select count(*) from ext_span"), "2");

    client.send(
        &[
            run("begin", &[]),
            run("insert into ext_span values (3)", &[]),
            run("rollback", &[]),
            run("insert into ext_span values (4)", &[]),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(client.until_ready().last(), Some(&Reply::Ready('I')));
    assert_eq!(
        client.rows("select id from ext_span order by id"),
        [[Some("1".into())], [Some("2".into())], [Some("4".into())]]
    );
}

/// A long pipeline, sent whole before anything is read.
#[test]
fn deep_pipelines_are_answered_in_order() {
    const COUNT: usize = 2000;
    let mut client = connect();
    client.query("create table ext_deep(id int primary key, v int)");
    client.send(&[parse("ins", "insert into ext_deep values ($1, $2)", &[]), sync()].concat());
    client.until_ready();
    let pipeline: Vec<u8> = (0..COUNT)
        .flat_map(|id| {
            let id = id.to_string();
            [bind_text("", "ins", &[&id, &id]), execute("", 0), sync()].concat()
        })
        .collect();
    client.send(&pipeline);
    for at in 0..COUNT {
        assert_eq!(
            client.until_ready(),
            [Reply::BindComplete, Reply::Complete("INSERT 0 1".into()), Reply::Ready('I')],
            "statement {at}"
        );
    }
    assert_eq!(client.value("select count(*) from ext_deep"), COUNT.to_string());
}

#[test]
fn portals_give_rows_in_parts() {
    let mut client = connect();
    client.query("create table ext_portal(id int primary key)");
    client.query("insert into ext_portal select x from generate_series(1, 5) as t(x)");
    client.query("begin");
    client.send(
        &[parse("", "select id from ext_portal order by id", &[]), bind("p", "", &[]), execute("p", 2), sync()]
            .concat(),
    );
    assert_eq!(
        client.until_ready(),
        [
            Reply::ParseComplete,
            Reply::BindComplete,
            row(&["1"]),
            row(&["2"]),
            Reply::PortalSuspended,
            Reply::Ready('T'),
        ]
    );
    client.send(&[execute("p", 2), execute("p", 2), execute("p", 0), sync()].concat());
    assert_eq!(
        client.until_ready(),
        [
            row(&["3"]),
            row(&["4"]),
            Reply::PortalSuspended,
            row(&["5"]),
            Reply::Complete("SELECT 1".into()),
            Reply::Complete("SELECT 0".into()),
            Reply::Ready('T'),
        ]
    );
    client.send(&[bind("q", "", &[]), execute("q", 1), close_portal("q"), execute("q", 1), sync()].concat());
    let replies = client.until_ready();
    assert!(replies.contains(&Reply::CloseComplete));
    assert_eq!(sqlstate(&replies), "34000");
    client.query("rollback");

    // Outside of a transaction block a portal ends with its pipeline.
    let select = parse("", "select id from ext_portal order by id", &[]);
    client.send(&[select, bind("r", "", &[]), execute("r", 1), sync(), execute("r", 1), sync()].concat());
    let replies = client.until_ready();
    assert_eq!(replies[2..], [row(&["1"]), Reply::PortalSuspended, Reply::Ready('I')]);
    assert_eq!(sqlstate(&client.until_ready()), "34000");
}

#[test]
fn an_empty_statement_is_answered() {
    let mut client = connect();
    client.send(&[run("", &[]), describe_statement(""), describe_portal(""), sync()].concat());
    assert_eq!(
        client.until_ready(),
        [
            Reply::ParseComplete,
            Reply::BindComplete,
            Reply::EmptyQuery,
            Reply::Parameters(vec![]),
            Reply::NoData,
            Reply::NoData,
            Reply::Ready('I'),
        ]
    );
}

#[test]
fn deallocate_closes_what_parse_made() {
    let mut client = connect();
    client.send(&[parse("gone", "select 1", &[]), parse("Kept", "select 2", &[]), sync()].concat());
    client.until_ready();
    assert_eq!(client.query("deallocate GONE"), [Reply::Complete("DEALLOCATE".into()), Reply::Ready('I')]);
    assert_eq!(client.sqlstate("deallocate gone"), "26000");
    client.send(&[bind("", "Kept", &[]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready()[1], row(&["2"]));
    client.query("deallocate all");
    client.send(&[bind("", "Kept", &[]), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "26000");
}

/// A prepared statement outlives a change of its table that it does not depend on, and tells one that it does.
#[test]
fn prepared_statements_follow_the_schema() {
    let mut client = connect();
    client.query("create table ext_schema(id int primary key, v int)");
    client.query("insert into ext_schema values (1, 10)");
    client.send(&[parse("s", "select v from ext_schema where id = $1", &[]), sync()].concat());
    client.until_ready();
    client.query("create index ext_schema_v on ext_schema(v)");
    client.send(&[bind_text("", "s", &["1"]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready()[1], row(&["10"]));
    client.query("drop table ext_schema");
    client.send(&[bind_text("", "s", &["1"]), execute("", 0), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "42P01");
}

#[test]
fn a_char_given_back_as_a_varchar_finds_its_row() {
    let mut client = connect();
    client.query("create table ext_padded(code char(6) primary key, v int)");
    client.query("insert into ext_padded values ('AB', 1), ('CDE', 2)");
    let mut ask = |sql: &str, ty: u32, format: i16, parameter: &[u8]| {
        let bound = bind_formats("", "", &[format], &[Some(parameter)], &[0]);
        client.send(&[parse("", sql, &[ty]), bound, execute("", 0), sync()].concat());
        client.until_ready()[2..].to_vec()
    };
    let told = |rows: &[Reply], tag: &str| {
        let mut told = rows.to_vec();
        told.extend([Reply::Complete(tag.into()), Reply::Ready('I')]);
        told
    };
    // With its blanks, as it was read a moment ago: the bytes are the same in both formats.
    for format in [0, 1] {
        let found = ask("select v from ext_padded where code = $1", 1043, format, b"AB    ");
        assert_eq!(found, told(&[row(&["1"])], "SELECT 1"));
        let after = ask("select v from ext_padded where code > $1", 1043, format, b"AB    ");
        assert_eq!(after, told(&[row(&["2"])], "SELECT 1"));
    }
    let listed = ask("select v from ext_padded where code = any ($1)", 1015, 0, b"{\"AB    \",\"CDE \"}");
    assert_eq!(listed, told(&[row(&["1"]), row(&["2"])], "SELECT 2"));
    assert_eq!(ask("update ext_padded set v = 7 where code = $1", 1043, 0, b"AB    "), told(&[], "UPDATE 1"));
    assert_eq!(ask("delete from ext_padded where code = $1", 1043, 1, b"AB    "), told(&[], "DELETE 1"));
    // A text is compared with its blanks.
    assert_eq!(ask("select v from ext_padded where code = $1", 25, 0, b"CDE "), told(&[], "SELECT 0"));
}

#[test]
fn what_is_taken_from_a_timestamp_is_one() {
    let mut client = connect();
    client.query("create table ext_apart(at timestamp, of time)");
    client.query("insert into ext_apart values ('2024-01-02 00:00', '12:00')");
    let sql = "select at - $1, $2 - at, of - $3 from ext_apart";
    client.send(&[parse("apart", sql, &[]), describe_statement("apart"), sync()].concat());
    assert_eq!(client.until_ready()[1], Reply::Parameters(vec![1114, 1114, 1083]));
    client.send(&[bind_text("", "apart", &["2024-01-01", "2024-01-03", "11:30"]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready()[1], row(&["1 day", "1 day", "00:30:00"]));
}

#[test]
fn a_client_is_told_its_style_of_intervals() {
    let mut client = connect();
    client.query("set intervalstyle = 'iso_8601'");
    assert_eq!(client.value("select interval '1 day 02:00'"), "P1DT2H");
    assert_eq!(client.value("show intervalstyle"), "iso_8601");
}

fn bound(portal: &str, sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind(portal, "", &[])].concat()
}

const SIX: &str = "select * from (values (1), (2), (3), (4), (5), (6)) v(i)";

#[test]
fn a_portal_with_a_name_is_a_cursor() {
    let mut client = connect();
    client.query("begin");
    client.send(&[bound("p", SIX), execute("p", 2), sync()].concat());
    assert_eq!(
        client.until_ready()[2..],
        [row(&["1"]), row(&["2"]), Reply::PortalSuspended, Reply::Ready('T')],
        "as ever"
    );
    assert_eq!(client.query("move forward 1 p"), [Reply::Complete("MOVE 1".into()), Reply::Ready('T')]);
    assert_eq!(client.rows("fetch 1 from p"), [[Some("4".into())]]);
    client.send(&[execute("p", 1), sync()].concat());
    assert_eq!(client.until_ready(), [row(&["5"]), Reply::PortalSuspended, Reply::Ready('T')]);
    assert_eq!(client.rows("select name, is_scrollable from pg_cursors"), [[Some("p".into()), Some("f".into())]]);
    client.send(&[execute("p", 0), sync()].concat());
    assert_eq!(client.until_ready(), [row(&["6"]), Reply::Complete("SELECT 1".into()), Reply::Ready('T')]);
    assert_eq!(client.query("move forward all in p")[0], Reply::Complete("MOVE 0".into()), "it is at its end");
    client.query("savepoint s");
    assert_eq!(client.sqlstate("fetch backward 1 from p"), "55000");
    client.query("rollback to s");
    client.query("close p");
    client.send(&[execute("p", 0), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "34000");
    client.query("rollback");
}

#[test]
fn a_portal_that_has_not_run_is_fetched_from() {
    let mut client = connect();
    client.query("create table ext_unrun(i int)");
    client.query("begin");
    client.send(
        &[parse("", "select * from generate_series($1::int, 6) g", &[]), bind_text("p", "", &["3"]), sync()].concat(),
    );
    client.until_ready();
    assert_eq!(client.query("move 1 from p")[0], Reply::Complete("MOVE 1".into()));
    client.send(&[execute("p", 2), sync()].concat());
    assert_eq!(client.until_ready(), [row(&["4"]), row(&["5"]), Reply::PortalSuspended, Reply::Ready('T')]);
    // By the protocol, in the pipeline that binds it, and of a change.
    client.send(
        &[bound("c", "insert into ext_unrun values (1), (2) returning i"), bound("", "fetch 1 from c"), sync()]
            .concat(),
    );
    assert_eq!(sqlstate_if_any(&client.until_ready()), None);
    client.send(&[bound("", "fetch 2 from c"), describe_portal(""), execute("", 0), sync()].concat());
    let columns = Reply::Columns(vec![("i".into(), 23, 0)]);
    assert_eq!(
        client.until_ready()[2..],
        [columns, row(&["1"]), row(&["2"]), Reply::Complete("FETCH 2".into()), Reply::Ready('T')]
    );
    assert_eq!(client.value("select count(*) from ext_unrun"), "2");
    client.query("commit");
    assert_eq!(client.sqlstate("fetch 1 from p"), "34000", "it ended with its transaction");
}

#[test]
fn portals_and_cursors_share_their_names() {
    let mut client = connect();
    // Without a block the pipeline is the transaction.
    client.send(&[bound("p", SIX), bound("", "move 4 in p"), execute("", 0), execute("p", 0), sync()].concat());
    assert_eq!(
        client.until_ready()[4..],
        [
            Reply::Complete("MOVE 4".into()),
            row(&["5"]),
            row(&["6"]),
            Reply::Complete("SELECT 2".into()),
            Reply::Ready('I')
        ]
    );
    client.query("begin; declare c cursor for select 1");
    client.send(&[bound("c", "select 2"), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "42P03");
    client.query("rollback; begin");
    client.send(&[bound("c", "select 2"), sync()].concat());
    client.until_ready();
    assert_eq!(client.sqlstate("declare c cursor for select 1"), "42P03");
    client.query("rollback; begin; savepoint s");
    client.send(&[bound("c", "select 2"), sync()].concat());
    client.until_ready();
    client.query("rollback to s");
    client.send(&[execute("c", 0), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "34000", "made after the savepoint");
    client.query("rollback");
}

#[test]
fn a_fetch_is_prepared_before_its_cursor() {
    let mut client = connect();
    client.query("begin");
    client.send(&[parse("f", "fetch all in \"c\"", &[]), describe_statement("f"), sync()].concat());
    let unknown = [Reply::ParseComplete, Reply::Parameters(Vec::new()), Reply::NoData, Reply::Ready('T')];
    assert_eq!(client.until_ready(), unknown);
    // The schema that it was prepared for is no longer that of the cursor.
    connect().query("create table ext_fetched_between (i int)");
    client.query("declare c cursor for select 7 as n");
    client.send(&[bind("", "f", &[]), describe_portal(""), execute("", 0), sync()].concat());
    assert_eq!(
        client.until_ready(),
        [
            Reply::BindComplete,
            Reply::Columns(vec![("n".into(), 23, 0)]),
            row(&["7"]),
            Reply::Complete("FETCH 1".into()),
            Reply::Ready('T')
        ]
    );
    // Another cursor of the name, of other columns.
    client.query("close c; declare c cursor for select 'x'::text, 8");
    client.send(&[bind("", "f", &[]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready()[1], row(&["x", "8"]));
    client.query("close c");
    client.send(&[bind("", "f", &[]), execute("", 0), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "34000");
    client.query("rollback");
}

#[test]
fn several_statements_are_not_prepared() {
    let mut client = connect();
    client.send(&[parse("", "select 1; select 2", &[]), sync()].concat());
    let message = "cannot insert multiple commands into a prepared statement";
    let error = Reply::Error("ERROR".into(), "42601".into(), message.into());
    assert_eq!(client.until_ready(), [error, Reply::Ready('I')]);
    client.send(&[parse("", "select 1; selec", &[]), sync()].concat());
    let replies = client.until_ready();
    assert!(matches!(&replies[0], Reply::Error(_, state, text) if state == "42601" && text != message), "{replies:?}");
}

#[test]
fn void_is_a_type() {
    let mut client = connect();
    client.send(
        &[
            parse("", "select pg_sleep(0)", &[]),
            bind_formats("", "", &[], &[], &[1]),
            describe_portal(""),
            execute("", 0),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(
        client.until_ready()[2..],
        [
            Reply::Columns(vec![("pg_sleep".into(), 2278, 1)]),
            row(&[""]),
            Reply::Complete("SELECT 1".into()),
            Reply::Ready('I')
        ]
    );
    for call in ["pg_advisory_lock(7)", "pg_advisory_xact_lock(7)", "pg_advisory_unlock_all()", "pg_sleep_for('0')"] {
        assert_eq!(client.value(&format!("select pg_typeof({call})")), "void", "{call}");
    }
}
