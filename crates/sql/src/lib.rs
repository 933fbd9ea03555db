//! SQL: parse, bind, route; compiled programs for the OLTP roads; DataFusion for the rest (feature `query`).
//!
//! ```text
//! text ─ parse ─▶ syntax tree ─ bind ─▶ compiled program ─┐
//!                      │                                  ├─ session ─▶ rows, tag, what the reply must wait for
//!                      └─ route (refused by bind) ─ query ┘
//! ```

pub mod error;

pub mod channel;
mod charge;
pub mod notice;
pub mod unwind;

pub mod catalog;

pub mod rows;
pub mod settings;
pub mod value;

pub mod counts;
pub mod latency;
pub mod statements;
pub mod statistics;

mod parse;
pub mod role;
#[cfg(feature = "query")]
mod query;

mod expr;
mod sleep;

pub mod view;

mod compiled;

pub mod road;

mod bind;

pub mod copy;
mod define;

pub mod route;

mod explain;

pub mod activity;
mod shape;
pub mod cache;
pub mod session;
pub mod load;
pub mod fuzz;

pub use error::SqlError;
pub use freshet_engine::schema::{Type, Value};
pub use rows::{Column, RowSet};
pub use session::{
    Ahead, CommandTag, CopyDirection, CopyPiece, CopyShape, Outcome, Prepared, Session, Settings, Step,
    TransactionStatus, Wait,
};
pub use value::Datum;
