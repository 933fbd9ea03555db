//! What does a trading day look like when nobody recorded one?
//!
//! Seeded and streaming: a stock's whole state is its book, and the n-th message is the same for everyone who asks
//! with the same plan.
//!
//! | time | what |
//! |---|---|
//! | 09:15-09:25 | per stock: status OCALL with the previous close, and a first book |
//! | 09:25-09:30 | per stock: status TRADE |
//! | 09:30-11:30, 13:00-15:00 | quotes, and trades each followed by the quote that shows the reduced book |
//!
//! Invariants:
//! 1. In every book the best bid is below the best ask, levels descend and ascend by one tick, quantities are positive.
//! 2. A trade hits the best level of one side at its price, takes no more than is there, and the next quote shows the
//!    rest; an emptied level is gone and the price has moved.
//! 3. Prices stay within a tenth of the previous close.
//! 4. Messages never go back in time, and arrive most densely after the opening and before the close.

use crate::calendar::{Date, MICROS_PER_SECOND, Timestamp};
use crate::listing::{Bar, CHART_DAYS, Listing, Symbols, code_hash};
use crate::message::{Body, Book, LEVELS, Message, Status, StockId, Trade};
use std::collections::HashSet;

/// 0.01 in 1/10000.
const TICK: i32 = 100;

/// Shares come in lots.
const LOT: i32 = 100;

const QUANTITY_LOTS_MAX: u64 = 300;

/// How wide trades may tear a book before the other side follows, in ticks.
const SPREAD_TICKS_MAX: i32 = 3;

/// Messages per stock that are not quotes and trades of the open market: OCALL, first book, TRADE.
pub const MESSAGES_BEFORE_OPENING: u64 = 3;

/// Part of the stored identity of a run: raise it when a plan gives other messages than before.
pub const GENERATOR_VERSION: u64 = 1;

const MINUTES: usize = 240;
const SECOND: i64 = MICROS_PER_SECOND;
const CALL: i64 = (9 * 60 + 15) * 60 * SECOND;
const CALL_END: i64 = (9 * 60 + 25) * 60 * SECOND;
const OPENING: i64 = (9 * 60 + 30) * 60 * SECOND;
const LUNCH: i64 = (11 * 60 + 30) * 60 * SECOND;
const LUNCH_END: i64 = 13 * 3_600 * SECOND;

/// Which day to make up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayPlan {
    pub seed: u64,
    pub stocks: u32,
    pub messages: u64,
}

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, enough for books.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// At least 0, below 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

impl DayPlan {
    /// A Monday.
    pub fn day(&self) -> Date {
        Date::new(2026, 3, 2).expect("the day exists")
    }

    pub fn fingerprint(&self) -> u64 {
        [self.seed, u64::from(self.stocks), self.messages]
            .iter()
            .fold(GENERATOR_VERSION, |hash, &word| Random::new(hash ^ word).word())
    }

    pub fn code(stock: u32) -> String {
        format!("{:06}", 100_010 + stock * 10)
    }

    /// Log-uniform from 3.00 to about 200.00.
    fn previous_close(&self, stock: u32) -> i32 {
        let mut random = Random::new(self.seed ^ code_hash(&DayPlan::code(stock)));
        let cents = 300.0 * (4.2 * random.unit()).exp();
        cents as i32 * TICK
    }

    pub fn listing(&self) -> Listing {
        let codes = (0..self.stocks).map(|s| (DayPlan::code(s).into_boxed_str(), self.previous_close(s)));
        let names = (0..self.stocks).map(|s| {
            let name = format!("Generated Industries {:04}", s + 1);
            (DayPlan::code(s).into(), name.into())
        });
        let symbols = Symbols { names: names.collect(), ..Symbols::default() };
        Listing::new(codes.collect(), &HashSet::new(), symbols)
    }

    /// Trades are two in five messages of the open market, as on the recorded days.
    pub fn start(&self) -> Generator {
        let books = (0..self.stocks).map(|stock| {
            let mut random = Random::new(self.seed ^ u64::from(stock).rotate_left(32));
            Trader::new(self.previous_close(stock), &mut random)
        });
        Generator {
            plan: *self,
            random: Random::new(self.seed),
            traders: books.collect(),
            arrivals: Arrivals::new(),
            given: 0,
            after_trade: None,
        }
    }
}

/// The 60 weekdays before `day`, walking to `previous_close` on the last; the same for the same seed and code.
pub fn daily_bars(seed: u64, code: &str, previous_close: i32, day: Date) -> Vec<Bar> {
    let mut random = Random::new(seed ^ code_hash(code).rotate_left(17));
    let mut close = i64::from(previous_close.max(100 * TICK));
    let tick = i64::from(TICK);
    let mut bars: Vec<Bar> = day
        .weekdays_before(CHART_DAYS)
        .into_iter()
        .rev()
        .map(|date| {
            let step = |random: &mut Random, bound: f64| {
                ((close as f64 * bound * (random.unit() * 2.0 - 1.0)) as i64 / tick) * tick
            };
            let open = close + step(&mut random, 0.02);
            let high = open.max(close) + step(&mut random, 0.01).abs();
            let low = (open.min(close) - step(&mut random, 0.01).abs()).max(tick);
            let bar =
                Bar { date, open, high, low, close, volume: (random.below(100_000) + 100) as i64 * i64::from(LOT) };
            close = (open + step(&mut random, 0.005)).max(10 * tick);
            bar
        })
        .collect();
    bars.reverse();
    bars
}

/// One stock's book and what happens to it.
struct Trader {
    /// In ticks.
    best_bid: i32,
    best_ask: i32,
    lowest: i32,
    highest: i32,
    bid_lots: [i32; LEVELS],
    ask_lots: [i32; LEVELS],
    trades: i32,
    previous_close: i32,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Bid,
    Ask,
}

fn lots(random: &mut Random) -> i32 {
    // The product of two uniform numbers: many small levels, few large.
    let (a, b) = (random.below(QUANTITY_LOTS_MAX), random.below(QUANTITY_LOTS_MAX));
    (a * b / QUANTITY_LOTS_MAX) as i32 + 1
}

impl Trader {
    fn new(previous_close: i32, random: &mut Random) -> Trader {
        let middle = previous_close / TICK;
        let room = (middle / 10).max(SPREAD_TICKS_MAX + 2);
        Trader {
            best_bid: middle,
            best_ask: middle + 1,
            lowest: middle - room,
            highest: middle + room,
            bid_lots: std::array::from_fn(|_| lots(random)),
            ask_lots: std::array::from_fn(|_| lots(random)),
            trades: 0,
            previous_close,
        }
    }

    fn book(&self) -> Book {
        Book {
            bid_price: std::array::from_fn(|i| (self.best_bid - i as i32) * TICK),
            bid_quantity: self.bid_lots.map(|lots| lots * LOT),
            ask_price: std::array::from_fn(|i| (self.best_ask + i as i32) * TICK),
            ask_quantity: self.ask_lots.map(|lots| lots * LOT),
        }
    }

    fn spread(&self) -> i32 {
        self.best_ask - self.best_bid
    }

    /// New orders and cancellations: a few levels change, sometimes the best price.
    fn revise(&mut self, random: &mut Random) {
        let side = if random.chance(50) { Side::Bid } else { Side::Ask };
        if random.chance(15) {
            if self.spread() > 1 {
                self.improve(side, random);
            } else {
                self.withdraw(side, random);
            }
        }
        for _ in 0..1 + random.below(7) {
            let level = random.below(LEVELS as u64) as usize;
            let quantity = lots(random);
            match random.chance(50) {
                true => self.bid_lots[level] = quantity,
                false => self.ask_lots[level] = quantity,
            }
        }
    }

    /// A better price appears inside the spread.
    fn improve(&mut self, side: Side, random: &mut Random) {
        assert!(self.spread() > 1, "invariant 1: a book does not cross");
        let levels = match side {
            Side::Bid => {
                self.best_bid += 1;
                &mut self.bid_lots
            }
            Side::Ask => {
                self.best_ask -= 1;
                &mut self.ask_lots
            }
        };
        levels.rotate_right(1);
        levels[0] = lots(random);
    }

    /// The best level goes, unless the price would leave its range or the spread tear.
    fn withdraw(&mut self, side: Side, random: &mut Random) {
        if self.spread() >= SPREAD_TICKS_MAX || !self.may_recede(side) {
            return;
        }
        self.recede(side, random);
    }

    fn may_recede(&self, side: Side) -> bool {
        match side {
            Side::Bid => self.best_bid > self.lowest,
            Side::Ask => self.best_ask < self.highest,
        }
    }

    fn recede(&mut self, side: Side, random: &mut Random) {
        let levels = match side {
            Side::Bid => {
                self.best_bid -= 1;
                &mut self.bid_lots
            }
            Side::Ask => {
                self.best_ask += 1;
                &mut self.ask_lots
            }
        };
        levels.rotate_left(1);
        levels[LEVELS - 1] = lots(random);
    }

    /// Hits the best bid or ask; reduces it; the price moves when the level is gone.
    fn trade(&mut self, random: &mut Random) -> Trade {
        let side = if random.chance(50) { Side::Bid } else { Side::Ask };
        let (ticks, there) = match side {
            Side::Bid => (self.best_bid, self.bid_lots[0]),
            Side::Ask => (self.best_ask, self.ask_lots[0]),
        };
        let taken = (1 + random.below(60) as i32).min(there);
        if taken < there {
            match side {
                Side::Bid => self.bid_lots[0] -= taken,
                Side::Ask => self.ask_lots[0] -= taken,
            }
        } else if self.may_recede(side) {
            self.recede(side, random);
            if self.spread() > SPREAD_TICKS_MAX {
                let other = if side == Side::Bid { Side::Ask } else { Side::Bid };
                self.improve(other, random);
            }
        } else {
            // At the day's limit the emptied level fills again: there the price stands.
            match side {
                Side::Bid => self.bid_lots[0] = lots(random),
                Side::Ask => self.ask_lots[0] = lots(random),
            }
        }
        self.trades += 1;
        let (price, quantity) = (ticks * TICK, taken * LOT);
        Trade { price, quantity, amount: i64::from(price) * i64::from(quantity), seq: self.trades }
    }
}

/// The U-shaped curve: a cumulative share of the day's messages per minute of trading.
struct Arrivals {
    cumulative: [f64; MINUTES + 1],
}

impl Arrivals {
    fn new() -> Arrivals {
        let mut cumulative = [0.0; MINUTES + 1];
        for minute in 0..MINUTES {
            let (x, afternoon) = (minute as f64, minute as f64 - 120.0);
            let opening = 4.0 * (-x / 15.0).exp();
            let closing = 3.0 * (-(MINUTES as f64 - x) / 20.0).exp();
            let after_lunch = if afternoon >= 0.0 { 0.8 * (-afternoon / 10.0).exp() } else { 0.0 };
            cumulative[minute + 1] = cumulative[minute] + 1.0 + opening + closing + after_lunch;
        }
        let total = cumulative[MINUTES];
        cumulative.iter_mut().for_each(|share| *share /= total);
        Arrivals { cumulative }
    }

    /// When this share of the day's messages has arrived; microseconds of the day, whole milliseconds.
    fn time(&self, share: f64) -> i64 {
        let minute = self.cumulative.partition_point(|&c| c <= share) - 1;
        let minute = minute.min(MINUTES - 1);
        let (from, to) = (self.cumulative[minute], self.cumulative[minute + 1]);
        let within = ((share - from) / (to - from)).clamp(0.0, 1.0);
        let traded = ((minute as f64 + within) * 60_000.0) as i64 * 1_000;
        if traded < LUNCH - OPENING { OPENING + traded } else { LUNCH_END + (traded - (LUNCH - OPENING)) }
    }
}

/// The day's messages, in order.
pub struct Generator {
    plan: DayPlan,
    random: Random,
    traders: Vec<Trader>,
    arrivals: Arrivals,
    given: u64,
    /// The stock and time of a trade whose quote comes next.
    after_trade: Option<(StockId, Timestamp)>,
}

impl Generator {
    pub fn next_message(&mut self) -> Option<Message> {
        if self.given == self.plan.messages {
            return None;
        }
        let stocks = u64::from(self.plan.stocks);
        let message = match self.given {
            n if n < 2 * stocks => self.opening_call(n),
            n if n < MESSAGES_BEFORE_OPENING * stocks => self.opening(n - 2 * stocks),
            _ => self.trading(),
        };
        self.given += 1;
        Some(message)
    }

    fn opening_call(&mut self, n: u64) -> Message {
        let stock = StockId((n / 2) as u32);
        let trader = &self.traders[stock.index()];
        let body = if n.is_multiple_of(2) {
            Body::Status { status: Status::OPENING_CALL, previous_close: trader.previous_close }
        } else {
            Body::Quote(trader.book())
        };
        self.spread_over(CALL, CALL_END, stock, body)
    }

    fn opening(&mut self, n: u64) -> Message {
        let stock = StockId(n as u32);
        let body = Body::Status { status: Status::TRADE, previous_close: self.traders[stock.index()].previous_close };
        self.spread_over(CALL_END, OPENING, stock, body)
    }

    fn spread_over(&self, from: i64, to: i64, stock: StockId, body: Body) -> Message {
        let within = (to - from) * i64::from(stock.0) / i64::from(self.plan.stocks);
        Message { ts: self.plan.day().at(from + within / 1_000 * 1_000), stock, body }
    }

    fn trading(&mut self) -> Message {
        if let Some((stock, ts)) = self.after_trade.take() {
            let body = Body::Quote(self.traders[stock.index()].book());
            return Message { ts, stock, body };
        }
        let before = MESSAGES_BEFORE_OPENING * u64::from(self.plan.stocks);
        let (n, of) = (self.given - before, self.plan.messages - before);
        let share = (n as f64 + self.random.unit()) / of as f64;
        let ts = self.plan.day().at(self.arrivals.time(share));
        // The square favours low numbers: a few stocks trade much, most little.
        let skew = self.random.unit();
        let stock = StockId((skew * skew * f64::from(self.plan.stocks)) as u32);
        let trader = &mut self.traders[stock.index()];
        // Two of three events are trades, each followed by its quote: two in five messages.
        let body = if n + 1 < of && self.random.below(3) < 2 {
            self.after_trade = Some((stock, ts));
            Body::Trade(trader.trade(&mut self.random))
        } else {
            trader.revise(&mut self.random);
            Body::Quote(trader.book())
        };
        Message { ts, stock, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: DayPlan = DayPlan { seed: 7, stocks: 40, messages: 60_000 };

    fn day(plan: DayPlan) -> Vec<Message> {
        let mut generator = plan.start();
        std::iter::from_fn(|| generator.next_message()).collect()
    }

    #[test]
    fn a_seed_gives_one_day_and_another_seed_another() {
        let first = day(PLAN);
        assert_eq!(first.len(), 60_000);
        assert_eq!(first, day(PLAN));
        let other = DayPlan { seed: 8, ..PLAN };
        assert_ne!(first, day(other));
        assert_ne!(PLAN.fingerprint(), other.fingerprint());
    }

    #[test]
    fn books_never_cross_and_stay_in_range() {
        let closes: Vec<i32> = (0..PLAN.stocks).map(|s| PLAN.previous_close(s)).collect();
        for message in day(PLAN) {
            let Body::Quote(book) = message.body else {
                continue;
            };
            assert!(book.bid_price[0] < book.ask_price[0], "{book:?}");
            assert!(book.bid_price.windows(2).all(|w| w[0] - w[1] == TICK));
            assert!(book.ask_price.windows(2).all(|w| w[1] - w[0] == TICK));
            let quantities = book.bid_quantity.iter().chain(&book.ask_quantity);
            assert!(quantities.clone().all(|&q| q > 0 && q % LOT == 0));
            assert!(book.bid_price[LEVELS - 1] > 0);
            let close = closes[message.stock.index()];
            assert!((book.bid_price[0] - close).abs() <= close / 10 + 5 * TICK);
        }
    }

    #[test]
    fn trades_hit_the_published_book_and_reduce_it() {
        let mut books = vec![Book::default(); PLAN.stocks as usize];
        let (mut trades, mut hit) = (0, None::<(StockId, Trade)>);
        for message in day(PLAN) {
            let before = books[message.stock.index()];
            match message.body {
                Body::Status { .. } => {}
                Body::Trade(trade) => {
                    trades += 1;
                    let at_bid = trade.price == before.bid_price[0] && trade.quantity <= before.bid_quantity[0];
                    let at_ask = trade.price == before.ask_price[0] && trade.quantity <= before.ask_quantity[0];
                    assert!(at_bid || at_ask, "{trade:?} {before:?}");
                    hit = Some((message.stock, trade));
                }
                Body::Quote(book) => {
                    if let Some((stock, trade)) = hit.take() {
                        assert_eq!(stock, message.stock);
                        let left = |levels: &[i32; LEVELS], quantities: &[i32; LEVELS]| {
                            let level = levels.iter().position(|&p| p == trade.price);
                            level.map(|i| quantities[i])
                        };
                        let reduced = left(&book.bid_price, &book.bid_quantity)
                            == left(&before.bid_price, &before.bid_quantity).map(|q| q - trade.quantity);
                        let reduced_ask = left(&book.ask_price, &book.ask_quantity)
                            == left(&before.ask_price, &before.ask_quantity).map(|q| q - trade.quantity);
                        assert!(reduced || reduced_ask || book != before);
                    }
                    books[message.stock.index()] = book;
                }
            }
        }
        let share = f64::from(trades) / PLAN.messages as f64;
        assert!((0.35..0.45).contains(&share), "{share}");
    }

    #[test]
    fn the_day_is_u_shaped_and_never_goes_back() {
        let messages = day(PLAN);
        assert!(messages.windows(2).all(|w| w[0].ts <= w[1].ts));
        let count = |from: i64, minutes: i64| {
            let until = from + minutes * 60 * SECOND;
            let in_range = |m: &&Message| (from..until).contains(&m.ts.micros_of_day());
            messages.iter().filter(in_range).count()
        };
        let (opening, noon) = (count(OPENING, 20), count(LUNCH - 20 * 60 * SECOND, 20));
        let closing = count(15 * 3_600 * SECOND - 20 * 60 * SECOND, 20);
        assert!(opening > 2 * noon, "{opening} {noon}");
        assert!(2 * closing > 3 * noon, "{closing} {noon}");
        assert_eq!(count(LUNCH, 90), 0);
        assert!(count(LUNCH_END, 10) > 0);
    }

    #[test]
    fn prices_wander() {
        let messages = day(PLAN);
        let prices: HashSet<i32> = messages
            .iter()
            .filter(|m| m.stock == StockId(0))
            .filter_map(|m| match m.body {
                Body::Trade(trade) => Some(trade.price),
                _ => None,
            })
            .collect();
        assert!(prices.len() > 10, "{} prices", prices.len());
    }

    #[test]
    fn sixty_days_end_at_the_previous_close() {
        let day = PLAN.day();
        let bars = daily_bars(1, "100010", 123_400, day);
        assert_eq!(bars.len(), CHART_DAYS);
        assert_eq!(bars[59].close, 123_400);
        assert!(bars.windows(2).all(|w| w[0].date < w[1].date));
        for bar in &bars {
            assert!(bar.low > 0 && bar.volume > 0 && bar.date < day);
            assert!(bar.low <= bar.open.min(bar.close) && bar.high >= bar.open.max(bar.close));
        }
        assert_eq!(bars, daily_bars(1, "100010", 123_400, day));
        assert_ne!(bars, daily_bars(2, "100010", 123_400, day));
    }
}
