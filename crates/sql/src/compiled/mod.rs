//! How does a compiled statement run? Programs over engine ids: access paths, joins, grouping, sorting, changes.
//!
//! A program is made once at prepare and holds no state; what a run needs lies in the session's [`Scratch`], whose memory is
//! reused. A run either completes, fails, or meets something to wait for ([`Halt::Wait`]): then the caller undoes the
//! statement and runs it anew, so that no program is ever resumed in its middle.

pub mod access;
pub mod aggregate;
pub mod change;
pub mod estimate;
pub mod init;
pub mod lock;
pub mod once;
pub mod point;
pub mod conflict;
pub mod query;
pub mod rules;
pub mod sort;
pub mod union;
pub mod watch;

use crate::catalog::Known;
use crate::charge::Charge;
use crate::error::SqlError;
use crate::expr::{Env, Frame, Lists};
use crate::role::acl::{Kind, Privileges};
use crate::value::{Clock, Datum};
use freshet_engine::catalog::Table;
use freshet_engine::ids::RowId;
use freshet_engine::schema::{KeyBuf, Row};
use freshet_engine::txn::{Error, Session, Stop, WaitToken};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a run ended early.
#[derive(Debug)]
pub enum Halt {
    Wait(WaitToken),
    /// It holds the caller's thread for too long: undone, it runs anew where nobody else waits for the thread.
    TooLong,
    Error(SqlError),
}

impl From<SqlError> for Halt {
    fn from(error: SqlError) -> Halt {
        Halt::Error(error)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Error(error.into())
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Wait(token) => Halt::Wait(token),
            Stop::Error(error) => error.into(),
        }
    }
}

/// Whether a producer of rows goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    Continue,
    Stop,
}

/// Buffers of one level of a join.
#[derive(Default)]
pub struct Level {
    candidates: Vec<RowId>,
    /// The value of a list that each candidate was looked up for.
    wanted: Vec<u32>,
    /// Key values that had to be computed.
    computed: Vec<Datum>,
    lower: KeyBuf,
    upper: KeyBuf,
    /// The rows of a query in FROM that is asked for each row of the loops before it.
    kept: Option<Arc<Kept>>,
}

/// Rows that a run computes once, and what they are charged.
pub struct Kept {
    rows: Vec<Vec<Datum>>,
    #[expect(dead_code, reason = "held until the rows are gone")]
    charge: Charge,
}

/// What runs reuse. Nothing in it outlives a run.
#[derive(Default)]
pub struct Scratch {
    pub rows: Vec<Row>,
    pub cells: Vec<Vec<Datum>>,
    /// By source: the row that is at hand.
    pub ids: Vec<RowId>,
    levels: Vec<Level>,
    /// Rows that a change applies to.
    targets: Vec<RowId>,
    /// The row being written.
    changed: Row,
    /// Of the run's parameters.
    lists: Lists,
    /// Of a run that is measured.
    pub watch: Option<Box<watch::Watch>>,
    /// Whether the run may stop when its rows are a part of the result, and where it did.
    pub gives_parts: bool,
    pub paused: Option<query::Paused>,
}

std::thread_local! {
    static OF_THREAD: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    /// The thread's: a thousand sessions that take turns on a thread find its buffers in the cache, where their own would be cold. A run
    /// within a run gets another.
    pub fn of_thread() -> Box<Scratch> {
        OF_THREAD.take().unwrap_or_default()
    }

    /// For the next run on this thread.
    pub fn leave_to_thread(mut self: Box<Scratch>) {
        self.forget_lists();
        OF_THREAD.set(Some(self));
    }

    /// The run is over, or rests: what it has put in order of its parameters goes.
    pub fn forget_lists(&mut self) {
        self.lists.end();
    }

    pub fn make_room(&mut self, sources: usize) {
        if self.rows.len() < sources {
            self.rows.resize_with(sources, Row::default);
            self.cells.resize_with(sources, Vec::new);
            self.ids.resize(sources, RowId(0));
            self.levels.resize_with(sources, Level::default);
        }
    }

    /// A run that may have kept rows is over.
    fn forget_kept(&mut self) {
        self.levels.iter_mut().for_each(|level| level.kept = None);
    }
}

/// Rows between two looks at the clock and the flag.
const ROWS_PER_LOOK: u32 = 256;

/// What ends a run from outside.
#[derive(Clone, Default, Debug)]
pub struct Interrupt {
    /// Set by whoever cancels.
    pub cancelled: Arc<AtomicBool>,
    pub deadline: Option<Instant>,
    /// How long a run may hold the caller's thread.
    inline_limit: Option<Duration>,
    /// The end of that time, counted from the first look: a short run never reads the clock.
    inline_until: Option<Instant>,
    rows: u32,
}

impl Interrupt {
    /// A run begins that may hold the caller's thread for `limit`.
    pub fn limit_inline(&mut self, limit: Option<Duration>) {
        self.inline_limit = limit;
        self.inline_until = None;
    }

    /// Called for every row of what runs without a [`Run`]: a definition that goes through a table.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), Halt> {
        if self.row() { self.look() } else { Ok(()) }
    }

    /// Counts a row looked at; true if it is time to look around.
    #[inline]
    fn row(&mut self) -> bool {
        self.rows = self.rows.wrapping_add(1);
        self.rows.is_multiple_of(ROWS_PER_LOOK)
    }

    #[cold]
    pub(crate) fn look(&mut self) -> Result<(), Halt> {
        if self.cancelled.swap(false, Ordering::Relaxed) {
            return Err(SqlError::new("57014", "canceling statement due to user request").into());
        }
        if self.deadline.is_none() && self.inline_limit.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(SqlError::new("57014", "canceling statement due to statement timeout").into());
        }
        match (self.inline_limit, self.inline_until) {
            (Some(limit), None) => self.inline_until = Some(now + limit),
            (Some(_), Some(until)) if now >= until => return Err(Halt::TooLong),
            _ => {}
        }
        Ok(())
    }
}

/// One execution.
pub struct Run<'r> {
    pub engine: &'r mut Session,
    pub parameters: &'r [Datum],
    pub env: &'r Env,
    pub scratch: &'r mut Scratch,
    pub interrupt: &'r mut Interrupt,
    pub constraints: &'r mut rules::Constraints,
}

impl<'r> Run<'r> {
    /// Begins, on a scratch of its own.
    pub fn new(
        engine: &'r mut Session,
        (parameters, env): (&'r [Datum], &'r Env),
        scratch: &'r mut Scratch,
        interrupt: &'r mut Interrupt,
        constraints: &'r mut rules::Constraints,
    ) -> Run<'r> {
        scratch.lists.begin(parameters);
        Run { engine, parameters, env, scratch, interrupt, constraints }
    }

    /// By what messages show values: the catalog is at hand, which labels of enums are found in.
    pub fn showing_clock(&self) -> Clock {
        let known = &self.env.clock.catalog;
        let catalog = if known.get().is_some() { known.clone() } else { Known::of_schema(self.engine.schema()) };
        Clock { catalog, ..self.env.clock.clone() }
    }

    /// The same execution with other parameters, for a row say: lists stay those of the run.
    pub fn with_parameters<'s>(&'s mut self, parameters: &'s [Datum]) -> Run<'s> {
        Run {
            engine: &mut *self.engine,
            parameters,
            env: self.env,
            scratch: &mut *self.scratch,
            interrupt: &mut *self.interrupt,
            constraints: &mut *self.constraints,
        }
    }

    /// Runs `work` with other parameters, which are the whole run's meanwhile.
    pub fn under<T>(&mut self, parameters: &[Datum], work: impl FnOnce(&mut Run<'_>) -> T) -> T {
        self.scratch.lists.begin(parameters);
        let done = work(&mut self.with_parameters(parameters));
        self.scratch.lists.begin(self.parameters);
        done
    }

    /// Whether messages may tell the role what is in the table.
    fn may_read(&self, table: &Table) -> bool {
        let access = self.env.access.as_ref();
        access.is_none_or(|access| access.may(Kind::Table, table.id.0, Privileges::SELECT))
    }

    /// Called for every row looked at, and again for every row changed.
    #[inline]
    fn row(&mut self) -> Result<(), Halt> {
        if self.interrupt.row() { self.look_around() } else { Ok(()) }
    }

    #[cold]
    fn look_around(&mut self) -> Result<(), Halt> {
        self.engine.check_snapshot()?;
        self.interrupt.look()
    }

    pub fn frame<'a>(&'a self, tables: &'a [Option<Arc<Table>>]) -> Frame<'a> {
        Frame {
            tables,
            rows: &self.scratch.rows,
            cells: &self.scratch.cells,
            parameters: self.parameters,
            env: self.env,
            lists: Some(&self.scratch.lists),
        }
    }
}
