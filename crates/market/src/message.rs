//! What can the exchange say? Three kinds of message, in the form the appliers and the model read.
//!
//! Prices are integers of 1/10000, the feed's finest step and the scale of every price column; amounts (price times
//! quantity) have the same scale in 64 bits.

use crate::calendar::Timestamp;

/// Levels on each side of a book.
pub const LEVELS: usize = 10;

/// The scale of prices and amounts: digits after the point.
pub const PRICE_SCALE: u32 = 4;

/// `numeric(9,4)`: the largest price a column can hold, 99999.9999.
pub const PRICE_MAX: i32 = 999_999_999;

/// The longest code: what a record holds inline.
pub const CODE_BYTES_MAX: usize = 12;

/// A stock's place in [`crate::listing::Listing`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StockId(pub u32);

impl StockId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The trading status, by its own name: `TRADE`, `OCALL`, ...
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    bytes: [u8; CODE_BYTES_MAX],
    length: u8,
}

impl Status {
    pub const TRADE: Status = Status::literal(b"TRADE");
    pub const OPENING_CALL: Status = Status::literal(b"OCALL");

    const fn literal(text: &[u8]) -> Status {
        let mut bytes = [0; CODE_BYTES_MAX];
        let mut i = 0;
        while i < text.len() {
            bytes[i] = text[i];
            i += 1;
        }
        Status { bytes, length: text.len() as u8 }
    }

    /// `None` if empty, longer than a record holds inline, or not printable ASCII.
    pub fn new(text: &[u8]) -> Option<Status> {
        let fits = (1..=CODE_BYTES_MAX).contains(&text.len());
        (fits && text.iter().all(u8::is_ascii_graphic)).then(|| Status::literal(text))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// Trades are settled only in this state.
    pub fn trades(&self) -> bool {
        *self == Status::TRADE
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

/// Ten levels a side, best first; an absent level is price 0, quantity 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Book {
    pub bid_price: [i32; LEVELS],
    pub bid_quantity: [i32; LEVELS],
    pub ask_price: [i32; LEVELS],
    pub ask_quantity: [i32; LEVELS],
}

impl Book {
    pub fn bid_total(&self) -> i64 {
        self.bid_quantity.iter().map(|&q| i64::from(q)).sum()
    }

    pub fn ask_total(&self) -> i64 {
        self.ask_quantity.iter().map(|&q| i64::from(q)).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trade {
    pub price: i32,
    pub quantity: i32,
    /// 1/10000, as the feed tells it: not always price times quantity, because a feed may sum up several fills.
    pub amount: i64,
    /// The code's how-manieth trade message of the day, from 1. With code and time it keys the history.
    pub seq: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    Status { status: Status, previous_close: i32 },
    Quote(Book),
    Trade(Trade),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    pub ts: Timestamp,
    pub stock: StockId,
    pub body: Body,
}

/// For counting per kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Status,
    Quote,
    Trade,
}

impl Kind {
    pub const COUNT: usize = 3;

    pub fn index(self) -> usize {
        self as usize
    }
}

impl Body {
    pub fn kind(&self) -> Kind {
        match self {
            Body::Status { .. } => Kind::Status,
            Body::Quote(_) => Kind::Quote,
            Body::Trade(_) => Kind::Trade,
        }
    }
}
