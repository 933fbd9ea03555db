//! `freshet salvage`: what can be saved of a damaged database goes into a new one.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | everything was saved |
//! | 1 | something was lost, and is listed; or the new database refused, which is said |
//! | 2 | wrong usage: no database there, a server has it open, its files may not be read, or the new directory holds something |

use crate::check::{Bar, Directories, finding_json};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::Loss;
use freshet_engine::io::Io;
use freshet_engine::io::os::OsIo;
use freshet_engine::salvage::{SalvageError, Salvaged, salvage};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Write what can be saved of a damaged database into a new directory, and list what cannot; the source is only read
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// Directory of the new database; empty, or made
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
    /// Print what was saved and lost as one JSON object
    #[arg(long)]
    json: bool,
}

const COMPLETE: u8 = 0;
const INCOMPLETE: u8 = 1;
const WRONG_USAGE: u8 = 2;

pub fn run(args: &Args) -> ExitCode {
    let tell = |code: u8, reason: &dyn std::fmt::Display| {
        // Without a stderr there is nobody to tell; the code still says it.
        let _ = writeln!(std::io::stderr(), "freshet: {reason}");
        ExitCode::from(code)
    };
    let io: Arc<dyn Io> = Arc::new(OsIo::new());
    if let Err(reason) = is_free(&io, &args.to) {
        return tell(WRONG_USAGE, &reason);
    }
    let subject = args.directories.subject();
    // Before anything is made: a source that is none needs no new database.
    if let Err(error) = freshet_engine::inspect::is_there(&io, &subject) {
        return tell(WRONG_USAGE, &error);
    }
    let target = match Engine::open(Options { in_making: true, ..Options::new(&args.to) }) {
        Ok(target) => target,
        Err(error) => return tell(INCOMPLETE, &error),
    };
    let mut bar = Bar::new();
    let salvaged = salvage(&io, &subject, &target, &mut |progress| bar.show(progress));
    bar.clear();
    let salvaged = match salvaged {
        Ok(salvaged) => salvaged,
        Err(error @ SalvageError::Source(_)) => return tell(WRONG_USAGE, &error),
        Err(error) => return tell(INCOMPLETE, &error),
    };
    let text = if args.json { format!("{:#}", as_json(&salvaged)) } else { salvaged.to_string() };
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(if salvaged.is_complete() { COMPLETE } else { INCOMPLETE })
}

fn is_free(io: &Arc<dyn Io>, dir: &Path) -> Result<(), String> {
    let in_dir = |error: std::io::Error| format!("cannot use {}: {error}", dir.display());
    if io.exists(dir).map_err(in_dir)? && std::fs::read_dir(dir).map_err(in_dir)?.next().is_some() {
        return Err(format!("{} is not empty", dir.display()));
    }
    Ok(())
}

fn as_json(salvaged: &Salvaged) -> Value {
    let table = |t: &freshet_engine::salvage::Saved| json!({"table": t.table, "rows": t.rows, "older": t.older, "losses": t.lost});
    json!({
        "complete": salvaged.is_complete(),
        "tables": salvaged.tables.iter().map(table).collect::<Vec<_>>(),
        "other_definitions": salvaged.definitions,
        "losses": salvaged.losses.iter().map(loss_json).collect::<Vec<_>>(),
        "half_saved_commits": salvaged.halves.iter().map(|cts| format!("{cts:?}")).collect::<Vec<_>>(),
        "findings": salvaged.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn loss_json(loss: &Loss) -> Value {
    json!({
        "fate": loss.fate.name(),
        "table": loss.table,
        "row": loss.row.map(|row| format!("{row:?}")),
        "key": loss.key,
        "reason": loss.reason,
    })
}
