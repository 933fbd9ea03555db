//! Which tables are there, and which of their slots are free? The system table first, then every container's pages, on all cores.

use super::{Meter, Phase, PhaseStats, ReplayError};
use crate::catalog::{
    BadObject, Counters, EnumType, Index, IndexId, Namespace, NamespaceId, Object, Role, RoleId, Schema, Sequence,
    SequenceState, Table, TableDef, TableId, View,
};
use crate::crew::Crew;
use crate::ids::{Cts, PageNo, StorageId};
use crate::mem::{PAGE_WORDS, Pages};
use crate::schema::{EnumId, Layout, Row};
use crate::sync::gate::Gate;
use crate::table::{Container, PRIMARY, Store, Survey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that a thread looks through at once.
const STRIDE: usize = 64;

/// What the system table and the pages said.
pub(crate) struct Restored {
    pub schema: Schema,
    pub stores: HashMap<StorageId, Arc<Store>>,
    /// As the counters have it.
    pub next_id: u32,
    /// Above every storage that any page was ever allocated for, as far as images and log can tell.
    pub next_storage: u32,
    pub stats: PhaseStats,
}

/// Pages by storage and container, with their ordinals.
type ByContainer = HashMap<(StorageId, u16), Vec<(u32, PageNo)>>;

/// Reads the system table and makes schema and stores, indexes empty; pages of no known storage become free. `horizon` is the
/// end of the durable epoch.
pub(crate) fn restore(
    pages: &Arc<Pages>,
    system: &Arc<Table>,
    seed: u64,
    horizon: Cts,
    crew: Crew,
    meter: &Meter,
) -> Result<Restored, ReplayError> {
    meter.expect(Phase::Restore, u64::from(pages.high_water()) * (PAGE_WORDS * 8) as u64);
    meter.begin(Phase::Restore);
    let began_us = meter.elapsed_us();
    let mut by_container: ByContainer = HashMap::new();
    for page in (0..pages.high_water()).map(PageNo) {
        if let Some(meta) = pages.meta(page) {
            by_container.entry((meta.storage, meta.container)).or_default().push((meta.ordinal, page));
        }
    }
    let largest = by_container.keys().map(|(storage, _)| storage.0).max().unwrap_or(0);
    let slots = AtomicU64::new(0);
    let surveys = Surveys { pages, horizon, crew, meter, slots: &slots };
    surveys.restore(std::slice::from_ref(&system.store), &mut by_container)?;
    let objects = read_objects(system)?;
    let tables = Definitions::of(pages, &objects)?;
    let counted = objects.iter().find_map(|(_, object)| match object {
        Object::Counters(counters) => Some(*counters),
        _ => None,
    });
    let counters = counted.unwrap_or(Counters::FIRST);
    let next_storage = counters.next_storage.max(largest + 1);
    let stores: Vec<Arc<Store>> = tables.tables.iter().map(|t| t.store.clone()).collect();
    let rows = surveys.restore(&stores, &mut by_container)?;
    let mut schema = tables.schema(seed, &rows)?;
    put_others(&mut schema, &objects);
    if let Some(counters) = counted {
        schema.version = counters.schema_version;
    }
    // A page of a storage that was dropped, or created by a transaction that did not commit.
    for page in by_container.into_values().flatten().map(|(_, page)| page) {
        pages.forget(page);
    }
    if !pages.finish_restore() {
        return Err(ReplayError::MemoryLimit);
    }
    let stats = PhaseStats {
        elapsed_us: meter.elapsed_us().saturating_sub(began_us),
        bytes: pages.used_bytes(),
        items: slots.into_inner(),
    };
    let stores = stores.into_iter().chain([system.store.clone()]).map(|store| (store.id, store)).collect();
    Ok(Restored { schema, stores, next_id: counters.next_id, next_storage, stats })
}

/// What looking through containers needs.
struct Surveys<'a> {
    pages: &'a Pages,
    horizon: Cts,
    crew: Crew,
    meter: &'a Meter,
    slots: &'a AtomicU64,
}

/// A container with its pages in order, and what was found in each stretch of them.
struct Found<'a> {
    container: &'a Container,
    pages: Vec<PageNo>,
    surveys: Vec<Mutex<Survey>>,
}

impl Surveys<'_> {
    /// Gives the stores their pages and free slots; the result is how many rows each has.
    fn restore(
        &self,
        stores: &[Arc<Store>],
        by_container: &mut ByContainer,
    ) -> Result<HashMap<StorageId, u64>, ReplayError> {
        let mut found = Vec::new();
        for container in stores.iter().flat_map(|store| store.containers()) {
            let pages = self.take_pages(container, by_container)?;
            let surveys = pages.chunks(STRIDE).map(|_| Mutex::default()).collect();
            found.push(Found { container, pages, surveys });
        }
        let ids: Vec<_> = stores.iter().map(|store| store.id).collect();
        if by_container.keys().any(|(storage, _)| ids.contains(storage)) {
            return Err(ReplayError::Object(BadObject("a page whose slots are not its table's")));
        }
        let stretches = found.iter().enumerate().flat_map(|(i, f)| (0..f.surveys.len()).map(move |s| (i, s)));
        let pieces: Vec<(usize, usize)> = stretches.collect();
        self.crew.work(pieces.len(), || (), |(), at| self.survey(&found[pieces[at].0], pieces[at].1), |()| ())?;
        let mut rows = HashMap::new();
        for Found { container, pages, surveys } in found {
            let surveys: Vec<Survey> = surveys.into_iter().map(Mutex::into_inner).collect();
            if container.number == PRIMARY {
                rows.insert(container.storage, surveys.iter().map(|survey| survey.live).sum());
            }
            container.restore(pages, surveys);
        }
        Ok(rows)
    }

    /// The container's pages in their order.
    fn take_pages(&self, container: &Container, by_container: &mut ByContainer) -> Result<Vec<PageNo>, ReplayError> {
        let mut list = by_container.remove(&(container.storage, container.number)).unwrap_or_default();
        if list.iter().any(|(_, page)| !self.pages.meta(*page).is_some_and(|meta| container.accepts(&meta))) {
            return Err(ReplayError::Object(BadObject("a page whose slots are not its table's")));
        }
        list.sort_unstable();
        if let Some((ordinal, _)) = list.iter().enumerate().find(|(i, (ordinal, _))| *i as u32 != *ordinal) {
            let (storage, number) = (container.storage, container.number);
            return Err(ReplayError::Gap { storage, container: number, ordinal: ordinal as u32 });
        }
        Ok(list.into_iter().map(|(_, page)| page).collect())
    }

    fn survey(&self, found: &Found<'_>, stretch: usize) -> Result<(), ReplayError> {
        let first = stretch * STRIDE;
        let pages = &found.pages[first..found.pages.len().min(first + STRIDE)];
        let survey = found.container.survey(pages, first as u64, self.horizon);
        *found.surveys[stretch].lock() = survey.map_err(|(row, cts)| ReplayError::Telescope { row, cts })?;
        self.slots.fetch_add(pages.len() as u64 * found.container.slots_per_page(), Ordering::Relaxed);
        self.meter.add((pages.len() * PAGE_WORDS * 8) as u64);
        Ok(())
    }
}

fn read_objects(system: &Table) -> Result<Vec<(u32, Object)>, ReplayError> {
    let primary = &system.store.primary;
    let mut objects = Vec::new();
    let mut row = Row::default();
    for id in (0..primary.high_water()).filter_map(|at| primary.nth(at)) {
        primary.slot(id).copy(row.start_copy(primary.persistent_words()));
        if row.is_live() {
            crate::txn::fetch_stored(system, &mut row, 2);
            objects.push(Object::of_row(system, &row).map_err(ReplayError::Object)?);
        }
    }
    Ok(objects)
}

/// What has no rows.
fn put_others(schema: &mut Schema, objects: &[(u32, Object)]) {
    for (id, object) in objects {
        match object {
            Object::Counters(_) | Object::Table(_) | Object::Index { .. } => {}
            Object::Sequence { def, value } => {
                let state = Arc::new(SequenceState::new(*value, false));
                schema.put_sequence(Arc::new(Sequence { id: *id, def: def.clone(), state }));
            }
            Object::View(def) => schema.put_view(Arc::new(View { id: *id, def: def.clone() })),
            Object::Enum(def) => {
                schema.put_enum(Arc::new(EnumType { id: EnumId(*id), def: def.clone() }));
            }
            Object::Namespace(name) => schema.put_namespace(Namespace { id: NamespaceId(*id), name: name.clone() }),
            Object::Comment { object, column, text } => schema.put_comment(*object, *column, *id, text),
            Object::Role(def) => schema.put_role(Arc::new(Role { id: RoleId(*id), def: def.clone() })),
            Object::Rights { object, rights } => schema.put_rights(*object, *id, rights.clone()),
        }
    }
}

/// A table before its rows are counted.
struct Defined<'a> {
    id: TableId,
    def: &'a TableDef,
    layout: Layout,
    store: Arc<Store>,
    indexes: Vec<(IndexId, &'a crate::catalog::IndexDef)>,
}

struct Definitions<'a> {
    tables: Vec<Defined<'a>>,
}

impl<'a> Definitions<'a> {
    fn of(pages: &Arc<Pages>, objects: &'a [(u32, Object)]) -> Result<Definitions<'a>, ReplayError> {
        let mut tables = Vec::new();
        for (id, object) in objects {
            if let Object::Table(table) = object {
                let layout = table.def.layout();
                let layout = layout.map_err(|_| ReplayError::Object(BadObject("a table wider than a page")))?;
                let store = Arc::new(Store::new(pages, table.storage, layout.words()));
                tables.push(Defined { id: TableId(*id), def: &table.def, layout, store, indexes: Vec::new() });
            }
        }
        let places: HashMap<TableId, usize> = tables.iter().enumerate().map(|(i, table)| (table.id, i)).collect();
        for (id, object) in objects {
            if let Object::Index { table, def } = object
                && let Some(&place) = places.get(table)
            {
                tables[place].indexes.push((IndexId(*id), def));
            }
        }
        tables.iter_mut().for_each(|table| table.indexes.sort_by_key(|(id, def)| (!def.primary, *id)));
        Ok(Definitions { tables })
    }

    /// The schema, with indexes that have room for the rows counted.
    fn schema(self, seed: u64, rows: &HashMap<StorageId, u64>) -> Result<Schema, ReplayError> {
        let mut schema = Schema::default();
        for Defined { id, def, layout, store, indexes } in self.tables {
            let rows = rows.get(&store.id).copied().unwrap_or(0);
            // A small table's index stays small: it grows from nothing in no time.
            let planned = if rows < store.primary.slots_per_page() { 0 } else { rows };
            let index = |(id, index): (IndexId, &crate::catalog::IndexDef)| {
                let made = Index::new(id, index.clone(), def, &layout, seed, planned);
                made.map(Arc::new).map_err(|_| ReplayError::Object(BadObject("an index key wider than a node takes")))
            };
            let indexes = indexes.into_iter().map(index).collect::<Result<_, _>>()?;
            schema.put(Arc::new(Table::new(id, def.clone(), layout, indexes, store, Arc::new(Gate::default()))));
        }
        Ok(schema)
    }
}
