//! Which directories does a database write to, and are they still where they were? One process has each, by a lock on a file in it.
//!
//! A lock holds whatever the path leads to later: names are looked up in the directory that was locked ([`crate::io`], 5). But who starts next finds what
//! is at the path by then, and acknowledges there. So once a second it is looked whether the paths lead where they did, and if one does not,
//! nothing more is acknowledged here.
//!
//! A file in the data directory says that somebody is still making this database of another one's remains, or gave up doing so: nobody opens it.

use super::{Inner, OpenError, Options, refuse};
use crate::checkpoint::IN_MAKING;
use crate::io::{Clock, Io, Lock, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LOOK_EVERY_US: u64 = 1_000_000;

/// The data directory and the backup directories; the log has its own.
pub(super) struct Directories {
    locks: Vec<Box<dyn Lock>>,
    io: Arc<dyn Io>,
    clock: Arc<dyn Clock>,
    next_look_us: AtomicU64,
}

impl Directories {
    pub(super) fn lock(io: &Arc<dyn Io>, clock: Arc<dyn Clock>, options: &Options) -> Result<Directories, OpenError> {
        let mut locks = Vec::new();
        for dir in options.fence_dirs() {
            let kind = if dir == options.data_dir { "data" } else { "backup" };
            let in_dir = |e| cannot_use(kind, &dir, e);
            io.create_dir_all(&dir).map_err(in_dir)?;
            let lock = io.lock(&dir.join("lock")).map_err(|e| match e.kind() {
                io::ErrorKind::WouldBlock => {
                    refuse(format!("{} is in use, by another process or by this one", dir.display()))
                }
                _ => in_dir(e),
            })?;
            locks.push(lock);
        }
        let directories = Directories { locks, io: io.clone(), clock, next_look_us: AtomicU64::new(0) };
        directories.look_whether_made(options)?;
        Ok(directories)
    }

    fn look_whether_made(&self, options: &Options) -> Result<(), OpenError> {
        let dir = &options.data_dir;
        let marker = dir.join(IN_MAKING);
        let in_dir = |e| cannot_use("data", dir, e);
        if self.io.exists(&marker).map_err(in_dir)? {
            let dir = dir.display();
            let what = "is what a salvage left half done: it is no database; remove it, and salvage again";
            return Err(refuse(format!("{dir} {what}")));
        }
        if options.in_making {
            self.io.open(&marker, OpenOptions { create: true, direct: false }).map_err(in_dir)?;
            self.io.sync_dir(dir).map_err(in_dir)?;
        }
        Ok(())
    }

    pub(super) fn note_made(&self, options: &Options) -> Result<(), OpenError> {
        let dir = &options.data_dir;
        let in_dir = |e| cannot_use("data", dir, e);
        let marker = dir.join(IN_MAKING);
        if self.io.exists(&marker).map_err(in_dir)? {
            self.io.remove(&marker).map_err(in_dir)?;
            self.io.sync_dir(dir).map_err(in_dir)?;
        }
        Ok(())
    }

    fn is_look_due(&self) -> bool {
        let (now, due) = (self.clock.monotonic_us(), self.next_look_us.load(Ordering::Relaxed));
        let next = now + LOOK_EVERY_US;
        now >= due && self.next_look_us.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn cannot_use(kind: &str, dir: &Path, error: io::Error) -> OpenError {
    refuse(format!("cannot use {kind} directory {}: {error}", dir.display()))
}

impl Inner {
    pub(super) fn look_at_directories(&self) {
        if self.directories.is_look_due() {
            self.core.log.poison_if_moved(&self.directories.locks);
        }
    }
}
