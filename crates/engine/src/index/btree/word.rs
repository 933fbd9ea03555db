//! Where does a key of one word lead? To the row of its first entry, mostly: a guess, for who looks at the row anyway. A thread that is told of keys
//! some lookups ahead goes down once for each: it remembers which leaf it has begun to load.
//!
//! A leaf has sixteen lines, of which a lookup wants three: header, key, row id. Which they are is told by the bounds that its parent knows, if keys lie
//! evenly between them, as numbers given out in turn do.
//!
//! 1. What is remembered is a link to a leaf that covered the key's first entry when it was found. In one life a leaf's lower bound never changes
//!    (`node` invariant 4) and the link names the life: so the leaf, if it lives, covers that entry or is left of the one that does.
//! 2. Trees are told apart by a number that none gets twice in a process.
//! 3. Where in a leaf an entry is thought to be decides what is loaded and looked at first, and nothing else.

use super::node::{At, Link, Node};
use super::{BTreeIndex, row_id};
use crate::ids::RowId;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More than any event loop knows ahead, so that few of them fall into one place.
const PLACES: usize = 64;
/// Entries on each side of the one that is thought to be wanted whose lines are loaded too: where keys lie side by side, and where they do not.
const REACH_DENSE: usize = 1;
const REACH: usize = 8;
/// Of how many trees a thread keeps apart how well it guesses.
const TREES: usize = 8;
/// A wrong guess counts as so many right ones.
const STRAY: u32 = 8;
const STRAYS_MANY: u32 = 8 * STRAY;
const STRAYS_MAX: u32 = 16 * STRAY;

/// A leaf, and which of its entries is thought to be the key's first, or one so near.
#[derive(Clone, Copy)]
struct Place {
    leaf: Link,
    entry: usize,
    reach: usize,
}

/// Nothing is thought of the leaf's entries.
const ANYWHERE: Place = Place { leaf: Link::NONE, entry: 0, reach: usize::MAX };

#[derive(Clone, Copy)]
struct Seen {
    tree: u64,
    key: u64,
    place: Place,
}

const UNSEEN: Seen = Seen { tree: 0, key: 0, place: ANYWHERE };

std::thread_local! {
    static SEEN: [Cell<Seen>; PLACES] = const { [const { Cell::new(UNSEEN) }; PLACES] };
    /// How often entries lay elsewhere than thought, lately.
    static STRAYS: [Cell<u32>; TREES] = const { [const { Cell::new(0) }; TREES] };
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The next tree's number.
pub(super) fn number() -> u64 {
    NUMBER.fetch_add(1, Relaxed)
}

#[inline]
fn at(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2())) as usize
}

/// What a leaf says of a key.
enum Said {
    First(RowId),
    Absent,
    /// It has died, is being changed, or ends before the key.
    Nothing,
}

/// A child, and the bounds of the keys in it: above `low` if that is known, and not above `high`.
struct Child {
    link: Link,
    low: Option<u64>,
    high: Option<u64>,
}

impl BTreeIndex {
    /// Starts loading what a lookup of this key of one word will want, and remembers where that is for the thread's next
    /// [`guess`](Self::guess) of it.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        match self.remembered(key) {
            // Told of twice: some lookups ahead, and when its turn comes.
            Some(place) => self.load_entries(place),
            None => self.remember(key, self.find_place(key)),
        }
    }

    /// The row of the first entry of a key of one word, if it is easily found. Nothing follows from what this does not say.
    #[inline]
    pub fn guess(&self, key: u64) -> Option<RowId> {
        let known = self.remembered(key);
        if let Some(place) = known {
            match self.ask(place, key) {
                Said::First(row) => return Some(row),
                Said::Absent => return None,
                Said::Nothing => {}
            }
        }
        let place = self.find_place(key);
        if known.is_some() {
            self.remember(key, place);
        }
        match self.ask(place, key) {
            Said::First(row) => Some(row),
            Said::Absent | Said::Nothing => None,
        }
    }

    #[inline]
    fn remembered(&self, key: u64) -> Option<Place> {
        let seen = SEEN.with(|all| all[at(key)].get());
        (seen.tree == self.number && seen.key == key).then_some(seen.place)
    }

    #[inline]
    fn remember(&self, key: u64, place: Place) {
        SEEN.with(|all| all[at(key)].set(Seen { tree: self.number, key, place }));
    }

    /// The leaf that covers the key's first entry, or one left of it, on its way to the cache as far as it will be looked at.
    #[inline]
    fn find_place(&self, key: u64) -> Place {
        'again: loop {
            let (mut level, mut link) = self.top();
            let mut place = Place { leaf: link, ..ANYWHERE };
            while level > 0 {
                level -= 1;
                let Some(child) = self.child_of(link, key) else { continue 'again };
                link = child.link;
                match level {
                    0 => place = self.place_in(&child, key),
                    _ => self.inners.node(link.id()).prefetch(),
                }
            }
            self.load_entries(place);
            return place;
        }
    }

    /// Which entry of the child is thought to be wanted.
    #[inline]
    fn place_in(&self, child: &Child, key: u64) -> Place {
        let (leaf, capacity) = (child.link, self.leaves.capacity() as u64);
        let (Some(low), Some(high)) = (child.low, child.high) else {
            return Place { leaf, ..ANYWHERE };
        };
        let keys = high.saturating_sub(low).max(1);
        let before = key.saturating_sub(low).saturating_sub(1).min(keys - 1);
        let (entry, reach) = match keys <= capacity {
            true => (before, REACH_DENSE),
            false => (scaled(before, keys, capacity), REACH),
        };
        Place { leaf, entry: entry as usize, reach }
    }

    #[inline]
    fn load_entries(&self, place: Place) {
        let (leaf, Place { entry, reach, .. }) = (self.leaves.node(place.leaf.id()), place);
        match reach < ANYWHERE.reach && STRAYS.with(|all| all[self.stray_at()].get()) < STRAYS_MANY {
            true => leaf.prefetch_entries(entry.saturating_sub(reach), entry + reach),
            false => leaf.prefetch(),
        }
    }

    #[inline]
    fn stray_at(&self) -> usize {
        self.number as usize % TREES
    }

    /// Learns where the entry was.
    #[inline]
    fn note_strays(&self, place: Place, first: usize) {
        let is_stray = first.abs_diff(place.entry) > place.reach;
        STRAYS.with(|all| {
            let strays = &all[self.stray_at()];
            let before = strays.get();
            strays.set(if is_stray { (before + STRAY).min(STRAYS_MAX) } else { before.saturating_sub(1) });
        });
    }

    /// The child that covers the key's first entry, or one left of it, of an inner node that does so. Nothing if a node has died.
    #[inline]
    fn child_of(&self, link: Link, key: u64) -> Option<Child> {
        self.seen_of_child(link, At { key: &[key], row: 0 }, look_at)
    }

    #[inline]
    fn ask(&self, place: Place, key: u64) -> Said {
        let leaf = self.leaves.node(place.leaf.id());
        let Some(seen) = leaf.try_begin_read() else { return Said::Nothing };
        let (is_alive, count) = (leaf.is_meant_by(place.leaf), leaf.count());
        let first = leaf.first_word_not_below_near(count, key, place.entry);
        let is_there = first < count && leaf.key_equals(first, &[key]);
        let row = if is_there { leaf.row(first) } else { 0 };
        let is_sure = is_there || !leaf.is_below(At { key: &[key], row: 0 });
        self.note_strays(place, first);
        match leaf.end_read(seen) && is_alive && is_sure {
            true if is_there => Said::First(row_id(row)),
            true => Said::Absent,
            false => Said::Nothing,
        }
    }
}

/// `part` of `whole`, of which it is less, in so many parts.
#[inline]
fn scaled(part: u64, whole: u64, parts: u64) -> u64 {
    // Room for the product; what is shifted away is less than a part.
    let spare = (parts.ilog2() + 1).saturating_sub(whole.leading_zeros());
    (part >> spare) * parts / (whole >> spare)
}

#[inline]
fn look_at(node: Node<'_>, count: usize, i: usize) -> Child {
    let low = (i > 0).then(|| node.key_word(i - 1));
    // What stands in the place of the last child's high entry means nothing.
    let high = match i + 1 < count {
        true => Some(node.key_word(i)),
        false => (!node.right().is_none()).then(|| node.high_word()),
    };
    Child { link: node.child(i), low, high }
}
