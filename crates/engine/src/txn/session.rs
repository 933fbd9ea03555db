//! A session and the life of its transaction: begin, statements, commit, rollback.
//!
//! | step of commit | why here |
//! |---|---|
//! | compose one delta per row into this session's buffer | the rows are locked: their bytes stay |
//! | reserve room in the log | the last thing that may fail or wait |
//! | announce, draw the cts, stage the record | the write set is locked, so commit order is epoch order |
//! | publish the schema, stamp rows and nodes, release each row's lock with its stamp | the next holder draws a larger cts |
//! | leave | from now on the watermark may pass |

use super::advisory::AdvisoryKeys;
use super::claims::{Awaited, Claimed, SHARE_BYTES, stop_of_asked};
use super::core::{BODY, CHANGED, Core, stop_of};
use super::garbage::{Batch, Garbage, GarbageQueue, Leftover, remove_entry};
use super::load;
use super::locks::{Asked, Mode, Strength, Thing};
use super::reader::Lease;
use super::record;
use super::serial::{Reads, Validation};
use super::sessions::SessionPlace;
use super::version::Node;
use super::wait::WaitToken;
use super::{Committed, Error, Isolation, Stop};
use crate::catalog::{Index, NamespaceId, RoleId, Schema, SequenceState, Table, TableId, TreeKey};
use crate::ids::{Cts, Epoch, RowId, StorageId};
use crate::index::latch;
use crate::mem::prefetch::prefetch_value;
use crate::mem::{Account, ArenaCursor, Claim, Kind, NodeRef};
use crate::planted::{self, Bug, Point};
use crate::schema::{KeyBuf, Row};
use crate::table::{Container, PRIMARY, SessionNo, Slot, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Writes that garbage collection takes over as one item.
const BATCH: usize = 256;
/// What an idle session keeps of its lists, and of its last commit record.
const LISTS_KEPT_BYTES: u64 = 64 << 10;

/// Room for one more in a list; the account grows before the list does.
#[inline]
pub(super) fn room_for_one<T>(list: &mut Vec<T>, account: &Account, claim: Claim) -> Result<(), Error> {
    if list.len() < list.capacity() { Ok(()) } else { grow(list, account, claim) }
}

#[cold]
fn grow<T>(list: &mut Vec<T>, account: &Account, claim: Claim) -> Result<(), Error> {
    let before = list.capacity();
    let more = (before / 2).max(16);
    // While it moves, both are there.
    if !account.take(((before + before + more) * size_of::<T>()) as u64, claim) {
        return Err(Error::OutOfMemory("a transaction's list of changes"));
    }
    list.reserve_exact(more);
    // What the list took before was charged before.
    account.give((2 * before * size_of::<T>()) as u64);
    Ok(())
}

/// A row lock that this transaction holds.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub table: u16,
    pub container: u16,
    pub row: RowId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Insert,
    Update,
    /// A row, or a long value of a deleted row.
    Delete,
    /// A long value that another takes the place of.
    Replace,
}

/// One write: one version node.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub held: Held,
    pub node: NodeRef,
    pub command: u32,
    pub change: Change,
}

impl Write {
    /// What the write leaves behind in its table's storage.
    pub(super) fn garbage(&self, cts: Cts, storage: StorageId) -> Garbage {
        let leftover = match self.change {
            Change::Delete => Leftover::Deleted,
            Change::Replace => Leftover::Replaced,
            Change::Insert | Change::Update => Leftover::Node,
        };
        let Held { container, row, .. } = self.held;
        Garbage::Row { cts, leftover, storage, container, row, node: self.node }
    }
}

/// An update that moved a row in an index.
pub(super) struct KeyChange {
    pub table: Arc<Table>,
    pub index: Arc<Index>,
    pub row: RowId,
    pub old: TreeKey,
    pub new: TreeKey,
    pub command: u32,
}

/// What a transaction's DDL left to do at its end. Its first field is a session's hot one.
#[derive(Default)]
#[repr(C)]
pub(super) struct Ddl {
    /// The transaction's own schema, once it has changed it.
    pub schema: Option<Arc<Schema>>,
    pub created: Vec<StorageId>,
    pub dropped: Vec<StorageId>,
    /// Bulk loads that were begun, and the storages of those that were finished.
    pub loads: Vec<Arc<load::Shared>>,
    pub loaded: Vec<Arc<Store>>,
    /// Sequences that were made, or given a new start, with their states.
    pub sequences: Vec<(u32, Arc<SequenceState>)>,
    /// `schema`, and the length of `dropped`, as the statement found them.
    pub before: (Option<Arc<Schema>>, usize),
}

impl Ddl {
    fn is_unused(&self) -> bool {
        self.before.0.is_none() && self.created.is_empty() && self.dropped.is_empty()
    }
}

/// What this session queued for.
pub(super) enum Pending {
    /// A row, or without a strength the end of whoever has it. The grant of an exclusive lock shows in the slot's head.
    Row {
        held: Held,
        table: Arc<Table>,
        strength: Option<Strength>,
    },
    Table {
        thing: Thing,
        mode: Mode,
    },
}

/// Where the commit of a large transaction stands: fragments staged so far.
#[derive(Default)]
pub(super) struct Fragments {
    txn: u64,
    first_epoch: Epoch,
    /// Held rows already staged.
    done: usize,
    count: u64,
    crc_sum: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Active,
}

/// A connection to the engine: at most one transaction at a time, and the buffers it reuses.
///
/// Of thousands of sessions that take turns each is cold, and every line of it is a miss. So the order counts: what the short ways (`change_once`,
/// `look_up_newest`, `read_integer`) look at is the first line, and which schema holds is at the beginning of the second.
#[repr(C, align(64))]
pub struct Session {
    pub(super) core: Arc<Core>,
    /// Open while other threads read at this session's snapshot.
    pub(super) lease: Option<Arc<Lease>>,
    /// A schema's number and the address of a table that is current in it, and therefore still there.
    pub(super) checked: (u64, usize),
    /// The largest cts that this session's past transactions committed or examined: its next snapshot covers it.
    pub(super) met: Cts,
    /// The core's when `schema` was loaded.
    schema_version: u64,
    pub(super) last_record_bytes: u64,
    pub(super) no: SessionNo,
    pub(super) state: State,
    /// A queue may have this session in it.
    pub(super) waiting: bool,
    /// Whoever commits waits for it at once, and writes the log himself: no other thread is woken for that.
    pub(super) waits_inline: bool,
    // The second line.
    schema: Arc<Schema>,
    pub(super) ddl: Ddl,
    isolation: Isolation,
    read_only: bool,
    /// The statement that runs may change rows of this schema's tables all the same: none but its own session reads them.
    changes_own: Option<NamespaceId>,
    pub(super) nowait: bool,
    /// Who owns what this session makes.
    pub(super) creator: RoleId,
    /// At the durable horizon: nothing read needs waiting for.
    durable_read: bool,
    /// An autocommit read: where it had to wait for a table, it reads as of after that.
    is_single_read: bool,
    /// Nothing but LOCK TABLE has run: the snapshot that the whole transaction reads at is that of the next statement.
    locks_only: bool,
    at_newest: bool,
    pub(super) snapshot: Cts,
    pub(super) command: u32,
    /// That of the snapshot which the whole transaction reads at.
    first_schema: Option<Arc<Schema>>,
    /// The snapshot of the registration that is kept from one autocommit read to the next; zero without one.
    kept: Cts,
    /// The last transaction's table: the next one most likely writes it too, and need not count itself among its users.
    last_table: Option<Arc<Table>>,
    /// The largest cts of any version examined in this transaction.
    pub(super) dependency: Cts,
    /// Tables this transaction writes or locks rows of.
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) held: Vec<Held>,
    pub(super) writes: Vec<Write>,
    pub(super) key_changes: Vec<KeyChange>,
    /// Rows that this transaction shares, and the tables that it has locked: see `claims`.
    pub(super) shares: Vec<(Held, Strength)>,
    pub(super) claims: Vec<Claimed>,
    pub(super) awaited: Vec<Awaited>,
    pub(super) keys: Option<Arc<AdvisoryKeys>>,
    pub(super) pending: Option<Pending>,
    /// Checkpoints this transaction has waited for.
    space_waits: u8,
    /// What a SERIALIZABLE transaction that may write has read.
    pub(super) reads: Option<Box<Reads>>,
    pub(super) cursor: ArenaCursor,
    /// What the lists above take.
    pub(super) account: Account,
    /// Nothing reads at the snapshot until the next statement.
    resting: bool,
    /// The snapshot was ended: the transaction can only roll back.
    lost: bool,
    fragments: Option<Fragments>,
    body: Vec<u8>,
    delta: Vec<u64>,
    old_words: Vec<u64>,
    pub(super) key: KeyBuf,
    /// Set by another thread to end what takes long.
    pub(super) cancelled: Option<Arc<AtomicBool>>,
    /// When that ends by itself.
    pub(super) deadline: Option<Instant>,
    pub(super) row_a: Row,
    pub(super) row_b: Row,
    #[cfg(feature = "planted")]
    drawn_early: Option<Cts>,
    /// The engine with its threads.
    _keep: Option<Arc<dyn Send + Sync>>,
}

const _: () = assert!(std::mem::offset_of!(Session, waits_inline) < 64, "the short ways look at one line");
const _: () = assert!(std::mem::offset_of!(Session, schema) == 64 && std::mem::offset_of!(Session, ddl.schema) < 128);

impl Session {
    /// `None`: every place is taken. `keep` stays alive as long as the session.
    pub(crate) fn new(core: &Arc<Core>, keep: Option<Arc<dyn Send + Sync>>) -> Option<Session> {
        Some(Session {
            core: core.clone(),
            _keep: keep,
            no: core.sessions.claim()?,
            state: State::Idle,
            isolation: Isolation::ReadCommitted,
            read_only: false,
            changes_own: None,
            nowait: false,
            waits_inline: false,
            durable_read: false,
            is_single_read: false,
            locks_only: false,
            at_newest: false,
            snapshot: Cts::ZERO,
            command: 0,
            schema: core.schema.load_full(),
            first_schema: None,
            schema_version: u64::MAX,
            kept: Cts::ZERO,
            checked: (u64::MAX, 0),
            last_table: None,
            creator: RoleId::FIRST,
            dependency: Cts::ZERO,
            met: Cts::ZERO,
            last_record_bytes: 0,
            tables: Vec::new(),
            held: Vec::new(),
            writes: Vec::new(),
            key_changes: Vec::new(),
            ddl: Ddl::default(),
            shares: Vec::new(),
            claims: Vec::new(),
            awaited: Vec::new(),
            keys: None,
            pending: None,
            waiting: false,
            space_waits: 0,
            reads: None,
            cursor: ArenaCursor::default(),
            account: Account::new(&core.budget, Kind::Transactions),
            resting: false,
            lost: false,
            fragments: None,
            body: Vec::new(),
            delta: Vec::new(),
            old_words: Vec::new(),
            key: KeyBuf::default(),
            cancelled: None,
            deadline: None,
            lease: None,
            row_a: Row::default(),
            row_b: Row::default(),
            #[cfg(feature = "planted")]
            drawn_early: None,
        })
    }

    #[inline]
    pub(super) fn place(&self) -> &SessionPlace {
        self.core.sessions.place(self.no)
    }

    pub fn begin(&mut self, isolation: Isolation, read_only: bool) {
        debug_assert!(self.state == State::Idle, "invariant: one transaction at a time");
        self.state = State::Active;
        self.unregister();
        self.place().set_changes_rows(!read_only);
        self.place().begin_phase();
        (self.resting, self.lost) = (false, false);
        self.isolation = isolation;
        (self.read_only, self.changes_own) = (read_only, None);
        (self.durable_read, self.is_single_read) = (false, false);
        self.locks_only = isolation.keeps_snapshot();
        self.at_newest = false;
        self.command = 0;
        self.dependency = Cts::ZERO;
        if isolation.keeps_snapshot() {
            if isolation == Isolation::Serializable && !read_only {
                self.begin_serial();
            }
            self.take_snapshot();
            self.first_schema = Some(self.schema.clone());
        } else {
            self.first_schema = None;
            self.refresh_schema();
        }
    }

    /// A snapshot that covers what this session has seen (what a row lock or an earlier statement has shown may not vanish again), and the schema of
    /// the same moment: a table that was created with rows, or truncated with others changed, is seen with all of it.
    fn take_snapshot(&mut self) {
        let of_serial = self.reads.as_ref().map_or(Cts::ZERO, |reads| reads.least_snapshot());
        let mut at_least = self.met.max(self.dependency).max(of_serial);
        loop {
            self.snapshot = self.place().register(&self.core.log, at_least);
            self.refresh_schema();
            if self.ddl.schema.is_some() || self.dependency <= self.snapshot {
                return self.tell_serial();
            }
            at_least = self.dependency;
        }
    }

    /// Starts an autocommit read: at the durable horizon where that covers what this session has seen, so that it waits
    /// for nothing. The registration of the last one serves as long as horizon and schema have not moved.
    #[inline]
    pub fn begin_read(&mut self) {
        match self.resume_kept() {
            Some(snapshot) => {
                self.dependency = Cts::ZERO;
                self.enter_read(snapshot);
            }
            None => self.begin_read_anew(),
        }
    }

    /// The kept registration's snapshot, if it covers what this session has seen and horizon and schema have not moved. What reads there ends with
    /// `SessionPlace::pause`; without one `begin_read_anew` comes next.
    #[inline]
    pub(super) fn resume_kept(&self) -> Option<Cts> {
        debug_assert!(self.state == State::Idle, "invariant: one transaction at a time");
        let is_kept = self.met.max(self.core.deferred()) <= self.kept
            && self.place().resume(&self.core.log, self.kept)
            && self.has_newest_schema();
        is_kept.then_some(self.kept)
    }

    /// The durable horizon, for a statement that reads newest versions only and is a transaction of its own, if there is a kept registration, the horizon
    /// covers what this session has seen, and the schema has not moved. Either way `SessionPlace::pause` ends it.
    #[inline]
    pub(super) fn resume_newest(&self) -> Option<Cts> {
        debug_assert!(self.state == State::Idle, "invariant: one transaction at a time");
        let horizon = self.place().resume_newest(&self.core.log)?;
        let is_current = self.met.max(self.core.deferred()) <= horizon && self.has_newest_schema();
        is_current.then_some(horizon)
    }

    /// Whether a registration is kept, as far as the session knows: others may have revoked it.
    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        self.kept != Cts::ZERO
    }

    /// Nothing is read, and a kept registration shall not hold the floor down meanwhile: a session that changes rows many times in a row would be the
    /// one that all others' garbage waits for.
    #[inline]
    pub(super) fn follow_horizon(&self) {
        if self.has_kept() {
            let place = self.place();
            place.resume_newest(&self.core.log);
            place.pause();
        }
    }

    #[inline]
    fn enter_read(&mut self, snapshot: Cts) {
        debug_assert!(self.state == State::Idle, "invariant: one transaction at a time");
        self.state = State::Active;
        self.isolation = Isolation::RepeatableRead;
        (self.read_only, self.changes_own) = (true, None);
        (self.durable_read, self.is_single_read, self.locks_only) = (true, true, false);
        self.command = 0;
        self.snapshot = snapshot;
    }

    #[cold]
    fn begin_read_anew(&mut self) {
        let at_least = self.met.max(self.core.deferred());
        (self.resting, self.lost) = (false, false);
        self.place().set_changes_rows(false);
        let Some(snapshot) = self.core.sessions.place(self.no).keep_durable(&self.core.log, at_least) else {
            return self.begin_read_at_newest();
        };
        self.kept = snapshot;
        self.dependency = Cts::ZERO;
        self.refresh_schema();
        if self.dependency > snapshot {
            // A schema that is not durable would show in the answer: a table that was just emptied, or is not there.
            return self.begin_read_at_newest();
        }
        self.enter_read(snapshot);
    }

    fn begin_read_at_newest(&mut self) {
        self.begin(Isolation::RepeatableRead, true);
        (self.is_single_read, self.locks_only) = (true, false);
    }

    /// No snapshot of this session's is in use any more.
    fn unregister(&mut self) {
        self.kept = Cts::ZERO;
        self.place().unregister();
    }

    pub fn in_transaction(&self) -> bool {
        self.state == State::Active
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether any change would be refused.
    pub fn refuses_changes(&self) -> bool {
        self.read_only && self.changes_own.is_none()
    }

    /// The next statement of a read-only transaction may change rows of this schema's tables, if any, which are its session's alone. Nobody else makes
    /// or removes versions of such a row, so that the snapshot of a reader does for its writer.
    pub fn permit_own_changes(&mut self, own: Option<NamespaceId>) {
        self.changes_own = own;
        if own.is_some() {
            self.place().set_changes_rows(true);
        }
    }

    /// Of the transaction that is open, if there is one.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.place().set_changes_rows(!read_only);
        self.read_only = read_only;
        let is_watcher = self.state == State::Active && self.isolation == Isolation::Serializable && !read_only;
        if is_watcher && self.reads.is_none() {
            if self.command > 0 {
                // It was read-only, and read; back at a savepoint it may write again.
                return self.begin_serial_too_late();
            }
            self.begin_serial();
            self.unregister();
            self.place().begin_phase();
            self.take_snapshot();
        }
    }

    /// Starts what the end of a transaction does by itself, as nobody's statement: a read-only one does it too. Nobody else reads what it changes.
    pub fn begin_upkeep(&mut self) {
        self.place().set_changes_rows(true);
        let only_read = std::mem::take(&mut self.read_only) && self.changes_nothing() && self.reads.is_none();
        if only_read && self.isolation.keeps_snapshot() {
            // It was told the truth to its last row, and upkeep reads nothing at the snapshot: that it was ended meanwhile is in nobody's way.
            self.resting = false;
            self.unregister();
            self.place().begin_phase();
            self.take_snapshot();
        }
        self.begin_statement();
    }

    /// Whether the open transaction has changed rows or definitions.
    pub fn has_changed(&self) -> bool {
        self.state == State::Active && !self.changes_nothing()
    }

    fn changes_nothing(&self) -> bool {
        self.writes.is_empty() && self.ddl.schema.is_none()
    }

    /// Starts a statement: a new command number and, in READ COMMITTED, a new snapshot; picks up the current schema.
    pub fn begin_statement(&mut self) {
        let is_first = std::mem::take(&mut self.locks_only) && self.command > 0;
        let has_waited = self.is_single_read && self.waiting;
        self.start_statement();
        self.wake();
        self.at_newest = false;
        if self.isolation == Isolation::ReadCommitted || is_first || has_waited {
            // What is newest need not be durable.
            self.durable_read = false;
            // Whoever is about to end the last statement's snapshot does not end this one's.
            self.unregister();
            self.place().begin_phase();
            self.take_snapshot();
            if is_first || has_waited {
                self.first_schema = Some(self.schema.clone());
            }
        } else if !self.durable_read {
            self.refresh_schema();
        }
    }

    /// As `begin_statement`, for one that finds its rows by `lock_by_key` only, or inserts and reads nothing: in READ COMMITTED it needs no snapshot. That is a line that others
    /// read and write, and a fence.
    pub fn begin_statement_at_newest(&mut self) {
        if self.isolation != Isolation::ReadCommitted {
            return self.begin_statement();
        }
        self.start_statement();
        self.at_newest = true;
        self.leave_ended();
        self.refresh_schema();
    }

    /// Begins anew, with a snapshot, what was begun by `begin_statement_at_newest` and has done nothing yet: it is the same run of the statement.
    pub fn begin_statement_anew(&mut self) {
        if let Some(keys) = &self.keys {
            keys.undo_statement();
        }
        self.begin_statement();
    }

    /// As `begin_statement`, for LOCK TABLE, which reads nothing: who locks tables first sees in them what was committed until then.
    pub fn begin_statement_to_lock(&mut self) {
        if !self.locks_only {
            return self.begin_statement();
        }
        self.start_statement();
        self.unregister();
        self.place().begin_phase();
        self.refresh_schema();
    }

    fn start_statement(&mut self) {
        self.close_lease();
        self.settle_wait();
        if let Some(keys) = &self.keys {
            keys.start_statement();
        }
        self.command += 1;
        if self.ddl.schema.is_some() {
            self.ddl.before = (self.ddl.schema.clone(), self.ddl.dropped.len());
        }
    }

    /// Whether the statement was begun by `begin_statement_at_newest`, and so has no snapshot.
    pub fn is_at_newest(&self) -> bool {
        self.at_newest
    }

    /// Whoever reads at the snapshot has one.
    #[inline]
    pub(super) fn assert_snapshot(&self) {
        debug_assert!(
            !self.at_newest || self.durable_read,
            "invariant: a statement at the newest versions reads none other"
        );
    }

    /// Only the last statement's snapshot was ended: the next one has its own.
    fn leave_ended(&mut self) {
        if self.place().is_ended() {
            self.unregister();
            self.place().begin_phase();
        }
    }

    /// Reads at the snapshot again, if there is one that was not ended meanwhile.
    fn wake(&mut self) {
        if !std::mem::take(&mut self.resting) || self.place().begin_reading() {
            return;
        }
        // Whoever reads without asking `check_snapshot` reads at a new one, and learns it at the commit at the latest.
        self.lost = true;
        self.unregister();
        self.place().begin_phase();
        self.take_snapshot();
    }

    /// The statement is over and the transaction goes on: until the next statement its snapshot may be ended, or has none.
    pub fn rest(&mut self) {
        self.close_lease();
        // Before the first statement a kept snapshot is there already, and only LOCK TABLE lets go of it.
        if self.isolation == Isolation::ReadCommitted || self.locks_only && self.command > 0 {
            self.unregister();
        } else {
            self.place().rest();
            self.resting = true;
        }
    }

    /// 72000 if this transaction's snapshot was ended to make room for versions: it can only roll back. A running statement asks now and then.
    pub fn check_snapshot(&self) -> Result<(), Error> {
        if self.lost || self.place().is_ended() { Err(Error::SnapshotTooOld) } else { Ok(()) }
    }

    fn refresh_schema(&mut self) {
        // After registering: a storage that this schema names and a later one does not is kept by the registration.
        if self.ddl.schema.is_none() {
            // Read before the schema, after which it grows: never newer than what is loaded.
            let version = self.core.schema_version.load(Ordering::Acquire);
            if version != self.schema_version {
                self.schema = self.core.schema.load_full();
                self.schema_version = version;
                self.last_table = None;
            }
            // Read after the schema, before which it is stored: never older than the schema's own.
            self.dependency = self.dependency.max(self.core.schema_cts());
        }
    }

    /// The transaction's own schema starts as what is current under the DDL lock; undoing this statement leads back to that.
    pub(super) fn begin_schema(&mut self) {
        // What others have defined since the statement began is theirs: see `is_renewed`.
        self.refresh_schema();
        let current = self.schema.clone();
        self.ddl.before = (Some(current.clone()), self.ddl.dropped.len());
        self.ddl.schema = Some(current);
    }

    /// Whether some table may be renewed: nearly always none is.
    pub fn may_be_renewed(&self) -> bool {
        let first = self.first_schema.as_ref().filter(|_| !self.durable_read && self.isolation.keeps_snapshot());
        first.is_some_and(|first| !Arc::ptr_eq(first, self.schema()))
    }

    /// Whether the snapshot that this whole transaction reads at cannot be read by the table's definition of now: others emptied the table or wrote it
    /// anew, so that the snapshot sees no row of it, or promised of its rows what need not hold of the snapshot's.
    pub fn is_renewed(&self, table: &Table) -> bool {
        if !self.may_be_renewed() {
            return false;
        }
        let Some(before) = self.first_schema.as_ref().and_then(|first| first.table_by_id(table.id)) else {
            return false;
        };
        let is_other = before.store.id != table.store.id && !self.ddl.dropped.contains(&before.store.id);
        // As others left it: what this transaction promised it has seen to.
        let is_stricter = || self.schema.table_by_id(table.id).is_some_and(|now| now.promises_more_than(before));
        is_other || is_stricter()
    }

    /// The schema as this transaction has changed it.
    pub fn own_schema(&self) -> Option<&Arc<Schema>> {
        self.ddl.schema.as_ref()
    }

    /// The schema this statement sees, own uncommitted DDL included.
    pub fn schema(&self) -> &Arc<Schema> {
        self.ddl.schema.as_ref().unwrap_or(&self.schema)
    }

    /// Starts loading what `schema` looks at.
    #[inline]
    pub fn load_schema_ahead(&self) {
        prefetch_value(&self.schema);
    }

    /// Whether [`Session::schema`] is the newest committed one, outside a transaction.
    #[inline]
    pub fn has_newest_schema(&self) -> bool {
        self.core.schema_version.load(Ordering::SeqCst) == self.schema_version
    }

    /// Whoever sets the flag ends what takes long with 57014: the building of an index. It is cleared where it has done so.
    pub fn cancel_with(&mut self, flag: Arc<AtomicBool>) {
        self.cancelled = Some(flag);
    }

    /// What takes long ends with 57014 at this time.
    pub fn end_by(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Whether the caller blocks in `DurableWait::wait` after each commit. If it does not after all, the commit is durable some milliseconds
    /// later than it could be.
    pub fn set_waits_inline(&mut self, waits_inline: bool) {
        self.waits_inline = waits_inline;
    }

    pub fn set_nowait(&mut self, nowait: bool) {
        self.nowait = nowait;
    }

    pub fn dependency(&self) -> Cts {
        let lent = self.lease.as_ref().map_or(Cts::ZERO, |lease| lease.dependency());
        if self.durable_read { Cts::ZERO } else { self.dependency.max(lent) }
    }

    /// Nobody else reads at this session's snapshot any more.
    pub(super) fn close_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.dependency = self.dependency.max(lease.close());
        }
    }

    /// Bytes of the last commit's record with its header.
    pub fn last_record_bytes(&self) -> u64 {
        self.last_record_bytes
    }

    pub fn acknowledged_deferred(&mut self, cts: Cts) {
        // Only its epoch counts: what is durable is so to the end of one. So this word is written once in an epoch, not by every commit.
        let end = Cts::last_of(cts.epoch());
        if self.core.deferred() < end {
            self.core.deferred.fetch_max(end.0, Ordering::SeqCst);
        }
    }

    pub(super) fn needs_write(&self) -> Result<(), Stop> {
        debug_assert!(self.state == State::Active, "invariant: writes happen in a transaction");
        if self.read_only { Err(Error::ReadOnly.into()) } else { Ok(()) }
    }

    // ---- tables

    /// This transaction writes the table: DDL on it waits from now on. Gives the table's number in `tables`.
    pub(super) fn enter(&mut self, table: &Arc<Table>) -> Result<u16, Stop> {
        self.enter_in(table, false)
    }

    /// The same for who writes its rows, or `only_locks` some of them.
    pub(super) fn enter_in(&mut self, table: &Arc<Table>, only_locks: bool) -> Result<u16, Stop> {
        if let Some(at) = self.tables.iter().position(|t| Arc::ptr_eq(t, table)) {
            if !self.claims.is_empty() && !only_locks && self.only_locks_rows(table.id) {
                self.claim_table(table, Mode::of_writer())?;
            }
            return Ok(at as u16);
        }
        if self.changes_own != Some(table.def.namespace) {
            self.needs_write()?;
        }
        // Under another definition of the table it may have written rows.
        let is_known = self.tables.iter().any(|known| known.id == table.id);
        // Announce first, then look at the gate; who closes the gate looks at the announcements afterwards.
        self.place().announce_table(table.id);
        if !table.gate.is_open() {
            self.withdraw(table.id);
            self.claim_table(table, if only_locks { Mode::of_locker(is_known) } else { Mode::of_writer() })?;
            // Whoever wants the gate closed waits for the claim.
            self.place().announce_table(table.id);
        }
        if !self.is_current(table) {
            self.withdraw(table.id);
            return Err(Stop::Wait(WaitToken::ready()));
        }
        #[cfg(feature = "planted")]
        if planted::is(Bug::DrawBeforeLock) && self.tables.is_empty() {
            let mut worker = self.core.worker(self.no.0 as usize);
            self.drawn_early = worker.reserve(0).ok().map(|reserved| reserved.announce().draw());
        }
        let kept = self.last_table.take_if(|kept| Arc::ptr_eq(kept, table));
        self.tables.push(kept.unwrap_or_else(|| table.clone()));
        Ok((self.tables.len() - 1) as u16)
    }

    /// Whether the table is that of the schema which writers see now: an older one may lack an index.
    pub(super) fn is_current(&mut self, table: &Arc<Table>) -> bool {
        if Arc::ptr_eq(table, &self.core.system) {
            return true;
        }
        let same = |s: &Schema| s.table_by_id(table.id).is_some_and(|t| Arc::ptr_eq(t, table));
        if let Some(own) = &self.ddl.schema {
            return same(own);
        }
        let seen = (self.core.schema_version.load(Ordering::SeqCst), Arc::as_ptr(table).addr());
        if self.checked == seen {
            return true;
        }
        let is_current = same(&self.core.schema.load());
        if is_current {
            self.checked = seen;
        }
        is_current
    }

    /// Takes an announcement back. DDL that saw it meanwhile waits for this session: it is told to look again, before this session waits for it.
    fn withdraw(&self, table: TableId) {
        let place = self.place();
        place.withdraw_table(table);
        if !self.tables.iter().any(|t| t.id == table) {
            self.tell_if_waited();
        }
    }

    /// Whoever waits for this session's end looks again whether it is still in the way, but for who waits for a table that it is at.
    pub(super) fn tell_if_waited(&self) {
        let place = self.place();
        if place.stay.take_waited() && self.core.locks.tell_left(self.no, |table| place.writes_table(table)) {
            place.stay.say_waited();
        }
    }

    // ---- waiting

    /// Waits for a session's transaction to end (DDL), while it is in the way; not for one that only locks rows of `table`.
    pub(super) fn wait_for_session(
        &mut self,
        holder: SessionNo,
        table: Option<TableId>,
        is_in_the_way: impl Fn() -> bool,
    ) -> Stop {
        if self.nowait {
            return Error::LockNotAvailable.into();
        }
        self.waiting = true;
        let core = self.core.clone();
        let place = core.sessions.place(holder);
        let serial = place.serial();
        let asked = core.locks.ask_end(self.no, holder, table, || {
            place.stay.say_waited();
            place.serial() != serial || !is_in_the_way()
        });
        stop_of_asked(asked)
    }

    /// Waits for the end of the transaction that has the row (unique checks).
    pub(super) fn wait_for_owner(&mut self, held: Held) -> Stop {
        let table = self.tables[usize::from(held.table)].clone();
        let slot = container(&table, held.container).slot(held.row);
        let asked = self.core.locks.look_on(self.no, held.row, slot);
        if matches!(asked, Asked::Queued(_)) {
            self.waiting = true;
            self.pending = Some(Pending::Row { held, table, strength: None });
        }
        stop_of_asked(asked)
    }

    /// After a wait, or instead of one: leaves the queue, or takes note of the lock that was handed over.
    fn settle_wait(&mut self) {
        if !std::mem::take(&mut self.waiting) {
            return;
        }
        let pending = self.pending.take();
        let core = self.core.clone();
        core.locks.leave(self.no, |row| match &pending {
            Some(Pending::Row { held, table, .. }) if held.row == row => container(table, held.container).slot(row),
            _ => panic!("invariant: who queues for a row has it pending"),
        });
        match pending {
            None => self.keys.iter().for_each(|keys| keys.settle()),
            Some(Pending::Table { thing, mode }) => self.settle_claim(thing, mode),
            Some(Pending::Row { held, table, strength: Some(strength) }) if strength.is_shared() => {
                if core.locks.has(self.no, Thing::Row(held.row), strength.into(), false) {
                    let held = self.of_table(held, table);
                    self.shares.push((held, strength));
                    self.account.take(SHARE_BYTES, Claim::Forced);
                }
            }
            Some(Pending::Row { held, table, .. }) => {
                let granted = container(&table, held.container).slot(held.row).latch().head().owner() == Some(self.no);
                let known = self.held.iter().any(|h| h.row == held.row && h.container == held.container);
                if granted && !known {
                    // The lock is ours already: there is no refusing it.
                    let room = room_for_one(&mut self.held, &self.account, Claim::Forced);
                    room.expect("a forced claim is granted");
                    let held = self.of_table(held, table);
                    self.held.push(held);
                }
            }
        }
    }

    /// What was waited for, with its table's number in `tables`.
    fn of_table(&mut self, held: Held, table: Arc<Table>) -> Held {
        let at = self.tables.iter().position(|t| Arc::ptr_eq(t, &table)).unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        });
        Held { table: at as u16, ..held }
    }

    /// The transaction ends in full, not as a plain read does.
    pub(super) fn kept_is_void(&mut self) {
        if self.durable_read {
            self.kept = Cts::ZERO;
        }
    }

    /// A full log may have room again after a checkpoint; a transaction waits for two, because the first may have begun before.
    pub(super) fn or_wait_for_space(&mut self, stop: Stop) -> Stop {
        match stop {
            Stop::Error(Error::LogFull) if self.space_waits < 2 => match self.core.space.ask() {
                Some(token) => {
                    self.space_waits += 1;
                    Stop::Wait(token)
                }
                None => stop,
            },
            other => other,
        }
    }

    pub fn abandon_wait(&mut self) {
        self.settle_wait();
    }

    // ---- ending

    /// Commits (pre-commit: visible to others, durable later). On `Stop::Wait` call it again after the wait; on an error
    /// the transaction is rolled back.
    #[inline]
    pub fn commit(&mut self) -> Result<Committed, Stop> {
        if self.is_plain_read() {
            self.end_read();
            return Ok(Committed { cts: Cts::ZERO });
        }
        self.commit_changes()
    }

    /// Ends what `begin_read` began, if that is as simple as it mostly is: nothing that was read needs to be waited for. False: `commit` is to end it.
    #[inline]
    pub fn end_plain_read(&mut self) -> bool {
        let is_plain = self.is_plain_read();
        if is_plain {
            self.end_read();
        }
        is_plain
    }

    /// Whether its registration may stay. One that rests does not say that it reads: the next one would rely on that.
    #[inline]
    fn is_plain_read(&self) -> bool {
        self.durable_read && self.kept == self.snapshot && !self.resting && self.lease.is_none()
    }

    /// Ends an autocommit read at the durable horizon: it has seen nothing above that, holds nothing, and its registration stays.
    #[inline]
    fn end_read(&mut self) {
        debug_assert!(self.held.is_empty() && self.tables.is_empty(), "invariant: a durable read locks nothing");
        self.state = State::Idle;
        self.durable_read = false;
        self.nowait = false;
        self.core.sessions.place(self.no).pause();
    }

    fn commit_changes(&mut self) -> Result<Committed, Stop> {
        self.close_lease();
        self.settle_wait();
        let changes = !self.changes_nothing();
        // What only read was told the truth to its last row. In READ COMMITTED it was a statement's snapshot, not the transaction's.
        let is_ended = changes && self.isolation.keeps_snapshot() && self.place().is_ended();
        // Validation reads at the snapshot: from here on nobody takes the versions away that it leads to.
        let is_ended = is_ended || self.reads.is_some() && self.resting && !self.place().begin_reading();
        if self.lost || is_ended {
            self.rollback();
            return Err(Error::SnapshotTooOld.into());
        }
        if !self.ddl.sequences.is_empty()
            && let Err(stop) = self.write_sequences()
        {
            self.rollback();
            return Err(stop);
        }
        if !changes {
            if !self.was_told_the_truth() {
                self.rollback();
                return Err(Error::ReadChanged.into());
            }
            let committed = Committed { cts: self.dependency() };
            self.discard_created();
            self.release_all();
            self.end();
            return Ok(committed);
        }
        self.body = BODY.take();
        let written = self.write_commit();
        self.leave_body();
        match written {
            Ok(cts) => {
                self.end();
                Ok(Committed { cts })
            }
            Err(stop) => match self.or_wait_for_space(stop) {
                Stop::Wait(token) => Err(Stop::Wait(token)),
                error => {
                    self.rollback();
                    Err(error)
                }
            },
        }
    }

    /// Leaves the record's buffer to the thread's next commit, unless it is a large one.
    fn leave_body(&mut self) {
        let body = std::mem::take(&mut self.body);
        if body.capacity() <= LISTS_KEPT_BYTES as usize {
            BODY.set(body);
        }
    }

    fn write_commit(&mut self) -> Result<Cts, Stop> {
        self.check_reads()?;
        let base = self.base();
        self.compose(base, self.core.log.bulk_frame_limit_bytes() as usize - 64)?;
        let core = &*self.core;
        let mut worker = core.worker(self.no.0 as usize);
        let reserved = worker.reserve(self.body.len() as u64 + 64).map_err(stop_of)?;
        let (own_schema, is_own_schema) = (self.ddl.schema.as_ref(), self.ddl.schema.is_some());
        let schema = own_schema.unwrap_or(&self.schema);
        let validation = Validation { core, me: self.no, schema, is_own_schema, snapshot: self.snapshot };
        if let Some(reads) = &mut self.reads
            && !validation.holds_so_far(reads)
        {
            return Err(Error::ReadChanged.into());
        }
        let noted = self.note_changes();
        let mut announced = reserved.announce();
        let cts = announced.draw();
        if let Some(noted) = &noted {
            noted.say(cts);
        }
        if let Some(reads) = &mut self.reads
            && !validation.holds(reads, cts, noted.as_ref())
        {
            noted.iter().for_each(|noted| noted.abandon());
            announced.leave();
            return Err(Error::ReadChanged.into());
        }
        #[cfg(feature = "planted")]
        let (cts, base) = self.drawn_early.take().map_or((cts, base), |early| (early, base.min(early)));
        planted::turn(Point::Drawn);
        let header = commit_header(cts, base, self.fragments.as_ref());
        let epoch = announced.epoch();
        announced.stage(epoch, &[header.bytes(), &self.body]);
        planted::turn(Point::Staged);
        publish_schema(core, &mut self.ddl, &mut self.schema, cts);
        let waited = stamp(core, &self.held, &self.tables, cts);
        planted::turn(Point::Stamped);
        match self.waits_inline {
            true => announced.leave_quietly(),
            false => announced.leave(),
        }
        drop(worker);
        self.last_record_bytes = (4 + header.bytes().len() + self.body.len()) as u64;
        core.sessions.place(self.no).count_commit(self.last_record_bytes, self.held.len() as u64);
        self.met = self.met.max(cts);
        if let Some(first) = self.fragments.as_ref().map(|f| f.first_epoch) {
            core.fragmented.lock().push((first, cts));
        }
        self.leave_garbage(cts);
        if waited {
            self.hand_over_waited();
        }
        self.held.clear();
        Ok(cts)
    }

    /// Before anything is prepared: whether what is known to have changed lets the transaction commit.
    fn check_reads(&mut self) -> Result<(), Error> {
        let Some(mut reads) = self.reads.take() else { return Ok(()) };
        let holds = self.validation().holds_so_far(&mut reads);
        self.reads = Some(reads);
        if holds { Ok(()) } else { Err(Error::ReadChanged) }
    }

    /// Who changes nothing has read at its snapshot. If an error told it of something newer, what it read must hold then, too.
    fn was_told_the_truth(&mut self) -> bool {
        let Some(mut reads) = self.reads.take() else { return true };
        let validation = self.validation();
        let holds = !reads.needs_validation()
            || (validation.holds_so_far(&mut reads) && validation.holds(&mut reads, Cts::MAX, None));
        self.reads = Some(reads);
        holds
    }

    fn validation(&self) -> Validation<'_> {
        let is_own_schema = self.ddl.schema.is_some();
        Validation { core: &self.core, me: self.no, schema: self.schema(), is_own_schema, snapshot: self.snapshot }
    }

    /// Composes the record's body. What exceeds one frame is staged as fragments first.
    fn compose(&mut self, base: Cts, limit: usize) -> Result<(), Stop> {
        let mut at = self.fragments.as_ref().map_or(0, |f| f.done);
        self.body.clear();
        while at < self.held.len() {
            let before = self.body.len();
            self.put_row(at, base);
            if self.body.len() > limit {
                assert!(before > 0, "invariant: one row's delta fits a frame");
                self.body.truncate(before);
                self.stage_fragment(base, at)?;
                continue;
            }
            at += 1;
        }
        Ok(())
    }

    fn put_row(&mut self, at: usize, base: Cts) {
        let held = self.held[at];
        let container = container(&self.tables[usize::from(held.table)], held.container);
        let slot = container.slot(held.row);
        // This session holds the lock: only the waited bit, and the chain below its own nodes, may change meanwhile.
        let head = slot.head();
        if !head.is_dirty() {
            return;
        }
        let node = Node::new(&self.core.arena, head.node);
        let generation = self.core.pages.generation(held.row.page());
        let behind = |prev_cts: Cts| {
            let behind = base.0.checked_sub(prev_cts.0);
            behind.expect("invariant: the base is at or above the version that each row had")
        };
        match node.prev_cts() {
            Some(prev_cts) if node.is_fresh() => {
                self.old_words.resize(container.persistent_words(), 0);
                self.old_words.iter_mut().enumerate().for_each(|(i, word)| *word = slot.load(i));
                record::put_new_record(&mut self.body, held.row, generation, behind(prev_cts), &self.old_words);
            }
            Some(prev_cts) => {
                let mut changed = CHANGED.take();
                changed.clear();
                node.each(|i, xor| changed.push((i as u16, xor)));
                record::put_changed(&mut self.body, held.row, generation, behind(prev_cts), &changed);
                CHANGED.set(changed);
            }
            None => {
                self.delta.clear();
                self.delta.resize(container.persistent_words(), 0);
                let prev_cts = compose_chain(&self.core, slot, head.node, &mut self.delta);
                record::put_operation(&mut self.body, held.row, generation, behind(prev_cts), &self.delta);
            }
        }
    }

    /// What `prev_cts` are told against: at or above each of them. A short transaction's largest; to a long one the clock serves as well.
    fn base(&self) -> Cts {
        const LOOKED_AT_MAX: usize = 64;
        if self.held.len() > LOOKED_AT_MAX {
            // Each was drawn before its row was locked.
            return self.core.log.now();
        }
        let committed = |held: &Held| {
            let slot = container(&self.tables[usize::from(held.table)], held.container).slot(held.row);
            // The slot's own cts changes at pre-commit only.
            Cts(slot.load(0))
        };
        self.held.iter().map(committed).fold(Cts::ZERO, Cts::max)
    }

    /// Stages the body so far (rows up to `done`) as a fragment.
    fn stage_fragment(&mut self, base: Cts, done: usize) -> Result<(), Stop> {
        let core = self.core.clone();
        let incarnation = core.log.incarnation().0;
        let fragments = self.fragments.get_or_insert_with(|| Fragments {
            txn: incarnation << 32 | core.large_txn.fetch_add(1, Ordering::Relaxed),
            ..Fragments::default()
        });
        let mut worker = core.worker(self.no.0 as usize);
        let reserved = worker.reserve_bulk(self.body.len() as u64 + 64).map_err(stop_of)?;
        let mut header = vec![record::FRAGMENT];
        header.extend_from_slice(&fragments.txn.to_le_bytes());
        header.extend_from_slice(&base.0.to_le_bytes());
        let mut announced = reserved.announce();
        let epoch = announced.epoch();
        if fragments.count == 0 {
            fragments.first_epoch = epoch;
            core.sessions.place(self.no).set_first_fragment(Some(epoch));
        }
        announced.stage_bulk(epoch, &[&header, &self.body]);
        announced.leave();
        fragments.done = done;
        fragments.count += 1;
        fragments.crc_sum = fragments.crc_sum.wrapping_add(crc32c::crc32c(&self.body));
        self.body.clear();
        Ok(())
    }

    fn leave_garbage(&mut self, cts: Cts) {
        let core = &*self.core;
        let mut garbage = core.garbage_of(self.no);
        leave_writes(&mut garbage, &mut self.writes, &self.tables, &self.account, cts);
        for change in self.key_changes.drain(..) {
            let KeyChange { table, index, row, old, .. } = change;
            if !planted::is(Bug::ForgetKey) {
                garbage.push_back(Garbage::Key { cts, table, index, key: old, row });
            }
        }
        // A DDL statement that waited and ran again left the storage of its first try.
        let unused = self.ddl.created.drain(..).filter(|&c| !self.schema.tables().any(|t| t.store.id == c));
        for storage in self.ddl.dropped.drain(..).chain(unused) {
            garbage.push_back(Garbage::Storage { cts, storage });
        }
        core.collect_due(&mut garbage);
    }

    /// Rows that someone queues for: their locks go to the next in line.
    fn hand_over_waited(&mut self) {
        for at in 0..self.held.len() {
            let held = self.held[at];
            let container = container(&self.tables[usize::from(held.table)], held.container);
            let slot = container.slot(held.row);
            let head = slot.latch().head();
            if head.owner() == Some(self.no) {
                self.core.locks.hand_over(held.row, slot);
            }
        }
    }

    /// Releases locks of rows that were not written (or whose writes are undone).
    fn release_all(&mut self) {
        self.release_from(0);
    }

    /// The same of the rows that were locked since there were so many.
    pub(super) fn release_from(&mut self, kept: usize) {
        values_first(&self.held[kept..]).for_each(|held| self.release(*held));
        self.held.truncate(kept);
    }

    pub(super) fn release(&self, held: Held) {
        let slot = container(&self.tables[usize::from(held.table)], held.container).slot(held.row);
        let mut latched = slot.latch();
        let head = latched.head();
        if head.is_waited() {
            drop(latched);
            self.core.locks.hand_over(held.row, slot);
        } else {
            latched.set_head(head.with_dirty(false).with_owner(None));
        }
    }

    fn end(&mut self) {
        self.state = State::Idle;
        self.nowait = false;
        self.space_waits = 0;
        self.end_serial();
        self.met = self.met.max(self.dependency);
        self.durable_read = false;
        self.unregister();
        let place = self.core.sessions.place(self.no);
        if self.fragments.take().is_some() {
            place.set_first_fragment(None);
        }
        self.core.arena.park(&mut self.cursor, self.core.thread(self.no.0 as usize));
        self.release_claims();
        self.give_memory_back();
        let place = self.core.sessions.place(self.no);
        if self.tables.is_empty() {
            return;
        }
        let is_plain = self.ddl.is_unused();
        let tables = self.tables.len();
        if is_plain {
            // It is of this session's schema, which keeps it too.
            self.last_table = self.tables.pop();
        } else {
            self.ddl = Ddl::default();
        }
        self.tables.clear();
        if place.end(tables) {
            self.core.locks.tell_end(self.no);
        }
    }

    /// A large transaction's lists do not stay with an idle session.
    fn give_memory_back(&mut self) {
        if self.account.bytes() > LISTS_KEPT_BYTES {
            (self.held, self.writes, self.key_changes) = Default::default();
            self.account.hold(0, Claim::Forced);
        }
    }

    /// Memory that waits for the next transaction, outside one.
    pub fn spare_bytes(&self) -> usize {
        self.account.bytes() as usize + self.row_a.spare_bytes() + self.row_b.spare_bytes()
    }

    /// Gives it back.
    pub fn give_spare_back(&mut self) {
        if self.in_transaction() {
            return;
        }
        (self.held, self.writes, self.key_changes) = Default::default();
        self.account.hold(0, Claim::Forced);
        (self.row_a, self.row_b) = Default::default();
    }

    /// Undoes the current statement's changes; its row locks stay.
    pub fn rollback_statement(&mut self) {
        self.close_lease();
        let command = self.command;
        self.keys.iter().for_each(|keys| keys.undo_statement());
        self.undo(|c| c == command);
        if self.ddl.schema.is_some() {
            let (schema, dropped) = &self.ddl.before;
            self.ddl.schema.clone_from(schema);
            self.ddl.dropped.truncate(*dropped);
        }
    }

    pub fn rollback(&mut self) {
        self.close_lease();
        self.settle_wait();
        self.ddl.loads.drain(..).for_each(|load| load.close());
        self.undo(|_| true);
        self.release_all();
        self.discard_created();
        self.end();
    }

    /// Storages that no committed schema names.
    fn discard_created(&mut self) {
        if self.ddl.created.is_empty() {
            return;
        }
        let cts = self.core.log.now();
        let mut garbage = self.core.garbage_of(self.no);
        self.ddl.created.drain(..).for_each(|storage| garbage.push_back(Garbage::Storage { cts, storage }));
    }

    /// Undoes writes of the chosen commands, newest first, and takes their entries out of the indexes.
    pub(super) fn undo(&mut self, chosen: impl Fn(u32) -> bool) {
        let mut entries: Vec<(Arc<Table>, Arc<Index>, TreeKey, RowId)> = Vec::new();
        while let Some(change) = self.key_changes.pop_if(|c| chosen(c.command)) {
            entries.push((change.table, change.index, change.new, change.row));
        }
        // A row whose keys changed keeps its slot until those entries are gone; a long list of inserts is worked off one by one.
        let at_once = entries.is_empty();
        let mut slots = Vec::new();
        let mut near = self.held.len();
        let first = self.writes.partition_point(|w| !chosen(w.command));
        let kept = match first {
            0 => Vec::new(),
            _ => {
                let undone = self.writes.split_off(first);
                std::mem::replace(&mut self.writes, undone)
            }
        };
        for at in (0..self.writes.len()).rev() {
            let write = self.writes[at];
            let table = self.tables[usize::from(write.held.table)].clone();
            if write.change == Change::Insert && write.held.container == PRIMARY {
                self.entries_of(&table, write.held.row, &mut entries);
            }
            self.undo_write(&table, &write);
            if write.change == Change::Insert {
                slots.push(write.held);
            }
            if at_once {
                self.forget_inserted(&mut entries, &mut slots, &mut near);
            }
        }
        self.forget_inserted(&mut entries, &mut slots, &mut near);
        // Whoever still walks one of the nodes learns it from the row's fold word, and begins again.
        let mut freed = self.core.arena.freed();
        self.writes.drain(..).for_each(|write| freed.add(write.node));
        drop(freed);
        if !kept.is_empty() {
            self.writes = kept;
        }
    }

    /// `near`: where the last undone insert's lock was among `held`.
    fn forget_inserted(
        &mut self,
        entries: &mut Vec<(Arc<Table>, Arc<Index>, TreeKey, RowId)>,
        slots: &mut Vec<Held>,
        near: &mut usize,
    ) {
        for (table, index, key, row) in entries.drain(..) {
            remove_entry(&self.core, &table, &index, &key, row);
        }
        for held in slots.drain(..) {
            *near = self.free_inserted(held, *near);
        }
    }

    /// The entries that an inserted row's own version has in its table's indexes.
    fn entries_of(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        entries: &mut Vec<(Arc<Table>, Arc<Index>, TreeKey, RowId)>,
    ) {
        let primary = &table.store.primary;
        primary.slot(row).copy(self.row_a.start_copy(primary.persistent_words()));
        for index in &table.indexes {
            self.core.fetch_key_columns(table, index, &mut self.row_a);
            let key = super::garbage::key_of(index, &table.layout, &self.row_a, &mut self.key);
            entries.push((table.clone(), index.clone(), key, row));
        }
    }

    fn undo_write(&mut self, table: &Table, write: &Write) {
        let container = container(table, write.held.container);
        let words = container.persistent_words();
        let node = Node::new(&self.core.arena, write.node);
        self.old_words.resize(words, 0);
        let mut latched = container.slot(write.held.row).latch();
        let head = latched.head();
        assert_eq!(head.node, write.node, "invariant: a transaction's last write of a row heads its chain");
        latched.copy(&mut self.old_words);
        let cts = self.old_words[0];
        node.undo(&mut self.old_words);
        self.old_words[0] = cts;
        for (i, &word) in self.old_words.iter().enumerate() {
            latched.set(i, word);
        }
        let dirty = node.prev_cts().is_none();
        let word = self.core.folds.of(write.held.row);
        let seen = latch::latch(word);
        latched.set_head(head.with_node(node.next()).with_dirty(dirty));
        latch::unlatch(word, seen, true);
    }

    /// An undone insert's slot: nobody else ever saw a row in it. Gives where its lock was.
    fn free_inserted(&mut self, held: Held, near: usize) -> usize {
        let is_it = |at: usize| self.held[at].row == held.row && self.held[at].container == held.container;
        let at = position_near(near, self.held.len(), is_it);
        let at = at.expect("invariant: who inserts a row holds its lock");
        let slot = container(&self.tables[usize::from(held.table)], held.container).slot(held.row);
        let mut latched = slot.latch();
        let head = latched.head();
        if head.is_waited() {
            drop(latched);
            // Not to an heir: the slot goes back, and the next insert into it finds it nobody's.
            self.core.locks.dissolve(held.row, slot);
        } else {
            latched.set_head(head.with_dirty(false).with_owner(None));
        }
        // A lock that stays comes here: an update's, say. Those of inserts that are to be undone yet are before it.
        self.held.swap_remove(at);
        self.core.free_slot(container(&self.tables[usize::from(held.table)], held.container), held.row);
        at
    }
}

/// Which of `len` places is the one, asked from `near` outward. Inserts are undone in the reverse order of their locks, but for those of one row: the
/// next lock is a few places from the last, however many locks of updates stay behind it.
fn position_near(near: usize, len: usize, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
    let both_ways = (0..len.max(near)).flat_map(|far| [near.checked_sub(far + 1), near.checked_add(far)]);
    both_ways.flatten().filter(|&at| at < len).find(|&at| is_it(at))
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.state == State::Active {
            self.rollback();
        }
        self.settle_wait();
        if let Some(keys) = &self.keys {
            keys.end_transaction();
            keys.unlock_all();
        }
        self.core.locks.set_name(self.no, None);
        self.unregister();
        self.core.arena.release(&mut self.cursor);
        self.core.sessions.release(self.no);
    }
}

/// Hands a committed transaction's writes to garbage collection: a long list as it is.
fn leave_writes(
    garbage: &mut GarbageQueue,
    writes: &mut Vec<Write>,
    tables: &[Arc<Table>],
    account: &Account,
    cts: Cts,
) {
    if writes.len() < BATCH {
        for write in writes.drain(..) {
            garbage.push_back(write.garbage(cts, tables[usize::from(write.held.table)].store.id));
        }
        return;
    }
    let bytes = (writes.capacity() * size_of::<Write>()) as u64;
    let of_batch = account.sibling();
    // Moved, not grown: what one gives back the other takes.
    account.give(bytes.min(account.bytes()));
    of_batch.take(bytes, Claim::Forced);
    let storages = tables.iter().map(|t| t.store.id).collect();
    garbage.push_back(Garbage::Batch(Box::new(Batch::new(cts, storages, std::mem::take(writes), of_batch))));
}

/// The order in which locks go: long values before rows. Whoever gets a row's lock next takes the locks of the row's values without asking.
fn values_first(held: &[Held]) -> impl Iterator<Item = &Held> {
    let is_row = |held: &&Held| held.container == PRIMARY;
    held.iter().filter(move |h| !is_row(h)).chain(held.iter().filter(is_row))
}

pub(super) fn container(table: &Table, number: u16) -> &Container {
    table.store.container(number).expect("invariant: a write names a container of its table")
}

fn publish_schema(core: &Core, ddl: &mut Ddl, current: &mut Arc<Schema>, cts: Cts) {
    // Before the schema that leads there.
    ddl.loaded.drain(..).for_each(|store| store.set_visible_from(cts));
    Session::publish_sequences(&mut ddl.sequences, cts);
    if let Some(schema) = ddl.schema.take() {
        core.schema_cts.store(cts.0, Ordering::SeqCst);
        core.schema.store(schema.clone());
        core.rights_version.store(schema.rights_version(), Ordering::SeqCst);
        core.schema_version.fetch_add(1, Ordering::SeqCst);
        *current = schema;
    }
}

/// Takes up what one transaction's several writes of a row come to; gives the cts of the version below.
fn compose_chain(core: &Core, slot: Slot<'_>, newest: NodeRef, delta: &mut [u64]) -> Cts {
    let mut node = Node::new(&core.arena, newest);
    loop {
        if node.is_fresh() {
            delta.iter_mut().enumerate().for_each(|(i, word)| *word = slot.load(i));
        } else {
            node.each(|i, xor| delta[i] ^= xor);
        }
        match node.prev_cts() {
            Some(cts) => return cts,
            None => node = Node::new(&core.arena, node.next()),
        }
    }
}

/// Stamps every written row and its nodes, and releases each lock with the stamp, unless someone queues for it: true if
/// there is such a row.
fn stamp(core: &Core, held: &[Held], tables: &[Arc<Table>], cts: Cts) -> bool {
    let mut waited = false;
    for held in values_first(held) {
        let container = container(&tables[usize::from(held.table)], held.container);
        let mut latched = container.slot(held.row).latch();
        let head = latched.head();
        if head.is_dirty() {
            // Announced until all is stamped: see `mem::mark`.
            core.pages.note_change(held.row.page(), cts.epoch());
            let slot_cts = if planted::is(Bug::StampTwice) { core.log.now() } else { cts };
            latched.set(0, slot_cts.0);
            let mut node = Node::new(&core.arena, head.node);
            node.set_stamp(cts);
            while node.prev_cts().is_none() {
                node = Node::new(&core.arena, node.next());
                node.set_stamp(cts);
            }
        }
        waited |= head.is_waited();
        let owner = if head.is_waited() { head.owner() } else { None };
        latched.set_head(head.with_dirty(false).with_owner(owner));
    }
    waited
}

/// A commit's header, on the stack: nothing allocates between announce and leave.
pub(super) struct Header {
    bytes: [u8; 48],
    length: usize,
}

impl Header {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.push(&[value as u8]);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

pub(super) fn commit_header(cts: Cts, base: Cts, fragments: Option<&Fragments>) -> Header {
    let mut header = Header { bytes: [0; 48], length: 0 };
    header.push(&[if fragments.is_some() { record::COMMIT_FRAGMENTS } else { record::COMMIT }]);
    header.push(&cts.0.to_le_bytes());
    header.push_varint(cts.0 - base.0);
    if let Some(fragments) = fragments {
        header.push(&fragments.txn.to_le_bytes());
        header.push_varint(fragments.count);
        header.push(&fragments.crc_sum.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::position_near;

    /// Locks as an UPDATE of a long value leaves them: the row's, the old value's and the new one's, which alone is undone.
    #[test]
    fn an_undone_insert_is_looked_for_near_the_last_one_and_not_behind_the_locks_that_stay() {
        let rows = 10_000;
        let mut held: Vec<(usize, char)> = (0..rows).flat_map(|i| [(i, 'r'), (i, 'o'), (i, 'n')]).collect();
        let (mut near, mut asked) = (held.len(), 0);
        for i in (0..rows).rev() {
            let at = position_near(near, held.len(), |at| {
                asked += 1;
                held[at] == (i, 'n')
            });
            near = at.expect("it is held");
            held.swap_remove(near);
        }
        assert!(asked < 10 * rows, "{asked} places were looked at for {rows} locks");
        assert!(held.iter().all(|(_, what)| *what != 'n') && held.len() == 2 * rows);
    }

    #[test]
    fn every_place_is_found_from_everywhere_and_none_where_there_is_none() {
        for len in 0..6 {
            for near in 0..8 {
                for wanted in 0..len {
                    assert_eq!(
                        position_near(near, len, |at| at == wanted),
                        Some(wanted),
                        "{wanted} of {len} from {near}"
                    );
                }
                assert_eq!(position_near(near, len, |_| false), None);
            }
        }
    }
}
