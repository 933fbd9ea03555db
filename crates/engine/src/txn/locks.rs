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
use std::collections::{HashMap, VecDeque};
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
    signal: Arc<Signal>,
}

struct Queue {
    owner: SessionNo,
    /// Who wants the lock, in the order in which they asked.
    heirs: VecDeque<Waiter>,
    /// Who wants to know when the owner's transaction is over.
    onlookers: Vec<Waiter>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.heirs.is_empty() && self.onlookers.is_empty()
    }
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
        let queue =
            graph.queues.entry(row).or_insert_with(|| Queue { owner, heirs: VecDeque::new(), onlookers: Vec::new() });
        debug_assert_eq!(queue.owner, owner);
        let waiter = Waiter { session: me, signal: signal.clone() };
        match want {
            Want::Lock => queue.heirs.push_back(waiter),
            Want::End => queue.onlookers.push(waiter),
        }
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
            // Whoever waited for the end has it; only the lock has one successor.
            let heir = queue.heirs.pop_front();
            if let Some(heir) = &heir {
                next = Some(heir.session);
                queue.owner = heir.session;
            }
            for waiter in heir.into_iter().chain(queue.onlookers.drain(..)) {
                graph.waiting.remove(&waiter.session);
                waiter.signal.tell();
            }
            if queue.is_empty() {
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
                    queue.heirs.retain(|w| w.session != me);
                    queue.onlookers.retain(|w| w.session != me);
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
        if self.queues.get(&row).is_some_and(Queue::is_empty) {
            self.queues.remove(&row);
            let mut latched = slot.latch();
            let head = latched.head().with_waited(false);
            latched.set_head(head);
        }
    }

    /// Whether `me` waits for itself. Each session waits for one thing, and each thing has one owner: there is one path to follow. Who is
    /// before `me` in a queue waits for that queue's owner too; once he is the owner himself, his own next wait is looked at.
    fn has_cycle(&self, me: SessionNo) -> bool {
        let mut session = me;
        // A path that is longer runs in a cycle without `me`, which whoever closed it has found.
        for _ in 0..=self.waiting.len() {
            session = match self.waiting.get(&session) {
                None => return false,
                Some(WaitingFor::Session(holder)) => *holder,
                Some(WaitingFor::Row(row)) => self.queues.get(row).expect("invariant: a waiter's queue exists").owner,
            };
            if session == me {
                return true;
            }
        }
        false
    }
}
