//! How far is the recovery, how long will it take, and what did it take?
//!
//! | phase | unit of its work | known from |
//! |---|---|---|
//! | scan | bytes of log segments | their sizes |
//! | load | bytes of images and of groups | the manifest; the groups that count |
//! | restore | bytes of pages | the pages in use |
//! | rebuild | bytes of pages with indexed rows | the schema |
//!
//! The time left is what is left of the phase at the rate measured in it, and the later phases at the rates that a small machine
//! has. Time comes from the engine's clock, so a simulated recovery tells the same twice.

use crate::io::Clock;
use crate::log::Discarded;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a recovery does at the moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Reading and judging the log.
    Scan,
    /// Loading page images and applying deltas.
    Load,
    /// Finding free slots and reading the catalog.
    Restore,
    /// Filling indexes.
    Rebuild,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Scan, Phase::Load, Phase::Restore, Phase::Rebuild];

    /// In words, for a line of text.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Scan => "reading the log",
            Phase::Load => "loading images and replaying",
            Phase::Restore => "restoring tables",
            Phase::Rebuild => "rebuilding indexes",
        }
    }

    /// Bytes per second that the time left is reckoned with before anything was measured.
    fn assumed_rate(self) -> u64 {
        match self {
            Phase::Scan => 800 << 20,
            Phase::Load => 500 << 20,
            Phase::Restore => 4 << 30,
            Phase::Rebuild => 1 << 30,
        }
    }
}

/// A moment of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    pub phase: Phase,
    /// Bytes of the phase's work.
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Bytes per second in this phase; zero before there is anything to measure.
    pub rate_bytes: u64,
    /// Until the database answers, this phase and all later ones.
    pub left_us: u64,
}

/// Who wants to know. Called by the recovering threads, a few times a second and at the start of each phase; it must return soon.
pub trait RecoveryProgress: std::fmt::Debug + Send + Sync {
    fn tell(&self, report: &RecoveryReport);
}

/// What one part of a recovery did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PhaseStats {
    /// Wall-clock time. Images and deltas are worked off together: each one's time ends with its last piece.
    pub elapsed_us: u64,
    pub bytes: u64,
    /// Groups, images, deltas, slots, index entries.
    pub items: u64,
}

impl PhaseStats {
    pub fn bytes_per_s(&self) -> u64 {
        rate(self.bytes, self.elapsed_us)
    }

    pub fn items_per_s(&self) -> u64 {
        rate(self.items, self.elapsed_us)
    }
}

fn rate(amount: u64, elapsed_us: u64) -> u64 {
    (u128::from(amount) * 1_000_000 / u128::from(elapsed_us.max(1))) as u64
}

/// What the recovery of this incarnation did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RecoveryStats {
    pub threads: usize,
    /// From the call of `open` to its return.
    pub total_us: u64,
    /// Log read and judged: groups.
    pub scan: PhaseStats,
    /// Page images loaded: images.
    pub images: PhaseStats,
    /// Log applied: deltas.
    pub replay: PhaseStats,
    /// Pages looked through for free slots: slots.
    pub restore: PhaseStats,
    /// Indexes filled: entries.
    pub rebuild: PhaseStats,
    /// What lay beyond the horizon and was never acknowledged.
    pub discarded: Discarded,
    /// Pages that the log changed or allocated: what the next checkpoint has to image.
    pub changed_pages: u64,
    /// Memory that the recovery took beside pages and indexes, at its worst: buffers, and keys being sorted.
    pub scratch_bytes: u64,
}

/// Reports are this far apart.
const TELL_EVERY_US: u64 = 100_000;
/// A rate measured over less says nothing.
const MEASURED_US: u64 = 50_000;

/// Counts the work done and tells who wants to know.
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    listener: Option<Arc<dyn RecoveryProgress>>,
    began_us: u64,
    done: AtomicU64,
    state: Mutex<State>,
    scratch: AtomicU64,
    scratch_most: AtomicU64,
}

struct State {
    phase: Phase,
    since_us: u64,
    told_us: u64,
    /// Expected work of each phase, in the order of [`Phase::ALL`].
    totals: [u64; Phase::ALL.len()],
}

impl Meter {
    pub fn new(clock: Arc<dyn Clock>, listener: Option<Arc<dyn RecoveryProgress>>) -> Meter {
        let now = clock.monotonic_us();
        let totals = [0; Phase::ALL.len()];
        Meter {
            clock,
            listener,
            began_us: now,
            done: AtomicU64::new(0),
            state: Mutex::new(State { phase: Phase::Scan, since_us: now, told_us: now, totals }),
            scratch: AtomicU64::new(0),
            scratch_most: AtomicU64::new(0),
        }
    }

    /// Microseconds since the recovery began.
    pub fn elapsed_us(&self) -> u64 {
        self.clock.monotonic_us().saturating_sub(self.began_us)
    }

    /// How much work a phase will be, as far as that is known.
    pub fn expect(&self, phase: Phase, bytes: u64) {
        self.state.lock().totals[phase as usize] = bytes;
    }

    pub fn begin(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.phase = phase;
        state.since_us = self.clock.monotonic_us();
        self.done.store(0, Ordering::Relaxed);
        self.tell(&mut state);
    }

    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.listener.is_none() {
            return;
        }
        // Who finds it taken leaves the telling to the other.
        if let Some(mut state) = self.state.try_lock()
            && self.clock.monotonic_us() >= state.told_us + TELL_EVERY_US
        {
            self.tell(&mut state);
        }
    }

    fn tell(&self, state: &mut State) {
        state.told_us = self.clock.monotonic_us();
        if let Some(listener) = &self.listener {
            listener.tell(&self.report(state));
        }
    }

    fn report(&self, state: &State) -> RecoveryReport {
        let done_bytes = self.done.load(Ordering::Relaxed);
        let total_bytes = state.totals[state.phase as usize].max(done_bytes);
        let elapsed_us = state.told_us.saturating_sub(state.since_us);
        let rate_bytes = rate(done_bytes, elapsed_us);
        let is_measured = elapsed_us >= MEASURED_US && rate_bytes > 0;
        let usable = if is_measured { rate_bytes } else { state.phase.assumed_rate() };
        let later = Phase::ALL.iter().filter(|phase| **phase > state.phase);
        let later_us: u64 = later.map(|&p| seconds_of(state.totals[p as usize], p.assumed_rate())).sum();
        let left_us = seconds_of(total_bytes - done_bytes, usable) + later_us;
        RecoveryReport { phase: state.phase, done_bytes, total_bytes, rate_bytes, left_us }
    }

    /// Notes memory taken beside pages and indexes.
    pub fn take_scratch(&self, bytes: u64) {
        let now = self.scratch.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.scratch_most.fetch_max(now, Ordering::Relaxed);
    }

    pub fn give_scratch(&self, bytes: u64) {
        self.scratch.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn scratch_most(&self) -> u64 {
        self.scratch_most.load(Ordering::Relaxed)
    }
}

/// In microseconds.
fn seconds_of(bytes: u64, per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000 / u128::from(per_s.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mem::MemClock;

    #[derive(Default, Debug)]
    struct Heard(Mutex<Vec<RecoveryReport>>);

    impl RecoveryProgress for Heard {
        fn tell(&self, report: &RecoveryReport) {
            self.0.lock().push(*report);
        }
    }

    #[test]
    fn the_time_left_follows_the_measured_rate() {
        let clock = MemClock::new();
        let heard = Arc::new(Heard::default());
        let meter = Meter::new(clock.clone(), Some(heard.clone()));
        meter.expect(Phase::Scan, 1000 << 20);
        meter.expect(Phase::Rebuild, 2 << 30);
        meter.begin(Phase::Scan);
        clock.advance_us(1_000_000);
        meter.add(100 << 20);
        let report = *heard.0.lock().last().expect("a second has passed");
        assert_eq!((report.done_bytes, report.total_bytes, report.rate_bytes), (100 << 20, 1000 << 20, 100 << 20));
        // 900 MiB at 100 MiB a second, and 2 GiB at the assumed 1 GiB.
        assert_eq!(report.left_us, 11_000_000);
    }

    #[test]
    fn reports_are_apart_and_never_divide_by_nothing() {
        let clock = MemClock::new();
        let heard = Arc::new(Heard::default());
        let meter = Meter::new(clock.clone(), Some(heard.clone()));
        meter.begin(Phase::Load);
        (0..1000).for_each(|_| meter.add(1));
        assert_eq!(heard.0.lock().len(), 1, "no time has passed");
        clock.advance_us(TELL_EVERY_US);
        meter.add(1);
        let last = *heard.0.lock().last().expect("told");
        assert_eq!((last.done_bytes, last.total_bytes), (1001, 1001));
    }
}
