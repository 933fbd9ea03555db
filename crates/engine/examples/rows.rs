//! The row API by hand: load, read by key, durable update with many transactions in flight.
//! `cargo run --release -p freshet-engine --example rows -- [rows] [dir]`

use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::{Cts, RowId};
use freshet_engine::schema::{KeyColumn, Row, Type, Value};
use freshet_engine::txn::{Isolation, Session, Stop};
use std::collections::VecDeque;
use std::time::Instant;

fn until<T>(mut work: impl FnMut() -> Result<T, Stop>) -> T {
    loop {
        match work() {
            Ok(done) => return done,
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(Stop::Error(error)) => panic!("{error}"),
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rows: i64 = args.next().map_or(1_000_000, |a| a.parse().expect("a number of rows"));
    let dir = args.next().unwrap_or_else(|| "/tmp/freshet-rows".into());
    let _ = std::fs::remove_dir_all(&dir);
    let engine = Engine::open(Options::new(&dir)).expect("opens");
    let mut session = engine.connect().expect("a place");
    let names =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u"];
    let columns = names
        .iter()
        .map(|n| ColumnDef { name: n.to_string(), ty: Type::Int8, not_null: true, default: None })
        .collect();
    session.begin(Isolation::ReadCommitted, false);
    session.begin_statement();
    let key = vec![KeyColumn { column: 0, descending: false }];
    let index = IndexDef { name: "t_pkey".into(), kind: IndexKind::Hash, unique: true, primary: true, columns: key };
    until(|| session.create_table(TableDef { name: "t".into(), columns: Vec::clone(&columns) }, vec![index.clone()]));
    until(|| session.commit());
    load(&mut session, rows);
    let stats = engine.stats();
    println!(
        "memory: {:.3} of raw ({} page, {} index, {} version bytes)",
        (stats.page_bytes + stats.index_bytes) as f64 / (rows as f64 * 168.0),
        stats.page_bytes,
        stats.index_bytes,
        stats.version_bytes
    );
    search(&mut session, rows);
    update(&engine, &mut session, rows);
}

fn load(session: &mut Session, rows: i64) {
    let start = Instant::now();
    let table = session.schema().table("t").expect("created").clone();
    let mut row = Row::new(&table.layout);
    for id in 0..rows {
        if id % 1000 == 0 {
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
        }
        row.reset(&table.layout);
        for column in 0..21 {
            row.set(&table.layout, column, &Value::Int(id * 31 + column as i64));
        }
        row.set(&table.layout, 0, &Value::Int(id));
        until(|| session.insert(&table, &mut row));
        if id % 1000 == 999 || id == rows - 1 {
            until(|| session.commit());
        }
    }
    println!("load: {:.0} rows/s", rows as f64 / start.elapsed().as_secs_f64());
}

fn search(session: &mut Session, rows: i64) {
    let (start, count) = (Instant::now(), 2_000_000);
    let mut row = Row::default();
    let mut state = 88172645463325252u64;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let id = (state % rows as u64) as i64;
        session.begin_read();
        let table = session.schema().table("t").expect("created").clone();
        let found = session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut row);
        assert!(found.is_some());
        until(|| session.commit());
    }
    println!("search: {:.0} /s", f64::from(count) / start.elapsed().as_secs_f64());
}

fn update(engine: &Engine, session: &mut Session, rows: i64) {
    let (start, count) = (Instant::now(), 2_000_000);
    let before = engine.stats();
    let table = session.schema().table("t").expect("created").clone();
    let (mut old, mut new) = (Row::default(), Row::default());
    let mut flying: VecDeque<Cts> = VecDeque::new();
    let mut state = 88172645463325252u64;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let id = (state % rows as u64) as i64;
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let at: RowId =
            session.get(&table, &table.indexes[0], |_| Value::Int(id), &mut old).expect("every row is there");
        until(|| session.lock(&table, at, &mut old));
        new.copy_from(&old);
        let Value::Int(n) = old.get(&table.layout, 5) else { panic!("not null") };
        new.set(&table.layout, 5, &Value::Int(n + 1));
        until(|| session.update(&table, at, &old, &mut new));
        flying.push_back(until(|| session.commit()).cts);
        while flying.front().is_some_and(|&c| engine.is_durable(c)) {
            flying.pop_front();
        }
        if flying.len() >= 1000 {
            engine.wait_durable(flying.pop_front().expect("1000 are flying")).wait().expect("the log works");
        }
    }
    engine.wait_durable(*flying.back().expect("the last")).wait().expect("the log works");
    let seconds = start.elapsed().as_secs_f64();
    let stats = engine.stats();
    println!(
        "update: {:.0} /s, {:.0} log bytes each, {} flushes, version bytes {}",
        f64::from(count) / seconds,
        (stats.commit_record_bytes - before.commit_record_bytes) as f64 / f64::from(count),
        stats.flushes - before.flushes,
        stats.version_bytes,
    );
}
