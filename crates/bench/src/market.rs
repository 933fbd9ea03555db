//! The workload `market`: customers ask for forms while the feed of a trading day is applied, on our server, on PostgreSQL, and on one that does
//! nothing but replay recorded answers. The published benchmark's figures 10 and 11 (REFERENCE.md F13 to F16).
//!
//! The densest seconds of the day ([`window`]) are replayed, again and again, at so many times their own speed; before them the tables hold what the
//! day had left by then. Every server gets the same statements through the same driver over as many connections, durable on both, all data in memory
//! on both. All servers are there at the same time, and asked one after the other at each point. Without PostgreSQL the others are asked, and nothing is
//! due that compares with it. At the end the trades, their history and
//! the quotes that each server holds are those that it acknowledged, or there is no figure.
//!
//! | module | question |
//! |---|---|
//! | [`window`] | which messages, and what stands before them |
//! | [`client`] | who asks and who tells |

pub mod client;
pub mod window;

use crate::adapter::Setup;
use crate::adapter::freshet_wire::{self, Wire};
use crate::adapter::postgres::{self, Postgres};
use crate::adapter::wire::{ask, copy, runtime};
use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting};
use crate::log_plan::LogPlan;
use crate::machine::{Machine, processors};
use crate::progress::{during, say};
use crate::report;
use crate::responder::{self, Responder};
use crate::scratch::Scratch;
use crate::served::{self, Sockets, System};
use crate::suite;
use clap::Args;
use client::{Applied, Applier, Asking, Clock, Customer, Shown, Speed};
use freshet_market::generate::DayPlan;
use freshet_market::lines::OnError;
use freshet_market::schema::{self, apply, forms};
use freshet_market::source::{Day, Source};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};
use window::{Stored, Window};

const OURS: &str = "freshet-wire";
const THEIRS: &str = "postgres";
const RESPONDER: &str = "responder";

const CASES: &[(&str, &str)] = &[
    ("ratio", "64 customers, so many percent of the forms Form 2, while the feed runs 8 times as fast as it did"),
    ("ratio-quiet", "64 customers, so many percent of the forms Form 2, without a feed"),
    ("speed", "64 customers, half of the forms each, while the feed runs so many times as fast as it did"),
    ("few", "8 customers, half of the forms each, the feed 8 times as fast"),
    ("feed", "nobody asks: messages as fast as they are acknowledged"),
];
const CUSTOMERS: usize = 64;
const FEW_CUSTOMERS: usize = 8;
/// Percent of Form 2.
const RATIOS: [u64; 5] = [0, 25, 50, 75, 100];
const SPEEDS: [Speed; 7] = [
    QUIET,
    Speed::Times(1.0),
    Speed::Times(2.0),
    Speed::Times(4.0),
    Speed::Times(PEAK),
    Speed::Times(100.0),
    Speed::Max,
];
const QUIET: Speed = Speed::Times(0.0);
/// The speed at which ratios are compared.
const PEAK: f64 = 8.0;
/// Connections of the feed, on every server: a trade takes two round trips, and among 64 customers who ask without a pause each connection has its
/// turn once in some milliseconds, while the peak at 8 times its speed has 7 messages in each.
const APPLIERS: usize = 32;
const MEMORY_BYTES: u64 = 3 << 29;
/// Below, a run only shows that it works.
const JUDGED_STOCKS: usize = 1_000;
const PROBE_BYTES: u64 = 64 << 20;
const COPY_BYTES: usize = 1 << 20;

const TIMES_POSTGRES: f64 = 4.0;
const OF_RESPONDER: f64 = 0.7;
const CPU_OF_POSTGRES: f64 = 1.0 / 8.0;
const LAG_P99_US: f64 = 20_000.0;
const AT_100_OF_NONE: f64 = 0.8;

/// A market's feed and its customers, on our server and on PostgreSQL
#[derive(Args, Clone, Debug)]
pub struct MarketArgs {
    /// A real feed (CSV or .zst); without it a day is generated
    #[arg(long, value_name = "FILE")]
    feed: Option<PathBuf>,
    /// Daily bars for the feed's charts (CSV or .zst)
    #[arg(long, value_name = "FILE", requires = "feed")]
    daily: Option<PathBuf>,
    /// Copies of the day, under cloned codes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clones: u32,
    /// The generated day's number of stocks
    #[arg(long, default_value_t = 1_700, conflicts_with = "feed", value_parser = clap::value_parser!(u32).range(1..=80_000))]
    stocks: u32,
    /// The generated day's number of messages
    #[arg(long, default_value_t = 4_000_000, conflicts_with = "feed", value_parser = clap::value_parser!(u64).range(1_000..))]
    messages: u64,
    /// Seconds of the day that are replayed: its densest
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    window: u64,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = suite::seconds)]
    seconds: f64,
    /// Over loopback, not through socket files as clients on the server's machine do
    #[arg(long)]
    tcp: bool,
    /// Both queries of a form in one message
    #[arg(long)]
    pipelined: bool,
    /// Only these cases [default: all]
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',')]
    cases: Vec<String>,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where the databases are made
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
}

/// One measurement, of each server.
#[derive(Clone, Copy, Debug)]
struct Point {
    case: &'static str,
    customers: usize,
    form_2_percent: u64,
    speed: Speed,
    /// The sweep's place, in one.
    at: Option<f64>,
}

/// What a measurement gave.
struct Measured {
    shown: Shown,
    applied: Applied,
    seconds: f64,
    cpu_seconds: f64,
}

/// A server, with what it acknowledged and how often the window was replayed on it.
struct Market {
    system: System,
    stored: Stored,
    rounds: i64,
}

impl Market {
    fn acknowledged(&mut self, applied: &Applied, rounds: i64) {
        self.rounds = rounds;
        self.stored.trades += applied.trades;
        self.stored.history += applied.trades;
        self.stored.quotes += applied.quotes;
    }
}

pub fn run(args: &MarketArgs) -> Result<(), BenchError> {
    if let Some(unknown) = args.cases.iter().find(|case| !CASES.iter().any(|(name, _)| name == case)) {
        let known: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
        return Err(BenchError::Usage(format!("market has no case {unknown}; there are: {}", known.join(", "))));
    }
    freshet_wire::program()?;
    let has_postgres = (postgres::KIND.is_available)().map_err(|missing| say(&missing.line(THEIRS))).is_ok();
    figure::refuse_unwritable(args.json.iter().chain(&args.html))?;
    std::fs::create_dir_all(&args.data).map_err(on(&args.data))?;
    let machine = Machine::measure(&args.data, PROBE_BYTES)?;
    machine.lines().iter().for_each(|line| say(line));
    let window = during("the day", 0, |_| window_of(args))?;
    let (codes, messages) = (window.codes.len(), window.messages.len());
    say(&format!("{codes} codes; {messages} messages in {} s, {:.0} a second", args.window, window.per_second()));
    let scratch = Scratch::new(&args.data, "market")?;
    let sockets = Sockets::new(args.tcp)?;
    let mut markets = start(&scratch, &sockets, &window, has_postgres)?;
    markets.iter().for_each(|market| market.system.server().rests());
    let is_judged = codes >= JUDGED_STOCKS && machine.optimised;
    let mut figures = Vec::new();
    for point in points(&args.cases) {
        measure_all(args, &window, &mut markets, point, is_judged, &mut figures)?;
    }
    markets.iter().try_for_each(|market| market.system.while_asked(|| check(market)))?;
    figures.extend(at_100_of_none(&figures, is_judged));
    finish(args, machine, &figures)
}

fn window_of(args: &MarketArgs) -> Result<Window, BenchError> {
    let source = match &args.feed {
        Some(feed) => {
            Source::File { feed: feed.clone(), daily: args.daily.clone(), symbols: None, on_error: OnError::Stop }
        }
        None => Source::Generated(DayPlan { seed: 1, stocks: args.stocks, messages: args.messages }),
    };
    let day = Day::open(source).map_err(|error| BenchError::Usage(error.to_string()))?;
    Window::of(&day, args.window, args.clones)
}

fn points(cases: &[String]) -> Vec<Point> {
    let peak = Point { case: "few", customers: FEW_CUSTOMERS, form_2_percent: 50, speed: Speed::Times(PEAK), at: None };
    let many = Point { customers: CUSTOMERS, ..peak };
    let mut points = Vec::new();
    for (case, speed) in [("ratio", peak.speed), ("ratio-quiet", QUIET)] {
        let ratio = |percent| Point { case, form_2_percent: percent, speed, at: Some(percent as f64), ..many };
        points.extend(RATIOS.map(ratio));
    }
    points.extend(SPEEDS.map(|speed| Point { case: "speed", speed, at: Some(speed.times()), ..many }));
    points.push(peak);
    points.push(Point { case: "feed", customers: 0, speed: Speed::Max, ..peak });
    points.retain(|point| cases.is_empty() || cases.iter().any(|case| case == point.case));
    points
}

/// Starts and fills the servers. The one that does nothing replays what ours says to the queries.
fn start(scratch: &Scratch, sockets: &Sockets, window: &Window, has_postgres: bool) -> Result<Vec<Market>, BenchError> {
    let log = LogPlan::of_all(&[]).map_err(BenchError::Usage)?;
    let setup = |name: &str| {
        let dir = scratch.path().join(name);
        std::fs::create_dir_all(&dir).map_err(on(&dir))?;
        let setup = Setup::new(dir, log.clone(), MEMORY_BYTES, CUSTOMERS + APPLIERS)?;
        Ok::<_, BenchError>(Setup { socket: sockets.of(name), ..setup })
    };
    let ours = Wire::start(&setup(OURS)?)?;
    let address = ours.address();
    let mut systems = vec![System::Freshet(ours)];
    if has_postgres {
        systems.insert(0, System::Postgres(Postgres::start(&setup(THEIRS)?)?));
    }
    for system in &systems {
        during(&format!("{}: load", system.name()), 0, |_| load(system, window))?;
    }
    let recorded = scratch.path().join("recorded");
    let code = window.codes.first().map_or("", |code| &code.code);
    let queries = [forms::QF1, forms::QF2, &forms::qf3(), forms::QF4, apply::CHECK_STATUS, apply::BEST];
    responder::record(address, &queries, code, &recorded)?;
    systems.insert(
        0,
        System::Responder(Responder::start(scratch.path(), Some(&recorded), sockets.of(RESPONDER).as_deref())?),
    );
    Ok(systems.into_iter().map(|system| Market { system, stored: window.stored(), rounds: 0 }).collect())
}

fn load(system: &System, window: &Window) -> Result<(), BenchError> {
    let address = system.address();
    for table in schema::all_tables() {
        let definition = match system {
            System::Freshet(_) => table.create(),
            _ => table.create_anywhere(),
        };
        ask(address, &definition)?;
    }
    for (table, text) in window.rows() {
        let mut rest = text.as_str();
        copy(address, table, |message| {
            let end = rest.len().min(COPY_BYTES);
            let end = (end..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            message.push_str(&rest[..end]);
            rest = &rest[end..];
            !message.is_empty()
        })?;
    }
    let positions: Vec<String> = (0..APPLIERS).map(|applier| format!("({applier}, 0)")).collect();
    ask(address, &format!("INSERT INTO market_position (applier, message) VALUES {}", positions.join(", ")))?;
    ask(address, "VACUUM ANALYZE").map(drop)
}

fn measure_all(
    args: &MarketArgs,
    window: &Window,
    markets: &mut [Market],
    point: Point,
    is_judged: bool,
    figures: &mut Vec<Figure>,
) -> Result<(), BenchError> {
    let mut measured = BTreeMap::new();
    for market in markets {
        let at = point.at.map_or(String::new(), |at| format!(" {at}"));
        let what = format!("{}: {}{at}", market.system.name(), point.case);
        let measure = || during(&what, 0, |_| measure(args, window, market, point));
        let (found, rounds) = market.system.while_asked(measure)?;
        market.acknowledged(&found.applied, rounds);
        measured.insert(market.system.name(), found);
    }
    let told = told(point, &measured, is_judged);
    figure::rates_table(&told).iter().skip(1).for_each(|line| say(&format!("  {line}")));
    figures.extend(told);
    Ok(())
}

/// The figures of a point: of each server, and what is due of ours.
fn told(point: Point, measured: &BTreeMap<&'static str, Measured>, is_judged: bool) -> Vec<Figure> {
    let mut figures: Vec<Figure> = measured.iter().map(|(adapter, found)| figure_of(point, adapter, found)).collect();
    let (Some(ours), Some(limit)) = (measured.get(OURS), measured.get(RESPONDER)) else { return figures };
    let theirs = measured.get(THEIRS);
    let rate = |m: &Measured| rate_of(point, m);
    let own = figures.iter_mut().find(|f| f.adapter == OURS).expect("it was measured");
    own.peers = theirs.map(|theirs| (THEIRS, rate(ours) / rate(theirs))).into_iter().collect();
    *own = std::mem::take(own).limit(rate(limit));
    if point.customers > 0 && point.speed == Speed::Times(PEAK) {
        // Four times PostgreSQL, or 0.7 of what only replays: whichever is lower.
        let due = theirs.map(|theirs| (TIMES_POSTGRES * rate(theirs)).min(OF_RESPONDER * rate(limit)));
        let of_due = due.map(|due| derived(point, "forms, of what is due").ratio(rate(ours) / due));
        figures.extend(of_due.map(|figure| figure.due_if(is_judged, Due::RatioAtLeast(1.0))));
        let p99_us = Some(ours.applied.lag_us.value_at_quantile(0.99) as f64);
        let lag = Figure { p99_us, ..derived(point, "feed lag") };
        figures.push(lag.due_if(is_judged, Due::P99AtMostUs(LAG_P99_US)));
    }
    if (point.case, point.speed) == ("speed", QUIET) || point.customers == 0 {
        figures.extend(theirs.map(|theirs| cpu_beside(point, [ours, theirs, limit], is_judged)));
    }
    figures
}

/// Our server's processor time of a form or a message, to PostgreSQL's.
fn cpu_beside(point: Point, [ours, theirs, limit]: [&Measured; 3], is_judged: bool) -> Figure {
    let cpu = |m: &Measured| m.cpu_seconds / amount_of(point, m).max(1.0);
    let each = if point.customers > 0 { "server CPU of a form" } else { "server CPU of a message" };
    let us = |m: &Measured| format!("{:.1} us", cpu(m) * 1e6);
    let note = format!("{}, PostgreSQL {}, a server that only replays {}", us(ours), us(theirs), us(limit));
    let figure = derived(point, each).ratio(cpu(ours) / cpu(theirs)).note(note);
    figure.due_if(is_judged, Due::RatioAtMost(CPU_OF_POSTGRES))
}

/// A figure of ours that is a ratio or a time.
fn derived(point: Point, name: &str) -> Figure {
    Figure {
        workload: "market",
        adapter: OURS,
        sessions: point.customers,
        at: point.at,
        ..Figure::new(point.case, name, 0.0, "", 0.0)
    }
}

fn amount_of(point: Point, measured: &Measured) -> f64 {
    if point.customers > 0 { measured.shown.forms as f64 } else { measured.applied.messages as f64 }
}

fn rate_of(point: Point, measured: &Measured) -> f64 {
    amount_of(point, measured) / measured.seconds
}

fn figure_of(point: Point, adapter: &'static str, measured: &Measured) -> Figure {
    let (unit, latency) = match point.customers {
        0 => ("messages", &measured.applied.lag_us),
        _ => ("forms", &measured.shown.latency_us),
    };
    let amount = amount_of(point, measured);
    let speed = match point.speed {
        Speed::Times(times) => format!("feed {times} times"),
        Speed::Max => "feed as fast as it goes".to_owned(),
    };
    let lag = &measured.applied.lag_us;
    let lag = match lag.is_empty() {
        true => String::new(),
        false => format!(
            "; {:.0} messages/s, lag p99 {}",
            measured.applied.messages as f64 / measured.seconds,
            figure::micros(lag.value_at_quantile(0.99) as f64)
        ),
    };
    Figure {
        workload: "market",
        adapter,
        sessions: point.customers,
        at: point.at,
        cpu_share: Some(measured.cpu_seconds / measured.seconds / processors() as f64),
        p50_us: Some(latency.value_at_quantile(0.5) as f64),
        p99_us: Some(latency.value_at_quantile(0.99) as f64),
        note: format!(
            "{speed}, {}% Form 2; server {:.1} us of processor each{lag}",
            point.form_2_percent,
            measured.cpu_seconds * 1e6 / amount.max(1.0)
        ),
        ..Figure::new(point.case, unit, amount, unit, measured.seconds)
    }
}

/// Threads with the customers, and one with the appliers, each with an event loop of its own. Gives with it how often the window has been replayed then.
fn measure(args: &MarketArgs, window: &Window, market: &Market, point: Point) -> Result<(Measured, i64), BenchError> {
    let threads = processors().min(point.customers);
    let has_feed = point.speed != QUIET;
    let ready = Barrier::new(threads + usize::from(has_feed) + 1);
    let clock = OnceLock::new();
    let stop = AtomicBool::new(false);
    let (address, mut rounds) = (market.system.address(), market.rounds);
    let asking = Asking { form_2_percent: point.form_2_percent, pipelined: args.pipelined };
    // Whoever fails still meets the others at the barriers, so that nobody waits for ever.
    let meet = || {
        ready.wait();
        ready.wait();
        *clock.get().expect("set between the two barriers")
    };
    std::thread::scope(|scope| {
        let customers: Vec<_> = (0..threads)
            .map(|thread| {
                let (meet, stop) = (&meet, &stop);
                scope.spawn(move || {
                    let own = (thread..point.customers).step_by(threads);
                    let asked = on_a_loop(async {
                        let connected =
                            futures::future::try_join_all(own.clone().map(|_| Customer::connect(address))).await;
                        let clock = meet();
                        let connected = connected?;
                        let asking = connected
                            .iter()
                            .zip(own)
                            .map(|(customer, seed)| customer.ask(window, asking, seed as u64 + 1, clock));
                        futures::future::try_join_all(asking).await
                    });
                    asked.inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let feed = has_feed.then(|| {
            let (meet, stop) = (&meet, &stop);
            scope.spawn(move || {
                let round = Cell::new(rounds);
                let applied = on_a_loop(async {
                    let connected =
                        futures::future::try_join_all((0..APPLIERS).map(|n| Applier::connect(address, n, APPLIERS)))
                            .await;
                    let (clock, started) = (meet(), Instant::now());
                    let connected = connected?;
                    let applying = connected
                        .iter()
                        .map(|applier| applier.apply(window, point.speed, started, clock, &round, stop));
                    futures::future::try_join_all(applying).await
                });
                applied.map(|applied| (applied, round.get()))
            })
        });
        ready.wait();
        let begin = Instant::now() + Duration::from_secs(1);
        let end = begin + Duration::from_secs_f64(args.seconds);
        clock.set(Clock { begin, end }).expect("set once");
        ready.wait();
        std::thread::sleep(begin.saturating_duration_since(Instant::now()));
        let before = market.system.server().cpu_seconds();
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let cpu_seconds = market.system.server().cpu_seconds() - before;
        let mut measured =
            Measured { shown: Shown::default(), applied: Applied::default(), seconds: args.seconds, cpu_seconds };
        for thread in customers {
            let shown = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            shown.iter().for_each(|shown| measured.shown.add(shown));
        }
        if let Some(feed) = feed {
            let (applied, replayed) = feed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            rounds = replayed;
            applied.iter().for_each(|applied| measured.applied.add(applied));
        }
        Ok((measured, rounds))
    })
}

fn on_a_loop<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    tokio::task::LocalSet::new().block_on(&runtime()?, work)
}

/// The server holds what it acknowledged.
fn check(market: &Market) -> Result<(), BenchError> {
    if matches!(market.system, System::Responder(_)) {
        return Ok(());
    }
    let number = |sql| market.system.number(sql).map(|number| number as u64);
    let found = Stored {
        trades: number("SELECT sum(trade_count)::bigint FROM trade")?,
        history: number("SELECT count(*) FROM trade_history")?,
        quotes: number("SELECT sum(quote_count)::bigint FROM bidnask")?,
    };
    match found == market.stored {
        true => Ok(()),
        false => Err(BenchError::WrongData(format!(
            "{} holds {found:?}, where {:?} were acknowledged",
            market.system.name(),
            market.stored
        ))),
    }
}

/// Forms a second at 100 times the feed, of those without.
fn at_100_of_none(figures: &[Figure], is_judged: bool) -> Option<Figure> {
    let rate = |at: f64| {
        let found =
            figures.iter().find(|f| f.case == "speed" && f.adapter == OURS && f.figure == "forms" && f.at == Some(at));
        found.map(|f| f.rate_per_s)
    };
    let ratio = rate(100.0)? / rate(0.0)?;
    let figure = Figure {
        workload: "market",
        adapter: OURS,
        sessions: CUSTOMERS,
        ..Figure::new("speed", "forms at 100 times the feed, of those without", 0.0, "", 0.0).ratio(ratio)
    };
    Some(figure.due_if(is_judged, Due::RatioAtLeast(AT_100_OF_NONE)))
}

fn finish(args: &MarketArgs, machine: Machine, figures: &[Figure]) -> Result<(), BenchError> {
    say("");
    figure::rates_table(figures).iter().for_each(|line| say(line));
    let config = BTreeMap::from([
        ("feed", args.feed.as_ref().map_or("generated".to_owned(), |feed| feed.display().to_string())),
        ("clones", args.clones.to_string()),
        ("seconds", args.seconds.to_string()),
        ("through", served::through(args.tcp).to_owned()),
        ("mode", if args.pipelined { "pipelined" } else { "plain" }.to_owned()),
    ]);
    let setting = Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine };
    let written = report::write((args.json.as_deref(), args.html.as_deref()), "market", CASES, figures, &setting);
    say("");
    say(&figure::verdict(figures));
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one server, the faster the more of Form 1 and the less feed.
    fn made_up(point: Point, nth: usize) -> Measured {
        let at = point.at.unwrap_or(0.0).min(200.0);
        let mut measured = Measured {
            shown: Shown { forms: 10_000 * (nth as u64 + 1) - 10 * at as u64, ..Shown::default() },
            applied: Applied { messages: 1_000, ..Applied::default() },
            seconds: 1.0,
            cpu_seconds: 0.1 + at / 1_000.0,
        };
        measured.shown.latency_us.saturating_record(1_000 + at as u64);
        measured
    }

    /// The part of the page below a heading, up to the next one of its rank.
    fn below<'a>(page: &'a str, heading: &str, rank: &str) -> &'a str {
        let (_, rest) = page.split_once(&format!("<{rank}>{heading}</{rank}>")).expect(heading);
        rest.split(&format!("<{rank}>")).next().expect("a first part")
    }

    #[test]
    fn the_report_has_the_four_plots_of_the_source() {
        let dir = tempfile::tempdir().expect("a directory");
        let machine = Machine::measure(dir.path(), 1 << 20).expect("measures");
        let setting = Setting { commit: String::new(), version: "", config: BTreeMap::new(), machine };
        let mut figures = Vec::new();
        for point in points(&[]) {
            let adapters = ["postgres", "freshet-wire", "responder"].into_iter().enumerate();
            figures.extend(adapters.map(|(nth, adapter)| figure_of(point, adapter, &made_up(point, nth))));
            figures.push(derived(point, "forms, of what is due").ratio(1.0));
        }
        let page = report::page("market", CASES, &figures, &setting);
        let rate = "forms, per second";
        let time = "forms, median and 99th percentile (dashed) of the time of one";
        let cpu = "forms, processors that the server took, of all";
        let plots = [("ratio", rate, 1), ("ratio", time, 2), ("speed", rate, 1), ("speed", cpu, 1)];
        for (case, plot, lines_each) in plots {
            let svg = below(below(&page, case, "h2"), plot, "h3");
            assert_eq!(svg.matches("<polyline").count(), 3 * lines_each, "{case}, {plot}: {svg}");
            // Every point of each line, that with 0 % or without a feed too.
            let places = if case == "ratio" { RATIOS.len() } else { SPEEDS.len() };
            assert_eq!(svg.matches("<circle").count(), 3 * lines_each * places, "{case}, {plot}: {svg}");
            assert!(svg.contains(">0</text>") && !svg.contains("NaN") && !svg.contains("inf"), "{case}, {plot}: {svg}");
        }
        assert!(below(below(&page, "speed", "h2"), rate, "h3").contains(">max</text>"), "as fast as it goes");
        assert_eq!(page.matches("<h3>forms, of what is due").count(), 0, "what is no rate is no plot of rates");
    }

    #[test]
    fn without_postgresql_nothing_is_due_that_compares_with_it() {
        let figures = |adapters: &[&'static str], case: &str| -> Vec<Figure> {
            let measured = |point| adapters.iter().map(|adapter| (*adapter, made_up(point, 0))).collect();
            points(&[case.to_owned()]).into_iter().flat_map(|point| told(point, &measured(point), true)).collect()
        };
        let due = |figures: &[Figure]| -> Vec<String> {
            figures.iter().filter(|f| f.due.is_some()).map(|f| f.figure.clone()).collect()
        };
        let all = figures(&[OURS, THEIRS, RESPONDER], "few");
        assert_eq!(due(&all), ["forms, of what is due", "feed lag"]);
        let alone = figures(&[OURS, RESPONDER], "few");
        assert_eq!(due(&alone), ["feed lag"]);
        let own = alone.iter().find(|f| f.adapter == OURS).expect("ours");
        assert!(own.peers.is_empty() && own.ratio_to_limit == Some(1.0), "{own:?}");
        assert_eq!(due(&figures(&[OURS, THEIRS, RESPONDER], "feed")), ["server CPU of a message"]);
        assert!(due(&figures(&[OURS, RESPONDER], "feed")).is_empty());
    }

    #[test]
    fn forms_at_100_times_the_feed_are_compared_with_those_without() {
        let figures: Vec<Figure> =
            points(&["speed".to_owned()]).into_iter().map(|p| figure_of(p, "freshet-wire", &made_up(p, 0))).collect();
        let figure = at_100_of_none(&figures, true).expect("both were measured");
        assert_eq!((figure.ratio_to_limit, figure.met), (Some(0.9), Some(true)));
        assert!(at_100_of_none(&figures[1..], true).is_none());
    }
}
