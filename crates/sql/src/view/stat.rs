//! `freshet_stat_index`, `freshet_stat_locks`, `freshet_stat_garbage`, `freshet_stat_latency`: how large are indexes, how often is waited for locks,
//! which versions wait to be forgotten, how long do clients wait? Log and checkpoint have views of their own.

use super::{About, Cells, SystemView, number, text};
use crate::bind::names::namespace_name;
use crate::counts::Count;
use crate::error::SqlError;
use crate::latency::end_us;
use crate::value::Datum;
use freshet_engine::catalog::IndexKind;
use freshet_engine::schema::Type;
use std::time::Instant;

pub struct IndexStatView;

impl SystemView for IndexStatView {
    fn name(&self) -> &'static str {
        "freshet_stat_index"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("schemaname", Type::Text),
            ("relname", Type::Text),
            ("indexrelname", Type::Text),
            ("kind", Type::Text),
            ("entries", Type::Int8),
            ("bytes", Type::Int8),
            ("moved_entries", Type::Int8),
            ("moved_entries_most", Type::Int8),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let mut rows = Vec::new();
        for table in about.schema.tables() {
            let space = namespace_name(about.schema, table.def.namespace);
            for index in &table.indexes {
                let (moved, most) = index.moved();
                let names = [&space[..], &table.def.name, &index.def.name, kind(index.def.kind)].map(text);
                let counts = [index.entries(), index.memory_bytes(), moved, most].map(number);
                rows.push(names.into_iter().chain(counts).collect());
            }
        }
        Ok(rows)
    }
}

fn kind(kind: IndexKind) -> &'static str {
    match kind {
        IndexKind::Hash => "hash",
        IndexKind::BTree => "btree",
    }
}

pub struct LocksStatView;

impl SystemView for LocksStatView {
    fn name(&self) -> &'static str {
        "freshet_stat_locks"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("held", Type::Int8),
            ("waiting", Type::Int8),
            ("longest_wait_us", Type::Int8),
            ("waits", Type::Int8),
            ("timeouts", Type::Int8),
            ("deadlocks", Type::Int8),
            ("serialization_failures", Type::Int8),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let locks = about.engine.locks();
        let held = locks.iter().filter(|lock| lock.is_granted).count() as u64;
        let now = Instant::now();
        let waits = locks.iter().filter(|lock| !lock.is_granted).filter_map(|lock| lock.since);
        let longest = waits.map(|since| now.saturating_duration_since(since).as_micros() as u64).max();
        let sums = about.env.activity.as_ref().map(|activity| activity.counts.sums()).unwrap_or_default();
        let counts = [Count::LockWaits, Count::LockTimeouts, Count::Deadlocks, Count::SerializationFailures];
        let row = [held, locks.len() as u64 - held, longest.unwrap_or(0)].into_iter();
        Ok(vec![row.chain(counts.map(|count| sums.get(count))).map(number).collect()])
    }
}

pub struct GarbageStatView;

impl SystemView for GarbageStatView {
    fn name(&self) -> &'static str {
        "freshet_stat_garbage"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("version_bytes", Type::Int8),
            ("waiting_writes", Type::Int8),
            ("left_items", Type::Int8),
            ("held_back_epochs", Type::Int8),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let garbage = about.engine.garbage();
        let counts = [garbage.version_bytes, garbage.waiting_writes, garbage.left_items, garbage.held_back_epochs];
        Ok(vec![counts.map(number).to_vec()])
    }
}

/// One row for each power of two of microseconds; the last one has no end.
pub struct LatencyStatView;

impl SystemView for LatencyStatView {
    fn name(&self) -> &'static str {
        "freshet_stat_latency"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[("below_us", Type::Int8), ("responses", Type::Int8)]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let Some(activity) = &about.env.activity else { return Ok(Vec::new()) };
        let counts = activity.latency.responses().counts.into_iter().enumerate();
        Ok(counts.map(|(at, count)| vec![end_us(at).map_or(Datum::Null, number), number(count)]).collect())
    }
}
