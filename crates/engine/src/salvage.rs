//! What can be saved of a damaged database? Everything that can be proven whole, in a new one, and a list of the rest.
//!
//! 1. The source is only read.
//! 2. The new database is an ordinary one: its objects are created, its rows inserted and committed, so that every unique key and every foreign key
//!    is checked again. A row that breaks a key is a loss; a foreign key whose rows are missing is NOT VALID.
//! 3. Rows are saved each in the last version that can be proven, not as of one moment: commits of which only a part could be saved are told.
//! 4. Definitions keep their ids, by which others refer to them. One that cannot be carried over as it was is a loss (`definitions`). What temporary
//!    name spaces hold is left out: its sessions are gone.
//! 5. One table that the new database refuses is a loss, and the others go on. What ends everything (no memory, no room, a failed log) leaves a new
//!    database that does not open ([`crate::engine::Options::in_making`]).

mod definitions;

use crate::catalog::TableId;
use crate::engine::Engine;
use crate::ids::{Cts, RowId};
use crate::inspect::{self, Defined, Fate, Finding, InspectError, Loss, Remains, Subject, Watch};
use crate::io::Io;
use crate::schema::{Layout, Row, Value};
use crate::txn::{Error, Isolation, Session, Stop};
use definitions::Definitions;
use std::fmt;
use std::sync::Arc;

/// What one commit inserts at most: rows, or bytes of long values.
const BATCH_ROWS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// One table of the new database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// With its schema, where that is not `public`.
    pub table: String,
    pub rows: u64,
    /// Of them in a version that is not the last.
    pub older: u64,
    pub lost: u64,
}

/// What was saved, and what was not.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    pub tables: Vec<Saved>,
    /// Other definitions that were carried over: schemas, sequences, views, roles, comments, rights.
    pub definitions: u64,
    pub losses: Vec<Loss>,
    /// Commits of which only a part could be saved.
    pub halves: Vec<Cts>,
    /// What is wrong with the source.
    pub findings: Vec<Finding>,
}

impl Salvaged {
    /// Whether all that the source held is in the new database.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.halves.is_empty()
    }
}

/// Why nothing more could be saved.
#[derive(Debug)]
pub enum SalvageError {
    Source(InspectError),
    /// The new database refused.
    Target(Error),
}

impl fmt::Display for SalvageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SalvageError::Source(error) => write!(f, "{error}"),
            SalvageError::Target(error) => write!(f, "the new database refused: {error}"),
        }
    }
}

impl std::error::Error for SalvageError {}

impl From<InspectError> for SalvageError {
    fn from(error: InspectError) -> SalvageError {
        SalvageError::Source(error)
    }
}

impl From<Error> for SalvageError {
    fn from(error: Error) -> SalvageError {
        SalvageError::Target(error)
    }
}

/// Saves what can be saved into `target`, a new and empty database. What it returns is durable there.
pub fn salvage(
    io: &Arc<dyn Io>,
    subject: &Subject,
    target: &Engine,
    watch: Watch<'_>,
) -> Result<Salvaged, SalvageError> {
    let mut remains = inspect::remains(io, subject, watch)?;
    let mut salvaged = Salvaged {
        losses: std::mem::take(&mut remains.losses),
        halves: std::mem::take(&mut remains.halves),
        findings: std::mem::take(&mut remains.findings),
        ..Salvaged::default()
    };
    let mut writer = Writer { target, session: target.connect()?, last: Cts::ZERO };
    let mut definitions = Definitions::of(&remains);
    definitions.make(&mut writer, &mut salvaged.losses)?;
    for table in definitions.tables() {
        let saved = writer.save(table, &remains, &mut salvaged.losses)?;
        salvaged.tables.push(saved);
    }
    if !salvaged.is_complete() {
        definitions.look_at_foreign_keys(&mut writer, &mut salvaged.losses)?;
    }
    salvaged.definitions = definitions.made();
    target.wait_durable(writer.last).wait()?;
    target.note_made().map_err(|error| Error::LogFailed(error.0))?;
    Ok(salvaged)
}

/// Whether this is about what was to be made, not about the new database.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::UniqueViolation { .. } | Error::DuplicateRelation(_) | Error::LimitExceeded(_))
}

/// Writes into the new database.
struct Writer<'a> {
    target: &'a Engine,
    session: Session,
    last: Cts,
}

impl Writer<'_> {
    fn save(&mut self, table: &Defined, remains: &Remains, losses: &mut Vec<Loss>) -> Result<Saved, SalvageError> {
        let mut saved = Saved { table: table.label.clone(), rows: 0, older: 0, lost: 0 };
        let before = losses.len();
        let mut batch: Vec<(RowId, Row)> = Vec::new();
        let mut bytes = 0;
        let mut refused = Vec::new();
        remains.read(
            table,
            |id, row| {
                batch.push((id, row.clone()));
                bytes += row.heap.len();
                if batch.len() == BATCH_ROWS || bytes > BATCH_BYTES {
                    bytes = 0;
                    saved.rows += self.insert(table, &mut batch, &mut refused)?;
                }
                Ok::<(), SalvageError>(())
            },
            |loss| losses.push(loss),
        )?;
        saved.rows += self.insert(table, &mut batch, &mut refused)?;
        losses.append(&mut refused);
        let of_fate = |fate| losses[before..].iter().filter(|loss| loss.fate == fate).count() as u64;
        (saved.older, saved.lost) = (of_fate(Fate::Older), of_fate(Fate::Lost));
        Ok(saved)
    }

    /// Inserts rows, each a statement of its own, so that one that a unique index refuses leaves the others.
    fn insert(
        &mut self,
        table: &Defined,
        batch: &mut Vec<(RowId, Row)>,
        refused: &mut Vec<Loss>,
    ) -> Result<u64, SalvageError> {
        self.session.begin(Isolation::ReadCommitted, false);
        let mut rows = 0;
        for (id, row) in batch.drain(..) {
            match self.statement(|session| insert_row(session, table.id, &table.layout, &row)) {
                Ok(()) => rows += 1,
                Err(error) if is_refusal(&error) => {
                    let key = inspect::key_of(table, &row);
                    let loss = Loss::of(Some(table.label.clone()), error.to_string());
                    refused.push(Loss { row: Some(id), key, ..loss });
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.commit()?;
        Ok(rows)
    }

    fn transaction(&mut self, work: impl FnMut(&mut Session) -> Result<(), Stop>) -> Result<(), Error> {
        self.session.begin(Isolation::ReadCommitted, false);
        self.statement(work)?;
        self.commit()
    }

    /// Runs until it need not wait. A refused one is undone.
    fn statement(&mut self, mut work: impl FnMut(&mut Session) -> Result<(), Stop>) -> Result<(), Error> {
        loop {
            self.session.begin_statement();
            match work(&mut self.session) {
                Ok(()) => return Ok(()),
                Err(stop) => {
                    self.session.rollback_statement();
                    match stop {
                        Stop::Wait(mut token) => self.target.wait_for(&mut token),
                        Stop::Error(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        loop {
            match self.session.commit() {
                Ok(committed) => {
                    self.last = self.last.max(committed.cts);
                    return Ok(());
                }
                Err(Stop::Wait(mut token)) => self.target.wait_for(&mut token),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
    }
}

/// Inserts a row of the source, and looks at once at keys that a commit would look at.
fn insert_row(session: &mut Session, table: TableId, layout: &Layout, row: &Row) -> Result<(), Stop> {
    let table = session.schema().table_by_id(table).expect("this session created it").clone();
    let id = session.insert(&table, &mut copy_of(layout, row, &table.layout))?;
    let mut inserted = Row::default();
    for index in table.indexes.iter().filter(|index| index.def.deferrable) {
        session.newest(&table, id, &mut inserted);
        session.demand_unique(&table, index, id, &mut inserted)?;
    }
    Ok(())
}

/// The row's values without where they were stored, as a row of another layout of the same columns.
fn copy_of(layout: &Layout, row: &Row, to: &Layout) -> Row {
    let mut copy = Row::new(to);
    for column in 0..layout.columns() {
        match row.get(layout, column) {
            Value::Null => {}
            value => copy.set(to, column, &value),
        }
    }
    copy
}

impl fmt::Display for Salvaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for loss in &self.losses {
            writeln!(f, "{loss}")?;
        }
        for cts in &self.halves {
            writeln!(f, "half saved: the commit {cts:?}")?;
        }
        for saved in &self.tables {
            let Saved { table, rows, older, lost } = saved;
            writeln!(f, "table {table}: {rows} rows saved, {older} of them in an older version, {lost} losses")?;
        }
        writeln!(f, "{} other definitions saved", self.definitions)?;
        f.write_str(if self.is_complete() { "everything was saved" } else { "not everything could be saved" })
    }
}
