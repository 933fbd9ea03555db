//! Is a column added without a row being touched, and are rows from before and after read alike?
//!
//! Columns of a table: id, n, note as everywhere, then those that are added: `x0`, `x1`, ...

use crate::world::*;
use freshet_engine::catalog::{ColumnDef, IndexKind, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::inspect::{self, Subject};
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::salvage::salvage;
use freshet_engine::schema::{Missing, Row, Type, Value};
use freshet_engine::txn::{Direction, Error, Isolation, Stop, TableCursor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

fn added(name: &str, ty: Type, missing: Value<'_>) -> ColumnDef {
    ColumnDef { name: name.into(), ty, missing: Missing::of(ty, &missing), ..ColumnDef::default() }
}

fn try_add(session: &mut Session, name: &str, ty: Type, missing: Value<'_>) -> Result<(), Stop> {
    let id = table(session).id;
    assert!(session.add_column(id, added(name, ty, missing))?, "there is room");
    Ok(())
}

fn add(session: &mut Session, name: &str, ty: Type, missing: Value<'_>) {
    try_add(session, name, ty, missing).expect("nobody is in the way");
}

fn commit_add(session: &mut Session, name: &str, ty: Type, missing: Value<'_>) {
    begin(session, Isolation::ReadCommitted);
    add(session, name, ty, missing);
    session.commit().expect("commits");
}

/// A row's columns from `x0` on, as text.
type Others = Vec<String>;

fn others_of(session: &mut Session, row: &mut Row) -> Others {
    let table = table(session);
    let columns = 3..table.def.columns.len();
    let shown = columns.map(|at| {
        session.fetch_long(&table, row, at);
        match row.get(&table.layout, at) {
            Value::Null => "null".into(),
            Value::Int(v) => v.to_string(),
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        }
    });
    shown.collect()
}

/// All rows by id, as a scan gives them; each is looked up by its key, too.
fn all(session: &mut Session) -> BTreeMap<i64, Others> {
    let table = table(session);
    let (mut cursor, mut row, mut found) = (TableCursor::default(), Row::default(), BTreeMap::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        let [id, _] = row_of_ids(&table, &row);
        found.insert(id, others_of(session, &mut row));
    }
    for (id, others) in &found {
        let at = session.get(&table, &table.indexes[0], |_| Value::Int(*id), &mut row);
        assert!(at.is_some() && others_of(session, &mut row) == *others, "{id} by its key");
    }
    let ordered = ordered(session, &table, &table.indexes[1], Direction::Forward);
    assert_eq!(ordered.len(), found.len());
    found
}

fn read_all(session: &mut Session) -> BTreeMap<i64, Others> {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let found = all(session);
    session.commit().expect("a read commits");
    found
}

fn try_set(session: &mut Session, id: RowId, column: usize, value: Value<'_>) -> Result<(), Stop> {
    let table = table(session);
    let mut old = Row::default();
    session.lock(&table, id, &mut old)?;
    let mut new = old.clone();
    new.set(&table.layout, column, &value);
    session.update(&table, id, &old, &mut new)
}

fn set(session: &mut Session, id: RowId, column: usize, value: Value<'_>) {
    try_set(session, id, column, value).expect("nobody else writes");
}

fn commit_set(session: &mut Session, id: RowId, column: usize, value: Value<'_>) {
    begin(session, Isolation::ReadCommitted);
    set(session, id, column, value);
    session.commit().expect("commits");
}

fn texts(columns: &[&str]) -> Others {
    columns.iter().map(|c| (*c).to_owned()).collect()
}

fn is_whole(io: &MemIo) {
    // A copy: this one is in use.
    let io: Arc<dyn Io> = Arc::new(io.crash(3));
    let report = inspect::check(&io, &subject(), &mut |_| {}).expect("it can be read");
    assert!(!report.is_damaged(), "{:?}", report.findings);
}

fn subject() -> Subject {
    Subject {
        data_dir: PathBuf::from("/db"),
        log_dirs: vec![PathBuf::from("/db/log")],
        retired_log_dirs: Vec::new(),
        backup_dirs: Vec::new(),
    }
}

/// Neither rows nor bytes are written for the rows that are there.
#[test]
fn it_costs_the_same_for_one_row_and_for_thousands() {
    let cost = |rows: i64| {
        let world = World::new();
        let mut session = world.session();
        create(&mut session, IndexKind::Hash);
        begin(&mut session, Isolation::ReadCommitted);
        for id in 0..rows {
            insert(&mut session, id, id, LONG).expect("a new key");
        }
        session.commit().expect("commits");
        while world.engine.step() {}
        let before = world.engine.stats();
        commit_add(&mut session, "x0", Type::Text, Value::Bytes(LONG.as_bytes()));
        while world.engine.step() {}
        let after = world.engine.stats();
        let bytes = after.commit_record_bytes - before.commit_record_bytes;
        (after.commit_records - before.commit_records, bytes / 16, after.page_bytes - before.page_bytes)
    };
    assert_eq!(cost(1), cost(5_000));
}

#[test]
fn rows_from_before_have_what_is_missing_and_take_other_values() {
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let mut world = World::new();
        let mut session = world.session();
        create(&mut session, kind);
        let ids: Vec<RowId> = (0..5).map(|id| commit_insert(&mut session, id, id, "note")).collect();
        commit_add(&mut session, "x0", Type::Int4, Value::Int(-7));
        commit_add(&mut session, "x1", Type::Text, Value::Bytes(LONG.as_bytes()));
        commit_add(&mut session, "x2", Type::Uuid, Value::Null);
        commit_set(&mut session, ids[1], 3, Value::Int(11));
        commit_set(&mut session, ids[2], 4, Value::Bytes(LONG.to_uppercase().as_bytes()));
        // Another column of a row from before, and of one that has an extension.
        commit_set(&mut session, ids[0], 1, Value::Int(100));
        commit_set(&mut session, ids[1], 2, Value::Bytes(b"another"));
        commit_add(&mut session, "x3", Type::Int8, Value::Int(4));
        commit_set(&mut session, ids[2], 4, Value::Null);
        begin(&mut session, Isolation::ReadCommitted);
        delete(&mut session, ids[3]).expect("deletes");
        set(&mut session, ids[4], 5, Value::Uuid(5));
        session.commit().expect("commits");
        commit_insert(&mut session, 9, 9, "new");
        let due = BTreeMap::from([
            (0, texts(&["-7", LONG, "null", "4"])),
            (1, texts(&["11", LONG, "null", "4"])),
            (2, texts(&["-7", "null", "null", "4"])),
            (4, texts(&["-7", LONG, "Uuid(5)", "4"])),
            (9, texts(&["null", "null", "null", "null"])),
        ]);
        assert_eq!(read_all(&mut session), due);
        assert_eq!(read(&mut session, 1), Some((1, "another".into())));
        for _ in 0..2 {
            drop(session);
            world.reopen();
            is_whole(&world.io);
            session = world.session();
            assert_eq!(read_all(&mut session), due);
            // Images next time.
            world.engine.request_checkpoint_within(std::time::Duration::ZERO);
        }
    }
}

#[test]
fn an_older_snapshot_sees_its_rows() {
    let world = World::new();
    let (mut old, mut session) = (world.session(), world.session());
    create(&mut session, IndexKind::Hash);
    let id = commit_insert(&mut session, 1, 1, "note");
    old.begin(Isolation::RepeatableRead, false);
    old.begin_statement();
    assert_eq!(all(&mut old), BTreeMap::from([(1, vec![])]));
    commit_add(&mut session, "x0", Type::Int8, Value::Int(5));
    commit_set(&mut session, id, 3, Value::Int(6));
    commit_insert(&mut session, 2, 2, "note");
    old.begin_statement();
    assert_eq!(all(&mut old), BTreeMap::from([(1, texts(&["5"]))]));
    let table = table(&old);
    let locked = old.lock(&table, id, &mut Row::default());
    assert!(matches!(locked, Err(Stop::Error(Error::Serialization))), "{locked:?}");
    old.rollback();
    commit_set(&mut session, id, 3, Value::Int(7));
    while world.engine.step() {}
    assert_eq!(world.engine.stats().version_bytes, 0);
    assert_eq!(read_all(&mut session), BTreeMap::from([(1, texts(&["7"])), (2, texts(&["null"]))]));
}

#[test]
fn what_is_undone_leaves_nothing() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let id = commit_insert(&mut session, 1, 1, "note");
    begin(&mut session, Isolation::ReadCommitted);
    let start = session.savepoint();
    add(&mut session, "x0", Type::Int8, Value::Int(5));
    session.begin_statement();
    set(&mut session, id, 3, Value::Int(-1));
    let inner = session.savepoint();
    session.begin_statement();
    set(&mut session, id, 3, Value::Int(8));
    assert_eq!(all(&mut session)[&1], texts(&["8"]));
    session.rollback_to(&inner);
    session.begin_statement();
    assert_eq!(all(&mut session)[&1], texts(&["-1"]));
    session.rollback_to(&start);
    session.begin_statement();
    assert_eq!(all(&mut session)[&1], texts(&[]));
    add(&mut session, "x0", Type::Text, Value::Bytes(b"another"));
    session.begin_statement();
    set(&mut session, id, 3, Value::Bytes(LONG.as_bytes()));
    session.rollback();
    assert_eq!(read_all(&mut session)[&1], texts(&[]));
    commit_add(&mut session, "x0", Type::Text, Value::Bytes(b"a third"));
    assert_eq!(read_all(&mut session)[&1], texts(&["a third"]));
    drop(session);
    world.reopen();
    is_whole(&world.io);
    assert_eq!(read_all(&mut world.session())[&1], texts(&["a third"]));
}

/// Unique and other indexes of added columns: built over rows from before, kept by updates, rebuilt by a restart.
#[test]
fn added_columns_are_keys() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let ids: Vec<RowId> = (0..4).map(|id| commit_insert(&mut session, id, id, "note")).collect();
    commit_add(&mut session, "x0", Type::Text, Value::Bytes(LONG.as_bytes()));
    commit_add(&mut session, "x1", Type::Int8, Value::Null);
    begin(&mut session, Isolation::ReadCommitted);
    let duplicate = session.create_index("t", index("t_x0", 3, IndexKind::Hash, true));
    assert!(matches!(duplicate, Err(Stop::Error(Error::UniqueViolation { .. }))), "{duplicate:?}");
    session.rollback();
    begin(&mut session, Isolation::ReadCommitted);
    session.create_index("t", index("t_x0", 3, IndexKind::BTree, false)).expect("builds");
    session.create_index("t", index("t_x1", 4, IndexKind::Hash, true)).expect("nulls are no key's equal");
    session.commit().expect("commits");
    commit_set(&mut session, ids[1], 4, Value::Int(7));
    commit_set(&mut session, ids[2], 3, Value::Bytes(b"short"));
    begin(&mut session, Isolation::ReadCommitted);
    let table_of = |s: &Session| table(s);
    let t = table_of(&session);
    let mut old = Row::default();
    session.lock(&t, ids[3], &mut old).expect("nobody else has it");
    let mut new = old.clone();
    new.set(&t.layout, 4, &Value::Int(7));
    let twice = session.update(&t, ids[3], &old, &mut new);
    assert!(matches!(twice, Err(Stop::Error(Error::UniqueViolation { .. }))), "{twice:?}");
    session.rollback();
    for _ in 0..2 {
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        let t = table_of(&session);
        let (mut candidates, mut row) = (Vec::new(), Row::default());
        session.lookup(&t, &t.indexes[2], |_| Value::Bytes(LONG.as_bytes()), &mut candidates);
        candidates.sort_unstable();
        assert_eq!(candidates, [ids[0], ids[1], ids[3]]);
        assert_eq!(ordered(&mut session, &t, &t.indexes[2], Direction::Backward).len(), 4);
        assert_eq!(session.get(&t, &t.indexes[3], |_| Value::Int(7), &mut row), Some(ids[1]));
        session.commit().expect("a read commits");
        while world.engine.step() {}
        assert_eq!(t.indexes.iter().map(|i| i.entries()).collect::<Vec<_>>(), [4; 4]);
        drop((session, t));
        world.reopen();
        session = world.session();
    }
    begin(&mut session, Isolation::ReadCommitted);
    delete(&mut session, ids[1]).expect("deletes");
    session.commit().expect("commits");
    while world.engine.step() {}
    assert_eq!(table(&session).indexes.iter().map(|i| i.entries()).collect::<Vec<_>>(), [3; 4]);
}

#[test]
fn wide_tables_have_room_too() {
    for base in [1, 16, 17, 23, 24, 57, 120] {
        let mut world = World::new();
        let mut session = world.session();
        begin(&mut session, Isolation::ReadCommitted);
        let columns = (0..base).map(|at| column(&format!("c{at}"), Type::Int8)).collect();
        let def = TableDef { name: "t".into(), columns, ..TableDef::default() };
        session.create_table(def, vec![index("t_pkey", 0, IndexKind::Hash, true)]).expect("creates");
        let numbers: Vec<i64> = (0..base as i64).collect();
        let id = insert_into(&mut session, "t", &numbers, None).expect("a new key");
        session.commit().expect("commits");
        for at in 0..130 {
            commit_add(
                &mut session,
                &format!("x{at}"),
                Type::Int8,
                if at % 3 == 0 { Value::Null } else { Value::Int(at) },
            );
            if at == 70 {
                commit_set(&mut session, id, base + 1, Value::Int(-1));
            }
        }
        drop(session);
        world.reopen();
        let mut session = world.session();
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        let (t, mut row) = (table(&session), Row::default());
        assert!(session.read(&t, id, &mut row));
        for at in 0..base {
            assert_eq!(row.get(&t.layout, at), Value::Int(at as i64), "{base}");
        }
        for at in 0..130 {
            let due = match at {
                1 => Value::Int(-1),
                _ if at % 3 == 0 => Value::Null,
                _ => Value::Int(at),
            };
            assert_eq!(row.get(&t.layout, base + at as usize), due, "{base} x{at}");
        }
    }
}

/// What fills a new storage has all columns in its records.
#[test]
fn a_new_storage_has_no_extension() {
    let world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let id = commit_insert(&mut session, 1, 1, "note");
    commit_add(&mut session, "x0", Type::Int8, Value::Int(5));
    commit_set(&mut session, id, 3, Value::Int(6));
    begin(&mut session, Isolation::ReadCommitted);
    let t = table(&session);
    let rewritten = session.rewrite_table::<Stop>(t.id, t.def.clone(), &mut |engine, old, row, new, record| {
        for at in 0..4 {
            engine.fetch_long(old, row, at);
            record.set(&new.layout, at, &row.get(&old.layout, at));
        }
        Ok(())
    });
    rewritten.expect("nobody else writes");
    session.commit().expect("commits");
    assert_eq!(read_all(&mut session)[&1], texts(&["6"]));
    assert!(table(&session).layout.words() > t.layout.words());
    commit_add(&mut session, "x1", Type::Int8, Value::Int(9));
    begin(&mut session, Isolation::ReadCommitted);
    session.truncate("t").expect("nobody else writes");
    session.commit().expect("commits");
    begin(&mut session, Isolation::ReadCommitted);
    let mut load = session.begin_load("t").expect("it is empty");
    let mut appender = load.appender().expect("there is memory");
    let mut row = Row::new(appender.layout());
    (0..5).filter(|at| *at != 2).for_each(|at| row.set(&appender.layout().clone(), at, &Value::Int(at as i64 + 1)));
    appender.append(&mut row).expect("appends");
    appender.finish().expect("finishes");
    session.finish_load(&mut load).expect("fills the indexes");
    session.commit().expect("commits");
    assert_eq!(read_all(&mut session), BTreeMap::from([(1, texts(&["4", "5"]))]));
}

#[test]
fn a_salvage_saves_what_lies_in_extensions() {
    let mut world = World::new();
    let mut session = world.session();
    create(&mut session, IndexKind::Hash);
    let ids: Vec<RowId> = (0..3).map(|id| commit_insert(&mut session, id, id, "note")).collect();
    commit_add(&mut session, "x0", Type::Text, Value::Bytes(LONG.as_bytes()));
    commit_set(&mut session, ids[1], 3, Value::Bytes(LONG.to_uppercase().as_bytes()));
    commit_set(&mut session, ids[2], 3, Value::Null);
    let due = read_all(&mut session);
    drop(session);
    world.reopen();
    let target = MemIo::new();
    let engine = Engine::open_with(Arc::new(target), MemClock::new(), Options::small("/new")).expect("opens");
    let source: Arc<dyn Io> = Arc::new(world.io.crash(3));
    let saved = salvage(&source, &subject(), &engine, &mut |_| {}).expect("a new database takes it");
    assert!(saved.is_complete(), "{saved}");
    assert_eq!(read_all(&mut Session::new(&engine)), due);
}

/// The power goes at every operation of a history of added columns and updates: what is there is one of its states, none older than was durable.
#[test]
fn a_power_cut_anywhere_leaves_a_state() {
    let mut states: Vec<Option<BTreeMap<i64, Others>>> = vec![None];
    let mut cut_at = 0;
    loop {
        let io = MemIo::new();
        let engine = open(&io);
        io.cut_power_after(io.operations() + cut_at);
        let durable = history(&engine, &io, if cut_at == 0 { None } else { Some(&mut states) });
        let is_over = !io.is_dark();
        let engine_after = open(&io.crash(cut_at));
        let mut session = Session::new(&engine_after);
        let found = session.schema().table("t").is_some().then(|| read_all(&mut session));
        if cut_at > 0 {
            let at = states.iter().rposition(|state| *state == found);
            assert!(at.is_some_and(|at| at >= durable), "cut at {cut_at}: {found:?} is older than {durable}, or none");
        }
        if is_over && cut_at > 0 {
            return;
        }
        // First once without a cut, to know the states.
        if cut_at == 0 {
            let io = MemIo::new();
            history(&open(&io), &io, Some(&mut states));
        }
        cut_at += 1;
    }
}

/// Gives the number of the last state that is durable; tells the states where there is a list that has none.
fn history(engine: &Engine, io: &MemIo, states: Option<&mut Vec<Option<BTreeMap<i64, Others>>>>) -> usize {
    type Step = fn(&mut Session, &[RowId]) -> Result<(), Stop>;
    let steps: [Step; 7] = [
        |s, _| create_table(s, IndexKind::Hash),
        |s, _| (0..3).try_for_each(|id| insert(s, id, id, LONG).map(drop)),
        |s, _| try_add(s, "x0", Type::Text, Value::Bytes(LONG.as_bytes())),
        |s, ids| try_set(s, ids[0], 3, Value::Bytes(b"short")),
        |s, ids| {
            try_add(s, "x1", Type::Int8, Value::Int(3))?;
            s.begin_statement();
            try_set(s, ids[1], 4, Value::Int(4))
        },
        |s, ids| delete(s, ids[0]),
        |s, ids| try_set(s, ids[2], 3, Value::Null),
    ];
    let mut session = Session::new(engine);
    let mut told = states.filter(|states| states.len() == 1);
    let (mut durable, mut ids) = (0, Vec::new());
    for (at, step) in steps.iter().enumerate() {
        if engine.failure().is_some() || io.is_dark() {
            break;
        }
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        if step(&mut session, &ids).is_err() {
            session.rollback();
            break;
        }
        let Ok(committed) = session.commit() else { break };
        while engine.step() {}
        if at == 1 {
            ids = places(&mut session);
        }
        if engine.is_durable(committed.cts) {
            durable = at + 1;
        }
        if let Some(states) = &mut told {
            states.push(Some(read_all(&mut session)));
        }
    }
    durable
}

fn places(session: &mut Session) -> Vec<RowId> {
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let t = table(session);
    let (mut cursor, mut row, mut found) = (TableCursor::default(), Row::default(), Vec::new());
    while let Some(id) = session.scan_next(&t, &mut cursor, &mut row) {
        found.push(id);
    }
    session.commit().expect("a read commits");
    found
}
