//! How does the engine write to a modelled device? Through its own file traits: real files, whose calls return when the model says so.
//!
//! 1. The real call comes first, then the wait for what is left of the modelled time: what the model has answered is durable here.
//! 2. A device is a directory; every file in it, whoever writes it, is on that device.
//! 3. The thread that writes sleeps. It holds no lock meanwhile, so that others queue behind it in the model, as on a device.
//! 4. Until it is engaged the files are as fast as they are: a database is made and loaded at the speed of this machine.
//! 5. Reading costs nothing: a log is read only by a restart.

use super::model::{Medium, Model};
use freshet_engine::io::os::OsIo;
use freshet_engine::io::{File, Io, Lock, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without a write for so long a device is at rest.
const QUIET: Duration = Duration::from_millis(300);
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// One modelled device.
#[derive(Debug)]
struct Device {
    dir: PathBuf,
    medium: Mutex<Medium>,
    start: Instant,
    engaged: Arc<AtomicBool>,
    waited_us: AtomicU64,
    syncs: AtomicU64,
    /// Writes and syncs that have ended, engaged or not.
    calls: AtomicU64,
}

impl Device {
    fn is_engaged(&self) -> bool {
        self.engaged.load(Ordering::Acquire)
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Waits as long as the model says of a call that began at `begun_us` and is done on the real device.
    fn take(&self, begun_us: u64, ask: impl FnOnce(&mut Medium, u64) -> u64) {
        // The model has no state that a panic between two lines could break.
        let at_us = ask(&mut self.medium.lock().unwrap_or_else(PoisonError::into_inner), begun_us);
        self.waited_us.fetch_add(at_us - begun_us, Ordering::Relaxed);
        let until = self.start + Duration::from_micros(at_us);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
    }

    fn write(&self, begun_us: u64, file: u64, offset: u64, bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_engaged() {
            self.take(begun_us, |medium, now| medium.write(now, file, offset, bytes as u64));
        }
    }

    fn sync(&self, begun_us: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_engaged() {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.take(begun_us, |medium, now| medium.sync(now));
        }
    }
}

/// The operating system's files, some directories of which are modelled devices.
#[derive(Debug)]
pub struct ModelledIo {
    os: OsIo,
    devices: Vec<Arc<Device>>,
    files: AtomicU64,
}

/// What the devices did while they were engaged, all together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waited {
    pub syncs: u64,
    pub waited_us: u64,
}

impl ModelledIo {
    /// A device for each directory. They take their time while `engaged` says so.
    pub fn new(devices: &[(PathBuf, Model)], engaged: Arc<AtomicBool>) -> Arc<ModelledIo> {
        let start = Instant::now();
        let device = |(dir, model): &(PathBuf, Model)| {
            Arc::new(Device {
                dir: dir.clone(),
                medium: Mutex::new(Medium::new(*model)),
                start,
                engaged: engaged.clone(),
                waited_us: AtomicU64::new(0),
                syncs: AtomicU64::new(0),
                calls: AtomicU64::new(0),
            })
        };
        let devices = devices.iter().map(device).collect();
        Arc::new(ModelledIo { os: OsIo::new(), devices, files: AtomicU64::new(0) })
    }

    pub fn waited(&self) -> Waited {
        let sum = |of: fn(&Device) -> &AtomicU64| self.devices.iter().map(|d| of(d).load(Ordering::Relaxed)).sum();
        Waited { syncs: sum(|d| &d.syncs), waited_us: sum(|d| &d.waited_us) }
    }

    /// Returns once nobody has written for a moment, or not for too long: files that are made ahead are made.
    pub fn settle(&self) {
        let calls = || self.devices.iter().map(|device| device.calls.load(Ordering::Relaxed)).sum::<u64>();
        let start = Instant::now();
        let mut seen = calls();
        while start.elapsed() < SETTLE_MAX {
            std::thread::sleep(QUIET);
            match calls() {
                now if now == seen => return,
                now => seen = now,
            }
        }
    }

    fn device_of(&self, path: &Path) -> Option<&Arc<Device>> {
        self.devices.iter().find(|device| path.starts_with(&device.dir))
    }
}

impl Io for ModelledIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.os.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.os.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.os.exists(path)
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let file = self.os.open(path, options)?;
        Ok(match self.device_of(path) {
            None => file,
            Some(device) => Arc::new(ModelledFile {
                file,
                device: device.clone(),
                number: self.files.fetch_add(1, Ordering::Relaxed) + 1,
                is_dirty: AtomicBool::new(false),
            }),
        })
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.os.open_to_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.os.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.os.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let Some(device) = self.device_of(dir) else { return self.os.sync_dir(dir) };
        let begun_us = device.now_us();
        self.os.sync_dir(dir)?;
        device.sync(begun_us);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.os.lock(path)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.os.lock_existing(path)
    }
}

struct ModelledFile {
    file: Arc<dyn File>,
    device: Arc<Device>,
    number: u64,
    /// Something was written since the last sync; otherwise that costs nothing.
    is_dirty: AtomicBool,
}

impl File for ModelledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.is_dirty.store(true, Ordering::Release);
        let begun_us = self.device.now_us();
        self.file.write_at(bytes, offset)?;
        self.device.write(begun_us, self.number, offset, bytes.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let was_dirty = self.is_dirty.swap(false, Ordering::AcqRel);
        let begun_us = self.device.now_us();
        self.file.sync()?;
        if was_dirty {
            self.device.sync(begun_us);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::engine::{Engine, Options};
    use std::collections::BTreeSet;

    fn model(flush: Duration) -> Model {
        Model { flush, bandwidth_bytes_per_s: None, cache: None }
    }

    /// The device takes its time once it is engaged, and what was acknowledged over it is there after an open without it.
    #[test]
    fn a_modelled_device_takes_its_time_and_loses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let logs: Vec<PathBuf> = (0..2).map(|n| dir.path().join(format!("log-{n}"))).collect();
        let options = Options { log_dirs: logs.clone(), ..Options::small(dir.path().join("data")) };
        let spec = crate::data::Spec { shape: crate::data::Shape::Record168, rows: 100 };
        const FLUSH: Duration = Duration::from_millis(3);
        let engaged = Arc::new(AtomicBool::new(false));
        let devices: Vec<_> = logs.iter().map(|log| (log.clone(), model(FLUSH))).collect();
        let io = ModelledIo::new(&devices, engaged.clone());
        {
            let engine = Engine::open_on(io.clone(), options.clone()).expect("opens");
            spec.create(&engine).expect("creates");
            spec.load(&engine, 0, 2, &AtomicU64::new(0)).expect("loads");
            assert_eq!(io.waited(), Waited::default(), "not engaged, nobody waits");
            engaged.store(true, Ordering::Release);
            let start = Instant::now();
            for seed in 0..5 {
                spec.update(&engine, 20, 1, 7 + seed, &AtomicU64::new(0)).expect("updates");
            }
            assert!(start.elapsed() >= 5 * FLUSH, "{:?}", start.elapsed());
            let waited = io.waited();
            assert!(waited.syncs >= 5 && waited.waited_us >= waited.syncs * 3000, "{waited:?}");
            engaged.store(false, Ordering::Release);
        }
        let engine = Engine::open(options).expect("opens without the model");
        let content = spec.check(&engine).expect("all rows are as loaded but for their counters");
        assert_eq!((content.rows, content.sum), (100, 100));
    }

    #[test]
    fn files_elsewhere_and_files_that_were_not_written_wait_for_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        let engaged = Arc::new(AtomicBool::new(true));
        let io = ModelledIo::new(&[(log.clone(), model(Duration::from_secs(3600)))], engaged);
        io.create_dir_all(&log).expect("creates");
        let create = OpenOptions { create: true, direct: false };
        let elsewhere = io.open(&dir.path().join("image"), create).expect("opens");
        elsewhere.write_at(b"bytes", 0).expect("writes");
        elsewhere.sync().expect("syncs");
        io.open(&log.join("clean"), create).expect("opens").sync().expect("syncs");
        assert_eq!(io.waited(), Waited::default());
        let names: BTreeSet<String> = io.list(&log).expect("lists").into_iter().collect();
        assert_eq!(names, BTreeSet::from(["clean".to_owned()]));
    }
}
