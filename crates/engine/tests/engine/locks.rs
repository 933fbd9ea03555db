//! Who may hold what beside whom: rows in four strengths, tables in eight modes, keys of the application, and one graph of waits.

use crate::world::*;
use freshet_engine::catalog::{IndexKind, Table};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{AdvisoryKey, Error, Isolation, KeyTaken, LockMode, Locked, Stop, Strength, Thing};
use std::sync::Arc;

const STRENGTHS: [Strength; 4] = [Strength::KeyShare, Strength::Share, Strength::NoKeyUpdate, Strength::Update];
const MODES: [LockMode; 8] = [
    LockMode::AccessShare,
    LockMode::RowShare,
    LockMode::RowExclusive,
    LockMode::ShareUpdateExclusive,
    LockMode::Share,
    LockMode::ShareRowExclusive,
    LockMode::Exclusive,
    LockMode::AccessExclusive,
];

fn lock(session: &mut Session, at: RowId, strength: Strength) -> Result<Locked, Stop> {
    let table = table(session);
    session.lock_as(&table, at, strength, &mut Row::default())
}

fn is_wait<T>(result: &Result<T, Stop>) -> bool {
    matches!(result, Err(Stop::Wait(_)))
}

fn is_refused<T>(result: &Result<T, Stop>) -> bool {
    matches!(result, Err(Stop::Error(Error::LockNotAvailable)))
}

/// Begins the statement that has waited again.
fn again(session: &mut Session) {
    session.rollback_statement();
    session.begin_statement();
}

#[test]
fn rows_are_shared_as_their_strengths_say() {
    // As in PostgreSQL's table of conflicting row-level locks.
    let conflicts =
        [[false, false, false, true], [false, false, true, true], [false, true, true, true], [true, true, true, true]];
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    for (held, row) in STRENGTHS.into_iter().zip(conflicts) {
        for (wanted, conflicts) in STRENGTHS.into_iter().zip(row) {
            begin(&mut a, Isolation::ReadCommitted);
            begin(&mut b, Isolation::ReadCommitted);
            assert_eq!(lock(&mut a, at, held).expect("free"), Locked::Same);
            b.set_nowait(true);
            let asked = lock(&mut b, at, wanted);
            assert_eq!(is_refused(&asked), conflicts, "{held:?} beside {wanted:?}");
            b.set_nowait(false);
            assert_eq!(is_wait(&lock(&mut b, at, wanted)), conflicts);
            a.commit().expect("commits");
            again(&mut b);
            assert_eq!(lock(&mut b, at, wanted).expect("handed over"), Locked::Same);
            b.commit().expect("commits");
        }
    }
    assert!(world.engine.locks().is_empty(), "nothing is left behind");
    begin(&mut a, Isolation::ReadCommitted);
    set_n(&mut a, at, 11).expect("the row is nobody's");
    a.commit().expect("commits");
}

#[test]
fn a_shared_key_stands_beside_an_update_of_other_columns_only() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    let t = table(&a);
    let update = |session: &mut Session, column: usize, value: i64| -> Result<(), Stop> {
        let (mut old, t) = (Row::default(), table(session));
        session.lock_as(&t, at, Strength::NoKeyUpdate, &mut old)?;
        let mut new = old.clone();
        new.set(&t.layout, column, &Value::Int(value));
        session.update(&t, at, &old, &mut new)
    };
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    update(&mut a, 1, 11).expect("no key");
    let mut seen = Row::default();
    b.lock_as(&t, at, Strength::KeyShare, &mut seen).expect("shares the key of a row that is being changed");
    assert_eq!(seen.get(&t.layout, 1), Value::Int(10), "as it was committed");
    assert!(is_wait(&update(&mut a, 0, 2)), "the key is shared");
    again(&mut a);
    b.commit().expect("commits");
    update(&mut a, 0, 2).expect("nobody refers to it");
    begin(&mut b, Isolation::ReadCommitted);
    b.set_nowait(true);
    assert!(is_refused(&b.lock_as(&t, at, Strength::KeyShare, &mut seen)), "the key is being changed");
    b.rollback();
    a.rollback();
    // A delete wants all of the row.
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    lock(&mut b, at, Strength::KeyShare).expect("free");
    assert!(is_wait(&delete(&mut a, at)));
    b.rollback();
    again(&mut a);
    delete(&mut a, at).expect("deletes");
    a.commit().expect("commits");
}

#[test]
fn whoever_waits_is_not_overtaken_by_who_shares() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.session(), world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    for session in [&mut a, &mut b, &mut c] {
        begin(session, Isolation::ReadCommitted);
    }
    lock(&mut a, at, Strength::Share).expect("free");
    assert!(is_wait(&lock(&mut b, at, Strength::Update)));
    assert!(is_wait(&lock(&mut c, at, Strength::Share)), "behind b");
    // Who has it already is not put behind whom he keeps waiting.
    lock(&mut a, at, Strength::KeyShare).expect("has more");
    assert_eq!(world.engine.blockers(b.number()), [a.number()]);
    assert_eq!(world.engine.blockers(c.number()), [b.number(), a.number()]);
    a.commit().expect("commits");
    again(&mut b);
    lock(&mut b, at, Strength::Update).expect("handed over");
    b.commit().expect("commits");
    again(&mut c);
    lock(&mut c, at, Strength::Share).expect("handed over");
    c.commit().expect("commits");
}

#[test]
fn two_who_share_a_row_and_both_want_it_are_a_deadlock() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    lock(&mut a, at, Strength::Share).expect("free");
    lock(&mut b, at, Strength::Share).expect("shared");
    assert!(is_wait(&lock(&mut a, at, Strength::Update)));
    let Err(Stop::Error(Error::Deadlock(way))) = lock(&mut b, at, Strength::Update) else { panic!("a deadlock") };
    let told: Vec<_> = way.iter().map(|step| (step.session, step.by, step.thing)).collect();
    let row = Thing::Row(at);
    assert_eq!(told, [(b.number(), a.number(), row), (a.number(), b.number(), row)]);
    b.rollback();
    again(&mut a);
    lock(&mut a, at, Strength::Update).expect("alone");
    set_n(&mut a, at, 11).expect("updates");
    a.commit().expect("commits");
}

/// A rollback handed the lock of an inserted row to who waited for it, and gave the slot back: the next insert found it taken.
#[test]
fn a_row_that_never_was_has_no_heir() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let gone = commit_insert(&mut a, 1, 10, "x");
    begin(&mut a, Isolation::ReadCommitted);
    delete(&mut a, gone).expect("deletes");
    a.commit().expect("commits");
    while world.engine.step() {}
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    let at = insert(&mut a, 2, 20, "y").expect("inserts");
    assert_eq!(at, gone, "the slot is used again");
    // As one who found the former row's entry.
    assert!(is_wait(&lock(&mut b, at, Strength::Update)));
    a.rollback();
    again(&mut b);
    assert_eq!(lock(&mut b, at, Strength::Update).expect("looks again"), Locked::Gone);
    assert_eq!(commit_insert(&mut a, 3, 30, "z"), at);
    b.commit().expect("commits");
}

#[test]
fn a_savepoint_gives_back_what_was_locked_since() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let (x, y) = (commit_insert(&mut a, 1, 10, "x"), commit_insert(&mut a, 2, 20, "y"));
    begin(&mut a, Isolation::ReadCommitted);
    lock(&mut a, x, Strength::Share).expect("free");
    let savepoint = a.savepoint();
    lock(&mut a, y, Strength::Share).expect("free");
    let t = table(&a);
    a.lock_table(&t, LockMode::ShareUpdateExclusive).expect("free");
    assert!(matches!(a.advisory_keys().lock(AdvisoryKey::One(1), false, false, true), Ok(KeyTaken::Yes)));
    a.rollback_to(&savepoint);
    begin(&mut b, Isolation::ReadCommitted);
    b.set_nowait(true);
    lock(&mut b, y, Strength::Update).expect("given back");
    b.lock_table(&t, LockMode::ShareUpdateExclusive).expect("given back");
    assert!(matches!(b.advisory_keys().lock(AdvisoryKey::One(1), false, false, true), Ok(KeyTaken::Yes)));
    assert!(is_refused(&lock(&mut b, x, Strength::Update)), "this one is kept");
    b.rollback();
    a.rollback();
    assert!(world.engine.locks().is_empty());
}

#[test]
fn tables_are_locked_beside_each_other_as_their_modes_say() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let t = table(&a);
    // As in PostgreSQL's table of conflicting lock modes.
    let conflicts = ["7", "67", "4567", "34567", "23567", "234567", "1234567", "01234567"];
    for (held, of_held) in MODES.into_iter().zip(conflicts) {
        for (at, wanted) in MODES.into_iter().enumerate() {
            begin(&mut a, Isolation::ReadCommitted);
            begin(&mut b, Isolation::ReadCommitted);
            a.lock_table(&t, held).expect("free");
            b.set_nowait(true);
            let asked = b.lock_table(&t, wanted);
            assert_eq!(is_refused(&asked), of_held.contains(&at.to_string()), "{held:?} beside {wanted:?}");
            b.rollback();
            a.rollback();
        }
    }
    assert!(world.engine.locks().is_empty());
}

#[test]
fn who_writes_a_table_and_who_locks_it_wait_for_each_other() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let at = commit_insert(&mut a, 1, 10, "x");
    let t: Arc<Table> = table(&a);
    // A writer who was first.
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    set_n(&mut a, at, 11).expect("free");
    assert!(is_wait(&b.lock_table(&t, LockMode::Share)));
    assert_eq!(world.engine.blockers(b.number()), [a.number()]);
    set_n(&mut a, at, 12).expect("goes on");
    a.commit().expect("commits");
    again(&mut b);
    b.lock_table(&t, LockMode::Share).expect("alone");
    // A writer who comes later.
    begin(&mut a, Isolation::ReadCommitted);
    assert!(is_wait(&insert(&mut a, 2, 20, "y")));
    b.commit().expect("commits");
    again(&mut a);
    insert(&mut a, 2, 20, "y").expect("open again");
    a.commit().expect("commits");
    // Two writers who both want the table: one graph over both kinds of wait.
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    set_n(&mut a, at, 13).expect("free");
    insert(&mut b, 3, 30, "z").expect("inserts");
    assert!(is_wait(&a.lock_table(&t, LockMode::Exclusive)));
    assert!(matches!(b.lock_table(&t, LockMode::Exclusive), Err(Stop::Error(Error::Deadlock(_)))));
    b.rollback();
    again(&mut a);
    a.lock_table(&t, LockMode::Exclusive).expect("alone");
    a.rollback();
    // Who reads asks only while somebody bars readers.
    begin(&mut a, Isolation::ReadCommitted);
    a.lock_table(&t, LockMode::AccessExclusive).expect("free");
    begin(&mut b, Isolation::ReadCommitted);
    assert!(b.has_barred_tables() && is_wait(&b.read_table(&t)));
    a.commit().expect("commits");
    again(&mut b);
    b.read_table(&t).expect("open");
    b.commit().expect("commits");
    assert!(!b.has_barred_tables());
}

#[test]
fn keys_of_the_application_are_counted_and_outlive_a_rollback() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    let (one, two) = (AdvisoryKey::One(1 << 32 | 2), AdvisoryKey::Two(1, 2));
    begin(&mut a, Isolation::ReadCommitted);
    begin(&mut b, Isolation::ReadCommitted);
    let (of_a, of_b) = (a.advisory_keys(), b.advisory_keys());
    let is_taken = |taken: Result<KeyTaken, Error>| matches!(taken, Ok(KeyTaken::Yes));
    assert!(is_taken(of_a.lock(one, false, true, false)) && is_taken(of_a.lock(one, false, true, false)));
    assert!(is_taken(of_b.lock(two, false, true, true)), "the two forms never meet");
    a.rollback();
    assert!(matches!(of_b.lock(one, true, false, true), Ok(KeyTaken::No)), "kept over the rollback");
    // B waits; its statement is undone and runs again.
    assert!(matches!(of_b.lock(one, true, true, false), Ok(KeyTaken::Wait(_))));
    b.wait_for_key();
    assert!(of_a.unlock(one, false) && !of_a.unlock(one, true) && of_a.unlock(one, false) && !of_a.unlock(one, false));
    again(&mut b);
    assert!(is_taken(of_b.lock(one, true, true, false)));
    assert!(is_taken(of_a.lock(one, true, true, true)), "shared");
    b.commit().expect("commits");
    assert!(of_b.unlock(one, true) && !of_b.unlock(one, true), "taken once, though it was asked for twice");
    // Who gives up waiting has nothing of it.
    begin(&mut b, Isolation::ReadCommitted);
    assert!(matches!(of_b.lock(one, false, true, false), Ok(KeyTaken::Wait(_))));
    b.wait_for_key();
    of_a.unlock_all();
    b.abandon_wait();
    b.rollback();
    of_b.unlock_all();
    assert!(world.engine.locks().is_empty(), "{:?}", world.engine.locks());
    // The end of a session ends all.
    assert!(is_taken(of_a.lock(one, false, true, true)));
    drop(a);
    assert!(world.engine.locks().is_empty());
}

/// A statement that gave a key back, waited and is planned otherwise then: it is begun a second time, and has given back one key, not two.
#[test]
fn a_statement_begun_anew_knows_what_it_has_unlocked() {
    let world = World::new();
    let mut a = world.session();
    let key = AdvisoryKey::One(8);
    begin(&mut a, Isolation::ReadCommitted);
    let keys = a.advisory_keys();
    for _ in 0..2 {
        assert!(matches!(keys.lock(key, false, true, false), Ok(KeyTaken::Yes)));
    }
    a.commit().expect("commits");
    begin(&mut a, Isolation::ReadCommitted);
    assert!(keys.unlock(key, false));
    a.rollback_statement();
    a.begin_statement_at_newest();
    a.begin_statement_anew();
    assert!(keys.unlock(key, false));
    a.commit().expect("commits");
    assert!(keys.unlock(key, false), "the second one is still there");
    assert!(!keys.unlock(key, false));
}
