//! Which snapshots are in use? One place per session, scanned for the oldest.
//!
//! | field | meaning |
//! |---|---|
//! | snapshot | nothing newer than this is needed by the session's reads: a lower bound first, then the snapshot itself; MAX: none |
//! | changes rows | whether the transaction is not a read-only one |
//! | keeping | whether the registration outlives its statement: `sync::keeping` |
//! | phase | a number for each snapshot, whether a statement reads at it, whether it was ended: `sync::phase` |
//! | first fragment | the epoch of a large commit's first fragment, while it is not known to be imaged |
//! | commit records, bytes, deltas | what its commits logged; only the session writes them |
//! | stay | tables written by the transaction, for DDL to wait for, and a serial number that grows when it ends: `sync::gate` |
//!
//! 1. A session registers by storing a lower bound, marked as unfinished, fencing, then reading the watermark or the durable horizon. It does
//!    so too when it takes a newer snapshot in place of an older: whoever sees a snapshot unmarked knows that it is read at, or no more. A kept
//!    registration follows the horizon without that while its session reads newest versions only (`resume_newest`): there no version below one
//!    in place is read, and a session that has once seen a newer horizon registers anew before it reads one.
//! 2. The floor is computed by reading the durable horizon, fencing, then scanning. So a registration that the scan missed has a snapshot at or
//!    above that horizon, and the floor is at or below every snapshot in use, now and later.
//!
//! # Snapshots that are too old
//!
//! When there is no memory for versions, the oldest snapshot that keeps collectable ones is *ended* (SQLSTATE 72000), by its place's phase.
//!
//! 3. A new phase begins only while the place has no snapshot (`sync::phase`, 1).
//! 4. The transaction's own versions are not collected while it lives, so it can always be rolled back.

use super::fold::Horizon;
use super::garbage::GarbageQueues;
use crate::catalog::TableId;
use crate::ids::{Cts, Epoch};
use crate::log::Log;
use crate::planted::{self, Bug};
use crate::sync::fences;
use crate::sync::gate::Stay;
use crate::sync::keeping::Keeping;
use crate::sync::phase::{Ended, Phase, Seen};
use crate::table::SessionNo;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

const NONE: u64 = u64::MAX;
/// In a snapshot: it is a lower bound, the registration is not finished. No cts comes so far.
const UNFINISHED: u64 = 1 << 63;

/// A kept registration that nobody reads at is revoked once it is so many epochs behind the horizon; until then its next statement
/// is likely to move it by itself. A revocation interrupts all processors, and so happens at most once in as many epochs.
const REVOKED_BEHIND_EPOCHS: u64 = 64;

/// What a busy thread's garbage waits for is worth a look at the snapshots once the floor is so many epochs behind the horizon. Statements and their
/// commits stand so far back now and then, and are soon over: to fold for them cost a tenth of a mix of look-ups and updates by 4,800 sessions.
const FOLDED_BEHIND_EPOCHS: u64 = 16;

fn is_behind(floor: Cts, durable: Epoch, epochs: u64) -> bool {
    floor.epoch().0 + epochs < durable.0
}

/// What a look-up at a kept registration looks at comes first, in one line.
#[repr(C, align(128))]
pub(crate) struct SessionPlace {
    snapshot: AtomicU64,
    keeping: Keeping,
    phase: Phase,
    changes_rows: AtomicBool,
    pub(super) stay: Stay,
    first_fragment: AtomicU64,
    commit_records: AtomicU64,
    commit_record_bytes: AtomicU64,
    committed_deltas: AtomicU64,
}

impl SessionPlace {
    fn new() -> SessionPlace {
        SessionPlace {
            phase: Phase::new(),
            snapshot: AtomicU64::new(NONE),
            keeping: Keeping::new(),
            changes_rows: AtomicBool::new(true),
            stay: Stay::new(),
            first_fragment: AtomicU64::new(NONE),
            commit_records: AtomicU64::new(0),
            commit_record_bytes: AtomicU64::new(0),
            committed_deltas: AtomicU64::new(0),
        }
    }

    /// Registers at the watermark, once that has passed `at_least`.
    pub fn register(&self, log: &Log, at_least: Cts) -> Cts {
        let known = self.snapshot.load(Ordering::Relaxed);
        let bound = if known == NONE { Cts::last_of(log.durable()).0 } else { known };
        self.snapshot.store(bound | UNFINISHED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
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
        self.snapshot.store(bound.0 | UNFINISHED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let snapshot = Cts::last_of(log.durable());
        self.snapshot.store(snapshot.0, Ordering::Release);
        Some(snapshot)
    }

    /// Whether the next registrations are of a transaction that may lock rows by what their newest versions say. Told before they are made.
    pub fn set_changes_rows(&self, changes_rows: bool) {
        self.changes_rows.store(changes_rows, Ordering::Relaxed);
    }

    // ---- kept registrations

    /// Begins a transaction that reads at the end of the durable epoch, if that covers `at_least`, and keeps its registration.
    pub fn keep_durable(&self, log: &Log, at_least: Cts) -> Option<Cts> {
        let bound = Cts::last_of(log.durable());
        if bound < at_least {
            return None;
        }
        // Nobody reads at the last one any more.
        self.snapshot.store(NONE, Ordering::Release);
        self.begin_phase();
        self.snapshot.store(bound.0 | UNFINISHED, Ordering::SeqCst);
        self.keeping.keep();
        fence(Ordering::SeqCst);
        let snapshot = Cts::last_of(log.durable());
        self.snapshot.store(snapshot.0, Ordering::Release);
        Some(snapshot)
    }

    /// Reads at the registration that was kept with `snapshot`; false if that cannot be, because it was revoked or ended, or the horizon
    /// has moved.
    #[inline]
    pub fn resume(&self, log: &Log, snapshot: Cts) -> bool {
        self.keeping.resume() && !self.is_ended() && Cts::last_of(log.durable()) == snapshot
    }

    /// A statement reads newest versions that are durable, and no older ones, at the registration that was kept. Gives the durable horizon, which the
    /// registration follows without a fence; nothing if it was revoked or ended. Either way `pause` ends it.
    ///
    /// Until others see the new bound the old one stands, so the floor is below both. A fold that has not seen it may take away a version
    /// that was newest at the horizon and is no more: such a statement does not look for it (invariant 1).
    #[inline]
    pub fn resume_newest(&self, log: &Log) -> Option<Cts> {
        if !self.keeping.resume() || self.is_ended() {
            return None;
        }
        let horizon = Cts::last_of(log.durable());
        if self.snapshot.load(Ordering::Relaxed) != horizon.0 {
            self.snapshot.store(horizon.0, Ordering::Release);
        }
        Some(horizon)
    }

    /// What a look-up at a kept registration writes.
    #[inline]
    pub fn kept_word(&self) -> &AtomicU64 {
        &self.snapshot
    }

    /// The statement at the kept registration is over.
    #[inline]
    pub fn pause(&self) {
        self.keeping.pause();
    }

    /// Kept, with nobody reading, and below `bound`.
    fn is_left_behind(&self, bound: Cts) -> bool {
        self.keeping.is_idle() && Cts(self.snapshot.load(Ordering::Relaxed) & !UNFINISHED) < bound
    }

    // ---- the phase of a transaction

    /// A transaction reads from now on, or a statement with a snapshot of its own. Only the session itself calls this, before it registers.
    pub fn begin_phase(&self) {
        debug_assert_eq!(self.snapshot.load(Ordering::Relaxed), NONE, "invariant 3: the last snapshot is gone");
        // A floor that still sees the last phase missed the registration, whose fence comes later: invariant 2 covers that.
        self.phase.begin();
    }

    /// A statement is about to read at the registered snapshot; false: that was ended, and there is no reading at it any more.
    pub fn begin_reading(&self) -> bool {
        self.phase.begin_reading()
    }

    /// Nothing reads at the snapshot until `begin_reading`.
    pub fn rest(&self) {
        self.phase.rest();
    }

    #[inline]
    pub fn is_ended(&self) -> bool {
        self.phase.is_ended()
    }

    /// The snapshot, if it counts for the floor.
    fn counted(&self) -> Cts {
        if self.keeping.is_void() {
            return Cts::MAX;
        }
        if self.phase.counts() { self.registered().0 } else { Cts::MAX }
    }

    /// The snapshot or its lower bound, and whether it is final.
    fn registered(&self) -> (Cts, bool) {
        match self.snapshot.load(Ordering::Acquire) {
            NONE => (Cts::MAX, true),
            word => (Cts(word & !UNFINISHED), word & UNFINISHED == 0),
        }
    }

    #[inline]
    pub fn unregister(&self) {
        self.snapshot.store(NONE, Ordering::Release);
        self.keeping.drop_it();
    }

    pub fn serial(&self) -> u64 {
        self.stay.serial()
    }

    // ---- the tables of a transaction

    /// The transaction writes the table from now on. The caller looks at the table's gate afterwards.
    pub fn announce_table(&self, table: TableId) {
        self.stay.announce(table.0);
    }

    /// Takes the last announcement of the table back.
    pub fn withdraw_table(&self, table: TableId) {
        self.stay.withdraw(table.0);
    }

    fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        self.stay.tables().into_iter().map(TableId)
    }

    pub fn writes_table(&self, table: TableId) -> bool {
        self.stay.is_at(table.0)
    }

    /// The transaction is over, which wrote so many tables; true if someone waits for that.
    pub fn end(&self, tables: usize) -> bool {
        self.stay.end(tables)
    }

    pub fn count_commit(&self, record_bytes: u64, deltas: u64) {
        self.count_commits(1, record_bytes, deltas);
    }

    /// Of so many records together.
    pub fn count_commits(&self, records: u64, record_bytes: u64, deltas: u64) {
        let deltas = self.committed_deltas.load(Ordering::Relaxed) + deltas;
        self.committed_deltas.store(deltas, Ordering::Relaxed);
        self.commit_records.store(self.commit_records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
        let bytes = self.commit_record_bytes.load(Ordering::Relaxed) + record_bytes;
        self.commit_record_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn set_first_fragment(&self, epoch: Option<Epoch>) {
        self.first_fragment.store(epoch.map_or(NONE, |e| e.0), Ordering::SeqCst);
    }
}

/// A snapshot that may be ended, as it was seen.
struct Oldest<'a> {
    place: &'a SessionPlace,
    phase: Seen,
}

impl Oldest<'_> {
    /// `None`: it is over, or was ended by another.
    fn end(self) -> Option<Ended> {
        self.place.phase.end(self.phase)
    }
}

/// The places of all sessions.
pub(crate) struct Sessions {
    places: Box<[SessionPlace]>,
    high_water: AtomicU32,
    free: Mutex<Vec<u32>>,
    /// Held while registrations are revoked.
    revoking: Mutex<()>,
}

impl Sessions {
    pub fn new(sessions_max: u32) -> Sessions {
        fences::prepare();
        Sessions {
            places: std::iter::repeat_with(SessionPlace::new).take(sessions_max as usize).collect(),
            high_water: AtomicU32::new(0),
            free: Mutex::default(),
            revoking: Mutex::new(()),
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

    pub fn metadata_bytes(&self) -> u64 {
        (self.places.len() * size_of::<SessionPlace>()) as u64
    }

    #[inline]
    pub fn place(&self, session: SessionNo) -> &SessionPlace {
        &self.places[session.0 as usize]
    }

    /// Sessions that were ever connected at a time.
    pub fn count(&self) -> usize {
        self.high_water.load(Ordering::Relaxed) as usize
    }

    pub fn all(&self) -> impl Iterator<Item = (SessionNo, &SessionPlace)> {
        let high_water = self.high_water.load(Ordering::SeqCst);
        (0..high_water).map(SessionNo).zip(&self.places[..high_water as usize])
    }

    /// Tables that sessions write.
    pub fn written_tables(&self) -> Vec<(SessionNo, TableId)> {
        self.all().flat_map(|(no, place)| place.tables().map(move |table| (no, table))).collect()
    }

    /// The snapshots in use, and how far it is known that there will be no others.
    pub fn horizon(&self, log: &Log) -> Horizon {
        let mut limit = Cts::last_of(log.durable());
        fence(Ordering::SeqCst);
        let mut snapshots = Vec::new();
        let mut oldest_change = Cts::MAX;
        for (_, place) in self.all().filter(|(_, place)| place.counted() != Cts::MAX) {
            let (snapshot, is_final) = place.registered();
            // Read after the snapshot, which was stored later.
            if place.changes_rows.load(Ordering::Relaxed) {
                oldest_change = oldest_change.min(snapshot);
            }
            match (snapshot, is_final) {
                (Cts::MAX, _) => {}
                (snapshot, true) => snapshots.push(snapshot),
                (bound, false) => limit = limit.min(bound),
            }
        }
        snapshots.sort_unstable();
        snapshots.dedup();
        Horizon { limit, snapshots, slots: limit.min(oldest_change) }
    }

    /// At or below every snapshot in use, now and later.
    pub fn floor(&self, log: &Log) -> Cts {
        let durable = log.durable();
        let floor = self.floor_as_counted(durable);
        if is_behind(floor, durable, REVOKED_BEHIND_EPOCHS) && self.revoke(log) {
            self.floor_as_counted(durable)
        } else {
            floor
        }
    }

    /// Whether a snapshot keeps the floor back that is older than a statement and its commit take.
    pub fn is_held_back(&self, floor: Cts, log: &Log) -> bool {
        is_behind(floor, log.durable(), FOLDED_BEHIND_EPOCHS)
    }

    /// `durable` was read before the call.
    fn floor_as_counted(&self, durable: Epoch) -> Cts {
        fence(Ordering::SeqCst);
        self.all().map(|(_, p)| p.counted()).fold(Cts::last_of(durable), Cts::min)
    }

    /// Revokes the kept registrations that nobody reads at and that are behind the horizon. False if there are none.
    pub fn revoke(&self, log: &Log) -> bool {
        let bound = Cts::last_of(log.durable());
        let Some(_revoking) = self.revoking.try_lock() else {
            return false;
        };
        let asked = self.all().filter(|(_, p)| p.is_left_behind(bound) && p.keeping.ask()).count();
        if asked == 0 {
            return false;
        }
        fences::heavy();
        self.all().for_each(|(_, p)| p.keeping.revoke());
        true
    }

    /// Ends the oldest snapshot, if garbage waits for it, though perhaps for younger ones too: whoever ends one asks again. Who asks and
    /// the `spared`, the checkpoint's, are not ended, nor is any for what they keep as well.
    pub fn end_oldest(&self, log: &Log, me: SessionNo, spared: &[SessionNo], garbage: &GarbageQueues) -> Option<Ended> {
        self.revoke(log);
        self.oldest(log, me, spared, garbage)?.end()
    }

    fn oldest(&self, log: &Log, me: SessionNo, spared: &[SessionNo], garbage: &GarbageQueues) -> Option<Oldest<'_>> {
        let durable = Cts::last_of(log.durable());
        fence(Ordering::SeqCst);
        let mut oldest: Option<(Cts, Seen, &SessionPlace)> = None;
        // The floor without all that may be ended.
        let mut bound = durable;
        for (no, place) in self.all() {
            let phase = place.phase.look();
            let snapshot = place.counted();
            if no == me || spared.contains(&no) || phase.is_ended() {
                bound = bound.min(snapshot);
            } else if oldest.as_ref().is_none_or(|(before, ..)| snapshot < *before) {
                oldest = Some((snapshot, phase, place));
            }
        }
        let (snapshot, phase, place) = oldest.filter(|(s, ..)| *s < bound)?;
        garbage.wait_between(snapshot, bound).then_some(Oldest { place, phase })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ColumnDef, TableDef};
    use crate::engine::{Engine, Options};
    use crate::io::mem::{MemClock, MemIo};
    use crate::schema::Type;
    use crate::txn::{Isolation, Session};
    use std::sync::Arc;

    fn create(session: &mut Session, name: &str) {
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let columns = vec![ColumnDef { name: "id".into(), ty: Type::Int8, not_null: true, ..ColumnDef::default() }];
        session
            .create_table(TableDef { name: name.into(), columns, ..Default::default() }, Vec::new())
            .expect("creates");
        session.commit().expect("commits");
    }

    /// A change finds no memory and chooses the snapshot to end. Meanwhile that statement is over, and the transaction's next begins: it got the 72000
    /// that was meant for the one before.
    #[test]
    fn what_ends_a_statements_snapshot_does_not_end_the_next_ones() {
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens");
        let (mut reader, mut writer) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
        let core = writer.core.clone();
        for (name, rests) in [("a", true), ("b", false)] {
            while engine.step() {}
            reader.begin(Isolation::ReadCommitted, true);
            reader.begin_statement();
            // The counters' row has an older version from now on, which the reader keeps.
            create(&mut writer, name);
            while engine.step() {}
            let seen = core
                .sessions
                .oldest(&core.log, writer.no, &core.checkpoint_readers, &core.garbage)
                .expect("the reader's");
            if rests {
                reader.rest();
            }
            reader.begin_statement();
            assert_eq!(seen.end(), None, "{name}: that statement is over");
            assert_eq!(reader.check_snapshot(), Ok(()));
            create(&mut writer, &format!("{name}2"));
            while engine.step() {}
            let seen = core
                .sessions
                .oldest(&core.log, writer.no, &core.checkpoint_readers, &core.garbage)
                .expect("the reader's");
            assert_eq!(seen.end(), Some(Ended::WhenNoticed), "{name}: this one is not");
            assert!(reader.check_snapshot().is_err());
            reader.rollback();
        }
    }

    fn floor(session: &Session) -> Cts {
        session.core.sessions.floor(&session.core.log)
    }

    fn horizon(session: &Session) -> Cts {
        Cts::last_of(session.core.log.durable())
    }

    /// An autocommit read leaves its registration in place. That must not keep versions for whoever reads no more.
    #[test]
    fn a_kept_registration_holds_the_floor_only_while_it_is_read_at() {
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens");
        let (mut reader, mut writer) = (engine.connect().expect("a place"), engine.connect().expect("a place"));
        let settle = || while engine.step() {};
        settle();
        reader.begin_read();
        reader.commit().expect("a read commits");
        // At the same registration, and longer.
        reader.begin_read();
        let held = horizon(&reader);
        create(&mut writer, "a");
        settle();
        assert!(horizon(&reader) > held);
        assert_eq!(floor(&reader), held, "a statement reads there");
        reader.commit().expect("a read commits");
        create(&mut writer, "b");
        settle();
        assert_eq!(floor(&reader), horizon(&reader), "nobody reads there");
        reader.begin_read();
        assert!(reader.schema().has_relation("b"), "the next statement reads at the horizon");
        create(&mut writer, "c");
        settle();
        assert!(floor(&reader) < horizon(&reader), "and is registered there");
        reader.commit().expect("a read commits");
    }
}
