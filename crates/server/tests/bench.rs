//! Does the program measure its own server? `freshet bench` starts it in a process of its own, asks it over loopback, and ends it.

use freshet_bench::adapter::postgres;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `freshet bench` on tiny data; what it said and the figures as JSON.
fn bench(words: &str) -> (String, Vec<serde_json::Value>) {
    let dir = tempfile::tempdir().expect("a directory");
    let json = dir.path().join("figures.json");
    let data = dir.path().join("data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    command.arg("bench").args(words.split(' ')).args(["--rows", "2000", "--seconds", "0.05", "--warm-up", "0.01"]);
    let out = command.arg("--json").arg(&json).arg("--data").arg(&data).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert_eq!(std::fs::read_dir(data).expect("lists").count(), 0, "a run leaves nothing: {said}");
    let told = std::fs::read_to_string(json).expect("figures");
    (said, told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

#[test]
fn messages_of_several_queries_go_over_the_wire() {
    let (said, figures) = bench("directory --adapter freshet-wire");
    let told: Vec<&str> = figures.iter().filter_map(|f| f["case"].as_str()).collect();
    assert_eq!(told, ["load", "messages", "messages", "messages", "index-build"], "{said}");
}

#[test]
fn single_rows_go_over_the_wire() {
    let words =
        "ptime --adapter freshet-wire --case load,search,search-batched,update,insert,delete,mix-50-50 --sessions 4";
    let (said, figures) = bench(words);
    assert!(said.contains("all data right"), "{said}");
    for case in ["load", "search", "search-batched", "update", "insert", "delete", "mix-50-50"] {
        let has = figures.iter().any(|f| f["case"] == case && f["limit_per_s"].as_f64() > Some(0.0));
        assert!(has, "{case}: {said}");
    }
}

#[test]
fn transactions_of_sessions_that_share_connections_stay_apart() {
    // 80 sessions of two threads over at most 64 connections: their BEGINs, statements and COMMITs do not mix, or sums would be wrong.
    let (said, figures) = bench("extreme --adapter freshet-wire --case update,accounts --sessions 80");
    assert_eq!(figures.len(), 2, "{said}");
    assert!(said.contains("all data right"), "{said}");
}

const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a run of a minute, and waits until the system has its directory and its process.
fn running(adapter: &str, data: &Path, is_server: bool) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    command.args(["bench", "hotspot", "--rows", "100", "--seconds", "60", "--threads", "1", "--adapter", adapter]);
    let child = command.arg("--data").arg(data).stdout(Stdio::null()).spawn().expect("starts");
    let names = || std::fs::read_dir(data).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let own = child.id();
    until(adapter, || {
        let is_made = names().any(|name| name == format!("{adapter}-{own}").as_str());
        is_made && (!is_server || processes_in(data).iter().any(|pid| *pid != own))
    });
    child
}

/// Those that work there, or were told of it.
fn processes_in(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("lists").flatten();
    let is_there = |proc: &Path| {
        let words = std::fs::read(proc.join("cmdline")).unwrap_or_default();
        let is_told = String::from_utf8_lossy(&words).contains(&dir.display().to_string());
        is_told || std::fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
    };
    entries.filter(|e| is_there(&e.path())).filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

#[test]
fn a_signal_ends_the_servers_of_a_run_and_removes_what_they_made() {
    let mut systems = vec![("freshet", false, Signal::INT, 130), ("freshet-wire", true, Signal::TERM, 143)];
    systems.extend(postgres::programs().is_ok().then_some(("postgres", true, Signal::INT, 130)));
    for (system, is_server, signal, code) in systems {
        let dir = tempfile::tempdir_in("/tmp").expect("a directory");
        // PostgreSQL's server runs as another user where we are root.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
        let data = dir.path().join("data");
        let mut child = running(system, &data, is_server);
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        assert_eq!(child.wait().expect("ends").code(), Some(code), "{system}");
        assert_eq!(std::fs::read_dir(&data).expect("lists").count(), 0, "{system}: a run leaves nothing");
        until(&format!("{system}: servers end"), || processes_in(dir.path()).is_empty());
    }
}
