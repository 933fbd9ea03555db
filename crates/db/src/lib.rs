//! Freshet embedded: a durable in-memory SQL database in your process.

pub use freshet_engine::engine::{OpenError, Options, Stats};
use freshet_engine::ids::Cts;
pub use freshet_sql as sql;
pub use freshet_sql::{Column, Datum, RowSet, SqlError, Type, Value};
use std::sync::Arc;

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {}

/// A connection: one thread at a time, at most one transaction at a time.
pub struct Session {}

/// A prepared statement; cheap to clone, usable by every session of its database.
#[derive(Clone)]
pub struct Statement {}

/// A commit on its way to the devices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub Cts);

/// A transaction as a scoped value: dropped without `commit`, it is rolled back.
pub struct Transaction<'s> {
    #[allow(dead_code)]
    session: &'s mut Session,
}

/// Ready when a ticket is durable; also `Future`.
pub struct Durable {}

impl std::future::Future for Durable {
    type Output = Result<(), SqlError>;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        unimplemented!()
    }
}

/// Typed parameters: `&session.execute(&st, &[1.into_datum(), ...])`.
pub trait IntoDatum {
    fn into_datum(self) -> Datum;
}

#[allow(unused_variables)]
impl Database {
    pub fn open(options: Options) -> Result<Database, OpenError> {
        unimplemented!()
    }
    pub fn session(&self) -> Result<Session, SqlError> {
        unimplemented!()
    }
    /// Blocks until the ticket's commit is durable.
    pub fn wait(&self, ticket: Ticket) -> Result<(), SqlError> {
        unimplemented!()
    }
    pub fn durable(&self, ticket: Ticket) -> Durable {
        unimplemented!()
    }
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        unimplemented!()
    }
    pub fn checkpoint(&self) -> Result<(), SqlError> {
        unimplemented!()
    }
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    pub fn runs_without(&self) -> Vec<String> {
        unimplemented!()
    }
    /// The engine beneath, for the server.
    pub fn engine(&self) -> &freshet_engine::engine::Engine {
        unimplemented!()
    }
}

#[allow(unused_variables)]
impl Session {
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        unimplemented!()
    }
    /// Runs a statement and waits until its outcome is durable (autocommit); inside a transaction it is provisional until the commit is. Rows affected or given.
    pub fn execute(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<u64, SqlError> {
        unimplemented!()
    }
    /// Runs a statement and gives its rows, which live in this session's buffer until the next call.
    pub fn query(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<&RowSet, SqlError> {
        unimplemented!()
    }
    /// Runs a script of statements without parameters.
    pub fn run(&mut self, script: &str) -> Result<u64, SqlError> {
        unimplemented!()
    }
    /// Autocommit without waiting: the ticket tells when it is durable.
    pub fn execute_ticket(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<(u64, Ticket), SqlError> {
        unimplemented!()
    }
    pub fn begin(&mut self) -> Result<Transaction<'_>, SqlError> {
        unimplemented!()
    }
    /// Bytes of the newest commit's record in the log, its header included.
    pub fn last_commit_record_bytes(&self) -> u64 {
        unimplemented!()
    }
}

#[allow(unused_variables)]
impl Transaction<'_> {
    pub fn execute(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<u64, SqlError> {
        unimplemented!()
    }
    pub fn query(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<&RowSet, SqlError> {
        unimplemented!()
    }
    /// Pre-commits: visible to others at once, durable when the ticket is.
    pub fn commit_ticket(self) -> Result<Ticket, SqlError> {
        unimplemented!()
    }
    /// Commits and waits until it is durable.
    pub fn commit(self) -> Result<(), SqlError> {
        unimplemented!()
    }
    pub fn rollback(self) {
        unimplemented!()
    }
}

impl Statement {
    pub fn columns(&self) -> &Arc<[Column]> {
        unimplemented!()
    }
    pub fn parameters(&self) -> &[Type] {
        unimplemented!()
    }
}
