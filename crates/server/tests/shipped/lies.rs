//! Frames that lie: to the server, as somebody who is no ship might send them, and to a ship. The link ends; nobody else notices.

use crate::client::*;
use crate::{Fixture, connect, ship_to};
use freshet_server::link::frame::{Frame, GREETING_BYTES, WELCOME_BYTES, WINDOW_BYTES, Welcome, greeting};
use pgwire::messages::startup::Startup;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A link made by hand.
struct Link(TcpStream);

impl Link {
    fn open(server: SocketAddr) -> Link {
        let mut socket = TcpStream::connect(server).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        socket.write_all(&greeting()).expect("it reads");
        let mut welcome = [0; WELCOME_BYTES];
        socket.read_exact(&mut welcome).expect("a welcome");
        assert!(Welcome::read(&welcome).expect("a welcome").sessions_max >= 64);
        Link(socket)
    }

    fn send(&mut self, frames: &[(u32, Frame<'_>)]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|(session, frame)| frame.write(*session, &mut bytes));
        self.raw(&bytes);
    }

    fn raw(&mut self, bytes: &[u8]) {
        // A server that has closed already does not mind.
        let _ = self.0.write_all(bytes);
    }

    /// A session that has begun and holds a lock.
    fn lock(&mut self, session: u32, statement: &str) {
        let mut startup = Startup::new();
        startup.parameters.insert("user".to_owned(), "liar".to_owned());
        let begin = [encoded(startup), query(statement)].concat();
        self.send(&[(session, Frame::Open), (session, Frame::Data(&begin)), (0, Frame::Group(1))]);
        // `begin; update`: its second tag.
        let mut heard = Vec::new();
        while !heard.windows(8).any(|bytes| bytes == b"UPDATE 1") {
            let mut bytes = [0; 4096];
            let count = self.0.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the link ended: {:?}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&bytes[..count]);
        }
    }

    fn until_closed(&mut self) {
        let mut bytes = [0; 4096];
        // Closed with our bytes unread it is reset: closed all the same.
        while self.0.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
}

fn frame(kind: u8, length: u32, session: u32) -> Vec<u8> {
    let word = length.to_be_bytes();
    [&[kind, word[1], word[2], word[3]][..], &session.to_be_bytes()].concat()
}

/// Each ends its own link, the session on it and the lock of that; the session of the next link takes it.
#[test]
fn every_lie_ends_its_link_and_no_other() {
    let fixture = Fixture::new(|_| {});
    let server = fixture.server.server.local_addr();
    let mut shipped = Client::connect(fixture.server.local_addr());
    shipped.query("create table lie(id int primary key, v int)");
    shipped.query("insert into lie values (1, 0)");
    let mut lies: Vec<Vec<u8>> = Vec::new();
    for kind in *b"ODEXCGTPR?" {
        for length in [0, 1, 3, 5, WINDOW_BYTES as u32 + 1, 0x00ff_ffff] {
            let fits = match kind {
                b'D' => length == 1 || length == 3 || length == 5,
                b'O' | b'E' | b'X' | b'P' => length == 0,
                _ => false,
            };
            if !fits {
                lies.push(frame(kind, length, 7));
            }
        }
    }
    let said = |frame: Frame<'_>, session: u32| {
        let mut bytes = Vec::new();
        frame.write(session, &mut bytes);
        bytes
    };
    lies.extend([
        said(Frame::Open, 7),
        said(Frame::Open, u32::MAX),
        said(Frame::Data(b"nobody"), 8),
        said(Frame::Data(b"nobody"), u32::MAX),
        said(Frame::End, 8),
        said(Frame::Credit(WINDOW_BYTES), 7),
        said(Frame::Credit(0), 7),
        said(Frame::Turn(1), 0),
        said(Frame::Pong, 0),
        [said(Frame::End, 7), said(Frame::Data(b"late"), 7)].concat(),
        [said(Frame::End, 7), said(Frame::End, 7)].concat(),
        // More than was allowed to come. The session counts, and takes little.
        [
            said(Frame::Data(&query("select count(*) from generate_series(1, 10000000000)")), 7),
            said(Frame::Data(&[b'd'; WINDOW_BYTES]), 7).repeat(4),
        ]
        .concat(),
    ]);
    for lie in &lies {
        let mut link = Link::open(server);
        link.lock(7, "begin; update lie set v = v + 1 where id = 1");
        link.raw(lie);
        link.until_closed();
    }
    let updated = shipped.query("update lie set v = v + 1 where id = 1");
    assert_eq!(updated[0], Reply::Complete("UPDATE 1".into()), "{} links died", lies.len());
    assert_eq!(shipped.value("select v from lie where id = 1"), "1", "what they began was undone");
}

/// Every byte of an exchange, flipped in turn: an answer or an end, and the server goes on.
#[test]
fn every_byte_flipped() {
    let fixture = Fixture::new(|_| {});
    let server = fixture.server.server.local_addr();
    let mut startup = Startup::new();
    startup.parameters.insert("user".to_owned(), "u".to_owned());
    let mut exchange = greeting().to_vec();
    let said = [encoded(startup), query("select 1"), vec![b'X', 0, 0, 0, 4]].concat();
    for (session, frame) in [(0, Frame::Open), (0, Frame::Data(&said)), (0, Frame::End), (0, Frame::Group(1))] {
        frame.write(session, &mut exchange);
    }
    for at in 0..exchange.len() {
        for flip in [0x01, 0x80] {
            let mut bent = exchange.clone();
            bent[at] ^= flip;
            let mut socket = TcpStream::connect(server).expect("the server listens");
            socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
            // It may close before all of it is written.
            let _ = socket.write_all(&bent);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut link = Link(socket);
            link.until_closed();
        }
    }
    assert_eq!(Client::connect(fixture.server.local_addr()).value("select 1"), "1");
}

#[test]
fn greetings_that_lie_get_an_error() {
    let server = Fixture::new(|_| {});
    let address = server.server.server.local_addr();
    for (at, expected) in [(3, "08P01"), (11, "0A000"), (7, "0A000")] {
        let mut bent = greeting();
        bent[at] ^= 0x40;
        let mut socket = TcpStream::connect(address).expect("the server listens");
        socket.write_all(&bent).expect("it reads");
        socket.shutdown(std::net::Shutdown::Write).expect("open");
        let mut told = Vec::new();
        let _ = socket.read_to_end(&mut told);
        let told = String::from_utf8_lossy(&told).into_owned();
        // A length beyond what has come is a packet that never gets whole.
        assert!(told.contains(expected) || (at == 3 && told.is_empty()), "byte {at}: {told:?}");
    }
    assert_eq!(GREETING_BYTES, greeting().len());
}

/// A link opens no second one, nor holds more of them than there are places for.
#[test]
fn links_are_limited_and_do_not_nest() {
    let fixture = Fixture::new(|_| {});
    let server = fixture.server.server.local_addr();
    let mut link = Link::open(server);
    link.send(&[(0, Frame::Open), (0, Frame::Data(&greeting())), (0, Frame::Group(1))]);
    let mut heard = Vec::new();
    while !heard.windows(5).any(|bytes| bytes == b"08P01") {
        let mut bytes = [0; 4096];
        let count = link.0.read(&mut bytes).expect("an answer");
        assert!(count > 0);
        heard.extend_from_slice(&bytes[..count]);
    }
    let mut links: Vec<Link> = (1..64).map(|_| Link::open(server)).collect();
    let mut refused = TcpStream::connect(server).expect("the server listens");
    refused.write_all(&greeting()).expect("it reads");
    let mut told = Vec::new();
    refused.read_to_end(&mut told).expect("it closes");
    assert!(String::from_utf8_lossy(&told).contains("53300"));
    links.clear();
    // The places come back when the server has seen them go.
    loop {
        let mut socket = TcpStream::connect(server).expect("the server listens");
        socket.write_all(&greeting()).expect("it reads");
        let mut first = [0];
        socket.read_exact(&mut first).expect("an answer");
        if first == *b"W" {
            break;
        }
    }
}

/// Sessions beyond what is looked at end; those of others begin.
#[test]
fn a_flood_of_sessions_that_say_nothing_keeps_nobody_out() {
    let fixture = Fixture::new(|options| options.connections_max = 2000);
    let mut link = Link::open(fixture.server.server.local_addr());
    let opens: Vec<(u32, Frame<'_>)> = (0..2000).map(|session| (session, Frame::Open)).collect();
    link.send(&opens);
    let mut said = Vec::new();
    let mut ends = 0;
    // 256 are looked at, one is in the hand, 1024 wait: the others are told at once.
    while ends < 2000 - 256 - 1024 - 2 {
        let mut bytes = [0; 4096];
        let count = link.0.read(&mut bytes).expect("an answer");
        assert!(count > 0, "the link ended");
        said.extend_from_slice(&bytes[..count]);
        ends = said.len() / 8;
    }
    assert!(said.chunks_exact(8).all(|frame| frame[..4] == [b'E', 0, 0, 0]), "ends and nothing else");
    drop(link);
    assert_eq!(connect().value("select 1"), "1");
    assert_eq!(Client::connect(fixture.server.local_addr()).value("select 1"), "1");
}

/// What a server that lies can do to a ship: end its link.
#[test]
fn a_ship_survives_a_server_that_lies() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let ship = ship_to(listener.local_addr().expect("bound"));
    let lies: Vec<Vec<u8>> = vec![
        frame(b'D', 0, 0),
        frame(b'D', WINDOW_BYTES as u32 + 1, 0),
        [frame(b'D', 5, 9), b"12345".to_vec()].concat(),
        [frame(b'D', 5, u32::MAX), b"12345".to_vec()].concat(),
        [frame(b'C', 4, 0), vec![0xff; 4]].concat(),
        [frame(b'T', 4, 0), vec![0xff; 4]].concat(),
        frame(b'O', 0, 1),
        frame(b'P', 0, 0),
        frame(b'E', 0, 5),
        frame(b'X', 0, 0),
        [frame(b'E', 0, 0), frame(b'E', 0, 0)].concat(),
        vec![b'?'; 100],
        Vec::new(),
    ];
    for (at, lie) in lies.iter().enumerate() {
        let mut client = Client::open(ship.local_addr());
        client.start(&[("user", "u")]);
        let (mut socket, _) = listener.accept().expect("a link");
        socket.read_exact(&mut [0; GREETING_BYTES]).expect("a greeting");
        socket.write_all(&Welcome { version: 1, sessions_max: 4, workers: 1 }.bytes()).expect("it reads");
        socket.read_exact(&mut [0; 8]).expect("a session");
        socket.write_all(lie).expect("it reads");
        if lie.is_empty() {
            drop(socket);
        }
        assert_eq!(client.read(), Reply::Closed, "lie {at}");
    }
}
