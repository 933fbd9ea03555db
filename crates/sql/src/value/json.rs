//! What do `json` and `jsonb` hold? `json` its text as it was given; `jsonb` a tree, the last of equal keys, keys by length, then bytes.
//!
//! # Stored form of jsonb
//!
//! Bytes that compare as PostgreSQL compares jsonb: object > array, scalar; containers by their count first.
//!
//! | value | bytes |
//! |---|---|
//! | document: object | `11`, pairs |
//! | document: array, scalar | `10`, count 4, `01` (array) or `00`, elements |
//! | null, string, number, boolean within | `01`; `02` text; `03` numeric; `04` and 0 or 1 |
//! | array within | `10`, count 4, `01`, elements |
//! | object within | `11`, pairs |
//! | pairs | count 4; each: key as text, value |
//!
//! Text and numerics as in [`super::ordered`]; a number's display scale orders nothing.

mod parse;
mod path;

pub(crate) use parse::{Node, NodeValue, parse};
pub(crate) use path::{
    Setting, assign, contains, delete_key, delete_path, has_key, merge, pretty, set_path, strip_nulls,
};

use super::numeric::Numeric;
use super::ordered::{Ordered, Taking};
use super::{Datum, fault};
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};

const NULL: u8 = 1;
const STRING: u8 = 2;
const NUMBER: u8 = 3;
const BOOLEAN: u8 = 4;
const ARRAY: u8 = 0x10;
const OBJECT: u8 = 0x11;

#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Array(Vec<Json>),
    /// In the order of jsonb's keys, each once.
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn to_stored(&self) -> Box<[u8]> {
        let mut out = Ordered::default();
        match self {
            Json::Object(_) | Json::Array(_) => self.put(&mut out),
            scalar => {
                out.key.push(ARRAY);
                out.key.extend_from_slice(&1u32.to_be_bytes());
                out.key.push(0);
                scalar.put(&mut out);
            }
        }
        out.finish()
    }

    pub fn to_datum(&self) -> Datum {
        Datum::Bytes(self.to_stored())
    }

    pub fn from_stored(stored: &[u8]) -> Json {
        let mut taking = Taking::of(stored);
        if taking.key.first() == Some(&ARRAY) && taking.key.get(5) == Some(&0) {
            taking.bytes(6);
        }
        take(&mut taking)
    }

    fn put(&self, out: &mut Ordered) {
        match self {
            Json::Null => out.key.push(NULL),
            Json::Bool(v) => out.key.extend_from_slice(&[BOOLEAN, u8::from(*v)]),
            Json::Number(number) => {
                out.key.push(NUMBER);
                out.put_numeric(&number.to_stored());
            }
            Json::String(text) => {
                out.key.push(STRING);
                out.put_text(text.as_bytes());
            }
            Json::Array(items) => {
                out.key.push(ARRAY);
                out.key.extend_from_slice(&(items.len() as u32).to_be_bytes());
                out.key.push(1);
                items.iter().for_each(|item| item.put(out));
            }
            Json::Object(pairs) => {
                out.key.push(OBJECT);
                out.key.extend_from_slice(&(pairs.len() as u32).to_be_bytes());
                for (key, value) in pairs {
                    out.put_text(key.as_bytes());
                    value.put(out);
                }
            }
        }
    }

    /// An object of pairs in any order; of equal keys the last stays.
    pub fn object(mut pairs: Vec<(String, Json)>) -> Json {
        pairs.sort_by(|(a, _), (b, _)| key_order(a, b));
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            match kept.last_mut() {
                Some(last) if last.0 == pair.0 => *last = pair,
                _ => kept.push(pair),
            }
        }
        Json::Object(kept)
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    /// A field of an object.
    pub fn field(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// An element of an array; negative ones count from the end.
    pub fn element(&self, at: i64) -> Option<&Json> {
        match self {
            Json::Array(items) => items.get(place(at, items.len())?),
            _ => None,
        }
    }

    /// What a path of keys and subscripts leads to.
    pub fn at_path<'j>(&'j self, path: &[String]) -> Option<&'j Json> {
        path.iter().try_fold(self, |json, step| match json {
            Json::Object(_) => json.field(step),
            Json::Array(_) => json.element(step.trim().parse().ok()?),
            _ => None,
        })
    }

    /// As `->>` gives it: a string without quotes, SQL's NULL for null.
    pub fn as_text(&self) -> Datum {
        match self {
            Json::Null => Datum::Null,
            Json::String(text) => Datum::Bytes(text.as_bytes().into()),
            other => {
                let mut out = Vec::new();
                other.write(&mut out);
                Datum::Bytes(out.into())
            }
        }
    }

    /// The output function of jsonb.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Bool(v) => out.extend_from_slice(if *v { b"true" } else { b"false" }),
            Json::Number(number) => number.write(out),
            Json::String(text) => write_string(text, out),
            Json::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(pairs) => {
                out.push(b'{');
                for (i, (key, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    write_string(key, out);
                    out.extend_from_slice(b": ");
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The order in which jsonb keeps an object's keys.
fn key_order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn place(at: i64, length: usize) -> Option<usize> {
    let at = if at < 0 { at + length as i64 } else { at };
    usize::try_from(at).ok().filter(|&at| at < length)
}

fn take(taking: &mut Taking<'_>) -> Json {
    match taking.byte() {
        NULL => Json::Null,
        BOOLEAN => Json::Bool(taking.byte() == 1),
        NUMBER => Json::Number(Numeric::from_stored(&taking.numeric())),
        STRING => Json::String(string(taking.text())),
        ARRAY => {
            let count = u32::from_be_bytes(taking.chunk());
            taking.byte();
            Json::Array((0..count).map(|_| take(taking)).collect())
        }
        _ => {
            let count = u32::from_be_bytes(taking.chunk());
            let pair = |_| {
                let key = string(taking.text());
                (key, take(taking))
            };
            Json::Object((0..count).map(pair).collect())
        }
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A string in quotes, with what JSON must escape.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The input function of jsonb.
pub(crate) fn read_jsonb(text: &[u8]) -> Result<Datum, SqlError> {
    Ok(parse(text, true)?.to_json()?.to_datum())
}

/// The input function of json: checked, kept as it is.
pub(crate) fn read_json(text: &[u8]) -> Result<Datum, SqlError> {
    parse(text, false)?;
    Ok(Datum::Bytes(text.into()))
}

/// The tree in a json or jsonb value.
pub(crate) fn json_of(ty: Type, value: &Value<'_>) -> Result<Json, SqlError> {
    match (ty, value) {
        (Type::Jsonb, Value::Bytes(stored)) => Ok(Json::from_stored(stored)),
        (_, Value::Bytes(text)) => parse(text, true)?.to_json(),
        (ty, value) => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}

/// The version byte of jsonb's binary form.
pub(crate) fn receive_jsonb(bytes: &[u8]) -> Result<Datum, SqlError> {
    match bytes.split_first() {
        Some((1, text)) => read_jsonb(text),
        Some((version, _)) => Err(SqlError::new("XX000", format!("unsupported jsonb version number {version}"))),
        None => Err(fault::binary_too_short()),
    }
}
