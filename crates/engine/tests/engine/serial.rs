//! Does SERIALIZABLE hold where a transaction changes what leads to its reads, or learns of what is newer than they are?

use crate::world::*;
use freshet_engine::catalog::{IndexKind, TableDef};
use freshet_engine::schema::{Row, Type};
use freshet_engine::txn::{Error, Isolation, Stop};

/// A table whose row 1 a session has read in SERIALIZABLE by its key; then another has changed that.
fn stale(world: &World, rows: i64) -> Session {
    let (mut reader, mut writer) = (world.session(), world.session());
    create(&mut writer, IndexKind::Hash);
    let ids: Vec<_> = (1..=rows).map(|id| commit_insert(&mut writer, id, 10, "x")).collect();
    begin(&mut reader, Isolation::Serializable);
    assert_eq!(get(&mut reader, 1).expect("there").0, 10);
    begin(&mut writer, Isolation::ReadCommitted);
    set_n(&mut writer, ids[0], 11).expect("nobody else writes");
    // One that lies where a table of wider rows has no slot.
    set_n(&mut writer, *ids.last().expect("one at least"), 11).expect("nobody else writes");
    insert(&mut writer, 1_000, 10, "y").expect("a new key");
    writer.commit().expect("commits");
    reader.begin_statement();
    reader
}

fn is_read_changed(mut session: Session) -> bool {
    matches!(session.commit(), Err(Stop::Error(Error::ReadChanged)))
}

#[test]
fn who_writes_the_table_anew_has_read_its_former_rows() {
    let world = World::new();
    let mut session = stale(&world, 300);
    let table = table(&session);
    let mut columns = table.def.columns.clone();
    columns.extend((0..200).map(|at| column(&format!("c{at}"), Type::Uuid)));
    let def = TableDef { columns, ..table.def.clone() };
    let rewritten = session.rewrite_table::<Stop>(table.id, def, &mut |engine, old, row, new, record| {
        engine.fetch_long(old, row, 2);
        (0..3).for_each(|at| record.set(&new.layout, at, &row.get(&old.layout, at)));
        Ok(())
    });
    rewritten.expect("nobody else writes");
    assert!(is_read_changed(session));
}

#[test]
fn who_empties_or_drops_the_table_or_the_index_has_read_it_before() {
    for how in 0..3 {
        let world = World::new();
        let mut session = stale(&world, 3);
        let done = match how {
            0 => session.truncate("t"),
            1 => session.drop_table("t"),
            _ => session.drop_index("t_pkey"),
        };
        done.expect("nobody else writes");
        assert!(is_read_changed(session), "way {how}");
    }
}

#[test]
fn ddl_of_another_table_is_not_in_the_way() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    let (_, y) = (commit_insert(&mut a, 1, 10, "x"), commit_insert(&mut a, 2, 10, "y"));
    begin(&mut a, Isolation::Serializable);
    assert!(get(&mut a, 1).is_some());
    begin(&mut b, Isolation::ReadCommitted);
    set_n(&mut b, y, 11).expect("nobody else writes");
    b.commit().expect("commits");
    a.begin_statement();
    create_named(&mut a, "u", IndexKind::Hash).expect("creates");
    a.commit().expect("what it read is as it was");
}

/// An error shows what is newer than the snapshot; the transaction goes back to a savepoint and commits, having changed nothing.
#[test]
fn who_learns_of_a_newer_row_has_read_as_of_then() {
    for changes in [true, false] {
        let world = World::new();
        let (mut reader, mut writer) = (world.session(), world.session());
        create(&mut writer, IndexKind::Hash);
        let x = commit_insert(&mut writer, 1, 10, "x");
        begin(&mut reader, Isolation::Serializable);
        assert!(get(&mut reader, 1).is_some());
        let savepoint = reader.savepoint();
        begin(&mut writer, Isolation::ReadCommitted);
        if changes {
            set_n(&mut writer, x, 11).expect("nobody else writes");
        }
        insert(&mut writer, 5, 10, "y").expect("a new key");
        writer.commit().expect("commits");
        reader.begin_statement();
        let violation = insert(&mut reader, 5, 10, "z");
        assert!(matches!(violation, Err(Stop::Error(Error::UniqueViolation { .. }))), "{violation:?}");
        reader.rollback_to(&savepoint);
        assert_eq!(is_read_changed(reader), changes);
    }
}

/// Without an error there is nothing to tell: its place is that of its snapshot.
#[test]
fn who_only_reads_is_not_validated() {
    let world = World::new();
    let mut session = stale(&world, 3);
    assert_eq!(get(&mut session, 1).expect("there").0, 10);
    assert!(!is_read_changed(session));
}

/// Long keys are not fetched after the draw: such a row counts as one that was read, and only there.
#[test]
fn a_long_key_is_compared_before_the_draw() {
    let world = World::new();
    let (mut a, mut b) = (world.session(), world.session());
    create(&mut a, IndexKind::Hash);
    a.begin(Isolation::ReadCommitted, false);
    a.begin_statement();
    a.create_index("t", index("t_note", 2, IndexKind::Hash, false)).expect("builds");
    a.commit().expect("commits");
    let (_, other) = (commit_insert(&mut a, 1, 10, LONG), commit_insert(&mut a, 2, 20, &LONG.to_uppercase()));
    begin(&mut a, Isolation::Serializable);
    let (mut candidates, t) = (Vec::new(), table(&a));
    a.lookup(&t, &t.indexes[2], |_| freshet_engine::schema::Value::Bytes(LONG.as_bytes()), &mut candidates);
    assert_eq!(candidates.iter().filter(|id| a.read(&t, **id, &mut Row::default())).count(), 1);
    begin(&mut b, Isolation::ReadCommitted);
    set_n(&mut b, other, 21).expect("nobody else writes");
    b.commit().expect("commits");
    a.begin_statement();
    insert(&mut a, 3, 30, "z").expect("a new key");
    a.commit().expect("another key's row has changed");
}
