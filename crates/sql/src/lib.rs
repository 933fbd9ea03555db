//! SQL: parse, bind, route; compiled programs for the OLTP roads; DataFusion for the rest (feature `query`).

pub mod error;
pub mod rows;
pub mod session;
pub mod value;

pub use error::SqlError;
pub use freshet_engine::schema::{Type, Value};
pub use rows::{Column, RowSet};
pub use session::{CommandTag, Outcome, Prepared, Session, Settings, Step, TransactionStatus, Wait};
pub use value::Datum;
