//! What all sessions of a database share.

use super::fold::FoldWords;
use super::garbage::GarbageQueues;
use super::locks::LockTable;
use super::noted::Serial;
use super::sessions::Sessions;
use super::slots::SlotBatches;
use super::{Error, Stop};
use crate::catalog::{Counters, Schema, Table, TableId};
use crate::crew::Crew;
use crate::ids::{Cts, DeviceId, Epoch, PageNo, RowId, StorageId};
use crate::log::{Log, LogError, ReserveError, Worker};
use crate::mem::{Arena, Budget, Pages};
use crate::planted::{self, Bug};
use crate::sync::gate::{Entered, Short};
use crate::table::{Container, ContainerMemory, NoSlot, SessionNo, Store};
use crate::txn::record::{self, Changed};
use crate::txn::wait::{Signal, WaitToken};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

/// Who waits for a checkpoint to free log space.
pub(crate) struct SpaceWaiters {
    signals: Mutex<Vec<Arc<Signal>>>,
    /// The last checkpoint did not fail: another may help.
    hopeful: AtomicBool,
}

impl SpaceWaiters {
    fn new() -> SpaceWaiters {
        SpaceWaiters { signals: Mutex::default(), hopeful: AtomicBool::new(true) }
    }

    /// `None`: no checkpoint will free space.
    pub(super) fn ask(&self) -> Option<WaitToken> {
        let mut signals = self.signals.lock();
        self.hopeful.load(Ordering::SeqCst).then(|| {
            let signal = Arc::new(Signal::default());
            signals.push(signal.clone());
            WaitToken::space(signal)
        })
    }

    /// Someone waits: a checkpoint is due whatever the log's fill.
    pub fn is_wanted(&self) -> bool {
        !self.signals.lock().is_empty()
    }

    /// A checkpoint has recycled the log, or failed.
    pub fn tell(&self, succeeded: bool) {
        let mut signals = self.signals.lock();
        self.hopeful.store(succeeded, Ordering::SeqCst);
        signals.drain(..).for_each(|s| s.tell());
    }
}

/// The shared state of a database: memory, log, sessions, locks, schema.
pub(crate) struct Core {
    pub pages: Arc<Pages>,
    pub arena: Arena,
    pub budget: Arc<Budget>,
    pub log: Arc<Log>,
    workers: Box<[WorkerPlace]>,
    /// No threads of its own: see `worker`.
    pub(super) is_stepped: bool,
    pub sessions: Sessions,
    pub(super) garbage: GarbageQueues,
    pub(super) slots: SlotBatches,
    pub(super) locks: LockTable,
    /// Every storage whose pages exist, dropped ones included until no snapshot needs them.
    pub stores: RwLock<HashMap<StorageId, Arc<Store>>>,
    pub system: Arc<Table>,
    pub schema: ArcSwap<Schema>,
    /// The largest commit that was acknowledged before it was durable.
    pub(super) deferred: AtomicU64,
    pub(super) large_txn: AtomicU64,
    /// Commits with fragments that published images may lack: the first fragment's epoch and the commit's cts.
    pub(super) fragmented: Mutex<Vec<(Epoch, Cts)>>,
    pub space: SpaceWaiters,
    /// Keys the hash indexes.
    pub hash_seed: u64,
    /// The next storage id. Not undone by rollback: pages of a storage that never was are in the log all the same.
    pub(super) next_storage: AtomicU32,
    next_id: AtomicU32,
    /// The commit that published the current schema: whoever looks a table up depends on it.
    pub(super) schema_cts: AtomicU64,
    /// Grows after each publication of a schema and before its commit leaves: who finds it unchanged has the schema of its snapshot.
    pub(super) schema_version: AtomicU64,
    /// Of the current schema: who may do what is as it was while this is.
    pub(super) rights_version: AtomicU64,
    pub(super) serial: Serial,
    /// Who fills indexes.
    pub(super) crew: Crew,
    pub(super) folds: FoldWords,
    /// Some node has a companion, or had one.
    pub(super) has_companions: AtomicBool,
    /// The session places that the checkpoint's lanes read with.
    pub checkpoint_readers: Box<[SessionNo]>,
    /// The clock as garbage collection last saw it, and the last epoch that it asked for.
    pub(super) seen_by_garbage: AtomicU64,
    pub(super) requested_by_garbage: AtomicU64,
}

/// Threads take workers by their number, so that one thread meets its own.
static THREADS: AtomicUsize = AtomicUsize::new(0);
std::thread_local! {
    /// Buffers for the commit record and for the words that a write changes. A thousand sessions that take turns on a thread find them in the
    /// cache, where their own would be cold. Whoever takes one leaves it; another that is needed meanwhile is new.
    pub(super) static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    pub(super) static CHANGED: Cell<Vec<Changed>> = const { Cell::new(Vec::new()) };
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Workers of the log for each device: threads share them when there are more threads.
const WORKERS: usize = 32;

/// A thread's worker for one device, and what its short changes (`once`) say and count. Two threads' never share a line.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkerPlace {
    worker: OnceLock<Mutex<Worker>>,
    /// Whoever holds the worker writes it.
    short: Short,
    commits: AtomicU64,
    commit_bytes: AtomicU64,
}

impl WorkerPlace {
    pub fn lock(&self) -> MutexGuard<'_, Worker> {
        self.worker.get().expect("a place is given out with its worker").lock()
    }

    /// A short change is at the table until the result is dropped. The caller holds the worker, and looks at the table's gate afterwards.
    #[inline]
    pub fn enter(&self, table: TableId) -> Entered<'_> {
        self.short.enter(table.0)
    }

    /// Of one delta each. The caller holds the worker.
    #[inline]
    pub fn count_commit(&self, record_bytes: u64) {
        self.commits.store(self.commits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.commit_bytes.store(self.commit_bytes.load(Ordering::Relaxed) + record_bytes, Ordering::Relaxed);
    }
}

/// Places for all, and the first worker of each device.
fn workers(log: &Arc<Log>) -> Result<Box<[WorkerPlace]>, LogError> {
    let devices = log.devices();
    let places = std::iter::repeat_with(WorkerPlace::default).take(WORKERS * usize::from(devices));
    let workers: Box<[WorkerPlace]> = places.collect();
    for device in 0..devices {
        let worker = log.worker_on(DeviceId(device))?;
        workers[usize::from(device)].worker.get_or_init(|| Mutex::new(worker));
    }
    Ok(workers)
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "the parts of a database, put together once")]
    pub fn new(
        pages: Arc<Pages>,
        arena: Arena,
        budget: Arc<Budget>,
        log: Arc<Log>,
        sessions_max: u32,
        system: Arc<Table>,
        hash_seed: u64,
        stores: HashMap<StorageId, Arc<Store>>,
        (next_id, next_storage): (u32, u32),
        crew: Crew,
        checkpoint_lanes: u32,
        is_stepped: bool,
    ) -> Result<Core, LogError> {
        let sessions = Sessions::new(sessions_max + checkpoint_lanes);
        let garbage = GarbageQueues::new(&budget);
        let slots = SlotBatches::new(&budget);
        let reader = |_| sessions.claim().expect("the first claims, of at least so many places");
        let checkpoint_readers = (0..checkpoint_lanes).map(reader).collect();
        let workers = workers(&log)?;
        Ok(Core {
            pages,
            arena,
            budget,
            log,
            workers,
            is_stepped,
            sessions,
            garbage,
            slots,
            locks: LockTable::default(),
            stores: RwLock::new(stores),
            system,
            schema: ArcSwap::default(),
            deferred: AtomicU64::new(0),
            large_txn: AtomicU64::new(0),
            fragmented: Mutex::default(),
            space: SpaceWaiters::new(),
            hash_seed,
            next_storage: AtomicU32::new(next_storage),
            next_id: AtomicU32::new(next_id),
            schema_cts: AtomicU64::new(0),
            schema_version: AtomicU64::new(0),
            rights_version: AtomicU64::new(0),
            serial: Serial::new(),
            crew,
            folds: FoldWords::new(),
            has_companions: AtomicBool::new(false),
            checkpoint_readers,
            seen_by_garbage: AtomicU64::new(0),
            requested_by_garbage: AtomicU64::new(0),
        })
    }

    /// An id that no object was ever given, committed or not: sessions remember objects by their ids, and so do statistics.
    pub(super) fn next_id(&self, counters: &mut Counters) -> Result<u32, Error> {
        let next = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
        let id = next.map_err(|_| Error::LimitExceeded("no id is left for another object".into()))?;
        counters.next_id = id + 1;
        Ok(id)
    }

    /// From here on ids are this one or above.
    pub(super) fn begin_ids_at(&self, id: u32, counters: &mut Counters) {
        let before = self.next_id.fetch_max(id, Ordering::Relaxed);
        counters.next_id = before.max(id);
    }

    /// This thread's worker for the device that `number` chooses: however few the threads, all devices get their share. Held from announce to
    /// leave; nothing waits meanwhile. Where the caller drives everything on one thread, `number` chooses the worker too.
    pub(super) fn worker(&self, number: usize) -> MutexGuard<'_, Worker> {
        self.worker_place(number).lock()
    }

    /// Whether a short change may write the table, whose place says so already: it notes nothing for SERIALIZABLE transactions. `checked` is the schema and table that the session wrote last: who
    /// has not written the table in this schema does it the longer way once.
    #[inline]
    pub(super) fn is_open(&self, table: &Arc<Table>, checked: (u64, usize)) -> bool {
        table.gate.is_open()
            && !self.serial.is_watched()
            && checked == (self.schema_version.load(Ordering::SeqCst), Arc::as_ptr(table).addr())
    }

    /// Where that worker is.
    pub(super) fn worker_place(&self, number: usize) -> &WorkerPlace {
        let devices = usize::from(self.log.devices());
        let at = if self.is_stepped { number } else { self.thread(0) * devices + number % devices };
        let at = at % self.workers.len();
        let place = &self.workers[at];
        if place.worker.get().is_some() { place } else { self.claim_worker(at) }
    }

    /// A slot is claimed when its thread comes: scans of the announcements visit those only.
    #[cold]
    fn claim_worker(&self, at: usize) -> &WorkerPlace {
        let device = at % usize::from(self.log.devices());
        match self.log.worker_on(DeviceId(device as u16)) {
            Ok(worker) => {
                self.workers[at].worker.get_or_init(|| Mutex::new(worker));
                // Either who looks at all workers (`each_worker`) sees this one, or this one sees what that one has said before.
                fence(Ordering::SeqCst);
                &self.workers[at]
            }
            // Small segments allow fewer; the first of each device was claimed at the start.
            Err(_) => &self.workers[device],
        }
    }

    /// Shows every worker until one is refused: false.
    pub(super) fn each_worker(&self, show: impl Fn(&Mutex<Worker>) -> bool) -> bool {
        self.workers.iter().filter_map(|place| place.worker.get()).all(show)
    }

    /// Waits until no short change is at the table, whose gate is closed and stays so: those that come now turn back. They wait for nothing.
    pub(super) fn wait_for_short_changes(&self, table: TableId) {
        self.workers.iter().for_each(|place| place.short.wait(table.0));
    }

    /// Commit records of all sessions, past ones included, and their bytes.
    pub fn commit_counts(&self) -> (u64, u64) {
        let (commits, bytes) = self.sessions.commit_counts();
        self.workers.iter().fold((commits, bytes), |(commits, bytes), place| {
            let more = place.commit_bytes.load(Ordering::Relaxed);
            (commits + place.commits.load(Ordering::Relaxed), bytes + more)
        })
    }

    /// Rows that the commits of all sessions logged a delta of.
    pub fn committed_deltas(&self) -> u64 {
        let short: u64 = self.workers.iter().map(|place| place.commits.load(Ordering::Relaxed)).sum();
        self.sessions.committed_deltas() + short
    }

    /// The thread's number; where everything happens on one thread, `number`.
    pub(super) fn thread(&self, number: usize) -> usize {
        if self.is_stepped { number } else { THREAD.with(|t| *t) }
    }

    /// A slot for a new row; takes and logs a page where the container has no room. `number` is the session's.
    #[inline]
    pub(super) fn take_slot(&self, container: &Container, number: usize) -> Result<RowId, Stop> {
        loop {
            match self.slot_of_batch(container, number) {
                Ok(row) => return Ok(row),
                Err(NoSlot::NeedsPage) => self.add_page(container).or_else(|stop| {
                    // What other threads keep comes before a refusal.
                    let is_refused = matches!(stop, Stop::Error(Error::OutOfMemory(_) | Error::LogFull));
                    if is_refused && self.recall_slots(container) { Ok(()) } else { Err(stop) }
                })?,
            }
        }
    }

    /// Where a container's memory is, what lies in threads' batches included.
    pub fn memory_of(&self, container: &Container) -> ContainerMemory {
        let mut memory = container.memory();
        memory.free_slot_bytes += (self.slots.count(container) * container.slot_bytes()) as u64;
        memory
    }

    /// Allocates the container's next page, unless it has room by now.
    fn add_page(&self, container: &Container) -> Result<(), Stop> {
        let _growth = container.growth.lock();
        if container.is_full() {
            container.add_page(self.log_page(container)?);
        }
        Ok(())
    }

    /// Allocates the container's next page for whoever fills it alone.
    pub(super) fn claim_page(&self, container: &Container) -> Result<PageNo, Stop> {
        let _growth = container.growth.lock();
        let page = self.log_page(container)?;
        container.add_page_given_out(page);
        Ok(page)
    }

    /// Allocates a page and logs it: a system action that no rollback undoes. The container's growth latch is held.
    fn log_page(&self, container: &Container) -> Result<PageNo, Stop> {
        let (storage, number, slot_words, ordinal) = container.page_request();
        let mut worker = self.worker((storage.0 + ordinal) as usize);
        let reserved = worker.reserve(64).map_err(stop_of)?;
        if !container.take_page_lists() {
            return Err(Error::OutOfMemory("a page").into());
        }
        let Some((page, meta)) = self.pages.allocate(storage, number, slot_words, ordinal) else {
            container.give_page_lists();
            return Err(Error::OutOfMemory("a page").into());
        };
        let mut frame = Vec::with_capacity(32);
        record::put_page(&mut frame, page, &meta);
        // Staged before the page can hold a row, so that a commit that touches it has the same or a later epoch.
        let mut announced = reserved.announce();
        let epoch = announced.epoch();
        announced.stage(epoch, &[&frame]);
        // Before leaving: a checkpoint that finds the epoch durable finds the page allocated in it.
        self.pages.set_allocated_in(page, epoch);
        self.pages.note_change(page, epoch);
        announced.leave();
        Ok(page)
    }

    /// The first epoch with fragments of a commit in `needed` or later, or of one that is not drawn yet.
    pub fn first_fragment_from(&self, needed: Epoch) -> Option<Epoch> {
        if planted::is(Bug::ForgetFragments) {
            return None;
        }
        // A commit enters the list before its session's place is cleared: looking in this order misses none.
        let active = self.sessions.first_fragment();
        let fragmented = self.fragmented.lock();
        let in_need = fragmented.iter().filter(|(_, cts)| cts.epoch() >= needed);
        in_need.map(|(epoch, _)| *epoch).chain(active).min()
    }

    /// Published images hold every commit below `needed`, now and later.
    pub fn forget_fragments_below(&self, needed: Epoch) {
        self.fragmented.lock().retain(|(_, cts)| cts.epoch() >= needed);
    }

    /// Copies a record's persistent part as of `snapshot`, dead ones' residue included.
    pub fn read_raw(&self, container: &Container, row: RowId, snapshot: Cts, record: &mut [u64]) {
        let head = container.slot(row).copy(record);
        if head.is_dirty() || Cts(record[0]) > snapshot {
            self.read_older(container, row, record, None, snapshot);
        }
    }

    /// Copies the version that a snapshot sees, of a row whose newest it does not; `me` sees its own uncommitted version as it is.
    #[cold]
    pub(super) fn read_older(
        &self,
        container: &Container,
        row: RowId,
        record: &mut [u64],
        me: Option<SessionNo>,
        snapshot: Cts,
    ) {
        let (word, slot) = (self.folds.of(row), container.slot(row));
        super::version::read_older(&self.arena, word, slot, record, me, snapshot, container.is_loaded());
    }

    pub fn schema_cts(&self) -> Cts {
        Cts(self.schema_cts.load(Ordering::SeqCst))
    }

    pub fn failure(&self) -> Option<String> {
        self.log.poisoned().map(|e| e.to_string())
    }

    /// Where a session's durable reads may start at the earliest.
    #[inline]
    pub(super) fn deferred(&self) -> Cts {
        Cts(self.deferred.load(Ordering::SeqCst))
    }
}

pub(super) fn stop_of(error: ReserveError) -> Stop {
    match error {
        ReserveError::Busy(wait) => Stop::Wait(WaitToken::stage(wait)),
        ReserveError::Refused(error) => Stop::Error(error.into()),
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        match error {
            LogError::Full { .. } => Error::LogFull,
            LogError::OutOfMemory { .. } => Error::OutOfMemory("log staging"),
            LogError::FrameTooLarge { .. } => Error::LimitExceeded(error.to_string()),
            other => Error::LogFailed(other.to_string()),
        }
    }
}
