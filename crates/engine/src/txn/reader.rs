//! How do other threads read at a session's snapshot? Readers that a session lends for the length of a statement.
//!
//! | step | who |
//! |---|---|
//! | open a lease, hand out readers | the session, within a statement |
//! | read a batch under the lease | any thread |
//! | close the lease: wait for batches in progress, take over what they examined | the session, before anything that ends the statement |
//!
//! 1. While the lease is open the session's registration stands, and its transaction changes nothing while a batch is read: a reader sees
//!    what a read of the session itself would, or what that would have been before the statement's own changes.
//! 2. After the lease is closed no reader touches a row: every batch asks first.

use super::core::Core;
use super::range::{Direction, RangeCursor, Sees};
use super::rows::{read_before, read_picked, read_version};
use super::session::Session;
use super::values::fetch_extension;
use crate::catalog::{Index, Table};
use crate::ids::{Cts, PageNo, RowId};
use crate::schema::{KeyBuf, Picks, Row, Value};
use crate::table::SessionNo;
use parking_lot::RwLock;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Lease {
    open: RwLock<bool>,
    /// The largest cts of any version that readers examined.
    dependency: AtomicU64,
}

impl Lease {
    fn new() -> Lease {
        Lease { open: RwLock::new(true), dependency: AtomicU64::new(0) }
    }

    /// Waits for batches in progress; there will be no more.
    pub fn close(&self) -> Cts {
        *self.open.write() = false;
        self.dependency()
    }

    pub fn dependency(&self) -> Cts {
        Cts(self.dependency.load(Ordering::Acquire))
    }
}

/// Reads at a session's snapshot from another thread; its own uncommitted changes are seen.
#[derive(Clone)]
pub struct Reader {
    core: Arc<Core>,
    lease: Arc<Lease>,
    no: SessionNo,
    snapshot: Cts,
    /// Own changes of this command are not seen.
    before: Option<u32>,
}

/// The statement that lent the reader is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseEnded;

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?})", self.snapshot)
    }
}

impl Session {
    /// A reader of what the current statement sees. Which tables it looks at is said before (`note_table`). The next statement, or the transaction's end, ends it.
    pub fn reader(&mut self) -> Reader {
        let lease = self.lease.get_or_insert_with(|| Arc::new(Lease::new())).clone();
        Reader { core: self.core.clone(), lease, no: self.no, snapshot: self.snapshot, before: None }
    }

    /// A reader of what the current statement saw when it began, whatever it has changed since.
    pub fn reader_before_changes(&mut self) -> Reader {
        let before = Some(self.command);
        Reader { before, ..self.reader() }
    }
}

impl Reader {
    /// Whether nothing more can be read: the statement is over, or its snapshot was ended to make room for versions.
    pub fn is_ended(&self) -> bool {
        !*self.lease.open.read() || self.core.sessions.place(self.no).is_ended()
    }

    /// Reads some rows; keep it short, for the session waits for it when it is cancelled.
    pub fn batch<T>(&self, read: impl FnOnce(&mut Batch<'_>) -> T) -> Result<T, LeaseEnded> {
        let open = self.lease.open.read();
        // A snapshot that was ended is read no further: the session tells why.
        if !*open || self.core.sessions.place(self.no).is_ended() {
            return Err(LeaseEnded);
        }
        let mut batch = Batch { reader: self, dependency: Cts::ZERO, key: KeyBuf::default() };
        let result = read(&mut batch);
        self.lease.dependency.fetch_max(batch.dependency.0, Ordering::AcqRel);
        Ok(result)
    }
}

/// A batch of reads under the lease.
pub struct Batch<'r> {
    reader: &'r Reader,
    dependency: Cts,
    key: KeyBuf,
}

/// What a full scan looks at of a row: copies of other columns may be anything.
#[derive(Debug)]
pub struct RowPicks(Picks);

impl RowPicks {
    /// These columns of the table's.
    pub fn of(table: &Table, columns: impl IntoIterator<Item = u16>) -> RowPicks {
        RowPicks(table.layout.picks(columns))
    }
}

/// Position of a reader's full scan, with the page that it is on: the list of pages is shared by all, and is not asked for each row.
#[derive(Clone, Copy, Debug)]
pub struct PageCursor {
    position: u64,
    page: PageNo,
    page_start: u64,
    page_end: u64,
}

impl PageCursor {
    /// Before the slot at this position.
    pub fn at(position: u64) -> PageCursor {
        PageCursor { position, page: PageNo(0), page_start: 0, page_end: 0 }
    }

    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Sees for Batch<'_> {
    fn core(&self) -> &Core {
        &self.reader.core
    }

    fn see(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        self.read(table, id, row)
    }

    /// Nobody has told the reader what its session has written.
    fn may_see_own(&self) -> bool {
        true
    }

    fn key(&mut self) -> &mut KeyBuf {
        &mut self.key
    }
}

impl Batch<'_> {
    /// Copies the version of the row that the snapshot has; false if there is none.
    pub fn read(&mut self, table: &Table, id: RowId, row: &mut Row) -> bool {
        let Reader { core, no, snapshot, before, .. } = self.reader;
        let primary = &table.store.primary;
        let live = match before {
            None => read_version(core, *no, *snapshot, primary, id, row),
            Some(command) => read_before(core, *no, *command, *snapshot, primary, id, row),
        };
        fetch_extension(table, row);
        self.dependency = self.dependency.max(row.cts());
        live
    }

    /// Brings a long value of the copy onto its heap.
    pub fn fetch_long(&mut self, table: &Table, row: &mut Row, column: usize) {
        self.reader.core.fetch_long(table, row, column);
    }

    /// The next visible row of a full scan, of which only the `picks` count, before the position `end`.
    pub fn scan_next(
        &mut self,
        table: &Table,
        cursor: &mut PageCursor,
        end: u64,
        picks: &RowPicks,
        row: &mut Row,
    ) -> Option<RowId> {
        let Reader { core, no, snapshot, before, .. } = self.reader;
        let container = &table.store.primary;
        let end = end.min(container.high_water());
        while cursor.position < end {
            if cursor.position >= cursor.page_end {
                (cursor.page, cursor.page_start) = container.page_at(cursor.position)?;
                cursor.page_end = cursor.page_start + container.slots_per_page();
            }
            let id = RowId::new(cursor.page, (cursor.position - cursor.page_start) as u16);
            cursor.position += 1;
            // Own changes of this command are undone on a whole copy.
            let live = match before {
                None => {
                    read_picked(core, *no, *snapshot, container, id, &picks.0, row);
                    row.is_live()
                }
                Some(command) => read_before(core, *no, *command, *snapshot, container, id, row),
            };
            self.dependency = self.dependency.max(row.cts());
            if live {
                if picks.0.variable.iter().any(|&column| table.layout.is_in_extension(usize::from(column))) {
                    fetch_extension(table, row);
                }
                return Some(id);
            }
        }
        None
    }

    /// Appends rows that may have this key: read each and check its columns.
    pub fn lookup<'a>(&mut self, index: &Index, value: impl Fn(usize) -> Value<'a>, candidates: &mut Vec<RowId>) {
        let _ = index.find(value, &mut self.key, |id| {
            candidates.push(id);
            ControlFlow::<()>::Continue(())
        });
    }

    /// The same as [`Session::range`].
    pub fn range(&mut self, index: &Index, lower: &KeyBuf, upper: &KeyBuf, direction: Direction) -> RangeCursor {
        RangeCursor::before(index, lower, upper, direction)
    }

    /// The next visible row of the range in exact key order, each row once.
    pub fn range_next(
        &mut self,
        table: &Table,
        index: &Index,
        cursor: &mut RangeCursor,
        row: &mut Row,
    ) -> Option<RowId> {
        cursor.next(self, table, index, row)
    }
}
