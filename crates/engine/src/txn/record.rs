//! What a transaction writes to the log: frames of operations.
//!
//! A frame:
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | kind | 1 | [`COMMIT`], [`FRAGMENT`], [`COMMIT_FRAGMENTS`], [`PAGE`] |
//! | cts | 8 | commits: the commit timestamp |
//! | base | varint; 8 | commits: cts minus the base that `prev_cts` are told against; fragments, behind the transaction id: the base itself |
//! | large | 8 + varint + 4 | fragments: transaction id; commits of fragments: transaction id, count, sum of the fragments' CRC32C |
//! | operations | to the end | one composed delta per row |
//!
//! An operation:
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | row id | 5 | page 28, slot 12 |
//! | generation | varint | of the page |
//! | prev_cts | varint | base - prev_cts |
//! | form | varint | 0..: so many changed words follow, each gap varint, mask 1, nonzero bytes; or [`RAW`] |
//!
//! [`RAW`] (record-granular): first word varint, words varint, all their bytes; taken where it is shorter. Words count from the
//! persistent part's first; the cts word is not among them: it is `prev_cts XOR cts` by definition.
//!
//! PAGE: page varint, generation varint, storage varint, container varint, slot words varint, ordinal varint.

use crate::ids::{Cts, PageNo, RowId, StorageId};
use crate::mem::{PAGE_WORDS, PageMeta};

pub(crate) const COMMIT: u8 = 1;
pub(crate) const FRAGMENT: u8 = 2;
pub(crate) const COMMIT_FRAGMENTS: u8 = 3;
pub(crate) const PAGE: u8 = 4;
/// No operation changes so many words.
const RAW: u64 = PAGE_WORDS as u64;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A word that differs, and its XOR.
pub(super) type Changed = (u16, u64);

/// [`put_operation`] of a few words, ascending, the cts word not among them.
pub(super) fn put_changed(out: &mut Vec<u8>, row: RowId, generation: u32, behind: u64, changed: &[Changed]) {
    out.extend_from_slice(&row.0.to_le_bytes()[..5]);
    put_varint(out, u64::from(generation));
    put_varint(out, behind);
    let start = out.len();
    put_varint(out, changed.len() as u64);
    put_masked_words(out, changed.len(), changed.iter().copied());
    let Some(&(first, _)) = changed.first() else {
        return;
    };
    let last = changed.last().map_or(first, |&(last, _)| last);
    let words = usize::from(last - first) + 1;
    if out.len() - start <= 6 + words * 8 {
        return;
    }
    out.truncate(start);
    put_varint(out, RAW);
    put_varint(out, u64::from(first));
    put_varint(out, words as u64);
    let start = out.len();
    out.resize(start + words * 8, 0);
    for &(at, xor) in changed {
        let place = start + usize::from(at - first) * 8;
        out[place..place + 8].copy_from_slice(&xor.to_le_bytes());
    }
}

/// Of each word: how far it is from the one before, a mask of its nonzero bytes, and those. `count` of them at most, ascending.
///
/// An insert has a word for each column, so it is written without a branch on which bytes are zero and without a copy of a length that only
/// the word tells: eight bytes in one go, of which the next word overwrites what is too much.
#[inline]
fn put_masked_words(out: &mut Vec<u8>, count: usize, words: impl Iterator<Item = Changed>) {
    const WORD_BYTES_MAX: usize = GAP_BYTES_MAX + 1 + 8;
    let start = out.len();
    out.resize(start + count * WORD_BYTES_MAX, 0);
    let room = &mut out[start..];
    let (mut end, mut last) = (0, 0);
    for (at, word) in words {
        end += put_gap(&mut room[end..], at - last);
        last = at;
        let nonzero = nonzero_mask(word);
        let rest: &mut [u8; 9] = (&mut room[end..end + 9]).try_into().expect("nine bytes");
        rest[0] = nonzero;
        rest[1..].copy_from_slice(&packed(word, nonzero).to_le_bytes());
        end += 1 + nonzero_bytes(word);
    }
    out.truncate(start + end);
}

/// Words are numbered by 16 bits.
const GAP_BYTES_MAX: usize = 3;

/// A varint.
#[inline]
fn put_gap(room: &mut [u8], gap: u16) -> usize {
    if gap < 0x80 {
        room[0] = gap as u8;
        return 1;
    }
    room[0] = gap as u8 | 0x80;
    if gap < 0x4000 {
        room[1] = (gap >> 7) as u8;
        return 2;
    }
    room[1] = (gap >> 7) as u8 | 0x80;
    room[2] = (gap >> 14) as u8;
    GAP_BYTES_MAX
}

/// The highest bit of each byte that is not zero.
#[inline]
fn nonzero_flags(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    (((word & LOW) + LOW) | word) & !LOW
}

#[inline]
fn nonzero_bytes(word: u64) -> usize {
    ((nonzero_flags(word) >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56) as usize
}

/// A bit for each byte that is not zero: the multiplication brings the lowest bit of byte i to bit 56 + i, and no two bits to one place.
#[inline]
fn nonzero_mask(word: u64) -> u8 {
    ((nonzero_flags(word) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The word's nonzero bytes, the lowest first, and zeros behind them.
#[inline]
fn packed(word: u64, nonzero: u8) -> u64 {
    let zeros_below = nonzero.trailing_zeros().min(7);
    let run = nonzero >> zeros_below;
    // Mostly they lie together: a difference of numbers.
    if run & run.wrapping_add(1) == 0 {
        return word >> (8 * zeros_below);
    }
    packed_bytewise(word, nonzero)
}

#[inline(never)]
fn packed_bytewise(word: u64, nonzero: u8) -> u64 {
    let bytes = (0..8).filter(|byte| nonzero >> byte & 1 == 1).map(|byte| word >> (8 * byte) & 0xff);
    bytes.enumerate().fold(0, |packed, (at, byte)| packed | byte << (8 * at))
}

/// Appends one operation. `delta` holds the XOR of the persistent part, its cts word ignored.
pub(crate) fn put_operation(out: &mut Vec<u8>, row: RowId, generation: u32, behind: u64, delta: &[u64]) {
    out.extend_from_slice(&row.0.to_le_bytes()[..5]);
    put_varint(out, u64::from(generation));
    put_varint(out, behind);
    let start = out.len();
    put_masked(out, delta);
    let Some(first) = delta.iter().skip(1).position(|&w| w != 0).map(|i| i + 1) else {
        return;
    };
    let last = delta.iter().rposition(|&w| w != 0).expect("there is a first");
    let raw_bytes = 6 + (last + 1 - first) * 8;
    if out.len() - start > raw_bytes {
        out.truncate(start);
        put_raw(out, delta, first, last);
    }
}

/// [`put_operation`] of a record in a slot that was never used: the delta is the record. The shorter form is found by counting.
pub(super) fn put_new_record(out: &mut Vec<u8>, row: RowId, generation: u32, behind: u64, record: &[u64]) {
    let words = || record.iter().enumerate().skip(1).filter(|(_, word)| **word != 0);
    // Of each a gap and a mask too, and their number before them; a gap beyond 127 takes a byte more, and leaves out so much that the choice is the same.
    let (mut first, mut last, mut count, mut masked_bytes) = (1, 0, 0, 1);
    for (at, &word) in words() {
        first = if count == 0 { at } else { first };
        last = at;
        count += 1;
        masked_bytes += 2 + nonzero_bytes(word);
    }
    out.extend_from_slice(&row.0.to_le_bytes()[..5]);
    put_varint(out, u64::from(generation));
    put_varint(out, behind);
    if masked_bytes <= 6 + (last + 1 - first) * 8 {
        put_varint(out, count as u64);
        put_masked_words(out, count, words().map(|(at, &word)| (at as u16, word)));
    } else {
        put_raw(out, record, first, last);
    }
}

fn put_raw(out: &mut Vec<u8>, delta: &[u64], first: usize, last: usize) {
    put_varint(out, RAW);
    put_varint(out, first as u64);
    put_varint(out, (last + 1 - first) as u64);
    out.extend_from_slice(crate::mem::bytes_of(&delta[first..=last]));
}

fn put_masked(out: &mut Vec<u8>, delta: &[u64]) {
    let words = || delta.iter().enumerate().skip(1).filter(|(_, word)| **word != 0);
    let changed = words().count();
    put_varint(out, changed as u64);
    put_masked_words(out, changed, words().map(|(at, &word)| (at as u16, word)));
}

pub(super) fn put_page(out: &mut Vec<u8>, page: PageNo, meta: &PageMeta) {
    out.push(PAGE);
    for field in [page.0, meta.generation, meta.storage.0, meta.container.into(), meta.slot_words.into(), meta.ordinal]
    {
        put_varint(out, u64::from(field));
    }
}

/// A frame that is not what its writer writes: the group's CRC was right, so this is a bug or a foreign format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadRecord(pub &'static str);

/// Reads bytes that were checked as a whole and are not trusted in detail.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadRecord("cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, BadRecord> {
        Ok(self.bytes(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32, BadRecord> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("4 bytes")))
    }

    pub fn u64(&mut self) -> Result<u64, BadRecord> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("8 bytes")))
    }

    pub fn varint(&mut self) -> Result<u64, BadRecord> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadRecord("a number is too long"))
    }

    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, BadRecord> {
        T::try_from(self.varint()?).map_err(|_| BadRecord("a number is too large"))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A frame's beginning, with its operations still to be read.
pub(crate) enum Frame<'a> {
    Commit { cts: Cts, base: Cts, operations: Reader<'a> },
    Fragment { txn: u64, base: Cts, operations: Reader<'a> },
    CommitFragments { cts: Cts, base: Cts, txn: u64, count: u64, crc_sum: u32, operations: Reader<'a> },
    Page { page: PageNo, meta: PageMeta },
}

pub(crate) fn read_frame(frame: &[u8]) -> Result<Frame<'_>, BadRecord> {
    let mut reader = Reader(frame);
    Ok(match reader.u8()? {
        COMMIT => {
            let (cts, base) = read_times(&mut reader)?;
            Frame::Commit { cts, base, operations: reader }
        }
        FRAGMENT => {
            let txn = reader.u64()?;
            let base = Cts(reader.u64()?);
            Frame::Fragment { txn, base, operations: reader }
        }
        COMMIT_FRAGMENTS => {
            let (cts, base) = read_times(&mut reader)?;
            let txn = reader.u64()?;
            let count = reader.varint()?;
            let crc_sum = reader.u32()?;
            Frame::CommitFragments { cts, base, txn, count, crc_sum, operations: reader }
        }
        PAGE => {
            let page = PageNo(reader.narrow()?);
            let generation = reader.narrow()?;
            let storage = StorageId(reader.narrow()?);
            let meta = PageMeta {
                generation,
                storage,
                container: reader.narrow()?,
                slot_words: reader.narrow()?,
                ordinal: reader.narrow()?,
            };
            Frame::Page { page, meta }
        }
        _ => return Err(BadRecord("unknown kind of frame")),
    })
}

fn read_times(reader: &mut Reader<'_>) -> Result<(Cts, Cts), BadRecord> {
    let cts = Cts(reader.u64()?);
    let base = cts.0.checked_sub(reader.varint()?).ok_or(BadRecord("a base below zero"))?;
    Ok((cts, Cts(base)))
}

/// One operation's head; its delta follows in the reader and must be consumed by `read_delta`.
pub(crate) struct Operation {
    pub row: RowId,
    pub generation: u32,
    pub prev_cts: Cts,
}

pub(crate) fn read_operation(reader: &mut Reader<'_>, base: Cts) -> Result<Operation, BadRecord> {
    let mut id = [0u8; 8];
    id[..5].copy_from_slice(reader.bytes(5)?);
    let row = RowId(u64::from_le_bytes(id));
    let generation = reader.narrow()?;
    let prev_cts = Cts(base.0.checked_sub(reader.varint()?).ok_or(BadRecord("a predecessor below zero"))?);
    Ok(Operation { row, generation, prev_cts })
}

/// Calls `each` with every changed word's position in the persistent part and its XOR.
pub(crate) fn read_delta(reader: &mut Reader<'_>, mut each: impl FnMut(usize, u64)) -> Result<(), BadRecord> {
    let form = reader.varint()?;
    if form == RAW {
        let first: u16 = reader.narrow()?;
        let count: u16 = reader.narrow()?;
        for (i, bytes) in reader.bytes(usize::from(count) * 8)?.chunks_exact(8).enumerate() {
            each(usize::from(first) + i, u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        }
        return Ok(());
    }
    let mut at = 0usize;
    for _ in 0..form {
        at += usize::from(reader.narrow::<u16>()?);
        let mask = reader.u8()?;
        let mut word = 0u64;
        for byte in (0..8).filter(|b| mask >> b & 1 == 1) {
            word |= u64::from(reader.u8()?) << (byte * 8);
        }
        each(at, word);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(delta: &[u64]) {
        let mut out = Vec::new();
        put_operation(&mut out, RowId(0x12_3456_789a), 77, 1000, delta);
        let mut reader = Reader(&out);
        let operation = read_operation(&mut reader, Cts(5000)).expect("what was written");
        assert_eq!((operation.row, operation.generation, operation.prev_cts), (RowId(0x12_3456_789a), 77, Cts(4000)));
        let mut back = vec![0; delta.len()];
        read_delta(&mut reader, |i, x| back[i] ^= x).expect("what was written");
        assert_eq!(back[1..], delta[1..]);
        let words = delta.iter().enumerate().skip(1).filter(|(_, w)| **w != 0);
        let changed: Vec<Changed> = words.map(|(i, &w)| (i as u16, w)).collect();
        let mut again = Vec::new();
        put_changed(&mut again, RowId(0x12_3456_789a), 77, 1000, &changed);
        assert_eq!(again, out, "both writers choose the same form");
        assert!(reader.is_empty());
    }

    proptest! {
        #[test]
        fn an_operation_reads_back(delta in proptest::collection::vec(prop_oneof![3 => Just(0u64), 1 => any::<u64>(), 1 => 0u64..256], 2..200)) {
            round_trip(&delta);
        }

        #[test]
        fn garbage_is_an_error_or_an_operation_but_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Frame::Commit { base, mut operations, .. }) = read_frame(&bytes) {
                while !operations.is_empty() {
                    let Ok(_) = read_operation(&mut operations, base) else { break };
                    let Ok(()) = read_delta(&mut operations, |_, _| {}) else { break };
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_new_record_reads_back_and_is_no_longer(delta in proptest::collection::vec(prop_oneof![2 => Just(0u64), 1 => any::<u64>(), 1 => 0u64..256], 2..200)) {
            let (mut out, mut other) = (Vec::new(), Vec::new());
            put_new_record(&mut out, RowId(77), 3, 0, &delta);
            put_operation(&mut other, RowId(77), 3, 0, &delta);
            prop_assert!(out.len() <= other.len() + 1);
            let mut reader = Reader(&out);
            read_operation(&mut reader, Cts(0)).expect("what was written");
            let mut back = vec![0; delta.len()];
            read_delta(&mut reader, |i, x| back[i] ^= x).expect("what was written");
            prop_assert_eq!(&back[1..], &delta[1..]);
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_counter_bump_costs_four_bytes_of_delta() {
        let mut delta = vec![0u64; 25];
        delta[9] = 1;
        let mut out = Vec::new();
        put_operation(&mut out, RowId(1), 1, 1, &delta);
        assert_eq!(out.len(), 5 + 1 + 1 + 4);
    }

    #[test]
    fn dense_records_take_the_raw_form() {
        let delta = vec![0x1122_3344_5566_7788u64; 25];
        let mut out = Vec::new();
        put_operation(&mut out, RowId(1), 1, 1, &delta);
        assert!(out.len() <= 7 + 6 + 24 * 8);
    }

    #[test]
    fn the_documented_xor_vector_replays_in_both_orders() {
        // P*TIME (VLDB 2004): 0000 -> 0101 (L1) -> 1001 (L2); any order gives 1001, and without T2's record 0101.
        let [l1, l2] = [0b0101u64, 0b1100].map(|xor| {
            let mut out = Vec::new();
            put_operation(&mut out, RowId(1), 1, 0, &[0, xor]);
            out
        });
        let replay = |operations: &[&Vec<u8>]| {
            let mut record = [0u64; 2];
            for operation in operations {
                let mut reader = Reader(operation);
                read_operation(&mut reader, Cts(9)).expect("what was written");
                read_delta(&mut reader, |at, xor| record[at] ^= xor).expect("what was written");
            }
            record[1]
        };
        assert_eq!(replay(&[&l1, &l2]), 0b1001);
        assert_eq!(replay(&[&l2, &l1]), 0b1001);
        assert_eq!(replay(&[&l1]), 0b0101);
    }
}
