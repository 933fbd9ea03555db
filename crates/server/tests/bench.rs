//! Does the program measure its own server? `freshet bench` starts it in a process of its own, asks it over loopback, and ends it.

use std::process::Command;

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
