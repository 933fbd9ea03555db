//! A database that a case makes: what it needs, what it must hold, and its restarts.

use super::Run;
use crate::cold;
use crate::data::{Content, Spec};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::machine::{disk_available, memory_available};
use crate::progress::during;
use crate::reopen::{ReopenArgs, Reopened, in_fresh_process};
use freshet_engine::engine::{Engine, Options};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const MEMORY_FLOOR: u64 = 1 << 30;
/// Commits of each thread on their way to the disk: as many sessions.
pub(super) const IN_FLIGHT: usize = 1000;

/// A database that a case made, and what it must hold.
pub(super) struct Made {
    pub spec: Spec,
    pub updates: u64,
    pub memory_bytes: u64,
    pub log_bytes: u64,
}

impl Made {
    pub(super) fn new(spec: Spec, updates: u64) -> Made {
        let memory_bytes = spec.memory_bytes() * 5 / 4 + MEMORY_FLOOR;
        // All of it fits the log, so that only the case decides when there is a checkpoint.
        let log_bytes = (spec.rows * 260 + updates * 64) * 5 / 2 + MEMORY_FLOOR;
        Made { spec, updates, memory_bytes, log_bytes }
    }

    pub(super) fn options(&self, dir: &Path) -> Options {
        Options {
            memory_limit_bytes: self.memory_bytes,
            log_size_bytes: self.log_bytes,
            // The case decides when there is a checkpoint, not the promise.
            recovery_target: Duration::ZERO,
            ..Options::new(dir.join("data"))
        }
    }

    /// Says what is missing before anything is done.
    pub(super) fn check_machine(&self, dir: &Path) -> Result<(), BenchError> {
        let memory = self.spec.memory_bytes() + MEMORY_FLOOR;
        if memory > memory_available() {
            return Err(short_of("memory", memory, memory_available()));
        }
        let disk = self.spec.rows * 260 * 2 + self.updates * 64 + MEMORY_FLOOR;
        let free = disk_available(dir)?;
        if disk > free { Err(short_of("disk space", disk, free)) } else { Ok(()) }
    }

    /// Creates the database and loads it.
    pub(super) fn build(&self, run: &Run<'_>, dir: &Path) -> Result<Engine, BenchError> {
        self.check_machine(dir)?;
        let engine = Engine::open(self.options(dir))?;
        self.spec.create(&engine)?;
        let what = format!("load {}", self.spec.shape.table_name());
        during(&what, self.spec.rows, |done| self.spec.load(&engine, 0, run.threads, done))?;
        Ok(engine)
    }

    pub(super) fn update(&self, run: &Run<'_>, engine: &Engine, count: u64, seed: u64) -> Result<(), BenchError> {
        during("update", count, |done| self.spec.update(engine, count, run.threads, seed, done))
    }

    /// Restarts cold in a fresh process and checks the data there.
    pub(super) fn restart(&self, dir: &Path, threads: usize) -> Result<Reopened, BenchError> {
        self.restart_with(dir, threads, Duration::ZERO)
    }

    pub(super) fn restart_with(&self, dir: &Path, threads: usize, target: Duration) -> Result<Reopened, BenchError> {
        let data = dir.join("data");
        cold::drop_cached(&data)?;
        let args = ReopenArgs {
            data,
            threads,
            memory_bytes: self.memory_bytes,
            log_bytes: self.log_bytes,
            target_ms: target.as_millis() as u64,
            shape: Some(self.spec.shape),
            rows: self.spec.rows,
        };
        let reopened = during("restart", 1, |_| in_fresh_process(&args))?;
        let found = Content { rows: reopened.rows, sum: reopened.sum };
        let expected = Content { rows: self.spec.rows, sum: self.updates as i64 };
        if found != expected {
            return Err(BenchError::WrongData(format!("{found:?} after the restart where {expected:?} was written")));
        }
        Ok(reopened)
    }
}

fn short_of(what: &str, needed: u64, there: u64) -> BenchError {
    let giga = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let (needed, there) = (giga(needed), giga(there));
    BenchError::Machine(format!(
        "needs {needed:.1} GiB of {what}, {there:.1} GiB are free: give --rows a smaller number"
    ))
}

/// Gives the seconds that it took.
pub(super) fn checkpoint_now(engine: &Engine) -> Result<f64, BenchError> {
    during("checkpoint", 1, |_| {
        let start = Instant::now();
        engine.checkpoint()?;
        Ok(start.elapsed().as_secs_f64())
    })
}

pub(super) fn total_figure(case: &str, made: &Made, reopened: &Reopened) -> Figure {
    let note = format!(
        "{} updates, {} index entries; {:.2} s of processor; peak {:.2} x pages",
        made.updates,
        reopened.index_entries,
        reopened.processor_seconds,
        reopened.peak_bytes as f64 / reopened.page_bytes.max(1) as f64
    );
    Figure::new(case, "total restart", reopened.rows as f64, "rows", reopened.open_seconds).note(note)
}
