//! How do PostgreSQL clients talk to us? The wire protocol, version 3.0 and 3.2, over pgwire's codec with a session loop
//! of our own: pgwire's handlers flush after each message, this loop writes once per readable burst.
//!
//! Bottom up: [`frame`] reads, [`ahead`] looks ahead, [`reply`] writes, [`startup`] opens, [`scram`] asks for the password, [`stream`] is in clear
//! or TLS, [`registry`] knows the sessions, [`long`] bounds long statements, which run on [`threads`], [`conversation`] is the protocol without a socket, [`connection`] joins
//! it to one, [`turn`] lets bytes of many travel together where [`choice`] finds that it gains, [`warm`] has a session's memory at hand when its turn
//! comes, [`keepalive`] sets the socket up.

pub mod ahead;
pub mod choice;
pub mod connection;
pub mod conversation;
pub mod frame;
pub mod keepalive;
pub mod long;
pub mod registry;
pub mod reply;
pub mod scram;
pub mod startup;
pub mod stream;
pub mod threads;
pub mod turn;
pub mod warm;
