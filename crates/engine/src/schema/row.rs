//! A row as a private copy of a record: what readers get and writers give.

use super::layout::{FIELD_BYTES_MAX, Field, IntegerWord, LINK_BITS, Layout, Missing, Picks};
use super::types::{TimeKind, Type, Value};
use crate::ids::{Cts, RowId};
use crate::mem::bytes_of;
use crate::planted::{self, Bug};

/// Flag in word 1: the version exists. A deleted or never inserted record has it clear.
pub const LIVE: u64 = 1;
/// In a descriptor's second word of a private copy: the long value lies in the row's own heap, at this offset.
const HEAP_BIT: u64 = 1 << 63;
const INLINE_MAX: usize = 12;

impl IntegerWord {
    /// Its word in the record.
    #[inline]
    pub(crate) fn at(self) -> usize {
        usize::from(self.word)
    }

    /// The integer of a record with these `flags` (its word 1) and this `word`; nothing if it is null or the version does not exist.
    #[inline]
    pub(crate) fn of(self, flags: u64, word: u64) -> Option<i64> {
        (flags & (LIVE | self.null) == LIVE).then_some(self.integer(word))
    }

    #[inline]
    fn integer(self, word: u64) -> i64 {
        (word << self.left) as i64 >> self.right
    }

    /// Whether the column has room for the value.
    #[inline]
    pub fn fits(self, value: i64) -> bool {
        (value << self.right) >> self.right == value
    }
}

/// A private copy of a record's persistent part, with the long values fetched or set so far on its heap.
/// Reuse one across reads: it keeps its memory.
#[derive(Clone, Default, Debug)]
pub struct Row {
    pub(crate) words: Vec<u64>,
    pub(crate) heap: Vec<u8>,
    /// Long values fetched so far: the descriptor's word and the heap offset. The descriptor itself keeps the row id,
    /// so that a copy given back for an update differs only where it was set.
    fetched: Vec<(u16, usize)>,
}

impl Row {
    /// What it takes beside itself, used or not.
    pub fn spare_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.heap.capacity()
    }

    /// A live row with every column null.
    pub fn new(layout: &Layout) -> Row {
        let mut row = Row::default();
        row.reset(layout);
        row
    }

    /// With room for a copy of every record.
    pub(crate) fn with_room() -> Row {
        Row { words: Vec::with_capacity(FIELD_BYTES_MAX / 8 + 64), ..Row::default() }
    }

    /// Makes it a live row with every column null, keeping its memory.
    pub fn reset(&mut self, layout: &Layout) {
        self.words.clear();
        self.words.extend_from_slice(&layout.blank);
        self.heap.clear();
        self.fetched.clear();
    }

    /// The commit timestamp of the version that was read.
    pub fn cts(&self) -> Cts {
        Cts(self.words[0])
    }

    pub fn is_live(&self) -> bool {
        self.words.get(1).is_some_and(|w| w & LIVE != 0)
    }

    /// Makes it a version that does not exist.
    pub(crate) fn set_dead(&mut self) {
        self.words[1] &= !LIVE;
    }

    #[inline]
    pub fn is_null(&self, layout: &Layout, column: usize) -> bool {
        let field = &layout.fields[column];
        self.words[usize::from(field.null_word)] >> field.null_bit & 1 == 1
    }

    /// The column's value. A long value must have been fetched (`Txn::fetch_long`) or set before.
    #[inline]
    pub fn get<'a>(&'a self, layout: &Layout, column: usize) -> Value<'a> {
        let field = &layout.fields[column];
        if self.words[usize::from(field.null_word)] >> field.null_bit & 1 == 1 {
            return Value::Null;
        }
        let at = usize::from(field.word);
        let raw = self.words[at] >> field.shift;
        match field.ty {
            Type::Int8 => Value::Int(raw as i64),
            _ => self.get_other(field, at, raw),
        }
    }

    /// What stands in a column of at most eight bytes, as a signed number of its width. Of a null it may be anything.
    #[inline]
    pub fn small(&self, layout: &Layout, column: usize) -> i64 {
        let field = &layout.fields[column];
        let unused = 64 - 8 * field.ty.field_bytes().min(8) as u32;
        ((self.words[usize::from(field.word)] >> field.shift) << unused) as i64 >> unused
    }

    fn get_other(&self, field: &Field, at: usize, raw: u64) -> Value<'_> {
        match field.ty {
            Type::Bool => Value::Bool(raw & 1 == 1),
            Type::Int2 => Value::Int(i64::from(raw as i16)),
            Type::Int4 | Type::Date => Value::Int(i64::from(raw as i32)),
            Type::Int8 | Type::Time | Type::Timestamp | Type::Timestamptz => Value::Int(raw as i64),
            Type::Oid(_) | Type::Enum(_) => Value::Int(raw as i64),
            Type::Rounded(kind, _) if kind != TimeKind::Interval => Value::Int(raw as i64),
            Type::Float4 => Value::Float(f64::from(f32::from_bits(raw as u32))),
            Type::Float8 => Value::Float(f64::from_bits(raw)),
            Type::Decimal { .. } => Value::Decimal(match field.ty.field_bytes() {
                4 => i128::from(raw as i32),
                8 => i128::from(raw as i64),
                _ => self.wide(at) as i128,
            }),
            Type::Uuid => Value::Uuid(self.wide(at)),
            _ => Value::Bytes(self.bytes(at)),
        }
    }

    fn wide(&self, at: usize) -> u128 {
        u128::from(self.words[at]) | u128::from(self.words[at + 1]) << 64
    }

    fn bytes(&self, at: usize) -> &[u8] {
        let length = self.words[at] as u32 as usize;
        if length <= INLINE_MAX {
            return &bytes_of(&self.words[at..at + 2])[4..4 + length];
        }
        let start = self.heap_offset(at).expect("invariant: a long value is fetched before it is read");
        &self.heap[start..start + length]
    }

    fn heap_offset(&self, at: usize) -> Option<usize> {
        let high = self.words[at + 1];
        if high & HEAP_BIT != 0 {
            return Some((high & !HEAP_BIT) as usize);
        }
        self.fetched.iter().find(|(word, _)| usize::from(*word) == at).map(|&(_, offset)| offset)
    }

    /// The value of the column at this `Layout::integer_word`; nothing for a null.
    #[inline]
    pub fn integer(&self, at: IntegerWord) -> Option<i64> {
        (self.words[1] & at.null == 0).then(|| at.integer(self.words[usize::from(at.word)]))
    }

    /// Whether the version exists and the column at this `Layout::integer_word` has this value.
    #[inline]
    pub(crate) fn has_integer(&self, at: IntegerWord, value: i64) -> bool {
        at.of(self.words[1], self.words[at.at()]) == Some(value)
    }

    /// Sets a column. The value must have the form of the column's type; text is given as it is to be stored.
    pub fn set(&mut self, layout: &Layout, column: usize, value: &Value<'_>) {
        let field = layout.fields[column];
        let null = &mut self.words[usize::from(field.null_word)];
        if value.is_null() {
            *null |= 1 << field.null_bit;
            self.set_raw(&field, 0, 0);
            return;
        }
        *null &= !(1 << field.null_bit);
        match *value {
            Value::Bool(v) => self.set_raw(&field, u64::from(v), 0),
            Value::Int(v) => self.set_raw(&field, v as u64, 0),
            Value::Float(v) if field.ty == Type::Float4 => self.set_raw(&field, u64::from((v as f32).to_bits()), 0),
            Value::Float(v) => self.set_raw(&field, v.to_bits(), 0),
            Value::Decimal(v) => self.set_raw(&field, v as u64, (v >> 64) as u64),
            Value::Uuid(v) => self.set_raw(&field, v as u64, (v >> 64) as u64),
            Value::Bytes(v) => {
                let (low, high) = self.descriptor(v);
                self.set_raw(&field, low, high);
            }
            Value::Null => unreachable!("handled above"),
        }
    }

    fn descriptor(&mut self, value: &[u8]) -> (u64, u64) {
        let mut bytes = [0u8; 16];
        bytes[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let head = value.len().min(if value.len() <= INLINE_MAX { INLINE_MAX } else { 4 });
        bytes[4..4 + head].copy_from_slice(&value[..head]);
        let low = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let mut high = u64::from_le_bytes(bytes[8..].try_into().expect("8 bytes"));
        if value.len() > INLINE_MAX {
            high = HEAP_BIT | self.heap.len() as u64;
            self.heap.extend_from_slice(value);
        }
        (low, high)
    }

    fn set_raw(&mut self, field: &Field, low: u64, high: u64) {
        let at = usize::from(field.word);
        self.fetched.retain(|(word, _)| usize::from(*word) != at);
        let bits = field.ty.field_bytes().min(8) * 8;
        let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << field.shift };
        self.words[at] = self.words[at] & !mask | low << field.shift & mask;
        if field.ty.field_bytes() == 16 {
            self.words[at + 1] = high;
        }
    }

    /// Takes `from`'s content, keeping this row's memory.
    pub fn copy_from(&mut self, from: &Row) {
        self.words.clear();
        self.words.extend_from_slice(&from.words);
        self.heap.clear();
        self.heap.extend_from_slice(&from.heap);
        self.fetched.clear();
        self.fetched.extend_from_slice(&from.fetched);
    }

    /// Makes room for a copy of `words` words, which may be anything: the caller fills them, or those it looks at.
    #[inline]
    pub(crate) fn start_copy(&mut self, words: usize) -> &mut [u64] {
        if self.words.len() != words {
            self.resize(words);
        }
        self.heap.clear();
        self.fetched.clear();
        &mut self.words
    }

    #[cold]
    fn resize(&mut self, words: usize) {
        self.words.resize(words, 0);
    }

    /// Takes the words of `picks` and those before them from a copy of the same.
    pub(crate) fn copy_picked(&mut self, from: &Row, picks: &Picks) {
        let to = self.start_copy(from.words.len());
        for at in [0, 1].into_iter().chain(picks.few).chain(picks.rest.iter().copied()) {
            to[usize::from(at)] = from.words[usize::from(at)];
        }
    }

    /// Sets the column at this `Layout::integer_word`, which has room for the value.
    #[inline]
    pub fn set_integer(&mut self, at: IntegerWord, value: i64) {
        debug_assert!(at.fits(value), "invariant: the value has the form of the column's type");
        self.words[1] &= !at.null;
        let word = &mut self.words[usize::from(at.word)];
        let shift = at.right - at.left;
        let mask = (u64::MAX >> at.right) << shift;
        *word = *word & !mask | (value as u64) << shift & mask;
    }

    /// Makes it a copy of which only the words `at` count; the others are any.
    pub(crate) fn pick(&mut self, words: usize, at: &[usize], word: impl Fn(usize) -> u64) {
        self.words.resize(words, 0);
        self.heap.clear();
        self.fetched.clear();
        at.iter().for_each(|&at| self.words[at] = word(at));
    }

    // ---- the extension

    /// Where its extension is stored, if it is.
    pub(crate) fn link(&self, layout: &Layout) -> Option<RowId> {
        let link = layout.link?;
        link.of(self.words[usize::from(link.word)]).checked_sub(1).map(RowId)
    }

    pub(crate) fn set_link(&mut self, layout: &Layout, to: Option<RowId>) {
        let link = layout.link.expect("invariant: a record with an extension has a place for its link");
        let bits = to.map_or(0, |to| to.0 + 1);
        assert!(bits >> LINK_BITS == 0, "invariant: the last slot of all pages holds no long value");
        let word = &mut self.words[usize::from(link.word)];
        *word = link.put(*word, bits);
    }

    /// Whether everything is there: the extension, if there is one.
    #[inline]
    pub(crate) fn is_whole(&self, layout: &Layout) -> bool {
        self.words.len() >= layout.row_words()
    }

    /// Its extension as it is to be stored: nothing where it has what is missing from a record without one.
    pub(crate) fn extension(&self, layout: &Layout) -> Option<&[u64]> {
        let extension = layout.extension.as_ref()?;
        let own = &self.words[layout.words()..];
        (!extension.long.is_empty() || *own != *extension.missing).then_some(own)
    }

    /// Gives the copy its extension: what is `stored`, and what is missing there.
    pub(crate) fn extend(&mut self, layout: &Layout, stored: &[u64]) {
        let Some(extension) = &layout.extension else { return };
        let start = layout.words();
        self.words.truncate(start);
        self.words.extend_from_slice(&extension.missing);
        if planted::is(Bug::ForgetMissing) {
            self.words[start + 1..].fill(0);
        }
        let written = stored.first().map_or(0, |columns| *columns as usize);
        let end = extension.first.saturating_add(written).min(layout.columns());
        for field in &layout.fields[extension.first..end] {
            let (at, null_at) = (usize::from(field.word), usize::from(field.null_word));
            let words = field.ty.field_bytes().div_ceil(8);
            let (Some(from), Some(nulls)) = (stored.get(at - start..at - start + words), stored.get(null_at - start))
            else {
                return;
            };
            self.words[at..at + words].copy_from_slice(from);
            let bit = 1 << field.null_bit;
            self.words[null_at] = self.words[null_at] & !bit | nulls & bit;
        }
        for (column, bytes) in extension.long.iter().filter(|(column, _)| *column >= end) {
            self.set(layout, *column, &Value::Bytes(bytes));
        }
    }

    /// Leaves the extension out again.
    pub(crate) fn shorten(&mut self, layout: &Layout) {
        self.words.truncate(layout.words());
    }

    /// A stored long value of this column that is not on the heap yet: its length and row id.
    pub(crate) fn unfetched(&self, layout: &Layout, column: usize) -> Option<(usize, RowId)> {
        let (length, row) = self.stored(layout, column)?;
        self.heap_offset(usize::from(layout.fields[column].word)).is_none().then_some((length, row))
    }

    /// A stored long value of this column: its length and row id.
    pub(crate) fn stored(&self, layout: &Layout, column: usize) -> Option<(usize, RowId)> {
        let (length, high) = self.long_descriptor(layout, column)?;
        (high & HEAP_BIT == 0).then_some((length, RowId(high)))
    }

    /// What the column's descriptor says of a long value: its length and first bytes, and where it is stored. A descriptor that is
    /// no row id says nowhere.
    pub(crate) fn described(&self, layout: &Layout, column: usize) -> Option<(usize, [u8; 4], Option<RowId>)> {
        let (length, high) = self.long_descriptor(layout, column)?;
        let at = usize::from(layout.fields[column].word);
        if self.heap_offset(at).is_some() {
            return None;
        }
        let low = self.words[at].to_le_bytes();
        let prefix = [low[4], low[5], low[6], low[7]];
        Some((length, prefix, (high <= RowId::MAX.0).then_some(RowId(high))))
    }

    /// Whether one of these columns has its value elsewhere.
    pub(crate) fn has_long(&self, layout: &Layout, columns: &[u16]) -> bool {
        let lies_elsewhere =
            |column: usize| layout.is_in_extension(column) || self.long_descriptor(layout, column).is_some();
        !self.heap.is_empty() || columns.iter().any(|&c| lies_elsewhere(usize::from(c)))
    }

    /// A long value of this column that was set and is not stored yet.
    pub(crate) fn unstored(&self, layout: &Layout, column: usize) -> Option<&[u8]> {
        let (length, high) = self.long_descriptor(layout, column)?;
        let start = (high & !HEAP_BIT) as usize;
        (high & HEAP_BIT != 0).then(|| &self.heap[start..start + length])
    }

    fn long_descriptor(&self, layout: &Layout, column: usize) -> Option<(usize, u64)> {
        let field = &layout.fields[column];
        let at = usize::from(field.word);
        if !field.ty.is_variable() || at >= self.words.len() || self.is_null(layout, column) {
            return None;
        }
        let length = self.words[at] as u32 as usize;
        (length > INLINE_MAX).then(|| (length, self.words[at + 1]))
    }

    /// Points a long value's descriptor at where it was stored.
    pub(crate) fn set_stored(&mut self, layout: &Layout, column: usize, row: RowId) {
        let at = usize::from(layout.fields[column].word);
        let offset = (self.words[at + 1] & !HEAP_BIT) as usize;
        self.fetched.push((at as u16, offset));
        self.words[at + 1] = row.0;
    }

    /// Notes that the column's stored long value, just appended to the heap, starts at `offset` there.
    pub(crate) fn set_fetched(&mut self, layout: &Layout, column: usize, offset: usize) {
        self.fetched.push((layout.fields[column].word, offset));
    }
}

impl Missing {
    /// Of a column of this type; nothing for a null.
    pub fn of(ty: Type, value: &Value<'_>) -> Option<Missing> {
        match value {
            Value::Null => None,
            Value::Bytes(bytes) => Some(Missing::Bytes((*bytes).into())),
            value => {
                let layout = Layout::new(&[ty]).expect("one column is not too wide");
                let mut row = Row::new(&layout);
                row.set(&layout, 0, value);
                let at = usize::from(layout.fields[0].word);
                Some(Missing::Fixed([row.words[at], row.words.get(at + 1).copied().unwrap_or(0)]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(ty: Type) -> Value<'static> {
        match ty {
            Type::Bool => Value::Bool(true),
            Type::Uuid => Value::Uuid(u128::MAX / 3),
            _ => Value::Int(-2),
        }
    }

    #[test]
    fn a_link_and_its_neighbours_keep_apart() {
        for columns in [1, 16, 17, 20, 23, 24, 60] {
            let layout = Layout::with_link(&vec![Type::Int8; columns], true).expect("it is small");
            let mut row = Row::new(&layout);
            let empty = row.words.clone();
            for link in [0, 1, 0x55_5555_5555, RowId::MAX.0 - 1] {
                row.set_link(&layout, Some(RowId(link)));
                assert_eq!(row.link(&layout), Some(RowId(link)), "{columns}");
                assert!(row.is_live() && (0..columns).all(|column| row.is_null(&layout, column)), "{columns}");
            }
            row.set_link(&layout, None);
            assert_eq!((row.link(&layout), &row.words), (None, &empty), "{columns}");
        }
    }

    /// Columns that share words: what is set by its place is what is got by its type, and no neighbour changes.
    #[test]
    fn integers_of_every_width_are_read_and_set_in_place() {
        let types = [Type::Int2, Type::Int4, Type::Int8, Type::Int2, Type::Bool, Type::Int4, Type::Uuid];
        let layout = Layout::new(&types).expect("it is small");
        let widest =
            [i64::from(i16::MAX), i64::from(i32::MAX), i64::MAX, i64::from(i16::MAX), 1, i64::from(i32::MAX), 1];
        for (column, ty) in types.iter().enumerate() {
            let Some(at) = layout.integer_word(column as u16) else {
                assert!(matches!(ty, Type::Bool | Type::Uuid));
                continue;
            };
            let most = widest[column];
            assert!(at.fits(most) && at.fits(!most) && !(most < i64::MAX && at.fits(most + 1)));
            for value in [0, 1, -1, most, !most] {
                let mut row = Row::new(&layout);
                types.iter().enumerate().for_each(|(other, ty)| row.set(&layout, other, &neighbour(*ty)));
                row.set_integer(at, value);
                assert_eq!(row.integer(at), Some(value));
                assert!(row.has_integer(at, value) && !row.has_integer(at, value ^ 1));
                for (other, &ty) in types.iter().enumerate() {
                    let due = if other == column { Value::Int(value) } else { neighbour(ty) };
                    assert_eq!(row.get(&layout, other), due, "column {other} after setting {column} to {value}");
                }
                row.set(&layout, column, &Value::Null);
                assert_eq!(row.integer(at), None);
            }
        }
    }
}
