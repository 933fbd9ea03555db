//! `freshet_memory`: where is the memory? One row per object and kind; their sum is close to what the process has resident.
//!
//! | object | kinds |
//! |---|---|
//! | a table, `system tables`, `dropped tables` | records, long values, free slots, index NAME |
//! | `database` | page metadata, versions, transactions, program, log buffers, sessions, statement cache, queries |

use super::{About, Cells, SystemView, number, text};
use crate::error::SqlError;
use freshet_engine::engine::MemoryUse;
use freshet_engine::schema::Type;

pub struct MemoryView;

impl SystemView for MemoryView {
    fn name(&self) -> &'static str {
        "freshet_memory"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[("object", Type::Text), ("kind", Type::Text), ("bytes", Type::Int8)]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let row = |of: MemoryUse| vec![text(&of.object), text(&of.kind), number(of.bytes)];
        Ok(about.engine.memory().into_iter().map(row).collect())
    }
}
