//! How fast do rows come in, and indexes up? `cargo run --release --no-default-features -p freshet-db --example bulk_load -- ROWS [DIR]`
//!
//! Loads records of 168 bytes with two threads, durable at the end; then three hash indexes and a B+-tree, by CREATE INDEX.

use freshet_db::{Database, IntoDatum, Options};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

const THREADS: u64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let scratch = tempfile::tempdir()?;
    let dir = arguments.next().map_or(scratch.path().to_owned(), Into::into);
    let db = Database::open(Options { log_size_bytes: 8 << 30, ..Options::new(dir.join("bulk_load")) })?;
    let mut session = db.session()?;
    let columns: Vec<String> = (0..21).map(|i| format!("c{i} bigint NOT NULL")).collect();
    session.run(&format!("CREATE TABLE r ({})", columns.join(", ")))?;
    session.run("CREATE UNIQUE INDEX r_c0 ON r USING hash (c0)")?;
    let mut out = std::io::stdout().lock();
    let began = Instant::now();
    let load = db.bulk_load("r")?;
    std::thread::scope(|threads| {
        let parts: Vec<_> = (0..THREADS).map(|part| (part, load.appender())).collect();
        let loading: Vec<_> = parts
            .into_iter()
            .map(|(part, appender)| {
                threads.spawn(move || {
                    let mut appender = appender?;
                    for id in (part..rows).step_by(THREADS as usize) {
                        let key = id as i64;
                        let cells: [_; 21] = std::array::from_fn(|i| {
                            (key.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) ^ i as i64).into_datum()
                        });
                        let mut cells = cells;
                        cells[0] = key.into_datum();
                        appender.append(&cells)?;
                    }
                    appender.finish()
                })
            })
            .collect();
        loading.into_iter().try_for_each(|thread| thread.join().expect("a loading thread does not panic"))
    })?;
    let appended_s = began.elapsed().as_secs_f64();
    let loaded = load.commit()?;
    let total_s = began.elapsed().as_secs_f64();
    writeln!(
        out,
        "{loaded} rows: {:.2} M/s appended, {:.2} M/s with a unique hash index, durable",
        rows as f64 / appended_s / 1e6,
        rows as f64 / total_s / 1e6
    )?;
    for (kind, columns) in [("hash", ["c1", "c2", "c3"].as_slice()), ("btree", &["c0", "c4"])] {
        let began = Instant::now();
        for column in columns {
            session.run(&format!("CREATE INDEX r_{kind}_{column} ON r USING {kind} ({column})"))?;
        }
        let entries = rows as f64 * columns.len() as f64;
        writeln!(
            out,
            "{} {kind} indexes: {:.2} M entries/s",
            columns.len(),
            entries / began.elapsed().as_secs_f64() / 1e6
        )?;
    }
    Ok(())
}
