//! The hash functions of PostgreSQL 15's types: applications keep what they give, as keys of advisory locks and shards.
//!
//! The function is Bob Jenkins's lookup3 of 2006, read in little-endian words.

use super::arguments::Arguments;
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::network::Network;

type Result = std::result::Result<Datum, SqlError>;

/// The three words of a hash on its way.
struct Words {
    a: u32,
    b: u32,
    c: u32,
}

impl Words {
    fn new(length: u32, seed: u64) -> Words {
        let start = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
        let mut words = Words { a: start, b: start, c: start };
        if seed != 0 {
            words.a = words.a.wrapping_add((seed >> 32) as u32);
            words.b = words.b.wrapping_add(seed as u32);
            words.mix();
        }
        words
    }

    fn mix(&mut self) {
        let Words { a, b, c } = self;
        let step = |x: &mut u32, y: &mut u32, z: &u32, turn: u32| {
            *x = x.wrapping_sub(*y) ^ y.rotate_left(turn);
            *y = y.wrapping_add(*z);
        };
        step(a, c, b, 4);
        step(b, a, c, 6);
        step(c, b, a, 8);
        step(a, c, b, 16);
        step(b, a, c, 19);
        step(c, b, a, 4);
    }

    fn finish(mut self) -> u64 {
        let Words { a, b, c } = &mut self;
        let step = |x: &mut u32, y: &u32, turn: u32| *x = (*x ^ *y).wrapping_sub(y.rotate_left(turn));
        step(c, b, 14);
        step(a, c, 11);
        step(b, a, 25);
        step(c, b, 16);
        step(a, c, 4);
        step(b, a, 14);
        step(c, b, 24);
        u64::from(self.b) << 32 | u64::from(self.c)
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut words = Words::new(bytes.len() as u32, seed);
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        words.a = words.a.wrapping_add(word(&chunk[..4]));
        words.b = words.b.wrapping_add(word(&chunk[4..8]));
        words.c = words.c.wrapping_add(word(&chunk[8..]));
        words.mix();
    }
    let rest = chunks.remainder();
    let part = |from: usize| word(&rest[from.min(rest.len())..(from + 4).min(rest.len())]);
    words.a = words.a.wrapping_add(part(0));
    words.b = words.b.wrapping_add(part(4));
    // The lowest byte of the third word stands for the length.
    words.c = words.c.wrapping_add(part(8) << 8);
    words.finish()
}

fn hash_word(value: u32, seed: u64) -> u64 {
    let mut words = Words::new(4, seed);
    words.a = words.a.wrapping_add(value);
    words.finish()
}

/// Small integers hash alike in every width.
fn of_integer(value: i64) -> u32 {
    let high = (value >> 32) as u32;
    value as u32 ^ if value < 0 { !high } else { high }
}

/// A hash of 32 bits, or of 64 with a second argument, the seed.
fn answer(a: &Arguments<'_>, hash: impl Fn(u64) -> u64) -> Result {
    Ok(Datum::Int(match a.len() {
        1 => i64::from(hash(0) as i32),
        _ => hash(a.int(1) as u64) as i64,
    }))
}

pub(super) fn of_bytes(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_bytes(a.bytes(0), seed))
}

pub(super) fn of_padded(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_bytes(a.text(0).trim_end_matches(' ').as_bytes(), seed))
}

pub(super) fn of_int(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_word(of_integer(a.int(0)), seed))
}

pub(super) fn of_oid(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_word(a.int(0) as u32, seed))
}

/// A float of 4 bytes hashes as the same number in 8; both zeros, and all NaNs, alike.
pub(super) fn of_float(a: &Arguments<'_>) -> Result {
    let value = a.float(0);
    answer(a, |seed| match value {
        0.0 if a.len() == 1 => 0,
        0.0 => seed,
        _ => hash_bytes(&if value.is_nan() { f64::NAN } else { value }.to_ne_bytes(), seed),
    })
}

pub(super) fn of_uuid(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_bytes(&a.uuid(0).to_be_bytes(), seed))
}

pub(super) fn of_network(a: &Arguments<'_>) -> Result {
    answer(a, |seed| hash_bytes(&Network::from_stored(a.bytes(0)).hashed(), seed))
}
