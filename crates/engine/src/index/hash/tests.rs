use super::*;

/// Twelve buckets at first, at most eight pieces of 26: every kind of growth within two thousand entries.
#[cfg(not(any(loom, shuttle)))]
const SMALL: Geometry = Geometry { first_lines: 16, unit_lines: 32 };
/// Pieces with fewer overflow nodes than one chain may have: growth soon exhausts the bits that are kept of a hash.
#[cfg(not(any(loom, shuttle)))]
const CRAMPED: Geometry = Geometry { first_lines: 4, unit_lines: 8 };

fn rows_of(index: &HashIndex, hash: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    let _: ControlFlow<()> = index.lookup(hash, |row| {
        rows.push(row.0);
        ControlFlow::Continue(())
    });
    rows
}

#[cfg(not(any(loom, shuttle)))]
fn scattered(i: u64) -> u64 {
    // The finaliser of splitmix64: every bit of the hash depends on every bit of i.
    let mut x = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(not(any(loom, shuttle)))]
mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u64),
        Remove(u64, u64),
        Lookup(u64),
        /// So many new hashes at once, for growth.
        Flood(u64),
    }

    fn hash() -> impl Strategy<Value = u64> {
        prop_oneof![
            3 => (0..4u64).prop_map(scattered),
            3 => (0..300u64).prop_map(scattered),
            // The ends of the space, and hashes that differ in the last kept bits.
            1 => prop_oneof![Just(0), Just(u64::MAX), (0..8u64).prop_map(|i| i << 37), (0..8u64).prop_map(|i| !(i << 37))],
            1 => any::<u64>(),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            30 => (hash(), 0..40u64).prop_map(|(hash, row)| Op::Insert(hash, row)),
            12 => (hash(), 0..40u64).prop_map(|(hash, row)| Op::Remove(hash, row)),
            8 => hash().prop_map(Op::Lookup),
            1 => (1..800u64).prop_map(Op::Flood),
        ]
    }

    fn check(index: &HashIndex, ops: &[Op]) {
        let known = index.known;
        let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut flood = 1000;
        for op in ops {
            match *op {
                Op::Insert(hash, row) => {
                    assert_eq!(index.insert(hash, RowId(row)), model.insert((hash & known, row)), "{op:?}");
                }
                Op::Remove(hash, row) => {
                    assert_eq!(index.remove(hash, RowId(row), || false), model.remove(&(hash & known, row)), "{op:?}");
                }
                Op::Lookup(hash) => check_lookup(index, &model, hash),
                Op::Flood(count) => {
                    for i in flood..flood + count {
                        assert_eq!(index.insert(scattered(i), RowId(i)), model.insert((scattered(i) & known, i)));
                    }
                    flood += count;
                }
            }
            assert_eq!(index.len(), model.len());
        }
        let hashes: BTreeSet<u64> = model.iter().map(|entry| entry.0).collect();
        hashes.iter().for_each(|&hash| check_lookup(index, &model, hash));
        let mut rows = Vec::new();
        index.for_each(|row| rows.push(row.0));
        rows.sort_unstable();
        let mut expected: Vec<u64> = model.iter().map(|entry| entry.1).collect();
        expected.sort_unstable();
        assert_eq!(rows, expected);
    }

    fn check_lookup(index: &HashIndex, model: &BTreeSet<(u64, u64)>, hash: u64) {
        let hash = hash & index.known;
        let mut rows = rows_of(index, hash);
        rows.sort_unstable();
        let expected: Vec<u64> = model.range((hash, 0)..=(hash, u64::MAX)).map(|entry| entry.1).collect();
        assert_eq!(rows, expected, "hash {hash:x}");
        let guess = index.guess(hash).map(|row| row.0);
        assert!(guess.is_none_or(|row| expected.contains(&row)), "hash {hash:x}: {guess:?}");
        let mut hits = Hits::new();
        index.read(hash, &mut hits);
        // Empty words look as if they were of fragment 0.
        let is_plain = index.fragment(hash) != 0 && !hits.posted;
        assert!(guess.is_some() || expected.len() != 1 || !is_plain, "hash {hash:x}: a lone entry, and no guess");
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_known_hash_and_row(ops in prop::collection::vec(op(), 0..300)) {
            check(&HashIndex::with_geometry(SMALL, 0), &ops);
        }

        #[test]
        fn it_is_a_set_whatever_it_starts_with(entries in 0..5_000usize, ops in prop::collection::vec(op(), 0..100)) {
            check(&HashIndex::with_geometry(SMALL, entries), &ops);
        }

        #[test]
        fn it_is_a_set_when_it_cannot_grow(ops in prop::collection::vec(op(), 0..100)) {
            check(&HashIndex::with_geometry(CRAMPED, 0), &ops);
        }

        #[test]
        fn it_is_a_set_in_real_sizes(ops in prop::collection::vec(op(), 0..300)) {
            check(&HashIndex::new(), &ops);
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod plain {
    use super::*;
    use crate::mem::{Budget, Kind};
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    /// A refused insert leaves no trace, one that fits its bucket needs nothing, and what is forced goes on.
    #[test]
    fn growth_is_asked_for_first() {
        for geometry in [SMALL, CRAMPED] {
            let budget = Arc::new(Budget::new(64 << 10));
            let index = HashIndex::with_geometry(geometry, 0);
            index.charge_to(Arc::new(Account::new(&budget, Kind::Indexes)));
            let insert = |i, claim| index.try_insert(scattered(i), RowId(i), claim);
            let refused: Vec<u64> =
                (0..20_000).filter(|&i| insert(i, Claim::Growth) == Err(Conflict::OutOfMemory)).collect();
            assert!(budget.used_bytes() <= 56 << 10, "{} bytes", budget.used_bytes());
            assert!(refused.len() > 10_000 && refused[0] > 1000, "{} from {} on", refused.len(), refused[0]);
            assert_eq!(index.len(), 20_000 - refused.len());
            for i in 0..20_000 {
                assert_eq!(rows_of(&index, scattered(i)).contains(&i), refused.binary_search(&i).is_err(), "entry {i}");
            }
            refused.iter().for_each(|&i| assert_eq!(insert(i, Claim::Forced), Ok(true)));
            assert_eq!(index.len(), 20_000);
            drop(index);
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    #[test]
    fn growth_keeps_every_entry_and_a_few_bytes_for_each() {
        let index = HashIndex::new();
        const ENTRIES: u64 = 300_000;
        index.bulk_insert((0..ENTRIES).map(|i| (scattered(i), RowId(i))));
        assert_eq!(index.len() as u64, ENTRIES);
        assert!(index.directory().depth >= 1, "one segment does not hold them");
        for i in 0..ENTRIES {
            assert!(rows_of(&index, scattered(i)).contains(&i), "{i}");
        }
        let strangers: usize = (ENTRIES..2 * ENTRIES).map(|i| rows_of(&index, scattered(i)).len()).sum();
        assert!(strangers < ENTRIES as usize / 100, "{strangers} foreign rows met");
        assert!(index.postings.len() < ENTRIES as usize / 1000, "{} in the posting tree", index.postings.len());
    }

    /// Growth copies a bounded number of entries at once, and a few for each that comes.
    #[test]
    fn what_growth_moves_is_counted_and_bounded() {
        let index = HashIndex::new();
        const ENTRIES: u64 = 1_000_000;
        let segment_most = (PIECES_MAX * buckets_in(Geometry::REAL.unit_lines)) as u64 * 8;
        let mut before = 0;
        for i in 0..ENTRIES {
            index.insert(scattered(i), RowId(i));
            let (moved, most) = index.moved();
            assert!(moved - before <= segment_most && most <= segment_most, "{} at once", moved - before);
            before = moved;
        }
        assert!(before <= 8 * ENTRIES, "{before} copies of {ENTRIES} entries");
        let planned = HashIndex::with_capacity(ENTRIES as usize);
        planned.bulk_insert((0..ENTRIES).map(|i| (scattered(i), RowId(i))));
        assert_eq!(planned.moved(), (0, 0));
    }

    /// A million rows of one key burden neither its bucket nor its neighbours, come in a few bytes each, and go without a trace.
    #[test]
    fn a_million_rows_of_one_key_are_a_tree() {
        let index = HashIndex::new();
        const ROWS: u64 = 1_000_000;
        const HOT: u64 = 0x1234_5678_9abc_def0;
        (0..1000).for_each(|i| assert!(index.insert(scattered(i), RowId(2 * ROWS + i))));
        let (moved, _) = index.moved();
        (0..ROWS).for_each(|row| assert!(index.insert(HOT, RowId(row))));
        assert!(index.moved().0 - moved < 2000, "no growth for one key: {:?}", index.moved());
        let bytes = index.memory_bytes() as u64;
        assert!(bytes < 24 * ROWS, "{bytes} bytes");
        // Who wants one row meets one, who wants a neighbour meets none of them.
        let mut met = 0;
        let _ = index.lookup(HOT, |_| {
            met += 1;
            ControlFlow::Break(())
        });
        assert_eq!(met, 1);
        (0..1000).for_each(|i| assert_eq!(rows_of(&index, scattered(i)), [2 * ROWS + i]));
        assert_eq!(rows_of(&index, HOT).len() as u64, ROWS);
        (0..ROWS).for_each(|row| assert!(index.remove(HOT, RowId(row), || false)));
        assert!(rows_of(&index, HOT).is_empty());
        assert_eq!(index.len(), 1000);
        // What they took serves whoever comes.
        (0..ROWS).for_each(|row| assert!(index.insert(HOT + (1 << 40), RowId(row))));
        assert!((index.memory_bytes() as u64) < bytes + (1 << 20));
    }

    #[test]
    fn a_planned_size_is_reached_without_growth() {
        let index = HashIndex::with_capacity(100_000);
        let segments = index.growth.lock().segments.len();
        index.bulk_insert((0..100_000).map(|i| (scattered(i), RowId(i))));
        assert_eq!(index.growth.lock().segments.len(), segments);
        assert!((0..100_000).all(|i| rows_of(&index, scattered(i)).contains(&i)));
    }

    #[test]
    fn one_hash_with_many_rows_splits_nothing() {
        let index = HashIndex::new();
        for row in 0..20_000 {
            assert!(index.insert(42, RowId(row)));
            assert!(!index.insert(42, RowId(row)));
        }
        assert_eq!(index.growth.lock().segments.len(), 1);
        let mut rows = rows_of(&index, 42);
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(0..20_000));
        let mut seen = 0;
        let result = index.insert_unique(42, RowId(5), |_| {
            seen += 1;
            Probe::Ignore
        });
        assert_eq!((result, seen), (Ok(false), 19_999));
        for row in 0..20_000 {
            assert!(index.remove(42, RowId(row), || false));
        }
        assert!(index.is_empty() && rows_of(&index, 42).is_empty());
    }

    /// An index whose entries come and go at constant size neither grows for ever nor ends up in the posting tree.
    #[test]
    fn churn_reuses_overflow_nodes() {
        let index = HashIndex::with_geometry(SMALL, 0);
        const LIVE: u64 = 100;
        for i in 0..20_000 {
            index.insert(scattered(i), RowId(i));
            if i >= LIVE {
                assert!(index.remove(scattered(i - LIVE), RowId(i - LIVE), || false));
            }
        }
        assert_eq!(index.len() as u64, LIVE);
        let segments: usize = index.growth.lock().segments.len();
        assert!(segments < 20, "{segments} segments were needed");
    }

    #[test]
    fn a_unique_insert_is_refused_by_its_probe() {
        let index = HashIndex::new();
        assert_eq!(index.insert_unique(7, RowId(1), |_| Probe::Duplicate), Ok(true));
        assert_eq!(index.insert_unique(7, RowId(1), |_| Probe::Duplicate), Ok(false), "a row does not rival itself");
        assert_eq!(index.insert_unique(7, RowId(2), |_| Probe::Duplicate), Err(Conflict::Duplicate(RowId(1))));
        assert_eq!(index.insert_unique(7, RowId(2), |_| Probe::Wait), Err(Conflict::Wait(RowId(1))));
        assert_eq!(rows_of(&index, 7), [1]);
        assert_eq!(index.insert_unique(7, RowId(2), |_| Probe::Ignore), Ok(true));
        assert_eq!(index.insert_unique(8 << 40, RowId(3), |row| panic!("{row:?} has another hash")), Ok(true));
    }

    #[test]
    fn hashes_that_agree_in_what_is_kept_share_their_entries() {
        for index in [HashIndex::new(), HashIndex::with_capacity(1_000_000)] {
            let lost = 1 << index.known.trailing_zeros() >> 1;
            let (hash, twin, other) = (scattered(1), scattered(1) ^ lost, scattered(1) ^ lost << 1);
            assert!(index.insert(hash, RowId(1)));
            assert!(index.same_entry(hash, twin) && !index.insert(twin, RowId(1)) && rows_of(&index, twin) == [1]);
            assert!(!index.same_entry(hash, other) && index.insert(other, RowId(1)));
            assert!(index.remove(twin, RowId(1), || false));
            assert!(rows_of(&index, hash).is_empty() && rows_of(&index, other) == [1]);
        }
    }

    #[test]
    fn a_needed_entry_stays() {
        let index = HashIndex::new();
        index.insert(7, RowId(1));
        assert!(!index.remove(7, RowId(1), || true));
        assert!(!index.remove(7, RowId(2), || panic!("asked only of entries that are there")));
        assert!(index.remove(7, RowId(1), || false));
        assert!(rows_of(&index, 7).is_empty());
    }

    #[test]
    fn a_panicking_probe_leaves_no_lock_behind() {
        let index = HashIndex::new();
        index.insert(7, RowId(1));
        let attempt = std::panic::AssertUnwindSafe(|| index.insert_unique(7, RowId(2), |_| panic!("from the probe")));
        assert!(std::panic::catch_unwind(attempt).is_err());
        assert!(index.insert(7, RowId(3)));
    }

    #[test]
    fn a_lookup_stops_where_it_is_told() {
        let index = HashIndex::new();
        (0..5).for_each(|row| assert!(index.insert(7, RowId(row))));
        let first = index.lookup(7, ControlFlow::Break);
        assert!(matches!(first, ControlFlow::Break(_)));
    }

    #[test]
    fn a_batch_finds_what_lookups_find() {
        let index = HashIndex::new();
        index.bulk_insert((0..1_000).map(|i| (scattered(i / 2), RowId(i))));
        let hashes: Vec<u64> = (0..700).map(scattered).collect();
        let mut found = Vec::new();
        index.lookup_batch(&hashes, |i, row| found.push((i, row.0)));
        let expected: Vec<_> = hashes
            .iter()
            .enumerate()
            .flat_map(|(i, &hash)| rows_of(&index, hash).into_iter().map(move |row| (i, row)))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), 1_000);
    }

    #[test]
    fn a_stamp_changes_with_every_insert_and_through_growth() {
        let index = HashIndex::with_geometry(SMALL, 0);
        let mut stamp = index.insert_stamp(scattered(0));
        for row in 0..30 {
            index.insert(scattered(0), RowId(row));
            let next = index.insert_stamp(scattered(0));
            assert!(next > stamp, "row {row}");
            stamp = next;
        }
        index.remove(scattered(0), RowId(3), || false);
        assert_eq!(index.insert_stamp(scattered(0)), stamp);
        (1..500).for_each(|i| assert!(index.insert(scattered(i), RowId(i))));
        assert!(index.insert_stamp(scattered(0)) > stamp);
    }

    /// Entries below `written` are always there, while the index grows many times and others come and go.
    #[test]
    fn readers_never_miss_a_constant_key() {
        const KEYS: u64 = 20_000;
        let index = HashIndex::with_geometry(SMALL, 0);
        let written = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (index, written, done) = (&index, &written, &done);
            scope.spawn(move || {
                for i in 0..KEYS {
                    assert!(index.insert(scattered(i), RowId(i)));
                    written.store(i + 1, Release);
                }
                done.store(true, Release);
            });
            scope.spawn(move || {
                for i in KEYS..2 * KEYS {
                    assert!(index.insert(scattered(i), RowId(i)));
                    if i >= KEYS + 300 {
                        assert!(index.remove(scattered(i - 300), RowId(i - 300), || false));
                    }
                }
            });
            for reader in 0..2 {
                scope.spawn(move || {
                    let mut at = reader;
                    while !done.load(Acquire) {
                        let there = written.load(Acquire);
                        for _ in 0..500.min(there) {
                            at = scattered(at);
                            let i = at % there;
                            assert!(rows_of(index, scattered(i)).contains(&i), "{i} of {there} missed");
                        }
                    }
                });
            }
        });
        assert_eq!(index.len() as u64, KEYS + 300);
        assert!((0..KEYS).chain(2 * KEYS - 300..2 * KEYS).all(|i| rows_of(&index, scattered(i)).contains(&i)));
    }

    #[test]
    fn one_of_many_unique_inserters_wins() {
        const KEYS: u64 = 3_000;
        let index = HashIndex::with_geometry(SMALL, 0);
        let won: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4u64)
                .map(|thread| {
                    let index = &index;
                    scope.spawn(move || {
                        let win = |i: &u64| {
                            let row = RowId(thread * KEYS + i);
                            // A foreign row of like hash is no rival.
                            let rival = |row: RowId| {
                                if row.0 % KEYS == *i { Probe::Duplicate } else { Probe::Ignore }
                            };
                            index.insert_unique(scattered(*i), row, rival) == Ok(true)
                        };
                        (0..KEYS).filter(win).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
        });
        assert_eq!(won as u64, KEYS);
        assert_eq!(index.len() as u64, KEYS);
    }

    #[test]
    fn bulk_inserts_from_several_threads_all_arrive() {
        const EACH: u64 = 60_000;
        let index = HashIndex::new();
        thread::scope(|scope| {
            for thread in 0..3 {
                let index = &index;
                scope.spawn(move || {
                    index.bulk_insert((thread * EACH..(thread + 1) * EACH).map(|i| (scattered(i), RowId(i))))
                });
            }
        });
        assert_eq!(index.len() as u64, 3 * EACH);
        assert!((0..3 * EACH).all(|i| rows_of(&index, scattered(i)).contains(&i)));
    }
}

/// One bucket and two overflow nodes in a piece; growth is called for, not waited for.
#[cfg(any(loom, shuttle))]
const ONE_BUCKET: Geometry = Geometry { first_lines: 3, unit_lines: 3 };

/// Every interleaving with up to two preemptions of the smallest index. Each model keeps to few operations: its loads
/// multiply.
#[cfg(loom)]
mod loom_models {
    use super::*;
    use crate::sync::{Arc, thread};

    fn model(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 20_000;
        builder.check(body);
    }

    fn index() -> Arc<HashIndex> {
        Arc::new(HashIndex::with_geometry(ONE_BUCKET, 0))
    }

    /// Copies the segment into a new one twice: the second time into the piece that the first gave back.
    fn grow_twice(index: &HashIndex) {
        assert_eq!(index.grow(index.segment(0), Claim::Forced), Grown::Done);
        assert_eq!(index.grow(index.segment(0), Claim::Forced), Grown::Done);
    }

    #[test]
    fn loom_a_lookup_finds_a_constant_entry_while_pieces_are_reused() {
        model(|| {
            let index = index();
            index.insert(1 << 63, RowId(7));
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || grow_twice(&index))
            };
            assert_eq!(rows_of(&index, 1 << 63), [7]);
            grower.join().expect("growth does not panic");
            assert_eq!(rows_of(&index, 1 << 63), [7]);
        });
    }

    #[test]
    fn loom_an_insert_is_not_lost_to_growth() {
        model(|| {
            let index = index();
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert_eq!(index.grow(index.segment(0), Claim::Forced), Grown::Done))
            };
            assert!(index.insert(1 << 62, RowId(1)));
            assert_eq!(rows_of(&index, 1 << 62), [1], "an inserter finds its own entry");
            grower.join().expect("growth does not panic");
            assert_eq!(rows_of(&index, 1 << 62), [1]);
            assert_eq!(index.len(), 1);
        });
    }

    #[test]
    fn loom_one_of_two_unique_inserters_wins() {
        model(|| {
            let index = index();
            let insert = |index: &HashIndex, row| index.insert_unique(5 << 40, RowId(row), |_| Probe::Duplicate);
            let other = {
                let index = Arc::clone(&index);
                thread::spawn(move || insert(&index, 1))
            };
            let mine = insert(&index, 2);
            let theirs = other.join().expect("the other does not panic");
            match (mine, theirs) {
                (Ok(true), Err(conflict)) => assert_eq!(conflict, Conflict::Duplicate(RowId(2))),
                (Err(conflict), Ok(true)) => assert_eq!(conflict, Conflict::Duplicate(RowId(1))),
                both => panic!("{both:?}"),
            }
        });
    }

    /// Seven entries fill the bucket. While the overflow node is emptied, freed and taken again, no reader misses one of
    /// the seven, and none meets an entry twice.
    #[test]
    fn loom_an_overflow_node_comes_and_goes() {
        model(|| {
            let index = index();
            (0..8).for_each(|row| assert!(index.insert(0, RowId(row))));
            let writer = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    assert!(index.remove(0, RowId(7), || false));
                    assert!(index.insert(0, RowId(8)));
                })
            };
            let mut rows = rows_of(&index, 0);
            rows.sort_unstable();
            assert!(rows.starts_with(&[0, 1, 2, 3, 4, 5, 6]) && rows.len() <= 9, "{rows:?}");
            rows.dedup();
            assert!(rows[7..].iter().all(|row| [7, 8].contains(row)), "{rows:?}");
            writer.join().expect("the writer does not panic");
        });
    }

    /// A guess that meets the overflow node while it is freed and taken by another hash is the row of its own hash, or none.
    #[test]
    fn loom_a_guess_in_an_overflow_node_is_of_its_hash() {
        const OURS: u64 = 1 << 63;
        const OTHERS: u64 = 1 << 62;
        model(|| {
            let index = index();
            (0..7).for_each(|row| assert!(index.insert(0, RowId(row))));
            assert!(index.insert(OURS, RowId(7)));
            let writer = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    assert!(index.remove(OURS, RowId(7), || false));
                    assert!(index.insert(OTHERS, RowId(8)));
                })
            };
            assert!(matches!(index.guess(OURS), None | Some(RowId(7))));
            assert!(matches!(index.guess(OTHERS), None | Some(RowId(8))));
            writer.join().expect("the writer does not panic");
            assert_eq!((index.guess(OURS), index.guess(OTHERS)), (None, Some(RowId(8))));
        });
    }

    /// What was written before an insert is read by whoever finds the entry.
    #[test]
    fn loom_an_entry_publishes_its_row() {
        use crate::sync::atomic::AtomicU64;
        model(|| {
            let (index, row) = (index(), Arc::new(AtomicU64::new(0)));
            let writer = {
                let (index, row) = (Arc::clone(&index), Arc::clone(&row));
                thread::spawn(move || {
                    row.store(1, Relaxed);
                    index.insert(0, RowId(3));
                })
            };
            if !rows_of(&index, 0).is_empty() {
                assert_eq!(row.load(Relaxed), 1);
            }
            writer.join().expect("the writer does not panic");
        });
    }
}

/// Random schedules of the structure as it is, growth of every kind included.
#[cfg(shuttle)]
mod shuttle_schedules {
    use super::*;
    use crate::sync::{Arc, thread};

    /// Spread over the top bits, which is all that these small indexes look at.
    fn hash(i: u64) -> u64 {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn shuttle_constant_entries_are_found_while_others_come_and_go() {
        let body = || {
            let index = Arc::new(HashIndex::with_geometry(ONE_BUCKET, 0));
            const CONSTANT: u64 = 12;
            (0..CONSTANT).for_each(|i| assert!(index.insert(hash(i), RowId(i))));
            let threads: Vec<_> = (1..3u64)
                .map(|thread| {
                    let index = Arc::clone(&index);
                    thread::spawn(move || {
                        for i in 0..25 {
                            let n = thread * 1000 + i;
                            assert!(index.insert(hash(n), RowId(n)));
                            if i >= 5 {
                                assert!(index.remove(hash(n - 5), RowId(n - 5), || false));
                            }
                        }
                    })
                })
                .collect();
            for i in (0..CONSTANT).chain(0..CONSTANT) {
                let rows = rows_of(&index, hash(i));
                assert!(rows.contains(&i), "{i} missed");
                assert!(rows.iter().filter(|&&row| row == i).count() == 1, "{i} met twice");
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
            assert_eq!(index.len() as u64, CONSTANT + 2 * 5);
            let mut rows = Vec::new();
            index.for_each(|row| rows.push(row.0));
            rows.sort_unstable();
            let late = |thread: u64| thread * 1000 + 20..thread * 1000 + 25;
            assert!(rows.into_iter().eq((0..CONSTANT).chain(late(1)).chain(late(2))));
        };
        shuttle::check_random(body, 2_000);
        shuttle::check_pct(body, 500, 3);
    }

    #[test]
    fn shuttle_one_of_three_unique_inserters_wins_each_key() {
        let body = || {
            const KEYS: u64 = 16;
            let index = Arc::new(HashIndex::with_geometry(ONE_BUCKET, 0));
            let threads: Vec<_> = (0..3u64)
                .map(|thread| {
                    let index = Arc::clone(&index);
                    thread::spawn(move || {
                        let wins = |key: &u64| {
                            let rival = |row: RowId| {
                                if row.0 % KEYS == *key { Probe::Duplicate } else { Probe::Ignore }
                            };
                            index.insert_unique(hash(*key), RowId(thread * KEYS + key), rival) == Ok(true)
                        };
                        (0..KEYS).filter(wins).count() as u64
                    })
                })
                .collect();
            let won: u64 = threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
            assert_eq!((won, index.len() as u64), (KEYS, KEYS));
        };
        shuttle::check_random(body, 2_000);
    }

    /// A row's entry is removed if nobody needs it, and inserted again by whoever comes to need it: need decides.
    #[test]
    fn shuttle_a_needed_entry_is_never_lost() {
        use crate::sync::atomic::AtomicBool;
        let body = || {
            let index = Arc::new(HashIndex::with_geometry(ONE_BUCKET, 0));
            let needed = Arc::new(AtomicBool::new(false));
            index.insert(0, RowId(1));
            let collector = {
                let (index, needed) = (Arc::clone(&index), Arc::clone(&needed));
                thread::spawn(move || index.remove(0, RowId(1), || needed.load(SeqCst)))
            };
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.grow(index.segment(0), Claim::Forced))
            };
            needed.store(true, SeqCst);
            index.insert(0, RowId(1));
            collector.join().expect("the collector does not panic");
            grower.join().expect("growth does not panic");
            assert_eq!(rows_of(&index, 0), [1]);
        };
        shuttle::check_random(body, 2_000);
    }
}
