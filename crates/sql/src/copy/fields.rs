//! What are a record's fields? One pass over its bytes; what needs no decoding stays where it is.

use super::options::{Format, Kind};
use crate::error::SqlError;
use memchr::{memchr, memchr2, memchr3};

/// Where a field's bytes are.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    /// In the record.
    Raw(u32, u32),
    /// Decoded.
    Made(u32, u32),
}

/// The fields of one record after the other; keeps its memory.
#[derive(Default, Debug)]
pub struct Fields {
    cells: Vec<Cell>,
    made: Vec<u8>,
}

impl Fields {
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// `None`: a null.
    pub fn get<'a>(&'a self, record: &'a [u8], field: usize) -> Option<&'a [u8]> {
        match self.cells[field] {
            Cell::Null => None,
            Cell::Raw(start, end) => Some(&record[start as usize..end as usize]),
            Cell::Made(start, end) => Some(&self.made[start as usize..end as usize]),
        }
    }

    /// Whether the field's bytes were made here, and so may be no text although the record is.
    pub fn is_made(&self, field: usize) -> bool {
        matches!(self.cells[field], Cell::Made(..))
    }

    /// Reads a record.
    pub fn read(&mut self, record: &[u8], format: &Format) -> Result<(), SqlError> {
        self.cells.clear();
        self.made.clear();
        match format.kind {
            Kind::Text => self.read_text(record, format),
            Kind::Csv => self.read_csv(record, format),
            Kind::Binary => self.read_binary(record),
        }
    }

    fn read_text(&mut self, record: &[u8], format: &Format) -> Result<(), SqlError> {
        if record.is_empty() && format.names.is_empty() {
            return Ok(());
        }
        let delimiter = format.delimiter;
        let mut start = 0;
        loop {
            let rest = &record[start..];
            match memchr3(delimiter, b'\\', b'\r', rest) {
                None => {
                    self.put_raw(record, start, record.len(), format);
                    return Ok(());
                }
                Some(at) if rest[at] == delimiter => {
                    self.put_raw(record, start, start + at, format);
                    start += at + 1;
                }
                Some(_) => {
                    let end = text_field_end(record, start, delimiter)?;
                    if record[start..end] == *format.null {
                        self.cells.push(Cell::Null);
                    } else {
                        let from = self.made.len();
                        unescape(&record[start..end], &mut self.made)?;
                        self.cells.push(Cell::Made(from as u32, self.made.len() as u32));
                    }
                    if end == record.len() {
                        return Ok(());
                    }
                    start = end + 1;
                }
            }
        }
    }

    fn put_raw(&mut self, record: &[u8], start: usize, end: usize, format: &Format) {
        let is_null = end - start == format.null.len() && record[start..end] == *format.null;
        self.cells.push(if is_null { Cell::Null } else { Cell::Raw(start as u32, end as u32) });
    }

    fn read_csv(&mut self, record: &[u8], format: &Format) -> Result<(), SqlError> {
        let mut at = 0;
        loop {
            let field = self.cells.len();
            let forced = |list: &[bool]| list.get(field).copied().unwrap_or(false);
            let start = at;
            let end = memchr2(format.delimiter, format.quote, &record[start..]).map_or(record.len(), |i| start + i);
            check_returns(&record[start..end])?;
            if end == record.len() || record[end] == format.delimiter {
                at = end;
                let is_null = record[start..end] == *format.null && !forced(&format.force_not_null);
                self.cells.push(if is_null { Cell::Null } else { Cell::Raw(start as u32, end as u32) });
            } else {
                at = self.quoted(record, start, format)?;
                let Some(Cell::Made(from, to)) = self.cells.last().copied() else {
                    unreachable!("invariant: a quoted field was just made");
                };
                if forced(&format.force_null) && self.made[from as usize..to as usize] == *format.null {
                    self.cells[field] = Cell::Null;
                }
            }
            if at == record.len() {
                return Ok(());
            }
            at += 1;
        }
    }

    /// A field with quotes in it; gives where it ends.
    fn quoted(&mut self, record: &[u8], start: usize, format: &Format) -> Result<usize, SqlError> {
        let from = self.made.len();
        let mut at = start;
        'field: loop {
            let end = memchr2(format.delimiter, format.quote, &record[at..]).map_or(record.len(), |i| at + i);
            check_returns(&record[at..end])?;
            self.made.extend_from_slice(&record[at..end]);
            at = end;
            if at == record.len() || record[at] == format.delimiter {
                break 'field;
            }
            at += 1;
            loop {
                let Some(found) = memchr2(format.quote, format.escape, &record[at..]) else {
                    return Err(SqlError::new("22P04", "unterminated CSV quoted field"));
                };
                self.made.extend_from_slice(&record[at..at + found]);
                at += found;
                let byte = record[at];
                at += 1;
                let next = record.get(at).copied();
                if byte == format.escape && next.is_some_and(|next| next == format.escape || next == format.quote) {
                    self.made.push(record[at]);
                    at += 1;
                } else if byte == format.quote {
                    break;
                } else {
                    self.made.push(byte);
                }
            }
        }
        self.cells.push(Cell::Made(from as u32, self.made.len() as u32));
        Ok(at)
    }

    /// The record was measured when it was split.
    fn read_binary(&mut self, record: &[u8]) -> Result<(), SqlError> {
        let mut at = 2;
        while at < record.len() {
            let length: [u8; 4] = record[at..at + 4].try_into().expect("four bytes");
            at += 4;
            match usize::try_from(i32::from_be_bytes(length)) {
                Err(_) => self.cells.push(Cell::Null),
                Ok(length) => {
                    self.cells.push(Cell::Raw(at as u32, (at + length) as u32));
                    at += length;
                }
            }
        }
        Ok(())
    }
}

fn check_returns(unquoted: &[u8]) -> Result<(), SqlError> {
    match memchr2(b'\r', b'\n', unquoted) {
        None => Ok(()),
        Some(at) => {
            let (what, name) =
                if unquoted[at] == b'\r' { ("carriage return", "carriage return") } else { ("newline", "newline") };
            Err(SqlError::new("22P04", format!("unquoted {what} found in data"))
                .with_hint(format!("Use quoted CSV field to represent {name}.")))
        }
    }
}

/// Where a field of the text format ends: a backslash takes the byte behind it along.
fn text_field_end(record: &[u8], start: usize, delimiter: u8) -> Result<usize, SqlError> {
    let mut at = start;
    loop {
        match memchr3(delimiter, b'\\', b'\r', &record[at..]) {
            None => return Ok(record.len()),
            Some(found) => {
                at += found;
                match record[at] {
                    b'\\' => at = (at + 2).min(record.len()),
                    b'\r' if delimiter != b'\r' => {
                        return Err(SqlError::new("22P04", "literal carriage return found in data")
                            .with_hint("Use \"\\r\" to represent carriage return."));
                    }
                    _ => return Ok(at),
                }
            }
        }
    }
}

/// Takes the backslashes out.
fn unescape(mut field: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
    while let Some(at) = memchr(b'\\', field) {
        out.extend_from_slice(&field[..at]);
        let (byte, taken) = match field[at + 1..] {
            [] => (b'\\', 0),
            // The end of the data, but that the line goes on.
            [b'.', ..] => return Err(SqlError::new("22P04", "end-of-copy marker corrupt")),
            [b'b', ..] => (8, 1),
            [b'f', ..] => (12, 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'v', ..] => (11, 1),
            [b'0'..=b'7', ..] => digits(&field[at + 1..], 8, 3),
            [b'x', digit, ..] if digit.is_ascii_hexdigit() => {
                let (byte, taken) = digits(&field[at + 2..], 16, 2);
                (byte, taken + 1)
            }
            [other, ..] => (other, 1),
        };
        out.push(byte);
        field = &field[at + 1 + taken..];
    }
    out.extend_from_slice(field);
    Ok(())
}

fn digits(text: &[u8], base: u32, count_max: usize) -> (u8, usize) {
    let digits = text.iter().take(count_max).map_while(|&b| char::from(b).to_digit(base));
    let (value, count) = digits.fold((0u32, 0), |(value, count), digit| (value * base + digit, count + 1));
    (value as u8, count)
}

#[cfg(test)]
mod tests {
    use super::super::options::Format;
    use super::super::split::Splitter;
    use super::*;
    use crate::parse::copy::{CopyOption, OptionValue};
    use proptest::prelude::*;

    fn format(options: &[(&str, &str)], columns: usize) -> Format {
        let option = |&(name, value): &(&str, &str)| CopyOption {
            name: name.to_owned(),
            value: OptionValue::Text(value.to_owned()),
            position: None,
        };
        let options: Vec<CopyOption> = options.iter().map(option).collect();
        let names: Vec<String> = (0..columns).map(|i| format!("c{i}")).collect();
        Format::of(&options, true, &names, None).expect("options of a test")
    }

    type Record = Vec<Option<String>>;

    /// All records, the bytes given in pieces of this size.
    fn read(bytes: &[u8], format: &Format, piece: usize) -> Result<Vec<Record>, SqlError> {
        let mut splitter = Splitter::new(format);
        let mut records = Vec::new();
        let mut fields = Fields::default();
        let mut take = |splitter: &mut Splitter| -> Result<(), SqlError> {
            while let Some(chunk) = splitter.chunk(1) {
                for record in chunk.records() {
                    fields.read(record, format)?;
                    let text = |f: &[u8]| String::from_utf8_lossy(f).into_owned();
                    records.push((0..fields.len()).map(|i| fields.get(record, i).map(text)).collect());
                }
            }
            Ok(())
        };
        for piece in bytes.chunks(piece) {
            splitter.push(piece)?;
            take(&mut splitter)?;
        }
        splitter.finish()?;
        take(&mut splitter)?;
        Ok(records)
    }

    fn check(bytes: &str, options: &[(&str, &str)], expected: &[&[Option<&str>]]) {
        let format = format(options, 2);
        for piece in [1, 2, 3, 1000] {
            let records = read(bytes.as_bytes(), &format, piece).unwrap_or_else(|e| panic!("{bytes:?}: {e}"));
            let expected: Vec<Record> =
                expected.iter().map(|r| r.iter().map(|f| f.map(str::to_owned)).collect()).collect();
            assert_eq!(records, expected, "{bytes:?} in pieces of {piece}");
        }
    }

    fn fails(bytes: &str, options: &[(&str, &str)], message: &str) {
        let format = format(options, 2);
        for piece in [1, 1000] {
            let error = read(bytes.as_bytes(), &format, piece).expect_err(bytes);
            assert_eq!((error.sqlstate, error.message.as_str()), ("22P04", message), "{bytes:?}");
        }
    }

    const CSV: &[(&str, &str)] = &[("format", "csv")];

    #[test]
    fn text_is_read_as_postgresql_reads_it() {
        check("1\ta\n2\t\\N\n", &[], &[&[Some("1"), Some("a")], &[Some("2"), None]]);
        check("1\ta\\tb\\\\\n", &[], &[&[Some("1"), Some("a\tb\\")]]);
        check("1\ta\\\nb\n2\t", &[], &[&[Some("1"), Some("a\nb")], &[Some("2"), Some("")]]);
        check("a\\101\\x41\\\\.x\r\nb\r\n", &[], &[&[Some("aAA\\.x")], &[Some("b")]]);
        check("1\\\tx\ty\n", &[], &[&[Some("1\tx"), Some("y")]]);
        check("1\ta\n\\.\n garbage", &[], &[&[Some("1"), Some("a")]]);
        check("1|n\n", &[("delimiter", "|"), ("null", "n")], &[&[Some("1"), None]]);
        check("1\ta\\.\n2\tb\n", &[], &[&[Some("1"), Some("a")]]);
        check("1\ta\\\\.\n", &[], &[&[Some("1"), Some("a\\.")]]);
        fails("\\.x\n", &[], "end-of-copy marker corrupt");
        fails("1\tx\\.\t1\n", &[], "end-of-copy marker corrupt");
        fails("a\nb\rc\n", &[], "literal carriage return found in data");
        fails("a\r\nb\n", &[], "literal newline found in data");
    }

    #[test]
    fn csv_is_read_as_postgresql_reads_it() {
        check("1,a\n2,\n3,\"\"\n", CSV, &[&[Some("1"), Some("a")], &[Some("2"), None], &[Some("3"), Some("")]]);
        check("\"a\"\"b\",\"x\ny,z\"\n", CSV, &[&[Some("a\"b"), Some("x\ny,z")]]);
        check("ab\"c,d\"e,f\n", CSV, &[&[Some("abc,de"), Some("f")]]);
        let escaped = &[("format", "csv"), ("escape", "\\")];
        check("\"a\\\"b\\\\\",\"\\c\"\n", escaped, &[&[Some("a\"b\\"), Some("\\c")]]);
        check("a,b\r\nc,d\r\n", CSV, &[&[Some("a"), Some("b")], &[Some("c"), Some("d")]]);
        fails("\"a,b\n", CSV, "unterminated CSV quoted field");
        fails("a,b\nc\rd,e\n", CSV, "unquoted carriage return found in data");
    }

    #[test]
    fn binary_is_read() {
        let format = format(&[("format", "binary")], 2);
        let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff\xff\xff");
        for piece in [1, 7, 1000] {
            assert_eq!(read(&bytes, &format, piece).expect("whole"), [vec![Some("a".to_owned()), None]]);
        }
        for cut in 0..bytes.len() - 2 {
            let read = read(&bytes[..cut], &format, 1000);
            assert!(read.as_ref().map_or_else(|e| e.sqlstate == "22P04", Vec::is_empty), "cut at {cut}: {read:?}");
        }
    }

    proptest! {
        /// What is written is read back, however it is cut; whatever is read gives rows or an error.
        #[test]
        fn rows_survive(
            rows in proptest::collection::vec(proptest::collection::vec(proptest::option::of("[ab\\\\\",\t\n\r|.é]{0,6}"), 2), 0..5),
            csv in any::<bool>(),
            piece in 1usize..20,
        ) {
            let format = if csv { format(CSV, 2) } else { format(&[], 2) };
            let mut bytes = Vec::new();
            for row in &rows {
                super::super::encode::write_texts(&format, row.iter().map(|f| f.as_deref().map(str::as_bytes)), &mut bytes);
            }
            prop_assert_eq!(read(&bytes, &format, piece).expect("written by us"), rows);
        }

        #[test]
        fn any_bytes_are_rows_or_an_error(
            bytes in proptest::collection::vec(proptest::sample::select(b"a\\.\"',\t\n\r\0N\x02\xff".to_vec()), 0..60),
            kind in 0usize..3,
            piece in 1usize..9,
        ) {
            let format = format(&[("format", ["text", "csv", "binary"][kind])], 2);
            let mut given = Vec::new();
            if kind == 2 {
                given.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
            }
            given.extend_from_slice(&bytes);
            let whole = read(&given, &format, 1000).map_err(|e| e.sqlstate);
            let pieces = read(&given, &format, piece).map_err(|e| e.sqlstate);
            prop_assert_eq!(whole, pieces);
        }
    }
}
