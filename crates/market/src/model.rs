//! What must the tables hold when the day is over? A fold of the feed in plain Rust, without any database.
//!
//! It reads the same messages as the appliers and shares nothing else with them: no SQL, no statement, no stored value.
//! One fold serves every clone, because a clone differs only in its code and in the shift of its times.
//!
//! A trade message of a stock whose status is not `TRADE` is refused: it leaves no trace but in the position.

use crate::calendar::Timestamp;
use crate::message::{Body, Book, LEVELS, Message, Status, StockId, Trade};

/// A best level as a trade met it: price and quantity, nothing before the first quote.
pub type Best = Option<(i32, i32)>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledTrade {
    pub ts: Timestamp,
    pub trade: Trade,
    /// Against the previous close.
    pub change: i32,
    pub previous_close: i32,
    pub best_bid: Best,
    pub best_ask: Best,
}

/// One stock at the end of the feed.
#[derive(Clone, Default, Debug)]
pub struct StockState {
    pub messages: u64,
    pub status: Option<(Timestamp, Status, i32)>,
    pub quote: Option<(Timestamp, Book)>,
    /// How much more each level of the last quote holds than the quote before; nothing after the first quote.
    pub bid_change: Option<[i32; LEVELS]>,
    pub ask_change: Option<[i32; LEVELS]>,
    pub quote_count: i64,
    pub trades: Vec<SettledTrade>,
    /// Trades refused because the stock did not trade.
    pub refused: u64,
}

/// What the end of the day adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayAggregate {
    pub first: i32,
    pub last: i32,
    pub high: i32,
    pub low: i32,
    pub volume: i64,
    pub amount: i64,
    pub count: i64,
    pub change: i32,
}

#[derive(Clone, Default, Debug)]
pub struct Model {
    stocks: Vec<StockState>,
}

impl Model {
    pub fn new(stocks: usize) -> Model {
        Model { stocks: vec![StockState::default(); stocks] }
    }

    pub fn apply(&mut self, message: &Message) {
        self.stocks[message.stock.index()].apply(message);
    }

    pub fn stock(&self, id: StockId) -> &StockState {
        &self.stocks[id.index()]
    }

    pub fn refused(&self) -> u64 {
        self.stocks.iter().map(|s| s.refused).sum()
    }
}

impl StockState {
    fn apply(&mut self, message: &Message) {
        self.messages += 1;
        match message.body {
            Body::Status { status, previous_close } => self.status = Some((message.ts, status, previous_close)),
            Body::Quote(book) => {
                let change = |new: &[i32; LEVELS], old: &[i32; LEVELS]| std::array::from_fn(|i| new[i] - old[i]);
                if let Some((_, before)) = &self.quote {
                    self.bid_change = Some(change(&book.bid_quantity, &before.bid_quantity));
                    self.ask_change = Some(change(&book.ask_quantity, &before.ask_quantity));
                }
                self.quote = Some((message.ts, book));
                self.quote_count += 1;
            }
            Body::Trade(trade) => self.settle(message.ts, trade),
        }
    }

    fn settle(&mut self, ts: Timestamp, trade: Trade) {
        let Some((_, _, previous_close)) = self.status.filter(|(_, s, _)| s.trades()) else {
            self.refused += 1;
            return;
        };
        let book = self.quote.map(|(_, book)| book);
        self.trades.push(SettledTrade {
            ts,
            trade,
            change: trade.price - previous_close,
            previous_close,
            best_bid: book.map(|b| (b.bid_price[0], b.bid_quantity[0])),
            best_ask: book.map(|b| (b.ask_price[0], b.ask_quantity[0])),
        });
    }

    pub fn aggregate(&self) -> Option<DayAggregate> {
        let (first, last) = (self.trades.first()?, self.trades.last()?);
        let prices = || self.trades.iter().map(|t| t.trade.price);
        Some(DayAggregate {
            first: first.trade.price,
            last: last.trade.price,
            high: prices().max().expect("there is a trade"),
            low: prices().min().expect("there is a trade"),
            volume: self.trades.iter().map(|t| i64::from(t.trade.quantity)).sum(),
            amount: self.trades.iter().map(|t| t.trade.amount).sum(),
            count: self.trades.len() as i64,
            change: last.change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Date;

    const A: StockId = StockId(0);

    fn at(second: i64, body: Body) -> Message {
        let ts = Date(8005).at(second * 1_000_000);
        Message { ts, stock: A, body }
    }

    fn status(status: Status) -> Body {
        Body::Status { status, previous_close: 100_000 }
    }

    fn quote(bid: i32, bid_quantity: i32, ask: i32, ask_quantity: i32) -> Body {
        let mut book = Book::default();
        (book.bid_price[0], book.bid_quantity[0]) = (bid, bid_quantity);
        (book.ask_price[0], book.ask_quantity[0]) = (ask, ask_quantity);
        Body::Quote(book)
    }

    fn trade(price: i32, quantity: i32, seq: i32) -> Body {
        Body::Trade(Trade { price, quantity, amount: i64::from(price) * i64::from(quantity), seq })
    }

    /// Worked by hand: one refused trade, one before any quote, three against two different books.
    #[test]
    fn a_small_feed_folds_as_computed_by_hand() {
        let mut model = Model::new(2);
        for message in [
            at(1, status(Status::OPENING_CALL)),
            at(2, trade(99_000, 5, 1)),
            at(3, status(Status::TRADE)),
            at(3, trade(101_000, 10, 2)),
            at(4, quote(100_900, 700, 101_100, 300)),
            at(5, trade(101_100, 20, 3)),
            at(6, quote(100_900, 700, 101_100, 280)),
            at(6, trade(100_900, 30, 4)),
            at(7, trade(100_900, 40, 5)),
        ] {
            model.apply(&message);
        }
        let stock = model.stock(A);
        assert_eq!((stock.messages, model.refused()), (9, 1));
        assert_eq!(stock.status.map(|s| s.0), Some(Date(8005).at(3_000_000)));
        assert_eq!(stock.quote_count, 2);
        assert_eq!(stock.bid_change, Some([0; LEVELS]));
        assert_eq!(stock.ask_change.map(|c| c[0]), Some(-20));
        let seen: Vec<(i32, i32, Best, Best)> =
            stock.trades.iter().map(|t| (t.trade.seq, t.change, t.best_bid, t.best_ask)).collect();
        assert_eq!(
            seen,
            [
                (2, 1_000, None, None),
                (3, 1_100, Some((100_900, 700)), Some((101_100, 300))),
                (4, 900, Some((100_900, 700)), Some((101_100, 280))),
                (5, 900, Some((100_900, 700)), Some((101_100, 280))),
            ]
        );
        assert_eq!(
            stock.aggregate(),
            Some(DayAggregate {
                first: 101_000,
                last: 100_900,
                high: 101_100,
                low: 100_900,
                volume: 100,
                amount: 1_010_000 + 2_022_000 + 3_027_000 + 4_036_000,
                count: 4,
                change: 900,
            })
        );
        assert_eq!(model.stock(StockId(1)).aggregate(), None);
    }

    #[test]
    fn a_stock_that_stops_trading_refuses_again() {
        let mut model = Model::new(1);
        let halted = Status::new(b"SUSP").expect("short");
        for message in [
            at(1, status(Status::TRADE)),
            at(2, trade(101_000, 10, 1)),
            at(3, status(halted)),
            at(4, trade(101_000, 10, 2)),
        ] {
            model.apply(&message);
        }
        assert_eq!(model.refused(), 1);
        assert_eq!(model.stock(A).trades.len(), 1);
    }
}
