//! Freshet's server: the PostgreSQL protocol over an embedded database, its configuration, and the `freshet` command.
//!
//! A process that embeds a database may listen for PostgreSQL clients at the same time:
//!
//! ```
//! use freshet_db::{Database, Options};
//! use freshet_server::listener;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let db = Database::open(Options::small(path))?;
//! let server = listener::listen(&db, listener::Options::new("127.0.0.1:0".parse()?))?;
//! println!("psql -h 127.0.0.1 -p {}", server.local_addr().port());
//! // ... sessions of this process and of psql see the same tables ...
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Modules stand in reading order; each uses only what stands above it.

#![forbid(unsafe_code)]

mod lines;
pub mod logging;

pub mod signals;

pub mod link;

pub mod pgwire;

pub mod recovery;

mod starting;

pub mod admission;
pub mod delay;
pub mod tls;
mod local;

pub mod watched;
mod reception;

pub mod listener;

mod metrics;

pub mod http;

pub mod ship;

pub mod config;

mod reload;

pub mod watch;

pub mod serve;

pub mod check;

pub mod salvage;

pub mod top;
