//! Where is what a turn of somebody's work touches? In lines that it notes as it goes on, so that the next turn can ask for all of them at once.
//!
//! A line that is noted is only an address: what was there may be gone, and loading it does no harm.

use super::prefetch::prefetch_address;
use std::cell::{Cell, RefCell};

/// A select by key through the server touches 67.
const LINES_MAX: usize = 78;

const LINE_BYTES: usize = 64;

/// Lines, each once, as they were noted. Where its owner is: a list elsewhere would be a line to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    count: usize,
    lines: [usize; LINES_MAX],
}

impl Touched {
    pub const NONE: Touched = Touched { count: 0, lines: [0; LINES_MAX] };

    /// Addresses, each the first of a line.
    pub fn lines(&self) -> &[usize] {
        &self.lines[..self.count]
    }

    /// Notes the lines of so many bytes, as far as there is room.
    pub fn add(&mut self, address: usize, bytes: usize) {
        let lines = address / LINE_BYTES..=(address + bytes.max(1) - 1) / LINE_BYTES;
        for line in lines.map(|line| line * LINE_BYTES) {
            if self.count < LINES_MAX && !self.lines().contains(&line) {
                self.lines[self.count] = line;
                self.count += 1;
            }
        }
    }

    /// Starts loading them all.
    pub fn load(&self) {
        self.lines().iter().for_each(|&line| prefetch_address(line));
    }
}

thread_local! {
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<Touched> = const { RefCell::new(Touched::NONE) };
}

/// Does a turn whose touches are noted, after those in `first`. `None`: it noted nothing.
pub fn noting<R>(first: Touched, turn: impl FnOnce() -> R) -> (R, Option<Touched>) {
    NOTED.set(first);
    IS_NOTING.set(true);
    let done = turn();
    IS_NOTING.set(false);
    let noted = NOTED.with_borrow(|noted| (noted.count > first.count).then_some(*noted));
    (done, noted)
}

/// Whether touches are noted on this thread just now.
pub fn is_noting() -> bool {
    IS_NOTING.get()
}

/// Notes the lines of a value.
pub fn note<T: ?Sized>(value: &T) {
    note_bytes(std::ptr::from_ref(value).addr(), size_of_val(value));
}

/// Notes the line in which a value begins, or a buffer that may have none yet.
pub fn note_start<T: ?Sized>(value: &T) {
    note_bytes(std::ptr::from_ref(value).addr(), 1);
}

/// Notes the lines of so many bytes from there on.
pub fn note_bytes(address: usize, bytes: usize) {
    if is_noting() {
        NOTED.with_borrow_mut(|noted| noted.add(address, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_lines_than_fit_and_each_is_once() {
        let mut touched = Touched::NONE;
        touched.add(64, 1);
        touched.add(70, 58);
        assert_eq!(touched.lines(), [64]);
        touched.add(0, 1 << 20);
        assert_eq!(touched.count, LINES_MAX);
        touched.load();
    }

    #[test]
    fn a_turn_that_notes_nothing_has_none_and_nothing_is_noted_outside() {
        let value = [0u8; 300];
        let mut first = Touched::NONE;
        first.add(64, 1);
        note(&value);
        assert!(noting(first, || assert!(is_noting())).1.is_none());
        assert!(!is_noting());
        let ((), touched) = noting(first, || note(&value));
        let (touched, address) = (touched.expect("it was noted"), value.as_ptr().addr());
        assert_eq!(touched.lines()[0], 64);
        assert!(touched.lines().contains(&((address + 299) / LINE_BYTES * LINE_BYTES)));
        let ((), touched) = noting(first, || note_start(&value));
        assert_eq!(touched.expect("it was noted").lines()[1..], [address / LINE_BYTES * LINE_BYTES]);
    }
}
