//! What do threads see of each other? A real engine with its threads, sessions that read and append as fast as they can, and the history of it.
//!
//! A few lists are in use at a time, so that everybody meets everybody; when they are long the next ones are. With the feature `planted` a thread lets
//! others work inside a commit now and then: the windows that a mistake opens are nanoseconds wide otherwise.

use crate::dice::{Chance, Dice};
use crate::history::{Level, Op, Transaction, Value, violations};
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::{Cts, RowId};
#[cfg(feature = "planted")]
use freshet_engine::planted;
use freshet_engine::planted::Bug;
use freshet_engine::schema::{KeyColumn, Row, Type, Value as Field};
use freshet_engine::txn::{Error, Isolation, Session, Stop};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Lists in use at a time.
const HOT: u64 = 5;
/// Appends to all of them before the next ones are used.
const APPENDS: u64 = 90;
const GROUPS: u64 = 400;
/// A wait that takes so long is a wait for ever.
const FOR_EVER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Stress {
    pub seed: u64,
    pub threads: usize,
    /// It ends after so many transactions of each thread.
    pub transactions: u64,
    pub devices: usize,
    pub bug: Option<Bug>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub committed: usize,
    pub rolled_back: usize,
    /// What may not be, in one line each.
    pub wrong: Vec<String>,
}

/// What the threads share.
struct Shared {
    engine: Engine,
    table: Arc<Table>,
    rows: Vec<RowId>,
    started: Instant,
    appends: AtomicU64,
    values: AtomicU64,
    at_work: AtomicUsize,
}

/// Runs in a directory that is empty.
pub fn run(stress: &Stress, dir: &Path) -> Ran {
    let log_dirs = (0..stress.devices).map(|i| dir.join(format!("log{i}"))).collect();
    let log_size_bytes = (8 << 20) * stress.devices as u64;
    let options = Options {
        log_dirs,
        log_size_bytes,
        direct_io: false,
        stage_limit_bytes: 512 << 10,
        ..Options::small(dir.join("data"))
    };
    let engine = Engine::open(options).expect("an empty directory becomes a database");
    let (table, rows) = create(&engine);
    let shared = Shared {
        engine,
        table,
        rows,
        started: Instant::now(),
        appends: AtomicU64::new(0),
        values: AtomicU64::new(1),
        at_work: AtomicUsize::new(stress.threads),
    };
    let mut wrong = Vec::new();
    let mut history = Vec::new();
    std::thread::scope(|scope| {
        let work = |session| {
            let shared = &shared;
            move || {
                let done = catch_unwind(AssertUnwindSafe(|| Worker::new(shared, stress, session).work(stress)));
                plant(None);
                shared.at_work.fetch_sub(1, Ordering::SeqCst);
                done
            }
        };
        let workers: Vec<_> = (0..stress.threads).map(|session| scope.spawn(work(session))).collect();
        // Checkpoints image what is being written meanwhile.
        while shared.at_work.load(Ordering::SeqCst) > 0 {
            shared.engine.request_checkpoint_within(Duration::ZERO);
            std::thread::sleep(Duration::from_millis(20));
        }
        for worker in workers {
            match worker.join().expect("panics are caught") {
                Ok((transactions, told)) => {
                    history.extend(transactions);
                    wrong.extend(told);
                }
                Err(panic) => wrong.push(format!("a panic: {:?}", panic.downcast_ref::<String>())),
            }
        }
    });
    let last = catch_unwind(AssertUnwindSafe(|| last_lists(&shared)));
    match last {
        Ok(last) => wrong.extend(violations(&history, &last)),
        Err(_) => wrong.push("a panic at the end".into()),
    }
    let committed = history.iter().filter(|t| t.committed).count();
    Ran { committed, rolled_back: history.len() - committed, wrong }
}

fn create(engine: &Engine) -> (Arc<Table>, Vec<RowId>) {
    let column = |name: &str, ty| ColumnDef { name: name.into(), ty, not_null: true, ..ColumnDef::default() };
    let def = TableDef {
        name: "lists".into(),
        columns: vec![column("id", Type::Int8), column("list", Type::Text)],
        ..Default::default()
    };
    let columns = vec![KeyColumn { column: 0, descending: false }];
    let key = IndexDef {
        name: "lists_pkey".into(),
        kind: IndexKind::Hash,
        unique: true,
        primary: true,
        columns,
        ..IndexDef::default()
    };
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::ReadCommitted, false);
    statement(&mut session, |s| s.create_table(def.clone(), vec![key.clone()])).expect("creates");
    commit(&mut session).expect("commits");
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let table = session.schema().table("lists").expect("created").clone();
    let insert = |id: u64| {
        let mut row = Row::new(&table.layout);
        row.set(&table.layout, 0, &Field::Int(id as i64));
        row.set(&table.layout, 1, &Field::Bytes(b""));
        statement(&mut session, |s| s.insert(&table, &mut row)).expect("there is room")
    };
    let rows = (0..HOT * GROUPS).map(insert).collect();
    let cts = commit(&mut session).expect("commits");
    engine.wait_durable(cts).wait().expect("the log works");
    (table, rows)
}

/// One statement to its end, begun anew after each wait.
fn statement<T>(session: &mut Session, mut work: impl FnMut(&mut Session) -> Result<T, Stop>) -> Result<T, Error> {
    loop {
        session.begin_statement();
        session.check_snapshot()?;
        match work(session) {
            Ok(done) => return Ok(done),
            Err(Stop::Wait(mut token)) => assert!(token.block(Some(FOR_EVER)), "a statement waits for ever"),
            Err(Stop::Error(error)) => {
                session.rollback_statement();
                return Err(error);
            }
        }
        session.rollback_statement();
    }
}

fn commit(session: &mut Session) -> Result<Cts, Error> {
    loop {
        match session.commit() {
            Ok(committed) => return Ok(committed.cts),
            Err(Stop::Wait(mut token)) => assert!(token.block(Some(FOR_EVER)), "a commit waits for ever"),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

fn last_lists(shared: &Shared) -> BTreeMap<u64, Vec<Value>> {
    let mut session = shared.engine.connect().expect("a place");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let lists = (0..shared.rows.len() as u64).map(|key| (key, list_at(&mut session, shared, key))).collect();
    session.commit().expect("a read commits");
    lists
}

/// The list that the session's snapshot sees.
fn list_at(session: &mut Session, shared: &Shared, key: u64) -> Vec<Value> {
    let mut row = Row::default();
    let index = &shared.table.indexes[0];
    // Both ways to a row.
    let found = match key % 2 {
        0 => session.read(&shared.table, shared.rows[key as usize], &mut row),
        _ => session.get(&shared.table, index, |_| Field::Int(key as i64), &mut row).is_some(),
    };
    assert!(found, "row {key} is not there");
    list_of(session, shared, &mut row)
}

fn list_of(session: &mut Session, shared: &Shared, row: &mut Row) -> Vec<Value> {
    session.fetch_long(&shared.table, row, 1);
    let Field::Bytes(text) = row.get(&shared.table.layout, 1) else { panic!("a list is a text") };
    let text = std::str::from_utf8(text).expect("digits and blanks");
    text.split_ascii_whitespace().map(|value| value.parse().expect("digits")).collect()
}

struct Worker<'a> {
    shared: &'a Shared,
    session: Session,
    number: usize,
    dice: Dice,
}

impl Worker<'_> {
    fn new<'a>(shared: &'a Shared, stress: &Stress, number: usize) -> Worker<'a> {
        plant(stress.bug);
        let seed = stress.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        take_turns(seed);
        let session = shared.engine.connect().expect("a place");
        Worker { shared, session, number, dice: Dice(seed) }
    }

    fn now(&self) -> u64 {
        self.shared.started.elapsed().as_nanos() as u64
    }

    fn work(&mut self, stress: &Stress) -> (Vec<Transaction>, Vec<String>) {
        let (mut history, mut wrong) = (Vec::new(), Vec::new());
        for _ in 0..stress.transactions {
            match self.transaction() {
                Ok(transaction) => history.push(transaction),
                Err(error) => {
                    wrong.push(error);
                    break;
                }
            }
        }
        (history, wrong)
    }

    fn key(&mut self) -> u64 {
        let group = (self.shared.appends.load(Ordering::Relaxed) / APPENDS).min(GROUPS - 1);
        group * HOT + self.dice.below(HOT)
    }

    /// An error is one that nothing explains.
    fn transaction(&mut self) -> Result<Transaction, String> {
        let level = if self.dice.one_in(3) { Level::ReadCommitted } else { Level::RepeatableRead };
        let began = self.now();
        let mut transaction =
            Transaction { session: self.number, level, committed: false, ops: Vec::new(), began, durable: None };
        if self.dice.one_in(4) {
            // As an autocommit select does.
            self.session.begin_read();
            transaction.level = Level::RepeatableRead;
            transaction.ops.push(self.read());
            self.session.commit().map_err(|stop| format!("a read does not end: {stop:?}"))?;
            transaction.committed = true;
            return Ok(transaction);
        }
        let isolation =
            if level == Level::ReadCommitted { Isolation::ReadCommitted } else { Isolation::RepeatableRead };
        self.session.begin(isolation, false);
        for _ in 0..1 + self.dice.below(4) {
            match self.statement() {
                Ok(op) => transaction.ops.push(op),
                Err(Error::Deadlock(_) | Error::Serialization | Error::SnapshotTooOld) => {
                    self.session.rollback();
                    return Ok(transaction);
                }
                Err(error) => return Err(format!("a statement fails: {error}")),
            }
            if self.dice.one_in(2) {
                self.session.rest();
            }
        }
        if self.dice.one_in(10) {
            self.session.rollback();
            return Ok(transaction);
        }
        let cts = commit(&mut self.session).map_err(|error| format!("a commit fails: {error}"))?;
        transaction.committed = true;
        // Who only read knows no more than that what it showed is durable.
        let appended = transaction.ops.iter().any(|op| matches!(op, Op::Append { .. }));
        if appended && self.dice.one_in(4) {
            self.shared.engine.wait_durable(cts).wait().map_err(|error| error.to_string())?;
            transaction.durable = Some(self.now());
        }
        Ok(transaction)
    }

    fn read(&mut self) -> Op {
        let mut keys: Vec<u64> = (0..1 + self.dice.below(3)).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        Op::Read(keys.into_iter().map(|key| (key, list_at(&mut self.session, self.shared, key))).collect())
    }

    fn statement(&mut self) -> Result<Op, Error> {
        let appended = self.dice.one_in(2).then(|| (self.key(), self.shared.values.fetch_add(1, Ordering::Relaxed)));
        let Some((key, value)) = appended else {
            self.session.begin_statement();
            self.session.check_snapshot()?;
            return Ok(self.read());
        };
        let shared = self.shared;
        let before = statement(&mut self.session, |session| append(session, shared, key, value))?;
        shared.appends.fetch_add(1, Ordering::Relaxed);
        Ok(Op::Append { key, before, value })
    }
}

/// Gives the list as it was.
fn append(session: &mut Session, shared: &Shared, key: u64, value: Value) -> Result<Vec<Value>, Stop> {
    let (table, id) = (&shared.table, shared.rows[key as usize]);
    let mut old = Row::default();
    session.lock(table, id, &mut old)?;
    let before = list_of(session, shared, &mut old.clone());
    let text: Vec<String> = before.iter().chain([&value]).map(Value::to_string).collect();
    let mut new = old.clone();
    new.set(&table.layout, 1, &Field::Bytes(text.join(" ").as_bytes()));
    session.update(table, id, &old, &mut new)?;
    Ok(before)
}

#[cfg(feature = "planted")]
fn plant(bug: Option<Bug>) {
    planted::plant(bug);
    if bug.is_none() {
        planted::on_turn(None);
    }
}

#[cfg(not(feature = "planted"))]
fn plant(_: Option<Bug>) {}

/// Inside a commit others work now and then.
#[cfg(feature = "planted")]
fn take_turns(seed: u64) {
    let mut dice = Dice(seed);
    planted::on_turn(Some(Box::new(move |_| {
        if dice.one_in(40) {
            std::thread::sleep(Duration::from_micros(dice.below(300)));
        }
    })));
}

#[cfg(not(feature = "planted"))]
fn take_turns(_: u64) {}
