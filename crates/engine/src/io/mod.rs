//! How does the engine reach files and time? Through three traits, so that the simulator can put its own world there.
//!
//! | part | answers |
//! |---|---|
//! | [`Io`] | which files exist, and under which names |
//! | [`File`] | bytes at offsets, and when they are durable |
//! | [`Clock`] | what time it is |
//! | [`AlignedBuf`] | memory that direct I/O accepts |
//! | [`os`] | real files |
//! | [`shut`] | files that are open only while they are needed |
//! | [`ReadOnly`] | files of another world, to be read only |
//! | [`sockets`] | bytes of many sockets, by one system call |
//! | [`urgency`] | how soon a thread gets a processor |
//! | [`mem`] | an in-memory twin that loses, reorders and tears what was not flushed |
//!
//! What every implementation promises:
//!
//! 1. A write is durable after a successful [`File::sync`] that began after it returned; before, any part of it may
//!    be lost, in units of 512 bytes, in any order with other writes.
//! 2. A name (a creation, rename or removal) is durable after a successful [`Io::sync_dir`] of its directory.
//! 3. `write_at` writes everything or returns an error; a short write never passes for a whole one.
//! 4. After a failed `sync` nothing is known about the writes before it, and a later successful `sync` proves nothing
//!    about them: the kernel marks the pages clean (Rebello et al., ATC 2020). Callers give up, they do not retry.
//! 5. While a lock is held, names in its directory are those of the directory that was locked, wherever its path leads by then.

mod aligned;
pub mod device;
pub mod mem;
pub mod os;
mod readonly;
pub mod shut;
pub mod sockets;
pub mod urgency;

use rustix::io::Errno;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBuf, BLOCK_BYTES};
pub use readonly::ReadOnly;

/// How a file is opened. Reading and writing are always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Create the file when it does not exist; otherwise its absence is [`io::ErrorKind::NotFound`].
    pub create: bool,
    /// Bypass the page cache: offsets, lengths and memory must then be multiples of [`BLOCK_BYTES`]. A request, not a
    /// demand: file systems that refuse it are used through the cache, and [`File::is_direct`] says which it became.
    pub direct: bool,
}

/// How bytes are made durable right after they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlushWay {
    /// [`File::write_at`], then [`File::sync`].
    #[default]
    WriteThenSync,
    /// [`File::write_durably_at`]: one call, and on a device with FUA no flush of its whole cache.
    DurableWrite,
}

/// A file system, or something that behaves like one.
pub trait Io: Send + Sync {
    /// Creates `dir` and its missing parents, durably.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files in `dir`, sorted; directories are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    fn exists(&self, path: &Path) -> io::Result<bool>;

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;

    /// Opens a file that will only be read, also where writing is not allowed.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, OpenOptions::default())
    }

    /// Gives a file another name, atomically replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a name that no file has; otherwise [`io::ErrorKind::AlreadyExists`], and nothing is changed.
    fn rename_to_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.exists(to)? { Err(io::ErrorKind::AlreadyExists.into()) } else { self.rename(from, to) }
    }

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes `path` as an exclusive lock until the result is dropped or the process ends. Held by another:
    /// [`io::ErrorKind::WouldBlock`].
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;

    /// The same without making a file for it: `None` if there is none, so that nobody holds it.
    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(path).map(Some)
    }

    /// 64 random bits: an identity or a hash's key, not a secret.
    fn random(&self) -> u64 {
        let mut hasher = std::hash::RandomState::new().build_hasher();
        hasher.write_u128(std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos()));
        hasher.finish()
    }
}

/// Bytes at offsets. All methods may be called by several threads at once.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`, or fails with [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, growing the file as needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes every write that has returned durable (fdatasync).
    fn sync(&self) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`; they are durable when it returns. Of other writes it says nothing.
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)?;
        self.sync()
    }

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Whether the page cache is bypassed.
    fn is_direct(&self) -> bool;
}

/// Whether the process, or the system, has no descriptor left: another file that is closed mends that.
pub(crate) fn is_short_of_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// An exclusive lock; dropping it releases it.
pub trait Lock: Send + Sync {
    /// The path at which it was taken, if another file is there by now, or none: whoever takes the lock there does not meet this one.
    fn lost_at(&self) -> Option<&Path>;
}

/// Time, from outside.
pub trait Clock: Send + Sync {
    /// Microseconds since an arbitrary point; never goes back.
    fn monotonic_us(&self) -> u64;

    /// Microseconds since 1970-01-01 UTC; may jump.
    fn wall_us(&self) -> u64;
}
