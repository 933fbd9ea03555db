use super::*;
use crate::listing::Symbols;
use std::collections::HashSet;
use std::io::Cursor;
use std::path::Path;

fn listing(codes: &[&str]) -> Arc<Listing> {
    let feed = codes.iter().map(|&code| (Box::from(code), 0)).collect();
    Arc::new(Listing::new(feed, &HashSet::new(), Symbols::default()))
}

fn feed(text: &str, on_error: OnError) -> Feed {
    let input = Box::new(Cursor::new(text.as_bytes().to_vec()));
    let file = TextFile::new(input, Path::new("day.csv"));
    Feed::new(file, listing(&["A", "B"]), on_error)
}

fn refusal(text: &str) -> (u64, Reason) {
    let mut feed = feed(text, OnError::Stop);
    loop {
        match feed.next_message() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("accepted: {text}"),
            Err(error) => return (error.line, error.reason),
        }
    }
}

const STATUS: &str = "2021-12-01 09:15:01.000,S,A,OCALL,29.38\n";
const TRADE: &str = "2021-12-01 09:25:00.000,T,A,8.54,78400,669536.5\n";

fn quote() -> String {
    let levels = |values: fn(u32) -> String| (0..10).map(values).collect::<Vec<_>>().join(",");
    format!(
        "2021-12-01 09:25:00.001,Q,B,{},{},{},{}\n",
        levels(|i| format!("10.{}", 20 - i)),
        levels(|i| (100 * i).to_string()),
        levels(|i| format!("10.{}", 21 + i)),
        levels(|i| (7 * i).to_string()),
    )
}

#[test]
fn the_three_kinds_are_read_field_by_field() {
    let text = format!("{STATUS}{TRADE}{}", quote());
    let mut feed = feed(&text, OnError::Stop);
    let mut next = || feed.next_message().expect("valid").expect("a message");
    let status = next();
    assert_eq!(status.ts.to_string(), "2021-12-01 09:15:01.000");
    assert_eq!(status.body, Body::Status { status: Status::OPENING_CALL, previous_close: 293_800 });
    let trade = Trade { price: 85_400, quantity: 78_400, amount: 6_695_365_000, seq: 1 };
    assert_eq!(next().body, Body::Trade(trade));
    let Body::Quote(book) = next().body else { panic!("a quote") };
    assert_eq!((book.bid_price[0], book.bid_price[9]), (102_000, 101_100));
    assert_eq!((book.ask_price[0], book.ask_price[9]), (102_100, 103_000));
    assert_eq!((book.bid_quantity[9], book.ask_quantity[9]), (900, 63));
    assert_eq!((book.bid_total(), book.ask_total()), (4_500, 315));
    assert_eq!(feed.next_message(), Ok(None));
}

#[test]
fn a_refused_line_tells_file_line_and_reason() {
    let error = feed("2021-12-01 09:15:01.000,X,A\n", OnError::Stop).next_message().expect_err("no such kind");
    assert_eq!(error.to_string(), "day.csv:1: the kind is none of S, Q, T");
}

#[test]
fn each_way_of_being_wrong_has_its_reason() {
    let trade = |rest: &str| format!("2021-12-01 09:25:00.000,T,{rest}\n");
    let cases: Vec<(String, Reason)> = vec![
        ("\n".into(), Reason::Empty),
        ("garbage\n".into(), Reason::Timestamp),
        ("2021-12-01 09:25:00,T,A,1,1,1\n".into(), Reason::Timestamp),
        ("2021-12-01 09:25:00.000\n".into(), Reason::Kind),
        ("2021-12-01 09:25:00.000,TT,A,1,1,1\n".into(), Reason::Kind),
        (trade("A,1,1"), Reason::Fields { expected: 6, found: 5 }),
        (trade("A,1,1,1,"), Reason::Fields { expected: 6, found: 7 }),
        (trade(",1,1,1"), Reason::Code),
        (trade("ABCDEFGHIJKLM,1,1,1"), Reason::Code),
        (trade("Ä,1,1,1"), Reason::Code),
        (trade("C,1,1,1"), Reason::UnknownCode("C".into())),
        (trade("A,,1,1"), Reason::Price(4)),
        (trade("A,-1,1,1"), Reason::Price(4)),
        (trade("A,1.,1,1"), Reason::Price(4)),
        (trade("A,1.2.3,1,1"), Reason::Price(4)),
        (trade("A,1e3,1,1"), Reason::Price(4)),
        (trade("A,1.00001,1,1"), Reason::Price(4)),
        (trade("A,100000,1,1"), Reason::PriceTooLarge(4)),
        (trade("A,99999999999999999999,1,1"), Reason::Price(4)),
        (trade("A,1,1.5,1"), Reason::QuantityAt(5)),
        (trade("A,1,2147483648,1"), Reason::QuantityAt(5)),
        (trade("A,1,,1"), Reason::QuantityAt(5)),
        (trade("A,1,1,x"), Reason::Amount),
        (trade("A,1,1,999999999999999"), Reason::Amount),
        (STATUS.replace("OCALL", ""), Reason::Status),
        (STATUS.replace("29.38", "abc"), Reason::Price(5)),
        (quote().replace(",63\n", ",63,1\n"), Reason::Fields { expected: 43, found: 44 }),
        (quote().replace(",63\n", ",x\n"), Reason::QuantityAt(43)),
        ("x".repeat(100_000), Reason::TooLong),
    ];
    for (text, reason) in cases {
        assert_eq!(refusal(&text), (1, reason), "{text}");
    }
}

#[test]
fn a_line_that_is_not_utf8_is_refused_not_fatal() {
    let mut bytes = b"2021-12-01 09:25:00.000,T,\xff,1,1,1\n".to_vec();
    bytes.extend_from_slice(TRADE.as_bytes());
    let file = TextFile::new(Box::new(Cursor::new(bytes)), Path::new("day.csv"));
    let mut feed = Feed::new(file, listing(&["A"]), OnError::Skip);
    assert!(feed.next_message().expect("goes on").is_some());
    assert_eq!(feed.skipped, 1);
}

#[test]
fn time_never_goes_back() {
    let text = format!("{TRADE}{STATUS}{TRADE}");
    assert_eq!(refusal(&text), (2, Reason::TimeGoesBack));
}

#[test]
fn skipping_counts_and_goes_on_with_the_next_line() {
    let long = "y".repeat(LINE_BYTES_MAX as usize * 3);
    let text = format!("{STATUS}bad\n{TRADE}{long}\n{STATUS}{TRADE}");
    let mut feed = feed(&text, OnError::Skip);
    let mut kinds = Vec::new();
    while let Some(message) = feed.next_message().expect("skips") {
        kinds.push(message.body);
    }
    assert_eq!(kinds.len(), 3);
    assert_eq!(feed.skipped, 3);
    assert!(matches!(kinds[2], Body::Trade(Trade { seq: 2, .. })));
}

#[test]
fn carriage_returns_and_a_missing_last_newline_are_accepted() {
    let text = format!("{}\r\n{}", STATUS.trim_end(), TRADE.trim_end());
    let mut feed = feed(&text, OnError::Stop);
    assert!(feed.next_message().expect("valid").is_some());
    assert!(feed.next_message().expect("valid").is_some());
    assert_eq!(feed.next_message(), Ok(None));
}

#[test]
fn compressed_and_plain_files_read_alike() {
    let text = format!("{STATUS}{TRADE}{}", quote());
    let directory = tempfile::tempdir().expect("temporary directory");
    let (plain, packed) = (directory.path().join("a"), directory.path().join("b"));
    std::fs::write(&plain, &text).expect("write");
    let bytes = zstd::encode_all(text.as_bytes(), 3).expect("compress");
    std::fs::write(&packed, &bytes).expect("write");
    let read = |path: &Path| {
        let file = TextFile::open(path).expect("opens");
        let mut feed = Feed::new(file, listing(&["A", "B"]), OnError::Stop);
        let mut messages = Vec::new();
        while let Some(message) = feed.next_message().expect("valid") {
            messages.push(message);
        }
        (messages, feed.lines.file.fingerprint())
    };
    assert_eq!(read(&plain), read(&packed));

    std::fs::write(&packed, &bytes[..bytes.len() - 5]).expect("write");
    let file = TextFile::open(&packed).expect("opens");
    let mut feed = Feed::new(file, listing(&["A", "B"]), OnError::Skip);
    let error = loop {
        match feed.next_message() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a damaged file reads to its end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.reason, Reason::Io(_)));
}

#[test]
fn a_changed_line_changes_the_fingerprint() {
    let of = |text: &str| {
        let mut file = TextFile::new(Box::new(Cursor::new(text.to_owned())), Path::new("f"));
        while file.next_line().expect("reads").is_some() {}
        file.fingerprint()
    };
    assert_eq!(of("abc\ndef\n"), of("abc\ndef"));
    assert_ne!(of("abc\ndef\n"), of("abc\ndeg\n"));
    assert_ne!(of("abc\ndef\n"), of("abcd\nef\n"));
    assert_ne!(of("ab\n"), of("ab\0\n"));
}

#[test]
fn a_missing_file_is_one_clear_line() {
    let error = TextFile::open(Path::new("/nonexistent/day.csv")).err().expect("missing");
    assert!(error.to_string().starts_with("/nonexistent/day.csv: "), "{error}");
}

/// What is sent is what is read: a line of every kind, and a generated day.
#[test]
fn a_message_is_written_as_the_line_that_it_is_read_from() {
    let plan = crate::generate::DayPlan { seed: 5, stocks: 3, messages: 500 };
    let listing = plan.listing();
    let mut generator = plan.start();
    let mut line = String::new();
    while let Some(message) = generator.next_message() {
        line.clear();
        let code = &listing.stock(message.stock).code;
        format_line(&message, code, &mut line);
        let read = parse_line(line.as_bytes()).expect("a line");
        assert_eq!(read.code, &**code);
        // The feed tells milliseconds, and leaves the numbers of trades to its reader.
        assert_eq!(read.ts.0, message.ts.0 / 1_000 * 1_000);
        match (read.body, message.body) {
            (Body::Trade(read), Body::Trade(sent)) => assert_eq!(Trade { seq: sent.seq, ..read }, sent),
            (read, sent) => assert_eq!(read, sent),
        }
    }
}
