//! What keeps the promise of a restart: what the engine holds at the moment, and when a checkpoint is asked for.

use super::{Engine, Inner};
use crate::catalog::{IndexKind, Schema};
use crate::checkpoint::CheckpointProgress;
use crate::mem::PAGE_BYTES;
use crate::promise::{Entries, Forecast, Holding, Logged};
use std::time::Duration;

impl Engine {
    /// What a restart now would take, phase by phase, against the target.
    pub fn restart_forecast(&self) -> Forecast {
        let inner = &self.inner.0;
        inner.promise.forecast(&inner.holding())
    }

    /// `None`: off.
    pub fn recovery_target(&self) -> Option<Duration> {
        self.inner.0.promise.target()
    }

    /// In force at once, for the whole database, until it is closed. Zero: off.
    pub fn set_recovery_target(&self, target: Duration) {
        self.inner.0.promise.set_target(target);
    }

    /// What the options said at the open.
    pub fn reset_recovery_target(&self) {
        self.set_recovery_target(self.inner.0.options.recovery_target);
    }
}

impl Inner {
    /// A look at the promise, where one is due: asks for a checkpoint by the time when the target would be passed.
    pub(super) fn look_at_promise(&self) {
        if !self.promise.is_look_due() {
            return;
        }
        let checkpoint = self.checkpointer.progress();
        let within = self.promise.look(&self.holding_beside(&checkpoint));
        // One that failed is tried again in its own time; one that frees nothing would only be repeated.
        if let Some(within) = within
            && checkpoint.failure.is_none()
            && self.checkpointer.could_free()
        {
            self.checkpointer.request_within(within.as_micros() as u64);
        }
    }

    pub(super) fn close_promise(&self) {
        self.promise.close(&self.holding());
    }

    fn holding(&self) -> Holding {
        self.holding_beside(&self.checkpointer.progress())
    }

    fn holding_beside(&self, checkpoint: &CheckpointProgress) -> Holding {
        let core = &self.core;
        let log = core.log.stats();
        let stores = core.stores.read();
        let containers = || stores.values().flat_map(|store| store.containers());
        Holding {
            log_start: self.checkpointer.manifest().log_start.epoch,
            durable: core.log.durable(),
            logged: Logged {
                bytes: log.header_bytes + log.body_bytes + log.padding_bytes,
                deltas: core.committed_deltas(),
            },
            log_segment_bytes: core.log.used_bytes().next_multiple_of(self.options.segment_bytes.max(1)),
            log_segment_bytes_min: u64::from(core.log.devices()) * self.options.segment_bytes,
            image_bytes: checkpoint.live_bytes,
            all_image_bytes: containers().map(|c| c.high_water() * c.persistent_words() as u64 * 8).sum(),
            slots: containers().map(|c| c.high_water()).sum(),
            entries: entries(&core.schema.load()),
            dirty_bytes: checkpoint.dirty_pages * PAGE_BYTES as u64,
            checkpoint_bytes_per_s: checkpoint
                .last
                .map_or(0.0, |last| last.bytes as f64 * 1e6 / last.elapsed_us.max(1) as f64),
        }
    }
}

/// Entries of all indexes, by kind.
pub(super) fn entries(schema: &Schema) -> Entries {
    let of_kind = |kind: IndexKind| {
        let indexes = schema.tables().flat_map(|table| &table.indexes).filter(|index| index.def.kind == kind);
        indexes.map(|index| index.entries()).sum()
    };
    Entries { hash: of_kind(IndexKind::Hash), tree: of_kind(IndexKind::BTree) }
}
