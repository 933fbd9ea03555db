//! What every line of a run says, whoever reads it.

use serde_json::Value;
use std::path::Path;

const FIELDS: [&str; 14] = [
    "workload",
    "case",
    "adapter",
    "threads",
    "sessions",
    "rate_per_s",
    "limit_per_s",
    "ratio_to_limit",
    "p50_us",
    "p99_us",
    "log_bytes_per_op",
    "commit",
    "machine",
    "config",
];

/// The figures of a file, each with all fields, and with a limit where it is a rate.
pub fn figures(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("figures were written");
    let figures: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for figure in &figures {
        let object = figure.as_object().expect("an object");
        FIELDS.iter().for_each(|field| assert!(object.contains_key(*field), "{field} is missing in {figure}"));
        let number = |field: &str| figure[field].as_f64().unwrap_or(0.0);
        let (rate, limit, ratio) = (number("rate_per_s"), number("limit_per_s"), number("ratio_to_limit"));
        assert!(rate == 0.0 || limit > 0.0, "a rate without a limit: {figure}");
        assert!(rate == 0.0 || (ratio * limit / rate - 1.0).abs() < 1e-6, "a ratio to something else: {figure}");
    }
    figures
}
