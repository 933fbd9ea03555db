//! How is a value written as text? PostgreSQL's input and output function of each type.
//!
//! Output appends to the caller's buffer and allocates nothing for integers, decimals, text, dates and times.

use super::interval::{Interval, Limit};
use super::network::{Mac, Network};
use super::zone::Clock;
use super::{Datum, array, datetime, digits, fault, float, interval, json, label, numeric, oid, pgtype, record};
use crate::error::SqlError;
use freshet_engine::schema::{NetworkKind, SystemKind, TimeKind, Type, Value};

/// The input function: white space around numbers is skipped, length and precision of the type are applied.
pub(crate) fn read(ty: Type, text: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    Ok(match ty {
        Type::Bool => Datum::Bool(read_bool(text)?),
        Type::Int2 => Datum::Int(read_int(text, i16::MIN.into(), "smallint")?),
        Type::Int4 => Datum::Int(read_int(text, i32::MIN.into(), "integer")?),
        Type::Int8 => Datum::Int(read_int(text, i64::MIN, "bigint")?),
        Type::Float4 => Datum::Float(float::read_float4(text)?.into()),
        Type::Float8 => Datum::Float(float::read_float8(text)?),
        Type::Decimal { precision, scale } => Datum::Decimal(numeric::read_decimal(text, precision, scale)?),
        Type::Numeric { typmod } => Datum::Bytes(numeric::read_numeric(text, typmod)?),
        Type::Char(_) | Type::Varchar(_) | Type::Text | Type::Name | Type::CharByte => {
            Datum::Bytes(limit_length(ty, check_text(text)?, false)?.into())
        }
        Type::Enum(id) => Datum::Int(label::read(id, text, clock)?),
        Type::Oid(kind) => Datum::Int(oid::read(kind, check_text(text)?, clock)?.into()),
        Type::Vector(kind) => oid::read_vector(kind, check_text(text)?)?,
        Type::System(SystemKind::Record) => {
            return Err(SqlError::unsupported("input of anonymous composite types"));
        }
        // Whatever is read.
        Type::System(SystemKind::Void) => {
            check_text(text)?;
            Datum::Bytes(Default::default())
        }
        Type::System(kind) => {
            check_text(text)?;
            match is_system_text(kind, text.trim_ascii()) {
                true => Datum::Bytes(text.trim_ascii().into()),
                false => return Err(fault::invalid_text(super::pgtype::name(ty), text)),
            }
        }
        Type::Bytea => Datum::Bytes(read_bytea(text)?),
        Type::Date => Datum::Int(datetime::read_date(text, clock)?),
        Type::Time => Datum::Int(datetime::read_time(text, clock)?),
        Type::Timestamp => Datum::Int(datetime::read_timestamp(text, clock)?),
        Type::Timestamptz => Datum::Int(datetime::read_timestamptz(text, clock)?),
        Type::Uuid => Datum::Uuid(read_uuid(text)?),
        Type::Network(kind @ (NetworkKind::Inet | NetworkKind::Cidr)) => {
            check_text(text)?;
            Network::read(kind, text)?.to_datum()
        }
        Type::Network(kind) => {
            check_text(text)?;
            Mac::read(kind, text)?
        }
        Type::Interval => Datum::Bytes(interval::read(check_text(text)?, None)?.to_stored()),
        Type::Json => json::read_json(check_text(text)?)?,
        Type::Jsonb => json::read_jsonb(check_text(text)?)?,
        Type::Array(element) => array::read(*element, check_text(text)?, clock)?,
        Type::Rounded(TimeKind::Interval, limit) => {
            let limit = Limit::of(limit);
            Datum::Bytes(limit.apply(interval::read(check_text(text)?, limit.fields())?).to_stored())
        }
        Type::Rounded(kind, digits) => rounded(read(kind.plain(), text, clock)?, digits),
    })
}

/// Whether a text has the form of those of the system's types that are compared by it alone.
fn is_system_text(kind: SystemKind, text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    match kind {
        SystemKind::Lsn => text.split_once('/').is_some_and(|(high, low)| {
            [high, low].into_iter().all(|half| (1..=8).contains(&half.len()) && u32::from_str_radix(half, 16).is_ok())
        }),
        SystemKind::AclItem => text.contains('='),
        _ => true,
    }
}

/// A value of a type of times with so many digits of a second.
pub(crate) fn rounded(datum: Datum, digits: u8) -> Datum {
    match datum {
        Datum::Int(us) => Datum::Int(datetime::rounded(us, digits.into())),
        Datum::Bytes(stored) => {
            let span = Interval::from_stored(&stored);
            Datum::Bytes(Limit::of(digits).apply(span).to_stored())
        }
        other => other,
    }
}

/// The output function. The value has the type's form and is not null.
pub(crate) fn write(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    match (ty, *value) {
        (Type::Bool, Value::Bool(v)) => out.push(if v { b't' } else { b'f' }),
        (Type::Int2 | Type::Int4 | Type::Int8, Value::Int(v)) => digits::write(v, out),
        (Type::Float4, Value::Float(v)) => float::write_float4(v as f32, out),
        (Type::Float8, Value::Float(v)) => float::write_float8(v, out),
        (Type::Decimal { scale, .. }, Value::Decimal(v)) => numeric::write_decimal(v, scale, out),
        (Type::Numeric { .. }, Value::Bytes(v)) => numeric::write_stored(v, out),
        (Type::Char(n), Value::Bytes(v)) => write_padded(n, v, out),
        (Type::Varchar(_) | Type::Text | Type::Json, Value::Bytes(v)) => out.extend_from_slice(v),
        (Type::System(SystemKind::Record), Value::Bytes(v)) => out.extend_from_slice(record::text_of(v)),
        (Type::Name | Type::CharByte | Type::System(_), Value::Bytes(v)) => out.extend_from_slice(v),
        (Type::Enum(id), Value::Int(v)) => label::write(id, v, clock, out),
        (Type::Oid(kind), Value::Int(v)) => oid::write(kind, v as u32, clock, out),
        (Type::Vector(kind), Value::Bytes(v)) => oid::write_vector(kind, v, out),
        (Type::Bytea, Value::Bytes(v)) => write_bytea(v, out),
        (Type::Date, Value::Int(v)) => datetime::write_date(v, clock.dates, out),
        (Type::Time, Value::Int(v)) => datetime::write_time(v, out),
        (Type::Timestamp, Value::Int(v)) => datetime::write_timestamp(v, None, clock.dates, out),
        (Type::Timestamptz, Value::Int(v)) => datetime::write_timestamp(v, Some(&clock.zone), clock.dates, out),
        (Type::Uuid, Value::Uuid(v)) => write_uuid(v, out),
        (Type::Network(kind @ (NetworkKind::Inet | NetworkKind::Cidr)), Value::Bytes(v)) => {
            Network::from_stored(v).write(kind, out);
        }
        (Type::Network(_), Value::Bytes(v)) => Mac::write(v, out),
        (Type::Interval, Value::Bytes(v)) => Interval::from_stored(v).write_as(clock.intervals, out),
        (Type::Jsonb, Value::Bytes(v)) => json::Json::from_stored(v).write(out),
        (Type::Array(element), Value::Bytes(v)) => array::write(*element, v, clock, out),
        (Type::Rounded(kind, _), _) => write(kind.plain(), value, clock, out),
        _ => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}

/// C's white space, which is one character more than ASCII's.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

pub(crate) fn trim_space(text: &[u8]) -> &[u8] {
    let Some(first) = text.iter().position(|b| !is_space(*b)) else {
        return b"";
    };
    let last = text.iter().rposition(|b| !is_space(*b));
    &text[first..last.map_or(first, |i| i + 1)]
}

/// Any beginning of `true`, `false`, `yes`, `no`; `on`, `off`, `of`, `1`, `0`.
fn read_bool(text: &[u8]) -> Result<bool, SqlError> {
    let word = trim_space(text);
    let begins = |full: &[u8], least: usize| {
        word.len() >= least && full.len() >= word.len() && full[..word.len()].eq_ignore_ascii_case(word)
    };
    if begins(b"true", 1) || begins(b"yes", 1) || begins(b"on", 2) || begins(b"1", 1) {
        Ok(true)
    } else if begins(b"false", 1) || begins(b"no", 1) || begins(b"off", 2) || begins(b"0", 1) {
        Ok(false)
    } else {
        Err(fault::invalid_text("boolean", text))
    }
}

/// `min` is the least value of the type, whose greatest is `-(min + 1)`. Counts down, because that side is longer.
fn read_int(text: &[u8], min: i64, type_name: &str) -> Result<i64, SqlError> {
    let trimmed = trim_space(text);
    let (negative, digits) = match trimmed.first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    let out_of_range = || fault::text_out_of_range(type_name, text);
    let mut value = 0i64;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return Err(fault::invalid_text(type_name, text));
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_sub(i64::from(byte - b'0')))
            .filter(|v| *v >= min)
            .ok_or_else(out_of_range)?;
    }
    if digits.is_empty() {
        return Err(fault::invalid_text(type_name, text));
    }
    match negative {
        true => Ok(value),
        false if value == min => Err(out_of_range()),
        false => Ok(-value),
    }
}

/// So many digits fit into any sum and multiple of ten on the way to the value of an `i64`.
const PLAIN_DIGITS_MAX: usize = 18;

/// Digits that may have a minus before them, of a value that the type has.
#[inline]
pub(crate) fn read_plain_integer(ty: Type, text: &[u8]) -> Option<i64> {
    let (least, greatest) = match ty {
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
        Type::Int8 => (i64::MIN, i64::MAX),
        _ => return None,
    };
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > PLAIN_DIGITS_MAX {
        return None;
    }
    let mut value = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    let value = if is_negative { -value } else { value };
    (least..=greatest).contains(&value).then_some(value)
}

/// Text must be UTF-8 and free of NUL.
pub(crate) fn check_text(text: &[u8]) -> Result<&[u8], SqlError> {
    let invalid = |bytes: &[u8]| {
        let hex: Vec<String> = bytes.iter().map(|b| format!("0x{b:02x}")).collect();
        let hex = hex.join(" ");
        SqlError::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {hex}"))
    };
    let valid_up_to = match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    if let Some(nul) = text[..valid_up_to].iter().position(|b| *b == 0) {
        return Err(invalid(&text[nul..nul + 1]));
    }
    if valid_up_to < text.len() {
        let rest = &text[valid_up_to..];
        return Err(invalid(&rest[..sequence_length(rest[0]).min(rest.len())]));
    }
    Ok(text)
}

/// How many bytes the first byte of a UTF-8 sequence announces.
fn sequence_length(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

/// The most bytes of an identifier.
const NAME_BYTES_MAX: usize = 63;

/// What fits an identifier: whole characters.
fn limit_name(text: &[u8]) -> &[u8] {
    if text.len() <= NAME_BYTES_MAX {
        return text;
    }
    let end = (0..=NAME_BYTES_MAX).rev().find(|&at| is_char_start(text[at])).unwrap_or(0);
    &text[..end]
}

/// The byte whose code stands behind a backslash.
fn char_of_octal(digits: &[u8]) -> Result<&'static [u8], SqlError> {
    static ASCII: [u8; 128] = {
        let mut all = [0; 128];
        let mut code = 0;
        while code < all.len() {
            all[code] = code as u8;
            code += 1;
        }
        all
    };
    match digits.iter().fold(0, |code: usize, digit| code * 8 + usize::from(digit - b'0')) % 256 {
        0 => Ok(b""),
        code => ASCII.get(code..=code).ok_or_else(|| SqlError::unsupported("a \"char\" that is not ASCII")),
    }
}

/// The first byte, of which PostgreSQL takes any; here it must be a character by itself.
fn limit_char_byte(text: &[u8]) -> Result<&[u8], SqlError> {
    match text {
        [b'\\', code @ ..] if code.len() == 3 && code.iter().all(|digit| matches!(digit, b'0'..=b'7')) => {
            return char_of_octal(code);
        }
        _ => {}
    }
    match text.first() {
        Some(byte) if !byte.is_ascii() => Err(SqlError::unsupported("a \"char\" that is not ASCII")),
        _ => Ok(&text[..text.len().min(1)]),
    }
}

/// What a `char(n)`, `varchar(n)` or `text` stores of a text. An explicit cast cuts what is too long; otherwise only
/// blanks may be cut. `char` stores no trailing blanks.
pub(crate) fn limit_length(ty: Type, text: &[u8], explicit: bool) -> Result<&[u8], SqlError> {
    let kept = match ty {
        Type::Char(n) | Type::Varchar(n) => {
            let kept = first_chars(text, n as usize);
            let excess = &text[kept.len()..];
            if !explicit && excess.iter().any(|b| *b != b' ') {
                return Err(fault::too_long(ty));
            }
            kept
        }
        Type::Name => limit_name(text),
        Type::CharByte => limit_char_byte(text)?,
        _ => text,
    };
    Ok(match ty {
        Type::Char(_) => trim_blanks(kept),
        _ => kept,
    })
}

/// The first `count` characters of UTF-8 text.
pub(crate) fn first_chars(text: &[u8], count: usize) -> &[u8] {
    if text.len() <= count {
        return text;
    }
    let starts = text.iter().enumerate().filter(|(_, b)| is_char_start(**b));
    let end = starts.map(|(i, _)| i).nth(count).unwrap_or(text.len());
    &text[..end]
}

pub(crate) fn char_count(text: &[u8]) -> usize {
    text.iter().filter(|b| is_char_start(**b)).count()
}

fn is_char_start(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

pub(crate) fn trim_blanks(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| *b != b' ').map_or(0, |i| i + 1);
    &text[..end]
}

/// Appends a `char(n)` with its blanks.
pub(crate) fn write_padded(n: u32, text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text);
    if n <= pgtype::LENGTH_MAX {
        let blanks = (n as usize).saturating_sub(char_count(text));
        out.extend(std::iter::repeat_n(b' ', blanks));
    }
}

fn read_bytea(text: &[u8]) -> Result<Box<[u8]>, SqlError> {
    match text.strip_prefix(b"\\x") {
        Some(hex) => read_hex(hex),
        None => read_escaped(text),
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|d| d as u8)
}

fn read_hex(text: &[u8]) -> Result<Box<[u8]>, SqlError> {
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut at = 0;
    let digit = |at: usize| {
        hex_digit(text[at]).ok_or_else(|| {
            let end = (at + sequence_length(text[at])).min(text.len());
            fault::quoted("22023", "invalid hexadecimal digit", &text[at..end])
        })
    };
    while at < text.len() {
        if matches!(text[at], b' ' | b'\n' | b'\t' | b'\r') {
            at += 1;
            continue;
        }
        let high = digit(at)?;
        if at + 1 == text.len() {
            let message = "invalid hexadecimal data: odd number of digits";
            return Err(SqlError::new("22023", message));
        }
        out.push(high << 4 | digit(at + 1)?);
        at += 2;
    }
    Ok(out.into())
}

/// The old form: `\\` is a backslash, `\ooo` a byte in octal.
fn read_escaped(text: &[u8]) -> Result<Box<[u8]>, SqlError> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, length) = match text[at..] {
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 4)
            }
            [b'\\', ..] => {
                return Err(SqlError::new("22P02", "invalid input syntax for type bytea"));
            }
            _ => (text[at], 1),
        };
        out.push(byte);
        at += length;
    }
    Ok(out.into())
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_bytea(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(2 + bytes.len() * 2);
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// 32 hexadecimal digits, with a hyphen allowed after every fourth, in braces or not.
fn read_uuid(text: &[u8]) -> Result<u128, SqlError> {
    let invalid = || fault::invalid_text("uuid", text);
    let inner = match text {
        [b'{', inner @ .., b'}'] => inner,
        _ => text,
    };
    let (mut value, mut digits, mut hyphen) = (0u128, 0, false);
    for &byte in inner {
        if byte == b'-' && !hyphen && digits % 4 == 0 && (1..32).contains(&digits) {
            hyphen = true;
            continue;
        }
        let digit = hex_digit(byte).filter(|_| digits < 32).ok_or_else(invalid)?;
        value = value << 4 | u128::from(digit);
        digits += 1;
        hyphen = false;
    }
    if digits != 32 || hyphen {
        return Err(invalid());
    }
    Ok(value)
}

fn write_uuid(value: u128, out: &mut Vec<u8>) {
    for digit in 0..32 {
        if matches!(digit, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        out.push(HEX[(value >> (124 - 4 * digit)) as usize & 15]);
    }
}

/// Each letter in its other case, as C's library has it: one letter for one, whatever stands beside it (`STRAßE`).
pub(crate) fn upper(text: &str) -> String {
    text.chars().map(upper_letter).collect()
}

pub(crate) fn lower(text: &str) -> String {
    text.chars().map(lower_letter).collect()
}

pub(crate) fn upper_letter(c: char) -> char {
    match c {
        // Greek letters with an iota below have one that is written beside them in capitals.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => moved(c, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => moved(c, 9),
        _ => only(c.to_uppercase()).unwrap_or(c),
    }
}

pub(crate) fn lower_letter(c: char) -> char {
    // Of more than one letter is that of the capital i with a dot alone, which is a small i.
    only(c.to_lowercase()).unwrap_or('i')
}

fn moved(c: char, by: u32) -> char {
    char::from_u32(c as u32 + by).unwrap_or(c)
}

fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
    letters.next().filter(|_| letters.next().is_none())
}
