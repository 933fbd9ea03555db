//! What was received? The messages of a feed that comes by itself, on disk before they are applied: the run is resumed, and checked, by them.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `FRESHUD2` |
//! | 10 | session |
//! | then 8, 2, 4, n | each message's number and length, CRC-32C of these and the message, all little-endian, and the message |
//!
//! Invariants:
//! 1. What a reader was given is on disk: positions that the database stores count messages that are here.
//! 2. A torn message at the end was given to nobody, and is cut off: one whose checksum is wrong, or whose number is not above the one before. So what
//!    a loss of power left of a file that had grown, zeros mostly, is no message.

use crate::datagram::{SESSION_BYTES, SessionName};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"FRESHUD2";
/// Before messages had checksums.
const FIRST_MAGIC: [u8; 8] = *b"FRESHUDP";
const HEAD_BYTES: u64 = (MAGIC.len() + SESSION_BYTES) as u64;
const NAMED_BYTES: usize = 10;
const RECORD_HEAD_BYTES: usize = NAMED_BYTES + 4;

fn checksum(named: &[u8], message: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(named), message)
}

/// Reads a spool's messages from the first on.
pub struct SpoolReader {
    input: BufReader<File>,
    pub session: SessionName,
    /// Of the last message.
    last: u64,
}

impl SpoolReader {
    /// `None` where there is no spool, or one that has not begun.
    pub fn open(path: &Path) -> io::Result<Option<SpoolReader>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut input = BufReader::with_capacity(1 << 18, file);
        let mut head = [0; HEAD_BYTES as usize];
        if !read_whole(&mut input, &mut head)? {
            return Ok(None);
        }
        let (magic, session) = head.split_at(MAGIC.len());
        if magic == FIRST_MAGIC {
            let why = "another version of Freshet received this feed: begin again (--fresh)";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if magic != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no spool of a feed"));
        }
        Ok(Some(SpoolReader { input, session: session.try_into().expect("ten bytes"), last: 0 }))
    }

    /// Puts the next message into `message`; its number. `None` at the end, or where it is torn.
    pub fn next(&mut self, message: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let mut head = [0; RECORD_HEAD_BYTES];
        if !read_whole(&mut self.input, &mut head)? {
            return Ok(None);
        }
        let (named, crc) = head.split_at(NAMED_BYTES);
        let (number, length) = named.split_at(8);
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        message.resize(usize::from(u16::from_le_bytes(length.try_into().expect("two bytes"))), 0);
        let is_whole = read_whole(&mut self.input, message)?
            && number > self.last
            && u32::from_le_bytes(crc.try_into().expect("four bytes")) == checksum(named, message);
        if !is_whole {
            return Ok(None);
        }
        self.last = number;
        Ok(Some(number))
    }
}

/// False if the input ends before.
fn read_whole(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Adds to a spool.
pub struct Spool {
    file: File,
    /// What was added and is not on disk.
    fresh: Vec<u8>,
    has_begun: bool,
}

impl Spool {
    /// Goes on behind the last whole message: session and the number of the next one, if there is one before.
    pub fn open(path: &Path) -> io::Result<(Spool, Option<(SessionName, u64)>)> {
        let (mut end, mut before) = (0, None);
        if let Some(mut reader) = SpoolReader::open(path)? {
            let (mut message, mut next) = (Vec::new(), 1);
            end = HEAD_BYTES;
            while let Some(number) = reader.next(&mut message)? {
                end += (RECORD_HEAD_BYTES + message.len()) as u64;
                next = number + 1;
            }
            before = Some((reader.session, next));
        }
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok((Spool { file, fresh: Vec::new(), has_begun: before.is_some() }, before))
    }

    pub fn add(&mut self, session: SessionName, number: u64, message: &[u8]) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.fresh.extend_from_slice(&MAGIC);
            self.fresh.extend_from_slice(&session);
        }
        let length = u16::try_from(message.len()).expect("a datagram's message has a length of two bytes");
        let mut named = [0; NAMED_BYTES];
        named[..8].copy_from_slice(&number.to_le_bytes());
        named[8..].copy_from_slice(&length.to_le_bytes());
        self.fresh.extend_from_slice(&named);
        self.fresh.extend_from_slice(&checksum(&named, message).to_le_bytes());
        self.fresh.extend_from_slice(message);
    }

    /// Returns when what was added is on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        self.file.write_all(&self.fresh)?;
        self.fresh.clear();
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
        let (mut all, mut message) = (Vec::new(), Vec::new());
        let Some(mut reader) = SpoolReader::open(path).expect("a spool") else { return all };
        while let Some(number) = reader.next(&mut message).expect("readable") {
            all.push((number, message.clone()));
        }
        all
    }

    #[test]
    fn it_goes_on_behind_whatever_a_crash_left() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("spool");
        let session = *b"session001";
        let (mut spool, before) = Spool::open(&path).expect("a new one");
        assert_eq!(before, None);
        for number in [1, 2, 5] {
            spool.add(session, number, format!("message {number}").as_bytes());
        }
        assert!(read(&path).is_empty(), "nothing is there before it is on disk");
        spool.sync().expect("a disk");
        let whole = std::fs::read(&path).expect("a file");
        let record = RECORD_HEAD_BYTES + b"message 1".len();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("a disk");
            let (mut spool, before) = Spool::open(&path).expect("a spool");
            let kept = cut.saturating_sub(HEAD_BYTES as usize) / record;
            let next = [1, 2, 3, 6][kept];
            assert_eq!(before, (cut >= HEAD_BYTES as usize).then_some((session, next)), "cut at {cut}");
            spool.add(session, 9, b"later");
            spool.sync().expect("a disk");
            let numbers: Vec<u64> = read(&path).iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [&[1, 2, 5][..kept], &[9]].concat(), "cut at {cut}");
        }
        std::fs::write(&path, b"another file, longer than a head").expect("a disk");
        assert!(Spool::open(&path).is_err());
        std::fs::write(&path, b"FRESHUDPsession001").expect("a disk");
        assert!(Spool::open(&path).is_err_and(|error| error.to_string().contains("--fresh")), "of an earlier version");
    }

    /// What the file system had not written when the power went: zeros, or what was there before.
    #[test]
    fn what_is_no_message_ends_it() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("spool");
        let session = *b"session001";
        let (mut spool, _) = Spool::open(&path).expect("a new one");
        (1..=3).for_each(|number| spool.add(session, number, b"message"));
        spool.sync().expect("a disk");
        let whole = std::fs::read(&path).expect("a file");
        let record = RECORD_HEAD_BYTES + b"message".len();
        let again = whole[whole.len() - record..].to_vec();
        for tail in [vec![0; 4096], vec![0xff; 4096], again] {
            std::fs::write(&path, [whole.as_slice(), &tail].concat()).expect("a disk");
            assert_eq!(read(&path).len(), 3);
            let (mut spool, before) = Spool::open(&path).expect("a spool");
            assert_eq!(before, Some((session, 4)));
            spool.add(session, 4, b"later");
            spool.sync().expect("a disk");
            assert_eq!(read(&path).last(), Some(&(4, b"later".to_vec())));
        }
        for at in HEAD_BYTES as usize..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 0x10;
            std::fs::write(&path, &bent).expect("a disk");
            assert_eq!(read(&path).len(), (at - HEAD_BYTES as usize) / record, "bent at {at}");
        }
    }
}
