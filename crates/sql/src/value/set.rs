//! Which rows does a set-returning function give?
//!
//! | function | columns |
//! |---|---|
//! | generate_series(from, to [, by]) of integer, bigint, numeric | the numbers |
//! | string_to_table(text, delimiter [, null]) | the parts |
//! | series of timestamps, unnest, regexp_matches, json_each and the like | [`super::function::rows`] |
//!
//! NULL for an argument gives no rows, `string_to_table`'s delimiter and null string excepted. A call's rows are made at once: who may
//! ask for billions of them (a generate_series of constants in FROM) is served by a stream elsewhere.

use super::function::rows::RowFunction;
use super::numeric::Numeric;
use super::pgtype::{NUMERIC, name as type_name};
use super::{Clock, Datum};
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};

/// Rows of one call, at most: beyond, it is refused before memory is.
const ROWS_MAX: usize = 10_000_000;

#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum SetId {
    SeriesOfIntegers,
    SeriesOfNumerics,
    StringToTable,
    More(RowFunction),
}

/// A set-returning function for given argument types.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct SetFunction {
    pub id: SetId,
    /// What the arguments must be cast to.
    pub arguments: Vec<Type>,
    /// Names and types of what each row has; the name of a single one is the function's unless an alias renames it.
    pub columns: Vec<(&'static str, Type)>,
}

impl SetFunction {
    /// Whether any set-returning function has this name.
    pub fn exists(name: &str) -> bool {
        RowFunction::exists(name)
    }

    /// The fields of its rows, where a row is a value of its own; the others give plain values.
    pub fn fields(name: &str) -> Option<&'static [&'static str]> {
        Some(match name {
            "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text" => &["key", "value"],
            "_pg_expandarray" => &["x", "n"],
            "pg_options_to_table" => &["option_name", "option_value"],
            "pg_sequence_parameters" => &[
                "start_value",
                "minimum_value",
                "maximum_value",
                "increment",
                "cycle_option",
                "cache_size",
                "data_type",
            ],
            "pg_get_keywords" => &["word", "catcode", "barelabel", "catdesc", "baredesc"],
            "aclexplode" => &["grantor", "grantee", "privilege_type", "is_grantable"],
            _ => return None,
        })
    }

    /// Finds the function (its name in lower case) for argument types; `None` is the type of an untyped literal.
    pub fn resolve(name: &str, arguments: &[Option<Type>]) -> Result<SetFunction, SqlError> {
        let found = match (name, arguments.len()) {
            ("generate_series", 2 | 3) => series(arguments),
            ("string_to_table", 2 | 3) => Some(SetFunction {
                id: SetId::StringToTable,
                arguments: vec![Type::Text; arguments.len()],
                columns: vec![("string_to_table", Type::Text)],
            }),
            _ => None,
        };
        if found.is_none() && RowFunction::exists(name) {
            let function = RowFunction::resolve(name, arguments)?;
            let named = |(own, ty): &(Option<&'static str>, Type)| (own.unwrap_or("unnest"), *ty);
            let columns = function.columns.iter().map(named).collect();
            return Ok(SetFunction { arguments: function.arguments.to_vec(), columns, id: SetId::More(function) });
        }
        found.ok_or_else(|| {
            let shown: Vec<&str> = arguments.iter().map(|ty| ty.map_or("unknown", type_name)).collect();
            SqlError::new("42883", format!("function {name}({}) does not exist", shown.join(", "))).with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            )
        })
    }

    /// A function whose rows have the columns that the statement gives them, by keys that are its last argument.
    pub fn with_columns(name: &str, types: &[Type]) -> Option<SetFunction> {
        let function = RowFunction::with_columns(name, types)?;
        let columns = types.iter().map(|&ty| ("record", ty)).collect();
        Some(SetFunction { arguments: function.arguments.to_vec(), columns, id: SetId::More(function) })
    }

    /// Whether its rows are rows, however few columns they have.
    pub fn gives_records(&self) -> bool {
        matches!(&self.id, SetId::More(function) if function.gives_records())
    }

    /// The rows of a call: for each of them one value per column, one after the other.
    pub fn rows(&self, args: &[Value<'_>], clock: &Clock) -> Result<Vec<Datum>, SqlError> {
        match &self.id {
            SetId::SeriesOfIntegers => integers(args, self.columns[0].1),
            SetId::SeriesOfNumerics => numerics(args),
            SetId::StringToTable => parts(args),
            SetId::More(function) => Ok(function.rows(args, clock)?.into_iter().flatten().collect()),
        }
    }
}

fn series(arguments: &[Option<Type>]) -> Option<SetFunction> {
    use Type::{Decimal, Int2, Int4, Int8, Numeric};
    let mut ty = Int4;
    for argument in arguments {
        ty = match argument {
            None | Some(Int2 | Int4) => ty,
            Some(Int8) if ty == Int4 => Int8,
            Some(Int8) => ty,
            Some(Decimal { .. } | Numeric { .. }) => NUMERIC,
            Some(_) => return None,
        };
    }
    let id = if ty == NUMERIC { SetId::SeriesOfNumerics } else { SetId::SeriesOfIntegers };
    Some(SetFunction { id, arguments: vec![ty; arguments.len()], columns: vec![("generate_series", ty)] })
}

fn too_many() -> SqlError {
    SqlError::new("54000", format!("a set-returning function gives more than {ROWS_MAX} rows for one row"))
}

fn zero_step() -> SqlError {
    SqlError::new("22023", "step size cannot equal zero")
}

fn integers(args: &[Value<'_>], ty: Type) -> Result<Vec<Datum>, SqlError> {
    let number = |value: &Value<'_>| match value {
        Value::Int(n) => Some(*n),
        _ => None,
    };
    let by = args.get(2).map_or(Some(1), number);
    let (Some(mut next), Some(last), Some(by)) = (number(&args[0]), number(&args[1]), by) else {
        return Ok(Vec::new());
    };
    if by == 0 {
        return Err(zero_step());
    }
    let most = if ty == Type::Int4 { i64::from(i32::MAX) } else { i64::MAX };
    let mut rows = Vec::new();
    while if by > 0 { next <= last } else { next >= last } {
        if rows.len() == ROWS_MAX {
            return Err(too_many());
        }
        rows.push(Datum::Int(next));
        match next.checked_add(by) {
            Some(sum) if sum.abs() <= most => next = sum,
            _ => break,
        }
    }
    Ok(rows)
}

fn numerics(args: &[Value<'_>]) -> Result<Vec<Datum>, SqlError> {
    let mut bounds = Vec::with_capacity(3);
    for value in args {
        let Value::Bytes(stored) = value else { return Ok(Vec::new()) };
        let number = Numeric::from_stored(stored);
        if !matches!(number, Numeric::Finite(_)) {
            let what = ["start value", "stop value", "step size"][bounds.len()];
            let is = if matches!(number, Numeric::NaN) { "NaN" } else { "infinity" };
            return Err(SqlError::new("22023", format!("{what} cannot be {is}")));
        }
        bounds.push(number);
    }
    let by = bounds.get(2).cloned().unwrap_or_else(|| Numeric::from_i64(1));
    let up = match by.cmp(&Numeric::zero()) {
        std::cmp::Ordering::Equal => return Err(zero_step()),
        order => order == std::cmp::Ordering::Greater,
    };
    let last = bounds[1].clone();
    let mut next = bounds.swap_remove(0);
    let mut rows = Vec::new();
    while if up { next <= last } else { next >= last } {
        if rows.len() == ROWS_MAX {
            return Err(too_many());
        }
        let sum = next.add(&by)?;
        rows.push(Datum::Bytes(next.to_stored()));
        next = sum;
    }
    Ok(rows)
}

/// A NULL delimiter takes every character by itself.
fn parts(args: &[Value<'_>]) -> Result<Vec<Datum>, SqlError> {
    let text = |value: &Value<'_>| match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let Some(whole) = text(&args[0]) else { return Ok(Vec::new()) };
    let null = args.get(2).and_then(text);
    let part = |part: &str| match &null {
        Some(null) if null == part => Datum::Null,
        _ => Datum::Bytes(part.as_bytes().into()),
    };
    if whole.is_empty() {
        return Ok(Vec::new());
    }
    Ok(match text(&args[1]) {
        None => whole.chars().map(|c| part(c.encode_utf8(&mut [0; 4]))).collect(),
        Some(delimiter) if delimiter.is_empty() => vec![part(&whole)],
        Some(delimiter) => whole.split(&delimiter).map(part).collect(),
    })
}
