//! How does an embedded driver know what comes? As an event loop does, it finds several of its many sessions readable at a time: their operations are
//! known some ahead, so that what they want is on its way to the cache, and commits stay under way.

use super::{Answer, Completion};
use crate::error::BenchError;
use std::collections::VecDeque;

/// Operations that are known before the oldest of them runs, and those of them whose row is on its way: what an event loop finds readable at a time.
const KNOWN: usize = 16;
const NEAR: usize = 8;

/// Operations that were submitted and have not run, oldest first.
pub struct Known<T>(VecDeque<T>);

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known(VecDeque::new())
    }
}

impl<T> Known<T> {
    /// Whether a driver of so many sessions lets operations wait for others to be known. One of few runs each at once.
    pub fn is_for(sessions: usize) -> bool {
        sessions > 2 * KNOWN
    }

    /// One more, whose entry is on its way; `load_row` is for the one that is near by now. The oldest, if its turn has come.
    pub fn learn(&mut self, one: T, load_row: impl FnOnce(&T)) -> Option<T> {
        self.0.push_back(one);
        if let Some(near) = self.0.len().checked_sub(1 + NEAR) {
            load_row(&self.0[near]);
        }
        if self.0.len() > KNOWN { self.0.pop_front() } else { None }
    }

    /// `load_row` for those that were not near yet.
    pub fn load_rest(&self, load_row: impl FnMut(&T)) {
        self.0.iter().skip(self.0.len().saturating_sub(NEAR)).for_each(load_row);
    }

    pub fn take_oldest(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

/// What sessions are told next: of commits on their way to the devices, `D` says when, and of what waits for no device.
pub struct Pending<D> {
    /// In order of commit: oldest first.
    flying: VecDeque<(D, Completion)>,
    answered: Vec<Completion>,
}

impl<D> Default for Pending<D> {
    fn default() -> Pending<D> {
        Pending { flying: VecDeque::new(), answered: Vec::new() }
    }
}

impl<D: Copy> Pending<D> {
    pub fn committed(&mut self, when: D, session: usize, answer: Answer) {
        self.flying.push_back((when, Completion { session, answer }));
    }

    pub fn answered(&mut self, session: usize, answer: Answer) {
        self.answered.push(Completion { session, answer });
    }

    /// [`super::Driver::completions`].
    pub fn take(
        &mut self,
        wait: bool,
        done: &mut Vec<Completion>,
        is_durable: impl Fn(D) -> bool,
        until_durable: impl FnOnce(D) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let before = done.len();
        done.append(&mut self.answered);
        self.take_durable(done, &is_durable);
        if let (true, true, Some(&(oldest, _))) = (wait, done.len() == before, self.flying.front()) {
            until_durable(oldest)?;
            self.take_durable(done, &is_durable);
        }
        Ok(())
    }

    fn take_durable(&mut self, done: &mut Vec<Completion>, is_durable: impl Fn(D) -> bool) {
        while let Some((_, completion)) = self.flying.pop_front_if(|(when, _)| is_durable(*when)) {
            done.push(completion);
        }
    }
}
