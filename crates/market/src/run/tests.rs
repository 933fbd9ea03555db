use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    market: MarketArgs,
}

/// A day small enough for the dev profile: 12 stocks, 3,000 messages, nobody listening, nobody asking unless told.
fn args(data: &Path, more: &[&str]) -> MarketArgs {
    let data = data.to_str().expect("UTF-8");
    let mut words = vec!["market", "--data", data, "--stocks", "12", "--messages", "3000"];
    words.extend(["--listen", "none", "--appliers", "2"]);
    if !more.contains(&"--query-sessions") {
        words.extend(["--query-sessions", "0"]);
    }
    words.extend(more);
    Cli::try_parse_from(words).expect("valid options").market
}

fn nobody_listens(_: &Database, _: SocketAddr) -> std::result::Result<ListenGuard, String> {
    panic!("--listen none opens no listener")
}

/// A log so small that it is recycled under way.
fn terms(args: &MarketArgs, abandon_after: Option<u64>) -> Terms {
    Terms { options: Options::small(&args.data), abandon_after }
}

fn run_all(args: &MarketArgs) -> Report {
    carry_out(args, terms(args, None), nobody_listens).expect("the run ends").expect("it was not abandoned")
}

fn abandon(args: &MarketArgs, after: u64) {
    let report = carry_out(args, terms(args, Some(after)), nobody_listens).expect("the run begins");
    assert!(report.is_none());
}

fn refusal(args: &MarketArgs) -> String {
    carry_out(args, terms(args, None), nobody_listens).expect_err("refused").to_string()
}

fn sql(data: &Path, script: &str) {
    let db = Database::open(Options::small(data)).expect("opens");
    let mut session = db.session().expect("connects");
    session.run(script).expect("runs");
}

#[test]
fn a_generated_day_is_applied_and_checks() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let data = directory.path().join("market");
    let json = directory.path().join("report.json");
    let json_text = json.to_str().expect("UTF-8");
    let args = args(&data, &["--query-sessions", "2", "--json", json_text]);
    let report = run_all(&args);
    assert_eq!(report.check, "ok");
    assert_eq!(report.messages, 3_000);
    assert_eq!(report.quotes + report.trades + report.statuses, 3_000);
    assert_eq!(report.statements, 3 * report.quotes + 5 * report.trades + 2 * report.statuses);
    assert!(report.latency_us.p50 <= report.latency_us.p99);
    assert!(report.log_bytes_per_quote > 0.0 && report.log_bytes_per_trade > 0.0);

    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).expect("written")).expect("one object");
    for field in
        ["messages", "messages_per_s", "statements_per_s", "forms_per_s", "log_bytes_per_quote", "log_bytes_per_trade"]
    {
        assert!(json[field].is_number(), "{field}");
    }
    for quantile in ["p50", "p99", "p999", "max"] {
        assert!(json["latency_us"][quantile].is_number(), "{quantile}");
    }
    assert_eq!(json["check"], "ok");
}

#[test]
fn abandoned_runs_resume_to_the_same_end() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let data = directory.path().join("market");
    let args = args(&data, &["--clones", "3"]);
    for after in [1, 700, 1_900] {
        abandon(&args, after);
    }
    let report = run_all(&args);
    assert_eq!(report.check, "ok");
    assert!(report.messages < 9_000 && report.messages > 0);
    assert_eq!(report.messages_total, 9_000);

    let again = run_all(&args);
    assert_eq!((again.outcome, again.messages), ("done before", 0));
    assert_eq!(again.check, "ok");
}

#[test]
fn deferred_commits_end_in_the_same_state() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let report = run_all(&args(directory.path(), &["--deferred"]));
    assert_eq!(report.check, "ok");
    assert_eq!(report.options.durability, "deferred");
}

#[test]
fn a_changed_row_fails_the_check_and_is_named() {
    let changes = [
        "UPDATE trade_history SET best_bid_vol = best_bid_vol + 1 WHERE stock_code = '100050' AND seq = 2",
        "UPDATE bidnask SET quote_count = quote_count + 1 WHERE stock_code = '100050'",
        "UPDATE stock_master SET trade_status = 'OCALL' WHERE stock_code = '100050'",
        "UPDATE trade SET total_volume = total_volume + 1 WHERE stock_code = '100050'",
        "UPDATE market_position SET message = message - 1 WHERE applier = 0",
        "DELETE FROM trade_daily_aggregate WHERE stock_code = '100050'",
        "INSERT INTO trade_history (stock_code, trade_time, seq) VALUES ('X', '2026-03-02 10:00:00', 1)",
    ];
    let directory = tempfile::tempdir().expect("temporary directory");
    let args = args(directory.path(), &[]);
    assert_eq!(run_all(&args).check, "ok");
    for (differing, change) in (1..).zip(changes) {
        sql(directory.path(), change);
        let report = run_all(&args);
        assert!(report.check.starts_with("failed: "), "{change}: {}", report.check);
        let count: u64 = report.check.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
        assert!(count >= differing, "{change}: {}", report.check);
    }
}

#[test]
fn a_resumed_run_must_be_the_same_run() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let data = directory.path();
    abandon(&args(data, &[]), 10);
    for other in [
        args(data, &["--clones", "2"]),
        args(data, &["--seed", "2"]),
        MarketArgs { appliers: Some(3), ..args(data, &[]) },
    ] {
        let line = refusal(&other);
        assert!(line.contains("the data directory holds a run of"), "{line}");
        assert!(line.contains("--fresh"), "{line}");
    }
    let report = run_all(&MarketArgs { appliers: None, ..args(data, &[]) });
    assert_eq!((report.options.appliers, &*report.check), (2, "ok"));
    let fresh = run_all(&args(data, &["--fresh", "--seed", "2"]));
    assert_eq!((fresh.messages, &*fresh.check), (3_000, "ok"));
}

#[test]
fn a_paced_day_takes_its_time() {
    let directory = tempfile::tempdir().expect("temporary directory");
    // 5 h 45 min of feed at this speed are about two tenths of a second.
    let report = run_all(&args(directory.path(), &["--speed", "100000"]));
    assert_eq!(report.check, "ok");
    assert!(report.seconds > 0.15, "{}", report.seconds);
}

#[test]
fn a_listener_that_cannot_open_ends_the_run_with_its_line() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let args = MarketArgs { listen: "127.0.0.1:5433".parse().expect("an address"), ..args(directory.path(), &[]) };
    let busy = |_: &Database, address: SocketAddr| Err(format!("{address}: address in use"));
    let error = carry_out(&args, terms(&args, None), busy).expect_err("refused");
    assert_eq!(error.to_string(), "127.0.0.1:5433: address in use");
}

#[test]
fn only_our_own_directory_is_used_or_deleted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let foreign = directory.path().join("thesis.tex");
    std::fs::write(&foreign, "ten years of work").expect("write");
    for fresh in [false, true] {
        let error = prepare_directory(directory.path(), fresh).expect_err("refused");
        assert!(error.to_string().contains("holds no market database"), "{error}");
    }
    assert!(foreign.is_file());

    let ours = directory.path().join("a/b");
    prepare_directory(&ours, true).expect("an absent directory is made");
    std::fs::create_dir(ours.join("log")).expect("made");
    std::fs::write(ours.join("log/lock"), "").expect("written");
    std::fs::write(ours.join("images-000001"), "x").expect("written");
    let precious = [ours.join("precious"), ours.join("images-2024"), ours.join("log/precious.seg")];
    let precious = precious.each_ref().map(|path| path.as_path());
    precious[..1].iter().chain(&precious[2..]).for_each(|path| std::fs::write(path, "x").expect("written"));
    std::fs::create_dir(precious[1]).expect("made");
    prepare_directory(&ours, false).expect("ours");
    assert!(ours.join("images-000001").is_file());
    let held = std::fs::File::open(ours.join("log/lock")).expect("opens");
    held.lock().expect("free");
    let error = prepare_directory(&ours, true).expect_err("in use");
    assert!(error.to_string().ends_with("is in use by another process"));
    assert!(ours.join("images-000001").is_file());
    drop(held);
    prepare_directory(&ours, true).expect("ours");
    assert!(!ours.join("images-000001").exists() && !ours.join("log/lock").exists());
    assert!(precious.iter().all(|path| path.exists()), "what no run made stays");
}

/// Whatever a run leaves is known as its own.
#[test]
fn a_fresh_run_finds_nothing_of_the_one_before() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let data = directory.path().join("market");
    run_all(&args(&data, &[]));
    let db = Database::open(Options::small(&data)).expect("opens");
    db.checkpoint().expect("a checkpoint");
    drop(db);
    std::fs::write(data.join(SPOOL), "").expect("written");
    prepare_directory(&data, true).expect("ours");
    let left: Vec<_> = std::fs::read_dir(&data).expect("reads").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, [MARKER], "only the marker");
}

#[test]
fn a_feed_without_messages_is_no_day() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let feed = directory.path().join("day.csv");
    let data = directory.path().join("data");
    for text in ["", "rubbish\nrubbish\n"] {
        std::fs::write(&feed, text).expect("write");
        let words = ["market", "--on-error", "skip", "--listen", "none", "--feed", feed.to_str().expect("UTF-8")];
        let words = words.into_iter().chain(["--data", data.to_str().expect("UTF-8")]);
        let args = Cli::try_parse_from(words).expect("valid options").market;
        let line = refusal(&args);
        assert!(line.contains("holds no messages"), "{line}");
    }
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn a_malformed_feed_ends_the_run_before_anything_is_made() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let feed = directory.path().join("day.csv");
    std::fs::write(&feed, "2021-12-01 09:15:01.000,S,A,OCALL,29.38\nrubbish\n").expect("write");
    let data = directory.path().join("data");
    let words = ["market", "--feed", feed.to_str().expect("UTF-8"), "--data"];
    let words = words.into_iter().chain([data.to_str().expect("UTF-8")]);
    let args = Cli::try_parse_from(words).expect("valid").market;
    let line = refusal(&args);
    assert!(line.contains("day.csv:2: "), "{line}");
    assert!(!data.exists());
}

#[test]
fn options_are_read() {
    let parse = |words: &[&str]| Cli::try_parse_from(words).map(|cli| cli.market);
    let args = parse(&["market"]).expect("all have defaults");
    assert_eq!(args.listen, Listen::At("127.0.0.1:5433".parse().expect("valid")));
    assert_eq!((args.speed, args.clones, args.query_sessions), (Speed::Max, 1, 2));
    assert!(parse(&["market", "--speed", "8", "--listen", "none"]).is_ok());
    for wrong in [
        &["market", "--speed", "0"][..],
        &["market", "--clones", "0"],
        &["market", "--daily", "x"],
        &["market", "--listen", "nowhere"],
        &["market", "--on-error", "ignore"],
        &["market", "--feed", "x", "--seed", "2"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
    let few = args_of_few_messages();
    assert!(refusal(&few).contains("has at least 5,100") || refusal(&few).contains("has at least 5100"));
}

fn args_of_few_messages() -> MarketArgs {
    let words = ["market", "--messages", "10"];
    Cli::try_parse_from(words).expect("valid").market
}

/// The recorded day beside the repository or above the worktree.
fn recorded_day() -> Option<PathBuf> {
    // Where cargo runs this test, not where it was built: build output is shared between clones.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let found = here
        .ancestors()
        .map(|dir| dir.join("shared/data/market/sse_2021-12-01.feed.csv.zst"))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no shared/data/market above {}", here.display());
    }
    found
}

#[test]
fn the_recorded_day_is_applied_and_checks() {
    let Some(feed) = recorded_day() else { return };
    let directory = tempfile::tempdir().expect("temporary directory");
    let feed = feed.to_str().expect("UTF-8");
    let data = directory.path().to_str().expect("UTF-8");
    let words = ["market", "--feed", feed, "--data", data, "--listen", "none"];
    let args = Cli::try_parse_from(words).expect("valid").market;
    let terms = Terms {
        options: Options {
            memory_limit_bytes: 1 << 30,
            log_size_bytes: 64 << 20,
            segment_bytes: 8 << 20,
            stage_limit_bytes: 2 << 20,
            ..Options::new(data)
        },
        abandon_after: None,
    };
    let report = carry_out(&args, terms, nobody_listens).expect("the run ends").expect("it was not abandoned");
    assert_eq!((report.messages, &*report.check), (52_680, "ok"));
    assert!(report.log_bytes_per_quote <= 220.0, "{}", report.log_bytes_per_quote);
    assert!(report.log_bytes_per_trade <= 280.0, "{}", report.log_bytes_per_trade);
}
