//! How do messages come from a socket? Datagrams, put in order, on disk, then lines of a feed like any other; and how they are sent.
//!
//! ```text
//! socket ─▶ receiver: sequencer ─▶ reader: spool, sync ─▶ lines ─▶ feed ─▶ batches ─▶ appliers
//! ```
//!
//! The receiver does nothing but receive, so that the kernel's buffer is emptied while the database opens or the reader waits for the disk. Which codes there are, and
//! what stands before the first message, comes from where it always comes (`--feed`, or the generated day); only the messages come from the socket.

use crate::datagram::{Counts, Packer, Sequencer, SessionName};
use crate::error::{MarketError, Result};
use crate::feed::{Feed, format_line};
use crate::lines::{FeedError, OnError, Reason, TextFile};
use crate::listing::Listing;
use crate::replay::{Batches, Pace, Speed};
use crate::source::Day;
use crate::spool::{Spool, SpoolReader};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the kernel may hold for us, if it lets us: a burst that the receiver does not keep up with.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// How soon a gap, or the end of the run, is noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Datagrams between the receiver and the reader: what comes while the database opens, or the disk is slow.
const PIECES_AHEAD: usize = 1 << 16;
/// What goes to disk together at most.
const SYNC_BYTES_MAX: usize = 1 << 20;
/// Gaps that are told one by one.
const GAPS_TOLD: u64 = 10;
/// The end is said so often, as it may be lost too.
const ENDS: u32 = 10;
const END_INTERVAL: Duration = Duration::from_millis(50);
/// A sender without a pace rests after so many datagrams: loopback has no other limit than the receiver's buffer.
const BURST: u64 = 32;
const BURST_REST: Duration = Duration::from_micros(500);

/// A feed that comes by itself, from when it is bound: what comes while the database opens waits here.
pub struct Live {
    receiver: Arc<Receiving>,
    thread: Option<JoinHandle<()>>,
    spool: PathBuf,
    /// For the one reader.
    arriving: Mutex<Option<(Spool, Receiver<Piece>)>>,
    skipped: AtomicU64,
}

struct Receiving {
    socket: UdpSocket,
    counts: Mutex<Counts>,
    failure: Mutex<Option<io::Error>>,
    stop: AtomicBool,
    /// Where gaps are told.
    tell: fn(&str),
}

/// What a datagram brought next, in order.
struct Piece {
    session: SessionName,
    messages: Vec<(u64, Vec<u8>)>,
}

impl Live {
    /// Begins to receive. An address of a group is joined.
    pub fn bind(address: SocketAddr, spool: &Path, tell: fn(&str)) -> Result<Live> {
        let failed = |error: io::Error| MarketError::Listen(format!("cannot receive on {address}: {error}"));
        let socket = bind(address).map_err(failed)?;
        socket.set_read_timeout(Some(LOOK_INTERVAL)).map_err(failed)?;
        let (file, before) = Spool::open(spool).map_err(|error| MarketError::file(spool, error))?;
        let stop = AtomicBool::new(false);
        let receiver = Arc::new(Receiving { socket, counts: Mutex::default(), failure: Mutex::default(), stop, tell });
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let receiving = receiver.clone();
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || {
                let received = receiving.run(Sequencer::new(before), sender);
                *locked(&receiving.failure) = received.err();
            })
            .map_err(failed)?;
        Ok(Live {
            receiver,
            thread: Some(thread),
            spool: spool.to_owned(),
            arriving: Mutex::new(Some((file, pieces))),
            skipped: AtomicU64::new(0),
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.receiver.socket.local_addr()
    }

    /// Of this run.
    pub fn counts(&self) -> Counts {
        *locked(&self.receiver.counts)
    }

    /// Lines that were refused, in this run and before.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// What was received, as a feed.
    pub fn received(&self, listing: &Arc<Listing>, on_error: OnError) -> std::result::Result<Feed, FeedError> {
        let spooled = self.spooled().map_err(|error| FeedError {
            file: self.spool.clone(),
            line: 0,
            reason: Reason::Io(error.to_string()),
        })?;
        Ok(self.feed(Box::new(spooled), listing, on_error))
    }

    fn spooled(&self) -> io::Result<BufReader<SpoolLines>> {
        let spool = SpoolReader::open(&self.spool)?;
        Ok(BufReader::new(SpoolLines { spool, message: Vec::new(), line: Line::default() }))
    }

    fn feed(&self, input: Box<dyn BufRead + Send>, listing: &Arc<Listing>, on_error: OnError) -> Feed {
        Feed::new(TextFile::new(input, &self.spool), listing.clone(), on_error)
    }

    /// Reads to the feed's end, or until `stop`: first what an earlier run received, then what comes.
    pub fn read(&self, listing: &Arc<Listing>, on_error: OnError, batches: Batches, stop: &AtomicBool) -> Result<()> {
        let (spool, pieces) = locked(&self.arriving).take().expect("a feed is read once");
        let earlier = self.spooled().map_err(|error| MarketError::file(&self.spool, error))?;
        let batches = Arc::new(Mutex::new(batches));
        let lines = LiveLines { pieces, spool, line: Line::default(), batches: batches.clone() };
        let mut feed = self.feed(Box::new(BufReader::new(earlier.chain(lines))), listing, on_error);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                // Whoever stops the run stops the receiver, and that ends the lines.
                while !ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    std::thread::park_timeout(LOOK_INTERVAL);
                }
                self.receiver.stop.store(true, Ordering::Relaxed);
            });
            let read = read_all(&mut feed, &batches);
            ended.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            read
        })?;
        self.skipped.store(feed.skipped, Ordering::Relaxed);
        if let Some(error) = locked(&self.receiver.failure).take() {
            return Err(MarketError::Listen(format!("receiving the feed: {error}")));
        }
        locked(&batches).end();
        Ok(())
    }
}

fn read_all(feed: &mut Feed, batches: &Mutex<Batches>) -> Result<()> {
    while let Some(message) = feed.next_message()? {
        locked(batches).push(message);
    }
    Ok(())
}

impl Drop for Live {
    fn drop(&mut self) {
        self.receiver.stop.store(true, Ordering::Relaxed);
        // One that waits for a reader goes on.
        locked(&self.arriving).take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            (self.receiver.tell)("the receiver of the feed panicked");
        }
    }
}

/// Up to when all that came was looked at. What is missing may lie in the kernel's buffer behind what is read, however long this thread stood still: it is given up
/// only once all that had come by the end of its time was read.
struct Seen {
    up_to: Instant,
    /// All that had come by then is read after so many datagrams more, if the buffer is not found empty before.
    marked: (Instant, u64),
    buffer_datagrams: u64,
}

/// What a datagram takes of the kernel's buffer at least: its own account of one.
const BUFFERED_BYTES_MIN: u64 = 256;

impl Seen {
    fn new(buffer_bytes: u64, now: Instant) -> Seen {
        let buffer_datagrams = buffer_bytes / BUFFERED_BYTES_MIN;
        Seen { up_to: now, marked: (now, buffer_datagrams), buffer_datagrams }
    }

    /// Nothing was there at that time.
    fn note_empty(&mut self, asked: Instant) {
        self.up_to = asked;
        self.marked = (asked, self.buffer_datagrams);
    }

    fn note_datagram(&mut self, now: Instant) {
        match &mut self.marked {
            (at, 0) => {
                self.up_to = *at;
                self.marked = (now, self.buffer_datagrams);
            }
            (_, left) => *left -= 1,
        }
    }
}

impl Receiving {
    /// Receives until the feed's end, or until nobody wants more.
    fn run(&self, mut sequencer: Sequencer, sender: SyncSender<Piece>) -> io::Result<()> {
        let mut bytes = vec![0; 1 << 16];
        let buffer_bytes = socket2::SockRef::from(&self.socket).recv_buffer_size()? as u64;
        let mut seen = Seen::new(buffer_bytes, Instant::now());
        while !sequencer.is_over() && !self.stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let received = match self.socket.recv(&mut bytes) {
                Ok(count) => Some(count),
                Err(error) if is_pause(&error) => None,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            match received {
                Some(_) => seen.note_datagram(now),
                None => seen.note_empty(asked),
            }
            let mut messages = Vec::new();
            let mut keep = |number: u64, message: &[u8]| messages.push((number, message.to_vec()));
            if let Some(count) = received {
                sequencer.take(&bytes[..count], now, &mut keep);
            }
            let gap = sequencer.look(seen.up_to, &mut keep);
            *locked(&self.counts) = sequencer.counts;
            if let Some(gap) = gap {
                self.tell_gap(&gap, sequencer.counts.gaps);
            }
            if let (false, Some(session)) = (messages.is_empty(), sequencer.session())
                && sender.send(Piece { session, messages }).is_err()
            {
                // The reader is gone, and says why.
                break;
            }
        }
        Ok(())
    }

    fn tell_gap(&self, gap: &Range<u64>, gaps: u64) {
        if gaps <= GAPS_TOLD {
            (self.tell)(&format!("gap in the feed: messages {} to {} did not come", gap.start, gap.end - 1));
        }
        if gaps == GAPS_TOLD {
            (self.tell)("further gaps are only counted");
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is whole between any two steps.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing came in time; or an earlier answer of ours, which we never give, found nobody.
fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::WouldBlock | K::TimedOut | K::Interrupted | K::ConnectionRefused)
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let group = address.ip().is_multicast();
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::DGRAM, None)?;
    if group {
        // Several receivers of a host may join one group.
        socket.set_reuse_address(true)?;
    }
    // The kernel gives what it allows (net.core.rmem_max).
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    let socket = UdpSocket::from(socket);
    match address.ip() {
        IpAddr::V4(ip) if group => socket.join_multicast_v4(&ip, &Ipv4Addr::UNSPECIFIED)?,
        IpAddr::V6(ip) if group => socket.join_multicast_v6(&ip, 0)?,
        _ => {}
    }
    Ok(socket)
}

// ---- lines

/// A message on its way out of a reader.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    read: usize,
}

impl Line {
    fn is_read(&self) -> bool {
        self.read == self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.read = 0;
    }

    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.bytes.push(b'\n');
    }

    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.bytes.len() - self.read);
        buffer[..count].copy_from_slice(&self.bytes[self.read..self.read + count]);
        self.read += count;
        count
    }
}

/// A spool's messages, each a line.
struct SpoolLines {
    spool: Option<SpoolReader>,
    message: Vec<u8>,
    line: Line,
}

impl Read for SpoolLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.is_read() {
            self.line.clear();
            let Some(spool) = &mut self.spool else { return Ok(0) };
            match spool.next(&mut self.message)? {
                Some(_) => self.line.push(&self.message),
                None => return Ok(0),
            }
        }
        Ok(self.line.read(buffer))
    }
}

/// What comes, each message a line, once it is on disk.
struct LiveLines {
    pieces: Receiver<Piece>,
    spool: Spool,
    line: Line,
    /// Handed on before waiting: nothing stays here because nothing comes.
    batches: Arc<Mutex<Batches>>,
}

impl Read for LiveLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.is_read() {
            self.line.clear();
            let first = match self.pieces.try_recv() {
                Ok(piece) => Some(piece),
                Err(TryRecvError::Disconnected) => None,
                Err(TryRecvError::Empty) => {
                    locked(&self.batches).flush();
                    self.pieces.recv().ok()
                }
            };
            let Some(first) = first else { return Ok(0) };
            self.add(&first);
            while self.line.bytes.len() < SYNC_BYTES_MAX
                && let Ok(piece) = self.pieces.try_recv()
            {
                self.add(&piece);
            }
            self.spool.sync()?;
        }
        Ok(self.line.read(buffer))
    }
}

impl LiveLines {
    fn add(&mut self, piece: &Piece) {
        for (number, message) in &piece.messages {
            self.spool.add(piece.session, *number, message);
            self.line.push(message);
        }
    }
}

// ---- sending

/// What was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    pub messages: u64,
    pub datagrams: u64,
}

/// Sends the day's messages as a feed of a socket, at its pace, and its end.
pub fn send(day: &Day, to: SocketAddr, speed: Speed) -> Result<Sent> {
    let failed = |error: io::Error| MarketError::Listen(format!("cannot send to {to}: {error}"));
    let from: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((from, 0)).map_err(failed)?;
    let mut sender =
        Sender { socket, to, packer: Packer::new(session_name(day)), sent: Sent { messages: 0, datagrams: 0 } };
    let mut messages = day.messages()?;
    let (mut line, mut pace) = (String::new(), None);
    while let Some(message) = messages.next_message()? {
        let pace = pace.get_or_insert_with(|| Pace::new(speed, (message.ts, Instant::now())));
        if let Some(due) = pace.due(message.ts) {
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                sender.flush().map_err(failed)?;
                std::thread::sleep(wait);
            }
        }
        line.clear();
        format_line(&message, &day.listing.stock(message.stock).code, &mut line);
        sender.push(line.as_bytes(), speed).map_err(failed)?;
    }
    sender.flush().map_err(failed)?;
    for _ in 0..ENDS {
        sender.packer.send_end(|bytes| sender.socket.send_to(bytes, to)).or_else(nobody_there).map_err(failed)?;
        std::thread::sleep(END_INTERVAL);
    }
    Ok(sender.sent)
}

/// One day has one name, so that a receiver that begins again knows what it has.
fn session_name(day: &Day) -> SessionName {
    let mut name = [b'0'; 10];
    let text = format!("{:010}", day.summary.fingerprint % 10_000_000_000);
    name.copy_from_slice(text.as_bytes());
    name
}

struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    packer: Packer,
    sent: Sent,
}

/// Who does not listen loses what is sent.
fn nobody_there(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::ConnectionRefused { Ok(0) } else { Err(error) }
}

impl Sender {
    fn push(&mut self, message: &[u8], speed: Speed) -> io::Result<()> {
        if !self.packer.has_room(message.len()) {
            self.flush()?;
            if speed == Speed::Max && self.sent.datagrams.is_multiple_of(BURST) {
                std::thread::sleep(BURST_REST);
            }
        }
        self.packer.push(message);
        self.sent.messages += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.packer.is_empty() {
            return Ok(());
        }
        self.packer.send(|bytes| self.socket.send_to(bytes, self.to)).or_else(nobody_there)?;
        self.sent.datagrams += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(count: usize) -> Vec<Vec<u8>> {
        let mut packer = Packer::new(*b"0000000007");
        let one = |number: usize| {
            packer.push(number.to_string().as_bytes());
            packer.send(<[u8]>::to_vec)
        };
        (1..=count).map(one).collect()
    }

    /// The receiver is held up behind a message, as by a full channel or another's turn on its core, while what is missing arrives.
    #[test]
    fn what_arrived_while_nobody_looked_is_no_gap() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        socket.set_read_timeout(Some(LOOK_INTERVAL)).expect("a socket");
        let to = socket.local_addr().expect("bound");
        let receiver = Arc::new(Receiving {
            socket,
            counts: Mutex::default(),
            failure: Mutex::default(),
            stop: AtomicBool::new(false),
            tell: |_| {},
        });
        let (sender, pieces) = sync_channel(0);
        let running = receiver.clone();
        let thread = std::thread::spawn(move || running.run(Sequencer::new(None), sender));
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let sent = datagrams(5);
        let send = |number: usize| _ = from.send_to(&sent[number - 1], to).expect("loopback");
        // The second is missing from here on; the first waits to be taken.
        [3, 1].into_iter().for_each(send);
        std::thread::sleep(crate::datagram::PATIENCE * 2);
        [4, 5, 2].into_iter().for_each(send);
        let mut numbers = Vec::new();
        while numbers.len() < 5 {
            let piece = pieces.recv_timeout(Duration::from_secs(10)).expect("all came");
            numbers.extend(piece.messages.iter().map(|(number, _)| *number));
        }
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        assert_eq!(locked(&receiver.counts).gaps, 0);
        // What does not come at all is still given up.
        let more = datagrams(9);
        [7, 9].into_iter().for_each(|number: usize| _ = from.send_to(&more[number - 1], to).expect("loopback"));
        while numbers.len() < 7 {
            let piece = pieces.recv_timeout(Duration::from_secs(10)).expect("it is given up");
            numbers.extend(piece.messages.iter().map(|(number, _)| *number));
        }
        assert_eq!(numbers[5..], [7, 9]);
        receiver.stop.store(true, Ordering::Relaxed);
        thread.join().expect("it does not panic").expect("a socket");
    }

    /// A buffer that is never found empty is read through all the same.
    #[test]
    fn a_flood_does_not_hide_a_gap() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut seen = Seen::new(10 * BUFFERED_BYTES_MIN, start);
        for turn in 1..=10 {
            seen.note_datagram(at(turn));
            assert_eq!(seen.up_to, start);
        }
        seen.note_datagram(at(11));
        assert_eq!(seen.up_to, start, "what was there at first is read now");
        (12..=22).for_each(|turn| seen.note_datagram(at(turn)));
        assert_eq!(seen.up_to, at(11));
        seen.note_empty(at(30));
        assert_eq!(seen.up_to, at(30));
    }
}
