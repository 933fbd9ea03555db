//! The `freshet` command.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use freshet_server::serve;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An in-memory, durable SQL database that speaks PostgreSQL's protocol
#[derive(Parser)]
#[command(name = "freshet", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    match cli.command {
        Command::Serve(args) => serve::run(args),
    }
}

/// Events go to stderr; `FRESHET_TRACE` chooses which (default: info).
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("FRESHET_TRACE").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}
