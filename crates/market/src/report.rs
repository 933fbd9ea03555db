//! What came out, for a person and for a program?

use crate::apply::Tally;
use crate::check::Outcome;
use crate::datagram::Counts;
use crate::forms::FormTally;
use crate::message::Kind;
use freshet_db::Stats;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

#[derive(Serialize, Debug)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// The one object that `--json` writes.
#[derive(Serialize, Debug)]
pub struct Report {
    pub feed: String,
    /// `replayed`: to the end in this run; `done before`: only checked.
    pub outcome: &'static str,
    /// Applied in this run.
    pub messages: u64,
    /// Applied by all runs on this data directory.
    pub messages_total: u64,
    pub quotes: u64,
    pub trades: u64,
    pub statuses: u64,
    pub refused_trades: u64,
    pub skipped_lines: u64,
    /// Of a feed that came by UDP, in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Counts>,
    pub statements: u64,
    pub seconds: f64,
    pub messages_per_s: f64,
    pub statements_per_s: f64,
    pub latency_us: Latency,
    pub forms: u64,
    pub forms_per_s: f64,
    pub form_latency_us: Latency,
    pub log_bytes_per_quote: f64,
    pub log_bytes_per_trade: f64,
    /// Group headers and padding of the run's log, in all and per message.
    pub log_groups: u64,
    pub log_group_overhead_bytes: u64,
    pub log_group_overhead_bytes_per_message: f64,
    pub setup_seconds: f64,
    pub closing_seconds: f64,
    pub checked_rows: u64,
    pub check_seconds: f64,
    /// "ok", or what is wrong.
    pub check: String,
    pub options: OptionsTold,
    pub environment: Environment,
}

/// What the figures depend on.
#[derive(Serialize, Clone, Debug)]
pub struct OptionsTold {
    pub speed: String,
    pub clones: u32,
    pub appliers: u32,
    pub query_sessions: u32,
    pub durability: &'static str,
}

#[derive(Serialize, Clone, Debug)]
pub struct Environment {
    pub version: &'static str,
    pub optimised: bool,
    pub os: String,
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub runs_without: Vec<String>,
}

/// Of the part in which messages were applied.
pub struct Replayed {
    pub tally: Tally,
    pub forms: FormTally,
    pub elapsed: Duration,
    pub before: Stats,
    pub after: Stats,
}

impl Latency {
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        Latency {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

impl Environment {
    pub fn here(runs_without: Vec<String>) -> Environment {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
            os: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: kib * 1024,
            runs_without,
        }
    }
}

impl Replayed {
    /// Fills in everything that replaying measured.
    pub fn tell(&self, report: &mut Report) {
        let (tally, seconds) = (&self.tally, self.elapsed.as_secs_f64());
        let per = |count: u64, of: f64| if of > 0.0 { count as f64 / of } else { 0.0 };
        let kind = |kind: Kind| tally.by_kind[kind.index()];
        let bytes = |kind: Kind| per(tally.record_bytes[kind.index()], tally.by_kind[kind.index()] as f64);
        report.messages = tally.messages();
        report.quotes = kind(Kind::Quote);
        report.trades = kind(Kind::Trade);
        report.statuses = kind(Kind::Status);
        report.refused_trades = tally.refused_trades;
        report.statements = tally.statements;
        report.seconds = seconds;
        report.messages_per_s = per(report.messages, seconds);
        report.statements_per_s = per(tally.statements, seconds);
        report.latency_us = Latency::of(&tally.latency_us);
        report.forms = self.forms.forms;
        report.forms_per_s = per(self.forms.forms, seconds);
        report.form_latency_us = Latency::of(&self.forms.latency_us);
        report.log_bytes_per_quote = bytes(Kind::Quote);
        report.log_bytes_per_trade = bytes(Kind::Trade);
        let overhead = self.after.group_overhead_bytes - self.before.group_overhead_bytes;
        report.log_groups = self.after.groups - self.before.groups;
        report.log_group_overhead_bytes = overhead;
        report.log_group_overhead_bytes_per_message = per(overhead, report.messages as f64);
    }
}

impl Report {
    pub fn checked(&mut self, outcome: &Outcome) {
        self.checked_rows = outcome.rows;
        self.check = match outcome.differences {
            0 => "ok".to_owned(),
            n => format!("failed: {n} differences"),
        };
    }

    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report has string keys only");
        text.push('\n');
        text
    }

    /// The table at the end.
    pub fn table(&self) -> String {
        let mut table = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(table, "  {name:<22} {value}");
        };
        row("messages", thousands(self.messages as f64));
        if self.messages > 0 {
            row(
                "  of these",
                format!(
                    "{} quotes, {} trades, {} statuses",
                    thousands(self.quotes as f64),
                    thousands(self.trades as f64),
                    thousands(self.statuses as f64)
                ),
            );
            row("messages/s", thousands(self.messages_per_s));
            row("statements/s", thousands(self.statements_per_s));
            row("latency", self.latency_us.to_string());
            row("forms/s", format!("{}   {}", thousands(self.forms_per_s), self.form_latency_us));
            row("log bytes per quote", format!("{:.1}", self.log_bytes_per_quote));
            row("log bytes per trade", format!("{:.1}", self.log_bytes_per_trade));
            row(
                "  groups' own bytes",
                format!(
                    "{:.1} per message (headers and padding of {} groups)",
                    self.log_group_overhead_bytes_per_message,
                    thousands(self.log_groups as f64)
                ),
            );
        }
        if self.refused_trades > 0 {
            row("refused trades", thousands(self.refused_trades as f64));
        }
        if self.skipped_lines > 0 {
            row("skipped lines", thousands(self.skipped_lines as f64));
        }
        if let Some(udp) = &self.udp {
            row(
                "datagrams",
                format!(
                    "{}: {} early, {} malformed, {} of other sessions",
                    thousands(udp.datagrams as f64),
                    thousands(udp.early_datagrams as f64),
                    thousands(udp.malformed_datagrams as f64),
                    thousands(udp.foreign_datagrams as f64)
                ),
            );
            row(
                "gaps",
                format!(
                    "{} with {} messages; {} messages came again",
                    thousands(udp.gaps as f64),
                    thousands(udp.lost_messages as f64),
                    thousands(udp.repeated_messages as f64)
                ),
            );
        }
        row(
            "check",
            format!("{} ({} rows in {:.1} s)", self.check, thousands(self.checked_rows as f64), self.check_seconds),
        );
        table
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "p50 {}  p99 {}  p99.9 {}  max {}",
            micros(self.p50),
            micros(self.p99),
            micros(self.p999),
            micros(self.max)
        )
    }
}

fn micros(us: u64) -> String {
    match us {
        0..10_000 => format!("{us} us"),
        10_000..10_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Rounded, with a comma every three digits.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|&b| char::from(b)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_threes() {
        let cases = [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(thousands(value), text);
        }
    }

    #[test]
    fn durations_have_fitting_units() {
        assert_eq!(micros(950), "950 us");
        assert_eq!(micros(12_340), "12.3 ms");
        assert_eq!(micros(61_000_000), "61.0 s");
    }
}
