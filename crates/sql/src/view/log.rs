//! `freshet_log`: how much has been logged, and how much room is there? One row.

use super::{About, Cells, SystemView, number, text};
use crate::error::SqlError;
use freshet_engine::schema::Type;

pub struct LogView;

impl SystemView for LogView {
    fn name(&self) -> &'static str {
        "freshet_log"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("devices", Type::Int8),
            ("durable_epoch", Type::Int8),
            ("commit_records", Type::Int8),
            ("commit_record_bytes", Type::Int8),
            ("groups", Type::Int8),
            ("group_overhead_bytes", Type::Int8),
            ("flushes", Type::Int8),
            ("used_bytes", Type::Int8),
            ("capacity_bytes", Type::Int8),
            ("device_promises", Type::Text),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let stats = about.engine.stats();
        let counts = [
            stats.log_devices,
            stats.durable_epoch,
            stats.commit_records,
            stats.commit_record_bytes,
            stats.groups,
            stats.group_overhead_bytes,
            stats.flushes,
            stats.log_used_bytes,
            stats.log_capacity_bytes,
        ];
        let promises = || about.engine.log_devices().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        // They name the server's directories.
        let told = if about.env.access.is_none() { text(&promises()) } else { text("<insufficient privilege>") };
        let cells = counts.into_iter().map(number).chain([told]);
        Ok(vec![cells.collect()])
    }
}
