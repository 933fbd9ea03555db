//! Do single statements that take the short ways fit in? Histories of threads that change, insert, delete and read single rows in one go, beside
//! whole transactions, and whether each could have run at one moment.
//!
//! Each key is a register that may be empty; each write is of a value of its own and has its commit timestamp, so the order of versions is known. A
//! moment is a timestamp: a write's is its commit's, a read's is any at which all that it saw together was current.
//!
//! | known | so |
//! |---|---|
//! | what a write found | it is the version before it: no write is lost |
//! | what a read found | its moment lies where all of that was current: a snapshot, nothing that nobody committed |
//! | A was answered (what it wrote or showed is durable) before B began | B's moment is not before what A wrote or showed |
//! | A returned before the write B began | A's moment is before B's |
//! | A and then B in one session | A's moment is not after B's |
//!
//! What a session wrote and has not waited for is no part of what its reads show: others may be behind it still.
//!
//! For registers whose order of versions is known that is linearizability, across keys too (Gibbons & Korach 1997): taking each read's earliest possible
//! moment, in the order in which they began, finds an order if there is one. With a weakness planted the same check finds that there is none.

use crate::model::Dice;
use crate::world::{column, index};
use freshet_engine::catalog::{IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{
    Change, Error, Insertion, IntegerLookup, Isolation, Lookup, Session, Stop, Strength, TableCursor,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 5;
const THREADS: usize = 4;
/// They take turns on a thread, as connections do.
const SESSIONS_EACH: usize = 3;
const FOR_EVER: Duration = Duration::from_secs(60);
/// Of 32 kinds of turns, as likely as they stand in `Worker::turn`, these first are writes in one go.
const EVERY_KIND: u64 = 32;
const SHORT_KINDS: u64 = 19;
/// Writes in one go that a thread makes at least.
const SHORT_EACH: usize = 50;

/// What a write found in place of what it wrote.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Found {
    Nothing,
    Value(i64),
    /// A row, of which nothing was looked at.
    Something,
}

impl Found {
    fn is(self, before: Option<i64>) -> bool {
        match self {
            Found::Nothing => before.is_none(),
            Found::Value(value) => before == Some(value),
            Found::Something => before.is_some(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    key: u64,
    found: Found,
    /// Nothing: the row was deleted.
    value: Option<i64>,
}

#[derive(Clone, Debug)]
enum What {
    /// At one moment.
    Read(Vec<(u64, Option<i64>)>),
    Wrote(Cts, Vec<Write>),
}

/// An operation that took effect, by one clock.
#[derive(Clone, Debug)]
struct Done {
    session: usize,
    began: u64,
    returned: u64,
    /// When what it wrote or showed was known to be durable, if anybody waited for that.
    answered: Option<u64>,
    what: What,
}

#[derive(Default)]
struct History {
    done: Vec<Done>,
    /// Writes in one go.
    short: usize,
    last: BTreeMap<u64, i64>,
}

// ---- the check

/// Of each key its versions in order, each with what it replaced; the first is of before all.
type Versions = BTreeMap<u64, Vec<(Cts, Option<i64>)>>;

/// What could not have happened, if anything.
fn violation(history: &History) -> Option<String> {
    let mut writes: BTreeMap<u64, BTreeMap<Cts, Write>> = BTreeMap::new();
    for done in &history.done {
        let What::Wrote(cts, of_it) = &done.what else { continue };
        for write in of_it {
            if let Some(other) = writes.entry(write.key).or_default().insert(*cts, *write) {
                return Some(format!("{write:?} and {other:?} have one timestamp"));
            }
        }
    }
    let mut versions = Versions::new();
    for key in 0..KEYS {
        let of_key = versions.entry(key).or_insert(vec![(Cts::ZERO, None)]);
        for (cts, write) in writes.get(&key).into_iter().flatten() {
            let (_, before) = *of_key.last().expect("it has a first");
            if !write.found.is(before) {
                return Some(format!("{write:?} at {cts:?} replaced {before:?}"));
            }
            of_key.push((*cts, write.value));
        }
        let (_, last) = *of_key.last().expect("it has a first");
        if last != history.last.get(&key).copied() {
            return Some(format!("{key} ends with {:?}, the last write was of {last:?}", history.last.get(&key)));
        }
    }
    no_order(&history.done, &versions)
}

/// The moments of what has ended by a time, which only grows: the latest of them.
#[derive(Default)]
struct Passed {
    coming: BinaryHeap<Reverse<(u64, Cts)>>,
    latest: Cts,
}

impl Passed {
    fn before(&mut self, time: u64) -> Cts {
        while let Some(Reverse((_, moment))) = self.coming.peek().filter(|Reverse((ended, _))| *ended < time) {
            self.latest = self.latest.max(*moment);
            self.coming.pop();
        }
        self.latest
    }
}

fn no_order(done: &[Done], versions: &Versions) -> Option<String> {
    let mut in_order: Vec<&Done> = done.iter().collect();
    in_order.sort_by_key(|done| done.began);
    // From each write on, the earliest that began then or later.
    let mut later: Vec<(u64, Cts)> = Vec::new();
    for done in in_order.iter().rev() {
        if let What::Wrote(cts, _) = done.what {
            let before = later.last().map_or(cts, |(_, earliest)| cts.min(*earliest));
            later.push((done.began, before));
        }
    }
    later.reverse();
    let (mut answered, mut returned) = (Passed::default(), Passed::default());
    let mut of_session: BTreeMap<usize, Cts> = BTreeMap::new();
    for done in in_order {
        let own = of_session.entry(done.session).or_default();
        let known = answered.before(done.began);
        let least = known.max(*own);
        let (moment, told) = match &done.what {
            What::Wrote(cts, _) => {
                let after = returned.before(done.began).max(least);
                if *cts <= after {
                    return Some(format!("{done:?} is not after {after:?}, which it was begun after"));
                }
                (*cts, *cts)
            }
            What::Read(seen) => {
                let Some(moment) = earliest(seen, versions, least) else {
                    return Some(format!("{done:?} is of no moment from {least:?} on"));
                };
                let at = later.partition_point(|(began, _)| *began <= done.returned);
                if later.get(at).is_some_and(|(_, cts)| *cts <= moment) {
                    return Some(format!("{done:?} saw what was begun later"));
                }
                (moment, earliest(seen, versions, known).expect("there is a later one"))
            }
        };
        *own = moment;
        returned.coming.push(Reverse((done.returned, moment)));
        answered.coming.extend(done.answered.map(|answered| Reverse((answered, told))));
    }
    None
}

/// The first moment from `least` on at which all of it was current.
fn earliest(seen: &[(u64, Option<i64>)], versions: &Versions, least: Cts) -> Option<Cts> {
    let mut moment = least;
    loop {
        let before = moment;
        for (key, value) in seen {
            let of_key = &versions[key];
            let current = of_key.partition_point(|(cts, _)| *cts <= moment) - 1;
            if of_key[current].1 != *value {
                moment = of_key[current..].iter().find(|(_, other)| other == value)?.0;
            }
        }
        if moment == before {
            return Some(moment);
        }
    }
}

// ---- the workload

struct Ways {
    table: Arc<Table>,
    change: Change,
    deletion: Change,
    insertion: Insertion,
    integer: IntegerLookup,
    lookup: Lookup,
}

impl Ways {
    fn new(engine: &Engine) -> Ways {
        let table = engine.schema().table("t").expect("created").clone();
        let by_id = &table.indexes[0];
        Ways {
            change: Change::new(&table, by_id, &[1], &[1]).expect("the key is an integer, the column in no index"),
            deletion: Change::deletion(&table, by_id).expect("the key is an integer"),
            insertion: Insertion::new(&table),
            integer: IntegerLookup::new(&table, by_id, 1).expect("integers both"),
            lookup: Lookup::new(&table, by_id, [1]),
            table,
        }
    }

    fn number(&self, row: &Row) -> i64 {
        match row.get(&self.table.layout, 1) {
            Value::Int(n) => n,
            other => panic!("a number, not {other:?}"),
        }
    }

    fn set(&self, row: &mut Row, key: u64, value: i64) {
        row.set(&self.table.layout, 0, &Value::Int(key as i64));
        row.set(&self.table.layout, 1, &Value::Int(value));
    }
}

/// One transaction to its end; `None` if it was refused as its level allows.
fn transact(
    s: &mut Session,
    isolation: Isolation,
    mut run: impl FnMut(&mut Session) -> Result<Vec<Write>, Stop>,
) -> Option<(Cts, Vec<Write>)> {
    s.begin(isolation, false);
    let writes = loop {
        s.begin_statement();
        match run(s) {
            Ok(writes) => break writes,
            Err(Stop::Wait(mut token)) => {
                assert!(token.block(Some(FOR_EVER)), "a wait for ever");
                s.rollback_statement();
            }
            Err(Stop::Error(error)) => {
                let expected =
                    matches!(error, Error::Serialization | Error::Deadlock(_) | Error::UniqueViolation { .. });
                assert!(expected, "{error:?}");
                s.rollback();
                return None;
            }
        }
    };
    loop {
        match s.commit() {
            Ok(committed) => return Some((committed.cts, writes)),
            Err(Stop::Wait(mut token)) => assert!(token.block(Some(FOR_EVER)), "a wait for ever"),
            Err(Stop::Error(error)) => panic!("{error:?}"),
        }
    }
}

struct Worker<'a> {
    engine: &'a Engine,
    ways: Ways,
    sessions: Vec<Session>,
    first: usize,
    dice: Dice,
    started: Instant,
    values: &'a AtomicI64,
    done: Vec<Done>,
    short: usize,
}

impl Worker<'_> {
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn key(&mut self) -> u64 {
        self.dice.below(KEYS)
    }

    fn value(&self) -> i64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    /// One operation of one of the sessions; whether it took effect.
    fn turn(&mut self, kinds: u64) -> bool {
        let at = self.dice.below(SESSIONS_EACH as u64) as usize;
        let began = self.now();
        let (shown, what) = match self.dice.below(kinds) {
            0..=12 => self.change(at),
            13..=16 => self.insert(at),
            17..=18 => self.delete(at),
            19..=21 => self.read_integer(at),
            22..=25 => self.look_up(at),
            26..=27 => self.look_up_many(at),
            28..=29 => self.snapshot(at),
            30 => self.move_between(at, Isolation::ReadCommitted),
            _ => self.move_between(at, Isolation::RepeatableRead),
        }
        .unzip();
        let (Some(shown), Some(what)) = (shown, what) else { return false };
        let returned = self.now();
        // Sessions that share a thread go on meanwhile: few wait.
        let is_read = matches!(what, What::Read(_));
        let waits = shown > Cts::ZERO && self.dice.one_in(if is_read { 2 } else { 6 });
        if waits {
            self.engine.wait_durable(shown).wait().expect("the log works");
        }
        let answered = (waits || shown == Cts::ZERO).then(|| self.now());
        self.done.push(Done { session: self.first + at, began, returned, answered, what });
        true
    }

    /// The turns, and then writes alone until there were as many in one go as the history needs. A number of turns promises none: while a row goes
    /// from one that waited to the next, it is never free, and who does not wait is through with thousands of turns.
    fn work(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn(EVERY_KIND);
        }
        let late = Instant::now() + FOR_EVER;
        while self.short < SHORT_EACH && Instant::now() < late {
            if !self.turn(SHORT_KINDS) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn change(&mut self, at: usize) -> Option<(Cts, What)> {
        let (key, value) = (self.key(), self.value());
        let Worker { ways, sessions, .. } = self;
        let mut found = Found::Nothing;
        let done = sessions[at].change_once(&ways.change, key as i64, |old, new| {
            found = Found::Value(ways.number(old));
            new.set(&ways.table.layout, 1, &Value::Int(value));
            true
        });
        let Some(committed) = done else {
            // Not there, or another has it.
            return self.dice.one_in(12).then(|| self.write_longer(at, &[key], Isolation::ReadCommitted))?;
        };
        self.short += 1;
        Some((committed.cts, What::Wrote(committed.cts, vec![Write { key, found, value: Some(value) }])))
    }

    fn insert(&mut self, at: usize) -> Option<(Cts, What)> {
        let (key, value) = (self.key(), self.value());
        let Worker { ways, sessions, .. } = self;
        let (_, committed) = sessions[at].insert_once(&ways.insertion, |row| {
            ways.set(row, key, value);
            true
        })?;
        self.short += 1;
        let write = Write { key, found: Found::Nothing, value: Some(value) };
        Some((committed.cts, What::Wrote(committed.cts, vec![write])))
    }

    fn delete(&mut self, at: usize) -> Option<(Cts, What)> {
        let key = self.key();
        let committed = self.sessions[at].delete_once(&self.ways.deletion, key as i64)?;
        self.short += 1;
        let write = Write { key, found: Found::Something, value: None };
        Some((committed.cts, What::Wrote(committed.cts, vec![write])))
    }

    fn read_integer(&mut self, at: usize) -> Option<(Cts, What)> {
        let key = self.key();
        let (found, shown) = self.sessions[at].read_integer(&self.ways.integer, key as i64).expect("a read ends");
        let value = found.map(|value| value.expect("it is not null"));
        Some((shown, What::Read(vec![(key, value)])))
    }

    fn look_up(&mut self, at: usize) -> Option<(Cts, What)> {
        let key = self.key();
        let (session, mut row) = (&mut self.sessions[at], Row::default());
        if session.look_up_newest(&self.ways.lookup, key as i64, &mut row).is_some() {
            return Some((Cts::ZERO, What::Read(vec![(key, Some(self.ways.number(&row)))])));
        }
        session.begin_read();
        let found = session.look_up_integer(&self.ways.lookup, key as i64, &mut row);
        let shown = session.commit().expect("a read ends").cts;
        Some((shown, What::Read(vec![(key, found.map(|_| self.ways.number(&row)))])))
    }

    fn look_up_many(&mut self, at: usize) -> Option<(Cts, What)> {
        let keys: Vec<u64> = (0..KEYS).collect();
        let (session, ways, mut row) = (&mut self.sessions[at], &self.ways, Row::default());
        let mut seen: Vec<(u64, Option<i64>)> = keys.iter().map(|key| (*key, None)).collect();
        session.begin_read();
        let key = |i: usize, _| Value::Int(keys[i] as i64);
        session.look_up_many(&ways.lookup, keys.len(), key, &mut row, |i, _, row| seen[i].1 = Some(ways.number(row)));
        let shown = session.commit().expect("a read ends").cts;
        Some((shown, What::Read(seen)))
    }

    /// Key by key, others coming in between.
    fn snapshot(&mut self, at: usize) -> Option<(Cts, What)> {
        let (session, ways) = (&mut self.sessions[at], &self.ways);
        let mut seen = Vec::new();
        session.begin(Isolation::RepeatableRead, true);
        for key in 0..KEYS {
            session.begin_statement();
            std::thread::yield_now();
            let found = session.find_integer(&ways.integer, key as i64);
            seen.push((key, found.map(|value| value.expect("it is not null"))));
        }
        let shown = session.commit().expect("a read ends").cts;
        Some((shown, What::Read(seen)))
    }

    fn move_between(&mut self, at: usize, isolation: Isolation) -> Option<(Cts, What)> {
        let mut keys = [self.key(), self.key()];
        keys.sort_unstable();
        let keys = if keys[0] == keys[1] { &keys[..1] } else { &keys[..] };
        self.write_longer(at, keys, isolation)
    }

    /// Writes the keys in one transaction of as many statements as they are; a row that is not there is inserted.
    fn write_longer(&mut self, at: usize, keys: &[u64], isolation: Isolation) -> Option<(Cts, What)> {
        let values: Vec<i64> = keys.iter().map(|_| self.value()).collect();
        let Worker { ways, sessions, .. } = self;
        let table = &ways.table;
        let (cts, writes) = transact(&mut sessions[at], isolation, |s| {
            let mut writes = Vec::new();
            for (&key, &value) in keys.iter().zip(&values) {
                let (id, mut old) = (Value::Int(key as i64), Row::default());
                let found = match isolation {
                    Isolation::ReadCommitted => {
                        s.lock_by_key(table, &table.indexes[0], |_| id, Strength::NoKeyUpdate, &mut old)?
                    }
                    _ => s.get(table, &table.indexes[0], |_| id, &mut old),
                };
                let before = match found {
                    Some(row) => {
                        if isolation != Isolation::ReadCommitted {
                            s.lock(table, row, &mut old)?;
                        }
                        let mut new = old.clone();
                        new.set(&table.layout, 1, &Value::Int(value));
                        s.update(table, row, &old, &mut new)?;
                        Found::Value(ways.number(&old))
                    }
                    None => {
                        let mut new = Row::new(&table.layout);
                        ways.set(&mut new, key, value);
                        s.insert(table, &mut new)?;
                        Found::Nothing
                    }
                };
                writes.push(Write { key, found: before, value: Some(value) });
                std::thread::yield_now();
            }
            Ok(writes)
        })?;
        Some((cts, What::Wrote(cts, writes)))
    }
}

fn run(kind: IndexKind, seed: u64, turns: usize, prepare: fn(u64)) -> History {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { direct_io: false, ..Options::small(dir.path().join("data")) };
    let engine = Engine::open(options).expect("opens");
    let columns = vec![column("id", Type::Int8), column("n", Type::Int8)];
    let def = TableDef { name: "t".into(), columns, ..Default::default() };
    let created = transact(&mut engine.connect().expect("a place"), Isolation::ReadCommitted, |s| {
        s.create_table(def.clone(), vec![index("t_pkey", 0, kind, true)]).map(|()| Vec::new())
    });
    created.expect("creates");
    let (started, values) = (Instant::now(), AtomicI64::new(1));
    let work = |thread: usize| {
        let dice = Dice(seed * 1_000 + thread as u64);
        prepare(dice.0);
        let sessions = (0..SESSIONS_EACH).map(|_| engine.connect().expect("a place")).collect();
        let (first, ways) = (thread * SESSIONS_EACH, Ways::new(&engine));
        let mut worker =
            Worker { engine: &engine, ways, sessions, first, dice, started, values: &values, done: vec![], short: 0 };
        worker.work(turns);
        (worker.done, worker.short)
    };
    let mut history = History::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            let (done, short) = thread.join().expect("no thread panics");
            history.done.extend(done);
            history.short += short;
        }
    });
    history.last = last(&engine);
    history
}

fn last(engine: &Engine) -> BTreeMap<u64, i64> {
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = engine.schema().table("t").expect("created").clone();
    let (mut cursor, mut row, mut last) = (TableCursor::default(), Row::default(), BTreeMap::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        let [Value::Int(id), Value::Int(n)] = [0, 1].map(|at| row.get(&table.layout, at)) else { panic!("numbers") };
        assert!(last.insert(id as u64, n).is_none(), "{id} twice");
    }
    last
}

#[test]
fn single_statements_beside_transactions_could_have_run_one_at_a_time() {
    for (seed, kind) in (1..).zip([IndexKind::Hash, IndexKind::BTree]) {
        let history = run(kind, seed, 4_000, |_| ());
        assert_eq!(violation(&history), None, "{kind:?}");
        let writes = history.done.iter().filter(|done| matches!(done.what, What::Wrote(..))).count();
        let counted = [history.done.len() - writes, history.short, writes - history.short];
        assert!(
            counted.iter().all(|count| *count >= THREADS * SHORT_EACH),
            "reads, writes in one go, transactions: {counted:?}"
        );
    }
}

// ---- the check can fail

/// A write of key 0 and a read of it, each by a session of its own.
fn wrote(session: usize, [began, returned]: [u64; 2], cts: u64, found: Found, value: Option<i64>) -> Done {
    let what = What::Wrote(Cts(cts), vec![Write { key: 0, found, value }]);
    Done { session, began, returned, answered: Some(returned), what }
}

fn read(session: usize, [began, returned]: [u64; 2], seen: &[(u64, Option<i64>)]) -> Done {
    Done { session, began, returned, answered: Some(returned), what: What::Read(seen.to_vec()) }
}

fn violates(done: Vec<Done>, last: Option<i64>) -> bool {
    let last = last.into_iter().map(|value| (0, value)).collect();
    violation(&History { done, short: 0, last }).is_some()
}

#[test]
fn what_could_not_have_happened_is_seen() {
    let first = || wrote(0, [1, 2], 10, Found::Nothing, Some(7));
    let second = |found| wrote(1, [3, 4], 20, found, Some(8));
    assert!(!violates(vec![first(), second(Found::Value(7))], Some(8)));
    assert!(violates(vec![first(), second(Found::Nothing)], Some(8)), "a write is lost");
    assert!(violates(vec![first(), second(Found::Value(7))], Some(7)), "the last one is lost");
    let with = |read: Done| violates(vec![first(), second(Found::Value(7)), read], Some(8));
    assert!(!with(read(2, [5, 6], &[(0, Some(8))])));
    assert!(!with(read(2, [2, 6], &[(0, None)])), "it was begun before the first was answered");
    assert!(with(read(2, [5, 6], &[(0, Some(7))])), "the answer was that it is 8");
    assert!(with(read(2, [1, 2], &[(0, Some(8))])), "it was over before that was begun");
    assert!(with(read(2, [2, 6], &[(0, Some(9))])), "nobody wrote that");
    assert!(with(read(0, [2, 3], &[(0, None)])), "a session sees what it wrote");
    let other = |seen| {
        let both = What::Wrote(
            Cts(10),
            vec![
                Write { key: 0, found: Found::Nothing, value: Some(1) },
                Write { key: 1, found: Found::Nothing, value: Some(2) },
            ],
        );
        let done = vec![
            Done { session: 0, began: 1, returned: 9, answered: None, what: both },
            read(1, [2, 8], &[(0, Some(1)), (1, seen)]),
        ];
        violation(&History { done, short: 0, last: BTreeMap::from([(0, 1), (1, 2)]) }).is_some()
    };
    assert!(!other(Some(2)));
    assert!(other(None), "half of a transaction");
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use freshet_engine::planted::{Bug, Point, on_turn, plant};

    /// Others work between a copy and its latch now and then: what lies between is a hundred nanoseconds otherwise.
    fn take_turns(seed: u64) {
        let mut dice = Dice(seed);
        on_turn(Some(Box::new(move |point| {
            if point == Point::Copied && dice.one_in(20) {
                std::thread::sleep(Duration::from_micros(dice.below(200)));
            }
        })));
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        assert_eq!(violation(&run(IndexKind::Hash, 3, 2_000, take_turns)), None);
    }

    #[test]
    fn weaknesses_of_the_short_ways_are_found() {
        let bugs: [(Bug, fn(u64)); 2] = [
            (Bug::LatchChanged, |seed| {
                plant(Some(Bug::LatchChanged));
                take_turns(seed);
            }),
            (Bug::ReadAhead, |_| plant(Some(Bug::ReadAhead))),
        ];
        for (bug, prepare) in bugs {
            let found = (1..20).find_map(|seed| violation(&run(IndexKind::Hash, seed, 1_000, prepare)));
            assert!(found.is_some(), "{}", bug.name());
        }
    }
}
