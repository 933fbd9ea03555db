//! The start of a connection, its limits, and its end.

use crate::client::{Client, Reply, encoded};
use crate::{Fixture, address, connect};
use freshet_engine::engine::{Phase, RecoveryProgress, RecoveryReport};
use freshet_server::listener;
use freshet_server::recovery::Recovery;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::{GssEncRequest, SecretKey, SslRequest, Startup};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

#[test]
fn drivers_read_what_they_expect() {
    let client = connect();
    let value = |name: &str| {
        let found = client.parameters.iter().find(|(n, _)| n == name);
        found.map(|(_, v)| v.as_str())
    };
    assert!(value("server_version").is_some_and(|v| v.starts_with("15")));
    for (name, expected) in [
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("session_authorization", "tester"),
        ("in_hot_standby", "off"),
        ("default_transaction_read_only", "off"),
        ("application_name", ""),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
    assert!(value("TimeZone").is_some() && value("is_superuser").is_some());
    assert!(client.key.is_some());
}

#[test]
fn encryption_is_declined_and_the_client_goes_on() {
    let mut client = Client::open(address());
    let mut raw = TcpStream::connect(address()).unwrap();
    std::io::Write::write_all(&mut raw, &encoded(SslRequest::new())).unwrap();
    let mut answer = [0];
    raw.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    std::io::Write::write_all(&mut raw, &encoded(GssEncRequest::new())).unwrap();
    raw.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    client.start(&[("user", "u")]);
    assert_eq!(client.until_ready(), [Reply::Ready('I')]);
}

#[test]
fn settings_come_with_the_start() {
    let mut client = Client::open(address());
    client.start(&[
        ("user", "u"),
        ("application_name", "wire test"),
        ("options", "-c lock_timeout=1500 -c statement_timeout=2s"),
    ]);
    assert_eq!(client.until_ready(), [Reply::Ready('I')]);
    assert_eq!(client.value("show application_name"), "wire test");
    assert_eq!(client.value("show lock_timeout"), "1500ms");
    assert_eq!(client.value("show statement_timeout"), "2s");
}

/// Pools begin a session anew by DISCARD ALL, and take what they asked for at its start to be in force.
#[test]
fn resets_go_back_to_what_came_with_the_start() {
    let mut client = Client::open(address());
    let options = "-c search_path=apart -c statement_timeout=2s -c mine.tenant=7";
    client.start(&[("user", "u"), ("application_name", "pool"), ("TimeZone", "Europe/Paris"), ("options", options)]);
    assert_eq!(client.until_ready(), [Reply::Ready('I')]);
    for back in [
        "discard all",
        "reset all",
        "reset search_path; reset timezone; reset statement_timeout; reset application_name; reset mine.tenant",
    ] {
        client
            .query("set search_path = public; set timezone = 'UTC'; set statement_timeout = 0; set mine.tenant = '8'");
        client.query("set application_name = 'other'");
        client.query(back);
        let now = ["search_path", "timezone", "statement_timeout", "application_name", "mine.tenant"]
            .map(|name| client.value(&format!("show {name}")));
        assert_eq!(now, ["apart", "Europe/Paris", "2s", "pool", "7"], "{back}");
    }
    client.query("begin; set search_path = public; reset search_path; rollback");
    assert_eq!(client.value("show search_path"), "apart");
    assert_eq!(
        client.value("select setting || ' ' || reset_val from pg_settings where name = 'statement_timeout'"),
        "2000 2000"
    );
}

#[test]
fn a_setting_that_we_do_not_serve_ends_the_start() {
    for (name, value) in [("client_encoding", "LATIN1"), ("no_such_setting", "1")] {
        let mut client = Client::open(address());
        client.start(&[("user", "u"), (name, value)]);
        assert!(matches!(client.read(), Reply::Error(severity, _, _) if severity == "FATAL"), "{name}");
        assert_eq!(client.read(), Reply::Closed);
    }
}

#[test]
fn other_major_versions_are_refused() {
    let mut client = Client::open(address());
    let mut startup = Startup::new();
    startup.protocol_number_major = 2;
    client.send(&encoded(startup));
    assert!(matches!(client.read(), Reply::Error(_, state, _) if state == "0A000"));
    assert_eq!(client.read(), Reply::Closed);
}

#[test]
fn connections_are_limited_and_places_come_back() {
    let fixture = Fixture::new(|options| options.connections_max = 2);
    let address = fixture.server.local_addr();
    let first = Client::connect(address);
    let mut second = Client::connect(address);
    let mut third = Client::open(address);
    third.start(&[("user", "u")]);
    assert!(matches!(third.read(), Reply::Error(_, state, _) if state == "53300"));
    assert_eq!(third.read(), Reply::Closed);
    drop(first);
    // The place comes back when the server has seen the first one go.
    let mut replies = Vec::new();
    while replies != [Reply::Ready('I')] {
        let mut next = Client::open(address);
        next.start(&[("user", "u")]);
        replies = next.until_ready();
    }
    assert_eq!(second.value("select 1"), "1");
}

#[test]
fn a_stopping_server_says_so() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut idle = Client::connect(address);
    let mut busy = Client::connect(address);
    busy.query("create table s(id int primary key)");
    busy.query("begin; insert into s values (1)");
    fixture.server.stop();
    for client in [&mut idle, &mut busy] {
        assert!(matches!(client.read(), Reply::Error(severity, state, _)
            if severity == "FATAL" && state == "57P01"));
        assert_eq!(client.read(), Reply::Closed);
    }
    let again = listener::listen(&fixture.database, listener::Options::new(address)).unwrap();
    let mut client = Client::connect(again.local_addr());
    assert_eq!(client.value("select count(*) from s"), "0", "rolled back");
}

/// All that the server sends until it closes the connection.
fn answer(address: SocketAddr, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("the server accepts");
    packets.iter().for_each(|packet| socket.write_all(packet).expect("it reads"));
    let mut told = Vec::new();
    socket.read_to_end(&mut told).expect("it closes");
    told
}

#[test]
fn who_comes_during_a_recovery_is_told_how_long_it_takes() {
    let fixture = Fixture::new(|_| {});
    let recovery = Recovery::new(false);
    let options = listener::Options::new("127.0.0.1:0".parse().expect("an address"));
    let starting = listener::start(options.clone(), recovery.clone()).expect("a free port");
    let address = starting.local_addr();
    let mut startup = Startup::new();
    startup.parameters.insert("user".into(), "u".into());
    let hello = encoded(startup);
    let phase = Phase::Load;
    recovery.tell(&RecoveryReport { phase, done_bytes: 1, total_bytes: 4, rate_bytes: 1, left_us: 3_600_000_000 });
    for first in [Vec::new(), encoded(SslRequest::new()), encoded(GssEncRequest::new())] {
        let declined = if first.is_empty() { "" } else { "N" };
        let told = answer(address, &[first, hello.clone()]);
        let told = String::from_utf8_lossy(&told);
        assert!(told.starts_with(&format!("{declined}E")), "{told}");
        for part in ["FATAL", "57P03", "the database system is starting up", "replaying (25%)", "ready in about 3600 s"]
        {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
    assert_eq!(answer(address, &[encoded(CancelRequest::new(1, SecretKey::I32(2)))]), b"");
    let waiting = TcpStream::connect(address).expect("a client that says nothing yet");
    let server = starting.serve(&fixture.database).expect("workers");
    assert_eq!(server.local_addr(), address);
    let mut client = Client::connect(address);
    assert_eq!(client.value("select 1"), "1");
    drop(waiting);
    server.stop();
    let starting = listener::start(listener::Options::new(address), recovery).expect("the port is free again");
    drop(starting);
    assert!(TcpStream::connect(address).is_err(), "a recovery that failed leaves no listener");
}

#[test]
fn only_a_free_loopback_address_is_listened_on() {
    let fixture = Fixture::new(|_| {});
    let refused = |address: &str| {
        let options = listener::Options::new(address.parse().unwrap());
        match listener::listen(&fixture.database, options) {
            Ok(_) => panic!("listens on {address}"),
            Err(error) => error.0,
        }
    };
    assert!(refused("0.0.0.0:0").contains("loopback"));
    assert!(refused("[::]:0").contains("loopback"));
    let taken = fixture.server.local_addr().to_string();
    assert!(refused(&taken).contains("in use"));
}
