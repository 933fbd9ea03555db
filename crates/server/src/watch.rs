//! What does the server's log say of checkpoints and of the log's space? A line where something changes, and again while trouble lasts.
//!
//! | seen | line |
//! |---|---|
//! | a checkpoint is over | pages, bytes, seconds, image bytes per logged byte |
//! | one has been running for [`AGAIN_US`] since the last line | how far it is |
//! | one failed | file, error, attempts, when it is tried again; repeated every [`TROUBLE_AGAIN_US`] |
//! | the first one after failures | that they work again |
//! | the log is 75 %, 90 % full | how full, and what happens when it is; repeated every [`TROUBLE_AGAIN_US`] at 90 % |

use freshet_db::CheckpointProgress;

const AGAIN_US: u64 = 10_000_000;
const TROUBLE_AGAIN_US: u64 = 60_000_000;
/// Shares of the log's capacity that are announced, in percent.
const FILLS: [u64; 2] = [75, 90];
/// A share is left again only so far below it.
const FILL_SLACK: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Info,
    Warn,
}

pub type Line = (Level, String);

/// What was said so far.
#[derive(Default)]
pub struct Watch {
    finished: u64,
    said_progress_us: u64,
    /// Attempts that had failed when it was said last, and when.
    failure: Option<(u32, u64)>,
    /// How many of [`FILLS`] were announced, and when.
    fill: (usize, u64),
}

impl Watch {
    /// `now_us` counts from anywhere; call it every second or so.
    pub fn look(&mut self, now_us: u64, seen: &CheckpointProgress, log_used: u64, log_capacity: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        self.look_at_checkpoint(now_us, seen, &mut lines);
        self.look_at_failure(now_us, seen, &mut lines);
        self.look_at_log(now_us, log_used, log_capacity, &mut lines);
        lines
    }

    fn look_at_checkpoint(&mut self, now_us: u64, seen: &CheckpointProgress, lines: &mut Vec<Line>) {
        if seen.finished > self.finished {
            self.finished = seen.finished;
            self.said_progress_us = now_us;
            if let Some(last) = seen.last.filter(|last| last.pages > 0) {
                let seconds = last.elapsed_us as f64 / 1e6;
                let (rate, amplification) = (last.bytes as f64 / seconds.max(1e-6), last.write_amplification());
                lines.push((
                    Level::Info,
                    format!(
                        "checkpoint: {} pages, {} in {seconds:.1} s ({}/s), {amplification:.2} image bytes per logged byte",
                        last.pages,
                        bytes(last.bytes as f64),
                        bytes(rate),
                    ),
                ));
            }
        }
        if !seen.running {
            self.said_progress_us = now_us;
        } else if now_us - self.said_progress_us >= AGAIN_US {
            self.said_progress_us = now_us;
            let pace = if seen.paced {
                format!("paced at {}/s", bytes(seen.pace_bytes_per_s as f64))
            } else {
                "unthrottled".into()
            };
            let (done, total) = (seen.pages_done, seen.pages_total);
            lines.push((Level::Info, format!("checkpoint: {done} of {total} pages, {pace}")));
        }
    }

    fn look_at_failure(&mut self, now_us: u64, seen: &CheckpointProgress, lines: &mut Vec<Line>) {
        match (&seen.failure, self.failure) {
            (Some(failure), said) => {
                let is_old = said.is_some_and(|(_, said_us)| now_us - said_us >= TROUBLE_AGAIN_US);
                if is_old || said.is_none() {
                    self.failure = Some((failure.attempts, now_us));
                    lines.push((
                        Level::Warn,
                        format!(
                            "{}; {} failed, the next follows in {:.0} s; commits go on, the log is kept",
                            failure.reason,
                            if failure.attempts == 1 {
                                "1 attempt".into()
                            } else {
                                format!("{} attempts", failure.attempts)
                            },
                            failure.retry_in_us as f64 / 1e6,
                        ),
                    ));
                }
            }
            (None, Some((attempts, _))) => {
                self.failure = None;
                lines.push((Level::Info, format!("checkpoints work again, after {attempts} or more failed attempts")));
            }
            (None, None) => {}
        }
    }

    fn look_at_log(&mut self, now_us: u64, used: u64, capacity: u64, lines: &mut Vec<Line>) {
        let percent = used * 100 / capacity.max(1);
        let (said, said_us) = self.fill;
        let reached = FILLS.iter().filter(|&&fill| percent >= fill).count();
        let left = FILLS.iter().filter(|&&fill| percent + FILL_SLACK >= fill).count();
        let is_again = reached == FILLS.len() && said == reached && now_us - said_us >= TROUBLE_AGAIN_US;
        if reached > said || is_again {
            self.fill = (reached, now_us);
            lines.push((
                Level::Warn,
                format!(
                    "the log is {percent} % full ({} of {}): when it is full and no checkpoint frees it, commits are refused",
                    bytes(used as f64),
                    bytes(capacity as f64),
                ),
            ));
        } else if left < said {
            self.fill = (left, now_us);
        }
    }
}

fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = count;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{scaled:.0} B") } else { format!("{scaled:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_db::{CheckpointFailure, CheckpointReport};

    const SECOND: u64 = 1_000_000;

    fn texts(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_checkpoint_is_told_once() {
        let mut watch = Watch::default();
        let mut seen = CheckpointProgress { running: true, pages_total: 100, pages_done: 40, ..Default::default() };
        assert!(watch.look(0, &seen, 0, 100).is_empty());
        assert_eq!(texts(watch.look(11 * SECOND, &seen, 0, 100)), ["checkpoint: 40 of 100 pages, unthrottled"]);
        seen.running = false;
        seen.finished = 1;
        seen.last = Some(CheckpointReport {
            pages: 100,
            bytes: 6 << 20,
            elapsed_us: 2 * SECOND,
            logged_bytes: 3 << 20,
            paced: false,
        });
        let line = "checkpoint: 100 pages, 6.0 MiB in 2.0 s (3.0 MiB/s), 2.00 image bytes per logged byte";
        assert_eq!(texts(watch.look(12 * SECOND, &seen, 0, 100)), [line]);
        assert!(watch.look(13 * SECOND, &seen, 0, 100).is_empty());
    }

    #[test]
    fn trouble_is_repeated_while_it_lasts_and_its_end_is_told() {
        let mut watch = Watch::default();
        let failure =
            CheckpointFailure { reason: "cannot write /b/images-000001".into(), attempts: 1, retry_in_us: SECOND };
        let seen = CheckpointProgress { failure: Some(failure), ..Default::default() };
        let first = watch.look(0, &seen, 0, 100);
        assert!(first.len() == 1 && first[0].0 == Level::Warn && first[0].1.contains("/b/images-000001"), "{first:?}");
        assert!(watch.look(30 * SECOND, &seen, 0, 100).is_empty());
        assert_eq!(watch.look(60 * SECOND, &seen, 0, 100).len(), 1);
        let mended = texts(watch.look(61 * SECOND, &CheckpointProgress::default(), 0, 100));
        assert!(mended.len() == 1 && mended[0].contains("again"), "{mended:?}");
    }

    #[test]
    fn a_filling_log_is_announced_before_it_is_full() {
        let mut watch = Watch::default();
        let quiet = CheckpointProgress::default();
        let mut said = |percent, second| watch.look(second * SECOND, &quiet, percent, 100).len();
        assert_eq!([said(74, 0), said(75, 1), said(80, 2), said(91, 3), said(95, 4)], [0, 1, 0, 1, 0]);
        assert_eq!([said(96, 70), said(88, 71), said(91, 72)], [1, 0, 0]);
        assert_eq!([said(50, 80), said(76, 81)], [0, 1]);
    }
}
