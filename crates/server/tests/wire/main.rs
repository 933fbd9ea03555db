//! The server as a client meets it: one database, real sockets, messages written and read by pgwire's codec.

mod auth;
mod channels;
mod client;
mod command;
mod copy;
mod crowd;
mod extended;
mod extreme;
mod faults;
mod idle;
mod limits;
mod local;
mod malformed;
mod meaning;
mod operation;
mod parts;
mod rights;
mod shortage;
mod simple;
mod startup;
mod texts;
mod values;
mod watching;

use client::Client;
use freshet_db::{Database, Options};
use freshet_server::listener::{self, Server};
use freshet_server::pgwire::choice::Together;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Threads that serve sessions.
pub const WORKERS: usize = 2;

/// Whether the server sees its clients' own connections.
pub const IS_DIRECT: bool = true;

/// A small database and a server for it.
pub struct Fixture {
    pub server: Server,
    pub database: Database,
    _directory: TempDir,
}

impl Fixture {
    pub fn new(change: impl FnOnce(&mut listener::Options)) -> Fixture {
        Fixture::within(256 << 20, change)
    }

    pub fn within(memory_limit_bytes: u64, change: impl FnOnce(&mut listener::Options)) -> Fixture {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let database = Database::open(Options {
            memory_limit_bytes,
            log_size_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            stage_limit_bytes: 1 << 20,
            // As the server's configuration has it: a place for every connection and some for itself. With fewer, a crowd of clients that all
            // die at once keeps them for a moment, and who comes next is refused.
            sessions_max: 1_064,
            ..Options::small(directory.path())
        })
        .expect("a new database");
        let mut options = listener::Options::new("127.0.0.1:0".parse().expect("an address"));
        options.workers = WORKERS;
        options.message_bytes_max = 1 << 20;
        // As it goes when they lose their processor over and over; the other way is how servers begin.
        options.together = Together::Always;
        change(&mut options);
        let server = listener::listen(&database, options).expect("a free port");
        Fixture { server, database, _directory: directory }
    }
}

/// The one server that tests share; each works on its own tables.
pub fn address() -> SocketAddr {
    static SHARED: OnceLock<Fixture> = OnceLock::new();
    SHARED.get_or_init(|| Fixture::new(|_| {})).server.local_addr()
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn connect() -> Client {
    Client::connect(address())
}
