//! Which value comes next? Making room for values in the log, ahead of handing them out (see `catalog::sequence`).
//!
//! 1. Room is made by a transaction of its own, which locks only the sequence's row: never the DDL lock, which the caller may hold.
//! 2. A state that a transaction made (a new sequence, a new start) is that transaction's until it commits: it takes values from it without making
//!    room, and its commit writes where it stands (`write_sequences`). Others wait for its end when they need room.

use super::session::Session;
use super::{Error, Isolation, Stop, WaitToken};
use crate::catalog::{Object, Schema, Sequence, SequenceState, SequenceValue};
use crate::ids::{Cts, RowId};
use crate::schema::Row;
use std::sync::Arc;

/// Values that one commit makes room for.
const BATCH: i64 = crate::catalog::SEQUENCE_BATCH;

impl Session {
    /// The sequence's next value; `None` at its end. What shows it depends on the commit that made room for it.
    pub fn next_value(&mut self, sequence: &Sequence) -> Result<Option<i64>, Stop> {
        use crate::catalog::Next;
        loop {
            let asked = sequence.state.lock().next(&sequence.def);
            match asked {
                Next::End => return Ok(None),
                Next::Value(value, logged) => {
                    self.dependency = self.dependency.max(logged);
                    return Ok(Some(value));
                }
                Next::Exhausted => self.make_room_for_values(sequence)?,
            }
        }
    }

    /// Puts the sequence where it is told, for everybody and at once.
    pub fn set_value(&mut self, sequence: &Sequence, value: SequenceValue) -> Result<(), Stop> {
        if self.is_private(&sequence.state) {
            let mut state = sequence.state.lock();
            (state.value, state.is_changed) = (value, true);
            return Ok(());
        }
        self.log_value(sequence, |_| (value, value, 0))
    }

    fn is_private(&self, state: &Arc<SequenceState>) -> bool {
        self.ddl.sequences.iter().any(|(_, own)| Arc::ptr_eq(own, state))
    }

    #[cold]
    fn make_room_for_values(&mut self, sequence: &Sequence) -> Result<(), Stop> {
        self.log_value(sequence, |now| {
            let (limit, count) = now.ahead(&sequence.def, BATCH);
            (now, limit, count)
        })
    }

    /// Logs a limit in a transaction of its own. `change` gives, of where the sequence stands, where it is to stand, the limit, and how many values
    /// lie between.
    fn log_value(
        &mut self,
        sequence: &Sequence,
        change: impl Fn(SequenceValue) -> (SequenceValue, SequenceValue, i64),
    ) -> Result<(), Stop> {
        let core = self.core.clone();
        let mut other = Session::new(&core, None).ok_or(Error::TooManySessions)?;
        other.begin(Isolation::ReadCommitted, false);
        other.begin_statement();
        if !is_current(other.schema(), sequence) {
            // A new start was committed, or the sequence is gone: the caller is to look again.
            other.rollback();
            return Err(Stop::Wait(WaitToken::ready()));
        }
        let Some(at) = other.lock_object_unless_taken(sequence.id) else {
            other.rollback();
            drop(other);
            return Err(self.wait_for_object(sequence.id));
        };
        if !is_current(&core.schema.load(), sequence) {
            other.rollback();
            return Err(Stop::Wait(WaitToken::ready()));
        }
        // Held to the end: two who make room at once would each count on their own.
        let mut state = sequence.state.lock();
        if state.left > 0 && change(state.value).2 > 0 {
            drop(state);
            other.rollback();
            return Ok(());
        }
        let (value, limit, left) = change(state.value);
        let object = Object::Sequence { def: sequence.def.clone(), value: limit };
        let written = other.change_row(at, sequence.id, &object).and_then(|()| other.commit());
        match written {
            Ok(committed) => {
                (state.value, state.left, state.logged) = (value, left, committed.cts);
                drop(state);
                self.dependency = self.dependency.max(committed.cts);
                Ok(())
            }
            Err(stop) => {
                drop(state);
                if other.in_transaction() {
                    other.rollback();
                }
                Err(stop)
            }
        }
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
        self.lock_newest(&system, at, &mut Row::default())?;
        Ok(at)
    }

    /// `None`: another session has it.
    fn lock_object_unless_taken(&mut self, id: u32) -> Option<RowId> {
        let at = self.find_object_if_any(id)?;
        let system = self.core.system.clone();
        self.set_nowait(true);
        let locked = self.lock_newest(&system, at, &mut Row::default());
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
                self.wait_for_session(owner, is_in_the_way)
            }
            _ => Stop::Wait(WaitToken::ready()),
        }
    }
}

fn is_current(schema: &Schema, sequence: &Sequence) -> bool {
    schema.sequence_by_id(sequence.id).is_some_and(|s| Arc::ptr_eq(&s.state, &sequence.state))
}
