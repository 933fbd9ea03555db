//! What does a lookup cost? Rows of 168 bytes by key: prepared SQL and the engine's own rows, one by one and in lists, through
//! a hash index and a B+-tree, and a full scan. Each case with one thread and with two; every answer is checked.
//! `cargo run --release -p freshet-db --no-default-features --example lookup -- DIR [rows] [seconds] [case]...`

use freshet_db::{Database, Datum, Options, Session, Value};
use freshet_engine::schema::Row;
use freshet_engine::txn::{IntegerLookup, Lookup};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LIST: usize = 64;
const CASES: [&str; 13] = [
    "sql-hash",
    "sql-btree",
    "sql-in-hash",
    "sql-in-btree",
    "sql-many-hash",
    "sql-many-btree",
    "integer-hash",
    "row-hash",
    "row-btree",
    "row-many-hash",
    "row-many-btree",
    "sum",
    "range",
];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("name a directory that does not exist")?;
    let rows: i64 = args.next().map_or(Ok(2_000_000), |a| a.parse())?;
    let seconds: f64 = args.next().map_or(Ok(1.0), |a| a.parse())?;
    let wanted: Vec<String> = args.collect();
    if std::path::Path::new(&dir).exists() {
        return Err(format!("{dir} exists; name another directory").into());
    }
    let db = Database::open(Options::new(&dir))?;
    load(&mut db.session()?, rows)?;
    for case in CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|w| w == *case)) {
        let one = rate(&db, case, rows, 1, seconds)?;
        let two = rate(&db, case, rows, 2, seconds)?;
        println!("{case:14} {one:12.0} /s with 1 thread, {two:12.0} /s with 2, {:.2}x", two / one);
    }
    drop(db);
    Ok(std::fs::remove_dir_all(dir)?)
}

fn load(session: &mut Session, rows: i64) -> Result<()> {
    let columns: Vec<String> = (1..21).map(|i| format!("c{i} bigint not null")).collect();
    session
        .run(&format!("create table t (id bigint primary key, {}) with (primary_key = hash)", columns.join(", ")))?;
    session.run("create unique index t_c1 on t (c1)")?;
    let marks: Vec<String> = (1..22).map(|i| format!("${i}")).collect();
    let insert = session.prepare(&format!("insert into t values ({})", marks.join(", ")))?;
    let mut values = vec![Datum::Int(0); 21];
    for batch in 0..(rows + 999) / 1000 {
        let mut transaction = session.begin()?;
        for id in batch * 1000..rows.min(batch * 1000 + 1000) {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = Datum::Int(id * 31 + i as i64));
            values[0] = Datum::Int(id);
            // In no order, so that the tree's leaves are as full as after years.
            values[1] = Datum::Int(scattered(id));
            transaction.execute(&insert, &values)?;
        }
        transaction.commit_ticket()?;
    }
    session.run(
        "insert into t (id, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20) \
        values (-1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
    )?;
    Ok(())
}

fn scattered(id: i64) -> i64 {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as u64 >> 8) as i64
}

fn rate(db: &Database, case: &str, rows: i64, threads: u64, seconds: f64) -> Result<f64> {
    let stop = AtomicBool::new(false);
    let (stop, run) = (&stop, &|thread: u64| -> Result<f64> {
        let mut keys = Keys { state: 88_172_645_463_325_252 + thread * 7_777_777, rows };
        let mut step = stepper(db, case, rows)?;
        let start = Instant::now();
        let mut done = 0u64;
        while !stop.load(Ordering::Relaxed) {
            done += step(&mut keys)?;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    });
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum()
    })
}

type Stepper = Box<dyn FnMut(&mut Keys) -> Result<u64>>;

/// Some lookups of a case; how many.
fn stepper(db: &Database, case: &str, rows: i64) -> Result<Stepper> {
    match case {
        "sql-hash" => sql_point(db, "select c5 from t where id = $1", |id| id),
        "sql-btree" => sql_point(db, "select c5 from t where c1 = $1", scattered),
        "sql-in-hash" => sql_list(db, "id", |id| id),
        "sql-in-btree" => sql_list(db, "c1", scattered),
        "sql-many-hash" => sql_many(db, "select c5 from t where id = $1", |id| id),
        "sql-many-btree" => sql_many(db, "select c5 from t where c1 = $1", scattered),
        "integer-hash" => integer_point(db),
        "row-hash" => row_point(db, 0, |id| id),
        "row-btree" => row_point(db, 1, scattered),
        "row-many-hash" => row_many(db, 0, |id| id),
        "row-many-btree" => row_many(db, 1, scattered),
        "sum" => {
            let mut session = db.session()?;
            let sum = session.prepare("select sum(c5) from t")?;
            Ok(Box::new(move |_| {
                session.query(&sum, &[])?;
                Ok(rows as u64)
            }))
        }
        _ => {
            let mut session = db.session()?;
            let range = session.prepare("select c5 from t where c1 >= $1 order by c1 limit 10")?;
            Ok(Box::new(move |keys| {
                let found = session.query(&range, &[Datum::Int(scattered(keys.next()))])?;
                Ok(found.len() as u64)
            }))
        }
    }
}

fn sql_point(db: &Database, sql: &str, key: fn(i64) -> i64) -> Result<Stepper> {
    let mut session = db.session()?;
    let select = session.prepare(sql)?;
    Ok(Box::new(move |keys| {
        for _ in 0..64 {
            let id = keys.next();
            let found = session.query(&select, &[Datum::Int(key(id))])?;
            assert!(found.len() == 1 && found.get(0, 0) == Value::Int(id * 31 + 5));
        }
        Ok(64)
    }))
}

fn sql_list(db: &Database, column: &str, key: fn(i64) -> i64) -> Result<Stepper> {
    let mut session = db.session()?;
    let marks: Vec<String> = (1..=LIST).map(|i| format!("${i}")).collect();
    let select = session.prepare(&format!("select id, c5 from t where {column} in ({})", marks.join(", ")))?;
    let mut parameters = vec![Datum::Null; LIST];
    Ok(Box::new(move |keys| {
        parameters.iter_mut().for_each(|parameter| *parameter = Datum::Int(key(keys.next())));
        let found = session.query(&select, &parameters)?;
        assert!(found.len() > LIST - 8 && found.i64(7, 1) == found.i64(7, 0).map(|id| id * 31 + 5));
        Ok(LIST as u64)
    }))
}

fn sql_many(db: &Database, sql: &str, key: fn(i64) -> i64) -> Result<Stepper> {
    let mut session = db.session()?;
    let select = session.prepare(sql)?;
    let mut parameters: Vec<[Datum; 1]> = vec![[Datum::Null]; LIST];
    let mut ids = [0; LIST];
    Ok(Box::new(move |keys| {
        for (id, parameter) in ids.iter_mut().zip(&mut parameters) {
            *id = keys.next();
            parameter[0] = Datum::Int(key(*id));
        }
        let sets: [&[Datum]; LIST] = std::array::from_fn(|i| parameters[i].as_slice());
        let found = session.query_many(&select, &sets)?;
        assert!(found.rows().len() == LIST && found.rows().i64(7, 0) == Some(ids[7] * 31 + 5));
        Ok(LIST as u64)
    }))
}

fn integer_point(db: &Database) -> Result<Stepper> {
    let mut session = db.engine().connect()?;
    let table = db.engine().schema().table("t").ok_or("the table is there")?.clone();
    let lookup = IntegerLookup::new(&table, &table.indexes[0], 5).ok_or("integers")?;
    Ok(Box::new(move |keys| {
        for _ in 0..64 {
            let id = keys.next();
            let (found, _) = session.read_integer(&lookup, id).map_err(|_| "a read commits")?;
            assert!(found == Some(Some(id * 31 + 5)));
        }
        Ok(64)
    }))
}

fn row_point(db: &Database, index: usize, key: fn(i64) -> i64) -> Result<Stepper> {
    let mut session = db.engine().connect()?;
    let table = db.engine().schema().table("t").ok_or("the table is there")?.clone();
    let lookup = Lookup::new(&table, &table.indexes[index], [5]);
    let c5 = table.layout.integer_word(5).ok_or("an integer")?;
    let mut row = Row::default();
    Ok(Box::new(move |keys| {
        for _ in 0..64 {
            let id = keys.next();
            let wanted = key(id);
            let (found, _) = session.look_up_once(&lookup, wanted, &mut row).map_err(|_| "a read commits")?;
            assert!(found.is_some() && row.integer(c5) == Some(id * 31 + 5));
        }
        Ok(64)
    }))
}

fn row_many(db: &Database, index: usize, key: fn(i64) -> i64) -> Result<Stepper> {
    let mut session = db.engine().connect()?;
    let table = db.engine().schema().table("t").ok_or("the table is there")?.clone();
    let lookup = Lookup::new(&table, &table.indexes[index], [5]);
    let mut row = Row::default();
    let mut ids = [0; LIST];
    Ok(Box::new(move |keys| {
        ids.iter_mut().for_each(|id| *id = keys.next());
        session.begin_read();
        let mut count = 0;
        session.look_up_many(
            &lookup,
            LIST,
            |i, _| Value::Int(key(ids[i])),
            &mut row,
            |i, _, row| {
                assert!(row.get(&table.layout, 5) == Value::Int(ids[i] * 31 + 5));
                count += 1;
            },
        );
        assert_eq!(count, LIST);
        session.commit().map_err(|_| "a read commits")?;
        Ok(LIST as u64)
    }))
}

/// Rows by key in the order that memory likes least.
struct Keys {
    state: u64,
    rows: i64,
}

impl Keys {
    fn next(&mut self) -> i64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * self.rows as u128) >> 64) as i64
    }
}
