//! How do many rows get into an empty table fast? Threads append, then indexes are filled by all cores, then one commit shows all of it.

use freshet_engine::engine::Engine;
use freshet_engine::txn::{Error, Isolation, Load, Session, Stop};
use freshet_sql::load::{check_loadable, set_row, table_named};
use freshet_sql::{Datum, SqlError};

/// A bulk load: all of it or nothing, like a transaction. Nobody else writes the table meanwhile; readers see it empty until the commit.
///
/// Values are checked as an INSERT of all columns would check them, and nulls. Unique keys are checked at the end: 23505, and nothing is loaded.
/// A table with CHECK constraints, foreign keys of its own, generated columns, an identity column that is `GENERATED ALWAYS`, or an index on an expression or a
/// condition is not loaded so (0A000): [`copy_in`](crate::Session::copy_in) takes its rows. What a
/// load takes of the log is recycled by checkpoints while it goes on, so it may be larger than the log. Dropped without
/// [`commit`](Self::commit), it is rolled back.
///
/// ```
/// # use freshet_db::{Database, IntoDatum, Options};
/// # let dir = tempfile::tempdir()?;
/// # let db = Database::open(Options::small(dir.path()))?;
/// let mut session = db.session()?;
/// session.run("CREATE TABLE call (id bigint PRIMARY KEY, seconds int, note text)")?;
///
/// let load = db.bulk_load("call")?;
/// std::thread::scope(|threads| {
///     let loading: Vec<_> = (0..2)
///         .map(|thread| {
///             let load = &load;
///             threads.spawn(move || {
///                 let mut appender = load.appender()?;
///                 for id in (thread..1000).step_by(2) {
///                     appender.append(&[id.into_datum(), 60.into_datum(), "a call".into_datum()])?;
///                 }
///                 appender.finish()
///             })
///         })
///         .collect();
///     loading.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
/// })?;
/// assert_eq!(load.commit()?, 1000); // durable now
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BulkLoad {
    engine: Engine,
    session: Session,
    load: Load,
}

/// Where one thread's rows go.
pub struct Appender {
    inner: freshet_engine::txn::Appender,
    load: std::sync::Arc<freshet_engine::catalog::Table>,
    row: freshet_engine::schema::Row,
}

impl BulkLoad {
    pub(crate) fn begin(engine: &Engine, table: &str) -> Result<BulkLoad, SqlError> {
        let mut session = engine.connect()?;
        session.begin(Isolation::ReadCommitted, false);
        let id = table_named(&engine.schema(), table)?;
        let load = statement(&mut session, |session| session.begin_load_of(id))?;
        // As it is now, and stays while it is loaded.
        if let Err(error) = check_loadable(load.table()) {
            drop(load);
            session.rollback();
            return Err(error);
        }
        // It keeps no versions for itself while it goes on.
        session.rest();
        Ok(BulkLoad { engine: engine.clone(), session, load })
    }

    /// For one thread; as many as there are cores are enough.
    pub fn appender(&self) -> Result<Appender, SqlError> {
        let load = self.load.table().clone();
        Ok(Appender { inner: self.load.appender()?, load, row: freshet_engine::schema::Row::default() })
    }

    /// Fills the indexes and commits; returns when all rows are durable. Every appender must have been finished. Gives the rows.
    pub fn commit(mut self) -> Result<u64, SqlError> {
        let load = &mut self.load;
        let rows = statement(&mut self.session, |session| session.finish_load(load))?;
        let committed = loop {
            match self.session.commit() {
                Ok(committed) => break committed,
                Err(Stop::Wait(mut token)) => _ = token.block(None),
                Err(Stop::Error(error)) => return Err(error.into()),
            }
        };
        self.engine.wait_durable(committed.cts).wait()?;
        Ok(rows)
    }
}

impl Appender {
    /// Takes a row: a value for each column, in their order, as `INSERT INTO t VALUES (...)` does.
    pub fn append(&mut self, values: &[Datum]) -> Result<(), SqlError> {
        set_row(&self.load, &mut self.row, values)?;
        let Appender { inner, row, .. } = self;
        Ok(until_done(|| inner.append(row))?)
    }

    /// As [`append`](Self::append), of a row that was made with the table's layout ([`freshet_engine::schema::Row`]): nothing is checked
    /// but what keeps the database whole.
    pub fn append_row(&mut self, row: &mut freshet_engine::schema::Row) -> Result<(), SqlError> {
        Ok(until_done(|| self.inner.append(row))?)
    }

    /// The table's definition and layout.
    pub fn table(&self) -> &freshet_engine::catalog::Table {
        &self.load
    }

    /// Logs what is left. A load with an unfinished appender is not committed.
    pub fn finish(mut self) -> Result<(), SqlError> {
        Ok(until_done(|| self.inner.finish())?)
    }
}

/// Runs a statement of the load's transaction, again after every wait; after an error the transaction is rolled back.
fn statement<T>(session: &mut Session, mut run: impl FnMut(&mut Session) -> Result<T, Stop>) -> Result<T, SqlError> {
    loop {
        session.begin_statement();
        match run(session) {
            Ok(done) => return Ok(done),
            Err(Stop::Wait(mut token)) => {
                token.block(None);
                session.rollback_statement();
            }
            Err(Stop::Error(error)) => {
                session.rollback();
                return Err(error.into());
            }
        }
    }
}

fn until_done(mut step: impl FnMut() -> Result<(), Stop>) -> Result<(), Error> {
    loop {
        match step() {
            Ok(()) => return Ok(()),
            Err(Stop::Wait(mut token)) => _ = token.block(None),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}
