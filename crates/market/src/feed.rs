//! What does a line of the feed say?
//!
//! CSV, one message a line:
//!
//! | kind | fields |
//! |---|---|
//! | status | `ts,S,code,status,previous_close` |
//! | quote | `ts,Q,code`, then ten each of bid price, bid quantity, ask price, ask quantity |
//! | trade | `ts,T,code,price,quantity,amount` |
//!
//! Invariants:
//! 1. A line either becomes exactly one message or is refused with a reason.
//! 2. Accepted lines never go back in time.
//! 3. Every reading of one file gives the same messages: positions stored by a run stay valid.

use crate::calendar::Timestamp;
use crate::lines::{FeedError, LINE_BYTES_MAX, OnError, Reason, TextFile, check_code, decimal};
use crate::listing::Listing;
use crate::message::{Body, Book, LEVELS, Message, PRICE_MAX, Status, Trade};
use std::sync::Arc;

/// A parsed line that still names its stock by code; a trade's `seq` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    pub ts: Timestamp,
    pub code: &'a str,
    pub body: Body,
}

pub fn parse_line(line: &[u8]) -> Result<Line<'_>, Reason> {
    if line.is_empty() {
        return Err(Reason::Empty);
    }
    if line.len() as u64 >= LINE_BYTES_MAX {
        return Err(Reason::TooLong);
    }
    let mut fields = Fields { rest: Some(line), taken: 0 };
    let ts = fields.next().and_then(Timestamp::parse).ok_or(Reason::Timestamp)?;
    let expected = match fields.next() {
        Some(b"S") => 5,
        Some(b"Q") => 3 + 4 * LEVELS,
        Some(b"T") => 6,
        _ => return Err(Reason::Kind),
    };
    let found = line.iter().filter(|&&b| b == b',').count() + 1;
    if found != expected {
        return Err(Reason::Fields { expected, found });
    }
    let code = check_code(fields.required())?;
    let body = match expected {
        5 => Body::Status {
            status: Status::new(fields.required()).ok_or(Reason::Status)?,
            previous_close: fields.price()?,
        },
        6 => Body::Trade(Trade {
            price: fields.price()?,
            quantity: fields.quantity()?,
            amount: decimal(fields.required()).ok_or(Reason::Amount)?,
            seq: 0,
        }),
        _ => {
            let mut book = Book::default();
            fields.level_prices(&mut book.bid_price)?;
            fields.level_quantities(&mut book.bid_quantity)?;
            fields.level_prices(&mut book.ask_price)?;
            fields.level_quantities(&mut book.ask_quantity)?;
            Body::Quote(book)
        }
    };
    Ok(Line { ts, code, body })
}

/// The line that [`parse_line`] reads as this message, without its end.
pub fn format_line(message: &Message, code: &str, line: &mut String) {
    use std::fmt::Write;
    // Writing to a string does not fail.
    let _ = match message.body {
        Body::Status { status, previous_close } => {
            let status = String::from_utf8_lossy(status.as_bytes());
            write!(line, "{},S,{code},{status},{}", message.ts, Decimal(previous_close.into()))
        }
        Body::Trade(Trade { price, quantity, amount, .. }) => {
            write!(line, "{},T,{code},{},{quantity},{}", message.ts, Decimal(price.into()), Decimal(amount))
        }
        Body::Quote(book) => {
            let _ = write!(line, "{},Q,{code}", message.ts);
            let sides = [(&book.bid_price, &book.bid_quantity), (&book.ask_price, &book.ask_quantity)];
            sides.into_iter().try_for_each(|(prices, quantities)| {
                prices.iter().try_for_each(|&price| write!(line, ",{}", Decimal(price.into())))?;
                quantities.iter().try_for_each(|quantity| write!(line, ",{quantity}"))
            })
        }
    };
}

/// In 1/10000.
struct Decimal(i64);

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:04}", self.0 / 10_000, self.0 % 10_000)
    }
}

struct Fields<'a> {
    rest: Option<&'a [u8]>,
    taken: usize,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        self.taken += 1;
        match rest.iter().position(|&b| b == b',') {
            Some(comma) => {
                self.rest = Some(&rest[comma + 1..]);
                Some(&rest[..comma])
            }
            None => {
                self.rest = None;
                Some(rest)
            }
        }
    }

    fn required(&mut self) -> &'a [u8] {
        self.next().expect("the fields were counted")
    }

    fn price(&mut self) -> Result<i32, Reason> {
        let value = decimal(self.required()).ok_or(Reason::Price(self.taken))?;
        if value > i64::from(PRICE_MAX) {
            return Err(Reason::PriceTooLarge(self.taken));
        }
        Ok(value as i32)
    }

    fn quantity(&mut self) -> Result<i32, Reason> {
        let text = self.required();
        let error = Reason::QuantityAt(self.taken);
        if text.is_empty() || text.len() > 10 {
            return Err(error);
        }
        let value = text.iter().try_fold(0i64, |n, &b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')));
        value.and_then(|v| i32::try_from(v).ok()).ok_or(error)
    }

    fn level_prices(&mut self, levels: &mut [i32; LEVELS]) -> Result<(), Reason> {
        for level in levels {
            *level = self.price()?;
        }
        Ok(())
    }

    fn level_quantities(&mut self, levels: &mut [i32; LEVELS]) -> Result<(), Reason> {
        for level in levels {
            *level = self.quantity()?;
        }
        Ok(())
    }
}

/// Reads lines and checks what needs no listing: form and time.
pub struct LineReader {
    pub file: TextFile,
    last_ts: Option<Timestamp>,
}

impl LineReader {
    pub fn new(file: TextFile) -> LineReader {
        LineReader { file, last_ts: None }
    }

    /// `Ok(None)` at the end; the inner `Err` is a refused line.
    pub fn next_line(&mut self) -> Result<Option<Result<Line<'_>, Reason>>, FeedError> {
        let Some(text) = self.file.next_line()? else {
            return Ok(None);
        };
        let line = match parse_line(text) {
            Ok(line) => line,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        if self.last_ts.is_some_and(|last| line.ts < last) {
            return Ok(Some(Err(Reason::TimeGoesBack)));
        }
        self.last_ts = Some(line.ts);
        Ok(Some(Ok(line)))
    }
}

/// A feed's messages in order: the stocks found in the listing, each code's trades numbered.
pub struct Feed {
    lines: LineReader,
    listing: Arc<Listing>,
    on_error: OnError,
    trades: Vec<i32>,
    pub skipped: u64,
}

impl Feed {
    pub fn new(file: TextFile, listing: Arc<Listing>, on_error: OnError) -> Feed {
        let trades = vec![0; listing.in_feed().len()];
        Feed { lines: LineReader::new(file), listing, on_error, trades, skipped: 0 }
    }

    pub fn next_message(&mut self) -> Result<Option<Message>, FeedError> {
        loop {
            let Some(line) = self.lines.next_line()? else {
                return Ok(None);
            };
            match line.and_then(|line| resolve(line, &self.listing)) {
                Ok(mut message) => {
                    if let Body::Trade(trade) = &mut message.body {
                        let seq = &mut self.trades[message.stock.index()];
                        *seq += 1;
                        trade.seq = *seq;
                    }
                    return Ok(Some(message));
                }
                Err(reason) => {
                    let file = &self.lines.file;
                    file.refuse(reason, self.on_error, &mut self.skipped)?;
                }
            }
        }
    }
}

fn resolve(line: Line<'_>, listing: &Listing) -> Result<Message, Reason> {
    let stock = listing
        .find(line.code)
        .filter(|id| id.index() < listing.in_feed().len())
        .ok_or_else(|| Reason::UnknownCode(line.code.to_owned()))?;
    Ok(Message { ts: line.ts, stock, body: line.body })
}

#[cfg(test)]
mod tests;
