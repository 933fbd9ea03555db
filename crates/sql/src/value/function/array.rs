//! Functions and operators of arrays of any type: which element type a call is about is found from its arguments.

use super::arguments::{Arguments, text};
use super::{Function, FunctionId};
use crate::bind::record::must_compare;
use crate::error::SqlError;
use crate::value::array::{Array, Dimension};
use crate::value::{Datum, cast, text as texts};
use freshet_engine::schema::{Type, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ArrayFunction {
    Make,
    /// `ARRAY[]` of arrays.
    Nest,
    At,
    Slice,
    Append,
    Prepend,
    Cat,
    Length,
    Cardinality,
    Dimensions,
    Lower,
    Upper,
    Dims,
    Position,
    Positions,
    Remove,
    Replace,
    Fill,
    Trim,
    ToString,
    Contains,
    IsContained,
    Overlaps,
    /// `width_bucket` among thresholds.
    Bucket,
    /// An array with a value at a subscript.
    Set,
    /// An array with another at a range of subscripts.
    SetSlice,
}

/// What stands in the place of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Array,
    Element,
    Int,
    Ints,
    Text,
}

/// What a call gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gives {
    Array,
    Int,
    Ints,
    Text,
    Bool,
}

impl ArrayFunction {
    /// Whether it asks which elements are equal.
    fn compares(self) -> bool {
        use ArrayFunction::{Contains, IsContained, Overlaps, Position, Positions, Remove, Replace};
        matches!(self, Contains | IsContained | Overlaps | Position | Positions | Remove | Replace)
    }
}

fn forms(name: &str) -> &'static [(ArrayFunction, &'static [Is], Gives)] {
    use ArrayFunction as F;
    match name {
        "array_append" => &[(F::Append, &[Is::Array, Is::Element], Gives::Array)],
        "array_prepend" => &[(F::Prepend, &[Is::Element, Is::Array], Gives::Array)],
        "array_cat" => &[(F::Cat, &[Is::Array, Is::Array], Gives::Array)],
        "||" => &[
            (F::Cat, &[Is::Array, Is::Array], Gives::Array),
            (F::Append, &[Is::Array, Is::Element], Gives::Array),
            (F::Prepend, &[Is::Element, Is::Array], Gives::Array),
        ],
        "array_length" => &[(F::Length, &[Is::Array, Is::Int], Gives::Int)],
        "cardinality" => &[(F::Cardinality, &[Is::Array], Gives::Int)],
        "array_ndims" => &[(F::Dimensions, &[Is::Array], Gives::Int)],
        "array_lower" => &[(F::Lower, &[Is::Array, Is::Int], Gives::Int)],
        "array_upper" => &[(F::Upper, &[Is::Array, Is::Int], Gives::Int)],
        "array_dims" => &[(F::Dims, &[Is::Array], Gives::Text)],
        "array_position" => &[
            (F::Position, &[Is::Array, Is::Element], Gives::Int),
            (F::Position, &[Is::Array, Is::Element, Is::Int], Gives::Int),
        ],
        "array_positions" => &[(F::Positions, &[Is::Array, Is::Element], Gives::Ints)],
        "array_remove" => &[(F::Remove, &[Is::Array, Is::Element], Gives::Array)],
        "array_replace" => &[(F::Replace, &[Is::Array, Is::Element, Is::Element], Gives::Array)],
        "array_fill" => &[
            (F::Fill, &[Is::Element, Is::Ints], Gives::Array),
            (F::Fill, &[Is::Element, Is::Ints, Is::Ints], Gives::Array),
        ],
        "trim_array" => &[(F::Trim, &[Is::Array, Is::Int], Gives::Array)],
        "array_to_string" => &[
            (F::ToString, &[Is::Array, Is::Text], Gives::Text),
            (F::ToString, &[Is::Array, Is::Text, Is::Text], Gives::Text),
        ],
        "width_bucket" => &[(F::Bucket, &[Is::Element, Is::Array], Gives::Int)],
        "@>" => &[(F::Contains, &[Is::Array, Is::Array], Gives::Bool)],
        "<@" => &[(F::IsContained, &[Is::Array, Is::Array], Gives::Bool)],
        "&&" => &[(F::Overlaps, &[Is::Array, Is::Array], Gives::Bool)],
        _ => &[],
    }
}

pub(super) fn exists(name: &str) -> bool {
    !forms(name).is_empty()
}

/// `None`: this is no call about arrays.
pub(super) fn resolve(name: &str, arguments: &[Option<Type>]) -> Option<Result<Function, SqlError>> {
    let forms = forms(name);
    let about_arrays = arguments.iter().any(|ty| matches!(ty, Some(Type::Array(_))));
    // These have other meanings too.
    let is_others = name == "width_bucket" || !name.starts_with(|c: char| c.is_ascii_alphabetic());
    if forms.is_empty() || is_others && !about_arrays {
        return None;
    }
    let found = forms.iter().find_map(|(which, places, gives)| fit(*which, places, *gives, arguments));
    let tells = |(is, ty): (&Is, &Option<Type>)| matches!(is, Is::Array | Is::Element) && ty.is_some();
    if found.is_some() && !takes_text(name) && !forms[0].1.iter().zip(arguments).any(tells) {
        return Some(Err(undetermined()));
    }
    Some(found.ok_or_else(|| super::unresolved("42883", name, arguments, "does not exist", "No function matches")))
}

/// 42804: nothing says of which type the array is.
pub(super) fn undetermined() -> SqlError {
    SqlError::new("42804", "could not determine polymorphic type because input has type unknown")
}

/// Whether literals without a type make an array of texts: the function's arguments are `anycompatible`.
fn takes_text(name: &str) -> bool {
    matches!(
        name,
        "array_append"
            | "array_prepend"
            | "array_cat"
            | "array_position"
            | "array_positions"
            | "array_remove"
            | "array_replace"
    )
}

fn fit(which: ArrayFunction, places: &[Is], gives: Gives, arguments: &[Option<Type>]) -> Option<Function> {
    if places.len() != arguments.len() {
        return None;
    }
    let array = arguments.iter().flatten().find(|ty| matches!(ty, Type::Array(_)));
    if which.compares() && array.is_some_and(|ty| must_compare(*ty, "equality").is_err()) {
        return None;
    }
    // Arrays decide on the element's type; without one, the elements do.
    let pairs = || places.iter().zip(arguments);
    let mut element: Option<Type> = None;
    for (is, ty) in pairs() {
        let own = match (is, ty) {
            (Is::Array, Some(Type::Array(own))) => **own,
            (Is::Array, Some(_)) => return None,
            (Is::Element, Some(own)) if !matches!(own, Type::Array(_)) => *own,
            (Is::Element, Some(_)) => return None,
            _ => continue,
        };
        element = Some(match element {
            None => own,
            Some(known) => common(known, own)?,
        });
    }
    let element = cast::without_modifier(element.unwrap_or(Type::Text));
    let element = if matches!(element, Type::Varchar(_)) { Type::Text } else { element };
    let mut types = Vec::with_capacity(places.len());
    for (is, ty) in pairs() {
        let wanted = match is {
            Is::Array => Type::array_of(element),
            Is::Element => element,
            Is::Int => Type::Int4,
            Is::Ints => Type::array_of(Type::Int4),
            Is::Text => Type::Text,
        };
        if ty.is_some_and(|ty| !cast::is_implicit(ty, wanted)) {
            return None;
        }
        types.push(wanted);
    }
    let result = match gives {
        Gives::Array => Type::array_of(element),
        Gives::Int => Type::Int4,
        Gives::Ints => Type::array_of(Type::Int4),
        Gives::Text => Type::Text,
        Gives::Bool => Type::Bool,
    };
    Some(Function { id: FunctionId::Array(which), arguments: types.into(), result })
}

fn common(a: Type, b: Type) -> Option<Type> {
    if cast::same_base(a, b) || cast::is_implicit(b, a) {
        Some(a)
    } else if cast::is_implicit(a, b) {
        Some(b)
    } else {
        None
    }
}

impl Function {
    /// `ARRAY[...]` of elements of one type, or of arrays.
    pub fn array(of: Type, count: usize) -> Function {
        let (which, result) = match of {
            Type::Array(_) => (ArrayFunction::Nest, of),
            element => (ArrayFunction::Make, Type::array_of(element)),
        };
        Function { id: FunctionId::Array(which), arguments: vec![of; count].into(), result }
    }

    /// `array[i][j]`.
    pub fn subscript(array: Type, count: usize) -> Option<Function> {
        let Type::Array(element) = array else {
            return None;
        };
        let mut arguments = vec![array];
        arguments.extend(std::iter::repeat_n(Type::Int4, count));
        Some(Function { id: FunctionId::Array(ArrayFunction::At), arguments: arguments.into(), result: *element })
    }

    /// `array[i:j]`: two bounds for each dimension, NULL for none.
    pub fn slice(array: Type, dimensions: usize) -> Function {
        let mut arguments = vec![array];
        arguments.extend(std::iter::repeat_n(Type::Int4, 2 * dimensions));
        Function { id: FunctionId::Array(ArrayFunction::Slice), arguments: arguments.into(), result: array }
    }

    /// The array of `UPDATE ... SET array[i][j] = value`: the array, the value, the subscripts.
    pub fn set_subscript(array: Type, count: usize) -> Function {
        let mut arguments = vec![array, element(array)];
        arguments.extend(std::iter::repeat_n(Type::Int4, count));
        Function { id: FunctionId::Array(ArrayFunction::Set), arguments: arguments.into(), result: array }
    }

    /// The array of `UPDATE ... SET array[i:j] = other`: the array, the other, by bits which bounds are given, two bounds for each dimension.
    pub fn set_slice(array: Type, dimensions: usize) -> Result<Function, SqlError> {
        crate::value::array::check_dimensions(dimensions)?;
        let mut arguments = vec![array, array];
        arguments.extend(std::iter::repeat_n(Type::Int4, 1 + 2 * dimensions));
        Ok(Function { id: FunctionId::Array(ArrayFunction::SetSlice), arguments: arguments.into(), result: array })
    }
}

type Result_ = Result<Datum, SqlError>;

impl ArrayFunction {
    pub(super) fn call(self, a: &Arguments<'_>) -> Result_ {
        use ArrayFunction as F;
        match self {
            F::Make => {
                return Ok(Array::of(a.values.iter().map(|v| Datum::from(*v)).collect()).to_datum(element(a.result)));
            }
            F::Nest => return nest(a),
            F::Bucket if a.values.iter().any(Value::is_null) => return Ok(Datum::Null),
            F::Bucket => return super::math::width_bucket_among(a),
            F::Append | F::Prepend | F::Cat => return self.joined(a),
            F::Position | F::Positions => return if a.is_null(0) { Ok(Datum::Null) } else { self.positions(a) },
            F::Remove | F::Replace => return if a.is_null(0) { Ok(Datum::Null) } else { self.without(a) },
            F::Fill => return fill(a),
            F::ToString => return to_string(a),
            F::Slice if !a.is_null(0) => return slice(a),
            F::Set | F::SetSlice => return set(a, self == F::SetSlice),
            _ if a.values.iter().any(|v| v.is_null()) => return Ok(Datum::Null),
            _ => {}
        }
        let array = a.array(0);
        let dimension = |at: i64| usize::try_from(at - 1).ok().and_then(|at| array.dimensions.get(at)).copied();
        let int = |value: Option<i64>| value.map_or(Datum::Null, Datum::Int);
        Ok(match self {
            F::At => {
                let subscripts: Vec<i64> = (1..a.len()).map(|at| a.int(at)).collect();
                array.at(&subscripts).cloned().unwrap_or(Datum::Null)
            }
            F::Length => int(dimension(a.int(1)).map(|d| d.length.into())),
            F::Lower => int(dimension(a.int(1)).map(|d| d.lower.into())),
            F::Upper => int(dimension(a.int(1)).map(|d| i64::from(d.lower) + i64::from(d.length) - 1)),
            F::Cardinality => Datum::Int(array.items.len() as i64),
            F::Dimensions => int((!array.dimensions.is_empty()).then_some(array.dimensions.len() as i64)),
            F::Dims if array.dimensions.is_empty() => Datum::Null,
            F::Dims => {
                let shown = |d: &Dimension| format!("[{}:{}]", d.lower, i64::from(d.lower) + i64::from(d.length) - 1);
                text(array.dimensions.iter().map(shown).collect::<String>())
            }
            F::Trim => return trimmed(a, array),
            F::Contains => Datum::Bool(contains(a, &array, &a.array(1))),
            F::IsContained => Datum::Bool(contains(a, &a.array(1), &array)),
            _ => {
                let other = a.array(1);
                let shared = |item: &Datum| *item != Datum::Null && has(element(a.types[0]), &other.items, item);
                Datum::Bool(array.items.iter().any(shared))
            }
        })
    }

    fn joined(self, a: &Arguments<'_>) -> Result_ {
        let of = element(a.result);
        let array_at = |at: usize| if a.is_null(at) { None } else { Some(a.array(at)) };
        let item_at = |at: usize| Datum::from(a.values[at]);
        if self == ArrayFunction::Cat {
            return Ok(match (array_at(0), array_at(1)) {
                (None, None) => Datum::Null,
                (Some(one), None) | (None, Some(one)) => one.to_datum(of),
                (Some(x), Some(y)) => cat(x, y)?.to_datum(of),
            });
        }
        let append = self == ArrayFunction::Append;
        let mut array = array_at(usize::from(!append)).unwrap_or_default();
        let item = item_at(usize::from(append));
        match array.dimensions.as_mut_slice() {
            [] => array = Array::of(vec![item]),
            [one] => {
                one.length += 1;
                array.items.insert(if append { array.items.len() } else { 0 }, item);
            }
            _ => return Err(SqlError::new("22000", "argument must be empty or one-dimensional array")),
        }
        Ok(array.to_datum(of))
    }

    fn positions(self, a: &Arguments<'_>) -> Result_ {
        let array = a.array(0);
        let lower = match array.dimensions.as_slice() {
            [] => 1,
            [one] => i64::from(one.lower),
            _ => {
                return Err(SqlError::unsupported(
                    "searching for elements in multidimensional arrays is not supported",
                ));
            }
        };
        let from = if a.len() == 3 && !a.is_null(2) { a.int(2) } else { i64::MIN };
        let wanted = Datum::from(a.values[1]);
        let of = element(a.types[0]);
        let found =
            array.items.iter().enumerate().filter(|(_, item)| same(of, item, &wanted)).map(|(i, _)| lower + i as i64);
        let mut found = found.filter(|at| *at >= from);
        Ok(match self {
            ArrayFunction::Position => found.next().map_or(Datum::Null, Datum::Int),
            _ => Array::of(found.map(Datum::Int).collect()).to_datum(Type::Int4),
        })
    }

    fn without(self, a: &Arguments<'_>) -> Result_ {
        let mut array = a.array(0);
        let of = element(a.types[0]);
        let old = Datum::from(a.values[1]);
        if self == ArrayFunction::Replace {
            let new = Datum::from(a.values[2]);
            for item in array.items.iter_mut().filter(|item| same(of, item, &old)) {
                *item = new.clone();
            }
            return Ok(array.to_datum(of));
        }
        if array.dimensions.len() > 1 {
            return Err(SqlError::unsupported("removing elements from multidimensional arrays is not supported"));
        }
        array.items.retain(|item| !same(of, item, &old));
        match array.dimensions.first_mut() {
            Some(one) if !array.items.is_empty() => one.length = array.items.len() as u32,
            _ => array.dimensions.clear(),
        }
        Ok(array.to_datum(of))
    }
}

fn element(ty: Type) -> Type {
    match ty {
        Type::Array(element) => *element,
        other => other,
    }
}

/// Equal, or both null.
fn same(of: Type, a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Null, Datum::Null) => true,
        (Datum::Null, _) | (_, Datum::Null) => false,
        _ => of.compare(&a.as_value(), &b.as_value()).is_eq(),
    }
}

fn has(of: Type, items: &[Datum], wanted: &Datum) -> bool {
    items.iter().any(|item| *item != Datum::Null && same(of, item, wanted))
}

/// A null is in no array.
fn contains(a: &Arguments<'_>, whole: &Array, part: &Array) -> bool {
    let of = element(a.types[0]);
    part.items.iter().all(|item| *item != Datum::Null && has(of, &whole.items, item))
}

fn nest(a: &Arguments<'_>) -> Result_ {
    let of = element(a.result);
    let parts: Vec<Array> = (0..a.len()).filter(|at| !a.is_null(*at)).map(|at| a.array(at)).collect();
    if !parts.is_empty() && parts.len() < a.len() {
        let message = "multidimensional arrays must have array expressions with matching dimensions";
        return Err(SqlError::new("2202E", message));
    }
    Ok(Array::nested(parts)?.to_datum(of))
}

fn cat(x: Array, y: Array) -> Result<Array, SqlError> {
    if x.dimensions.is_empty() {
        return Ok(y);
    }
    if y.dimensions.is_empty() {
        return Ok(x);
    }
    let incompatible = || SqlError::new("2202E", "cannot concatenate incompatible arrays");
    let (mut outer, inner, prepend) = match x.dimensions.len() as i64 - y.dimensions.len() as i64 {
        0 | 1 => (x, y, false),
        -1 => (y, x, true),
        _ => return Err(incompatible()),
    };
    let same_depth = outer.dimensions.len() == inner.dimensions.len();
    let lengths = |d: &[Dimension]| d.iter().map(|d| d.length).collect::<Vec<_>>();
    let below = if same_depth { &inner.dimensions[1..] } else { &inner.dimensions[..] };
    if lengths(&outer.dimensions[1..]) != lengths(below) {
        return Err(incompatible());
    }
    outer.dimensions[0].length += if same_depth { inner.dimensions[0].length } else { 1 };
    let at = if prepend { 0 } else { outer.items.len() };
    outer.items.splice(at..at, inner.items);
    Ok(outer)
}

fn slice(a: &Arguments<'_>) -> Result_ {
    let bound = |at: usize| if a.is_null(at) { None } else { Some(a.int(at)) };
    let bounds: Vec<(Option<i64>, Option<i64>)> =
        (1..a.len()).step_by(2).map(|at| (bound(at), bound(at + 1))).collect();
    Ok(a.array(0).slice(&bounds).to_datum(element(a.types[0])))
}

fn set(a: &Arguments<'_>, whole_slice: bool) -> Result_ {
    let of = element(a.types[0]);
    let mut array = if a.is_null(0) { Array::default() } else { a.array(0) };
    if (2..a.len()).any(|at| a.is_null(at)) {
        return Err(SqlError::new("22004", "array subscript in assignment must not be null"));
    }
    if !whole_slice {
        let subscripts: Vec<i64> = (2..a.len()).map(|at| a.int(at)).collect();
        let value = Datum::from(a.values[1]);
        match subscripts.as_slice() {
            [one] => array.set(*one, value)?,
            several => array.set_within(several, value)?,
        }
        return Ok(array.to_datum(of));
    }
    if a.is_null(1) {
        return Ok(array.to_datum(of));
    }
    let given = a.int(2);
    let bound = |at: usize| (given >> (at - 3) & 1 == 1).then(|| a.int(at));
    let bounds: Vec<(Option<i64>, Option<i64>)> =
        (3..a.len()).step_by(2).map(|at| (bound(at), bound(at + 1))).collect();
    array.set_slice(&bounds, a.array(1))?;
    Ok(array.to_datum(of))
}

fn fill(a: &Arguments<'_>) -> Result_ {
    if a.is_null(1) || a.len() == 3 && a.is_null(2) {
        return Err(SqlError::new("22004", "dimension array or low bound array cannot be null"));
    }
    for (at, what) in [(1, "Dimension"), (2, "Low bound")] {
        if a.len() > at && a.array(at).dimensions.len() > 1 {
            return Err(SqlError::new("2202E", "wrong number of array subscripts")
                .with_detail(format!("{what} array must be one dimensional.")));
        }
    }
    let ints = |at: usize| {
        let items = a.array(at).items;
        items.iter().map(|i| if let Datum::Int(v) = i { Some(*v) } else { None }).collect::<Option<Vec<i64>>>()
    };
    let null = || SqlError::new("22004", "dimension values cannot be null");
    let lengths = ints(1).ok_or_else(null)?;
    let lowers = if a.len() == 3 { ints(2).ok_or_else(null)? } else { vec![1; lengths.len()] };
    if lowers.len() != lengths.len() {
        return Err(SqlError::new("2202E", "wrong number of array subscripts"));
    }
    crate::value::array::check_dimensions(lengths.len())?;
    let total = lengths.iter().try_fold(1i64, |n, l| n.checked_mul(*l)).filter(|n| (0..1 << 27).contains(n));
    let total = total.ok_or_else(|| SqlError::new("54000", "array size exceeds the maximum allowed (134217727)"))?;
    let dimensions = lengths.iter().zip(&lowers).map(|(l, low)| Dimension { length: *l as u32, lower: *low as i32 });
    let array = match total {
        0 => Array::default(),
        _ => Array { dimensions: dimensions.collect(), items: vec![Datum::from(a.values[0]); total as usize] },
    };
    Ok(if lengths.is_empty() { Array::default() } else { array }.to_datum(element(a.result)))
}

fn trimmed(a: &Arguments<'_>, mut array: Array) -> Result_ {
    let (count, have) = (a.int(1), array.dimensions.first().map_or(0, |d| i64::from(d.length)));
    if !(0..=have).contains(&count) {
        return Err(SqlError::new("2202E", format!("number of elements to trim must be between 0 and {have}")));
    }
    let row = if have == 0 { 0 } else { array.items.len() / have as usize };
    array.items.truncate(array.items.len() - row * count as usize);
    match array.dimensions.first_mut() {
        Some(first) if count < have => first.length -= count as u32,
        _ => array.dimensions.clear(),
    }
    // It is a slice, and those begin at 1.
    array.dimensions.iter_mut().for_each(|dimension| dimension.lower = 1);
    Ok(array.to_datum(element(a.types[0])))
}

fn to_string(a: &Arguments<'_>) -> Result_ {
    if a.is_null(0) || a.is_null(1) {
        return Ok(Datum::Null);
    }
    let null = if a.len() == 3 && !a.is_null(2) { Some(a.bytes(2)) } else { None };
    let of = element(a.types[0]);
    let mut out = Vec::new();
    let mut first = true;
    for item in &a.array(0).items {
        if *item == Datum::Null && null.is_none() {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.extend_from_slice(a.bytes(1));
        }
        match item {
            Datum::Null => out.extend_from_slice(null.unwrap_or_default()),
            item => texts::write(of, &item.as_value(), a.clock, &mut out),
        }
    }
    Ok(text(out))
}
