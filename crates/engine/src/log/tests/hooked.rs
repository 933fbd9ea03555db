//! The twin's files, with something done before each call that takes a device its time.

use std::io;
use std::path::Path;

use crate::io::{File, Lock, OpenOptions};

use super::*;

/// What is asked of a device.
#[derive(Clone, Copy)]
pub enum Call {
    /// Of so many bytes.
    Write(u64),
    Sync,
    SyncDir,
}

type Hook = Arc<dyn Fn(Call) + Send + Sync>;

pub struct HookedIo {
    io: MemIo,
    before: Hook,
}

struct HookedFile {
    file: Arc<dyn File>,
    before: Hook,
}

impl HookedIo {
    pub fn new(io: MemIo, before: impl Fn(Call) + Send + Sync + 'static) -> Arc<HookedIo> {
        Arc::new(HookedIo { io, before: Arc::new(before) })
    }
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.before)(Call::Write(bytes.len() as u64));
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.before)(Call::Sync);
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl Io for HookedIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.io.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.io.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.io.exists(path)
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(HookedFile { file: self.io.open(path, options)?, before: self.before.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.io.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.io.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.before)(Call::SyncDir);
        self.io.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.io.lock(path)
    }
}
