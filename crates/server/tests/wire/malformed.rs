//! Bytes that are no protocol: one FATAL error, the end, and nobody else notices.

use crate::client::*;
use crate::{address, connect};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn ends_with_protocol_violation(bytes: &[u8]) {
    let mut client = connect();
    client.send(bytes);
    let replies = client.until_ready();
    assert!(
        matches!(&replies[..], [Reply::Error(severity, state, _), Reply::Closed]
            if severity == "FATAL" && state == "08P01"),
        "{bytes:?}: {replies:?}"
    );
}

#[test]
fn broken_frames_end_the_session() {
    for bytes in [
        &b"\0\0\0\0\0"[..],
        b"!\0\0\0\x04",
        b"Q\0\0\0\x03",
        b"Q\0\0\0\x05x",
        b"Q\xff\xff\xff\xff",
        b"Q\x7f\xff\xff\xff",
        b"S\0\0\x7f\xff",
        b"S\0\0\0\x05x",
        b"P\0\0\0\x06\0\0",
        b"B\0\0\0\x0c\0\0\0\0\0\x01\0\0",
        b"D\0\0\0\x06Z\0",
        b"E\0\0\0\x05\0",
        b"p\0\0\0\x05\0",
    ] {
        ends_with_protocol_violation(bytes);
    }
    assert_eq!(connect().value("select 1"), "1");
}

#[test]
fn what_came_before_is_answered() {
    let mut client = connect();
    client.send(&[query("select 1"), b"!".to_vec()].concat());
    assert_eq!(client.until_ready().len(), 4);
    assert!(matches!(client.read(), Reply::Error(_, state, _) if state == "08P01"));
    assert_eq!(client.read(), Reply::Closed);
}

#[test]
fn broken_starts_are_refused() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\0\0\0\x04",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ] {
        let mut client = Client::open(address());
        client.send(bytes);
        assert!(
            matches!(client.read(), Reply::Error(severity, state, _)
                if severity == "FATAL" && state == "08P01"),
            "{bytes:?}"
        );
        assert_eq!(client.read(), Reply::Closed);
    }
}

/// A simple query of the largest length is read in pieces, one byte too many is refused from its header.
#[test]
fn the_message_limit_holds() {
    const LIMIT: usize = 1 << 20;
    let mut client = connect();
    let mut script = "select 1 -- ".to_owned();
    script.extend(std::iter::repeat_n('x', LIMIT - 4 - 1 - script.len()));
    assert_eq!(client.query(&script).len(), 4);
    script.push('x');
    client.send(&query(&script)[..5]);
    assert!(matches!(client.read(), Reply::Error(_, state, _) if state == "08P01"));
    assert_eq!(client.read(), Reply::Closed);
}

#[test]
fn unsupported_subprotocols_are_refused_and_the_session_lives() {
    let mut client = connect();
    client.send(b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0");
    assert_eq!(sqlstate(&client.until_ready()), "0A000");
    // Copy messages outside of a COPY mean nothing.
    client.send(b"d\0\0\0\x05xc\0\0\0\x04f\0\0\0\x05\0");
    assert_eq!(client.sqlstate("copy malformed_nothing from stdin"), "42P01");
    assert_eq!(client.value("select 1"), "1");
}

/// Every prefix of a valid conversation, then the end of the connection.
#[test]
fn cut_conversations_leave_nothing_behind() {
    let mut client = connect();
    client.query("create table cut(id int primary key)");
    let whole = [run("insert into cut values ($1)", &["1"]), sync()].concat();
    for length in 0..whole.len() {
        let mut short_lived = connect();
        short_lived.send(&whole[..length]);
    }
    // The last one may have run; a Sync that never came commits nothing.
    assert_eq!(client.query("insert into cut values (1)").len(), 2);
    assert_eq!(client.value("select count(*) from cut"), "1");
}

/// Messages of every kind, about a table of its caller's own: who waits for another's row is told 08006 once it has closed its side.
fn conversation(table: &str) -> Vec<Vec<u8>> {
    vec![
        parse("s", &format!("select id, name from {table} where id = $1 and name < $2"), &[23, 25]),
        describe_statement("s"),
        bind_formats("p", "s", &[1, 0], &[Some(b"\0\0\0\x01"), Some(b"text")], &[1, 0]),
        describe_portal("p"),
        execute("p", 1),
        close_portal("p"),
        run(&format!("insert into {table} values ($1, $2)"), &["1", "one"]),
        sync(),
        query(&format!("begin; delete from {table}; rollback")),
        query(&format!("copy {table} from stdin")),
        copy_data(b"7\tseven\n"),
        copy_done(),
        query(&format!("copy {table} from stdin")),
        copy_fail("enough"),
        b"H\0\0\0\x04".to_vec(),
        b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0".to_vec(),
        sync(),
        b"X\0\0\0\x04".to_vec(),
    ]
}

/// What a client hears that says this, and nothing more, until the end.
fn heard(bytes: &[u8]) -> Vec<Reply> {
    let mut client = connect();
    // It may be closed before all is written.
    let _ = client.try_send(bytes);
    client.finish();
    let mut replies = Vec::new();
    while replies.last() != Some(&Reply::Closed) {
        replies.push(client.read());
    }
    replies
}

/// Each message's length word says something else than the truth.
#[test]
fn every_length_lies() {
    connect().query("create table lies(id int primary key, name text)");
    let messages = conversation("lies");
    for (at, message) in messages.iter().enumerate() {
        // Some are made of several.
        let true_length = u32::from_be_bytes(message[1..5].try_into().expect("a length word"));
        let lies = [0, 1, 2, 3, 4, true_length - 1, true_length + 1, true_length + 4, 1 << 20, (1 << 20) + 1]
            .into_iter()
            .chain([1 << 24, i32::MAX as u32, 1 << 31, u32::MAX]);
        for lie in lies.filter(|lie| *lie != true_length) {
            let mut whole = messages.clone();
            whole[at][1..5].copy_from_slice(&lie.to_be_bytes());
            let replies = heard(&whole.concat());
            let is_refused = replies.iter().any(
                |reply| matches!(reply, Reply::Error(severity, state, _) if severity == "FATAL" && state == "08P01"),
            );
            // Within bounds it may make sense, or what is missing never comes.
            assert!(is_refused || (4..=1 << 20).contains(&lie), "message {at}, length {lie}: {replies:?}");
        }
    }
    assert_eq!(connect().value("select 1"), "1");
}

/// Every byte of an exchange, the start included, flipped in turn.
#[test]
fn every_byte_flipped_is_survived() {
    connect().query("create table flips(id int primary key, name text)");
    let start = {
        let mut startup = pgwire::messages::startup::Startup::new();
        startup.parameters.insert("user".to_owned(), "u".to_owned());
        encoded(startup)
    };
    let exchange = [start, conversation("flips").concat()].concat();
    for at in 0..exchange.len() {
        for flip in [0x01, 0x80] {
            let mut bent = exchange.clone();
            bent[at] ^= flip;
            let mut socket = TcpStream::connect(address()).expect("the server listens");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            // It may be closed, or reset, before all is written or read.
            let _ = socket.write_all(&bent);
            let _ = socket.shutdown(Shutdown::Write);
            if let Err(error) = socket.read_to_end(&mut Vec::new()) {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "byte {at}, {flip:#x}: it does not end");
            }
        }
    }
    assert_eq!(connect().value("select 1"), "1");
}

/// Whole conversations with some bytes changed: each ends in an answer or in the end of its session, and none in the end
/// of the server. (A panic in a session would abort this test.)
#[test]
fn bent_conversations_are_survived() {
    const ROUNDS: u64 = 1000;
    connect().query("create table bends(id int primary key, name text)");
    let whole = conversation("bends").concat();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        // xorshift64: the same bends in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..ROUNDS {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            bytes[at] = match random(3) {
                0 => random(256) as u8,
                1 => bytes[at].wrapping_add(1),
                _ => bytes[random(bytes.len())],
            };
        }
        heard(&bytes);
    }
    assert_eq!(connect().value("select 1"), "1");
}
