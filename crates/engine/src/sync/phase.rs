//! May a transaction go on reading at its snapshot? One word: which snapshot of the place it is, whether a statement reads at it, whether it was ended.
//!
//! | phase | reads at the snapshot | counts for the floor | next |
//! |---|---|---|---|
//! | reading | yes | yes | resting, when the statement is over; reading and ended |
//! | resting | no | yes | reading; ended |
//! | reading and ended | yes, until it notices | yes | ended |
//! | ended | never again | no | over: the transaction can only roll back |
//!
//! 1. Whoever ends a snapshot does it by one compare-and-swap on the word, whose upper bits number the snapshots of a place: it hits the one
//!    that was seen, or nobody. A new number is stored only while the place has no snapshot, and is read before the snapshot.
//! 2. A place that is ended and not reading is left out of the floor. To read again its session sets *reading* first and looks at *ended*
//!    in the same step; it finds it and turns back. So nobody reads below the floor: what a reader sees is right until it is told to stop.

use super::atomic::{AtomicU64, Ordering};

/// Bits of a phase; above them the snapshot's number.
const READING: u64 = 1;
const ENDED: u64 = 2;

/// What became of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The floor has passed it.
    AtOnce,
    /// A statement reads at it, and will be told.
    WhenNoticed,
}

/// A phase as it was seen.
#[derive(Clone, Copy)]
pub struct Seen(u64);

impl Seen {
    pub fn is_ended(self) -> bool {
        self.0 & ENDED != 0
    }
}

pub struct Phase(AtomicU64);

impl Phase {
    pub fn new() -> Phase {
        Phase(AtomicU64::new(0))
    }

    /// A snapshot is read at from now on. Only the session itself says so, while its place has none.
    pub fn begin(&self) {
        // Released, so that whoever sees the number sees no former snapshot.
        let number = (self.0.load(Ordering::Relaxed) >> 2) + 1;
        // To loom a plain store has no place in the order of others' read-modify-writes: it would let their compare-and-swap hit what is gone.
        #[cfg(loom)]
        self.0.swap(number << 2 | READING, Ordering::Release);
        #[cfg(not(loom))]
        self.0.store(number << 2 | READING, Ordering::Release);
    }

    /// A statement is about to read; false: the snapshot was ended, and there is no reading at it any more.
    pub fn begin_reading(&self) -> bool {
        let is_good = self.0.fetch_or(READING, Ordering::SeqCst) & ENDED == 0;
        if !is_good {
            self.rest();
        }
        is_good
    }

    /// Nothing reads until `begin_reading`.
    pub fn rest(&self) {
        self.0.fetch_and(!READING, Ordering::SeqCst);
    }

    #[inline]
    pub fn is_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ENDED != 0
    }

    /// Whether the snapshot counts for the floor.
    pub fn counts(&self) -> bool {
        self.0.load(Ordering::SeqCst) & (READING | ENDED) != ENDED
    }

    /// What `end` is asked with; the snapshot is read afterwards.
    pub fn look(&self) -> Seen {
        Seen(self.0.load(Ordering::SeqCst))
    }

    /// `None`: what was seen is over, or was ended by another.
    pub fn end(&self, Seen(phase): Seen) -> Option<Ended> {
        let ended = self.0.compare_exchange(phase, phase | ENDED, Ordering::SeqCst, Ordering::SeqCst);
        ended.ok().map(|phase| if phase & READING == 0 { Ended::AtOnce } else { Ended::WhenNoticed })
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering::*;
    use crate::sync::{Arc, thread};

    const NONE: u64 = u64::MAX;

    struct World {
        snapshot: AtomicU64,
        phase: Phase,
        /// What a reader at this snapshot or below needs has been freed: its memory, which is plainly written.
        freed_to: AtomicU64,
    }

    fn world() -> Arc<World> {
        let world = World { snapshot: AtomicU64::new(NONE), phase: Phase::new(), freed_to: AtomicU64::new(0) };
        begin(&world, 1);
        Arc::new(world)
    }

    /// As `SessionPlace::begin_phase` and `register` do.
    fn begin(world: &World, snapshot: u64) {
        world.phase.begin();
        world.snapshot.store(snapshot, Release);
    }

    fn reads(world: &World, snapshot: u64) {
        assert!(world.freed_to.load(Relaxed) < snapshot, "what is read at was freed");
    }

    /// As `Sessions::oldest` and `Oldest::end` do: the snapshot that was ended.
    fn end(world: &World) -> Option<(u64, Ended)> {
        let seen = world.phase.look();
        let snapshot = world.snapshot.load(Acquire);
        if seen.is_ended() || snapshot == NONE {
            return None;
        }
        world.phase.end(seen).map(|ended| (snapshot, ended))
    }

    /// As `Sessions::floor` and garbage collection do, the horizon being at 2.
    fn collect(world: &World) {
        let counted = if world.phase.counts() { world.snapshot.load(Acquire) } else { NONE };
        world.freed_to.store(counted.min(2) - 1, Relaxed);
    }

    #[test]
    fn loom_nobody_reads_at_a_snapshot_that_the_floor_has_passed() {
        loom::model(|| {
            let world = world();
            let reader = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    // The statement in which it was found.
                    reads(&world, 1);
                    world.phase.rest();
                    if world.phase.begin_reading() {
                        reads(&world, 1);
                        world.phase.rest();
                    }
                })
            };
            end(&world);
            collect(&world);
            reader.join().expect("the reader does not panic");
        });
    }

    #[test]
    fn loom_what_ends_one_snapshot_does_not_end_the_next() {
        loom::model(|| {
            let world = world();
            let reader = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.phase.rest();
                    world.snapshot.store(NONE, Release);
                    begin(&world, 2);
                })
            };
            let ended = end(&world);
            reader.join().expect("the reader does not panic");
            if let Some((1, _)) = ended {
                assert!(!world.phase.is_ended(), "the next one was ended");
            }
        });
    }

    #[test]
    fn loom_a_snapshot_that_was_ended_at_rest_does_not_hold_the_floor() {
        loom::model(|| {
            let world = world();
            world.phase.rest();
            assert_eq!(end(&world), Some((1, Ended::AtOnce)));
            collect(&world);
            assert_eq!(world.freed_to.load(Relaxed), 1);
            assert!(!world.phase.begin_reading());
        });
    }
}
