//! How do values lie in bytes that compare as the values do, one behind the other? Parts of an array's or a jsonb's stored form.
//!
//! | value | bytes |
//! |---|---|
//! | boolean | 0 or 1 |
//! | integers, dates, times | 8, big-endian, the sign inverted |
//! | floats | 8: of a negative one all bits inverted, else the sign; NaN above all |
//! | uuid, interval | 16 |
//! | text, json | the characters, then `00` |
//! | numeric, bytea, jsonb, rows | the bytes, `00` as `00 ff`, then `00 00` |
//!
//! What of a value orders nothing (a numeric's display scale, an interval's months and days, a zero's sign) is kept apart, in the order of the values.
//! The whole ends with the length of that part in 4 bytes, big-endian: [`freshet_engine::schema::Type::key_bytes`] leaves both out.

use super::Datum;
use freshet_engine::schema::{SystemKind, Type, Value};

/// A stored form in the making.
#[derive(Default)]
pub(crate) struct Ordered {
    pub key: Vec<u8>,
    pub unordered: Vec<u8>,
}

impl Ordered {
    pub fn finish(mut self) -> Box<[u8]> {
        let length = self.unordered.len() as u32;
        self.key.extend_from_slice(&self.unordered);
        self.key.extend_from_slice(&length.to_be_bytes());
        self.key.into()
    }

    pub fn put_text(&mut self, text: &[u8]) {
        self.key.extend_from_slice(text);
        self.key.push(0);
    }

    pub fn put_escaped(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.key.push(byte);
            if byte == 0 {
                self.key.push(0xff);
            }
        }
        self.key.extend_from_slice(&[0, 0]);
    }

    /// A stored numeric.
    pub fn put_numeric(&mut self, stored: &[u8]) {
        let (number, scale) = stored.split_at(stored.len() - 2);
        self.put_escaped(number);
        self.unordered.extend_from_slice(scale);
    }

    /// A value that is not null.
    pub fn put(&mut self, ty: Type, value: &Value<'_>) {
        match (ty.unrounded(), *value) {
            (_, Value::Bool(v)) => self.key.push(u8::from(v)),
            (_, Value::Int(v)) => self.key.extend_from_slice(&((v as u64) ^ 1 << 63).to_be_bytes()),
            (_, Value::Float(v)) => {
                self.key.extend_from_slice(&ordered_float(v).to_be_bytes());
                if v == 0.0 {
                    self.unordered.push(u8::from(v.is_sign_negative()));
                }
            }
            (_, Value::Uuid(v)) => self.key.extend_from_slice(&v.to_be_bytes()),
            (Type::Numeric { .. }, Value::Bytes(v)) => self.put_numeric(v),
            (Type::Interval, Value::Bytes(v)) => {
                let (key, rest) = v.split_at(16);
                self.key.extend_from_slice(key);
                self.unordered.extend_from_slice(rest);
            }
            (Type::Jsonb, Value::Bytes(v)) => {
                let key = ty.key_bytes(v);
                self.put_escaped(key);
                self.unordered.extend_from_slice(&((v.len() - key.len()) as u32).to_be_bytes());
                self.unordered.extend_from_slice(&v[key.len()..]);
            }
            (Type::Bytea | Type::Network(_) | Type::System(SystemKind::Record), Value::Bytes(v)) => self.put_escaped(v),
            (_, Value::Bytes(v)) => self.put_text(v),
            (ty, other) => panic!("invariant: an element has the form of its type: {ty:?}, {other:?}"),
        }
    }
}

fn ordered_float(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { (value + 0.0).to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// Reads a stored form from its start.
pub(crate) struct Taking<'a> {
    pub key: &'a [u8],
    unordered: &'a [u8],
}

impl<'a> Taking<'a> {
    pub fn of(stored: &'a [u8]) -> Taking<'a> {
        let (rest, length) = stored.split_last_chunk::<4>().expect("invariant: a stored form ends with a length");
        let (key, unordered) = rest.split_at(rest.len() - u32::from_be_bytes(*length) as usize);
        Taking { key, unordered }
    }

    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.key.split_at(count);
        self.key = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    pub fn chunk<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).try_into().expect("a slice of N bytes was taken")
    }

    fn unordered(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.unordered.split_at(count);
        self.unordered = rest;
        taken
    }

    pub fn text(&mut self) -> &'a [u8] {
        let end = self.key.iter().position(|b| *b == 0).expect("invariant: a text ends with a zero");
        let text = self.bytes(end);
        self.byte();
        text
    }

    pub fn escaped(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            match self.byte() {
                0 if self.byte() == 0 => return out,
                byte => out.push(byte),
            }
        }
    }

    pub fn numeric(&mut self) -> Box<[u8]> {
        let mut stored = self.escaped();
        stored.extend_from_slice(self.unordered(2));
        stored.into()
    }

    /// What was stored by earlier releases tells no zero's sign.
    fn zero(&mut self) -> f64 {
        if !self.unordered.is_empty() && self.unordered(1) == [1] { -0.0 } else { 0.0 }
    }

    pub fn datum(&mut self, ty: Type) -> Datum {
        match ty.unrounded() {
            Type::Bool => Datum::Bool(self.byte() == 1),
            Type::Float4 | Type::Float8 => {
                let value = float_of(u64::from_be_bytes(self.chunk()));
                Datum::Float(if value == 0.0 { self.zero() } else { value })
            }
            Type::Uuid => Datum::Uuid(u128::from_be_bytes(self.chunk())),
            Type::Numeric { .. } => Datum::Bytes(self.numeric()),
            Type::Interval => {
                let mut stored = self.bytes(16).to_vec();
                stored.extend_from_slice(self.unordered(8));
                Datum::Bytes(stored.into())
            }
            Type::Jsonb => {
                let mut stored = self.escaped();
                let length = self.unordered(4).try_into().expect("four bytes were taken");
                stored.extend_from_slice(self.unordered(u32::from_be_bytes(length) as usize));
                Datum::Bytes(stored.into())
            }
            Type::Bytea | Type::Network(_) | Type::System(SystemKind::Record) => Datum::Bytes(self.escaped().into()),
            Type::Text
            | Type::Varchar(_)
            | Type::Char(_)
            | Type::Json
            | Type::Name
            | Type::CharByte
            | Type::System(_) => Datum::Bytes(self.text().into()),
            _ => Datum::Int((u64::from_be_bytes(self.chunk()) ^ 1 << 63) as i64),
        }
    }
}
