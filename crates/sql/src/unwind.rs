//! When does a panic end a statement, and not the process?
//!
//! A panic is a broken invariant. Where something is being changed, what is half done is in doubt: the process stops, and a restart recovers.
//! A query that only reads leaves nothing half done, so its statement ends with XX000:
//!
//! 1. It computes on copies of rows, in plans and batches of its own, which go as the panic passes. What it shares with others (its lease on
//!    the snapshot, its charge, a mutex around a cache) is held by guards that give it back, and is whole between any two steps.
//! 2. What an expression changes on the way (a sequence, an advisory lock, another session) is done within [`changing`].
//! 3. A panic of the engine's own code stops the process, whoever called: what all sessions share is in doubt then, latches included. SQL runs
//!    nothing while the engine holds a latch.
//! 4. Threads say that they only read ([`reading_thread`], [`reading`]). Those that commit, log, or apply what a query has found never do.

#[cfg(feature = "query")]
use crate::error::SqlError;
#[cfg(feature = "query")]
use std::any::Any;
use std::cell::Cell;
use std::panic::PanicHookInfo;
#[cfg(feature = "query")]
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static ONLY_READS: Cell<bool> = const { Cell::new(false) };
}

/// Puts back what the thread said before, also while a panic passes.
struct Said(bool);

impl Said {
    fn now(only_reads: bool) -> Said {
        Said(ONLY_READS.replace(only_reads))
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        ONLY_READS.set(self.0);
    }
}

/// This thread does nothing but read, and catches its panics.
#[cfg(feature = "query")]
pub(crate) fn reading_thread() {
    ONLY_READS.set(true);
}

/// Work that reads and changes nothing; XX000 if it panics.
#[cfg(feature = "query")]
pub(crate) fn reading<T>(work: impl FnOnce() -> Result<T, SqlError>) -> Result<T, SqlError> {
    let _said = Said::now(true);
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(error_of(panic.as_ref())))
}

/// What an expression changes, though its query only reads: a panic here stops the process.
pub(crate) fn changing<T>(work: impl FnOnce() -> T) -> T {
    let _said = Said::now(false);
    work()
}

/// What the client hears of a panic.
#[cfg(feature = "query")]
pub(crate) fn error_of(panic: &(dyn Any + Send)) -> SqlError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    SqlError::new("XX000", "the statement met an error of the server, whose log tells more")
        .with_detail(text.unwrap_or("a panic").to_owned())
}

/// Whether a panic ends the statement that it came up in, which catches it; otherwise the process is to stop. For the panic hook.
pub fn ends_statement(panic: &PanicHookInfo<'_>) -> bool {
    ONLY_READS.get() && panic.location().is_some_and(|location| !is_of_engine(location.file()))
}

fn is_of_engine(file: &str) -> bool {
    let folder = freshet_engine::SOURCE.strip_suffix("lib.rs").expect("invariant: it is the file of that name");
    file.starts_with(folder)
}

#[cfg(all(test, feature = "query"))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_where_nothing_is_changed() {
        let error = reading(|| -> Result<(), SqlError> {
            assert!(ONLY_READS.get());
            changing(|| assert!(!ONLY_READS.get()));
            panic!("invariant: {}", 7)
        });
        let error = error.expect_err("it panicked");
        assert_eq!((error.sqlstate, error.detail.as_deref()), ("XX000", Some("invariant: 7")));
        assert!(!ONLY_READS.get(), "what the thread said before holds again");
    }

    #[test]
    fn the_engine_is_told_by_its_files() {
        assert!(is_of_engine("crates/engine/src/index/btree.rs"));
        assert!(!is_of_engine(file!()));
        assert!(!is_of_engine("/root/.cargo/registry/src/index/datafusion-1/src/lib.rs"));
    }
}
