//! How do rows become messages where they are found? PostgreSQL's DataRow, written cell by cell as a statement gives them.
//!
//! Who sends a statement's rows and looks at none of them asks for messages ([`RowSet::send_as`]): then a value goes from the record into the bytes
//! that leave, and is never a cell. Whatever else a statement's rows are for takes cells ([`RowSet::keep_cells`]), which become a message when it is
//! asked for ([`RowSet::write_message`]).
//!
//! | bytes | of a row |
//! |---|---|
//! | 1 | `D` |
//! | 4 | length of what follows, itself included |
//! | 2 | how many cells |
//! | 4 | of each cell: its length, -1 for a null |
//! | length | the cell, in its column's format |
//!
//! All numbers are big-endian.
//!
//! 1. Messages are whole: `finish_row` gives the last one its length, or takes it back.

use super::RowSet;
use crate::error::SqlError;
use crate::value::{self, Clock};
use freshet_engine::schema::{Layout, Row, Type, Value};

/// Kind, length and number of cells.
const HEAD_BYTES: usize = 7;
const LENGTH_BYTES: usize = 4;
/// Of a message, its kind left out.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;
/// Room that is made for a cell beside the bytes of its value; every number's form fits.
const ROOM_BYTES: usize = 128;
const NULL: [u8; LENGTH_BYTES] = (-1i32).to_be_bytes();

/// The message that is being written, and how.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Messages {
    /// Column by column: whether it is wanted in binary form. The last bit is for all beyond.
    binary: u64,
    /// The next cell's column; 0 before a row is begun.
    column: usize,
    /// Where the row began.
    row: usize,
}

impl Messages {
    pub(super) fn restart(&mut self) {
        self.column = 0;
    }

    fn is_binary(&self, column: usize) -> bool {
        self.binary >> column.min(63) & 1 == 1
    }
}

impl RowSet {
    /// The rows of the next statement that gives them directly become messages; bit after bit tells which columns are wanted in binary form, the last one
    /// of all that come behind it. `None`: they become cells.
    pub fn send_as(&mut self, binary: Option<u64>) {
        self.clear();
        self.is_sent = binary.is_some();
        self.messages.binary = binary.unwrap_or(0);
    }

    /// The rows will be looked at: they become cells.
    pub(crate) fn keep_cells(&mut self) {
        self.is_sent = false;
    }

    /// What the messages take so far.
    #[inline]
    pub(crate) fn message_bytes(&self) -> usize {
        if self.is_sent { self.heap.len() } else { 0 }
    }

    /// The rows as messages, if that is what they became.
    pub fn messages(&self) -> Option<&[u8]> {
        self.is_sent.then_some(&self.heap)
    }

    /// Appends the row, which lies in cells, as a message. 54000 if it is longer than a message can be; then nothing is appended.
    pub fn write_message(
        &self,
        row: usize,
        is_binary: impl Fn(usize) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let begun = out.len();
        begin_message(self.columns.len(), out);
        for column in 0..self.columns.len() {
            // Not by an iterator: a value that is moved after it was made in parts waits for its stores, three times as long as all else here.
            let value = self.get(row, column);
            put_cell(&value, self.columns[column].ty, &self.clock, is_binary(column), out);
            if out.len() - begun > MESSAGE_BYTES_MAX {
                break;
            }
        }
        end_message(begun, out)
    }

    /// Appends a stored column as a cell.
    #[inline]
    pub(crate) fn push_column(&mut self, layout: &Layout, row: &Row, column: usize) {
        if !(self.is_sent && self.send_column(layout, row, column)) {
            self.push(&row.get(layout, column));
        }
    }

    /// The most usual types, from the record straight to their sent form; false if it is to be done otherwise.
    fn send_column(&mut self, layout: &Layout, row: &Row, column: usize) -> bool {
        let at = self.messages.column;
        if !self.messages.is_binary(at) || !self.has_room(ROOM_BYTES) {
            return false;
        }
        let is_null = row.is_null(layout, column);
        let ty = self.columns[at].ty;
        match ty {
            _ if is_null => {
                self.begin_cell();
                self.heap.extend_from_slice(&NULL);
            }
            Type::Int4 | Type::Date => {
                self.begin_cell();
                let value = (row.small(layout, column) as i32).to_be_bytes();
                self.heap.extend_from_slice(&with_length::<4, 8>(value));
            }
            Type::Int8 | Type::Time | Type::Timestamp | Type::Timestamptz => {
                self.begin_cell();
                self.heap.extend_from_slice(&with_length::<8, 12>(row.small(layout, column).to_be_bytes()));
            }
            Type::Decimal { scale, .. } if layout.column_type(column).field_bytes() <= 8 => {
                self.begin_cell();
                let cell = begin_length(&mut self.heap);
                value::send_small_decimal(row.small(layout, column), scale, &mut self.heap);
                end_length(cell, &mut self.heap);
            }
            Type::Varchar(_) | Type::Text => {
                let Value::Bytes(text) = row.get(layout, column) else { return false };
                if !self.has_room(ROOM_BYTES + text.len()) {
                    return false;
                }
                self.begin_cell();
                self.heap.extend_from_slice(&(text.len() as u32).to_be_bytes());
                self.heap.extend_from_slice(text);
            }
            _ => return false,
        }
        true
    }

    /// `push` of a value that becomes part of a message.
    pub(super) fn send(&mut self, value: &Value<'_>) {
        let bytes = if let Value::Bytes(v) = value { v.len() } else { 0 };
        if !self.has_room(ROOM_BYTES + bytes)
            && let Err(error) = self.make_room(ROOM_BYTES + bytes)
        {
            self.refuse(error);
        }
        if self.refused.is_some() {
            return;
        }
        let (ty, is_binary) = (self.columns[self.messages.column].ty, self.messages.is_binary(self.messages.column));
        self.begin_cell();
        put_cell(value, ty, &self.clock, is_binary, &mut self.heap);
    }

    /// The row is complete: it gets its length, and what it took beyond the room that was made for it is paid for.
    pub(super) fn finish_message(&mut self) -> Result<(), SqlError> {
        let begun = std::mem::take(&mut self.messages.column) > 0;
        if !begun {
            // A row of no columns.
            self.begin_cell();
            self.messages.column = 0;
        }
        end_message(self.messages.row, &mut self.heap)?;
        self.charge.reach(self.memory_bytes() as u64)
    }

    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        self.heap.capacity() - self.heap.len() >= bytes
    }

    /// Before a row's first cell its head is written.
    #[inline]
    fn begin_cell(&mut self) {
        if self.messages.column == 0 {
            self.messages.row = self.heap.len();
            begin_message(self.columns.len(), &mut self.heap);
        }
        self.messages.column += 1;
    }
}

fn begin_message(columns: usize, out: &mut Vec<u8>) {
    let [high, low] = u16::try_from(columns).expect("SQL allows fewer than 65,536 columns").to_be_bytes();
    let head: [u8; HEAD_BYTES] = [b'D', 0, 0, 0, 0, high, low];
    out.extend_from_slice(&head);
}

/// Gives the message that began there its length, or takes it back.
fn end_message(begun: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let length = out.len() - begun - 1;
    if length > MESSAGE_BYTES_MAX {
        out.truncate(begun);
        return Err(SqlError::new("54000", "a result row is longer than the protocol can carry (2 GiB)"));
    }
    out[begun + 1..begun + 1 + LENGTH_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(())
}

fn put_cell(value: &Value<'_>, ty: Type, clock: &Clock, is_binary: bool, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.extend_from_slice(&NULL);
    }
    let cell = begin_length(out);
    match is_binary {
        true => value::to_binary_by(ty, value, clock, out),
        false => value::to_text_by(ty, value, clock, out),
    }
    end_length(cell, out);
}

#[inline]
fn begin_length(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.len()
}

#[inline]
fn end_length(from: usize, out: &mut [u8]) {
    let length = (out.len() - from) as u32;
    out[from - LENGTH_BYTES..from].copy_from_slice(&length.to_be_bytes());
}

/// A value of a fixed width behind its length.
#[inline]
fn with_length<const N: usize, const WITH: usize>(value: [u8; N]) -> [u8; WITH] {
    let mut bytes = [0; WITH];
    bytes[..LENGTH_BYTES].copy_from_slice(&(N as u32).to_be_bytes());
    bytes[LENGTH_BYTES..].copy_from_slice(&value);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::Column;
    use super::*;
    use std::sync::Arc;

    const TYPES: [Type; 9] = [
        Type::Int4,
        Type::Int8,
        Type::Date,
        Type::Timestamp,
        Type::Decimal { precision: 9, scale: 2 },
        Type::Decimal { precision: 18, scale: 3 },
        Type::Decimal { precision: 30, scale: 0 },
        Type::Text,
        Type::Bool,
    ];

    fn columns() -> Arc<[Column]> {
        TYPES.iter().map(|&ty| Column::new("c", ty)).collect()
    }

    /// What the messages have to be, by the values' own forms.
    fn expected(values: &[Value<'_>], binary: u64) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for (at, value) in values.iter().enumerate() {
            if value.is_null() {
                body.extend(NULL);
                continue;
            }
            let mut cell = Vec::new();
            match binary >> at & 1 {
                1 => value::to_binary(TYPES[at], value, &mut cell),
                _ => value::to_text(TYPES[at], value, &mut cell),
            }
            body.extend((cell.len() as u32).to_be_bytes());
            body.extend(cell);
        }
        [b"D".as_slice(), &(body.len() as u32 + 4).to_be_bytes(), &body].concat()
    }

    fn rows() -> Vec<[Value<'static>; TYPES.len()]> {
        let full = |int: i64, decimal: i128, text: &'static [u8]| {
            let small = decimal % 1_000_000_000;
            [
                Value::Int(int >> 32),
                Value::Int(int),
                Value::Int(int >> 42),
                Value::Int(int),
                Value::Decimal(small),
                Value::Decimal(decimal % 1_000_000_000_000_000_000),
                Value::Decimal(decimal),
                Value::Bytes(text),
                Value::Bool(int > 0),
            ]
        };
        let mut rows = vec![
            full(0, 0, b""),
            full(i64::MAX, 987_654_321_987_654_321_987_654_321, b"a text that lies elsewhere, as it is long"),
            full(i64::MIN, -123_000_000, b"short"),
            full(-1, 1, b"x"),
            full(1, -10_000, &[b'y'; 500]),
        ];
        for at in 0..TYPES.len() {
            let mut row = full(5, 7, b"z");
            row[at] = Value::Null;
            rows.push(row);
        }
        rows
    }

    /// A stored column that goes straight to its form, a value that is pushed, and the forms themselves say the same, in any mixture of formats.
    #[test]
    fn records_and_values_become_the_same_messages() {
        let layout = Layout::new(&TYPES).unwrap();
        for binary in [0, u64::MAX, 0b1_0101_0101, 0b0_1110_1010] {
            let (mut pushed, mut stored) = (RowSet::default(), RowSet::default());
            for result in [&mut pushed, &mut stored] {
                result.send_as(Some(binary));
                result.start(&columns());
            }
            let mut due = Vec::new();
            for values in rows() {
                let mut row = Row::new(&layout);
                values.iter().enumerate().for_each(|(at, value)| row.set(&layout, at, value));
                values.iter().for_each(|value| pushed.push(value));
                (0..TYPES.len()).for_each(|at| stored.push_column(&layout, &row, at));
                pushed.finish_row().unwrap();
                stored.finish_row().unwrap();
                due.extend(expected(&values, binary));
            }
            assert_eq!(pushed.messages().unwrap(), due, "pushed, formats {binary:b}");
            assert_eq!(stored.messages().unwrap(), due, "stored, formats {binary:b}");
            assert_eq!(stored.len(), rows().len());
        }
    }

    #[test]
    fn a_row_without_columns_is_a_message_and_cells_are_what_a_statement_keeps() {
        let mut rows = RowSet::default();
        rows.send_as(Some(0));
        rows.start(&(Arc::new([]) as Arc<[Column]>));
        rows.finish_row().unwrap();
        assert_eq!(rows.messages().unwrap(), b"D\0\0\0\x06\0\0");

        rows.send_as(Some(u64::MAX));
        rows.keep_cells();
        rows.start(&(Arc::new([Column::new("a", Type::Int4)]) as Arc<[Column]>));
        rows.push(&Value::Int(7));
        rows.finish_row().unwrap();
        assert!(rows.messages().is_none());
        assert_eq!(rows.i64(0, 0), Some(7));
    }
}
