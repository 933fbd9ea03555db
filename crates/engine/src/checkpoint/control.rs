//! When does a checkpoint run, and what if it fails? A state machine that any thread may turn, one lane each.
//!
//! | it begins | pace |
//! |---|---|
//! | on request (`CHECKPOINT`), or when a session waits for log space | none |
//! | when the log is half full, if that would free more than the last one did | as `pace` says |
//! | when the restart promise asks for one by a deadline | as `pace` says |
//! | a while after one failed: 1 s, doubled each time, at most a minute | as `pace` says |
//!
//! A failure (a directory that is full, read-only or broken) ends the attempt, never the database: the former manifest stays in force, the
//! log is kept, commits go on until its space runs out, sessions that wait for space are told that there is none. The next attempt is a
//! new one with new files; no sync is ever repeated.
//!
//! 1. One attempt at a time. A lane that is still writing for one that has failed cannot disturb the next: its files have numbers of their own,
//!    and the next attempt is published only after every lane has taken part in it.
//! 2. What is published is done by one thread, in the order of the stages.

use super::Failure;
use super::attempt::{self, Attempt, Grain, Lane, Surroundings};
use super::image::{ImageSegmentNo, Images};
use super::manifest::{Manifest, SegmentEntry};
use super::pace::{self, Load};
use super::removal::Removal;
use super::segment::{self, Appender, Written};
use crate::io::{Clock, Io};
use crate::txn::core::Core;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const GRAIN: Grain = Grain { pages: 8, write_bytes: 1 << 20 };
/// Short turns, because commits want the processor, and short writes, because the log's flushes queue behind them.
const PACED_GRAIN: Grain = Grain { pages: 2, write_bytes: 256 << 10 };
/// A lane that was late, as it waited for a processor or a device, makes up for so much. At rests of a millisecond it is always late: without this, a
/// busy machine reached half of the pace, and imaged the rest at once when the deadline had passed.
const LATE_US_MAX: u64 = 10_000;
/// Over a shorter time a rate says nothing.
const RATE_SECONDS_MIN: f64 = 0.05;
/// A device that was away for a while is no reason to leave it alone for as long.
const REMOVAL_REST_US_MAX: u64 = 100_000;
const RETRY_FIRST_US: u64 = 1_000_000;
const RETRY_LAST_US: u64 = 60_000_000;

/// Where and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub data_dir: PathBuf,
    /// Not empty.
    pub backup_dirs: Vec<PathBuf>,
    /// Lanes of each directory.
    pub threads: u32,
    pub segment_bytes: u64,
    pub direct_io: bool,
    /// Bytes of images per second that a paced checkpoint does at least; zero: nothing is paced.
    pub pace_bytes_per_s: u64,
}

impl Settings {
    pub fn lanes(&self) -> u32 {
        self.threads * self.backup_dirs.len() as u32
    }

    fn removal<'a>(&self, manifest: &Arc<Manifest>, dirs: impl IntoIterator<Item = &'a PathBuf>) -> Removal {
        Removal::new(manifest.clone(), dirs.into_iter().cloned(), self.segment_bytes)
    }

    /// The directories that this process has locked. What lies in one that is no longer given is left there.
    fn own_dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.data_dir).chain(self.backup_dirs.iter().filter(|dir| **dir != self.data_dir))
    }
}

/// Where the checkpoint stands.
#[derive(Clone, Debug, Default)]
pub struct CheckpointProgress {
    pub running: bool,
    /// The running one waits between its steps.
    pub paced: bool,
    pub pages_done: u64,
    pub pages_total: u64,
    /// Of images, written by the running one.
    pub bytes: u64,
    pub elapsed_us: u64,
    /// What the pacing allows now; zero: as fast as it goes.
    pub pace_bytes_per_s: u64,
    /// Pages that the next one will image.
    pub dirty_pages: u64,
    /// Of segments that are in force, and of those what is not superseded.
    pub segments: u64,
    pub segment_bytes: u64,
    pub live_bytes: u64,
    /// Since this engine was opened.
    pub finished: u64,
    pub last: Option<CheckpointReport>,
    /// As long as the last attempt failed.
    pub failure: Option<CheckpointFailure>,
}

/// A checkpoint that is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointReport {
    pub pages: u64,
    /// Of images, written.
    pub bytes: u64,
    pub elapsed_us: u64,
    /// What was logged since the one before was published.
    pub logged_bytes: u64,
    pub paced: bool,
}

impl CheckpointReport {
    /// Image bytes written per logged byte.
    pub fn write_amplification(&self) -> f64 {
        self.bytes as f64 / self.logged_bytes.max(1) as f64
    }
}

/// Why there is no newer checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointFailure {
    /// Names the file and the error.
    pub reason: String,
    /// Attempts that failed in a row.
    pub attempts: u32,
    pub retry_in_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Imaging,
    Publishing,
    Recycling,
    Removing,
}

#[derive(Clone)]
struct Running {
    attempt: Arc<Attempt>,
    stage: Stage,
}

struct State {
    manifest: Arc<Manifest>,
    running: Option<Running>,
    /// Grows whenever a parked thread may have something to do.
    turns: u64,
    attempts: u64,
    published: u64,
    /// Someone asked for one without pacing, or by a time.
    wanted: bool,
    due_us: Option<u64>,
    pace_bytes_per_s: u64,
    finished: u64,
    failed: u64,
    /// Since the last one that succeeded.
    failures: u32,
    failure: Option<String>,
    retry_us: u64,
    last: Option<CheckpointReport>,
    /// The log's bytes and the time when the last one was published.
    logged_at: (u64, u64),
}

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Worked,
    /// Nothing before so much time has passed.
    Wait {
        us: u64,
    },
    Idle,
}

/// What the stages after imaging work on.
#[derive(Default)]
struct Concluding {
    /// By the lanes of the attempt that is being published.
    written: Vec<Written>,
    /// Of the attempt whose log was recycled.
    report: Option<CheckpointReport>,
    removal: Option<Removal>,
}

/// The checkpoints of an open database.
pub(crate) struct Checkpointer {
    core: Arc<Core>,
    io: Arc<dyn Io>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    next_segment: AtomicU32,
    lanes: Box<[Mutex<Lane>]>,
    next_lane: AtomicUsize,
    /// Held while a stage after imaging runs.
    concluding: Mutex<Concluding>,
    state: Mutex<State>,
    turned: Condvar,
    /// Finished ones, to be read while one is being written.
    finished: AtomicU64,
}

impl Checkpointer {
    pub fn new(
        core: Arc<Core>,
        io: Arc<dyn Io>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        manifest: Manifest,
    ) -> Result<Checkpointer, Failure> {
        let mut next_segment = manifest.next_segment;
        for dir in settings.own_dirs() {
            next_segment = next_segment.max(segment::next_number(&io, dir)?);
        }
        let manifest = Arc::new(manifest);
        for dir in settings.own_dirs() {
            // What an attempt of an earlier run left. Nothing depends on its removal but space.
            let _ = settings.removal(&manifest, [dir]).by_files().run(&io);
        }
        let lane = |at: usize| {
            let dir = at % settings.backup_dirs.len();
            let path = settings.backup_dirs[dir].clone();
            let appender = Appender::new(dir as u32, path, settings.direct_io, settings.segment_bytes);
            Mutex::new(Lane::new(core.checkpoint_readers[at], appender))
        };
        let lanes = (0..core.checkpoint_readers.len()).map(lane).collect();
        let state = State {
            manifest,
            running: None,
            turns: 0,
            attempts: 0,
            published: 0,
            wanted: false,
            due_us: None,
            pace_bytes_per_s: settings.pace_bytes_per_s,
            finished: 0,
            failed: 0,
            failures: 0,
            failure: None,
            retry_us: 0,
            last: None,
            logged_at: (0, clock.monotonic_us()),
        };
        Ok(Checkpointer {
            core,
            io,
            clock,
            settings,
            next_segment: AtomicU32::new(next_segment.0),
            lanes,
            next_lane: AtomicUsize::new(0),
            concluding: Mutex::default(),
            state: Mutex::new(state),
            turned: Condvar::new(),
            finished: AtomicU64::new(0),
        })
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub fn manifest(&self) -> Arc<Manifest> {
        self.state.lock().manifest.clone()
    }

    /// The first commit of a new database is durable: the manifest says so from now on.
    pub fn note_created(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if !state.manifest.created {
            let incarnation = self.core.log.incarnation();
            let created = Manifest { created: true, incarnation, ..Manifest::clone(&state.manifest) };
            self.save(&created)?;
            state.manifest = Arc::new(created);
        }
        Ok(())
    }

    fn save(&self, manifest: &Manifest) -> Result<(), Failure> {
        let dir = &self.settings.data_dir;
        manifest.save(&self.io, dir).map_err(|e| Failure::new("write", &dir.join(super::manifest::NAME), e))
    }

    /// Whether one that is under way will free log, or one begun now would free more of it than the last one did.
    pub fn could_free(&self) -> bool {
        let (stage, manifest) = {
            let state = self.state.lock();
            (state.running.as_ref().map(|running| running.stage), state.manifest.clone())
        };
        let will_free = matches!(stage, Some(Stage::Imaging | Stage::Publishing));
        will_free || attempt::could_free(&self.core, &manifest)
    }

    // ---- asking

    /// Bytes of images per second that a paced checkpoint does at least, from now on.
    pub fn set_pace(&self, bytes_per_s: u64) {
        self.state.lock().pace_bytes_per_s = bytes_per_s;
    }

    /// A checkpoint should be published in this time: one under way hurries, or one begins.
    pub fn request_within(&self, us: u64) {
        let due_us = self.clock.monotonic_us() + us;
        let mut state = self.state.lock();
        state.due_us = Some(state.due_us.map_or(due_us, |due| due.min(due_us)));
        self.notify(&mut state);
    }

    /// Runs a checkpoint that has everything committed before the call, without pacing, and returns when the log below it is recycled and what it makes
    /// superfluous is removed.
    /// `step` does the work where no threads do; `failure` says why nothing will.
    pub fn run(&self, step: Option<&dyn Fn()>, failure: impl Fn() -> Option<String>) -> Result<(), String> {
        let mut state = self.state.lock();
        // One under way may have copied pages before the caller's changes; the next one has not.
        let target = state.finished + if state.running.is_some() { 2 } else { 1 };
        let failed = state.failed;
        while state.finished < target {
            let newer = (state.failed > failed).then(|| state.failure.clone().unwrap_or_default());
            if let Some(failure) = newer.or_else(&failure) {
                return Err(failure);
            }
            match &state.running {
                Some(running) => running.attempt.urgent.store(true, Ordering::Relaxed),
                None => state.wanted = true,
            }
            match step {
                Some(step) => MutexGuard::unlocked(&mut state, step),
                None => {
                    self.notify(&mut state);
                    self.turned.wait_for(&mut state, Duration::from_millis(50));
                }
            }
        }
        Ok(())
    }

    fn notify(&self, state: &mut State) {
        state.turns += 1;
        self.turned.notify_all();
    }

    /// Wakes every parked thread.
    pub fn wake(&self) {
        self.notify(&mut self.state.lock());
    }

    pub fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Waits until there may be something to do that there was not when `turns` said `seen`.
    pub fn park(&self, seen: u64, timeout: Duration) {
        let mut state = self.state.lock();
        if state.turns == seen {
            self.turned.wait_for(&mut state, timeout);
        }
    }

    // ---- turning

    /// A turn of whichever lane is next; false if none had anything to do.
    pub fn step(&self) -> bool {
        let first = self.next_lane.load(Ordering::Relaxed);
        let lanes = self.lanes.len();
        let worked = (0..lanes).map(|i| (first + i) % lanes).find(|&lane| self.turn(lane) == Turn::Worked);
        if let Some(lane) = worked {
            self.next_lane.store((lane + 1) % lanes, Ordering::Relaxed);
        }
        worked.is_some()
    }

    /// A turn of one lane, or of what follows the lanes.
    pub fn turn(&self, lane: usize) -> Turn {
        if self.core.log.poisoned().is_some() {
            // Nothing is freed any more: who waits for space learns why from the log.
            self.core.space.tell(false);
            return Turn::Idle;
        }
        let Some(Running { attempt, stage }) = self.running_or_due() else { return Turn::Idle };
        match stage {
            Stage::Imaging => self.image(lane, &attempt),
            _ => self.conclude(&attempt),
        }
    }

    fn running_or_due(&self) -> Option<Running> {
        let mut state = self.state.lock();
        if state.running.is_none() && self.is_due(&state) {
            self.start(&mut state);
        }
        state.running.clone()
    }

    fn is_due(&self, state: &State) -> bool {
        if state.wanted || self.core.space.is_wanted() || state.due_us.is_some() {
            return true;
        }
        if state.failures > 0 {
            return self.clock.monotonic_us() >= state.retry_us;
        }
        // A large transaction under way pins the log: until it ends, another checkpoint would free no more than the last.
        let log = &self.core.log;
        log.is_half_full() && attempt::could_free(&self.core, &state.manifest)
    }

    fn start(&self, state: &mut State) {
        state.attempts += 1;
        let recorded = self.recorded_dirs();
        let now_us = self.clock.monotonic_us();
        let lanes = self.lanes.len() as u32;
        let manifest = state.manifest.clone();
        let attempt = Attempt::start(&self.core, state.attempts, state.published, manifest, &recorded, lanes, now_us);
        attempt.urgent.store(state.wanted, Ordering::Relaxed);
        state.wanted = false;
        state.running = Some(Running { attempt: Arc::new(attempt), stage: Stage::Imaging });
        self.notify(state);
    }

    fn recorded_dirs(&self) -> Vec<PathBuf> {
        self.settings.backup_dirs.iter().map(|d| attempt::recorded(d, &self.settings.data_dir)).collect()
    }

    fn image(&self, lane: usize, attempt: &Arc<Attempt>) -> Turn {
        let pace = self.pace(attempt);
        if let Some(rest) = pace.and_then(|_| self.rest(attempt)) {
            return rest;
        }
        let Some(mut lane) = self.lanes[lane].try_lock() else { return Turn::Idle };
        // Looked up under the lock: the lane may already work for the next attempt, whose images it would throw away.
        if lane.is_done(attempt) || !self.is_running(attempt) {
            return Turn::Idle;
        }
        let around = Surroundings {
            core: &self.core,
            io: &self.io,
            next_segment: &self.next_segment,
            grain: if pace.is_some() { PACED_GRAIN } else { GRAIN },
        };
        match lane.step(&around, attempt) {
            Err(failure) => {
                lane.abandon(&self.io);
                drop(lane);
                self.fail(attempt, &failure);
            }
            Ok(copied) => {
                if lane.is_done(attempt) && attempt.lane_is_done() {
                    drop(lane);
                    self.advance(attempt, Stage::Publishing);
                } else if let Some(pace) = pace {
                    let earliest_us = self.clock.monotonic_us().saturating_sub(LATE_US_MAX);
                    attempt.next_step_us.fetch_max(earliest_us, Ordering::Relaxed);
                    attempt.next_step_us.fetch_add(copied * 1_000_000 / pace, Ordering::Relaxed);
                }
            }
        }
        Turn::Worked
    }

    /// Until the attempt's next step, if it is paced.
    fn rest(&self, attempt: &Attempt) -> Option<Turn> {
        let us = attempt.next_step_us.load(Ordering::Relaxed).saturating_sub(self.clock.monotonic_us());
        (us > 0).then_some(Turn::Wait { us })
    }

    fn is_running(&self, attempt: &Attempt) -> bool {
        self.state.lock().running.as_ref().is_some_and(|r| r.attempt.number == attempt.number)
    }

    /// Bytes per second; `None`: as fast as it goes.
    fn pace(&self, attempt: &Attempt) -> Option<u64> {
        let (floor_bytes_per_s, due_us, (logged_then, then_us)) = {
            let state = self.state.lock();
            (state.pace_bytes_per_s, state.due_us, state.logged_at)
        };
        if floor_bytes_per_s == 0 || attempt.urgent.load(Ordering::Relaxed) || self.core.space.is_wanted() {
            return None;
        }
        let now_us = self.clock.monotonic_us();
        let log = &self.core.log;
        let seconds = now_us.saturating_sub(then_us) as f64 / 1e6;
        let logged = (self.logged() - logged_then) as f64;
        pace::rate(&Load {
            floor_bytes_per_s,
            left_bytes: attempt.left_bytes(),
            log_used_bytes: log.used_bytes(),
            log_capacity_bytes: log.capacity_bytes(),
            log_bytes_per_s: if seconds < RATE_SECONDS_MIN { 0.0 } else { logged / seconds },
            due_in_us: due_us.map(|due| due.saturating_sub(now_us)),
        })
    }

    /// Bytes written to the log since the engine was opened.
    fn logged(&self) -> u64 {
        let stats = self.core.log.stats();
        stats.body_bytes + stats.header_bytes + stats.padding_bytes
    }

    fn advance(&self, attempt: &Attempt, stage: Stage) {
        let mut state = self.state.lock();
        if let Some(running) = state.running.as_mut().filter(|r| r.attempt.number == attempt.number) {
            running.stage = stage;
        }
        self.notify(&mut state);
    }

    // ---- after the lanes

    fn conclude(&self, attempt: &Arc<Attempt>) -> Turn {
        let Some(mut concluding) = self.concluding.try_lock() else { return Turn::Idle };
        // Looked up under the lock: whoever had it may have gone on.
        let stage = self.state.lock().running.as_ref().filter(|r| r.attempt.number == attempt.number).map(|r| r.stage);
        let done = match stage {
            Some(Stage::Publishing) => self.publish(attempt, &mut concluding.written),
            Some(Stage::Recycling) => {
                self.recycle(attempt, &mut concluding);
                Ok(())
            }
            Some(Stage::Removing) => return self.remove(attempt, &mut concluding),
            Some(Stage::Imaging) | None => return Turn::Idle,
        };
        if let Err(failure) = done {
            self.fail(attempt, &failure);
        }
        Turn::Worked
    }

    /// Makes names durable, then the manifest; then marks may rise (module invariant 4).
    fn publish(&self, attempt: &Attempt, written: &mut Vec<Written>) -> Result<(), Failure> {
        *written = self.lanes.iter().map(|lane| lane.lock().take_written()).collect();
        let mut dirs: Vec<_> = written.iter().filter_map(|w| w.new_names_in.as_ref()).collect();
        dirs.sort_unstable();
        dirs.dedup();
        for dir in dirs {
            self.io.sync_dir(dir).map_err(|e| Failure::new("sync", dir, e))?;
        }
        let next_segment = ImageSegmentNo(self.next_segment.load(Ordering::Relaxed));
        let dirs = self.recorded_dirs();
        let manifest = attempt::next_manifest(&self.core, &attempt.manifest, written, &dirs, next_segment);
        let data_dir = &self.settings.data_dir;
        let failed = |e| Failure::new("write", &data_dir.join(super::manifest::NAME), e);
        manifest.stage(&self.io, data_dir).map_err(|e| {
            written.iter_mut().for_each(|w| w.discard(&self.io));
            failed(e)
        })?;
        Manifest::switch(&self.io, data_dir).map_err(failed)?;
        attempt::raise_marks(&self.core, &manifest, written);
        written.clear();
        let mut state = self.state.lock();
        state.manifest = Arc::new(manifest);
        state.published = attempt.number;
        // Whoever asks from now on asks for another one.
        state.due_us = None;
        drop(state);
        self.advance(attempt, Stage::Recycling);
        Ok(())
    }

    /// The checkpoint has done what it is for: who waits for log space need not wait for the removal.
    fn recycle(&self, attempt: &Attempt, concluding: &mut Concluding) {
        let manifest = self.manifest();
        // A log that cannot be recycled is poisoned, which says what and where.
        let is_recycled = self.core.log.recycle_below(&manifest.log_start).is_ok();
        let now_us = self.clock.monotonic_us();
        let mut state = self.state.lock();
        let logged = self.logged();
        concluding.report = Some(CheckpointReport {
            pages: attempt.pages_total(),
            bytes: attempt.written_bytes.load(Ordering::Relaxed),
            elapsed_us: now_us.saturating_sub(attempt.started_us),
            logged_bytes: logged - state.logged_at.0,
            paced: !attempt.urgent.load(Ordering::Relaxed) && state.pace_bytes_per_s > 0,
        });
        state.logged_at = (logged, now_us);
        drop(state);
        concluding.removal = Some(self.settings.removal(&manifest, self.settings.own_dirs()));
        if is_recycled {
            self.core.space.tell(true);
        }
        // The last image's rest is no removal's.
        attempt.next_step_us.store(0, Ordering::Relaxed);
        self.advance(attempt, Stage::Removing);
    }

    /// One piece. Where the attempt is paced and no other one is due, the device is left to commits for as long as it took.
    fn remove(&self, attempt: &Attempt, concluding: &mut Concluding) -> Turn {
        let is_paced = self.pace(attempt).is_some() && !self.is_due(&self.state.lock());
        if let Some(rest) = self.rest(attempt).filter(|_| is_paced) {
            return rest;
        }
        let began_us = self.clock.monotonic_us();
        let removal = concluding.removal.as_mut().expect("the stage before has made it");
        match removal.step(&self.io) {
            Ok(true) => {
                let now_us = self.clock.monotonic_us();
                let rest_us = (now_us - began_us).min(REMOVAL_REST_US_MAX);
                attempt.next_step_us.store(now_us + rest_us, Ordering::Relaxed);
            }
            over => self.finish(std::mem::take(concluding), over.err()),
        }
        Turn::Worked
    }

    fn finish(&self, concluded: Concluding, removal_failure: Option<Failure>) {
        let mut state = self.state.lock();
        state.running = None;
        state.last = concluded.report;
        state.finished += 1;
        self.finished.store(state.finished, Ordering::Relaxed);
        match removal_failure {
            // The checkpoint stands; what was not removed takes space until the next one.
            Some(failure) => self.note_failure(&mut state, &failure),
            None => {
                state.failures = 0;
                state.failure = None;
            }
        }
        self.notify(&mut state);
    }

    /// Ends a removal that is under way, where no thread will do it any more: what is left would lie there until the next open.
    pub fn close(&self) {
        if let Some(removal) = self.concluding.lock().removal.take() {
            // As far as it goes.
            let _ = removal.by_files().run(&self.io);
        }
    }

    fn fail(&self, attempt: &Attempt, failure: &Failure) {
        let mut state = self.state.lock();
        if state.running.as_ref().is_none_or(|r| r.attempt.number != attempt.number) {
            return;
        }
        state.running = None;
        state.wanted = false;
        state.due_us = None;
        self.note_failure(&mut state, failure);
        state.failed += 1;
        self.core.space.tell(false);
        self.notify(&mut state);
    }

    fn note_failure(&self, state: &mut State, failure: &Failure) {
        state.failures += 1;
        let wait_us = (RETRY_FIRST_US << (state.failures - 1).min(10)).min(RETRY_LAST_US);
        state.retry_us = self.clock.monotonic_us() + wait_us;
        state.failure = Some(format!("checkpoint in {}: {failure}", self.settings.data_dir.display()));
    }

    // ---- telling

    pub fn progress(&self) -> CheckpointProgress {
        let (running, manifest, mut progress) = {
            let state = self.state.lock();
            let now_us = self.clock.monotonic_us();
            let failure = state.failure.as_ref().map(|reason| CheckpointFailure {
                reason: reason.clone(),
                attempts: state.failures,
                retry_in_us: state.retry_us.saturating_sub(now_us),
            });
            let (finished, last) = (state.finished, state.last);
            let progress = CheckpointProgress { finished, last, failure, ..CheckpointProgress::default() };
            (state.running.clone(), state.manifest.clone(), progress)
        };
        if let Some(Running { attempt, .. }) = running {
            let pace = self.pace(&attempt);
            progress.running = true;
            progress.paced = pace.is_some();
            progress.pace_bytes_per_s = pace.unwrap_or(0);
            progress.pages_done = attempt.pages_done();
            progress.pages_total = attempt.pages_total();
            progress.bytes = attempt.written_bytes.load(Ordering::Relaxed);
            progress.elapsed_us = self.clock.monotonic_us().saturating_sub(attempt.started_us);
        }
        let total = |bytes: fn(&SegmentEntry) -> u64| manifest.segments.iter().map(bytes).sum();
        progress.segments = manifest.segments.len() as u64;
        progress.segment_bytes = total(|s| s.bytes);
        progress.live_bytes = total(|s| s.live_bytes);
        progress.dirty_pages = self.core.pages.dirty() as u64;
        progress
    }
}

impl Manifest {
    /// Takes over the images of format version 1 as a segment.
    pub(crate) fn adopt(&mut self, images: &Images) {
        let Some(whole) = self.whole.take() else { return };
        let live_bytes = images.images.iter().map(|i| i.bytes()).sum();
        self.backup_dirs = vec![PathBuf::new()];
        self.segments = vec![SegmentEntry { number: whole.number, dir: 0, bytes: whole.bytes, live_bytes }];
        self.images = images.images.clone();
        self.images.sort_unstable_by_key(|i| i.head.page);
        self.generations.clone_from(&images.generations);
        self.complete_below = images.complete_below;
    }
}
