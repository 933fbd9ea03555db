//! What does a stock exchange keep about its stocks? Five tables with the shapes of the published benchmark, and two of
//! our own that let a run go on where it was killed.
//!
//! | table | columns | field bytes | key |
//! |---|---|---|---|
//! | STOCK_MASTER | 74 | 372 | stock_code (hash) |
//! | BIDNASK | 76 | 384 | stock_code (hash) |
//! | TRADE | 20 | 120 | stock_code (hash) |
//! | TRADE_HISTORY | 20 | 120 | stock_code, trade_time, seq (btree) |
//! | TRADE_DAILY_AGGREGATE | 16 | 84 | stock_code, aggregate_date (btree) |
//! | MARKET_POSITION | 2 | 12 | applier (hash) |
//! | MARKET_RUN | 8 | | id |
//!
//! The benchmark prints only some of the columns. Those, and what the feed lets one fill, are real; the rest have the
//! names such a table has and stay null, which costs their room in the record and nothing in the log. `bid_chg` and
//! `ask_chg` tell how much more or less each level holds than the quote before had at that level.
//!
//! Prices are `numeric(9,4)` (4 bytes), but those of the daily table `numeric(12,4)` (8 bytes): some stocks of the real
//! daily file cost more than 99999.9999.

use crate::message::LEVELS;
use freshet_db::Type;

pub const CODE: Type = Type::Varchar(12);
const PRICE: Type = Type::Decimal { precision: 9, scale: 4 };
const DAILY_PRICE: Type = Type::Decimal { precision: 12, scale: 4 };
const AMOUNT: Type = Type::Decimal { precision: 18, scale: 4 };
const QUANTITY: Type = Type::Int4;

pub struct Table {
    pub name: &'static str,
    pub columns: Vec<(String, Type)>,
    key: &'static [&'static str],
    hash: bool,
}

impl Table {
    fn new(name: &'static str, key: &'static [&'static str], hash: bool, columns: Vec<(String, Type)>) -> Table {
        Table { name, columns, key, hash }
    }

    /// The bytes of a record's fields.
    pub fn field_bytes(&self) -> usize {
        self.columns.iter().map(|(_, ty)| ty.field_bytes()).sum()
    }

    pub fn create(&self) -> String {
        let option = if self.hash { " WITH (primary_key = hash)" } else { "" };
        format!("{}{option}", self.create_anywhere())
    }

    /// Without what only our SQL has.
    pub fn create_anywhere(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|(name, ty)| {
                let not_null = match self.key.contains(&name.as_str()) {
                    true => " NOT NULL",
                    false => "",
                };
                format!("{name} {}{not_null}", type_name(*ty))
            })
            .collect();
        format!("CREATE TABLE {} ({}, PRIMARY KEY ({}))", self.name, columns.join(", "), self.key.join(", "))
    }
}

fn type_name(ty: Type) -> String {
    match ty {
        Type::Bool => "boolean".into(),
        Type::Int2 => "smallint".into(),
        Type::Int4 => "integer".into(),
        Type::Int8 => "bigint".into(),
        Type::Float4 => "real".into(),
        Type::Date => "date".into(),
        Type::Timestamp => "timestamp".into(),
        Type::Text => "text".into(),
        Type::Varchar(n) => format!("varchar({n})"),
        Type::Decimal { precision, scale } => format!("numeric({precision},{scale})"),
        _ => panic!("invariant: the market's tables use no {ty:?}"),
    }
}

fn columns(ty: Type, names: &str) -> Vec<(String, Type)> {
    names.split_whitespace().map(|name| (name.to_owned(), ty)).collect()
}

fn numbered(ty: Type, prefix: &str) -> Vec<(String, Type)> {
    (1..=LEVELS).map(|i| (format!("{prefix}{i}"), ty)).collect()
}

fn stock_master() -> Table {
    let columns = [
        columns(CODE, "stock_code"),
        columns(Type::Varchar(64), "stock_name"),
        columns(Type::Int8, "total_volume"),
        columns(AMOUNT, "total_price"),
        columns(CODE, "trade_status"),
        columns(PRICE, "previous_close"),
        columns(Type::Timestamp, "status_time"),
        columns(CODE, "short_name isin sector"),
        columns(Type::Int8, "listed_shares foreign_limit foreign_owned year_total_volume"),
        columns(AMOUNT, "capital year_total_price"),
        columns(
            PRICE,
            "upper_limit_price lower_limit_price base_price par_value tick_size year_high_price year_low_price \
             week52_high_price week52_low_price dividend_per_share substitute_price moving_average_5 moving_average_20 \
             moving_average_60 moving_average_120",
        ),
        columns(
            Type::Date,
            "year_high_date year_low_date week52_high_date week52_low_date listed_date fiscal_year_end dividend_date \
             ex_dividend_date rights_date split_date",
        ),
        columns(
            Type::Float4,
            "eps bps per pbr roe roa dividend_yield beta debt_ratio reserve_ratio margin_rate index_weight credit_rate",
        ),
        columns(
            Type::Int4,
            "lot_size industry_code group_code average_volume_5 average_volume_20 average_volume_60 short_volume \
             disclosure_no",
        ),
        columns(Type::Int2, "market_id section_id tick_table_id board_id"),
        columns(
            Type::Bool,
            "is_suspended is_managed is_warned is_ex_dividend is_ex_rights is_split is_index_member is_marginable",
        ),
    ];
    Table::new("stock_master", &["stock_code"], true, columns.concat())
}

fn bidnask() -> Table {
    let columns = [
        columns(CODE, "stock_code"),
        columns(Type::Timestamp, "bidnask_time"),
        numbered(PRICE, "bid"),
        numbered(PRICE, "ask"),
        numbered(QUANTITY, "bid_vol"),
        numbered(QUANTITY, "ask_vol"),
        numbered(QUANTITY, "bid_chg"),
        numbered(QUANTITY, "ask_chg"),
        columns(Type::Int8, "bid_total_vol ask_total_vol"),
        columns(Type::Int4, "quote_count"),
        columns(CODE, "session_name market_name halt_reason"),
        columns(AMOUNT, "bid_total_amount ask_total_amount"),
        columns(Type::Int8, "auction_volume"),
        columns(Type::Timestamp, "auction_time halt_time"),
        columns(PRICE, "auction_price spread mid_price"),
    ];
    Table::new("bidnask", &["stock_code"], true, columns.concat())
}

fn trade() -> Table {
    let columns = [
        columns(CODE, "stock_code"),
        columns(Type::Timestamp, "trade_time"),
        columns(PRICE, "settled_price price_change"),
        columns(Type::Int8, "settled_volume"),
        columns(AMOUNT, "settled_amount"),
        columns(PRICE, "closest_bid closest_ask best_bid"),
        columns(QUANTITY, "best_bid_vol"),
        columns(PRICE, "best_ask"),
        columns(QUANTITY, "best_ask_vol"),
        columns(Type::Int8, "total_volume"),
        columns(AMOUNT, "total_amount"),
        columns(PRICE, "open_price high_price low_price previous_close"),
        columns(Type::Int8, "trade_count"),
        columns(Type::Timestamp, "quote_time"),
    ];
    Table::new("trade", &["stock_code"], true, columns.concat())
}

fn trade_history() -> Table {
    let columns = [
        columns(CODE, "stock_code"),
        columns(Type::Timestamp, "trade_time"),
        columns(Type::Int4, "seq"),
        columns(PRICE, "settled_price price_change"),
        columns(Type::Int8, "settled_volume"),
        columns(AMOUNT, "settled_amount"),
        columns(PRICE, "best_bid"),
        columns(QUANTITY, "best_bid_vol"),
        columns(PRICE, "best_ask"),
        columns(QUANTITY, "best_ask_vol"),
        columns(Type::Int8, "order_no buyer_no seller_no"),
        columns(Type::Timestamp, "entry_time"),
        columns(Type::Int4, "trade_type session_no market_no"),
        columns(PRICE, "spread"),
        columns(Type::Float4, "yield"),
    ];
    let key = &["stock_code", "trade_time", "seq"];
    Table::new("trade_history", key, false, columns.concat())
}

fn trade_daily_aggregate() -> Table {
    let columns = [
        columns(CODE, "stock_code"),
        columns(Type::Date, "aggregate_date"),
        columns(DAILY_PRICE, "finish_price start_price highest_price lowest_price"),
        columns(Type::Int8, "total_volume"),
        columns(AMOUNT, "total_amount"),
        columns(Type::Int4, "trade_count"),
        columns(PRICE, "price_change"),
        columns(Type::Int2, "day_of_week source"),
        columns(Type::Bool, "at_upper_limit at_lower_limit ex_dividend was_halted"),
    ];
    let key = &["stock_code", "aggregate_date"];
    Table::new("trade_daily_aggregate", key, false, columns.concat())
}

fn market_position() -> Table {
    let columns = [columns(Type::Int4, "applier"), columns(Type::Int8, "message")];
    Table::new("market_position", &["applier"], true, columns.concat())
}

fn market_run() -> Table {
    let columns = [
        columns(Type::Int4, "id format"),
        columns(Type::Text, "feed"),
        columns(Type::Int8, "fingerprint messages"),
        columns(Type::Int4, "clones appliers"),
        columns(Type::Text, "state"),
    ];
    Table::new("market_run", &["id"], false, columns.concat())
}

/// The five tables of the benchmark.
pub fn tables() -> [Table; 5] {
    [stock_master(), bidnask(), trade(), trade_history(), trade_daily_aggregate()]
}

/// All tables; MARKET_RUN last, because its row says that the others are there.
pub fn all_tables() -> Vec<Table> {
    let mut all = Vec::from(tables());
    all.push(market_position());
    all.push(market_run());
    all
}

/// `source` of a daily row.
pub const FROM_BARS: i16 = 1;
pub const FROM_TRADES: i16 = 2;

/// The statements of a message. Parameters are named at each.
pub mod apply {
    use super::LEVELS;

    /// $1 code, $2 status, $3 previous close, $4 time.
    pub const STATUS: &str = "UPDATE stock_master SET trade_status = $2, previous_close = $3, status_time = $4 \
                              WHERE stock_code = $1";

    /// $1 code, $2 time, $3.. ten each of bid price, bid quantity, ask price, ask quantity, $43 and $44 their totals.
    pub fn quote() -> String {
        let mut set = vec!["bidnask_time = $2".to_owned()];
        for (group, prefix) in ["bid", "bid_vol", "ask", "ask_vol"].iter().enumerate() {
            let first = 3 + group * LEVELS;
            set.extend((0..LEVELS).map(|i| format!("{prefix}{} = ${}", i + 1, first + i)));
        }
        for (side, first) in [("bid", 3 + LEVELS), ("ask", 3 + 3 * LEVELS)] {
            set.extend((0..LEVELS).map(|i| format!("{side}_chg{0} = ${1} - {side}_vol{0}", i + 1, first + i)));
        }
        set.push("bid_total_vol = $43".into());
        set.push("ask_total_vol = $44".into());
        set.push("quote_count = quote_count + 1".into());
        format!("UPDATE bidnask SET {} WHERE stock_code = $1", set.join(", "))
    }

    /// $1 code, $2 time, $3 best bid, $4 best ask.
    pub const CLOSEST: &str = "UPDATE trade SET quote_time = $2, closest_bid = $3, closest_ask = $4 \
                               WHERE stock_code = $1";

    /// $1 code.
    pub const CHECK_STATUS: &str = "SELECT trade_status, previous_close FROM stock_master WHERE stock_code = $1";

    /// $1 code.
    pub const BEST: &str = "SELECT bid1, bid_vol1, ask1, ask_vol1 FROM bidnask WHERE stock_code = $1";

    /// $1 code, $2 time, $3 price, $4 change, $5 volume, $6 amount, $7 to $10 best bid and ask with their volumes,
    /// $11 previous close.
    pub const SETTLE: &str = "UPDATE trade SET trade_time = $2, settled_price = $3, price_change = $4, \
         settled_volume = $5, settled_amount = $6, best_bid = $7, best_bid_vol = $8, best_ask = $9, \
         best_ask_vol = $10, previous_close = $11, total_volume = total_volume + $5, \
         total_amount = total_amount + $6, trade_count = trade_count + 1, \
         open_price = CASE WHEN open_price IS NULL THEN $3 ELSE open_price END, \
         high_price = CASE WHEN high_price >= $3 THEN high_price ELSE $3 END, \
         low_price = CASE WHEN low_price <= $3 THEN low_price ELSE $3 END \
         WHERE stock_code = $1";

    /// $1 code, $2 time, $3 seq, $4 price, $5 change, $6 volume, $7 amount, $8 to $11 best bid and ask with volumes.
    pub const RECORD: &str = "INSERT INTO trade_history (stock_code, trade_time, seq, settled_price, price_change, \
         settled_volume, settled_amount, best_bid, best_bid_vol, best_ask, best_ask_vol) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    /// $1 applier, $2 the how-manieth of its messages.
    pub const POSITION: &str = "UPDATE market_position SET message = $2 WHERE applier = $1";
}

/// The queries of the two forms. $1 is the code of each.
pub mod forms {
    use super::LEVELS;

    pub const QF1: &str = "SELECT settled_price, price_change, settled_amount, settled_volume, closest_bid, closest_ask \
                           FROM trade WHERE stock_code = $1";

    pub const QF2: &str = "SELECT aggregate_date, start_price, finish_price, highest_price, lowest_price, total_volume \
                           FROM trade_daily_aggregate WHERE stock_code = $1 \
                           ORDER BY aggregate_date DESC LIMIT 60";

    pub const QF4: &str = "SELECT trade_time, settled_price, price_change, settled_volume, settled_amount \
                           FROM trade_history WHERE stock_code = $1 \
                           ORDER BY trade_time DESC, seq DESC LIMIT 20";

    /// The current quote: 49 columns of three tables.
    pub fn qf3() -> String {
        let mut columns: Vec<String> = [
            "m.stock_name",
            "m.trade_status",
            "m.previous_close",
            "t.settled_price",
            "t.price_change",
            "t.settled_volume",
            "t.total_volume",
            "b.bid_total_vol",
            "b.ask_total_vol",
        ]
        .map(str::to_owned)
        .into();
        for prefix in ["bid", "bid_vol", "ask", "ask_vol"] {
            columns.extend((1..=LEVELS).map(|i| format!("b.{prefix}{i}")));
        }
        format!(
            "SELECT {} FROM stock_master m JOIN trade t ON t.stock_code = m.stock_code \
             JOIN bidnask b ON b.stock_code = m.stock_code WHERE m.stock_code = $1",
            columns.join(", ")
        )
    }
}

/// The end of the day, all in one transaction.
pub mod closing {
    /// $1 date, $2 day of the week. One row per code that traded; the first and last price follow per code.
    pub const AGGREGATE: &str = "INSERT INTO trade_daily_aggregate (stock_code, aggregate_date, highest_price, \
         lowest_price, total_volume, total_amount, trade_count, day_of_week, source) \
         SELECT stock_code, CAST($1 AS date), max(settled_price), min(settled_price), sum(settled_volume), \
         sum(settled_amount), count(*), CAST($2 AS smallint), 2 FROM trade_history GROUP BY stock_code";

    /// $1 code.
    pub const FIRST: &str = "SELECT settled_price FROM trade_history WHERE stock_code = $1 \
                             ORDER BY trade_time, seq LIMIT 1";

    /// $1 code.
    pub const LAST: &str = "SELECT settled_price, price_change FROM trade_history WHERE stock_code = $1 \
                            ORDER BY trade_time DESC, seq DESC LIMIT 1";

    /// $1 code, $2 date, $3 first price, $4 last price, $5 its change.
    pub const FIRST_AND_LAST: &str = "UPDATE trade_daily_aggregate SET start_price = $3, finish_price = $4, \
                                      price_change = $5 WHERE stock_code = $1 AND aggregate_date = $2";

    /// $1 code, $2 date.
    pub const DAY_OF: &str = "SELECT total_volume, total_amount FROM trade_daily_aggregate \
                              WHERE stock_code = $1 AND aggregate_date = $2";

    /// $1 code, $2 volume, $3 amount.
    pub const TOTALS: &str = "UPDATE stock_master SET total_volume = $2, total_price = $3 WHERE stock_code = $1";

    pub const DONE: &str = "UPDATE market_run SET state = 'done' WHERE id = 1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_five_tables_have_the_documented_shapes() {
        let shapes: Vec<(&str, usize, usize)> =
            tables().iter().map(|t| (t.name, t.columns.len(), t.field_bytes())).collect();
        assert_eq!(
            shapes,
            [
                ("stock_master", 74, 372),
                ("bidnask", 76, 384),
                ("trade", 20, 120),
                ("trade_history", 20, 120),
                ("trade_daily_aggregate", 16, 84),
            ]
        );
    }

    #[test]
    fn no_table_has_a_column_twice() {
        for table in all_tables() {
            let names: HashSet<&String> = table.columns.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
            assert!(table.key.iter().all(|k| names.contains(&k.to_string())));
        }
    }

    #[test]
    fn a_quote_sets_every_level_and_its_change() {
        let quote = apply::quote();
        for i in 2..=44 {
            assert_eq!(quote.matches(&format!(" = ${i},")).count(), 1, "${i}");
        }
        assert!(quote.contains(" bid_chg10 = $22 - bid_vol10,"));
        assert!(quote.contains(" ask_chg1 = $33 - ask_vol1,"));
    }

    #[test]
    fn the_current_quote_has_its_49_columns() {
        assert_eq!(forms::qf3().matches(", ").count() + 1, 49);
    }

    #[test]
    fn ddl_names_key_and_index_kind() {
        let ddl = market_position().create();
        assert_eq!(
            ddl,
            "CREATE TABLE market_position (applier integer NOT NULL, message bigint, PRIMARY KEY (applier)) \
             WITH (primary_key = hash)"
        );
        let ddl = trade_history().create();
        assert!(ddl.ends_with("PRIMARY KEY (stock_code, trade_time, seq))"));
    }
}
