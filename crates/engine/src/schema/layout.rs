//! Where each column lies in a record.
//!
//! A column that is added to a table with rows lies in no record: the columns of a table from a certain one on are its *extension*. A record with
//! other values there than those that rows from before have (`Missing`) has a *link* to a long value, which is written once as all long values are:
//!
//! | word | content |
//! |---|---|
//! | 0 | columns of the extension when it was written: those after them have what is missing |
//! | 1 | null bits of its first 64 columns |
//! | 2.. | their fields, a word each or two; after 64 columns the next null bits |
//!
//! The link is the row id plus one, in the 40 highest bits of word 1 where a record has at most 16 columns; with up to 23 in the 33 highest, and its
//! lowest seven in bits 1 to 7; else in a header word of its own, if the table has one: tables from before there were links do not. A copy of a record (`Row`) gets the extension's words behind its own when they are
//! fetched; until then a field there lies outside of it.

use super::row::LIVE;
use super::types::Type;

/// The most bytes of fields a record can have: a slot must fit a page together with its header.
pub const FIELD_BYTES_MAX: usize = 32 * 1024;

/// The most words of an extension: it fits one slot of the long values.
const EXTENSION_WORDS_MAX: usize = 2048;
/// Columns whose null bits leave room for a link above them.
const LINKED_COLUMNS_MAX: usize = 16;
/// The same if the rest of it lies below them.
const SPLIT_LINK_COLUMNS_MAX: usize = 23;
pub(super) const LINK_BITS: u32 = 40;

/// What rows from before a column was added have in it: of a type of fixed length the words of its field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    Fixed([u64; 2]),
    Bytes(Box<[u8]>),
}

/// Where a record's link to its extension is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub word: u16,
    shift: u8,
    /// So many of its lowest bits lie from bit 1 on, between the flag and the null bits.
    low: u8,
}

impl Link {
    fn high_mask(self) -> u64 {
        ((1 << (LINK_BITS - u32::from(self.low))) - 1) << self.shift
    }

    fn low_mask(self) -> u64 {
        ((1 << self.low) - 1) << 1
    }

    /// The bits of its word that are the link's.
    pub fn mask(self) -> u64 {
        self.high_mask() | self.low_mask()
    }

    pub fn of(self, word: u64) -> u64 {
        (word & self.high_mask()) >> self.shift << self.low | (word & self.low_mask()) >> 1
    }

    pub fn put(self, word: u64, link: u64) -> u64 {
        word & !self.mask() | link >> self.low << self.shift & self.high_mask() | link << 1 & self.low_mask()
    }
}

/// Columns whose values lie elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extension {
    pub first: usize,
    /// What is missing from a record without a link; without long values.
    pub missing: Box<[u64]>,
    /// Those, by column.
    pub long: Box<[(usize, Box<[u8]>)]>,
}

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
    pub(super) link: Option<Link>,
    pub(super) extension: Option<Box<Extension>>,
    /// The words of a live row with every column null.
    pub(super) blank: Box<[u64]>,
}

/// What a reader looks at of a record beside cts and flags: copies of other words may be anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Picks {
    /// The first words, the last of them repeated: copied without counting.
    pub few: [u16; Picks::FEW],
    /// Those after them.
    pub rest: Box<[u16]>,
    /// Columns whose values may lie elsewhere.
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
        columns.retain(|&column| self.lies_elsewhere(usize::from(column)));
        let rest = words.split_off(words.len().min(Picks::FEW)).into();
        let last = words.last().copied().unwrap_or(0);
        let few = std::array::from_fn(|i| words.get(i).copied().unwrap_or(last));
        Picks { few, rest, variable: columns.into() }
    }

    pub fn new(types: &[Type]) -> Result<Layout, LayoutError> {
        Layout::with_link(types, false)
    }

    /// The same with a word for a link where the null bits leave no room for one.
    pub(crate) fn with_link(types: &[Type], has_word: bool) -> Result<Layout, LayoutError> {
        let field_bytes: usize = types.iter().map(|t| t.field_bytes()).sum();
        if field_bytes > FIELD_BYTES_MAX {
            return Err(LayoutError::TooWide(field_bytes));
        }
        let nulls_end = 2 + types.len().saturating_sub(56).div_ceil(64);
        let link = match types.len() {
            columns if columns <= LINKED_COLUMNS_MAX => Some(Link { word: 1, shift: 24, low: 0 }),
            columns if columns <= SPLIT_LINK_COLUMNS_MAX => Some(Link { word: 1, shift: 31, low: 7 }),
            _ => has_word.then_some(Link { word: nulls_end as u16, shift: 0, low: 0 }),
        };
        let header_words = nulls_end + usize::from(link.is_some_and(|link| link.word > 1));
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
        let (fields, words) = (fields.collect(), byte.div_ceil(8));
        let layout = Layout { fields, words, header_words, link, extension: None, blank: Box::default() };
        Ok(layout.with_blank())
    }

    /// The same with an extension of these columns. `None`: there is no room for a link, or they are too many.
    pub(crate) fn extended<'m>(
        mut self,
        types: &[Type],
        missing: impl Fn(usize) -> Option<&'m Missing>,
    ) -> Option<Layout> {
        self.link?;
        let first = self.fields.len();
        let (mut words, mut long) = (vec![types.len() as u64], Vec::new());
        let mut nulls_at = 0;
        for (i, &ty) in types.iter().enumerate() {
            if i % 64 == 0 {
                nulls_at = words.len();
                words.push(0);
            }
            let at = words.len();
            words.resize(at + ty.field_bytes().div_ceil(8), 0);
            match missing(i) {
                None => words[nulls_at] |= 1 << (i % 64),
                Some(Missing::Fixed(field)) => words[at..].iter_mut().zip(field).for_each(|(to, from)| *to = *from),
                Some(Missing::Bytes(bytes)) => long.push((first + i, bytes.clone())),
            }
            let [word, null_word] = [at, nulls_at].map(|at| (self.words + at) as u16);
            self.fields.push(Field { ty, container: 0, word, shift: 0, null_word, null_bit: (i % 64) as u8 });
        }
        let fits = words.len() <= EXTENSION_WORDS_MAX;
        self.extension = Some(Box::new(Extension { first, missing: words.into(), long: long.into() }));
        fits.then(|| self.with_blank())
    }

    fn with_blank(mut self) -> Layout {
        let mut blank = vec![0; self.row_words()];
        if let Some(extension) = &self.extension {
            blank[self.words] = extension.missing[0];
        }
        for field in &self.fields {
            blank[usize::from(field.null_word)] |= 1 << field.null_bit;
        }
        blank[1] |= LIVE;
        self.blank = blank.into();
        self
    }

    /// Whether records may have an extension.
    #[inline]
    pub(crate) fn is_extended(&self) -> bool {
        self.extension.is_some()
    }

    /// Whether the column lies in the extension.
    #[inline]
    pub(crate) fn is_in_extension(&self, column: usize) -> bool {
        self.extension.as_ref().is_some_and(|extension| column >= extension.first)
    }

    /// Whether the column's value may have to be fetched.
    #[inline]
    pub fn lies_elsewhere(&self, column: usize) -> bool {
        self.column_type(column).is_variable() || self.is_in_extension(column)
    }

    /// Words of a copy with everything.
    pub(super) fn row_words(&self) -> usize {
        self.words + self.extension.as_ref().map_or(0, |extension| extension.missing.len())
    }

    /// Whether records of the one are records of the other: each column lies where it lay and is stored alike.
    pub fn is_same_record(&self, other: &Layout) -> bool {
        let same = |a: &Field, b: &Field| {
            let form = |f: &Field| (f.word, f.shift, f.null_word, f.null_bit, f.ty.field_bytes(), f.ty.is_variable());
            form(a) == form(b)
        };
        let extends = |layout: &Layout| layout.extension.as_ref().map(|extension| extension.first);
        (self.words, extends(self)) == (other.words, extends(other))
            && self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(|(a, b)| same(a, b))
    }

    pub fn columns(&self) -> usize {
        self.fields.len()
    }

    #[inline]
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
        if !is_integer || self.is_in_extension(usize::from(column)) || field.null_word != 1 {
            return None;
        }
        let right = 64 - 8 * field.ty.field_bytes() as u8;
        Some(IntegerWord { word: field.word, left: right - field.shift, right, null: 1 << field.null_bit })
    }

    /// The record words that a column's value and null bit lie in.
    pub(crate) fn words_of(&self, column: usize) -> impl Iterator<Item = usize> + use<> {
        let own = (!self.is_in_extension(column)).then(|| self.words_of_own(column));
        let link = if own.is_none() { self.link } else { None };
        own.into_iter().flatten().chain(link.map(|link| usize::from(link.word)))
    }

    fn words_of_own(&self, column: usize) -> impl Iterator<Item = usize> + use<> {
        let field = self.fields[column];
        let wide = field.ty.field_bytes() == 16;
        let (word, null_word) = (usize::from(field.word), usize::from(field.null_word));
        [Some(word), wide.then_some(word + 1), Some(null_word)].into_iter().flatten()
    }

    /// The same, with the bits of them that are the column's.
    pub(crate) fn bits_of(&self, column: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let own = (!self.is_in_extension(column)).then(|| self.bits_of_own(column));
        let link = if own.is_none() { self.link } else { None };
        let bits = |link: Link| (usize::from(link.word), link.mask());
        own.into_iter().flatten().chain(link.map(bits))
    }

    fn bits_of_own(&self, column: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Field { ty, word, shift, null_word, null_bit, .. } = self.fields[column];
        let bits = 8 * ty.field_bytes().min(8) as u32;
        let own = (u64::MAX >> (64 - bits)) << shift;
        let wide = (ty.field_bytes() == 16).then_some((usize::from(word) + 1, u64::MAX));
        [Some((usize::from(word), own)), wide, Some((usize::from(null_word), 1 << null_bit))].into_iter().flatten()
    }
}
