//! What is an array? Elements of one scalar type in up to six dimensions, each with a lower bound of its own.
//!
//! # Stored form
//!
//! | part | bytes |
//! |---|---|
//! | each element | `01` and its value as in [`super::ordered`], `02` for null |
//! | end | `00` |
//! | dimensions | count 1; each: length 4, lower bound 4 with its sign inverted |
//! | what orders nothing | see [`super::ordered`] |
//!
//! So arrays compare by their elements, then by how many there are, then by their dimensions, nulls last, as PostgreSQL compares them.

mod text;

pub(crate) use text::{read, write};

use super::ordered::{Ordered, Taking};
use super::zone::Clock;
use super::{Datum, binary, fault, pgtype};
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};

/// PostgreSQL's limit.
pub(crate) const DIMENSIONS_MAX: usize = 6;

const NULL: u8 = 2;
const VALUE: u8 = 1;
const END: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dimension {
    pub length: u32,
    pub lower: i32,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Array {
    /// None: no elements.
    pub dimensions: Vec<Dimension>,
    /// The last dimension changes fastest.
    pub items: Vec<Datum>,
}

impl Array {
    /// One dimension that begins at 1.
    pub fn of(items: Vec<Datum>) -> Array {
        if items.is_empty() {
            return Array::default();
        }
        Array { dimensions: vec![Dimension { length: items.len() as u32, lower: 1 }], items }
    }

    pub fn to_datum(&self, element: Type) -> Datum {
        let mut out = Ordered::default();
        for item in &self.items {
            match item {
                Datum::Null => out.key.push(NULL),
                item => {
                    out.key.push(VALUE);
                    out.put(element, &item.as_value());
                }
            }
        }
        out.key.extend_from_slice(&[END, self.dimensions.len() as u8]);
        for dimension in &self.dimensions {
            out.key.extend_from_slice(&dimension.length.to_be_bytes());
            out.key.extend_from_slice(&((dimension.lower as u32) ^ 1 << 31).to_be_bytes());
        }
        Datum::Bytes(out.finish())
    }

    pub fn from_stored(element: Type, stored: &[u8]) -> Array {
        let mut taking = Taking::of(stored);
        let mut items = Vec::new();
        loop {
            match taking.byte() {
                END => break,
                NULL => items.push(Datum::Null),
                _ => items.push(taking.datum(element)),
            }
        }
        let count = taking.byte();
        let dimension = |_| Dimension {
            length: u32::from_be_bytes(taking.chunk()),
            lower: (u32::from_be_bytes(taking.chunk()) ^ 1 << 31) as i32,
        };
        Array { dimensions: (0..count).map(dimension).collect(), items }
    }

    /// The element at these subscripts, one for each dimension.
    pub fn at(&self, subscripts: &[i64]) -> Option<&Datum> {
        if subscripts.len() != self.dimensions.len() || subscripts.is_empty() {
            return None;
        }
        self.items.get(self.place(subscripts)?)
    }

    fn place(&self, subscripts: &[i64]) -> Option<usize> {
        let mut place = 0;
        for (dimension, &subscript) in self.dimensions.iter().zip(subscripts) {
            let at = usize::try_from(subscript - i64::from(dimension.lower)).ok()?;
            if at >= dimension.length as usize {
                return None;
            }
            place = place * dimension.length as usize + at;
        }
        Some(place)
    }

    /// The part within these bounds, of dimensions that begin at 1; what has no bounds is whole.
    pub fn slice(&self, bounds: &[(Option<i64>, Option<i64>)]) -> Array {
        if bounds.len() > self.dimensions.len() {
            return Array::default();
        }
        let mut ranges = Vec::with_capacity(self.dimensions.len());
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let (first, last) =
                (i64::from(dimension.lower), i64::from(dimension.lower) + i64::from(dimension.length) - 1);
            let (low, high) = bounds.get(i).copied().unwrap_or((None, None));
            let (low, high) = (low.unwrap_or(first).max(first), high.unwrap_or(last).min(last));
            if low > high {
                return Array::default();
            }
            ranges.push(((low - first) as usize, (high - first) as usize));
        }
        let mut items = Vec::new();
        self.gather(&ranges, 0, 0, &mut items);
        let dimensions =
            ranges.iter().map(|(low, high)| Dimension { length: (high - low + 1) as u32, lower: 1 }).collect();
        Array { dimensions, items }
    }

    fn gather(&self, ranges: &[(usize, usize)], depth: usize, place: usize, items: &mut Vec<Datum>) {
        if depth == ranges.len() {
            items.push(self.items[place].clone());
            return;
        }
        let (low, high) = ranges[depth];
        for at in low..=high {
            self.gather(ranges, depth + 1, place * self.dimensions[depth].length as usize + at, items);
        }
    }

    /// One array of arrays with equal dimensions.
    pub fn nested(parts: Vec<Array>) -> Result<Array, SqlError> {
        let mismatch =
            || SqlError::new("2202E", "multidimensional arrays must have array expressions with matching dimensions");
        let count = parts.len() as u32;
        let Some(first) = parts.first() else {
            return Ok(Array::default());
        };
        let inner = first.dimensions.clone();
        if inner.is_empty() {
            return if parts.iter().all(|p| p.dimensions.is_empty()) { Ok(Array::default()) } else { Err(mismatch()) };
        }
        if parts.iter().any(|p| p.dimensions != inner) {
            return Err(mismatch());
        }
        check_dimensions(inner.len() + 1)?;
        let mut dimensions = vec![Dimension { length: count, lower: 1 }];
        dimensions.extend(inner);
        Ok(Array { dimensions, items: parts.into_iter().flat_map(|p| p.items).collect() })
    }

    /// Puts a value at the subscripts of an array with as many dimensions, or with none.
    pub fn set_within(&mut self, subscripts: &[i64], value: Datum) -> Result<(), SqlError> {
        if self.dimensions.is_empty() {
            check_dimensions(subscripts.len())?;
            self.dimensions = subscripts.iter().map(|&lower| Dimension { length: 1, lower: lower as i32 }).collect();
            self.items = vec![value];
            return Ok(());
        }
        if subscripts.len() != self.dimensions.len() {
            return Err(SqlError::new("2202E", "wrong number of array subscripts"));
        }
        let place = self.place(subscripts).ok_or_else(|| SqlError::new("2202E", "array subscript out of range"))?;
        self.items[place] = value;
        Ok(())
    }

    /// Puts the items of another array within these bounds, which of dimensions that are there may be open.
    pub fn set_slice(&mut self, bounds: &[(Option<i64>, Option<i64>)], other: Array) -> Result<(), SqlError> {
        let too_small = || SqlError::new("2202E", "source array too small");
        check_dimensions(bounds.len())?;
        if self.dimensions.is_empty() {
            return self.begin_with(bounds, other);
        }
        if self.dimensions.len() < bounds.len() {
            return Err(SqlError::new("2202E", "wrong number of array subscripts"));
        }
        let mut ranges = Vec::with_capacity(self.dimensions.len());
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let first = i64::from(dimension.lower);
            let last = first + i64::from(dimension.length) - 1;
            let (low, high) = bounds.get(i).copied().unwrap_or((None, None));
            let (low, high) = (low.unwrap_or(first), high.unwrap_or(last));
            if low > high {
                return Err(SqlError::new("2202E", "upper bound cannot be less than lower bound"));
            }
            if self.dimensions.len() > 1 && (low < first || high > last) {
                return Err(SqlError::new("2202E", "array subscript out of range"));
            }
            ranges.push((low, high));
        }
        let size = ranges.iter().fold(1i64, |size, (low, high)| size.saturating_mul(high - low + 1));
        if (other.items.len() as i64) < size {
            return Err(too_small());
        }
        let mut at: Vec<i64> = ranges.iter().map(|(low, _)| *low).collect();
        for item in other.items.into_iter().take(size as usize) {
            match at.as_slice() {
                [one] => self.set(*one, item)?,
                several => self.set_within(several, item)?,
            }
            for (place, (low, high)) in at.iter_mut().zip(&ranges).rev() {
                *place += 1;
                if *place <= *high {
                    break;
                }
                *place = *low;
            }
        }
        Ok(())
    }

    /// The same of an array without dimensions, which gets those of the bounds.
    fn begin_with(&mut self, bounds: &[(Option<i64>, Option<i64>)], other: Array) -> Result<(), SqlError> {
        let too_large = || SqlError::new("54000", "array size exceeds the maximum allowed (134217727)");
        let mut dimensions = Vec::with_capacity(bounds.len());
        for bound in bounds {
            let (Some(low), Some(high)) = *bound else {
                let detail =
                    "When assigning to a slice of an empty array value, slice boundaries must be fully specified.";
                let message = "array slice subscript must provide both boundaries";
                return Err(SqlError::new("2202E", message).with_detail(detail));
            };
            let length = u32::try_from(high - low + 1).ok().filter(|&n| n < 1 << 27).ok_or_else(too_large)?;
            dimensions.push(Dimension { length, lower: low as i32 });
        }
        let size = dimensions.iter().fold(1u64, |size, dimension| size.saturating_mul(dimension.length.into()));
        if (other.items.len() as u64) < size {
            return Err(SqlError::new("2202E", "source array too small"));
        }
        if size > 0 {
            *self = Array { dimensions, items: other.items.into_iter().take(size as usize).collect() };
        }
        Ok(())
    }

    /// Puts a value at a subscript of an array with one dimension, or with none; what lies between is null.
    pub fn set(&mut self, subscript: i64, value: Datum) -> Result<(), SqlError> {
        let lower = match self.dimensions.as_slice() {
            [] => subscript,
            [one] => i64::from(one.lower),
            _ => return Err(SqlError::new("2202E", "wrong number of array subscripts")),
        };
        let out_of_range = || SqlError::new("54000", "array size exceeds the maximum allowed (134217727)");
        if subscript < lower {
            let missing = usize::try_from(lower - subscript).ok().filter(|&m| m < 1 << 27).ok_or_else(out_of_range)?;
            self.items.splice(0..0, std::iter::repeat_n(Datum::Null, missing));
        }
        let lower = lower.min(subscript);
        let at = usize::try_from(subscript - lower).ok().filter(|&at| at < 1 << 27).ok_or_else(out_of_range)?;
        if at >= self.items.len() {
            self.items.resize(at + 1, Datum::Null);
        }
        self.items[at] = value;
        self.dimensions = vec![Dimension { length: self.items.len() as u32, lower: lower as i32 }];
        Ok(())
    }
}

pub(crate) fn check_dimensions(count: usize) -> Result<(), SqlError> {
    if count > DIMENSIONS_MAX {
        let message = format!("number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})");
        return Err(SqlError::new("54000", message));
    }
    Ok(())
}

/// The receive function.
pub(crate) fn receive(element: Type, bytes: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    let mut rest = bytes;
    let mut word = || -> Result<i32, SqlError> {
        let (word, after) = rest.split_first_chunk::<4>().ok_or_else(fault::binary_too_short)?;
        rest = after;
        Ok(i32::from_be_bytes(*word))
    };
    let (count, _flags, oid) = (word()?, word()?, word()?);
    if oid as u32 != pgtype::describe(element).oid || !(0..=DIMENSIONS_MAX as i32).contains(&count) {
        return Err(SqlError::new("42804", "wrong element type"));
    }
    let mut dimensions = Vec::with_capacity(count as usize);
    let mut total: u64 = u64::from(count > 0);
    for _ in 0..count {
        let (length, lower) = (word()?, word()?);
        let length = u32::try_from(length).map_err(|_| fault::binary_invalid())?;
        total = total.saturating_mul(length.into());
        dimensions.push(Dimension { length, lower });
    }
    // Each element has a length of four bytes.
    if total > bytes.len() as u64 / 4 {
        return Err(fault::binary_too_short());
    }
    let mut items = Vec::with_capacity(total as usize);
    for _ in 0..total {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(fault::binary_too_short)?;
        rest = after;
        items.push(match i32::from_be_bytes(*length) {
            -1 => Datum::Null,
            length => {
                let length = usize::try_from(length).map_err(|_| fault::binary_invalid())?;
                let (item, after) = rest.split_at_checked(length).ok_or_else(fault::binary_too_short)?;
                rest = after;
                binary::read(element, item, clock)?
            }
        });
    }
    if items.is_empty() {
        dimensions.clear();
    }
    Ok(Array { dimensions, items }.to_datum(element))
}

/// The send function.
pub(crate) fn send(element: Type, stored: &[u8], clock: &Clock, out: &mut Vec<u8>) {
    let Array { dimensions, items } = Array::from_stored(element, stored);
    let nulls = items.contains(&Datum::Null);
    let oid = pgtype::describe(element).oid;
    for word in [dimensions.len() as u32, u32::from(nulls), oid] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for dimension in &dimensions {
        out.extend_from_slice(&dimension.length.to_be_bytes());
        out.extend_from_slice(&dimension.lower.to_be_bytes());
    }
    for item in &items {
        let start = out.len();
        out.extend_from_slice(&(-1i32).to_be_bytes());
        if *item != Datum::Null {
            binary::write(element, &item.as_value(), clock, out);
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// The array in a stored value.
pub(crate) fn array_of(ty: Type, value: &Value<'_>) -> Array {
    match (ty, value) {
        (Type::Array(element), Value::Bytes(stored)) => Array::from_stored(*element, stored),
        _ => panic!("invariant: a value has the form of its type: {ty:?}, {value:?}"),
    }
}
