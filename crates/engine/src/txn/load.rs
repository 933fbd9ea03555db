//! How does an empty table get many rows at once? In a storage of its own, by many commits, which one commit makes the table's.
//!
//! | step | who |
//! |---|---|
//! | begin: take the table alone, make a storage | the session |
//! | append: log rows in commits of about [`CHUNK_BYTES`], then put them into pages | any number of threads, each with an [`Appender`] |
//! | finish: fill the indexes, name the storage in the catalog | the session, with all cores |
//! | commit | the session |
//!
//! 1. Until the commit no schema names the storage: nobody reaches its rows but checkpoints. After a rollback, or a crash, it is a storage that
//!    no schema names, and its pages become free: by garbage collection, by recovery.
//! 2. A row is logged in a commit record and installed between draw and leave, as by any commit. So images and replay know nothing of
//!    loads, and the log is recycled while one goes on: a load may be larger than the log.
//! 3. Rows get no version nodes and no locks. They are visible to snapshots at or above the load's own commit, and to no others (`table`
//!    invariant 4).
//! 4. An appender touches pages only under the load's latch, and who ends the load closes it first: no page is freed under an appender.
//! 5. The load's commit is later than its rows' commits, and durable only with every epoch before its own.

use super::core::{Core, stop_of};
use super::ddl::layout_of;
use super::fill::{Filling, Overseer, Unfit, fill};
use super::session::{Session, commit_header};
use super::{Error, Stop, record};
use crate::catalog::{Index, Object, Table, TableId, TableObject};
use crate::ids::{Cts, RowId};
use crate::mem::{Account, Claim, Kind};
use crate::schema::{LIVE, Layout, Row};
use crate::table::{Container, PIECE_BYTES, PRIMARY, container_for};
use crate::txn::values;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Records that one commit takes: short enough that installing them keeps nobody's flush waiting (some tens of microseconds).
const CHUNK_BYTES: usize = 256 << 10;
/// What an appender holds: its records, their frame, and their places.
const APPENDER_BYTES: u64 = 3 * CHUNK_BYTES as u64;
/// Checkpoints that an appender waits for before it believes that the log has no room.
const SPACE_WAITS_MAX: u8 = 2;

/// What appenders did.
#[derive(Clone, Copy, Default)]
struct Done {
    rows: u64,
    records: u64,
    record_bytes: u64,
    deltas: u64,
}

/// What a load's session and its appenders share.
pub(super) struct Shared {
    core: Arc<Core>,
    /// The table over the new storage, without indexes.
    table: Arc<Table>,
    open: RwLock<bool>,
    /// Appenders that were not finished.
    unfinished: AtomicUsize,
    next_number: AtomicUsize,
    done: Mutex<Done>,
}

impl Shared {
    /// Waits for appenders in a commit; none begins another.
    pub fn close(&self) {
        *self.open.write() = false;
    }
}

/// A bulk load of one table. The session that began it finishes and commits it; rolled back, it leaves nothing.
pub struct Load {
    shared: Arc<Shared>,
    /// The indexes, once they are filled: finishing may have to wait and begin again.
    filled: Option<Vec<Arc<Index>>>,
}

impl Load {
    /// For one thread. Its rows go in no order with those of others.
    pub fn appender(&self) -> Result<Appender, Error> {
        let shared = self.shared.clone();
        let account = Account::new(&shared.core.budget, Kind::Queries);
        if !account.take(APPENDER_BYTES, Claim::Growth) {
            return Err(Error::OutOfMemory("a bulk load"));
        }
        shared.unfinished.fetch_add(1, Ordering::SeqCst);
        Ok(Appender {
            number: shared.next_number.fetch_add(1, Ordering::Relaxed),
            shared,
            slots: Vec::new(),
            words: Vec::new(),
            items: Vec::new(),
            sent: 0,
            body: Vec::new(),
            done: Done::default(),
            space_waits: 0,
            _account: account,
        })
    }

    /// What rows are made with.
    pub fn table(&self) -> &Arc<Table> {
        &self.shared.table
    }
}

/// A record on its way: its words are those from `start` on.
#[derive(Clone, Copy)]
struct Item {
    container: u16,
    row: RowId,
    start: u32,
    end: u32,
}

/// Where one thread's rows go. It holds whole pages, whose slots it gives out itself.
pub struct Appender {
    shared: Arc<Shared>,
    /// Chooses the log's worker where everything happens on one thread.
    number: usize,
    /// Slots taken and not used, the next one last, by container.
    slots: Vec<(u16, Vec<RowId>)>,
    /// Records one after another, each with a place for its cts.
    words: Vec<u64>,
    items: Vec<Item>,
    /// Items that were committed.
    sent: usize,
    body: Vec<u8>,
    done: Done,
    space_waits: u8,
    _account: Account,
}

impl Appender {
    pub fn layout(&self) -> &Layout {
        &self.shared.table.layout
    }

    /// Takes a row, which is spent. On `Stop::Wait` nothing was taken: call it again after the wait.
    pub fn append(&mut self, row: &mut Row) -> Result<(), Stop> {
        if row.words.len() != self.layout().words() {
            return Err(Error::LimitExceeded("a row that was made for another table".into()).into());
        }
        if self.words.len() * 8 >= CHUNK_BYTES {
            self.flush()?;
        }
        self.reserve(row)?;
        self.store_long_values(row);
        self.put(PRIMARY, &row.words[1..]);
        self.done.rows += 1;
        Ok(())
    }

    /// Commits what is left, and gives back what was not used. Without it the load cannot be finished.
    pub fn finish(&mut self) -> Result<(), Stop> {
        self.flush()?;
        let shared = self.shared.clone();
        for (container, slots) in self.slots.drain(..) {
            // The lowest is given out first.
            place(&shared, container).give_slots(slots.into_iter());
        }
        let mut done = shared.done.lock();
        let mine = std::mem::take(&mut self.done);
        done.rows += mine.rows;
        done.records += mine.records;
        done.record_bytes += mine.record_bytes;
        done.deltas += mine.deltas;
        drop(done);
        shared.unfinished.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes the slots that the row and its long values need.
    fn reserve(&mut self, row: &Row) -> Result<(), Stop> {
        self.reserve_slots(PRIMARY, 1)?;
        if row.heap.is_empty() {
            return Ok(());
        }
        let table = self.shared.table.clone();
        let mut needed: Vec<(u16, usize)> = Vec::new();
        for &column in &table.variable {
            let mut note = |container| match needed.iter_mut().find(|(c, _)| *c == container) {
                Some((_, count)) => *count += 1,
                None => needed.push((container, 1)),
            };
            if let Some(bytes) = row.unstored(&table.layout, column) {
                slots_of_value(bytes.len(), &mut note);
            }
        }
        needed.into_iter().try_for_each(|(container, count)| self.reserve_slots(container, count))
    }

    fn reserve_slots(&mut self, container: u16, count: usize) -> Result<(), Stop> {
        while self.slots_of(container).len() < count {
            let shared = self.shared.clone();
            let open = shared.open.read();
            if !*open {
                return Err(Error::LoadEnded.into());
            }
            let pages = place(&shared, container);
            let page = shared.core.claim_page(pages).map_err(|stop| self.or_wait_for_space(stop))?;
            // Touched here, and not while the log waits for a commit to be installed.
            let words = shared.core.pages.words(page, 0, crate::mem::PAGE_WORDS);
            words.iter().step_by(512).for_each(|word| word.store(0, Ordering::Relaxed));
            let slots = (0..pages.slots_per_page()).rev().map(|slot| RowId::new(page, slot as u16));
            let own = self.slots_of(container);
            let before = std::mem::take(own);
            own.extend(slots.chain(before));
        }
        Ok(())
    }

    fn slots_of(&mut self, container: u16) -> &mut Vec<RowId> {
        let at = self.slots.iter().position(|(c, _)| *c == container).unwrap_or_else(|| {
            self.slots.push((container, Vec::new()));
            self.slots.len() - 1
        });
        &mut self.slots[at].1
    }

    /// Adds a record whose words after the cts are given.
    fn put(&mut self, container: u16, words: &[u64]) -> RowId {
        let row = self.slots_of(container).pop().expect("slots are reserved before records are added");
        let start = self.words.len() as u32;
        self.words.push(0);
        self.words.extend_from_slice(words);
        self.items.push(Item { container, row, start, end: self.words.len() as u32 });
        row
    }

    fn store_long_values(&mut self, row: &mut Row) {
        if row.heap.is_empty() {
            return;
        }
        let table = self.shared.table.clone();
        for &column in &table.variable {
            if let Some(bytes) = row.unstored(&table.layout, column) {
                let stored = self.store_value(bytes);
                row.set_stored(&table.layout, column, stored);
            }
        }
    }

    fn store_value(&mut self, bytes: &[u8]) -> RowId {
        if bytes.len() <= PIECE_BYTES {
            return self.put(container_for(bytes.len()), &values::piece_words(bytes));
        }
        let pieces = bytes.chunks(PIECE_BYTES).map(|piece| self.store_value(piece));
        let list: Vec<u8> = pieces.flat_map(|piece| piece.0.to_le_bytes()).collect();
        self.store_value(&list)
    }

    /// Commits what was added, frame by frame; goes on where it had to wait.
    fn flush(&mut self) -> Result<(), Stop> {
        while self.sent < self.items.len() {
            let shared = self.shared.clone();
            let open = shared.open.read();
            if !*open {
                return Err(Error::LoadEnded.into());
            }
            let end = self.compose(&shared);
            self.commit(&shared, end).map_err(|stop| self.or_wait_for_space(stop))?;
            self.space_waits = 0;
            self.sent = end;
        }
        self.items.clear();
        self.words.clear();
        self.sent = 0;
        Ok(())
    }

    /// Composes a frame of the items that it holds; gives the first that it does not.
    fn compose(&mut self, shared: &Shared) -> usize {
        let limit = (shared.core.log.bulk_frame_limit_bytes() as usize - 64).min(CHUNK_BYTES);
        self.body.clear();
        let mut page = None;
        for (at, item) in self.items.iter().enumerate().skip(self.sent) {
            let before = self.body.len();
            let (_, generation) = *page.insert(
                page.filter(|(p, _)| *p == item.row.page())
                    .unwrap_or_else(|| (item.row.page(), shared.core.pages.generation(item.row.page()))),
            );
            let record = &self.words[item.start as usize..item.end as usize];
            // Against a base of zero: the slot was never used.
            record::put_new_record(&mut self.body, item.row, generation, 0, record);
            if self.body.len() > limit && before > 0 {
                self.body.truncate(before);
                return at;
            }
        }
        self.items.len()
    }

    /// Logs the body and installs the items before `end`.
    fn commit(&mut self, shared: &Shared, end: usize) -> Result<(), Stop> {
        let core = &*shared.core;
        let mut worker = core.worker(self.number);
        let reserved = worker.reserve_load(self.body.len() as u64 + 64).map_err(stop_of)?;
        let mut announced = reserved.announce();
        let cts = announced.draw();
        let epoch = announced.epoch();
        let header = commit_header(cts, Cts::ZERO, None);
        announced.stage_bulk(epoch, &[header.bytes(), &self.body]);
        let mut noted = None;
        for item in &self.items[self.sent..end] {
            if noted.replace(item.row.page()) != Some(item.row.page()) {
                core.pages.note_change(item.row.page(), epoch);
            }
            let words = &self.words[item.start as usize + 1..item.end as usize];
            let mut latched = place(shared, item.container).slot(item.row).latch();
            words.iter().enumerate().for_each(|(i, &word)| latched.set(i + 1, word));
            latched.set(0, cts.0);
        }
        announced.leave();
        self.done.records += 1;
        self.done.record_bytes += (4 + header.bytes().len() + self.body.len()) as u64;
        self.done.deltas += (end - self.sent) as u64;
        Ok(())
    }

    fn or_wait_for_space(&mut self, stop: Stop) -> Stop {
        match stop {
            Stop::Error(Error::LogFull) if self.space_waits < SPACE_WAITS_MAX => match self.shared.core.space.ask() {
                Some(token) => {
                    self.space_waits += 1;
                    Stop::Wait(token)
                }
                None => stop,
            },
            other => other,
        }
    }
}

fn place(shared: &Shared, container: u16) -> &Container {
    shared.table.store.container(container).expect("invariant: an appender names containers of its storage")
}

/// The containers of the slots that a long value takes.
fn slots_of_value(length: usize, each: &mut impl FnMut(u16)) {
    let Some(list_length) = values::list_bytes(length) else {
        return each(container_for(length));
    };
    let mut left = length;
    while left > 0 {
        each(container_for(left.min(PIECE_BYTES)));
        left -= left.min(PIECE_BYTES);
    }
    slots_of_value(list_length, each);
}

/// Who fills indexes of a table that is taken alone.
pub(super) struct Builder {
    pub scratch: Account,
    pub cancelled: Option<Arc<AtomicBool>>,
    pub deadline: Option<Instant>,
}

impl Builder {
    pub fn stop_of(&self, unfit: Unfit) -> Stop {
        Stop::Error(match unfit {
            Unfit::Duplicate(index) => Error::UniqueViolation { index },
            Unfit::OutOfMemory => Error::OutOfMemory("an index"),
            Unfit::Cancelled if self.cancelled.as_ref().is_some_and(|flag| flag.swap(false, Ordering::Relaxed)) => {
                Error::Cancelled
            }
            Unfit::Cancelled => Error::TimedOut,
        })
    }
}

impl Overseer for Builder {
    fn is_checked(&self) -> bool {
        true
    }

    fn done(&self, _bytes: u64) {}

    fn take_scratch(&self, bytes: u64) -> bool {
        self.scratch.take(bytes, Claim::Growth)
    }

    fn give_scratch(&self, bytes: u64) {
        self.scratch.give(bytes);
    }

    fn is_cancelled(&self) -> bool {
        let is_late = |deadline: Instant| Instant::now() >= deadline;
        self.cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) || self.deadline.is_some_and(is_late)
    }
}

impl Session {
    /// Begins a bulk load of an empty table, in a transaction that may write; nobody else writes the table until it ends.
    pub fn begin_load(&mut self, name: &str) -> Result<Load, Stop> {
        self.begin_ddl()?;
        let id = self.own_table(name)?.id;
        self.begin_load_of(id)
    }

    /// As `begin_load`, of the table with this id.
    pub fn begin_load_of(&mut self, id: TableId) -> Result<Load, Stop> {
        let mut counters = self.begin_ddl()?;
        let old = self.own_table_by_id(id)?;
        self.take_alone(&old)?;
        let primary = &old.store.primary;
        let has_rows =
            (0..primary.high_water()).filter_map(|at| primary.nth(at)).any(|id| primary.slot(id).load(1) & LIVE != 0);
        if has_rows {
            return Err(Error::NotEmpty(old.def.name.clone()).into());
        }
        let storage = self.next_storage(&mut counters);
        let def = old.def.clone().for_new_storage();
        let layout = layout_of(&def)?;
        let store = self.new_store(storage, &layout);
        store.set_visible_from(Cts::MAX);
        let table = Table::new(old.id, def, layout, Vec::new(), store, old.gate.clone());
        let shared = Arc::new(Shared {
            core: self.core.clone(),
            table: Arc::new(table),
            open: RwLock::new(true),
            unfinished: AtomicUsize::new(0),
            next_number: AtomicUsize::new(0),
            done: Mutex::default(),
        });
        self.ddl.loads.push(shared.clone());
        Ok(Load { shared, filled: None })
    }

    /// Fills the table's indexes and makes the new storage the table's: what is left is to commit. Gives the rows.
    pub fn finish_load(&mut self, load: &mut Load) -> Result<u64, Stop> {
        let shared = load.shared.clone();
        shared.close();
        if shared.unfinished.load(Ordering::SeqCst) > 0 || !self.ddl.loads.iter().any(|l| Arc::ptr_eq(l, &shared)) {
            return Err(Error::LoadEnded.into());
        }
        let mut counters = self.begin_ddl()?;
        let old = self.own_table_by_id(shared.table.id)?;
        let store = shared.table.store.clone();
        counters.next_storage = counters.next_storage.max(store.id.0 + 1);
        if load.filled.is_none() {
            load.filled = Some(self.fill_loaded(&old, &shared)?);
        }
        let indexes = load.filled.clone().expect("just filled");
        let def = old.def.clone().for_new_storage();
        let layout = layout_of(&def)?;
        self.change_object(old.id.0, &Object::Table(TableObject { storage: store.id, def: def.clone() }))?;
        let loaded = Table::new(old.id, def, layout, indexes, store.clone(), old.gate.clone());
        self.ddl.dropped.push(old.store.id);
        self.change_schema(counters, |schema| schema.put(Arc::new(loaded)))?;
        self.ddl.loaded.push(store);
        let done = *shared.done.lock();
        self.place().count_commits(done.records, done.record_bytes, done.deltas);
        Ok(done.rows)
    }

    fn fill_loaded(&mut self, old: &Table, shared: &Shared) -> Result<Vec<Arc<Index>>, Stop> {
        let core = self.core.clone();
        let rows = shared.done.lock().rows;
        let new = |i: &Arc<Index>| self.new_index(i.id, &i.def, &shared.table, rows).map(Arc::new);
        let indexes = old.indexes.iter().map(new).collect::<Result<Vec<_>, _>>()?;
        let builder = self.builder();
        let aged = fill(&[Filling::new(&shared.table, &indexes)], core.crew, &builder);
        let aged = aged.map_err(|unfit| builder.stop_of(unfit))?;
        assert!(aged.is_empty(), "invariant: a row of a load has one version until the load's commit");
        Ok(indexes)
    }

    pub(super) fn builder(&self) -> Builder {
        let scratch = Account::new(&self.core.budget, Kind::Queries);
        Builder { scratch, cancelled: self.cancelled.clone(), deadline: self.deadline }
    }
}
