//! The workload `logins`: how many clients come in a second, each over a connection of its own and with a SCRAM exchange of its own?
//!
//! The clients share the machine with the server, and each hashes its password anew, 4,096 times, as libpq and most drivers do: that is most of
//! what a login costs here. What the server has of it is told beside.

use crate::adapter::child::{Server, free_address};
use crate::adapter::freshet_wire::{program, program_command};
use crate::adapter::on_threads;
use crate::adapter::wire::{Address, ask, ask_in_turn, runtime};
use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting};
use crate::machine::Machine;
use crate::progress::{during, say};
use crate::scratch::Scratch;
use crate::suite;
use clap::Args;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const DUE_PER_S: f64 = 1_000.0;
const CASE: &str = "scram-sha-256";
const USER: &str = "guest";
const PASSWORD: &str = "correct horse battery staple";
/// What the machine is measured with, for the figures' file.
const PROBE_BYTES: u64 = 64 << 20;

/// Connections a second, each with a SCRAM exchange of its own
#[derive(Args, Clone, Debug)]
pub struct LoginsArgs {
    /// Clients that come at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: u64,
    /// Seconds of the measurement
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = suite::seconds)]
    seconds: f64,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the database is made
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
}

pub fn run(args: &LoginsArgs) -> Result<(), BenchError> {
    program()?;
    figure::refuse_unwritable(&args.json)?;
    std::fs::create_dir_all(&args.data).map_err(on(&args.data))?;
    let machine = Machine::measure(&args.data, PROBE_BYTES)?;
    machine.lines().iter().for_each(|line| say(line));
    let scratch = Scratch::new(&args.data, "logins")?;
    let (server, address) = start(&scratch)?;
    let before = server.cpu_seconds();
    let begun = Instant::now();
    let time = Duration::from_secs_f64(args.seconds);
    let count = during(CASE, 0, |_| come_in(address, args.clients as usize, begun + time))?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), server.cpu_seconds() - before);
    refuses(address)?;
    let figure = Figure {
        workload: "logins",
        adapter: "freshet-wire",
        sessions: args.clients as usize,
        note: format!("server {:.0} us of processor each", cpu_seconds * 1e6 / (count as f64).max(1.0)),
        ..Figure::new(CASE, "logins", count as f64, "logins", seconds)
    };
    let figures = [figure.due_if(machine.optimised, Due::RateAtLeast(DUE_PER_S))];
    figure::rates_table(&figures).iter().for_each(|line| say(line));
    if let Some(path) = &args.json {
        let config = BTreeMap::from([("clients", args.clients.to_string()), ("seconds", args.seconds.to_string())]);
        let setting = Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine };
        figure::append_json(path, &figures, &setting)?;
    }
    say(&figure::verdict(&figures));
    Ok(())
}

/// A server that trusts its first role and asks the other one for its password.
fn start(scratch: &Scratch) -> Result<(Server, Address), BenchError> {
    let at = free_address()?;
    let config = scratch.path().join("freshet.toml");
    let rule = |user: &str, method: &str| {
        format!(
            "[[rule]]\ntype = \"host\"\ndatabase = \"all\"\nuser = \"{user}\"\naddress = \"127.0.0.1\"\nmethod = \"{method}\"\n"
        )
    };
    std::fs::write(&config, rule("freshet", "trust") + &rule("all", CASE)).map_err(on(&config))?;
    let mut command = program_command()?;
    command.arg("serve").arg("--config").arg(&config).arg("--data").arg(scratch.path().join("data"));
    command.args(["--listen", &at.to_string(), "--memory-limit", "512MiB", "--log-size", "256MiB"]);
    let mut server = Server::start("freshet-serve", command, scratch.path(), Signal::INT)?;
    let address = Address { at, user: "freshet", database: "freshet", socket: None };
    server.wait_until(|| ask(address, "SELECT 1").map(drop))?;
    ask_in_turn(address, &[format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")])?;
    Ok((server, address))
}

fn guest(address: Address, password: &str) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config.host(address.at.ip().to_string()).port(address.at.port());
    config.user(USER).password(password).dbname(address.database);
    config
}

/// How often clients came in until then, all of them together.
fn come_in(address: Address, clients: usize, until: Instant) -> Result<u64, BenchError> {
    let counts = on_threads(clients, |_| {
        let (runtime, config) = (runtime()?, guest(address, PASSWORD));
        let mut count = 0;
        while Instant::now() < until {
            runtime.block_on(async {
                // Dropped, the connection ends.
                config.connect(NoTls).await.map(drop)
            })?;
            count += 1;
        }
        Ok(count)
    })?;
    Ok(counts.into_iter().sum())
}

/// A figure of a server that lets everybody in would be none.
fn refuses(address: Address) -> Result<(), BenchError> {
    let answer = runtime()?.block_on(guest(address, "another").connect(NoTls));
    match answer.err().and_then(|error| error.code().cloned()) {
        Some(code) if code.code() == "28P01" => Ok(()),
        other => Err(BenchError::WrongData(format!("a wrong password was answered with {other:?}"))),
    }
}
