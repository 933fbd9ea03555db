//! What does a record look like? Types, values, the layout of a record, rows as private copies, index keys.
//!
//! A record's persistent part, in 64-bit words (all of it moves through the log as XOR deltas):
//!
//! | words | content |
//! |---|---|
//! | 0 | `cts` of the version |
//! | 1 | flags in the low 8 bits ([`LIVE`]), null bits of the first 56 columns above them |
//! | 2.. | null bits of further columns, 64 a word |
//! | then | fields at fixed offsets, widest first, so that no field straddles a word it does not fill |
//!
//! A variable-length value is a 16-byte descriptor:
//!
//! | bytes | short (length <= 12) | long |
//! |---|---|---|
//! | 0..4 | length | length |
//! | 4..8 | bytes 0..4 | bytes 0..4 (prefix) |
//! | 8..16 | bytes 4..12 | row id of the value in a size-classed container |

mod key;
mod layout;
mod row;
mod types;

pub use key::{KeyBuf, KeyColumn, KeyPart, KeySpec};
pub(crate) use layout::Picks;
pub use layout::{FIELD_BYTES_MAX, IntegerWord, Layout, LayoutError, Missing};
pub use row::{LIVE, Row};
pub use types::{EnumId, NetworkKind, OidKind, SystemKind, TimeKind, Type, Value, VectorKind};
