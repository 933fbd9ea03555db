//! How long is a wrong password made to wait? Longer with each from the same address, up to a limit; nobody else waits with it.
//!
//! Bounded: so many addresses are remembered, the oldest are forgotten first; and so many connections wait at the same time, those beyond are
//! dropped without an answer.

use std::collections::HashMap;
use std::net::IpAddr;
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

/// An address from which nothing was heard for so long begins anew.
const FORGET: Duration = Duration::from_secs(600);
const ADDRESSES_MAX: usize = 4096;

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

#[derive(Default)]
pub struct Failed {
    by_address: HashMap<IpAddr, Failures>,
}

/// The addresses that one client can easily have many of count as one: of version 6 a /64.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

impl Failed {
    /// Notes a failure and gives how long its answer waits.
    pub fn note(&mut self, address: IpAddr, delay: LoginDelay, now: Instant) -> Duration {
        self.make_room(now);
        let failures = self.by_address.entry(place(address)).or_insert(Failures { count: 0, last: now });
        if now.duration_since(failures.last) > FORGET {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        let doublings = failures.count.saturating_sub(1).min(20);
        delay.first.saturating_mul(1 << doublings).min(delay.max)
    }

    /// The right password makes good.
    pub fn forget(&mut self, address: IpAddr) {
        self.by_address.remove(&place(address));
    }

    fn make_room(&mut self, now: Instant) {
        if self.by_address.len() < ADDRESSES_MAX {
            return;
        }
        self.by_address.retain(|_, failures| now.duration_since(failures.last) <= FORGET);
        if self.by_address.len() >= ADDRESSES_MAX
            && let Some((&oldest, _)) = self.by_address.iter().min_by_key(|(_, failures)| failures.last)
        {
            self.by_address.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_longer_up_to_the_limit() {
        let mut failed = Failed::default();
        let delay = LoginDelay::default();
        let (bad, good): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let start = Instant::now();
        let waits: Vec<u128> = (0..8).map(|_| failed.note(bad, delay, start).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(failed.note(good, delay, start).as_millis(), 100, "others do not wait with it");
        failed.forget(bad);
        assert_eq!(failed.note(bad, delay, start).as_millis(), 100);
        let later = start + FORGET + Duration::from_secs(1);
        assert_eq!(failed.note(bad, delay, later).as_millis(), 100, "forgotten in the end");
    }

    #[test]
    fn memory_is_bounded() {
        let mut failed = Failed::default();
        let start = Instant::now();
        for i in 0..3 * ADDRESSES_MAX as u32 {
            failed.note(IpAddr::V4(i.into()), LoginDelay::default(), start + Duration::from_millis(i.into()));
        }
        assert!(failed.by_address.len() <= ADDRESSES_MAX);
        let six = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(place(six("2001:db8::1")), place(six("2001:db8::ffff:1")));
        assert_ne!(place(six("2001:db8:0:1::1")), place(six("2001:db8:0:2::1")));
    }
}
