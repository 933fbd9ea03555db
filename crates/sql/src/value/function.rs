//! Which function do a name and argument types mean, and what does it give?
//!
//! [`Function::resolve`] decides once per statement, as PostgreSQL decides between overloads; [`Function::call`] runs per row.
//! The arguments must first be cast to `Function::arguments`. Every function but `concat` and `concat_ws` gives NULL for a NULL argument.
//!
//! Not here: what needs a session (`now`, `random`), and what must not evaluate all arguments (`coalesce`, `nullif`,
//! `greatest`, `least`, which the planner builds from [`super::cast::common_type`] and [`greatest_or_least`]).

use super::cast::{self, Category, category, is_implicit, is_preferred, same_base};
use super::numeric::Numeric;
use super::operator::{self, BinaryOp, BinaryOperator};
use super::pgtype::{self, NUMERIC, UNLIMITED};
use super::zone::Clock;
use super::{Datum, fault};
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

mod arguments;
mod array;
mod calendar;
mod catalog;
mod fields;
mod formatting;
mod hash;
mod interval;
pub(crate) mod json;
mod math;
mod more;
mod moment;
mod network;
mod regex;
pub mod rows;
mod string;
mod text;
mod variadic;

use arguments::Arguments;
pub use regex::matches_regex;
pub(crate) use text::{quoted_ident, quoted_literal};
pub use variadic::{ASSIGN, Variadic};

/// What a function computes; the forms for different types share one, `Function::arguments` tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FunctionId {
    Abs,
    Ascii,
    BitLength,
    Btrim,
    Cbrt,
    Ceil,
    Chr,
    Concat,
    ConcatWs,
    DatePart,
    DateTrunc,
    Div,
    Exp,
    Extract,
    Floor,
    Initcap,
    IsFinite,
    Left,
    Length,
    Ln,
    Log,
    Lower,
    Lpad,
    Ltrim,
    MakeDate,
    Md5,
    MinScale,
    Mod,
    OctetLength,
    Pi,
    Power,
    Repeat,
    Replace,
    Reverse,
    Right,
    Round,
    Rpad,
    Rtrim,
    Scale,
    Sign,
    SplitPart,
    Sqrt,
    StartsWith,
    Strpos,
    Substr,
    Translate,
    TrimScale,
    Trunc,
    Upper,
    /// One of the table of [`more`].
    More(u16),
    /// Of any number of arguments.
    Variadic(Variadic),
    /// Of arrays of any type.
    Array(array::ArrayFunction),
    /// Another one, whose last arguments come in an array.
    Spread(Spread),
}

/// What is called with VARIADIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Spread {
    Concat,
    ConcatWs,
    Variadic(Variadic),
}

impl Spread {
    fn of(id: FunctionId) -> Option<Spread> {
        Some(match id {
            FunctionId::Concat => Spread::Concat,
            FunctionId::ConcatWs => Spread::ConcatWs,
            FunctionId::Variadic(which) if which.takes_array() => Spread::Variadic(which),
            _ => return None,
        })
    }

    /// The arguments before those that may come in an array.
    fn fixed(self) -> usize {
        match self {
            Spread::ConcatWs | Spread::Variadic(Variadic::Format | Variadic::Path) => 1,
            Spread::Concat | Spread::Variadic(_) => 0,
        }
    }

    fn id(self) -> FunctionId {
        match self {
            Spread::Concat => FunctionId::Concat,
            Spread::ConcatWs => FunctionId::ConcatWs,
            Spread::Variadic(which) => FunctionId::Variadic(which),
        }
    }
}

/// A function for given argument types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    pub id: FunctionId,
    /// What the arguments must be cast to.
    pub arguments: Box<[Type]>,
    pub result: Type,
}

/// One overload.
struct Signature {
    name: &'static str,
    id: FunctionId,
    arguments: &'static [Type],
    result: Type,
}

const BPCHAR: Type = Type::Char(UNLIMITED);

macro_rules! signatures {
    ($($id:ident: $($name:literal)+ { $(($($argument:expr),*) -> $result:expr),+ $(,)? })+) => {
        /// Every overload of every function, as in `pg_proc`.
        static SIGNATURES: &[Signature] = &signatures!(@flat [] $($id: [$($name)+] [$((($($argument),*) $result))+])+);
    };
    (@flat [$($done:tt)*]) => { [$($done)*] };
    (@flat [$($done:tt)*] $id:ident: [] [$($overload:tt)+] $($rest:tt)*) => {
        signatures!(@flat [$($done)*] $($rest)*)
    };
    (@flat [$($done:tt)*] $id:ident: [$name:literal $($names:literal)*] [$((($($argument:expr),*) $result:expr))+] $($rest:tt)*) => {
        signatures!(@flat [$($done)* $(Signature {
            name: $name,
            id: FunctionId::$id,
            arguments: &[$($argument),*],
            result: $result,
        },)+] $id: [$($names)*] [$((($($argument),*) $result))+] $($rest)*)
    };
}

use Type::{Bool, Bytea, Date, Float4, Float8, Int2, Int4, Int8, Text, Time, Timestamp, Timestamptz};

signatures! {
    Abs: "abs" {
        (Int2) -> Int2, (Int4) -> Int4, (Int8) -> Int8, (NUMERIC) -> NUMERIC, (Float4) -> Float4, (Float8) -> Float8,
    }
    Ascii: "ascii" { (Text) -> Int4 }
    BitLength: "bit_length" { (Text) -> Int4, (Bytea) -> Int4 }
    Btrim: "btrim" "trim" { (Text) -> Text, (Text, Text) -> Text, (Bytea, Bytea) -> Bytea }
    Cbrt: "cbrt" { (Float8) -> Float8 }
    Ceil: "ceil" "ceiling" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    Chr: "chr" { (Int4) -> Text }
    DatePart: "date_part" {
        (Text, Date) -> Float8, (Text, Time) -> Float8, (Text, Timestamp) -> Float8, (Text, Timestamptz) -> Float8,
    }
    DateTrunc: "date_trunc" { (Text, Timestamp) -> Timestamp, (Text, Timestamptz) -> Timestamptz }
    Div: "div" { (NUMERIC, NUMERIC) -> NUMERIC }
    Exp: "exp" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    Extract: "extract" {
        (Text, Date) -> NUMERIC, (Text, Time) -> NUMERIC, (Text, Timestamp) -> NUMERIC, (Text, Timestamptz) -> NUMERIC,
    }
    Floor: "floor" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    Initcap: "initcap" { (Text) -> Text }
    IsFinite: "isfinite" { (Date) -> Bool, (Timestamp) -> Bool, (Timestamptz) -> Bool }
    Left: "left" { (Text, Int4) -> Text }
    Length: "length" { (Text) -> Int4, (BPCHAR) -> Int4, (Bytea) -> Int4 }
    Length: "char_length" "character_length" { (Text) -> Int4, (BPCHAR) -> Int4 }
    Ln: "ln" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    Log: "log" { (NUMERIC) -> NUMERIC, (Float8) -> Float8, (NUMERIC, NUMERIC) -> NUMERIC }
    Log: "log10" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    Lower: "lower" { (Text) -> Text }
    Lpad: "lpad" { (Text, Int4) -> Text, (Text, Int4, Text) -> Text }
    Ltrim: "ltrim" { (Text) -> Text, (Text, Text) -> Text, (Bytea, Bytea) -> Bytea }
    MakeDate: "make_date" { (Int4, Int4, Int4) -> Date }
    Md5: "md5" { (Text) -> Text, (Bytea) -> Text }
    MinScale: "min_scale" { (NUMERIC) -> Int4 }
    Mod: "mod" { (Int2, Int2) -> Int2, (Int4, Int4) -> Int4, (Int8, Int8) -> Int8, (NUMERIC, NUMERIC) -> NUMERIC }
    OctetLength: "octet_length" { (Text) -> Int4, (BPCHAR) -> Int4, (Bytea) -> Int4 }
    Pi: "pi" { () -> Float8 }
    Power: "power" "pow" { (NUMERIC, NUMERIC) -> NUMERIC, (Float8, Float8) -> Float8 }
    Repeat: "repeat" { (Text, Int4) -> Text }
    Replace: "replace" { (Text, Text, Text) -> Text }
    Reverse: "reverse" { (Text) -> Text }
    Right: "right" { (Text, Int4) -> Text }
    Round: "round" { (NUMERIC) -> NUMERIC, (Float8) -> Float8, (NUMERIC, Int4) -> NUMERIC }
    Rpad: "rpad" { (Text, Int4) -> Text, (Text, Int4, Text) -> Text }
    Rtrim: "rtrim" { (Text) -> Text, (Text, Text) -> Text, (Bytea, Bytea) -> Bytea }
    Scale: "scale" { (NUMERIC) -> Int4 }
    Sign: "sign" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    SplitPart: "split_part" { (Text, Text, Int4) -> Text }
    Sqrt: "sqrt" { (NUMERIC) -> NUMERIC, (Float8) -> Float8 }
    StartsWith: "starts_with" { (Text, Text) -> Bool }
    Strpos: "strpos" "position" { (Text, Text) -> Int4 }
    Substr: "substr" "substring" {
        (Text, Int4) -> Text, (Text, Int4, Int4) -> Text, (Bytea, Int4) -> Bytea, (Bytea, Int4, Int4) -> Bytea,
    }
    Translate: "translate" { (Text, Text, Text) -> Text }
    TrimScale: "trim_scale" { (NUMERIC) -> NUMERIC }
    Trunc: "trunc" { (NUMERIC) -> NUMERIC, (Float8) -> Float8, (NUMERIC, Int4) -> NUMERIC }
    Upper: "upper" { (Text) -> Text }
}

impl FunctionId {
    /// As EXPLAIN shows it.
    pub fn shown(self) -> String {
        match self {
            FunctionId::More(at) => more::entry(at).name.trim_start_matches('\0').to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

impl Function {
    /// Finds the function (its name in lower case) for argument types; `None` is the type of an untyped literal.
    pub fn resolve(name: &str, arguments: &[Option<Type>]) -> Result<Function, SqlError> {
        if arguments.iter().flatten().any(|ty| ty.unrounded() != *ty) {
            let plain: Vec<Option<Type>> = arguments.iter().map(|ty| ty.map(Type::unrounded)).collect();
            return Function::resolve(name, &plain);
        }
        if let Some(function) = resolve_variadic(name, arguments) {
            return Ok(function);
        }
        if name != "pg_typeof" && arguments.iter().any(|ty| matches!(ty, Some(Type::Vector(_)))) {
            let arrays: Vec<Option<Type>> = arguments.iter().map(|ty| ty.map(Type::as_array)).collect();
            return Function::resolve(name, &arrays);
        }
        if let Some(resolved) = variadic::resolve(name, arguments).or_else(|| array::resolve(name, arguments)) {
            return resolved;
        }
        let candidates: Vec<&Signature> = overloads(name).filter(|s| s.accepts(arguments)).collect();
        let chosen = match as_other_side(name, &candidates, arguments) {
            Some(alike) => vec![alike],
            None if is_open(name, arguments) => candidates,
            None => choose(candidates, arguments),
        };
        match chosen.as_slice() {
            [one] => {
                Ok(Function { id: one.id, arguments: one.parameters(arguments), result: one.result_for(arguments) })
            }
            [] => Err(unresolved("42883", name, arguments, "does not exist", "No function matches")),
            _ => Err(unresolved(
                "42725",
                name,
                arguments,
                "is not unique",
                "Could not choose a best candidate function.",
            )),
        }
    }

    /// The function for arguments of which an array has the last ones.
    pub fn resolve_spread(name: &str, before: &[Option<Type>], element: Type) -> Result<Function, SqlError> {
        let types: Vec<Option<Type>> = before.iter().copied().chain([Some(element)]).collect();
        let one = Function::resolve(name, &types)?;
        let Some(spread) = Spread::of(one.id).filter(|spread| spread.fixed() == before.len()) else {
            return Err(unresolved("42883", name, &types, "does not exist", "No function matches"));
        };
        let mut arguments = one.arguments.to_vec();
        let item = arguments.pop().expect("the array's element is an argument");
        arguments.push(Type::array_of(item));
        Ok(Function { id: FunctionId::Spread(spread), arguments: arguments.into(), result: one.result })
    }

    fn spread(&self, of: Spread, values: &[Value<'_>], clock: &Clock) -> Result<Datum, SqlError> {
        let (Some((array, before)), Some(Type::Array(element))) = (values.split_last(), self.arguments.last()) else {
            return Err(self.misplaced());
        };
        let items = match array {
            Value::Bytes(stored) => super::array_items(**element, stored),
            // As without any.
            _ if of == Spread::Variadic(Variadic::Format) => Vec::new(),
            _ => return Ok(Datum::Null),
        };
        let mut arguments = self.arguments[..before.len()].to_vec();
        arguments.resize(before.len() + items.len(), **element);
        let all: Vec<Value<'_>> = before.iter().copied().chain(items.iter().map(Datum::as_value)).collect();
        Function { id: of.id(), arguments: arguments.into(), result: self.result }.call_by(&all, clock)
    }

    /// The value of a subquery out of its first row's and how many rows it gave: 21000 for more than one, where the value is asked for.
    #[cfg(feature = "query")]
    pub fn only_row(ty: Type) -> Function {
        let id = FunctionId::More(more::number_of("\0only_row"));
        Function { id, arguments: [ty, Int8].into(), result: ty }
    }

    /// Of the operators that ask whether an address lies in a network: which argument is the address, and which the network.
    pub fn containment(&self) -> Option<(usize, usize)> {
        let FunctionId::More(at) = self.id else { return None };
        match (more::entry(at).name, self.arguments.first()) {
            ("<<" | "<<=", Some(Type::Network(_))) => Some((0, 1)),
            (">>" | ">>=", Some(Type::Network(_))) => Some((1, 0)),
            _ => None,
        }
    }

    /// Whether any function has this name, whatever its arguments.
    pub fn exists(name: &str) -> bool {
        matches!(name, "concat" | "concat_ws")
            || overloads(name).next().is_some()
            || variadic::exists(name)
            || array::exists(name)
    }

    /// Whether PostgreSQL has it, or had it, in an extension: it may be called by that one's schema.
    pub fn is_of_extension(name: &str) -> bool {
        matches!(name, "gen_random_uuid" | "uuid_generate_v4" | "uuid_nil")
    }

    /// Computes; the values have the types of `self.arguments`.
    pub fn call(&self, values: &[Value<'_>]) -> Result<Datum, SqlError> {
        self.call_by(values, Clock::UTC)
    }

    /// Whether the result may differ from clock to clock, or from call to call.
    pub fn needs_clock(&self) -> bool {
        let zoned = |ty: &Type| match ty {
            Type::Array(element) => **element == Timestamptz,
            ty => *ty == Timestamptz,
        };
        if matches!(self.id, FunctionId::More(at) if more::entry(at).any_zone) {
            return false;
        }
        // Since a time: until today.
        let is_age = *self.arguments == [Timestamp] && self.result == Type::Interval;
        let is_styled = |ty: &Type| match ty {
            Type::Array(element) => cast::has_style(**element),
            ty => cast::has_style(*ty),
        };
        let shows_styled =
            self.arguments.iter().any(is_styled) && matches!(self.result, Type::Text | Type::Json | Type::Jsonb);
        let by_zone = self.arguments.iter().any(zoned) || zoned(&self.result) || is_age;
        by_zone || shows_styled || self.is_volatile() || self.asks_catalog()
    }

    pub fn makes_row(&self) -> bool {
        matches!(self.id, FunctionId::Variadic(Variadic::Row))
    }

    /// Whether two calls with the same arguments may differ.
    pub fn is_volatile(&self) -> bool {
        matches!(self.id, FunctionId::More(at) if more::entry(at).volatile)
    }

    /// Whether PostgreSQL takes it for one whose result may differ from statement to statement: those that write values of any type, or read and write
    /// by a format, among them.
    pub fn is_stable(&self) -> bool {
        const BY_FORMAT: [&str; 6] = ["to_char", "to_date", "to_number", "to_timestamp", "convert_from", "convert_to"];
        match self.id {
            FunctionId::Concat | FunctionId::ConcatWs | FunctionId::Spread(Spread::Concat | Spread::ConcatWs) => true,
            FunctionId::Variadic(which) | FunctionId::Spread(Spread::Variadic(which)) => which.is_stable(),
            FunctionId::Array(array::ArrayFunction::ToString) => true,
            // Of a number of seconds it is the same everywhere.
            FunctionId::More(at) if *self.arguments == [Float8] => more::entry(at).volatile,
            FunctionId::More(at) => BY_FORMAT.contains(&more::entry(at).name),
            _ => false,
        }
    }

    /// Whether the result depends on the schema or the session.
    fn asks_catalog(&self) -> bool {
        match self.id {
            FunctionId::More(at) => more::entry(at).asks_catalog,
            FunctionId::Variadic(Variadic::Privilege(_)) => true,
            // What shows names of objects.
            _ => self.arguments.iter().any(|ty| cast::shows_names(*ty)),
        }
    }

    /// As [`Self::call`], by a session's clock.
    pub fn call_by(&self, values: &[Value<'_>], clock: &Clock) -> Result<Datum, SqlError> {
        match self.id {
            FunctionId::Concat => return Ok(string::concat(&self.arguments, values, clock)),
            FunctionId::ConcatWs => return Ok(string::concat_ws(&self.arguments, values, clock)),
            FunctionId::More(at) => {
                let entry = more::entry(at);
                if entry.strict && values.iter().any(Value::is_null) {
                    return Ok(Datum::Null);
                }
                return (entry.run)(&self.given(values, clock));
            }
            FunctionId::Variadic(which) => return which.call(&self.given(values, clock)),
            FunctionId::Array(which) => return which.call(&self.given(values, clock)),
            FunctionId::Spread(of) => return self.spread(of, values, clock),
            _ if values.iter().any(Value::is_null) => return Ok(Datum::Null),
            _ => {}
        }
        match (self.arguments.first(), values) {
            (Some(Type::Numeric { .. }), [Value::Bytes(first), rest @ ..]) => {
                self.call_numeric(&Numeric::from_stored(first), rest)
            }
            (Some(Type::Float8 | Type::Float4), [Value::Float(first), rest @ ..]) => self.call_float(*first, rest),
            (Some(Int2 | Int4 | Int8), [Value::Int(_), ..]) => self.call_integer(values),
            (Some(Type::Decimal { .. }), [Value::Decimal(first)]) => Ok(Datum::Decimal(first.abs())),
            _ if calendar::is_own(self.id) => calendar::call(self, values, clock),
            (None, _) => Ok(Datum::Float(std::f64::consts::PI)),
            _ => string::call(self, values),
        }
    }

    fn given<'a>(&'a self, values: &'a [Value<'a>], clock: &'a Clock) -> Arguments<'a> {
        Arguments { values, types: &self.arguments, result: self.result, clock }
    }

    fn call_numeric(&self, first: &Numeric, rest: &[Value<'_>]) -> Result<Datum, SqlError> {
        let places = match rest.first() {
            Some(Value::Int(places)) => *places,
            _ => 0,
        };
        let second = || match rest.first() {
            Some(Value::Bytes(second)) => Numeric::from_stored(second),
            _ => Numeric::from_i64(10),
        };
        let result = match self.id {
            FunctionId::Abs => first.clone().abs(),
            FunctionId::Ceil => first.ceil()?,
            FunctionId::Floor => first.floor()?,
            FunctionId::Round => first.round(places)?,
            FunctionId::Trunc => first.trunc(places)?,
            FunctionId::Sign if matches!(first, Numeric::NaN) => Numeric::NaN,
            FunctionId::Sign => Numeric::from_i64(first.signum().into()),
            FunctionId::Sqrt => first.sqrt()?,
            FunctionId::Exp => first.exp()?,
            FunctionId::Ln => first.ln()?,
            // The base comes first, if there is one.
            FunctionId::Log if rest.is_empty() => first.log(&second())?,
            FunctionId::Log => second().log(first)?,
            FunctionId::Mod => first.rem(&second())?,
            FunctionId::Div => first.div_whole(&second())?,
            FunctionId::Power => first.power(&second())?,
            FunctionId::TrimScale => first.trim_scale(),
            FunctionId::Scale | FunctionId::MinScale => {
                let shown = match self.id {
                    FunctionId::Scale => first.clone(),
                    _ => first.trim_scale(),
                };
                return Ok(match shown {
                    Numeric::Finite(_) => Datum::Int(shown.scale().into()),
                    _ => Datum::Null,
                });
            }
            _ => return Err(self.misplaced()),
        };
        Ok(Datum::Bytes(result.to_stored()))
    }

    fn call_float(&self, x: f64, rest: &[Value<'_>]) -> Result<Datum, SqlError> {
        let result = match self.id {
            FunctionId::Abs => x.abs(),
            FunctionId::Ceil => x.ceil(),
            FunctionId::Floor => x.floor(),
            FunctionId::Round => x.round_ties_even(),
            FunctionId::Trunc => x.trunc(),
            FunctionId::Sign if x == 0.0 || x.is_nan() => 0.0,
            FunctionId::Sign => x.signum(),
            FunctionId::Sqrt if x < 0.0 => return Err(fault::root_of_negative()),
            FunctionId::Sqrt => x.sqrt(),
            FunctionId::Cbrt => x.cbrt(),
            FunctionId::Exp => return exp(x).map(Datum::Float),
            FunctionId::Ln | FunctionId::Log if x == 0.0 => return Err(fault::logarithm("zero")),
            FunctionId::Ln | FunctionId::Log if x < 0.0 => {
                return Err(fault::logarithm("a negative number"));
            }
            FunctionId::Ln => x.ln(),
            FunctionId::Log => x.log10(),
            FunctionId::Power => match rest {
                [Value::Float(y)] => operator::power(x, *y)?,
                _ => return Err(self.misplaced()),
            },
            _ => return Err(self.misplaced()),
        };
        Ok(Datum::Float(result))
    }

    fn call_integer(&self, values: &[Value<'_>]) -> Result<Datum, SqlError> {
        match (self.id, values) {
            (FunctionId::Abs, [Value::Int(v)]) => {
                let magnitude = v.checked_abs().ok_or_else(|| fault::out_of_range(self.result))?;
                cast::check_integer(magnitude, self.result).map(Datum::Int)
            }
            (FunctionId::Mod, [Value::Int(_), Value::Int(0)]) => Err(fault::division_by_zero()),
            (FunctionId::Mod, [Value::Int(a), Value::Int(b)]) => Ok(Datum::Int(a.checked_rem(*b).unwrap_or(0))),
            (FunctionId::Chr, [Value::Int(code)]) => string::chr(*code),
            (FunctionId::MakeDate, [Value::Int(year), Value::Int(month), Value::Int(day)]) => {
                calendar::make_date(*year, *month, *day).map(Datum::Int)
            }
            _ => Err(self.misplaced()),
        }
    }

    /// A function reached the code for types that it has no overload for.
    fn misplaced(&self) -> SqlError {
        SqlError::new("XX000", format!("function {:?} has no form for {:?}", self.id, self.arguments))
    }
}

impl Signature {
    fn accepts(&self, arguments: &[Option<Type>]) -> bool {
        self.arguments.len() == arguments.len()
            && self
                .arguments
                .iter()
                .zip(arguments)
                .all(|(parameter, argument)| argument.is_none_or(|ty| is_implicit(ty, *parameter)))
    }

    /// The types to cast to. A `char` keeps its length, which `octet_length` counts, and the absolute value of a decimal is one.
    fn parameters(&self, arguments: &[Option<Type>]) -> Box<[Type]> {
        let keep = |parameter: Type, argument: Option<Type>| match argument {
            Some(ty @ Type::Char(_)) if parameter == BPCHAR => ty,
            // `date_part` of a date is that of its midnight.
            _ if self.id == FunctionId::DatePart && parameter == Date => Timestamp,
            Some(ty @ Type::Decimal { .. }) if self.id == FunctionId::Abs => ty,
            _ => parameter,
        };
        let pairs = self.arguments.iter().zip(arguments);
        pairs.map(|(parameter, argument)| keep(*parameter, *argument)).collect()
    }

    fn result_for(&self, arguments: &[Option<Type>]) -> Type {
        match (self.id, arguments) {
            (FunctionId::Abs, [Some(ty @ Type::Decimal { .. })]) => *ty,
            _ => self.result,
        }
    }

    /// In how many places `good` holds of parameter and known argument.
    fn count(&self, arguments: &[Option<Type>], good: impl Fn(Type, Type) -> bool) -> usize {
        let pairs = self.arguments.iter().zip(arguments);
        pairs.filter(|(parameter, argument)| argument.is_some_and(|ty| good(**parameter, ty))).count()
    }
}

/// An operator whose untyped literal has the type of what stands on the other side, if there is such a one: it is taken before all others.
fn as_other_side<'a>(name: &str, candidates: &[&'a Signature], arguments: &[Option<Type>]) -> Option<&'a Signature> {
    let ([Some(ty), None] | [None, Some(ty)]) = arguments else { return None };
    let alike = |s: &&&Signature| s.arguments.iter().all(|parameter| same_base(*parameter, *ty));
    if is_word(name) { None } else { candidates.iter().find(alike).copied() }
}

/// Whether it is the name of a function, not the symbol of an operator.
fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// PostgreSQL's steps: most exact matches, most preferred types, then the category that untyped literals are likeliest of.
fn choose<'a>(candidates: Vec<&'a Signature>, arguments: &[Option<Type>]) -> Vec<&'a Signature> {
    let exact = |parameter, argument| same_base(parameter, argument);
    let preferred = |parameter: Type, argument| {
        exact(parameter, argument) || is_preferred(parameter) && category(parameter) == category(argument)
    };
    let left = best_by(candidates, |s| s.count(arguments, exact));
    let mut left = best_by(left, |s| s.count(arguments, preferred));
    for (place, argument) in arguments.iter().enumerate() {
        if left.len() < 2 || argument.is_some() {
            continue;
        }
        let is_text = |s: &&Signature| category(s.arguments[place]) == Category::Text;
        if left.iter().any(is_text) {
            left.retain(is_text);
        }
        if left.iter().any(|s| is_preferred(s.arguments[place])) {
            left.retain(|s| is_preferred(s.arguments[place]));
        }
    }
    // Untyped literals may be of the type that all other arguments have.
    let mut known = arguments.iter().flatten();
    if left.len() > 1
        && let Some(ty) = known.next()
        && known.all(|other| same_base(*ty, *other))
    {
        let same = |s: &&Signature| s.arguments.iter().all(|p| same_base(*p, *ty));
        if left.iter().any(same) {
            left.retain(same);
        }
    }
    left
}

/// Every overload of a name, in the order of the tables.
fn overloads(name: &str) -> impl Iterator<Item = &'static Signature> {
    static BY_NAME: LazyLock<HashMap<&'static str, Vec<&'static Signature>>> = LazyLock::new(|| {
        let mut by_name: HashMap<&'static str, Vec<&'static Signature>> = HashMap::new();
        for signature in SIGNATURES.iter().chain(more::signatures()) {
            by_name.entry(signature.name).or_default().push(signature);
        }
        by_name
    });
    BY_NAME.get(name).into_iter().flatten().copied()
}

/// PostgreSQL could also take an interval, or a network address, so it does not choose for an untyped literal.
fn is_open(name: &str, arguments: &[Option<Type>]) -> bool {
    match arguments {
        [_, None] => matches!(name, "date_part" | "date_trunc" | "extract"),
        [None] => name == "trunc",
        _ => false,
    }
}

fn best_by(mut candidates: Vec<&Signature>, score: impl Fn(&Signature) -> usize) -> Vec<&Signature> {
    let best = candidates.iter().map(|s| score(s)).max().unwrap_or(0);
    candidates.retain(|s| score(s) == best);
    candidates
}

/// `concat` and `concat_ws` take any number of any types; untyped literals are text.
fn resolve_variadic(name: &str, arguments: &[Option<Type>]) -> Option<Function> {
    let id = match (name, arguments) {
        ("concat", [_, ..]) => FunctionId::Concat,
        ("concat_ws", [separator, _, ..]) if separator.is_none_or(cast::is_text) => FunctionId::ConcatWs,
        _ => return None,
    };
    Some(Function { id, arguments: arguments.iter().map(|a| a.unwrap_or(Text)).collect(), result: Text })
}

fn unresolved(sqlstate: &'static str, name: &str, arguments: &[Option<Type>], what: &str, hint: &str) -> SqlError {
    let types: Vec<&str> = arguments.iter().map(|a| a.map_or("unknown", pgtype::name)).collect();
    if !is_word(name) {
        return operator_unresolved(sqlstate, name, &types, what);
    }
    let types = types.join(", ");
    let mut error = SqlError::new(sqlstate, format!("function {name}({types}) {what}"));
    let hint = match sqlstate {
        "42883" => format!("{hint} the given name and argument types."),
        _ => hint.to_owned(),
    };
    error.hint = Some(format!("{hint} You might need to add explicit type casts."));
    error
}

fn operator_unresolved(sqlstate: &'static str, name: &str, types: &[&str], what: &str) -> SqlError {
    let shown = match types {
        [left, right] => format!("{left} {name} {right}"),
        [one] => format!("{name} {one}"),
        _ => name.to_owned(),
    };
    SqlError::new(sqlstate, format!("operator {what}: {shown}"))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

fn exp(x: f64) -> Result<f64, SqlError> {
    let result = x.exp();
    if result.is_infinite() && x.is_finite() {
        return Err(fault::float_overflow());
    }
    if result == 0.0 && x.is_finite() {
        return Err(fault::float_underflow());
    }
    Ok(result)
}

/// The function for argument types, if there is one, and its result's type.
pub fn function(name: &str, arguments: &[Type]) -> Option<(Function, Type)> {
    let arguments: Vec<Option<Type>> = arguments.iter().copied().map(Some).collect();
    let function = Function::resolve(name, &arguments).ok()?;
    let result = function.result;
    Some((function, result))
}

/// `GREATEST` and `LEAST` over values of one type: the position of the chosen one, `None` if all are null.
pub fn greatest_or_least(ty: Type, values: &[Value<'_>], greatest: bool) -> Option<usize> {
    let mut chosen: Option<usize> = None;
    for (i, value) in values.iter().enumerate() {
        if value.is_null() {
            continue;
        }
        let wins = chosen.is_none_or(|c| {
            let order = ty.compare(value, &values[c]);
            if greatest { order.is_gt() } else { order.is_lt() }
        });
        if wins {
            chosen = Some(i);
        }
    }
    chosen
}

/// `NULLIF(a, b)`: whether the first is to be replaced by NULL. `equal` is the operator `=` of the two types.
pub fn nullif(equal: &BinaryOperator, a: &Value<'_>, b: &Value<'_>) -> Result<bool, SqlError> {
    debug_assert_eq!(equal.op, BinaryOp::Eq);
    Ok(!a.is_null() && !b.is_null() && equal.compare(a, b)?.is_eq())
}
