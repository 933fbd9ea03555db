//! A statement's result: typed rows in the statement's own buffer, never views of a slot; as cells, or as the messages that leave ([`messages`]).

mod messages;

use self::messages::Messages;
use crate::charge::{Charge, room_for};
use crate::error::SqlError;
use crate::value::Clock;
use crate::value::pgtype::NUMERIC;
use freshet_engine::engine::Engine;
use freshet_engine::mem::prefetch::prefetch_value;
use freshet_engine::mem::touched::{note, note_start};
use freshet_engine::schema::{Type, Value};
use std::mem::offset_of;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    pub ty: Type,
    /// The table's oid and the column's 1-based number, where the column is one.
    pub origin: Option<(u32, u16)>,
    /// Precision and scale are what the value was computed to, and no promise.
    pub is_computed: bool,
}

impl Column {
    pub fn new(name: &str, ty: Type) -> Column {
        Column { name: name.to_owned(), ty, origin: None, is_computed: false }
    }

    /// The type as clients are told of it, and as a table made of the rows has it.
    pub fn declared(&self) -> Type {
        match self.ty {
            Type::Decimal { .. } | Type::Numeric { .. } if self.is_computed => NUMERIC,
            ty => ty,
        }
    }
}

/// Whether rows of the one may be given as rows of the other: what they are called, and how their cells are kept.
pub fn is_same_row(a: &[Column], b: &[Column]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name && a.ty == b.ty)
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Uuid(u128),
    Bytes { start: usize, length: u32 },
}

/// A larger result's memory is not kept for the next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Rows of one result. Reuse it across executions: it keeps its memory.
///
/// What a result of a few integers looks at is two lines: a session's rows are as cold as the session.
#[derive(Clone, Default, Debug)]
#[repr(C, align(64))]
pub struct RowSet {
    columns: Arc<[Column]>,
    cells: Vec<Cell>,
    rows: usize,
    /// A row had no room; it is told when the row is complete.
    refused: Option<Box<SqlError>>,
    /// `charge` is known.
    is_charged: bool,
    /// `heap` has messages; there are no cells.
    is_sent: bool,
    // The second line.
    heap: Vec<u8>,
    /// By which times are shown. Its end is compared with nothing.
    clock: Clock,
    // The rest.
    messages: Messages,
    charge: Charge,
}

const _: () = assert!(offset_of!(RowSet, is_sent) < 64 && offset_of!(RowSet, heap) == 64);
const _: () = assert!(offset_of!(RowSet, clock.seeded) >= 120 && offset_of!(RowSet, clock.seeded) <= 128);

impl RowSet {
    /// Notes what rows given or sent touch.
    pub fn note_touched(&self) {
        note(self);
        note_start(self.cells.as_slice());
        note_start(self.heap.as_slice());
    }

    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }

    /// Starts loading what a statement of one row will look at of it.
    #[inline]
    pub fn load_ahead(&self) {
        prefetch_value(&self.columns);
        prefetch_value(&self.heap);
    }

    /// Starts loading where the first cells will be. It reads what `load_ahead` loads, so it is said a few statements later.
    #[inline]
    pub fn load_cells_ahead(&self) {
        self.cells.first().into_iter().for_each(prefetch_value);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    #[inline]
    pub fn clear(&mut self) {
        self.cells.clear();
        self.heap.clear();
        self.rows = 0;
        if self.is_sent {
            self.messages.restart();
        }
        if self.refused.is_some() {
            self.refused = None;
        }
    }

    /// From now on its memory counts against the engine's limit.
    #[inline]
    pub fn charge_to(&mut self, engine: &Engine) {
        if !self.is_charged {
            self.charge = Charge::of_query(Some(engine));
            self.is_charged = true;
        }
    }

    /// From now on times are shown by this clock, and objects by the names that it knows.
    #[inline]
    pub fn show_by(&mut self, clock: &Clock) {
        let styles = |clock: &Clock| (clock.dates, clock.intervals);
        let is_known = self.clock.catalog == clock.catalog && styles(&self.clock) == styles(clock);
        if !is_known || !self.clock.zone.is_clone_of(&clock.zone) {
            self.clock = clock.clone();
        }
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether who asked only sends the rows, and so takes them part by part.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// What its rows take, or took.
    pub fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>() + self.heap.capacity()
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.clear();
        self.cells = Vec::new();
        self.heap = Vec::new();
        self.charge.settle(0);
    }

    /// Empties it and gives it columns.
    #[inline]
    pub fn start(&mut self, columns: &Arc<[Column]>) {
        self.clear();
        if self.memory_bytes() > KEPT_BYTES_MAX {
            self.release();
        }
        if !Arc::ptr_eq(&self.columns, columns) {
            self.columns = columns.clone();
        }
    }

    /// Appends one cell; after as many as there are columns, the row is complete (`finish_row`).
    pub fn push(&mut self, value: &Value<'_>) {
        if self.is_sent {
            return self.send(value);
        }
        let bytes = if let Value::Bytes(v) = value { v.len() } else { 0 };
        if (self.cells.len() == self.cells.capacity() || self.heap.capacity() - self.heap.len() < bytes)
            && let Err(error) = self.make_room(bytes)
        {
            self.refuse(error);
        }
        if self.refused.is_some() {
            return;
        }
        let cell = match *value {
            Value::Null => Cell::Null,
            Value::Bool(v) => Cell::Bool(v),
            Value::Int(v) => Cell::Int(v),
            Value::Float(v) => Cell::Float(v),
            Value::Decimal(v) => Cell::Decimal(v),
            Value::Uuid(v) => Cell::Uuid(v),
            Value::Bytes(v) => {
                let start = self.heap.len();
                self.heap.extend_from_slice(v);
                Cell::Bytes { start, length: v.len() as u32 }
            }
        };
        self.cells.push(cell);
    }

    /// The row is complete; 53200 if there was no room for it.
    #[inline]
    pub fn finish_row(&mut self) -> Result<(), SqlError> {
        if self.refused.is_some() {
            return self.refuse_row();
        }
        self.rows += 1;
        if self.is_sent {
            return self.finish_message();
        }
        debug_assert_eq!(self.cells.len(), self.rows * self.columns.len());
        Ok(())
    }

    /// Nothing grows: what was there goes, and with it the statement.
    #[cold]
    fn refuse(&mut self, error: SqlError) {
        self.cells.clear();
        self.heap = Vec::new();
        self.refused = Some(Box::new(error));
    }

    #[cold]
    fn refuse_row(&mut self) -> Result<(), SqlError> {
        let refused = self.refused.take();
        self.release();
        refused.map_or(Ok(()), |error| Err(*error))
    }

    /// `push` of an integer or a null.
    #[inline]
    pub fn push_integer(&mut self, value: Option<i64>) {
        if self.cells.len() == self.cells.capacity() || self.refused.is_some() || self.is_sent {
            return self.push(&value.map_or(Value::Null, Value::Int));
        }
        self.cells.push(value.map_or(Cell::Null, Cell::Int));
    }

    /// Appends the rows of a result with the same columns.
    pub fn append(&mut self, other: &RowSet) -> Result<(), SqlError> {
        for row in 0..other.len() {
            (0..self.columns.len()).for_each(|column| self.push(&other.get(row, column)));
            self.finish_row()?;
        }
        Ok(())
    }

    #[cold]
    fn make_room(&mut self, bytes: usize) -> Result<(), SqlError> {
        room_for(&mut self.cells, 1, self.heap.capacity() as u64, &mut self.charge)?;
        let cells = self.cells.capacity() * size_of::<Cell>();
        room_for(&mut self.heap, bytes, cells as u64, &mut self.charge)
    }

    /// The cell. Panics where there is no such row or column, and of rows that became messages.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> Value<'_> {
        assert!(column < self.columns.len(), "column {column} of a result with {}", self.columns.len());
        match self.cells[row * self.columns.len() + column] {
            Cell::Null => Value::Null,
            Cell::Bool(v) => Value::Bool(v),
            Cell::Int(v) => Value::Int(v),
            Cell::Float(v) => Value::Float(v),
            Cell::Decimal(v) => Value::Decimal(v),
            Cell::Uuid(v) => Value::Uuid(v),
            Cell::Bytes { start, length } => Value::Bytes(&self.heap[start..start + length as usize]),
        }
    }

    pub fn column_type(&self, column: usize) -> Type {
        self.columns[column].ty
    }

    /// The cell as a number; `None` for NULL and for what is not an integer, date or time.
    pub fn i64(&self, row: usize, column: usize) -> Option<i64> {
        match self.get(row, column) {
            Value::Int(v) => Some(v),
            _ => None,
        }
    }

    /// The cell as a float: of the float types, and nearest to a decimal or an integer.
    pub fn f64(&self, row: usize, column: usize) -> Option<f64> {
        match (self.get(row, column), self.column_type(column)) {
            (Value::Float(v), _) => Some(v),
            (Value::Int(v), _) => Some(v as f64),
            (Value::Decimal(v), Type::Decimal { scale, .. }) => Some(v as f64 / 10f64.powi(scale.into())),
            (Value::Bytes(v), Type::Numeric { .. }) => crate::value::Numeric::from_stored(v).to_f64().ok(),
            _ => None,
        }
    }

    pub fn bool(&self, row: usize, column: usize) -> Option<bool> {
        match self.get(row, column) {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// The text of a `text`, `varchar` or `char` cell (without the blanks that pad a `char`).
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        match (self.get(row, column), self.column_type(column)) {
            (Value::Bytes(v), Type::Text | Type::Varchar(_) | Type::Char(_)) => std::str::from_utf8(v).ok(),
            _ => None,
        }
    }

    /// The cell of any type as PostgreSQL writes it; `None` for NULL.
    pub fn display(&self, row: usize, column: usize) -> Option<String> {
        match self.get(row, column) {
            Value::Null => None,
            value => {
                let mut text = Vec::new();
                crate::value::to_text_by(self.column_type(column), &value, &self.clock, &mut text);
                Some(String::from_utf8_lossy(&text).into_owned())
            }
        }
    }
}
