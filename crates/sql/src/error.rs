//! The one place where an error gets its SQLSTATE.

use freshet_engine::txn::{AdvisoryKey, Blocked, Error, LockMode, ModeName, Strength, Thing};

/// What an error is about, as clients look it up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct About {
    pub schema: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub constraint: Option<String>,
}

/// An error as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError {
    /// Five characters, PostgreSQL's meaning.
    pub sqlstate: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// 1-based character position in the statement's text.
    pub position: Option<usize>,
    /// Where in the work at hand it was met: `COPY t, line 3`.
    pub context: Option<Box<Context>>,
    pub about: Option<Box<About>>,
}

/// A text that few errors have and all make room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context(pub String);

const PLAN_CHANGED: &str = "cached plan must not change result type";

impl SqlError {
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
        SqlError {
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            about: None,
        }
    }

    /// 0A000: parsed, understood, not there.
    pub fn unsupported(what: impl std::fmt::Display) -> SqlError {
        SqlError::new("0A000", format!("{what} is not supported"))
    }

    /// A client was told another row than a statement gives now.
    pub fn plan_changed() -> SqlError {
        SqlError::new("0A000", PLAN_CHANGED)
    }

    /// The function of PostgreSQL's that says so, where drivers know an error by it: they prepare anew.
    pub fn routine(&self) -> Option<&'static str> {
        (self.sqlstate == "0A000" && self.message == PLAN_CHANGED).then_some("RevalidateCachedQuery")
    }

    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        self.detail = Some(detail.into());
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.hint = Some(hint.into());
        self
    }

    /// Where it was met; what an inner place said stays.
    pub fn with_context(mut self, context: impl Into<String>) -> SqlError {
        self.context.get_or_insert_with(|| Box::new(Context(context.into())));
        self
    }

    /// 0A000 with a message of its own.
    pub fn unsupported_as(message: impl Into<String>) -> SqlError {
        SqlError::new("0A000", message)
    }

    /// Names the table, and what in it the error is about.
    pub fn about(mut self, schema: &str, table: &str, column: Option<&str>, constraint: Option<&str>) -> SqlError {
        self.about = Some(Box::new(About {
            schema: Some(schema.to_owned()),
            table: Some(table.to_owned()),
            column: column.map(str::to_owned),
            constraint: constraint.map(str::to_owned),
        }));
        self
    }

    /// Sets the position unless an inner place set a closer one.
    pub fn at(mut self, position: Option<usize>) -> SqlError {
        self.position = self.position.or(position);
        self
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)
    }
}

impl std::error::Error for SqlError {}

impl From<Error> for SqlError {
    fn from(error: Error) -> SqlError {
        match error {
            Error::UniqueViolation { index } => {
                SqlError::new("23505", format!("duplicate key value violates unique constraint \"{index}\""))
            }
            Error::Serialization => SqlError::new("40001", "could not serialize access due to concurrent update")
                .with_hint("Run the transaction again."),
            Error::ShownOtherwise => {
                let message = "could not serialize access due to concurrent update or delete";
                SqlError::new("40001", message)
                    .with_detail("The transaction's snapshot shows rows of which the constraint does not hold.")
                    .with_hint("Run the transaction again.")
            }
            Error::ReadChanged => {
                let message = "could not serialize access due to read/write dependencies among transactions";
                SqlError::new("40001", message)
                    .with_detail("Reason code: what the transaction read has changed since, found at its commit.")
                    .with_hint("The transaction might succeed if retried.")
            }
            Error::Deadlock(way) => SqlError::new("40P01", "deadlock detected")
                .with_detail(way.iter().map(waits).collect::<Vec<_>>().join("\n"))
                .with_hint("See server log for query details."),
            Error::TooManyLocks => SqlError::new("53200", "out of shared memory")
                .with_hint("A transaction locks at most 65536 tables or advisory keys."),
            Error::LockNotAvailable => SqlError::new("55P03", "could not obtain lock on row: it is locked"),
            Error::OutOfMemory(what) => SqlError::new("53200", "out of memory")
                .with_detail(format!("The memory limit leaves no room for {what}."))
                .with_hint("Delete rows, change fewer in one transaction, or raise memory_limit; freshet_memory tells what takes memory."),
            Error::SnapshotTooOld => SqlError::new("72000", "snapshot too old")
                .with_detail("Its row versions had to make room for those of newer transactions.")
                .with_hint("Run the transaction again."),
            Error::LogFull => SqlError::new("53100", "the log has no room")
                .with_hint("Wait for a checkpoint, or give the database a larger log."),
            Error::LogFailed(reason) => SqlError::new("58030", reason).with_hint("Restart the database."),
            Error::DuplicateRelation(name) => SqlError::new("42P07", format!("relation \"{name}\" already exists")),
            Error::UndefinedTable(name) => SqlError::new("42P01", format!("table \"{name}\" does not exist")),
            Error::UndefinedIndex(name) => SqlError::new("42704", format!("index \"{name}\" does not exist")),
            Error::TooManySessions => SqlError::new("53300", "too many sessions"),
            Error::Checkpoint(reason) => SqlError::new("58030", format!("the checkpoint was not written: {reason}")),
            Error::LimitExceeded(what) => SqlError::new("54000", what),
            Error::NotEmpty(name) => SqlError::new("55000", format!("table \"{name}\" has rows"))
                .with_detail("A bulk load fills an empty table.")
                .with_hint("TRUNCATE it, or use INSERT."),
            Error::LoadEnded => SqlError::new("55000", error.to_string()),
            Error::Cancelled => SqlError::new("57014", "canceling statement due to user request"),
            Error::TimedOut => SqlError::new("57014", "canceling statement due to statement timeout"),
            Error::ReadOnly => SqlError::new("25006", "cannot execute a writing statement in a read-only transaction"),
        }
    }
}

/// A line of a deadlock's detail.
fn waits(step: &Blocked) -> String {
    let Blocked { session, thing, mode, by } = step;
    let on = match thing {
        Thing::Row(row) => format!("tuple {}", row.0),
        Thing::Table(table) => format!("relation {}", table.0),
        Thing::Advisory(AdvisoryKey::One(key)) => format!("advisory lock [{key}]"),
        Thing::Advisory(AdvisoryKey::Two(a, b)) => format!("advisory lock [{a},{b}]"),
        Thing::Transaction(holder) => format!("transaction of process {holder}"),
    };
    format!("Process {session} waits for {} on {on}; blocked by process {by}.", mode_name(*mode))
}

/// A mode as pg_locks names it. Of rows, in the names that PostgreSQL gives a waiter's lock of the tuple.
pub(crate) fn mode_name(mode: ModeName) -> &'static str {
    match mode {
        ModeName::Table(LockMode::AccessShare) | ModeName::Row(Strength::KeyShare) => "AccessShareLock",
        ModeName::Table(LockMode::RowShare) | ModeName::Row(Strength::Share) => "RowShareLock",
        ModeName::Table(LockMode::RowExclusive) => "RowExclusiveLock",
        ModeName::Table(LockMode::ShareUpdateExclusive) => "ShareUpdateExclusiveLock",
        ModeName::Table(LockMode::Share) | ModeName::End => "ShareLock",
        ModeName::Table(LockMode::ShareRowExclusive) => "ShareRowExclusiveLock",
        ModeName::Table(LockMode::Exclusive) | ModeName::Row(Strength::NoKeyUpdate) => "ExclusiveLock",
        ModeName::Table(LockMode::AccessExclusive) | ModeName::Row(Strength::Update) => "AccessExclusiveLock",
    }
}
