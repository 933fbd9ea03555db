//! How fast is it, against what this machine can do? Workloads whose figures are ratios to limits measured in the same run.
//!
//! | module | question |
//! |---|---|
//! | [`error`] | why did a run fail |
//! | `process` | what does the kernel tell of a process |
//! | `interrupt` | what does a run leave that a signal ends |
//! | [`random`] | which key is next |
//! | [`machine`] | what are the limits: disk, flush, memory |
//! | [`figure`] | what came out, for a person and for a program |
//! | [`progress`] | what does a person see meanwhile |
//! | [`scratch`] | where does a run write |
//! | [`shape`] | which tables, for every system |
//! | [`device`] | how does a log device behave that this machine does not have |
//! | [`log_plan`] | where does a system write its log |
//! | [`adapter`] | what may a workload ask of a system, and who can answer |
//! | [`run`] | how fast does it answer: sessions, window, latencies |
//! | [`bare`] | what could any software reach here |
//! | [`source`] | what do the sessions ask for |
//! | [`report`] | what did it look like, beside 2002 to 2013 |
//! | [`suite`] | what do workloads on adapters share |
//! | [`ptime`], [`hotspot`], [`scan`] | the workloads of those names |
//! | [`compare`] | is it faster than it was |
//! | [`disks`], [`directory`], [`tptbm`], [`extreme`] | the workloads of these names |
//! | [`tpch`] | the workload of this name: analytic queries beside PostgreSQL |
//! | [`responder`] | what could any server reach here |
//! | [`served`] | which servers does a client ask |
//! | [`copy`] | the workload of this name: a file copied into a table and back |
//! | [`pgbench`] | the workload of this name: servers asked by PostgreSQL's own client |
//! | [`logins`] | the workload of this name: clients that come in with a password |
//! | [`market`] | the workload of this name: a feed applied while customers ask for forms |
//! | [`data`] | which tables, loaded and updated how, and is the data right |
//! | [`cold`] | how does a restart find nothing in the page cache |
//! | [`reopen`] | what does one restart cost, in a process of its own |
//! | [`restart`] | the workload `restart` with its cases |
//!
//! Modules stand in reading order; each uses only what stands above it.

#![forbid(unsafe_code)]

pub mod error;
mod process;
mod interrupt;
pub mod random;
pub mod machine;
pub mod figure;
pub mod progress;
pub mod scratch;
pub mod shape;
pub mod device;
pub mod log_plan;
pub mod adapter;
pub mod run;
pub mod bare;
pub mod source;
pub mod report;
pub mod suite;
pub mod ptime;
pub mod hotspot;
pub mod scan;
pub mod compare;
pub mod disks;
pub mod directory;
pub mod tptbm;
pub mod extreme;
pub mod tpch;
pub mod responder;
pub mod served;
pub mod copy;
pub mod pgbench;
pub mod logins;
pub mod market;
pub mod data;
pub mod cold;
pub mod reopen;
pub mod restart;

use clap::{Args, Subcommand};
use error::BenchError;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Measure workloads against the limits of this machine
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand, Debug)]
enum Workload {
    Ptime(ptime::PtimeArgs),
    Hotspot(hotspot::HotspotArgs),
    Scan(scan::ScanArgs),
    Disks(disks::DisksArgs),
    Directory(directory::DirectoryArgs),
    Tptbm(tptbm::TptbmArgs),
    Extreme(extreme::ExtremeArgs),
    Tpch(tpch::TpchArgs),
    Copy(copy::CopyArgs),
    Pgbench(pgbench::PgbenchArgs),
    Logins(logins::LoginsArgs),
    Market(market::MarketArgs),
    Restart(restart::RestartArgs),
    Compare(compare::CompareArgs),
    /// What `pgbench` and `market` compare servers with
    #[command(hide = true)]
    Responder(responder::ResponderArgs),
    /// One restart of a database that `restart` made, told as JSON
    #[command(hide = true)]
    Reopen(reopen::ReopenArgs),
    #[command(external_subcommand)]
    Unknown(Vec<OsString>),
}

impl Workload {
    /// Whether it makes databases and starts servers, and is not what such a run starts itself.
    fn is_run(&self) -> bool {
        !matches!(self, Workload::Compare(_) | Workload::Responder(_) | Workload::Reopen(_) | Workload::Unknown(_))
    }
}

/// Exit codes: 0 measured, 1 failed or the data was wrong, 2 wrong usage. SIGINT and SIGTERM end the process from now on when the run has
/// removed what it made, with 130 and 143.
pub fn run(args: BenchArgs) -> ExitCode {
    if args.workload.is_run() {
        interrupt::watch();
    }
    let done = execute(args);
    interrupt::pass();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a stderr there is nobody to tell; the code still says it.
            let _ = writeln!(std::io::stderr(), "freshet bench: {error}");
            ExitCode::from(match error {
                BenchError::Usage(_) => 2,
                _ => 1,
            })
        }
    }
}

pub fn execute(args: BenchArgs) -> Result<(), BenchError> {
    match args.workload {
        Workload::Ptime(args) => ptime::run(&args),
        Workload::Hotspot(args) => hotspot::run(&args),
        Workload::Scan(args) => scan::run(&args),
        Workload::Compare(args) => compare::run(&args),
        Workload::Disks(args) => disks::run(&args),
        Workload::Directory(args) => directory::run(&args),
        Workload::Tptbm(args) => tptbm::run(&args),
        Workload::Extreme(args) => extreme::run(&args),
        Workload::Tpch(args) => tpch::run(&args),
        Workload::Copy(args) => copy::run(&args),
        Workload::Pgbench(args) => pgbench::run(&args),
        Workload::Logins(args) => logins::run(&args),
        Workload::Market(args) => market::run(&args),
        Workload::Responder(args) => responder::run(&args),
        Workload::Restart(args) => restart::run(&args),
        Workload::Reopen(args) => reopen::run_and_tell(&args),
        Workload::Unknown(words) => Err(unknown(&words)),
    }
}

fn unknown(words: &[OsString]) -> BenchError {
    let command = Workload::augment_subcommands(clap::Command::new("bench"));
    let known: Vec<&str> =
        command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
    let word = words.first().map_or(String::new(), |word| word.to_string_lossy().into_owned());
    BenchError::Usage(format!("there is no workload {word}; there are: {}", known.join(", ")))
}
