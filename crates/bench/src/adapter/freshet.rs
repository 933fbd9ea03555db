//! `freshet`: the database embedded in this process, prepared SQL through its public API.
//!
//! One thread serves many sessions: a statement that changes something returns a ticket at its commit, and the session stays busy until the
//! ticket is durable, exactly as a program that embeds Freshet would do it.

use super::ahead::{Known, Pending, Request};
use super::native::{LOAD_BATCH, facts, next_batch, options};
use super::sql::{Dialect, Place, Say, Statements, definition, index_definition};
use super::{
    Adapter, Answer, Completion, Content, Driver, Facts, Fetch, Kind, Loading, Op, Setup, Submitted, on_threads,
};
use crate::error::BenchError;
use crate::shape::{IndexShape, TableShape, Ty, text_of};
use freshet_db::{Ahead, Database, Datum, RowSet, Session, SqlError, Statement, Ticket};
use freshet_engine::ids::Cts;
use std::sync::atomic::{AtomicU64, Ordering};

pub const KIND: Kind = Kind {
    name: "freshet",
    about: "Freshet embedded, prepared SQL through the public API",
    is_available: || Ok(()),
    start: |setup| Ok(Box::new(Embedded::open(setup)?)),
    is_in_one_place: false,
    has_one_index: false,
};

const NEVER: Ticket = Ticket(Cts::ZERO);

pub struct Embedded {
    db: Database,
    tables: Vec<TableShape>,
}

impl From<SqlError> for BenchError {
    fn from(error: SqlError) -> BenchError {
        BenchError::Engine(error.to_string())
    }
}

impl Embedded {
    fn open(setup: &Setup) -> Result<Embedded, BenchError> {
        let db = match &setup.log_files {
            Some(files) => Database::open_on(files.io(), options(setup))?,
            None => Database::open(options(setup))?,
        };
        Ok(Embedded { db, tables: Vec::new() })
    }
}

fn datum(cell: i64, ty: Ty) -> Datum {
    match ty {
        Ty::Bool => Datum::Bool(cell != 0),
        Ty::Char(_) => {
            let mut text = String::new();
            text_of(cell, &mut text);
            Datum::Bytes(text.into_bytes().into())
        }
        _ => Datum::Int(cell),
    }
}

impl Embedded {
    /// Into an empty table.
    fn load_in_bulk(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let shape = &self.tables[loading.table];
        let load = self.db.bulk_load(shape.name)?;
        let next = AtomicU64::new(loading.rows.start);
        let append = |_: usize| -> Result<(), BenchError> {
            let mut appender = load.appender()?;
            let (mut cells, mut values) = (Vec::new(), Vec::new());
            while let Some(ids) = next_batch(&next, loading, LOAD_BATCH) {
                for id in ids.clone() {
                    cells.clear();
                    (shape.row)(id, &mut cells);
                    fill(shape, &cells, &mut values);
                    appender.append(&values)?;
                }
                loading.done.fetch_add(ids.end - ids.start, Ordering::Relaxed);
            }
            Ok(appender.finish()?)
        };
        on_threads(loading.threads, append)?;
        load.commit()?;
        Ok(())
    }
}

impl Adapter for Embedded {
    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        let mut session = self.db.session()?;
        for statement in tables.iter().flat_map(|table| definition(table, Dialect::Freshet)) {
            session.run(&statement)?;
        }
        self.tables = tables.to_vec();
        Ok(())
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        if loading.rows.start == 0 {
            return self.load_in_bulk(loading);
        }
        let shape = &self.tables[loading.table];
        let next = AtomicU64::new(loading.rows.start);
        let work = |_: usize| -> Result<Ticket, BenchError> {
            let mut session = self.db.session()?;
            let insert = session.prepare(&Say::Insert { table: loading.table }.text(&self.tables))?;
            let (mut cells, mut parameters) = (Vec::new(), Vec::new());
            let mut last = NEVER;
            while let Some(ids) = next_batch(&next, loading, LOAD_BATCH) {
                let mut transaction = session.begin()?;
                for id in ids.clone() {
                    cells.clear();
                    (shape.row)(id, &mut cells);
                    fill(shape, &cells, &mut parameters);
                    transaction.execute(&insert, &parameters)?;
                }
                last = transaction.commit_ticket()?;
                loading.done.fetch_add(ids.end - ids.start, Ordering::Relaxed);
            }
            Ok(last)
        };
        let last = on_threads(loading.threads, work)?.into_iter().max().unwrap_or(NEVER);
        Ok(self.db.wait(last)?)
    }

    fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        let session = || -> Result<Session, SqlError> {
            let mut session = self.db.session()?;
            session.run(if durable { "SET synchronous_commit = on" } else { "SET synchronous_commit = off" })?;
            Ok(session)
        };
        let sessions: Result<Vec<Session>, SqlError> = (0..sessions).map(|_| session()).collect();
        Ok(Box::new(EmbeddedDriver {
            db: &self.db,
            tables: &self.tables,
            sessions: sessions?,
            statements: Statements::default(),
            parameters: Vec::new(),
            pending: Pending::default(),
            known: Known::default(),
            spare: Vec::new(),
        }))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let mut session = self.db.session()?;
        let sum = session.prepare(&Say::Sum { table }.text(&self.tables))?;
        let answer = totals(session.query(&sum, &[])?)?;
        Ok(Content { rows: answer.rows, sum: answer.sum })
    }

    fn checkpoint(&self) -> Result<(), BenchError> {
        Ok(self.db.engine().checkpoint()?)
    }

    fn build_index(&mut self, table: usize, index: &IndexShape) -> Result<bool, BenchError> {
        let shape = &mut self.tables[table];
        self.db.session()?.run(&index_definition(shape, index, Dialect::Freshet))?;
        shape.indexes.push(index.clone());
        Ok(true)
    }

    fn facts(&self) -> Facts {
        facts(self.db.engine())
    }

    fn note(&self) -> String {
        self.db.runs_without().join("; ")
    }
}

fn fill(shape: &TableShape, cells: &[i64], parameters: &mut Vec<Datum>) {
    parameters.clear();
    parameters.extend(cells.iter().zip(&shape.columns).map(|(&cell, column)| datum(cell, column.ty)));
}

/// Of `SELECT count(*), sum(..)`.
fn totals(rows: &RowSet) -> Result<Answer, BenchError> {
    let number = |column: usize| rows.display(0, column).map_or(Ok(0), |text| text.parse::<i64>());
    match (number(0), number(1)) {
        (Ok(count), Ok(sum)) => Ok(Answer { rows: count as u64, sum }),
        _ => Err(BenchError::WrongData("a count or sum is no number".into())),
    }
}

/// A statement of one row that was submitted and has not run.
struct Asked {
    session: usize,
    say: Say,
    statement: Place,
    parameters: Vec<Datum>,
}

impl Request for Asked {
    fn is_look_up(&self) -> bool {
        matches!(self.say, Say::Search { .. })
    }
}

struct EmbeddedDriver<'a> {
    db: &'a Database,
    tables: &'a [TableShape],
    sessions: Vec<Session>,
    statements: Statements<Statement>,
    parameters: Vec<Datum>,
    pending: Pending<Ticket>,
    /// What many sessions ask for at a time runs in turn, its cache misses overlapped.
    known: Known<Asked>,
    spare: Vec<Vec<Datum>>,
}

impl EmbeddedDriver<'_> {
    /// Whether the operation may wait for others to be known. A driver of few sessions runs each at once.
    fn may_wait(&self, op: &Op<'_>) -> bool {
        Known::<Asked>::is_for(self.sessions.len())
            && matches!(op, Op::Search { .. } | Op::Update { .. } | Op::Insert { .. } | Op::Delete { .. })
    }

    fn learn(&mut self, session: usize, op: &Op<'_>, say: Say) -> Result<(), BenchError> {
        let statement = prepared(&mut self.statements, &mut self.sessions[session], say, self.tables)?;
        let mut parameters = self.spare.pop().unwrap_or_default();
        bind(op, self.tables, &mut parameters);
        let (statements, sessions) = (&self.statements, &self.sessions);
        let asked = Asked { session, say, statement, parameters };
        match self.known.learn(asked, |one, what| load_ahead(statements, sessions, one, what)) {
            Some(next) => self.run_known(next),
            None => Ok(()),
        }
    }

    fn run_known(&mut self, Asked { session, say, statement, parameters }: Asked) -> Result<(), BenchError> {
        let statement = self.statements.at(statement);
        if let Say::Search { table, fetch, .. } = say {
            let rows = self.sessions[session].query(statement, &parameters)?;
            let answer = found(rows, counter_at(fetch, &self.tables[table]));
            self.pending.answered(session, answer);
        } else {
            let (rows, ticket) = self.sessions[session].execute_ticket(statement, &parameters)?;
            self.pending.committed(ticket, session, Answer { rows, sum: 0 });
        }
        self.spare.push(parameters);
        Ok(())
    }

    /// Autocommit.
    fn run(&mut self, session: usize, op: &Op<'_>, say: Say) -> Result<(Answer, Ticket), BenchError> {
        let session = &mut self.sessions[session];
        let statement = prepared(&mut self.statements, session, say, self.tables)?;
        let statement = self.statements.at(statement);
        bind(op, self.tables, &mut self.parameters);
        if is_read(op) {
            let rows = session.query(statement, &self.parameters)?;
            return Ok((read(op, self.tables, rows)?, NEVER));
        }
        let (rows, ticket) = session.execute_ticket(statement, &self.parameters)?;
        Ok((Answer { rows, sum: 0 }, ticket))
    }

    fn run_all(&mut self, session: usize, ops: &[Op<'_>]) -> Result<(Answer, Ticket), BenchError> {
        let session = &mut self.sessions[session];
        // Before the transaction: a statement is prepared once and shared.
        for say in ops.iter().filter_map(Say::of) {
            prepared(&mut self.statements, session, say, self.tables)?;
        }
        let mut transaction = session.begin()?;
        let mut answer = Answer::default();
        for op in ops {
            let say = Say::of(op).ok_or_else(|| BenchError::Usage("a transaction inside a transaction".into()))?;
            let statement = self.statements.get(say, || Err(not_prepared()))?;
            bind(op, self.tables, &mut self.parameters);
            if is_read(op) {
                let rows = transaction.query(statement, &self.parameters)?;
                answer.add(read(op, self.tables, rows)?);
            } else {
                answer.rows += transaction.execute(statement, &self.parameters)?;
            }
        }
        Ok((answer, transaction.commit_ticket()?))
    }
}

fn prepared(
    statements: &mut Statements<Statement>,
    session: &mut Session,
    say: Say,
    tables: &[TableShape],
) -> Result<Place, SqlError> {
    statements.place(say, || session.prepare(&say.text(tables)))
}

fn load_ahead(statements: &Statements<Statement>, sessions: &[Session], asked: &Asked, what: Ahead) {
    let Asked { session, statement, parameters, .. } = asked;
    sessions[*session].load_ahead(statements.at(*statement), parameters, what);
}

fn not_prepared() -> BenchError {
    BenchError::WrongData("not prepared".into())
}

fn is_read(op: &Op<'_>) -> bool {
    matches!(op, Op::Search { .. } | Op::SearchMany { .. } | Op::Traverse { .. } | Op::Sum { .. })
}

fn bind(op: &Op<'_>, tables: &[TableShape], parameters: &mut Vec<Datum>) {
    parameters.clear();
    match *op {
        Op::Search { key, .. } | Op::Delete { key, .. } | Op::Traverse { key, .. } => parameters.push(Datum::Int(key)),
        Op::SearchMany { keys, .. } => parameters.extend(keys.iter().map(|&key| Datum::Int(key))),
        Op::Update { key, add, .. } => parameters.extend([Datum::Int(key), Datum::Int(add)]),
        Op::Insert { table, cells } => fill(&tables[table], cells, parameters),
        Op::InsertRow { table, id } => {
            let mut cells = Vec::with_capacity(tables[table].columns.len());
            (tables[table].row)(id, &mut cells);
            fill(&tables[table], &cells, parameters);
        }
        Op::Sum { .. } | Op::Transaction(_) => {}
    }
}

fn read(op: &Op<'_>, tables: &[TableShape], rows: &RowSet) -> Result<Answer, BenchError> {
    Ok(match *op {
        Op::Sum { .. } => totals(rows)?,
        Op::Search { table, fetch, .. } => found(rows, counter_at(fetch, &tables[table])),
        _ => found(rows, 0),
    })
}

fn counter_at(fetch: Fetch, table: &TableShape) -> usize {
    match fetch {
        Fetch::Row => table.counter,
        Fetch::Counter => 0,
    }
}

fn found(rows: &RowSet, column: usize) -> Answer {
    let sum = (0..rows.len()).map(|row| rows.i64(row, column).unwrap_or(0)).fold(0, i64::wrapping_add);
    Answer { rows: rows.len() as u64, sum }
}

impl Driver for EmbeddedDriver<'_> {
    fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let (answer, ticket) = match (op, Say::of(op)) {
            (op, Some(say)) if self.may_wait(op) => {
                self.learn(session, op, say)?;
                return Ok(Submitted::InFlight);
            }
            (Op::Transaction(ops), _) => self.run_all(session, ops)?,
            (op, Some(say)) => self.run(session, op, say)?,
            (_, None) => unreachable!("only a transaction is not one statement"),
        };
        if ticket == NEVER || self.db.is_durable(ticket) {
            return Ok(Submitted::Done(answer));
        }
        self.pending.committed(ticket, session, answer);
        Ok(Submitted::InFlight)
    }

    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
        let (statements, sessions) = (&self.statements, &self.sessions);
        self.known.load_rest(|one, what| load_ahead(statements, sessions, one, what));
        while let Some(next) = self.known.take_next() {
            self.run_known(next)?;
        }
        let db = self.db;
        self.pending.take(wait, done, |ticket| db.is_durable(ticket), |ticket| Ok(db.wait(ticket)?))
    }
}
