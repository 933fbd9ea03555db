//! How is a row a value? As the three things that it is asked for, put together when it is made: its text, its JSON and its binary form.
//!
//! Neither of the first two has a zero byte in it, so that one stands between them; the third follows as a character for each byte: the
//! whole is text in UTF-8. What came from a client as text is that text alone.

use super::function::json::write_json;
use super::text::{self, is_space};
use super::{Clock, Datum, binary, json, pgtype};
use freshet_engine::schema::{Type, Value};

/// A field: its name, its type and its value.
pub(crate) type Field<'a> = (String, Type, &'a Value<'a>);

const END: u8 = 0;

/// The row of these fields.
pub(crate) fn make(fields: &[Field<'_>], clock: &Clock) -> Datum {
    let mut out = Vec::new();
    write_fields(fields, clock, &mut out);
    out.push(END);
    write_object(fields, clock, &mut out);
    out.push(END);
    let sent: String = sent(fields, clock).into_iter().map(char::from).collect();
    out.extend_from_slice(sent.as_bytes());
    Datum::Bytes(out.into())
}

/// `(1,"a b",)`
fn write_fields(fields: &[Field<'_>], clock: &Clock, out: &mut Vec<u8>) {
    out.push(b'(');
    for (i, (_, ty, value)) in fields.iter().enumerate() {
        out.extend_from_slice(if i > 0 { b"," } else { b"" });
        if value.is_null() {
            continue;
        }
        let mut shown = Vec::new();
        text::write(*ty, value, clock, &mut shown);
        let special = |b: &u8| matches!(b, b'(' | b')' | b',' | b'"' | b'\\') || is_space(*b);
        if !shown.is_empty() && !shown.iter().any(special) {
            out.extend_from_slice(&shown);
            continue;
        }
        out.push(b'"');
        for byte in shown {
            if matches!(byte, b'"' | b'\\') {
                out.push(byte);
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    out.push(b')');
}

fn write_object(fields: &[Field<'_>], clock: &Clock, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (name, ty, value)) in fields.iter().enumerate() {
        out.extend_from_slice(if i > 0 { b"," } else { b"" });
        json::write_string(name, out);
        out.push(b':');
        write_json(*ty, value, clock, out);
    }
    out.push(b'}');
}

/// How many fields, and of each its type, its length and its bytes.
fn sent(fields: &[Field<'_>], clock: &Clock) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&(fields.len() as i32).to_be_bytes());
    for (_, ty, value) in fields {
        out.extend_from_slice(&pgtype::describe(*ty).oid.to_be_bytes());
        if value.is_null() {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let mut bytes = Vec::new();
        binary::write(*ty, value, clock, &mut bytes);
        out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

fn part(stored: &[u8], at: usize) -> Option<&[u8]> {
    stored.splitn(3, |byte| *byte == END).nth(at)
}

/// A row's text.
pub(crate) fn text_of(stored: &[u8]) -> &[u8] {
    part(stored, 0).unwrap_or_default()
}

/// A row as JSON.
pub(crate) fn write_as_json(stored: &[u8], out: &mut Vec<u8>) {
    match part(stored, 1) {
        Some(object) => out.extend_from_slice(object),
        None => json::write_string(&String::from_utf8_lossy(stored), out),
    }
}

/// A row's binary form.
pub(crate) fn send(stored: &[u8], out: &mut Vec<u8>) {
    match part(stored, 2).and_then(|part| std::str::from_utf8(part).ok()) {
        Some(sent) => out.extend(sent.chars().map(|c| c as u8)),
        None => out.extend_from_slice(stored),
    }
}
