//! Who is at a table that another wants alone? The table's gate, what those who write it say of themselves, and who waits for their end.
//!
//! ```text
//! writer                                             who wants it alone
//!   says that it is there                              closes the gate
//!   a light fence                                      a heavy fence
//!   looks at the gate; closed: takes it back           looks who is there, and waits for them
//!
//! whoever ends, or takes it back                     who waits for an end
//!   is there no longer, counts its serial number on    says that it waits
//!   a light fence                                      a heavy fence
//!   looks whether anyone waits, and tells              looks whether it is over
//! ```
//!
//! 1. Of two that store before their fence and look after it one sees the other. So who found the gate open is waited for, and nobody waits for an end
//!    that has been and is not told.
//! 2. Whoever leaves does it with a release, who looks has an acquire: what was done at the table has happened by then. So it is with a gate that is
//!    opened: who finds it open finds all that was done behind it.
//! 3. A [`Short`] presence is of a writer who waits for nothing while there: it is waited for by spinning.

use super::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use super::{Mutex, Spin, fences};
use smallvec::SmallVec;

const NOWHERE: u32 = u32::MAX;

/// Whether who writes a table has to ask the lock table first.
#[derive(Default, Debug)]
pub struct Gate {
    /// 1 while some session holds or wants a lock that conflicts with a writer's. The lock table stores it.
    closed: AtomicU32,
}

impl Gate {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.closed.load(Ordering::Acquire) == 0
    }

    /// Who closes it lets a heavy fence pass before he looks who is there.
    pub fn set_closed(&self, is_closed: bool) {
        self.closed.store(u32::from(is_closed), Ordering::SeqCst);
    }
}

/// The table that a thread's short change is at, plus one.
#[derive(Default)]
pub struct Short(AtomicU32);

impl Short {
    /// It is at the table until the result is dropped. The caller has the place to itself, and looks at the table's gate afterwards.
    #[inline]
    pub fn enter(&self, table: u32) -> Entered<'_> {
        self.0.store(table + 1, Ordering::Relaxed);
        fences::light();
        Entered(&self.0)
    }

    /// Until no short change is there that found the gate open: it is closed, and a heavy fence has passed.
    pub fn wait(&self, table: u32) {
        let mut spin = Spin::new();
        while self.0.load(Ordering::Acquire) == table + 1 {
            spin.turn();
        }
    }
}

/// See [`Short::enter`].
pub struct Entered<'a>(&'a AtomicU32);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The tables that a session's transaction is at. Most write one.
pub struct Stay {
    /// The first, or [`NOWHERE`].
    first: AtomicU32,
    others: Mutex<SmallVec<[u32; 4]>>,
    /// Grows when a transaction ends.
    serial: AtomicU64,
    end_waited: AtomicBool,
}

impl Stay {
    pub fn new() -> Stay {
        Stay {
            first: AtomicU32::new(NOWHERE),
            others: Mutex::new(SmallVec::new()),
            serial: AtomicU64::new(0),
            end_waited: AtomicBool::new(false),
        }
    }

    /// The transaction writes the table from now on. The caller looks at the table's gate afterwards.
    pub fn announce(&self, table: u32) {
        if self.first.load(Ordering::Relaxed) == NOWHERE {
            self.first.store(table, Ordering::Relaxed);
        } else {
            self.others.lock().push(table);
        }
        fences::light();
    }

    /// Takes the last announcement of the table back. Then `take_waited` is asked, unless another stays.
    pub fn withdraw(&self, table: u32) {
        let mut others = self.others.lock();
        match others.iter().rposition(|&t| t == table) {
            Some(at) => _ = others.remove(at),
            None => self.first.store(NOWHERE, Ordering::Release),
        }
        drop(others);
        fences::light();
    }

    /// The transaction is over, which was at so many tables; true if someone waits for that.
    pub fn end(&self, tables: usize) -> bool {
        if tables > 1 {
            self.others.lock().clear();
        }
        self.first.store(NOWHERE, Ordering::Release);
        // Only the session itself counts.
        self.serial.store(self.serial.load(Ordering::Relaxed) + 1, Ordering::Release);
        fences::light();
        self.end_waited.load(Ordering::Relaxed) && self.take_waited()
    }

    /// Whether someone waits who is to be told to look again. Who waits says so once for each time that he is told; who took it says so for those
    /// whom he does not tell.
    pub fn take_waited(&self) -> bool {
        self.end_waited.swap(false, Ordering::SeqCst)
    }

    /// Someone is going to wait for the end of this transaction, or for less; he looks afterwards whether it is over.
    pub fn say_waited(&self) {
        self.end_waited.store(true, Ordering::SeqCst);
        fences::heavy();
    }

    pub fn serial(&self) -> u64 {
        self.serial.load(Ordering::SeqCst)
    }

    pub fn is_at(&self, table: u32) -> bool {
        self.first.load(Ordering::SeqCst) == table || self.others.lock().contains(&table)
    }

    pub fn tables(&self) -> SmallVec<[u32; 4]> {
        let first = self.first.load(Ordering::SeqCst);
        let others = self.others.lock().clone();
        (first != NOWHERE).then_some(first).into_iter().chain(others).collect()
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering::*;
    use crate::sync::{Arc, thread};

    const TABLE: u32 = 7;

    struct World {
        gate: Gate,
        short: Short,
        stay: Stay,
        /// What DDL changes.
        definition: AtomicU64,
        /// What writers of the first definition change.
        rows: AtomicU64,
        /// Who waits for the end, as the lock table's mutex keeps it: told, or not yet.
        waiting: Mutex<Option<bool>>,
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            gate: Gate::default(),
            short: Short::default(),
            stay: Stay::new(),
            definition: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            waiting: Mutex::new(None),
        })
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        // Without a bound they take many minutes; each weakening that was tried is found with this one.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Changes what the first definition has, if the gate is open.
    fn write(world: &World) -> bool {
        let is_open = world.gate.is_open();
        if is_open && world.definition.load(Relaxed) == 0 {
            world.rows.store(world.rows.load(Relaxed) + 1, Relaxed);
        }
        is_open
    }

    fn change_definition(world: &World) -> u64 {
        let rows = world.rows.load(Relaxed);
        world.definition.store(1, Relaxed);
        rows
    }

    /// As `change_with` does, beside `awaited_of` and the end of DDL.
    #[test]
    fn loom_short_changes_are_over_or_turn_back_when_a_table_is_taken_alone() {
        check(|| {
            let world = world();
            let writer = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    for _ in 0..2 {
                        let _entered = world.short.enter(TABLE);
                        write(&world);
                    }
                })
            };
            world.gate.set_closed(true);
            fences::heavy();
            world.short.wait(TABLE);
            let seen = change_definition(&world);
            world.gate.set_closed(false);
            writer.join().expect("the writer does not panic");
            assert_eq!(seen, world.rows.load(Relaxed), "a row of the first definition came later");
        });
    }

    fn tell(world: &World) {
        if let Some(told) = &mut *world.waiting.lock() {
            *told = true;
        }
    }

    /// As `wait_for_session` and `LockTable::ask_end` do: true if it is to be waited for.
    fn ask_end(world: &World, serial: u64) -> bool {
        let mut waiting = world.waiting.lock();
        *waiting = Some(false);
        world.stay.say_waited();
        let is_over = world.stay.serial() != serial || !world.stay.is_at(TABLE);
        if is_over {
            *waiting = None;
        }
        !is_over
    }

    /// As `enter_in` and the end of a transaction do, beside `wait_for_writers`.
    #[test]
    fn loom_a_transaction_is_waited_for_or_turns_back_and_who_waits_is_told() {
        check(|| {
            let world = world();
            let writer = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.stay.announce(TABLE);
                    let is_waited = if write(&world) {
                        world.stay.end(1)
                    } else {
                        world.stay.withdraw(TABLE);
                        world.stay.take_waited()
                    };
                    if is_waited {
                        tell(&world);
                    }
                })
            };
            world.gate.set_closed(true);
            fences::heavy();
            let serial = world.stay.serial();
            let waits = world.stay.is_at(TABLE) && ask_end(&world, serial);
            let seen = (!waits).then(|| change_definition(&world));
            writer.join().expect("the writer does not panic");
            match seen {
                Some(seen) => assert_eq!(seen, world.rows.load(Relaxed), "a row of the first definition came later"),
                None => assert_eq!(*world.waiting.lock(), Some(true), "nobody told who waits"),
            }
        });
    }
}
