//! Which servers does a client ask? Ours, PostgreSQL, and one that does nothing: each a process of its own, all there at the same time, those that
//! are not asked at rest.

use crate::adapter::child::Server;
use crate::adapter::freshet_wire::Wire;
use crate::adapter::postgres::Postgres;
use crate::adapter::wire::{Address, ask_numbers};
use crate::error::BenchError;
use crate::responder::Responder;

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
