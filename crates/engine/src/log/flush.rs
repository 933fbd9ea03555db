//! What drives the log? (interim: signatures)
use super::*;
use crate::ids::Cts;
use crate::io::{Clock, Io};
use std::time::Duration;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something: step again.
    Worked,
    /// Waiting for announced workers to leave, or for another thread that is stepping: yield, then step again.
    Waiting,
    /// Nothing to do until something is staged (or, at the latest, until the idle time has passed): park.
    Idle,
    /// The log is poisoned and stays so.
    Poisoned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    pub groups: u64,
    pub epochs: u64,
    pub frame_bytes: u64,
    pub header_bytes: u64,
    pub padding_bytes: u64,
    pub syncs: u64,
}

pub struct Log {}

#[allow(unused_variables)]
impl Log {
    /// A new, empty log: incarnation 1. Refuses directories that hold a log with content.
    pub fn create(
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        options: &LogOptions,
        database: DatabaseId,
    ) -> Result<Arc<Log>, LogError> {
        unimplemented!()
    }
    /// Starts the next incarnation after a scan: the fence is durable when this returns. Replay may go on reading
    /// through `scan` while the log is used.
    pub fn open(
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        options: &LogOptions,
        scan: &Scan,
    ) -> Result<Arc<Log>, LogError> {
        unimplemented!()
    }
    pub fn worker(self: &Arc<Self>) -> Result<Worker, LogError> {
        unimplemented!()
    }
    /// The last cts drawn.
    pub fn now(&self) -> Cts {
        unimplemented!()
    }
    /// Everything with a cts up to the result is installed.
    pub fn watermark(&self) -> Cts {
        unimplemented!()
    }
    /// The durable horizon D: every commit of an epoch up to it is durable. A checkpoint whose S is
    /// `Cts::last_of(log.durable())` is publishable at once and costs no flush.
    pub fn durable(&self) -> Epoch {
        unimplemented!()
    }
    pub fn wait_durable(self: &Arc<Self>, cts: Cts) -> DurableWait {
        unimplemented!()
    }
    /// One transition of any part: seal, write, sync, acknowledge, prepare a segment.
    pub fn step(&self) -> Progress {
        unimplemented!()
    }
    /// One transition of sealing or of one device, for a thread per device.
    pub fn device_step(&self, device: DeviceId) -> Progress {
        unimplemented!()
    }
    /// One piece of preparing segments ahead; `step` does it too when nothing else is to be done.
    pub fn prepare_step(&self) -> Progress {
        unimplemented!()
    }
    /// Steps on the caller's thread until `cts` is durable or another thread is stepping; says whether it is durable.
    pub fn flush_inline(&self, cts: Cts) -> Result<bool, LogError> {
        unimplemented!()
    }
    /// Blocks the driving thread until something is staged, `wake` is called or `timeout` has passed.
    pub fn park(&self, timeout: Duration) {
        unimplemented!()
    }
    pub fn wake(&self) {
        unimplemented!()
    }
    /// Flushes everything staged and leaves a witness group: a clean end.
    pub fn finish(&self) -> Result<(), LogError> {
        unimplemented!()
    }
    /// What to save as the log's start before `recycle_below`, when images replace everything below `horizon`.
    pub fn log_start(&self, horizon: Epoch) -> LogStart {
        unimplemented!()
    }
    /// Recycles the segments below `start`, which the caller has saved durably.
    pub fn recycle_below(&self, start: &LogStart) -> Result<(), LogError> {
        unimplemented!()
    }
    pub fn used_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn capacity_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn frame_limit_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn poisoned(&self) -> Option<LogError> {
        unimplemented!()
    }
    pub fn devices(&self) -> u16 {
        unimplemented!()
    }
    pub fn database(&self) -> DatabaseId {
        unimplemented!()
    }
    pub fn incarnation(&self) -> Incarnation {
        unimplemented!()
    }
    pub fn stats(&self) -> LogStats {
        unimplemented!()
    }
    /// Whether direct I/O was granted on every device.
    pub fn is_direct(&self) -> bool {
        unimplemented!()
    }
}
