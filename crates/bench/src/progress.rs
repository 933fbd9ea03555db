//! What does a person see meanwhile? A bar on a terminal; otherwise a line every few seconds, fit for a log. Nothing in the first two seconds.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
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
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let shower = thread::current();
        let done = &done;
        let working = scope.spawn(move || {
            let result = work(done);
            shower.unpark();
            result
        });
        let mut shown = Shown::new(what, total);
        while !working.is_finished() {
            thread::park_timeout(LOOK_INTERVAL);
            shown.show(done.load(Ordering::Relaxed));
        }
        drop(shown);
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

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
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let percent = 100.0 * done as f64 / self.total.max(1) as f64;
            let seconds = self.started.elapsed().as_secs();
            let _ = writeln!(std::io::stderr(), "{}: {percent:.0}% after {seconds} s", self.what);
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

fn bar(what: &str, total: u64) -> ProgressBar {
    let template = "{prefix:>28} [{bar:32}] {percent:>3}%  {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_prefix(what.to_owned())
        .with_style(style.progress_chars("=> "))
}
