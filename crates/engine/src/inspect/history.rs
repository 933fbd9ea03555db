//! Does each row's chain of deltas telescope? All operations of the log, ordered by row and time.
//!
//! 1. An operation counts if its page generation is the page's last and its cts is above the image's S; with a lost image all count.
//! 2. A transaction's fragments count with its commit, if all of them are there.
//! 3. A row's chain begins at the cts in its image, or at zero; each operation must name the cts before it. From the first that does
//!    not on nothing of the row is applied.

use super::finding::{Finding, Findings};
use super::pages::{Base, PageSet, is_plausible};
use crate::ids::{Cts, PageNo, RowId, StorageId};
use crate::io::AlignedBuf;
use crate::log::frames;
use crate::log::survey::Found;
use crate::mem::PageMeta;
use crate::txn::record::{self, BadRecord, Frame, Reader};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A fragmented commit.
struct Large {
    cts: Cts,
    count: u64,
    crc_sum: u32,
    group: usize,
}

/// What frames say before their operations are looked at.
#[derive(Default)]
struct Heads {
    large: HashMap<u64, Large>,
    /// Count and CRC sum of the fragments seen.
    fragments: HashMap<u64, (u64, u32)>,
}

/// One operation, without its delta.
#[derive(Clone, Copy)]
struct Operation {
    row: RowId,
    cts: Cts,
    prev: Cts,
    group: u32,
}

/// A row whose chain breaks.
#[derive(Clone, Debug)]
pub(crate) struct BrokenRow {
    /// The last version that is whole; `None` if none can be told.
    pub kept: Option<Cts>,
    /// The transactions whose changes of the row are not in it.
    pub lost: Vec<Cts>,
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct History {
    pub commits: u64,
    pub operations: u64,
    pub broken: BTreeMap<RowId, BrokenRow>,
    /// Commits of which some changes are applied and others are not.
    pub halves: BTreeSet<Cts>,
    /// Large transactions that lack fragments, and why none of them is applied.
    pub lost_transactions: Vec<String>,
    heads: Heads,
}

/// Reads the groups and leaves every page as its whole operations make it.
pub(super) fn replay(
    groups: &[&Found],
    set: &mut PageSet,
    findings: &mut Findings,
    watch: &mut dyn FnMut(u64),
) -> History {
    let mut history = History::default();
    for (at, group) in groups.iter().enumerate() {
        watch(group.header.body_bytes);
        history.note_heads(at, group, set, findings);
    }
    let unusable = history.judge_fragments(groups, set, findings);
    let mut operations = Vec::new();
    let mut readable = Vec::with_capacity(groups.len());
    for (at, group) in groups.iter().enumerate() {
        watch(group.header.body_bytes);
        let before = operations.len();
        if history.collect(at, group, set, &unusable, &mut operations, findings) {
            readable.push(*group);
        } else {
            operations.truncate(before);
        }
    }
    operations.sort_unstable_by_key(|o| (o.row, o.cts));
    history.operations = operations.len() as u64;
    let mut rejected = HashSet::new();
    for row in operations.chunk_by(|a, b| a.row == b.row) {
        history.telescope(row, groups, set, &mut rejected, findings);
    }
    drop(operations);
    let broken_off = rejected.iter().map(|(_, cts)| *cts).collect();
    for group in readable {
        watch(group.header.body_bytes);
        history.apply(group, set, &unusable, &rejected, &broken_off);
    }
    history
}

/// Calls `each` with every frame. One that cannot be read is a finding; says whether there was none.
fn each_frame(
    group: &Found,
    findings: &mut Findings,
    mut each: impl FnMut(Frame<'_>, &mut Findings) -> Result<(), BadRecord>,
) -> bool {
    let mut buffer = AlignedBuf::new();
    let body = match group.read_body(&mut buffer) {
        Ok(body) => body,
        Err(damage) => {
            findings.push(Finding::of_log(&damage));
            return false;
        }
    };
    let mut readable = true;
    for frame in frames(body) {
        let told = match frame {
            Ok(frame) => record::read_frame(frame).and_then(|frame| each(frame, findings)),
            Err(_) => Err(BadRecord("a frame's length")),
        };
        if let Err(bad) = told {
            let reason = format!("unreadable commit record: {}", bad.0);
            findings.push(Finding::damage(reason).at(&group.place()));
            readable = false;
        }
    }
    readable
}

impl History {
    fn note_heads(&mut self, at: usize, group: &Found, set: &mut PageSet, findings: &mut Findings) {
        let epoch = group.header.epoch;
        let outside = |cts: Cts| cts.epoch() != epoch;
        each_frame(group, findings, |frame, findings| {
            match frame {
                Frame::Page { page, meta } => allocate(set, page, meta)?,
                Frame::Commit { cts, .. } => {
                    self.commits += 1;
                    if outside(cts) {
                        findings
                            .push(Finding::damage(format!("a commit at {cts:?} in another epoch")).at(&group.place()));
                    }
                }
                Frame::CommitFragments { cts, txn, count, crc_sum, .. } => {
                    self.commits += 1;
                    if outside(cts) {
                        findings
                            .push(Finding::damage(format!("a commit at {cts:?} in another epoch")).at(&group.place()));
                    }
                    self.heads.large.insert(txn, Large { cts, count, crc_sum, group: at });
                }
                Frame::Fragment { txn, operations, .. } => {
                    let (count, sum) = self.heads.fragments.entry(txn).or_default();
                    *count += 1;
                    *sum = sum.wrapping_add(crc32c::crc32c(operations.0));
                }
            }
            Ok(())
        });
    }

    /// Large transactions that lack fragments. Below `complete_below` the images have all of them, and the log need not.
    fn judge_fragments(&mut self, groups: &[&Found], set: &PageSet, findings: &mut Findings) -> HashSet<u64> {
        let (mut unusable, mut lost) = (HashSet::new(), Vec::new());
        for (&txn, large) in &self.heads.large {
            let seen = self.heads.fragments.get(&txn).copied().unwrap_or_default();
            if seen == (large.count, large.crc_sum) {
                continue;
            }
            unusable.insert(txn);
            if large.cts.epoch() >= set.complete_below {
                let (cts, count) = (large.cts, large.count);
                let reason = format!("large transaction at {cts:?} has {} of {count} fragments", seen.0);
                findings.push(Finding::damage(reason.as_str()).at(&groups[large.group].place()));
                lost.push(reason);
            }
        }
        self.lost_transactions = lost;
        unusable
    }

    /// The commit timestamp with which a frame's operations count, and the operations.
    fn counting<'f>(&self, frame: Frame<'f>, unusable: &HashSet<u64>) -> Option<(Cts, Cts, Reader<'f>)> {
        match frame {
            Frame::Commit { cts, base, operations } => Some((cts, base, operations)),
            Frame::CommitFragments { txn, cts, base, operations, .. } => {
                (!unusable.contains(&txn)).then_some((cts, base, operations))
            }
            Frame::Fragment { txn, base, operations } => {
                let large = self.heads.large.get(&txn).filter(|_| !unusable.contains(&txn))?;
                Some((large.cts, base, operations))
            }
            Frame::Page { .. } => None,
        }
    }

    fn collect(
        &mut self,
        at: usize,
        group: &Found,
        set: &PageSet,
        unusable: &HashSet<u64>,
        into: &mut Vec<Operation>,
        findings: &mut Findings,
    ) -> bool {
        each_frame(group, findings, |frame, findings| {
            let Some((cts, base, operations)) = self.counting(frame, unusable) else { return Ok(()) };
            each_operation(operations, base, |row, generation, prev, delta| {
                let page = match set.of_operation(row, generation) {
                    Ok(Some(page)) => page,
                    Ok(None) => return read_past(delta, usize::MAX),
                    Err(reason) => {
                        findings.push(Finding::damage(reason).at(&group.place()).of_row(row, None));
                        return read_past(delta, usize::MAX);
                    }
                };
                let record = page.record(usize::from(row.slot())).map(<[u64]>::len);
                if page.base != Base::Lost && cts <= page.snapshot {
                    return read_past(delta, usize::MAX);
                }
                let Some(record) = record else { return Err(BadRecord("an operation outside its page")) };
                into.push(Operation { row, cts, prev, group: at as u32 });
                read_past(delta, record)
            })
        })
    }

    /// One row's operations in the order of time.
    fn telescope(
        &mut self,
        operations: &[Operation],
        groups: &[&Found],
        set: &PageSet,
        rejected: &mut HashSet<(RowId, Cts)>,
        findings: &mut Findings,
    ) {
        let row = operations[0].row;
        let Some(page) = set.pages.get(&row.page()) else { return };
        let begins = match page.base {
            Base::Lost => None,
            _ => page.record(usize::from(row.slot())).map(|record| Cts(record[0])),
        };
        let mut last = begins.unwrap_or(Cts::ZERO);
        let Some(first_bad) = operations.iter().position(|o| o.prev != std::mem::replace(&mut last, o.cts)) else {
            return;
        };
        let whole = &operations[..first_bad];
        let kept = whole.last().map(|o| o.cts).or(begins);
        let bad = operations[first_bad];
        let reason = describe(&bad, kept);
        let place = groups[bad.group as usize].place();
        findings.push(Finding::damage(reason.as_str()).at(&place).of_row(row, Some(page.meta.storage)));
        let lost: Vec<Cts> = operations[first_bad..].iter().map(|o| o.cts).collect();
        rejected.extend(lost.iter().map(|&cts| (row, cts)));
        // A repeated operation is in the whole part, too; what was applied of it stays.
        let lost = lost.into_iter().filter(|cts| kept.is_none_or(|kept| *cts > kept)).collect();
        self.broken.insert(row, BrokenRow { kept, lost, reason });
    }

    fn apply(
        &mut self,
        group: &Found,
        set: &mut PageSet,
        unusable: &HashSet<u64>,
        rejected: &HashSet<(RowId, Cts)>,
        broken_off: &HashSet<Cts>,
    ) {
        let mut halves = BTreeSet::new();
        // What there is to find was found when operations were collected.
        each_frame(group, &mut Findings::default(), |frame, _| {
            let Some((cts, base, operations)) = self.counting(frame, unusable) else { return Ok(()) };
            each_operation(operations, base, |row, generation, prev, delta| {
                let wanted = matches!(set.of_operation(row, generation), Ok(Some(page))
                    if page.base == Base::Lost || cts > page.snapshot);
                let record = set.pages.get_mut(&row.page()).and_then(|page| page.record_mut(usize::from(row.slot())));
                let Some(record) = record.filter(|_| wanted && !rejected.contains(&(row, cts))) else {
                    return read_past(delta, usize::MAX);
                };
                if broken_off.contains(&cts) {
                    halves.insert(cts);
                }
                record[0] ^= prev.0 ^ cts.0;
                record::read_delta(delta, |at, xor| {
                    if let Some(word) = record.get_mut(at) {
                        *word ^= xor;
                    }
                })
            })
        });
        self.halves.extend(halves);
    }
}

fn describe(bad: &Operation, kept: Option<Cts>) -> String {
    match kept {
        Some(kept) if bad.cts <= kept => format!("the change at {:?} is there twice", bad.cts),
        Some(kept) => format!("the change at {:?} is for the version {:?}, the row's is {kept:?}", bad.cts, bad.prev),
        None => format!("the change at {:?} is for the version {:?}, which was in a lost image", bad.cts, bad.prev),
    }
}

fn allocate(set: &mut PageSet, page: PageNo, meta: PageMeta) -> Result<(), BadRecord> {
    if !is_plausible(&meta) {
        return Err(BadRecord("a page of impossible slots"));
    }
    set.allocate(page, meta);
    Ok(())
}

/// Calls `each` with row, generation, predecessor and the delta, which it must read.
fn each_operation(
    mut operations: Reader<'_>,
    base: Cts,
    mut each: impl FnMut(RowId, u32, Cts, &mut Reader<'_>) -> Result<(), BadRecord>,
) -> Result<(), BadRecord> {
    while !operations.is_empty() {
        let operation = record::read_operation(&mut operations, base)?;
        each(operation.row, operation.generation, operation.prev_cts, &mut operations)?;
    }
    Ok(())
}

/// Reads a delta that must fit a record of so many words.
fn read_past(delta: &mut Reader<'_>, words: usize) -> Result<(), BadRecord> {
    let mut fits = true;
    record::read_delta(delta, |at, _| fits &= at < words)?;
    match fits {
        true => Ok(()),
        false => Err(BadRecord("an operation outside its slot")),
    }
}

/// What lies behind a gap in the log.
#[derive(Default)]
pub(super) struct Behind {
    pub epochs: u64,
    pub commits: u64,
    pub storages: BTreeSet<StorageId>,
}

/// Commits in these groups, and the storages whose rows they change as far as their pages are known.
pub(super) fn behind(groups: &[&Found], set: &PageSet) -> Behind {
    let mut behind = Behind::default();
    let epochs: BTreeSet<_> = groups.iter().map(|group| group.header.epoch).collect();
    behind.epochs = epochs.len() as u64;
    for group in groups {
        each_frame(group, &mut Findings::default(), |frame, _| {
            let (base, operations, counts) = match frame {
                Frame::Commit { base, operations, .. } | Frame::CommitFragments { base, operations, .. } => {
                    (base, operations, 1)
                }
                Frame::Fragment { base, operations, .. } => (base, operations, 0),
                Frame::Page { meta, .. } => {
                    behind.storages.insert(meta.storage);
                    return Ok(());
                }
            };
            behind.commits += counts;
            each_operation(operations, base, |row, _, _, delta| {
                behind.storages.extend(set.pages.get(&row.page()).map(|page| page.meta.storage));
                read_past(delta, usize::MAX)
            })
        });
    }
    behind
}
