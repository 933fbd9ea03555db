//! Do catalog, rows and long values make sense? What a database holds once its pages are there.
//!
//! 1. The system table's rows decode, and every table's pages are of its width and without gaps.
//! 2. No timestamp is above the horizon.
//! 3. A long value is in a live slot of its length's container, no newer than its row, begins as its descriptor says, and belongs to one
//!    row; every live value belongs to a row.
//! 4. A column that must not be null is not, text is UTF-8, and keys of unique indexes differ.

use super::finding::{Finding, Findings};
use super::pages::{Base, PageSet};
use crate::catalog::{IndexDef, IndexId, NamespaceId, Object, SYSTEM_STORAGE, SYSTEM_TYPES, TableDef, TableId};
use crate::ids::{Cts, PageNo, RowId, StorageId};
use crate::mem::bytes_of;
use crate::schema::{KeySpec, LIVE, Layout, Row, Type, Value};
use crate::table::{PIECE_BYTES, PRIMARY, VOLATILE_WORDS, container_for};
use crate::txn::{PAYLOAD, list_bytes};
use std::collections::{BTreeMap, HashSet};

/// A table as the system table defines it.
pub(crate) struct Defined {
    pub id: TableId,
    pub storage: StorageId,
    pub def: TableDef,
    /// Its name, with that of its name space where that is not `public`.
    pub label: String,
    pub layout: Layout,
    pub indexes: Vec<IndexDef>,
    /// Their ids, in the same order.
    pub index_ids: Vec<IndexId>,
}

/// The catalog, and what was counted on the way.
#[derive(Default)]
pub(crate) struct Contents {
    pub tables: Vec<Defined>,
    /// Everything that is defined, tables and indexes too, with its id.
    pub objects: Vec<(u32, Object)>,
    /// The system table's first row, which every database has from its creation on.
    pub has_counters: bool,
    /// Definitions that are there and cannot be read or used.
    pub unreadable: u64,
    pub rows: u64,
    pub long_values: u64,
    pub indexes: u64,
}

/// Pages by storage and container, in the order of their ordinals.
type ByContainer = BTreeMap<(StorageId, u16), Vec<(u32, PageNo)>>;

/// Looks at everything that the pages hold.
pub(super) fn examine(set: &PageSet, horizon: Cts, findings: &mut Findings) -> Contents {
    let containers = by_container(set);
    let mut contents = Contents::default();
    contents.read_catalog(set, &containers, findings);
    examine_clock(set, horizon, findings);
    let storages: Vec<StorageId> = contents.tables.iter().map(|t| t.storage).chain([SYSTEM_STORAGE]).collect();
    for ((storage, container), pages) in containers.iter().filter(|((storage, _), _)| storages.contains(storage)) {
        if let Some(gap) = (0..).zip(pages).find(|(i, (ordinal, _))| i != ordinal) {
            let reason = format!("page {} of container {container} is missing", gap.0);
            findings.push(Finding { storage: Some(*storage), ..Finding::damage(reason) });
        }
    }
    for table in std::mem::take(&mut contents.tables) {
        contents.examine_table(&table, set, &containers, findings);
        contents.tables.push(table);
    }
    contents
}

/// The catalog alone.
pub(super) fn catalog(set: &PageSet, findings: &mut Findings) -> Contents {
    let mut contents = Contents::default();
    contents.read_catalog(set, &by_container(set), findings);
    contents
}

fn by_container(set: &PageSet) -> ByContainer {
    let mut containers = ByContainer::new();
    for (&number, page) in &set.pages {
        containers.entry((page.meta.storage, page.meta.container)).or_default().push((page.meta.ordinal, number));
    }
    containers.values_mut().for_each(|pages| pages.sort_unstable());
    containers
}

fn examine_clock(set: &PageSet, horizon: Cts, findings: &mut Findings) {
    for (&number, page) in &set.pages {
        for slot in 0..page.slots() {
            let cts = page.record(slot).map_or(Cts::ZERO, |record| Cts(record[0]));
            if cts > horizon {
                let row = RowId::new(number, slot as u16);
                let reason = format!("has timestamp {cts:?}, which no commit has");
                findings.push(Finding::damage(reason).of_row(row, Some(page.meta.storage)));
            }
        }
    }
}

/// Calls `each` with every live record of a container.
fn each_live(set: &PageSet, pages: Option<&Vec<(u32, PageNo)>>, mut each: impl FnMut(RowId, &[u64])) {
    for &(_, number) in pages.into_iter().flatten() {
        let page = &set.pages[&number];
        for slot in (0..page.slots()).filter(|_| page.base != Base::Lost || page.words.iter().any(|w| *w != 0)) {
            if let Some(record) = page.record(slot).filter(|record| record[1] & LIVE != 0) {
                each(RowId::new(number, slot as u16), record);
            }
        }
    }
}

/// A record as a row, its long values fetched; and why it is none.
pub(super) fn row_of(
    set: &PageSet,
    storage: StorageId,
    layout: &Layout,
    record: &[u64],
    mut used: impl FnMut(RowId),
) -> Result<Row, String> {
    let mut row = Row::default();
    row.start_copy(record.len()).copy_from_slice(record);
    if layout.is_extended() {
        match row.link(layout) {
            None => row.extend(layout, &[]),
            Some(place) => {
                let stored = read_extension(set, storage, place, row.cts());
                row.extend(layout, stored.map_err(|reason| format!("the extension at {place:?} {reason}"))?);
                used(place);
            }
        }
    }
    for column in 0..layout.columns() {
        let Some((length, prefix, place)) = row.described(layout, column) else { continue };
        let place = place.ok_or_else(|| format!("column {column} leads to no long value"))?;
        let value = read_value(set, storage, place, length, row.cts(), &mut used)
            .map_err(|reason| format!("the long value of column {column} at {place:?} {reason}"))?;
        if value[..4] != prefix {
            return Err(format!("the long value of column {column} at {place:?} begins otherwise than the row says"));
        }
        let offset = row.heap.len();
        row.heap.extend_from_slice(&value);
        row.set_fetched(layout, column, offset);
    }
    Ok(row)
}

/// The words of a record's extension.
fn read_extension(set: &PageSet, storage: StorageId, place: RowId, cts: Cts) -> Result<&[u64], String> {
    payload(set, storage, place, cts, |container| container != PRIMARY)
}

/// The words of a slot of long values, in a container of that kind, that a row of `cts` may lead to.
fn payload(
    set: &PageSet,
    storage: StorageId,
    place: RowId,
    cts: Cts,
    is_its: impl FnOnce(u16) -> bool,
) -> Result<&[u64], String> {
    let page = (place <= RowId::MAX).then(|| set.pages.get(&place.page())).flatten();
    let page = page.filter(|page| page.meta.storage == storage && is_its(page.meta.container));
    let record = page.and_then(|page| page.record(usize::from(place.slot())));
    let record = record.ok_or("lies in no page of its kind")?;
    if record[1] & LIVE == 0 {
        return Err("is not there".into());
    }
    if Cts(record[0]) > cts {
        return Err(format!("is of {:?}, newer than its row", Cts(record[0])));
    }
    Ok(&record[PAYLOAD..])
}

/// A long value of so many bytes, in one slot or in pieces.
fn read_value(
    set: &PageSet,
    storage: StorageId,
    place: RowId,
    length: usize,
    cts: Cts,
    used: &mut impl FnMut(RowId),
) -> Result<Vec<u8>, String> {
    let Some(list_length) = list_bytes(length) else { return read_slot(set, storage, place, length, cts, used) };
    // Above this a list of pieces would be longer than a value can be.
    if length > u32::MAX as usize {
        return Err("is longer than a value can be".into());
    }
    let list = read_value(set, storage, place, list_length, cts, used)?;
    let mut value = Vec::with_capacity(length.min(64 << 20));
    for id in list.chunks_exact(8) {
        let piece = (length - value.len()).min(PIECE_BYTES);
        let id = RowId(u64::from_le_bytes(id.try_into().expect("8 bytes")));
        value.extend(read_slot(set, storage, id, piece, cts, used)?);
    }
    Ok(value)
}

fn read_slot(
    set: &PageSet,
    storage: StorageId,
    place: RowId,
    length: usize,
    cts: Cts,
    used: &mut impl FnMut(RowId),
) -> Result<Vec<u8>, String> {
    let payload = payload(set, storage, place, cts, |container| container == container_for(length))?;
    used(place);
    let bytes = bytes_of(payload).get(..length);
    bytes.map(<[u8]>::to_vec).ok_or_else(|| "does not fit its slot".into())
}

impl Contents {
    fn read_catalog(&mut self, set: &PageSet, containers: &ByContainer, findings: &mut Findings) {
        let layout = Layout::new(&SYSTEM_TYPES).expect("three narrow columns");
        let mut objects = Vec::new();
        each_live(set, containers.get(&(SYSTEM_STORAGE, PRIMARY)), |id, record| {
            let read = match record.len() == layout.words() {
                true => row_of(set, SYSTEM_STORAGE, &layout, record, |_| {}),
                false => Err("is not of the system table's width".into()),
            };
            let object = read.and_then(|row| Object::of_record(&layout, &row).map_err(|bad| bad.0.to_string()));
            match object {
                Ok((number, object)) => objects.push((number, object)),
                Err(reason) => {
                    self.unreadable += 1;
                    let reason = format!("a definition cannot be read: {reason}");
                    findings.push(Finding::damage(reason).of_row(id, Some(SYSTEM_STORAGE)));
                }
            }
        });
        self.has_counters = objects.iter().any(|(_, object)| matches!(object, Object::Counters(_)));
        for (id, object) in &objects {
            let Object::Table(table) = object else { continue };
            self.define(TableId(*id), table.storage, &table.def, &objects, findings);
        }
        self.objects = objects;
    }

    fn define(
        &mut self,
        id: TableId,
        storage: StorageId,
        def: &TableDef,
        objects: &[(u32, Object)],
        findings: &mut Findings,
    ) {
        let Ok(layout) = def.layout() else {
            self.unreadable += 1;
            let finding = Finding::damage("the table is wider than a page");
            return findings.push(Finding { table: Some(def.name.clone()), ..finding });
        };
        let mut indexes: Vec<_> = objects
            .iter()
            .filter_map(|(number, object)| match object {
                Object::Index { table, def } if *table == id => Some((!def.primary, *number, def.clone())),
                _ => None,
            })
            .collect();
        indexes.sort_by_key(|(secondary, number, _)| (*secondary, *number));
        let index_ids = indexes.iter().map(|(_, number, _)| IndexId(*number)).collect();
        let indexes: Vec<IndexDef> = indexes.into_iter().map(|(_, _, def)| def).collect();
        if let Some(bad) = indexes.iter().find(|i| i.columns.iter().any(|c| usize::from(c.column) >= def.columns.len()))
        {
            self.unreadable += 1;
            let finding = Finding::damage(format!("index {} is on a column that is not there", bad.name));
            return findings.push(Finding { table: Some(def.name.clone()), ..finding });
        }
        self.indexes += indexes.len() as u64;
        let label = label(objects, def.namespace, &def.name);
        self.tables.push(Defined { id, storage, def: def.clone(), label, layout, indexes, index_ids });
    }

    fn examine_table(&mut self, table: &Defined, set: &PageSet, containers: &ByContainer, findings: &mut Findings) {
        let own = |page: &crate::mem::PageMeta| page.storage == table.storage && page.container == PRIMARY;
        let width = table.layout.words() + VOLATILE_WORDS;
        if let Some((number, _)) =
            set.pages.iter().find(|(_, page)| own(&page.meta) && usize::from(page.meta.slot_words) != width)
        {
            let reason = format!("the slots of page {} are not of the table's width", number.0);
            return findings.push(Finding { storage: Some(table.storage), ..Finding::damage(reason) });
        }
        let mut used = HashSet::new();
        let mut keys: Vec<Keys> = table.indexes.iter().filter(|i| i.unique).map(|i| Keys::new(i, table)).collect();
        each_live(set, containers.get(&(table.storage, PRIMARY)), |id, record| {
            self.rows += 1;
            let mut twice = None;
            let row = row_of(set, table.storage, &table.layout, record, |place| {
                if !used.insert(place) {
                    twice = Some(place);
                }
            });
            let told = row.and_then(|row| {
                keys.iter_mut().for_each(|keys| keys.note(table, &row, id));
                match twice {
                    Some(place) => Err(format!("the long value at {place:?} belongs to another row, too")),
                    None => fits_columns(table, &row),
                }
            });
            if let Err(reason) = told {
                findings.push(Finding::damage(reason).of_row(id, Some(table.storage)));
            }
        });
        self.long_values += used.len() as u64;
        for ((_, _), pages) in containers.range((table.storage, PRIMARY + 1)..=(table.storage, u16::MAX)) {
            each_live(set, Some(pages), |id, _| {
                if !used.contains(&id) {
                    let reason = "a long value that no row has";
                    findings.push(Finding::damage(reason).of_row(id, Some(table.storage)));
                }
            });
        }
        keys.into_iter().for_each(|keys| keys.examine(table, set, findings));
    }

    /// The name of the table that has this storage.
    pub fn name_of(&self, storage: StorageId) -> Option<String> {
        if storage == SYSTEM_STORAGE {
            return Some("freshet_objects".into());
        }
        self.tables.iter().find(|t| t.storage == storage).map(|t| t.label.clone())
    }
}

/// What a relation is called in reports.
pub(crate) fn label(objects: &[(u32, Object)], namespace: NamespaceId, name: &str) -> String {
    let named = objects.iter().find_map(|(id, object)| match object {
        Object::Namespace(own) if *id == namespace.0 => Some(own.as_str()),
        _ => None,
    });
    match named {
        _ if namespace == NamespaceId::PUBLIC => name.to_owned(),
        Some(own) => format!("{own}.{name}"),
        None => format!("{}.{name}", namespace.0),
    }
}

/// What the definition demands of every row.
pub(super) fn fits_columns(table: &Defined, row: &Row) -> Result<(), String> {
    for (at, column) in table.def.columns.iter().enumerate() {
        match row.get(&table.layout, at) {
            Value::Null if column.not_null => return Err(format!("column {} is null", column.name)),
            Value::Bytes(bytes)
                if matches!(column.ty, Type::Char(_) | Type::Varchar(_) | Type::Text)
                    && std::str::from_utf8(bytes).is_err() =>
            {
                return Err(format!("column {} is not UTF-8", column.name));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The keys of a unique index: a hash each, compared in full where hashes are equal.
struct Keys {
    def: IndexDef,
    spec: KeySpec,
    hashes: Vec<(u64, RowId)>,
}

impl Keys {
    fn new(index: &IndexDef, table: &Defined) -> Keys {
        let nullable = |column: u16| !table.def.columns[usize::from(column)].not_null;
        let spec = KeySpec::new(&index.columns, &table.layout, nullable, 0);
        Keys { def: index.clone(), spec, hashes: Vec::new() }
    }

    fn note(&mut self, table: &Defined, row: &Row, id: RowId) {
        if !self.def.exempts(&table.layout, row) {
            self.hashes.push((self.spec.hash_row(&table.layout, row), id));
        }
    }

    fn examine(mut self, table: &Defined, set: &PageSet, findings: &mut Findings) {
        self.hashes.sort_unstable();
        let row = |id: RowId| {
            let record = set.pages.get(&id.page()).and_then(|page| page.record(usize::from(id.slot())))?;
            row_of(set, table.storage, &table.layout, record, |_| {}).ok()
        };
        for equal in self.hashes.chunk_by(|a, b| a.0 == b.0).filter(|equal| equal.len() > 1) {
            for (at, (_, id)) in equal.iter().enumerate().skip(1) {
                let same = |other: &&(u64, RowId)| match (row(*id), row(other.1)) {
                    (Some(a), Some(b)) => self.spec.rows_equal(&table.layout, &a, &b),
                    _ => false,
                };
                if let Some((_, other)) = equal[..at].iter().find(same) {
                    let reason = format!("the key of unique index {} is that of row {other:?}", self.def.name);
                    findings.push(Finding::damage(reason).of_row(*id, Some(table.storage)));
                }
            }
        }
    }
}
