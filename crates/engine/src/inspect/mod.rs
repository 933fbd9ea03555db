//! Is a database whole, and if not, what is left of it? Offline: everything is read, nothing is written.
//!
//! | module | question |
//! |---|---|
//! | `finding` | what is wrong, and where |
//! | `pages` | what do images say, and which pages does the log allocate |
//! | `history` | does each row's chain of deltas telescope |
//! | `contents` | do catalog, rows and long values make sense |
//! | `check` | all of it, and a verdict |
//! | `remains` | what is left of a damaged one |
//!
//! The verdict on the log is a recovery's own ([`crate::log::scan()`]), so that what a check calls damaged is what an open
//! refuses; a survey adds everything behind the first damage.
//!
//! Invariants:
//!
//! 1. Nothing is written: all files are reached through [`crate::io::ReadOnly`].
//! 2. A row's operations telescope: ordered by cts, each names the cts before it, the first one that of the image or zero. Whatever is
//!    lost, doubled or put elsewhere breaks the chain, except at its very end, which the chain of epochs guards.
//! 3. What cannot be proven is not applied: a row keeps the version before the first break, and is told.
//! 4. Memory is that of the database, plus 32 bytes for each operation in the log.

mod check;
mod contents;
mod finding;
mod history;
mod pages;
mod remains;

pub use check::{Report, check, is_there};
pub(crate) use check::{affected, affected_by};
pub(crate) use contents::{Defined, label};
pub use finding::{Finding, Severity};
pub use remains::{Fate, Loss};
pub(crate) use remains::{Remains, key_of, remains};

use crate::checkpoint::Manifest;
use crate::log::LogOptions;
use std::fmt;
use std::path::PathBuf;

/// Which database is looked at.
#[derive(Clone, Debug)]
pub struct Subject {
    pub data_dir: PathBuf,
    /// Log directories, one per device. Empty: `data_dir/log`.
    pub log_dirs: Vec<PathBuf>,
    /// Log directories that are about to leave, or have left.
    pub retired_log_dirs: Vec<PathBuf>,
    /// Where images are, besides the directories that the manifest names: moved there, or mounted elsewhere.
    pub backup_dirs: Vec<PathBuf>,
}

impl Subject {
    fn log_dirs(&self) -> Vec<PathBuf> {
        match self.log_dirs.is_empty() {
            true => vec![self.data_dir.join("log")],
            false => self.log_dirs.clone(),
        }
    }

    /// Where copies of the fence are, and locks: the data directory, and the backup directories beside it.
    fn fence_dirs(&self, manifest: Option<&Manifest>) -> Vec<PathBuf> {
        let named = manifest.into_iter().flat_map(|m| &m.backup_dirs).filter(|dir| !dir.as_os_str().is_empty());
        let beside = if self.backup_dirs.is_empty() { named.collect() } else { Vec::from_iter(&self.backup_dirs) };
        let beside = beside.into_iter().filter(|dir| **dir != self.data_dir);
        std::iter::once(&self.data_dir).chain(beside).cloned().collect()
    }

    fn log_options(&self, manifest: Option<&Manifest>) -> LogOptions {
        let fence_dirs = self.fence_dirs(manifest);
        let retired_dirs = self.retired_log_dirs.clone();
        LogOptions { fence_dirs, retired_dirs, direct_io: false, ..LogOptions::new(self.log_dirs()) }
    }
}

/// How far an inspection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: &'static str,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// Told of the progress now and then.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// Why nothing could be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InspectError {
    /// Neither manifest nor log.
    NoDatabase(PathBuf),
    /// A server has it open.
    InUse(PathBuf),
    /// The process may not read it, or has no descriptor left: that says nothing about the database.
    Unreadable(PathBuf, String),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectError::NoDatabase(dir) => write!(f, "{} holds no database", dir.display()),
            InspectError::InUse(dir) => write!(f, "{} is in use, by another process or by this one", dir.display()),
            InspectError::Unreadable(path, why) => write!(f, "cannot read {}: {why}", path.display()),
        }
    }
}

impl std::error::Error for InspectError {}
