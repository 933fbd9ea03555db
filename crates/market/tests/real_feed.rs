//! The recorded day, where it is present: read, folded, and compared with figures taken from the file by other means
//! (awk and a few lines of Python over the text).

use freshet_market::check::fold;
use freshet_market::lines::OnError;
use freshet_market::listing::{DailyBars, Symbols};
use freshet_market::message::Kind;
use freshet_market::source::{Day, Source};
use std::path::PathBuf;

/// `shared/data/market` beside the repository or above the worktree.
fn shared() -> Option<PathBuf> {
    // Where cargo runs this test, not where it was built: build output is shared between clones.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let found = here.ancestors().map(|dir| dir.join("shared/data/market")).find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: there is no shared/data/market above {}", here.display());
    }
    found
}

#[test]
fn the_recorded_day_reads_and_folds() {
    let Some(shared) = shared() else { return };
    let day = Day::open(Source::File {
        feed: shared.join("sse_2021-12-01.feed.csv.zst"),
        daily: None,
        symbols: None,
        on_error: OnError::Stop,
    })
    .expect("the recorded day has no malformed line");
    let summary = &day.summary;
    assert_eq!(summary.messages, 52_680);
    assert_eq!(summary.by_kind[Kind::Status.index()], 60);
    assert_eq!(summary.by_kind[Kind::Quote.index()], 31_280);
    assert_eq!(summary.by_kind[Kind::Trade.index()], 21_340);
    assert_eq!(summary.first.to_string(), "2021-12-01 09:15:01.000");
    assert_eq!(summary.last.to_string(), "2021-12-01 10:30:00.000");
    assert_eq!(day.listing.in_feed().len(), 30);

    let model = fold(&day, None).expect("reads again");
    assert_eq!(model.refused(), 0);
    let id = day.listing.find("603687").expect("in the feed");
    let stock = model.stock(id);
    assert_eq!((stock.quote_count, stock.trades.len()), (1_052, 664));
    let (first, last) = (&stock.trades[0], &stock.trades[663]);
    assert_eq!(first.best_bid, Some((111_400, 400)));
    assert_eq!(first.best_ask, Some((111_900, 100)));
    assert_eq!(last.best_bid, Some((115_000, 8_000)));
    assert_eq!(last.best_ask, Some((115_100, 800)));
    let day = stock.aggregate().expect("it traded");
    assert_eq!((day.first, day.last), (111_400, 115_100));
    assert_eq!((day.low, day.high), (111_400, 116_300));
    assert_eq!((day.volume, day.amount), (2_106_056, 241_948_328_800));
    assert_eq!(day.change, 3_200);
}

#[test]
fn the_daily_file_gives_every_code_a_chart() {
    let Some(shared) = shared() else { return };
    let bars = DailyBars::read(&shared.join("us_daily_ohlcv.csv.zst"), OnError::Stop).expect("no malformed line");
    assert_eq!(bars.by_symbol.values().map(Vec::len).sum::<usize>(), 803_981);
    let full = bars.by_symbol.values().filter(|bars| bars.len() >= 60);
    assert_eq!(full.count(), 6_040);
    let a = &bars.by_symbol["A"][0];
    assert_eq!((a.open, a.close, a.volume), (453_300, 457_100, 2_333_000));
    let day = freshet_market::calendar::Date::new(2021, 12, 1).expect("valid");
    assert_eq!(bars.assigned("600332", day).map(|chart| chart.len()), Some(60));
}

#[test]
fn the_symbols_file_is_read_to_the_end() {
    let Some(shared) = shared() else { return };
    let symbols = Symbols::read(&shared.join("us_symbols.tsv.zst"), OnError::Stop).expect("no malformed line");
    assert_eq!(symbols.names.len(), 6_454);
}
