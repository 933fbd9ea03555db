//! What does a session do with the messages it gets? The protocol as a state machine: bytes in, bytes out, no socket.
//!
//! ```text
//!            message          execute            wait
//!  (no work) --------> Start ---------> Running <-----> blocked
//!     ^                                    | done
//!     |        last row                    v        output
//!     +-------------------------------- Sending <-----> full
//! ```
//!
//! Invariants:
//! 1. Messages take effect strictly in order; nothing is read past a statement that has not ended.
//! 2. After an error in the extended protocol everything up to the next Sync is skipped.
//! 3. `Output::depend` is called with a statement's timestamp before any byte of its reply is written.
//!
//! **Transactions of a pipeline.** As in PostgreSQL the statements between two Syncs are one implicit transaction, which
//! commits at the Sync and is undone whole by an error. Where one Execute is all that comes before the Sync, which is the
//! common case and can be seen in the bytes at hand, the statement runs in autocommit instead: the same to the client, and a
//! read then needs no transaction. So do reads by key in READ COMMITTED that come before anything has begun the transaction: each has a
//! snapshot of its own anyway, and nothing of theirs is to be undone. A portal with a name lives as long as the transaction, and is a cursor of
//! the session that FETCH, MOVE and CLOSE know: beside another one no statement stands alone. Two differences remain. A CommandComplete inside a pipeline is provisional until the
//! ReadyForQuery that follows its Sync (PostgreSQL holds it back in a buffer, most of the time). And a portal with a row
//! limit keeps its whole result in memory from its first Execute on.

use super::ahead::Lookahead;
use super::frame::{self, Bind, Format, Frame, Malformed, Message, Target};
use super::reply::{IDLE_BYTES, Output, ResultFormats, Severity};
use ::pgwire::messages::response::NotificationResponse;
use ::pgwire::messages::startup::ParameterStatus;
use bytes::{Buf, BytesMut};
use freshet_db::sql::copy::encode::Framing;
use freshet_db::sql::value::{self, pgtype};
use freshet_db::sql::{CommandTag, CopyDirection, Prepared, Session, Step, TransactionStatus, Wait};
use freshet_db::{Datum, RowSet, SqlError, Type};
use freshet_engine::engine::{Account, Claim, Kind};
use freshet_engine::ids::Cts;
use freshet_engine::mem::touched::{note, note_start};
use freshet_engine::txn::Error;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Replies that have not left and make a session stop until they have: a client that does not read costs this and the one
/// row set in progress.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Messages after which other sessions of the worker get their turn.
const MESSAGES_PER_TURN: u32 = 256;

/// A text that is longer, and what a Bind carries beyond this, is taken on a thread without other sessions. An INSERT of VALUES is read and planned at
/// 3 to 6 MB a second, so that shorter ones keep a worker for 3 to 5 ms, hardly longer than statements do; values are mostly copied.
const LONG_TEXT_BYTES: usize = 16 << 10;
const LONG_BIND_BYTES: usize = 128 << 10;

/// A larger row set gives its memory back at once.
const ROWS_KEPT_BYTES_MAX: usize = 1 << 20;

/// Why a conversation stopped.
pub enum Progress {
    /// No whole message is at hand. The bytes still missing of the next one, as far as its length is known.
    NeedInput { missing: usize },
    /// A statement waits; [`Conversation::run`] goes on with it after the wait.
    Blocked(Wait),
    /// Too many replies are unsent.
    Full,
    /// What comes next is long: [`Conversation::run_long`] takes it on another thread.
    Long,
    /// Others may run first.
    Yield,
    /// The client said goodbye, or broke the protocol: what is in the output is all.
    Closed,
}

/// Things with names, of which the unnamed one comes and goes with every statement.
struct Named<T> {
    unnamed: Option<T>,
    named: HashMap<Box<[u8]>, T>,
}

impl<T> Named<T> {
    fn new() -> Named<T> {
        Named { unnamed: None, named: HashMap::new() }
    }

    fn get(&self, name: &[u8]) -> Option<&T> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    fn insert(&mut self, name: &[u8], value: T) {
        if name.is_empty() {
            self.unnamed = Some(value);
        } else {
            self.named.insert(name.into(), value);
        }
    }

    fn remove(&mut self, name: &[u8]) -> Option<T> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }
}

/// An unnamed portal's parameters up to here are part of what a session may take.
const UNCHARGED_BYTES: usize = 64 << 10;
/// What a portal is beside its parameters, about.
const PORTAL_BYTES: usize = 256;

/// What Bind made.
struct Portal {
    statement: Arc<Prepared>,
    parameters: Vec<Datum>,
    /// Of the parameters, where they are many or the portal has a name: such ones a client may have any number of.
    _charge: Option<Account>,
    formats: ResultFormats,
    progress: PortalProgress,
}

/// What the last portal had, for the next one: memory for parameters and formats, and the statement, which is mostly the same. It is counted by threads of all
/// sessions that run it, which is slow where they do so in turns.
#[derive(Default)]
struct Spare {
    parameters: Vec<Datum>,
    formats: Vec<Format>,
    statement: Option<Arc<Prepared>>,
}

enum PortalProgress {
    Bound,
    /// A row limit was reached: what is left is here.
    Suspended {
        rows: Box<RowSet>,
        next: usize,
        tag: CommandTag,
    },
    /// It has a name: the session has what is left, of which FETCH may take some.
    Kept,
    Finished,
}

/// A simple query.
struct Script {
    text: String,
    pieces: Vec<String>,
    /// The piece that runs.
    at: usize,
}

enum Job {
    Script(Script),
    Execute {
        portal: Box<[u8]>,
        /// 0: no limit.
        rows_max: usize,
    },
    /// The end of a pipeline, which commits its implicit transaction.
    Sync,
}

enum Stage {
    Start,
    /// Of a statement that waited.
    Running,
    Sending {
        tag: CommandTag,
        /// The first row of this Execute, and the next one to send; of rows that are messages, the next byte.
        first: usize,
        next: usize,
    },
    /// A part of the rows is sent, from this byte on; then the statement goes on.
    SendingPart {
        next: usize,
    },
    /// The client sends rows. After a wait the session goes on with what it has.
    CopyIn {
        wait: Option<Wait>,
        has_waited: bool,
    },
    /// The client is sent rows.
    CopyOut,
    /// Of a commit that waited.
    Committing,
}

struct Work {
    job: Job,
    stage: Stage,
    /// Whether the statement gives rows at all.
    gives_rows: bool,
    /// Its rows are all that it does.
    only_reads: bool,
    /// A part of its rows has been given, and so they were described.
    gave_part: bool,
    /// The session knows when its time is over.
    has_deadline: bool,
}

impl Work {
    fn new(job: Job) -> Work {
        Work { job, stage: Stage::Start, gives_rows: false, only_reads: false, gave_part: false, has_deadline: false }
    }
}

/// How a stage ended.
enum Turn {
    Blocked(Wait),
    Full,
    /// It wants a thread of its own to begin.
    Long,
    /// Others may run first.
    Yield,
    /// The client is to send more.
    Input,
    /// The next stage.
    On,
    /// The work is done.
    Over,
}

pub struct Conversation {
    session: Session,
    /// Those with names are the session's, which PREPARE and DEALLOCATE know too.
    unnamed_statement: Option<Arc<Prepared>>,
    portals: Named<Portal>,
    /// The rows of the statement that runs; its memory serves one statement after the other.
    rows: RowSet,
    spare: Spare,
    work: Option<Work>,
    /// How a statement that ran elsewhere ended.
    landed: Option<Result<Step, SqlError>>,
    /// What is copied out next.
    piece: Vec<u8>,
    lookahead: Lookahead,
    skip_to_sync: bool,
    /// Messages of the extended protocol came, and no Sync behind them: the client waits for their replies, and for nothing else.
    awaits_sync: bool,
    /// An implicit transaction was begun for this pipeline or script.
    implicit: bool,
    message_bytes_max: usize,
    statements_begun: u64,
    /// A statement ran that is not a short one.
    ran_long: bool,
    /// Nobody else waits for this thread.
    takes_long: bool,
}

const ALL_TEXT: ResultFormats = ResultFormats::All(Format::Text);

impl Conversation {
    pub fn new(mut session: Session, message_bytes_max: usize) -> Conversation {
        session.frame_copies(COPY_DATA);
        Conversation {
            session,
            unnamed_statement: None,
            portals: Named::new(),
            rows: RowSet::default(),
            spare: Spare::default(),
            work: None,
            landed: None,
            piece: Vec::new(),
            lookahead: Lookahead::default(),
            skip_to_sync: false,
            awaits_sync: false,
            implicit: false,
            message_bytes_max,
            statements_begun: 0,
            ran_long: false,
            takes_long: false,
        }
    }

    /// Notes what every statement touches.
    pub fn note_touched(&self) {
        let Conversation { session, portals, rows, spare, work, lookahead, .. } = self;
        note(work);
        note(&self.message_bytes_max);
        note(&self.skip_to_sync);
        lookahead.note_touched();
        note(&portals.unnamed);
        note(spare);
        session.note_touched(spare.statement.as_ref());
        note_start(spare.parameters.as_slice());
        note(&portals.named);
        note(&self.unnamed_statement);
        note(&self.statements_begun);
        note(&self.landed);
        rows.note_touched();
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Whether a transaction is open, a pipeline's included.
    pub fn has_open_transaction(&self) -> bool {
        self.implicit || self.session.status() != TransactionStatus::Idle
    }

    /// Whether the statement that runs begins its transaction, and nobody has anything of it yet.
    pub fn is_new_work(&self) -> bool {
        !self.has_open_transaction() && !self.work.as_ref().is_some_and(|work| work.gave_part)
    }

    /// Tells one statement from the next, for time limits.
    pub fn statements_begun(&self) -> u64 {
        self.statements_begun
    }

    /// As `run`, on a thread that has time for long messages.
    pub fn run_long(&mut self, input: &mut BytesMut, output: &mut Output) -> Progress {
        self.takes_long = true;
        let progress = self.run(input, output);
        self.takes_long = false;
        progress
    }

    /// Takes messages and writes replies until something is missing.
    pub fn run(&mut self, input: &mut BytesMut, output: &mut Output) -> Progress {
        let mut rest: &[u8] = input;
        let progress = self.take_messages(&mut rest, output);
        let taken = input.len() - rest.len();
        input.advance(taken);
        progress
    }

    fn take_messages(&mut self, input: &mut &[u8], output: &mut Output) -> Progress {
        for _ in 0..MESSAGES_PER_TURN {
            if let Some(stopped) = self.work_on(output) {
                return stopped;
            }
            if output.unsent() >= OUTPUT_BYTES_MAX {
                return Progress::Full;
            }
            let frame = match frame::peek(input, self.message_bytes_max) {
                Ok(Some(frame)) if frame.length <= input.len() => frame,
                Ok(Some(frame)) => {
                    let missing = frame.length - input.len();
                    return Progress::NeedInput { missing };
                }
                Ok(None) => return Progress::NeedInput { missing: 0 },
                Err(reason) => return broken(&reason, output),
            };
            if self.is_long(frame) {
                return Progress::Long;
            }
            if frame.kind == b'B' {
                self.look_ahead(frame, input);
            }
            let (bytes, rest) = input.split_at(frame.length);
            match frame::decode(frame.kind, bytes) {
                Ok(Message::Terminate) => return Progress::Closed,
                Ok(message) => self.take(message, rest, output),
                Err(reason) => return broken(&reason, output),
            }
            *input = rest;
            self.lookahead.pass(frame);
        }
        match self.work_on(output) {
            Some(stopped) => stopped,
            None => Progress::Yield,
        }
    }

    /// Whether this message, which is next, keeps a thread for longer than others should wait.
    fn is_long(&self, frame: Frame) -> bool {
        let most = match frame.kind {
            b'Q' | b'P' => LONG_TEXT_BYTES,
            b'B' => LONG_BIND_BYTES,
            _ => return false,
        };
        frame.length > most && !self.takes_long && !self.skip_to_sync && self.work.is_none()
    }

    /// Runs the statement that is too long for a thread with other sessions; [`Conversation::run`] goes on with what came of it. False if it
    /// waits: then it is not over.
    pub fn run_elsewhere(&mut self) -> bool {
        let landed = self.session.resume_elsewhere(&mut self.rows);
        let is_over = !matches!(landed, Ok(Step::Wait(_) | Step::Part(_)));
        self.landed = Some(landed);
        is_over
    }

    /// Whether a statement is under way.
    pub fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Whether the statement that ran elsewhere was ended from outside. Nobody has been told.
    pub fn was_cancelled(&self) -> bool {
        matches!(&self.landed, Some(Err(error)) if error.sqlstate == "57014")
    }

    /// Ends the statement that waits, or whose rows are sent, with an error.
    pub fn cancel(&mut self, error: SqlError, output: &mut Output) {
        if self.work.as_ref().is_some_and(|work| matches!(work.stage, Stage::Running)) && self.session.interrupt(&error)
        {
            // The statement catches it, and goes on.
            return;
        }
        self.drop_rows();
        let error = self.session.cancel(error);
        if let Some(work) = self.work.take() {
            self.work_failed(work.job, error, output);
        }
    }

    /// The client is gone, or the server stops: rolls back what is open.
    pub fn close(&mut self) {
        self.session.close();
    }

    /// Tells what was said on the session's channels, if nothing of the client's is under way.
    pub fn tell_notifications(&mut self, output: &mut Output) {
        if self.awaits_sync || self.work.is_some() || self.has_open_transaction() {
            return;
        }
        for notification in self.session.take_notifications() {
            if notification.cts != Cts::ZERO {
                output.depend(notification.cts);
            }
            let (channel, payload) = (notification.channel().to_owned(), notification.payload().to_owned());
            output.message(&NotificationResponse::new(notification.pid, channel, payload));
        }
    }

    /// What ReadyForQuery tells, and settings that changed before it.
    pub fn ready(&mut self, output: &mut Output) {
        self.awaits_sync = false;
        let status = match self.session.status() {
            TransactionStatus::Idle => {
                self.drop_portal(b"");
                if !self.portals.named.is_empty() {
                    self.portals.named.clear();
                    self.session.end_portals();
                }
                b'I'
            }
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.tell_notifications(output);
        for (name, value) in self.session.take_reported() {
            output.message(&ParameterStatus::new(name, value));
        }
        output.ready_for_query(status);
    }

    // ---- messages

    /// Whether a statement waits for rows from the client, or for the client to take some.
    pub fn is_copying(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.stage, Stage::CopyIn { .. } | Stage::CopyOut))
    }

    /// Nobody takes more rows of a statement that would read on: it ends, with its snapshot and its locks.
    pub fn stop_reading(&mut self) {
        self.drop_rows();
        if self.reads_on() {
            self.session.fail();
        }
    }

    /// Whether the statement whose rows are sent reads on when they have been taken.
    pub fn reads_on(&self) -> bool {
        let reads_on = |work: &Work| match work.stage {
            Stage::SendingPart { .. } | Stage::CopyOut => true,
            Stage::Running => work.gave_part,
            _ => false,
        };
        self.work.as_ref().is_some_and(reads_on)
    }

    /// Whether what has not been sent yet can be taken back, and the statement told to have failed: the rows are all that it gives, or its transaction
    /// is still open and fails with it. Where a change is committed, its rows are owed.
    pub fn can_take_rows_back(&self) -> bool {
        let is_open = self.has_open_transaction();
        let can = |work: &Work| match work.stage {
            Stage::SendingPart { .. } => true,
            Stage::Sending { .. } => work.only_reads || is_open,
            _ => false,
        };
        self.work.as_ref().is_some_and(can)
    }

    /// How long the statement whose rows are sent, or that waits, may go on.
    pub fn time_left(&self) -> Option<Duration> {
        match &self.work {
            // A short one is over before its time would be counted.
            Some(Work { stage: Stage::Sending { .. }, has_deadline: false, .. }) => self.session.statement_timeout(),
            _ => self.session.statement_time_left(),
        }
    }

    /// Whether more memory waits for the next statement than a session that does nothing may keep. After short statements alone it looks only at what
    /// they have used, which is in the cache; their long values are among the rows, or came in a long message.
    pub fn has_spare(&self) -> bool {
        let parameters = self.spare.parameters.capacity() * size_of::<Datum>();
        let of_session = if self.ran_long { self.session.spare_bytes() } else { 0 };
        self.work.is_none() && self.rows.memory_bytes() + parameters + of_session > IDLE_BYTES
    }

    /// Gives it back: nothing happens in the session.
    pub fn give_spare_back(&mut self) {
        if self.work.is_none() {
            self.rows.release();
            self.spare = Spare::default();
            self.session.give_spare_back();
            self.ran_long = false;
        }
    }

    /// Nobody takes what has not been sent.
    pub fn drop_rows(&mut self) {
        self.rows.release();
    }

    /// `input` begins with this Bind.
    fn look_ahead(&mut self, bind: Frame, input: &[u8]) {
        let Conversation { session, unnamed_statement, lookahead, message_bytes_max, .. } = self;
        lookahead.look(bind, input, *message_bytes_max, session, |name| match name.is_empty() {
            true => unnamed_statement.as_deref(),
            false => session.statement(name).map(|statement| &**statement),
        });
    }

    fn take(&mut self, message: Message<'_>, rest: &[u8], output: &mut Output) {
        if self.work.is_some() {
            return self.copy_in(message, output);
        }
        if self.skip_to_sync && message != Message::Sync {
            return;
        }
        // What is left of a COPY that failed asks for nothing.
        self.awaits_sync |= matches!(
            message,
            Message::Parse { .. }
                | Message::Bind(_)
                | Message::Describe { .. }
                | Message::Execute { .. }
                | Message::Close { .. }
        );
        let taken = match message {
            Message::Query { script } => return self.query(script, output),
            Message::Sync => return self.sync(output),
            Message::FunctionCall => {
                let error = "the function call protocol is not supported; use a SELECT";
                self.failed(SqlError::new("0A000", error), output);
                return self.ready(output);
            }
            Message::Parse { name, sql, types } => self.parse(name, sql, &types, output),
            Message::Bind(bind) => self.bind(&bind, output),
            Message::Describe { target, name } => self.describe(target, name, output),
            Message::Execute { portal, rows_max } => {
                self.execute(portal, rows_max, rest);
                Ok(())
            }
            Message::Close { target, name } => {
                self.spare.statement = None;
                match target {
                    Target::Statement if name.is_empty() => self.unnamed_statement = None,
                    Target::Statement => self.session.forget_statement(name),
                    Target::Portal => {
                        self.drop_portal(name);
                        self.session.close_cursor(name);
                    }
                }
                output.close_complete();
                Ok(())
            }
            // What is ready leaves at the end of every burst, so Flush has nothing to add.
            Message::Flush | Message::Terminate => Ok(()),
            // Of a COPY that has failed meanwhile.
            Message::CopyData { .. } | Message::CopyDone | Message::CopyFail { .. } => Ok(()),
        };
        if let Err(error) = taken {
            self.failed(error, output);
            self.skip_to_sync = true;
        }
    }

    /// A message while the client sends rows.
    fn copy_in(&mut self, message: Message<'_>, output: &mut Output) {
        let mut work = self.work.take().expect("invariant: called while a COPY is worked on");
        let taken = match message {
            Message::CopyData { bytes } => self.session.copy_data(bytes).map(|wait| {
                work.stage = Stage::CopyIn { wait, has_waited: false };
            }),
            Message::CopyDone => {
                self.landed = Some(self.session.copy_done());
                work.stage = Stage::Running;
                Ok(())
            }
            Message::CopyFail { reason } => Err(self.session.copy_fail(&lossy(reason))),
            // A client that pipelines sends them before it knows that it is a COPY.
            Message::Flush | Message::Sync => Ok(()),
            _ => Err(self.session.cancel(SqlError::new("08P01", "unexpected message type during COPY from stdin"))),
        };
        match taken {
            Ok(()) => self.work = Some(work),
            Err(error) => self.work_failed(work.job, error, output),
        }
    }

    /// A simple query replaces the unnamed statement and portal, as in PostgreSQL.
    fn query(&mut self, script: &[u8], output: &mut Output) {
        self.unnamed_statement = None;
        self.drop_portal(b"");
        self.spare.statement = None;
        match utf8(script).and_then(|text| Ok((text, self.session.split(text)?))) {
            Err(error) => {
                self.failed(error, output);
                self.ready(output);
            }
            Ok((_, pieces)) if pieces.is_empty() => {
                output.empty_query();
                self.sync(output);
            }
            Ok((text, pieces)) => {
                let mut script = Script { text: text.to_owned(), pieces, at: 0 };
                match self.session.first_fault(&script.pieces) {
                    None => self.work = Some(Work::new(Job::Script(script))),
                    Some((at, error)) => {
                        script.at = at;
                        self.work_failed(Job::Script(script), error, output);
                    }
                }
            }
        }
    }

    fn sync(&mut self, output: &mut Output) {
        self.skip_to_sync = false;
        if self.implicit {
            self.work = Some(Work::new(Job::Sync));
        } else {
            self.ready(output);
        }
    }

    fn parse(&mut self, name: &[u8], sql: &[u8], types: &frame::Oids<'_>, output: &mut Output) -> Result<(), SqlError> {
        let types = types.iter().map(|oid| self.declared_type(oid)).collect::<Result<Vec<_>, _>>()?;
        let sql = utf8(sql)?;
        let statement = self.prepare(sql, &types, output).map_err(|error| self.of_several(sql, error))?;
        if name.is_empty() {
            self.unnamed_statement = Some(statement);
        } else {
            self.session.keep_statement(name, &statement)?;
        }
        output.parse_complete();
        Ok(())
    }

    /// A type that a client declares; 0 and `unknown` leave it to the statement.
    fn declared_type(&self, oid: u32) -> Result<Option<Type>, SqlError> {
        const UNKNOWN: u32 = 705;
        if matches!(oid, 0 | UNKNOWN) {
            return Ok(None);
        }
        let found = pgtype::from_oid(oid, -1).or_else(|| self.session.type_of_oid(oid));
        let unknown = || SqlError::new("0A000", format!("parameters of the type with OID {oid} are not supported"));
        found.map(Some).ok_or_else(unknown)
    }

    /// What is wrong with a text that is no statement, if it is several.
    fn of_several(&mut self, sql: &str, error: SqlError) -> SqlError {
        match self.session.split(sql) {
            // Nobody waits for the answer.
            _ if error.sqlstate == "57014" => error,
            Ok(pieces) if pieces.len() > 1 && self.session.first_fault(&pieces).is_none() => {
                SqlError::new("42601", "cannot insert multiple commands into a prepared statement")
            }
            _ => error,
        }
    }

    fn prepare(&mut self, sql: &str, types: &[Option<Type>], output: &mut Output) -> Result<Arc<Prepared>, SqlError> {
        let prepared = self.session.prepare(sql, types)?;
        if let Some(cts) = self.session.prepare_dependency() {
            output.depend(cts);
        }
        Ok(prepared)
    }

    fn bind(&mut self, bind: &Bind<'_>, output: &mut Output) -> Result<(), SqlError> {
        if bind.portal.is_empty() {
            self.drop_portal(b"");
        }
        let Spare { mut parameters, formats, statement: spare } = std::mem::take(&mut self.spare);
        let statement = self.statement(bind.statement)?;
        let statement = spare.filter(|spare| Arc::ptr_eq(spare, statement)).unwrap_or_else(|| statement.clone());
        let statement = self.session.renewed(bind.statement, statement);
        let (types, columns) = (statement.parameters.as_slice(), statement.columns.len());
        check_counts(bind, types.len(), columns)?;
        let charge = self.charge_for(bind)?;
        for (at, (bytes, &ty)) in bind.parameters.iter().zip(types).enumerate() {
            let datum = match (bytes, bind.parameter_formats.get(at)) {
                (None, _) => Datum::Null,
                (Some(text), Format::Text) => match value::plain_integer(ty, text) {
                    Some(integer) => Datum::Int(integer),
                    None => value::from_text_by(ty, text, self.session.clock_for(ty))?,
                },
                (Some(bytes), Format::Binary) => value::from_binary_by(ty, bytes, self.session.clock_for(ty))?,
            };
            parameters.push(datum);
        }
        let formats = result_formats(bind, formats);
        if !bind.portal.is_empty() {
            self.session.bind_cursor(utf8(bind.portal)?, &statement)?;
        }
        let portal = Portal { statement, parameters, _charge: charge, formats, progress: PortalProgress::Bound };
        self.portals.insert(bind.portal, portal);
        output.bind_complete();
        Ok(())
    }

    /// Memory for what Bind keeps; 53200 where there is none.
    fn charge_for(&self, bind: &Bind<'_>) -> Result<Option<Account>, SqlError> {
        let bytes: usize = bind.parameters.iter().map(|bytes| bytes.map_or(0, <[u8]>::len)).sum();
        if bind.portal.is_empty() && bytes <= UNCHARGED_BYTES {
            return Ok(None);
        }
        let account = self.session.engine().account(Kind::Sessions);
        let taken = bytes + bind.portal.len() + bind.parameters.count() * size_of::<Datum>() + PORTAL_BYTES;
        match account.take(taken as u64, Claim::Growth) {
            true => Ok(Some(account)),
            false => Err(Error::OutOfMemory("the parameters of a portal").into()),
        }
    }

    fn describe(&mut self, target: Target, name: &[u8], output: &mut Output) -> Result<(), SqlError> {
        let (gives_rows, columns, formats) = match target {
            Target::Statement => {
                let statement = self.statement(name)?;
                output.parameter_description(&statement.parameters);
                (statement.gives_rows(), &statement.columns, &ALL_TEXT)
            }
            Target::Portal => match self.portal(name) {
                Some(portal) => (portal.statement.gives_rows(), &portal.statement.columns, &portal.formats),
                // A cursor of DECLARE is a portal too.
                None => (true, self.session.cursor_columns(name).ok_or_else(|| no_portal(name))?, &ALL_TEXT),
            },
        };
        match gives_rows {
            true => output.row_description(columns, formats),
            false => output.no_data(),
        }
        Ok(())
    }

    /// Decides whose transaction the statement belongs to; see the module's head.
    fn execute(&mut self, portal: &[u8], rows_max: u32, rest: &[u8]) {
        if self.implicit || !self.is_alone(portal, rest) {
            self.begin_implicit();
        }
        self.work = Some(Work::new(Job::Execute {
            portal: portal.into(),
            // As in PostgreSQL, a negative limit is none.
            rows_max: i32::try_from(rows_max).unwrap_or(0) as usize,
        }));
    }

    fn is_alone(&self, portal: &[u8], rest: &[u8]) -> bool {
        let only_sync_follows = || only_sync_follows(rest, self.message_bytes_max);
        match self.portals.named.is_empty() {
            true => self.stands_alone(portal) || only_sync_follows(),
            false => self.portals.named.keys().all(|name| **name == *portal) && only_sync_follows(),
        }
    }

    /// Whether the portal's statement is the same in and out of the pipeline's transaction.
    fn stands_alone(&self, portal: &[u8]) -> bool {
        self.portals.get(portal).is_some_and(|portal| self.session.stands_alone(&portal.statement))
    }

    fn begin_implicit(&mut self) {
        if self.session.status() == TransactionStatus::Idle {
            self.session.begin_implicit();
            self.implicit = true;
        }
    }

    fn statement(&self, name: &[u8]) -> Result<&Arc<Prepared>, SqlError> {
        let found = if name.is_empty() { self.unnamed_statement.as_ref() } else { self.session.statement(name) };
        found.ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{}\" does not exist", lossy(name))
            };
            SqlError::new("26000", message)
        })
    }

    /// The portal, unless it has ended as a cursor.
    fn portal(&self, name: &[u8]) -> Option<&Portal> {
        self.portals.get(name).filter(|_| name.is_empty() || self.session.has_bound_cursor(name))
    }

    fn drop_portal(&mut self, name: &[u8]) {
        if let Some(Portal { statement, mut parameters, formats, .. }) = self.portals.remove(name) {
            parameters.clear();
            let formats = match formats {
                ResultFormats::Each(formats) => formats,
                ResultFormats::All(_) => std::mem::take(&mut self.spare.formats),
            };
            self.spare = Spare { parameters, formats, statement: Some(statement) };
        }
    }

    // ---- work

    /// Goes on with the work at hand; why it stopped, if it did before its end.
    #[inline]
    fn work_on(&mut self, output: &mut Output) -> Option<Progress> {
        if self.work.is_none() { None } else { self.work_through(output) }
    }

    fn work_through(&mut self, output: &mut Output) -> Option<Progress> {
        let mut work = self.work.take()?;
        loop {
            match self.turn(&mut work, output) {
                Ok(Turn::Over) => return None,
                Ok(Turn::On) => {}
                Ok(Turn::Full) => {
                    self.work = Some(work);
                    return Some(Progress::Full);
                }
                Ok(Turn::Long) => {
                    self.work = Some(work);
                    return Some(Progress::Long);
                }
                Ok(Turn::Yield) => {
                    self.work = Some(work);
                    return Some(Progress::Yield);
                }
                Ok(Turn::Input) => {
                    self.work = Some(work);
                    return None;
                }
                Ok(Turn::Blocked(wait)) => {
                    self.work = Some(work);
                    return Some(Progress::Blocked(wait));
                }
                // The session was ended by its own statement: nothing else is said.
                Err(error) if error.sqlstate == "57P01" => {
                    self.session.fail();
                    if let Some(cts) = self.session.error_dependency() {
                        output.depend(cts);
                    }
                    output.error(Severity::Fatal, &error);
                    return Some(Progress::Closed);
                }
                Err(error) => {
                    self.work_failed(work.job, error, output);
                    return None;
                }
            }
        }
    }

    fn turn(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        match work.stage {
            Stage::Start => self.start(work, output),
            Stage::Running => {
                let landed = self.landed.take();
                let step = landed.unwrap_or_else(|| self.session.resume(&mut self.rows))?;
                Ok(self.stepped(work, step, output))
            }
            Stage::Committing => {
                let step = self.session.resume(&mut self.rows)?;
                Ok(self.commit_stepped(work, step, output))
            }
            Stage::Sending { .. } => self.send(work, output),
            Stage::SendingPart { .. } => Ok(self.send_part(work, output)),
            Stage::CopyIn { .. } => self.wait_for_rows(work),
            Stage::CopyOut => self.copy_out(work, output),
        }
    }

    fn wait_for_rows(&mut self, work: &mut Work) -> Result<Turn, SqlError> {
        let Stage::CopyIn { wait, has_waited } = &mut work.stage else {
            unreachable!("only a COPY waits for rows");
        };
        if std::mem::take(has_waited) {
            *wait = self.session.copy_ready()?;
        }
        match wait.take() {
            Some(wait) => {
                *has_waited = true;
                Ok(Turn::Blocked(wait))
            }
            None => Ok(Turn::Input),
        }
    }

    fn copy_out(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        if output.unsent() >= OUTPUT_BYTES_MAX {
            return Ok(Turn::Full);
        }
        self.piece.clear();
        let piece = self.session.copy_out(&self.rows, &mut self.piece)?;
        if let Some(wait) = piece.wait {
            return Ok(Turn::Blocked(wait));
        }
        if let Some(cts) = piece.durable {
            output.depend(cts);
        }
        output.copy_data(&self.piece);
        let Some(outcome) = piece.outcome else {
            // Between two pieces it is looked whether anybody still wants them.
            return Ok(Turn::Yield);
        };
        output.copy_done();
        self.piece = Vec::new();
        work.gives_rows = false;
        work.stage = Stage::Sending { tag: outcome.tag, first: 0, next: 0 };
        Ok(Turn::On)
    }

    fn start(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        match &work.job {
            Job::Script(script) if script.at < script.pieces.len() => self.start_piece(work, output),
            Job::Script(_) if !self.implicit => {
                self.ready(output);
                Ok(Turn::Over)
            }
            Job::Script(_) | Job::Sync => {
                let step = self.session.commit_implicit()?;
                Ok(self.commit_stepped(work, step, output))
            }
            Job::Execute { .. } => self.start_portal(work, output),
        }
    }

    fn start_piece(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        let Job::Script(script) = &mut work.job else {
            unreachable!("only a script has pieces");
        };
        if script.text.len() > LONG_TEXT_BYTES && !self.takes_long {
            return Ok(Turn::Long);
        }
        if script.pieces.len() > 1 {
            self.begin_implicit();
        }
        let (prepared, values) = self.session.prepare_text(&script.pieces[script.at])?;
        if let Some(cts) = self.session.prepare_dependency() {
            output.depend(cts);
        }
        if prepared.is_empty() {
            script.at += 1;
            return Ok(Turn::On);
        }
        self.statements_begun += 1;
        (work.gives_rows, work.only_reads) = (prepared.gives_rows(), prepared.only_reads());
        (work.gave_part, work.has_deadline) = (false, !prepared.is_short());
        self.ran_long |= work.has_deadline;
        if let Some(read) = self.session.unread_cursor(&prepared) {
            lend_portal(&mut self.session, &mut self.portals, &read);
        }
        self.rows.send_as(ALL_TEXT.binary_columns());
        let step = self.session.execute(&prepared, &values, &mut self.rows)?;
        Ok(self.stepped(work, step, output))
    }

    fn start_portal(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        let Job::Execute { portal: name, rows_max } = &work.job else {
            unreachable!("only Execute has a portal");
        };
        if self.portal(name).is_none() {
            return Err(no_portal(name));
        }
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        let progress = std::mem::replace(&mut portal.progress, PortalProgress::Finished);
        let prepared = &portal.statement;
        if prepared.is_empty() {
            output.empty_query();
            return Ok(Turn::Over);
        }
        (work.gives_rows, work.only_reads) = (prepared.gives_rows(), prepared.only_reads());
        self.statements_begun += 1;
        match progress {
            PortalProgress::Bound => {
                work.has_deadline = !prepared.is_short();
                self.ran_long |= work.has_deadline;
                if let Some(read) = self.session.unread_cursor(prepared) {
                    lend_portal(&mut self.session, &mut self.portals, &read);
                }
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                // Of a part of the rows the others are kept, whatever they are for later.
                self.rows.send_as(portal.formats.binary_columns().filter(|_| *rows_max == 0));
                let step = self.session.execute(&portal.statement, &portal.parameters, &mut self.rows)?;
                Ok(self.stepped(work, step, output))
            }
            PortalProgress::Suspended { rows, next, tag } => {
                self.rows = *rows;
                work.stage = Stage::Sending { tag, first: next, next };
                Ok(Turn::On)
            }
            PortalProgress::Kept => {
                let kept = self.session.take_rows(name);
                let (rows, next, tag) = kept.ok_or_else(|| cannot_run(name))?;
                self.rows = rows;
                portal.progress = PortalProgress::Kept;
                work.stage = Stage::Sending { tag, first: next, next };
                Ok(Turn::On)
            }
            PortalProgress::Finished if work.gives_rows => {
                output.command_complete("SELECT", Some(0));
                Ok(Turn::Over)
            }
            PortalProgress::Finished => Err(cannot_run(name)),
        }
    }

    fn stepped(&mut self, work: &mut Work, step: Step, output: &mut Output) -> Turn {
        let outcome = match step {
            Step::Wait(wait) => {
                work.stage = Stage::Running;
                return Turn::Blocked(wait);
            }
            Step::Part(durable) => {
                if let Some(cts) = durable {
                    output.depend(cts);
                }
                work.stage = Stage::SendingPart { next: 0 };
                return Turn::On;
            }
            Step::Done(outcome) => outcome,
        };
        if let Some(cts) = outcome.durable {
            output.depend(cts);
        }
        for notice in &outcome.notices {
            output.notice(notice);
        }
        if let Some(shape) = self.session.copying() {
            output.copy_response(&shape);
            work.stage = match shape.direction {
                CopyDirection::In => Stage::CopyIn { wait: None, has_waited: false },
                CopyDirection::Out => Stage::CopyOut,
            };
            return Turn::On;
        }
        work.stage = Stage::Sending { tag: outcome.tag, first: 0, next: 0 };
        Turn::On
    }

    fn commit_stepped(&mut self, work: &mut Work, step: Step, output: &mut Output) -> Turn {
        match step {
            Step::Wait(wait) => {
                work.stage = Stage::Committing;
                Turn::Blocked(wait)
            }
            Step::Done(outcome) => {
                if let Some(cts) = outcome.durable {
                    output.depend(cts);
                }
                self.implicit = false;
                self.ready(output);
                Turn::Over
            }
            Step::Part(_) => unreachable!("invariant: a commit gives no rows"),
        }
    }

    /// Sends a part of the rows while there is room; then the statement goes on.
    fn send_part(&mut self, work: &mut Work, output: &mut Output) -> Turn {
        let Stage::SendingPart { next } = &mut work.stage else {
            unreachable!("only a part is sent");
        };
        if !std::mem::replace(&mut work.gave_part, true) && matches!(work.job, Job::Script(_)) {
            output.row_description(self.rows.columns(), &ALL_TEXT);
        }
        let messages = self.rows.messages().expect("invariant: only who asks for messages is given parts");
        *next += output.data_rows(&messages[*next..], OUTPUT_BYTES_MAX.saturating_sub(output.unsent()));
        if *next < messages.len() {
            return Turn::Full;
        }
        work.stage = Stage::Running;
        Turn::On
    }

    /// Sends rows while there is room, then what completed.
    fn send(&mut self, work: &mut Work, output: &mut Output) -> Result<Turn, SqlError> {
        let Stage::Sending { tag, first, next } = &mut work.stage else {
            unreachable!("only a result is sent");
        };
        let (formats, rows_max) = match &work.job {
            Job::Execute { portal, rows_max } => {
                let portal = self.portals.get(portal);
                (portal.map_or(&ALL_TEXT, |p| &p.formats), *rows_max)
            }
            _ => (&ALL_TEXT, 0),
        };
        let end = match (work.gives_rows, rows_max) {
            (false, _) => 0,
            (true, 0) => self.rows.len(),
            (true, limit) => self.rows.len().min(first.saturating_add(limit)),
        };
        if work.gives_rows && *next == 0 && !work.gave_part && matches!(work.job, Job::Script(_)) {
            output.row_description(self.rows.columns(), formats);
        }
        let sent = match self.rows.messages().filter(|_| work.gives_rows) {
            Some(messages) => {
                *next += output.data_rows(&messages[*next..], OUTPUT_BYTES_MAX.saturating_sub(output.unsent()));
                if *next < messages.len() {
                    return Ok(Turn::Full);
                }
                // With those of parts.
                tag.rows.map_or(self.rows.len(), |rows| rows as usize)
            }
            None => {
                while *next < end {
                    output.data_row(&self.rows, *next, formats)?;
                    *next += 1;
                    if output.unsent() >= OUTPUT_BYTES_MAX && *next < end {
                        return Ok(Turn::Full);
                    }
                }
                *next - *first
            }
        };
        match &mut work.job {
            Job::Execute { portal, .. } if work.gives_rows && rows_max > 0 && sent == rows_max => {
                let rows = std::mem::take(&mut self.rows);
                let progress = if portal.is_empty() {
                    PortalProgress::Suspended { rows: Box::new(rows), next: *next, tag: tag.clone() }
                } else {
                    self.session.keep_rows(portal, rows, *next, tag.clone());
                    PortalProgress::Kept
                };
                if let Some(portal) = self.portals.get_mut(portal) {
                    portal.progress = progress;
                }
                output.portal_suspended();
                Ok(Turn::Over)
            }
            Job::Execute { portal, .. } => {
                if work.gives_rows && !portal.is_empty() {
                    self.session.keep_rows(portal, RowSet::default(), 1, tag.clone());
                }
                let rows = if work.gives_rows && tag.command == "SELECT" { Some(sent as u64) } else { tag.rows };
                output.command_complete(tag.command, rows);
                self.forget_rows();
                Ok(Turn::Over)
            }
            Job::Script(script) => {
                output.command_complete(tag.command, tag.rows);
                script.at += 1;
                work.stage = Stage::Start;
                self.forget_rows();
                Ok(Turn::On)
            }
            Job::Sync => unreachable!("a commit gives no rows"),
        }
    }

    /// A large result's memory does not stay with an idle session.
    fn forget_rows(&mut self) {
        if self.rows.memory_bytes() > ROWS_KEPT_BYTES_MAX {
            self.rows.release();
        }
    }

    // ---- errors

    fn work_failed(&mut self, job: Job, mut error: SqlError, output: &mut Output) {
        match job {
            Job::Execute { .. } => {
                self.failed(error, output);
                self.skip_to_sync = true;
            }
            Job::Sync => {
                self.failed(error, output);
                self.ready(output);
            }
            Job::Script(script) => {
                let before = script.characters_before_piece();
                error.position = error.position.map(|p| p + before);
                self.failed(error, output);
                self.ready(output);
            }
        }
    }

    /// Tells the error and fails the transaction that is open; an implicit one is undone at once, with its locks.
    fn failed(&mut self, error: SqlError, output: &mut Output) {
        self.session.fail();
        if let Some(cts) = self.session.error_dependency() {
            output.depend(cts);
        }
        self.session.take_notices().iter().for_each(|notice| output.notice(notice));
        output.error(Severity::Error, &error);
        if std::mem::take(&mut self.implicit) {
            // The commit of a failed transaction is its rollback: it cannot wait, and its outcome was told above.
            let _ = self.session.commit_implicit();
        }
        self.forget_rows();
    }
}

/// The session is to run the query of this portal, which has not run, for a statement that reads from it.
fn lend_portal(session: &mut Session, portals: &mut Named<Portal>, name: &str) {
    if let Some(portal) = portals.named.get_mut(name.as_bytes())
        && matches!(portal.progress, PortalProgress::Bound)
    {
        portal.progress = PortalProgress::Kept;
        let parameters = std::mem::take(&mut portal.parameters);
        session.lend_query(name, portal.statement.clone(), parameters);
    }
}

impl Script {
    /// Characters of the script before the piece that runs: its errors count from its own start.
    fn characters_before_piece(&self) -> usize {
        let mut from = 0;
        for piece in &self.pieces[..=self.at.min(self.pieces.len() - 1)] {
            match self.text[from..].find(piece.as_str()) {
                Some(found) => from += found + piece.len(),
                None => return 0,
            }
        }
        let start = from - self.pieces[self.at.min(self.pieces.len() - 1)].len();
        self.text[..start].chars().count()
    }
}

/// CopyData: each record is a message.
const COPY_DATA: Framing = Framing {
    head_bytes: 5,
    fill: |message| {
        let length = (message.len() - 1) as u32;
        message[0] = b'd';
        message[1..5].copy_from_slice(&length.to_be_bytes());
    },
};

fn broken(reason: &Malformed, output: &mut Output) -> Progress {
    output.error(Severity::Fatal, &SqlError::new("08P01", reason.0.as_str()));
    Progress::Closed
}

/// Whether a Sync is at hand with nothing before it that runs a statement.
fn only_sync_follows(mut rest: &[u8], message_bytes_max: usize) -> bool {
    while let Ok(Some(next)) = frame::peek(rest, message_bytes_max) {
        match next.kind {
            b'S' => return true,
            b'C' | b'H' if next.length <= rest.len() => rest = &rest[next.length..],
            _ => return false,
        }
    }
    false
}

/// The formats that Bind asks for; where they differ by column, in this memory.
fn result_formats(bind: &Bind<'_>, mut memory: Vec<Format>) -> ResultFormats {
    let asked = bind.result_formats;
    let first = asked.get(0);
    if (1..asked.count()).all(|column| asked.get(column) == first) {
        return ResultFormats::All(first);
    }
    memory.clear();
    memory.extend((0..asked.count()).map(|column| asked.get(column)));
    ResultFormats::Each(memory)
}

fn check_counts(bind: &Bind<'_>, parameters: usize, columns: usize) -> Result<(), SqlError> {
    let given = bind.parameters.count();
    let message = if given != parameters {
        format!(
            "bind message supplies {given} parameters, but prepared statement \"{}\" requires {parameters}",
            lossy(bind.statement)
        )
    } else if !bind.parameter_formats.covers(given) {
        format!("bind message has {} parameter formats but {given} parameters", bind.parameter_formats.count())
    } else if columns > 0 && !bind.result_formats.covers(columns) {
        format!("bind message has {} result formats but query has {columns} columns", bind.result_formats.count())
    } else {
        return Ok(());
    };
    Err(SqlError::new("08P01", message))
}

fn cannot_run(name: &[u8]) -> SqlError {
    SqlError::new("55000", format!("portal \"{}\" cannot be run", lossy(name)))
}

fn no_portal(name: &[u8]) -> SqlError {
    SqlError::new("34000", format!("portal \"{}\" does not exist", lossy(name)))
}

fn lossy(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}

fn utf8(text: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(text).map_err(|error| {
        let bad = text.get(error.valid_up_to()).copied().unwrap_or(0);
        SqlError::new("22021", format!("invalid byte sequence for encoding \"UTF8\": 0x{bad:02x}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_execute_is_told_by_what_follows() {
        let sync = b"S\0\0\0\x04";
        let close = b"C\0\0\0\x06P\0";
        let parse = b"P\0\0\0\x08\0\0\0\0";
        let follows = |parts: &[&[u8]]| only_sync_follows(&parts.concat(), 1000);
        assert!(follows(&[sync]));
        assert!(follows(&[close, b"H\0\0\0\x04", sync, parse]));
        assert!(!follows(&[]));
        assert!(!follows(&[close]));
        assert!(!follows(&[parse, sync]));
        assert!(!follows(&[&close[..6]]), "cut off");
    }

    #[test]
    fn positions_count_from_the_scripts_start() {
        let mut script = Script {
            text: " select 1;  /* ö */ select 1; selec".into(),
            pieces: vec!["select 1".into(), "select 1".into(), "selec".into()],
            at: 0,
        };
        assert_eq!(script.characters_before_piece(), 1);
        script.at = 1;
        assert_eq!(script.characters_before_piece(), 20);
        script.at = 2;
        assert_eq!(script.characters_before_piece(), 30);
        script.at = 3;
        assert_eq!(script.characters_before_piece(), 30, "the commit at its end");
    }
}
