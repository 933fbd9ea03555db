//! `freshet ship`: runs a multiplexer until it is told to stop.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | stopped by SIGINT or SIGTERM |
//! | 1 | could not start: the port, mostly; one line on stderr says why |
//! | 2 | wrong usage |

use super::multiplexer::{self, Options};
use super::tls::{Security, SslMode};
use crate::logging;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Ship the requests of this host's clients to a server, many in one message
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Address for clients, loopback only
    #[arg(long, env = "FRESHET_SHIP_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:6433")]
    listen: SocketAddr,
    /// Directory of a socket file for clients, as `psql -h DIR` looks for it: costs less than TCP
    #[arg(long, env = "FRESHET_SHIP_SOCKET", value_name = "DIR")]
    socket: Option<PathBuf>,
    /// The server
    #[arg(long, env = "FRESHET_SHIP_TO", value_name = "HOST:PORT")]
    to: String,
    /// TLS to the server, as libpq has it
    #[arg(long, env = "FRESHET_SHIP_SSLMODE", value_name = "MODE", value_enum, default_value = "prefer")]
    sslmode: SslMode,
    /// Root certificates by which the server's is verified, in PEM
    #[arg(long, env = "FRESHET_SHIP_SSLROOTCERT", value_name = "FILE")]
    sslrootcert: Option<PathBuf>,
    /// Connections to the server [default: one for each 256 clients, up to one for each of its workers and 4]
    #[arg(long, env = "FRESHET_SHIP_LINKS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    links: Option<u16>,
}

fn exit(reason: impl std::fmt::Display) -> ExitCode {
    logging::say(&format!("freshet: {reason}\n"));
    ExitCode::FAILURE
}

pub fn run(args: Args) -> ExitCode {
    if let Err(error) = logging::queue() {
        return exit(format_args!("no thread for the log's lines: {error}"));
    }
    let security = Security { mode: args.sslmode, roots: args.sslrootcert };
    let (links, socket) = (args.links.map(usize::from), args.socket);
    let options = Options { links, socket, security, ..Options::new(args.listen, args.to.clone()) };
    let ship = match multiplexer::start(options) {
        Ok(ship) => ship,
        Err(error) => return exit(error),
    };
    tracing::info!("shipping from {} to {}", ship.local_addr(), args.to);
    match wait() {
        Ok(name) => {
            tracing::info!("{name}: stopping");
            ship.stop();
            ExitCode::SUCCESS
        }
        Err(error) => exit(format_args!("signals: {error}")),
    }
}

fn wait() -> std::io::Result<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(tokio::select! {
            _ = interrupt.recv() => "interrupt",
            _ = terminate.recv() => "SIGTERM",
        })
    })
}
