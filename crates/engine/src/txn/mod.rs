//! What is a transaction? Sessions, snapshots, versions, row locks, statements, commit.
//!
//! | module | question |
//! |---|---|
//! | `wait` | how to wait without parking a thread |
//! | `locks` | who waits for whom |
//! | `sessions` | which snapshots are in use |
//! | `version` | how an older version is reached |
//! | `record` | what a commit logs |
//! | `core` | what sessions share |
//! | `slots` | which free slots are a thread's own |
//! | `values` | where long values lie |
//! | `garbage` | what may be forgotten |
//! | `fold` | which versions nobody needs though an old snapshot stands |
//! | `fill` | how indexes are filled from rows in place |
//! | `session` | the life of a transaction |
//! | `claims` | which rows a transaction shares, and which tables it has locked |
//! | `advisory` | which keys of the application a session has locked |
//! | `noted` | who has changed what since when |
//! | `serial` | whether what a SERIALIZABLE transaction read still holds when it commits |
//! | `savepoint` | how it goes back a part of the way |
//! | `rows` | reading and writing rows |
//! | `range` | the rows of a range of an index, in its order |
//! | `lookup` | rows by whole keys, one or many at once |
//! | `once` | changing one row by its key, as a transaction of its own |
//! | `reader` | reading at a session's snapshot from other threads |
//! | `insertion` | one row inserted in one go |
//! | `ddl` | changing the schema: tables and indexes |
//! | `shown` | whether what is promised of a table holds of the snapshot, too |
//! | `objects` | changing the schema: definitions, sequences, views, name spaces |
//! | `restore` | definitions as another database had them |
//! | `sequences` | which value comes next |
//! | `keys` | rows by key as they are now, for foreign keys |
//! | `load` | filling an empty table with many rows |
//!
//! Invariants (those of the modules aside):
//!
//! 1. A statement sees the versions with cts at or below its snapshot, and its own transaction's.
//! 2. The write set is locked before the cts is drawn; stamps and lock releases come after it and before the commit leaves.
//! 3. After the draw nothing waits, fails or allocates.
//! 4. Whoever returns `Stop::Wait` has changed nothing that `rollback_statement` does not undo.
//!
//! Sources: HyPer's in-place MVCC (SIGMOD 2015) with XOR deltas for before-images, Silo's epochs (SOSP 2013), P*TIME (VLDB 2004).

mod wait;
mod locks;
mod version;
pub(crate) mod record;
mod sessions;
mod garbage;
mod fold;
pub(crate) mod core;
mod slots;
mod values;
mod fill;
mod noted;
mod serial;
mod session;
mod claims;
mod advisory;
mod savepoint;
mod rows;
mod range;
mod lookup;
mod once;
mod insertion;
mod reader;
mod ddl;
mod shown;
mod objects;
mod restore;
mod sequences;
mod keys;
mod load;
#[cfg(test)]
mod tests;

pub use advisory::{AdvisoryKeys, KeyTaken};
pub(crate) use fill::{Filling, Overseer, fill};
pub use insertion::Insertion;
pub use load::{Appender, Load};
pub use locks::{AdvisoryKey, Blocked, LockFact, LockMode, ModeName, Strength, Thing};
pub use lookup::{IntegerLookup, Lookup};
pub use once::Change;
pub use range::{Direction, RangeCursor};
pub use reader::{Batch, LeaseEnded, PageCursor, Reader, RowPicks};
pub use rows::{TableCursor, VALUE_BYTES_MAX};
pub use savepoint::Savepoint;
pub use sequences::TakenValue;
pub(crate) use sequences::{set as set_sequence, take as take_value};
pub use session::Session;
pub(crate) use values::{PAYLOAD, fetch_stored, list_bytes};
pub use wait::{WaitToken, block_on};

use crate::ids::Cts;

/// SQL's isolation levels. READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// Whether all statements of a transaction read at one snapshot.
    #[inline]
    pub fn keeps_snapshot(self) -> bool {
        self != Isolation::ReadCommitted
    }
}

/// What an operation of the engine can fail with; each maps to one SQLSTATE in `freshet_sql::error`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// 23505: another row has this key. The name of the index.
    UniqueViolation { index: String },
    /// 40001: the row changed since the snapshot.
    Serialization,
    /// 40001: what a SERIALIZABLE transaction read has changed since.
    ReadChanged,
    /// 40001: what was to be promised of a table does not hold of the rows that the transaction's snapshot shows.
    ShownOtherwise,
    /// 40P01: who waits for whom, the refused session first.
    Deadlock(Vec<Blocked>),
    /// 55P03: NOWAIT met a lock.
    LockNotAvailable,
    /// 53200: as many locks of tables or advisory keys as a session may hold.
    TooManyLocks,
    /// 53200: memory limit, with what was asked for.
    OutOfMemory(&'static str),
    /// 72000: the snapshot was ended to make room for versions.
    SnapshotTooOld,
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
    /// 55000: a bulk load into a table that has rows.
    NotEmpty(String),
    /// 55000: a bulk load that is over, or that an appender left unfinished.
    LoadEnded,
    /// 57014.
    Cancelled,
    /// 57014: the time that a statement may take is over.
    TimedOut,
    /// 25006.
    ReadOnly,
    /// 53300.
    TooManySessions,
    /// 58030: a checkpoint could not be written; commits go on until the log is full.
    Checkpoint(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::UniqueViolation { index } => write!(f, "duplicate key value violates unique constraint \"{index}\""),
            Error::Serialization => f.write_str("could not serialize access due to concurrent update"),
            Error::ReadChanged => {
                f.write_str("could not serialize access due to read/write dependencies among transactions")
            }
            Error::ShownOtherwise => f.write_str("could not serialize access due to concurrent update or delete"),
            Error::TooManyLocks => f.write_str("out of shared memory"),
            Error::Deadlock(_) => f.write_str("deadlock detected"),
            Error::LockNotAvailable => f.write_str("could not obtain lock on row"),
            Error::OutOfMemory(what) => write!(f, "out of memory: the memory limit leaves no room for {what}"),
            Error::SnapshotTooOld => f.write_str("snapshot too old"),
            Error::LogFull => f.write_str("the log is full"),
            Error::LogFailed(reason) => f.write_str(reason),
            Error::DuplicateRelation(name) => write!(f, "relation \"{name}\" already exists"),
            Error::UndefinedTable(name) => write!(f, "table \"{name}\" does not exist"),
            Error::UndefinedIndex(name) => write!(f, "index \"{name}\" does not exist"),
            Error::LimitExceeded(what) => f.write_str(what),
            Error::NotEmpty(name) => write!(f, "table \"{name}\" has rows: a bulk load needs an empty table"),
            Error::LoadEnded => f.write_str("the bulk load has ended, or one of its appenders was not finished"),
            Error::Cancelled => f.write_str("canceled"),
            Error::TimedOut => f.write_str("timed out"),
            Error::TooManySessions => f.write_str("too many sessions"),
            Error::Checkpoint(reason) => f.write_str(reason),
            Error::ReadOnly => f.write_str("cannot execute in a read-only transaction"),
        }
    }
}

impl std::error::Error for Error {}

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
