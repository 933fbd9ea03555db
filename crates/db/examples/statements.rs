//! Runs statements, one a line of standard input, on a fresh small database: for comparing with another database.
//!
//! After each statement come its rows, cells parted by `|` and NULL written out, or `ERROR` and the SQLSTATE; then a line `.`.

use freshet_db::{Database, Options, Session, SqlError};
use std::io::{BufRead, Result, Write};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(Options::small(dir.path())).map_err(std::io::Error::other)?;
    let mut session = db.session().map_err(std::io::Error::other)?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match rows(&mut session, &line?) {
            Ok(rows) => rows.iter().try_for_each(|row| writeln!(out, "{row}"))?,
            Err(error) => writeln!(out, "ERROR {}", error.sqlstate)?,
        }
        writeln!(out, ".")?;
        out.flush()?;
    }
    Ok(())
}

fn rows(session: &mut Session, sql: &str) -> std::result::Result<Vec<String>, SqlError> {
    let statement = session.prepare(sql)?;
    let rows = session.query(&statement, &[])?;
    let cell = |row, column| rows.display(row, column).unwrap_or_else(|| "NULL".to_owned());
    let line = |row| (0..statement.columns().len()).map(|column| cell(row, column)).collect::<Vec<_>>().join("|");
    Ok((0..rows.len()).map(line).collect())
}
