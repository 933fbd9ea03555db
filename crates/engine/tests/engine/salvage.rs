//! What a salvage saves of a damaged database: everything that is whole, nothing that never was, and a list of the rest.

use crate::damaged::{Rows, contents, subject, written};
use crate::world::{Session, column, index};
use freshet_engine::catalog::{
    Action, ColumnDef, ColumnRole, Constraint, ConstraintKind, ForeignKey, Grant, IndexId, IndexKind, Membership,
    Namespace, NamespaceId, Rights, Role, RoleDef, RoleId, SequenceDef, SequenceValue, TableDef, TableId, Verifier,
    View, ViewDef,
};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::Fate;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::io::{Io, OpenOptions};
use freshet_engine::salvage::{Salvaged, salvage};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Isolation, Stop, TableCursor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Salvages into a world of its own, and opens what is there.
fn saved(io: &MemIo, options: &Options) -> (Salvaged, Engine) {
    let source: Arc<dyn Io> = Arc::new(io.clone());
    let operations = io.operations();
    let target = MemIo::new();
    let making = Options { in_making: true, ..Options::small("/new") };
    let engine = Engine::open_with(Arc::new(target.clone()), MemClock::new(), making).expect("opens");
    let salvaged =
        salvage(&source, &subject(options), &engine, &mut |_| {}).expect("a new database takes what is left");
    assert_eq!(io.operations(), operations, "the source is only read");
    drop(engine);
    let after = Arc::new(target.crash(1));
    (salvaged, Engine::open_with(after, MemClock::new(), Options::small("/new")).expect("opens"))
}

/// The same; the rows of table t if it came over.
fn save(io: &MemIo, options: &Options) -> (Salvaged, Option<Rows>) {
    let (salvaged, engine) = saved(io, options);
    let rows = engine.schema().table("t").is_some().then(|| contents(&engine));
    (salvaged, rows)
}

/// The damage done to a copy.
fn with(io: &MemIo, damage: impl FnOnce(&MemIo)) -> MemIo {
    let copy = io.crash(3);
    damage(&copy);
    copy
}

fn newest_segment(io: &MemIo) -> PathBuf {
    let names = io.names();
    let segments = names.into_iter().filter(|n| n.starts_with("/db/log") && n.extension().is_some_and(|e| e == "seg"));
    let used = |path: &PathBuf| io.contents(path).expect("a file")[..8] == *b"FRESHGRP";
    segments.filter(used).max().expect("a segment in use")
}

#[test]
fn a_whole_database_is_saved_whole() {
    let (io, options, expected) = written();
    let (salvaged, rows) = save(&io, &options);
    assert!(salvaged.is_complete() && salvaged.findings.is_empty(), "{salvaged}");
    assert_eq!(rows.as_ref(), Some(&expected));
    assert_eq!((salvaged.tables.len(), salvaged.tables[0].rows), (1, 8));
}

#[test]
fn without_a_manifest_images_and_log_are_enough() {
    let (io, options, expected) = written();
    let damaged = with(&io, |io| io.lose(Path::new("/db/manifest")));
    let (salvaged, rows) = save(&damaged, &options);
    assert!(!salvaged.findings.is_empty());
    assert_eq!(rows, Some(expected), "{salvaged}");
}

#[test]
fn behind_a_lost_epoch_whole_rows_are_saved_and_others_keep_an_older_version() {
    let (io, options, expected) = written();
    let segment = newest_segment(&io);
    // The first group holds the first of two changes of row 1; the change of row 2 comes later.
    let damaged = with(&io, |io| io.flip_bit(&segment, 150, 1).expect("the file is there"));
    let (salvaged, rows) = save(&damaged, &options);
    let rows = rows.expect("the catalog is whole");
    assert!(!salvaged.is_complete());
    let older: Vec<_> = salvaged.losses.iter().filter(|loss| loss.fate == Fate::Older).collect();
    assert_eq!(older.len(), 1, "{salvaged}");
    assert_eq!((older[0].table.as_deref(), older[0].key.as_deref()), (Some("t"), Some("id = 1")), "{salvaged}");
    let by_id = |rows: &Rows| rows.iter().map(|row| (row.0, row.clone())).collect::<BTreeMap<_, _>>();
    let (saved, expected) = (by_id(&rows), by_id(&expected));
    assert_eq!(saved[&1].1, 10, "as of the checkpoint");
    for id in expected.keys().filter(|id| **id != 1) {
        assert_eq!(saved.get(id), expected.get(id), "row {id}: {salvaged}");
    }
}

/// The end of the log leaves no gap; that a segment of it was there is known by another one's marker.
#[test]
fn a_segment_that_was_taken_away_is_a_loss() {
    let (io, options, expected) = written();
    let segment = newest_segment(&io);
    let cut = |io: &MemIo, bytes| {
        let file = io.open(&segment, OpenOptions::default()).expect("the file is there");
        file.set_len(bytes).expect("cuts");
    };
    let damages: [&dyn Fn(&MemIo); 3] = [&|io| io.lose(&segment), &|io| cut(io, 0), &|io| cut(io, 4096)];
    for damage in damages {
        let (salvaged, rows) = save(&with(&io, damage), &options);
        assert_ne!(rows, Some(expected.clone()), "it held nothing");
        assert!(!salvaged.is_complete() && salvaged.to_string().contains("end of the log"), "{salvaged}");
    }
}

/// Who forgets `--log` is told.
#[test]
fn a_device_that_is_not_named_is_a_loss() {
    let (io, options, _) = written();
    let elsewhere = Options { log_dirs: vec!["/elsewhere".into()], ..options };
    let (salvaged, rows) = save(&io, &elsewhere);
    let told = salvaged.losses.iter().any(|loss| loss.reason.contains("name its directory with --log"));
    assert!(told && !salvaged.is_complete() && rows.is_some(), "{salvaged}");
}

/// One copy of the fence says otherwise than the others, which are whole.
#[test]
fn a_copy_of_the_fence_that_contradicts_loses_nothing() {
    let (io, options, expected) = written();
    let fence = Path::new("/db/fence");
    let mut bytes = io.contents(fence).expect("a file");
    let last = bytes.len() - 4096;
    bytes.copy_within(..4096, last);
    let (salvaged, rows) = save(&with(&io, |io| io.replace(fence, &bytes)), &options);
    assert!(last > 0 && rows == Some(expected), "{salvaged}");
}

/// Whatever one flipped bit does: a row is saved as it was once or not at all, and who lacks one is told.
#[test]
fn nothing_is_saved_that_never_was() {
    let (io, options, expected) = written();
    let ever = |id: i64, n: i64| (71..=73).contains(&n) || n == id * 10 || id >= 100 && n < 4;
    let mut incomplete = 0;
    for path in io.names().into_iter().filter(|path| !path.ends_with("lock")) {
        let bytes = io.contents(&path).expect("a file");
        let used: Vec<usize> = bytes.iter().enumerate().filter(|(_, b)| **b != 0).map(|(at, _)| at).collect();
        for &offset in used.iter().step_by(1 + used.len() / 25) {
            let damaged = with(&io, |io| io.flip_bit(&path, offset as u64, 2).expect("the file is there"));
            let (salvaged, rows) = save(&damaged, &options);
            let rows = rows.unwrap_or_default();
            for (id, n, note) in &rows {
                let of_row = expected.iter().find(|row| row.0 == *id).unwrap_or_else(|| panic!("row {id} never was"));
                assert!(ever(*id, *n) && *note == of_row.2, "{} at {offset}: row {id} is {n}", path.display());
            }
            if rows != expected {
                assert!(!salvaged.is_complete(), "{} at {offset}: {salvaged}\n{rows:?}", path.display());
                incomplete += 1;
            }
        }
    }
    assert!(incomplete > 20, "{incomplete}");
}

#[test]
fn fixtures_of_every_version_are_saved_whole() {
    for io in crate::format::fixtures() {
        let (salvaged, _) = save(&io, &crate::format::options());
        assert!(salvaged.is_complete(), "{salvaged}");
        let every = salvaged.tables.iter().find(|saved| saved.table == "every").expect("a table of every type");
        assert_eq!((every.rows, every.older, every.lost), (20, 0, 0));
    }
}

/// An image of rows is lost: the refusal names the table, and what the log alone knows is saved.
#[test]
fn a_lost_image_takes_its_rows_and_no_others() {
    let (io, options, expected) = written();
    let path = io.names().into_iter().rfind(|n| n.starts_with("/db/images-000001")).expect("a segment");
    let bytes = io.contents(&path).expect("a file");
    // The first image of records that is not the system table's.
    let heads = (0..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(b"FIMG"));
    let of_table = |at: &usize| bytes[at + 8] > 1 && bytes[at + 16] == 0;
    let at = heads.into_iter().find(of_table).expect("an image of the table");
    let damaged = with(&io, |io| io.flip_bit(&path, at as u64 + 100, 0).expect("the file is there"));
    let opened = Engine::open_with(Arc::new(damaged.clone()), MemClock::new(), options.clone());
    let Err(refused) = opened else { panic!("a damaged image is served") };
    assert!(refused.0.contains("1 pages are affected, of t"), "{refused}");
    let (salvaged, rows) = save(&damaged, &options);
    let rows = rows.expect("the catalog is whole");
    // Inserted after the checkpoint, into slots that were never used before.
    assert!(rows.iter().any(|row| row.0 == 300) && rows.iter().all(|row| expected.contains(row)), "{salvaged}");
    let of_page =
        salvaged.losses.iter().any(|loss| loss.table.as_deref() == Some("t") && loss.reason.contains("image"));
    assert!(of_page, "{salvaged}");
}

/// Runs one statement as a transaction of its own.
fn define<T>(session: &mut Session, define: impl FnOnce(&mut Session) -> Result<T, Stop>) -> T {
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let made = define(session).expect("is defined");
    session.commit().expect("commits");
    made
}

fn sequence(namespace: NamespaceId, name: &str, owner: Option<(TableId, u16)>) -> SequenceDef {
    let (ty, max) = (Type::Int8, i64::MAX);
    SequenceDef { namespace, name: name.into(), ty, start: 1, increment: 1, min: 1, max, cache: 1, cycle: false, owner }
}

fn table_of(namespace: NamespaceId, name: &str, columns: Vec<ColumnDef>) -> TableDef {
    TableDef { namespace, name: name.into(), columns, ..TableDef::default() }
}

fn put(session: &mut Session, table: TableId, numbers: &[i64]) {
    define(session, |s| {
        let table = s.schema().table_by_id(table).expect("created").clone();
        let mut row = Row::new(&table.layout);
        for (column, number) in numbers.iter().enumerate() {
            row.set(&table.layout, column, &Value::Int(*number));
        }
        s.insert(&table, &mut row).map(drop)
    });
}

/// A database with something of every kind, each of a commit of its own; and what a session that a crash ended left.
fn rich() -> (MemIo, Options) {
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, ..Options::small("/db") };
    let (io, clock) = (MemIo::new(), MemClock::new());
    let engine = Engine::open_with(Arc::new(io.clone()), clock.clone(), options.clone()).expect("opens");
    let session = &mut Session::new(&engine);
    let make = |session: &mut Session, def: TableDef, key: &str| {
        define(session, |s| s.create_table_with_id(def, vec![index(key, 0, IndexKind::Hash, true)]))
    };
    let id = || column("id", Type::Int8);
    define(session, |s| s.name_first_role(RoleDef::first("ann")));
    let group = define(session, |s| s.create_role(RoleDef { name: "readers".into(), ..RoleDef::default() }));
    let member_of = vec![Membership { of: group, grantor: RoleId::FIRST, admin: false }];
    let verifier = Some(Verifier("SCRAM-SHA-256$4096:salt$a:b".into()));
    let bob = RoleDef { name: "bob".into(), can_log_in: true, verifier, member_of, ..RoleDef::default() };
    let bob = define(session, |s| s.create_role(bob));
    let tenant = define(session, |s| s.create_namespace("tenant"));
    let temporary = define(session, |s| s.create_namespace("pg_temp_3"));
    let p = make(session, table_of(NamespaceId::PUBLIC, "p", vec![id(), column("n", Type::Int8)]), "p_pkey");
    (1..=3).for_each(|id| put(session, p, &[id, id]));
    let other = make(session, table_of(tenant, "p", vec![id()]), "p_pkey");
    put(session, other, &[7]);
    let left = make(session, table_of(temporary, "p", vec![id()]), "p_pkey");
    put(session, left, &[8]);
    let free = define(session, |s| {
        s.create_sequence(sequence(tenant, "free", None), SequenceValue { last: 41, is_called: true })
    });
    let default = Some("nextval('tenant.own'::regclass)".to_owned());
    let identity = ColumnDef { default, role: ColumnRole::IdentityAlways, ..id() };
    let parent_index = engine.schema().table_by_id(p).expect("created").indexes[0].id;
    let key = ConstraintKind::Foreign(ForeignKey {
        columns: vec![1],
        parent: p,
        parent_columns: vec![0],
        parent_index,
        full: false,
        on_update: Action::NoAction,
        on_delete: Action::Cascade,
        delete_columns: Vec::new(),
        deferrable: false,
        deferred: false,
    });
    let check = ConstraintKind::Check { condition: "n > 0".into(), columns: vec![1] };
    let constraint = |name: &str, kind| Constraint { id: 0, name: name.into(), kind, validated: true };
    let constraints = vec![constraint("own_fkey", key), constraint("own_check", check)];
    let def = TableDef {
        constraints,
        ..table_of(NamespaceId::PUBLIC, "own", vec![identity, ColumnDef { not_null: false, ..column("n", Type::Int8) }])
    };
    let own = make(session, def, "own_pkey");
    let owned = sequence(tenant, "own", Some((own, 0)));
    define(session, |s| s.create_sequence(owned, SequenceValue { last: 2, is_called: true }));
    (1..=2).for_each(|id| put(session, own, &[id, id]));
    let view = |name: &str, reads: Vec<u32>| ViewDef {
        name: name.into(),
        columns: vec![("id".into(), Some(Type::Int8))],
        query: "SELECT id FROM public.p".into(),
        reads,
        ..ViewDef::default()
    };
    let with_default = ViewDef { defaults: vec![(0, "7".into())], ..view("under", vec![p.0, free]) };
    let under = define(session, |s| s.create_view(with_default));
    define(session, |s| s.create_view(view("over", vec![under])));
    define(session, |s| s.set_comment(p.0, 2, Some("a number")));
    define(session, |s| s.set_comment(left.0, 0, Some("forgotten")));
    let grants = Some(vec![Grant { grantee: bob, grantor: RoleId::FIRST, privileges: 3, grantable: 1 }]);
    define(session, |s| s.set_rights(p.0, Rights { owner: group, grants }));
    define(session, |s| s.set_rights(2200, Rights { owner: bob, grants: None }));
    while engine.step() {}
    clock.advance_us(20_000);
    while engine.step() {}
    (io.crash(1), options)
}

/// Every definition with its id, and the rows of tables of numbers; nothing temporary.
fn everything(engine: &Engine) -> BTreeSet<String> {
    let schema = engine.schema();
    let is_temporary = |id: NamespaceId| schema.namespace_by_id(id).is_some_and(|n| n.name.starts_with("pg_temp_"));
    let mut all = BTreeSet::new();
    all.extend(schema.roles().map(|role| {
        let Role { id, def } = &**role;
        format!("role {id:?} {def:?} {:?}", def.verifier.as_ref().map(|verifier| &verifier.0))
    }));
    let named = schema.namespaces().filter(|n| !is_temporary(n.id));
    all.extend(named.map(|namespace| {
        let Namespace { id, name } = &**namespace;
        format!("schema {id:?} {name}")
    }));
    let mut gone = BTreeSet::new();
    for table in schema.tables() {
        if is_temporary(table.def.namespace) {
            gone.insert(table.id.0);
            continue;
        }
        let TableDef { namespace, name, columns, constraints, .. } = &table.def;
        all.insert(format!("table {:?} {namespace:?} {name} {columns:?} {constraints:?}", table.id));
        all.extend(table.indexes.iter().map(|i| format!("index {:?} of {:?} {:?}", i.id, table.id, i.def)));
        let mut session = engine.connect().expect("a place");
        session.begin(Isolation::RepeatableRead, true);
        session.begin_statement();
        let (mut cursor, mut row) = (TableCursor::default(), Row::default());
        while session.scan_next(table, &mut cursor, &mut row).is_some() {
            let values: Vec<_> = (0..columns.len()).map(|c| format!("{:?}", row.get(&table.layout, c))).collect();
            all.insert(format!("row of {:?}: {values:?}", table.id));
        }
    }
    all.extend(schema.sequences().map(|s| format!("sequence {} {:?} {:?}", s.id, s.def, s.state.value())));
    all.extend(schema.views().map(|view| {
        let View { id, def } = &**view;
        format!("view {id} {def:?}")
    }));
    let comments = schema.comments().filter(|(on, ..)| !gone.contains(on));
    all.extend(comments.map(|(on, column, text)| format!("comment on {on}.{column}: {text}")));
    all.extend(schema.all_rights().map(|(on, rights)| format!("rights on {on}: {rights:?}")));
    all
}

#[test]
fn definitions_are_saved_as_they_were() {
    let (io, options) = rich();
    let engine = Engine::open_with(Arc::new(io.crash(1)), MemClock::new(), options.clone()).expect("opens");
    let expected = everything(&engine);
    let (salvaged, new) = saved(&io, &options);
    assert_eq!(everything(&new), expected);
    assert!(salvaged.is_complete(), "{salvaged}");
    let names: Vec<_> = salvaged.tables.iter().map(|saved| saved.table.as_str()).collect();
    assert_eq!((names, salvaged.definitions), (vec!["p", "tenant.p", "own"], 11));
    let highest = expected.iter().filter_map(|line| line.strip_prefix("view ")?.split(' ').next()?.parse::<u32>().ok());
    let next = define(&mut Session::new(&new), |s| s.create_role(RoleDef { name: "new".into(), ..RoleDef::default() }));
    assert!(next.0 > highest.max().expect("views"), "ids go on above those that were saved");
}

/// The one that is there without a definition was dropped, and has no name; another has its name.
#[test]
fn a_schema_public_that_was_made_anew_is_saved_as_it_is() {
    let (io, clock, options) = (MemIo::new(), MemClock::new(), Options::small("/db"));
    let engine = Engine::open_with(Arc::new(io.clone()), clock.clone(), options.clone()).expect("opens");
    let session = &mut Session::new(&engine);
    define(session, |s| s.name_first_role(RoleDef::first("ann")));
    define(session, |s| s.drop_namespace(NamespaceId::PUBLIC));
    assert!(engine.schema().path().is_empty(), "names mean nothing now");
    let anew = define(session, |s| s.create_namespace("public"));
    let def = table_of(anew, "p", vec![column("id", Type::Int8)]);
    let table = define(session, |s| s.create_table_with_id(def, vec![index("p_pkey", 0, IndexKind::Hash, true)]));
    put(session, table, &[5]);
    while engine.step() {}
    clock.advance_us(20_000);
    while engine.step() {}
    let io = io.crash(1);
    let expected = everything(&engine);
    assert!(expected.contains(&format!("schema {anew:?} public")), "{expected:?}");
    let opened = Engine::open_with(Arc::new(io.crash(1)), MemClock::new(), options.clone()).expect("opens");
    let (salvaged, new) = saved(&io, &options);
    assert!(salvaged.is_complete(), "{salvaged}");
    for engine in [&opened, &new] {
        assert_eq!(everything(engine), expected);
        assert_eq!(engine.schema().table("p").map(|table| table.id), Some(table));
    }
}

/// Whatever one flipped bit takes: what is saved was there or is told of, what refers to nothing is not saved, and what is missing is told.
#[test]
fn definitions_that_are_lost_are_told() {
    let (io, options) = rich();
    let engine = Engine::open_with(Arc::new(io.crash(1)), MemClock::new(), options.clone()).expect("opens");
    let expected = everything(&engine);
    let (mut incomplete, mut told) = (0, String::new());
    for path in io.names().into_iter().filter(|path| !path.ends_with("lock")) {
        let bytes = io.contents(&path).expect("a file");
        let used: Vec<usize> = bytes.iter().enumerate().filter(|(_, b)| **b != 0).map(|(at, _)| at).collect();
        for &offset in used.iter().step_by(1 + used.len() / 150) {
            let damaged = with(&io, |io| io.flip_bit(&path, offset as u64, 2).expect("the file is there"));
            let (salvaged, new) = saved(&damaged, &options);
            check_references(&new);
            if everything(&new) != expected {
                assert!(!salvaged.is_complete(), "{} at {offset}: {salvaged}", path.display());
                incomplete += 1;
                told += &salvaged.to_string();
            }
        }
    }
    assert!(incomplete > 20, "{incomplete}");
    let told_of = [
        "the name of schema",
        "the default of column id: sequence own, which it asks, is lost",
        "foreign key own_fkey: the table that it refers to is lost",
        "foreign key own_fkey is broken by 1 rows: it is NOT VALID now",
        "view over: something that it reads is lost",
        "a role is lost",
        "memberships of roles that are lost",
        "a comment on object",
        "the owner of sequence tenant.own: its table is lost",
    ];
    let missing: Vec<_> = told_of.iter().filter(|line| !told.contains(**line)).collect();
    assert!(missing.is_empty(), "never told: {missing:?}");
}

/// Nothing leads nowhere.
fn check_references(engine: &Engine) {
    let schema = engine.schema();
    for (_, constraint, key) in schema.foreign_keys() {
        let parent = schema.table_by_id(key.parent).unwrap_or_else(|| panic!("{} leads nowhere", constraint.name));
        assert!(parent.indexes.iter().any(|index| index.id == key.parent_index));
    }
    let is_there = |id: u32| {
        schema.table_by_id(TableId(id)).is_some()
            || schema.view_by_id(id).is_some()
            || schema.sequence_by_id(id).is_some()
            || schema.namespace_by_id(NamespaceId(id)).is_some()
            || schema.tables().flat_map(|t| &t.indexes).any(|index| index.id == IndexId(id))
    };
    for view in schema.views() {
        assert!(view.def.reads.iter().all(|&id| is_there(id)), "{view:?}");
    }
    for sequence in schema.sequences() {
        assert!(sequence.def.owner.is_none_or(|(table, _)| schema.table_by_id(table).is_some()), "{sequence:?}");
    }
    let is_role = |id: RoleId| matches!(id.0, 0 | 10 | 6171) || schema.role(id).is_some();
    for (on, rights) in schema.all_rights() {
        let grants = rights.grants.iter().flatten();
        assert!(is_there(on) && is_role(rights.owner), "{on}: {rights:?}");
        assert!(grants.clone().all(|grant| is_role(grant.grantee) && is_role(grant.grantor)), "{rights:?}");
    }
    assert!(schema.roles().flat_map(|role| &role.def.member_of).all(|membership| is_role(membership.of)));
    assert!(schema.comments().all(|(on, ..)| is_there(on)));
    for table in schema.tables() {
        assert!(schema.namespace_by_id(table.def.namespace).is_some(), "{:?}", table.def);
        if table.def.columns.iter().any(|column| column.default.is_some()) {
            assert!(schema.sequences().any(|sequence| sequence.def.name == "own"), "a default asks what is lost");
        }
    }
}

#[test]
fn what_a_salvage_leaves_half_done_does_not_open() {
    let (io, options) = rich();
    let source: Arc<dyn Io> = Arc::new(io);
    let target = MemIo::new();
    let open = |in_making| {
        let options = Options { in_making, ..Options::small("/new") };
        Engine::open_with(Arc::new(target.clone()), MemClock::new(), options)
    };
    let engine = open(true).expect("opens");
    drop(engine);
    let (salvaged, _) = saved(&target, &Options::small("/new"));
    assert!(!salvaged.is_complete() && salvaged.to_string().contains("half done"), "{salvaged}");
    for in_making in [false, true] {
        let refused = open(in_making).expect_err("nobody has finished it").to_string();
        assert!(refused.contains("/new is what a salvage left half done"), "{refused}");
    }
    target.names().iter().for_each(|path| target.lose(path));
    let engine = open(true).expect("it is empty");
    salvage(&source, &subject(&options), &engine, &mut |_| {}).expect("salvages");
    drop(engine);
    open(false).expect("it is a database");
}
