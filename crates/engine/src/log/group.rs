//! What do the bytes of a group mean? One header, then frames, then zeros up to the next 4 KiB.
//!
//! All integers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `FRESHGRP` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC32C of the header, computed with these four bytes zero |
//! | 16 | 16 | database id |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | group number |
//! | 48 | 8 | epoch |
//! | 56 | 8 | previous epoch of the chain |
//! | 64 | 8 | witness: the horizon acknowledged when this group was sealed |
//! | 72 | 8 | wall clock, us since 1970, monotone over the life of the database |
//! | 80 | 8 | segment number |
//! | 88 | 8 | offset of this group in the segment |
//! | 96 | 8 | body length |
//! | 104 | 4 | CRC32C of the body |
//! | 108 | 2 | device |
//! | 110 | 2 | participants n, 1..64 |
//! | 112 | 24 n | participants {group number 8, body length 8, body CRC32C 4, device 2, zero 2}, devices ascending |
//! | 112 + 24 n | body length | frames, each {length 4, bytes} |
//!
//! Segment and offset are in the header so that a block copied elsewhere (a recycled file, a row that happens to
//! contain log bytes) is no group.

use crate::ids::{DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES};

use super::{DEVICES_MAX, DatabaseId, GroupNo, Incarnation, SegmentNo};

pub const MAGIC: [u8; 8] = *b"FRESHGRP";
pub const VERSION: u32 = 1;
const FIXED_BYTES: usize = 112;
const PARTICIPANT_BYTES: usize = 24;
const CRC_OFFSET: usize = 12;

/// The length in front of each frame.
pub const FRAME_PREFIX_BYTES: u64 = 4;

/// The largest header fits one block.
const _: () = assert!(FIXED_BYTES + PARTICIPANT_BYTES * DEVICES_MAX <= BLOCK_BYTES);

/// What one device contributes to an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    pub device: DeviceId,
    pub group: GroupNo,
    pub body_bytes: u64,
    pub body_crc: u32,
}

/// `P`: the participants, owned by who has read them, lent by who writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeader<P = Vec<Participant>> {
    pub database: DatabaseId,
    pub incarnation: Incarnation,
    pub device: DeviceId,
    pub group: GroupNo,
    pub epoch: Epoch,
    pub prev_epoch: Epoch,
    pub witness: Epoch,
    pub wall_us: u64,
    pub segment: SegmentNo,
    pub offset: u64,
    pub body_bytes: u64,
    pub body_crc: u32,
    pub participants: P,
}

/// Why bytes are no group header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHeader {
    /// Not the magic: zeros, or the inside of something.
    Absent,
    /// A header that this program does not know how to read.
    Version(u32),
    Damaged,
}

/// Bytes from the start of a group to its body.
pub fn header_bytes(participants: usize) -> usize {
    FIXED_BYTES + PARTICIPANT_BYTES * participants
}

/// Bytes that a group occupies in its segment.
pub fn group_bytes(participants: usize, body_bytes: u64) -> u64 {
    (header_bytes(participants) as u64 + body_bytes).next_multiple_of(BLOCK_BYTES as u64)
}

impl<P: AsRef<[Participant]>> GroupHeader<P> {
    /// Bytes of the header itself; the body follows.
    pub fn bytes(&self) -> usize {
        header_bytes(self.participants.as_ref().len())
    }

    /// Writes the header to the first [`GroupHeader::bytes`] bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..self.bytes()];
        out.fill(0);
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.database.0.to_le_bytes());
        let words = [
            self.incarnation.0,
            self.group.0,
            self.epoch.0,
            self.prev_epoch.0,
            self.witness.0,
            self.wall_us,
            self.segment.0,
            self.offset,
            self.body_bytes,
        ];
        for (i, word) in words.iter().enumerate() {
            out[32 + 8 * i..40 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        out[104..108].copy_from_slice(&self.body_crc.to_le_bytes());
        out[108..110].copy_from_slice(&self.device.0.to_le_bytes());
        out[110..112].copy_from_slice(&(self.participants.as_ref().len() as u16).to_le_bytes());
        for (i, participant) in self.participants.as_ref().iter().enumerate() {
            participant.encode(&mut out[header_bytes(i)..header_bytes(i + 1)]);
        }
        let crc = crc32c::crc32c(out);
        out[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

impl GroupHeader {
    /// Reads the header at the start of `bytes`, which must hold one block.
    pub fn decode(bytes: &[u8]) -> Result<GroupHeader, NoHeader> {
        if bytes.len() < FIXED_BYTES || bytes[0..8] != MAGIC {
            return Err(NoHeader::Absent);
        }
        let count = u16_at(bytes, 110) as usize;
        if count == 0 || count > DEVICES_MAX || bytes.len() < header_bytes(count) {
            return Err(NoHeader::Damaged);
        }
        let bytes = &bytes[..header_bytes(count)];
        if header_crc(bytes) != u32_at(bytes, CRC_OFFSET) {
            return Err(NoHeader::Damaged);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(NoHeader::Version(u32_at(bytes, 8)));
        }
        let participant = |i| Participant::decode(&bytes[header_bytes(i)..header_bytes(i + 1)]);
        Ok(GroupHeader {
            database: DatabaseId(u128::from_le_bytes(bytes[16..32].try_into().expect("16 bytes"))),
            incarnation: Incarnation(u64_at(bytes, 32)),
            group: GroupNo(u64_at(bytes, 40)),
            epoch: Epoch(u64_at(bytes, 48)),
            prev_epoch: Epoch(u64_at(bytes, 56)),
            witness: Epoch(u64_at(bytes, 64)),
            wall_us: u64_at(bytes, 72),
            segment: SegmentNo(u64_at(bytes, 80)),
            offset: u64_at(bytes, 88),
            body_bytes: u64_at(bytes, 96),
            body_crc: u32_at(bytes, 104),
            device: DeviceId(u16_at(bytes, 108)),
            participants: (0..count).map(participant).collect(),
        })
    }
}

impl Participant {
    fn encode(&self, out: &mut [u8]) {
        out[0..8].copy_from_slice(&self.group.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[16..20].copy_from_slice(&self.body_crc.to_le_bytes());
        out[20..22].copy_from_slice(&self.device.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Participant {
        Participant {
            group: GroupNo(u64_at(bytes, 0)),
            body_bytes: u64_at(bytes, 8),
            body_crc: u32_at(bytes, 16),
            device: DeviceId(u16_at(bytes, 20)),
        }
    }
}

fn header_crc(header: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&header[..CRC_OFFSET]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &header[CRC_OFFSET + 4..])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Where a group begins while it is being filled: room for the header, then frames are appended.
pub fn begin(buf: &mut AlignedBuf, participants: usize) {
    buf.clear();
    buf.resize(header_bytes(participants));
}

/// A group's body is not a sequence of frames, though its checksum holds: the writer was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFrame {
    /// Offset in the body.
    pub offset: usize,
}

/// The frames of a group's body, in the order in which one worker staged them (workers are interleaved).
pub fn frames(body: &[u8]) -> Frames<'_> {
    Frames { body, at: 0 }
}

#[derive(Clone, Debug)]
pub struct Frames<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<&'a [u8], BadFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.body[self.at..];
        if rest.is_empty() {
            return None;
        }
        let prefix = FRAME_PREFIX_BYTES as usize;
        let end = (rest.len() >= prefix).then(|| prefix + u32_at(rest, 0) as usize);
        match end.and_then(|end| rest.get(prefix..end).map(|frame| (frame, end))) {
            Some((frame, end)) => {
                self.at += end;
                Some(Ok(frame))
            }
            None => {
                let offset = self.at;
                self.at = self.body.len();
                Some(Err(BadFrame { offset }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> GroupHeader {
        let participant = |device, group| Participant {
            device: DeviceId(device),
            group: GroupNo(group),
            body_bytes: 77 + u64::from(device),
            body_crc: 0xdead_beef,
        };
        GroupHeader {
            database: DatabaseId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
            incarnation: Incarnation(3),
            device: DeviceId(1),
            group: GroupNo(42),
            epoch: Epoch(1 << 40),
            prev_epoch: Epoch((1 << 40) - 1),
            witness: Epoch((1 << 40) - 2),
            wall_us: 1_700_000_000_000_000,
            segment: SegmentNo(9),
            offset: 8192,
            body_bytes: 78,
            body_crc: 0xdead_beef,
            participants: vec![participant(0, 41), participant(1, 42)],
        }
    }

    #[test]
    fn header_survives_the_round_trip() {
        let mut bytes = vec![0xaa; BLOCK_BYTES];
        header().encode(&mut bytes);
        assert_eq!(GroupHeader::decode(&bytes), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_detected() {
        let mut bytes = vec![0; BLOCK_BYTES];
        header().encode(&mut bytes);
        for bit in 0..header().bytes() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(GroupHeader::decode(&bytes).is_err(), "bit {bit} flipped unnoticed");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = vec![0; BLOCK_BYTES];
        header().encode(&mut bytes);
        bytes[8] = 9;
        let crc = header_crc(&bytes[..header().bytes()]);
        bytes[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(GroupHeader::decode(&bytes), Err(NoHeader::Version(9)));
    }

    #[test]
    fn frames_end_where_the_body_does() {
        let body = [3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0];
        let found: Vec<_> = frames(&body).collect();
        assert_eq!(found, [Ok(&b"abc"[..]), Ok(&b""[..])]);
        assert_eq!(frames(&body[..6]).collect::<Vec<_>>(), [Err(BadFrame { offset: 0 })]);
        assert_eq!(frames(&body[..9]).last(), Some(Err(BadFrame { offset: 7 })));
    }
}
