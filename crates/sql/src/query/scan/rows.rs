//! How are a scan's rows read? By leases of the session's reader, a batch at a time.

use super::super::cells::Writer;
use super::super::fault::carried;
use super::condition::Condition;
use super::path::{Path, range_ends};
use super::{SnapshotScan, Wanted};
use crate::error::SqlError;
use crate::value::Datum;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::common::Result;
use freshet_engine::catalog::{Index, Table};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Batch, Direction, PageCursor, RangeCursor, Reader, RowPicks};
use std::collections::HashSet;
use std::sync::Arc;

/// Rows of one batch.
pub const BATCH_ROWS: usize = 8192;
/// The same of the first batch of rows in an order, of which few are wanted; each that follows has four times as many.
const FIRST_ROWS: usize = 64;
/// Rows of an index that one lease of the reader visits at most.
const STRETCH_ROWS: usize = 4 * 1024;
/// Slots that one lease of the reader visits at most: a selective filter must not hold it for a whole table. A partition takes so many at a time.
pub const STRETCH_SLOTS: u64 = 32 * 1024;
#[derive(Debug)]
pub struct Scan {
    /// The one table, as the evaluator takes sources.
    tables: [Option<Arc<Table>>; 1],
    pub table: Arc<Table>,
    /// Positions in the provider's schema.
    pub columns: Vec<usize>,
    /// The cheap ones first.
    conditions: Vec<Test>,
    pub path: Path,
    pub limit: Option<usize>,
    is_in_order: bool,
    pub schema: SchemaRef,
    pub partitions: usize,
    /// What is copied of a row where the whole table is read.
    picks: RowPicks,
    /// Variable-length columns that are given.
    given: Vec<usize>,
}

/// A condition, and the variable-length columns that it looks at: a long value is fetched only for a row that passed what came before.
#[derive(Debug)]
struct Test {
    condition: Condition,
    variable: Vec<usize>,
}

impl Test {
    /// A comparison of what lies in the row costs least, the evaluator most: what may fail is asked of the rows that are left, as in PostgreSQL.
    fn rank(&self) -> (u8, usize) {
        match &self.condition {
            Condition::Computed { expr, .. } => (2, expr.operators()),
            _ => (u8::from(!self.variable.is_empty()), 0),
        }
    }
}

impl Scan {
    pub fn new(
        table: &Arc<Table>,
        wanted: &Wanted,
        conditions: Vec<Condition>,
        path: Path,
        schema: SchemaRef,
        partitions: usize,
    ) -> Scan {
        let (columns, limit, is_in_order) = (wanted.columns.clone(), wanted.limit, wanted.in_order.is_some());
        let mut looked_at = Vec::new();
        conditions.iter().for_each(|c| c.columns(&mut looked_at));
        let is_own = |c: &usize| *c < table.def.columns.len();
        let picked = looked_at.iter().chain(&columns).copied().filter(is_own);
        let picked = picked.filter(|_| matches!(path, Path::All));
        let picks = RowPicks::of(table, picked.map(|c| c as u16));
        let variable = |c: &usize| is_own(c) && table.layout.column_type(*c).is_variable();
        let given = columns.iter().copied().filter(variable).collect();
        let test = |condition: Condition| {
            let mut looked_at = Vec::new();
            condition.columns(&mut looked_at);
            looked_at.retain(variable);
            looked_at.sort_unstable();
            looked_at.dedup();
            Test { condition, variable: looked_at }
        };
        let mut conditions: Vec<Test> = conditions.into_iter().map(test).collect();
        conditions.sort_by_key(Test::rank);
        let tables = [Some(table.clone())];
        let table = table.clone();
        Scan { tables, table, columns, conditions, path, limit, is_in_order, schema, partitions, picks, given }
    }
}

/// Where a scan stands between batches.
enum Position {
    Slots(PageCursor),
    Candidates(Vec<RowId>, usize),
    Entries(Box<RangeCursor>),
    Start,
    End,
}

/// A scan in progress, or a partition of one.
pub struct Progress {
    scan: Arc<Scan>,
    reader: Reader,
    position: Position,
    /// Where the partition's stretch ends.
    stretch_end: u64,
    /// Slots when the scan began: rows of later ones are not of its snapshot.
    slots: u64,
    left: usize,
    /// Of the next batch, at most.
    batch_rows: usize,
    row: Row,
    /// Which of several paths is being followed, and the rows that they gave.
    arm: usize,
    given: HashSet<RowId>,
}

impl Progress {
    pub fn new(scan: Arc<Scan>, reader: Reader, partition: usize) -> Progress {
        let first = partition as u64 * STRETCH_SLOTS;
        let position = match scan.path {
            Path::All => Position::Slots(PageCursor::at(first)),
            _ => Position::Start,
        };
        let (slots, left) = (scan.table.slots(), scan.limit.unwrap_or(usize::MAX));
        let batch_rows = if scan.is_in_order { FIRST_ROWS } else { BATCH_ROWS };
        Progress {
            scan,
            reader,
            position,
            stretch_end: first + STRETCH_SLOTS,
            slots,
            left,
            batch_rows,
            row: Row::default(),
            arm: 0,
            given: HashSet::new(),
        }
    }

    /// Where the lease that begins may read to: past the end of a stretch the partition's next one begins.
    fn stretch(&mut self) -> u64 {
        let Position::Slots(cursor) = &mut self.position else {
            return 0;
        };
        if cursor.position() >= self.stretch_end {
            let next = self.stretch_end + (self.scan.partitions as u64 - 1) * STRETCH_SLOTS;
            self.stretch_end = next + STRETCH_SLOTS;
            *cursor = PageCursor::at(next);
        }
        self.slots.min(self.stretch_end)
    }

    /// The next batch that has rows.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let scan = self.scan.clone();
        while self.left > 0 && !matches!(self.position, Position::End) {
            let rows = self.batch_rows.min(self.left);
            self.batch_rows = BATCH_ROWS.min(4 * self.batch_rows);
            let mut out = Output::new(&scan, rows);
            let reader = self.reader.clone();
            let read = reader.batch(|batch| self.fill(batch, &mut out, rows));
            let ended = |_| SqlError::new("57014", "canceling statement: its snapshot was given up");
            read.map_err(ended).and_then(|filled| filled).map_err(carried)?;
            if out.rows > 0 {
                self.left -= out.rows;
                return out.finish(&scan).map(Some);
            }
        }
        Ok(None)
    }

    fn fill(&mut self, batch: &mut Batch<'_>, out: &mut Output, rows: usize) -> Result<(), SqlError> {
        let scan = self.scan.clone();
        if matches!(self.position, Position::Start) {
            self.position = start(&scan, self.arm, batch);
        }
        let slots_end = self.stretch();
        let mut looked_at = 0;
        while out.rows < rows && looked_at < STRETCH_ROWS {
            looked_at += usize::from(!matches!(self.position, Position::Slots(_)));
            let next = match &mut self.position {
                Position::Slots(cursor) => batch.scan_next(&scan.table, cursor, slots_end, &scan.picks, &mut self.row),
                Position::Candidates(list, at) => next_candidate(&scan, batch, list, at, &mut self.row),
                Position::Entries(cursor) => match scan.path.arm(self.arm).expect("the arm that was begun") {
                    Path::Range { index, .. } => batch.range_next(&scan.table, index, cursor, &mut self.row),
                    _ => None,
                },
                Position::Start | Position::End => None,
            };
            let Some(id) = next else {
                if scan.path.arm(self.arm + 1).is_some() {
                    self.arm += 1;
                    self.position = start(&scan, self.arm, batch);
                    continue;
                }
                if !matches!(&self.position, Position::Slots(cursor) if cursor.position() < self.slots) {
                    self.position = Position::End;
                }
                return Ok(());
            };
            if matches!(scan.path, Path::Several(_)) && !self.given.insert(id) {
                continue;
            }
            if !holds(&scan, batch, &mut self.row)? {
                continue;
            }
            for &column in &scan.given {
                batch.fetch_long(&scan.table, &mut self.row, column);
            }
            out.push(&scan, id, &self.row)?;
        }
        Ok(())
    }
}

fn holds(scan: &Scan, batch: &mut Batch<'_>, row: &mut Row) -> Result<bool, SqlError> {
    for Test { condition, variable } in &scan.conditions {
        for &column in variable {
            batch.fetch_long(&scan.table, row, column);
        }
        if !condition.holds(&scan.tables, row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn start(scan: &Scan, arm: usize, batch: &mut Batch<'_>) -> Position {
    let Some(path) = scan.path.arm(arm) else { return Position::End };
    match path {
        Path::All | Path::Several(_) => Position::Slots(PageCursor::at(0)),
        Path::Nothing => Position::Candidates(Vec::new(), 0),
        Path::Lookup { index, key } => {
            let mut candidates = Vec::new();
            batch.lookup(index, |i| key[i].as_value(), &mut candidates);
            candidates.sort_unstable();
            candidates.dedup();
            Position::Candidates(candidates, 0)
        }
        Path::Range { index, equal, lower, upper, direction } => {
            let (low, high) = range_ends(index, equal, lower.as_ref(), upper.as_ref());
            Position::Entries(Box::new(batch.range(index, &low, &high, *direction)))
        }
    }
}

fn next_candidate(scan: &Scan, batch: &mut Batch<'_>, list: &[RowId], at: &mut usize, row: &mut Row) -> Option<RowId> {
    while let Some(&id) = list.get(*at) {
        *at += 1;
        if batch.read(&scan.table, id, row) {
            return Some(id);
        }
    }
    None
}

/// A batch being written.
pub struct Output {
    writers: Vec<Writer>,
    rows: usize,
}

impl Output {
    pub fn new(scan: &Scan, rows: usize) -> Output {
        let capacity = match scan.path {
            Path::Lookup { .. } => 1,
            _ => rows.min(1024),
        };
        let columns = &scan.table.def.columns;
        let ty = |c: &usize| columns.get(*c).map_or(Type::Int8, |column| column.ty);
        Output { writers: scan.columns.iter().map(|c| Writer::new(ty(c), capacity)).collect(), rows: 0 }
    }

    pub fn push(&mut self, scan: &Scan, id: RowId, row: &Row) -> Result<(), SqlError> {
        for (writer, &column) in self.writers.iter_mut().zip(&scan.columns) {
            if column < scan.table.def.columns.len() {
                writer.push(&row.get(&scan.table.layout, column))?;
            } else {
                writer.push(&Value::Int(id.0 as i64))?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    pub fn finish(mut self, scan: &Scan) -> Result<RecordBatch> {
        let arrays = self.writers.iter_mut().map(Writer::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(scan.schema.clone(), arrays, &options)?)
    }
}

/// What is looked for, and buffers.
#[derive(Default)]
pub struct Finder {
    /// Columns of the table, and the values that they must have.
    pub equal: Vec<(usize, Datum)>,
    key: Vec<Datum>,
    candidates: Vec<RowId>,
    row: Row,
}

impl SnapshotScan {
    /// Gives every row that has the finder's values and meets the scan's conditions.
    pub fn find(
        &self,
        batch: &mut Batch<'_>,
        index: &Arc<Index>,
        order: &[usize],
        finder: &mut Finder,
        give: &mut dyn FnMut(RowId, &Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let Finder { equal, key, candidates, row } = finder;
        key.clear();
        key.extend(order.iter().map(|&at| equal[at].1.clone()));
        if key.len() == index.def.columns.len() {
            candidates.clear();
            batch.lookup(index, |i| key[i].as_value(), candidates);
            candidates.sort_unstable();
            candidates.dedup();
            for &id in candidates.iter() {
                if batch.read(&self.scan.table, id, row) && self.meets(batch, equal, row)? {
                    give(id, row)?;
                }
            }
            return Ok(());
        }
        let (low, high) = range_ends(index, key, None, None);
        let mut cursor = batch.range(index, &low, &high, Direction::Forward);
        while let Some(id) = batch.range_next(&self.scan.table, index, &mut cursor, row) {
            if self.meets(batch, equal, row)? {
                give(id, row)?;
            }
        }
        Ok(())
    }

    fn meets(&self, batch: &mut Batch<'_>, equal: &[(usize, Datum)], row: &mut Row) -> Result<bool, SqlError> {
        let table = &self.scan.table;
        for (column, wanted) in equal {
            let ty = table.layout.column_type(*column);
            if ty.is_variable() {
                batch.fetch_long(table, row, *column);
            }
            let value = row.get(&table.layout, *column);
            if value.is_null() || ty.compare(&value, &wanted.as_value()).is_ne() {
                return Ok(false);
            }
        }
        if !holds(&self.scan, batch, row)? {
            return Ok(false);
        }
        self.scan.given.iter().for_each(|&column| batch.fetch_long(table, row, column));
        Ok(true)
    }
}
