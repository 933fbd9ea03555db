//! Which rows may have a key that hashes to this? Extendible hashing, one cache line for most lookups.
//!
//! | bits of the 64-bit hash, from the top | use |
//! |---|---|
//! | directory depth | which segment |
//! | the next, as a fraction | which bucket of it |
//! | 24 from bit `window` on | the fragment, kept in the entry |
//! | after those | unused: `known` masks them off |
//!
//! `window` is fixed when the index is made, from its first number of buckets: 5 for an empty index, up to 20 for one made
//! by `with_capacity`. Place and fragment together give back `window` + 24 bits of the hash, which is what growth splits
//! by, without the rows. What the place already says of these bits the fragment says again, so it tells fewer keys apart
//! as the index grows: an index grown from nothing meets a foreign row in 2 lookups of 100 at 8M entries, in 12 at 64M,
//! and stops splitting at 2^29 buckets (3 billion entries); one made with its size at recovery does not notice.
//!
//! A segment grows by whole copies into a larger one: its only piece doubles up to 256 KiB, then it takes one piece more
//! at a time, and at eight (2 MiB) it becomes two segments of five. So an insert does at most one segment's work, segments
//! stay three quarters full, and a copy is a pass in hash order through both. Both are counted (`moved`): seven copies for each entry
//! that comes to an index grown from nothing, none in one that was made with its size, and never more than 190,000 at once.
//!
//! 1. `segment`'s invariants hold.
//! 2. A segment's contents freeze bucket by bucket as growth copies them. The directory names the replacement before
//!    `retired` is set, and `retired` is set before the pieces are used again. So a lookup that finishes before `retired`
//!    saw the words of this segment and nothing else; any other starts again from the directory.
//! 3. A bucket that has sixteen entries, or whose piece has no node left and cannot grow, puts further ones into the
//!    posting tree, keyed by what is kept of the hash, and says so in its header. Entries are never moved there or back,
//!    save when a copy finds no room.
//! 4. Segments and directories are freed with the index only; pieces of retired segments are used again.

mod line;
mod segment;
#[cfg(test)]
mod tests;

use self::segment::{
    FRAGMENT_BITS, Geometry, Growth as Grown, Hits, Locked, PIECES_MAX, Piece, Room, Segment, buckets_in, entry,
};
use super::btree::{BTreeIndex, Direction, Entries};
use super::tally::Tally;
use super::words::{LINE_WORDS, Words};
use super::{Conflict, Probe};
use crate::ids::RowId;
use crate::mem::{Account, Claim};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

/// Hashes whose buckets are fetched together: about what a core keeps in flight, twice.
const BATCH: usize = 32;
/// Pieces that a segment gets when it splits off: six eighths of the old fill, with room for what comes.
const SPLIT_PIECES: usize = 5;
/// Twice the entries a bucket that `with_capacity` plans for; growth begins at twelve or so.
const PLANNED_TWICE: usize = 11;
const WINDOW_MAX: u32 = 20;

/// A latch-free readable hash index of row ids.
pub struct HashIndex {
    directory: AtomicPtr<Directory>,
    /// The hash bits that place and fragment keep.
    known: u64,
    window: u32,
    geometry: Geometry,
    /// Taken to change which segments the directory names; never while a bucket is locked.
    growth: Mutex<Growth>,
    pool: Mutex<Pool>,
    postings: BTreeIndex,
    /// Entries in segments; the posting tree counts its own.
    tally: Tally,
    /// Entries that growth has copied, and the most that one insert had to.
    moved: AtomicU64,
    moved_most: AtomicU64,
    /// Who pays for growth, once it is known.
    account: OnceLock<Arc<Account>>,
}

struct Directory {
    depth: u32,
    segments: Box<[AtomicPtr<Segment>]>,
}

/// Everything ever published, to be freed with the index.
#[derive(Default)]
struct Growth {
    directories: Vec<*mut Directory>,
    segments: Vec<*mut Segment>,
}

// SAFETY: the pointers own what they point to, which is all `Send`: atomics, numbers, and pieces of the pool.
unsafe impl Send for Growth {}

#[derive(Default)]
struct Pool {
    owned: Vec<Words>,
    /// Unit pieces that nobody uses.
    free: Vec<Piece>,
    /// The first chunk of units, advised to huge pages once there is a second.
    first_chunk: Option<usize>,
    /// Unit pieces whose memory a growth has taken from the account and that it has not fetched yet.
    promised: usize,
    bytes: usize,
}

impl Pool {
    fn take(&mut self, lines: usize, geometry: Geometry) -> Piece {
        if lines < geometry.unit_lines {
            return self.own(lines, lines)[0];
        }
        if self.free.is_empty() {
            self.own_chunk(lines);
        }
        self.promised = self.promised.saturating_sub(1);
        self.free.pop().expect("a chunk was just cut into pieces")
    }

    /// Chunks that are missing for so many unit pieces beside those that others were promised.
    fn chunks_for(&self, pieces: usize, lines: usize, geometry: Geometry) -> usize {
        if lines < geometry.unit_lines {
            return 0;
        }
        (self.promised + pieces).saturating_sub(self.free.len()).div_ceil(PIECES_MAX)
    }

    fn own_chunk(&mut self, lines: usize) {
        let at = self.owned.len();
        let mut pieces = self.own(lines * PIECES_MAX, lines);
        pieces.append(&mut self.free);
        self.free = pieces;
        match self.first_chunk {
            None => self.first_chunk = Some(at),
            Some(first) => {
                self.owned[first].advise_huge();
                self.owned[at].advise_huge();
            }
        }
    }

    /// New memory in pieces, the lowest last.
    fn own(&mut self, lines: usize, piece_lines: usize) -> Vec<Piece> {
        let words = Words::zeroed(lines * LINE_WORDS);
        self.bytes += words.len() * 8;
        let firsts = (0..lines).step_by(piece_lines).rev();
        // SAFETY: `owned` keeps the words until the pool is dropped, with the index and after its segments.
        let pieces = firsts.map(|first| unsafe { Piece::of(&words, first, piece_lines) }).collect();
        self.owned.push(words);
        pieces
    }

    fn give(&mut self, pieces: impl Iterator<Item = Piece>, geometry: Geometry) {
        // Smaller ones are never asked for again: together they are no larger than what replaced them.
        self.free.extend(pieces.filter(|piece| piece.lines() == geometry.unit_lines));
    }
}

/// The shape of the segments that replace one.
struct Plan {
    depth: u32,
    lines: usize,
    pieces: usize,
    segments: usize,
}

impl Default for HashIndex {
    fn default() -> Self {
        HashIndex::new()
    }
}

impl HashIndex {
    pub fn new() -> HashIndex {
        HashIndex::with_geometry(Geometry::REAL, 0)
    }

    /// An index that takes `entries` without growing, and keeps more bits of their hashes than one grown to that size.
    pub fn with_capacity(entries: usize) -> HashIndex {
        HashIndex::with_geometry(Geometry::REAL, entries)
    }

    /// What an index that takes `entries` without growing begins with.
    pub fn planned_bytes(entries: usize) -> usize {
        let first = Plan::first(Geometry::REAL, entries);
        first.segments * (first.pieces * first.lines * LINE_WORDS * 8 + size_of::<Segment>())
    }

    fn with_geometry(geometry: Geometry, entries: usize) -> HashIndex {
        let first = Plan::first(geometry, entries);
        let buckets = first.segments * first.pieces * buckets_in(first.lines);
        // A bucket must be narrower than a cell of `window` bits; a number of buckets is no power of two by chance only.
        let window = (buckets.max(2) - 1).ilog2().min(WINDOW_MAX);
        let index = HashIndex {
            directory: AtomicPtr::new(std::ptr::null_mut()),
            known: !0 << (64 - window - FRAGMENT_BITS),
            window,
            geometry,
            growth: Mutex::new(Growth::default()),
            pool: Mutex::new(Pool::default()),
            postings: BTreeIndex::new(1),
            tally: Tally::new(),
            moved: AtomicU64::new(0),
            moved_most: AtomicU64::new(0),
            account: OnceLock::new(),
        };
        let segments: Vec<_> = (0..first.segments as u64)
            .map(|at| if first.depth == 0 { 0 } else { at << (64 - first.depth) })
            .map(|prefix| Box::into_raw(Box::new(index.first_segment(&first, prefix))))
            .collect();
        let named = segments.iter().map(|&segment| AtomicPtr::new(segment)).collect();
        let directory = Box::into_raw(Box::new(Directory { depth: first.depth, segments: named }));
        index.directory.store(directory, Release);
        let mut growth = index.growth.lock();
        growth.segments = segments;
        growth.directories.push(directory);
        drop(growth);
        index
    }

    /// From now on the index takes its memory from `account`, what it has now included.
    pub fn charge_to(&self, account: Arc<Account>) {
        account.take(self.memory_bytes() as u64, Claim::Forced);
        self.postings.draw_on(account.clone());
        self.account.set(account).expect("an index is charged once");
    }

    fn take(&self, bytes: usize, claim: Claim) -> bool {
        self.account.get().is_none_or(|account| account.take(bytes as u64, claim))
    }

    fn take_pieces(&self, plan: &Plan) -> Vec<Piece> {
        let mut pool = self.pool.lock();
        (0..plan.pieces).map(|_| pool.take(plan.lines, self.geometry)).collect()
    }

    fn new_segment(&self, plan: &Plan, prefix: u64) -> Segment {
        Segment::new(plan.depth, prefix, &self.take_pieces(plan))
    }

    /// Of an index that nothing was removed from: its pieces are as the system gave them.
    fn first_segment(&self, plan: &Plan, prefix: u64) -> Segment {
        Segment::of_zeroed(plan.depth, prefix, &self.take_pieces(plan))
    }

    #[inline]
    fn directory(&self) -> &Directory {
        // SAFETY: directories are freed in `drop` only (invariant 4), and the pointer was published with Release.
        unsafe { &*self.directory.load(Acquire) }
    }

    #[inline]
    fn segment(&self, hash: u64) -> &Segment {
        let directory = self.directory();
        // Two shifts, because a shift by 64 is none.
        let at = hash >> 1 >> (63 - directory.depth);
        // SAFETY: segments are freed in `drop` only (invariant 4), and the pointer was published with Release.
        unsafe { &*directory.segments[at as usize].load(Acquire) }
    }

    #[inline]
    fn fragment(&self, hash: u64) -> u64 {
        hash << self.window >> (64 - FRAGMENT_BITS)
    }

    #[inline]
    fn read(&self, hash: u64, hits: &mut Hits) {
        while !self.segment(hash).read(hash, self.fragment(hash), hits) {}
    }

    /// Calls `found` with each row that has an entry of this hash, until it breaks.
    #[inline]
    pub fn lookup<B>(&self, hash: u64, mut found: impl FnMut(RowId) -> ControlFlow<B>) -> ControlFlow<B> {
        let hash = hash & self.known;
        let mut hits = Hits::new();
        self.read(hash, &mut hits);
        hits.rows().try_for_each(&mut found)?;
        if !hits.posted {
            return ControlFlow::Continue(());
        }
        // An entry may have moved there by a removal and an insert since we read the bucket.
        self.postings.lookup(&[hash], |row| {
            if hits.rows().any(|hit| hit == row) { ControlFlow::Continue(()) } else { found(row) }
        })
    }

    /// As `lookup`, but a row may be met twice: for who breaks at the first row that is the right one. If a bucket has one entry of the
    /// hash's fragment in its own line, that is tried before anything else is looked at.
    #[inline]
    pub fn first<B>(&self, hash: u64, mut found: impl FnMut(RowId) -> ControlFlow<B>) -> ControlFlow<B> {
        let known = hash & self.known;
        if let Some((row, is_all)) = self.segment(known).only_hit(known, self.fragment(known)) {
            found(row)?;
            if is_all {
                return ControlFlow::Continue(());
            }
        }
        self.lookup_chain(hash, found)
    }

    /// The row of the one entry of this hash, if there is one, in the bucket or in an overflow node: a guess. Of what lies in the posting tree it tells
    /// nothing.
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<RowId> {
        let hash = hash & self.known;
        let (segment, fragment) = (self.segment(hash), self.fragment(hash));
        match segment.only_hit(hash, fragment) {
            Some((row, _)) => Some(row),
            None => segment.only_hit_of_chain(hash, fragment),
        }
    }

    #[cold]
    #[inline(never)]
    fn lookup_chain<B>(&self, hash: u64, found: impl FnMut(RowId) -> ControlFlow<B>) -> ControlFlow<B> {
        self.lookup(hash, found)
    }

    /// Calls `found(i, row)` with each row that has an entry of `hashes[i]`, for all i in order. The misses of many hashes
    /// are waited for together.
    pub fn lookup_batch(&self, hashes: &[u64], mut found: impl FnMut(usize, RowId)) {
        for (batch, at) in hashes.chunks(BATCH).zip((0..).step_by(BATCH)) {
            batch.iter().for_each(|&hash| self.prefetch(hash));
            for (i, &hash) in batch.iter().enumerate() {
                let _: ControlFlow<()> = self.lookup(hash, |row| {
                    found(at + i, row);
                    ControlFlow::Continue(())
                });
            }
        }
    }

    /// Starts loading the bucket that a lookup or insert of `hash` will want.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let hash = hash & self.known;
        let segment = self.segment(hash);
        segment.prefetch(hash);
    }

    /// A number that grows with every insert into the bucket of `hash`, and perhaps otherwise: if it is what it was, no
    /// entry of this hash has come since.
    pub fn insert_stamp(&self, hash: u64) -> u64 {
        let hash = hash & self.known;
        loop {
            if let Some(inserts) = self.segment(hash).inserts(hash) {
                return inserts;
            }
        }
    }

    /// Adds an entry; false if it was there.
    pub fn insert(&self, hash: u64, row: RowId) -> bool {
        // No look at entries of equal hash: many would make each of them slower.
        self.try_insert(hash, row, Claim::Forced).expect("nothing objects without a check, and memory is forced")
    }

    /// Adds an entry if there is memory for it; false if it was there.
    pub fn try_insert(&self, hash: u64, row: RowId, claim: Claim) -> Result<bool, Conflict> {
        let unchecked = None::<fn(RowId) -> Result<(), Conflict>>;
        self.insert_checked(hash, row, claim, unchecked)
    }

    /// Adds an entry unless the `probe` objects to one of equal hash; false if it was there. The probe sees every such
    /// entry but the row's own, under the bucket's lock; it may see them again if the bucket had to grow. It must not
    /// enter this index, nor wait.
    pub fn insert_unique(&self, hash: u64, row: RowId, probe: impl FnMut(RowId) -> Probe) -> Result<bool, Conflict> {
        self.try_insert_unique(hash, row, Claim::Forced, probe)
    }

    /// As `insert_unique`, if there is memory for it.
    pub fn try_insert_unique(
        &self,
        hash: u64,
        row: RowId,
        claim: Claim,
        mut probe: impl FnMut(RowId) -> Probe,
    ) -> Result<bool, Conflict> {
        let check = |other| if other == row { Ok(()) } else { probe(other).verdict(other) };
        self.insert_checked(hash, row, claim, Some(check))
    }

    fn insert_checked(
        &self,
        hash: u64,
        row: RowId,
        claim: Claim,
        mut check: Option<impl FnMut(RowId) -> Result<(), Conflict>>,
    ) -> Result<bool, Conflict> {
        let hash = hash & self.known;
        let word = entry(self.fragment(hash), row);
        let mut may_grow = true;
        loop {
            let segment = self.segment(hash);
            let Some(mut bucket) = segment.lock(hash) else {
                continue;
            };
            if let Some(check) = &mut check {
                bucket.rows(self.fragment(hash)).try_for_each(&mut *check)?;
                if bucket.is_posted() {
                    self.check_postings(hash, check)?;
                }
            }
            if bucket.contains(word) || bucket.is_posted() && self.postings.contains(&[hash], row) {
                return Ok(false);
            }
            match bucket.place(word) {
                Room::PieceFull if may_grow => {
                    drop(bucket);
                    match self.grow(segment, claim) {
                        Grown::Done => {}
                        // Whoever was at it may claim less than this insert may: a refusal is for each to find out.
                        Grown::Elsewhere => may_grow = segment.await_growth() != Grown::Stuck,
                        Grown::Stuck => may_grow = false,
                        Grown::Refused => return Err(Conflict::OutOfMemory),
                    }
                    continue;
                }
                Room::PieceFull | Room::ChainFull => {
                    // First the entry, then the word that leads there: a refusal leaves no trace.
                    self.postings.try_insert(&[hash], row, claim)?;
                    bucket.set_posted();
                    bucket.count_insert();
                }
                Room::Placed => self.count(&mut bucket),
                Room::PlacedTight => {
                    self.count(&mut bucket);
                    drop(bucket);
                    // The entry has its place: a refusal is left to the insert that has none.
                    self.grow(segment, claim);
                }
            }
            return Ok(true);
        }
    }

    fn count(&self, bucket: &mut Locked<'_>) {
        bucket.count_insert();
        self.tally.add();
    }

    fn check_postings(&self, hash: u64, check: impl FnMut(RowId) -> Result<(), Conflict>) -> Result<(), Conflict> {
        let mut check = check;
        let verdict = self.postings.lookup(&[hash], |row| match check(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(conflict) => ControlFlow::Break(conflict),
        });
        match verdict {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(conflict) => Err(conflict),
        }
    }

    /// Adds many entries, waiting for their misses together. Several threads may do so at once.
    pub fn bulk_insert(&self, entries: impl IntoIterator<Item = (u64, RowId)>) {
        let mut entries = entries.into_iter();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            batch.extend(entries.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            batch.iter().for_each(|&(hash, _)| self.prefetch(hash));
            for &(hash, row) in &batch {
                self.insert(hash, row);
            }
        }
    }

    /// As `bulk_insert`, if there is memory for it; where `unique`, unless the `probe` objects to a row that it is given after
    /// the entry's own. It must not enter this index, nor wait.
    pub fn bulk_insert_checked(
        &self,
        entries: &[(u64, RowId)],
        unique: bool,
        mut probe: impl FnMut(RowId, RowId) -> Probe,
    ) -> Result<(), Conflict> {
        for batch in entries.chunks(BATCH) {
            batch.iter().for_each(|&(hash, _)| self.prefetch(hash));
            for &(hash, row) in batch {
                match unique {
                    true => self.try_insert_unique(hash, row, Claim::Growth, |met| probe(row, met))?,
                    false => self.try_insert(hash, row, Claim::Growth)?,
                };
            }
        }
        Ok(())
    }

    /// Whether two hashes have their entries in common, because what is kept of them is equal. Who decides that a row no
    /// longer needs an entry must ask this of the row's other keys, not whether their hashes are equal.
    pub fn same_entry(&self, a: u64, b: u64) -> bool {
        (a ^ b) & self.known == 0
    }

    /// Removes an entry unless it is `needed`, which is asked under the bucket's lock, and only if the entry is there: a
    /// reachable version needs it if its hash has the `same_entry`. True if it was removed.
    pub fn remove(&self, hash: u64, row: RowId, needed: impl FnOnce() -> bool) -> bool {
        let hash = hash & self.known;
        let word = entry(self.fragment(hash), row);
        loop {
            let Some(mut bucket) = self.segment(hash).lock(hash) else {
                continue;
            };
            if !bucket.contains(word) {
                return bucket.is_posted() && self.postings.remove(&[hash], row, needed);
            }
            if needed() {
                return false;
            }
            bucket.remove(word);
            self.tally.subtract();
            return true;
        }
    }

    pub fn len(&self) -> usize {
        self.tally.total() + self.postings.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that growth has copied so far, and the most that one insert had to copy: those of one segment.
    pub fn moved(&self) -> (u64, u64) {
        (self.moved.load(Relaxed), self.moved_most.load(Relaxed))
    }

    pub fn memory_bytes(&self) -> usize {
        let growth = self.growth.lock();
        let segments = growth.segments.len() * size_of::<Segment>();
        let directory = self.directory().segments.len() * 2 * size_of::<usize>();
        drop(growth);
        size_of::<Self>() + segments + directory + self.pool.lock().bytes + self.postings.memory_bytes()
    }

    /// Every entry's row, for checks: all of them, and no other, while nobody inserts or removes.
    pub fn for_each(&self, mut each: impl FnMut(RowId)) {
        // Growth would move entries past us.
        let growth = self.growth.lock();
        let mut previous = std::ptr::null();
        for named in &self.directory().segments {
            let segment = named.load(Acquire).cast_const();
            if segment != previous {
                previous = segment;
                // SAFETY: segments are freed in `drop` only (invariant 4).
                unsafe { &*segment }.for_each(&mut each);
            }
        }
        drop(growth);
        let mut cursor = self.postings.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut entries = Entries::new();
        while cursor.next_batch(&self.postings, &mut entries) {
            entries.iter().for_each(|(_, row)| each(row));
        }
    }

    /// Replaces the segment by larger ones, unless someone else does, or it cannot, or there is no memory.
    fn grow(&self, old: &Segment, claim: Claim) -> Grown {
        if !old.claim_growth() {
            return Grown::Elsewhere;
        }
        let Some(plan) = Plan::after(old, self.geometry, self.window) else {
            old.set_stuck();
            return Grown::Stuck;
        };
        if !self.promise_pieces(&plan, claim) {
            old.abandon_growth();
            return Grown::Refused;
        }
        let half = if plan.segments == 2 { 1 << (64 - plan.depth) } else { 0 };
        let new: Vec<Segment> =
            (0..plan.segments as u64).map(|side| self.new_segment(&plan, old.prefix + side * half)).collect();
        let target = |hash: u64| &new[usize::from(hash & half != 0)];
        let mut moved = 0;
        let inserts = old.drain(self.window, |hash, word| {
            moved += 1;
            let segment = target(hash);
            if !segment.fill(hash, word) {
                self.postings.insert(&[hash], segment::row_of(word));
                self.tally.subtract();
            }
        });
        self.moved.fetch_add(moved, Relaxed);
        self.moved_most.fetch_max(moved, Relaxed);
        self.each_posted_hash(old, |hash| target(hash).fill_posted(hash));
        for segment in &new {
            // One more than any before, so that nobody takes a new bucket for the one it looked at.
            segment.open(inserts + 1);
        }
        self.publish(old, new);
        old.retire();
        self.pool.lock().give(old.pieces().copied(), self.geometry);
        Grown::Done
    }

    /// Takes the memory of the plan's segments and of what the directory may need for them, and has the pieces ready.
    fn promise_pieces(&self, plan: &Plan, claim: Claim) -> bool {
        let wanted = plan.pieces * plan.segments;
        let mut pool = self.pool.lock();
        let mut bytes = plan.segments * size_of::<Segment>();
        let doubles = plan.depth > self.directory().depth;
        if doubles {
            bytes += self.directory().segments.len() * 2 * size_of::<usize>();
        }
        let chunks = pool.chunks_for(wanted, plan.lines, self.geometry);
        bytes += match plan.lines < self.geometry.unit_lines {
            true => wanted * plan.lines * LINE_WORDS * 8,
            false => chunks * PIECES_MAX * plan.lines * LINE_WORDS * 8,
        };
        if !self.take(bytes, claim) {
            return false;
        }
        for _ in 0..chunks {
            pool.own_chunk(plan.lines);
        }
        pool.promised += if plan.lines < self.geometry.unit_lines { 0 } else { wanted };
        true
    }

    /// The hashes in the posting tree that belong to a segment, all of whose buckets we hold locked.
    fn each_posted_hash(&self, segment: &Segment, mut each: impl FnMut(u64)) {
        if self.postings.is_empty() {
            return;
        }
        let last = segment.prefix | (!0u64).checked_shr(segment.depth).unwrap_or(0);
        let mut next = Some(segment.prefix);
        let mut entries = Entries::new();
        while let Some(low) = next {
            let mut cursor = self.postings.scan(Bound::Included(&[low]), Bound::Included(&[last]), Direction::Forward);
            if !cursor.next_batch(&self.postings, &mut entries) {
                return;
            }
            for (key, _) in entries.iter() {
                each(key[0]);
                next = key[0].checked_add(1);
            }
        }
    }

    /// Names the new segments where the directory named the old one.
    fn publish(&self, old: &Segment, new: Vec<Segment>) {
        let mut growth = self.growth.lock();
        let depth = new[0].depth;
        if depth > self.directory().depth {
            let segments = &self.directory().segments;
            let doubled = (0..segments.len() * 2).map(|at| AtomicPtr::new(segments[at / 2].load(Acquire))).collect();
            let directory = Box::into_raw(Box::new(Directory { depth, segments: doubled }));
            growth.directories.push(directory);
            self.directory.store(directory, Release);
        }
        let directory = self.directory();
        let span = 1usize << (directory.depth - depth);
        let first = (old.prefix >> 1 >> (63 - directory.depth)) as usize;
        for (side, segment) in new.into_iter().enumerate() {
            let segment = Box::into_raw(Box::new(segment));
            growth.segments.push(segment);
            for named in &directory.segments[first + side * span..][..span] {
                named.store(segment, Release);
            }
        }
    }
}

impl Plan {
    /// What an index for so many entries starts with.
    fn first(geometry: Geometry, entries: usize) -> Plan {
        let buckets = entries * 2 / PLANNED_TWICE;
        let mut lines = geometry.first_lines;
        while lines < geometry.unit_lines && buckets_in(lines) < buckets {
            lines *= 2;
        }
        let units = buckets.div_ceil(buckets_in(lines)).max(1);
        let segments = units.div_ceil(PIECES_MAX).next_power_of_two();
        Plan { depth: segments.ilog2(), lines, pieces: units.div_ceil(segments), segments }
    }

    /// What replaces a full segment; nothing if two buckets could then have the same hashes.
    fn after(old: &Segment, geometry: Geometry, window: u32) -> Option<Plan> {
        let lines = old.pieces().next().map_or(0, Piece::lines);
        let pieces = old.pieces().count();
        let plan = if lines < geometry.unit_lines {
            Plan { depth: old.depth, lines: lines * 2, pieces: 1, segments: 1 }
        } else if pieces < PIECES_MAX {
            Plan { depth: old.depth, lines, pieces: pieces + 1, segments: 1 }
        } else {
            Plan { depth: old.depth + 1, lines, pieces: SPLIT_PIECES, segments: 2 }
        };
        let buckets = (plan.pieces * buckets_in(plan.lines)) as u128;
        (buckets << plan.depth <= 1 << (window + FRAGMENT_BITS)).then_some(plan)
    }
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        let growth = self.growth.get_mut();
        for segment in growth.segments.drain(..) {
            // SAFETY: made by `Box::into_raw`, listed once, and nobody else has the index any more.
            drop(unsafe { Box::from_raw(segment) });
        }
        for directory in growth.directories.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(directory) });
        }
    }
}
