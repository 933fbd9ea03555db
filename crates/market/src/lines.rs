//! How is a text file read line by line, and how is told what is wrong with a line?
//!
//! Plain or zstd, known by its magic number and not by its name. Invariants:
//! 1. A refused line has a file, a line number and a reason; under [`OnError::Skip`] it is counted and reading goes on
//!    with the next line. A file that cannot be read on (I/O error, damaged compression) ends the reading under either
//!    policy.
//! 2. No line, however long, takes more memory than [`LINE_BYTES_MAX`].
//! 3. Equal lines give equal fingerprints, whatever their ends and the compression.

use crate::message::CODE_BYTES_MAX;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A quote line has about 200 bytes; a longer line than this is no line of a feed.
pub const LINE_BYTES_MAX: u64 = 16 * 1024;

const READ_BYTES: usize = 256 * 1024;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum OnError {
    /// The first refused line ends the run.
    #[default]
    Stop,
    /// Refused lines are counted.
    Skip,
}

/// Where and why a line was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedError {
    pub file: PathBuf,
    /// From 1; 0 if the file could not be opened.
    pub line: u64,
    pub reason: Reason,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    Empty,
    TooLong,
    NotUtf8,
    Fields {
        expected: usize,
        found: usize,
    },
    Timestamp,
    TimeGoesBack,
    Kind,
    Code,
    Status,
    /// The how-manieth field, from 1.
    Price(usize),
    PriceTooLarge(usize),
    QuantityAt(usize),
    Amount,
    UnknownCode(String),
    Name,
    Date,
    DateNotAfterLast,
    DailyPrice,
    Quantity,
    Io(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Empty => write!(f, "the line is empty"),
            Reason::TooLong => write!(f, "the line is longer than {LINE_BYTES_MAX} bytes"),
            Reason::NotUtf8 => write!(f, "not UTF-8"),
            Reason::Fields { expected, found } => {
                write!(f, "{found} fields where {expected} belong")
            }
            Reason::Timestamp => write!(f, "the time is not YYYY-MM-DD HH:MM:SS.mmm"),
            Reason::TimeGoesBack => write!(f, "the time is before that of an earlier line"),
            Reason::Kind => write!(f, "the kind is none of S, Q, T"),
            Reason::Code => write!(f, "the code is not 1 to {CODE_BYTES_MAX} printable ASCII characters"),
            Reason::Status => write!(f, "the status is not 1 to {CODE_BYTES_MAX} printable ASCII characters"),
            Reason::Price(field) => write!(f, "field {field}: not a price (a decimal of at most four places)"),
            Reason::PriceTooLarge(field) => {
                write!(f, "field {field}: a price above 99999.9999")
            }
            Reason::QuantityAt(field) => {
                write!(f, "field {field}: not a quantity from 0 to {}", i32::MAX)
            }
            Reason::Amount => write!(f, "not an amount (a decimal of at most four places)"),
            Reason::UnknownCode(code) => {
                write!(f, "the code {code} is unknown: no status line introduces it and no symbols file names it")
            }
            Reason::Name => write!(f, "the name is not 1 to 64 characters"),
            Reason::Date => write!(f, "the date is not YYYY-MM-DD"),
            Reason::DateNotAfterLast => {
                write!(f, "the date is not after the symbol's date before it")
            }
            Reason::DailyPrice => write!(f, "not a price"),
            Reason::Quantity => write!(f, "not a quantity"),
            Reason::Io(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.reason),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.reason),
        }
    }
}

impl std::error::Error for FeedError {}

/// Lines of a plain or compressed text file, in one reused buffer, with their number and a running fingerprint.
pub struct TextFile {
    input: Box<dyn BufRead + Send>,
    path: PathBuf,
    line: Vec<u8>,
    line_number: u64,
    fingerprint: u64,
}

impl TextFile {
    pub fn open(path: &Path) -> Result<TextFile, FeedError> {
        let error = |e: std::io::Error| FeedError { file: path.to_owned(), line: 0, reason: Reason::Io(e.to_string()) };
        let file = File::open(path).map_err(error)?;
        let mut plain = BufReader::with_capacity(READ_BYTES, file);
        let compressed = plain.fill_buf().map_err(error)?.starts_with(&ZSTD_MAGIC);
        let input: Box<dyn BufRead + Send> = if compressed {
            let decoder = zstd::stream::read::Decoder::with_buffer(plain).map_err(error)?;
            Box::new(BufReader::with_capacity(READ_BYTES, decoder))
        } else {
            Box::new(plain)
        };
        Ok(TextFile::new(input, path))
    }

    pub fn new(input: Box<dyn BufRead + Send>, path: &Path) -> TextFile {
        TextFile { input, path: path.to_owned(), line: Vec::new(), line_number: 0, fingerprint: 0 }
    }

    /// The next line without its end, or `None` after the last.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, FeedError> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(Some(&self.line))
    }

    fn advance(&mut self) -> Result<bool, FeedError> {
        self.line.clear();
        self.line_number += 1;
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        if read.map_err(|e| self.error(Reason::Io(e.to_string())))? == 0 {
            return Ok(false);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() as u64 == LINE_BYTES_MAX {
            self.pass_long_line()?;
        }
        self.fingerprint = fingerprint(self.fingerprint, &self.line);
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }

    /// Reads to the end of an overlong line without keeping it; its first bytes stay, one more than a line may have, so
    /// that the parser refuses it.
    fn pass_long_line(&mut self) -> Result<(), FeedError> {
        let kept = self.line.len();
        loop {
            let read = (&mut self.input)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut self.line)
                .map_err(|e| self.error(Reason::Io(e.to_string())))?;
            let ended = read == 0 || self.line.last() == Some(&b'\n');
            self.line.truncate(kept);
            if ended {
                return Ok(());
            }
        }
    }

    pub fn error(&self, reason: Reason) -> FeedError {
        FeedError { file: self.path.clone(), line: self.line_number, reason }
    }

    /// Ends the reading or counts the current line, as the policy says.
    pub fn refuse(&self, reason: Reason, on_error: OnError, skipped: &mut u64) -> Result<(), FeedError> {
        match on_error {
            OnError::Stop => Err(self.error(reason)),
            OnError::Skip => {
                *skipped += 1;
                Ok(())
            }
        }
    }

    /// Of every line read so far.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub fn line_number(&self) -> u64 {
        self.line_number
    }
}

/// Folds a line into a fingerprint, eight bytes a step: tells feeds apart, defends against nobody.
fn fingerprint(seed: u64, line: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let mut chunks = line.chunks_exact(8);
    let mut hash = mix(seed, line.len() as u64);
    for chunk in &mut chunks {
        hash = mix(hash, u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(hash, u64::from_le_bytes(last))
}

pub fn check_code(code: &[u8]) -> Result<&str, Reason> {
    let fits = (1..=CODE_BYTES_MAX).contains(&code.len());
    if !fits || !code.iter().all(u8::is_ascii_graphic) {
        return Err(Reason::Code);
    }
    Ok(std::str::from_utf8(code).expect("ASCII is UTF-8"))
}

/// A decimal without sign and with at most four places, in 1/10000; below 10^18, the range of `numeric(18,4)`.
pub fn decimal(text: &[u8]) -> Option<i64> {
    let (mut value, mut digits, mut places) = (0i64, 0u32, None::<u32>);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                places = places.map(|p| p + 1);
                if digits > 18 {
                    return None;
                }
                value = value * 10 + i64::from(byte - b'0');
            }
            b'.' if places.is_none() => places = Some(0),
            _ => return None,
        }
    }
    let missing = 4u32.checked_sub(places.unwrap_or(0))?;
    if digits == 0 || places == Some(0) || digits + missing > 18 {
        return None;
    }
    Some(value * 10i64.pow(missing))
}

/// A price of any number of places, rounded half up to 1/10000.
pub fn parse_rounded(text: &[u8], max: i64) -> Result<i64, Reason> {
    let point = text.iter().position(|&b| b == b'.').unwrap_or(text.len());
    let kept = text.len().min(point + 5);
    let value = decimal(&text[..kept]).ok_or(Reason::DailyPrice)?;
    let dropped = &text[kept..];
    if !dropped.iter().all(u8::is_ascii_digit) {
        return Err(Reason::DailyPrice);
    }
    let round_up = dropped.first().is_some_and(|&b| b >= b'5');
    let rounded = value + i64::from(round_up);
    if rounded > max {
        return Err(Reason::DailyPrice);
    }
    Ok(rounded)
}
