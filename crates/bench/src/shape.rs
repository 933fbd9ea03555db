//! Which tables, said so that every adapter can make them: columns, indexes, and the row of a number.
//!
//! A cell is an `i64` in all of this crate; an adapter turns it into the column's type ([`Ty`]). So a row is a list of numbers, and what
//! a system answers can be summed and compared without its types.

use std::fmt::Write;

/// A column's type, with what a cell means in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    Int8,
    Int4,
    Int2,
    /// Zero is false.
    Bool,
    /// At most so many bytes of text: the number in decimal digits.
    Char(u16),
}

#[derive(Clone, Debug)]
pub struct ColumnShape {
    pub name: String,
    pub ty: Ty,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub enum Order {
    Hash,
    Btree,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Hash => "hash",
            Order::Btree => "btree",
        }
    }
}

/// An index over one column. The first of a table is its primary key.
#[derive(Clone, Debug)]
pub struct IndexShape {
    pub column: usize,
    pub unique: bool,
    pub order: Order,
}

/// A table. Tables are named by their place in the list that [`super::adapter::Adapter::create`] was given.
#[derive(Clone, Debug)]
pub struct TableShape {
    pub name: &'static str,
    pub columns: Vec<ColumnShape>,
    pub indexes: Vec<IndexShape>,
    /// The column that the oracle sums.
    pub counter: usize,
    /// The cells of row `id`, appended; the first column is `id`.
    pub row: fn(id: u64, cells: &mut Vec<i64>),
}

impl TableShape {
    /// Bytes of the fields of one record: what memory is compared with.
    pub fn raw_bytes(&self) -> u64 {
        self.columns.iter().map(|column| u64::from(column.ty.bytes())).sum()
    }

    /// Memory of a row with its entries in the hungriest of the systems, generously: what a run needs is said before it starts.
    pub fn memory_bytes(&self) -> u64 {
        let entry = |index: &IndexShape| if index.order == Order::Hash { 24 } else { 48 };
        self.raw_bytes() + 32 + self.indexes.iter().map(entry).sum::<u64>()
    }

    pub fn counter_name(&self) -> &str {
        &self.columns[self.counter].name
    }

    pub fn key_name(&self, index: usize) -> &str {
        &self.columns[self.indexes[index].column].name
    }
}

impl Ty {
    fn bytes(self) -> u16 {
        match self {
            Ty::Int8 => 8,
            Ty::Int4 => 4,
            Ty::Int2 => 2,
            Ty::Bool => 1,
            Ty::Char(bytes) => bytes,
        }
    }
}

/// The text of a cell of a [`Ty::Char`] column.
pub fn text_of(cell: i64, text: &mut String) {
    text.clear();
    write!(text, "{cell}").expect("a string grows");
}

pub const COUNTER_168: usize = 5;

/// P*TIME's table: 21 bigints, 168 bytes (REFERENCE.md A1).
pub fn record168(order: Order) -> TableShape {
    TableShape {
        name: "record",
        columns: (0..21).map(|i| ColumnShape { name: format!("c{i}"), ty: Ty::Int8 }).collect(),
        indexes: vec![IndexShape { column: 0, unique: true, order }],
        counter: COUNTER_168,
        row: |id, cells| {
            let cell = |column: u64| id.wrapping_mul(31).wrapping_add(column) as i64;
            cells.extend((0..21).map(|column| match column {
                0 => id as i64,
                5 => 0,
                other => cell(other),
            }));
        },
    }
}
