//! What does a person see while it runs? A bar on a terminal; otherwise a line every few seconds, fit for a log.

use crate::report::thousands;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// One line to standard output. A reader that went away does not end the run.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// One step of the run with a known end.
pub struct Progress {
    name: &'static str,
    total: u64,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Progress {
    pub fn new(name: &'static str, total: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{prefix:>9} [{bar:32}] {percent:>3}%  {msg}";
            let style = ProgressStyle::with_template(template).expect("the template is well formed");
            ProgressBar::new(total).with_prefix(name).with_style(style.progress_chars("=> "))
        });
        Progress { name, total, bar, last_line: Instant::now() }
    }

    pub fn show(&mut self, done: u64, more: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(more());
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let percent = 100.0 * done as f64 / self.total.max(1) as f64;
            let _ = writeln!(
                std::io::stderr(),
                "{}: {} of {} ({percent:.0}%)  {}",
                self.name,
                thousands(done as f64),
                thousands(self.total as f64),
                more()
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
