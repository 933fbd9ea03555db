//! What may the database say? Every committed state, whole, with the commit that made it.
//!
//! | word | meaning |
//! |---|---|
//! | state | all tables after one commit |
//! | storage | one incarnation of a table: CREATE and TRUNCATE make another |
//! | own | what a transaction has done and not committed |
//! | view | what a statement sees: a past state, with its transaction's own changes on top |

use freshet_engine::catalog::IndexKind;
use freshet_engine::ids::{Cts, RowId};
use std::collections::BTreeMap;
use std::rc::Rc;

pub const TABLES: [&str; 3] = ["t", "u", "v"];
/// In a plan with foreign keys, the table that is referred to, and the one that refers to it.
pub const PARENT: usize = 0;
pub const CHILD: usize = 1;
/// Few keys, so that sessions meet.
pub const KEYS: i64 = 12;
/// The longest note of any plan.
const NOTE_BYTES_MAX: usize = 40_000;

/// A text: a part of one long pattern.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub first: u8,
    pub length: u32,
}

impl Note {
    pub fn bytes(&self) -> &'static [u8] {
        static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let pattern = PATTERN.get_or_init(|| {
            let letter = |i: usize| b'a' + ((i * i + i / 7) % 26) as u8;
            (0..NOTE_BYTES_MAX + 256).map(letter).collect()
        });
        &pattern[usize::from(self.first)..][..self.length as usize]
    }
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.first, self.length)
    }
}

/// A row's columns. A note is compared by its bytes where it comes from the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rec {
    pub id: i64,
    pub n: i64,
    pub note: Option<Note>,
    /// Values of added columns; of none where nothing was written.
    pub others: [Option<Option<i64>>; ADDED_MAX],
    pub at: RowId,
    /// Of the committed version.
    pub cts: Cts,
}

/// Rows by an identity that outlives key changes.
pub type Rows = BTreeMap<u64, Rec>;

/// An index beyond the first two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    pub kind: IndexKind,
    pub column: u16,
    pub unique: bool,
}

/// Columns that a table may get besides its first three.
pub const ADDED_MAX: usize = 3;
/// Columns of every table.
pub const FIRST_COLUMNS: usize = 3;

/// A column that was added: numbers, or texts of so many letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    pub is_text: bool,
    /// What rows from before have.
    pub missing: Option<i64>,
}

/// What a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Def {
    pub storage: u64,
    pub extra: Option<Extra>,
    /// `n` is NOT NULL.
    pub n_not_null: bool,
    pub added: [Option<Added>; ADDED_MAX],
}

impl Def {
    pub fn new(storage: u64) -> Def {
        Def { storage, extra: None, n_not_null: false, added: [None; ADDED_MAX] }
    }

    pub fn added_count(&self) -> usize {
        self.added.iter().flatten().count()
    }

    /// The row with what it is missing.
    pub fn complete(&self, rec: Rec) -> Rec {
        let of = |at: usize| rec.others[at].or_else(|| self.added[at].map(|added| added.missing));
        Rec { others: std::array::from_fn(of), ..rec }
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    pub def: Def,
    pub rows: Rc<Rows>,
    /// The last commit that changed it.
    pub changed: Cts,
}

pub type Tables = [Option<Table>; TABLES.len()];
pub type Defs = [Option<Def>; TABLES.len()];

pub fn defs_of(tables: &Tables) -> Defs {
    std::array::from_fn(|at| tables[at].as_ref().map(|t| t.def))
}

/// What a transaction has done so far.
#[derive(Clone, Default, Debug)]
pub struct Own {
    /// Once it has changed the schema.
    pub defs: Option<Defs>,
    pub changes: [BTreeMap<u64, Option<Rec>>; TABLES.len()],
}

impl Own {
    pub fn is_empty(&self) -> bool {
        self.defs.is_none() && self.changes.iter().all(BTreeMap::is_empty)
    }

    pub fn def(&self, latest: &Tables, at: usize) -> Option<Def> {
        match &self.defs {
            Some(defs) => defs[at],
            None => latest[at].as_ref().map(|t| t.def),
        }
    }

    /// The rows of a table that a statement sees; none if it sees no table.
    pub fn view(&self, snapshot: &Tables, latest: &Tables, at: usize) -> Option<Rows> {
        let def = self.def(latest, at)?;
        // TRUNCATE and DROP are not for older snapshots to see through, as in PostgreSQL.
        let same = snapshot[at].as_ref().filter(|t| t.def.storage == def.storage);
        let mut view = same.map_or_else(Rows::new, |t| Rows::clone(&t.rows));
        for (&uid, rec) in &self.changes[at] {
            match rec {
                Some(rec) => drop(view.insert(uid, *rec)),
                None => drop(view.remove(&uid)),
            }
        }
        view.values_mut().for_each(|rec| *rec = def.complete(*rec));
        Some(view)
    }

    /// The rows of a table in their newest versions, whatever the snapshot: committed, or its own.
    pub fn newest(&self, latest: &Tables, at: usize) -> Rows {
        self.view(latest, latest, at).unwrap_or_default()
    }

    /// The state that a commit at `cts` makes.
    pub fn apply(&self, latest: &Tables, cts: Cts) -> Tables {
        std::array::from_fn(|at| {
            let def = self.def(latest, at)?;
            let same = latest[at].as_ref().filter(|t| t.def.storage == def.storage);
            // A row that came and went in the transaction changes nothing.
            let is_there = |uid: &u64| same.is_some_and(|t| t.rows.contains_key(uid));
            let is_same = self.changes[at].iter().all(|(uid, rec)| rec.is_none() && !is_there(uid));
            if is_same && same.is_some_and(|t| t.def == def) {
                return latest[at].clone();
            }
            let mut rows = same.map_or_else(Rows::new, |t| Rows::clone(&t.rows));
            for (&uid, rec) in &self.changes[at] {
                match rec {
                    Some(rec) => drop(rows.insert(uid, Rec { cts, ..*rec })),
                    None => drop(rows.remove(&uid)),
                }
            }
            rows.values_mut().for_each(|rec| *rec = def.complete(*rec));
            Some(Table { def, rows: Rc::new(rows), changed: cts })
        })
    }
}

/// The reference of [`CHILD`]'s rows by `n` to [`PARENT`]'s ids that leads nowhere, if there is one.
pub fn dangling(tables: &Tables) -> Option<Rec> {
    let parents = tables[PARENT].as_ref().map(|t| t.rows.clone()).unwrap_or_default();
    let children = tables[CHILD].as_ref().map(|t| t.rows.clone()).unwrap_or_default();
    children.values().find(|child| !parents.values().any(|parent| parent.id == child.n)).copied()
}

/// What a unique check may come to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Expected {
    pub wait: bool,
    /// By which commit; zero by the transaction itself.
    pub violation: Option<Cts>,
}

/// Every committed state since the last recovery, and what the world was told.
pub struct Model {
    /// With the commit that made each.
    pub states: Vec<(Cts, Rc<Tables>)>,
    /// The largest commit that anybody outside knows of.
    pub acknowledged: Cts,
    /// The largest that was answered before it was durable.
    pub deferred: Cts,
    pub next_row: u64,
}

impl Model {
    pub fn new() -> Model {
        Model { states: vec![(Cts::ZERO, Rc::default())], acknowledged: Cts::ZERO, deferred: Cts::ZERO, next_row: 0 }
    }

    pub fn latest(&self) -> &Rc<Tables> {
        &self.states.last().expect("there is the empty one").1
    }

    pub fn latest_cts(&self) -> Cts {
        self.states.last().expect("there is the empty one").0
    }

    pub fn next_uid(&mut self) -> u64 {
        self.next_row += 1;
        self.next_row
    }

    /// The last state of commits up to `cts`.
    pub fn index_at(&self, cts: Cts) -> usize {
        self.states.partition_point(|(made, _)| *made <= cts).saturating_sub(1)
    }

    pub fn acknowledge(&mut self, cts: Cts) {
        self.acknowledged = self.acknowledged.max(cts);
    }

    /// The states that a recovery may give, newest first: those that end an epoch, from `oldest` on.
    pub fn recoverable(&self, oldest: usize) -> impl Iterator<Item = usize> + '_ {
        let ends_epoch = |at: &usize| {
            let next = self.states.get(at + 1);
            next.is_none_or(|(cts, _)| cts.epoch() > self.states[*at].0.epoch())
        };
        (oldest..self.states.len()).rev().filter(ends_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::ids::Epoch;

    #[test]
    fn only_the_last_state_of_an_epoch_can_be_recovered() {
        let mut model = Model::new();
        let cts = |epoch, n| Cts(Cts::first_of(Epoch(epoch)).0 + n);
        model.states.extend([cts(1, 1), cts(1, 2), cts(2, 1), cts(4, 1), cts(4, 2)].map(|c| (c, Rc::default())));
        assert_eq!(model.recoverable(0).collect::<Vec<_>>(), [5, 3, 2, 0]);
        assert_eq!(model.recoverable(model.index_at(cts(2, 1))).collect::<Vec<_>>(), [5, 3]);
        assert_eq!(model.index_at(Cts::last_of(Epoch(3))), 3);
    }

    #[test]
    fn an_older_snapshot_does_not_see_through_a_truncation() {
        let table = |storage, rows: Rows| Some(Table { def: Def::new(storage), rows: Rc::new(rows), changed: Cts(1) });
        let rec = Rec { id: 1, n: 2, note: None, others: [None; ADDED_MAX], at: RowId(0), cts: Cts(1) };
        let old: Tables = [table(1, Rows::from([(7, rec)])), None, None];
        let new: Tables = [table(2, Rows::new()), None, None];
        let own = Own::default();
        assert_eq!(own.view(&old, &old, 0).map(|v| v.len()), Some(1));
        assert_eq!(own.view(&old, &new, 0).map(|v| v.len()), Some(0));
        assert_eq!(own.view(&old, &new, 1), None);
    }
}
