//! What is left of a damaged database? Every row in the last version that can be proven whole, and a list of what cannot.
//!
//! 1. Where the image in force is lost, an older one of the same generation serves. It loses nothing if the needed log begins at or below it.
//! 2. A group counts if it is valid and acknowledged, or its epoch is whole: so a tail that was never acknowledged counts as in a recovery.
//! 3. A row whose chain breaks keeps the version before the break, if its beginning is known.
//! 4. What no longer exists as a whole is a loss, told with whatever is known of it; so is what may have existed in an epoch that is gone.

use super::check::{Evidence, gather, is_there, lock};
use super::contents::{self, Contents, Defined, row_of};
use super::finding::{Finding, Findings};
use super::history::{self, History};
use super::pages::{self, Base, Page, PageSet};
use super::{InspectError, Subject, Watch};
use crate::catalog::{Object, SYSTEM_STORAGE};
use crate::ids::{Cts, Epoch, PageNo, RowId, StorageId};
use crate::io::{Io, ReadOnly};
use crate::log::LogDamage;
use crate::schema::{Row, Value};
use crate::table::PRIMARY;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What became of something that the database had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// Nothing of it is left, or nothing that can be proven.
    Lost,
    /// A row is there as it was once; later changes of it are lost.
    Older,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Fate::Lost => "lost",
            Fate::Older => "older version",
        }
    }
}

/// Something that could not be saved, or not as it was last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    pub fate: Fate,
    pub table: Option<String>,
    pub row: Option<RowId>,
    /// The columns of the primary key, or of another unique index.
    pub key: Option<String>,
    pub reason: String,
}

impl Loss {
    pub(crate) fn of(table: Option<String>, reason: impl Into<String>) -> Loss {
        Loss { fate: Fate::Lost, table, row: None, key: None, reason: reason.into() }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.fate.name())?;
        if let Some(table) = &self.table {
            write!(f, ", table {table}")?;
        }
        if let Some(row) = self.row {
            write!(f, ", row {row:?}")?;
        }
        if let Some(key) = &self.key {
            write!(f, " ({key})")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Everything that is left, ready to be read out.
pub(crate) struct Remains {
    set: PageSet,
    history: History,
    contents: Contents,
    /// Pages for which an older image serves, and its S.
    stale: BTreeMap<PageNo, Cts>,
    /// What is wrong with the source.
    pub findings: Vec<Finding>,
    /// Losses that are no single row of a known table.
    pub losses: Vec<Loss>,
    /// Commits of which only a part is left.
    pub halves: Vec<Cts>,
}

/// Looks at all of a database that nobody has open.
pub(crate) fn remains(io: &Arc<dyn Io>, subject: &Subject, watch: Watch<'_>) -> Result<Remains, InspectError> {
    is_there(io, subject)?;
    let world = Arc::new(ReadOnly::new(io.clone()));
    let io: Arc<dyn Io> = world.clone();
    let mut findings = Findings::default();
    lock(&io, subject)?;
    let evidence = gather(&io, subject, &mut findings, watch);
    let needed = evidence.manifest.as_ref().map(|m| m.log_start.epoch);
    let mut losses = evidence.lost_epochs();
    if evidence.is_half_done {
        losses.push(Loss::of(None, "what a salvage that did not end had not written yet"));
    }
    let mut set = match &evidence.manifest {
        Some(manifest) => pages::load_images(&io, subject, manifest, None, &mut findings),
        None => {
            losses.push(Loss::of(None, "the manifest is lost: an image that is missing, too, cannot be told"));
            PageSet::default()
        }
    };
    let dirs = subject.fence_dirs(evidence.manifest.as_ref());
    let stale = pages::rummage(&io, &dirs, &mut set, needed);
    let whole = evidence.survey.epochs(Epoch(0));
    let counts = |epoch: Epoch| epoch <= evidence.acknowledged || whole.get(&epoch) == Some(&true);
    let groups: Vec<_> = evidence.valid_groups().filter(|group| counts(group.header.epoch)).collect();
    let mut history = history::replay(&groups, &mut set, &mut findings, &mut |_| {});
    losses.extend(history.lost_transactions.drain(..).map(|reason| Loss::of(None, reason)));
    let contents = contents::catalog(&set, &mut findings);
    let halves = std::mem::take(&mut history.halves).into_iter().collect();
    let mut remains = Remains { set, history, contents, stale, findings: Vec::new(), losses, halves };
    let (pages, definitions) = (remains.lost_pages(), remains.lost_definitions());
    remains.losses.extend(pages.into_iter().chain(definitions));
    remains.findings = findings.list;
    world.unreadable().map_or(Ok(remains), |(path, why)| Err(InspectError::Unreadable(path, why)))
}

impl Evidence {
    /// Epochs that were acknowledged and are gone: nobody knows what was in them. Where a recovery refuses the log for another reason, nobody knows
    /// whether any are: a segment that was taken away from its end leaves no gap.
    fn lost_epochs(&self) -> Vec<Loss> {
        if self.durable.is_some_and(|durable| durable >= self.acknowledged) {
            return Vec::new();
        }
        let gaps = self.survey.gaps(self.start.epoch, self.start.prev, self.acknowledged);
        let mut losses: Vec<_> =
            gaps.into_iter().map(|gap| Loss::of(None, format!("{}: {}", gap.place, gap.reason))).collect();
        match &self.refusal {
            Some(LogDamage::Lost { .. }) if !losses.is_empty() => {}
            Some(damage @ (LogDamage::MissingDevice { .. } | LogDamage::Absent { .. })) => {
                let hint = "name its directory with --log or --log-retired and salvage again";
                losses.push(Loss::of(None, format!("what only the log has: {damage}; if it is elsewhere, {hint}")));
            }
            Some(damage) => losses.push(Loss::of(None, format!("perhaps commits at the end of the log: {damage}"))),
            None => {}
        }
        losses
    }
}

impl Remains {
    /// Tables in the order in which they were created.
    pub fn tables(&self) -> Vec<&Defined> {
        let mut tables: Vec<&Defined> = self.contents.tables.iter().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// Everything that is defined, with its id.
    pub fn objects(&self) -> &[(u32, Object)] {
        &self.contents.objects
    }

    /// Pages whose image is lost, and those for which an older one serves.
    fn lost_pages(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (number, page) in self.set.pages.iter().filter(|(_, page)| page.meta.container == PRIMARY) {
            let table = self.contents.name_of(page.meta.storage);
            if page.base == Base::Lost {
                let saved = (0..page.slots()).filter(|slot| page.record(*slot).is_some_and(|r| r[0] != 0)).count();
                let missing = page.imaged_slots.saturating_sub(saved);
                let reason = format!("page {}: its image is lost, and up to {missing} rows with it", number.0);
                losses.push(Loss::of(table, reason));
            } else if let Some(snapshot) = self.stale.get(number) {
                let (number, snapshot) = (number.0, snapshot);
                let reason = format!(
                    "page {number}: its image is lost; one of {snapshot:?} serves, without later changes that left the log"
                );
                losses.push(Loss { fate: Fate::Older, ..Loss::of(table, reason) });
            }
        }
        losses
    }

    /// Rows of storages that no definition leads to, where definitions may be lost: otherwise these are of dropped tables.
    fn lost_definitions(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (row, broken) in
            self.history.broken.iter().filter(|(row, _)| self.storage_of(**row) == Some(SYSTEM_STORAGE))
        {
            let reason = format!("a definition: {}", broken.reason);
            let fate = if broken.kept.is_some() { Fate::Older } else { Fate::Lost };
            let table = self.contents.name_of(SYSTEM_STORAGE);
            losses.push(Loss { fate, row: Some(*row), ..Loss::of(table, reason) });
        }
        let is_system = |page: &&Page| page.meta.storage == SYSTEM_STORAGE;
        let system_lost = self.set.pages.values().filter(is_system).any(|page| page.base == Base::Lost);
        if losses.is_empty() && !system_lost && self.contents.has_counters && self.contents.unreadable == 0 {
            return losses;
        }
        let mut rows: BTreeMap<StorageId, usize> = BTreeMap::new();
        for page in self.set.pages.values().filter(|page| page.meta.container == PRIMARY) {
            let live = (0..page.slots()).filter(|slot| page.is_live(*slot)).count();
            *rows.entry(page.meta.storage).or_default() += live;
        }
        for (storage, rows) in rows.into_iter().filter(|(_, rows)| *rows > 0) {
            if self.contents.name_of(storage).is_none() {
                let reason = format!("storage {} with {rows} rows: the definition of its table is lost", storage.0);
                losses.push(Loss::of(None, reason));
            }
        }
        losses
    }

    fn storage_of(&self, row: RowId) -> Option<StorageId> {
        self.set.pages.get(&row.page()).map(|page| page.meta.storage)
    }

    /// Calls `each` with every row of a table that is left, and `lose` with every one that is not, or not as it was last. Rows in their
    /// last version come first: where an older one has the key of another row, it is that one which was there longer.
    pub fn read<E>(
        &self,
        table: &Defined,
        mut each: impl FnMut(RowId, &Row) -> Result<(), E>,
        mut lose: impl FnMut(Loss),
    ) -> Result<(), E> {
        let mut pages: Vec<_> = self.set.pages.iter().filter(|(_, page)| page.is_of(table.storage, PRIMARY)).collect();
        pages.sort_by_key(|(_, page)| page.meta.ordinal);
        let (fitting, odd): (Vec<_>, Vec<_>) = pages.into_iter().partition(|(_, page)| {
            let width = page.record(0).map(<[u64]>::len);
            width == Some(table.layout.words())
        });
        for (number, _) in odd {
            let reason = format!("page {}: its slots are not of the table's width", number.0);
            lose(Loss::of(Some(table.label.clone()), reason));
        }
        for older in [false, true] {
            for &(&number, page) in &fitting {
                for slot in (0..page.slots()).filter(|slot| page.is_live(*slot)) {
                    let id = RowId::new(number, slot as u16);
                    let is_older = self.stale.contains_key(&number) || self.history.broken.contains_key(&id);
                    if is_older == older
                        && let Some(row) = self.row(table, page, id, &mut lose)
                    {
                        each(id, &row)?;
                    }
                }
            }
        }
        for (id, broken) in self.history.broken.iter().filter(|(id, _)| self.storage_of(**id) == Some(table.storage)) {
            let page = &self.set.pages[&id.page()];
            if page.meta.container == PRIMARY && !page.is_live(usize::from(id.slot())) {
                lose(Loss { row: Some(*id), ..Loss::of(Some(table.label.clone()), broken.reason.as_str()) });
            }
        }
        Ok(())
    }

    /// A live row, if it is whole.
    fn row(&self, table: &Defined, page: &Page, id: RowId, lose: &mut impl FnMut(Loss)) -> Option<Row> {
        let name = || Some(table.label.clone());
        let record = page.record(usize::from(id.slot())).expect("a slot of the page");
        let read = row_of(&self.set, table.storage, &table.layout, record, |_| {});
        match read.and_then(|row| contents::fits_columns(table, &row).map(|()| row)) {
            Ok(row) => {
                if let Some(broken) = self.history.broken.get(&id) {
                    let key = key_of(table, &row);
                    let reason = format!("{}; {} changes of it are lost", broken.reason, broken.lost.len());
                    lose(Loss { fate: Fate::Older, row: Some(id), key, ..Loss::of(name(), reason) });
                }
                Some(row)
            }
            Err(reason) => {
                let key = key_of_record(table, record);
                lose(Loss { row: Some(id), key, ..Loss::of(name(), reason) });
                None
            }
        }
    }
}

/// The row's primary key, or that of another unique index, as far as it can be told.
pub(crate) fn key_of(table: &Defined, row: &Row) -> Option<String> {
    let index = table.indexes.iter().find(|i| i.primary).or_else(|| table.indexes.iter().find(|i| i.unique))?;
    let parts = index.columns.iter().map(|column| {
        let at = usize::from(column.column);
        format!("{} = {}", table.def.columns[at].name, text_of(row.get(&table.layout, at)))
    });
    Some(parts.collect::<Vec<_>>().join(", "))
}

/// The same where the row's long values could not be read: only if the key has none.
fn key_of_record(table: &Defined, record: &[u64]) -> Option<String> {
    let mut row = Row::default();
    row.start_copy(record.len()).copy_from_slice(record);
    let index = table.indexes.iter().find(|i| i.primary).or_else(|| table.indexes.iter().find(|i| i.unique))?;
    let is_long = |column: u16| {
        let column = usize::from(column);
        table.layout.is_in_extension(column) || row.described(&table.layout, column).is_some()
    };
    if index.columns.iter().any(|c| is_long(c.column)) { None } else { key_of(table, &row) }
}

/// A value as the engine knows it: days, microseconds and unscaled decimals are numbers here.
fn text_of(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) => v.to_string(),
        Value::Decimal(v) => v.to_string(),
        Value::Uuid(v) => format!("{v:032x}"),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        },
    }
}
