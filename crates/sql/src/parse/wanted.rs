//! Does anybody still want the text that this thread reads? A text of megabytes takes seconds to read and to plan: whoever cancels its statement, or has
//! given it a time, is not to wait for that.
//!
//! 1. Who begins to read a long text says so ([`while_wanted`]); the grammar and the binder look on their way, at each expression.
//! 2. Once it is not wanted it stays so until its reading ends: what tries another way after an error is refused again, and what comes of it in the
//!    end, whatever it be, is the one error 57014.
//! 3. A short text asks nobody: a thread that reads none that is long pays one look at its own memory for each expression.

use crate::error::SqlError;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A shorter text is read in a few milliseconds.
const LONG_TEXT_BYTES: usize = 16 << 10;

/// Expressions between two looks at the flag and the clock: some ten microseconds.
const EXPRESSIONS_PER_LOOK: u32 = 64;

#[derive(Clone)]
struct Reading {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

thread_local! {
    static READING: RefCell<Option<Reading>> = const { RefCell::new(None) };
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    static UNWANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Puts back what was read before, also while a panic passes.
struct Before(Option<Reading>, Option<&'static str>);

impl Drop for Before {
    fn drop(&mut self) {
        READING.set(self.0.take());
        UNWANTED.set(self.1);
    }
}

/// Whether a text of so many bytes takes so long to read that somebody may not want it any more.
pub fn is_long(bytes: usize) -> bool {
    bytes >= LONG_TEXT_BYTES
}

/// Reads a long text, which is wanted until the flag is set or the time is over.
pub fn while_wanted<T>(
    cancelled: &Arc<AtomicBool>,
    deadline: Option<Instant>,
    read: impl FnOnce() -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let reading = Reading { cancelled: cancelled.clone(), deadline };
    let _before = Before(READING.replace(Some(reading)), UNWANTED.replace(None));
    let read = read();
    match UNWANTED.get() {
        None => read,
        Some(message) => {
            cancelled.store(false, Ordering::Relaxed);
            Err(ended(message))
        }
    }
}

fn ended(message: &'static str) -> SqlError {
    SqlError::new("57014", message)
}

/// Called for each expression: 57014 if nobody wants the text any more.
#[inline]
pub fn check() -> Result<(), SqlError> {
    let looks = LOOKS.get().wrapping_add(1);
    LOOKS.set(looks);
    if looks.is_multiple_of(EXPRESSIONS_PER_LOOK) {
        look();
    }
    UNWANTED.get().map_or(Ok(()), |message| Err(ended(message)))
}

#[cold]
fn look() {
    READING.with_borrow(|reading| {
        let Some(Reading { cancelled, deadline }) = reading else { return };
        if cancelled.load(Ordering::Relaxed) {
            UNWANTED.set(Some("canceling statement due to user request"));
        } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            UNWANTED.set(Some("canceling statement due to statement timeout"));
        }
    });
}
