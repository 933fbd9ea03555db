//! How do many clients of one host reach the server as one? `freshet ship`: ordinary PostgreSQL clients on one side, links on the other.
//!
//! ```text
//! client ─┐                 ┌─ link ─▶ worker of the server
//! client ─┼─▶ multiplexer ──┤
//! client ─┘                 └─ link ─▶ another worker
//! ```
//!
//! A client's bytes are carried as they are, both ways: what it says at the start, its password's proof, its cancel requests and its
//! statements mean on a link what they mean on a connection of its own (after P*TIME's transaction group shipping, VLDB 2004).
//!
//! Invariants:
//! 1. A client has one session of the server, from its first byte to its last, on one link.
//! 2. What is there is sent at once; only while a group is under way the next one gathers. There is no timer that a request could wait for.
//! 3. A client that does not read costs its window, here and at the server.
//! 4. When a link ends its clients' connections close, as when a server dies; the next client makes a new link.
//! 5. Only this host's clients are served: to the server they all come from here.
//!
//! Bottom up: [`tls`] keeps a link from others' eyes, [`links`] reaches the server, [`carry`] joins a client to its session, [`multiplexer`]
//! accepts clients, [`command`] is the program.

mod carry;
pub mod command;
pub mod links;
pub mod multiplexer;
pub mod tls;
