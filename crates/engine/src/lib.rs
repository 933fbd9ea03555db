//! The engine: rows in, rows out, by id. No SQL text, no sockets, no Arrow, no runtime.
//!
//! Modules stand in reading order; each uses only what stands above it.

pub mod ids;
pub mod io;
pub mod log;
