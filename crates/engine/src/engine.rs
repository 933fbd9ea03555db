//! How does it all stand together? Opening, threads, checkpoints, closing.

use crate::catalog::Schema;
use crate::ids::Cts;
use crate::txn::{Error, Session};
use std::path::PathBuf;
use std::sync::Arc;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Log directories, one per device. Empty: `data_dir/log`.
    pub log_dirs: Vec<PathBuf>,
    /// The most memory that pages, versions and indexes may take.
    pub memory_limit_bytes: u64,
    /// The most space the log may take on all devices together.
    pub log_size_bytes: u64,
    pub segment_bytes: u64,
    pub huge_pages: bool,
    pub direct_io: bool,
    pub create: bool,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            data_dir: data_dir.into(),
            log_dirs: Vec::new(),
            memory_limit_bytes: 8 << 30,
            log_size_bytes: 4 << 30,
            segment_bytes: 64 << 20,
            huge_pages: true,
            direct_io: true,
            create: true,
        }
    }
}

/// Why a database did not open: one clear line each.
#[derive(Debug)]
pub struct OpenError(pub String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// What the engine tells about itself.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub page_bytes: u64,
    pub version_bytes: u64,
    pub index_bytes: u64,
    pub log_used_bytes: u64,
    pub commit_records: u64,
    /// Commit records with their headers, without group headers and padding.
    pub commit_record_bytes: u64,
    pub groups: u64,
    /// Group headers and padding.
    pub group_overhead_bytes: u64,
    pub checkpoints: u64,
}

/// An open database. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Engine {}

/// Ready once a commit timestamp is durable: a future for event loops, `wait` for threads.
pub struct DurableWait {}

impl std::future::Future for DurableWait {
    type Output = Result<(), Error>;
    fn poll(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        unimplemented!()
    }
}

impl DurableWait {
    pub fn wait(self) -> Result<(), Error> {
        unimplemented!()
    }
}

#[allow(unused_variables)]
impl Engine {
    pub fn open(options: Options) -> Result<Engine, OpenError> {
        unimplemented!()
    }
    pub fn connect(&self) -> Result<Session, Error> {
        unimplemented!()
    }
    /// The committed schema.
    pub fn schema(&self) -> Arc<Schema> {
        unimplemented!()
    }
    pub fn is_durable(&self, cts: Cts) -> bool {
        unimplemented!()
    }
    pub fn wait_durable(&self, cts: Cts) -> DurableWait {
        unimplemented!()
    }
    /// Writes every page's image and recycles the log below it. Returns when done.
    pub fn checkpoint(&self) -> Result<(), Error> {
        unimplemented!()
    }
    /// The reason, once the log has failed.
    pub fn failure(&self) -> Option<String> {
        unimplemented!()
    }
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    /// What this machine lacks that would make it faster (huge pages, direct I/O), a line each.
    pub fn runs_without(&self) -> Vec<String> {
        unimplemented!()
    }
}
