//! What drives the log? A state machine that closes an epoch, gathers it, writes and syncs its groups, acknowledges.
//!
//! ```text
//!            close: clock moves on     gather: all have left     each device             all its devices, in order
//!  filling ----------------------> closing ----------------> in flight: write, sync ----------------------> durable
//! ```
//!
//! An epoch closes when a device with staged frames is free, so what arrives during one flush is the next group; unless a slow one that has some too is
//! at work. There is no commit delay to set; a driver lets commits come together only while that holds up nobody, or little beside what else there is to
//! do ([`super::attendance`]).
//! Any thread may step; each part is done by whoever gets its lock.
//!
//! 1. At most two epochs are in flight, so e+2 is submitted only when e is complete.
//! 2. Epochs become durable in order: the front of `in_flight` only.
//! 3. The poison is set under the lock of `in_flight`, so nothing is acknowledged after it.
//! 4. `unsealed` of a device is counted down only after its group has its place, which is why a reservation's look at
//!    the spare segments holds: everything counted, the group being placed included, fits one segment.
//!
//! Lock order: sealer, writer, preparer; then queue, segments, in_flight, slot buffers, waiters (leaves; none inside
//! another except in_flight inside sealer or writer).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::ids::{Cts, DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES, Clock, File, FlushWay, Io, Lock};
use crate::planted::{self, Bug};
use crate::sync::give_way;

use super::attendance::{self, Attendance, LooksUp, Mix};
use super::attendant::Attendant;
use super::buffers::{self, LIVE_EPOCHS, StageSlot};
use super::epoch::CommitClock;
use super::group::{self, GroupHeader, Participant, group_bytes, header_bytes};
use super::open::Beginning;
use super::parking::Parking;
use super::segment::{self, FileError, Owner, Preparer, Segments};
use super::stage::{Room, WORKERS_MAX, Worker, group_overhead_bytes, workers_per_device};
use super::wait::DurableWait;
use super::waiters::{DurableWaiters, StageWaiters};
use super::{DatabaseId, DeviceStart, GroupNo, Incarnation, LogError, LogOptions, LogStart, SegmentNo};

/// Epochs in flight (invariant 1).
const IN_FLIGHT_MAX: usize = 2;

/// Zeros written per preparing step: at least this, and twice the last group so that preparing keeps ahead of commits.
const PREPARE_BYTES_MIN: u64 = 256 << 10;
const PREPARE_BYTES_MAX: u64 = 4 << 20;
/// What commits may wait behind a step of a spare that is not pressing, and the least that one writes: a disk that seeks is no faster with less.
const PREPARE_US: u64 = 5_000;
const PREPARE_BYTES_LEAST: u64 = 128 << 10;
/// So many times as long as a step took is the device left to commits, where the spare is not pressing: a device that seeks and takes 20 ms for a
/// step would otherwise keep every commit waiting behind one for as long as a segment is made.
const PREPARE_RESTS: u64 = 9;

/// How long a driver lets commits come together that nobody waits for: some flushes. Each takes 60 us of a processor, so that of two that others use
/// the log has a twentieth; at 200 us it had a tenth, which searches beside a few updates went without.
const LINGER_US: u64 = 500;
/// So much is worth a flush by itself.
const LINGER_BYTES: u64 = 256 << 10;

/// So long after somebody has waited for the log it is taken that others will.
pub(super) const AWAITED_US: u64 = 100_000;

/// A device whose groups take longer is waited for by others that share its epoch. Where one is written in less, to gather the next one takes about
/// as long, and is done while it is written.
const SLOW_US: u64 = 300;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something: step again.
    Worked,
    /// Announced workers have to leave first: yield, then step again.
    Waiting,
    /// Another thread is doing what there is to do.
    Elsewhere,
    /// Nothing to do until something is staged or requested (or the idle time has passed): park.
    Idle,
    /// The log is poisoned and stays so.
    Poisoned,
}

/// What this incarnation has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    pub epochs: u64,
    pub groups: u64,
    /// Frames with their length prefixes.
    pub body_bytes: u64,
    pub header_bytes: u64,
    pub padding_bytes: u64,
    pub syncs: u64,
}

/// The log of one database: see the module head for the words. Shared by workers, waiters and drivers.
pub struct Log {
    io: Arc<dyn Io>,
    clock: Arc<dyn Clock>,
    pub(super) options: LogOptions,
    database: DatabaseId,
    incarnation: Incarnation,
    first_epoch: Epoch,
    pub(super) commit: CommitClock,
    pub(super) slots: Box<[StageSlot]>,
    pub(super) devices: Box<[Device]>,
    /// The epoch that is sealed next.
    open: AtomicU64,
    durable: AtomicU64,
    /// An epoch that someone waits for must be closed even if nothing is staged for it.
    requested: AtomicU64,
    finishing: AtomicBool,
    prepare_due: AtomicBool,
    sealer: Mutex<Sealer>,
    in_flight: Mutex<InFlight>,
    poison: OnceLock<LogError>,
    pub(super) durable_waiters: DurableWaiters,
    pub(super) stage_waiters: StageWaiters,
    parking: Parking,
    /// Drivers that let more come together: see [`Log::linger`].
    lingering: AtomicUsize,
    pub(super) attendance: Attendance,
    /// How long they let commits come together that somebody waits for; zero where processors are many.
    pub(super) patience_us: u64,
    /// When somebody waited for the last epoch that is waited for, first.
    asked_at_us: AtomicU64,
    /// Apart from the drivers: commits never wake whoever prepares.
    prepare_parking: Parking,
    locks: Vec<Arc<Vec<Box<dyn Lock>>>>,
    /// Whose log it is. What a fork copies of it goes on at positions that are no longer the log's.
    process: AtomicU32,
}

/// One device: who may write where.
pub(super) struct Device {
    id: DeviceId,
    dir: PathBuf,
    direct: AtomicBool,
    /// Bytes reserved or staged and not sealed, with frame prefixes.
    pub unsealed: AtomicU64,
    /// Of them, per live epoch, what large transactions staged ahead of their commits.
    pub bulk: [AtomicU64; LIVE_EPOCHS],
    /// Spare segments, for looking without the lock.
    pub spares: AtomicUsize,
    /// The file system refused another segment; cleared by recycling, and retried after a while.
    no_space_until_us: AtomicU64,
    last_group_bytes: AtomicU64,
    /// What it took to write the last group and to make it durable.
    last_flush_us: AtomicU64,
    /// Of the spare that is being made, until when that rests, and how much of it is then made at once.
    made_bytes: AtomicU64,
    prepare_rests_until_us: AtomicU64,
    prepare_bytes: AtomicU64,
    /// Sealed groups not yet synced.
    outstanding: AtomicUsize,
    segments: Mutex<Segments>,
    preparer: Mutex<Preparer>,
    queue: Mutex<VecDeque<SealedGroup>>,
    writer: Mutex<Writer>,
    /// Whether a group is written and made durable in one call: see [`FlushWay`].
    writes_durably: AtomicBool,
    buffers: Mutex<Vec<AlignedBuf>>,
}

#[derive(Default)]
struct Writer {
    /// The group being written; true once it is written and only the sync is missing.
    current: Option<(SealedGroup, bool)>,
    began_us: u64,
}

struct SealedGroup {
    epoch: Epoch,
    file: Arc<dyn File>,
    segment: SegmentNo,
    offset: u64,
    buf: AlignedBuf,
}

struct Sealer {
    /// The last sealed epoch; the chain's next group names it.
    prev: Epoch,
    closing: bool,
    wall_us: u64,
    /// Per device.
    next_group: Vec<GroupNo>,
    /// Per device: what is gathered of the epoch being sealed. With `participants` empty between seals, and as long as it has to be from the start.
    gathered: Vec<Option<AlignedBuf>>,
    participants: Vec<Participant>,
    chain: Chain,
    mix: Mix,
    /// The log's start never goes back below what a manifest has saved.
    start_epoch: Epoch,
}

struct InFlight {
    epochs: VecDeque<EpochInFlight>,
    /// The last durable epoch that carried frames.
    content: Epoch,
    /// The largest witness that is itself durable.
    witnessed: Epoch,
    last_completion_us: u64,
    stats: LogStats,
}

struct EpochInFlight {
    epoch: Epoch,
    pending: usize,
    has_content: bool,
    witness: Epoch,
}

/// The epochs of the chain, as ranges of consecutive ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    ranges: Vec<(Epoch, Epoch)>,
}

impl Chain {
    pub fn push(&mut self, epoch: Epoch) {
        match self.ranges.last_mut() {
            Some((_, last)) if last.0 + 1 == epoch.0 => *last = epoch,
            _ => self.ranges.push((epoch, epoch)),
        }
    }

    /// The last epoch below `epoch`, or zero.
    pub fn before(&self, epoch: Epoch) -> Epoch {
        let range = self.ranges.iter().rev().find(|(first, _)| *first < epoch);
        range.map_or(Epoch(0), |(_, last)| Epoch(last.0.min(epoch.0 - 1)))
    }
}

impl Log {
    pub(super) fn begin(
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        options: &LogOptions,
        devices: Vec<Device>,
        beginning: Beginning,
    ) -> Arc<Log> {
        let now_us = clock.monotonic_us();
        let workers = WORKERS_MAX.min(workers_per_device(options) as usize * devices.len());
        let gathered_of_none = devices.iter().map(|_| None).collect();
        let participants = Vec::with_capacity(devices.len());
        Arc::new(Log {
            io,
            clock,
            options: options.clone(),
            database: beginning.database,
            incarnation: beginning.incarnation,
            first_epoch: beginning.first_epoch,
            commit: CommitClock::new(beginning.first_epoch, workers),
            slots: (0..workers).map(|_| StageSlot::default()).collect(),
            devices: devices.into(),
            open: AtomicU64::new(beginning.first_epoch.0),
            // Epochs between the horizon and the first one are void: nothing is missing from them.
            durable: AtomicU64::new(beginning.first_epoch.0 - 1),
            requested: AtomicU64::new(0),
            finishing: AtomicBool::new(false),
            prepare_due: AtomicBool::new(false),
            sealer: Mutex::new(Sealer {
                prev: beginning.horizon,
                closing: false,
                wall_us: beginning.wall_us,
                next_group: beginning.next_group,
                gathered: gathered_of_none,
                participants,
                chain: beginning.chain,
                mix: Mix::default(),
                start_epoch: beginning.start_epoch,
            }),
            in_flight: Mutex::new(InFlight {
                epochs: VecDeque::with_capacity(IN_FLIGHT_MAX),
                content: beginning.horizon,
                // The fence record is the witness of what was recovered.
                witnessed: beginning.horizon,
                last_completion_us: now_us,
                stats: LogStats::default(),
            }),
            poison: OnceLock::new(),
            durable_waiters: DurableWaiters::new(),
            stage_waiters: StageWaiters::new(),
            parking: Parking::default(),
            lingering: AtomicUsize::new(0),
            attendance: Attendance::default(),
            asked_at_us: AtomicU64::new(0),
            patience_us: attendance::patience_us(std::thread::available_parallelism().map_or(1, usize::from)),
            prepare_parking: Parking::default(),
            locks: beginning.locks,
            process: AtomicU32::new(std::process::id()),
        })
    }

    /// Claims a worker slot.
    pub fn worker(self: &Arc<Self>) -> Result<Worker, LogError> {
        Worker::new(self, self.commit.claim())
    }

    /// Claims a worker slot whose frames go to this device.
    pub fn worker_on(self: &Arc<Self>, device: DeviceId) -> Result<Worker, LogError> {
        Worker::new(self, self.commit.claim_of(usize::from(device.0), self.devices.len()))
    }

    /// A thread that begins to serve sessions; it rests.
    pub fn attendant(self: &Arc<Self>) -> Attendant {
        Attendant::new(self)
    }

    /// The last cts drawn.
    pub fn now(&self) -> Cts {
        self.commit.now()
    }

    /// Everything with a cts up to the result is installed. Results may step back; each stays true.
    pub fn watermark(&self) -> Cts {
        self.commit.watermark()
    }

    /// The durable horizon D: every commit of an epoch up to it is durable and installed. A checkpoint whose S is
    /// `Cts::last_of(log.durable())` can be published at once and costs no flush.
    #[inline]
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::Acquire))
    }

    /// Resolves when everything up to `cts` is durable. An epoch for which nothing is staged is closed for it, which
    /// writes one empty group; in a full log that has to wait for the next recycling.
    pub fn wait_durable(self: &Arc<Self>, cts: Cts) -> DurableWait {
        DurableWait::new(self, cts)
    }

    pub fn poisoned(&self) -> Option<LogError> {
        self.poison.get().cloned()
    }

    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    pub fn database(&self) -> DatabaseId {
        self.database
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The smallest epoch of this incarnation.
    pub fn first_epoch(&self) -> Epoch {
        self.first_epoch
    }

    pub fn devices(&self) -> u16 {
        self.devices.len() as u16
    }

    /// Whether direct I/O was granted on every device.
    pub fn is_direct(&self) -> bool {
        self.devices.iter().all(|device| device.direct.load(Ordering::Relaxed))
    }

    /// Memory of buffers: staged, waiting to be written, kept for the next. What is being written at this moment is not seen.
    pub fn buffer_bytes(&self) -> u64 {
        let staged: u64 = self.slots.iter().map(StageSlot::buffer_bytes).sum();
        let of_device = |device: &Device| {
            let kept: usize = device.buffers.lock().iter().map(AlignedBuf::capacity).sum();
            let queued: usize = device.queue.lock().iter().map(|group| group.buf.capacity()).sum();
            let zeros = device.preparer.try_lock().map_or(0, |preparer| preparer.buffer_bytes());
            (kept + queued + zeros) as u64
        };
        staged + self.devices.iter().map(of_device).sum::<u64>()
    }

    pub fn frame_limit_bytes(&self) -> u64 {
        self.options.frame_limit_bytes()
    }

    pub fn bulk_frame_limit_bytes(&self) -> u64 {
        self.options.bulk_frame_limit_bytes()
    }

    /// What bulk loads may have staged on a device: a quarter of the staging limit, which keeps the device busy; as little as a large transaction
    /// while others wait for their commits, which a group of that length would keep for several flushes of their own.
    pub(super) fn load_room_bytes(&self) -> u64 {
        let awaited_until_us = self.asked_at_us.load(Ordering::Relaxed) + AWAITED_US;
        match self.clock.monotonic_us() < awaited_until_us {
            true => self.bulk_frame_limit_bytes(),
            false => self.frame_limit_bytes(),
        }
    }

    pub fn capacity_bytes(&self) -> u64 {
        let devices = self.devices.len() as u64;
        self.options.log_size_bytes / devices / self.options.segment_bytes * self.options.segment_bytes * devices
    }

    /// Bytes of segments that hold groups not recycled yet; a checkpoint is worth it long before the capacity.
    pub fn used_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.segments.lock().used_bytes()).sum()
    }

    /// Whether some device is more than half full. Each by itself: what one cannot take, the others' room does not help.
    pub fn is_half_full(&self) -> bool {
        let each = self.capacity_bytes() / self.devices.len() as u64;
        self.devices.iter().any(|device| device.segments.lock().used_bytes() > each / 2)
    }

    pub fn stats(&self) -> LogStats {
        self.in_flight.lock().stats
    }

    /// Acknowledges nothing more if the path of a directory that is written to, or one of `others`, leads elsewhere than when its lock was taken:
    /// another process may serve what is there, and the next open would. What was acknowledged is in the directory that was locked.
    pub fn poison_if_moved(&self, others: &[Box<dyn Lock>]) {
        // Retired directories are only kept from others: whoever has read them may remove them.
        let is_written = |path: &Path| self.options.dirs.iter().any(|dir| path.parent() == Some(dir));
        let own = self.locks.iter().flat_map(|locks| locks.iter()).filter_map(|lock| lock.lost_at());
        let lost = own.filter(|path| is_written(path)).chain(others.iter().filter_map(|lock| lock.lost_at())).next();
        if let Some(path) = lost
            && !self.is_poisoned()
        {
            const REASON: &str = "the path leads to another file now, or to none: the directory was moved or replaced, \
                                  its lock was removed, or something is mounted over it";
            self.poison("hold", path, io::Error::other(REASON));
        }
    }

    /// What to save as the log's start before [`Log::recycle_below`], when images replace everything below `horizon`.
    pub fn log_start(&self, horizon: Epoch) -> LogStart {
        let mut sealer = self.sealer.lock();
        // Images rely on durable epochs only; beyond them nothing may be given up.
        let horizon = if planted::is(Bug::RecycleEarly) { Epoch(u64::MAX) } else { horizon };
        let epoch = horizon.min(Epoch(self.durable().0 + 1)).max(sealer.start_epoch);
        sealer.start_epoch = epoch;
        let device = |(device, &next_group): (&Device, &GroupNo)| {
            let (segment, group) = device.segments.lock().start(epoch, next_group);
            DeviceStart { device: device.id, segment, group }
        };
        let devices = self.devices.iter().zip(&sealer.next_group).map(device).collect();
        LogStart { epoch, prev: sealer.chain.before(epoch), incarnation: self.incarnation, devices }
    }

    /// Recycles the segments below `start`, which the caller has saved durably.
    pub fn recycle_below(&self, start: &LogStart) -> Result<(), LogError> {
        for (device, first) in self.devices.iter().zip(&start.devices) {
            assert_eq!(device.id, first.device, "a start names this incarnation's devices, in their order");
            if let Some(error) = self.poisoned() {
                return Err(error);
            }
            let mut preparer = device.preparer.lock();
            match segment::recycle(&*self.io, &device.segments, &mut preparer, first.segment) {
                Ok(0) => {}
                Ok(_) => device.no_space_until_us.store(0, Ordering::SeqCst),
                Err(failed) => return Err(self.poison_files(failed)),
            }
            device.note_spares();
        }
        self.stage_waiters.wake();
        self.wake();
        Ok(())
    }

    /// Says how a device's groups are made durable from now on: the faster way, as [`crate::io::device::probe`] found it.
    pub fn set_flush_way(&self, device: DeviceId, way: FlushWay) {
        self.device(device).writes_durably.store(way == FlushWay::DurableWrite, Ordering::Relaxed);
    }

    // ---- what workers and waiters ask ----

    pub(super) fn device(&self, id: DeviceId) -> &Device {
        &self.devices[usize::from(id.0)]
    }

    pub(super) fn open_epoch(&self) -> Epoch {
        Epoch(self.open.load(Ordering::SeqCst))
    }

    /// What a worker may hold in advance: all of them together at most a quarter of the staging limit.
    pub(super) fn credit_bytes(&self) -> u64 {
        self.options.stage_limit_bytes / (4 * self.slots.len() as u64)
    }

    pub(super) fn unreserve(&self, device: DeviceId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.device(device).unsealed.fetch_sub(bytes, Ordering::SeqCst);
        self.stage_waiters.wake_if_waiting();
    }

    /// Whether a reservation of `missing` more bytes on `device` would succeed now.
    pub(super) fn has_room(&self, device: DeviceId, missing: u64) -> bool {
        let unsealed = self.device(device).unsealed.load(Ordering::SeqCst);
        unsealed + missing <= self.options.stage_limit_bytes && self.room(device) == Room::Granted
    }

    /// Whether another bulk frame may be staged beside `staged_most` bytes of them, or one per worker that asks at the same moment.
    pub(super) fn has_bulk_room(&self, device: DeviceId, staged_most: u64) -> bool {
        let staged: u64 = self.device(device).bulk.iter().map(|bytes| bytes.load(Ordering::SeqCst)).sum();
        staged <= staged_most
    }

    /// Whether the segments of `device` and the epochs in use allow another reservation.
    pub(super) fn room(&self, device: DeviceId) -> Room {
        self.room_in(device, self.now().epoch())
    }

    /// The same, in the epoch that is current.
    pub(super) fn room_in(&self, device: DeviceId, now: Epoch) -> Room {
        let device = self.device(device);
        if now.0 > self.open_epoch().0 + 1 {
            return Room::Later;
        }
        if device.spares.load(Ordering::SeqCst) > 0 {
            return Room::Granted;
        }
        if self.is_space_refused(device) {
            return Room::Full;
        }
        let growing = {
            let segments = device.segments.lock();
            segments.has_more()
        };
        if growing { Room::Later } else { Room::Full }
    }

    fn is_space_refused(&self, device: &Device) -> bool {
        self.clock.monotonic_us() < device.no_space_until_us.load(Ordering::SeqCst)
    }

    pub(super) fn full(&self) -> LogError {
        LogError::Full { used_bytes: self.used_bytes(), capacity_bytes: self.capacity_bytes() }
    }

    /// Someone waits for `epoch`.
    pub(super) fn request(&self, epoch: Epoch) {
        if self.note_request(epoch) && !self.attendance.is_patient() {
            self.wake_if_parked();
        }
    }

    fn note_request(&self, epoch: Epoch) -> bool {
        if self.requested.load(Ordering::SeqCst) >= epoch.0 {
            return false;
        }
        // Before the request, which tells whoever reads it that this is its time. Of two who ask at once either's will do.
        self.asked_at_us.store(self.clock.monotonic_us(), Ordering::SeqCst);
        self.requested.fetch_max(epoch.0, Ordering::SeqCst) < epoch.0
    }

    fn is_asked_for(&self, epoch: Epoch) -> bool {
        self.requested.load(Ordering::SeqCst) >= epoch.0
    }

    /// How long what is asked for may wait for more, unless all attendants rest before.
    fn patience_left_us(&self) -> u64 {
        let until_us = self.asked_at_us.load(Ordering::SeqCst) + self.patience_us;
        until_us.saturating_sub(self.clock.monotonic_us())
    }

    /// An attendant looks up from its work.
    pub(super) fn attended(&self, how: LooksUp) {
        if !self.parking.is_anyone_parked() {
            return;
        }
        let lingers = self.lingering.load(Ordering::SeqCst) > 0;
        let epoch = self.open_epoch();
        let is_due = match self.is_asked_for(epoch) {
            true if how == LooksUp::RestsLast => self.attendance.is_first_rest_in(epoch),
            true if how == LooksUp::Turns && self.patience_left_us() > 0 => false,
            true => !lingers && self.attendance.is_first_to_tell_of(epoch),
            false => !lingers && self.attendance.is_to_tell_of_frames(),
        };
        if is_due {
            self.parking.wake();
        }
    }

    // ---- the state machine ----

    /// One transition of any part: write or sync a group, prepare a segment, close or seal an epoch.
    pub fn step(&self) -> Progress {
        let mut blocked = Progress::Idle;
        for device in &self.devices {
            match self.write_step(device) {
                Progress::Idle => {}
                Progress::Elsewhere => blocked = Progress::Elsewhere,
                decided => return decided,
            }
        }
        if self.prepare_due.swap(false, Ordering::SeqCst) && self.prepare_step() == Progress::Worked {
            return Progress::Worked;
        }
        match self.seal_step(true) {
            Progress::Idle => {}
            Progress::Elsewhere => blocked = Progress::Elsewhere,
            decided => return decided,
        }
        match self.prepare_step() {
            Progress::Idle => blocked,
            decided => decided,
        }
    }

    /// One transition of sealing or of one device, for a thread per device.
    pub fn device_step(&self, device: DeviceId) -> Progress {
        match self.write_step(self.device(device)) {
            Progress::Idle => self.seal_step(false),
            decided => decided,
        }
    }

    /// One piece of preparing segments ahead. `step` does it too, between flushes and when nothing else is to be done;
    /// a driver of `device_step` calls it from a thread of its own.
    pub fn prepare_step(&self) -> Progress {
        let mut blocked = Progress::Idle;
        let has_none = |device: &&Device| device.spares.load(Ordering::SeqCst) == 0;
        let first = self.devices.iter().filter(has_none);
        for device in first.chain(self.devices.iter().filter(|device| !has_none(device))) {
            if self.poison.get().is_some() {
                return Progress::Poisoned;
            }
            if self.is_space_refused(device) || self.prepare_rests(device) {
                continue;
            }
            let Some(mut preparer) = device.preparer.try_lock() else {
                blocked = Progress::Elsewhere;
                continue;
            };
            if let Err(error) = self.check_process() {
                self.poison("prepare", &device.dir, error);
                return Progress::Poisoned;
            }
            let bytes = self.bytes_to_prepare(device);
            let (began_us, made_before) = (self.clock.monotonic_us(), preparer.made_bytes());
            let made = segment::prepare(&*self.io, &device.segments, &mut preparer, bytes);
            device.made_bytes.store(preparer.made_bytes(), Ordering::SeqCst);
            match made {
                Ok(false) => {}
                Ok(true) => {
                    // Not where one was opened, or completed: its sync and its name take longer.
                    if preparer.made_bytes() > made_before {
                        device.note_step(bytes, began_us, self.clock.monotonic_us());
                    }
                    if device.note_spares() {
                        self.stage_waiters.wake();
                    }
                    return Progress::Worked;
                }
                Err(failed) if failed.is_no_space() => {
                    const RETRY_US: u64 = 1_000_000;
                    let until = self.clock.monotonic_us() + RETRY_US;
                    device.no_space_until_us.store(until, Ordering::SeqCst);
                    // Whoever waited for room now learns that there is none.
                    self.stage_waiters.wake();
                    return Progress::Worked;
                }
                Err(failed) => {
                    self.poison_files(failed);
                    return Progress::Poisoned;
                }
            }
        }
        blocked
    }

    /// Whether the device is left to commits for now, as they have spares enough.
    fn prepare_rests(&self, device: &Device) -> bool {
        self.clock.monotonic_us() < device.prepare_rests_until_us.load(Ordering::SeqCst) && !device.is_spare_pressing()
    }

    /// Of a spare, in one step.
    fn bytes_to_prepare(&self, device: &Device) -> u64 {
        let ahead = (2 * device.last_group_bytes.load(Ordering::Relaxed)).clamp(PREPARE_BYTES_MIN, PREPARE_BYTES_MAX);
        let bytes =
            if device.is_spare_pressing() { ahead } else { ahead.min(device.prepare_bytes.load(Ordering::SeqCst)) };
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }

    /// Steps on the caller's thread until `cts` is durable or another thread is doing the rest; says whether it is.
    pub fn flush_inline(&self, cts: Cts) -> Result<bool, LogError> {
        // No driver is woken: it would contend for what this thread is about to do.
        self.note_request(cts.epoch());
        self.durable_waiters.note_one();
        let outcome = loop {
            if self.durable() >= cts.epoch() {
                break Ok(true);
            }
            match self.step() {
                Progress::Worked => {}
                Progress::Waiting => give_way(),
                Progress::Elsewhere | Progress::Idle => break Ok(self.durable() >= cts.epoch()),
                Progress::Poisoned => break Err(self.poisoned().expect("a poisoned log says why")),
            }
        };
        self.wake_for_rest();
        outcome
    }

    /// The same for a thread that may be held for one flush and for nothing else: it neither waits for workers to leave nor for another thread. What it
    /// leaves undone is a driver's once somebody waits for it.
    pub fn flush_once(&self, cts: Cts) {
        self.note_request(cts.epoch());
        self.durable_waiters.note_one();
        // To prepare a little, to seal, and to write and to sync a group a device.
        for _ in 0..2 + 2 * self.devices.len() {
            if self.durable() >= cts.epoch() || self.step() != Progress::Worked {
                break;
            }
        }
        self.wake_for_rest();
    }

    /// Blocks the driving thread until there is something for [`Log::step`] to do, [`Log::wake`] is called or `timeout`
    /// has passed.
    pub fn park(&self, timeout: Duration) {
        self.park_until_work(None, timeout);
    }

    /// The same for a thread that drives one device.
    pub fn device_park(&self, device: DeviceId, timeout: Duration) {
        self.park_until_work(Some(device), timeout);
    }

    /// The same for a thread that calls [`Log::prepare_step`].
    pub fn prepare_park(&self, timeout: Duration) {
        self.prepare_parking.park(timeout, || self.poison.get().is_none() && self.wants_preparing());
    }

    /// Wakes every parked thread.
    pub fn wake(&self) {
        self.parking.wake();
        self.prepare_parking.wake();
    }

    pub(super) fn wake_if_parked(&self) {
        if self.parking.is_anyone_parked() {
            self.parking.wake();
        }
    }

    /// After frames were staged. A device that is flushing needs no wake, nor one that waits for it: whoever completes the flush looks again. Nor does a driver that
    /// lingers: it will look. And while attendants are at work, one of them tells the driver.
    pub(super) fn wake_for_frames(&self, device: DeviceId) {
        if self.parking.is_anyone_parked()
            && self.lingering.load(Ordering::SeqCst) == 0
            && self.device(device).outstanding.load(Ordering::SeqCst) == 0
            && (self.devices.len() == 1 || self.wants_close().is_some())
            && !self.attendance.leave_telling()
        {
            self.parking.wake();
        }
    }

    /// Sleeps a little if there is something staged that may wait: a flush costs the same for one commit and for a thousand, and takes its time from
    /// whoever works. Who waits ends it at once, unless all who could go on have other work. `since`: when this driver began to linger.
    /// False: go on.
    pub fn linger(&self, since: &mut Option<u64>) -> bool {
        let now = self.clock.monotonic_us();
        let left_us = self.may_linger_us(since.unwrap_or(now), now);
        if left_us == 0 {
            *since = None;
            return false;
        }
        let since = *since.get_or_insert(now);
        // Whoever asks while others are at work does not end the sleep, so it ends in time for that.
        let at_a_time_us = if self.attendance.is_patient() { self.patience_us } else { left_us };
        self.lingering.fetch_add(1, Ordering::SeqCst);
        self.parking.park(Duration::from_micros(left_us.min(at_a_time_us)), || self.may_linger_us(since, now) == 0);
        self.lingering.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// How long an epoch may stay open for more to come, for a driver that lingers `since` then: not at all if there is anything else to do or if it is
    /// long, and longer if nobody waits for it.
    fn may_linger_us(&self, since: u64, now: u64) -> u64 {
        let epoch = self.open_epoch();
        let is_pressing = self.stage_waiters.is_anyone_waiting()
            || self.now().epoch() > epoch
            || self.finishing.load(Ordering::SeqCst)
            || self.is_poisoned();
        if is_pressing || self.devices.iter().any(|device| device.outstanding.load(Ordering::SeqCst) > 0) {
            return 0;
        }
        let staged: u64 = self.scanned_slots().map(|(slot, _)| slot.staged(epoch)).sum();
        match self.is_asked_for(epoch) {
            _ if staged == 0 || staged >= LINGER_BYTES => 0,
            false => (since + LINGER_US).saturating_sub(now),
            true if self.attendance.is_patient() => self.patience_left_us(),
            true => 0,
        }
    }

    /// Hands what is left to a parked driver.
    pub(super) fn wake_for_rest(&self) {
        if self.parking.is_anyone_parked() && self.has_work(None) {
            self.parking.wake();
        }
    }

    /// Flushes everything staged and leaves a witness group: a clean end. Workers have stopped; other drivers may go on.
    pub fn finish(&self) -> Result<(), LogError> {
        self.finishing.store(true, Ordering::SeqCst);
        let result = loop {
            match self.step() {
                Progress::Worked => {}
                Progress::Idle => break Ok(()),
                Progress::Waiting | Progress::Elsewhere => give_way(),
                Progress::Poisoned => break Err(self.poisoned().expect("a poisoned log says why")),
            }
        };
        self.finishing.store(false, Ordering::SeqCst);
        result
    }

    fn park_until_work(&self, device: Option<DeviceId>, timeout: Duration) {
        if self.sealer.try_lock().is_some_and(|sealer| sealer.closing) {
            // Between announce and leave is a matter of microseconds, unless its thread is preempted: let it run.
            give_way();
            return;
        }
        let timeout = match self.witness_due_in_us() {
            Some(us) => timeout.min(Duration::from_micros(us)),
            None => timeout,
        };
        self.parking.park(timeout, || self.has_work(device));
    }

    fn has_work(&self, device: Option<DeviceId>) -> bool {
        if self.poison.get().is_some() {
            return false;
        }
        let waits_for_writer =
            |device: &Device| device.outstanding.load(Ordering::SeqCst) > 0 && !device.writer.is_locked();
        let writes = match device {
            Some(id) => waits_for_writer(self.device(id)),
            None => self.devices.iter().any(waits_for_writer),
        };
        writes
            // Not a try: whoever holds it may have looked before the last frame was staged, and not look again.
            || self.sealer.lock().closing
            || self.wants_close().is_some()
            || device.is_none() && self.wants_preparing()
    }

    fn wants_preparing(&self) -> bool {
        self.devices.iter().any(|device| self.wants_preparing_of(device))
    }

    fn wants_preparing_of(&self, device: &Device) -> bool {
        let wants = || {
            let segments = device.segments.lock();
            segments.wants_spare() || segments.is_in_work()
        };
        !self.is_space_refused(device) && !device.preparer.is_locked() && wants() && !self.prepare_rests(device)
    }

    // ---- closing and gathering ----

    /// `writes_all`: the caller goes on with whatever device has something to write.
    fn seal_step(&self, writes_all: bool) -> Progress {
        if self.poison.get().is_some() {
            return Progress::Poisoned;
        }
        let Some(mut sealer) = self.sealer.try_lock() else {
            return Progress::Elsewhere;
        };
        let epoch = self.open_epoch();
        if !sealer.closing {
            if self.wants_close().is_none() {
                return Progress::Idle;
            }
            self.commit.close(epoch);
            sealer.closing = true;
            self.attendance.has_looked();
            if self.patience_us > 0 {
                let is_patient = sealer.mix.add(self.attendance.served(), self.durable_waiters.counted());
                self.attendance.set_patient(is_patient);
            }
        }
        if !self.commit.has_left(epoch) && !planted::is(Bug::SealBeforeLeft) {
            return Progress::Waiting;
        }
        let groups = self.seal(&mut sealer, epoch);
        sealer.closing = false;
        drop(sealer);
        self.stage_waiters.wake();
        // One group is written by who sealed it. A driver that is woken for it contends for the processor and for the device's writer, and where
        // it wins, who waits inline is handed over to it.
        // What was staged for the next epoch while this one was sealed has woken nobody.
        if groups > 1 || !writes_all || self.devices.len() > 1 && self.wants_close().is_some() {
            self.wake_if_parked();
        }
        Progress::Worked
    }

    /// Why the open epoch should be closed now, if it should.
    fn wants_close(&self) -> Option<Close> {
        let epoch = self.open_epoch();
        let in_flight = self.in_flight.lock().epochs.len();
        if in_flight >= IN_FLIGHT_MAX && !(planted::is(Bug::SubmitAhead) && in_flight < 2 * IN_FLIGHT_MAX) {
            return None;
        }
        if self.can_write_at_once(epoch) {
            return Some(Close::Staged);
        }
        let is_empty = !self.scanned_slots().any(|(slot, _)| slot.staged(epoch) > 0);
        // An epoch that nobody reserved may find no room; then who waits for it waits until the log is recycled.
        if in_flight > 0 || is_empty && !self.has_room_for_empty(epoch) {
            return None;
        }
        if self.now().epoch() > epoch {
            return Some(Close::Carry);
        }
        if self.is_asked_for(epoch) {
            return Some(Close::Requested);
        }
        (self.witness_due_in_us() == Some(0)).then_some(Close::Witness)
    }

    /// Whether a free device has frames of `epoch`, and no slow one that has some too must end another group first. As long as one must, the epoch is not
    /// durable before that device has written twice, so to keep it open delays nobody in it, and whoever commits meanwhile is in it too. To close it
    /// for the devices that are free lets them run ahead by up to a whole flush, which everybody then waits for behind the next two. Many frames
    /// are written without waiting: then it is the devices' bandwidth that is wanted.
    fn can_write_at_once(&self, epoch: Epoch) -> bool {
        let (mut is_any_free, mut is_any_slow, mut staged) = (false, false, 0);
        for (slot, device) in self.scanned_slots() {
            let bytes = slot.staged(epoch);
            if bytes > 0 {
                let is_free = device.outstanding.load(Ordering::SeqCst) == 0;
                is_any_free |= is_free;
                is_any_slow |= !is_free && device.last_flush_us.load(Ordering::Relaxed) >= SLOW_US;
                staged += bytes;
            }
        }
        let is_much = staged >= LINGER_BYTES.min(self.bulk_frame_limit_bytes());
        is_any_free && (!is_any_slow || is_much || planted::is(Bug::SubmitAhead))
    }

    /// Worker slots ever claimed, with the device of each.
    fn scanned_slots(&self) -> impl Iterator<Item = (&StageSlot, &Device)> {
        let slots = &self.slots[..self.commit.high_water()];
        slots.iter().enumerate().map(|(i, slot)| (slot, &self.devices[i % self.devices.len()]))
    }

    /// Where an epoch without frames writes its group: the devices take turns, so that a witness is not always beside
    /// what it witnesses.
    fn empty_device(&self, epoch: Epoch) -> &Device {
        &self.devices[(epoch.0 % self.devices.len() as u64) as usize]
    }

    fn has_room_for_empty(&self, epoch: Epoch) -> bool {
        let device = self.empty_device(epoch);
        let segments = device.segments.lock();
        // Read after the spares are known: with none, no reservation is granted that this does not see.
        let workers = self.commit.high_water().div_ceil(self.devices.len());
        let groups = (workers + LIVE_EPOCHS) as u64;
        let promised = device.unsealed.load(Ordering::SeqCst) + groups * group_overhead_bytes(&self.options);
        segments.has_room(group_bytes(1, 0), promised)
    }

    /// When the last acknowledgement deserves a witness of its own; none if it has one.
    fn witness_due_in_us(&self) -> Option<u64> {
        let in_flight = self.in_flight.lock();
        if !in_flight.epochs.is_empty() || in_flight.content <= in_flight.witnessed {
            return None;
        }
        if self.finishing.load(Ordering::SeqCst) {
            return Some(0);
        }
        let due_us = in_flight.last_completion_us + self.options.idle_witness_us;
        Some(due_us.saturating_sub(self.clock.monotonic_us()))
    }

    /// Gathers the frames of `epoch`, which everyone has left, into one group per device and queues them; how many. Allocates nothing but a
    /// buffer that has to be longer than any before.
    fn seal(&self, sealer: &mut Sealer, epoch: Epoch) -> usize {
        let has_content = self.gather(sealer, epoch);
        if !has_content {
            let device = self.empty_device(epoch);
            let mut buf = device.take_buffer();
            group::begin(&mut buf, 1);
            sealer.gathered[usize::from(device.id.0)] = Some(buf);
        }
        self.name_participants(sealer);
        // The chain's horizon, not the void epochs that `durable` starts with: a witness names what was acknowledged.
        let durable = self.durable();
        let witness = if durable < self.first_epoch { sealer.chain.before(self.first_epoch) } else { durable };
        sealer.wall_us = sealer.wall_us.max(self.clock.wall_us());
        let pending = sealer.participants.len();
        {
            let mut in_flight = self.in_flight.lock();
            in_flight.epochs.push_back(EpochInFlight { epoch, pending, has_content, witness });
            in_flight.stats.epochs += 1;
        }
        for participant in &sealer.participants {
            let of_device = usize::from(participant.device.0);
            let buf = sealer.gathered[of_device].take().expect("who takes part has a group");
            let header = GroupHeader {
                database: self.database,
                incarnation: self.incarnation,
                device: participant.device,
                group: participant.group,
                epoch,
                prev_epoch: sealer.prev,
                witness,
                wall_us: sealer.wall_us,
                segment: SegmentNo(0),
                offset: 0,
                body_bytes: participant.body_bytes,
                body_crc: participant.body_crc,
                participants: &*sealer.participants,
            };
            self.submit(&self.devices[of_device], header, buf);
            sealer.next_group[of_device].0 += 1;
        }
        sealer.participants.clear();
        sealer.prev = epoch;
        sealer.chain.push(epoch);
        self.open.store(epoch.0 + 1, Ordering::SeqCst);
        pending
    }

    /// What each device contributes to the epoch that is gathered, ascending.
    fn name_participants(&self, sealer: &mut Sealer) {
        let Sealer { gathered, participants, next_group, .. } = sealer;
        let body_start = header_bytes(gathered.iter().flatten().count());
        for (device, buf) in self.devices.iter().zip(gathered) {
            let Some(buf) = buf else { continue };
            participants.push(Participant {
                device: device.id,
                group: next_group[usize::from(device.id.0)],
                body_bytes: (buf.len() - body_start) as u64,
                body_crc: crc32c::crc32c(&buf[body_start..]),
            });
        }
    }

    /// The frames of `epoch`, each device's behind room for a header; false if there are none.
    fn gather(&self, sealer: &mut Sealer, epoch: Epoch) -> bool {
        // How long the headers are is known when all devices are. What was staged stays so: everyone has left the epoch.
        for (slot, device) in self.scanned_slots() {
            let gathered = &mut sealer.gathered[usize::from(device.id.0)];
            if slot.staged(epoch) > 0 && gathered.is_none() {
                *gathered = Some(device.take_buffer());
            }
        }
        let participants = sealer.gathered.iter().flatten().count();
        sealer.gathered.iter_mut().flatten().for_each(|buf| group::begin(buf, participants));
        for (slot, device) in self.scanned_slots() {
            if let Some(buf) = &mut sealer.gathered[usize::from(device.id.0)]
                && slot.staged(epoch) > 0
            {
                let frames = slot.take(epoch);
                buf.extend_from_slice(&frames);
                slot.give_back(epoch, frames);
            }
        }
        participants > 0
    }

    /// Gives the group its place and queues it.
    fn submit(&self, device: &Device, mut header: GroupHeader<&[Participant]>, mut buf: AlignedBuf) {
        let unpadded = buf.len();
        buf.pad_to_block();
        let bytes = buf.len() as u64;
        let place = device.segments.lock().place(bytes, header.group, header.epoch);
        device.note_spares();
        if self.prepare_parking.is_anyone_parked() && (place.offset == 0 || self.wants_preparing_of(device)) {
            self.prepare_parking.wake();
        }
        device.bulk[buffers::index(header.epoch)].store(0, Ordering::SeqCst);
        device.unsealed.fetch_sub(header.body_bytes, Ordering::SeqCst);
        device.last_group_bytes.store(bytes, Ordering::Relaxed);
        (header.segment, header.offset) = (place.segment, place.offset);
        header.encode(&mut buf);
        {
            let stats = &mut self.in_flight.lock().stats;
            stats.groups += 1;
            stats.body_bytes += header.body_bytes;
            stats.header_bytes += header.bytes() as u64;
            stats.padding_bytes += bytes - unpadded as u64;
        }
        device.outstanding.fetch_add(1, Ordering::SeqCst);
        let (segment, offset) = (place.segment, place.offset);
        device.queue.lock().push_back(SealedGroup { epoch: header.epoch, file: place.file, segment, offset, buf });
    }

    // ---- writing ----

    /// An error in a process that has a copy of the log by a fork: the log is the other one's, which writes it.
    fn check_process(&self) -> io::Result<()> {
        match std::process::id() == self.process.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(io::Error::other("the database was opened by another process, of which this one is a fork")),
        }
    }

    /// As if this process were a fork of the log's.
    /// How often drivers that sleep were woken.
    #[cfg(test)]
    pub(crate) fn wakes(&self) -> u64 {
        self.parking.wakes()
    }

    #[cfg(test)]
    pub(crate) fn is_anyone_parked(&self) -> bool {
        self.parking.is_anyone_parked()
    }

    #[cfg(test)]
    pub(super) fn pretend_forked(&self) {
        self.process.fetch_add(1, Ordering::Relaxed);
    }

    fn write_step(&self, device: &Device) -> Progress {
        if self.poison.get().is_some() {
            return Progress::Poisoned;
        }
        let Some(mut writer) = device.writer.try_lock() else {
            return Progress::Elsewhere;
        };
        if writer.current.is_none() {
            let Some(next) = device.queue.lock().pop_front() else {
                return Progress::Idle;
            };
            *writer = Writer { current: Some((next, false)), began_us: self.clock.monotonic_us() };
        }
        let (group, written) = writer.current.as_mut().expect("a group was just made current");
        let path = || device.dir.join(segment::file_name(group.segment));
        if let Err(error) = self.check_process() {
            self.poison("write", &path(), error);
            return Progress::Poisoned;
        }
        if !*written && device.writes_durably.load(Ordering::Relaxed) {
            if let Err(error) = group.file.write_durably_at(&group.buf, group.offset) {
                self.poison("write", &path(), error);
                return Progress::Poisoned;
            }
            return self.written(device, writer);
        }
        if !*written {
            if let Err(error) = group.file.write_at(&group.buf, group.offset)
                && !(planted::is(Bug::IgnoreShortWrite) && error.kind() == io::ErrorKind::WriteZero)
            {
                self.poison("write", &path(), error);
                return Progress::Poisoned;
            }
            *written = true;
            if planted::is(Bug::AcknowledgeEarly) {
                let epoch = group.epoch;
                drop(writer);
                self.complete(epoch);
            }
            return Progress::Worked;
        }
        let synced = if planted::is(Bug::SkipFlush) { Ok(()) } else { group.file.sync() };
        let synced = synced.or_else(|error| if planted::is(Bug::RetryFlush) { group.file.sync() } else { Err(error) });
        if let Err(error) = synced {
            self.poison("sync", &path(), error);
            return Progress::Poisoned;
        }
        self.written(device, writer)
    }

    /// The current group is durable.
    fn written(&self, device: &Device, mut writer: MutexGuard<'_, Writer>) -> Progress {
        let (group, _) = writer.current.take().expect("the current group was just synced");
        device.last_flush_us.store(self.clock.monotonic_us() - writer.began_us, Ordering::Relaxed);
        device.outstanding.fetch_sub(1, Ordering::SeqCst);
        device.buffers.lock().push(group.buf);
        drop(writer);
        if !planted::is(Bug::AcknowledgeEarly) {
            self.complete(group.epoch);
        }
        Progress::Worked
    }

    /// One device has `epoch` on disk.
    fn complete(&self, epoch: Epoch) {
        let advanced = {
            let mut in_flight = self.in_flight.lock();
            if self.poison.get().is_some() {
                return;
            }
            in_flight.stats.syncs += 1;
            in_flight.last_completion_us = self.clock.monotonic_us();
            let done = in_flight.epochs.iter_mut().find(|e| e.epoch == epoch);
            if planted::is(Bug::AcknowledgeFirstDevice) && done.is_none() {
                return;
            }
            let done = done.expect("a group being written belongs to an epoch in flight");
            done.pending = if planted::is(Bug::AcknowledgeFirstDevice) { 0 } else { done.pending - 1 };
            let mut advanced = None;
            while let Some(front) = in_flight.epochs.pop_front_if(|front| front.pending == 0) {
                in_flight.witnessed = in_flight.witnessed.max(front.witness);
                if front.has_content {
                    in_flight.content = front.epoch;
                }
                advanced = Some(front.epoch);
            }
            if let Some(durable) = advanced {
                self.durable.store(durable.0, Ordering::Release);
            }
            advanced
        };
        self.prepare_due.store(true, Ordering::SeqCst);
        if let Some(durable) = advanced {
            self.durable_waiters.wake_to(durable);
        }
        self.wake_for_rest();
    }

    fn poison(&self, action: &'static str, path: &Path, error: io::Error) -> LogError {
        let path = path.to_path_buf();
        {
            let _acknowledging = self.in_flight.lock();
            // The first failure is the one to report; later ones follow from it.
            let _ = self.poison.set(LogError::Poisoned { action, path, source: Arc::new(error) });
        }
        self.durable_waiters.wake_all();
        self.stage_waiters.wake();
        self.parking.wake();
        self.poisoned().expect("the poison was just set")
    }

    fn poison_files(&self, failed: FileError) -> LogError {
        self.poison(failed.action, &failed.path, failed.error)
    }
}

/// Why an epoch is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    Staged,
    Carry,
    Requested,
    Witness,
}

impl Device {
    pub fn new(owner: Owner, dir: &Path, options: &LogOptions, segments: Segments) -> Device {
        let direct = segments.is_direct().unwrap_or(options.direct_io);
        let preparer = Preparer::new(dir.to_path_buf(), owner, options.direct_io, options.segment_bytes);
        let segments = Mutex::new(segments);
        let device = Device {
            id: owner.device,
            dir: dir.to_path_buf(),
            direct: AtomicBool::new(direct),
            unsealed: AtomicU64::new(0),
            bulk: Default::default(),
            spares: AtomicUsize::new(0),
            no_space_until_us: AtomicU64::new(0),
            last_group_bytes: AtomicU64::new(0),
            last_flush_us: AtomicU64::new(0),
            made_bytes: AtomicU64::new(0),
            prepare_rests_until_us: AtomicU64::new(0),
            prepare_bytes: AtomicU64::new(PREPARE_BYTES_MAX),
            outstanding: AtomicUsize::new(0),
            segments,
            preparer: Mutex::new(preparer),
            queue: Mutex::new(VecDeque::new()),
            writer: Mutex::new(Writer::default()),
            writes_durably: AtomicBool::new(false),
            buffers: Mutex::new(Vec::new()),
        };
        device.note_spares();
        device
    }

    /// The first spare of a new log at once, so that the first reservation need not wait.
    pub fn prepare_first(&self, io: &dyn Io) -> Result<(), FileError> {
        let mut preparer = self.preparer.lock();
        while self.segments.lock().spares() == 0
            && segment::prepare(io, &self.segments, &mut preparer, PREPARE_BYTES_MAX)?
        {}
        drop(preparer);
        self.note_spares();
        Ok(())
    }

    /// Opens the first spares of a log that was there, so that the first reservation need not wait for that.
    pub fn open_spares(&self, io: &dyn Io) -> Result<(), FileError> {
        let preparer = self.preparer.lock();
        while segment::open_spare(io, &self.segments, &preparer)? {}
        drop(preparer);
        self.note_spares();
        Ok(())
    }

    /// Makes the number of spares known; true if it grew.
    fn note_spares(&self) -> bool {
        // Under the lock, so that two of these cannot store in the wrong order.
        let segments = self.segments.lock();
        if let Some(direct) = segments.is_direct() {
            self.direct.store(direct, Ordering::Relaxed);
        }
        self.spares.swap(segments.spares(), Ordering::SeqCst) < segments.spares()
    }

    fn is_spare_pressing(&self) -> bool {
        self.segments.lock().is_spare_pressing(self.made_bytes.load(Ordering::SeqCst))
    }

    /// So many bytes of a spare were made from then to then: it rests in proportion, and the next step is as long as is bearable.
    fn note_step(&self, bytes: u64, began_us: u64, ended_us: u64) {
        let took_us = ended_us - began_us;
        let bearable = (bytes * PREPARE_US / took_us.max(1)).clamp(PREPARE_BYTES_LEAST, PREPARE_BYTES_MAX);
        self.prepare_bytes.store(bearable, Ordering::SeqCst);
        self.prepare_rests_until_us.store(ended_us + PREPARE_RESTS * took_us, Ordering::SeqCst);
    }

    fn take_buffer(&self) -> AlignedBuf {
        self.buffers.lock().pop().unwrap_or_default()
    }
}
