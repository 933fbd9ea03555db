//! How does it all stand together? Opening, stepping, threads, checkpoints, closing.
//!
//! Everything that goes on in the background is a `step`: the log (`Log::step`), garbage collection, the checkpoint. [`Engine::open`]
//! starts threads that call them; [`Engine::open_with`] leaves that to the caller, who may be a simulator with one thread and one seed.

mod directories;
mod restart;

use crate::catalog::{Counters, Object, Schema, Sequence, SequenceValue, Table, system_table};
use crate::checkpoint::{self, Checkpointer, Images, Manifest, ManifestError, Settings, Turn};
pub use crate::checkpoint::{CheckpointFailure, CheckpointProgress, CheckpointReport};
use crate::crew::Crew;
use crate::ids::{Cts, DeviceId};
use crate::inspect::{self, Subject};
pub use crate::io::device::DeviceFacts;
use crate::io::os::{OsClock, OsIo};
use crate::io::urgency::be_served_soon;
use crate::io::{Clock, Io, device};
use crate::log::{self, Attendant, DatabaseId, Log, LogDamage, LogOptions, Look};
pub use crate::mem::HugeUse;
pub use crate::mem::{Account, Claim, Kind};
use crate::mem::{Arena, Budget, Pages, available_bytes, gives_huge_pages, huge_use, resident_bytes};
use crate::planted::{self, Bug};
use crate::promise::{Opened, Promise};
use crate::replay::{self, Digest, Meter};
pub use crate::replay::{Phase, PhaseStats, RecoveryProgress, RecoveryReport, RecoveryStats};
use crate::schema::FIELD_BYTES_MAX;
use crate::sync::give_way;
use crate::table::ContainerMemory;
pub use crate::txn::TakenValue;
use crate::txn::core::Core;
use crate::txn::{self, Error, Isolation, LockFact, Session, Stop, WaitToken, block_on};
use directories::Directories;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Log directories, one per device. Empty: `data_dir/log`.
    pub log_dirs: Vec<PathBuf>,
    /// Log directories of former runs: read as far as they are still needed. Nothing new is written there, but they have to be
    /// writable: the last groups may be written once more, as they are. They may be left out once a checkpoint was
    /// taken after the first open without them in `log_dirs`.
    pub retired_log_dirs: Vec<PathBuf>,
    /// Where checkpoints write images. Empty: `data_dir`.
    pub backup_dirs: Vec<PathBuf>,
    /// Threads of a checkpoint for each backup directory. 0: one per core, at most two.
    pub checkpoint_threads: usize,
    /// What a checkpoint that nobody waits for writes at least; it goes faster when the log fills faster. 0: nothing is paced.
    pub checkpoint_bytes_per_s: u64,
    /// Images go to files of about this length.
    pub image_segment_bytes: u64,
    /// The most memory that the database may take, a restart included. By default four fifths of what the cgroup or the machine gives.
    pub memory_limit_bytes: u64,
    /// What the process took before, and the limit covers: 0 where the database is not the whole process.
    pub program_bytes: u64,
    /// The most space the log may take on all devices together.
    pub log_size_bytes: u64,
    pub segment_bytes: u64,
    /// Log records staged per device and not yet written.
    pub stage_limit_bytes: u64,
    pub sessions_max: u32,
    pub huge_pages: bool,
    pub direct_io: bool,
    /// Create the database where there is none.
    pub create: bool,
    /// What is made is none yet: it opens for nobody else until [`Engine::note_made`].
    pub in_making: bool,
    /// Threads of a recovery. 0: one per core.
    pub recovery_threads: usize,
    /// How long a restart may take: checkpoints are paced to hold it, and a target that none can hold is told. Zero: off.
    pub recovery_target: Duration,
    /// Not zero: recovery takes its pieces of work in an order drawn from it. The result is the same; simulations show it.
    pub recovery_seed: u64,
    /// Who is told how far a recovery is.
    pub progress: Option<Arc<dyn RecoveryProgress>>,
}

/// Ten seconds: what a client's patience and a load balancer's health check bear.
pub const RECOVERY_TARGET: Duration = Duration::from_secs(10);

/// The most that [`Options::sessions_max`] may say.
pub const SESSIONS_MAX: u32 = 1 << 20;
/// The most that [`Options::recovery_threads`] may say.
pub const THREADS_MAX: usize = 1 << 10;

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            data_dir: data_dir.into(),
            log_dirs: Vec::new(),
            retired_log_dirs: Vec::new(),
            backup_dirs: Vec::new(),
            checkpoint_threads: 0,
            checkpoint_bytes_per_s: 64 << 20,
            image_segment_bytes: 256 << 20,
            memory_limit_bytes: available_bytes().map_or(8 << 30, |bytes| (bytes / 10 * 8) >> 20 << 20),
            program_bytes: 0,
            log_size_bytes: 4 << 30,
            segment_bytes: 64 << 20,
            stage_limit_bytes: 16 << 20,
            sessions_max: 8192,
            huge_pages: true,
            direct_io: true,
            create: true,
            in_making: false,
            recovery_threads: 0,
            recovery_target: RECOVERY_TARGET,
            recovery_seed: 0,
            progress: None,
        }
    }

    /// A database that touches kilobytes: for tests and simulations.
    pub fn small(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            memory_limit_bytes: 64 << 20,
            log_size_bytes: 8 << 20,
            segment_bytes: 1 << 20,
            stage_limit_bytes: 256 << 10,
            sessions_max: 64,
            huge_pages: false,
            checkpoint_threads: 2,
            checkpoint_bytes_per_s: 0,
            image_segment_bytes: 1 << 20,
            recovery_threads: 1,
            recovery_target: Duration::ZERO,
            ..Options::new(data_dir)
        }
    }

    fn log_options(&self) -> LogOptions {
        let dirs = if self.log_dirs.is_empty() { vec![self.data_dir.join("log")] } else { self.log_dirs.clone() };
        LogOptions {
            retired_dirs: self.retired_log_dirs.clone(),
            fence_dirs: self.fence_dirs(),
            segment_bytes: self.segment_bytes,
            log_size_bytes: self.log_size_bytes,
            stage_limit_bytes: self.stage_limit_bytes,
            direct_io: self.direct_io,
            scan_threads: self.crew().doubled().threads,
            ..LogOptions::new(dirs)
        }
    }

    fn crew(&self) -> Crew {
        Crew { threads: self.threads(), seed: self.recovery_seed }
    }

    fn threads(&self) -> usize {
        match self.recovery_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// The data directory, and the backup directories beside it.
    fn fence_dirs(&self) -> Vec<PathBuf> {
        let beside = self.backup_dirs.iter().filter(|d| **d != self.data_dir);
        std::iter::once(&self.data_dir).chain(beside).cloned().collect()
    }

    /// What would be allocated for as many is bounded, and nobody could connect to none.
    fn check_numbers(&self) -> Result<(), OpenError> {
        if !(1..=SESSIONS_MAX).contains(&self.sessions_max) {
            return Err(refuse(format!("sessions_max is between 1 and {SESSIONS_MAX}, not {}", self.sessions_max)));
        }
        if self.recovery_threads > THREADS_MAX {
            let threads = self.recovery_threads;
            return Err(refuse(format!("recovery_threads is at most {THREADS_MAX}, not {threads}")));
        }
        Ok(())
    }

    /// A backup directory is none of the log's, and is given once.
    fn check_backup_dirs(&self) -> Result<(), OpenError> {
        let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let mut taken: Vec<PathBuf> = self.log_options().dirs.iter().map(absolute).collect();
        for dir in &self.backup_dirs {
            if taken.contains(&absolute(dir)) {
                return Err(refuse(format!("{} is given twice, as backup or log directory", dir.display())));
            }
            taken.push(absolute(dir));
        }
        Ok(())
    }

    fn subject(&self) -> Subject {
        Subject {
            data_dir: self.data_dir.clone(),
            log_dirs: self.log_dirs.clone(),
            retired_log_dirs: self.retired_log_dirs.clone(),
            backup_dirs: self.backup_dirs.clone(),
        }
    }

    fn checkpoint_settings(&self) -> Settings {
        let threads = match self.checkpoint_threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(2)),
            threads => threads.min(CHECKPOINT_THREADS_MAX),
        };
        let own = vec![self.data_dir.clone()];
        Settings {
            data_dir: self.data_dir.clone(),
            backup_dirs: if self.backup_dirs.is_empty() { own } else { self.backup_dirs.clone() },
            threads: threads as u32,
            segment_bytes: self.image_segment_bytes,
            direct_io: self.direct_io,
            pace_bytes_per_s: self.checkpoint_bytes_per_s,
        }
    }
}

/// Why a database did not open: one clear line.
#[derive(Debug)]
pub struct OpenError(pub String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

fn refuse(what: impl std::fmt::Display) -> OpenError {
    OpenError(what.to_string())
}

/// Memory taken for one purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// A table, or what belongs to none.
    pub object: String,
    pub kind: String,
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    pub limit_bytes: u64,
    /// Of the limit, what only versions of updates and deletes may take.
    pub reserve_bytes: u64,
    pub used_bytes: u64,
    pub restart_bytes: u64,
}

/// What the engine tells about itself.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub page_bytes: u64,
    pub version_bytes: u64,
    pub index_bytes: u64,
    /// Entries that the growth of hash indexes has copied, and the most that one insert had to.
    pub index_moved: u64,
    pub index_moved_most: u64,
    pub log_used_bytes: u64,
    pub log_capacity_bytes: u64,
    pub commit_records: u64,
    /// Commit records with their headers, without group headers and padding.
    pub commit_record_bytes: u64,
    pub groups: u64,
    /// Group headers and padding.
    pub group_overhead_bytes: u64,
    pub flushes: u64,
    pub checkpoints: u64,
    /// The last epoch that is on all its devices.
    pub durable_epoch: u64,
    pub log_devices: u64,
}

/// Versions that transactions left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GarbageUse {
    pub version_bytes: u64,
    /// Writes whose former versions are kept.
    pub waiting_writes: u64,
    /// What was ever left to be collected, transactions of many rows as one.
    pub left_items: u64,
    /// Epochs between the durable one and the last floor that was found, while anything waits for it.
    pub held_back_epochs: u64,
}

/// What goes on in the background, by who would do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Closing and sealing epochs, and one device's writes and syncs.
    Device(DeviceId),
    /// Making segments ahead.
    Prepare,
    Garbage,
    Checkpoint,
}

struct Inner {
    core: Arc<Core>,
    options: Options,
    checkpointer: Checkpointer,
    promise: Promise,
    recovery: RecoveryStats,
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    has_threads: bool,
    /// What was found out about the log's devices; nothing where the caller drives the engine.
    log_devices: Vec<DeviceFacts>,
    directories: Directories,
}

/// An open database. Clones share it; the last one to go, sessions included, closes it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Handle>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("data_dir", &self.inner.0.options.data_dir).finish_non_exhaustive()
    }
}

/// Stops the threads when the last engine or session goes; the threads themselves hold only `Inner`.
struct Handle(Arc<Inner>);

/// Ready once a commit timestamp is durable: a future for event loops, `wait` for threads.
pub struct DurableWait(log::DurableWait);

impl std::future::Future for DurableWait {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(Error::from)
    }
}

impl DurableWait {
    /// Writes and flushes the log on this thread, if that is all that is missing and no other thread is at it. The wait may go on.
    pub fn flush_once(&self) {
        self.0.flush_once();
    }

    /// Waits on the calling thread, which writes the log itself where no other thread does.
    pub fn wait(self) -> Result<(), Error> {
        self.0.wait_inline().map_err(Error::from)
    }
}

impl Engine {
    /// Opens or creates a database on real files, with its background threads.
    pub fn open(options: Options) -> Result<Engine, OpenError> {
        Engine::start(Arc::new(OsIo::new()), Arc::new(OsClock::new()), options, true)
    }

    /// The same on files from outside: log devices that this machine does not have.
    pub fn open_on(io: Arc<dyn Io>, options: Options) -> Result<Engine, OpenError> {
        Engine::start(io, Arc::new(OsClock::new()), options, true)
    }

    /// Opens a database in a world from outside; the caller drives [`Engine::step`].
    pub fn open_with(io: Arc<dyn Io>, clock: Arc<dyn Clock>, options: Options) -> Result<Engine, OpenError> {
        Engine::start(io, clock, options, false)
    }

    fn start(io: Arc<dyn Io>, clock: Arc<dyn Clock>, options: Options, threads: bool) -> Result<Engine, OpenError> {
        let mut inner = open(io.clone(), clock, options, threads)?;
        if threads {
            // After the open, which holds the directories' locks.
            let LogOptions { dirs, direct_io, .. } = inner.options.log_options();
            inner.log_devices = dirs.iter().map(|dir| device::probe(&*io, dir, direct_io)).collect();
            for (number, facts) in (0..).zip(&inner.log_devices) {
                inner.core.log.set_flush_way(DeviceId(number), facts.way);
            }
        }
        let inner = Arc::new(inner);
        let engine = Engine { inner: Arc::new(Handle(inner.clone())) };
        if threads {
            engine.spawn_threads().map_err(|error| refuse(format!("no thread for the database: {error}")))?;
        }
        engine.create_catalog()?;
        engine.note_program();
        Ok(engine)
    }

    /// What opening took beside all that is accounted for: code that was paged in, stacks, what the allocator keeps. A recovery leaves it
    /// more than that, which it gives back or uses again.
    fn note_program(&self) {
        let known = self.inner.0.options.program_bytes;
        if known > 0 {
            let accounted: u64 = self.memory().iter().map(|u| u.bytes).sum();
            let more = resident_bytes().saturating_sub(accounted);
            self.core().budget.take(Kind::Program, more.min(PROGRAM_GROWTH_BYTES), Claim::Forced);
        }
    }

    fn core(&self) -> &Arc<Core> {
        &self.inner.0.core
    }

    pub fn connect(&self) -> Result<Session, Error> {
        let keep: Arc<dyn Send + Sync> = self.inner.clone();
        Session::new(self.core(), Some(keep)).ok_or(Error::TooManySessions)
    }

    /// The committed schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.core().schema.load_full()
    }

    /// What sessions hold and wait for: a row that one has for himself only while another waits for it.
    pub fn locks(&self) -> Vec<LockFact> {
        self.core().lock_facts()
    }

    /// Who keeps the session of this name ([`Session::set_name`]) waiting: who holds what it wants, and who is before it.
    pub fn blockers(&self, session: u32) -> Vec<u32> {
        self.core().blockers(session)
    }

    /// The sequence's next value, taken for good.
    pub fn take_value(&self, sequence: &Sequence) -> Result<TakenValue, Error> {
        txn::take_value(self.core(), sequence)
    }

    /// Puts the sequence where it is told, at once and for everybody.
    pub fn set_sequence(&self, sequence: &Sequence, value: SequenceValue) -> Result<TakenValue, Error> {
        txn::set_sequence(self.core(), sequence, value)
    }

    /// What an answer depends on that shows the schema: never older than a schema that was read before the call.
    pub fn schema_cts(&self) -> Cts {
        self.core().schema_cts()
    }

    pub fn is_durable(&self, cts: Cts) -> bool {
        cts <= Cts::last_of(self.core().log.durable())
    }

    /// Drawn at random when the database was made; known to who has its files alone.
    pub fn database_id(&self) -> DatabaseId {
        self.core().log.database()
    }

    /// The newest number that a commit has. Above those of all earlier runs, whatever of them was lost.
    pub fn newest_cts(&self) -> Cts {
        self.core().log.now()
    }

    /// Whether a commit of this database can have the number: it is not of the future.
    pub fn has_drawn(&self, cts: Cts) -> bool {
        cts <= self.core().log.now() || self.is_durable(cts)
    }

    pub fn wait_durable(&self, cts: Cts) -> DurableWait {
        DurableWait(self.core().log.wait_durable(cts))
    }

    /// The reason, once the log has failed.
    pub fn failure(&self) -> Option<String> {
        self.core().failure()
    }

    /// What was opened [in making](Options::in_making) is a database like any other from now on, durably.
    pub fn note_made(&self) -> Result<(), OpenError> {
        let inner = &self.inner.0;
        inner.directories.note_made(&inner.options)
    }

    /// One step of everything in the background; false if there was nothing to do.
    pub fn step(&self) -> bool {
        let logged = self.core().log.step() == log::Progress::Worked;
        let collected = self.core().collect_all(256);
        self.inner.0.look_at_promise();
        self.inner.0.note_sorted_together();
        self.inner.0.look_at_directories();
        self.inner.0.checkpointer.step() || logged || collected
    }

    /// One step of one part of it, for a caller that chooses who is slow; false if there was nothing to do.
    pub fn step_part(&self, part: Part) -> bool {
        let log = &self.core().log;
        match part {
            Part::Device(device) if device.0 < log.devices() => log.device_step(device) == log::Progress::Worked,
            Part::Device(_) => false,
            Part::Prepare => log.prepare_step() == log::Progress::Worked,
            Part::Garbage => self.core().collect_all(16),
            Part::Checkpoint => {
                self.inner.0.look_at_directories();
                self.inner.0.checkpointer.step()
            }
        }
    }

    /// Images what has changed and recycles the log below it, as fast as it goes. Returns when done.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let inner = &self.inner.0;
        let step = || _ = self.step();
        let step: Option<&dyn Fn()> = if inner.has_threads { None } else { Some(&step) };
        inner.checkpointer.run(step, || self.failure()).map_err(Error::Checkpoint)
    }

    pub fn checkpoint_progress(&self) -> CheckpointProgress {
        self.inner.0.checkpointer.progress()
    }

    /// A checkpoint that nobody waits for writes at least so much from now on; 0: as fast as it goes.
    pub fn set_checkpoint_pace(&self, bytes_per_s: u64) {
        self.inner.0.checkpointer.set_pace(bytes_per_s);
    }

    /// A checkpoint should be over in this time: one that is under way hurries, or one begins. Returns at once.
    pub fn request_checkpoint_within(&self, time: Duration) {
        self.inner.0.checkpointer.request_within(time.as_micros() as u64);
    }

    pub fn stats(&self) -> Stats {
        let core = self.core();
        let log = core.log.stats();
        let (commit_records, commit_record_bytes) = core.commit_counts();
        let moved: Vec<(u64, u64)> = self.schema().tables().flat_map(|t| &t.indexes).map(|i| i.moved()).collect();
        Stats {
            page_bytes: core.pages.used_bytes(),
            version_bytes: core.arena.used_bytes(),
            index_bytes: self.index_bytes(),
            index_moved: moved.iter().map(|(all, _)| all).sum(),
            index_moved_most: moved.iter().map(|(_, most)| *most).max().unwrap_or(0),
            log_used_bytes: core.log.used_bytes(),
            log_capacity_bytes: core.log.capacity_bytes(),
            commit_records,
            commit_record_bytes,
            groups: log.groups,
            group_overhead_bytes: log.header_bytes + log.padding_bytes,
            flushes: log.syncs,
            checkpoints: self.inner.0.checkpointer.finished(),
            durable_epoch: core.log.durable().0,
            log_devices: u64::from(core.log.devices()),
        }
    }

    /// Which versions wait to be forgotten, and how far the oldest snapshot holds them back.
    pub fn garbage(&self) -> GarbageUse {
        let core = self.core();
        let (waiting_writes, left_items, floor) = core.garbage_facts();
        GarbageUse {
            version_bytes: core.arena.used_bytes(),
            waiting_writes,
            left_items,
            held_back_epochs: if waiting_writes == 0 {
                0
            } else {
                core.log.durable().0.saturating_sub(floor.epoch().0)
            },
        }
    }

    /// What the recovery of this incarnation did.
    pub fn recovery(&self) -> &RecoveryStats {
        &self.inner.0.recovery
    }

    /// A digest of everything that a recovery must bring back, for whoever compares recoveries. Nobody may write meanwhile.
    pub fn persistent_digest(&self) -> u64 {
        replay::persistent_digest(&self.core().pages)
    }

    /// What memory is taken for, by object and kind.
    pub fn memory(&self) -> Vec<MemoryUse> {
        let core = self.core();
        let mut uses = Vec::new();
        let mut of = |object: &str, kind: String, bytes: u64| {
            if bytes > 0 {
                uses.push(MemoryUse { object: object.to_owned(), kind, bytes });
            }
        };
        let schema = self.schema();
        let mut listed = 0;
        let (mut lists, mut lists_taken, mut indexes) = (0, 0, 0);
        let system = std::iter::once(("system tables", &core.system));
        for (name, table) in schema.tables().map(|t| (t.def.name.as_str(), t)).chain(system) {
            let primary = core.memory_of(&table.store.primary);
            let values: Vec<_> = table.store.containers().skip(1).map(|values| core.memory_of(values)).collect();
            let of_values = |what: fn(&ContainerMemory) -> u64| values.iter().map(what).sum::<u64>();
            let (value_pages, value_free) = (of_values(|m| m.page_bytes), of_values(|m| m.free_slot_bytes));
            listed += primary.page_bytes + value_pages;
            lists += primary.list_bytes + of_values(|m| m.list_bytes);
            lists_taken += primary.list_taken_bytes + of_values(|m| m.list_taken_bytes);
            of(name, "records".into(), primary.page_bytes - primary.free_slot_bytes);
            of(name, "long values".into(), value_pages - value_free);
            of(name, "free slots".into(), primary.free_slot_bytes + value_free);
            for index in &table.indexes {
                of(name, format!("index {}", index.def.name), index.memory_bytes());
                indexes += index.memory_bytes();
            }
        }
        of("dropped tables", "records".into(), core.pages.used_bytes().saturating_sub(listed));
        of("dropped tables", "indexes".into(), core.budget.used_for(Kind::Indexes).saturating_sub(indexes));
        for kind in Kind::ALL {
            match kind {
                Kind::Pages | Kind::Indexes => {}
                // The budget holds what they may become.
                Kind::LogBuffers => of("database", kind.name().into(), core.log.buffer_bytes()),
                Kind::Tables => {
                    let taken = core.budget.used_for(kind).saturating_sub(lists_taken);
                    of("database", kind.name().into(), taken + lists);
                }
                kind => of("database", kind.name().into(), core.budget.used_for(kind)),
            }
        }
        uses
    }

    /// Bytes of the pages that a table's rows and long values lie in, free slots included.
    pub fn table_bytes(&self, table: &Table) -> u64 {
        let core = self.core();
        table.store.containers().map(|container| core.memory_of(container).page_bytes).sum()
    }

    /// The memory limit, what is taken of it, and what a restart would take at its peak.
    pub fn memory_limit(&self) -> MemoryLimit {
        let budget = &self.core().budget;
        MemoryLimit {
            limit_bytes: budget.limit_bytes(),
            reserve_bytes: budget.reserve_bytes(),
            used_bytes: budget.used_bytes(),
            restart_bytes: budget.restart_bytes(),
        }
    }

    /// An account for memory that is taken outside of the engine.
    pub fn account(&self, kind: Kind) -> Account {
        Account::new(&self.core().budget, kind)
    }

    fn index_bytes(&self) -> u64 {
        self.schema().tables().flat_map(|t| &t.indexes).map(|i| i.memory_bytes()).sum()
    }

    /// For a thread that serves many sessions, whose commits it waits for without holding the thread up: it says when it has something to do for
    /// them. While such threads do, the log lets commits come together for up to 300 us where processors are few.
    pub fn attendant(&self) -> Attendant {
        self.core().log.attendant()
    }

    /// What the log's devices promise, as far as it was found out when the database was opened.
    pub fn log_devices(&self) -> &[DeviceFacts] {
        &self.inner.0.log_devices
    }

    /// How much of the memory that huge pages were asked for lies in them: rows, versions, indexes. The last one is told of all databases in
    /// this process, and of whatever else in it asks for huge pages.
    pub fn huge_pages(&self) -> [(&'static str, HugeUse); 3] {
        let core = self.core();
        let uses = huge_use(&[core.pages.addresses(), core.arena.addresses()]);
        [("pages", uses[0]), ("versions", uses[1]), ("indexes", uses[2])]
    }

    /// What this machine or file system lacks that would make it faster, a line each.
    pub fn runs_without(&self) -> Vec<String> {
        let options = &self.inner.0.options;
        let mut lines = Vec::new();
        if options.direct_io && !self.core().log.is_direct() {
            lines.push("direct I/O: the log's file system refuses O_DIRECT; writes pass through the page cache".into());
        }
        if options.huge_pages && gives_huge_pages() == Some(false) {
            let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
            let setting = if enabled.is_empty() { "absent" } else { enabled.trim() };
            lines.push(format!(
                "huge pages: the machine gives none (transparent_hugepage/enabled: {setting}); every miss of the cache also walks page tables"
            ));
        }
        lines
    }

    fn spawn_threads(&self) -> io::Result<()> {
        let inner = &self.inner.0;
        let mut threads = inner.threads.lock();
        let mut spawn = |name: String, run: Box<dyn FnOnce(&Inner) + Send>| {
            let inner = inner.clone();
            threads.push(std::thread::Builder::new().name(name).spawn(move || run(&inner))?);
            Ok::<(), io::Error>(())
        };
        let devices = inner.core.log.devices();
        if devices == 1 {
            spawn("freshet-log".into(), Box::new(Inner::drive_log))?;
        } else {
            for device in (0..devices).map(DeviceId) {
                spawn(format!("freshet-log-{}", device.0), Box::new(move |i| i.drive_device(device)))?;
            }
            spawn("freshet-log-prepare".into(), Box::new(Inner::drive_preparing))?;
        }
        spawn("freshet-upkeep".into(), Box::new(Inner::drive_upkeep))?;
        for lane in 0..inner.checkpointer.lanes() {
            spawn(format!("freshet-image-{lane}"), Box::new(move |i| i.drive_checkpoint(lane)))?;
        }
        Ok(())
    }

    /// A new database gets its first row: the counters, which are also the lock that serialises DDL.
    fn create_catalog(&self) -> Result<(), OpenError> {
        let core = self.core();
        if core.system.store.primary.high_water() == 0 {
            let mut session = self.connect().map_err(refuse)?;
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
            let mut row = Object::Counters(Counters::FIRST).to_row(&core.system, 0);
            self.until_done(&mut session, |s| s.insert(&core.system, &mut row).map(drop))?;
            self.until_done(&mut session, |s| s.commit().map(drop))?;
        }
        let checkpointer = &self.inner.0.checkpointer;
        if !checkpointer.manifest().created {
            self.wait_durable(core.log.now()).wait().map_err(refuse)?;
            checkpointer.note_created().map_err(refuse)?;
        }
        Ok(())
    }

    fn until_done(
        &self,
        session: &mut Session,
        mut work: impl FnMut(&mut Session) -> Result<(), Stop>,
    ) -> Result<(), OpenError> {
        loop {
            match work(session) {
                Ok(()) => return Ok(()),
                Err(Stop::Error(error)) => return Err(refuse(error)),
                Err(Stop::Wait(mut token)) => self.wait_for(&mut token),
            }
        }
    }

    /// Waits on the calling thread, which steps where no thread does.
    pub(crate) fn wait_for(&self, token: &mut WaitToken) {
        if self.inner.0.has_threads {
            block_on(token, None);
        } else {
            self.step();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let inner = &self.0;
        inner.closing.store(true, Ordering::SeqCst);
        inner.core.log.wake();
        inner.checkpointer.wake();
        for thread in inner.threads.lock().drain(..) {
            // A background thread that panicked has already said so; closing goes on.
            let _ = thread.join();
        }
        inner.close_promise();
        if inner.has_threads {
            inner.checkpointer.close();
            // A failure was told to everyone who waited; nobody is left to tell.
            let _ = inner.core.log.finish();
        }
    }
}

/// A frame is a quarter of the staging limit, and the delta of the widest record has to fit one.
const STAGE_LIMIT_BYTES_MIN: u64 = 4 * (FIELD_BYTES_MAX as u64 + (8 << 10));
/// Image threads of one directory: beyond, they only wait for it.
const CHECKPOINT_THREADS_MAX: usize = 16;

/// Of the memory limit, what is staged on a device is at most one part in so many.
const STAGE_SHARE: u64 = 32;

/// Memory, log and recovery: everything but the threads.
fn open(io: Arc<dyn Io>, clock: Arc<dyn Clock>, mut options: Options, has_threads: bool) -> Result<Inner, OpenError> {
    // A small database does not spend its memory on the log's buffers.
    let stage_most = (options.memory_limit_bytes / STAGE_SHARE).max(STAGE_LIMIT_BYTES_MIN);
    options.stage_limit_bytes = options.stage_limit_bytes.min(stage_most);
    let dir = options.data_dir.clone();
    let in_dir = |e: io::Error| refuse(format!("cannot use data directory {}: {e}", dir.display()));
    options.check_numbers()?;
    if options.stage_limit_bytes < STAGE_LIMIT_BYTES_MIN {
        return Err(refuse(format!("the staging limit must be at least {STAGE_LIMIT_BYTES_MIN} bytes")));
    }
    options.check_backup_dirs()?;
    if !options.create && !Manifest::exists(&io, &dir).map_err(in_dir)? {
        return Err(refuse(format!("{} holds no database", dir.display())));
    }
    let directories = Directories::lock(&io, clock.clone(), &options)?;
    // Under the lock: whoever had it may just have replaced the manifest.
    let manifest = Manifest::load(&io, &dir).map_err(|e| match e {
        ManifestError::Io(e) => in_dir(e),
        ManifestError::UnknownVersion(version) => refuse(format!(
            "{} has format version {version}, which this version of Freshet does not know",
            dir.display()
        )),
        ManifestError::Damaged(why) => refuse(format!("{} is damaged: {why}", dir.join("manifest").display())),
    })?;
    let mut manifest = manifest.unwrap_or_else(|| Manifest::new(random_id(&io)));
    let budget = Arc::new(budget(&options).map_err(refuse)?);
    let cannot_reserve = |e| refuse(format!("cannot reserve {} bytes of memory: {e}", options.memory_limit_bytes));
    let pages = Pages::new(options.memory_limit_bytes, options.huge_pages, budget.clone()).map_err(cannot_reserve)?;
    let pages = Arc::new(pages);
    // No huge pages for versions: a few chunks in use would make all of one resident, which no account knows.
    let arena = Arena::new(options.memory_limit_bytes, false, budget.clone()).map_err(cannot_reserve)?;
    let system = system_table(&pages);
    let seed = io.random();
    let meter = Meter::new(clock.clone(), options.progress.clone());
    let opened = open_log(&io, &clock, &options, &mut manifest, &pages, &meter)?;
    let mut stats = opened.stats;
    let horizon = Cts::last_of(opened.replayed);
    let restored = replay::restore(&pages, &system, seed, horizon, options.crew(), &meter).map_err(refuse)?;
    stats.restore = restored.stats;
    let (sessions_max, log) = (options.sessions_max, opened.log);
    let (stores, next) = (restored.stores, (restored.next_id, restored.next_storage));
    let settings = options.checkpoint_settings();
    let (crew, lanes, is_stepped) = (options.crew(), settings.lanes(), !has_threads);
    let core = Core::new(pages, arena, budget, log, sessions_max, system, seed, stores, next, crew, lanes, is_stepped)
        .map_err(refuse)?;
    stats.rebuild = replay::rebuild(restored.schema.tables(), options.crew(), &meter);
    core.schema.store(Arc::new(restored.schema));
    stats.threads = options.threads();
    stats.scratch_bytes = meter.scratch_most();
    stats.total_us = meter.elapsed_us();
    for table in core.schema.load().tables() {
        table.indexes.iter().for_each(|index| index.charge_to(&core.budget));
    }
    take_fixed(&core, &options);
    if core.budget.used_bytes() > options.memory_limit_bytes {
        return Err(refuse(format!(
            "the database takes {} MiB, and the memory limit is {} MiB",
            core.budget.used_bytes().div_ceil(1 << 20),
            options.memory_limit_bytes >> 20
        )));
    }
    let opened = Opened {
        recovery: stats,
        entries: restart::entries(&core.schema.load()),
        log_start: manifest.log_start.epoch,
        durable: horizon.epoch(),
        log_dir: options.log_options().dirs.swap_remove(0),
        memory: Account::new(&core.budget, Kind::Queries),
    };
    let promise = Promise::new(&io, &clock, &options.data_dir, options.recovery_target, opened);
    let core = Arc::new(core);
    let checkpointer = Checkpointer::new(core.clone(), io, clock, settings, manifest).map_err(refuse)?;
    Ok(Inner {
        core,
        options,
        checkpointer,
        promise,
        recovery: stats,
        closing: AtomicBool::new(false),
        threads: Mutex::default(),
        has_threads,
        log_devices: Vec::new(),
        directories,
    })
}

/// What a program grows by when a database is opened in it.
const PROGRAM_GROWTH_BYTES: u64 = 8 << 20;
/// How often it is looked how much is resident: a look takes the kernel 20 us.
const RESIDENT_EVERY: Duration = Duration::from_millis(20);
/// More than this that nobody accounts for, and more than half of the reserve, is not left to the allocator.
const UNACCOUNTED_MAX_BYTES: u64 = 64 << 20;

/// An allocator that defers what it gives back to the system (mimalloc does, for some milliseconds) does so when next it has something large to see to:
/// in a process that rests, never. What one statement's values took then stood against the limit, and kept every new session out. So something large is
/// taken, which costs no page as nobody writes to it, and freed.
fn make_allocator_give_back() {
    let mut large = Vec::<u8>::new();
    if large.try_reserve_exact(UNACCOUNTED_MAX_BYTES as usize).is_ok() {
        drop(std::hint::black_box(large));
    }
}

/// How long upkeep rests when there was nothing to do: longer each time, so that a database in which nothing changes costs nearly nothing.
const REST_MIN: Duration = Duration::from_millis(5);
const REST_MAX: Duration = Duration::from_millis(20);
/// Lanes of the checkpoint but the first one, which are told when there is work.
const REST_LANE: Duration = Duration::from_millis(500);
/// Growth and reserve that the smallest database gets beyond what is fixed.
const ROOM_BYTES_MIN: u64 = 1 << 20;

/// What the log may hold in memory: what is staged, two groups in flight, and zeros for a segment.
fn log_buffer_bytes(options: &Options) -> u64 {
    const GROUPS: u64 = 2;
    let devices = options.log_dirs.len().max(1) as u64;
    devices * (options.stage_limit_bytes * (1 + GROUPS) + (1 << 20).min(options.segment_bytes))
}

/// The budget of a database with these options, or why there can be none.
fn budget(options: &Options) -> Result<Budget, String> {
    let restart =
        replay::costs(options.crew().doubled().threads, options.segment_bytes.max(options.image_segment_bytes));
    let fixed = options.program_bytes + log_buffer_bytes(options).max(restart.fixed_bytes);
    let least = (fixed + ROOM_BYTES_MIN) / 7 * 8;
    if options.memory_limit_bytes < least {
        return Err(format!(
            "a memory limit of {} KiB is too low: the process and its log buffers alone need {} KiB",
            options.memory_limit_bytes >> 10,
            least.div_ceil(1 << 10)
        ));
    }
    Ok(Budget::with_restart(options.memory_limit_bytes, restart))
}

/// What does not depend on the data is taken once.
fn take_fixed(core: &Core, options: &Options) {
    let tables = core.pages.metadata_bytes() + core.arena.metadata_bytes() + core.sessions.metadata_bytes();
    core.budget.take(Kind::Tables, tables, Claim::Forced);
    core.budget.take(Kind::Program, options.program_bytes, Claim::Forced);
    core.budget.take(Kind::LogBuffers, log_buffer_bytes(options), Claim::Forced);
}

struct OpenedLog {
    log: Arc<Log>,
    /// The durable horizon that was replayed.
    replayed: crate::ids::Epoch,
    /// Of scan, images and replay.
    stats: RecoveryStats,
}

/// Scans and replays an existing log, or creates the log of a new database.
///
/// The manifest is saved before anything relies on it: its name may live in the page cache only, after a sync of the directory failed, and what it
/// makes dispensable is given up by the log that begins now. A fence that is newer than the manifest proves that an open has done so before.
fn open_log(
    io: &Arc<dyn Io>,
    clock: &Arc<dyn Clock>,
    options: &Options,
    manifest: &mut Manifest,
    pages: &Arc<Pages>,
    meter: &Meter,
) -> Result<OpenedLog, OpenError> {
    let log_options = options.log_options();
    let image_bytes = manifest.image_bytes();
    meter.expect(Phase::Load, image_bytes);
    meter.expect(Phase::Rebuild, image_bytes);
    let look = Look {
        digest: &Digest::of,
        sized: &|bytes| {
            meter.expect(Phase::Scan, bytes);
            meter.expect(Phase::Load, image_bytes + bytes);
            meter.begin(Phase::Scan);
        },
        read: &|bytes| meter.add(bytes),
    };
    let (scan, digests) = match log::scan_with(io, &log_options, &manifest.log_start, manifest.relied_on, &look) {
        Ok(scanned) => scanned,
        // Nothing was acknowledged, and a log with content is refused all the same.
        Err(damage) if !manifest.created && damage.is_of_creation() => {
            save(io, options, manifest)?;
            let log = Log::create(io.clone(), clock.clone(), &log_options, manifest.database).map_err(refuse)?;
            return Ok(OpenedLog { replayed: log.durable(), log, stats: RecoveryStats::default() });
        }
        Err(damage @ LogDamage::Lost { .. }) => return Err(refuse_loss(io, options, &damage)),
        Err(damage) => return Err(refuse(damage)),
    };
    if scan.database() != manifest.database {
        return Err(refuse(format!("the log belongs to another database than {}", options.data_dir.display())));
    }
    let groups = scan.groups().len() as u64;
    let scanned = PhaseStats { elapsed_us: meter.elapsed_us(), bytes: scan.read_bytes(), items: groups };
    let images = match manifest.checkpoints {
        0 => None,
        _ => {
            let dirs = options.checkpoint_settings().backup_dirs;
            let images = Images::open(io, &options.data_dir, &dirs, options.direct_io, manifest);
            Some(images.map_err(|bad| refuse_images(io, options, replay::ReplayError::Images(bad)))?)
        }
    };
    let done = replay::replay(pages, &scan, digests, images.as_ref(), options.crew(), meter);
    let done = done.map_err(|bad| refuse_images(io, options, bad))?;
    checkpoint::restore_marks(pages, images.as_ref(), manifest.log_start.epoch);
    if let Some(images) = &images {
        manifest.adopt(images);
    }
    if scan.newest_incarnation() <= manifest.incarnation && !planted::is(Bug::TrustNames) {
        save(io, options, manifest)?;
    }
    let replayed = scan.durable();
    let stats = RecoveryStats {
        scan: scanned,
        images: done.images,
        replay: done.replay,
        discarded: scan.discarded(),
        changed_pages: done.changed_pages,
        ..RecoveryStats::default()
    };
    let log = Log::open(io.clone(), clock.clone(), &log_options, &scan).map_err(refuse)?;
    Ok(OpenedLog { log, replayed, stats })
}

fn save(io: &Arc<dyn Io>, options: &Options, manifest: &Manifest) -> Result<(), OpenError> {
    let dir = &options.data_dir;
    let failed =
        |e: io::Error| refuse(format!("cannot write the manifest in {}: {e}{}", dir.display(), log::room_hint(&e)));
    manifest.save(io, dir).map_err(failed)
}

/// Where the log is damaged, and what that is about.
fn refuse_loss(io: &Arc<dyn Io>, options: &Options, damage: &LogDamage) -> OpenError {
    match inspect::affected(io, &options.subject()) {
        Some(affected) => refuse(format!("{damage}; {affected}")),
        None => refuse(damage),
    }
}

/// The same for images.
fn refuse_images(io: &Arc<dyn Io>, options: &Options, bad: replay::ReplayError) -> OpenError {
    match &bad {
        replay::ReplayError::Images(images) => match inspect::affected_by(io, &options.subject(), images) {
            Some(affected) => refuse(format!("{bad}; {affected}")),
            None => refuse(bad),
        },
        _ => refuse(bad),
    }
}

/// An identity, not a secret.
fn random_id(io: &Arc<dyn Io>) -> DatabaseId {
    DatabaseId(u128::from(io.random()) << 64 | u128::from(io.random()))
}

impl Inner {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn drive_log(&self) {
        be_served_soon();
        let mut since = None;
        while !self.is_closing() {
            if self.core.log.linger(&mut since) {
                continue;
            }
            match self.core.log.step() {
                log::Progress::Worked => {}
                log::Progress::Waiting => give_way(),
                log::Progress::Elsewhere => self.core.log.park(Duration::from_millis(1)),
                log::Progress::Idle => self.core.log.park(Duration::from_millis(10)),
                log::Progress::Poisoned => return,
            }
        }
    }

    fn drive_device(&self, device: DeviceId) {
        be_served_soon();
        let mut since = None;
        while !self.is_closing() {
            if self.core.log.linger(&mut since) {
                continue;
            }
            match self.core.log.device_step(device) {
                log::Progress::Worked => {}
                log::Progress::Waiting => give_way(),
                log::Progress::Elsewhere => self.core.log.device_park(device, Duration::from_millis(1)),
                log::Progress::Idle => self.core.log.device_park(device, Duration::from_millis(10)),
                log::Progress::Poisoned => return,
            }
        }
    }

    /// Prepares segments ahead, so that no device has to while commits wait.
    fn drive_preparing(&self) {
        while !self.is_closing() {
            match self.core.log.prepare_step() {
                log::Progress::Worked => {}
                log::Progress::Poisoned => return,
                _ => self.core.log.prepare_park(Duration::from_millis(10)),
            }
        }
    }

    /// Garbage, and what a restart would take.
    fn drive_upkeep(&self) {
        let mut looked = Instant::now();
        let unaccounted = Account::new(&self.core.budget, Kind::Unaccounted);
        let mut rest = REST_MIN;
        while !self.is_closing() {
            let seen = self.checkpointer.turns();
            let collected = self.core.collect_all(4096);
            self.look_at_promise();
            self.note_sorted_together();
            if looked.elapsed() >= RESIDENT_EVERY {
                looked = Instant::now();
                self.note_resident(&unaccounted);
            }
            if collected {
                rest = REST_MIN;
            } else if !self.is_closing() {
                self.checkpointer.park(seen, rest);
                rest = (2 * rest).min(REST_MAX);
            }
        }
    }

    /// One lane of the checkpoint; the first one also looks whether one is due, and whether the directories are in their places.
    fn drive_checkpoint(&self, lane: usize) {
        let (rest_min, rest_max) = if lane == 0 { (REST_MIN, REST_MAX) } else { (REST_LANE, REST_LANE) };
        let mut rest = rest_min;
        while !self.is_closing() {
            let seen = self.checkpointer.turns();
            if lane == 0 {
                self.look_at_directories();
            }
            match self.checkpointer.turn(lane) {
                Turn::Worked => rest = rest_min,
                Turn::Wait { us } => self.checkpointer.park(seen, Duration::from_micros(us).min(rest_min)),
                Turn::Idle => {
                    self.checkpointer.park(seen, rest);
                    rest = (2 * rest).min(rest_max);
                }
            }
        }
    }

    /// What is resident and nobody accounts for (budget invariant 5).
    fn note_resident(&self, unaccounted: &Account) {
        if self.options.program_bytes == 0 {
            return;
        }
        let budget = &self.core.budget;
        // The budget holds what the log's buffers may become.
        let unfilled = budget.used_for(Kind::LogBuffers).saturating_sub(self.core.log.buffer_bytes());
        let accounted = budget.used_bytes() - unaccounted.bytes();
        let resident = resident_bytes() + unfilled;
        let beyond = resident.saturating_sub(accounted);
        unaccounted.hold(beyond, Claim::Forced);
        if beyond > UNACCOUNTED_MAX_BYTES.max(budget.reserve_bytes() / 2) {
            make_allocator_give_back();
        }
    }

    /// What a restart would sort.
    fn note_sorted_together(&self) {
        let schema = self.core.schema.load();
        self.core.budget.set_sorted_together(replay::sorted_together(schema.tables()));
    }
}
