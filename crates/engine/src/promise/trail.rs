//! How much log lies behind a given epoch? Readings of what was logged, evenly spaced, fewer as the way back gets longer.
//!
//! Invariants:
//!
//! 1. Readings ascend in epoch and in amounts; the first is at or below the log's start.
//! 2. At most [`MOST`] are kept: when there are more, every other one goes, and from then on only every other one is taken. So a gap is
//!    a small part of the whole way back.

use crate::ids::Epoch;
use std::collections::VecDeque;

const MOST: usize = 512;

/// Log bytes with headers and padding, and the deltas in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Logged {
    pub bytes: u64,
    pub deltas: u64,
}

impl Logged {
    fn since(self, before: Logged) -> Logged {
        Logged { bytes: self.bytes.saturating_sub(before.bytes), deltas: self.deltas.saturating_sub(before.deltas) }
    }
}

/// What was logged up to an epoch's end, counted from the log's start at the open.
#[derive(Clone, Copy, Debug)]
struct Reading {
    epoch: Epoch,
    total: Logged,
}

pub(super) struct Trail {
    readings: VecDeque<Reading>,
    /// What the log held when the database was opened.
    found: Logged,
    /// One reading of so many is taken.
    spacing: u32,
    passed: u32,
}

impl Trail {
    /// The log held `found` from `start` to `durable`.
    pub fn new(start: Epoch, durable: Epoch, found: Logged) -> Trail {
        let first = Reading { epoch: start, total: Logged::default() };
        let opened = Reading { epoch: durable.max(start), total: found };
        Trail { readings: VecDeque::from([first, opened]), found, spacing: 1, passed: 0 }
    }

    /// `logged` since the open, all of it in epochs up to `epoch`.
    pub fn note(&mut self, epoch: Epoch, logged: Logged) {
        let newest = self.readings.back().map_or(Epoch(0), |r| r.epoch);
        self.passed += 1;
        if epoch <= newest || self.passed < self.spacing {
            return;
        }
        self.passed = 0;
        self.readings.push_back(Reading { epoch, total: self.total(logged) });
        if self.readings.len() > MOST {
            self.spacing *= 2;
            let mut at = 0;
            self.readings.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    fn total(&self, logged: Logged) -> Logged {
        Logged { bytes: self.found.bytes + logged.bytes, deltas: self.found.deltas + logged.deltas }
    }

    /// What lies in the log from `start` on, when `logged` was written since the open. What lies below is forgotten.
    pub fn since(&mut self, start: Epoch, logged: Logged) -> Logged {
        while self.readings.get(1).is_some_and(|r| r.epoch < start) {
            self.readings.pop_front();
        }
        if self.readings.len() < MOST / 4 {
            self.spacing = (self.spacing / 2).max(1);
        }
        // The last reading below the start, or the log's start at the open, before which there is nothing.
        let before = self.readings.front().expect("invariant 1: there is a first reading");
        self.total(logged).since(before.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(n: u64) -> Logged {
        Logged { bytes: n * 100, deltas: n }
    }

    #[test]
    fn what_the_open_found_counts_until_a_checkpoint_leaves_it_behind() {
        let mut trail = Trail::new(Epoch(10), Epoch(20), logged(7));
        assert_eq!(trail.since(Epoch(10), logged(0)), logged(7));
        trail.note(Epoch(30), logged(5));
        trail.note(Epoch(40), logged(9));
        assert_eq!(trail.since(Epoch(10), logged(9)), logged(16));
        assert_eq!(trail.since(Epoch(31), logged(9)), logged(4));
        assert_eq!(trail.since(Epoch(41), logged(9)), logged(0));
    }

    #[test]
    fn a_long_life_keeps_few_readings_and_a_small_error() {
        let mut trail = Trail::new(Epoch(0), Epoch(0), Logged::default());
        for n in 1..=100_000u64 {
            trail.note(Epoch(n), logged(n));
        }
        assert!(trail.readings.len() <= MOST);
        let left = trail.since(Epoch(50_001), logged(100_000)).deltas;
        assert!((50_000..=51_000).contains(&left), "{left}");
    }
}
