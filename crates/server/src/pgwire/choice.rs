//! Do a worker's bytes travel together? Where clients are woken over and over, and take the worker's processor, they do; else each session calls.
//!
//! The kernel counts how often it took a thread's processor although it had more to do. While sessions make their own calls, that count tells what
//! calls for all would save; while bytes travel together it tells little, so they are parted for a short while now and then, and it is counted anew.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Which way a worker's bytes travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Together {
    /// As the count of switches has it.
    #[default]
    IfDisturbed,
    /// For tests of what travels.
    Always,
}

/// A switch for each so many answers is worth it: event loops on the worker's processor make one for two answers (0.6 an answer), pgbench, which waits
/// for bytes only and so is woken half as often, one for 140.
const ANSWERS_A_SWITCH: u64 = 8;

/// Answers of a look while each session makes its own calls: a tenth of a second or less at full speed.
const ALONE: u64 = 2_048;

/// Answers between two such looks while bytes travel together.
const TOGETHER: u64 = 16 * ALONE;

/// Of a worker, which alone uses it.
pub struct Choice {
    /// The status of the thread that made it.
    status: Option<File>,
    is_together: bool,
    answers: u64,
    answers_until_look: u64,
    switches_before: u64,
}

impl Choice {
    /// Of this thread. Without /proc bytes travel together.
    pub fn new(together: Together) -> Choice {
        let is_measured = together == Together::IfDisturbed;
        let status = is_measured.then(|| File::open("/proc/thread-self/status").ok()).flatten();
        let switches_before = status.as_ref().and_then(involuntary_switches);
        Choice {
            is_together: switches_before.is_none(),
            answers: 0,
            answers_until_look: if switches_before.is_some() { ALONE } else { u64::MAX },
            switches_before: switches_before.unwrap_or(0),
            status,
        }
    }

    pub fn is_together(&self) -> bool {
        self.is_together
    }

    /// Something is answered; whether it travels with others.
    pub fn answers(&mut self) -> bool {
        self.answers += 1;
        if self.answers >= self.answers_until_look {
            let switches = self.status.as_ref().and_then(involuntary_switches);
            self.look(switches.unwrap_or(u64::MAX));
        }
        self.is_together
    }

    /// Goes by what happened since the last look.
    fn look(&mut self, switches: u64) {
        let since = switches.saturating_sub(self.switches_before);
        // While they travel together nothing is to be learned: that is to be tried.
        self.is_together = !self.is_together && since.saturating_mul(ANSWERS_A_SWITCH) > self.answers;
        self.answers_until_look = if self.is_together { TOGETHER } else { ALONE };
        self.answers = 0;
        self.switches_before = switches;
    }
}

/// How often the thread whose status this is lost its processor against its will.
fn involuntary_switches(status: &File) -> Option<u64> {
    let mut text = [0; 4096];
    let length = status.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks after as many answers as it wants, as if so many switches had happened.
    fn look_after(choice: &mut Choice, switches: u64) -> (u64, bool) {
        let answers = choice.answers_until_look;
        choice.answers = answers;
        choice.look(choice.switches_before + switches);
        (answers, choice.is_together())
    }

    #[test]
    fn who_is_switched_away_lets_bytes_travel_together() {
        let mut choice = Choice::new(Together::IfDisturbed);
        assert!(!choice.is_together());
        assert_eq!(look_after(&mut choice, ALONE / ANSWERS_A_SWITCH), (ALONE, false));
        assert_eq!(look_after(&mut choice, ALONE / ANSWERS_A_SWITCH + 1), (ALONE, true));
        // The few switches of then say nothing of what parting them would do, nor do many.
        assert_eq!(look_after(&mut choice, 0), (TOGETHER, false));
        assert_eq!(look_after(&mut choice, ALONE), (ALONE, true));
        assert_eq!(look_after(&mut choice, TOGETHER), (TOGETHER, false));
        assert_eq!(look_after(&mut choice, 0), (ALONE, false));
    }

    #[test]
    fn it_looks_by_itself_and_reads_what_the_kernel_counts() {
        let mut choice = Choice::new(Together::IfDisturbed);
        let counted = involuntary_switches(choice.status.as_ref().expect("Linux has it")).expect("a line of it");
        assert!(counted >= choice.switches_before);
        (1..ALONE).for_each(|_| assert!(!choice.answers()));
        choice.answers();
        assert_eq!(choice.answers, 0);
        let mut choice = Choice::new(Together::Always);
        assert!((0..4 * TOGETHER).all(|_| choice.answers()));
    }
}
