//! Who holds what, and who waits for whom? Locks of rows, tables and advisory keys, and waits for sessions' ends, in one waits-for graph.
//!
//! | what | where its holders are | modes |
//! |---|---|---|
//! | row | one exclusive owner in the slot's head, with whether it keeps the key too; those who share it here | [`Strength`] |
//! | table | whoever writes it has only announced that (`sessions`); all others, and all while a gate is closed, here | [`LockMode`] |
//! | advisory key | here | `Share`, `Exclusive` |
//! | schema | the system table's first row | `Update` |
//! | the end of a transaction | its session's serial number | |
//!
//! 1. Order of latches: this table's mutex, then a slot's latch. Nothing is taken while a slot is latched.
//! 2. A head's *waited* and *shared* bits are set and cleared under both. While *waited* is set, the row's lock exists here and names its owner;
//!    while *shared* is set, it exists here and names who shares the row. A head without them is all there is to say of its row.
//! 3. Nobody overtakes: who asks is granted what conflicts with no holder and with nobody who waits before him. Only who holds already what
//!    another waits for is put before that one, whom he would wait for in vain.
//! 4. A session waits for one thing at a time. It waits for whoever holds what its wish conflicts with, and for what those wait for who are before
//!    it in the queue and conflict with it. A cycle is found by whoever closes it, when he begins to wait: he is refused.
//! 5. While somebody holds or wants a mode of a table that those who write it conflict with, the table's gate is closed; while somebody holds or
//!    wants one by LOCK TABLE that readers conflict with, `barred` counts the table. Both are stored under the mutex.
//!
//! PostgreSQL also reorders queues to avoid a deadlock in which somebody waits only for another's place in a queue. Here that is a deadlock.

use super::wait::Signal;
use crate::catalog::TableId;
use crate::ids::RowId;
use crate::sync::Mutex;
use crate::sync::gate::Gate;
use crate::table::{Latched, SessionNo, Slot};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// How strongly a row is locked, as in PostgreSQL: FOR KEY SHARE, FOR SHARE, FOR NO KEY UPDATE (an update that leaves the unique keys alone),
/// FOR UPDATE (a delete, or an update of a unique key).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Strength {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

impl Strength {
    /// Whether others may hold the row in the same way.
    pub(crate) fn is_shared(self) -> bool {
        self <= Strength::Share
    }
}

/// How a table is locked, as in PostgreSQL. An advisory key is locked in `Share` or `Exclusive`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

/// A bit of a set of modes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Mode(u8);

type Modes = u16;

/// ACCESS EXCLUSIVE by LOCK TABLE, which readers are to wait for; for a change of the schema they are not.
const BARRING: Mode = Mode(12);

/// ROW SHARE of who locks rows and, so far, writes none: LOCK TABLE says nothing of that.
const LOCKING_ROWS: Mode = Mode(13);

/// Row by row: with which modes each conflicts.
const CONFLICTS: [Modes; 14] = [
    0b01_0000_1000_0000, // ACCESS SHARE
    0b01_0000_1100_0000, // ROW SHARE
    0b01_0000_1111_0000, // ROW EXCLUSIVE
    0b01_0000_1111_1000, // SHARE UPDATE EXCLUSIVE
    0b01_0000_1110_1100, // SHARE
    0b01_0000_1111_1100, // SHARE ROW EXCLUSIVE
    0b11_0000_1111_1110, // EXCLUSIVE
    0b11_0000_1111_1111, // ACCESS EXCLUSIVE
    0b00_1000_0000_0000, // FOR KEY SHARE
    0b00_1100_0000_0000, // FOR SHARE
    0b00_1110_0000_0000, // FOR NO KEY UPDATE
    0b00_1111_0000_0000, // FOR UPDATE
    0b11_0000_1111_1111, // ACCESS EXCLUSIVE, readers too
    0b01_0000_1100_0000, // ROW SHARE, to lock rows
];

impl Mode {
    pub fn of_table(mode: LockMode, bars_readers: bool) -> Mode {
        if bars_readers && mode == LockMode::AccessExclusive { BARRING } else { Mode(mode as u8) }
    }

    /// Of who writes a table's rows.
    pub fn of_writer() -> Mode {
        LockMode::RowExclusive.into()
    }

    /// Of who locks rows of a table, of which it `may_have_written` some.
    pub fn of_locker(may_have_written: bool) -> Mode {
        if may_have_written { LockMode::RowShare.into() } else { LOCKING_ROWS }
    }

    fn bit(self) -> Modes {
        1 << self.0
    }

    fn conflicts(self) -> Modes {
        CONFLICTS[usize::from(self.0)]
    }

    /// Whether who writes a table that is locked so has to ask.
    pub fn closes_gate(self) -> bool {
        self.conflicts() & Mode::from(LockMode::RowExclusive).bit() != 0
    }

    fn name(self) -> ModeName {
        const TABLE: [LockMode; 8] = [
            LockMode::AccessShare,
            LockMode::RowShare,
            LockMode::RowExclusive,
            LockMode::ShareUpdateExclusive,
            LockMode::Share,
            LockMode::ShareRowExclusive,
            LockMode::Exclusive,
            LockMode::AccessExclusive,
        ];
        const ROW: [Strength; 4] = [Strength::KeyShare, Strength::Share, Strength::NoKeyUpdate, Strength::Update];
        match self {
            BARRING => ModeName::Table(LockMode::AccessExclusive),
            LOCKING_ROWS => ModeName::Table(LockMode::RowShare),
            Mode(at @ 0..8) => ModeName::Table(TABLE[usize::from(at)]),
            Mode(at) => ModeName::Row(ROW[usize::from(at) - 8]),
        }
    }
}

impl From<LockMode> for Mode {
    fn from(mode: LockMode) -> Mode {
        Mode(mode as u8)
    }
}

impl From<Strength> for Mode {
    fn from(strength: Strength) -> Mode {
        Mode(8 + strength as u8)
    }
}

/// The key of an advisory lock: one of eight bytes, or two of four. They never meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdvisoryKey {
    One(i64),
    Two(i32, i32),
}

/// What can be locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Thing {
    Row(RowId),
    Table(TableId),
    Advisory(AdvisoryKey),
    /// Not locked but waited for: the end of the transaction of a session of this name.
    Transaction(u32),
}

/// A mode of whatever is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeName {
    Row(Strength),
    Table(LockMode),
    /// A wait for the end of a transaction.
    End,
}

/// A lock that a session holds or waits for, for those who look on. Sessions are told by what they are called ([`super::Session::set_name`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockFact {
    pub session: u32,
    pub thing: Thing,
    pub mode: ModeName,
    pub is_granted: bool,
    /// Since when it is waited for.
    pub since: Option<Instant>,
}

/// A step of a deadlock: who waits for what, and who is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    pub session: u32,
    pub thing: Thing,
    pub mode: ModeName,
    pub by: u32,
}

/// What asking for a lock came to.
pub(super) enum Asked {
    /// What is asked for has changed meanwhile: ask again without waiting.
    Free,
    /// The row is deleted, or its slot holds none.
    Dead,
    /// It is the asker's from now on.
    Newly,
    /// It was before, or more was.
    Mine,
    /// Somebody has it, and the asker does not wait.
    Busy,
    Queued(Arc<Signal>),
    Deadlock(Vec<Blocked>),
}

struct Holder {
    session: SessionNo,
    /// Until the transaction's end.
    modes: Modes,
    /// Until the session gives them back.
    kept: Modes,
}

struct Waiter {
    session: SessionNo,
    mode: Mode,
    /// Granted beyond the transaction.
    kept: bool,
    signal: Arc<Signal>,
    since: Instant,
}

/// A thing's lock, as far as it is not in a row's head.
#[derive(Default)]
struct Lock {
    /// Who has a row's head. True to the head only while that is *waited*.
    owner: Option<(SessionNo, Mode)>,
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
    /// Who waits for the end of the owner's transaction, and wants nothing then (unique checks).
    onlookers: Vec<Waiter>,
    gate: Option<Arc<Gate>>,
    bars: bool,
}

impl Lock {
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.onlookers.is_empty()
    }

    fn is_waited(&self) -> bool {
        !self.queue.is_empty() || !self.onlookers.is_empty()
    }

    /// All who hold it, with their modes.
    fn held(&self) -> impl Iterator<Item = (SessionNo, Modes)> {
        let owner = self.owner.map(|(session, mode)| (session, mode.bit()));
        owner.into_iter().chain(self.holders.iter().map(|h| (h.session, h.modes | h.kept)))
    }

    fn held_by(&self, me: SessionNo) -> Modes {
        self.held().filter(|(session, _)| *session == me).fold(0, |all, (_, modes)| all | modes)
    }

    fn held_by_others(&self, me: SessionNo) -> Modes {
        self.held().filter(|(session, _)| *session != me).fold(0, |all, (_, modes)| all | modes)
    }

    /// Where in the queue `me` would be: before the first whom it keeps waiting.
    fn place_of(&self, me: SessionNo) -> usize {
        let mine = self.held_by(me);
        let at = self.queue.iter().position(|w| w.mode.conflicts() & mine != 0);
        at.filter(|_| mine != 0).unwrap_or(self.queue.len())
    }

    fn is_free_for(&self, me: SessionNo, mode: Mode, place: usize) -> bool {
        let ahead = self.queue.iter().take(place).filter(|w| w.session != me).fold(0, |all, w| all | w.mode.bit());
        (ahead | self.held_by_others(me)) & mode.conflicts() == 0
    }

    /// Makes `me` a holder; false if it was one in this mode.
    fn give(&mut self, me: SessionNo, mode: Mode, kept: bool) -> bool {
        let at = self.holders.iter().position(|h| h.session == me).unwrap_or_else(|| {
            self.holders.push(Holder { session: me, modes: 0, kept: 0 });
            self.holders.len() - 1
        });
        let holder = &mut self.holders[at];
        let modes = if kept { &mut holder.kept } else { &mut holder.modes };
        let is_new = *modes & mode.bit() == 0;
        *modes |= mode.bit();
        is_new
    }

    fn take_from(&mut self, me: SessionNo, mode: Mode, kept: bool) {
        for holder in self.holders.iter_mut().filter(|h| h.session == me) {
            let modes = if kept { &mut holder.kept } else { &mut holder.modes };
            *modes &= !mode.bit();
        }
        self.holders.retain(|h| h.modes | h.kept != 0);
    }

    /// Grants what is free, in the order of the queue; `told` takes who is no longer waiting.
    fn advance(&mut self, mut told: impl FnMut(SessionNo)) {
        let mut at = 0;
        while at < self.queue.len() {
            let Waiter { session, mode, .. } = self.queue[at];
            if !self.is_free_for(session, mode, at) {
                at += 1;
                continue;
            }
            let waiter = self.queue.remove(at).expect("it is there");
            match mode.name() {
                ModeName::Row(strength) if !strength.is_shared() => self.owner = Some((session, mode)),
                _ => _ = self.give(session, mode, waiter.kept),
            }
            told(session);
            waiter.signal.tell();
        }
    }
}

#[derive(Clone, Copy)]
enum WaitingFor {
    /// The lock in a mode.
    Lock(Thing),
    /// The end of its row's owner.
    Onlooker(Thing),
    Session(SessionNo),
}

/// Who waits for the end of a session's transaction.
struct EndWaiter {
    session: SessionNo,
    /// Or only until that is no longer at this table.
    table: Option<TableId>,
    signal: Arc<Signal>,
    since: Instant,
}

#[derive(Default)]
struct Graph {
    locks: HashMap<Thing, Lock>,
    waiting: HashMap<SessionNo, WaitingFor>,
    /// Sessions whose end others wait for.
    ends: HashMap<SessionNo, Vec<EndWaiter>>,
    /// How sessions are called, where they said so.
    names: HashMap<SessionNo, u32>,
}

/// What a waiter asks for.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub mode: Mode,
    /// Beyond the transaction: advisory locks.
    pub kept: bool,
    pub nowait: bool,
}

impl Wish {
    pub fn of_row(strength: Strength, nowait: bool) -> Wish {
        Wish { mode: strength.into(), kept: false, nowait }
    }
}

/// All locks and waits of a database.
#[derive(Default)]
pub(super) struct LockTable {
    graph: Mutex<Graph>,
    /// Tables that readers have to wait for.
    barred: AtomicU32,
}

/// What a row's head says of its owner.
fn owner_of(latched: &Latched<'_>) -> Option<(SessionNo, Mode)> {
    let head = latched.head();
    let strength = if head.is_keyed() { Strength::Update } else { Strength::NoKeyUpdate };
    head.owner().map(|owner| (owner, strength.into()))
}

/// Writes into a row's head what its lock has come to.
fn tell_head(latched: &mut Latched<'_>, owner: Option<(SessionNo, Mode)>, lock: Option<&Lock>) {
    let head = latched.head();
    let is_keyed = owner.is_some_and(|(_, mode)| mode == Strength::Update.into());
    let head = head.with_owner(owner.map(|o| o.0)).with_keyed(is_keyed).with_dirty(head.is_dirty());
    let head = head.with_waited(lock.is_some_and(Lock::is_waited));
    latched.set_head(head.with_shared(lock.is_some_and(|lock| !lock.holders.is_empty())));
}

impl LockTable {
    /// Asks for a row, or queues `me` for it.
    pub fn ask_row(&self, me: SessionNo, row: RowId, slot: Slot<'_>, wish: Wish) -> Asked {
        let mut graph = self.graph.lock();
        let mut latched = slot.latch();
        let (owner, thing) = (owner_of(&latched), Thing::Row(row));
        if owner.is_none() && !latched.is_live() {
            return Asked::Dead;
        }
        let lock = graph.locks.entry(thing).or_default();
        lock.owner = owner;
        let mine = lock.held_by(me);
        let (wanted, place) = (wish.mode, lock.place_of(me));
        // Modes of rows grow in strength with their bits.
        let asked = if mine >= wanted.bit() {
            Asked::Mine
        } else if lock.is_free_for(me, wanted, place) {
            let is_owner = lock.owner.is_some_and(|(session, _)| session == me);
            match wanted.name() {
                ModeName::Row(strength) if !strength.is_shared() => lock.owner = Some((me, wanted)),
                _ => _ = lock.give(me, wanted, false),
            }
            if is_owner { Asked::Mine } else { Asked::Newly }
        } else if wish.nowait {
            Asked::Busy
        } else {
            let signal = lock.enqueue(me, wish, place);
            tell_head(&mut latched, lock.owner, Some(lock));
            drop(latched);
            return self.wait_or_refuse(&mut graph, me, WaitingFor::Lock(thing), signal, |graph| {
                graph.settle_row(row, slot);
            });
        };
        tell_head(&mut latched, lock.owner, Some(lock));
        if lock.is_idle() {
            graph.locks.remove(&thing);
        }
        asked
    }

    /// Queues `me` for the end of the transaction that has the row.
    pub fn look_on(&self, me: SessionNo, row: RowId, slot: Slot<'_>) -> Asked {
        let mut graph = self.graph.lock();
        let mut latched = slot.latch();
        let (owner, thing) = (owner_of(&latched), Thing::Row(row));
        if owner.is_none_or(|(session, _)| session == me) {
            return Asked::Free;
        }
        let lock = graph.locks.entry(thing).or_default();
        lock.owner = owner;
        let signal = Arc::new(Signal::default());
        let (signal_kept, since) = (signal.clone(), Instant::now());
        let mode = Strength::KeyShare.into();
        lock.onlookers.push(Waiter { session: me, mode, kept: false, signal: signal_kept, since });
        tell_head(&mut latched, lock.owner, Some(lock));
        drop(latched);
        self.wait_or_refuse(&mut graph, me, WaitingFor::Onlooker(thing), signal, |graph| graph.settle_row(row, slot))
    }

    /// Asks for a table, whose gate it is, or queues `me` for it.
    pub fn ask_table(&self, me: SessionNo, table: TableId, gate: &Arc<Gate>, wish: Wish) -> Asked {
        self.ask(me, Thing::Table(table), Some(gate), wish)
    }

    pub fn ask_advisory(&self, me: SessionNo, key: AdvisoryKey, wish: Wish) -> Asked {
        self.ask(me, Thing::Advisory(key), None, wish)
    }

    fn ask(&self, me: SessionNo, thing: Thing, gate: Option<&Arc<Gate>>, wish: Wish) -> Asked {
        let mut graph = self.graph.lock();
        let lock = graph.locks.entry(thing).or_default();
        if lock.gate.is_none() {
            lock.gate = gate.cloned();
        }
        let place = lock.place_of(me);
        let is_held = lock
            .holders
            .iter()
            .any(|h| h.session == me && (if wish.kept { h.kept } else { h.modes }) & wish.mode.bit() != 0);
        let asked = if is_held {
            Asked::Mine
        } else if lock.held_by(me) & wish.mode.bit() != 0 || lock.is_free_for(me, wish.mode, place) {
            lock.give(me, wish.mode, wish.kept);
            Asked::Newly
        } else if wish.nowait {
            Asked::Busy
        } else {
            let signal = lock.enqueue(me, wish, place);
            self.tell_gate(&mut graph, thing);
            return self.wait_or_refuse(&mut graph, me, WaitingFor::Lock(thing), signal, |graph| {
                self.settle(graph, thing);
            });
        };
        self.tell_gate(&mut graph, thing);
        asked
    }

    /// Whether `session` only locks rows of the table, and has asked for that: whoever is let in beside it need not wait for its end.
    pub fn only_locks_rows(&self, session: SessionNo, table: TableId) -> bool {
        self.has(session, Thing::Table(table), LOCKING_ROWS, false)
    }

    /// Queues `me` for the end of `holder`'s transaction, if it does not only lock rows of `table`. `is_over` is asked under the mutex that the end takes.
    pub fn ask_end(
        &self,
        me: SessionNo,
        holder: SessionNo,
        table: Option<TableId>,
        is_over: impl FnOnce() -> bool,
    ) -> Asked {
        let mut graph = self.graph.lock();
        let lock = table.and_then(|table| graph.locks.get(&Thing::Table(table)));
        if lock.is_some_and(|lock| lock.held_by(holder) & LOCKING_ROWS.bit() != 0) {
            return Asked::Free;
        }
        let signal = Arc::new(Signal::default());
        let waiter = EndWaiter { session: me, table, signal: signal.clone(), since: Instant::now() };
        graph.ends.entry(holder).or_default().push(waiter);
        if is_over() {
            graph.leave_end(me, holder);
            return Asked::Free;
        }
        self.wait_or_refuse(&mut graph, me, WaitingFor::Session(holder), signal, |_| ())
    }

    /// `me` is in a queue: he waits, unless that closes a cycle.
    fn wait_or_refuse(
        &self,
        graph: &mut Graph,
        me: SessionNo,
        waiting: WaitingFor,
        signal: Arc<Signal>,
        settle: impl FnOnce(&mut Graph),
    ) -> Asked {
        graph.waiting.insert(me, waiting);
        match graph.cycle(me) {
            Some(cycle) => {
                graph.leave(me);
                settle(graph);
                Asked::Deadlock(cycle)
            }
            None => Asked::Queued(signal),
        }
    }

    /// Gives up the exclusive lock of a row whose head says *waited*: to the first who wants it, or to nobody.
    pub fn hand_over(&self, row: RowId, slot: Slot<'_>) {
        let mut graph = self.graph.lock();
        let mut latched = slot.latch();
        let head = latched.head();
        latched.set_head(head.with_owner(None).with_dirty(false));
        drop(latched);
        graph.look_away(row);
        graph.settle_row(row, slot);
    }

    /// Gives up the lock of a row that never was, and whose slot goes back: those who want it look again.
    pub fn dissolve(&self, row: RowId, slot: Slot<'_>) {
        let mut graph = self.graph.lock();
        graph.look_away(row);
        if let Some(lock) = graph.locks.get_mut(&Thing::Row(row)) {
            debug_assert!(lock.holders.is_empty(), "invariant: who makes a row shares it with nobody");
            let queue = std::mem::take(&mut lock.queue);
            for waiter in queue {
                graph.waiting.remove(&waiter.session);
                waiter.signal.tell();
            }
            graph.locks.remove(&Thing::Row(row));
        }
        let mut latched = slot.latch();
        let head = latched.head();
        latched.set_head(head.with_owner(None).with_dirty(false).with_waited(false).with_shared(false));
    }

    /// `me` shares the row no longer in this mode.
    pub fn stop_sharing(&self, me: SessionNo, row: RowId, slot: Slot<'_>, strength: Strength) {
        let mut graph = self.graph.lock();
        if let Some(lock) = graph.locks.get_mut(&Thing::Row(row)) {
            lock.take_from(me, strength.into(), false);
        }
        graph.settle_row(row, slot);
    }

    /// `me` gives up a table or an advisory key in this mode.
    pub fn give_up(&self, me: SessionNo, thing: Thing, mode: Mode, kept: bool) {
        let mut graph = self.graph.lock();
        if let Some(lock) = graph.locks.get_mut(&thing) {
            lock.take_from(me, mode, kept);
        }
        self.settle(&mut graph, thing);
    }

    /// Whether `me` shares the row in this mode, has it exclusively by its head, or has the thing.
    pub fn has(&self, me: SessionNo, thing: Thing, mode: Mode, kept: bool) -> bool {
        let graph = self.graph.lock();
        let holder = graph.locks.get(&thing).and_then(|lock| lock.holders.iter().find(|h| h.session == me));
        holder.is_some_and(|h| (if kept { h.kept } else { h.modes }) & mode.bit() != 0)
    }

    /// A transaction is over: tells those who waited for that.
    pub fn tell_end(&self, holder: SessionNo) {
        let mut graph = self.graph.lock();
        for EndWaiter { session, signal, .. } in graph.ends.remove(&holder).unwrap_or_default() {
            graph.waiting.remove(&session);
            signal.tell();
        }
    }

    /// A transaction has left tables: tells those who waited for that. Who waits for a table that it `is_at` goes on, without a gap in which
    /// nobody would find the circle that a wait of the transaction itself closes; true if there is such a one.
    pub fn tell_left(&self, holder: SessionNo, is_at: impl Fn(TableId) -> bool) -> bool {
        let mut graph = self.graph.lock();
        let waiters = graph.ends.remove(&holder).unwrap_or_default();
        let (stay, told): (Vec<EndWaiter>, Vec<EndWaiter>) =
            waiters.into_iter().partition(|waiter| waiter.table.is_some_and(&is_at));
        for EndWaiter { session, signal, .. } in told {
            graph.waiting.remove(&session);
            signal.tell();
        }
        let is_waited = !stay.is_empty();
        if is_waited {
            graph.ends.insert(holder, stay);
        }
        is_waited
    }

    /// Takes `me` out of whatever it waits for. `slot` leads to the row's slot.
    pub fn leave<'s>(&self, me: SessionNo, slot: impl FnOnce(RowId) -> Slot<'s>) {
        let mut graph = self.graph.lock();
        match graph.leave(me) {
            Some(WaitingFor::Lock(Thing::Row(row)) | WaitingFor::Onlooker(Thing::Row(row))) => {
                graph.settle_row(row, slot(row));
            }
            Some(WaitingFor::Lock(thing)) => self.settle(&mut graph, thing),
            _ => {}
        }
    }

    /// Whether some table is barred to readers by LOCK TABLE.
    #[inline]
    pub fn is_barred(&self) -> bool {
        self.barred.load(Ordering::Relaxed) != 0
    }

    /// Grants what has become free of a table or key.
    fn settle(&self, graph: &mut Graph, thing: Thing) {
        let Graph { locks, waiting, .. } = graph;
        if let Some(lock) = locks.get_mut(&thing) {
            lock.advance(|session| _ = waiting.remove(&session));
        }
        self.tell_gate(graph, thing);
    }

    /// Invariant 5; forgets a lock that nobody has or wants.
    fn tell_gate(&self, graph: &mut Graph, thing: Thing) {
        let Some(lock) = graph.locks.get_mut(&thing) else { return };
        let queued = lock.queue.iter().fold(0, |all, w| all | w.mode.bit());
        let modes = lock.held().fold(queued, |all, (_, modes)| all | modes);
        if let Some(gate) = &lock.gate {
            let is_closed = modes & Mode::from(LockMode::RowExclusive).conflicts() != 0;
            gate.set_closed(is_closed);
            let bars = modes & BARRING.bit() != 0;
            match (std::mem::replace(&mut lock.bars, bars), bars) {
                (false, true) => _ = self.barred.fetch_add(1, Ordering::SeqCst),
                (true, false) => _ = self.barred.fetch_sub(1, Ordering::SeqCst),
                _ => {}
            }
        }
        if lock.is_idle() {
            graph.locks.remove(&thing);
        }
    }

    /// How a session is called from now on, for those who look on; `None`: by its number again.
    pub fn set_name(&self, session: SessionNo, name: Option<u32>) {
        let mut graph = self.graph.lock();
        match name {
            Some(name) => _ = graph.names.insert(session, name),
            None => _ = graph.names.remove(&session),
        }
    }

    pub fn name(&self, session: SessionNo) -> u32 {
        self.graph.lock().name(session)
    }

    /// What is held and waited for; what is in rows' heads only is not known here.
    pub fn facts(&self) -> Vec<LockFact> {
        let graph = self.graph.lock();
        let mut facts = Vec::new();
        for (&thing, lock) in &graph.locks {
            let owner = lock.owner.filter(|_| lock.is_waited()).map(|(session, mode)| (session, mode.bit()));
            for (session, modes) in owner.into_iter().chain(lock.holders.iter().map(|h| (h.session, h.modes | h.kept)))
            {
                let modes = (0..CONFLICTS.len() as u8).map(Mode).filter(|m| m.bit() & modes != 0);
                facts.extend(modes.map(|mode| graph.fact(session, thing, mode.name(), None)));
            }
            let waiting = lock.queue.iter();
            facts.extend(waiting.map(|w| graph.fact(w.session, thing, w.mode.name(), Some(w.since))));
            if let Some((holder, _)) = lock.owner {
                let over = Thing::Transaction(graph.name(holder));
                let waiting = lock.onlookers.iter();
                facts.extend(waiting.map(|w| graph.fact(w.session, over, ModeName::End, Some(w.since))));
            }
        }
        for (&holder, waiting) in &graph.ends {
            let over = Thing::Transaction(graph.name(holder));
            facts.extend(waiting.iter().map(|w| graph.fact(w.session, over, ModeName::End, Some(w.since))));
        }
        facts
    }

    /// Who keeps the session of this name waiting, by their names.
    pub fn blockers(&self, name: u32) -> Vec<u32> {
        let graph = self.graph.lock();
        let Some(&session) = graph.waiting.keys().find(|no| graph.name(**no) == name) else { return Vec::new() };
        let mut ahead: Vec<u32> = graph.ahead_of(session, true).into_iter().map(|no| graph.name(no)).collect();
        let mut seen = HashSet::new();
        ahead.retain(|name| seen.insert(*name));
        ahead
    }
}

impl Lock {
    fn enqueue(&mut self, me: SessionNo, wish: Wish, place: usize) -> Arc<Signal> {
        let signal = Arc::new(Signal::default());
        let Wish { mode, kept, .. } = wish;
        self.queue.insert(place, Waiter { session: me, mode, kept, signal: signal.clone(), since: Instant::now() });
        signal
    }
}

impl Graph {
    /// What the session said, or [`super::Session::number`].
    fn name(&self, session: SessionNo) -> u32 {
        self.names.get(&session).copied().unwrap_or(session.0 + 1)
    }

    fn fact(&self, session: SessionNo, thing: Thing, mode: ModeName, since: Option<Instant>) -> LockFact {
        LockFact { session: self.name(session), thing, mode, is_granted: since.is_none(), since }
    }

    /// Those who wait for the end of the row's owner have it.
    fn look_away(&mut self, row: RowId) {
        if let Some(lock) = self.locks.get_mut(&Thing::Row(row)) {
            for waiter in lock.onlookers.drain(..) {
                self.waiting.remove(&waiter.session);
                waiter.signal.tell();
            }
        }
    }

    /// Grants what has become free of a row, says so in its head, and forgets a lock that is in the head only.
    fn settle_row(&mut self, row: RowId, slot: Slot<'_>) {
        let Graph { locks, waiting, .. } = self;
        let thing = Thing::Row(row);
        let Some(lock) = locks.get_mut(&thing) else { return };
        let mut latched = slot.latch();
        lock.owner = owner_of(&latched);
        lock.advance(|session| _ = waiting.remove(&session));
        tell_head(&mut latched, lock.owner, Some(lock));
        if lock.is_idle() {
            locks.remove(&thing);
        }
    }

    fn leave(&mut self, me: SessionNo) -> Option<WaitingFor> {
        let waited = self.waiting.remove(&me)?;
        match waited {
            WaitingFor::Lock(thing) | WaitingFor::Onlooker(thing) => {
                if let Some(lock) = self.locks.get_mut(&thing) {
                    lock.queue.retain(|w| w.session != me);
                    lock.onlookers.retain(|w| w.session != me);
                }
            }
            WaitingFor::Session(holder) => self.leave_end(me, holder),
        }
        Some(waited)
    }

    fn leave_end(&mut self, me: SessionNo, holder: SessionNo) {
        if let Some(waiters) = self.ends.get_mut(&holder) {
            waiters.retain(|waiter| waiter.session != me);
            if waiters.is_empty() {
                self.ends.remove(&holder);
            }
        }
    }

    /// Whom a session waits for: holders, and with `queued` those who are before it in the queue as well.
    fn ahead_of(&self, session: SessionNo, queued: bool) -> Vec<SessionNo> {
        let mut ahead = Vec::new();
        match self.waiting.get(&session) {
            None => {}
            Some(WaitingFor::Session(holder)) => ahead.push(*holder),
            Some(WaitingFor::Onlooker(thing)) => {
                let owner = self.locks.get(thing).and_then(|lock| lock.owner);
                ahead.extend(owner.map(|(session, _)| session));
            }
            Some(WaitingFor::Lock(thing)) => {
                let lock = self.locks.get(thing).expect("invariant: a waiter's lock exists");
                let at = lock.queue.iter().position(|w| w.session == session);
                let at = at.expect("invariant: a waiter is in its queue");
                let mut in_the_way = lock.queue[at].mode.conflicts();
                // Whoever is before it and in its way makes those its way too who are in that one's.
                for waiter in lock.queue.iter().take(at).rev() {
                    if in_the_way & waiter.mode.bit() != 0 {
                        in_the_way |= waiter.mode.conflicts();
                        if queued {
                            ahead.push(waiter.session);
                        }
                    }
                }
                let holders = lock.held().filter(|(s, modes)| *s != session && modes & in_the_way != 0);
                ahead.extend(holders.map(|(s, _)| s));
            }
        }
        ahead
    }

    /// The way from `me` back to `me`, if there is one.
    fn cycle(&self, me: SessionNo) -> Option<Vec<Blocked>> {
        let mut from: HashMap<SessionNo, SessionNo> = HashMap::new();
        let (mut seen, mut next) = (HashSet::from([me]), vec![me]);
        while let Some(session) = next.pop() {
            for holder in self.ahead_of(session, false) {
                if holder == me {
                    return Some(self.way(me, session, &from));
                }
                if seen.insert(holder) {
                    from.insert(holder, session);
                    next.push(holder);
                }
            }
        }
        None
    }

    fn way(&self, me: SessionNo, last: SessionNo, from: &HashMap<SessionNo, SessionNo>) -> Vec<Blocked> {
        let (mut way, mut session, mut by) = (Vec::new(), last, me);
        loop {
            let (thing, mode) = match self.waiting[&session] {
                WaitingFor::Lock(thing) => {
                    let waiter = self.locks[&thing].queue.iter().find(|w| w.session == session);
                    (thing, waiter.map_or(ModeName::End, |w| w.mode.name()))
                }
                WaitingFor::Onlooker(_) => (Thing::Transaction(self.name(by)), ModeName::End),
                WaitingFor::Session(holder) => (Thing::Transaction(self.name(holder)), ModeName::End),
            };
            way.push(Blocked { session: self.name(session), thing, mode, by: self.name(by) });
            if session == me {
                way.reverse();
                return way;
            }
            (by, session) = (session, from[&session]);
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::schema::LIVE;
    use crate::sync::atomic::AtomicU64;
    use crate::sync::thread;
    use crate::table::{Head, Owned};

    const ROW: RowId = RowId(3);
    /// Of the record: what the row counts.
    const COUNT: usize = 2;

    /// One row, and who wants it. Held by `Arc` of the standard library: what loom is to see is inside.
    struct World {
        words: [AtomicU64; 5],
        locks: LockTable,
    }

    impl World {
        fn slot(&self) -> Slot<'_> {
            Slot::new(&self.words)
        }

        fn is_owner(&self, me: SessionNo) -> bool {
            self.slot().latch().head().owner() == Some(me)
        }
    }

    fn world() -> Arc<World> {
        Arc::new(World { words: [0, 0, 1, LIVE, 0].map(AtomicU64::new), locks: LockTable::default() })
    }

    /// What came of asking.
    enum Owns {
        Now,
        Later(Arc<Signal>),
    }

    /// As `Session::lock_at_newest` and `ask_row` do.
    fn ask(world: &World, me: SessionNo) -> Owns {
        let owned = world.slot().latch().try_own(me, true);
        if owned == Owned::Newly {
            return Owns::Now;
        }
        assert_eq!(owned, Owned::Others);
        match world.locks.ask_row(me, ROW, world.slot(), Wish::of_row(Strength::Update, false)) {
            Asked::Newly => Owns::Now,
            Asked::Queued(signal) => Owns::Later(signal),
            _ => panic!("the row is there, and nobody waits for two things"),
        }
    }

    fn own(world: &World, me: SessionNo) {
        if let Owns::Later(signal) = ask(world, me) {
            while !signal.is_told() {
                thread::yield_now();
            }
            assert!(world.is_owner(me), "told, and not the owner");
        }
    }

    /// As a commit does: `stamp`, and then `hand_over`.
    fn let_go(world: &World) {
        let mut latched = world.slot().latch();
        let head = latched.head();
        let owner = if head.is_waited() { head.owner() } else { None };
        latched.set_head(head.with_dirty(false).with_owner(owner));
        drop(latched);
        if head.is_waited() {
            world.locks.hand_over(ROW, world.slot());
        }
    }

    /// A change that takes the row's lock: what it writes is of what it found then.
    fn count(world: &World, me: SessionNo) {
        own(world, me);
        let found = world.slot().load(COUNT);
        let mut latched = world.slot().latch();
        latched.set(COUNT, found + 1);
        drop(latched);
        let_go(world);
    }

    /// A change in one go, as `once` does it; false if the row was wanted, or changed meanwhile.
    fn count_once(world: &World) -> bool {
        let slot = world.slot();
        let seen = slot.state();
        let (head, found) = (slot.head(), slot.load(COUNT));
        if !slot.is_unchanged(seen) || !head.is_free() {
            return false;
        }
        let Some(mut latched) = slot.latch_unchanged(seen) else { return false };
        latched.set(COUNT, found + 1);
        true
    }

    fn assert_at_rest(world: &World, count: u64) {
        assert_eq!(world.slot().load(COUNT), count, "a change is lost");
        assert_eq!(world.slot().head(), Head::default(), "somebody has the row, or waits for it");
        assert!(world.locks.facts().is_empty(), "somebody is in the lock table");
    }

    fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    #[test]
    fn loom_a_row_is_handed_over_to_who_waits() {
        check(3, || {
            let world = world();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || count(&world, SessionNo(1)))
            };
            count(&world, SessionNo(0));
            other.join().expect("the other does not panic");
            assert_at_rest(&world, 2);
        });
    }

    #[test]
    fn loom_a_change_in_one_go_fits_beside_an_owner() {
        check(3, || {
            let world = world();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || count(&world, SessionNo(1)))
            };
            let is_counted = count_once(&world);
            other.join().expect("the other does not panic");
            assert_at_rest(&world, 1 + u64::from(is_counted));
        });
    }

    /// While somebody waits the row is never free, not even from one owner to the next.
    #[test]
    fn loom_nobody_overtakes_who_waits() {
        check(3, || {
            let world = world();
            own(&world, SessionNo(0));
            let Owns::Later(signal) = ask(&world, SessionNo(1)) else { panic!("another has the row") };
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || let_go(&world))
            };
            let owned = world.slot().latch().try_own(SessionNo(2), true);
            assert!(owned == Owned::Others && !count_once(&world), "somebody waited");
            other.join().expect("the other does not panic");
            assert!(signal.is_told() && world.is_owner(SessionNo(1)));
            let_go(&world);
            assert_at_rest(&world, 0);
        });
    }

    /// Who gives up learns whether the row is his by then.
    #[test]
    fn loom_a_row_that_is_handed_to_who_gives_up_is_not_lost() {
        check(3, || {
            let world = world();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let me = SessionNo(1);
                    let owns = match ask(&world, me) {
                        Owns::Now => true,
                        Owns::Later(_) => {
                            world.locks.leave(me, |_| world.slot());
                            world.is_owner(me)
                        }
                    };
                    if owns {
                        let_go(&world);
                    }
                })
            };
            count(&world, SessionNo(0));
            other.join().expect("the other does not panic");
            assert_at_rest(&world, 1);
        });
    }
}
