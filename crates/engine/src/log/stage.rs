//! Where do workers leave their frames? (interim: signatures)
use super::{Log, LogError, ReserveError};
use crate::ids::{Cts, Epoch};
use std::sync::Arc;

/// A worker slot: owned by one thread or session scheduler at a time; dropping it gives the slot back.
pub struct Worker {
    log: Arc<Log>,
}

impl Worker {
    /// Makes sure that one frame of `bytes` can be staged and written later (4 bytes more for each further frame).
    pub fn reserve(&mut self, bytes: u64) -> Result<Reserved<'_>, ReserveError> {
        let _ = (&self.log, bytes);
        unimplemented!()
    }
    /// Announces without space: for drawing a cts that stages nothing.
    pub fn announce(&mut self) -> Announced<'_> {
        unimplemented!()
    }
}

/// Space that is promised. Dropping it gives the space back.
pub struct Reserved<'a> {
    _worker: &'a mut Worker,
}

impl<'a> Reserved<'a> {
    /// From here on until the announcement leaves: do not wait, fault or allocate.
    pub fn announce(self) -> Announced<'a> {
        unimplemented!()
    }
}

/// Between announce and leave. Dropping it leaves, gives unused space back and wakes the log when it is parked.
pub struct Announced<'a> {
    _worker: &'a mut Worker,
}

impl Announced<'_> {
    /// Draws the next cts. Once per announcement.
    pub fn draw(&mut self) -> Cts {
        unimplemented!()
    }
    /// The epoch to stage under when nothing is drawn (fragments).
    pub fn epoch(&self) -> Epoch {
        unimplemented!()
    }
    /// Appends one frame, the concatenation of `parts`, to this worker's part of `epoch`. Cannot fail.
    pub fn stage(&mut self, epoch: Epoch, parts: &[&[u8]]) {
        let _ = (epoch, parts);
        unimplemented!()
    }
    pub fn leave(self) {}
    /// Leaves without waking a parked driver: for a caller that goes on to `Log::flush_inline` or `Log::wake`.
    pub fn leave_quietly(self) {}
}
