use super::*;
use crate::sync::Arc;

#[cfg(not(loom))]
fn tiny(width: usize) -> BTreeIndex {
    BTreeIndex::with_shapes(Shape::new(width, 3, false), Shape::new(width, 4, true))
}

/// Keys of `width` words and more.
#[cfg(not(loom))]
fn tiny_with_tails(width: usize) -> BTreeIndex {
    let shape = |capacity, is_inner| Shape::new(width + 1, capacity, is_inner).with_tails();
    BTreeIndex::with_shapes(shape(3, false), shape(4, true))
}

fn collect(tree: &BTreeIndex, lower: Bound<&[u64]>, upper: Bound<&[u64]>, direction: Direction) -> Vec<Vec<u64>> {
    let mut cursor = tree.scan(lower, upper, direction);
    let mut entries = Entries::new();
    let mut all = Vec::new();
    while cursor.next_batch(tree, &mut entries) {
        all.extend(entries.iter().map(|(key, row)| At { key, row: row.0 }.words().collect::<Vec<_>>()));
    }
    assert!(!cursor.next_batch(tree, &mut entries) && entries.is_empty(), "a finished cursor stays finished");
    all
}

fn rows_of(tree: &BTreeIndex, key: &[u64]) -> Vec<u64> {
    let mut rows = Vec::new();
    let _: ControlFlow<()> = tree.lookup(key, |row| {
        rows.push(row.0);
        ControlFlow::Continue(())
    });
    rows
}

/// The links of a quiescent tree agree with its separators: each level, followed from the left, is in order and within
/// its high entries, and each inner node's children begin and end where it says.
fn check_structure(tree: &BTreeIndex) {
    let (top, root) = tree.root.load();
    check_node(tree, top, root, &[], &[]);
    let mut id = root;
    for level in (1..=top).rev() {
        let mut next = tree.inners.node(id).link(id);
        let mut count = 0;
        while !next.is_none() {
            let node = tree.inners.node(next.id());
            assert!(node.is_meant_by(next), "level {level} links to the living");
            count += 1;
            next = node.right();
        }
        assert!(count > 0, "level {level} has nodes");
        id = tree.inners.node(id).child(0).id();
    }
    #[cfg(not(loom))]
    check_tails(tree);
}

/// The blocks in use are those of the entries that mean something: none is lost, and none is two entries'.
#[cfg(not(loom))]
fn check_tails(tree: &BTreeIndex) {
    let Some(tails) = &tree.tails else { return };
    let (top, mut id) = tree.root.load();
    let mut blocks = 0;
    for level in (0..=top).rev() {
        let nodes = tree.nodes(level);
        let mut next = nodes.node(id).link(id);
        while !next.is_none() {
            let node = nodes.node(next.id());
            let mut entry = Vec::new();
            for i in 0..node.count() - usize::from(level > 0) {
                node.copy_entry(i, &mut entry);
                blocks += tree.tail_blocks(&entry[..entry.len() - 1]);
            }
            next = node.right();
            if !next.is_none() {
                node.copy_high(&mut entry);
                blocks += tree.tail_blocks(&entry[..entry.len() - 1]);
            }
        }
        if level > 0 {
            id = nodes.node(id).child(0).id();
        }
    }
    assert_eq!(tails.used_blocks(), blocks);
}

fn check_node(tree: &BTreeIndex, level: usize, id: u32, low: &[u64], high: &[u64]) {
    let node = tree.nodes(level).node(id);
    let count = node.count();
    let mut own_high = Vec::new();
    node.copy_high(&mut own_high);
    if !node.right().is_none() {
        assert_eq!(own_high, high, "node {id} of level {level} ends where its parent says");
    }
    if level == 0 {
        let entries: Vec<Vec<u64>> = (0..count)
            .map(|i| {
                let mut entry = Vec::new();
                node.copy_entry(i, &mut entry);
                entry
            })
            .collect();
        let entries: Vec<At<'_>> = entries.iter().map(|entry| At::of(entry)).collect();
        assert!(entries.is_sorted(), "leaf {id} is in order");
        assert!(entries.iter().all(|entry| low.is_empty() || *entry > At::of(low)), "leaf {id} keeps its lower bound");
        assert!(
            entries.iter().all(|entry| high.is_empty() || *entry <= At::of(high)),
            "leaf {id} keeps its high entry"
        );
        return;
    }
    assert!(count > 0, "inner node {id} has a child");
    let mut begin = low.to_vec();
    for i in 0..count {
        let mut end = Vec::new();
        if i + 1 < count {
            node.copy_entry(i, &mut end);
        } else {
            end.extend_from_slice(high);
        }
        let child = node.child(i);
        assert!(tree.nodes(level - 1).node(child.id()).is_meant_by(child), "child {i} of {id} is alive");
        check_node(tree, level - 1, child.id(), &begin, &end);
        begin = end;
    }
}

#[cfg(not(any(loom, shuttle)))]
mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Vec<u64>, u64),
        Remove(Vec<u64>, u64),
        Scan(Bound<Vec<u64>>, Bound<Vec<u64>>),
        Lookup(Vec<u64>),
    }

    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![6 => 0..12u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
    }

    fn key(width: usize) -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(word(), width)
    }

    fn bound(width: usize) -> impl Strategy<Value = Bound<Vec<u64>>> {
        prop_oneof![
            Just(Bound::Unbounded),
            key(width).prop_map(Bound::Included),
            key(width).prop_map(Bound::Excluded),
            // A prefix range, as callers pad it.
            (word(), prop::bool::ANY).prop_map(move |(first, high)| {
                let mut key = vec![if high { u64::MAX } else { 0 }; width];
                key[0] = first;
                Bound::Included(key)
            }),
        ]
    }

    fn op(width: usize) -> impl Strategy<Value = Op> {
        op_with(key(width).boxed(), bound(width).boxed())
    }

    fn op_with(key: BoxedStrategy<Vec<u64>>, bound: BoxedStrategy<Bound<Vec<u64>>>) -> impl Strategy<Value = Op> {
        prop_oneof![
            5 => (key.clone(), 0..20u64).prop_map(|(key, row)| Op::Insert(key, row)),
            2 => (key.clone(), 0..20u64).prop_map(|(key, row)| Op::Remove(key, row)),
            1 => (bound.clone(), bound).prop_map(|(lower, upper)| Op::Scan(lower, upper)),
            1 => key.prop_map(Op::Lookup),
        ]
    }

    /// Keys of two words and more, many of which are alike for long, or are the beginning of others.
    fn long_key() -> BoxedStrategy<Vec<u64>> {
        let alike = (0..3usize, 0..4u64, 0..3u64).prop_map(|(size, at, last)| {
            let mut key = vec![7; [3, 9, 30][size]];
            let at = key.len() - 1 - at as usize % (key.len() - 1);
            key[at] = last + 6;
            key
        });
        let beginning = (2..26usize).prop_map(|len| vec![7; len]);
        let other = prop::collection::vec(word(), 2..12);
        prop_oneof![6 => alike, 2 => beginning, 2 => other].boxed()
    }

    fn long_bound() -> BoxedStrategy<Bound<Vec<u64>>> {
        prop_oneof![1 => Just(Bound::Unbounded), 4 => long_key().prop_map(Bound::Included)].boxed()
    }

    fn check(tree: &BTreeIndex, ops: &[Op]) {
        let mut model: BTreeSet<(Vec<u64>, u64)> = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert(key, row) => {
                    assert_eq!(tree.insert(key, RowId(*row)), model.insert((key.clone(), *row)));
                }
                Op::Remove(key, row) => {
                    assert_eq!(tree.remove(key, RowId(*row), || false), model.remove(&(key.clone(), *row)));
                }
                Op::Lookup(key) => {
                    let expected: Vec<u64> =
                        model.range((key.clone(), 0)..=(key.clone(), u64::MAX)).map(|entry| entry.1).collect();
                    assert_eq!(rows_of(tree, key), expected);
                }
                Op::Scan(lower, upper) => {
                    let within = |key: &Vec<u64>| {
                        let above = match lower {
                            Bound::Unbounded => true,
                            Bound::Included(bound) => key >= bound,
                            Bound::Excluded(bound) => key > bound,
                        };
                        let below = match upper {
                            Bound::Unbounded => true,
                            Bound::Included(bound) => key <= bound,
                            Bound::Excluded(bound) => key < bound,
                        };
                        above && below
                    };
                    let mut expected: Vec<Vec<u64>> = model
                        .iter()
                        .filter(|(key, _)| within(key))
                        .map(|(key, row)| At { key, row: *row }.words().collect())
                        .collect();
                    let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                    assert_eq!(collect(tree, lower, upper, Direction::Forward), expected);
                    expected.reverse();
                    assert_eq!(collect(tree, lower, upper, Direction::Backward), expected);
                }
            }
        }
        assert_eq!(tree.len(), model.len());
        check_structure(tree);
    }

    proptest! {
        #[test]
        fn one_word_keys_are_an_ordered_set(ops in prop::collection::vec(op(1), 0..400)) {
            check(&tiny(1), &ops);
        }

        #[test]
        fn three_word_keys_are_an_ordered_set(ops in prop::collection::vec(op(3), 0..300)) {
            check(&tiny(3), &ops);
        }

        #[test]
        fn nodes_of_real_size_are_an_ordered_set(ops in prop::collection::vec(op(2), 0..900)) {
            check(&BTreeIndex::new(2), &ops);
        }

        #[test]
        fn keys_of_different_lengths_are_an_ordered_set(
            ops in prop::collection::vec(op_with(long_key(), long_bound()), 0..300)
        ) {
            check(&tiny_with_tails(2), &ops);
        }

        #[test]
        fn nodes_of_real_size_have_keys_of_different_lengths(
            ops in prop::collection::vec(op_with(long_key(), long_bound()), 0..700)
        ) {
            check(&BTreeIndex::with_tails(2), &ops);
        }

        #[test]
        fn bulk_build_takes_keys_of_different_lengths(
            entries in prop::collection::btree_set((long_key(), 0..5u64), 0..300),
            at in any::<prop::sample::Index>(),
            ops in prop::collection::vec(op_with(long_key(), long_bound()), 0..100),
        ) {
            let built = tiny_with_tails(2);
            let entries: Vec<_> = entries.into_iter().collect();
            let (left, right) = entries.split_at(if entries.is_empty() { 0 } else { at.index(entries.len()) });
            let part = |is_first, part: &[(Vec<u64>, u64)]| {
                built.build_part(is_first, part.iter().map(|(key, row)| (key.clone(), RowId(*row))))
            };
            let parts = [part(true, left), part(false, right)];
            built.join(parts.into_iter());
            check_structure(&built);
            let mut found = Vec::new();
            built.lookup_batch(entries.len(), |i| &entries[i].0, |i, row| found.push((i, row.0)));
            for (i, (key, row)) in entries.iter().enumerate() {
                prop_assert!(found.contains(&(i, *row)));
                prop_assert!(built.remove(key, RowId(*row), || false));
            }
            check(&built, &ops);
        }

        #[test]
        fn bulk_build_makes_a_tree_like_any_other(
            entries in prop::collection::btree_set((key(2), 0..5u64), 0..300),
            ops in prop::collection::vec(op(2), 0..100),
        ) {
            let mut built = tiny(2);
            built.fill(entries.iter().map(|(key, row)| (key, RowId(*row))));
            check_structure(&built);
            let mut replay: Vec<Op> = Vec::new();
            for (key, row) in &entries {
                prop_assert!(!built.insert(key, RowId(*row)), "it has what it was built from");
                replay.push(Op::Insert(key.clone(), *row));
            }
            prop_assert_eq!(built.len(), entries.len());
            for (key, row) in &entries {
                prop_assert!(built.remove(key, RowId(*row), || false));
            }
            replay.extend(ops);
            check(&built, &replay);
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod plain {
    use super::*;
    use crate::mem::Budget;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
    use std::thread;

    /// The finaliser of splitmix64: keys in no order.
    fn scattered(i: u64) -> u64 {
        let mut x = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// A refused insert leaves the tree as it was; unique or not, what finds room in its leaf needs nothing.
    #[test]
    fn a_split_is_asked_for_first() {
        for unique in [false, true] {
            let budget = Arc::new(Budget::new(64 << 10));
            let tree = BTreeIndex::new(1);
            tree.charge_to(Arc::new(Account::of_ordered(&budget)));
            let insert = |i: u64, claim| match unique {
                true => tree.try_insert_unique(&[scattered(i)], RowId(i), claim, |_| Probe::Ignore),
                false => tree.try_insert(&[scattered(i)], RowId(i), claim),
            };
            let refused: Vec<u64> =
                (0..20_000).filter(|&i| insert(i, Claim::Growth) == Err(Conflict::OutOfMemory)).collect();
            // The nodes above the last leaf were forced.
            assert!(budget.used_bytes() <= 57 << 10, "{} bytes", budget.used_bytes());
            assert!(refused.len() > 15_000 && refused[0] > 500, "{} from {} on", refused.len(), refused[0]);
            check_structure(&tree);
            for i in 0..20_000 {
                let found = rows_of(&tree, &[scattered(i)]).contains(&i);
                assert_eq!(found, refused.binary_search(&i).is_err(), "entry {i}");
            }
            refused.iter().for_each(|&i| assert_eq!(insert(i, Claim::Forced), Ok(true)));
            check_structure(&tree);
            assert_eq!(tree.len(), 20_000);
            drop(tree);
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    /// Sixty bytes that all keys begin with, and more behind.
    fn long_key(i: u64) -> Vec<u64> {
        let mut key = vec![0x7777_7777; 8];
        key.extend([scattered(i), i, scattered(i + 1)].iter().take(1 + i as usize % 3));
        key
    }

    /// A refused insert leaves nothing of its key behind; what was freed is used again before more is asked for.
    #[test]
    fn tails_are_asked_for_first() {
        for unique in [false, true] {
            let budget = Arc::new(Budget::new(256 << 10));
            let tree = BTreeIndex::with_tails(4);
            tree.charge_to(Arc::new(Account::of_ordered(&budget)));
            let insert = |i: u64, claim| match unique {
                true => tree.try_insert_unique(&long_key(i), RowId(i), claim, |_| Probe::Ignore),
                false => tree.try_insert(&long_key(i), RowId(i), claim),
            };
            let refused: Vec<u64> =
                (0..5_000).filter(|&i| insert(i, Claim::Growth) == Err(Conflict::OutOfMemory)).collect();
            assert!(refused.len() > 3_000 && refused[0] > 500, "{} from {} on", refused.len(), refused[0]);
            assert_eq!(tree.memory_bytes() as u64, budget.used_bytes());
            check_structure(&tree);
            for i in 0..5_000 {
                let found = rows_of(&tree, &long_key(i)).contains(&i);
                assert_eq!(found, refused.binary_search(&i).is_err(), "entry {i}");
            }
            let used = budget.used_bytes();
            let there = |i: &u64| refused.binary_search(i).is_err();
            (0..5_000).filter(there).for_each(|i| assert!(tree.remove(&long_key(i), RowId(i), || false)));
            check_structure(&tree);
            (0..5_000).filter(there).rev().for_each(|i| assert_eq!(insert(i, Claim::Forced), Ok(true)));
            check_structure(&tree);
            assert!(budget.used_bytes() <= used + used / 8, "{used} bytes, then {}", budget.used_bytes());
            drop(tree);
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    /// Constant long keys among others that come and go, whose words are soon those of others: nobody misses one or takes one for another.
    #[test]
    fn readers_never_miss_a_long_constant_key_beside_merges() {
        const CONSTANT: u64 = 40;
        let constant = |i: u64| {
            let mut key = vec![0x7777_7777; 8];
            key.extend([i << 32, 5]);
            key
        };
        let tree = tiny_with_tails(2);
        (0..CONSTANT).for_each(|i| assert!(tree.insert(&constant(i), RowId(i))));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (1..3u64)
                .map(|writer| {
                    let tree = &tree;
                    scope.spawn(move || {
                        for round in 0..60 {
                            let key = |i: u64| {
                                let mut key = vec![0x7777_7777; 8];
                                key.push(scattered(i + 1000 * writer) >> 27 | 1);
                                key.extend((0..(i + round) % 20).map(|word| word * writer));
                                key
                            };
                            let row = RowId(1000 * writer + round);
                            (0..200).for_each(|i| assert!(tree.insert(&key(i), row)));
                            (0..200).for_each(|i| assert!(tree.remove(&key(i), row, || false)));
                        }
                    })
                })
                .collect();
            for reader in 0..2u64 {
                let (tree, done) = (&tree, &done);
                scope.spawn(move || {
                    let keys: Vec<Vec<u64>> = (0..CONSTANT).map(constant).collect();
                    let mut round = reader;
                    while !done.load(Acquire) {
                        for i in 0..CONSTANT {
                            assert_eq!(rows_of(tree, &constant(i)), [i]);
                            assert!(tree.contains(&constant(i), RowId(i)));
                        }
                        let mut found = Vec::new();
                        tree.lookup_batch(keys.len(), |i| &keys[i], |i, row| found.push((i as u64, row.0)));
                        assert!(found.into_iter().eq((0..CONSTANT).map(|i| (i, i))));
                        round += 1;
                        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
                        let (low, high) = (constant(0), constant(CONSTANT));
                        let bounds = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
                        let mut all = collect(tree, bounds.0, bounds.1, direction);
                        if direction == Direction::Backward {
                            all.reverse();
                        }
                        assert!(all.is_sorted_by(|a, b| At::of(a) < At::of(b)), "in order, each once");
                        all.retain(|entry| entry[entry.len() - 1] < CONSTANT);
                        let expected = (0..CONSTANT).map(|i| {
                            let mut entry = constant(i);
                            entry.push(i);
                            entry
                        });
                        assert!(all.into_iter().eq(expected));
                    }
                });
            }
            writers.into_iter().for_each(|writer| writer.join().expect("a writer does not panic"));
            done.store(true, Release);
        });
        check_structure(&tree);
        assert_eq!(tree.len() as u64, CONSTANT);
    }

    /// Of rivals for a key that begins as all others do each meets the rows of this key alone.
    #[test]
    fn one_of_many_inserters_wins_a_long_key() {
        const KEYS: u64 = 300;
        let tree = tiny_with_tails(2);
        let won: usize = thread::scope(|scope| {
            let rivals: Vec<_> = (0..4u64)
                .map(|thread| {
                    let tree = &tree;
                    scope.spawn(move || {
                        let insert = |key: u64| {
                            let mut met = 0;
                            let inserted = tree.insert_unique(&long_key(key), RowId(key * 4 + thread), |other| {
                                met += 1;
                                assert_eq!(other.0 / 4, key, "a row of another key");
                                Probe::Duplicate
                            });
                            assert!(met <= 1);
                            inserted == Ok(true)
                        };
                        (0..KEYS).map(|i| (i * 7 + thread) % KEYS).filter(|&key| insert(key)).count()
                    })
                })
                .collect();
            rivals.into_iter().map(|rival| rival.join().expect("no thread panics")).sum()
        });
        assert_eq!(won as u64, KEYS);
        check_structure(&tree);
    }

    #[test]
    fn the_widest_keys_work() {
        let tree = BTreeIndex::new(BTreeIndex::WIDTH_MAX);
        let key = |i: u64| {
            let mut key = vec![7; BTreeIndex::WIDTH_MAX];
            key[BTreeIndex::WIDTH_MAX - 1] = scattered(i);
            key
        };
        for i in 0..500 {
            assert!(tree.insert(&key(i), RowId(i)));
        }
        for i in 0..500 {
            assert_eq!(rows_of(&tree, &key(i)), [i]);
        }
        check_structure(&tree);
    }

    #[test]
    fn leaves_are_full_after_ascending_inserts_and_two_thirds_after_random_ones() {
        let fill = |keys: &mut dyn Iterator<Item = u64>| {
            let tree = BTreeIndex::new(1);
            keys.for_each(|key| assert!(tree.insert(&[key], RowId(key & 0xffff))));
            tree.len() as f64 / (tree.leaves.memory_bytes() as f64 / 1024.0 * Shape::leaf(1).capacity as f64)
        };
        let ascending = fill(&mut (0..20_000));
        assert!(ascending > 0.98, "ascending: {ascending}");
        let descending = fill(&mut (0..20_000).rev());
        assert!(descending > 0.95, "descending: {descending}");
        let random = fill(&mut (0..20_000).map(scattered));
        assert!(random > 0.65, "random: {random}");
        // A hundred instruments, each in the order of time.
        let runs = fill(&mut (0..20_000).map(|i| (i % 100) << 32 | i));
        assert!(runs > 0.65, "runs: {runs}");
    }

    #[test]
    fn a_unique_insert_sees_all_entries_of_its_key_and_nothing_else() {
        let tree = tiny(1);
        for row in 0..50 {
            tree.insert(&[5], RowId(row));
            tree.insert(&[4], RowId(row));
            tree.insert(&[6], RowId(row));
        }
        for own in [0, 13, 49, 50] {
            let mut seen = Vec::new();
            let result = tree.insert_unique(&[5], RowId(own), |row| {
                seen.push(row.0);
                Probe::Ignore
            });
            assert_eq!(result, Ok(own == 50));
            assert_eq!(seen, (0..50).filter(|&row| row != own).collect::<Vec<_>>());
        }
        let objection = |at: u64, probe| move |row: RowId| if row.0 == at { probe } else { Probe::Ignore };
        let duplicate = tree.insert_unique(&[5], RowId(99), objection(30, Probe::Duplicate));
        assert_eq!(duplicate, Err(Conflict::Duplicate(RowId(30))));
        let wait = tree.insert_unique(&[5], RowId(99), objection(0, Probe::Wait));
        assert_eq!(wait, Err(Conflict::Wait(RowId(0))));
        assert!(!tree.contains(&[5], RowId(99)));
        // The latch went with the refusal.
        assert_eq!(tree.insert_unique(&[5], RowId(99), |_| Probe::Ignore), Ok(true));
        check_structure(&tree);
    }

    #[test]
    fn a_needed_entry_stays() {
        let tree = BTreeIndex::new(1);
        tree.insert(&[1], RowId(1));
        assert!(!tree.remove(&[1], RowId(1), || true));
        assert!(!tree.remove(&[1], RowId(2), || panic!("asked only of entries that are there")));
        assert!(tree.remove(&[1], RowId(1), || false));
        assert!(!tree.contains(&[1], RowId(1)));
    }

    #[test]
    fn a_panicking_probe_leaves_no_latch_behind() {
        let tree = BTreeIndex::new(1);
        tree.insert(&[1], RowId(1));
        let attempt = std::panic::AssertUnwindSafe(|| tree.insert_unique(&[1], RowId(2), |_| panic!("from the probe")));
        assert!(std::panic::catch_unwind(attempt).is_err());
        assert!(tree.insert(&[1], RowId(3)));
    }

    #[test]
    fn a_stamp_tells_of_inserts_and_splits_but_not_of_removals() {
        let tree = tiny(1);
        for key in [10, 20, 30] {
            tree.insert(&[key], RowId(1));
        }
        let stamp = || {
            let mut cursor = tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            assert!(cursor.next_batch(&tree, &mut Entries::new()));
            cursor.stamp()
        };
        let first = stamp();
        tree.remove(&[20], RowId(1), || false);
        assert!(tree.stamp_holds(first));
        tree.insert(&[25], RowId(1));
        assert!(!tree.stamp_holds(first));
        let full = stamp();
        tree.insert(&[35], RowId(1));
        assert!(!tree.stamp_holds(full), "what was split off had room for phantoms");
    }

    #[test]
    fn scans_go_on_through_splits_and_emptied_leaves() {
        let tree = tiny(1);
        (0..100).for_each(|i| assert!(tree.insert(&[i * 10], RowId(0))));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = tree.scan(Bound::Unbounded, Bound::Unbounded, direction);
            let mut entries = Entries::new();
            let mut met = Vec::new();
            while cursor.next_batch(&tree, &mut entries) {
                met.extend(entries.iter().map(|(key, _)| key[0]).filter(|key| key % 10 == 0));
                // Split where the scan is and where it will come.
                let here = entries.get(entries.len() - 1).0[0] / 10 * 10;
                for key in [here + 1, here + 11, here.saturating_sub(9), here + 21] {
                    tree.insert(&[key], RowId(1));
                }
            }
            let mut expected: Vec<u64> = (0..100).map(|i| i * 10).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            assert_eq!(met, expected);
        }
        let all = collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        for entry in &all {
            assert!(tree.remove(&entry[..1], RowId(entry[1]), || false));
        }
        assert!(tree.is_empty());
        assert!(collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward).is_empty());
        assert!(tree.insert(&[500], RowId(7)));
        assert_eq!(collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward), [[500, 7]]);
    }

    /// Keys in orders that let their places be told, and in orders that do not.
    #[test]
    fn a_guess_leads_to_the_first_row_of_its_key() {
        const KEYS: u64 = 20_000;
        let orders: [fn(u64) -> u64; 5] =
            [|i| i, |i| u64::MAX - 3 * i, scattered, |i| ((i / 7) << 40) | (i % 7), |i| (1 << (i % 64)) | (i << 50)];
        for order in orders {
            let tree = BTreeIndex::new(1);
            let mut first: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
            for i in 0..KEYS {
                tree.insert(&[order(i)], RowId(i));
                first.entry(order(i)).or_insert(i);
            }
            let keys: Vec<u64> = (0..KEYS).map(|i| order(scattered(i) % KEYS)).collect();
            for (i, &key) in keys.iter().enumerate() {
                keys.get(i + 16).into_iter().for_each(|&key| tree.prefetch(key));
                assert_eq!(tree.guess(key), first.get(&key).map(|&row| RowId(row)), "key {key}, known ahead");
            }
            let fresh = |key: u64| std::thread::scope(|scope| scope.spawn(|| tree.guess(key)).join()).expect("a guess");
            for &key in &keys[..50] {
                assert_eq!(fresh(key), Some(RowId(first[&key])), "key {key}");
                let absent = key.wrapping_add(1);
                assert_eq!(fresh(absent), first.get(&absent).map(|&row| RowId(row)), "key {absent}");
            }
        }
    }

    /// Looks all keys up, in an order of their own, some told ahead of those that are asked for. Gives how many of a hundred went down.
    fn descents_percent(tree: &BTreeIndex, keys: &[(u64, u64)], seed: u64) -> u64 {
        const KNOWN: usize = 16;
        let count = keys.len() as u64;
        let order: Vec<_> = (0..count).map(|i| keys[(scattered(i + seed) % count) as usize]).collect();
        let before = word::tests::DESCENTS.get();
        order[..KNOWN].iter().for_each(|&(key, _)| tree.prefetch(key));
        for (i, &(key, row)) in order.iter().enumerate() {
            order.get(i + KNOWN).into_iter().for_each(|&(ahead, _)| tree.prefetch(ahead));
            tree.prefetch(key);
            assert_eq!(tree.guess(key), Some(RowId(row)), "key {key}");
        }
        (word::tests::DESCENTS.get() - before) * 100 / count
    }

    #[test]
    fn keys_that_are_told_one_behind_another_seldom_go_down() {
        const KEYS: u64 = 40_000;
        let orders: [fn(u64) -> u64; 3] = [|i| i * 2, |i| scattered(i) & !1, |i| ((i / 1000) << 40) | (i % 1000 * 2)];
        for (number, order) in orders.iter().enumerate() {
            let budget = Arc::new(Budget::new(256 << 20));
            let tree = BTreeIndex::new(1);
            tree.charge_to(Arc::new(Account::of_ordered(&budget)));
            let mut keys = Vec::new();
            let add = |key: u64, row: u64, keys: &mut Vec<(u64, u64)>| {
                tree.insert(&[key], RowId(row));
                keys.push((key, row));
            };
            (0..KEYS / 2).for_each(|i| add(order(i), i, &mut keys));
            let settle = |keys: &[(u64, u64)]| (0..16).map(|seed| descents_percent(&tree, keys, seed)).last();
            let warm = settle(&keys);
            // More leaves than there are lines for.
            (KEYS / 2..KEYS).for_each(|i| add(order(i), i, &mut keys));
            let grown = settle(&keys);
            // Leaves split, and become half as wide.
            (0..KEYS).step_by(3).for_each(|i| add(order(i) | 1, i, &mut keys));
            let split = settle(&keys);
            // And their neighbours are merged.
            keys.retain(|&(key, row)| key & 1 == 0 || !tree.remove(&[key], RowId(row), || false));
            (0..KEYS).filter(|i| i % 4 > 0).for_each(|i| assert!(tree.remove(&[order(i)], RowId(i), || false)));
            keys.retain(|(_, row)| row % 4 == 0);
            let merged = settle(&keys);
            // Rows of keys far from each other may fall on the same lines, and what is left of leaves that were thinned out is of all widths.
            let most = if number == 2 { 60 } else { 20 };
            for (percent, most) in [(warm, most), (grown, most), (split, most), (merged, 2 * most)] {
                let all = [warm, grown, split, merged];
                assert!(percent < Some(most), "order {number}: {all:?} % of the lookups");
            }
            let bytes = (tree.memory_bytes() + tree.hints.memory_bytes()) as u64;
            assert_eq!(bytes, budget.used_bytes(), "hints are paid for");
        }
    }

    /// Leaves that a thread remembers split, die and are given out again; trees come and go at the same keys.
    #[test]
    fn what_a_thread_remembers_of_a_key_misleads_nobody() {
        const KEYS: u64 = 40;
        for round in 0..20 {
            let tree = tiny(1);
            let row = |i: u64| RowId(round * 1000 + i);
            let key = |i: u64| i << 20;
            assert!((0..KEYS).all(|i| tree.guess(key(i)).is_none()), "of the tree before, or of none");
            (0..KEYS).for_each(|i| assert!(tree.insert(&[key(i)], row(i))));
            (0..KEYS).for_each(|i| tree.prefetch(key(i)));
            (0..2000).for_each(|i| assert!(tree.insert(&[scattered(i) >> 30 | 1], RowId(i))));
            assert!((0..KEYS).all(|i| tree.guess(key(i)) == Some(row(i))), "through splits");
            (0..KEYS).for_each(|i| tree.prefetch(key(i)));
            (0..2000).for_each(|i| assert!(tree.remove(&[scattered(i) >> 30 | 1], RowId(i), || false)));
            assert!((0..KEYS).all(|i| tree.guess(key(i)) == Some(row(i))), "through merges");
            (5000..5400).for_each(|i| assert!(tree.insert(&[scattered(i)], RowId(i))));
            assert!((0..KEYS).all(|i| tree.guess(key(i)) == Some(row(i))), "through other lives");
            (0..KEYS).for_each(|i| assert!(tree.remove(&[key(i)], row(i), || false)));
            assert!((0..KEYS).all(|i| tree.guess(key(i)).is_none()), "what is gone is gone");
        }
    }

    /// Nodes in use, dead ones aside.
    fn living(tree: &BTreeIndex) -> usize {
        let nodes = |nodes: &Nodes| nodes.memory_bytes() / nodes.node_bytes() - nodes.free_count();
        nodes(&tree.leaves) + nodes(&tree.inners)
    }

    /// Keys that come at one end and go at the other, or go where they came last, or anywhere, leave no nodes behind.
    #[test]
    fn a_tree_takes_the_room_of_what_is_in_it_now() {
        const KEYS: u64 = 60_000;
        const WINDOW: u64 = 500;
        let orders: [fn(u64) -> u64; 3] = [|i| i, |i| u64::MAX - i, scattered];
        for order in orders {
            let tree = BTreeIndex::new(1);
            for i in 0..KEYS {
                assert!(tree.insert(&[order(i)], RowId(i)));
                if i >= WINDOW {
                    assert!(tree.remove(&[order(i - WINDOW)], RowId(i - WINDOW), || false));
                }
            }
            check_structure(&tree);
            let living = living(&tree);
            assert!(living < 100, "{living} nodes for {WINDOW} entries");
            let bytes = tree.memory_bytes();
            assert!(bytes < 200 << 10, "{bytes} bytes were ever needed");
        }
        let tree = tiny(1);
        (0..2000).for_each(|i| assert!(tree.insert(&[scattered(i)], RowId(i))));
        let most = living(&tree);
        (0..2000).rev().for_each(|i| assert!(tree.remove(&[scattered(i)], RowId(i), || false)));
        check_structure(&tree);
        assert!(living(&tree) * 10 < most, "{} of {most} nodes are left of an empty tree", living(&tree));
        (0..2000).for_each(|i| assert!(tree.insert(&[scattered(i)], RowId(i))));
        check_structure(&tree);
        assert_eq!(tree.len(), 2000);
    }

    /// A cursor that rests on a leaf which dies and is given out again elsewhere goes on where it was; its stamp does not hold.
    #[test]
    fn a_resting_cursor_survives_the_death_of_its_leaf() {
        for direction in [Direction::Forward, Direction::Backward] {
            let tree = tiny(1);
            (0..60).for_each(|i| assert!(tree.insert(&[i * 10], RowId(0))));
            let mut cursor = tree.scan(Bound::Unbounded, Bound::Unbounded, direction);
            let mut entries = Entries::new();
            let mut met: Vec<u64> = Vec::new();
            while met.len() < 20 {
                assert!(cursor.next_batch(&tree, &mut entries));
                met.extend(entries.iter().map(|(key, _)| key[0]));
            }
            let stamp = cursor.stamp();
            (0..60).filter(|i| i % 10 != 5).for_each(|i| assert!(tree.remove(&[i * 10], RowId(0), || false)));
            assert!(tree.leaves.free_count() > 0, "leaves have died");
            // Their numbers serve other keys now.
            (1000..1100).for_each(|i| assert!(tree.insert(&[i], RowId(0))));
            assert!(!tree.stamp_holds(stamp), "of a leaf that is another or has taken others in");
            while cursor.next_batch(&tree, &mut entries) {
                met.extend(entries.iter().map(|(key, _)| key[0]));
            }
            let constant: Vec<u64> = met.into_iter().filter(|key| key % 100 == 50 && *key < 1000).collect();
            let mut expected: Vec<u64> = (0..6).map(|i| i * 100 + 50).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            assert_eq!(constant, expected);
            check_structure(&tree);
        }
    }

    /// Leaves and inner nodes die and come back under readers who look up and scan constant keys among those that come and go.
    #[test]
    fn readers_never_miss_a_constant_key_beside_merges() {
        const CONSTANT: u64 = 40;
        let tree = tiny(1);
        (0..CONSTANT).for_each(|i| assert!(tree.insert(&[i << 32], RowId(i))));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (1..3u64)
                .map(|writer| {
                    let tree = &tree;
                    scope.spawn(move || {
                        for round in 0..150 {
                            let key = |i: u64| scattered(i + 1000 * writer) >> 27 | 1;
                            let row = RowId(1000 * writer + round);
                            (0..200).for_each(|i| assert!(tree.insert(&[key(i)], row)));
                            (0..200).for_each(|i| assert!(tree.remove(&[key(i)], row, || false)));
                        }
                    })
                })
                .collect();
            for reader in 0..2u64 {
                let (tree, done) = (&tree, &done);
                scope.spawn(move || {
                    let mut round = reader;
                    while !done.load(Acquire) {
                        for i in 0..CONSTANT {
                            assert_eq!(rows_of(tree, &[i << 32]), [i]);
                            assert!(tree.contains(&[i << 32], RowId(i)));
                        }
                        (0..CONSTANT).for_each(|i| tree.prefetch(i << 32));
                        for i in 0..CONSTANT {
                            assert!(tree.guess(i << 32).is_none_or(|row| row == RowId(i)));
                        }
                        let keys: Vec<u64> = (0..CONSTANT).map(|i| i << 32).collect();
                        let mut found = Vec::new();
                        tree.lookup_batch(keys.len(), |i| &keys[i..=i], |i, row| found.push((i as u64, row.0)));
                        assert!(found.into_iter().eq((0..CONSTANT).map(|i| (i, i))));
                        round += 1;
                        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
                        let mut all = collect(tree, Bound::Unbounded, Bound::Unbounded, direction);
                        all.retain(|entry| entry[1] < CONSTANT);
                        if direction == Direction::Backward {
                            all.reverse();
                        }
                        assert!(all.into_iter().map(|entry| entry[1]).eq(0..CONSTANT));
                    }
                });
            }
            writers.into_iter().for_each(|writer| writer.join().expect("a writer does not panic"));
            done.store(true, Release);
        });
        check_structure(&tree);
        assert_eq!(tree.len() as u64, CONSTANT);
    }

    /// Even keys are always there; odd ones come and go. No reader ever misses an even key, by lookup or by scan.
    #[test]
    fn readers_never_miss_a_constant_key() {
        let tree = BTreeIndex::new(1);
        const KEYS: u64 = 3_000;
        let done = AtomicBool::new(false);
        // Below `written`, even keys are in.
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            for writer in 0..2u64 {
                let (tree, written, done) = (&tree, &written, &done);
                scope.spawn(move || {
                    for i in 0..KEYS {
                        if writer == 0 {
                            assert!(tree.insert(&[scattered(i) & !1], RowId(i)));
                            written.store(i + 1, Release);
                        } else {
                            let key = scattered(i) | 1;
                            tree.insert(&[key], RowId(i));
                            if i >= 50 {
                                assert!(tree.remove(&[scattered(i - 50) | 1], RowId(i - 50), || false));
                            }
                        }
                    }
                    if writer == 0 {
                        done.store(true, Release);
                    }
                });
            }
            for reader in 0..2u64 {
                let (tree, written, done) = (&tree, &written, &done);
                scope.spawn(move || {
                    let mut round = reader;
                    while !done.load(Acquire) {
                        let there = written.load(Acquire);
                        for i in (0..there).rev().take(200) {
                            assert_eq!(rows_of(tree, &[scattered(i) & !1]), [i]);
                        }
                        round += 1;
                        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
                        let all = collect(tree, Bound::Unbounded, Bound::Unbounded, direction);
                        let mut rows: Vec<u64> =
                            all.iter().filter(|entry| entry[0] % 2 == 0).map(|entry| entry[1]).collect();
                        rows.sort_unstable();
                        // A scan is no snapshot: of keys inserted meanwhile it may meet a later one and not an earlier.
                        assert!(rows.is_sorted_by(|a, b| a < b), "no key twice");
                        assert!(rows.into_iter().take(there as usize).eq(0..there), "every key that was there");
                    }
                });
            }
        });
        check_structure(&tree);
    }

    /// Each key is won by one of the threads, although its dead entries fill several leaves.
    #[test]
    fn one_of_many_unique_inserters_wins() {
        const KEYS: u64 = 200;
        let tree = Arc::new(tiny(1));
        let dead = 1_000_000;
        for key in 0..KEYS {
            (0..7).for_each(|row| assert!(tree.insert(&[key], RowId(dead + row * 100))));
        }
        let winners: Vec<_> = (0..4u64)
            .map(|thread| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || {
                    let probe = |row: RowId| {
                        if row.0 >= dead && row.0.is_multiple_of(100) { Probe::Ignore } else { Probe::Duplicate }
                    };
                    (0..KEYS)
                        // Rows before, between and after the dead ones.
                        .filter(|key| tree.insert_unique(&[*key], RowId(dead - 250 + thread * 251), probe) == Ok(true))
                        .count()
                })
            })
            .collect();
        let won: usize = winners.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
        assert_eq!(won as u64, KEYS);
        check_structure(&tree);
    }

    #[test]
    fn concurrent_inserts_and_removals_all_count() {
        const PER_THREAD: u64 = 4_000;
        let tree = tiny(1);
        thread::scope(|scope| {
            for thread in 0..3 {
                let tree = &tree;
                scope.spawn(move || {
                    for i in 0..PER_THREAD {
                        let n = i * 3 + thread;
                        assert!(tree.insert(&[scattered(n) >> 40], RowId(n)));
                        if i % 3 == 0 {
                            assert!(tree.remove(&[scattered(n) >> 40], RowId(n), || false));
                        }
                    }
                });
            }
        });
        check_structure(&tree);
        let mut expected: Vec<Vec<u64>> =
            (0..3 * PER_THREAD).filter(|n| n / 3 % 3 != 0).map(|n| vec![scattered(n) >> 40, n]).collect();
        expected.sort_unstable();
        assert_eq!(collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward), expected);
        assert_eq!(tree.len(), expected.len());
    }
}

/// Every interleaving with up to two preemptions of the smallest trees.
#[cfg(loom)]
mod loom_models {
    use super::*;
    use crate::sync::thread;

    fn model(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 20_000;
        builder.check(body);
    }

    fn smallest() -> Arc<BTreeIndex> {
        Arc::new(BTreeIndex::with_shapes(Shape::new(1, 2, false), Shape::new(1, 2, true)))
    }

    /// The leaf with 10 and 20 splits, and a root appears above it.
    #[test]
    fn loom_a_lookup_finds_a_constant_key_through_a_split() {
        model(|| {
            let tree = smallest();
            tree.insert(&[10], RowId(1));
            tree.insert(&[20], RowId(2));
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.insert(&[15], RowId(3))))
            };
            assert_eq!(rows_of(&tree, &[20]), [2]);
            writer.join().expect("the writer does not panic");
            assert_eq!(rows_of(&tree, &[15]), [3]);
            check_structure(&tree);
        });
    }

    #[test]
    fn loom_a_backward_scan_meets_constant_entries_once() {
        model(|| {
            let tree = smallest();
            tree.insert(&[10], RowId(1));
            tree.insert(&[20], RowId(2));
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.insert(&[15], RowId(3))))
            };
            let mut met = collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            met.retain(|entry| entry[0] != 15);
            assert_eq!(met, [[20, 2], [10, 1]]);
            writer.join().expect("the writer does not panic");
        });
    }

    #[test]
    fn loom_two_inserters_split_one_leaf() {
        model(|| {
            let tree = smallest();
            tree.insert(&[10], RowId(1));
            tree.insert(&[20], RowId(2));
            let other = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.insert(&[30], RowId(3))))
            };
            assert!(tree.insert(&[15], RowId(4)));
            other.join().expect("the other does not panic");
            check_structure(&tree);
            let all = collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            assert_eq!(all, [[10, 1], [15, 4], [20, 2], [30, 3]]);
        });
    }

    /// Leaves {10}, {20, 30} under a root; removing 10 merges them, and the right one dies under the reader.
    fn two_leaves() -> Arc<BTreeIndex> {
        let tree = smallest();
        [10, 20, 30].into_iter().for_each(|key| assert!(tree.insert(&[key], RowId(key))));
        tree
    }

    #[test]
    fn loom_a_lookup_finds_a_constant_key_through_a_merge() {
        model(|| {
            let tree = two_leaves();
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.remove(&[10], RowId(10), || false)))
            };
            assert_eq!(rows_of(&tree, &[30]), [30]);
            writer.join().expect("the writer does not panic");
            assert_eq!(rows_of(&tree, &[20]), [20]);
            check_structure(&tree);
        });
    }

    #[test]
    fn loom_a_lookup_is_not_led_astray_by_a_leaf_given_out_again() {
        model(|| {
            let tree = two_leaves();
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || {
                    assert!(tree.remove(&[10], RowId(10), || false));
                    // Full: splits, and takes the dead leaf's number.
                    assert!(tree.insert(&[40], RowId(40)));
                })
            };
            assert_eq!(rows_of(&tree, &[20]), [20]);
            writer.join().expect("the writer does not panic");
            check_structure(&tree);
        });
    }

    #[test]
    fn loom_an_insert_beside_a_merge_is_found() {
        model(|| {
            let tree = two_leaves();
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.remove(&[10], RowId(10), || false)))
            };
            assert!(tree.insert(&[25], RowId(25)));
            writer.join().expect("the writer does not panic");
            assert_eq!(rows_of(&tree, &[25]), [25]);
            check_structure(&tree);
        });
    }

    #[test]
    fn loom_a_backward_scan_meets_constant_entries_once_through_a_merge() {
        model(|| {
            let tree = two_leaves();
            let writer = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.remove(&[10], RowId(10), || false)))
            };
            let mut met = collect(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            met.retain(|entry| entry[0] != 10);
            assert_eq!(met, [[30, 30], [20, 20]]);
            writer.join().expect("the writer does not panic");
        });
    }

    #[test]
    fn loom_two_removals_merge_once() {
        model(|| {
            let tree = two_leaves();
            let other = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || assert!(tree.remove(&[10], RowId(10), || false)))
            };
            assert!(tree.remove(&[30], RowId(30), || false));
            other.join().expect("the other does not panic");
            assert_eq!(rows_of(&tree, &[20]), [20]);
            check_structure(&tree);
        });
    }

    #[test]
    fn loom_one_of_two_unique_inserters_wins() {
        model(|| {
            let tree = smallest();
            // Dead entries fill the key's first leaf: the rivals insert into another.
            tree.insert(&[5], RowId(10));
            tree.insert(&[5], RowId(11));
            let insert = |tree: &BTreeIndex, row| {
                let probe = |other: RowId| {
                    if other.0 < 20 { Probe::Ignore } else { Probe::Duplicate }
                };
                tree.insert_unique(&[5], RowId(row), probe) == Ok(true)
            };
            let other = {
                let tree = Arc::clone(&tree);
                thread::spawn(move || insert(&tree, 21))
            };
            let mine = insert(&tree, 22);
            let theirs = other.join().expect("the other does not panic");
            assert!(mine ^ theirs, "mine {mine}, theirs {theirs}");
        });
    }
}

/// Random schedules of trees several levels high.
#[cfg(shuttle)]
mod shuttle_schedules {
    use super::*;
    use crate::sync::thread;

    fn scattered(i: u64) -> u64 {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    #[test]
    fn shuttle_constant_entries_are_met_once_by_lookups_and_scans() {
        let body = || {
            let tree = Arc::new(tiny(1));
            const CONSTANT: u64 = 12;
            (0..CONSTANT).for_each(|i| assert!(tree.insert(&[scattered(i)], RowId(i))));
            let threads: Vec<_> = (1..3u64)
                .map(|thread| {
                    let tree = Arc::clone(&tree);
                    thread::spawn(move || {
                        for i in 0..20 {
                            let n = thread * 1000 + i;
                            assert!(tree.insert(&[scattered(n)], RowId(n)));
                            if i >= 5 {
                                assert!(tree.remove(&[scattered(n - 5)], RowId(n - 5), || false));
                            }
                        }
                    })
                })
                .collect();
            let mut expected: Vec<u64> = (0..CONSTANT).collect();
            expected.sort_by_key(|&i| scattered(i));
            for direction in [Direction::Forward, Direction::Backward] {
                let all = collect(&tree, Bound::Unbounded, Bound::Unbounded, direction);
                let met: Vec<u64> = all.iter().map(|entry| entry[1]).filter(|&row| row < CONSTANT).collect();
                assert_eq!(met, expected, "{direction:?}");
                expected.reverse();
                for i in 0..CONSTANT {
                    assert_eq!(rows_of(&tree, &[scattered(i)]), [i]);
                }
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
            check_structure(&tree);
            assert_eq!(tree.len() as u64, CONSTANT + 2 * 5);
        };
        shuttle::check_random(body, 2_000);
        shuttle::check_pct(body, 500, 3);
    }

    /// Nodes of every level die and are given out again, beside readers and a third writer.
    #[test]
    fn shuttle_constant_entries_are_met_once_beside_merges() {
        let body = || {
            let tree = Arc::new(tiny(1));
            const CONSTANT: u64 = 6;
            (0..CONSTANT).for_each(|i| assert!(tree.insert(&[i << 30], RowId(i))));
            let threads: Vec<_> = (1..3u64)
                .map(|thread| {
                    let tree = Arc::clone(&tree);
                    thread::spawn(move || {
                        let key = |i: u64| scattered(thread * 1000 + i) | 1;
                        for _ in 0..2 {
                            (0..12).for_each(|i| assert!(tree.insert(&[key(i)], RowId(100 + thread))));
                            (0..12).for_each(|i| assert!(tree.remove(&[key(i)], RowId(100 + thread), || false)));
                        }
                    })
                })
                .collect();
            let mut expected: Vec<u64> = (0..CONSTANT).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let all = collect(&tree, Bound::Unbounded, Bound::Unbounded, direction);
                let met: Vec<u64> = all.iter().map(|entry| entry[1]).filter(|&row| row < CONSTANT).collect();
                assert_eq!(met, expected, "{direction:?}");
                expected.reverse();
                (0..CONSTANT).for_each(|i| tree.prefetch(i << 30));
                for i in 0..CONSTANT {
                    assert_eq!(rows_of(&tree, &[i << 30]), [i]);
                    assert!(tree.guess(i << 30).is_none_or(|row| row == RowId(i)));
                }
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
            check_structure(&tree);
            assert_eq!(tree.len() as u64, CONSTANT);
        };
        shuttle::check_random(body, 2_000);
        shuttle::check_pct(body, 1_000, 3);
    }

    /// Tails are freed and written anew beside readers of others.
    #[test]
    fn shuttle_long_constant_entries_are_met_once_beside_merges() {
        let body = || {
            let tree = Arc::new(tiny_with_tails(2));
            const CONSTANT: u64 = 5;
            let constant = |i: u64| vec![7, 7, 7, 7, 7, 7, 7, 7, 7, i << 30];
            (0..CONSTANT).for_each(|i| assert!(tree.insert(&constant(i), RowId(i))));
            let threads: Vec<_> = (1..3u64)
                .map(|thread| {
                    let tree = Arc::clone(&tree);
                    thread::spawn(move || {
                        let key = |i: u64| vec![7, 7, 7, 7, 7, 7, 7, 7, 7, scattered(thread * 1000 + i) | 1, i];
                        for _ in 0..2 {
                            (0..9).for_each(|i| assert!(tree.insert(&key(i), RowId(100 + thread))));
                            (0..9).for_each(|i| assert!(tree.remove(&key(i), RowId(100 + thread), || false)));
                        }
                    })
                })
                .collect();
            let mut expected: Vec<u64> = (0..CONSTANT).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let all = collect(&tree, Bound::Unbounded, Bound::Unbounded, direction);
                let met: Vec<u64> =
                    all.iter().filter_map(|entry| entry.last().copied()).filter(|&row| row < CONSTANT).collect();
                assert_eq!(met, expected, "{direction:?}");
                expected.reverse();
                for i in 0..CONSTANT {
                    assert_eq!(rows_of(&tree, &constant(i)), [i]);
                }
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
            check_structure(&tree);
            assert_eq!(tree.len() as u64, CONSTANT);
        };
        shuttle::check_random(body, 2_000);
        shuttle::check_pct(body, 1_000, 3);
    }

    #[test]
    fn shuttle_one_of_three_unique_inserters_wins_each_key() {
        let body = || {
            const KEYS: u64 = 4;
            let tree = Arc::new(tiny(1));
            for key in 0..KEYS {
                (0..5).for_each(|row| assert!(tree.insert(&[key], RowId(row * 10))));
            }
            let threads: Vec<_> = (0..3u64)
                .map(|thread| {
                    let tree = Arc::clone(&tree);
                    thread::spawn(move || {
                        let probe = |row: RowId| {
                            if row.0 % 10 == 0 { Probe::Ignore } else { Probe::Duplicate }
                        };
                        let row = RowId(thread * 21 + 3);
                        (0..KEYS).filter(|key| tree.insert_unique(&[*key], row, probe) == Ok(true)).count() as u64
                    })
                })
                .collect();
            let won: u64 = threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
            assert_eq!(won, KEYS);
            check_structure(&tree);
        };
        shuttle::check_random(body, 1_000);
        shuttle::check_pct(body, 1_000, 3);
    }
}

/// Entries that stay are found by batches, whatever comes and goes around them.
#[test]
#[cfg(not(any(loom, shuttle)))]
fn batches_find_what_stays() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let tree = tiny(1);
    let stays: Vec<u64> = (0..500).map(|i| i * 64).collect();
    stays.iter().for_each(|&key| assert!(tree.insert(&[key], RowId(key))));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20u64 {
                let others = || (0..500 * 64).filter(|key| key % 64 != 0 && key % 3 == round % 3);
                others().for_each(|key| _ = tree.insert(&[key], RowId(key)));
                others().for_each(|key| _ = tree.remove(&[key], RowId(key), || false));
            }
            stop.store(true, Relaxed);
        });
        let mut keys = stays.clone();
        let mut turn = 0;
        while !stop.load(Relaxed) {
            turn += 1;
            keys.rotate_left(turn % 77);
            let mut found = Vec::new();
            tree.lookup_batch(keys.len(), |i| &keys[i..=i], |i, row| found.push((i, row.0)));
            let expected: Vec<_> = keys.iter().copied().enumerate().collect();
            assert_eq!(found, expected);
        }
    });
}

/// A piece of a key is no key: whoever asks for it learns that, and is not told that there is no row.
#[test]
#[should_panic(expected = "is none of its index")]
fn a_batch_takes_no_part_of_a_key() {
    let tree = BTreeIndex::new(2);
    tree.insert(&[1, 2], RowId(1));
    tree.lookup_batch(1, |_| &[1], |_, _| {});
}

/// A writer that changes the leaf during each copy of it, whenever it gets the latch: a copy without end, unless the reader takes the latch at last.
#[test]
fn a_range_is_read_though_its_leaf_changes_all_the_time() {
    let tree = BTreeIndex::new(1);
    let node = tree.leaves.node(tree.root.load().1);
    let mut copies = 0;
    let read = node.read_settled(tree.root.load().1, || {
        copies += 1;
        assert!(copies < 1_000, "the reader starves");
        if node.try_begin_read().is_some() {
            tree.insert(&[copies], RowId(copies));
        }
        node.count() as u64
    });
    assert_eq!((read, read), (tree.len() as u64, copies - 1), "all of it, under the latch");
    assert!(tree.insert(&[copies], RowId(copies)), "which is given back");
}
