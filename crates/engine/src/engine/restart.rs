//! What keeps the promise of a restart: what the engine holds at the moment, and when a checkpoint is asked for.

use super::{Checkpoints, Engine, Inner};
use crate::catalog::IndexKind;
use crate::checkpoint::needed_from;
use crate::promise::{Forecast, Holding, Logged};
use std::time::Duration;

impl Engine {
    /// What a restart now would take, phase by phase, against the target.
    pub fn restart_forecast(&self) -> Forecast {
        let inner = &self.inner.0;
        inner.promise.forecast(&inner.holding(&inner.checkpoints.lock()))
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
    /// A look at the promise, where one is due: asks for a checkpoint where the target needs one that would free something.
    pub(super) fn look_at_promise(&self) {
        if !self.promise.is_look_due() {
            return;
        }
        let mut state = self.checkpoints.lock();
        let is_needed = self.promise.look(&self.holding(&state));
        let is_idle = state.running.is_none() && !state.wanted;
        // After a failure only a request starts another.
        if is_needed && is_idle && state.failed.is_none() && needed_from(&self.core).1 > state.manifest.log_start.epoch
        {
            state.wanted = true;
        }
    }

    pub(super) fn close_promise(&self) {
        self.promise.close(&self.holding(&self.checkpoints.lock()));
    }

    fn holding(&self, checkpoints: &Checkpoints) -> Holding {
        let core = &self.core;
        let schema = core.schema.load();
        let indexes = || schema.tables().flat_map(|table| &table.indexes);
        let entries = |kind: IndexKind| indexes().filter(|i| i.def.kind == kind).map(|i| i.entries()).sum();
        let log = core.log.stats();
        let stores = core.stores.read();
        let containers = || stores.values().flat_map(|store| store.containers());
        Holding {
            log_start: checkpoints.manifest.log_start.epoch,
            durable: core.log.durable(),
            logged: Logged {
                bytes: log.header_bytes + log.body_bytes + log.padding_bytes,
                deltas: core.sessions.committed_deltas(),
            },
            image_bytes: checkpoints.manifest.images_bytes,
            all_image_bytes: containers().map(|c| c.high_water() * c.persistent_words() as u64 * 8).sum(),
            slots: containers().map(|c| c.high_water()).sum(),
            hash_entries: entries(IndexKind::Hash),
            tree_entries: entries(IndexKind::BTree),
        }
    }
}
