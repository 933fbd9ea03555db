//! The engine: rows in, rows out, by id. No SQL text, no sockets, no Arrow, no runtime.
//!
//! Modules stand in reading order; each uses only what stands above it.

pub mod catalog;
pub mod engine;
pub mod ids;
pub mod io;
pub mod log;
pub mod mem;
pub mod schema;
pub mod txn;
