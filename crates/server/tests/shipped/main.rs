//! The server as a client of `freshet ship` meets it: what holds on a connection of one's own holds on a link, so most of it is the wire
//! tests themselves, asked through a multiplexer.

#[path = "../wire/channels.rs"]
mod channels;
#[path = "../wire/client.rs"]
mod client;
#[path = "../wire/copy.rs"]
mod copy;
#[path = "../wire/extended.rs"]
mod extended;
mod faults;
#[path = "../wire/limits.rs"]
mod limits;
mod lies;
mod links;
#[path = "../wire/malformed.rs"]
mod malformed;
mod local;
mod many;
mod secure;
#[path = "../wire/simple.rs"]
mod simple;
mod start;
#[path = "../wire/values.rs"]
mod values;

use client::Client;
use freshet_db::{Database, Options};
use freshet_server::listener::{self, Server};
use freshet_server::ship::multiplexer::{self, Ship};
use std::net::SocketAddr;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Threads that serve sessions.
pub const WORKERS: usize = 2;

/// Whether the server sees its clients' own connections: it sees the multiplexer's.
pub const IS_DIRECT: bool = false;

/// A server, and a multiplexer before it.
pub struct Shipped {
    pub ship: Ship,
    pub server: Server,
}

impl Shipped {
    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.ship.local_addr()
    }
}

/// A small database and a server for it.
pub struct Fixture {
    pub server: Shipped,
    pub database: Database,
    _directory: TempDir,
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

pub fn ship_to(server: SocketAddr) -> Ship {
    multiplexer::start(multiplexer::Options::new(loopback(), server.to_string())).expect("a free port")
}

impl Fixture {
    pub fn new(change: impl FnOnce(&mut listener::Options)) -> Fixture {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let database = Database::open(Options {
            memory_limit_bytes: 256 << 20,
            log_size_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            stage_limit_bytes: 1 << 20,
            sessions_max: 512,
            ..Options::small(directory.path())
        })
        .expect("a new database");
        let mut options = listener::Options::new(loopback());
        options.workers = WORKERS;
        options.message_bytes_max = 1 << 20;
        change(&mut options);
        let server = listener::listen(&database, options).expect("a free port");
        let ship = ship_to(server.local_addr());
        Fixture { server: Shipped { ship, server }, database, _directory: directory }
    }
}

/// The one server that tests share; each works on its own tables.
pub fn address() -> SocketAddr {
    static SHARED: OnceLock<Fixture> = OnceLock::new();
    SHARED.get_or_init(|| Fixture::new(|_| {})).server.local_addr()
}

pub fn connect() -> Client {
    Client::connect(address())
}
