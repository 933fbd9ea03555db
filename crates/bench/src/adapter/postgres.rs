//! `postgres`: PostgreSQL from the distribution's package, on a scratch directory, all data in its buffers, every commit on the disk.
//!
//! As root the server runs as the user `postgres`, since it refuses root; otherwise as who runs the bench. It listens on loopback and
//! trusts whoever comes, and is gone with its directory when the run ends.

use super::child::{Server, free_address, tail};
use super::sql::{Dialect, Say, definition, index_definition};
use super::wire::{Address, WireDriver, ask, ask_numbers, lasting};
use super::{Adapter, Content, Driver, Facts, Kind, Loading, Missing, Setup};
use crate::error::{BenchError, on};
use crate::machine::memory_available;
use crate::shape::{IndexShape, TableShape, Ty};
use rustix::process::Signal;
use std::fmt::Write;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

pub const KIND: Kind = Kind {
    name: "postgres",
    about: "PostgreSQL, fully cached, over loopback, tokio-postgres",
    is_available: || programs().map(drop),
    start: |setup| Ok(Box::new(Postgres::start(setup)?)),
    is_in_one_place: false,
    has_one_index: false,
};

const OWN_CONNECTIONS: usize = 16;
/// The server has a process for each connection, so sessions beyond share them.
const CONNECTIONS_MAX: usize = 512;
/// Rows of one message of a load.
const COPY_ROWS: u64 = 20_000;

pub struct Postgres {
    address: Address,
    tables: Vec<TableShape>,
    connections: usize,
    version: String,
    buffers_mib: u64,
    // Last: what asks it goes first.
    server: Server,
}

/// The directory of initdb and postgres, of the newest version that is installed.
pub fn programs() -> Result<PathBuf, Missing> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let mut found: Vec<(u32, PathBuf)> = debian.map(|(version, path)| (version, path.join("bin"))).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|dir| (0, dir)));
    found.retain(|(_, dir)| dir.join("initdb").is_file() && dir.join("postgres").is_file());
    found.into_iter().max_by_key(|(version, _)| *version).map(|(_, dir)| dir).ok_or_else(|| Missing {
        reason: "PostgreSQL is not installed (no initdb in /usr/lib/postgresql or PATH)".into(),
        remedy: "apt-get install -y postgresql".into(),
    })
}

/// User and group of `postgres`, whom the server runs as where we are root.
fn other_user() -> Result<Option<(u32, u32)>, BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(on(Path::new("/etc/passwd")))?;
    let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
    let ids = line.and_then(|line| {
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    ids.map(Some).ok_or_else(|| {
        BenchError::Machine(
            "PostgreSQL does not run as root, and there is no user postgres: useradd --system postgres".into(),
        )
    })
}

impl Postgres {
    pub fn start(setup: &Setup) -> Result<Postgres, BenchError> {
        if setup.log.is_in_process() {
            return Err(BenchError::Usage(
                "postgres writes its files by itself, not to modelled or raw devices: leave it out, or give directories as --log".into(),
            ));
        }
        let bin = programs()?;
        let user = other_user()?;
        let data = setup.dir.join("postgres");
        let wal = setup.log.directories(&setup.dir).swap_remove(0);
        for dir in [&setup.dir, &data, &wal] {
            fs::create_dir_all(dir).map_err(on(dir))?;
            if let Some((uid, gid)) = user {
                std::os::unix::fs::chown(dir, Some(uid), Some(gid)).map_err(on(dir))?;
            }
        }
        let wal = absolute(&wal.join("pg_wal"))?;
        let command = |program: &str| {
            let mut command = Command::new(bin.join(program));
            command.current_dir(&setup.dir).arg("-D").arg("postgres");
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        let mut initdb = command("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        run_to_end(initdb.arg("--waldir").arg(wal), &setup.dir)?;
        let at = free_address()?;
        let connections = setup.sessions_max.min(CONNECTIONS_MAX);
        if let (Some(socket), Some((uid, gid))) = (&setup.socket, user) {
            std::os::unix::fs::chown(socket, Some(uid), Some(gid)).map_err(on(socket))?;
        }
        let socket = setup.socket.as_deref().unwrap_or(Path::new("")).display().to_string();
        // What the data needs, and never more than the machine can give beside the client.
        let buffers_mib = (setup.memory_bytes.min(memory_available() / 2) >> 20).max(128);
        let mut postgres = command("postgres");
        for (name, value) in settings(at.port(), socket, connections + OWN_CONNECTIONS, buffers_mib) {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        let mut server = Server::start("postgres", postgres, &setup.dir, Signal::QUIT)?;
        let address = Address { at, user: "postgres", database: "postgres", socket: lasting(setup.socket.as_deref()) };
        server.wait_until(|| ask(address, "SELECT 1").map(drop))?;
        let version = assert_durable(address)?;
        let connections = setup.connections.min(connections);
        Ok(Postgres { address, tables: Vec::new(), connections, version, buffers_mib, server })
    }

    pub fn address(&self) -> Address {
        self.address
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    fn copy_text(&self, table: usize, rows: std::ops::Range<u64>, text: &mut String) {
        let shape = &self.tables[table];
        let mut cells = Vec::new();
        for id in rows {
            cells.clear();
            (shape.row)(id, &mut cells);
            for (i, (cell, column)) in cells.iter().zip(&shape.columns).enumerate() {
                text.push_str(if i == 0 { "" } else { "\t" });
                match column.ty {
                    Ty::Bool => text.push_str(if *cell != 0 { "t" } else { "f" }),
                    _ => write!(text, "{cell}").expect("a string grows"),
                }
            }
            text.push('\n');
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, BenchError> {
    std::path::absolute(path).map_err(on(path))
}

fn settings(port: u16, socket: String, connections: usize, buffers_mib: u64) -> Vec<(&'static str, String)> {
    let fixed = [
        ("listen_addresses", "127.0.0.1"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("wal_level", "replica"),
        ("max_wal_senders", "0"),
        // Rarely enough that a short run is not all first changes of pages, which are logged whole.
        ("max_wal_size", "16GB"),
        ("checkpoint_timeout", "15min"),
        ("huge_pages", "try"),
    ];
    let mut all: Vec<_> = fixed.map(|(name, value)| (name, value.to_owned())).into();
    all.push(("port", port.to_string()));
    all.push(("unix_socket_directories", socket));
    all.push(("max_connections", connections.to_string()));
    all.push(("shared_buffers", format!("{buffers_mib}MB")));
    all
}

fn run_to_end(command: &mut Command, dir: &Path) -> Result<(), BenchError> {
    let said = dir.join("initdb.said");
    let file = fs::File::create(&said).map_err(on(&said))?;
    command.stdout(file.try_clone().map_err(on(&said))?).stderr(file);
    let program = PathBuf::from(command.get_program());
    let status = command.status().map_err(on(&program))?;
    match status.success() {
        true => Ok(()),
        false => Err(BenchError::Machine(format!("{} failed: {}", program.display(), tail(&said)))),
    }
}

/// The server's version, once it is sure that commits are durable.
fn assert_durable(address: Address) -> Result<String, BenchError> {
    let show = |name: &str| -> Result<String, BenchError> {
        let rows = ask(address, &format!("SHOW {name}"))?;
        Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
    };
    for name in ["fsync", "full_page_writes", "synchronous_commit"] {
        let value = show(name)?;
        if value != "on" {
            return Err(BenchError::Machine(format!(
                "PostgreSQL has {name} = {value}: its commits would not be durable"
            )));
        }
    }
    show("server_version")
}

impl Adapter for Postgres {
    fn resident_bytes(&self) -> Option<u64> {
        None
    }

    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError> {
        let mut statements = tables.iter().flat_map(|table| definition(table, Dialect::Postgres));
        self.tables = tables.to_vec();
        statements.try_for_each(|statement| ask(self.address, &statement).map(drop))
    }

    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError> {
        let next = std::sync::atomic::AtomicU64::new(loading.rows.start);
        let name = self.tables[loading.table].name;
        super::on_threads(loading.threads, |_| {
            super::wire::copy(self.address, name, |text| {
                let first = next.fetch_add(COPY_ROWS, Ordering::Relaxed);
                if first >= loading.rows.end {
                    return false;
                }
                let end = loading.rows.end.min(first + COPY_ROWS);
                self.copy_text(loading.table, first..end, text);
                loading.done.fetch_add(end - first, Ordering::Relaxed);
                true
            })
        })?;
        // Statistics for its planner, and visibility, as a day of service would have left them.
        ask(self.address, &format!("VACUUM ANALYZE {name}")).map(drop)
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
        ask(self.address, &index_definition(shape, index, Dialect::Postgres))?;
        shape.indexes.push(index.clone());
        Ok(true)
    }

    fn facts(&self) -> Facts {
        let asked = ask_numbers(self.address, "SELECT wal_bytes::bigint, wal_sync FROM pg_stat_wal");
        let sizes: Vec<String> = self
            .tables
            .iter()
            .map(|t| format!("pg_table_size('{0}') AS t, pg_indexes_size('{0}') AS i", t.name))
            .collect();
        let sizes =
            format!("SELECT sum(t)::bigint, sum(i)::bigint FROM (SELECT {}) s", sizes.join(" UNION ALL SELECT "));
        let sized = ask_numbers(self.address, &sizes);
        let (Ok([log, flushes]), Ok([table, index])) = (asked.as_deref(), sized.as_deref()) else {
            return Facts::default();
        };
        Facts {
            log_bytes: Some(*log as u64),
            flushes: Some(*flushes as u64),
            table_bytes: Some(*table as u64),
            index_bytes: Some(*index as u64),
            ..Facts::default()
        }
    }

    fn note(&self) -> String {
        let (version, buffers, connections) = (&self.version, self.buffers_mib, self.connections);
        format!(
            "PostgreSQL {version}, shared_buffers {buffers} MiB, up to {connections} connections a thread, sessions beyond share them"
        )
    }
}
