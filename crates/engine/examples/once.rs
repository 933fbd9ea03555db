//! What do transactions of one row cost, without SQL? Rows of 21 columns; each thread drives its share of the sessions, a session busy until
//! its commit is durable. Reports; asserts only that the data is right.
//! `cargo run --release -p freshet-engine --example once -- DIR [ROWS] [OPERATIONS] [CASE...]`
//!
//! A case is `WHAT:THREADS:SESSIONS` or `WHAT:THREADS:SESSIONS:btree`, WHAT one of insert, delete, update, search, integer, mix (nine of
//! integer for an update), mix-row (of search).

use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, Table, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::Cts;
use freshet_engine::schema::{KeyColumn, Row, Type, Value};
use freshet_engine::txn::{Change, Insertion, IntegerLookup, Isolation, Lookup, Session, Stop, Strength};
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const COLUMNS: usize = 21;
const COUNTER: usize = 5;
/// Rows that inserts and deletes take turns with.
const TURN: u64 = 250_000;

fn stopped(stop: Stop) -> String {
    match stop {
        Stop::Error(error) => error.to_string(),
        Stop::Wait(_) => "a wait".into(),
    }
}

/// One statement, waiting where it must.
fn statement<T>(
    session: &mut Session,
    mut work: impl FnMut(&mut Session) -> std::result::Result<T, Stop>,
) -> Result<T> {
    loop {
        session.begin_statement();
        match work(session) {
            Ok(value) => return Ok(value),
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                token.block(None);
            }
            Err(stop) => return Err(stopped(stop).into()),
        }
    }
}

fn commit(session: &mut Session) -> Result<Cts> {
    loop {
        match session.commit() {
            Ok(committed) => return Ok(committed.cts),
            Err(Stop::Wait(mut token)) => drop(token.block(None)),
            Err(stop) => return Err(stopped(stop).into()),
        }
    }
}

/// The table whose key is in an index of this kind.
fn name(kind: IndexKind) -> &'static str {
    if kind == IndexKind::Hash { "t" } else { "t_btree" }
}

fn create(engine: &Engine, kind: IndexKind) -> Result<()> {
    let column = |i: usize| ColumnDef { name: format!("c{i}"), ty: Type::Int8, not_null: true, ..ColumnDef::default() };
    let def = TableDef { name: name(kind).into(), columns: (0..COLUMNS).map(column).collect(), ..TableDef::default() };
    let index = IndexDef {
        name: format!("{}_pkey", name(kind)),
        kind,
        unique: true,
        primary: true,
        columns: vec![KeyColumn { column: 0, descending: false }],
        ..IndexDef::default()
    };
    let mut session = engine.connect()?;
    session.begin(Isolation::ReadCommitted, false);
    statement(&mut session, |s| s.create_table(def.clone(), vec![index.clone()]))?;
    let cts = commit(&mut session)?;
    Ok(engine.wait_durable(cts).wait()?)
}

fn fill(table: &Table, row: &mut Row, key: i64) {
    for i in 0..COLUMNS {
        let value = match i {
            0 => key,
            COUNTER => 0,
            i => key * 31 + i as i64,
        };
        row.set(&table.layout, i, &Value::Int(value));
    }
}

fn load(engine: &Engine, kind: IndexKind, rows: u64) -> Result<Arc<Table>> {
    create(engine, kind)?;
    let mut session = engine.connect()?;
    session.begin(Isolation::ReadCommitted, false);
    let mut load = statement(&mut session, |s| s.begin_load(name(kind)))?;
    session.rest();
    let mut appender = load.appender().map_err(|error| error.to_string())?;
    let mut row = Row::default();
    for key in 0..rows {
        row.reset(&load.table().layout);
        fill(load.table(), &mut row, key as i64);
        while let Err(stop) = appender.append(&mut row) {
            let Stop::Wait(mut token) = stop else { return Err(stopped(stop).into()) };
            token.block(None);
        }
    }
    while let Err(stop) = appender.finish() {
        let Stop::Wait(mut token) = stop else { return Err(stopped(stop).into()) };
        token.block(None);
    }
    statement(&mut session, |s| s.finish_load(&mut load))?;
    let cts = commit(&mut session)?;
    engine.wait_durable(cts).wait()?;
    Ok(engine.schema().table(name(kind)).ok_or("loaded")?.clone())
}

fn thread_cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// What is not done in one go: a session's first write of the table, a page that is taken, a log that is full.
fn longer(session: &mut Session, table: &Arc<Table>, what: &str, key: i64) -> Result<Cts> {
    let mut row = Row::default();
    session.begin(Isolation::ReadCommitted, false);
    loop {
        session.begin_statement_at_newest();
        let done = match what {
            "insert" => {
                row.reset(&table.layout);
                fill(table, &mut row, key);
                session.insert(table, &mut row).map(|_| true)
            }
            _ => session
                .lock_by_key(table, &table.indexes[0], |_| Value::Int(key), Strength::Update, &mut row)
                .and_then(|found| match (found, what) {
                    (None, _) => Ok(false),
                    (Some(id), "delete") => session.delete(table, id, &row).map(|()| true),
                    (Some(id), _) => {
                        let mut new = row.clone();
                        add_one(table, &row, &mut new);
                        session.update(table, id, &row, &mut new).map(|()| true)
                    }
                }),
        };
        match done {
            Ok(true) => return commit(session),
            Ok(false) => return Err(format!("{key} is not there").into()),
            Err(Stop::Wait(mut token)) => {
                session.rollback_statement();
                token.block(None);
            }
            Err(stop) => return Err(stopped(stop).into()),
        }
    }
}

fn add_one(table: &Table, old: &Row, new: &mut Row) -> bool {
    let Value::Int(n) = old.get(&table.layout, COUNTER) else { return false };
    new.set(&table.layout, COUNTER, &Value::Int(n + 1));
    true
}

struct Driver<'a> {
    engine: &'a Engine,
    table: &'a Arc<Table>,
    what: &'a str,
    rows: u64,
    /// In whose turn it is; busy until its commit is durable.
    ring: Vec<(Session, Cts)>,
    change: Change,
    deletion: Change,
    insertion: Insertion,
    lookup: Lookup,
    integer: Option<IntegerLookup>,
    row: Row,
    random: u64,
}

const AHEAD: usize = 16;
const NEAR: usize = 8;

impl Driver<'_> {
    fn new<'a>(
        engine: &'a Engine,
        table: &'a Arc<Table>,
        what: &'a str,
        rows: u64,
        sessions: usize,
    ) -> Result<Driver<'a>> {
        let index = &table.indexes[0];
        let mut ring = Vec::new();
        for _ in 0..sessions {
            ring.push((engine.connect()?, Cts::ZERO));
        }
        Ok(Driver {
            engine,
            table,
            what,
            rows,
            ring,
            change: Change::new(table, index, &[], &[COUNTER as u16]).ok_or("an integer key")?,
            deletion: Change::deletion(table, index).ok_or("an integer key")?,
            insertion: Insertion::new(table),
            lookup: Lookup::new(table, index, [COUNTER as u16]),
            integer: IntegerLookup::new(table, index, COUNTER as u16),
            row: Row::default(),
            random: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn next(&mut self) -> i64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * u128::from(self.rows)) >> 64) as i64
    }

    fn one(&mut self, at: usize, key: i64) -> Result<()> {
        let what = match (self.what, key % 10) {
            ("mix" | "mix-row", 0) => "update",
            ("mix", _) => "integer",
            ("mix-row", _) => "search",
            (what, _) => what,
        };
        let Driver { engine, table, ring, row, .. } = self;
        let (session, last) = &mut ring[at];
        if !engine.is_durable(*last) {
            engine.wait_durable(*last).wait()?;
        }
        let done = match what {
            "insert" => session
                .insert_once(&self.insertion, |row| {
                    fill(table, row, key);
                    true
                })
                .map(|(_, done)| done.cts),
            "delete" => session.delete_once(&self.deletion, key).map(|done| done.cts),
            "update" => {
                session.change_once(&self.change, key, |old, new| add_one(table, old, new)).map(|done| done.cts)
            }
            "search" => {
                let (found, cts) = session.look_up_once(&self.lookup, key, row).map_err(stopped)?;
                assert!(found.is_some(), "it is there");
                Some(cts)
            }
            "integer" => {
                let (found, cts) =
                    session.read_integer(self.integer.as_ref().ok_or("an integer")?, key).map_err(stopped)?;
                assert!(found.is_some(), "it is there");
                Some(cts)
            }
            other => return Err(format!("unknown case {other}").into()),
        };
        *last = match done {
            Some(cts) => cts,
            None => longer(session, table, what, key)?,
        };
        Ok(())
    }

    fn run(&mut self, mut keys: impl FnMut(&mut Self) -> Option<i64>) -> Result<()> {
        let sessions = self.ring.len();
        let known_most = if sessions > 2 * AHEAD { AHEAD } else { 0 };
        let mut known: std::collections::VecDeque<(usize, i64)> = std::collections::VecDeque::new();
        let mut at = 0;
        loop {
            let key = keys(self);
            if let Some(key) = key {
                let (session, _) = &self.ring[at];
                session.load_ahead();
                match self.what {
                    "delete" => self.deletion.prefetch(key),
                    "insert" => {}
                    _ => self.change.prefetch(key),
                }
                known.push_back((at, key));
                at = (at + 1) % sessions;
                if known.len() > NEAR && known_most > 0 {
                    let (session, key) = known[known.len() - 1 - NEAR];
                    match self.what {
                        "update" => self.ring[session].0.load_row_ahead(&self.change, key),
                        "delete" => self.ring[session].0.load_row_ahead(&self.deletion, key),
                        "search" | "integer" => self.lookup.prefetch_row_of_integer(key),
                        _ => {}
                    }
                }
            }
            if known.len() > known_most || key.is_none() {
                let Some((session, key)) = known.pop_front() else { break };
                self.one(session, key)?;
            }
        }
        for (_, last) in &self.ring {
            self.engine.wait_durable(*last).wait()?;
        }
        Ok(())
    }
}

fn run(engine: &Engine, table: &Arc<Table>, case: &str, rows: u64, operations: u64) -> Result<()> {
    let parts: Vec<&str> = case.split(':').collect();
    let &[what, threads, sessions, ..] = parts.as_slice() else { return Err("WHAT:THREADS:SESSIONS".into()) };
    let (threads, sessions): (u64, usize) = (threads.parse()?, sessions.parse()?);
    let grows = matches!(what, "insert" | "delete");
    let mut left = operations;
    let (mut seconds, mut cpu_ns, mut done) = (0.0, 0, 0);
    let whats: &[&str] = if grows { &["insert", "delete"] } else { &[what] };
    while left > 0 {
        let turn = if grows { left.min(TURN) } else { left };
        left -= turn;
        for &one in whats {
            let before = engine.stats().commit_record_bytes;
            let drive = |thread: u64| -> Result<(f64, u64)> {
                let mut driver = Driver::new(engine, table, one, rows, sessions / threads as usize)?;
                driver.random = driver.random.wrapping_mul(2 * thread + 1);
                let (start, cpu) = (Instant::now(), thread_cpu_ns());
                let mut keys = rows + turn * thread / threads..rows + turn * (thread + 1) / threads;
                driver.run(|driver| keys.next().map(|key| if grows { key as i64 } else { driver.next() }))?;
                Ok((start.elapsed().as_secs_f64(), thread_cpu_ns() - cpu))
            };
            let all: Vec<Result<(f64, u64)>> = std::thread::scope(|scope| {
                let drive = &drive;
                let handles: Vec<_> = (0..threads).map(|n| scope.spawn(move || drive(n))).collect();
                handles.into_iter().map(|h| h.join().expect("a driver does not panic")).collect()
            });
            let bytes = engine.stats().commit_record_bytes - before;
            if one != what {
                continue;
            }
            let all = all.into_iter().collect::<Result<Vec<(f64, u64)>>>()?;
            seconds += all.iter().map(|t| t.0).fold(0.0, f64::max);
            cpu_ns += all.iter().map(|t| t.1).sum::<u64>();
            done += turn;
            if left == 0 {
                println!(
                    "{case}: {:.0} /s, {:.0} ns of the drivers' cpu each, {:.0} log bytes each",
                    done as f64 / seconds,
                    cpu_ns as f64 / done as f64,
                    bytes as f64 / turn as f64
                );
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().ok_or("name a directory")?.clone();
    let rows: u64 = args.get(1).map_or(Ok(1_000_000), |a| a.parse())?;
    let operations: u64 = args.get(2).map_or(Ok(1_000_000), |a| a.parse())?;
    let engine = Engine::open(Options { sessions_max: 10_000, ..Options::new(&dir) })?;
    let cases = &args[3.min(args.len())..];
    for kind in [IndexKind::Hash, IndexKind::BTree] {
        let mut of_kind = cases.iter().filter(|case| case.ends_with(":btree") == (kind == IndexKind::BTree)).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        let table = load(&engine, kind, rows)?;
        of_kind.try_for_each(|case| run(&engine, &table, case, rows, operations))?;
    }
    drop(engine);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
