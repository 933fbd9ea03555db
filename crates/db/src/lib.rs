//! Freshet embedded: a durable in-memory SQL database in your process.
//!
//! ```
//! use freshet_db::{Database, IntoDatum, Options};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let db = Database::open(Options::small(path))?;
//! let mut session = db.session()?;
//! session.run("CREATE TABLE account (id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12,2))")?;
//!
//! let insert = session.prepare("INSERT INTO account VALUES ($1, $2, $3)")?;
//! session.execute(&insert, &[1.into_datum(), "Ada".into_datum(), "100.00".into_datum()])?;
//! session.execute(&insert, &[2.into_datum(), "Bob".into_datum(), "20.50".into_datum()])?;
//!
//! let transfer = session.prepare("UPDATE account SET balance = balance + $2 WHERE id = $1")?;
//! let mut transaction = session.begin()?;
//! transaction.execute(&transfer, &[1.into_datum(), "-7.25".into_datum()])?;
//! transaction.execute(&transfer, &[2.into_datum(), "7.25".into_datum()])?;
//! transaction.commit()?; // durable now
//!
//! let select = session.prepare("SELECT owner, balance FROM account WHERE id = $1")?;
//! let rows = session.query(&select, &[2.into_datum()])?;
//! assert_eq!(rows.text(0, 0), Some("Bob"));
//! assert_eq!(rows.display(0, 1).as_deref(), Some("27.75"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Session`] is one connection, used by one thread at a time; a [`Statement`] is prepared once and serves every session of its
//! database, through changes of the schema too. What a call returns outside of a transaction is durable. [`Session::execute_ticket`]
//! and [`Transaction::commit_ticket`] return before that, with a [`Ticket`] to wait for, block on or await: so one thread
//! can keep a thousand commits in flight.
//!
//! A process that has a database open may fork to run another program. The fork itself has nothing but a copy of its memory: nothing that it commits is
//! acknowledged or written (58030), and it is to end without dropping the database (`_exit`).
//!
//! One process may embed a database and listen for PostgreSQL clients at once: the server takes a [`Database`] too.

mod datum;
mod copy;
mod load;

pub use datum::IntoDatum;
pub use freshet_engine::engine::{CheckpointFailure, CheckpointProgress, CheckpointReport, OpenError, Options, Stats};
use freshet_engine::engine::{DurableWait, Engine};
use freshet_engine::ids::Cts;
use freshet_engine::io::Io;
pub use freshet_engine::mem::resident_bytes;
pub use freshet_sql as sql;
use freshet_sql::cache::StatementCache;
pub use freshet_sql::{Ahead, Column, Datum, RowSet, SqlError, Type, Value};
use freshet_sql::{Outcome, Prepared, Step, TransactionStatus, Wait};
pub use load::{Appender, BulkLoad};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// An open database. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    cache: Arc<StatementCache>,
}

/// A connection: one thread at a time, at most one transaction at a time.
pub struct Session {
    inner: sql::Session,
    rows: RowSet,
    converted: Vec<Datum>,
    /// Of `query_many`: rows after each set of parameters.
    ends: Vec<usize>,
    /// Of one set, where they run one by one.
    rows_of_one: RowSet,
}

/// The rows of a statement that ran with many sets of parameters.
#[derive(Clone, Copy)]
pub struct RowSets<'s> {
    rows: &'s RowSet,
    ends: &'s [usize],
}

impl RowSets<'_> {
    /// The rows of all sets, one set's after the other's.
    pub fn rows(&self) -> &RowSet {
        self.rows
    }

    /// Which of them are of the `i`-th set.
    pub fn of(&self, i: usize) -> Range<usize> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        start..self.ends[i]
    }
}

/// A prepared statement; cheap to clone, usable by every session of its database.
#[derive(Clone)]
pub struct Statement {
    prepared: Arc<Prepared>,
}

/// A commit on its way to the devices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub Cts);

/// A transaction as a scoped value: dropped without `commit`, it is rolled back.
pub struct Transaction<'s> {
    session: &'s mut Session,
    open: bool,
}

/// Ready when a ticket is durable; also `Future`.
pub struct Durable {
    wait: Result<DurableWait, ForeignTicket>,
}

/// A ticket of another database, or of none.
struct ForeignTicket;

impl From<ForeignTicket> for SqlError {
    fn from(_: ForeignTicket) -> SqlError {
        SqlError::new("22023", "the ticket is of no commit of this database")
    }
}

impl Durable {
    /// Blocks until the ticket's commit is durable.
    pub fn wait(self) -> Result<(), SqlError> {
        Ok(self.wait?.wait()?)
    }
}

impl Future for Durable {
    type Output = Result<(), SqlError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.wait {
            Ok(wait) => Pin::new(wait).poll(context).map(|result| result.map_err(SqlError::from)),
            Err(ForeignTicket) => Poll::Ready(Err(ForeignTicket.into())),
        }
    }
}

impl Database {
    /// Opens a database, or creates it where there is none and the options allow it. Recovery happens here.
    pub fn open(options: Options) -> Result<Database, OpenError> {
        Ok(Database::of(Engine::open(options)?))
    }

    fn of(engine: Engine) -> Database {
        let cache = Arc::default();
        sql::session::drop_leftovers(&engine, &cache);
        Database { engine, cache }
    }

    /// The same on files from outside, which may be slower or fail.
    pub fn open_on(io: Arc<dyn Io>, options: Options) -> Result<Database, OpenError> {
        Ok(Database::of(Engine::open_on(io, options)?))
    }

    /// A new connection.
    pub fn session(&self) -> Result<Session, SqlError> {
        Ok(Session {
            inner: self.sql_session()?,
            rows: RowSet::default(),
            converted: Vec::new(),
            ends: Vec::new(),
            rows_of_one: RowSet::default(),
        })
    }

    /// A session in steps, as an event loop drives it; it shares this database's statement cache.
    pub fn sql_session(&self) -> Result<sql::Session, SqlError> {
        sql::Session::with_cache(&self.engine, self.cache.clone())
    }

    /// Blocks until the ticket's commit is durable. A ticket is of the database that gave it, as long as that is open: 22023 for one that no commit of this one has.
    pub fn wait(&self, ticket: Ticket) -> Result<(), SqlError> {
        if self.is_durable(ticket) {
            return Ok(());
        }
        self.durable(ticket).wait()
    }

    /// A future of the ticket's durability.
    ///
    /// ```
    /// # use freshet_db::{Database, IntoDatum, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(Options::small(dir.path()))?;
    /// let mut session = db.session()?;
    /// session.run("CREATE TABLE t (id int PRIMARY KEY)")?;
    /// let insert = session.prepare("INSERT INTO t VALUES ($1)")?;
    /// let (_, first) = session.execute_ticket(&insert, &[1.into_datum()])?;
    /// let (_, second) = session.execute_ticket(&insert, &[2.into_datum()])?;
    /// // Each is visible once what committed before it is: soon, and not later than it is durable. One wait covers both, because durability follows
    /// // commit order.
    /// db.durable(first.max(second)).wait()?;
    /// assert!(db.is_durable(first));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durable(&self, ticket: Ticket) -> Durable {
        let is_own = self.engine.has_drawn(ticket.0);
        Durable { wait: if is_own { Ok(self.engine.wait_durable(ticket.0)) } else { Err(ForeignTicket) } }
    }

    /// Whether the commit is durable by now. To ask is not to wait: where nobody does, commits may come together for half a millisecond before they are
    /// written. Who needs to know soon waits, or polls [`Durable`] as a future.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.engine.is_durable(ticket.0)
    }

    /// Begins a bulk load of an empty table, named as in SQL: see [`BulkLoad`].
    pub fn bulk_load(&self, table: &str) -> Result<BulkLoad, SqlError> {
        BulkLoad::begin(&self.engine, table)
    }

    /// Writes a checkpoint; returns when it is complete and the log below it is recycled.
    pub fn checkpoint(&self) -> Result<(), SqlError> {
        Ok(self.engine.checkpoint()?)
    }

    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Who is connected, what has been done, and what sessions have for defaults: for the server.
    pub fn activity(&self) -> &Arc<sql::activity::Activity> {
        &self.cache.activity
    }

    /// What this machine lacks that would make the database faster, a line each.
    pub fn runs_without(&self) -> Vec<String> {
        self.engine.runs_without()
    }

    /// The engine beneath, for the server.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Session {
    /// Parses and plans a statement once.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        let prepared = self.inner.prepare(sql, &[]).map_err(|error| self.told(error))?;
        if let Some(cts) = self.inner.prepare_dependency() {
            self.inner.engine().wait_durable(cts).wait()?;
        }
        Ok(Statement { prepared })
    }

    /// Runs one statement that is given as text, with its values in it: texts that differ in their values alone are planned once. What was run, and the rows
    /// affected or given, which are in [`Session::rows`] until the next call.
    pub fn run_text(&mut self, sql: &str) -> Result<(Statement, u64), SqlError> {
        let (prepared, values) = self.inner.prepare_text(sql).map_err(|error| self.told(error))?;
        if let Some(cts) = self.inner.prepare_dependency() {
            self.inner.engine().wait_durable(cts).wait()?;
        }
        self.inner.set_waits_inline(true);
        let outcome = self.complete_as_it_is(&prepared, &values)?;
        self.settle(&outcome)?;
        Ok((Statement { prepared }, outcome.tag.rows.unwrap_or(0)))
    }

    /// What the last statement gave.
    pub fn rows(&self) -> &RowSet {
        &self.rows
    }

    /// Runs a statement and waits until its outcome is durable (autocommit); inside a transaction it is provisional until the commit is. Rows affected or given.
    pub fn execute(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<u64, SqlError> {
        self.inner.set_waits_inline(true);
        if let Some(durable) = self.change_once(statement, parameters) {
            durable.map_or(Ok(()), |cts| self.inner.engine().wait_durable(cts).wait())?;
            return Ok(1);
        }
        let outcome = self.complete(statement, parameters)?;
        self.settle(&outcome)?;
        Ok(outcome.tag.rows.unwrap_or(0))
    }

    /// The short way of an UPDATE of one row by its key. `None`: this is none, or its parameters are to be checked.
    #[inline]
    fn change_once(&mut self, statement: &Statement, parameters: &[Datum]) -> Option<Option<Cts>> {
        if parameters.iter().any(|parameter| matches!(parameter, Datum::Bytes(_))) {
            return None;
        }
        self.inner.change_once(&statement.prepared, parameters)
    }

    /// Runs a statement and gives its rows, which live in this session's buffer until the next call.
    pub fn query(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<&RowSet, SqlError> {
        if let Some(looked_up) = self.look_up(statement, parameters) {
            looked_up?;
            return Ok(&self.rows);
        }
        let outcome = self.complete(statement, parameters)?;
        self.settle(&outcome)?;
        Ok(&self.rows)
    }

    /// Runs a statement with many sets of parameters. Lookups by key run at one snapshot and share their cache misses, several times as fast as one by one;
    /// other statements run one after the other, each on its own.
    ///
    /// ```
    /// # use freshet_db::{Database, IntoDatum, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(Options::small(dir.path()))?;
    /// let mut session = db.session()?;
    /// session.run("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'one'), (3, 'three')")?;
    /// let select = session.prepare("SELECT name FROM t WHERE id = $1")?;
    /// let found = session.query_many(&select, &[&[3.into_datum()], &[2.into_datum()], &[1.into_datum()]])?;
    /// assert_eq!(found.rows().text(found.of(0).start, 0), Some("three"));
    /// assert!(found.of(1).is_empty());
    /// assert_eq!(found.of(2), 1..2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn query_many(&mut self, statement: &Statement, sets: &[&[Datum]]) -> Result<RowSets<'_>, SqlError> {
        self.ends.clear();
        let has_bytes = sets.iter().copied().flatten().any(|parameter| matches!(parameter, Datum::Bytes(_)));
        let looked_up = match has_bytes {
            true => None,
            false => self.inner.look_up_many(&statement.prepared, sets, &mut self.rows, &mut self.ends),
        };
        match looked_up {
            Some(looked_up) => self.settle_look_up(looked_up)?,
            None => self.query_each(statement, sets)?,
        }
        Ok(RowSets { rows: &self.rows, ends: &self.ends })
    }

    fn query_each(&mut self, statement: &Statement, sets: &[&[Datum]]) -> Result<(), SqlError> {
        let mut all = std::mem::take(&mut self.rows_of_one);
        all.charge_to(self.inner.engine());
        all.start(statement.columns());
        let mut run = || -> Result<(), SqlError> {
            for parameters in sets {
                let outcome = self.complete(statement, parameters)?;
                self.settle(&outcome)?;
                all.append(&self.rows)?;
                self.ends.push(all.len());
            }
            Ok(())
        };
        let ran = run();
        self.rows_of_one = std::mem::replace(&mut self.rows, all);
        ran
    }

    /// The short way of a SELECT by key. `None`: this is none, or its parameters are to be converted.
    #[inline]
    fn look_up(&mut self, statement: &Statement, parameters: &[Datum]) -> Option<Result<(), SqlError>> {
        if parameters.iter().any(|parameter| matches!(parameter, Datum::Bytes(_))) {
            return None;
        }
        let looked_up = self.inner.look_up(&statement.prepared, parameters, &mut self.rows)?;
        Some(self.settle_look_up(looked_up))
    }

    #[inline]
    fn settle_look_up(&self, looked_up: Result<Option<Cts>, Box<SqlError>>) -> Result<(), SqlError> {
        if let Ok(None) = looked_up { Ok(()) } else { self.wait_for_look_up(looked_up) }
    }

    #[cold]
    fn wait_for_look_up(&self, looked_up: Result<Option<Cts>, Box<SqlError>>) -> Result<(), SqlError> {
        match looked_up {
            Ok(None) => Ok(()),
            Ok(Some(cts)) => Ok(self.inner.engine().wait_durable(cts).wait()?),
            Err(error) => Err(self.told(*error)),
        }
    }

    /// Runs a script of statements without parameters, each as a transaction of its own unless the script says BEGIN. Rows affected or
    /// given by the last one.
    pub fn run(&mut self, script: &str) -> Result<u64, SqlError> {
        let mut count = 0;
        for sql in self.inner.split(script)? {
            count = self.run_text(&sql)?.1;
        }
        Ok(count)
    }

    /// Autocommit without waiting: the ticket tells when it is durable. Others see it as [`Transaction::commit_ticket`] says.
    pub fn execute_ticket(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<(u64, Ticket), SqlError> {
        self.inner.set_waits_inline(false);
        if let Some(durable) = self.change_once(statement, parameters) {
            return Ok((1, Ticket(durable.unwrap_or(Cts::ZERO))));
        }
        let outcome = self.complete(statement, parameters)?;
        Ok((outcome.tag.rows.unwrap_or(0), Ticket(outcome.durable.unwrap_or(Cts::ZERO))))
    }

    /// Starts loading what a run with these parameters will want: for a program that knows several statements at a time, as an event loop with many
    /// sessions does. The cache misses of statements that are known together then overlap, most if it is said for a group of them one after the other.
    /// It says nothing about the outcome, may be left out, and does nothing for a statement that is not one row by its integer key.
    ///
    /// ```
    /// # use freshet_db::{Ahead, Database, IntoDatum, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(Options::small(dir.path()))?;
    /// # let mut session = db.session()?;
    /// session.run("CREATE TABLE t (id bigint PRIMARY KEY, n bigint) WITH (primary_key = hash)")?;
    /// session.run("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")?;
    /// let update = session.prepare("UPDATE t SET n = n + 1 WHERE id = $1")?;
    /// let received = [1i64, 2, 3].map(|id| [id.into_datum()]);
    /// received.iter().for_each(|parameters| session.load_ahead(&update, parameters, Ahead::Entry));
    /// received.iter().for_each(|parameters| session.load_ahead(&update, parameters, Ahead::Row));
    /// for parameters in &received {
    ///     assert_eq!(session.execute(&update, parameters)?, 1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn load_ahead(&self, statement: &Statement, parameters: &[Datum], what: Ahead) {
        let prepared = &statement.prepared;
        if let Some(at) = prepared.key_parameter()
            && let Some(Datum::Int(key)) = parameters.get(usize::from(at))
        {
            self.inner.load_ahead(prepared, *key, what);
            match what {
                _ if prepared.columns.is_empty() => {}
                Ahead::Entry => self.rows.load_ahead(),
                Ahead::Row => self.rows.load_cells_ahead(),
            }
        }
    }

    /// Begins a transaction with the session's default isolation level.
    ///
    /// ```
    /// # use freshet_db::{Database, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(Options::small(dir.path()))?;
    /// let mut session = db.session()?;
    /// session.run("CREATE TABLE t (id int PRIMARY KEY)")?;
    /// let insert = session.prepare("INSERT INTO t VALUES (1)")?;
    /// {
    ///     let mut transaction = session.begin()?;
    ///     transaction.execute(&insert, &[])?;
    ///     // Dropped without commit: rolled back.
    /// }
    /// let count = session.prepare("SELECT count(*) FROM t")?;
    /// assert_eq!(session.query(&count, &[])?.i64(0, 0), Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&mut self) -> Result<Transaction<'_>, SqlError> {
        if self.inner.status() != TransactionStatus::Idle {
            return Err(SqlError::new("25001", "there is already a transaction in progress"));
        }
        self.control("BEGIN")?;
        Ok(Transaction { session: self, open: true })
    }

    /// Where this session stands with its transaction.
    pub fn status(&self) -> TransactionStatus {
        self.inner.status()
    }

    /// Bytes of the last commit's record with its header.
    pub fn last_commit_record_bytes(&self) -> u64 {
        self.inner.last_commit_record_bytes()
    }

    /// The session in steps.
    pub fn inner(&mut self) -> &mut sql::Session {
        &mut self.inner
    }

    /// BEGIN, COMMIT, ROLLBACK: cached like any statement.
    fn control(&mut self, sql: &str) -> Result<Outcome, SqlError> {
        let statement = self.prepare(sql)?;
        self.complete(&statement, &[])
    }

    /// Runs to the end, blocking where it must wait.
    fn complete(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<Outcome, SqlError> {
        let prepared = &statement.prepared;
        if !datum::check_bytes(&prepared.parameters, parameters, &mut self.converted)? {
            return self.complete_as_it_is(prepared, parameters);
        }
        let converted = std::mem::take(&mut self.converted);
        let outcome = self.complete_as_it_is(prepared, &converted);
        self.converted = converted;
        outcome
    }

    /// The same with parameters in their types' own forms.
    fn complete_as_it_is(&mut self, prepared: &Arc<Prepared>, parameters: &[Datum]) -> Result<Outcome, SqlError> {
        let started = self.inner.statement_timeout().map(|limit| (Instant::now(), limit));
        let step = self.inner.execute(prepared, parameters, &mut self.rows);
        let outcome = self.follow(step, started)?;
        match self.inner.copying() {
            None => Ok(outcome),
            Some(_) => Err(self.refuse_copy()),
        }
    }

    fn inner_and_rows(&mut self) -> (&mut sql::Session, &RowSet) {
        (&mut self.inner, &self.rows)
    }

    fn inner_and_rows_mut(&mut self) -> (&mut sql::Session, &mut RowSet) {
        (&mut self.inner, &mut self.rows)
    }

    /// Goes on with a statement to its end, blocking where it must wait.
    fn follow(
        &mut self,
        mut step: Result<Step, SqlError>,
        started: Option<(Instant, Duration)>,
    ) -> Result<Outcome, SqlError> {
        loop {
            match step.map_err(|error| self.told(error))? {
                Step::Done(outcome) => return Ok(outcome),
                Step::Wait(mut wait) => {
                    let (limit, error) = self.wait_limit(started, &wait);
                    if !wait.block(limit) && !self.inner.interrupt(&error) {
                        let error = self.inner.cancel(error);
                        return Err(self.told(error));
                    }
                }
                Step::Part(_) => unreachable!("invariant: only who asks for messages is given parts"),
            }
            step = self.inner.resume(&mut self.rows);
        }
    }

    /// How long a wait may take, and what is said when it took longer.
    fn wait_limit(&self, started: Option<(Instant, Duration)>, wait: &Wait) -> (Option<Duration>, SqlError) {
        let lock = self.inner.lock_timeout().filter(|_| wait.is_lock());
        let lock = lock.map(|limit| limit.saturating_sub(wait.waited()));
        let statement = started.map(|(at, limit)| limit.saturating_sub(at.elapsed()));
        match (lock, statement) {
            (lock, Some(statement)) if lock.is_none_or(|lock| statement < lock) => {
                (Some(statement), SqlError::new("57014", "canceling statement due to statement timeout"))
            }
            (lock, _) => (lock, SqlError::new("55P03", "canceling statement due to lock timeout")),
        }
    }

    /// An error is told once what it depends on is durable.
    fn told(&self, error: SqlError) -> SqlError {
        match self.inner.error_dependency() {
            None => error,
            Some(cts) => match self.inner.engine().wait_durable(cts).wait() {
                Ok(()) => error,
                Err(failure) => failure.into(),
            },
        }
    }

    /// A reply waits for what it depends on: outside of a transaction its commit, within one what its rows show.
    fn settle(&self, outcome: &Outcome) -> Result<(), SqlError> {
        match outcome.durable {
            Some(cts) => Ok(self.inner.engine().wait_durable(cts).wait()?),
            None => Ok(()),
        }
    }
}

impl Transaction<'_> {
    /// Rows affected or given; provisional until the commit.
    pub fn execute(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<u64, SqlError> {
        let outcome = self.session.complete(statement, parameters)?;
        Ok(outcome.tag.rows.unwrap_or(0))
    }

    /// The statement's rows, which live in the session's buffer until the next call.
    pub fn query(&mut self, statement: &Statement, parameters: &[Datum]) -> Result<&RowSet, SqlError> {
        let outcome = self.session.complete(statement, parameters)?;
        self.session.settle(&outcome)?;
        Ok(&self.session.rows)
    }

    /// Commits without waiting: others see it once all that committed before it is in place, not later than the ticket is durable.
    pub fn commit_ticket(mut self) -> Result<Ticket, SqlError> {
        self.session.inner.set_waits_inline(false);
        let outcome = self.end()?;
        Ok(Ticket(outcome.durable.unwrap_or(Cts::ZERO)))
    }

    /// Commits and waits until it is durable.
    pub fn commit(mut self) -> Result<(), SqlError> {
        self.session.inner.set_waits_inline(true);
        let outcome = self.end()?;
        self.session.settle(&outcome)
    }

    /// A failed transaction does not commit: that is 25P02 here, where SQL's COMMIT answers ROLLBACK.
    fn end(&mut self) -> Result<Outcome, SqlError> {
        self.open = false;
        match self.session.status() {
            TransactionStatus::Open => self.session.control("COMMIT"),
            TransactionStatus::Failed => {
                self.session.inner.abandon();
                Err(SqlError::new("25P02", "current transaction is aborted: it was rolled back"))
            }
            TransactionStatus::Idle => Err(SqlError::new("25P01", "there is no transaction in progress")),
        }
    }

    pub fn rollback(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            self.session.inner.abandon();
        }
    }
}

impl Statement {
    /// The result's columns; empty for a statement without rows.
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.prepared.columns
    }

    pub fn parameters(&self) -> &[Type] {
        &self.prepared.parameters
    }
}
