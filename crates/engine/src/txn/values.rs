//! Long values: where a descriptor's bytes lie.
//!
//! A value of at most [`PIECE_BYTES`] fills one slot of its size class. A longer one is cut into pieces of that length; the
//! descriptor then leads to the list of their row ids (8 bytes each), stored as a value itself, in pieces if need be.
//! Values are written once and never change; a slot's payload starts behind cts and flags.

use super::core::Core;
use crate::catalog::{Index, Table};
use crate::ids::RowId;
use crate::schema::{LIVE, Row};
use crate::table::{PIECE_BYTES, Store};

/// Words of a value's persistent part before its payload.
pub(crate) const PAYLOAD: usize = 2;

/// Bytes of the list of pieces of a value of this length; `None` if it lies in one slot.
pub(crate) fn list_bytes(length: usize) -> Option<usize> {
    (length > PIECE_BYTES).then(|| length.div_ceil(PIECE_BYTES) * 8)
}

/// A value's words after the cts.
pub(super) fn piece_words(bytes: &[u8]) -> Vec<u64> {
    let mut words = Vec::with_capacity(PAYLOAD - 1 + bytes.len().div_ceil(8));
    words.push(LIVE);
    words.extend(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
    words
}

/// Appends the value to `out`.
pub(super) fn read(store: &Store, row: RowId, length: usize, out: &mut Vec<u8>) {
    let Some(list_length) = list_bytes(length) else {
        read_slot(store, row, length, out);
        return;
    };
    let mut list = Vec::with_capacity(list_length);
    read(store, row, list_length, &mut list);
    let mut left = length;
    for id in list.chunks_exact(8) {
        let piece = left.min(PIECE_BYTES);
        let id = RowId(u64::from_le_bytes(id.try_into().expect("8 bytes")));
        // A unique check reads another transaction's uncommitted value, which may be rolled back and its slots given to others meanwhile. Then
        // these are any bytes, and what they say matters to nobody.
        if store.values_for(piece).holds(id) {
            read_slot(store, id, piece, out);
        } else {
            out.resize(out.len() + piece, 0);
        }
        left -= piece;
    }
}

/// Most values are short, and so is the time that their words take to be made zero: 16 KiB of them cost as much as the rest of a scan.
fn read_slot(store: &Store, row: RowId, length: usize, out: &mut Vec<u8>) {
    const SHORT_BYTES: usize = 256;
    match length {
        0..=SHORT_BYTES => read_words::<{ SHORT_BYTES / 8 + PAYLOAD }>(store, row, length, out),
        _ => read_words::<{ PIECE_BYTES / 8 + PAYLOAD }>(store, row, length, out),
    }
}

fn read_words<const WORDS: usize>(store: &Store, row: RowId, length: usize, out: &mut Vec<u8>) {
    let container = store.values_for(length);
    let mut words = [0u64; WORDS];
    let words = &mut words[..PAYLOAD + length.div_ceil(8)];
    container.slot(row).copy(words);
    out.extend_from_slice(&crate::mem::bytes_of(&words[PAYLOAD..])[..length]);
}

/// Brings a long value of a private copy onto its heap.
pub(crate) fn fetch_stored(table: &Table, row: &mut Row, column: usize) {
    if let Some((length, id)) = row.unfetched(&table.layout, column) {
        let offset = row.heap.len();
        read(&table.store, id, length, &mut row.heap);
        row.set_fetched(&table.layout, column, offset);
    }
}

impl Core {
    pub(crate) fn fetch_long(&self, table: &Table, row: &mut Row, column: usize) {
        fetch_stored(table, row, column);
    }

    #[inline]
    pub(crate) fn fetch_key_columns(&self, table: &Table, index: &Index, row: &mut Row) {
        if index.spec.has_variable() {
            self.fetch_variable_key_columns(table, index, row);
        }
    }

    fn fetch_variable_key_columns(&self, table: &Table, index: &Index, row: &mut Row) {
        for column in index.spec.columns() {
            self.fetch_long(table, row, usize::from(column.column));
        }
    }
}
