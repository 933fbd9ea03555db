//! Index keys: columns normalised so that comparing words compares keys.
//!
//! A key is `W` words, compared as unsigned big-endian numbers, word after word. Columns follow each other as bytes:
//!
//! | column | bytes |
//! |---|---|
//! | null tag, nullable columns only | 1 for a value, 2 for NULL (nulls sort last), then zeros |
//! | bool, integers, dates, decimals | big-endian with the sign bit flipped |
//! | floats | sign-flipped bits, one NaN, one zero |
//! | uuid | as it is |
//! | bytes | a prefix of at most [`PREFIX_BYTES`], zero-padded |
//!
//! A descending column is inverted. A key with a cut or NUL-ended byte string is not `exact`: keys that are equal in words may differ, and their
//! order is decided by the rows.

use super::layout::Layout;
use super::row::Row;
use super::types::{Type, Value};
use std::cmp::Ordering;

/// How much of a byte string a key holds.
pub const PREFIX_BYTES: usize = 32;

/// One column of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyColumn {
    /// Position in the table.
    pub column: u16,
    pub descending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    column: KeyColumn,
    ty: Type,
    nullable: bool,
    /// Where the part starts in the key, and its bytes with the null tag.
    start: usize,
    bytes: usize,
}

impl Part {
    /// How an integer becomes the key's word, if this is the only part and one word has it.
    fn integer(&self) -> Option<IntegerKey> {
        if self.ty.is_variable() || self.bytes > 8 {
            return None;
        }
        let tag_bits = 8 * u8::from(self.nullable);
        let bits = 8 * self.bytes as u8;
        let tag = if self.nullable { 1 << 56 } else { 0 };
        let inverted = if self.column.descending { u64::MAX << (64 - bits) } else { 0 };
        Some(IntegerKey { left: 64 + tag_bits - bits, right: tag_bits, flip: (tag | 1 << (63 - tag_bits)) ^ inverted })
    }
}

/// An integer's bytes are shifted into place, and then bits are flipped: its sign, the null tag, all of them in a descending column.
#[derive(Clone, Copy, Debug)]
struct IntegerKey {
    left: u8,
    right: u8,
    flip: u64,
}

impl IntegerKey {
    #[inline]
    fn word(self, value: i64) -> u64 {
        ((value as u64) << self.left >> self.right) ^ self.flip
    }
}

/// What an index is over, and how its keys are made.
#[derive(Clone, Debug)]
pub struct KeySpec {
    parts: Vec<Part>,
    words: usize,
    seed: u64,
    has_variable: bool,
    integer: Option<IntegerKey>,
}

/// Room for a key; reuse it.
#[derive(Clone, Default, Debug)]
pub struct KeyBuf {
    pub words: Vec<u64>,
    /// The words of several keys.
    pub(crate) many: Vec<u64>,
    bytes: Vec<u8>,
    pub exact: bool,
    /// A unique index takes any number of keys with a null.
    pub has_null: bool,
}

/// One column of a search key: a value, or an end of the whole range.
#[derive(Clone, Copy, Debug)]
pub enum KeyPart<'a> {
    Value(Value<'a>),
    /// Below every value of the column.
    Lowest,
    /// Above every value of the column, nulls included.
    Highest,
    /// Above every value, below the nulls.
    AboveValues,
}

impl KeyBuf {
    /// With room for every key: encoding one allocates nothing.
    pub(crate) fn with_room() -> KeyBuf {
        KeyBuf { words: Vec::with_capacity(512), bytes: Vec::with_capacity(4096), ..KeyBuf::default() }
    }
}

impl KeySpec {
    /// `nullable` as the columns are declared; `seed` keys the hash.
    pub fn new(columns: &[KeyColumn], layout: &Layout, nullable: impl Fn(u16) -> bool, seed: u64) -> KeySpec {
        let mut start = 0;
        let parts: Vec<Part> = columns
            .iter()
            .map(|&column| {
                let ty = layout.column_type(usize::from(column.column));
                let nullable = nullable(column.column);
                let bytes = key_width(ty) + usize::from(nullable);
                start += bytes;
                Part { column, ty, nullable, start: start - bytes, bytes }
            })
            .collect();
        let has_variable = parts.iter().any(|part| layout.lies_elsewhere(usize::from(part.column.column)));
        let integer = if let [only] = parts.as_slice() { only.integer() } else { None };
        KeySpec { parts, words: start.div_ceil(8).max(1), seed, has_variable, integer }
    }

    /// Whether a column has values that may lie outside of the record.
    #[inline]
    pub fn has_variable(&self) -> bool {
        self.has_variable
    }

    /// Words of a key.
    pub fn words(&self) -> usize {
        self.words
    }

    pub fn columns(&self) -> impl ExactSizeIterator<Item = KeyColumn> + '_ {
        self.parts.iter().map(|p| p.column)
    }

    /// The row's key. Long values of key columns must have been fetched.
    pub fn of_row(&self, layout: &Layout, row: &Row, key: &mut KeyBuf) {
        self.encode(key, |i| KeyPart::Value(row.get(layout, usize::from(self.parts[i].column.column))));
    }

    /// The key whose `i`-th column is `part(i)`.
    #[inline]
    pub fn encode<'a>(&self, key: &mut KeyBuf, part: impl Fn(usize) -> KeyPart<'a>) {
        key.exact = true;
        key.has_null = false;
        key.words.clear();
        if let (Some(integer), KeyPart::Value(Value::Int(v))) = (self.integer, part(0)) {
            key.words.push(integer.word(v));
            return;
        }
        self.encode_bytes(key, part);
    }

    /// The one word of a key of one integer, if it has one.
    #[inline]
    pub fn integer_word(&self, value: i64) -> Option<u64> {
        Some(self.integer?.word(value))
    }

    fn encode_bytes<'a>(&self, key: &mut KeyBuf, part: impl Fn(usize) -> KeyPart<'a>) {
        key.bytes.clear();
        key.bytes.resize(self.words * 8, 0);
        for (i, spec) in self.parts.iter().enumerate() {
            let out = &mut key.bytes[spec.start..spec.start + spec.bytes];
            match part(i) {
                KeyPart::Value(value) => {
                    key.has_null |= value.is_null();
                    key.exact &= encode_value(spec, &value, out);
                }
                // The ends are ends in the index's own direction, so they are not inverted.
                KeyPart::Lowest => continue,
                KeyPart::Highest => {
                    out.fill(0xff);
                    continue;
                }
                KeyPart::AboveValues => encode_above_values(spec, out),
            }
            if spec.column.descending {
                out.iter_mut().for_each(|b| *b = !*b);
            }
        }
        key.words.extend(key.bytes.chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().expect("8 bytes"))));
    }

    /// Fills the bytes after the last column with ones, so that the key is an upper end.
    pub fn pad_high(&self, key: &mut KeyBuf) {
        let end = self.parts.last().map_or(0, |p| p.start + p.bytes);
        let spare = self.words * 8 - end;
        if spare > 0 {
            let last = key.words.last_mut().expect("a key has a word");
            *last |= (1u64 << (spare * 8)) - 1;
        }
    }

    /// A keyed hash of whole values: equal keys hash equally whatever their display form.
    #[inline]
    pub fn hash<'a>(&self, value: impl Fn(usize) -> Value<'a>) -> u64 {
        let mut state = self.seed;
        for (i, spec) in self.parts.iter().enumerate() {
            match value(i) {
                Value::Null => state = mix(state, 0x9e37_79b9),
                Value::Bool(v) => state = mix(state, u64::from(v)),
                Value::Int(v) => state = mix(state, v as u64),
                Value::Float(v) => state = mix(state, ordered_float(v)),
                Value::Decimal(v) => state = mix(mix(state, v as u64), (v >> 64) as u64),
                Value::Uuid(v) => state = mix(mix(state, v as u64), (v >> 64) as u64),
                Value::Bytes(v) => state = hash_bytes(state, spec.ty.key_bytes(v)),
            }
        }
        state
    }

    /// The hash of a key of one integer.
    #[inline]
    pub fn hash_integer(&self, value: i64) -> u64 {
        mix(self.seed, value as u64)
    }

    /// The hash of the row's key.
    pub fn hash_row(&self, layout: &Layout, row: &Row) -> u64 {
        self.hash(|i| row.get(layout, usize::from(self.parts[i].column.column)))
    }

    /// The leading bytes that the row's key may share with keys that its words do not tell from it: up to the end of the first column whose bytes
    /// are cut, or which cut ones may precede. `None`: entries of the key stand where the index's order wants them.
    pub fn tie_bytes(&self, layout: &Layout, row: &Row, backward: bool) -> Option<usize> {
        let tied = self.parts.iter().find(|part| {
            let Value::Bytes(v) = row.get(layout, usize::from(part.column.column)) else { return false };
            let v = part.ty.key_bytes(v);
            let width = part.bytes - usize::from(part.nullable);
            let is_cut = v.len() > width || v.last() == Some(&0);
            // What is longer and has the same bytes comes after this one: met first if the order is turned round.
            let is_reversed = part.column.descending != backward;
            is_cut || is_reversed && (v.len() == width || matches!(part.ty, Type::Bytea))
        });
        tied.map(|part| part.start + part.bytes)
    }

    /// Whether two keys have the same first bytes.
    pub fn same_lead(a: &[u64], b: &[u64], bytes: usize) -> bool {
        let (whole, rest) = (bytes / 8, bytes % 8);
        let mask = if rest == 0 { 0 } else { u64::MAX << (64 - rest * 8) };
        a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) & mask == 0)
    }

    /// Whether the row has exactly this key. A null equals nothing.
    #[inline]
    pub fn row_matches<'a>(&self, layout: &Layout, row: &Row, value: impl Fn(usize) -> Value<'a>) -> bool {
        self.parts.iter().enumerate().all(|(i, spec)| {
            match (row.get(layout, usize::from(spec.column.column)), value(i)) {
                (Value::Int(a), Value::Int(b)) => a == b,
                (Value::Null, _) | (_, Value::Null) => false,
                (a, b) => spec.ty.compare(&a, &b) == Ordering::Equal,
            }
        })
    }

    /// Whether two rows have the same key, nulls being equal to nulls.
    pub fn rows_equal(&self, layout: &Layout, a: &Row, b: &Row) -> bool {
        self.compare_rows(layout, a, b) == Ordering::Equal
    }

    /// The index's order of two rows.
    pub fn compare_rows(&self, layout: &Layout, a: &Row, b: &Row) -> Ordering {
        for spec in &self.parts {
            let column = usize::from(spec.column.column);
            let order = spec.ty.compare(&a.get(layout, column), &b.get(layout, column));
            if order != Ordering::Equal {
                return if spec.column.descending { order.reverse() } else { order };
            }
        }
        Ordering::Equal
    }
}

fn key_width(ty: Type) -> usize {
    match ty {
        Type::Char(n) | Type::Varchar(n) => (n as usize * 4).clamp(1, PREFIX_BYTES),
        Type::Numeric { .. } | Type::Text | Type::Bytea | Type::Name => PREFIX_BYTES,
        fixed => fixed.field_bytes(),
    }
}

/// Writes the value's bytes; false if the key became inexact.
fn encode_value(spec: &Part, value: &Value<'_>, out: &mut [u8]) -> bool {
    let out = if spec.nullable {
        out[0] = if value.is_null() { 2 } else { 1 };
        &mut out[1..]
    } else {
        out
    };
    match *value {
        Value::Null => {}
        Value::Bool(v) => out[0] = u8::from(v),
        Value::Int(v) => put_signed(out, i128::from(v)),
        Value::Decimal(v) => put_signed(out, v),
        Value::Float(v) => {
            let wide = ordered_float(v);
            if out.len() == 4 {
                out.copy_from_slice(&ordered_float4(v).to_be_bytes())
            } else {
                out.copy_from_slice(&wide.to_be_bytes())
            }
        }
        Value::Uuid(v) => out.copy_from_slice(&v.to_be_bytes()),
        Value::Bytes(v) => {
            let v = spec.ty.key_bytes(v);
            let taken = v.len().min(out.len());
            out[..taken].copy_from_slice(&v[..taken]);
            return v.len() <= out.len() && v.last() != Some(&0);
        }
    }
    true
}

/// The end of the values, which is below the word of a null also where it is included.
fn encode_above_values(spec: &Part, out: &mut [u8]) {
    out.fill(0xff);
    if spec.nullable {
        out[0] = 1;
    }
}

fn put_signed(out: &mut [u8], value: i128) {
    let bytes = value.to_be_bytes();
    let width = out.len();
    out.copy_from_slice(&bytes[16 - width..]);
    out[0] ^= 0x80;
}

/// Bits whose unsigned order is PostgreSQL's float order: NaN largest, -0 equal to 0.
fn ordered_float(v: f64) -> u64 {
    if v.is_nan() {
        return u64::MAX;
    }
    let bits = if v == 0.0 { 0 } else { v.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn ordered_float4(v: f64) -> u32 {
    if v.is_nan() {
        return u32::MAX;
    }
    let bits = if v == 0.0 { 0 } else { (v as f32).to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// One step of a keyed multiply-fold hash (the construction of wyhash): the high and low halves of a 128-bit product.
#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ 0xa076_1d64_78bd_642f) * u128::from(word ^ 0xe703_7ed1_a0b4_28db);
    let folded = product as u64 ^ (product >> 64) as u64;
    folded.wrapping_add(state.rotate_left(23))
}

fn hash_bytes(mut state: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        state = mix(state, u64::from_le_bytes(chunk.try_into().expect("8 bytes")));
    }
    let mut tail = [0u8; 8];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(mix(state, u64::from_le_bytes(tail)), bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_an_integer_is_that_of_its_bytes() {
        let values = [i64::MIN, i64::MIN + 1, -32_769, -32_768, -2, -1, 0, 1, 255, 32_767, 1 << 31, i64::MAX];
        for (ty, descending, nullable) in [Type::Int2, Type::Int4, Type::Int8, Type::Timestamp]
            .into_iter()
            .flat_map(|ty| [(ty, false), (ty, true)])
            .flat_map(|(ty, descending)| [(ty, descending, false), (ty, descending, true)])
        {
            let layout = Layout::new(&[ty]).expect("a row of one column");
            let spec = KeySpec::new(&[KeyColumn { column: 0, descending }], &layout, |_| nullable, 7);
            let (mut short, mut long) = (KeyBuf::default(), KeyBuf::default());
            for value in values {
                spec.encode(&mut short, |_| KeyPart::Value(Value::Int(value)));
                long.words.clear();
                spec.encode_bytes(&mut long, |_| KeyPart::Value(Value::Int(value)));
                assert_eq!(short.words, long.words, "{value} of {ty:?}, descending {descending}, nullable {nullable}");
                let word = spec.integer_word(value);
                assert_eq!(word.is_none(), spec.words() > 1, "{ty:?}, nullable {nullable}");
                assert!(word.is_none_or(|word| long.words == [word]));
            }
        }
    }
}
