//! What takes the statements that are not compiled? The seam behind which another road plans and runs them.
//!
//! The other road is DataFusion (feature `query`). It gets what it needs to plan and run by itself: the statement's syntax tree and the
//! schema, and for a run the engine's session with the statement's snapshot.

use crate::bind::expr::SessionLiteral;
use crate::compiled::Interrupt;
use crate::compiled::rules::Constraints;
use crate::error::SqlError;
use crate::explain::Options;
use crate::expr::Env;
use crate::rows::{Column, RowSet};
use crate::value::Datum;
use freshet_engine::catalog::Schema;
use freshet_engine::engine::Engine;
use freshet_engine::schema::Type;
use freshet_engine::txn::{Session, WaitToken};
use sqlparser::ast::Statement;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A road beside the compiled one.
pub trait Road: Sync {
    /// Plans a SELECT, or an UPDATE or DELETE with joins or subqueries, that the compiled road refused.
    fn plan(&self, request: &Request<'_>) -> Result<Arc<dyn Planned>, SqlError>;
}

/// A statement for the other road.
pub struct Request<'a> {
    pub sql: &'a str,
    pub statement: &'a Statement,
    pub schema: &'a Arc<Schema>,
    /// Declared parameter types, `None` where unknown.
    pub declared: &'a [Option<Type>],
}

/// A plan of the other road; shared by sessions like any prepared statement.
pub trait Planned: Send + Sync + std::fmt::Debug {
    fn parameters(&self) -> Vec<Type>;
    /// Empty: the statement gives no rows.
    fn columns(&self) -> Arc<[Column]>;
    /// `SELECT`, `UPDATE`, `DELETE`.
    fn command(&self) -> &'static str;
    /// Changes rows: runs in a read-write transaction.
    fn writes(&self) -> bool;
    /// Locks rows: likewise.
    fn locks(&self) -> bool;
    /// Takes or looks at values of sequences.
    fn uses_sequences(&self) -> bool;
    /// What a view of it keeps as it is read now.
    fn session_literals(&self) -> Vec<SessionLiteral>;
    /// Shows its plan; with ANALYZE it runs for that.
    fn explain(&self, context: &mut RoadContext<'_>, options: &Options) -> Result<Box<dyn Running>, SqlError>;
    /// Starts a run within the current statement of `context.session`.
    fn start(&self, context: &mut RoadContext<'_>) -> Result<Box<dyn Running>, SqlError>;
}

/// What a run of the other road works with.
pub struct RoadContext<'a> {
    pub engine: &'a Engine,
    /// In a statement: its snapshot is taken, its schema is current.
    pub session: &'a mut Session,
    pub parameters: &'a [Datum],
    pub env: &'a Env,
    pub interrupt: &'a mut Interrupt,
    pub constraints: &'a mut Constraints,
    /// Who asked takes a large result part by part.
    pub in_parts: bool,
}

/// A run in progress.
pub trait Running: Send {
    fn step(&mut self, context: &mut RoadContext<'_>, rows: &mut RowSet) -> Result<Progress, SqlError>;
}

/// How far a run came.
pub enum Progress {
    /// Rows given or changed, those of parts included.
    Done(u64),
    /// The rows are a part of the result. Once they have been taken, call `step` again: it takes all its rows anew.
    Part,
    /// Its own work goes on elsewhere: call `step` again once this is ready.
    Pending(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// A row lock: the statement is undone and started anew after the wait.
    Restart(WaitToken),
}

/// The other road of this build.
pub fn other_road() -> Option<&'static dyn Road> {
    #[cfg(feature = "query")]
    return Some(&crate::query::DataFusion);
    #[cfg(not(feature = "query"))]
    None
}

pub fn has_other_road() -> bool {
    other_road().is_some()
}
