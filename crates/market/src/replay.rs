//! Which messages are this applier's, in which order, and when are they due?
//!
//! The day is copied `clones` times; clone `k` runs `k` milliseconds late, so that its messages fall between the
//! original's as other stocks' messages would. Every applier walks the same stream of batches, merges the clones by
//! their shifted times, and keeps the messages of its own codes.
//!
//! Invariants:
//! 1. A code's messages come in the feed's order.
//! 2. The sequence an applier sees is a function of feed, clones and appliers alone: its n-th message is the same in
//!    every run, which is what the stored positions count.
//! 3. Shifted times never go back.

use crate::calendar::Timestamp;
use crate::listing::{Listing, clone_code, code_hash};
use crate::message::{Message, StockId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

/// Messages that travel together from the reader to the appliers.
pub const BATCH_MESSAGES: usize = 512;

/// How late a clone runs behind the clone before it.
const CLONE_SHIFT_MICROS: i64 = 1_000;

pub type Batch = Arc<[Message]>;

/// What the reader says.
pub enum Delivery {
    Batch(Batch),
    End,
}

/// What a reader has for the appliers: every batch goes to each.
pub struct Batches {
    senders: Vec<SyncSender<Delivery>>,
    messages: Vec<Message>,
}

impl Batches {
    pub fn new(senders: Vec<SyncSender<Delivery>>) -> Batches {
        Batches { senders, messages: Vec::with_capacity(BATCH_MESSAGES) }
    }

    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
        if self.messages.len() == BATCH_MESSAGES {
            self.flush();
        }
    }

    /// Hands on what there is.
    pub fn flush(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let batch: Batch = self.messages.as_slice().into();
        self.messages.clear();
        for sender in &self.senders {
            // An applier that is gone has said why, or was told to stop.
            let _ = sender.send(Delivery::Batch(batch.clone()));
        }
    }

    pub fn end(&mut self) {
        self.flush();
        for sender in &self.senders {
            let _ = sender.send(Delivery::End);
        }
    }
}

/// Every code's applier.
pub struct Assignment {
    clones: u32,
    /// By stock, then clone.
    applier: Vec<u32>,
}

impl Assignment {
    pub fn new(listing: &Listing, clones: u32, appliers: u32) -> Assignment {
        let codes = listing.in_feed().iter().flat_map(|stock| (0..clones).map(|clone| clone_code(&stock.code, clone)));
        Assignment { clones, applier: codes.map(|code| (code_hash(&code) % u64::from(appliers)) as u32).collect() }
    }

    /// The place of a cloned code among all of them.
    pub fn place(&self, stock: StockId, clone: u32) -> usize {
        stock.index() * self.clones as usize + clone as usize
    }

    pub fn applier(&self, stock: StockId, clone: u32) -> u32 {
        self.applier[self.place(stock, clone)]
    }
}

pub fn shifted(ts: Timestamp, clone: u32) -> Timestamp {
    Timestamp(ts.0 + i64::from(clone) * CLONE_SHIFT_MICROS)
}

/// The reader went away without saying that the feed ended.
#[derive(Debug)]
pub struct ReaderGone;

/// Where a clone stands in the stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    batch: u64,
    at: usize,
}

pub struct Replay {
    deliveries: Receiver<Delivery>,
    assignment: Arc<Assignment>,
    applier: u32,
    /// Batches that the slowest clone still needs; the first has this number.
    window: VecDeque<Batch>,
    window_start: u64,
    ended: bool,
    cursors: Vec<Cursor>,
    /// The next time of each clone that is not at its end.
    next: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// The clone whose messages of one moment are being given.
    current: Option<(Timestamp, u32)>,
}

/// A message of this applier, its time shifted as its clone's is.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub message: Message,
    pub clone: u32,
}

impl Replay {
    pub fn new(
        deliveries: Receiver<Delivery>,
        assignment: Arc<Assignment>,
        applier: u32,
    ) -> Result<Replay, ReaderGone> {
        let clones = assignment.clones;
        let mut replay = Replay {
            deliveries,
            assignment,
            applier,
            window: VecDeque::new(),
            window_start: 0,
            ended: false,
            cursors: vec![Cursor { batch: 0, at: 0 }; clones as usize],
            next: BinaryHeap::new(),
            current: None,
        };
        for clone in 0..clones {
            replay.enqueue(clone)?;
        }
        Ok(replay)
    }

    /// The next message of this applier, or `None` when the day is over.
    pub fn next_arrival(&mut self) -> Result<Option<Arrival>, ReaderGone> {
        loop {
            let (ts, clone) = match self.current {
                Some(current) => current,
                None => match self.next.pop() {
                    Some(Reverse(earliest)) => *self.current.insert(earliest),
                    None => return Ok(None),
                },
            };
            match self.peek(clone)? {
                Some(message) if shifted(message.ts, clone) == ts => {
                    self.cursors[clone as usize].at += 1;
                    if self.assignment.applier(message.stock, clone) == self.applier {
                        let message = Message { ts, ..message };
                        return Ok(Some(Arrival { message, clone }));
                    }
                }
                _ => {
                    self.current = None;
                    self.enqueue(clone)?;
                }
            }
        }
    }

    fn enqueue(&mut self, clone: u32) -> Result<(), ReaderGone> {
        if let Some(message) = self.peek(clone)? {
            self.next.push(Reverse((shifted(message.ts, clone), clone)));
        }
        Ok(())
    }

    /// The message a clone stands before.
    fn peek(&mut self, clone: u32) -> Result<Option<Message>, ReaderGone> {
        loop {
            let cursor = &mut self.cursors[clone as usize];
            let place = (cursor.batch - self.window_start) as usize;
            match self.window.get(place) {
                Some(batch) => match batch.get(cursor.at) {
                    Some(message) => return Ok(Some(*message)),
                    None => *cursor = Cursor { batch: cursor.batch + 1, at: 0 },
                },
                None if self.ended => return Ok(None),
                None => self.receive()?,
            }
        }
    }

    /// Whether the next message has not come yet.
    pub fn would_wait(&mut self) -> bool {
        let (start, window) = (self.window_start, &self.window);
        let is_behind = |cursor: &Cursor| match window.get((cursor.batch - start) as usize) {
            Some(batch) => cursor.at == batch.len() && (cursor.batch - start) as usize + 1 == window.len(),
            None => true,
        };
        if self.ended || !self.cursors.iter().any(is_behind) {
            return false;
        }
        match self.deliveries.try_recv() {
            Ok(Delivery::Batch(batch)) => self.window.push_back(batch),
            Ok(Delivery::End) => self.ended = true,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => {}
        }
        false
    }

    fn receive(&mut self) -> Result<(), ReaderGone> {
        let slowest = self.cursors.iter().min().map_or(0, |cursor| cursor.batch);
        while self.window_start < slowest && self.window.pop_front().is_some() {
            self.window_start += 1;
        }
        match self.deliveries.recv() {
            Ok(Delivery::Batch(batch)) => self.window.push_back(batch),
            Ok(Delivery::End) => self.ended = true,
            Err(_) => return Err(ReaderGone),
        }
        Ok(())
    }
}

/// How fast the day passes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// As fast as messages are applied.
    Max,
    /// So many seconds of the feed in one second.
    Times(f64),
}

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let times: f64 = text.parse().map_err(|_| "a number or `max`".to_owned())?;
        if !(times.is_finite() && times > 0.0) {
            return Err("a positive number or `max`".to_owned());
        }
        Ok(Speed::Times(times))
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Speed::Max => f.write_str("max"),
            Speed::Times(times) => write!(f, "{times}"),
        }
    }
}

/// Turns feed time into wall time, from a moment that all appliers share.
#[derive(Clone, Copy)]
pub struct Pace {
    speed: Speed,
    /// This feed time is due at this moment.
    origin: (Timestamp, Instant),
}

impl Pace {
    pub fn new(speed: Speed, origin: (Timestamp, Instant)) -> Pace {
        Pace { speed, origin }
    }

    /// When a message of this time is due; `None`: at once, whatever the time.
    pub fn due(&self, ts: Timestamp) -> Option<Instant> {
        let Speed::Times(times) = self.speed else {
            return None;
        };
        let micros = (ts.0 - self.origin.0.0).max(0) as f64 / times;
        Some(self.origin.1 + Duration::from_micros(micros as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::DayPlan;
    use crate::message::Body;
    use std::collections::HashMap;
    use std::sync::mpsc::channel;

    const PLAN: DayPlan = DayPlan { seed: 3, stocks: 7, messages: 4_000 };

    fn messages() -> Vec<Message> {
        let mut generator = PLAN.start();
        std::iter::from_fn(|| generator.next_message()).collect()
    }

    fn replay(clones: u32, appliers: u32, applier: u32, end: bool) -> Replay {
        let (sender, receiver) = channel();
        for batch in messages().chunks(100) {
            sender.send(Delivery::Batch(batch.into())).expect("open");
        }
        if end {
            sender.send(Delivery::End).expect("open");
        }
        let assignment = Arc::new(Assignment::new(&PLAN.listing(), clones, appliers));
        Replay::new(receiver, assignment, applier).expect("the feed has messages")
    }

    fn arrivals(clones: u32, appliers: u32, applier: u32) -> Vec<Arrival> {
        let mut replay = replay(clones, appliers, applier, true);
        std::iter::from_fn(|| replay.next_arrival().expect("the reader ended")).collect()
    }

    #[test]
    fn one_applier_and_no_clones_see_the_feed() {
        let seen: Vec<Message> = arrivals(1, 1, 0).iter().map(|a| a.message).collect();
        assert_eq!(seen, messages());
    }

    #[test]
    fn appliers_share_the_clones_without_loss_and_keep_each_codes_order() {
        let mut by_code: HashMap<(StockId, u32), Vec<Body>> = HashMap::new();
        let mut owner: HashMap<(StockId, u32), u32> = HashMap::new();
        for applier in 0..3 {
            let arrivals = arrivals(5, 3, applier);
            assert!(arrivals.windows(2).all(|w| w[0].message.ts <= w[1].message.ts));
            for arrival in arrivals {
                let code = (arrival.message.stock, arrival.clone);
                assert_eq!(*owner.entry(code).or_insert(applier), applier);
                by_code.entry(code).or_default().push(arrival.message.body);
            }
        }
        let mut expected: HashMap<(StockId, u32), Vec<Body>> = HashMap::new();
        for message in messages() {
            for clone in 0..5 {
                let code = (message.stock, clone);
                expected.entry(code).or_default().push(message.body);
            }
        }
        assert_eq!(by_code, expected);
    }

    #[test]
    fn clones_run_behind_by_their_number_of_milliseconds() {
        let first = messages()[0].ts;
        for clone in 0..4u32 {
            let of_clone = arrivals(4, 1, 0).into_iter().find(|a| a.clone == clone);
            let ts = of_clone.expect("every clone has messages").message.ts;
            assert_eq!(ts.0, first.0 + i64::from(clone) * 1_000);
        }
    }

    #[test]
    fn a_reader_that_vanishes_is_not_the_end_of_the_day() {
        let mut replay = replay(2, 1, 0, false);
        let outcome = loop {
            match replay.next_arrival() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(gone) => break Some(gone),
            }
        };
        assert!(outcome.is_some());
    }

    #[test]
    fn the_window_does_not_grow_with_the_day() {
        let mut replay = replay(10, 1, 0, true);
        let mut largest = 0;
        while replay.next_arrival().expect("the reader ended").is_some() {
            largest = largest.max(replay.window.len());
        }
        assert!(largest <= 4, "{largest} batches of 40 were kept");
    }

    #[test]
    fn speeds_are_read_and_pace_the_feed() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("8".parse(), Ok(Speed::Times(8.0)));
        for bad in ["0", "-1", "fast", "inf", "NaN"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
        let start = Instant::now();
        let pace = Pace::new(Speed::Times(8.0), (Timestamp(1_000), start));
        let due = pace.due(Timestamp(8_001_000)).expect("paced");
        assert_eq!(due - start, Duration::from_secs(1));
        assert_eq!(Pace::new(Speed::Max, (Timestamp(0), start)).due(Timestamp(5)), None);
    }
}
