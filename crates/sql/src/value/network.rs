//! How are addresses of networks read, written and stored, and what is computed with them?
//!
//! | type | stored, in the order of its bytes |
//! |---|---|
//! | inet, cidr | family: 2 is IPv4, 3 is IPv6; the network, 4 or 16 bytes; bits of its mask, 1; the whole address, where it is not the network's own |
//! | macaddr | its 6 bytes |
//! | macaddr8 | its 8 bytes |
//!
//! PostgreSQL compares two addresses by the bits that both masks cover, then by the masks' lengths, then whole. Of two networks the one whose
//! mask is shorter has zeros where the other goes on, so it comes first, by a bit of the other's or by its length: the bytes' order is PostgreSQL's.
//! An address of a host alone, the usual one, takes 6 or 18 bytes.
//!
//! Texts are read as PostgreSQL reads them: BIND's `inet_net_pton` and `inet_cidr_pton` with their liberties.

mod mac;
#[cfg(test)]
mod tests;

pub(crate) use mac::{Mac, combined};

use super::{Datum, fault, pgtype};
use crate::error::SqlError;
use freshet_engine::schema::{NetworkKind, Type};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

/// PostgreSQL's codes of the families.
const V4: u8 = 2;
const V6: u8 = 3;

/// An inet or cidr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    is_v6: bool,
    /// Of the mask.
    bits: u8,
    /// Of IPv4 the lowest 32 bits.
    address: u128,
}

impl Network {
    /// The address of a host.
    pub fn of(address: IpAddr) -> Network {
        match address {
            IpAddr::V4(address) => Network { is_v6: false, bits: 32, address: address.to_bits().into() },
            IpAddr::V6(address) => Network { is_v6: true, bits: 128, address: address.to_bits() },
        }
    }

    fn width(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    fn byte_width(self) -> usize {
        usize::from(self.width() / 8)
    }

    /// 4 or 6.
    pub fn family(self) -> i64 {
        if self.is_v6 { 6 } else { 4 }
    }

    pub fn bits(self) -> u8 {
        self.bits
    }

    fn ones(self) -> u128 {
        if self.is_v6 { u128::MAX } else { u32::MAX.into() }
    }

    fn host_mask(self) -> u128 {
        self.ones().checked_shr(self.bits.into()).unwrap_or(0)
    }

    fn with_address(self, address: u128) -> Network {
        Network { address, bits: self.width(), ..self }
    }

    // ---- stored

    pub fn to_stored(self) -> Box<[u8]> {
        let mut stored = Vec::with_capacity(2 + 2 * self.byte_width());
        stored.push(if self.is_v6 { V6 } else { V4 });
        let network = self.network();
        network.push_address(&mut stored);
        stored.push(self.bits);
        if network.address != self.address {
            self.push_address(&mut stored);
        }
        stored.into()
    }

    pub fn to_datum(self) -> Datum {
        Datum::Bytes(self.to_stored())
    }

    pub fn from_stored(stored: &[u8]) -> Network {
        let is_v6 = stored.first() == Some(&V6);
        let width = if is_v6 { 16 } else { 4 };
        let (network, rest) = stored[1..].split_at(width);
        let (bits, host) = rest.split_first().expect("invariant: a stored address has the bits of its mask");
        let address = if host.is_empty() { network } else { host };
        Network { is_v6, bits: *bits, address: number_of(address) }
    }

    fn push_address(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.address.to_be_bytes()[16 - self.byte_width()..]);
    }

    // ---- read

    pub fn read(kind: NetworkKind, text: &[u8]) -> Result<Network, SqlError> {
        let is_cidr = kind == NetworkKind::Cidr;
        let read = match text {
            _ if text.contains(&b':') => read_v6(text),
            _ if is_cidr => read_cidr_v4(text),
            _ => read_inet_v4(text),
        };
        let network = read.ok_or_else(|| fault::invalid_text(pgtype::name(Type::Network(kind)), text))?;
        if is_cidr && network.network() != network {
            let message = format!("invalid cidr value: \"{}\"", String::from_utf8_lossy(text));
            return Err(SqlError::new("22P02", message).with_detail("Value has bits set to right of mask."));
        }
        Ok(network)
    }

    /// Family, bits, whether it is a cidr, the address's length and the address.
    pub fn receive(kind: NetworkKind, bytes: &[u8]) -> Result<Network, SqlError> {
        let name = pgtype::name(Type::Network(kind));
        let invalid = |what: &str| SqlError::new("22P03", format!("invalid {what} in external \"{name}\" value"));
        let [family, bits, _, length, address @ ..] = bytes else { return Err(fault::binary_too_short()) };
        let is_v6 = match *family {
            V4 => false,
            V6 => true,
            _ => return Err(invalid("address family")),
        };
        let width = if is_v6 { 16 } else { 4 };
        if usize::from(*bits) > width * 8 {
            return Err(invalid("bits"));
        }
        if usize::from(*length) != width {
            return Err(invalid("length"));
        }
        if address.len() != width {
            return Err(if address.len() < width { fault::binary_too_short() } else { fault::binary_invalid() });
        }
        let network = Network { is_v6, bits: *bits, address: number_of(address) };
        if kind == NetworkKind::Cidr && network.network() != network {
            let error = SqlError::new("22P03", "invalid external \"cidr\" value");
            return Err(error.with_detail("Value has bits set to right of mask."));
        }
        Ok(network)
    }

    // ---- written

    pub fn write(self, kind: NetworkKind, out: &mut Vec<u8>) {
        self.write_host(out);
        if kind == NetworkKind::Cidr || self.bits != self.width() {
            self.write_bits(out);
        }
    }

    /// The address alone.
    pub fn write_host(self, out: &mut Vec<u8>) {
        match self.is_v6 {
            true => write_v6(self.address, out),
            false => write_v4(self.address as u32, 4, out),
        }
    }

    pub fn write_bits(self, out: &mut Vec<u8>) {
        write!(out, "/{}", self.bits).expect("memory takes all");
    }

    /// A cidr without the bytes that its mask does not reach.
    pub fn write_short(self, out: &mut Vec<u8>) {
        let bytes = usize::from(self.bits.div_ceil(8));
        match self.is_v6 {
            false => write_v4(self.address as u32, bytes.max(1), out),
            true => write_short_v6(self.address, self.bits, out),
        }
        self.write_bits(out);
    }

    pub fn send(self, kind: NetworkKind, out: &mut Vec<u8>) {
        let family = if self.is_v6 { V6 } else { V4 };
        let is_cidr = u8::from(kind == NetworkKind::Cidr);
        out.extend_from_slice(&[family, self.bits, is_cidr, self.byte_width() as u8]);
        self.push_address(out);
    }

    /// What hash functions are asked of: without how long it is.
    pub fn hashed(self) -> Vec<u8> {
        let mut bytes = vec![if self.is_v6 { V6 } else { V4 }, self.bits];
        self.push_address(&mut bytes);
        bytes
    }

    // ---- computed

    /// Without what the mask does not cover.
    pub fn network(self) -> Network {
        Network { address: self.address & !self.host_mask(), ..self }
    }

    pub fn broadcast(self) -> Network {
        Network { address: self.address | self.host_mask(), ..self }
    }

    /// The last address of its network, in their order.
    pub fn last(self) -> Network {
        self.with_address(self.broadcast().address)
    }

    pub fn netmask(self) -> Network {
        self.with_address(self.ones() & !self.host_mask())
    }

    pub fn hostmask(self) -> Network {
        self.with_address(self.host_mask())
    }

    /// With a mask of so many bits; of -1 with all.
    pub fn with_bits(self, bits: i64) -> Result<Network, SqlError> {
        let bits = if bits == -1 { self.width().into() } else { bits };
        match u8::try_from(bits) {
            Ok(bits) if bits <= self.width() => Ok(Network { bits, ..self }),
            _ => Err(SqlError::new("22023", format!("invalid mask length: {bits}"))),
        }
    }

    /// Whether it lies in the other's network, whatever its own mask.
    fn begins_as(self, other: Network, bits: u8) -> bool {
        let shared = Network { bits, ..self };
        self.is_v6 == other.is_v6 && (self.address ^ other.address) & !shared.host_mask() & self.ones() == 0
    }

    pub fn is_within(self, other: Network) -> bool {
        self.bits > other.bits && self.begins_as(other, other.bits)
    }

    pub fn is_within_or_equal(self, other: Network) -> bool {
        self.bits >= other.bits && self.begins_as(other, other.bits)
    }

    pub fn overlaps(self, other: Network) -> bool {
        self.begins_as(other, self.bits.min(other.bits))
    }

    pub fn is_same_family(self, other: Network) -> bool {
        self.is_v6 == other.is_v6
    }

    /// The smallest network that both lie in.
    pub fn merged(self, other: Network) -> Result<Network, SqlError> {
        if !self.is_same_family(other) {
            return Err(SqlError::new("22023", "cannot merge addresses from different families"));
        }
        let differing = (self.address ^ other.address) << (128 - u32::from(self.width()));
        let bits = u32::from(self.bits.min(other.bits)).min(differing.leading_zeros());
        Ok(Network { bits: bits as u8, ..self }.network())
    }

    pub fn not(self) -> Network {
        Network { address: !self.address & self.ones(), ..self }
    }

    /// AND or OR of two of a family, which `name` tells in the error.
    pub fn combined(self, other: Network, name: &str, by: fn(u128, u128) -> u128) -> Result<Network, SqlError> {
        if !self.is_same_family(other) {
            return Err(SqlError::new("22023", format!("cannot {name} inet values of different sizes")));
        }
        Ok(Network { bits: self.bits.max(other.bits), address: by(self.address, other.address), ..self })
    }

    pub fn plus(self, count: i128) -> Result<Network, SqlError> {
        let out_of_range = || SqlError::new("22003", "result is out of range");
        let address = match count >= 0 {
            true => self.address.checked_add(count.unsigned_abs()),
            false => self.address.checked_sub(count.unsigned_abs()),
        };
        let address = address.filter(|address| *address <= self.ones()).ok_or_else(out_of_range)?;
        Ok(Network { address, ..self })
    }

    pub fn minus(self, other: Network) -> Result<i64, SqlError> {
        if !self.is_same_family(other) {
            return Err(SqlError::new("22023", "cannot subtract inet values of different sizes"));
        }
        let apart = self.address.wrapping_sub(other.address) as i128;
        let is_exact = (apart < 0) == (self.address < other.address);
        let out_of_range = || SqlError::new("22003", "result is out of range");
        i64::try_from(apart).ok().filter(|_| is_exact).ok_or_else(out_of_range)
    }
}

fn number_of(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// The digits that the text begins with as a number of this many at most, and what is behind them. `None`: there are none, or it is more.
fn take_number(text: &[u8], most: u32) -> Option<(u32, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    let number = digits.iter().try_fold(0u32, |number, digit| {
        let number = number * 10 + u32::from(digit - b'0');
        (number <= most).then_some(number)
    });
    number.filter(|_| length > 0).map(|number| (number, rest))
}

/// `/24` and nothing behind it; nothing at all is `Some(None)`.
fn take_bits(text: &[u8], most: u32) -> Option<Option<u8>> {
    match text {
        [] => Some(None),
        [b'/', digits @ ..] => match take_number(digits, most)? {
            (bits, []) => Some(Some(bits as u8)),
            _ => None,
        },
        _ => None,
    }
}

/// The bytes of an address of fewer than four, as its first ones.
fn v4(bytes: &[u8], bits: u8) -> Network {
    let mut four = [0; 4];
    four[..bytes.len()].copy_from_slice(bytes);
    Network { is_v6: false, bits, address: u32::from_be_bytes(four).into() }
}

/// Four numbers, or fewer with a mask that reaches no further than they do. A point may stand behind them.
fn read_inet_v4(text: &[u8]) -> Option<Network> {
    let mut bytes = Vec::with_capacity(4);
    let mut rest = text;
    while rest.first().is_some_and(u8::is_ascii_digit) {
        let (number, behind) = take_number(rest, 255)?;
        if bytes.len() == 4 {
            return None;
        }
        bytes.push(number as u8);
        rest = behind;
        match rest.first() {
            None | Some(b'/') => break,
            Some(b'.') => rest = &rest[1..],
            Some(_) => return None,
        }
    }
    if bytes.is_empty() {
        return None;
    }
    let bits = match take_bits(rest, 32)? {
        Some(bits) => bits,
        None if bytes.len() == 4 => 32,
        None => return None,
    };
    (usize::from(bits) / 8 <= bytes.len()).then(|| v4(&bytes, bits))
}

/// One to four numbers, or hexadecimal digits behind `0x`. Without a mask, that of the class to which the first byte belongs, or as many bytes as are written.
fn read_cidr_v4(text: &[u8]) -> Option<Network> {
    let is_hex =
        text.len() > 2 && text[0] == b'0' && text[1].eq_ignore_ascii_case(&b'x') && text[2].is_ascii_hexdigit();
    let (bytes, rest) = if is_hex { take_hex(&text[2..])? } else { take_points(text)? };
    let bits = match take_bits(rest, 32)? {
        Some(bits) => bits,
        None => {
            let class = match bytes[0] {
                240.. => 32,
                224.. => 8,
                192.. => 24,
                128.. => 16,
                _ => 8,
            };
            let bits = (bytes.len() as u8 * 8).max(class);
            if bits == 8 && bytes[0] == 224 { 4 } else { bits }
        }
    };
    Some(v4(&bytes, bits))
}

/// An odd digit at the end is the upper half of a byte.
fn take_hex(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = text.split_at(length);
    let value = |digit: u8| char::from(digit).to_digit(16).expect("it is a hexadecimal digit") as u8;
    let byte = |pair: &[u8]| value(pair[0]) << 4 | pair.get(1).map_or(0, |low| value(*low));
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    (bytes.len() <= 4).then_some((bytes, rest))
}

fn take_points(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut bytes = Vec::with_capacity(4);
    let mut rest = text;
    loop {
        let (number, behind) = take_number(rest, 255)?;
        if bytes.len() == 4 {
            return None;
        }
        bytes.push(number as u8);
        match behind.first() {
            Some(b'.') => rest = &behind[1..],
            _ => return Some((bytes, behind)),
        }
    }
}

fn read_v6(text: &[u8]) -> Option<Network> {
    let slash = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
    let (address, bits) = text.split_at(slash);
    let address: Ipv6Addr = std::str::from_utf8(address).ok()?.parse().ok()?;
    // No zero before another digit.
    if matches!(bits, [b'/', b'0', _, ..]) {
        return None;
    }
    let bits = take_bits(bits, 128)?.unwrap_or(128);
    Some(Network { is_v6: true, bits, address: address.into() })
}

fn write_v4(address: u32, bytes: usize, out: &mut Vec<u8>) {
    for (at, byte) in address.to_be_bytes()[..bytes].iter().enumerate() {
        let point = if at == 0 { "" } else { "." };
        write!(out, "{point}{byte}").expect("memory takes all");
    }
}

/// The first of the longest rows of two or more words that are zero: where it begins and how long it is.
fn longest_zeros(words: &[u16]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < words.len() {
        let length = words[at..].iter().take_while(|word| **word == 0).count();
        if length > best.map_or(1, |(_, length)| length) {
            best = Some((at, length));
        }
        at += length.max(1);
    }
    best
}

fn words_of(address: u128) -> [u16; 8] {
    Ipv6Addr::from(address).segments()
}

fn write_v6(address: u128, out: &mut Vec<u8>) {
    let words = words_of(address);
    let zeros = longest_zeros(&words);
    // An IPv4 address within, as BIND takes it for one.
    let is_v4 = zeros == Some((0, 6)) || zeros == Some((0, 5)) && words[5] == 0xffff;
    let count = if is_v4 { 6 } else { 8 };
    write_words(&words[..count], zeros, out);
    if is_v4 {
        if zeros.is_none_or(|(begin, length)| begin + length < count) {
            out.push(b':');
        }
        write_v4(address as u32, 4, out);
    }
}

/// Words with colons between them, and two for a row of zeros.
fn write_words(words: &[u16], zeros: Option<(usize, usize)>, out: &mut Vec<u8>) {
    let mut at = 0;
    while at < words.len() {
        match zeros {
            Some((begin, length)) if begin == at => {
                out.extend_from_slice(b"::");
                at += length;
            }
            _ => {
                let follows_zeros = zeros.is_some_and(|(begin, length)| begin + length == at);
                if at > 0 && !follows_zeros {
                    out.push(b':');
                }
                write!(out, "{:x}", words[at]).expect("memory takes all");
                at += 1;
            }
        }
    }
}

/// Where BIND's short form takes the longest row of zeros to begin, and how long. A row that is not longer than one before it is not forgotten: what
/// follows later is counted with it.
fn zeros_as_bind_counts(words: &[u16]) -> (usize, usize) {
    let (mut longest, mut row) = ((0, 0), (0, 0));
    for (at, word) in words.iter().enumerate() {
        if *word == 0 {
            row = if row.1 == 0 { (at, 1) } else { (row.0, row.1 + 1) };
        } else if row.1 > longest.1 {
            longest = std::mem::take(&mut row);
        }
    }
    if row.1 > longest.1 { row } else { longest }
}

/// BIND's short form: only the words that the mask reaches, a row of zeros as two colons.
fn write_short_v6(address: u128, bits: u8, out: &mut Vec<u8>) {
    if bits == 0 {
        return out.extend_from_slice(b"::");
    }
    let words = words_of(address);
    let reached = usize::from(bits.div_ceil(16)).max(2);
    let (begin, length) = zeros_as_bind_counts(&words[..reached]);
    let [high, low] = words[7].to_be_bytes();
    let is_v4 = length != reached
        && begin == 0
        && (length == 6 || length == 5 && words[5] == 0xffff || length == 7 && high != 0 && low != 1);
    for (at, word) in words[..reached].iter().enumerate() {
        if length > 0 && (begin..begin + length).contains(&at) {
            if at == begin {
                out.push(b':');
            }
            if at + 1 == reached {
                out.push(b':');
            }
            continue;
        }
        if is_v4 && at > 5 {
            let [high, low] = word.to_be_bytes();
            out.push(if at == 6 { b':' } else { b'.' });
            write!(out, "{high}").expect("memory takes all");
            if at != 7 || bits > 120 {
                write!(out, ".{low}").expect("memory takes all");
            }
        } else {
            if at > 0 {
                out.push(b':');
            }
            write!(out, "{word:x}").expect("memory takes all");
        }
    }
}
