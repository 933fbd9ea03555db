//! Functions of text and bytes. Positions and lengths count characters of text, bytes of bytea.

use super::{Function, FunctionId};
use crate::error::SqlError;
use crate::value::{Clock, Datum, cast, fault, text};
use freshet_engine::schema::{Type, Value};

/// PostgreSQL's largest value.
pub(super) const BYTES_MAX: usize = (1 << 30) - 1;

/// The functions whose first argument is text or bytes.
pub(super) fn call(function: &Function, values: &[Value<'_>]) -> Result<Datum, SqlError> {
    let Some(Value::Bytes(first)) = values.first() else {
        return Err(function.misplaced());
    };
    let ty = function.arguments[0];
    if ty == Type::Bytea {
        return bytes(function, first, &values[1..]);
    }
    match values[1..] {
        [] => one(function, first),
        [Value::Int(n)] => with_count(function, first, n),
        [Value::Bytes(second)] => with_text(function, first, second),
        [Value::Int(from), Value::Int(count)] => substring(first, from, Some(count)),
        [Value::Int(length), Value::Bytes(fill)] => pad(function, first, length, fill),
        [Value::Bytes(a), Value::Bytes(b)] if function.id == FunctionId::Replace => replace(first, a, b),
        [Value::Bytes(a), Value::Bytes(b)] => Ok(translate(first, a, b)),
        [Value::Bytes(separator), Value::Int(n)] => split_part(first, separator, n),
        _ => Err(function.misplaced()),
    }
}

fn datum(bytes: &[u8]) -> Datum {
    Datum::Bytes(bytes.into())
}

fn count(n: usize) -> Datum {
    Datum::Int(n as i64)
}

/// Text is valid UTF-8 from the moment it enters.
fn as_str(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("invariant: stored text is UTF-8")
}

fn one(function: &Function, value: &[u8]) -> Result<Datum, SqlError> {
    Ok(match function.id {
        FunctionId::Length => count(text::char_count(value)),
        FunctionId::OctetLength => {
            let mut padded = Vec::new();
            text::write(function.arguments[0], &Value::Bytes(value), Clock::UTC, &mut padded);
            count(padded.len())
        }
        FunctionId::BitLength => count(value.len() * 8),
        FunctionId::Md5 => md5_hex(value),
        FunctionId::Lower => datum(text::lower(as_str(value)).as_bytes()),
        FunctionId::Upper => datum(text::upper(as_str(value)).as_bytes()),
        FunctionId::Initcap => datum(initcap(as_str(value)).as_bytes()),
        FunctionId::Reverse => datum(as_str(value).chars().rev().collect::<String>().as_bytes()),
        FunctionId::Ascii => Datum::Int(as_str(value).chars().next().map_or(0, |c| i64::from(c as u32))),
        FunctionId::Btrim | FunctionId::Ltrim | FunctionId::Rtrim => trim(function, value, b" "),
        _ => return Err(function.misplaced()),
    })
}

fn with_count(function: &Function, value: &[u8], n: i64) -> Result<Datum, SqlError> {
    let total = text::char_count(value) as i64;
    // A negative count leaves out that many from the other end.
    let taken = if n < 0 { (total + n).max(0) } else { n.min(total) } as usize;
    Ok(match function.id {
        FunctionId::Left => datum(text::first_chars(value, taken)),
        FunctionId::Right => {
            let left_out = text::first_chars(value, total as usize - taken).len();
            datum(&value[left_out..])
        }
        FunctionId::Repeat => repeat(value, n)?,
        FunctionId::Substr => substring(value, n, None)?,
        FunctionId::Lpad | FunctionId::Rpad => pad(function, value, n, b" ")?,
        _ => return Err(function.misplaced()),
    })
}

fn with_text(function: &Function, value: &[u8], other: &[u8]) -> Result<Datum, SqlError> {
    Ok(match function.id {
        FunctionId::Btrim | FunctionId::Ltrim | FunctionId::Rtrim => trim(function, value, other),
        FunctionId::Strpos => {
            let found = as_str(value).find(as_str(other));
            count(found.map_or(0, |at| text::char_count(&value[..at]) + 1))
        }
        FunctionId::StartsWith => Datum::Bool(value.starts_with(other)),
        _ => return Err(function.misplaced()),
    })
}

/// Takes off every character of a set from the ends that the function is for.
fn trim(function: &Function, value: &[u8], set: &[u8]) -> Datum {
    let set = as_str(set);
    let in_set = |c: char| set.contains(c);
    let value = as_str(value);
    datum(
        match function.id {
            FunctionId::Ltrim => value.trim_start_matches(in_set),
            FunctionId::Rtrim => value.trim_end_matches(in_set),
            _ => value.trim_matches(in_set),
        }
        .as_bytes(),
    )
}

fn trim_bytes(function: &Function, value: &[u8], set: &[u8]) -> Datum {
    let kept = |b: &u8| !set.contains(b);
    let start = match function.id {
        FunctionId::Rtrim => 0,
        _ => value.iter().position(kept).unwrap_or(value.len()),
    };
    let end = match function.id {
        FunctionId::Ltrim => value.len(),
        _ => value.iter().rposition(kept).map_or(start, |i| i + 1),
    };
    datum(&value[start..end])
}

fn md5_hex(value: &[u8]) -> Datum {
    datum(format!("{:x}", md5::compute(value)).as_bytes())
}

fn initcap(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut in_word = false;
    for c in value.chars() {
        out.push(if in_word { text::lower_letter(c) } else { text::upper_letter(c) });
        in_word = c.is_alphanumeric();
    }
    out
}

fn too_large() -> SqlError {
    SqlError::new("54000", "requested length too large")
}

fn repeat(value: &[u8], n: i64) -> Result<Datum, SqlError> {
    let n = n.max(0) as usize;
    match value.len().checked_mul(n) {
        Some(length) if length <= BYTES_MAX => Ok(Datum::Bytes(value.repeat(n).into())),
        _ => Err(too_large()),
    }
}

/// The range of positions from 1 that a SQL substring means, as a start from 0 and a length.
fn range(from: i64, count: Option<i64>) -> Result<(usize, usize), SqlError> {
    let end = match count {
        None => i64::MAX,
        Some(count) if count < 0 => {
            return Err(SqlError::new("22011", "negative substring length not allowed"));
        }
        Some(count) => from + count,
    };
    let start = from.max(1);
    Ok(((start - 1) as usize, (end - start).max(0) as usize))
}

fn substring(value: &[u8], from: i64, count: Option<i64>) -> Result<Datum, SqlError> {
    let (start, length) = range(from, count)?;
    let skipped = text::first_chars(value, start).len();
    Ok(datum(text::first_chars(&value[skipped..], length)))
}

fn bytes(function: &Function, value: &[u8], rest: &[Value<'_>]) -> Result<Datum, SqlError> {
    Ok(match (function.id, rest) {
        (FunctionId::Length | FunctionId::OctetLength, []) => count(value.len()),
        (FunctionId::Md5, []) => md5_hex(value),
        (FunctionId::BitLength, []) => count(value.len() * 8),
        (FunctionId::Btrim | FunctionId::Ltrim | FunctionId::Rtrim, [Value::Bytes(set)]) => {
            trim_bytes(function, value, set)
        }
        (FunctionId::Substr, [Value::Int(from), length @ ..]) => {
            let length = match length {
                [Value::Int(length)] => Some(*length),
                _ => None,
            };
            let (start, length) = range(*from, length)?;
            let kept = value.get(start..).unwrap_or(b"");
            datum(&kept[..length.min(kept.len())])
        }
        _ => return Err(function.misplaced()),
    })
}

/// Exactly `length` characters: cut at the end, or filled at the side that the function is for.
fn pad(function: &Function, value: &[u8], length: i64, fill: &[u8]) -> Result<Datum, SqlError> {
    let length = length.max(0) as usize;
    let own = text::char_count(value);
    if own >= length || fill.is_empty() {
        return Ok(datum(text::first_chars(value, length)));
    }
    let missing = length - own;
    if missing.saturating_mul(4).saturating_add(value.len()) > BYTES_MAX {
        return Err(too_large());
    }
    let filling: String = as_str(fill).chars().cycle().take(missing).collect();
    Ok(Datum::Bytes(match function.id {
        FunctionId::Lpad => [filling.as_bytes(), value].concat().into(),
        _ => [value, filling.as_bytes()].concat().into(),
    }))
}

fn replace(value: &[u8], from: &[u8], to: &[u8]) -> Result<Datum, SqlError> {
    if from.is_empty() {
        return Ok(datum(value));
    }
    let found = as_str(value).matches(as_str(from)).count();
    if value.len() + found.saturating_mul(to.len()) > BYTES_MAX {
        return Err(too_large());
    }
    Ok(datum(as_str(value).replace(as_str(from), as_str(to)).as_bytes()))
}

/// Each character of `from` becomes the one at its place in `to`, or goes.
fn translate(value: &[u8], from: &[u8], to: &[u8]) -> Datum {
    let (from, to): (Vec<char>, Vec<char>) = (as_str(from).chars().collect(), as_str(to).chars().collect());
    let moved = |c: char| match from.iter().position(|f| *f == c) {
        Some(at) => to.get(at).copied(),
        None => Some(c),
    };
    let out: String = as_str(value).chars().filter_map(moved).collect();
    datum(out.as_bytes())
}

fn split_part(value: &[u8], separator: &[u8], n: i64) -> Result<Datum, SqlError> {
    if n == 0 {
        return Err(SqlError::new("22023", "field position must not be zero"));
    }
    let value = as_str(value);
    if value.is_empty() {
        return Ok(datum(b""));
    }
    if separator.is_empty() {
        return Ok(datum(if matches!(n, 1 | -1) { value.as_bytes() } else { b"" }));
    }
    let separator = as_str(separator);
    let at = match n > 0 {
        true => Some(n as usize - 1),
        // Counted from the end, but cut from the start: "aaa" by "aa" is "" and "a".
        false => value.split(separator).count().checked_sub(n.unsigned_abs() as usize),
    };
    let part = at.and_then(|at| value.split(separator).nth(at));
    Ok(datum(part.unwrap_or("").as_bytes()))
}

pub(super) fn chr(code: i64) -> Result<Datum, SqlError> {
    if code == 0 {
        return Err(SqlError::new("54000", "null character not permitted"));
    }
    if code < 0 {
        return Err(SqlError::new("22023", "character number must be positive"));
    }
    let c = u32::try_from(code).ok().and_then(char::from_u32);
    let c = c.ok_or_else(|| fault::character(code))?;
    Ok(datum(c.encode_utf8(&mut [0; 4]).as_bytes()))
}

/// The output function's text of every argument that is not null: `t` for true, blanks after `char`.
pub(super) fn concat(types: &[Type], values: &[Value<'_>], clock: &Clock) -> Datum {
    let mut out = Vec::new();
    for (ty, value) in types.iter().zip(values).filter(|(_, v)| !v.is_null()) {
        text::write(*ty, value, clock, &mut out);
    }
    Datum::Bytes(out.into())
}

/// The same with a separator between them; NULL if that is.
pub(super) fn concat_ws(types: &[Type], values: &[Value<'_>], clock: &Clock) -> Datum {
    let Some(Value::Bytes(_)) = values.first() else {
        return Datum::Null;
    };
    let mut separator = Vec::new();
    cast::write_as_text(types[0], &values[0], clock, &mut separator);
    let mut out = Vec::new();
    let rest = types.iter().zip(values).skip(1);
    for (i, (ty, value)) in rest.filter(|(_, v)| !v.is_null()).enumerate() {
        if i > 0 {
            out.extend_from_slice(&separator);
        }
        text::write(*ty, value, clock, &mut out);
    }
    Datum::Bytes(out.into())
}
