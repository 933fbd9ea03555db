//! COPY in steps, as everything of a session.
//!
//! ```text
//! execute ─▶ In: copy_data ... copy_done ─▶ COPY n        (a file: read by itself, on a thread of its own)
//!        └─▶ Out: copy_out ... ─▶ COPY n                  (a file: written by itself, on a thread of its own)
//! ```
//!
//! Rows of an empty table that come in a transaction of their own are loaded in bulk once there are enough of them
//! ([`LOAD_BYTES_MIN`]); all others are inserted, a batch of records as one command. A batch that must wait is undone and runs
//! again, like any statement.

use super::{On, Outcome, Pending, Session, Step, Wait, done};
use crate::bind::names::enter_database;
use crate::cache::Prepared;
use crate::charge::Charge;
use crate::compiled::{Halt, Run, Scratch, change, rules};
use crate::copy::CopyPlan;
use crate::copy::condition::Condition;
use crate::copy::convert::{Skipped, at_column, at_line, check_count, check_header, is_of_value, line_of, value_of};
use crate::copy::encode::{Cells, Framing, Writer};
use crate::copy::fields::Fields;
use crate::copy::load::{CHUNK_BYTES, Loading, Target, Threads};
use crate::copy::options::{Format, Header};
use crate::copy::split::{Chunk, Splitter};
use crate::copy::unload::{PIECE_BYTES, Piece, TableWriter, Taken, Unloading};
use crate::error::SqlError;
use crate::notice::Notice;
use crate::parse::copy::CopyPlace;
use crate::route::Plan;
use crate::rows::RowSet;
use crate::session::{CommandTag, TransactionStatus};
use crate::value::Datum;
use crate::value::cast;
use crate::value::zone::Clock;
use freshet_engine::catalog::{Schema, Table};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Error, Stop, TableCursor};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Fewer bytes are inserted like any rows.
const LOAD_BYTES_MIN: usize = 1 << 20;
/// What is inserted in one go.
const BATCH_BYTES: usize = 16 << 10;

/// Where rows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// `copy_data` takes them.
    In,
    /// `copy_out` gives them.
    Out,
}

/// What the client is told at the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyShape {
    pub direction: CopyDirection,
    pub is_binary: bool,
    pub columns: usize,
}

pub(super) enum Copying {
    In(Box<CopyIn>),
    Out(Box<CopyOut>),
}

enum Sink {
    /// There may be too little to load.
    Undecided,
    Insert,
    Load(Loading),
}

pub(super) struct CopyIn {
    plan: Arc<CopyPlan>,
    insert: Arc<Prepared>,
    /// By the schema of `insert`.
    condition: Option<Arc<Condition>>,
    splitter: Splitter,
    /// What the splitter holds, and chunks on their way to threads.
    charge: Charge,
    sink: Sink,
    /// What is being inserted.
    batch: Option<Chunk>,
    fields: Fields,
    clock: Clock,
    parameters: Vec<Datum>,
    rows: RowSet,
    count: u64,
    skipped: Skipped,
    file: Option<File>,
    /// No more bytes come.
    is_complete: bool,
}

pub(super) struct CopyOut {
    plan: Arc<CopyPlan>,
    source: OutSource,
    count: u64,
    file: Option<File>,
    /// How the query ended whose rows are written to the file.
    queried: Option<Outcome>,
}

enum OutSource {
    Table {
        statement: Arc<Prepared>,
        pieces: Pieces,
    },
    /// Rows that the query gave.
    Rows {
        next: usize,
        writer: Box<Writer>,
    },
}

/// Who writes a table's rows.
enum Pieces {
    /// Between two pieces.
    Nobody,
    Session(Box<TableWriter>),
    Thread(Unloading),
}

/// A row that a query gave.
struct GivenRow<'r> {
    rows: &'r RowSet,
    row: usize,
}

impl Cells for GivenRow<'_> {
    fn value(&self, column: usize) -> Value<'_> {
        self.rows.get(self.row, column)
    }
}

/// A piece of what is copied out.
#[derive(Default)]
pub struct CopyPiece {
    /// What it depends on: it may leave once this is durable.
    pub durable: Option<Cts>,
    /// There is nothing yet: call it again after this.
    pub wait: Option<Wait>,
    /// It was the last one.
    pub outcome: Option<Outcome>,
}

impl Session {
    /// What is being copied: after a statement was executed, and until its outcome is there.
    pub fn copying(&self) -> Option<CopyShape> {
        let shape = |direction, format: &Format| CopyShape {
            direction,
            is_binary: format.is_binary(),
            columns: format.names.len(),
        };
        match self.copying.as_ref()? {
            Copying::In(copy) if copy.file.is_some() || copy.is_complete => None,
            Copying::In(copy) => Some(shape(CopyDirection::In, copy.plan.format())),
            // The client is told nothing before the end.
            Copying::Out(copy) if copy.file.is_some() => None,
            Copying::Out(copy) => Some(shape(CopyDirection::Out, copy.plan.format())),
        }
    }

    pub(super) fn start_copy(
        &mut self,
        statement: &Arc<Prepared>,
        plan: &Arc<CopyPlan>,
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        self.interrupt.cancelled.store(false, Ordering::Relaxed);
        enter_database(&self.env.database);
        let started = match plan.as_ref() {
            CopyPlan::From { .. } => self.start_copy_in(statement, plan),
            CopyPlan::Table { .. } => self.start_copy_table(statement, plan),
            CopyPlan::Query { sql, place, .. } => {
                let query = self.plan_in_transaction(sql, &[]).map_err(|e| self.statement_failed(e))?;
                let file = create(place).map_err(|e| self.statement_failed(e))?;
                let schema = self.schema_to_plan_by();
                self.know_names(query.columns.iter().map(|column| column.ty), &schema);
                let writer = self.writer(plan.format(), query.columns.iter().map(|column| column.ty), file.is_some());
                self.copying = Some(Copying::Out(Box::new(CopyOut::new(
                    plan,
                    OutSource::Rows { next: 0, writer: Box::new(writer) },
                    file,
                ))));
                rows.start(&query.columns);
                return self.start(&query, &[], rows);
            }
        };
        started.map_err(|error| self.statement_failed(error))
    }

    /// The catalog is at hand where values of these types are written by it.
    fn know_names(&mut self, mut types: impl Iterator<Item = Type>, schema: &Arc<Schema>) {
        if types.any(cast::shows_names) {
            self.know(schema);
        }
    }

    /// Plans another statement for this one, in the schema that it sees.
    pub(super) fn plan_in_transaction(&mut self, sql: &str, types: &[Option<Type>]) -> Result<Arc<Prepared>, SqlError> {
        let schema = self.schema_to_plan_by();
        self.while_wanted(sql.len(), |session| session.plan(sql, types, &schema))
    }

    // ---- in

    fn start_copy_in(&mut self, statement: &Arc<Prepared>, plan: &Arc<CopyPlan>) -> Result<Step, SqlError> {
        self.enter_transaction(&statement.plan, statement.uses_sequences);
        if self.inner.is_read_only() {
            return Err(SqlError::new("25006", "cannot execute COPY FROM in a read-only transaction"));
        }
        self.inner.begin_statement();
        self.constraints.start_statement();
        let plan = self.current(statement, plan)?;
        let CopyPlan::From { table, columns, insert, condition, format, place } = plan.as_ref() else {
            unreachable!("invariant: a COPY FROM stays one");
        };
        let types: Vec<Option<Type>> = columns.iter().map(|&c| Some(table.def.columns[usize::from(c)].ty)).collect();
        let schema = self.inner.schema().clone();
        let insert = self.plan(insert, &types, &schema)?;
        if !matches!(insert.plan, Plan::Insert(_)) {
            return Err(SqlError::unsupported(format!("COPY FROM into \"{}\"", table.def.name)));
        }
        self.clock_read = self.clock_read && self.status() == TransactionStatus::Open;
        self.read_clock();
        match condition {
            Some(_) => self.know(&schema),
            None => self.know_names(types.iter().flatten().copied(), &schema),
        }
        let file = match place {
            CopyPlace::Client => None,
            CopyPlace::File(name) => Some(open(name)?),
        };
        let is_file = file.is_some();
        self.copying = Some(Copying::In(Box::new(CopyIn {
            splitter: Splitter::new(format),
            charge: Charge::of_query(Some(&self.engine)),
            plan: plan.clone(),
            insert,
            condition: condition.clone(),
            clock: self.env.clock.clone(),
            sink: Sink::Undecided,
            batch: None,
            fields: Fields::default(),
            parameters: Vec::new(),
            rows: RowSet::default(),
            count: 0,
            skipped: Skipped::default(),
            file,
            is_complete: false,
        })));
        if is_file { self.go_on_copying() } else { Ok(done("")) }
    }

    /// The plan for the schema that is current now.
    fn current(&mut self, statement: &Arc<Prepared>, plan: &Arc<CopyPlan>) -> Result<Arc<CopyPlan>, SqlError> {
        if self.is_planned_for_now(statement) {
            return Ok(plan.clone());
        }
        let schema = self.inner.schema().clone();
        match &self.plan(&statement.sql, &[], &schema)?.plan {
            Plan::Copy(plan) => Ok(plan.clone()),
            _ => unreachable!("invariant: a COPY stays one"),
        }
    }

    /// Takes bytes from the client. A wait: [`Session::copy_ready`] after it, before more bytes.
    pub fn copy_data(&mut self, bytes: &[u8]) -> Result<Option<Wait>, SqlError> {
        let taken = self.take_bytes(bytes).and_then(|()| self.copy_flow());
        taken.map_err(|error| self.copy_failed(error))
    }

    /// Goes on after a wait of `copy_data`.
    pub fn copy_ready(&mut self) -> Result<Option<Wait>, SqlError> {
        self.copy_flow().map_err(|error| self.copy_failed(error))
    }

    /// The client has sent everything.
    pub fn copy_done(&mut self) -> Result<Step, SqlError> {
        let step = self.go_on_copying();
        self.tell_state(&step);
        self.watched(&step);
        step
    }

    fn copy_failed(&mut self, error: SqlError) -> SqlError {
        let error = self.statement_failed(error);
        self.watched_failure(&error);
        self.tell_end();
        error
    }

    /// The client gives up.
    pub fn copy_fail(&mut self, reason: &str) -> SqlError {
        let error = SqlError::new("57014", format!("COPY from stdin failed: {reason}"));
        let error = match &self.copying {
            Some(Copying::In(copy)) => at_line(error, &copy.table().def.name, copy.splitter.line(), None),
            _ => error,
        };
        self.copy_failed(error)
    }

    fn copy_in(&mut self) -> Result<&mut CopyIn, SqlError> {
        match &mut self.copying {
            Some(Copying::In(copy)) => Ok(copy),
            _ => Err(SqlError::new("55000", "no COPY FROM is in progress")),
        }
    }

    fn take_bytes(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        self.look_around()?;
        let copy = self.copy_in()?;
        let queued = if matches!(copy.sink, Sink::Load(_)) { Loading::QUEUED_BYTES_MAX } else { 0 };
        let held = (copy.splitter.held() + bytes.len()) as u64;
        let taken = copy.charge.reach(held + queued).and_then(|()| copy.splitter.push(bytes));
        taken.map_err(|error| at_line(error, &copy.table().def.name, copy.splitter.line(), None))
    }

    fn look_around(&mut self) -> Result<(), SqlError> {
        if self.interrupt.cancelled.swap(false, Ordering::Relaxed) {
            return Err(SqlError::new("57014", "canceling statement due to user request"));
        }
        match self.interrupt.deadline {
            Some(deadline) if std::time::Instant::now() >= deadline => {
                Err(SqlError::new("57014", "canceling statement due to statement timeout"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the file, if it is one, and ends the COPY.
    pub(super) fn go_on_copying(&mut self) -> Result<Step, SqlError> {
        if let Some(Copying::Out(_)) = self.copying {
            // `filed` goes on.
            return Ok(done(""));
        }
        let step = self.finish_copying();
        step.map_err(|error| self.statement_failed(error))
    }

    fn finish_copying(&mut self) -> Result<Step, SqlError> {
        if self.copy_in()?.file.is_some() {
            if self.inline_limit.is_some() {
                return Ok(self.wait_copying(On::Elsewhere));
            }
            if let Some(wait) = self.read_file()? {
                return Ok(self.wait_copying(wait.0));
            }
        }
        let copy = self.copy_in()?;
        if !copy.is_complete {
            copy.is_complete = true;
            let finished = copy.splitter.finish();
            finished.map_err(|error| at_line(error, &copy.table().def.name, copy.splitter.line(), None))?;
        }
        if let Some(wait) = self.copy_flow()? {
            return Ok(self.wait_copying(wait.0));
        }
        if let Sink::Load(_) = self.copy_in()?.sink
            && let Some(step) = self.finish_loading()?
        {
            return Ok(step);
        }
        if let Some(wait) = self.settle_rows()? {
            return Ok(self.wait_copying(wait.0));
        }
        let Some(Copying::In(copy)) = self.copying.take() else {
            unreachable!("invariant: a COPY FROM ends");
        };
        let notices = copy.skipped.notice().map(|told| Notice::new("00000", told)).into_iter().collect();
        self.finish(&copy.insert, CommandTag { command: "COPY", rows: Some(copy.count) }, notices)
    }

    fn wait_copying(&mut self, on: On) -> Step {
        self.pending = Some(Box::new(Pending::Copy));
        Step::Wait(Wait(on))
    }

    fn read_file(&mut self) -> Result<Option<Wait>, SqlError> {
        // What a wait left undone comes first.
        if let Some(wait) = self.copy_flow()? {
            return Ok(Some(wait));
        }
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let file = self.copy_in()?.file.as_mut().expect("asked before");
            let count = file
                .read(&mut piece)
                .map_err(|e| SqlError::new("58030", format!("could not read from COPY file: {e}")))?;
            if count == 0 {
                self.copy_in()?.file = None;
                return Ok(None);
            }
            self.take_bytes(&piece[..count])?;
            if let Some(wait) = self.copy_flow()? {
                return Ok(Some(wait));
            }
        }
    }

    /// Passes on what is at hand. A wait: call it again after it.
    fn copy_flow(&mut self) -> Result<Option<Wait>, SqlError> {
        loop {
            let copy = self.copy_in()?;
            match &copy.sink {
                Sink::Undecided if copy.splitter.held() < LOAD_BYTES_MIN && !copy.is_complete => return Ok(None),
                Sink::Undecided => {
                    if let Some(wait) = self.choose_sink()? {
                        return Ok(Some(wait));
                    }
                }
                // Most pieces only add to what is at hand.
                Sink::Load(_) if copy.splitter.held() < CHUNK_BYTES && !copy.is_complete => return Ok(None),
                Sink::Load(loading) => {
                    if !loading.room().is_ready() {
                        return Ok(Some(Wait(On::Other(Box::pin(loading.room())))));
                    }
                    if let Some(error) = loading.take_error() {
                        return Err(error);
                    }
                    let bytes_min = if copy.is_complete { 1 } else { CHUNK_BYTES };
                    match copy.splitter.chunk_in(bytes_min, || loading.spent().unwrap_or_default()) {
                        Some(chunk) => loading.push(chunk),
                        None => return Ok(None),
                    }
                }
                Sink::Insert => {
                    let bytes_min = if copy.is_complete { 1 } else { BATCH_BYTES };
                    if copy.batch.is_none() {
                        copy.batch = copy.splitter.chunk(bytes_min);
                    }
                    if copy.batch.is_none() {
                        return Ok(None);
                    }
                    if let Some(wait) = self.insert_batch()? {
                        return Ok(Some(wait));
                    }
                }
            }
        }
    }

    /// Loads in bulk what is large, if nobody can tell the difference.
    fn choose_sink(&mut self) -> Result<Option<Wait>, SqlError> {
        let is_own = self.block == super::Block::None;
        let copy = self.copy_in()?;
        copy.sink = Sink::Insert;
        let is_large = copy.splitter.held() >= LOAD_BYTES_MIN;
        if !is_own || !is_large || !copy.takes_plain_rows() {
            return Ok(None);
        }
        let table = copy.table().clone();
        self.inner.begin_statement();
        if self.inner.scan_next(&table, &mut TableCursor::default(), &mut Row::default()).is_some() {
            return Ok(None);
        }
        // Where the system gives no thread, the session's own inserts the rows.
        let Some(threads) = Threads::start() else { return Ok(None) };
        // Others' definitions are not waited for.
        self.inner.set_nowait(true);
        let begun = self.inner.begin_load_of(table.id);
        self.inner.set_nowait(false);
        match begun {
            // Nobody changes it from here on; who did since the COPY began, changed what its rows have to have.
            Ok(_) if self.inner.schema().table_by_id(table.id).is_none_or(|now| !Arc::ptr_eq(now, &table)) => {
                self.inner.rollback_statement();
                Ok(None)
            }
            Ok(load) => {
                // It keeps no versions for itself while it goes on.
                self.inner.rest();
                let copy = self.copy_in()?;
                copy.sink = Sink::Load(Loading::start(load, copy.target(), threads)?);
                Ok(None)
            }
            Err(Stop::Wait(token)) => {
                self.inner.rollback_statement();
                self.copy_in()?.sink = Sink::Undecided;
                Ok(Some(Wait(On::Engine(token))))
            }
            // Rows that nobody sees yet, or no more; somebody is changing the schema, or the table.
            Err(Stop::Error(Error::NotEmpty(_) | Error::LockNotAvailable)) => {
                self.inner.rollback_statement();
                Ok(None)
            }
            Err(Stop::Error(error)) => Err(error.into()),
        }
    }

    /// Waits for the threads, then fills the indexes. `None`: the rows are the table's.
    fn finish_loading(&mut self) -> Result<Option<Step>, SqlError> {
        let Copying::In(copy) = self.copying.as_mut().expect("a COPY FROM is in progress") else {
            unreachable!("invariant: only a COPY FROM loads");
        };
        let Sink::Load(loading) = &mut copy.sink else {
            unreachable!("invariant: asked before");
        };
        loading.close();
        if !loading.end().is_ready() {
            let end = Box::pin(loading.end());
            return Ok(Some(self.wait_copying(On::Other(end))));
        }
        if let Some(error) = loading.take_error() {
            return Err(error);
        }
        if self.inline_limit.is_some() {
            return Ok(Some(self.wait_copying(On::Elsewhere)));
        }
        copy.skipped.merge(loading.take_skipped());
        self.inner.begin_statement();
        match self.inner.finish_load(&mut loading.load) {
            Ok(rows) => {
                copy.count = rows;
                Ok(None)
            }
            Err(Stop::Wait(token)) => {
                self.inner.rollback_statement();
                Ok(Some(self.wait_copying(On::Engine(token))))
            }
            Err(Stop::Error(error)) => Err(error.into()),
        }
    }

    /// What the rows owe to their constraints, once all of them are there: a row may come before the one that it refers to.
    fn settle_rows(&mut self) -> Result<Option<Wait>, SqlError> {
        if self.constraints.owed() == 0 {
            return Ok(None);
        }
        self.inner.begin_statement();
        self.inner.check_snapshot()?;
        self.interrupt.limit_inline(None);
        let mut scratch = Scratch::of_thread();
        let settled = rules::finish_statement(&mut Run::new(
            &mut self.inner,
            (&[], &self.env),
            &mut scratch,
            &mut self.interrupt,
            &mut self.constraints,
        ));
        scratch.leave_to_thread();
        match settled {
            Ok(()) => Ok(None),
            Err(Halt::Wait(token)) => {
                self.inner.rollback_statement();
                Ok(Some(Wait(On::Engine(token))))
            }
            Err(Halt::TooLong) => unreachable!("invariant: it has no limit"),
            Err(Halt::Error(error)) => Err(error),
        }
    }

    /// Inserts the batch at hand as one command; on a wait none of it.
    fn insert_batch(&mut self) -> Result<Option<Wait>, SqlError> {
        self.look_around()?;
        self.inner.begin_statement();
        self.inner.check_snapshot()?;
        let Some(Copying::In(mut copy)) = self.copying.take() else {
            unreachable!("invariant: only a COPY FROM inserts");
        };
        let chunk = copy.batch.take().expect("a batch is at hand");
        let owed = self.constraints.owed();
        let mut skipped = Skipped::default();
        let inserted = self.insert_records(&mut copy, &chunk, &mut skipped);
        let result = match inserted {
            Ok(count) => {
                copy.count += count;
                copy.skipped.merge(skipped);
                Ok(None)
            }
            Err(Halt::Wait(token)) => {
                self.inner.rollback_statement();
                self.constraints.owe_only(owed);
                copy.batch = Some(chunk);
                Ok(Some(Wait(On::Engine(token))))
            }
            Err(Halt::TooLong) => unreachable!("invariant: a batch has no limit"),
            Err(Halt::Error(error)) => Err(error),
        };
        self.copying = Some(Copying::In(copy));
        result
    }

    fn insert_records(&mut self, copy: &mut CopyIn, chunk: &Chunk, skipped: &mut Skipped) -> Result<u64, Halt> {
        let schema = self.inner.schema().clone();
        if !Arc::ptr_eq(&schema, &copy.insert.schema) {
            copy.insert = self.replan(&copy.insert.clone())?;
            if let Some(condition) = copy.condition.take() {
                copy.condition = Some(Arc::new(condition.renewed(copy.insert_target(), &schema)?));
                self.know(&schema);
            }
        }
        let insert = copy.insert.clone();
        let Plan::Insert(plan) = &insert.plan else {
            unreachable!("invariant: seen when the COPY began");
        };
        let format = copy.plan.format().clone();
        let name = copy.table().def.name.clone();
        let condition = copy.condition.clone();
        let is_first = format.header != Header::No && chunk.line == 1;
        let mut count = 0;
        self.interrupt.limit_inline(None);
        let mut scratch = Scratch::of_thread();
        let mut insert_all = || -> Result<(), Halt> {
            for (at, record) in chunk.records().enumerate() {
                let shown = (!format.is_binary()).then_some(record);
                let place = |error| at_line(error, &name, line_of(chunk, at, &format), shown);
                if at == 0 && is_first {
                    check_header(record, &format).map_err(place)?;
                    continue;
                }
                let line = || line_of(chunk, at, &format);
                if !copy.read(record, &format, &name, &insert.parameters, line, skipped).map_err(place)? {
                    continue;
                }
                let mut run = Run::new(
                    &mut self.inner,
                    (&copy.parameters, &self.env),
                    &mut scratch,
                    &mut self.interrupt,
                    &mut self.constraints,
                );
                let inserted = match &condition {
                    Some(condition) => change::insert_if(&condition.expr, plan, &mut run, &mut copy.rows),
                    None => change::insert_all(plan, &mut run, &mut copy.rows),
                };
                match inserted {
                    Ok(inserted) => count += inserted,
                    Err(Halt::Error(error)) if error.sqlstate == "23505" => {
                        return Err(at_line(error, &name, line_of(chunk, at, &format), None).into());
                    }
                    Err(Halt::Error(error)) => return Err(place(error).into()),
                    Err(halt) => return Err(halt),
                }
            }
            Ok(())
        };
        let result = insert_all();
        scratch.leave_to_thread();
        result.map(|()| count)
    }

    // ---- out

    fn start_copy_table(&mut self, statement: &Arc<Prepared>, plan: &Arc<CopyPlan>) -> Result<Step, SqlError> {
        self.enter_transaction(&statement.plan, statement.uses_sequences);
        self.inner.begin_statement();
        self.inner.check_snapshot()?;
        let plan = self.current(statement, plan)?;
        let CopyPlan::Table { place, table, columns, .. } = plan.as_ref() else {
            unreachable!("invariant: a COPY TO stays one");
        };
        self.check_table_renewed(table)?;
        match self.inner.read_table(table) {
            Ok(()) => {}
            Err(Stop::Error(error)) => return Err(error.into()),
            Err(Stop::Wait(token)) => {
                self.inner.rollback_statement();
                self.pending = Some(Box::new(Pending::Run { statement: statement.clone(), parameters: Vec::new() }));
                return Ok(Step::Wait(Wait(On::Engine(token))));
            }
        }
        let file = create(place)?;
        let schema = self.inner.schema().clone();
        self.know_names(table.def.columns.iter().map(|column| column.ty), &schema);
        let types = columns.iter().map(|&column| table.layout.column_type(usize::from(column)));
        let writer = self.writer(plan.format(), types, file.is_some());
        self.inner.note_table(table);
        let writer = TableWriter::new(table, columns, self.inner.reader(), writer);
        let source = OutSource::Table { statement: statement.clone(), pieces: Pieces::Session(Box::new(writer)) };
        self.copying = Some(Copying::Out(Box::new(CopyOut::new(&plan, source, file))));
        Ok(done(""))
    }

    fn writer(&self, format: &Format, types: impl Iterator<Item = Type>, to_file: bool) -> Writer {
        let framing = if to_file { Framing::NONE } else { self.copy_framing };
        Writer::new(format, types, &self.env.clock, framing)
    }

    /// What stands before each record that `copy_out` gives.
    pub fn frame_copies(&mut self, framing: Framing) {
        self.copy_framing = framing;
    }

    /// Appends the next piece of what is copied out. `rows`: what the statement gave.
    pub fn copy_out(&mut self, rows: &RowSet, out: &mut Vec<u8>) -> Result<CopyPiece, SqlError> {
        let piece = self.copy_piece(rows, out).map_err(|error| self.copy_failed(error))?;
        if let Some(outcome) = &piece.outcome {
            let step = Ok(Step::Done(outcome.clone()));
            self.tell_state(&step);
            self.watched(&step);
        }
        Ok(piece)
    }

    fn copy_piece(&mut self, rows: &RowSet, out: &mut Vec<u8>) -> Result<CopyPiece, SqlError> {
        self.look_around()?;
        let Some(Copying::Out(copy)) = &mut self.copying else {
            return Err(SqlError::new("55000", "no COPY TO is in progress"));
        };
        let taken = copy.take(rows, out);
        // It tells why rows cannot be read any more.
        self.inner.check_snapshot()?;
        let is_over = match taken {
            Taken::Piece(piece) => piece.is_last,
            Taken::Nothing(written) => {
                return Ok(CopyPiece { wait: Some(Wait(On::Other(Box::pin(written)))), ..CopyPiece::default() });
            }
            Taken::Ended => return Err(SqlError::new("XX000", "the thread of a COPY broke")),
        };
        if !is_over {
            let durable = self.depends_on(self.inner.dependency());
            return Ok(CopyPiece { durable, ..CopyPiece::default() });
        }
        let Some(Copying::Out(copy)) = self.copying.take() else {
            unreachable!("invariant: just seen");
        };
        let tag = CommandTag { command: "COPY", rows: Some(copy.count) };
        let outcome = match copy.source {
            // The query is over.
            OutSource::Rows { .. } => Outcome { tag, durable: None, notices: Vec::new() },
            OutSource::Table { statement, .. } => {
                let durable = self.depends_on(self.inner.dependency());
                match self.finish(&statement, tag, Vec::new())? {
                    Step::Done(outcome) => Outcome { durable: outcome.durable.max(durable), ..outcome },
                    Step::Wait(_) | Step::Part(_) => {
                        unreachable!("invariant: who wrote nothing has nothing to wait for")
                    }
                }
            }
        };
        Ok(CopyPiece { durable: outcome.durable, wait: None, outcome: Some(outcome) })
    }

    /// Where the statement that is done copies to a file of the server, its rows are written now.
    pub(super) fn filed(&mut self, step: Result<Step, SqlError>, rows: &RowSet) -> Result<Step, SqlError> {
        match (step, &mut self.copying) {
            (Ok(Step::Done(queried)), Some(Copying::Out(copy))) if copy.file.is_some() => {
                copy.queried.get_or_insert(queried);
                let step = self.write_file(rows);
                step.map_err(|error| self.statement_failed(error))
            }
            (step, _) => step,
        }
    }

    fn write_file(&mut self, rows: &RowSet) -> Result<Step, SqlError> {
        if self.inline_limit.is_some() {
            return Ok(self.wait_copying(On::Elsewhere));
        }
        let Some(Copying::Out(copy)) = &mut self.copying else {
            unreachable!("invariant: a COPY TO writes a file");
        };
        let mut file = copy.file.take().expect("invariant: it has one until it is written");
        let queried = copy.queried.take();
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let piece = self.copy_piece(rows, &mut bytes)?;
            if let Some(mut wait) = piece.wait {
                wait.block(None);
            }
            file.write_all(&bytes).map_err(|e| SqlError::new("58030", format!("could not write to COPY file: {e}")))?;
            if let Some(outcome) = piece.outcome {
                let (before, notices) =
                    queried.map_or((None, Vec::new()), |queried| (queried.durable, queried.notices));
                return Ok(Step::Done(Outcome { durable: outcome.durable.max(before), notices, ..outcome }));
            }
        }
    }
}

impl CopyIn {
    fn table(&self) -> &Arc<Table> {
        match self.plan.as_ref() {
            CopyPlan::From { table, .. } => table,
            _ => unreachable!("invariant: a COPY FROM has a table"),
        }
    }

    fn columns(&self) -> &[u16] {
        match self.plan.as_ref() {
            CopyPlan::From { columns, .. } => columns,
            _ => unreachable!("invariant: a COPY FROM has columns"),
        }
    }

    /// The table as the rows are inserted into it.
    fn insert_target(&self) -> &Arc<Table> {
        match &self.insert.plan {
            Plan::Insert(plan) => plan.tables[0].as_ref().expect("invariant: a change is to a stored table"),
            _ => unreachable!("invariant: seen when the COPY began"),
        }
    }

    /// Whether a row is its values and nothing else: nothing is computed, and nothing is checked but nulls and keys.
    fn takes_plain_rows(&self) -> bool {
        let defs = &self.table().def.columns;
        let is_given = |column: usize| self.columns().contains(&(column as u16));
        let has_default = defs.iter().enumerate().any(|(i, def)| def.default.is_some() && !is_given(i));
        let Plan::Insert(plan) = &self.insert.plan else {
            return false;
        };
        !has_default && self.condition.is_none() && plan.is_plain()
    }

    fn target(&self) -> Target {
        let defs = self.table().def.columns.iter().enumerate();
        let missing = defs.filter(|(i, def)| def.not_null && !self.columns().contains(&(*i as u16)));
        Target {
            name: self.table().def.name.clone(),
            columns: self.columns().to_vec(),
            format: self.plan.format().clone(),
            missing: missing.map(|(i, _)| i).next(),
            clock: self.clock.clone(),
        }
    }

    /// Reads a record into the parameters; false if it is left out.
    fn read(
        &mut self,
        record: &[u8],
        format: &Format,
        name: &str,
        types: &[Type],
        line: impl Fn() -> u64,
        skipped: &mut Skipped,
    ) -> Result<bool, SqlError> {
        self.fields.read(record, format)?;
        check_count(&self.fields, format)?;
        self.parameters.clear();
        for (field, &ty) in types.iter().enumerate() {
            let Some(text) = self.fields.get(record, field) else {
                self.parameters.push(Datum::Null);
                continue;
            };
            match value_of(ty, text, format, &self.clock) {
                Ok(datum) => self.parameters.push(datum),
                Err(error) if format.ignores_errors && is_of_value(&error) => {
                    skipped.add(line(), &format.names[field], &error);
                    return Ok(false);
                }
                Err(error) if format.is_binary() => {
                    return Err(error.with_context(format!(
                        "COPY {name}, line {}, column {}",
                        line(),
                        format.names[field]
                    )));
                }
                Err(error) => return Err(at_column(error, name, line(), &format.names[field], Some(text))),
            }
        }
        Ok(true)
    }
}

impl CopyOut {
    fn new(plan: &Arc<CopyPlan>, source: OutSource, file: Option<File>) -> CopyOut {
        CopyOut { plan: plan.clone(), source, count: 0, file, queried: None }
    }

    /// Appends the next piece to `out`.
    fn take(&mut self, rows: &RowSet, out: &mut Vec<u8>) -> Taken {
        let mut piece = Piece { bytes: std::mem::take(out), ..Piece::default() };
        let taken = match &mut self.source {
            OutSource::Rows { next, writer } => {
                write_rows(writer, rows, next, &mut piece);
                Taken::Piece(piece)
            }
            OutSource::Table { pieces, .. } => pieces.take(piece),
        };
        match taken {
            Taken::Piece(mut piece) => {
                self.count += piece.rows;
                *out = std::mem::take(&mut piece.bytes);
                Taken::Piece(piece)
            }
            other => other,
        }
    }
}

impl Pieces {
    /// The next piece, in the memory of this one if it is to be written.
    fn take(&mut self, mut piece: Piece) -> Taken {
        match std::mem::replace(self, Pieces::Nobody) {
            Pieces::Session(mut writer) => {
                if writer.write(&mut piece).is_err() {
                    return Taken::Ended;
                }
                if !piece.is_last {
                    *self = match Unloading::start(writer) {
                        Ok(unloading) => Pieces::Thread(unloading),
                        Err(writer) => Pieces::Session(writer),
                    };
                }
                Taken::Piece(piece)
            }
            Pieces::Thread(unloading) => {
                let taken = unloading.take(piece.bytes);
                *self = Pieces::Thread(unloading);
                taken
            }
            Pieces::Nobody => Taken::Ended,
        }
    }
}

fn write_rows(writer: &mut Writer, rows: &RowSet, next: &mut usize, piece: &mut Piece) {
    writer.head(&mut piece.bytes);
    let limit = piece.bytes.len() + PIECE_BYTES;
    while *next < rows.len() && piece.bytes.len() < limit {
        writer.row(&GivenRow { rows, row: *next }, &mut piece.bytes);
        (*next, piece.rows) = (*next + 1, piece.rows + 1);
    }
    piece.is_last = *next == rows.len();
    if piece.is_last {
        writer.tail(&mut piece.bytes);
    }
}

fn open(name: &str) -> Result<File, SqlError> {
    check_kind(name)?;
    File::open(name).map_err(|error| file_error(&error, name, "reading"))
}

/// A pipe would hold the worker until somebody opens its other end.
fn check_kind(name: &str) -> Result<(), SqlError> {
    // What cannot be looked at cannot be opened either, and says so there.
    let Ok(found) = std::fs::metadata(name) else { return Ok(()) };
    match found.file_type() {
        kind if kind.is_dir() => Err(SqlError::new("42809", format!("\"{name}\" is a directory"))),
        kind if kind.is_fifo() || kind.is_socket() => Err(SqlError::new("42809", format!("\"{name}\" is a pipe"))),
        _ => Ok(()),
    }
}

fn create(place: &CopyPlace) -> Result<Option<File>, SqlError> {
    let CopyPlace::File(name) = place else {
        return Ok(None);
    };
    if !std::path::Path::new(name).is_absolute() {
        return Err(SqlError::new("42602", "relative path not allowed for COPY to file"));
    }
    check_kind(name)?;
    File::create(name).map(Some).map_err(|error| file_error(&error, name, "writing"))
}

fn file_error(error: &std::io::Error, name: &str, what: &str) -> SqlError {
    let (direction, verb) = if what == "reading" { ("FROM", "read") } else { ("TO", "write") };
    let (sqlstate, reason) = match error.kind() {
        std::io::ErrorKind::NotFound => ("58P01", "No such file or directory".to_owned()),
        std::io::ErrorKind::PermissionDenied => ("42501", "Permission denied".to_owned()),
        _ => ("58030", error.to_string()),
    };
    SqlError::new(sqlstate, format!("could not open file \"{name}\" for {what}: {reason}"))
        .with_hint(format!(
            "COPY {direction} instructs the server process to {verb} a file. You may want a client-side facility such as psql's \\copy."
        ))
}
