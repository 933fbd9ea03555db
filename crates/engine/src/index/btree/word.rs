//! Where does a key of one word lead? To the row of its first entry, mostly: a guess, for who looks at the row anyway. A thread that is told of keys
//! some lookups ahead goes down once for each: it remembers which leaf it has begun to load.
//!
//! A leaf has sixteen lines, of which a lookup wants three: header, key, row id. Which they are is told by the bounds that its parent knows, if keys lie
//! evenly between them, as numbers given out in turn do. Of a large tree `hints` tells the leaf and its bounds without going down.
//!
//! 1. What is remembered of a leaf that was found by going down is a link to one that covered the key's first entry then. In one life a leaf's lower
//!    bound never changes (`node` invariant 4) and the link names the life: so the leaf, if it lives, covers that entry or is left of the one that does.
//!    A leaf that a hint names may be any. If it lives, and has an entry below the key, its lower bound is below the key: so it covers the key's first
//!    entry or is left of the one that does. If it has none, nothing follows.
//! 2. Trees are told apart by a number that none gets twice in a process.
//! 3. Where in a leaf an entry is thought to be decides what is loaded and looked at first, and nothing else.

use super::hints::{Hint, Told, lot_of};
use super::node::{At, Link, Node};
use super::{BTreeIndex, row_id};
use crate::ids::RowId;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Many more than any event loop knows ahead, so that few of them fall into one place.
const PLACES: usize = 256;
/// Entries on each side of the one that is thought to be wanted whose lines are loaded too: where keys lie side by side, and where they do not.
const REACH_DENSE: usize = 1;
const REACH: usize = 8;
/// Of how many trees a thread keeps apart how well it guesses.
const TREES: usize = 8;
/// A wrong guess counts as so many right ones.
const STRAY: u32 = 8;
const STRAYS_MANY: u32 = 8 * STRAY;
const STRAYS_MAX: u32 = 16 * STRAY;
/// Hints are heeded while not many more are wrong than right: a wrong one costs about as much as a right one saves.
const HINT_STRAYS_MANY: u32 = 64;
const HINT_STRAYS_MAX: u32 = 128;
/// Of so many keys one asks hints though they are not heeded, to find out when they are right again.
const PROBES: u64 = 64;
/// Of so many leaves that were found without a look at hints one is noted.
const UNHEEDED: u64 = 16;
/// Guesses that go by before what was told last is followed: two are made of a key that comes ahead of another's turn.
const PATIENCE: u8 = 2;
/// Keys that come alone, until the next one is thought to do so too.
const ALONE_MANY: u8 = 3;

/// A leaf, and which of its entries is thought to be the key's first, or one so near.
#[derive(Clone, Copy)]
struct Place {
    leaf: Link,
    entry: usize,
    reach: usize,
    /// A hint says so: not that it covers the key or is left of who does.
    is_hinted: bool,
}

/// Nothing is thought of the leaf's entries.
const ANYWHERE: Place = Place { leaf: Link::NONE, entry: 0, reach: usize::MAX, is_hinted: false };

#[derive(Clone, Copy)]
struct Seen {
    tree: u64,
    key: u64,
    place: Place,
}

const UNSEEN: Seen = Seen { tree: 0, key: 0, place: ANYWHERE };

/// The key that was told last, and its tree.
#[derive(Clone, Copy)]
struct Ahead {
    tree: u64,
    key: u64,
    stage: Stage,
    /// Guesses of other keys since.
    guesses: u8,
    /// How often, lately, a key was asked for before another one was told.
    alone: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its line of hints is on its way.
    Line,
    /// Its leaf is.
    Leaf,
    Asked,
}

const NOTHING_AHEAD: Ahead = Ahead { tree: 0, key: 0, stage: Stage::Asked, guesses: 0, alone: ALONE_MANY };

std::thread_local! {
    static SEEN: [Cell<Seen>; PLACES] = const { [const { Cell::new(UNSEEN) }; PLACES] };
    /// How often entries lay elsewhere than thought, lately.
    static STRAYS: [Cell<u32>; TREES] = const { [const { Cell::new(0) }; TREES] };
    /// How often hints were wrong, lately.
    static HINT_STRAYS: [Cell<u32>; TREES] = const { [const { Cell::new(0) }; TREES] };
    /// Of each tree the key that was told last, until another one is.
    static AHEAD: [Cell<Ahead>; TREES] = const { [const { Cell::new(NOTHING_AHEAD) }; TREES] };
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
            None => self.be_told(key),
        }
    }

    /// Of keys that come one behind another a line of hints is waited for while the next one is told. A key that comes alone has nobody to wait beside:
    /// the inner nodes are nearer than its line.
    #[inline]
    fn be_told(&self, key: u64) {
        let before = self.ahead();
        let alone = if before.stage == Stage::Asked { before.alone } else { 0 };
        let has_line = alone < ALONE_MANY && self.heeds_hints(key) && self.hints.load(key);
        let stage = if has_line { Stage::Line } else { Stage::Leaf };
        if !has_line {
            self.remember(key, self.go_down(key, false));
        }
        self.put_ahead(Ahead { tree: self.number, key, stage, guesses: 0, alone });
        self.follow(before);
    }

    /// The row of the first entry of a key of one word, if it is easily found. Nothing follows from what this does not say.
    #[inline]
    pub fn guess(&self, key: u64) -> Option<RowId> {
        let was_told = self.note_guess(key);
        let known = self.remembered(key);
        let place = match known {
            Some(place) => place,
            None if was_told => self.find_place(key),
            None => self.go_down(key, false),
        };
        let said = self.ask(place, key);
        if place.is_hinted {
            self.note_hint(!matches!(said, Said::Nothing));
        }
        match said {
            Said::First(row) => return Some(row),
            Said::Absent => return None,
            Said::Nothing if known.is_none() && !place.is_hinted => return None,
            Said::Nothing => {}
        }
        let place = self.go_down(key, place.is_hinted);
        if known.is_some() {
            self.remember(key, place);
        }
        match self.ask(place, key) {
            Said::First(row) => Some(row),
            Said::Absent | Said::Nothing => None,
        }
    }

    /// As `prefetch`, for an insert: it goes down itself, by the nodes that this loads.
    #[inline]
    pub fn prefetch_way(&self, key: u64) {
        self.remember(key, self.go_down(key, false));
    }

    #[inline]
    fn of_tree(&self) -> usize {
        self.number as usize % TREES
    }

    #[inline]
    fn ahead(&self) -> Ahead {
        let ahead = AHEAD.with(|all| all[self.of_tree()].get());
        if ahead.tree == self.number { ahead } else { NOTHING_AHEAD }
    }

    #[inline]
    fn put_ahead(&self, ahead: Ahead) {
        AHEAD.with(|all| all[self.of_tree()].set(ahead));
    }

    /// Its line is there by now: begins to load its leaf.
    #[inline]
    fn follow(&self, ahead: Ahead) {
        if ahead.stage == Stage::Line {
            self.remember(ahead.key, self.find_place(ahead.key));
        }
    }

    /// Whether the key was told last. If another one was, and nothing is told any more, that is followed.
    #[inline]
    fn note_guess(&self, key: u64) -> bool {
        let ahead = self.ahead();
        if ahead.stage == Stage::Asked {
            return false;
        }
        if ahead.key == key {
            self.put_ahead(Ahead { stage: Stage::Asked, alone: (ahead.alone + 1).min(ALONE_MANY), ..ahead });
        } else if ahead.guesses < PATIENCE {
            self.put_ahead(Ahead { guesses: ahead.guesses + 1, ..ahead });
        } else if ahead.stage == Stage::Line {
            self.put_ahead(Ahead { stage: Stage::Leaf, ..ahead });
            self.follow(ahead);
        }
        ahead.key == key
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

    /// The leaf that has the key, as far as can be told at once, on its way to the cache as far as it will be looked at.
    #[inline]
    fn find_place(&self, key: u64) -> Place {
        let has_line = self.heeds_hints(key);
        if has_line {
            match self.hints.look(key) {
                Told::Leaf(Hint { leaf, low, high }) => {
                    let place = self.place_in(&Child { link: leaf, low: Some(low), high: Some(high) }, key);
                    self.load_entries(place);
                    return Place { is_hinted: true, ..place };
                }
                Told::Others => self.note_hint(false),
                Told::Nothing => {}
            }
        }
        self.go_down(key, has_line)
    }

    /// The leaf that covers the key's first entry, or one left of it, on its way to the cache as far as it will be looked at. `has_line`: the key's line
    /// of hints is in the cache.
    fn go_down(&self, key: u64, has_line: bool) -> Place {
        #[cfg(test)]
        tests::DESCENTS.with(|n| n.set(n.get() + 1));
        'again: loop {
            let (mut level, mut link) = self.top();
            let mut place = Place { leaf: link, ..ANYWHERE };
            let mut low = None;
            while level > 0 {
                level -= 1;
                let Some(mut child) = self.child_of(link, key) else { continue 'again };
                link = child.link;
                // A node's first child begins where the node does.
                low = child.low.or(low);
                child.low = low;
                match level {
                    0 => {
                        place = self.place_in(&child, key);
                        self.note_leaf(&child, key, has_line);
                    }
                    _ => self.inners.node(link.id()).prefetch(),
                }
            }
            self.load_entries(place);
            return place;
        }
    }

    /// What a hint may say from now on: of all that had a look at the line, and of some who would wait for it.
    #[inline]
    fn note_leaf(&self, child: &Child, key: u64, has_line: bool) {
        if let (Some(low), Some(high)) = (child.low, child.high)
            && (has_line || lot_of(key).is_multiple_of(UNHEEDED))
        {
            let hint = Hint { leaf: child.link, low, high };
            let take = |bytes| self.account.get().is_none_or(|account| account.take_for_speed(bytes));
            self.hints.note(key, hint, self.leaves.count(), take);
        }
    }

    /// Whether hints are worth a look: if not, it is found out by a part of the keys when they are again.
    #[inline]
    fn heeds_hints(&self, key: u64) -> bool {
        HINT_STRAYS.with(|all| all[self.of_tree()].get()) < HINT_STRAYS_MANY || lot_of(key).is_multiple_of(PROBES)
    }

    #[inline]
    fn note_hint(&self, was_right: bool) {
        HINT_STRAYS.with(|all| {
            let strays = &all[self.of_tree()];
            let before = strays.get();
            strays.set(if was_right { before.saturating_sub(1) } else { (before + 1).min(HINT_STRAYS_MAX) });
        });
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
        Place { leaf, entry: entry as usize, reach, is_hinted: false }
    }

    #[inline]
    fn load_entries(&self, place: Place) {
        let (leaf, Place { entry, reach, .. }) = (self.leaves.node(place.leaf.id()), place);
        match reach < ANYWHERE.reach && STRAYS.with(|all| all[self.of_tree()].get()) < STRAYS_MANY {
            true => leaf.prefetch_entries(entry.saturating_sub(reach), entry + reach),
            false => leaf.prefetch(),
        }
    }

    /// Learns where the entry was.
    #[inline]
    fn note_strays(&self, place: Place, first: usize) {
        let is_stray = first.abs_diff(place.entry) > place.reach;
        STRAYS.with(|all| {
            let strays = &all[self.of_tree()];
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
        let begins_below = !place.is_hinted || first > 0;
        let is_sure = begins_below && (is_there || !leaf.is_below(At { key: &[key], row: 0 }));
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

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    std::thread_local! {
        /// How often this thread went down for a key.
        pub static DESCENTS: Cell<u64> = const { Cell::new(0) };
    }
}
