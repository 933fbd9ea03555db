//! `freshet check`: is a database whole? Offline and read-only.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | whole |
//! | 1 | damaged: each finding is a line, or an object with `--json` |
//! | 2 | wrong usage: no database there, a server has it open, or its files may not be read |

use freshet_engine::inspect::{self, Finding, Progress, Report, Subject};
use freshet_engine::io::Io;
use freshet_engine::io::os::OsIo;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Verify everything in a database's directories that no server has open; nothing is written
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub directories: Directories,
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// Where the database is that is looked at.
#[derive(clap::Args, Debug)]
pub struct Directories {
    /// Directory of the database
    #[arg(long, env = "FRESHET_DATA", value_name = "DIR")]
    data: PathBuf,
    /// Log directory, one per device [default: log in the data directory]
    #[arg(long, env = "FRESHET_LOG", value_name = "DIR", value_delimiter = ':', action = clap::ArgAction::Append)]
    log: Vec<PathBuf>,
    /// Log directory that is about to leave, or has left
    #[arg(long, env = "FRESHET_LOG_RETIRED", value_name = "DIR", value_delimiter = ':', action = clap::ArgAction::Append)]
    log_retired: Vec<PathBuf>,
    /// Directory with images that were moved there [default: where they were written]
    #[arg(long, env = "FRESHET_BACKUP", value_name = "DIR", value_delimiter = ':', action = clap::ArgAction::Append)]
    backup: Vec<PathBuf>,
}

impl Directories {
    pub fn subject(&self) -> Subject {
        Subject {
            data_dir: self.data.clone(),
            log_dirs: self.log.clone(),
            retired_log_dirs: self.log_retired.clone(),
            backup_dirs: self.backup.clone(),
        }
    }
}

const WHOLE: u8 = 0;
const DAMAGED: u8 = 1;
const WRONG_USAGE: u8 = 2;

pub fn run(args: &Args) -> ExitCode {
    let io: Arc<dyn Io> = Arc::new(OsIo::new());
    let mut bar = Bar::new();
    let report = inspect::check(&io, &args.directories.subject(), &mut |progress| bar.show(progress));
    bar.clear();
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            // Without a stderr there is nobody to tell; the code still says it.
            let _ = writeln!(std::io::stderr(), "freshet: {error}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let text = if args.json { format!("{:#}", as_json(&report)) } else { report.to_string() };
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(if report.is_damaged() { DAMAGED } else { WHOLE })
}

fn as_json(report: &Report) -> Value {
    json!({
        "damaged": report.is_damaged(),
        "database": report.database.map(|id| format!("{:032x}", id.0)),
        "incarnation": report.incarnation.map(|i| i.0),
        "durable_epoch": report.durable.map(|e| e.0),
        "log_bytes": report.log_bytes,
        "groups": report.groups,
        "commits": report.commits,
        "changes": report.operations,
        "images": report.images,
        "image_bytes": report.image_bytes,
        "tables": report.tables,
        "indexes": report.indexes,
        "rows": report.rows,
        "long_values": report.long_values,
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "omitted_findings": report.omitted,
    })
}

pub fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.name(),
        "file": finding.path.as_ref().map(|path| path.to_string_lossy()),
        "offset": finding.offset,
        "device": finding.device.map(|d| d.0),
        "epoch": finding.epoch.map(|e| e.0),
        "table": finding.table,
        "row": finding.row.map(|row| format!("{row:?}")),
        "reason": finding.reason,
    })
}

/// Progress on a terminal; elsewhere nothing.
#[derive(Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    phase: &'static str,
}

impl Bar {
    pub fn new() -> Bar {
        Bar::default()
    }

    pub fn show(&mut self, progress: Progress) {
        if self.bar.is_none() || self.phase != progress.phase {
            self.clear();
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(progress.total_bytes).with_style(style).with_message(progress.phase);
            (self.bar, self.phase) = (Some(bar), progress.phase);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.done_bytes);
        }
    }

    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
