//! How does the server's log look? A line for each event, as text or as a JSON object, on stderr ([`lines`](crate::lines)).
//!
//! JSON: `{"timestamp":"2026-01-02T03:04:05.678901Z","level":"INFO","target":"..","message":"..", ...fields}`.

use crate::lines::{Lines, Rank};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

#[derive(clap::ValueEnum, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

type Filter = reload::Handle<EnvFilter, Registry>;

static FILTER: OnceLock<Filter> = OnceLock::new();

/// The environment's `FRESHET_TRACE` wins over what is configured.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env("FRESHET_TRACE").unwrap_or_else(|_| EnvFilter::new(level))
}

static LINES: OnceLock<Lines> = OnceLock::new();

/// From now on nobody who tells something waits for who reads it. For programs that serve others; they [`finish`] at their end.
pub fn queue() -> io::Result<()> {
    let lines = Lines::start(io::stderr(), |dropped| {
        tracing::error!(dropped, "{dropped} lines of this log were dropped: nobody read them in time");
    })?;
    LINES.get_or_init(|| lines);
    Ok(())
}

/// Lines that were dropped since the start.
pub fn dropped() -> u64 {
    LINES.get().map_or(0, Lines::dropped)
}

/// Says something that is no event, behind the events so far.
pub fn say(text: &str) {
    // Without a stderr there is nobody to tell.
    let _ = Line(Rank::Kept).write_all(text.as_bytes());
}

/// Writes what is still to be told; a reader who does not read gets two seconds.
pub fn finish() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

struct Stderr;

impl MakeWriter<'_> for Stderr {
    type Writer = EventLine<Line>;

    fn make_writer(&self) -> EventLine<Line> {
        EventLine(Line(Rank::Plain))
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> EventLine<Line> {
        let is_kept = event.target() == "audit" || *event.level() <= Level::WARN;
        EventLine(Line(if is_kept { Rank::Kept } else { Rank::Plain }))
    }
}

/// Takes events, each whole. What of one comes behind a line break (a statement has some) is set off by a tab, as PostgreSQL does, so that it does not
/// look like an event of its own.
struct EventLine<W>(W);

impl<W: Write> Write for EventLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (text, end) = match event {
            [text @ .., b'\n'] => (text, &b"\n"[..]),
            text => (text, &b""[..]),
        };
        let lines: Vec<&[u8]> = text.split(|byte| matches!(byte, b'\n' | b'\r')).collect();
        self.0.write_all(&[&lines.join(&b"\n\t"[..]), end].concat())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Takes whole lines.
struct Line(Rank);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match LINES.get() {
            Some(lines) => lines.push(line, self.0),
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Events go to stderr from now on. Only the first call counts.
pub fn start(level: &str, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(Stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed(),
        LogFormat::Json => lines.event_format(Json).boxed(),
    };
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        FILTER.get_or_init(|| handle);
    }
}

/// Changes which events are told; an error where that cannot be read.
pub fn set_level(level: &str) -> Result<(), String> {
    check_level(level)?;
    match FILTER.get() {
        Some(handle) => handle.reload(filter(level)).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

pub fn check_level(level: &str) -> Result<(), String> {
    EnvFilter::try_new(level).map(|_| ()).map_err(|error| format!("\"{level}\" is no log level: {error}"))
}

/// One JSON object a line.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut object = Map::new();
        object.insert("timestamp".to_owned(), timestamp.into());
        object.insert("level".to_owned(), event.metadata().level().as_str().into());
        object.insert("target".to_owned(), event.metadata().target().into());
        event.record(&mut Fields(&mut object));
        writeln!(writer, "{}", Value::Object(object))
    }
}

/// An event's fields, each as what it is.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_json_line_has_the_fields_as_what_they_are() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).event_format(Json);
        let subscriber = tracing_subscriber::registry().with(EnvFilter::new("info")).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(pid = 7, user = "a\"b", took_ms = 1.5, "slow:\n{}", "select 1");
            tracing::debug!("not told");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["level"], &line["pid"], &line["user"]), (&"INFO".into(), &7.into(), &"a\"b".into()));
        assert_eq!((&line["took_ms"], &line["message"]), (&1.5.into(), &"slow:\nselect 1".into()));
        assert!(line["timestamp"].as_str().is_some_and(|at| at.contains('T')), "{text}");
    }

    #[test]
    fn what_follows_a_line_break_looks_like_no_event() {
        let mut kept = EventLine(Vec::new());
        kept.write_all(b"2026 INFO slow: select 1\n2026 INFO audit: forged\r2026 more\n").unwrap();
        kept.write_all(b"next\n").unwrap();
        assert_eq!(kept.0, b"2026 INFO slow: select 1\n\t2026 INFO audit: forged\n\t2026 more\nnext\n");
    }

    #[test]
    fn levels_are_checked() {
        assert!(check_level("warn,audit=info").is_ok());
        assert!(check_level("info=loud").is_err());
    }
}
