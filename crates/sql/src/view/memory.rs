//! `freshet_memory`: where is the memory? One row per object and kind.

use super::{Cells, SystemView, number, text};
use crate::error::SqlError;
use freshet_engine::engine::Engine;
use freshet_engine::schema::Type;

pub struct MemoryView;

impl SystemView for MemoryView {
    fn name(&self) -> &'static str {
        "freshet_memory"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[("object", Type::Text), ("kind", Type::Text), ("bytes", Type::Int8)]
    }

    fn rows(&self, engine: &Engine) -> Result<Vec<Cells>, SqlError> {
        let stats = engine.stats();
        let row = |object: &str, kind: &str, bytes| vec![text(object), text(kind), number(bytes)];
        Ok(vec![
            row("database", "pages", stats.page_bytes),
            row("database", "versions", stats.version_bytes),
            row("database", "indexes", stats.index_bytes),
        ])
    }
}
