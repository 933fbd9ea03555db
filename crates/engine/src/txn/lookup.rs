//! How are rows looked up by whole keys? One alone, or many in groups, step by step, so that the cache misses of a group are waited for together.
//!
//! | step | of all keys of a group, before the next step | misses |
//! |---|---|---|
//! | 1 | hash or encode the key, prefetch the bucket (hash), or go down a level and prefetch the node (B+-tree) | bucket; nodes |
//! | 2 | take the first row id that the index has for it, prefetch the record's words | record |
//! | 3 | read the version, check the key | none, mostly |
//!
//! What step 2 finds is a guess: where it proves wrong in step 3 (a stale entry, a foreign row of the same hash, a row in an overflow
//! node), the key is looked up again, alone.

use super::Stop;
use super::core::Core;
use super::rows::read_picked;
use super::session::Session;
use crate::catalog::{Index, Table, Tree};
use crate::ids::{Cts, RowId};
use crate::planted::{self, Bug};
use crate::schema::{IntegerWord, Picks, Row, Value};
use crate::table::SessionNo;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows found by a unique index, of which some columns are looked at. Made once, for many searches.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub(super) table: Arc<Table>,
    pub(super) index: Arc<Index>,
    /// The key's columns too.
    pub(super) picks: Picks,
    /// The key's one column, if it is an integer of a whole word: most are, and no type needs to be looked at for them.
    pub(super) integer: Option<IntegerWord>,
}

impl Lookup {
    pub fn new(table: &Arc<Table>, index: &Arc<Index>, columns: impl IntoIterator<Item = u16>) -> Lookup {
        debug_assert!(index.def.unique, "invariant: a key has at most one row");
        let of_key = index.spec.columns().map(|column| column.column);
        let picks = table.layout.picks(columns.into_iter().chain(of_key));
        let mut of_key = index.spec.columns();
        let integer = match (of_key.next(), of_key.next()) {
            (Some(only), None) => table.layout.integer_word(only.column),
            _ => None,
        };
        Lookup { table: table.clone(), index: index.clone(), picks, integer }
    }

    /// Whether `look_up_integer` can be asked.
    pub fn has_integer_key(&self) -> bool {
        self.integer.is_some()
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Starts loading what a lookup of this integer will want first. Said before the transaction begins, it lets that lookup's first cache miss
    /// overlap with the last one of the statement before.
    #[inline]
    pub fn prefetch_integer(&self, key: i64) {
        self.index.prefetch_integer(key);
    }

    /// The same for an insert of a row with this integer.
    #[inline]
    pub fn prefetch_integer_to_insert(&self, key: i64) {
        self.index.prefetch_integer_to_insert(key);
    }

    /// Starts loading what the row of this integer keeps of what is looked at. It reads what `prefetch_integer` loads, so it is said a few statements
    /// later.
    #[inline]
    pub fn prefetch_row_of_integer(&self, key: i64) {
        if let Some(row) = self.guess_integer(key) {
            self.table.store.primary.prefetch(row, Some(&self.picks));
        }
    }

    /// The row that the index leads to first, if that is easily found.
    #[inline]
    pub(super) fn guess_integer(&self, key: i64) -> Option<RowId> {
        match &self.index.tree {
            Tree::Hash(tree) => tree.guess(self.index.spec.hash_integer(key)),
            Tree::BTree(tree) => tree.guess(self.index.spec.integer_word(key)?),
        }
    }

    /// Copies the row with this key, if its newest version is the one that the snapshot sees, all of it is in its record, and the index leads straight
    /// to it.
    #[inline]
    fn try_copy(&self, snapshot: Cts, key: i64, row: &mut Row) -> Option<RowId> {
        let Lookup { table, picks, integer, .. } = self;
        let at = (*integer)?;
        let id = self.guess_integer(key)?;
        let container = &table.store.primary;
        let head = container.slot(id).try_copy_picked(picks, row.start_copy(container.persistent_words()))?;
        let is_seen = !head.is_dirty() && is_covered(row.cts(), snapshot) && snapshot >= container.visible_from();
        let is_whole = || picks.variable.is_empty() || !row.has_long(&table.layout, &picks.variable);
        (is_seen && row.has_integer(at, key) && is_whole()).then_some(id)
    }

    /// Reads the row's visible version; false if there is none of this key.
    #[inline]
    fn read_if_key<'a>(
        &self,
        core: &Core,
        no: SessionNo,
        snapshot: Cts,
        id: RowId,
        value: impl Fn(usize) -> Value<'a>,
        row: &mut Row,
    ) -> bool {
        let Lookup { table, index, picks, integer } = self;
        read_picked(core, no, snapshot, &table.store.primary, id, picks, row);
        let is_integer = match (*integer, value(0)) {
            (Some(at), Value::Int(v)) if !row.has_integer(at, v) => return false,
            (Some(_), Value::Int(_)) => true,
            _ if !row.is_live() => return false,
            _ => false,
        };
        for &column in &picks.variable {
            core.fetch_long(table, row, usize::from(column));
        }
        is_integer || index.spec.row_matches(&table.layout, row, value)
    }
}

/// One integer of rows found by a unique index over one integer: the shortest way from a key to a value. Made once, for many searches.
#[derive(Clone, Debug)]
pub struct IntegerLookup {
    lookup: Lookup,
    key: IntegerWord,
    value: IntegerWord,
}

impl IntegerLookup {
    /// `None` if the index is not over one column of integers, or `column` is no such column.
    pub fn new(table: &Arc<Table>, index: &Arc<Index>, column: u16) -> Option<IntegerLookup> {
        let lookup = Lookup::new(table, index, [column]);
        let (key, value) = (lookup.integer?, table.layout.integer_word(column)?);
        Some(IntegerLookup { lookup, key, value })
    }

    /// The integer of the row with this key, and its version's cts, if the row's newest version is the one that the snapshot sees and the index
    /// leads straight to it. Without a call: how many of these a processor has under way depends on how short they are.
    #[inline(always)]
    fn try_read(&self, snapshot: Cts, key: i64) -> Option<(Cts, Option<i64>)> {
        let container = &self.lookup.table.store.primary;
        let row = self.lookup.guess_integer(key)?;
        let (cts, met, value) = container.slot(row).try_read_integers(self.key, self.value)?;
        let is_it = met == Some(key) && is_covered(cts, snapshot) && snapshot >= container.visible_from();
        is_it.then_some((cts, value))
    }
}

/// Whether the snapshot sees the version in place.
#[inline(always)]
fn is_covered(cts: Cts, snapshot: Cts) -> bool {
    cts <= snapshot || planted::is(Bug::ReadAhead)
}

impl Session {
    /// The integer of the row with this key, as a transaction of its own: `Some(None)` if it is null, `None` if there is no such row. With it
    /// comes what an answer must wait for, if it is not durable. Nothing is copied but what is looked at, so that a processor has several of
    /// these under way at a time.
    #[inline]
    pub fn read_integer(&mut self, lookup: &IntegerLookup, key: i64) -> Result<(Option<Option<i64>>, Cts), Stop> {
        // At the durable horizon, and over before anybody could ask: a transaction that leaves nothing in the session.
        let found = self.resume_newest().and_then(|snapshot| lookup.try_read(snapshot, key));
        self.place().pause();
        match found {
            Some((_, value)) => Ok((Some(value), Cts::ZERO)),
            None => self.read_integer_longer(lookup, key),
        }
    }

    /// The row with this key at the durable horizon, as a transaction of its own, if that is its newest version and easily found, as it mostly is. `None`:
    /// `begin_read` and `look_up` are to tell. No fence, even where each of many sessions finds the horizon moved: what its
    /// registration stands for is not looked at. Of the row the lookup's columns are there, and nothing needs to be waited for.
    #[inline]
    pub fn look_up_newest(&mut self, lookup: &Lookup, key: i64, row: &mut Row) -> Option<RowId> {
        let found = self.resume_newest().and_then(|snapshot| lookup.try_copy(snapshot, key, row));
        self.place().pause();
        found
    }

    #[inline(never)]
    fn read_integer_longer(&mut self, lookup: &IntegerLookup, key: i64) -> Result<(Option<Option<i64>>, Cts), Stop> {
        self.begin_read();
        let found = self.find_integer(lookup, key);
        Ok((found, self.commit()?.cts))
    }

    /// As `read_integer`, in a transaction.
    #[inline]
    pub fn find_integer(&mut self, lookup: &IntegerLookup, key: i64) -> Option<Option<i64>> {
        self.note_key(&lookup.lookup.index, |_| Value::Int(key));
        match lookup.try_read(self.snapshot, key) {
            Some((cts, value)) => {
                self.dependency = self.dependency.max(cts);
                Some(value)
            }
            None => self.find_integer_longer(lookup, key),
        }
    }

    #[inline(never)]
    fn find_integer_longer(&mut self, lookup: &IntegerLookup, key: i64) -> Option<Option<i64>> {
        let mut row = std::mem::take(&mut self.row_a);
        let found = self.look_up_longer(&lookup.lookup, key, &mut row);
        let value = found.map(|_| row.integer(lookup.value));
        self.row_a = row;
        value
    }

    /// `look_up_integer` as a transaction of its own. With the row comes what an answer must wait for, if it is not durable.
    #[inline]
    pub fn look_up_once(&mut self, lookup: &Lookup, key: i64, row: &mut Row) -> Result<(Option<RowId>, Cts), Stop> {
        lookup.prefetch_integer(key);
        if let Some(id) = self.look_up_newest(lookup, key, row) {
            return Ok((Some(id), Cts::ZERO));
        }
        self.begin_read();
        let found = self.look_up_integer(lookup, key, row);
        if self.end_plain_read() {
            return Ok((found, Cts::ZERO));
        }
        Ok((found, self.commit()?.cts))
    }

    /// As `look_up`, of an index over one column of integers: the shortest way there is.
    #[inline]
    pub fn look_up_integer(&mut self, lookup: &Lookup, key: i64, row: &mut Row) -> Option<RowId> {
        self.assert_snapshot();
        self.note_key(&lookup.index, |_| Value::Int(key));
        if let Some(at) = lookup.integer
            && let Some(id) = lookup.guess_integer(key)
        {
            let Lookup { table, picks, .. } = lookup;
            read_picked(&self.core, self.no, self.snapshot, &table.store.primary, id, picks, row);
            if row.has_integer(at, key) {
                self.dependency = self.dependency.max(row.cts());
                picks.variable.iter().for_each(|&column| self.core.fetch_long(table, row, usize::from(column)));
                return Some(id);
            }
        }
        self.look_up_longer(lookup, key, row)
    }

    #[inline(never)]
    fn look_up_longer(&mut self, lookup: &Lookup, key: i64, row: &mut Row) -> Option<RowId> {
        self.look_up_any(lookup, |_| Value::Int(key), row)
    }

    /// The visible row with this key. `value(i)` is the key's i-th column. Of the row the lookup's columns are there, and no others.
    #[inline]
    pub fn look_up<'a>(&mut self, lookup: &Lookup, value: impl Fn(usize) -> Value<'a>, row: &mut Row) -> Option<RowId> {
        match value(0) {
            Value::Int(key) if lookup.integer.is_some() => self.look_up_integer(lookup, key, row),
            _ => self.look_up_any(lookup, value, row),
        }
    }

    fn look_up_any<'a>(&mut self, lookup: &Lookup, value: impl Fn(usize) -> Value<'a>, row: &mut Row) -> Option<RowId> {
        self.assert_snapshot();
        self.note_key(&lookup.index, &value);
        let (core, no, snapshot, mut dependency) = (&*self.core, self.no, self.snapshot, self.dependency);
        let found = lookup.index.find_first(&value, &mut self.key, |id| {
            match lookup.read_if_key(core, no, snapshot, id, &value, row) {
                true => ControlFlow::Break(id),
                false => {
                    dependency = dependency.max(row.cts());
                    ControlFlow::Continue(())
                }
            }
        });
        match found {
            ControlFlow::Break(id) => {
                self.dependency = dependency.max(row.cts());
                Some(id)
            }
            ControlFlow::Continue(()) => {
                self.dependency = dependency;
                None
            }
        }
    }

    /// The visible rows with these keys: `found(i, id, row)` for each of `count` keys that has one, in their order, as by `look_up`.
    /// `value(i, c)` is the c-th column of key i.
    #[inline]
    pub fn look_up_many<'a>(
        &mut self,
        lookup: &Lookup,
        count: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
        row: &mut Row,
        mut found: impl FnMut(usize, RowId, &Row),
    ) {
        for start in (0..count).step_by(Index::TOGETHER) {
            let mut guesses = [None; Index::TOGETHER];
            let guesses = &mut guesses[..Index::TOGETHER.min(count - start)];
            lookup.index.guess_many(|i, column| value(start + i, column), &mut self.key, guesses);
            for guess in guesses.iter().flatten() {
                lookup.table.store.primary.prefetch(*guess, Some(&lookup.picks));
            }
            for (i, guess) in guesses.iter().enumerate() {
                let key = |column| value(start + i, column);
                self.note_key(&lookup.index, key);
                let is_right = guess.is_some_and(|id| self.is_at(lookup, id, key, row));
                let id = if is_right { *guess } else { self.look_up(lookup, key, row) };
                if let Some(id) = id {
                    found(start + i, id, row);
                }
            }
        }
    }

    #[inline]
    fn is_at<'a>(&mut self, lookup: &Lookup, id: RowId, value: impl Fn(usize) -> Value<'a>, row: &mut Row) -> bool {
        let is_right = lookup.read_if_key(&self.core, self.no, self.snapshot, id, value, row);
        self.dependency = self.dependency.max(row.cts());
        is_right
    }

    /// Calls `found(i, id)` with each row that may have the i-th key in any index, in order of i: read it and check its columns. The rows'
    /// records are on their way to the cache.
    pub fn lookup_many<'a>(
        &mut self,
        table: &Table,
        index: &Index,
        count: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
        mut found: impl FnMut(usize, RowId),
    ) {
        for start in (0..count).step_by(Index::TOGETHER) {
            let size = Index::TOGETHER.min(count - start);
            if self.reads.is_some() {
                (start..start + size).for_each(|i| self.note_key(index, |column| value(i, column)));
            }
            index.find_many(
                size,
                |i, column| value(start + i, column),
                &mut self.key,
                |i, id| {
                    table.store.primary.prefetch(id, None);
                    found(start + i, id);
                },
            );
        }
    }
}
