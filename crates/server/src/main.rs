//! The `freshet` command.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use freshet_bench::BenchArgs;
use freshet_market::{ListenGuard, MarketArgs};
use freshet_server::logging::{self, LogFormat};
use freshet_server::{check, listener, salvage, serve, ship, signals, top};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

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
    Serve(Box<serve::Args>),
    Ship(ship::command::Args),
    Top(top::TopArgs),
    Check(check::Args),
    Salvage(salvage::Args),
    /// Replay a trading day into a durable database through SQL, and check what it holds
    Market(MarketArgs),
    Bench(BenchArgs),
}

/// What the allocator has to know before the first allocation. It would commit a gigabyte at once, of which the kernel makes huge pages
/// that are hardly used, and would keep what was freed for a second: tens of MiB that no account knows.
const ALLOCATOR_SETTINGS: [(&str, &str); 2] = [("MIMALLOC_ARENA_EAGER_COMMIT", "0"), ("MIMALLOC_PURGE_DELAY", "5")];

/// Starts the program anew, in the same process, where the allocator's settings are missing.
fn settle_allocator() {
    let missing: Vec<_> = ALLOCATOR_SETTINGS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect();
    let mut args = std::env::args_os();
    if !missing.is_empty()
        && let (Ok(program), Some(own_name)) = (std::env::current_exe(), args.next())
    {
        // It returns only if it fails: then the program runs as it is.
        let _ = std::process::Command::new(program).arg0(own_name).args(args).envs(missing).exec();
    }
}

fn main() -> ExitCode {
    settle_allocator();
    signals::survive_file_size_limit();
    let cli = Cli::parse();
    match &cli.command {
        // A server's configuration says what its log tells, and how.
        Command::Serve(_) => {}
        Command::Ship(_) => logging::start("info", LogFormat::Text),
        // The others report by themselves.
        _ => logging::start("warn", LogFormat::Text),
    }
    let code = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Ship(args) => ship::command::run(args),
        Command::Top(args) => top::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Bench(args) => freshet_bench::run(args),
        Command::Market(args) => freshet_market::run(args, |database, address| {
            let server = listener::listen(database, listener::Options::new(address));
            server.map(|server| Box::new(server) as ListenGuard).map_err(|error| error.to_string())
        }),
    };
    logging::finish();
    code
}
