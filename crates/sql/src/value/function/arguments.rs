//! A call's arguments, each in the form of its type.

use crate::error::SqlError;
use crate::value::array::{Array, array_of};
use crate::value::interval::Interval;
use crate::value::json::{self, Json};
use crate::value::numeric::Numeric;
use crate::value::zone::Clock;
use crate::value::{Datum, cast};
use freshet_engine::schema::{Type, Value};

/// A function takes them as its signature says: what it asks for has that form.
pub(super) struct Arguments<'a> {
    pub values: &'a [Value<'a>],
    pub types: &'a [Type],
    pub result: Type,
    pub clock: &'a Clock,
}

const FORM: &str = "invariant: an argument has the form of its type";

impl<'a> Arguments<'a> {
    pub fn is_null(&self, at: usize) -> bool {
        self.values[at].is_null()
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn int(&self, at: usize) -> i64 {
        match self.values[at] {
            Value::Int(v) => v,
            other => panic!("{FORM}: {other:?}"),
        }
    }

    pub fn float(&self, at: usize) -> f64 {
        match self.values[at] {
            Value::Float(v) => v,
            other => panic!("{FORM}: {other:?}"),
        }
    }

    pub fn bool(&self, at: usize) -> bool {
        match self.values[at] {
            Value::Bool(v) => v,
            other => panic!("{FORM}: {other:?}"),
        }
    }

    pub fn uuid(&self, at: usize) -> u128 {
        match self.values[at] {
            Value::Uuid(v) => v,
            other => panic!("{FORM}: {other:?}"),
        }
    }

    pub fn bytes(&self, at: usize) -> &'a [u8] {
        match self.values[at] {
            Value::Bytes(v) => v,
            other => panic!("{FORM}: {other:?}"),
        }
    }

    pub fn text(&self, at: usize) -> &'a str {
        std::str::from_utf8(self.bytes(at)).expect("invariant: stored text is UTF-8")
    }

    pub fn number(&self, at: usize) -> Numeric {
        cast::to_numeric(self.types[at], &self.values[at]).expect(FORM)
    }

    pub fn interval(&self, at: usize) -> Interval {
        Interval::from_stored(self.bytes(at))
    }

    pub fn json(&self, at: usize) -> Result<Json, SqlError> {
        json::json_of(self.types[at], &self.values[at])
    }

    pub fn array(&self, at: usize) -> Array {
        array_of(self.types[at], &self.values[at])
    }

    /// The texts of an array, without its nulls.
    pub fn texts(&self, at: usize) -> Vec<String> {
        let texts = self.array(at).items.into_iter().filter_map(|item| match item {
            Datum::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        });
        texts.collect()
    }
}

pub(super) fn text(value: impl AsRef<[u8]>) -> Datum {
    Datum::Bytes(value.as_ref().into())
}

pub(super) fn numeric(value: &Numeric) -> Datum {
    Datum::Bytes(value.to_stored())
}

pub(super) fn interval(value: Interval) -> Datum {
    Datum::Bytes(value.to_stored())
}
