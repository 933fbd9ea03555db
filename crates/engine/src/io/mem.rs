//! What would a disk do at the worst moment? An in-memory twin of the file system, deterministic by seed.
//!
//! Each file has the bytes that readers see and the bytes that a power cut leaves, and between them a list of changes
//! that no sync has covered; names likewise. [`MemIo::crash`] makes the world after a power cut: of the uncovered
//! changes any subset is kept, in any order, writes torn at 512 bytes or at 4 KiB.
//!
//! Bytes are kept in blocks that are shared until one side writes, zeros without memory: a world is copied in microseconds, and a segment filled with
//! zeros takes none.
//!
//! Faults are planned by counting: every call that changes something is one operation, so a test can run once to learn
//! how many there are, and then once per operation with the power cut exactly there ([`MemIo::cut_power_after`]).
//!
//! 1. A sync covers exactly the changes made before it. A failed sync covers nothing, and the changes before it are
//!    abandoned: readers still see them, no later sync makes them durable, a crash may keep them. That is Linux. A block that is written
//!    again is dirty again, with all that readers see of it. So it is with names: those that a failed sync of their directory has let go stay
//!    visible, and only another change of the same name makes one durable.
//! 2. The operation at which the power fails has begun: it may be kept, wholly or torn, but it returns an error.
//! 3. Direct files refuse what the kernel refuses: unaligned memory, offsets and lengths.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{BLOCK_BYTES, Clock, File, Io, Lock, OpenOptions};

/// What a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// The twin. Clones are the same world.
#[derive(Clone)]
pub struct MemIo {
    world: Arc<Mutex<World>>,
}

/// What goes wrong, once, at a planned call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device reports an error; of a write, the first half may have been done.
    Eio,
    /// No space; nothing was written.
    Enospc,
    /// So many bytes were written, then no more: the caller must see an error.
    Short(usize),
}

/// Which calls a fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Write,
    Sync,
    Read,
    /// Creations, renames, removals and syncs of directories.
    Name,
}

#[derive(Clone)]
struct World {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_changes: Vec<NameChange>,
    /// What a failed sync of a directory has let go.
    abandoned_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    /// Who holds what, by a number that none gets twice.
    locks: BTreeMap<PathBuf, u64>,
    locks_taken: u64,
    operations: u64,
    faults: Vec<Planned>,
    power_cut_after: Option<u64>,
    space_bytes: u64,
    /// Directories whose files cannot grow: a device of their own that is full.
    full_dirs: BTreeSet<PathBuf>,
    random: Option<Dice>,
}

/// A fault to come.
#[derive(Clone)]
struct Planned {
    call: Call,
    /// Calls that it lets pass.
    left: u64,
    fault: Fault,
    /// Only calls of files in this directory count.
    dir: Option<PathBuf>,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Content,
    durable: Content,
    changes: Vec<ChangeKind>,
    /// What a failed sync has let go, by its place.
    abandoned: Vec<(usize, Piece)>,
}

/// A block of a file; none is all zeros.
type Block = Option<Arc<[u8; BLOCK_BYTES]>>;

/// What a file holds.
#[derive(Clone, Default)]
struct Content {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Clone)]
enum ChangeKind {
    Write { offset: usize, pieces: Vec<Piece> },
    SetLen(usize),
}

/// What a write does to one block.
#[derive(Clone)]
enum Piece {
    Whole(Block),
    Part(Vec<u8>),
}

/// In which units a crash keeps a write.
#[derive(Clone, Copy)]
enum Torn {
    Whole,
    Blocks,
    Sectors,
}

#[derive(Clone)]
enum NameChange {
    Create { path: PathBuf, inode: usize },
    Rename { from: PathBuf, to: PathBuf, inode: usize },
    Remove { path: PathBuf },
}

impl MemIo {
    pub fn new() -> MemIo {
        MemIo::with_world(World::empty())
    }

    /// A world whose random numbers are those of the seed.
    pub fn seeded(seed: u64) -> MemIo {
        MemIo::with_world(World { random: Some(Dice(seed)), ..World::empty() })
    }

    /// Another world that is now as this one is.
    pub fn fork(&self) -> MemIo {
        let world = World { locks: BTreeMap::new(), ..self.world.lock().clone() };
        MemIo::with_world(world)
    }

    fn with_world(world: World) -> MemIo {
        MemIo { world: Arc::new(Mutex::new(world)) }
    }

    /// Operations so far: writes, syncs, length changes, creations, renames, removals, directory syncs.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// The power fails during operation `count + 1`, counted from the beginning of this world.
    pub fn cut_power_after(&self, count: u64) {
        self.world.lock().power_cut_after = Some(count);
    }

    /// The power stays on.
    pub fn keep_power(&self) {
        self.world.lock().power_cut_after = None;
    }

    /// Whether the power has failed.
    pub fn is_dark(&self) -> bool {
        let world = self.world.lock();
        world.power_cut_after.is_some_and(|count| world.operations > count)
    }

    /// Forgets the faults that have not happened.
    pub fn clear_faults(&self) {
        self.world.lock().faults.clear();
    }

    /// The `nth` call from now on (0 is the next one) meets `fault`.
    pub fn plan_fault(&self, call: Call, nth: u64, fault: Fault) {
        self.world.lock().faults.push(Planned { call, left: nth, fault, dir: None });
    }

    /// The same, counting only what concerns files in one directory: one device fails, the others do not.
    pub fn plan_fault_in(&self, dir: &Path, call: Call, nth: u64, fault: Fault) {
        self.world.lock().faults.push(Planned { call, left: nth, fault, dir: Some(dir.to_path_buf()) });
    }

    /// The file system's size: growth beyond it is ENOSPC.
    pub fn set_space_bytes(&self, bytes: u64) {
        self.world.lock().space_bytes = bytes;
    }

    /// From now on no file in `dir` can grow, as if it were a full device of its own; those in other directories can.
    pub fn fill_dir(&self, dir: &Path) {
        self.world.lock().full_dirs.insert(dir.to_path_buf());
    }

    /// There is as much space as anybody wants, everywhere.
    pub fn free_space(&self) {
        let mut world = self.world.lock();
        world.space_bytes = u64::MAX;
        world.full_dirs.clear();
    }

    /// What all files take of the file system.
    pub fn used_bytes(&self) -> u64 {
        self.world.lock().used_bytes()
    }

    /// Every file.
    pub fn names(&self) -> Vec<PathBuf> {
        self.world.lock().names.keys().cloned().collect()
    }

    /// Every file that a power cut leaves which keeps nothing unflushed.
    pub fn durable_names(&self) -> Vec<PathBuf> {
        self.world.lock().durable_names.keys().cloned().collect()
    }

    /// The world after a power cut. This one stays as it is, without power.
    pub fn crash(&self, seed: u64) -> MemIo {
        let mut world = self.world.lock();
        world.power_cut_after = Some(0);
        let mut dice = Dice(seed);
        let keep = dice.below(5);
        let names = world.names_after_crash(&mut dice, keep);
        let mut after = World::empty();
        after.dirs = world.dirs.clone();
        after.space_bytes = world.space_bytes;
        after.full_dirs = world.full_dirs.clone();
        after.random = world.random.as_ref().map(|_| Dice(seed));
        for (path, inode) in names {
            let bytes = world.inodes[inode].after_crash(&mut dice, keep);
            let number = after.inodes.len();
            after.inodes.push(Inode { durable: bytes.clone(), bytes, ..Inode::default() });
            after.names.insert(path.clone(), number);
            after.durable_names.insert(path, number);
        }
        MemIo::with_world(after)
    }

    /// Inverts one bit of a file, as decay of the medium would.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u32) -> io::Result<()> {
        let mut world = self.world.lock();
        let inode = world.lookup(path)?;
        let inode = &mut world.inodes[inode];
        for content in [&mut inode.bytes, &mut inode.durable] {
            content.flip(offset as usize, 1 << bit);
        }
        Ok(())
    }

    /// A file's bytes as readers see them.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let world = self.world.lock();
        Ok(world.inodes[world.lookup(path)?].bytes.to_vec())
    }

    /// The offsets of the blocks of a file that are not all zeros.
    pub fn written_blocks(&self, path: &Path) -> io::Result<Vec<u64>> {
        let world = self.world.lock();
        let blocks = world.inodes[world.lookup(path)?].bytes.blocks.iter().enumerate();
        Ok(blocks.filter(|(_, block)| block.is_some()).map(|(at, _)| (at * BLOCK_BYTES) as u64).collect())
    }

    /// A file's bytes as a power cut leaves them that keeps nothing unflushed.
    pub fn durable(&self, path: &Path) -> io::Result<Vec<u8>> {
        let world = self.world.lock();
        let inode = world.durable_names.get(path).ok_or_else(|| not_found(path))?;
        Ok(world.inodes[*inode].durable.to_vec())
    }

    /// Takes the file of a lock away: another may take the lock of that name. Directories do not move in this world, so names stay where they are.
    pub fn lose_lock(&self, path: &Path) {
        self.world.lock().locks.remove(path);
    }

    /// Replaces a file, durably and outside all counting: the operator with a copy command.
    pub fn replace(&self, path: &Path, bytes: &[u8]) {
        let mut world = self.world.lock();
        let inode = world.inodes.len();
        let bytes = Content::of(bytes);
        world.inodes.push(Inode { durable: bytes.clone(), bytes, ..Inode::default() });
        world.names.insert(path.to_path_buf(), inode);
        world.durable_names.insert(path.to_path_buf(), inode);
    }

    /// Removes a file, durably and outside all counting.
    pub fn lose(&self, path: &Path) {
        let mut world = self.world.lock();
        world.names.remove(path);
        world.durable_names.remove(path);
    }
}

impl Default for MemIo {
    fn default() -> MemIo {
        MemIo::new()
    }
}

/// How an operation ends that has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    /// It fails during this operation.
    Failing,
}

impl World {
    fn empty() -> World {
        World {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            abandoned_names: Vec::new(),
            dirs: BTreeSet::new(),
            locks: BTreeMap::new(),
            locks_taken: 0,
            operations: 0,
            faults: Vec::new(),
            power_cut_after: None,
            space_bytes: u64::MAX,
            full_dirs: BTreeSet::new(),
            random: None,
        }
    }

    fn operate(&mut self) -> io::Result<Power> {
        self.operations += 1;
        match self.power_cut_after {
            Some(count) if self.operations > count + 1 => Err(power_is_off()),
            Some(count) if self.operations == count + 1 => Ok(Power::Failing),
            _ => Ok(Power::On),
        }
    }

    fn look(&self) -> io::Result<()> {
        match self.power_cut_after {
            Some(count) if self.operations > count => Err(power_is_off()),
            _ => Ok(()),
        }
    }

    /// What a call that concerns a file of `dir` meets.
    fn fault(&mut self, call: Call, dir: &Path) -> Option<Fault> {
        let mut due = None;
        for (at, planned) in self.faults.iter_mut().enumerate() {
            if planned.call == call && planned.dir.as_deref().is_none_or(|only| only == dir) {
                match planned.left.checked_sub(1) {
                    Some(left) => planned.left = left,
                    None => due = due.or(Some(at)),
                }
            }
        }
        Some(self.faults.swap_remove(due?).fault)
    }

    fn lookup(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&inode| self.inodes[inode].bytes.len as u64).sum()
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let power = self.operate()?;
        let dir = change.names()[0].parent().unwrap_or(Path::new("")).to_path_buf();
        if self.fault(Call::Name, &dir).is_some() {
            return Err(eio());
        }
        change.apply(&mut self.names);
        self.name_changes.push(change);
        power.check()
    }

    fn names_after_crash(&mut self, dice: &mut Dice, keep: u64) -> BTreeMap<PathBuf, usize> {
        let mut names = self.durable_names.clone();
        for change in self.abandoned_names.iter().chain(&self.name_changes) {
            if dice.keeps(keep) {
                change.apply(&mut names);
            }
        }
        names
    }
}

impl Power {
    fn check(self) -> io::Result<()> {
        match self {
            Power::On => Ok(()),
            Power::Failing => Err(power_is_off()),
        }
    }
}

impl NameChange {
    /// Names lead to inodes: a rename whose creation is lost gives the new name all the same, and takes no other file's.
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Create { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Rename { from, to, inode } => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            NameChange::Remove { path } => {
                names.remove(path);
            }
        }
    }

    fn names(&self) -> [&Path; 2] {
        match self {
            NameChange::Create { path, .. } | NameChange::Remove { path } => [path, path],
            NameChange::Rename { from, to, .. } => [from, to],
        }
    }

    fn concerns(&self, dir: &Path) -> bool {
        self.names().iter().any(|name| name.parent() == Some(dir))
    }
}

impl Content {
    fn of(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        ChangeKind::write(0, bytes).apply(&mut content, Torn::Whole, |_| true);
        content
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// Fills `out` from `offset`; the range lies in the file.
    fn read(&self, offset: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done;
            let (block, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let count = (BLOCK_BYTES - within).min(out.len() - done);
            let to = &mut out[done..done + count];
            match &self.blocks[block] {
                Some(from) => to.copy_from_slice(&from[within..within + count]),
                None => to.fill(0),
            }
            done += count;
        }
    }

    fn resize(&mut self, len: usize) {
        if len < self.len && !len.is_multiple_of(BLOCK_BYTES) {
            self.block_mut(len / BLOCK_BYTES)[len % BLOCK_BYTES..].fill(0);
        }
        self.blocks.resize(len.div_ceil(BLOCK_BYTES), None);
        self.len = len;
    }

    fn reach(&mut self, len: usize) {
        if len > self.len {
            self.resize(len);
        }
    }

    fn block_mut(&mut self, at: usize) -> &mut [u8; BLOCK_BYTES] {
        Arc::make_mut(self.blocks[at].get_or_insert_with(|| Arc::new([0; BLOCK_BYTES])))
    }

    fn flip(&mut self, offset: usize, mask: u8) {
        if offset < self.len {
            self.block_mut(offset / BLOCK_BYTES)[offset % BLOCK_BYTES] ^= mask;
        }
    }
}

impl Piece {
    fn of(bytes: &[u8]) -> Piece {
        match <&[u8; BLOCK_BYTES]>::try_from(bytes) {
            Ok(whole) if whole == &[0; BLOCK_BYTES] => Piece::Whole(None),
            Ok(whole) => Piece::Whole(Some(Arc::new(*whole))),
            Err(_) => Piece::Part(bytes.to_vec()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Piece::Whole(_) => BLOCK_BYTES,
            Piece::Part(bytes) => bytes.len(),
        }
    }

    /// Applies itself at `at`, in those of its units that `keeps` accepts.
    fn apply(&self, at: usize, file: &mut Content, torn: Torn, keeps: &mut impl FnMut(usize) -> bool) {
        let unit = if matches!(torn, Torn::Sectors) { SECTOR_BYTES } else { BLOCK_BYTES };
        let end = at + self.len();
        let mut from = at;
        while from < end {
            let next = ((from / unit + 1) * unit).min(end);
            if matches!(torn, Torn::Whole) || keeps(from) {
                self.put(file, from, from - at, next - from);
            }
            from = next;
        }
    }

    /// Puts `count` bytes from `from` on into the file at `at`; they lie in one block.
    fn put(&self, file: &mut Content, at: usize, from: usize, count: usize) {
        file.reach(at + count);
        let (block, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
        match self {
            Piece::Whole(whole) if count == BLOCK_BYTES => file.blocks[block] = whole.clone(),
            Piece::Whole(None) => file.block_mut(block)[within..within + count].fill(0),
            Piece::Whole(Some(bytes)) => {
                file.block_mut(block)[within..within + count].copy_from_slice(&bytes[from..from + count]);
            }
            Piece::Part(bytes) => {
                file.block_mut(block)[within..within + count].copy_from_slice(&bytes[from..from + count]);
            }
        }
    }
}

impl Inode {
    fn change(&mut self, kind: ChangeKind) {
        kind.apply(&mut self.bytes, Torn::Whole, |_| true);
        self.changes.push(kind);
    }

    fn sync(&mut self) {
        if self.abandoned.is_empty() {
            // What readers see is what all changes have made of it.
            self.durable.clone_from(&self.bytes);
            self.changes.clear();
            return;
        }
        for change in std::mem::take(&mut self.changes) {
            match change {
                ChangeKind::SetLen(len) => self.durable.resize(len),
                ChangeKind::Write { offset, pieces } => {
                    let end = offset + pieces.iter().map(Piece::len).sum::<usize>();
                    self.durable.reach(end);
                    let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
                    self.durable.blocks[blocks.clone()].clone_from_slice(&self.bytes.blocks[blocks.clone()]);
                    self.abandoned.retain(|(at, _)| !blocks.contains(&(at / BLOCK_BYTES)));
                }
            }
        }
    }

    fn abandon(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                // A length is the file system's own: its journal has it.
                ChangeKind::SetLen(len) => self.durable.resize(len),
                ChangeKind::Write { offset, pieces } => {
                    let mut at = offset;
                    for piece in pieces {
                        let length = piece.len();
                        self.abandoned.push((at, piece));
                        at += length;
                    }
                }
            }
        }
    }

    fn after_crash(&self, dice: &mut Dice, keep: u64) -> Content {
        let mut content = self.durable.clone();
        // Blocks that a failed sync let go are older than what was written after it.
        for (at, piece) in &self.abandoned {
            piece.apply(*at, &mut content, Torn::Sectors, &mut |_| dice.keeps(keep));
        }
        let mut order: Vec<usize> = (0..self.changes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, dice.below(i as u64 + 1) as usize);
        }
        for i in order {
            let torn = [Torn::Whole, Torn::Blocks, Torn::Sectors, Torn::Sectors][dice.below(4) as usize];
            self.changes[i].apply(&mut content, torn, |_| dice.keeps(keep));
        }
        content
    }
}

impl ChangeKind {
    fn write(offset: usize, bytes: &[u8]) -> ChangeKind {
        let mut pieces = Vec::with_capacity(bytes.len() / BLOCK_BYTES + 1);
        let mut done = 0;
        while done < bytes.len() {
            let count = (BLOCK_BYTES - (offset + done) % BLOCK_BYTES).min(bytes.len() - done);
            pieces.push(Piece::of(&bytes[done..done + count]));
            done += count;
        }
        ChangeKind::Write { offset, pieces }
    }

    /// Applies the change; a torn write only in those of its units that `keeps` accepts.
    fn apply(&self, file: &mut Content, torn: Torn, mut keeps: impl FnMut(usize) -> bool) {
        match self {
            ChangeKind::SetLen(len) => {
                if keeps(0) {
                    file.resize(*len);
                }
            }
            ChangeKind::Write { offset, pieces } => {
                if matches!(torn, Torn::Whole) && !keeps(*offset) {
                    return;
                }
                let mut at = *offset;
                for piece in pieces {
                    piece.apply(at, file, torn, &mut keeps);
                    at += piece.len();
                }
            }
        }
    }
}

impl Io for MemIo {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.look()?;
        world.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world.lock();
        world.look()?;
        if !world.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let world = self.world.lock();
        world.look()?;
        Ok(world.names.contains_key(path) || world.dirs.contains(path))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut world = self.world.lock();
        world.look()?;
        let inode = match world.lookup(path) {
            Ok(inode) => inode,
            Err(error) if !options.create => return Err(error),
            Err(_) => {
                let parent = path.parent().unwrap_or(Path::new(""));
                if !world.dirs.contains(parent) {
                    return Err(not_found(parent));
                }
                let inode = world.inodes.len();
                world.inodes.push(Inode::default());
                world.change_name(NameChange::Create { path: path.to_path_buf(), inode })?;
                inode
            }
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Arc::new(MemFile { world: self.world.clone(), inode, dir, direct: options.direct }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        let inode = world.lookup(from)?;
        world.change_name(NameChange::Rename { from: from.to_path_buf(), to: to.to_path_buf(), inode })
    }

    fn rename_to_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        let inode = world.lookup(from)?;
        if world.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.change_name(NameChange::Rename { from: from.to_path_buf(), to: to.to_path_buf(), inode })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.lookup(path)?;
        world.change_name(NameChange::Remove { path: path.to_path_buf() })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        let power = world.operate()?;
        power.check()?;
        let fault = world.fault(Call::Name, dir);
        let changes = std::mem::take(&mut world.name_changes);
        let (covered, rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.concerns(dir));
        world.name_changes = rest;
        if fault.is_some() {
            world.abandoned_names.extend(covered);
            return Err(eio());
        }
        for change in covered {
            change.apply(&mut world.durable_names);
            world.abandoned_names.retain(|older| !change.names().iter().any(|name| older.names().contains(name)));
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut world = self.world.lock();
        world.look()?;
        if world.locks.contains_key(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        world.locks_taken += 1;
        let number = world.locks_taken;
        world.locks.insert(path.to_path_buf(), number);
        Ok(Box::new(MemLock { world: self.world.clone(), path: path.to_path_buf(), number }))
    }

    fn random(&self) -> u64 {
        match &mut self.world.lock().random {
            Some(dice) => dice.next_u64(),
            None => std::hash::RandomState::new().build_hasher().finish(),
        }
    }
}

struct MemFile {
    world: Arc<Mutex<World>>,
    inode: usize,
    /// Where it was opened.
    dir: PathBuf,
    direct: bool,
}

impl MemFile {
    fn check_aligned(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let aligned = |n: usize| n.is_multiple_of(BLOCK_BYTES);
        if self.direct && !(aligned(bytes.as_ptr() as usize) && aligned(bytes.len()) && aligned(offset as usize)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "unaligned direct transfer"));
        }
        Ok(())
    }
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check_aligned(buf, offset)?;
        let mut world = self.world.lock();
        world.look()?;
        if world.fault(Call::Read, &self.dir).is_some() {
            return Err(eio());
        }
        let content = &world.inodes[self.inode].bytes;
        let start = offset as usize;
        if start.saturating_add(buf.len()) > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.read(start, buf);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_aligned(bytes, offset)?;
        let mut world = self.world.lock();
        let power = world.operate()?;
        let offset = offset as usize;
        let growth = (offset + bytes.len()).saturating_sub(world.inodes[self.inode].bytes.len);
        let is_beyond = world.used_bytes() + growth as u64 > world.space_bytes;
        let full = growth > 0 && (is_beyond || world.full_dirs.contains(&self.dir));
        let (done, error) = match world.fault(Call::Write, &self.dir) {
            _ if full => (0, Some(enospc())),
            None => (bytes.len(), None),
            Some(Fault::Eio) => (bytes.len() / 2, Some(eio())),
            Some(Fault::Enospc) => (0, Some(enospc())),
            Some(Fault::Short(done)) => (done.min(bytes.len()), Some(io::ErrorKind::WriteZero.into())),
        };
        if done > 0 {
            world.inodes[self.inode].change(ChangeKind::write(offset, &bytes[..done]));
        }
        power.check()?;
        error.map_or(Ok(()), Err)
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.world.lock();
        let power = world.operate()?;
        power.check()?;
        match world.fault(Call::Sync, &self.dir) {
            None => {
                world.inodes[self.inode].sync();
                Ok(())
            }
            Some(fault) => {
                world.inodes[self.inode].abandon();
                Err(if fault == Fault::Enospc { enospc() } else { eio() })
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        let world = self.world.lock();
        world.look()?;
        Ok(world.inodes[self.inode].bytes.len as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        let power = world.operate()?;
        world.inodes[self.inode].change(ChangeKind::SetLen(len as usize));
        power.check()
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

struct MemLock {
    world: Arc<Mutex<World>>,
    path: PathBuf,
    number: u64,
}

impl Lock for MemLock {
    fn lost_at(&self) -> Option<&Path> {
        (self.world.lock().locks.get(&self.path) != Some(&self.number)).then_some(&*self.path)
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let locks = &mut self.world.lock().locks;
        if locks.get(&self.path) == Some(&self.number) {
            locks.remove(&self.path);
        }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
}

fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

fn enospc() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

/// SplitMix64: small, seedable, good enough to choose what a crash keeps.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound` as far as it matters here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True in `quarters` of 4 cases: 0 never, 4 always.
    fn keeps(&mut self, quarters: u64) -> bool {
        self.below(4) < quarters
    }
}

/// A clock that a test moves.
#[derive(Debug, Default)]
pub struct MemClock {
    us: AtomicU64,
    /// By how much the wall clock is off.
    wall_offset_us: AtomicI64,
}

impl MemClock {
    pub fn new() -> Arc<MemClock> {
        Arc::new(MemClock::default())
    }

    pub fn advance_us(&self, us: u64) {
        self.us.fetch_add(us, Ordering::SeqCst);
    }

    /// Somebody sets the wall clock, forwards or backwards.
    pub fn set_wall_offset_us(&self, us: i64) {
        self.wall_offset_us.store(us, Ordering::SeqCst);
    }
}

impl Clock for MemClock {
    fn monotonic_us(&self) -> u64 {
        self.us.load(Ordering::SeqCst)
    }

    fn wall_us(&self) -> u64 {
        let wall = 1_700_000_000_000_000 + self.us.load(Ordering::SeqCst);
        wall.saturating_add_signed(self.wall_offset_us.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::AlignedBuf;

    fn file(io: &MemIo, name: &str) -> Arc<dyn File> {
        io.create_dir_all(Path::new("d")).unwrap();
        io.open(&Path::new("d").join(name), OpenOptions { create: true, direct: false }).unwrap()
    }

    #[test]
    fn synced_bytes_survive_and_others_in_whole_sectors() {
        let mut kinds = BTreeSet::new();
        for seed in 0..200 {
            let io = MemIo::new();
            let f = file(&io, "f");
            f.write_at(&[1; 2048], 0).unwrap();
            f.sync().unwrap();
            io.sync_dir(Path::new("d")).unwrap();
            f.write_at(&[2; 1024], 512).unwrap();
            let after = io.crash(seed).contents(Path::new("d/f")).unwrap();
            assert!(after[..512].iter().chain(&after[1536..]).all(|&b| b == 1));
            let sectors: Vec<u8> = after.chunks(512).map(|s| s[0]).collect();
            assert!(after.chunks(512).all(|s| s.iter().all(|&b| b == s[0])), "a sector is torn");
            kinds.insert((sectors[1], sectors[2]));
        }
        assert_eq!(kinds.len(), 4, "lost, torn both ways, and kept: all happen");
    }

    #[test]
    fn names_need_their_directory_synced() {
        let survived = |seed, sync| {
            let io = MemIo::new();
            let f = file(&io, "f");
            f.write_at(b"x", 0).unwrap();
            f.sync().unwrap();
            if sync {
                io.sync_dir(Path::new("d")).unwrap();
            }
            io.crash(seed).exists(Path::new("d/f")).unwrap()
        };
        assert!((0..50).all(|seed| survived(seed, true)));
        let some = (0..50).filter(|&seed| survived(seed, false)).count();
        assert!(some > 0 && some < 50);
    }

    #[test]
    fn a_failed_sync_is_not_mended_by_the_next() {
        let lost = (0..50).filter(|&seed| {
            let io = MemIo::new();
            let f = file(&io, "f");
            io.sync_dir(Path::new("d")).unwrap();
            f.write_at(&[3; 512], 0).unwrap();
            io.plan_fault(Call::Sync, 0, Fault::Eio);
            assert!(f.sync().is_err());
            f.sync().unwrap();
            io.crash(seed).contents(Path::new("d/f")).unwrap().is_empty()
        });
        assert!(lost.count() > 0);
    }

    #[test]
    fn a_failed_sync_of_a_directory_is_not_mended_by_the_next() {
        let (dir, old, new) = (Path::new("d"), Path::new("d/old"), Path::new("d/new"));
        let survived = |seed, again: bool| {
            let io = MemIo::new();
            file(&io, "old");
            io.sync_dir(dir).unwrap();
            io.rename(old, new).unwrap();
            io.plan_fault(Call::Name, 0, Fault::Eio);
            assert!(io.sync_dir(dir).is_err());
            assert!(io.exists(new).unwrap(), "it is still to be seen");
            if again {
                io.rename(new, old).unwrap();
                io.rename(old, new).unwrap();
            }
            io.sync_dir(dir).unwrap();
            let after = io.crash(seed);
            assert!(after.exists(old).unwrap() != after.exists(new).unwrap(), "a rename is whole or not at all");
            after.exists(new).unwrap()
        };
        let kept = (0..50).filter(|&seed| survived(seed, false)).count();
        assert!(kept > 0 && kept < 50, "{kept}");
        assert!((0..50).all(|seed| survived(seed, true)), "who changes the name again makes it durable");
    }

    #[test]
    fn faults_short_writes_and_full_disks_are_errors() {
        let io = MemIo::new();
        let f = file(&io, "f");
        io.plan_fault(Call::Write, 1, Fault::Short(3));
        f.write_at(b"abcdef", 0).unwrap();
        assert_eq!(f.write_at(b"ABCDEF", 0).unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(io.contents(Path::new("d/f")).unwrap(), b"ABCdef");
        io.set_space_bytes(6);
        assert_eq!(f.write_at(b"x", 6).unwrap_err().kind(), io::ErrorKind::StorageFull);
        io.free_space();
        io.fill_dir(Path::new("d"));
        assert_eq!(f.write_at(b"x", 6).unwrap_err().kind(), io::ErrorKind::StorageFull);
        f.write_at(b"x", 5).unwrap();
        io.fill_dir(Path::new("elsewhere"));
        io.free_space();
        f.write_at(b"x", 6).unwrap();
    }

    #[test]
    fn power_fails_at_the_planned_operation() {
        let io = MemIo::new();
        let f = file(&io, "f");
        let before = io.operations();
        io.cut_power_after(before + 1);
        f.write_at(b"a", 0).unwrap();
        assert!(f.write_at(b"b", 0).is_err());
        assert!(f.read_at(&mut [0], 0).is_err() && io.exists(Path::new("d/f")).is_err());
    }

    #[test]
    fn locks_exclude_and_direct_files_demand_alignment() {
        let io = MemIo::new();
        let held = io.lock(Path::new("d/lock")).unwrap();
        assert_eq!(io.lock(Path::new("d/lock")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(held.lost_at(), None);
        io.lose_lock(Path::new("d/lock"));
        let other = io.lock(Path::new("d/lock")).unwrap();
        assert_eq!((held.lost_at(), other.lost_at()), (Some(Path::new("d/lock")), None));
        drop(held);
        assert_eq!(other.lost_at(), None);
        drop(other);
        io.lock(Path::new("d/lock")).unwrap();
        io.create_dir_all(Path::new("d")).unwrap();
        let f = io.open(Path::new("d/g"), OpenOptions { create: true, direct: true }).unwrap();
        let buf = AlignedBuf::zeroed(2 * BLOCK_BYTES);
        f.write_at(&buf, 0).unwrap();
        assert!(f.write_at(&buf[1..], 0).is_err() && f.write_at(&buf, 512).is_err());
    }
}
