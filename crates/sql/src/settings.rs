//! What do SET, RESET and SHOW know? The settings a driver or tool expects of a PostgreSQL 15, and our few own.
//!
//! A setting either means something here (`synchronous_commit`, the time limits, the isolation levels), or it has one
//! value that we serve and any other is refused, or it is free text for the client's own use. None is taken silently with a
//! meaning that we do not give it.

mod advice;

use crate::error::SqlError;
use crate::route::Level;
use crate::value::Zone;
use crate::value::interval::IntervalStyle;
use crate::value::quoted_ident;
use crate::value::{BadDateStyle, DateStyle};
use sqlparser::ast::Ident;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a setting accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Any text.
    Text,
    Bool,
    /// A whole number within these bounds.
    Int(i64, i64),
    /// A time in milliseconds, units taken.
    Milliseconds,
    /// The same, or -1 for off.
    MillisecondsOrOff,
    /// A time in whole seconds, units taken.
    Seconds,
    /// A size in kilobytes, units taken; -1 for none.
    Kilobytes,
    /// A number.
    Real,
    /// One of these, in any case.
    OneOf(&'static [&'static str]),
    /// A character set: UTF8, written in any way.
    Encoding,
    /// A time zone.
    Zone,
    /// How dates are shown and read: what is not said stays as it is.
    DateStyle,
    /// Told, never set.
    Fixed,
}

struct Known {
    name: &'static str,
    /// As SHOW writes it.
    display: &'static str,
    default: &'static str,
    kind: Kind,
    /// Sent to the client when it changes.
    reported: bool,
}

const fn known(name: &'static str, default: &'static str, kind: Kind) -> Known {
    Known { name, display: name, default, kind, reported: false }
}

const fn reported(name: &'static str, display: &'static str, default: &'static str, kind: Kind) -> Known {
    Known { name, display, default, kind, reported: true }
}

const ISOLATIONS: Kind = Kind::OneOf(&["read committed", "read uncommitted", "repeatable read", "serializable"]);

pub(crate) const RECOVERY_TARGET: &str = "recovery_target";

const TIME_UNITS_HINT: &str = r#"Valid units for this parameter are "us", "ms", "s", "min", "h", and "d"."#;

/// How long a statement takes that is logged; PostgreSQL's name, as those of the extension `pg_stat_statements` below.
const LOG_MIN_DURATION: &str = "log_min_duration_statement";
const TRACK: &str = "pg_stat_statements.track";
const TRACK_UTILITY: &str = "pg_stat_statements.track_utility";
const REPLICATION_ROLE: &str = "session_replication_role";

/// The default of `freshet.query_memory_mb`.
const QUERY_MEMORY_MB: usize = 1024;

/// In the order of their names.
static KNOWN: &[Known] = &[
    reported("application_name", "application_name", "", Kind::Text),
    known("archive_mode", "off", Kind::Fixed),
    // What nobody reads any more is collected without being asked.
    known("autovacuum", "on", Kind::Fixed),
    known("block_size", "8192", Kind::Fixed),
    known("bytea_output", "hex", Kind::OneOf(&["hex"])),
    known("check_function_bodies", "on", Kind::Bool),
    known("client_connection_check_interval", "0", Kind::OneOf(&["0"])),
    reported("client_encoding", "client_encoding", "UTF8", Kind::Encoding),
    known("client_min_messages", "notice", Kind::OneOf(crate::notice::LEVELS)),
    // Of images and of the log.
    known("data_checksums", "on", Kind::Fixed),
    reported("datestyle", "DateStyle", "ISO, MDY", Kind::DateStyle),
    // Accepted: a deadlock is found when it closes.
    known("deadlock_timeout", "1s", Kind::Milliseconds),
    known("debug_assertions", if cfg!(debug_assertions) { "on" } else { "off" }, Kind::Fixed),
    // Accepted: nothing here is deferred, and a serializable transaction that only reads cannot fail.
    known("default_transaction_deferrable", "off", Kind::Bool),
    known("default_transaction_isolation", "read committed", ISOLATIONS),
    reported("default_transaction_read_only", "default_transaction_read_only", "off", Kind::Bool),
    known("extra_float_digits", "1", Kind::Int(1, 3)),
    // A commit is acknowledged when its device has it.
    known("fsync", "on", Kind::Fixed),
    known("freshet.query_memory_mb", "1024", Kind::Int(1, 1 << 20)),
    known("freshet.road", "auto", Kind::OneOf(&["auto", "compiled", "query"])),
    known("hot_standby", "off", Kind::Fixed),
    known("idle_in_transaction_session_timeout", "0", Kind::Milliseconds),
    known("idle_session_timeout", "0", Kind::Milliseconds),
    reported("in_hot_standby", "in_hot_standby", "off", Kind::Fixed),
    reported("integer_datetimes", "integer_datetimes", "on", Kind::Fixed),
    reported("intervalstyle", "IntervalStyle", "postgres", Kind::OneOf(IntervalStyle::NAMES)),
    reported("is_superuser", "is_superuser", "on", Kind::Fixed),
    known("lc_collate", "C", Kind::Fixed),
    known("lc_ctype", "C.UTF-8", Kind::Fixed),
    known("lc_messages", "C", Kind::OneOf(&["C"])),
    known("lc_monetary", "C", Kind::OneOf(&["C"])),
    known("lc_numeric", "C", Kind::OneOf(&["C"])),
    known("lc_time", "C", Kind::OneOf(&["C"])),
    // The server tells its own.
    known("listen_addresses", "", Kind::Fixed),
    known("lock_timeout", "0", Kind::Milliseconds),
    known(LOG_MIN_DURATION, "-1", Kind::MillisecondsOrOff),
    known("max_connections", "100", Kind::Fixed),
    known("max_function_args", "100", Kind::Fixed),
    known("max_identifier_length", "63", Kind::Fixed),
    known("max_index_keys", "32", Kind::Fixed),
    known("max_prepared_transactions", "0", Kind::Fixed),
    known("max_wal_senders", "0", Kind::Fixed),
    known(TRACK, "none", Kind::OneOf(&["none", "top", "all"])),
    known(TRACK_UTILITY, "on", Kind::Bool),
    known("port", "0", Kind::Fixed),
    // The database's, not the session's: the engine holds it.
    known(RECOVERY_TARGET, "10s", Kind::Milliseconds),
    // Who that is, and who may be it, the session knows.
    known("role", "none", Kind::Fixed),
    known("row_security", "on", Kind::Bool),
    known("search_path", "\"$user\", public", Kind::Text),
    reported("server_encoding", "server_encoding", "UTF8", Kind::Fixed),
    reported("server_version", "server_version", SERVER_VERSION, Kind::Fixed),
    known("server_version_num", "150000", Kind::Fixed),
    reported("session_authorization", "session_authorization", "freshet", Kind::Fixed),
    known("shared_preload_libraries", "pg_stat_statements", Kind::Fixed),
    known("ssl", "off", Kind::Fixed),
    reported(
        "standard_conforming_strings",
        "standard_conforming_strings",
        "on",
        Kind::OneOf(&["on", "true", "yes", "1"]),
    ),
    known("statement_timeout", "0", Kind::Milliseconds),
    known("superuser_reserved_connections", "3", Kind::Fixed),
    known(REPLICATION_ROLE, "origin", Kind::OneOf(&["origin", "replica", "local"])),
    known("synchronous_commit", "on", Kind::OneOf(&["on", "off", "local", "true", "false"])),
    known("synchronize_seqscans", "on", Kind::Bool),
    known("tcp_keepalives_count", "0", Kind::Int(0, i32::MAX as i64)),
    known("tcp_keepalives_idle", "0", Kind::Seconds),
    known("tcp_keepalives_interval", "0", Kind::Seconds),
    known("tcp_user_timeout", "0", Kind::Milliseconds),
    reported("timezone", "TimeZone", "UTC", Kind::Zone),
    known("transaction_deferrable", "off", Kind::Bool),
    known("transaction_isolation", "read committed", ISOLATIONS),
    known("transaction_read_only", "off", Kind::Bool),
    // Nothing is replicated.
    known("wal_level", "minimal", Kind::Fixed),
    known("xmloption", "content", Kind::Text),
];

/// The version that clients are told: PostgreSQL's, whose behaviour they then expect.
pub const SERVER_VERSION: &str = "15.0";

fn every() -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().chain(advice::ADVICE)
}

fn find(name: &str) -> Option<&'static Known> {
    let folded = fold(name);
    every().find(|k| k.name == folded)
}

/// A setting of an application's own is called by names that need no quotation marks, with points between them.
fn check_custom(name: &str) -> Result<(), SqlError> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let is_name =
        |part: &str| part.starts_with(is_first) && part.chars().all(|c| is_first(c) || c.is_ascii_digit() || c == '$');
    if name.split('.').all(is_name) {
        return Ok(());
    }
    let detail = "Custom parameter names must be two or more simple identifiers separated by dots.";
    Err(SqlError::new("42602", format!("invalid configuration parameter name \"{name}\"")).with_detail(detail))
}

fn fold(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "time zone" => "timezone".to_owned(),
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "names" => "client_encoding".to_owned(),
        _ => name,
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""))
}

/// What SET changes and SHOW tells, with what a driver expects to read at start-up.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Settings {
    /// What the transactions and waits look at often.
    pub(crate) fast: Fast,
    /// What the server's configuration has instead of the usual defaults.
    base: Defaults,
    /// What the session began with, by its role and what the client asked for: RESET goes back to it.
    began: Defaults,
    /// Only what differs from these; custom `a.b` settings too.
    changed: BTreeMap<String, String>,
    pub(crate) keepalive: Keepalive,
    /// TimeZone.
    pub(crate) zone: Zone,
    pub(crate) dates: DateStyle,
    pub(crate) intervals: IntervalStyle,
}

/// Who the client is.
const IDENTITY: [&str; 3] = ["session_authorization", "role", "is_superuser"];

fn is_identity(name: &str) -> bool {
    IDENTITY.contains(&name)
}

/// Values that stand in for the usual defaults, by the settings' names.
pub type Defaults = Arc<BTreeMap<String, String>>;

/// What a connection's socket is to do about a peer that is silent; 0: as the system has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub count: u32,
    pub user_timeout: Duration,
}

/// Settings in the form that they are used. First those that the short ways look at: see [`crate::session::Session`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Fast {
    pub deferred_commit: bool,
    pub level: Level,
    pub read_only: bool,
    pub deferrable: bool,
    /// Foreign keys are not asked: what is written was right where it comes from.
    pub is_replica: bool,
    /// A statement's time is of interest: it is counted by its text, or logged where it is long.
    pub is_timed: bool,
    /// `search_path` is not the default.
    pub has_search_path: bool,
    pub tracks: bool,
    pub tracks_utility: bool,
    pub lock_timeout: Option<Duration>,
    pub statement_timeout: Option<Duration>,
    pub idle_in_transaction_timeout: Option<Duration>,
    pub idle_session_timeout: Option<Duration>,
    pub log_min_duration: Option<Duration>,
    pub road: Option<Forced>,
}

/// The names of a list, folded unless they are quoted.
pub(crate) fn list(text: &str) -> Vec<String> {
    let name = |part: &str| {
        let part = part.trim();
        match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => part.trim_matches('\'').to_lowercase(),
        }
    };
    let mut is_quoted = false;
    let parts = text.split(|c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    parts.map(name).filter(|name| !name.is_empty()).collect()
}

/// Whether a setting's value is a list.
pub(crate) fn takes_list(setting: &str) -> bool {
    matches!(fold(setting).as_str(), "search_path" | "datestyle" | "temp_tablespaces")
}

/// What SET is given, one value or several, as the setting's text. Each of a list of names is one, whatever characters it has.
pub(crate) fn joined(setting: &str, values: &[Setting]) -> String {
    let is_of_names = setting == "search_path";
    let text = |value: &Setting| match value {
        Setting::Text(text) if is_of_names => quoted_ident(text),
        Setting::Name(ident) if is_of_names => quoted_ident(&crate::bind::scope::fold(ident)),
        Setting::Text(text) => text.clone(),
        Setting::Name(ident) => ident.value.clone(),
    };
    values.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// One value of SET.
pub(crate) enum Setting {
    Name(Ident),
    Text(String),
}

/// The one road that statements may take, where the session says (`freshet.road`, for tests).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forced {
    Compiled,
    Query,
}

impl Settings {
    /// What a query that is not compiled may hold in memory.
    /// `max_parallel_workers_per_gather`: with 0 a query runs on one worker.
    pub fn parallel_workers(&self) -> usize {
        self.get("max_parallel_workers_per_gather").and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    pub fn query_memory_mb(&self) -> usize {
        let set = self.get("freshet.query_memory_mb").and_then(|v| v.parse().ok());
        set.unwrap_or(QUERY_MEMORY_MB)
    }

    pub fn get(&self, name: &str) -> Option<String> {
        let folded = fold(name);
        if let Some(value) = self.changed.get(&folded).or_else(|| self.began.get(&folded)) {
            return Some(value.clone());
        }
        find(name).map(|known| self.usual(known).to_owned())
    }

    /// With these defaults and nothing else.
    pub fn with_defaults(base: Defaults) -> Settings {
        let mut settings = Settings { base, ..Settings::default() };
        settings.adopt();
        settings
    }

    /// As they are where nobody has set anything since the session began.
    pub fn fresh(&self) -> Settings {
        let mut settings = Settings { base: self.base.clone(), began: self.began.clone(), ..Settings::default() };
        settings.adopt();
        settings
    }

    /// The session begins: with what is set so far, but who the client is.
    pub(crate) fn begin(&mut self) {
        let (identity, set) = std::mem::take(&mut self.changed).into_iter().partition(|(name, _)| is_identity(name));
        self.changed = identity;
        self.began = Arc::new(set);
        self.derive_all();
    }

    /// Takes other defaults; what was set stays so.
    pub(crate) fn set_defaults(&mut self, base: Defaults) {
        self.base = base;
        self.adopt();
    }

    fn adopt(&mut self) {
        if let Some(zone) = self.get("timezone").and_then(|name| Zone::of_setting(&name)) {
            self.zone = zone;
        }
        self.derive_all();
    }

    fn derive_all(&mut self) {
        self.fast = self.derive();
        self.dates = self.get("datestyle").map_or_else(Default::default, |shown| DateStyle::named(&shown));
        self.intervals = self.get("intervalstyle").map_or_else(Default::default, |name| IntervalStyle::named(&name));
        self.keepalive = self.derive_keepalive();
    }

    fn usual<'s>(&'s self, known: &'static Known) -> &'s str {
        self.began.get(known.name).or_else(|| self.base.get(known.name)).map_or(known.default, String::as_str)
    }

    /// Checks and takes a value. Gives the name to report with the value, where a client is told of it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<(String, String)>, SqlError> {
        let folded = fold(name);
        let Some(known) = find(name) else {
            if folded.contains('.') {
                check_custom(name)?;
                self.changed.insert(folded, value.to_owned());
                return Ok(None);
            }
            return Err(unknown(name));
        };
        if known.kind == Kind::Zone {
            let zone = Zone::of_setting(value);
            self.zone = zone.ok_or_else(|| normalize(known, value).err().unwrap_or_else(|| unknown(name)))?;
        }
        let value = match known.kind {
            Kind::DateStyle if value.trim().is_empty() => self.dates.name(),
            Kind::DateStyle => date_style(known, value, self.dates)?,
            _ => normalize(known, value)?,
        };
        let told = known.reported.then(|| (known.display.to_owned(), value.clone()));
        if value == self.usual(known) {
            self.changed.remove(&folded);
        } else {
            self.changed.insert(folded, value);
        }
        self.derive_all();
        Ok(told)
    }

    pub fn reset(&mut self, name: &str) -> Result<Option<(String, String)>, SqlError> {
        match find(name) {
            Some(known) if known.kind == Kind::Fixed => Ok(None),
            Some(known) => {
                let value = self.usual(known).to_owned();
                self.set(name, &value)
            }
            None if self.began.contains_key(&fold(name)) => {
                self.changed.remove(&fold(name));
                Ok(None)
            }
            // Once it was set, it is there.
            None if self.changed.contains_key(&fold(name)) => {
                self.changed.insert(fold(name), String::new());
                Ok(None)
            }
            None if name.contains('.') => Ok(None),
            None => Err(unknown(name)),
        }
    }

    /// Every known setting: name as SHOW writes it, value.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        every().map(|k| {
            let value = self.changed.get(k.name).cloned();
            (k.display, value.unwrap_or_else(|| self.usual(k).to_owned()))
        })
    }

    /// What a known setting is where nobody set it.
    pub fn default_of(&self, name: &str) -> Option<String> {
        find(name).map(|known| self.usual(known).to_owned())
    }

    /// What a client is told at start-up.
    pub fn reported(&self) -> Vec<(String, String)> {
        let told = every().zip(self.all()).filter(|(k, _)| k.reported);
        told.map(|(_, (name, value))| (name.to_owned(), value)).collect()
    }

    /// Reported settings in which `self` differs from `before`.
    pub(crate) fn reported_changes(&self, before: &Settings) -> Vec<(String, String)> {
        let (now, then) = (self.reported(), before.reported());
        now.into_iter().zip(then).filter(|(now, then)| now != then).map(|(now, _)| now).collect()
    }

    /// Sets what SET may not by itself: who the client is.
    pub(crate) fn identify(&mut self, session_user: &str, role: &str, is_superuser: bool) {
        for (name, value) in [
            ("session_authorization", session_user),
            ("role", role),
            ("is_superuser", if is_superuser { "on" } else { "off" }),
        ] {
            self.changed.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Makes one setting what it is in `other`; who the client is, is one.
    pub(crate) fn take_one(&mut self, name: &str, other: &Settings) {
        let folded = fold(name);
        let names = if is_identity(&folded) { IDENTITY.to_vec() } else { vec![folded.as_str()] };
        for name in names {
            match other.changed.get(name) {
                Some(value) => _ = self.changed.insert(name.to_owned(), value.clone()),
                None => _ = self.changed.remove(name),
            }
        }
        if folded == "timezone" {
            self.zone = other.zone.clone();
        }
        self.derive_all();
    }

    fn derive_keepalive(&self) -> Keepalive {
        let mut names = self.changed.keys().chain(self.began.keys()).chain(self.base.keys());
        if !names.any(|name| name.starts_with("tcp_")) {
            return Keepalive::default();
        }
        let time = |name: &str| self.get(name).and_then(|value| time(&value)).unwrap_or_default();
        Keepalive {
            idle: time("tcp_keepalives_idle"),
            interval: time("tcp_keepalives_interval"),
            count: self.get("tcp_keepalives_count").and_then(|count| count.parse().ok()).unwrap_or(0),
            user_timeout: time("tcp_user_timeout"),
        }
    }

    fn derive(&self) -> Fast {
        let set = |name: &str| self.changed.get(name).or_else(|| self.began.get(name));
        let of = |name: &str| set(name).or_else(|| self.base.get(name)).map(String::as_str);
        let is = |name: &str, value: &str| of(name).is_some_and(|v| v == value);
        let milliseconds = |name: &str| {
            let limit = parse_milliseconds(of(name)?).filter(|&ms| ms > 0)?;
            Some(Duration::from_millis(limit as u64))
        };
        let log_min_duration = of(LOG_MIN_DURATION).and_then(parse_milliseconds).filter(|&ms| ms >= 0);
        let log_min_duration = log_min_duration.map(|ms| Duration::from_millis(ms as u64));
        let tracks = of(TRACK).is_some_and(|of| of != "none");
        Fast {
            is_timed: tracks || log_min_duration.is_some(),
            tracks,
            tracks_utility: !is(TRACK_UTILITY, "off"),
            log_min_duration,
            deferred_commit: is("synchronous_commit", "off"),
            level: of("default_transaction_isolation").and_then(Level::of_name).unwrap_or_default(),
            read_only: is("default_transaction_read_only", "on"),
            deferrable: is("default_transaction_deferrable", "on"),
            is_replica: is(REPLICATION_ROLE, "replica"),
            lock_timeout: milliseconds("lock_timeout"),
            statement_timeout: milliseconds("statement_timeout"),
            idle_in_transaction_timeout: milliseconds("idle_in_transaction_session_timeout"),
            idle_session_timeout: milliseconds("idle_session_timeout"),
            has_search_path: of("search_path").is_some(),
            road: match of("freshet.road") {
                Some("compiled") => Some(Forced::Compiled),
                Some("query") => Some(Forced::Query),
                _ => None,
            },
        }
    }
}

/// Defaults that a configuration gives, checked as SET would. What is only told (`max_connections`) may be among them.
pub fn defaults(given: impl IntoIterator<Item = (String, String)>) -> Result<Defaults, SqlError> {
    let mut base = BTreeMap::new();
    for (name, value) in given {
        let known = find(&name).ok_or_else(|| unknown(&name))?;
        let value = if known.kind == Kind::Fixed { value } else { normalize(known, &value)? };
        base.insert(known.name.to_owned(), value);
    }
    Ok(Arc::new(base))
}

/// Whether only a superuser may change it: what is logged of a statement, which ones are counted, and whether foreign keys hold.
pub(crate) fn is_superusers(name: &str) -> bool {
    [LOG_MIN_DURATION, TRACK, TRACK_UTILITY, REPLICATION_ROLE].contains(&fold(name).as_str())
}

/// The name as SHOW writes it, for the column of its result.
pub fn display_name(name: &str) -> Result<String, SqlError> {
    match find(name) {
        Some(known) => Ok(known.display.to_owned()),
        None if name.contains('.') => Ok(fold(name)),
        None => Err(unknown(name)),
    }
}

fn normalize(known: &Known, value: &str) -> Result<String, SqlError> {
    let invalid = || SqlError::new("22023", format!("invalid value for parameter \"{}\": \"{value}\"", known.display));
    match known.kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::Fixed => Err(SqlError::new("55P02", format!("parameter \"{}\" cannot be changed", known.display))),
        Kind::Bool => parse_bool(value)
            .map(on_off)
            .ok_or_else(|| SqlError::new("22023", format!("parameter \"{}\" requires a Boolean value", known.display))),
        Kind::Int(low, high) => match value.trim().parse::<i64>() {
            Ok(v) if (low..=high).contains(&v) => Ok(v.to_string()),
            _ => Err(invalid().with_detail(format!("It must be between {low} and {high}."))),
        },
        Kind::Milliseconds => match parse_milliseconds(value) {
            Some(0) => Ok("0".to_owned()),
            Some(ms) => Ok(show_milliseconds(ms)),
            None => Err(invalid().with_hint(TIME_UNITS_HINT)),
        },
        Kind::MillisecondsOrOff if value.trim() == "-1" => Ok("-1".to_owned()),
        Kind::MillisecondsOrOff => normalize(&Known { kind: Kind::Milliseconds, ..*known }, value),
        Kind::Seconds => {
            let bare = value.trim().bytes().all(|b| b.is_ascii_digit());
            let value = if bare { format!("{}s", value.trim()) } else { value.to_owned() };
            match parse_milliseconds(&value) {
                Some(0) => Ok("0".to_owned()),
                // A fraction of a second is rounded, as PostgreSQL does.
                Some(ms) => Ok(match (ms + 500) / 1000 {
                    0 => "0".to_owned(),
                    seconds => show_milliseconds(seconds * 1000),
                }),
                None => Err(invalid().with_hint(TIME_UNITS_HINT)),
            }
        }
        Kind::Zone => match Zone::of_setting(value) {
            Some(zone) => Ok(zone.name().to_owned()),
            None => Err(invalid()),
        },
        Kind::DateStyle => date_style(known, value, DateStyle::DEFAULT),
        Kind::Encoding => {
            // Names are told apart by their letters and digits: asyncpg sends quotation marks.
            let letters = value.chars().filter(char::is_ascii_alphanumeric);
            match letters.collect::<String>().to_ascii_lowercase().as_str() {
                "utf8" | "unicode" => Ok(known.default.to_owned()),
                _ => Err(invalid().with_hint("Values served: UTF8.")),
            }
        }
        Kind::Kilobytes => kilobytes(value).ok_or_else(|| {
            invalid().with_hint("Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".")
        }),
        Kind::Real => match value.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number.to_string()),
            _ => Err(invalid()),
        },
        Kind::OneOf(values) => {
            let value = value.trim();
            if !values.iter().any(|v| v.eq_ignore_ascii_case(value)) {
                let served = values.join(", ");
                return Err(invalid().with_hint(format!("Values served: {served}.")));
            }
            Ok(canonical(known, value))
        }
    }
}

fn date_style(known: &Known, value: &str, before: DateStyle) -> Result<String, SqlError> {
    before.with(value).map(DateStyle::name).map_err(|bad| {
        let detail = match bad {
            BadDateStyle::Unknown(word) => format!("Unrecognized key word: \"{word}\"."),
            BadDateStyle::Conflicting => "Conflicting \"datestyle\" specifications.".to_owned(),
        };
        let message = format!("invalid value for parameter \"{}\": \"{value}\"", known.display);
        SqlError::new("22023", message).with_detail(detail)
    })
}

/// Spellings of one meaning become the one that SHOW writes.
fn canonical(known: &Known, value: &str) -> String {
    match known.name {
        "standard_conforming_strings" => known.default.to_owned(),
        "synchronous_commit" => match parse_bool(value) {
            Some(on) => on_off(on),
            None => value.to_ascii_lowercase(),
        },
        "lc_messages" | "lc_monetary" | "lc_numeric" | "lc_time" => "C".to_owned(),
        _ => match (known.default, parse_bool(value)) {
            ("on" | "off", Some(on)) => on_off(on),
            _ => value.to_ascii_lowercase(),
        },
    }
}

/// A size as SHOW writes it.
fn kilobytes(value: &str) -> Option<String> {
    let value = value.trim();
    if value == "-1" {
        return Some(value.to_owned());
    }
    let kilobytes = kilobytes_in(value)?;
    let units = [("TB", 1u64 << 30), ("GB", 1 << 20), ("MB", 1 << 10), ("kB", 1)];
    let unit = units.iter().find(|(_, size)| kilobytes > 0 && kilobytes.is_multiple_of(*size));
    Some(unit.map_or_else(|| "0".to_owned(), |(unit, size)| format!("{}{unit}", kilobytes / size)))
}

fn kilobytes_in(value: &str) -> Option<u64> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    match value[digits..].trim() {
        "" | "kB" => Some(number),
        "B" => Some(number / 1024),
        "MB" => number.checked_mul(1 << 10),
        "GB" => number.checked_mul(1 << 20),
        "TB" => number.checked_mul(1 << 30),
        _ => None,
    }
}

pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn parse_milliseconds(value: &str) -> Option<i64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let number: f64 = value[..digits].parse().ok()?;
    let in_ms = match value[digits..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let ms = (number * in_ms).round_ties_even();
    (ms <= f64::from(i32::MAX)).then_some(ms as i64)
}

/// A time with its unit, or in milliseconds.
pub fn time(text: &str) -> Option<Duration> {
    parse_milliseconds(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// A time as the setting of this name takes it.
pub(crate) fn time_of(name: &str, value: &str) -> Result<Duration, SqlError> {
    let known = find(name).ok_or_else(|| unknown(name))?;
    Ok(time(&normalize(known, value)?).unwrap_or_default())
}

/// A size or a time as SHOW writes it, in this unit of `pg_settings`.
pub(crate) fn in_unit(value: &str, unit: &str) -> String {
    // Zero and what stands for none.
    if value.parse::<i64>().is_ok() {
        return value.to_owned();
    }
    let size = kilobytes_in(value).and_then(|kilobytes| match unit {
        "B" => kilobytes.checked_mul(1024),
        "kB" => Some(kilobytes),
        "8kB" => Some(kilobytes / 8),
        "MB" => Some(kilobytes / 1024),
        _ => None,
    });
    let time = || match unit {
        "ms" => parse_milliseconds(value),
        "s" => parse_milliseconds(value).map(|ms| ms / 1000),
        "min" => parse_milliseconds(value).map(|ms| ms / 60_000),
        _ => None,
    };
    let number = size.and_then(|size| i64::try_from(size).ok()).or_else(time);
    number.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// A time as SHOW writes it.
pub fn show_time(time: Duration) -> String {
    match i64::try_from(time.as_millis()).unwrap_or(i64::MAX) {
        0 => "0".to_owned(),
        ms => show_milliseconds(ms),
    }
}

fn show_milliseconds(ms: i64) -> String {
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)] {
        if ms % size == 0 {
            return format!("{}{unit}", ms / size);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg_settings_counts_in_its_units() {
        for (value, unit, counted) in [
            ("4MB", "kB", "4096"),
            ("4GB", "8kB", "524288"),
            ("1d", "s", "86400"),
            ("10s", "ms", "10000"),
            ("-1", "kB", "-1"),
            ("0", "ms", "0"),
        ] {
            assert_eq!(in_unit(value, unit), counted, "{value} in {unit}");
        }
    }

    #[test]
    fn times_take_units_and_show_the_largest_that_fits() {
        let mut s = Settings::default();
        for (given, shown, ms) in [
            ("1500", "1500ms", Some(1500)),
            ("2s", "2s", Some(2000)),
            ("120000", "2min", Some(120_000)),
            ("0", "0", None),
        ] {
            s.set("lock_timeout", given).expect(given);
            assert_eq!(s.get("lock_timeout").as_deref(), Some(shown));
            assert_eq!(s.fast.lock_timeout, ms.map(Duration::from_millis));
        }
        assert_eq!(s.set("lock_timeout", "soon").expect_err("no number").sqlstate, "22023");
    }

    #[test]
    fn a_configurations_defaults_stand_in_for_the_usual_ones() {
        let given = [("idle_session_timeout", "90000"), ("TimeZone", "Europe/Berlin"), ("max_connections", "7")];
        let base = defaults(given.map(|(name, value)| (name.to_owned(), value.to_owned()))).expect("they are valid");
        let mut s = Settings::with_defaults(base.clone());
        assert_eq!(s.fast.idle_session_timeout, Some(Duration::from_secs(90)));
        assert_eq!((s.get("max_connections"), s.zone.name()), (Some("7".into()), "Europe/Berlin"));
        s.set("idle_session_timeout", "0").expect("valid");
        assert_eq!((s.fast.idle_session_timeout, s.get("idle_session_timeout").as_deref()), (None, Some("0")));
        assert_eq!(s.set("max_connections", "8").expect_err("told only").sqlstate, "55P02");
        s.reset("idle_session_timeout").expect("known");
        assert_eq!(s.get("idle_session_timeout").as_deref(), Some("90s"));
        s.set("lock_timeout", "1s").expect("valid");
        s.set_defaults(Arc::default());
        assert_eq!((s.fast.idle_session_timeout, s.fast.lock_timeout), (None, Some(Duration::from_secs(1))));
        for (name, value, sqlstate) in [("no_such", "1", "42704"), ("lock_timeout", "soon", "22023")] {
            let error = defaults([(name.to_owned(), value.to_owned())]).expect_err(name);
            assert_eq!(error.sqlstate, sqlstate);
        }
    }

    #[test]
    fn what_times_statements_is_seen_at_a_glance() {
        let mut s = Settings::default();
        assert!(!s.fast.is_timed);
        s.set("log_min_duration_statement", "250ms").expect("valid");
        assert_eq!((s.fast.is_timed, s.fast.log_min_duration), (true, Some(Duration::from_millis(250))));
        s.set("log_min_duration_statement", "-1").expect("off");
        assert!(!s.fast.is_timed);
        s.set("pg_stat_statements.track", "top").expect("valid");
        assert!(s.fast.is_timed && s.fast.tracks && s.fast.tracks_utility);
        s.set("tcp_keepalives_idle", "120").expect("seconds");
        assert_eq!(s.get("tcp_keepalives_idle").as_deref(), Some("2min"));
        assert_eq!(s.keepalive.idle, Duration::from_secs(120));
    }

    #[test]
    fn what_is_not_served_is_refused() {
        let mut s = Settings::default();
        for (name, value, sqlstate) in [
            ("client_encoding", "LATIN1", "22023"),
            ("TimeZone", "Europe/Nowhere", "22023"),
            ("default_transaction_isolation", "snapshot", "22023"),
            ("server_version", "16", "55P02"),
            ("no_such_setting", "1", "42704"),
            ("row_security", "perhaps", "22023"),
        ] {
            assert_eq!(s.set(name, value).expect_err(name).sqlstate, sqlstate, "{name}");
        }
        assert_eq!(s.set("my.own", "x").expect("custom"), None);
        assert_eq!(s.get("my.own").as_deref(), Some("x"));
    }

    #[test]
    fn changes_of_reported_settings_are_told() {
        let mut s = Settings::default();
        let told = s.set("application_name", "psql").expect("free text");
        assert_eq!(told, Some(("application_name".into(), "psql".into())));
        assert_eq!(s.set("datestyle", "iso").expect("served"), Some(("DateStyle".into(), "ISO, MDY".into())));
        assert_eq!(s.reset("application_name").expect("known"), Some(("application_name".into(), String::new())));
    }
}
