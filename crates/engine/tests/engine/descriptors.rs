//! How many files does a database have open? A few, however long its log and however large its images.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::io::{File, Io, Lock, OpenOptions};
use freshet_engine::txn::Isolation;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Count {
    fn take_most(&self) -> usize {
        self.most.swap(self.now.load(Ordering::SeqCst), Ordering::SeqCst)
    }
}

/// Counts what is open.
#[derive(Clone)]
struct Counted {
    io: MemIo,
    count: Arc<Count>,
}

struct CountedFile(Arc<dyn File>, Arc<Count>);

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.1.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Io for Counted {
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
        let file = self.io.open(path, options)?;
        let now = self.count.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.count.most.fetch_max(now, Ordering::SeqCst);
        Ok(Arc::new(CountedFile(file, self.count.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.io.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.io.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.io.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.io.lock(path)
    }
}

impl File for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

const SEGMENT_BYTES: u64 = 256 << 10;
/// The current segment, two spares and one that is being made, and what a checkpoint or a recovery has in its hands.
const MOST: usize = 8;

fn open(io: &Counted) -> Engine {
    let options = Options {
        memory_limit_bytes: 256 << 20,
        stage_limit_bytes: 160 << 10,
        segment_bytes: SEGMENT_BYTES,
        log_size_bytes: 64 * SEGMENT_BYTES,
        image_segment_bytes: 64 << 10,
        ..Options::small("/db")
    };
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options).expect("opens")
}

fn segments(io: &Counted) -> usize {
    io.list(Path::new("/db/log")).expect("the log").iter().filter(|name| name.ends_with(".seg")).count()
}

const NOTE_BYTES: usize = 20_000;

/// Rows from `first` on, as many as fill so many segments. From half of the log on, checkpoints run by themselves.
fn fill(engine: &Engine, first: i64, segments: u64) -> i64 {
    let mut session = Session::new(engine);
    let end = first + (segments * SEGMENT_BYTES) as i64 / NOTE_BYTES as i64;
    for id in first..end {
        begin(&mut session, Isolation::ReadCommitted);
        insert(&mut session, id, 0, &"x".repeat(NOTE_BYTES)).expect("inserts");
        session.commit().expect("commits");
    }
    end
}

#[test]
fn neither_segments_nor_images_are_held_open() {
    let mut io = Counted { io: MemIo::new(), count: Arc::default() };
    let mut engine = open(&io);
    create(&mut Session::new(&engine), IndexKind::Hash);
    let mut rows = fill(&engine, 0, 30);
    for life in 0..3 {
        assert!(segments(&io) > 3 * MOST, "{}", segments(&io));
        let held = io.count.take_most();
        assert!(held <= MOST, "{held} files were open before checkpoint {life}");
        engine.checkpoint().expect("a checkpoint");
        // What it has freed is used again.
        rows = fill(&engine, rows, 30);
        let held = io.count.take_most();
        assert!(held <= MOST, "{held} files were open after checkpoint {life}");
        while engine.step() {}
        drop(engine);
        io = Counted { io: io.io.crash(life), count: Arc::default() };
        engine = open(&io);
        let held = io.count.take_most();
        assert!(held <= MOST, "{held} files were open in recovery {life}");
        assert_eq!(get(&mut begun(&engine), rows - 1), Some((0, "x".repeat(NOTE_BYTES))));
        rows = fill(&engine, rows, 10);
    }
}

fn begun(engine: &Engine) -> Session {
    let mut session = Session::new(engine);
    begin(&mut session, Isolation::ReadCommitted);
    session
}
