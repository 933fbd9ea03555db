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
//! 1. Everything reserved or staged on a device and not yet sealed, and what workers hold in advance, counts in
//!    `unsealed`, which never exceeds the staging limit: so one group never exceeds it, nor do all unsealed epochs of
//!    the device together.
//! 2. At most four epochs are unsealed: reservations are granted only while the clock is at most one epoch ahead of the
//!    sealer, and an epoch has room for more draws than there are workers; so buffers go by epoch modulo 4.
//! 3. All frames of one announcement are staged for one epoch. So what is unsealed on a device is written in at most as
//!    many groups as there are live epochs and workers, however the reservations spread; one spare segment holds them.
//! 4. Bulk frames, of which a large transaction has many, wait while two of them are staged on their device: others always find room, and no
//!    group grows long by them. Those of a bulk load wait while a quarter of the staging limit is staged, as long as nobody waits for the log: it is the
//!    only writer of its table, and what it needs of the device is bandwidth.
//!
//! The buffers: [`super::buffers`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ids::{Cts, DeviceId, Epoch};
use crate::io::BLOCK_BYTES;

use super::buffers::{LIVE_EPOCHS, index};
use super::group::{FRAME_PREFIX_BYTES, header_bytes};
use super::{Log, LogError, LogOptions, ReserveError, StageWait};

/// Worker slots at most; small segments allow fewer ([`workers_per_device`]). More than the sequence has numbers would break invariant 2.
pub const WORKERS_MAX: usize = 1024;
const _: () = assert!(WORKERS_MAX < 1 << (Cts::SEQUENCE_BITS - 1));

/// How many workers one device can serve, so that all they may have reserved and staged fits a fresh segment, each
/// reservation in a group of its own at the worst (invariant 3).
pub fn workers_per_device(options: &LogOptions) -> u64 {
    let room = options.segment_bytes.saturating_sub(options.stage_limit_bytes);
    (room / group_overhead_bytes(options)).saturating_sub(LIVE_EPOCHS as u64)
}

/// What a group needs beyond its frames, at most: a header that names every device, and padding.
pub fn group_overhead_bytes(options: &LogOptions) -> u64 {
    (header_bytes(options.dirs.len()) + BLOCK_BYTES) as u64
}

/// A place to commit from: one per thread that commits. Dropping it gives the slot back.
pub struct Worker {
    log: Arc<Log>,
    slot: usize,
    device: DeviceId,
    /// Counted in the device's `unsealed` and not reserved.
    credit: u64,
}

impl Worker {
    /// `slot` is one that was claimed.
    pub(super) fn new(log: &Arc<Log>, slot: Option<usize>) -> Result<Worker, LogError> {
        let slot = slot.ok_or(LogError::NoWorkerSlot { limit: log.slots.len() })?;
        let device = DeviceId((slot % log.devices.len()) as u16);
        Ok(Worker { log: log.clone(), slot, device, credit: 0 })
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
        let missing = cost.saturating_sub(self.credit);
        let busy = || {
            self.log.wake_if_parked();
            ReserveError::Busy(StageWait::new(&self.log, self.device, missing, seen))
        };
        // Looked at before and after: whoever is refused must not have taken anything, or it would wake the others who
        // wait for that, and they it.
        let mut taken = 0;
        if missing > 0 {
            self.check_room(busy)?;
            taken = self.take(missing).ok_or_else(busy)?;
        }
        let granted = self.check_room(busy).and_then(|epoch| self.grow(epoch, cost));
        match granted {
            Ok(()) => {
                self.credit = self.credit + taken - cost;
                Ok(Reserved { worker: self, budget: cost })
            }
            Err(refused) => {
                self.log.unreserve(self.device, taken);
                Err(refused)
            }
        }
    }

    /// As [`Worker::reserve`], for a bulk frame.
    pub fn reserve_bulk(&mut self, bytes: u64) -> Result<Reserved<'_>, ReserveError> {
        self.reserve_beside(bytes, self.log.bulk_frame_limit_bytes())
    }

    /// As [`Worker::reserve_bulk`], for a frame of a bulk load.
    pub fn reserve_load(&mut self, bytes: u64) -> Result<Reserved<'_>, ReserveError> {
        self.reserve_beside(bytes, self.log.load_room_bytes())
    }

    /// Reserves for a bulk frame while no more than `staged_most` of such are staged.
    fn reserve_beside(&mut self, bytes: u64, staged_most: u64) -> Result<Reserved<'_>, ReserveError> {
        let seen = self.log.stage_waiters.changes();
        // A failed log gathers nothing: its bulk room never comes back, and `reserve` says why.
        if !self.log.has_bulk_room(self.device, staged_most) && self.log.poisoned().is_none() {
            self.log.wake_if_parked();
            return Err(ReserveError::Busy(StageWait::bulk(&self.log, self.device, staged_most, seen)));
        }
        self.reserve(bytes)
    }

    /// Makes room in the buffers.
    fn grow(&self, epoch: Epoch, bytes: u64) -> Result<(), ReserveError> {
        let has_room = self.log.slots[self.slot].grow(epoch, bytes);
        if has_room { Ok(()) } else { Err(ReserveError::Refused(LogError::OutOfMemory { bytes })) }
    }

    /// Counts `missing` bytes in the device's word, and some more in advance if they fit, so that most reservations
    /// touch no word that other workers write. None if there is no room.
    fn take(&self, missing: u64) -> Option<u64> {
        if missing == 0 {
            return Some(0);
        }
        let limit = self.log.options.stage_limit_bytes;
        let unsealed = &self.log.device(self.device).unsealed;
        for bytes in [missing + self.log.credit_bytes(), missing] {
            let add = |unsealed: u64| (unsealed + bytes <= limit).then_some(unsealed + bytes);
            if unsealed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok() {
                return Some(bytes);
            }
        }
        None
    }

    /// Whether the device's segments and the epochs allow a reservation. It holds if it is checked after the bytes are
    /// counted: the sealer counts down only after it has taken its room.
    /// Gives the epoch that was current.
    fn check_room(&self, busy: impl FnOnce() -> ReserveError) -> Result<Epoch, ReserveError> {
        if self.log.is_poisoned() {
            return Err(ReserveError::Refused(self.log.poisoned().expect("a poisoned log says why")));
        }
        let epoch = self.log.now().epoch();
        match self.log.room_in(self.device, epoch) {
            Room::Granted => Ok(epoch),
            Room::Later => Err(busy()),
            Room::Full => Err(ReserveError::Refused(self.log.full())),
        }
    }

    /// Takes unused space back: some is kept for the next reservation, unless somebody waits for it.
    fn keep(&mut self, unused: u64) {
        self.credit += unused;
        let kept = self.log.credit_bytes();
        let excess = match self.log.stage_waiters.is_anyone_waiting() {
            true => self.credit,
            false if self.credit > 2 * kept => self.credit - kept,
            false => return,
        };
        self.credit -= excess;
        self.log.unreserve(self.device, excess);
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
        self.log.unreserve(self.device, self.credit);
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
    pub fn announce(self) -> Announced<'a> {
        let bound = self.worker.log.commit.announce(self.worker.slot);
        Announced { reserved: self, bound, drawn: None, staged: None, quiet: false }
    }

    /// Announces and draws the next cts at once: a fence less than `announce` and `draw`.
    #[inline]
    pub fn announce_and_draw(self) -> (Announced<'a>, Cts) {
        let (bound, cts) = self.worker.log.commit.announce_and_draw(self.worker.slot);
        debug_assert!(cts > bound);
        (Announced { reserved: self, bound, drawn: Some(cts), staged: None, quiet: false }, cts)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.worker.keep(self.budget);
    }
}

/// Between announce and leave. Dropping it leaves, gives unused space back and wakes the log if its driver is parked.
pub struct Announced<'a> {
    /// What is left of it; its drop, after this one's, takes it back.
    reserved: Reserved<'a>,
    bound: Cts,
    drawn: Option<Cts>,
    staged: Option<Epoch>,
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
        let current = || self.log().commit.announced_epoch();
        self.drawn.map(Cts::epoch).or(self.staged).unwrap_or_else(current)
    }

    /// Appends one frame, the concatenation of `parts`, to this worker's part of `epoch` (from [`Announced::epoch`] or
    /// the drawn cts; the same for all frames of an announcement). Cannot fail.
    pub fn stage(&mut self, epoch: Epoch, parts: &[&[u8]]) {
        let frame_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let cost = frame_bytes + FRAME_PREFIX_BYTES;
        let budget = &mut self.reserved.budget;
        assert!(cost <= *budget, "log invariant 4: {cost} bytes staged with {budget} reserved");
        *budget -= cost;
        assert_eq!(*self.staged.get_or_insert(epoch), epoch, "log stage invariant 3: one epoch per announcement");
        assert!(
            epoch >= self.bound.epoch() && epoch.0 < self.log().open_epoch().0 + LIVE_EPOCHS as u64,
            "log buffers invariant 1: staged for an epoch that the announcement does not hold open"
        );
        self.log().slots[self.reserved.worker.slot].append(epoch, frame_bytes, parts);
    }

    /// [`Announced::stage`] for a frame of [`Worker::reserve_bulk`].
    pub fn stage_bulk(&mut self, epoch: Epoch, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.log().device(self.reserved.worker.device).bulk[index(epoch)].fetch_add(bytes, Ordering::SeqCst);
        self.stage(epoch, parts);
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
        if !self.quiet {
            worker.log.wake_for_frames(worker.device);
        }
    }
}
