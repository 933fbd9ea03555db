//! Is it faster than it was? `freshet bench compare A.json B.json`: the figures that both runs have, side by side.

use crate::error::{BenchError, on};
use crate::figure::{aligned, micros, short};
use crate::progress::say;
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A change below it may be the weather.
const NOISE: f64 = 0.05;

/// Compare the figures of two runs (files of --json)
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    #[arg(value_name = "A.json")]
    before: PathBuf,
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

/// What makes two figures the same one.
type Key = [String; 7];

pub fn run(args: &CompareArgs) -> Result<(), BenchError> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    say(&setting("A", &before));
    say(&setting("B", &after));
    let both: Vec<&Key> = before.keys().filter(|key| after.contains_key(*key)).collect();
    if both.is_empty() {
        let (a, b) = (args.before.display(), args.after.display());
        return Err(BenchError::Usage(format!("{a} and {b} have no figure in common")));
    }
    let head = ["workload", "case", "figure", "adapter", "thr", "sessions", "A", "B", "change", "p99 A", "p99 B"];
    say("");
    let rows = both.iter().map(|key| row(key, &before[*key], &after[*key]));
    aligned(&head.map(str::to_owned), rows, 4..11).iter().for_each(|line| say(line));
    let alone = before.len() + after.len() - 2 * both.len();
    if alone > 0 {
        say(&format!("{alone} figures are in one of them only"));
    }
    Ok(())
}

/// The last of each figure: a file may hold several runs.
fn read(path: &Path) -> Result<BTreeMap<Key, Value>, BenchError> {
    let text = std::fs::read_to_string(path).map_err(on(path))?;
    let mut figures = BTreeMap::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let figure: Value = serde_json::from_str(line)
            .map_err(|e| BenchError::Usage(format!("{}, line {}: no figure: {e}", path.display(), n + 1)))?;
        figures.insert(key(&figure), figure);
    }
    Ok(figures)
}

fn key(figure: &Value) -> Key {
    ["workload", "case", "figure", "adapter", "threads", "sessions", "at"].map(|name| match &figure[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

fn setting(name: &str, figures: &BTreeMap<Key, Value>) -> String {
    let Some(figure) = figures.values().next_back() else {
        return format!("{name}: no figures");
    };
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let (commit, processor) = (text(&figure["commit"]), text(&figure["machine"]["processor"]));
    let load = figure["machine"]["load_average"].as_f64().unwrap_or(0.0);
    format!("{name}: commit {commit}, {processor}, load average {load:.1}")
}

/// The rate, or where there is none the ratio that is the figure.
fn value_of(figure: &Value) -> (f64, &'static str) {
    let rate = figure["rate_per_s"].as_f64().unwrap_or(0.0);
    if rate > 0.0 { (rate, "/s") } else { (figure["ratio_to_limit"].as_f64().unwrap_or(0.0), "x") }
}

fn row(key: &Key, before: &Value, after: &Value) -> [String; 11] {
    let ((a, unit), (b, _)) = (value_of(before), value_of(after));
    let change = if a > 0.0 && b > 0.0 { b / a - 1.0 } else { 0.0 };
    let mark = if change.abs() >= NOISE { " *" } else { "" };
    let p99 = |figure: &Value| figure["p99_us"].as_f64().map_or(String::new(), micros);
    let [workload, case, figure, adapter, threads, sessions, at] = key.clone();
    let figure = if at.is_empty() { figure } else { format!("{figure} at {at}") };
    [
        workload,
        case,
        figure,
        adapter,
        threads,
        sessions,
        format!("{} {unit}", short(a)),
        format!("{} {unit}", short(b)),
        format!("{:+.1}%{mark}", change * 100.0),
        p99(before),
        p99(after),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rate: f64) -> String {
        format!(
            r#"{{"workload":"ptime","case":"search","figure":"operations","adapter":"freshet","threads":2,"sessions":1,"rate_per_s":{rate}}}"#
        )
    }

    #[test]
    fn the_last_figure_of_each_file_counts_and_a_change_is_marked() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, format!("{}\n{}\n", line(5.0), line(100.0))).expect("writes");
        std::fs::write(&b, line(110.0)).expect("writes");
        let (before, after) = (read(&a).expect("reads"), read(&b).expect("reads"));
        let (key, figure) = before.first_key_value().expect("one figure");
        let row = row(key, figure, &after[key]);
        assert_eq!(row[8], "+10.0% *");
        assert!(run(&CompareArgs { before: a.clone(), after: b }).is_ok());
        std::fs::write(dir.path().join("c"), "nonsense").expect("writes");
        let bad = run(&CompareArgs { before: a, after: dir.path().join("c") });
        assert!(matches!(bad, Err(BenchError::Usage(_))));
    }
}
