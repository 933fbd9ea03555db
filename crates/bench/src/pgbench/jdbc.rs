//! What does a program in Java get? `Jdbc.java` through pgjdbc with its defaults, asked of our server and of PostgreSQL in turn. The driver is
//! half of what is measured.

use super::{ACCOUNTS_OF_SCALE_ONE, Asked, Bench, Case, Script};
use crate::adapter::Missing;
use crate::adapter::wire::Address;
use crate::error::{BenchError, on};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = include_str!("Jdbc.java");
/// Where distributions put the driver.
const INSTALLED: &str = "/usr/share/java/postgresql.jar";

/// The driver, where there is one and something to run it with.
pub(super) fn driver() -> Result<PathBuf, Missing> {
    let missing = |reason: &str| Missing {
        reason: reason.to_owned(),
        remedy: "apt-get install -y default-jdk-headless libpostgresql-jdbc-java".to_owned(),
    };
    if !Command::new("javac").arg("-version").output().is_ok_and(|ended| ended.status.success()) {
        return Err(missing("there is no JDK"));
    }
    // As scripts/need keeps them.
    let kept = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/freshet/jars"));
    let jars = std::env::var_os("FRESHET_JARS").map(PathBuf::from).or(kept);
    let is_driver = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("postgresql") && name.ends_with(".jar")
    };
    let listed = jars.and_then(|jars| std::fs::read_dir(jars).ok());
    let mut listed = listed.into_iter().flatten().flatten().map(|entry| entry.path());
    let found = listed.find(is_driver).or_else(|| Some(PathBuf::from(INSTALLED)).filter(|path| path.is_file()));
    found.ok_or_else(|| missing("there is no pgjdbc"))
}

impl Bench<'_> {
    /// Runs the program against one server.
    pub(super) fn run_jdbc(
        &self,
        (name, address, server): (&str, Address, &crate::adapter::child::Server),
        case: &Case,
        driver: &Path,
    ) -> Result<Asked, BenchError> {
        let program = self.scratch.path().join("Jdbc.java");
        std::fs::write(&program, PROGRAM).map_err(on(&program))?;
        let Address { at, user, database, .. } = address;
        let kind = if case.script == Script::Select { "select" } else { "update" };
        let accounts = self.args.scale * ACCOUNTS_OF_SCALE_ONE;
        let numbers = [case.clients as u64, case.pipeline as u64, accounts, self.args.seconds].map(|n| n.to_string());
        let mut command = Command::new("java");
        command.arg("-cp").arg(driver).arg(&program);
        command.args([&format!("jdbc:postgresql://{at}/{database}"), user, kind]).args(numbers);
        let before = server.cpu_seconds();
        let ended = command.output().map_err(on(&program))?;
        let cpu_seconds = server.cpu_seconds() - before;
        let said = String::from_utf8_lossy(&ended.stdout);
        let mut words = said.split_whitespace();
        let (counted, seconds, all) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok());
        let (Some(counted), Some(seconds), Some(all)) = (number(counted), number(seconds), number(all)) else {
            let said = String::from_utf8_lossy(&ended.stderr);
            let lines: Vec<&str> = said.lines().take(3).collect();
            return Err(BenchError::Engine(format!("pgjdbc against {name}: {}", lines.join(" | "))));
        };
        let each = case.pipeline as f64;
        let rate_per_s = counted / seconds / each;
        let latency_ms = case.clients as f64 / rate_per_s.max(f64::MIN_POSITIVE) * 1e3;
        Ok(Asked { rate_per_s, latency_ms, transactions: (all / each) as u64, cpu_seconds, rounds: 1.0 })
    }
}
