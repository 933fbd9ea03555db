//! Which advisory keys has a session locked? Of its transaction and of its own, for whoever evaluates its expressions.
//!
//! | keys | end with |
//! |---|---|
//! | of the transaction | it, or a savepoint of before |
//! | of the session | the session, or as many calls of `unlock` as of `lock`; a rollback leaves them |
//!
//! 1. What stands in a list is held in the lock table, and the other way about, once a wait is settled.
//! 2. A statement that waits is undone and runs again, and takes its session's keys again: what the first run counted is taken back. A key that
//!    nobody counts stays until the transaction's end, so that the second run finds it. What the first run gave back is not given back again.

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
    /// What the statement that runs has given back of what was there before it; and what its earlier runs did, as far as this one has not done so.
    given_back: Vec<(AdvisoryKey, Mode)>,
    given_back_before: Vec<(AdvisoryKey, Mode)>,
    /// The statement was undone: the next one that begins is its next run.
    is_undone: bool,
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
        if let Some(at) = inner.given_back_before.iter().position(|&given| given == (key, mode)) {
            let given = inner.given_back_before.swap_remove(at);
            inner.given_back.push(given);
            return true;
        }
        let Some(at) = inner.kept.iter().position(|k| k.key == key && k.mode == mode && k.count > 0) else {
            return false;
        };
        let kept = &mut inner.kept[at];
        kept.count -= 1;
        let is_of_statement = kept.of_statement > 0;
        kept.of_statement -= u64::from(is_of_statement);
        if kept.count == 0 {
            inner.kept.swap_remove(at);
            self.give_up(key, mode, true);
        }
        if !is_of_statement {
            inner.given_back.push((key, mode));
        }
        true
    }

    /// Gives back all keys of the session, but for one that the statement has waited for and not come to yet.
    pub fn unlock_all(&self) {
        self.inner.lock().kept.retain(|kept| {
            if kept.count > 0 {
                self.give_up(kept.key, kept.mode, true);
            }
            kept.count == 0
        });
    }

    fn give_up(&self, key: AdvisoryKey, mode: Mode, kept: bool) {
        self.core.locks.give_up(self.no, Thing::Advisory(key), mode, kept);
    }

    /// A statement begins.
    pub(super) fn start_statement(&self) {
        let mut inner = self.inner.lock();
        inner.kept.iter_mut().for_each(|kept| kept.of_statement = 0);
        inner.given_back.clear();
        if !std::mem::take(&mut inner.is_undone) {
            inner.given_back_before.clear();
        }
    }

    /// The statement is undone and will run again.
    pub(super) fn undo_statement(&self) {
        let mut inner = self.inner.lock();
        for kept in &mut inner.kept {
            kept.count -= std::mem::take(&mut kept.of_statement);
        }
        let Inner { given_back, given_back_before, .. } = &mut *inner;
        given_back_before.append(given_back);
        inner.is_undone = true;
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
        inner.forget_undone();
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
    /// The statement that was undone does not run again.
    fn forget_undone(&mut self) {
        self.is_undone = false;
        self.given_back_before.clear();
    }

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
