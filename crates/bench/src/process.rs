//! What does the kernel tell of a process, and which ones did this one start?

use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::{HashMap, HashSet};

/// The kernel's unit in `/proc` (USER_HZ), the same on every architecture that we build for.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// What `/proc/PID/stat` tells of a process.
pub(crate) struct Stat {
    pub parent: u32,
    /// It has ended, and nobody has asked yet how.
    pub has_ended: bool,
    /// In user mode and in the kernel, its own and those of its children that have ended and were waited for.
    pub ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let ticks = fields.skip(9).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Some(Stat { parent, has_ended, ticks })
    }
}

/// Every process that there is, by its number.
pub(crate) fn all() -> HashMap<u32, Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect()
}

/// Whether a process is `first` or one that it started, or that those started.
pub(crate) fn is_of(all: &HashMap<u32, Stat>, first: u32, mut pid: u32) -> bool {
    while pid != first {
        match all.get(&pid) {
            Some(stat) => pid = stat.parent,
            None => return false,
        }
    }
    true
}

/// Sends a signal to a process and to all that descend from it, once each, until there is none that was started meanwhile.
pub(crate) fn signal_family(first: u32, signal: Signal) {
    let mut signalled = HashSet::new();
    loop {
        let all = all();
        let family = all.iter().filter(|(pid, stat)| !stat.has_ended && is_of(&all, first, **pid));
        let missed: Vec<u32> = family.map(|(pid, _)| *pid).filter(|pid| signalled.insert(*pid)).collect();
        if missed.is_empty() {
            return;
        }
        for pid in missed.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The processes that this one started itself and that run.
pub(crate) fn children() -> Vec<u32> {
    let own = getpid().as_raw_nonzero().get() as u32;
    let runs = |stat: &Stat| stat.parent == own && !stat.has_ended;
    all().into_iter().filter(|(_, stat)| runs(stat)).map(|(pid, _)| pid).collect()
}
