//! A statement's result: typed rows in the statement's own buffer, never views of a slot.

use freshet_engine::schema::{Type, Value};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    pub ty: Type,
    /// The table's oid and the column's 1-based number, where the column is one.
    pub origin: Option<(u32, u16)>,
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Uuid(u128),
    Bytes { start: u32, length: u32 },
}

/// Rows of one result. Reuse it across executions: it keeps its memory.
#[derive(Clone, Default, Debug)]
pub struct RowSet {
    columns: Arc<[Column]>,
    cells: Vec<Cell>,
    heap: Vec<u8>,
    rows: usize,
}

impl RowSet {
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn clear(&mut self) {
        self.cells.clear();
        self.heap.clear();
        self.rows = 0;
    }

    /// Empties it and gives it columns.
    pub fn start(&mut self, columns: &Arc<[Column]>) {
        self.clear();
        if !Arc::ptr_eq(&self.columns, columns) {
            self.columns = columns.clone();
        }
    }

    /// Appends one cell; after as many as there are columns, the row is complete (`finish_row`).
    pub fn push(&mut self, value: &Value<'_>) {
        let cell = match *value {
            Value::Null => Cell::Null,
            Value::Bool(v) => Cell::Bool(v),
            Value::Int(v) => Cell::Int(v),
            Value::Float(v) => Cell::Float(v),
            Value::Decimal(v) => Cell::Decimal(v),
            Value::Uuid(v) => Cell::Uuid(v),
            Value::Bytes(v) => {
                let start = self.heap.len() as u32;
                self.heap.extend_from_slice(v);
                Cell::Bytes { start, length: v.len() as u32 }
            }
        };
        self.cells.push(cell);
    }

    pub fn finish_row(&mut self) {
        self.rows += 1;
        debug_assert_eq!(self.cells.len(), self.rows * self.columns.len());
    }

    pub fn get(&self, row: usize, column: usize) -> Value<'_> {
        match self.cells[row * self.columns.len() + column] {
            Cell::Null => Value::Null,
            Cell::Bool(v) => Value::Bool(v),
            Cell::Int(v) => Value::Int(v),
            Cell::Float(v) => Value::Float(v),
            Cell::Decimal(v) => Value::Decimal(v),
            Cell::Uuid(v) => Value::Uuid(v),
            Cell::Bytes { start, length } => Value::Bytes(&self.heap[start as usize..(start + length) as usize]),
        }
    }

    pub fn column_type(&self, column: usize) -> Type {
        self.columns[column].ty
    }
}
