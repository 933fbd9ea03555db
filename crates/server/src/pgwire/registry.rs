//! Who is connected? Sessions by their cancel key, and the way to reach one from another thread.
//!
//! Invariants:
//! 1. There are never more members than the limit, and the last places are the superusers': when an application has taken all others, somebody
//!    can still come and see to it.
//! 2. A member leaves when its [`Membership`] is dropped, however its session ends.
//! 3. Only who knows the secret can cancel.

use freshet_db::SqlError;
use futures::task::AtomicWaker;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// What others ask of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// End the statement that waits.
    Cancel,
    /// End the session: the server stops.
    Terminate,
    /// End the session once it has no transaction open: the server is going to stop.
    Leave,
    /// Tell the client what was said on its channels.
    Hear,
}

impl Request {
    fn bit(self) -> u8 {
        match self {
            Request::Cancel => 1,
            Request::Terminate => 2,
            Request::Leave => 4,
            Request::Hear => 8,
        }
    }
}

/// Requests to one session, and what wakes it.
#[derive(Default)]
pub struct Signal {
    requests: AtomicU8,
    waker: AtomicWaker,
}

impl Signal {
    pub fn send(&self, request: Request) {
        self.requests.fetch_or(request.bit(), Ordering::Release);
        self.waker.wake();
    }

    /// Wakes `waker` at the next request. Register, then look.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub fn is_set(&self, request: Request) -> bool {
        self.requests.load(Ordering::Acquire) & request.bit() != 0
    }

    /// Takes a request back, once served or stale.
    pub fn clear(&self, request: Request) {
        if self.is_set(request) {
            self.requests.fetch_and(!request.bit(), Ordering::AcqRel);
        }
    }
}

/// What a client quotes to cancel its session's statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelKey {
    pub pid: i32,
    pub secret: i32,
}

struct Member {
    secret: i32,
    signal: Arc<Signal>,
}

struct Members {
    by_pid: HashMap<i32, Member>,
    last_pid: i32,
    stopping: bool,
    /// Those who are here end what they have begun, and nobody comes.
    leaving: bool,
}

pub struct Registry {
    members: Mutex<Members>,
    members_max: usize,
    /// Of these, for superusers.
    reserved: usize,
    /// Keyed at random by the operating system: its hashes are secrets that nobody can compute.
    secrets: RandomState,
}

/// A session's place.
pub struct Membership {
    registry: Arc<Registry>,
    pub key: CancelKey,
    pub signal: Arc<Signal>,
}

impl Registry {
    pub fn new(members_max: usize, reserved: usize) -> Arc<Registry> {
        Arc::new(Registry {
            members: Mutex::new(Members { by_pid: HashMap::new(), last_pid: 0, stopping: false, leaving: false }),
            members_max,
            reserved,
            secrets: RandomState::new(),
        })
    }

    pub fn join(self: &Arc<Registry>, is_superuser: bool) -> Result<Membership, SqlError> {
        let mut members = self.lock();
        if members.stopping {
            return Err(stopping());
        }
        if members.leaving {
            return Err(SqlError::new("57P03", "the database system is shutting down"));
        }
        if members.by_pid.len() >= self.members_max {
            return Err(SqlError::new("53300", "sorry, too many clients already"));
        }
        if !is_superuser && members.by_pid.len() + self.reserved >= self.members_max {
            let message = "remaining connection slots are reserved for non-replication superuser connections";
            return Err(SqlError::new("53300", message));
        }
        let pid = members.next_pid();
        let key = CancelKey { pid, secret: self.secrets.hash_one(pid) as i32 };
        let signal = Arc::new(Signal::default());
        let member = Member { secret: key.secret, signal: signal.clone() };
        members.by_pid.insert(pid, member);
        Ok(Membership { registry: self.clone(), key, signal })
    }

    /// As in PostgreSQL, a key that is wrong gets no answer either.
    pub fn cancel(&self, key: CancelKey) {
        if let Some(member) = self.lock().by_pid.get(&key.pid)
            && member.secret == key.secret
        {
            member.signal.send(Request::Cancel);
        }
    }

    /// Ends all sessions and lets no new one in.
    pub fn stop(&self) {
        let mut members = self.lock();
        members.stopping = true;
        for member in members.by_pid.values() {
            member.signal.send(Request::Terminate);
        }
    }

    /// Asks all sessions to end as soon as they have no transaction open, and lets no new one in.
    pub fn leave(&self) {
        let mut members = self.lock();
        members.leaving = true;
        for member in members.by_pid.values() {
            member.signal.send(Request::Leave);
        }
    }

    pub fn is_leaving(&self) -> bool {
        let members = self.lock();
        members.leaving || members.stopping
    }

    pub fn members_max(&self) -> usize {
        self.members_max
    }

    pub fn count(&self) -> usize {
        self.lock().by_pid.len()
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // Every step under the lock leaves the map whole.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Positive and not in use.
    fn next_pid(&mut self) -> i32 {
        loop {
            self.last_pid = self.last_pid.checked_add(1).unwrap_or(1);
            if !self.by_pid.contains_key(&self.last_pid) {
                return self.last_pid;
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.registry.lock().by_pid.remove(&self.key.pid);
    }
}

/// What a session is told when the server stops.
pub fn stopping() -> SqlError {
    SqlError::new("57P01", "terminating connection due to administrator command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let registry = Registry::new(2, 0);
        let first = registry.join(false).unwrap();
        let second = registry.join(false).unwrap();
        assert_ne!(first.key.pid, second.key.pid);
        assert_eq!(registry.join(false).err().unwrap().sqlstate, "53300");
        drop(first);
        assert_eq!(registry.count(), 1);
        assert!(registry.join(false).is_ok());
    }

    #[test]
    fn the_last_places_are_the_superusers() {
        let registry = Registry::new(3, 2);
        let _first = registry.join(false).unwrap();
        let refused = registry.join(false).err().unwrap();
        assert_eq!(refused.sqlstate, "53300");
        assert!(refused.message.contains("reserved"), "{}", refused.message);
        let _places = [registry.join(true).unwrap(), registry.join(true).unwrap()];
        assert_eq!(registry.join(true).err().unwrap().message, "sorry, too many clients already");
    }

    #[test]
    fn only_the_secret_cancels() {
        let registry = Registry::new(2, 0);
        let member = registry.join(false).unwrap();
        registry.cancel(CancelKey { secret: member.key.secret.wrapping_add(1), ..member.key });
        assert!(!member.signal.is_set(Request::Cancel));
        registry.cancel(member.key);
        assert!(member.signal.is_set(Request::Cancel));
        member.signal.clear(Request::Cancel);
        assert!(!member.signal.is_set(Request::Cancel));
        registry.leave();
        assert!(member.signal.is_set(Request::Leave) && !member.signal.is_set(Request::Terminate));
        assert_eq!(registry.join(false).err().unwrap().sqlstate, "57P03");
        registry.stop();
        assert!(member.signal.is_set(Request::Terminate));
        assert_eq!(registry.join(false).err().unwrap().sqlstate, "57P01");
    }
}
