//! A map of versions beside the engine: whatever several sessions do on one thread, both must agree.
//!
//! The model keeps the committed state after every commit, whole. A session's view is a past state with its own changes on top. It knows which
//! results are possible where the engine has a choice (to wait, or to refuse at once), and demands the one that is where there is none.
//!
//! | promise | where it is checked |
//! |---|---|
//! | a statement sees its snapshot and its own transaction's changes | `check_view`, by scan and through every index |
//! | RC writes the newest version, RR refuses one that changed | `change` |
//! | unique keys stay unique and wait for the undecided | `expect_unique` |
//! | a statement is undone wholly | `statement` |
//! | what came after a savepoint is undone, its locks with it | `save_or_go_back`, and all of the above afterwards |
//! | what was durable survives, in commit order, and nothing half | `recovered` |
//! | garbage goes | `check_quiet` |

use crate::world::{create_named, index};
use freshet_engine::catalog::{Index, IndexKind, Table};
use freshet_engine::engine::{Engine, OpenError, Options};
use freshet_engine::ids::{Cts, RowId};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{KeyBuf, KeyPart, Row, Value};
use freshet_engine::txn::{Direction, Error, Isolation, Locked, Savepoint, Session, Stop, TableCursor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

const TABLES: [&str; 2] = ["t", "u"];
/// Few keys, so that sessions meet.
const KEYS: u64 = 12;

/// A small deterministic generator (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A text that a failure does not print whole.
#[derive(Clone, PartialEq)]
struct Note(Arc<str>);

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.. of {}", &self.0[..self.0.len().min(6)], self.0.len())
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Rec {
    id: i64,
    n: i64,
    note: Option<Note>,
    at: RowId,
    /// Of the committed version.
    cts: Cts,
}

/// Rows by an identity that outlives key changes.
type Rows = BTreeMap<u64, Rec>;
type State = [Rows; 2];
type Changes = [BTreeMap<u64, Option<Rec>>; 2];

/// What a transaction has done so far.
#[derive(Clone, Default)]
struct Own {
    changes: Changes,
    truncated: [bool; 2],
}

struct Client {
    session: Session,
    isolation: Isolation,
    active: bool,
    snapshot: State,
    snapshot_cts: Cts,
    own: Own,
    /// Rows that it asked the lock of.
    touched: BTreeSet<u64>,
    /// It has tried DDL: gates stay closed even where the statement was undone.
    ddl: bool,
    savepoints: Vec<(Savepoint, Own, BTreeSet<u64>, bool)>,
}

/// How large and how wild.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub devices: usize,
    pub ddl: bool,
    pub checkpoints: bool,
    /// The longest note in bytes.
    pub note_bytes: u64,
    /// Step until nothing is left to do before each statement.
    pub eager: bool,
}

impl Plan {
    /// Tiny segments, so that the log goes round and images are moved; the seed chooses where images go.
    pub fn options(&self) -> Options {
        let device = |i: usize| PathBuf::from(format!("/log{i}"));
        let backups = [0, 2, 1][self.seed as usize % 3];
        Options {
            backup_dirs: (0..backups).map(|i| PathBuf::from(format!("/backup{i}"))).collect(),
            checkpoint_threads: 1 + self.seed as usize % 2,
            image_segment_bytes: if self.seed.is_multiple_of(4) { 1 << 20 } else { 64 << 10 },
            log_dirs: (0..self.devices).map(device).collect(),
            stage_limit_bytes: 160 << 10,
            segment_bytes: 256 << 10,
            log_size_bytes: (1 << 20) * self.devices as u64,
            ..Options::small("/db")
        }
    }

    pub fn open(&self, io: &MemIo) -> Result<Engine, OpenError> {
        Engine::open_with(Arc::new(io.clone()), MemClock::new(), self.options())
    }
}

/// The engine failed as it may when its files do.
#[derive(Debug)]
pub struct Failed;

pub struct Model {
    plan: Plan,
    dice: Dice,
    pub engine: Engine,
    clients: Vec<Client>,
    /// The committed states, each with the commit that made it.
    states: Vec<(Cts, State)>,
    next_row: u64,
    /// What happened, to be sure that a run tries something.
    pub commits: usize,
    pub waits: usize,
    pub violations: usize,
    pub serializations: usize,
    pub deadlocks: usize,
    /// Returns to a savepoint that undid something.
    pub returns: usize,
    pub failed_checkpoints: usize,
}

impl Model {
    /// Creates the tables, durably.
    pub fn new(plan: Plan, engine: Engine) -> Model {
        let mut session = crate::world::Session::new(&engine);
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        for (name, kind) in TABLES.into_iter().zip([IndexKind::Hash, IndexKind::BTree]) {
            while engine.step() {}
            create_named(&mut session, name, kind).expect("creates");
            session.begin_statement();
        }
        let created = session.commit().expect("commits").cts;
        while engine.step() {}
        drop(session);
        let dice = Dice(plan.seed);
        let states = vec![(created, State::default())];
        let mut model = Model {
            plan,
            dice,
            engine,
            clients: Vec::new(),
            states,
            next_row: 0,
            commits: 0,
            waits: 0,
            violations: 0,
            serializations: 0,
            deadlocks: 0,
            returns: 0,
            failed_checkpoints: 0,
        };
        model.connect();
        model
    }

    fn connect(&mut self) {
        self.clients = (0..4).map(|_| Client::new(self.engine.connect().expect("a place"))).collect();
    }

    fn latest(&self) -> &State {
        &self.states.last().expect("the created one").1
    }

    /// Does `count` random things. An error: the files failed.
    pub fn run(&mut self, count: usize) -> Result<(), Failed> {
        for _ in 0..count {
            let steps = if self.plan.eager { u64::MAX } else { self.dice.below(3) };
            (0..steps).take_while(|_| self.engine.step()).for_each(drop);
            if self.plan.checkpoints && self.dice.one_in(40) && self.engine.checkpoint().is_err() {
                // A checkpoint that cannot be written stops nothing else.
                self.failed_checkpoints += 1;
            }
            let who = self.dice.below(self.clients.len() as u64) as usize;
            match self.dice.below(10) {
                0..6 => self.statement(who)?,
                6 | 7 => self.commit(who)?,
                8 => self.rollback(who),
                _ => self.check_durable_read(who),
            }
        }
        Ok(())
    }

    // ---- statements

    fn statement(&mut self, who: usize) -> Result<(), Failed> {
        if !self.clients[who].active {
            let isolation = if self.dice.one_in(3) { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
            self.clients[who].session.begin(isolation, false);
            self.clients[who].isolation = isolation;
            self.clients[who].active = true;
            self.take_snapshot(who);
        }
        self.clients[who].session.begin_statement();
        if self.clients[who].isolation == Isolation::ReadCommitted {
            self.take_snapshot(who);
        }
        let saved = self.clients[who].own.clone();
        let mut done = Ok(());
        for _ in 0..1 + self.dice.below(3) {
            let table = self.dice.below(2) as usize;
            done = match self.dice.below(20) {
                0..7 => self.insert(who, table),
                7..12 => self.update(who, table),
                12..15 => self.delete(who, table),
                15 if self.plan.ddl && self.dice.one_in(3) => self.truncate(who, table),
                16 if self.plan.ddl => self.toggle_index(who, table),
                _ => {
                    self.check_view(who);
                    Ok(())
                }
            };
            if done.is_err() {
                break;
            }
        }
        let Err(stop) = done else {
            self.save_or_go_back(who);
            return Ok(());
        };
        let is_wait = matches!(stop, Stop::Wait(_));
        self.clients[who].session.rollback_statement();
        self.clients[who].own = saved;
        match stop {
            Stop::Wait(_) => self.waits += 1,
            Stop::Error(Error::UniqueViolation { .. }) => self.violations += 1,
            Stop::Error(Error::Serialization) => self.serializations += 1,
            Stop::Error(Error::Deadlock(_)) => self.deadlocks += 1,
            Stop::Error(Error::LogFailed(_)) => return Err(Failed),
            Stop::Error(error) => panic!("{error}"),
        }
        if is_wait && self.dice.one_in(8) {
            self.clients[who].session.abandon_wait();
        }
        if !is_wait && self.dice.one_in(2) || self.dice.one_in(10) {
            self.rollback(who);
        } else {
            self.save_or_go_back(who);
        }
        Ok(())
    }

    fn save_or_go_back(&mut self, who: usize) {
        if !self.plan.seed.is_multiple_of(3) {
            return;
        }
        let client = &mut self.clients[who];
        let count = client.savepoints.len() as u64;
        match self.dice.below(6) {
            0 => {
                let savepoint = client.session.savepoint();
                client.savepoints.push((savepoint, client.own.clone(), client.touched.clone(), client.ddl));
            }
            1 if count > 0 => {
                client.savepoints.truncate(self.dice.below(count) as usize + 1);
                let (savepoint, own, touched, ddl) = client.savepoints.last().expect("at least one");
                client.session.rollback_to(savepoint);
                self.returns += usize::from(client.touched != *touched);
                (client.own, client.touched, client.ddl) = (own.clone(), touched.clone(), *ddl);
            }
            _ => {}
        }
    }

    fn take_snapshot(&mut self, who: usize) {
        let (cts, state) = self.states.last().expect("the created one").clone();
        self.clients[who].snapshot = state;
        self.clients[who].snapshot_cts = cts;
    }

    fn note(&mut self) -> Option<Note> {
        let length = match self.dice.below(8) {
            0 => return None,
            1..4 => self.dice.below(13),
            4..7 => self.dice.below(200),
            _ => self.dice.below(self.plan.note_bytes + 1),
        };
        let first = self.dice.below(26);
        let text: String = (0..length).map(|i| char::from(b'a' + ((first + i * i) % 26) as u8)).collect();
        Some(Note(text.into()))
    }

    fn table(&self, who: usize, table: usize) -> Arc<Table> {
        self.clients[who].session.schema().table(TABLES[table]).expect("created").clone()
    }

    fn insert(&mut self, who: usize, at: usize) -> Result<(), Stop> {
        let table = self.table(who, at);
        let rec = Rec {
            id: self.dice.below(KEYS) as i64,
            n: self.dice.below(5) as i64,
            note: self.note(),
            at: RowId(0),
            cts: Cts::ZERO,
        };
        let expected = self.expect_unique(who, at, rec.id, None);
        let result = self.clients[who].session.insert(&table, &mut row_of(&table, &rec));
        self.check_expected(who, expected, &result);
        let rec = Rec { at: result?, ..rec };
        let uid = self.next_row;
        self.next_row += 1;
        self.clients[who].touched.insert(uid);
        self.clients[who].own.changes[at].insert(uid, Some(rec));
        Ok(())
    }

    fn update(&mut self, who: usize, at: usize) -> Result<(), Stop> {
        let Some((uid, old, newest)) = self.lock_some(who, at)? else { return Ok(()) };
        let table = self.table(who, at);
        let mut rec = newest;
        rec.n += 1;
        let mut new = old.clone();
        new.set(&table.layout, 1, &Value::Int(rec.n));
        if self.dice.one_in(2) {
            rec.note = self.note();
            new.set(&table.layout, 2, &note_value(&rec.note));
        }
        let mut expected = Expected::default();
        if self.dice.one_in(3) {
            rec.id = self.dice.below(KEYS) as i64;
            new.set(&table.layout, 0, &Value::Int(rec.id));
            expected = self.expect_unique(who, at, rec.id, Some(uid));
        }
        let result = self.clients[who].session.update(&table, rec.at, &old, &mut new);
        self.check_expected(who, expected, &result);
        result?;
        self.clients[who].own.changes[at].insert(uid, Some(rec));
        Ok(())
    }

    fn delete(&mut self, who: usize, at: usize) -> Result<(), Stop> {
        let Some((uid, old, newest)) = self.lock_some(who, at)? else { return Ok(()) };
        let table = self.table(who, at);
        let result = self.clients[who].session.delete(&table, newest.at, &old);
        self.check_expected(who, Expected::default(), &result);
        result?;
        self.clients[who].own.changes[at].insert(uid, None);
        Ok(())
    }

    /// Finds a random visible row by its key, locks it, and checks what the lock says. Gives its newest version.
    fn lock_some(&mut self, who: usize, at: usize) -> Result<Option<(u64, Row, Rec)>, Stop> {
        let view = self.clients[who].view(at);
        if view.is_empty() {
            return Ok(None);
        }
        let pick = self.dice.below(view.len() as u64) as usize;
        let (uid, rec) = view.into_iter().nth(pick).expect("below its length");
        let table = self.table(who, at);
        let mut row = Row::default();
        let client = &mut self.clients[who];
        let found = client.session.get(&table, &table.indexes[0], |_| Value::Int(rec.id), &mut row);
        assert_eq!(found, Some(rec.at), "the visible row {rec:?} is found by its key");
        let result = client.session.lock(&table, rec.at, &mut row);
        self.clients[who].touched.insert(uid);
        let held_by_other = |c: &Client| c.active && c.own.changes[at].contains_key(&uid);
        let others = || self.clients.iter().enumerate().filter(|(i, _)| *i != who).map(|(_, c)| c);
        if matches!(result, Err(Stop::Wait(_) | Stop::Error(Error::Deadlock(_)))) {
            let is_due = others().any(|c| c.active && (c.touched.contains(&uid) || c.ddl));
            assert!(is_due || self.plan_is_busy(), "nobody else touched {rec:?}, yet: {result:?}");
            return result.map(|_| None);
        }
        if matches!(result, Err(Stop::Error(Error::LogFailed(_)))) {
            return result.map(|_| None);
        }
        assert!(!others().any(held_by_other), "{rec:?} was written by another, yet: {result:?}");
        let client = &self.clients[who];
        let own = client.own.changes[at].get(&uid).cloned();
        let committed = self.latest()[at].get(&uid).cloned();
        let newest = own.unwrap_or(committed.clone());
        // A row that is gone was deleted after the snapshot, or the snapshot would not have shown it.
        let changed =
            committed.as_ref().map_or(!client.own.changes[at].contains_key(&uid), |c| c.cts > client.snapshot_cts);
        if client.isolation == Isolation::RepeatableRead && changed {
            assert!(matches!(result, Err(Stop::Error(Error::Serialization))), "{rec:?} changed, yet: {result:?}");
            return result.map(|_| None);
        }
        match (result?, newest) {
            (Locked::Gone, None) => Ok(None),
            (Locked::Same | Locked::Newer, Some(newest)) => {
                let locked = rec_of(&table, &mut row, newest.at, |row| {
                    self.clients[who].session.fetch_long(&table, row, 2);
                });
                assert_eq!(locked, Rec { cts: locked.cts, ..newest.clone() }, "the lock gives the newest version");
                Ok(Some((uid, row, newest)))
            }
            (locked, newest) => panic!("locked {locked:?} where the newest version is {newest:?}"),
        }
    }

    /// Waits for room in the log are possible whatever the locks.
    fn plan_is_busy(&self) -> bool {
        self.engine.stats().log_used_bytes > self.engine.stats().log_capacity_bytes / 2
    }

    fn truncate(&mut self, who: usize, at: usize) -> Result<(), Stop> {
        let result = self.clients[who].session.truncate(TABLES[at]);
        self.clients[who].ddl = true;
        self.check_alone(who, at, &result);
        result?;
        let client = &mut self.clients[who];
        client.own.truncated[at] = true;
        client.own.changes[at].clear();
        Ok(())
    }

    fn toggle_index(&mut self, who: usize, at: usize) -> Result<(), Stop> {
        let table = self.table(who, at);
        let name = format!("{}_extra", TABLES[at]);
        let result = if table.indexes.len() > 2 {
            self.clients[who].session.drop_index(&name)
        } else {
            let kind = if self.dice.one_in(2) { IndexKind::Hash } else { IndexKind::BTree };
            let column = 1 + self.dice.below(2) as u16;
            self.clients[who].session.create_index(TABLES[at], index(&name, column, kind, false))
        };
        self.clients[who].ddl = true;
        self.check_alone(who, at, &result);
        result
    }

    /// DDL that went through was alone.
    fn check_alone(&self, who: usize, at: usize, result: &Result<(), Stop>) {
        let is_other = |(i, c): &(usize, &Client)| *i != who && c.active;
        let writer = self.clients.iter().enumerate().filter(is_other).find(|(_, c)| !c.own.changes[at].is_empty());
        assert!(writer.is_none() || result.is_err(), "DDL beside a writer");
    }

    // ---- unique keys

    fn expect_unique(&self, who: usize, at: usize, id: i64, me: Option<u64>) -> Expected {
        let mut expected = Expected::default();
        let own = &self.clients[who].own;
        let has = |rec: &Option<Rec>| rec.as_ref().is_some_and(|r| r.id == id);
        let others = || self.clients.iter().enumerate().filter(|(i, c)| *i != who && c.active).map(|(_, c)| c);
        let nothing = Rows::new();
        let base = if own.truncated[at] { &nothing } else { &self.latest()[at] };
        for (uid, rec) in base.iter().filter(|(uid, _)| Some(**uid) != me && !own.changes[at].contains_key(uid)) {
            match others().find_map(|c| c.own.changes[at].get(uid)) {
                Some(changed) => expected.wait |= rec.id == id || has(changed),
                None => expected.violation |= rec.id == id,
            }
        }
        expected.violation |= own.changes[at].iter().any(|(uid, rec)| Some(*uid) != me && has(rec));
        let inserted = |c: &Client| c.own.changes[at].iter().any(|(uid, rec)| !base.contains_key(uid) && has(rec));
        expected.wait |= others().any(inserted);
        let client = &self.clients[who];
        let is_twin = |(uid, rec): (u64, Rec)| Some(uid) != me && rec.id == id;
        expected.twin = client.isolation.keeps_snapshot() && client.view(at).into_iter().any(is_twin);
        expected
    }

    fn check_expected<T: std::fmt::Debug>(&self, who: usize, expected: Expected, result: &Result<T, Stop>) {
        let gates = || self.clients.iter().enumerate().any(|(i, c)| i != who && c.active && c.ddl);
        match result {
            Ok(_) => {
                assert!(!expected.wait && !expected.violation && !expected.twin, "{expected:?}, yet it went through")
            }
            Err(Stop::Error(Error::Serialization)) => assert!(expected.twin, "no other row of the key is seen"),
            Err(Stop::Error(Error::UniqueViolation { .. })) => assert!(expected.violation, "a violation of nothing"),
            Err(Stop::Wait(_) | Stop::Error(Error::Deadlock(_))) => {
                assert!(expected.wait || gates() || self.plan_is_busy(), "a wait for nothing: {result:?}")
            }
            Err(Stop::Error(Error::LogFailed(_))) => {}
            Err(Stop::Error(error)) => panic!("{error}"),
        }
    }

    // ---- ends

    fn commit(&mut self, who: usize) -> Result<(), Failed> {
        if !self.clients[who].active {
            return Ok(());
        }
        let committed = loop {
            match self.clients[who].session.commit() {
                Ok(committed) => break committed,
                Err(Stop::Wait(_)) => drop(self.engine.step()),
                Err(Stop::Error(Error::LogFailed(_))) => return Err(Failed),
                Err(Stop::Error(error)) => panic!("{error}"),
            }
        };
        let own = self.clients[who].end();
        let mut state = self.latest().clone();
        for (at, changes) in own.changes.into_iter().enumerate() {
            if own.truncated[at] {
                state[at].clear();
                // TRUNCATE is not for older snapshots to see through, as in PostgreSQL.
                self.clients.iter_mut().for_each(|c| c.snapshot[at].clear());
            }
            for (uid, rec) in changes {
                match rec {
                    Some(rec) => drop(state[at].insert(uid, Rec { cts: committed.cts, ..rec })),
                    None => drop(state[at].remove(&uid)),
                }
            }
        }
        if state != *self.latest() {
            self.states.push((committed.cts, state));
            self.commits += 1;
            self.check_committed();
        }
        Ok(())
    }

    fn rollback(&mut self, who: usize) {
        if self.clients[who].active {
            self.clients[who].session.rollback();
            self.clients[who].end();
        }
    }

    // ---- checks

    /// Everything committed is there, by scan and through every index.
    pub fn check_committed(&self) {
        let mut session = self.engine.connect().expect("a place");
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        for at in 0..TABLES.len() {
            check_rows(&mut session, at, &self.latest()[at]);
        }
        session.commit().map(drop).expect("a read commits");
    }

    #[track_caller]
    fn check_view(&mut self, who: usize) {
        for at in 0..TABLES.len() {
            let view = self.clients[who].view(at);
            check_rows(&mut self.clients[who].session, at, &view);
        }
    }

    /// An autocommit read sees the durable state or the latest, at least what the session itself committed.
    fn check_durable_read(&mut self, who: usize) {
        if self.clients[who].active {
            return;
        }
        let durable = self.states.iter().rposition(|(cts, _)| self.engine.is_durable(*cts)).expect("the created one");
        let session = &mut self.clients[who].session;
        session.begin_read();
        session.begin_statement();
        let at = self.dice.below(2) as usize;
        let is_latest = scan(session, at) == by_place(&self.states[self.states.len() - 1].1[at]);
        let depends = session.dependency() > Cts::ZERO;
        assert!(is_latest || !depends, "it is not at the durable horizon, and not the latest either");
        let state = if is_latest { self.states.len() - 1 } else { durable };
        check_rows(session, at, &self.states[state].1[at]);
        session.commit().map(drop).expect("a read commits");
    }

    /// Ends everything; what is left is exactly one entry per row and index, and no old version.
    pub fn check_quiet(&mut self) {
        (0..self.clients.len()).for_each(|who| self.rollback(who));
        self.clients.clear();
        while self.engine.step() {}
        self.check_committed();
        for (at, name) in TABLES.into_iter().enumerate() {
            let schema = self.engine.schema();
            for index in &schema.table(name).expect("created").indexes {
                let rows = self.latest()[at].len() as u64;
                assert_eq!(index.entries(), rows, "entries of {} are those of its rows", index.def.name);
            }
        }
        assert_eq!(self.engine.stats().version_bytes, 0, "no version is left");
    }

    // ---- crashes

    /// Takes over an engine that was opened after a crash: its state must be one that was committed, no older than what was durable.
    pub fn recovered(&mut self, engine: Engine) {
        let durable = self.states.iter().rposition(|(cts, _)| self.engine.is_durable(*cts)).expect("the created one");
        self.clients.clear();
        self.engine = engine;
        let seen = {
            let mut session = self.engine.connect().expect("a place");
            session.begin(Isolation::RepeatableRead, true);
            session.begin_statement();
            let seen = [0, 1].map(|at| scan(&mut session, at));
            session.commit().map(drop).expect("a read commits");
            seen
        };
        let is_it = |(_, state): &(Cts, State)| (0..2).all(|at| by_place(&state[at]) == seen[at]);
        let found = self.states[durable..].iter().rposition(is_it);
        let found = found.unwrap_or_else(|| {
            let older = self.states[..durable].iter().rposition(is_it);
            panic!(
                "recovered {seen:?}, which was never committed or is older than the durable state {durable} of {} (it is {older:?})",
                self.states.len()
            )
        });
        self.states.truncate(durable + found + 1);
        self.check_committed();
        self.connect();
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Expected {
    wait: bool,
    violation: bool,
    /// The snapshot that the transaction keeps shows another row of the key.
    twin: bool,
}

impl Client {
    fn new(session: Session) -> Client {
        Client {
            session,
            isolation: Isolation::ReadCommitted,
            active: false,
            snapshot: State::default(),
            snapshot_cts: Cts::ZERO,
            own: Own::default(),
            touched: BTreeSet::new(),
            ddl: false,
            savepoints: Vec::new(),
        }
    }

    fn view(&self, at: usize) -> Rows {
        let mut view = if self.own.truncated[at] { Rows::new() } else { self.snapshot[at].clone() };
        for (&uid, rec) in &self.own.changes[at] {
            match rec {
                Some(rec) => drop(view.insert(uid, rec.clone())),
                None => drop(view.remove(&uid)),
            }
        }
        view
    }

    fn end(&mut self) -> Own {
        self.active = false;
        self.ddl = false;
        self.savepoints.clear();
        self.touched.clear();
        std::mem::take(&mut self.own)
    }
}

fn note_value(note: &Option<Note>) -> Value<'_> {
    note.as_ref().map_or(Value::Null, |n| Value::Bytes(n.0.as_bytes()))
}

fn row_of(table: &Table, rec: &Rec) -> Row {
    let mut row = Row::new(&table.layout);
    row.set(&table.layout, 0, &Value::Int(rec.id));
    row.set(&table.layout, 1, &Value::Int(rec.n));
    row.set(&table.layout, 2, &note_value(&rec.note));
    row
}

fn rec_of(table: &Table, row: &mut Row, at: RowId, fetch: impl FnOnce(&mut Row)) -> Rec {
    fetch(row);
    let (Value::Int(id), Value::Int(n)) = (row.get(&table.layout, 0), row.get(&table.layout, 1)) else {
        panic!("numbers are set")
    };
    let note = match row.get(&table.layout, 2) {
        Value::Bytes(bytes) => Some(Note(String::from_utf8_lossy(bytes).into())),
        _ => None,
    };
    Rec { id, n, note, at, cts: row.cts() }
}

type Plain = BTreeMap<RowId, (i64, i64, Option<Note>)>;

fn by_place(rows: &Rows) -> Plain {
    rows.values().map(|r| (r.at, (r.id, r.n, r.note.clone()))).collect()
}

fn scan(session: &mut Session, at: usize) -> Plain {
    let table = session.schema().table(TABLES[at]).expect("created").clone();
    let (mut cursor, mut row, mut seen) = (TableCursor::default(), Row::default(), Plain::new());
    while let Some(id) = session.scan_next(&table, &mut cursor, &mut row) {
        let rec = rec_of(&table, &mut row, id, |row| session.fetch_long(&table, row, 2));
        seen.insert(id, (rec.id, rec.n, rec.note));
    }
    seen
}

/// The session sees exactly these rows: by scan, by every key of every index, and in the order of every ordered one.
#[track_caller]
fn check_rows(session: &mut Session, at: usize, rows: &Rows) {
    let expected = by_place(rows);
    assert_eq!(scan(session, at), expected, "a scan of {}", TABLES[at]);
    let table = session.schema().table(TABLES[at]).expect("created").clone();
    let mut row = Row::default();
    for id in 0..KEYS as i64 {
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut row);
        // An old snapshot may show two: a row deleted since, and the transaction's own with the freed key.
        let places: Vec<RowId> = rows.values().filter(|r| r.id == id).map(|r| r.at).collect();
        let is_right = found.map_or(places.is_empty(), |id| places.contains(&id));
        assert!(is_right, "id {id} of {}: {found:?} of {places:?}", TABLES[at]);
    }
    for index in &table.indexes {
        let column = usize::from(index.def.columns[0].column);
        for rec in rows.values() {
            let key = |_| match column {
                0 => Value::Int(rec.id),
                1 => Value::Int(rec.n),
                _ => note_value(&rec.note),
            };
            let mut candidates = Vec::new();
            session.lookup(&table, index, key, &mut candidates);
            let led = candidates.contains(&rec.at);
            assert!(led, "{} leads to {rec:?}", index.def.name);
        }
        if index.is_ordered() {
            check_order(session, &table, index, &expected);
        }
    }
}

fn check_order(session: &mut Session, table: &Table, index: &Index, expected: &Plain) {
    let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
    index.spec.encode(&mut lower, |_| KeyPart::Lowest);
    index.spec.encode(&mut upper, |_| KeyPart::Highest);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = session.range(index, &lower, &upper, direction);
        let (mut row, mut last, mut seen) = (Row::default(), None::<Row>, BTreeSet::new());
        while let Some(id) = session.range_next(table, index, &mut cursor, &mut row) {
            assert!(expected.contains_key(&id), "{} shows {id:?}", index.def.name);
            assert!(seen.insert(id), "{} shows {id:?} twice", index.def.name);
            session.fetch_key_columns(table, index, &mut row);
            if let Some(last) = &last {
                let order = index.spec.compare_rows(&table.layout, last, &row);
                let wrong = if direction == Direction::Forward { order.is_gt() } else { order.is_lt() };
                assert!(!wrong, "{} is out of order", index.def.name);
            }
            last = Some(row.clone());
        }
        assert_eq!(seen.len(), expected.len(), "{} shows every row", index.def.name);
    }
    check_order_of_readers(session, table, index);
}

/// A reader on another thread meets the rows that its session meets, in the same order.
fn check_order_of_readers(session: &mut Session, table: &Table, index: &Index) {
    let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
    index.spec.encode(&mut lower, |_| KeyPart::Lowest);
    index.spec.encode(&mut upper, |_| KeyPart::Highest);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut row = Row::default();
        let mut cursor = session.range(index, &lower, &upper, direction);
        let own: Vec<_> = std::iter::from_fn(|| session.range_next(table, index, &mut cursor, &mut row)).collect();
        let read = session.reader().batch(|batch| {
            let mut cursor = batch.range(index, &lower, &upper, direction);
            std::iter::from_fn(|| batch.range_next(table, index, &mut cursor, &mut row)).collect::<Vec<_>>()
        });
        assert_eq!(read, Ok(own), "{} {direction:?}", index.def.name);
    }
}

/// The seeds of a test: a few, or `FRESHET_TEST_SCALE` times as many (`scripts/verify`).
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("FRESHET_TEST_SCALE").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    0..count * times
}

/// Says which seed it was, if the test fails under it.
pub struct Named(pub u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn plan(seed: u64) -> Plan {
    Plan { seed, devices: 1, ddl: true, checkpoints: true, note_bytes: 3000, eager: false }
}

#[test]
fn random_sessions_agree_with_the_map() {
    let (mut commits, mut waits, mut violations, mut serializations, mut deadlocks) = (0, 0, 0, 0, 0);
    let mut returns = 0;
    for seed in seeds(24) {
        let _named = Named(seed);
        let plan = Plan { ddl: seed % 3 != 0, eager: seed % 4 == 3, devices: 1 + seed as usize % 2, ..plan(seed) };
        let engine = plan.open(&MemIo::new()).expect("opens");
        let mut model = Model::new(plan, engine);
        model.run(400).expect("no file fails");
        model.check_quiet();
        commits += model.commits;
        waits += model.waits;
        violations += model.violations;
        serializations += model.serializations;
        returns += model.returns;
        deadlocks += model.deadlocks;
    }
    // The runs met what they are for.
    assert!(commits > 500 && waits > 500 && violations > 100, "{commits} {waits} {violations}");
    assert!(serializations > 20 && deadlocks > 10, "{serializations} {deadlocks}");
    assert!(returns > 20, "{returns}");
}

#[test]
fn a_long_history_with_crashes_agrees_with_the_map() {
    for seed in seeds(8) {
        let _named = Named(seed);
        let plan = Plan { devices: 1 + seed as usize % 3, note_bytes: 40_000, ..plan(seed) };
        let mut io = MemIo::new();
        let mut model = Model::new(plan.clone(), plan.open(&io).expect("opens"));
        for life in 0..6 {
            model.run(120).expect("no file fails");
            io = io.crash(seed * 31 + life);
            let engine = plan.open(&io).expect("opens after a crash");
            model.recovered(engine);
        }
        model.check_quiet();
    }
}
