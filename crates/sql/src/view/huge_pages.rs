//! `freshet_huge_pages`: is the memory where the misses are cheap? One row per kind of memory that huge pages were asked for.
//!
//! | kind | what |
//! |---|---|
//! | pages | rows of all tables |
//! | versions | what older snapshots read |
//! | indexes | nodes and segments of two megabytes and more |

use super::{About, Cells, SystemView, number, text};
use crate::error::SqlError;
use freshet_engine::schema::Type;

pub struct HugePagesView;

impl SystemView for HugePagesView {
    fn name(&self) -> &'static str {
        "freshet_huge_pages"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[("kind", Type::Text), ("resident_bytes", Type::Int8), ("huge_bytes", Type::Int8)]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let uses = about.engine.huge_pages().into_iter();
        Ok(uses.map(|(kind, of)| vec![text(kind), number(of.resident_bytes), number(of.huge_bytes)]).collect())
    }
}
