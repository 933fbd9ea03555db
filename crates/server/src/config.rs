//! What is the server told to do? Flags over environment over file over defaults.
//!
//! | flag | environment | file | default |
//! |---|---|---|---|
//! | `--data DIR` | `FRESHET_DATA` | `data` | none: it must be given |
//! | `--log DIR`, repeated | `FRESHET_LOG`, separated by `:` | `log = [..]` | `log` in the data directory |
//! | `--log-retired DIR`, repeated | `FRESHET_LOG_RETIRED`, separated by `:` | `log_retired = [..]` | none |
//! | `--backup DIR`, repeated | `FRESHET_BACKUP`, separated by `:` | `backup = [..]` | the data directory |
//! | `--checkpoint-rate SIZE` | `FRESHET_CHECKPOINT_RATE` | `checkpoint_rate` | the engine's; 0: nothing is paced |
//! | `--listen ADDR` | `FRESHET_LISTEN` | `listen` | 127.0.0.1:5433 |
//! | `--socket DIR` | `FRESHET_SOCKET` | `socket` | none: clients of the same machine come over TCP too |
//! | `--memory-limit SIZE` | `FRESHET_MEMORY_LIMIT` | `memory_limit` | 80 % of the cgroup or machine |
//! | `--log-size SIZE` | `FRESHET_LOG_SIZE` | `log_size` | the engine's |
//! | `--segment-size SIZE` | `FRESHET_SEGMENT_SIZE` | `segment_size` | the engine's |
//! | `--workers N` | `FRESHET_WORKERS` | `workers` | one per core |
//! | `--max-connections N` | `FRESHET_MAX_CONNECTIONS` | `max_connections` | 1000 |
//! | `--superuser-reserved-connections N` | `FRESHET_SUPERUSER_RESERVED_CONNECTIONS` | `superuser_reserved_connections` | 3; all but one of fewer connections |
//! | `--max-message SIZE` | `FRESHET_MAX_MESSAGE` | `max_message` | 256MiB |
//! | `--long-statements N` | `FRESHET_LONG_STATEMENTS` | `long_statements` | four per core, 16 at least |
//! | `--long-statements-waiting N` | `FRESHET_LONG_STATEMENTS_WAITING` | `long_statements_waiting` | 256 |
//! | `--drain-timeout TIME` | `FRESHET_DRAIN_TIMEOUT` | `drain_timeout` | 30s |
//! | `--http ADDR` | `FRESHET_HTTP` | `http` | none: no metrics |
//! | `--log-format FORMAT` | `FRESHET_LOG_FORMAT` | `log_format` | text; or json |
//! | `--log-level LEVEL` | `FRESHET_LOG_LEVEL` | `log_level` | info; `FRESHET_TRACE` wins over it |
//! | | | `[settings]`: what SET takes, for every session | PostgreSQL's defaults |
//! | `--recovery-target TIME` | `FRESHET_RECOVERY_TARGET` | `recovery_target` | 10s; 0: off |
//! | `--huge-pages BOOL` | `FRESHET_HUGE_PAGES` | `huge_pages` | true |
//! | `--direct-io BOOL` | `FRESHET_DIRECT_IO` | `direct_io` | true |
//! | `--tls-cert FILE` | `FRESHET_TLS_CERT` | `tls_cert` | none: no TLS |
//! | `--tls-key FILE` | `FRESHET_TLS_KEY` | `tls_key` | none |
//! | `--allow-plain BOOL` | `FRESHET_ALLOW_PLAIN` | `allow_plain` | false |
//! | `--authentication-timeout TIME` | `FRESHET_AUTHENTICATION_TIMEOUT` | `authentication_timeout` | 60s |
//! | | | `[[rule]]` | see `admission`: none, so only the machine itself is served, and trusted |

use crate::admission::{Rule, Rules};
use crate::listener;
use crate::logging::{self, LogFormat};
use crate::tls::TlsFiles;
use freshet_db::Options;
use freshet_db::sql::settings::{self, Defaults};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A configuration that cannot be used: one clear line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A number of bytes, written as `64MiB`, `8GB` or plain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// Kept for what threads hold beside all that is accounted for: a statement's scratch, the 4 MiB that a large commit may compose, the lists of
/// a fold. Of the limit, and at most.
const SCRATCH_SHARE: u64 = 10;
const SCRATCH_BYTES_MAX: u64 = 32 << 20;

/// As in PostgreSQL.
const CONNECTIONS_MAX: usize = 262_143;
/// Threads for sessions: each takes three descriptors.
const WORKERS_MAX: usize = 1024;

/// Open transactions have this long after SIGTERM.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A setting's value as the file has it: `'10min'`, `5`, `true`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(untagged)]
pub enum SettingValue {
    Bool(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Bool(value) => f.write_str(if *value { "on" } else { "off" }),
            SettingValue::Whole(value) => value.fmt(f),
            SettingValue::Real(value) => value.fmt(f),
            SettingValue::Text(value) => f.write_str(value),
        }
    }
}

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Size, ConfigError> {
        let invalid = || ConfigError(format!("\"{text}\" is no size; write it as in 64MiB or 8GiB"));
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().map_err(|_| invalid())?;
        let unit = match text[end..].trim() {
            "" => 1,
            name => UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name)).ok_or_else(invalid)?.1,
        };
        number.checked_mul(unit).map(Size).ok_or_else(invalid)
    }
}

impl fmt::Display for Size {
    /// In the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = &UNITS[..4];
        match binary.iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes)) {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Size(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A time, written as `10s`, `500ms`, `2min` or plain milliseconds, as SET takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Time, ConfigError> {
        let time = freshet_db::sql::settings::time(text);
        time.map(Time).ok_or_else(|| ConfigError(format!("\"{text}\" is no time; write it as in 10s or 500ms")))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&freshet_db::sql::settings::show_time(self.0))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Milliseconds(u32),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Milliseconds(ms) => Ok(Time(Duration::from_millis(ms.into()))),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// What one source says: the command line with the environment, or a file.
#[derive(clap::Args, Deserialize, Clone, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Directory of the database; made if it is not there
    #[arg(long, env = "FRESHET_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Log directory, one per device [default: log in the data directory]
    #[arg(
        long,
        env = "FRESHET_LOG",
        value_name = "DIR",
        value_delimiter = ':',
        action = clap::ArgAction::Append
    )]
    log: Option<Vec<PathBuf>>,
    /// Former log directory: read as far as it is still needed, not written
    #[arg(
        long,
        env = "FRESHET_LOG_RETIRED",
        value_name = "DIR",
        value_delimiter = ':',
        action = clap::ArgAction::Append
    )]
    log_retired: Option<Vec<PathBuf>>,
    /// Directory for checkpoints, one or several [default: the data directory]
    #[arg(
        long,
        env = "FRESHET_BACKUP",
        value_name = "DIR",
        value_delimiter = ':',
        action = clap::ArgAction::Append
    )]
    backup: Option<Vec<PathBuf>>,
    /// What a checkpoint that nobody waits for writes per second at least; 0: as fast as it goes
    #[arg(long, env = "FRESHET_CHECKPOINT_RATE", value_name = "SIZE")]
    checkpoint_rate: Option<Size>,
    /// Address to listen on; beyond loopback only with rules [default: 127.0.0.1:5433]
    #[arg(long, env = "FRESHET_LISTEN", value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Directory of a socket file for clients of the same machine, as `psql -h DIR` looks for it
    #[arg(long, env = "FRESHET_SOCKET", value_name = "DIR")]
    socket: Option<PathBuf>,
    /// Memory for everything, a restart included [default: 80 % of the cgroup or machine]
    #[arg(long, env = "FRESHET_MEMORY_LIMIT", value_name = "SIZE")]
    memory_limit: Option<Size>,
    /// Space for the log on all devices together
    #[arg(long, env = "FRESHET_LOG_SIZE", value_name = "SIZE")]
    log_size: Option<Size>,
    /// Size of one log file
    #[arg(long, env = "FRESHET_SEGMENT_SIZE", value_name = "SIZE")]
    segment_size: Option<Size>,
    /// Threads that serve sessions [default: one per core]
    #[arg(long, env = "FRESHET_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Sessions at the same time [default: 1000]
    #[arg(long, env = "FRESHET_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Sessions, of these, that only superusers have [default: 3]
    #[arg(long, env = "FRESHET_SUPERUSER_RESERVED_CONNECTIONS", value_name = "N")]
    superuser_reserved_connections: Option<usize>,
    /// Longest message of a client [default: 256MiB]
    #[arg(long, env = "FRESHET_MAX_MESSAGE", value_name = "SIZE")]
    max_message: Option<Size>,
    /// Statements that take long at the same time, each on a thread [default: four per core, 16 at least]
    #[arg(long, env = "FRESHET_LONG_STATEMENTS", value_name = "N")]
    long_statements: Option<NonZeroUsize>,
    /// Long statements that wait for a thread before new ones are refused [default: 256]
    #[arg(long, env = "FRESHET_LONG_STATEMENTS_WAITING", value_name = "N")]
    long_statements_waiting: Option<usize>,
    /// How long open transactions may take after SIGTERM [default: 30s]
    #[arg(long, env = "FRESHET_DRAIN_TIMEOUT", value_name = "TIME")]
    drain_timeout: Option<Time>,
    /// Address for /metrics, /healthz and /readyz over HTTP [default: none]
    #[arg(long, env = "FRESHET_HTTP", value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// How the server's log looks on stderr [default: text]
    #[arg(long, env = "FRESHET_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What the server's log tells [default: info]
    #[arg(long, env = "FRESHET_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
    #[arg(skip)]
    settings: Option<BTreeMap<String, SettingValue>>,
    /// How long a restart may take: checkpoints are paced to hold it; 0: off [default: 10s]
    #[arg(long, env = "FRESHET_RECOVERY_TARGET", value_name = "TIME")]
    recovery_target: Option<Time>,
    /// Ask for huge pages [default: true]
    #[arg(long, env = "FRESHET_HUGE_PAGES", value_name = "BOOL")]
    huge_pages: Option<bool>,
    /// Write the log past the page cache [default: true]
    #[arg(long, env = "FRESHET_DIRECT_IO", value_name = "BOOL")]
    direct_io: Option<bool>,
    /// Certificate for TLS with its chain, in PEM; read again when it changes or at SIGHUP
    #[arg(long, env = "FRESHET_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, env = "FRESHET_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Let clients of other machines in without TLS, where a rule does [default: false]
    #[arg(long, env = "FRESHET_ALLOW_PLAIN", value_name = "BOOL")]
    allow_plain: Option<bool>,
    /// How long a client may take to say and prove who it is [default: 60s]
    #[arg(long, env = "FRESHET_AUTHENTICATION_TIMEOUT", value_name = "TIME")]
    authentication_timeout: Option<Time>,
    #[arg(skip)]
    rule: Option<Vec<Rule>>,
}

impl Layer {
    pub fn read(file: &Path) -> Result<Layer, ConfigError> {
        let failed =
            |reason: &dyn fmt::Display| ConfigError(format!("configuration file {}: {reason}", file.display()));
        let text = fs::read_to_string(file).map_err(|e| failed(&e))?;
        toml::from_str(&text).map_err(|e| failed(&e.message()))
    }

    /// What this says, and where it says nothing, what `lower` does.
    pub fn over(self, lower: Layer) -> Layer {
        Layer {
            data: self.data.or(lower.data),
            log: self.log.or(lower.log),
            log_retired: self.log_retired.or(lower.log_retired),
            backup: self.backup.or(lower.backup),
            checkpoint_rate: self.checkpoint_rate.or(lower.checkpoint_rate),
            listen: self.listen.or(lower.listen),
            socket: self.socket.or(lower.socket),
            memory_limit: self.memory_limit.or(lower.memory_limit),
            log_size: self.log_size.or(lower.log_size),
            segment_size: self.segment_size.or(lower.segment_size),
            workers: self.workers.or(lower.workers),
            max_connections: self.max_connections.or(lower.max_connections),
            superuser_reserved_connections: self
                .superuser_reserved_connections
                .or(lower.superuser_reserved_connections),
            max_message: self.max_message.or(lower.max_message),
            long_statements: self.long_statements.or(lower.long_statements),
            long_statements_waiting: self.long_statements_waiting.or(lower.long_statements_waiting),
            drain_timeout: self.drain_timeout.or(lower.drain_timeout),
            http: self.http.or(lower.http),
            log_format: self.log_format.or(lower.log_format),
            log_level: self.log_level.or(lower.log_level),
            settings: self.settings.or(lower.settings),
            recovery_target: self.recovery_target.or(lower.recovery_target),
            huge_pages: self.huge_pages.or(lower.huge_pages),
            direct_io: self.direct_io.or(lower.direct_io),
            tls_cert: self.tls_cert.or(lower.tls_cert),
            tls_key: self.tls_key.or(lower.tls_key),
            allow_plain: self.allow_plain.or(lower.allow_plain),
            authentication_timeout: self.authentication_timeout.or(lower.authentication_timeout),
            rule: self.rule.or(lower.rule),
        }
    }

    pub fn with_defaults(self) -> Config {
        let engine = Options::new("");
        let listener = listener::Options::new(SocketAddr::from(([127, 0, 0, 1], 5433)));
        let max_connections = self.max_connections.map_or(listener.connections_max, NonZeroUsize::get);
        Config {
            data: self.data,
            log: self.log.unwrap_or_default(),
            log_retired: self.log_retired.unwrap_or_default(),
            backup: self.backup.unwrap_or_default(),
            checkpoint_rate: self.checkpoint_rate.unwrap_or(Size(engine.checkpoint_bytes_per_s)),
            listen: self.listen.unwrap_or(listener.listen),
            socket: self.socket,
            memory_limit: self.memory_limit.unwrap_or(Size(engine.memory_limit_bytes)),
            log_size: self.log_size.unwrap_or(Size(engine.log_size_bytes)),
            segment_size: self.segment_size.unwrap_or(Size(engine.segment_bytes)),
            workers: self.workers.map_or(listener.workers, NonZeroUsize::get),
            max_connections,
            superuser_reserved_connections: self
                .superuser_reserved_connections
                .unwrap_or(listener.connections_reserved.min(max_connections - 1)),
            max_message: self.max_message.unwrap_or(Size(listener.message_bytes_max as u64)),
            long_statements: self.long_statements.map_or(listener.long_statements_max, NonZeroUsize::get),
            long_statements_waiting: self.long_statements_waiting.unwrap_or(listener.long_statements_waiting_max),
            drain_timeout: self.drain_timeout.unwrap_or(Time(DRAIN_TIMEOUT)),
            http: self.http,
            log_format: self.log_format.unwrap_or_default(),
            log_level: self.log_level.unwrap_or_else(|| "info".to_owned()),
            settings: self.settings.unwrap_or_default(),
            recovery_target: self.recovery_target.unwrap_or(Time(engine.recovery_target)),
            huge_pages: self.huge_pages.unwrap_or(engine.huge_pages),
            direct_io: self.direct_io.unwrap_or(engine.direct_io),
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            allow_plain: self.allow_plain.unwrap_or(listener.allow_plain),
            authentication_timeout: self.authentication_timeout.unwrap_or(Time(listener.authentication_timeout)),
            rule: self.rule.unwrap_or_default(),
        }
    }
}

/// A log device's current segment, two spares, and one that is made or marked.
const LOG_FILES_OPEN: u64 = 4;

/// What is in force.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Config {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    pub log: Vec<PathBuf>,
    pub log_retired: Vec<PathBuf>,
    pub backup: Vec<PathBuf>,
    pub checkpoint_rate: Size,
    pub listen: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    pub memory_limit: Size,
    pub log_size: Size,
    pub segment_size: Size,
    pub workers: usize,
    pub max_connections: usize,
    pub superuser_reserved_connections: usize,
    pub max_message: Size,
    pub long_statements: usize,
    pub long_statements_waiting: usize,
    pub drain_timeout: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    pub log_format: LogFormat,
    pub log_level: String,
    pub recovery_target: Time,
    pub huge_pages: bool,
    pub direct_io: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    pub allow_plain: bool,
    pub authentication_timeout: Time,
    /// Last, as tables of TOML come behind plain values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, SettingValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<Rule>,
}

impl Config {
    /// As the file that would say the same.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|e| ConfigError(format!("the configuration as TOML: {e}")))
    }

    pub fn database(&self) -> Result<Options, ConfigError> {
        let Some(data) = &self.data else {
            return Err(ConfigError(
                "no data directory: give --data DIR, FRESHET_DATA or `data` in the configuration file".to_owned(),
            ));
        };
        let usual = Options::new(data);
        // Beside sessions of clients there may be embedded ones.
        let sessions = u32::try_from(self.max_connections).unwrap_or(u32::MAX).saturating_add(64);
        Ok(Options {
            log_dirs: self.log.clone(),
            retired_log_dirs: self.log_retired.clone(),
            backup_dirs: self.backup.clone(),
            checkpoint_bytes_per_s: self.checkpoint_rate.0,
            stage_limit_bytes: usual.stage_limit_bytes.min(self.segment_size.0 / 4),
            sessions_max: usual.sessions_max.max(sessions),
            memory_limit_bytes: self.memory_limit.0,
            program_bytes: freshet_db::resident_bytes() + (self.memory_limit.0 / SCRATCH_SHARE).min(SCRATCH_BYTES_MAX),
            log_size_bytes: self.log_size.0,
            segment_bytes: self.segment_size.0,
            recovery_target: self.recovery_target.0,
            huge_pages: self.huge_pages,
            direct_io: self.direct_io,
            ..usual
        })
    }

    /// What sessions have where nobody sets anything else; also a check of what can be changed while the server runs.
    pub fn defaults(&self) -> Result<Defaults, ConfigError> {
        logging::check_level(&self.log_level).map_err(ConfigError)?;
        let given = self.settings.iter().map(|(name, value)| (name.clone(), value.to_string()));
        let told = [
            ("listen_addresses", self.listen.ip().to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("port", self.listen.port().to_string()),
            ("ssl", if self.tls_cert.is_some() { "on" } else { "off" }.to_owned()),
            ("superuser_reserved_connections", self.superuser_reserved_connections.to_string()),
        ];
        let told = told.map(|(name, value)| (name.to_owned(), value));
        settings::defaults(given.chain(told)).map_err(|error| ConfigError(format!("[settings]: {}", error.message)))
    }

    pub fn listener(&self) -> Result<listener::Options, ConfigError> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate: certificate.clone(), key: key.clone() }),
            (None, None) => None,
            _ => return Err(ConfigError("TLS needs both tls_cert and tls_key".to_owned())),
        };
        let (reserved, all) = (self.superuser_reserved_connections, self.max_connections);
        if reserved >= all {
            return Err(ConfigError(format!(
                "superuser_reserved_connections ({reserved}) must be less than max_connections ({all})"
            )));
        }
        let limits = [("max_connections", all, CONNECTIONS_MAX), ("workers", self.workers, WORKERS_MAX)];
        if let Some((name, given, most)) = limits.into_iter().find(|(_, given, most)| given > most) {
            return Err(ConfigError(format!("{name} ({given}) can be {most} at most")));
        }
        Ok(listener::Options {
            listen: self.listen,
            socket: self.socket.clone(),
            workers: self.workers,
            connections_max: self.max_connections,
            connections_reserved: self.superuser_reserved_connections,
            // A length word counts to 2 GiB.
            message_bytes_max: self.max_message.0.min(i32::MAX as u64) as usize,
            long_statements_max: self.long_statements,
            long_statements_waiting_max: self.long_statements_waiting,
            rules: Rules(self.rule.clone()),
            tls,
            allow_plain: self.allow_plain,
            authentication_timeout: self.authentication_timeout.0,
            log_files: LOG_FILES_OPEN * self.log.len().max(1) as u64,
            ..listener::Options::new(self.listen)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("64MiB", 64 << 20), ("8 gib", 8 << 30), ("1000", 1000), ("2GB", 2_000_000_000), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Size(3 << 30).to_string(), "3GiB");
        assert_eq!(Size(1000).to_string(), "1000");
        for text in ["", "x", "-1", "1.5GiB", "1 parsec", "99999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_and_written() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("1500", 1500), ("0", 0)] {
            let time: Time = text.parse().expect(text);
            assert_eq!(time, Time(Duration::from_millis(ms)), "{text}");
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        for text in ["", "soon", "-1s", "10 parsecs"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        let file: Layer = toml::from_str("recovery_target = '30s'").unwrap();
        let options = Layer { data: Some("/d".into()), ..file }.with_defaults().database().unwrap();
        assert_eq!(options.recovery_target, Duration::from_secs(30));
    }

    #[test]
    fn the_higher_layer_wins() {
        let flags = Layer { listen: Some("127.0.0.1:1".parse().unwrap()), ..Layer::default() };
        let file: Layer = toml::from_str(
            "data = '/d'\nlisten = '127.0.0.1:2'\nworkers = 3\nmemory_limit = '1GiB'\nlog_size = 4096\nlog = ['/a', '/b']\nlog_retired = ['/e']\nbackup = ['/c']\ncheckpoint_rate = 0",
        )
        .unwrap();
        let config = flags.over(file).with_defaults();
        assert_eq!(config.listen.port(), 1);
        assert_eq!(config.workers, 3);
        assert_eq!(config.memory_limit, Size(1 << 30));
        assert_eq!(config.log_size, Size(4096));
        assert_eq!(config.max_connections, 1000);
        let options = config.database().unwrap();
        assert_eq!(options.data_dir, Path::new("/d"));
        assert_eq!((options.log_dirs.len(), options.retired_log_dirs), (2, vec![PathBuf::from("/e")]));
        assert_eq!((options.backup_dirs.len(), options.checkpoint_bytes_per_s), (1, 0));
    }

    #[test]
    fn what_is_printed_reads_back() {
        let layer = Layer { data: Some("/d".into()), max_message: Some(Size(5 << 20)), ..Layer::default() };
        let config = layer.with_defaults();
        let printed = config.to_toml().unwrap();
        let read: Layer = toml::from_str(&printed).unwrap();
        assert_eq!(read.with_defaults(), config);
    }

    #[test]
    fn settings_are_checked_and_become_defaults() {
        let file = "log_format = 'json'\n[settings]\nidle_session_timeout = '10min'\nlog_min_duration_statement = 250\njit = false\n'pg_stat_statements.track' = 'top'";
        let config = toml::from_str::<Layer>(file).unwrap().with_defaults();
        let defaults = config.defaults().unwrap();
        let of = |name: &str| defaults.get(name).map(String::as_str);
        assert_eq!((of("idle_session_timeout"), of("log_min_duration_statement")), (Some("10min"), Some("250ms")));
        assert_eq!((of("jit"), of("max_connections")), (Some("off"), Some("1000")));
        let read: Layer = toml::from_str(&config.to_toml().unwrap()).unwrap();
        assert_eq!(read.with_defaults(), config);
        for wrong in ["[settings]\nno_such = 1", "[settings]\nlock_timeout = 'soon'", "log_level = 'x=loud'"] {
            assert!(toml::from_str::<Layer>(wrong).unwrap().with_defaults().defaults().is_err(), "{wrong}");
        }
    }

    #[test]
    fn superusers_have_places_of_their_own_but_not_all() {
        let config = |file: &str| toml::from_str::<Layer>(file).unwrap().with_defaults();
        assert_eq!(config("").superuser_reserved_connections, 3);
        assert_eq!(config("max_connections = 2").listener().unwrap().connections_reserved, 1);
        let given = config("max_connections = 9\nsuperuser_reserved_connections = 8");
        assert_eq!(given.listener().unwrap().connections_reserved, 8);
        let defaults = given.defaults().unwrap();
        assert_eq!(defaults.get("superuser_reserved_connections").map(String::as_str), Some("8"));
        let error = config("max_connections = 9\nsuperuser_reserved_connections = 9").listener().unwrap_err();
        assert!(error.0.contains("must be less than max_connections"), "{error}");
    }

    #[test]
    fn a_wrong_file_is_told() {
        assert!(toml::from_str::<Layer>("colour = 'red'").is_err());
        assert!(toml::from_str::<Layer>("workers = 0").is_err());
        assert!(toml::from_str::<Layer>("log_size = 'much'").is_err());
        let error = Layer::read(Path::new("/no/such/file")).unwrap_err();
        assert!(error.0.contains("/no/such/file"), "{error}");
        assert!(Layer::default().with_defaults().database().is_err());
    }
}
