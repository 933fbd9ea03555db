//! Which commits belong to an epoch, and what is installed? One clock word and one announcement per worker.
//!
//! ```text
//! worker                                   closer
//!   slot = clock        (announce)           clock: (e, s) -> (e+1, 0)   unless a carry did it
//!   cts  = ++clock      (draw)               wait until no slot holds a bound in an epoch <= e
//!   install, stage                           gather the frames of e
//!   slot = IDLE         (leave)
//! ```
//!
//! Why it is safe (all accesses named here are sequentially consistent, so they have one order):
//!
//! 1. A cts drawn is larger than the bound announced before it: the clock only grows and draw adds one.
//! 2. If the closer's scan sees a slot idle, that worker's next draw comes after the clock was advanced and lies in e+1
//!    or later; if it sees a bound in an epoch <= e, it waits. So after the wait no cts of e is un-left.
//! 3. Watermark: let c be the clock read *before* the scan. A cts <= c was drawn, hence announced, before that read. The
//!    scan finds its worker either announced, with a bound below the cts, or gone, hence installed. So everything up to
//!    min(c, all bounds) is installed.
//! 4. A bound may be stale (read the clock, then delayed before storing): it is then too low, which only waits longer.
//! 5. Who draws at once needs no fence after storing the bound. All draws and closes change the clock's word one after another. If the
//!    closer's comes after the draw, or an observer has read the draw's value or a later one, it sees the bound that was stored before the
//!    draw; if the closer's comes first, the cts lies in e+1 or later.

use crate::ids::{Cts, Epoch};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// No worker can announce this bound: the clock never reaches it.
const IDLE: u64 = u64::MAX;

/// 128 bytes, because adjacent lines are fetched in pairs.
#[repr(align(128))]
struct Padded<T>(T);

struct Slot {
    /// The clock as it was when the worker announced itself, or [`IDLE`].
    bound: AtomicU64,
    claimed: AtomicBool,
}

/// The word that holds the last cts drawn, and who is between drawing and leaving.
pub struct CommitClock {
    word: Padded<AtomicU64>,
    /// A watermark computed earlier: still true, and keeps stale bounds from showing as steps back across epochs.
    floor: Padded<AtomicU64>,
    /// Slots from here on were never claimed.
    high_water: AtomicUsize,
    slots: Box<[Padded<Slot>]>,
}

impl CommitClock {
    /// A clock whose draws all lie in `first` or later.
    pub fn new(first: Epoch, workers_max: usize) -> CommitClock {
        assert!(first.0 > 0, "epoch 0 is older than every commit");
        let start = Cts::first_of(first).0;
        let slot = || Padded(Slot { bound: AtomicU64::new(IDLE), claimed: AtomicBool::new(false) });
        CommitClock {
            word: Padded(AtomicU64::new(start)),
            floor: Padded(AtomicU64::new(start)),
            high_water: AtomicUsize::new(0),
            slots: (0..workers_max).map(|_| slot()).collect(),
        }
    }

    /// The last cts drawn; the next draw is larger.
    pub fn now(&self) -> Cts {
        Cts(self.word.0.load(Ordering::SeqCst))
    }

    /// Everything with a cts up to the result is installed. Results may step back; each stays true.
    pub fn watermark(&self) -> Cts {
        let floor = self.floor.0.load(Ordering::Acquire);
        let now = self.word.0.load(Ordering::SeqCst);
        Cts(self.lowest_bound().min(now).max(floor))
    }

    /// Takes a free slot, the lowest first so that scans stay short.
    pub fn claim(&self) -> Option<usize> {
        self.claim_of(0, 1)
    }

    /// The lowest free slot whose number leaves `part` when divided by `parts`.
    pub fn claim_of(&self, part: usize, parts: usize) -> Option<usize> {
        let is_free = |&slot: &usize| {
            let claimed = &self.slots[slot].0.claimed;
            claimed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = (part..self.slots.len()).step_by(parts).find(is_free)?;
        self.high_water.fetch_max(index + 1, Ordering::SeqCst);
        Some(index)
    }

    pub fn release(&self, slot: usize) {
        debug_assert_eq!(self.slots[slot].0.bound.load(Ordering::Relaxed), IDLE, "released while announced");
        self.slots[slot].0.claimed.store(false, Ordering::Release);
    }

    /// Slots that were ever claimed: what a scan visits.
    pub fn high_water(&self) -> usize {
        self.high_water.load(Ordering::SeqCst)
    }

    /// Announces the worker in `slot`; the result is its bound.
    pub fn announce(&self, slot: usize) -> Cts {
        let bound = self.word.0.load(Ordering::SeqCst);
        self.slots[slot].0.bound.store(bound, Ordering::SeqCst);
        Cts(bound)
    }

    /// The epoch that frames staged without a cts of their own belong to. Only while announced: the clock is read after
    /// the announcement, so the closer of this epoch will wait for it.
    pub fn announced_epoch(&self) -> Epoch {
        self.now().epoch()
    }

    /// Announces the worker in `slot` and draws: gives its bound and the cts. No fence between the two but the draw itself (5).
    #[inline]
    pub fn announce_and_draw(&self, slot: usize) -> (Cts, Cts) {
        let bound = self.word.0.load(Ordering::Relaxed);
        self.slots[slot].0.bound.store(bound, Ordering::Relaxed);
        (Cts(bound), self.draw())
    }

    /// The next cts. Only while announced.
    pub fn draw(&self) -> Cts {
        Cts(self.word.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// The worker has installed and staged everything it drew.
    pub fn leave(&self, slot: usize) {
        self.slots[slot].0.bound.swap(IDLE, Ordering::SeqCst);
    }

    /// Ends `epoch` unless a carry out of the sequence has done so: later draws lie above it. The first cts of the next
    /// epoch is then never drawn, which keeps every later bound inside that epoch.
    pub fn close(&self, epoch: Epoch) {
        self.word.0.fetch_max(Cts::first_of(Epoch(epoch.0 + 1)).0, Ordering::SeqCst);
    }

    /// Whether every worker that may hold a cts of `epoch`, which is closed, or of an earlier one has left.
    pub fn has_left(&self, epoch: Epoch) -> bool {
        if self.lowest_bound() <= Cts::last_of(epoch).0 {
            return false;
        }
        self.floor.0.fetch_max(Cts::last_of(epoch).0, Ordering::AcqRel);
        true
    }

    fn lowest_bound(&self) -> u64 {
        let scanned = &self.slots[..self.high_water.load(Ordering::SeqCst)];
        scanned.iter().map(|slot| slot.0.bound.load(Ordering::SeqCst)).min().unwrap_or(IDLE)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_carry_out_of_the_sequence_closes_the_epoch() {
        let clock = CommitClock::new(Epoch(7), 4);
        let slot = clock.claim().expect("one of four");
        for _ in 0..(1 << Cts::SEQUENCE_BITS) - 1 {
            assert_eq!(clock.draw().epoch(), Epoch(7));
        }
        assert_eq!(clock.announce(slot), Cts::last_of(Epoch(7)));
        assert_eq!(clock.draw(), Cts::first_of(Epoch(8)));
        assert!(!clock.has_left(Epoch(7)) && clock.watermark() == Cts::last_of(Epoch(7)));
        clock.leave(slot);
        assert!(clock.has_left(Epoch(7)));
        let before = clock.now();
        clock.close(Epoch(7));
        assert_eq!(clock.now(), before, "it was closed already");
        clock.close(Epoch(8));
        assert_eq!(clock.draw(), Cts(Cts::first_of(Epoch(9)).0 + 1));
    }

    #[test]
    fn slots_are_exclusive_and_reused_lowest_first() {
        let clock = CommitClock::new(Epoch(1), 2);
        assert_eq!((clock.claim(), clock.claim(), clock.claim()), (Some(0), Some(1), None));
        clock.release(0);
        assert_eq!((clock.claim(), clock.high_water()), (Some(0), 2));
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    struct World {
        clock: CommitClock,
        slots: [usize; 2],
        installed: [AtomicBool; 2],
    }

    impl World {
        fn new() -> Arc<World> {
            let clock = CommitClock::new(Epoch(1), 2);
            let slots = [0, 1].map(|_| clock.claim().expect("there are two"));
            Arc::new(World { clock, slots, installed: [AtomicBool::new(false), AtomicBool::new(false)] })
        }

        /// A commit; gives its timestamp. One worker announces and draws in one go, as short commits do.
        fn commit(&self, worker: usize) -> Cts {
            let cts = if worker == 0 {
                self.clock.announce(self.slots[worker]);
                self.clock.draw()
            } else {
                self.clock.announce_and_draw(self.slots[worker]).1
            };
            self.installed[worker].store(true, Ordering::Relaxed);
            self.clock.leave(self.slots[worker]);
            cts
        }

        fn installed(&self) -> [bool; 2] {
            [0, 1].map(|worker| self.installed[worker].load(Ordering::Relaxed))
        }
    }

    /// Two commits beside an observer: every cts up to what it finds was installed when it looked.
    fn race(find: impl Fn(&CommitClock) -> Option<Cts>) {
        let world = World::new();
        let workers = [0, 1].map(|worker| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.commit(worker))
        });
        let found = find(&world.clock);
        let installed = world.installed();
        for (worker, thread) in workers.into_iter().enumerate() {
            let cts = thread.join().expect("a worker does not panic");
            assert!(
                installed[worker] || found.is_none_or(|found| cts > found),
                "{cts:?} is not installed at {found:?}"
            );
        }
    }

    fn close_first(clock: &CommitClock) -> Option<Cts> {
        clock.close(Epoch(1));
        clock.has_left(Epoch(1)).then_some(Cts::last_of(Epoch(1)))
    }

    /// All schedules with up to three preemptions: all there are take minutes.
    #[cfg(loom)]
    fn model(find: impl Fn(&CommitClock) -> Option<Cts> + Copy + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || race(find));
    }

    #[cfg(loom)]
    #[test]
    fn loom_what_is_at_or_below_the_watermark_is_installed() {
        model(|clock| Some(clock.watermark()));
    }

    #[cfg(loom)]
    #[test]
    fn loom_an_epoch_that_was_left_is_installed() {
        model(close_first);
    }

    #[cfg(shuttle)]
    #[test]
    fn shuttle_what_was_left_or_lies_below_the_watermark_is_installed() {
        shuttle::check_random(|| race(|clock| Some(clock.watermark())), 5_000);
        shuttle::check_random(|| race(close_first), 5_000);
    }
}
