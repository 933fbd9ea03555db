//! `freshet serve`: opens a database, serves it until it is told to stop or the log fails.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | stopped by SIGINT (at once) or SIGTERM (once open transactions are over), sessions ended, database closed |
//! | 1 | could not start: port, directory, format; one line on stderr says which |
//! | 2 | wrong usage or configuration |
//! | 3 | the log failed: nothing more was acknowledged |

use crate::config::{Config, ConfigError, Layer};
use crate::http::Http;
use crate::listener::{self, Server};
use crate::recovery::Recovery;
use crate::signals::{Early, Signals};
use crate::watch::{Level, Watch};
use crate::{logging, reload};
use freshet_db::{Database, Options};
use freshet_engine::promise::State;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How soon a failed log ends the process.
const FAILURE_CHECK: Duration = Duration::from_millis(100);
/// The prediction of a restart is looked at once in so many of these checks.
const PROMISE_ROUNDS: u32 = 10;
/// Looks at a better state before it is told: a minute.
const BETTER_ROUNDS: u32 = 60;

/// How often checkpoints and the log's space are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long reading the configuration may take at SIGHUP.
const RELOAD_PATIENCE: Duration = Duration::from_secs(10);

/// How long the sessions of a failed log have to end.
const FAILURE_PATIENCE: Duration = Duration::from_secs(10);

/// Serve a database to PostgreSQL clients
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    layer: Layer,
    /// Configuration file in TOML; flags and environment win over it
    #[arg(long, env = "FRESHET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration in force and exit
    #[arg(long)]
    print_config: bool,
}

const CANNOT_START: u8 = 1;
const WRONG_USAGE: u8 = 2;
const LOG_FAILED: u8 = 3;

/// Says one line and gives the code to exit with.
fn exit(code: u8, reason: impl std::fmt::Display) -> ExitCode {
    logging::say(&format!("freshet: {reason}\n"));
    ExitCode::from(code)
}

pub fn run(args: Args) -> ExitCode {
    let early = match Early::watch() {
        Ok(early) => early,
        Err(error) => return exit(CANNOT_START, format_args!("signals: {error}")),
    };
    let mut config = match effective(args.layer.clone(), args.config.as_deref()) {
        Ok(config) => config,
        Err(error) => return exit(WRONG_USAGE, error),
    };
    if args.print_config {
        return print(&config);
    }
    let checked = config.database().and_then(|options| Ok((options, config.listener()?, config.defaults()?)));
    let (options, listening, defaults) = match checked {
        Ok(checked) => checked,
        Err(error) => return exit(WRONG_USAGE, error),
    };
    logging::start(&config.log_level, config.log_format);
    if let Err(error) = logging::queue() {
        return exit(CANNOT_START, format_args!("no thread for the log's lines: {error}"));
    }
    stop_on_panic();
    raise_descriptor_limit();
    let recovery = Recovery::new(true);
    let starting = match listener::start(listening, recovery.clone()) {
        Ok(starting) => starting,
        Err(error) => return exit(CANNOT_START, error),
    };
    let http = config.http.map(|address| Http::start(address, starting.watched())).transpose();
    let http = match http {
        Ok(http) => http,
        Err(error) => return exit(CANNOT_START, error),
    };
    if let Some(http) = &http {
        tracing::info!("metrics and health on http://{}", http.local_addr());
    }
    let options = Options { progress: Some(recovery.clone()), ..options };
    let database = match Database::open(options) {
        Ok(database) => database,
        Err(error) => return exit(CANNOT_START, error),
    };
    database.activity().set_defaults(defaults);
    let ending = match early.go_on() {
        Ok(signals) => Ending(signals),
        Err(error) => return exit(CANNOT_START, format_args!("signals: {error}")),
    };
    for device in database.engine().log_devices() {
        tracing::info!("log {device}");
    }
    for missing in database.runs_without() {
        tracing::info!("runs without {missing}");
    }
    for (kind, of) in database.engine().huge_pages() {
        tracing::info!(
            "{kind}: {} MiB resident, {} MiB of them in huge pages",
            of.resident_bytes >> 20,
            of.huge_bytes >> 20
        );
    }
    recovery.finish(database.engine().recovery());
    let server = match starting.serve(&database) {
        Ok(server) => server,
        Err(error) => return exit(CANNOT_START, error),
    };
    tracing::info!("listening on {}", server.local_addr());
    if let Some(file) = server.socket_file() {
        tracing::info!("listening on {}", file.display());
    }
    let certificate = server.certificate();
    let (layer, file) = (args.layer.clone(), args.config.clone());
    let reading = move |take_up: Reader| {
        // Nobody waits any more if the answer took too long.
        let _ = take_up.send(effective(layer.clone(), file.as_deref()));
        certificate.reload();
    };
    let why = ending.wait(&database, reading, |new| reload(new, &mut config, &database, &server));
    match why {
        Why::Signal(name, drains) => {
            tracing::info!("{name}: stopping with {} sessions", server.sessions());
            if drains {
                drain(&server, config.drain_timeout.0);
            }
            server.stop();
            match database.engine().failure() {
                None => ExitCode::SUCCESS,
                Some(reason) => exit(LOG_FAILED, reason),
            }
        }
        Why::LogFailed(reason) => {
            // Said before the sessions end, which the statement of one of them may delay.
            tracing::error!("{reason}; ending {} sessions", server.sessions());
            end_by_force();
            server.stop();
            exit(LOG_FAILED, reason)
        }
    }
}

/// Open transactions end by themselves, if they do in time.
fn drain(server: &Server, limit: Duration) {
    let left = server.drain(limit);
    if left > 0 {
        tracing::warn!("{left} sessions have not ended within drain_timeout: their transactions are rolled back");
    }
}

/// Takes up a changed configuration, as far as that is possible while the server runs.
fn reload(new: Result<Config, ConfigError>, running: &mut Config, database: &Database, server: &Server) {
    match new.and_then(|new| reload::take(running, &new, database, |rules| server.take_rules(rules))) {
        Ok(changes) => {
            tracing::info!("SIGHUP: the configuration was read again, {} changes", changes.len());
            for change in changes {
                let reload::Change { name, from, to, is_taken } = change;
                match is_taken {
                    true => tracing::info!("{name}: {from} -> {to}"),
                    false => tracing::warn!("{name}: {from} -> {to} needs a restart"),
                }
            }
        }
        Err(error) => tracing::error!("SIGHUP: {error}; the configuration in force stays"),
    }
}

fn effective(layer: Layer, file: Option<&Path>) -> Result<Config, ConfigError> {
    let lower = match file {
        Some(file) => Layer::read(file)?,
        None => Layer::default(),
    };
    Ok(layer.over(lower).with_defaults())
}

fn print(config: &Config) -> ExitCode {
    let printed = config.to_toml().map_err(|e| e.to_string());
    let written = printed.and_then(|toml| std::io::stdout().write_all(toml.as_bytes()).map_err(|e| e.to_string()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit(CANNOT_START, error),
    }
}

/// A statement that runs for long does not keep a server with a failed log alive.
fn end_by_force() {
    let end = || {
        logging::finish();
        std::process::exit(i32::from(LOG_FAILED))
    };
    let later = move || {
        std::thread::sleep(FAILURE_PATIENCE);
        end()
    };
    if std::thread::Builder::new().spawn(later).is_err() {
        end();
    }
}

/// As many descriptors as the system allows: each session takes one, and the usual limit is less than a thousand sessions need.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || (limit.current.is_some() && limit.maximum.is_none()) {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "the limit on file descriptors stays");
        }
    }
}

/// A broken invariant stops the process: a restart recovers, a half-dead server may answer wrongly. Where only something was read, it ends its
/// statement.
fn stop_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        // Through the queue: a reader who does not read must not keep a server alive that is to stop.
        let thread = std::thread::current();
        let backtrace = Backtrace::capture();
        let trace =
            if backtrace.status() == BacktraceStatus::Captured { format!("{backtrace}\n") } else { String::new() };
        logging::say(&format!("thread '{}' {panic}\n{trace}", thread.name().unwrap_or("<unnamed>")));
        if !freshet_db::sql::unwind::ends_statement(panic) {
            logging::finish();
            std::process::abort();
        }
    }));
}

/// Why the server stops.
enum Why {
    /// Its name, and whether what is open may end by itself.
    Signal(&'static str, bool),
    LogFailed(String),
}

/// The promise of a restart: what is worse is told at once, what is better once it has been so for a while.
#[derive(Default)]
struct Promise {
    told: Option<State>,
    rounds: u32,
    better_rounds: u32,
}

impl Promise {
    fn tell_changes(&mut self, database: &Database) {
        self.rounds += 1;
        if !self.rounds.is_multiple_of(PROMISE_ROUNDS) {
            return;
        }
        let forecast = database.engine().restart_forecast();
        let told = self.told.unwrap_or(State::Off);
        self.better_rounds = if forecast.state < told { self.better_rounds + 1 } else { 0 };
        if forecast.state == told || (forecast.state < told && self.better_rounds < BETTER_ROUNDS) {
            return;
        }
        self.told = Some(forecast.state);
        match (forecast.warning(), forecast.predicted_seconds) {
            (Some(warning), _) => tracing::warn!("{warning}"),
            (None, Some(seconds)) if forecast.state == State::Held => {
                tracing::info!("a restart now would take {seconds:.1} s, within recovery_target");
            }
            _ => {}
        }
    }
}

/// Who waits for a configuration that is being read.
type Reader = tokio::sync::oneshot::Sender<Result<Config, ConfigError>>;

/// Has the configuration read on a thread of its own, which may hang in a file system or a pipe: signals are served meanwhile.
async fn read_aside(reading: impl FnOnce(Reader) + Send + 'static) -> Result<Config, ConfigError> {
    let (reader, read) = tokio::sync::oneshot::channel();
    let begun = std::thread::Builder::new().name("freshet-reload".to_owned()).spawn(move || reading(reader));
    if let Err(error) = begun {
        return Err(ConfigError(format!("no thread to read the configuration: {error}")));
    }
    match tokio::time::timeout(RELOAD_PATIENCE, read).await {
        Ok(Ok(new)) => new,
        Ok(Err(_)) => Err(ConfigError("whoever read the configuration broke off".into())),
        Err(_) => Err(ConfigError(format!("the configuration could not be read in {} s", RELOAD_PATIENCE.as_secs()))),
    }
}

/// What ends the server.
struct Ending(Signals);

impl Ending {
    fn wait(
        self,
        database: &Database,
        reading: impl FnOnce(Reader) + Clone + Send + 'static,
        mut reload: impl FnMut(Result<Config, ConfigError>),
    ) -> Why {
        let Ending(Signals { runtime, mut interrupt, mut terminate, mut hang_up }) = self;
        let reloads = async {
            while hang_up.recv().await.is_some() {
                reload(read_aside(reading.clone()).await);
            }
            std::future::pending::<std::convert::Infallible>().await
        };
        let failed = async {
            let mut promise = Promise::default();
            loop {
                if let Some(reason) = database.engine().failure() {
                    return reason;
                }
                promise.tell_changes(database);
                tokio::time::sleep(FAILURE_CHECK).await;
            }
        };
        let why = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => Why::Signal("interrupt", false),
                _ = terminate.recv() => Why::Signal("SIGTERM", true),
                reason = failed => Why::LogFailed(reason),
                never = reloads => match never {},
                never = tell(database) => match never {},
            }
        });
        // Who asks twice does not want to wait for long statements to end. Without a thread for that there is SIGKILL.
        let _ = std::thread::Builder::new().spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            logging::finish();
            std::process::exit(130);
        });
        why
    }
}

/// Says in the server's log what happens to checkpoints and to the log's space.
async fn tell(database: &Database) -> std::convert::Infallible {
    let (start, mut watch) = (Instant::now(), Watch::default());
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let stats = database.stats();
        let progress = database.engine().checkpoint_progress();
        let now_us = start.elapsed().as_micros() as u64;
        for (level, line) in watch.look(now_us, &progress, stats.log_used_bytes, stats.log_capacity_bytes) {
            match level {
                Level::Info => tracing::info!("{line}"),
                Level::Warn => tracing::warn!("{line}"),
            }
        }
    }
}
