//! How is a row written? The inverse of `fields`, by a way for each column that is chosen once.

use super::options::{Format, Header, Kind};
use crate::value::{self, digits, zone::Clock};
use freshet_engine::schema::{TimeKind, Type, Value};

/// What the binary format has before its first row.
const BINARY_HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What a client's protocol has before each record.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    /// So many bytes stand before it,
    pub head_bytes: usize,
    /// which are filled in once it is there. Gets them and the record.
    pub fill: fn(&mut [u8]),
}

impl Framing {
    /// Nothing.
    pub const NONE: Framing = Framing { head_bytes: 0, fill: |_| {} };
}

/// A row that is to be written. Both panic where there is no such column.
pub trait Cells {
    /// The value of a column of integers; nothing for a null.
    fn integer(&self, column: usize) -> Option<i64> {
        match self.value(column) {
            Value::Int(v) => Some(v),
            _ => None,
        }
    }

    fn value(&self, column: usize) -> Value<'_>;
}

/// How a column's values are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// Integers, whose digits mean nothing to the format.
    Digits,
    /// What is written of this type means nothing to the format.
    Plain(Type),
    /// The bytes are the text, of which any may mean something.
    Text,
    Any(Type),
    /// The binary format: integers of so many bytes,
    Integer(usize),
    /// and everything else.
    Binary(Type),
}

/// Writes rows of one format, with times of the session's zone; keeps its memory.
pub struct Writer {
    format: Format,
    columns: Vec<How>,
    clock: Clock,
    framing: Framing,
    names_are_due: bool,
    /// What the next record begins with, whatever it is.
    lead: &'static [u8],
    field: Vec<u8>,
}

impl Writer {
    /// `types`: of the columns.
    pub fn new(format: &Format, types: impl Iterator<Item = Type>, clock: &Clock, framing: Framing) -> Writer {
        Writer {
            columns: types.enumerate().map(|(column, ty)| how(format, column, ty)).collect(),
            clock: clock.clone(),
            framing,
            names_are_due: !format.is_binary() && format.header != Header::No,
            // It is in one message with the first row, as PostgreSQL sends it.
            lead: if format.is_binary() { BINARY_HEAD } else { &[] },
            field: Vec::new(),
            format: format.clone(),
        }
    }

    /// What comes before the rows, if it was not written yet.
    pub fn head(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.names_are_due) {
            // A header's names are quoted where they need it only.
            let plain = Format { force_quote: Vec::new(), ..self.format.clone() };
            let names = plain.names.iter().map(|name| Some(name.as_bytes()));
            self.record(out, |_, out| write_texts(&plain, names, out));
        }
    }

    /// What comes behind them.
    pub fn tail(&mut self, out: &mut Vec<u8>) {
        if self.format.is_binary() {
            self.record(out, |_, out| out.extend_from_slice(&(-1i16).to_be_bytes()));
        }
    }

    pub fn row(&mut self, cells: &impl Cells, out: &mut Vec<u8>) {
        self.record(out, |writer, out| match writer.format.is_binary() {
            true => writer.binary_row(cells, out),
            false => writer.text_row(cells, out),
        });
    }

    #[inline]
    fn record(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Self, &mut Vec<u8>)) {
        let start = out.len();
        out.resize(start + self.framing.head_bytes, 0);
        out.extend_from_slice(std::mem::take(&mut self.lead));
        write(self, out);
        (self.framing.fill)(&mut out[start..]);
    }

    fn text_row(&mut self, cells: &impl Cells, out: &mut Vec<u8>) {
        let Writer { format, columns, clock, field, .. } = self;
        let is_alone = columns.len() == 1;
        for (column, how) in columns.iter().enumerate() {
            if column > 0 {
                out.push(format.delimiter);
            }
            if *how == How::Digits {
                match cells.integer(column) {
                    Some(v) => digits::write(v, out),
                    None => out.extend_from_slice(&format.null),
                }
                continue;
            }
            match (*how, cells.value(column)) {
                (_, Value::Null) => out.extend_from_slice(&format.null),
                (How::Plain(ty), value) => value::to_text_by(ty, &value, clock, out),
                (How::Any(ty), value) => {
                    field.clear();
                    value::to_text_by(ty, &value, clock, field);
                    write_text(format, column, field, is_alone, out);
                }
                (_, Value::Bytes(text)) => write_text(format, column, text, is_alone, out),
                (how, value) => panic!("invariant: a value has the form of its column: {how:?}, {value:?}"),
            }
        }
        out.push(b'\n');
    }

    fn binary_row(&mut self, cells: &impl Cells, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.columns.len() as i16).to_be_bytes());
        for (column, how) in self.columns.iter().enumerate() {
            match *how {
                How::Integer(bytes) => match cells.integer(column) {
                    Some(v) => {
                        let mut field = [0; 12];
                        field[..4].copy_from_slice(&(bytes as u32).to_be_bytes());
                        field[4..].copy_from_slice(&(v << (64 - 8 * bytes)).to_be_bytes());
                        let end = out.len() + 4 + bytes;
                        out.extend_from_slice(&field);
                        out.truncate(end);
                    }
                    None => out.extend_from_slice(&(-1i32).to_be_bytes()),
                },
                How::Binary(ty) => binary_field(ty, &cells.value(column), &self.clock, out),
                how => panic!("invariant: {how:?} is a way to write text"),
            }
        }
    }
}

fn how(format: &Format, column: usize, ty: Type) -> How {
    let bytes = match ty {
        Type::Int2 => 2,
        Type::Int4 => 4,
        Type::Int8 => 8,
        _ => 0,
    };
    let is_free = |writes: fn(u8) -> bool| !is_forced(format, column) && !means_any(format, writes);
    match ty {
        _ if format.is_binary() && bytes > 0 => How::Integer(bytes),
        _ if format.is_binary() => How::Binary(ty),
        Type::Text | Type::Varchar(_) => How::Text,
        _ if bytes > 0 && is_free(|byte| byte.is_ascii_digit() || byte == b'-') => How::Digits,
        _ if is_plain(ty) && is_free(|byte| byte.is_ascii_alphanumeric() || b"+-./: ".contains(&byte)) => {
            How::Plain(ty)
        }
        _ => How::Any(ty),
    }
}

/// Whether values are written with letters, digits and the signs of numbers and times alone, in every style, and never as nothing.
fn is_plain(ty: Type) -> bool {
    match ty {
        Type::Bool | Type::Int2 | Type::Int4 | Type::Int8 | Type::Uuid => true,
        Type::Float4 | Type::Float8 | Type::Decimal { .. } | Type::Numeric { .. } => true,
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => true,
        Type::Rounded(kind, _) => kind != TimeKind::Interval,
        _ => false,
    }
}

/// Whether any of these bytes, or a value of them alone, means something to the format.
fn means_any(format: &Format, of_value: impl Fn(u8) -> bool) -> bool {
    [format.delimiter, format.quote, format.escape].into_iter().any(&of_value)
        || !format.null.is_empty() && format.null.iter().all(|&byte| of_value(byte))
}

fn is_forced(format: &Format, column: usize) -> bool {
    format.force_quote.get(column).copied().unwrap_or(false)
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

fn binary_field(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.extend_from_slice(&(-1i32).to_be_bytes());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    value::to_binary_by(ty, value, clock, out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}
