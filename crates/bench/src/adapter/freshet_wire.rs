//! `freshet-wire`: our own server in a process of its own, asked over loopback. What the wire costs is the difference to `freshet`.
//!
//! The server is this program again (`freshet serve`), or what `FRESHET_BIN` names where this program is another.

use super::child::{Server, free_address};
use super::native::LOAD_BATCH;
use super::sql::{Dialect, Say, definition, index_definition};
use super::wire::{self, Address, WireDriver, ask, ask_numbers};
use super::{Adapter, Content, Driver, Facts, Kind, Loading, Missing, Setup, on_threads};
use crate::error::BenchError;
use crate::shape::{IndexShape, TableShape};
use rustix::fs::{Access, access};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

pub const KIND: Kind = Kind {
    name: "freshet-wire",
    about: "Freshet's server over loopback, tokio-postgres",
    is_available: || program().map(drop),
    start: |setup| Ok(Box::new(Wire::start(setup)?)),
    is_in_one_place: false,
    has_one_index: false,
};

/// Names another program than this one.
const PROGRAM_VARIABLE: &str = "FRESHET_BIN";
/// Beside those of the drivers: loading, asking.
const OWN_SESSIONS: usize = 64;

pub struct Wire {
    address: Address,
    tables: Vec<TableShape>,
    connections: usize,
    // Last: what asks it goes first.
    server: Server,
}

/// The program with the server.
pub fn program() -> Result<PathBuf, Missing> {
    if let Some(named) = std::env::var_os(PROGRAM_VARIABLE) {
        return named_program(named.into());
    }
    match std::env::current_exe() {
        Ok(own) if own.file_name().is_some_and(|name| name == "freshet") => Ok(own),
        _ => Err(Missing {
            reason: "this program is not `freshet`, which has the server".into(),
            remedy: format!("run `freshet bench`, or name the program in {PROGRAM_VARIABLE}"),
        }),
    }
}

fn named_program(named: PathBuf) -> Result<PathBuf, Missing> {
    if named.is_file() && access(&named, Access::EXEC_OK).is_ok() {
        return Ok(named);
    }
    Err(Missing {
        reason: format!("{PROGRAM_VARIABLE} names {}, which is no program", named.display()),
        remedy: "name the program `freshet` by its path, or unset it and run `freshet bench`".into(),
    })
}

/// A command of the program, which hears nothing of what is said to this one by the environment.
pub fn program_command() -> Result<Command, BenchError> {
    let mut command = Command::new(program()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FRESHET_")) {
        command.env_remove(name);
    }
    Ok(command)
}

impl Wire {
    pub fn start(setup: &Setup) -> Result<Wire, BenchError> {
        if setup.log.is_in_process() {
            return Err(BenchError::Usage(
                "freshet-wire is a process of its own, which has no modelled or raw devices: leave it out, or give directories as --log".into(),
            ));
        }
        let at = free_address()?;
        let mut command = program_command()?;
        command.arg("serve").arg("--data").arg(setup.dir.join("data")).args(["--listen", &at.to_string()]);
        for dir in setup.log.directories(&setup.dir) {
            command.arg("--log").arg(dir);
        }
        if let Some(socket) = &setup.socket {
            command.arg("--socket").arg(socket);
        }
        command.args(["--memory-limit", &format!("{}KiB", setup.memory_bytes >> 10)]);
        command.args(["--max-connections", &(setup.sessions_max + OWN_SESSIONS).to_string()]);
        let mut server = Server::start("freshet-serve", command, &setup.dir, Signal::INT)?;
        let address =
            Address { at, user: "freshet", database: "freshet", socket: wire::lasting(setup.socket.as_deref()) };
        server.wait_until(|| ask(address, "SELECT 1").map(drop))?;
        Ok(Wire { address, tables: Vec::new(), connections: setup.connections, server })
    }
}

impl Wire {
    pub fn address(&self) -> Address {
        self.address
    }

    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Adapter for Wire {
    fn resident_bytes(&self) -> Option<u64> {
        self.server.resident_bytes()
    }

    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        let mut statements = tables.iter().flat_map(|table| definition(table, Dialect::Freshet));
        self.tables = tables.to_vec();
        statements.try_for_each(|statement| ask(self.address, &statement).map(drop))
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let next = AtomicU64::new(loading.rows.start);
        let more = || {
            let first = next.fetch_add(LOAD_BATCH, Ordering::Relaxed);
            (first < loading.rows.end).then(|| {
                let end = loading.rows.end.min(first + LOAD_BATCH);
                loading.done.fetch_add(end - first, Ordering::Relaxed);
                first..end
            })
        };
        on_threads(loading.threads, |_| wire::load(self.address, &self.tables, loading.table, more)).map(drop)
    }

    fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError> {
        let mode = if durable { "SET synchronous_commit = on" } else { "SET synchronous_commit = off" };
        let connections = sessions.min(self.connections);
        Ok(Box::new(WireDriver::connect(self.address, &self.tables, connections, mode)?))
    }

    fn content(&self, table: usize) -> Result<Content, BenchError> {
        let numbers = ask_numbers(self.address, &Say::Sum { table }.text(&self.tables))?;
        Ok(Content { rows: numbers[0] as u64, sum: numbers[1] })
    }

    fn build_index(&mut self, table: usize, index: &IndexShape) -> Result<bool, BenchError> {
        let shape = &mut self.tables[table];
        ask(self.address, &index_definition(shape, index, Dialect::Freshet))?;
        shape.indexes.push(index.clone());
        Ok(true)
    }

    fn facts(&self) -> Facts {
        let asked =
            ask_numbers(self.address, "SELECT commit_record_bytes, group_overhead_bytes, flushes FROM freshet_log");
        let Ok([log, overhead, flushes]) = asked.as_deref() else { return Facts::default() };
        Facts {
            log_bytes: Some(*log as u64),
            log_overhead_bytes: Some(*overhead as u64),
            flushes: Some(*flushes as u64),
            ..Facts::default()
        }
    }

    fn note(&self) -> String {
        format!("up to {} connections a thread, sessions beyond share them", self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_none_is_refused_with_the_variable_that_names_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for named in [PathBuf::from("/nonexistent"), PathBuf::from("/"), file.path().to_owned()] {
            let missing = named_program(named.clone()).expect_err("no program").to_string();
            assert!(missing.starts_with(&format!("FRESHET_BIN names {}, which", named.display())), "{missing}");
        }
        let own = std::env::current_exe().expect("this program");
        assert_eq!(named_program(own.clone()).ok(), Some(own));
    }
}
