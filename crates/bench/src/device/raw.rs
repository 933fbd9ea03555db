//! How can a log lie on a block device without a file system? The device is cut into slots; two directory blocks say which file is in which.
//!
//! ```text
//!  0        16 KiB    32 KiB     1 MiB                           small slots of 1 MiB          large slots, one segment each
//!  | copy 0  | copy 1  | unused   | slot 0 | slot 1 | ... | slot 7 | slot 8           | slot 9          | ...
//! ```
//!
//! A directory copy (little-endian): magic `FRESHRAW`, CRC32C of what follows, number of files, sequence, length of a large slot; then for each file its
//! slot (u32), length (u64) and name (52 bytes, zero behind it).
//!
//! 1. A change of the directory is written to the copy that is not the newest, with the next sequence, and synced: one of the two is whole always.
//! 2. Names and lengths are durable when the directory was written: [`Io::sync_dir`], and [`File::sync`] of a file that has grown.
//! 3. The slot of a file that was removed or replaced is free only once a directory without that file is durable: until then a crash brings the file
//!    back, and its bytes must be there.
//! 4. A device is taken only if its first block is zero or ours: whoever has other data on it clears it himself.
//! 5. A new file reads as what its slot held. The log fills a segment with zeros before it gives it its name.

use freshet_engine::io::os::OsIo;
use freshet_engine::io::{AlignedBuf, BLOCK_BYTES, File, Io, Lock, OpenOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"FRESHRAW";
const COPY_BYTES: usize = 16 << 10;
const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 64;
const NAME_BYTES: usize = ENTRY_BYTES - 12;
const FILES_MAX: usize = (COPY_BYTES - HEAD_BYTES) / ENTRY_BYTES;
const SMALL_BYTES: u64 = 1 << 20;
const SMALL_SLOTS: u32 = 8;
const LARGE_AT: u64 = SMALL_BYTES * (1 + SMALL_SLOTS as u64);
/// Beside the segments.
pub const RESERVED_BYTES: u64 = LARGE_AT;

/// Where a file is, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    slot: u32,
    len: u64,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Directory {
    sequence: u64,
    files: BTreeMap<String, Entry>,
}

/// What is in memory, and what of it is durable.
#[derive(Debug)]
struct State {
    now: Directory,
    durable: Directory,
}

/// One device that shows itself as a directory.
pub struct RawDevice {
    dir: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Length of a large slot, and how many there are.
    large_bytes: u64,
    large_slots: u32,
    state: Mutex<State>,
}

impl std::fmt::Debug for RawDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawDevice({} as {})", self.path.display(), self.dir.display())
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

impl Directory {
    fn encode(&self, large_bytes: u64) -> AlignedBuf {
        let mut copy = AlignedBuf::zeroed(COPY_BYTES);
        copy[..8].copy_from_slice(&MAGIC);
        copy[12..16].copy_from_slice(&(self.files.len() as u32).to_le_bytes());
        copy[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        copy[24..32].copy_from_slice(&large_bytes.to_le_bytes());
        for (entry, (name, file)) in copy[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip(&self.files) {
            entry[..4].copy_from_slice(&file.slot.to_le_bytes());
            entry[4..12].copy_from_slice(&file.len.to_le_bytes());
            entry[12..12 + name.len()].copy_from_slice(name.as_bytes());
        }
        let crc = crc32c::crc32c(&copy[12..]);
        copy[8..12].copy_from_slice(&crc.to_le_bytes());
        copy
    }

    /// The directory and the length of its large slots, if the copy is whole.
    fn decode(copy: &[u8]) -> Option<(Directory, u64)> {
        let files = u32_at(copy, 12) as usize;
        if copy[..8] != MAGIC || crc32c::crc32c(&copy[12..]) != u32_at(copy, 8) || files > FILES_MAX {
            return None;
        }
        let mut directory = Directory { sequence: u64_at(copy, 16), ..Directory::default() };
        for entry in copy[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(files) {
            let name = entry[12..].split(|&byte| byte == 0).next().unwrap_or_default();
            let name = std::str::from_utf8(name).ok()?.to_owned();
            directory.files.insert(name, Entry { slot: u32_at(entry, 0), len: u64_at(entry, 4) });
        }
        Some((directory, u64_at(copy, 24)))
    }
}

impl RawDevice {
    /// Takes the device under the name `dir`. `bytes` is its length; a new one gets large slots of `large_bytes`.
    pub fn open(path: &Path, dir: &Path, bytes: u64, large_bytes: u64) -> io::Result<Arc<RawDevice>> {
        let file = OsIo::new().open(path, OpenOptions { create: false, direct: true })?;
        let mut copies = AlignedBuf::zeroed(2 * COPY_BYTES);
        file.read_at(&mut copies, 0)?;
        let found = copies.chunks_exact(COPY_BYTES).filter_map(Directory::decode);
        let newest = found.max_by_key(|(directory, _)| directory.sequence);
        let is_blank = copies.iter().all(|&byte| byte == 0);
        let (durable, large_bytes) = match newest {
            Some((directory, large)) => (directory, large),
            None if is_blank => (Directory::default(), large_bytes),
            None => {
                let path = path.display();
                return Err(invalid(format!(
                    "holds other data; if it may go, clear it: dd if=/dev/zero of={path} bs=1M count=1"
                )));
            }
        };
        let large_slots = (bytes.saturating_sub(LARGE_AT) / large_bytes.max(1)) as u32;
        let state = Mutex::new(State { now: durable.clone(), durable });
        Ok(Arc::new(RawDevice { dir: dir.to_owned(), path: path.to_owned(), file, large_bytes, large_slots, state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion or removal, which a panic does not leave half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, slot: u32) -> (u64, u64) {
        match slot {
            slot if slot < SMALL_SLOTS => (SMALL_BYTES * u64::from(1 + slot), SMALL_BYTES),
            slot => (LARGE_AT + u64::from(slot - SMALL_SLOTS) * self.large_bytes, self.large_bytes),
        }
    }

    /// A slot for a new file: a large one for what becomes a segment.
    fn free_slot(&self, state: &State, name: &str) -> io::Result<u32> {
        let taken: BTreeSet<u32> =
            state.now.files.values().chain(state.durable.files.values()).map(|entry| entry.slot).collect();
        let is_segment = name.ends_with(".seg") || name.starts_with("prepare");
        let slots = if is_segment { SMALL_SLOTS..SMALL_SLOTS + self.large_slots } else { 0..SMALL_SLOTS };
        let mut free = slots.filter(|slot| !taken.contains(slot));
        free.next().ok_or_else(|| io::ErrorKind::StorageFull.into())
    }

    /// Writes the directory as it is now, if it is not durable yet.
    fn write_directory(&self, state: &mut State) -> io::Result<()> {
        if state.now.files == state.durable.files {
            return Ok(());
        }
        let mut next = state.now.clone();
        next.sequence = state.durable.sequence + 1;
        let at = (next.sequence % 2) * COPY_BYTES as u64;
        self.file.write_at(&next.encode(self.large_bytes), at)?;
        self.file.sync()?;
        state.now.sequence = next.sequence;
        state.durable = next;
        Ok(())
    }

    fn name_of(path: &Path) -> io::Result<String> {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        name.filter(|name| name.len() <= NAME_BYTES).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
    }
}

/// Makes a device blank whose directory is ours: the next run finds nothing.
pub fn clear(path: &Path) -> io::Result<()> {
    let file = OsIo::new().open(path, OpenOptions { create: false, direct: true })?;
    let mut copies = AlignedBuf::zeroed(2 * COPY_BYTES);
    file.read_at(&mut copies, 0)?;
    if copies.chunks_exact(COPY_BYTES).any(|copy| copy[..8] == MAGIC) {
        file.write_at(&AlignedBuf::zeroed(2 * COPY_BYTES), 0)?;
        file.sync()?;
    }
    Ok(())
}

/// Bytes of a block device, or of a file in its place.
pub fn length(path: &Path) -> io::Result<u64> {
    std::fs::File::open(path)?.seek(io::SeekFrom::End(0))
}

/// The operating system's files, some directories of which are raw devices.
#[derive(Debug)]
pub struct RawIo {
    os: OsIo,
    devices: Vec<Arc<RawDevice>>,
}

impl RawIo {
    pub fn new(devices: Vec<Arc<RawDevice>>) -> Arc<RawIo> {
        Arc::new(RawIo { os: OsIo::new(), devices })
    }

    fn device_of(&self, path: &Path) -> Option<&Arc<RawDevice>> {
        self.devices.iter().find(|device| path.starts_with(&device.dir))
    }
}

impl Io for RawIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if self.device_of(dir).is_some() { Ok(()) } else { self.os.create_dir_all(dir) }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match self.device_of(dir) {
            None => self.os.list(dir),
            Some(device) => Ok(device.state().now.files.keys().cloned().collect()),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.device_of(path) {
            None => self.os.exists(path),
            Some(device) if path == device.dir => Ok(true),
            Some(device) => Ok(device.state().now.files.contains_key(&RawDevice::name_of(path)?)),
        }
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let Some(device) = self.device_of(path) else { return self.os.open(path, options) };
        let name = RawDevice::name_of(path)?;
        let mut state = device.state();
        let slot = match state.now.files.get(&name) {
            Some(entry) => entry.slot,
            None if !options.create => return Err(io::ErrorKind::NotFound.into()),
            None if state.now.files.len() == FILES_MAX => return Err(io::ErrorKind::StorageFull.into()),
            None => {
                let slot = device.free_slot(&state, &name)?;
                state.now.files.insert(name, Entry { slot, len: 0 });
                slot
            }
        };
        Ok(Arc::new(RawFile { device: device.clone(), slot }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let Some(device) = self.device_of(from) else { return self.os.rename(from, to) };
        let mut state = device.state();
        let entry = state.now.files.remove(&RawDevice::name_of(from)?).ok_or(io::ErrorKind::NotFound)?;
        state.now.files.insert(RawDevice::name_of(to)?, entry);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(device) = self.device_of(path) else { return self.os.remove(path) };
        let removed = device.state().now.files.remove(&RawDevice::name_of(path)?);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self.device_of(dir) {
            None => self.os.sync_dir(dir),
            Some(device) => device.write_directory(&mut device.state()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.os.lock(self.device_of(path).map_or(path, |device| &device.path))
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.os.lock_existing(self.device_of(path).map_or(path, |device| &device.path))
    }
}

/// A file is its slot, under whatever name.
struct RawFile {
    device: Arc<RawDevice>,
    slot: u32,
}

impl RawFile {
    fn entry<'s>(&self, state: &'s mut State) -> Option<&'s mut Entry> {
        state.now.files.values_mut().find(|entry| entry.slot == self.slot)
    }

    /// Where the bytes are, if they are in the slot.
    fn at(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        let (start, capacity) = self.device.place(self.slot);
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= capacity => Ok(start + offset),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Direct I/O wants whole blocks; what is asked for may be less.
    fn blocks(&self, offset: u64, bytes: usize) -> io::Result<(u64, usize, AlignedBuf)> {
        let lead = (offset % BLOCK_BYTES as u64) as usize;
        let at = self.at(offset - lead as u64, (lead + bytes).next_multiple_of(BLOCK_BYTES))?;
        Ok((at, lead, AlignedBuf::zeroed((lead + bytes).next_multiple_of(BLOCK_BYTES))))
    }
}

fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let block = BLOCK_BYTES as u64;
    (bytes.as_ptr() as u64).is_multiple_of(block)
        && (bytes.len() as u64).is_multiple_of(block)
        && offset.is_multiple_of(block)
}

impl File for RawFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len().unwrap_or(0)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_aligned(buf, offset) {
            return self.device.file.read_at(buf, self.at(offset, buf.len())?);
        }
        let (at, lead, mut blocks) = self.blocks(offset, buf.len())?;
        self.device.file.read_at(&mut blocks, at)?;
        buf.copy_from_slice(&blocks[lead..lead + buf.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if is_aligned(bytes, offset) {
            self.device.file.write_at(bytes, self.at(offset, bytes.len())?)?;
        } else {
            let (at, lead, mut blocks) = self.blocks(offset, bytes.len())?;
            self.device.file.read_at(&mut blocks, at)?;
            blocks[lead..lead + bytes.len()].copy_from_slice(bytes);
            self.device.file.write_at(&blocks, at)?;
        }
        let mut state = self.device.state();
        if let Some(entry) = self.entry(&mut state) {
            entry.len = entry.len.max(offset + bytes.len() as u64);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.device.file.sync()?;
        let mut state = self.device.state();
        let durable = state.durable.files.values().find(|entry| entry.slot == self.slot).copied();
        match self.entry(&mut state) {
            Some(entry) if durable.is_none_or(|durable| durable.len != entry.len) => {
                self.device.write_directory(&mut state)
            }
            _ => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.entry(&mut self.device.state()).map_or(0, |entry| entry.len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.at(0, len as usize)?;
        if let Some(entry) = self.entry(&mut self.device.state()) {
            entry.len = len;
        }
        Ok(())
    }

    fn is_direct(&self) -> bool {
        self.device.file.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::engine::{Engine, Options};
    use std::sync::atomic::AtomicU64;

    const SEGMENT: u64 = 1 << 20;
    const BYTES: u64 = 32 << 20;

    fn device(dir: &Path) -> PathBuf {
        let path = dir.join("device");
        std::fs::File::create(&path).and_then(|file| file.set_len(BYTES)).expect("a file as a device");
        path
    }

    fn io(path: &Path) -> Arc<RawIo> {
        RawIo::new(vec![RawDevice::open(path, Path::new("/raw"), BYTES, SEGMENT).expect("opens")])
    }

    /// A whole database with its log on the device, closed and opened three times: every row and every update is there.
    #[test]
    fn a_log_on_a_raw_device_survives_its_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = device(dir.path());
        let options = || Options { log_dirs: vec!["/raw".into()], ..Options::small(dir.path().join("data")) };
        let spec = crate::data::Spec { shape: crate::data::Shape::Record168, rows: 5000 };
        let done = AtomicU64::new(0);
        {
            let engine = Engine::open_on(io(&path), options()).expect("opens");
            spec.create(&engine).expect("creates");
            spec.load(&engine, 0, 2, &done).expect("loads");
        }
        for run in 1..4 {
            let engine = Engine::open_on(io(&path), options()).expect("opens again");
            let before = spec.check(&engine).expect("as loaded but for the counters");
            assert_eq!((before.rows, before.sum), (5000, (run - 1) * 300));
            spec.update(&engine, 300, 2, run as u64, &done).expect("updates");
            // Recycles segments: names change, slots are used again.
            engine.checkpoint().expect("images");
        }
    }

    /// Everything that was synced is there, whichever copy of the directory was written last; a torn copy leaves the one before.
    #[test]
    fn a_torn_directory_leaves_the_one_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = device(dir.path());
        let create = OpenOptions { create: true, direct: true };
        let at = |name: &str| Path::new("/raw").join(name);
        {
            let io = io(&path);
            let file = io.open(&at("prepare.tmp"), create).expect("creates");
            file.write_at(&[7; 5000], 0).expect("writes");
            file.sync().expect("syncs");
            io.rename(&at("prepare.tmp"), &at("log-1.seg")).expect("renames");
            io.sync_dir(Path::new("/raw")).expect("syncs");
            io.open(&at("fence"), create).expect("creates").write_at(b"not synced", 0).expect("writes");
        }
        assert_eq!(
            io(&path).list(Path::new("/raw")).expect("lists"),
            ["log-1.seg"],
            "what was not synced is not there"
        );
        let raw = OsIo::new().open(&path, OpenOptions::default()).expect("opens");
        // The second directory was written to copy 0.
        raw.write_at(&[0xff; 100], 40).expect("tears");
        let io = io(&path);
        assert_eq!(io.list(Path::new("/raw")).expect("lists"), ["prepare.tmp"]);
        let mut bytes = [0; 5000];
        io.open(&at("prepare.tmp"), OpenOptions::default()).expect("opens").read_at(&mut bytes, 0).expect("reads");
        assert_eq!(bytes, [7; 5000]);
    }

    #[test]
    fn a_removed_file_keeps_its_bytes_until_the_removal_is_durable() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = device(dir.path());
        let io = io(&path);
        let create = OpenOptions { create: true, direct: true };
        let at = |name: &str| Path::new("/raw").join(name);
        let write = |name: &str, byte: u8| {
            let file = io.open(&at(name), create).expect("creates");
            file.write_at(&[byte; 4096], 0).expect("writes");
            file
        };
        write("a.seg", 1).sync().expect("syncs");
        io.remove(&at("a.seg")).expect("removes");
        write("b.seg", 2);
        let reopened = super::tests::io(&path);
        let mut bytes = [0; 4096];
        reopened.open(&at("a.seg"), OpenOptions::default()).expect("is back").read_at(&mut bytes, 0).expect("reads");
        assert_eq!(bytes, [1; 4096]);
    }

    #[test]
    fn other_data_and_full_devices_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = device(dir.path());
        std::fs::write(&path, vec![1; BYTES as usize]).expect("writes");
        let error = RawDevice::open(&path, Path::new("/raw"), BYTES, SEGMENT).expect_err("refused").to_string();
        assert!(error.contains("other data") && error.contains("dd if="), "{error}");
        let path = device(dir.path());
        let io = io(&path);
        let create = OpenOptions { create: true, direct: true };
        let made = (0..40).map(|n| io.open(&Path::new("/raw").join(format!("log-{n}.seg")), create).map(drop));
        let refused: Vec<_> = made.filter_map(Result::err).collect();
        assert!(refused.len() > 10 && refused[0].kind() == io::ErrorKind::StorageFull, "{refused:?}");
    }
}
