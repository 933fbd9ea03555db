//! How do real files behave? POSIX, through rustix: `openat`, `pread`, `pwrite`, `fdatasync`, `flock`.
//!
//! 1. Direct I/O is asked for and may be refused (tmpfs before Linux 6.6, some overlay and network file systems); the file is then opened through the
//!    page cache, which is slower and equally durable, and [`File::is_direct`] tells.
//! 2. A lock keeps a descriptor of its directory, and every name in that directory is looked up in it as long as the lock is held. So whoever moves the
//!    directory, puts another in its place, or mounts something over it, moves no file from or to what was locked.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};

use super::{Clock, File, Io, Lock, OpenOptions};

/// The operating system's files.
#[derive(Debug, Default)]
pub struct OsIo {
    /// Directories that are locked through this one, by the paths that led to them.
    locked: Mutex<Vec<(PathBuf, Weak<fs::File>)>>,
}

/// Where a name is looked up: in a locked directory, or by its path.
struct Place<'p> {
    dir: Option<Arc<fs::File>>,
    name: &'p Path,
}

impl Place<'_> {
    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    fn open(&self, flags: OFlags, mode: Mode) -> rustix::io::Result<fs::File> {
        retry_on_intr(|| rustix::fs::openat(self.dir(), self.name, flags | OFlags::CLOEXEC, mode)).map(fs::File::from)
    }
}

impl OsIo {
    pub fn new() -> OsIo {
        OsIo::default()
    }

    fn locked_dir(&self, dir: &Path) -> Option<Arc<fs::File>> {
        self.locked.lock().iter().filter(|(path, _)| path == dir).find_map(|(_, locked)| locked.upgrade())
    }

    fn place<'p>(&self, path: &'p Path) -> Place<'p> {
        match (path.parent().and_then(|dir| self.locked_dir(dir)), path.file_name()) {
            (Some(dir), Some(name)) => Place { dir: Some(dir), name: Path::new(name) },
            _ => Place { dir: None, name: path },
        }
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Arc<fs::File>> {
        match self.locked_dir(dir) {
            Some(locked) => Ok(locked),
            None => Ok(Arc::new(self.place(dir).open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)),
        }
    }

    fn take_lock(&self, path: &Path, flags: OFlags) -> io::Result<OsLock> {
        let (parent, name) = (parent_of(path), path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        let dir = self.open_dir(parent)?;
        let place = Place { dir: Some(dir.clone()), name: Path::new(name) };
        let file = place.open(flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // The directory as well, where that can be: another file of this name is another lock. (A device stands in a directory of others.)
        let is_regular = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::RegularFile;
        if is_regular && let Err(Errno::WOULDBLOCK) = rustix::fs::flock(&*dir, FlockOperation::NonBlockingLockExclusive)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut locked = self.locked.lock();
        locked.retain(|(_, locked)| locked.strong_count() > 0);
        locked.push((parent.to_path_buf(), Arc::downgrade(&dir)));
        Ok(OsLock { file, path: path.to_path_buf(), dir, process: std::process::id() })
    }
}

impl Io for OsIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if self.locked_dir(dir).is_some() {
            return Ok(());
        }
        let place = self.place(dir);
        if let Some(parent) = &place.dir {
            return match rustix::fs::mkdirat(parent, place.name, Mode::from_raw_mode(0o777)) {
                Ok(()) => parent.sync_all(),
                Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        let missing = missing_ancestors(dir);
        fs::create_dir_all(dir)?;
        // A new directory's name is durable only once its parent is synced.
        for created in missing {
            self.sync_dir(parent_of(&created))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = self.open_dir(dir)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&*dir)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let found = rustix::fs::statat(&*dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                told => told,
            };
            if kind == FileType::RegularFile
                && let Ok(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        if self.locked_dir(path).is_some() {
            return Ok(true);
        }
        let place = self.place(path);
        match rustix::fs::statat(place.dir(), place.name, AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut flags = OFlags::RDWR;
        if options.create {
            flags |= OFlags::CREATE;
        }
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        let place = self.place(path);
        if options.direct {
            match place.open(flags | OFlags::DIRECT, mode) {
                Ok(file) => return Ok(Arc::new(OsFile { file, direct: true })),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Arc::new(OsFile { file: place.open(flags, mode)?, direct: false }))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile { file: self.place(path).open(OFlags::RDONLY, Mode::empty())?, direct: false }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.place(from), self.place(to));
        Ok(rustix::fs::renameat(from.dir(), from.name, to.dir(), to.name)?)
    }

    fn rename_to_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = (self.place(from), self.place(to));
        match rustix::fs::renameat_with(old.dir(), old.name, new.dir(), new.name, RenameFlags::NOREPLACE) {
            // A file system that does not know how (NFS). Nobody else gives names in a locked directory.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if self.exists(to)? => {
                Err(io::ErrorKind::AlreadyExists.into())
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename(from, to),
            renamed => Ok(renamed?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path);
        Ok(rustix::fs::unlinkat(place.dir(), place.name, AtFlags::empty())?)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_dir(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        Ok(Box::new(self.take_lock(path, OFlags::RDWR | OFlags::CREATE)?))
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        match self.take_lock(path, OFlags::RDONLY) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
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
    // `flock` belongs to the open file description, which a fork shares: closing all that name it releases the lock, and so does unlocking one.
    file: fs::File,
    path: PathBuf,
    // As long as it is there, names are looked up in it.
    dir: Arc<fs::File>,
    process: u32,
}

/// At once, though a child that was just forked and has not yet executed its program still has the descriptors. A fork's copy leaves the lock to whose
/// it is.
impl Drop for OsLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Errors: closing them, which comes next, is all else that can be done.
            // Another lock in the directory holds it by the same description.
            if Arc::strong_count(&self.dir) == 1 {
                let _ = rustix::fs::flock(&*self.dir, FlockOperation::Unlock);
            }
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Lock for OsLock {
    fn lost_at(&self) -> Option<&Path> {
        let held = rustix::fs::fstat(&self.file).ok()?;
        let is_lost = match rustix::fs::stat(&self.path) {
            Ok(there) => (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino),
            // Any other error proves nothing.
            Err(error) => matches!(error, Errno::NOENT | Errno::NOTDIR),
        };
        is_lost.then_some(&*self.path)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: OpenOptions = OpenOptions { create: true, direct: false };

    fn names(dir: &Path) -> Vec<String> {
        OsIo::new().list(dir).expect("a directory")
    }

    #[test]
    fn names_are_those_of_the_directory_that_was_locked() {
        let base = tempfile::tempdir().expect("a directory");
        let (dir, moved) = (base.path().join("d"), base.path().join("moved"));
        let io = OsIo::new();
        io.create_dir_all(&dir).expect("creates");
        let lock = io.lock(&dir.join("lock")).expect("nobody has it");
        assert_eq!(lock.lost_at(), None);
        fs::rename(&dir, &moved).expect("renames");
        assert_eq!(lock.lost_at(), Some(&*dir.join("lock")), "nothing is there");
        fs::create_dir(&dir).expect("creates");
        fs::write(dir.join("a"), "another's").expect("writes");
        io.open(&dir.join("a"), CREATE).expect("creates").write_at(b"own", 0).expect("writes");
        io.rename(&dir.join("a"), &dir.join("b")).expect("renames");
        io.open(&dir.join("c"), CREATE).expect("creates");
        io.remove(&dir.join("c")).expect("removes");
        io.sync_dir(&dir).expect("syncs");
        io.create_dir_all(&dir).expect("it is there");
        io.create_dir_all(&dir.join("inner")).expect("creates");
        assert!(moved.join("inner").is_dir() && io.exists(&dir.join("b")).expect("looks"));
        assert!(!io.exists(&dir.join("a")).expect("looks"), "the other's is not seen");
        assert_eq!(io.list(&dir).expect("lists"), ["b", "lock"]);
        assert_eq!((names(&moved), names(&dir)), (vec!["b".to_owned(), "lock".to_owned()], vec!["a".to_owned()]));
        let other = OsIo::new().lock(&dir.join("lock")).expect("it is another file");
        assert_eq!((lock.lost_at(), other.lost_at()), (Some(&*dir.join("lock")), None));
        drop(lock);
        assert!(io.exists(&dir.join("a")).expect("looks"), "a path is a path again");
    }

    #[test]
    fn a_new_name_takes_no_file_away() {
        let base = tempfile::tempdir().expect("a directory");
        let io = OsIo::new();
        let (a, b, c) = (base.path().join("a"), base.path().join("b"), base.path().join("c"));
        for path in [&a, &b] {
            io.open(path, CREATE).expect("creates").write_at(path.as_os_str().as_encoded_bytes(), 0).expect("writes");
        }
        assert_eq!(io.rename_to_new(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&b).expect("there"), b.as_os_str().as_encoded_bytes());
        io.rename_to_new(&a, &c).expect("renames");
        assert_eq!(names(base.path()), ["b", "c"]);
    }

    #[test]
    fn a_lock_excludes_and_whose_file_is_removed_is_lost() {
        let base = tempfile::tempdir().expect("a directory");
        let (io, path) = (OsIo::new(), base.path().join("lock"));
        assert!(io.lock_existing(&path).expect("looks").is_none());
        let lock = io.lock(&path).expect("nobody has it");
        for other in [&io, &OsIo::new()] {
            assert_eq!(other.lock(&path).err().expect("held").kind(), io::ErrorKind::WouldBlock);
        }
        fs::remove_file(&path).expect("removes");
        assert_eq!(lock.lost_at(), Some(&*path));
        let other = OsIo::new().lock(&path).err().expect("the directory is held");
        assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
    }

    /// As a child that is about to execute another program has them for a moment.
    #[test]
    fn a_lock_that_is_given_up_is_free_though_its_descriptors_are_held() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("lock");
        let lock = OsIo::new().take_lock(&path, OFlags::RDWR | OFlags::CREATE).expect("nobody has it");
        let held = (lock.file.try_clone().expect("a copy"), lock.dir.try_clone().expect("a copy"));
        assert!(OsIo::new().lock(&path).is_err());
        drop(lock);
        let lock = OsIo::new().take_lock(&path, OFlags::RDWR).expect("it was given up");
        // In a fork its copy is dropped, too.
        let copy = OsLock {
            file: lock.file.try_clone().expect("a copy"),
            path: path.clone(),
            dir: lock.dir.clone(),
            process: std::process::id() + 1,
        };
        drop((copy, held));
        assert_eq!(OsIo::new().lock(&path).err().expect("held").kind(), io::ErrorKind::WouldBlock);
    }
}
