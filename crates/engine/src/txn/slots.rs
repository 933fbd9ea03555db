//! Which free slots are a thread's own? Threads that insert and delete would meet at each container's list, once for every row.
//!
//! | a free slot lies in | given out by |
//! |---|---|
//! | a thread's batch | that thread, the last one first: its lines are likely in that core's cache |
//! | its container's list | whoever takes the next batch |
//! | nowhere, at or above the container's high-water mark | whoever takes the next batch, once the list is empty |
//!
//! 1. A slot is in one of these places, or given out.
//! 2. A batch grows with its container (`Container::batch_slots`): the rows of a small table lie in the order in which they came, and what a
//!    thread keeps that comes no more is little.
//! 3. Nothing is refused for what lies in batches: before a container is refused a page, all threads' batches of it go back to its list.
//! 4. Batches are in memory only, and nothing of them is logged: a restart finds every slot free that is not live.
//! 5. A batch of a storage that was dropped is never asked for again, because storage ids are not; it goes when its place is needed.

use super::core::Core;
use crate::ids::{RowId, StorageId};
use crate::mem::{Account, Budget, Claim, Kind};
use crate::table::{BATCH_SLOTS_MAX, Container, NoSlot};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Threads share places when there are more.
const PLACES: usize = 32;
/// Containers of which a thread has a batch: tables that it writes, and the classes of their long values.
const BATCHES: usize = 8;

/// Slots of one container, the next one last.
struct Batch {
    storage: StorageId,
    container: u16,
    slots: Vec<RowId>,
}

/// The batches of a thread, those used last first.
#[derive(Default)]
#[repr(align(128))]
struct Place(Mutex<Vec<Batch>>);

pub(crate) struct SlotBatches {
    places: Box<[Place]>,
    account: Account,
}

impl SlotBatches {
    pub fn new(budget: &Arc<Budget>) -> SlotBatches {
        let places = std::iter::repeat_with(Place::default).take(PLACES).collect();
        SlotBatches { places, account: Account::new(budget, Kind::Transactions) }
    }

    fn of(&self, thread: usize) -> MutexGuard<'_, Vec<Batch>> {
        self.places[thread % PLACES].0.lock()
    }

    /// Slots of this container that lie in batches.
    pub fn count(&self, container: &Container) -> usize {
        let of_place = |place: &Place| place.0.lock().iter().find(|b| b.is_of(container)).map_or(0, |b| b.slots.len());
        self.places.iter().map(of_place).sum()
    }

    /// Gives all batches of the container back; false if there was nothing in them.
    fn recall(&self, container: &Container) -> bool {
        let mut is_any = false;
        for place in &self.places {
            if let Some(batch) = place.0.lock().iter_mut().find(|b| b.is_of(container)) {
                is_any |= !batch.slots.is_empty();
                container.give_slots(batch.slots.drain(..));
            }
        }
        is_any
    }

    /// A new batch, in front of the others.
    fn add(&self, batches: &mut Vec<Batch>, container: &Container) {
        // It never grows: one slot above twice the most, and half of them go back.
        let slots = Vec::with_capacity(2 * BATCH_SLOTS_MAX + 1);
        self.account.take((slots.capacity() * size_of::<RowId>()) as u64, Claim::Forced);
        batches.insert(0, Batch { storage: container.storage, container: container.number, slots });
    }
}

impl Batch {
    #[inline]
    fn is_of(&self, container: &Container) -> bool {
        self.storage == container.storage && self.container == container.number
    }
}

/// Brings the container's batch to the front; false if there is none.
#[inline]
fn bring_forward(batches: &mut [Batch], container: &Container) -> bool {
    match batches.iter().position(|batch| batch.is_of(container)) {
        Some(0) => true,
        Some(at) => {
            batches[..=at].rotate_right(1);
            true
        }
        None => false,
    }
}

impl Core {
    /// A slot of the container for a new row, of this thread's batch; `number` stands for the thread where there is only one.
    pub(super) fn slot_of_batch(&self, container: &Container, number: usize) -> Result<RowId, NoSlot> {
        let mut batches = self.slots.of(self.thread(number));
        if !bring_forward(&mut batches, container) {
            self.make_batch(&mut batches, container);
        }
        let slots = &mut batches[0].slots;
        if slots.is_empty() {
            container.take_slots(slots)?;
        }
        let slot = slots.pop().expect("a slot was taken, or it is said that there is none");
        if let Some(&next) = slots.last() {
            container.prefetch_all(next);
        }
        Ok(slot)
    }

    /// Takes back the slot of a row that nobody can see: into this thread's batch, if it has one or the container is large.
    pub(super) fn free_slot(&self, container: &Container, slot: RowId) {
        let mut batches = self.slots.of(self.thread(0));
        let most = container.batch_slots();
        if !bring_forward(&mut batches, container) {
            if most < BATCH_SLOTS_MAX {
                drop(batches);
                return container.give_slots([slot].into_iter());
            }
            self.make_batch(&mut batches, container);
        }
        let slots = &mut batches[0].slots;
        slots.push(slot);
        if slots.len() > 2 * most {
            // Those that were freed first.
            let back = slots.len() - most;
            container.give_slots(slots.drain(..back));
        }
    }

    /// Gives back all slots of the container that lie in batches; false if there are none.
    pub(super) fn recall_slots(&self, container: &Container) -> bool {
        self.slots.recall(container)
    }

    /// Makes a batch for the container, in place of the one that was used longest ago if there are many.
    #[cold]
    fn make_batch(&self, batches: &mut Vec<Batch>, container: &Container) {
        if batches.len() == BATCHES {
            let old = batches.pop().expect("there are some");
            self.slots.account.give((old.slots.capacity() * size_of::<RowId>()) as u64);
            // Whoever collects garbage has the list latched for reading already, and a writer may wait.
            let stores = self.stores.read_recursive();
            if let Some(container) = stores.get(&old.storage).and_then(|store| store.container(old.container)) {
                container.give_slots(old.slots.into_iter());
            }
        }
        self.slots.add(batches, container);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ColumnDef, Table, TableDef};
    use crate::engine::{Engine, Options};
    use crate::io::mem::{MemClock, MemIo};
    use crate::schema::Type;
    use crate::txn::{Isolation, Session, Stop};
    use std::collections::HashSet;

    fn create(engine: &Engine, session: &mut Session, name: &str) -> Arc<Table> {
        while engine.step() {}
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let columns = vec![ColumnDef { name: "id".into(), ty: Type::Int8, not_null: true, ..ColumnDef::default() }];
        let def = TableDef { name: name.into(), columns, ..TableDef::default() };
        session.create_table(def, Vec::new()).expect("creates");
        session.commit().expect("commits");
        engine.schema().table(name).expect("created").clone()
    }

    /// A slot for a thread; the log may have to be written first.
    fn take_one(engine: &Engine, core: &Core, container: &Container, thread: usize) -> RowId {
        loop {
            match core.take_slot(container, thread) {
                Ok(slot) => return slot,
                Err(Stop::Wait(_)) => assert!(engine.step(), "a wait for nothing"),
                Err(Stop::Error(error)) => panic!("{error}"),
            }
        }
    }

    /// So many slots for some threads by turns, each once.
    fn take(engine: &Engine, core: &Core, container: &Container, threads: usize, count: usize) -> Vec<RowId> {
        let taken: Vec<RowId> = (0..count).map(|n| take_one(engine, core, container, n % threads)).collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), count, "a slot is given out once");
        taken
    }

    #[test]
    fn every_slot_is_given_out_once_and_what_threads_keep_can_be_recalled() {
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens");
        let mut session = engine.connect().expect("a place");
        let table = create(&engine, &mut session, "t");
        let (core, container) = (session.core.clone(), &table.store.primary);
        let first = take(&engine, &core, container, 2, 4);
        assert_eq!(core.slots.count(container), 0, "of a small table nobody keeps any");
        let mut taken = take(&engine, &core, container, 2, 3_000);
        let kept = core.slots.count(container);
        assert!(kept > 0 && kept <= 2 * BATCH_SLOTS_MAX, "{kept}");
        taken.extend(first);
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
        assert_eq!(taken.len() + kept, container.high_water() as usize);
        assert!(core.recall_slots(container) && !core.recall_slots(container));
        assert_eq!(core.slots.count(container), 0);
        // What was given back comes first, and before a new page.
        taken.extend(take(&engine, &core, container, 1, kept));
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), container.high_water() as usize);
        taken.iter().for_each(|&slot| core.free_slot(container, slot));
        let kept = core.slots.count(container);
        assert!(kept > 0 && kept <= 3 * BATCH_SLOTS_MAX, "{kept}");
        let again = take(&engine, &core, container, 1, taken.len());
        assert_eq!(again.iter().collect::<HashSet<_>>(), taken.iter().collect::<HashSet<_>>());
    }

    /// A thread that writes many tables gives back what it keeps of those that it has not written for long, unless they are gone.
    #[test]
    fn a_thread_keeps_slots_of_few_containers() {
        let engine = Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), Options::small("/db")).expect("opens");
        let mut session = engine.connect().expect("a place");
        let tables: Vec<Arc<Table>> =
            (0..BATCHES + 2).map(|n| create(&engine, &mut session, &format!("t{n}"))).collect();
        let core = session.core.clone();
        let mut of_oldest = 0;
        for (n, table) in tables.iter().enumerate() {
            let mut count = 0;
            while count < 100 || core.slots.count(&table.store.primary) == 0 {
                take_one(&engine, &core, &table.store.primary, 0);
                count += 1;
            }
            of_oldest = if n == 0 { count } else { of_oldest };
        }
        let kept = |table: &Arc<Table>| core.slots.count(&table.store.primary);
        assert_eq!(tables.iter().map(kept).filter(|kept| *kept > 0).count(), BATCHES);
        let oldest = &tables[0].store.primary;
        let unused = oldest.high_water() as usize - of_oldest;
        assert!(unused > 0);
        take(&engine, &core, oldest, 1, unused);
        assert_eq!(oldest.high_water() as usize, of_oldest + unused, "they came from its list");
    }
}
