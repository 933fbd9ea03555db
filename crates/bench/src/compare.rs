//! Is it faster than it was? `freshet bench compare A.json B.json`: the figures that both runs have, side by side, with a warning of whatever the
//! runs were told differently.

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
const KEY: [&str; 7] = ["workload", "case", "figure", "adapter", "threads", "sessions", "at"];
/// What a line has that is a figure: of the key's fields all but the last, and a rate.
const TEXTS: usize = 4;
const FIELDS: usize = 6;
const RATE: &str = "rate_per_s";

/// Of a figure's configuration, what its value depends on. The others say where the data was, and what the system is.
const CONDITIONS: [&str; 13] = [
    "rows", "seconds", "warm_up", "log", "rate", "scale", "runs", "updates", "clients", "feed", "clones", "through",
    "mode",
];

pub fn run(args: &CompareArgs) -> Result<(), BenchError> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    say(&setting("A", &before));
    say(&setting("B", &after));
    let both: Vec<&Key> = before.keys().filter(|key| after.contains_key(*key)).collect();
    if both.is_empty() {
        let (a, b) = (args.before.display(), args.after.display());
        return Err(BenchError::Usage(format!("{a} and {b} have no figure in common")));
    }
    differences(both.iter().map(|key| (&before[*key], &after[*key]))).iter().for_each(|line| say(line));
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
        if let Some(missing) = missing(&figure) {
            return Err(BenchError::Usage(format!(
                "{}, line {}: no figure: it has no {missing}",
                path.display(),
                n + 1
            )));
        }
        figures.insert(key(&figure), figure);
    }
    Ok(figures)
}

/// A field that every figure has and this one has not.
fn missing(figure: &Value) -> Option<&'static str> {
    let has = |(at, name): &(usize, &str)| match at {
        0..TEXTS => figure[name].is_string(),
        _ => figure[name].is_u64(),
    };
    let missing = KEY.into_iter().take(FIELDS).enumerate().find(|field| !has(field));
    // A rate without bounds is null.
    missing.map(|(_, name)| name).or_else(|| figure.get(RATE).is_none().then_some(RATE))
}

fn key(figure: &Value) -> Key {
    KEY.map(|name| text_of(&figure[name]).unwrap_or_default())
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// What was different when they were measured: a line for each two values.
fn differences<'a>(both: impl Iterator<Item = (&'a Value, &'a Value)>) -> Vec<String> {
    let mut counts: BTreeMap<(&str, String, String), usize> = BTreeMap::new();
    let mut all = 0;
    for (a, b) in both {
        all += 1;
        let told = conditions(a).zip(conditions(b)).filter(|(a, b)| a != b);
        told.for_each(|((name, a), (_, b))| *counts.entry((name, a, b)).or_default() += 1);
    }
    let line = |((name, a, b), count)| {
        format!("warning: not the same {name}: {a} in A, {b} in B, of {count} figures in {all}")
    };
    counts.into_iter().map(line).collect()
}

fn conditions(figure: &Value) -> impl Iterator<Item = (&'static str, String)> {
    let told = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let profile = figure["machine"]["optimised"].as_bool().map(|is| if is { "release" } else { "debug" }.to_owned());
    let config = CONDITIONS.into_iter().map(move |name| (name, told(text_of(&figure["config"][name]))));
    config.chain([("profile", told(profile))])
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

    #[test]
    fn a_line_that_is_no_figure_is_refused_with_what_it_lacks() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let refused = |line: &str| {
            std::fs::write(file.path(), line).expect("writes");
            read(file.path()).expect_err(line).to_string()
        };
        for (line, lacks) in [
            (r#"{"a":1}"#.to_owned(), "line 1: no figure: it has no workload"),
            ("[1]".to_owned(), "no workload"),
            (format!("{}\n{}", line(1.0), line(2.0).replace("case", "kase")), "line 2: no figure: it has no case"),
            (line(1.0).replace("\"threads\":2", "\"threads\":\"2\""), "no threads"),
            (line(1.0).replace("rate_per_s", "rate"), "no rate_per_s"),
        ] {
            assert!(refused(&line).ends_with(lacks), "{}", refused(&line));
        }
        std::fs::write(file.path(), line(1.0).replace("1}", "null}")).expect("writes");
        assert!(read(file.path()).is_ok(), "a rate without bounds");
    }

    #[test]
    fn what_the_runs_were_told_differently_is_warned_of() {
        let figure = |rows: &str, seconds: &str, log: &str, optimised: bool| {
            let mut figure: Value = serde_json::from_str(&line(1.0)).expect("JSON");
            figure["config"] = serde_json::json!({"rows": rows, "seconds": seconds, "log": log, "data": rows});
            figure["machine"] = serde_json::json!({"optimised": optimised});
            figure
        };
        let (a, b) = (figure("100", "1", "1", true), figure("200", "10", "/dev/shm", false));
        assert!(differences([(&a, &a)].into_iter()).is_empty());
        let told = differences([(&a, &b), (&a, &b), (&a, &a)].into_iter());
        assert_eq!(
            told,
            [
                "warning: not the same log: 1 in A, /dev/shm in B, of 2 figures in 3",
                "warning: not the same profile: release in A, debug in B, of 2 figures in 3",
                "warning: not the same rows: 100 in A, 200 in B, of 2 figures in 3",
                "warning: not the same seconds: 1 in A, 10 in B, of 2 figures in 3",
            ]
        );
        let bare: Value = serde_json::from_str(&line(1.0)).expect("JSON");
        assert!(differences([(&bare, &a)].into_iter())[0].contains("log: none in A, 1 in B"));
    }
}
