//! A block of DO runs: its statements one after the other, each as if the client had sent it, within one transaction.
//!
//! | of the block | in the session |
//! |---|---|
//! | the transaction it runs in | the one that is open, or one of its own: while it runs the session has an explicit block, and what it had before is `was` |
//! | a block with handlers | a savepoint, which an error that is caught goes back to |
//! | a condition, a text for EXECUTE | a query of one row, whose cell decides what is next ([`Next`]) |
//!
//! 1. What waits is the statement that runs ([`super::Pending`]); `next` says what is done with what it gives, and `queued` what comes before the
//!    next statement. Nothing here calls itself: a text has as many branches and statements as it likes.
//! 2. However the block ends, the session is left with the savepoints and the kind of block that it had, and the error of a statement that nobody
//!    caught has done to them what an error of the whole does.
//! 3. A block of many short statements holds its worker no longer than one statement may: then it goes on elsewhere.
//! 4. No statement ends the transaction, or stands for another one that might (a prepared one, a cursor's): [`refused_in_block`].

use super::{Block, CommandTag, Commit, On, Outcome, Session, SqlError, Step, Wait, now};
use crate::notice::Notice;
use crate::parse::block::{DoBlock, DoStatement, Handler, Raise, Statements, selects_into, with_found};
use crate::route::Plan;
use crate::rows::RowSet;
use crate::settings::parse_bool;
use freshet_engine::schema::Type;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const TAG: CommandTag = CommandTag { command: "DO", rows: None };

/// Savepoints of a block are called so: no statement can name them.
const SAVEPOINT: &str = "\0do";

/// Statements that are being run.
struct Frame {
    statements: Statements,
    at: usize,
    /// Of a block with handlers: those, and the place of its savepoint.
    guard: Option<(Arc<[Handler]>, usize)>,
    /// What a handler was called for.
    caught: Option<SqlError>,
}

impl Frame {
    fn of(statements: Statements) -> Frame {
        Frame { statements, at: 0, guard: None, caught: None }
    }

    /// What follows of an error. The end of a session is caught by nobody.
    fn handler_of(&self, error: &SqlError) -> Option<Statements> {
        let (handlers, _) = self.guard.as_ref().filter(|_| !error.sqlstate.starts_with("57P"))?;
        let is_met = |handler: &&Handler| handler.conditions.iter().any(|c| c.is_met(error.sqlstate));
        handlers.iter().find(is_met).map(|handler| handler.then.clone())
    }
}

/// What is done with what a statement gives.
enum Next {
    Nothing,
    /// FOUND tells whether it was about any row: one that it changed, or gave if it is PERFORM's.
    Found,
    /// The condition of this branch.
    Branch(DoStatement, usize),
    /// The text of statements.
    Text,
    /// What a message's text names.
    Arguments(Arc<Raise>),
}

/// What is run before the next statement.
enum Queued {
    /// The branch of this number is looked at.
    Branch(DoStatement, usize),
    Texts(VecDeque<String>),
}

/// A block of DO that runs.
pub(super) struct Doing {
    was: Block,
    savepoints: usize,
    frames: Vec<Frame>,
    next: Next,
    queued: Option<Queued>,
    rows: RowSet,
    notices: Vec<Notice>,
    /// FOUND.
    is_found: bool,
    /// What ends the wait of the statement that runs.
    interrupted: Option<SqlError>,
    /// No statement waits, but the block for a thread.
    is_between: bool,
}

/// A step of a block: `None`: go on.
type Stepped = Result<Option<Step>, SqlError>;

impl Session {
    /// Begins the block and runs it to its end, or to its first wait.
    pub(super) fn start_block(&mut self, block: &DoBlock) -> Result<Step, SqlError> {
        self.interrupt.cancelled.store(false, Ordering::Relaxed);
        let was = self.block;
        self.doing = Some(Box::new(Doing {
            was,
            savepoints: self.savepoints.len(),
            frames: Vec::new(),
            next: Next::Nothing,
            queued: None,
            rows: RowSet::default(),
            notices: Vec::new(),
            is_found: false,
            interrupted: None,
            is_between: false,
        }));
        if !self.inner.in_transaction() && was != Block::Explicit {
            self.clock_read = false;
            self.fix_defaults();
        }
        self.read_clock();
        self.env.statement = now();
        self.block = Block::Explicit;
        self.enter_block(block);
        self.run_block()
    }

    /// A statement of the block that waited goes on.
    pub(super) fn go_on_in_block(&mut self) -> Result<Step, SqlError> {
        if std::mem::take(&mut self.block_state().is_between) {
            return self.run_block();
        }
        let step = match self.block_state().interrupted.take() {
            Some(error) => {
                self.inner.abandon_wait();
                Err(self.statement_failed(error))
            }
            None => {
                let mut rows = std::mem::take(&mut self.block_state().rows);
                let step = self.go_on_alone(&mut rows);
                self.block_state().rows = rows;
                step
            }
        };
        match self.take_step(step)? {
            Some(waits) => Ok(waits),
            None => self.run_block(),
        }
    }

    /// Ends the wait of a block's statement with an error, if the block catches that: then the session is to be resumed. False: nothing has been done.
    pub fn interrupt(&mut self, error: &SqlError) -> bool {
        let Some(doing) = &mut self.doing else { return false };
        let catches = self.pending.is_some() && doing.frames.iter().any(|frame| frame.handler_of(error).is_some());
        if catches {
            doing.interrupted = Some(error.clone());
        }
        catches
    }

    /// What the statements of a block have said that failed.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.said_before_error)
    }

    /// The block has ended with an error, which has been told to the session.
    pub(super) fn leave_failed_block(&mut self) {
        let Some(doing) = self.doing.take() else { return };
        self.said_before_error = doing.notices;
        self.savepoints.truncate(doing.savepoints);
        match doing.was {
            Block::None | Block::Implicit => {
                self.roll_back();
                self.leave_block(false);
            }
            was => {
                self.block = was;
                self.fail();
            }
        }
    }

    fn block_state(&mut self) -> &mut Doing {
        self.doing.as_mut().expect("invariant: only a block that runs goes on")
    }

    fn enter_block(&mut self, block: &DoBlock) {
        let mut frame = Frame::of(block.body.clone());
        if !block.handlers.is_empty() {
            frame.guard = Some((block.handlers.clone(), self.savepoints.len()));
            self.push_savepoint(SAVEPOINT);
        }
        self.block_state().frames.push(frame);
    }

    /// Runs statements until one waits or all have run.
    fn run_block(&mut self) -> Result<Step, SqlError> {
        let began = Instant::now();
        loop {
            let at = Instant::now();
            let is_late = self.inline_limit.is_some_and(|limit| at - began > limit);
            if self.interrupt.deadline.is_some_and(|deadline| at >= deadline) {
                let error = SqlError::new("57014", "canceling statement due to statement timeout");
                let error = self.statement_failed(error);
                self.fails_in_block(error)?;
                continue;
            }
            let doing = self.block_state();
            if is_late {
                doing.is_between = true;
                return Ok(Step::Wait(Wait(On::Elsewhere)));
            }
            let stepped = if let Some(queued) = doing.queued.take() {
                self.run_queued(queued)
            } else if let Some(frame) = doing.frames.last_mut() {
                match frame.statements.get(frame.at).cloned() {
                    Some(statement) => {
                        frame.at += 1;
                        self.run_in_block(statement)
                    }
                    None => {
                        let ended = doing.frames.pop().expect("just seen");
                        if let Some((_, savepoint)) = ended.guard {
                            self.drop_savepoints(savepoint);
                        }
                        Ok(None)
                    }
                }
            } else {
                return self.end_whole_block();
            };
            if let Some(waits) = stepped? {
                return Ok(waits);
            }
        }
    }

    fn run_in_block(&mut self, statement: DoStatement) -> Stepped {
        match statement {
            DoStatement::Sql(text) => self.run_text(&text, false, Next::Found),
            DoStatement::Perform(text) => {
                let text = with_found(&text, self.block_state().is_found);
                self.run_text(&text, true, Next::Found)
            }
            DoStatement::Execute(text) => self.ask(&[text], Next::Text),
            DoStatement::If { .. } => {
                self.block_state().queued = Some(Queued::Branch(statement, 0));
                Ok(None)
            }
            DoStatement::Block(block) => {
                self.enter_block(&block);
                Ok(None)
            }
            DoStatement::Raise(raise) if raise.arguments.is_empty() => self.raise(&raise, &[]),
            DoStatement::Raise(raise) => {
                let arguments = raise.arguments.clone();
                self.ask(&arguments, Next::Arguments(raise))
            }
            DoStatement::Reraise => {
                let caught = self.block_state().frames.iter().rev().find_map(|frame| frame.caught.clone());
                let message = "RAISE without parameters cannot be used outside an exception handler";
                self.fails_in_block(caught.unwrap_or_else(|| SqlError::new("0Z002", message)))
            }
            DoStatement::Return => {
                self.block_state().frames.iter_mut().for_each(|frame| frame.at = frame.statements.len());
                Ok(None)
            }
        }
    }

    fn run_queued(&mut self, queued: Queued) -> Stepped {
        match queued {
            Queued::Branch(statement, at) => {
                let DoStatement::If { branches, otherwise } = &statement else { return Ok(None) };
                let Some((condition, _)) = branches.get(at) else {
                    let otherwise = Frame::of(otherwise.clone());
                    self.block_state().frames.push(otherwise);
                    return Ok(None);
                };
                let condition = condition.clone();
                self.ask(&[condition], Next::Branch(statement, at))
            }
            Queued::Texts(mut texts) => {
                let Some(text) = texts.pop_front() else { return Ok(None) };
                self.block_state().queued = Some(Queued::Texts(texts));
                if selects_into(&text) {
                    return self.fails_in_block(SqlError::unsupported("EXECUTE of SELECT ... INTO"));
                }
                self.run_text(&text, true, Next::Nothing)
            }
        }
    }

    /// Asks for the values of expressions, each in a line of its own, as it may end with a comment.
    fn ask(&mut self, expressions: &[Arc<str>], next: Next) -> Stepped {
        let found = self.block_state().is_found;
        let expressions: Vec<String> = expressions.iter().map(|text| with_found(text, found)).collect();
        self.run_text(&format!("SELECT {}\n", expressions.join("\n, ")), true, next)
    }

    fn run_text(&mut self, text: &str, gives_rows: bool, next: Next) -> Stepped {
        if self.interrupt.cancelled.swap(false, Ordering::Relaxed) {
            let error = SqlError::new("57014", "canceling statement due to user request");
            return self.fails_in_block(error);
        }
        let prepared = match self.prepare(text, &[]) {
            Ok(prepared) => prepared,
            Err(error) => return self.fails_in_block(error),
        };
        if let Some(error) = refused_in_block(&prepared.plan, prepared.gives_rows() && !gives_rows) {
            return self.fails_in_block(error);
        }
        if let Some((name, _)) = prepared.parameters.first().and_then(|_| crate::parse::first_parameter(text)) {
            return self.fails_in_block(SqlError::new("42P02", format!("there is no parameter {name}")));
        }
        self.env.sequences.iter().for_each(|sequences| sequences.begin_statement());
        let dependency = self.prepare_dependency();
        let doing = self.block_state();
        doing.next = next;
        let mut rows = std::mem::take(&mut doing.rows);
        rows.keep_cells();
        self.begin_rows(&prepared, &mut rows);
        let step = self.start(&prepared, &[], &mut rows);
        if self.inner.in_transaction() {
            dependency.into_iter().for_each(|cts| self.inner.depend_on(cts));
        }
        self.block_state().rows = rows;
        self.take_step(step)
    }

    /// What the statement that ran gives is used, where it has not to wait.
    fn take_step(&mut self, step: Result<Step, SqlError>) -> Stepped {
        let outcome = match step {
            Ok(Step::Done(outcome)) => outcome,
            Ok(waits) => return Ok(Some(waits)),
            Err(error) => return self.fails_in_block(error),
        };
        let doing = self.block_state();
        doing.notices.extend(outcome.notices);
        match std::mem::replace(&mut doing.next, Next::Nothing) {
            Next::Nothing => Ok(None),
            Next::Found => {
                // CREATE TABLE AS is answered as a query, too, and gives no rows.
                let is_asked = outcome.tag.command != "SELECT" || !doing.rows.columns().is_empty();
                if let Some(rows) = outcome.tag.rows.filter(|_| is_asked) {
                    doing.is_found = rows > 0;
                }
                Ok(None)
            }
            Next::Branch(statement, at) => match answer(&doing.rows, 1) {
                Ok(cells) => self.take_branch(statement, at, cells.and_then(|mut cells| cells.swap_remove(0))),
                Err(error) => self.fails_in_block(error),
            },
            Next::Text => match answer(&doing.rows, 1) {
                Ok(cells) => self.take_text(cells.and_then(|mut cells| cells.swap_remove(0))),
                Err(error) => self.fails_in_block(error),
            },
            Next::Arguments(raise) => match answer(&doing.rows, raise.arguments.len()) {
                Ok(cells) => self.raise(&raise, &cells.unwrap_or_else(|| vec![None; raise.arguments.len()])),
                Err(error) => self.fails_in_block(error),
            },
        }
    }

    /// What the condition of a branch is decides whether it is taken.
    fn take_branch(&mut self, statement: DoStatement, at: usize, shown: Option<String>) -> Stepped {
        let DoStatement::If { branches, .. } = &statement else { return Ok(None) };
        let doing = self.block_state();
        // As in PL/pgSQL, whatever is written as a truth value is one.
        let holds = match shown.map(|shown| (parse_bool(&shown), shown)) {
            None => false,
            Some((Some(holds), _)) => holds,
            Some((None, shown)) => {
                let message = format!("invalid input syntax for type boolean: \"{shown}\"");
                return self.fails_in_block(SqlError::new("22P02", message));
            }
        };
        if holds {
            doing.frames.push(Frame::of(branches[at].1.clone()));
        } else {
            doing.queued = Some(Queued::Branch(statement, at + 1));
        }
        Ok(None)
    }

    fn take_text(&mut self, text: Option<String>) -> Stepped {
        let Some(text) = text else {
            return self.fails_in_block(SqlError::new("22004", "query string argument of EXECUTE is null"));
        };
        match self.split(&text) {
            Ok(texts) => {
                self.block_state().queued = Some(Queued::Texts(texts.into()));
                Ok(None)
            }
            Err(error) => self.fails_in_block(error),
        }
    }

    fn raise(&mut self, raise: &Raise, arguments: &[Option<String>]) -> Stepped {
        let mut arguments = arguments.iter();
        let mut message = String::new();
        let mut rest = raise.format.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '%' if rest.next_if_eq(&'%').is_some() => message.push('%'),
                '%' => message.push_str(arguments.next().and_then(Option::as_deref).unwrap_or("<NULL>")),
                c => message.push(c),
            }
        }
        match raise.level.as_str() {
            "EXCEPTION" => return self.fails_in_block(SqlError::new("P0001", message)),
            "WARNING" => self.say(Notice::new("01000", message)),
            "NOTICE" | "INFO" => self.say(Notice::new("00000", message)),
            // For the server's log.
            _ => {}
        }
        Ok(None)
    }

    fn say(&mut self, notice: Notice) {
        let wanted = self.wanted(Some(notice));
        self.block_state().notices.extend(wanted);
    }

    /// A handler goes on with the error, or the block ends.
    fn fails_in_block(&mut self, error: SqlError) -> Stepped {
        self.pending = None;
        let is_end = error.sqlstate == "57014";
        let doing = self.block_state();
        (doing.next, doing.queued) = (Next::Nothing, None);
        while let Some(frame) = doing.frames.pop() {
            let Some(then) = frame.handler_of(&error) else { continue };
            let (_, savepoint) = frame.guard.expect("invariant: who has a handler has a savepoint");
            doing.frames.push(Frame { caught: Some(error), ..Frame::of(then) });
            self.savepoints.truncate(savepoint + 1);
            self.undo_to_savepoint();
            self.savepoints.truncate(savepoint);
            self.block = Block::Explicit;
            if is_end {
                // It was asked for once: as in PostgreSQL, time is over once.
                self.interrupt.deadline = None;
                self.inner.end_by(None);
            }
            return Ok(None);
        }
        // Its place is one in a text that the client has sent as a part of another.
        let error = SqlError { position: None, ..error };
        self.leave_failed_block();
        Err(error)
    }

    fn end_whole_block(&mut self) -> Result<Step, SqlError> {
        let doing = self.doing.take().expect("invariant: it has just run");
        self.savepoints.truncate(doing.savepoints);
        self.block = doing.was;
        if self.block != Block::None {
            self.inner.rest();
            // A message may tell what others have committed.
            let durable = self.depends_on(self.inner.dependency());
            return Ok(Step::Done(Outcome { tag: TAG, durable, notices: doing.notices }));
        }
        if self.inner.in_transaction() {
            return self.commit(Commit { tag: TAG, notices: doing.notices, chain: false });
        }
        self.speaking()?;
        self.leave_block(true);
        Ok(Step::Done(Outcome { tag: TAG, durable: None, notices: doing.notices }))
    }
}

/// The cells of the one row that was asked for, so many; `None`: there is no row.
fn answer(rows: &RowSet, values: usize) -> Result<Option<Vec<Option<String>>>, SqlError> {
    let columns = rows.columns().len();
    if columns != values {
        let are = if columns == 1 { "column" } else { "columns" };
        return Err(SqlError::new("42601", format!("query returned {columns} {are}")));
    }
    let shown = |column| match rows.column_type(column) {
        // As PL/pgSQL shows it, and everybody but a cast.
        Type::Bool => rows.bool(0, column).map(|holds| if holds { "t" } else { "f" }.to_owned()),
        _ => rows.display(0, column),
    };
    match rows.len() {
        0 => Ok(None),
        1 => Ok(Some((0..columns).map(shown).collect())),
        _ => Err(SqlError::new("21000", "query returned more than one row")),
    }
}

/// What no statement of a block may be.
fn refused_in_block(plan: &Plan, gives_unasked: bool) -> Option<SqlError> {
    match plan {
        Plan::Begin { .. }
        | Plan::Commit { .. }
        | Plan::Rollback { .. }
        | Plan::Savepoint(_)
        | Plan::Release(_)
        | Plan::RollbackTo(_) => Some(SqlError::new("0A000", "unsupported transaction command in PL/pgSQL")),
        Plan::Do(_) => Some(SqlError::unsupported("DO in a block of DO")),
        Plan::Copy(_) => Some(SqlError::unsupported("COPY in a block of DO")),
        // What it stands for is not known here.
        Plan::Named(_) => Some(SqlError::unsupported("a prepared statement or a cursor in a block of DO")),
        _ if gives_unasked => Some(
            SqlError::new("42601", "query has no destination for result data")
                .with_hint("If you want to discard the results of a SELECT, use PERFORM instead."),
        ),
        _ => None,
    }
}
