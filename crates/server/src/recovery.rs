//! What does one hear of a recovery? Who started the server: a bar on a terminal, lines in the log otherwise. Who connects: 57P03
//! and how long it will take.

use freshet_db::SqlError;
use freshet_engine::engine::{RecoveryProgress, RecoveryReport, RecoveryStats};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between lines where there is no terminal, the first one included: a short recovery says nothing on its way.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// A recovery as the server sees it.
#[derive(Debug)]
pub struct Recovery {
    bar: Option<ProgressBar>,
    heard: Mutex<Heard>,
}

#[derive(Debug)]
struct Heard {
    last: Option<(RecoveryReport, Instant)>,
    said: Instant,
}

impl Recovery {
    /// `shown`: to whoever started the server.
    pub fn new(shown: bool) -> Arc<Recovery> {
        let bar = (shown && std::io::stderr().is_terminal()).then(|| {
            let template = "{prefix} [{bar:32}] {percent:>3}%  {msg}";
            let style = ProgressStyle::with_template(template).expect("the template is well formed");
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        Arc::new(Recovery { bar, heard: Mutex::new(Heard { last: None, said: Instant::now() }) })
    }

    /// What a client is told that comes too early.
    pub fn refusal(&self) -> SqlError {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = match &heard.last {
            None => "Recovery has not begun yet.".to_owned(),
            Some((report, at)) => {
                let left = Duration::from_micros(report.left_us).saturating_sub(at.elapsed());
                let phase = report.phase.name();
                format!("Recovery is {phase} ({}%); ready in about {}.", percent(report), seconds(left))
            }
        };
        SqlError::new("57P03", "the database system is starting up").with_detail(detail)
    }

    /// The database is open.
    pub fn finish(&self, stats: &RecoveryStats) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let lost = stats.discarded;
        if lost.groups > 0 {
            tracing::warn!(
                "the log ended torn: {} groups of {} epochs beyond the durable horizon discarded ({}); none was acknowledged",
                lost.groups,
                lost.epochs,
                size(lost.body_bytes)
            );
        }
        tracing::info!(
            "recovered in {:.2} s: {} of images, {} of log, {} deltas, {} index entries",
            stats.total_us as f64 / 1e6,
            size(stats.images.bytes),
            size(stats.scan.bytes),
            stats.replay.items,
            stats.rebuild.items
        );
    }
}

impl RecoveryProgress for Recovery {
    fn tell(&self, report: &RecoveryReport) {
        let now = Instant::now();
        let is_due = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.last = Some((*report, now));
            let is_due = self.bar.is_none() && now - heard.said >= LINE_INTERVAL;
            if is_due {
                heard.said = now;
            }
            is_due
        };
        let left = seconds(Duration::from_micros(report.left_us));
        let rate = size(report.rate_bytes);
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{:>29}", report.phase.name()));
            bar.set_length(report.total_bytes);
            bar.set_position(report.done_bytes);
            bar.set_message(format!("{rate}/s, {left} left"));
        } else if is_due {
            let (done, total) = (size(report.done_bytes), size(report.total_bytes));
            let (phase, percent) = (report.phase.name(), percent(report));
            tracing::info!("recovery: {phase}, {done} of {total} ({percent}%), {rate}/s, about {left} left");
        }
    }
}

fn percent(report: &RecoveryReport) -> u64 {
    (u128::from(report.done_bytes) * 100 / u128::from(report.total_bytes.max(1))) as u64
}

/// Never less than one: who asks again at once is too early.
fn seconds(left: Duration) -> String {
    format!("{} s", left.as_secs_f64().ceil().max(1.0))
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / f64::from(1u32 << (10 * unit)), UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::engine::Phase;

    #[test]
    fn a_client_is_told_the_phase_and_the_time_left() {
        let recovery = Recovery::new(false);
        assert_eq!(recovery.refusal().sqlstate, "57P03");
        recovery.tell(&RecoveryReport {
            phase: Phase::Scan,
            done_bytes: 430,
            total_bytes: 1000,
            rate_bytes: 100,
            left_us: 61_500_000,
        });
        let told = recovery.refusal();
        assert_eq!(told.message, "the database system is starting up");
        let detail = told.detail.expect("a detail");
        assert!(detail.starts_with("Recovery is reading the log (43%); ready in about 6"), "{detail}");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(3 << 19), "1.5 MiB");
        assert_eq!(size(5 << 40), "5120.0 GiB");
    }
}
