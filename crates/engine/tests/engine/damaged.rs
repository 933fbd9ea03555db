//! A small database to damage, for checks and salvages.

use crate::world::{LONG, begin, commit_insert, create, delete, set_n};
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::Subject;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{Isolation, TableCursor};
use std::sync::Arc;

/// Id, number, note.
pub type Rows = Vec<(i64, i64, Vec<u8>)>;

pub fn subject(options: &Options) -> Subject {
    Subject {
        data_dir: options.data_dir.clone(),
        log_dirs: options.log_dirs.clone(),
        retired_log_dirs: options.retired_log_dirs.clone(),
        backup_dirs: options.backup_dirs.clone(),
    }
}

/// Two incarnations of table t, a checkpoint between, long values, deleted and reused rows, and a witness at the end.
pub fn written() -> (MemIo, Options, Rows) {
    let options = Options { stage_limit_bytes: 160 << 10, segment_bytes: 256 << 10, ..Options::small("/db") };
    let clock = MemClock::new();
    let mut io = MemIo::new();
    let open = |io: &MemIo| Engine::open_with(Arc::new(io.clone()), clock.clone(), options.clone()).expect("opens");
    let engine = open(&io);
    let mut session = crate::world::Session::new(&engine);
    create(&mut session, IndexKind::Hash);
    let ids: Vec<_> = (0..6).map(|id| commit_insert(&mut session, id, id * 10, LONG)).collect();
    commit_insert(&mut session, 100, 1, &LONG.repeat(900));
    begin(&mut session, Isolation::ReadCommitted);
    delete(&mut session, ids[0]).expect("deletes");
    session.commit().expect("commits");
    engine.checkpoint().expect("a checkpoint");
    commit_insert(&mut session, 200, 2, LONG);
    while engine.step() {}
    drop((session, engine));
    io = io.crash(1);
    let engine = open(&io);
    let mut session = crate::world::Session::new(&engine);
    for (id, n) in [(1, 71), (1, 72), (2, 73)] {
        begin(&mut session, Isolation::ReadCommitted);
        set_n(&mut session, ids[id], n).expect("updates");
        session.commit().expect("commits");
        while engine.step() {}
    }
    commit_insert(&mut session, 300, 3, LONG);
    while engine.step() {}
    clock.advance_us(20_000);
    while engine.step() {}
    let rows = contents(&engine);
    drop((session, engine));
    (io.crash(2), options, rows)
}

/// Every row of the table, in the order of ids.
pub fn contents(engine: &Engine) -> Rows {
    let mut session = engine.connect().expect("a place");
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = session.schema().table("t").expect("created").clone();
    let (mut cursor, mut row, mut rows) = (TableCursor::default(), Row::default(), Vec::new());
    while session.scan_next(&table, &mut cursor, &mut row).is_some() {
        session.fetch_long(&table, &mut row, 2);
        let number = |column| match row.get(&table.layout, column) {
            Value::Int(n) => n,
            other => panic!("a number, not {other:?}"),
        };
        let Value::Bytes(note) = row.get(&table.layout, 2) else { panic!("a note is set") };
        rows.push((number(0), number(1), note.to_vec()));
    }
    rows.sort();
    rows
}
