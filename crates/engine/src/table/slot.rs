//! A slot: one record and what the engine keeps beside it.
//!
//! | words | part | content |
//! |---|---|---|
//! | 0 | volatile | sequence count: odd while latched, grows by two with each write |
//! | 1 | volatile | [`Head`]: the row lock's owner 28 and four bits, the newest version node 32 |
//! | 2 | persistent | `cts` of the newest committed version |
//! | 3 | persistent | flags, null bits |
//! | 4.. | persistent | further null bits, fields |
//!
//! 1. Words 1 and up are stored only under the latch (word 0 odd); readers copy and validate (`index::latch`).
//! 2. The bytes in place are the newest version: the owner's uncommitted one while the head is *dirty*, else the one `cts` names.
//! 3. While dirty, `cts` is still that of the newest committed version; it is stored once, at pre-commit, together with the owner's departure.
//! 4. Words 0 and 1 are neither logged nor imaged; every change of the others is a logged delta (DESIGN invariant 4).

use crate::ids::Cts;
use crate::index::latch;
use crate::mem::NodeRef;
use crate::schema::LIVE;
#[cfg(not(loom))]
use crate::schema::{IntegerWord, Picks};
use crate::sync::atomic::{AtomicU64, Ordering};

pub(crate) const VOLATILE_WORDS: usize = 2;
/// The persistent word with the flags.
const FLAGS: usize = 1;

/// A session's place in the session table; owner of row locks while its transaction lasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SessionNo(pub u32);

const DIRTY: u32 = 1 << 31;
const WAITED: u32 = 1 << 30;
const SHARED: u32 = 1 << 29;
const KEYED: u32 = 1 << 28;

/// The second word of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    owner: u32,
    pub node: NodeRef,
}

impl Head {
    pub fn unpack(word: u64) -> Head {
        Head { owner: (word >> 32) as u32, node: NodeRef(word as u32) }
    }

    pub fn pack(self) -> u64 {
        u64::from(self.owner) << 32 | u64::from(self.node.0)
    }

    /// Who holds the row lock.
    pub fn owner(self) -> Option<SessionNo> {
        (self.owner & !(DIRTY | WAITED | SHARED | KEYED)).checked_sub(1).map(SessionNo)
    }

    /// The owner has written: the bytes in place are its uncommitted version.
    pub fn is_dirty(self) -> bool {
        self.owner & DIRTY != 0
    }

    /// Someone holds the row lock or queues for it.
    pub fn is_wanted(self) -> bool {
        self.owner & !DIRTY != 0
    }

    /// Nobody holds the row lock or wants it.
    pub fn is_free(self) -> bool {
        self.owner == 0
    }

    /// Someone queues for the row lock.
    pub fn is_waited(self) -> bool {
        self.owner & WAITED != 0
    }

    /// Some share the row: who they are is in the lock table.
    pub fn is_shared(self) -> bool {
        self.owner & SHARED != 0
    }

    /// The owner may change the row's keys, or delete it.
    pub fn is_keyed(self) -> bool {
        self.owner & KEYED != 0
    }

    /// The same with this owner, of all of the row, who has not written it.
    pub fn with_owner(self, owner: Option<SessionNo>) -> Head {
        let kept = self.owner & (WAITED | SHARED);
        Head { owner: kept | owner.map_or(0, |s| KEYED | (s.0 + 1)), node: self.node }
    }

    pub fn with_keyed(self, keyed: bool) -> Head {
        Head { owner: if keyed { self.owner | KEYED } else { self.owner & !KEYED }, ..self }
    }

    pub fn with_shared(self, shared: bool) -> Head {
        Head { owner: if shared { self.owner | SHARED } else { self.owner & !SHARED }, ..self }
    }

    pub fn with_dirty(self, dirty: bool) -> Head {
        Head { owner: if dirty { self.owner | DIRTY } else { self.owner & !DIRTY }, ..self }
    }

    pub fn with_waited(self, waited: bool) -> Head {
        Head { owner: if waited { self.owner | WAITED } else { self.owner & !WAITED }, ..self }
    }

    pub fn with_node(self, node: NodeRef) -> Head {
        Head { node, ..self }
    }
}

/// A slot in place.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Slot<'a> {
    pub fn new(words: &'a [AtomicU64]) -> Slot<'a> {
        Slot { words }
    }

    /// Copies the persistent part; the result belongs to the same moment. `out` may be shorter than the record.
    #[inline]
    pub fn copy(&self, out: &mut [u64]) -> Head {
        loop {
            let seen = latch::begin_read(&self.words[0]);
            let head = self.words[1].load(Ordering::Relaxed);
            for (to, from) in out.iter_mut().zip(&self.words[VOLATILE_WORDS..]) {
                *to = from.load(Ordering::Relaxed);
            }
            if latch::end_read(&self.words[0], seen) {
                return Head::unpack(head);
            }
        }
    }

    /// As `copy`, of cts, flags and the `picks` only, each to its place in `out`. One try, without a loop around it, whose registers would
    /// cost more than the copy: nothing if the slot is latched or was changed meanwhile.
    #[cfg(not(loom))]
    #[inline]
    pub fn try_copy_picked(&self, picks: &Picks, out: &mut [u64]) -> Option<Head> {
        self.try_copy_counted(picks, out).map(|(head, _)| head)
    }

    /// The same, with the sequence count under which it was taken.
    #[cfg(not(loom))]
    #[inline]
    pub fn try_copy_counted(&self, picks: &Picks, out: &mut [u64]) -> Option<(Head, u64)> {
        let record = &self.words[VOLATILE_WORDS..];
        let seen = latch::try_begin_read(&self.words[0])?;
        let head = self.words[1].load(Ordering::Relaxed);
        out[0] = record[0].load(Ordering::Relaxed);
        out[1] = record[1].load(Ordering::Relaxed);
        for at in picks.few {
            out[usize::from(at)] = record[usize::from(at)].load(Ordering::Relaxed);
        }
        for &at in &picks.rest {
            out[usize::from(at)] = record[usize::from(at)].load(Ordering::Relaxed);
        }
        latch::end_read(&self.words[0], seen).then(|| (Head::unpack(head), seen))
    }

    /// Latches the slot if nothing has changed since a copy was taken under `seen`.
    #[inline]
    pub fn latch_unchanged(&self, seen: u64) -> Option<Latched<'a>> {
        // Not `then_some`: to drop a latch that was not taken would give another's back.
        latch::latch_unchanged(&self.words[0], seen).then(|| Latched { words: self.words, seen, changed: false })
    }

    /// Two integers of the version in place, and its cts, if it is committed and nobody writes it now. An integer is nothing if it is null or the
    /// version does not exist.
    #[cfg(not(loom))]
    #[inline]
    pub fn try_read_integers(&self, a: IntegerWord, b: IntegerWord) -> Option<(Cts, Option<i64>, Option<i64>)> {
        let record = &self.words[VOLATILE_WORDS..];
        let seen = latch::try_begin_read(&self.words[0])?;
        let head = Head::unpack(self.words[1].load(Ordering::Relaxed));
        let cts = Cts(record[0].load(Ordering::Relaxed));
        let flags = record[1].load(Ordering::Relaxed);
        let integer = |at: IntegerWord| at.of(flags, record[at.at()].load(Ordering::Relaxed));
        let (a, b) = (integer(a), integer(b));
        (latch::end_read(&self.words[0], seen) && !head.is_dirty()).then_some((cts, a, b))
    }

    pub fn latch(&self) -> Latched<'a> {
        let seen = latch::latch(&self.words[0]);
        Latched { words: self.words, seen, changed: false }
    }

    /// What `is_unchanged` is asked with.
    pub fn state(&self) -> u64 {
        latch::begin_read(&self.words[0])
    }

    /// Whether nothing was changed since it was in this state, or latched in it ([`Latched::seen`]).
    pub fn is_unchanged(&self, seen: u64) -> bool {
        latch::end_read(&self.words[0], seen)
    }

    /// Who holds the row and where its chain begins, as of now.
    #[inline]
    pub fn head(&self) -> Head {
        Head::unpack(self.words[1].load(Ordering::Relaxed))
    }

    /// A word of the persistent part, while nobody writes the slot (recovery, whoever has the table alone, the holder of the row's lock).
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        self.words[VOLATILE_WORDS + at].load(Ordering::Relaxed)
    }
}

/// What came of asking for a row's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owned {
    Newly,
    /// It was the asker's already.
    Mine,
    Others,
    /// The row is deleted, or its slot was never used.
    Dead,
}

/// A latched slot; dropping it unlatches.
pub(crate) struct Latched<'a> {
    words: &'a [AtomicU64],
    seen: u64,
    changed: bool,
}

impl Latched<'_> {
    pub fn head(&self) -> Head {
        Head::unpack(self.words[1].load(Ordering::Relaxed))
    }

    /// Takes the row's lock, with its keys if `keyed`. A dead row is nobody's: its slot may be given out at any time, to an insert that finds no
    /// other's lock there. Where others share the row, the lock table is to be asked: that is `Others` too.
    pub fn try_own(&mut self, me: SessionNo, keyed: bool) -> Owned {
        let head = self.head();
        match head.owner() {
            Some(owner) if owner == me && (!keyed || head.is_keyed()) => Owned::Mine,
            Some(owner) if owner == me && !head.is_shared() && !head.is_waited() => {
                self.set_head(head.with_keyed(true));
                Owned::Mine
            }
            Some(_) => Owned::Others,
            None if self.is_live() && (head.is_shared() || head.is_waited()) => Owned::Others,
            None if !self.is_live() => Owned::Dead,
            None => {
                self.set_head(head.with_owner(Some(me)).with_keyed(keyed));
                Owned::Newly
            }
        }
    }

    /// Whether the version in place is a row.
    pub fn is_live(&self) -> bool {
        self.load(FLAGS) & LIVE != 0
    }

    /// The state that it was latched in, for [`Slot::is_unchanged`].
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// A word of the persistent part.
    pub fn load(&self, at: usize) -> u64 {
        self.words[VOLATILE_WORDS + at].load(Ordering::Relaxed)
    }

    pub fn set_head(&mut self, head: Head) {
        self.changed = true;
        self.words[1].store(head.pack(), Ordering::Relaxed);
    }

    /// Stores a word of the persistent part.
    pub fn set(&mut self, at: usize, word: u64) {
        self.changed = true;
        self.words[VOLATILE_WORDS + at].store(word, Ordering::Relaxed);
    }

    pub fn copy(&self, out: &mut [u64]) {
        for (to, from) in out.iter_mut().zip(&self.words[VOLATILE_WORDS..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        latch::unlatch(&self.words[0], self.seen, self.changed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_its_parts_apart() {
        let head = Head::default().with_owner(Some(SessionNo(41))).with_dirty(true).with_node(NodeRef(7));
        assert_eq!(Head::unpack(head.pack()), head);
        let waited = head.with_waited(true);
        assert_eq!(waited.owner(), Some(SessionNo(41)));
        let handed_on = waited.with_dirty(false).with_owner(Some(SessionNo(3)));
        assert!(handed_on.is_waited() && !handed_on.is_dirty());
        assert_eq!(handed_on.owner(), Some(SessionNo(3)));
        assert_eq!(handed_on.with_owner(None).with_waited(false), Head::default().with_node(NodeRef(7)));
        let shared = handed_on.with_keyed(false).with_shared(true);
        assert!(handed_on.is_keyed() && !shared.is_keyed() && shared.is_shared() && shared.is_wanted());
        assert_eq!(shared.owner(), Some(SessionNo(3)));
        assert!(shared.with_owner(None).is_shared() && !shared.with_owner(None).is_free());
    }
}
