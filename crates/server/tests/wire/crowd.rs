//! More clients and more work than the server takes: who is refused, how, and that nobody else notices.

use crate::Fixture;
use crate::client::*;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Runs until it is cancelled.
const ENDLESS: &str = "select count(*) from generate_series(1, 10000000000)";

#[test]
fn two_thousand_clients_that_never_speak_keep_nobody_out() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let silent: Vec<TcpStream> = (0..2000).map(|_| TcpStream::connect(address).expect("it is accepted")).collect();
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(Client::connect(address).value("select 1"), "1");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The longer one is silent, the sooner it goes.
    let mut first = Client::of(address, silent.into_iter().next().expect("there are 2,000"));
    assert_eq!(first.read(), Reply::Closed);
}

#[test]
fn long_statements_wait_for_a_place_and_too_many_are_refused() {
    let fixture = Fixture::new(|options| (options.long_statements_max, options.long_statements_waiting_max) = (1, 1));
    let address = fixture.server.local_addr();
    let mut setup = Client::connect(address);
    setup.query("create table crowd(id int primary key)");
    let mut running = Client::connect(address);
    running.send(&query(ENDLESS));
    let facts = || fixture.server.watched().long.facts();
    let until = |what: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end, "{:?}", facts());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(&|| facts().running == 1);
    let mut waiting = Client::connect(address);
    waiting.send(&query("select count(*) from generate_series(1, 3000000)"));
    until(&|| facts().waiting == 1);
    let mut refused = Client::connect(address);
    assert_eq!(refused.sqlstate(ENDLESS), "53000");
    assert_eq!(refused.value("select 2"), "2", "the session goes on");

    // Who has begun a transaction is not refused; a place is waited for no longer than statement_timeout says, and a cancel request ends it.
    let mut open = Client::connect(address);
    open.query("begin; insert into crowd values (1); set local statement_timeout = '100ms'");
    assert_eq!(open.sqlstate(ENDLESS), "57014");
    open.query("rollback");
    open.query("begin; insert into crowd values (2)");
    open.send(&query(ENDLESS));
    until(&|| facts().waiting == 2);
    open.cancel();
    assert_eq!(sqlstate(&open.until_ready()), "57014");
    open.query("rollback");

    // Short statements know nothing of it.
    for id in 10..30 {
        setup.query(&format!("insert into crowd values ({id})"));
    }
    running.cancel();
    assert_eq!(sqlstate(&running.until_ready()), "57014");
    let row = waiting.until_ready();
    assert!(matches!(&row[1], Reply::Row(cells) if cells[0].as_deref() == Some(b"3000000")), "{row:?}");
    until(&|| facts().running == 0 && facts().waiting == 0);
    assert_eq!(facts().refused, 1);

    // A client that goes while it waits leaves the queue.
    running.send(&query(ENDLESS));
    until(&|| facts().running == 1);
    waiting.send(&query(ENDLESS));
    until(&|| facts().waiting == 1);
    drop(waiting);
    until(&|| facts().waiting == 0);
    drop(running);
    until(&|| facts().running == 0);
}

#[test]
fn sessions_beyond_the_limit_are_refused_and_others_go_on() {
    let fixture = Fixture::new(|options| options.connections_max = 3);
    let address = fixture.server.local_addr();
    let mut inside: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for _ in 0..20 {
        let mut outside = Client::open(address);
        outside.start(&[("user", "tester")]);
        assert!(matches!(outside.read(), Reply::Error(_, state, _) if state == "53300"));
        assert_eq!(outside.read(), Reply::Closed);
    }
    for client in &mut inside {
        assert_eq!(client.value("select 1"), "1");
    }
}

/// The answers of sessions that a worker serves together leave together. What waits for a later flush than the rest does not wait for anything else.
#[test]
fn what_many_write_at_once_is_answered_flush_by_flush() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 150;
    let fixture = Fixture::new(|options| options.workers = 1);
    let address = fixture.server.local_addr();
    Client::connect(address).query("create table waves(id int primary key, v int not null)");
    std::thread::scope(|scope| {
        for id in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let id = id.to_string();
                client.query(&format!("insert into waves values ({id}, 0)"));
                client.send(&[parse("u", "update waves set v = v + 1 where id = $1", &[]), sync()].concat());
                client.until_ready();
                let change = [bind_text("", "u", &[&id]), execute("", 0), sync()].concat();
                for round in 0..ROUNDS {
                    client.send(&change);
                    // The second one comes before, during or after the first one's flush.
                    let second = Instant::now() + Duration::from_micros(round * 13 % 400);
                    while Instant::now() < second {
                        std::hint::spin_loop();
                    }
                    client.send(&change);
                    for _ in 0..2 {
                        let done = [Reply::BindComplete, Reply::Complete("UPDATE 1".into()), Reply::Ready('I')];
                        assert_eq!(client.until_ready(), done);
                    }
                }
            });
        }
    });
    let sum = Client::connect(address).value("select sum(v) from waves");
    assert_eq!(sum, (2 * ROUNDS * CLIENTS).to_string());
}
