//! What do sessions do? Statements, commits and reads of interleaved transactions, each judged by the model.
//!
//! The model knows which results are possible where the engine has a choice (to wait, or to refuse at once), and demands the one that is where there
//! is none. A statement that has to wait is undone; what its session does next is another act's business.

use crate::dice::{Chance, Dice};
use crate::look::{Verdict, Wrong, check_rows, demand, extra_of, note_value, row_of, scan_all, seen_of, table_of};
use crate::look::{set_other, with_other};
use crate::model::{
    ADDED_MAX, Added, CHILD, Def, Defs, Expected, Extra, FIRST_COLUMNS, KEYS, Note, Own, PARENT, Rec, TABLES, Tables,
    dangling, defs_of,
};
use crate::world::World;
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::ids::{Cts, RowId};
use freshet_engine::schema::{KeyColumn, Missing, Row, Type, Value};
use freshet_engine::txn::{
    Change, Committed, Error, Insertion, IntegerLookup, Isolation, LockMode, Locked, Lookup, Savepoint, Session, Stop,
    Strength,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

pub struct Client {
    pub session: Session,
    isolation: Isolation,
    read_only: bool,
    pub active: bool,
    /// Its commit waits for room in the log.
    committing: bool,
    snapshot: Rc<Tables>,
    snapshot_cts: Cts,
    own: Own,
    /// Rows that it asked the lock of.
    touched: BTreeSet<u64>,
    /// It has tried DDL: gates stay closed even where the statement was undone.
    ddl: bool,
    savepoints: Vec<Saved>,
    /// Tables that it has locked.
    locked: Vec<(usize, LockMode)>,
    /// Rows whose references are looked at when it commits.
    awaited: BTreeSet<u64>,
    /// What a SERIALIZABLE transaction has read: whole tables, and ids.
    scanned: BTreeSet<usize>,
    sought: BTreeSet<(usize, i64)>,
    /// The largest commit of its own.
    met: Cts,
}

/// A savepoint, and what the transaction had done and asked for by then.
struct Saved {
    savepoint: Savepoint,
    own: Own,
    touched: BTreeSet<u64>,
    ddl: bool,
    locked: usize,
    awaited: BTreeSet<u64>,
}

impl Client {
    pub fn new(session: Session) -> Client {
        Client {
            session,
            isolation: Isolation::ReadCommitted,
            read_only: false,
            active: false,
            committing: false,
            snapshot: Rc::default(),
            snapshot_cts: Cts::ZERO,
            own: Own::default(),
            touched: BTreeSet::new(),
            ddl: false,
            savepoints: Vec::new(),
            locked: Vec::new(),
            awaited: BTreeSet::new(),
            scanned: BTreeSet::new(),
            sought: BTreeSet::new(),
            met: Cts::ZERO,
        }
    }

    fn save(&mut self) {
        let savepoint = self.session.savepoint();
        self.savepoints.push(Saved {
            savepoint,
            own: self.own.clone(),
            touched: self.touched.clone(),
            ddl: self.ddl,
            locked: self.locked.len(),
            awaited: self.awaited.clone(),
        });
    }

    /// To the savepoint of this number, which stays.
    fn go_back(&mut self, number: usize) {
        self.savepoints.truncate(number + 1);
        let saved = &self.savepoints[number];
        self.session.rollback_to(&saved.savepoint);
        self.own = saved.own.clone();
        self.touched.clone_from(&saved.touched);
        self.ddl = saved.ddl;
        self.locked.truncate(saved.locked);
        self.awaited.clone_from(&saved.awaited);
    }

    fn end(&mut self) -> Own {
        self.active = false;
        self.committing = false;
        self.ddl = false;
        self.savepoints.clear();
        self.touched.clear();
        self.locked.clear();
        self.awaited.clear();
        self.scanned.clear();
        self.sought.clear();
        std::mem::take(&mut self.own)
    }
}

/// Why an operation of a statement did not happen.
enum Halt {
    Stop(Stop),
    /// A foreign key does not hold: what SQL would call 23503.
    Broken,
    Wrong(Wrong),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Stop(stop)
    }
}

impl From<Wrong> for Halt {
    fn from(wrong: Wrong) -> Halt {
        Halt::Wrong(wrong)
    }
}

type Done<T = ()> = Result<T, Halt>;

impl World {
    // ---- statements

    pub fn statement(&mut self, who: usize, dice: &mut Dice) -> Verdict {
        if self.clients[who].committing {
            return self.commit(who, dice);
        }
        if !self.clients[who].active && dice.one_in(4) {
            let is_done = if dice.one_in(3) { self.insert_once(who, dice)? } else { self.change_once(who, dice)? };
            if is_done {
                return Ok(());
            }
        }
        if !self.begin(who, dice)? {
            return Ok(());
        }
        let (saved, awaited) = (self.clients[who].own.clone(), self.clients[who].awaited.clone());
        let mut done = Ok(());
        for _ in 0..1 + dice.below(3) {
            done = self.operation(who, dice);
            if done.is_err() {
                break;
            }
        }
        let stop = match done {
            Ok(()) => {
                if dice.one_in(2) {
                    self.clients[who].session.rest();
                }
                self.save_or_go_back(who, dice);
                return Ok(());
            }
            Err(Halt::Wrong(wrong)) => return Err(wrong),
            Err(Halt::Broken) => None,
            Err(Halt::Stop(stop)) => Some(stop),
        };
        let is_wait = matches!(stop, Some(Stop::Wait(_)));
        match &stop {
            Some(stop) => {
                self.say(|| format!("  {}", shown(stop)));
                self.tell_error(who, stop)?;
            }
            None => self.tally.broken += 1,
        }
        self.clients[who].session.rollback_statement();
        self.clients[who].own = saved;
        self.clients[who].awaited = awaited;
        if is_wait && dice.one_in(8) {
            self.clients[who].session.abandon_wait();
        }
        if !is_wait && dice.one_in(2) || dice.one_in(10) {
            self.rollback(who);
        } else {
            self.save_or_go_back(who, dice);
        }
        Ok(())
    }

    /// Between two statements of a transaction.
    fn save_or_go_back(&mut self, who: usize, dice: &mut Dice) {
        if !self.plan.savepoints {
            return;
        }
        let count = self.clients[who].savepoints.len();
        match dice.below(6) {
            0 => {
                self.clients[who].save();
                self.say(|| format!("  savepoint {count}"));
            }
            1 if count > 0 => {
                let number = dice.below(count as u64) as usize;
                self.clients[who].go_back(number);
                self.say(|| format!("  back to savepoint {number}"));
                self.tally.returns += 1;
            }
            _ => {}
        }
    }

    /// False: its snapshot was ended to make room, and so is its transaction.
    fn begin(&mut self, who: usize, dice: &mut Dice) -> Verdict<bool> {
        let (latest_cts, latest) = (self.model.latest_cts(), self.model.latest().clone());
        let client = &mut self.clients[who];
        let is_new = !client.active;
        if is_new {
            client.isolation = match dice.below(6) {
                0 | 1 => Isolation::RepeatableRead,
                2 if self.plan.serializable => Isolation::Serializable,
                _ => Isolation::ReadCommitted,
            };
            client.read_only = dice.one_in(8);
            client.session.begin(client.isolation, client.read_only);
            client.active = true;
        }
        client.session.begin_statement();
        if is_new || client.isolation == Isolation::ReadCommitted {
            (client.snapshot, client.snapshot_cts) = (latest, latest_cts);
        }
        if let Err(ended) = client.session.check_snapshot() {
            self.tell_error(who, &Stop::Error(ended))?;
            self.rollback(who);
            return Ok(false);
        }
        Ok(true)
    }

    fn operation(&mut self, who: usize, dice: &mut Dice) -> Done {
        let at = dice.weighted(&[4, 4, 1]);
        let exists = self.clients[who].own.def(self.model.latest(), at).is_some();
        if self.clients[who].read_only {
            return Ok(self.check_view(who, at)?);
        }
        if !exists {
            return if dice.one_in(2) { self.create_table(who, at) } else { Ok(self.check_view(who, at)?) };
        }
        let ddl = u32::from(self.plan.ddl);
        let bulk = if self.plan.is_bulky() { 10 } else { 2 };
        // What others refer to is not dropped.
        let drops = ddl * u32::from(at == 2) * 8;
        match dice.weighted(&[28, 20, 10, 12, bulk, ddl, ddl * 3, drops, 6, 1, ddl, ddl * 2]) {
            0 => {
                let id = dice.below(KEYS as u64) as i64;
                self.insert(who, at, id, dice)
            }
            1 => self.update(who, at, dice),
            2 => self.delete(who, at, dice),
            3 => Ok(self.check_view(who, at)?),
            4 => (0..2 + dice.below(6)).try_for_each(|_| {
                let id = KEYS + dice.below(20) as i64;
                self.insert(who, at, id, dice)
            }),
            5 => self.truncate(who, at),
            6 => self.toggle_index(who, at, dice),
            7 => self.drop_table(who, at),
            8 => {
                let strength = [Strength::KeyShare, Strength::Share, Strength::NoKeyUpdate][dice.below(3) as usize];
                self.lock_some(who, at, strength, dice).map(drop)
            }
            9 => self.lock_table(who, at, dice),
            10 => self.toggle_not_null(who, at),
            _ => self.add_column(who, at, dice),
        }
    }

    /// What an error shows of others' commits, its reply must wait for.
    fn tell_error(&mut self, who: usize, stop: &Stop) -> Verdict {
        match stop {
            Stop::Wait(_) => self.tally.waits += 1,
            Stop::Error(Error::UniqueViolation { .. }) => self.tally.violations += 1,
            Stop::Error(Error::Serialization | Error::ReadChanged | Error::ShownOtherwise) => {
                self.tally.serializations += 1
            }
            Stop::Error(Error::Deadlock(_)) => self.tally.deadlocks += 1,
            Stop::Error(Error::LogFull) => self.tally.refusals += 1,
            Stop::Error(error @ (Error::OutOfMemory(_) | Error::SnapshotTooOld)) => {
                demand!(self.plan.has_little_memory(), "session {who}: {error}, and there is memory");
                self.tally.out_of_memory += 1;
            }
            Stop::Error(Error::LogFailed(reason)) => {
                demand!(self.may_fail, "session {who}: {reason}, and nothing was wrong with any device");
            }
            Stop::Error(error) => return Err(Wrong(format!("session {who}: {error}"))),
        }
        Ok(())
    }

    fn table(&self, who: usize, at: usize) -> Verdict<Arc<Table>> {
        let found = table_of(&self.clients[who].session, at);
        found.ok_or_else(|| Wrong(format!("session {who} does not see table {}", TABLES[at])))
    }

    fn note(&self, dice: &mut Dice) -> Option<Note> {
        let length = match dice.below(8) {
            0 => return None,
            1..4 if !self.plan.is_bulky() => dice.below(13),
            4..7 => dice.below(self.plan.note_bytes.min(200) + 1),
            _ => dice.below(self.plan.note_bytes + 1),
        };
        Some(Note { first: dice.below(200) as u8, length: length as u32 })
    }

    /// A value for `n`: few of them, unless they are to be unique; of a child, mostly an id that is there.
    fn number(&self, who: usize, at: usize, dice: &mut Dice) -> i64 {
        let (latest, own) = (self.model.latest(), &self.clients[who].own);
        if self.plan.keys && at == CHILD {
            let parents = own.newest(latest, PARENT);
            let pick = dice.below(parents.len() as u64 + 1) as usize;
            return parents.values().nth(pick).map_or(dice.below(KEYS as u64) as i64, |parent| parent.id);
        }
        let is_unique = own.def(latest, at).and_then(|def| def.extra).is_some_and(|extra| extra.unique);
        dice.below(if is_unique { 60 } else { 5 }) as i64
    }

    fn insert(&mut self, who: usize, at: usize, id: i64, dice: &mut Dice) -> Done {
        let table = self.table(who, at)?;
        let n = self.number(who, at, dice);
        let others = self.others_of(who, at, dice);
        let rec = Rec { id, n, note: self.note(dice), others, at: RowId(0), cts: Cts::ZERO };
        let expected = self.expect_unique(who, at, &rec, None);
        let result = self.clients[who].session.insert(&table, &mut row_of(&table, &rec));
        self.say(|| format!("  insert {} id {id} n {} note {:?}: {}", TABLES[at], rec.n, rec.note, outcome(&result)));
        self.check_expected(who, expected, &result)?;
        self.check_unlocked(who, at, LockMode::Share, &result)?;
        let uid = self.model.next_uid();
        let rec = Rec { at: result?, ..rec };
        self.clients[who].touched.insert(uid);
        self.clients[who].own.changes[at].insert(uid, Some(rec));
        self.refer(who, at, uid, rec.n)
    }

    /// Values of the added columns.
    fn others_of(&self, who: usize, at: usize, dice: &mut Dice) -> [Option<Option<i64>>; ADDED_MAX] {
        let def = self.clients[who].own.def(self.model.latest(), at);
        def.map_or([None; ADDED_MAX], |def| {
            def.added.map(|added| added.map(|_| (!dice.one_in(4)).then(|| dice.below(60) as i64)))
        })
    }

    fn update(&mut self, who: usize, at: usize, dice: &mut Dice) -> Done {
        let changes_id = dice.one_in(3);
        // Who learns later that he changes a key takes the rest of the lock then.
        let strength = if changes_id && dice.one_in(2) { Strength::Update } else { Strength::NoKeyUpdate };
        let Some((uid, old, mut rec)) = self.lock_some(who, at, strength, dice)? else { return Ok(()) };
        let table = self.table(who, at)?;
        let before = rec;
        rec.n = if self.plan.keys && at == CHILD { self.number(who, at, dice) } else { rec.n + 1 };
        let mut new = old.clone();
        new.set(&table.layout, 1, &Value::Int(rec.n));
        if dice.one_in(2) {
            rec.note = self.note(dice);
            new.set(&table.layout, 2, &note_value(&rec.note));
        }
        if changes_id {
            rec.id = dice.below(KEYS as u64) as i64;
            new.set(&table.layout, 0, &Value::Int(rec.id));
        }
        if dice.one_in(2) {
            let others = self.others_of(who, at, dice);
            let count = others.iter().flatten().count();
            if count > 0 {
                let at = dice.below(count as u64) as usize;
                rec.others[at] = others[at];
                set_other(&table, &mut new, at, others[at].flatten());
            }
        }
        let expected = self.expect_unique(who, at, &rec, Some((uid, before)));
        let result = self.clients[who].session.update(&table, rec.at, &old, &mut new);
        self.say(|| format!("  update {} {:?} to {rec:?}: {}", TABLES[at], rec.at, outcome(&result)));
        self.check_expected(who, expected, &result)?;
        self.check_unlocked(who, at, LockMode::Share, &result)?;
        result?;
        self.clients[who].own.changes[at].insert(uid, Some(rec));
        if rec.id != before.id {
            self.look_for_children(who, at, before.id)?;
        }
        if rec.n == before.n { Ok(()) } else { self.refer(who, at, uid, rec.n) }
    }

    fn delete(&mut self, who: usize, at: usize, dice: &mut Dice) -> Done {
        let Some((uid, old, newest)) = self.lock_some(who, at, Strength::Update, dice)? else { return Ok(()) };
        let table = self.table(who, at)?;
        let result = self.clients[who].session.delete(&table, newest.at, &old);
        self.say(|| format!("  delete {} {:?}: {}", TABLES[at], newest.at, outcome(&result)));
        self.check_expected(who, Expected::default(), &result)?;
        self.check_unlocked(who, at, LockMode::Share, &result)?;
        result?;
        self.clients[who].own.changes[at].insert(uid, None);
        self.look_for_children(who, at, newest.id)
    }

    // ---- foreign keys

    /// A child's row refers to its parent: now, or when the transaction commits.
    fn refer(&mut self, who: usize, at: usize, uid: u64, n: i64) -> Done {
        if !self.plan.keys || at != CHILD {
            return Ok(());
        }
        if self.plan.deferred_keys {
            self.clients[who].awaited.insert(uid);
            return Ok(());
        }
        self.lock_parent(who, n)
    }

    fn lock_parent(&mut self, who: usize, n: i64) -> Done {
        let (latest, own) = (self.model.latest().clone(), &self.clients[who].own);
        let due = own.newest(&latest, PARENT).into_iter().find(|(_, parent)| parent.id == n);
        let Some(table) = table_of(&self.clients[who].session, PARENT) else { return Err(Halt::Broken) };
        let mut row = Row::default();
        if let Some((uid, _)) = due {
            self.clients[who].touched.insert(uid);
        }
        let result = self.clients[who].session.lock_key(&table, &table.indexes[0], |_| Value::Int(n), &mut row);
        self.say(|| format!("  refer to {n}: {}", outcome(&result)));
        self.check_unlocked(who, PARENT, LockMode::Exclusive, &result)?;
        let found = result?;
        if found != due.map(|(_, parent)| parent.at) {
            return Err(Wrong(format!("session {who} refers to {n}: {found:?} where {due:?} is due")).into());
        }
        let Some((uid, parent)) = due else { return Err(Halt::Broken) };
        let goes =
            |c: &Client| c.own.changes[PARENT].get(&uid).is_some_and(|rec| rec.is_none_or(|r| r.id != parent.id));
        if self.others(who).any(goes) {
            return Err(Wrong(format!("session {who} refers to {parent:?}, which another takes away")).into());
        }
        Ok(())
    }

    /// A parent's id goes: nobody may refer to it. Its row is locked, so that nobody begins to.
    fn look_for_children(&mut self, who: usize, at: usize, id: i64) -> Done {
        if !self.plan.keys || at != PARENT {
            return Ok(());
        }
        let Some(child) = table_of(&self.clients[who].session, CHILD) else { return Ok(()) };
        let session = &mut self.clients[who].session;
        let (mut candidates, mut row) = (Vec::new(), Row::default());
        session.candidates(&child, &child.indexes[1], |_| Some(Value::Int(id)), &mut candidates);
        let refers =
            |place: RowId| session.newest(&child, place, &mut row) && row.get(&child.layout, 1) == Value::Int(id);
        let found = candidates.into_iter().any(refers);
        let due = self.clients[who].own.newest(self.model.latest(), CHILD).values().any(|rec| rec.n == id);
        self.say(|| format!("  children of {id}: {found}"));
        if found != due {
            return Err(Wrong(format!("session {who} finds children of {id}: {found}, there are: {due}")).into());
        }
        if found { Err(Halt::Broken) } else { Ok(()) }
    }

    /// Before a commit: references that were put off. False: it is not to commit now.
    fn look_at_awaited(&mut self, who: usize) -> Verdict<bool> {
        if self.clients[who].awaited.is_empty() {
            return Ok(true);
        }
        self.clients[who].session.begin_statement();
        let mut done = Ok(());
        for uid in self.clients[who].awaited.clone() {
            let Some(Some(rec)) = self.clients[who].own.changes[CHILD].get(&uid).copied() else { continue };
            done = self.lock_parent(who, rec.n);
            if done.is_err() {
                break;
            }
        }
        match done {
            Ok(()) => return Ok(true),
            Err(Halt::Wrong(wrong)) => return Err(wrong),
            Err(Halt::Broken) => self.tally.broken += 1,
            Err(Halt::Stop(stop)) => {
                self.tell_error(who, &stop)?;
                if matches!(stop, Stop::Wait(_)) {
                    self.clients[who].session.rollback_statement();
                    return Ok(false);
                }
            }
        }
        self.rollback(who);
        Ok(false)
    }

    // ---- locks

    /// What went through did so beside no lock of the table in this mode or a stronger one.
    fn check_unlocked<T>(&self, who: usize, at: usize, least: LockMode, result: &Result<T, Stop>) -> Verdict {
        let bars = |c: &Client| c.locked.iter().any(|&(table, mode)| table == at && mode >= least);
        let is_barred = result.is_ok() && self.others(who).any(bars);
        demand!(!is_barred, "session {who} writes {}, which another has locked", TABLES[at]);
        Ok(())
    }

    fn lock_table(&mut self, who: usize, at: usize, dice: &mut Dice) -> Done {
        const MODES: [LockMode; 5] = [
            LockMode::RowExclusive,
            LockMode::Share,
            LockMode::ShareRowExclusive,
            LockMode::Exclusive,
            LockMode::AccessExclusive,
        ];
        let (table, mode) = (self.table(who, at)?, MODES[dice.below(5) as usize]);
        let result = self.clients[who].session.lock_table(&table, mode);
        self.say(|| format!("  lock table {} in {mode:?}: {}", TABLES[at], outcome(&result)));
        // Its gate may be closed even if it has to wait.
        self.clients[who].ddl = true;
        let is_beside = mode >= LockMode::Share && self.others(who).any(|c| !c.own.changes[at].is_empty());
        if is_beside && result.is_ok() {
            return Err(Wrong(format!("session {who}: {mode:?} of {} beside a writer", TABLES[at])).into());
        }
        result?;
        self.clients[who].locked.push((at, mode));
        Ok(())
    }

    /// Finds a random visible row by its key, locks it, and checks what the lock says. Gives its newest version.
    fn lock_some(
        &mut self,
        who: usize,
        at: usize,
        strength: Strength,
        dice: &mut Dice,
    ) -> Done<Option<(u64, Row, Rec)>> {
        let view = self.view(who, at).unwrap_or_default();
        if view.is_empty() {
            return Ok(None);
        }
        let pick = dice.below(view.len() as u64) as usize;
        let (uid, rec) = view.iter().nth(pick).map(|(uid, rec)| (*uid, *rec)).expect("below its length");
        let table = self.table(who, at)?;
        let mut row = Row::default();
        self.clients[who].sought.insert((at, rec.id));
        let session = &mut self.clients[who].session;
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(rec.id), &mut row);
        let is_twin = |place: RowId| view.values().any(|r| r.id == rec.id && r.at == place);
        if !found.is_some_and(is_twin) {
            return Err(Wrong(format!("{} by id {} gives {found:?}, not {rec:?}", TABLES[at], rec.id)).into());
        }
        let result = session.lock_as(&table, rec.at, strength, &mut row);
        self.say(|| format!("  lock {} {rec:?} {strength:?}: {}", TABLES[at], outcome(&result)));
        self.clients[who].touched.insert(uid);
        self.check_unlocked(who, at, LockMode::Exclusive, &result)?;
        let locked = self.check_lock(who, at, uid, (&rec, strength), result)?;
        let newest = self.newest(who, at, uid);
        match (locked, newest) {
            (Locked::Gone, None) => Ok(None),
            (Locked::Same | Locked::Newer, Some(newest)) => {
                let seen = seen_of(&mut self.clients[who].session, &table, &mut row)?;
                let is_it = seen.is(&newest);
                if !is_it {
                    return Err(Wrong(format!("the lock gives {seen:?}, the newest version is {newest:?}")).into());
                }
                Ok(Some((uid, row, newest)))
            }
            (locked, newest) => Err(Wrong(format!("locked {locked:?} where the newest version is {newest:?}")).into()),
        }
    }

    fn newest(&self, who: usize, at: usize, uid: u64) -> Option<Rec> {
        let def = self.clients[who].own.def(self.model.latest(), at)?;
        let newest = match self.clients[who].own.changes[at].get(&uid) {
            Some(own) => *own,
            None => self.committed(who, at, uid),
        };
        newest.map(|rec| def.complete(rec))
    }

    fn committed(&self, who: usize, at: usize, uid: u64) -> Option<Rec> {
        let latest = self.model.latest();
        let def = self.clients[who].own.def(latest, at)?;
        latest[at].as_ref().filter(|t| t.def.storage == def.storage)?.rows.get(&uid).copied()
    }

    fn check_lock(
        &self,
        who: usize,
        at: usize,
        uid: u64,
        (rec, strength): (&Rec, Strength),
        result: Result<Locked, Stop>,
    ) -> Done<Locked> {
        let others = || self.others(who);
        // A key is shared beside who changes the rest of the row.
        let is_in_the_way = |c: &Client| match c.own.changes[at].get(&uid) {
            None => false,
            Some(Some(changed)) if strength == Strength::KeyShare => {
                self.committed(who, at, uid).is_none_or(|committed| committed.id != changed.id)
            }
            Some(_) => true,
        };
        if matches!(result, Err(Stop::Wait(_) | Stop::Error(Error::Deadlock(_)))) {
            let is_due = others().any(|c| c.touched.contains(&uid) || c.ddl);
            if !is_due {
                let shown = outcome(&result);
                return Err(Wrong(format!("session {who}: nobody else touched {rec:?}, yet: {shown}")).into());
            }
            return Ok(result?);
        }
        if matches!(result, Err(Stop::Error(Error::LogFailed(_)))) {
            return Ok(result?);
        }
        if others().any(is_in_the_way) {
            let shown = outcome(&result);
            return Err(Wrong(format!("session {who}: {rec:?} was written by another, yet: {shown}")).into());
        }
        let client = &self.clients[who];
        let committed = self.committed(who, at, uid);
        // A row that is gone was deleted after the snapshot, or the snapshot would not have shown it.
        let is_own = client.own.changes[at].contains_key(&uid);
        let changed = committed.map_or((!is_own).then(|| self.table_changed(at)), |c| Some(c.cts));
        let changed = changed.filter(|cts| *cts > client.snapshot_cts);
        if let (true, Some(changed)) = (client.isolation.keeps_snapshot(), changed) {
            if !matches!(result, Err(Stop::Error(Error::Serialization))) {
                let shown = outcome(&result);
                return Err(Wrong(format!("session {who}: {rec:?} changed at {changed:?}, yet: {shown}")).into());
            }
            let is_covered = committed.is_none() || self.depends(who, changed);
            if !is_covered {
                return Err(Wrong(format!("session {who} learns of {changed:?} and need not wait for it")).into());
            }
        }
        Ok(result?)
    }

    fn table_changed(&self, at: usize) -> Cts {
        self.model.latest()[at].as_ref().map_or(Cts::ZERO, |t| t.changed)
    }

    /// Whether the session's reply waits for `cts`.
    fn depends(&self, who: usize, cts: Cts) -> bool {
        self.clients[who].session.dependency() >= cts || self.engine().is_durable(cts)
    }

    fn others(&self, who: usize) -> impl Iterator<Item = &Client> {
        self.clients.iter().enumerate().filter(move |(i, c)| *i != who && c.active).map(|(_, c)| c)
    }

    /// Inserts a row in one go, as a transaction of its own; false if the engine left it to the longer way.
    fn insert_once(&mut self, who: usize, dice: &mut Dice) -> Verdict<bool> {
        // Who refers to another row has that to lock, too.
        let at = dice.weighted(&[4, 4 * u32::from(!self.plan.keys), 1]);
        let (id, n) = (dice.below(KEYS as u64) as i64, self.number(who, at, dice));
        let Some(table) = table_of(&self.clients[who].session, at) else { return Ok(false) };
        let others = self.others_of(who, at, dice);
        let rec = Rec { id, n, note: self.note(dice), others, at: RowId(0), cts: Cts::ZERO };
        if others.iter().flatten().count() != table.def.columns.len() - FIRST_COLUMNS {
            // The schema that the session saw last is not current.
            return Ok(false);
        }
        let expected = self.expect_unique(who, at, &rec, None);
        let done = self.clients[who].session.insert_once(&Insertion::new(&table), |row| {
            *row = row_of(&table, &rec);
            true
        });
        self.say(|| format!("  session {who} inserts {} id {id} at once: {done:?}", TABLES[at]));
        let Some((row, Committed { cts })) = done else { return Ok(false) };
        self.check_expected::<()>(who, expected, &Ok(()))?;
        self.check_unlocked::<()>(who, at, LockMode::Share, &Ok(()))?;
        let uid = self.model.next_uid();
        self.clients[who].own.changes[at].insert(uid, Some(Rec { at: row, ..rec }));
        self.committed_at(who, cts, dice)?;
        Ok(true)
    }

    /// Changes a row's note in one go, or deletes it, as a transaction of its own; false if the engine left it to the longer way.
    fn change_once(&mut self, who: usize, dice: &mut Dice) -> Verdict<bool> {
        let at = dice.weighted(&[4, 4, 1]);
        let id = dice.below(KEYS as u64) as i64;
        let note = (!dice.one_in(4)).then(|| Note { first: dice.below(200) as u8, length: dice.below(13) as u32 });
        // Of the schema that the session saw last, which may not be current.
        let Some(table) = table_of(&self.clients[who].session, at) else { return Ok(false) };
        let deletes = dice.one_in(3) && !(self.plan.keys && at == PARENT);
        let index = &table.indexes[0];
        let change = if deletes { Change::deletion(&table, index) } else { Change::new(&table, index, &[1], &[2]) };
        let Some(change) = change else { return Ok(false) };
        let mut seen = None;
        let session = &mut self.clients[who].session;
        let done = match deletes {
            true => session.delete_once(&change, id),
            false => session.change_once(&change, id, |old, new| {
                seen = Some((old.cts(), old.get(&table.layout, 1) == Value::Null));
                new.set(&table.layout, 2, &note_value(&note));
                true
            }),
        };
        let what = if deletes { "deletes" } else { "changes" };
        self.say(|| format!("  session {who} {what} {} id {id} to {note:?} at once: {done:?}", TABLES[at]));
        let Some(Committed { cts }) = done else { return Ok(false) };
        let latest = self.model.latest()[at].clone();
        let Some((uid, rec)) =
            latest.iter().flat_map(|t| t.rows.iter()).find(|(_, r)| r.id == id).map(|(u, r)| (*u, *r))
        else {
            return Err(Wrong(format!("session {who} changed {} id {id}, which is not there", TABLES[at])));
        };
        demand!(
            deletes || seen == Some((rec.cts, false)),
            "session {who} changed {seen:?}, the newest version is {rec:?}"
        );
        let others = || self.clients.iter().enumerate().filter(|(i, c)| *i != who && c.active).map(|(_, c)| c);
        let is_locked = others().any(|c| {
            c.own.changes[at].contains_key(&uid)
                || c.own.defs.is_some_and(|d| d[at] != Some(latest.as_ref().expect("it has the row").def))
        });
        demand!(!is_locked, "session {who} changed {rec:?}, which another has changed or taken");
        self.clients[who].own.changes[at].insert(uid, (!deletes).then_some(Rec { note, ..rec }));
        self.committed_at(who, cts, dice)?;
        Ok(true)
    }

    // ---- unique keys

    /// What entering a row into the unique indexes may come to; `before` is what it was, and whose. The first that objects is told of.
    fn expect_unique(&self, who: usize, at: usize, rec: &Rec, before: Option<(u64, Rec)>) -> Expected {
        let extra = self.clients[who].own.def(self.model.latest(), at).and_then(|def| def.extra);
        let me = before.map(|(uid, _)| uid);
        let mut expected = Expected::default();
        if before.is_none_or(|(_, before)| before.id != rec.id) {
            expected = self.expect_of(who, at, me, |other| other.id == rec.id);
        }
        if extra.is_some_and(|e| e.unique) && before.is_none_or(|(_, before)| before.n != rec.n) {
            let of_n = self.expect_of(who, at, me, |other| other.n == rec.n);
            expected.wait |= of_n.wait;
            expected.violation = expected.violation.or(of_n.violation);
        }
        expected
    }

    fn expect_of(&self, who: usize, at: usize, me: Option<u64>, has_key: impl Fn(&Rec) -> bool) -> Expected {
        let mut expected = Expected::default();
        let latest = self.model.latest();
        let own = &self.clients[who].own;
        let has = |rec: &Option<Rec>| rec.as_ref().is_some_and(&has_key);
        let def = own.def(latest, at);
        let same = latest[at].as_ref().filter(|t| Some(t.def.storage) == def.map(|d| d.storage));
        let rows = same.map(|t| t.rows.clone()).unwrap_or_default();
        for (uid, rec) in rows.iter().filter(|(uid, _)| Some(**uid) != me && !own.changes[at].contains_key(uid)) {
            match self.others(who).find_map(|c| c.own.changes[at].get(uid)) {
                Some(changed) => expected.wait |= has_key(rec) || has(changed),
                None if has_key(rec) => expected.violation = Some(rec.cts),
                None => {}
            }
        }
        if own.changes[at].iter().any(|(uid, rec)| Some(*uid) != me && has(rec)) {
            expected.violation = expected.violation.or(Some(Cts::ZERO));
        }
        let inserted = |c: &Client| c.own.changes[at].iter().any(|(uid, rec)| !rows.contains_key(uid) && has(rec));
        expected.wait |= self.others(who).any(inserted);
        expected
    }

    /// Waits may always be for room in the log.
    fn check_expected<T>(&self, who: usize, expected: Expected, result: &Result<T, Stop>) -> Verdict {
        match result {
            Ok(_) => {
                let is_due = expected.wait || expected.violation.is_some();
                demand!(!is_due, "session {who}: {expected:?}, yet it went through");
            }
            Err(Stop::Error(Error::UniqueViolation { .. })) => {
                let Some(by) = expected.violation else {
                    return Err(Wrong(format!("session {who}: a violation of nothing")));
                };
                demand!(self.depends(who, by), "session {who} learns of {by:?} by its key and need not wait for it");
            }
            Err(_) => {}
        }
        Ok(())
    }

    // ---- the schema

    /// The transaction's own schema after `change`.
    fn change_defs(&mut self, who: usize, change: impl FnOnce(&mut Defs)) {
        let latest = defs_of(self.model.latest());
        change(self.clients[who].own.defs.get_or_insert(latest));
    }

    /// DDL that went through was alone.
    fn check_alone(&mut self, who: usize, at: usize, what: &str, result: Result<(), Stop>) -> Done {
        self.say(|| format!("  {what} {}: {}", TABLES[at], outcome(&result)));
        self.clients[who].ddl = true;
        self.tally.definitions += u64::from(result.is_ok());
        let is_beside = self.others(who).any(|c| !c.own.changes[at].is_empty());
        if is_beside && result.is_ok() {
            return Err(Wrong(format!("session {who}: DDL beside a writer of {}", TABLES[at])).into());
        }
        Ok(result?)
    }

    fn create_table(&mut self, who: usize, at: usize) -> Done {
        let name = TABLES[at];
        let column =
            |name: &str, ty| ColumnDef { name: name.into(), ty, not_null: name == "id", ..ColumnDef::default() };
        let columns = vec![column("id", Type::Int8), column("n", Type::Int4), column("note", Type::Text)];
        let kind = if at == 1 { IndexKind::BTree } else { IndexKind::Hash };
        let indexes =
            vec![index(format!("{name}_pkey"), 0, kind, true), index(format!("{name}_n"), 1, IndexKind::BTree, false)];
        let result = self.clients[who]
            .session
            .create_table(TableDef { name: name.into(), columns, ..TableDef::default() }, indexes);
        self.check_alone(who, at, "create", result)?;
        let storage = self.model.next_uid();
        self.change_defs(who, |defs| defs[at] = Some(Def::new(storage)));
        Ok(())
    }

    fn drop_table(&mut self, who: usize, at: usize) -> Done {
        let result = self.clients[who].session.drop_table(TABLES[at]);
        self.check_alone(who, at, "drop", result)?;
        self.change_defs(who, |defs| defs[at] = None);
        self.clients[who].own.changes[at].clear();
        Ok(())
    }

    /// Whoever refers to it is emptied too.
    fn truncate(&mut self, who: usize, at: usize) -> Done {
        let cascades = self.plan.keys && at == PARENT && table_of(&self.clients[who].session, CHILD).is_some();
        for at in [Some(at), cascades.then_some(CHILD)].into_iter().flatten() {
            let result = self.clients[who].session.truncate(TABLES[at]);
            self.check_alone(who, at, "truncate", result)?;
            let storage = self.model.next_uid();
            self.change_defs(who, |defs| defs[at] = defs[at].map(|def| Def { storage, ..def }));
            self.clients[who].own.changes[at].clear();
        }
        Ok(())
    }

    fn toggle_index(&mut self, who: usize, at: usize, dice: &mut Dice) -> Done {
        let table = self.table(who, at)?;
        let name = format!("{}_extra", TABLES[at]);
        let kind = if dice.one_in(2) { IndexKind::Hash } else { IndexKind::BTree };
        let column = 1 + dice.below(table.def.columns.len() as u64 - 1) as u16;
        let unique = column == 1 && dice.one_in(2);
        let is_there = extra_of(&table).is_some();
        let session = &mut self.clients[who].session;
        let result = match is_there {
            true => session.drop_index(&name),
            false => session.create_index(TABLES[at], index(name, column, kind, unique)),
        };
        if unique && !is_there {
            self.check_built(who, at, &result)?;
        }
        self.check_alone(who, at, "index of", result)?;
        let extra = (!is_there).then_some(Extra { kind, column, unique });
        self.change_defs(who, |defs| defs[at] = defs[at].map(|def| Def { extra, ..def }));
        Ok(())
    }

    /// Rows stay as they are.
    fn add_column(&mut self, who: usize, at: usize, dice: &mut Dice) -> Done {
        let table = self.table(who, at)?;
        let place = table.def.columns.len() - FIRST_COLUMNS;
        if place == ADDED_MAX {
            return Ok(());
        }
        let is_text = dice.one_in(2);
        let missing = (!dice.one_in(3)).then(|| dice.below(60) as i64);
        let ty = if is_text { Type::Text } else { Type::Int8 };
        let missing_of = with_other(is_text, missing, |value| Missing::of(ty, &value));
        let column = ColumnDef { name: format!("x{place}"), ty, missing: missing_of, ..ColumnDef::default() };
        let result = self.clients[who].session.add_column(table.id, column);
        if matches!(result, Ok(false)) {
            return Err(Wrong(format!("session {who}: no room for a column of {}", TABLES[at])).into());
        }
        self.check_alone(who, at, "column of", result.map(drop))?;
        let added = Some(Added { is_text, missing });
        self.change_defs(who, |defs| {
            for def in defs[at].iter_mut() {
                def.added[place] = added;
            }
        });
        Ok(())
    }

    /// A unique index is built iff no two rows have the same `n`.
    fn check_built(&mut self, who: usize, at: usize, result: &Result<(), Stop>) -> Verdict {
        let rows = self.clients[who].own.newest(self.model.latest(), at);
        let values: BTreeSet<i64> = rows.values().map(|rec| rec.n).collect();
        let is_unique = values.len() == rows.len();
        match result {
            Ok(()) => demand!(is_unique, "session {who}: a unique index of {} over {rows:?}", TABLES[at]),
            Err(Stop::Error(Error::UniqueViolation { .. })) => {
                demand!(!is_unique, "session {who}: no unique index of {} over {rows:?}", TABLES[at]);
                self.tally.broken += 1;
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn toggle_not_null(&mut self, who: usize, at: usize) -> Done {
        let table = self.table(who, at)?;
        let mut def = table.def.clone();
        def.columns[1].not_null = !def.columns[1].not_null;
        let n_not_null = def.columns[1].not_null;
        let result = self.clients[who].session.redefine_table(table.id, def);
        self.check_alone(who, at, "not null of", result)?;
        self.change_defs(who, |defs| defs[at] = defs[at].map(|def| Def { n_not_null, ..def }));
        Ok(())
    }

    // ---- ends

    pub fn commit(&mut self, who: usize, dice: &mut Dice) -> Verdict {
        if !self.clients[who].active {
            return Ok(());
        }
        if self.clients[who].committing && dice.one_in(10) {
            self.rollback(who);
            return Ok(());
        }
        if !self.clients[who].committing && !self.look_at_awaited(who)? {
            return Ok(());
        }
        let has_turns = dice.one_in(self.plan.turns);
        // Who meets a schema that is published and not yet left waits for that; on one thread, for ever.
        let may_read = !self.clients[who].ddl;
        let result = self.with_turns(has_turns, dice.next_u64(), may_read, |world| world.clients[who].session.commit());
        self.say(|| format!("  commit: {}", outcome(&result)));
        self.watched()?;
        match result {
            Ok(committed) => self.committed_at(who, committed.cts, dice),
            Err(Stop::Wait(_)) => {
                self.tally.waits += 1;
                self.clients[who].committing = true;
                Ok(())
            }
            Err(stop) => {
                self.tell_error(who, &stop)?;
                self.clients[who].end();
                Ok(())
            }
        }
    }

    /// What a SERIALIZABLE transaction has read, it would read again as of its commit.
    fn check_reads(&self, who: usize) -> Verdict {
        let client = &self.clients[who];
        if client.isolation != Isolation::Serializable || client.read_only || client.own.is_empty() {
            return Ok(());
        }
        let latest = self.model.latest();
        for &at in &client.scanned {
            let changed = self.table_changed(at);
            let is_same = changed <= client.snapshot_cts;
            demand!(is_same, "session {who} has read {} and commits, changed at {changed:?}", TABLES[at]);
        }
        for &(at, id) in &client.sought {
            let of = |tables: &Tables| {
                let rows = tables[at].iter().flat_map(|t| t.rows.iter());
                rows.filter(|(_, rec)| rec.id == id).map(|(uid, rec)| (*uid, rec.cts)).collect::<Vec<_>>()
            };
            let (then, now) = (of(&client.snapshot), of(latest));
            demand!(then == now, "session {who} has read {} id {id} and commits: {then:?}, now {now:?}", TABLES[at]);
        }
        Ok(())
    }

    fn committed_at(&mut self, who: usize, cts: Cts, dice: &mut Dice) -> Verdict {
        self.check_reads(who)?;
        let client = &mut self.clients[who];
        let own = client.end();
        client.met = client.met.max(cts);
        if !own.is_empty() {
            let latest = self.model.latest_cts();
            demand!(cts > latest, "a commit at {cts:?} after one at {latest:?}");
            let state = own.apply(self.model.latest(), cts);
            if let (true, Some(child)) = (self.plan.keys, dangling(&state)) {
                return Err(Wrong(format!("session {who} commits {child:?}, which refers to nothing")));
            }
            if state.iter().flatten().any(|t| t.changed == cts) || defs_of(&state) != defs_of(self.model.latest()) {
                self.model.states.push((cts, Rc::new(state)));
                self.tally.commits += 1;
            }
        }
        if dice.one_in(self.plan.deferred) {
            self.clients[who].session.acknowledged_deferred(cts);
            self.model.deferred = self.model.deferred.max(cts);
        } else {
            self.await_durable(cts, cts);
        }
        if !own.is_empty() && dice.one_in(3) { self.check_committed() } else { Ok(()) }
    }

    pub fn rollback(&mut self, who: usize) {
        if self.clients[who].active {
            self.say(|| "  rollback".into());
            self.clients[who].session.rollback();
            self.clients[who].end();
        }
    }

    // ---- reads

    fn view(&self, who: usize, at: usize) -> Option<crate::model::Rows> {
        let client = &self.clients[who];
        client.own.view(&client.snapshot, self.model.latest(), at)
    }

    fn check_view(&mut self, who: usize, at: usize) -> Verdict {
        let Some(view) = self.view(who, at) else {
            let table = table_of(&self.clients[who].session, at);
            demand!(table.is_none(), "session {who} sees table {}, which is not there", TABLES[at]);
            return Ok(());
        };
        self.clients[who].scanned.insert(at);
        let found = check_rows(&mut self.clients[who].session, at, &view);
        found.map_err(|wrong| Wrong(format!("session {who}: {}", wrong.0)))?;
        let client = &self.clients[who];
        let def = client.own.def(self.model.latest(), at);
        let same = client.snapshot[at].as_ref().filter(|t| Some(t.def.storage) == def.map(|d| d.storage));
        let shown = same.map_or(Cts::ZERO, |t| t.changed);
        self.say(|| format!("  look at {}: {} rows as of {shown:?}", TABLES[at], view.len()));
        demand!(self.depends(who, shown), "session {who} shows {shown:?} and need not wait for it");
        self.await_durable(self.clients[who].session.dependency(), shown);
        Ok(())
    }

    /// Everything committed is there, by scan and through every index.
    pub fn check_committed(&mut self) -> Verdict {
        let mut session = self.connect()?;
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        let latest = self.model.latest().clone();
        for (at, table) in latest.iter().enumerate() {
            match table {
                Some(table) => check_rows(&mut session, at, &table.rows)?,
                None => demand!(table_of(&session, at).is_none(), "table {} is there", TABLES[at]),
            }
        }
        end_read(&mut session)
    }

    /// An autocommit read sees the durable state or the latest, and at least what its session and every deferred answer have shown.
    pub fn read(&mut self, who: usize) -> Verdict {
        if self.clients[who].active {
            return Ok(());
        }
        let durable = self.model.states.iter().rposition(|(cts, _)| self.engine().is_durable(*cts)).unwrap_or(0);
        let latest = self.model.states.len() - 1;
        let client = &mut self.clients[who];
        client.session.begin_read();
        client.session.begin_statement();
        let seen = scan_all(&mut client.session)?;
        // Nothing to wait for: at the durable horizon, or nothing was met that could need it.
        let is_free = client.session.dependency() == Cts::ZERO;
        let needed = client.met.max(self.model.deferred);
        let is_seen_durable = self.engine().is_durable(needed);
        let covers = |at: usize| at == latest || is_seen_durable;
        let may_be = [durable, latest].into_iter().filter(|at| covers(*at) && (is_free || *at == latest));
        let found = may_be.into_iter().find(|at| crate::world::is_state(&seen, &self.model.states[*at].1));
        let Some(at) = found else {
            let [durable, latest] = [durable, latest].map(|at| self.model.states[at].0);
            return Err(Wrong(format!(
                "a read of session {who}, which has seen {needed:?}, gives {seen:?}, neither {durable:?} nor {latest:?}"
            )));
        };
        let (cts, state) = self.model.states[at].clone();
        self.say(|| format!("  read at {cts:?}"));
        for (at, table) in state.iter().enumerate() {
            if let Some(table) = table {
                check_rows(&mut self.clients[who].session, at, &table.rows)?;
            }
        }
        let shown = state.iter().flatten().map(|t| t.changed).max().unwrap_or_default();
        demand!(self.depends(who, shown), "a read of session {who} shows {shown:?} and need not wait for it");
        let dependency = self.clients[who].session.dependency();
        end_read(&mut self.clients[who].session)?;
        self.await_durable(dependency, shown);
        Ok(())
    }
}

impl World {
    /// Reads by a key, each a transaction of its own that takes the short way where it can.
    pub fn read_short(&mut self, who: usize, dice: &mut Dice) -> Verdict {
        let (at, id) = (dice.below(TABLES.len() as u64) as usize, dice.below(KEYS as u64) as i64);
        let client = &mut self.clients[who];
        // A table of an older schema is for SQL to keep out.
        if client.active || !client.session.has_newest_schema() {
            return Ok(());
        }
        let Some(table) = table_of(&client.session, at) else { return Ok(()) };
        let by_id = &table.indexes[0];
        let durable = self.model.states.iter().rposition(|(cts, _)| self.engine().is_durable(*cts)).unwrap_or(0);
        let needed = self.clients[who].met.max(self.model.deferred);
        let is_seen_durable = self.engine().is_durable(needed);
        let of = |state: &Tables| state[at].as_ref().and_then(|t| t.rows.values().find(|rec| rec.id == id).copied());
        let (durable, latest) = (of(&self.model.states[durable].1), of(self.model.latest()));
        let session = &mut self.clients[who].session;
        let mut row = Row::default();
        if let Some(found) = session.look_up_newest(&Lookup::new(&table, by_id, [1]), id, &mut row) {
            let seen = (found, row.cts(), row.get(&table.layout, 1));
            let is_it = |rec: Option<Rec>| rec.is_some_and(|rec| seen == (rec.at, rec.cts, Value::Int(rec.n)));
            demand!(
                is_seen_durable && is_it(durable) && is_it(latest),
                "session {who}, which has seen {needed:?}, finds {seen:?} in one go, where {durable:?} is durable and {latest:?} newest"
            );
        }
        let Some(lookup) = IntegerLookup::new(&table, by_id, 1) else { return Ok(()) };
        let read = session.read_integer(&lookup, id);
        let (n, waits) = read.map_err(|stop| Wrong(format!("a read does not end: {}", shown(&stop))))?;
        self.say(|| format!("  session {who} reads {} id {id} in one go: {n:?}, waits for {waits:?}", TABLES[at]));
        let is_it = |rec: Option<Rec>| n == rec.map(|rec| Some(rec.n));
        let shows = latest.map_or(Cts::ZERO, |rec| rec.cts);
        let is_right = match waits {
            Cts::ZERO => is_it(durable) && (is_seen_durable || is_it(latest)),
            waits => is_it(latest) && waits >= shows,
        };
        demand!(
            is_right,
            "session {who}, which has seen {needed:?}, reads {n:?} and waits for {waits:?}, where {durable:?} is durable and {latest:?} newest"
        );
        self.await_durable(waits, if waits == Cts::ZERO { Cts::ZERO } else { shows });
        Ok(())
    }
}

pub fn end_read(session: &mut Session) -> Verdict {
    match session.commit() {
        Ok(_) => Ok(()),
        Err(stop) => Err(Wrong(format!("a read does not end: {}", shown(&stop)))),
    }
}

fn index(name: String, column: u16, kind: IndexKind, unique: bool) -> IndexDef {
    IndexDef {
        name,
        kind,
        unique,
        primary: column == 0,
        columns: vec![KeyColumn { column, descending: false }],
        ..IndexDef::default()
    }
}

fn shown(stop: &Stop) -> String {
    match stop {
        Stop::Wait(_) => "waits".into(),
        Stop::Error(error) => error.to_string(),
    }
}

fn outcome<T: std::fmt::Debug>(result: &Result<T, Stop>) -> String {
    match result {
        Ok(done) => format!("{done:?}"),
        Err(stop) => shown(stop),
    }
}
