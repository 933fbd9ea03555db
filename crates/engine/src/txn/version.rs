//! Version nodes: how an older version is reached from the bytes in place.
//!
//! | word | content |
//! |---|---|
//! | 0 | stamp: [`UNSTAMPED`] until pre-commit, then the cts of the version the node leads *from* |
//! | 1 | `prev_cts` of the version it leads to, or [`SAME_TXN`]: that one is its own transaction's earlier write |
//! | 2 | next (older) node 32, command number 32 |
//! | 3 | kind 32, bitmap words 32 |
//! | 4.. | a bit for each record word that differs |
//! | then | the XOR of those words |
//!
//! 1. Everything but stamp and next is written once, before the node is linked under its slot's latch; later only a fold (`fold`) changes it.
//! 2. The `cts` word is never inside a bitmap: undoing a node gives a copy `prev_cts` instead.
//! 3. A reader at S touches a committed node only if its version is newer than S, so a node whose stamp is at or below
//!    every registered snapshot may be cut off and freed.

use super::record::Changed;
use crate::ids::Cts;
use crate::index::latch;
use crate::mem::{Arena, ArenaCursor, Claim, NodeRef};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::table::{Head, SessionNo, Slot};

pub(super) const UNSTAMPED: u64 = u64::MAX;
const SAME_TXN: u64 = u64::MAX;
const HEADER_WORDS: usize = 4;
/// Kinds of node.
const DELTA: u32 = 0;
/// The slot was never used: what lies below is all zero, and needs no XOR to be stored.
const FRESH: u32 = 1;
/// Where the bitmap began stands a reference to another node, the *companion*, whose bitmap and XOR count instead.
const MOVED: u32 = 2;

/// A node in place.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    at: NodeRef,
}

/// What a new node holds besides its bits.
pub(super) struct NewNode<'a> {
    /// `None`: the version below is the same transaction's.
    pub prev_cts: Option<Cts>,
    pub next: NodeRef,
    pub command: u32,
    /// The slot was never used; `changed` is empty then.
    pub fresh: bool,
    /// Words of the persistent part.
    pub words: usize,
    /// Those that differ, ascending, the cts word not among them.
    pub changed: &'a [Changed],
}

/// Where a session writes nodes: its cursor, and its thread's place.
pub(super) struct Pen<'a> {
    pub cursor: &'a mut ArenaCursor,
    pub place: usize,
}

/// Writes a node that leads back over what changed. `None`: no memory for versions.
pub(super) fn write(arena: &Arena, pen: Pen<'_>, claim: Claim, node: &NewNode<'_>) -> Option<NodeRef> {
    let bitmap_words = if node.fresh { 0 } else { node.words.div_ceil(64) };
    let data = HEADER_WORDS + bitmap_words;
    let at = arena.allocate(pen.cursor, pen.place, data + node.changed.len(), claim)?;
    let words = arena.words(at, 0, data + node.changed.len());
    words[0].store(UNSTAMPED, Relaxed);
    words[1].store(node.prev_cts.map_or(SAME_TXN, |c| c.0), Relaxed);
    words[2].store(u64::from(node.command) << 32 | u64::from(node.next.0), Relaxed);
    let kind = if node.fresh { FRESH } else { DELTA };
    words[3].store(u64::from(kind) << 32 | bitmap_words as u64, Relaxed);
    let mut changed = node.changed.iter().zip(&words[data..]).peekable();
    for (block, bitmap) in words[HEADER_WORDS..data].iter().enumerate() {
        let mut bits = 0u64;
        while let Some(((i, xor), word)) = changed.next_if(|((i, _), _)| usize::from(*i) / 64 == block) {
            bits |= 1 << (i % 64);
            word.store(*xor, Relaxed);
        }
        bitmap.store(bits, Relaxed);
    }
    Some(at)
}

impl<'a> Node<'a> {
    pub fn new(arena: &'a Arena, at: NodeRef) -> Node<'a> {
        assert!(!at.is_none(), "invariant: a version newer than the snapshot has a node that leads below it");
        Node { arena, at }
    }

    fn word(&self, at: usize) -> u64 {
        self.arena.words(self.at, at, 1)[0].load(Relaxed)
    }

    pub fn at(&self) -> NodeRef {
        self.at
    }

    fn set_word(&self, at: usize, word: u64) {
        self.arena.words(self.at, at, 1)[0].store(word, Relaxed);
    }

    fn kind(&self) -> u32 {
        (self.word(3) >> 32) as u32
    }

    fn set_kind(&self, kind: u32) {
        self.set_word(3, u64::from(kind) << 32 | self.word(3) & u64::from(u32::MAX));
    }

    /// The node that holds bitmap and XOR in this one's place.
    pub fn companion(&self) -> Option<NodeRef> {
        (self.kind() == MOVED).then(|| NodeRef(self.word(HEADER_WORDS) as u32))
    }

    /// The node that holds its bitmap and XOR.
    fn body(&self) -> Node<'a> {
        self.companion().map_or(*self, |at| Node { at, ..*self })
    }

    /// Composes the next older node of the chain with this one and takes its place: this one now leads to where that led. `free` is given what is
    /// no longer linked. False, and nothing has changed, if there was no memory for what both change. `words`: of the record.
    pub fn absorb(
        &self,
        older: &Node<'_>,
        words: usize,
        allocate: impl FnOnce(usize) -> Option<NodeRef>,
        mut free: impl FnMut(NodeRef),
    ) -> bool {
        assert!(!self.is_fresh(), "invariant: nothing lies below a slot's first version");
        if older.is_fresh() {
            self.companion().into_iter().for_each(&mut free);
            self.set_kind(FRESH);
        } else if older.body().is_within(&self.body()) {
            let own = self.body();
            older.each(|i, xor| own.flip(i, xor));
        } else {
            let mut all = vec![0; words];
            let mut bits = vec![0u64; words.div_ceil(64)];
            for node in [self, older] {
                node.each(|i, xor| {
                    all[i] ^= xor;
                    bits[i / 64] |= 1 << (i % 64);
                });
            }
            let changed: usize = bits.iter().map(|block| block.count_ones() as usize).sum();
            let Some(at) = allocate(HEADER_WORDS + bits.len() + changed) else {
                return false;
            };
            Node { at, ..*self }.fill(&bits, &all);
            self.companion().into_iter().for_each(&mut free);
            self.set_kind(MOVED);
            self.set_word(HEADER_WORDS, u64::from(at.0));
        }
        self.set_word(1, older.word(1));
        self.set_next(older.next());
        older.companion().into_iter().for_each(&mut free);
        free(older.at);
        true
    }

    /// Copies the node, and makes one of it and its companion. Nothing if there is no memory.
    pub fn copy(&self, allocate: impl FnOnce(usize) -> Option<NodeRef>) -> Option<Node<'a>> {
        let body = self.body();
        let blocks = if self.is_fresh() { 0 } else { body.word(3) as u32 as usize };
        let changed: usize = (0..blocks).map(|b| body.word(HEADER_WORDS + b).count_ones() as usize).sum();
        let words = HEADER_WORDS + blocks + changed;
        let copy = Node { at: allocate(words)?, ..*self };
        (0..HEADER_WORDS - 1).for_each(|at| copy.set_word(at, self.word(at)));
        let kind = if self.is_fresh() { FRESH } else { DELTA };
        copy.set_word(3, u64::from(kind) << 32 | blocks as u64);
        (HEADER_WORDS..words).for_each(|at| copy.set_word(at, body.word(at)));
        Some(copy)
    }

    /// Makes it a companion of these differences.
    fn fill(&self, bits: &[u64], all: &[u64]) {
        (0..HEADER_WORDS - 1).for_each(|at| self.set_word(at, 0));
        self.set_word(3, u64::from(DELTA) << 32 | bits.len() as u64);
        bits.iter().enumerate().for_each(|(block, bits)| self.set_word(HEADER_WORDS + block, *bits));
        let is_set = |i: &usize| bits[i / 64] >> (i % 64) & 1 == 1;
        let data = HEADER_WORDS + bits.len();
        (0..all.len()).filter(is_set).enumerate().for_each(|(at, i)| self.set_word(data + at, all[i]));
    }

    /// Whether every word that it names is named by `other`.
    fn is_within(&self, other: &Node<'_>) -> bool {
        let blocks = self.word(3) as u32 as usize;
        let others = other.word(3) as u32 as usize;
        (0..blocks).all(|b| b < others && self.word(HEADER_WORDS + b) & !other.word(HEADER_WORDS + b) == 0)
    }

    /// XORs the difference of record word `i`, which it names.
    fn flip(&self, i: usize, xor: u64) {
        let blocks = self.word(3) as u32 as usize;
        let block = |b: usize| self.word(HEADER_WORDS + b);
        let before: u32 = (0..i / 64).map(|b| block(b).count_ones()).sum();
        let within = (block(i / 64) & ((1 << (i % 64)) - 1)).count_ones();
        let at = HEADER_WORDS + blocks + (before + within) as usize;
        self.set_word(at, self.word(at) ^ xor);
    }

    pub fn stamp(&self) -> u64 {
        self.word(0)
    }

    pub fn set_stamp(&self, cts: Cts) {
        self.arena.words(self.at, 0, 1)[0].store(cts.0, Relaxed);
    }

    /// `None`: the version below is the same transaction's.
    pub fn prev_cts(&self) -> Option<Cts> {
        let word = self.word(1);
        (word != SAME_TXN).then_some(Cts(word))
    }

    pub fn next(&self) -> NodeRef {
        NodeRef(self.word(2) as u32)
    }

    /// Cuts or relinks what is older. Under the slot's latch.
    pub fn set_next(&self, next: NodeRef) {
        let word = self.word(2) & !u64::from(u32::MAX) | u64::from(next.0);
        self.arena.words(self.at, 2, 1)[0].store(word, Relaxed);
    }

    pub fn command(&self) -> u32 {
        (self.word(2) >> 32) as u32
    }

    pub fn is_fresh(&self) -> bool {
        self.kind() == FRESH
    }

    /// Calls `each` for every record word that differs, with the XOR. Not for fresh nodes.
    pub fn each(&self, mut each: impl FnMut(usize, u64)) {
        let body = self.body();
        let bitmap_words = body.word(3) as u32 as usize;
        let mut data = HEADER_WORDS + bitmap_words;
        for block in 0..bitmap_words {
            let mut bits = body.word(HEADER_WORDS + block);
            while bits != 0 {
                each(block * 64 + bits.trailing_zeros() as usize, body.word(data));
                data += 1;
                bits &= bits - 1;
            }
        }
    }

    /// The flags below the node, of a record that has these above it.
    pub fn flags_below(&self, flags: u64) -> u64 {
        const FLAGS: u64 = 1 << 1;
        let body = self.body();
        match self.is_fresh() {
            true => 0,
            // They are the record's second word, and the first is in no node.
            false if body.word(HEADER_WORDS) & FLAGS != 0 => {
                flags ^ body.word(HEADER_WORDS + body.word(3) as u32 as usize)
            }
            false => flags,
        }
    }

    /// Takes the node's change off a private copy, the cts word aside.
    pub fn undo(&self, record: &mut [u64]) {
        if self.is_fresh() {
            record[1..].fill(0);
        } else {
            self.each(|i, xor| record[i] ^= xor);
        }
    }
}

/// Copies the version that a snapshot sees, of a row whose newest it does not; `me` sees its own uncommitted version as it is. `word` is the row's fold
/// word, `ends` as in `rewind`.
pub(super) fn read_older(
    arena: &Arena,
    word: &AtomicU64,
    slot: Slot<'_>,
    record: &mut [u64],
    me: Option<SessionNo>,
    snapshot: Cts,
    ends: bool,
) {
    loop {
        let seen = latch::begin_read(word);
        let head = slot.copy(record);
        if me.is_some() && head.is_dirty() && head.owner() == me {
            return;
        }
        let is_unchanged = || latch::end_read(word, seen);
        let done = rewind(arena, record, head, snapshot, ends, is_unchanged);
        if is_unchanged() {
            assert!(done, "invariant: a version newer than the snapshot has a node that leads below it");
            return;
        }
    }
}

/// Takes everything newer than `snapshot` off a copy made with `head`; the copy's first word becomes its version's cts. Nothing keeps the nodes in
/// place: a fold may free them meanwhile. So nothing that they say leads outside the arena or the record, and the caller asks `is_unchanged` before
/// it believes the result. False: what was met is no chain. `ends`: where the chain ends above the snapshot, the slot was unused.
fn rewind(
    arena: &Arena,
    record: &mut [u64],
    head: Head,
    snapshot: Cts,
    ends: bool,
    is_unchanged: impl Fn() -> bool,
) -> bool {
    let mut at = head.node;
    let mut uncommitted = head.is_dirty();
    while uncommitted || Cts(record[0]) > snapshot {
        if at.is_none() && ends {
            record.fill(0);
            return true;
        }
        let Some((prev, next)) = undo_shared(arena, record, at) else {
            return false;
        };
        // Of the nodes of one transaction only the oldest names the version below.
        if prev != SAME_TXN {
            record[0] = prev;
            uncommitted = false;
        }
        at = next;
        if !is_unchanged() {
            return false;
        }
    }
    true
}

/// Takes a node's change off; gives the cts below and the next node. Nothing if it is no node of such a record.
fn undo_shared(arena: &Arena, record: &mut [u64], at: NodeRef) -> Option<(u64, NodeRef)> {
    let word = |node: NodeRef, at: usize| arena.try_word(node, at).map(|word| word.load(Relaxed));
    if at.is_none() {
        return None;
    }
    let (prev, next, form) = (word(at, 1)?, NodeRef(word(at, 2)? as u32), word(at, 3)?);
    let body = match (form >> 32) as u32 {
        FRESH => {
            record[1..].fill(0);
            return Some((prev, next));
        }
        DELTA => at,
        MOVED => NodeRef(word(at, HEADER_WORDS)? as u32),
        _ => return None,
    };
    let blocks = word(body, 3)? as u32 as usize;
    if blocks != record.len().div_ceil(64) {
        return None;
    }
    let mut data = HEADER_WORDS + blocks;
    for block in 0..blocks {
        let mut bits = word(body, HEADER_WORDS + block)?;
        while bits != 0 {
            *record.get_mut(block * 64 + bits.trailing_zeros() as usize)? ^= word(body, data)?;
            data += 1;
            bits &= bits - 1;
        }
    }
    Some((prev, next))
}

/// Takes the uncommitted nodes off; gives the node of the committed version below. Nodes of one transaction that share a
/// version name it only in the oldest of them.
pub(super) fn undo_uncommitted(arena: &Arena, record: &mut [u64], mut at: NodeRef) -> NodeRef {
    loop {
        let node = Node::new(arena, at);
        node.undo(record);
        at = node.next();
        if let Some(cts) = node.prev_cts() {
            record[0] = cts.0;
            return at;
        }
    }
}

/// Takes the nodes of the transaction's newest command off a copy of a slot that it has written, and where that leaves none of its own, what is
/// newer than the snapshot. Under the slot's latch.
pub(super) fn undo_command(arena: &Arena, record: &mut [u64], head: Head, command: u32, snapshot: Cts) {
    let mut at = head.node;
    loop {
        let node = Node::new(arena, at);
        if node.command() != command {
            return;
        }
        let is_fresh = node.is_fresh();
        node.undo(record);
        at = node.next();
        if let Some(cts) = node.prev_cts() {
            record[0] = cts.0;
            if !is_fresh {
                let done = rewind(arena, record, Head::default().with_node(at), snapshot, false, || true);
                assert!(done, "invariant: a version newer than the snapshot has a node that leads below it");
            }
            return;
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::mem::Budget;
    use crate::sync::{Arc, Mutex, step, thread};
    use crate::table::Owned;

    const ME: SessionNo = SessionNo(0);
    const OTHER: SessionNo = SessionNo(1);
    const LIVE: u64 = crate::schema::LIVE;
    /// The second word of the records of the models: flags and a value.
    const fn value(of: u64) -> u64 {
        of << 8 | LIVE
    }

    /// A row of two words, its fold word, and an arena of chunks that hold two nodes each.
    struct World {
        arena: Arena,
        slot: [AtomicU64; 4],
        fold: AtomicU64,
        /// Slots that were given back.
        free: Mutex<Vec<()>>,
    }

    impl World {
        fn new(cts: u64, newest: u64, chain: NodeRef, arena: Arena) -> Arc<World> {
            let head = Head::default().with_node(chain).pack();
            let slot = [0, head, cts, newest].map(AtomicU64::new);
            Arc::new(World { arena, slot, fold: AtomicU64::new(0), free: Mutex::new(Vec::new()) })
        }

        fn slot(&self) -> Slot<'_> {
            Slot::new(&self.slot)
        }

        fn seen_at(&self, snapshot: u64) -> [u64; 2] {
            let mut record = [0; 2];
            read_older(&self.arena, &self.fold, self.slot(), &mut record, None, Cts(snapshot), false);
            record
        }
    }

    fn arena() -> Arena {
        let budget = std::sync::Arc::new(Budget::new(1 << 20));
        Arena::new(4 * 128, false, budget).expect("a boxed slice")
    }

    /// A committed node that leads from `stamp` to `prev`, in what is left of the cursor's chunk or in a new one.
    fn node(arena: &Arena, cursor: &mut ArenaCursor, stamp: u64, prev: u64, next: NodeRef, xor: u64) -> NodeRef {
        let changed = [(1, xor)];
        let new = NewNode { prev_cts: Some(Cts(prev)), next, command: 0, fresh: false, words: 2, changed: &changed };
        let at = write(arena, Pen { cursor, place: 0 }, Claim::Finish, &new).expect("there is room");
        Node::new(arena, at).set_stamp(Cts(stamp));
        at
    }

    fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    /// A reader at 10 of the chain 30 -> 20 -> 10, beside a fold that takes the middle out. Its node's chunk is empty then, and given out for
    /// another row's node. `says_so`: the fold changes the row's fold word.
    fn read_beside_a_fold(says_so: bool) {
        let arena = arena();
        let (mut first, mut second) = (ArenaCursor::default(), ArenaCursor::default());
        let older = node(&arena, &mut first, 20, 10, NodeRef::NONE, value(2) ^ value(1));
        let newer = node(&arena, &mut second, 30, 20, older, value(3) ^ value(2));
        arena.release(&mut first);
        arena.release(&mut second);
        let world = World::new(30, value(3), newer, arena);
        let folder = {
            let world = Arc::clone(&world);
            // As `txn::fold` does.
            thread::spawn(move || {
                let arena = &world.arena;
                let latched = world.slot().latch();
                let seen = latch::latch(&world.fold);
                {
                    let (newer, older) = (Node::new(arena, newer), Node::new(arena, older));
                    let mut freed = arena.freed();
                    assert!(newer.absorb(&older, 2, |_| None, |node| freed.add(node)), "it fits in place");
                }
                latch::unlatch(&world.fold, seen, says_so);
                drop(latched);
                let mut cursor = ArenaCursor::default();
                let other = node(arena, &mut cursor, 25, 7, NodeRef::NONE, 0xffff_0000);
                assert_eq!(other, older, "the chunk is given out again");
            })
        };
        assert_eq!(world.seen_at(10), [10, value(1)], "what the snapshot saw");
        folder.join().expect("the folder does not panic");
        assert_eq!(world.seen_at(10), [10, value(1)]);
    }

    #[test]
    fn loom_a_reader_beside_a_fold_sees_its_version() {
        check(2, || read_beside_a_fold(true));
    }

    /// The model finds it.
    #[test]
    #[should_panic]
    fn loom_a_fold_that_nobody_is_told_of_is_met() {
        check(2, || read_beside_a_fold(false));
    }

    /// Two writers take nodes, of chunks that the other's freed nodes leave empty: what lies in one's node stays until it frees it. `early`: one of
    /// them frees its node before it is done with it.
    fn nodes_come_and_go(early: bool) {
        let arena = Arc::new(arena());
        let work = move |arena: &Arena, tag: u64, early: bool| {
            let mut cursor = ArenaCursor::default();
            for round in 0..2 {
                let xor = tag << 8 | round;
                let at = node(arena, &mut cursor, tag, 1, NodeRef::NONE, xor);
                if early {
                    arena.freed().add(at);
                    arena.release(&mut cursor);
                }
                let mut seen = 0;
                Node::new(arena, at).each(|_, xor| seen = xor);
                assert_eq!((seen, Node::new(arena, at).stamp()), (xor, tag), "another's node lies there");
                if !early {
                    arena.park(&mut cursor, 0);
                    arena.freed().add(at);
                }
            }
        };
        let other = {
            let arena = Arc::clone(&arena);
            thread::spawn(move || work(&arena, 2, false))
        };
        work(&arena, 1, early);
        other.join().expect("the other does not panic");
        arena.release_parked();
        assert_eq!(arena.used_bytes(), 0, "every chunk came back");
    }

    #[test]
    fn loom_a_node_is_its_owners_until_it_is_freed() {
        check(2, || nodes_come_and_go(false));
    }

    /// The model finds it.
    #[test]
    #[should_panic]
    fn loom_a_node_that_is_freed_early_is_another_s() {
        check(2, || nodes_come_and_go(true));
    }

    /// A deleted row's slot is given back and taken for another row, beside one who found the deleted row's entry in an index and comes to lock it, and
    /// beside a reader from before the delete. `looks`: who locks asks whether the row lives.
    fn a_slot_is_used_again(looks: bool) {
        let arena = arena();
        let mut cursor = ArenaCursor::default();
        let deleted = node(&arena, &mut cursor, 20, 10, NodeRef::NONE, LIVE);
        arena.release(&mut cursor);
        let world = World::new(20, value(1) ^ LIVE, deleted, arena);
        let locker = {
            let world = Arc::clone(&world);
            // As `Session::lock_newest` and `unlock_last` do.
            thread::spawn(move || {
                let mut latched = world.slot().latch();
                let owned = match looks {
                    true => latched.try_own(OTHER, true),
                    false if latched.head().owner().is_none() => {
                        let head = latched.head();
                        latched.set_head(head.with_owner(Some(OTHER)));
                        Owned::Newly
                    }
                    false => Owned::Others,
                };
                let mut record = [0; 2];
                latched.copy(&mut record);
                drop(latched);
                step();
                if owned == Owned::Newly {
                    assert!(!looks || record == [30, value(2)], "what is locked is the new row, and committed");
                    let mut latched = world.slot().latch();
                    let head = latched.head();
                    latched.set_head(head.with_owner(None));
                }
            })
        };
        // As `Core::is_dead_to_all` does.
        let latched = world.slot().latch();
        let is_free = !latched.head().is_wanted() && latched.load(1) & LIVE == 0;
        drop(latched);
        step();
        if is_free {
            world.free.lock().push(());
        }
        if world.free.lock().pop().is_some() {
            insert_and_commit(&world);
        }
        assert_eq!(world.seen_at(10), [10, value(1)], "who saw the deleted row sees it");
        locker.join().expect("the locker does not panic");
        assert!(world.slot().head().owner().is_none(), "everybody has let go");
    }

    /// As `Session::put_new` and `stamp` do.
    fn insert_and_commit(world: &World) {
        let slot = world.slot();
        let head = slot.head();
        assert!(head.owner().is_none(), "a slot given out is nobody's");
        step();
        let xor = slot.load(1) ^ value(2);
        let at = node(&world.arena, &mut ArenaCursor::default(), 30, 20, head.node, xor);
        let mut latched = slot.latch();
        let head = latched.head();
        Node::new(&world.arena, at).set_next(head.node);
        latched.set(1, value(2));
        latched.set_head(head.with_owner(Some(ME)).with_dirty(true).with_node(at));
        drop(latched);
        let mut latched = slot.latch();
        let head = latched.head();
        assert_eq!(head.owner(), Some(ME), "nobody takes a lock away");
        latched.set(0, 30);
        latched.set_head(head.with_dirty(false).with_owner(None));
    }

    #[test]
    fn loom_a_slot_is_used_again_beside_a_stale_locker() {
        check(3, || a_slot_is_used_again(true));
    }

    /// The model finds it.
    #[test]
    #[should_panic]
    fn loom_locking_a_dead_row_takes_a_slot_from_an_insert() {
        check(3, || a_slot_is_used_again(false));
    }
}
