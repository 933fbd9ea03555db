//! How do real files behave? POSIX, through rustix: `pread`, `pwrite`, `fdatasync`, `flock`.
//!
//! Direct I/O is asked for and may be refused (tmpfs before Linux 6.6, some overlay and network file systems); the
//! file is then opened through the page cache, which is slower and equally durable, and [`File::is_direct`] tells.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::{Clock, File, Io, Lock, OpenOptions};

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsIo;

impl Io for OsIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let missing = missing_ancestors(dir);
        fs::create_dir_all(dir)?;
        // A new directory's name is durable only once its parent is synced.
        for created in missing {
            self.sync_dir(parent_of(&created))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        if options.create {
            flags |= OFlags::CREATE;
        }
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        if options.direct {
            match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
                Ok(fd) => {
                    return Ok(Arc::new(OsFile { file: fd.into(), direct: true }));
                }
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let fd = rustix::fs::open(path, flags, mode)?;
        Ok(Arc::new(OsFile { file: fd.into(), direct: false }))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile { file: fs::File::open(path)?, direct: false }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        take_lock(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        match fs::File::open(path) {
            Ok(file) => take_lock(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn take_lock(file: fs::File) -> io::Result<Box<dyn Lock>> {
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Box::new(OsLock { _file: file }))
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn missing_ancestors(dir: &Path) -> Vec<PathBuf> {
    let real = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    dir.ancestors().take_while(real).map(Path::to_path_buf).collect()
}

struct OsFile {
    file: fs::File,
    direct: bool,
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // Continues after a short write. With direct I/O the rest of a torn block is refused by the kernel (EINVAL),
        // which is an error here too.
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // Not `sync_data`: the standard library repeats it on EINTR, and a flush is never repeated here.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // A short write is an error, as in `write_at`, and a failed one is never repeated.
        let written = pwritev2(&self.file, &[io::IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC)?;
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

struct OsLock {
    // `flock` belongs to the open file description: closing it releases the lock.
    _file: fs::File,
}

impl Lock for OsLock {}

/// The system's clocks.
#[derive(Clone, Debug)]
pub struct OsClock {
    start: Instant,
}

impl OsClock {
    pub fn new() -> OsClock {
        OsClock { start: Instant::now() }
    }
}

impl Default for OsClock {
    fn default() -> OsClock {
        OsClock::new()
    }
}

impl Clock for OsClock {
    fn monotonic_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn wall_us(&self) -> u64 {
        // A clock set before 1970 reads as 1970; the log keeps its own times monotone.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    }
}
