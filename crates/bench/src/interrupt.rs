//! What does a run leave that a signal ends? Nothing: at the first SIGINT or SIGTERM the processes that it started end, its directories and files go,
//! and it ends as a shell says it, with the code 130 or 143.
//!
//! The threads of the run go on meanwhile. One that starts or ends something waits here for the end of the process, so that it neither makes
//! what would stay nor reports as its failure what the signal did.

use crate::process;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{self, SignalKind};

/// How long processes may take to end before they are killed, and how long all of it may take.
const CHILDREN_TIME: Duration = Duration::from_secs(10);
const TIME: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// So many looks must find nothing: a thread may have been about to start a process or to make a file.
const LOOKS: u32 = 3;
/// What a shell adds to a signal's number.
const CODE_OF_SIGNALS: i32 = 128;

/// Empties a place, and says whether it has to be looked at again: something was there.
type Remove = fn(&Path) -> bool;

struct Left {
    places: Vec<(PathBuf, Remove)>,
    /// What makes a process stop at once, where that is not SIGTERM.
    stops: Vec<(u32, Signal)>,
}

/// Of all runs of this process. Whoever ends it keeps it locked.
static LEFT: Mutex<Left> = Mutex::new(Left { places: Vec::new(), stops: Vec::new() });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before it is made: what a signal has to remove.
pub(crate) fn will_make(path: &Path, remove: Remove) {
    left().places.push((path.to_owned(), remove));
}

/// After the run has removed it by itself.
pub(crate) fn has_removed(path: &Path) {
    left().places.retain(|(made, _)| made != path);
}

/// A process that is stopped by this signal.
pub(crate) fn has_started(process: u32, stop: Signal) {
    left().stops.push((process, stop));
}

pub(crate) fn has_ended(process: u32) {
    left().stops.retain(|(started, _)| *started != process);
}

/// Goes on at once, or never where a signal is ending the process.
pub(crate) fn pass() {
    unless_ending(|| {});
}

/// Does it unless a signal is ending the process, and before one does: then never.
pub(crate) fn unless_ending(work: impl FnOnce()) {
    let _left = left();
    work();
}

/// From now on a signal ends this process in order.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Where that fails a signal ends the process at once, as it would have.
        if let Ok((runtime, signals)) = listen() {
            thread::spawn(move || end(runtime.block_on(first(signals))));
        }
    });
}

fn listen() -> io::Result<(Runtime, [unix::Signal; 2])> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        [unix::signal(SignalKind::interrupt())?, unix::signal(SignalKind::terminate())?]
    };
    Ok((runtime, signals))
}

async fn first([mut interrupt, mut terminate]: [unix::Signal; 2]) -> Signal {
    tokio::select! {
        _ = interrupt.recv() => Signal::INT,
        _ = terminate.recv() => Signal::TERM,
    }
}

fn end(signal: Signal) -> ! {
    let left = left();
    // Without a stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "freshet bench: ended by a signal; what it made goes");
    clear(&left);
    std::process::exit(CODE_OF_SIGNALS + signal.as_raw());
}

fn clear(left: &Left) {
    let start = Instant::now();
    let mut signalled = HashSet::new();
    let mut quiet = 0;
    while quiet < LOOKS && start.elapsed() < TIME {
        let running = stop_children(&left.stops, &mut signalled, start.elapsed() > CHILDREN_TIME);
        // A process that runs would make anew what is removed.
        let is_clean = !running && !left.places.iter().fold(false, |found, (path, remove)| found | remove(path));
        quiet = if is_clean { quiet + 1 } else { 0 };
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Whether there are any. Each is asked once, and killed when its time is over.
fn stop_children(stops: &[(u32, Signal)], signalled: &mut HashSet<u32>, is_late: bool) -> bool {
    let children = process::children();
    for &child in &children {
        let stop = stops.iter().find(|(started, _)| *started == child).map_or(Signal::TERM, |(_, stop)| *stop);
        if is_late {
            process::signal_family(child, Signal::KILL);
        } else if let (true, Some(pid)) = (signalled.insert(child), Pid::from_raw(child as i32)) {
            // It may have ended meanwhile; the next look says so.
            let _ = kill_process(pid, stop);
            // Whoever rests hears no other signal.
            process::signal_family(child, Signal::CONT);
        }
    }
    !children.is_empty()
}

/// A directory with all that is in it.
pub(crate) fn directory(path: &Path) -> bool {
    was_there(std::fs::remove_dir_all(path))
}

pub(crate) fn file(path: &Path) -> bool {
    was_there(std::fs::remove_file(path))
}

/// What cannot be removed lies where the user put it, under a name that says what it is.
fn was_there(removed: io::Result<()>) -> bool {
    removed.err().is_none_or(|error| error.kind() != ErrorKind::NotFound)
}
