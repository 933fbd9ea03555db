//! How is a row written? The inverse of `fields`, value by value.

use super::options::{Format, Kind};
use crate::value;
use crate::value::zone::Clock;
use freshet_engine::schema::{Type, Value};

/// Writes rows of one format, with times of the session's zone; keeps its memory.
pub struct Writer {
    field: Vec<u8>,
    clock: Clock,
}

impl Writer {
    pub fn new(clock: &Clock) -> Writer {
        Writer { field: Vec::new(), clock: clock.clone() }
    }

    /// What comes before the rows.
    pub fn head(&mut self, format: &Format, out: &mut Vec<u8>) -> bool {
        match (format.kind, format.header) {
            (Kind::Binary, _) => {
                out.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
                true
            }
            (_, super::options::Header::No) => false,
            _ => {
                // A header's names are quoted where they need it only.
                let plain = Format { force_quote: Vec::new(), ..format.clone() };
                write_texts(&plain, format.names.iter().map(|name| Some(name.as_bytes())), out);
                true
            }
        }
    }

    /// What comes behind them.
    pub fn tail(&mut self, format: &Format, out: &mut Vec<u8>) -> bool {
        if format.is_binary() {
            out.extend_from_slice(&(-1i16).to_be_bytes());
        }
        format.is_binary()
    }

    pub fn row<'v>(
        &mut self,
        format: &Format,
        values: impl ExactSizeIterator<Item = (Type, Value<'v>)>,
        out: &mut Vec<u8>,
    ) {
        if format.is_binary() {
            return binary_row(values, &self.clock, out);
        }
        let mut is_first = true;
        let alone = values.len() == 1;
        let has_bare_numbers = !format.force_quote.contains(&true) && !has_digits(format);
        for (column, (ty, value)) in values.enumerate() {
            if !std::mem::take(&mut is_first) {
                out.push(format.delimiter);
            }
            if value.is_null() {
                out.extend_from_slice(&format.null);
                continue;
            }
            match (ty, value) {
                // Their text needs no look at its characters.
                (Type::Int2 | Type::Int4 | Type::Int8, Value::Int(v)) if has_bare_numbers => {
                    out.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
                }
                (Type::Text | Type::Varchar(_), Value::Bytes(text)) => write_text(format, column, text, alone, out),
                (ty, value) => {
                    self.field.clear();
                    value::to_text_by(ty, &value, &self.clock, &mut self.field);
                    write_text(format, column, &self.field, alone, out);
                }
            }
        }
        out.push(b'\n');
    }
}

fn is_forced(format: &Format, column: usize) -> bool {
    format.force_quote.get(column).copied().unwrap_or(false)
}

/// Whether a number's characters mean something to the format.
fn has_digits(format: &Format) -> bool {
    let means = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    means(format.delimiter)
        || means(format.quote)
        || means(format.escape)
        || format.null.iter().all(|&b| means(b)) && !format.null.is_empty()
}

/// A row whose values are texts.
pub fn write_texts<'t>(format: &Format, texts: impl ExactSizeIterator<Item = Option<&'t [u8]>>, out: &mut Vec<u8>) {
    let alone = texts.len() == 1;
    for (column, text) in texts.enumerate() {
        if column > 0 {
            out.push(format.delimiter);
        }
        match text {
            None => out.extend_from_slice(&format.null),
            Some(text) => write_text(format, column, text, alone, out),
        }
    }
    out.push(b'\n');
}

fn write_text(format: &Format, column: usize, text: &[u8], alone: bool, out: &mut Vec<u8>) {
    match format.kind {
        Kind::Csv => write_csv(format, column, text, alone, out),
        _ => escape_text(format.delimiter, text, out),
    }
}

/// Whether any byte means something, looked at in pieces that the compiler takes whole into its widest registers.
fn any(text: &[u8], means: impl Fn(u8) -> bool) -> bool {
    text.chunks(64).any(|piece| piece.iter().fold(false, |found, &byte| found | means(byte)))
}

fn escape_text(delimiter: u8, mut text: &[u8], out: &mut Vec<u8>) {
    let means = |byte: u8| (byte == b'\\') | (byte == delimiter) | (byte.wrapping_sub(8) < 6);
    if !any(text, means) {
        return out.extend_from_slice(text);
    }
    while let Some(at) = text.iter().position(|&byte| means(byte)) {
        out.extend_from_slice(&text[..at]);
        out.push(b'\\');
        out.push(match text[at] {
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            11 => b'v',
            12 => b'f',
            b'\r' => b'r',
            other => other,
        });
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

fn write_csv(format: &Format, column: usize, text: &[u8], alone: bool, out: &mut Vec<u8>) {
    let (delimiter, quote) = (format.delimiter, format.quote);
    let means = |byte: u8| (byte == delimiter) | (byte == quote) | (byte == b'\n') | (byte == b'\r');
    let quoted = is_forced(format, column)
        || text == format.null
        // A line of its own must not read as the end of the data.
        || alone && text == b"\\."
        || any(text, means);
    if !quoted {
        return out.extend_from_slice(text);
    }
    out.push(format.quote);
    for &byte in text {
        if byte == format.quote || byte == format.escape {
            out.push(format.escape);
        }
        out.push(byte);
    }
    out.push(format.quote);
}

fn binary_row<'v>(values: impl ExactSizeIterator<Item = (Type, Value<'v>)>, clock: &Clock, out: &mut Vec<u8>) {
    out.extend_from_slice(&(values.len() as i16).to_be_bytes());
    for (ty, value) in values {
        if value.is_null() {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        value::to_binary_by(ty, &value, clock, out);
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}
