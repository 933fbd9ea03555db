//! Long values: where a descriptor's bytes lie.
//!
//! A value of at most [`PIECE_BYTES`] fills one slot of its size class. A longer one is cut into pieces of that length; the
//! descriptor then leads to the list of their row ids (8 bytes each), stored as a value itself, in pieces if need be.
//! Values are written once and never change; a slot's payload starts behind cts and flags.

use super::core::Core;
use crate::catalog::{Index, Table};
use crate::ids::RowId;
use crate::schema::{LIVE, Row, Value};
use crate::table::{PIECE_BYTES, Store};
use smallvec::{SmallVec, smallvec};

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

/// Gives a private copy its record's extension.
#[inline]
pub(crate) fn fetch_extension(table: &Table, row: &mut Row) {
    if table.layout.is_extended() && !row.is_whole(&table.layout) {
        fetch_linked(table, row);
    }
}

#[cold]
fn fetch_linked(table: &Table, row: &mut Row) {
    // Where a unique check reads what is being rolled back, the slot may be another's by now, and what it says matters to nobody.
    let linked = row.link(&table.layout).and_then(|id| Some((id, table.store.values_of(id)?)));
    let Some((id, container)) = linked else { return row.extend(&table.layout, &[]) };
    let mut words: SmallVec<[u64; 30]> = smallvec![0; container.persistent_words()];
    container.slot(id).copy(&mut words);
    row.extend(&table.layout, &words[PAYLOAD..]);
}

/// Brings a long value of a private copy onto its heap, and the extension behind it where the column lies there.
pub(crate) fn fetch_stored(table: &Table, row: &mut Row, column: usize) {
    let is_in_extension = table.layout.is_in_extension(column);
    if is_in_extension {
        fetch_extension(table, row);
    }
    if let Some((length, id)) = row.unfetched(&table.layout, column) {
        if is_in_extension && !is_plausible(&table.store, id, length) {
            return row.set(&table.layout, column, &Value::Null);
        }
        let offset = row.heap.len();
        read(&table.store, id, length, &mut row.heap);
        row.set_fetched(&table.layout, column, offset);
    }
}

/// Whether a descriptor that was read without the row's lock, from a slot that may be another's by now, leads to a value.
fn is_plausible(store: &Store, id: RowId, length: usize) -> bool {
    let stored = list_bytes(length).unwrap_or(length);
    // The lists of the longest values are lists themselves.
    let stored = list_bytes(stored).unwrap_or(stored);
    length <= super::VALUE_BYTES_MAX && store.values_for(stored.min(PIECE_BYTES)).holds(id)
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
