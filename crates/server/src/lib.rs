//! Freshet's server: the PostgreSQL protocol over an embedded database, its configuration, and the `freshet` command.
//!
//! Modules stand in reading order; each uses only what stands above it.

#![forbid(unsafe_code)]

pub mod pgwire;

pub mod listener;

pub mod config;

pub mod serve;
