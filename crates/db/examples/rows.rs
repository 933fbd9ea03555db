//! The 168-byte table of P*TIME through prepared SQL on one thread: load, select by key, durable update with 1,000
//! transactions in flight, memory against the raw bytes. Reports; asserts only that the data is right.
//! `cargo run --release -p freshet-db --no-default-features --example rows -- [rows] [dir]`

use freshet_db::{Database, Datum, Options, Session, Statement, Ticket};
use std::collections::VecDeque;
use std::time::Instant;

const RECORD_BYTES: f64 = 168.0;
const OPERATIONS: u32 = 2_000_000;
const IN_FLIGHT: usize = 1_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rows: i64 = args.next().map_or(Ok(8_000_000), |a| a.parse())?;
    let dir = args.next().unwrap_or_else(|| "freshet-data/rows".into());
    if std::path::Path::new(&dir).exists() {
        return Err(format!("{dir} exists; name another directory").into());
    }
    let db = Database::open(Options::new(&dir))?;
    let mut session = db.session()?;
    let columns: Vec<String> = (1..21).map(|i| format!("c{i} bigint not null")).collect();
    let table = format!("create table t (id bigint primary key, {}) with (primary_key = hash)", columns.join(", "));
    session.run(&table)?;
    load(&mut session, rows)?;
    let stats = db.stats();
    let used = (stats.page_bytes + stats.index_bytes) as f64;
    println!("memory: {:.3} of the raw record bytes with the hash index", used / (rows as f64 * RECORD_BYTES));
    search(&mut session, rows)?;
    update(&db, &mut session, rows)
}

/// Rows by key in the order that memory likes least.
struct Keys(u64, i64);

impl Iterator for Keys {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some((self.0 % self.1 as u64) as i64)
    }
}

fn load(session: &mut Session, rows: i64) -> Result<()> {
    let start = Instant::now();
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
    println!("load: {:.0} rows/s", rows as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn search(session: &mut Session, rows: i64) -> Result<()> {
    let select = session.prepare("select c5 from t where id = $1")?;
    let start = Instant::now();
    for id in Keys(88_172_645_463_325_252, rows).take(OPERATIONS as usize) {
        let found = session.query(&select, &[Datum::Int(id)])?;
        assert_eq!(found.len(), 1);
        assert_eq!(found.get(0, 0), freshet_db::Value::Int(id * 31 + 5));
    }
    println!("select by key: {:.0} /s", f64::from(OPERATIONS) / start.elapsed().as_secs_f64());
    Ok(())
}

fn update(db: &Database, session: &mut Session, rows: i64) -> Result<()> {
    let update: Statement = session.prepare("update t set c5 = c5 + 1 where id = $1")?;
    let sum = session.prepare("select cast(sum(c5) as bigint) from t")?;
    let before = session.query(&sum, &[])?.i64(0, 0).ok_or("no rows")?;
    let stats_before = db.stats();
    let start = Instant::now();
    let mut flying: VecDeque<Ticket> = VecDeque::new();
    for id in Keys(362_436_069_362_436_069, rows).take(OPERATIONS as usize) {
        let (changed, ticket) = session.execute_ticket(&update, &[Datum::Int(id)])?;
        assert_eq!(changed, 1);
        flying.push_back(ticket);
        while flying.front().is_some_and(|&t| db.is_durable(t)) {
            flying.pop_front();
        }
        if flying.len() >= IN_FLIGHT {
            db.wait(flying.pop_front().expect("there are as many in flight"))?;
        }
    }
    db.wait(*flying.back().ok_or("nothing is in flight")?)?;
    let seconds = start.elapsed().as_secs_f64();
    let stats = db.stats();
    let bytes = stats.commit_record_bytes - stats_before.commit_record_bytes;
    println!(
        "durable update, {IN_FLIGHT} in flight: {:.0} /s, {:.0} log bytes each, {} flushes",
        f64::from(OPERATIONS) / seconds,
        bytes as f64 / f64::from(OPERATIONS),
        stats.flushes - stats_before.flushes
    );
    let after = session.query(&sum, &[])?.i64(0, 0).ok_or("no rows")?;
    assert_eq!(after - before, i64::from(OPERATIONS), "every update is there once");
    Ok(())
}
