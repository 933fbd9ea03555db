//! Which value comes next? Making room for values in the log, ahead of handing them out (see `catalog::sequence`).
//!
//! 1. Room is made by a transaction of its own, which locks only the sequence's row: never the DDL lock, which the caller may hold.
//! 2. A state that a transaction made (a new sequence, a new start) is that transaction's until it commits: it takes values from it without making
//!    room, and its commit writes where it stands (`write_sequences`). Others wait for its end when they need room.

use super::core::Core;
use super::locks::Strength;
use super::session::Session;
use super::{Error, Isolation, Stop, WaitToken};
use crate::catalog::{Next, Object, SEQUENCE_BATCH, Schema, Sequence, SequenceState, SequenceValue};
use crate::ids::{Cts, RowId};
use crate::schema::Row;
use std::sync::Arc;

/// What taking a value, or setting one, came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenValue {
    /// The value, and the commit that what shows it depends on.
    Value(i64, Cts),
    /// The sequence's end, with NO CYCLE.
    AtEnd,
    /// Another transaction is changing the sequence: wait for it (`Session::wait_for_sequence`) and look the sequence up again.
    Busy,
}

/// The sequence's next value.
pub(crate) fn take(core: &Arc<Core>, sequence: &Sequence) -> Result<TakenValue, Error> {
    loop {
        let asked = sequence.state.lock().next(&sequence.def);
        match asked {
            Next::End => return Ok(TakenValue::AtEnd),
            Next::Value(value, logged) => return Ok(TakenValue::Value(value, logged)),
            Next::Exhausted => {
                let made = log_value(core, sequence, |now| {
                    let (limit, count) = now.ahead(&sequence.def, SEQUENCE_BATCH);
                    (now, limit, count)
                })?;
                if made.is_none() {
                    return Ok(TakenValue::Busy);
                }
            }
        }
    }
}

/// Puts the sequence where it is told, for everybody and at once.
pub(crate) fn set(core: &Arc<Core>, sequence: &Sequence, value: SequenceValue) -> Result<TakenValue, Error> {
    {
        let mut state = sequence.state.lock();
        if state.is_private {
            // Only the transaction that made the state sees it.
            (state.value, state.is_changed) = (value, true);
            return Ok(TakenValue::Value(value.last, Cts::ZERO));
        }
    }
    let logged = log_value(core, sequence, |_| (value, value, 0))?;
    Ok(logged.map_or(TakenValue::Busy, |cts| TakenValue::Value(value.last, cts)))
}

/// Logs a limit in a transaction of its own. `change` gives, of where the sequence stands, where it is to stand, the limit, and how many values lie
/// between. `None`: another transaction is changing the sequence, or has.
fn log_value(
    core: &Arc<Core>,
    sequence: &Sequence,
    change: impl Fn(SequenceValue) -> (SequenceValue, SequenceValue, i64),
) -> Result<Option<Cts>, Error> {
    let mut session = Session::new(core, None).ok_or(Error::TooManySessions)?;
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let Some(at) = session.lock_object_unless_taken(sequence.id) else { return Ok(None) };
    // Under the row's lock: a new start that was committed before is seen, and none comes.
    if !is_current(&core.schema.load(), sequence) {
        return Ok(None);
    }
    // Held to the end: two who make room at once would each count on their own.
    let mut state = sequence.state.lock();
    if state.left > 0 && change(state.value).2 > 0 {
        return Ok(Some(state.logged));
    }
    let (value, limit, left) = change(state.value);
    let object = Object::Sequence { def: sequence.def.clone(), value: limit };
    loop {
        match session.change_row(at, sequence.id, &object).and_then(|()| session.commit()) {
            Ok(committed) => {
                (state.value, state.left, state.logged) = (value, left, committed.cts);
                return Ok(Some(committed.cts));
            }
            // The log's room after a checkpoint.
            Err(Stop::Wait(mut token)) => {
                token.block(None);
            }
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

impl Session {
    /// The answer depends on this, too.
    pub fn depend_on(&mut self, cts: Cts) {
        self.dependency = self.dependency.max(cts);
    }

    /// After [`TakenValue::Busy`]: what to wait for.
    pub fn wait_for_sequence(&mut self, sequence: &Sequence) -> Stop {
        self.wait_for_object(sequence.id)
    }

    /// Before a commit: the rows of sequences that this transaction made or gave a new start say where they stand.
    pub(super) fn write_sequences(&mut self) -> Result<(), Stop> {
        for (id, state) in self.ddl.sequences.clone() {
            let current = self.schema().sequence_by_id(id).cloned();
            let Some(sequence) = current.filter(|s| Arc::ptr_eq(&s.state, &state)) else { continue };
            let value = {
                let mut inner = state.lock();
                if !std::mem::take(&mut inner.is_changed) {
                    continue;
                }
                inner.value
            };
            self.change_object(id, &Object::Sequence { def: sequence.def.clone(), value })?;
        }
        Ok(())
    }

    /// They are everybody's from now on.
    pub(super) fn publish_sequences(sequences: &mut Vec<(u32, Arc<SequenceState>)>, cts: Cts) {
        for (_, state) in sequences.drain(..) {
            let mut inner = state.lock();
            (inner.is_private, inner.logged, inner.left) = (false, cts, 0);
        }
    }

    /// Locks an object's row, waiting for who has it.
    pub(super) fn lock_object(&mut self, id: u32) -> Result<RowId, Stop> {
        let at = self.find_object(id);
        let system = self.core.system.clone();
        self.lock_newest(&system, at, Strength::Update, &mut Row::default())?;
        Ok(at)
    }

    /// `None`: another session has it.
    fn lock_object_unless_taken(&mut self, id: u32) -> Option<RowId> {
        let at = self.find_object_if_any(id)?;
        let system = self.core.system.clone();
        self.set_nowait(true);
        let locked = self.lock_newest(&system, at, Strength::Update, &mut Row::default());
        self.set_nowait(false);
        locked.ok().map(|_| at)
    }

    /// Waits for whoever has the object's row; then the caller looks again.
    fn wait_for_object(&mut self, id: u32) -> Stop {
        let system = self.core.system.clone();
        let Some(at) = self.find_object_if_any(id) else { return Stop::Wait(WaitToken::ready()) };
        let head = system.store.primary.slot(at).head();
        match head.owner() {
            Some(owner) if owner != self.no => {
                let core = self.core.clone();
                let is_in_the_way = || core.system.store.primary.slot(at).head().owner() == Some(owner);
                self.wait_for_session(owner, None, is_in_the_way)
            }
            _ => Stop::Wait(WaitToken::ready()),
        }
    }
}

fn is_current(schema: &Schema, sequence: &Sequence) -> bool {
    schema.sequence_by_id(sequence.id).is_some_and(|s| Arc::ptr_eq(&s.state, &sequence.state))
}
