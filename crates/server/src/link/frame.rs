//! What is on the wire? Frames of a link, and the greeting before them.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 3 | length of the body, big-endian |
//! | 4 | session, big-endian; 0 in frames that concern the link itself |
//! | length | body |
//!
//! | kind | from | body | meaning |
//! |---|---|---|---|
//! | `O` | ship | - | a session begins |
//! | `D` | both | 1 to [`WINDOW_BYTES`] bytes | bytes of the session |
//! | `E` | both | - | nothing more comes of this session; the server's is its last word on it |
//! | `X` | ship | - | the client is gone: nothing more comes, and nothing is taken any more |
//! | `C` | both | 4: count | so many bytes of the session were taken: as many more may come |
//! | `G` | ship | 4: number | the end of a group |
//! | `T` | server | 4: number | the sessions that the group woke have had their turn |
//! | `P`, `R` | ship, server | - | is the peer there? it is |

/// The greeting's code, where PostgreSQL has its protocol's version: "FSHP".
pub const LINK_CODE: u32 = 0x4653_4850;
pub const LINK_VERSION: u32 = 1;
/// Length word, code, version.
pub const GREETING_BYTES: usize = 12;

/// What may be under way of one session in one direction.
pub const WINDOW_BYTES: usize = 64 << 10;
/// The same to the server, as long as nobody knows who the client is.
pub const OPENING_BYTES: usize = 16 << 10;

pub const HEADER_BYTES: usize = 8;
const COUNT_BYTES: usize = 4;

/// A frame that breaks the format or a rule; the link ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

pub fn violation<T>(what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation(what.into()))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    Open,
    Data(&'a [u8]),
    End,
    Gone,
    Credit(usize),
    Group(u32),
    Turn(u32),
    Ping,
    Pong,
}

impl Frame<'_> {
    fn kind(&self) -> u8 {
        match self {
            Frame::Open => b'O',
            Frame::Data(_) => b'D',
            Frame::End => b'E',
            Frame::Gone => b'X',
            Frame::Credit(_) => b'C',
            Frame::Group(_) => b'G',
            Frame::Turn(_) => b'T',
            Frame::Ping => b'P',
            Frame::Pong => b'R',
        }
    }

    pub fn write(&self, session: u32, out: &mut Vec<u8>) {
        let number: [u8; COUNT_BYTES];
        let body: &[u8] = match *self {
            Frame::Data(bytes) => bytes,
            Frame::Credit(count) => {
                number = (count as u32).to_be_bytes();
                &number
            }
            Frame::Group(of) | Frame::Turn(of) => {
                number = of.to_be_bytes();
                &number
            }
            Frame::Open | Frame::End | Frame::Gone | Frame::Ping | Frame::Pong => &[],
        };
        let length = (body.len() as u32).to_be_bytes();
        out.extend_from_slice(&[self.kind(), length[1], length[2], length[3]]);
        out.extend_from_slice(&session.to_be_bytes());
        out.extend_from_slice(body);
    }
}

/// The frame at the start of the input, with its session and its length on the wire; `None` while it is not whole.
pub fn next(input: &[u8]) -> Result<Option<(Frame<'_>, u32, usize)>, Violation> {
    let Some(&[kind, a, b, c, s0, s1, s2, s3]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    let session = u32::from_be_bytes([s0, s1, s2, s3]);
    let fits = match kind {
        b'D' => (1..=WINDOW_BYTES).contains(&length),
        b'C' | b'G' | b'T' => length == COUNT_BYTES,
        b'O' | b'E' | b'X' | b'P' | b'R' => length == 0,
        _ => return violation(format!("unknown kind {kind}")),
    };
    if !fits {
        return violation(format!("length {length} of a frame of kind {:?}", char::from(kind)));
    }
    let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + length) else {
        return Ok(None);
    };
    let number = || u32::from_be_bytes(body.try_into().expect("the length was checked"));
    let frame = match kind {
        b'D' => Frame::Data(body),
        b'C' => Frame::Credit(number() as usize),
        b'G' => Frame::Group(number()),
        b'T' => Frame::Turn(number()),
        b'O' => Frame::Open,
        b'E' => Frame::End,
        b'X' => Frame::Gone,
        b'P' => Frame::Ping,
        _ => Frame::Pong,
    };
    Ok(Some((frame, session, HEADER_BYTES + length)))
}

/// What a ship says first.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..4].copy_from_slice(&(GREETING_BYTES as u32).to_be_bytes());
    bytes[4..8].copy_from_slice(&LINK_CODE.to_be_bytes());
    bytes[8..].copy_from_slice(&LINK_VERSION.to_be_bytes());
    bytes
}

/// The version of a whole first packet, if it is a greeting.
pub fn greeted(packet: &[u8]) -> Option<u32> {
    let word = |at: usize| packet.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    (packet.len() == GREETING_BYTES && word(4)? == LINK_CODE).then(|| word(8)).flatten()
}

/// What the server answers a greeting that it accepts: `W` and a length word, as messages of PostgreSQL have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    pub version: u32,
    /// The sessions that one link may have at the same time.
    pub sessions_max: u32,
    /// The threads that serve links: more links than that gain nothing.
    pub workers: u32,
}

pub const WELCOME_BYTES: usize = 17;

impl Welcome {
    pub fn bytes(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [b'W'; WELCOME_BYTES];
        let words = [WELCOME_BYTES as u32 - 1, self.version, self.sessions_max, self.workers];
        for (at, word) in words.iter().enumerate() {
            bytes[1 + 4 * at..5 + 4 * at].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub fn read(bytes: &[u8; WELCOME_BYTES]) -> Result<Welcome, Violation> {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let welcome = Welcome { version: word(5), sessions_max: word(9), workers: word(13) };
        if bytes[0] != b'W' || word(1) as usize != WELCOME_BYTES - 1 || welcome.version != LINK_VERSION {
            return violation("an answer to the greeting that is not understood");
        }
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Frame<'static>; 9] = [
        Frame::Open,
        Frame::Data(b"bytes"),
        Frame::End,
        Frame::Gone,
        Frame::Credit(4096),
        Frame::Group(7),
        Frame::Turn(u32::MAX),
        Frame::Ping,
        Frame::Pong,
    ];

    #[test]
    fn frames_read_back_and_may_come_in_pieces() {
        for frame in ALL {
            let mut bytes = Vec::new();
            frame.write(77, &mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(next(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
            }
            let length = bytes.len();
            bytes.extend_from_slice(b"more");
            assert_eq!(next(&bytes), Ok(Some((frame, 77, length))));
        }
    }

    /// Every length of every kind, whole or not, is the right one or refused from the header alone.
    #[test]
    fn lengths_that_lie_are_refused_by_the_header() {
        for kind in 0..=u8::MAX {
            for length in [0u32, 1, 3, 4, 5, 65_535, 65_536, 65_537, 0x00ff_ffff] {
                let word = length.to_be_bytes();
                let header = [kind, word[1], word[2], word[3], 0, 0, 0, 1];
                let fits = match kind {
                    b'D' => (1..=65_536).contains(&length),
                    b'C' | b'G' | b'T' => length == 4,
                    b'O' | b'E' | b'X' | b'P' | b'R' => length == 0,
                    _ => false,
                };
                assert_eq!(next(&header).is_ok(), fits, "kind {kind}, length {length}");
            }
        }
    }

    #[test]
    fn a_greeting_is_told_from_a_startup_packet() {
        assert_eq!(greeted(&greeting()), Some(LINK_VERSION));
        let mut other = greeting();
        other[4] = 0;
        assert_eq!(greeted(&other), None);
        assert_eq!(greeted(&greeting()[..11]), None);
        let welcome = Welcome { version: LINK_VERSION, sessions_max: 1000, workers: 2 };
        assert_eq!(Welcome::read(&welcome.bytes()), Ok(welcome));
        for at in [0, 4, 8] {
            let mut bent = welcome.bytes();
            bent[at] ^= 1;
            assert!(Welcome::read(&bent).is_err(), "byte {at}");
        }
    }
}
