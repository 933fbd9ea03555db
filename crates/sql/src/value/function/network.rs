//! Functions and operators of addresses: of networks, and of the cards in them.

use super::arguments::{Arguments, text};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::network::{Mac, Network, combined};
use freshet_engine::schema::{NetworkKind, Type};

type Result = std::result::Result<Datum, SqlError>;

impl Arguments<'_> {
    fn network(&self, at: usize) -> Network {
        Network::from_stored(self.bytes(at))
    }

    fn both(&self) -> (Network, Network) {
        (self.network(0), self.network(1))
    }
}

fn bool(value: bool) -> Result {
    Ok(Datum::Bool(value))
}

pub(super) fn is_within(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(left.is_within(right))
}

pub(super) fn is_within_or_equal(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(left.is_within_or_equal(right))
}

pub(super) fn contains(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(right.is_within(left))
}

pub(super) fn contains_or_equals(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(right.is_within_or_equal(left))
}

pub(super) fn overlaps(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(left.overlaps(right))
}

pub(super) fn inet_same_family(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    bool(left.is_same_family(right))
}

pub(super) fn not(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).not().to_datum())
}

pub(super) fn and(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    Ok(left.combined(right, "AND", |a, b| a & b)?.to_datum())
}

pub(super) fn or(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    Ok(left.combined(right, "OR", |a, b| a | b)?.to_datum())
}

/// The address stands on either side.
pub(super) fn plus(a: &Arguments<'_>) -> Result {
    let (address, count) = if a.types[0] == Type::Int8 { (1, 0) } else { (0, 1) };
    Ok(a.network(address).plus(a.int(count).into())?.to_datum())
}

pub(super) fn minus(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).plus(-i128::from(a.int(1)))?.to_datum())
}

pub(super) fn apart(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    left.minus(right).map(Datum::Int)
}

pub(super) fn abbrev(a: &Arguments<'_>) -> Result {
    let mut out = Vec::new();
    match a.types[0] {
        Type::Network(NetworkKind::Cidr) => a.network(0).write_short(&mut out),
        _ => a.network(0).write(NetworkKind::Inet, &mut out),
    }
    Ok(text(out))
}

pub(super) fn broadcast(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).broadcast().to_datum())
}

pub(super) fn family(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(a.network(0).family()))
}

pub(super) fn host(a: &Arguments<'_>) -> Result {
    let mut out = Vec::new();
    a.network(0).write_host(&mut out);
    Ok(text(out))
}

pub(super) fn hostmask(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).hostmask().to_datum())
}

pub(super) fn inet_merge(a: &Arguments<'_>) -> Result {
    let (left, right) = a.both();
    Ok(left.merged(right)?.to_datum())
}

pub(super) fn masklen(a: &Arguments<'_>) -> Result {
    Ok(Datum::Int(a.network(0).bits().into()))
}

pub(super) fn netmask(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).netmask().to_datum())
}

pub(super) fn network(a: &Arguments<'_>) -> Result {
    Ok(a.network(0).network().to_datum())
}

/// A cidr has nothing beyond its mask.
pub(super) fn set_masklen(a: &Arguments<'_>) -> Result {
    let masked = a.network(0).with_bits(a.int(1))?;
    Ok(if a.result == Type::Network(NetworkKind::Cidr) { masked.network() } else { masked }.to_datum())
}

pub(super) fn not_mac(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bytes(a.bytes(0).iter().map(|byte| !byte).collect()))
}

pub(super) fn and_mac(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bytes(combined(a.bytes(0), a.bytes(1), |a, b| a & b)))
}

pub(super) fn or_mac(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bytes(combined(a.bytes(0), a.bytes(1), |a, b| a | b)))
}

/// The maker's three bytes and zeros.
pub(super) fn trunc_mac(a: &Arguments<'_>) -> Result {
    let bytes = a.bytes(0).iter().enumerate().map(|(at, byte)| if at < 3 { *byte } else { 0 });
    Ok(Datum::Bytes(bytes.collect()))
}

pub(super) fn macaddr8_set7bit(a: &Arguments<'_>) -> Result {
    Mac::from_stored(a.bytes(0)).with_seventh_bit().to_datum(NetworkKind::Mac8)
}
