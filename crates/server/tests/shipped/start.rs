//! How sessions of a link begin and end: the server's own rules, asked through the multiplexer.

use crate::client::*;
use crate::{Fixture, Shipped, address, connect, loopback, ship_to};
use freshet_server::listener;
use freshet_server::recovery::Recovery;
use freshet_server::ship::multiplexer;
use pgwire::messages::startup::{SslRequest, Startup};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

#[test]
fn encryption_is_declined_by_the_server_and_settings_come_with_the_start() {
    let mut raw = TcpStream::connect(address()).unwrap();
    raw.write_all(&encoded(SslRequest::new())).unwrap();
    let mut answer = [0];
    raw.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    let mut client = Client::open(address());
    client.start(&[("user", "u"), ("application_name", "shipped"), ("options", "-c lock_timeout=1500")]);
    assert_eq!(client.until_ready(), [Reply::Ready('I')]);
    assert_eq!(client.value("show application_name"), "shipped");
    assert_eq!(client.value("show lock_timeout"), "1500ms");
}

#[test]
fn what_the_server_refuses_is_refused() {
    let mut client = Client::open(address());
    let mut startup = Startup::new();
    startup.protocol_number_major = 2;
    client.send(&encoded(startup));
    assert!(matches!(client.read(), Reply::Error(_, state, _) if state == "0A000"));
    assert_eq!(client.read(), Reply::Closed);
    let mut client = Client::open(address());
    client.start(&[("user", "u"), ("no_such_setting", "1")]);
    assert!(matches!(client.read(), Reply::Error(severity, _, _) if severity == "FATAL"));
    assert_eq!(client.read(), Reply::Closed);
    let mut client = Client::open(address());
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(client.read(), Reply::Error(_, state, _) if state == "08P01"));
}

#[test]
fn connections_are_limited_and_places_come_back() {
    let fixture = Fixture::new(|options| options.connections_max = 2);
    let address = fixture.server.local_addr();
    let first = Client::connect(address);
    let mut second = Client::connect(address);
    for _ in 0..200 {
        let mut third = Client::open(address);
        third.start(&[("user", "u")]);
        let told = third.read();
        assert!(matches!(&told, Reply::Error(_, state, _) if state == "53300"), "{told:?}");
        assert_eq!(third.read(), Reply::Closed);
    }
    drop(first);
    let mut replies = Vec::new();
    while replies != [Reply::Ready('I')] {
        let mut next = Client::open(address);
        next.start(&[("user", "u")]);
        replies = next.until_ready();
    }
    assert_eq!(second.value("select 1"), "1");
}

/// 57P01 to everybody, and the server waits for nobody.
#[test]
fn a_stopping_server_says_so() {
    let fixture = Fixture::new(|_| {});
    let Fixture { server: Shipped { ship, server }, database, _directory } = fixture;
    let (at, behind) = (ship.local_addr(), server.local_addr());
    let mut idle = Client::connect(at);
    let mut busy = Client::connect(at);
    busy.query("create table s(id int primary key)");
    busy.query("begin; insert into s values (1)");
    server.stop();
    for client in [&mut idle, &mut busy] {
        assert!(matches!(client.read(), Reply::Error(severity, state, _) if severity == "FATAL" && state == "57P01"));
        assert_eq!(client.read(), Reply::Closed);
    }
    let mut nobody = Client::open(at);
    nobody.start(&[("user", "u")]);
    assert!(matches!(nobody.read(), Reply::Error(_, state, message)
        if state == "08006" && message.contains("cannot be reached")));
    assert_eq!(nobody.read(), Reply::Closed);
    let again = listener::listen(&database, listener::Options::new(behind)).expect("its port is free");
    let mut replies = Vec::new();
    while replies != [Reply::Ready('I')] {
        let mut next = Client::open(at);
        next.start(&[("user", "u")]);
        replies = next.until_ready();
    }
    assert_eq!(Client::connect(at).value("select count(*) from s"), "0", "rolled back");
    drop(again);
}

#[test]
fn who_comes_during_a_recovery_is_told_so() {
    let fixture = Fixture::new(|_| {});
    let starting = listener::start(listener::Options::new(loopback()), Recovery::new(false)).expect("a free port");
    let ship = ship_to(starting.local_addr());
    let mut early = Client::open(ship.local_addr());
    early.send(&encoded(SslRequest::new()));
    let mut raw = TcpStream::connect(ship.local_addr()).unwrap();
    raw.write_all(&encoded(SslRequest::new())).unwrap();
    let mut answer = [0];
    raw.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    drop(early);
    let mut early = Client::open(ship.local_addr());
    early.start(&[("user", "u")]);
    assert!(matches!(early.read(), Reply::Error(_, state, _) if state == "57P03"));
    let server = starting.serve(&fixture.database).expect("workers");
    let mut replies = Vec::new();
    while replies != [Reply::Ready('I')] {
        let mut next = Client::open(ship.local_addr());
        next.start(&[("user", "u")]);
        replies = next.until_ready();
    }
    drop(server);
}

#[test]
fn only_this_host_is_served() {
    let options = multiplexer::Options::new("0.0.0.0:0".parse().expect("an address"), "127.0.0.1:1");
    let error = multiplexer::start(options).err().expect("refused");
    assert!(error.contains("only this host's"), "{error}");
}

/// A server that knows the protocol of PostgreSQL and no links.
#[test]
fn a_server_that_takes_no_links_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let ship = ship_to(listener.local_addr().expect("bound"));
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the ship comes");
        socket.read_exact(&mut [0; 12]).expect("a greeting");
        let mut error = b"E\0\0\0\0SFATAL\0C0A000\0Munsupported frontend protocol 18003.18512\0\0".to_vec();
        error[4] = (error.len() - 1) as u8;
        socket.write_all(&error).expect("it reads");
    });
    let mut client = Client::open(ship.local_addr());
    client.start(&[("user", "u")]);
    assert!(matches!(client.read(), Reply::Error(_, state, message)
        if state == "08006" && message.contains("takes no links")));
    answering.join().expect("it answered");
}

/// Sessions of one process are told apart by their keys, which work through the link as they do beside it.
#[test]
fn a_cancel_request_reaches_its_session_only() {
    let mut holder = connect();
    holder.query("create table start_cancel(id int primary key)");
    holder.query("begin; insert into start_cancel values (1)");
    let mut waiters: Vec<Client> = (0..3).map(|_| connect()).collect();
    waiters.iter_mut().for_each(|waiter| waiter.send(&query("insert into start_cancel values (1)")));
    // A request that comes before the statement has nothing to cancel, so ask until it is heard.
    while !waiters[1].hears_within(std::time::Duration::from_millis(20)) {
        waiters[1].cancel();
    }
    assert_eq!(sqlstate(&waiters[1].until_ready()), "57014");
    holder.query("commit");
    for at in [0, 2] {
        assert_eq!(sqlstate(&waiters[at].until_ready()), "23505");
    }
}
