//! Rebuilding indexes after replay, when every live row has exactly one version: `txn::fill`, table by table.
//!
//! Tables go by in batches, so that no more than one batch's keys are in memory beside the trees.

use super::{Meter, Phase, PhaseStats};
use crate::catalog::Table;
use crate::crew::Crew;
use crate::mem::PAGE_WORDS;
use crate::txn::{Filling, Overseer, fill};
use std::sync::Arc;

/// Tables are worked off together until they have so many slots.
const BATCH_SLOTS: u64 = 1 << 20;
const PAGE_BYTES: u64 = (PAGE_WORDS * 8) as u64;

/// Fills all indexes of the tables. Nobody else uses them.
pub(crate) fn rebuild<'a>(tables: impl Iterator<Item = &'a Arc<Table>>, crew: Crew, meter: &Meter) -> PhaseStats {
    let tables: Vec<Filling<'a>> =
        tables.filter(|table| !table.indexes.is_empty()).map(|t| Filling::new(t, &t.indexes)).collect();
    let bytes = tables.iter().map(|table| table.pages() as u64 * PAGE_BYTES).sum();
    meter.expect(Phase::Rebuild, bytes);
    meter.begin(Phase::Rebuild);
    let began_us = meter.elapsed_us();
    batches(&tables, Filling::table, |batch| {
        let filled = fill(batch, crew, meter);
        let aged = filled.expect("nothing is checked or refused: the rows are those that were there before");
        assert!(aged.is_empty(), "invariant: after replay a row has one version");
    });
    let items = tables.iter().flat_map(|table| &table.table().indexes).map(|index| index.entries()).sum();
    PhaseStats { elapsed_us: meter.elapsed_us().saturating_sub(began_us), bytes, items }
}

/// Calls `each` with the tables that are worked off together.
fn batches<'t, T>(mut rest: &'t [T], table: impl Fn(&T) -> &Table, mut each: impl FnMut(&'t [T])) {
    while !rest.is_empty() {
        let mut slots = 0;
        let fits = rest.iter().take_while(|item| {
            let fits = slots < BATCH_SLOTS;
            slots += table(item).slots();
            fits
        });
        let (batch, after) = rest.split_at(fits.count());
        each(batch);
        rest = after;
    }
}

/// The most bytes of ordered indexes whose keys a rebuild would have in memory at the same time.
pub(crate) fn sorted_together<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> u64 {
    let ordered =
        |table: &Table| table.indexes.iter().filter(|i| i.is_ordered()).map(|i| i.memory_bytes()).sum::<u64>();
    let tables: Vec<&Arc<Table>> = tables.filter(|table| !table.indexes.is_empty()).collect();
    let mut most = 0;
    batches(&tables, |table| table, |batch| most = most.max(batch.iter().map(|t| ordered(t)).sum()));
    most
}

/// A recovery is watched and never refused: what it takes was granted before the crash (`mem::budget`).
impl Overseer for Meter {
    fn is_checked(&self) -> bool {
        false
    }

    fn done(&self, bytes: u64) {
        self.add(bytes);
    }

    fn take_scratch(&self, bytes: u64) -> bool {
        Meter::take_scratch(self, bytes);
        true
    }

    fn give_scratch(&self, bytes: u64) {
        Meter::give_scratch(self, bytes);
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}
