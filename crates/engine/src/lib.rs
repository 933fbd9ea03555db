//! The engine: rows in, rows out, by id. No SQL text, no sockets, no Arrow, no runtime.
//!
//! Modules stand in reading order, bottom first; each uses only what stands above it. `tests/layering.rs` checks it.
//!
//! | module | question |
//! |---|---|
//! | [`ids`] | what are things called |
//! | [`sync`] | with what do threads meet |
//! | [`planted`] | does the simulator bite |
//! | [`io`] | how are files and time reached |
//! | `crew` | who does work that is many pieces |
//! | `mem` | where do bytes live |
//! | [`index`] | which rows may have this key |
//! | [`log`] | how does a commit become durable |
//! | [`schema`] | what does a record look like |
//! | `table` | where do a table's rows live |
//! | [`catalog`] | which tables and indexes are there |
//! | [`txn`] | what is a transaction |
//! | `checkpoint` | what replaces the log |
//! | `replay` | how does memory come back |
//! | [`inspect`] | is a database whole |
//! | [`promise`] | how long would a restart take |
//! | [`engine`] | how does it stand together |
//! | [`salvage`] | what can be saved of a damaged database |
//!
//! Under `--cfg loom` and `--cfg shuttle` only what the model checkers run is compiled.

/// Where this file is: the engine's own code is what is beside and below it.
pub const SOURCE: &str = file!();

pub mod ids;
pub mod sync;
pub mod planted;

#[cfg(not(any(loom, shuttle)))]
pub mod io;
#[cfg(not(any(loom, shuttle)))]
mod crew;
pub mod mem;

pub mod index;

#[cfg(not(any(loom, shuttle)))]
pub mod log;
/// Of the log the checkers run the clock, the buffers and the lists of who waits.
#[cfg(all(test, any(loom, shuttle)))]
#[path = "log/epoch.rs"]
mod epoch;
#[cfg(all(test, loom))]
#[path = "log/buffers.rs"]
mod buffers;
#[cfg(all(test, any(loom, shuttle)))]
#[path = "log/waiters.rs"]
mod waiters;
#[cfg(all(test, shuttle))]
#[path = "log/parking.rs"]
mod parking;
#[cfg(all(test, shuttle))]
#[path = "log/attendance.rs"]
mod attendance;
/// Of recovery, the latch of a page.
#[cfg(all(test, loom))]
#[path = "replay/latch.rs"]
mod page_latch;
/// Of tables and transactions the checkers run slots, the lock table, the chains of versions, and what SERIALIZABLE transactions are told by.
#[cfg(all(test, loom))]
mod schema {
    pub const LIVE: u64 = 1;
}
#[cfg(all(test, loom))]
mod table {
    mod slot;
    pub(crate) use slot::{Head, Latched, Owned, SessionNo, Slot};
}
#[cfg(all(test, loom))]
mod catalog {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub struct TableId(pub u32);
}
#[cfg(all(test, loom))]
mod txn {
    #[expect(dead_code, reason = "of the lock table the checkers run rows only")]
    mod locks;
    mod noted;
    mod version;
    mod wait {
        use crate::sync::atomic::{AtomicBool, Ordering::*};

        #[derive(Default)]
        pub struct Signal(AtomicBool);

        impl Signal {
            pub fn tell(&self) {
                self.0.store(true, Release);
            }

            pub fn is_told(&self) -> bool {
                self.0.load(Acquire)
            }
        }
    }
    mod record {
        pub type Changed = (u16, u64);
    }
}
#[cfg(not(any(loom, shuttle)))]
pub mod schema;
#[cfg(not(any(loom, shuttle)))]
mod table;
#[cfg(not(any(loom, shuttle)))]
pub mod catalog;
#[cfg(not(any(loom, shuttle)))]
pub mod txn;
#[cfg(not(any(loom, shuttle)))]
mod checkpoint;
#[cfg(not(any(loom, shuttle)))]
mod replay;
#[cfg(not(any(loom, shuttle)))]
pub mod inspect;
#[cfg(not(any(loom, shuttle)))]
pub mod promise;
#[cfg(not(any(loom, shuttle)))]
pub mod engine;
#[cfg(not(any(loom, shuttle)))]
pub mod salvage;
