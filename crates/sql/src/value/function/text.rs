//! More functions of text and bytes: encodings, hashes, quoting.

use super::arguments::{Arguments, text};
use super::math::chance;
use crate::error::SqlError;
use crate::value::array::Array;
use crate::value::{Datum, pattern, second_row};
use freshet_engine::schema::Type;
use sha2::Digest;
use unicode_normalization::UnicodeNormalization;

type Result = std::result::Result<Datum, SqlError>;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new("22023", message)
}

pub(super) fn to_hex(a: &Arguments<'_>) -> Result {
    Ok(text(match a.types[0] {
        Type::Int4 => format!("{:x}", a.int(0) as u32),
        _ => format!("{:x}", a.int(0) as u64),
    }))
}

/// A byte of a name, which is an array of bytes from 0 on.
pub(super) fn name_at(a: &Arguments<'_>) -> Result {
    const NAME_BYTES: usize = 64;
    let Some(at) = usize::try_from(a.int(1)).ok().filter(|&at| at < NAME_BYTES) else { return Ok(Datum::Null) };
    Ok(match a.bytes(0).get(at) {
        None => text(""),
        Some(byte) if byte.is_ascii() => text(char::from(*byte).to_string()),
        Some(byte) => text(format!("\\{byte:03o}")),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Lines of 76 characters.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut column = 0;
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = BASE64[(word >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
        column += 4;
        if column == 76 {
            out.push('\n');
            column = 0;
        }
    }
    if out.ends_with('\n') && column == 0 && bytes.len().is_multiple_of(57) {
        out.pop();
    }
    out
}

fn from_base64(encoded: &str) -> std::result::Result<Vec<u8>, SqlError> {
    let mut out = Vec::new();
    let (mut word, mut count, mut ended) = (0u32, 0, 0);
    for c in encoded.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let digit = match c {
            '=' if ended > 0 || count >= 2 => {
                ended += 1;
                0
            }
            '=' => return Err(invalid("unexpected \"=\" while decoding base64 sequence")),
            c => match BASE64.iter().position(|b| char::from(*b) == c) {
                Some(digit) if ended == 0 => digit as u32,
                _ => return Err(invalid(format!("invalid symbol \"{c}\" found while decoding base64 sequence"))),
            },
        };
        (word, count) = (word << 6 | digit, count + 1);
        if count == 4 {
            out.extend_from_slice(&word.to_be_bytes()[1..4 - ended.min(2)]);
            (word, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(invalid("invalid base64 end sequence")
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn from_hex(encoded: &str) -> std::result::Result<Vec<u8>, SqlError> {
    let mut digits = Vec::new();
    for c in encoded.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let digit = c.to_digit(16).ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{c}\"")))?;
        digits.push(digit as u8);
    }
    if digits.len() % 2 == 1 {
        return Err(invalid("invalid hexadecimal data: odd number of digits"));
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 128.. => out.push_str(&format!("\\{byte:03o}")),
            _ => out.push(byte as char),
        }
    }
    out
}

fn from_escaped(encoded: &str) -> std::result::Result<Vec<u8>, SqlError> {
    let bytes = encoded.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (byte, length) = match bytes[at..] {
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', x @ b'0'..=b'3', y @ b'0'..=b'7', z @ b'0'..=b'7', ..] => {
                ((x - b'0') << 6 | (y - b'0') << 3 | (z - b'0'), 4)
            }
            [b'\\', ..] => return Err(SqlError::new("22P02", "invalid input syntax for type bytea")),
            _ => (bytes[at], 1),
        };
        out.push(byte);
        at += length;
    }
    Ok(out)
}

fn unknown_encoding(name: &str) -> SqlError {
    invalid(format!("unrecognized encoding: \"{name}\""))
}

pub(super) fn encode(a: &Arguments<'_>) -> Result {
    Ok(text(match a.text(1).to_ascii_lowercase().as_str() {
        "hex" => hex(a.bytes(0)),
        "base64" => base64(a.bytes(0)),
        "escape" => escaped(a.bytes(0)),
        _ => return Err(unknown_encoding(a.text(1))),
    }))
}

pub(super) fn decode(a: &Arguments<'_>) -> Result {
    let decoded = match a.text(1).to_ascii_lowercase().as_str() {
        "hex" => from_hex(a.text(0))?,
        "base64" => from_base64(a.text(0))?,
        "escape" => from_escaped(a.text(0))?,
        _ => return Err(unknown_encoding(a.text(1))),
    };
    Ok(Datum::Bytes(decoded.into()))
}

pub(super) fn sha224(a: &Arguments<'_>) -> Result {
    Ok(text(sha2::Sha224::digest(a.bytes(0))))
}

pub(super) fn sha256(a: &Arguments<'_>) -> Result {
    Ok(text(sha2::Sha256::digest(a.bytes(0))))
}

pub(super) fn sha384(a: &Arguments<'_>) -> Result {
    Ok(text(sha2::Sha384::digest(a.bytes(0))))
}

pub(super) fn sha512(a: &Arguments<'_>) -> Result {
    Ok(text(sha2::Sha512::digest(a.bytes(0))))
}

/// The place of a byte or bit in so many of them.
fn index(at: i64, count: usize) -> std::result::Result<usize, SqlError> {
    usize::try_from(at).ok().filter(|&at| at < count).ok_or_else(|| {
        let last = count as i64 - 1;
        SqlError::new("2202E", format!("index {at} out of valid range, 0..{last}"))
    })
}

pub(super) fn get_byte(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(a.bytes(0)[index(a.int(1), a.bytes(0).len())?].into()))
}

pub(super) fn set_byte(a: &Arguments<'_>) -> Result {
    let mut bytes = a.bytes(0).to_vec();
    let at = index(a.int(1), bytes.len())?;
    bytes[at] = a.int(2) as u8;
    Ok(Datum::Bytes(bytes.into()))
}

pub(super) fn get_bit(a: &Arguments<'_>) -> Result {
    let at = index(a.int(1), a.bytes(0).len() * 8)?;
    Ok(Datum::Int((a.bytes(0)[at / 8] >> (at % 8) & 1).into()))
}

pub(super) fn set_bit(a: &Arguments<'_>) -> Result {
    let mut bytes = a.bytes(0).to_vec();
    let at = index(a.int(1), bytes.len() * 8)?;
    match a.int(2) {
        0 => bytes[at / 8] &= !(1 << (at % 8)),
        1 => bytes[at / 8] |= 1 << (at % 8),
        _ => return Err(invalid("new bit must be 0 or 1")),
    }
    Ok(Datum::Bytes(bytes.into()))
}

pub(super) fn bit_count(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(a.bytes(0).iter().map(|b| i64::from(b.count_ones())).sum()))
}

pub(super) fn position_bytes(a: &Arguments<'_>) -> Result {
    let (bytes, wanted) = (a.bytes(0), a.bytes(1));
    if wanted.is_empty() {
        return Ok(Datum::Int(1));
    }
    let at = bytes.windows(wanted.len()).position(|w| w == wanted);
    Ok(Datum::Int(at.map_or(0, |at| at as i64 + 1)))
}

pub(super) fn overlay_bytes(a: &Arguments<'_>) -> Result {
    let (value, placed, from) = (a.bytes(0), a.bytes(1), a.int(2));
    let count = if a.len() == 4 { a.int(3) } else { placed.len() as i64 };
    if from <= 0 {
        return Err(SqlError::new("22011", "negative substring length not allowed"));
    }
    let place = |at: i64| usize::try_from(at).unwrap_or(0).min(value.len());
    let (head, tail) = (&value[..place(from - 1)], &value[place(from - 1 + count)..]);
    Ok(Datum::Bytes([head, placed, tail].concat().into()))
}

pub(super) fn overlay(a: &Arguments<'_>) -> Result {
    let (value, placed, from) = (a.text(0), a.text(1), a.int(2));
    let count = if a.len() == 4 { a.int(3) } else { placed.chars().count() as i64 };
    if from <= 0 {
        return Err(SqlError::new("22011", "negative substring length not allowed"));
    }
    let head: String = value.chars().take((from - 1) as usize).collect();
    let after = (from - 1 + count).max(0) as usize;
    let tail: String = value.chars().skip(after).collect();
    Ok(text(head + placed + &tail))
}

/// Words that an identifier must not be without quotes: reserved ones, and those that are functions or types of their own.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case \
    cast char character check coalesce collate collation column concurrently constraint create cross current_catalog current_date \
    current_role current_schema current_time current_timestamp current_user dec decimal default deferrable desc distinct do else end \
    except exists extract false fetch float for foreign freeze from full grant greatest group grouping having ilike in initially \
    inner inout int integer intersect interval into is isnull join lateral leading least left like limit localtime localtimestamp \
    national natural nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing \
    position precision primary real references returning right row select session_user setof similar smallint some substring \
    symmetric table tablesample then time timestamp to trailing treat trim true union unique user using values varchar variadic \
    verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot \
    xmlserialize xmltable ";

/// A name as SQL text: quoted where PostgreSQL quotes it.
pub(crate) fn quoted_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&format!(" {name} "));
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A text as a literal.
pub(crate) fn quoted_literal(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

pub(super) fn quote_ident(a: &Arguments<'_>) -> Result {
    Ok(text(quoted_ident(a.text(0))))
}

pub(super) fn quote_literal(a: &Arguments<'_>) -> Result {
    Ok(text(quoted_literal(a.text(0))))
}

pub(super) fn quote_nullable(a: &Arguments<'_>) -> Result {
    Ok(text(if a.is_null(0) { "NULL".to_owned() } else { quoted_literal(a.text(0)) }))
}

pub(super) fn starts_with(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(a.bytes(0).starts_with(a.bytes(1))))
}

enum Encoding {
    Utf8,
    Latin1,
    Ascii,
}

fn encoding(name: &str) -> std::result::Result<Encoding, SqlError> {
    match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(Encoding::Utf8),
        "latin1" | "iso88591" => Ok(Encoding::Latin1),
        "sqlascii" => Ok(Encoding::Ascii),
        _ => Err(invalid(format!("invalid source encoding name \"{name}\""))),
    }
}

pub(super) fn convert_from(a: &Arguments<'_>) -> Result {
    match encoding(a.text(1))? {
        Encoding::Latin1 => Ok(text(a.bytes(0).iter().map(|b| char::from(*b)).collect::<String>())),
        Encoding::Utf8 | Encoding::Ascii => Ok(text(crate::value::text::check_text(a.bytes(0))?)),
    }
}

pub(super) fn convert_to(a: &Arguments<'_>) -> Result {
    match encoding(a.text(1))? {
        Encoding::Latin1 => {
            let mut out = Vec::new();
            for c in a.text(0).chars() {
                let byte = u8::try_from(u32::from(c)).map_err(|_| {
                    let message = "character with no equivalent in encoding \"LATIN1\"";
                    SqlError::new("22P05", format!("{message}: U+{:04X}", u32::from(c)))
                })?;
                out.push(byte);
            }
            Ok(Datum::Bytes(out.into()))
        }
        Encoding::Utf8 | Encoding::Ascii => Ok(Datum::Bytes(a.bytes(0).into())),
    }
}

/// The text in the normal form that the second argument names: NFC, if there is none.
fn normalized(a: &Arguments<'_>) -> std::result::Result<String, SqlError> {
    let form = if a.len() > 1 { a.text(1).to_ascii_uppercase() } else { "NFC".to_owned() };
    let value = a.text(0);
    Ok(match form.as_str() {
        "NFC" => value.nfc().collect(),
        "NFD" => value.nfd().collect(),
        "NFKC" => value.nfkc().collect(),
        "NFKD" => value.nfkd().collect(),
        _ => return Err(invalid(format!("invalid normalization form: {}", a.text(1)))),
    })
}

pub(super) fn normalize(a: &Arguments<'_>) -> Result {
    Ok(text(normalized(a)?))
}

pub(super) fn is_normalized(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(normalized(a)? == a.text(0)))
}

pub(super) fn unistr(a: &Arguments<'_>) -> Result {
    let wrong = || SqlError::new("42601", "invalid Unicode escape");
    let mut out = String::new();
    let mut rest = a.text(0);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (skip, length) = match rest.as_bytes().first() {
            Some(b'\\') => {
                out.push('\\');
                rest = &rest[1..];
                continue;
            }
            Some(b'+') => (1, 6),
            Some(b'u') => (1, 4),
            Some(b'U') => (1, 8),
            _ => (0, 4),
        };
        let digits = rest.get(skip..skip + length).ok_or_else(wrong)?;
        let code = u32::from_str_radix(digits, 16).map_err(|_| wrong())?;
        out.push(char::from_u32(code).filter(|c| *c != '\0').ok_or_else(wrong)?);
        rest = &rest[skip + length..];
    }
    out.push_str(rest);
    Ok(text(out))
}

pub(super) fn like(a: &Arguments<'_>) -> Result {
    pattern::like(a.bytes(0), a.bytes(1), Some('\\'), false).map(Datum::Bool)
}

pub(super) fn not_like(a: &Arguments<'_>) -> Result {
    pattern::like(a.bytes(0), a.bytes(1), Some('\\'), false).map(|found| Datum::Bool(!found))
}

pub(super) fn like_bytes(a: &Arguments<'_>) -> Result {
    pattern::like_bytes(a.bytes(0), a.bytes(1), Some(b'\\')).map(Datum::Bool)
}

pub(super) fn not_like_bytes(a: &Arguments<'_>) -> Result {
    pattern::like_bytes(a.bytes(0), a.bytes(1), Some(b'\\')).map(|found| Datum::Bool(!found))
}

/// A pattern whose escape is another one, or nothing, with a backslash in its place.
fn with_backslashes<T: Copy + PartialEq>(
    pattern: &[T],
    escape: &[T],
    backslash: T,
) -> std::result::Result<Vec<T>, SqlError> {
    let escape = match escape {
        [] => None,
        [one] => Some(*one),
        _ => {
            return Err(SqlError::new("22025", "invalid escape string")
                .with_hint("Escape string must be empty or one character."));
        }
    };
    if escape == Some(backslash) {
        return Ok(pattern.to_vec());
    }
    let (mut out, mut is_escaped) = (Vec::with_capacity(pattern.len()), false);
    for &one in pattern {
        if escape == Some(one) && !is_escaped {
            out.push(backslash);
            is_escaped = true;
            continue;
        }
        if one == backslash && !is_escaped {
            out.push(backslash);
        }
        out.push(one);
        is_escaped = false;
    }
    Ok(out)
}

pub(super) fn like_escape(a: &Arguments<'_>) -> Result {
    let chars = |at: usize| a.text(at).chars().collect::<Vec<char>>();
    Ok(text(with_backslashes(&chars(0), &chars(1), '\\')?.into_iter().collect::<String>()))
}

pub(super) fn like_escape_bytes(a: &Arguments<'_>) -> Result {
    Ok(text(with_backslashes(a.bytes(0), a.bytes(1), b'\\')?))
}

/// The parts of a text between separators; without a separator each character is one.
pub(super) fn split(value: &str, separator: Option<&str>) -> Vec<String> {
    match separator {
        _ if value.is_empty() => Vec::new(),
        None => value.chars().map(String::from).collect(),
        Some("") => vec![value.to_owned()],
        Some(separator) => value.split(separator).map(str::to_owned).collect(),
    }
}

pub(super) fn string_to_array(a: &Arguments<'_>) -> Result {
    if a.is_null(0) {
        return Ok(Datum::Null);
    }
    let null = if a.len() == 3 && !a.is_null(2) { Some(a.text(2)) } else { None };
    let parts = split(a.text(0), if a.is_null(1) { None } else { Some(a.text(1)) });
    let item = |part: String| if Some(part.as_str()) == null { Datum::Null } else { text(part) };
    Ok(Array::of(parts.into_iter().map(item).collect()).to_datum(Type::Text))
}

pub(super) fn parse_ident(a: &Arguments<'_>) -> Result {
    let wrong = || invalid(format!("string is not a valid identifier: \"{}\"", a.text(0)));
    // Not strict: what follows the identifier does not matter.
    let is_lax = a.len() > 1 && !a.bool(1);
    let mut parts = Vec::new();
    let mut rest = a.text(0).trim();
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut chars = quoted.char_indices().peekable();
            let end = loop {
                match chars.next().ok_or_else(wrong)? {
                    (_, '"') if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                        chars.next();
                        name.push('"');
                    }
                    (at, '"') => break at,
                    (_, c) => name.push(c),
                }
            };
            parts.push(text(name));
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
            if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(wrong());
            }
            parts.push(text(rest[..end].to_lowercase()));
            rest = rest[end..].trim_start();
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() || is_lax => return Ok(Array::of(parts).to_datum(Type::Text)),
            None => return Err(wrong()),
        }
    }
}

/// 21000 for a second row.
pub(super) fn only_row(a: &Arguments<'_>) -> Result {
    if !a.is_null(1) && a.int(1) > 1 {
        return Err(second_row());
    }
    Ok(Datum::from(a.values[0]))
}

pub(super) fn uuid_nil(_: &Arguments<'_>) -> Result {
    Ok(Datum::Uuid(0))
}

pub(super) fn gen_random_uuid(_: &Arguments<'_>) -> Result {
    let chance = u128::from(chance()) << 64 | u128::from(chance());
    let version = 0x4u128 << 76;
    let variant = 0x2u128 << 62;
    Ok(Datum::Uuid(chance & !(0xf << 76) & !(0x3 << 62) | version | variant))
}
