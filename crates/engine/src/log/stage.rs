//! Where do workers leave their frames? In a buffer per worker and live epoch, from which the sealer takes them.
//!
//! ```text
//! reserve   may refuse: log poisoned, full, busy; grows the buffers
//! announce  from here until leave nothing waits, faults or allocates
//! draw      the cts
//! stage     copies frames
//! leave     the epoch may be sealed
//! ```
//!
//! 1. Everything reserved or staged on a device and not yet sealed counts in `unsealed`, which never exceeds the staging
//!    limit: so one group never exceeds it, nor do all unsealed epochs of the device together.
//! 2. At most four epochs are unsealed: reservations are granted only while the clock is at most one epoch ahead of the
//!    sealer, and an epoch has room for more draws than there are workers; so buffers go by epoch modulo 4.
//! 3. A buffer of epoch e is touched by its worker only while announced with a bound in an epoch <= e, and by the sealer
//!    only after e has been left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::ids::{Cts, DeviceId, Epoch};

use super::group::FRAME_PREFIX_BYTES;
use super::{Log, LogError, ReserveError, StageWait};

/// Worker slots. More than the sequence has numbers would break invariant 2.
pub const WORKERS_MAX: usize = 1024;
const _: () = assert!(WORKERS_MAX < 1 << (Cts::SEQUENCE_BITS - 1));

/// Epochs that may hold unsealed frames.
pub const LIVE_EPOCHS: usize = 4;

/// A buffer that grew beyond this and was hardly used is given back to the allocator.
const KEPT_BYTES: usize = 1 << 20;

/// One worker's frames.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct StageSlot {
    buffers: Mutex<[Vec<u8>; LIVE_EPOCHS]>,
    /// Lengths of `buffers`, for looking without the lock.
    staged: [AtomicU64; LIVE_EPOCHS],
}

fn index(epoch: Epoch) -> usize {
    (epoch.0 % LIVE_EPOCHS as u64) as usize
}

impl StageSlot {
    pub fn staged(&self, epoch: Epoch) -> u64 {
        self.staged[index(epoch)].load(Ordering::SeqCst)
    }

    fn grow(&self, now: Epoch, bytes: u64) -> Result<(), LogError> {
        let mut buffers = self.buffers.lock();
        // The epoch at the draw is this or the next one, unless the reservation is kept for long.
        for ahead in 0..2 {
            let buffer = &mut buffers[index(Epoch(now.0 + ahead))];
            buffer.try_reserve(bytes as usize).map_err(|_| LogError::OutOfMemory { bytes })?;
        }
        Ok(())
    }

    fn append(&self, epoch: Epoch, frame_bytes: u64, parts: &[&[u8]]) {
        let mut buffers = self.buffers.lock();
        let buffer = &mut buffers[index(epoch)];
        buffer.extend_from_slice(&(frame_bytes as u32).to_le_bytes());
        for part in parts {
            buffer.extend_from_slice(part);
        }
        self.staged[index(epoch)].store(buffer.len() as u64, Ordering::SeqCst);
    }

    /// Takes what was staged for `epoch`, which everyone has left.
    pub fn take(&self, epoch: Epoch) -> Vec<u8> {
        let taken = std::mem::take(&mut self.buffers.lock()[index(epoch)]);
        self.staged[index(epoch)].store(0, Ordering::SeqCst);
        taken
    }

    /// Returns the memory of what was taken.
    pub fn give_back(&self, epoch: Epoch, mut buffer: Vec<u8>) {
        let wasteful = buffer.capacity() > KEPT_BYTES && buffer.len() < buffer.capacity() / 4;
        buffer.clear();
        let mut buffers = self.buffers.lock();
        if !wasteful && buffers[index(epoch)].capacity() < buffer.capacity() {
            debug_assert!(buffers[index(epoch)].is_empty(), "log stage invariant 2: the epoch's buffer is not in use");
            buffers[index(epoch)] = buffer;
        }
    }
}

/// A place to commit from: one per thread that commits. Dropping it gives the slot back.
pub struct Worker {
    log: Arc<Log>,
    slot: usize,
    device: DeviceId,
}

impl Worker {
    pub(super) fn claim(log: &Arc<Log>) -> Result<Worker, LogError> {
        let slot = log.commit.claim().ok_or(LogError::NoWorkerSlot { limit: WORKERS_MAX })?;
        let device = DeviceId((slot % log.devices.len()) as u16);
        Ok(Worker { log: log.clone(), slot, device })
    }

    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The device that this worker's frames go to.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Makes sure that one frame of `bytes` can be staged and written (each further frame needs 4 bytes more). Zero is
    /// enough for drawing a cts that stages nothing.
    pub fn reserve(&mut self, bytes: u64) -> Result<Reserved<'_>, ReserveError> {
        let limit_bytes = self.log.frame_limit_bytes();
        if bytes > limit_bytes {
            return Err(ReserveError::Refused(LogError::FrameTooLarge { bytes, limit_bytes }));
        }
        let cost = bytes + FRAME_PREFIX_BYTES;
        let seen = self.log.stage_waiters.changes();
        let device = self.log.device(self.device);
        // Counted first, then the room looked at: the sealer counts down only after it has taken its room.
        let unsealed = device.unsealed.fetch_add(cost, Ordering::SeqCst) + cost;
        let slot = &self.log.slots[self.slot];
        let granted = self
            .check_room(unsealed, cost, seen)
            .and_then(|()| slot.grow(self.log.now().epoch(), cost).map_err(ReserveError::Refused));
        match granted {
            Ok(()) => Ok(Reserved { worker: self, budget: cost }),
            Err(refused) => {
                device.unsealed.fetch_sub(cost, Ordering::SeqCst);
                Err(refused)
            }
        }
    }

    /// `unsealed` includes the `cost` asked for.
    fn check_room(&self, unsealed: u64, cost: u64, seen: u64) -> Result<(), ReserveError> {
        let log = &self.log;
        if let Some(error) = log.poisoned() {
            return Err(ReserveError::Refused(error));
        }
        match log.room(self.device, unsealed) {
            Room::Granted => Ok(()),
            Room::Later => {
                log.wake_if_parked();
                Err(ReserveError::Busy(StageWait::new(log, self.device, cost, seen)))
            }
            Room::Full => Err(ReserveError::Refused(log.full())),
        }
    }
}

/// Whether a device can take what is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Granted,
    /// After the next group is sealed or the next segment prepared.
    Later,
    /// Not before the log is recycled.
    Full,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.log.commit.release(self.slot);
    }
}

/// Space that is promised. Dropping it gives the space back.
pub struct Reserved<'a> {
    worker: &'a mut Worker,
    budget: u64,
}

impl<'a> Reserved<'a> {
    /// From here on until the announcement leaves: do not wait, fault or allocate; the log's flush waits for it.
    pub fn announce(mut self) -> Announced<'a> {
        let budget = std::mem::take(&mut self.budget);
        let bound = self.worker.log.commit.announce(self.worker.slot);
        // The promise lives on in the announcement; its own drop has nothing to give back.
        Announced { reserved: self, budget, bound, drawn: None, quiet: false }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.budget > 0 {
            self.worker.log.unreserve(self.worker.device, self.budget);
        }
    }
}

/// Between announce and leave. Dropping it leaves, gives unused space back and wakes the log if its driver is parked.
pub struct Announced<'a> {
    reserved: Reserved<'a>,
    budget: u64,
    bound: Cts,
    drawn: Option<Cts>,
    quiet: bool,
}

impl Announced<'_> {
    fn log(&self) -> &Log {
        &self.reserved.worker.log
    }

    /// Draws the next cts; once per announcement.
    pub fn draw(&mut self) -> Cts {
        assert!(self.drawn.is_none(), "log stage invariant 2: one draw per announcement");
        let cts = self.log().commit.draw();
        debug_assert!(cts > self.bound);
        self.drawn = Some(cts);
        cts
    }

    /// The epoch to stage under: that of the cts drawn, or the current one for frames without a cts (fragments).
    pub fn epoch(&self) -> Epoch {
        self.drawn.map_or_else(|| self.log().commit.announced_epoch(), Cts::epoch)
    }

    /// Appends one frame, the concatenation of `parts`, to this worker's part of `epoch` (from [`Announced::epoch`] or
    /// the drawn cts). Cannot fail.
    pub fn stage(&mut self, epoch: Epoch, parts: &[&[u8]]) {
        let frame_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let cost = frame_bytes + FRAME_PREFIX_BYTES;
        assert!(cost <= self.budget, "log invariant 4: {cost} bytes staged with {} reserved", self.budget);
        assert!(
            epoch >= self.bound.epoch() && epoch.0 < self.log().open_epoch().0 + LIVE_EPOCHS as u64,
            "log stage invariant 3: staged for an epoch that the announcement does not hold open"
        );
        self.budget -= cost;
        self.log().slots[self.reserved.worker.slot].append(epoch, frame_bytes, parts);
    }

    pub fn leave(self) {}

    /// Leaves without waking a parked driver: for a caller that goes on to [`Log::flush_inline`] or [`Log::wake`].
    pub fn leave_quietly(mut self) {
        self.quiet = true;
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let worker = &*self.reserved.worker;
        worker.log.commit.leave(worker.slot);
        if self.budget > 0 {
            worker.log.unreserve(worker.device, self.budget);
        }
        if !self.quiet {
            worker.log.wake_if_parked();
        }
    }
}
