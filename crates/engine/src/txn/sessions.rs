//! Which snapshots are in use? One place per session, scanned for the oldest.
//!
//! | field | meaning |
//! |---|---|
//! | snapshot | nothing newer than this is needed by the session's reads: a lower bound first, then the snapshot itself; MAX: none |
//! | serial | grows when a transaction ends |
//! | first fragment | the epoch of a large commit's first fragment, while it is not known to be imaged |
//! | commit records, bytes, deltas | what its commits logged; only the session writes them |
//! | tables | tables written by the transaction, for DDL to wait for |
//! | garbage | what its commits left behind, oldest first |
//!
//! 1. A session registers by storing a lower bound, fencing, then reading the watermark or the durable horizon.
//! 2. The floor is computed by reading the durable horizon, fencing, then scanning. So a registration that the scan missed has a snapshot at or
//!    above that horizon, and the floor is at or below every snapshot in use, now and later.

use super::garbage::Garbage;
use crate::catalog::TableId;
use crate::ids::{Cts, Epoch};
use crate::log::Log;
use crate::planted::{self, Bug};
use crate::table::SessionNo;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

const NONE: u64 = u64::MAX;

#[repr(align(128))]
pub(crate) struct SessionPlace {
    snapshot: AtomicU64,
    serial: AtomicU64,
    first_fragment: AtomicU64,
    commit_records: AtomicU64,
    commit_record_bytes: AtomicU64,
    committed_deltas: AtomicU64,
    pub(super) end_waited: AtomicBool,
    pub(super) tables: Mutex<Vec<TableId>>,
    pub(super) garbage: Mutex<VecDeque<Garbage>>,
}

impl SessionPlace {
    fn new() -> SessionPlace {
        SessionPlace {
            snapshot: AtomicU64::new(NONE),
            serial: AtomicU64::new(0),
            first_fragment: AtomicU64::new(NONE),
            commit_records: AtomicU64::new(0),
            commit_record_bytes: AtomicU64::new(0),
            committed_deltas: AtomicU64::new(0),
            end_waited: AtomicBool::new(false),
            tables: Mutex::default(),
            garbage: Mutex::default(),
        }
    }

    /// Registers at the watermark, once that has passed `at_least`.
    pub fn register(&self, log: &Log, at_least: Cts) -> Cts {
        if self.snapshot.load(Ordering::Relaxed) == NONE {
            self.snapshot.store(Cts::last_of(log.durable()).0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        let mut spin = crate::sync::Spin::new();
        loop {
            let snapshot = if planted::is(Bug::SnapshotAtClock) { log.now() } else { log.watermark() };
            if snapshot >= at_least {
                self.snapshot.store(snapshot.0, Ordering::Release);
                return snapshot;
            }
            // A worker is between announce and install: that takes no wait, fault or allocation.
            spin.turn();
        }
    }

    /// Registers at the end of the durable epoch if that covers `at_least`.
    pub fn register_durable(&self, log: &Log, at_least: Cts) -> Option<Cts> {
        let bound = Cts::last_of(log.durable());
        if bound < at_least {
            return None;
        }
        self.snapshot.store(bound.0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let snapshot = Cts::last_of(log.durable());
        self.snapshot.store(snapshot.0, Ordering::Release);
        Some(snapshot)
    }

    pub fn unregister(&self) {
        self.snapshot.store(NONE, Ordering::Release);
    }

    pub fn serial(&self) -> u64 {
        self.serial.load(Ordering::SeqCst)
    }

    /// The transaction is over; true if someone waits for that.
    pub fn end(&self) -> bool {
        self.serial.fetch_add(1, Ordering::SeqCst);
        self.end_waited.swap(false, Ordering::SeqCst)
    }

    pub fn count_commit(&self, record_bytes: u64, deltas: u64) {
        let deltas = self.committed_deltas.load(Ordering::Relaxed) + deltas;
        self.committed_deltas.store(deltas, Ordering::Relaxed);
        self.commit_records.store(self.commit_records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let bytes = self.commit_record_bytes.load(Ordering::Relaxed) + record_bytes;
        self.commit_record_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn set_first_fragment(&self, epoch: Option<Epoch>) {
        self.first_fragment.store(epoch.map_or(NONE, |e| e.0), Ordering::SeqCst);
    }
}

/// The places of all sessions.
pub(crate) struct Sessions {
    places: Box<[SessionPlace]>,
    high_water: AtomicU32,
    free: Mutex<Vec<u32>>,
}

impl Sessions {
    pub fn new(sessions_max: u32) -> Sessions {
        Sessions {
            places: std::iter::repeat_with(SessionPlace::new).take(sessions_max as usize).collect(),
            high_water: AtomicU32::new(0),
            free: Mutex::default(),
        }
    }

    pub fn claim(&self) -> Option<SessionNo> {
        let mut free = self.free.lock();
        if let Some(no) = free.pop() {
            return Some(SessionNo(no));
        }
        let next = self.high_water.load(Ordering::Relaxed);
        ((next as usize) < self.places.len()).then(|| {
            self.high_water.store(next + 1, Ordering::SeqCst);
            SessionNo(next)
        })
    }

    pub fn release(&self, session: SessionNo) {
        self.free.lock().push(session.0);
    }

    #[inline]
    pub fn place(&self, session: SessionNo) -> &SessionPlace {
        &self.places[session.0 as usize]
    }

    pub fn all(&self) -> impl Iterator<Item = (SessionNo, &SessionPlace)> {
        let high_water = self.high_water.load(Ordering::SeqCst);
        (0..high_water).map(SessionNo).zip(&self.places[..high_water as usize])
    }

    /// At or below every snapshot in use, now and later.
    pub fn floor(&self, log: &Log) -> Cts {
        let durable = Cts::last_of(log.durable());
        fence(Ordering::SeqCst);
        self.all().map(|(_, p)| Cts(p.snapshot.load(Ordering::Acquire))).fold(durable, Cts::min)
    }

    /// Commit records of all sessions, past ones included, and their bytes.
    pub fn commit_counts(&self) -> (u64, u64) {
        self.all().fold((0, 0), |(records, bytes), (_, p)| {
            let more = p.commit_record_bytes.load(Ordering::Relaxed);
            (records + p.commit_records.load(Ordering::Relaxed), bytes + more)
        })
    }

    /// Rows that the commits of all sessions logged a delta of.
    pub fn committed_deltas(&self) -> u64 {
        self.all().map(|(_, p)| p.committed_deltas.load(Ordering::Relaxed)).sum()
    }

    /// The oldest epoch with fragments of a commit that images may lack.
    pub fn first_fragment(&self) -> Option<Epoch> {
        let oldest = self.all().map(|(_, p)| p.first_fragment.load(Ordering::SeqCst)).min()?;
        (oldest != NONE).then_some(Epoch(oldest))
    }
}
