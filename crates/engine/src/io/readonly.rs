//! A world that is only looked at: an inspection runs over it, and nothing it calls can change a byte.
//!
//! 1. Every change is refused; a sync has nothing to do and succeeds.
//! 2. A lock once taken is kept as long as this world, and taking it again succeeds: whoever inspects opens a log several times.
//! 3. A lock whose file is not there is not made: nobody holds it.
//! 4. What could not be read for a reason that lies with the reader is noted: it is no damage.

use super::{File, Io, Lock, OpenOptions, is_short_of_descriptors};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Another world's files, to be read.
pub struct ReadOnly {
    io: Arc<dyn Io>,
    locks: Mutex<BTreeMap<PathBuf, Option<Box<dyn Lock>>>>,
    unreadable: Mutex<Option<(PathBuf, String)>>,
}

impl ReadOnly {
    pub fn new(io: Arc<dyn Io>) -> ReadOnly {
        ReadOnly { io, locks: Mutex::default(), unreadable: Mutex::default() }
    }

    /// The first thing that this process may not read, or had no descriptor or memory for, and why.
    pub fn unreadable(&self) -> Option<(PathBuf, String)> {
        self.unreadable.lock().clone()
    }

    fn noted<T>(&self, path: &Path, read: io::Result<T>) -> io::Result<T> {
        read.inspect_err(|error| {
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::OutOfMemory)
                || is_short_of_descriptors(error)
            {
                self.unreadable.lock().get_or_insert_with(|| (path.to_path_buf(), error.to_string()));
            }
        })
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Io for ReadOnly {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.noted(dir, self.io.list(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.noted(path, self.io.exists(path))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        if options.create && !self.exists(path)? {
            return refused();
        }
        Ok(Arc::new(ReadOnlyFile(self.noted(path, self.io.open_to_read(path))?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, OpenOptions::default())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn rename_to_new(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut locks = self.locks.lock();
        if !locks.contains_key(path) {
            let taken = self.noted(path, self.io.lock_existing(path))?;
            locks.insert(path.to_path_buf(), taken);
        }
        Ok(Box::new(Kept))
    }
}

/// The lock itself stays with the world.
struct Kept;

impl Lock for Kept {
    /// Who only reads does no harm elsewhere.
    fn lost_at(&self) -> Option<&Path> {
        None
    }
}

struct ReadOnlyFile(Arc<dyn File>);

impl File for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mem::MemIo;
    use super::*;

    #[test]
    fn nothing_can_be_changed_and_a_lock_is_kept() {
        let world = MemIo::new();
        let dir = Path::new("d");
        world.create_dir_all(dir).unwrap();
        for name in ["f", "lock"] {
            let made = world.open(&dir.join(name), OpenOptions { create: true, direct: false }).unwrap();
            made.write_at(b"abc", 0).unwrap();
        }
        let (path, lock) = (dir.join("f"), dir.join("lock"));
        let operations = world.operations();
        let looked_at = ReadOnly::new(Arc::new(world.clone()));
        let file = looked_at.open(&path, OpenOptions { create: true, direct: false }).unwrap();
        let mut bytes = [0; 3];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"abc");
        file.sync().unwrap();
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
        assert!(looked_at.rename(&path, &lock).is_err() && looked_at.remove(&path).is_err());
        assert!(looked_at.open(&dir.join("new"), OpenOptions { create: true, direct: false }).is_err());
        drop(looked_at.lock(&lock).unwrap());
        looked_at.lock(&lock).unwrap();
        assert_eq!(world.lock(&lock).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(world.operations(), operations);
        drop(looked_at);
        world.lock(&lock).unwrap();
    }
}
