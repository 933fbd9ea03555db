//! Who waits for whom? Queues on rows and on transactions, in one waits-for graph.
//!
//! A row lock itself lies in the slot's head; this table is touched only when someone must wait.
//!
//! 1. Order of latches: this table's mutex, then a slot's latch. Nothing is taken while a slot is latched.
//! 2. A head's *waited* bit is set and cleared under both; while it is set, the row's queue exists here and names its owner.
//! 3. Release hands the lock to the first in the queue; nobody overtakes.
//! 4. A session waits for one thing at a time, so a cycle is found by following edges from the newest waiter.

use super::wait::Signal;
use crate::ids::RowId;
use crate::table::{SessionNo, Slot};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// What a waiter of a row wants when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// The row lock.
    Lock,
    /// To know that the holder's transaction is over (unique checks).
    End,
}

/// What asking for a row came to.
pub(super) enum Asked {
    /// The lock was free meanwhile: ask again without waiting.
    Free,
    Queued(Arc<Signal>),
    Deadlock,
}

struct Waiter {
    session: SessionNo,
    want: Want,
    signal: Arc<Signal>,
}

struct Queue {
    owner: SessionNo,
    waiters: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
enum WaitingFor {
    Row(RowId),
    Session(SessionNo),
}

#[derive(Default)]
struct Graph {
    queues: HashMap<RowId, Queue>,
    waiting: HashMap<SessionNo, WaitingFor>,
    /// Sessions whose end others wait for.
    ends: HashMap<SessionNo, Vec<(SessionNo, Arc<Signal>)>>,
}

/// All waits of a database.
#[derive(Default)]
pub(super) struct LockTable {
    graph: Mutex<Graph>,
}

impl LockTable {
    /// Queues `me` behind the row's owner.
    pub fn ask_row(&self, me: SessionNo, row: RowId, slot: Slot<'_>, want: Want) -> Asked {
        let mut graph = self.graph.lock();
        let mut latched = slot.latch();
        let head = latched.head();
        let Some(owner) = head.owner().filter(|&o| o != me) else {
            return Asked::Free;
        };
        latched.set_head(head.with_waited(true));
        drop(latched);
        let signal = Arc::new(Signal::default());
        let queue = graph.queues.entry(row).or_insert_with(|| Queue { owner, waiters: VecDeque::new() });
        debug_assert_eq!(queue.owner, owner);
        queue.waiters.push_back(Waiter { session: me, want, signal: signal.clone() });
        graph.waiting.insert(me, WaitingFor::Row(row));
        if graph.has_cycle(me) {
            graph.leave(me);
            graph.settle_flag(row, slot);
            return Asked::Deadlock;
        }
        Asked::Queued(signal)
    }

    /// Queues `me` for the end of `holder`'s transaction. `is_over` is asked under the mutex that the end takes.
    pub fn ask_end(&self, me: SessionNo, holder: SessionNo, is_over: impl FnOnce() -> bool) -> Asked {
        let mut graph = self.graph.lock();
        let signal = Arc::new(Signal::default());
        graph.ends.entry(holder).or_default().push((me, signal.clone()));
        if is_over() {
            graph.leave_end(me, holder);
            return Asked::Free;
        }
        graph.waiting.insert(me, WaitingFor::Session(holder));
        if graph.has_cycle(me) {
            graph.leave(me);
            return Asked::Deadlock;
        }
        Asked::Queued(signal)
    }

    /// Gives up the lock of a row whose head says *waited*: to the first who wants it, or to nobody.
    pub fn hand_over(&self, row: RowId, slot: Slot<'_>) {
        let mut graph = self.graph.lock();
        let graph = &mut *graph;
        let mut next = None;
        if let Some(queue) = graph.queues.get_mut(&row) {
            // Whoever waited for the end has it, wherever in the queue: only the lock has one successor.
            let waiters = std::mem::take(&mut queue.waiters);
            for waiter in waiters {
                if waiter.want == Want::Lock && next.is_some() {
                    queue.waiters.push_back(waiter);
                    continue;
                }
                graph.waiting.remove(&waiter.session);
                if waiter.want == Want::Lock {
                    next = Some(waiter.session);
                    queue.owner = waiter.session;
                }
                waiter.signal.tell();
            }
            if queue.waiters.is_empty() {
                graph.queues.remove(&row);
            }
        }
        let mut latched = slot.latch();
        let head = latched.head().with_dirty(false).with_owner(next);
        latched.set_head(head.with_waited(graph.queues.contains_key(&row)));
    }

    /// A transaction is over: tells those who waited for that.
    pub fn tell_end(&self, holder: SessionNo) {
        let mut graph = self.graph.lock();
        for (session, signal) in graph.ends.remove(&holder).unwrap_or_default() {
            graph.waiting.remove(&session);
            signal.tell();
        }
    }

    /// Takes `me` out of whatever it waits for. `slot` leads to the row's slot.
    pub fn leave<'s>(&self, me: SessionNo, slot: impl FnOnce(RowId) -> Slot<'s>) {
        let mut graph = self.graph.lock();
        if let Some(WaitingFor::Row(row)) = graph.leave(me) {
            graph.settle_flag(row, slot(row));
        }
    }
}

impl Graph {
    fn leave(&mut self, me: SessionNo) -> Option<WaitingFor> {
        let waited = self.waiting.remove(&me)?;
        match waited {
            WaitingFor::Row(row) => {
                if let Some(queue) = self.queues.get_mut(&row) {
                    queue.waiters.retain(|w| w.session != me);
                }
            }
            WaitingFor::Session(holder) => self.leave_end(me, holder),
        }
        Some(waited)
    }

    fn leave_end(&mut self, me: SessionNo, holder: SessionNo) {
        if let Some(waiters) = self.ends.get_mut(&holder) {
            waiters.retain(|(session, _)| *session != me);
            if waiters.is_empty() {
                self.ends.remove(&holder);
            }
        }
    }

    /// Drops an empty queue together with the head's bit (invariant 2).
    fn settle_flag(&mut self, row: RowId, slot: Slot<'_>) {
        if self.queues.get(&row).is_some_and(|q| q.waiters.is_empty()) {
            self.queues.remove(&row);
            let mut latched = slot.latch();
            let head = latched.head().with_waited(false);
            latched.set_head(head);
        }
    }

    fn has_cycle(&self, me: SessionNo) -> bool {
        let mut seen = HashSet::new();
        let mut open = self.blockers(me);
        while let Some(session) = open.pop() {
            if session == me {
                return true;
            }
            if seen.insert(session) {
                open.extend(self.blockers(session));
            }
        }
        false
    }

    /// The owner of what `session` waits for, and those before it in the queue.
    fn blockers(&self, session: SessionNo) -> Vec<SessionNo> {
        match self.waiting.get(&session) {
            None => Vec::new(),
            Some(WaitingFor::Session(holder)) => vec![*holder],
            Some(WaitingFor::Row(row)) => {
                let queue = self.queues.get(row).expect("invariant: a waiter's queue exists");
                let before = queue.waiters.iter().take_while(|w| w.session != session).map(|w| w.session);
                std::iter::once(queue.owner).chain(before).collect()
            }
        }
    }
}
