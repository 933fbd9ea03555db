//! Which advisory keys has a session locked? Of its transaction and of its own, for whoever evaluates its expressions.
//!
//! | keys | end with |
//! |---|---|
//! | of the transaction | it, or a savepoint of before |
//! | of the session | the session, or as many calls of `unlock` as of `lock`; a rollback leaves them |
//!
//! 1. What stands in a list is held in the lock table, and the other way about, once a wait is settled.
//! 2. A statement that waits is undone and runs again, and takes its session's keys again: what the first run counted is taken back. A key that
//!    nobody counts stays until the transaction's end, so that the second run finds it.

use super::claims::stop_of_asked;
use super::core::Core;
use super::locks::{AdvisoryKey, Asked, LockMode, Mode, Thing, Wish};
use super::session::Session;
use super::wait::WaitToken;
use super::{Error, Stop};
use crate::table::SessionNo;
use parking_lot::Mutex;
use std::sync::Arc;

/// Keys that one session may hold.
const KEYS_MAX: usize = 1 << 16;

/// What asking for a key came to.
#[derive(Debug)]
pub enum KeyTaken {
    Yes,
    /// Another has it, and the asker does not wait.
    No,
    /// Tell the session that it waits ([`Session::wait_for_key`]), and run the statement again.
    Wait(WaitToken),
}

/// A key that the session has locked.
struct Kept {
    key: AdvisoryKey,
    mode: Mode,
    /// Calls that took it.
    count: u64,
    /// Those of the statement that runs.
    of_statement: u64,
}

#[derive(Default)]
struct Inner {
    kept: Vec<Kept>,
    of_transaction: Vec<(AdvisoryKey, Mode)>,
    /// What is waited for: whether the session is to keep it.
    pending: Option<(AdvisoryKey, Mode, bool)>,
}

/// A session's advisory keys.
pub struct AdvisoryKeys {
    core: Arc<Core>,
    no: SessionNo,
    inner: Mutex<Inner>,
}

impl std::fmt::Debug for AdvisoryKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdvisoryKeys({})", self.no.0)
    }
}

fn mode_of(shared: bool) -> Mode {
    if shared { LockMode::Share } else { LockMode::Exclusive }.into()
}

impl AdvisoryKeys {
    /// Locks a key, until the transaction's end or, `kept`, until the session gives it back.
    pub fn lock(&self, key: AdvisoryKey, shared: bool, kept: bool, nowait: bool) -> Result<KeyTaken, Error> {
        let (mode, mut inner) = (mode_of(shared), self.inner.lock());
        if !kept && inner.of_transaction.contains(&(key, mode)) {
            return Ok(KeyTaken::Yes);
        }
        if inner.kept.len() + inner.of_transaction.len() >= KEYS_MAX {
            return Err(Error::TooManyLocks);
        }
        match self.core.locks.ask_advisory(self.no, key, Wish { mode, kept, nowait }) {
            Asked::Busy => return Ok(KeyTaken::No),
            Asked::Newly | Asked::Mine if kept => inner.count(key, mode),
            Asked::Newly | Asked::Mine => inner.of_transaction.push((key, mode)),
            asked => {
                inner.pending = Some((key, mode, kept));
                return match stop_of_asked(asked) {
                    Stop::Wait(token) => Ok(KeyTaken::Wait(token)),
                    Stop::Error(error) => Err(error),
                };
            }
        }
        Ok(KeyTaken::Yes)
    }

    /// Gives back what one call of `lock` took for the session; false if there is none.
    pub fn unlock(&self, key: AdvisoryKey, shared: bool) -> bool {
        let (mode, mut inner) = (mode_of(shared), self.inner.lock());
        let Some(at) = inner.kept.iter().position(|k| k.key == key && k.mode == mode && k.count > 0) else {
            return false;
        };
        let kept = &mut inner.kept[at];
        kept.count -= 1;
        kept.of_statement = kept.of_statement.saturating_sub(1);
        if kept.count == 0 {
            inner.kept.swap_remove(at);
            self.give_up(key, mode, true);
        }
        true
    }

    /// Gives back all keys of the session.
    pub fn unlock_all(&self) {
        for Kept { key, mode, .. } in self.inner.lock().kept.drain(..) {
            self.give_up(key, mode, true);
        }
    }

    fn give_up(&self, key: AdvisoryKey, mode: Mode, kept: bool) {
        self.core.locks.give_up(self.no, Thing::Advisory(key), mode, kept);
    }

    /// A statement begins.
    pub(super) fn start_statement(&self) {
        self.inner.lock().kept.iter_mut().for_each(|kept| kept.of_statement = 0);
    }

    /// The statement is undone and will run again.
    pub(super) fn undo_statement(&self) {
        for kept in &mut self.inner.lock().kept {
            kept.count -= std::mem::take(&mut kept.of_statement);
        }
    }

    /// The session no longer waits: takes note of what was granted meanwhile.
    pub(super) fn settle(&self) {
        let mut inner = self.inner.lock();
        let Some((key, mode, kept)) = inner.pending.take() else { return };
        if !self.core.locks.has(self.no, Thing::Advisory(key), mode, kept) {
            return;
        }
        match kept {
            true => inner.kept.push(Kept { key, mode, count: 0, of_statement: 0 }),
            false => inner.of_transaction.push((key, mode)),
        }
    }

    /// How many keys the transaction holds.
    pub(super) fn of_transaction(&self) -> usize {
        self.inner.lock().of_transaction.len()
    }

    /// Lets go of the transaction's keys since there were so many.
    pub(super) fn release_from(&self, count: usize) {
        let mut inner = self.inner.lock();
        while inner.of_transaction.len() > count {
            if let Some((key, mode)) = inner.of_transaction.pop() {
                self.give_up(key, mode, false);
            }
        }
    }

    /// Lets go of the transaction's keys, and of those that only a statement which never came to its end has asked for.
    pub(super) fn end_transaction(&self) {
        self.release_from(0);
        self.inner.lock().kept.retain(|kept| {
            if kept.count == 0 {
                self.give_up(kept.key, kept.mode, true);
            }
            kept.count > 0
        });
    }
}

impl Inner {
    fn count(&mut self, key: AdvisoryKey, mode: Mode) {
        match self.kept.iter_mut().find(|kept| kept.key == key && kept.mode == mode) {
            Some(kept) => {
                kept.count += 1;
                kept.of_statement += 1;
            }
            None => self.kept.push(Kept { key, mode, count: 1, of_statement: 1 }),
        }
    }
}

impl Session {
    /// The session's advisory keys, for whoever evaluates its expressions. While a statement of the session runs.
    pub fn advisory_keys(&mut self) -> Arc<AdvisoryKeys> {
        let (core, no) = (&self.core, self.no);
        let new = || Arc::new(AdvisoryKeys { core: core.clone(), no, inner: Mutex::default() });
        self.keys.get_or_insert_with(new).clone()
    }

    /// The statement waits for a key: [`KeyTaken::Wait`].
    pub fn wait_for_key(&mut self) {
        self.waiting = true;
    }
}
