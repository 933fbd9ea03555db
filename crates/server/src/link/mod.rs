//! How do many sessions share one connection? The framed link between `freshet ship` and the server: both ends of it.
//!
//! ```text
//! sessions' tasks:   Pipe   Pipe   Pipe          each is one session's end of the link
//!                      \     |     /
//! mux:              credits, what waits to leave, what has come
//!                            |
//! driver:               one socket               one read, one write per turn
//! ```
//!
//! The link carries bytes and does not look into them: startup, authentication, cancel requests, statements and answers of a session are what
//! they are on a connection of its own. `docs/internals/ship.md` has the frames, byte by byte, and what may go wrong.
//!
//! Invariants:
//! 1. Bytes of one session come out in the order in which they went in, and in no other session.
//! 2. Of a session there are at most [`frame::WINDOW_BYTES`] under way in one direction, those that its reader has not taken included: a
//!    reader that does not read costs that much, and holds up nobody else.
//! 3. A driver reads whatever its sessions do: only a peer that does not read itself is not read.
//! 4. What all sessions wrote in one turn leaves in one write.
//! 5. When the link ends, for whatever reason, every session on it ends as if its own connection had.
//! 6. A frame that breaks a rule ends the link; no length in it is believed before it was checked against a limit.
//!
//! Bottom up: [`frame`] is the wire format, [`mux`] the bookkeeping of one end, [`driver`] joins it to a socket, [`host`] is the server's end.

pub mod driver;
pub mod frame;
pub mod host;
pub mod mux;
