//! Which tables and indexes are there? Definitions, and immutable snapshots of the schema.
//!
//! A [`Schema`] is one immutable version of the catalog with the storage it leads to; a transaction that changes it
//! works on its own copy, which commit publishes.

mod definition;
mod objects;
mod role;
mod schema;
mod sequence;

pub use definition::{
    Action, CheckOption, CollationId, ColumnDef, ColumnRole, Constraint, ConstraintKind, EnumDef, EnumLabel, EnumType,
    ForeignKey, IndexDef, IndexId, IndexKind, KeyNames, Namespace, NamespaceId, OperatorClassId, SequenceDef,
    TEMPORARY_PREFIX, TableDef, TableId, View, ViewDef,
};
pub use role::{Grant, Membership, Rights, Role, RoleDef, RoleId, Verifier};
pub(crate) use schema::Attached;
pub use schema::{Schema, SchemaPath};
pub(crate) use sequence::{BATCH as SEQUENCE_BATCH, Next};
pub use sequence::{Sequence, SequenceState, SequenceValue};

pub(crate) use objects::{BadObject, Counters, Object, SYSTEM_STORAGE, SYSTEM_TYPES, TableObject, system_table};

use crate::ids::RowId;
use crate::index::{BTreeIndex, Conflict, HashIndex, Probe};
use crate::mem::{Account, Budget, Claim, Kind};
use crate::schema::{KeyBuf, KeyPart, KeySpec, Layout, Row, Value};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::gate::Gate;
use crate::table::Store;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The structure behind an index, shared by all schema versions that have it.
#[expect(clippy::large_enum_variant, reason = "one per index; behind a pointer every lookup would miss once more")]
pub(crate) enum Tree {
    Hash(HashIndex),
    BTree(BTreeIndex),
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tree::Hash(tree) => write!(f, "hash of {} entries", tree.len()),
            Tree::BTree(tree) => write!(f, "btree of {} entries", tree.len()),
        }
    }
}

/// An index's key in the form its structure takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TreeKey {
    Hash(u64),
    Words(Box<[u64]>),
}

/// An index of one schema version.
#[derive(Debug)]
pub struct Index {
    pub id: IndexId,
    pub def: IndexDef,
    pub spec: KeySpec,
    pub(crate) tree: Tree,
    /// Whether rows may have had other keys than now, so that an entry may lead to a version of another key. Raised before the first such entry is
    /// made, and never taken back.
    has_moved: AtomicBool,
}

impl Index {
    /// To be called before a row gets an entry beside one that it has, before a version whose key its entry has not is committed, and before an entry
    /// is left that nobody will take out. Until it commits, only its writer sees that version, who compares as long as it has written anything.
    pub(crate) fn note_moved(&self) {
        if !self.has_moved.load(Ordering::Relaxed) {
            self.has_moved.store(true, Ordering::Release);
        }
    }

    /// False: every entry that was found before this call has the key of whatever version of its row a snapshot sees, if that was taken before the
    /// entry was found. An update that moves a row raises it before it enters the row elsewhere (so whoever found that entry sees it raised) and
    /// before it commits (so whoever's snapshot has it does); and a slot is given to another row only once no snapshot sees the former one, so
    /// that of two rows of a slot a snapshot sees at most the one whose entry could be found.
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    /// Calls `each` with the rows that may have this key, until it breaks. `key` is a buffer to encode it in.
    #[inline]
    pub(crate) fn find<'a, B>(
        &self,
        value: impl Fn(usize) -> Value<'a>,
        key: &mut KeyBuf,
        each: impl FnMut(RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.tree {
            Tree::Hash(tree) => tree.lookup(self.spec.hash(&value), each),
            Tree::BTree(tree) => {
                self.spec.encode(key, |i| KeyPart::Value(value(i)));
                tree.lookup(&key.words, each)
            }
        }
    }

    /// As `find`, for who breaks at the first right row and does not mind to be asked of one twice.
    #[inline]
    pub(crate) fn find_first<'a, B>(
        &self,
        value: impl Fn(usize) -> Value<'a>,
        key: &mut KeyBuf,
        mut each: impl FnMut(RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.tree {
            Tree::Hash(tree) => tree.first(self.spec.hash(&value), each),
            Tree::BTree(tree) => {
                if let Value::Int(integer) = value(0)
                    && let Some(word) = self.spec.integer_word(integer)
                    && let Some(row) = tree.guess(word)
                {
                    each(row)?;
                }
                self.find(value, key, each)
            }
        }
    }

    /// Adds a row's entry; false if it was there. Where `unique`, the `probe` may object to each other row of the key, under the latch of the key's
    /// place; it must not enter the index, nor wait.
    pub(crate) fn insert(
        &self,
        key: &TreeKey,
        row: RowId,
        claim: Claim,
        unique: bool,
        probe: impl FnMut(RowId) -> Probe,
    ) -> Result<bool, Conflict> {
        match (&self.tree, key) {
            (Tree::Hash(tree), TreeKey::Hash(hash)) if unique => tree.try_insert_unique(*hash, row, claim, probe),
            (Tree::Hash(tree), TreeKey::Hash(hash)) => tree.try_insert(*hash, row, claim),
            (Tree::BTree(tree), TreeKey::Words(words)) if unique => tree.try_insert_unique(words, row, claim, probe),
            (Tree::BTree(tree), TreeKey::Words(words)) => tree.try_insert(words, row, claim),
            _ => unreachable!("invariant: a key has its index's form"),
        }
    }

    /// Starts loading where the entry of a row with these columns lies, if that is known at once: what variable columns hold may lie elsewhere.
    #[inline]
    pub(crate) fn prefetch_entry(&self, layout: &Layout, row: &Row) {
        if let Tree::Hash(tree) = &self.tree
            && !self.spec.has_variable()
        {
            tree.prefetch(self.spec.hash_row(layout, row));
        }
    }

    /// As `prefetch_integer`, for an insert.
    #[inline]
    pub fn prefetch_integer_to_insert(&self, key: i64) {
        match &self.tree {
            Tree::Hash(_) => self.prefetch_integer(key),
            Tree::BTree(tree) => self.spec.integer_word(key).into_iter().for_each(|word| tree.prefetch_way(word)),
        }
    }

    /// Starts loading what a look-up of this key, one integer, looks at first.
    #[inline]
    pub fn prefetch_integer(&self, key: i64) {
        match &self.tree {
            Tree::Hash(tree) => tree.prefetch(self.spec.hash_integer(key)),
            Tree::BTree(tree) => self.spec.integer_word(key).into_iter().for_each(|word| tree.prefetch(word)),
        }
    }

    /// Whether no key column's value might lie elsewhere than in the record.
    pub fn has_fixed_key(&self, table: &Table) -> bool {
        !self.spec.columns().any(|c| table.variable.contains(&usize::from(c.column)))
    }

    /// For each of a few keys the first row that may have it, where one is quickly found. Their misses are waited for together.
    #[inline]
    pub(crate) fn guess_many<'a>(
        &self,
        value: impl Fn(usize, usize) -> Value<'a>,
        key: &mut KeyBuf,
        guesses: &mut [Option<RowId>],
    ) {
        match &self.tree {
            Tree::Hash(tree) => {
                let mut hashes = [0; Self::TOGETHER];
                let hashes = &mut hashes[..guesses.len()];
                self.hash_many(value, hashes);
                hashes.iter().for_each(|&hash| tree.prefetch(hash));
                for (guess, &hash) in guesses.iter_mut().zip(&*hashes) {
                    *guess = tree.guess(hash);
                }
            }
            Tree::BTree(tree) => {
                let keys = self.encode_many(guesses.len(), value, key);
                tree.lookup_batch(guesses.len(), |i| keys.key(i), |i, row| guesses[i] = guesses[i].or(Some(row)));
            }
        }
    }

    /// Calls `found(i, row)` with the rows that may have the i-th of a few keys, in order of i.
    pub(crate) fn find_many<'a>(
        &self,
        count: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
        key: &mut KeyBuf,
        found: impl FnMut(usize, RowId),
    ) {
        match &self.tree {
            Tree::Hash(tree) => {
                let mut hashes = [0; Self::TOGETHER];
                let hashes = &mut hashes[..count];
                self.hash_many(value, hashes);
                tree.lookup_batch(hashes, found);
            }
            Tree::BTree(tree) => {
                let keys = self.encode_many(count, value, key);
                tree.lookup_batch(count, |i| keys.key(i), found);
            }
        }
    }

    /// The most keys that are looked up together: about what a core keeps in flight, twice.
    pub(crate) const TOGETHER: usize = 32;

    #[inline]
    fn hash_many<'a>(&self, value: impl Fn(usize, usize) -> Value<'a>, hashes: &mut [u64]) {
        for (i, hash) in hashes.iter_mut().enumerate() {
            *hash = self.spec.hash(|column| value(i, column));
        }
    }

    /// The words of the keys.
    fn encode_many<'k, 'a>(
        &self,
        count: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
        key: &'k mut KeyBuf,
    ) -> &'k KeyBuf {
        key.many.clear();
        key.many_ends.clear();
        for i in 0..count {
            self.spec.encode(key, |column| KeyPart::Value(value(i, column)));
            key.many.extend_from_slice(&key.words);
            key.many_ends.push(key.many.len());
        }
        key
    }

    /// An empty index that expects `rows`. The message says why a key of these columns is not possible.
    pub(crate) fn new(
        id: IndexId,
        def: IndexDef,
        table: &TableDef,
        layout: &Layout,
        seed: u64,
        rows: u64,
    ) -> Result<Index, String> {
        let spec = KeySpec::new(&def.columns, layout, |c| !table.columns[usize::from(c)].not_null, seed);
        if def.kind == IndexKind::BTree && spec.nominal_words() > BTreeIndex::WIDTH_MAX {
            let bytes = spec.nominal_words() * 8;
            return Err(format!("index key of {bytes} bytes exceeds {}", BTreeIndex::WIDTH_MAX * 8));
        }
        let tree = match def.kind {
            IndexKind::Hash if rows > 0 => Tree::Hash(HashIndex::with_capacity(rows as usize)),
            IndexKind::Hash => Tree::Hash(HashIndex::new()),
            IndexKind::BTree if spec.is_string() => Tree::BTree(BTreeIndex::with_tails(spec.words())),
            IndexKind::BTree => Tree::BTree(BTreeIndex::new(spec.words())),
        };
        Ok(Index { id, def, spec, tree, has_moved: AtomicBool::new(false) })
    }

    /// What an index of so many rows takes at least, before it is made.
    pub(crate) fn planned_bytes(def: &IndexDef, rows: u64) -> u64 {
        match def.kind {
            IndexKind::Hash => HashIndex::planned_bytes(rows as usize) as u64,
            IndexKind::BTree => 0,
        }
    }

    /// From now on the index takes its memory from the budget, what it has now included. Nobody else uses it yet.
    pub(crate) fn charge_to(&self, budget: &Arc<Budget>) {
        match &self.tree {
            Tree::Hash(tree) => tree.charge_to(Arc::new(Account::new(budget, Kind::Indexes))),
            Tree::BTree(tree) => tree.charge_to(Arc::new(Account::of_ordered(budget))),
        }
    }

    /// Bytes that the structure takes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.tree {
            Tree::Hash(tree) => tree.memory_bytes() as u64,
            Tree::BTree(tree) => tree.memory_bytes() as u64,
        }
    }

    /// Entries that growth has copied, and the most that one insert had to; none in a tree.
    pub fn moved(&self) -> (u64, u64) {
        if let Tree::Hash(tree) = &self.tree { tree.moved() } else { (0, 0) }
    }

    /// Entries, stale ones included.
    pub fn entries(&self) -> u64 {
        match &self.tree {
            Tree::Hash(tree) => tree.len() as u64,
            Tree::BTree(tree) => tree.len() as u64,
        }
    }

    /// Whether it gives rows in the order of their keys.
    pub fn is_ordered(&self) -> bool {
        matches!(self.tree, Tree::BTree(_))
    }
}

/// A table of one schema version.
#[derive(Debug)]
pub struct Table {
    pub id: TableId,
    pub def: TableDef,
    pub layout: Layout,
    /// In order of creation, the primary key's first where there is one.
    pub indexes: Vec<Arc<Index>>,
    pub(crate) store: Arc<Store>,
    pub(crate) gate: Arc<Gate>,
    /// Record words that hold columns of any index, with their null bits: an update that leaves them alone moves no entry.
    pub(crate) key_words: Vec<usize>,
    /// The bits of unique indexes' columns, which foreign keys may refer to: other columns may lie in the same words.
    unique_bits: Vec<(usize, u64)>,
    /// Columns whose values may lie elsewhere: those of variable length, and the extension's.
    pub(crate) variable: Vec<usize>,
}

impl Table {
    pub(crate) fn new(
        id: TableId,
        def: TableDef,
        layout: Layout,
        indexes: Vec<Arc<Index>>,
        store: Arc<Store>,
        gate: Arc<Gate>,
    ) -> Table {
        let keys = indexes.iter().flat_map(|i| i.def.columns.iter());
        let mut key_words: Vec<usize> = keys.flat_map(|c| layout.words_of(usize::from(c.column))).collect();
        key_words.sort_unstable();
        key_words.dedup();
        let keys = indexes.iter().filter(|i| i.def.unique).flat_map(|i| i.def.columns.iter());
        let unique_bits = keys.flat_map(|c| layout.bits_of(usize::from(c.column))).collect();
        let variable = (0..layout.columns()).filter(|&c| layout.lies_elsewhere(c)).collect();
        Table { id, def, layout, indexes, store, gate, key_words, unique_bits, variable }
    }

    /// Whether a unique index has a column in the extension; and whether any has.
    pub(crate) fn has_key_in_extension(&self, unique: bool) -> bool {
        let in_extension =
            |index: &Arc<Index>| index.def.columns.iter().any(|c| self.layout.is_in_extension(usize::from(c.column)));
        self.layout.is_extended() && self.indexes.iter().any(|i| (i.def.unique || !unique) && in_extension(i))
    }

    /// Whether what plans rely on holds of this definition of the table and did not of one `before`: a key is unique, a column has no nulls.
    pub(crate) fn promises_more_than(&self, before: &Table) -> bool {
        let had = |index: &Index| before.indexes.iter().any(|i| i.id == index.id && i.def.unique);
        let mut columns = before.def.columns.iter().zip(&self.def.columns);
        self.indexes.iter().any(|index| index.def.unique && !had(index))
            || columns.any(|(was, is)| is.not_null && !was.not_null)
    }

    /// Whether a column of a unique index has another value in the one copy than in the other.
    pub(crate) fn differs_in_unique(&self, old: &Row, new: &Row) -> bool {
        self.unique_bits.iter().any(|&(word, bits)| (old.words[word] ^ new.words[word]) & bits != 0)
    }

    /// The same table and rows with other indexes.
    pub(crate) fn with_indexes(&self, indexes: Vec<Arc<Index>>) -> Table {
        let (def, layout) = (self.def.clone(), self.layout.clone());
        Table::new(self.id, def, layout, indexes, self.store.clone(), self.gate.clone())
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.def.columns.iter().position(|c| c.name == name)
    }

    /// As [`Table::column`], for who may name what is visible.
    pub fn named_column(&self, name: &str) -> Option<usize> {
        self.def.columns.iter().position(|c| c.is_visible() && c.name == name)
    }

    /// Slots in use or free: an upper bound of the rows, and what a full scan visits.
    pub fn slots(&self) -> u64 {
        self.store.primary.high_water()
    }
}
