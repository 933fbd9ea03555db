//! Index keys: columns normalised so that comparing words compares keys.
//!
//! A key is a string of bytes in words, which are compared as unsigned big-endian numbers, word after word. Columns follow each other:
//!
//! | column | bytes |
//! |---|---|
//! | null tag of a nullable column | 1 for a value, 2 for NULL (nulls sort last), then zeros |
//! | bool, integers, dates, decimals | big-endian with the sign bit flipped |
//! | floats | sign-flipped bits, one NaN, one zero |
//! | uuid | as it is |
//! | bytes | 1, the bytes with 0 as 1 1 and 1 as 1 2, then 0; NULL is 3 alone |
//!
//! A descending column is inverted, and zeros fill the last word. Where no column is of bytes, all keys have as many words: they are compared
//! as they are. Otherwise they differ in length, and
//!
//! 1. no key is the beginning of another: each column says where it ends. So two keys differ before either ends, and how words are filled up
//!    is no matter.
//! 2. Words order keys as the columns do, whatever their length, up to [`STRING_WORDS`]. What a longer key has beyond them is *cut*: a keyed hash
//!    of it takes its place. So keys are still equal if their words are, as far as 64 bits tell, and who looks for one meets no others; but
//!    which of two cut keys comes first where their first words are the same, only the rows tell.

use super::layout::Layout;
use super::row::Row;
use super::types::{Type, Value};
use std::cmp::Ordering;

/// Bytes of a byte string that a definition counts with, and for which a tree's nodes have room.
const NOMINAL_BYTES: usize = 32;
/// Words of a key that are in the key's order, of one whose columns differ in length: 2,720 bytes, what PostgreSQL allows at most.
pub const STRING_WORDS: usize = 340;
/// Words of such a key for which a node has room.
const NODE_WORDS_MIN: usize = 2;
const NODE_WORDS_MAX: usize = 6;

/// Tag and end of a column of bytes.
const STRING_FRAME_BYTES: usize = 2;

/// First byte of a column of bytes.
mod tag {
    pub const VALUE: u8 = 1;
    pub const ABOVE_VALUES: u8 = 2;
    pub const NULL: u8 = 3;
    pub const HIGHEST: u8 = 0xff;
}

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
    /// What a node has room for, of a key that may go on elsewhere.
    fn node_bytes(&self) -> usize {
        match self.ty.is_variable() {
            true => (key_width(self.ty) + STRING_FRAME_BYTES).min(NOMINAL_BYTES),
            false => self.bytes,
        }
    }

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
    /// Of each key, or of the shortest.
    words: usize,
    /// Whether keys differ in length.
    is_string: bool,
    /// What a definition counts with.
    nominal_bytes: usize,
    seed: u64,
    has_variable: bool,
    integer: Option<IntegerKey>,
}

/// Room for a key; reuse it.
#[derive(Clone, Default, Debug)]
pub struct KeyBuf {
    pub words: Vec<u64>,
    /// The words of several keys, and where each ends.
    pub(crate) many: Vec<u64>,
    pub(crate) many_ends: Vec<usize>,
    bytes: Vec<u8>,
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

    /// The i-th of several keys.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u64] {
        &self.many[i.checked_sub(1).map_or(0, |before| self.many_ends[before])..self.many_ends[i]]
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
        let is_string = parts.iter().any(|part| part.ty.is_variable());
        let words = if is_string {
            let room: usize = parts.iter().map(Part::node_bytes).sum();
            room.div_ceil(8).clamp(NODE_WORDS_MIN, NODE_WORDS_MAX)
        } else {
            start.div_ceil(8).max(1)
        };
        KeySpec { parts, words, is_string, nominal_bytes: start, seed, has_variable, integer }
    }

    /// Whether a column has values that may lie outside of the record.
    #[inline]
    pub fn has_variable(&self) -> bool {
        self.has_variable
    }

    /// Words of a key; of the shortest, where they [differ](Self::is_string).
    pub fn words(&self) -> usize {
        self.words
    }

    /// Whether keys differ in length: some column is of bytes.
    #[inline]
    pub fn is_string(&self) -> bool {
        self.is_string
    }

    /// What limits the columns of an index: of each byte string 32.
    pub fn nominal_words(&self) -> usize {
        self.nominal_bytes.div_ceil(8)
    }

    /// Whether the words do not tell the order among keys of the same first [`STRING_WORDS`].
    #[inline]
    pub fn is_cut(words: &[u64]) -> bool {
        words.len() > STRING_WORDS
    }

    /// What a range begins with whose lower end is this key: the first of all that are cut like it.
    pub fn lower_end(words: &[u64]) -> &[u64] {
        &words[..words.len().min(STRING_WORDS)]
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
        key.words.clear();
        if let (Some(integer), KeyPart::Value(Value::Int(v))) = (self.integer, part(0)) {
            key.words.push(integer.word(v));
            return;
        }
        if self.is_string { self.encode_string(key, part) } else { self.encode_bytes(key, part) }
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
            encode_fixed(spec, part(i), out);
        }
        key.words.extend(key.bytes.chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().expect("8 bytes"))));
    }

    fn encode_string<'a>(&self, key: &mut KeyBuf, part: impl Fn(usize) -> KeyPart<'a>) {
        key.bytes.clear();
        let mut hash = self.seed;
        for (i, spec) in self.parts.iter().enumerate() {
            let start = key.bytes.len();
            if !spec.ty.is_variable() {
                key.bytes.resize(start + spec.bytes, 0);
                encode_fixed(spec, part(i), &mut key.bytes[start..]);
                continue;
            }
            match part(i) {
                KeyPart::Value(Value::Bytes(value)) => {
                    let value = spec.ty.key_bytes(value);
                    let room = (STRING_WORDS * 8).saturating_sub(start);
                    let (kept, cut) = value.split_at(value.len().min(room));
                    push_string(kept, &mut key.bytes);
                    if !cut.is_empty() {
                        // With the column's place: what one column lacks is not what another one lacks.
                        hash = hash_bytes(hash.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)), cut);
                    }
                }
                KeyPart::Value(Value::Null) => key.bytes.push(tag::NULL),
                KeyPart::Value(other) => panic!("invariant: a column of bytes has no {other:?}"),
                KeyPart::AboveValues => key.bytes.push(tag::ABOVE_VALUES),
                // The ends are ends in the index's own direction, so they are not inverted, and nothing comes after them.
                KeyPart::Lowest => break,
                KeyPart::Highest => {
                    key.bytes.push(tag::HIGHEST);
                    break;
                }
            }
            if spec.column.descending {
                key.bytes[start..].iter_mut().for_each(|b| *b = !*b);
            }
        }
        self.put_string(key, hash);
    }

    /// The bytes become words, those beyond [`STRING_WORDS`] a hash, as what was cut before.
    fn put_string(&self, key: &mut KeyBuf, hash: u64) {
        let (ordered, cut) = key.bytes.split_at(key.bytes.len().min(STRING_WORDS * 8));
        let (whole, rest) = ordered.as_chunks::<8>();
        key.words.extend(whole.iter().map(|&bytes| u64::from_be_bytes(bytes)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            key.words.push(u64::from_be_bytes(last));
        }
        if !cut.is_empty() {
            key.words.push(hash_bytes(hash, cut));
        }
        if key.words.len() < self.words {
            key.words.resize(self.words, 0);
        }
    }

    /// Makes the key an upper end: fills the bytes after the last column with ones, and what is cut.
    pub fn pad_high(&self, key: &mut KeyBuf) {
        if self.is_string {
            if let Some(hash) = key.words.get_mut(STRING_WORDS) {
                *hash = u64::MAX;
            }
            return;
        }
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
        Type::Char(n) | Type::Varchar(n) => (n as usize * 4).clamp(1, NOMINAL_BYTES),
        Type::Numeric { .. } | Type::Text | Type::Bytea | Type::Name => NOMINAL_BYTES,
        fixed => fixed.field_bytes(),
    }
}

/// Writes the bytes of a column of fixed length over zeros.
fn encode_fixed(spec: &Part, part: KeyPart<'_>, out: &mut [u8]) {
    match part {
        KeyPart::Value(value) => encode_value(spec, &value, out),
        // The ends are ends in the index's own direction, so they are not inverted.
        KeyPart::Lowest => return,
        KeyPart::Highest => return out.fill(0xff),
        KeyPart::AboveValues => encode_above_values(spec, out),
    }
    if spec.column.descending {
        out.iter_mut().for_each(|b| *b = !*b);
    }
}

/// Appends bytes so that their order is that of what is appended, and none is the beginning of another's.
fn push_string(value: &[u8], to: &mut Vec<u8>) {
    to.reserve(value.len() + STRING_FRAME_BYTES);
    to.push(tag::VALUE);
    if value.iter().all(|&byte| byte > 1) {
        to.extend_from_slice(value);
    } else {
        for &byte in value {
            if byte > 1 { to.push(byte) } else { to.extend_from_slice(&[1, byte + 1]) }
        }
    }
    to.push(0);
}

fn encode_value(spec: &Part, value: &Value<'_>, out: &mut [u8]) {
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
        Value::Bytes(_) => panic!("invariant: bytes are in columns of bytes"),
    }
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

    mod strings {
        use super::*;
        use proptest::prelude::*;

        /// A value that can be kept.
        #[derive(Clone, PartialEq, Debug)]
        enum Kept {
            Null,
            Int(i64),
            Bytes(Vec<u8>),
        }

        impl Kept {
            fn value(&self) -> Value<'_> {
                match self {
                    Kept::Null => Value::Null,
                    Kept::Int(v) => Value::Int(*v),
                    Kept::Bytes(v) => Value::Bytes(v),
                }
            }
        }

        #[derive(Clone, Debug)]
        struct Index {
            columns: Vec<(Type, bool, bool)>,
        }

        impl Index {
            fn spec(&self) -> KeySpec {
                let types: Vec<Type> = self.columns.iter().map(|column| column.0).collect();
                let layout = Layout::new(&types).expect("a few columns");
                let columns: Vec<KeyColumn> = (0..)
                    .zip(&self.columns)
                    .map(|(column, &(_, descending, _))| KeyColumn { column, descending })
                    .collect();
                KeySpec::new(&columns, &layout, |column| self.columns[usize::from(column)].2, 7)
            }

            /// The order that the columns have, nulls last before a descending column turns it round.
            fn compare(&self, a: &[Kept], b: &[Kept]) -> Ordering {
                let orders = self.columns.iter().zip(a.iter().zip(b)).map(|(&(ty, descending, _), (a, b))| {
                    let order = ty.compare(&a.value(), &b.value());
                    if descending { order.reverse() } else { order }
                });
                orders.fold(Ordering::Equal, Ordering::then)
            }
        }

        fn index() -> impl Strategy<Value = Index> {
            let ty = prop_oneof![Just(Type::Text), Just(Type::Bytea), Just(Type::Varchar(3)), Just(Type::Int4)];
            let columns = prop::collection::vec((ty, any::<bool>(), any::<bool>()), 1..4);
            let with_bytes = |columns: &Vec<(Type, bool, bool)>| columns.iter().any(|column| column.0.is_variable());
            columns.prop_filter("one of bytes", with_bytes).prop_map(|columns| Index { columns })
        }

        /// Bytes that are alike for long, have those that are escaped and those that are extremes, and end in each other.
        fn bytes() -> impl Strategy<Value = Vec<u8>> {
            let byte = prop_oneof![3 => 0..3u8, 2 => Just(b'a'), 1 => Just(255u8), 1 => any::<u8>()];
            let begin = prop_oneof![4 => Just(0), 3 => 20..70usize, 1 => STRING_WORDS * 8 - 12..STRING_WORDS * 8 + 4];
            (begin, prop::collection::vec(byte, 0..5)).prop_map(|(begin, end)| [vec![b'a'; begin], end].concat())
        }

        fn key(index: &Index) -> impl Strategy<Value = Vec<Kept>> + use<> {
            let columns = index.columns.iter().map(|&(ty, _, nullable)| {
                let value = match ty {
                    Type::Int4 => prop_oneof![-1..2i64, Just(i64::from(i32::MAX)), Just(i64::from(i32::MIN))]
                        .prop_map(Kept::Int)
                        .boxed(),
                    _ => bytes().prop_map(Kept::Bytes).boxed(),
                };
                prop_oneof![6 => value, u32::from(nullable) => Just(Kept::Null)].boxed()
            });
            columns.collect::<Vec<_>>()
        }

        fn words(spec: &KeySpec, key: &[Kept]) -> Vec<u64> {
            let mut buf = KeyBuf::default();
            spec.encode(&mut buf, |i| KeyPart::Value(key[i].value()));
            assert!((spec.words()..=STRING_WORDS + 1).contains(&buf.words.len()));
            buf.words
        }

        fn end<'a>(spec: &KeySpec, key: &'a [Kept], equal: usize, at: KeyPart<'a>, rest: KeyPart<'a>) -> KeyBuf {
            let mut buf = KeyBuf::default();
            spec.encode(&mut buf, |i| match i.cmp(&equal) {
                Ordering::Less => KeyPart::Value(key[i].value()),
                Ordering::Equal => at,
                Ordering::Greater => rest,
            });
            buf
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(600))]

            #[test]
            fn words_order_keys_as_their_columns_do(
                (index, keys) in index().prop_flat_map(|index| {
                    let keys = prop::collection::vec(key(&index), 2..12);
                    (Just(index), keys)
                })
            ) {
                let spec = index.spec();
                for a in &keys {
                    for b in &keys {
                        let (x, y) = (words(&spec, a), words(&spec, b));
                        let order = index.compare(a, b);
                        prop_assert_eq!(x == y, order == Ordering::Equal);
                        if KeySpec::lower_end(&x) == KeySpec::lower_end(&y) && x != y {
                            prop_assert!(KeySpec::is_cut(&x) && KeySpec::is_cut(&y), "{:?} {:?}", a, b);
                        } else {
                            prop_assert_eq!(x.cmp(&y), order, "{:?} {:?}", a, b);
                        }
                    }
                }
            }

            /// Ranges over the first columns: every key whose columns lie in them, and of others only those cut like an end.
            #[test]
            fn ends_lie_around_what_they_are_of(
                (index, keys, equal) in index().prop_flat_map(|index| {
                    let (keys, columns) = (prop::collection::vec(key(&index), 3..10), index.columns.len());
                    (Just(index), keys, 0..=columns)
                })
            ) {
                let spec = index.spec();
                let Some((from, others)) = keys.split_first() else { return Ok(()) };
                let is_at = equal < index.columns.len();
                let (_, descending, _) = index.columns[equal.min(index.columns.len() - 1)];
                for other in others {
                    let word = words(&spec, other);
                    let within = |low: KeyBuf, mut high: KeyBuf| {
                        spec.pad_high(&mut high);
                        KeySpec::lower_end(&low.words) <= word.as_slice() && word <= high.words
                    };
                    let order = |columns: usize| Index { columns: index.columns[..columns].to_vec() }.compare(from, other);
                    // What ends are cut like is in the range too.
                    let is_exact = !KeySpec::is_cut(&words(&spec, from));
                    let is_right = |met: bool, wanted: bool| met == wanted || met && !is_exact;
                    let all = within(
                        end(&spec, from, equal, KeyPart::Lowest, KeyPart::Lowest),
                        end(&spec, from, equal, KeyPart::Highest, KeyPart::Highest),
                    );
                    let is_like = order(equal) == Ordering::Equal;
                    prop_assert!(is_right(all, is_like), "{:?} {:?}", from, other);
                    if is_at && from[equal] != Kept::Null {
                        let at = KeyPart::Value(from[equal].value());
                        let onwards = within(
                            end(&spec, from, equal, at, KeyPart::Lowest),
                            end(&spec, from, equal, KeyPart::Highest, KeyPart::Highest),
                        );
                        let is_onwards = is_like && order(equal + 1) != Ordering::Greater;
                        prop_assert!(is_right(onwards, is_onwards), "{:?} {:?}", from, other);
                        // The same without nulls, which are at the end of an ascending column.
                        let values = match descending {
                            false => within(
                                end(&spec, from, equal, KeyPart::Lowest, KeyPart::Lowest),
                                end(&spec, from, equal, KeyPart::AboveValues, KeyPart::Highest),
                            ),
                            true => within(
                                end(&spec, from, equal, KeyPart::AboveValues, KeyPart::Lowest),
                                end(&spec, from, equal, KeyPart::Highest, KeyPart::Highest),
                            ),
                        };
                        let is_value = is_like && other[equal] != Kept::Null;
                        prop_assert!(is_right(values, is_value), "{:?} {:?}", from, other);
                    }
                }
            }
        }
    }
}
