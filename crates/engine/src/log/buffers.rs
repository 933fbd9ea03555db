//! What has a worker staged? A buffer for each live epoch, which the sealer takes as it is.
//!
//! 1. A buffer of epoch e is touched by its worker only while announced with a bound in an epoch <= e, and by the sealer only after e has been left
//!    ([`super::epoch`]): so what the sealer takes is whole, and nothing is left behind that was staged before.
//! 2. At most four epochs are live (`stage` invariant 2), so a buffer is used again only for an epoch whose predecessor by four was taken.
//! 3. A worker that was granted room finds it when it stages: the sealer may take a buffer between, but of a closed epoch, and the worker then draws
//!    in a later one, whose buffer was grown too. Staging allocates nothing.

use crate::ids::Epoch;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Epochs that may hold unsealed frames.
pub const LIVE_EPOCHS: usize = 4;

/// A buffer that grew beyond this and was hardly used is given back to the allocator.
const KEPT_BYTES: usize = 1 << 20;

/// One worker's frames.
#[repr(align(128))]
pub(super) struct StageSlot {
    buffers: Mutex<[Vec<u8>; LIVE_EPOCHS]>,
    /// Lengths of `buffers`, for looking without the lock.
    staged: [AtomicU64; LIVE_EPOCHS],
    /// And what they hold without growing.
    capacity: [AtomicU64; LIVE_EPOCHS],
}

pub(super) fn index(epoch: Epoch) -> usize {
    (epoch.0 % LIVE_EPOCHS as u64) as usize
}

impl Default for StageSlot {
    fn default() -> StageSlot {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        StageSlot { buffers: Mutex::new(Default::default()), staged: words(), capacity: words() }
    }
}

impl StageSlot {
    pub fn staged(&self, epoch: Epoch) -> u64 {
        self.staged[index(epoch)].load(Ordering::SeqCst)
    }

    /// Makes room for the draw to come, in this epoch or the next one. False: there is no memory.
    #[inline]
    #[must_use]
    pub fn grow(&self, now: Epoch, bytes: u64) -> bool {
        // The sealer may take a buffer between this look and the lock of `append`; but then its epoch was closed, and the draw is a later one's.
        let has_room = |epoch: u64| {
            let at = index(Epoch(epoch));
            self.staged[at].load(Ordering::Relaxed) + bytes <= self.capacity[at].load(Ordering::Relaxed)
        };
        has_room(now.0) && has_room(now.0 + 1) || self.grow_buffers(now, bytes)
    }

    #[cold]
    fn grow_buffers(&self, now: Epoch, bytes: u64) -> bool {
        let mut buffers = self.buffers.lock();
        // The epoch at the draw is this or the next one, unless the reservation is kept for long.
        for ahead in 0..2 {
            let at = index(Epoch(now.0 + ahead));
            let buffer = &mut buffers[at];
            if buffer.try_reserve(bytes as usize).is_err() {
                return false;
            }
            self.capacity[at].store(buffer.capacity() as u64, Ordering::Relaxed);
        }
        true
    }

    pub fn append(&self, epoch: Epoch, frame_bytes: u64, parts: &[&[u8]]) {
        let mut buffers = self.buffers.lock();
        let buffer = &mut buffers[index(epoch)];
        buffer.extend_from_slice(&(frame_bytes as u32).to_le_bytes());
        for part in parts {
            buffer.extend_from_slice(part);
        }
        // Whoever looks for frames before it sleeps finds these: the announcement leaves after this.
        self.staged[index(epoch)].store(buffer.len() as u64, Ordering::Release);
    }

    pub fn buffer_bytes(&self) -> u64 {
        self.buffers.lock().iter().map(|buffer| buffer.capacity() as u64).sum()
    }

    /// Takes what was staged for `epoch`, which everyone has left.
    pub fn take(&self, epoch: Epoch) -> Vec<u8> {
        let mut buffers = self.buffers.lock();
        let taken = std::mem::take(&mut buffers[index(epoch)]);
        self.staged[index(epoch)].store(0, Ordering::SeqCst);
        self.capacity[index(epoch)].store(0, Ordering::SeqCst);
        taken
    }

    /// Returns the memory of what was taken.
    pub fn give_back(&self, epoch: Epoch, mut buffer: Vec<u8>) {
        let wasteful = buffer.capacity() > KEPT_BYTES && buffer.len() < buffer.capacity() / 4;
        buffer.clear();
        let mut buffers = self.buffers.lock();
        if !wasteful && buffers[index(epoch)].capacity() < buffer.capacity() {
            debug_assert!(
                buffers[index(epoch)].is_empty(),
                "log buffers invariant 2: the epoch's buffer is not in use"
            );
            self.capacity[index(epoch)].store(buffer.capacity() as u64, Ordering::Relaxed);
            buffers[index(epoch)] = buffer;
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::super::epoch::CommitClock;
    use super::*;
    use crate::sync::{Arc, thread};

    struct World {
        clock: CommitClock,
        place: usize,
        slot: StageSlot,
    }

    /// A worker stages two frames, each under its own announcement, beside a sealer that closes epochs and takes what was staged in them: every
    /// frame is taken once, in its epoch, and staging found its room. `waits`: the sealer, for those who may hold the epoch.
    fn stage_beside_a_sealer(waits: bool) {
        let clock = CommitClock::new(Epoch(1), 1);
        let place = clock.claim().expect("there is one");
        let world = Arc::new(World { clock, place, slot: StageSlot::default() });
        let worker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                [7, 8].map(|frame| {
                    // As `Worker::reserve`, `Announced::draw` and `Announced::stage` do.
                    assert!(world.slot.grow(world.clock.now().epoch(), 5), "there is memory");
                    world.clock.announce(world.place);
                    let epoch = world.clock.draw().epoch();
                    let room = world.slot.buffers.lock()[index(epoch)].capacity();
                    world.slot.append(epoch, 1, &[&[frame]]);
                    assert_eq!(world.slot.buffers.lock()[index(epoch)].capacity(), room, "staging allocates");
                    world.clock.leave(world.place);
                    (epoch, frame)
                })
            })
        };
        let mut taken: Vec<(Epoch, u8)> = Vec::new();
        let mut take = |epoch: Epoch| {
            let frames = world.slot.take(epoch);
            taken.extend(frames.chunks(5).map(|frame| (epoch, frame[4])));
            world.slot.give_back(epoch, frames);
        };
        // As `Log::seal` does, without waiting in a loop.
        world.clock.close(Epoch(1));
        let first = !waits || world.clock.has_left(Epoch(1));
        if first {
            take(Epoch(1));
        }
        let staged = worker.join().expect("the worker does not panic");
        if !first {
            take(Epoch(1));
        }
        world.clock.close(Epoch(2));
        take(Epoch(2));
        assert_eq!(taken, staged, "each frame is taken once, in its epoch");
    }

    fn check(waits: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || stage_beside_a_sealer(waits));
    }

    #[test]
    fn loom_every_staged_frame_is_taken_once() {
        check(true);
    }

    /// The model finds it: a sealer that does not wait for the announced leaves a frame behind, of an epoch that is sealed.
    #[test]
    #[should_panic]
    fn loom_sealing_before_they_left_loses_a_frame() {
        check(false);
    }
}
