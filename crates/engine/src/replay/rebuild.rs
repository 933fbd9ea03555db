//! Rebuilding indexes after replay, when every live row has exactly one version.

use crate::catalog::{Index, Table, Tree};
use crate::ids::RowId;
use crate::schema::{KeyBuf, Row};
use crate::txn::core::Core;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots that a thread takes at once.
const STRIDE: u64 = 4096;

/// Fills all indexes of a table on `threads` threads. Nobody else uses the table.
pub(crate) fn rebuild_indexes(core: &Core, table: &Table, threads: usize) {
    for index in &table.indexes {
        match &index.tree {
            Tree::Hash(tree) => each_row(
                core,
                table,
                index,
                threads,
                || (),
                |(), id, row| {
                    tree.insert(index.spec.hash_row(&table.layout, row), id);
                },
                |()| {},
            ),
            Tree::BTree(_) => rebuild_ordered(core, table, index, threads),
        }
    }
}

/// Threads collect and sort runs of keys; ascending insertion then fills leaves one after another.
fn rebuild_ordered(core: &Core, table: &Table, index: &Index, threads: usize) {
    let Tree::BTree(tree) = &index.tree else { return };
    let width = index.spec.words();
    let runs: Mutex<Vec<Vec<u64>>> = Mutex::default();
    let start = || (Vec::new(), KeyBuf::default());
    each_row(
        core,
        table,
        index,
        threads,
        start,
        |(run, key): &mut (Vec<u64>, KeyBuf), id, row| {
            index.spec.of_row(&table.layout, row, key);
            run.extend_from_slice(&key.words);
            run.push(id.0);
        },
        |(run, _)| runs.lock().push(run),
    );
    let runs = runs.into_inner();
    let mut entries: Vec<&[u64]> = runs.iter().flat_map(|r| r.chunks_exact(width + 1)).collect();
    entries.sort_unstable();
    for entry in entries {
        tree.insert(&entry[..width], RowId(entry[width]));
    }
}

/// Calls `each` for every live row, with key columns fetched, on several threads with a state each.
fn each_row<S>(
    core: &Core,
    table: &Table,
    index: &Index,
    threads: usize,
    start: impl Fn() -> S + Sync,
    each: impl Fn(&mut S, RowId, &mut Row) + Sync,
    finish: impl Fn(S) + Sync,
) {
    let primary = &table.store.primary;
    let end = primary.high_water();
    let next = AtomicU64::new(0);
    let run = || {
        let mut state = start();
        let mut row = Row::default();
        loop {
            let from = next.fetch_add(STRIDE, Ordering::Relaxed);
            if from >= end {
                break;
            }
            for id in (from..end.min(from + STRIDE)).filter_map(|at| primary.nth(at)) {
                primary.slot(id).copy(row.start_copy(primary.persistent_words()));
                if row.is_live() {
                    core.fetch_key_columns(table, index, &mut row);
                    each(&mut state, id, &mut row);
                }
            }
        }
        finish(state);
    };
    let wanted = (end / STRIDE + 1).min(threads as u64);
    if wanted <= 1 {
        run();
    } else {
        std::thread::scope(|scope| (0..wanted).for_each(|_| drop(scope.spawn(run))));
    }
}
