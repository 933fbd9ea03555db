//! Where each column lies in a record.

use super::types::Type;

/// The most bytes of fields a record can have: a slot must fit a page together with its header.
pub const FIELD_BYTES_MAX: usize = 32 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// The fields need this many bytes, more than [`FIELD_BYTES_MAX`].
    TooWide(usize),
}

/// A column's place: word, shift within the word, null bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub ty: Type,
    /// The container (column group). One today: 0.
    #[allow(dead_code, reason = "column groups are the scan issue's; records carry their place from the start")]
    pub container: u8,
    pub word: u16,
    pub shift: u8,
    pub null_word: u16,
    pub null_bit: u8,
}

impl Picks {
    /// Words that most statements by key look at: key and one to three columns.
    pub const FEW: usize = 3;
}

/// Where a column of integers lies, of two, four or eight bytes: no type needs to be looked at to read it.
///
/// Shifted left and then right as a signed number, its word is the integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntegerWord {
    pub(super) word: u16,
    pub(super) left: u8,
    pub(super) right: u8,
    /// Its null bit, in word 1.
    pub(super) null: u64,
}

/// Offsets of every column in a record's persistent part.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) fields: Vec<Field>,
    words: usize,
    header_words: usize,
}

/// What a reader looks at of a record beside cts and flags: copies of other words may be anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Picks {
    /// The first words, the last of them repeated: copied without counting.
    pub few: [u16; Picks::FEW],
    /// Those after them.
    pub rest: Box<[u16]>,
    /// Columns whose values may be long.
    pub variable: Box<[u16]>,
}

impl Layout {
    /// The words that these columns and the header lie in.
    pub(crate) fn picks(&self, columns: impl IntoIterator<Item = u16>) -> Picks {
        let mut columns: Vec<u16> = columns.into_iter().collect();
        columns.sort_unstable();
        columns.dedup();
        let fields = columns.iter().flat_map(|&column| self.words_of(usize::from(column)));
        let mut words: Vec<u16> = fields.filter(|&word| word > 1).map(|word| word as u16).collect();
        words.sort_unstable();
        words.dedup();
        columns.retain(|&column| self.column_type(usize::from(column)).is_variable());
        let rest = words.split_off(words.len().min(Picks::FEW)).into();
        let last = words.last().copied().unwrap_or(0);
        let few = std::array::from_fn(|i| words.get(i).copied().unwrap_or(last));
        Picks { few, rest, variable: columns.into() }
    }

    pub fn new(types: &[Type]) -> Result<Layout, LayoutError> {
        let field_bytes: usize = types.iter().map(|t| t.field_bytes()).sum();
        if field_bytes > FIELD_BYTES_MAX {
            return Err(LayoutError::TooWide(field_bytes));
        }
        let header_words = 2 + types.len().saturating_sub(56).div_ceil(64);
        let mut order: Vec<usize> = (0..types.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(types[i].field_bytes()));
        let mut byte = header_words * 8;
        let mut places = vec![0usize; types.len()];
        for i in order {
            places[i] = byte;
            byte += types[i].field_bytes();
        }
        let fields = types.iter().zip(&places).enumerate().map(|(i, (&ty, &at))| {
            let (null_word, null_bit) = if i < 56 { (1, 8 + i) } else { (2 + (i - 56) / 64, (i - 56) % 64) };
            Field {
                ty,
                container: 0,
                word: (at / 8) as u16,
                shift: (at % 8 * 8) as u8,
                null_word: null_word as u16,
                null_bit: null_bit as u8,
            }
        });
        Ok(Layout { fields: fields.collect(), words: byte.div_ceil(8), header_words })
    }

    /// Whether records of the one are records of the other: each column lies where it lay and is stored alike.
    pub fn is_same_record(&self, other: &Layout) -> bool {
        let same = |a: &Field, b: &Field| {
            let form = |f: &Field| (f.word, f.shift, f.null_word, f.null_bit, f.ty.field_bytes(), f.ty.is_variable());
            form(a) == form(b)
        };
        self.words == other.words
            && self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(|(a, b)| same(a, b))
    }

    pub fn columns(&self) -> usize {
        self.fields.len()
    }

    pub fn column_type(&self, column: usize) -> Type {
        self.fields[column].ty
    }

    /// Words of the persistent part.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Words before the first field: `cts`, flags and null bits.
    pub fn header_words(&self) -> usize {
        self.header_words
    }

    /// Where a column of integers lies, if it is one whose null bit is in word 1.
    pub fn integer_word(&self, column: u16) -> Option<IntegerWord> {
        let field = self.fields[usize::from(column)];
        let is_integer = matches!(field.ty, Type::Int2 | Type::Int4 | Type::Int8);
        if !is_integer || field.null_word != 1 {
            return None;
        }
        let right = 64 - 8 * field.ty.field_bytes() as u8;
        Some(IntegerWord { word: field.word, left: right - field.shift, right, null: 1 << field.null_bit })
    }

    /// The record words that a column's value and null bit lie in.
    pub(crate) fn words_of(&self, column: usize) -> impl Iterator<Item = usize> + use<> {
        let field = self.fields[column];
        let wide = field.ty.field_bytes() == 16;
        let (word, null_word) = (usize::from(field.word), usize::from(field.null_word));
        [Some(word), wide.then_some(word + 1), Some(null_word)].into_iter().flatten()
    }

    /// The same, with the bits of them that are the column's.
    pub(crate) fn bits_of(&self, column: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Field { ty, word, shift, null_word, null_bit, .. } = self.fields[column];
        let bits = 8 * ty.field_bytes().min(8) as u32;
        let own = (u64::MAX >> (64 - bits)) << shift;
        let wide = (ty.field_bytes() == 16).then_some((usize::from(word) + 1, u64::MAX));
        [Some((usize::from(word), own)), wide, Some((usize::from(null_word), 1 << null_bit))].into_iter().flatten()
    }
}
