//! Functions and operators of json and jsonb. Those of json give parts of the text that was given.

use super::arguments::{Arguments, text};
use crate::error::SqlError;
use crate::value::array::{Array, array_of};
use crate::value::json::{self, Json, Node, NodeValue, Setting, parse};
use crate::value::zone::Clock;
use crate::value::{DateStyle, Datum, cast, record, text as texts};
use freshet_engine::schema::{SystemKind, Type, Value};

type Result<T = Datum> = std::result::Result<T, SqlError>;

fn invalid(message: &str) -> SqlError {
    SqlError::new("22023", message)
}

/// A part of a json value, as the result's type has it.
fn given_node(a: &Arguments<'_>, node: Option<&Node<'_>>) -> Result {
    let Some(node) = node else {
        return Ok(Datum::Null);
    };
    Ok(match (&node.value, a.result) {
        (_, Type::Json) => text(node.text),
        (NodeValue::Null, _) => Datum::Null,
        (NodeValue::String(string), _) => {
            if string.contains('\0') {
                return Err(SqlError::new("22P05", "unsupported Unicode escape sequence"));
            }
            text(string)
        }
        _ => text(node.text),
    })
}

fn given(a: &Arguments<'_>, json: Option<&Json>) -> Datum {
    match json {
        None => Datum::Null,
        Some(json) if a.result == Type::Jsonb => json.to_datum(),
        Some(json) => json.as_text(),
    }
}

pub(super) fn field(a: &Arguments<'_>) -> Result {
    if a.types[0] == Type::Json {
        return given_node(a, parse(a.bytes(0), false)?.field(a.text(1)));
    }
    Ok(given(a, a.json(0)?.field(a.text(1))))
}

pub(super) fn element(a: &Arguments<'_>) -> Result {
    if a.types[0] == Type::Json {
        return given_node(a, parse(a.bytes(0), false)?.element(a.int(1)));
    }
    let json = a.json(0)?;
    // A scalar is stored as an array of one.
    let is_scalar = !matches!(json, Json::Array(_) | Json::Object(_));
    let found = if is_scalar && matches!(a.int(1), 0 | -1) { Some(&json) } else { json.element(a.int(1)) };
    Ok(given(a, found))
}

/// A path of texts; `None` if one of them is null.
fn path(array: &Array) -> Option<Vec<String>> {
    let step = |item: &Datum| match item {
        Datum::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    array.items.iter().map(step).collect()
}

pub(super) fn at_path(a: &Arguments<'_>) -> Result {
    follow(a, path(&a.array(1)))
}

pub(super) fn follow(a: &Arguments<'_>, path: Option<Vec<String>>) -> Result {
    let Some(path) = path else {
        return Ok(Datum::Null);
    };
    if a.types[0] == Type::Json {
        return given_node(a, parse(a.bytes(0), false)?.at_path(&path));
    }
    Ok(given(a, a.json(0)?.at_path(&path)))
}

pub(super) fn contains(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(json::contains(&a.json(0)?, &a.json(1)?)))
}

pub(super) fn is_contained(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(json::contains(&a.json(1)?, &a.json(0)?)))
}

pub(super) fn has_key(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(json::has_key(&a.json(0)?, a.text(1))))
}

pub(super) fn has_any_key(a: &Arguments<'_>) -> Result {
    let json = a.json(0)?;
    Ok(Datum::Bool(a.texts(1).iter().any(|key| json::has_key(&json, key))))
}

pub(super) fn has_all_keys(a: &Arguments<'_>) -> Result {
    let json = a.json(0)?;
    Ok(Datum::Bool(a.texts(1).iter().all(|key| json::has_key(&json, key))))
}

pub(super) fn merge(a: &Arguments<'_>) -> Result {
    Ok(json::merge(a.json(0)?, a.json(1)?)?.to_datum())
}

pub(super) fn delete_key(a: &Arguments<'_>) -> Result {
    Ok(json::delete_key(a.json(0)?, &[a.text(1).to_owned()])?.to_datum())
}

pub(super) fn delete_keys(a: &Arguments<'_>) -> Result {
    Ok(json::delete_key(a.json(0)?, &a.texts(1))?.to_datum())
}

pub(super) fn delete_element(a: &Arguments<'_>) -> Result {
    match a.json(0)? {
        Json::Array(mut items) => {
            let at = if a.int(1) < 0 { a.int(1) + items.len() as i64 } else { a.int(1) };
            if let Some(at) = usize::try_from(at).ok().filter(|&at| at < items.len()) {
                items.remove(at);
            }
            Ok(Json::Array(items).to_datum())
        }
        Json::Object(_) => Err(invalid("cannot delete from object using integer index")),
        _ => Err(invalid("cannot delete from scalar")),
    }
}

pub(super) fn delete_path(a: &Arguments<'_>) -> Result {
    Ok(json::delete_path(a.json(0)?, &a.texts(1))?.to_datum())
}

pub(super) fn type_of(a: &Arguments<'_>) -> Result {
    Ok(text(match a.types[0] {
        Type::Json => parse(a.bytes(0), false)?.type_name(),
        _ => a.json(0)?.type_name(),
    }))
}

pub(super) fn array_length(a: &Arguments<'_>) -> Result {
    match a.json(0)? {
        Json::Array(items) => Ok(Datum::Int(items.len() as i64)),
        Json::Object(_) => Err(invalid("cannot get array length of a non-array")),
        _ => Err(invalid("cannot get array length of a scalar")),
    }
}

fn set_by(a: &Arguments<'_>, how: Setting) -> Result {
    let path = a.array(1);
    if let Some(at) = path.items.iter().position(|item| *item == Datum::Null) {
        return Err(SqlError::new("22004", format!("path element at position {} is null", at + 1)));
    }
    Ok(json::set_path(a.json(0)?, &a.texts(1), &a.json(2)?, how)?.to_datum())
}

pub(super) fn set(a: &Arguments<'_>) -> Result {
    set_by(a, Setting::Set { create: a.len() < 4 || a.bool(3) })
}

/// `jsonb_set` whose value may be null: the last argument says what becomes of the place then.
pub(super) fn set_lax(a: &Arguments<'_>) -> Result {
    if a.is_null(0) || a.is_null(1) || a.len() > 3 && a.is_null(3) {
        return Ok(Datum::Null);
    }
    if a.len() > 4 && a.is_null(4) {
        let message =
            "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"";
        return Err(SqlError::new("22023", message));
    }
    if !a.is_null(2) {
        return set(a);
    }
    match if a.len() > 4 { a.text(4) } else { "use_json_null" } {
        "raise_exception" => Err(SqlError::new("22004", "JSON value must not be null")
            .with_detail("Exception was raised because null_value_treatment is \"raise_exception\".")
            .with_hint(
                "To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed.",
            )),
        "use_json_null" => {
            let none = Json::Null.to_datum();
            let mut values = a.values.to_vec();
            values[2] = none.as_value();
            set(&Arguments { values: &values, types: a.types, result: a.result, clock: a.clock })
        }
        "delete_key" => delete_path(a),
        "return_target" => Ok(Datum::from(a.values[0])),
        _ => {
            let message = "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"";
            Err(SqlError::new("22023", message))
        }
    }
}

/// `document['a'][0] = value`
pub(super) fn assign(a: &Arguments<'_>) -> Result {
    let mut path = Vec::with_capacity(a.len() - 2);
    for at in 2..a.len() {
        if a.is_null(at) {
            return Err(SqlError::new("22004", "jsonb subscript in assignment must not be null"));
        }
        path.push(match a.types[at] {
            Type::Int4 => a.int(at).to_string(),
            _ => a.text(at).to_owned(),
        });
    }
    let document = match (a.is_null(0), a.types[2]) {
        (false, _) => a.json(0)?,
        (true, Type::Int4) => Json::Array(Vec::new()),
        (true, _) => Json::Object(Vec::new()),
    };
    let value = if a.is_null(1) { Json::Null } else { a.json(1)? };
    Ok(json::assign(document, &path, &value)?.to_datum())
}

pub(super) fn insert(a: &Arguments<'_>) -> Result {
    set_by(a, Setting::Insert { after: a.len() == 4 && a.bool(3) })
}

pub(super) fn strip_nulls(a: &Arguments<'_>) -> Result {
    if a.types[0] == Type::Json {
        let mut out = Vec::new();
        write_stripped(&parse(a.bytes(0), false)?, &mut out);
        return Ok(text(out));
    }
    Ok(json::strip_nulls(a.json(0)?).to_datum())
}

fn write_stripped(node: &Node<'_>, out: &mut Vec<u8>) {
    match &node.value {
        NodeValue::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                write_stripped(item, out);
            }
            out.push(b']');
        }
        NodeValue::Object(pairs) => {
            out.push(b'{');
            let kept = pairs.iter().filter(|(_, value)| !matches!(value.value, NodeValue::Null));
            for (i, (key, value)) in kept.enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                json::write_string(key, out);
                out.push(b':');
                write_stripped(value, out);
            }
            out.push(b'}');
        }
        _ => out.extend_from_slice(node.text.as_bytes()),
    }
}

pub(super) fn pretty(a: &Arguments<'_>) -> Result {
    let mut out = Vec::new();
    json::pretty(&a.json(0)?, 0, &mut out);
    Ok(text(out))
}

/// An object of texts, as json or jsonb.
fn object(a: &Arguments<'_>, pairs: Vec<(Datum, Datum)>) -> Result {
    let mut entries = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let Datum::Bytes(key) = key else {
            return Err(SqlError::new("22004", "null value not allowed for object key"));
        };
        let value = match value {
            Datum::Bytes(value) => Json::String(String::from_utf8_lossy(&value).into_owned()),
            _ => Json::Null,
        };
        entries.push((String::from_utf8_lossy(&key).into_owned(), value));
    }
    if a.result == Type::Jsonb {
        return Ok(Json::object(entries).to_datum());
    }
    let mut out = vec![b'{'];
    for (i, (key, value)) in entries.iter().enumerate() {
        out.extend_from_slice(if i > 0 { b", " } else { b"" });
        json::write_string(key, &mut out);
        out.extend_from_slice(b" : ");
        value.write(&mut out);
    }
    out.push(b'}');
    Ok(text(out))
}

pub(super) fn object_of_pairs(a: &Arguments<'_>) -> Result {
    let array = a.array(0);
    let two_wide = array.dimensions.len() == 2 && array.dimensions[1].length == 2;
    if array.dimensions.len() > 2 || array.dimensions.len() == 2 && !two_wide {
        return Err(SqlError::new("2202E", "array must have two columns"));
    }
    if array.items.len() % 2 == 1 {
        return Err(SqlError::new("2202E", "array must have even number of elements"));
    }
    let pairs = array.items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    object(a, pairs)
}

pub(super) fn object_of_two(a: &Arguments<'_>) -> Result {
    let (keys, values) = (a.array(0), a.array(1));
    if keys.items.len() != values.items.len() {
        return Err(SqlError::new("2202E", "mismatched array dimensions"));
    }
    object(a, keys.items.into_iter().zip(values.items).collect())
}

/// A value as `to_json` writes it.
pub(crate) fn write_json(ty: Type, value: &Value<'_>, clock: &Clock, out: &mut Vec<u8>) {
    let ty = ty.unrounded();
    let shown = |out: &mut Vec<u8>| texts::write(ty, value, clock, out);
    match (ty, value) {
        (_, Value::Null) => out.extend_from_slice(b"null"),
        (Type::Bool, Value::Bool(v)) => out.extend_from_slice(if *v { b"true" } else { b"false" }),
        (Type::Json | Type::Jsonb, _) => shown(out),
        (Type::System(SystemKind::Record), Value::Bytes(row)) => record::write_as_json(row, out),
        (Type::Array(element), _) => {
            let Array { dimensions, items } = array_of(ty, value);
            let lengths: Vec<u32> = dimensions.iter().map(|d| d.length).collect();
            let mut items = items.iter();
            write_json_level(*element, &lengths, &mut items, clock, out);
        }
        _ if cast::number_rank(ty).is_some() => {
            let mut number = Vec::new();
            shown(&mut number);
            // NaN and infinities are no numbers in JSON.
            match number.iter().any(|b| b.is_ascii_alphabetic() && *b != b'e') {
                true => json::write_string(&String::from_utf8_lossy(&number), out),
                false => out.extend_from_slice(&number),
            }
        }
        (Type::Date, _) => {
            let mut date = Vec::new();
            texts::write(ty, value, &in_iso(clock), &mut date);
            json::write_string(&String::from_utf8_lossy(&date), out);
        }
        (Type::Timestamp | Type::Timestamptz, _) => {
            let mut moment = Vec::new();
            texts::write(ty, value, &in_iso(clock), &mut moment);
            let mut moment = String::from_utf8_lossy(&moment).into_owned();
            if let Some(at) = moment.find(' ').filter(|_| !moment.contains("infinity")) {
                moment.replace_range(at..=at, "T");
            }
            // ISO 8601 wants the minutes of an offset.
            if ty == Type::Timestamptz && !moment.contains("infinity") {
                let at = moment.rfind(['+', '-']).unwrap_or(0);
                if !moment[at..].contains(':') && at > 10 {
                    moment.push_str(":00");
                }
            }
            json::write_string(&moment, out);
        }
        _ => {
            let mut bytes = Vec::new();
            shown(&mut bytes);
            json::write_string(&String::from_utf8_lossy(&bytes), out);
        }
    }
}

/// In JSON dates have one form.
fn in_iso(clock: &Clock) -> Clock {
    Clock { dates: DateStyle::DEFAULT, ..clock.clone() }
}

fn write_json_level(
    element: Type,
    lengths: &[u32],
    items: &mut std::slice::Iter<'_, Datum>,
    clock: &Clock,
    out: &mut Vec<u8>,
) {
    out.push(b'[');
    if let Some((length, inner)) = lengths.split_first() {
        for i in 0..*length {
            out.extend_from_slice(if i > 0 { b"," } else { b"" });
            if inner.is_empty() {
                let item = items.next().expect("invariant: an array has as many items as its dimensions say");
                write_json(element, &item.as_value(), clock, out);
            } else {
                write_json_level(element, inner, items, clock, out);
            }
        }
    }
    out.push(b']');
}

/// A value as `to_jsonb` gives it.
pub(crate) fn to_json(ty: Type, value: &Value<'_>, clock: &Clock) -> Result<Json> {
    let mut out = Vec::new();
    write_json(ty, value, clock, &mut out);
    parse(&out, true)?.to_json()
}
