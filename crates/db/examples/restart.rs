//! A restart by hand: `make` fills a database of 168-byte rows, checkpoints it and logs updates; `open` times the way back.
//! `cargo run --release -p freshet-db --no-default-features --example restart -- make|open DIR [rows updates|threads]`

use freshet_db::{Database, Datum, Options, Ticket};
use std::collections::VecDeque;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: i64| args.get(i).map_or(Ok(or), |a| a.parse::<i64>());
    match (args.first().map(String::as_str), args.get(1)) {
        (Some("make"), Some(dir)) => {
            make(dir, number(2, 8_000_000)?, number(3, 10_000_000)?, args.get(4).map_or("hash", |k| k))
        }
        (Some("tables"), Some(dir)) => tables(dir, number(2, 1000)?),
        (Some("open"), Some(dir)) => open(dir, number(2, 0)? as usize),
        _ => Err("make DIR [rows] [updates] [hash|btree], tables DIR [n], or open DIR [threads]".into()),
    }
}

fn options(dir: &str) -> Options {
    let mut options = Options::new(dir);
    options.memory_limit_bytes = 12 << 30;
    options.log_size_bytes = 6 << 30;
    options
}

fn make(dir: &str, rows: i64, updates: i64, kind: &str) -> Result<()> {
    let db = Database::open(options(dir))?;
    let mut session = db.session()?;
    let columns: Vec<String> = (1..21).map(|i| format!("c{i} bigint not null")).collect();
    session
        .run(&format!("create table t (id bigint primary key, {}) with (primary_key = {kind})", columns.join(", ")))?;
    let marks: Vec<String> = (1..22).map(|i| format!("${i}")).collect();
    let insert = session.prepare(&format!("insert into t values ({})", marks.join(", ")))?;
    let mut values = vec![Datum::Int(0); 21];
    for batch in 0..(rows + 999) / 1000 {
        let mut transaction = session.begin()?;
        for id in batch * 1000..rows.min(batch * 1000 + 1000) {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = Datum::Int(id * 31 + i as i64));
            values[0] = Datum::Int(id);
            transaction.execute(&insert, &values)?;
        }
        transaction.commit_ticket()?;
    }
    let start = Instant::now();
    session.run("checkpoint")?;
    println!("checkpoint: {:.2} s", start.elapsed().as_secs_f64());
    let update = session.prepare("update t set c5 = c5 + 1 where id = $1")?;
    let mut flying: VecDeque<Ticket> = VecDeque::new();
    let mut key = 362_436_069_362_436_069u64;
    for _ in 0..updates {
        key ^= key << 13;
        key ^= key >> 7;
        key ^= key << 17;
        let (_, ticket) = session.execute_ticket(&update, &[Datum::Int((key % rows as u64) as i64)])?;
        flying.push_back(ticket);
        if flying.len() >= 1000 {
            db.wait(flying.pop_front().expect("there are as many in flight"))?;
        }
    }
    println!("{:?}", db.stats());
    Ok(())
}

fn tables(dir: &str, count: i64) -> Result<()> {
    let db = Database::open(options(dir))?;
    let mut session = db.session()?;
    for i in 0..count {
        session.run(&format!("create table t{i} (id bigint primary key, n int, note text)"))?;
        session.run(&format!("insert into t{i} values (1, 2, 'three')"))?;
    }
    Ok(())
}

fn open(dir: &str, threads: usize) -> Result<()> {
    let start = Instant::now();
    let db = Database::open(Options { recovery_threads: threads, ..options(dir) })?;
    println!("open: {:.3} s", start.elapsed().as_secs_f64());
    let stats = db.engine().recovery();
    for (name, part) in [
        ("scan", stats.scan),
        ("images", stats.images),
        ("replay", stats.replay),
        ("restore", stats.restore),
        ("rebuild", stats.rebuild),
    ] {
        println!(
            "{name:>8}: {:7.3} s {:8.1} MB/s {:9.3} M/s  {part:?}",
            part.elapsed_us as f64 / 1e6,
            part.bytes_per_s() as f64 / 1e6,
            part.items_per_s() as f64 / 1e6
        );
    }
    println!("{stats:?}");
    let mut session = db.session()?;
    if session.run("select 1 from t where id = 1").is_ok() {
        println!("first answer: {:.3} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
