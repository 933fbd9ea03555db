//! Where does a record end? Bytes in pieces of any size to chunks of whole records.
//!
//! | format | a record ends |
//! |---|---|
//! | text | at an end of line that no backslash precedes |
//! | CSV | at an end of line outside of quotes |
//! | binary | after as many fields as its head counts |
//!
//! The first line tells the kind of the ends of lines, as in PostgreSQL: `\n`, `\r\n` or `\r`.

use super::options::{Format, Kind};
use crate::error::SqlError;
use memchr::{memchr, memchr2, memchr3_iter};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The largest record: what one value may have, and something for the others.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// Whole records.
#[derive(Default, Debug)]
pub struct Chunk {
    pub data: Vec<u8>,
    /// Where each record ends, its end of line excluded, and where the next one begins.
    pub ends: Vec<(u32, u32)>,
    /// The line of its first record.
    pub line: u64,
}

impl Chunk {
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&(end, next)| {
            let record = &self.data[start..end as usize];
            start = next as usize;
            record
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineEnd {
    Unknown,
    Newline,
    Both,
    Return,
}

/// Splits what comes.
pub struct Splitter {
    kind: Kind,
    /// That a record has, if it is whole.
    fields: usize,
    quote: u8,
    escape: u8,
    ends_of_lines: LineEnd,
    data: Vec<u8>,
    ends: Vec<(u32, u32)>,
    /// Up to here it was looked at.
    seen: usize,
    /// CSV: inside quotes, and the last byte was an escape.
    in_quotes: bool,
    escaped: bool,
    /// Of the first record that is not given out.
    line: u64,
    /// CSV: lines that ended inside of the records at hand, and inside of the one that is being read.
    inner_lines: u64,
    inner_open: u64,
    has_head: bool,
    /// `\.` or the trailer was met: what follows is nothing.
    pub is_over: bool,
}

impl Splitter {
    pub fn new(format: &Format) -> Splitter {
        Splitter {
            kind: format.kind,
            fields: format.names.len(),
            quote: format.quote,
            escape: format.escape,
            ends_of_lines: LineEnd::Unknown,
            data: Vec::new(),
            ends: Vec::new(),
            seen: 0,
            in_quotes: false,
            escaped: false,
            line: 1,
            inner_lines: 0,
            inner_open: 0,
            has_head: false,
            is_over: false,
        }
    }

    /// Bytes that wait for the end of their record, and records that were not given out.
    pub fn held(&self) -> usize {
        self.data.len()
    }

    /// The line that is being read, for errors.
    pub fn line(&self) -> u64 {
        self.line + self.ends.len() as u64 + self.inner_lines + self.inner_open
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        if self.is_over {
            return Ok(());
        }
        self.data.extend_from_slice(bytes);
        if self.data.len() > RECORD_BYTES_MAX {
            return Err(SqlError::new("54000", "a COPY record is longer than 1 GiB"));
        }
        self.scan(false)
    }

    /// No more bytes come.
    pub fn finish(&mut self) -> Result<(), SqlError> {
        if self.is_over {
            return Ok(());
        }
        self.scan(true)?;
        let start = self.start();
        if self.is_over || start == self.data.len() {
            return match self.kind {
                Kind::Binary if !self.has_head => Err(bad_signature()),
                _ => Ok(()),
            };
        }
        if self.kind == Kind::Binary {
            return Err(if self.has_head { self.cut_off() } else { bad_signature() });
        }
        let mut end = self.data.len();
        if matches!(self.ends_of_lines, LineEnd::Unknown | LineEnd::Both | LineEnd::Return)
            && self.data.last() == Some(&b'\r')
            && !self.in_quotes
        {
            end -= 1;
        }
        let next = self.data.len();
        self.record(start, end, next)
    }

    /// What is wrong with a binary record that does not end: first of all its count of fields.
    fn cut_off(&self) -> SqlError {
        match int16(&self.data, self.start().max(self.seen)).map(usize::try_from) {
            Some(Ok(given)) if given != self.fields => wrong_count(given, self.fields),
            _ => SqlError::new("22P04", "unexpected EOF in COPY data"),
        }
    }

    /// The records at hand, if there are so many bytes of them.
    pub fn chunk(&mut self, bytes_min: usize) -> Option<Chunk> {
        self.chunk_in(bytes_min, Chunk::default)
    }

    /// The same; what is left goes into the memory of a chunk that is spent.
    pub fn chunk_in(&mut self, bytes_min: usize, spent: impl FnOnce() -> Chunk) -> Option<Chunk> {
        let end = self.start();
        if self.ends.is_empty() || end < bytes_min {
            return None;
        }
        let Chunk { data: mut rest, ends: mut next_ends, .. } = spent();
        rest.clear();
        next_ends.clear();
        rest.extend_from_slice(&self.data[end..]);
        let mut data = std::mem::replace(&mut self.data, rest);
        data.truncate(end);
        self.seen = self.seen.saturating_sub(end);
        let line = self.line;
        self.line += self.ends.len() as u64 + std::mem::take(&mut self.inner_lines);
        next_ends.reserve(self.ends.len());
        let ends = std::mem::replace(&mut self.ends, next_ends);
        self.data.reserve(data.len().saturating_sub(self.data.len()));
        Some(Chunk { data, ends, line })
    }

    /// Where the record begins that is being read.
    fn start(&self) -> usize {
        self.ends.last().map_or(0, |&(_, next)| next as usize)
    }

    fn record(&mut self, start: usize, end: usize, next: usize) -> Result<(), SqlError> {
        self.seen = next;
        if self.kind != Kind::Binary && self.data[start..end].starts_with(b"\\.") {
            if end == start + 2 {
                self.is_over = true;
                self.data.truncate(start);
                return Ok(());
            }
            if self.kind == Kind::Text {
                return Err(SqlError::new("22P04", "end-of-copy marker corrupt"));
            }
        }
        if self.kind == Kind::Text
            && self.data[start..end].ends_with(b"\\.")
            && ends_escaped(&self.data[start..end - 1])
        {
            // What stands before the marker is the last record.
            self.is_over = true;
            self.data.truncate(next);
            self.ends.push((end as u32 - 2, next as u32));
            return Ok(());
        }
        self.ends.push((end as u32, next as u32));
        Ok(())
    }

    fn scan(&mut self, is_last: bool) -> Result<(), SqlError> {
        match self.kind {
            Kind::Binary => self.scan_binary(),
            _ => {
                if self.ends_of_lines == LineEnd::Unknown && !self.learn_line_end(is_last) {
                    return Ok(());
                }
                if self.kind == Kind::Csv { self.scan_csv() } else { self.scan_text() }
            }
        }
    }

    /// Learns the kind of the ends of lines from the first; false if it has not come.
    fn learn_line_end(&mut self, is_last: bool) -> bool {
        let found = match self.kind {
            Kind::Csv => self.first_end_outside_quotes(),
            _ => self.first_end_without_backslash(),
        };
        self.ends_of_lines = match found {
            None => return false,
            Some(at) if self.data[at] == b'\n' => LineEnd::Newline,
            Some(at) => match self.data.get(at + 1) {
                Some(b'\n') => LineEnd::Both,
                Some(_) => LineEnd::Return,
                None if is_last => LineEnd::Return,
                None => return false,
            },
        };
        true
    }

    fn first_end_without_backslash(&self) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = memchr2(b'\n', b'\r', &self.data[from..]) {
            let at = from + at;
            if !ends_escaped(&self.data[..at]) {
                return Some(at);
            }
            from = at + 1;
        }
        None
    }

    fn first_end_outside_quotes(&self) -> Option<usize> {
        let mut quotes = Quotes { in_quotes: false, escaped: false };
        self.data.iter().position(|&byte| {
            quotes.take(byte, self.quote, self.escape);
            !quotes.in_quotes && matches!(byte, b'\n' | b'\r')
        })
    }

    fn end_byte(&self) -> u8 {
        if self.ends_of_lines == LineEnd::Return { b'\r' } else { b'\n' }
    }

    /// Takes the end of line at `at` for a record's.
    fn end_at(&mut self, at: usize) -> Result<(), SqlError> {
        let start = self.start();
        let mut end = at;
        if self.ends_of_lines == LineEnd::Both {
            if end == start || self.data[end - 1] != b'\r' {
                let what = if self.kind == Kind::Csv { "unquoted newline" } else { "literal newline" };
                return Err(SqlError::new("22P04", format!("{what} found in data")).with_hint(hint_newline(self.kind)));
            }
            end -= 1;
        }
        self.record(start, end, at + 1)
    }

    fn scan_text(&mut self) -> Result<(), SqlError> {
        let end_byte = self.end_byte();
        while let Some(at) = memchr(end_byte, &self.data[self.seen..]) {
            let at = self.seen + at;
            self.seen = at + 1;
            let start = self.start();
            if at > start && self.data[at - 1] == b'\\' && ends_escaped(&self.data[start..at]) {
                continue;
            }
            self.end_at(at)?;
            if self.is_over {
                return Ok(());
            }
        }
        self.seen = self.data.len();
        Ok(())
    }

    fn scan_csv(&mut self) -> Result<(), SqlError> {
        let end_byte = self.end_byte();
        let (quote, escape) = (self.quote, self.escape);
        let data = std::mem::take(&mut self.data);
        let from = self.seen;
        let mut before = from;
        let mut ends = Vec::new();
        for at in memchr3_iter(quote, escape, end_byte, &data[from..]) {
            let at = from + at;
            if at > before {
                self.escaped = false;
            }
            before = at + 1;
            let byte = data[at];
            let mut quotes = Quotes { in_quotes: self.in_quotes, escaped: self.escaped };
            quotes.take(byte, quote, escape);
            (self.in_quotes, self.escaped) = (quotes.in_quotes, quotes.escaped);
            if byte == end_byte {
                if self.in_quotes {
                    self.inner_open += 1;
                } else {
                    self.inner_lines += std::mem::take(&mut self.inner_open);
                    ends.push(at);
                }
            }
        }
        if before < data.len() {
            self.escaped = false;
        }
        self.seen = data.len();
        let all = data.len();
        self.data = data;
        for at in ends {
            self.end_at(at)?;
            if self.is_over {
                return Ok(());
            }
        }
        self.seen = all;
        Ok(())
    }

    fn scan_binary(&mut self) -> Result<(), SqlError> {
        if !self.has_head && !self.take_head()? {
            return Ok(());
        }
        loop {
            let start = self.start().max(self.seen);
            let Some(count) = int16(&self.data, start) else {
                return Ok(());
            };
            if count == -1 {
                self.is_over = true;
                self.data.truncate(start);
                return Ok(());
            }
            let mut at = start + 2;
            for _ in 0..count.max(0) {
                let Some(length) = int32(&self.data, at) else {
                    return Ok(());
                };
                if length < -1 {
                    return Err(SqlError::new("22P04", "invalid field size"));
                }
                at += 4 + usize::try_from(length).unwrap_or(0);
                if at > self.data.len() {
                    return Ok(());
                }
            }
            self.record(start, at, at)?;
        }
    }

    /// The head goes out of the data.
    fn take_head(&mut self) -> Result<bool, SqlError> {
        let there = self.data.len().min(SIGNATURE.len());
        if self.data[..there] != SIGNATURE[..there] {
            return Err(bad_signature());
        }
        let (Some(flags), Some(length)) = (int32(&self.data, SIGNATURE.len()), int32(&self.data, SIGNATURE.len() + 4))
        else {
            return Ok(false);
        };
        if flags & 1 << 16 != 0 {
            return Err(SqlError::new("22P04", "invalid COPY file header (WITH OIDS)"));
        }
        if flags >> 16 & !1 != 0 {
            return Err(SqlError::new("22P04", "unrecognized critical flags in COPY file header"));
        }
        let Ok(length) = usize::try_from(length) else {
            return Err(SqlError::new("22P04", "invalid COPY file header (missing length)"));
        };
        let head = SIGNATURE.len() + 8 + length;
        if self.data.len() < head {
            return Ok(false);
        }
        self.data.drain(..head);
        self.has_head = true;
        Ok(true)
    }
}

/// How quotes and escapes of CSV take turns (PostgreSQL's CopyReadLineText).
struct Quotes {
    in_quotes: bool,
    escaped: bool,
}

impl Quotes {
    fn take(&mut self, byte: u8, quote: u8, escape: u8) {
        let has_escape = escape != quote;
        if has_escape && self.in_quotes && byte == escape {
            self.escaped = !self.escaped;
        }
        if byte == quote && !self.escaped {
            self.in_quotes = !self.in_quotes;
        }
        if !has_escape || byte != escape {
            self.escaped = false;
        }
    }
}

/// Whether the next byte belongs to a backslash before it.
fn ends_escaped(bytes: &[u8]) -> bool {
    bytes.iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

fn int16(data: &[u8], at: usize) -> Option<i16> {
    data.get(at..at + 2)?.try_into().ok().map(i16::from_be_bytes)
}

fn int32(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}

fn hint_newline(kind: Kind) -> &'static str {
    match kind {
        Kind::Csv => "Use quoted CSV field to represent newline.",
        _ => "Use \"\\n\" to represent newline.",
    }
}

fn bad_signature() -> SqlError {
    SqlError::new("22P04", "COPY file signature not recognized")
}

/// Of a binary record.
pub fn wrong_count(given: usize, wanted: usize) -> SqlError {
    SqlError::new("22P04", format!("row field count is {given}, expected {wanted}"))
}
