//! How fast do many embedded sessions write? Threads that each drive their share of the sessions, a session busy until its commit is durable.
//! Reports; asserts only that the data is right.
//! `cargo run --release -p freshet-db --no-default-features --example writers -- DIR [ROWS] [SECONDS] [CASE...]`
//!
//! A case is `WHAT:THREADS:SESSIONS`, WHAT one of update, fly (never waits), deferred, native, hot, hot10, insert, delete, select, mix90, mix50, mix10 (percent of searches).

use freshet_db::{Database, Datum, Options, Session, Ticket};
use freshet_engine::ids::Cts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().ok_or("name a directory")?.clone();
    let rows: i64 = args.get(1).map_or(Ok(2_000_000), |a| a.parse())?;
    let seconds: f64 = args.get(2).map_or(Ok(3.0), |a| a.parse())?;
    let mut cases: Vec<String> = args.into_iter().skip(3).collect();
    if cases.is_empty() {
        cases.push("update:2:4800".into());
    }
    let mut options = Options::new(&dir);
    if let Ok(devices) = std::env::var("DEVICES") {
        options.log_dirs =
            (0..devices.parse()?).map(|i: u32| format!("{}/log-{i}", options.data_dir.display()).into()).collect();
    }
    let db = Database::open(options)?;
    load(&db, rows)?;
    for case in &cases {
        let parts: Vec<&str> = case.split(':').collect();
        let [what, threads, sessions] = parts[..] else { return Err("WHAT:THREADS:SESSIONS".into()) };
        run(&db, what, threads.parse()?, sessions.parse()?, rows, seconds)?;
    }
    drop(db);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn load(db: &Database, rows: i64) -> Result<()> {
    let start = Instant::now();
    let mut session = db.session()?;
    let columns: Vec<String> = (1..21).map(|i| format!("c{i} bigint not null")).collect();
    session
        .run(&format!("create table t (id bigint primary key, {}) with (primary_key = hash)", columns.join(", ")))?;
    let marks: Vec<String> = (1..22).map(|i| format!("${i}")).collect();
    let insert = session.prepare(&format!("insert into t values ({})", marks.join(", ")))?;
    let mut values = vec![Datum::Int(0); 21];
    let mut last = Ticket(Cts::ZERO);
    for batch in 0..(rows + 999) / 1000 {
        let mut transaction = session.begin()?;
        for id in batch * 1000..rows.min(batch * 1000 + 1000) {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = Datum::Int(id * 31 + i as i64));
            values[0] = Datum::Int(id);
            transaction.execute(&insert, &values)?;
        }
        last = transaction.commit_ticket()?;
    }
    db.wait(last)?;
    println!("load: {:.0} rows/s", rows as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The next key to insert or delete.
static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
static NEXT_DELETE: AtomicU64 = AtomicU64::new(1 << 40);

struct Tally {
    done: u64,
    cpu_ns: u64,
    updates: u64,
    latencies_us: Vec<u32>,
}

fn run(db: &Database, what: &str, threads: usize, sessions: usize, rows: i64, seconds: f64) -> Result<()> {
    let mut session = db.session()?;
    let sum = session.prepare("select cast(sum(c5) as bigint) from t")?;
    let before = session.query(&sum, &[])?.i64(0, 0).ok_or("no rows")?;
    let stats_before = db.stats();
    let cpu_before = cpu_us();
    let start = Instant::now();
    let tallies: Vec<Result<Tally>> = std::thread::scope(|scope| {
        let drive =
            |thread: usize| scope.spawn(move || drive(db, what, thread as u64, sessions / threads, rows, seconds));
        let handles: Vec<_> = (0..threads).map(drive).collect();
        handles.into_iter().map(|h| h.join().expect("a driver does not panic")).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let cpu = cpu_us() - cpu_before;
    let tallies: Vec<Tally> = tallies.into_iter().collect::<Result<_>>()?;
    let done: u64 = tallies.iter().map(|t| t.done).sum();
    let updates: u64 = tallies.iter().map(|t| t.updates).sum();
    let driver_ns: u64 = tallies.iter().map(|t| t.cpu_ns).sum();
    let mut latencies: Vec<u32> = tallies.into_iter().flat_map(|t| t.latencies_us).collect();
    latencies.sort_unstable();
    let at = |p: f64| latencies.get((latencies.len() as f64 * p) as usize).copied().unwrap_or(0);
    let stats = db.stats();
    let (bytes, overhead) = (
        stats.commit_record_bytes - stats_before.commit_record_bytes,
        stats.group_overhead_bytes - stats_before.group_overhead_bytes,
    );
    println!(
        "{what}:{threads}:{sessions}: {:.0} /s, {:.0} ns cpu each, {:.0} of the drivers, p50 {} p99 {} max {} us, {:.1} log bytes each + {:.1} overhead, {} flushes of {:.0} us",
        done as f64 / elapsed,
        cpu as f64 * 1000.0 / done as f64,
        driver_ns as f64 / done as f64,
        at(0.5),
        at(0.99),
        at(0.999999),
        bytes as f64 / done as f64,
        overhead as f64 / done as f64,
        stats.flushes - stats_before.flushes,
        elapsed * 1e6 / (stats.flushes - stats_before.flushes).max(1) as f64,
    );
    let after = session.query(&sum, &[])?.i64(0, 0).ok_or("no rows")?;
    if !matches!(what, "insert" | "delete") {
        assert_eq!(after - before, updates as i64, "every update is there once");
    }
    Ok(())
}

fn thread_cpu_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields.get(11..13).map_or(0, |t| t.iter().filter_map(|f| f.parse::<u64>().ok()).sum());
    ticks * 10_000
}

/// Sessions in a ring: the next one is busy until its commit is durable, and those behind it are no sooner.
fn drive(db: &Database, what: &str, thread: u64, sessions: usize, rows: i64, seconds: f64) -> Result<Tally> {
    let mut ring: Vec<(Session, Ticket, Instant)> = Vec::new();
    for _ in 0..sessions {
        ring.push((db.session()?, Ticket(Cts::ZERO), Instant::now()));
    }
    if what == "deferred" {
        for (session, ..) in &mut ring {
            session.run("set synchronous_commit = off")?;
        }
    }
    let first = &mut ring[0].0;
    let update = first.prepare("update t set c5 = c5 + 1 where id = $1")?;
    let select = first.prepare("select c5 from t where id = $1")?;
    let delete = first.prepare("delete from t where id = $1")?;
    let marks: Vec<String> = (1..22).map(|i| format!("${i}")).collect();
    let insert = first.prepare(&format!("insert into t values ({})", marks.join(", ")))?;
    let mut values = vec![Datum::Int(0); 21];
    let share = what.strip_prefix("mix").map_or(0, |p| p.parse::<u64>().unwrap_or(0));
    let mut state = 88_172_645_463_325_252 ^ (thread + 1) << 40;
    let mut tally = Tally { done: 0, cpu_ns: thread_cpu_ns(), updates: 0, latencies_us: Vec::new() };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut now = Instant::now();
    'all: loop {
        for (session, ticket, since) in &mut ring {
            if tally.done.is_multiple_of(32) {
                now = Instant::now();
                if now >= until {
                    break 'all;
                }
            }
            if what != "fly" && !db.is_durable(*ticket) {
                db.wait(*ticket)?;
                now = Instant::now();
            }
            if tally.done.is_multiple_of(16) {
                tally.latencies_us.push(now.duration_since(*since).as_micros() as u32);
            }
            *since = now;
            let key = Datum::Int((next(&mut state) % rows as u64) as i64);
            *ticket = match what {
                "update" | "deferred" => session.execute_ticket(&update, &[key])?.1,
                "hot" => session.execute_ticket(&update, &[Datum::Int(7)])?.1,
                "hot10" => session.execute_ticket(&update, &[Datum::Int((next(&mut state) % 10) as i64)])?.1,
                "insert" => {
                    values[0] = Datum::Int(NEXT.fetch_add(1, Ordering::Relaxed) as i64);
                    session.execute_ticket(&insert, &values)?.1
                }
                "delete" => {
                    let id = NEXT_DELETE.fetch_add(1, Ordering::Relaxed);
                    if id >= NEXT.load(Ordering::Relaxed) {
                        println!("nothing left to delete");
                        break 'all;
                    }
                    let (n, ticket) = session.execute_ticket(&delete, &[Datum::Int(id as i64)])?;
                    assert_eq!(n, 1);
                    ticket
                }
                "select" => {
                    assert_eq!(session.query(&select, &[key])?.len(), 1);
                    *ticket
                }
                _ if share > 0 && next(&mut state) % 100 < share => {
                    assert_eq!(session.query(&select, &[key])?.len(), 1);
                    tally.done += 1;
                    continue;
                }
                _ => session.execute_ticket(&update, &[key])?.1,
            };
            tally.done += 1;
            if !matches!(what, "insert" | "delete" | "select") {
                tally.updates += 1;
            }
        }
    }
    tally.cpu_ns = thread_cpu_ns() - tally.cpu_ns;
    for (_, ticket, _) in &ring {
        db.wait(*ticket)?;
    }
    Ok(tally)
}
