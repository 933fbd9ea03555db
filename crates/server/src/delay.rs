//! How long is a wrong password made to wait? Longer with each for the same user from the same address, up to a limit; nobody else waits with it.
//!
//! What waits is the next attempt, before its password is looked at: a guess costs its time whether it is right, wrong or given up, and whether
//! its answer is waited for or not. Another user's login from the address neither waits nor makes good.
//!
//! Bounded: so many users and addresses are remembered, the oldest are forgotten first; and so many attempts wait at the same time, of one user from one address and
//! of all together. Those beyond are dropped without an answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginDelay {
    /// After the first failure; each one more doubles it.
    pub first: Duration,
    pub max: Duration,
}

impl Default for LoginDelay {
    fn default() -> LoginDelay {
        LoginDelay { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// A user and address of whom nothing was heard for so long begin anew.
const FORGET: Duration = Duration::from_secs(600);
const PLACES_MAX: usize = 4096;
/// Attempts of one user from one address that wait at the same time: those of a program that tries again and again, and of who mistyped beside it.
const WAITING_OF_ONE: u32 = 8;
/// The same of all.
const WAITING_MAX: u32 = 256;

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    waiting: u32,
    last: Instant,
}

/// Whose failures are counted together: the addresses that one client can easily have many of count as one, of version 6 a /64; of the user's name,
/// which a client chooses, a number stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guesser {
    place: IpAddr,
    user: u64,
}

#[derive(Default)]
pub struct Failed {
    by_guesser: HashMap<Guesser, Failures>,
    names: RandomState,
    waiting: u32,
}

fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

impl Failed {
    pub fn guesser(&self, address: IpAddr, user: &str) -> Guesser {
        Guesser { place: place(address), user: self.names.hash_one(user) }
    }

    /// Notes a wrong password and gives how long its answer waits.
    pub fn note(&mut self, guesser: Guesser, delay: LoginDelay, now: Instant) -> Duration {
        self.make_room(now);
        let failures = self.by_guesser.entry(guesser).or_insert(Failures { count: 0, waiting: 0, last: now });
        if now.duration_since(failures.last) > FORGET {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        after(failures.count, delay)
    }

    /// The right password makes good.
    pub fn forget(&mut self, guesser: Guesser) {
        if let Some(failures) = self.by_guesser.get_mut(&guesser) {
            failures.count = 0;
            if failures.waiting == 0 {
                self.by_guesser.remove(&guesser);
            }
        }
    }

    /// How long the next password waits; `None`: too many wait.
    fn enter(&mut self, guesser: Guesser, delay: LoginDelay, now: Instant) -> Option<Duration> {
        let Some(failures) = self.by_guesser.get_mut(&guesser) else { return Some(Duration::ZERO) };
        if failures.count == 0 || now.duration_since(failures.last) > FORGET {
            return Some(Duration::ZERO);
        }
        if failures.waiting >= WAITING_OF_ONE || self.waiting >= WAITING_MAX {
            return None;
        }
        failures.waiting += 1;
        self.waiting += 1;
        Some(after(failures.count, delay))
    }

    fn leave(&mut self, guesser: Guesser) {
        self.waiting -= 1;
        if let Some(failures) = self.by_guesser.get_mut(&guesser) {
            failures.waiting = failures.waiting.saturating_sub(1);
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.by_guesser.len() < PLACES_MAX {
            return;
        }
        self.by_guesser.retain(|_, failures| now.duration_since(failures.last) <= FORGET);
        if self.by_guesser.len() >= PLACES_MAX
            && let Some((&oldest, _)) = self.by_guesser.iter().min_by_key(|(_, failures)| failures.last)
        {
            self.by_guesser.remove(&oldest);
        }
    }
}

fn after(failures: u32, delay: LoginDelay) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    delay.first.saturating_mul(1 << doublings).min(delay.max)
}

/// An attempt that waits; given up, it waits no more.
struct Waiting {
    failed: Rc<RefCell<Failed>>,
    guesser: Guesser,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.failed.borrow_mut().leave(self.guesser);
    }
}

/// Returns when the next password may be looked at; false: it is not to be, too many wait.
pub async fn turn(failed: &Rc<RefCell<Failed>>, guesser: Guesser, delay: LoginDelay) -> bool {
    let Some(wait) = failed.borrow_mut().enter(guesser, delay, Instant::now()) else { return false };
    if !wait.is_zero() {
        let _waiting = Waiting { failed: failed.clone(), guesser };
        tokio::time::sleep(wait).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guesser(failed: &Failed, address: &str, user: &str) -> Guesser {
        failed.guesser(address.parse().unwrap(), user)
    }

    #[test]
    fn each_failure_waits_longer_up_to_the_limit() {
        let mut failed = Failed::default();
        let delay = LoginDelay::default();
        let (bad, good) = (guesser(&failed, "10.0.0.1", "a"), guesser(&failed, "10.0.0.2", "a"));
        let own = guesser(&failed, "10.0.0.1", "b");
        let start = Instant::now();
        assert_eq!(failed.enter(bad, delay, start), Some(Duration::ZERO), "the first is looked at at once");
        let waits: Vec<u128> = (0..8).map(|_| failed.note(bad, delay, start).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        failed.forget(own);
        assert_eq!(failed.enter(bad, delay, start), Some(delay.max), "a login of one's own does not make good");
        assert_eq!(failed.enter(own, delay, start), Some(Duration::ZERO), "another user does not wait with it");
        assert_eq!(failed.enter(good, delay, start), Some(Duration::ZERO), "another address neither");
        assert_eq!(failed.note(good, delay, start).as_millis(), 100);
        failed.forget(bad);
        assert_eq!(failed.note(bad, delay, start).as_millis(), 100);
        let later = start + FORGET + Duration::from_secs(1);
        assert_eq!(failed.enter(bad, delay, later), Some(Duration::ZERO), "forgotten in the end");
        assert_eq!(failed.note(bad, delay, later).as_millis(), 100);
    }

    #[test]
    fn who_waits_is_bounded() {
        let mut failed = Failed::default();
        let (delay, now) = (LoginDelay::default(), Instant::now());
        let all: Vec<Guesser> = (0..100).map(|user| guesser(&failed, "10.0.0.1", &user.to_string())).collect();
        for &each in &all {
            failed.note(each, delay, now);
        }
        let entered = |failed: &mut Failed, each| failed.enter(each, delay, now).is_some();
        let first = (0..20).filter(|_| entered(&mut failed, all[0])).count();
        assert_eq!(first, WAITING_OF_ONE as usize);
        failed.leave(all[0]);
        assert!(entered(&mut failed, all[0]), "one has left");
        let more = all[1..].iter().flat_map(|each| [each; 8]).filter(|each| entered(&mut failed, **each)).count();
        assert_eq!(first + more, WAITING_MAX as usize);
        failed.forget(all[0]);
        for _ in 0..first {
            failed.leave(all[0]);
        }
        assert_eq!(failed.waiting, WAITING_MAX - first as u32);
    }

    #[test]
    fn memory_is_bounded() {
        let mut failed = Failed::default();
        let start = Instant::now();
        for i in 0..3 * PLACES_MAX as u32 {
            let each = failed.guesser(IpAddr::V4(i.into()), "a");
            failed.note(each, LoginDelay::default(), start + Duration::from_millis(i.into()));
        }
        assert!(failed.by_guesser.len() <= PLACES_MAX);
        let six = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(place(six("2001:db8::1")), place(six("2001:db8::ffff:1")));
        assert_ne!(place(six("2001:db8:0:1::1")), place(six("2001:db8:0:2::1")));
    }
}
