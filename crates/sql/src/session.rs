//! A SQL session: settings, the transaction's state as clients see it, prepare and execute in steps.
//!
//! Nothing here parks a thread: what must wait comes back as [`Step::Wait`], and the caller (a blocking API or an
//! event loop) resumes.

use crate::error::SqlError;
use crate::rows::{Column, RowSet};
use crate::value::Datum;
use freshet_engine::engine::Engine;
use freshet_engine::ids::Cts;
use freshet_engine::schema::Type;
use std::sync::Arc;
use std::time::Duration;

/// What ReadyForQuery tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    Idle,
    Open,
    Failed,
}

/// A parsed and bound statement; shared by all sessions through the statement cache, rebound when the schema changed.
#[derive(Debug)]
pub struct Prepared {
    pub sql: String,
    pub parameters: Vec<Type>,
    /// Empty: the statement gives no rows.
    pub columns: Arc<[Column]>,
}

/// What completed, as in CommandComplete: `INSERT 0 3`, `SELECT 5`, `BEGIN`, ...
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandTag {
    pub command: &'static str,
    pub rows: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub tag: CommandTag,
    /// The reply must wait until this is durable (`Engine::wait_durable`). `None`: it may leave at once (a provisional tag inside a
    /// transaction, a read at the durable horizon, a deferred commit).
    pub durable: Option<Cts>,
    /// E.g. "there is no transaction in progress": (SQLSTATE, message).
    pub warning: Option<(&'static str, String)>,
}

/// A statement's progress.
pub enum Step {
    Done(Outcome),
    /// Await or block on this, then `resume`.
    Wait(Wait),
}

/// A lock, room in the log, or a query on its own threads.
pub struct Wait {}

impl std::future::Future for Wait {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        unimplemented!()
    }
}

impl Wait {
    /// Whether `lock_timeout` bounds it.
    pub fn is_lock(&self) -> bool {
        unimplemented!()
    }
    /// Waits on the calling thread; false if `limit` passed first.
    pub fn block(&mut self, _limit: Option<Duration>) -> bool {
        unimplemented!()
    }
}

/// What SET changes and SHOW tells, with what a driver expects to read at start-up.
#[derive(Clone, Debug, Default)]
pub struct Settings {}

pub struct Session {}

#[allow(unused_variables)]
impl Session {
    pub fn new(engine: &Engine) -> Result<Session, SqlError> {
        unimplemented!()
    }
    pub fn engine(&self) -> &Engine {
        unimplemented!()
    }
    /// Parses and binds one statement; uses the shared cache. `types`: declared parameter types, `None` where unknown.
    pub fn prepare(&mut self, sql: &str, types: &[Option<Type>]) -> Result<Arc<Prepared>, SqlError> {
        unimplemented!()
    }
    /// Splits a simple-protocol script at its semicolons; each piece is prepared just before it runs.
    pub fn split(&self, script: &str) -> Result<Vec<String>, SqlError> {
        unimplemented!()
    }
    /// Starts a statement. Rows go to `rows`. An error fails an open transaction as in PostgreSQL.
    pub fn execute(
        &mut self,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        unimplemented!()
    }
    /// Goes on after a wait.
    pub fn resume(&mut self, rows: &mut RowSet) -> Result<Step, SqlError> {
        unimplemented!()
    }
    /// Ends the statement in progress with an error (57014 cancel, 55P03 lock timeout).
    pub fn cancel(&mut self, error: SqlError) -> SqlError {
        unimplemented!()
    }
    /// An error of the protocol or of parameter decoding fails an open transaction as one of a statement does.
    pub fn fail(&mut self) {
        unimplemented!()
    }
    /// What the last error depends on: a client may hear of it once this is durable.
    pub fn error_dependency(&self) -> Option<Cts> {
        unimplemented!()
    }
    /// Who the client is: `current_user`, `current_database()`, `pg_backend_pid()`.
    pub fn identify(&mut self, user: &str, database: &str, pid: i32) {
        unimplemented!()
    }
    pub fn status(&self) -> TransactionStatus {
        unimplemented!()
    }
    /// Several statements of one simple query run as one transaction unless they control it themselves.
    pub fn begin_implicit(&mut self) {
        unimplemented!()
    }
    pub fn commit_implicit(&mut self) -> Result<Step, SqlError> {
        unimplemented!()
    }
    pub fn setting(&self, name: &str) -> Option<String> {
        unimplemented!()
    }
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        unimplemented!()
    }
    /// Settings changed since the last call, for ParameterStatus.
    pub fn take_reported(&mut self) -> Vec<(String, String)> {
        unimplemented!()
    }
    pub fn lock_timeout(&self) -> Option<Duration> {
        unimplemented!()
    }
    pub fn statement_timeout(&self) -> Option<Duration> {
        unimplemented!()
    }
    /// Rolls back what is open (the client is gone).
    pub fn close(&mut self) {
        unimplemented!()
    }
}
