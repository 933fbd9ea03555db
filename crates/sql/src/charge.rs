//! Who pays for what a statement holds? Results, sorts, groups and lists of targets, charged to the memory limit before they grow.
//!
//! What is small is free, because every session has paid for it when it connected: a point select meets no shared counter. What is larger
//! is charged in steps of a quarter.

use crate::error::SqlError;
use freshet_engine::engine::{Account, Claim, Engine, Kind};
use freshet_engine::txn::Error;

/// What the session has paid for.
const FREE_BYTES: u64 = 16 << 10;
const STEP_BYTES: u64 = 64 << 10;

/// The charge of one owner. A copy has none yet.
#[derive(Default, Debug)]
pub struct Charge {
    account: Option<Account>,
    held: u64,
    claim: Option<Claim>,
}

impl Clone for Charge {
    fn clone(&self) -> Charge {
        Charge { account: self.account.as_ref().map(Account::sibling), held: 0, claim: self.claim }
    }
}

impl Charge {
    /// For results and what leads to them; without an engine nothing is charged.
    pub fn of_query(engine: Option<&Engine>) -> Charge {
        Charge { account: engine.map(|e| e.account(Kind::Queries)), held: 0, claim: Some(Claim::Read) }
    }

    /// For what an update or a delete needs to end.
    pub fn of_change(engine: Option<&Engine>) -> Charge {
        Charge { account: engine.map(|e| e.account(Kind::Transactions)), held: 0, claim: Some(Claim::Finish) }
    }

    #[inline]
    pub fn is_known(&self) -> bool {
        self.account.is_some()
    }

    /// Holds at least `bytes` from now on.
    #[inline]
    pub fn reach(&mut self, bytes: u64) -> Result<(), SqlError> {
        if bytes <= self.held.max(FREE_BYTES) { Ok(()) } else { self.grow(bytes) }
    }

    #[cold]
    fn grow(&mut self, bytes: u64) -> Result<(), SqlError> {
        let (Some(account), Some(claim)) = (&self.account, self.claim) else {
            self.held = bytes;
            return Ok(());
        };
        let roomy = (bytes + bytes / 4).next_multiple_of(STEP_BYTES);
        for wanted in [roomy, bytes] {
            if account.hold(wanted, claim) {
                self.held = wanted;
                return Ok(());
            }
        }
        Err(Error::OutOfMemory("the statement's rows").into())
    }

    /// Holds `bytes` and no more, now that there are so many.
    pub fn settle(&mut self, bytes: u64) {
        self.held = if bytes <= FREE_BYTES { 0 } else { bytes.min(self.held) };
        if let Some(account) = &self.account {
            account.hold(self.held, Claim::Forced);
        }
    }
}

/// A vector that is charged before it grows; `beside` is what the owner holds apart from it.
pub fn room_for<T>(list: &mut Vec<T>, more: usize, beside: u64, charge: &mut Charge) -> Result<(), SqlError> {
    if list.capacity() - list.len() >= more {
        return Ok(());
    }
    let step =
        if list.capacity() * size_of::<T>() > STEP_BYTES as usize { list.capacity() / 2 } else { list.capacity() };
    let step = step.max(more).max(16);
    // While it moves, both are there.
    let both = (2 * list.capacity() + step) * size_of::<T>();
    charge.reach(both as u64 + beside)?;
    list.reserve_exact(step);
    Ok(())
}
