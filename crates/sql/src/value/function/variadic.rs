//! Functions of any number of arguments of any type.

use super::arguments::{Arguments, text};
use super::catalog::Privileged;
use super::string::BYTES_MAX;
use super::text::{quoted_ident, quoted_literal};
use super::{Function, FunctionId, json};
use crate::bind::record::{MAKE, RECORD};
use crate::error::SqlError;
use crate::value::json as documents;
use crate::value::{Clock, Datum, cast, label, record, text as texts};
use freshet_engine::schema::{OidKind, SystemKind, Type, Value};

/// The function that gives a document with a value at a path; no statement can call it.
pub const ASSIGN: &str = "document with";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Variadic {
    Format,
    Nulls,
    NotNulls,
    BuildObject,
    BuildArray,
    ToJson,
    /// `json_extract_path` and its like.
    Path,
    TypeOf,
    /// `pg_column_size`.
    Size,
    /// `pg_collation_for`.
    Collation,
    /// A row of names and values in turn.
    Row,
    /// A document with a value at a path.
    Assign,
    EnumFirst,
    EnumLast,
    EnumRange,
    Privilege(Privileged),
}

impl Variadic {
    /// Whether its last arguments may come in an array.
    pub(super) fn takes_array(self) -> bool {
        let counts = matches!(self, Variadic::Nulls | Variadic::NotNulls);
        counts || matches!(self, Variadic::Format | Variadic::BuildObject | Variadic::BuildArray | Variadic::Path)
    }

    pub(super) fn is_stable(self) -> bool {
        matches!(self, Variadic::Format | Variadic::BuildObject | Variadic::BuildArray | Variadic::ToJson)
    }
}

/// What the name means and the type of the result.
fn named(name: &str) -> Option<(Variadic, Type)> {
    Some(match name {
        "format" => (Variadic::Format, Type::Text),
        "num_nulls" => (Variadic::Nulls, Type::Int4),
        "num_nonnulls" => (Variadic::NotNulls, Type::Int4),
        "json_build_object" => (Variadic::BuildObject, Type::Json),
        "jsonb_build_object" => (Variadic::BuildObject, Type::Jsonb),
        "json_build_array" => (Variadic::BuildArray, Type::Json),
        "jsonb_build_array" => (Variadic::BuildArray, Type::Jsonb),
        "to_json" | "array_to_json" | "row_to_json" => (Variadic::ToJson, Type::Json),
        "to_jsonb" => (Variadic::ToJson, Type::Jsonb),
        "json_extract_path" => (Variadic::Path, Type::Json),
        "jsonb_extract_path" => (Variadic::Path, Type::Jsonb),
        "json_extract_path_text" | "jsonb_extract_path_text" => (Variadic::Path, Type::Text),
        MAKE => (Variadic::Row, RECORD),
        ASSIGN => (Variadic::Assign, Type::Jsonb),
        "pg_column_size" => (Variadic::Size, Type::Int4),
        "pg_collation_for" => (Variadic::Collation, Type::Text),
        "pg_typeof" => (Variadic::TypeOf, Type::Oid(OidKind::Type)),
        _ => (Variadic::Privilege(Privileged::named(name)?), Type::Bool),
    })
}

fn of_enum(name: &str) -> Option<Variadic> {
    Some(match name {
        "enum_first" => Variadic::EnumFirst,
        "enum_last" => Variadic::EnumLast,
        "enum_range" => Variadic::EnumRange,
        _ => return None,
    })
}

/// What asks for an enum's labels is given a value of it, or a null.
fn resolve_of_enum(which: Variadic, name: &str, arguments: &[Option<Type>]) -> Result<Function, SqlError> {
    let missing = || super::unresolved("42883", name, arguments, "does not exist", "No function matches");
    let takes = 1..=1 + usize::from(which == Variadic::EnumRange);
    if !takes.contains(&arguments.len()) {
        return Err(missing());
    }
    let Some(&ty) = arguments.iter().flatten().next() else { return Err(missing()) };
    if !matches!(ty, Type::Enum(_)) || arguments.iter().flatten().any(|other| *other != ty) {
        return Err(missing());
    }
    let result = if which == Variadic::EnumRange { Type::array_of(ty) } else { ty };
    Ok(Function { id: FunctionId::Variadic(which), arguments: vec![ty; arguments.len()].into(), result })
}

pub(super) fn exists(name: &str) -> bool {
    named(name).is_some() || of_enum(name).is_some()
}

pub(super) fn resolve(name: &str, arguments: &[Option<Type>]) -> Option<Result<Function, SqlError>> {
    if let Some(of) = of_enum(name) {
        return Some(resolve_of_enum(of, name, arguments));
    }
    let (which, result) = named(name)?;
    let missing = || super::unresolved("42883", name, arguments, "does not exist", "No function matches");
    let mut types: Vec<Type> = arguments.iter().map(|ty| ty.unwrap_or(Type::Text)).collect();
    let ok = match which {
        Variadic::Format => {
            if let Some(first) = types.first_mut() {
                *first = Type::Text;
            }
            arguments.first().is_some_and(|ty| ty.is_none_or(cast::is_text))
        }
        Variadic::ToJson if name == "array_to_json" => {
            matches!(types.as_slice(), [Type::Array(_)] | [Type::Array(_), Type::Bool])
        }
        Variadic::ToJson if name == "row_to_json" => matches!(types.as_slice(), [RECORD] | [RECORD, Type::Bool]),
        Variadic::Collation => {
            let collates = |ty: &Type| cast::is_text(*ty) || *ty == Type::Name;
            if let [ty] = types.as_slice()
                && !collates(ty)
            {
                let message = format!("collations are not supported by type {}", crate::value::pgtype::name(*ty));
                return Some(Err(SqlError::new("42804", message)));
            }
            types.len() == 1
        }
        Variadic::ToJson if arguments == [None] => {
            return Some(Err(SqlError::new(
                "42804",
                "could not determine polymorphic type because input has type unknown",
            )));
        }
        Variadic::ToJson | Variadic::TypeOf | Variadic::Size => types.len() == 1,
        Variadic::Path => {
            let document = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
            let fits = arguments.first().is_some_and(|ty| ty.is_none_or(|ty| ty == document));
            types.iter_mut().for_each(|ty| *ty = Type::Text);
            if let Some(first) = types.first_mut() {
                *first = document;
            }
            fits && arguments.iter().skip(1).all(|ty| ty.is_none_or(cast::is_text))
        }
        Variadic::Nulls | Variadic::NotNulls => !types.is_empty(),
        Variadic::Privilege(of) => match of.arguments(arguments) {
            Some(taken) => {
                types = taken;
                true
            }
            None => false,
        },
        Variadic::BuildObject | Variadic::BuildArray | Variadic::Row | Variadic::Assign => true,
        Variadic::EnumFirst | Variadic::EnumLast | Variadic::EnumRange => true,
    };
    if !ok {
        return Some(Err(missing()));
    }
    Some(Ok(Function { id: FunctionId::Variadic(which), arguments: types.into(), result }))
}

impl Variadic {
    pub(super) fn call(self, a: &Arguments<'_>) -> Result<Datum, SqlError> {
        match self {
            Variadic::EnumFirst | Variadic::EnumLast => label::end(a.types[0], self == Variadic::EnumLast, a.clock),
            Variadic::EnumRange => {
                // One value says which type is meant, no more.
                let bound =
                    |at: usize| a.values.get(at).filter(|_| a.len() > 1).map_or(Datum::Null, |v| Datum::from(*v));
                label::range(a.types[0], &bound(0), &bound(1), a.clock)
            }
            Variadic::Format => format(a),
            Variadic::Nulls => Ok(Datum::Int(a.values.iter().filter(|v| v.is_null()).count() as i64)),
            Variadic::NotNulls => Ok(Datum::Int(a.values.iter().filter(|v| !v.is_null()).count() as i64)),
            Variadic::BuildObject => build_object(a),
            Variadic::BuildArray => build_array(a),
            Variadic::Row => Ok(row(a)),
            Variadic::Assign => json::assign(a),
            Variadic::ToJson if a.values.iter().any(Value::is_null) => Ok(Datum::Null),
            Variadic::ToJson => {
                let mut out = Vec::new();
                json::write_json(a.types[0], &a.values[0], a.clock, &mut out);
                if a.len() > 1 && a.bool(1) {
                    out = in_lines(&out);
                }
                document(a.result, out)
            }
            Variadic::Size if a.is_null(0) => Ok(Datum::Null),
            Variadic::Size => Ok(Datum::Int(size(a.types[0], &a.values[0]))),
            Variadic::Collation => Ok(text(if a.types[0] == Type::Name { "\"C\"" } else { "\"default\"" })),
            Variadic::Path => {
                if a.is_null(0) {
                    return Ok(Datum::Null);
                }
                let steps: Vec<usize> = (1..a.len()).collect();
                let path = steps.iter().map(|&at| (!a.is_null(at)).then(|| a.text(at).to_owned())).collect();
                json::follow(a, path)
            }
            Variadic::Privilege(of) => of.call(a),
            Variadic::TypeOf => Ok(Datum::Int(crate::value::pgtype::describe(a.types[0]).oid.into())),
        }
    }
}

/// A document with each of its outermost elements in a line of its own.
fn in_lines(document: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.len());
    let (mut depth, mut in_string, mut is_escaped) = (0, false, false);
    for &byte in document {
        out.push(byte);
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 1 => out.extend_from_slice(b"\n "),
            _ => {}
        }
    }
    out
}

/// How many words of four digits a number has, without those that are zeros at its ends.
fn words(number: &str) -> usize {
    let digits = number.trim_start_matches('-');
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut groups: Vec<&[u8]> = whole.as_bytes().rchunks(4).collect();
    groups.reverse();
    groups.extend(fraction.as_bytes().chunks(4));
    let is_zero = |group: &&[u8]| group.iter().all(|digit| *digit == b'0');
    let first = groups.iter().position(|group| !is_zero(group));
    let last = groups.iter().rposition(|group| !is_zero(group));
    first.zip(last).map_or(0, |(first, last)| last - first + 1)
}

/// How many bytes PostgreSQL would take for a value that no column holds.
fn size(ty: Type, value: &Value<'_>) -> i64 {
    const HEAD: usize = 4;
    let facts = crate::value::pgtype::describe(ty);
    if facts.length > 0 {
        return facts.length.into();
    }
    let bytes = match (ty, value) {
        (Type::Numeric { .. } | Type::Decimal { .. }, value) => {
            let mut shown = Vec::new();
            texts::write(ty, value, Clock::UTC, &mut shown);
            2 + 2 * words(&String::from_utf8_lossy(&shown))
        }
        (_, Value::Bytes(stored)) => stored.len(),
        _ => 0,
    };
    (HEAD + bytes) as i64
}

/// Text that was put together, as the type of document.
fn document(ty: Type, out: Vec<u8>) -> Result<Datum, SqlError> {
    match ty {
        Type::Jsonb => documents::read_jsonb(&out),
        _ => Ok(text(out)),
    }
}

fn build_object(a: &Arguments<'_>) -> Result<Datum, SqlError> {
    if a.len() % 2 == 1 {
        return Err(SqlError::new("22023", "argument list must have even number of elements")
            .with_hint("The arguments of this function must consist of alternating keys and values."));
    }
    let mut out = vec![b'{'];
    for at in (0..a.len()).step_by(2) {
        if a.is_null(at) {
            return Err(match a.result {
                Type::Jsonb => SqlError::new("22023", format!("argument {}: key must not be null", at + 1)),
                _ => SqlError::new("22023", format!("argument {} cannot be null", at + 1))
                    .with_hint("Object keys should be text."),
            });
        }
        if matches!(a.types[at], Type::Array(_) | Type::Json | Type::Jsonb | Type::System(SystemKind::Record)) {
            let message = "key value must be scalar, not array, composite, or json";
            return Err(SqlError::new("22023", message));
        }
        out.extend_from_slice(if at > 0 { b", " } else { b"" });
        write_key(a, at, &mut out);
        out.extend_from_slice(b" : ");
        json::write_json(a.types[at + 1], &a.values[at + 1], a.clock, &mut out);
    }
    out.push(b'}');
    document(a.result, out)
}

/// What a document would have for the value, as a string.
fn write_key(a: &Arguments<'_>, at: usize, out: &mut Vec<u8>) {
    let mut key = Vec::new();
    json::write_json(a.types[at], &a.values[at], a.clock, &mut key);
    match key.first() {
        Some(b'"') => out.extend_from_slice(&key),
        _ => documents::write_string(&String::from_utf8_lossy(&key), out),
    }
}

fn build_array(a: &Arguments<'_>) -> Result<Datum, SqlError> {
    let mut out = vec![b'['];
    for (i, (ty, value)) in a.types.iter().zip(a.values).enumerate() {
        out.extend_from_slice(if i > 0 { b", " } else { b"" });
        json::write_json(*ty, value, a.clock, &mut out);
    }
    out.push(b']');
    document(a.result, out)
}

fn too_few() -> SqlError {
    SqlError::new("22023", "too few arguments for format()")
}

fn row(a: &Arguments<'_>) -> Datum {
    let names = a.values.iter().step_by(2).map(|name| match name {
        Value::Bytes(name) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    });
    let values = a.values.iter().zip(a.types).skip(1).step_by(2);
    let fields: Vec<record::Field<'_>> = names.zip(values).map(|(name, (value, ty))| (name, *ty, value)).collect();
    record::make(&fields, a.clock)
}

/// An argument by its number.
fn numbered(at: usize) -> Result<usize, SqlError> {
    match at {
        0 => Err(SqlError::new("22023", "format specifies argument 0, but arguments are numbered from 1")),
        at => Ok(at),
    }
}

/// `%[position$][-][width]type` with the types s, I, L and %; a width of `*` or `*n$` is an argument.
fn format(a: &Arguments<'_>) -> Result<Datum, SqlError> {
    if a.is_null(0) {
        return Ok(Datum::Null);
    }
    let mut out = String::new();
    let mut chars = a.text(0).chars().peekable();
    let mut next = 1;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            out.push('%');
            continue;
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut digits = String::new();
            while let Some(c) = chars.peek().filter(|c| c.is_ascii_digit()) {
                digits.push(*c);
                chars.next();
            }
            let number =
                |digits: &str| digits.parse::<u32>().ok().filter(|n| *n <= i32::MAX as u32).map(|n| n as usize);
            match digits.is_empty() {
                true => Ok(None),
                false => number(&digits).map(Some).ok_or_else(|| SqlError::new("22003", "number is out of range")),
            }
        };
        let mut position = None;
        let mut width: i64 = 0;
        let mut left = false;
        let first = number(&mut chars)?;
        match (first, chars.peek()) {
            (Some(at), Some('$')) => {
                chars.next();
                position = Some(numbered(at)?);
            }
            (Some(given), _) => width = given as i64,
            (None, _) => {}
        }
        while chars.peek() == Some(&'-') {
            left = true;
            chars.next();
        }
        if chars.peek() == Some(&'*') {
            chars.next();
            let at = match number(&mut chars)? {
                None => next,
                Some(at) if chars.next_if_eq(&'$').is_some() => numbered(at)?,
                Some(_) => return Err(SqlError::new("22023", "width argument position must be ended by \"$\"")),
            };
            next = at + 1;
            if at >= a.len() {
                return Err(too_few());
            }
            width = shown_argument(a, at).and_then(|w| w.trim().parse().ok()).unwrap_or(0);
        } else if let Some(given) = number(&mut chars)? {
            width = given as i64;
        }
        let kind = chars.next().ok_or_else(|| {
            SqlError::new("22023", "unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".")
        })?;
        if !matches!(kind, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{kind}\"");
            return Err(SqlError::new("22023", message).with_hint("For a single \"%\" use \"%%\"."));
        }
        let at = position.unwrap_or(next);
        next = at + 1;
        if at >= a.len() {
            return Err(too_few());
        }
        let shown = match (kind, shown_argument(a, at)) {
            ('s', value) => value.unwrap_or_default(),
            ('I', None) => {
                return Err(SqlError::new("22004", "null values cannot be formatted as an SQL identifier"));
            }
            ('I', Some(value)) => quoted_ident(&value),
            (_, None) => "NULL".to_owned(),
            (_, Some(value)) => quoted_literal(&value),
        };
        let missing = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX).saturating_sub(shown.chars().count());
        if missing.saturating_add(shown.len() + out.len()) >= BYTES_MAX {
            let detail =
                format!("Cannot enlarge string buffer containing {} bytes by {missing} more bytes.", out.len());
            return Err(SqlError::new("54000", "out of memory").with_detail(detail));
        }
        let blanks = " ".repeat(missing);
        if left || width < 0 {
            out.push_str(&shown);
            out.push_str(&blanks);
        } else {
            out.push_str(&blanks);
            out.push_str(&shown);
        }
    }
    Ok(text(out))
}

fn shown_argument(a: &Arguments<'_>, at: usize) -> Option<String> {
    if a.is_null(at) {
        return None;
    }
    let mut out = Vec::new();
    texts::write(a.types[at], &a.values[at], a.clock, &mut out);
    Some(String::from_utf8_lossy(&out).into_owned())
}
