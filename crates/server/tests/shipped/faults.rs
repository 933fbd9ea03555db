//! A client, the multiplexer or the server dies at every state of a session: nothing stays locked, and nobody else notices.

use crate::client::*;
use crate::{Fixture, Shipped, ship_to};
use freshet_server::link::driver::{Ended, Heartbeat, drive};
use freshet_server::link::mux::{End, Mux};
use freshet_server::ship::multiplexer::{self, Options};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Runs for minutes, within one thread.
const ENDLESS: &str = "select count(*) from generate_series(1, 10000000000)";

/// A row of the table that each state holds before it dies; row 0 is held by somebody else.
const STATES: i32 = 9;

/// Brings a session, which holds row `state`, into a state that it does not leave by itself.
fn enter(state: i32, client: &mut Client) {
    client.query("begin");
    client.query(&format!("update fault set v = v + 1 where id = {state}"));
    match state {
        // Idle in a transaction.
        1 => {}
        // In a transaction that failed.
        2 => drop(client.query("select 1/0")),
        // Waiting for a lock.
        3 => client.send(&query("update fault set v = 5 where id = 0")),
        // In the middle of COPY FROM, of a message even.
        4 => {
            client.send(&query("copy fault from stdin"));
            assert_eq!(client.read(), Reply::CopyIn(false, 2));
            let rows = copy_data(b"100\t1\n101\t1\n");
            client.send(&rows[..rows.len() - 3]);
        }
        // With a long answer that nobody reads.
        5 => client.send(&query("select repeat('x', 1000) from generate_series(1, 20000)")),
        // In a statement that runs long.
        6 => client.send(&query(ENDLESS)),
        // In the middle of a message.
        7 => client.send(&query("update fault set v = 6 where id = 7")[..20]),
        // With a pipeline that has no Sync.
        8 => client.send(&run("update fault set v = v + 1 where id = 8", &[])),
        // Waiting for a lock, with more said behind it.
        _ => {
            client.send(&query("update fault set v = 5 where id = 0"));
            client.send(&query(&format!("select '{}'", "z".repeat(40_000))));
        }
    }
}

fn table(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    client.query("create table fault(id int primary key, v int)");
    client.query("insert into fault select x, 0 from generate_series(0, 20) as t(x)");
    client.query("begin");
    client.query("update fault set v = 1 where id = 0");
    client
}

/// Every row but the held one can be had, and none was changed.
fn nothing_is_left(address: SocketAddr) {
    let mut client = Client::connect(address);
    for state in 1..=STATES {
        let updated = client.query(&format!("update fault set v = v where id = {state}"));
        assert_eq!(updated[0], Reply::Complete("UPDATE 1".into()), "state {state}");
    }
    assert_eq!(client.value("select sum(v) from fault where id > 0"), "0");
    assert_eq!(client.value("select count(*) from fault"), "21");
}

#[test]
fn a_client_that_dies_leaves_nothing() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut holder = table(address);
    for state in 1..=STATES {
        let mut client = Client::connect(address);
        enter(state, &mut client);
        let mut neighbour = Client::connect(address);
        assert_eq!(neighbour.value("select 1"), "1");
        drop(client);
        assert_eq!(neighbour.value("select 2"), "2", "state {state}");
    }
    nothing_is_left(address);
    assert_eq!(holder.query("commit").last(), Some(&Reply::Ready('I')));
}

/// All states at once.
fn all_states(address: SocketAddr) -> Vec<Client> {
    let enter_one = |state| {
        let mut client = Client::connect(address);
        enter(state, &mut client);
        client
    };
    (1..=STATES).map(enter_one).collect()
}

#[test]
fn a_multiplexer_that_dies_leaves_nothing() {
    let fixture = Fixture::new(|_| {});
    let direct = fixture.server.server.local_addr();
    let mut holder = table(direct);
    let ship = ship_to(direct);
    let clients = all_states(ship.local_addr());
    ship.stop();
    nothing_is_left(direct);
    for mut client in clients {
        while !matches!(client.read(), Reply::Closed) {}
    }
    holder.query("commit");
    while fixture.server.server.sessions() > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_that_stops_ends_every_state() {
    let fixture = Fixture::new(|_| {});
    let Fixture { server: Shipped { ship, server }, database, _directory } = fixture;
    let _holder = table(server.local_addr());
    let clients = all_states(ship.local_addr());
    server.stop();
    for (state, mut client) in (1..).zip(clients) {
        // One is in the middle of a long answer, and one has sent half a message: all hear the end.
        while !matches!(client.read(), Reply::Closed) {}
        assert!(state <= STATES);
    }
    let again = freshet_server::listener::listen(&database, freshet_server::listener::Options::new(crate::loopback()));
    let again = again.expect("a free port");
    nothing_is_left(again.local_addr());
}

/// A server that welcomes a ship and then does as it is told.
fn false_server(act: impl FnOnce(std::net::TcpStream) + Send + 'static) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let acting = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the ship comes");
        socket.read_exact(&mut [0; 12]).expect("a greeting");
        let welcome = freshet_server::link::frame::Welcome { version: 1, sessions_max: 10, workers: 1 };
        socket.write_all(&welcome.bytes()).expect("it reads");
        act(socket);
    });
    (address, acting)
}

/// Its clients' connections close, as when a server dies, and the next client finds a link of its own.
#[test]
fn a_link_that_dies_closes_its_clients() {
    let (address, acting) = false_server(|mut socket| {
        // The session, and its startup packet: then it is gone, without a word.
        socket.read_exact(&mut [0; 30]).expect("a session");
    });
    let ship = ship_to(address);
    let mut client = Client::open(ship.local_addr());
    client.start(&[("user", "somebody"), ("database", "test")]);
    assert_eq!(client.read(), Reply::Closed);
    acting.join().expect("it acted");
    let mut next = Client::open(ship.local_addr());
    next.start(&[("user", "somebody")]);
    assert!(matches!(next.read(), Reply::Error(_, state, _) if state == "08006"));
}

#[test]
fn a_server_that_vanishes_without_a_word_is_noticed() {
    let (address, acting) = false_server(|mut socket| {
        let mut heard = Vec::new();
        // Reads, and never answers, until the ship gives up.
        socket.read_to_end(&mut heard).expect("it closes");
        assert!(heard.windows(8).any(|bytes| bytes == [b'P', 0, 0, 0, 0, 0, 0, 0]), "it asked first");
    });
    let heartbeat = Heartbeat { interval: Duration::from_millis(20), silent_max: 3, asks: true };
    let options = Options { heartbeat, ..Options::new(crate::loopback(), address.to_string()) };
    let ship = multiplexer::start(options).expect("a free port");
    let mut client = Client::open(ship.local_addr());
    client.start(&[("user", "somebody")]);
    assert_eq!(client.read(), Reply::Closed);
    acting.join().expect("it heard the end");
}

#[test]
fn a_ship_that_vanishes_without_a_word_is_noticed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (near, _far) = tokio::io::duplex(1 << 10);
        let (_never, stop) = tokio::sync::watch::channel(false);
        let heartbeat = Heartbeat { interval: Duration::from_millis(5), silent_max: 3, asks: false };
        let mux = Mux::new(End::Server, 10);
        let ended = drive(mux, near, bytes::BytesMut::new(), heartbeat, drop, stop).await;
        assert!(matches!(ended, Ended::Silent(_)), "{ended}");
    });
}

/// What one end asks the other is heard: neither takes the other for dead.
#[test]
fn idle_links_stay() {
    let fixture = Fixture::new(|_| {});
    let heartbeat = Heartbeat { interval: Duration::from_millis(10), silent_max: 3, asks: true };
    let server = fixture.server.server.local_addr().to_string();
    let options = Options { heartbeat, ..Options::new(crate::loopback(), server) };
    let ship = multiplexer::start(options).expect("a free port");
    let mut client = Client::connect(ship.local_addr());
    assert!(!client.hears_within(Duration::from_millis(300)));
    assert_eq!(client.value("select 1"), "1");
}
