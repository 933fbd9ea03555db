//! What is a transaction? Sessions, snapshots, row locks, statements, commit.

use crate::catalog::{Index, IndexDef, Schema, Table, TableDef};
use crate::ids::{Cts, RowId};
use crate::schema::{KeyBuf, Row, Value};
use std::sync::Arc;
use std::time::Duration;

/// SQL's isolation levels; today the first two. READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
}

/// What an operation of the engine can fail with; each maps to one SQLSTATE in `freshet_sql::error`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// 23505: another row has this key. The name of the index.
    UniqueViolation { index: String },
    /// 40001: the row changed since the snapshot.
    Serialization,
    /// 40P01.
    Deadlock,
    /// 55P03: NOWAIT met a lock.
    LockNotAvailable,
    /// 53200: memory limit, with what was asked for.
    OutOfMemory(&'static str),
    /// 53100: the log has no room.
    LogFull,
    /// 58030: the log failed; nothing is acknowledged any more.
    LogFailed(String),
    /// 42P07 (tables and indexes share one name space, as in PostgreSQL).
    DuplicateRelation(String),
    /// 42P01.
    UndefinedTable(String),
    /// 42704.
    UndefinedIndex(String),
    /// 54000: a record or key wider than a page takes; a value beyond 1 GiB.
    LimitExceeded(String),
    /// 25006.
    ReadOnly,
}

/// Why an operation did not happen.
#[derive(Debug)]
pub enum Stop {
    /// Wait for this, then undo the statement (`rollback_statement`), start it anew (`begin_statement`) and run it again.
    Wait(WaitToken),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// A wait for a lock or for room in the log. A future for event loops; `block` for threads.
#[derive(Debug)]
pub struct WaitToken {}

impl std::future::Future for WaitToken {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        unimplemented!()
    }
}

impl WaitToken {
    /// Waits on the calling thread; false if `limit` passed first.
    pub fn block(&mut self, _limit: Option<Duration>) -> bool {
        unimplemented!()
    }
}

/// What locking a row met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    /// The newest version is the one the statement's snapshot sees (or the transaction's own).
    Same,
    /// READ COMMITTED only: a newer version; the caller re-evaluates its condition on it.
    Newer,
    /// The row is deleted (READ COMMITTED), or its slot holds nothing visible.
    Gone,
}

/// A committed transaction: durable once `Engine::wait_durable(cts)` is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// What the reply depends on: the commit's own timestamp, or for a transaction that wrote nothing the largest it examined.
    pub cts: Cts,
}

/// A connection to the engine: at most one transaction at a time, and the buffers it reuses.
pub struct Session {}

/// Position of a full scan.
#[derive(Default)]
pub struct TableCursor {}

/// Position of an index range scan.
pub struct RangeCursor {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

#[allow(unused_variables)]
impl Session {
    // ---- transactions
    pub fn begin(&mut self, isolation: Isolation, read_only: bool) {
        unimplemented!()
    }
    /// Starts an autocommit read: at the durable horizon where that covers what this session has seen, so that it waits for nothing.
    pub fn begin_read(&mut self) {
        unimplemented!()
    }
    pub fn in_transaction(&self) -> bool {
        unimplemented!()
    }
    /// Starts a statement: a new command number and, in READ COMMITTED, a new snapshot; picks up the current schema.
    pub fn begin_statement(&mut self) {
        unimplemented!()
    }
    /// Undoes the current statement's changes; its row locks stay.
    pub fn rollback_statement(&mut self) {
        unimplemented!()
    }
    /// Commits (pre-commit: visible to others, durable later). On `Stop::Wait` call it again after the wait; on an error the transaction is rolled back.
    pub fn commit(&mut self) -> Result<Committed, Stop> {
        unimplemented!()
    }
    pub fn rollback(&mut self) {
        unimplemented!()
    }
    /// Gives up a wait (time limit, cancel): leaves the queue. The transaction goes on or is rolled back by the caller.
    pub fn abandon_wait(&mut self) {
        unimplemented!()
    }
    /// The largest commit timestamp of any version this transaction examined; a reply waits until it is durable.
    pub fn dependency(&self) -> Cts {
        unimplemented!()
    }
    /// Locks fail with `LockNotAvailable` instead of waiting.
    pub fn set_nowait(&mut self, nowait: bool) {
        unimplemented!()
    }
    /// This session's transactions answer at pre-commit (`synchronous_commit = off`): later reads elsewhere respect it.
    pub fn acknowledged_deferred(&mut self, cts: Cts) {
        unimplemented!()
    }

    // ---- schema
    /// The schema this statement sees, own uncommitted DDL included.
    pub fn schema(&self) -> &Arc<Schema> {
        unimplemented!()
    }
    /// `indexes` in order; the primary key first.
    pub fn create_table(&mut self, def: TableDef, indexes: Vec<IndexDef>) -> Result<(), Stop> {
        unimplemented!()
    }
    pub fn drop_table(&mut self, name: &str) -> Result<(), Stop> {
        unimplemented!()
    }
    pub fn truncate(&mut self, name: &str) -> Result<(), Stop> {
        unimplemented!()
    }
    pub fn create_index(&mut self, table: &str, def: IndexDef) -> Result<(), Stop> {
        unimplemented!()
    }
    pub fn drop_index(&mut self, name: &str) -> Result<(), Stop> {
        unimplemented!()
    }

    // ---- rows
    /// Copies the version of the row that the statement sees; false if it sees none.
    pub fn read(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        unimplemented!()
    }
    /// Brings a long value of the copy onto its heap, so that `Row::get` can give it. Does nothing for other columns.
    pub fn fetch_long(&mut self, table: &Table, row: &mut Row, column: usize) {
        unimplemented!()
    }
    /// The next visible row of a full scan.
    pub fn scan_next(
        &mut self,
        table: &Table,
        cursor: &mut TableCursor,
        row: &mut Row,
    ) -> Option<RowId> {
        unimplemented!()
    }
    /// The visible row with this key in a unique index. `value(i)` is the key's i-th column.
    pub fn get<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        row: &mut Row,
    ) -> Option<RowId> {
        unimplemented!()
    }
    /// Appends candidates with this key in any index: read each and check its columns.
    pub fn lookup<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        value: impl Fn(usize) -> Value<'a>,
        candidates: &mut Vec<RowId>,
    ) {
        unimplemented!()
    }
    /// A range over a B+-tree index, both ends inclusive in words (`index.spec.encode`, `pad_high` for the upper one): a superset, which the caller's conditions narrow.
    pub fn range(
        &mut self,
        table: &Table,
        index: &Index,
        lower: &KeyBuf,
        upper: &KeyBuf,
        direction: Direction,
    ) -> RangeCursor {
        unimplemented!()
    }
    /// The next visible row of the range in exact key order, each row once.
    pub fn range_next(
        &mut self,
        table: &Table,
        index: &Index,
        cursor: &mut RangeCursor,
        row: &mut Row,
    ) -> Option<RowId> {
        unimplemented!()
    }
    /// Locks the row and copies its newest version.
    pub fn lock(&mut self, table: &Table, id: RowId, row: &mut Row) -> Result<Locked, Stop> {
        unimplemented!()
    }
    /// Whether this transaction's current statement has already written the row (so that an update does not meet its own result again).
    pub fn written_by_statement(&mut self, table: &Table, id: RowId) -> bool {
        unimplemented!()
    }
    pub fn insert(&mut self, table: &Arc<Table>, row: &mut Row) -> Result<RowId, Stop> {
        unimplemented!()
    }
    /// `old` is what `lock` gave; `new` a copy of it with columns set.
    pub fn update(
        &mut self,
        table: &Arc<Table>,
        id: RowId,
        old: &Row,
        new: &mut Row,
    ) -> Result<(), Stop> {
        unimplemented!()
    }
    /// `old` is what `lock` gave.
    pub fn delete(&mut self, table: &Arc<Table>, id: RowId, old: &Row) -> Result<(), Stop> {
        unimplemented!()
    }
}
