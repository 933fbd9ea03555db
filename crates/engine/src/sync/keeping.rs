//! May a registration outlive its statement? Kept from one autocommit read to the next, revoked when nobody reads at it and it holds others up.
//!
//! A full fence in each statement would keep independent statements from overlapping their cache misses: it costs more than all else that an
//! autocommit read by key does. So such a read leaves its registration in place, and the next one reads at it again if the durable
//! horizon has not moved. A registration that nobody reads at must not hold the floor down for ever: it is *revoked*.
//!
//! | state | set by | counts for the floor |
//! |---|---|---|
//! | no | its session, registering otherwise or not at all | as `txn::sessions` says |
//! | yes | its session, registering | so too |
//! | asked | the revoker | so too |
//! | revoked | the revoker, after a heavy fence | while a statement is at it |
//!
//! 1. Its session stores *reading*, lets a light fence pass (`sync::fences`) and reads at the kept snapshot only if the state is still *yes*; else
//!    it registers anew. The revoker stores *asked*, lets a heavy fence pass, then stores *revoked*: from then on either the session has seen
//!    one of these, or whoever computes a floor sees *reading*.
//!    A session that reads newest versions only does not ask that the horizon has not moved: it raises its bound to the horizon
//!    and reads at that. Whoever computes a floor sees the old bound or the new one, and both are at or below what is read.
//! 2. A session that registers anew stores its lower bound before *yes* or *no*, and fences after: a floor that still reads *revoked* missed
//!    the registration, which `txn::sessions` invariant 2 allows.

use super::atomic::{AtomicBool, AtomicU32, Ordering::*};
use super::fences;

const NO: u32 = 0;
const YES: u32 = 1;
const ASKED: u32 = 2;
const REVOKED: u32 = 3;

/// What a session's place says of its registration. Only `ask` and `revoke` are for others than the session.
pub struct Keeping {
    state: AtomicU32,
    reading: AtomicBool,
}

impl Keeping {
    pub fn new() -> Keeping {
        Keeping { state: AtomicU32::new(NO), reading: AtomicBool::new(false) }
    }

    /// The registration whose bound was just stored is to be kept, and a statement reads at it. The caller fences.
    pub fn keep(&self) {
        self.reading.store(true, SeqCst);
        self.state.store(YES, SeqCst);
    }

    /// Whether a statement may read at the kept registration. If not, `keep` or `drop_it` comes next.
    #[inline]
    pub fn resume(&self) -> bool {
        self.reading.store(true, Relaxed);
        fences::light();
        self.state.load(Acquire) == YES
    }

    /// The statement is over.
    #[inline]
    pub fn pause(&self) {
        self.reading.store(false, Release);
    }

    /// There is no registration to keep any more.
    #[inline]
    pub fn drop_it(&self) {
        self.state.store(NO, Release);
        self.reading.store(false, Release);
    }

    /// Nobody seems to read at it.
    pub fn is_idle(&self) -> bool {
        self.state.load(Relaxed) == YES && !self.reading.load(Relaxed)
    }

    /// The first half of a revocation; after those of all that are meant comes a heavy fence. One revoker at a time.
    pub fn ask(&self) -> bool {
        self.state.compare_exchange(YES, ASKED, SeqCst, SeqCst).is_ok()
    }

    /// The second half, of who was asked.
    pub fn revoke(&self) {
        // Whoever has registered anew meanwhile is not meant.
        let _ = self.state.compare_exchange(ASKED, REVOKED, SeqCst, SeqCst);
    }

    /// The registration stands for nobody: the floor may pass it.
    pub fn is_void(&self) -> bool {
        self.state.load(SeqCst) == REVOKED && !self.reading.load(SeqCst)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU64, fence};
    use crate::sync::{Arc, thread};

    struct World {
        horizon: AtomicU64,
        snapshot: AtomicU64,
        keeping: Keeping,
        /// What a reader at this snapshot or below needs has been freed.
        freed_to: AtomicU64,
    }

    fn world() -> Arc<World> {
        let world = World {
            horizon: AtomicU64::new(1),
            snapshot: AtomicU64::new(1),
            keeping: Keeping::new(),
            freed_to: AtomicU64::new(0),
        };
        world.keeping.keep();
        world.keeping.pause();
        Arc::new(world)
    }

    /// As `SessionPlace::keep_durable` and `Session::begin_read` do.
    fn read(world: &World) {
        let snapshot = if world.keeping.resume() && world.horizon.load(Acquire) == 1 {
            1
        } else {
            world.keeping.drop_it();
            world.snapshot.store(world.horizon.load(Acquire), SeqCst);
            world.keeping.keep();
            fence(SeqCst);
            let snapshot = world.horizon.load(Acquire);
            world.snapshot.store(snapshot, Release);
            snapshot
        };
        assert!(world.freed_to.load(SeqCst) < snapshot, "what is read at was freed");
        world.keeping.pause();
    }

    /// As `SessionPlace::resume_newest` does, in a session that reads so and otherwise.
    fn read_newest(world: &World) {
        if !world.keeping.resume() {
            world.keeping.pause();
            return read(world);
        }
        let horizon = world.horizon.load(Acquire);
        if world.snapshot.load(Relaxed) != horizon {
            world.snapshot.store(horizon, Release);
        }
        assert!(world.freed_to.load(SeqCst) < horizon, "what is read at was freed");
        world.keeping.pause();
        read(world);
    }

    /// As `Sessions::revoke` and `Sessions::floor` do, and garbage collection after them.
    fn collect(world: &World) {
        if world.keeping.is_idle() && world.keeping.ask() {
            fences::heavy();
            world.keeping.revoke();
        }
        let horizon = world.horizon.load(Acquire);
        fence(SeqCst);
        let counted = if world.keeping.is_void() { u64::MAX } else { world.snapshot.load(Acquire) };
        world.freed_to.store(horizon.min(counted) - 1, SeqCst);
    }

    /// A reader, while the horizon moves and what lies below it is collected.
    fn beside_a_collection(read: fn(&World)) {
        let mut model = loom::model::Builder::new();
        // Without a bound it does not end in minutes; that the light fence is missed is found with this one.
        model.preemption_bound = Some(3);
        model.check(move || {
            let world = world();
            let reader = {
                let world = Arc::clone(&world);
                thread::spawn(move || read(&world))
            };
            world.horizon.store(2, Release);
            collect(&world);
            reader.join().expect("the reader does not panic");
        });
    }

    #[test]
    fn loom_nobody_reads_below_the_floor() {
        beside_a_collection(read);
    }

    #[test]
    fn loom_a_registration_that_follows_the_horizon_holds_what_is_read() {
        beside_a_collection(read_newest);
    }

    #[test]
    fn loom_what_nobody_reads_at_does_not_hold_the_floor() {
        loom::model(|| {
            let world = world();
            world.horizon.store(2, Release);
            collect(&world);
            assert_eq!(world.freed_to.load(SeqCst), 1);
        });
    }
}
