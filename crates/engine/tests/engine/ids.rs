//! Is an id given twice? Sessions remember objects by their ids, and nobody tells them that an object's creation was undone.

use crate::world::*;
use freshet_engine::catalog::{IndexKind, NamespaceId, RoleDef, SequenceDef, SequenceValue, ViewDef};
use freshet_engine::schema::Type;
use freshet_engine::txn::{Isolation, Stop};
use std::collections::HashSet;

/// Makes one object of each kind; their ids, and those of a table's indexes.
fn make(session: &mut Session, number: u32) -> Vec<u32> {
    let name = |kind: &str| format!("{kind}{number}");
    let namespace = session.create_namespace(&name("n")).expect("nobody else makes anything");
    let sequence = SequenceDef {
        namespace: NamespaceId::PUBLIC,
        name: name("s"),
        ty: Type::Int8,
        start: 1,
        increment: 1,
        min: 1,
        max: i64::MAX,
        cache: 1,
        cycle: false,
        owner: None,
    };
    let value = SequenceValue { last: 1, is_called: false };
    let sequence = session.create_sequence(sequence, value).expect("the name is free");
    let view = session.create_view(ViewDef { name: name("v"), ..ViewDef::default() }).expect("the name is free");
    let role = session.create_role(RoleDef { name: name("r"), ..RoleDef::default() }).expect("the name is free");
    create_named(session, &name("t"), IndexKind::Hash).expect("the name is free");
    let table = session.schema().table(&name("t")).expect("just made").clone();
    let indexes = table.indexes.iter().map(|index| index.id.0);
    [namespace.0, sequence, view, role.0, table.id.0].into_iter().chain(indexes).collect()
}

fn fresh(met: &mut HashSet<u32>, ids: Vec<u32>) {
    for id in ids {
        assert!(met.insert(id), "{id} was given before");
    }
}

#[test]
fn an_id_does_not_come_again_after_what_had_it_was_undone() {
    let mut world = World::new();
    let mut met = HashSet::new();
    {
        let (mut a, mut b) = (world.session(), world.session());
        create(&mut b, IndexKind::Hash);
        let row = commit_insert(&mut b, 1, 10, "x");

        begin(&mut a, Isolation::ReadCommitted);
        fresh(&mut met, make(&mut a, 0));
        a.rollback();

        begin(&mut a, Isolation::ReadCommitted);
        let savepoint = a.savepoint();
        a.begin_statement();
        fresh(&mut met, make(&mut a, 1));
        a.rollback_to(&savepoint);
        a.begin_statement();
        fresh(&mut met, make(&mut a, 2));
        a.rollback_statement();
        fresh(&mut met, make(&mut a, 3));
        a.commit().expect("commits");

        begin(&mut a, Isolation::Serializable);
        assert!(get(&mut a, 1).is_some());
        begin(&mut b, Isolation::ReadCommitted);
        set_n(&mut b, row, 11).expect("nobody else writes");
        b.commit().expect("commits");
        fresh(&mut met, make(&mut a, 4));
        assert!(matches!(a.commit(), Err(Stop::Error(_))), "what it read has changed");

        begin(&mut b, Isolation::ReadCommitted);
        fresh(&mut met, make(&mut b, 5));
        b.commit().expect("commits");
    }
    // What is durable keeps its ids.
    world.reopen();
    let mut session = world.session();
    let kept: HashSet<u32> = session.schema().tables().map(|table| table.id.0).collect();
    begin(&mut session, Isolation::ReadCommitted);
    let made = make(&mut session, 6);
    assert!(made.iter().all(|id| !kept.contains(id)));
    session.commit().expect("commits");
}
