//! Who has changed what since when? The list of what commits change while somebody wants to know, and the order in which it is written and read.
//!
//! The rules are in `txn::serial`; apart from it so that loom runs them.

use crate::catalog::TableId;
use crate::ids::{Cts, RowId};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::table::SessionNo;
use std::collections::VecDeque;
use std::sync::Arc;

/// Not drawn yet, or not said.
pub(super) const UNDECIDED: u64 = 0;
/// It did not commit.
const ABANDONED: u64 = u64::MAX;
/// What the notes may weigh, in rows: some 32 MiB.
const WEIGHT_MAX: usize = 1 << 20;
/// What a note weighs besides its rows.
const NOTE_WEIGHT: usize = 6;
/// Looks at a note whose cts is about to be said.
const LOOKS: usize = if cfg!(loom) { 1 } else { 256 };
/// Notes that are copied out at a time, and that may be left to look at after the draw.
pub(super) const NOTES_TOGETHER: usize = 256;

/// What a commit changes.
pub(super) struct Noted {
    cts: AtomicU64,
    pub rows: Box<[(TableId, RowId)]>,
    /// The schema, a table's whole content, or more than is told.
    pub is_all: bool,
}

impl Noted {
    /// Its cts as far as it is said; [`UNDECIDED`] or [`ABANDONED`].
    pub fn drawn(&self) -> u64 {
        self.cts.load(Ordering::SeqCst)
    }

    /// The commit has this cts.
    pub fn say(&self, cts: Cts) {
        self.cts.store(cts.0, Ordering::SeqCst);
    }

    pub fn abandon(&self) {
        self.cts.store(ABANDONED, Ordering::SeqCst);
    }

    fn weight(&self) -> usize {
        NOTE_WEIGHT + self.rows.len()
    }

    /// Looks a while for a cts that is not said yet.
    fn decided(&self) -> u64 {
        for _ in 0..LOOKS {
            let cts = self.cts.load(Ordering::SeqCst);
            if cts != UNDECIDED {
                return cts;
            }
            std::hint::spin_loop();
        }
        UNDECIDED
    }
}

#[derive(Default)]
struct List {
    registered: Vec<(SessionNo, Cts)>,
    notes: VecDeque<Arc<Noted>>,
    /// How many notes came before the first.
    first: u64,
    weight: usize,
    /// See invariant 5.
    lost: Cts,
}

impl List {
    fn drop_first(&mut self) {
        if let Some(note) = self.notes.pop_front() {
            self.first += 1;
            self.weight -= note.weight();
        }
    }

    /// Those that are not before `checked`, and the number of the first.
    fn from(&self, checked: u64) -> (u64, impl ExactSizeIterator<Item = &Arc<Noted>>) {
        let from = checked.max(self.first);
        (from, self.notes.range((from - self.first) as usize..))
    }

    /// Forgets what all registered snapshots see.
    fn prune(&mut self) {
        let oldest = self.registered.iter().map(|r| r.1).min().unwrap_or(Cts::MAX);
        let is_seen = |note: &Arc<Noted>| match note.cts.load(Ordering::SeqCst) {
            UNDECIDED => oldest == Cts::MAX,
            ABANDONED => true,
            cts => Cts(cts) <= oldest,
        };
        while self.notes.front().is_some_and(is_seen) {
            self.drop_first();
        }
    }

    /// Forgets the oldest notes where there are too many.
    fn bound(&mut self) {
        while self.weight > WEIGHT_MAX {
            match self.notes.front().map(|note| note.cts.load(Ordering::SeqCst)) {
                None | Some(UNDECIDED) => return,
                Some(ABANDONED) => {}
                Some(cts) => self.lost = self.lost.max(Cts(cts)),
            }
            self.drop_first();
        }
    }
}

/// What commits change while somebody wants to know.
pub(crate) struct Serial {
    /// How many are registered.
    registered: AtomicU32,
    list: Mutex<List>,
}

impl Serial {
    pub fn new() -> Serial {
        Serial { registered: AtomicU32::new(0), list: Mutex::new(List::default()) }
    }

    /// Whether commits note what they change. Asked while holding the thread's worker (invariant 2).
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.registered.load(Ordering::SeqCst) != 0
    }

    pub fn register(&self, me: SessionNo) {
        let mut list = self.list.lock();
        list.registered.push((me, Cts::ZERO));
        self.registered.store(list.registered.len() as u32, Ordering::SeqCst);
    }

    pub fn set_snapshot(&self, me: SessionNo, snapshot: Cts) {
        let mut list = self.list.lock();
        list.registered.iter_mut().filter(|r| r.0 == me).for_each(|r| r.1 = snapshot);
    }

    pub fn leave(&self, me: SessionNo) {
        let mut list = self.list.lock();
        list.registered.retain(|r| r.0 != me);
        self.registered.store(list.registered.len() as u32, Ordering::SeqCst);
        list.prune();
    }

    /// Before the cts is drawn: room is made and everything allocated.
    pub fn note(&self, rows: Vec<(TableId, RowId)>, is_all: bool) -> Arc<Noted> {
        let is_all = is_all || rows.len() > WEIGHT_MAX / 4;
        let rows = if is_all { Box::default() } else { rows.into_boxed_slice() };
        let noted = Arc::new(Noted { cts: AtomicU64::new(UNDECIDED), rows, is_all });
        let mut list = self.list.lock();
        list.weight += noted.weight();
        list.notes.push_back(noted.clone());
        list.bound();
        noted
    }

    /// Copies some of the notes that are not before `at`; gives the number of the first of them.
    pub fn some_from(&self, at: u64, notes: &mut Vec<Arc<Noted>>) -> u64 {
        let list = self.list.lock();
        let (first, left) = list.from(at);
        notes.extend(left.take(NOTES_TOGETHER).cloned());
        first
    }

    /// After a draw: whether none of the notes that are not before `checked` is in the way. `notes` is a place for some.
    pub fn holds(
        &self,
        checked: u64,
        snapshot: Cts,
        own: Option<&Arc<Noted>>,
        notes: &mut Vec<Arc<Noted>>,
        mut is_in_the_way: impl FnMut(&Noted, u64) -> bool,
    ) -> bool {
        {
            let list = self.list.lock();
            let (_, left) = list.from(checked);
            if list.lost > snapshot || left.len() > notes.capacity() {
                return false;
            }
            notes.extend(left.cloned());
        }
        let mut others = notes.iter().filter(|note| own.is_none_or(|own| !Arc::ptr_eq(own, note)));
        let holds = !others.any(|note| is_in_the_way(note, note.decided()));
        notes.clear();
        holds
    }
}

/// Whether a commit of `drawn`, or undecided, may come after the snapshot and before `cts`.
pub(super) fn may_lie_between(snapshot: Cts, drawn: u64, cts: Cts) -> bool {
    drawn == UNDECIDED || (drawn != ABANDONED && Cts(drawn) > snapshot && Cts(drawn) <= cts)
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::thread;

    /// Two rows, and who is between draw and install.
    struct World {
        serial: Serial,
        clock: AtomicU64,
        workers: [Mutex<()>; 2],
        /// The commit that wrote each row; 0: none.
        written: [AtomicU64; 2],
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            serial: Serial::new(),
            clock: AtomicU64::new(1),
            workers: [Mutex::new(()), Mutex::new(())],
            written: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    struct Done {
        snapshot: u64,
        cts: u64,
        /// The commit whose version of the other row was read.
        read: u64,
    }

    /// What a model leaves out to show that it would be seen.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Without {
        Nothing,
        /// Letting commits end that do not note.
        Wait,
        /// Counting those that have not said their cts.
        Undecided,
    }

    fn let_commits_end(world: &World) {
        world.workers.iter().for_each(|worker| drop(worker.lock()));
    }

    /// Reads the other row and writes its own, in SERIALIZABLE; nothing if it is refused.
    fn transact(world: &World, me: usize, without: Without) -> Option<Done> {
        let (no, other) = (SessionNo(me as u32), 1 - me);
        world.serial.register(no);
        if without != Without::Wait {
            let_commits_end(world);
        }
        let snapshot = world.clock.load(Ordering::SeqCst);
        if without != Without::Wait {
            // The watermark passes it.
            let_commits_end(world);
        }
        world.serial.set_snapshot(no, Cts(snapshot));
        let read = Some(world.written[other].load(Ordering::SeqCst)).filter(|cts| *cts <= snapshot).unwrap_or(0);
        let (cts, holds) = {
            let _worker = world.workers[me].lock();
            let noted = world.serial.note(vec![(TableId(0), RowId(me as u64))], false);
            let cts = world.clock.fetch_add(1, Ordering::SeqCst) + 1;
            noted.say(Cts(cts));
            let mut notes = Vec::with_capacity(NOTES_TOGETHER);
            let in_the_way = |note: &Noted, drawn: u64| {
                let may_come_before = drawn != UNDECIDED || without != Without::Undecided;
                let may_lie_between = may_lie_between(Cts(snapshot), drawn, Cts(cts)) && may_come_before;
                may_lie_between && note.rows[0].1 == RowId(other as u64)
            };
            let holds = world.serial.holds(0, Cts(snapshot), Some(&noted), &mut notes, in_the_way);
            match holds {
                true => world.written[me].store(cts, Ordering::SeqCst),
                false => noted.abandon(),
            }
            (cts, holds)
        };
        world.serial.leave(no);
        holds.then_some(Done { snapshot, cts, read })
    }

    /// Writes row 1 at another level.
    fn write(world: &World) -> u64 {
        let _worker = world.workers[1].lock();
        let noted = world.serial.is_watched().then(|| world.serial.note(vec![(TableId(0), RowId(1))], false));
        let cts = world.clock.fetch_add(1, Ordering::SeqCst) + 1;
        noted.iter().for_each(|noted| noted.say(Cts(cts)));
        world.written[1].store(cts, Ordering::SeqCst);
        cts
    }

    fn check(race: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        // Without a bound it does not end in minutes.
        model.preemption_bound = Some(3);
        model.check(race);
    }

    fn write_askew(without: Without) {
        check(move || {
            let world = world();
            let beside = {
                let world = world.clone();
                thread::spawn(move || transact(&world, 1, without))
            };
            let first = transact(&world, 0, without);
            let second = beside.join().expect("the other does not panic");
            if let (Some(first), Some(second)) = (first, second) {
                let (earlier, later) = if first.cts < second.cts { (first, second) } else { (second, first) };
                assert_eq!((earlier.read, later.read), (0, earlier.cts));
            }
        });
    }

    fn read_beside_a_writer(without: Without) {
        check(move || {
            let world = world();
            let beside = {
                let world = world.clone();
                thread::spawn(move || write(&world))
            };
            let reader = transact(&world, 0, without);
            let written = beside.join().expect("the other does not panic");
            if let Some(Done { snapshot, cts, read }) = reader {
                assert!(written > cts || read == written, "{written} is missed by {cts} of snapshot {snapshot}");
            }
        });
    }

    #[test]
    fn loom_of_two_that_write_askew_the_later_has_read_what_the_earlier_wrote() {
        write_askew(Without::Nothing);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn loom_who_has_not_said_its_timestamp_counts() {
        write_askew(Without::Undecided);
    }

    #[test]
    fn loom_a_writer_of_another_level_is_seen_or_noted() {
        read_beside_a_writer(Without::Nothing);
    }

    #[test]
    #[should_panic(expected = "is missed by")]
    fn loom_a_writer_that_began_before_is_missed_without_a_wait() {
        read_beside_a_writer(Without::Wait);
    }
}
