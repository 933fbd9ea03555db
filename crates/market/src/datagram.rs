//! What does a datagram of the feed say, and what is missing between two of them? MoldUDP64's packets: a session, the number of the first
//! message, and the messages, so that each message has a number and what is lost is known.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 10 | session |
//! | 10 | 8 | number of the first message, from 1, big-endian |
//! | 18 | 2 | messages in it; 0: heartbeat; 65,535: the end. Of both the number is that of the next message |
//! | 20 | 2 + n each | length of the message, the message: a line of the feed without its end |
//!
//! Invariants:
//! 1. Messages come out in the order of their numbers, each at most once.
//! 2. A message that comes before one that is missing waits for it, for [`PATIENCE`], and with at most [`HELD_BYTES_MAX`] of others; then what
//!    is missing is a gap: counted, named, and passed over. What comes for it later comes too late.
//! 3. The first session that is heard is the feed; datagrams of others are counted and dropped.

use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

pub const SESSION_BYTES: usize = 10;
pub const HEADER_BYTES: usize = 20;
/// What goes into one packet of an Ethernet, its headers included.
pub const DATAGRAM_BYTES_MAX: usize = 1_400;
const END: u16 = u16::MAX;

/// How long a message waits for those before it: longer than networks change the order of packets, shorter than somebody notices.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Of datagrams that wait.
pub const HELD_BYTES_MAX: usize = 8 << 20;

pub type SessionName = [u8; SESSION_BYTES];

/// A datagram that says nothing that is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// So many messages, with their lengths before them.
    Messages(u16, &'a [u8]),
    Heartbeat,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    pub session: SessionName,
    pub number: u64,
    pub content: Content<'a>,
}

/// The messages of a body that was checked.
fn messages(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = body.split_first_chunk::<2>()?;
        let (message, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        body = rest;
        Some(message)
    })
}

pub fn parse(bytes: &[u8]) -> Result<Datagram<'_>, Malformed> {
    let (session, rest) = bytes.split_first_chunk::<SESSION_BYTES>().ok_or(Malformed)?;
    let (number, rest) = rest.split_first_chunk::<8>().ok_or(Malformed)?;
    let (count, body) = rest.split_first_chunk::<2>().ok_or(Malformed)?;
    let (number, count) = (u64::from_be_bytes(*number), u16::from_be_bytes(*count));
    let content = match count {
        0 => Content::Heartbeat,
        END => Content::End,
        _ => Content::Messages(count, body),
    };
    let is_whole = match content {
        Content::Messages(..) => {
            let taken: usize = messages(body).map(|message| 2 + message.len()).sum();
            messages(body).count() == usize::from(count) && taken == body.len()
        }
        Content::Heartbeat | Content::End => body.is_empty(),
    };
    let fits = number > 0 && number.checked_add(u64::from(count)).is_some();
    if is_whole && fits { Ok(Datagram { session: *session, number, content }) } else { Err(Malformed) }
}

/// Makes datagrams of messages.
pub struct Packer {
    bytes: Vec<u8>,
    /// Of the next message.
    number: u64,
    count: u16,
}

impl Packer {
    pub fn new(session: SessionName) -> Packer {
        let mut bytes = session.to_vec();
        bytes.resize(HEADER_BYTES, 0);
        Packer { bytes, number: 1, count: 0 }
    }

    /// Whether a message of this length fits behind those that are in it. One that fits in none is sent alone.
    pub fn has_room(&self, length: usize) -> bool {
        self.count == 0 || (self.bytes.len() + 2 + length <= DATAGRAM_BYTES_MAX && self.count < END - 1)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn push(&mut self, message: &[u8]) {
        let length = u16::try_from(message.len()).expect("a line of the feed is shorter than 64 KiB");
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(message);
        self.count += 1;
    }

    /// Hands the datagram to `send` and begins the next one.
    pub fn send<T>(&mut self, send: impl FnOnce(&[u8]) -> T) -> T {
        let count = self.count;
        self.send_with(count, send)
    }

    pub fn send_end<T>(&mut self, send: impl FnOnce(&[u8]) -> T) -> T {
        assert!(self.is_empty(), "the messages go first");
        self.send_with(END, send)
    }

    fn send_with<T>(&mut self, count: u16, send: impl FnOnce(&[u8]) -> T) -> T {
        self.bytes[SESSION_BYTES..SESSION_BYTES + 8].copy_from_slice(&self.number.to_be_bytes());
        self.bytes[SESSION_BYTES + 8..HEADER_BYTES].copy_from_slice(&count.to_be_bytes());
        let sent = send(&self.bytes);
        self.number += u64::from(std::mem::take(&mut self.count));
        self.bytes.truncate(HEADER_BYTES);
        sent
    }
}

/// What came, and what did not.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub datagrams: u64,
    /// In order, each once.
    pub messages: u64,
    pub gaps: u64,
    pub lost_messages: u64,
    /// Messages that had come before, or were given up.
    pub repeated_messages: u64,
    /// Datagrams that came before one that was sent earlier.
    pub early_datagrams: u64,
    pub malformed_datagrams: u64,
    pub foreign_datagrams: u64,
}

/// Puts datagrams in order.
pub struct Sequencer {
    session: Option<SessionName>,
    /// Of the next message.
    next: u64,
    /// By the number of their first message: when they came, and their bytes.
    held: BTreeMap<u64, (Instant, Box<[u8]>)>,
    held_bytes: usize,
    /// There are messages up to here, as heartbeats and the end say.
    known: u64,
    has_end: bool,
    /// The message that is missing, and since when that is known.
    missing: Option<(u64, Instant)>,
    pub counts: Counts,
}

impl Sequencer {
    /// Goes on behind what an earlier run has.
    pub fn new(before: Option<(SessionName, u64)>) -> Sequencer {
        Sequencer {
            session: before.map(|(session, _)| session),
            next: before.map_or(1, |(_, next)| next),
            held: BTreeMap::new(),
            held_bytes: 0,
            known: 0,
            has_end: false,
            missing: None,
            counts: Counts::default(),
        }
    }

    pub fn session(&self) -> Option<SessionName> {
        self.session
    }

    /// Whether everything up to the feed's end has come or was given up.
    pub fn is_over(&self) -> bool {
        self.has_end && self.next >= self.known
    }

    /// Takes a datagram; `deliver` gets what is next, with its numbers.
    pub fn take(&mut self, bytes: &[u8], now: Instant, deliver: &mut impl FnMut(u64, &[u8])) {
        self.counts.datagrams += 1;
        let Ok(datagram) = parse(bytes) else {
            self.counts.malformed_datagrams += 1;
            return;
        };
        if *self.session.get_or_insert(datagram.session) != datagram.session {
            self.counts.foreign_datagrams += 1;
            return;
        }
        let number = datagram.number;
        match datagram.content {
            Content::Messages(_, body) if number <= self.next => {
                self.pass(number, body, deliver);
                self.pass_held(deliver);
            }
            Content::Messages(..) => self.hold(number, bytes, now),
            Content::Heartbeat => self.known = self.known.max(number),
            Content::End => {
                self.known = self.known.max(number);
                self.has_end = true;
            }
        }
        self.note_missing(now);
        while self.held_bytes > HELD_BYTES_MAX {
            self.give_up(deliver);
        }
        self.note_missing(now);
    }

    /// Gives up what is missing for too long. The gap, if there is one.
    pub fn look(&mut self, now: Instant, deliver: &mut impl FnMut(u64, &[u8])) -> Option<Range<u64>> {
        let (_, since) = self.missing?;
        if now.saturating_duration_since(since) < PATIENCE {
            return None;
        }
        let gap = self.give_up(deliver);
        self.note_missing(now);
        Some(gap)
    }

    fn pass(&mut self, first: u64, body: &[u8], deliver: &mut impl FnMut(u64, &[u8])) {
        for (number, message) in (first..).zip(messages(body)) {
            if number < self.next {
                self.counts.repeated_messages += 1;
            } else {
                self.counts.messages += 1;
                self.next = number + 1;
                deliver(number, message);
            }
        }
    }

    fn pass_held(&mut self, deliver: &mut impl FnMut(u64, &[u8])) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() <= self.next
        {
            let (number, (_, bytes)) = entry.remove_entry();
            self.held_bytes -= bytes.len();
            self.pass(number, &bytes[HEADER_BYTES..], deliver);
        }
    }

    fn hold(&mut self, number: u64, bytes: &[u8], now: Instant) {
        match self.held.get(&number) {
            Some((_, held)) if held.len() >= bytes.len() => {
                let count = u16::from_be_bytes([bytes[HEADER_BYTES - 2], bytes[HEADER_BYTES - 1]]);
                self.counts.repeated_messages += u64::from(count);
            }
            _ => {
                self.counts.early_datagrams += 1;
                self.held_bytes += bytes.len();
                let came = self.held.get(&number).map_or(now, |(came, _)| *came);
                let before = self.held.insert(number, (came, bytes.into()));
                self.held_bytes -= before.map_or(0, |(_, before)| before.len());
            }
        }
    }

    /// Each gap has its own time: the one before it may have been filled just now.
    fn note_missing(&mut self, now: Instant) {
        if self.held.is_empty() && self.known <= self.next {
            self.missing = None;
        } else if self.missing.is_none_or(|(number, _)| number != self.next) {
            let since = self.held.first_key_value().map_or(now, |(_, (came, _))| *came);
            self.missing = Some((self.next, since));
        }
    }

    fn give_up(&mut self, deliver: &mut impl FnMut(u64, &[u8])) -> Range<u64> {
        let to = self.held.first_key_value().map_or(self.known, |(number, _)| *number);
        let gap = self.next..to;
        self.counts.gaps += 1;
        self.counts.lost_messages += gap.end - gap.start;
        self.next = to;
        self.pass_held(deliver);
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionName = *b"0000000001";

    /// Datagrams of the messages `1`, `2`, ... with so many in each.
    fn datagrams(counts: &[usize]) -> Vec<Vec<u8>> {
        let mut packer = Packer::new(SESSION);
        let mut number = 0;
        let one = |count: &usize| {
            for _ in 0..*count {
                number += 1;
                packer.push(format!("{number}").as_bytes());
            }
            packer.send(<[u8]>::to_vec)
        };
        counts.iter().map(one).collect()
    }

    fn end(after: u64) -> Vec<u8> {
        let mut packer = Packer::new(SESSION);
        packer.number = after + 1;
        packer.send_end(<[u8]>::to_vec)
    }

    struct Heard {
        sequencer: Sequencer,
        numbers: Vec<u64>,
        start: Instant,
    }

    impl Heard {
        fn new() -> Heard {
            Heard { sequencer: Sequencer::new(None), numbers: Vec::new(), start: Instant::now() }
        }

        fn take(&mut self, bytes: &[u8], at_ms: u64) {
            let numbers = &mut self.numbers;
            let now = self.start + Duration::from_millis(at_ms);
            self.sequencer.take(bytes, now, &mut |number, message| {
                assert_eq!(message, number.to_string().as_bytes());
                numbers.push(number);
            });
        }

        fn look(&mut self, at_ms: u64) -> Option<Range<u64>> {
            let numbers = &mut self.numbers;
            self.sequencer.look(self.start + Duration::from_millis(at_ms), &mut |number, _| numbers.push(number))
        }
    }

    #[test]
    fn order_and_copies_do_not_matter() {
        let sent = datagrams(&[1, 3, 2, 4, 1, 1, 5]);
        let mut seed = 7u64;
        for _ in 0..500 {
            let mut order: Vec<usize> = (0..sent.len()).chain(0..sent.len()).collect();
            for at in (1..order.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(at, (seed >> 33) as usize % (at + 1));
            }
            let mut heard = Heard::new();
            order.iter().for_each(|&at| heard.take(&sent[at], 0));
            assert_eq!(heard.numbers, (1..=17).collect::<Vec<u64>>());
            let counts = heard.sequencer.counts;
            assert_eq!((counts.messages, counts.gaps, counts.repeated_messages), (17, 0, 17), "{counts:?}");
            assert_eq!(heard.look(1_000), None);
        }
    }

    #[test]
    fn what_does_not_come_is_a_gap_once_the_patience_ends() {
        let sent = datagrams(&[2, 2, 2, 2]);
        let mut heard = Heard::new();
        heard.take(&sent[0], 0);
        heard.take(&sent[2], 10);
        heard.take(&sent[3], 20);
        assert_eq!(heard.look(59), None);
        assert_eq!(heard.numbers, [1, 2]);
        assert_eq!(heard.look(60), Some(3..5));
        assert_eq!(heard.numbers, [1, 2, 5, 6, 7, 8]);
        heard.take(&sent[1], 70);
        let counts = heard.sequencer.counts;
        assert_eq!((counts.gaps, counts.lost_messages, counts.repeated_messages), (1, 2, 2), "too late");
        assert_eq!(heard.numbers.len(), 6);
    }

    /// Something is missing at any time, and nothing for long.
    #[test]
    fn each_gap_has_its_own_time() {
        let sent = datagrams(&[1; 40]);
        let mut heard = Heard::new();
        // The second before the first, the fourth before the third: each gap is filled 15 ms later, when the next one is known already.
        let order = (0..40).map(|at| {
            if at == 0 {
                1
            } else if at % 2 == 1 {
                (at + 2).min(39)
            } else {
                at - 2
            }
        });
        for (turn, at) in (0..).zip(order) {
            assert_eq!(heard.look(turn * 10), None, "turn {turn}");
            heard.take(&sent[at], turn * 10);
        }
        heard.take(&sent[38], 400);
        let counts = heard.sequencer.counts;
        assert_eq!((heard.numbers.len(), counts.gaps, counts.lost_messages), (40, 0, 0), "{counts:?}");
    }

    #[test]
    fn the_end_tells_what_is_missing_before_it() {
        let sent = datagrams(&[2, 3]);
        let mut heard = Heard::new();
        heard.take(&sent[0], 0);
        heard.take(&end(5), 0);
        assert!(!heard.sequencer.is_over());
        assert_eq!(heard.look(50), Some(3..6));
        assert!(heard.sequencer.is_over());
        let mut heard = Heard::new();
        heard.take(&end(5), 0);
        heard.take(&sent[1], 1);
        heard.take(&sent[0], 2);
        assert!(heard.sequencer.is_over());
        assert_eq!((heard.numbers.len(), heard.sequencer.counts.gaps), (5, 0));
    }

    #[test]
    fn other_sessions_and_rubbish_are_counted() {
        let sent = datagrams(&[1, 1]);
        let mut heard = Heard::new();
        heard.take(&sent[0], 0);
        let mut foreign = sent[1].clone();
        foreign[0] ^= 1;
        heard.take(&foreign, 0);
        heard.take(b"rubbish", 0);
        heard.take(&sent[1], 0);
        let counts = heard.sequencer.counts;
        assert_eq!((counts.foreign_datagrams, counts.malformed_datagrams, counts.messages), (1, 1, 2));
    }

    /// A flood behind a gap is kept to the limit, and the gap is given up early.
    #[test]
    fn what_waits_is_limited() {
        let mut packer = Packer::new(SESSION);
        packer.number = 2;
        let mut heard = Heard::new();
        let mut sequencer = Sequencer::new(None);
        for _ in 0..10_000 {
            packer.push(&[b'x'; 1_300]);
            packer.send(|bytes| sequencer.take(bytes, heard.start, &mut |number, _| heard.numbers.push(number)));
            assert!(sequencer.held_bytes <= HELD_BYTES_MAX);
        }
        assert_eq!((sequencer.counts.gaps, sequencer.counts.lost_messages), (1, 1));
        assert_eq!(heard.numbers, (2..=10_001).collect::<Vec<u64>>());
    }

    /// Every cut and every lie of a length is refused.
    #[test]
    fn datagrams_that_lie_are_refused() {
        let whole = datagrams(&[3]).remove(0);
        assert!(parse(&whole).is_ok());
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Err(Malformed), "cut at {cut}");
        }
        for at in HEADER_BYTES - 2..whole.len() {
            for value in [0, 1, 2, 4, 0x7f, 0x80, 0xff] {
                let mut bent = whole.clone();
                bent[at] = value;
                // What is a message's text may be anything.
                if let Ok(datagram) = parse(&bent) {
                    assert!(matches!(datagram.content, Content::Messages(3, body) if messages(body).count() == 3));
                }
            }
        }
        let mut last = whole.clone();
        last[SESSION_BYTES..SESSION_BYTES + 8].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(parse(&last), Err(Malformed), "numbers end");
        let mut zero = whole;
        zero[SESSION_BYTES..SESSION_BYTES + 8].copy_from_slice(&[0; 8]);
        assert_eq!(parse(&zero), Err(Malformed), "numbers begin with 1");
    }
}
