//! Statements that are larger, wider and deeper than anybody writes: an answer or a clear error, and the server lives.

use crate::Fixture;
use crate::client::*;

/// A server of its own, with room for such statements.
struct Extreme {
    fixture: Fixture,
}

impl Extreme {
    fn new() -> Extreme {
        Extreme { fixture: Fixture::new(|options| options.message_bytes_max = 16 << 20) }
    }

    fn connect(&self) -> Client {
        Client::connect(self.fixture.server.local_addr())
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_statement_of_a_mebibyte_is_answered() {
    let server = Extreme::new();
    let mut client = server.connect();
    let text = "x".repeat(1 << 20);
    assert_eq!(client.value(&format!("select length('{text}')")), (1 << 20).to_string());
    assert_eq!(client.value(&format!("select 1 /* {text} */")), "1");
    client.query("create table wide (id int primary key, w text)");
    assert_eq!(
        client.query(&format!("insert into wide values (1, '{text}')"))[0],
        Reply::Complete("INSERT 0 1".into())
    );
    assert_eq!(client.value("select w from wide").len(), 1 << 20);
    client.send(&[run("select length($1)", &[&text]), sync()].concat());
    assert!(client.until_ready().contains(&Reply::Row(vec![Some(b"1048576".to_vec())])));
}

#[test]
fn a_list_of_ten_thousand_is_looked_up_on_both_roads() {
    let server = Extreme::new();
    let mut client = server.connect();
    client.query("create table listed (id int primary key, v int)");
    client.query("insert into listed select x, x % 7 from generate_series(1, 20000) t(x)");
    let ids = list((0..10_000).map(|i| (2 * i).to_string()));
    for road in ["auto", "compiled", "query"] {
        if road == "query" && !cfg!(feature = "query") {
            continue;
        }
        client.query(&format!("set freshet.road = {road}"));
        assert_eq!(client.value(&format!("select count(*) from listed where id in ({ids})")), "9999", "{road}");
        assert_eq!(client.value(&format!("select count(*) from listed where id not in ({ids})")), "10001", "{road}");
        assert_eq!(
            client.value(&format!("select count(*) from listed where id = any (array[{ids}])")),
            "9999",
            "{road}"
        );
    }
    client.query("set freshet.road = auto");
    let updated = client.query(&format!("update listed set v = 9 where id in ({ids})"));
    assert_eq!(updated[0], Reply::Complete("UPDATE 9999".into()));
}

#[test]
fn ten_thousand_rows_of_values_are_inserted() {
    let server = Extreme::new();
    let mut client = server.connect();
    client.query("create table many (id int primary key, v text)");
    let rows = list((0..10_000).map(|i| format!("({i}, 'v{i}')")));
    assert_eq!(client.query(&format!("insert into many values {rows}"))[0], Reply::Complete("INSERT 0 10000".into()));
    assert_eq!(client.value(&format!("select count(*) from (values {rows}) t(a, b)")), "10000");
    assert_eq!(client.value("select max(id) from many"), "9999");
}

#[test]
fn a_table_has_at_most_1600_columns() {
    let server = Extreme::new();
    let mut client = server.connect();
    let columns = |count: usize| list((0..count).map(|i| format!("c{i} int")));
    assert_eq!(client.sqlstate(&format!("create table too_wide ({})", columns(1601))), "54011");
    assert_eq!(
        client.query(&format!("create table wide ({})", columns(1600)))[0],
        Reply::Complete("CREATE TABLE".into())
    );
    assert_eq!(client.sqlstate("alter table wide add column one_more int"), "54011");
    let values = list((0..1600).map(|i| i.to_string()));
    assert_eq!(client.query(&format!("insert into wide values ({values})"))[0], Reply::Complete("INSERT 0 1".into()));
    let rows = client.rows("select * from wide");
    assert_eq!(rows[0].len(), 1600);
    assert_eq!(rows[0][1599].as_deref(), Some("1599"));
    client.query("update wide set c1599 = -1");
    assert_eq!(client.value("select c1599 from wide where c0 = 0"), "-1");
    let texts = list((0..1600).map(|i| format!("t{i} text")));
    assert_eq!(client.query(&format!("create table texts ({texts})"))[0], Reply::Complete("CREATE TABLE".into()));
    let outputs = list((0..1665).map(|i| i.to_string()));
    assert_eq!(client.sqlstate(&format!("select {outputs}")), "54011");
}

#[test]
fn what_nests_ten_thousand_deep_is_refused() {
    const DEPTH: usize = 10_000;
    let server = Extreme::new();
    let mut client = server.connect();
    client.query("create table deep (id int primary key)");
    let (open, close) = ("(".repeat(DEPTH), ")".repeat(DEPTH));
    for sql in [
        format!("select {open}1{close}"),
        format!("select {}1{}", "abs(".repeat(DEPTH), close),
        format!("select {}1", "- ".repeat(DEPTH)),
        format!("select {}true", "not ".repeat(DEPTH)),
        format!("select 1{}", " + 1".repeat(DEPTH)),
        format!("select 1 from deep where id = 1{}", " or id = 1".repeat(DEPTH)),
        format!("select {}1{}", "case when true then ".repeat(DEPTH), " end".repeat(DEPTH)),
        format!("select 1{}", "::int".repeat(DEPTH)),
        format!("select {}1{}", "array[".repeat(DEPTH), "]".repeat(DEPTH)),
        format!("select * from {}deep{}", "(select * from ".repeat(DEPTH), ") q".repeat(DEPTH)),
        format!("{}select 1{close}", "select (".repeat(DEPTH)),
        format!("select 1{}", " union all select 1".repeat(DEPTH)),
        // Commas that end no chain.
        format!("select 1, 1{}", " union all select 1, 1".repeat(DEPTH)),
        format!("(select 1){}", " except (select 1)".repeat(DEPTH)),
        format!("select array[1, 2]{}", " || array[1, 2]".repeat(3 * DEPTH)),
        format!("select a{} from (select array[1] a) q", "[1]".repeat(DEPTH)),
        format!("select {}1{}", "(".repeat(40), format!("{})", " + 1".repeat(1_000)).repeat(40)),
        format!("copy (select 1{}) to stdout", " + 1".repeat(DEPTH)),
        format!("execute nobody (1{})", " + 1".repeat(DEPTH)),
        format!(
            "select * from deep d0{}",
            (1..DEPTH).map(|i| format!(" join deep d{i} using (id)")).collect::<String>()
        ),
        format!("with q as {}select 1{close} table q", "(with q as ".repeat(DEPTH)),
        format!("create table t (a int check {open}a > 0{close})"),
        format!("create view v as select {open}1{close}"),
        format!("insert into deep values ({open}1{close})"),
        format!("update deep set id = {open}1{close}"),
        format!("select '{}1{}'::jsonb", "[".repeat(DEPTH), "]".repeat(DEPTH)),
    ] {
        let shown: String = sql.chars().take(60).collect();
        assert_eq!(client.sqlstate(&sql), "54001", "{shown}");
        assert_eq!(client.value("select 1"), "1", "{shown}");
        client.send(&[parse("", &sql, &[]), sync()].concat());
        assert_eq!(sqlstate(&client.until_ready()), "54001", "{shown}");
    }
}

/// Joins within joins, of which each asks for its share of a turn before it asks its inputs.
#[cfg(feature = "query")]
#[test]
fn more_joins_within_each_other_than_a_turn_has_shares_are_run() {
    let server = Extreme::new();
    let mut client = server.connect();
    for joins in [100, 135, 150, 180] {
        let sql = format!("select count(*) from (select 1{}) q", " except select 2".repeat(joins));
        assert_eq!(client.value(&sql), "1", "{joins}");
    }
}

/// The order of the loops is looked for among few sources only, as PostgreSQL's `join_collapse_limit` and `geqo_threshold` have it.
#[test]
fn hundreds_of_tables_are_joined() {
    let server = Extreme::new();
    let mut client = server.connect();
    client.query("create table joined (id int primary key)");
    client.query("insert into joined values (1), (2)");
    for count in [13, 49, 400] {
        let tables = list((0..count).map(|i| format!("joined j{i}")));
        let equal: Vec<String> = (1..count).map(|i| format!("j{i}.id = j{}.id", i - 1)).collect();
        let sql = format!("select count(*) from {tables} where {}", equal.join(" and "));
        assert_eq!(client.value(&sql), "2", "{count}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let server = Extreme::new();
    let mut client = server.connect();
    let frame = |kind: u8, body: &[u8]| {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, body].concat()
    };
    for bytes in
        [&b"select '\xff'"[..], b"select '\xc3'", b"select '\xed\xa0\x80'", b"select 1 as \"\xf5\"", b"\xc0\x80"]
    {
        client.send(&frame(b'Q', &[bytes, b"\0"].concat()));
        assert_eq!(sqlstate(&client.until_ready()), "22021", "{bytes:?}");
        client.send(&[frame(b'P', &[b"\0", bytes, b"\0\0\0"].concat()), sync()].concat());
        assert_eq!(sqlstate(&client.until_ready()), "22021", "{bytes:?}");
    }
    for value in [&b"\xff"[..], b"a\0b", b"\0"] {
        client
            .send(&[parse("", "select $1::text", &[]), bind("", "", &[Some(value)]), execute("", 0), sync()].concat());
        assert_eq!(sqlstate(&client.until_ready()), "22021", "{value:?}");
    }
    // What follows the zero that ends the text belongs to no statement.
    client.send(&frame(b'Q', b"select 1\0select 2\0"));
    assert!(matches!(client.until_ready()[..], [Reply::Error(_, ref state, _), Reply::Closed] if state == "08P01"));
    assert_eq!(server.connect().value("select 1"), "1");
}

#[test]
fn long_names_are_cut_with_a_notice() {
    let server = Extreme::new();
    let mut client = server.connect();
    let (long, cut) = ("n".repeat(70), "n".repeat(63));
    let notice = |name: &str, cut: &str| {
        Reply::Notice("42622".into(), format!("identifier \"{name}\" will be truncated to \"{cut}\""))
    };
    let replies = client.query(&format!("create table {long} (id int primary key, {long}x int)"));
    assert_eq!(replies, [notice(&long, &cut), Reply::Complete("CREATE TABLE".into()), Reply::Ready('I')]);
    assert_eq!(client.query(&format!("insert into {cut} values (1, 5)"))[0], Reply::Complete("INSERT 0 1".into()));
    assert_eq!(client.value(&format!("select {long}y from \"{long}\"")), "5");
    // A letter of several bytes is cut before it, not within.
    let umlauts = "ä".repeat(40);
    let replies = client.query(&format!("select 1 as \"{umlauts}\""));
    assert!(replies.contains(&notice(&umlauts, &"ä".repeat(31))), "{replies:?}");
    assert!(replies.contains(&Reply::Columns(vec![("ä".repeat(31), 23, 0)])), "{replies:?}");
    // A long text is no name.
    assert_eq!(client.query(&format!("select '{long}'")).len(), 4);
}

#[test]
fn a_statement_has_at_most_65535_parameters() {
    let server = Extreme::new();
    let mut client = server.connect();
    let listed = |count: usize| format!("select 7 in ({})", list((1..=count).map(|i| format!("${i}::int"))));
    let values: Vec<String> = (1..=65_535).map(|i| (i % 9).to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    client.send(&[run(&listed(65_535), &values), sync()].concat());
    let replies = client.until_ready();
    assert!(replies.contains(&Reply::Row(vec![Some(b"t".to_vec())])), "{:?}", replies.first());
    for count in [65_536, 70_000] {
        client.send(&[parse("", &listed(count), &[]), sync()].concat());
        assert_eq!(sqlstate(&client.until_ready()), "42P02", "{count}");
    }
    for sql in ["select $0", "select $4294967297", "select $99999999999999999999"] {
        client.send(&[parse("", sql, &[]), sync()].concat());
        assert_eq!(sqlstate(&client.until_ready()), "42P02", "{sql}");
    }
    assert_eq!(client.value("select 1"), "1");
}
