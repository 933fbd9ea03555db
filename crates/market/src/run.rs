//! How does it all go together? `freshet market`: from options to an exit code.
//!
//! 1. Read the feed once, or plan the generated day. A malformed line ends the run here, before anything is changed.
//! 2. Open the database, open the listener.
//! 3. Set up, or find where an earlier run stopped, or find that the day is done.
//! 4. Apply the rest while customers ask for forms.
//! 5. Close the day.
//! 6. Fold the feed anew and compare every row.
//!
//! With `--udp` the feed of step 1 says which codes there are, the messages of step 4 come from a socket, and step 6 folds what was received.
//!
//! The exit code is 0 only if step 6 finds no difference.

use crate::apply::{ApplyOptions, Gauge, apply_day, latency_histogram};
use crate::check::{Outcome, check, fold};
use crate::closing::close_day;
use crate::error::{Doing, MarketError, Result};
use crate::forms::{self, FormTally};
use crate::generate::{DayPlan, MESSAGES_BEFORE_OPENING};
use crate::lines::OnError;
use crate::live::{self, Live};
use crate::load::{Identity, RunState, run_state, set_up};
use crate::progress::{Progress, say};
use crate::replay::Speed;
use crate::report::{Environment, Latency, OptionsTold, Replayed, Report, thousands};
use crate::source::{Day, Source};
use freshet_db::{Database, Datum, Options};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Tells a data directory of ours from any other: `--fresh` deletes only what holds this file.
const MARKER: &str = "FRESHET-MARKET";

/// What came from a socket, in the data directory.
const SPOOL: &str = "received";

/// Tells runs of a socket from runs of a file.
const LIVE_FINGERPRINT: u64 = 0x5544_5020_6665_6564;

/// The name of the engine's lock files.
const LOCK: &str = "lock";

/// The names of the engine's other files in a data directory; those of images have a number.
const FILES: [&str; 8] =
    ["fence", "fence.new", "manifest", "manifest.new", "restart", "restart.new", "probe.tmp", "unfinished"];
/// The log's directory, and the names there beside those of segments.
const LOG: &str = "log";
const LOG_FILES: [&str; 4] = ["fence", "fence.new", "prepare.tmp", "probe.tmp"];

const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// Replays a trading day into a durable database and checks what it holds.
#[derive(clap::Args, Clone, Debug)]
pub struct MarketArgs {
    /// A real feed (CSV or .zst); without it a day is generated
    #[arg(long, value_name = "FILE")]
    pub feed: Option<PathBuf>,
    /// Daily bars for the feed's charts (CSV or .zst)
    #[arg(long, value_name = "FILE", requires = "feed")]
    pub daily: Option<PathBuf>,
    /// Codes and names of stocks (TSV or .zst)
    #[arg(long, value_name = "FILE", requires = "feed")]
    pub symbols: Option<PathBuf>,
    /// What a malformed line or an unknown code does
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
    /// Seconds of the feed per second, or `max`
    #[arg(long, default_value_t = Speed::Max)]
    pub speed: Speed,
    /// Copies of the day, under cloned codes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clones: u32,
    /// Threads that apply messages [default: one per core, or as the data directory was begun with]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub appliers: Option<u32>,
    /// Customers who ask for forms all the time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub query_sessions: u32,
    /// Where the database lives
    #[arg(long, value_name = "DIR", default_value = "freshet-data/market")]
    pub data: PathBuf,
    /// Deletes an earlier run in the data directory first
    #[arg(long)]
    pub fresh: bool,
    /// Acknowledges commits before they are durable (synchronous_commit = off)
    #[arg(long)]
    pub deferred: bool,
    /// Writes the results as one JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where PostgreSQL clients may connect meanwhile, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5433")]
    pub listen: Listen,
    /// Takes the messages from UDP datagrams (MoldUDP64) that arrive here; a multicast group is joined. The feed, or the
    /// generated day, then only tells which codes there are
    #[arg(long, value_name = "ADDRESS", conflicts_with = "udp_send")]
    pub udp: Option<SocketAddr>,
    /// Sends the day's messages as UDP datagrams at the given speed instead of applying them
    #[arg(long, value_name = "ADDRESS")]
    pub udp_send: Option<SocketAddr>,
    /// The generated day's seed
    #[arg(long, default_value_t = 1, conflicts_with = "feed")]
    pub seed: u64,
    /// The generated day's number of messages
    #[arg(long, default_value_t = 1_000_000, conflicts_with = "feed")]
    pub messages: u64,
    /// The generated day's number of stocks
    #[arg(long, default_value_t = 1_700, conflicts_with = "feed", value_parser = clap::value_parser!(u32).range(1..=80_000))]
    pub stocks: u32,
}

/// Where to listen, if at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listen {
    None,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Listen, String> {
        if text == "none" {
            return Ok(Listen::None);
        }
        let address = text.parse();
        address.map(Listen::At).map_err(|_| "an address like 127.0.0.1:5433, or `none`".to_owned())
    }
}

/// Keeps a listener open until it is dropped.
pub type ListenGuard = Box<dyn std::any::Any + Send>;

/// Runs the market. `listen` opens the PostgreSQL listener over the database; its error is one line for the user, and
/// ends the run.
pub fn run(
    args: MarketArgs,
    listen: impl FnOnce(&Database, SocketAddr) -> std::result::Result<ListenGuard, String>,
) -> ExitCode {
    if let Some(to) = args.udp_send {
        return match send_day(&args, to) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        };
    }
    let terms = Terms { options: database_options(&args.data), abandon_after: None };
    match carry_out(&args, terms, listen) {
        Ok(Some(report)) if report.check == "ok" => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail(&error),
    }
}

fn fail(error: &MarketError) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "freshet market: {error}");
    ExitCode::FAILURE
}

fn send_day(args: &MarketArgs, to: SocketAddr) -> Result<()> {
    let day = open_day(args)?;
    let began = Instant::now();
    let sent = live::send(&day, to, args.speed)?;
    let (messages, datagrams) = (thousands(sent.messages as f64), thousands(sent.datagrams as f64));
    say(&format!(
        "sent {messages} messages in {datagrams} datagrams to {to} in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// What the command line does not say.
pub(crate) struct Terms {
    pub options: Options,
    /// See [`ApplyOptions::abandon_after`].
    pub abandon_after: Option<u64>,
}

/// The whole run. `None` if it was abandoned in the middle, as tests do.
pub(crate) fn carry_out(
    args: &MarketArgs,
    terms: Terms,
    listen: impl FnOnce(&Database, SocketAddr) -> std::result::Result<ListenGuard, String>,
) -> Result<Option<Report>> {
    let day = open_day(args)?;
    day.listing.check_clones(args.clones).map_err(MarketError::Usage)?;
    prepare_directory(&args.data, args.fresh)?;
    let live = match args.udp {
        Some(address) => Some(Live::bind(address, &args.data.join(SPOOL), say)?),
        None => None,
    };
    let db = Database::open(terms.options).map_err(MarketError::Open)?;
    let _listener = match args.listen {
        Listen::None => None,
        Listen::At(address) => {
            let guard = listen(&db, address).map_err(MarketError::Listen)?;
            tell_how_to_connect(address, &day);
            Some(guard)
        }
    };
    if let Some(address) = live.as_ref().and_then(|live| live.local_addr().ok()) {
        say(&format!("taking the feed from {address}"));
    }
    Market::begin(&db, &day, live.as_ref(), args)?.finish(terms.abandon_after)
}

fn open_day(args: &MarketArgs) -> Result<Day> {
    let source = match &args.feed {
        Some(feed) => {
            say(&format!("reading {}", feed.display()));
            Source::File {
                feed: feed.clone(),
                daily: args.daily.clone(),
                symbols: args.symbols.clone(),
                on_error: args.on_error,
            }
        }
        None => {
            let least = MESSAGES_BEFORE_OPENING * u64::from(args.stocks);
            if args.messages < least {
                return Err(MarketError::Usage(format!(
                    "--messages {}: a day of {} stocks has at least {least} messages",
                    args.messages, args.stocks
                )));
            }
            Source::Generated(DayPlan { seed: args.seed, stocks: args.stocks, messages: args.messages })
        }
    };
    let day = Day::open(source)?;
    let summary = &day.summary;
    if summary.messages == 0 {
        let name = &summary.name;
        return Err(MarketError::Usage(format!("{name} holds no messages: {} lines were skipped", summary.skipped)));
    }
    say(&match args.feed {
        None => format!("{}, {}", summary.name, day.date()),
        Some(_) => format!(
            "{}: {} messages of {} stocks, {} lines skipped",
            day.date(),
            thousands(summary.messages as f64),
            thousands(day.listing.in_feed().len() as f64),
            thousands(summary.skipped as f64)
        ),
    });
    Ok(day)
}

/// Makes the directory ours, or refuses to touch what is not.
fn prepare_directory(dir: &Path, fresh: bool) -> Result<()> {
    let marker = dir.join(MARKER);
    let empty = match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(MarketError::file(dir, error)),
    };
    if !empty && !marker.is_file() {
        return Err(MarketError::Usage(format!(
            "{} is not empty and holds no market database (no file {MARKER} in it): choose another --data",
            dir.display()
        )));
    }
    if !empty && fresh {
        refuse_if_in_use(dir)?;
        // The marker stays, so that a deletion that is interrupted can be begun again.
        delete_run(dir)?;
    }
    std::fs::create_dir_all(dir).map_err(|e| MarketError::file(dir, e))?;
    let text = "A market database of freshet; `freshet market --fresh` may delete what it left in this directory.\n";
    std::fs::write(&marker, text).map_err(|e| MarketError::file(&marker, e))
}

/// A process that has the database open holds its lock files, which lie in the directory or one below.
fn refuse_if_in_use(dir: &Path) -> Result<()> {
    let below = std::fs::read_dir(dir).map_err(|e| MarketError::file(dir, e))?;
    let below = below.filter_map(|entry| Some(entry.ok()?.path().join(LOCK)));
    for path in std::iter::once(dir.join(LOCK)).chain(below) {
        let Ok(file) = std::fs::File::open(&path) else {
            continue;
        };
        if matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            return Err(MarketError::Usage(format!("{} is in use by another process", dir.display())));
        }
    }
    Ok(())
}

/// Deletes what a run left in its directory, and nothing else. What is left is told.
fn delete_run(dir: &Path) -> Result<()> {
    let failed = |path: &Path, error| MarketError::file(path, error);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_of = |name: &str, whole: &[&str], prefix: &str, suffix: &str| {
        let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
        name == LOCK || whole.contains(&name) || number.is_some_and(is_number)
    };
    let mut left = Vec::new();
    let log = dir.join(LOG);
    for (dir, whole, prefix, suffix) in
        [(dir, &FILES[..], "images-", ""), (log.as_path(), &LOG_FILES[..], "log-", ".seg")]
    {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| failed(dir, error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(dir, error))?;
            let (path, name) = (entry.path(), entry.file_name());
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            match name.to_str() {
                Some(MARKER | LOG) => {}
                Some(name) if is_file && (name == SPOOL || is_of(name, whole, prefix, suffix)) => {
                    std::fs::remove_file(&path).map_err(|error| failed(&path, error))?;
                }
                _ => left.push(path.display().to_string()),
            }
        }
    }
    match left.is_empty() {
        // Empty now, if it was there.
        true => _ = std::fs::remove_dir(&log),
        false => say(&format!("left where it is, as no run made it: {}", left.join(", "))),
    }
    Ok(())
}

/// The engine's defaults, within four fifths of this machine's memory.
fn database_options(dir: &Path) -> Options {
    let mut options = Options::new(dir);
    let memory = Environment::here(Vec::new()).memory_bytes;
    if memory > 0 {
        options.memory_limit_bytes = options.memory_limit_bytes.min(memory / 5 * 4);
    }
    options
}

fn tell_how_to_connect(address: SocketAddr, day: &Day) {
    say(&format!("connect:  psql -h {} -p {} -U market market", address.ip(), address.port()));
    if let Some(stock) = day.listing.in_feed().first() {
        say(&format!(
            "and try:  SELECT trade_time, settled_price, closest_bid, closest_ask FROM trade WHERE stock_code = '{}';",
            stock.code
        ));
    }
}

/// A run under way.
struct Market<'a> {
    db: &'a Database,
    day: &'a Day,
    live: Option<&'a Live>,
    args: &'a MarketArgs,
    appliers: u32,
    done_before: bool,
    setup: Duration,
}

impl<'a> Market<'a> {
    /// Sets up, or finds what an earlier run left.
    fn begin(db: &'a Database, day: &'a Day, live: Option<&'a Live>, args: &'a MarketArgs) -> Result<Market<'a>> {
        for line in db.runs_without() {
            say(&format!("runs without {line}"));
        }
        let began = Instant::now();
        let mut session = db.session().doing("connecting")?;
        let state = run_state(&mut session)?;
        let stored = match &state {
            RunState::Fresh => None,
            RunState::Started(identity) | RunState::Done(identity) => Some(identity),
        };
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let appliers = args.appliers.or(stored.map(|identity| identity.appliers)).unwrap_or(cores.clamp(1, 16));
        let identity = Identity {
            feed: match live {
                Some(_) => format!("{} by UDP", day.summary.name),
                None => day.summary.name.clone(),
            },
            fingerprint: day.summary.fingerprint ^ live.map_or(0, |_| LIVE_FINGERPRINT),
            messages: day.summary.messages,
            clones: args.clones,
            appliers,
        };
        match stored {
            Some(stored) => identity.check_same(stored)?,
            None => set_up_visibly(db, day, &identity)?,
        }
        if matches!(state, RunState::Started(_)) {
            say("resuming after the last applied message (--fresh starts over)");
        }
        Ok(Market {
            db,
            day,
            live,
            args,
            appliers,
            done_before: matches!(state, RunState::Done(_)),
            setup: began.elapsed(),
        })
    }

    fn total_messages(&self) -> u64 {
        self.day.summary.messages * u64::from(self.args.clones)
    }

    fn finish(self, abandon_after: Option<u64>) -> Result<Option<Report>> {
        let mut report = self.report();
        if self.done_before {
            say(&format!(
                "the day in {} is done: checking it again (--fresh starts a new one)",
                self.args.data.display()
            ));
        } else {
            let replayed = self.replay(abandon_after)?;
            if abandon_after.is_some() {
                return Ok(None);
            }
            replayed.tell(&mut report);
            report.udp = self.live.map(Live::counts);
            report.skipped_lines += self.live.map_or(0, Live::skipped);
            let began = Instant::now();
            let traded = close_day(self.db, self.day, self.args.clones)?;
            report.closing_seconds = began.elapsed().as_secs_f64();
            say(&format!("closed the day: {} stocks traded", thousands(traded as f64)));
        }
        let began = Instant::now();
        let outcome = self.check()?;
        report.check_seconds = began.elapsed().as_secs_f64();
        report.checked(&outcome);
        say(&report.table());
        for line in &outcome.told {
            say(&format!("  differs: {line}"));
        }
        if let Some(path) = &self.args.json {
            std::fs::write(path, report.json()).map_err(|e| MarketError::file(path, e))?;
        }
        Ok(Some(report))
    }

    /// What is known before anything is measured.
    fn report(&self) -> Report {
        let none = || Latency::of(&latency_histogram());
        Report {
            feed: self.day.summary.name.clone(),
            outcome: match self.done_before {
                true => "done before",
                false => "replayed",
            },
            messages: 0,
            messages_total: self.total_messages(),
            quotes: 0,
            trades: 0,
            statuses: 0,
            refused_trades: 0,
            skipped_lines: self.day.summary.skipped,
            udp: None,
            statements: 0,
            seconds: 0.0,
            messages_per_s: 0.0,
            statements_per_s: 0.0,
            latency_us: none(),
            forms: 0,
            forms_per_s: 0.0,
            form_latency_us: none(),
            log_bytes_per_quote: 0.0,
            log_bytes_per_trade: 0.0,
            log_groups: 0,
            log_group_overhead_bytes: 0,
            log_group_overhead_bytes_per_message: 0.0,
            setup_seconds: self.setup.as_secs_f64(),
            closing_seconds: 0.0,
            checked_rows: 0,
            check_seconds: 0.0,
            check: String::new(),
            options: OptionsTold {
                speed: self.args.speed.to_string(),
                clones: self.args.clones,
                appliers: self.appliers,
                query_sessions: self.args.query_sessions,
                durability: match self.args.deferred {
                    true => "deferred",
                    false => "durable",
                },
            },
            environment: Environment::here(self.db.runs_without()),
        }
    }

    /// Applies what is left, with customers asking and a person watching.
    fn replay(&self, abandon_after: Option<u64>) -> Result<Replayed> {
        let options = ApplyOptions {
            clones: self.args.clones,
            appliers: self.appliers,
            speed: self.args.speed,
            deferred: self.args.deferred,
            on_error: self.args.on_error,
            abandon_after,
        };
        let gauges: Vec<Gauge> = (0..self.appliers).map(|_| Gauge::default()).collect();
        let shown: Vec<AtomicU64> = (0..self.args.query_sessions).map(|_| AtomicU64::new(0)).collect();
        let codes = forms::codes(self.day, self.args.clones);
        let sessions = if codes.is_empty() { &[] } else { &shown[..] };
        let stop = AtomicBool::new(false);
        let (before, began) = (self.db.stats(), Instant::now());
        let (applied, asked) = std::thread::scope(|scope| {
            let (finished, applying) = channel::<()>();
            let (stop, codes) = (&stop, &codes);
            let asking: Vec<_> = sessions
                .iter()
                .zip(1..)
                .map(|(shown, seed)| scope.spawn(move || self.ask(codes, seed, stop, shown)))
                .collect();
            let gauges = &gauges;
            let appliers = scope.spawn(move || {
                let tally = apply_day(self.db, self.day, self.live, options, gauges, stop);
                let ended = (tally, began.elapsed(), self.db.stats());
                stop.store(true, Ordering::Relaxed);
                drop(finished);
                ended
            });
            self.watch(&applying, gauges, sessions, began);
            let applied = appliers.join().expect("appliers return their errors");
            let asked: Vec<Result<FormTally>> =
                asking.into_iter().map(|thread| thread.join().expect("form sessions return their errors")).collect();
            (applied, asked)
        });
        let (tally, elapsed, after) = applied;
        Ok(Replayed {
            // The appliers' error first: a customer's may follow from it.
            tally: tally?,
            forms: total(asked)?,
            elapsed,
            before,
            after,
        })
    }

    /// One customer. A failure stops the appliers too.
    fn ask(&self, codes: &[Datum], seed: u64, stop: &AtomicBool, shown: &AtomicU64) -> Result<FormTally> {
        let asked = forms::ask(self.db, codes, seed, stop, shown);
        asked.inspect_err(|_| stop.store(true, Ordering::Relaxed))
    }

    /// Shows progress until the appliers are done.
    fn watch(&self, applying: &std::sync::mpsc::Receiver<()>, gauges: &[Gauge], shown: &[AtomicU64], began: Instant) {
        let mut progress = Progress::new("replaying", self.total_messages());
        let sum =
            |of: &dyn Fn(&Gauge) -> &AtomicU64| -> u64 { gauges.iter().map(|g| of(g).load(Ordering::Relaxed)).sum() };
        while applying.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let seconds = began.elapsed().as_secs_f64();
            let rate = |count: u64| thousands(count as f64 / seconds);
            progress.show(sum(&|g| &g.position), || {
                let forms = shown.iter().map(|s| s.load(Ordering::Relaxed)).sum();
                format!(
                    "{} messages/s  {} statements/s  {} forms/s",
                    rate(sum(&|g| &g.applied)),
                    rate(sum(&|g| &g.statements)),
                    rate(forms)
                )
            });
        }
    }

    fn check(&self) -> Result<Outcome> {
        let received = self.live.map(|live| live.received(&self.day.listing, self.args.on_error)).transpose()?;
        let model = fold(self.day, received)?;
        let (clones, checked) = (self.args.clones, AtomicU64::new(0));
        let codes = self.day.listing.in_feed().len() as u64 * u64::from(clones);
        std::thread::scope(|scope| {
            let (finished, checking) = channel::<()>();
            let (model, checked) = (&model, &checked);
            let checker = scope.spawn(move || {
                let outcome = check(self.db, self.day, model, clones, self.appliers, checked);
                drop(finished);
                outcome
            });
            let mut progress = Progress::new("checking", codes);
            while checking.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                progress.show(checked.load(Ordering::Relaxed), || "stocks".to_owned());
            }
            checker.join().expect("the check returns its errors")
        })
    }
}

fn set_up_visibly(db: &Database, day: &Day, identity: &Identity) -> Result<()> {
    let began = Instant::now();
    let in_feed = day.listing.in_feed().len() as u64 * u64::from(identity.clones);
    let codes = in_feed + day.listing.listed_only().len() as u64;
    let other_bars: usize = day.bars.by_symbol.values().map(Vec::len).sum();
    let about = 3 * codes + in_feed * crate::listing::CHART_DAYS as u64 + other_bars as u64;
    let mut rows = 0;
    {
        let mut progress = Progress::new("loading", about);
        set_up(db, day, identity, &mut |loaded| {
            rows = loaded;
            progress.show(loaded, || format!("{} rows", thousands(loaded as f64)));
        })?;
    }
    say(&format!("set up: {} rows in {:.1} s", thousands(rows as f64), began.elapsed().as_secs_f64()));
    Ok(())
}

fn total(asked: Vec<Result<FormTally>>) -> Result<FormTally> {
    let mut total = FormTally { forms: 0, latency_us: latency_histogram() };
    for tally in asked {
        let tally = tally?;
        total.forms += tally.forms;
        total.latency_us.add(&tally.latency_us).expect("all histograms have the same bounds");
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod udp_tests;
