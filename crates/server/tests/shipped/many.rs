//! Many clients at once, each with its own order, errors and transactions; and those who do not read.

use crate::client::*;
use crate::{Fixture, connect};
use std::time::Duration;

const CLIENTS: i32 = 100;
const ROUNDS: i32 = 20;

/// Every client's answers are its own, in its own order, its errors and the state of its transaction included.
#[test]
fn each_session_has_its_own_order_errors_and_transaction() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    Client::connect(address).query("create table many(id int primary key, v int not null)");
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for round in 0..ROUNDS {
                    let id = number * ROUNDS + round;
                    // A pipeline whose second statement fails, then a transaction, half of them undone.
                    client.send(
                        &[
                            run("insert into many values ($1::int, $2::int)", &[&id.to_string(), "1"]),
                            sync(),
                            run("insert into many values ($1::int, $2::int)", &[&id.to_string(), "2"]),
                            sync(),
                            run("select v + $1::int from many where id = $2::int", &[&id.to_string(), &id.to_string()]),
                            sync(),
                        ]
                        .concat(),
                    );
                    assert_eq!(client.until_ready()[2], Reply::Complete("INSERT 0 1".into()));
                    assert_eq!(sqlstate(&client.until_ready()), "23505");
                    let rows = client.until_ready();
                    assert_eq!(rows[2], Reply::Row(vec![Some((id + 1).to_string().into_bytes())]), "{rows:?}");
                    assert_eq!(client.query("begin").last(), Some(&Reply::Ready('T')));
                    client.query(&format!("update many set v = v + 10 where id = {id}"));
                    let end = if round % 2 == 0 { "commit" } else { "rollback" };
                    assert_eq!(client.query(end).last(), Some(&Reply::Ready('I')));
                }
            });
        }
    });
    let mut client = Client::connect(address);
    let sum = CLIENTS * (ROUNDS + 10 * ROUNDS / 2);
    assert_eq!(client.value("select sum(v) from many"), sum.to_string());
    assert_eq!(client.value("select count(distinct pid) from pg_stat_activity where state = 'active'"), "1");
    let are_gone = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        fixture.server.server.sessions() == 1
    });
    assert!(are_gone, "the others are there: {}", fixture.server.server.sessions());
}

/// 60 MiB that four ask for and do not read.
#[test]
fn a_slow_reader_holds_up_nobody() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let large = "select repeat('x', 1000), x from generate_series(1, 15000) as t(x)";
    let mut slow: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    slow.iter_mut().for_each(|client| client.send(&query(large)));
    let mut others: Vec<Client> = (0..8).map(|_| Client::connect(address)).collect();
    for round in 0..50 {
        for client in &mut others {
            assert_eq!(client.value(&format!("select {round}")), round.to_string());
        }
    }
    for client in &mut slow {
        let replies = client.until_ready();
        assert_eq!(replies.len(), 15_003);
        assert!(matches!(&replies[15_000], Reply::Row(row) if row[1] == Some(b"15000".to_vec())));
        assert_eq!(client.value("select 1"), "1");
    }
}

/// Both ways at once, far beyond every window.
#[test]
fn copy_goes_both_ways_beyond_the_window() {
    let mut client = connect();
    client.query("create table many_copy(id int primary key, t text)");
    client.send(&query("copy many_copy from stdin"));
    assert_eq!(client.read(), Reply::CopyIn(false, 2));
    let line = |id: usize| format!("{id}\t{}\n", "y".repeat(100 + id % 7));
    for first in (0..50_000).step_by(500) {
        let lines: String = (first..first + 500).map(line).collect();
        client.send(&copy_data(lines.as_bytes()));
    }
    client.send(&copy_done());
    assert_eq!(client.until_ready(), [Reply::Complete("COPY 50000".into()), Reply::Ready('I')]);
    let mut reader = connect();
    reader.send(&query("copy (select id, t from many_copy order by id) to stdout"));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(reader.read(), Reply::CopyOut(false, 2));
    let mut copied = Vec::new();
    loop {
        match reader.read() {
            Reply::CopyData(bytes) => copied.extend_from_slice(&bytes),
            Reply::CopyDone => break,
            other => panic!("{other:?}"),
        }
    }
    let expected: String = (0..50_000).map(line).collect();
    assert!(copied == expected.as_bytes(), "{} bytes of {}", copied.len(), expected.len());
    assert_eq!(reader.until_ready(), [Reply::Complete("COPY 50000".into()), Reply::Ready('I')]);
}

/// A pipeline of more requests than the window holds, answered while it is still being sent.
#[test]
fn a_pipeline_longer_than_the_window_is_answered_in_order() {
    let mut client = connect();
    client.send(&[parse("s", "select $1::int", &[]), sync()].concat());
    client.until_ready();
    let request = |n: i32| [bind_text("", "s", &[&n.to_string()]), execute("", 0), sync()].concat();
    let pipeline: Vec<u8> = (0..10_000).flat_map(request).collect();
    assert!(pipeline.len() > 4 << 16);
    client.send(&pipeline);
    for n in 0..10_000 {
        let replies = client.until_ready();
        assert_eq!(replies[1], Reply::Row(vec![Some(n.to_string().into_bytes())]));
    }
}
