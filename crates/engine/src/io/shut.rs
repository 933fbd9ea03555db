//! What of a file that is seldom needed? It is open only while something is done with it, so that many of them take no descriptors.
//!
//! A write and the sync that follows it may so go through two descriptors: a sync covers the file, whoever wrote, and an error of writing back that
//! nobody was told of is told to who opened the file later (Linux since 4.16).

use super::{File, Io, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file by its name, which it must keep.
pub struct ShutFile {
    io: Arc<dyn Io>,
    path: PathBuf,
    options: OpenOptions,
    is_direct: bool,
}

impl ShutFile {
    /// Shuts a file that was opened so.
    pub fn of(io: &Arc<dyn Io>, path: &Path, options: OpenOptions, file: &dyn File) -> Arc<dyn File> {
        let options = OpenOptions { create: false, ..options };
        Arc::new(ShutFile { io: io.clone(), path: path.to_path_buf(), options, is_direct: file.is_direct() })
    }

    fn open(&self) -> io::Result<Arc<dyn File>> {
        self.io.open(&self.path, self.options)
    }
}

impl File for ShutFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.open()?.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.open()?.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.open()?.sync()
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.open()?.write_durably_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.open()?.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.open()?.set_len(len)
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }
}
