//! Is what SERIALIZABLE and REPEATABLE READ let through what they promise? Histories of real threads, and cycles in them (`cycles.rs`).
//!
//! The seeds are the same each time; `FRESHET_TEST_SEED` begins elsewhere, `FRESHET_TEST_SCALE` takes more of them (`scripts/verify`). A seed
//! repeats what the transactions do, not how the threads meet. With a weakness planted (feature `planted`) the check finds what it must, in both
//! models and at both levels. Sessions that speak SQL have the like in `crates/db/tests/sessions/histories.rs`.

use crate::cycles::{Committed, History, Model, Write, seeds};
use crate::model::Dice;
use crate::world::{column, index};
use freshet_engine::catalog::{IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{KeyBuf, KeyPart, Row, Type, Value};
use freshet_engine::txn::{Direction, Error, Isolation, Session, Stop, TableCursor};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 6;

/// What one transaction does.
struct Plan {
    steps: Vec<(u64, bool)>,
    by_range: bool,
}

fn values_of(table: &Table, row: &Row) -> Vec<u64> {
    let Value::Bytes(bytes) = row.get(&table.layout, 1) else { panic!("a note is set") };
    bytes.chunks(8).map(|v| u64::from_le_bytes(v.try_into().expect("eight bytes"))).collect()
}

/// The row of a key, by one of the ways in which rows are found.
fn find(s: &mut Session, table: &Arc<Table>, key: u64, by: u64, row: &mut Row) -> Option<freshet_engine::ids::RowId> {
    let (key, index) = (Value::Int(key as i64), &table.indexes[0]);
    let found = match by {
        0 => {
            let (mut lower, mut upper) = (KeyBuf::default(), KeyBuf::default());
            index.spec.encode(&mut lower, |_| KeyPart::Value(key));
            index.spec.encode(&mut upper, |_| KeyPart::Value(key));
            index.spec.pad_high(&mut upper);
            let mut cursor = s.range(index, &lower, &upper, Direction::Forward);
            s.range_next(table, index, &mut cursor, row)
        }
        1 => {
            let mut cursor = TableCursor::default();
            loop {
                match s.scan_next(table, &mut cursor, row) {
                    Some(id) if row.get(&table.layout, 0) == key => break Some(id),
                    Some(_) => {}
                    None => break None,
                }
            }
        }
        _ => s.get(table, index, |_| key, row),
    };
    if found.is_some() {
        s.fetch_long(table, row, 1);
    }
    found
}

fn attempt(
    s: &mut Session,
    table: &Arc<Table>,
    plan: &Plan,
    model: Model,
    next: &AtomicU64,
    done: &mut Committed,
) -> Result<(), Stop> {
    let mut row = Row::default();
    (done.reads, done.writes) = (Vec::new(), Vec::new());
    for (at, &(key, writes)) in plan.steps.iter().enumerate() {
        std::thread::yield_now();
        let by = if plan.by_range { at as u64 % 3 } else { 2 };
        let found = find(s, table, key, by, &mut row);
        let values = found.map_or_else(Vec::new, |_| values_of(table, &row));
        if !done.writes.iter().any(|w| w.key == key) {
            done.reads.push((key, values.clone()));
        } else if model == Model::Registers {
            continue;
        }
        if !writes {
            continue;
        }
        let value = next.fetch_add(1, Ordering::Relaxed);
        let mut values = if model == Model::Lists { values } else { Vec::new() };
        values.push(value);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        match found {
            Some(id) => {
                let mut old = Row::default();
                s.lock(table, id, &mut old)?;
                let mut new = old.clone();
                new.set(&table.layout, 1, &Value::Bytes(&bytes));
                s.update(table, id, &old, &mut new)?;
            }
            None => {
                let mut new = Row::new(&table.layout);
                new.set(&table.layout, 0, &Value::Int(key as i64));
                new.set(&table.layout, 1, &Value::Bytes(&bytes));
                s.insert(table, &mut new)?;
            }
        }
        done.writes.push(Write { key, value, order: 0 });
    }
    Ok(())
}

/// One transaction to its end: whether it committed.
fn transact(
    s: &mut Session,
    isolation: Isolation,
    mut run: impl FnMut(&mut Session) -> Result<(), Stop>,
) -> Option<Cts> {
    s.begin(isolation, false);
    loop {
        s.begin_statement();
        match run(s) {
            Ok(()) => break,
            Err(Stop::Wait(mut token)) => {
                assert!(token.block(Some(Duration::from_secs(60))), "a wait for ever");
                s.rollback_statement();
            }
            Err(Stop::Error(error)) => {
                let expected = matches!(
                    error,
                    Error::Serialization | Error::ReadChanged | Error::Deadlock(_) | Error::UniqueViolation { .. }
                );
                assert!(expected, "{error:?}");
                s.rollback();
                return None;
            }
        }
    }
    std::thread::yield_now();
    loop {
        match s.commit() {
            Ok(committed) => return Some(committed.cts),
            Err(Stop::Wait(mut token)) => assert!(token.block(Some(Duration::from_secs(60))), "a wait for ever"),
            Err(Stop::Error(Error::ReadChanged)) => return None,
            Err(Stop::Error(error)) => panic!("{error:?}"),
        }
    }
}

fn run(model: Model, isolation: Isolation, seed: u64, per_thread: usize, prepare: fn()) -> History {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { direct_io: false, ..Options::small(dir.path().join("data")) };
    let engine = Engine::open(options).expect("opens");
    let mut session = engine.connect().expect("a place");
    let columns = vec![column("id", Type::Int8), column("note", Type::Bytea)];
    let def = TableDef { name: "t".into(), columns, ..Default::default() };
    transact(&mut session, Isolation::ReadCommitted, |s| {
        s.create_table(def.clone(), vec![index("t_pkey", 0, IndexKind::BTree, true)])
    })
    .expect("creates");
    let next = AtomicU64::new(1);
    let work = &|thread: u64| {
        prepare();
        let mut s = engine.connect().expect("a place");
        let mut dice = Dice(seed * 100 + thread);
        let (mut committed, mut aborted) = (Vec::new(), 0);
        for n in 0..per_thread {
            let steps = (0..2 + dice.below(3)).map(|_| (dice.below(KEYS), dice.below(2) == 0)).collect();
            let plan = Plan { steps, by_range: dice.below(2) == 0 };
            let id = thread as usize * per_thread + n;
            let mut done = Committed { id, reads: Vec::new(), writes: Vec::new() };
            let table = engine.schema().table("t").expect("created").clone();
            match transact(&mut s, isolation, |s| attempt(s, &table, &plan, model, &next, &mut done)) {
                Some(cts) => {
                    done.writes.iter_mut().for_each(|write| write.order = cts.0);
                    committed.push(done);
                }
                None => aborted += 1,
            }
        }
        (committed, aborted)
    };
    let (mut committed, mut aborted) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            let (some, failed) = thread.join().expect("no thread panics");
            committed.extend(some);
            aborted += failed;
        }
    });
    let mut last = BTreeMap::new();
    let table = engine.schema().table("t").expect("created").clone();
    transact(&mut session, Isolation::RepeatableRead, |s| {
        for key in 0..KEYS {
            let mut row = Row::default();
            let found = find(s, &table, key, 2, &mut row);
            last.insert(key, found.map_or_else(Vec::new, |_| values_of(&table, &row)));
        }
        Ok(())
    });
    History::new(model, committed, aborted, &last)
}

#[test]
fn histories_are_as_their_level_promises() {
    for seed in seeds() {
        for model in [Model::Lists, Model::Registers] {
            for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
                let history = run(model, isolation, seed, 150, || ());
                assert_eq!(
                    history.violation(isolation == Isolation::Serializable),
                    None,
                    "seed {seed}: {model:?} {isolation:?}"
                );
                assert!(history.committed.len() > 20 && history.aborted > 0, "there was something to see");
            }
        }
    }
}

/// What REPEATABLE READ lets through is found when SERIALIZABLE is looked for: the check can fail.
#[test]
fn write_skew_is_found_in_histories_that_have_it() {
    for model in [Model::Lists, Model::Registers] {
        let found = (1..20).any(|seed| {
            let history = run(model, Isolation::RepeatableRead, seed, 150, || ());
            history.violation(true).is_some()
        });
        assert!(found, "{model:?}");
    }
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use crate::world::{World, begin, commit_insert, create, get, set_n};
    use freshet_engine::planted::{Bug, Point, on_turn, plant};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn weaknesses_of_each_level_are_found_in_each_model() {
        for (bug, isolation, prepare) in [
            (Bug::SkipValidation, Isolation::Serializable, (|| plant(Some(Bug::SkipValidation))) as fn()),
            (Bug::ForgetRanges, Isolation::Serializable, || plant(Some(Bug::ForgetRanges))),
            (Bug::SkipConflict, Isolation::RepeatableRead, || plant(Some(Bug::SkipConflict))),
        ] {
            for model in [Model::Lists, Model::Registers] {
                let found = (1..20).find_map(|seed| {
                    let history = run(model, isolation, seed, 150, prepare);
                    Some((seed, history.violation(isolation == Isolation::Serializable)?))
                });
                let (seed, what) = found.unwrap_or_else(|| panic!("{bug:?} is not found in {model:?}"));
                eprintln!("{bug:?} is found in {model:?} by seed {seed}: {what}");
            }
        }
    }

    /// Two write askew; the second commits while the first has drawn its timestamp and installed nothing.
    fn second_commits_inside_the_first(bug: Option<Bug>) -> bool {
        let world = World::new();
        let (mut a, mut b) = (world.session(), world.session());
        create(&mut a, IndexKind::Hash);
        let (x, y) = (commit_insert(&mut a, 1, 10, "x"), commit_insert(&mut a, 2, 20, "y"));
        while world.engine.step() {}
        begin(&mut a, Isolation::Serializable);
        begin(&mut b, Isolation::Serializable);
        for session in [&mut a, &mut b] {
            assert!(get(session, 1).is_some() && get(session, 2).is_some());
        }
        set_n(&mut a, x, 11).expect("updates");
        set_n(&mut b, y, 21).expect("updates");
        plant(bug);
        let (second, outcome) = (Rc::new(RefCell::new(Some(b))), Rc::new(RefCell::new(None)));
        let told = outcome.clone();
        on_turn(Some(Box::new(move |point| {
            if let (Point::Drawn, Some(mut b)) = (point, second.borrow_mut().take()) {
                *told.borrow_mut() = Some((*b).commit().is_ok());
            }
        })));
        let first = a.commit().is_ok();
        on_turn(None);
        plant(None);
        assert!(first, "nothing had changed that it read");
        let second = outcome.borrow_mut().take();
        second.expect("the second had its turn")
    }

    #[test]
    fn a_smaller_timestamp_that_is_not_installed_counts() {
        assert!(!second_commits_inside_the_first(None));
        assert!(second_commits_inside_the_first(Some(Bug::SkipSmallerCts)));
    }
}
