//! What value does a field have, and where does it stand if it has none?

use super::fields::Fields;
use super::options::{Format, Header};
use super::split::{Chunk, wrong_count};
use crate::error::SqlError;
use crate::value::zone::Clock;
use crate::value::{self, Datum};
use freshet_engine::schema::Type;

/// Characters of a value or a line that a context shows.
const SHOWN_MAX: usize = 100;

/// Rows that `ON_ERROR ignore` left out.
#[derive(Default, Debug)]
pub struct Skipped {
    pub count: u64,
    /// The first reasons by line.
    pub reasons: Vec<(u64, String)>,
}

const REASONS_MAX: usize = 10;

impl Skipped {
    pub fn add(&mut self, line: u64, column: &str, error: &SqlError) {
        self.count += 1;
        self.reasons.push((line, format!("line {line}, column {column}: {}", error.message)));
        self.limit();
    }

    pub fn merge(&mut self, other: Skipped) {
        self.count += other.count;
        self.reasons.extend(other.reasons);
        self.limit();
    }

    fn limit(&mut self) {
        self.reasons.sort_unstable();
        self.reasons.truncate(REASONS_MAX);
    }

    /// What is told at the end.
    pub fn notice(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let rows = if self.count == 1 { "row was" } else { "rows were" };
        let reasons: Vec<&str> = self.reasons.iter().map(|(_, reason)| reason.as_str()).collect();
        let more = if self.count > reasons.len() as u64 { "; ..." } else { "" };
        Some(format!("{} {rows} skipped due to data type incompatibility: {}{more}", self.count, reasons.join("; ")))
    }
}

/// Whether `ON_ERROR ignore` may leave out a row for it: its value cannot be read.
pub fn is_of_value(error: &SqlError) -> bool {
    error.sqlstate.starts_with("22") && !matches!(error.sqlstate, "22P04" | "22021")
}

/// The line on which a chunk's record ends.
pub fn line_of(chunk: &Chunk, record: usize, format: &Format) -> u64 {
    let line = chunk.line + record as u64;
    if format.kind != super::options::Kind::Csv {
        return line;
    }
    // Lines inside of quotes count.
    let end = chunk.ends[record].1 as usize;
    let lines = memchr::memchr_iter(b'\n', &chunk.data[..end]).count() as u64;
    line + lines.saturating_sub(record as u64 + 1)
}

/// Where an error of a record stands.
pub fn at_line(error: SqlError, table: &str, line: u64, record: Option<&[u8]>) -> SqlError {
    let shown = match record {
        Some(record) => format!(": \"{}\"", cut(record)),
        None => String::new(),
    };
    error.with_context(format!("COPY {table}, line {line}{shown}"))
}

/// Where an error of a value stands.
pub fn at_column(error: SqlError, table: &str, line: u64, column: &str, text: Option<&[u8]>) -> SqlError {
    let shown = match text {
        Some(text) => format!(": \"{}\"", cut(text)),
        None => ": null input".to_owned(),
    };
    error.with_context(format!("COPY {table}, line {line}, column {column}{shown}"))
}

fn cut(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.into_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}

/// The number of fields must be the columns'.
pub fn check_count(fields: &Fields, format: &Format) -> Result<(), SqlError> {
    let (given, wanted) = (fields.len(), format.names.len());
    if given == wanted {
        return Ok(());
    }
    if format.is_binary() {
        return Err(wrong_count(given, wanted));
    }
    Err(SqlError::new(
        "22P04",
        if given < wanted {
            format!("missing data for column \"{}\"", format.names[given])
        } else {
            "extra data after last expected column".to_owned()
        },
    ))
}

/// The header's names must be the columns', where that is asked for.
pub fn check_header(record: &[u8], format: &Format) -> Result<(), SqlError> {
    if format.header != Header::Match {
        return Ok(());
    }
    let mut fields = Fields::default();
    fields.read(record, format)?;
    if fields.len() != format.names.len() {
        return Err(SqlError::new(
            "22P04",
            format!("wrong number of fields in header line: got {}, expected {}", fields.len(), format.names.len()),
        ));
    }
    for (i, name) in format.names.iter().enumerate() {
        let given = fields.get(record, i);
        if given != Some(name.as_bytes()) {
            let told = match given {
                None => "null value".to_owned(),
                Some(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            };
            let message = match given {
                None => format!(
                    "column name mismatch in header line field {}: got {told} (\"{}\"), expected \"{name}\"",
                    i + 1,
                    String::from_utf8_lossy(&format.null)
                ),
                Some(_) => {
                    format!("column name mismatch in header line field {}: got {told}, expected \"{name}\"", i + 1)
                }
            };
            return Err(SqlError::new("22P04", message));
        }
    }
    Ok(())
}

/// A field as a value of its column's type; a time without a zone is the session's.
pub fn value_of(ty: Type, field: &[u8], format: &Format, clock: &Clock) -> Result<Datum, SqlError> {
    match format.is_binary() {
        true => value::from_binary_by(ty, field, clock),
        false => value::from_text_by(ty, field, clock),
    }
}
