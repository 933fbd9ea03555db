//! Long messages: they are taken on a thread of their own, mean what short ones mean, and nobody waits for them but who sent them.

use crate::client::{Client, Reply, bind_text, execute, parse, query, sqlstate, sync, text_row};
use crate::{Fixture, until};
use std::time::Duration;

/// Longer than what a worker takes itself.
const LONG: usize = 70_000;

fn fixture() -> Fixture {
    Fixture::within(1 << 30, |options| {
        options.workers = 1;
        options.message_bytes_max = 16 << 20;
    })
}

fn long(text: &str) -> String {
    format!("/* {} */ {text}", "x".repeat(LONG))
}

fn completed(replies: &[Reply]) -> Vec<&str> {
    let mut tags = Vec::new();
    for reply in replies {
        if let Reply::Complete(tag) = reply {
            tags.push(tag.as_str());
        }
    }
    tags
}

#[test]
fn a_script_of_long_and_short_statements_runs_in_order_and_fails_whole() {
    let fixture = fixture();
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table texts(id int primary key, t text)");
    let script = [
        "insert into texts values (1, 'short')",
        &long("insert into texts select id + 1, 'long' from texts"),
        "insert into texts select id + 2, 'behind' from texts where id = 2",
        &long("select count(*) from texts"),
    ];
    let replies = client.query(&script.join(";"));
    assert_eq!(completed(&replies), ["INSERT 0 1", "INSERT 0 1", "INSERT 0 1", "SELECT 1"]);
    assert_eq!(replies.iter().filter_map(text_row).next(), Some(vec![Some("3".to_owned())]));
    assert_eq!(replies.last(), Some(&Reply::Ready('I')));

    // The second of them fails, so the first is undone; in a text that is one long piece, and in one of short pieces.
    let replies = client.query(&format!("delete from texts; {}", long("insert into texts values (9, 'n'), (9, 'n')")));
    assert_eq!((completed(&replies), sqlstate(&replies)), (vec!["DELETE 3"], "23505".into()));
    let many: Vec<String> = (10..2_000).map(|id| format!("insert into texts values ({id}, 'm')")).collect();
    let replies = client.query(&format!("{}; insert into texts values (10, 'again')", many.join(";")));
    assert_eq!((completed(&replies).len(), sqlstate(&replies)), (many.len(), "23505".into()));
    assert_eq!(client.value("select count(*) from texts"), "3");
    // What is no statement, and where.
    assert_eq!(client.sqlstate(&long("selct 1")), "42601");
    assert_eq!(client.sqlstate(&long("select * from texts where nobody = 1")), "42703");
}

/// A text that takes seconds to read, and no time to run.
fn unread() -> String {
    let words: Vec<String> = (0..300_000).map(|n| format!("{n} + $1")).collect();
    // Nobody gives the parameter a value: read to its end, it is 42P02.
    format!("select 1 in ({})", words.join(", "))
}

#[test]
fn a_text_that_is_read_for_long_can_be_cancelled() {
    let fixture = fixture();
    let mut client = Client::connect(fixture.server.local_addr());
    let text = unread();
    let several = format!("select 1; {text}");
    for text in [&text, &several] {
        client.send(&query(text));
        while !client.hears_within(Duration::from_millis(50)) {
            client.cancel();
        }
        assert_eq!(sqlstate(&client.until_ready()), "57014");
        assert_eq!(client.value("select 2"), "2");
    }
    client.query("set statement_timeout = '30ms'");
    assert_eq!(client.sqlstate(&text), "57014");
    assert_eq!(client.sqlstate(&several), "57014");
    // The time of what is short is not touched by it.
    assert_eq!(client.value("select 3"), "3");
}

#[test]
fn a_pipeline_of_long_and_short_messages_answers_in_order() {
    let fixture = fixture();
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table texts(id int primary key, t text)");
    let value = "v".repeat(200_000);
    let insert = |id: &str, value: &str| [bind_text("", "", &[id, value]), execute("", 0)].concat();
    let parts = [
        parse("", &long("insert into texts values ($1::int, $2)"), &[]),
        insert("1", "short"),
        insert("2", &value),
        insert("3", "short"),
        parse("", "select id, length(t) from texts order by id", &[]),
        bind_text("", "", &[]),
        execute("", 0),
        sync(),
    ];
    client.send(&parts.concat());
    let replies = client.until_ready();
    assert_eq!(completed(&replies), ["INSERT 0 1", "INSERT 0 1", "INSERT 0 1", "SELECT 3"]);
    let lengths: Vec<_> = replies.iter().filter_map(text_row).map(|row| row[1].clone().expect("not null")).collect();
    assert_eq!(lengths, ["5", "200000", "5"]);
    assert_eq!(replies.last(), Some(&Reply::Ready('I')));

    // Behind an error everything is passed over to the Sync, however long.
    let failed = [
        parse("", "insert into texts values ($1::int, $2)", &[]),
        insert("7", "undone"),
        parse("", &long("selct"), &[]),
        insert("8", &value),
        parse("", &long("select 1"), &[]),
        sync(),
        query(&long("select count(*) from texts")),
    ];
    client.send(&failed.concat());
    let replies = client.until_ready();
    assert_eq!((sqlstate(&replies), replies.last()), ("42601".into(), Some(&Reply::Ready('I'))));
    let replies = client.until_ready();
    assert_eq!(replies.iter().filter_map(text_row).next(), Some(vec![Some("3".to_owned())]));
}

#[test]
fn a_long_text_that_begins_a_copy_or_waits_for_a_lock_goes_on_with_what_comes() {
    let fixture = fixture();
    let mut client = Client::connect(fixture.server.local_addr());
    let mut other = Client::connect(fixture.server.local_addr());
    client.query("create table texts(id int primary key, t text)");
    client.send(&query(&long("copy texts from stdin")));
    assert!(matches!(client.read(), Reply::CopyIn(..)));
    client.send(&[crate::client::copy_data(b"1\tone\n2\ttwo\n"), crate::client::copy_done()].concat());
    assert_eq!(completed(&client.until_ready()), ["COPY 2"]);

    other.query("begin; update texts set t = 'held' where id = 1");
    client.send(&query(&long("update texts set t = t || '!' where id = 1")));
    until("it waits for the lock", || {
        other.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == "1"
    });
    other.query("commit");
    assert_eq!(completed(&client.until_ready()), ["UPDATE 1"]);
    assert_eq!(client.value("select t from texts where id = 1"), "held!");
}

/// The server has one worker. What takes a second to read and plan is under way, and another session is answered before it.
#[test]
fn nobody_waits_for_another_s_long_text() {
    let fixture = fixture();
    let mut reader = Client::connect(fixture.server.local_addr());
    let mut slow = Client::connect(fixture.server.local_addr());
    reader.query("create table texts(id int primary key, t text)");
    let rows: Vec<String> = (0..300_000).map(|n| format!("({n}, 'n')")).collect();
    let insert = parse("p", &format!("insert into texts values {}", rows.join(",")), &[]);
    // The last byte makes a message of it, once the worker has the others.
    let (last, others) = insert.split_last().expect("it has bytes");
    slow.send(others);
    let mut ask = |times: u64| {
        for n in 0..times {
            assert_eq!(reader.value(&format!("select {n}")), n.to_string());
        }
    };
    // At each turn it reads 16 KiB and answers one of these.
    ask(insert.len() as u64 / 4096);
    slow.send(&[*last]);
    ask(20);
    assert!(!slow.hears_within(Duration::from_millis(1)), "it is not over yet");
    slow.send(&sync());
    assert_eq!(slow.until_ready(), [Reply::ParseComplete, Reply::Ready('I')]);
}

#[test]
fn who_goes_while_a_long_text_of_theirs_is_taken_leaves_nothing_locked() {
    let fixture = fixture();
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table texts(id int primary key, t text); insert into texts values (1, 'one')");
    let mut gone = Client::connect(fixture.server.local_addr());
    gone.query("begin; update texts set t = 'never' where id = 1");
    let rows: Vec<String> = (2..100_000).map(|n| format!("({n}, 'n')")).collect();
    gone.send(&query(&format!("insert into texts values {}", rows.join(","))));
    drop(gone);
    assert_eq!(completed(&client.query("update texts set t = 'free' where id = 1")), ["UPDATE 1"]);
    assert_eq!(client.rows("select id, t from texts"), [[Some("1".to_owned()), Some("free".to_owned())]]);
}
