//! The on-disk formats: a directory written by any format version opens and reads right for ever, and what this version does not know it refuses.
//!
//! A fixture `tests/fixtures/v*.pack` holds the files of such a directory without their zeros:
//!
//! | field | bytes |
//! |---|---|
//! | per file: length of name, name | 2, so many |
//! | length of file | 8 |
//! | sectors | 4 |
//! | per sector: offset, content | 8, 512 |
//!
//! `FRESHET_WRITE_FIXTURE=path cargo test -p freshet-engine --test engine format` writes a new one, for a new version only.

use crate::world::{column, index};
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
use freshet_engine::engine::{Engine, OpenError, Options};
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{KeyColumn, Row, Type, Value};
use freshet_engine::txn::{Isolation, Session, TableCursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;
/// One file of images in the data directory; segments of images in two backup directories, some pages imaged again.
const FIXTURES: [&[u8]; 2] = [include_bytes!("../fixtures/v1.pack"), include_bytes!("../fixtures/v2.pack")];

pub fn options() -> Options {
    Options {
        log_dirs: vec![PathBuf::from("/log0"), PathBuf::from("/log1")],
        backup_dirs: vec![PathBuf::from("/backup0"), PathBuf::from("/backup1")],
        stage_limit_bytes: 160 << 10,
        segment_bytes: 256 << 10,
        log_size_bytes: 2 << 20,
        ..Options::small("/db")
    }
}

fn open(io: &MemIo) -> Result<Engine, OpenError> {
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options())
}

fn types() -> Vec<Type> {
    vec![
        Type::Int8,
        Type::Bool,
        Type::Int2,
        Type::Int4,
        Type::Float4,
        Type::Float8,
        Type::Decimal { precision: 9, scale: 2 },
        Type::Decimal { precision: 18, scale: 4 },
        Type::Decimal { precision: 38, scale: 10 },
        Type::Char(20),
        Type::Varchar(2000),
        Type::Text,
        Type::Bytea,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::Timestamptz,
        Type::Uuid,
    ]
}

/// The `id`-th row's column, of every kind now and then: null, short, long, in pieces, negative.
fn value(ty: Type, id: i64, text: &mut Vec<u8>) -> Value<'_> {
    let sign = if id % 2 == 0 { 1 } else { -1 };
    match ty {
        Type::Int8 => Value::Int(id),
        _ if id % 7 == 3 => Value::Null,
        Type::Bool => Value::Bool(id % 3 == 0),
        Type::Float4 => Value::Float((sign * id) as f64 * 0.5),
        Type::Float8 => Value::Float((sign * id) as f64 / 3.0),
        Type::Decimal { .. } => Value::Decimal(i128::from(sign * id) * 1001),
        Type::Uuid => Value::Uuid(id as u128 * 0x1_0000_0001_0000_0001),
        Type::Char(_) | Type::Varchar(_) | Type::Text | Type::Bytea => {
            let length = match (ty, id % 5) {
                (Type::Char(_), rest) => rest as usize * 4,
                (_, 0) => 0,
                (_, 1) => 12,
                (_, 2) => 13,
                (Type::Bytea, 4) if id == 9 => 70_000,
                (_, rest) => rest as usize * 300,
            };
            text.clear();
            // The value in pieces is mostly zeros, which the fixture need not hold.
            let byte = |i: usize| {
                if length == 70_000 && !i.is_multiple_of(5000) { 0 } else { b'a' + ((i as i64 * 7 + id) % 26) as u8 }
            };
            text.extend((0..length).map(byte));
            Value::Bytes(text)
        }
        _ => Value::Int(sign * id * 100),
    }
}

fn row(layout: &freshet_engine::schema::Layout, id: i64, stamp: i64) -> Row {
    let mut row = Row::new(layout);
    let mut text = Vec::new();
    for (column, ty) in types().into_iter().enumerate() {
        // The second Int column says which update wrote the row.
        let value = if column == 3 { Value::Int(stamp) } else { value(ty, id, &mut text) };
        row.set(layout, column, &value);
    }
    row
}

/// Row ids and stamps that the fixture holds.
fn expected() -> Vec<(i64, i64)> {
    (0..24).filter(|id| id % 6 != 5).map(|id| (id, if id % 4 == 0 { 2 } else { 1 })).collect()
}

fn commit(engine: &Engine, session: &mut Session, mut statement: impl FnMut(&mut Session)) {
    while engine.step() {}
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    statement(session);
    session.commit().expect("commits");
    while engine.step() {}
}

/// Writes a database with everything that the formats know: a checkpoint and a log behind it, two devices, an older incarnation, fragments,
/// pieces, dropped and truncated tables, deletes, every type and kind of index.
fn write() -> MemIo {
    let mut io = MemIo::new();
    let mut engine = open(&io).expect("opens");
    let mut sessions = [0, 1].map(|_| engine.connect().expect("a place"));
    let columns: Vec<ColumnDef> = types().into_iter().enumerate().map(|(i, ty)| column(&format!("c{i}"), ty)).collect();
    let columns = columns.into_iter().map(|c| ColumnDef { default: (c.name == "c3").then(|| "1 + 2".into()), ..c });
    let def = TableDef { name: "every".into(), columns: columns.collect(), ..Default::default() };
    let both = [(11u16, true), (0, false)].map(|(column, descending)| KeyColumn { column, descending });
    let indexes = vec![
        index("every_pkey", 0, IndexKind::Hash, true),
        IndexDef { columns: both.into(), ..index("every_text", 11, IndexKind::BTree, false) },
    ];
    commit(&engine, &mut sessions[0], |s| s.create_table(def.clone(), indexes.clone()).expect("creates"));
    for name in ["gone", "emptied"] {
        let def = TableDef { name: name.into(), columns: vec![column("id", Type::Int8)], ..Default::default() };
        commit(&engine, &mut sessions[0], |s| s.create_table(def.clone(), Vec::new()).expect("creates"));
        commit(&engine, &mut sessions[0], |s| {
            let table = s.schema().table(name).expect("created").clone();
            let mut row = Row::new(&table.layout);
            row.set(&table.layout, 0, &Value::Int(1));
            s.insert(&table, &mut row).expect("inserts");
        });
    }
    let mut places = Vec::new();
    for id in 0..24 {
        commit(&engine, &mut sessions[id as usize % 2], |s| {
            let table = s.schema().table("every").expect("created").clone();
            places.push(s.insert(&table, &mut row(&table.layout, id, 1)).expect("inserts"));
        });
        if id == 7 {
            engine.checkpoint().expect("a checkpoint");
        }
        if id == 12 {
            engine.checkpoint().expect("a checkpoint");
            commit(&engine, &mut sessions[0], |s| s.drop_table("gone").expect("drops"));
            commit(&engine, &mut sessions[0], |s| s.truncate("emptied").expect("truncates"));
            drop(sessions);
            io = io.crash(5);
            engine = open(&io).expect("opens");
            sessions = [0, 1].map(|_| engine.connect().expect("a place"));
        }
    }
    for id in 0..24i64 {
        commit(&engine, &mut sessions[id as usize % 2], |s| {
            let table = s.schema().table("every").expect("created").clone();
            let mut old = Row::default();
            s.lock(&table, places[id as usize], &mut old).expect("nobody else has it");
            if id % 6 == 5 {
                s.delete(&table, places[id as usize], &old).expect("deletes");
            } else if id % 4 == 0 {
                let mut new = old.clone();
                new.set(&table.layout, 3, &Value::Int(2));
                s.update(&table, places[id as usize], &old, &mut new).expect("updates");
            }
        });
    }
    io.crash(11)
}

fn check(engine: &Engine) {
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let schema = session.schema().clone();
    assert!(schema.table("gone").is_none());
    let emptied = schema.table("emptied").expect("truncated, not dropped");
    assert!(session.scan_next(emptied, &mut TableCursor::default(), &mut Row::default()).is_none());
    let table = schema.table("every").expect("created").clone();
    assert_eq!(table.def.columns.iter().map(|c| c.ty).collect::<Vec<_>>(), types());
    assert_eq!(table.def.columns[3].default.as_deref(), Some("1 + 2"));
    assert_eq!(table.indexes.len(), 2);
    assert!(table.indexes[0].def.unique && table.indexes[1].def.columns[0].descending);
    let mut seen = Row::default();
    for (id, stamp) in expected() {
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut seen);
        assert!(found.is_some(), "row {id}");
        let wanted = row(&table.layout, id, stamp);
        for column in 0..types().len() {
            session.fetch_long(&table, &mut seen, column);
            assert_eq!(seen.get(&table.layout, column), wanted.get(&table.layout, column), "row {id}, column {column}");
        }
    }
    let (mut cursor, mut count) = (TableCursor::default(), 0);
    while session.scan_next(&table, &mut cursor, &mut seen).is_some() {
        count += 1;
    }
    assert_eq!(count, expected().len());
    session.commit().map(drop).expect("a read commits");
}

fn pack(io: &MemIo) -> Vec<u8> {
    let mut out = Vec::new();
    for path in io.names() {
        let name = path.to_str().expect("names are ASCII");
        let bytes = io.contents(&path).expect("a file");
        let sectors: Vec<_> = bytes.chunks(SECTOR).enumerate().filter(|(_, s)| s.iter().any(|b| *b != 0)).collect();
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&(sectors.len() as u32).to_le_bytes());
        for (at, sector) in sectors {
            out.extend_from_slice(&((at * SECTOR) as u64).to_le_bytes());
            out.extend_from_slice(sector);
            out.resize(out.len() + SECTOR - sector.len(), 0);
        }
    }
    out
}

fn unpack(mut packed: &[u8]) -> MemIo {
    fn take<'a>(packed: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (taken, rest) = packed.split_at(count);
        *packed = rest;
        taken
    }
    fn number(packed: &mut &[u8], bytes: usize) -> usize {
        take(packed, bytes).iter().rev().fold(0, |n, b| n << 8 | usize::from(*b))
    }
    let io = MemIo::new();
    while !packed.is_empty() {
        let length = number(&mut packed, 2);
        let path = PathBuf::from(std::str::from_utf8(take(&mut packed, length)).expect("names are ASCII"));
        let length = number(&mut packed, 8);
        let mut bytes = vec![0; length.next_multiple_of(SECTOR)];
        for _ in 0..number(&mut packed, 4) {
            let at = number(&mut packed, 8);
            bytes[at..at + SECTOR].copy_from_slice(take(&mut packed, SECTOR));
        }
        bytes.truncate(length);
        io.create_dir_all(path.parent().expect("files lie in directories")).expect("a directory");
        io.replace(&path, &bytes);
    }
    io
}

pub fn fixtures() -> [MemIo; 2] {
    FIXTURES.map(unpack)
}

#[test]
fn a_database_of_any_format_version_opens_and_reads_right() {
    if let Ok(path) = std::env::var("FRESHET_WRITE_FIXTURE") {
        std::fs::write(path, pack(&write())).expect("writes the fixture");
    }
    for io in fixtures().into_iter().chain([write()]) {
        check(&open(&io).expect("opens"));
        let io = io.crash(1);
        let engine = open(&io).expect("opens again");
        check(&engine);
        engine.checkpoint().expect("a checkpoint");
        drop(engine);
        let after = io.crash(2);
        assert_eq!(after.contents(Path::new("/db/manifest")).expect("there is one")[8], 2, "it is of this version now");
        check(&open(&after).expect("opens after"));
    }
}

#[test]
fn unknown_versions_are_refused_by_name() {
    // Where each file says its version.
    let fence = Path::new("/db/fence");
    let manifest = Path::new("/db/manifest");
    for (path, offset) in [(manifest, 8), (fence, 8), (Path::new("/log0/fence"), 8)] {
        let io = unpack(FIXTURES[1]);
        let mut bytes = io.contents(path).expect("the file is there");
        bytes[offset] = 99;
        if path != manifest {
            // A fence is believed only with a right checksum: over its first block, where it lies itself taken as zero.
            bytes[12..16].fill(0);
            let crc = crc32c::crc32c(&bytes[..4096]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        io.replace(path, &bytes);
        let Err(refused) = open(&io) else { panic!("an unknown version in {} went unnoticed", path.display()) };
        assert!(refused.0.contains("version"), "{}: {refused}", path.display());
    }
}
