//! What do arbitrary bytes do to the parser and to COPY? They are read or refused; nothing panics, and nothing runs without end.
//!
//! The targets in `fuzz/` and the tests with made-up bytes drive the same functions.

use crate::copy::convert::value_of;
use crate::copy::fields::Fields;
use crate::copy::options::{Format, Header, Kind};
use crate::copy::split::Splitter;
use crate::error::SqlError;
use crate::parse;
use crate::value::zone::Clock;
use freshet_engine::schema::{NetworkKind, Type};

/// A script as a client sends it: split into statements, each of which is parsed.
pub fn script(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for statement in parse::split(text).unwrap_or_default() {
        drop(parse::parse(&statement));
        drop(parse::cut_name_notice(&statement));
    }
    drop(parse::parse_expression(text));
}

/// Types that fields are read as, in turn.
const TYPES: [Type; 10] = [
    Type::Int4,
    Type::Text,
    Type::Numeric { typmod: None },
    Type::Timestamptz,
    Type::Interval,
    Type::Jsonb,
    Type::Bytea,
    Type::Uuid,
    Type::Network(NetworkKind::Cidr),
    Type::Network(NetworkKind::Mac8),
];

/// What COPY FROM reads. The first byte tells the format, the second how long the pieces are in which the others come.
pub fn copy_in(bytes: &[u8]) {
    let [format, piece, data @ ..] = bytes else { return };
    let format = format_of(*format);
    let mut splitter = Splitter::new(&format);
    let mut fields = Fields::default();
    let mut read = |splitter: &mut Splitter| {
        while let Some(chunk) = splitter.chunk(1) {
            chunk.records().for_each(|record| drop(read_record(record, &format, &mut fields)));
        }
    };
    for piece in data.chunks(1 + usize::from(*piece)) {
        if splitter.push(piece).is_err() {
            return;
        }
        read(&mut splitter);
    }
    drop(splitter.finish());
    read(&mut splitter);
}

fn read_record(record: &[u8], format: &Format, fields: &mut Fields) -> Result<(), SqlError> {
    fields.read(record, format)?;
    for field in 0..fields.len() {
        if let Some(field) = fields.get(record, field) {
            TYPES.iter().for_each(|&ty| drop(value_of(ty, field, format, Clock::UTC)));
        }
    }
    Ok(())
}

fn format_of(choice: u8) -> Format {
    let kind = [Kind::Text, Kind::Csv, Kind::Binary][usize::from(choice % 3)];
    let is_csv = kind == Kind::Csv;
    Format {
        kind,
        delimiter: if is_csv { b',' } else { b'\t' },
        null: if is_csv { Vec::new() } else { b"\\N".to_vec() },
        header: Header::No,
        quote: b'"',
        escape: if choice & 64 == 0 { b'"' } else { b'\\' },
        force_quote: vec![false; 3],
        force_not_null: vec![false; 3],
        force_null: vec![choice & 128 != 0; 3],
        ignores_errors: false,
        names: ["a", "b", "c"].map(str::to_owned).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    /// What the fuzzer found to end in a panic once.
    #[test]
    fn what_was_found_once_is_refused() {
        script(b"create table nd e nd nulls distinct (a))");
    }

    /// The same bytes in every run.
    fn runner() -> TestRunner {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[26; 32]);
        TestRunner::new_with_rng(Config { cases: 2_000, failure_persistence: None, ..Config::default() }, rng)
    }

    const WORDS: &[&str] = &[
        "select",
        "from",
        "where",
        "insert into",
        "values",
        "update",
        "set",
        "delete",
        "merge",
        "when",
        "matched",
        "then",
        "do nothing",
        "with",
        "recursive",
        "as",
        "copy",
        "stdin",
        "in",
        "(",
        ")",
        "((",
        "))",
        ",",
        ";",
        "'",
        "''",
        "\"",
        "$$",
        "$1",
        "e'",
        "\\",
        "--",
        "/*",
        "*/",
        "1",
        "1.5e",
        "x",
        "t",
        "for",
        "no key",
        "update of",
        "share",
        "default",
        "overriding",
        "data",
        "no",
        "create table",
        "alter table",
        "references",
        "check",
        "::",
        "[",
        "]",
        "{",
        "}",
        "ä",
        "\0",
        "\n",
        "nextval('s')",
        "union",
        "between",
        "and",
        "not",
        "null",
        "case",
        "end",
        "interval '1 day'",
        "over",
        "row",
        "array[",
        "begin",
        "deferrable",
        "prepare",
    ];

    #[test]
    fn words_in_any_order_are_parsed_or_refused() {
        let words = proptest::collection::vec(proptest::sample::select(WORDS), 0..40);
        runner()
            .run(&words, |words| {
                script(words.join(" ").as_bytes());
                script(words.concat().as_bytes());
                Ok(())
            })
            .expect("no words make the parser panic");
    }

    #[test]
    fn any_text_is_parsed_or_refused() {
        let asked = |text: String| {
            script(text.as_bytes());
            Ok(())
        };
        runner().run(&".{0,60}", asked).expect("no text makes the parser panic");
    }

    #[test]
    fn any_bytes_are_copied_or_refused() {
        let bytes = proptest::collection::vec(any::<u8>(), 0..200);
        let copied = |bytes: Vec<u8>| {
            copy_in(&bytes);
            Ok(())
        };
        runner().run(&bytes, copied).expect("no bytes make COPY panic");
        let marks = proptest::sample::select(&b"\\\"\n\r,\t.Nab1-{}[]\0\xc3\xa4\xff:"[..]);
        let bytes = (any::<u8>(), any::<u8>(), proptest::collection::vec(marks, 0..120));
        let copied = runner().run(&bytes, |(format, piece, bytes)| {
            copy_in(&[&[format, piece], bytes.as_slice()].concat());
            Ok(())
        });
        copied.expect("no bytes make COPY panic");
        let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x05\xff\xff\xff\xff\0\x01";
        for end in 0..=head.len() {
            copy_in(&[&[2, 3], &head[..end]].concat());
        }
    }
}
