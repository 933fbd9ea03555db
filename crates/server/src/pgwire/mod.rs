//! How do PostgreSQL clients talk to us? The wire protocol, version 3.0 and 3.2, over pgwire's codec with a session loop
//! of our own: pgwire's handlers flush after each message, this loop writes once per readable burst.
//!
//! Bottom up: [`stream`] carries, [`frame`] reads, [`ahead`] looks ahead, [`reply`] writes, [`startup`] opens, [`registry`] knows the sessions, [`conversation`] is
//! the protocol without a socket, [`connection`] joins it to one.

pub mod ahead;
pub mod connection;
pub mod conversation;
pub mod frame;
pub mod registry;
pub mod reply;
pub mod startup;
pub mod stream;
