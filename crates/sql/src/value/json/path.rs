//! What jsonb's operators and functions do with trees.

use super::{Json, key_order, place};
use crate::error::SqlError;
use crate::value::numeric::Numeric;

/// PostgreSQL's limit of an array's elements is about 16 times this; before it memory ends.
const ITEMS_MAX: usize = 1 << 24;

fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Null, Json::Null) => true,
        (Json::Bool(a), Json::Bool(b)) => a == b,
        (Json::Number(a), Json::Number(b)) => Numeric::cmp(a, b).is_eq(),
        (Json::String(a), Json::String(b)) => a == b,
        _ => false,
    }
}

/// `a @> b`. At the top an array may hold a scalar.
pub(crate) fn contains(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Array(items), scalar) if !matches!(scalar, Json::Array(_) | Json::Object(_)) => {
            items.iter().any(|item| equal(item, scalar))
        }
        _ => contains_within(a, b),
    }
}

fn contains_within(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(_), Json::Object(wanted)) => {
            wanted.iter().all(|(key, value)| a.field(key).is_some_and(|own| contains_within(own, value)))
        }
        (Json::Array(items), Json::Array(wanted)) => {
            wanted.iter().all(|value| items.iter().any(|item| contains_within(item, value)))
        }
        _ => equal(a, b),
    }
}

/// `a ? key`: a key of an object, a string of an array, or the string itself.
pub(crate) fn has_key(json: &Json, key: &str) -> bool {
    match json {
        Json::Object(_) => json.field(key).is_some(),
        Json::Array(items) => items.iter().any(|item| matches!(item, Json::String(text) if text == key)),
        Json::String(text) => text == key,
        _ => false,
    }
}

/// `a || b`.
pub(crate) fn merge(a: Json, b: Json) -> Result<Json, SqlError> {
    let list = |json: Json| match json {
        Json::Array(items) => items,
        other => vec![other],
    };
    Ok(match (a, b) {
        (Json::Object(mut a), Json::Object(b)) => {
            a.extend(b);
            Json::object(a)
        }
        (a, b) => {
            let mut items = list(a);
            items.extend(list(b));
            Json::Array(items)
        }
    })
}

fn invalid(message: &str) -> SqlError {
    SqlError::new("22023", message)
}

/// `json - key`: the field, or every such string of an array.
pub(crate) fn delete_key(json: Json, keys: &[String]) -> Result<Json, SqlError> {
    Ok(match json {
        Json::Object(pairs) => Json::Object(pairs.into_iter().filter(|(key, _)| !keys.contains(key)).collect()),
        Json::Array(items) => {
            let kept = items.into_iter().filter(|item| !matches!(item, Json::String(text) if keys.contains(text)));
            Json::Array(kept.collect())
        }
        _ => return Err(invalid("cannot delete from scalar")),
    })
}

/// A subscript in a path; 22P02 if it is none.
fn subscript(step: &str, at: usize) -> Result<i64, SqlError> {
    step.trim_start().parse::<i32>().map(i64::from).map_err(|_| {
        SqlError::new("22P02", format!("path element at position {} is not an integer: \"{step}\"", at + 1))
    })
}

/// `json #- path`.
pub(crate) fn delete_path(json: Json, path: &[String]) -> Result<Json, SqlError> {
    match &json {
        Json::Object(_) | Json::Array(_) => delete_at(json, path, 0),
        _ => Err(invalid("cannot delete path in scalar")),
    }
}

fn delete_at(json: Json, path: &[String], depth: usize) -> Result<Json, SqlError> {
    let Some(step) = path.get(depth) else {
        return Ok(json);
    };
    let last = depth + 1 == path.len();
    Ok(match json {
        Json::Object(mut pairs) => {
            if let Some(at) = pairs.iter().position(|(key, _)| key == step) {
                if last {
                    pairs.remove(at);
                } else {
                    let inner = std::mem::replace(&mut pairs[at].1, Json::Null);
                    pairs[at].1 = delete_at(inner, path, depth + 1)?;
                }
            }
            Json::Object(pairs)
        }
        Json::Array(mut items) => {
            if let Some(at) = place(subscript(step, depth)?, items.len()) {
                if last {
                    items.remove(at);
                } else {
                    let inner = std::mem::replace(&mut items[at], Json::Null);
                    items[at] = delete_at(inner, path, depth + 1)?;
                }
            }
            Json::Array(items)
        }
        scalar => scalar,
    })
}

/// What `jsonb_set` and `jsonb_insert` do at the end of their path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    /// `jsonb_set`, which makes what is missing or does not.
    Set { create: bool },
    /// `jsonb_insert`, before or after an array's element.
    Insert { after: bool },
}

pub(crate) fn set_path(json: Json, path: &[String], value: &Json, how: Setting) -> Result<Json, SqlError> {
    match &json {
        Json::Object(_) | Json::Array(_) => set_at(json, path, 0, value, how),
        _ => Err(invalid("cannot set path in scalar")),
    }
}

fn set_at(json: Json, path: &[String], depth: usize, value: &Json, how: Setting) -> Result<Json, SqlError> {
    let Some(step) = path.get(depth) else {
        return Ok(json);
    };
    let last = depth + 1 == path.len();
    Ok(match json {
        Json::Object(mut pairs) => {
            let found = pairs.iter().position(|(key, _)| key == step);
            match (found, last, how) {
                (Some(at), false, _) => {
                    let inner = std::mem::replace(&mut pairs[at].1, Json::Null);
                    pairs[at].1 = set_at(inner, path, depth + 1, value, how)?;
                }
                (Some(at), true, Setting::Set { .. }) => pairs[at].1 = value.clone(),
                (Some(_), true, Setting::Insert { .. }) => {
                    return Err(invalid("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
                (None, true, Setting::Set { create: true } | Setting::Insert { .. }) => {
                    pairs.push((step.clone(), value.clone()));
                    pairs.sort_by(|(a, _), (b, _)| key_order(a, b));
                }
                (None, ..) => {}
            }
            Json::Object(pairs)
        }
        Json::Array(mut items) => {
            let wanted = subscript(step, depth)?;
            match (place(wanted, items.len()), last, how) {
                (Some(at), false, _) => {
                    let inner = std::mem::replace(&mut items[at], Json::Null);
                    items[at] = set_at(inner, path, depth + 1, value, how)?;
                }
                (Some(at), true, Setting::Set { .. }) => items[at] = value.clone(),
                (Some(at), true, Setting::Insert { after }) => items.insert(at + usize::from(after), value.clone()),
                (None, true, Setting::Set { create: true } | Setting::Insert { .. }) => {
                    let at = if wanted < 0 { 0 } else { items.len() };
                    items.insert(at, value.clone());
                }
                (None, ..) => {}
            }
            Json::Array(items)
        }
        scalar => scalar,
    })
}

/// The document with a value at a path that is made as far as it is missing.
pub(crate) fn assign(json: Json, path: &[String], value: &Json) -> Result<Json, SqlError> {
    assign_at(json, path, 0, value)
}

fn assign_at(json: Json, path: &[String], depth: usize, value: &Json) -> Result<Json, SqlError> {
    let Some(step) = path.get(depth) else {
        return Ok(value.clone());
    };
    Ok(match json {
        Json::Object(mut pairs) => {
            match pairs.iter().position(|(key, _)| key == step) {
                Some(at) => {
                    let inner = std::mem::replace(&mut pairs[at].1, Json::Null);
                    pairs[at].1 = assign_at(inner, path, depth + 1, value)?;
                }
                None => {
                    pairs.push((step.clone(), made(path, depth + 1, value)?));
                    pairs.sort_by(|(a, _), (b, _)| key_order(a, b));
                }
            }
            Json::Object(pairs)
        }
        Json::Array(mut items) => {
            let wanted = subscript(step, depth)?;
            if let Some(at) = place(wanted, items.len()) {
                let inner = std::mem::replace(&mut items[at], Json::Null);
                items[at] = assign_at(inner, path, depth + 1, value)?;
                return Ok(Json::Array(items));
            }
            let Ok(at) = usize::try_from(wanted) else {
                let message = format!("path element at position {} is out of range: {wanted}", depth + 1);
                return Err(invalid(&message));
            };
            items.resize(check_length(at)?, Json::Null);
            items.push(made(path, depth + 1, value)?);
            Json::Array(items)
        }
        _ => {
            return Err(invalid("cannot replace existing key")
                .with_detail("The path assumes key is a composite object, but it is a scalar value."));
        }
    })
}

/// What stands at the end of a path, with all of the path that leads there.
fn made(path: &[String], depth: usize, value: &Json) -> Result<Json, SqlError> {
    let Some(step) = path.get(depth) else {
        return Ok(value.clone());
    };
    let inner = made(path, depth + 1, value)?;
    match step.trim_start().parse::<i32>() {
        Ok(at) => {
            let mut items = vec![Json::Null; check_length(usize::try_from(at).unwrap_or(0))?];
            items.push(inner);
            Ok(Json::Array(items))
        }
        Err(_) => Ok(Json::Object(vec![(step.clone(), inner)])),
    }
}

/// As many nulls as there may be before an element.
fn check_length(length: usize) -> Result<usize, SqlError> {
    if length >= ITEMS_MAX {
        let message = format!("number of jsonb array elements exceeds the maximum allowed ({ITEMS_MAX})");
        return Err(SqlError::new("54000", message));
    }
    Ok(length)
}

/// Without fields that are null.
pub(crate) fn strip_nulls(json: Json) -> Json {
    match json {
        Json::Object(pairs) => {
            let kept = pairs.into_iter().filter(|(_, value)| !matches!(value, Json::Null));
            Json::Object(kept.map(|(key, value)| (key, strip_nulls(value))).collect())
        }
        Json::Array(items) => Json::Array(items.into_iter().map(strip_nulls).collect()),
        scalar => scalar,
    }
}

/// `jsonb_pretty`: four blanks for each level.
pub(crate) fn pretty(json: &Json, depth: usize, out: &mut Vec<u8>) {
    let line = |depth: usize, out: &mut Vec<u8>| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', 4 * depth));
    };
    match json {
        Json::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                line(depth + 1, out);
                pretty(item, depth + 1, out);
            }
            line(depth, out);
            out.push(b']');
        }
        Json::Object(pairs) => {
            out.push(b'{');
            for (i, (key, value)) in pairs.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                line(depth + 1, out);
                super::write_string(key, out);
                out.extend_from_slice(b": ");
                pretty(value, depth + 1, out);
            }
            line(depth, out);
            out.push(b'}');
        }
        scalar => scalar.write(out),
    }
}
