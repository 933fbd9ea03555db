//! Does a market's database keep up with its exchange? A trading day through SQL: feed, schema, appliers, forms, and an
//! independent check of everything that was stored.
//!
//! Modules stand in reading order; each uses only what stands above it.

pub mod calendar;
pub mod message;
pub mod lines;
pub mod listing;
pub mod feed;
pub mod generate;
pub mod datagram;
pub mod spool;
pub mod source;
pub mod schema;
pub mod model;
pub mod error;
pub mod bind;
pub mod load;
pub mod replay;
pub mod live;
pub mod apply;
pub mod forms;
pub mod closing;
pub mod check;
pub mod report;
pub mod progress;
pub mod run;

pub use run::{Listen, ListenGuard, MarketArgs, run};
