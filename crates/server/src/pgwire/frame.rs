//! What did the client say? Messages of the frontend, as views of the bytes they came in.
//!
//! | bytes | of every message after the start |
//! |---|---|
//! | 1 | kind |
//! | 4 | length of what follows, itself included, big-endian |
//! | length - 4 | body |
//!
//! Invariants:
//! 1. [`peek`] announces no frame longer than its kind's limit, so a buffer never grows beyond that limit plus one read.
//! 2. A [`Message`] is checked whole when it is decoded: its iterators cannot fail.
//! 3. Nothing is allocated by decoding.
//!
//! The hot messages are decoded here and not by pgwire's types because those own a `String` a name and a `Vec` a list.

use std::ops::Range;

/// A frame that breaks the protocol; the session ends with SQLSTATE 08P01.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub String);

#[cold]
#[inline(never)]
fn malformed<T>(what: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(what.into()))
}

/// Longest Sync, Flush, Execute and the like: they carry a name at most (PostgreSQL's limit).
const SMALL_BYTES_MAX: usize = 10_000;

/// Kind byte and length word.
const HEADER_BYTES: usize = 5;

/// What Describe and Close name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Statement,
    Portal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    Query {
        script: &'a [u8],
    },
    Parse {
        name: &'a [u8],
        sql: &'a [u8],
        types: Oids<'a>,
    },
    Bind(Bind<'a>),
    Describe {
        target: Target,
        name: &'a [u8],
    },
    Execute {
        portal: &'a [u8],
        /// 0: no limit.
        rows_max: u32,
    },
    Close {
        target: Target,
        name: &'a [u8],
    },
    Flush,
    Sync,
    Terminate,
    FunctionCall,
    CopyData {
        bytes: &'a [u8],
    },
    CopyDone,
    CopyFail {
        reason: &'a [u8],
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
    pub parameter_formats: Formats<'a>,
    pub parameters: Parameters<'a>,
    pub result_formats: Formats<'a>,
}

impl Bind<'_> {
    /// Where in its frame the statement's name is.
    pub fn place_of_statement(&self) -> Range<usize> {
        let start = HEADER_BYTES + self.portal.len() + 1;
        start..start + self.statement.len()
    }
}

/// Declared parameter types, four bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oids<'a>(&'a [u8]);

impl Oids<'_> {
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.as_chunks::<4>().0.iter().map(|c| u32::from_be_bytes(*c))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    Binary,
}

/// Format codes: none (all text), one (for all) or one each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formats<'a>(&'a [u8]);

impl Formats<'_> {
    pub fn count(&self) -> usize {
        self.0.len() / 2
    }

    pub fn get(&self, index: usize) -> Format {
        let code = match self.0.len() {
            0 => 0,
            2 => self.0[1],
            _ => self.0[2 * index + 1],
        };
        if code == 0 { Format::Text } else { Format::Binary }
    }

    /// Whether there is a code for each of `count` items.
    pub fn covers(&self, count: usize) -> bool {
        self.count() <= 1 || self.count() == count
    }
}

/// Parameter values: a length (-1 for null) and the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Parameters<'a> {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut rest = Reader(self.bytes);
        (0..self.count).map(move |_| rest.value().expect("invariant 2: checked when decoded"))
    }
}

/// The frame at the start of the input, once its header is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: u8,
    /// Header included.
    pub length: usize,
}

/// The header of the next frame; `None` while it is incomplete. The body may be missing still.
#[inline]
pub fn peek(input: &[u8], message_bytes_max: usize) -> Result<Option<Frame>, Malformed> {
    let Some(&kind) = input.first() else {
        return Ok(None);
    };
    let limit = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' => message_bytes_max,
        b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' => SMALL_BYTES_MAX,
        b'p' => return malformed("unexpected password message"),
        _ => return malformed(format!("invalid frontend message type {kind}")),
    };
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let length = i32::from_be_bytes([input[1], input[2], input[3], input[4]]);
    match usize::try_from(length) {
        Ok(length) if (4..=limit).contains(&length) => Ok(Some(Frame { kind, length: length + 1 })),
        _ => bad_length(kind, length, limit),
    }
}

#[cold]
#[inline(never)]
fn bad_length<T>(kind: u8, length: i32, limit: usize) -> Result<T, Malformed> {
    let kind = char::from(kind);
    malformed(format!("invalid message length {length} (at most {limit} for message type {kind:?})"))
}

/// Decodes one whole frame.
pub fn decode(kind: u8, frame: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut body = Reader(&frame[HEADER_BYTES..]);
    let message = match kind {
        b'Q' => Message::Query { script: body.string()? },
        b'P' => Message::Parse { name: body.string()?, sql: body.string()?, types: Oids(body.list(4)?.1) },
        b'B' => Message::Bind(bind(&mut body)?),
        b'D' => Message::Describe { target: body.target()?, name: body.string()? },
        b'E' => Message::Execute { portal: body.string()?, rows_max: u32::from_be_bytes(body.array()?) },
        b'C' => Message::Close { target: body.target()?, name: body.string()? },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'F' => return Ok(Message::FunctionCall),
        b'd' => return Ok(Message::CopyData { bytes: body.0 }),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail { reason: body.string()? },
        _ => return malformed(format!("invalid frontend message type {kind}")),
    };
    if !body.0.is_empty() {
        return malformed("invalid message format: bytes after its end");
    }
    Ok(message)
}

#[inline]
fn bind<'a>(body: &mut Reader<'a>) -> Result<Bind<'a>, Malformed> {
    let portal = body.string()?;
    let statement = body.string()?;
    let parameter_formats = body.formats()?;
    let count = usize::from(u16::from_be_bytes(body.array()?));
    let start = body.0;
    for _ in 0..count {
        body.value()?;
    }
    let parameters = Parameters { count, bytes: &start[..start.len() - body.0.len()] };
    Ok(Bind { portal, statement, parameter_formats, parameters, result_formats: body.formats()? })
}

/// What is left of a body. Its small steps are inlined: a result of theirs with its text is more to pass on than they have to do.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline(always)]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => malformed("insufficient data left in message"),
        }
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("take gives as many as asked for"))
    }

    /// Up to a zero byte, which is passed.
    #[inline(always)]
    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        match self.0.iter().position(|&b| b == 0) {
            Some(end) => {
                let string = &self.0[..end];
                self.0 = &self.0[end + 1..];
                Ok(string)
            }
            None => malformed("invalid string in message"),
        }
    }

    /// A 16-bit count and as many items of `item_bytes`.
    #[inline(always)]
    fn list(&mut self, item_bytes: usize) -> Result<(usize, &'a [u8]), Malformed> {
        let count = usize::from(u16::from_be_bytes(self.array()?));
        Ok((count, self.take(count * item_bytes)?))
    }

    #[inline(always)]
    fn formats(&mut self) -> Result<Formats<'a>, Malformed> {
        let codes = self.list(2)?.1;
        match codes.as_chunks().0.iter().find(|c| !matches!(c, [0, 0 | 1])) {
            Some(c) => bad_format(*c),
            None => Ok(Formats(codes)),
        }
    }

    #[inline(always)]
    fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match i32::from_be_bytes(self.array()?) {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(self.take(length)?)),
                Err(_) => bad_parameter(length),
            },
        }
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.array()? {
            [b'S'] => Ok(Target::Statement),
            [b'P'] => Ok(Target::Portal),
            [other] => malformed(format!("invalid message subtype {other}")),
        }
    }
}

#[cold]
#[inline(never)]
fn bad_format<T>(code: [u8; 2]) -> Result<T, Malformed> {
    malformed(format!("unsupported format code: {}", i16::from_be_bytes(code)))
}

#[cold]
#[inline(never)]
fn bad_parameter<T>(length: i32) -> Result<T, Malformed> {
    malformed(format!("invalid parameter length {length}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pgwire::messages::{extendedquery, simplequery};
    use bytes::{Bytes, BytesMut};

    const LIMIT: usize = 1 << 20;

    fn encoded(message: impl ::pgwire::messages::Message) -> BytesMut {
        let mut buffer = BytesMut::new();
        message.encode(&mut buffer).unwrap();
        buffer
    }

    fn decoded(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
        let frame = peek(bytes, LIMIT)?.expect("a whole header");
        assert_eq!(frame.length, bytes.len(), "one whole frame");
        decode(frame.kind, bytes)
    }

    #[test]
    fn pgwires_messages_are_read() {
        let parse = encoded(extendedquery::Parse::new(Some("s".into()), "select $1".into(), vec![23, 0]));
        let Message::Parse { name, sql, types } = decoded(&parse).unwrap() else {
            panic!("not a Parse");
        };
        assert_eq!((name, sql), (&b"s"[..], &b"select $1"[..]));
        assert_eq!(types.iter().collect::<Vec<_>>(), [23, 0]);

        let sent = encoded(extendedquery::Bind::new(
            Some("portal".into()),
            Some("s".into()),
            vec![1, 0],
            vec![Some(Bytes::from_static(b"\0\0\0\x07")), None],
            vec![1],
        ));
        let Message::Bind(bind) = decoded(&sent).unwrap() else {
            panic!("not a Bind");
        };
        assert_eq!(&sent[bind.place_of_statement()], b"s");
        assert_eq!(bind.parameter_formats.get(0), Format::Binary);
        assert_eq!(bind.parameter_formats.get(1), Format::Text);
        assert_eq!(bind.result_formats.get(9), Format::Binary);
        assert_eq!(bind.parameters.iter().collect::<Vec<_>>(), [Some(&b"\0\0\0\x07"[..]), None]);

        let execute = encoded(extendedquery::Execute::new(Some("p".into()), 5));
        assert_eq!(decoded(&execute).unwrap(), Message::Execute { portal: b"p", rows_max: 5 });
        let query = encoded(simplequery::Query::new("select 1".into()));
        assert_eq!(decoded(&query).unwrap(), Message::Query { script: b"select 1" });
        assert_eq!(decoded(&encoded(extendedquery::Sync::new())).unwrap(), Message::Sync);
    }

    /// Every way of cutting or bending a Bind is an error or a message, never a panic.
    #[test]
    fn bent_bodies_are_refused() {
        let whole = encoded(extendedquery::Bind::new(
            Some("p".into()),
            Some("s".into()),
            vec![1],
            vec![Some(Bytes::from_static(b"abcd")), None],
            vec![0, 1],
        ));
        for cut in HEADER_BYTES..whole.len() {
            assert!(decode(b'B', &whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in HEADER_BYTES..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bent = whole.to_vec();
                bent[at] = value;
                if let Ok(Message::Bind(bind)) = decode(b'B', &bent) {
                    assert_eq!(bind.parameters.iter().count(), bind.parameters.count());
                }
            }
        }
        assert!(decode(b'S', b"S\0\0\0\x05x").is_err(), "bytes after the end");
        assert!(decode(b'D', b"D\0\0\0\x06Q\0").is_err(), "a bad subtype");
    }

    #[test]
    fn headers_are_checked_before_their_body_comes() {
        assert_eq!(peek(b"", LIMIT), Ok(None));
        assert_eq!(peek(b"Q\0\0", LIMIT), Ok(None));
        assert!(peek(b"!", LIMIT).is_err(), "unknown kind");
        assert!(peek(b"Q\0\0\0\x03", LIMIT).is_err(), "shorter than itself");
        assert!(peek(b"Q\xff\xff\xff\xff", LIMIT).is_err(), "negative");
        assert!(peek(b"Q\x7f\xff\xff\xff", LIMIT).is_err(), "too long");
        assert!(peek(b"S\0\0\x7f\xff", LIMIT).is_err(), "too long for a Sync");
        assert_eq!(peek(b"Q\0\0\x7f\xff", LIMIT), Ok(Some(Frame { kind: b'Q', length: 0x8000 })));
    }
}
