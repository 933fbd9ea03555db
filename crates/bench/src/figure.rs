//! What came out, for a person and for a program? One figure a line, with the limit it is compared with and what is due.

use crate::error::{BenchError, on};
use crate::machine::{Machine, processors};
use rustix::fs::{Access, access};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is asked of a figure.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    SecondsAtMost(f64),
    RateAtLeast(f64),
    RatioAtLeast(f64),
    RatioAtMost(f64),
    /// Of the ratio from one, to either side.
    RatioWithin(f64),
    P99AtMostUs(f64),
    /// Of the median, from and to.
    P50WithinUs(f64, f64),
    LogBytesAtMost(f64),
}

/// One measured thing.
#[derive(Clone, Serialize, Debug, Default)]
pub struct Figure {
    pub workload: &'static str,
    pub case: String,
    pub figure: String,
    pub adapter: &'static str,
    pub threads: usize,
    pub sessions: usize,
    /// What was done, in `unit`.
    pub amount: f64,
    pub unit: &'static str,
    pub seconds: f64,
    pub rate_per_s: f64,
    /// What the machine, or the same work without what is measured, reaches.
    pub limit_per_s: Option<f64>,
    pub ratio_to_limit: Option<f64>,
    /// Corrected for coordinated omission.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// As measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_measured_us: Option<f64>,
    /// Of commit records.
    pub log_bytes_per_op: Option<f64>,
    /// Padding and headers of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_overhead_bytes_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<u64>,
    /// Resident, at the window's beginning and end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<(u64, u64)>,
    /// Rows were added in the window: memory may grow.
    #[serde(skip)]
    pub is_growing: bool,
    /// Of all processors, what a server under test took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// What one point of a sweep has that the others have not: sessions, log devices, how fast a feed is (infinite, null in JSON: as fast as it goes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Answers in each 100 ms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<u64>,
    /// What the source published, and where it says so (REFERENCE.md).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_per_s: Option<f64>,
    /// The response times that it published, from and to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_us: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub source: &'static str,
    /// This rate in multiples of what another adapter reached in the same run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<&'static str, f64>,
    pub due: Option<Due>,
    pub met: Option<bool>,
    pub note: String,
}

impl Figure {
    pub fn new(case: &str, figure: &str, amount: f64, unit: &'static str, seconds: f64) -> Figure {
        Figure {
            workload: "restart",
            case: case.to_owned(),
            figure: figure.to_owned(),
            adapter: "freshet-native",
            threads: processors(),
            sessions: 0,
            amount,
            unit,
            seconds,
            rate_per_s: if seconds > 0.0 { amount / seconds } else { 0.0 },
            ..Figure::default()
        }
    }

    pub fn limit(mut self, limit_per_s: f64) -> Figure {
        self.limit_per_s = Some(limit_per_s);
        self.ratio_to_limit = (limit_per_s > 0.0).then(|| self.rate_per_s / limit_per_s);
        self
    }

    /// A ratio that is the figure itself.
    pub fn ratio(mut self, ratio: f64) -> Figure {
        self.ratio_to_limit = Some(ratio);
        self
    }

    /// Another reading of the same measurement.
    pub fn derived(self, figure: impl Into<String>) -> Figure {
        Figure { figure: figure.into(), memory_bytes: None, slices: Vec::new(), ..self }
    }

    /// One that is a ratio to something else than a limit, and no rate.
    pub fn derived_ratio(self, figure: impl Into<String>, ratio: f64) -> Figure {
        let derived = Figure { rate_per_s: 0.0, limit_per_s: None, published_per_s: None, ..self.derived(figure) };
        derived.ratio(ratio)
    }

    pub fn due(mut self, due: Due) -> Figure {
        self.met = Some(match due {
            Due::SecondsAtMost(s) => self.seconds <= s,
            Due::RateAtLeast(rate) => self.rate_per_s >= rate,
            Due::RatioAtLeast(ratio) => self.ratio_to_limit.is_some_and(|r| r >= ratio),
            Due::RatioAtMost(ratio) => self.ratio_to_limit.is_some_and(|r| r <= ratio),
            Due::RatioWithin(share) => self.ratio_to_limit.is_some_and(|r| (r - 1.0).abs() <= share),
            Due::P99AtMostUs(us) => self.p99_us.is_some_and(|p99| p99 <= us),
            Due::P50WithinUs(from, to) => self.p50_us.is_some_and(|p50| from <= p50 && p50 <= to),
            Due::LogBytesAtMost(bytes) => self.log_bytes_per_op.is_some_and(|b| b <= bytes),
        });
        self.due = Some(due);
        self
    }

    /// The same where it is judged.
    pub fn due_if(self, is_judged: bool, due: Due) -> Figure {
        if is_judged { self.due(due) } else { self }
    }

    pub fn threads(mut self, threads: usize) -> Figure {
        self.threads = threads;
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Figure {
        self.note = note.into();
        self
    }

    /// What is due, and whether it is met.
    pub fn verdict(&self) -> String {
        let Some(due) = self.due else {
            return String::new();
        };
        let (sign, value) = match due {
            Due::SecondsAtMost(s) => ("<=", format!("{s} s")),
            Due::RateAtLeast(rate) => (">=", format!("{} /s", short(rate))),
            Due::RatioAtLeast(ratio) => (">=", format!("{ratio} x")),
            Due::RatioAtMost(ratio) => ("<=", format!("{ratio} x")),
            Due::RatioWithin(share) => ("1 +-", format!("{share}")),
            Due::P99AtMostUs(us) => ("p99 <=", format!("{} ms", us / 1e3)),
            Due::P50WithinUs(from, to) => ("p50", format!("{} to {}", micros(from), micros(to))),
            Due::LogBytesAtMost(bytes) => ("<=", format!("{bytes} B")),
        };
        format!("{sign} {value} {}", if self.met == Some(true) { "met" } else { "MISSED" })
    }

    fn columns(&self) -> [String; 7] {
        [
            self.case.clone(),
            self.figure.clone(),
            if self.amount > 0.0 { format!("{} {}", short(self.amount), self.unit) } else { String::new() },
            if self.seconds > 0.0 { format!("{:.3} s", self.seconds) } else { String::new() },
            if self.rate_per_s > 0.0 { format!("{} /s", short(self.rate_per_s)) } else { String::new() },
            self.ratio_to_limit.map_or(String::new(), |r| format!("{r:.2} x")),
            [self.verdict(), self.note.clone()].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; "),
        ]
    }
}

/// 12,345,678 as 12.3 M.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 || v == v.trunc() => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The figures as a table.
pub fn table(figures: &[Figure]) -> Vec<String> {
    let head = ["case", "figure", "amount", "time", "rate", "of limit", "due"].map(str::to_owned);
    aligned(&head, figures.iter().map(Figure::columns), 2..6)
}

/// Figures of systems under load: who, with how many sessions, how fast, how long, how much log.
pub fn rates_table(figures: &[Figure]) -> Vec<String> {
    let head = ["case", "figure", "adapter", "thr", "sessions", "rate", "of limit", "p50", "p99", "log B", "due"];
    let rows = figures.iter().map(|f| {
        let some = |value: Option<f64>, text: fn(f64) -> String| value.map_or(String::new(), text);
        let rate = if f.rate_per_s > 0.0 { format!("{} /s", short(f.rate_per_s)) } else { String::new() };
        let peers = f.peers.iter().map(|(peer, ratio)| format!("{ratio:.1} x {peer}"));
        let notes = std::iter::once(f.verdict()).chain(peers).chain([f.note.clone()]);
        [
            f.case.clone(),
            f.figure.clone(),
            f.adapter.to_owned(),
            f.threads.to_string(),
            if f.sessions > 0 { f.sessions.to_string() } else { String::new() },
            rate,
            some(f.ratio_to_limit, |r| format!("{r:.2} x")),
            some(f.p50_us, micros),
            some(f.p99_us, micros),
            some(f.log_bytes_per_op, |b| format!("{b:.0}")),
            notes.filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; "),
        ]
    });
    aligned(&head.map(str::to_owned), rows, 3..10)
}

/// 1,234 microseconds as 1.23 ms.
pub fn micros(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us if us >= 10.0 => format!("{us:.0} us"),
        us => format!("{us:.2} us"),
    }
}

/// Columns of one width; those in `numbers` stand to the right.
pub fn aligned<const N: usize>(
    head: &[String; N],
    rows: impl Iterator<Item = [String; N]>,
    numbers: std::ops::Range<usize>,
) -> Vec<String> {
    let rows: Vec<[String; N]> = std::iter::once(head.clone()).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let cell = |(i, (cell, &width)): (usize, (&String, &usize))| {
        if numbers.contains(&i) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// What every line of a run shares.
#[derive(Serialize, Clone, Debug)]
pub struct Setting {
    pub commit: String,
    pub version: &'static str,
    pub config: BTreeMap<&'static str, String>,
    pub machine: Machine,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    figure: &'a Figure,
    #[serde(flatten)]
    setting: &'a Setting,
}

/// Refuses a run whose figures could not be written, before it measures them. Makes nothing.
pub fn refuse_unwritable<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), BenchError> {
    files.into_iter().try_for_each(|path| writable(path).map_err(on(path)))
}

fn writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let place = match path.parent() {
        _ if path.try_exists()? => path,
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(access(place, Access::WRITE_OK)?)
}

/// Appends one JSON object a figure.
pub fn append_json(path: &Path, figures: &[Figure], setting: &Setting) -> Result<(), BenchError> {
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(on(path))?;
    for figure in figures {
        let mut line = serde_json::to_string(&Line { figure, setting })
            .map_err(|e| BenchError::Machine(format!("{}: {e}", path.display())))?;
        line.push('\n');
        file.write_all(line.as_bytes()).map_err(on(path))?;
    }
    Ok(())
}

/// How many figures are as due, and which are not.
pub fn verdict(figures: &[Figure]) -> String {
    let due = figures.iter().filter(|f| f.due.is_some()).count();
    let missed: Vec<String> =
        figures.iter().filter(|f| f.met == Some(false)).map(|f| format!("{} {}", f.case, f.figure)).collect();
    match missed.len() {
        0 => format!("all data right; {due} of {due} figures as due"),
        n => format!("all data right; {} of {due} figures as due; missed: {}", due - n, missed.join(", ")),
    }
}

/// The commit of the checkout that this program was built from, as it is now; where there is none any more, the program's version.
pub fn commit() -> String {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
    commit_of(built_from).unwrap_or_else(|| format!("v{}", env!("CARGO_PKG_VERSION")))
}

/// Of the repository that has the package in this directory.
fn commit_of(package: &Path) -> Option<String> {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(package).args(words).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
        let told = command.output().ok().filter(|told| told.status.success())?;
        Some(String::from_utf8_lossy(&told.stdout).trim().to_owned())
    };
    // Sources may have been unpacked below another repository, which does not know them.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["rev-parse", "--short=12", "HEAD"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_whether_what_is_due_is_met() {
        let total = Figure::new("f9", "total", 0.0, "", 3.5);
        assert_eq!(total.clone().due(Due::SecondsAtMost(4.0)).met, Some(true));
        assert_eq!(total.due(Due::SecondsAtMost(3.0)).met, Some(false));
        let load = Figure::new("f9", "image load", 6e8, "bytes", 1.0).limit(1e9);
        assert_eq!(load.ratio_to_limit, Some(0.6));
        assert_eq!(load.clone().due(Due::RatioAtLeast(0.6)).met, Some(true));
        assert_eq!(load.due(Due::RateAtLeast(1e9)).met, Some(false));
        let waits = |p50_us| Figure { p50_us: Some(p50_us), ..Figure::new("cache-off", "operations", 1.0, "", 1.0) };
        let met = |p50_us| waits(p50_us).due(Due::P50WithinUs(8e3, 17e3)).met;
        assert_eq!([7e3, 8e3, 16e3, 18e3].map(met), [Some(false), Some(true), Some(true), Some(false)]);
        assert_eq!(waits(9e3).due(Due::P50WithinUs(8e3, 17e3)).verdict(), "p50 8.00 ms to 17.00 ms met");
    }

    /// Every workload writes its figures by [`append_json`].
    #[test]
    fn a_line_has_every_field_of_any_workload_and_null_where_it_says_nothing() {
        let figure = serde_json::to_value(Figure::new("f9", "total", 0.0, "", 1.0)).expect("JSON");
        let fields = "workload case adapter threads sessions rate_per_s limit_per_s ratio_to_limit p50_us p99_us log_bytes_per_op";
        let object = figure.as_object().expect("an object");
        fields.split(' ').for_each(|field| assert!(object.contains_key(field), "{field} is missing in {figure}"));
        assert!(figure["limit_per_s"].is_null() && figure["p50_us"].is_null());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_none_is_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let refuses = |name: &str| refuse_unwritable([&dir.path().join(name)]).is_err();
        std::fs::write(dir.path().join("there"), "").expect("writes");
        assert!(!refuses("there") && !refuses("new") && refuse_unwritable([&PathBuf::from("new.json")]).is_ok());
        assert!(refuses("") && refuses("nowhere/new") && refuses("there/new"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 1);
    }

    #[test]
    fn a_commit_is_that_of_the_repository_which_has_the_package() {
        let dir = tempfile::tempdir().expect("a directory");
        let git = |words: &str| {
            let mut command = Command::new("git");
            command.arg("-C").arg(dir.path()).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            command.args(words.split(' ')).output().is_ok_and(|told| told.status.success())
        };
        if !git("init -q") {
            println!("left out: there is no git");
            return;
        }
        std::fs::write(dir.path().join("other"), "").expect("writes");
        assert!(git("add other") && git("commit -q -m other"));
        std::fs::write(dir.path().join("Cargo.toml"), "").expect("writes");
        assert_eq!(commit_of(dir.path()), None, "unpacked there");
        assert!(git("add Cargo.toml") && git("commit -q -m package"));
        assert_eq!(commit_of(dir.path()).map(|commit| commit.len()), Some(12));
    }

    #[test]
    fn a_table_lines_up_and_names_what_was_missed() {
        let figures = [Figure::new("empty", "total", 0.0, "", 1.0).due(Due::SecondsAtMost(0.2))];
        let lines = table(&figures);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("1.000 s") && lines[1].contains("MISSED"), "{lines:?}");
    }
}
