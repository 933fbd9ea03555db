//! What is a sequence's next value? Handed out from memory; the log is ahead by a batch.
//!
//! 1. A value is given out only below the limit that a commit of the system table's row names; who is given one depends on that commit.
//!    So a crash skips values and never repeats one that an acknowledged answer showed.
//! 2. Values are no transaction's: a rollback takes none back. A new start (ALTER SEQUENCE RESTART, TRUNCATE RESTART IDENTITY) is a transaction's:
//!    it makes another state, which its schema leads to.

use super::SequenceDef;
use crate::ids::Cts;
use parking_lot::Mutex;
use std::sync::Arc;

/// Values that one commit makes room for, as in PostgreSQL.
pub(crate) const BATCH: i64 = 32;

#[derive(Clone, Debug)]
pub struct Sequence {
    pub id: u32,
    pub def: SequenceDef,
    pub state: Arc<SequenceState>,
}

/// Where a sequence stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceValue {
    pub last: i64,
    /// False: `last` itself comes next.
    pub is_called: bool,
}

#[derive(Debug)]
pub struct SequenceState {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub value: SequenceValue,
    /// Values that may be given out before the next commit.
    pub left: i64,
    /// The commit that named the limit.
    pub logged: Cts,
    /// The state is of a transaction that has not committed: its own commit names what was given out.
    pub is_private: bool,
    pub is_changed: bool,
}

/// What asking for the next value gives.
pub(crate) enum Next {
    Value(i64, Cts),
    /// The batch is used up.
    Exhausted,
    /// The sequence's end, with NO CYCLE.
    End,
}

impl SequenceState {
    pub(crate) fn new(value: SequenceValue, is_private: bool) -> SequenceState {
        let inner = Inner { value, left: 0, logged: Cts::ZERO, is_private, is_changed: false };
        SequenceState { inner: Mutex::new(inner) }
    }

    /// Where it stands now.
    pub fn value(&self) -> SequenceValue {
        self.inner.lock().value
    }

    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    /// The next value, if there is room in the batch for one.
    pub fn next(&mut self, def: &SequenceDef) -> Next {
        let Some(value) = self.value.after(def) else { return Next::End };
        if self.left == 0 && !self.is_private {
            return Next::Exhausted;
        }
        self.left = (self.left - 1).max(0);
        self.value = SequenceValue { last: value, is_called: true };
        self.is_changed = true;
        Next::Value(value, self.logged)
    }
}

impl SequenceValue {
    /// The value that comes after this state.
    pub fn after(self, def: &SequenceDef) -> Option<i64> {
        if !self.is_called {
            return Some(self.last);
        }
        let next = self.last.checked_add(def.increment).filter(|next| (def.min..=def.max).contains(next));
        match next {
            Some(next) => Some(next),
            None if def.cycle => Some(if def.increment > 0 { def.min } else { def.max }),
            None => None,
        }
    }

    /// The state after so many more values, as far as there are any; and how many there are.
    pub fn ahead(self, def: &SequenceDef, count: i64) -> (SequenceValue, i64) {
        let (mut state, mut given) = (self, 0);
        while given < count {
            let Some(last) = state.after(def) else { break };
            state = SequenceValue { last, is_called: true };
            given += 1;
        }
        (state, given)
    }
}
