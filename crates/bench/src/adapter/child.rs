//! A server in a process of its own: started, waited for, and gone when the run ends, however it ends: SIGINT and SIGTERM included.

use crate::error::{BenchError, on};
use crate::interrupt;
use crate::machine::resident_bytes_of;
use crate::process::{self, TICKS_PER_SECOND};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Of what it said before it failed.
const LINES: usize = 6;

pub struct Server {
    name: &'static str,
    child: std::process::Child,
    said: PathBuf,
    /// What makes it stop at once.
    stop: Signal,
}

/// A port that nobody listens on at this moment.
pub fn free_address() -> Result<SocketAddr, BenchError> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found.map_err(|error| BenchError::Machine(format!("no port on loopback: {error}")))
}

/// The last lines of a file.
pub fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

impl Server {
    /// Starts it; what it says goes to a file in `dir`.
    pub fn start(name: &'static str, mut command: Command, dir: &Path, stop: Signal) -> Result<Server, BenchError> {
        let said = dir.join(format!("{name}.said"));
        let file = std::fs::File::create(&said).map_err(on(&said))?;
        let again = file.try_clone().map_err(on(&said))?;
        command.stdin(Stdio::null()).stdout(file).stderr(again);
        let program = PathBuf::from(command.get_program());
        interrupt::pass();
        let child = command.spawn().map_err(on(&program))?;
        interrupt::has_started(child.id(), stop);
        Ok(Server { name, child, said, stop })
    }

    /// Processor time that it and the processes that it started have used, those that have ended included.
    pub fn cpu_seconds(&self) -> f64 {
        let own = self.child.id();
        let all = process::all();
        let family = all.iter().filter(|(pid, _)| process::is_of(&all, own, **pid));
        let ticks: u64 = family.map(|(_, stat)| stat.ticks).sum();
        ticks as f64 / TICKS_PER_SECOND
    }

    /// Holds it and the processes that it started wherever they are: what it does by itself, as vacuuming, it does not do at the expense of others.
    pub fn rests(&self) {
        interrupt::unless_ending(|| process::signal_family(self.child.id(), Signal::STOP));
    }

    /// Lets it go on.
    pub fn goes_on(&self) {
        process::signal_family(self.child.id(), Signal::CONT);
    }

    /// Of the process itself, without those that it started.
    pub fn resident_bytes(&self) -> Option<u64> {
        resident_bytes_of(self.child.id())
    }

    /// Asks until the server answers, has ended, or has had its time.
    pub fn wait_until(&mut self, mut answers: impl FnMut() -> Result<(), BenchError>) -> Result<(), BenchError> {
        let start = Instant::now();
        loop {
            let Err(error) = answers() else { return Ok(()) };
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || start.elapsed() > PATIENCE {
                let what = if ended { "ended" } else { "does not answer" };
                let said = tail(&self.said);
                return Err(BenchError::Engine(format!("{} {what} ({error}): {said}", self.name)));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        interrupt::pass();
        // It may have ended by itself: then there is nobody to signal, and it is only collected.
        if matches!(self.child.try_wait(), Ok(None)) {
            // Whoever rests hears no other signal.
            self.goes_on();
            let _ = kill_process(Pid::from_child(&self.child), self.stop);
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        interrupt::has_ended(self.child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the process and of what it started, as `/proc` has it: `T` is stopped.
    fn states(server: &Server) -> Vec<char> {
        let all = process::all();
        let family = all.keys().filter(|pid| process::is_of(&all, server.child.id(), **pid));
        let state = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.trim_start().chars().next()
        };
        family.filter_map(state).collect()
    }

    fn wait_for(server: &Server, is_so: impl Fn(&[char]) -> bool) {
        let start = Instant::now();
        while !is_so(&states(server)) {
            assert!(start.elapsed() < PATIENCE, "{:?}", states(server));
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    #[test]
    fn a_server_rests_with_all_that_it_started_and_ends_all_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'kill $!' TERM; sleep 600 & wait"]);
        let server = Server::start("shell", command, dir.path(), Signal::TERM).expect("it starts");
        wait_for(&server, |states| states.len() == 2);
        server.rests();
        wait_for(&server, |states| states.len() == 2 && states.iter().all(|state| *state == 'T'));
        server.goes_on();
        wait_for(&server, |states| !states.contains(&'T'));
        server.rests();
        let (pid, start) = (server.child.id(), Instant::now());
        drop(server);
        assert!(start.elapsed() < PATIENCE, "it had to be killed");
        assert!(!process::all().contains_key(&pid));
    }
}
