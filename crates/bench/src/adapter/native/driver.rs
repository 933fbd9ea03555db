//! How do the sessions of one thread run their operations on the row API? As an event loop does: what many of them ask for at a time is known some
//! operations ahead, and its cache misses overlap.

use super::rows::{Scratch, Tables};
use super::{commit, run, transact};
use crate::adapter::{Answer, Completion, Driver, Fetch, KNOWN, NEAR, Op, Submitted};
use crate::error::BenchError;
use freshet_db::Ahead;
use freshet_engine::engine::Engine;
use freshet_engine::ids::Cts;
use freshet_engine::txn::{Isolation, Session, Stop};
use std::collections::VecDeque;

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

/// A commit on its way to the devices.
struct Flying {
    cts: Cts,
    session: usize,
    answer: Answer,
}

/// An operation that was submitted and has not run.
struct Known {
    session: usize,
    /// An insert's cells are in `cells`.
    op: Op<'static>,
    cells: Vec<i64>,
}

pub struct NativeDriver<'a> {
    engine: &'a Engine,
    tables: Tables,
    sessions: Vec<Session>,
    durable: bool,
    /// What many sessions ask for at a time runs in turn, its cache misses overlapped.
    known: VecDeque<Known>,
    spare: Vec<Vec<i64>>,
    /// Of those that were known: waiting for no device.
    answered: Vec<Completion>,
    /// In order of commit: oldest first.
    flying: VecDeque<Flying>,
    scratch: Scratch,
}

impl<'a> NativeDriver<'a> {
    pub fn new(engine: &'a Engine, tables: Tables, sessions: Vec<Session>, durable: bool) -> NativeDriver<'a> {
        NativeDriver {
            engine,
            tables,
            sessions,
            durable,
            known: VecDeque::new(),
            spare: Vec::new(),
            answered: Vec::new(),
            flying: VecDeque::new(),
            scratch: Scratch::default(),
        }
    }

    fn learn(&mut self, session: usize, op: Op<'static>, cells: &[i64]) -> Result<(), BenchError> {
        let mut own = self.spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(cells);
        self.tables.load_ahead(&self.sessions[session], &op, &own, Ahead::Entry);
        self.known.push_back(Known { session, op, cells: own });
        if self.known.len() > NEAR {
            self.load_row(self.known.len() - 1 - NEAR);
        }
        if self.known.len() > KNOWN { self.run_oldest() } else { Ok(()) }
    }

    fn load_row(&self, at: usize) {
        let Known { session, op, cells } = &self.known[at];
        self.tables.load_ahead(&self.sessions[*session], op, cells, Ahead::Row);
    }

    fn run_oldest(&mut self) -> Result<(), BenchError> {
        let Some(Known { session, op, cells }) = self.known.pop_front() else { return Ok(()) };
        let done = match op {
            Op::Insert { table, .. } => self.run(session, &Op::Insert { table, cells: &cells })?,
            op => self.run(session, &op)?,
        };
        if let Submitted::Done(answer) = done {
            self.answered.push(Completion { session, answer });
        }
        self.spare.push(cells);
        Ok(())
    }

    fn run_known(&mut self) -> Result<(), BenchError> {
        let first_far = self.known.len().saturating_sub(NEAR);
        (first_far..self.known.len()).for_each(|at| self.load_row(at));
        while !self.known.is_empty() {
            self.run_oldest()?;
        }
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
        self.flying.push_back(Flying { cts, session, answer });
        Submitted::InFlight
    }

    fn take_durable(&mut self, done: &mut Vec<Completion>) {
        while let Some(oldest) = self.flying.front()
            && self.engine.is_durable(oldest.cts)
        {
            done.push(Completion { session: oldest.session, answer: oldest.answer });
            self.flying.pop_front();
        }
    }
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
        if self.sessions.len() > 2 * KNOWN
            && let Some((op, cells)) = one_row(op)
        {
            self.learn(session, op, cells)?;
            return Ok(Submitted::InFlight);
        }
        self.run(session, op)
    }

    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
        let before = done.len();
        self.run_known()?;
        done.append(&mut self.answered);
        self.take_durable(done);
        if let (true, true, Some(oldest)) = (wait, done.len() == before, self.flying.front()) {
            self.engine.wait_durable(oldest.cts).wait()?;
            self.take_durable(done);
        }
        Ok(())
    }
}
