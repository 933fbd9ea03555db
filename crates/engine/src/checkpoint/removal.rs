//! How is the space of segments given back that nobody needs? A piece at a time: a file of 256 MiB that is removed at once keeps its device busy for
//! 40 ms (a virtual disk, ext4 with `discard`), and the log's flush waits behind that; behind a piece it waits 1 ms.
//!
//! 1. What goes is named by no manifest that a recovery could find: it may be shortened, and what a crash leaves of it goes at the next open.
//! 2. No lane appends to it: all of them have taken part in the attempt whose manifest does not name it.

use super::Failure;
use super::manifest::Manifest;
use super::segment;
use crate::io::{File, Io, OpenOptions};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One piece at most. Measured, flushes of 64 KiB beside a removal of 1.5 GiB: with pieces of 4 MiB 1.6 ms at most, 16 MiB 5 ms, whole files 35 ms.
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Smaller segments go by smaller pieces, so that every test of checkpoints meets files that are being shortened.
const PIECES_OF_SEGMENT: u64 = 64;

/// The removal of all segments that a manifest does not name.
pub(super) struct Removal {
    manifest: Arc<Manifest>,
    piece_bytes: u64,
    dirs: VecDeque<PathBuf>,
    leaving: Option<Leaving>,
}

/// What goes from one directory.
struct Leaving {
    dir: PathBuf,
    paths: Vec<PathBuf>,
    /// The last of them, and how long it still is.
    shortened: Option<(Arc<dyn File>, u64)>,
    any_gone: bool,
}

impl Removal {
    /// Of what lies in `dirs`, in that order.
    pub fn new(manifest: Arc<Manifest>, dirs: impl IntoIterator<Item = PathBuf>, segment_bytes: u64) -> Removal {
        let piece_bytes = (segment_bytes / PIECES_OF_SEGMENT).clamp(1, PIECE_BYTES_MAX);
        Removal { manifest, piece_bytes, dirs: dirs.into_iter().collect(), leaving: None }
    }

    /// Whole files at once: for who need not mind the log.
    pub fn by_files(self) -> Removal {
        Removal { piece_bytes: u64::MAX, ..self }
    }

    /// Gives one piece back; false if there was none. After a failure the next removal finds what is left.
    pub fn step(&mut self, io: &Arc<dyn Io>) -> Result<bool, Failure> {
        let Some(leaving) = &mut self.leaving else {
            let Some(dir) = self.dirs.pop_front() else { return Ok(false) };
            let paths = segment::unneeded(io, &dir, |number| self.manifest.has_segment(number))?;
            self.leaving = Some(Leaving { dir, paths, shortened: None, any_gone: false });
            return Ok(true);
        };
        if !leaving.step(io, self.piece_bytes)? {
            self.leaving = None;
        }
        Ok(true)
    }

    /// The same to the end.
    pub fn run(mut self, io: &Arc<dyn Io>) -> Result<(), Failure> {
        while self.step(io)? {}
        Ok(())
    }
}

impl Leaving {
    fn step(&mut self, io: &Arc<dyn Io>, piece_bytes: u64) -> Result<bool, Failure> {
        let Some(path) = self.paths.last() else {
            if self.any_gone {
                io.sync_dir(&self.dir).map_err(|e| Failure::new("sync", &self.dir, e))?;
            }
            return Ok(false);
        };
        if self.shortened.is_none() && piece_bytes < u64::MAX {
            self.shortened = open(io, path);
        }
        if let Some((file, bytes)) = self.shortened.as_mut().filter(|(_, bytes)| *bytes > piece_bytes) {
            *bytes -= piece_bytes;
            if file.set_len(*bytes).is_ok() {
                return Ok(true);
            }
        }
        io.remove(path).map_err(|e| Failure::new("remove", path, e))?;
        self.any_gone = true;
        self.paths.pop();
        self.shortened = None;
        Ok(true)
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
    use super::super::image::ImageSegmentNo;
    use super::super::manifest::SegmentEntry;
    use super::*;
    use crate::io::mem::{Call, Fault, MemIo};
    use crate::log::DatabaseId;

    const PIECE_BYTES: u64 = 4 << 10;

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

    fn removal() -> Removal {
        let mut manifest = Manifest::new(DatabaseId(1));
        manifest.segments.push(SegmentEntry { number: ImageSegmentNo(4), dir: 0, bytes: 0, live_bytes: 0 });
        Removal::new(Arc::new(manifest), DIRS.map(PathBuf::from), PIECES_OF_SEGMENT * PIECE_BYTES)
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
        let mut removal = removal();
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
    fn where_nobody_commits_whole_files_go() {
        let (mem, io) = world();
        let before = mem.operations();
        removal().by_files().run(&io).expect("no fault is planned");
        assert_is_done(&mem);
        assert!(mem.operations() - before <= 2 * 5, "a list, three removals and a sync for each directory");
    }

    #[test]
    fn a_removal_that_was_cut_short_anywhere_is_ended_by_the_next() {
        for cut in 0.. {
            let (mem, io) = world();
            mem.cut_power_after(mem.operations() + cut);
            let mut first = removal();
            let done = (0..100).try_for_each(|_| first.step(&io).map(|_| ()));
            let after = mem.crash(cut);
            let io: Arc<dyn Io> = Arc::new(after.clone());
            let next = removal();
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
        let mut first = removal();
        let failed = (0..100).find_map(|_| first.step(&io).err()).expect("it was planned");
        assert!(failed.to_string().starts_with("cannot remove /a/images-"), "{failed}");
        let next = removal();
        next.run(&io).expect("no other fault is planned");
        assert_is_done(&mem);
    }
}
