//! How do the sessions of one thread run their operations on the row API? As an event loop does: what many of them ask for at a time is known some
//! operations ahead, and its cache misses overlap.

use super::rows::{Scratch, Tables};
use super::{commit, run, transact};
use crate::adapter::ahead::{Known, Pending, Request};
use crate::adapter::{Answer, Completion, Driver, Fetch, Op, Submitted};
use crate::error::BenchError;
use freshet_db::Ahead;
use freshet_engine::engine::Engine;
use freshet_engine::ids::Cts;
use freshet_engine::txn::{Isolation, Session, Stop};

/// The same for a change that looks at no snapshot.
fn transact_at_newest<T>(
    session: &mut Session,
    work: impl FnMut(&mut Session) -> Result<T, Stop>,
) -> Result<(T, Cts), BenchError> {
    session.begin(Isolation::ReadCommitted, false);
    let value = run(session, Session::begin_statement_at_newest, work)?;
    Ok((value, commit(session)?))
}

/// A read waits for nothing.
fn stopped(stop: Stop) -> BenchError {
    match stop {
        Stop::Error(error) => error.into(),
        Stop::Wait(_) => BenchError::WrongData("a read by key had to wait".into()),
    }
}

/// An operation that was submitted and has not run.
struct Asked {
    session: usize,
    /// An insert's cells are in `cells`.
    op: Op<'static>,
    cells: Vec<i64>,
}

impl Request for Asked {
    fn is_look_up(&self) -> bool {
        matches!(self.op, Op::Search { .. })
    }
}

pub struct NativeDriver<'a> {
    engine: &'a Engine,
    tables: Tables,
    sessions: Vec<Session>,
    durable: bool,
    /// What many sessions ask for at a time runs in turn, its cache misses overlapped.
    known: Known<Asked>,
    spare: Vec<Vec<i64>>,
    pending: Pending<Cts>,
    scratch: Scratch,
}

impl<'a> NativeDriver<'a> {
    pub fn new(engine: &'a Engine, tables: Tables, sessions: Vec<Session>, durable: bool) -> NativeDriver<'a> {
        NativeDriver {
            engine,
            tables,
            sessions,
            durable,
            known: Known::default(),
            spare: Vec::new(),
            pending: Pending::default(),
            scratch: Scratch::default(),
        }
    }

    fn learn(&mut self, session: usize, op: Op<'static>, cells: &[i64]) -> Result<(), BenchError> {
        let mut own = self.spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(cells);
        let (tables, sessions) = (&self.tables, &self.sessions);
        match self.known.learn(Asked { session, op, cells: own }, |one, what| load_ahead(tables, sessions, one, what)) {
            Some(next) => self.run_known(next),
            None => Ok(()),
        }
    }

    fn run_known(&mut self, Asked { session, op, cells }: Asked) -> Result<(), BenchError> {
        let done = match op {
            Op::Insert { table, .. } => self.run(session, &Op::Insert { table, cells: &cells })?,
            op => self.run(session, &op)?,
        };
        if let Submitted::Done(answer) = done {
            self.pending.answered(session, answer);
        }
        self.spare.push(cells);
        Ok(())
    }

    fn run(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let (tables, scratch) = (&self.tables, &mut self.scratch);
        let engine_session = &mut self.sessions[session];
        if let Op::Search { table, index, key, fetch: Fetch::Counter } = *op
            && let Some(counter) = tables.counter_by(table, index)
        {
            let (found, cts) = engine_session.read_integer(counter, key).map_err(stopped)?;
            let answer = found.map_or(Answer::default(), |sum| Answer { rows: 1, sum: sum.unwrap_or(0) });
            return Ok(self.submitted(session, answer, cts));
        }
        let (answer, cts) = match op {
            Op::Search { .. } | Op::SearchMany { .. } | Op::Traverse { .. } | Op::Sum { .. } => {
                engine_session.begin_read();
                let answer = tables.read(engine_session, op, scratch);
                let cts = if engine_session.end_plain_read() { Cts::ZERO } else { commit(engine_session)? };
                (answer, cts)
            }
            Op::Transaction(ops) => transact(engine_session, |s| {
                let mut answer = Answer::default();
                for op in *ops {
                    answer.add(tables.statement(s, op, scratch)?);
                }
                Ok(answer)
            })?,
            op => match tables.once(engine_session, op, scratch) {
                Some(done) => done,
                None if tables.is_at_newest(op) => {
                    transact_at_newest(engine_session, |s| tables.statement(s, op, scratch))?
                }
                None => transact(engine_session, |s| tables.statement(s, op, scratch))?,
            },
        };
        Ok(self.submitted(session, answer, cts))
    }

    /// Whether the answer may be given, or waits for the devices.
    #[inline]
    fn submitted(&mut self, session: usize, answer: Answer, cts: Cts) -> Submitted {
        if !self.durable {
            self.sessions[session].acknowledged_deferred(cts);
            return Submitted::Done(answer);
        }
        if cts == Cts::ZERO || self.engine.is_durable(cts) {
            return Submitted::Done(answer);
        }
        self.pending.committed(cts, session, answer);
        Submitted::InFlight
    }
}

fn load_ahead(tables: &Tables, sessions: &[Session], asked: &Asked, what: Ahead) {
    let Asked { session, op, cells } = asked;
    tables.load_ahead(&sessions[*session], op, cells, what);
}

/// One row by its key, without what it borrows: its cells apart.
fn one_row<'o>(op: &Op<'o>) -> Option<(Op<'static>, &'o [i64])> {
    Some(match *op {
        Op::Search { table, index, key, fetch } => (Op::Search { table, index, key, fetch }, &[]),
        Op::Update { table, index, key, column, add } => (Op::Update { table, index, key, column, add }, &[]),
        Op::Delete { table, index, key } => (Op::Delete { table, index, key }, &[]),
        Op::Insert { table, cells } => (Op::Insert { table, cells: &[] }, cells),
        _ => return None,
    })
}

impl Driver for NativeDriver<'_> {
    fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        if Known::<Asked>::is_for(self.sessions.len())
            && let Some((op, cells)) = one_row(op)
        {
            self.learn(session, op, cells)?;
            return Ok(Submitted::InFlight);
        }
        self.run(session, op)
    }

    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
        self.known.load_rest(|one, what| load_ahead(&self.tables, &self.sessions, one, what));
        while let Some(next) = self.known.take_next() {
            self.run_known(next)?;
        }
        let engine = self.engine;
        let until_durable = |cts| Ok(engine.wait_durable(cts).wait()?);
        self.pending.take(wait, done, |cts| engine.is_durable(cts), until_durable)
    }
}
