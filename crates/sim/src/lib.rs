//! The real engine in a world that fails.
//!
//! One seed decides schedule, workload and faults; one thread runs everything: sessions, devices, garbage collection, checkpoints, recovery. A model
//! beside it knows every commit, every acknowledgement and every read.
//!
//! | module | question |
//! |---|---|
//! | [`dice`] | where does chance come from |
//! | [`plan`] | what will happen |
//! | `model` | what may the database say |
//! | `look` | does it say so |
//! | `client` | what do sessions do |
//! | `world` | what happens to files, devices and time |
//! | [`schedule`] | how does one seed run, and what was wrong |
//! | [`shrink`] | what is the shortest way to the same failure |
//! | [`hunt`] | does it bite |
//! | [`history`] | could what threads saw of each other have happened |
//! | [`stress`] | what do threads see of each other |
//!
//! What is checked:
//!
//! 1. Nothing acknowledged is lost: neither a commit whose wait ended, nor what an answer has shown, nor anything before them in commit order.
//! 2. What is recovered is a state that was committed, whole, and the last one of its epoch.
//! 3. A statement sees its snapshot and its transaction's own changes, by scan and through every index; so does a snapshot taken inside another's
//!    commit.
//! 4. An answer depends at least on what it shows.
//! 5. Unique keys are unique; locks exclude; timestamps grow in commit order.
//! 6. A flipped bit is refused, or hits nothing that a witness, a fence or an acknowledgement two epochs ago covers.
//! 7. A recovery with other threads gives the same rows in the same places.
//! 8. A database can always be opened after a power cut or a killed process, whatever happened before, recoveries cut short included.
//! 9. When all is quiet nothing is left over: no version, no index entry without its row.
//!
//! After FoundationDB's simulator (SIGMOD 2021) and TigerBeetle's VOPR.

pub mod dice;
pub mod plan;

mod model;
mod look;
mod client;
mod world;

pub mod history;
pub mod stress;

pub mod schedule;
pub mod shrink;

#[cfg(feature = "planted")]
pub mod hunt;
