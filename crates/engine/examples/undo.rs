//! What does undoing an UPDATE cost beside the UPDATE? 100,000 rows with a short or a long text.
//! `cargo run --release -p freshet-engine --example undo -- DIR`

use freshet_engine::catalog::{ColumnDef, IndexDef, TableDef};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::schema::{KeyColumn, Row, Type, Value};
use freshet_engine::txn::{Isolation, Stop, TableCursor};
use std::time::Instant;

const ROWS: i64 = 100_000;

fn stopped(stop: Stop) -> String {
    match stop {
        Stop::Error(error) => error.to_string(),
        Stop::Wait(_) => "a wait".into(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let directory = std::env::args().nth(1).ok_or("which directory?")?;
    let engine = Engine::open(Options::new(&directory))?;
    for length in [8, 40, 200, 1_000, 4_000] {
        let name = format!("t{length}");
        let column = |name: &str, ty| ColumnDef { name: name.into(), ty, ..ColumnDef::default() };
        let def = TableDef {
            name: name.clone(),
            columns: vec![column("id", Type::Int8), column("s", Type::Text)],
            ..TableDef::default()
        };
        let key = IndexDef {
            name: format!("{name}_pkey"),
            unique: true,
            primary: true,
            columns: vec![KeyColumn { column: 0, descending: false }],
            ..IndexDef::default()
        };
        let mut session = engine.connect()?;
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        session.create_table(def, vec![key]).map_err(stopped)?;
        session.commit().map_err(stopped)?;
        let table = engine.schema().table(&name).ok_or("created")?.clone();
        let text = "y".repeat(length);
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let mut row = Row::default();
        let started = Instant::now();
        for id in 0..ROWS {
            row = Row::new(&table.layout);
            row.set(&table.layout, 0, &Value::Int(id));
            row.set(&table.layout, 1, &Value::Bytes(text.as_bytes()));
            session.insert(&table, &mut row).map_err(stopped)?;
        }
        let inserted = started.elapsed();
        session.commit().map_err(stopped)?;
        let longer = format!("{text}x");
        for round in 0..2 {
            session.begin(Isolation::ReadCommitted, false);
            session.begin_statement();
            let (started, mut cursor, mut changed) = (Instant::now(), TableCursor::default(), 0);
            let mut new = Row::default();
            while let Some(id) = session.scan_next(&table, &mut cursor, &mut row) {
                session.lock(&table, id, &mut row).map_err(stopped)?;
                new.copy_from(&row);
                new.set(&table.layout, 1, &Value::Bytes(longer.as_bytes()));
                session.update(&table, id, &row, &mut new).map_err(stopped)?;
                changed += 1;
            }
            let updated = started.elapsed();
            let started = Instant::now();
            session.rollback();
            println!(
                "{length} bytes, round {round}: {changed} rows, insert {inserted:.0?}, update {updated:.0?}, undo {:.0?}",
                started.elapsed()
            );
        }
    }
    Ok(())
}
