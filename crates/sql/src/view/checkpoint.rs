//! `freshet_checkpoint`: where does the checkpoint stand, what would the next one do, why is there no newer one? One row.

use super::{About, Cells, SystemView, number, text};
use crate::error::SqlError;
use crate::value::Datum;
use freshet_engine::schema::Type;

pub struct CheckpointView;

impl SystemView for CheckpointView {
    fn name(&self) -> &'static str {
        "freshet_checkpoint"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("running", Type::Bool),
            ("paced", Type::Bool),
            ("pace_bytes_per_s", Type::Int8),
            ("pages_done", Type::Int8),
            ("pages_total", Type::Int8),
            ("bytes", Type::Int8),
            ("elapsed_us", Type::Int8),
            ("dirty_pages", Type::Int8),
            ("segments", Type::Int8),
            ("segment_bytes", Type::Int8),
            ("live_bytes", Type::Int8),
            ("finished", Type::Int8),
            ("last_pages", Type::Int8),
            ("last_bytes", Type::Int8),
            ("last_elapsed_us", Type::Int8),
            ("last_logged_bytes", Type::Int8),
            ("write_amplification", Type::Float8),
            ("failed_attempts", Type::Int8),
            ("failure", Type::Text),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let seen = about.engine.checkpoint_progress();
        let mut row = vec![Datum::Bool(seen.running), Datum::Bool(seen.paced)];
        let counts = [
            seen.pace_bytes_per_s,
            seen.pages_done,
            seen.pages_total,
            seen.bytes,
            seen.elapsed_us,
            seen.dirty_pages,
            seen.segments,
            seen.segment_bytes,
            seen.live_bytes,
            seen.finished,
        ];
        row.extend(counts.map(number));
        match seen.last {
            Some(last) => {
                row.extend([last.pages, last.bytes, last.elapsed_us, last.logged_bytes].map(number));
                row.push(Datum::Float(last.write_amplification()));
            }
            None => row.extend(std::iter::repeat_n(Datum::Null, 5)),
        }
        match seen.failure {
            Some(failure) => row.extend([number(failure.attempts.into()), text(&failure.reason)]),
            None => row.extend([number(0), Datum::Null]),
        }
        Ok(vec![row])
    }
}
