//! How does a segment find, keep and lose an entry? Pieces of cache lines, each with its own overflow.
//!
//! A segment covers the hashes that share its prefix of `depth` bits. Its buckets lie in one to eight *pieces*; the bits
//! after the prefix, read as a fraction, choose piece and bucket by multiplication, so that the number of buckets need
//! not be a power of two and buckets are in hash order. A piece of L lines:
//!
//! | lines | what |
//! |---|---|
//! | 1 | word 0: overflow nodes {tag 28, used 12, first free 12, never used 12}; the rest unused |
//! | 6/7 (L - 1) | buckets: header word {inserts 51, overflow node 11, posted 1, locked 1}, seven entries |
//! | rest | overflow nodes, two in a line: {next node, three entries} |
//!
//! An entry is {fragment 24, row id + 1: 40}; zero is empty. At six entries for seven places of a bucket every fourth
//! bucket overflows, by less than two entries: that is what the nodes' share of the lines is made for. Measured from 2M to
//! 16M entries, an index takes 13 to 16.7 bytes an entry, pieces in waiting included: 120 MB at 8M, where most segments
//! have seven pieces.
//!
//! 1. Entries and headers change only under the bucket's lock bit; a node belongs to the chain of one bucket, or is free.
//! 2. An entry stays in its word as long as its segment lives. A node leaves its chain only as the last, when empty: so
//!    a reader who stands in it has nothing of its own bucket before it to miss.
//! 3. A chain has at most three nodes, and a reader follows no more links, wherever they lead.
//! 4. Growth locks each bucket, copies it and never unlocks it; `retired` is set once the replacement is published. So a
//!    locked bucket of a retired segment means: begin again. Pieces are used again only with all their buckets locked
//!    until the new segment is complete.

use super::super::words::{LINE_WORDS, Words};
use super::line;
use crate::ids::RowId;
use crate::mem::prefetch::prefetch;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, fence};
use crate::sync::{Spin, step};
use std::ptr::NonNull;

pub const FRAGMENT_BITS: u32 = 24;
/// Entries in a bucket.
pub const WIDTH: usize = LINE_WORDS - 1;
const NODE_WORDS: usize = 4;
const NODE_ENTRIES: usize = NODE_WORDS - 1;
const CHAIN_NODES: usize = 3;
/// The most entries a bucket and its chain hold.
pub const HITS_MAX: usize = WIDTH + CHAIN_NODES * NODE_ENTRIES;
pub const PIECES_MAX: usize = 8;

pub const LOCKED: u64 = 1;
pub const POSTED: u64 = 2;
const LINK_SHIFT: u32 = 2;
const LINK_MASK: u64 = 0x7ff;
pub const INSERTS_SHIFT: u32 = 13;

/// A word of a bucket for `row` under a fragment.
pub fn entry(fragment: u64, row: RowId) -> u64 {
    assert!(row < RowId::MAX, "the largest row id is the mark of an empty entry");
    fragment << RowId::BITS | (row.0 + 1)
}

#[inline]
pub fn row_of(entry: u64) -> RowId {
    RowId((entry & RowId::MAX.0) - 1)
}

pub fn fragment_of(entry: u64) -> u64 {
    entry >> RowId::BITS
}

/// Sizes of segments, in lines. Tests and model checkers make small ones.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// The only piece of the first segment.
    pub first_lines: usize,
    /// The largest piece: 1/8 of the largest segment.
    pub unit_lines: usize,
}

impl Geometry {
    /// 4 KiB, and eight of 256 KiB: a huge page.
    pub const REAL: Geometry = Geometry { first_lines: 64, unit_lines: 4096 };
}

/// Buckets in a piece of so many lines.
pub fn buckets_in(lines: usize) -> usize {
    (lines - 1) * 6 / 7
}

fn nodes_in(lines: usize) -> usize {
    (lines - 1 - buckets_in(lines)) * 2
}

/// What became of a segment's growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Another segment stands in its place.
    Done,
    /// Someone else is at it.
    Elsewhere,
    /// It can never grow again.
    Stuck,
    /// There was no memory for it.
    Refused,
}

/// Lines that some `Words` of the index's pool owns and keeps until the index is dropped.
#[derive(Clone, Copy)]
pub struct Piece {
    base: NonNull<AtomicU64>,
    lines: usize,
}

// SAFETY: a piece is a borrow of atomic words, which any thread may use; `segment` invariants and the pool keep it alive.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    /// # Safety
    /// `owner` outlives the piece, and every copy of it: the index's pool keeps both.
    pub unsafe fn of(owner: &Words, first_line: usize, lines: usize) -> Piece {
        let words = &owner[first_line * LINE_WORDS..(first_line + lines) * LINE_WORDS];
        Piece { base: NonNull::from(&words[0]), lines }
    }

    pub fn lines(&self) -> usize {
        self.lines
    }

    pub fn buckets(&self) -> usize {
        buckets_in(self.lines)
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        step();
        // SAFETY: `of` took the pointer from a slice of this length, whose owner is alive.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.lines * LINE_WORDS) }
    }

    #[inline]
    fn bucket(&self, at: usize) -> Bucket<'_> {
        Bucket { piece: self.words(), header: (1 + at) * LINE_WORDS }
    }

    /// Makes every bucket empty and locked, every node free. The words may be those of a retired segment, whose stale
    /// readers and writers still look at them (invariant 4).
    fn clear(&self) {
        let words = self.words();
        words[0].store(0, Relaxed);
        for at in 0..self.buckets() {
            let line = &words[(1 + at) * LINE_WORDS..][..LINE_WORDS];
            line[0].store(LOCKED, Relaxed);
            for word in &line[1..] {
                word.store(0, Relaxed);
            }
        }
    }
}

/// Overflow nodes of a piece, numbered from 1; 0 is none.
struct Nodes<'a> {
    piece: &'a [AtomicU64],
    count: u64,
}

/// The piece's first word, taken apart. The tag makes a compare-and-swap fail that slept through 2^28 others.
#[derive(Clone, Copy)]
struct NodeState(u64);

impl NodeState {
    fn new(previous: NodeState, used: u64, free: u64, fresh: u64) -> NodeState {
        NodeState(((previous.0 >> 36) + 1) << 36 | used << 24 | free << 12 | fresh)
    }

    fn used(self) -> u64 {
        self.0 >> 24 & 0xfff
    }

    fn first_free(self) -> u64 {
        self.0 >> 12 & 0xfff
    }

    fn fresh(self) -> u64 {
        self.0 & 0xfff
    }
}

impl<'a> Nodes<'a> {
    fn of(piece: &'a [AtomicU64]) -> Nodes<'a> {
        Nodes { piece, count: nodes_in(piece.len() / LINE_WORDS) as u64 }
    }

    fn words(&self, node: u64) -> &'a [AtomicU64] {
        let at = self.piece.len() - node.min(self.count) as usize * NODE_WORDS;
        &self.piece[at..at + NODE_WORDS]
    }

    /// A node with `entry` in it and nothing else, or none if all are in use.
    fn take(&self, entry: u64) -> Option<u64> {
        let state = &self.piece[0];
        let mut seen = NodeState(state.load(Acquire));
        loop {
            let (node, next) = match seen.first_free() {
                0 if seen.fresh() == self.count => return None,
                0 => (seen.fresh() + 1, NodeState::new(seen, seen.used() + 1, 0, seen.fresh() + 1)),
                free => {
                    let rest = self.words(free)[0].load(Relaxed) & 0xfff;
                    (free, NodeState::new(seen, seen.used() + 1, rest, seen.fresh()))
                }
            };
            match state.compare_exchange_weak(seen.0, next.0, AcqRel, Acquire) {
                Ok(_) => {
                    let words = self.words(node);
                    words[0].store(0, Relaxed);
                    words[1].store(entry, Relaxed);
                    words[2..].iter().for_each(|word| word.store(0, Relaxed));
                    return Some(node);
                }
                Err(now) => seen = NodeState(now),
            }
        }
    }

    fn give(&self, node: u64) {
        let state = &self.piece[0];
        let mut seen = NodeState(state.load(Acquire));
        loop {
            self.words(node)[0].store(seen.first_free(), Relaxed);
            let next = NodeState::new(seen, seen.used() - 1, node, seen.fresh());
            match state.compare_exchange_weak(seen.0, next.0, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => seen = NodeState(now),
            }
        }
    }

    /// Seven eighths in use, which on even hashes is six entries a bucket.
    fn nearly_all_used(&self) -> bool {
        NodeState(self.piece[0].load(Relaxed)).used() >= (self.count * 7 / 8).max(1)
    }
}

#[derive(Clone, Copy)]
struct Bucket<'a> {
    piece: &'a [AtomicU64],
    header: usize,
}

impl<'a> Bucket<'a> {
    #[inline]
    fn header(self) -> &'a AtomicU64 {
        &self.piece[self.header]
    }

    /// Header and entries.
    #[inline]
    fn line(self) -> &'a [AtomicU64; LINE_WORDS] {
        self.piece[self.header..].first_chunk().expect("a bucket is a whole line of its piece")
    }

    #[inline]
    fn entries(self) -> &'a [AtomicU64] {
        &self.piece[self.header + 1..self.header + LINE_WORDS]
    }

    /// The chain's nodes, by the links as they stand while we walk.
    fn nodes(self, header: u64) -> impl Iterator<Item = (u64, &'a [AtomicU64])> {
        let nodes = Nodes::of(self.piece);
        let mut link = header >> LINK_SHIFT & LINK_MASK;
        (0..CHAIN_NODES).map_while(move |_| {
            if link == 0 {
                return None;
            }
            let (node, words) = (link, nodes.words(link));
            link = words[0].load(Acquire) & LINK_MASK;
            Some((node, &words[1..]))
        })
    }

    /// Every entry's word, the bucket's first.
    fn places(self, header: u64) -> impl Iterator<Item = &'a AtomicU64> {
        self.entries().iter().chain(self.nodes(header).flat_map(|(_, entries)| entries))
    }
}

/// What a bucket says of a fragment.
pub struct Hits {
    words: [u64; HITS_MAX],
    count: usize,
    /// There are more entries of this bucket in the posting tree.
    pub posted: bool,
}

impl Hits {
    pub fn new() -> Hits {
        Hits { words: [0; HITS_MAX], count: 0, posted: false }
    }

    pub fn rows(&self) -> impl Iterator<Item = RowId> {
        self.words[..self.count].iter().map(|&word| row_of(word))
    }
}

#[repr(align(64))]
pub struct Segment {
    pieces: [Option<Piece>; PIECES_MAX],
    piece_count: u64,
    piece_buckets: u64,
    pub depth: u32,
    /// The hash bits before `depth`, at the top; zeros after.
    pub prefix: u64,
    retired: AtomicBool,
    /// Taken by the one thread that grows it, for ever.
    growing: AtomicBool,
    /// Cannot grow: the hash bits kept do not tell more buckets apart.
    stuck: AtomicBool,
}

impl Segment {
    /// An unpublished segment with all buckets locked and empty.
    pub fn new(depth: u32, prefix: u64, pieces: &[Piece]) -> Segment {
        // Pieces used before: whoever reads what we are about to store must see that their segment has retired.
        fence(Release);
        pieces.iter().for_each(Piece::clear);
        Segment::of(depth, prefix, pieces)
    }

    /// An open, empty segment of pieces that are all zeros: no bucket is touched, so that memory comes with the entries.
    pub fn of_zeroed(depth: u32, prefix: u64, pieces: &[Piece]) -> Segment {
        Segment::of(depth, prefix, pieces)
    }

    fn of(depth: u32, prefix: u64, pieces: &[Piece]) -> Segment {
        let mut slots = [None; PIECES_MAX];
        for (slot, &piece) in slots.iter_mut().zip(pieces) {
            *slot = Some(piece);
        }
        Segment {
            pieces: slots,
            piece_count: pieces.len() as u64,
            piece_buckets: pieces[0].buckets() as u64,
            depth,
            prefix,
            retired: AtomicBool::new(false),
            growing: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
        }
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().flatten()
    }

    pub fn buckets(&self) -> u64 {
        self.piece_count * self.piece_buckets
    }

    /// The bucket's number in this segment; monotone in `hash` among the hashes of its prefix.
    #[inline]
    fn locate(&self, hash: u64) -> (usize, usize) {
        let scaled = u128::from(hash << self.depth) * u128::from(self.piece_count);
        let inner = u128::from(scaled as u64) * u128::from(self.piece_buckets);
        ((scaled >> 64) as usize, (inner >> 64) as usize)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> Bucket<'_> {
        let (piece, at) = self.locate(hash);
        self.pieces[piece].as_ref().expect("locate stays below the piece count").bucket(at)
    }

    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.bucket(hash).header());
    }

    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Acquire)
    }

    /// What a reader without a latch finds; false, and anything in `hits`, if the segment had been replaced by the time
    /// it finished.
    #[inline]
    #[must_use]
    pub fn read(&self, hash: u64, fragment: u64, hits: &mut Hits) -> bool {
        let bucket = self.bucket(hash);
        let header = bucket.header().load(Acquire);
        hits.count = 0;
        hits.posted = header & POSTED != 0;
        for place in bucket.entries() {
            hits.keep(place.load(Relaxed), fragment);
        }
        if header & (LINK_MASK << LINK_SHIFT) != 0 {
            for (_, entries) in bucket.nodes(header) {
                for place in entries {
                    hits.keep(place.load(Relaxed), fragment);
                }
            }
        }
        // A word written after these pieces went to another segment carries `retired` with it.
        fence(Acquire);
        !self.retired.load(Relaxed)
    }

    /// The row of the one entry of this fragment in the bucket's own line, and whether there can be no other; nothing if the line has none or
    /// several. Which word of the line it is depends on the hash and is not foreseen, so nothing branches on it. Always inline: a lookup by key is
    /// short enough for two at a time in the processor's window, or it is not.
    #[inline(always)]
    pub fn only_hit(&self, hash: u64, fragment: u64) -> Option<(RowId, bool)> {
        let line = self.bucket(hash).line();
        let header = line[0].load(Acquire);
        let hits = line::matching(line, fragment << RowId::BITS) & !1;
        let word = line[(hits.trailing_zeros() & 7) as usize].load(Relaxed);
        fence(Acquire);
        let is_one = hits != 0 && hits & (hits - 1) == 0;
        // It may be another word by now, and of fragment 0 an empty one.
        let is_entry = fragment_of(word) == fragment && word & RowId::MAX.0 != 0;
        let is_all = header & (LINK_MASK << LINK_SHIFT | POSTED) == 0;
        (is_one && is_entry && !self.retired.load(Relaxed)).then(|| (row_of(word), is_all))
    }

    /// The row of the one entry of this fragment in the bucket and its chain, for where its own line has none; nothing if there are several.
    #[cold]
    #[inline(never)]
    pub fn only_hit_of_chain(&self, hash: u64, fragment: u64) -> Option<RowId> {
        let mut hits = Hits::new();
        let is_whole = self.bucket(hash).header().load(Relaxed) & (LINK_MASK << LINK_SHIFT) != 0
            && self.read(hash, fragment, &mut hits);
        (is_whole && hits.count == 1).then(|| row_of(hits.words[0]))
    }

    /// The inserts that the bucket of `hash` has seen, its predecessors' included.
    pub fn inserts(&self, hash: u64) -> Option<u64> {
        let header = self.bucket(hash).header().load(Acquire);
        fence(Acquire);
        (!self.retired.load(Relaxed)).then_some(header >> INSERTS_SHIFT)
    }

    /// Locks the bucket of `hash`; nothing if the segment has been replaced.
    #[inline]
    pub fn lock(&self, hash: u64) -> Option<Locked<'_>> {
        let bucket = self.bucket(hash);
        let word = bucket.header();
        let mut spin = Spin::new();
        loop {
            let seen = word.load(Relaxed);
            if seen & LOCKED == 0 && word.compare_exchange(seen, seen | LOCKED, Acquire, Relaxed).is_ok() {
                fence(Release);
                let locked = Locked { bucket, header: seen };
                return (!self.is_retired()).then_some(locked);
            }
            if self.is_retired() {
                return None;
            }
            spin.turn();
        }
    }

    /// True for the one caller who shall grow it.
    pub fn claim_growth(&self) -> bool {
        !self.growing.load(Relaxed) && !self.growing.swap(true, AcqRel)
    }

    pub fn set_stuck(&self) {
        self.stuck.store(true, Release);
    }

    /// Growth was claimed and there is no memory for it: whoever needs it may try again.
    pub fn abandon_growth(&self) {
        self.growing.store(false, Release);
    }

    /// Waits for whoever claimed the growth.
    pub fn await_growth(&self) -> Growth {
        let mut spin = Spin::new();
        while !self.is_retired() {
            if self.stuck.load(Acquire) {
                return Growth::Stuck;
            }
            if !self.growing.load(Acquire) {
                return Growth::Refused;
            }
            spin.turn();
        }
        Growth::Done
    }

    pub fn retire(&self) {
        self.retired.store(true, Release);
    }

    /// For a segment not yet published: adds an entry; false if there is no room.
    pub fn fill(&self, hash: u64, entry: u64) -> bool {
        let bucket = self.bucket(hash);
        let header = bucket.header().load(Relaxed);
        if let Some(place) = bucket.places(header).find(|place| place.load(Relaxed) == 0) {
            place.store(entry, Relaxed);
            return true;
        }
        match bucket.extend(header, entry) {
            Some(header) => {
                bucket.header().store(header, Relaxed);
                true
            }
            None => false,
        }
    }

    /// For a segment not yet published: the posting tree has entries of this hash.
    pub fn fill_posted(&self, hash: u64) {
        let header = self.bucket(hash).header();
        header.store(header.load(Relaxed) | POSTED, Relaxed);
    }

    /// Ends the filling: unlocks every bucket, with the count of inserts that their predecessors had.
    pub fn open(&self, inserts: u64) {
        for piece in self.pieces() {
            for at in 0..piece.buckets() {
                let header = piece.bucket(at).header();
                let word = header.load(Relaxed) & !LOCKED;
                header.store(word & ((1 << INSERTS_SHIFT) - 1) | inserts << INSERTS_SHIFT, Release);
            }
        }
    }

    /// For growth: locks every bucket for ever and gives `each` its entries with their hashes. Returns the largest count
    /// of inserts met.
    pub fn drain(&self, window: u32, mut each: impl FnMut(u64, u64)) -> u64 {
        let mut inserts = 0;
        for (p, piece) in self.pieces().enumerate() {
            for at in 0..piece.buckets() {
                let bucket = piece.bucket(at);
                let word = bucket.header();
                let mut spin = Spin::new();
                let header = loop {
                    let seen = word.load(Relaxed);
                    if seen & LOCKED == 0 && word.compare_exchange(seen, seen | LOCKED, Acquire, Relaxed).is_ok() {
                        break seen;
                    }
                    spin.turn();
                };
                inserts = inserts.max(header >> INSERTS_SHIFT);
                let low = self.lowest_hash(p, at);
                for place in bucket.places(header) {
                    let entry = place.load(Relaxed);
                    if entry != 0 {
                        each(self.restore(low, p, at, window, fragment_of(entry)), entry);
                    }
                }
            }
        }
        inserts
    }

    /// A hash not above any in this bucket, and less than one bucket below them.
    fn lowest_hash(&self, piece: usize, at: usize) -> u64 {
        let within = (piece as u128 * u128::from(self.piece_buckets)) + at as u128;
        let fraction = (within << 64) / u128::from(self.buckets());
        self.prefix | (fraction as u64) >> self.depth
    }

    /// The hash, as far as it is kept, of an entry of this bucket. The fragment is the `FRAGMENT_BITS` bits from bit
    /// `window` on (from the top). A bucket is narrower than a cell of `window` bits, so that of the hashes that have this
    /// fragment only one, in the cell where the bucket begins or in the next, lives in this bucket.
    fn restore(&self, low: u64, piece: usize, at: usize, window: u32, fragment: u64) -> u64 {
        let cell = if window == 0 { 0 } else { low >> (64 - window) << (64 - window) };
        let hash = cell | fragment << (64 - window - FRAGMENT_BITS);
        let lives_here = |hash: u64| {
            let same_prefix = self.depth == 0 || (hash ^ self.prefix) >> (64 - self.depth) == 0;
            same_prefix && self.locate(hash) == (piece, at)
        };
        if lives_here(hash) {
            return hash;
        }
        debug_assert!(window > 0, "with no bits before the fragment there is one cell");
        let hash = hash.wrapping_add(1 << (64 - window));
        debug_assert!(lives_here(hash), "an entry's fragment and bucket give its hash");
        hash
    }

    /// The entries that are there as we pass.
    pub fn for_each(&self, mut each: impl FnMut(RowId)) {
        for piece in self.pieces() {
            for at in 0..piece.buckets() {
                let bucket = piece.bucket(at);
                for place in bucket.places(bucket.header().load(Acquire)) {
                    let entry = place.load(Acquire);
                    if entry != 0 {
                        each(row_of(entry));
                    }
                }
            }
        }
    }
}

impl Hits {
    #[inline]
    fn keep(&mut self, word: u64, fragment: u64) {
        if word != 0 && fragment_of(word) == fragment && self.count < HITS_MAX {
            // An entry that was removed and inserted again under our eyes may be met in two places.
            if self.words[..self.count].contains(&word) {
                return;
            }
            self.words[self.count] = word;
            self.count += 1;
        }
    }
}

impl Bucket<'_> {
    /// Puts a node with `entry` at the end of the chain; returns the header then due, or nothing if the chain is at its
    /// longest or the piece has no node left.
    fn extend(self, header: u64, entry: u64) -> Option<u64> {
        let last = self.nodes(header).last();
        if self.nodes(header).count() == CHAIN_NODES {
            return None;
        }
        let nodes = Nodes::of(self.piece);
        let node = nodes.take(entry)?;
        match last {
            Some((last, _)) => {
                nodes.words(last)[0].store(node, Release);
                Some(header)
            }
            None => Some(header & !(LINK_MASK << LINK_SHIFT) | node << LINK_SHIFT),
        }
    }
}

/// Where a new entry could go.
pub enum Room {
    Placed,
    /// Placed, and the piece's nodes are nearly used up: the segment should grow.
    PlacedTight,
    /// The chain is at its longest: growth may not help, the posting tree will.
    ChainFull,
    /// The piece has no node left: growth helps.
    PieceFull,
}

/// A bucket under its lock bit; unlocks when dropped.
pub struct Locked<'a> {
    bucket: Bucket<'a>,
    /// What the header becomes at the end.
    header: u64,
}

impl Locked<'_> {
    pub fn is_posted(&self) -> bool {
        self.header & POSTED != 0
    }

    pub fn set_posted(&mut self) {
        self.header |= POSTED;
    }

    /// For phantom checks: every insert counts, wherever its entry went.
    pub fn count_insert(&mut self) {
        self.header = self.header.wrapping_add(1 << INSERTS_SHIFT);
    }

    pub fn contains(&self, entry: u64) -> bool {
        self.bucket.places(self.header).any(|place| place.load(Relaxed) == entry)
    }

    pub fn rows(&self, fragment: u64) -> impl Iterator<Item = RowId> {
        self.bucket
            .places(self.header)
            .map(|place| place.load(Relaxed))
            .filter(move |&entry| entry != 0 && fragment_of(entry) == fragment)
            .map(row_of)
    }

    pub fn place(&mut self, entry: u64) -> Room {
        if let Some(place) = self.bucket.places(self.header).find(|place| place.load(Relaxed) == 0) {
            // Release: who finds the entry finds the row as it was when its key was inserted.
            place.store(entry, Release);
            return Room::Placed;
        }
        match self.bucket.extend(self.header, entry) {
            Some(header) => {
                self.header = header;
                if Nodes::of(self.bucket.piece).nearly_all_used() { Room::PlacedTight } else { Room::Placed }
            }
            None if self.bucket.nodes(self.header).count() == CHAIN_NODES => Room::ChainFull,
            None => Room::PieceFull,
        }
    }

    /// Removes an entry that is in the bucket or its chain; false if it is not.
    pub fn remove(&mut self, entry: u64) -> bool {
        let Some(place) = self.bucket.places(self.header).find(|place| place.load(Relaxed) == entry) else {
            return false;
        };
        place.store(0, Release);
        self.shorten();
        true
    }

    /// Frees empty nodes at the end of the chain.
    fn shorten(&mut self) {
        let nodes = Nodes::of(self.bucket.piece);
        loop {
            let mut before = 0;
            let mut last = None;
            for (node, entries) in self.bucket.nodes(self.header) {
                before = last.map_or(0, |(node, _)| node);
                last = Some((node, entries));
            }
            let Some((node, entries)) = last else { return };
            if entries.iter().any(|place| place.load(Relaxed) != 0) {
                return;
            }
            if before == 0 {
                // Readers must not enter a node through the header once it may be another bucket's.
                self.header &= !(LINK_MASK << LINK_SHIFT);
                self.bucket.header().store(self.header | LOCKED, Release);
            } else {
                nodes.words(before)[0].store(0, Release);
            }
            nodes.give(node);
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.bucket.header().store(self.header & !LOCKED, Release);
    }
}
