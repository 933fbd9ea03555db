//! How is the space of segments given back that nobody needs? A piece at a time: a file of 256 MiB that is removed at once keeps its device busy for
//! 40 ms (a virtual disk, ext4 with `discard`), and the log's flush waits behind that; behind a piece it waits 1 ms.
//!
//! 1. What goes is named by no manifest that a recovery could find: it may be shortened, and what a crash leaves of it goes at the next open.
//! 2. No lane appends to it: all of them have taken part in the attempt whose manifest does not name it.

use super::Failure;
use super::image::ImageSegmentNo;
use super::segment;
use crate::io::{File, Io, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One piece. Measured, flushes of 64 KiB beside a removal of 1.5 GiB: with pieces of 4 MiB 1.6 ms at most, 16 MiB 5 ms, whole files 35 ms.
const PIECE_BYTES: u64 = 4 << 20;

/// A removal under way.
pub(super) struct Removal {
    dirs: Vec<Leaving>,
    /// The last file of the last directory, and how long it still is.
    shortened: Option<(Arc<dyn File>, u64)>,
}

/// What goes from one directory.
struct Leaving {
    dir: PathBuf,
    paths: Vec<PathBuf>,
    any_gone: bool,
}

impl Removal {
    /// Of the segments in `dirs` that are not needed.
    pub fn of<'a>(
        io: &Arc<dyn Io>,
        dirs: impl IntoIterator<Item = &'a PathBuf>,
        is_needed: impl Fn(ImageSegmentNo) -> bool,
    ) -> Result<Removal, Failure> {
        let leaving = |dir: &PathBuf| {
            let paths = segment::unneeded(io, dir, &is_needed)?;
            Ok(Leaving { dir: dir.clone(), paths, any_gone: false })
        };
        Ok(Removal { dirs: dirs.into_iter().map(leaving).collect::<Result<_, _>>()?, shortened: None })
    }

    /// Gives one piece back; false if there was none. After a failure the next removal finds what is left.
    pub fn step(&mut self, io: &Arc<dyn Io>) -> Result<bool, Failure> {
        let Some(Leaving { dir, paths, any_gone }) = self.dirs.last_mut() else { return Ok(false) };
        let Some(path) = paths.last() else {
            if *any_gone {
                io.sync_dir(dir).map_err(|e| Failure::new("sync", dir, e))?;
            }
            self.dirs.pop();
            return Ok(true);
        };
        if self.shortened.is_none() {
            self.shortened = open(io, path);
        }
        if let Some((file, bytes)) = self.shortened.as_mut().filter(|(_, bytes)| *bytes > PIECE_BYTES) {
            *bytes -= PIECE_BYTES;
            return file.set_len(*bytes).map(|()| true).map_err(|e| Failure::new("shorten", path, e));
        }
        io.remove(path).map_err(|e| Failure::new("remove", path, e))?;
        *any_gone = true;
        paths.pop();
        self.shortened = None;
        Ok(true)
    }

    /// The same to the end, at once.
    pub fn run(mut self, io: &Arc<dyn Io>) -> Result<(), Failure> {
        while self.step(io)? {}
        Ok(())
    }
}

/// `None`: it can only be removed as a whole (no descriptor is left, say).
fn open(io: &Arc<dyn Io>, path: &Path) -> Option<(Arc<dyn File>, u64)> {
    let file = io.open(path, OpenOptions::default()).ok()?;
    let bytes = file.len().ok()?;
    Some((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mem::{Call, Fault, MemIo};

    const DIRS: [&str; 2] = ["/a", "/b"];

    /// In each directory a segment of ten pieces and a half, one of half a piece, an empty one, and one that is needed.
    fn world() -> (MemIo, Arc<dyn Io>) {
        let mem = MemIo::new();
        for dir in DIRS.map(Path::new) {
            mem.create_dir_all(dir).expect("a directory");
            for (number, half_pieces) in [(1, 21), (2, 1), (3, 0), (4, 3)] {
                let path = dir.join(segment::file_name(ImageSegmentNo(number)));
                let file = mem.open(&path, OpenOptions { create: true, direct: false }).expect("opens");
                file.set_len(half_pieces * PIECE_BYTES / 2).expect("grows");
                file.sync().expect("syncs");
            }
            mem.sync_dir(dir).expect("syncs");
        }
        (mem.clone(), Arc::new(mem))
    }

    fn removal(io: &Arc<dyn Io>) -> Removal {
        Removal::of(io, &DIRS.map(PathBuf::from), |number| number == ImageSegmentNo(4)).expect("lists")
    }

    fn bytes(io: &MemIo) -> u64 {
        io.names().iter().map(|path| io.contents(path).expect("a file").len() as u64).sum()
    }

    fn assert_is_done(io: &MemIo) {
        assert_eq!(io.names(), DIRS.map(|dir| Path::new(dir).join("images-000004")));
        assert_eq!(bytes(io), 2 * 3 * PIECE_BYTES / 2, "and whole");
    }

    #[test]
    fn what_is_not_needed_goes_by_pieces() {
        let (mem, io) = world();
        let mut removal = removal(&io);
        let mut before = bytes(&mem);
        let mut steps = 0;
        while removal.step(&io).expect("no fault is planned") {
            let after = bytes(&mem);
            assert!(before - after <= PIECE_BYTES, "{} bytes at once", before - after);
            before = after;
            steps += 1;
        }
        assert_is_done(&mem);
        assert!(steps >= 2 * 13, "{steps} steps");
        assert_is_done(&mem.crash(1));
    }

    #[test]
    fn a_removal_that_was_cut_short_anywhere_is_ended_by_the_next() {
        for cut in 0.. {
            let (mem, io) = world();
            mem.cut_power_after(mem.operations() + cut);
            let mut first = removal(&io);
            let done = (0..100).try_for_each(|_| first.step(&io).map(|_| ()));
            let after = mem.crash(cut);
            let io: Arc<dyn Io> = Arc::new(after.clone());
            let next = removal(&io);
            next.run(&io).expect("no fault is planned");
            assert_is_done(&after);
            if done.is_ok() {
                assert!(cut > 26, "{cut} operations");
                break;
            }
        }
    }

    #[test]
    fn a_failure_is_told_and_what_is_left_goes_next_time() {
        let (mem, io) = world();
        mem.plan_fault(Call::Name, 1, Fault::Eio);
        let mut first = removal(&io);
        let failed = (0..100).find_map(|_| first.step(&io).err()).expect("it was planned");
        assert!(failed.to_string().starts_with("cannot remove /b/images-"), "{failed}");
        let next = removal(&io);
        next.run(&io).expect("no other fault is planned");
        assert_is_done(&mem);
    }
}
