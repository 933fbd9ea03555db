//! Which servers does a client ask? Ours, PostgreSQL, and one that does nothing: each a process of its own, all there at the same time, those that
//! are not asked stopped: PostgreSQL's vacuum and checkpoints after its turn took the feed of the next one up to half a second.

use crate::adapter::child::Server;
use crate::adapter::freshet_wire::Wire;
use crate::adapter::postgres::Postgres;
use crate::adapter::wire::{Address, ask_numbers};
use crate::error::BenchError;
use crate::responder::Responder;
use crate::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::PathBuf;

const NAMES: [&str; 3] = ["responder", "postgres", "freshet-wire"];

/// Directories of the servers' socket files, by which clients on the servers' machine come as PostgreSQL's do by default; none if they come over
/// loopback. Not where the databases are: the path of a socket is short.
pub(crate) struct Sockets(BTreeMap<&'static str, Scratch>);

impl Sockets {
    pub fn new(over_loopback: bool) -> Result<Sockets, BenchError> {
        if over_loopback {
            return Ok(Sockets(BTreeMap::new()));
        }
        let made = NAMES.map(|name| Ok((name, Scratch::new(&std::env::temp_dir(), &format!("freshet-{name}"))?)));
        Ok(Sockets(made.into_iter().collect::<Result<_, BenchError>>()?))
    }

    pub fn of(&self, system: &str) -> Option<PathBuf> {
        self.0.get(system).map(|directory| directory.path().to_path_buf())
    }
}

/// How clients come, as a figure's configuration tells it.
pub(crate) fn through(over_loopback: bool) -> &'static str {
    if over_loopback { "loopback" } else { "socket files" }
}

/// A server under test.
pub enum System {
    Responder(Responder),
    Postgres(Postgres),
    Freshet(Wire),
}

impl System {
    pub fn name(&self) -> &'static str {
        match self {
            System::Responder(_) => "responder",
            System::Postgres(_) => "postgres",
            System::Freshet(_) => "freshet-wire",
        }
    }

    pub fn address(&self) -> Address {
        match self {
            System::Responder(responder) => responder.address(),
            System::Postgres(postgres) => postgres.address(),
            System::Freshet(wire) => wire.address(),
        }
    }

    /// Lets it go on for as long as it is asked.
    pub fn while_asked<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.server().goes_on();
        let answer = ask();
        self.server().rests();
        answer
    }

    /// The number that it is asked for.
    pub fn number(&self, sql: &str) -> Result<i64, BenchError> {
        Ok(ask_numbers(self.address(), sql)?.first().copied().unwrap_or_default())
    }

    pub fn server(&self) -> &Server {
        match self {
            System::Responder(responder) => responder.server(),
            System::Postgres(postgres) => postgres.server(),
            System::Freshet(wire) => wire.server(),
        }
    }
}
