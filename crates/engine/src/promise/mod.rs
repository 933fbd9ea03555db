//! How long would a restart take now, and what keeps that below the target? The engine predicts its own restart and asks for checkpoints.
//!
//! | module | question |
//! |---|---|
//! | `work` | what does a restart read and make |
//! | `costs` | what does a unit of it cost here: the last recoveries' times, kept in an advisory file |
//! | `calibrate` | and before there was one |
//! | `trail` | how much log lies behind a given epoch |
//! | `forecast` | the sum, what dominates, what a checkpoint could change |
//!
//! A prediction is linear: every kind of work costs so many seconds a unit, plus what a restart costs whatever it reads. The costs are
//! measured, never constants of some machine: by the last recoveries of this database, and what they did not do, or in no time worth
//! measuring, is calibrated in steps of a few milliseconds beside the work.
//!
//! A checkpoint replaces the log's share and nothing else. So the **floor** is a restart right after one: images of every page, the
//! indexes, the fixed part. Between floor and target lies the **room** for the log:
//!
//! ```text
//!   0 ------------------ floor ------------------ start ------------ target
//!     images, indexes, fixed    log since the last      log written while
//!                               checkpoint began        the next one runs
//! ```
//!
//! Invariants:
//!
//! 1. A checkpoint is asked for when the prediction passes *start*: 80 % of the target, or less where the log grows so fast that the room
//!    would be used up before a checkpoint ends, and never within the first half of the room. It has the time until the target would
//!    be passed at the log's present growth: the checkpoint paces itself by that.
//! 2. With the floor at or above the target no checkpoint is asked for: none could help. That, and the floor coming near, is told once
//!    per change of state.
//! 3. Nothing here decides what is durable or what recovery reads: costs may be wrong or absent, data cannot. A file of costs that does
//!    not read is as none.

mod work;

mod costs;

mod trail;

mod calibrate;

mod forecast;

pub use costs::LastRestart;
use costs::Measured;
pub use forecast::{Forecast, Phase, State};
pub(crate) use trail::Logged;
pub use work::{Work, Workload};

use crate::ids::Epoch;
use crate::io::{Clock, Io};
use crate::mem::Account;
use crate::replay::RecoveryStats;
use calibrate::Calibration;
use costs::Costs;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trail::Trail;

/// Between two looks at the prediction.
const LOOK_INTERVAL_US: u64 = 100_000;
/// A prediction is written down when it has changed by more than this share, at most so often.
const SAVE_SHARE: f64 = 0.1;
const SAVE_INTERVAL_US: u64 = 5_000_000;
/// How much of the log's growth is the last look's.
const GROWTH_SHARE: f64 = 0.2;

/// The promise of one open database.
pub(crate) struct Promise {
    io: Arc<dyn Io>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Microseconds; 0: off.
    target_us: AtomicU64,
    next_look_us: AtomicU64,
    kept: Mutex<Kept>,
}

struct Kept {
    costs: Costs,
    trail: Trail,
    calibration: Option<Calibration>,
    last: LastRestart,
    /// The fastest that a checkpoint went: a paced one could have gone faster.
    checkpoint_bytes_per_s: f64,
    /// The log's growth, smoothed: seconds of restart a second.
    growth: f64,
    looked: Option<(u64, f64)>,
    /// When the file was written last; `None`: what it should say has never been.
    saved_us: Option<u64>,
}

/// Entries of all indexes, by kind.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Entries {
    pub hash: u64,
    pub tree: u64,
}

/// What the open found.
pub(crate) struct Opened {
    pub recovery: RecoveryStats,
    pub entries: Entries,
    /// What the recovery replayed lay in the log from `log_start` to `durable`.
    pub log_start: Epoch,
    pub durable: Epoch,
    /// Where the log's files are: a calibration reads from one.
    pub log_dir: PathBuf,
    /// What a calibration takes its memory from.
    pub memory: Account,
}

/// What a database is like at the moment.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Holding {
    /// The log's start in the manifest, and the horizon.
    pub log_start: Epoch,
    pub durable: Epoch,
    /// Since the open.
    pub logged: Logged,
    /// Segments in use, which a scan reads whole; and those that a log has at least.
    pub log_segment_bytes: u64,
    pub log_segment_bytes_min: u64,
    /// In force, and if every page were imaged now.
    pub image_bytes: u64,
    pub all_image_bytes: u64,
    pub slots: u64,
    pub entries: Entries,
    /// What a checkpoint now would image, and how fast the last one did.
    pub dirty_bytes: u64,
    pub checkpoint_bytes_per_s: f64,
}

impl Promise {
    pub fn new(io: &Arc<dyn Io>, clock: &Arc<dyn Clock>, dir: &Path, target: Duration, opened: Opened) -> Promise {
        let path = dir.join(costs::NAME);
        let before = Costs::load(io, &path);
        let measured = Measured::of(&opened.recovery, opened.entries);
        let last = LastRestart {
            seconds: measured.total_seconds,
            predicted_seconds: before.as_ref().and_then(|costs| costs.predicted_seconds),
        };
        let costs = before.unwrap_or_default().after(&measured);
        let replayed = opened.recovery.replay;
        let logged = Logged { bytes: replayed.bytes, deltas: replayed.items };
        let kept = Kept {
            calibration: Some(Calibration::new(measured.threads, opened.log_dir, opened.memory)),
            trail: Trail::new(opened.log_start, opened.durable, logged),
            costs,
            last,
            checkpoint_bytes_per_s: 0.0,
            growth: 0.0,
            looked: None,
            saved_us: None,
        };
        Promise {
            io: io.clone(),
            clock: clock.clone(),
            path,
            target_us: AtomicU64::new(target.as_micros() as u64),
            next_look_us: AtomicU64::new(0),
            kept: Mutex::new(kept),
        }
    }

    /// `None`: off.
    pub fn target(&self) -> Option<Duration> {
        match self.target_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Zero: off.
    pub fn set_target(&self, target: Duration) {
        self.target_us.store(target.as_micros() as u64, Ordering::Relaxed);
        self.next_look_us.store(0, Ordering::Relaxed);
    }

    pub fn is_look_due(&self) -> bool {
        self.clock.monotonic_us() >= self.next_look_us.load(Ordering::Relaxed)
    }

    /// Looks at the prediction; a time: to hold the target, a checkpoint is needed within it.
    pub fn look(&self, holding: &Holding) -> Option<Duration> {
        let now = self.clock.monotonic_us();
        self.next_look_us.store(now + LOOK_INTERVAL_US, Ordering::Relaxed);
        let target = self.target();
        let mut kept = self.kept.lock();
        kept.trail.note(holding.durable, holding.logged);
        // Without a target nothing is measured or written for it.
        let target = target?.as_secs_f64();
        let Kept { calibration, costs, saved_us, .. } = &mut *kept;
        if calibration.as_mut().is_some_and(|c| !c.step(costs, &self.io, &self.clock)) {
            (*calibration, *saved_us) = (None, None);
        }
        let sums = kept.sums(holding)?;
        kept.note_growth(now, sums.predicted - sums.floor);
        self.save_sometimes(&mut kept, now, sums.predicted);
        kept.checkpoint_bytes_per_s = kept.checkpoint_bytes_per_s.max(holding.checkpoint_bytes_per_s);
        let checkpoint_seconds = holding.dirty_bytes as f64 / kept.checkpoint_bytes_per_s.max(1.0);
        let known_seconds = if kept.checkpoint_bytes_per_s > 0.0 { checkpoint_seconds } else { 0.0 };
        let start = forecast::start_at(target, sums.floor, kept.growth, known_seconds)?;
        (sums.predicted >= start).then(|| forecast::time_left(target, sums.predicted, kept.growth))
    }

    /// What a restart now would take.
    pub fn forecast(&self, holding: &Holding) -> Forecast {
        let mut kept = self.kept.lock();
        let sums = kept.sums(holding);
        let workload = kept.workload(holding);
        let target = self.target();
        Forecast {
            phases: forecast::phases(&kept.costs, &workload),
            fixed_seconds: kept.costs.rest_seconds(),
            predicted_seconds: sums.map(|s| s.predicted),
            floor_seconds: sums.map(|s| s.floor),
            target,
            state: forecast::state(target.map(|t| t.as_secs_f64()), sums),
            last: kept.last,
        }
    }

    /// Writes down what is predicted, for the next open to compare with.
    pub fn close(&self, holding: &Holding) {
        let mut kept = self.kept.lock();
        if self.target().is_some()
            && let Some(sums) = kept.sums(holding)
        {
            self.save(&mut kept, self.clock.monotonic_us(), sums.predicted);
        }
    }

    fn save_sometimes(&self, kept: &mut Kept, now: u64, predicted: f64) {
        let told = kept.costs.predicted_seconds.unwrap_or(0.0);
        let has_changed = (predicted - told).abs() > SAVE_SHARE * predicted;
        if kept.saved_us.is_none_or(|saved| has_changed && now >= saved + SAVE_INTERVAL_US) {
            self.save(kept, now, predicted);
        }
    }

    fn save(&self, kept: &mut Kept, now: u64, predicted: f64) {
        kept.saved_us = Some(now);
        kept.costs.predicted_seconds = Some(predicted);
        // It only advises: a directory that cannot be written is told of by those who need it.
        let _ = kept.costs.save(&self.io, &self.path);
    }
}

impl Kept {
    fn workload(&mut self, holding: &Holding) -> Workload {
        let logged = self.trail.since(holding.log_start, holding.logged);
        let mut workload = Workload::default();
        workload[Work::Log] = holding.log_segment_bytes.max(logged.bytes);
        workload[Work::Deltas] = logged.deltas;
        workload[Work::Images] = holding.image_bytes;
        workload[Work::Slots] = holding.slots;
        workload[Work::HashEntries] = holding.entries.hash;
        workload[Work::TreeEntries] = holding.entries.tree;
        workload
    }

    fn sums(&mut self, holding: &Holding) -> Option<forecast::Sums> {
        let workload = self.workload(holding);
        let mut after_checkpoint = workload;
        after_checkpoint[Work::Log] = workload[Work::Log].min(holding.log_segment_bytes_min);
        after_checkpoint[Work::Deltas] = 0;
        after_checkpoint[Work::Images] = holding.all_image_bytes;
        let predicted = forecast::sum(&self.costs, &workload)?;
        Some(forecast::Sums { predicted, floor: forecast::sum(&self.costs, &after_checkpoint)? })
    }

    fn note_growth(&mut self, now: u64, log_seconds: f64) {
        if let Some((before, then)) = self.looked.replace((now, log_seconds))
            && now > before
        {
            // A checkpoint that ended in between makes a step down, which is no growth.
            let grown = (log_seconds - then).max(0.0) * 1e6 / (now - before) as f64;
            self.growth += GROWTH_SHARE * (grown - self.growth);
        }
    }
}
