//! Functions that give rows: `generate_series`, `unnest`, the elements of documents.

use super::arguments::{Arguments, text};
use super::{catalog, fields, regex, text as texts};
use crate::error::SqlError;
use crate::value::array::Array;
use crate::value::interval::{self, Interval};
use crate::value::json::{Json, NodeValue, parse};
use crate::value::numeric::Numeric;
use crate::value::pgtype::NUMERIC;
use crate::value::zone::Clock;
use crate::value::{Datum, cast};
use freshet_engine::schema::{OidKind, SystemKind, Type, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Gives {
    Series,
    Unnest,
    Subscripts,
    Matches,
    Split,
    Parts,
    Each,
    EachText,
    Elements,
    ElementsText,
    Keys,
    /// `_pg_expandarray`: elements with their numbers.
    Numbered,
    /// `name=value` in two columns.
    Options,
    Keywords,
    SequenceParameters,
    /// `aclexplode`: each privilege of a list.
    Grants,
    Channels,
    /// Of columns that the statement gives: those of an object, or of each of an array.
    Record {
        many: bool,
    },
    /// Of what there is none of here: channels, partitions.
    None,
}

/// A function that gives rows, for given argument types.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct RowFunction {
    gives: Gives,
    /// What the arguments must be cast to.
    pub arguments: Box<[Type]>,
    /// The columns of its rows. One that is named here is called so in FROM; a single one without, after the function.
    pub columns: Vec<(Option<&'static str>, Type)>,
}

fn named(name: &str) -> Option<Gives> {
    Some(match name {
        "generate_series" => Gives::Series,
        "unnest" => Gives::Unnest,
        "generate_subscripts" => Gives::Subscripts,
        "regexp_matches" => Gives::Matches,
        "regexp_split_to_table" => Gives::Split,
        "string_to_table" => Gives::Parts,
        "json_each" | "jsonb_each" => Gives::Each,
        "json_each_text" | "jsonb_each_text" => Gives::EachText,
        "json_array_elements" | "jsonb_array_elements" => Gives::Elements,
        "json_array_elements_text" | "jsonb_array_elements_text" => Gives::ElementsText,
        "json_object_keys" | "jsonb_object_keys" => Gives::Keys,
        "_pg_expandarray" => Gives::Numbered,
        "pg_options_to_table" => Gives::Options,
        "pg_get_keywords" => Gives::Keywords,
        "pg_sequence_parameters" => Gives::SequenceParameters,
        "json_to_record" | "jsonb_to_record" => Gives::Record { many: false },
        "json_to_recordset" | "jsonb_to_recordset" => Gives::Record { many: true },
        "aclexplode" => Gives::Grants,
        "pg_listening_channels" => Gives::Channels,
        "pg_partition_ancestors" => Gives::None,
        _ => return None,
    })
}

impl RowFunction {
    /// Whether a function of this name gives rows.
    pub fn exists(name: &str) -> bool {
        named(name).is_some()
    }

    /// Of a function that gives rows of a relation's: the one that gives the same of columns that the statement names.
    pub fn of_named_columns(name: &str) -> Option<&'static str> {
        Some(match name {
            "json_populate_record" => "json_to_record",
            "json_populate_recordset" => "json_to_recordset",
            "jsonb_populate_record" => "jsonb_to_record",
            "jsonb_populate_recordset" => "jsonb_to_recordset",
            _ => return None,
        })
    }

    /// A function whose rows have the columns that the statement gives them; their keys are its last argument.
    pub fn with_columns(name: &str, types: &[Type]) -> Option<RowFunction> {
        let gives = named(name).filter(|gives| matches!(gives, Gives::Record { .. }))?;
        let document = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
        let arguments = [document, Type::array_of(Type::Text)].into();
        Some(RowFunction { gives, arguments, columns: types.iter().map(|&ty| (None, ty)).collect() })
    }

    /// Whether its rows are rows, however few columns they have.
    pub fn gives_records(&self) -> bool {
        matches!(self.gives, Gives::Record { .. })
    }

    pub fn resolve(name: &str, given: &[Option<Type>]) -> Result<RowFunction, SqlError> {
        let plain = |ty: Type| ty.as_array().unrounded();
        let arrays: Vec<Option<Type>> = given.iter().map(|ty| ty.map(plain)).collect();
        let given = arrays.as_slice();
        let missing = || super::unresolved("42883", name, given, "does not exist", "No function matches");
        let gives = named(name).ok_or_else(missing)?;
        let texts = || vec![Type::Text; given.len()];
        let document = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
        let (arguments, columns): (Vec<Type>, Vec<(Option<&'static str>, Type)>) = match gives {
            Gives::Series => series_types(given).ok_or_else(missing)?,
            Gives::Unnest => {
                let mut columns = Vec::new();
                for ty in given {
                    match ty {
                        Some(Type::Array(element)) => columns.push((None, **element)),
                        None => {
                            return Err(SqlError::new("42725", "function unnest(unknown) is not unique")
                                .with_hint("Could not choose a best candidate function. You might need to add explicit type casts."));
                        }
                        _ => return Err(missing()),
                    }
                }
                (given.iter().flatten().copied().collect(), columns)
            }
            Gives::Subscripts => match given {
                [Some(array @ Type::Array(_)), _] => (vec![*array, Type::Int4], vec![(None, Type::Int4)]),
                [None, _] => return Err(super::array::undetermined()),
                _ => return Err(missing()),
            },
            Gives::Matches => (texts(), vec![(None, Type::array_of(Type::Text))]),
            Gives::Split | Gives::Parts => (texts(), vec![(None, Type::Text)]),
            Gives::Each => (vec![document], vec![(Some("key"), Type::Text), (Some("value"), document)]),
            Gives::EachText => (vec![document], vec![(Some("key"), Type::Text), (Some("value"), Type::Text)]),
            Gives::Elements => (vec![document], vec![(Some("value"), document)]),
            Gives::ElementsText => (vec![document], vec![(Some("value"), Type::Text)]),
            Gives::Keys => (vec![document], vec![(None, Type::Text)]),
            Gives::Numbered => match given {
                [Some(array @ Type::Array(element))] => {
                    (vec![*array], vec![(Some("x"), **element), (Some("n"), Type::Int4)])
                }
                _ => return Err(missing()),
            },
            Gives::Options => (
                vec![Type::array_of(Type::Text)],
                vec![(Some("option_name"), Type::Text), (Some("option_value"), Type::Text)],
            ),
            Gives::Keywords => (
                Vec::new(),
                vec![
                    (Some("word"), Type::Text),
                    (Some("catcode"), Type::CharByte),
                    (Some("barelabel"), Type::Bool),
                    (Some("catdesc"), Type::Text),
                    (Some("baredesc"), Type::Text),
                ],
            ),
            Gives::SequenceParameters => (
                vec![Type::Oid(OidKind::Oid)],
                vec![
                    (Some("start_value"), Type::Int8),
                    (Some("minimum_value"), Type::Int8),
                    (Some("maximum_value"), Type::Int8),
                    (Some("increment"), Type::Int8),
                    (Some("cycle_option"), Type::Bool),
                    (Some("cache_size"), Type::Int8),
                    (Some("data_type"), Type::Oid(OidKind::Oid)),
                ],
            ),
            Gives::Record { .. } => {
                let message = "a column definition list is required for functions returning \"record\"";
                return Err(SqlError::new("42601", message));
            }
            Gives::Grants => (
                vec![Type::array_of(Type::System(SystemKind::AclItem))],
                vec![
                    (Some("grantor"), Type::Oid(OidKind::Oid)),
                    (Some("grantee"), Type::Oid(OidKind::Oid)),
                    (Some("privilege_type"), Type::Text),
                    (Some("is_grantable"), Type::Bool),
                ],
            ),
            Gives::Channels => (Vec::new(), vec![(None, Type::Text)]),
            Gives::None => (vec![Type::Oid(OidKind::Class)], vec![(Some("relid"), Type::Oid(OidKind::Class))]),
        };
        let counts = match gives {
            Gives::Matches | Gives::Split | Gives::Parts => 2..=3,
            Gives::Unnest => 1..=64,
            Gives::Series | Gives::Subscripts => given.len()..=given.len(),
            Gives::None | Gives::Channels | Gives::Keywords => arguments.len()..=arguments.len(),
            _ => 1..=1,
        };
        let fits = counts.contains(&given.len())
            && given.iter().zip(&arguments).all(|(ty, to)| ty.is_none_or(|ty| cast::is_implicit(ty, *to)));
        if !fits {
            return Err(missing());
        }
        Ok(RowFunction { gives, arguments: arguments.into(), columns })
    }

    /// Whether the rows may differ from clock to clock.
    pub fn needs_clock(&self) -> bool {
        self.arguments.contains(&Type::Timestamptz) || matches!(self.gives, Gives::Grants | Gives::Channels)
    }

    /// The rows; the values have the types of `self.arguments`.
    pub fn rows(&self, values: &[Value<'_>], clock: &Clock) -> Result<Vec<Vec<Datum>>, SqlError> {
        let a = Arguments { values, types: &self.arguments, result: self.columns[0].1, clock };
        let one = |list: Vec<Datum>| list.into_iter().map(|datum| vec![datum]).collect();
        if self.gives == Gives::Unnest {
            return Ok(unnest(&a));
        }
        if let Gives::Record { many } = self.gives {
            let types: Vec<Type> = self.columns.iter().map(|&(_, ty)| ty).collect();
            return fields::rows(&a, &types, many);
        }
        let needed = if self.gives == Gives::Parts { 1 } else { a.len() };
        if values[..needed].iter().any(Value::is_null) {
            return Ok(Vec::new());
        }
        Ok(match self.gives {
            Gives::Series => one(series(&a)?),
            Gives::Subscripts => one(subscripts(&a)),
            Gives::Matches => one(regex::regexp_matches(&a)?),
            Gives::Split => one(regex::regexp_split(&a)?),
            Gives::Parts => one(parts(&a)),
            Gives::Each | Gives::EachText => each(&a, self.gives == Gives::EachText)?,
            Gives::Elements | Gives::ElementsText => one(elements(&a, self.gives == Gives::ElementsText)?),
            Gives::Keys => one(keys(&a)?),
            Gives::Numbered => numbered(&a),
            Gives::Options => options(&a),
            Gives::Keywords => keywords(),
            Gives::SequenceParameters => vec![catalog::sequence_parameters(&a)?],
            Gives::Grants => catalog::grants(&a)?,
            Gives::Channels => one(catalog::listening(&a)),
            Gives::None => Vec::new(),
            Gives::Record { .. } | Gives::Unnest => unreachable!("it returned above"),
        })
    }
}

/// Each element of an array with one dimension, and its number from 1.
fn numbered(a: &Arguments<'_>) -> Vec<Vec<Datum>> {
    let items = a.array(0).items.into_iter();
    items.zip(1..).map(|(item, number)| vec![item, Datum::Int(number)]).collect()
}

fn keywords() -> Vec<Vec<Datum>> {
    let row = |keyword: crate::catalog::builtin::Keyword| {
        vec![
            text(keyword.word),
            text(keyword.category),
            Datum::Bool(keyword.is_label),
            text(keyword.category_description()),
            text(keyword.label_description()),
        ]
    };
    crate::catalog::builtin::keywords().map(row).collect()
}

fn options(a: &Arguments<'_>) -> Vec<Vec<Datum>> {
    let pair = |option: String| match option.split_once('=') {
        Some((name, value)) => vec![text(name), text(value)],
        None => vec![text(option), Datum::Null],
    };
    a.texts(0).into_iter().map(pair).collect()
}

/// Types of the bounds and the step, and of the values.
#[expect(clippy::type_complexity, reason = "two lists that belong together")]
fn series_types(given: &[Option<Type>]) -> Option<(Vec<Type>, Vec<(Option<&'static str>, Type)>)> {
    if !matches!(given.len(), 2 | 3) {
        return None;
    }
    let any = |wanted: fn(Type) -> bool| given[..2].iter().flatten().any(|ty| wanted(*ty));
    let stepped = given.get(2).is_some_and(|ty| *ty == Some(Type::Interval));
    let ty = if any(|ty| ty == Type::Timestamptz) {
        Type::Timestamptz
    } else if any(|ty| ty == Type::Timestamp) {
        Type::Timestamp
    } else if any(|ty| ty == Type::Date) || stepped {
        Type::Timestamptz
    } else if given.iter().flatten().any(|ty| cast::is_numeric(*ty)) {
        NUMERIC
    } else if given.iter().flatten().any(|ty| *ty == Type::Int8) {
        Type::Int8
    } else {
        Type::Int4
    };
    let moments = matches!(ty, Type::Timestamp | Type::Timestamptz);
    if moments && given.len() == 2 {
        return None;
    }
    let step = if moments { Type::Interval } else { ty };
    let arguments = [ty, ty, step];
    Some((arguments[..given.len()].to_vec(), vec![(None, ty)]))
}

/// No series is longer: it is made at once.
const ROWS_MAX: usize = 100_000_000;

fn step_zero() -> SqlError {
    SqlError::new("22023", "step size cannot equal zero")
}

fn too_many() -> SqlError {
    SqlError::new("54000", format!("a series here has at most {ROWS_MAX} values"))
}

fn series(a: &Arguments<'_>) -> Result<Vec<Datum>, SqlError> {
    match a.types[0] {
        Type::Timestamp | Type::Timestamptz => moments(a),
        Type::Numeric { .. } => numbers(a),
        _ => {
            let (mut at, last) = (a.int(0), a.int(1));
            let step = if a.len() == 3 { a.int(2) } else { 1 };
            if step == 0 {
                return Err(step_zero());
            }
            let mut out = Vec::new();
            while if step > 0 { at <= last } else { at >= last } {
                if out.len() == ROWS_MAX {
                    return Err(too_many());
                }
                out.push(Datum::Int(at));
                match at.checked_add(step) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            Ok(out)
        }
    }
}

fn numbers(a: &Arguments<'_>) -> Result<Vec<Datum>, SqlError> {
    let (mut at, last) = (a.number(0), a.number(1));
    let step = if a.len() == 3 { a.number(2) } else { Numeric::from_i64(1) };
    for (number, what) in [(&at, "start"), (&last, "stop"), (&step, "step size")] {
        if !matches!(number, Numeric::Finite(_)) {
            let of = if matches!(number, Numeric::NaN) { "NaN" } else { "infinity" };
            return Err(SqlError::new("22023", format!("{what} value cannot be {of}")));
        }
    }
    if step.signum() == 0 {
        return Err(step_zero());
    }
    // Every value has the digits of the first and the step.
    let scale = i64::from(at.scale().max(step.scale()));
    at = at.round(scale)?;
    let mut out = Vec::new();
    while if step.signum() > 0 { at.cmp(&last).is_le() } else { at.cmp(&last).is_ge() } {
        if out.len() == ROWS_MAX {
            return Err(too_many());
        }
        out.push(Datum::Bytes(at.to_stored()));
        at = at.add(&step)?;
    }
    Ok(out)
}

fn moments(a: &Arguments<'_>) -> Result<Vec<Datum>, SqlError> {
    let (mut at, last, step) = (a.int(0), a.int(1), a.interval(2));
    let sign = step.length_us().signum();
    if sign == 0 {
        return Err(step_zero());
    }
    let moved = |at: i64, step: Interval| match a.types[0] {
        Type::Timestamptz => interval::moved_in(at, step, &a.clock.zone),
        _ => interval::moved(at, step),
    };
    let mut out = Vec::new();
    while if sign > 0 { at <= last } else { at >= last } {
        if out.len() == ROWS_MAX {
            return Err(too_many());
        }
        out.push(Datum::Int(at));
        at = moved(at, step)?;
    }
    Ok(out)
}

/// The arrays' elements side by side, nulls where one is shorter.
fn unnest(a: &Arguments<'_>) -> Vec<Vec<Datum>> {
    let arrays: Vec<Array> =
        (0..a.len()).map(|at| if a.is_null(at) { Array::default() } else { a.array(at) }).collect();
    let longest = arrays.iter().map(|array| array.items.len()).max().unwrap_or(0);
    let row = |i: usize| arrays.iter().map(|array| array.items.get(i).cloned().unwrap_or(Datum::Null)).collect();
    (0..longest).map(row).collect()
}

fn subscripts(a: &Arguments<'_>) -> Vec<Datum> {
    let array = a.array(0);
    let dimension = usize::try_from(a.int(1) - 1).ok().and_then(|at| array.dimensions.get(at));
    dimension.map_or(Vec::new(), |d| (0..i64::from(d.length)).map(|i| Datum::Int(i64::from(d.lower) + i)).collect())
}

fn parts(a: &Arguments<'_>) -> Vec<Datum> {
    let separator = if a.is_null(1) { None } else { Some(a.text(1)) };
    let null = if a.len() == 3 && !a.is_null(2) { Some(a.text(2)) } else { None };
    let part = |part: String| if Some(part.as_str()) == null { Datum::Null } else { text(part) };
    texts::split(a.text(0), separator).into_iter().map(part).collect()
}

fn wrong_kind(what: &str, of: &str) -> SqlError {
    SqlError::new("22023", format!("cannot {what} {of}"))
}

fn each(a: &Arguments<'_>, as_text: bool) -> Result<Vec<Vec<Datum>>, SqlError> {
    let of = |kind: &str| wrong_kind("call json_each on", if kind == "array" { "an array" } else { "a scalar" });
    if a.types[0] == Type::Json {
        let node = parse(a.bytes(0), false)?;
        let NodeValue::Object(pairs) = &node.value else {
            return Err(of(node.type_name()));
        };
        return Ok(pairs.iter().map(|(key, value)| vec![text(key), node_datum(value, as_text)]).collect());
    }
    match a.json(0)? {
        Json::Object(pairs) => {
            Ok(pairs.iter().map(|(key, value)| vec![text(key), json_datum(value, as_text)]).collect())
        }
        other => Err(of(other.type_name())),
    }
}

fn json_datum(json: &Json, as_text: bool) -> Datum {
    if as_text { json.as_text() } else { json.to_datum() }
}

fn node_datum(node: &crate::value::json::Node<'_>, as_text: bool) -> Datum {
    match &node.value {
        NodeValue::Null if as_text => Datum::Null,
        NodeValue::String(string) if as_text => text(string),
        _ => text(node.text),
    }
}

fn elements(a: &Arguments<'_>, as_text: bool) -> Result<Vec<Datum>, SqlError> {
    let of = |kind: &str| match kind {
        "object" => wrong_kind("extract elements from", "an object"),
        _ => wrong_kind("extract elements from", "a scalar"),
    };
    if a.types[0] == Type::Json {
        let node = parse(a.bytes(0), false)?;
        let NodeValue::Array(items) = &node.value else {
            return Err(of(node.type_name()));
        };
        return Ok(items.iter().map(|item| node_datum(item, as_text)).collect());
    }
    match a.json(0)? {
        Json::Array(items) => Ok(items.iter().map(|item| json_datum(item, as_text)).collect()),
        other => Err(of(other.type_name())),
    }
}

fn keys(a: &Arguments<'_>) -> Result<Vec<Datum>, SqlError> {
    let name = if a.types[0] == Type::Json { "json_object_keys" } else { "jsonb_object_keys" };
    let of = |kind: &str| {
        wrong_kind("call", &format!("{name} on {}", if kind == "array" { "an array" } else { "a scalar" }))
    };
    if a.types[0] == Type::Json {
        let node = parse(a.bytes(0), false)?;
        return match &node.value {
            NodeValue::Object(pairs) => Ok(pairs.iter().map(|(key, _)| text(key)).collect()),
            _ => Err(of(node.type_name())),
        };
    }
    match a.json(0)? {
        Json::Object(pairs) => Ok(pairs.iter().map(|(key, _)| text(key)).collect()),
        other => Err(of(other.type_name())),
    }
}

/// The scalar function of the same name is none: a call in an expression is refused there.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::function::Function;

    #[test]
    fn series_stop_at_the_types_end() {
        let function = RowFunction::resolve("generate_series", &[Some(Type::Int8), Some(Type::Int8)]).expect("there");
        let rows = function.rows(&[Value::Int(i64::MAX - 1), Value::Int(i64::MAX)], Clock::UTC).expect("rows");
        assert_eq!(rows.len(), 2);
        assert!(Function::resolve("generate_series", &[Some(Type::Int4), Some(Type::Int4)]).is_err());
    }
}
