//! How does an embedded driver know what comes? As an event loop does, it finds several of its many sessions readable at a time: their operations are
//! known some ahead, so that what they want is on its way to the cache, and commits stay under way. Sessions depend on nobody's turn: of a group those that
//! look up come first, since a processor overlaps the misses of several look-ups side by side, and none across the fences of a change.

use super::{Answer, Completion};
use crate::error::BenchError;
use freshet_db::Ahead;
use std::collections::VecDeque;
use std::ops::Range;

/// Operations whose loads are asked for at a time: a processor that finds the pages of several lines side by side waits for each where an operation runs
/// in between. An event loop finds some such groups readable.
const GROUP: usize = 8;
/// Operations that are known before the oldest of them runs: a group whose rows were asked for, and one that can wait for its entries.
const KNOWN: usize = 2 * GROUP;

/// An operation that was submitted and has not run.
pub trait Request {
    fn is_look_up(&self) -> bool;
}

/// Such operations, the oldest group first: those whose rows are on their way, a group whose entries are, and those that come to be the
/// next one.
pub struct Known<T> {
    all: VecDeque<T>,
    /// The last ones, for which nothing was asked yet.
    fresh: usize,
    /// Those before them, of which only entries were.
    with_entry: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { all: VecDeque::new(), fresh: 0, with_entry: 0 }
    }
}

impl<T: Request> Known<T> {
    /// Whether a driver of so many sessions lets operations wait for others to be known. One of few runs each at once.
    pub fn is_for(sessions: usize) -> bool {
        sessions > 2 * KNOWN
    }

    /// One more. Another whose turn has come, if there is any.
    pub fn learn(&mut self, one: T, load: impl FnMut(&T, Ahead)) -> Option<T> {
        self.all.push_back(one);
        self.fresh += 1;
        if self.fresh == GROUP {
            self.load(load);
        }
        if self.all.len() > KNOWN { self.all.pop_front() } else { None }
    }

    /// Rows of those whose entries were asked for, and entries of those that are fresh.
    fn load(&mut self, mut load: impl FnMut(&T, Ahead)) {
        let fresh = self.all.len() - self.fresh;
        let with_entry = fresh - self.with_entry..fresh;
        self.all.range(with_entry.clone()).for_each(|one| load(one, Ahead::Row));
        self.all.range(fresh..).for_each(|one| load(one, Ahead::Entry));
        self.put_look_ups_first(with_entry);
        (self.with_entry, self.fresh) = (self.fresh, 0);
    }

    fn put_look_ups_first(&mut self, group: Range<usize>) {
        let mut first = group.start;
        for at in group {
            if self.all[at].is_look_up() {
                self.all.swap(at, first);
                first += 1;
            }
        }
    }

    /// For all that are known: their turn comes now.
    pub fn load_rest(&mut self, mut load: impl FnMut(&T, Ahead)) {
        self.load(&mut load);
        self.load(&mut load);
        self.with_entry = 0;
    }

    pub fn take_next(&mut self) -> Option<T> {
        self.all.pop_front()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    impl Request for usize {
        fn is_look_up(&self) -> bool {
            !self.is_multiple_of(3)
        }
    }

    /// What was done to an operation: its entry asked for, its row, run.
    fn check(done: &RefCell<Vec<Vec<char>>>, one: usize) {
        done.borrow_mut()[one].push('!');
        assert_eq!(done.borrow()[one], ['E', 'R', '!'], "operation {one}");
    }

    #[test]
    fn each_is_loaded_once_step_by_step_and_in_groups_before_it_runs() {
        for count in [1, GROUP - 1, GROUP, KNOWN, KNOWN + 1, 3 * GROUP + 3, 100] {
            let done = RefCell::new(vec![Vec::new(); count]);
            let load = |one: &usize, what| done.borrow_mut()[*one].push(if what == Ahead::Entry { 'E' } else { 'R' });
            let mut known = Known::default();
            let mut ran = Vec::new();
            for one in 0..count {
                let mut loads = 0;
                let next = known.learn(one, |one, what| {
                    loads += 1;
                    load(one, what);
                });
                assert!(loads == 0 || loads % GROUP == 0, "{loads} of {count}");
                assert_eq!(next.is_some(), one >= KNOWN);
                next.iter().for_each(|next| check(&done, *next));
                ran.extend(next);
            }
            known.load_rest(load);
            while let Some(next) = known.take_next() {
                check(&done, next);
                ran.push(next);
            }
            assert!(done.borrow().iter().all(|done| done.len() == 3));
            // Group after group, of each those that look up first.
            let in_turn: Vec<(usize, bool)> = ran.iter().map(|one| (one / GROUP, !one.is_look_up())).collect();
            assert!(in_turn.is_sorted(), "{in_turn:?}");
        }
    }
}
