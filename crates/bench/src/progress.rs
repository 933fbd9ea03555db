//! What does a person see meanwhile? A bar on a terminal, or the time that has passed where nobody knows how much is left; otherwise a line every few
//! seconds, fit for a log. Nothing in the first two seconds.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(2);
/// Between lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// One line to standard output. A reader that went away does not end the run.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Runs `work`, which counts what it has done of `total` in the counter, and shows how far it is.
pub fn during<T: Send>(what: &str, total: u64, work: impl FnOnce(&AtomicU64) -> T + Send) -> T {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let shower = thread::current();
        let (done, is_over) = (&done, &is_over);
        let working = scope.spawn(move || {
            let result = work(done);
            // The thread is not finished yet when it wakes this one, which would look again only after its interval.
            is_over.store(true, Ordering::Release);
            shower.unpark();
            result
        });
        let mut shown = Shown::new(what, total);
        while !(is_over.load(Ordering::Acquire) || working.is_finished()) {
            thread::park_timeout(LOOK_INTERVAL);
            shown.show(done.load(Ordering::Relaxed));
        }
        drop(shown);
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work`, which does not say how far it is, and shows for how long.
pub fn waiting<T: Send>(what: &str, work: impl FnOnce() -> T + Send) -> T {
    during(what, UNKNOWN, |_| work())
}

/// A total that nobody knows.
const UNKNOWN: u64 = 0;

struct Shown<'a> {
    what: &'a str,
    total: u64,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl<'a> Shown<'a> {
    fn new(what: &'a str, total: u64) -> Shown<'a> {
        let now = Instant::now();
        Shown { what, total, started: now, last_line: now, bar: None }
    }

    fn show(&mut self, done: u64) {
        if self.started.elapsed() < FIRST {
            return;
        }
        if std::io::stderr().is_terminal() {
            let bar = self.bar.get_or_insert_with(|| bar(self.what, self.total));
            bar.set_position(done);
            bar.tick();
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let line = line(self.what, self.total, done, self.started.elapsed());
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(what: &str, total: u64, done: u64, passed: Duration) -> String {
    let seconds = passed.as_secs();
    if total == UNKNOWN {
        return format!("{what}: {seconds} s so far");
    }
    format!("{what}: {:.0}% after {seconds} s", 100.0 * done as f64 / total as f64)
}

fn bar(what: &str, total: u64) -> ProgressBar {
    let template = match total {
        UNKNOWN => "{prefix:>28} {spinner} {elapsed}",
        _ => "{prefix:>28} [{bar:32}] {percent:>3}%  {eta} left",
    };
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    ProgressBar::with_draw_target((total != UNKNOWN).then_some(total), ProgressDrawTarget::stderr())
        .with_prefix(what.to_owned())
        .with_style(style.progress_chars("=> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_or_for_how_long_it_lasts() {
        let passed = Duration::from_millis(12_300);
        assert_eq!(line("freshet: load", 200, 50, passed), "freshet: load: 25% after 12 s");
        assert_eq!(line("freshet: oracle", UNKNOWN, 0, passed), "freshet: oracle: 12 s so far");
        for total in [UNKNOWN, 10] {
            assert_eq!(bar("what", total).length().is_some(), total != UNKNOWN);
        }
        assert_eq!(waiting("what", || 7), 7);
    }
}
